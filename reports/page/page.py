"""Page of an experiment: one HTML file that needs no other files, the same content as Markdown and JSON, and
its publication.

A script sorts and filters tables; without the script everything is shown. Tables are also written as CSV,
with unrounded numbers. `publish` copies the files of an experiment that a repository keeps, and `restore`
brings back those from which its page can be made again.
"""

import base64
import hashlib
import inspect
import itertools
import json
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup
from pandas import DataFrame
from pydantic_core import to_json

from ablations.errors import ResultsError
from ablations.results import sealed, write_whole
from ablations.runs.records import PUBLISHED_PROVENANCE, RUNS_FILE, read_json
from ablations.spec import claims as claims_file
from ablations.spec.figures import PUBLISHED_FOLDER, kept_published
from ablations.tasks.datasets import kept_tasks
from reports import folder as experiment_folder
from reports import words
from reports.claims import words as claim_words
from reports.claims.judge import Judged, judge_claims
from reports.figures.files import Drawing, data_url, draw, swatch_classes, swatch_style
from reports.figures.panel import axis_head, csv_of, place_in_words
from reports.figures.trials import tuning_panels
from reports.page import latex
from reports.page.content import content, page_figures
from reports.page.entries import claim_entries, draw_claim
from reports.page.flips import publish_predictions
from reports.scores.spread import spread_panels
from reports.scores.tables import mark

TEMPLATES = Path(__file__).parent / "templates"

_MARKUP = re.compile(r"[\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""Signs that have a meaning anywhere in a line of Markdown; an underscore between letters has none."""

_COMMAND = re.compile(r"(`ablate [a-z]+`)")
"""Command that our own sentences name, which is shown as code; backquotes in other texts are escaped."""

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}

_OPENING = re.compile(r"^\s*([#+=:-]|\d+(?=[.)](\s|$)))")
"""Signs that have a meaning at the start of a line of Markdown."""

_INDENT = re.compile(r"^[ \t]{2,}")
_BREAK = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


class Written(str):
    """Text that is Markdown already."""


def markdown(page: dict[str, Any]) -> str:
    """Return the content of a page as Markdown with GitHub's tables; everything but the template is escaped."""
    return _markdown_template().render(page)


@cache
def _markdown_template() -> Template:
    # Markdown needs other escapes than HTML: `escaped` is applied to every value of the template.
    environment = _environment(autoescape=False, finalize=escaped)
    environment.filters["code"] = _code
    return environment.get_template("report.md")


