"""How answers of tasks are scored, against scikit-learn, numpy and counting by hand."""

import re

import numpy as np
import pytest
from sklearn import metrics as theirs

from ablations.tasks.catalogue import TASKS, Task
from ablations.tasks.metrics import chance, entities, exact_match, score, word_overlap


def task(metric, kind="classification", **more):
    return Task("made up", kind, metric, more.pop("chance", "majority"), **more)


def random_answers(choices, *, seed, count=500):
    rng = np.random.default_rng(seed)
    return rng.choice(choices, count).tolist(), rng.choice(choices, count).tolist()


@pytest.mark.parametrize("choices", [["0", "1"], ["a", "b", "c", "d"]])
def test_classes_are_scored_as_scikit_learn_scores_them(choices):
    said, right = random_answers(choices, seed=0)
    assert score(task("accuracy"), said, right) == theirs.accuracy_score(right, said)
    assert score(task("matthews"), said, right) == pytest.approx(theirs.matthews_corrcoef(right, said))
    assert score(task("accuracy"), right, right) == score(task("matthews"), right, right) == 1


def test_f1_is_about_the_positive_class_alone():
    said, right = random_answers(["0", "1"], seed=1)
    pairs = list(zip(said, right, strict=True))
    true, wrong = pairs.count(("1", "1")), pairs.count(("1", "0")) + pairs.count(("0", "1"))
    assert score(task("f1", positive="1"), said, right) == pytest.approx(2 * true / (2 * true + wrong))
    assert score(task("f1", positive="1"), said, right) != score(task("f1", positive="0"), said, right)
    assert score(task("f1", positive="1"), ["0"] * 3, ["1"] * 3) == 0


def test_matthews_of_four_counts():
    said, right = list("1110001000"), list("1100110000")
    tp, fp, fn, tn = 2, 2, 2, 4
    expected = (tp * tn - fp * fn) / np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert score(task("matthews"), said, right) == pytest.approx(expected)
    assert score(task("matthews"), ["1"] * 10, right) == 0


def test_correlations_are_those_of_the_numbers_or_of_their_ranks():
    rng = np.random.default_rng(2)
    said = rng.normal(size=200)
    right = said + rng.normal(size=200)
    pearson, spearman = (task(name, "regression") for name in ("pearson", "spearman"))
    assert score(pearson, said, right) == pytest.approx(np.corrcoef(said, right)[0, 1])
    ranks = [values.argsort().argsort() for values in (said, right)]
    assert score(spearman, said, right) == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert score(spearman, np.exp(said), right) == pytest.approx(score(spearman, said, right))
    assert score(pearson, np.exp(said), right) != pytest.approx(score(pearson, said, right), abs=1e-3)
    assert score(pearson, -said, right) == pytest.approx(-score(pearson, said, right))
    for metric in (pearson, spearman):
        assert score(metric, [3.0] * 200, right) == score(metric, said, [3.0] * 200) == 0


def test_tags_are_counted_word_by_word_over_all_sentences():
    said, right = [["A", "B"], ["A"]], [["A", "A"], ["A"]]
    assert score(task("accuracy", "tagging"), said, right) == pytest.approx(2 / 3)


def spans_by_pattern(tags):
    """Another way to the same: each tag a character, a span a pattern of them. Of two types at most."""
    letters = "".join({"O": "o", "B-X": "B", "I-X": "x", "B-Y": "C", "I-Y": "y"}[tag] for tag in tags)
    found = {(match.start(), match.end(), "X") for match in re.finditer("[Bx]x*", letters)}
    return found | {(match.start(), match.end(), "Y") for match in re.finditer("[Cy]y*", letters)}


def test_entities_of_random_tags_are_those_a_pattern_finds():
    rng = np.random.default_rng(3)
    choices = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    for _ in range(200):
        tags = rng.choice(choices, 12).tolist()
        assert entities([tags]) == {(0, *span) for span in spans_by_pattern(tags)}


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        (["B-P", "I-P", "O", "B-P"], [(0, 2, "P"), (3, 4, "P")]),
        (["B-P", "B-P"], [(0, 1, "P"), (1, 2, "P")]),
        (["I-P", "I-P", "O", "I-L"], [(0, 2, "P"), (3, 4, "L")]),
        (["B-P", "I-L"], [(0, 1, "P"), (1, 2, "L")]),
        (["O", "O"], []),
        (["I-work-of-art"], [(0, 1, "work-of-art")]),
    ],
)
def test_entities_of_tags_with_and_without_beginnings(tags, spans):
    assert entities([["O"], tags]) == {(1, *span) for span in spans}


def test_an_entity_counts_if_its_place_and_its_type_are_right():
    ner = task("entity_f1", "tagging", chance="none")
    right = [["B-P", "I-P", "O", "B-L"]]
    assert score(ner, right, right) == 1
    assert score(ner, [["B-P", "I-P", "O", "B-P"]], right) == pytest.approx(1 / 2)
    assert score(ner, [["B-P", "O", "O", "B-L"]], right) == pytest.approx(1 / 2)
    assert score(ner, [["B-P", "I-P", "O", "O"]], right) == pytest.approx(2 / 3)
    assert score(ner, [["O"] * 4], right) == 0
    assert score(ner, [["O"] * 4], [["O"] * 4]) == 1


def test_answers_overlap_by_words_without_articles_case_and_punctuation():
    assert word_overlap("The cat, sat.", "a Cat sat") == 1
    assert word_overlap("the black cat", "a cat on mats") == pytest.approx(2 / 5)
    assert word_overlap("cat cat", "cat") == pytest.approx(2 / 3)
    assert word_overlap("dog", "cat") == 0
    assert word_overlap("", "cat") == 0
    assert word_overlap("the", "") == 1
    spans = task("overlap_f1", "span", chance="none")
    assert score(spans, ["The cat", "dog", "cat cat"], ["cat", "cat", "cat"]) == pytest.approx((1 + 0 + 2 / 3) / 3)


def test_an_exact_match_is_all_or_nothing():
    assert exact_match(["The cat!", "black cat"], ["cat", "cat"]) == 1 / 2
    assert exact_match(["theatre"], ["atre"]) == 0


def test_chance_is_what_the_most_frequent_training_answer_scores():
    assert chance(task("accuracy"), ["a", "b", "b"], ["a", "b", "a", "a"]) == 1 / 4
    assert chance(task("f1", positive="1"), ["1", "1", "0"], ["1", "0"]) == pytest.approx(2 / 3)
    tags = task("accuracy", "tagging")
    assert chance(tags, [["N", "V"], ["N"]], [["N"], ["V", "V", "N"]]) == 1 / 2
    assert chance(TASKS["blimp"], [], []) == 1 / 2
    assert chance(TASKS["cola"], ["1"], ["1"]) == 0


@pytest.mark.parametrize(
    ("metric", "guess"), [("matthews", "1"), ("entity_f1", ["O", "O"]), ("pearson", 2.5), ("spearman", 2.5)]
)
def test_where_chance_is_said_to_be_none_a_constant_guess_scores_nothing(metric, guess):
    kinds = {"entity_f1": "tagging", "pearson": "regression", "spearman": "regression"}
    right = {"1": ["1", "0", "1"], 2.5: [1.0, 2.0, 4.0]}.get(guess) if not isinstance(guess, list) else None
    right = right or [["B-P", "O"]] * 3
    assert score(task(metric, kinds.get(metric, "classification"), chance="none"), [guess] * 3, right) == 0
