"""Figures as SVG, for files and as images inside a page: sizes of panels, legends below them, swatches of arms."""

import base64
import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

from reports.figures.style import arm_styles, mark_points

FONTS = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"

PANEL_INCHES = 4.8, 3.5
"""Width and height of a panel above its legend: on a phone its text is about as large as the page's."""

LEGEND_LINE_INCHES = 0.2

TITLE_INCHES = 0.25
"""Height of the title of a panel that has one."""

LEGEND_ROW_LETTERS = 54
"""Letters that stand side by side in a legend of several columns, each with room for six more."""

SWATCH_INCHES = 0.5, 10 / 72
"""Width and height of the line that stands beside the name of an arm."""


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
    with lacking_glyphs():
        return float(moved.get_window_extent().height / figure.dpi)


def columns_of(labels: Sequence[str]) -> int:
    """Return the number of labels that stand side by side."""
    return max(1, min(len(labels), LEGEND_ROW_LETTERS // (max(map(len, labels)) + 6)))


def render(figure: Figure, *, name: str, title: str = "") -> str:
    """Return the figure as an SVG document: without a background, without a date, all its text as text.

    The same figure gives the same bytes.

    Args:
        figure: drawn, not yet saved.
        name: makes the identifiers inside the document reproducible.
        title: what the figure is, in a few words.
    """
    about: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type")) | (
        {"Title": title} if title else {}
    )
    sink = io.StringIO()
    for ground in (figure.patch, *(ax.patch for ax in figure.axes)):
        if to_hex(ground.get_facecolor()) == "#ffffff":
            ground.set_visible(False)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), lacking_glyphs():
        figure.savefig(sink, format="svg", metadata=about)
    # A page holds dozens of figures: the fonts are said once in each, and nothing is indented.
    drawn = re.sub(r"font-family: [^;\"]*; ", "", re.sub(r"\n\s*", "\n", sink.getvalue()))
    return drawn.replace("<svg ", f'<svg font-family="{FONTS}" ', 1)


@contextmanager
def lacking_glyphs() -> Iterator[None]:
    """Allow text to be laid out whose letters our fonts lack: it stays text, and the reader's fonts draw it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ ", category=UserWarning)
        yield


def data_url(drawn: str) -> str:
    """Return the address of an image that is in the page itself."""
    return f"data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}"


def swatch_classes(arms: Sequence[str]) -> dict[str, str]:
    """Return the class of each arm that `swatch_style` gives the look of its line."""
    return {arm: f"line-{number}" for number, arm in enumerate(dict.fromkeys(arms), start=1)}


def swatch_style(arms: Sequence[str]) -> str:
    """Return CSS with a rule for each arm: its line and marker, as its figures draw them, in the background."""
    styles = arm_styles(arms)
    rules = []
    for arm, name in swatch_classes(arms).items():
        style, figure = styles[arm], Figure(figsize=SWATCH_INCHES)
        figure.add_artist(
            Line2D(
                *([0.03, 0.5, 0.97], [0.5] * 3),
                color=style.colour,
                linestyle=style.line,
                marker=style.marker,
                markersize=mark_points(style.marker),
                markeredgecolor="white",
                markeredgewidth=0.6,
                markevery=[1],
                lw=1.4,
            )
        )
        rules.append(f".{name} {{ background-image: url({data_url(render(figure, name=name))}); }}\n")
    return "".join(rules)
