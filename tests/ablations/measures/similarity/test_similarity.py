"""Similarities: golden values, textbook derivations, what each ignores and what it must not ignore.

Shapes: N tokens, D and E features.
"""

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch

from ablations.measures import similarity
from ablations.measures.similarity import (
    Side,
    cca,
    debiased_cka,
    effective_rank,
    linear_cka,
    minibatch_cka,
    participation_ratio,
    procrustes,
    pwcca,
    rbf_cka,
    rsa,
    svcca,
)
from tests.support.matrices import DIMENSIONS, MEASURES, ORDER, D, N, normal, rotation, same

# Values known from elsewhere -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        (linear_cka, 0.55761),
        (rbf_cka, 0.65483),
        (debiased_cka, 0.51346),
        (cca, 0.731014),
        (svcca, 0.731014),
        (lambda x, y: svcca(x, y, variance=0.9), 0.705765),
        (pwcca, 0.734668),
        (lambda x, y: pwcca(y, x), 0.736841),
        (lambda x, y: pwcca(x, y, weights="svcca_repo"), 0.736982),
        (procrustes, 0.726285),
        (rsa, 0.472440),
        (lambda x, y: minibatch_cka(x, y, batch_size=20), 0.533718),
        (lambda x, y: effective_rank(x), 9.875503),
        (lambda x, y: effective_rank(y), 9.844481),
        (lambda x, y: participation_ratio(x), 9.150791),
        (lambda x, y: participation_ratio(y), 8.917251),
    ],
)
def test_golden_values_of_the_notebook_of_kornblith_et_al_and_of_public_code_on_its_data(measure, expected):
    random = np.random.RandomState(1337)
    x_ND = random.randn(100, 10)
    y_ND = random.randn(100, 10) + x_ND
    assert measure(x_ND, y_ND) == same(expected, abs=1e-5)  # they are given to five or six places


def test_cca_recovers_chosen_canonical_correlations():
    correlation_K = np.array([0.9, 0.6, 0.3, 0.0])
    tokens, estimates = 4000, []
    for seed in range(20):
        x_NK = normal(tokens, 4, seed=2 * seed)
        y_NK = correlation_K * x_NK + np.sqrt(1 - correlation_K**2) * normal(tokens, 4, seed=2 * seed + 1)
        estimates.append(cca(x_NK @ normal(4, 4, seed=100 + seed), y_NK @ normal(4, 4, seed=200 + seed)))
    # The zero comes out as its absolute value, sqrt(2 / pi / N), which the mean over four shares.
    expected = correlation_K.mean() + math.sqrt(2 / math.pi / tokens) / 4
    error = np.std(estimates, ddof=1) / math.sqrt(len(estimates))
    assert np.mean(estimates) == same(expected, abs=3 * error + 1 / tokens)  # 3 standard errors + bias O(1/N)


@pytest.mark.parametrize(("per_feature", "expected"), [(10, 0.27), (31, 0.15), (156, 0.066)])
def test_pwcca_of_independent_data_falls_with_tokens_per_feature(per_feature, expected):
    features = 32
    floors = [
        pwcca(
            normal(per_feature * features, features, seed=s), normal(per_feature * features, features, seed=s + 50)
        )
        for s in range(5)
    ]
    assert np.mean(floors) == same(expected, abs=0.01)  # published to two digits; standard error below 0.003


def test_only_the_debiased_forms_of_cka_are_near_zero_for_independent_data():
    pairs = [(normal(320, 32, seed=s), normal(320, 32, seed=s + 50)) for s in range(20)]
    assert np.mean([linear_cka(x, y) for x, y in pairs]) > 0.08
    for measure in (debiased_cka, lambda x, y: minibatch_cka(x, y, batch_size=40)):
        values = [measure(x, y) for x, y in pairs]
        assert min(values) < 0  # noise must be able to come out negative
        assert np.mean(values) == same(0, abs=3 * np.std(values) / math.sqrt(20))  # 3 standard errors


# Independent derivations -----------------------------------------------------------------------------


