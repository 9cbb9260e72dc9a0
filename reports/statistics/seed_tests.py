"""Tests over seeds and their power. One number a seed in, a probability or an interval out; the seed is the unit
of evidence.

Each number is a difference that is paired within its seed already, so every test is of one sample. All
probabilities are two-sided unless a function says otherwise.

`SeedEffects` is an effect as these tests take it. `above` and `below` give probabilities of one side, and
`interval` the interval that agrees with them. The t test of the seeds decides, with two additions.

*Seeds that all show the same number* have no spread, and so no t test. There the sign-flip test does: that n seeds
lie on one side of a number which is their median happens once in 2^n. From six seeds on that is enough for a claim
that is judged alone.

*Layers that seeds choose for each other.* A seed's effect at the layer where the others are lowest has the right
mean (0 where curves are flat), but not the spread that a t test believes in: the others are nearly all the seeds,
so all choose as their common mean says, and are then tested by the numbers that they chose by; only where two
layers are nearly as low do seeds change sides, all at once and far. On flat curves of 20 seeds the t test at 2.5%
a side finds a form in 6 to 10 of 100 experiments and its opposite in 6 to 13, more than with fewer seeds, so no
stricter level mends it. Therefore an effect that is the largest over layers must also hold at one of them at the
level divided by their number (Bonferroni; union-intersection), and to be refuted must be refuted at each
(intersection-union, Berger 1982); for the smallest over layers it is the other way round. Either side then errs
at most at its level, whatever the layers have to do with each other. Halves of the seeds that choose for each
other would do too, but leave half of the seeds for each test.

*The text that all seeds share.* Seeds of an experiment are measured on one text, so its error is the same in all
of them, and their spread does not show it. Its variance, from the jackknife of the contrast over blocks of
sentences, is added to that of the seeds' mean, with the degrees of freedom of Welch and Satterthwaite. What the
jackknife says of each seed alone is in the spread between seeds already, so only what the errors of two seeds have
in common is added (`shared_error`).
"""

from collections.abc import Mapping
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

Direction = Literal["higher", "either"]
"""Whether a claim says that one side is more, or only that both differ."""


class SeedEffects(NamedTuple):
    """Effect of a claim as the tests over seeds take it: one number a seed."""

    seeds: tuple[int, ...]
    values: NDArray[np.float64]
    """Numbers, one a seed; positive as the claim says."""
    smallest: float | None = None
    """The smallest that matters, where it is not the claim's or the contrast's."""
    unit: str = ""
    """Unit of the values."""
    direction: Direction = "higher"
    left_out: tuple[str, ...] = ()
    """Seeds that were not whole, each with the reason."""
    bounded: bool = False
    """Whether 0 is a bound that the claim set, and not the absence of a difference: what lies close to a bound is
    undecided, and never too small to matter."""
    condition: bool = False
    """Whether the claim means something only where this holds: it can keep a claim open, and never refutes it."""
    in_each_seed: bool = False
    """Whether a condition must hold in every seed, and not on their mean."""
    chosen: tuple[int, ...] | None = None
    """The layer that each seed was judged at, chosen on the other seeds."""
    at_layers_LMS: NDArray[np.float64] | None = None
    """Numbers of each seed at any layer that could have been chosen, where layers were chosen. The effect in truth
    is the largest over L of the smallest over M."""
    text_error: float = 0.0
    """Standard error of the mean over the text that all seeds share; 0 where it is not known."""
    text_error_LM: NDArray[np.float64] | None = None
    """The same at the layers of `at_layers_LMS`."""
    text_blocks: int = 0
    """Blocks of the text that the error is from."""
    page: float | None = None
    """Probability in Page's test in the direction of the claim, for a trend."""
    beside: Mapping[str, float] = {}
    """Numbers that help to read it: shares, places."""
    groups: tuple[str, ...] = ()
    """Tasks or other groups that it is a mean over."""


