"""Probes that read a label from a state: linear, and with one hidden layer.

A probe is fitted on some tokens. Fitting stops when it predicts other tokens best. States are whitened first,
so that a probe reads a label as well from directions of little variance as from those of much variance.

Shapes: N tokens, B of them at once, D features of a state, K whitened features, V labels, H hidden units.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, embedding_bag, nll_loss, relu

ROUNDING = 1e-13
"""Share of the largest variance below which a direction is rounding of float32 and is left out: 7 times the square
of its precision. Models with a few very large values, such as GPT-2 at a first token, need it this small."""

HIDDEN_UNITS = 128
"""Number of units of the hidden layer."""

RIDGE = 0.01
"""Variance within labels that discriminant analysis adds to each direction. The variance of all tokens is 1."""

SCALES = (0.0, 0.1, 0.25, 0.5, 1.0)
"""Factors on the weights of discriminant analysis from which a linear probe may start."""

DOUBT = 1e-3
"""Share of the label frequencies in a probe's answer. A probe is too sure of its answer for tokens that are
unlike all tokens that it was fitted on. Without this share, a few such tokens, wrong by 10,000 nats each,
would decide the number."""

BATCH = 512
"""Number of tokens of a training step."""

LEARNING_RATE = 0.08
"""Learning rate of Adam, to be divided by the root of the number of features. A step then moves logits about
equally at any width."""

AVERAGED = 0.98
"""Weight of the past in the running mean of the weights over steps. The mean is the probe."""

PASSES = 60
"""Largest number of passes over the tokens."""

PATIENCE = 2
"""Number of passes without progress after which fitting stops."""

HIDDEN_STEPS = 100
"""Smallest number of steps without progress after which fitting stops if there are hidden units. They begin with
no weight, so the first steps of a task that is not linear lead nowhere. Few tokens make few steps in a pass."""

HIDDEN_ERRORS = 2.0
"""Number of standard errors by which hidden units must improve on the linear probe to be kept. Without this rule,
more passes would be more chances to choose noise."""

PROGRESS = 5e-4
"""Decrease of the loss, in nats a token, that counts as progress."""


class Examples(NamedTuple):
    """Features and labels of tokens."""

    x_NK: Tensor
    label_N: Tensor


class Whitening(NamedTuple):
    """Map of states to features with mean 0, variance 1 and no correlation."""

    mean_D: Tensor
    map_DK: Tensor

    @classmethod
    def of(cls, states_ND: Tensor) -> "Whitening":
        """Return the map that whitens these states. Directions in which they do not vary are left out."""
        mean_D = states_ND.double().mean(0)
        apart_ND = states_ND.double() - mean_D
        variance_D, axes_DD = torch.linalg.eigh(apart_ND.T @ apart_ND / len(states_ND))
        smallest = max(ROUNDING * variance_D[-1].item(), torch.finfo(torch.float64).tiny)
        kept_D = variance_D > smallest
        return cls(mean_D, axes_DD[:, kept_D] / variance_D[kept_D].sqrt())

    def __call__(self, states_ND: Tensor) -> Tensor:
        """Return the features of states, N x K, in float32."""
        return ((states_ND.double() - self.mean_D) @ self.map_DK).float()


class Linear(NamedTuple):
    """Linear probe: softmax of b + x W."""

    b_V: Tensor
    w_KV: Tensor

    def logits(self, x_BK: Tensor) -> Tensor:
        """Return the logits of all labels, B x V."""
        return torch.addmm(self.b_V, x_BK, self.w_KV)


class Mlp(NamedTuple):
    """Probe with a hidden layer beside the linear map: softmax of b + x W + relu(a + x A) C."""

    b_V: Tensor
    w_KV: Tensor
    a_H: Tensor
    a_KH: Tensor
    c_HV: Tensor

    def logits(self, x_BK: Tensor) -> Tensor:
        """Return the logits of all labels, B x V."""
        hidden_BH = relu(torch.addmm(self.a_H, x_BK, self.a_KH))
        return torch.addmm(torch.addmm(self.b_V, x_BK, self.w_KV), hidden_BH, self.c_HV)


Probe = Linear | Mlp


def log_answers(probe: Probe, x_BK: Tensor, guess_V: Tensor) -> Tensor:
    """Return the log probabilities of all labels, B x V, in float64: the probe's answer mixed with label
    frequencies (`DOUBT`).

    Args:
        guess_V: log of the frequencies of the labels that the probe was fitted on.
    """
    sure_BV = probe.logits(x_BK).double().log_softmax(1)
    return torch.logaddexp(sure_BV + math.log1p(-DOUBT), guess_V.double() + math.log(DOUBT))


def losses(probe: Probe, examples: Examples, guess_V: Tensor) -> Tensor:
    """Return the cross-entropy of a probe's answer for each token, N, in nats; `guess_V` as in `log_answers`."""
    return nll_loss(log_answers(probe, examples.x_NK, guess_V), examples.label_N, reduction="none")


def loss(probe: Probe, examples: Examples, guess_V: Tensor) -> float:
    """Return the mean of `losses`, in nats a token."""
    return losses(probe, examples, guess_V).mean().item()


