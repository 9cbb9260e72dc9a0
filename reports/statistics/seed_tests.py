"""Tests over seeds. One number a seed in, a probability or an interval out; the seed is the unit of evidence.

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
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

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
    chosen: tuple[int, ...] | None = None
    """The layer that each seed was judged at, chosen on the other seeds."""
    at_layers_LMS: NDArray[np.float64] | None = None
    """Numbers of each seed at any layer that could have been chosen, where layers were chosen. The effect in truth
    is the largest over L of the smallest over M."""
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


def t_interval(effects: ArrayLike, *, confidence: float) -> Interval:
    """Return Student's t interval of the mean: NaN on either side below two seeds, all NaN where a value is not
    finite.

    `scipy.stats.ttest_1samp` gives the same interval in 27 times the time, and warns of seeds that agree.
    """
    values = np.asarray(effects, float)
    if not values.size or not np.isfinite(values).all():
        return Interval(np.nan, np.nan, np.nan)
    mean = float(values.mean())
    if values.size < 2:
        return Interval(mean, np.nan, np.nan)
    margin = float(special.stdtrit(values.size - 1, (1 + confidence) / 2)) * standard_error(values)
    return Interval(mean, mean - margin, mean + margin)


def standard_error(effects: ArrayLike) -> float:
    """Return the standard error of the mean over seeds."""
    values = np.asarray(effects, float)
    return float(values.std(ddof=1) / np.sqrt(values.size))


def one_sided(effects: ArrayLike, *, against: float = 0.0) -> Vector:
    """Return the one-sided t test along the last axis: the probability of a mean at least this high if the truth
    were `against`.

    Seeds that all show the same number have the sign-flip test instead, which for them is the sign test: 2^-n
    above `against`, else 1.
    """
    values = np.asarray(effects, float)
    size = values.shape[-1]
    error = values.std(axis=-1, ddof=1) / np.sqrt(size)
    alike = np.asarray(constant(values))
    with np.errstate(divide="ignore", invalid="ignore"):
        by_t = special.stdtr(size - 1, (against - values.mean(-1)) / error)
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


def holm_levels(probabilities: Mapping[str, float], *, alpha: float) -> dict[str, float]:
    """Return the level at which each test of a family is judged, so that all of them together err at most at
    `alpha`.

    Holm 1979: the smallest probability is judged at alpha / m, the next at alpha / (m - 1), and so on; from the
    first that fails on, no more lenient level is reached, and the rest is judged at its level.
    """
    levels: dict[str, float] = {}
    failed = False
    level = alpha
    ordered: Sequence[str] = sorted(probabilities, key=lambda name: probabilities[name])
    for rank, name in enumerate(ordered):
        if not failed:
            level = alpha / (len(ordered) - rank)
        levels[name] = level
        failed = failed or probabilities[name] > level
    return levels


def above(effects: SeedEffects, *, against: float = 0.0) -> float:
    """Return the probability of seeds that lie at least so high, if the effect were `against` or less."""
    alone = float(one_sided(effects.values, against=against))
    if effects.at_layers_LMS is None:
        return alone
    at_LM = one_sided(effects.at_layers_LMS, against=against)
    return max(alone, min(1.0, len(at_LM) * float(at_LM.max(1).min())))


def below(effects: SeedEffects, *, against: float = 0.0) -> float:
    """Return the probability of seeds that lie at least so low, if the effect were `against` or more."""
    return above(_mirrored(effects), against=-against)


def interval(effects: SeedEffects, *, confidence: float) -> Interval:
    """Return the mean over seeds, and every effect that neither side refuses at half of 1 - confidence.

    The t interval; where layers were chosen, widened to what holds at whichever layers. Of seeds that all show
    the same number it has no width and says nothing. NaN on either side as in `seed_tests.t_interval`.
    """
    of_seeds = t_interval(effects.values, confidence=confidence)
    if effects.at_layers_LMS is None or np.isnan(of_seeds.low):
        return of_seeds
    low = min(of_seeds.low, _lowest(effects.at_layers_LMS, confidence=confidence))
    high = max(of_seeds.high, -_lowest(_swapped(effects.at_layers_LMS), confidence=confidence))
    return Interval(of_seeds.mean, low, high)


def shared_level(effects: SeedEffects, level: float) -> float:
    """Return the level of a test at one of the layers that could have been chosen; without a choice, the whole
    one."""
    return level if effects.at_layers_LMS is None else level / max(effects.at_layers_LMS.shape[:2])


def _lowest(at_LMS: NDArray[np.float64], *, confidence: float) -> float:
    """Return the lower bound of the largest over L of the smallest over M."""
    part = 1 - (1 - confidence) / len(at_LMS)
    return max(min(t_interval(values, confidence=part).low for values in row) for row in at_LMS)


def _mirrored(effects: SeedEffects) -> SeedEffects:
    at = effects.at_layers_LMS
    return effects._replace(values=-effects.values, at_layers_LMS=None if at is None else _swapped(at))


def _swapped(at_LMS: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return minus the effect. Which of largest and smallest comes first makes no difference, as each number is
    one of its L minus one of its M."""
    return -at_LMS.swapaxes(0, 1)
