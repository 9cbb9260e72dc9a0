"""Figures on a dark page. They are drawn once, for white paper; a style of the page gives each of their colours
another one there.

A hue stays what it is and gets lighter; greys change places with each other, black being ink and white paper. Hue
and lightness are those of OKLab: Ottosson 2020, https://bottosson.github.io/posts/oklab/.
"""

import re
from collections.abc import Iterable

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb
from numpy.typing import NDArray

from reports.maps import SHADES

INK, PAPER = "#e4e6ea", "#16181c"
"""Of the page in the dark."""

LIFT, SPREAD = 0.28, 0.75
"""A lightness of x becomes 0.28 + 0.75 x: of 0.35 and 0.68, the darkest and lightest arms, 0.54 and 0.79. With
more spread the lightest comes near ink, and with less all come near each other."""

DARKEST = 0.53
"""Lightness below which a line is lost on dark paper, whatever its hue: a contrast of 3."""

COLOURLESS = 0.005
"""Chroma of greys."""

GREYS = 1.4
"""Above 1, so that greys have about the contrast on dark paper that they have on white."""

_USED = re.compile(r'\b(fill|stroke)="(#[0-9a-f]{6})"')

_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)

Vector = NDArray[np.float64]


def in_the_dark(colour: str) -> str:
    """The colour of a figure on dark paper, ``#rrggbb``. Shades of maps keep theirs: they fill areas, and a reader
    compares them with the bar beside."""
    if colour in _map_shades():
        return colour
    lightness, *hue = _oklab(colour)
    if np.hypot(*hue) < COLOURLESS:
        ink, paper = _oklab(INK), _oklab(PAPER)
        return _hex(ink + (paper - ink) * lightness**GREYS)
    return _hex(np.array([max(DARKEST, LIFT + SPREAD * lightness), *hue]))


def dark_style(drawn: Iterable[str]) -> str:
    """CSS for the screen of a reader who prefers it dark: a rule for each colour that a drawing has."""
    used = sorted({use for text in drawn for use in _USED.findall(text)})
    rules = "".join(
        f'[{of}="{colour}"] {{ {of}: {in_the_dark(colour)}; }}\n'
        for of, colour in used
        if in_the_dark(colour) != colour
    )
    return f"@media screen and (prefers-color-scheme: dark) {{\n{rules}}}\n" if rules else ""


def _map_shades() -> frozenset[str]:
    return frozenset(map(to_hex, colormaps["cividis"].resampled(SHADES)(range(SHADES))))


def _oklab(colour: str) -> Vector:
    """Lightness from 0 to 1, and two axes of hue and chroma."""
    encoded = np.array(to_rgb(colour))
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    lab: Vector = _TO_LAB @ np.cbrt(_TO_CONES @ linear)
    return lab


def _hex(lab: Vector) -> str:
    """The colour, with as much of its chroma as a screen has."""
    linear = np.zeros(3)
    for kept in np.linspace(1, 0, 101):
        cones = np.linalg.solve(_TO_LAB, lab * (1, kept, kept)) ** 3
        linear = np.linalg.solve(_TO_CONES, cones)
        if (linear >= 0).all() and (linear <= 1).all():
            break
    linear = linear.clip(0, 1)  # white and black are within rounding of the edge
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    red, green, blue = encoded.clip(0, 1).tolist()
    return to_hex((red, green, blue))
