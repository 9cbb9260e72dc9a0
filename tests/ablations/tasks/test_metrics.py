"""How answers of tasks are scored, against scikit-learn, numpy and counting by hand."""

import itertools
import re

import numpy as np
import pytest
from sklearn import metrics as theirs
from torchmetrics.functional.text import squad

from ablations.tasks.datasets import TASKS, Task
from ablations.tasks.examples import Answer, Examples
from ablations.tasks.metrics import (
    WordsAtPlace,
    WordsBesideQuestion,
    chance,
    entities,
    exact_match,
    score,
    word_overlap,
)


def task(metric, kind="classification", **more):
    return Task("made up", kind, metric, **more)


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


@pytest.mark.parametrize("choices", [["0", "1"], ["a", "b", "c", "d"]])
def test_macro_f1_is_scikit_learns_over_the_classes_of_the_right_answers(choices):
    said, right = random_answers(choices, seed=2)
    macro = task("macro_f1")
    assert score(macro, said, right) == pytest.approx(theirs.f1_score(right, said, average="macro"))
    of_each = [score(task("f1", positive=name), said, right) for name in choices]
    assert score(macro, said, right) == pytest.approx(np.mean(of_each))
    assert score(macro, right, right) == 1
    common, rare = ["a"] * 9 + ["b"], ["a"] * 8 + ["z", "b"]
    assert score(macro, rare, common) == pytest.approx((16 / 17 + 1) / 2), "z is an error, and no class"
    assert score(macro, ["a"] * 10, common) == pytest.approx(18 / 19 / 2)


def test_matthews_of_four_counts():
    said, right = list("1110001000"), list("1100110000")
    tp, fp, fn, tn = 2, 2, 2, 4
    expected = (tp * tn - fp * fn) / np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert score(task("matthews"), said, right) == pytest.approx(expected)
    assert score(task("matthews"), ["1"] * 10, right) == 0
    assert score(task("matthews"), ["1"] * 2, ["1"] * 2) == 0  # warnings are errors here


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
        (["B-P", "I-P", "E-P", "S-P", "S-P"], [(0, 3, "P"), (3, 4, "P"), (4, 5, "P")]),
        (["B-P", "E-P", "I-P", "E-L"], [(0, 2, "P"), (2, 3, "P"), (3, 4, "L")]),
        (["B-P", "L-P", "U-L"], [(0, 2, "P"), (2, 3, "L")]),
        (["B-P", "S-P", "E-P"], [(0, 1, "P"), (1, 2, "P"), (2, 3, "P")]),
        (["B", "I", "O", "I", "B"], [(0, 2, ""), (3, 4, ""), (4, 5, "")]),
    ],
)
def test_entities_of_tags_with_and_without_beginnings(tags, spans):
    assert entities([["O"], tags]) == {(1, *span) for span in spans}


def written_as(spans, length, scheme):
    """The tags of spans that do not overlap."""
    single, last = {"BIO": "BI", "BIOES": "SE", "BILOU": "UL"}[scheme]
    tags = ["O"] * length
    for first, stop, kind in spans:
        letters = single if stop == first + 1 else "B" + "I" * (stop - first - 2) + last
        tags[first:stop] = [f"{letter}-{kind}" for letter in letters]
    return tags


def random_spans(rng, length=12):
    ends = np.sort(rng.choice(np.arange(length + 1), 6, replace=False)).tolist()
    return [(a, b, str(rng.choice(["P", "L"]))) for a, b in itertools.pairwise(ends) if rng.random() < 0.6]


@pytest.mark.parametrize("scheme", ["BIO", "BIOES", "BILOU"])
def test_entities_are_the_same_however_they_are_written(scheme):
    rng = np.random.default_rng(6)
    for _ in range(100):
        spans = random_spans(rng)
        assert entities([written_as(spans, 12, scheme)]) == {(0, *span) for span in spans}


