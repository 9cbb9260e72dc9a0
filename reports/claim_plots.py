"""The effects of a claim as a small plot: one row a part, its mean, interval and seeds against 0 and what matters.

What is drawn can be found again by its gid: `mean`, `interval`, `seed`, `margin` and `zero`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports import svg
from reports.claim_entries import claim_csv
from reports.drawings import PANEL_INCHES, Drawing
from reports.figures import shown_name
from reports.numbers import is_absent

ROW_INCHES, AXIS_INCHES = 0.44, 0.62
"""Height of a part, and of what stands below an axis."""

LETTERS = 50
"""Longest name that has room, which is one line of `shown_name`."""

LOOKS = {
    "supported": ("#0072B2", "o"),
    "contradicted": ("#D55E00", "X"),
    "equivalent": ("#009E73", "s"),
    "undecided": ("#555555", "o"),
    "insufficient evidence": ("#555555", "o"),
}
"""Colour and marker of a part by its verdict; nobody needs the colour alone: markers differ, and what is open is
hollow."""

HOLLOW = ("undecided", "insufficient evidence")

MOST_BEYOND = 1.0
"""How far an interval may widen the axis on either side, in widths of all seeds and 0; then it has an arrow."""


def draw_claim(entry: Mapping[str, Any]) -> Drawing:
    """The plot of a claim that is judged, and the numbers of its seeds.

    Args:
        entry: as `claim_entries` describes it.
    """
    shared = _by_unit([*entry["parts"], *(part | {"beside": True} for part in entry["beside"])])
    heights = [ROW_INCHES * len(parts) + AXIS_INCHES for parts in shared.values()]
    with sns.axes_style("ticks"), sns.plotting_context("paper", font_scale=1.1):
        figure = Figure(figsize=(PANEL_INCHES[0], sum(heights)), layout="constrained")
        axes = figure.subplots(len(shared), 1, squeeze=False, height_ratios=heights)[:, 0]
        for ax, (unit, parts) in zip(axes, shared.items(), strict=True):
            effects(parts, ax=ax, unit=unit)
    drawn = svg.render(figure, name=entry["id"], title=entry["plot"]["label"])
    return Drawing(svg=drawn, csv=claim_csv(entry))


def effects(parts: Sequence[Mapping[str, Any]], *, ax: Axes, unit: str = "") -> Axes:
    """Effects of one unit, a row each, the first at the top.

    Grey is what is too small to matter, the thin dots are seeds, and the marker of a mean says its verdict. An
    interval that would make everything else small is cut off, with an arrow.

    Args:
        parts: as the entry of a claim has them; of those that decide nothing `beside` is true, and their lines are
            thin.
        unit: of the axis.
    """
    low, high = _limits(parts)
    ax.axvline(0, color="0.25", lw=0.9, zorder=1, gid="zero")
    for row, part in enumerate(parts):
        _draw_part(part, row, ax=ax, limits=(low, high))
    ax.set(xlim=(low, high), ylim=(len(parts) - 0.4, -0.56), yticks=[])
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6))
    ax.set_xlabel(_short(f"effect ({unit})" if unit else "effect"))
    sns.despine(ax=ax, left=True)
    return ax


def _draw_part(part: Mapping[str, Any], row: int, *, ax: Axes, limits: tuple[float, float]) -> None:
    (low, high), thin = limits, part.get("beside", False)
    colour, marker = LOOKS[part["verdict"]]
    name = f"{part['name']} (beside)" if thin else part["name"]
    ax.text(
        *(0.0, row - 0.3, _short(name)),
        transform=ax.get_yaxis_transform(),
        ha="left",
        va="center",
        size="small",
        color="0.15",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )
    margin = min(part["smallest_effect"], 2 * max(abs(low), abs(high)))
    ax.fill_betweenx([row - 0.14, row + 0.34], -margin, margin, color="0.88", lw=0, zorder=0, gid="margin")
    values = np.array(part["values"], float)
    values = values[np.isfinite(values)]
    ax.plot(
        *(values, np.full(values.size, row + 0.24)),
        linestyle="",
        marker="o",
        markersize=3.2,
        markerfacecolor="none",
        markeredgecolor=colour,
        markeredgewidth=0.7,
        gid="seed",
    )
    if is_absent(part["effect"]):
        return
    if not is_absent(part["low"]):
        ends = max(part["low"], low), min(part["high"], high)
        ax.plot(ends, (row, row), color=colour, lw=1.1 if thin else 2.2, solid_capstyle="butt", gid="interval")
        for end, cut, arrow in zip(ends, (part["low"] < low, part["high"] > high), "<>", strict=True):
            if cut:
                ax.plot([end], [row], marker=arrow, color=colour, markersize=5, clip_on=False, gid="cut")
    ax.plot(
        *([part["effect"]], [row]),
        marker=marker,
        markersize=5 if thin else 7,
        markerfacecolor="white" if part["verdict"] in HOLLOW else colour,
        markeredgecolor=colour if part["verdict"] in HOLLOW else "white",
        markeredgewidth=1.3 if part["verdict"] in HOLLOW else 0.8,
        zorder=4,
        gid="mean",
    )


def _limits(parts: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Of the axis: all seeds, 0 and what matters are on it, and intervals as far as they leave them readable."""
    seeds = np.array([value for part in parts for value in part["values"] if np.isfinite(value)] + [0.0])
    least, most = seeds.min(), seeds.max()
    margins = [part["smallest_effect"] for part in parts]
    near = [margin for margin in margins if margin <= 2 * (most - least)] if most > least else margins
    reach = max(near, default=0.0)
    least, most = min(least, -reach), max(most, reach)
    room = MOST_BEYOND * (most - least)
    ends = np.array([part[end] for part in parts for end in ("low", "high") if not is_absent(part[end])])
    if ends.size:
        least, most = min(least, max(ends.min(), least - room)), max(most, min(ends.max(), most + room))
    return least - 0.04 * (most - least), most + 0.04 * (most - least)


def _short(name: str) -> str:
    """On one line; the rest of a name that is too long stands in the text alternative and in the table."""
    return shown_name(name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…")


def _by_unit(parts: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The parts that can stand on one axis."""
    shared: dict[str, list[Mapping[str, Any]]] = {}
    for part in parts:
        shared.setdefault(part["unit"], []).append(part)
    return shared
