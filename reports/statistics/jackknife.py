"""Pseudo-values: one number a seed for what is no mean over seeds, so that the tests over seeds apply to it."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def pseudo_values(statistic: Callable[[Array], float], values_SK: Array) -> Array:
    """Return n times the statistic of all seeds minus n - 1 times that of all but one, for each seed.

    Their mean is the statistic without its bias of order 1/n, and their spread that of the statistic. For a mean
    they are the values themselves. Source: Tukey 1958. Needs two seeds.
    """
    size = len(values_SK)
    whole = statistic(values_SK)
    without = np.array([statistic(np.delete(values_SK, seed, axis=0)) for seed in range(size)])
    return size * whole - (size - 1) * without


def distances_between_seeds(distance_SS: Array) -> Array:
    """Return pseudo-values of the mean distance between seeds, one for each seed; the diagonal is not read.

    A distance belongs to two seeds, so the pairs are fewer in evidence than in number. Each seed's mean distance
    to the others, D, comes to (2 (n - 1) D - n M) / (n - 2), where M is the mean over pairs: what the jackknife
    over seeds makes of M. Needs three seeds.
    """
    size = len(distance_SS)
    off = ~np.eye(size, dtype=bool)
    to_others_S = np.where(off, distance_SS, 0.0).sum(1) / (size - 1)
    return (2 * (size - 1) * to_others_S - size * to_others_S.mean()) / (size - 2)
