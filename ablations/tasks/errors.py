"""Standard errors of scores, also of scores whose examples are not independent, as the words of a sentence are
not."""

import numpy as np
from numpy.typing import NDArray


def share_error(right_N: NDArray[np.floating] | NDArray[np.bool_]) -> float:
    """Return the standard error of the mean of independent answers, each from 0 (wrong) to 1 (right).

    Where all are right, or all wrong, it is that of two more of either kind (Agresti & Coull 1998,
    https://doi.org/10.1080/00031305.1998.10480550), as four of four are no sure thing; else s / root n. NaN for a
    single answer that is neither.
    """
    n, share = len(right_N), float(np.mean(right_N))
    if share in (0, 1):
        more = (share * n + 2) / (n + 4)
        return float((more * (1 - more) / (n + 4)) ** 0.5)
    return float(np.std(right_N, ddof=1) / n**0.5) if n > 1 else float("nan")


def standard_error(value_N: NDArray[np.floating] | NDArray[np.bool_], cluster_N: NDArray[np.integer]) -> float:
    """Return the standard error of the mean of values that are independent between clusters only, to first order
    (Liang & Zeger 1986).

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
