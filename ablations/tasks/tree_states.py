"""The states of the words of sentences with trees, and how far the words are from each other in the tree.

Letters: B sentences, T positions, W words, L + 1 layers, D width.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

from ablations.measures.alignment import NO_WORD
from ablations.tasks.encoding import FIRST, SPECIAL, Row, Rows, encode_batch
from ablations.tasks.gold_trees import Edge, GoldTree
from lightning_modules.objective import Objective


class TreeStates(NamedTuple):
    """A sentence."""

    states_LWD: NDArray[np.float32]
    """The mean of each word's sub-words, as in the source of the probe."""
    edges: frozenset[Edge]
    distance_WW: NDArray[np.float64]
    """Edges between two words; infinite where the tree has lost the word that joined them."""


@torch.no_grad()
def tree_states(objective: Objective, trees: Sequence[GoldTree]) -> list[TreeStates]:
    """The states of the words in every layer, sentence by sentence."""
    objective.eval()
    rows = Rows([_row(tree) for tree in trees])
    found: dict[int, TreeStates] = {}
    for index_B in rows.by_length():
        states_LBTD = torch.stack(encode_batch(objective, rows.batch(index_B))).float().cpu().numpy()
        for place, number in enumerate(index_B.tolist()):
            tree = trees[number]
            states_LWD = _of_words(states_LBTD[:, place, : len(tree.ids_T)], tree)
            found[number] = TreeStates(states_LWD, tree.edges, tree_distances(tree.edges, tree.words))
    return [found[number] for number in range(len(trees))]


def _row(tree: GoldTree) -> Row:
    part_T = np.full(len(tree.ids_T), FIRST)
    part_T[[0, -1]] = SPECIAL
    return Row(tree.ids_T, part_T, tree.word_T, np.zeros((len(tree.ids_T), 2), np.int64), cut=False)


def _of_words(states_LTD: NDArray[np.float32], tree: GoldTree) -> NDArray[np.float32]:
    place_P = np.flatnonzero(tree.word_T != NO_WORD)
    share_WT = np.zeros((tree.words, len(tree.word_T)), np.float32)
    share_WT[tree.word_T[place_P], place_P] = 1
    share_WT /= share_WT.sum(1, keepdims=True)
    return share_WT @ states_LTD


def tree_distances(edges: frozenset[Edge], words: int) -> NDArray[np.float64]:
    """How many edges lie between two words, shape WW; infinite where no path joins them."""
    first, second = np.array(sorted(edges), dtype=np.int64).reshape(-1, 2).T
    joined_WW = csr_matrix((np.ones(len(first)), (first, second)), shape=(words, words))
    distance_WW: NDArray[np.float64] = shortest_path(joined_WW, directed=False, unweighted=True)
    return distance_WW
