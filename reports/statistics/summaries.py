"""Means and intervals over seeds, or over seeds and test examples together, and pseudo-values of seeds.

The seed is the unit of evidence. Pseudo-values are one number per seed for a statistic that is not a mean
over seeds, so that the tests over seeds apply to it.

The t interval over seeds says how a mean would move with other seeds. Other examples of a test set would move
it too. All seeds answer the same examples, so the spread between seeds does not show this. The
multi-bootstrap (Sellam et al. 2022, https://arxiv.org/abs/2106.16163, section 4) draws seeds and examples at
the same time: an example that is drawn twice counts twice in every seed.

The source has 25 seeds, and here there are three or five, so two things differ. First, of n seeds and of N
examples, one fewer is drawn than there are, because drawing all makes the variance too small by 1/n. Second,
the ends of the interval are moved away from the mean by the ratio of Student's quantile to the normal one.
Its degrees of freedom are those of Welch and Satterthwaite, from the parts of seeds and of examples. Without
both changes, intervals from 3 seeds that differ cover the truth in 7 of 10 experiments; with both, in 93 of
100. With 25 seeds both changes together make the interval wider by 8% at most.

If neither seeds nor examples differ and each answer is chance, the draws count this noise three times (Owen
2007, https://doi.org/10.1214/07-AOAS122). The interval is then too wide, and never too narrow.

Letters: S seeds, N examples, U units that are drawn (examples, or groups of them), B draws.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pandas import DataFrame
from scipy import special, stats

from ablations.errors import ResultsError
from ablations.wording import listed
from reports.statistics.seed_tests import Interval, require_confidence

NORMAL_95 = 1.96
"""Number of standard errors on either side of a value within which it would be found 95 times in 100."""

ROUNDING = 1e-9
"""Share of a mean below which a difference, or the width of an interval, is only rounding."""


def mean_interval(table: DataFrame, *, by: Sequence[str], confidence: float = 0.95) -> DataFrame:
    """Return the mean over seeds of `value` with Student's t interval, one row for each combination of `by`.

    Columns: those of `by`, then `mean, low, high, seeds`. NaN values are left out, and `seeds` counts the
    others. Below two seeds `low` and `high` are NaN, because one run says nothing about the spread of others.
    Combinations keep their order of appearance.

    Args:
        confidence: confidence level, between 0 and 1.

    Raises:
        ResultsError: the table lacks a column, `confidence` is not between 0 and 1, or a seed has two values for
            one combination. Counting both would present layers, steps or examples of one run as independent runs.
    """
    by = [by] if isinstance(by, str) else list(by)
    if lacking := [name for name in (*by, "seed", "value") if name not in table]:
        raise ResultsError(
            f"a mean over seeds needs columns that the table lacks: {listed(lacking, 'and')}; give a table that "
            "has them."
        )
    require_confidence(confidence)
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


def differences(table: DataFrame, base_by_arm: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return, by arm, its value minus that of its base within each seed: the mean over the seeds that both have,
    with Student's t interval, as plain data with the keys of `NO_MEAN`. Arms without such a seed are missing.

    The interval is not corrected for the number of differences.

    Args:
        table: rows with the columns `arm`, `seed` and `value`, one for each run. If there is a column `sample`,
            only runs with the same text in it are subtracted.
        base_by_arm: the arm that is subtracted, by arm.
    """
    values = table.pivot(index="seed", columns="arm", values="value")
    measured_arms = set(values)
    compared = [(arm, base) for arm, base in base_by_arm.items() if {arm, base} <= measured_arms]
    if not compared:
        return {}
    arms, bases = (list(names) for names in zip(*compared, strict=True))
    paired = values[arms] - values[bases].to_numpy()
    if "sample" in table:
        samples = table.pivot(index="seed", columns="arm", values="sample").fillna(
            ""
        )  # of seeds that an arm lacks
        paired = paired.where(samples[arms].to_numpy() == samples[bases].to_numpy())
    long = paired.reset_index().melt("seed", var_name="arm", value_name="value")
    rows = mean_interval(long, by=["arm"]).to_dict("records")
    return {row["arm"]: {key: row[key] for key in NO_MEAN} for row in rows if row["seeds"]}


