"""Entries of claims on the page as plain data: each with its plot, and the figures that show the numbers it
reads.

The plot shows the effects of a claim: a row for each part, with mean, interval and seeds against 0 and the
smallest effect that matters. Drawn artists can be found by their gid: `mean`, `interval`, `seed`, `margin`
and `zero`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pandas import DataFrame

from ablations.spec.contrasts import Claim, Needs
from reports.claims.entries import ClaimEntry, PartEntry
from reports.claims.words import described
from reports.figures import files
from reports.figures.by_arm import NAME_LETTERS, shown_name
from reports.figures.files import Drawing
from reports.figures.panel import csv_of
from reports.folder import printable_throughout
from reports.page.figures import compares_courses, is_along, read_by
from reports.scores.runs import SHOWN
from reports.words import is_absent, is_of_plugin


@dataclass(frozen=True)
class ClaimPlot:
    """Files of a claim's plot, and its words for readers who do not see it."""

    svg: str
    csv: str
    label: str
    description: str


@dataclass(frozen=True, kw_only=True)
class PageClaim(ClaimEntry):
    """Claim on the page."""

    id: str
    """Name of the entry on the page."""
    plot: ClaimPlot | None = None
    """Plot of the effects; None if the claim is not judged."""
    shown_in: list[dict[str, str]] = field(default_factory=list)
    """Figures and tables of the numbers that the claim reads, each with `id` and `title`."""
    over_examples: list[str] = field(default_factory=list)
    """Sentences from the predictions for examples."""


OF_PART = ("effect", "low", "high", "confidence", "smallest_effect", "verdict")
"""Columns of a claim's CSV with the same value for all seeds of a part."""

COLUMNS = ("claim", "part", "decides", "seed", "value", "unit", "layer", *OF_PART)


def claim_entries(claims: Mapping[str, Claim], page: Mapping[str, Any]) -> list[PageClaim]:
    """Return the claims of the page.

    Args:
        claims: claims by name, as their files have them.
        page: content of the page, with the entries of the claims.
    """
    ids: set[str] = set()
    entries = []
    for entry in printable_throughout(page["claims"]):  # a file of claims may hold any character
        id_ = f"claim-{re.sub('[^a-z0-9._-]+', '_', entry.name)}"
        while id_ in ids:  # names may differ only in letters that are replaced here
            id_ += "_"
        ids.add(id_)
        entries.append(
            PageClaim(
                **vars(entry),
                id=id_,
                plot=None if entry.verdict == "not run" else _plot(entry, id_),
                shown_in=_shown_in(entry, claims.get(entry.name), page),
                over_examples=page.get("over_examples", {}).get(entry.name, []),
            )
        )
    return entries


def _plot(entry: ClaimEntry, id_: str) -> ClaimPlot:
    return ClaimPlot(
        svg=f"figures/{id_}.svg",
        csv=f"figures/{id_}.csv",
        label=f"Effect of claim {entry.number or entry.name}",
        description=described(entry),
    )


def claim_csv(claim: ClaimEntry) -> str:
    """Return the effects of a claim as CSV: a row for each part and seed."""
    rows = []
    for part in (*claim.parts, *claim.beside):
        shared = {"claim": claim.name, "part": part.name, "decides": "yes" if part.decides else "no"}
        shared |= {"unit": part.unit} | {name: getattr(part, name) for name in OF_PART}
        layers = part.chosen_layers or [None] * len(part.seeds)
        rows += [
            shared | {"seed": seed, "value": value, "layer": layer}
            for seed, value, layer in zip(part.seeds, part.values, layers, strict=True)
        ]
    frame = DataFrame(rows, columns=list(COLUMNS)).astype({"seed": "Int64", "layer": "Int64"})
    return csv_of(frame)


