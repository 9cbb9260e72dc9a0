"""Figures that a spec asks for: the user's own figures, and curves that a paper published.

A spec names a figure of the user as `my_figure.py:LossByChange`, and the page draws it. Published curves are
files `published/NAME.csv` beside the specs, with one point in each line and the columns of `PublishedPoint`.
They are drawn beside the curves of the experiment.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator

from ablations import yamlfile
from ablations.errors import Problem, SpecProblems
from ablations.wording import listed, must_be, nearest, shown
from ablations.yamlfile import Document
from lightning_modules import plugins
from lightning_modules.config import Settings
from lightning_modules.config.objectives import OBJECTIVES
from lightning_modules.config.settings import kind_of_part, sentence_error
from lightning_modules.errors import PluginError
from lightning_modules.files import write_whole

FAILED_FIGURE = "figure"
"""Kind of the notice on a user's own figure that fails."""

PUBLISHED_FOLDER = "published"
"""Folder of published curves, beside the specs."""

KINDS = tuple(get_args(settings.model_fields["kind"].annotation)[0] for settings in OBJECTIVES)


@dataclass(frozen=True)
class OwnFigure:
    """User's own figure: the rows that it takes from the table of results, and how it draws them."""

    title: str
    how_to_read: tuple[str, ...]
    """Paragraphs below the figure, which also describe it to readers who do not see it."""
    rows: Callable[[Any], Any]
    """Function that gets the table of results (pandas) and returns the rows to draw. The rows are also the
    figure's CSV file. Without rows there is no figure."""
    draw: Callable[[Any, Any], None]
    """Function that gets these rows and an empty matplotlib figure, and draws the rows on it."""

    def __post_init__(self) -> None:
        if isinstance(self.how_to_read, str):  # as in ("one paragraph"), which is no tuple
            raise TypeError("how_to_read must be a tuple of paragraphs, but is one text; put it into a tuple")


