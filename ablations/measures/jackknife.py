"""Standard errors by the jackknife: how far a number would move if a run had been measured on another text of
the same kind.

Source: delete-a-group jackknife (Shao & Wu 1989, https://doi.org/10.1214/aos/1176347263). The number is
computed again without each of a few blocks of the text. A block is a run of neighbouring sentences, because
the tokens of a sentence, and the sentences of a document, resemble each other. Tokens drawn with replacement
would bias information upward, because repeated tokens look like a regularity.

This standard error is the uncertainty of one run's number. The uncertainty of an arm comes from its seeds.
The seeds of an experiment share their text, so `errors` also keeps the numbers without each block. From these
a contrast between arms has its own error over the text, in which everything that all runs share cancels.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCKS = 10
"""Number of blocks of a text. More blocks are more exact, and cost as much more."""


def sentence_blocks(sentence_N: NDArray[np.integer], count: int = BLOCKS) -> NDArray[np.int64]:
    """Return the block of each token, from 0: `count` runs of neighbouring whole sentences with about as many
    tokens each.

    There are fewer blocks if there are fewer sentences.

    Args:
        sentence_N: the sentence of each token, ascending.
    """
    starts = np.flatnonzero(np.diff(sentence_N, prepend=sentence_N[0] - 1))
    lengths = np.diff(starts, append=len(sentence_N))
    middle = starts + lengths / 2
    blocks = np.minimum((middle * count / len(sentence_N)).astype(np.int64), count - 1)
    return np.repeat(np.unique(blocks, return_inverse=True)[1], lengths)


def standard_error(left_out: Sequence[float] | NDArray[np.float64]) -> float:
    """Return the standard error of a number from its values without block 0, without block 1, ...

    It is the root of (G - 1) / G sum (x_g - mean)^2. For a mean over tokens and blocks of equal size it is
    the standard error of the mean of the blocks' means. NaN for fewer than two blocks, or if a value is NaN.
    """
    values_G = np.asarray(left_out, dtype=np.float64)
    if len(values_G) < 2:
        return float("nan")
    return float(np.sqrt((len(values_G) - 1) / len(values_G) * np.square(values_G - values_G.mean()).sum()))


def errors(left_out: Sequence[float] | NDArray[np.float64]) -> dict[str, Any]:
    """Return the cells `standard_error` and `left_out` of a row, from its value without each block of the
    text.

    `left_out` is None for fewer than two blocks, or if no value is a number. It keeps a NaN, so that a contrast
    knows for which block it lacks a number.
    """
    kept = [float(value) for value in left_out]
    has_numbers = len(kept) > 1 and not np.isnan(kept).all()
    return {"standard_error": standard_error(left_out), "left_out": kept if has_numbers else None}


def kept_without(cluster_N: NDArray[np.integer]) -> list[NDArray[np.bool_]]:
    """Return which values are left without block 0, without block 1, ..., at most `BLOCKS`; empty if all values
    lie in one block.

    Args:
        cluster_N: number of the cluster of each value, in any order. Cluster k lies in block k % BLOCKS, whatever
            other clusters there are. So numbers must be given before an arm drops any examples: then a block has
            the same examples in all arms, and nothing is subtracted from other examples.
    """
    block_N = cluster_N % BLOCKS  # neighbouring examples are often of one kind, so they go apart
    kept = [block_N != block for block in range(block_N.max(initial=-1) + 1)]
    return kept if all(kept_N.any() for kept_N in kept) else []


def means_left_out(value_N: NDArray[Any], cluster_N: NDArray[np.integer]) -> list[float] | None:
    """Return the means of the values without each block (`kept_without`); None if all values lie in one block.

    Args:
        value_N: a number for each example, such as 1 for a right answer.
        cluster_N: number of the cluster of each value; see `kept_without`.
    """
    return [float(np.mean(value_N[kept_N])) for kept_N in kept_without(cluster_N)] or None
