"""The shape of a cloud of states: by hand, by slow loops, what changes it and what must not.

Shapes: N occurrences, D features.
"""

import math

import numpy as np
import pytest

from ablations.errors import MeasureError
from ablations.measures import geometry as measure_geometry
from ablations.measures.geometry import RANKS, SentencePairs, geometry
from ablations.measures.jackknife import sentence_blocks
from ablations.measures.reading.sample import Sample, ranks
from tests.support.channels import generator
from tests.support.errors import error_text

METRICS = ["anisotropy", "self_similarity", "effective_rank", "participation_ratio", "update_norm"]


def rotation(size, seed):
    return np.linalg.qr(generator(seed).standard_normal((size, size)))[0]


def sample_of(token_N, sentence_N):
    token_N, sentence_N = np.asarray(token_N), np.asarray(sentence_N)
    nothing_N = np.full(len(token_N), -1)
    return Sample(
        sentences=int(sentence_N[-1]) + 1,
        token_N=token_N,
        sentence_N=sentence_N,
        position_N=np.arange(len(token_N)),
        left_N=nothing_N,
        right_N=nothing_N,
        rank_N=ranks(np.bincount(token_N))[token_N],
    )


def text(tokens=600, *, types=10, seed=0):
    """Sentences of 1 to 9 tokens of a Zipf law."""
    rng = generator(seed)
    weight = 1 / np.arange(1, types + 1)
    sentence_N = np.repeat(np.arange(tokens), rng.integers(1, 10, size=tokens))[:tokens]
    return sample_of(rng.choice(types, tokens, p=weight / weight.sum()), sentence_N)


def cloud(sample, *, width=6, mean=0.7, own=1.0, noise=1.0, seed=0):
    """A common direction, a place for each type, and noise; columns of unequal spread."""
    rng = generator(seed)
    embedding_VD = own * rng.standard_normal((int(sample.token_N.max()) + 1, width))
    noise_ND = noise * rng.standard_normal((len(sample), width))
    return mean + (embedding_VD[sample.token_N] + noise_ND) * np.linspace(0.5, 2, width)


def rows_of(layers, sample):
    rows = list(geometry([np.asarray(layer, np.float32) for layer in layers], sample))
    return {(row["metric"], row["layer"]): row for row in rows}


def of_layer(states_ND, sample):
    """The rows of one layer, and of the step to a layer in which the first feature is doubled."""
    upper_ND = np.asarray(states_ND) * np.where(np.arange(np.shape(states_ND)[1]) == 0, 2, 1)
    found = rows_of([states_ND, upper_ND], sample)
    return {metric: row for (metric, layer), row in found.items() if layer == 0}


def complaint(layers, sample):
    return error_text(MeasureError, rows_of, layers, sample)


# Pairs -----------------------------------------------------------------------------------------------


def slow_mean_cosine(x_ND, group_N, sentence_N):
    """The mean over groups of the mean over their pairs, a pair at a time; NaN without pairs."""
    cosines = {}
    for i in range(len(x_ND)):
        for j in range(i):
            if group_N[i] == group_N[j] and sentence_N[i] != sentence_N[j]:
                cosine = x_ND[i] @ x_ND[j] / np.linalg.norm(x_ND[i]) / np.linalg.norm(x_ND[j])
                cosines.setdefault(int(group_N[i]), []).append(cosine)
    return np.mean([np.mean(of_group) for of_group in cosines.values()]) if cosines else np.nan


