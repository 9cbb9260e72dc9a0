"""What a figure draws and what its reader must know about each curve, apart from how it looks."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
from pandas import DataFrame

from ablations.errors import ResultsError
from reports.statistics import gain, last_step, mean_interval

TRAINED_GAIN = 0.5
"""Nats over a guess without context below which a model's layers say little about its objective."""

ENOUGH_TOKENS = 150
"""Tokens per dimension below which chance moves a curve of similarities visibly: independent Gaussians have
a PWCCA similarity of 0.07 at 150, of 0.27 at 10."""

X_AXES = {"learning": "step"}
"""The column that a figure of a measure runs along, where that is not `layer`."""

NEEDED = ("arm", "seed", "measure", "metric", "layer", "value")
OPTIONAL = {
    "step": "Int64",
    "group": "string",
    "layer_to": "Int64",
    "other_run_id": "string",
    "floor": "float64",
    "n": "Int64",
    "d": "Int64",
}


class Curve(NamedTuple):
    """One arm in one figure."""

    arm: str
    measure: str
    seeds: int
    """Seeds with at least one number."""
    gain: float | None
    """Nats over a guess without context, the mean over seeds; None if it was not measured."""
    untrained: bool
    """Whether every seed was measured at step 0."""
    n: int | None
    """Tokens, the fewest behind any point."""
    d: int | None
    """Dimensions, or clusters, the most behind any point."""

    @property
    def tokens_per_dimension(self) -> float | None:
        """n / d, None if either is unknown."""
        return self.n / self.d if self.n is not None and self.d else None

    @property
    def doubt(self) -> str:
        """Why the arm's layers say little about its objective, in a few words; empty if they do."""
        if self.untrained:
            return "untrained"
        if self.gain is None:
            return "gain not measured"
        return "" if self.gain >= TRAINED_GAIN else "not trained enough to interpret"

    @property
    def remarks(self) -> list[str]:
        """What to keep in mind before reading the curve; empty when there is nothing."""
        remarks = [self.doubt] if self.doubt else []
        if self.seeds == 1:
            remarks.append("one seed, so no interval")
        few = self.tokens_per_dimension is not None and self.tokens_per_dimension < ENOUGH_TOKENS
        if few and self.measure == "layer_change":
            remarks.append(f"n/d below {ENOUGH_TOKENS}")
        return remarks


def choose(table: DataFrame, *, measure: str, metric: str) -> DataFrame:
    """The rows one figure draws: of that metric, over all tokens, inside one run; by layer at each run's last
    step, or by step.

    Of `layer_change` only the steps from a layer to the next. Sorted by `x`, a further column: the layer or step.
    Columns that the table lacks and a figure can do without are there, absent.

    Raises:
        ResultsError: the table lacks a column, or has no such rows.
    """
    rows = with_columns(table)
    rows = rows[(rows["measure"] == measure) & (rows["metric"] == metric)]
    axis = X_AXES.get(measure, "layer")
    rows = rows[rows["group"].isna() & rows["other_run_id"].isna() & rows[axis].notna()]
    if measure == "layer_change":
        rows = rows[(rows["layer_to"] == rows["layer"] + 1).fillna(False).astype(bool)]
    if rows.empty:
        there = sorted({f"{a} {b}" for a, b in zip(table["measure"], table["metric"], strict=True)})
        raise ResultsError(
            f"the table has no rows of {measure} {metric} by {axis}; it has "
            f"{', '.join(there) or 'no rows at all'}."
        )
    rows = last_step(rows) if axis == "layer" else rows
    return rows.assign(x=rows[axis]).sort_values("x", kind="stable")


def with_columns(table: DataFrame) -> DataFrame:
    """The table with the columns that a figure can do without, absent where it lacks them.

    Raises:
        ResultsError: a column is missing that every figure needs.
    """
    missing = [name for name in NEEDED if name not in table]
    if missing:
        raise ResultsError(
            f"a figure needs the columns {', '.join(NEEDED)}, but the table lacks {', '.join(missing)}."
        )
    absent = {n: pd.Series(None, index=table.index, dtype=t) for n, t in OPTIONAL.items() if n not in table}
    return table.assign(**absent)


def curves(table: DataFrame, *, measure: str, metric: str, arms: Sequence[str] | None = None) -> list[Curve]:
    """What to know about each arm with such rows, in the order of `arms`, the others after them.

    Raises:
        ResultsError: as `choose`.
    """
    rows = choose(table, measure=measure, metric=metric)
    learned = mean_interval(gain(with_columns(table)), by=["arm"]).set_index("arm")["mean"]
    found = []
    for arm in order(rows, arms):
        own = rows[rows["arm"] == arm]
        nats = float(learned.get(arm, math.nan))
        found.append(
            Curve(
                arm=arm,
                measure=measure,
                seeds=int(own.loc[own["value"].notna(), "seed"].nunique()),
                gain=None if math.isnan(nats) else nats,
                untrained=bool(own["step"].notna().all() and (own["step"] == 0).all()),
                n=None if own["n"].isna().all() else int(own["n"].min()),
                d=None if own["d"].isna().all() else int(own["d"].max()),
            )
        )
    return found


def order(table: DataFrame, arms: Sequence[str] | None) -> list[str]:
    """The table's arms: first those of `arms` in that order, then the others as they appear."""
    present = table["arm"].unique().tolist()
    wanted = [arm for arm in dict.fromkeys(arms or ()) if arm in present]
    return wanted + [arm for arm in present if arm not in wanted]
