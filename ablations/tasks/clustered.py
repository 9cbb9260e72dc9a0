"""Standard errors of numbers whose examples are not independent, as the words of a sentence are not."""

import numpy as np
from numpy.typing import NDArray


def standard_error(value_N: NDArray[np.floating] | NDArray[np.bool_], cluster_N: NDArray[np.integer]) -> float:
    """Of the mean of values that are independent between clusters only, to first order (Liang & Zeger 1986).

    With a cluster an example it is the usual s / root n, of right and wrong answers the binomial one. NaN for
    fewer than two clusters.

    Args:
        cluster_N: of each value, from 0 or not, in any order.
    """
    _, place_N = np.unique(cluster_N, return_inverse=True)
    deviation_N = value_N - np.mean(value_N, dtype=np.float64)
    sums_C = np.bincount(place_N, weights=deviation_N)
    if len(sums_C) < 2:
        return float("nan")
    return float(np.sqrt(np.square(sums_C).sum() * len(sums_C) / (len(sums_C) - 1)) / len(value_N))
