"""Information of layers by k-means: of which states, labels and sentences, and what planted layers have."""

import math

import numpy as np
import pandas as pd
import pytest

from ablations.errors import MeasureError
from ablations.measures import token_information as module
from ablations.measures.information.estimate import smaller_half
from ablations.measures.reading.sample import whole_sentences
from ablations.measures.settings import TokenInformationSettings
from ablations.measures.token_information import (
    READINGS,
    hidden_tokens,
    information_rows,
    questions_of,
    require_enough,
)
from lightning_modules.data.tokenizer import FIRST_WORD_ID, MASK
from tests.support.information import token_information
from tests.support.zipf_text import zipf_sample

EVERYTHING = ("input", "previous", "next", "output")


def wanted(**changes):
    return TokenInformationSettings(kind="token_information", **{"clusters": 8, "about": EVERYTHING} | changes)


def test_each_question_is_measured_with_its_own_states_labels_and_sentences(sample, monkeypatch):
    clustered, measured, cluster, measure = [], [], module.clusters_of, module.information_of

    def clusters_recorded(states_ND, sentences_N, **options):
        clustered.append((states_ND, sentences_N))
        return cluster(states_ND, sentences_N, **options)

    def recorded(of_layer, labels_N, sentences_N, **options):
        measured.append((*clustered[-1], labels_N, sentences_N))
        return measure(of_layer, labels_N, sentences_N, **options)

    monkeypatch.setattr(module, "clusters_of", clusters_recorded)
    monkeypatch.setattr(module, "information_of", recorded)
    place_ND = np.arange(2 * len(sample), dtype=np.float32).reshape(-1, 2)  # a state says whose it is
    settings = wanted(about=("input", "previous", "next"))
    list(information_rows([place_ND], sample, settings))
    for question, (states_ND, clustered_N, labels_N, sentences_N) in zip(
        questions_of(sample, settings, None), measured, strict=True
    ):
        assert np.array_equal(states_ND, place_ND[question.place_N])
        assert np.array_equal(labels_N, question.label_N)
        assert np.array_equal(clustered_N, sample.sentence_N[question.place_N])
        assert np.array_equal(sentences_N, clustered_N)


def test_both_questions_about_hidden_tokens_share_the_clusters_of_a_layer(sample, monkeypatch):
    """The rows are those of the estimate that clusters the states for each question anew."""
    cluster, calls = module.clusters_of, []

    def counted(states_ND, sentences_N, **options):
        calls.append(states_ND)
        return cluster(states_ND, sentences_N, **options)

    monkeypatch.setattr(module, "clusters_of", counted)
    rng = np.random.default_rng(0)
    noise_LND = rng.standard_normal((2, len(sample), 3)).astype(np.float32)

    def states_of(shown_N):
        return [noise_ND + np.stack([shown_N, sample.token_N, shown_N], axis=1) for noise_ND in noise_LND]

    settings = wanted(about=("output",), clusters=4)
    none_LND = [np.zeros((len(sample), 3), np.float32)] * 2
    rows = list(information_rows(none_LND, sample, settings, output="hidden", seed=5, states_of=states_of))
    assert len(calls) == 2  # one a layer
    by_group = {(row["group"], row["layer"]): row for row in rows if row["metric"] == "plug_in"}
    for question in questions_of(sample, settings, "hidden"):
        sentence_N = sample.sentence_N[question.place_N]
        for layer, states_ND in enumerate(calls):
            alone = token_information(states_ND, question.label_N, sentence_N, clusters=4, seed=5)
            row = by_group[question.group, layer]
            assert (row["value"], row["floor"]) == (alone.plug_in, alone.plug_in_floor)
    assert by_group["output label", 0]["value"] != by_group["shown token", 0]["value"]


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
    assert found["ceiling"].to_numpy() == pytest.approx(entropy, abs=0.01)  # neighbours: all but the ends
    assert (rows["value"] <= rows["ceiling"]).all()
    assert value.loc["input", 0] == pytest.approx(entropy, rel=0.1)  # next to all of it, less the price of the fit
    assert value.loc["previous token", 1] == pytest.approx(entropy, rel=0.1)
    for group, layer in (("input", 1), ("input", 2), ("previous token", 0), ("next token", 0), ("next token", 1)):
        assert abs(value.loc[group, layer]) < max(0.03, 4 * error.loc[group, layer])  # tokens are drawn apart


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
            r"halves hold \d+ and \d+; give more tokens, "
            r"or lower clusters to at most \d+\.$"
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
