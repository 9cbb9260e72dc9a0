"""What is asked of which occurrences, and of which states."""

import math

import numpy as np
import pandas as pd
import pytest

from ablations.errors import MeasureError
from ablations.measures import token_information as module
from ablations.measures.information.estimate import smaller_half
from ablations.measures.reading.sample import first_tokens, whole_sentences
from ablations.measures.reading.texts import layer_states, shown_states
from ablations.measures.settings import TokenInformationSettings
from ablations.measures.token_information import (
    READINGS,
    hidden_tokens,
    information_rows,
    questions_of,
    require_enough,
)
from lightning_modules.objectives import build
from lightning_modules.vocabulary import FIRST_WORD_ID, MASK
from tests.support.tiny_text import settings

EVERYTHING = ("input", "previous", "next", "output")


def wanted(**changes):
    return TokenInformationSettings(kind="token_information", **{"clusters": 8, "about": EVERYTHING} | changes)


@pytest.fixture
def sample(tokens):
    return first_tokens(tokens.validation, 10**6)


def zipf_sample(count=40_000, types=300):
    rng = np.random.default_rng(0)
    ids = rng.zipf(1.2, count) % types + FIRST_WORD_ID
    return whole_sentences(ids, np.arange(0, count + 1, 20), np.ones(count, bool), count)


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


def test_each_question_is_measured_with_its_own_states_labels_and_sentences(sample, monkeypatch):
    measured, compute = [], module.token_information

    def recorded(states_ND, labels_N, sentences_N, **options):
        measured.append((states_ND, labels_N, sentences_N))
        return compute(states_ND, labels_N, sentences_N, **options)

    monkeypatch.setattr(module, "token_information", recorded)
    place_ND = np.arange(2 * len(sample), dtype=np.float32).reshape(-1, 2)  # a state says whose it is
    settings = wanted(about=("input", "previous", "next"))
    list(information_rows([place_ND], sample, settings))
    for question, (states_ND, labels_N, sentences_N) in zip(
        questions_of(sample, settings, None), measured, strict=True
    ):
        assert np.array_equal(states_ND, place_ND[question.place_N])
        assert np.array_equal(labels_N, question.label_N)
        assert np.array_equal(sentences_N, sample.sentence_N[question.place_N])


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


def test_a_hidden_token_is_read_where_it_is_shown_as_the_other(tokens, sample):
    """Every state asked about comes from a reading in which its own place shows the other token."""
    seen = []

    def states_of(shown_N):
        seen.append(shown_N)
        return [np.stack([shown_N, sample.token_N], axis=1).astype(np.float32)]

    hidden = hidden_tokens(sample, 1000)
    rows = list(
        information_rows(
            [np.zeros((len(sample), 2), np.float32)],
            sample,
            wanted(about=("output",), clusters=4),
            output="hidden",
            states_of=states_of,
        )
    )
    assert len(seen) == READINGS
    changed = np.stack([shown_N != sample.token_N for shown_N in seen])
    assert changed.sum(0).max() == 1
    assert np.array_equal(np.flatnonzero(changed.any(0)), hidden.place_N)
    for place, shown, reading in zip(*hidden, strict=True):
        assert seen[reading][place] == shown
    assert not (np.stack(seen) == MASK).any()
    assert {row["group"] for row in rows} == {"output label", "shown token"}


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


def test_layers_that_hold_the_token_or_a_neighbour_know_just_that():
    """Three planted layers: the input token, the token before it, and noise."""
    sample, rng = zipf_sample(20_000, 60), np.random.default_rng(1)
    vectors_VD = rng.standard_normal((70, 6)) * 5

    def planted(ids_N):
        return (vectors_VD[np.maximum(ids_N, 0)] + 0.1 * rng.standard_normal((len(ids_N), 6))).astype(np.float32)

    layers = [planted(sample.token_N), planted(sample.left_N), rng.standard_normal((20_000, 6)).astype(np.float32)]
    rows = pd.DataFrame(information_rows(layers, sample, wanted(about=EVERYTHING[:3], clusters=100)))
    assert rows["n"].nunique() == 1
    found = rows[rows["metric"] == "cross_fitted"].assign(group=rows["group"].fillna("input"))
    value = found.pivot(index="group", columns="layer", values="value")
    error = found.pivot(index="group", columns="layer", values="standard_error")
    entropy = -sum(p * math.log(p) for p in np.unique(sample.token_N, return_counts=True)[1] / 20_000)
    assert value.loc["input", 0] == pytest.approx(entropy, rel=0.1)  # next to all of it, less the price of the fit
    assert value.loc["previous token", 1] == pytest.approx(entropy, rel=0.1)
    for group, layer in (("input", 1), ("input", 2), ("previous token", 0), ("next token", 0), ("next token", 1)):
        assert abs(value.loc[group, layer]) < max(0.03, 4 * error.loc[group, layer])  # tokens are drawn apart


def test_the_output_of_a_text_with_one_token_is_refused():
    ids = np.full(40, FIRST_WORD_ID)
    one = whole_sentences(ids, np.arange(0, 41, 10), np.ones(40, bool), 40)
    with pytest.raises(MeasureError) as error:
        questions_of(one, wanted(), "hidden")
    assert str(error.value) == (
        "the output label needs a text of at least 2 different tokens, got 1; use another text or leave `output` "
        "out of `about`."
    )


def test_the_number_of_clusters_that_a_refusal_names_is_enough_for_every_question():
    """Halves have other sizes where a neighbour is asked for: for some texts the input has the smaller one, for
    others its neighbours."""
    named_by = set()
    for seed in range(8):
        lengths = np.random.default_rng(seed).integers(1, 12, size=300)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        ids = np.random.default_rng(seed).integers(FIRST_WORD_ID, 60, size=offsets[-1])
        sample = whole_sentences(ids, offsets, np.ones(len(ids), bool), len(ids))
        about = ("input", "previous", "next")
        sentence = (
            r"^each half of the sentences needs at least 5 tokens per cluster, 5000 with clusters = 1000, but the "
            r"halves hold \d+ and \d+; use more text or lower clusters to at most \d+\.$"
        )
        with pytest.raises(MeasureError, match=sentence) as error:
            list(information_rows([], sample, wanted(clusters=1000, about=about)))
        enough = int(str(error.value).split()[-1].removesuffix("."))
        questions = questions_of(sample, wanted(about=about), None)
        require_enough(questions, sample, wanted(clusters=enough), seed=0)
        with pytest.raises(MeasureError):
            require_enough(questions, sample, wanted(clusters=enough + 1), seed=0)
        halves = [smaller_half(sample.sentence_N[question.place_N], seed=0) for question in questions]
        named_by.add(int(np.argmin(halves)))
    assert len(named_by) > 1