def test_f1_of_entities_is_scikit_learns_of_whether_each_span_is_one():
    """Every span of every type that either side has is a case of a binary question."""
    rng = np.random.default_rng(7)
    of = [[random_spans(rng) for _ in range(60)] for _ in range(2)]
    right = [[span for span in spans if rng.random() < 0.6] for spans in of[0]]
    said = [spans if rng.random() < 0.7 else other for spans, other in zip(right, of[1], strict=True)]
    cases = sorted({(i, *span) for side in (said, right) for i, spans in enumerate(side) for span in spans})
    is_in = [[case[1:] in side[case[0]] for case in cases] for side in (said, right)]
    tags = [[written_as(spans, 12, "BIOES") for spans in side] for side in (said, right)]
    found = score(task("entity_f1", "tagging"), *tags)
    assert found == pytest.approx(theirs.f1_score(is_in[1], is_in[0]))
    assert 0.1 < found < 0.9


def test_f1_of_words_and_exact_match_are_those_of_torchmetrics():
    rng = np.random.default_rng(8)
    words = ["the", "The", "a", "an", "cat", "Cat,", "dog.", "it's", "runs", "", "18-20"]
    right, said = ([" ".join(rng.choice(words, rng.integers(0, 6))) for _ in range(400)] for _ in range(2))
    said = [a if rng.random() < 0.7 else b for a, b in zip(said, right, strict=True)]
    found = squad(
        [{"prediction_text": text, "id": str(i)} for i, text in enumerate(said)],
        [{"answers": {"answer_start": [0], "text": [text]}, "id": str(i)} for i, text in enumerate(right)],
    )
    # They add up 400 numbers in single precision.
    for metric, name in (("overlap_f1", "f1"), ("exact_match", "exact_match")):
        value = score(task(metric, "span"), said, right)
        assert value == pytest.approx(found[name].item() / 100, rel=400 * 2**-24)
        assert 0.1 < value < 0.9


def test_an_entity_counts_if_its_place_and_its_type_are_right():
    ner = task("entity_f1", "tagging")
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
    spans = task("overlap_f1", "span")
    assert score(spans, ["The cat", "dog", "cat cat"], ["cat", "cat", "cat"]) == pytest.approx((1 + 0 + 2 / 3) / 3)


def test_an_exact_match_is_all_or_nothing():
    assert exact_match(["The cat!", "black cat"], ["cat", "cat"]) == 1 / 2
    assert exact_match(["theatre"], ["atre"]) == 0


@pytest.mark.parametrize(
    ("answer", "right", "overlap", "is_exact"),
    [
        ("北京是", "北京", 4 / 5, False),
        ("北京。", "北京", 1, True),
        ("「上海」（市）", "上海市", 1, True),
        ("ที่นี่", "ที่", 2 / 3, False),
        ("“la casa”", "«casa»", 2 / 3, False),
        ("बिल्ली।", "बिल्ली", 1, True),
        ("लड़का है", "लड़का", 2 / 3, False),
    ],
)
def test_answers_are_compared_by_words_in_any_script(answer, right, overlap, is_exact):
    assert word_overlap(answer, right) == word_overlap(right, answer) == pytest.approx(overlap)
    assert exact_match([answer], [right]) == is_exact


@pytest.mark.parametrize(
    ("question", "context", "after", "answers"),
    [
        ("Who is it ?", "The man , who is old , saw Mary .", True, "The man ,"),
        ("Who is the man ?", "The man , who is old , saw Mary .", True, ", who is"),
        ("首都？", "北京是首都，上海不是。", False, "北 京 是"),
    ],
)
def test_words_beside_those_of_the_question(question, context, after, answers):
    """Neither punctuation nor stop words count as shared."""
    examples = Examples([question], [context], None, [Answer(0, 1)])
    assert WordsBesideQuestion(3, after).answers(examples) == [answers]


def test_a_place_is_of_characters_where_no_spaces_separate_words():
    assert WordsAtPlace(first=2).answers(answered([Answer(0, 2)], ["北京是首都。"])) == ["北 京"]
    assert chance(task("exact_match", "span"), answered([Answer(0, 2)], ["北京是首都。"])) == 1


