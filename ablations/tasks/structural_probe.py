"""Structural probe (Hewitt & Manning 2019, sections 2 and 3): a linear map of each layer that makes the
squared distances between the words of a sentence as near as it can to those in the dependency tree.

A minimum spanning tree over the mapped words predicts which words are joined. Punctuation is left out. UUAS
is the share of the edges of the gold tree that are predicted. The adjacency chain needs no states at all and
is the chance level (`floor`). It is also the predicted tree if all distances are equal.

Letters: L + 1 layers, B sentences, T positions, W words, D width, R rank of the map.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from ablations.measures.jackknife import means_left_out
from ablations.measures.reading.alignment import NO_WORD
from ablations.measures.reading.texts import Readings, Say
from ablations.tasks.datasets import Split
from ablations.tasks.encoding import FIRST, SPECIAL, EncodedTexts, Row, encode_batch, require_numbers
from ablations.tasks.examples import trees_of
from ablations.tasks.metrics import standard_error
from ablations.tasks.settings import StructuralProbeSettings
from ablations.tasks.trees import Edge, GoldTree, adjacency_chain, maximum_spanning_tree
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive


class TreeStates(NamedTuple):
    """States of the words of a sentence, and its dependency tree."""

    states_LWD: NDArray[np.float32]
    """State of each word: the mean of its sub-words, as in the source of the probe."""
    edges: frozenset[Edge]
    distance_WW: NDArray[np.float64]
    """Number of edges between two words; infinite if the tree has lost the word that joined them."""
    place: int
    """Number of the sentence, as of its `GoldTree`."""


@torch.no_grad()
def tree_states(objective: Objective, trees: Sequence[GoldTree]) -> list[TreeStates]:
    """Return the states of the words of each sentence in every layer, and its tree."""
    objective.eval()
    rows = EncodedTexts([_row(tree) for tree in trees])
    by_number: dict[int, TreeStates] = {}
    for index_B in rows.by_length():
        states_LBTD = torch.stack(encode_batch(objective, rows.batch(index_B))).float().cpu().numpy()
        require_numbers(states_LBTD)
        for place, number in enumerate(index_B.tolist()):
            tree = trees[number]
            states_LWD = _of_words(states_LBTD[:, place, : len(tree.ids_T)], tree)
            by_number[number] = TreeStates(
                states_LWD, tree.edges, tree_distances(tree.edges, tree.words), tree.place
            )
    return [by_number[number] for number in range(len(trees))]


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
    """Return the number of edges between two words, shape WW; infinite if no path joins them."""
    first, second = np.array(sorted(edges), dtype=np.int64).reshape(-1, 2).T
    joined_WW = csr_matrix((np.ones(len(first)), (first, second)), shape=(words, words))
    distance_WW: NDArray[np.float64] = shortest_path(joined_WW, directed=False, unweighted=True)
    return distance_WW


BATCH = 32
LEARNING_RATE = 3e-3
MOST_EPOCHS = 60
PATIENCE = 3
"""Number of epochs without a lower validation loss after which the learning rate is cut. After the last cut,
training ends."""
CUTS = (1.0, 0.3, 0.1)
"""Factors on the learning rate, one after the other."""


def rows(readings: Readings, settings: StructuralProbeSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `structural_probe` of a run from the trees of its language or of a treebank."""
    return structural_probe_rows(readings.objective, trees_of(readings.texts, settings), settings)


def structural_probe_rows(
    objective: Objective, trees: Mapping[Split, Sequence[GoldTree]], settings: StructuralProbeSettings
) -> Iterator[dict[str, Any]]:
    """Yield rows of `uuas` by layer. The chance level (`floor`) is that of the adjacency chain.

    n counts the edges of the test trees, and d is the width. Standard errors treat the edges of a sentence as
    dependent.
    """
    parts = {split: tree_states(objective, of_split) for split, of_split in trees.items()}
    for row in uuas_rows(parts, rank=settings.rank):
        yield row | {"group": settings.treebank_name}


def uuas_rows(parts: Mapping[Split, Sequence[TreeStates]], *, rank: int) -> Iterator[dict[str, Any]]:
    """Yield rows of `uuas` from states, without `group`."""
    test = parts["test"]
    layers, _, width = test[0].states_LWD.shape
    gold = [(each.edges, len(each.distance_WW)) for each in test]
    floor = np.mean(np.concatenate([_is_predicted(adjacency_chain(words), edges) for edges, words in gold]))
    sentence_N = np.repeat([each.place for each in test], [len(each.edges) for each in test])
    for layer in range(layers):
        train, validation = (
            [LayerStates(each.states_LWD[layer], each.distance_WW) for each in parts[split]]
            for split in ("train", "validation")
        )
        probe = fit_probe(train, validation, rank=min(rank, width), seed=derive(0, "structural probe", layer))
        found_N = np.concatenate([_is_predicted(probe.tree(each.states_LWD[layer]), each.edges) for each in test])
        yield {
            "metric": "uuas",
            "layer": layer,
            "value": float(found_N.mean()),
            "floor": float(floor),
            "n": len(found_N),
            "d": width,
            "standard_error": standard_error(found_N, sentence_N),
            "left_out": means_left_out(found_N, sentence_N),
        }


