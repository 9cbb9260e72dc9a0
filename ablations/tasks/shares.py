"""How sure a share of right answers is."""

import numpy as np
from numpy.typing import NDArray


def share_error(right_N: NDArray[np.floating] | NDArray[np.bool_]) -> float:
    """Standard error of the mean of independent answers, each from 0 (wrong) to 1 (right).

    Where all are right, or all wrong, that of two more of either kind (Agresti & Coull 1998,
    https://doi.org/10.1080/00031305.1998.10480550), as four of four are no sure thing; else s / root n. NaN for a
    single answer that is neither.
    """
    n, share = len(right_N), float(np.mean(right_N))
    if share in (0, 1):
        more = (share * n + 2) / (n + 4)
        return float((more * (1 - more) / (n + 4)) ** 0.5)
    return float(np.std(right_N, ddof=1) / n**0.5) if n > 1 else float("nan")
