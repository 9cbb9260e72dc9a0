"""Page of an experiment: one HTML file that needs nothing else, and the same content as Markdown and JSON.

Its one script sorts and filters tables; without it everything is there. Its tables are also CSV, the numbers as
they are computed, not as they are rounded.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup
from pandas import DataFrame

from ablations.results import write_whole
from reports import folder as experiment_folder
from reports import words
from reports.claims import words as claim_words
from reports.claims.judge import Judged, finite, judge_claims
from reports.figures.files import Drawing, data_url, draw, swatch_classes, swatch_style
from reports.figures.panel import axis_head, place
from reports.figures.trials import tuning_panels
from reports.folder import digest
from reports.page import latex
from reports.page.content import content, page_figures
from reports.page.entries import claim_entries, draw_claim
from reports.scores.spread import spread_panels
from reports.scores.tables import mark

TEMPLATES = Path(__file__).parent / "templates"

_MARKUP = re.compile(r"[\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""Signs that mean something anywhere in a line; an underscore does not between letters."""

_COMMAND = re.compile(r"(`ablate [a-z]+`)")
"""A command that our own sentences name, which is code for readers of either form; code of others is text."""

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}

_OPENING = re.compile(r"^\s*([#+=:-]|\d+(?=[.)](\s|$)))")
"""Signs that mean something at the start of a line."""

_INDENT = re.compile(r"^[ \t]{2,}")
_BREAK = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


class Written(str):
    """Text that is Markdown already."""


def markdown(page: dict[str, Any]) -> str:
    """Return the content of a page as Markdown (with the tables of GitHub's). Whatever does not come from the
    template is escaped."""
    return _markdown_template().render(page)


@cache
def _markdown_template() -> Template:
    # This is no HTML: `escaped` makes text of what is not from the template.
    environment = _environment(autoescape=False, finalize=escaped)
    environment.filters["code"] = _code
    return environment.get_template("report.md")


def _environment(**options: Any) -> Environment:
    """Return jinja's environment for the templates, with words for page and Markdown."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )
    written = ("anywhere", "count", "duration", "interval", "moment", "number", "percent", "share")
    environment.filters |= {name: getattr(words, name) for name in written}
    environment.filters |= {name: getattr(claim_words, name) for name in claim_words.FILTERS}
    filters = (words.tuning_remark, words.spread_sd, words.spread_share)
    environment.filters |= {each.__name__: each for each in filters}
    environment.filters |= {"known": lambda values: values or words.ABSENT, "mark": mark}
    return environment


def escaped(value: Any) -> Any:
    """Return text on one line, of which nothing is Markdown or HTML; anything but text as it is."""
    if not isinstance(value, str) or isinstance(value, Written):
        return value
    line = _INDENT.sub(" ", _BREAK.sub(" ", value))
    line = "".join(_ENTITIES.get(letter, letter) for letter in line)
    line = "".join(
        part if _COMMAND.fullmatch(part) else _MARKUP.sub(r"\\\g<0>", part) for part in _COMMAND.split(line)
    )
    return Written(_OPENING.sub(lambda match: _opened(match[1]), line))


def _opened(start: str) -> str:
    """Return the start of a line, escaped: at the start of a line a sign would open a heading or a list; behind a
    number the next sign does."""
    return start + "\\" if start[0].isdigit() else "\\" + start


def _code(value: str) -> Written:
    """Return text in which every line counts, indented as a block of code."""
    return Written("\n".join(f"    {line}" for line in value.splitlines()))


COLUMNS = (
    *("task", "part", "metric", "layer", "arm", "beside", "mean", "low", "high"),
    *("band", "seeds", "floor", "verdict", "n"),
)
"""Columns of scores: a row has an arm, or is about what stands beside them."""


def score_csv(table: dict[str, Any]) -> str:
    """Return all rows of a table of scores as CSV, its folded ones too."""
    bodies = [("", table["rows"]), *((part["title"], part["rows"]) for part in table["folded"])]
    rows = []
    for title, body in bodies:
        for row in body:
            same = {name: row[name] for name in ("task", "metric", "layer")} | {"part": title or None}
            same["n"] = max(row["n"], default=None)
            rows += [same | {"beside": head, "mean": value} for head, value in row["beside"].items()]
            rows += [same | {"arm": arm} | cell for arm, cell in row["arms"].items()]
    return _csv(DataFrame(rows, columns=list(COLUMNS)).astype({"seeds": "Int64"}))


def joined_csv(table: dict[str, Any]) -> str:
    """Return the table of runs as CSV, a row a run."""
    names = ["arm", "seed", "run_id", *(column["name"] for column in table["columns"])]
    return _csv(DataFrame(table["rows"], columns=names))


def tables_of(page: dict[str, Any]) -> dict[str, str]:
    """Return the CSV of every table of the page's content, by its name."""
    tables = {table["name"]: score_csv(table) for table in page["tasks"]}
    return tables | ({"joined": joined_csv(page["joined"])} if page["joined"]["rows"] else {})


def _csv(frame: DataFrame) -> str:
    return frame.to_csv(index=False, lineterminator="\n")


EMBEDDED_CSV_BYTES = 500_000
"""Most bytes of CSV inside the page, all panels together; once they are used up, a panel links its file alone."""


