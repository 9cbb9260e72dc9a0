"""Tests over seeds and their power: one number per seed goes in, a probability or an interval comes out.

Each number is a difference that is already paired within its seed, so every test is of one sample. All
probabilities are two-sided unless a function says otherwise. docs/claims.md ("The verdicts") has the rules for
seeds that all show the same number, and for the error of the text that all seeds share (`shared_error`).

*Layers that seeds choose for each other.* A seed's effect at the layer where the other seeds are lowest has
the right mean (0 if curves are flat), but not the spread that a t test assumes. The other seeds are nearly
all seeds. So all seeds choose the layer where the common mean is lowest, and are then tested on nearly the
numbers by which it was chosen. Seeds choose different layers only if two layers are nearly equally low. Then
many seeds change layers at once, and their numbers jump. On flat curves of 20 seeds the t test at 2.5% a side
finds a form in 6 to 10 of 100 experiments and its opposite in 6 to 13. That is more than with fewer seeds, so
a stricter level does not mend it. Therefore an effect that is the largest over layers must also hold at one
of them at the level divided by their number (Bonferroni; union-intersection), and to be refuted it must be
refuted at each (intersection-union, Berger 1982). For the smallest over layers it is the other way round.
Each side then errs at most at its level, however the layers depend on each other. Choosing on one half of the
seeds and testing on the other would work too, but leaves half of the seeds for each test.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from ablations.errors import ResultsError
from reports.statistics.curve_shapes import ratio_interval

Direction = Literal["higher", "either"]
"""Whether a claim says that one side is more (`higher`), or only that both differ (`either`)."""


class SeedEffects(NamedTuple):
    """Effect of a claim in the form that the tests over seeds take: one number per seed."""

    seeds: tuple[int, ...]
    values: NDArray[np.float64]
    """Values, one per seed; positive if they agree with the claim."""
    smallest: float | None = None
    """Smallest effect that matters; None stands for that of the contrast or the claim."""
    unit: str = ""
    """Unit of the values."""
    direction: Direction = "higher"
    left_out: tuple[str, ...] = ()
    """Notes on seeds that are not complete, each with the reason."""
    copied_seeds: tuple[int, ...] = ()
    """Seeds that do not count, because their runs are copies of those of another seed."""
    bounded: bool = False
    """Whether 0 is a bound that the claim set, and not the absence of a difference. An effect close to a
    bound is undecided, and never too small to matter."""
    condition: bool = False
    """Whether this is a condition for the claim. A condition can keep a claim open, and never refutes it."""
    in_each_seed: bool = False
    """Whether a condition must hold in every seed, instead of on their mean."""
    chosen: tuple[int, ...] | None = None
    """Layer at which each seed was judged, chosen on the other seeds; None without a choice."""
    at_layers_LMS: NDArray[np.float64] | None = None
    """Values of each seed at every layer that could have been chosen; None without a choice. The true effect
    is the largest over L of the smallest over M."""
    text_error: float = 0.0
    """Standard error of the mean due to the text that all seeds share; 0 if it is not known."""
    text_error_LM: NDArray[np.float64] | None = None
    """Standard error due to the text at each layer of `at_layers_LMS`."""
    text_blocks: int = 0
    """Number of text blocks from which the error is computed."""
    ratio_of: tuple[NDArray[np.float64], NDArray[np.float64], float] | None = None
    """Numerators, denominators and bound, if the mean of `values` is a ratio of means minus a bound; else None."""
    page: float | None = None
    """Probability in Page's test in the direction of the claim; None if the effect is no trend."""
    places: int = 0
    """Number of ordered places that Page's test compares; 0 if the effect is no trend."""
    shown_numbers: Mapping[str, float] = {}
    """Numbers that are shown beside the effect, such as shares and places."""
    groups: tuple[str, ...] = ()
    """Tasks or other groups over which the effect is averaged."""


FEWEST_FOR_SIGN_FLIPS = 6
"""Smallest number of seeds with which the sign-flip test can reach 0.05; its smallest probability is 2 / 2^n."""

