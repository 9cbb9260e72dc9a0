"""Probes: what each kind can read, and from what it learns."""

import math

import numpy as np
import pytest
import torch

from ablations.measures.information.probes import (
    DOUBT,
    Examples,
    Linear,
    Whitening,
    fit_linear,
    fit_mlp,
    log_answers,
    log_frequencies,
    loss,
)


def examples(x_NK, label_N):
    return Examples(torch.as_tensor(x_NK, dtype=torch.float32), torch.as_tensor(label_N))


def nats(probe, scored, fitted):
    return loss(probe, scored, log_frequencies(fitted.label_N, len(probe.b_V)))


def gaussians(tokens, *, seed, apart=1.0, labels=4, features=3):
    """Gaussian classes of equal covariance, and the nats that the best classifier needs for each token."""
    means_VK = apart * np.random.default_rng(0).standard_normal((labels, features))
    rng = np.random.default_rng(seed)
    label_N = rng.integers(labels, size=tokens)
    x_NK = means_VK[label_N] + rng.standard_normal((tokens, features))
    log_VN = -0.5 * np.square(x_NK - means_VK[:, None]).sum(2)
    nats_N = np.logaddexp.reduce(log_VN) - log_VN[label_N, np.arange(tokens)]
    return examples(x_NK, label_N), nats_N.mean()


def xor(tokens, *, seed):
    x_NK = np.random.default_rng(seed).standard_normal((tokens, 4))
    return examples(x_NK, ((x_NK[:, 0] > 0) ^ (x_NK[:, 1] > 0)).astype(int))


@pytest.mark.parametrize("apart", [0.3, 1.0, 3.0])
def test_a_linear_probe_is_as_good_as_the_best_classifier_of_gaussians(apart):
    fitted, stopping, (scored, best) = (
        gaussians(6000, seed=1, apart=apart)[0],
        gaussians(1000, seed=2, apart=apart)[0],
        gaussians(20_000, seed=3, apart=apart),
    )
    linear = fit_linear(fitted, stopping, labels=4, seed=0)
    # (V - 1)(K + 1) parameters cost half a nat each over the 6,000 tokens: 0.001.
    assert nats(linear, scored, fitted) == pytest.approx(best, abs=0.005)
    mlp = fit_mlp(linear, fitted, stopping, seed=0)
    assert nats(mlp, scored, fitted) == pytest.approx(best, abs=0.01)


def test_only_the_hidden_layer_reads_an_exclusive_or():
    fitted, stopping, scored = xor(4000, seed=1), xor(500, seed=2), xor(4000, seed=3)
    linear = fit_linear(fitted, stopping, labels=2, seed=0)
    assert nats(linear, scored, fitted) == pytest.approx(math.log(2), abs=0.01)
    assert nats(fit_mlp(linear, fitted, stopping, seed=0), scored, fitted) < 0.1


def test_states_that_say_nothing_leave_the_frequencies():
    rng = np.random.default_rng(0)
    share_V = np.array([0.6, 0.3, 0.1])
    fitted, stopping, scored = (
        examples(rng.standard_normal((n, 5)), rng.choice(3, n, p=share_V)) for n in (3000, 500, 5000)
    )
    linear = fit_linear(fitted, stopping, labels=3, seed=0)
    entropy = -(share_V * np.log(share_V)).sum()
    assert nats(linear, scored, fitted) == pytest.approx(entropy, abs=0.02)  # 4 standard errors of 5,000 tokens


def test_a_label_that_was_never_fitted_has_a_chance():
    fitted, stopping = examples(np.eye(4), [0, 1, 0, 1]), examples(np.eye(4), [0, 1, 0, 1])
    probe = fit_linear(fitted, stopping, labels=3, seed=0)
    assert math.isfinite(nats(probe, examples(np.eye(4), [2, 2, 2, 2]), fitted))


def test_answers_are_probabilities_and_none_is_surer_than_its_doubt():
    fitted, sure = examples(np.eye(3), [0, 1, 1]), Linear(torch.zeros(3), 1000 * torch.eye(3))
    guess_V = log_frequencies(fitted.label_N, 3)
    log_BV = log_answers(sure, torch.eye(3), guess_V)
    assert log_BV.exp().sum(1).tolist() == pytest.approx([1, 1, 1])
    assert log_BV[0].exp().tolist() == pytest.approx(
        [1 - DOUBT + DOUBT * 1.5 / 4.5, DOUBT * 2.5 / 4.5, DOUBT * 0.5 / 4.5]
    )


def test_fitting_depends_on_the_seed_alone():
    fitted, stopping = xor(600, seed=1), xor(200, seed=2)
    linear = fit_linear(fitted, stopping, labels=2, seed=0)
    first = fit_mlp(linear, fitted, stopping, seed=0)
    torch.manual_seed(7)
    second, other = (fit_mlp(linear, fitted, stopping, seed=seed) for seed in (0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first.a_KH, other.a_KH)


def test_no_probe_is_worse_than_its_start_where_it_is_stopped():
    """Of states without information, so few that a probe could learn them by heart."""
    rng = np.random.default_rng(0)
    fitted = examples(rng.standard_normal((60, 40)), rng.integers(10, size=60))
    stopping = examples(rng.standard_normal((200, 40)), rng.integers(10, size=200))
    linear = fit_linear(fitted, stopping, labels=10, seed=0)
    count_V = fitted.label_N.bincount(minlength=10) + 0.5
    unaware = Linear((count_V / count_V.sum()).log(), torch.zeros(40, 10))
    assert nats(linear, stopping, fitted) <= nats(unaware, stopping, fitted)
    assert nats(fit_mlp(linear, fitted, stopping, seed=0), stopping, fitted) <= nats(linear, stopping, fitted)


def test_whitened_states_have_the_identity_as_covariance():
    rng = np.random.default_rng(0)
    states_ND = torch.from_numpy(
        (rng.standard_normal((500, 6)) @ np.diag([1e3, 10, 1, 0.1, 1e-5, 0]) + [50, 50, 50, 50, 0, 50]).astype(
            np.float32
        )
    )
    x_NK = Whitening.of(states_ND)(states_ND)
    assert x_NK.shape == (500, 4)  # one direction is constant, and one beneath the rounding of the largest
    np.testing.assert_allclose(x_NK.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(np.cov(x_NK.numpy().T, bias=True), np.eye(4), atol=1e-3)


def test_equal_states_have_no_features():
    assert Whitening.of(torch.full((20, 3), 7.0))(torch.full((20, 3), 7.0)).shape == (20, 0)
