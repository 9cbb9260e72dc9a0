"""Information that probes read, on channels where the truth is known."""

import math

import numpy as np
import pytest
import torch

from ablations.errors import MeasureError
from ablations.measures.information.estimate import token_information
from ablations.measures.information.plug_in import entropy
from ablations.measures.information.probes import Whitening
from ablations.measures.information.read_out import FOLDS, folds, read_out
from ablations.measures.jackknife import standard_error

SENTENCE = 10


def sentences(tokens):
    return np.arange(tokens) // SENTENCE


def words(tokens, types, rng):
    share_V = 1 / np.arange(1, types + 1)
    return rng.choice(types, tokens, p=share_V / share_V.sum())


def beside_context(size, *, tokens=6000, types=40, width=24, seed=0):
    """States that determine their token, and context in half the directions, so many times as large as it."""
    rng = np.random.default_rng(seed)
    label_N = words(tokens, types, rng)
    context_ND = rng.standard_normal((tokens, width)) @ np.diag(np.arange(width) < width / 2)
    states_ND = rng.standard_normal((types, width))[label_N] + size * math.sqrt(2) * context_ND
    rotation_DD = np.linalg.qr(rng.standard_normal((width, width)))[0]
    return (states_ND @ rotation_DD).astype(np.float32), label_N


def gaussian_channel(tokens, *, apart, types=20, width=8, seed=0):
    """States of equal covariance about the mean of each type, and the information that they have: the mean of log
    p(type | state) / p(type), by Bayes' rule."""
    rng = np.random.default_rng(seed)
    mean_VD, label_N = apart * rng.standard_normal((types, width)), words(tokens, types, rng)
    states_ND = mean_VD[label_N] + rng.standard_normal((tokens, width))
    share_V = 1 / np.arange(1, types + 1)
    log_NV = np.log(share_V / share_V.sum()) - 0.5 * np.square(states_ND[:, None] - mean_VD).sum(2)
    log_N = log_NV[np.arange(tokens), label_N] - np.logaddexp.reduce(log_NV, axis=1)
    return states_ND, label_N, float((log_N - np.log(share_V / share_V.sum())[label_N]).mean())


def test_context_beside_the_token_hides_it_from_clusters_but_not_from_probes():
    found = {}
    for size in (0, 0.5, 1, 2, 3):
        states_ND, label_N = beside_context(size)
        read = read_out(states_ND, label_N, sentences(6000), seed=0)
        clusters = token_information(states_ND, label_N, sentences(6000), clusters=100, seed=0)
        found[size] = clusters.cross_fitted
        for probe in read:
            assert 0.96 * entropy(label_N) < probe.value <= entropy(label_N)
    assert found[0] > 0.9 * entropy(label_N)
    assert found[3] < 0.5 * found[0]
    assert found[3] < found[2] < found[1] < found[0]


@pytest.mark.parametrize("apart", [0.3, 0.6, 1.5])
def test_gaussians_of_equal_covariance_are_read_from_below(apart):
    few, many = (gaussian_channel(tokens, apart=apart) for tokens in (1500, 12_000))
    of_few, of_many = (
        read_out(states_ND, label_N, sentences(len(label_N)), seed=0) for states_ND, label_N, _ in (few, many)
    )
    truth = many[2]
    assert of_many.linear.value < truth
    assert of_many.linear.value > truth - 0.06  # 19 x 9 parameters cost half a nat each: 0.012 of 7,000 tokens
    assert few[2] - of_few.linear.value > truth - of_many.linear.value
    assert of_many.mlp.value == pytest.approx(of_many.linear.value, abs=0.02)


def test_an_exclusive_or_is_read_by_the_hidden_layer_alone():
    states_ND = np.random.default_rng(0).standard_normal((4000, 4))
    label_N = ((states_ND[:, 0] > 0) ^ (states_ND[:, 1] > 0)).astype(int)
    read = read_out(states_ND, label_N, sentences(4000), seed=0)
    assert read.linear.value == pytest.approx(0, abs=0.005)
    assert read.mlp.value > 0.6
    assert abs(read.mlp.floor) < 0.005


@pytest.mark.parametrize("seed", range(3))
def test_states_without_information_read_0(seed):
    rng = np.random.default_rng(seed)
    label_N = words(3000, 60, rng)
    read = read_out(rng.standard_normal((3000, 16)), label_N, sentences(3000), seed=seed)
    for probe in read:
        for number in (probe.value, probe.floor):
            assert abs(number) < max(4 * standard_error(probe.left_out), 0.005)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_few_tokens_unlike_all_others_do_not_decide_the_number(place):
    """States determine their token, also by a direction in which they hardly vary. Ten lie far away in it: to be
    scored, to stop by, or to fit on."""
    rng = np.random.default_rng(0)
    label_N = words(6000, 40, rng)
    states_ND = rng.standard_normal((40, 24))[label_N]
    states_ND[:, 0] *= 1e-3
    before = read_out(states_ND, label_N, sentences(6000), seed=0)
    states_ND[place * SENTENCE : (place + 1) * SENTENCE, 0] = 30.0
    after = read_out(states_ND, label_N, sentences(6000), seed=0)
    for sooner, later in zip(before, after, strict=True):
        assert sooner.value > 0.98 * entropy(label_N)
        # Each of ten tokens costs at most ln 1,000 nats and the surprise of its label; the rest stays what it is.
        assert sooner.value - 0.1 < later.value <= entropy(label_N)


