"""Mutual information of a layer and a label of its tokens, in nats.

Source: Voita, Sennrich & Titov 2019, https://arxiv.org/abs/1909.01380, section 4. States are discretised by
k-means, and the information between token and cluster is read from their table of counts. We report that
estimate (`plug_in`) because the paper does. Beside it stands a lower bound (`cross_fitted`) to draw
conclusions from. The label may be the token that is read, a neighbour, or the token to be predicted.

Shapes: N tokens, D features.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ablations.errors import MeasureError
from ablations.measures.information.plug_in import (
    Estimate,
    Labels,
    Points,
    Table,
    as_labels,
    each_block,
    plug_in,
    plug_in_estimate,
    require_equal_lengths,
)
from ablations.measures.jackknife import sentence_blocks
from ablations.measures.similarity.sides import Matrix

FEWEST_PER_CLUSTER = 5
"""Smallest number of tokens per cluster in each half. With fewer, clusters are mostly noise."""

PRIOR_WEIGHTS = 2.0 ** np.arange(-6, 25)
"""Candidates for the weight of the prior, in tokens. The last is as good as the prior alone."""

ROUNDING = 1e-12
"""Relative difference of two log-likelihoods that is only rounding."""


def cross_fitted(
    tokens_N: Labels, clusters_2N: Sequence[Labels], *, sentences_N: Labels, half_N: np.ndarray
) -> float:
    """Return a lower bound, in nats, of the mutual information of token and cluster. It may be negative.

    `half_N` says which half, 0 or 1, a token's sentence belongs to (`halves`). `clusters_2N` holds all
    tokens' clusters twice: by the centres of half 0 and by those of half 1. p(token | cluster) is fitted on
    one half, with its own clusters, and scored on the other half. Then the halves change places.

    Let q(t|c) be the fit, and t_i, c_i the n tokens and clusters that it is scored on. A half's estimate is
    the mean over i of log q(t_i|c_i) / r(t_i), where r(t) = (q(t|c_1) + ... + q(t|c_n)) / n.

    The marginal r makes it a bound. The halves are independent, so q is fixed where it is scored. If t were
    drawn independently of all of c_1 ... c_n, these would be exchangeable, and g = q(t|c_i) / r(t) would have
    the mean 1, because it sums to n over i. So p(t) p(c_1) ... p(c_n) g is a distribution too. The true
    distribution, in which t belongs to c_i, diverges from it by I(T; C) - E[log g] >= 0 (as in InfoNCE, van
    den Oord et al. 2018, https://arxiv.org/abs/1807.03748, appendix A). Hence E[estimate] <= I(T; C) <= I(T;
    state). The fitted half's own marginal m would break the bound: if each token has a cluster of its own, it
    overshoots by KL(p || m). The scored half's counts would keep the bound, but cost 2 (V - 1) / N if
    clusters have no information and q = m; with r the estimate is then 0. (Tokens of one sentence are not
    drawn independently, which shifts r by a share of sentence length / n.)

    The gap below the bound is the price of fitting q. q(t|c) = (n_tc + a m(t)) / (n_c + a) shrinks toward
    m(t) = (n_t + 1/2) / (n + V/2), over the V types that occur in `tokens_N`. The weight a is the one of
    `PRIOR_WEIGHTS` under which the fitting half best predicts each of its sentences from its others (the
    largest, if several are as good). Smaller parts than sentences are not left out, because the rest of a
    sentence has information about them.

    Raises:
        MeasureError: labels that are no integers or not equally many, halves that are not 0 and 1, or a
            sentence in both.
    """
    folds = _folds(tokens_N, clusters_2N, sentences_N, half_N)
    return sum(_log_lift(fold, fold.fitted_C, fold.scored_C) for fold in folds) / len(half_N)


def cross_fitted_estimate(
    tokens_N: Labels,
    clusters_2N: Sequence[Labels],
    *,
    sentences_N: Labels,
    half_N: np.ndarray,
    blocks_N: np.ndarray,
) -> Estimate:
    """Return `cross_fitted`, and its values without block 0, without block 1, ... of the text.

    A block is left out of both halves, for fitting and for scoring. The clusters, the weight of the prior and
    V stay those of the whole text. A value is NaN if its block holds a whole half.

    Raises:
        MeasureError: as for `cross_fitted`.
    """
    folds = _folds(tokens_N, clusters_2N, sentences_N, half_N)
    require_equal_lengths(halves=half_N, blocks=blocks_N)
    value = sum(_log_lift(fold, fold.fitted_C, fold.scored_C) for fold in folds) / len(half_N)
    left_out: list[float] = []
    for block_N in each_block(blocks_N):
        total = 0.0
        for half, fold in enumerate(folds):
            fitted_C = fold.fitted_C - fold.table.counts(block_N & (half_N == half))
            scored_C = fold.scored_C - fold.table.counts(block_N & (half_N != half))
            total += _log_lift(fold, fitted_C, scored_C)
        left_out.append(total / (len(half_N) - np.count_nonzero(block_N)))
    return Estimate(value, left_out)


def halves(sentences_N: Labels, *, rng: np.random.Generator) -> np.ndarray:
    """Return the half of each token, 0 or 1: whole sentences at random, as many in either half, or one more
    in half 0.

    If sentences of a document repeat each other, pass documents in place of sentences, so that a document
    lies in one half.

    Raises:
        MeasureError: fewer than two sentences.
    """
    sentences_N = as_labels(sentences_N, name="sentences")
    sentences = int(sentences_N.max()) + 1
    if sentences < 2:
        raise MeasureError("a split into halves needs at least 2 sentences, got 1; use more text.")
    return (rng.permutation(sentences) % 2)[sentences_N]


def fitting_halves(sentences_N: Labels, *, clusters: int, rng: np.random.Generator) -> np.ndarray:
    """Return `halves` that each have enough tokens to fit the clusters.

    Raises:
        MeasureError: fewer than two sentences, or fewer than five tokens per cluster in a half.
    """
    half_N = halves(sentences_N, rng=rng)
    sizes = np.bincount(half_N, minlength=2)
    if sizes.min() < FEWEST_PER_CLUSTER * clusters:
        enough_for = sizes.min() // FEWEST_PER_CLUSTER
        raise MeasureError(
            f"each half of the sentences needs at least {FEWEST_PER_CLUSTER} tokens per cluster, "
            f"{FEWEST_PER_CLUSTER * clusters} with clusters = {clusters}, but the halves hold {sizes[0]} and "
            f"{sizes[1]}; give more tokens{f', or lower clusters to at most {enough_for}' if enough_for else ''}."
        )
    return half_N


class _Fold(NamedTuple):
    """Counts of the half that p(token | cluster) is fitted on and of the half that is scored, in the first
    half's clusters."""

    table: Table
    fitted_C: np.ndarray
    """Number of occurrences of each pair in the half that is fitted on."""
    scored_C: np.ndarray
    mass: float
    """Weight of the prior, in tokens."""
    types: int