@pytest.mark.parametrize("columns", [2, 64])
def test_mean_cosines_are_those_of_a_loop_over_pairs_with_and_without_each_block(columns, monkeypatch):
    monkeypatch.setattr(measure_geometry, "COLUMNS", columns)
    x_ND = generator(0).standard_normal((80, 5)) + 0.3
    unit_ND = x_ND / np.linalg.norm(x_ND, axis=1, keepdims=True)
    sentence_N = np.repeat(np.arange(20), generator(1).integers(1, 8, size=20))[:80] * 3 + 5
    block_N = sentence_blocks(sentence_N, 4)
    # One group for all, groups of which some have no pair, and a group that loses its pairs with block 0.
    few_N = generator(2).integers(25, size=len(sentence_N)) - 7
    lost_N = np.where((block_N == 0) | (np.arange(len(block_N)) > 77), 1, 2 + np.arange(len(block_N)))
    for group_N in (np.zeros_like(few_N), few_N, lost_N):
        found = SentencePairs(group_N, sentence_N, block_N).mean_cosines(unit_ND[: len(sentence_N)])
        expected = [slow_mean_cosine(x_ND[: len(sentence_N)], group_N, sentence_N)]
        for block in range(4):
            kept = block_N != block
            expected.append(slow_mean_cosine(x_ND[: len(sentence_N)][kept], group_N[kept], sentence_N[kept]))
        np.testing.assert_allclose(found, expected, atol=1e-12)  # float64; NaN equals NaN


def test_occurrences_that_have_a_pair_are_counted():
    # Type 4 is in two sentences, twice in one; 7 is twice in one sentence; 9 occurs once.
    pairs = SentencePairs(np.array([4, 7, 7, 4, 4, 9]), np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 1]))
    assert pairs.occurrences == 3
    assert SentencePairs(np.arange(3), np.arange(3), np.arange(3)).occurrences == 0


# Values known by hand and from elsewhere -------------------------------------------------------------


def test_four_states_in_the_plane_by_hand():
    layer_ND, upper_ND = [[2, 0], [0, 3], [1, 0], [5, 5]], [[2, 1], [0, 6], [1, 0], [1, 2]]
    found = rows_of([layer_ND, upper_ND], sample_of([3, 8, 3, 8], [0, 0, 1, 1]))
    row = found["anisotropy", 0]
    assert row["value"] == pytest.approx((1 + math.sqrt(2)) / 4, abs=1e-6)  # float32: 1, 1/sqrt 2, 0, 1/sqrt 2
    # Less the mean (2, 2) they are (0, -2), (-2, 1), (-1, -2) and (3, 3).
    by_hand = (2 / math.sqrt(5) - 1 / math.sqrt(2) + 0 - 1 / math.sqrt(10)) / 4
    assert row["floor"] == pytest.approx(by_hand, abs=1e-6)  # float32
    # Types have 1 and 1/sqrt 2.
    assert found["self_similarity", 0]["value"] == pytest.approx(1 / 4, abs=1e-6)  # float32
    assert found["update_norm", 0]["value"] == pytest.approx((1 / 2 + 1 + 0 + math.sqrt(1 / 2)) / 4, abs=1e-6)
    # Sums of squares 14 and 18, of products 9: eigenvalues 16 +- sqrt 85.
    assert found["participation_ratio", 0]["value"] == pytest.approx(32**2 / (14**2 + 18**2 + 2 * 9**2), abs=1e-6)
    first, second = math.sqrt(16 + math.sqrt(85)), math.sqrt(16 - math.sqrt(85))
    share = first / (first + second)
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert found["effective_rank", 0]["value"] == pytest.approx(math.exp(entropy), abs=1e-6)
    assert {key for key in found if key[1] == 1} == {(metric, 1) for metric in METRICS[:-1]}
    assert (row["n"], row["d"], row["unit"]) == (4, 2, "")
    assert found["effective_rank", 0]["unit"] == "dimensions"
    assert found["update_norm", 0]["layer_to"] == 1
    assert "layer_to" not in row


def test_ranks_of_the_data_of_kornblith_et_al():
    x_ND = np.random.RandomState(1337).randn(100, 10)  # the notebook's generator
    found = of_layer(x_ND, text(100))
    assert found["effective_rank"]["value"] == pytest.approx(9.875503, abs=1e-5)
    assert found["participation_ratio"]["value"] == pytest.approx(9.150791, abs=1e-5)


