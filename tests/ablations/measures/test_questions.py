"""What is asked of which occurrences, and which tokens are hidden for it."""

import math

import numpy as np
import pytest

from ablations.errors import MeasureError
from ablations.measures.reading.sample import whole_sentences
from ablations.measures.reading.texts import layer_states, shown_states
from ablations.measures.settings import ReadOutSettings, TokenInformationSettings
from ablations.measures.token_information import READINGS, hidden_tokens, questions_of
from lightning_modules.data.tokenizer import FIRST_WORD_ID
from lightning_modules.objectives import build
from tests.support.errors import error_text
from tests.support.tiny_text import settings
from tests.support.zipf_text import zipf_sample

EVERYTHING = ("input", "previous", "next", "output")


def wanted(**changes):
    return TokenInformationSettings(kind="token_information", **{"clusters": 8, "about": EVERYTHING} | changes)


@pytest.mark.parametrize(
    ("kind", "groups"),
    [
        ("causal_lm", [None, "previous token", "next token", "output label"]),
        ("masked_lm", [None, "previous token", "next token", "output label", "shown token"]),
        ("mixture", [None, "previous token", "next token", "output label", "shown token"]),
        ("translation", [None, "previous token", "next token"]),
        (None, [None, "previous token", "next token"]),
    ],
)
def test_what_is_asked_depends_on_what_was_learned_and_of_all_equally_often(kind, groups, sample):
    questions = questions_of(sample, wanted(), settings(kind).objective.output if kind else None)
    assert [question.group for question in questions] == groups
    sizes = {len(question.place_N) for question in [*questions, *questions_of(sample, wanted(), "hidden")]}
    assert len(sizes) == 1  # also the same in arms that have learned something else
    for question in questions:
        assert (np.diff(question.place_N) > 0).all()
        expected_N = {
            None: sample.token_N,
            "previous token": sample.left_N,
            "next token": sample.right_N,
            "output label": sample.token_N if question.hidden else sample.right_N,
        }
        if question.group in expected_N:
            assert np.array_equal(question.label_N, expected_N[question.group][question.place_N])
        assert question.hidden == (kind in ("masked_lm", "mixture") and question.group in groups[3:])
        assert (question.label_N >= FIRST_WORD_ID).all()


def test_the_shown_token_is_what_is_read_in_place_of_the_label(sample):
    own, shown = questions_of(sample, wanted(), "hidden")[-2:]
    assert (own.group, shown.group) == ("output label", "shown token")
    assert np.array_equal(own.place_N, shown.place_N)
    read = dict(zip(*hidden_tokens(sample, wanted().types)[:2], strict=True))
    assert shown.label_N.tolist() == [read[place] for place in shown.place_N]
    assert (shown.label_N != own.label_N).all()


def test_only_the_most_frequent_labels_count():
    sample = zipf_sample()
    for question in questions_of(sample, wanted(types=20), "hidden"):
        labels = set(question.label_N.tolist())
        assert len(labels) == 20
        if question.group is None:
            assert labels == set(np.argsort(-np.bincount(sample.token_N), kind="stable")[:20].tolist())


def test_hidden_tokens_are_shown_as_any_other_type_equally_often():
    sample = zipf_sample()
    hidden = hidden_tokens(sample, 50)
    original_N = sample.token_N[hidden.place_N]
    assert (hidden.shown_N != original_N).all()
    assert set(hidden.shown_N.tolist()) == set(original_N.tolist())
    n = len(hidden.place_N)
    entropy = -sum(p * math.log(p) for p in np.unique(hidden.shown_N, return_counts=True)[1] / n)
    # The plug-in entropy of n draws from V types is below log V by about (V - 1) / 2n; frequent types, which are
    # never shown as themselves, are shown a little less often.
    assert entropy == pytest.approx(math.log(50), abs=0.02)
    share = np.bincount(hidden.reading_N, minlength=READINGS) / np.isin(sample.token_N, original_N).sum()
    assert len(share) == READINGS
    np.testing.assert_allclose(
        share, 0.15, atol=4 * math.sqrt(0.15 * 0.85 / len(sample)) * 1.3
    )  # 4 standard errors


def test_states_with_other_tokens_are_those_of_the_changed_text(tokens, sample):
    objective = build(settings(), tokens)
    shown_N = sample.token_N.copy()
    shown_N[5] = FIRST_WORD_ID + 7
    plain, changed = (
        layer_states(objective, tokens.validation, sample),
        shown_states(objective, tokens.validation, sample, shown_N),
    )
    same_sentence = sample.sentence_N == sample.sentence_N[5]
    for before, after in zip(plain, changed, strict=True):
        np.testing.assert_array_equal(before[~same_sentence], after[~same_sentence])
    assert (plain[0][5] != changed[0][5]).any()
    assert (plain[1][same_sentence] != changed[1][same_sentence]).any(1).all()
    assert sample.token_N[5] != shown_N[5]  # the sample itself stays


def test_the_output_of_a_text_with_one_token_is_refused():
    ids = np.full(40, FIRST_WORD_ID)
    one = whole_sentences(ids, np.arange(0, 41, 10), np.ones(40, bool), 40)
    assert error_text(MeasureError, lambda: questions_of(one, wanted(), "hidden")) == (
        "the output label needs a text with at least 2 different tokens, but the text has 1; use another text, "
        "or leave `output` out of `about`."
    )


def test_both_measures_of_information_ask_the_same(sample):
    read_out = ReadOutSettings(kind="read_out", about=EVERYTHING)
    for first, second in zip(
        questions_of(sample, wanted(), "hidden"), questions_of(sample, read_out, "hidden"), strict=True
    ):
        assert first.group == second.group
        assert np.array_equal(first.place_N, second.place_N)
        assert np.array_equal(first.label_N, second.label_N)
