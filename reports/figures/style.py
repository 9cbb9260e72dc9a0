"""Styles of lines and axes: how arms, pairs of arms and groups of tokens are told apart, not by colour alone.

Colours of verdicts are in page.css for text, and in reports/page/entries.py for plots; those of maps are in
maps.py. This module also decides
which arms share a panel, and sets ticks, labels and names of lines. Each name is written beside the end of its
line, moved as little as possible so that none overlap. It can be found by its gid, `end`. Axes of layers have
whole layers; other axes are spread out from small numbers to large ones.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import takewhile
from math import ceil
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.ticker import MaxNLocator
from scipy.optimize import isotonic_regression

from ablations.wording import listed
from reports.words import count

MOST_LINES = 8
"""Largest number of lines in a panel; more arms get several panels."""

USUAL_LINES = 7
"""Largest number of lines in a panel if there are several panels."""

MOST_NAMES = 3
"""Largest number of beginnings that are listed in the name of several families."""


SIGNS = " -_,=.:"
"""Signs that separate the words of a name."""

LINE_POINTS = 10.5
"""Height of a line of text in points, if letters have `LABEL_POINTS`."""

LABEL_POINTS = 10.56
"""Size of letters on the page, in points."""

NAME_AT = 1.045
"""Horizontal place of the names, to the right of the axes, whose width is 1. A thin line leads to each name."""


LARGEST_STEP, LARGEST_SHARE = 4, 0.1
"""Numbers get a logarithmic axis if the largest is at least `LARGEST_STEP` times the smallest. Shares do not:
numbers of at most 1 whose largest is above `LARGEST_SHARE`."""


class PanelArms(NamedTuple):
    """Arms that share a panel."""

    name: str
    """Beginnings of their names; empty if all arms are together."""
    arms: tuple[str, ...]
    shared: str = ""
    """Common start of all their names, which the panel says once."""

    def short(self, arm: str) -> str:
        """Return the name of an arm without the start that the panel says."""
        return arm.removeprefix(self.shared) if arm in self.arms else arm


def families(arms: Sequence[str], *, drawn: Collection[str] | None = None) -> list[PanelArms]:
    """Return the arms in groups of at most `MOST_LINES`; a single group if there are `MOST_LINES` arms or
    fewer.

    Arms whose names begin with the same word stay together as far as there is room. Small families share a
    group.

    Args:
        drawn: arms with a line, if some have none. The others count in the division, so that all figures of an
            experiment have the same groups, but are in none of them.
    """
    if len(arms) <= MOST_LINES:
        return [PanelArms("", tuple(arms))]
    room = _size(arms)
    groups: list[list[list[str]]] = []
    for alike in _alike(arms, words=1):
        if groups and sum(map(len, groups[-1])) + len(alike) <= room:
            groups[-1].append(alike)
        else:
            groups.append([alike])
    if drawn is not None:
        groups = [[[arm for arm in part if arm in drawn] for part in group] for group in groups]
    groups = [[part for part in group if part] for group in groups]
    return [_family(group) for group in groups if group]


def _alike(arms: Sequence[str], *, words: int) -> list[list[str]]:
    """Return the arms grouped by the first words of their names; too large groups are divided by one more."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for arm in arms:
        groups.setdefault(_beginning(arm, words), []).append(arm)
    parts: list[list[str]] = []
    for key, group in groups.items():
        if len(group) <= MOST_LINES:
            parts.append(group)
        elif len(key) < words:  # the names have no further words to divide by
            size = _size(group)
            parts += [group[i : i + size] for i in range(0, len(group), size)]
        else:
            parts += _alike(group, words=words + 1)
    return parts


def _size(arms: Sequence[str]) -> int:
    """Return the size of groups of equal size, at most `USUAL_LINES`, that are as few as possible."""
    return ceil(len(arms) / ceil(len(arms) / USUAL_LINES))


def _beginning(arm: str, words: int) -> tuple[str, ...]:
    """Return the first words and numbers of a name; the first is empty if the name begins with a number."""
    words_of_name = re.findall(r"[^\W\d_]+|\d+(?:\.\d+)*(?:e[-+]?\d+)?", arm)
    return tuple(("" if i == 0 and word[0].isdigit() else word) for i, word in enumerate(words_of_name[:words]))


