"""Predictions for single examples: ids that depend on the content alone, and points."""

import numpy as np
import pytest

from ablations.results import PREDICTION_COLUMNS
from ablations.tasks.datasets import TASKS
from ablations.tasks.examples import Answer, Examples
from ablations.tasks.predictions import COLUMNS, example_ids, points_metric, points_of, predictions
from lightning_modules.data.tokenizer import FIRST_WORD_ID
from tests.support.tiny_text import WORDS

PAIRS = Examples(
    ["the dog sees a cat", "the cat", "the cat"],
    ["the dog see a cat", "cat the", "cat the"],
    None,
    [None] * 3,
    [("syntax", "agreement"), ("syntax", "order"), ("syntax", "order")],
)


def test_an_id_is_of_the_content_and_not_of_the_place():
    ids = example_ids(PAIRS)
    assert example_ids(PAIRS.take([1, 0])) == [ids[1], ids[0]]
    assert ids[2] == f"{ids[1]}-2"  # the same content again
    assert len(set(ids)) == 3
    assert all(len(name.partition("-")[0]) == 12 for name in ids)


@pytest.mark.parametrize(
    "changed",
    [
        Examples(["the dog"], None, None, ["1"]),
        Examples(["a dog"], None, None, ["0"]),
        Examples(["the dog"], ["sees"], None, ["0"]),
        Examples(["the dog"], ["sees"], None, [Answer(0, 4)]),
        Examples(["the dog"], None, [["the", "dog"]], ["0"]),
    ],
)
def test_an_id_changes_with_text_answer_or_words(changed):
    assert example_ids(changed) != example_ids(Examples(["the dog"], None, None, ["0"]))


def test_points_are_higher_for_better_answers_of_every_kind():
    assert points_of(TASKS["language_topic"], ["a", "b"], ["a", "a"]).tolist() == [1, 0]
    tags = points_of(TASKS["language_parts_of_speech"], [["N", "V"], ["N"]], [["N", "N"], ["N"]])
    assert tags.tolist() == [0.5, 1]
    assert points_of(TASKS["stsb"], [2.5, 4.0], [3.0, 1.0]).tolist() == [-0.5, -3]
    words = points_of(TASKS["language_subject"], ["the dog", "cat", "fish"], ["the big dog", "cat", "dog"])
    assert words == pytest.approx([2 / 3, 1, 0])  # an article is no word there: 2 * 1 / (1 + 2)
    names = {name: points_metric(TASKS[name]) for name in ("language_topic", "cola", "stsb", "wikigold")}
    assert names == {
        "language_topic": "score",
        "cola": "accuracy",
        "stsb": "minus_error",
        "wikigold": "right_tags",
    }


def test_a_table_has_lengths_frequencies_parts_and_answers(tokens):
    counts_V = np.zeros(tokens.vocab_size, np.int64)
    pieces = {word: tokens.tokenizer.encode(word, add_special_tokens=False).ids for word in WORDS}
    for number, ids in enumerate(pieces.values()):
        counts_V[ids] += 1000 - number
    counts_V[:FIRST_WORD_ID] = 10**6  # special tokens are more frequent than any word, and no word
    common = {"task": "blimp", "metric": "accuracy", "tokenizer": tokens.tokenizer, "counts_V": counts_V}
    made = predictions(PAIRS, points_N=[1, 0.5, 0], margin_N=[2.0, 0.0, -1.0], **common)
    assert list(made.columns) == COLUMNS
    assert {name: str(kind) for name, kind in made.dtypes.items()} == {
        name: PREDICTION_COLUMNS[name] for name in COLUMNS
    }
    encoded = [tokens.tokenizer.encode(text, add_special_tokens=False).ids for text in PAIRS.first]
    assert made["length"].tolist() == [len(ids) for ids in encoded]
    assert made["part"].tolist() == ["agreement", "order", "order"]
    assert made["label"].isna().all()
    assert made["prediction"].isna().all()
    rarest = [int((counts_V[FIRST_WORD_ID:] > counts_V[ids].min()).sum()) + 1 for ids in encoded[1:]]
    assert made["rarest"].tolist()[1:] == pytest.approx(rarest, abs=1)  # equally frequent ids in their order

    ungrouped = Examples(["the cat"], ["cat the"], None, [None], [()])  # of a task of one's own without groups
    assert predictions(ungrouped, points_N=[1], **common)["part"].isna().all()

    tagged = Examples(["the dog", "a"], None, [["the", "dog"], ["a"]], [["D", "N"], ["D"]])
    said = [[["D", "D"], []], [["D", "N"], []]]
    made = predictions(tagged, points_N=[0.75, 0], weight_N=[2, 0], answers_RN=said, **common)
    assert made["label"].tolist() == ["D N"]  # the sentence without a word that was read is left out
    assert made["prediction"].tolist() == [["D D", "D N"]]
