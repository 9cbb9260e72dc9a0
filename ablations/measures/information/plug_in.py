"""Plug-in estimate of mutual information, in nats, from the table of counts of two labels, and k-means, whose
clusters are the labels of states.

The estimate is biased upward by thousands of almost empty cells. For 1,000 types, 1,000 clusters and 20,000
*independent* tokens it is 2.5 nats. The bias is larger if the truth is small, which hides differences. The
table is counted whole and without each block of the text.

Our k-means is made for a thousand clusters, and fast enough to be fitted anew for every layer of every run.
The initial centres matter more than the number of passes. The numbers below are for the top layer of a small
masked LM of real text (50,338 tokens, 256 features, 1,000 clusters; one core): mean squared distance to the
nearest centre, divided by the variance; plug-in estimate; time.

    50 passes from random states    .180   5.11 nats     15 s
    50 passes from k-means++        .152   5.34 nats     34 s
    scikit-learn's MiniBatchKMeans  .185   5.05 nats    2.7 s
    ours                            .154   5.35 nats    3.4 s

States are used as they are. No column is standardised, because the variance of a direction says how much of
the layer it is. Translation and overall scale do not matter. The computation is in float32, on the device of
the states.

Letters: N tokens, D features, K clusters, B tokens of a block, C cells of the table (pairs that occur), G
blocks.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from ablations.errors import MeasureError
from ablations.measures.similarity.sides import Matrix, as_matrix

Labels = Tensor | np.ndarray
"""An integer for each token. Only which of them are equal matters."""

ROUNDS = 20
"""Number of rounds of seeding. Each round finds equally many centres."""

CANDIDATES = 8
"""Number of candidates for each centre."""

SAMPLE = 5
"""Tokens per cluster of the sample in which seeding looks for centres. The sample is never smaller than for
1,000 clusters."""

PASSES = 10
"""Largest number of passes. With momentum, ten are about as good as forty or fifty of Lloyd's."""

MOMENTUM = 0.9
"""Share of the last step of a cluster's mean that is added to the mean to get the centre (Polyak 1964). Lloyd's
passes are gradient steps (Bottou & Bengio 1995), and many in a row are small and in one direction."""

SETTLED = 0.01
"""Share of the tokens: if no more than this share changed their cluster, the passes end."""

SLACK = 1e-3
"""Bound on the rounding error of a squared distance, as a share of the largest squared length."""

ORIGIN = 1000
"""Number of evenly spaced states whose median is the origin."""

SCORES = 2**26
"""Number of scores held at once on a GPU, which wants large products: 256 MB."""

SCORES_OF_THREAD, SCORES_OF_FEATURE = 2**21, 2**13
"""Largest number of scores that a thread of a CPU holds at once, 8 MB, and the same for each feature of a state.
Scores of narrow states should stay in the cache, as their product takes little time. Wide states want larger
products (benchmarks/LOG.md)."""


class Estimate(NamedTuple):
    """Number, and its values without each block, which show how far it would move on another text."""

    value: float
    left_out: list[float]
    """The number without each block of the text; NaN if it cannot be computed."""


