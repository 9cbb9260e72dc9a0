"""What the lengths of two segments tell of their order and of whether they belong together."""

from dataclasses import replace

import numpy as np
import pytest

from ablations.measures.validation import Lengths, floor_of_pairs, lengths_and_labels, pair_accuracies, pairs
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, START
from lightning_modules.objectives import build
from tests.support.tiny_text import settings

DOCUMENTS = 400


def run_of(task="sentence_order", input_format="sentence_pair"):
    return settings(
        objective={"pair_loss": task},
        data={"target": None, "document": "document"},
        training={"input_format": input_format, "tokens_per_step": 512},
    )


def split_of(documents):
    """A split of documents of so many words a sentence."""
    sentences = [[START, *[FIRST_WORD_ID] * words, END] for lengths in documents for words in lengths]
    return Split(
        np.concatenate(sentences).astype(np.uint16),
        np.cumsum([0, *map(len, sentences)]),
        np.repeat(np.arange(len(documents), dtype=np.int32), [len(lengths) for lengths in documents]),
    )


def text_of(tokens, *, train, validation):
    return replace(tokens, train=split_of(train), validation=split_of(validation))


def drawn(seed, *, of_first, of_second, count=DOCUMENTS):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(*of_first, count), rng.integers(*of_second, count)], axis=1).tolist()


def floors(tokens):
    return {row["group"]: row["floor"] for row in pair_accuracies(build(run_of(), tokens), tokens)}


def shares(tokens):
    """Of both tasks the share of the more frequent answer."""
    found = {}
    for task in ("next_sentence", "sentence_order"):
        share = (pairs(run_of(), tokens.validation, task).label_Q == 1).mean()
        found[task] = max(share, 1 - share)
    return found


def test_a_longer_first_sentence_gives_the_order_away_and_not_the_document(tokens):
    longer_first = {"of_first": (9, 13), "of_second": (3, 7)}
    tokens = text_of(tokens, train=drawn(0, **longer_first), validation=drawn(1, **longer_first))
    found = floors(tokens)
    assert found["sentence_order"] == 1
    error = (0.25 / DOCUMENTS) ** 0.5
    assert found["next_sentence"] == pytest.approx(shares(tokens)["next_sentence"], abs=4 * error)


def test_documents_with_lengths_of_their_own_give_the_next_sentence_away_and_not_the_order(tokens):
    same = [[words, words] for words in np.random.default_rng(0).integers(3, 13, DOCUMENTS).tolist()]
    tokens = text_of(tokens, train=same, validation=same[::-1])
    found = floors(tokens)
    assert found["sentence_order"] == shares(tokens)["sentence_order"]
    assert found["next_sentence"] > 0.85  # a tenth of other documents have the same length


def test_the_guess_is_fitted_on_the_training_text_alone(tokens):
    """In the validation text the other sentence is the longer one: the fitted guess is always wrong."""
    tokens = text_of(
        tokens,
        train=drawn(0, of_first=(9, 13), of_second=(3, 7)),
        validation=drawn(1, of_first=(3, 7), of_second=(9, 13)),
    )
    assert floors(tokens)["sentence_order"] == shares(tokens)["sentence_order"]


def test_a_noisy_rule_is_worth_what_it_says():
    """The longer one is the first in 70% of the pairs; the best guess is the sign of the difference."""
    rng = np.random.default_rng(0)

    def some(count):
        is_pair_Q = rng.random(count) < 0.5
        rises_Q = (rng.random(count) < 0.7) != is_pair_Q
        long_Q, short_Q = rng.integers(5, 20, count), rng.integers(1, 5, count)
        return Lengths(
            np.stack([np.where(rises_Q, short_Q, long_Q), np.where(rises_Q, long_Q, short_Q)], 1).astype(float),
            is_pair_Q,
        )

    training, scored = some(4000), some(4000)
    by_hand = ((scored.pieces_QK[:, 0] > scored.pieces_QK[:, 1]) == scored.is_pair_Q).mean()
    assert by_hand == pytest.approx(0.7, abs=4 * (0.21 / 4000) ** 0.5)  # four standard errors
    assert floor_of_pairs(training, scored) == pytest.approx(by_hand, abs=0.01)  # leaves of chance


def test_lengths_that_tell_nothing_are_worth_the_more_frequent_answer():
    rng = np.random.default_rng(1)
    training, scored = (
        Lengths(rng.integers(3, 30, (8000, 2)).astype(float), rng.random(8000) < 0.6) for _ in range(2)
    )
    share = scored.is_pair_Q.mean()
    assert share <= floor_of_pairs(training, scored) < share + 3 * (0.24 / 8000) ** 0.5  # three standard errors
    nothing = Lengths(np.empty((0, 2)), np.empty(0, np.bool_))
    assert floor_of_pairs(nothing, scored) == share


@pytest.mark.parametrize("input_format", ["sentence_pair", "segment_pair"])
def test_lengths_are_those_of_the_segments_that_are_read(tokens, input_format):
    given = [[3, 5], [40, 2], [7], [4, 4]]  # forty are cut; one sentence is no pair of sentences
    tokens = text_of(tokens, train=given * 20, validation=given)
    run = run_of(input_format=input_format)
    natural = pairs(run, tokens.validation, "none")
    of_segments = lengths_and_labels(natural)
    pieces = [[int(tokens.validation.lengths[i]) - 2 for i in two] for two in ((0, 1), (2, 3), (5, 6))]
    room = (run.data.max_length - 3) // 2
    assert of_segments.pieces_QK.tolist() == [[min(piece, room) for piece in two] for two in pieces]
    assert of_segments.is_pair_Q.all()
    turned = lengths_and_labels(pairs(run, tokens.validation, "sentence_order"))
    back = np.where(turned.is_pair_Q[:, None], turned.pieces_QK, turned.pieces_QK[:, ::-1])
    assert back.tolist() == of_segments.pieces_QK.tolist()
