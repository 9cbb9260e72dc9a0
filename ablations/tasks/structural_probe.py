"""Structural probe (Hewitt & Manning 2019, sections 2 and 3): a linear map, of each layer, that brings the squared
distances between the words of a sentence as near as it can to those in the dependency tree.

Which words are joined is read from the map by a minimum spanning tree; punctuation is left out. UUAS counts
how many of the tree's edges are found. The adjacency chain needs no states at all, and is the floor; it is also
what words at equal distances get.

Letters: L + 1 layers, B sentences, W words, D width, R rank of the map.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from ablations.tasks.catalogue import Split
from ablations.tasks.clustered import standard_error
from ablations.tasks.gold_trees import Edge, gold_trees
from ablations.tasks.structural_settings import StructuralProbeSettings
from ablations.tasks.tree_states import TreeStates, tree_states
from ablations.tasks.trees import adjacency_chain, maximum_spanning_tree
from lightning_modules.data.treebank import LabelledSentence
from lightning_modules.objective import Objective
from lightning_modules.randomness import derive

MOST_TEST = 1000
"""Test sentences."""
BATCH = 32
LEARNING_RATE = 3e-3
MOST_EPOCHS = 60
PATIENCE = 3
"""Epochs without a lower validation loss after which the learning rate is cut; after the last cut, the end."""
CUTS = (1.0, 0.3, 0.1)
"""Of the learning rate."""


def structural_probe_rows(
    objective: Objective,
    splits: Mapping[Split, Sequence[LabelledSentence]],
    tokenizer: Tokenizer,
    settings: StructuralProbeSettings,
    *,
    max_length: int,
) -> Iterator[dict[str, Any]]:
    """Rows of `uuas` by layer; the floor is the adjacency chain's. n counts the edges of the test trees, d is the
    width; standard errors take the edges of a sentence for dependent.

    Raises:
        MeasureError: a split has no sentence with a tree.
    """
    wanted = settings.sentences_wanted
    counts: dict[Split, int] = {"train": wanted, "validation": wanted, "test": MOST_TEST}
    parts = {
        split: tree_states(
            objective,
            gold_trees(splits[split], tokenizer, count=count, longest=settings.longest, max_length=max_length),
        )
        for split, count in counts.items()
    }
    for row in uuas_rows(parts, rank=settings.rank):
        yield row | {"group": settings.task}


def uuas_rows(parts: Mapping[Split, Sequence[TreeStates]], *, rank: int) -> Iterator[dict[str, Any]]:
    """The same from states; `group` is missing."""
    test = parts["test"]
    layers, _, width = test[0].states_LWD.shape
    gold = [(each.edges, len(each.distance_WW)) for each in test]
    floor = np.mean(np.concatenate([_found(adjacency_chain(words), edges) for edges, words in gold]))
    sentence_N = np.repeat(np.arange(len(test)), [len(each.edges) for each in test])
    for layer in range(layers):
        train, validation = (
            [Words(each.states_LWD[layer], each.distance_WW) for each in parts[split]]
            for split in ("train", "validation")
        )
        probe = fit_probe(train, validation, rank=min(rank, width), seed=derive(0, "structural probe", layer))
        found_N = np.concatenate([_found(probe.tree(each.states_LWD[layer]), each.edges) for each in test])
        yield {
            "metric": "uuas",
            "layer": layer,
            "value": float(found_N.mean()),
            "floor": float(floor),
            "n": len(found_N),
            "d": width,
            "standard_error": standard_error(found_N, sentence_N),
        }


def _found(tree: frozenset[Edge], gold: frozenset[Edge]) -> NDArray[np.bool_]:
    """Whether each of the gold edges is in a tree."""
    return np.array([edge in tree for edge in gold], dtype=bool)


class Words(NamedTuple):
    """The words of a sentence in one layer."""

    states_WD: NDArray[np.float32]
    distance_WW: NDArray[np.float64]


class Probe(NamedTuple):
    """A linear map of states."""

    map_DR: NDArray[np.float32]

    def squared_distances(self, states_WD: NDArray[np.float32]) -> NDArray[np.float64]:
        """Between all words, shape WW."""
        mapped_WR = (states_WD @ self.map_DR).astype(np.float64)
        distance_WW: NDArray[np.float64] = np.square(mapped_WR[:, None] - mapped_WR[None]).sum(-1)
        return distance_WW

    def tree(self, states_WD: NDArray[np.float32]) -> frozenset[Edge]:
        """The minimum spanning tree of the words."""
        return maximum_spanning_tree(-self.squared_distances(states_WD))


def fit_probe(train: Sequence[Words], validation: Sequence[Words], *, rank: int, seed: int) -> Probe:
    """The map with the lowest validation loss of all epochs of training.

    The loss of a sentence is the sum over pairs of words of |squared distance - distance in the tree|, divided by
    the squared number of words. Pairs that no path joins do not count.

    Args:
        seed: of the map it starts from and of the order of sentences.
    """
    rng = torch.Generator().manual_seed(seed)
    # So that one learning rate suits states of any size; a factor is no restriction on a linear map.
    scale = float(np.concatenate([each.states_WD for each in train]).std()) or 1.0
    batches, held_out = _batches(train, scale), _batches(validation, scale)
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
    """1 for pairs of words of the sentence that a path joins, else 0."""
    words_B: Tensor


def _batches(sentences: Sequence[Words], scale: float) -> list[_Batch]:
    by_length = sorted(sentences, key=lambda each: len(each.states_WD))
    return [_padded(by_length[start : start + BATCH], scale) for start in range(0, len(by_length), BATCH)]


def _padded(sentences: Sequence[Words], scale: float) -> _Batch:
    longest, width = sentences[-1].states_WD.shape
    states_BWD = torch.zeros(len(sentences), longest, width)
    distance_BWW = torch.zeros(len(sentences), longest, longest)
    counts_BWW = torch.zeros_like(distance_BWW)
    for place, (states_WD, distance_WW) in enumerate(sentences):
        W = len(states_WD)
        joined_WW = np.isfinite(distance_WW)
        states_BWD[place, :W] = torch.from_numpy(states_WD) / scale
        distance_BWW[place, :W, :W] = torch.from_numpy(np.where(joined_WW, distance_WW, 0))
        counts_BWW[place, :W, :W] = torch.from_numpy(joined_WW)
    words_B = torch.tensor([len(each.states_WD) for each in sentences], dtype=torch.float32)
    return _Batch(states_BWD, distance_BWW, counts_BWW, words_B)


def _loss(map_DR: Tensor, batch: _Batch) -> Tensor:
    """Of each sentence, shape B."""
    mapped_BWR = batch.states_BWD @ map_DR
    norm_BW = mapped_BWR.square().sum(-1)
    found_BWW = norm_BW[:, :, None] + norm_BW[:, None] - 2 * mapped_BWR @ mapped_BWR.mT
    wrong_BWW = (found_BWW - batch.distance_BWW).abs() * batch.counts_BWW
    return wrong_BWW.sum((1, 2)) / batch.words_B.square()
