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
    """The same with the tokens shuffled; a little below 0."""
    n: int
    """Occurrences measured."""
    clusters: int
    """Clusters of the states."""


def token_information(
    states_ND: Matrix, tokens_N: Labels, sentences_N: Labels, *, clusters: int, seed: int
) -> TokenInformation:
    """Mutual information of the input token and its state, by k-means, with the chance level of each number.

    Three sets of `clusters` centres are fitted: on all tokens for `plug_in`, on either half of the
    sentences for `cross_fitted`. Equal seeds and sentences give equal halves, first centres and shuffles,
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
    half_N = halves(sentences_N, rng=split)
    sizes = np.bincount(half_N, minlength=2)
    if sizes.min() < FEWEST_PER_CLUSTER * clusters:
        raise MeasureError(
            f"{clusters} clusters need at least {FEWEST_PER_CLUSTER * clusters} tokens in each half of the "
            f"sentences ({FEWEST_PER_CLUSTER} per cluster), but the halves hold {sizes[0]} and {sizes[1]}. "
            f"Use more text or at most {sizes.min() // FEWEST_PER_CLUSTER} clusters."
        )
    clusters_N, *clusters_2N = (
        assign(states_ND, fit_clusters(states_ND[part], clusters=clusters, rng=rng))
        for part, rng in zip((slice(None), half_N == 0, half_N == 1), fits, strict=True)
    )
    shuffled_N = shuffle.permutation(tokens_N)
    return TokenInformation(
        plug_in=plug_in(tokens_N, clusters_N),
        plug_in_floor=plug_in(shuffled_N, clusters_N),
        cross_fitted=cross_fitted(tokens_N, clusters_2N, half_N),
        cross_fitted_floor=cross_fitted(shuffled_N, clusters_2N, half_N),
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


def cross_fitted(tokens_N: Labels, clusters_2N: Sequence[Labels], half_N: Labels) -> float:
    """Lower bound, in nats, of the mutual information of token and cluster; may come out negative.

    `half_N` says which half, 0 or 1, a token belongs to, and `clusters_2N` holds all tokens' clusters
    twice, by the centres of half 0 and of half 1. p(token | cluster) is fitted on one half, with its own
    clusters, scored on the other, and the other way round.

    Why it is a bound. Let q be the fit, and t and c tokens and clusters of the other half. The halves are
    independent, so that q is fixed where it is scored, and

        E[-log q(t|c)] = H(T|C) + E KL(p(.|c) || q(.|c)) >= H(T|C).

    The estimate is an entropy of the tokens less that cross-entropy, and the bound stands or falls with
    the entropy. The fitted half's own marginal m would break it: E[-log m(t)] = H(T) + KL(p || m) lies
    *above* H(T). The plug-in entropy of observed tokens lies below in expectation, entropy being concave,
    and expectations add up however dependent the parts are. Ours is that of all tokens, where it falls
    short by about (V - 1) / 2N only. Hence E[estimate] <= H(T) - H(T|C) = I(T; C) <= I(T; state).

    What is lost below it is the price of fitting q. q(t|c) = (n_tc + a m(t)) / (n_c + a) shrinks toward
    m(t) = (n_t + 1/2) / (n + V/2), over the V types that occur in `tokens_N`; the weight a is the one of
    `MASSES` with the largest leave-one-out likelihood in the fitting half. Where clusters tell nothing,
    q becomes m and the estimate about -1.5 (V - 1) / N.

    Raises:
        MeasureError: labels that are no integers, not equally many, or halves that are not 0 and 1.
    """
    tokens_N, half_N = _labels(tokens_N, name="tokens"), np.asarray(half_N)
    if set(np.unique(half_N)) != {0, 1}:
        raise MeasureError(f"halves must be 0 and 1, both present, but are {sorted(set(np.unique(half_N).tolist()))}.")
    log_likelihood = 0.0
    for half, clusters_N in enumerate(clusters_2N):
        clusters_N = _labels(clusters_N, name="clusters")
        _require_equal_lengths(tokens=tokens_N, clusters=clusters_N, halves=half_N)
        fitted_N = half_N == half
        channel = _fit_channel(tokens_N, clusters_N, fitted_N)
        log_likelihood += _log_probabilities(channel, tokens_N[~fitted_N], clusters_N[~fitted_N]).sum()
    share_V = np.bincount(tokens_N) / len(tokens_N)
    return float(log_likelihood / len(tokens_N) - share_V @ np.log(share_V))


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


def _fit_channel(tokens_N: np.ndarray, clusters_N: np.ndarray, fitted_N: np.ndarray) -> _Channel:
    """Counts of the fitted tokens, and the mass under which each is best foretold by the others."""
    types, clusters = tokens_N.max() + 1, clusters_N.max() + 1
    tokens_N, clusters_N = tokens_N[fitted_N], clusters_N[fitted_N]
    token_count_V = np.bincount(tokens_N, minlength=types)
    cluster_count_K = np.bincount(clusters_N, minlength=clusters)
    cells, counts = np.unique(tokens_N * clusters + clusters_N, return_counts=True)
    token, cluster = np.divmod(cells, clusters)
    # A token is in neither the counts nor the marginal that foretell it, or the prior would look too good.
    prior = (token_count_V[token] - 0.5) / (len(tokens_N) - 1 + types / 2)
    likelihoods = [
        counts @ np.log((counts - 1 + mass * prior) / (cluster_count_K[cluster] - 1 + mass)) for mass in MASSES
    ]
    return _Channel(
        cells=cells,
        counts=counts,
        cluster_count_K=cluster_count_K,
        marginal_V=(token_count_V + 0.5) / (len(tokens_N) + types / 2),
        mass=float(MASSES[np.argmax(likelihoods)]),
    )


def _log_probabilities(channel: _Channel, tokens_N: np.ndarray, clusters_N: np.ndarray) -> np.ndarray:
    wanted_N = tokens_N * len(channel.cluster_count_K) + clusters_N
    place_N = channel.cells.searchsorted(wanted_N).clip(max=len(channel.cells) - 1)
    count_N = np.where(channel.cells[place_N] == wanted_N, channel.counts[place_N], 0)
    prior_N = channel.mass * channel.marginal_V[tokens_N]
    return np.log((count_N + prior_N) / (channel.cluster_count_K[clusters_N] + channel.mass))


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
