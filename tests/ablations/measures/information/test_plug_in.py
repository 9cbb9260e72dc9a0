"""The plug-in estimate: textbook values, laws, its floor and its error; and k-means: nearest centres, means, and
how good the centres are.

Shapes: N tokens, G blocks, D features, K clusters.
"""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import mutual_info_score

from ablations.errors import MeasureError
from ablations.measures.information import plug_in as module
from ablations.measures.information.plug_in import Points, plug_in, plug_in_estimate
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
    states_of,
    zipf,
)
from tests.support.errors import error_text


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
    assert standard_error(found.left_out) == pytest.approx(standard_error(left_out), rel=1e-9)  # float64
    assert standard_error(plug_in_estimate(clusters, tokens, blocks_N=blocks).left_out) == pytest.approx(
        standard_error(found.left_out), rel=1e-9
    )  # float64: symmetric, as the estimate


def test_a_type_that_only_one_block_has_is_no_obstacle_and_one_block_has_no_error():
    found = plug_in_estimate([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 5, 5], blocks_N=np.array([0, 0, 1, 1, 2, 2]))
    assert standard_error(found.left_out) > 0
    assert math.isnan(standard_error(plug_in_estimate([0, 1], [0, 1], blocks_N=np.zeros(2, int)).left_out))


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
        errors.append(standard_error(found.left_out))
    # The deviation of 100 texts is known to 7%, the error to 2.5%: three times that, and 10% for ten blocks.
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(values, ddof=1), rel=0.3)


