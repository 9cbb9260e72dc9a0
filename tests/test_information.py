"""Mutual information: textbook values, channels of known truth, chance, and what halves and clusters must be.

Shapes: N tokens, D features, K clusters.
"""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import mutual_info_score

from ablations.errors import MeasureError
from ablations.measures import kmeans
from ablations.measures.information import (
    MASSES,
    cross_fitted,
    halves,
    most_frequent,
    plug_in,
    token_information,
)
from ablations.measures.kmeans import assign, fit_clusters

V = 12


def generator(seed):
    return np.random.default_rng(seed)


def zipf(types):
    weight = 1 / np.arange(1, types + 1)
    return weight / weight.sum()


def entropy(share):
    return -(share[share > 0] * np.log(share[share > 0])).sum()


def information(joint):
    return entropy(joint.sum(0)) + entropy(joint.sum(1)) - entropy(joint.ravel())


def draw(joint, tokens, seed):
    """Token and symbol of each occurrence, from their joint distribution."""
    return np.divmod(generator(seed).choice(joint.size, tokens, p=joint.ravel()), joint.shape[1])


def bound(tokens, clusters, *, sentence=10, seed=0):
    """`cross_fitted` of clusters that were not fitted, in sentences of equal length."""
    sentences = np.arange(len(tokens)) // sentence
    half = halves(sentences, rng=generator(seed))
    return cross_fitted(tokens, [clusters, clusters], sentences_N=sentences, half_N=half)


def standard_error(values):
    return np.std(values, ddof=1) / math.sqrt(len(values))


CHANNELS = {
    "one_to_one": np.diag(zipf(V)),
    "noisy": 0.8 * np.diag(zipf(V)) + 0.2 * np.outer(zipf(V), np.full(V, 1 / V)),
    "merging": np.diag(zipf(V)) @ np.eye(3)[np.arange(V) % 3],
    "independent": np.outer(zipf(V), np.full(V, 1 / V)),
}
"""Joint distributions of token and symbol; a state is the centre of its symbol and a little noise."""


def states_of(symbols, seed):
    centres = 10 * np.eye(symbols.max() + 1)
    return centres[symbols] + 0.5 * generator(seed).standard_normal((len(symbols), len(centres)))


# The plug-in estimate --------------------------------------------------------------------------------


def test_plug_in_equals_the_definition_on_counts():
    tokens, clusters = draw(CHANNELS["noisy"], 500, seed=0)
    assert plug_in(tokens, clusters) == pytest.approx(mutual_info_score(tokens, clusters), abs=1e-12)  # float64
    table = np.zeros((V, V))
    np.add.at(table, (tokens, clusters), 1 / 500)
    assert plug_in(tokens, clusters) == pytest.approx(information(table), abs=1e-12)  # float64


