"""How often two labels occur together: their table of counts, whole and without a block of the text.

Letters: N tokens, C cells of the table (pairs that occur), G blocks.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ablations.errors import MeasureError

Labels = Tensor | np.ndarray
"""An integer for each token; only which are equal matters."""


class Estimate(NamedTuple):
    """A number and how far it would move on another text."""

    value: float
    standard_error: float
    """By the jackknife over blocks of the text; NaN where it cannot be told."""


class Table(NamedTuple):
    """Which pairs of a token and a cluster occur, and where."""

    token_C: np.ndarray
    cluster_C: np.ndarray
    cell_N: np.ndarray
    """The pair of each token."""

    @classmethod
    def of(cls, tokens_N: np.ndarray, clusters_N: np.ndarray) -> "Table":
        """The table of labels that count from 0."""
        clusters = clusters_N.max() + 1
        cells, cell_N = np.unique(tokens_N * clusters + clusters_N, return_inverse=True)
        return cls(*np.divmod(cells, clusters), cell_N)

    def counts(self, among: np.ndarray | slice = slice(None)) -> np.ndarray:
        """How often each pair occurs, C of int64, among all tokens or some."""
        return np.bincount(self.cell_N[among], minlength=len(self.token_C))


def each_block(blocks_N: np.ndarray) -> Iterator[np.ndarray]:
    """Which tokens are in block 0, in block 1, ..."""
    return (blocks_N == block for block in range(blocks_N.max() + 1))


def as_labels(values: Labels, *, name: str) -> np.ndarray:
    """0, 1, ... for the distinct values in their order, int64; `name` is for the error.

    Raises:
        MeasureError: they are no integers, none at all or no list.
    """
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iub":
        raise MeasureError(
            f"{name} must be a list of integers, one for each token, but they are {array.dtype} "
            f"of shape {array.shape}."
        )
    return np.unique(array, return_inverse=True)[1]


def require_equal_lengths(**arrays: Labels) -> None:
    """Refuse lists that do not have one of each for each token.

    Raises:
        MeasureError: their lengths differ.
    """
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise MeasureError(f"each token needs one of each, but the lengths are {listed}.")