def seed_counts(cells: Iterable[Mapping[str, Any]]) -> list[int]:
    """Return the number of seeds of the cells of a row; the smallest and the largest if they differ."""
    counts = [cell["seeds"] for cell in cells]
    return sorted({min(counts), max(counts)})


NO_MEAN = {"mean": None, "low": None, "high": None, "seeds": 0}


def means_of_arms(table: DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the `mean_interval` of each arm and `name` that has rows, with the keys of `NO_MEAN`."""
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
    # With one seed there is one value per point, so its error is that of the mean.
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
    drawn = np.arange(1, size + 1)
    # Chance of each number of draws that a trial is the best of them: C(size - place, drawn - 1) / C(size, drawn).
    chance = drawn / size
    expected = np.zeros(size)
    for place, loss in enumerate(ordered, start=1):
        expected += chance * loss
        chance *= (size - place - drawn + 1) / max(1, size - place)
    return [float(loss) for loss in expected]


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


def validation_losses(table: DataFrame) -> DataFrame:
    """Return the rows of the validation loss over all predictions, at each run's last step."""
    rows = table[(table["measure"] == "validation") & (table["metric"] == "loss")]
    return last_step(rows[rows["group"].isna()] if "group" in rows else rows)


def gain(table: DataFrame) -> DataFrame:
    """Return the gain of each run over the best guess without context, in nats per predicted token.

    Columns `arm, seed, value`. The value is the loss of that guess (the chance level) minus the model's
    validation loss on the same predictions, at the last step. A model that only knows how often each token
    occurs, and what is shown in its place, has 0; a worse model is negative.
    """
    rows = validation_losses(table)
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
    degrees: float
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
    not count. Runs of one seed share draws in all groups, so more groups need not be more evidence. The degrees
    of freedom are those of groups that differ in nothing but a constant: for groups of equal size those of one
    group. Then the interval is right, and for groups that share less it is too wide.
    """
    counted = [np.asarray(values, float) for values in groups if len(values) > 1]
    if not counted:
        return None
    free = np.array([len(values) - 1 for values in counted])
    variance = sum(float(np.square(values - values.mean()).sum()) for values in counted) / float(free.sum())
    # Satterthwaite. Variances of n and of fewer of the same runs have the covariance 2 sd^4 / (n - 1).
    degrees = float(free.sum() ** 2 / np.minimum.outer(free, free).sum())
    low, high = variance * degrees / stats.chi2.ppf((0.975, 0.025), degrees)
    return Spread(math.sqrt(variance), degrees, math.sqrt(low), math.sqrt(high))


def share_of_variance(part: Spread, whole: Spread) -> Share | None:
    """Return one variance divided by another, with the 95% interval of normal numbers from the F
    distribution. None if the other variance is 0.

    The interval assumes independent runs. Runs of one seed share what follows from the seed in both arms.
    This makes the two variances vary together, so the interval is too wide.
    """
    if whole.sd == 0:
        return None
    share = (part.sd / whole.sd) ** 2
    low, high = stats.f.ppf((0.975, 0.025), part.degrees, whole.degrees)
    return Share(share, float(share / low), float(share / high))


BOOTSTRAP_DRAWS = 1000
"""Number of draws of the multi-bootstrap; 25 lie beyond each end of an interval at 95%."""

MOST_UNITS = 1000
"""Largest number of units that are drawn; more examples form as many random groups, with the same variance."""

FEWEST_BOOTSTRAP_SEEDS = 3
"""Smallest number of seeds with an interval; with two seeds only one would be drawn, which has no percentiles."""


def multi_bootstrap(
    values_SN: ArrayLike,
    others_SN: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    weight_N: ArrayLike | None = None,
) -> Interval:
    """Return the mean over seeds and examples, minus that of the other side, and its 95% interval over
    both together.

    If both sides have the same seeds, give their differences as `values_SN`, so that they are paired.
    Otherwise the seeds of each side are drawn separately, and the examples are the same for both. The ends
    are NaN for fewer than three seeds on a side or fewer than two examples. The interval has no width if
    nothing differs.

    Args:
        values_SN: a number for each seed and example.
        others_SN: numbers of other seeds on the same examples, which are subtracted.
        weight_N: number of items in each example, such as the words of a sentence; 1 unless given.
    """
    given = [np.asarray(side, float) for side in (values_SN, others_SN) if side is not None]
    weight = np.ones(given[0].shape[1]) if weight_N is None else np.asarray(weight_N, float)
    sides = [(sign, side_SN) for sign, side_SN in zip((1.0, -1.0), given, strict=False)]
    mean_N = sum((sign * side_SN.mean(0) for sign, side_SN in sides), np.zeros(len(weight)))
    mean = float(mean_N @ weight / weight.sum())
    if len(weight) < 2 or any(len(side_SN) < FEWEST_BOOTSTRAP_SEEDS for _, side_SN in sides):
        return Interval(mean, np.nan, np.nan)
    group_N = rng.permutation(len(weight)) % min(len(weight), MOST_UNITS)
    weight_U = np.bincount(group_N, weights=weight)
    counts_BU = _counts(len(weight_U), rng)
    total_B = counts_BU @ weight_U
    draw_B = np.zeros(BOOTSTRAP_DRAWS)
    parts = [
        (_variance_over_units(np.bincount(group_N, weights=weight * (mean_N - mean)), weight_U), len(weight_U))
    ]
    for sign, side_SN in sides:
        sum_SU = np.stack([np.bincount(group_N, weights=weight * value_N) for value_N in side_SN])
        of_seed_SB = sum_SU @ counts_BU.T / total_B
        share_BS = _counts(len(side_SN), rng) / (len(side_SN) - 1)
        draw_B += sign * np.einsum("bs,sb->b", share_BS, of_seed_SB)
        parts.append((float((side_SN @ weight / weight.sum()).var(ddof=1)) / len(side_SN), len(side_SN)))
    tail = (1 - 0.95) / 2
    low, high = np.quantile(draw_B, (tail, 1 - tail))
    stretch = _student_quantile(parts, 1 - tail) / special.ndtri(1 - tail)
    return Interval(mean, float(mean - stretch * (mean - low)), float(mean + stretch * (high - mean)))


def _counts(units: int, rng: np.random.Generator) -> Array:
    """Draw one unit fewer than there are, with replacement, and return how often each was drawn: shape BU."""
    drawn_BU = rng.integers(0, units, (BOOTSTRAP_DRAWS, units - 1)) + units * np.arange(BOOTSTRAP_DRAWS)[:, None]
    return (
        np.bincount(drawn_BU.ravel(), minlength=BOOTSTRAP_DRAWS * units)
        .reshape(BOOTSTRAP_DRAWS, units)
        .astype(float)
    )


def _variance_over_units(deviation_U: NDArray[Any], weight_U: NDArray[Any]) -> float:
    """Return the variance of a weighted mean over examples, to first order."""
    units = len(weight_U)
    return float(np.square(deviation_U).sum() / weight_U.sum() ** 2 * units / (units - 1))


def _student_quantile(parts: list[tuple[float, int]], probability: float) -> float:
    """Return Student's quantile for a variance summed from parts, each with its number of units (Welch 1947)."""
    spread = sum(variance**2 / (units - 1) for variance, units in parts)
    freedom = sum(variance for variance, _ in parts) ** 2 / spread if spread > 0 else np.inf
    return float(special.stdtrit(freedom, probability) if np.isfinite(freedom) else special.ndtri(probability))


def sign_test(better: int, worse: int) -> float:
    """Return the exact two-sided probability of a split at least this uneven if better and worse are equally
    likely; 1 if no example differs.

    With right and wrong answers it is the exact test of McNemar 1947. It is about the two models that
    answered: the examples of one seed say nothing about other seeds.
    """
    return float(stats.binomtest(better, better + worse).pvalue) if better + worse else 1.0
