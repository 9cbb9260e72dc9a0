"""From a masked LM to the trees of sentences, and the rows on them."""

import numpy as np
import pandas as pd
import pytest
import torch

from ablations.errors import MeasureError
from ablations.measures.reading.alignment import NO_WORD
from ablations.tasks.language_models.parsing import (
    found_trees,
    pair_information,
    parsing_rows,
    tree_rows,
    word_pairs,
    word_scores,
)
from ablations.tasks.settings import ParsingSettings
from ablations.tasks.trees import GoldTree, gold_trees
from lightning_modules.data.treebank import ROOT, LabelledSentence
from lightning_modules.objectives import build
from tests.support.errors import error_text
from tests.support.exact_model import ExactModel, any_joint
from tests.support.tiny_text import WORDS, settings


def asked(**changes):
    return ParsingSettings(kind="parsing", **{"sweeps": 24, "sentences": 12} | changes)


def tree(word_T, edges, ids_T=None, *, place=0):
    word_T = np.array(word_T)
    return GoldTree(np.array(ids_T or range(len(word_T))), word_T, int(word_T.max()) + 1, frozenset(edges), place)


def labelled_sentences(count):
    """Words of the tiny text; each hangs on the first one."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        words = (*rng.choice(WORDS, size=rng.integers(4, 9)), ".")
        tags = (*["NOUN"] * (len(words) - 1), "PUNCT")
        heads = (ROOT, *[0] * (len(words) - 1))
        relations, senses = ("dep",) * len(words), (None,) * len(words)
        made.append(LabelledSentence(" ".join(words), words, tags, heads, relations, senses, words))
    return made


def rows(objective, tokens, **changes):
    settings = asked(**changes)
    trees = gold_trees(
        labelled_sentences(20),
        tokens.tokenizer,
        count=settings.trees_wanted["test"],
        longest=settings.longest,
        max_length=64,
        where="here",
    )
    found = parsing_rows(objective, trees, settings, say=lambda _: None)
    return pd.DataFrame(found)


def test_pairs_are_of_different_words_that_stand_near():
    X = NO_WORD
    first, second = tree([X, 0, 0, 1, X, 2, X], [(0, 1)]), tree([X, 0, 1, X], [(0, 1)])
    pairs = word_pairs([first, second], window=4)
    assert pairs.sentence_P.tolist() == [0] * 4 + [1]
    assert pairs.place_P2.tolist() == [[1, 3], [2, 3], [2, 5], [3, 5], [1, 2]]
    assert len(word_pairs([first], window=5).place_P2) == 5
    assert len(word_pairs([first], window=2).place_P2) == 1


def test_scores_of_words_are_the_mean_of_the_largest():
    X = NO_WORD
    information_TT = np.zeros((6, 6))
    information_TT[1, 3], information_TT[1, 4], information_TT[2, 3] = 0.5, 0.2, 0.1
    information_TT[3, 1] = 0.7
    score_WW = word_scores(information_TT, np.array([X, 0, 0, 1, 1, X]))
    assert score_WW[0, 1] == pytest.approx(np.log((np.exp(0.5) + np.exp(0.1)) / 2))
    assert score_WW[1, 0] == pytest.approx(np.log((np.exp(0.7) + 1) / 2))


def test_what_is_found_in_a_pair_goes_to_its_place():
    """Three words; the first has two sub-words."""
    gold = tree([NO_WORD, 0, 0, 1, 2, NO_WORD], [(0, 1), (0, 2)])
    pairs = word_pairs([gold, gold], window=10)
    information_P2 = np.zeros((len(pairs.sentence_P), 2))
    of_second = (pairs.sentence_P == 1) & (pairs.place_P2 == [1, 4]).all(1)
    information_P2[of_second, 1] = 0.5  # of the third word from the first
    assert found_trees([gold, gold], pairs, information_P2)[0] == {(0, 1), (1, 2)}
    assert (0, 2) in found_trees([gold, gold], pairs, information_P2)[1]


def test_information_of_a_pair_is_that_of_its_sentence_in_every_batch():
    model = ExactModel(any_joint(3, 4, seed=1))
    golds = [tree([0, 1, 2, 3], [(0, 1)], ids_T=row) for row in model.draw(3, seed=2).tolist()]
    pairs = word_pairs(golds, window=10)

    sentences = []

    def found(at_once):
        cpu = torch.device("cpu")
        return pair_information(
            model, golds, pairs, stops=(400,), at_once=at_once, device=cpu, say=sentences.append
        )[0]

    whole = found(100)
    assert found(4) == pytest.approx(whole, abs=1e-12)  # float64
    assert sentences == [f"{first} of {len(whole)} pairs of sub-words" for first in (0, *range(0, len(whole), 4))]
    expected_P = [
        model.information(torch.from_numpy(golds[number].ids_T), *pair)
        for number, pair in zip(pairs.sentence_P.tolist(), pairs.place_P2.tolist(), strict=True)
    ]
    # A chain of 320 draws is off by a fifth at most; a pair or sentence that is mistaken for another would show.
    assert np.corrcoef(whole.mean(1), expected_P)[0, 1] > 0.95


def test_rows_by_hand():
    """Two sentences with four edges; in the first one information makes the tree, in the second there is none."""
    first, second = tree([0, 1, 2], [(0, 2), (1, 2)]), tree([0, 1, 2, 3], [(0, 1), (0, 3)], place=2)
    pairs = word_pairs([first, second], window=10)
    assert pairs.place_P2[:3].tolist() == [[0, 1], [0, 2], [1, 2]]
    few = np.zeros((len(pairs.sentence_P), 2))
    many = few.copy()
    many[1, 0], many[2, 1] = 0.9, 0.2
    found = pd.DataFrame(tree_rows([first, second], pairs, {5: few, 10: many}, treebank="gum"))
    by = found.set_index(["metric", "group"])
    assert by["value"].to_dict() == {
        ("uuas", "sweeps=5"): 2 / 4,
        ("conditional_information", "sweeps=5"): 0,
        ("uuas", "gum"): 3 / 4,
        ("conditional_information", "gum"): pytest.approx(1.1 / 18),
        ("uuas_adjacent", "gum"): 2 / 4,
        ("uuas_random", "gum"): pytest.approx((2 * 2 / 3 + 2 * 2 / 4) / 4),
        ("uuas_minus_adjacent", "gum"): 1 / 4,
    }
    shares = found[found["unit"] == ""]
    assert (shares["n"] == 4).all()
    assert by.loc[("uuas", "gum"), "floor"] == 2 / 4
    # Without the first sentence, without one that this arm lacks, without the second sentence.
    assert by.loc[("uuas", "gum"), "left_out"] == [1 / 2, 3 / 4, 2 / 2]
    assert by.loc[("uuas_minus_adjacent", "gum"), "left_out"] == [0, 1 / 4, 1 / 2]
    # The first sentence is drawn 0, 1 or 2 times; a binomial's deviation, over four edges, times 2 / (2 - 1).
    error = by.loc[("uuas_minus_adjacent", "gum"), "standard_error"]
    assert error == pytest.approx((0.5 * 2) ** 0.5 / 4, rel=0.08)  # five standard errors of 2,000 resamplings


def test_a_model_that_ignores_the_rest_finds_the_adjacency_chain(tokens):
    """No information at all, whatever is drawn."""
    blind = build(settings(objective={"sees": "itself"}, encoder={"dropout": 0.0}), tokens)
    by = rows(blind, tokens).set_index("metric")["value"]
    assert (by["uuas"] == by["uuas_adjacent"]).all()
    assert by["uuas_minus_adjacent"] == 0
    assert (by["conditional_information"] < 1e-6).all()  # float32


@pytest.mark.parametrize("kind", ["masked_lm", "mixture"])
def test_rows_of_a_model_are_the_same_again_and_by_sweeps(kind, tokens):
    objective = build(settings(kind, encoder={"dropout": 0.0}), tokens)
    with torch.no_grad():
        for block in objective.encoder.blocks:
            block.attention.query_key_value.weight *= 8  # tokens tell about each other, though not what is true
    found = rows(objective, tokens)
    assert found["metric"].unique().tolist() == [
        "uuas",
        "conditional_information",
        "uuas_adjacent",
        "uuas_random",
        "uuas_minus_adjacent",
    ]
    by_sweeps = found[found["metric"] == "uuas"]["group"].tolist()
    assert by_sweeps == ["sweeps=3", "sweeps=6", "sweeps=12", "language"]
    assert found[found["metric"] == "conditional_information"]["value"].is_monotonic_increasing
    assert found["standard_error"].dropna().between(0, 0.2).all()
    pd.testing.assert_frame_equal(found, rows(objective, tokens))


def test_objectives_without_hidden_tokens_are_refused(tokens):
    assert error_text(MeasureError, lambda: rows(build(settings("causal_lm"), tokens), tokens)) == (
        "parsing needs an objective that predicts hidden tokens, but causal_lm does not; leave the measure "
        "out, or give the arm a spec of its own."
    )


def test_effort_decides_what_is_not_given():
    assert ParsingSettings(kind="parsing").sweeps_wanted == 2000
    quick = ParsingSettings(kind="parsing", effort="quick", sweeps=80)
    assert (quick.trees_wanted, quick.sweeps_wanted) == ({"test": 100}, 80)
