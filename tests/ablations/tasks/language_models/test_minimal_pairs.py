"""Accuracy on minimal pairs: of models that know the answer, know its contrary, or know nothing."""

import numpy as np
import pytest
import torch

from ablations.errors import MeasureError
from ablations.measures.jackknife import BLOCKS
from ablations.tasks.examples import Examples
from ablations.tasks.language_models import minimal_pairs as module
from ablations.tasks.language_models.minimal_pairs import (
    compared,
    differ_in_whole_words,
    minimal_pairs_rows,
    outcomes,
    sampled,
)
from ablations.tasks.language_models.sentence_scores import Pieces, Score, Scores, pieces_of, sentence_scores
from ablations.tasks.settings import MinimalPairsSettings
from lightning_modules.data.tokenizer import FIRST_WORD_ID, UNKNOWN
from lightning_modules.objectives import build
from tests.support.errors import error_text
from tests.support.tiny_text import WORDS, settings

ACCURACIES = {
    "causal_lm": {"accuracy"},
    "masked_lm": {"accuracy", "accuracy_within_word"},
    "mixture": {"accuracy", "accuracy_within_word", "accuracy_left_to_right"},
    "translation": set(),
}
GUESSES = {f"accuracy{of}_by_{guess}" for of in ("", "_whole_words") for guess in ("length", "unigram")}


def asked(task="blimp", **more):
    return MinimalPairsSettings(kind="minimal_pairs", tasks=(task,), **more)


def examples(pairs, groups=None):
    """Pairs of sentences as a task has them."""
    good, bad = map(list, zip(*pairs, strict=True))
    return Examples(good, bad, None, [None] * len(good), groups or [("syntax", "island")] * len(good))


