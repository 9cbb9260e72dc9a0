"""Standard errors by the jackknife: how far a number would move if a run had been measured on another text of the
same kind.

Delete-a-group jackknife (Shao & Wu 1989, https://doi.org/10.1214/aos/1176347263): the number is computed again
without each of a few blocks of the text. Blocks are runs of neighbouring sentences, since the tokens of a
sentence, and the sentences of a document, resemble each other. To draw tokens with replacement instead would bias
information upward: what was drawn twice seems to repeat itself.

This is the uncertainty of one run's number; that of an arm comes from its seeds. The seeds of an experiment share
their text, so the numbers without each block are kept (`errors`): from them a contrast between arms has an error
of its own over the text, in which cancels what all its runs share.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCKS = 10
"""Blocks of a text. More would be more exact, and cost as much more."""


def sentence_blocks(sentence_N: NDArray[np.integer], count: int = BLOCKS) -> NDArray[np.int64]:
    """Return the block, from 0, of each token: `count` runs of neighbouring whole sentences with about as many
    tokens each.

    Fewer blocks where there are fewer sentences.

    Args:
        sentence_N: the sentence of each token, ascending.
    """
    starts = np.flatnonzero(np.diff(sentence_N, prepend=sentence_N[0] - 1))
    lengths = np.diff(starts, append=len(sentence_N))
    middle = starts + lengths / 2
    blocks = np.minimum((middle * count / len(sentence_N)).astype(np.int64), count - 1)
    return np.repeat(np.unique(blocks, return_inverse=True)[1], lengths)


def standard_error(left_out: Sequence[float] | NDArray[np.float64]) -> float:
    """Return the standard error of a number from its values without block 0, without block 1, ...: root of (G - 1)
    / G sum (x_g - mean)^2.

    For a mean over tokens and blocks of equal size it is the standard error of the mean of the blocks' means. NaN
    for fewer than two blocks, or if a value is NaN.
    """
    values_G = np.asarray(left_out, dtype=np.float64)
    if len(values_G) < 2:
        return float("nan")
    return float(np.sqrt((len(values_G) - 1) / len(values_G) * np.square(values_G - values_G.mean()).sum()))


def errors(left_out: Sequence[float] | NDArray[np.float64]) -> dict[str, Any]:
    """Return the cells `standard_error` and `left_out` of a row, from its value without each block of the text.

    Where the error is NaN, nothing is left out.
    """
    error = standard_error(left_out)
    kept = None if np.isnan(error) else [float(value) for value in left_out]
    return {"standard_error": error, "left_out": kept}


def means_left_out(value_N: NDArray[Any], cluster_N: NDArray[np.integer] | None = None) -> list[float] | None:
    """Return the mean of the values without each of `BLOCKS` blocks; None of fewer than two clusters.

    Args:
        value_N: answers to examples, say.
        cluster_N: of each value, in any order: a cluster lies in one block. Each value is its own unless given.
    """
    place_N = np.arange(len(value_N)) if cluster_N is None else np.unique(cluster_N, return_inverse=True)[1]
    block_N = place_N % BLOCKS  # not neighbours: those of a task are often of one kind
    blocks = np.unique(block_N)
    return [float(np.mean(value_N[block_N != block])) for block in blocks] if len(blocks) > 1 else None
