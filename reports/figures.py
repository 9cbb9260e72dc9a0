"""Figures. Each takes the tidy table and an Axes, draws one comparison and returns the Axes.

One line an arm: the mean over seeds with its 95% t interval as a band, each seed as a thin line, the
chance floor dashed. An arm looks the same in every figure of an experiment. What is drawn can be found
again by its gid: `mean`, `band`, `seed` and `floor`.
"""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from pandas import DataFrame, Series

from reports.curves import X_AXES, Curve, choose, curves, order
from reports.numbers import MINUS, number
from reports.statistics import mean_interval


class Style(NamedTuple):
    """How an arm looks; nobody needs colour alone to tell arms apart."""

    colour: str
    marker: str
    line: Any
    """A matplotlib line style; dashes are kept for floors."""


SOLID, DASH_DOT, DOTTED, DASH_DOT_DOT = "solid", (0, (6, 1.5, 1, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1, 1, 1))

FIXED_STYLES = {
    "mlm": Style("#0072B2", "o", SOLID),
    "clm": Style("#D55E00", "s", DASH_DOT),
    "mt": Style("#009E73", "^", DASH_DOT_DOT),
    "untrained": Style("#000000", "X", DOTTED),
}
"""Arms that most experiments have, the same in all of them. Colours: Okabe and Ito 2008."""

# Okabe and Ito's yellow is left out: on white its contrast is 1.3.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "*")
LINES = (SOLID, DASH_DOT, DASH_DOT_DOT, DOTTED)

CHANGE_NAMES = {"pwcca": f"1 {MINUS} PWCCA", "debiased_cka": f"1 {MINUS} debiased CKA"}
INFORMATION_NAMES = {"cross_fitted": "cross-fitted", "plug_in": "plug-in"}

LEAST_HEIGHT = 0.4
"""Share of the axis that curves keep when their floor is drawn into it; a farther floor is written out."""

LEGEND_LETTERS = 52
"""Longest line of a legend; arms of a grid have long names."""


def arm_styles(arms: Sequence[str]) -> dict[str, Style]:
    """The look of each arm, decided by the arms of the experiment and their order alone."""
    fixed = {FIXED_STYLES[arm].colour for arm in arms if arm in FIXED_STYLES}
    free = [colour for colour in COLOURS if colour not in fixed]
    styles = {}
    others = [arm for arm in dict.fromkeys(arms) if arm not in FIXED_STYLES]
    for i, arm in enumerate(others):
        # Three cycles of different lengths; the first markers are those of the fixed arms.
        styles[arm] = Style(free[i % len(free)], MARKERS[(i + 3) % len(MARKERS)], LINES[i % len(LINES)])
    return {arm: FIXED_STYLES.get(arm) or styles[arm] for arm in arms}


def layer_change(table: DataFrame, *, ax: Axes, metric: str = "pwcca", arms: Sequence[str] | None = None) -> Axes:
    """How much each layer changes its tokens: 1 - similarity of consecutive layers, 0 = no change.

    `arms` are the experiment's, in its order; an arm without rows is left out and keeps its colour free.

    Raises:
        ResultsError: the table has no such rows, lacks a column, or has several values for one seed.
    """
    layers = _draw(table, ax=ax, measure="layer_change", metric=metric, arms=arms, floor="rows shuffled")
    shown = _thinned(layers, most=9)
    ax.set_xticks(shown, [f"{layer}→{layer + 1}" for layer in shown])
    ax.set(xlabel="layer → next layer (0 = embeddings)", ylabel=CHANGE_NAMES.get(metric, f"1 {MINUS} {metric}"))
    return ax


def token_information(
    table: DataFrame, *, ax: Axes, metric: str = "cross_fitted", arms: Sequence[str] | None = None
) -> Axes:
    """What each layer still knows about its own input token, in nats.

    `arms` are the experiment's, in its order; an arm without rows is left out and keeps its colour free.

    Raises:
        ResultsError: the table has no such rows, lacks a column, or has several values for one seed.
    """
    layers = _draw(table, ax=ax, measure="token_information", metric=metric, arms=arms, floor="labels shuffled")
    ax.set_xticks(_thinned(layers, most=13))
    name = INFORMATION_NAMES.get(metric, metric)
    ax.set(xlabel="layer (0 = embeddings)", ylabel=f"{name} information (nats)")
    return ax


def learning(table: DataFrame, *, ax: Axes, metric: str = "gain", arms: Sequence[str] | None = None) -> Axes:
    """What a model has learned by each step: nats per prediction beyond word frequencies, on the validation text.

    `arms` are the experiment's, in its order; an arm without rows is left out and keeps its colour free.

    Raises:
        ResultsError: the table has no such rows, lacks a column, or has several values for one seed.
    """
    _draw(table, ax=ax, measure="learning", metric=metric, arms=arms, floor="no context")
    ax.set(xlabel="step", ylabel="gain over no context (nats)" if metric == "gain" else f"{metric} (nats)")
    return ax