def test_a_cloud_of_known_make_has_the_cosines_of_its_variances():
    """By column a mean of 0.5, a variance of 1 between types and 4 within: cosines are shares of the sum."""
    sample, rng = text(2000, types=300, seed=1), generator(2)
    states_ND = 0.5 + rng.standard_normal((300, 200))[sample.token_N] + 2 * rng.standard_normal((2000, 200))
    found = of_layer(states_ND, sample)
    same = np.square(np.bincount(sample.token_N) / 2000).sum()  # pairs of one type
    # 200 columns times 300 types leave less than a hundredth to chance.
    assert found["anisotropy"]["value"] == pytest.approx((0.25 + same) / 5.25, abs=0.01)
    assert found["anisotropy"]["floor"] == pytest.approx(0, abs=0.01)
    assert found["self_similarity"]["value"] == pytest.approx((1 - same) / 5.25, abs=0.01)
    assert found["self_similarity"]["floor"] == pytest.approx(0, abs=0.01)


def test_states_without_structure_have_no_direction_and_as_many_dimensions_as_independent_columns():
    sample, x_ND = text(2000), generator(0).standard_normal((2000, 6))
    found = of_layer(x_ND, sample)
    for metric in ("anisotropy", "self_similarity"):
        assert abs(found[metric]["value"]) < 4 * found[metric]["standard_error"]
        assert abs(found[metric]["floor"]) < 4 * found["self_similarity"]["standard_error"]
    for metric in ("effective_rank", "participation_ratio"):
        assert found[metric]["value"] == pytest.approx(6, abs=0.05)  # 1 + D / N times too few at most
        assert found[metric]["floor"] == pytest.approx(found[metric]["value"], abs=0.03)


def test_floors_have_what_they_should_and_no_more():
    sample = text(2000)
    x_ND = np.repeat(generator(0).standard_normal((2000, 1)), 4, axis=1) * [1, 2, 1, 2]
    found = of_layer(x_ND + 1e-3 * generator(1).standard_normal((2000, 4)), sample)
    assert found["participation_ratio"]["value"] == pytest.approx(1, abs=1e-4)
    assert found["participation_ratio"]["floor"] == pytest.approx(10**2 / 34, abs=0.02)  # variances 1 4 1 4
    lopsided = of_layer(generator(2).exponential(size=(2000, 4)), sample)
    assert lopsided["anisotropy"]["value"] > 0.6
    assert 0.01 < lopsided["anisotropy"]["floor"] < 0.1  # chance makes 0.001
    states_ND = cloud(sample, noise=0.1)
    found = rows_of([states_ND, 1.1 * states_ND], sample)["update_norm", 0]
    assert found["value"] == pytest.approx(0.1, abs=1e-6)  # float32
    assert found["floor"] > 0.5  # another token's state


# What changes it and what must not -------------------------------------------------------------------


def values(found):
    return {metric: row["value"] for metric, row in found.items()}


def test_rotations_and_a_common_scale_change_nothing_but_the_basis_of_a_floor():
    sample = text()
    states_ND = cloud(sample)
    upper_ND = states_ND + 0.5 * generator(5).standard_normal(states_ND.shape)
    expected = rows_of([states_ND, upper_ND], sample)
    turn_DD = rotation(6, seed=1)
    for change in (lambda x: x @ turn_DD, lambda x: 2.0**20 * x, lambda x: 2.0**-20 * x, lambda x: x[:, ::-1]):
        found = rows_of([change(states_ND), change(upper_ND)], sample)
        for key, row in expected.items():
            assert found[key]["value"] == pytest.approx(row["value"], abs=1e-5)  # float32
            assert found[key]["standard_error"] == pytest.approx(row["standard_error"], abs=1e-5)
            if key[0] not in ("effective_rank", "participation_ratio"):
                assert found[key]["floor"] == pytest.approx(row["floor"], abs=1e-5)
    turned = rows_of([states_ND @ turn_DD, upper_ND @ turn_DD], sample)
    assert abs(turned["participation_ratio", 0]["floor"] - expected["participation_ratio", 0]["floor"]) > 0.1


