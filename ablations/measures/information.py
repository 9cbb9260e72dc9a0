"""How much a layer still knows about its input token: mutual information, in nats.

Voita, Sennrich & Titov 2019, https://arxiv.org/abs/1909.01380, section 4: states are discretised by
k-means and the information between token and cluster is read from their table of counts. That plug-in
estimate is biased upward by thousands of almost empty cells - with 1,000 types, 1,000 clusters and 20,000
*independent* tokens it reads 2.5 nats - and more so where the truth is small, which hides differences. We
report it because the paper does, and beside it a cross-fitted lower bound to draw conclusions from.

Shapes: N tokens, D features, K clusters, V token types.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.kmeans import assign, fit_clusters
from ablations.measures.matrices import Matrix, as_matrix

Labels = Tensor | np.ndarray
"""An integer for each token; only which are equal matters."""

FEWEST_PER_CLUSTER = 5
"""Tokens per cluster in each half, below which clusters are mostly noise."""

MASSES = 2.0 ** np.arange(-6, 25)
"""Candidates for the weight of the prior, in tokens. The last is as good as the prior alone."""

ROUNDING = 1e-12
"""Relative difference of two log-likelihoods that means nothing."""


class TokenInformation(NamedTuple):
    """Mutual information of input token and state, in nats, none clipped at 0."""

    plug_in: float
    """Of token and cluster, from their table of counts; biased upward by about `plug_in_floor`, less where
    the truth is large."""
    plug_in_floor: float
    """The same with the tokens shuffled among the occurrences, so that the truth is 0."""
    cross_fitted: float
    """Lower bound whose expectation does not exceed the truth."""
    cross_fitted_floor: float
    """The same with the tokens shuffled; next to 0."""
    n: int
    """Occurrences measured."""
    clusters: int
    """Clusters of the states."""


def token_information(
    states_ND: Matrix, tokens_N: Labels, sentences_N: Labels, *, clusters: int, seed: int
) -> TokenInformation:
    """Mutual information of the input token and its state, by k-means, with the chance level of each number.

    Three sets of `clusters` centres are fitted: on all tokens for `plug_in`, on either half of the
    sentences for `cross_fitted`. Equal seeds and sentences give equal halves, random draws and shuffles,
    so that layers and arms differ by their states alone. Select the tokens beforehand (`most_frequent`)
    and measure the same ones everywhere: every number depends on N, K and V.

    Raises:
        MeasureError: unfit or unequal arguments, fewer than two sentences, or fewer than five tokens per
            cluster in a half.
    """
    states_ND = as_matrix(states_ND, name="states", dtype=torch.float32).cpu().numpy()
    tokens_N, sentences_N = _labels(tokens_N, name="tokens"), _labels(sentences_N, name="sentences")
    _require_equal_lengths(states=states_ND, tokens=tokens_N, sentences=sentences_N)
    split, shuffle, *fits = np.random.default_rng(seed).spawn(5)
    half_N = fitting_halves(sentences_N, clusters=clusters, rng=split)
    clusters_N, *clusters_2N = [
        assign(states_ND, fit_clusters(states_ND[part], clusters=clusters, rng=rng))
        for part, rng in zip((slice(None), half_N == 0, half_N == 1), fits, strict=True)
    ]
    shuffled_N = shuffle.permutation(tokens_N)
    return TokenInformation(
        plug_in=plug_in(tokens_N, clusters_N),
        plug_in_floor=plug_in(shuffled_N, clusters_N),
        cross_fitted=cross_fitted(tokens_N, clusters_2N, sentences_N=sentences_N, half_N=half_N),
        cross_fitted_floor=cross_fitted(shuffled_N, clusters_2N, sentences_N=sentences_N, half_N=half_N),
        n=len(tokens_N),
        clusters=clusters,
    )


def plug_in(tokens_N: Labels, clusters_N: Labels) -> float:
    """Mutual information of two labellings, in nats, from their table of counts.

    0 to the smaller of the two entropies, up to rounding; symmetric, and the same however labels are
    named. It never rises when clusters are merged. Only cells that occur are held.

    Raises:
        MeasureError: labels that are no integers, none at all, or not equally many.
    """
    tokens_N, clusters_N = _labels(tokens_N, name="tokens"), _labels(clusters_N, name="clusters")
    _require_equal_lengths(tokens=tokens_N, clusters=clusters_N)
    token_count_V, cluster_count_K = np.bincount(tokens_N), np.bincount(clusters_N)
    cells, counts = np.unique(tokens_N * len(cluster_count_K) + clusters_N, return_counts=True)
    token, cluster = np.divmod(cells, len(cluster_count_K))
    lift = counts / token_count_V[token] * (len(tokens_N) / cluster_count_K[cluster])
    return float(counts @ np.log(lift) / len(tokens_N))


def cross_fitted(
    tokens_N: Labels, clusters_2N: Sequence[Labels], *, sentences_N: Labels, half_N: np.ndarray
) -> float:
    """Lower bound, in nats, of the mutual information of token and cluster; may come out negative.

    `half_N` says which half, 0 or 1, a token's sentence belongs to (`halves`), and `clusters_2N` holds all
    tokens' clusters twice, by the centres of half 0 and of half 1. p(token | cluster) is fitted on one
    half, with its own clusters, scored on the other, and the other way round.

    With q(t|c) the fit and t_i, c_i the n tokens and clusters it is scored on, a half's estimate is the mean
    over i of log q(t_i|c_i) / r(t_i), where r(t) = (q(t|c_1) + ... + q(t|c_n)) / n.

    The marginal r makes it a bound. The halves are independent, so q is fixed where it is scored. Were t
    drawn apart from all of c_1 ... c_n, these would be alike, and g = q(t|c_i) / r(t) would have the mean
    1, since over i it sums to n. So p(t) p(c_1) ... p(c_n) g is a distribution too, and the divergence from
    it of the true one, in which t belongs to c_i, is I(T; C) - E[log g] >= 0 (as in InfoNCE, van den Oord
    et al. 2018, https://arxiv.org/abs/1807.03748, appendix A). Hence E[estimate] <= I(T; C) <= I(T; state).
    The fitted half's own marginal m would break the bound: where each token has a cluster of its own it
    overshoots by KL(p || m). The scored half's counts would keep it, but charge 2 (V - 1) / N where
    clusters tell nothing and q = m; with r that case is 0. (Tokens of one sentence are not drawn apart, which
    shifts r by a share of sentence length / n.)

    What is lost below it is the price of fitting q. q(t|c) = (n_tc + a m(t)) / (n_c + a) shrinks toward
    m(t) = (n_t + 1/2) / (n + V/2), over the V types that occur in `tokens_N`; the weight a is the one of
    `MASSES` under which the fitting half best foretells each of its sentences from its others (the
    largest, if many do). To leave out less than a sentence would trust what a sentence says of itself.

    Raises:
        MeasureError: labels that are no integers or not equally many, halves that are not 0 and 1, or a
            sentence in both.
    """
    tokens_N, sentences_N = _labels(tokens_N, name="tokens"), _labels(sentences_N, name="sentences")
    _require_equal_lengths(tokens=tokens_N, sentences=sentences_N, halves=half_N)
    _require_whole_sentences(sentences_N, half_N)
    total = 0.0
    for half, labels_N in zip((0, 1), clusters_2N, strict=True):
        clusters_N = _labels(labels_N, name="clusters")
        _require_equal_lengths(tokens=tokens_N, clusters=clusters_N)
        channel = _fit_channel(tokens_N, clusters_N, sentences_N, fitted_N=half_N == half)
        scored_N = half_N != half
        total += _log_lift(channel, tokens_N[scored_N], clusters_N[scored_N]).sum()
    return float(total / len(tokens_N))


def halves(sentences_N: Labels, *, rng: np.random.Generator) -> np.ndarray:
    """0 or 1 for each token, whole sentences at random: as many sentences in either half, or one more in 0.

    What must not lie in both halves is a group: pass documents in place of sentences where these repeat
    each other.

    Raises:
        MeasureError: fewer than two sentences.
    """
    sentences_N = _labels(sentences_N, name="sentences")
    sentences = int(sentences_N.max()) + 1
    if sentences < 2:
        raise MeasureError("a split into halves needs at least 2 sentences, got 1. Use more text.")
    return (rng.permutation(sentences) % 2)[sentences_N]


def fitting_halves(sentences_N: Labels, *, clusters: int, rng: np.random.Generator) -> np.ndarray:
    """`halves` that can each fit the clusters.

    Raises:
        MeasureError: fewer than two sentences, or fewer than five tokens per cluster in a half.
    """
    half_N = halves(sentences_N, rng=rng)
    sizes = np.bincount(half_N, minlength=2)
    if sizes.min() < FEWEST_PER_CLUSTER * clusters:
        enough_for = sizes.min() // FEWEST_PER_CLUSTER
        raise MeasureError(
            f"{clusters} clusters need at least {FEWEST_PER_CLUSTER * clusters} tokens in each half of the "
            f"sentences ({FEWEST_PER_CLUSTER} per cluster), but the halves hold {sizes[0]} and {sizes[1]}. "
            f"Use more text{f' or at most {enough_for} clusters' if enough_for else ''}."
        )
    return half_N


def most_frequent(tokens_N: Labels, types: int) -> np.ndarray:
    """Which occurrences belong to the `types` most frequent ids; of equally frequent ids the lower ones.

    All of them where there are no more types than that.

    Raises:
        MeasureError: tokens that are no integers or none at all, or `types` below 1.
    """
    if types < 1:
        raise MeasureError(f"at least 1 type must be kept, but types is {types}.")
    tokens_N = _labels(tokens_N, name="tokens")
    by_count = np.argsort(-np.bincount(tokens_N), kind="stable")
    return np.isin(tokens_N, by_count[:types])


class _Channel(NamedTuple):
    """p(token | cluster), smoothed: the cells that were seen, and what stands in for the others."""

    cells: np.ndarray
    """token * K + cluster of each pair that was seen, ascending."""
    counts: np.ndarray
    """How often."""
    cluster_count_K: np.ndarray
    marginal_V: np.ndarray
    mass: float


def _fit_channel(
    tokens_N: np.ndarray, clusters_N: np.ndarray, sentences_N: np.ndarray, *, fitted_N: np.ndarray
) -> _Channel:
    types, clusters = tokens_N.max() + 1, clusters_N.max() + 1
    tokens_N, clusters_N, sentences_N = tokens_N[fitted_N], clusters_N[fitted_N], sentences_N[fitted_N]
    cells, counts = np.unique(tokens_N * clusters + clusters_N, return_counts=True)
    return _Channel(
        cells=cells,
        counts=counts,
        cluster_count_K=np.bincount(clusters_N, minlength=clusters),
        marginal_V=(np.bincount(tokens_N, minlength=types) + 0.5) / (len(tokens_N) + types / 2),
        mass=_best_mass(tokens_N, clusters_N, sentences_N, types=types),
    )


def _best_mass(tokens_N: np.ndarray, clusters_N: np.ndarray, sentences_N: np.ndarray, *, types: int) -> float:
    """The mass under which each sentence is best foretold by the others."""
    cells_N = tokens_N * (clusters_N.max() + 1) + clusters_N
    all_N = np.zeros_like(tokens_N)
    cell_N, cluster_N, token_N, any_N = (
        _count_elsewhere(labels_N, sentences_N) for labels_N in (cells_N, clusters_N, tokens_N, all_N)
    )
    marginal_N = (token_N + 0.5) / (any_N + types / 2)
    likelihoods = np.array([np.log((cell_N + mass * marginal_N) / (cluster_N + mass)).sum() for mass in MASSES])
    as_good = likelihoods >= likelihoods.max() - ROUNDING * np.abs(likelihoods).max()
    return float(MASSES[as_good].max())


def _count_elsewhere(labels_N: np.ndarray, sentences_N: np.ndarray) -> np.ndarray:
    """How often each token's label occurs in sentences other than its own."""
    labels_N = np.unique(labels_N, return_inverse=True)[1]
    _, own_N, own_count = np.unique(
        labels_N * (sentences_N.max() + 1) + sentences_N, return_inverse=True, return_counts=True
    )
    return np.bincount(labels_N)[labels_N] - own_count[own_N]


def _log_lift(channel: _Channel, tokens_N: np.ndarray, clusters_N: np.ndarray) -> np.ndarray:
    """log q(t|c) of each token less log r(t), r being the mean of q(t|.) over the clusters given."""
    clusters = len(channel.cluster_count_K)
    weight_K = 1 / (channel.cluster_count_K + channel.mass)
    wanted_N = tokens_N * clusters + clusters_N
    place_N = channel.cells.searchsorted(wanted_N).clip(max=len(channel.cells) - 1)
    count_N = np.where(channel.cells[place_N] == wanted_N, channel.counts[place_N], 0)
    prior_V = channel.mass * channel.marginal_V

    share_K = weight_K * np.bincount(clusters_N, minlength=clusters) / len(clusters_N)
    token, cluster = np.divmod(channel.cells, clusters)
    seen_V = np.bincount(token, channel.counts * share_K[cluster], minlength=len(prior_V))
    mixture_V = seen_V + prior_V * share_K.sum()
    return np.log((count_N + prior_V[tokens_N]) * weight_K[clusters_N] / mixture_V[tokens_N])


def _labels(values: Labels, *, name: str) -> np.ndarray:
    """0, 1, ... for the distinct values in their order."""
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iub":
        raise MeasureError(
            f"{name} must be a list of integers, one for each token, but they are {array.dtype} "
            f"of shape {array.shape}."
        )
    return np.unique(array, return_inverse=True)[1]


def _require_equal_lengths(**arrays: np.ndarray) -> None:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{length} {name}" for name, length in lengths.items())
        raise MeasureError(f"each token needs one of each, but there are {listed}.")


def _require_whole_sentences(sentences_N: np.ndarray, half_N: np.ndarray) -> None:
    values = np.unique(half_N).tolist()
    if values != [0, 1]:
        raise MeasureError(f"halves must be 0 and 1, both present, but are {values}.")
    both = np.intersect1d(sentences_N[half_N == 0], sentences_N[half_N == 1])
    if len(both):
        raise MeasureError(
            f"each sentence must lie in one half, but {len(both)} of {sentences_N.max() + 1} lie in both. "
            f"Split with `halves`."
        )
