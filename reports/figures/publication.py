"""Figures in the sizes of papers and of slides, as PDF and PNG: the panels of the page, with larger letters.

A column of the proceedings of ACL is 3.03 inches wide, both together are 6.3. Fonts are embedded as TrueType (Type
42), which publishers ask for, and text stays text.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import seaborn as sns
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from ablations.errors import ResultsError
from ablations.results import write_whole
from ablations.wording import guess
from reports.figures.axes import line_points
from reports.figures.panel import Panel
from reports.figures.svg import lacking_glyphs, more_for_names

DPI = 300
"""Dots of an inch of a PNG."""

WIDEST_NAME = 0.27
"""Share of a figure's width that names at the ends of lines may take."""

HANDLE_INCHES = 0.4
"""Width of the line beside a name in a legend, and of what is around it."""


class Medium(NamedTuple):
    """Size of a figure and of what is in it."""

    inches: tuple[float, float]
    """Width, and height of a panel that needs no more."""
    font_scale: float
    """Of seaborn's context `paper`, whose labels have 9.6 points."""
    strokes: float
    """Widths of lines and sizes of marks, of those on the page."""


MEDIA = {
    "paper": Medium((3.03, 2.3), 0.83, 0.62),
    "paper-wide": Medium((6.3, 2.9), 0.88, 0.75),
    "slides": Medium((9.0, 5.0), 1.9, 1.6),
}
"""Media by name: a column of a paper, both columns, and a slide of 16:9 with its title."""


def panel_called(name: str, panels: Sequence[Panel]) -> Panel:
    """Return a panel by its name.

    Raises:
        ResultsError: there is none of this name.
    """
    by_name = {panel.name: panel for panel in panels}
    if name not in by_name:
        raise ResultsError(
            f"{name} is no figure of this experiment{guess(name, by_name) or ';'} "
            "`ablate figure` without a name lists them."
        )
    return by_name[name]


def save(panel: Panel, folder: Path, *, medium: str) -> list[Path]:
    """Write a panel as PDF and PNG, NAME-MEDIUM in both; return their paths.

    Raises:
        FilesError: the disk is full, or the place cannot be written to.
    """
    figure = drawn(panel, MEDIA[medium])
    paths = []
    for ending, metadata in (
        ("pdf", {"Title": panel.title, "CreationDate": None}),
        ("png", {"Title": panel.title}),
    ):
        path = folder / f"{panel.name}-{medium}.{ending}"
        sink = io.BytesIO()
        with mpl.rc_context({"pdf.fonttype": 42}), lacking_glyphs():
            figure.savefig(sink, format=ending, dpi=DPI, metadata=metadata)
        write_whole(path, sink.getvalue())
        paths.append(path)
    return paths


def drawn(panel: Panel, medium: Medium) -> Figure:
    """Return a panel as a figure of this width.

    Where names at the ends of lines leave too little room for the lines, a legend below takes their place. Long
    legends make the figure higher.
    """
    context = dict(sns.plotting_context("paper", font_scale=medium.font_scale))
    context |= {
        name: size * medium.strokes
        for name, size in context.items()
        if name.endswith((".linewidth", "width", "r.size"))
    }
    with sns.axes_style("ticks"), mpl.rc_context(context):
        figure = Figure(figsize=medium.inches, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        panel.content.draw(figure)
        for line in (line for ax in figure.axes for line in ax.lines):
            line.set(
                linewidth=line.get_linewidth() * medium.strokes, markersize=line.get_markersize() * medium.strokes
            )
        names = [text for ax in figure.axes for text in ax.texts if text.get_gid() == "end"]
        widths = [text.get_window_extent(canvas.get_renderer()).width for text in names]
        if names and max(widths) > WIDEST_NAME * figure.bbox.width:
            _names_below(figure, names, width=max(widths) / figure.dpi, height=medium.inches[1])
    return figure


def _names_below(figure: Figure, names: Sequence[Text], *, width: float, height: float) -> None:
    """Put a legend below the lines in the place of the names at their ends.

    Args:
        width: of the widest name, in inches.
        height: of a panel that needs no more, in inches.
    """
    figure.set_figheight(figure.get_figheight() - more_for_names([text.get_text() for text in names], height))
    for text in names:
        text.remove()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    columns = max(1, min(len(labels), int(figure.get_figwidth() / (width + HANDLE_INCHES))))
    figure.legend(
        handles, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize="small", columnspacing=1
    )
    figure.set_figheight(figure.get_figheight() + line_points() / 72 * 1.3 * -(-len(labels) // columns))
