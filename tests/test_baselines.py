"""What tasks score without an encoder."""

import numpy as np
import pytest

from ablations.tasks.baselines import baseline_rows, score_rows
from ablations.tasks.catalogue import TASKS, Task
from ablations.tasks.examples import Examples
from ablations.tasks.settings import BaselinesSettings
from tests.conftest import sentences


def of(make, count=300):
    return {split: make(sentences(count, seed=seed)) for seed, split in enumerate(("train", "validation", "test"))}


def values(task, splits):
    return {row["metric"]: row["value"] for row in score_rows(task, splits=splits)}


def test_a_label_that_is_a_word_or_two_neighbours_is_told_from_the_text():
    def by_word(texts):
        return Examples(texts, None, None, [str("dog" in text.split()) for text in texts])

    def by_neighbours(texts):
        return Examples(texts, None, None, [str("the the" in text) for text in texts])

    task = TASKS["sst2"]
    for make in (by_word, by_neighbours):
        splits = of(make)
        found = values(task, splits)
        assert set(found) == {"majority", "tfidf"}
        assert found["tfidf"] > found["majority"] + 0.5 * (1 - found["majority"])


def test_a_label_that_is_not_in_the_text_is_not_told():
    rng = np.random.default_rng(0)
    splits = of(lambda texts: Examples(texts, None, None, rng.choice(["0", "1"], len(texts)).tolist()))
    rows = list(score_rows(TASKS["sst2"], splits=splits))
    share = np.mean([answer == max("01", key=splits["train"].answers.count) for answer in splits["test"].answers])
    assert [row["floor"] for row in rows] == [share, share]
    assert [row["metric"] for row in rows] == ["majority", "tfidf"]
    assert all((row["group"], row["n"]) == ("sst2", 300) for row in rows)
    assert rows[0]["value"] == share
    assert abs(rows[1]["value"] - 0.5) < 4 * 0.5 / 300**0.5  # standard errors of a guess


def test_pairs_are_compared():
    """Neither text alone says whether the two are the same."""

    def pairs(texts):
        other = [text if i % 2 else texts[i - 1] for i, text in enumerate(texts)]
        return Examples(texts, other, None, [str(i % 2) for i in range(len(texts))])

    assert values(TASKS["rte"], of(pairs))["tfidf"] > 0.9


def test_numbers_are_told_by_ridge_regression():
    def presence(texts):
        return Examples(texts, texts, None, [float("dog" in text.split()) for text in texts])

    found = values(TASKS["stsb"], of(presence))
    assert found["majority"] == 0
    assert found["tfidf"] > 0.8


def tagged(by):
    def make(texts):
        words = [text.split() for text in texts]
        return Examples(texts, None, words, [by(sentence) for sentence in words])

    return make


def test_a_tag_of_a_word_is_remembered_and_one_of_its_neighbour_needs_the_window():
    task = TASKS["language_parts_of_speech"]
    of_word = values(task, of(tagged(lambda words: ["D" if word in ("the", "a") else "X" for word in words])))
    assert set(of_word) == {"majority", "word", "word_window"}
    assert of_word["word"] == 1
    assert of_word["word_window"] > 0.99
    of_neighbour = values(
        task, of(tagged(lambda words: ["S", *("T" if word == "the" else "O" for word in words[:-1])]))
    )
    assert of_neighbour["word_window"] > 0.99 > 0.9 > of_neighbour["word"]


def test_a_new_word_has_the_most_frequent_tag():
    train = Examples(["a b b"], None, [["a", "b", "b"]], [["X", "Y", "Y"]])
    test = Examples(["a c"], None, [["a", "c"]], [["X", "Y"]])
    splits = {"train": train, "validation": train, "test": test}
    assert values(Task("made up", "tagging", "accuracy", "majority"), splits)["word"] == 1


def test_nothing_is_said_of_spans_and_minimal_pairs():
    nothing = Examples([], None, None, [])
    splits = dict.fromkeys(("train", "validation", "test"), nothing)
    assert not list(score_rows(TASKS["xquad"], splits=splits))
    assert not list(score_rows(TASKS["blimp"], splits=splits))


@pytest.mark.parametrize(("more", "count"), [({"examples": 20}, 20), ({"effort": "quick"}, 1000)])
def test_so_many_training_examples_are_taken_as_the_settings_say(more, count, monkeypatch):
    from ablations.tasks import baselines

    given = {}
    monkeypatch.setattr(baselines, "score_rows", lambda task, *, splits: given.update(splits) or iter(()))
    splits = of(lambda texts: Examples(texts, None, None, ["0"] * len(texts)), count=1500)
    settings = BaselinesSettings.model_validate({"kind": "baselines", "tasks": ["sst2"], **more})
    list(baseline_rows(settings, splits))
    assert len(given["train"]) == count
    assert given["test"] is splits["test"]


def test_quick_baselines_are_those_of_the_quick_tasks():
    quick = BaselinesSettings(kind="baselines", effort="quick").parts(built_in=False)
    names = ["bigram_shift", "tree_depth", "ud_pos", "sst2", "mrpc", "wikigold"]
    assert [part.task.name for part in quick] == names
    assert len(BaselinesSettings(kind="baselines").parts(built_in=False)) > len(quick)