def test_a_common_vector_raises_anisotropy_alone():
    sample = text(200)
    states_ND = cloud(sample, mean=0)
    plain, shifted = of_layer(states_ND, sample), of_layer(states_ND + 4, sample)
    assert shifted["anisotropy"]["value"] > plain["anisotropy"]["value"] + 0.5
    assert shifted["anisotropy"]["floor"] == pytest.approx(plain["anisotropy"]["floor"], abs=1e-5)  # float32
    for metric in ("effective_rank", "participation_ratio"):
        assert shifted[metric]["value"] == pytest.approx(plain[metric]["value"], abs=1e-5)  # float32
    # The cosines of a type rise too, but less than the others': what is left beyond them falls.
    of_type = {}
    for name, x_ND in (("plain", states_ND), ("shifted", states_ND + 4)):
        everyone = slow_mean_cosine(x_ND, np.zeros(200), sample.sentence_N)
        of_type[name] = slow_mean_cosine(x_ND, sample.token_N, sample.sentence_N)
        found = (plain if name == "plain" else shifted)["self_similarity"]["value"]
        assert found == pytest.approx(of_type[name] - everyone, abs=1e-6)  # float32
    assert of_type["shifted"] > of_type["plain"]
    assert shifted["self_similarity"]["value"] < 0.5 * plain["self_similarity"]["value"]


def test_lengths_of_states_count_for_ranks_alone():
    sample = text()
    states_ND = cloud(sample)
    lengths_N1 = np.exp(generator(3).standard_normal((600, 1)))
    plain, longer = of_layer(states_ND, sample), of_layer(states_ND * lengths_N1, sample)
    for metric in ("anisotropy", "self_similarity", "update_norm"):
        assert longer[metric]["value"] == pytest.approx(plain[metric]["value"], abs=1e-5)  # float32
    assert abs(longer["participation_ratio"]["value"] - plain["participation_ratio"]["value"]) > 0.05


def test_pairs_within_a_sentence_do_not_count():
    """Sentences whose tokens are all alike, and nothing else is."""
    sentence_N = np.arange(2000) // 5
    sample = sample_of(generator(0).integers(10, size=2000), sentence_N)
    found = of_layer(generator(1).standard_normal((400, 8))[sentence_N], sample)
    for metric in ("anisotropy", "self_similarity"):
        assert abs(found[metric]["value"]) < 4 * found[metric]["standard_error"]


def test_layers_are_described_each_on_its_own_with_the_same_shuffles():
    sample = text()
    states_ND, other_ND = cloud(sample), cloud(sample, seed=9)
    found = rows_of([states_ND, other_ND, states_ND], sample)
    alone = of_layer(states_ND, sample)
    for metric in METRICS[:-1]:
        assert found[metric, 2] == found[metric, 0] | {"layer": 2}
        assert found[metric, 0] == alone[metric]
        assert found[metric, 1]["value"] != found[metric, 0]["value"]
    np.random.seed(0)  # noqa: NPY002 - the global state must not matter
    assert rows_of([states_ND, other_ND, states_ND], sample) == found
    assert [key for key in found if key[1] == 0] == [(metric, 0) for metric in METRICS]


# Standard errors -------------------------------------------------------------------------------------


def test_the_standard_error_is_that_of_texts_without_a_block():
    """Each value is computed again from the start on the text without a block."""
    sample = text()
    states_ND = cloud(sample)
    found = of_layer(states_ND, sample)
    block_N = sentence_blocks(sample.sentence_N)
    without = [values(of_layer(states_ND[block_N != b], sample.at(block_N != b))) for b in range(10)]
    for metric in METRICS:
        error = math.sqrt(9 * np.var([others[metric] for others in without]))
        assert found[metric]["standard_error"] == pytest.approx(error, rel=1e-3)  # float32 has another mean


def test_the_standard_error_is_about_the_spread_over_texts():
    found = {}
    for seed in range(60):
        sample = text(400, seed=seed)
        rng = generator(1000 + seed)
        noise_ND = rng.standard_normal((400, 6)) + rng.standard_normal((400, 6))[sample.sentence_N]
        states_ND = 0.7 + np.arange(60).reshape(10, 6)[sample.token_N] % 7 / 4 + noise_ND
        for metric, row in of_layer(states_ND, sample).items():
            found.setdefault(metric, []).append((row["value"], row["standard_error"]))
    for rows in found.values():
        value_S, error_S = np.transpose(rows)
        ratio = np.sqrt(np.mean(error_S**2)) / np.std(value_S, ddof=1)
        assert 0.75 < ratio < 1.4  # a spread of 60 is known to 9%, and ten blocks leave their mark