def _draw(
    table: DataFrame, *, ax: Axes, measure: str, metric: str, arms: Sequence[str] | None, floor: str
) -> list[int]:
    """Everything but the labels of the axes; returns the layers or steps on the x axis."""
    rows = choose(table, measure=measure, metric=metric)
    summary = mean_interval(rows, by=["arm", "x"])
    every = list(range(int(rows["x"].min()), int(rows["x"].max()) + 1))
    styles = arm_styles([*dict.fromkeys([*(arms or ()), *order(table, arms)])])
    handles = []
    for curve in curves(table, measure=measure, metric=metric, arms=arms):
        own, style = rows[rows["arm"] == curve.arm], styles[curve.arm]
        # A layer without a number is a gap; between two measured steps a line may run.
        layers = every if measure not in X_AXES else sorted(own["x"].unique().tolist())
        _draw_floor_and_seeds(own, layers, ax=ax, colour=style.colour)
        handles.append(
            _draw_mean(summary[summary["arm"] == curve.arm], layers, ax=ax, style=style, label=_label(curve))
        )
    floors = _finite(rows.groupby(["arm", "x"])["floor"].mean())
    floors_fit = _scale(ax, _finite(rows["value"]), _finite(summary[["low", "high"]]), floors)
    if floors.size and floors_fit:
        handles.append(Line2D([], [], color="0.4", linestyle="--", lw=1, label=f"chance floor ({floor})"))
    elif floors.size:
        _write_floor(ax, floors, name=f"chance floor ({floor})")
    ax.legend(handles=handles, frameon=False, fontsize="small")
    sns.despine(ax=ax)
    return every


def _draw_mean(summary: DataFrame, layers: list[int], *, ax: Axes, style: Style, label: str) -> Line2D:
    """Mean and band of one arm. A layer without a number is a gap, never bridged."""
    by_layer = summary.set_index("x")[["mean", "low", "high"]].reindex(layers).astype(float)
    if by_layer["low"].notna().any():
        ax.fill_between(
            layers, by_layer["low"], by_layer["high"], color=style.colour, alpha=0.18, lw=0, gid="band"
        )
    (line,) = ax.plot(
        layers,
        by_layer["mean"],
        color=style.colour,
        linestyle=style.line,
        marker=style.marker,
        markersize=5.5,
        markeredgecolor="white",
        markeredgewidth=0.6,
        lw=1.8,
        label=label,
        zorder=3,
        gid="mean",
    )
    return line


def _draw_floor_and_seeds(rows: DataFrame, layers: list[int], *, ax: Axes, colour: str) -> None:
    """The arm's floor, dashed, its mean over seeds; and each seed, thin, where there are several."""
    floors = rows.groupby("x")["floor"].mean().reindex(layers).to_numpy(float)
    if np.isfinite(floors).any():
        ax.plot(layers, floors, color=colour, linestyle="--", lw=1, alpha=0.8, zorder=1, gid="floor")
    seeds = [seed_rows for _, seed_rows in rows.groupby("seed")]
    for seed_rows in seeds if len(seeds) > 1 else ():
        values = seed_rows.set_index("x")["value"].reindex(layers).to_numpy(float)
        ax.plot(layers, values, color=colour, lw=0.7, alpha=0.45, zorder=2, gid="seed")


def _finite(numbers: DataFrame | Series) -> np.ndarray:
    values = numbers.to_numpy(float)
    return values[np.isfinite(values)]


def _scale(ax: Axes, values: np.ndarray, bands: np.ndarray, floors: np.ndarray) -> bool:
    """Fit the y axis to the curves; returns whether their floors fit too and leave them readable."""
    if not values.size:
        return True
    low, high = values.min(), values.max()
    height = (high - low) or abs(high) or 1.0
    if bands.size:
        # Two seeds have an interval of thirteen standard errors: it may leave the axis, curves may not.
        low = min(low, max(bands.min(), low - height / 2))
        high = max(high, min(bands.max(), high + height / 2))
    least, most = min([low, *floors]), max([high, *floors])
    floors_fit = bool(high - low >= LEAST_HEIGHT * (most - least))
    if floors_fit:
        low, high = least, most
    margin = 0.06 * ((high - low) or height)
    ax.set_ylim(low - margin, high + margin)
    return floors_fit


def _write_floor(ax: Axes, floors: np.ndarray, *, name: str) -> None:
    """Say where the floors are when the axis ends before them."""
    least, most = number(floors.min()), number(floors.max())
    where = least if least == most else f"{least} to {most}"
    bottom, top = ax.get_ylim()
    arrow = "↑" * bool(floors.max() > top) + "↓" * bool(floors.min() < bottom)
    text = f"{name}: {where} {arrow}"
    ax.text(1, 1.02, text, transform=ax.transAxes, ha="right", va="bottom", size="small", color="0.35")


def _label(curve: Curve) -> str:
    """The arm, its seeds and how far it is trained: ``mlm (n = 3, gain 1.80 nats)``."""
    facts = [f"n = {curve.seeds}"]
    if curve.gain is not None and not curve.untrained:
        facts.append(f"gain {number(curve.gain)} nats")
    if curve.doubt not in ("", curve.arm) and (curve.untrained or curve.gain is not None):
        facts.append(curve.doubt)
    # Facts are kept in one piece: their spaces are no places to break a line.
    facts = [fact.replace(" ", "\N{NO-BREAK SPACE}") for fact in facts]
    lines = wrap(f"{curve.arm} ({', '.join(facts)})", LEGEND_LETTERS)
    text = "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")
    # A dollar sign would start a formula, and a leading underscore would hide the arm from the legend.
    return text.replace("$", r"\$").replace("_", "\N{WORD JOINER}_", text.startswith("_"))


def _thinned(layers: list[int], *, most: int) -> list[int]:
    """Every layer, or every second, third, ... so that no more labels than that stand side by side."""
    return layers[:: -(-len(layers) // most)]
