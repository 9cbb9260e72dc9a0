"""Mutual information of a layer and a label of its tokens, in nats.

Voita, Sennrich & Titov 2019, https://arxiv.org/abs/1909.01380, section 4: states are discretised by
k-means and the information between token and cluster is read from their table of counts. We report that
estimate (`plug_in`) because the paper does, and beside it a bound from below (`cross_fitted`) to draw
conclusions from. The label may be the token that is read, a neighbour, or what is to be predicted.

Shapes: N tokens, D features.
"""

from typing import NamedTuple

import numpy as np

from ablations.errors import MeasureError
from ablations.measures.information.cross_fitted import cross_fitted, cross_fitted_estimate, fitting_halves, halves
from ablations.measures.information.kmeans import Points
from ablations.measures.information.plug_in import (
    Labels,
    as_labels,
    plug_in,
    plug_in_estimate,
    require_equal_lengths,
)
from ablations.measures.jackknife import sentence_blocks
from ablations.measures.similarity.sides import Matrix


class TokenInformation(NamedTuple):
    """Mutual information of a token's label and its state, in nats, none clipped at 0."""

    plug_in: float
    """Estimate for label and cluster from their table of counts; biased upward by about `plug_in_floor`, less
    where the truth is large."""
    plug_in_floor: float
    """Plug-in estimate with the labels shuffled among the occurrences, so that the truth is 0."""
    plug_in_left_out: list[float]
    """`plug_in` without each of ten blocks of the text: how far it would move on another text, its bias alike."""
    cross_fitted: float
    """Lower bound whose expectation does not exceed the truth."""
    cross_fitted_floor: float
    """Cross-fitted estimate with the labels shuffled; close to 0."""
    cross_fitted_left_out: list[float]
    """`cross_fitted` without each of ten blocks of the text; NaN without one that holds a whole half."""
    n: int
    """Occurrences measured."""
    clusters: int
    """Clusters of the states."""


def token_information(
    states_ND: Matrix, labels_N: Labels, sentences_N: Labels, *, clusters: int, seed: int
) -> TokenInformation:
    """Return the mutual information of a label of tokens and their states, by k-means, with the chance level of
    each number.

    Three sets of `clusters` centres are fitted: on all tokens for `plug_in`, on either half of the
    sentences for `cross_fitted`. Equal seeds and sentences give equal halves, random draws and shuffles,
    so that layers and arms differ by their states alone. Select the tokens beforehand (`most_frequent`)
    and measure the same ones everywhere, and as many where labels are compared: every number depends on N,
    K and the number of different labels.

    Errors are by a jackknife over ten blocks of neighbouring sentences (by the order of
    `sentences_N`), under the clusters and the weight of the prior of the whole text: how these would change
    with the text is not in them. Where clusters are plain that is nothing; on types that overlap in 20 dimensions
    fresh texts spread 1.3 to 1.5 times as far as these errors say, in 300 dimensions about 3 (plug-in) and 2 to 3
    times (cross-fitted).

    States on a GPU are clustered there; equal seeds give equal numbers on the same device.

    Raises:
        MeasureError: unfit or unequal arguments, fewer than two sentences, or fewer than five tokens per
            cluster in a half.
    """
    points = Points(states_ND)
    labels_N, sentences_N = as_labels(labels_N, name="labels"), as_labels(sentences_N, name="sentences")
    require_equal_lengths(states=points.x_ND, labels=labels_N, sentences=sentences_N)
    split, shuffle, *fits = np.random.default_rng(seed).spawn(5)
    half_N = fitting_halves(sentences_N, clusters=clusters, rng=split)
    blocks_N = blocks_of(sentences_N)
    clusters_N, *clusters_2N = [
        points.assign(points.fit(clusters=clusters, rng=rng, among=among)).cpu().numpy()
        for among, rng in zip((None, np.flatnonzero(half_N == 0), np.flatnonzero(half_N == 1)), fits, strict=True)
    ]
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
    """Return which occurrences belong to the `types` most frequent labels; of equally frequent ones the lower.

    All of them where there are no more types than that.

    Raises:
        MeasureError: labels that are no integers or none at all, or `types` below 1.
    """
    if types < 1:
        raise MeasureError(f"at least 1 type must be kept, but types is {types}.")
    labels_N = as_labels(labels_N, name="labels")
    by_count = np.argsort(-np.bincount(labels_N), kind="stable")
    return np.isin(labels_N, by_count[:types])


def smaller_half(sentences_N: Labels, *, seed: int) -> int:
    """Return the number of tokens in the smaller one of the halves that `token_information` makes of these
    sentences.

    Raises:
        MeasureError: fewer than two sentences.
    """
    (split,) = np.random.default_rng(seed).spawn(1)
    return int(np.bincount(halves(sentences_N, rng=split), minlength=2).min())


def require_fitting(sentences_N: Labels, *, clusters: int, seed: int) -> None:
    """Refuse sentences that `token_information` would refuse.

    Raises:
        MeasureError: fewer than two sentences, or fewer than five tokens per cluster in a half.
    """
    (split,) = np.random.default_rng(seed).spawn(1)
    fitting_halves(sentences_N, clusters=clusters, rng=split)


def blocks_of(sentences_N: np.ndarray) -> np.ndarray:
    """Return the block of each token, in whatever order the tokens come."""
    order = sentences_N.argsort(kind="stable")
    blocks_N = np.empty_like(sentences_N)
    blocks_N[order] = sentence_blocks(sentences_N[order])
    return blocks_N
