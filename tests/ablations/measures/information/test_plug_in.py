"""The plug-in estimate: textbook values, laws, its floor and its error.

Shapes: N tokens, G blocks.
"""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.metrics import mutual_info_score

from ablations.errors import MeasureError
from ablations.measures.information.plug_in import plug_in, plug_in_estimate
from ablations.measures.jackknife import standard_error
from tests.support.channels import (
    CHANNELS,
    V,
    draw,
    entropy,
    generator,
    information,
    moody,
    noisy,
    standard_error_of_mean,
    zipf,
)


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


def test_plug_in_of_a_thousand_types_is_far_above_the_truth_and_more_so_where_that_is_small():
    excess = []
    for right in (0.2, 0.5, 0.8):
        joint = noisy(1000, right)
        values = [plug_in(*draw(joint, 20_000, seed)) for seed in range(5)]
        excess.append(np.mean(values) - information(joint))
        assert np.std(values) < 0.05  # so that five are enough
    assert excess == pytest.approx([2.12, 1.51, 0.77], abs=0.05)  # of estimates that deviate by 0.02
    assert excess[0] < 2.45  # less than the floor, which therefore cannot be subtracted


# Its error -------------------------------------------------------------------------------------------


def test_the_error_is_that_of_the_estimates_without_each_block():
    tokens, clusters = draw(CHANNELS["noisy"], 500, seed=0)
    blocks = np.repeat([2, 0, 1, 4, 3], 100)
    left_out = [plug_in(tokens[blocks != g], clusters[blocks != g]) for g in range(5)]
    found = plug_in_estimate(tokens, clusters, blocks_N=blocks)
    assert found.value == plug_in(tokens, clusters)
    assert found.standard_error == pytest.approx(standard_error(left_out), rel=1e-9)  # float64
    assert plug_in_estimate(clusters, tokens, blocks_N=blocks).standard_error == pytest.approx(
        found.standard_error, rel=1e-9
    )  # float64: symmetric, as the estimate


def test_a_type_that_only_one_block_has_is_no_obstacle_and_one_block_has_no_error():
    found = plug_in_estimate([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 5, 5], blocks_N=np.array([0, 0, 1, 1, 2, 2]))
    assert found.standard_error > 0
    assert math.isnan(plug_in_estimate([0, 1], [0, 1], blocks_N=np.zeros(2, int)).standard_error)


@pytest.mark.parametrize("channel", ["noisy", "moody", "a hundred types"])
def test_the_error_is_the_deviation_over_fresh_texts(channel):
    """Also of sentences that repeat themselves: errors of single tokens would be too small for those."""
    values, errors = [], []
    for seed in range(100):
        match channel:
            case "noisy":
                tokens, clusters = draw(CHANNELS["noisy"], 2000, seed)
            case "moody":
                tokens, clusters = moody(200, 10, seed)
            case _:
                tokens, clusters = draw(noisy(100, 0.5), 2000, seed)
        found = plug_in_estimate(tokens, clusters, blocks_N=np.arange(2000) // 200)
        values.append(found.value)
        errors.append(found.standard_error)
    # The deviation of 100 texts is known to 7%, the error to 2.5%: three times that, and 10% for ten blocks.
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(values, ddof=1), rel=0.3)


def test_tokens_drawn_with_replacement_would_raise_the_estimate_where_the_jackknife_does_not():
    """What is drawn twice seems to repeat itself. Hence no bootstrap."""
    tokens, clusters = draw(noisy(100, 0.5), 4000, seed=0)
    found = plug_in_estimate(tokens, clusters, blocks_N=np.arange(4000) // 400)
    drawn = [generator(seed).integers(4000, size=4000) for seed in range(20)]
    again = [plug_in(tokens[draw_N], clusters[draw_N]) for draw_N in drawn]
    assert np.mean(again) - 3 * standard_error_of_mean(again) > found.value + 3 * found.standard_error
    assert np.mean(again) > plug_in(*draw(noisy(100, 0.5), 3 * 4000, seed=1)) + 0.3  # further from the truth, too


def test_unfit_labels_are_refused():
    for tokens, clusters, expected in (
        ([1, 2, 3], [1, 2], "each token needs one of each, but the lengths are tokens 3, clusters 2."),
        (
            [0.5, 1],
            [1, 2],
            "tokens must be a list of integers, one for each token, but they are float64 of shape (2,).",
        ),
        (
            [1, 2],
            [[1, 2]],
            "clusters must be a list of integers, one for each token, but they are int64 of shape (1, 2).",
        ),
        (
            np.zeros(0, int),
            np.zeros(0, int),
            "tokens must be a list of integers, one for each token, but they are int64 of shape (0,).",
        ),
    ):
        with pytest.raises(MeasureError) as error:
            plug_in(tokens, clusters)
        assert str(error.value) == expected
    with pytest.raises(MeasureError) as error:
        plug_in_estimate([1, 2], [1, 2], blocks_N=np.zeros(3, int))
    assert str(error.value) == "each token needs one of each, but the lengths are tokens 2, blocks 3."
