"""Means, intervals and pseudo-values over seeds; the seed is the unit of evidence.

Pseudo-values are one number per seed for a statistic that is not a mean over seeds, so that the tests over
seeds apply to it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas import DataFrame
from scipy import stats

from ablations.errors import ResultsError

NORMAL_95 = 1.96
"""Number of standard errors on either side of a value within which it would be found 95 times in 100."""

ROUNDING = 1e-9
"""Share of a mean below which a difference, or the width of an interval, is only rounding."""


def unanimous_error(answers: int) -> float:
    """Return the standard error of a share if all answers are right, or all are wrong.

    It is the error with two more answers of either kind (Agresti & Coull 1998,
    https://doi.org/10.1080/00031305.1998.10480550), because four right answers of four do not make the share
    certain.
    """
    wrong = 2 / (answers + 4)
    return float((wrong * (1 - wrong) / (answers + 4)) ** 0.5)


def mean_interval(table: DataFrame, *, by: Sequence[str], confidence: float = 0.95) -> DataFrame:
    """Return the mean over seeds of `value` with Student's t interval, one row for each combination of `by`.

    Columns: those of `by`, then `mean, low, high, seeds`. NaN values are left out, and `seeds` counts the
    others. Below two seeds `low` and `high` are NaN, because one run says nothing about the spread of others.
    Combinations keep their order of appearance.

    Raises:
        ResultsError: a seed has two values for one combination. Counting both would present layers, steps or
            examples of one run as independent runs.
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
    with np.errstate(invalid="ignore"):  # an infinite perplexity has an infinite mean, and a spread of NaN
        groups = table.groupby(by, sort=False, dropna=False)["value"]
        summary = groups.agg(mean="mean", seeds="count", error="sem").reset_index()
        degrees = summary["seeds"].to_numpy() - 1
        margin = stats.t.ppf((1 + confidence) / 2, degrees) * summary["error"].to_numpy()
        summary["low"], summary["high"] = summary["mean"] - margin, summary["mean"] + margin
    return summary[[*by, "mean", "low", "high", "seeds"]]


NO_MEAN = {"mean": None, "low": None, "high": None, "seeds": 0}


def means_of_arms(table: DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the `mean_interval` of each arm and `name` as plain data, with the keys of `NO_MEAN`.
    Combinations without rows are not there."""
    rows = mean_interval(table, by=["arm", "name"]).to_dict("records")
    return {(row["arm"], row["name"]): {key: row[key] for key in NO_MEAN} for row in rows}


def bands(rows: DataFrame) -> DataFrame:
    """Return mean and band of every line at every `x`, one row each: columns `line, x, mean, low, high,
    seeds, band`.

    `band` says what the band is. `seeds` is Student's 95% t interval over seeds. `text`, for a line with a
    single seed, is that run's number plus and minus 1.96 of its `standard_error`: how far the number would
    move on other text of the same kind, which says nothing about other seeds. It is empty if there is no
    band.

    Args:
        rows: rows with the columns `line`, `x`, `seed`, `value` and `standard_error`. If a column
            `overlapping` is true, as for pairs of runs that share a run, the values of `seed` are not
            independent, and the line has no interval.

    Raises:
        ResultsError: a seed has two values for one point.
    """
    summary = mean_interval(rows, by=["line", "x"])
    valued = rows[rows["value"].notna()]
    single = summary["line"].map(valued.groupby("line")["seed"].nunique()).fillna(0) <= 1
    # With one seed there is one value a point, so its error is that of the mean.
    errors = valued.groupby(["line", "x"])["standard_error"].mean()
    error = errors.reindex(pd.MultiIndex.from_frame(summary[["line", "x"]])).to_numpy(float)
    of_text = (single & np.isfinite(error) & (summary["seeds"] == 1)).to_numpy(bool)
    margin = NORMAL_95 * error
    mean = summary["mean"].to_numpy(float)
    if "overlapping" in rows:
        overlapping = summary["line"].map(rows.groupby("line")["overlapping"].any()).to_numpy(bool)
        summary.loc[overlapping, ["low", "high"]] = np.nan
    summary["low"] = np.where(of_text, mean - margin, summary["low"])
    summary["high"] = np.where(of_text, mean + margin, summary["high"])
    summary["band"] = np.where(of_text, "text", np.where(summary["low"].notna(), "seeds", ""))
    return summary


def expected_best(losses: Sequence[float | None]) -> list[float]:
    """Return the expected lowest loss of 1, 2, ... trials, drawn from those that were done.

    The last number is the lowest loss of all. A trial that diverged, None, counts as the worst loss that is
    known. Draws are without replacement, which makes the estimate unbiased (Tang et al. 2020,
    https://arxiv.org/abs/2004.13705). Dodge et al. 2019, https://arxiv.org/abs/1909.03004, equation 3, draw
    with replacement.

    Raises:
        ValueError: no loss is known.
    """
    worst = max(loss for loss in losses if loss is not None)
    ordered = sorted(worst if loss is None else loss for loss in losses)
    size = len(ordered)
    return [
        sum(loss * math.comb(size - place, drawn - 1) for place, loss in enumerate(ordered, start=1))
        / math.comb(size, drawn)
        for drawn in range(1, size + 1)
    ]


def last_step(table: DataFrame) -> DataFrame:
    """Return the rows of each run's last measured step, found for each measure and each pair of runs
    separately.

    A run without any steps keeps all its rows, as a model from elsewhere.
    """
    if "step" not in table or table["step"].isna().all():
        return table
    run = ("experiment", "run_id", "arm", "seed", "measure", "other_run_id")
    last = table.groupby([name for name in run if name in table], dropna=False)["step"].transform("max")
    return table[(table["step"] == last).fillna(False).astype(bool) | last.isna()]


def gain(table: DataFrame) -> DataFrame:
    """Return the gain of each run over the best guess without context, in nats per predicted token.

    Columns `arm, seed, value`. The value is the loss of that guess (the chance level) minus the model's
    validation loss on the same predictions, at the last step. A model that only knows how often each token
    occurs, and what is shown in its place, has 0; a worse model is negative.
    """
    rows = table[(table["measure"] == "validation") & (table["metric"] == "loss")]
    if "group" in rows:
        rows = rows[rows["group"].isna()]
    rows = last_step(rows)
    return rows.assign(value=rows["floor"] - rows["value"])[["arm", "seed", "value"]].reset_index(drop=True)


Array = NDArray[np.float64]


def pseudo_values(statistic: Callable[[Array], float], values_SK: Array) -> Array:
    """Return for each seed n times the statistic of all n seeds, minus n - 1 times the statistic without that
    seed.

    Their mean is the statistic without its bias of order 1/n, and their spread is that of the statistic. For
    a mean they are the values themselves. Source: Tukey 1958. Needs two seeds.
    """
    size = len(values_SK)
    whole = statistic(values_SK)
    without = np.array([statistic(np.delete(values_SK, seed, axis=0)) for seed in range(size)])
    return size * whole - (size - 1) * without


def distances_between_seeds(distance_SS: Array) -> Array:
    """Return pseudo-values of the mean distance between seeds, one for each seed; the diagonal is not read.

    A distance belongs to two seeds, so many pairs are less evidence than their number says. With D the mean
    distance of a seed to the others and M the mean over pairs, its pseudo-value is (2 (n - 1) D - n M) / (n -
    2), from the jackknife over seeds. Needs three seeds.
    """
    size = len(distance_SS)
    off = ~np.eye(size, dtype=bool)
    to_others_S = np.where(off, distance_SS, 0.0).sum(1) / (size - 1)
    return (2 * (size - 1) * to_others_S - size * to_others_S.mean()) / (size - 2)


class Spread(NamedTuple):
    """Standard deviation between runs, with its interval."""

    sd: float
    degrees: int
    """Degrees of freedom."""
    low: float
    high: float


class Share(NamedTuple):
    """Share of a variance, with its interval; fields are None if there is none."""

    share: float | None
    low: float | None
    high: float | None


def pooled_spread(groups: Sequence[Sequence[float]]) -> Spread | None:
    """Return the standard deviation inside groups of runs, pooled over them; None if no group has two runs.

    The 95% interval assumes normal numbers, and comes from the chi-square distribution. Groups of one run do
    not count.
    """
    counted = [np.asarray(values, float) for values in groups if len(values) > 1]
    degrees = sum(len(values) - 1 for values in counted)
    if not degrees:
        return None
    variance = sum(float(np.square(values - values.mean()).sum()) for values in counted) / degrees
    low, high = variance * degrees / stats.chi2.ppf((0.975, 0.025), degrees)
    return Spread(math.sqrt(variance), degrees, math.sqrt(low), math.sqrt(high))


def share_of_variance(part: Spread, whole: Spread) -> Share | None:
    """Return one variance divided by another, with the 95% interval of normal numbers from the F
    distribution. None if the other variance is 0.

    The interval assumes independent runs. Runs of one seed share what follows from the seed in both arms.
    This makes the two variances vary together, so the interval is rather too wide than too narrow.
    """
    if whole.sd == 0:
        return None
    share = (part.sd / whole.sd) ** 2
    low, high = stats.f.ppf((0.975, 0.025), part.degrees, whole.degrees)
    return Share(share, float(share / low), float(share / high))