MOST_FLIPPED = 16
"""Largest number of seeds for which all 2^n sign flips are counted; for more seeds, 2^16 flips are drawn."""

Vector = NDArray[np.float64]


class Interval(NamedTuple):
    """Interval of a mean over seeds."""

    mean: float
    low: float
    high: float


def require_confidence(confidence: float) -> None:
    """Raise a ResultsError if a confidence level is not between 0 and 1."""
    if not 0 < confidence < 1:
        raise ResultsError(f"confidence must be between 0 and 1, as in 0.95, but is {confidence}; correct it.")


def t_interval(
    effects: ArrayLike, *, confidence: float, text_error: float = 0.0, text_blocks: int = 0
) -> Interval:
    """Return Student's t interval of the mean, with the error of the text that all seeds share. It is never
    narrower than the interval of the seeds alone.

    Both ends are NaN below two seeds; everything is NaN if a value is not finite. `scipy.stats.ttest_1samp`
    gives the same interval in 27 times the time, and warns of seeds that agree.

    Raises:
        ResultsError: `confidence` is not between 0 and 1.
    """
    require_confidence(confidence)
    values = np.asarray(effects, float)
    if not values.size or not np.isfinite(values).all():
        return Interval(np.nan, np.nan, np.nan)
    mean = float(values.mean())
    if values.size < 2:
        return Interval(mean, np.nan, np.nan)
    errors = _errors(values, np.asarray(text_error), text_blocks)
    margin = max(float(special.stdtrit(freedom, (1 + confidence) / 2) * error) for error, freedom in errors)
    return Interval(mean, mean - margin, mean + margin)


def shared_error(left_out_GS: ArrayLike, *, blocks: int | None = None) -> float:
    """Return the standard error of the mean over seeds due to the text that they share; 0 if the seeds'
    errors have nothing in common.

    It is the part of the delete-a-group jackknife that two seeds have in common on average: the square root
    of (G - 1) / G times the sum over blocks of the mean product of two seeds' deviations. For G blocks of
    equal size its square has the variance of the common error as its expectation, except for the bound at 0.
    Some blocks may be missing: with K of G blocks, (G - 1)^2 / (G (K - 1)) replaces (G - 1) / G, which has the
    same expectation if other blocks could have been missing as well.

    Args:
        left_out_GS: each seed's effect without each block of the text, for two seeds and two blocks or more.
        blocks: number of blocks of the text, if some of them are missing.
    """
    values_GS = np.asarray(left_out_GS, float)
    kept_blocks, seeds = values_GS.shape
    of_text = blocks or kept_blocks
    deviation_GS = values_GS - values_GS.mean(0)
    products = np.square(deviation_GS.sum(1)).sum() - np.square(deviation_GS).sum()
    factor = (of_text - 1) / of_text * ((of_text - 1) / (kept_blocks - 1))  # exactly (G - 1) / G for all blocks
    return float(np.sqrt(max(0.0, factor * products / (seeds * (seeds - 1)))))