def _environment(**options: Any) -> Environment:
    """Return jinja's environment for the templates; the functions of both modules of words are filters."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )
    for module in (words, claim_words):
        functions = inspect.getmembers(module, inspect.isfunction)
        environment.filters |= {name: function for name, function in functions if not name.startswith("_")}
    environment.filters |= {"known": lambda values: values or words.ABSENT, "mark": mark}
    return environment


def escaped(value: Any) -> Any:
    """Return text on one line with Markdown and HTML escaped. Values that are not text are returned unchanged."""
    if not isinstance(value, str) or isinstance(value, Written):
        return value
    return _escaped(value)


@lru_cache(maxsize=10_000)  # a large grid has a row for each run, and most texts of a row are those of its arm
def _escaped(text: str) -> Written:
    line = _INDENT.sub(" ", _BREAK.sub(" ", text))
    line = "".join(_ENTITIES.get(letter, letter) for letter in line)
    line = "".join(
        part if _COMMAND.fullmatch(part) else _MARKUP.sub(r"\\\g<0>", part) for part in _COMMAND.split(line)
    )
    return Written(_OPENING.sub(lambda match: _opened(match[1]), line))


def _opened(start: str) -> str:
    """Return the start of a line, or the sign after its number, escaped so that it opens no heading or list."""
    return start + "\\" if start[0].isdigit() else "\\" + start


def _code(value: str) -> Written:
    """Return text as an indented block of code, with its line breaks."""
    return Written("\n".join(f"    {line}" for line in value.splitlines()))


COLUMNS = (
    *("task", "part", "metric", "layer", "arm", "beside", "mean", "low", "high"),
    *("band", "seeds", "floor", "verdict", "n"),
    *("difference", "difference_low", "difference_high"),
)
"""Columns of scores; a row has an arm, or one of the columns beside the arms. A column in which arms
differ has no mean, but its lowest and highest number. In rows of arms, n is that of the arm's smallest run; in
other rows it is the largest n of all arms. The difference is that from the first arm."""


def score_csv(table: dict[str, Any]) -> str:
    """Return all rows of a table of scores as CSV, folded ones included."""
    bodies = [("", table["rows"]), *((part["title"], part["rows"]) for part in table["folded"])]
    rows = []
    for title, body in bodies:
        for row in body:
            shared = {name: row[name] for name in ("task", "metric", "layer")} | {"part": title or None}
            shared["n"] = max(row["n"], default=None)
            for head, value in row["beside"].items():
                ends = {"low": value[0], "high": value[1]} if isinstance(value, tuple | list) else {"mean": value}
                rows.append(shared | {"beside": head} | ends)
            rows += [
                shared | {"arm": arm} | cell | {"n": cell["examples"]} | _difference_columns(cell["difference"])
                for arm, cell in row["arms"].items()
            ]
    return csv_of(DataFrame(rows, columns=list(COLUMNS)).astype({"seeds": "Int64", "n": "Int64"}))


def _difference_columns(difference: dict[str, Any] | None) -> dict[str, Any]:
    by_key = {"difference": "mean", "difference_low": "low", "difference_high": "high"}
    return {column: difference and difference[key] for column, key in by_key.items()}


def joined_csv(table: dict[str, Any]) -> str:
    """Return the table of runs as CSV, with a row for each run."""
    names = ["arm", "seed", "run_id", *(column["name"] for column in table["columns"])]
    return csv_of(DataFrame(table["rows"], columns=names))


def tables_of(page: dict[str, Any]) -> dict[str, str]:
    """Return the CSV of every table of the page, by its name."""
    tables = {table["name"]: score_csv(table) for table in page["tasks"]}
    return tables | ({"joined": joined_csv(page["joined"])} if page["joined"]["rows"] else {})


EMBEDDED_CSV_BYTES = 500_000
"""Largest number of bytes of CSV inside the page, over all panels; further panels only link to their files."""


def write(folder: Path, judged: Judged | None = None) -> Path:
    """Write report.html, .md and .json, figures/ and tables/ into the experiment's folder, and return the
    path of the HTML.

    It reads only `folder` and the folder `runs` beside it. The same input gives the same bytes. Files in
    figures/ and tables/ that an earlier page wrote and this one does not are removed; other files stay. A
    page is written whatever the state: it names runs that are missing or failed, and plugin figures that
    fail.

    Args:
        judged: experiment of this folder with its claims judged, if a command has done that already.

    Raises:
        ResultsError: a file of the experiment is damaged or plan.json missing, or the page cannot be written.
    """
    judged = judge_claims(experiment_folder.read(folder)) if judged is None else judged
    figures, failures = page_figures(judged)
    tuning = judged.experiment.plan.tuning
    of_trials = [] if tuning is None else tuning_panels(tuning, arms=judged.experiment.plan.arms)
    page = content(judged, figures, failures=failures, of_trials=of_trials) | {
        "made_from": judged.experiment.made_from
    }
    page["claims"] = claim_entries(judged.claims, page)
    drawn: dict[str, Drawing] = {}
    files: dict[str, str] = {}
    of_spread = [] if page["spread"] is None else spread_panels(page["spread"]["tables"])
    for panel in (*(panel for figure in figures for panel in figure.panels), *of_trials, *of_spread):
        drawn[panel.name] = drawing = draw(panel)
        files |= {panel.svg: drawing.svg, panel.csv: drawing.csv}
    for entry in page["claims"]:
        if entry.plot:
            drawn[entry.id] = drawing = draw_claim(entry)
            files |= {entry.plot.svg: drawing.svg, entry.plot.csv: drawing.csv}
    files |= {f"figures/{name}.csv": text for name, text in tables_of(page).items()}
    files |= {f"tables/{name}.tex": text for name, text in latex.tables(page).items()}
    for name, text in files.items():
        write_whole(folder / name, text.encode())
    for name in _files_before(folder) - set(files):
        (folder / name).unlink(missing_ok=True)
    page["files"] = sorted(files)
    write_whole(folder / "report.json", to_json(page, inf_nan_mode="null"))  # JSON has neither NaN nor infinity
    write_whole(folder / "report.md", markdown(page).encode())
    write_whole(folder / "report.html", html(page, drawn).encode())
    return folder / "report.html"


def _files_before(folder: Path) -> set[str]:
    """Return the files in figures/ and tables/ of the existing page, as its report.json names them. Files behind
    links to folders are left out, as they may belong to others."""
    try:
        report = read_json(folder / "report.json")
    except (OSError, ValueError):
        return set()
    files = report.get("files") if isinstance(report, dict) else None
    listed = files if isinstance(files, list) else []
    names = {name for name in listed if isinstance(name, str) and is_made(name)}
    return {name for name in names if not (folder / name).parent.is_symlink()}


def is_made(name: str) -> bool:
    """Return whether a name is that of a figure or table inside the experiment's folder."""
    return re.fullmatch(r"(figures|tables)/[^/\0]+", name) is not None and not name.endswith(("/.", "/.."))


