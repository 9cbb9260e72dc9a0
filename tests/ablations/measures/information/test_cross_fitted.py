"""The cross-fitted bound: its formulas, known truths, what halves must be, and its error."""

import math
from collections import Counter

import numpy as np
import pytest

from ablations.errors import MeasureError
from ablations.measures.information.estimate import PRIOR_WEIGHTS, cross_fitted, cross_fitted_estimate, halves
from ablations.measures.jackknife import standard_error
from tests.support.channels import (
    CHANNELS,
    V,
    draw,
    generator,
    information,
    moody,
    noisy,
    standard_error_of_mean,
    zipf,
)
from tests.support.errors import error_text


def bound(tokens, clusters, *, sentence=10, seed=0):
    """`cross_fitted` of clusters that were not fitted, in sentences of equal length."""
    sentences = np.arange(len(tokens)) // sentence
    half = halves(sentences, rng=generator(seed))
    return cross_fitted(tokens, [clusters, clusters], sentences_N=sentences, half_N=half)


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


def cross_fitted_by_hand(tokens, clusters, sentences, half, *, without=()):
    """The formulas of the docstring, a token at a time; `without` some sentences, under the mass and V of all."""
    total, scored_tokens, types = 0.0, 0, len(set(tokens))
    for fitted in (0, 1):
        parts = {0: {}, 1: {}}
        for t, c, s, h in zip(tokens, clusters[fitted], sentences, half, strict=True):
            parts[h].setdefault(s, []).append((t, c))
        mass = max(reversed(PRIOR_WEIGHTS), key=lambda mass, inside=parts[fitted]: left_out(inside, mass, types))
        kept = {
            h: [pair for s, pairs in part.items() if s not in without for pair in pairs]
            for h, part in parts.items()
        }
        q, scored = smoothed(kept[fitted], mass, types), kept[1 - fitted]
        scored_tokens += len(scored)
        for t, c in scored:
            total += math.log(q(t, c)) - math.log(sum(q(t, other) for _, other in scored) / len(scored))
    return total / scored_tokens


def short_text(channel):
    """Tokens, clusters by either half's centres, sentences, halves."""
    tokens, symbols = draw(CHANNELS[channel], 120, seed=5)
    sentences = np.arange(120) // 4
    return tokens, [symbols, (symbols * 5 + 2) // 3], sentences, halves(sentences, rng=generator(6))


def lists(*arrays):
    return [array.tolist() for array in arrays]


@pytest.mark.parametrize("channel", ["noisy", "independent"])
def test_cross_fitted_equals_its_formulas_a_token_at_a_time(channel):
    tokens, clusters, sentences, half = short_text(channel)
    by_hand = cross_fitted_by_hand(tokens.tolist(), lists(*clusters), *lists(sentences, half))
    assert cross_fitted(tokens, clusters, sentences_N=sentences, half_N=half) == pytest.approx(
        by_hand, abs=1e-12
    )  # float64


@pytest.mark.parametrize("channel", CHANNELS)
def test_the_expectation_of_cross_fitted_does_not_exceed_the_truth_and_comes_near(channel):
    """With 400 tokens and a token to a cluster, the fitted half's own marginal would overshoot by 0.026."""
    joint, truth = CHANNELS[channel], information(CHANNELS[channel])
    few = [bound(*draw(joint, 400, seed), seed=seed) for seed in range(100)]
    many = [bound(*draw(joint, 20_000, seed), seed=seed) for seed in range(20)]
    assert np.mean(few) <= truth + 2 * standard_error_of_mean(few) + 1e-6  # 2 standard errors; float64
    assert np.mean(many) <= truth + 2 * standard_error_of_mean(many) + 1e-6
    assert np.mean(many) == pytest.approx(truth, abs=0.01)  # 144 cells fitted on 10,000 tokens cost 0.007


@pytest.mark.parametrize(("right", "lost"), [(0.2, 0.3), (0.5, 0.38), (0.8, 0.29)])
def test_of_a_thousand_types_cross_fitted_stays_below_the_truth_in_the_mean_of_twenty(right, lost):
    """1,000 clusters, 20,000 tokens: where the plug-in estimate is 2.1, 1.5 and 0.8 nats too high."""
    joint = noisy(1000, right)
    truth, values = information(joint), [bound(*draw(joint, 20_000, seed), seed=seed) for seed in range(20)]
    assert np.mean(values) <= truth + 2 * standard_error_of_mean(values)
    assert np.mean(values) >= truth - lost  # measured: 0.28, 0.36 and 0.27 for fitting a million cells


def test_cross_fitted_of_a_thousand_types_is_zero_by_chance_where_plug_in_is_not():
    values = []
    for seed in range(20):
        rng = generator(seed)
        tokens, clusters = rng.choice(1000, 20_000, p=zipf(1000)), rng.integers(1000, size=20_000)
        values.append(bound(tokens, clusters, seed=seed))
    assert min(values) < 0  # not clipped
    assert abs(np.mean(values)) < 1e-3  # the last of PRIOR_WEIGHTS leaves 1e-4


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
    assert value == pytest.approx(0, abs=1e-3)  # the last of PRIOR_WEIGHTS leaves 1e-4


# Its error -------------------------------------------------------------------------------------------


def test_the_error_is_that_of_the_bounds_without_each_block():
    tokens, clusters, sentences, half = short_text("noisy")
    blocks = sentences // 6
    without = [
        cross_fitted_by_hand(
            tokens.tolist(), lists(*clusters), *lists(sentences, half), without=range(6 * g, 6 * g + 6)
        )
        for g in range(5)
    ]
    found = cross_fitted_estimate(tokens, clusters, sentences_N=sentences, half_N=half, blocks_N=blocks)
    assert found.value == cross_fitted(tokens, clusters, sentences_N=sentences, half_N=half)
    assert standard_error(found.left_out) == pytest.approx(standard_error(without), rel=1e-9)  # float64


@pytest.mark.parametrize("channel", ["noisy", "moody", "a hundred types"])
def test_the_error_is_the_deviation_over_fresh_texts(channel):
    values, errors, sentences = [], [], np.arange(2000) // 10
    for seed in range(60):
        match channel:
            case "noisy":
                tokens, clusters = draw(CHANNELS["noisy"], 2000, seed)
            case "moody":
                tokens, clusters = moody(200, 10, seed)
            case _:
                tokens, clusters = draw(noisy(100, 0.5), 2000, seed)
        half = halves(sentences, rng=generator(seed))
        found = cross_fitted_estimate(
            tokens, [clusters, clusters], sentences_N=sentences, half_N=half, blocks_N=sentences // 20
        )
        values.append(found.value)
        errors.append(standard_error(found.left_out))
    # The deviation of 60 texts is known to 9%, the error to 3%: three times that, and 10% for ten blocks.
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(values, ddof=1), rel=0.38)


