"""How names and values appear in a sentence."""

from datetime import date

import numpy as np
import pytest

from ablations.wording import by_kind, exact_number, guess, listed, nearest, several, shown

NAMES = ["num_hidden_layers", "hidden_size", "num_attention_heads", "dropout", "norm"]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("hidden_sise", "hidden_size"),
        ("Dropout", "dropout"),
        ("heads", "num_attention_heads"),
        ("layers", "num_hidden_layers"),
        ("num", None),  # two names contain it
        ("o", None),
        ("learning_rate", None),
    ],
)
def test_the_nearest_name_or_the_only_one_that_contains_the_word(word, meant):
    assert nearest(word, NAMES) == meant
    assert guess(word, NAMES) == (f"; did you mean {meant}?" if meant else "")


def test_a_whole_part_of_a_name_is_nearer_than_similar_letters():
    assert nearest("time", ["tries", "time_limit"]) == "time_limit"
    assert nearest("time", ["tries", "time_limit", "time_left"]) == "tries"  # two names have the part


def test_a_word_of_another_length_that_shares_some_letters_and_not_the_first_is_another_word():
    names = ["name", "seeds", "arms"]
    assert nearest("extends", names) is None
    assert nearest("sead", names) == "seeds"
    assert nearest("rname", names) == "name"  # nearly all letters
    assert nearest("nlm", ["mlm", "half"]) == "mlm"


def test_names_in_capitals_are_found_too():
    assert nearest("nouns", ["NOUN", "VERB"]) == nearest("NOUNS", ["NOUN", "VERB"]) == "NOUN"


def test_what_is_no_text_means_nothing():
    assert guess(3, NAMES) == guess(None, NAMES) == ""


@pytest.mark.parametrize(("words", "text"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")])
def test_a_list_of_words(words, text):
    assert listed(words) == text
    assert listed(words, "and") == text.replace("or", "and")


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1"), (1.0, "1"), (0.4, "0.4"), (1e-5, "1e-5"), (5e-4, "0.0005"), (1e16, "1e16"), (-3, "-3")],
)
def test_a_number_is_short_and_reads_back(value, text):
    assert exact_number(value) == text
    assert float(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "empty"), (True, "true"), (2.0, "2.0"), ("é\n", '"é\\n"'), ("x" * 61, f'"{"x" * 57}..."'),
        ({"a": 1}, "a mapping"), ([1], "a list"), (("a",), "a list"),
    ],
)  # fmt: skip
def test_a_value_as_it_was_written(value, text):
    assert shown(value) == text


def test_a_value_that_no_yaml_has_and_text_shorter_than_usual():
    assert shown(date(2026, 1, 2)) == "2026-01-02"
    assert shown(b"ab") == "b'ab'"
    assert shown(np.arange(3)) == shown((1, 2)) == "a list"
    assert shown("abcdefghij", 8) == '"abcde..."'


def test_one_is_no_plural():
    assert [several(n, "run") for n in (0, 1, 2, 1200)] == ["0 runs", "1 run", "2 runs", "1,200 runs"]


def test_measures_of_tasks_stand_together_by_kind():
    names = ["validation", "probing tree_depth", "geometry", "probing ud_pos"]
    assert by_kind(names) == "validation, probing (tree_depth, ud_pos), geometry"
