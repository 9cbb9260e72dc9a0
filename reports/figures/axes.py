"""Axes of figures: their ticks and labels, and the names of lines at their right ends.

Each name stands beside its line, moved no farther than it takes that none overlap; it can be found again by its
gid, `end`. Axes of layers have whole layers, others are spread out from small numbers to large ones.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from reports.words import count

LINE_POINTS = 10.5
"""Height of a line of text of a name where labels have `LABEL_POINTS`."""

LABEL_POINTS = 10.56
"""Size of letters on the page."""

NAME_AT = 1.045
"""Place of the names: behind the right end of the axes, whose width is 1. A thin line leads to each."""


LARGEST_STEP, LARGEST_SHARE = 4, 0.1
"""Numbers that differ by that many times or more stand on a logarithmic axis, unless they are shares: all at most
1 and some of them more than that."""


class End(NamedTuple):
    """End of a line: where it is, and its name."""

    x: float
    y: float
    name: str
    colour: str


def name_ends(ax: Axes, ends: Sequence[End]) -> None:
    """Write the name of each line at the right of the axes, as near its end as the others let it.

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
            color=end.colour,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": end.colour,
                "lw": 0.6,
                "alpha": 0.6,
                "shrinkA": 1,
                "shrinkB": 3,
            },
            gid="end",
        )


def line_points() -> float:
    """Return the height of a line of text of a name, in the present size of letters."""
    return LINE_POINTS * mpl.rcParams["font.size"] / LABEL_POINTS


def room(names: Sequence[str]) -> float:
    """Return the points that names need that stand one above the other."""
    return line_points() * sum(name.count("\n") + 1 for name in names)


def spread(places: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Return the middles of labels in their order that do not overlap and are as near as can be to their places.

    The sum of squared moves is least. Labels stay between 0 and 1 as long as there is room.

    Args:
        places: where each label wants its middle.
        heights: how much each takes.
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    sizes = np.array([heights[i] for i in order])
    below = np.cumsum(sizes) - sizes / 2  # the middle of each in a pile without gaps
    lowest = np.array([places[i] for i in order]) - below
    middles = np.clip(_rising(lowest), 0, max(0.0, 1 - sizes.sum())) + below
    by_label = dict(zip(order, middles.tolist(), strict=True))
    return [by_label[i] for i in range(len(places))]


def _rising(values: np.ndarray) -> np.ndarray:
    """Return the numbers that never fall and are nearest to the values: neighbours that fall take their mean."""
    pools: list[tuple[float, int]] = []
    for value in values.tolist():
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (first, many), (second, more) = pools[-2:]
            pools[-2:] = [((first * many + second * more) / (many + more), many + more)]
    return np.array([mean for mean, many in pools for _ in range(many)])


TICK_LETTERS = 36
"""Letters that stand side by side below an axis."""


def spread_out(ax: Axes, places: Sequence[int]) -> None:
    """Set a logarithmic axis, ticks at some of the places; 0 is as far left of the first as its double right of
    it."""
    every = sorted(set(places))
    first = next((place for place in every if place > 0), 1)
    ax.set_xscale("symlog", base=2, linthresh=first, linscale=0.5)
    ax.set_xlim(-0.25 * first if every[0] == 0 else 0.85 * first, 1.18 * max(every[-1], first))
    kept = thinned(every[::-1], most=TICK_LETTERS // (len(count(every[-1])) + 1))[::-1]
    ax.set_xticks(kept, [count(place) for place in kept])
    ax.set_xticks([], minor=True)


def label_layers(ax: Axes, layers: Sequence[int], *, leads: bool) -> None:
    """Write ticks and label of an axis of layers, or of steps from a layer to the next."""
    every = list(range(int(min(layers)), int(max(layers)) + 1))
    if leads:
        shown = thinned(every, most=9)
        ax.set_xticks(shown, [f"{layer}→{layer + 1}" for layer in shown])
        ax.set_xlabel("layer → next layer (0 = embeddings)")
    else:
        ax.set_xticks(thinned(every, most=13))
        ax.set_xlabel("layer (0 = embeddings)")


def thinned(layers: list[int], *, most: int) -> list[int]:
    """Return every layer, or every second, third, ... so that no more labels than that stand side by side."""
    return layers[:: -(-len(layers) // most)]


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_logarithmic(values: Sequence[float]) -> bool:
    """Return whether numbers stand on a logarithmic axis."""
    shares = max(values) <= 1 and max(values) > LARGEST_SHARE
    return min(values) > 0 and max(values) >= LARGEST_STEP * min(values) and not shares
