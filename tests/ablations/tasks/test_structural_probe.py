"""The structural probe on planted trees, and the states of words of sentences with trees."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from ablations.measures.jackknife import BLOCKS
from ablations.tasks.settings import StructuralProbeSettings
from ablations.tasks.structural_probe import (
    TreeStates,
    structural_probe_rows,
    tree_distances,
    tree_states,
    uuas_rows,
)
from ablations.tasks.trees import adjacency_chain, gold_tree
from lightning_modules.data.tokenizer import END, START
from lightning_modules.data.treebank import LabelledSentence
from tests.support.tiny_text import sentences

SIZES = {"train": 200, "validation": 60, "test": 100}
W, D = 8, 16


def random_edges(words, rng):
    """A tree by joining each word to one before it, the words then in random order."""
    order = rng.permutation(words).tolist()
    pairs = [(order[i], order[int(rng.integers(i))]) for i in range(1, words)]
    return frozenset((min(a, b), max(a, b)) for a, b in pairs)


def embedded(edges, words):
    """Vectors whose squared distances are those of the tree: a direction for each edge, a word the sum of those on
    its way from word 0."""
    distance_WW = tree_distances(edges, words)
    vectors = np.zeros((words, words))
    for word in np.argsort(distance_WW[0]).tolist()[1:]:
        near = np.flatnonzero(distance_WW[word] == 1)
        above = near[distance_WW[0, near].argmin()]
        vectors[word] = vectors[above]
        vectors[word, word] += 1
    return vectors


def planted(*, knows=True, shuffled=False):
    """Layer 0 is noise; layer 1 has the tree in a part of its space and noise in the rest."""
    rng = np.random.default_rng(0)
    turn_DD = np.linalg.qr(rng.normal(size=(D, D)))[0]
    parts = {}
    for split, count in SIZES.items():
        made = []
        for place in range(count):
            edges = random_edges(W, rng)
            states_LWD = rng.normal(size=(2, W, D))
            states_LWD[1, :, :W] = embedded(edges, W) + 0.05 * rng.normal(size=(W, W)) if knows else 0
            told = random_edges(W, rng) if shuffled else edges
            states_LWD = (states_LWD @ turn_DD).astype(np.float32)
            made.append(TreeStates(states_LWD, told, tree_distances(told, W), place))
        parts[split] = made
    return parts


def by_layer(parts):
    return {row["layer"]: row for row in uuas_rows(parts, rank=64)}


def test_planted_trees_are_found_and_noise_has_none():
    rows = by_layer(planted())
    assert rows[1]["value"] > 0.97
    chance = 2 / W  # of a tree drawn at random
    assert abs(rows[0]["value"] - chance) < 4 * rows[0]["standard_error"]
    n = SIZES["test"] * (W - 1)
    assert rows[0]["n"] == n
    assert rows[0]["d"] == D
    assert abs(rows[0]["floor"] - chance) < 4 * (chance * (1 - chance) / n) ** 0.5  # random trees know no order
    assert rows[0]["floor"] == rows[1]["floor"]


def test_a_block_of_which_an_arm_lacks_all_sentences_is_still_a_block():
    """So that claims subtract numbers without the same sentences."""
    parts = planted()
    some = [each for each in parts["test"] if each.place % BLOCKS != 3]
    row = by_layer(parts | {"test": some})[0]
    assert len(row["left_out"]) == BLOCKS
    assert row["left_out"][3] == row["value"]


def test_the_trees_of_other_sentences_are_not_found():
    row = by_layer(planted(shuffled=True))[1]
    assert abs(row["value"] - 2 / W) < 4 * row["standard_error"]


@pytest.mark.parametrize("mean", [300.0, 1e5])
def test_a_large_mean_of_a_feature_costs_nothing(mean):
    """Distances do not depend on it. Encoders with a norm before each sub-layer have such features."""
    parts = planted()

    def moved(each):
        states_LWD = each.states_LWD.copy()
        states_LWD[..., 3] += mean
        return each._replace(states_LWD=states_LWD)

    rows = by_layer({split: [moved(each) for each in some] for split, some in parts.items()})
    assert rows[1]["value"] > 0.97
    assert rows[0]["value"] == pytest.approx(by_layer(parts)[0]["value"], abs=4 * rows[0]["standard_error"])


def test_the_vectors_of_the_tests_have_the_distances_of_their_trees():
    edges = random_edges(W, np.random.default_rng(1))
    vectors = embedded(edges, W)
    squared_WW = np.square(vectors[:, None] - vectors[None]).sum(-1)
    np.testing.assert_array_equal(squared_WW, tree_distances(edges, W))


def test_distances_are_numbers_of_edges_and_infinite_between_parts():
    distance = tree_distances(frozenset({(0, 1), (1, 2)}), 4)
    assert distance[0].tolist() == [0, 1, 2, np.inf]
    assert (distance == distance.T).all()
    parts = planted()
    far = [np.where(each.distance_WW > 6, np.inf, each.distance_WW) for each in parts["train"]]
    cut = [each._replace(distance_WW=some) for each, some in zip(parts["train"], far, strict=True)]
    assert by_layer(parts | {"train": cut})[1]["value"] > 0.97  # pairs without a path do not count


# Of an encoder ---------------------------------------------------------------------------------------


def chained(text):
    """Each word depends on the next; the last one is the root."""
    words = tuple(text.split())
    count = len(words)
    heads = (*range(1, count), -1)
    return LabelledSentence(text, words, ("X",) * count, heads, ("",) * count, (None,) * count, words)


def test_the_state_of_a_word_is_the_mean_of_its_sub_words(objective, tokens):
    texts = ["the ponmlk cat sees", *sentences(5, seed=3)]
    trees = [gold_tree(chained(text), tokens.tokenizer) for text in texts]
    for text, tree, found in zip(texts, trees, tree_states(objective, trees), strict=True):
        each = [tokens.tokenizer.encode(word, add_special_tokens=False).ids for word in text.split()]
        ids = torch.tensor([[START, *[i for one in each for i in one], END]])
        ends = 1 + np.cumsum([0, *map(len, each)])
        with torch.no_grad():
            layers = objective.encoder(ids, sees=objective.run.objective.sees)
        for layer, states in enumerate(layers):
            expected = np.stack([states[0, a:b].mean(0) for a, b in pairwise(ends)])
            np.testing.assert_allclose(found.states_LWD[layer], expected, atol=2e-6)  # float32
        assert found.edges == tree.edges == adjacency_chain(len(each))


def test_an_encoder_gives_a_row_a_layer_and_a_chain_is_what_the_floor_finds(objective, tokens):
    splits = {
        split: [gold_tree(chained(text), tokens.tokenizer) for text in sentences(40, seed=seed)]
        for seed, split in enumerate(("train", "validation", "test"))
    }
    chosen = StructuralProbeSettings(kind="structural_probe", effort="quick")
    rows = list(structural_probe_rows(objective, splits, chosen))
    assert [(row["metric"], row["group"], row["layer"]) for row in rows] == [
        ("uuas", "language", layer) for layer in range(3)
    ]
    assert all(row["floor"] == 1 for row in rows)
    assert rows[0]["n"] == sum(tree.words - 1 for tree in splits["test"])


@pytest.mark.parametrize(
    ("treebank", "name"), [(None, "language"), ("ud_en_ewt/test.parquet", "ud_en_ewt"), ("en.conllu.gz", "en")]
)
def test_rows_are_named_after_the_treebank(treebank, name):
    assert StructuralProbeSettings(kind="structural_probe", treebank=treebank).treebank_name == name
