"""How the line of an arm looks, as SVG beside its name: colour, dashes and marker."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from matplotlib.markers import MarkerStyle
from matplotlib.path import Path

from reports.styles import Style, arm_styles, mark_points

DASH_POINTS = 1.35
"""Length of a dash of one unit, so that a pattern repeats on either side of the marker."""

_LETTERS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "Z"}


class Swatch(NamedTuple):
    """Attributes of SVG; the marker is centred on 0, 0."""

    id: str
    """Unique on the page."""
    colour: str
    dashes: str
    marker: str
    """The outline of a path."""


def swatches(arms: Sequence[str]) -> dict[str, Swatch]:
    """That of each arm of an experiment, as its figures draw it."""
    return {
        arm: Swatch(f"line-{number}", style.colour.lower(), _dashes(style), _outline(style))
        for number, (arm, style) in enumerate(arm_styles(arms).items(), start=1)
    }


def definitions(lines: Iterable[Swatch]) -> str:
    """The swatches as parts of one hidden `<svg>`, which names beside them refer to by their identifiers."""
    return "".join(
        f'<g id="{line.id}"><path d="M1 5H35" fill="none" stroke="{line.colour}" stroke-width="2.2" '
        f'stroke-dasharray="{line.dashes}"/><path transform="translate(18 5)" d="{line.marker}" '
        f'fill="{line.colour}" stroke="#ffffff" stroke-width="0.7"/></g>\n'
        for line in lines
    )


def _dashes(style: Style) -> str:
    if style.line == "solid":
        return "none"
    return " ".join(f"{DASH_POINTS * part:g}" for part in style.line[1])


def _outline(style: Style) -> str:
    marker = MarkerStyle(style.marker)
    size = mark_points(style.marker)
    outline = marker.get_path().transformed(marker.get_transform())
    parts = []
    for points, code in outline.iter_segments(simplify=False):
        flipped = [value * size * sign for value, sign in zip(points.tolist(), (1, -1) * 3, strict=False)]
        closes = code == Path.CLOSEPOLY
        parts.append(_LETTERS[Path.code_type(code)] + ("" if closes else " ".join(f"{x:.3g}" for x in flipped)))
    return "".join(parts)