def random_pairs(count, *, seed=0):
    """Pairs that differ in one word: the good half has "dog" where the bad one has "cat"."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        words = list(rng.choice(["the", "a", "sees", "likes", "small"], rng.integers(2, 7)))
        place = int(rng.integers(len(words) + 1))
        made.append([" ".join([*words[:place], word, *words[place:]]) for word in ("dog", "cat")])
    return made


def table(objective, given, tokens, settings=None, *, max_length=64, counts_V=None):
    """Rows by group and metric."""
    counts_V = tokens.source_counts_V if counts_V is None else counts_V
    settings = settings or asked()
    rows = minimal_pairs_rows(
        objective, given, tokens.tokenizer, settings, max_length=max_length, counts_V=counts_V
    )
    found = {}
    for row in rows:
        assert found.setdefault((row["group"], row["metric"]), row) is row, "two rows agree"
    return found


def planted(kind, tokens, preference):
    """An objective that finds "dog" more probable than "cat", everywhere, by so many nats."""
    objective = build(settings(kind), tokens)
    (dog,), (cat,) = (pieces_of([word], tokens.tokenizer)[0].ids_P for word in ("dog", "cat"))
    with torch.no_grad():
        objective.head.bias[dog] += preference
        objective.head.bias[cat] -= preference
    return objective


@pytest.mark.parametrize("kind", ["causal_lm", "masked_lm", "mixture"])
def test_a_model_that_knows_the_answer_is_always_right_and_its_contrary_never(kind, tokens):
    given = examples(random_pairs(40))
    for preference, expected in ((20, 1.0), (-20, 0.0)):
        rows = table(planted(kind, tokens, preference), given, tokens)
        for metric in ACCURACIES[kind] | {"accuracy_whole_words"}:
            row = rows["blimp", metric]
            assert (row["value"], row["floor"], row["n"]) == (expected, 0.5, 40)
            # Of 44 pairs, 42 or 2 of them right.
            assert row["standard_error"] == pytest.approx((42 / 44 * 2 / 44 / 44) ** 0.5)


@pytest.mark.parametrize("kind", ["causal_lm", "masked_lm"])
def test_a_model_that_prefers_a_word_is_right_half_of_the_time_if_that_is_no_answer(kind, tokens):
    """A coin says which half is the good one."""
    pairs = random_pairs(300, seed=1)
    coins = np.random.default_rng(2).random(300) < 0.5
    given = examples([pair if coin else pair[::-1] for pair, coin in zip(pairs, coins, strict=True)])
    row = table(planted(kind, tokens, 20), given, tokens)["blimp", "accuracy"]
    assert row["value"] == coins.mean()
    share = coins.mean()
    assert row["standard_error"] == pytest.approx((share * (1 - share) / 299) ** 0.5)
    random = table(build(settings(kind), tokens), given, tokens)["blimp", "accuracy"]
    assert random["value"] == pytest.approx(0.5, abs=4 * (0.25 / 300) ** 0.5)  # 4 standard errors of fair coins


def test_equal_scores_count_half(tokens):
    """Where every token sees itself alone and there are no positions, the order of words cannot matter; computed,
    the sums differ by rounding."""
    same = settings("masked_lm", objective={"sees": "itself"}, encoder={"positions": "none"})
    pairs = [["the dog sees a cat", "a cat sees the dog"], ["a dog hears", "hears dog a"], ["the cat", "the cat"]]
    row = table(build(same, tokens), examples(pairs), tokens)["blimp", "accuracy"]
    assert (row["value"], row["standard_error"]) == (0.5, 0.0)
    scores = [np.array(x) for x in ([-60.0, -60.0, -60.0], [-60.00001, -60.001, -59.999])]
    assert compared(*scores).tolist() == [0.5, 1.0, 0.0]
    impossible = -np.inf
    scores = [np.array(x) for x in ([impossible, impossible, -5.0], [impossible, -5.0, impossible])]
    assert compared(*scores).tolist() == [0.5, 0.0, 1.0]


def test_groups_are_the_task_its_fields_and_its_paradigms(tokens, monkeypatch):
    """Of planted scores."""
    right = np.array([1, 1, 0, 1, 0, 0.5])
    score = Score(np.r_[right - 0.5, np.zeros(6)] - 9, np.zeros(12, bool))
    monkeypatch.setattr(module, "sentence_scores", lambda *_, **__: Scores(score))
    names = [("syntax", "island"), ("syntax", "island"), ("syntax", "gap"), ("semantics", "npi")]
    given = examples(random_pairs(6), [*names, names[0], names[3]])
    rows = table(build(settings("causal_lm"), tokens), given, tokens)
    found = {group: (row["value"], row["n"]) for (group, metric), row in rows.items() if metric == "accuracy"}
    assert found == {
        "blimp": (3.5 / 6, 6),
        "blimp/syntax": (2 / 4, 4),
        "blimp/semantics": (1.5 / 2, 2),
        "blimp/island": (2 / 3, 3),
        "blimp/gap": (0, 1),
        "blimp/npi": (1.5 / 2, 2),
    }
    left_out = [np.delete(right[[0, 1, 4]], i).mean() for i in range(3)]
    jackknife = (2 / 3 * np.square(np.array(left_out) - np.mean(left_out)).sum()) ** 0.5
    assert rows["blimp/island", "accuracy"]["standard_error"] == pytest.approx(jackknife)
    assert rows["blimp/gap", "accuracy"]["standard_error"] == pytest.approx((0.4 * 0.6 / 5) ** 0.5)


def test_a_pair_counts_once_in_a_group_that_two_columns_name(tokens):
    groups = [("npi", "npi"), ("syntax", "other"), ("syntax", "island"), ("npi", "npi")]
    rows = table(planted("causal_lm", tokens, 20), examples(random_pairs(4), groups), tokens)
    counts = {group: row["n"] for (group, metric), row in rows.items() if metric == "accuracy"}
    assert counts == {"blimp": 4, "blimp/npi": 2, "blimp/syntax": 2, "blimp/other": 1, "blimp/island": 1}


def test_the_built_in_language_goes_by_its_own_name(tokens):
    given = examples(random_pairs(2), [("verb_form",)] * 2)
    rows = table(build(settings("causal_lm"), tokens), given, tokens, asked("language_minimal_pairs"))
    assert {group for group, _ in rows} == {"language", "language/verb_form"}


@pytest.mark.parametrize("kind", ACCURACIES)
def test_accuracies_are_those_that_an_objective_has(kind, tokens):
    rows = table(build(settings(kind), tokens), examples(random_pairs(3)), tokens)
    metrics = {metric for group, metric in rows if group == "blimp"}
    more = {"accuracy_whole_words"} if ACCURACIES[kind] else set()
    assert metrics == ACCURACIES[kind] | more | GUESSES | {"covered", "whole_words"}


def test_the_guess_by_length_takes_the_sentence_of_fewer_pieces(tokens):
    """Of planted texts, whose words but the last are one piece each."""
    pairs = [
        ["the dog", "the dog sees"],
        ["a dog sees", "a dog"],
        ["the dog", "the cat"],
        ["the dog", "the dogfpk"],
    ]
    rows = table(build(settings("causal_lm"), tokens), examples(pairs), tokens)
    row = rows["blimp", "accuracy_by_length"]
    assert (row["value"], row["floor"], row["n"]) == ((1 + 0 + 0.5 + 1) / 4, 0.5, 4)
    whole = rows["blimp", "accuracy_whole_words_by_length"]
    assert (whole["value"], whole["n"]) == ((1 + 0 + 0.5) / 3, 3)


def test_the_guess_by_unigram_takes_the_more_frequent_words(tokens):
    """By hand from planted counts: among as many pieces those that the training text has more often, and of the
    same word once more than once, the sentence that is shorter."""
    (dog,), (cat,) = (pieces_of([word], tokens.tokenizer)[0].ids_P for word in ("dog", "cat"))
    counts_V = np.full_like(tokens.source_counts_V, 10)
    counts_V[dog] = 99
    pairs = [["the dog", "the cat"], ["a cat", "a dog"], ["the dog", "the dog dog"], ["dog cat", "cat dog"]]
    rows = table(build(settings("causal_lm"), tokens), examples(pairs), tokens, counts_V=counts_V)
    assert rows["blimp", "accuracy_by_unigram"]["value"] == (1 + 0 + 1 + 0.5) / 4
    # Two frequent pieces against a rare one: log 100/T twice, or log 11/T once, T being all counts.
    total = (counts_V + 1)[FIRST_WORD_ID:].sum()
    longer, shorter = 2 * np.log(100 / total), np.log(11 / total)
    row = table(build(settings("causal_lm"), tokens), examples([["dog dog", "cat"]]), tokens, counts_V=counts_V)
    assert row["blimp", "accuracy_by_unigram"]["value"] == float(longer > shorter)
    counts_V[cat] = 0
    counts_V[dog] = 10**6
    row = table(build(settings("causal_lm"), tokens), examples([["dog dog", "cat"]]), tokens, counts_V=counts_V)
    assert row["blimp", "accuracy_by_unigram"]["value"] == 1, "frequent enough, and length does not decide"
    assert row["blimp", "accuracy_by_length"]["value"] == 0


@pytest.mark.parametrize("kind", ["causal_lm", "masked_lm"])
def test_a_model_that_knows_frequencies_alone_scores_its_unigram_guess(kind, tokens):
    """With a head of log frequencies and no states: an accuracy far from one half that shows no grammar."""
    given = examples(random_pairs(60, seed=3) + [["a dog", "a dog likes a small dog"]] * 40)
    objective = build(settings(kind, encoder={"dropout": 0.0}), tokens)
    log_V = torch.from_numpy(np.log(tokens.source_counts_V + 1.0)).float()
    log_V[:FIRST_WORD_ID] = -30.0  # END, which causal LM adds to both halves, and what is never predicted
    with torch.no_grad():
        objective.encoder.tokens.weight.zero_()
        objective.head.bias.copy_(log_V)
    rows = table(objective, given, tokens)
    assert rows["blimp", "accuracy"]["value"] == rows["blimp", "accuracy_by_unigram"]["value"] != 0.5
    assert rows["blimp", "accuracy"]["standard_error"] == rows["blimp", "accuracy_by_unigram"]["standard_error"]


def test_what_the_vocabulary_covers(tokens):
    """The first pair has whole words; the second a piece that the training text lacks, in a word that is the same;
    the third a byte that the vocabulary lacks, where it differs; the last splits a word that differs."""
    pairs = [["the dog", "the cat"], ["fish dog", "fish cat"], ["the dog", "the Ü"], ["the dog", "the dogfpk"]]
    (fish,) = pieces_of(["fish"], tokens.tokenizer)[0].ids_P
    counts_V = tokens.source_counts_V.copy()
    counts_V[fish], counts_V[UNKNOWN] = 0, 9
    objective = build(settings("causal_lm"), tokens)
    with_fish = table(objective, examples(pairs), tokens)
    without = table(objective, examples(pairs), tokens, counts_V=counts_V)
    assert (with_fish["blimp", "covered"]["value"], without["blimp", "covered"]["value"]) == (3 / 4, 2 / 4)
    assert without["blimp", "covered"]["n"] == 4
    assert "floor" not in without["blimp", "covered"]
    assert without["blimp", "whole_words"]["value"] == 2 / 4
    assert without["blimp", "accuracy_whole_words"]["n"] == 2
    split = table(objective, examples(pairs[3:]), tokens)
    assert split["blimp", "whole_words"]["value"] == 0
    assert ("blimp", "accuracy_whole_words") not in split


@pytest.mark.parametrize(
    ("good", "bad", "whole"),
    [
        ("1 2 3", "1 4 3", True),
        ("1 2 3", "1 4-5 3", False),
        ("1-2 3", "1-2 4", True),  # what is split is the same
        ("1 2 3-4 5", "1 3-4 2 5", False),  # what changes places differs
        ("1 2 3 5", "1 3 2 5", True),
        ("1 2 2 3", "1 2 3", True),  # what begins the words twice ends them once
        ("1 2-2 3", "1 3", False),
        ("1", "1", True),
    ],
)
def test_words_differ_between_the_same_beginning_and_the_same_end(good, bad, whole):
    def pieces(text):
        words = [word.split("-") for word in text.split()]
        ids = [int(piece) for word in words for piece in word]
        return Pieces(np.array(ids), np.repeat(np.arange(len(words)), [len(word) for word in words]))

    assert differ_in_whole_words(pieces(good), pieces(bad)) is whole
    assert differ_in_whole_words(pieces(bad), pieces(good)) is whole


def test_samples_take_some_of_each_paradigm_and_grow(tokens):
    groups = [("field", "ab"[i % 2]) for i in range(110)]
    given = examples([[str(i), f"not {i}"] for i in range(110)], groups)

    def numbers(**more):
        return [int(text) for text in sampled(given, asked(**more)).first]

    assert numbers() == list(range(110))
    quick, seven, many = numbers(effort="quick"), numbers(pairs=7), numbers(pairs=60)
    assert many == list(range(110))
    assert quick == sorted(quick)
    assert [sum(i % 2 == k for i in quick) for k in (0, 1)] == [6, 6]  # a tenth of 55, rounded up
    assert [sum(i % 2 == k for i in seven) for k in (0, 1)] == [7, 7]
    assert set(quick) < set(seven)
    of_a, of_b = ([i // 2 for i in quick if i % 2 == k] for k in (0, 1))
    assert list(range(6)) != of_a != of_b, "each draws its own"
    assert numbers(effort="quick", pairs=7) == seven


def test_a_block_has_the_same_pairs_in_an_arm_that_leaves_pairs_out(tokens):
    """So that claims subtract numbers without the same pairs."""
    pairs = random_pairs(40)
    model, given = build(settings("causal_lm"), tokens), examples(pairs)
    halves = [pieces_of(half, tokens.tokenizer) for half in (given.first, given.second)]
    right_N = outcomes(sentence_scores(model, [*halves[0], *halves[1]]))["accuracy"]
    length_N = np.max([[len(sentence.ids_P) for sentence in half] for half in halves], axis=0)
    some = np.flatnonzero(length_N <= np.median(length_N))
    row = table(model, given, tokens, max_length=2 + int(np.median(length_N)))["blimp", "accuracy"]
    assert row["n"] == len(some) < 40
    assert row["left_out"] == [right_N[some[some % BLOCKS != block]].mean() for block in range(BLOCKS)]


def test_a_task_without_groups_is_sampled_and_scored_as_a_whole(tokens):
    given = examples(random_pairs(30), [()] * 30)
    assert len(sampled(given, asked(effort="quick"))) == 3
    rows = table(build(settings("causal_lm"), tokens), given, tokens)
    assert {group for group, _ in rows} == {"blimp"}
    assert rows["blimp", "accuracy"]["n"] == 30


def test_pairs_that_are_too_long_are_left_out(tokens):
    long = " ".join(WORDS[:8])
    given = examples([[long, "the cat"], ["the cat", long], ["the dog", "the cat"]])
    for preference, expected in ((20, 1.0), (-20, 0.0)):
        rows = table(planted("causal_lm", tokens, preference), given, tokens, max_length=4)
        assert rows["blimp", "accuracy"]["n"] == rows["blimp", "covered"]["n"] == 1
        assert rows["blimp", "accuracy"]["left_out"] is None
        assert rows["blimp", "accuracy"]["value"] == expected
    assert error_text(
        MeasureError, lambda: table(build(settings("causal_lm"), tokens), given, tokens, max_length=3)
    ) == (
        "minimal_pairs: blimp has no pair of sentences with at most 3 tokens (START and END included); raise "
        "data.max_length, or leave the task out."
    )
