"""The readings of a run, opened from its folder as a notebook opens them."""

import numpy as np
import pytest
import torch

from ablations.errors import MeasureError
from ablations.measures.reading import texts as module
from ablations.measures.reading.texts import Readings, layer_states, validation_text
from ablations.measures.settings import StateSettings
from lightning_modules.config import LanguageData
from lightning_modules.data.token_store import load, prepare
from lightning_modules.data.tokenizer import END, START, decode
from lightning_modules.errors import CheckpointError
from lightning_modules.objectives import build
from tests.support.errors import error_text
from tests.support.start_here import start_here
from tests.support.tiny_text import settings


@pytest.fixture
def trained(make_run, data_root):
    """A run of four steps."""
    directory = make_run(settings(training={"max_steps": 4}))
    start_here(directory, data_root=data_root)
    return directory


def test_the_states_are_those_of_the_checkpoint(trained, data_root, tokens):
    readings = Readings.of_run(trained.path, data_root=data_root)
    split, sample = reading = readings.texts.validation(StateSettings(tokens=100))
    states_LND = readings.states(reading)
    objective = build(trained.settings(), tokens)
    initial_LND = layer_states(objective, split, sample)
    objective.load_state_dict(torch.load(trained.last_checkpoint, weights_only=True)["state_dict"])
    expected_LND = layer_states(objective, split, sample)
    assert len(states_LND) == trained.settings().encoder.num_hidden_layers + 1
    assert all(np.array_equal(*pair) for pair in zip(states_LND, expected_LND, strict=True))
    assert not np.array_equal(states_LND[-1], initial_LND[-1])

    fresh = Readings.of_run(trained.path, data_root=data_root, step=0)
    assert np.array_equal(fresh.states(reading)[-1], initial_LND[-1])


def test_sentences_of_ones_own_have_the_states_that_they_have_in_the_validation_text(trained, data_root):
    readings = Readings.of_run(trained.path, data_root=data_root)
    stored = readings.texts.validation(StateSettings(tokens=100))
    sentences = [stored.split.sentence(i) for i in range(stored.sample.sentences)]
    texts = [decode(readings.tokens.tokenizer, ids) for ids in sentences]
    mine = readings.texts.sentences(texts)
    assert np.array_equal(mine.split.ids, np.concatenate(sentences))
    assert mine.sample.digest == stored.sample.digest
    assert np.array_equal(mine.sample.rank_N, stored.sample.rank_N)
    expected_LND = readings.states(stored)
    readings.forget_states()
    assert all(np.array_equal(*pair) for pair in zip(readings.states(mine), expected_LND, strict=True))


def test_sentences_of_ones_own_are_cut_and_must_have_sub_words(trained, data_root):
    texts = Readings.of_run(trained.path, data_root=data_root).texts
    long = texts.sentences(["a b c " * 200, "a"])
    assert long.split.lengths.tolist()[0] == trained.settings().data.max_length
    assert [long.split.sentence(0)[place] for place in (0, -1)] == [START, END]
    assert long.sample.sentence_N[-1] == 1
    assert error_text(MeasureError, texts.sentences, ["a", ""]) == "sentences[1] has no sub-word; leave it out."
    plain, spaced = (texts.sentences([text]).split.ids.tolist() for text in ("a b", " a  b\n"))
    assert plain == spaced
    assert error_text(MeasureError, texts.sentences, "a b") == (
        "sentences must be a list of texts, but is one text; write it in brackets."
    )
    assert error_text(MeasureError, texts.sentences, []) == "there is no sentence; give one or more."


def test_a_step_that_was_not_kept_is_refused(trained, data_root):
    assert (
        error_text(CheckpointError, Readings.of_run, trained.path, data_root=data_root, step=3)
        == f"{trained.path} has no checkpoint of step 3; the kept ones are 0, 1, 2 and 4."
    )


def test_runs_on_the_same_text_share_its_labels_and_others_do_not(tmp_path, monkeypatch):
    """The labels are found once for each text and number of sentences, however often its tokens are loaded."""
    labelled, plain = [], module.labels_of_split
    monkeypatch.setattr(
        module,
        "labels_of_split",
        lambda split, *rest, **more: labelled.append(len(split)) or plain(split, *rest, **more),
    )
    data = [
        LanguageData(kind="language", seed=seed, train=60, validation=30, test=5, vocab_size=300)
        for seed in (8, 9)
    ]
    first, other = (prepare(each, data_root=tmp_path, store=tmp_path / "tokens") for each in data)
    samples = [
        validation_text(tokens, of, count).sample
        for tokens, of, count in (
            (first, data[0], 200),
            (load(first.folder), data[0], 200),
            (first, data[0], 100),
            (other, data[1], 200),
        )
    ]
    assert len(labelled) == 3
    assert samples[0].labels.keys() == samples[1].labels.keys() != set()
    for name, code_N in samples[0].labels.items():
        assert np.array_equal(code_N, samples[1].labels[name])
        assert len(code_N) == len(samples[0].token_N) > len(samples[2].labels[name])
    assert samples[0].names != samples[3].names