def _errors(values_S: Vector, text_error: Vector, text_blocks: int) -> list[tuple[Vector, Vector]]:
    """Return the standard error of the mean along the last axis with its degrees of freedom: that of the
    seeds alone, and that with the error of the text included (Welch 1947)."""
    size = values_S.shape[-1]
    of_seeds = values_S.var(axis=-1, ddof=1) / size
    of_text = np.square(text_error)
    spread = np.square(of_seeds) / (size - 1) + np.square(of_text) / max(1, text_blocks - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(spread > 0, np.square(of_seeds + of_text) / spread, size - 1)
    return [(np.sqrt(of_seeds), np.asarray(size - 1)), (np.sqrt(of_seeds + of_text), freedom)]


def one_sided(
    effects: ArrayLike, *, against: float = 0.0, text_error: ArrayLike = 0.0, text_blocks: int = 0
) -> Vector:
    """Return the probability of the one-sided t test along the last axis: how likely is a mean this high or
    higher if the true mean is `against`? The test is made with and without the error of the text, and the
    larger probability is returned.

    If all seeds show the same number, the sign-flip test replaces the t test without the error of the text. Its
    probability is 2^-n if the number is above `against`, else 1.
    """
    values = np.asarray(effects, float)
    size = values.shape[-1]
    errors = _errors(values, np.asarray(text_error, float), text_blocks)
    with np.errstate(divide="ignore", invalid="ignore"):
        alone, both = (special.stdtr(freedom, (against - values.mean(-1)) / error) for error, freedom in errors)
    by_signs = np.where(values.min(-1) > against, 0.5**size, 1.0)
    return np.fmax(np.where(constant(values), by_signs, alone), both)


def constant(effects: ArrayLike) -> NDArray[np.bool_]:
    """Return whether the spread along the last axis is no more than rounding."""
    values = np.asarray(effects, float)
    largest = np.maximum(1.0, np.abs(values).max(-1))
    return np.asarray(np.ptp(values, axis=-1) <= 1e-12 * largest)  # float64: a few roundings of numbers near 1


def below_bound(effects: ArrayLike) -> NDArray[np.bool_]:
    """Return which values lie below 0 by more than rounding."""
    values = np.asarray(effects, float)
    with np.errstate(invalid="ignore"):
        rounding = 1e-12 * np.maximum(1.0, np.abs(values))  # float64: a few roundings near 1
    return np.asarray((values < -rounding) | np.isneginf(values))


def sign_flips(effects: ArrayLike, *, rng: np.random.Generator) -> float:
    """Return the share of sign patterns that put the mean at least as far from 0 as it is.

    Up to `MOST_FLIPPED` seeds all patterns are counted. For more seeds 2^16 patterns are drawn from `rng`,
    and the observed pattern counts as one more. The test assumes that the effects are symmetric about 0, not
    that they are normal.

    `scipy.stats.permutation_test` misses ties whose sums differ by rounding: in 400 draws of 6 to 10 score
    differences with three decimals, it gave another probability in 13, by up to 0.03.
    """
    values = np.asarray(effects, float)
    size = values.size
    if size <= MOST_FLIPPED:
        bits = (np.arange(2**size)[:, None] >> np.arange(size)) & 1
        means = (1 - 2 * bits) @ values
        return float(
            np.mean(np.abs(means) >= abs(values.sum()) * (1 - 1e-12))
        )  # float64: sums in another order differ
    signs = rng.choice([-1.0, 1.0], size=(2**MOST_FLIPPED, size))
    as_far = np.abs(signs @ values) >= abs(values.sum()) * (1 - 1e-12)
    return float((as_far.sum() + 1) / (as_far.size + 1))


def page_trend(values_SK: ArrayLike) -> float:
    """Return the probability of Page's one-sided test: of a rise this steady over K ordered settings if the
    order means nothing.

    Rows are seeds; the test reads only the ranks within each row. It is exact for small tables, as scipy
    decides.
    """
    return float(stats.page_trend_test(np.asarray(values_SK, float)).pvalue)


def fewest_for_page(places: int, *, level: float) -> int:
    """Return the fewest seeds with which Page's test can reach a level. If all seeds rise at every step, its
    probability is the smallest: 1 / (places!)^n."""
    return math.ceil(-math.log(level) / math.lgamma(places + 1))


def above(effects: SeedEffects, *, against: float = 0.0) -> float:
    """Return the probability of seeds at least this high if the true effect is `against` or less."""
    blocks = effects.text_blocks
    alone = float(one_sided(effects.values, against=against, text_error=effects.text_error, text_blocks=blocks))
    if effects.at_layers_LMS is None:
        return alone
    at_LM = one_sided(
        effects.at_layers_LMS, against=against, text_error=_text_error_LM(effects), text_blocks=blocks
    )
    return max(alone, min(1.0, len(at_LM) * float(at_LM.max(1).min())))


def below(effects: SeedEffects, *, against: float = 0.0) -> float:
    """Return the probability of seeds at least this low if the true effect is `against` or more."""
    return above(_mirrored(effects), against=-against)


def interval(effects: SeedEffects, *, confidence: float) -> Interval:
    """Return the mean over seeds and its interval: every effect that neither one-sided test rejects at half
    of 1 - confidence.

    It is the t interval. If layers were chosen, it is widened until it holds for all of them. For a ratio it
    is widened to Fieller's interval, as the t interval takes the mean of the denominators for known; both ends
    are NaN if this mean may be 0. If all seeds show the same number, it has no width and says nothing. Ends are
    NaN as in `t_interval`.
    """
    alone = t_interval(
        effects.values, confidence=confidence, text_error=effects.text_error, text_blocks=effects.text_blocks
    )
    if np.isnan(alone.low):
        return alone
    _, low, high = alone
    if effects.at_layers_LMS is not None:
        low = min(low, _lowest(effects, confidence=confidence))
        high = max(high, -_lowest(_mirrored(effects), confidence=confidence))
    if effects.ratio_of is not None:
        above_S, below_S, bound = effects.ratio_of
        _, ratio_low, ratio_high = ratio_interval(above_S, below_S, confidence=confidence)
        low, high = np.minimum(low, ratio_low - bound), np.maximum(high, ratio_high - bound)  # which keep NaN
    return Interval(alone.mean, low, high)


def linear_form(effects: SeedEffects) -> Vector:
    """Return one number per seed whose mean is the effect, and whose spread is that of the effect. They are the
    values, except for a ratio of means: then its linear form (delta method), because the values suit the test
    against the bound alone."""
    if effects.ratio_of is None:
        return effects.values
    above_S, below_S, bound = effects.ratio_of
    with np.errstate(divide="ignore", invalid="ignore"):  # NaN, if the mean of the denominators is 0
        ratio = above_S.mean() / below_S.mean()
        return np.asarray((above_S - ratio * below_S) / below_S.mean() + ratio - bound)


def shared_level(effects: SeedEffects, level: float) -> float:
    """Return the level of a test at one of the layers to choose from; the whole level without a choice."""
    return level if effects.at_layers_LMS is None else level / max(effects.at_layers_LMS.shape[:2])


def _lowest(effects: SeedEffects, *, confidence: float) -> float:
    """Return the lower bound of the largest over L of the smallest over M."""
    assert effects.at_layers_LMS is not None
    part = 1 - (1 - confidence) / len(effects.at_layers_LMS)
    return max(
        min(
            t_interval(values, confidence=part, text_error=error, text_blocks=effects.text_blocks).low
            for values, error in zip(row, errors, strict=True)
        )
        for row, errors in zip(effects.at_layers_LMS, _text_error_LM(effects), strict=True)
    )


def _text_error_LM(effects: SeedEffects) -> Vector:
    assert effects.at_layers_LMS is not None
    if effects.text_error_LM is None:
        return np.zeros(effects.at_layers_LMS.shape[:2])
    return effects.text_error_LM


def _mirrored(effects: SeedEffects) -> SeedEffects:
    """Return minus the effect. L and M change places, as each number is one term of L minus one term of M."""
    at, error = effects.at_layers_LMS, effects.text_error_LM
    return effects._replace(
        values=-effects.values,
        at_layers_LMS=None if at is None else -at.swapaxes(0, 1),
        text_error_LM=None if error is None else error.T,
    )


USUAL_POWER = 0.8
"""Usual power: the probability with which a test is to find an effect of the given size."""

MOST_SEEDS = 1000
"""Largest number of seeds that anybody trains; nothing is said about more."""


def power(effect: float, *, sd: float, seeds: int, level: float) -> float:
    """Return the probability that a two-sided t test at `level` finds an effect of this size, with the right sign.

    It comes from the noncentral t distribution. `sd` is the standard deviation of the effect between seeds.
    """
    return _power(abs(effect) / sd * np.sqrt(seeds), seeds, level)


def spread_interval(sd: float, *, seeds: int) -> tuple[float, float]:
    """Return the 80% interval of the true standard deviation, from `sd` of this many seeds with normal values."""
    low, high = sd * np.sqrt((seeds - 1) / stats.chi2.ppf((0.9, 0.1), seeds - 1))
    return float(low), float(high)


def smallest_seen(*, sd: float, seeds: int, level: float, text_error: float = 0.0) -> float:
    """Return the smallest effect that this many seeds find with a power of `USUAL_POWER`.

    Args:
        text_error: standard error due to the text that all seeds share, which more seeds do not reduce. It is
            added as a variance; the degrees of freedom stay those of the seeds.
    """
    return _noncentrality(seeds, level) * float(np.hypot(sd / np.sqrt(seeds), text_error))


def equivalence_power(margin: float, *, sd: float, seeds: int, level: float, text_error: float = 0.0) -> float:
    """Return the probability with which TOST at `level` finds that an effect of exactly 0 lies within
    `margin`.

    It is the mean over the distribution of the observed standard deviation (400 quantiles).
    """
    error = np.hypot(sd / np.sqrt(seeds), text_error)
    room = margin - _critical(level, seeds) * (error * _observed_spreads(seeds))
    return float(np.clip(2 * special.ndtr(room / error) - 1, 0, None).mean())


def seeds_to_decide(
    smallest_effect: float,
    *,
    sd: float,
    level: float | None,
    absent_level: float | None,
    text_error: float = 0.0,
) -> int | None:
    """Return the fewest seeds that find an effect of `smallest_effect`, and the absence of an effect, with
    a power of `USUAL_POWER`. None above `MOST_SEEDS`.

    The true spread between seeds is assumed to be the observed one, which is uncertain itself with few seeds.

    Args:
        level: level at which the effect is to be found; None if only its absence is to be found.
        absent_level: level at which the absence is to be found; None if it is not to be found, as for an
            effect against a bound.
        text_error: as for `smallest_seen`.
    """

    def decides(seeds: int) -> bool:
        if level is not None:
            seen = smallest_seen(sd=sd, seeds=seeds, level=level, text_error=text_error)
            if seen > smallest_effect:
                return False
        if absent_level is None:
            return True
        chance = equivalence_power(smallest_effect, sd=sd, seeds=seeds, level=absent_level, text_error=text_error)
        return chance >= USUAL_POWER

    sizes = range(3, MOST_SEEDS + 1)  # evidence takes three seeds
    place = bisect_left(sizes, True, key=decides)
    return sizes[place] if place < len(sizes) else None


@cache
def _noncentrality(seeds: int, level: float) -> float:
    """Return the effect, in standard errors, that is found with a power of `USUAL_POWER`."""
    critical = _critical(level / 2, seeds)
    return float(
        optimize.brentq(lambda centre: _power(centre, seeds, level) - USUAL_POWER, 0, max(1e4, 3 * critical))
    )


def _power(noncentrality: float, seeds: int, level: float) -> float:
    critical = _critical(level / 2, seeds)
    if noncentrality > 30:  # scipy's noncentral t is imprecise there, so average over the observed spread
        return float(special.ndtr(noncentrality - critical * _observed_spreads(seeds)).mean())
    return float(stats.nct.sf(critical, seeds - 1, noncentrality))


@cache
def _critical(level: float, seeds: int) -> float:
    """Return the t value that is exceeded with probability `level` if there is no effect."""
    return float(stats.t.isf(level, seeds - 1))


@cache
def _observed_spreads(seeds: int) -> Vector:
    """Return 400 quantiles of the standard deviation that so many seeds show, if the true one is 1."""
    quantiles = (np.arange(400) + 0.5) / 400
    return np.asarray(np.sqrt(stats.chi2.ppf(quantiles, seeds - 1) / (seeds - 1)))