def _shown_in(entry: ClaimEntry, claim: Claim | None, page: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the figures and tables of the page that show the measures of a claim."""
    if entry.needs is None:
        return []
    places = []
    metrics = _metrics(claim)
    for measure in entry.needs.measures:
        for number, figure in enumerate(page["figures"], start=1):
            if any(_shows(panel, measure, claim, metrics) for panel in figure["panels"]):
                places.append({"id": figure["name"], "title": f"Figure {number}. {figure['title']}"})
                break
        places += [
            {"id": table["name"], "title": f"Table {number}. {table['title']}"}
            for number, table in enumerate(page["tasks"], start=1)
            if table["measure"] == measure
        ]
    places += [
        {"id": figure["name"], "title": f"Figure {number}. {figure['title']}"}
        for number, figure in enumerate(page["figures"], start=1)
        if figure.get("kind") == "settings" and _by_setting(figure, entry.needs, metrics)
    ]
    if metrics & SHOWN and page["corruptions"]:
        places.append({"id": "corruption-table", "title": "Masked LM and its tokens"})
    if "validation" in entry.needs.measures and metrics - SHOWN:
        places.append({"id": "arm-table", "title": "Arms"})
    return places


def _metrics(claim: Claim | None) -> set[str]:
    """Return the metrics of single runs that the parts of a claim read."""
    read = read_by(claim) if claim else ()  # distances between runs are no numbers of single runs
    return {reading.metric for reading in read if reading.measure != "run_distance"}


def _by_setting(figure: Mapping[str, Any], needs: Needs, metrics: set[str]) -> bool:
    """Return whether a figure by a setting compares the arms and numbers of a claim; a loss is shown as a gain."""
    compared = set(figure["arms"]) & set(needs.arms)
    drawn = metrics | ({"gain"} if "loss" in metrics else set())
    return len(compared) > 1 and any(
        panel["measure"] in needs.measures and panel["metric"] in drawn for panel in figure["panels"]
    )


def _shows(panel: Mapping[str, Any], measure: str, claim: Claim | None, metrics: set[str]) -> bool:
    along_steps = claim is not None and compares_courses(claim)
    is_read = not is_of_plugin(measure) or panel["metric"] in metrics  # own metrics may have little in common
    return (
        is_read
        and panel["measure"] == measure
        and is_along(panel["kind"], measure, panel["axis"], along_steps=along_steps)
    )


ROW_INCHES, AXIS_INCHES = 0.44, 0.62
"""Height of one part, and of the labels below an axis, in inches."""

VERDICT_STYLES = {
    "supported": ("#0072B2", "o"),
    "contradicted": ("#D55E00", "X"),
    "equivalent": ("#009E73", "s"),
    "partly": ("#009E73", "s"),
    "undecided": ("#555555", "o"),
    "not testable here": ("#555555", "o"),
    "insufficient evidence": ("#555555", "o"),
}
"""Colour and marker of a part by its verdict. Open verdicts are hollow too, so colour is not needed."""

HOLLOW = ("undecided", "not testable here", "insufficient evidence")

MOST_BEYOND = 1.0
"""Most that an interval may widen the axis on either side, as a multiple of the width that seeds, 0 and the
smallest effects need. A longer interval is cut off with an arrow."""


def draw_claim(claim: PageClaim) -> Drawing:
    """Draw the plot of a judged claim, and return it with the numbers of its seeds."""
    assert claim.plot is not None
    shared = _by_unit([*claim.parts, *claim.beside])
    heights = [ROW_INCHES * len(parts) + AXIS_INCHES for parts in shared.values()]
    with sns.axes_style("ticks"), sns.plotting_context("paper", font_scale=1.1):
        figure = Figure(figsize=(files.PANEL_INCHES[0], sum(heights)), layout="constrained")
        axes = figure.subplots(len(shared), 1, squeeze=False, height_ratios=heights)[:, 0]
        for ax, (unit, parts) in zip(axes, shared.items(), strict=True):
            effects(parts, ax=ax, unit=unit)
    drawn = files.render(figure, name=claim.id, title=claim.plot.label)
    return Drawing(svg=drawn, csv=claim_csv(claim))


def effects(parts: Sequence[PartEntry], *, ax: Axes, unit: str = "") -> Axes:
    """Draw effects of one unit, a row for each, the first at the top; return the axes.

    The grey band holds effects too small to matter. Small circles are seeds. Colour and marker of a mean show
    its verdict. An interval that would make everything else small is cut off, with an arrow. Parts that do not
    decide have thin lines.
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


def _draw_part(part: PartEntry, row: int, *, ax: Axes, limits: tuple[float, float]) -> None:
    (low, high), thin = limits, not part.decides
    colour, marker = VERDICT_STYLES[part.verdict]
    name = f"{part.name} (beside)" if thin else part.name
    ax.text(
        *(0.0, row - 0.3, _short(name)),
        transform=ax.get_yaxis_transform(),
        ha="left",
        va="center",
        size="small",
        color="0.15",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )
    margin = min(part.smallest_effect, 2 * max(abs(low), abs(high)))
    ax.fill_betweenx([row - 0.14, row + 0.34], -margin, margin, color="0.88", lw=0, zorder=0, gid="margin")
    values = np.array(part.values, float)
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
    if is_absent(part.effect):
        return
    if not is_absent(part.low):
        ends = max(part.low, low), min(part.high, high)
        ax.plot(ends, (row, row), color=colour, lw=1.1 if thin else 2.2, solid_capstyle="butt", gid="interval")
        for end, cut, arrow in zip(ends, (part.low < low, part.high > high), "<>", strict=True):
            if cut:
                ax.plot([end], [row], marker=arrow, color=colour, markersize=5, clip_on=False, gid="cut")
    ax.plot(
        *([part.effect], [row]),
        marker=marker,
        markersize=5 if thin else 7,
        markerfacecolor="white" if part.verdict in HOLLOW else colour,
        markeredgecolor=colour if part.verdict in HOLLOW else "white",
        markeredgewidth=1.3 if part.verdict in HOLLOW else 0.8,
        zorder=4,
        gid="mean",
    )


def _limits(parts: Sequence[PartEntry]) -> tuple[float, float]:
    """Return the limits of the axis: seeds, 0, smallest effects, and intervals as far as the rest is readable."""
    seeds = np.array([value for part in parts for value in part.values if np.isfinite(value)] + [0.0])
    left, right = seeds.min(), seeds.max()
    margins = [part.smallest_effect for part in parts]
    near = [margin for margin in margins if margin <= 2 * (right - left)] if right > left else margins
    reach = max(near, default=0.0)
    left, right = min(left, -reach), max(right, reach)
    room = MOST_BEYOND * (right - left)
    ends = np.array([end for part in parts for end in (part.low, part.high) if not is_absent(end)])
    if ends.size:
        left, right = min(left, max(ends.min(), left - room)), max(right, min(ends.max(), right + room))
    return left - 0.04 * (right - left), right + 0.04 * (right - left)


def _short(name: str) -> str:
    """Return a name cut to one line. The whole name is in the text alternative and in the table."""
    return shown_name(name if len(name) <= NAME_LETTERS else f"{name[: NAME_LETTERS - 1]}…")


def _by_unit(parts: Sequence[PartEntry]) -> dict[str, list[PartEntry]]:
    """Return the parts by unit; parts of one unit share an axis."""
    shared: dict[str, list[PartEntry]] = {}
    for part in parts:
        shared.setdefault(part.unit, []).append(part)
    return shared
