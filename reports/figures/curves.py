"""Curves of figures: the rows that they draw, and the facts that a reader must know about each curve.

The place of a row on the axis of a figure is its layer, its step, or a number in the name of its group.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from ablations.errors import ResultsError
from ablations.results import STARTS_TRAINED
from reports.statistics.summaries import gain, last_step
from reports.words import CCA_MEASURES, TASK_MEASURES

Axis = Literal["layer", "step", "examples", "ratio"]


class AxisText(NamedTuple):
    """Words of an axis."""

    label: str
    """Label below a figure."""
    head: str
    """Heading of a table column."""


AXES: dict[Axis, AxisText] = {
    "layer": AxisText("layer (0 = embeddings)", "Layer"),
    "step": AxisText("step", "Step"),
    "examples": AxisText("training examples", "Examples"),
    "ratio": AxisText("masking ratio", "Masking ratio"),
}

GROUPS: dict[Axis, str] = {"examples": r"(?s)^(.*)@(\d+)$", "ratio": r"(?s)^()ratio=(\d*\.?\d+(?:e-?\d+)?)$"}
"""Patterns of group names that hold a task or tokens and a place on the axis: ``sst2@100``, ``ratio=0.15``."""

ALONG_STEPS = ("learning",)
"""Measures whose figures run along training steps, unless another axis is asked for."""

FEWEST_PLACES = 2
"""Smallest number of places on the axis that make a curve and so a panel."""

FEWEST_STEPS = 3
"""Smallest number of steps for a figure over training."""


def own_axis(measure: str) -> Axis:
    """Return the default axis of the figures of a measure."""
    return "step" if measure in ALONG_STEPS else "layer"


def placed(rows: DataFrame, axis: Axis) -> DataFrame:
    """Return the rows that have a place on the axis, sorted by it, with two more columns: `x`, the place, and
    `about`, the group name without the place."""
    about, x = rows["group"], rows["layer"]
    if axis == "step":
        x = rows["step"].where(rows["layer"].isna())
    elif axis != "layer":
        matches = rows["group"].str.extract(GROUPS[axis])
        about = matches[0].where(matches[0] != "")
        x = pd.to_numeric(matches[1]).astype("Float64" if axis == "ratio" else "Int64")
    return rows.assign(x=x, about=about)[x.notna()].sort_values("x", kind="stable")


def is_about(rows: DataFrame, about: str | None) -> Series:
    """Return a mask of the rows (from `placed`) that are about a group of tokens or a task; None selects the rows
    about all tokens."""
    selected = rows["about"].isna() if about is None else (rows["about"] == about).fillna(False)
    return selected.astype(bool)


def common_steps(rows: DataFrame) -> DataFrame:
    """Return the rows at steps at which every seed of their arm was measured on their task. With other seeds
    at other steps, the mean would jump."""
    every = rows.groupby(["about", "arm"], dropna=False)["seed"].transform("nunique")
    here = rows.groupby(["about", "arm", "step"], dropna=False)["seed"].transform("nunique")
    return rows[here == every]


def means_over_tasks(rows: DataFrame) -> DataFrame:
    """Return the mean of each run over tasks at each step, as rows without a group. Only tasks that all runs
    have are taken, and steps at which the run has all of them, as means over other tasks cannot be compared.
    Returns no rows if there is only one such task.

    Args:
        rows: result of `placed` along steps, of whole tasks.
    """
    runs = rows[["arm", "seed", "about"]].drop_duplicates().groupby("about").size()
    common = runs.index[runs == len(rows[["arm", "seed"]].drop_duplicates())]
    if len(common) < 2:
        return rows.head(0)
    rows = rows[rows["about"].isin(common)]
    of_step = rows.groupby(["arm", "seed", "step"])
    means = rows.assign(
        value=of_step["value"].transform("mean"),
        floor=of_step["floor"].transform("mean"),
        n=of_step["n"].transform("min"),
        group=None,
        about=None,
        standard_error=math.nan,
    )
    complete = of_step["value"].transform("count") == len(common)
    return means[complete].drop_duplicates(["arm", "seed", "step"])


TRAINED_GAIN = 0.5
"""Gain in nats below which a model's layers say little about its objective."""

ENOUGH_TOKENS = 150
"""Tokens per dimension below which chance changes a curve of similarities visibly: independent Gaussians have
a PWCCA similarity of 0.07 at 150, and of 0.27 at 10."""


class Curve(NamedTuple):
    """Facts about the curve of one arm in one figure."""

    arm: str
    measure: str
    seeds: int
    """Number of seeds with at least one value."""
    gain: float | None
    """Gain over a guess without context in nats, as mean over seeds; None if it was not measured."""
    untrained: bool
    """Whether every seed was measured at step 0 only, and did not start from a trained model."""
    n: int | None
    """Smallest number of tokens behind any point; None if not known."""
    d: int | None
    """Largest number of dimensions, or clusters, behind any point; None if not known."""
    band: str = ""
    """Kind of the band: `seeds`, their t interval; `text`, the error of a single run; empty without a band."""
    judged: bool = True
    """Whether the curve is an arm, which may be trained too little; False for pairs of arms."""

    @property
    def tokens_per_dimension(self) -> float | None:
        """Tokens per dimension, n / d; None if either is unknown."""
        return self.n / self.d if self.n is not None and self.d else None

    @property
    def doubt(self) -> str:
        """Reason why the arm's layers say little about its objective, in a few words; empty if there is none."""
        if self.untrained:
            return "untrained"
        if self.gain is None:
            return "gain not measured"
        return "" if self.gain >= TRAINED_GAIN else "gains too little to interpret"

    @property
    def remarks(self) -> list[str]:
        """Remarks to keep in mind when reading the curve; empty if there are none."""
        remarks = [self.doubt] if self.judged and self.doubt else []
        if self.seeds == 1:
            single = "one seed" if self.judged else "one pair"
            over = "examples" if self.measure in TASK_MEASURES else "text"
            remarks.append(f"{single}: its band is over {over}" if self.band else f"{single}, so no interval")
        few = self.tokens_per_dimension is not None and self.tokens_per_dimension < ENOUGH_TOKENS
        if few and self.measure in CCA_MEASURES:
            remarks.append(f"n/d below {ENOUGH_TOKENS}")
        return remarks


