"""Trees over the words of a sentence without direction: from scores, by chance, and how many edges they share.

UUAS (undirected unlabelled attachment score) is the share of gold edges that a tree has, over all edges of all
sentences. No torch. Letters: W words, S sentences, G resamplings.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import minimum_spanning_tree

from ablations.tasks.gold_trees import Edge
from lightning_modules.randomness import derive

NEIGHBOUR_BONUS = 1e-4
"""Added to the score of neighbours: of equals they win, so that scores without information give the adjacency
chain. The value of Zhang & Hashimoto 2021."""
RESAMPLINGS = 2000


def maximum_spanning_tree(score_WW: NDArray[np.float64]) -> frozenset[Edge]:
    """The tree with the largest sum of scores; of the two scores of a pair the larger counts."""
    both_WW = np.maximum(score_WW, score_WW.T).astype(np.float64)
    words = np.arange(len(both_WW))
    both_WW += NEIGHBOUR_BONUS * (abs(words[:, None] - words) == 1)
    # Distances from 1 on: scipy takes 0 for no edge.
    distance_WW = np.triu(both_WW.max() - both_WW + 1, k=1)
    first, second = minimum_spanning_tree(distance_WW).nonzero()
    return frozenset((min(a, b), max(a, b)) for a, b in zip(first.tolist(), second.tolist(), strict=True))


def adjacency_chain(words: int) -> frozenset[Edge]:
    """Each word and the next one."""
    return frozenset((i, i + 1) for i in range(words - 1))


def expected_at_random(edges: int, words: int) -> float:
    """How many of some edges a tree has on average that is drawn uniformly from all trees over the words: it has
    `words` - 1 of words (words - 1) / 2 pairs, each with the same probability."""
    return edges * 2 / words


def resampled(right_S: NDArray[Any], edges_S: NDArray[np.integer]) -> NDArray[np.float64]:
    """Sum of the first over sum of the second on sentences drawn with replacement, G times; the same sentences
    whatever the numbers are, so that what parsers do on them can be subtracted."""
    S = len(edges_S)
    drawn_GS = np.random.default_rng(derive(0, "sentences")).multinomial(S, np.full(S, 1 / S), size=RESAMPLINGS)
    return drawn_GS @ right_S / (drawn_GS @ edges_S)