def _family(group: Sequence[Sequence[str]]) -> PanelArms:
    """Return the arms of a group, named by the common start of the names in each of its parts."""
    names = [_start(part).rstrip(SIGNS) or f"{part[0]} …" if len(part) > 1 else part[0] for part in group]
    rest = len(names) - MOST_NAMES
    shown = names if rest <= 1 else [*names[:MOST_NAMES], f"{rest} more"]
    start = _start(group[0]) if len(group) == 1 and len(group[0]) > 1 else ""
    arms = tuple(arm for part in group for arm in part)
    return PanelArms(listed(shown, "and"), arms, start if start.endswith(tuple(SIGNS)) else "")


def _start(arms: Sequence[str]) -> str:
    """Return the words with which all the names begin, with the signs after them. A number is one word. If
    they begin with a whole setting of a grid, no part of the next is added: ``mlm,ratio=0.4,`` of
    ``mlm,ratio=0.4,norm=pre`` and ``mlm,ratio=0.4,norm=post``."""
    words = [re.findall(r"(?:[^\W_]|(?<=\d)\.(?=\d)|(?<=\de)[-+](?=\d))+|[\W_]+", arm) for arm in arms]
    start = "".join(
        pieces[0] for pieces in takewhile(lambda pieces: len(set(pieces)) == 1, zip(*words, strict=False))
    )
    before, comma, _ = start.rpartition(",")
    return before + comma if start.endswith("=") and "=" in before else start


class Style(NamedTuple):
    """Style of a line; lines can be told apart without colours."""

    colour: str
    marker: str
    line: Any
    """Line style of matplotlib; plain dashes are kept for chance levels."""
    filling: str | None = None
    """Colour of the markers; None for the colour of the line."""


SOLID, DASH_DOT, DOTTED, DASH_DOT_DOT = "solid", (0, (6, 1.5, 1, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1, 1, 1))
DASH_DASH_DOT = (0, (4, 1.2, 4, 1.2, 1, 1.2))
"""Line style that replaces dots in pairs of arms; no single arm has it."""

FIXED_STYLES = {
    "mlm": Style("#0072B2", "o", SOLID),
    "clm": Style("#D55E00", "s", DASH_DOT),
    "mt": Style("#009E73", "^", DASH_DOT_DOT),
    "untrained": Style("#000000", "X", DOTTED),
}
"""Styles of arms that most experiments have, the same in all experiments. Colours: Okabe and Ito 2008."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#332288", "#5C4B00", "#882255", "#9060FC")
"""Four colours of Okabe and Ito, two of Paul Tol's muted ones, https://personal.sron.nl/~pault/, an olive and a
violet. There are as many as lines in a panel.

