"""Sizes of panels, and legends below them."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from reports.figures import svg

PANEL_INCHES = 4.8, 3.5
"""Width and height of a panel above its legend: on a phone its text is about as large as the page's."""

LEGEND_LINE_INCHES = 0.2

TITLE_INCHES = 0.25
"""Height of the title of a panel that has one."""

LEGEND_ROW_LETTERS = 54
"""Letters that stand side by side in a legend of several columns, each with room for six more."""


def lay_out(figure: Figure, draw: Callable[[Axes], object], *, columns: bool = False) -> None:
    """Draw on the only axes of a figure, with the legend below, and set its height.

    Args:
        draw: draws on the axes, legend included.
        columns: whether entries of the legend stand side by side, below its title.
    """
    ax = figure.subplots()
    draw(ax)
    height = PANEL_INCHES[1] + TITLE_INCHES * len(ax.get_title(loc="left").splitlines())
    legend = ax.get_legend()
    if legend is not None:
        height += _moved_below(figure, legend, columns=columns)
    figure.set_figheight(height)


def _moved_below(figure: Figure, legend: Legend, *, columns: bool) -> float:
    """Put the legend below the axes; return its height in inches."""
    labels = [text.get_text() for text in legend.get_texts()]
    moved = figure.legend(
        [handle for handle in legend.legend_handles if handle is not None],
        labels,
        loc="outside lower left",
        frameon=False,
        ncols=columns_of(labels) if columns else 1,
        alignment="left",
        handlelength=legend.handlelength,
        **({"title": legend.get_title().get_text()} if columns else {}),
    )
    legend.remove()
    with svg.lacking_glyphs():
        return float(moved.get_window_extent().height / figure.dpi)


def columns_of(labels: Sequence[str]) -> int:
    """Return the number of labels that stand side by side."""
    return max(1, min(len(labels), LEGEND_ROW_LETTERS // (max(map(len, labels)) + 6)))