def html(page: dict[str, Any], drawn: dict[str, Drawing]) -> str:
    """Return the page as HTML. Everything except the drawings is escaped."""
    arms = [arm["arm"] for arm in page["arms"]]
    return _html_template().render(
        page,
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8") + swatch_style(arms)),
        script=Markup((TEMPLATES / "tables.js").read_text(encoding="utf-8")),
        image={name: data_url(panel.svg) for name, panel in drawn.items()},
        csv=_embedded(_csv_files(page, drawn)),
        table_number={name: number for number, name in enumerate(tables_of(page), start=1)},
        swatch=swatch_classes(arms),
    )


@cache
def _html_template() -> Template:
    """Return the template of the page, which a process compiles once for several pages."""
    environment = _environment(autoescape=True)
    environment.filters |= {"place": place_in_words, "axis_head": axis_head, "verdicts": _verdicts}
    environment.filters |= {"breakable": _breakable, "commands": _commands, "digest": _sha256}
    return environment.get_template("page.html")


def _commands(text: str) -> Markup:
    """Return text with the commands that it names as code."""
    parts = _COMMAND.split(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part.strip("`")) if _COMMAND.fullmatch(part) else part for part in parts
    )


def _sha256(text: str) -> str:
    """Return the hash of a text in the form of a content security policy."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _breakable(name: str) -> Markup:
    """Return a name that may break after commas and equals signs (arms of a grid) and underscores (paradigms)."""
    return Markup("<wbr>").join(re.split("(?<=[,=_])", name))


def _verdicts(cells: dict[str, dict[str, Any]]) -> list[str]:
    return [cell["verdict"] for cell in cells.values()]


def _csv_files(page: dict[str, Any], drawn: dict[str, Drawing]) -> dict[str, str]:
    """Return the CSV files by name. Those of claims come first, as they are small."""
    first = [entry.id for entry in page["claims"] if entry.plot]
    names = [*first, *(name for name in drawn if name not in first)]
    return {name: drawn[name].csv for name in names} | tables_of(page)


def _embedded(files: Mapping[str, str]) -> dict[str, str]:
    """Return the CSV of the first panels and tables in base64, as far as there is room."""
    encoded, room = {}, EMBEDDED_CSV_BYTES
    for name, text in files.items():
        room -= len(text)
        if room < 0:
            break
        encoded[name] = base64.b64encode(text.encode()).decode()
    return encoded


PUBLISHED_RESULTS = ("plan.json", "spec.yaml", "results.parquet", "looks.json", "tuned.json")
"""Files that a page is made from and that are copied unchanged. Without `tune` there is no tuned.json, and
with a fixed list of seeds no looks.json."""

PUBLISHED_PAGE = ("report.md", "claims.json")
"""Files of a page that are published; an experiment without claims has no claims.json."""


def publish(folder: Path, to: Path) -> Path:
    """Copy the files of a page to a folder in `to` with the experiment's name, and return that folder.

    It then holds report.md with its figures, tables in LaTeX, results.parquet, the verdicts (claims.json),
    spec, plan, claims, and the published curves and files of tasks that the spec names. provenance.json has
    commits, versions, machines and dates; runs.parquet has settings, state and provenance of each run;
    predictions.parquet is there if runs keep predictions. Figures, tables, claims and curves that only an
    earlier publication had are removed. Other files stay, such as a findings.md that a person wrote.

    Raises:
        ResultsError: `folder` has no page, or a file cannot be written.
    """
    report = _report_of(folder / "report.json")
    published = to / folder.name
    drawn = {name for name in map(str, report["files"]) if (folder / name).is_file() and is_made(name)}
    beside_spec = _files_beside_spec(folder)
    for name in [*PUBLISHED_RESULTS, *PUBLISHED_PAGE, *sorted(drawn), *beside_spec]:
        _copy(folder / name, published / name)
    for part in ("figures", "tables", claims_file.FOLDER, PUBLISHED_FOLDER):
        for path in list(published.glob(f"{part}/*")):
            if path.is_file() and path.relative_to(published).as_posix() not in drawn | set(beside_spec):
                path.unlink()
    provenance = json.dumps(report["provenance"], ensure_ascii=False, indent=1) + "\n"
    write_whole(published / PUBLISHED_PROVENANCE, provenance.encode())
    _publish_runs(folder, published)
    publish_predictions(folder, published, experiment_folder.read(folder).plan.runs)
    return published


def restore(published: Path, out: Path) -> Path:
    """Copy the files that a page is made from into a folder of the same name in `out`, and return that
    folder.

    A page can then be written there, with claims judged again on the published table. If runs are
    added later, the claims keep the dates at which they were planned.

    Raises:
        ResultsError: a published file is damaged, the folder in `out` holds other results, or a file cannot be
            written.
    """
    experiment = experiment_folder.read(published)  # if a file is damaged, nothing is copied
    folder = out / published.resolve().name
    plan = folder / "plan.json"
    if plan.exists() and plan.read_bytes() != (published / "plan.json").read_bytes():
        raise ResultsError(
            f"{folder} has other results than {published}; name another output root with --out, or "
            f"delete {folder}."
        )
    for name in [*PUBLISHED_RESULTS, *_files_beside_spec(published)]:
        _copy(published / name, folder / name)
    _publish_runs(published, folder)  # results in an output root have folders of runs beside them
    publish_predictions(published, folder, experiment.plan.runs)
    return folder


def _files_beside_spec(folder: Path) -> list[str]:
    """Return the paths of the files of claims, published curves and tasks that the experiment names and that
    exist."""
    names = [name for name in experiment_folder.read_plan(folder).claims if claims_file.NAME.fullmatch(name)]
    places = [f"{claims_file.FOLDER}/{name}.yaml" for name in names]
    kept = [*kept_published(folder), *kept_tasks(folder)]
    return [*(place for place in places if (folder / place).is_file()), *kept]


def _copy(path: Path, to: Path) -> None:
    """Copy a whole file; without such a file, remove the one at the destination."""
    if path.is_file():
        write_whole(to, path.read_bytes())
    else:
        to.unlink(missing_ok=True)


def _publish_runs(folder: Path, published: Path) -> None:
    """Write the records of each run into one file, which `experiment_folder.read` uses without folders of runs."""
    texts = experiment_folder.run_texts(folder, experiment_folder.read_plan(folder).runs)
    names = dict.fromkeys(experiment_folder.RUN_RECORDS) | dict.fromkeys(itertools.chain(*texts.values()))
    table = pd.DataFrame(
        [{"run_id": run_id} | files for run_id, files in texts.items() if files],
        columns=["run_id", *names],
        dtype="string",
    )
    if len(table):
        write_whole(published / RUNS_FILE, sealed(table, compression="zstd", compression_level=19))
    else:
        (published / RUNS_FILE).unlink(missing_ok=True)


def _report_of(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = read_json(path)
    except (OSError, ValueError) as error:
        raise ResultsError(
            f"{path} cannot be read, so there is no page to publish; start `ablate report` again."
        ) from error
    return content