def test_cca_and_pwcca_agree_with_cca_solved_as_an_eigenproblem(pair):
    """Textbook CCA: generalised eigenvectors of the covariances, no decomposition of the data."""
    x, y = (z - z.mean(0) for z in pair)
    sxx, syy, sxy = x.T @ x, y.T @ y, x.T @ y
    squared, a = scipy.linalg.eigh(sxy @ np.linalg.solve(syy, sxy.T), sxx)
    variates = x @ a  # eigh scales a so that a.T @ sxx @ a = I
    weight = np.abs(variates.T @ x).sum(1)
    correlation = np.sqrt(squared.clip(0, 1))
    assert cca(*pair) == same(correlation.mean())
    assert pwcca(*pair) == same(weight @ correlation / weight.sum())


def test_pwcca_of_one_feature_is_the_absolute_correlation():
    x, y = normal(50, 1, seed=0), normal(50, 1, seed=1)
    expected = abs(np.corrcoef(x[:, 0], y[:, 0])[0, 1])
    assert pwcca(x, y) == same(expected)
    assert cca(x, y) == same(expected)


def test_pwcca_weights_directions_by_what_they_account_for_in_x():
    """Two directions, worked out by hand: X's first column, 9 times larger, is kept by Y, the second is lost."""
    h = np.linalg.qr(np.c_[np.ones(100), normal(100, 3, seed=0)])[0][:, 1:]  # orthonormal, centred
    x, y = h[:, :2] * [9, 1], h[:, [0, 2]]
    assert cca(x, y) == same(1 / 2)
    assert pwcca(x, y) == same(9 / 10)
    assert pwcca(y, x) == same(1 / 2)


def test_svcca_counts_variance_and_not_singular_values():
    """Singular values 10, 1, 1: the first is 98% of the squares and 83% of the sum."""
    h = np.linalg.qr(np.c_[np.ones(100), normal(100, 5, seed=0)])[0][:, 1:]
    x, y = h[:, [0, 1, 2]] * [10, 1, 1], h[:, [0, 3, 4]] * [10, 1, 1]
    assert svcca(x, y, variance=0.95) == same(1)
    assert svcca(x, y, variance=0.985) == same(1 / 2)
    assert svcca(x, y, variance=1) == same(1 / 3)
    assert svcca(x, y, variance=1) == same(cca(x, y))