def test_two_sentences_have_no_standard_error_of_cosines():
    sample = sample_of([1, 2, 1, 2], [0, 0, 1, 1])
    found = of_layer(generator(0).standard_normal((4, 3)), sample)
    assert math.isnan(found["anisotropy"]["standard_error"])
    assert math.isnan(found["self_similarity"]["standard_error"])
    assert found["update_norm"]["standard_error"] > 0
    single = of_layer(generator(0).standard_normal((3, 3)), sample_of([1, 1, 2], [0, 1, 1]))
    assert math.isnan(single["effective_rank"]["standard_error"])


@pytest.mark.parametrize(("kind", "block"), [("equal others", 0), ("equal others", 7), ("a huge state", 0)])
def test_dimensions_that_are_undefined_without_a_block_have_no_error(kind, block):
    """Without it all states are equal, or all are very far from the origin of the sums, the mean of block 0."""
    sample = text(1000)
    states_ND = cloud(sample)
    block_N = sentence_blocks(sample.sentence_N)
    if kind == "equal others":
        states_ND[block_N != block] = 1.25
    else:
        states_ND[3] *= 1e6
    rows = of_layer(states_ND, sample)
    for metric, dimensions in RANKS.items():
        assert rows[metric]["value"] == pytest.approx(dimensions(states_ND), rel=1e-4)  # float32
        assert math.isnan(rows[metric]["standard_error"])
        left_out = rows[metric]["left_out"]
        assert [place for place, without in enumerate(left_out) if math.isnan(without)] == [block]
    assert rows["anisotropy"]["standard_error"] > 0


# What cannot be measured -----------------------------------------------------------------------------


def test_a_text_without_repeated_types_has_no_self_similarity():
    states_ND = generator(0).standard_normal((6, 3))
    found = of_layer(states_ND, sample_of([1, 2, 2, 3, 4, 4], [0, 1, 1, 2, 3, 3]))
    assert set(found) == set(METRICS) - {"self_similarity"}


def test_opposite_occurrences_in_a_narrow_cloud_have_a_self_similarity_below_minus_1():
    sample = sample_of(np.array([0, 0, *range(1, 19)]), np.arange(20))
    row = of_layer([[1, 0], [-1, 0], *[[1, 0]] * 17, [1, 0.1]], sample)["self_similarity"]
    # the type has the cosine -1; of 380 ordered pairs the 38 with the opposite state have about -1
    assert row["value"] == pytest.approx(-1 - (342 - 38) / 380, abs=1e-3)  # the last state is 0.1 aside


def test_a_state_that_equals_the_mean_has_cosines_of_zero_without_it():
    found = of_layer([[1, 0], [-1, 2], [0, 1]], sample_of([1, 2, 3], [0, 1, 2]))
    assert found["anisotropy"]["floor"] == pytest.approx(-1 / 3, abs=1e-6)  # float32: -1, 0 and 0


def test_one_sentence_equal_states_and_zeros_are_refused():
    states_ND = generator(0).standard_normal((6, 3))
    assert complaint([states_ND], sample_of([1, 2, 2, 1, 4, 4], [3] * 6)) == (
        "geometry compares occurrences in different sentences, but the text has 1 sentence; use more text."
    )
    sample = sample_of([1, 2, 2, 1, 4, 4], [0, 0, 1, 1, 2, 2])
    assert complaint([states_ND, np.full((6, 3), 0.1)], sample) == (
        "geometry is undefined: all 6 states of layer 1 are equal; look for a collapsed run, or leave the measure "
        "out."
    )
    states_ND[4] = 0
    assert complaint([states_ND], sample) == (
        "a cosine needs states that are not 0, but all values are 0 in 1 of 6 rows, first in row 4; leave "
        "these tokens out."
    )
    states_ND[4] = np.inf
    assert complaint([states_ND], sample) == (
        f"states must be finite, but {states_ND.shape[1]} of {states_ND.size} values are NaN or infinity, first "
        "at row 4, column 0; check whether the run diverged or padding was kept."
    )
