"""Levels of a test that is made at several looks, while seeds are added.

A claim that is tested again and again is supported by chance more often than a claim that is tested once. So
each look has its own level, and all looks together err as often as one test: alpha spending (Lan and DeMets
1983). The error is spent as the seeds come: n / N of it with n of up to N seeds (the power family of Kim and
DeMets 1987, exponent 1). The levels are not those for normal data, because t tests of few seeds differ more
from look to look. They are counted among the t tests of 2^19 draws of N normal numbers. These tests do not
depend on mean and spread, so one set of draws serves every effect.

An interval at the level of its look is a repeated confidence interval (Jennison and Turnbull 1989): the
intervals of all looks hold together as often as a single one, at whichever look a claim stops. docs/claims.md
has the simulations by which this rule was chosen.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

DRAWS = 2**19
"""Number of draws among which the levels are counted; a level of 0.1% is 500 of them."""

CHUNK = 2**15
"""Number of draws in memory at once."""


def look_levels(sizes: Sequence[int], *, level: float, ways: int = 1) -> tuple[float, ...]:
    """Return the two-sided level of the t test at each look.

    A claim as a whole has `level`; each of the `ways` parts that may refute it is tested at a level divided
    by `ways`. The returned levels hold for both. Tests at a look's level have a chance of a wrong rejection
    over all looks of at most `level`. Tests at that level divided by `ways` have a chance of at most `level`
    divided by `ways`.

    Args:
        sizes: number of seeds at each look, rising.
        level: chance of a wrong rejection over all looks.
        ways: number of parts that may refute the claim.
    """
    return _look_levels(tuple(sizes), level, ways)


@cache
def _look_levels(sizes: tuple[int, ...], level: float, ways: int) -> tuple[float, ...]:
    one_sided = level / ways / 2
    p_DK = _null_probabilities(sizes)
    is_open = np.ones(len(p_DK), bool)
    levels: list[float] = []
    spent = 0.0
    for look, size in enumerate(sizes):
        share = one_sided * size / sizes[-1] - spent
        here = p_DK[:, look]
        rejected = max(0, round(share * len(p_DK)))
        at_look = float(np.partition(here[is_open], rejected)[rejected]) if look else share
        rejects = is_open & (here < at_look)
        spent += float(rejects.mean()) if look else share
        is_open &= ~rejects
        levels.append(2 * ways * at_look)
    return tuple(levels)


@cache
def _null_probabilities(sizes: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the one-sided probability of the t test at each look, for draws with mean 0: shape (draws,
    looks)."""
    rng = np.random.default_rng(sizes)
    columns = np.asarray(sizes) - 1
    count_K = np.asarray(sizes, float)
    p_DK = np.empty((DRAWS, len(sizes)), np.float32)
    for start in range(0, DRAWS, CHUNK):
        values_DN = rng.standard_normal((CHUNK, sizes[-1]))
        mean_DK = values_DN.cumsum(1)[:, columns] / count_K
        square_DK = np.square(values_DN).cumsum(1)[:, columns] / count_K
        error_DK = np.sqrt((square_DK - np.square(mean_DK)) / (count_K - 1))
        p_DK[start : start + CHUNK] = special.stdtr(count_K - 1, -mean_DK / error_DK)
    return p_DK
