"""Figures of one's own, which a spec names as `my_figure.py:LossByChange` and its page draws."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from ablations.wording import shown
from lightning_modules import plugins
from lightning_modules.config.settings import kind_of_part
from lightning_modules.errors import PluginError

FAILED_FIGURE = "figure"
"""The kind of a notice on a figure of one's own that fails."""


@dataclass(frozen=True)
class OwnFigure:
    """Figure of one's own: what it takes from the table of results, and how it draws that."""

    title: str
    how_to_read: tuple[str, ...]
    """Paragraphs for below the figure; also the description for a reader who does not see it."""
    rows: Callable[[Any], Any]
    """Function from the table of results (pandas) to the rows that are drawn, which are its CSV too. Without rows
    there is no figure."""
    draw: Callable[[Any, Any], None]
    """Function of these rows and an empty figure of matplotlib, which it draws them on."""

    def __post_init__(self) -> None:
        if isinstance(self.how_to_read, str):  # as in ("one paragraph"), which is no tuple
            raise TypeError("how_to_read must be a tuple of paragraphs, but is a text")


@dataclass(frozen=True)
class NamedFigure:
    """Figure of one's own under the name that a spec has for it."""

    name: str
    path: Path
    """Its file, for errors."""
    card: OwnFigure

    def rows(self, table: Any) -> Any:
        """Return the rows that the figure takes from a table of results.

        Raises:
            PluginError: its function fails, or returns no table.
        """
        rows = self.attempt(self.card.rows, table.copy())
        if not isinstance(rows, type(table)):
            raise PluginError(
                f"{self.name}: rows must return a DataFrame, but what it returns is {kind_of_part(rows)}; "
                f"correct the file."
            )
        return rows

    def draw(self, rows: Any, figure: Any) -> None:
        """Draw the rows on an empty figure of matplotlib.

        Raises:
            PluginError: the function of the figure fails.
        """
        self.attempt(self.card.draw, rows.copy(), figure)

    def attempt(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return what a function returns that works on what the author of the figure has made.

        Raises:
            PluginError: it fails.
        """
        try:
            return function(*arguments, **options)
        except Exception as error:
            raise plugins.failure(self.name, self.path, error) from error


def load_figure(name: str) -> NamedFigure:
    """Return the figure of that name.

    Raises:
        PluginError: it cannot be loaded, or is no figure.
    """
    plugin = plugins.load(name)
    if not isinstance(plugin.part, OwnFigure):
        raise PluginError(
            f"{name} must be an OwnFigure of ablations.spec.figures, but is {kind_of_part(plugin.part)}."
        )
    return NamedFigure(name, plugin.path, plugin.part)


def planned_figure(name: str, record: Mapping[str, str]) -> NamedFigure:
    """Return a figure of a plan, from where it was planned with it.

    Args:
        name: of the figure in the spec.
        record: its `Plugin.record`.

    Raises:
        PluginError: its file is gone, or the content has changed.
    """
    plugins.recall({name: record})
    return load_figure(name)


def _checked(name: str) -> str:
    if not plugins.is_name(name):
        raise ValueError(f"must be a file and a name in it, as in my_figure.py:LossByChange, but is {shown(name)}")
    try:
        load_figure(name)
    except PluginError as error:
        context = {"sentence": str(error).removesuffix("."), "at": ()}
        raise PydanticCustomError("sentence", "{sentence}", context) from error
    return name


FigureName = Annotated[str, AfterValidator(_checked), Field(json_schema_extra={"pattern": f"^{plugins.NAME}$"})]
"""Name of a figure of one's own."""