FEWEST_FOR_SIGN_FLIPS = 6
"""Seeds below which the sign-flip test cannot reach 0.05: its smallest probability is 2 / 2^n."""

MOST_FLIPPED = 16
"""Seeds up to which all 2^n sign flips are counted; beyond, as many are drawn."""

Vector = NDArray[np.float64]


class Interval(NamedTuple):
    """Interval of a mean over seeds."""

    mean: float
    low: float
    high: float


def t_interval(
    effects: ArrayLike, *, confidence: float, text_error: float = 0.0, text_blocks: int = 0
) -> Interval:
    """Return Student's t interval of the mean, with the error of the text that all seeds share: NaN on either side
    below two seeds, all NaN where a value is not finite.

    `scipy.stats.ttest_1samp` gives the same interval in 27 times the time, and warns of seeds that agree.
    """
    values = np.asarray(effects, float)
    if not values.size or not np.isfinite(values).all():
        return Interval(np.nan, np.nan, np.nan)
    mean = float(values.mean())
    if values.size < 2:
        return Interval(mean, np.nan, np.nan)
    error, freedom = _whole_error(values, np.asarray(text_error), text_blocks)
    margin = float(special.stdtrit(freedom, (1 + confidence) / 2) * error)
    return Interval(mean, mean - margin, mean + margin)


def standard_error(effects: ArrayLike) -> float:
    """Return the standard error of the mean over seeds."""
    values = np.asarray(effects, float)
    return float(values.std(ddof=1) / np.sqrt(values.size))


def shared_error(left_out_GS: ArrayLike) -> float:
    """Return the standard error that the mean over seeds has from the text that they share; 0 where seeds' errors
    over it have nothing in common.

    Delete-a-group jackknife of each seed's effect, and of it what two seeds have in common on average: (G - 1) / G
    times the sum over blocks of the mean product of two seeds' deviations. For G blocks of equal size its square
    has the variance of the common error as its expectation, but for the bound at 0.

    Args:
        left_out_GS: each seed's effect without each block of the text. Two seeds or more.
    """
    values_GS = np.asarray(left_out_GS, float)
    blocks, seeds = values_GS.shape
    deviation_GS = values_GS - values_GS.mean(0)
    products = np.square(deviation_GS.sum(1)).sum() - np.square(deviation_GS).sum()
    return float(np.sqrt(max(0.0, (blocks - 1) / blocks * products / (seeds * (seeds - 1)))))


