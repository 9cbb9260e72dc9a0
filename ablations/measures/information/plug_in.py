"""Plug-in estimate of mutual information, in nats, from the table of counts of two labels.

It is biased upward by thousands of almost empty cells - with 1,000 types, 1,000 clusters and 20,000 *independent*
tokens it reads 2.5 nats - and more so where the truth is small, which hides differences. The table is counted
whole and without each block of the text.

Letters: N tokens, C cells of the table (pairs that occur), G blocks.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.jackknife import standard_error

Labels = Tensor | np.ndarray
"""An integer for each token; only which are equal matters."""


class Estimate(NamedTuple):
    """A number and what it is without each block, which says how far it would move on another text."""

    value: float
    left_out: list[float]
    """The number without each block of the text; NaN where it cannot be computed."""

    @property
    def standard_error(self) -> float:
        """Return the standard error by the jackknife."""
        return standard_error(self.left_out)


class Table(NamedTuple):
    """Table of the pairs of a token and a cluster that occur."""

    token_C: np.ndarray
    cluster_C: np.ndarray
    cell_N: np.ndarray
    """The pair of each token."""

    @classmethod
    def of(cls, tokens_N: np.ndarray, clusters_N: np.ndarray) -> "Table":
        """Return the table of labels that count from 0."""
        clusters = clusters_N.max() + 1
        cells, cell_N = np.unique(tokens_N * clusters + clusters_N, return_inverse=True)
        return cls(*np.divmod(cells, clusters), cell_N)

    def counts(self, among: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the number of occurrences of each pair, C of int64, among all tokens or some."""
        return np.bincount(self.cell_N[among], minlength=len(self.token_C))


def each_block(blocks_N: np.ndarray) -> Iterator[np.ndarray]:
    """Yield masks of the tokens in block 0, in block 1, ..."""
    return (blocks_N == block for block in range(blocks_N.max() + 1))


def as_labels(values: Labels, *, name: str) -> np.ndarray:
    """Return 0, 1, ... for the distinct values in their order, int64; `name` is for the error.

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
    """Refuse lists that do not have one entry for each token.

    Raises:
        MeasureError: their lengths differ.
    """
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise MeasureError(f"each token needs one of each, but the lengths are {listed}.")


def entropy(labels_N: Labels) -> float:
    """Return the entropy of labels, in nats, from their counts: the most that anything can tell about them.

    Raises:
        MeasureError: labels that are no integers, or none at all.
    """
    share_V = np.bincount(as_labels(labels_N, name="labels")) / len(labels_N)
    return float(-(share_V * np.log(share_V)).sum())


def plug_in(tokens_N: Labels, clusters_N: Labels) -> float:
    """Return the mutual information of two labellings, in nats, from their table of counts.

    0 to the smaller of the two entropies, up to rounding; symmetric, and the same however labels are
    named. It never rises when clusters are merged. Only cells that occur are held.

    Raises:
        MeasureError: labels that are no integers, none at all, or not equally many.
    """
    table = _table(tokens_N, clusters_N)
    return _information(table, table.counts())


def plug_in_estimate(tokens_N: Labels, clusters_N: Labels, *, blocks_N: np.ndarray) -> Estimate:
    """Return `plug_in` of the whole table, and of the table without block 0, without block 1, ... of the text.

    The bias, which all of these numbers share, is not in their spread.

    Raises:
        MeasureError: as for `plug_in`.
    """
    table = _table(tokens_N, clusters_N)
    require_equal_lengths(tokens=table.cell_N, blocks=blocks_N)
    count_C = table.counts()
    left_out = [_information(table, count_C - table.counts(block_N)) for block_N in each_block(blocks_N)]
    return Estimate(_information(table, count_C), left_out)


def _table(tokens_N: Labels, clusters_N: Labels) -> Table:
    tokens_N, clusters_N = as_labels(tokens_N, name="tokens"), as_labels(clusters_N, name="clusters")
    require_equal_lengths(tokens=tokens_N, clusters=clusters_N)
    return Table.of(tokens_N, clusters_N)


def _information(table: Table, count_C: np.ndarray) -> float:
    """Return the mutual information of some of the table's tokens; NaN of none."""
    seen = count_C > 0
    token, cluster, count = table.token_C[seen], table.cluster_C[seen], count_C[seen]
    if not len(count):
        return float("nan")
    token_count_V, cluster_count_K = np.bincount(token, count), np.bincount(cluster, count)
    lift = count / token_count_V[token] * (count.sum() / cluster_count_K[cluster])
    return float(count @ np.log(lift) / count.sum())
