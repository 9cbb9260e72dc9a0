"""Means and intervals. Data frame in, data frame out; the seed is the unit of evidence."""

from collections.abc import Sequence

import numpy as np
from pandas import DataFrame
from scipy import stats

from ablations.errors import ResultsError


def mean_interval(table: DataFrame, *, by: Sequence[str], confidence: float = 0.95) -> DataFrame:
    """Mean over seeds of `value` with Student's t interval, one row for each combination of `by`.

    Columns: those of `by`, then `mean, low, high, seeds`. NaN values are left out and `seeds` counts the
    rest; below two seeds `low` and `high` are NaN, as one run says nothing about the spread of others.
    Combinations keep their order of appearance.

    Raises:
        ResultsError: a seed has two values for one combination. Counting both would pass off layers,
            steps or examples of one run as independent runs.
    """
    by = list(by)
    repeated = table.duplicated([*by, "seed"])
    if repeated.any():
        row = table[repeated].iloc[0]
        where = ", ".join(f"{name} {row[name]}" for name in by)
        raise ResultsError(
            f"a mean over seeds needs one value a seed, but seed {row['seed']} has several for {where}; "
            "choose the rows of one experiment, step, measure, metric and group."
        )
    with np.errstate(invalid="ignore"):  # an infinite perplexity has an infinite mean and no spread
        groups = table.groupby(by, sort=False, dropna=False)["value"]
        summary = groups.agg(mean="mean", seeds="count", error="sem").reset_index()
        degrees = summary["seeds"].to_numpy() - 1
        margin = stats.t.ppf((1 + confidence) / 2, degrees) * summary["error"].to_numpy()
        summary["low"], summary["high"] = summary["mean"] - margin, summary["mean"] + margin
    return summary[[*by, "mean", "low", "high", "seeds"]]


def last_step(table: DataFrame) -> DataFrame:
    """The rows of each run's last measured step, found for each measure separately.

    A table without steps is returned as it is.
    """
    if "step" not in table or table["step"].isna().all():
        return table
    run = [name for name in ("experiment", "run_id", "arm", "seed", "measure") if name in table]
    return table[(table["step"] == table.groupby(run, dropna=False)["step"].transform("max")).fillna(False)]


def gain(table: DataFrame) -> DataFrame:
    """What each run learned beyond the best guess without context, in nats per predicted token.

    Columns `arm, seed, value`: the loss of that guess, the floor, minus the model's loss on the same
    predictions, at the last step. A model that only knows how often each token occurs, and what is shown in its
    place, has 0; a worse one is negative.
    """
    rows = table[(table["measure"] == "validation") & (table["metric"] == "loss")]
    if "group" in rows:
        rows = rows[rows["group"].isna()]
    rows = last_step(rows)
    return rows.assign(value=rows["floor"] - rows["value"])[["arm", "seed", "value"]].reset_index(drop=True)
