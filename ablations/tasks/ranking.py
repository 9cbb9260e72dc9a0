"""How high the right one of some candidates stands. Equal candidates stand in random order, and numbers are means
over all such orders: who tells nothing apart scores what guessing does.

Letters: Q queries, C candidates.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Ranks(NamedTuple):
    """Of each query."""

    above_Q: Integers
    """Candidates with a higher score than the right one."""
    equal_Q: Integers
    """Candidates with its score, itself among them."""


def ranks(score_QC: NDArray[np.floating], right_Q: Integers) -> Ranks:
    """Where the right candidates stand."""
    own_Q1 = np.take_along_axis(score_QC, right_Q[:, None], axis=1)
    return Ranks((score_QC > own_Q1).sum(1), (score_QC == own_Q1).sum(1))


def recall(found: Ranks, first: int) -> Floats:
    """Probability that the right one is among the first so many, of each query."""
    return np.clip((first - found.above_Q) / found.equal_Q, 0, 1)


def reciprocal_rank(found: Ranks) -> Floats:
    """1 over the place of the right one, of each query."""
    sums = np.append(0, np.cumsum(1 / np.arange(1, (found.above_Q + found.equal_Q).max() + 1)))
    return (sums[found.above_Q + found.equal_Q] - sums[found.above_Q]) / found.equal_Q


def best(score_QC: NDArray[np.floating], count: int) -> Integers:
    """The candidates of highest score, the best first; of equal ones the first first."""
    return np.argsort(-score_QC, axis=1, kind="stable")[:, :count]