def test_a_sentence_says_nothing_about_others():
    """Each sentence has a random label and a random vector, which all its states are: a probe that had seen other
    tokens of the sentence would read the label."""
    rng = np.random.default_rng(0)
    label_S, noise_SD = rng.integers(4, size=300), rng.standard_normal((300, 16))
    label_N, states_ND = np.repeat(label_S, SENTENCE), np.repeat(noise_SD, SENTENCE, axis=0)
    read = read_out(states_ND, label_N, sentences(3000), seed=0)
    for probe in read:
        assert probe.value < 4 * standard_error(probe.left_out) + 0.01
    # The same tokens, each as a sentence of its own, in which the others of its true sentence tell the label.
    leaked = read_out(states_ND, label_N, np.arange(3000), seed=0)
    assert leaked.mlp.value > 0.2


def test_folds_are_whole_sentences_and_each_probe_has_some_to_stop_by():
    sentence_N = np.repeat(np.arange(97), np.random.default_rng(0).integers(1, 9, size=97))
    fold_N, is_stopping_N = folds(sentence_N, rng=np.random.default_rng(0))
    for sentence in range(97):
        assert len(set(fold_N[sentence_N == sentence])) == 1
        assert len(set(is_stopping_N[sentence_N == sentence])) == 1
    for fold in range(FOLDS):
        others_N = fold_N != fold
        assert 0.05 < is_stopping_N[others_N].mean() < 0.25
    six_N, six_stopping_N = folds(np.arange(6), rng=np.random.default_rng(0))
    for fold in range(FOLDS):
        assert set(six_stopping_N[six_N != fold]) == {True, False}


def test_a_probe_never_sees_what_it_is_scored_on(monkeypatch):
    """States and labels of one fold are changed: probes of that fold stay as they are."""
    states_ND, label_N = beside_context(0.5, tokens=600)
    fold_N, _ = folds(sentences(600), rng=np.random.default_rng(0).spawn(2)[0])
    whitened, of = [], Whitening.of
    monkeypatch.setattr(Whitening, "of", lambda states_ND: whitened.append(states_ND.clone()) or of(states_ND))
    read_out(states_ND, label_N, sentences(600), seed=0)
    read_out(np.where(fold_N[:, None] == 0, 9 * states_ND, states_ND), label_N, sentences(600), seed=0)
    same = [torch.equal(a, b) for a, b in zip(whitened[:FOLDS], whitened[FOLDS:], strict=True)]
    assert same == [True, False, False]


def test_no_invertible_linear_map_changes_what_is_read():
    states_ND, label_N, _ = gaussian_channel(2000, apart=0.6)
    rng = np.random.default_rng(1)
    map_DD = rng.standard_normal((8, 8)) @ np.diag(10.0 ** np.arange(-2, 2, 0.5))
    plain, mapped = (
        read_out(x_ND, label_N, sentences(2000), seed=0) for x_ND in (states_ND, states_ND @ map_DD + 5)
    )
    for a, b in zip(plain, mapped, strict=True):
        assert a.value == pytest.approx(b.value, abs=0.01)  # a probe may stop a pass sooner


def test_equal_seeds_give_equal_numbers_whatever_the_global_state():
    states_ND, label_N, _ = gaussian_channel(1000, apart=0.6)
    first = read_out(states_ND, label_N, sentences(1000), seed=0)
    torch.manual_seed(5)
    assert read_out(states_ND, label_N + 17, sentences(1000), seed=0) == first  # names of labels do not matter
    assert read_out(states_ND, label_N, sentences(1000), seed=1) != first


def test_the_standard_error_is_about_the_spread_over_texts():
    """Of the same probes: where these are as good as the truth, that is all of it."""
    values, errors = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        label_N = rng.integers(2, size=2000)
        states_ND = 1.5 * label_N[:, None] + rng.standard_normal((2000, 2))
        found = read_out(states_ND, label_N, sentences(2000), seed=0).linear
        assert len(found.left_out) == 10
        assert np.mean(found.left_out) == pytest.approx(found.value, abs=1e-3)
        values.append(found.value)
        errors.append(standard_error(found.left_out))
    assert np.mean(errors) == pytest.approx(np.std(values, ddof=1), rel=0.7)  # 3 standard errors of a spread of 12


def test_a_constant_layer_and_a_single_label_read_0():
    label_N = words(300, 5, np.random.default_rng(0))
    for probe in read_out(np.ones((300, 4)), label_N, sentences(300), seed=0):
        assert probe.value == pytest.approx(0, abs=1e-6)
    for probe in read_out(np.random.default_rng(0).standard_normal((300, 4)), 0 * label_N, sentences(300), seed=0):
        assert probe.value == pytest.approx(0, abs=1e-6)


def test_too_little_and_unequal_text_is_a_sentence():
    with pytest.raises(MeasureError) as error:
        read_out(np.eye(5), np.arange(5), np.arange(5), seed=0)
    assert str(error.value) == (
        "probes need at least 6 sentences, some to learn from and others to be scored on, got 5; use more text."
    )
    with pytest.raises(MeasureError, match="the lengths are states 8, labels 7, sentences 8"):
        read_out(np.eye(8), np.arange(7), np.arange(8), seed=0)
    with pytest.raises(MeasureError, match="states must be finite"):
        read_out(np.full((8, 2), np.nan), np.arange(8), np.arange(8), seed=0)
