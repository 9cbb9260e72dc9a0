"""k-means for a thousand clusters, quick enough to be fitted anew for every layer of every run.

The start decides more than the passes. On the top layer of a small masked LM (50,000 tokens, 64 features,
1,000 clusters) the mean squared distance to the nearest centre is, as a share of the variance, .155 after 50
passes from random states, .127 after 50 from k-means++, .176 by scikit-learn's MiniBatchKMeans, and .118 by
ours, in a tenth of the time of the first two. The information follows: 5.15, 5.36, 5.06 and 5.48 nats.

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

ROUNDS = 20
"""Rounds of seeding, each of which finds as many centres."""

CANDIDATES = 8
"""Candidates for each centre."""

SAMPLE = 5
"""Tokens per cluster that the centres are first sought in, and never fewer than 1,000 clusters would have."""

PASSES = 3
"""Lloyd passes for 1,000 clusters or more; fewer clusters get as many as cost the same, up to 50."""

BLOCK = 2**20
"""Scores held at once, 4 MB: larger blocks leave the cache and are slower."""


def fit_clusters(states_ND: Matrix, *, clusters: int, rng: np.random.Generator) -> np.ndarray:
    """Centres, K x D, that make the squared distances of the states to the nearest centre small.

    Seeding is greedy k-means++ (Arthur & Vassilvitskii 2007, sections 2.2 and 7) on a sample, in rounds, as
    the paper's one centre at a time is slow: a round draws eight candidates for each of its centres, with
    chances by squared distance to the centres of earlier rounds, and keeps those that take most distance
    off the tokens they are nearest to. Then come passes of Lloyd's algorithm over all tokens, in which a
    cluster without tokens keeps its centre. Where the states have fewer than K different rows, centres
    repeat.

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
    for _ in range(max(PASSES, min(50, 1000 * PASSES // clusters))):
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
    tokens = min(len(x_ND), SAMPLE * max(clusters, 1000))
    x_ND = x_ND[rng.choice(len(x_ND), tokens, replace=False)]
    centres_KD = x_ND[:1]
    _, distance_N = _nearest(x_ND, centres_KD)
    while (missing := clusters - len(centres_KD)) > 0:
        wanted = min(math.ceil(clusters / ROUNDS), missing)
        cumulative_N = distance_N.cumsum(dtype=np.float64)
        drawn = cumulative_N.searchsorted(rng.random(CANDIDATES * wanted) * cumulative_N[-1])
        labels_N, new_distance_N = _nearest(x_ND, x_ND[drawn])
        gain = np.bincount(labels_N, (distance_N - new_distance_N).clip(min=0), minlength=len(drawn))
        kept_KD = x_ND[drawn[np.argsort(-gain, kind="stable")[:wanted]]]
        np.minimum(distance_N, _nearest(x_ND, kept_KD)[1], out=distance_N)
        centres_KD = np.concatenate([centres_KD, kept_KD])
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