def inverse_root(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return vectors @ np.diag(values**-0.5) @ vectors.T


def test_the_compatible_pwcca_follows_the_description_of_the_repository(pair):
    """Covariances and their inverse roots, all N rows, no reduction."""
    for x, y in (pair, (pair[0][:, :5], pair[1])):
        cx, cy = x - x.mean(0), y - y.mean(0)
        u, correlation, _ = np.linalg.svd(inverse_root(cx.T @ cx) @ cx.T @ cy @ inverse_root(cy.T @ cy))
        directions = np.linalg.qr(cx @ u + x.mean(0))[0]
        weight = np.abs(directions.T @ x).sum(1)
        assert pwcca(x, y, weights="svcca_repo") == same(weight @ correlation / weight.sum())


def test_the_compatible_pwcca_differs_from_the_paper_unless_data_are_isotropic_and_centred(pair):
    x, y = pair[0][:, :5], pair[1]
    assert pwcca(x, y, weights="svcca_repo") != same(pwcca(x, y), abs=0.1)
    x = normal(5000, D, seed=0)
    y = x + normal(5000, D, seed=1)
    assert pwcca(x, y, weights="svcca_repo") == same(pwcca(x, y), abs=0.01)  # as far as chance is isotropic


def unbiased_hsic(k, l):  # noqa: E741
    """Song et al. 2012, equation 5, on N x N Gram matrices."""
    n = len(k)
    k, l = k - np.diag(np.diag(k)), l - np.diag(np.diag(l))  # noqa: E741
    total = (k * l).sum() + k.sum() * l.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * k.sum(0) @ l.sum(1)
    return total / (n * (n - 3))


def test_cka_in_feature_space_equals_cka_of_gram_matrices(pair):
    (x, y), centring = pair, np.eye(N) - 1 / N
    k, l = (centring @ z @ z.T @ centring for z in pair)  # noqa: E741
    assert linear_cka(x, y) == same((k * l).sum() / np.sqrt((k * k).sum() * (l * l).sum()))
    k, l = x @ x.T, y @ y.T  # noqa: E741
    expected = unbiased_hsic(k, l) / math.sqrt(unbiased_hsic(k, k) * unbiased_hsic(l, l))
    assert debiased_cka(x, y) == same(expected)


def test_debiased_cka_holds_no_matrix_of_all_pairs_of_tokens():
    x = torch.randn(200_000, 4, generator=torch.Generator().manual_seed(0))
    assert debiased_cka(x, x) == same(1)  # 320 GB for 200,000 x 200,000


def test_minibatch_cka_is_the_ratio_of_mean_hsics_over_consecutive_full_batches(pair):
    x, y = pair
    grams = [(x[i : i + 60] @ x[i : i + 60].T, y[i : i + 60] @ y[i : i + 60].T) for i in (0, 60, 120)]
    xy, xx, yy = (
        np.mean([unbiased_hsic(batch[a], batch[b]) for batch in grams]) for a, b in ((0, 1), (0, 0), (1, 1))
    )
    assert minibatch_cka(x, y, batch_size=60) == same(xy / math.sqrt(xx * yy))  # rows 180 to 199 are left out
    assert minibatch_cka(x, y, batch_size=N) == same(debiased_cka(x, y))
    order = np.random.default_rng(0).permutation(N)
    assert minibatch_cka(x[order], y[order], batch_size=60) != same(xy / math.sqrt(xx * yy), abs=1e-4)


def test_rbf_cka_equals_its_definition_and_widens_to_linear_cka(pair):
    kernels = []
    for z in pair:
        squared = ((z[:, None] - z[None]) ** 2).sum(2)
        kernels.append(np.exp(-squared / (2 * 0.8**2 * np.median(squared))))
    centring = np.eye(N) - 1 / N
    k, l = (centring @ kernel @ centring for kernel in kernels)  # noqa: E741
    assert rbf_cka(*pair, bandwidth=0.8) == same((k * l).sum() / np.sqrt((k * k).sum() * (l * l).sum()))
    assert rbf_cka(*pair, bandwidth=1e4) == same(linear_cka(*pair), abs=1e-6)  # terms of order 1e-8 remain
    assert rbf_cka(*pair) != same(linear_cka(*pair), abs=0.01)


def test_rsa_equals_spearmans_correlation_of_pearsons_correlations_ties_included(pair):
    x, y = pair[0].copy(), pair[1]
    x[1:40] = x[0]  # equal rows make tied similarities
    upper = np.triu_indices(N, 1)
    similarities = [np.corrcoef(z)[upper].round(12) for z in (x, y)]
    assert rsa(x, y) == same(scipy.stats.spearmanr(*similarities).statistic)


def test_procrustes_is_the_distance_left_by_the_best_rotation_and_a_metric(pair):
    x, y = (z - z.mean(0) for z in pair)
    x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
    best, _ = scipy.linalg.orthogonal_procrustes(x, y)
    assert procrustes(*pair) == same(np.linalg.norm(x @ best - y))
    for seed in range(20):
        a, b, c = (normal(30, width, seed=3 * seed + i) for i, width in enumerate((2, 5, 3)))
        assert procrustes(a, c) <= procrustes(a, b) + procrustes(b, c)


# Laws ------------------------------------------------------------------------------------------------

IGNORES = {
    # measure: which of the changes below leave it alone; every other one must not.
    "cca": "shift scale rotate_x rotate_y map_x map_y permute_features permute_tokens",
    "svcca": "shift scale rotate_x rotate_y permute_features permute_tokens",
    "pwcca": "shift scale rotate_y map_y permute_features permute_tokens",
    "pwcca_repo": "scale permute_tokens",
    "linear_cka": "shift scale rotate_x rotate_y permute_features permute_tokens",
    "debiased_cka": "shift scale rotate_x rotate_y permute_features permute_tokens",
    "minibatch_cka": "shift scale rotate_x rotate_y permute_features",
    "rbf_cka": "shift scale rotate_x rotate_y permute_features permute_tokens",
    "rsa": "scale permute_features permute_tokens",
    "procrustes": "shift scale rotate_x rotate_y permute_features permute_tokens",
}


CHANGES = {
    "shift": lambda x, y: (x + 5 * normal(D, seed=10), y - 3 * normal(D, seed=11)),
    "scale": lambda x, y: (7 * x, 0.01 * y),
    "rotate_x": lambda x, y: (x @ rotation(D, seed=12), y),
    "rotate_y": lambda x, y: (x, y @ rotation(D, seed=13)),
    "map_x": lambda x, y: (x @ normal(D, D, seed=14), y),
    "map_y": lambda x, y: (x, y @ normal(D, D, seed=15)),
    "permute_features": lambda x, y: (x[:, ::-1], y[:, np.random.default_rng(1).permutation(D)]),
    "permute_tokens": lambda x, y: (x[ORDER], y[ORDER]),
    "unpair_tokens": lambda x, y: (x, y[ORDER]),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", MEASURES)
def test_each_measure_ignores_what_it_says_and_nothing_else(name, change, pair):
    before, after = MEASURES[name](*pair), MEASURES[name](*CHANGES[change](*pair))
    if change in IGNORES[name].split():
        assert after == same(before, abs=1e-8)  # maps of condition 100 lose two digits
    else:
        assert after != same(before, abs=1e-4)  # far above rounding


@pytest.mark.parametrize("name", MEASURES)
def test_a_layer_is_like_itself_and_less_like_another(name, pair):
    x, y = pair
    if name == "procrustes":
        assert procrustes(x, x) == same(0, abs=1e-7)  # the root of rounding
        assert 0.1 < procrustes(x, y) < math.sqrt(2)
    else:
        assert MEASURES[name](x, x) == same(1)
        assert 0.1 < MEASURES[name](x, y) < 0.95


@pytest.mark.parametrize("name", MEASURES)
def test_measures_are_symmetric_but_for_pwcca(name, pair):
    x, y = pair
    if name.startswith("pwcca"):
        assert MEASURES[name](x, y) != same(MEASURES[name](y, x), abs=1e-3)
    else:
        assert MEASURES[name](x, y) == same(MEASURES[name](y, x))


@pytest.mark.parametrize("name", MEASURES)
def test_widths_may_differ_in_either_order(name, pair):
    x, y = pair[0][:, :3], pair[1]
    values = MEASURES[name](x, y), MEASURES[name](y, x)
    assert all(0.01 < abs(value) < math.sqrt(2) for value in values)  # RSA comes out negative
    if name != "pwcca":  # the compatible one weights by the narrower side in either order
        assert values[0] == same(values[1])


def test_pwcca_does_not_count_what_the_other_side_has_dropped(pair):
    """A map of X of rank 1 has one variate, which both sides have; what else X has is in CKA."""
    x, _ = pair
    y = x @ normal(D, 1, seed=3) @ normal(1, D, seed=4)
    assert pwcca(x, y) == same(1)
    assert pwcca(y, x) == same(1)
    assert debiased_cka(x, y) < 0.8


def test_a_linear_function_of_the_other_side_is_fully_readable_from_it(pair):
    x, _ = pair
    y = x @ normal(D, 3, seed=3)
    assert cca(x, y) == same(1)
    assert pwcca(y, x) == same(1)


@pytest.mark.parametrize("name", sorted(set(MEASURES) - {"rsa", "pwcca_repo"}))
def test_constant_features_change_nothing_however_little_the_others_vary(name, pair):
    x, y = pair[0][:, :4], pair[1]
    for magnitude in (1, 1e-13):
        wider = np.c_[magnitude * x, np.tile([0.1, 0.123, 0.3, 0.9], (N, 1))]  # their means come out rounded
        assert MEASURES[name](wider, y) == same(MEASURES[name](x, y))
        assert MEASURES[name](y, wider) == same(MEASURES[name](y, x))


@pytest.mark.parametrize("name", ["rsa", "pwcca_repo"])
def test_constant_features_count_where_means_count(name, pair):
    x, y = pair[0][:, :4], pair[1]
    wider = np.c_[x, np.tile([0.1, 3.0, -2.0, 0.9], (N, 1))]
    assert MEASURES[name](wider, y) != same(MEASURES[name](x, y), abs=1e-3)


@pytest.mark.parametrize("name", MEASURES)
def test_a_feature_held_twice_counts_twice_where_variance_counts(name, pair):
    x, y = pair
    for side, wider in (("x", (np.c_[x, x[:, -1:]], y)), ("y", (x, np.c_[y, y[:, -1:]]))):
        if name == "cca" or (name, side) == ("pwcca", "y"):
            assert MEASURES[name](*wider) == same(MEASURES[name](x, y))
        else:
            assert MEASURES[name](*wider) != same(MEASURES[name](x, y), abs=1e-5)  # far above rounding
    if name not in ("pwcca_repo", "minibatch_cka"):  # all features twice are the old ones in a larger scale
        assert MEASURES[name](np.c_[x, x], y) == same(MEASURES[name](x, y))


def test_rsa_ignores_the_mean_and_the_scale_of_each_token(pair):
    x, y = pair
    change_N1 = np.random.default_rng(3).uniform(0.5, 2, (N, 1))
    assert rsa(change_N1 * x + normal(N, 1, seed=4), y) == same(rsa(x, y))
    assert rsa(x + normal(N, D, seed=4), y) != same(rsa(x, y), abs=1e-3)


def test_rsa_ignores_rotations_that_keep_the_direction_in_which_all_features_are_equal(pair):
    x, y = pair
    frame = np.linalg.qr(np.c_[np.ones(D), normal(D, D - 1, seed=5)])[0]
    kept = frame @ scipy.linalg.block_diag(1, rotation(D - 1, seed=6)) @ frame.T
    assert rsa(x @ kept, y) == same(rsa(x, y))


def test_repeated_and_dependent_features_add_no_directions(pair):
    x, y = pair
    for wider in (np.c_[x, x], np.c_[x, x[:, :1] + x[:, 1:2]], np.c_[x, x[:, :2] * 1e-9]):
        assert cca(wider, y) == same(cca(x, y))
        assert cca(wider, wider) == same(1)
    low_rank = x[:, :2] @ normal(2, D, seed=5)
    assert cca(low_rank, y) == same(cca(x[:, :2], y))
    assert 0 < pwcca(low_rank, y, weights="svcca_repo") < 1


def test_directions_below_a_millionth_of_the_largest_are_noise_and_above_it_count(pair):
    x, y = normal(N, 3, seed=6), pair[1]
    h = np.linalg.qr(x - x.mean(0))[0]  # the singular values are the factors
    assert cca(h * [1, 1, 0.9e-6], y) == same(cca(h[:, :2], y), abs=1e-5)
    assert cca(h * [1, 1, 1.1e-6], y) == same(cca(h, y), abs=1e-8)  # float64 keeps ten of its digits
    assert cca(h, y) != same(cca(h[:, :2], y), abs=1e-3)


@pytest.mark.parametrize("name", MEASURES)
def test_neither_library_type_layout_nor_magnitude_matters(name, pair):
    x, y = (z.astype(np.float32) for z in pair)
    expected = MEASURES[name](x, y)
    assert type(expected) is float
    read_only, strided = x.copy(), np.repeat(y, 2, axis=0)[::2]
    read_only.flags.writeable = False
    assert MEASURES[name](read_only, strided) == expected
    assert MEASURES[name](torch.from_numpy(x).requires_grad_(), torch.from_numpy(y).double()) == expected
    wide = [z.astype(np.float64) for z in (x, y)]
    assert MEASURES[name](wide[0] * 2.0**500, wide[1] * 2.0**-500) == same(expected)


@pytest.mark.parametrize("name", [name for name in MEASURES if name != "rsa"])
def test_a_side_gives_what_its_matrix_gives_however_often_it_is_used(name, pair):
    measure, (x, y) = MEASURES[name], pair
    sides = Side.of(x), Side.of(y)
    for _ in range(2):
        assert measure(*sides) == measure(x, sides[1]) == measure(sides[0], y) == measure(x, y)


@pytest.mark.parametrize("name", MEASURES)
def test_arguments_stay_as_they_are(name, pair):
    x, y = torch.from_numpy(pair[0].copy()), torch.from_numpy(pair[1].copy())
    MEASURES[name](x, y)
    assert np.array_equal(x, pair[0])
    assert np.array_equal(y, pair[1])


@pytest.mark.parametrize("name", sorted(set(MEASURES) - {"rsa", "pwcca_repo"}))
def test_far_from_the_origin_little_is_lost(name, pair):
    x, y = pair
    # 1e6 costs float64 six of its digits, and the root in Procrustes half of the rest.
    assert MEASURES[name](x + 1e6, y - 1e6) == same(MEASURES[name](x, y), abs=1e-7)


def test_every_measure_of_the_module_is_tested_here():
    pairwise = {name for name in MEASURES if name != "pwcca_repo"}
    assert set(similarity.__all__) == pairwise | set(DIMENSIONS) | {"Moments", "Side"}