def _whole_error(values_S: Vector, text_error: Vector, text_blocks: int) -> tuple[Vector, Vector]:
    """Return the standard error of the mean along the last axis with that of the text, and its degrees of freedom
    (Welch 1947)."""
    size = values_S.shape[-1]
    of_seeds = values_S.var(axis=-1, ddof=1) / size
    of_text = np.square(text_error)
    spread = np.square(of_seeds) / (size - 1) + np.square(of_text) / max(1, text_blocks - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(spread > 0, np.square(of_seeds + of_text) / spread, size - 1)
    return np.sqrt(of_seeds + of_text), freedom


def one_sided(
    effects: ArrayLike, *, against: float = 0.0, text_error: ArrayLike = 0.0, text_blocks: int = 0
) -> Vector:
    """Return the one-sided t test along the last axis: the probability of a mean at least this high if the truth
    were `against`.

    Seeds that all show the same number, without an error of the text, have the sign-flip test instead, which for
    them is the sign test: 2^-n above `against`, else 1.
    """
    values = np.asarray(effects, float)
    size = values.shape[-1]
    error, freedom = _whole_error(values, np.asarray(text_error, float), text_blocks)
    alike = np.asarray(constant(values)) & (np.asarray(text_error) == 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_t = special.stdtr(freedom, (against - values.mean(-1)) / error)
    return np.where(alike, np.where(values.min(-1) > against, 0.5**size, 1.0), by_t)


def constant(effects: ArrayLike) -> NDArray[np.bool_]:
    """Return whether the spread along the last axis is no more than rounding."""
    values = np.asarray(effects, float)
    largest = np.maximum(1.0, np.abs(values).max(-1))
    return np.asarray(np.ptp(values, axis=-1) <= 1e-12 * largest)  # float64: a few roundings of numbers near 1


def sign_flips(effects: ArrayLike, *, rng: np.random.Generator) -> float:
    """Return the share of the sign patterns under which the mean is at least as far from 0 as it is.

    Exact up to `MOST_FLIPPED` seeds: all patterns are counted; beyond, 2^16 are drawn from `rng`, and the pattern
    itself counts as one. It asks only that the effects are symmetric about 0, not that they are normal.

    `scipy.stats.permutation_test` misses ties whose sums differ by rounding: of 400 draws of 6 to 10 differences
    of scores with three decimals, 13 had another probability there, by up to 0.03.
    """
    values = np.asarray(effects, float)
    size = values.size
    if size <= MOST_FLIPPED:
        bits = (np.arange(2**size)[:, None] >> np.arange(size)) & 1
        means = (1 - 2 * bits) @ values
        return float(np.mean(np.abs(means) >= abs(values.sum()) * (1 - 1e-12)))  # float64: a sum in another order
    signs = rng.choice([-1.0, 1.0], size=(2**MOST_FLIPPED, size))
    as_far = np.abs(signs @ values) >= abs(values.sum()) * (1 - 1e-12)
    return float((as_far.sum() + 1) / (as_far.size + 1))


def page_trend(values_SK: ArrayLike) -> float:
    """Return the probability, in Page's one-sided test, of a rise this steady over K ordered settings, if order
    meant nothing.

    Rows are seeds; only the ranks within each count. Exact for small tables, as scipy decides.
    """
    return float(stats.page_trend_test(np.asarray(values_SK, float)).pvalue)


def above(effects: SeedEffects, *, against: float = 0.0) -> float:
    """Return the probability of seeds that lie at least so high, if the effect were `against` or less."""
    blocks = effects.text_blocks
    alone = float(one_sided(effects.values, against=against, text_error=effects.text_error, text_blocks=blocks))
    if effects.at_layers_LMS is None:
        return alone
    at_LM = one_sided(
        effects.at_layers_LMS, against=against, text_error=_text_error_LM(effects), text_blocks=blocks
    )
    return max(alone, min(1.0, len(at_LM) * float(at_LM.max(1).min())))


def below(effects: SeedEffects, *, against: float = 0.0) -> float:
    """Return the probability of seeds that lie at least so low, if the effect were `against` or more."""
    return above(_mirrored(effects), against=-against)


def interval(effects: SeedEffects, *, confidence: float) -> Interval:
    """Return the mean over seeds, and every effect that neither side refuses at half of 1 - confidence.

    The t interval; where layers were chosen, widened to what holds at whichever layers. Of seeds that all show
    the same number it has no width and says nothing. NaN on either side as in `seed_tests.t_interval`.
    """
    alone = t_interval(
        effects.values, confidence=confidence, text_error=effects.text_error, text_blocks=effects.text_blocks
    )
    if effects.at_layers_LMS is None or np.isnan(alone.low):
        return alone
    low = min(alone.low, _lowest(effects, confidence=confidence))
    high = max(alone.high, -_lowest(_mirrored(effects), confidence=confidence))
    return Interval(alone.mean, low, high)


def shared_level(effects: SeedEffects, level: float) -> float:
    """Return the level of a test at one of the layers that could have been chosen; without a choice, the whole
    one."""
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
    """Return minus the effect. Which of largest and smallest comes first makes no difference, as each number is
    one of its L minus one of its M."""
    at, error = effects.at_layers_LMS, effects.text_error_LM
    return effects._replace(
        values=-effects.values,
        at_layers_LMS=None if at is None else -at.swapaxes(0, 1),
        text_error_LM=None if error is None else error.T,
    )


USUAL_POWER = 0.8
"""Power: the probability with which an effect of that size is to be found."""

MOST_SEEDS = 1000
"""Limit of seeds that anybody trains; beyond, nothing is said."""

_QUANTILES = (np.arange(400) + 0.5) / 400


def power(effect: float, *, sd: float, seeds: int, level: float) -> float:
    """Return the probability with which a two-sided t test at `level` finds such an effect on its own side of 0.

    From the noncentral t distribution; `sd` is that of the effect between seeds.
    """
    return _power(abs(effect) / sd * np.sqrt(seeds), seeds, level)


def spread_interval(sd: float, *, seeds: int) -> tuple[float, float]:
    """Return the 80% interval of the standard deviation between seeds of which so many show `sd`, if they are
    normal."""
    low, high = sd * np.sqrt((seeds - 1) / stats.chi2.ppf((0.9, 0.1), seeds - 1))
    return float(low), float(high)


def smallest_seen(
    *, sd: float, seeds: int, level: float, target_power: float = USUAL_POWER, text_error: float = 0.0
) -> float:
    """Return the smallest effect that this many seeds find with the given power.

    Args:
        text_error: standard error over the text that all seeds share, which more seeds do not lessen. It is added
            as a variance; the degrees of freedom stay those of the seeds.
    """
    return _noncentrality(seeds, level, target_power) * float(np.hypot(sd / np.sqrt(seeds), text_error))


def equivalence_power(margin: float, *, sd: float, seeds: int, level: float, text_error: float = 0.0) -> float:
    """Return the probability with which TOST at `level` finds an effect of exactly 0 to lie within `margin`.

    Mean over the distribution of the standard deviation that the seeds happen to have (400 quantiles).
    """
    error = np.hypot(sd / np.sqrt(seeds), text_error)
    seen = error * np.sqrt(stats.chi2.ppf(_QUANTILES, seeds - 1) / (seeds - 1))
    room = margin - stats.t.isf(level, seeds - 1) * seen
    return float(np.clip(2 * stats.norm.cdf(room / error) - 1, 0, None).mean())


def seeds_to_decide(
    smallest_effect: float,
    *,
    sd: float,
    level: float,
    target_power: float = USUAL_POWER,
    absent_level: float | None,
    text_error: float = 0.0,
) -> int | None:
    """Return the fewest seeds that, with the given power, find an effect of `smallest_effect` where there is one,
    and find it absent where there is none. None beyond `MOST_SEEDS`.

    The spread between seeds is taken to be the one that was seen, which is itself uncertain with few seeds.

    Args:
        absent_level: at which its absence is to be found; None if it is not, as of an effect against a bound.
        text_error: as for `smallest_seen`.
    """

    def decides(seeds: int) -> bool:
        seen = smallest_seen(sd=sd, seeds=seeds, level=level, target_power=target_power, text_error=text_error)
        if seen > smallest_effect:
            return False
        if absent_level is None:
            return True
        chance = equivalence_power(smallest_effect, sd=sd, seeds=seeds, level=absent_level, text_error=text_error)
        return chance >= target_power

    if not decides(MOST_SEEDS):
        return None
    low, high = 2, MOST_SEEDS  # decides(high), and no fewer than three seeds are evidence
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high


@cache
def _noncentrality(seeds: int, level: float, target_power: float) -> float:
    """Return the effect in standard errors that is found with the given power."""
    return float(optimize.brentq(lambda centre: _power(centre, seeds, level) - target_power, 0, 1e4))


def _power(noncentrality: float, seeds: int, level: float) -> float:
    critical = stats.t.isf(level / 2, seeds - 1)
    if noncentrality > 30:  # scipy's noncentral t loses its tail there; the spread's distribution does not
        spread = np.sqrt(stats.chi2.ppf(_QUANTILES, seeds - 1) / (seeds - 1))
        return float(stats.norm.cdf(noncentrality - critical * spread).mean())
    return float(stats.nct.sf(critical, seeds - 1, noncentrality))
