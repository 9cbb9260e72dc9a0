"""Figures as files: SVG for the page, PDF and PNG in the sizes of papers and slides.

A column of the ACL proceedings is 3.03 inches wide, both columns together are 6.3. Fonts are embedded as
TrueType (Type 42), which publishers ask for, and text stays text. Letters are larger in these sizes than on
the page.
"""

import base64
import functools
import io
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from ablations.errors import ResultsError
from ablations.results import write_whole
from ablations.wording import guess
from reports.figures.panel import Panel
from reports.figures.style import arm_styles, line_points, mark_points, room

FONTS = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"

PANEL_INCHES = 5.2, 3.5
"""Width and height of a panel; on a phone its text is nearly as large as that of the page."""

LEGEND_LINE_INCHES = 0.2

LEGEND_ROW_LETTERS = 54
"""Letters that fit side by side in a legend; each entry takes six more than its name."""

NOTE_INCHES = 0.15
"""Height of one line of notes above a panel; a panel has room for one."""

ENDS_POINTS = 170.0
"""Height in points that a panel has for names at the ends of lines."""

TITLE_INCHES = 0.25
"""Height of a panel's title."""

SWATCH_INCHES = 0.5, 10 / 72
"""Width and height of the line beside the name of an arm in the page's text."""

DPI = 300
"""Dots per inch of a PNG."""

WIDEST_NAME = 0.27
"""Largest share of a figure's width that names at the ends of lines may take."""

HANDLE_INCHES = 0.4
"""Width of the line beside a name in a legend, with the space around it."""


def lay_out(figure: Figure, draw: Callable[[Axes], object], *, names: Sequence[str] = ()) -> None:
    """Draw on the only axes of a figure, and make the figure higher if names, titles and notes need it.

    Args:
        figure: empty figure of the size of a panel.
        names: names at the ends of lines, for which the axes must be high enough.
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
    """Return the inches that a panel of this height lacks for the names at the ends of its lines."""
    return max(0.0, (room(names) - ENDS_POINTS) / 72 + PANEL_INCHES[1] - height)


class Drawing(NamedTuple):
    """Drawing of a panel: the text of its SVG and of its CSV."""

    svg: str
    csv: str


def draw(panel: Panel) -> Drawing:
    """Draw a panel as an SVG image, and write its data as CSV."""
    with sns.axes_style("ticks"), sns.plotting_context("paper", font_scale=1.1):
        figure = Figure(figsize=PANEL_INCHES, layout="constrained")
        panel.content.draw(figure)
        return Drawing(svg=render(figure, name=panel.id, title=panel.title), csv=panel.csv_text())


def render(figure: Figure, *, name: str, title: str = "") -> str:
    """Return the figure as an SVG document without background and date, and with all text as text.

    The same figure gives the same bytes.

    Args:
        figure: drawn figure that is not yet saved.
        name: name that makes the identifiers inside the document reproducible.
        title: title of the figure in a few words.
    """
    about: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type")) | (
        {"Title": title} if title else {}
    )
    sink = io.StringIO()
    for ground in (figure.patch, *(ax.patch for ax in figure.axes)):
        if to_hex(ground.get_facecolor()) == "#ffffff":
            ground.set_visible(False)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), lacking_glyphs():
        # `savefig` would draw everything twice, the first time for the layout alone.
        FigureCanvasSVG(figure).print_svg(sink, metadata=about)
    # A page holds dozens of figures. To save bytes each names its fonts and each style once, is not indented, has
    # no rotations by 0 degrees, and no decimals that nobody can see.
    svg = re.sub(r"font-family: [^;\"]*; ", "", re.sub(r"\n\s*", "\n", sink.getvalue()))
    svg = re.sub(r' transform="rotate\(-?0 [^"]*\)"', "", svg)
    svg = re.sub(r' (?:d|x|y)="[^"]*"', lambda places: _in_hundredths(places[0]), svg)
    return _named_styles(svg).replace("<svg ", f'<svg font-family="{FONTS}" ', 1)


def _named_styles(svg: str) -> str:
    """Return an SVG document in which each style that occurs several times is a class."""
    in_tag = re.compile(r'(<[^>]*) style="([^"]*)"')  # matplotlib writes no < in text
    repeated = [style for style, times in Counter(style for _, style in in_tag.findall(svg)).items() if times > 1]
    classes = {style: f"s{number}" for number, style in enumerate(repeated)}
    svg = in_tag.sub(lambda tag: f'{tag[1]} class="{classes[tag[2]]}"' if tag[2] in classes else tag[0], svg)
    rules = "".join(f".{name}{{{style}}}" for style, name in classes.items())
    return svg.replace("</style>", f"{rules}</style>", 1)


def _in_hundredths(places: str) -> str:
    """Return a text with its numbers rounded to hundredths, here of a point (1/72 inch)."""
    return re.sub(r"-?\d+\.\d{3,}", lambda written: f"{float(written[0]):.2f}".rstrip("0").rstrip("."), places)


@contextmanager
def lacking_glyphs() -> Iterator[set[str]]:
    """Collect the letters that our fonts lack, in place of warnings; the set is complete when the block has ended.
    In SVG they stay text, and the reader's fonts draw them; in PDF and PNG they are empty boxes."""
    letters: set[str] = set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message=r"Glyph \d+ ", category=UserWarning)
        yield letters
    for warning in caught:
        if glyph := re.match(r"Glyph (\d+) ", str(warning.message)):
            letters.add(chr(int(glyph[1])))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def data_url(svg: str) -> str:
    """Return an SVG image as a data URL, so that the page itself contains it."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def swatch_classes(arms: Sequence[str]) -> dict[str, str]:
    """Return the CSS class of each arm, to which `swatch_style` gives the look of its line."""
    return {arm: f"line-{number}" for number, arm in enumerate(dict.fromkeys(arms), start=1)}


def swatch_style(arms: Sequence[str]) -> str:
    """Return CSS with a rule for each arm: its line and marker, as figures draw them, in the background."""
    styles = arm_styles(arms)
    rules = []
    for arm, name in swatch_classes(arms).items():
        style = styles[arm]
        swatch = _swatch(style.line, style.marker).replace(ANY_COLOUR, style.colour.lower())
        rules.append(f".{name} {{ background-image: url({data_url(swatch)}); }}\n")
    return "".join(rules)


ANY_COLOUR = "#123456"
"""Colour in a drawing that is replaced by the colour of an arm."""


@functools.cache
def _swatch(line: Any, marker: str) -> str:
    """Return the SVG of a line and its marker in `ANY_COLOUR`; it is cached, as many arms share few of them."""
    figure = Figure(figsize=SWATCH_INCHES)
    figure.add_artist(
        Line2D(
            *([0.03, 0.5, 0.97], [0.5] * 3),
            color=ANY_COLOUR,
            linestyle=line,
            marker=marker,
            markersize=mark_points(marker),
            markeredgecolor="white",
            markeredgewidth=0.6,
            markevery=[1],
            lw=1.4,
        )
    )
    return render(figure, name="line")


class Medium(NamedTuple):
    """Size of a figure and scale of its content."""

    inches: tuple[float, float]
    """Width of a figure and height of a panel, in inches; long names and notes make it higher."""
    font_scale: float
    """Font scale relative to seaborn's context `paper`, whose labels have 9.6 points."""
    strokes: float
    """Scale of line widths and marker sizes relative to those on the page."""