def answered(answers, contexts=None, words=None):
    return Examples([""] * len(answers), contexts, words, answers)


def test_chance_is_the_best_that_one_answer_to_everything_scores():
    right = ["a", "b", "a", "a", "c"]
    assert chance(task("accuracy"), answered(right)) == 3 / 5
    assert chance(task("f1", positive="1"), answered(["1", "0", "0", "0"])) == pytest.approx(2 / 5)
    tags = [["N"], ["V", "V", "N", "V"]]
    assert chance(task("accuracy", "tagging"), answered(tags, words=tags)) == 3 / 5
    assert chance(TASKS["blimp"], answered([])) == 1 / 2
    assert chance(TASKS["cola"], answered(["1"])) == 0


@pytest.mark.parametrize(
    ("metric", "positive"), [("accuracy", None), ("f1", "a"), ("f1", "c"), ("macro_f1", None)]
)
def test_no_constant_answer_is_above_chance(metric, positive):
    """Whatever a training part makes a model say."""
    asked = task(metric, positive=positive)
    for seed in range(20):
        right = np.random.default_rng(seed).choice(list("abc"), 30, p=[0.4, 0.35, 0.25]).tolist()
        scores = [score(asked, [answer] * 30, right) for answer in "abcd"]
        assert chance(asked, answered(right)) == max(scores)


def test_no_constant_tag_is_above_chance():
    rng = np.random.default_rng(6)
    right = [rng.choice(["O", "B-P", "I-P", "B-L", "S-L"], 3).tolist() for _ in range(40)]
    asked = task("entity_f1", "tagging")
    scores = [score(asked, [[tag] * 3] * 40, right) for tag in ("O", "B-P", "I-P", "E-L", "B-L", "S-L")]
    assert chance(asked, answered(right, words=right)) == max(scores) > 0


def test_chance_of_spans_is_the_best_of_the_same_words_of_every_context():
    contexts = ["b c d e", "f g h", "i j"]
    spans = task("overlap_f1", "span")
    firsts = [Answer(0, 1), Answer(0, 1), Answer(0, 3)]
    assert chance(spans, answered(firsts, contexts)) == pytest.approx((1 + 1 + 2 / 3) / 3)
    lasts = [Answer(6, 7), Answer(4, 5), Answer(2, 3)]
    assert chance(spans, answered(lasts, contexts)) == 1
    alls = [Answer(0, len(context)) for context in contexts]
    assert chance(spans, answered(alls, contexts)) == 1
    exact = task("exact_match", "span")
    assert chance(exact, answered(firsts, contexts)) == 2 / 3
    assert score(exact, ["i j", "x"], ["The I, j!", "y"]) == 1 / 2


def test_an_answer_of_the_same_words_of_every_context_is_never_above_chance():
    rng = np.random.default_rng(5)
    contexts = [" ".join(rng.choice(list("bcdefg"), rng.integers(3, 12))) for _ in range(40)]
    starts = [2 * int(rng.integers(0, len(context.split()))) for context in contexts]
    examples = answered([Answer(start, start + 1) for start in starts], contexts)
    spans = task("overlap_f1", "span")
    blind = [[" ".join(context.split()[:k]) for context in contexts] for k in range(1, 13)]
    blind += [[" ".join(context.split()[-k:]) for context in contexts] for k in range(1, 13)]
    assert chance(spans, examples) == max(score(spans, said, examples.right) for said in blind)
    assert 0 < chance(spans, examples) < score(spans, examples.right, examples.right) == 1


@pytest.mark.parametrize(("metric", "guess"), [("matthews", "1"), ("pearson", 2.5), ("spearman", 2.5)])
def test_where_chance_is_said_to_be_none_a_constant_guess_scores_nothing(metric, guess):
    kind = "classification" if metric == "matthews" else "regression"
    right = {"1": ["1", "0", "1"], 2.5: [1.0, 2.0, 4.0]}[guess]
    assert score(task(metric, kind), [guess] * 3, right) == 0
