"""Power of the paired t test: effects that a number of seeds can find, and seeds that would decide."""

from functools import cache

import numpy as np
from scipy import optimize, stats

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


def spread_interval(sd: float, *, seeds: int, confidence: float = 0.8) -> tuple[float, float]:
    """Return the interval of the standard deviation between seeds of which so many show `sd`, if they are
    normal."""
    tails = np.array([(1 + confidence) / 2, (1 - confidence) / 2])
    low, high = sd * np.sqrt((seeds - 1) / stats.chi2.ppf(tails, seeds - 1))
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