MEDIA = {
    "paper": Medium((3.03, 2.3), 0.83, 0.62),
    "paper-wide": Medium((6.3, 2.9), 0.88, 0.75),
    "slides": Medium((9.0, 5.0), 1.9, 1.6),
}
"""Media by name: a column of a paper, both columns, and a slide of 16:9 with its title."""


def panel_called(name: str, panels: Sequence[Panel]) -> Panel:
    """Return the panel of this name.

    Raises:
        ResultsError: no panel has this name.
    """
    by_name = {panel.name: panel for panel in panels}
    if name not in by_name:
        raise ResultsError(
            f"{name} is not a figure of this experiment{guess(name, by_name) or ';'} "
            "`ablate figure` without a name lists them."
        )
    return by_name[name]


def save(panel: Panel, folder: Path, *, medium: str) -> tuple[list[Path], str]:
    """Write a panel as NAME-MEDIUM.pdf and NAME-MEDIUM.png into the folder.

    Returns their paths, and the letters that the fonts lack, which are boxes in both.

    Raises:
        FilesError: the disk is full, or the place cannot be written to.
    """
    paths = []
    with lacking_glyphs() as letters:
        figure = draw_panel(panel, MEDIA[medium])
        for ending, metadata in (
            ("pdf", {"Title": panel.title, "CreationDate": None}),
            ("png", {"Title": panel.title}),
        ):
            path = folder / f"{panel.name}-{medium}.{ending}"
            sink = io.BytesIO()
            with mpl.rc_context({"pdf.fonttype": 42}):
                figure.savefig(sink, format=ending, dpi=DPI, metadata=metadata)
            write_whole(path, sink.getvalue())
            paths.append(path)
    return paths, "".join(sorted(letters))


def draw_panel(panel: Panel, medium: Medium) -> Figure:
    """Return a panel as a figure in the size of this medium.

    If names at the ends of lines leave too little room for the lines, a legend below replaces them. Long
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


def legend_below(figure: Figure, ax: Axes) -> float:
    """Write the legend of the axes below a figure, and return its height in inches."""
    handles, labels = ax.get_legend_handles_labels()
    columns = max(1, min(len(labels), LEGEND_ROW_LETTERS // (max(map(len, labels)) + 6)))
    figure.legend(handles, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize="small")
    return LEGEND_LINE_INCHES * -(-len(labels) // columns)


def _names_below(figure: Figure, names: Sequence[Text], *, width: float, height: float) -> None:
    """Replace the names at the ends of lines by a legend below the axes.

    Args:
        width: width of the widest name, in inches.
        height: height of a panel without long names and notes, in inches.
    """
    figure.set_figheight(figure.get_figheight() - more_for_names([text.get_text() for text in names], height))
    for text in names:
        text.remove()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    columns = max(1, min(len(labels), int(figure.get_figwidth() / (width + HANDLE_INCHES))))
    figure.legend(
        handles, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize="small", columnspacing=1
    )
    # A legend fills its columns one after the other; a long name has several lines.
    lines = max(sum(label.count("\n") + 1.3 for label in column) for column in np.array_split(labels, columns))
    figure.set_figheight(figure.get_figheight() + line_points() / 72 * lines)
