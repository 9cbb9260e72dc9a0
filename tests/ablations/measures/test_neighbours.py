"""Nearest neighbours and what they have in common: slow loops, ties, chance, and which occurrences are asked.

Shapes: N occurrences of a sample, P of a pool, D features, K neighbours.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from ablations.measures.jackknife import sentence_blocks
from ablations.measures.neighbours import (
    chance_of_distance,
    chance_of_same,
    distance_to,
    nearest_of_group,
    nearest_others,
    neighbours,
    pools,
    require_occurrences,
    same_as,
)
from ablations.measures.reading.sample import Sample, ranks
from ablations.measures.settings import NeighboursSettings
from tests.support.channels import generator
from tests.support.errors import error_text
from tests.support.matrices import complaint

LENGTH = 8
"""Tokens of a sentence."""


def asked(**changes):
    few = {"types": 6, "occurrences": 20, "neighbours": 8, "neighbours_of_type": 4}
    return NeighboursSettings(kind="neighbours", **few | changes)


def sample_of(token_N, **labels):
    """Sentences of eight tokens."""
    token_N = np.asarray(token_N)
    place_N = np.arange(len(token_N))
    return Sample(
        sentences=math.ceil(len(token_N) / LENGTH),
        token_N=token_N,
        sentence_N=place_N // LENGTH,
        position_N=place_N % LENGTH + 1,
        left_N=np.where(place_N % LENGTH == 0, 99, np.roll(token_N, 1)),
        right_N=np.where(place_N % LENGTH == LENGTH - 1, 98, np.roll(token_N, -1)),
        rank_N=ranks(np.bincount(token_N))[token_N],
        labels=labels,
    )


def text(tokens=1600, *, types=12, seed=0):
    """Tokens of a Zipf law with all labels, some of them unknown."""
    rng = generator(seed)
    weight = 1 / np.arange(1, types + 1)
    token_N = rng.choice(types, tokens, p=weight / weight.sum())
    labels = {name: rng.integers(-1, 4, tokens) for name in ("relation", "left_part", "right_part")}
    sense_N = np.where(token_N % 2 == 0, rng.choice(3, tokens, p=[0.6, 0.3, 0.1]), -1)
    return sample_of(token_N, **labels, sense=sense_N)


def by_metric(rows, layer=0):
    return {row["metric"]: row for row in rows if row["layer"] == layer}


# Nearest others --------------------------------------------------------------------------------------


def slow_nearest(x_ND, k):
    """All cosines in float64, a row at a time, sorted by cosine and then by index."""
    found = []
    for i, x_D in enumerate(x_ND):
        cosines = [
            (-(x_D @ y_D) / math.sqrt((x_D @ x_D) * (y_D @ y_D)), j) for j, y_D in enumerate(x_ND) if j != i
        ]
        found.append([j for _, j in sorted(cosines)[:k]])
    return np.array(found)


@pytest.mark.parametrize("block", [1, 7, 200, 2**22])
def test_the_nearest_are_those_of_a_slow_loop_whatever_the_block(block, monkeypatch):
    monkeypatch.setattr("ablations.measures.neighbours.BLOCK", block)
    x_ND = generator(0).standard_normal((61, 5)) + 0.5
    for k in (1, 10, 60):
        found_NK = nearest_others(x_ND, neighbours=k)
        assert found_NK.dtype == np.int64
        assert np.array_equal(found_NK, slow_nearest(x_ND, k))


@pytest.mark.parametrize("block", [1, 150, 2**22])
def test_of_equally_near_states_any_are_neighbours_but_none_twice_and_none_farther(block, monkeypatch):
    """Axes and diagonals: all cosines are exact in float32, and nearly all are tied."""
    monkeypatch.setattr("ablations.measures.neighbours.BLOCK", block)
    corners = np.array([[1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1], [-1, 0, 0, 0], [3, 3, 3, 3]])
    x_ND = corners[generator(1).integers(6, size=50)].astype(float)
    unit_ND = x_ND / np.linalg.norm(x_ND, axis=1, keepdims=True)
    cosine_NN = unit_ND @ unit_ND.T
    for k in (1, 2, 5, 10, 25, 48, 49):
        found_NK, expected_NK = nearest_others(x_ND, neighbours=k), slow_nearest(x_ND, k)
        for i in range(50):
            assert len({i, *found_NK[i].tolist()}) == k + 1
            assert np.array_equal(cosine_NN[i, found_NK[i]], cosine_NN[i, expected_NK[i]])


def test_the_nearest_ignore_lengths_and_rotations_and_no_common_direction():
    x_ND = generator(2).standard_normal((80, 6))
    expected = nearest_others(x_ND, neighbours=7)
    lengths_N1 = 10.0 ** generator(3).integers(-30, 30, size=(80, 1))
    turn_DD = np.linalg.qr(generator(4).standard_normal((6, 6)))[0]
    for same_ND in (x_ND * lengths_N1, x_ND @ turn_DD, torch.from_numpy(x_ND), x_ND[:, ::-1]):
        assert np.array_equal(nearest_others(same_ND, neighbours=7), expected)
    assert not np.array_equal(nearest_others(x_ND + 1, neighbours=7), expected)
    assert not np.array_equal(nearest_others(x_ND * np.arange(1, 7), neighbours=7), expected)


def test_no_matrix_of_all_pairs_is_held(monkeypatch):
    monkeypatch.setattr("ablations.measures.neighbours.BLOCK", 5000)
    shapes, topk = [], torch.Tensor.topk

    def seen(similarity_BN, *arguments, **options):
        shapes.append(similarity_BN.numel())
        return topk(similarity_BN, *arguments, **options)

    monkeypatch.setattr(torch.Tensor, "topk", seen)
    nearest_others(generator(0).standard_normal((800, 3)), neighbours=2)
    assert max(shapes) <= 5000
    assert sum(shapes) == 800**2


def test_the_nearest_of_a_group_are_those_among_its_rows():
    x_ND, group_N = generator(5).standard_normal((90, 4)), generator(6).choice([7, -2, 30], 90)
    found_NK = nearest_of_group(x_ND, group_N, neighbours=6)
    for group in (7, -2, 30):
        place = np.flatnonzero(group_N == group)
        assert np.array_equal(found_NK[place], place[slow_nearest(x_ND[place], 6)])


def test_states_without_direction_and_impossible_numbers_are_refused():
    x_ND = np.ones((5, 2))
    x_ND[2] = x_ND[4] = 0
    assert complaint(nearest_others, x_ND, neighbours=1) == (
        "a cosine needs states that are not 0, but all values are 0 in 2 of 5 rows, first in row 2; leave "
        "these tokens out."
    )
    x_ND[2] = np.nan
    assert complaint(nearest_others, x_ND, neighbours=1) == (
        "states must be finite, but 2 of 10 values are NaN or infinity, first at row 2, column 0; check "
        "whether the run diverged or padding was kept."
    )
    message = (
        "neighbours must be at least 1 and less than the number of tokens, {}, but is {}; "
        "use more tokens or fewer neighbours."
    )
    for number in (0, 5):
        assert complaint(nearest_others, np.ones((5, 2)), neighbours=number) == message.format(5, number)
    of_two_groups = complaint(nearest_of_group, np.ones((5, 2)), np.array([0, 0, 0, 1, 1]), neighbours=2)
    assert of_two_groups == message.format(2, 2)


# Scores and chance -----------------------------------------------------------------------------------


def test_scores_by_hand():
    nearest_PK = np.array([[1, 2], [0, 2], [0, 1], [0, 2]])
    assert same_as(np.array([5, 5, -1, 5]), nearest_PK).tolist() == [[1, 0], [1, 0], [0, 0], [1, 0]]
    assert distance_to(np.array([1, 4, 6, 1]), nearest_PK).tolist() == [[3, 5], [3, 2], [5, 2], [0, 5]]
    # Three others each: two of 5 for each 5, none for -1. Distances 3 5 0, 3 2 3, 5 2 5, 0 3 5.
    assert chance_of_same(np.array([5, 5, -1, 5])) == pytest.approx((3 * 2 / 3 + 0) / 4)
    assert chance_of_distance(np.array([1, 4, 6, 1])) == pytest.approx((8 + 8 + 12 + 8) / 3 / 4)


@pytest.mark.parametrize("grouped", [False, True])
def test_chance_is_the_mean_over_all_that_could_be_neighbours(grouped):
    rng = generator(0)
    label_P, position_P = rng.integers(-1, 4, size=60), rng.integers(1, 9, size=60)
    group_P = rng.choice([3, -5, 8], 60) if grouped else np.zeros(60, int)
    same, distance = [], []
    for i in range(60):
        others = [j for j in range(60) if j != i and group_P[j] == group_P[i]]
        same.append(np.mean([label_P[j] == label_P[i] for j in others]))
        distance.append(np.mean([abs(position_P[j] - position_P[i]) for j in others]))
    given = (group_P,) if grouped else ()
    assert chance_of_same(label_P, *given) == pytest.approx(np.mean(same), abs=1e-12)  # float64
    assert chance_of_distance(position_P, *given) == pytest.approx(np.mean(distance), abs=1e-12)  # float64


# Which occurrences -----------------------------------------------------------------------------------


def test_a_pool_has_equally_many_of_types_evenly_over_frequency_ranks():
    counts = np.array([70, 24, 60, 50, 45, 40, 36, 33, 19, 28, 26, 5])  # ten types have 20 or more
    sample = sample_of(generator(0).permutation(np.repeat(np.arange(12), counts)))
    (pool, *_) = pools(sample, asked(types=5))
    drawn, each = np.unique(sample.token_N[pool.place_P], return_counts=True)
    assert drawn.tolist() == sorted([2, 4, 6, 9, 1])  # ranks 2, 4, 6, 8 and 10
    assert (each == 20).all()
    assert len(set(pool.place_P.tolist())) == 100
    (all_of_them, *_) = pools(sample, asked(types=50))
    assert set(sample.token_N[all_of_them.place_P].tolist()) == set(range(12)) - {8, 11}


def test_occurrences_are_drawn_from_the_whole_text_in_random_order_and_each_type_on_its_own():
    sample = text(4000)
    (pool, *_) = pools(sample, asked())
    for token in np.unique(sample.token_N[pool.place_P]):
        place = pool.place_P[sample.token_N[pool.place_P] == token]
        # Means of uniform places: 5 standard errors.
        assert np.mean(place) == pytest.approx(2000, abs=5 * 4000 / math.sqrt(12 * 20))
    assert abs(np.corrcoef(np.arange(120), pool.place_P)[0, 1]) < 5 / math.sqrt(120)
    np.random.seed(1)  # noqa: NPY002 - the global state must not matter
    assert np.array_equal(pools(sample, asked())[0].place_P, pool.place_P)
    # What else the text holds decides which types, not which of their occurrences.
    token = sample.token_N[pool.place_P[0]]
    without_N = np.where(sample.token_N == (token + 1) % 12, 50, sample.token_N)
    changed = replace(sample, token_N=without_N, rank_N=ranks(np.bincount(without_N))[without_N])
    (again, *_) = pools(changed, asked(types=12))
    kept, before = (np.sort(p.place_P[sample.token_N[p.place_P] == token]) for p in (again, pool))
    assert np.array_equal(kept, before)


def test_occurrences_without_a_label_neither_ask_nor_answer():
    sample = text(2000)
    half_N = np.where(generator(1).random(2000) < 0.5, -1, sample.labels["relation"])
    sample = replace(sample, labels=sample.labels | {"relation": half_N})
    by = {metric: pool for pool in pools(sample, asked()) for metric in pool.compared}
    everyone = by["same_left"].place_P
    for metric, label in (("same_relation", "relation"), ("same_right_part", "right_part")):
        known = everyone[sample.labels[label][everyone] != -1]
        left = np.bincount(sample.token_N[known])
        assert np.array_equal(by[metric].place_P, known[left[sample.token_N[known]] > 2 * 4])
        if label == "relation":
            assert ((left > 4) & (left <= 8)).any()  # as many as the neighbours, but too few to choose from
        assert (by[metric].compared[metric] >= 0).all()


def test_twice_as_many_others_as_neighbours_are_just_enough():
    # Of 20 drawn of each type, 8 of type 0 and 9 of type 1 have a label: 7 and 8 others for 4 neighbours.
    token_N, relation_N = np.repeat([0, 1], 20), np.tile(np.arange(20), 2)
    relation_N = np.where(relation_N < np.repeat([8, 9], 20), relation_N % 3, -1)
    order = generator(0).permutation(40)
    sample = sample_of(token_N[order], relation=relation_N[order])
    by = {m: pool for pool in pools(sample, asked()) for m in pool.compared}
    assert by["same_relation"].token_P.tolist() == [1] * 9


def test_the_pool_of_senses_is_in_random_order_too():
    """Of equal states those that come first are neighbours, and these must not be the start of the text."""
    token_N, sense_N = np.arange(8000) % 2, generator(0).integers(2, size=8000)
    sample = sample_of(token_N, sense=np.where(token_N == 0, sense_N, -1))
    by = {m: pool for pool in pools(sample, asked(occurrences=1000)) for m in pool.compared}
    place_P = by["same_sense"].place_P
    assert len(place_P) == 2000
    assert abs(np.corrcoef(np.arange(2000), place_P)[0, 1]) < 5 / math.sqrt(2000)


def test_what_has_too_little_text_has_no_rows():
    sample = text(2000)
    relation_N = sample.labels["relation"].copy()
    relation_N[:1700] = -1  # 3 of 20 are left on average
    labels = {"relation": relation_N, "sense": np.zeros(2000, int), "left_part": sample.labels["left_part"]}
    states_ND = generator(0).standard_normal((2000, 4)).astype(np.float32)
    found = by_metric(neighbours([states_ND], replace(sample, labels=labels), asked()))
    assert set(found) == {"same_token", "position_distance", "same_left", "same_right", "same_left_part"}
    nothing = {"relation": np.full(2000, -1), "sense": np.full(2000, -1)}
    found = by_metric(neighbours([states_ND], replace(sample, labels=nothing), asked()))
    assert set(found) == {"same_token", "position_distance", "same_left", "same_right"}


def test_both_senses_of_a_type_are_equally_frequent_in_its_pool():
    # Type 0: 30 and 9 occurrences of two senses, 2 of a third; type 1: 6 and 4; type 2: one sense; type 3: none.
    token_N = np.repeat([0, 0, 0, 1, 1, 2, 3], [30, 9, 2, 6, 4, 40, 40])
    sense_N = np.repeat([0, 1, 2, 5, 3, 0, -1], [30, 9, 2, 6, 4, 40, 40])
    order = generator(0).permutation(len(token_N))
    sample = sample_of(token_N[order], sense=sense_N[order])

    def drawn(**changes):
        by = {metric: pool for pool in pools(sample, asked(**changes)) for metric in pool.compared}
        place_P = by["same_sense"].place_P
        pairs = np.stack([sample.token_N[place_P], by["same_sense"].compared["same_sense"]])
        cells, counts = np.unique(pairs, axis=1, return_counts=True)
        return {tuple(cell): count for cell, count in zip(cells.T.tolist(), counts.tolist(), strict=True)}

    assert drawn() == {(0, 0): 9, (0, 1): 9}
    assert drawn(neighbours_of_type=3) == {(0, 0): 9, (0, 1): 9, (1, 3): 4, (1, 5): 4}
    # Of as many types as wanted, those with too few of a sense do not take the place of others.
    more = sample_of(np.append(sample.token_N, [5] * 16), sense=np.append(sample.labels["sense"], [0, 1] * 8))
    by = {metric: pool for pool in pools(more, asked(types=2)) for metric in pool.compared}
    assert set(by["same_sense"].token_P.tolist()) == {0, 5}
    assert drawn(occurrences=7, neighbours=6, neighbours_of_type=3) == {(0, 0): 7, (0, 1): 7, (1, 3): 4, (1, 5): 4}
    states_ND = generator(1).standard_normal((len(token_N), 3)).astype(np.float32)
    row = by_metric(neighbours([states_ND], sample, asked()))["same_sense"]
    assert row["floor"] == pytest.approx(8 / 17)  # 8 of the 17 others
    assert row["n"] == 18


# The measure -----------------------------------------------------------------------------------------


def slow_rows(states_ND, sample, settings):
    """Value, floor, standard error and n of each metric, a pair of occurrences at a time, from the pools alone."""
    found, block_N = {}, sentence_blocks(sample.sentence_N).tolist()
    unit_ND = states_ND / np.linalg.norm(states_ND, axis=1, keepdims=True)
    values_of = {
        "same_token": sample.token_N,
        "position_distance": sample.position_N,
        "same_left": sample.left_N,
        "same_right": sample.right_N,
        "same_relation": sample.labels["relation"],
        "same_left_part": sample.labels["left_part"],
        "same_right_part": sample.labels["right_part"],
        "same_sense": sample.labels["sense"],
    }
    for pool in pools(sample, settings):
        for metric in pool.compared:
            value_N, place = values_of[metric].tolist(), pool.place_P.tolist()
            k = settings.neighbours if metric == "same_token" else settings.neighbours_of_type
            near, far = [], []
            for i in place:
                others = [j for j in place if j != i]
                if metric != "same_token":
                    others = [j for j in others if sample.token_N[j] == sample.token_N[i]]
                others.sort(key=lambda j, i=i: -unit_ND[i] @ unit_ND[j])
                if metric == "position_distance":
                    scores = [abs(value_N[i] - value_N[j]) for j in others]
                else:
                    scores = [value_N[i] == value_N[j] for j in others]
                near += [(score, block_N[i], block_N[j]) for score, j in zip(scores[:k], others[:k], strict=True)]
                far.append(np.mean(scores))
            without = [np.mean([score for score, *blocks in near if block not in blocks]) for block in range(10)]
            error = math.sqrt(9 * np.var(without))
            found[metric] = np.mean([score for score, *_ in near]), np.mean(far), error, len(place)
    return found


def test_every_row_equals_a_loop_over_its_occurrences():
    sample = text()
    embedding_VD, place_TD = generator(0).standard_normal((12, 6)), generator(1).standard_normal((9, 6))
    noise_ND = generator(2).standard_normal((len(sample), 6))
    states_ND = embedding_VD[sample.token_N] + 0.5 * place_TD[sample.position_N] + 0.5 * noise_ND
    rows = list(neighbours([noise_ND.astype(np.float32), states_ND.astype(np.float32)], sample, asked()))
    assert [row["layer"] for row in rows] == [0] * 8 + [1] * 8
    found, expected = by_metric(rows, layer=1), slow_rows(states_ND, sample, asked())
    assert set(found) == set(expected)
    for metric, (value, floor, error, n) in expected.items():
        row = found[metric]
        assert row["value"] == pytest.approx(value, abs=1e-9)  # float64 means of the same neighbours
        assert row["floor"] == pytest.approx(floor, abs=1e-12)  # float64
        assert row["standard_error"] == pytest.approx(error, abs=1e-9)
        assert (row["n"], row["d"]) == (n, 6)
        assert row["unit"] == ("tokens" if metric == "position_distance" else "")


def test_states_of_one_property_show_it_and_nothing_else():
    """Layers that hold the token, and beside it the position, the left token, the right token or the sense."""
    sample = text(4000)
    steps_TT = (np.arange(9)[:, None] > np.arange(9)).astype(float)  # its rows are as far apart as the positions
    held = {
        "position_distance": steps_TT[sample.position_N],
        "same_left": np.eye(100)[sample.left_N],
        "same_right": np.eye(100)[sample.right_N],
        "same_sense": np.eye(4)[sample.labels["sense"]],
    }
    own_ND = 3 * np.eye(12)[sample.token_N] + 0.01 * generator(0).standard_normal((4000, 12))
    layers = [np.concatenate([own_ND, held_ND], axis=1).astype(np.float32) for held_ND in held.values()]
    rows = list(neighbours(layers, sample, asked(occurrences=60)))
    beside = {"position_distance", "same_left", "same_right"}  # not apart: a sentence begins after START
    for layer, metric in enumerate(held):
        found = by_metric(rows, layer)
        assert found["same_token"]["value"] == 1
        assert found["same_token"]["floor"] == pytest.approx(59 / 359)
        for name in held:
            row = found[name]
            gain = (row["value"] - row["floor"]) * (-1 if name == "position_distance" else 1)
            if name == metric:
                assert gain > 10 * row["standard_error"]
            elif not {name, metric} <= beside:
                assert abs(gain) < 4 * row["standard_error"]
        if metric == "position_distance":
            assert found[metric]["value"] < 0.2
        else:
            assert found[metric]["value"] > 0.8  # rare tokens stand beside fewer than four others


@pytest.mark.parametrize("strength", [0, 1])
def test_the_standard_error_is_about_the_spread_over_texts(strength):
    """Leaving out those that ask, but not their neighbours, would make it half as large."""
    found = {}
    embedding_VD = generator(0).standard_normal((12, 6))
    for seed in range(40):
        sample = text(seed=seed)
        noise_ND = generator(100 + seed).standard_normal((len(sample), 6))
        states_ND = strength * (embedding_VD[sample.token_N] + embedding_VD[sample.left_N % 12]) + noise_ND
        for row in neighbours([states_ND.astype(np.float32)], sample, asked()):
            found.setdefault(row["metric"], []).append((row["value"], row["floor"], row["standard_error"]))
    for metric, rows in found.items():
        value_S, floor_S, error_S = np.transpose(rows)
        error = np.sqrt(np.mean(error_S**2))
        assert 0.85 < error / np.std(value_S, ddof=1) < 1.9  # a spread of 40 is known to 11%: 2 of that
        if strength == 0 or metric not in ("same_token", "same_left", "position_distance"):
            assert np.mean(value_S - floor_S) == pytest.approx(0, abs=3 * error / math.sqrt(40))


def test_equal_states_have_the_floor_and_not_the_start_of_the_text():
    """The first half of the text has other neighbours than the second; ties must not prefer it."""
    sample = text(4000)
    sample = replace(sample, left_N=np.where(np.arange(4000) < 2000, 1, sample.left_N))
    found = by_metric(neighbours([np.ones((4000, 2), np.float32)], sample, asked(occurrences=100, types=12)))
    for metric in ("same_token", "same_left"):
        # Askers share their neighbours: 8 in all, or 4 of each type; 4 standard errors of as many draws.
        assert found[metric]["value"] == pytest.approx(found[metric]["floor"], abs=4 * math.sqrt(0.25 / 8))


def test_a_text_of_one_block_has_no_standard_error():
    sample = text(1600)
    sample = replace(sample, sentence_N=np.zeros(1600, int), position_N=np.arange(1600))
    states_ND = generator(0).standard_normal((1600, 4)).astype(np.float32)
    for row in neighbours([states_ND], sample, asked()):
        assert math.isnan(row["standard_error"])


def test_the_rows_ignore_lengths_and_rotations_and_repeat():
    sample, states_ND = text(), generator(0).standard_normal((1600, 6)).astype(np.float32)
    expected = list(neighbours([states_ND], sample, asked()))
    torch.manual_seed(3)  # the global state must not matter
    assert list(neighbours([4 * states_ND], sample, asked())) == expected
    turned = states_ND @ np.linalg.qr(generator(1).standard_normal((6, 6)))[0].astype(np.float32)
    assert [row["value"] for row in neighbours([turned], sample, asked())] == [row["value"] for row in expected]


# Errors ----------------------------------------------------------------------------------------------


def test_too_little_text_is_refused_before_there_are_states():
    sample = sample_of(np.repeat([4, 7, 9], [50, 19, 18]))
    message = (
        "neighbours needs 2 types with {} occurrences or more, but the text has {}, and its second most "
        "frequent type occurs 19 times; use more text, or lower the measure's `occurrences`."
    )
    assert complaint(require_occurrences, sample, asked()) == message.format(20, 1)
    assert complaint(require_occurrences, sample, asked(occurrences=60)) == message.format(60, 0)
    assert complaint(require_occurrences, sample_of(np.array([4, 7])), asked()) == (
        "neighbours needs 2 types with 20 occurrences or more, but the text has 0, and its second most frequent "
        "type occurs once; use more text, or lower the measure's `occurrences`."
    )
    require_occurrences(sample, asked(occurrences=19))
    states_ND = np.ones((87, 2), np.float32)
    assert complaint(list, neighbours([states_ND], sample, asked())) == message.format(20, 1)


def test_more_neighbours_than_there_are_occurrences_are_refused():
    for changes, fewest in (({"occurrences": 8}, 9), ({"neighbours_of_type": 11}, 23)):
        assert f"must be at least {fewest}, more than neighbours and more than twice" in error_text(
            ValidationError, asked, **changes
        )
    asked(occurrences=9)