def choose(
    table: DataFrame, *, measure: str, metric: str, group: str | None = None, axis: Axis | None = None
) -> DataFrame:
    """Return the rows that one figure draws: rows of single runs with that metric and group, at each run's
    last step or along steps.

    Without an axis, that of the measure is taken. A group of None stands for all tokens. Of the rows from one
    layer to another, only those to the next layer are kept. The rows are sorted by a new column `x`, the
    place on the axis.

    Raises:
        ResultsError: the table has no such rows.
    """
    along = axis or own_axis(measure)
    rows = metric_rows(table, measure=measure, metric=metric, axis=axis)
    rows = rows[is_about(rows, group) & rows["other_run_id"].isna()]
    rows = require(rows, table, f"{measure} {metric}", group, by=along)
    if along != "step":
        return last_step(rows)
    return rows if axis is None else common_steps(rows)


def metric_rows(table: DataFrame, *, measure: str, metric: str, axis: Axis | None = None) -> DataFrame:
    """Return all rows of the metric with a place on its axis, as `placed` gives them."""
    rows = table[(table["measure"] == measure) & (table["metric"] == metric)]
    to_the_next = rows["layer_to"].isna() | (rows["layer_to"] == rows["layer"] + 1).fillna(False)
    return placed(rows[to_the_next.astype(bool)], axis or own_axis(measure))


def require(
    rows: DataFrame, table: DataFrame, measured_quantity: str, group: str | None = None, *, by: str
) -> DataFrame:
    """Return the rows, or raise an error if there are none.

    Raises:
        ResultsError: there are no rows. The message says which rows are needed and what `table` has.
    """
    if rows.empty:
        available = sorted({f"{a} {b}" for a, b in zip(table["measure"], table["metric"], strict=True)})
        raise ResultsError(
            f"the table has no rows of {measured_quantity}{f' ({group})' if group else ''} by {by}; it has "
            f"{', '.join(available) or 'no rows at all'}."
        )
    return rows


def curves(
    rows: DataFrame, summary: DataFrame, gains: Mapping[str, float], *, arms: Sequence[str] | None = None
) -> list[Curve]:
    """Return the facts about each arm in rows of `choose`, in the order of `arms`; other arms come last.

    Args:
        rows: rows of one metric, with the arm in the column `line`.
        summary: result of `bands` for these rows.
        gains: result of `learned`.
    """
    band_by_arm = summary.groupby("line")["band"].max()
    facts = curves_by_arm(rows, gains)
    return [facts[arm]._replace(band=str(band_by_arm.get(arm, math.nan))) for arm in order(rows, arms)]


def learned(table: DataFrame) -> dict[str, float]:
    """Return the gain of each arm as mean over its seeds; arms without a gain are left out."""
    means = gain(table[table["measure"] == "validation"]).dropna().groupby("arm")["value"].mean()
    return {str(arm): float(nats) for arm, nats in means.items()}


def curves_by_arm(rows: DataFrame, gains: Mapping[str, float]) -> dict[str, Curve]:
    """Return the facts about each arm in these rows of one metric, without a band; `gains` come from
    `learned`. All arms are grouped at once, as there may be hundreds."""
    by_arm = rows.assign(
        at_start=(rows["step"] == 0).fillna(False).astype(bool),
        starts_trained=rows[STARTS_TRAINED].astype(bool) if STARTS_TRAINED in rows else False,
        with_number=rows["seed"].where(rows["value"].notna()),
    ).groupby("arm", sort=False)
    facts = by_arm.agg(
        measure=("measure", "first"),
        seeds=("with_number", "nunique"),
        at_start=("at_start", "all"),
        starts_trained=("starts_trained", "all"),
        n=("n", "min"),
        d=("d", "max"),
    )
    return {
        arm: Curve(
            arm=arm,
            measure=measure,
            seeds=int(seeds),
            gain=gains.get(arm),
            untrained=at_start and not starts_trained,
            n=None if pd.isna(n) else int(n),
            d=None if pd.isna(d) else int(d),
        )
        for arm, measure, seeds, at_start, starts_trained, n, d in facts.itertuples()
    }


def plugin_unit(rows: DataFrame) -> str:
    """Return the unit of the rows of a plugin's metric; `1` if they have none. Other units are in `words`."""
    units = rows["unit"].dropna().tolist() if "unit" in rows else []
    return (units or ["1"])[0] or "1"


FEWEST_DIGITS = 3
"""Smallest number of decimals of a plugin's metric."""


def plugin_digits(rows: DataFrame) -> int:
    """Return the number of decimals of a plugin's metric: as many as give the largest value three digits."""
    values = rows["value"].to_numpy(float)
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    return FEWEST_DIGITS if largest == 0 else max(FEWEST_DIGITS, 2 - math.floor(math.log10(largest)))


def order(table: DataFrame, arms: Sequence[str] | None) -> list[str]:
    """Return the arms of the table: first those of `arms` in that order, then the others as they appear."""
    present = table["arm"].unique().tolist()
    first = [arm for arm in dict.fromkeys(arms or ()) if arm in present]
    return first + [arm for arm in present if arm not in first]
