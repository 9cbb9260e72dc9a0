"""k-means for a thousand clusters, quick enough to be fitted anew for every layer of every run.

States are used as they are: no column is standardised, since the variance of a direction says how much
of the layer it is. Translation and overall scale do not matter.

Shapes: N tokens, D features, K clusters. float32 inside.
"""

import math

import numpy as np
import torch
from scipy.sparse import csr_array

from ablations.errors import MeasureError
from ablations.measures.matrices import Matrix, as_matrix

PASSES = 4
"""Lloyd passes over all tokens."""

ROUNDS = 20
"""Rounds of seeding."""

BLOCK = 2**20
"""Scores held at once, 4 MB: larger blocks leave the cache and are slower."""


def fit_clusters(states_ND: Matrix, *, clusters: int, rng: np.random.Generator) -> np.ndarray:
    """Centres, K x D, that make the squared distances of the states to the nearest centre small.

    Seeding is k-means++ (Arthur & Vassilvitskii 2007, section 2.2) in `ROUNDS` rounds, as in k-means||
    (Bahmani et al. 2012, section 3.3): a round draws its share of the centres at once, with chances by
    squared distance to the centres of earlier rounds; up to 20 clusters it is k-means++ itself. Then come
    `PASSES` passes of Lloyd's algorithm, in which a cluster without tokens keeps its centre. Where the
    states have fewer than K different rows, centres repeat.

    Raises:
        MeasureError: states that are no finite matrix, or `clusters` not from 1 to N.
    """
    x_ND = _as_array(states_ND, name="states")
    if not 1 <= clusters <= len(x_ND):
        raise MeasureError(
            f"k-means can make 1 to {len(x_ND)} clusters of {len(x_ND)} tokens, but clusters is {clusters}."
        )
    shift_D, scale = _frame(x_ND)
    x_ND = (x_ND - shift_D) / scale
    centres_KD = _seeds(x_ND, clusters, rng)
    for _ in range(PASSES):
        labels_N, _ = _nearest(x_ND, centres_KD)
        centres_KD = _means(x_ND, labels_N, centres_KD)
    return centres_KD * scale + shift_D


def assign(states_ND: Matrix, centres_KD: Matrix) -> np.ndarray:
    """Index of the nearest centre of each state, N of int64; the first where several are equally near.

    Raises:
        MeasureError: an argument is no finite matrix, or their widths differ.
    """
    x_ND, c_KD = _as_array(states_ND, name="states"), _as_array(centres_KD, name="centres")
    if x_ND.shape[1] != c_KD.shape[1]:
        raise MeasureError(
            f"states of {x_ND.shape[1]} features cannot be assigned to centres of {c_KD.shape[1]}. "
            f"Take both from the same layer."
        )
    shift_D, scale = _frame(c_KD)
    return _nearest((x_ND - shift_D) / scale, (c_KD - shift_D) / scale)[0]


def _as_array(values: Matrix, *, name: str) -> np.ndarray:
    return as_matrix(values, name=name, dtype=torch.float32).cpu().numpy()


def _frame(x_ND: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """Origin and unit in which float32 squares are precise: states may lie far from 0."""
    shift_D = x_ND.mean(0, dtype=np.float64).astype(np.float32)
    scale = np.abs(x_ND - shift_D).max()
    return shift_D, scale if scale > 0 else np.float32(1)


def _seeds(x_ND: np.ndarray, clusters: int, rng: np.random.Generator) -> np.ndarray:
    a_round = math.ceil(clusters / ROUNDS)
    centres_KD = x_ND[rng.integers(len(x_ND), size=1)]
    _, distance_N = _nearest(x_ND, centres_KD)
    while (missing := clusters - len(centres_KD)) > 0:
        cumulative_N = distance_N.cumsum(dtype=np.float64)
        draws = rng.random(min(a_round, missing)) * cumulative_N[-1]
        drawn_KD = x_ND[cumulative_N.searchsorted(draws)]
        np.minimum(distance_N, _nearest(x_ND, drawn_KD)[1], out=distance_N)
        centres_KD = np.concatenate([centres_KD, drawn_KD])
    return centres_KD


def _nearest(x_ND: np.ndarray, centres_KD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of the nearest centre and the squared distance to it: |x - c|^2 = |x|^2 - 2 (xc - |c|^2 / 2)."""
    half_length_K = (centres_KD**2).sum(1) / 2
    labels_N = np.empty(len(x_ND), np.int64)
    score_N = np.empty(len(x_ND), np.float32)
    rows = max(1, BLOCK // len(centres_KD))
    for start in range(0, len(x_ND), rows):
        block = slice(start, start + rows)
        scores_NK = x_ND[block] @ centres_KD.T
        scores_NK -= half_length_K
        labels_N[block] = scores_NK.argmax(1)
        score_N[block] = np.take_along_axis(scores_NK, labels_N[block, None], 1)[:, 0]
    return labels_N, (np.einsum("nd,nd->n", x_ND, x_ND) - 2 * score_N).clip(min=0)


def _means(x_ND: np.ndarray, labels_N: np.ndarray, centres_KD: np.ndarray) -> np.ndarray:
    """Mean of each cluster's states; where there are none, the old centre."""
    tokens = np.arange(len(x_ND) + 1)
    one_hot_NK = csr_array((np.ones_like(x_ND[:, 0]), labels_N, tokens), shape=(len(x_ND), len(centres_KD)))
    size_K = np.bincount(labels_N, minlength=len(centres_KD))[:, None]
    return np.where(size_K > 0, one_hot_NK.T @ x_ND / size_K.clip(min=1), centres_KD).astype(np.float32)