def _is_predicted(tree: frozenset[Edge], gold: frozenset[Edge]) -> NDArray[np.bool_]:
    """Return whether each of the gold edges is in a tree."""
    return np.array([edge in tree for edge in gold], dtype=bool)


class LayerStates(NamedTuple):
    """States of the words of a sentence in one layer, and the distances of the words in the tree."""

    states_WD: NDArray[np.float32]
    distance_WW: NDArray[np.float64]


class Probe(NamedTuple):
    """Structural probe: a linear map of states."""

    map_DR: NDArray[np.float32]

    def squared_distances(self, states_WD: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the squared distances between all words, shape WW."""
        # No distance depends on the mean, and a large mean would cost digits.
        mapped_WR = ((states_WD - states_WD.mean(0)) @ self.map_DR).astype(np.float64)
        distance_WW: NDArray[np.float64] = np.square(mapped_WR[:, None] - mapped_WR[None]).sum(-1)
        return distance_WW

    def tree(self, states_WD: NDArray[np.float32]) -> frozenset[Edge]:
        """Return the minimum spanning tree of the words by their squared distances."""
        return maximum_spanning_tree(-self.squared_distances(states_WD))


def fit_probe(train: Sequence[LayerStates], validation: Sequence[LayerStates], *, rank: int, seed: int) -> Probe:
    """Return the map of the training epoch with the lowest validation loss.

    The loss of a sentence is the sum over pairs of words of |squared distance - distance in the tree|,
    divided by the squared number of words. Pairs that no path joins do not count.

    Args:
        seed: seed of the initial map and of the order of sentences.
    """
    rng = torch.Generator().manual_seed(seed)
    # No distance depends on the mean. With the scale, one learning rate suits states of any size, and the
    # factor becomes part of the map.
    words_ND = np.concatenate([each.states_WD for each in train])
    mean_D = words_ND.mean(0, dtype=np.float64).astype(np.float32)
    scale = float((words_ND - mean_D).std()) or 1.0
    batches, held_out = _batches(train, mean_D, scale), _batches(validation, mean_D, scale)
    width = train[0].states_WD.shape[1]
    map_DR = ((torch.rand(width, rank, generator=rng) - 0.5) / 10).requires_grad_()
    optimiser = torch.optim.Adam([map_DR], lr=LEARNING_RATE)
    best, best_DR, worse, cuts = float("inf"), map_DR.detach().clone(), 0, iter(CUTS[1:])
    for _ in range(MOST_EPOCHS):
        for number in torch.randperm(len(batches), generator=rng).tolist():
            loss_B = _loss(map_DR, batches[number])
            (map_DR.grad,) = torch.autograd.grad(loss_B.mean(), [map_DR])
            optimiser.step()
        with torch.no_grad():
            loss = float(torch.cat([_loss(map_DR, batch) for batch in held_out]).mean())
        worse += 1
        if loss < best:
            best, best_DR, worse = loss, map_DR.detach().clone(), 0
        if worse >= PATIENCE:
            if (cut := next(cuts, None)) is None:
                break
            optimiser.param_groups[0]["lr"] = cut * LEARNING_RATE
            worse = 0
            map_DR.data.copy_(best_DR)
    return Probe((best_DR / scale).numpy())


class _Batch(NamedTuple):
    """Sentences of similar length, padded."""

    states_BWD: Tensor
    distance_BWW: Tensor
    counts_BWW: Tensor
    """1 for pairs of words that a path joins, else 0."""
    words_B: Tensor


def _batches(sentences: Sequence[LayerStates], mean_D: NDArray[np.float32], scale: float) -> list[_Batch]:
    by_length = sorted(sentences, key=lambda each: len(each.states_WD))
    parts = (by_length[start : start + BATCH] for start in range(0, len(by_length), BATCH))
    return [_padded(part, mean_D, scale) for part in parts]


def _padded(sentences: Sequence[LayerStates], mean_D: NDArray[np.float32], scale: float) -> _Batch:
    longest, width = sentences[-1].states_WD.shape
    states_BWD = torch.zeros(len(sentences), longest, width)
    distance_BWW = torch.zeros(len(sentences), longest, longest)
    counts_BWW = torch.zeros_like(distance_BWW)
    for place, (states_WD, distance_WW) in enumerate(sentences):
        W = len(states_WD)
        joined_WW = np.isfinite(distance_WW)
        states_BWD[place, :W] = torch.from_numpy((states_WD - mean_D) / scale)
        distance_BWW[place, :W, :W] = torch.from_numpy(np.where(joined_WW, distance_WW, 0))
        counts_BWW[place, :W, :W] = torch.from_numpy(joined_WW)
    words_B = torch.tensor([len(each.states_WD) for each in sentences], dtype=torch.float32)
    return _Batch(states_BWD, distance_BWW, counts_BWW, words_B)


def _loss(map_DR: Tensor, batch: _Batch) -> Tensor:
    """Return the loss of each sentence, shape B."""
    mapped_BWR = batch.states_BWD @ map_DR
    norm_BW = mapped_BWR.square().sum(-1)
    found_BWW = norm_BW[:, :, None] + norm_BW[:, None] - 2 * mapped_BWR @ mapped_BWR.mT
    wrong_BWW = (found_BWW - batch.distance_BWW).abs() * batch.counts_BWW
    return wrong_BWW.sum((1, 2)) / batch.words_B.square()