Okabe and Ito's yellow, orange and sky blue are left out, as their contrast on white is below 3. Colour-blind
readers tell any two of these colours apart as well as the most similar of the four.
"""

TEXT_CONTRAST = 4.5
"""Least contrast of text with its ground (WCAG 2.1, 1.4.3)."""

GREY = "#767676"
"""Colour of the arm with which the others of a panel are compared; its contrast on white is 4.5."""

MARKERS = ("o", "s", "^", "D", "v", "P", "*", "<", "d", ">", "p")
LINES = (SOLID, DASH_DOT, DASH_DOT_DOT, DOTTED)
# 11 markers and 4 lines have no common divisor, so that both together repeat after 44 uses of a colour.

MARK_POINTS = {"*": 11.0, "P": 8.5, "X": 8.0, "d": 8.5, "<": 7.5, ">": 7.5}
"""Sizes of markers in points, chosen so that all look equally large; other markers have `USUAL_POINTS`."""
USUAL_POINTS = 7.0

TAGS = (
    *("NOUN", "PROPN", "PRON", "VERB", "AUX", "ADJ", "ADV", "DET", "ADP"),
    *("CCONJ", "SCONJ", "PART", "NUM", "PUNCT", "INTJ", "SYM", "X"),
)
"""Universal parts of speech in the order of styles and legends, related ones side by side."""

LIGHTEST = 0.58
"""Place of the rarest words on their palette, from 0 to 1. Its light end is hard to see on white."""


def mark_points(marker: str) -> float:
    """Return the size of a marker without a line, in points."""
    return MARK_POINTS.get(marker, USUAL_POINTS)


def arm_styles(arms: Sequence[str]) -> dict[str, Style]:
    """Return the style of each arm. It depends only on the arms of the experiment and their order.

    Arms at the same place of their families share a colour. Arms of one panel have different colours as long
    as there are enough. Among the first 44 arms none share colour and marker, which is all that single dots
    show. In experiments with about 60 arms or more, two arms of different panels may look alike, also if one
    has a fixed style.
    """
    styles: dict[str, Style] = {}
    uses: Counter[str] = Counter()
    for family in families(list(dict.fromkeys(arms))):
        fixed = {FIXED_STYLES[arm].colour for arm in family.arms if arm in FIXED_STYLES}
        free = [colour for colour in COLOURS if colour not in fixed]
        for i, arm in enumerate(arm for arm in family.arms if arm not in FIXED_STYLES):
            colour = free[i % len(free)]
            # Each further use of a colour takes the next marker and the next line.
            # The fixed arms have the first markers.
            turn = COLOURS.index(colour) + uses[colour]
            styles[arm] = Style(colour, MARKERS[(turn + 3) % len(MARKERS)], LINES[turn % len(LINES)])
            uses[colour] += 1
    return {arm: FIXED_STYLES.get(arm) or styles[arm] for arm in arms}


def pair_style(first: Style, second: Style) -> Style:
    """Return the style of a comparison of two arms: the line of the second with the markers of the first."""
    line = DASH_DASH_DOT if second.line == DOTTED else second.line
    return Style(second.colour, first.marker, line, filling=first.colour)


def seeds_style(arm: Style) -> Style:
    """Return the style of a comparison of an arm's own seeds: its colour and marker, dotted and hollow."""
    return Style(arm.colour, arm.marker, DOTTED, filling="white")


def group_styles(groups: Sequence[str]) -> dict[str, Style]:
    """Return the style of each group of tokens, in the order of a legend.

    Frequency ranks follow a sequential palette, from dark (frequent) to light (rare). Every part of speech
    looks the same in every experiment.
    """
    ranks = sorted((group for group in groups if _first_rank(group)), key=_first_rank)
    styles = {
        group: Style(shade(i, len(ranks)), MARKERS[i % len(MARKERS)], SOLID) for i, group in enumerate(ranks)
    }
    unknown = sorted(set(groups) - set(ranks) - {f"tag {tag}" for tag in TAGS})
    for i, group in enumerate([*(f"tag {tag}" for tag in TAGS), *unknown]):
        if group in groups:
            # 7 of the colours and 4 lines have no common divisor, so that groups of one colour have other lines.
            styles[group] = Style(COLOURS[i % USUAL_LINES], MARKERS[i % len(MARKERS)], LINES[i % len(LINES)])
    return styles


def shade(place: int, count: int) -> str:
    """Return the colour of a place, from 0, among `count` in an order: from dark to light."""
    return to_hex(colormaps["viridis"](LIGHTEST * place / max(1, count - 1)))


def text_colour(colour: str) -> str:
    """Return a colour for text on white: the given one, or the lightest darker one of its hue with a contrast of
    `TEXT_CONTRAST`."""
    darker = (to_hex(np.array(to_rgb(colour)) * share) for share in np.linspace(1, 0, 101))
    return next(text for text in (colour, *darker) if contrast_on_white(text) >= TEXT_CONTRAST)


def contrast_on_white(colour: str) -> float:
    """Return the contrast of a colour with white, 1 to 21 (WCAG 2.1, definitions of contrast ratio and relative
    luminance)."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(1.05 / (linear @ (0.2126, 0.7152, 0.0722) + 0.05))


def _first_rank(group: str) -> int:
    """Return the most frequent rank of a group of ranks; 0 for other groups."""
    match = re.match(r"rank (\d+)", group)
    return int(match[1]) if match else 0


class End(NamedTuple):
    """End of a line: its place and the line's name."""

    x: float
    y: float
    name: str
    colour: str