def test_a_half_within_one_block_has_no_error():
    tokens, half = np.array([0, 1] * 4), np.array([0, 0, 0, 0, 1, 1, 1, 1])
    for blocks, known in (([0, 0, 0, 0, 1, 1, 2, 2], False), ([0, 0, 1, 1, 2, 2, 3, 3], True)):
        found = cross_fitted_estimate(
            tokens, [tokens, tokens], sentences_N=np.arange(8) // 2, half_N=half, blocks_N=np.array(blocks)
        )
        assert math.isnan(standard_error(found.left_out)) != known
        assert found.value > 0


# Halves ----------------------------------------------------------------------------------------------


def test_halves_hold_whole_sentences_at_random():
    sentences = np.repeat(generator(0).permutation(101) * 3, generator(1).integers(1, 9, size=101))
    half = halves(sentences, rng=generator(2))
    assert not set(sentences[half == 0]) & set(sentences[half == 1])
    assert (len(set(sentences[half == 0])), len(set(sentences[half == 1]))) == (51, 50)
    assert np.array_equal(half, halves(sentences, rng=generator(2)))
    assert not np.array_equal(half, halves(sentences, rng=generator(3)))


def test_unfit_halves_and_labels_are_refused():
    labels, sentences = np.arange(4), np.array([0, 0, 1, 1])
    for clusters, half, expected in (
        (labels, np.zeros(4), "halves must have the values 0 and 1, each at least once, but has [0.0]."),
        (
            labels,
            labels % 2,
            "each sentence must be in one half, but 2 of 2 sentences are in both; split the text with `halves`.",
        ),
        (
            labels[1:],
            labels // 2,
            "all lists must have one entry for each token, but their lengths are tokens 4, clusters 3.",
        ),
        (
            labels,
            labels[1:],
            "all lists must have one entry for each token, but their lengths are tokens 4, sentences 4, halves 3.",
        ),
    ):
        assert (
            error_text(
                MeasureError, cross_fitted, labels, [clusters, clusters], sentences_N=sentences, half_N=half
            )
            == expected
        )
    assert (
        error_text(MeasureError, lambda: halves(np.zeros(5, int), rng=generator(0)))
        == "a split into halves needs at least 2 sentences, got 1; use more text."
    )
    assert (
        error_text(
            MeasureError,
            lambda: cross_fitted_estimate(
                labels, [labels, labels], sentences_N=sentences, half_N=labels // 2, blocks_N=np.zeros(3, int)
            ),
        )
        == "all lists must have one entry for each token, but their lengths are halves 4, blocks 3."
    )