def test_tokens_drawn_with_replacement_would_raise_the_estimate_where_the_jackknife_does_not():
    """What is drawn twice seems to repeat itself. Hence no bootstrap."""
    tokens, clusters = draw(noisy(100, 0.5), 4000, seed=0)
    found = plug_in_estimate(tokens, clusters, blocks_N=np.arange(4000) // 400)
    drawn = [generator(seed).integers(4000, size=4000) for seed in range(20)]
    again = [plug_in(tokens[draw_N], clusters[draw_N]) for draw_N in drawn]
    assert np.mean(again) - 3 * standard_error_of_mean(again) > found.value + 3 * standard_error(found.left_out)
    assert np.mean(again) > plug_in(*draw(noisy(100, 0.5), 3 * 4000, seed=1)) + 0.3  # further from the truth, too


def test_unfit_labels_are_refused():
    for tokens, clusters, expected in (
        (
            [1, 2, 3],
            [1, 2],
            "all lists must have one entry for each token, but their lengths are tokens 3, clusters 2.",
        ),
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
        assert error_text(MeasureError, plug_in, tokens, clusters) == expected
    assert (
        error_text(MeasureError, lambda: plug_in_estimate([1, 2], [1, 2], blocks_N=np.zeros(3, int)))
        == "all lists must have one entry for each token, but their lengths are tokens 2, blocks 3."
    )


def mixture(types=300, tokens=6000, width=16):
    rng = generator(0)
    names = rng.choice(types, tokens, p=zipf(types))
    return (3 * rng.standard_normal((types, width)))[names] + rng.standard_normal((tokens, width))


def within(points, centres):
    """Sum of squared distances to the nearest centre, in the frame of the points."""
    return (points.x_ND - centres[points.assign(centres)]).double().square().sum().item()


# One pass --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", [2**18, 300, 1])
def test_each_point_goes_to_the_nearest_centre_block_by_block(scores, monkeypatch):
    monkeypatch.setattr(module, "SCORES_OF_THREAD", scores)
    states, centres = generator(0).standard_normal((500, 6)), generator(1).standard_normal((40, 6))
    expected = ((states[:, None] - centres) ** 2).sum(2).argmin(1)
    points = Points(np.concatenate([states, centres]))
    labels = points.assign(points.x_ND[500:])
    assert labels.tolist() == [*expected.tolist(), *range(40)]
    assert labels.dtype == torch.int64


def test_of_two_centres_as_near_the_first_is_taken():
    points = Points(np.array([[-1.0], [0.0], [1.0]]))
    assert points.assign(torch.tensor([[1.0], [-1.0]])).tolist() == [1, 0, 0]


def test_centres_are_means_and_one_without_points_stays_where_it_was():
    x, labels = torch.from_numpy(generator(0).standard_normal((20, 3))).float(), torch.arange(20) % 3
    labels[labels == 1] = 4
    old = torch.from_numpy(generator(1).standard_normal((6, 3))).float()
    means = module._means(x, labels, old)
    for cluster in range(6):
        expected = x[labels == cluster].mean(0) if cluster in (0, 2, 4) else old[cluster]
        assert means[cluster].tolist() == pytest.approx(expected.tolist(), abs=1e-6)  # float32


def test_passes_are_lloyds_with_momentum(monkeypatch):
    """Beside the same passes in float64, a distance at a time."""
    points = Points(mixture(types=10, tokens=300, width=4))
    x_ND = points.x_ND.double()
    monkeypatch.setattr(module, "SETTLED", 0)
    centres_KD = mean_KD = x_ND[::30]
    for passes in range(1, 6):
        labels_N = torch.cdist(x_ND, centres_KD).argmin(1)
        before_KD, mean_KD = mean_KD, torch.stack([x_ND[labels_N == k].mean(0) for k in range(10)])
        monkeypatch.setattr(module, "PASSES", passes)
        found_KD = module._passes(points.x_ND, points.x_ND[::30])
        assert torch.allclose(found_KD.double(), mean_KD, atol=1e-6)  # float32
        centres_KD = mean_KD if passes == 1 else mean_KD + 0.9 * (mean_KD - before_KD)


def test_an_empty_cluster_keeps_its_mean_and_does_not_fly_on(monkeypatch):
    """The middle centre loses its points to the others in the second pass."""
    monkeypatch.setattr(module, "SETTLED", -1)
    x_ND = torch.tensor([[0.0], [1.0], [3.0], [4.0]])
    nearest = iter([torch.tensor(labels) for labels in ([0, 0, 1, 2], [0, 1, 1, 2], *[[0, 0, 2, 2]] * 3)])
    seen = []

    def scripted(_, centres_KD):
        seen.append(centres_KD[1].item())
        return next(nearest), torch.zeros(4)

    monkeypatch.setattr(module, "_nearest", scripted)
    monkeypatch.setattr(module, "PASSES", 5)
    found_KD = module._passes(x_ND, torch.tensor([[0.0], [3.5], [4.0]]))
    assert found_KD.tolist() == [[0.5], [2.0], [3.5]]
    assert seen == pytest.approx([3.5, 3.0, 2.0 - 0.9, 2.0, 2.0])


# Frame -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shift", "scale"),
    [(0, 1), (1000, 1), (0, 1e-12), (0, 1e12), (3e37, 1e37), (0, 1e-37), (1e8, 1), (1e100, 1e99)],
)
def test_fit_finds_separate_groups_wherever_they_lie(shift, scale, monkeypatch):
    for name, value in {"SETTLED": 0, "PASSES": 100, "MOMENTUM": 0}.items():  # to the very end
        monkeypatch.setattr(module, name, value)
    symbols = generator(0).integers(8, size=800)
    points = Points((states_of(symbols, seed=1) / 20) * scale + shift)
    centres = points.fit(clusters=16, rng=generator(2))
    labels = points.assign(centres)
    assert plug_in(symbols, labels) == pytest.approx(plug_in(symbols, symbols), abs=1e-9)  # all are pure
    for cluster in labels.unique():  # and settled: each centre is the mean of its points
        mean_D = points.x_ND[labels == cluster].mean(0)
        assert torch.allclose(centres[cluster], mean_D, rtol=0, atol=1e-6)  # float32


def test_the_frame_rounds_nothing_and_leaves_the_states_alone():
    states = generator(0).standard_normal((100, 3)).astype(np.float32)
    before, points = states.copy(), Points(states)
    assert np.array_equal(states, before)
    assert torch.equal(Points(states * np.float32(2**60)).x_ND, points.x_ND)
    assert torch.equal(Points(torch.from_numpy(states)).x_ND, points.x_ND)
    assert points.x_ND.median(0).values.abs().max() == 0
    assert points.x_ND.abs().max() < 2 + 1  # below 2 before it is centred


@pytest.mark.parametrize("value", [1e6, 1e8, 1e12])
def test_a_huge_state_takes_no_other_along(value):
    """Were the mean the origin, float32 would see no difference between all other states."""
    states = mixture(types=20, tokens=2000)
    types = Points(states).assign(Points(states).fit(clusters=20, rng=generator(1)))
    states[7, 3] = value
    points = Points(states)
    labels = points.assign(points.fit(clusters=40, rng=generator(1)))
    assert plug_in(types, labels) > 0.95 * plug_in(types, types)


# Fit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("huge", [0, 1e4])
def test_seeds_are_those_of_all_squared_distances(huge):
    """Beside the same draws where every distance is taken of a difference, whether or not it can matter."""
    states_ND = mixture(types=50, tokens=2000, width=8)
    states_ND[7] += huge
    x_ND, rng = Points(states_ND).x_ND, generator(3)

    def nearest(centres_KD):
        labels_N = (x_ND @ centres_KD.T - centres_KD.square().sum(1) / 2).argmax(1)
        apart_ND = centres_KD[labels_N] - x_ND
        return labels_N.numpy(), torch.linalg.vecdot(apart_ND, apart_ND).numpy()

    centres_KD = x_ND[:1]
    distance_N = nearest(centres_KD)[1]
    for _ in range(15):  # rounds of 4 centres, chosen among 32 candidates
        cumulative_N = distance_N.cumsum(dtype=np.float64)
        drawn = cumulative_N.searchsorted(rng.random(32) * cumulative_N[-1])
        labels_N, new_N = nearest(x_ND[drawn])
        gain = np.bincount(labels_N, (distance_N - new_N).clip(min=0), minlength=32)
        kept_KD = x_ND[drawn[np.argsort(-gain, kind="stable")[:4]]]
        distance_N = np.minimum(distance_N, nearest(kept_KD)[1])
        centres_KD = torch.cat([centres_KD, kept_KD])
    assert torch.equal(module._seeds(x_ND, 61, generator(3)), centres_KD)


def test_fit_does_better_than_fifty_passes_from_random_states():
    points = Points(mixture())
    ours = within(points, points.fit(clusters=200, rng=generator(1)))
    for start, share in (("random", 0.95), ("k-means++", 1.02)):  # measured: 0.83 and 0.97
        peer = KMeans(200, init=start, n_init=1, max_iter=50, random_state=0).fit(points.x_ND.numpy())
        assert ours < share * within(points, torch.from_numpy(peer.cluster_centers_))


@pytest.mark.parametrize("contrast", [0.5, 0.7, 1.0])
def test_ten_passes_get_as_far_as_fifty_of_lloyds(contrast, monkeypatch):
    """Types that overlap, with variance in few directions: where the first passes matter most."""
    rng = generator(0)
    types = rng.choice(300, 20_000, p=zipf(300))
    means = contrast * rng.standard_normal((300, 16))
    points = Points(means[types] + rng.standard_normal((20_000, 16)) / np.arange(1, 17))
    seeds = module._seeds(points.x_ND[:5000], 200, generator(1))

    def found(**constants):
        for name, value in constants.items():
            monkeypatch.setattr(module, name, value)
        centres_KD = module._passes(points.x_ND, seeds)
        return plug_in(types, points.assign(centres_KD)), within(points, centres_KD)

    ours, our_squares = found()
    few, few_squares = found(SETTLED=0, PASSES=2)
    _, ten_squares = found(PASSES=10, MOMENTUM=0)
    many, many_squares = found(PASSES=50)
    assert abs(ours - many) < 0.02
    assert abs(few - many) > 0.02
    assert our_squares < min(1.003 * many_squares, ten_squares) < few_squares


def test_fit_among_some_rows_is_the_fit_of_these_alone():
    points, rows = Points(mixture(tokens=1000)), np.flatnonzero(generator(3).integers(2, size=1000))
    alone = Points(points.x_ND[rows])
    among = points.fit(clusters=30, rng=generator(1), among=rows)
    # The frame of the rows alone differs by their median and by a power of two.
    scale = (points.x_ND[rows[0]] - points.x_ND[rows[1]]).norm() / (alone.x_ND[0] - alone.x_ND[1]).norm()
    expected = alone.fit(clusters=30, rng=generator(1)) * scale + points.x_ND[rows].median(0).values
    assert torch.allclose(among, expected, atol=1e-3)  # a tie may be rounded to the other side
    assert not torch.allclose(among, points.fit(clusters=30, rng=generator(1)), atol=1e-3)


def test_fit_repeats_by_its_generator():
    points = Points(generator(0).standard_normal((500, 4)))
    first, again = (points.fit(clusters=50, rng=generator(1)) for _ in range(2))
    assert first.shape == (50, 4)
    assert first.dtype == torch.float32
    assert torch.equal(first, again)
    torch.manual_seed(1)  # the global state does not matter
    assert torch.equal(first, points.fit(clusters=50, rng=generator(1)))
    assert not torch.equal(first, points.fit(clusters=50, rng=generator(2)))


def test_one_cluster_is_the_mean_and_repeated_states_are_no_obstacle():
    points = Points(generator(0).standard_normal((100, 3)))
    (centre_D,) = points.fit(clusters=1, rng=generator(0))
    assert torch.allclose(centre_D, points.x_ND.mean(0), atol=1e-6)  # float32
    tokens = np.arange(1000) % 5
    points = Points(np.eye(5)[tokens])
    centres = points.fit(clusters=50, rng=generator(1))
    assert centres.shape == (50, 5)
    assert plug_in(tokens, points.assign(centres)) == pytest.approx(math.log(5), abs=1e-12)  # float64
    assert Points(np.ones((100, 2))).fit(clusters=10, rng=generator(2)).isfinite().all()
    assert Points(np.zeros((100, 2))).fit(clusters=10, rng=generator(2)).isfinite().all()


@pytest.mark.gpu
def test_a_gpu_finds_the_same_groups_and_repeats_itself():
    points, there = Points(mixture()), Points(torch.from_numpy(mixture()).cuda())
    centres, again = (there.fit(clusters=200, rng=generator(1)) for _ in range(2))
    assert centres.is_cuda
    assert torch.equal(centres, again)
    ours = within(points, points.fit(clusters=200, rng=generator(1)))
    assert within(there, centres) == pytest.approx(ours, rel=0.02)  # another path to as good centres


def test_unfit_states_and_clusters_are_refused():
    assert (
        error_text(MeasureError, lambda: Points(np.ones((3, 2))).fit(clusters=4, rng=generator(0)))
        == "clusters must be at least 1 and at most the number of tokens, 3, but is 4."
    )
    assert (
        error_text(MeasureError, lambda: Points(np.ones((3, 2))).fit(clusters=0, rng=generator(0)))
        == "clusters must be at least 1 and at most the number of tokens, 3, but is 0."
    )
    assert error_text(MeasureError, lambda: Points(np.array([[1.0], [np.inf]]))) == (
        "states must be finite, but 1 of 2 values are NaN or infinity, first at row 1, column 0; check whether "
        "the run diverged or padding was kept."
    )