def _folds(
    tokens_N: Labels, clusters_2N: Sequence[Labels], sentences_N: Labels, half_N: np.ndarray
) -> list[_Fold]:
    tokens_N, sentences_N = as_labels(tokens_N, name="tokens"), as_labels(sentences_N, name="sentences")
    require_equal_lengths(tokens=tokens_N, sentences=sentences_N, halves=half_N)
    _require_whole_sentences(sentences_N, half_N)
    types = int(tokens_N.max()) + 1
    folds = []
    for half, labels_N in zip((0, 1), clusters_2N, strict=True):
        clusters_N = as_labels(labels_N, name="clusters")
        require_equal_lengths(tokens=tokens_N, clusters=clusters_N)
        table, fitted_N = Table.of(tokens_N, clusters_N), half_N == half
        mass = _best_mass(tokens_N[fitted_N], clusters_N[fitted_N], sentences_N[fitted_N], types=types)
        folds.append(_Fold(table, table.counts(fitted_N), table.counts(~fitted_N), mass, types))
    return folds


def _log_lift(fold: _Fold, fitted_C: np.ndarray, scored_C: np.ndarray) -> float:
    """Return the sum of log q(t|c) / r(t) over the scored tokens; NaN if no token is fitted on or none is
    scored."""
    if not fitted_C.any() or not scored_C.any():
        return float("nan")
    token_C, cluster_C = fold.table.token_C, fold.table.cluster_C
    fitted_V, scored_V = (np.bincount(token_C, count_C, fold.types) for count_C in (fitted_C, scored_C))
    fitted_K, scored_K = np.bincount(cluster_C, fitted_C), np.bincount(cluster_C, scored_C)
    prior_V = fold.mass * (fitted_V + 0.5) / (fitted_V.sum() + fold.types / 2)
    weight_K = 1 / (fitted_K + fold.mass)
    log_q_C = np.log((fitted_C + prior_V[token_C]) * weight_K[cluster_C])
    share_K = weight_K * scored_K / scored_K.sum()
    r_V = np.bincount(token_C, fitted_C * share_K[cluster_C], fold.types) + prior_V * share_K.sum()
    return float(scored_C @ log_q_C - scored_V @ np.log(r_V))


