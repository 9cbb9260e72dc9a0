"""Curves that a paper published, which figures draw beside those of an experiment: a file, checked.

A file is `published/NAME.csv` beside the specs, with a point a line and the columns of `PublishedPoint`.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from ablations.errors import Problem, SpecProblems
from ablations.spec.yamlfile import Document
from ablations.wording import listed, must_be, nearest
from lightning_modules.config import Settings
from lightning_modules.config.objectives import OBJECTIVES

FOLDER = "published"
"""Folder of published curves, beside the specs."""

KINDS = tuple(get_args(settings.model_fields["kind"].annotation)[0] for settings in OBJECTIVES)


class PublishedPoint(Settings):
    """Point of a curve that was published."""

    source: str = Field(min_length=1)
    """Who published it, as a legend writes it."""
    measure: str = Field(min_length=1)
    metric: str = Field(min_length=1)
    group: str | None = None
    objective: str
    """Kind of the objective whose curve it is; it has the colour of the first arm with that objective."""
    layer: int = Field(ge=0)
    layer_to: int | None = Field(None, ge=0)
    value: float = Field(allow_inf_nan=False)
    """The number, in the unit of the metric."""
    error: float | None = Field(None, ge=0, allow_inf_nan=False)
    """By how much the reading may be wrong; None where that is not known."""
    read: str = Field(min_length=1)
    """How the number was read, as `from the figure`."""

    @field_validator("objective")
    @classmethod
    def _is_a_kind(cls, objective: str) -> str:
        if objective not in KINDS:
            raise ValueError(must_be(objective, KINDS, one="a kind of objective"))
        return objective

    @field_validator("layer_to")
    @classmethod
    def _is_the_next(cls, layer_to: int | None, info: ValidationInfo) -> int | None:
        layer = info.data.get("layer")
        if layer_to is not None and layer is not None and layer_to != layer + 1:
            raise ValueError(f"must be {layer + 1}, the layer after {layer}, but is {layer_to}; or leave it empty")
        return layer_to


COLUMNS = tuple(PublishedPoint.model_fields)


def load(path: Path) -> list[PublishedPoint]:
    """Read a file of published points.

    Raises:
        SpecProblems: every problem of the file, a line each.
    """
    points: list[PublishedPoint] = []
    problems: list[Problem] = []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecProblems(
            (Problem(str(path), 1, 1, f"this file cannot be read as UTF-8 text ({error})"),)
        ) from error
    reader = csv.DictReader(text.splitlines(), strict=True)
    if tuple(reader.fieldnames or ()) != COLUMNS:
        sentence = f"the first line must name the columns {', '.join(COLUMNS)}, in this order"
        raise SpecProblems((Problem(str(path), 1, 1, sentence),))
    try:
        for row in reader:
            point = _point(row, path, reader.line_num)
            if isinstance(point, Problem):
                problems.append(point)
            else:
                points.append(point)
    except csv.Error as error:
        problems.append(Problem(str(path), reader.line_num, 1, f"this line is no line of a CSV file ({error})"))
    if problems:
        raise SpecProblems(tuple(problems))
    return points


def _point(row: dict[str | Any, Any], path: Path, line: int) -> PublishedPoint | Problem:
    """Return the point of a line, or its first problem."""
    if None in row or None in row.values():
        return Problem(str(path), line, 1, f"this line must have {len(COLUMNS)} cells, as the first line")
    written = {name: cell for name, cell in row.items() if cell != ""}
    try:
        return PublishedPoint.model_validate(written, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        message = str(first["msg"]).removeprefix("Value error, ")
        return Problem(str(path), line, 1, f"{first['loc'][0]}: {message[:1].lower()}{message[1:]}")


def load_named(names: Sequence[str], *, spec: Path) -> list[PublishedPoint]:
    """Read the files that a spec names, from the folder `published` beside it.

    Raises:
        SpecProblems: a file is missing or wrong.
    """
    return [point for name in names for point in load(path_of(name, spec=spec))]


def path_of(name: str, *, spec: Path) -> Path:
    """Return the path of a file of published curves by its name in a spec."""
    return spec.parent / FOLDER / f"{name}.csv"


def problems(document: Document, *, spec: Path) -> Iterator[Problem]:
    """Yield every problem of the published curves that a spec names: in the spec, or in the files."""
    written = document.content.get("published")
    for index, name in enumerate(written if isinstance(written, list) else []):
        if not isinstance(name, str):
            continue
        path = path_of(name, spec=spec)
        if path.is_file():
            try:
                load(path)
            except SpecProblems as error:
                yield from error.problems
            continue
        others = sorted(other.stem for other in path.parent.glob("*.csv"))
        meant = nearest(name, others)
        hint = f"; did you mean {meant}?" if meant else f"; there is {listed(others, 'and')}" if others else ""
        yield document.problem(
            ("published", index), f"published names {name}, but there is no file {path}{hint}", at="value"
        )
