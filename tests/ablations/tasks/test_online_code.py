"""The online code, where its length is known, and the linear models it is made of."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from ablations.tasks.linear import (
    LabelledFeatures,
    best_classifier,
    best_ridge,
    block_ends,
    classifier,
    frequency_log_probabilities,
    linear_log_probabilities,
    online_code,
)

N, D, K = 2000, 20, 3


def features(seed=0, count=N):
    return np.random.default_rng(seed).normal(size=(count, D))


def coded(x_ND, label_N, *, strength, classes=K):
    def learn(begin, end):
        return linear_log_probabilities(
            x_ND[:begin], label_N[:begin], x_ND[begin:end], classes=classes, strength=strength
        )

    return online_code(label_N, classes=classes, learn=learn)


def test_blocks_are_those_of_the_source():
    assert block_ends(10_000) == [10, 20, 40, 80, 160, 320, 625, 1250, 2500, 5000, 10_000]
    assert block_ends(100) == [1, 2, 3, 6, 12, 25, 50, 100]
    assert block_ends(1) == [1]


def test_the_length_is_that_of_the_first_block_by_a_uniform_code_and_of_the_others_by_what_was_learned():
    """By hand, with the probe that always says what it has seen."""
    label_N = np.array([0, 0, 1] * 400)
    asked = []

    def learn(begin, end):
        asked.append((begin, end))
        return np.tile(np.log([0.5, 0.3, 0.2]), (end - begin, 1))

    nats_N = online_code(label_N, classes=K, learn=learn)
    ends = block_ends(1200)
    assert asked == list(pairwise(ends))
    assert nats_N[: ends[0]] == pytest.approx([np.log(3)] * ends[0])
    later = label_N[ends[0] :]
    by_hand = ends[0] * np.log(3) - (later == 0).sum() * np.log(0.5) - (later == 1).sum() * np.log(0.3)
    assert nats_N.sum() == pytest.approx(by_hand)


def test_what_was_learned_is_learned_from_the_labels_before_a_block_alone():
    x_ND, label_N = features(), np.random.default_rng(1).integers(0, K, N)
    ends = block_ends(N)
    other_N = label_N.copy()
    other_N[ends[-2] :] = (label_N[ends[-2] :] + 1) % K
    first, second = (coded(x_ND, labels, strength=0.1) for labels in (label_N, other_N))
    assert (first[: ends[-2]] == second[: ends[-2]]).all()
    assert not np.isclose(first[ends[-2] :], second[ends[-2] :]).all()


def test_labels_that_have_nothing_to_do_with_the_features_are_not_compressed():
    rng = np.random.default_rng(2)
    x_ND, label_N = features(), rng.integers(0, K, N)
    nats_N = coded(x_ND, label_N, strength=1e-3)
    uniform = N * np.log(K)
    # No code is shorter than the labels' entropy but by luck; what the probe believes to see costs a little.
    assert nats_N.sum() > uniform - 4 * nats_N.std() * N**0.5
    assert nats_N.sum() < 1.05 * uniform


def test_labels_that_are_a_function_of_the_features_take_a_short_code():
    x_ND = features()
    label_N = (x_ND @ np.random.default_rng(3).normal(size=(D, K))).argmax(1)
    length, uniform = coded(x_ND, label_N, strength=1.0).sum(), N * np.log(K)
    assert length < uniform / 4
    shuffled_N = np.random.default_rng(4).permutation(label_N)
    assert coded(x_ND, shuffled_N, strength=1.0).sum() > 0.98 * uniform


def test_a_property_that_is_easier_to_extract_has_a_shorter_code():
    rng = np.random.default_rng(5)
    label_N = rng.integers(0, 2, N)
    lengths = []
    for signal in (3.0, 1.0, 0.3):
        x_ND = features(6)
        x_ND[:, 0] += signal * label_N
        lengths.append(coded(x_ND, label_N, strength=0.1, classes=2).sum())
    assert lengths == sorted(lengths)


def test_classes_that_were_not_yet_sent_are_possible_and_all_probabilities_sum_to_one():
    x_ND = features(count=60)
    log_p_NK = linear_log_probabilities(x_ND[:30], np.zeros(30, int), x_ND[30:], classes=25, strength=1.0)
    assert log_p_NK.shape == (30, 25)
    assert np.exp(log_p_NK).sum(1) == pytest.approx(np.ones(30))
    assert np.isfinite(log_p_NK).all()
    assert (log_p_NK[:, 0] > log_p_NK[:, 1:].max(1)).mean() > 0.9


def confident():
    """Labels that one feature with heavy tails gives nearly always, in single precision as states are. Some
    labels are wrong where the probe is sure."""
    rng = np.random.default_rng(12)
    x_ND = rng.standard_t(5, size=(N, D))
    label_N = (x_ND[:, 0] > 0).astype(int)
    far_N = np.argsort(-abs(x_ND[:, 0]))[:8]
    label_N[far_N] = 1 - label_N[far_N]
    return (x_ND / x_ND.std(0)).astype(np.float32), label_N


def test_a_label_that_the_probe_was_sure_of_costs_the_logit_whichever_class_comes_first():
    """Log odds of 21 nats are 0 for 1 - p in fp32."""
    x_ND = np.linspace(-1, 1, 200, dtype=np.float32)[:, None]
    label_N, far_ND = (x_ND[:, 0] > 0).astype(int), np.array([[3.0], [-3.0]], np.float32)
    log_p_NK = linear_log_probabilities(x_ND, label_N, far_ND, classes=2, strength=10.0)
    logit = log_p_NK[0, 1] - log_p_NK[0, 0]
    assert logit > 17
    assert log_p_NK == pytest.approx(np.array([[-logit, 0], [0, -logit]]), rel=0.01, abs=1e-6)  # a border near 0


def test_the_code_is_as_long_with_the_classes_exchanged():
    x_ND, label_N = confident()
    codes = [coded(x_ND, labels, strength=1.0, classes=2) for labels in (label_N, 1 - label_N)]
    assert np.isfinite(codes).all()
    assert codes[0].max() > 17
    assert codes[0].sum() == pytest.approx(codes[1].sum(), rel=1e-3)  # lbfgs stops at 1e-4, in fp32
    assert codes[0].sum() == pytest.approx(
        coded(x_ND.astype(float), label_N, strength=1.0, classes=2).sum(), rel=1e-3
    )


def test_frequencies_are_counts_and_one_more():
    found = frequency_log_probabilities(np.array([0, 0, 2]), 2, classes=4)
    assert np.exp(found) == pytest.approx(np.array([[3, 1, 2, 1]] * 2) / 7)


# Linear models ---------------------------------------------------------------------------------------


def planted(seed, count, noise):
    x_ND = features(seed, count)
    y_N = np.where(x_ND[:, 0] + noise * np.random.default_rng(seed + 1).normal(size=count) > 0, "yes", "no")
    return LabelledFeatures(x_ND, y_N)


def test_the_strength_with_the_most_probable_validation_labels_is_chosen():
    train, validation = planted(7, 60, 2.0), planted(9, 500, 2.0)
    chosen = best_classifier(train, validation)
    likely = {}
    for strength in (1e-3, 1e-2, 1e-1, 1.0):
        model = LogisticRegression(C=strength, max_iter=1000).fit(*train)
        p_N = model.predict_proba(validation.x_ND)[:, 1]
        likely[strength] = np.log(np.where(validation.y_N == "yes", p_N, 1 - p_N)).mean()
    assert chosen.strength == max(likely, key=likely.get)
    assert chosen.strength < 1.0  # few noisy examples
    assert best_classifier(planted(7, 2000, 0.0), planted(9, 500, 0.0)).strength == 1.0


def test_labels_that_only_the_validation_part_has_say_nothing():
    train, validation = planted(7, 60, 2.0), planted(9, 500, 2.0)
    more = LabelledFeatures(
        np.concatenate([validation.x_ND, np.ones((3, D))]), np.append(validation.y_N, ["maybe"] * 3)
    )
    assert best_classifier(train, more).strength == best_classifier(train, validation).strength
    nothing = LabelledFeatures(np.ones((3, D)), np.array(["maybe"] * 3))
    assert set(best_classifier(train, nothing).predict(train.x_ND)) <= {"yes", "no"}


def test_sparse_features_give_what_dense_ones_give():
    train, validation = planted(7, 300, 1.0), planted(9, 300, 1.0)
    dense = best_classifier(train, validation)
    sparse = best_classifier(*(LabelledFeatures(csr_matrix(part.x_ND), part.y_N) for part in (train, validation)))
    assert (sparse.strength, sparse.predict(validation.x_ND).tolist()) == (
        dense.strength,
        dense.predict(validation.x_ND).tolist(),
    )


def test_an_example_that_counts_twice_is_two_examples():
    train = planted(7, 100, 1.0)
    weight_N = np.ones(100)
    weight_N[:20] = 2
    twice = LabelledFeatures(np.concatenate([train.x_ND, train.x_ND[:20]]), np.append(train.y_N, train.y_N[:20]))
    found, expected = classifier(train, strength=0.1, weight_N=weight_N), classifier(twice, strength=0.1)
    np.testing.assert_allclose(found.model.coef_, expected.model.coef_, atol=1e-3)  # lbfgs stops at 1e-4
    assert not np.allclose(found.model.coef_, classifier(train, strength=0.1).model.coef_, atol=1e-3)


def test_ridge_regression_solves_the_normal_equations_of_the_best_penalty():
    rng = np.random.default_rng(8)
    x_ND = features(10, 200)
    weight_D = rng.normal(size=D)
    parts = [
        LabelledFeatures(x, x @ weight_D + 3 + 2 * rng.normal(size=len(x))) for x in (x_ND, features(11, 100))
    ]
    errors = {}
    for penalty in (0.1, 1.0, 10.0, 100.0):
        centred = x_ND - x_ND.mean(0)
        by_hand_D = np.linalg.solve(
            centred.T @ centred + penalty * np.eye(D), centred.T @ (parts[0].y_N - parts[0].y_N.mean())
        )
        said = (parts[1].x_ND - x_ND.mean(0)) @ by_hand_D + parts[0].y_N.mean()
        errors[penalty] = np.square(said - parts[1].y_N).sum(), by_hand_D
    best = best_ridge(*parts)
    assert best.alpha == min(errors, key=lambda penalty: errors[penalty][0])
    np.testing.assert_allclose(best.coef_, errors[best.alpha][1], rtol=1e-8)  # float64