def _best_mass(tokens_N: np.ndarray, clusters_N: np.ndarray, sentences_N: np.ndarray, *, types: int) -> float:
    """Return the weight of the prior under which each sentence is best predicted by the others."""
    cells_N = tokens_N * (clusters_N.max() + 1) + clusters_N
    all_N = np.zeros_like(tokens_N)
    cell_N, cluster_N, token_N, any_N = (
        _count_elsewhere(labels_N, sentences_N) for labels_N in (cells_N, clusters_N, tokens_N, all_N)
    )
    marginal_N = (token_N + 0.5) / (any_N + types / 2)
    likelihoods = np.array(
        [np.log((cell_N + mass * marginal_N) / (cluster_N + mass)).sum() for mass in PRIOR_WEIGHTS]
    )
    as_good = likelihoods >= likelihoods.max() - ROUNDING * np.abs(likelihoods).max()
    return float(PRIOR_WEIGHTS[as_good].max())


def _count_elsewhere(labels_N: np.ndarray, sentences_N: np.ndarray) -> np.ndarray:
    """Return the number of occurrences of each token's label in other sentences."""
    labels_N = np.unique(labels_N, return_inverse=True)[1]
    _, own_N, own_count = np.unique(
        labels_N * (sentences_N.max() + 1) + sentences_N, return_inverse=True, return_counts=True
    )
    return np.bincount(labels_N)[labels_N] - own_count[own_N]


def _require_whole_sentences(sentences_N: np.ndarray, half_N: np.ndarray) -> None:
    values = np.unique(half_N).tolist()
    if values != [0, 1]:
        raise MeasureError(f"halves must have the values 0 and 1, each at least once, but has {values}.")
    both = np.intersect1d(sentences_N[half_N == 0], sentences_N[half_N == 1])
    if len(both):
        raise MeasureError(
            f"each sentence must be in one half, but {len(both)} of {sentences_N.max() + 1} sentences are in "
            "both; split the text with `halves`."
        )


class TokenInformation(NamedTuple):
    """Mutual information of a token's label and its state, in nats. No number is clipped at 0."""

    plug_in: float
    """Estimate from the table of counts of label and cluster. It is biased upward by about `plug_in_floor`,
    and by less if the truth is large."""
    plug_in_floor: float
    """Plug-in estimate with the labels shuffled among the occurrences. The truth is then 0."""
    plug_in_left_out: list[float]
    """`plug_in` without each of ten blocks of the text. They show how far the estimate would move on another
    text, with the same bias."""
    cross_fitted: float
    """Lower bound. Its expectation does not exceed the truth."""
    cross_fitted_floor: float
    """Cross-fitted estimate with the labels shuffled. It is close to 0."""
    cross_fitted_left_out: list[float]
    """`cross_fitted` without each of ten blocks of the text; NaN for a block that holds a whole half."""
    n: int
    """Number of occurrences measured."""
    clusters: int
    """Number of clusters of the states."""


class Clusters(NamedTuple):
    """Clusters of states. They do not depend on the labels that are asked about."""

    half_N: np.ndarray
    """Half of each token, 0 or 1: whole sentences at random."""
    all_N: np.ndarray
    """Cluster of each token by centres that were fitted on all tokens."""
    by_half_2N: tuple[np.ndarray, np.ndarray]
    """Cluster of each token by centres that were fitted on half 0, and on half 1."""


def clusters_of(states_ND: Matrix, sentences_N: Labels, *, clusters: int, seed: int) -> Clusters:
    """Return the clusters of states by three sets of `clusters` centres: fitted on all tokens, and on either
    half of the sentences.

    Equal seeds and sentences give equal halves and random draws. States on a GPU are clustered there. Equal
    seeds give equal clusters on the same device.

    Raises:
        MeasureError: arguments that are unfit or of unequal lengths, fewer than two sentences, or fewer than
            five tokens per cluster in a half.
    """
    points = Points(states_ND)
    sentences_N = as_labels(sentences_N, name="sentences")
    require_equal_lengths(states=points.x_ND, sentences=sentences_N)
    split, _, *fits = np.random.default_rng(seed).spawn(5)
    half_N = fitting_halves(sentences_N, clusters=clusters, rng=split)
    all_N, first_N, second_N = [
        points.assign(points.fit(clusters=clusters, rng=rng, among=among)).cpu().numpy()
        for among, rng in zip((None, np.flatnonzero(half_N == 0), np.flatnonzero(half_N == 1)), fits, strict=True)
    ]
    return Clusters(half_N, all_N, (first_N, second_N))