def test_plug_in_of_a_token_that_names_its_cluster_is_its_entropy():
    tokens = generator(0).choice(V, 300, p=zipf(V))
    assert plug_in(tokens, 7 * tokens + 3) == pytest.approx(
        entropy(np.bincount(tokens) / 300), abs=1e-12
    )  # float64
    assert plug_in([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(0, abs=1e-15)  # float64
    assert plug_in([0, 0, 1, 1], [5, 5, 2, 2]) == pytest.approx(math.log(2), abs=1e-15)  # float64


def test_plug_in_depends_on_no_names_and_on_no_order():
    tokens, clusters = draw(CHANNELS["noisy"], 500, seed=1)
    expected = plug_in(tokens, clusters)
    renamed = generator(2).permutation(V)[clusters] * 1_000_000_007 - 5
    order = generator(3).permutation(500)
    for value in (plug_in(tokens, renamed), plug_in(clusters, tokens), plug_in(tokens[order], clusters[order])):
        assert value == pytest.approx(expected, abs=1e-12)  # float64
    assert plug_in(torch.from_numpy(tokens), torch.from_numpy(clusters)) == expected


def test_merging_clusters_never_raises_plug_in():
    tokens, clusters = draw(CHANNELS["noisy"], 500, seed=4)
    values = [plug_in(tokens, clusters // merged) for merged in (1, 2, 4, 12)]
    assert all(finer >= coarser - 1e-12 for finer, coarser in pairwise(values))  # float64
    assert values[-1] == pytest.approx(0, abs=1e-12)  # float64


@pytest.mark.parametrize(
    ("clusters", "tokens", "published"), [(1000, 20_000, 2.45), (1000, 100_000, 1.39), (10_000, 20_000, 4.22)]
)
def test_plug_in_of_independent_labels_has_the_published_floor(clusters, tokens, published):
    rng = generator(0)
    tokens_N, clusters_N = rng.choice(1000, tokens, p=zipf(1000)), rng.integers(clusters, size=tokens)
    value, floor = plug_in(tokens_N, clusters_N), plug_in(rng.permutation(tokens_N), clusters_N)
    assert value == pytest.approx(published, abs=0.03)  # the mean of draws that deviate by 0.01
    assert floor == pytest.approx(value, abs=0.02)  # twice that deviation and more


# The cross-fitted bound ------------------------------------------------------------------------------


def smoothed(pairs, mass, types):
    """q(t|c) of the docstring, fitted on pairs of token and cluster."""
    cells, of_token, of_cluster = Counter(pairs), Counter(t for t, _ in pairs), Counter(c for _, c in pairs)

    def q(t, c):
        marginal = (of_token[t] + 0.5) / (len(pairs) + types / 2)
        return (cells[t, c] + mass * marginal) / (of_cluster[c] + mass)

    return q


def left_out(sentences, mass, types):
    """Log-likelihood of each sentence under the fit to the others."""
    total = 0.0
    for own in sentences:
        q = smoothed([pair for name in sentences if name != own for pair in sentences[name]], mass, types)
        total += sum(math.log(q(t, c)) for t, c in sentences[own])
    return total


def cross_fitted_by_hand(tokens, clusters, sentences, half):
    """The formulas of the docstring, a token at a time."""
    total, types = 0.0, len(set(tokens))
    for fitted in (0, 1):
        parts = {0: {}, 1: {}}
        for t, c, s, h in zip(tokens, clusters[fitted], sentences, half, strict=True):
            parts[h].setdefault(s, []).append((t, c))
        mass = max(reversed(MASSES), key=lambda mass, inside=parts[fitted]: left_out(inside, mass, types))
        q = smoothed([pair for pairs in parts[fitted].values() for pair in pairs], mass, types)
        scored = [pair for pairs in parts[1 - fitted].values() for pair in pairs]
        for t, c in scored:
            total += math.log(q(t, c)) - math.log(sum(q(t, other) for _, other in scored) / len(scored))
    return total / len(tokens)


@pytest.mark.parametrize("channel", ["noisy", "independent"])
def test_cross_fitted_equals_its_formulas_a_token_at_a_time(channel):
    tokens, symbols = draw(CHANNELS[channel], 120, seed=5)
    clusters, sentences = [symbols, (symbols * 5 + 2) // 3], np.arange(120) // 4  # other centres, other clusters
    half = halves(sentences, rng=generator(6))
    by_hand = cross_fitted_by_hand(
        tokens.tolist(), [c.tolist() for c in clusters], sentences.tolist(), half.tolist()
    )
    assert cross_fitted(tokens, clusters, sentences_N=sentences, half_N=half) == pytest.approx(
        by_hand, abs=1e-12
    )  # float64


@pytest.mark.parametrize("channel", CHANNELS)
def test_the_expectation_of_cross_fitted_does_not_exceed_the_truth_and_comes_near(channel):
    """With 400 tokens and a token to a cluster, the fitted half's own marginal would overshoot by 0.026."""
    joint, truth = CHANNELS[channel], information(CHANNELS[channel])
    few = [bound(*draw(joint, 400, seed), seed=seed) for seed in range(100)]
    many = [bound(*draw(joint, 20_000, seed), seed=seed) for seed in range(20)]
    assert np.mean(few) <= truth + 2 * standard_error(few) + 1e-6  # 2 standard errors; float64
    assert np.mean(many) <= truth + 2 * standard_error(many) + 1e-6
    assert np.mean(many) == pytest.approx(truth, abs=0.01)  # 144 cells fitted on 10,000 tokens cost 0.007


def test_cross_fitted_of_a_thousand_types_is_zero_by_chance_where_plug_in_is_not():
    values = []
    for seed in range(20):
        rng = generator(seed)
        tokens, clusters = rng.choice(1000, 20_000, p=zipf(1000)), rng.integers(1000, size=20_000)
        values.append(bound(tokens, clusters, seed=seed))
    assert min(values) < 0  # not clipped
    assert abs(np.mean(values)) < 1e-3  # the last of MASSES leaves 1e-4


def test_cross_fitted_takes_clusters_that_only_one_half_has():
    tokens = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    half = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    clusters = tokens + 2 * half
    value = cross_fitted(tokens, [clusters, clusters], sentences_N=np.arange(8) // 2, half_N=half)
    assert value == pytest.approx(0, abs=1e-12)  # float64: both halves have the tokens equally often


def test_clusters_that_no_two_sentences_share_are_not_trusted():
    """The fitting half cannot say what they are worth: each foretells its own sentence and no other."""
    sentences = np.arange(2000) // 20
    tokens = generator(0).integers(V, size=100)[sentences]
    half = halves(sentences, rng=generator(1))
    elsewhere = generator(2).integers(50, size=2000)
    own = np.unique(sentences[half == 0], return_inverse=True)[1]
    clusters = [elsewhere.copy(), elsewhere.copy()]
    clusters[0][half == 0] = own
    clusters[1][half == 1] = own
    value = cross_fitted(tokens, clusters, sentences_N=sentences, half_N=half)
    assert value == pytest.approx(0, abs=1e-3)  # the last of MASSES leaves 1e-4


# From states to information --------------------------------------------------------------------------


@pytest.mark.parametrize("channel", CHANNELS)
def test_token_information_finds_the_truth_of_known_channels(channel):
    joint, found = CHANNELS[channel], []
    for seed in range(20):
        tokens, symbols = draw(joint, 2000, seed=seed)
        states = states_of(symbols, seed=100 + seed)
        found.append(token_information(states, tokens, np.arange(2000) // 10, clusters=20, seed=seed))
    truth, bound = information(joint), [values.cross_fitted for values in found]
    assert np.mean(bound) <= truth + 2 * standard_error(bound)
    assert np.mean(bound) >= truth - 0.1  # 240 cells fitted on 1,000 tokens
    for values in found:
        assert (values.n, values.clusters) == (2000, 20)
        assert abs(values.cross_fitted_floor) < 0.02  # chance of 1,000 tokens
        assert values.plug_in_floor == pytest.approx(11 * 19 / 4000, abs=0.03)  # (V - 1) (K - 1) / 2N, Miller 1955
    if channel == "independent":
        excess = [values.plug_in - values.plug_in_floor for values in found]
        assert np.mean(excess) == pytest.approx(0, abs=3 * standard_error(excess))
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


def test_halves_hold_whole_sentences_at_random():
    sentences = np.repeat(generator(0).permutation(101) * 3, generator(1).integers(1, 9, size=101))
    half = halves(sentences, rng=generator(2))
    assert not set(sentences[half == 0]) & set(sentences[half == 1])
    assert (len(set(sentences[half == 0])), len(set(sentences[half == 1]))) == (51, 50)
    assert np.array_equal(half, halves(sentences, rng=generator(2)))
    assert not np.array_equal(half, halves(sentences, rng=generator(3)))


def test_most_frequent_keeps_the_lower_id_of_a_tie():
    tokens = [9, 4, 4, 7, 7, 7, 2, 2, 5]
    assert most_frequent(tokens, 1).tolist() == [t == 7 for t in tokens]
    assert most_frequent(tokens, 2).tolist() == [t in (7, 2) for t in tokens]
    assert most_frequent(tokens, 4).tolist() == [t in (7, 2, 4, 5) for t in tokens]
    assert most_frequent(torch.tensor(tokens), 99).all()


# Clusters --------------------------------------------------------------------------------------------


def test_assign_finds_the_nearest_centre_block_by_block(monkeypatch):
    states, centres = generator(0).standard_normal((500, 6)), generator(1).standard_normal((40, 6))
    expected = ((states[:, None] - centres) ** 2).sum(2).argmin(1)
    assert np.array_equal(assign(states, centres), expected)
    assert np.array_equal(assign(states + 1000, centres + 1000), expected)  # float32 leaves four digits
    monkeypatch.setattr(kmeans, "BLOCK", 300)
    assert np.array_equal(assign(torch.from_numpy(states), torch.from_numpy(centres)), expected)
    assert assign(np.zeros((2, 1)), np.array([[1.0], [-1.0]])).tolist() == [0, 0]


def within(states, centres):
    return ((states - centres[assign(states, centres)]) ** 2).sum()


def test_fit_clusters_does_better_than_fifty_passes_from_random_states():
    rng = generator(0)
    tokens = rng.choice(300, 6000, p=zipf(300))
    states = (3 * rng.standard_normal((300, 16)))[tokens] + rng.standard_normal((6000, 16))
    ours = within(states, fit_clusters(states, clusters=200, rng=generator(1)))
    for start, share in (("random", 0.95), ("k-means++", 1.02)):  # measured: 0.83 and 0.97
        peer = KMeans(200, init=start, n_init=1, max_iter=50, random_state=0).fit(states)
        assert ours < share * within(states, peer.cluster_centers_)


def test_fit_clusters_finds_separate_groups_wherever_they_lie():
    symbols = generator(0).integers(8, size=800)
    states = states_of(symbols, seed=1)
    for shift, scale in ((0, 1), (1000, 1), (0, 1e-12), (0, 1e12)):
        placed = (states + shift) * scale
        centres = fit_clusters(placed, clusters=16, rng=generator(2))
        labels = assign(placed, centres)
        assert plug_in(symbols, labels) == pytest.approx(plug_in(symbols, symbols), abs=1e-9)  # all are pure
        for cluster in np.unique(labels):  # and fifty passes have made each centre the mean of its states
            mean_D = placed[labels == cluster].mean(0)
            assert centres[cluster] == pytest.approx(mean_D, rel=0, abs=1e-5 * np.abs(placed).max())  # float32


def test_fit_clusters_repeats_by_its_generator():
    states = generator(0).standard_normal((500, 4))
    first, again = (fit_clusters(states, clusters=50, rng=generator(1)) for _ in range(2))
    assert first.shape == (50, 4)
    assert first.dtype == np.float32
    assert np.array_equal(first, again)
    assert not np.array_equal(first, fit_clusters(states, clusters=50, rng=generator(2)))


def test_one_cluster_is_the_mean_and_repeated_states_are_no_obstacle():
    states = generator(0).standard_normal((100, 3))
    assert fit_clusters(states, clusters=1, rng=generator(0)) == pytest.approx(
        states.mean(0, keepdims=True), abs=1e-6
    )  # float32
    tokens = np.arange(1000) % 5
    centres = fit_clusters(np.eye(5)[tokens], clusters=50, rng=generator(1))
    assert centres.shape == (50, 5)
    assert plug_in(tokens, assign(np.eye(5)[tokens], centres)) == pytest.approx(math.log(5), abs=1e-12)  # float64
    assert np.isfinite(fit_clusters(np.ones((100, 2)), clusters=10, rng=generator(2))).all()


# Errors ----------------------------------------------------------------------------------------------


def complaint(function, *arguments, **options):
    with pytest.raises(MeasureError) as error:
        function(*arguments, **options)
    return str(error.value)


def test_too_few_tokens_are_refused_with_the_clusters_they_are_enough_for():
    states, tokens = generator(0).standard_normal((990, 4)), np.arange(990) % 7
    assert complaint(token_information, states, tokens, np.arange(990), clusters=100, seed=0) == (
        "100 clusters need at least 500 tokens in each half of the sentences (5 per cluster), "
        "but the halves hold 495 and 495. Use more text or at most 99 clusters."
    )
    assert token_information(states, tokens, np.arange(990), clusters=99, seed=0).n == 990
    tiny = complaint(token_information, states[:8], tokens[:8], np.arange(8), clusters=1, seed=0)
    assert tiny.endswith("but the halves hold 4 and 4. Use more text.")
    assert complaint(token_information, states, tokens, np.zeros(990, int), clusters=2, seed=0) == (
        "a split into halves needs at least 2 sentences, got 1. Use more text."
    )
    assert "but clusters is 0" in complaint(token_information, states, tokens, np.arange(990), clusters=0, seed=0)


def test_unfit_labels_are_refused():
    assert (
        complaint(plug_in, [1, 2, 3], [1, 2])
        == "each token needs one of each, but there are 3 tokens, 2 clusters."
    )
    assert complaint(plug_in, [0.5, 1], [1, 2]) == (
        "tokens must be a list of integers, one for each token, but they are float64 of shape (2,)."
    )
    assert "clusters must be a list" in complaint(plug_in, [1, 2], [[1, 2]])
    assert "of shape (0,)" in complaint(plug_in, np.zeros(0, int), np.zeros(0, int))
    assert "3 tokens, 2 sentences" in complaint(
        token_information, np.ones((3, 2)), [1, 2, 3], [1, 2], clusters=1, seed=0
    )
    labels, sentences = np.arange(4), np.array([0, 0, 1, 1])
    assert complaint(cross_fitted, labels, [labels, labels], sentences_N=sentences, half_N=np.zeros(4)) == (
        "halves must be 0 and 1, both present, but are [0.0]."
    )
    assert complaint(cross_fitted, labels, [labels, labels], sentences_N=sentences, half_N=labels % 2) == (
        "each sentence must lie in one half, but 2 of 2 lie in both. Split with `halves`."
    )
    assert complaint(most_frequent, [1, 2], 0) == "at least 1 type must be kept, but types is 0."


def test_unfit_states_are_refused():
    states = np.ones((40, 2))
    states[3, 1] = np.nan
    message = complaint(token_information, states, np.zeros(40, int), np.arange(40), clusters=2, seed=0)
    assert message.startswith("states must be finite, but 1 of its values are NaN or infinite, the first at row 3")
    assert complaint(fit_clusters, np.ones((3, 2)), clusters=4, rng=generator(0)) == (
        "k-means can make 1 to 3 clusters of 3 tokens, but clusters is 4."
    )
    assert complaint(assign, np.ones((3, 2)), np.ones((3, 4))) == (
        "states of 2 features cannot be assigned to centres of 4. Take both from the same layer."
    )