@dataclass(frozen=True)
class NamedFigure:
    """User's own figure with the name that a spec gives it."""

    name: str
    path: Path
    """File of the figure, which errors name."""
    card: OwnFigure

    def rows(self, table: Any) -> Any:
        """Return the rows that the figure takes from a table of results.

        Raises:
            PluginError: its function fails, or returns no table.
        """
        rows = self.attempt(self.card.rows, table.copy())
        if not isinstance(rows, type(table)):
            raise PluginError(
                f"{self.name}: rows must return a DataFrame, but its result is {kind_of_part(rows)}; correct "
                "the file."
            )
        return rows

    def draw(self, rows: Any, figure: Any) -> None:
        """Draw the rows on an empty figure of matplotlib.

        Raises:
            PluginError: the function of the figure fails.
        """
        self.attempt(self.card.draw, rows.copy(), figure)

    def attempt(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function that runs code of the figure's author, and return its result.

        Raises:
            PluginError: the function fails.
        """
        try:
            return function(*arguments, **options)
        except (Exception, SystemExit) as error:  # sys.exit() in the file would end the command without a page
            raise plugins.failure(self.name, self.path, error) from error


def load_figure(name: str, *, sha256: str | None = None) -> NamedFigure:
    """Return the user's own figure with the name that a spec gives it.

    Args:
        sha256: hash that its source must have, as a plan records it.

    Raises:
        PluginError: it cannot be loaded, has another hash, or is no figure.
    """
    plugin = plugins.load(name, sha256=sha256)
    if not isinstance(plugin.part, OwnFigure):
        raise PluginError(
            f"{name} must be an OwnFigure of ablations.spec.figures, but is {kind_of_part(plugin.part)}; "
            "correct the file."
        )
    return NamedFigure(name, plugin.path, plugin.part)


def _checked(name: str) -> str:
    if not plugins.is_name(name):
        raise ValueError(
            f"must be a file and a name in this file, as in my_figure.py:LossByChange, but is {shown(name)}"
        )
    try:
        load_figure(name)
    except PluginError as error:
        raise sentence_error(str(error).removesuffix(".")) from error
    return name


FigureName = Annotated[str, AfterValidator(_checked), Field(json_schema_extra={"pattern": f"^{plugins.NAME}$"})]
"""Name of a user's own figure."""


class PublishedPoint(Settings):
    """Point of a published curve."""

    source: str = Field(min_length=1)
    """Source of the curve, as a legend writes it."""
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
    """How much the reading may be wrong, in the unit of the metric; None if that is unknown."""
    read: str = Field(min_length=1)
    """How the number was read, as `from the figure`."""

    @field_validator("objective")
    @classmethod
    def _is_a_kind(cls, objective: str) -> str:
        if objective not in KINDS:
            raise ValueError(must_be(objective, KINDS, noun="a kind of objective"))
        return objective

    @field_validator("layer_to")
    @classmethod
    def _is_the_next(cls, layer_to: int | None, info: ValidationInfo) -> int | None:
        layer = info.data.get("layer")
        if layer_to is not None and layer is not None and layer_to != layer + 1:
            raise ValueError(f"must be {layer + 1}, the layer after {layer}, but is {layer_to}; or leave it empty")
        return layer_to


PUBLISHED_COLUMNS = tuple(PublishedPoint.model_fields)


def load_published(path: Path) -> list[PublishedPoint]:
    """Return the points of a file of published curves.

    Raises:
        SpecProblems: the file has problems; the error has all of them, one for each wrong line.
    """
    points: list[PublishedPoint] = []
    problems: list[Problem] = []
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecProblems(
            (Problem(str(path), 1, 1, f"this file cannot be read as UTF-8 text ({error})"),)
        ) from error
    reader = csv.DictReader(text.splitlines(), strict=True)
    if tuple(reader.fieldnames or ()) != PUBLISHED_COLUMNS:
        sentence = f"the first line must name the columns {', '.join(PUBLISHED_COLUMNS)}, in this order"
        raise SpecProblems((Problem(str(path), 1, 1, sentence),))
    try:
        for row in reader:
            point = _published_point(row, path, reader.line_num)
            if isinstance(point, Problem):
                problems.append(point)
            else:
                points.append(point)
    except csv.Error as error:
        problems.append(Problem(str(path), reader.line_num, 1, f"this line is not valid CSV ({error})"))
    if problems:
        raise SpecProblems(tuple(problems))
    return points


def _published_point(row: dict[str | Any, Any], path: Path, line: int) -> PublishedPoint | Problem:
    """Return the point of a line, or its first problem."""
    if None in row or None in row.values():
        return Problem(
            str(path), line, 1, f"this line must have {len(PUBLISHED_COLUMNS)} cells, as the first line"
        )
    written = {name: cell for name, cell in row.items() if cell != ""}
    try:
        return PublishedPoint.model_validate(written, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        message = str(first["msg"]).removeprefix("Value error, ")
        return Problem(str(path), line, 1, f"{first['loc'][0]}: {message[:1].lower()}{message[1:]}")


def published_points(names: Sequence[str], *, spec: Path) -> list[PublishedPoint]:
    """Return the points of all files of published curves that a spec names, from the folder `published`
    beside it.

    Raises:
        SpecProblems: a file is missing or wrong.
    """
    return [point for name in names for point in load_published(published_path(name, spec=spec))]


def keep_published(names: Sequence[str], folder: Path, *, spec: Path) -> None:
    """Copy the files of published curves that a spec names into the folder of an experiment's results, where they
    are beside its copy of the spec.

    Raises:
        FilesError: the disk is full, or the place cannot be written to.
    """
    for name in names:
        write_whole(folder / PUBLISHED_FOLDER / f"{name}.csv", published_path(name, spec=spec).read_bytes())


def kept_published(folder: Path) -> list[str]:
    """Return the relative paths of the files of published curves that the spec in a folder of results names and
    that exist there."""
    files = list((folder / PUBLISHED_FOLDER).glob("*.csv"))
    named = yamlfile.read(folder / "spec.yaml").content.get("published") or () if files else ()
    return sorted(f"{PUBLISHED_FOLDER}/{path.name}" for path in files if path.stem in named)


def published_path(name: str, *, spec: Path) -> Path:
    """Return the path of a file of published curves by its name in a spec."""
    return spec.parent / PUBLISHED_FOLDER / f"{name}.csv"


def published_problems(document: Document, *, spec: Path) -> Iterator[Problem]:
    """Yield every problem of a spec's published curves: in its list of files, and in the files."""
    written = document.content.get("published")
    for index, name in enumerate(written if isinstance(written, list) else []):
        if not isinstance(name, str):
            continue
        path = published_path(name, spec=spec)
        if path.is_file():
            try:
                load_published(path)
            except SpecProblems as error:
                yield from error.problems
            continue
        others = sorted(other.stem for other in path.parent.glob("*.csv"))
        meant = nearest(name, others)
        hint = f"; did you mean {meant}?" if meant else f"; there is {listed(others, 'and')}" if others else ""
        yield document.problem(
            ("published", index), f"published names {name}, but there is no file {path}{hint}", at="value"
        )