def information_of(
    clustered: Clusters, labels_N: Labels, sentences_N: Labels, *, clusters: int, seed: int
) -> TokenInformation:
    """Return the mutual information of a label of tokens and their clusters, with chance levels.

    The clusters of all tokens are for `plug_in`, those by either half for `cross_fitted`. Equal seeds give
    equal shuffles, so layers and arms differ only by their states. Select the tokens beforehand
    (`most_frequent`) and measure the same tokens everywhere. If labels are compared, measure equally many
    tokens: every number depends on N, K and the number of different labels.

    Errors are by a jackknife over ten blocks of neighbouring sentences (in the order of `sentences_N`), with
    the clusters and the weight of the prior of the whole text. They do not include how these would change
    with the text. If clusters are clearly apart, they would not change. For types that overlap in 20
    dimensions, estimates on fresh texts spread 1.3 to 1.5 times as far as these errors say. In 300 dimensions
    it is about 3 times (plug-in) and 2 to 3 times (cross-fitted).

    Raises:
        MeasureError: arguments that are unfit or of unequal lengths.
    """
    half_N, clusters_N, clusters_2N = clustered
    labels_N, sentences_N = as_labels(labels_N, name="labels"), as_labels(sentences_N, name="sentences")
    require_equal_lengths(clusters=clusters_N, labels=labels_N, sentences=sentences_N)
    _, shuffle = np.random.default_rng(seed).spawn(2)
    blocks_N = blocks_of(sentences_N)
    shuffled_N = shuffle.permutation(labels_N)
    whole = plug_in_estimate(labels_N, clusters_N, blocks_N=blocks_N)
    bound = cross_fitted_estimate(labels_N, clusters_2N, sentences_N=sentences_N, half_N=half_N, blocks_N=blocks_N)
    return TokenInformation(
        plug_in=whole.value,
        plug_in_floor=plug_in(shuffled_N, clusters_N),
        plug_in_left_out=whole.left_out,
        cross_fitted=bound.value,
        cross_fitted_floor=cross_fitted(shuffled_N, clusters_2N, sentences_N=sentences_N, half_N=half_N),
        cross_fitted_left_out=bound.left_out,
        n=len(labels_N),
        clusters=clusters,
    )


def most_frequent(labels_N: Labels, types: int) -> np.ndarray:
    """Return which occurrences have one of the `types` most frequent labels. Ties go to the lower label.

    Returns all occurrences if there are `types` labels or fewer.

    Raises:
        MeasureError: labels that are no integers or none at all, or `types` below 1.
    """
    if types < 1:
        raise MeasureError(f"types must be at least 1, but is {types}.")
    labels_N = as_labels(labels_N, name="labels")
    by_count = np.argsort(-np.bincount(labels_N), kind="stable")
    return np.isin(labels_N, by_count[:types])


def smaller_half(sentences_N: Labels, *, seed: int) -> int:
    """Return the number of tokens in the smaller of the two halves that `clusters_of` makes of these sentences.

    Raises:
        MeasureError: fewer than two sentences.
    """
    (split,) = np.random.default_rng(seed).spawn(1)
    return int(np.bincount(halves(sentences_N, rng=split), minlength=2).min())


def require_fitting(sentences_N: Labels, *, clusters: int, seed: int) -> None:
    """Raise a MeasureError for sentences that `clusters_of` would refuse: fewer than two, or fewer than five
    tokens per cluster in a half."""
    (split,) = np.random.default_rng(seed).spawn(1)
    fitting_halves(sentences_N, clusters=clusters, rng=split)


def blocks_of(sentences_N: np.ndarray) -> np.ndarray:
    """Return the block of each token, for tokens in any order."""
    order = sentences_N.argsort(kind="stable")
    blocks_N = np.empty_like(sentences_N)
    blocks_N[order] = sentence_blocks(sentences_N[order])
    return blocks_N
