"""Page as Markdown for readers of plain text, and the part of the results that a repository keeps."""

import json
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ablations.errors import ResultsError
from ablations.results import write_whole
from reports import words
from reports.claims import words as claim_words
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
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=False,  # this is no HTML: `finalize` escapes
        finalize=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(words, name) for name in ("count", "interval", "moment", "number")}
    environment.filters |= {name: getattr(words, name) for name in ("duration", "share")}
    environment.filters |= {name: getattr(claim_words, name) for name in claim_words.FILTERS}
    environment.filters |= {
        "anywhere": words.anywhere,
        "mark": mark,
        "known": lambda values: values or words.ABSENT,
        "code": _code,
    }
    return environment.get_template("report.md").render(page)


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


COPIED = ("report.md", "results.parquet", "claims.json", "spec.yaml")
"""Files that are copied as they are; an experiment without claims has no claims.json."""


def publish(folder: Path, to: Path) -> Path:
    """Copy the files of a page to a folder of the experiment's name in `to`; return that folder.

    It then holds report.md with its figures, results.parquet, claims.json, spec.yaml, and provenance.json with
    commits, versions, machines and dates. Figures that only an earlier publication had are removed. Files of other
    names stay, as the findings.md that a person writes.

    Raises:
        ResultsError: `folder` has no page, or a file cannot be written.
    """
    report = _read(folder / "report.json")
    published = to / folder.name
    figures = {path.name for path in folder.glob("figures/*") if f"figures/{path.name}" in report["files"]}
    for name in [*COPIED, *(f"figures/{name}" for name in sorted(figures))]:
        if (folder / name).is_file():
            write_whole(published / name, (folder / name).read_bytes())
        else:
            (published / name).unlink(missing_ok=True)
    for path in published.glob("figures/*"):
        if path.name not in figures:
            path.unlink()
    provenance = json.dumps(report["provenance"], ensure_ascii=False, indent=1) + "\n"
    write_whole(published / "provenance.json", provenance.encode())
    return published


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: there is no page to publish; start `ablate report` again.") from error
    return content