def write(folder: Path, judged: Judged | None = None) -> Path:
    """Write report.html, .md and .json, figures/ and tables/ into the experiment's folder; return the HTML's path.

    Reads only what lies in `folder` and in the `runs` beside it. The same input gives the same bytes. Files of
    figures/ and tables/ that a page before has written, and this one has not, are removed; other files stay.
    Runs that are missing or failed are said to be so, and figures of one's own that fail; a page is written
    whatever the state.

    Args:
        folder: of the experiment.
        judged: the experiment that lies there with its claims judged, if a command has done that already.

    Raises:
        ResultsError: a file of the experiment is damaged or plan.json missing, or the page cannot be written.
    """
    judged = judge_claims(experiment_folder.read(folder)) if judged is None else judged
    figures, failures = page_figures(judged)
    tuning = judged.experiment.plan.tuning
    of_trials = [] if tuning is None else tuning_panels(tuning, arms=judged.experiment.plan.arms)
    page = content(judged, figures, failures=failures.values(), of_trials=of_trials) | {
        "made_from": digest(folder)
    }
    page["claims"] = claim_entries(judged.claims, page)
    drawn: dict[str, Drawing] = {}
    files: dict[str, str] = {}
    of_spread = [] if page["spread"] is None else spread_panels(page["spread"]["tables"])
    for panel in (*(panel for figure in figures for panel in figure.panels), *of_trials, *of_spread):
        drawn[panel.name] = drawing = draw(panel)
        files |= {panel.svg: drawing.svg, panel.csv: drawing.csv}
    for entry in page["claims"]:
        if entry["plot"]:
            drawn[entry["id"]] = drawing = draw_claim(entry)
            files |= {entry["plot"]["svg"]: drawing.svg, entry["plot"]["csv"]: drawing.csv}
    files |= {f"figures/{name}.csv": text for name, text in tables_of(page).items()}
    files |= {f"tables/{name}.tex": text for name, text in latex.tables(page).items()}
    for name, text in files.items():
        write_whole(folder / name, text.encode())
    for name in _files_before(folder) - set(files):
        (folder / name).unlink(missing_ok=True)
    page["files"] = sorted(files)
    written = json.dumps(finite(page), ensure_ascii=False, allow_nan=False)  # indented it takes five times as long
    write_whole(folder / "report.json", written.encode())
    write_whole(folder / "report.md", markdown(page).encode())
    write_whole(folder / "report.html", html(page, drawn).encode())
    return folder / "report.html"


def _files_before(folder: Path) -> set[str]:
    """Return the files of the existing page in figures/ and tables/, if it names them."""
    try:
        report = json.loads((folder / "report.json").read_bytes())
    except (OSError, ValueError):
        return set()
    names = report.get("files") if isinstance(report, dict) else None
    listed = names if isinstance(names, list) else []
    return {name for name in listed if isinstance(name, str) and is_made(name)}


def is_made(name: str) -> bool:
    """Return whether a name is that of a figure or table in the experiment's folder, and of nothing outside it."""
    return re.fullmatch(r"(figures|tables)/[^/\0]+", name) is not None and not name.endswith(("/.", "/.."))


def html(page: dict[str, Any], drawn: dict[str, Drawing]) -> str:
    """Return the page as HTML. Everything but the drawings is escaped."""
    arms = [arm["arm"] for arm in page["arms"]]
    return _html_template().render(
        page,
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8") + swatch_style(arms)),
        script=Markup((TEMPLATES / "tables.js").read_text(encoding="utf-8")),
        image={name: data_url(panel.svg) for name, panel in drawn.items()},
        csv=_embedded(_csv_files(page, drawn)),
        table_number=_table_numbers(page),
        swatch=swatch_classes(arms),
    )


@cache
def _html_template() -> Template:
    """Return the template of the page; a process that makes several pages compiles it once."""
    environment = _environment(autoescape=True)
    environment.filters |= {"place": place, "axis_head": axis_head, "verdicts": _verdicts}
    environment.filters |= {"breakable": _breakable, "digest": _sha256}
    return environment.get_template("page.html")


def _sha256(text: str) -> str:
    """Return the hash of a text as a content security policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _breakable(name: str) -> Markup:
    """Return a name that a narrow column may break after its commas, as those of the arms of a grid have them, and
    after its underscores, as those of paradigms have them."""
    return Markup("<wbr>").join(re.split("(?<=[,_])", name))


def _verdicts(cells: dict[str, dict[str, Any]]) -> list[str]:
    """Return the verdicts of a row of a table of scores."""
    return [cell["verdict"] for cell in cells.values()]


def _csv_files(page: dict[str, Any], drawn: dict[str, Drawing]) -> dict[str, str]:
    """Return the CSV files by name, those of the claims first, which are small."""
    first = [entry["id"] for entry in page["claims"] if entry["plot"]]
    names = [*first, *(name for name in drawn if name not in first)]
    return {name: drawn[name].csv for name in names} | tables_of(page)


def _embedded(files: Mapping[str, str]) -> dict[str, str]:
    """Return the CSV of the first panels and tables, in base64, as far as there is room."""
    encoded, room = {}, EMBEDDED_CSV_BYTES
    for name, text in files.items():
        room -= len(text)
        if room < 0:
            break
        encoded[name] = base64.b64encode(text.encode()).decode()
    return encoded


def _table_numbers(page: dict[str, Any]) -> dict[str, int]:
    """Return the number of each table about tasks, in the order of the page."""
    return {name: number for number, name in enumerate(tables_of(page), start=1)}
