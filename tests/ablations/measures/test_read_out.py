"""Rows of the read-outs: of which states, labels and sentences, with floor, ceiling and error."""

import numpy as np
import pandas as pd
import pytest

from ablations.errors import MeasureError
from ablations.measures import read_out as module
from ablations.measures.information.plug_in import entropy
from ablations.measures.jackknife import standard_error
from ablations.measures.questions import questions_of
from ablations.measures.read_out import read_out_rows
from ablations.measures.settings import ReadOutSettings
from tests.support.zipf_text import zipf_sample

ABOUT = ("input", "previous", "next")


def wanted(**changes):
    return ReadOutSettings(kind="read_out", **{"about": ABOUT} | changes)


def planted(ids_N, vectors_VD, noise, rng):
    states_ND = vectors_VD[np.maximum(ids_N, 0)] + noise * rng.standard_normal((len(ids_N), vectors_VD.shape[1]))
    return states_ND.astype(np.float32)


def test_layers_that_hold_the_token_or_a_neighbour_let_just_that_be_read():
    """Three planted layers: the input token, both neighbours in one sum, and noise."""
    sample, rng = zipf_sample(4000, 30), np.random.default_rng(1)
    vectors_VD = rng.standard_normal((40, 16))
    before, behind = (planted(ids_N, vectors_VD, 0.1, rng) for ids_N in (sample.left_N, sample.right_N))
    layers = [
        planted(sample.token_N, vectors_VD, 0.1, rng),
        before + 0.2 * behind @ np.linalg.qr(rng.standard_normal((16, 16)))[0].astype(np.float32),
        rng.standard_normal((4000, 16)).astype(np.float32),
    ]
    rows = pd.DataFrame(read_out_rows(layers, sample, wanted()))
    assert set(rows["metric"]) == {"linear", "mlp"}
    assert set(rows["unit"]) == {"nats"}
    assert set(rows["d"]) == {16}
    assert rows["n"].nunique() == 1
    assert (rows["value"] <= rows["ceiling"]).all()
    rows["group"] = rows["group"].fillna("input")
    share = (rows["value"] / rows["ceiling"]).groupby([rows["group"], rows["layer"], rows["metric"]]).first()
    for metric in ("linear", "mlp"):
        assert share["input", 0, metric] > 0.95
        assert share["previous token", 1, metric] > 0.5
        for group, layer in (("input", 1), ("input", 2), ("previous token", 0), ("next token", 0)):
            assert abs(share[group, layer, metric]) < 0.02


def test_floor_ceiling_and_error_are_those_of_the_very_tokens(monkeypatch):
    sample = zipf_sample(1200, 20)
    questions = questions_of(sample, wanted(), None)
    place_ND = np.arange(2 * len(sample), dtype=np.float32).reshape(-1, 2)  # a state says whose it is
    asked, compute = [], module.read_out

    def recorded(states_ND, labels_N, sentences_N, *, seed):
        asked.append((states_ND, labels_N, sentences_N, compute(states_ND, labels_N, sentences_N, seed=seed)))
        return asked[-1][-1]

    monkeypatch.setattr(module, "read_out", recorded)
    rows = list(read_out_rows([place_ND, place_ND], sample, wanted(), normed_ND=place_ND + 0.5))
    expected = [(question, question.group, layer) for question in questions for layer in (0, 1)]
    expected.insert(2, (questions[0], "after final norm", 1))
    for (question, group, layer), pair, (states_ND, labels_N, sentences_N, found) in zip(
        expected, zip(rows[::2], rows[1::2], strict=True), asked, strict=True
    ):
        shift = 0.5 if group == "after final norm" else 0
        assert np.array_equal(states_ND, place_ND[question.place_N] + shift)
        assert np.array_equal(labels_N, question.label_N)
        assert np.array_equal(sentences_N, sample.sentence_N[question.place_N])
        for row, read in zip(pair, found, strict=True):
            assert (row["group"], row["layer"]) == (group, layer)
            assert (row["value"], row["floor"], row["n"]) == (read.value, read.floor, len(labels_N))
            assert row["ceiling"] == entropy(labels_N)
            assert row["standard_error"] == standard_error(read.left_out)


def test_masked_tokens_are_read_from_states_that_do_not_show_them():
    """The state of a place says what it shows: the output label of a hidden token is not there to be read."""
    sample, rng = zipf_sample(6000, 12), np.random.default_rng(1)
    vectors_VD = rng.standard_normal((20, 8))

    def states_of(shown_N):
        return [planted(shown_N, vectors_VD, 0.1, np.random.default_rng(2))]

    rows = pd.DataFrame(
        read_out_rows(
            states_of(sample.token_N),
            sample,
            wanted(about=("input", "output"), types=12),
            output="hidden",
            states_of=states_of,
        )
    ).set_index(["group", "metric"])
    assert (
        rows.loc[("shown token", "linear"), "value"].item()
        > 0.95 * rows.loc[("shown token", "linear"), "ceiling"].item()
    )
    # The shown token is any but the original: a little is known of it, log V - log(V - 1) at most.
    assert rows.loc[("output label", "linear"), "value"].item() < 0.15


def test_a_text_of_five_sentences_is_refused_before_there_are_states():
    with pytest.raises(MeasureError, match="probes need at least 6 sentences"):
        list(read_out_rows([], zipf_sample(100, 5), wanted()))
