"""Colours of figures on a dark page."""

import colorsys
import re

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb

from reports.dark import INK, PAPER, dark_style, in_the_dark
from reports.maps import SHADES
from reports.page import TEMPLATES
from reports.styles import COLOURS


def hue(colour):
    return colorsys.rgb_to_hsv(*to_rgb(colour))[0]


def test_ink_and_paper_are_those_of_the_page():
    style = (TEMPLATES / "page.css").read_text()
    dark = style[style.index("prefers-color-scheme: dark") :]
    assert re.search(r"--ink: (#\w+);", dark)[1] == INK
    assert re.search(r"--paper: (#\w+);", dark)[1] == PAPER


def test_black_is_ink_and_white_is_paper_and_greys_lie_between_in_turn():
    assert (in_the_dark("#000000"), in_the_dark("#ffffff")) == (INK, PAPER)
    greys = [sum(to_rgb(in_the_dark(f"#{level:02x}{level:02x}{level:02x}"))) for level in range(0, 256, 15)]
    assert greys == sorted(greys, reverse=True)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_hue_stays_and_gets_lighter(colour):
    dark = in_the_dark(colour)
    turned = abs(hue(dark) - hue(colour))
    assert min(turned, 1 - turned) < 0.05  # of a circle; OKLab and HSV disagree by less
    assert sum(to_rgb(dark)) > sum(to_rgb(colour))


def test_an_order_of_lightness_stays():
    shades = [to_hex(colormaps["viridis"](place)) for place in np.linspace(0.15, 0.6, 8)]
    bright = [np.dot(to_rgb(in_the_dark(shade)), (0.2126, 0.7152, 0.0722)) for shade in shades]
    assert bright == sorted(bright)


def test_shades_of_maps_stay_what_they_are():
    for shade in map(to_hex, colormaps["cividis"].resampled(SHADES)(range(SHADES))):
        assert in_the_dark(shade) == shade


def test_the_style_has_a_rule_for_what_is_used_and_on_screens_alone():
    drawn = ['<svg fill="#000000"><path fill="none" stroke="#0072b2"/></svg>', '<use stroke="#0072b2"/>']
    assert dark_style(drawn) == (
        "@media screen and (prefers-color-scheme: dark) {\n"
        f'[fill="#000000"] {{ fill: {INK}; }}\n'
        f'[stroke="#0072b2"] {{ stroke: {in_the_dark("#0072b2")}; }}\n'
        "}\n"
    )
    assert dark_style(["<svg/>"]) == ""
