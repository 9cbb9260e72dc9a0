"""The plug-in estimate of mutual information, in nats: what a table of counts says if taken at its word.

It is biased upward by thousands of almost empty cells - with 1,000 types, 1,000 clusters and 20,000 *independent*
tokens it reads 2.5 nats - and more so where the truth is small, which hides differences.

Letters: N tokens, C cells of their table.
"""

import numpy as np

from ablations.measures.counts import Estimate, Labels, Table, as_labels, each_block, require_equal_lengths
from ablations.measures.jackknife import standard_error


def plug_in(tokens_N: Labels, clusters_N: Labels) -> float:
    """Mutual information of two labellings, in nats, from their table of counts.

    0 to the smaller of the two entropies, up to rounding; symmetric, and the same however labels are
    named. It never rises when clusters are merged. Only cells that occur are held.

    Raises:
        MeasureError: labels that are no integers, none at all, or not equally many.
    """
    table = _table(tokens_N, clusters_N)
    return _information(table, table.counts())


def plug_in_estimate(tokens_N: Labels, clusters_N: Labels, *, blocks_N: np.ndarray) -> Estimate:
    """`plug_in`, and its standard error from the table without block 0, without block 1, ... of the text.

    What all of these numbers have in common, the bias, is in no error.

    Raises:
        MeasureError: as for `plug_in`.
    """
    table = _table(tokens_N, clusters_N)
    require_equal_lengths(tokens=table.cell_N, blocks=blocks_N)
    count_C = table.counts()
    left_out = [_information(table, count_C - table.counts(block_N)) for block_N in each_block(blocks_N)]
    return Estimate(_information(table, count_C), standard_error(left_out))


def _table(tokens_N: Labels, clusters_N: Labels) -> Table:
    tokens_N, clusters_N = as_labels(tokens_N, name="tokens"), as_labels(clusters_N, name="clusters")
    require_equal_lengths(tokens=tokens_N, clusters=clusters_N)
    return Table.of(tokens_N, clusters_N)


def _information(table: Table, count_C: np.ndarray) -> float:
    """Of some of the table's tokens; NaN of none."""
    seen = count_C > 0
    token, cluster, count = table.token_C[seen], table.cluster_C[seen], count_C[seen]
    if not len(count):
        return float("nan")
    token_count_V, cluster_count_K = np.bincount(token, count), np.bincount(cluster, count)
    lift = count / token_count_V[token] * (count.sum() / cluster_count_K[cluster])
    return float(count @ np.log(lift) / count.sum())
