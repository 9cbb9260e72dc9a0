"""From states to the information about a label: known channels, chance, repetition, errors."""

import numpy as np
import pytest
import torch

from ablations.measures.information import estimate as module
from ablations.measures.information.estimate import (
    clusters_of,
    cross_fitted,
    cross_fitted_estimate,
    halves,
    information_of,
    most_frequent,
)
from ablations.measures.information.plug_in import Points, plug_in, plug_in_estimate
from ablations.measures.jackknife import sentence_blocks, standard_error
from tests.support.channels import (
    CHANNELS,
    V,
    draw,
    generator,
    information,
    moody,
    standard_error_of_mean,
    states_of,
)
from tests.support.information import token_information
from tests.support.matrices import complaint


@pytest.mark.parametrize("channel", CHANNELS)
def test_token_information_finds_the_truth_of_known_channels(channel):
    joint, found = CHANNELS[channel], []
    for seed in range(20):
        tokens, symbols = draw(joint, 2000, seed=seed)
        states = states_of(symbols, seed=100 + seed)
        found.append(token_information(states, tokens, np.arange(2000) // 10, clusters=20, seed=seed))
    truth, bound = information(joint), [values.cross_fitted for values in found]
    assert np.mean(bound) <= truth + 2 * standard_error_of_mean(bound)
    assert np.mean(bound) >= truth - 0.1  # 240 cells fitted on 1,000 tokens
    for values in found:
        assert (values.n, values.clusters) == (2000, 20)
        assert abs(values.cross_fitted_floor) < 0.02  # chance of 1,000 tokens
        assert values.plug_in_floor == pytest.approx(11 * 19 / 4000, abs=0.03)  # (V - 1) (K - 1) / 2N, Miller 1955
    if channel == "independent":
        excess = [values.plug_in - values.plug_in_floor for values in found]
        assert np.mean(excess) == pytest.approx(0, abs=3 * standard_error_of_mean(excess))
    else:
        assert min(bound) > 5 * max(values.plug_in_floor for values in found)


def test_what_a_sentence_says_of_itself_is_no_information():
    """Each sentence repeats one token and has a place of its own: sentences tell nothing about one another."""
    rng = generator(0)
    sentences = np.repeat(np.arange(200), 20)
    tokens = rng.integers(V, size=200)[sentences]
    states = rng.standard_normal((200, 8))[sentences] + 0.1 * rng.standard_normal((4000, 8))
    found = token_information(states, tokens, sentences, clusters=100, seed=0)
    assert found.plug_in > 10 * found.plug_in_floor  # sees a sentence or two in each cluster
    assert abs(found.cross_fitted) < 0.05  # the truth is 0; 100 sentences a half
    by_token = token_information(states, tokens, np.arange(4000), clusters=100, seed=0)
    assert by_token.cross_fitted > 1  # what halves of tokens would have let through


def test_the_errors_are_the_deviations_over_fresh_texts():
    """Of sentences that repeat themselves, and clusters that are found anew in each text."""
    found = []
    for seed in range(40):
        tokens, symbols = moody(200, 10, seed)
        states = states_of(symbols, seed=100 + seed)
        found.append(token_information(states, tokens, np.arange(2000) // 10, clusters=16, seed=seed))
    for metric in ("plug_in", "cross_fitted"):
        spread = np.std([getattr(values, metric) for values in found], ddof=1)
        error = np.sqrt(np.mean([standard_error(getattr(values, f"{metric}_left_out")) ** 2 for values in found]))
        assert 0.7 < error / spread < 1.4  # the deviation of 40 texts is known to 11%: three times that


def test_errors_are_over_ten_blocks_of_neighbouring_sentences_wherever_their_tokens_stand():
    """States of a few places, so that clusters are the places whatever is drawn."""
    tokens, symbols = draw(CHANNELS["noisy"], 1000, seed=0)
    sentences = np.sort(generator(1).integers(150, size=1000))
    half = halves(sentences, rng=generator(3).spawn(1)[0])
    blocks = sentence_blocks(sentences)
    expected = (
        plug_in_estimate(tokens, symbols, blocks_N=blocks),
        cross_fitted_estimate(tokens, [symbols, symbols], sentences_N=sentences, half_N=half, blocks_N=blocks),
    )
    for order in (np.arange(1000), generator(5).permutation(1000)):
        found = token_information(np.eye(V)[symbols][order], tokens[order], sentences[order], clusters=V, seed=3)
        for metric, whole in zip(("plug_in", "cross_fitted"), expected, strict=True):
            numbers = [getattr(found, metric), *getattr(found, f"{metric}_left_out")]
            assert numbers == pytest.approx([whole.value, *whole.left_out], rel=1e-9)  # float64


def test_each_half_is_scored_by_clusters_of_the_other_alone(monkeypatch):
    fitted = []

    class Recorded(Points):
        def fit(self, *, among=None, **options):
            fitted.append((among, super().fit(among=among, **options)))
            return fitted[-1][1]

    monkeypatch.setattr(module, "Points", Recorded)
    rng = np.random.default_rng(0)
    sentences_N, labels_N = np.arange(2000) // 10, rng.integers(12, size=2000)
    states_ND = rng.standard_normal((12, 5))[labels_N] + 0.7 * rng.standard_normal((2000, 5))
    found = token_information(states_ND, labels_N, sentences_N, clusters=16, seed=3)
    (everything, whole), (first, one), (second, other) = fitted
    assert everything is None
    assert np.array_equal(np.union1d(first, second), np.arange(2000))
    assert not np.intersect1d(sentences_N[first], sentences_N[second]).size
    points = Points(states_ND)
    assert found.plug_in == plug_in(labels_N, points.assign(whole))
    clusters_2N = [points.assign(centres).numpy() for centres in (one, other)]
    half_N = np.isin(np.arange(2000), second).astype(int)  # fitted on its own clusters, scored on the rest
    bound = cross_fitted(labels_N, clusters_2N, sentences_N=sentences_N, half_N=half_N)
    assert found.cross_fitted == pytest.approx(bound, abs=1e-12)  # float64
    swapped = cross_fitted(labels_N, clusters_2N[::-1], sentences_N=sentences_N, half_N=half_N)
    assert abs(bound - swapped) > 1e-6


def test_any_label_will_do_and_its_names_do_not_matter():
    tokens, symbols = draw(CHANNELS["noisy"], 1000, seed=0)
    states, sentences = states_of(symbols, seed=1), np.arange(1000) // 10
    expected = token_information(states, tokens, sentences, clusters=30, seed=3)
    names = generator(4).permutation(V) * 7 - 50
    renamed = token_information(states, names[tokens], sentences, clusters=30, seed=3)
    for one, other in zip(renamed, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-12)  # float64
    parity = token_information(states, np.arange(1000) % 2, sentences, clusters=30, seed=3)
    assert abs(parity.cross_fitted) < 0.02  # chance: the label has nothing to do with the states
    assert parity.n == expected.n


def test_token_information_repeats_by_its_seed_alone():
    tokens, symbols = draw(CHANNELS["noisy"], 1000, seed=0)
    states, sentences = states_of(symbols, seed=1).astype(np.float32), np.arange(1000) // 10
    expected = token_information(states, tokens, sentences, clusters=30, seed=3)
    np.random.seed(0)  # noqa: NPY002 - the global state must not matter
    torch.manual_seed(0)
    assert token_information(states, tokens, sentences, clusters=30, seed=3) == expected
    assert token_information(states, tokens, sentences, clusters=30, seed=4) != expected
    in_torch = (torch.from_numpy(array) for array in (states, tokens, sentences))
    assert token_information(*in_torch, clusters=30, seed=3) == expected
    assert token_information(states * np.float32(2**60), tokens, sentences, clusters=30, seed=3) == expected


def test_most_frequent_keeps_the_lower_id_of_a_tie():
    tokens = [9, 4, 4, 7, 7, 7, 2, 2, 5]
    assert most_frequent(tokens, 1).tolist() == [t == 7 for t in tokens]
    assert most_frequent(tokens, 2).tolist() == [t in (7, 2) for t in tokens]
    assert most_frequent(tokens, 4).tolist() == [t in (7, 2, 4, 5) for t in tokens]
    assert most_frequent(torch.tensor(tokens), 99).all()


def test_too_few_tokens_are_refused_with_the_clusters_they_are_enough_for():
    states, tokens = generator(0).standard_normal((990, 4)), np.arange(990) % 7
    assert complaint(token_information, states, tokens, np.arange(990), clusters=100, seed=0) == (
        "each half of the sentences needs at least 5 tokens per cluster, 500 with clusters = 100, but the halves "
        "hold 495 and 495; give more tokens, or lower "
        "clusters to at most 99."
    )
    assert token_information(states, tokens, np.arange(990), clusters=99, seed=0).n == 990
    tiny = complaint(token_information, states[:8], tokens[:8], np.arange(8), clusters=1, seed=0)
    assert tiny == (
        "each half of the sentences needs at least 5 tokens per cluster, 5 with clusters = 1, but the halves hold "
        "4 and 4; give more tokens."
    )
    assert complaint(token_information, states, tokens, np.zeros(990, int), clusters=2, seed=0) == (
        "a split into halves needs at least 2 sentences, got 1; use more text."
    )
    assert complaint(token_information, states, tokens, np.arange(990), clusters=0, seed=0) == (
        "clusters must be at least 1 and at most the number of tokens, 990, but is 0."
    )


def test_unfit_labels_and_states_are_refused():
    assert complaint(clusters_of, np.ones((3, 2)), [1, 2], clusters=1, seed=0) == (
        "all lists must have one entry for each token, but their lengths are states 3, sentences 2."
    )
    sentences = np.arange(20)
    clustered = clusters_of(generator(0).standard_normal((20, 2)), sentences, clusters=2, seed=0)
    assert complaint(information_of, clustered, sentences[:19], sentences, clusters=2, seed=0) == (
        "all lists must have one entry for each token, but their lengths are clusters 20, labels 19, sentences 20."
    )
    assert complaint(information_of, clustered, np.full(20, 0.5), sentences, clusters=2, seed=0) == (
        "labels must be a list of integers, one for each token, but they are float64 of shape (20,)."
    )
    assert complaint(most_frequent, [1, 2], 0) == "types must be at least 1, but is 0."
    states = np.ones((40, 2))
    states[3, 1] = np.nan
    assert complaint(token_information, states, np.zeros(40, int), np.arange(40), clusters=2, seed=0) == (
        "states must be finite, but 1 of 80 values are NaN or infinity, first at row 3, column 1; check "
        "whether the run diverged or padding was kept."
    )