class Table(NamedTuple):
    """Table of the pairs of a token and a cluster that occur."""

    token_C: np.ndarray
    cluster_C: np.ndarray
    cell_N: np.ndarray
    """Index of the pair of each token."""

    @classmethod
    def of(cls, tokens_N: np.ndarray, clusters_N: np.ndarray) -> "Table":
        """Return the table of labels that count from 0."""
        clusters = clusters_N.max() + 1
        cells, cell_N = np.unique(tokens_N * clusters + clusters_N, return_inverse=True)
        return cls(*np.divmod(cells, clusters), cell_N)

    def counts(self, among: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the number of occurrences of each pair, C of int64, among all tokens or some of them."""
        return np.bincount(self.cell_N[among], minlength=len(self.token_C))


def each_block(blocks_N: np.ndarray) -> Iterator[np.ndarray]:
    """Yield masks of the tokens in block 0, in block 1, ..."""
    return (blocks_N == block for block in range(blocks_N.max() + 1))


def as_labels(values: Labels, *, name: str) -> np.ndarray:
    """Return the labels renamed to 0, 1, ... in the order of their values, int64. Errors call them `name`.

    Raises:
        MeasureError: the labels are no integers, none at all or no list.
    """
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iub":
        raise MeasureError(
            f"{name} must be a list of integers, one for each token, but they are {array.dtype} "
            f"of shape {array.shape}."
        )
    return np.unique(array, return_inverse=True)[1]


def require_equal_lengths(**arrays: Labels) -> None:
    """Raise a MeasureError if the lists do not have one entry for each token."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise MeasureError(f"all lists must have one entry for each token, but their lengths are {listed}.")


def entropy(labels_N: Labels) -> float:
    """Return the entropy of labels, in nats, from their counts. No information about the labels can exceed it.

    Raises:
        MeasureError: labels that are no integers, or none at all.
    """
    share_V = np.bincount(as_labels(labels_N, name="labels")) / len(labels_N)
    return float(-(share_V * np.log(share_V)).sum())


def plug_in(tokens_N: Labels, clusters_N: Labels) -> float:
    """Return the mutual information of two labellings, in nats, from their table of counts.

    It is between 0 and the smaller of the two entropies, up to rounding. It is symmetric and does not depend
    on the names of labels. It never rises when clusters are merged. Memory holds only cells that occur.

    Raises:
        MeasureError: labels that are no integers, none at all, or not equally many.
    """
    table = _table(tokens_N, clusters_N)
    return _information(table, table.counts())


def plug_in_estimate(tokens_N: Labels, clusters_N: Labels, *, blocks_N: np.ndarray) -> Estimate:
    """Return `plug_in` of the whole table, and without block 0, without block 1, ... of the text.

    All of these numbers share the bias, so their spread does not include it.

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
    """Return the mutual information of some of the table's tokens, from the count of each pair; NaN without
    tokens."""
    seen = count_C > 0
    token, cluster, count = table.token_C[seen], table.cluster_C[seen], count_C[seen]
    if not len(count):
        return float("nan")
    token_count_V, cluster_count_K = np.bincount(token, count), np.bincount(cluster, count)
    lift = count / token_count_V[token] * (count.sum() / cluster_count_K[cluster])
    return float(count @ np.log(lift) / count.sum())


class Points:
    """States moved and scaled to where squares of float32 are precise: about 0, and of at most about 1."""

    def __init__(self, states_ND: Matrix) -> None:
        """Copy the states, divided by a power of two near their largest value, minus their median.

        The power of two rounds nothing. The median is subtracted and not the mean, which a few huge states
        would move far away from all others.

        Raises:
            MeasureError: the states are no finite matrix.
        """
        states_ND = as_matrix(states_ND, name="states", single=True)
        largest = max(states_ND.max().item(), -states_ND.min().item(), torch.finfo(torch.float32).tiny)
        scaled_ND = states_ND / 2.0 ** (math.frexp(largest)[1] - 1)
        scaled_ND -= scaled_ND[:: math.ceil(len(scaled_ND) / ORIGIN)].median(0).values
        self.x_ND = scaled_ND.float()  # only now, as float32 cannot hold small differences of large numbers

    def fit(self, *, clusters: int, rng: np.random.Generator, among: np.ndarray | None = None) -> Tensor:
        """Return centres, K x D, that make the squared distances of points to the nearest centre small.

        Seeding is greedy k-means++ (Arthur & Vassilvitskii 2007, sections 2.2 and 7) on a sample. It works in
        rounds, because the paper's one centre at a time is slow. A round draws eight candidates for each of
        its centres, with probabilities by squared distance to the centres of earlier rounds. It keeps those
        that most reduce the distance of the tokens nearest to them. Then come passes of Lloyd's algorithm
        over all tokens, with momentum, until few tokens change their cluster. A cluster without tokens keeps
        its mean. If the points have fewer than K different rows, centres repeat.

        Args:
            among: rows of the points to fit to; all if None.

        Raises:
            MeasureError: `clusters` is not from 1 to the number of rows.
        """
        x_ND = self.x_ND if among is None else self.x_ND[self._index(among)]
        if not 1 <= clusters <= len(x_ND):
            raise MeasureError(
                f"clusters must be at least 1 and at most the number of tokens, {len(x_ND)}, but is {clusters}."
            )
        sample = rng.choice(len(x_ND), min(len(x_ND), SAMPLE * max(clusters, 1000)), replace=False)
        return _passes(x_ND, _seeds(x_ND[self._index(sample)], clusters, rng))

    def assign(self, centres_KD: Tensor) -> Tensor:
        """Return the index of the nearest centre of each point, N of int64. Ties go to the first centre."""
        return _nearest(self.x_ND, centres_KD)[0]

    def _index(self, rows_R: np.ndarray) -> Tensor:
        return torch.from_numpy(rows_R).to(self.x_ND.device)


def _seeds(x_ND: Tensor, clusters: int, rng: np.random.Generator) -> Tensor:
    half_length_N = (x_ND.square().sum(1) / 2).cpu().numpy()
    slack = SLACK * 2 * float(half_length_N.max())
    all_N = np.arange(len(x_ND))
    distance_N = np.full(len(x_ND), np.inf, np.float32)  # squared, to the nearest centre

    def nearer(
        centres_KD: Tensor, rows_R: np.ndarray, x_RD: Tensor
    ) -> tuple[np.ndarray, Tensor, Tensor, np.ndarray]:
        """Select the tokens of `rows_R` that may be nearer to one of these centres than to every earlier centre.
        Return their rows and states, the index of the nearest of these centres, and the squared distance."""
        labels_R, score_R = _nearest(x_RD, centres_KD)
        # Scores are less precise than differences. Differences are computed for the few tokens that may need
        # them.
        may_be = 2 * (half_length_N[rows_R] - score_R.cpu().numpy()) < distance_N[rows_R] + slack
        index_R = torch.from_numpy(np.flatnonzero(may_be)).to(x_ND.device)
        x_RD, labels_R = x_RD[index_R], labels_R[index_R]
        apart_RD = centres_KD[labels_R].sub_(x_RD)
        return rows_R[may_be], x_RD, labels_R, torch.linalg.vecdot(apart_RD, apart_RD).cpu().numpy()

    centres_KD = x_ND[:1]
    rows_R, _, _, distance_R = nearer(centres_KD, all_N, x_ND)
    distance_N[rows_R] = distance_R
    while (missing := clusters - len(centres_KD)) > 0:
        count = min(math.ceil(clusters / ROUNDS), missing)
        cumulative_N = distance_N.cumsum(dtype=np.float64)
        drawn = cumulative_N.searchsorted(rng.random(CANDIDATES * count) * cumulative_N[-1])
        rows_R, x_RD, labels_R, distance_R = nearer(x_ND[drawn], all_N, x_ND)
        less_R = (distance_N[rows_R] - distance_R).clip(min=0)
        gain = np.bincount(labels_R.cpu().numpy(), less_R, minlength=len(drawn))
        kept_KD = x_ND[drawn[np.argsort(-gain, kind="stable")[:count]]]
        # Kept centres are candidates, so only tokens that a candidate is nearer to need to be looked at.
        rows_R, _, _, distance_R = nearer(kept_KD, rows_R, x_RD)
        distance_N[rows_R] = np.minimum(distance_N[rows_R], distance_R)
        centres_KD = torch.cat([centres_KD, kept_KD])
    return centres_KD


def _passes(x_ND: Tensor, centres_KD: Tensor) -> Tensor:
    """Return the means of the clusters after passes of Lloyd's algorithm, with momentum, from these centres."""
    labels_N, mean_KD = None, centres_KD
    for taken in range(PASSES):
        before_N, labels_N = labels_N, _nearest(x_ND, centres_KD)[0]
        before_KD, mean_KD = mean_KD, _means(x_ND, labels_N, mean_KD)
        if before_N is not None and (labels_N != before_N).sum() <= SETTLED * len(x_ND):
            break
        # The first step leads from single states to means. With momentum, centres would overshoot the means by
        # the noise of these states.
        centres_KD = mean_KD if taken == 0 else mean_KD.add(mean_KD - before_KD, alpha=MOMENTUM)
    return mean_KD


def _nearest(x_ND: Tensor, centres_KD: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index of the nearest centre c of each point x, and its score (|x|^2 - |x - c|^2) / 2, which is
    the highest."""
    half_length_K = centres_KD.square().sum(1) / 2
    labels_N, score_N = x_ND.new_empty(len(x_ND), dtype=torch.int64), x_ND.new_empty(len(x_ND))
    of_thread = min(SCORES_OF_THREAD, SCORES_OF_FEATURE * x_ND.shape[1])
    scores = torch.get_num_threads() * of_thread if x_ND.is_cpu else SCORES
    rows = max(1, scores // len(centres_KD))
    scores_BK = x_ND.new_empty(min(rows, len(x_ND)), len(centres_KD))
    for start in range(0, len(x_ND), rows):
        x_BD, block = x_ND[start : start + rows], slice(start, start + rows)
        scores_BK = torch.mm(x_BD, centres_KD.T, out=scores_BK[: len(x_BD)])
        scores_BK -= half_length_K
        if scores_BK.is_cpu:  # numpy's argmax is ten times as fast as torch's
            labels_N[block] = torch.from_numpy(scores_BK.numpy().argmax(1))
        else:
            labels_N[block] = scores_BK.argmax(1)
        score_N[block] = scores_BK.gather(1, labels_N[block, None])[:, 0]
    return labels_N, score_N


def _means(x_ND: Tensor, labels_N: Tensor, before_KD: Tensor) -> Tensor:
    """Return the mean of each cluster's points, or the old mean if it has none."""
    size_K = labels_N.bincount(minlength=len(before_KD))
    # On a GPU atomic additions would make sums depend on their order. Sums over bags of rows need none.
    sum_KD = embedding_bag(labels_N.argsort(stable=True), x_ND, size_K.cumsum(0) - size_K, mode="sum")
    return torch.where(size_K[:, None] > 0, sum_KD / size_K.clamp(min=1)[:, None], before_KD)
