"""Figures as SVG, for files and as images inside a page: sizes of panels, swatches of arms."""

import base64
import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.figures.axes import room
from reports.figures.panel import Panel
from reports.figures.style import arm_styles, mark_points

FONTS = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"

PANEL_INCHES = 5.2, 3.5
"""Width and height of a panel: on a phone its text is nearly as large as the page's."""

LEGEND_LINE_INCHES = 0.2

NOTE_INCHES = 0.15
"""Height of a line above a panel, of which one has room."""

ENDS_POINTS = 170.0
"""Height of names at the ends of lines for which a panel has room."""

TITLE_INCHES = 0.25
"""Height of the title of a panel that has one."""

SWATCH_INCHES = 0.5, 10 / 72
"""Width and height of the line that stands beside the name of an arm."""


def lay_out(figure: Figure, draw: Callable[[Axes], object], *, names: Sequence[str] = ()) -> None:
    """Draw on the only axes of a figure, and add to its height what names, titles and notes need.

    Args:
        figure: empty, of the size of a panel that needs no more.
        draw: draws on the axes.
        names: those that stand at the ends of lines, for which the axes must be high enough.
    """
    height = figure.get_figheight()
    height += more_for_names(names, height)
    figure.set_figheight(height)
    ax = figure.subplots()
    draw(ax)
    titles, notes = (
        len(ax.get_title(loc="left").splitlines()),
        sum(len(x.get_xlabel().splitlines()) for x in ax.child_axes),
    )
    figure.set_figheight(height + TITLE_INCHES * titles + NOTE_INCHES * max(0, notes - 1))


def more_for_names(names: Sequence[str], height: float) -> float:
    """Return the inches that a panel of this height lacks for names at the ends of its lines."""
    return max(0.0, (room(names) - ENDS_POINTS) / 72 + PANEL_INCHES[1] - height)


class Drawing(NamedTuple):
    """Drawing of a panel: the text of its files and of the page."""

    svg: str
    csv: str


def draw(panel: Panel) -> Drawing:
    """Draw a panel as an image, its legend below it, and write its data."""
    with sns.axes_style("ticks"), sns.plotting_context("paper", font_scale=1.1):
        figure = Figure(figsize=PANEL_INCHES, layout="constrained")
        panel.content.draw(figure)
        return Drawing(svg=render(figure, name=panel.id, title=panel.title), csv=panel.csv_text())


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