def fit_linear(fitted: Examples, stopping: Examples, *, labels: int, seed: int) -> Linear:
    """Return a linear probe, fitted on some tokens and stopped by others.

    Fitting starts from linear discriminant analysis, the best classifier of Gaussians of equal covariance.
    Its weights are multiplied by the one of `SCALES` that predicts the stopping tokens best. At scale 0 the
    probe only knows the frequencies of the labels.

    Args:
        labels: number of labels, which are 0 to `labels` - 1.
        seed: seed of the order of the tokens.
    """
    guess_V = log_frequencies(fitted.label_N, labels)
    b_V, w_KV = _discriminant(fitted, labels)
    starts = [Linear(guess_V + scale * b_V, scale * w_KV) for scale in SCALES]
    start = min(starts, key=lambda probe: loss(probe, stopping, guess_V))
    return Linear(*_trained(start, fitted, stopping, seed=seed))


def fit_mlp(linear: Linear, fitted: Examples, stopping: Examples, *, seed: int) -> Mlp:
    """Return a probe with a hidden layer, fitted on some tokens and stopped by others.

    It starts as the linear probe, with random hidden units that have no weight yet. It stays the linear probe
    unless training improves it on the stopping tokens by more than their noise (`HIDDEN_ERRORS`). So what it
    reads beyond the linear probe is not linear.
    """
    features, labels = linear.w_KV.shape
    rng = torch.Generator().manual_seed(seed)
    a_KH = (torch.randn(features, HIDDEN_UNITS, generator=rng) / max(1, features) ** 0.5).to(linear.w_KV.device)
    start = Mlp(*linear, a_KH.new_zeros(HIDDEN_UNITS), a_KH, a_KH.new_zeros(HIDDEN_UNITS, labels))
    trained = Mlp(*_trained(start, fitted, stopping, seed=seed, steps=HIDDEN_STEPS))
    guess_V = log_frequencies(fitted.label_N, labels)
    gain_N = losses(start, stopping, guess_V) - losses(trained, stopping, guess_V)
    return trained if gain_N.mean() > HIDDEN_ERRORS * gain_N.std(correction=0) / len(gain_N) ** 0.5 else start


def log_frequencies(label_N: Tensor, labels: int) -> Tensor:
    """Return the log of the share of each label, after half an occurrence is added to each count."""
    count_V = label_N.bincount(minlength=labels) + 0.5
    return (count_V / count_V.sum()).log()


def _discriminant(fitted: Examples, labels: int) -> tuple[Tensor, Tensor]:
    """Return the bias, without the log frequencies, and the weights of linear discriminant analysis.

    Means of labels are shrunk toward 0 in each direction (empirical Bayes), because a rare label's mean is
    mostly noise. The shrinkage depends on how far the means vary in the direction and how often the label
    occurs.
    """
    x_NK, label_N = fitted.x_NK.double(), fitted.label_N
    count_V = label_N.bincount(minlength=labels)
    # On a GPU atomic additions would make sums depend on their order. Sums over bags of rows need none.
    order_N, start_V = label_N.argsort(stable=True), count_V.cumsum(0) - count_V
    mean_VK = embedding_bag(order_N, x_NK, start_V, mode="sum") / count_V.clamp(min=1)[:, None]
    apart_NK = x_NK - mean_VK[label_N]
    seen = int((count_V > 0).sum())
    variance_K, axes_KK = torch.linalg.eigh(apart_NK.T @ apart_NK / max(1, len(x_NK) - seen))
    map_KK = axes_KK / (variance_K.clamp(min=0) + RIDGE).sqrt()  # covariance within labels becomes the identity
    mean_VK = mean_VK @ map_KK
    between_K = (count_V.double() @ mean_VK.square() - seen).clamp(min=0) / len(x_NK)
    mean_VK = mean_VK * (between_K / (between_K + 1 / count_V.clamp(min=0.5)[:, None]))
    return -mean_VK.square().sum(1).float() / 2, (map_KK @ mean_VK.T).float()


def _trained(start: Probe, fitted: Examples, stopping: Examples, *, seed: int, steps: int = 0) -> list[Tensor]:
    """Return the weights after the last pass of Adam that made progress on `stopping`; those of `start` if none
    did.

    The weights are running means over steps, so that the learning rate need not fall.

    Args:
        steps: smallest number of steps without progress after which training stops.
    """
    guess_V = log_frequencies(fitted.label_N, len(start.b_V))
    best, least = list(start), loss(start, stopping, guess_V)
    weights = [weight.clone() for weight in start]
    mean = [weight.clone() for weight in start]
    for weight in weights:
        weight.requires_grad_()
    probe = type(start)(*weights)
    rate = LEARNING_RATE / max(1, fitted.x_NK.shape[1]) ** 0.5
    optimiser = torch.optim.Adam(weights, lr=rate, betas=(0.9, 0.98), fused=True)
    rng = torch.Generator().manual_seed(seed)
    waited = step = 0
    patience = max(PATIENCE, math.ceil(steps / math.ceil(len(fitted.label_N) / BATCH)))
    for _ in range(PASSES):
        order_N = torch.randperm(len(fitted.label_N), generator=rng).to(fitted.label_N.device)
        for chosen_B in order_N.split(BATCH):
            optimiser.zero_grad()
            cross_entropy(probe.logits(fitted.x_NK[chosen_B]), fitted.label_N[chosen_B]).backward()
            optimiser.step()
            step += 1
            with torch.no_grad():
                for past, weight in zip(mean, weights, strict=True):
                    past.lerp_(weight, 1 - min(AVERAGED, step / (step + 10)))
        reached = loss(type(start)(*mean), stopping, guess_V)
        waited = 0 if reached < least - PROGRESS else waited + 1
        if not waited:
            best, least = [weight.clone() for weight in mean], reached
        elif waited == patience:
            break
    return best