def name_ends(ax: Axes, ends: Sequence[End]) -> None:
    """Write the name of each line at the right of the axes, as near to its end as the other names allow.

    The limits of the y axis must be set.
    """
    bottom, top = ax.get_ylim()
    points = ax.get_window_extent().height * 72 / ax.get_figure(root=True).dpi  # type: ignore[union-attr]
    places = [(end.y - bottom) / (top - bottom) for end in ends]
    heights = [line_points() / points * (end.name.count("\n") + 1) for end in ends]
    for end, place in zip(ends, spread(places, heights), strict=True):
        ax.annotate(
            end.name,
            xy=(end.x, end.y),
            xytext=(NAME_AT, place),
            textcoords="axes fraction",
            ha="left",
            va="center",
            size="small",
            color=text_colour(end.colour),
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": end.colour,
                "lw": 0.6,
                "alpha": 0.6,
                # From the middle of the name's left side to the end of the line, without slow clipping.
                "relpos": (-0.03, 0.5),
                "patchA": None,
                "shrinkA": 0,
                "shrinkB": 0,
            },
            zorder=2.9,  # below the points at the ends of lines
            gid="end",
        )


def line_points() -> float:
    """Return the height of a line of text in points, at the present size of letters."""
    return LINE_POINTS * mpl.rcParams["font.size"] / LABEL_POINTS


def room(names: Sequence[str]) -> float:
    """Return the height in points of names written one below the other."""
    return line_points() * sum(name.count("\n") + 1 for name in names)


def spread(places: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Return the middles of labels that keep their order, do not overlap and are as near to their places as
    possible.

    The sum of squared moves is least. Labels stay between 0 and 1 as long as there is room.

    Args:
        places: wanted middle of each label.
        heights: height of each label.
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    sizes = np.array([heights[i] for i in order])
    below = np.cumsum(sizes) - sizes / 2  # middle of each label in a pile without gaps
    lowest = np.array([places[i] for i in order]) - below
    rising = isotonic_regression(lowest).x if lowest.size else lowest
    middles = np.clip(rising, 0, max(0.0, 1 - sizes.sum())) + below
    by_label = dict(zip(order, middles.tolist(), strict=True))
    return [by_label[i] for i in range(len(places))]


TICK_LETTERS = 36
"""Number of letters that fit side by side below an axis."""

MOST_INTERVALS = 10
"""Largest number of intervals between the ticks of an axis of steps."""


def spread_out(ax: Axes, places: Sequence[int]) -> None:
    """Set a logarithmic axis with ticks at some of the places. A place of 0 has its own room at the left end."""
    every = sorted(set(places))
    first = next((place for place in every if place > 0), 1)
    ax.set_xscale("symlog", base=2, linthresh=first, linscale=0.5)
    ax.set_xlim(-0.25 * first if every[0] == 0 else 0.85 * first, 1.18 * max(every[-1], first))
    kept = thinned(every[::-1], limit=TICK_LETTERS // (len(count(every[-1])) + 1))[::-1]
    ax.set_xticks(kept, [count(place) for place in kept])
    ax.set_xticks([], minor=True)


def label_steps(ax: Axes, last: float) -> None:
    """Write ticks at whole numbers up to `last`, so few that their labels have room."""
    intervals = min(MOST_INTERVALS, TICK_LETTERS // (len(count(last)) + 1))
    ax.xaxis.set_major_locator(MaxNLocator(intervals, integer=True))
    ax.xaxis.set_major_formatter(lambda step, _: count(step))


def label_layers(ax: Axes, layers: Sequence[int], *, leads: bool) -> None:
    """Write ticks and label of an axis of layers, or of changes from a layer to the next."""
    every = list(range(int(min(layers)), int(max(layers)) + 1))
    if leads:
        shown = thinned(every, limit=9)
        ax.set_xticks(shown, [f"{layer}→{layer + 1}" for layer in shown])
        ax.set_xlabel("layer → next layer (0 = embeddings)")
    else:
        ax.set_xticks(thinned(every, limit=13))
        ax.set_xlabel("layer (0 = embeddings)")


def thinned(layers: list[int], *, limit: int) -> list[int]:
    """Return every layer, or every second, third, ..., so that there are at most `limit` labels."""
    return layers[:: -(-len(layers) // limit)]


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number; True and False do not count."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_logarithmic(values: Sequence[float]) -> bool:
    """Return whether numbers get a logarithmic axis."""
    shares = max(values) <= 1 and max(values) > LARGEST_SHARE
    return min(values) > 0 and max(values) >= LARGEST_STEP * min(values) and not shares
