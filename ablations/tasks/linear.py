"""Linear models of frozen features: logistic and ridge regression, their code length, and a learned mix of
layers.

The penalty on the weights is chosen on a validation part, by the log probability of its labels or by its
squared error. With few examples both are more informative than accuracy.

The online code (Voita & Titov 2020, section 2.2) is the description length of labels given features. Sender
and receiver both have the features. Labels are sent in growing blocks. The first block is sent with equal
probability for all classes, and each next one with the probabilities of a probe that was trained on all
blocks before. A property that is easy to extract is learned from few examples, and its code is short.

The mix (Peters et al. 2018, equation 1) is a weighted mean of all layers. The weights (a softmax over
layers), a factor and a linear head are trained together. Only the weights are kept. For the probe itself the
head is fitted anew to the mixed states, standardised like those of a layer, to convergence and with the
penalty chosen as for a single layer, so that a mix and a layer differ in nothing else.

Letters: L + 1 layers, N examples, D features, K classes.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import log_expit, log_softmax
from sklearn.linear_model import LogisticRegression, Ridge
from torch import nn

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)
"""Candidates for standardised features: variances of the Gaussian prior on each weight, scikit-learn's C."""
PENALTIES = (0.1, 1.0, 10.0, 100.0)
"""Candidates for the penalty of ridge regression, scikit-learn's alpha."""
MOST_ITERATIONS = 5000
"""Largest number of iterations of a fit. A fit takes a hundred or so; one that does not converge warns."""

Features: TypeAlias = NDArray[np.floating] | csr_matrix
"""Features of examples, dense or sparse, shape ND."""
Labels = NDArray[np.str_]


class LabelledFeatures(NamedTuple):
    """Features of one part and their targets: classes or numbers, shape N."""

    x_ND: Features
    y_N: NDArray[np.str_] | NDArray[np.int64] | NDArray[np.float64]


class Classifier(NamedTuple):
    """A fitted classifier."""

    model: LogisticRegression
    strength: float

    def predict(self, x_ND: Features) -> Labels:
        """Return the most probable class of each example."""
        return np.asarray(self.model.predict(x_ND))

    def log_probabilities(self, x_ND: Features) -> NDArray[np.float64]:
        """Return the log probability of each class, shape NK.

        The method of scikit-learn is not used: for two classes in fp32, it rounds one of them to probability 0,
        so to -inf, if the probability is below 6e-8.
        """
        logits = self.model.decision_function(x_ND).astype(np.float64)  # N for two classes, else NK
        log_p_NK: NDArray[np.float64] = (
            log_softmax(logits, axis=1) if logits.ndim == 2 else log_expit(np.stack([-logits, logits], axis=1))
        )
        return log_p_NK


def classifier(
    train: LabelledFeatures, *, strength: float, weight_N: NDArray[np.float64] | None = None
) -> Classifier:
    """Fit multinomial logistic regression with an L2 penalty on all weights but the intercepts.

    Args:
        weight_N: how much each example counts; all count the same unless given.
    """
    model = LogisticRegression(C=strength, max_iter=MOST_ITERATIONS)
    return Classifier(model.fit(train.x_ND, train.y_N, sample_weight=weight_N), strength)


def best_classifier(
    train: LabelledFeatures, validation: LabelledFeatures, *, strengths: Sequence[float] = STRENGTHS
) -> Classifier:
    """Return the classifier with the strength that gives the labels of the validation part the highest
    probability.

    Labels that the training part lacks are ignored.
    """
    fitted = [classifier(train, strength=strength) for strength in strengths]
    return max(fitted, key=lambda each: _log_probability(each, validation))


def _log_probability(fitted: Classifier, part: LabelledFeatures) -> float:
    classes_K = fitted.model.classes_
    known_N = np.flatnonzero(np.isin(part.y_N, classes_K))
    log_p_NK = fitted.log_probabilities(part.x_ND[known_N]) if len(known_N) else np.zeros((0, 1))
    class_N = np.searchsorted(classes_K, part.y_N[known_N])
    return float(log_p_NK[np.arange(len(known_N)), class_N].sum())


def best_ridge(
    train: LabelledFeatures, validation: LabelledFeatures, *, penalties: Sequence[float] = PENALTIES
) -> Ridge:
    """Return the ridge regression with the penalty that gives the smallest squared error on the validation
    part."""
    fitted = [Ridge(alpha=penalty).fit(train.x_ND, train.y_N) for penalty in penalties]
    return min(fitted, key=lambda model: float(np.square(model.predict(validation.x_ND) - validation.y_N).sum()))


SHARES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Shares of the examples after which a block ends."""

Integers = NDArray[np.int64]

Learn = Callable[[int, int], NDArray[np.float64]]
"""Function that learns from the examples before the first number, and returns log probabilities of the
classes for the examples from the first number up to the second, shape NK."""


def block_ends(examples: int) -> list[int]:
    """Return the numbers of examples after which each block ends. Blocks that would be empty are left out."""
    return sorted({max(1, round(share * examples)) for share in SHARES})


def online_code(label_N: Integers, *, classes: int, learn: Learn) -> NDArray[np.float64]:
    """Return the cost of each label, in nats. The sum is the code length.

    Args:
        label_N: labels from 0, in the order in which they are sent, which should be random.
    """
    nats_N = np.full(len(label_N), np.log(classes))
    ends = block_ends(len(label_N))
    for begin, end in pairwise(ends):
        log_p_NK = learn(begin, end)
        nats_N[begin:end] = -log_p_NK[np.arange(end - begin), label_N[begin:end]]
    return nats_N


def linear_log_probabilities(
    seen_ND: NDArray[np.floating], label_N: Integers, next_ND: Features, *, classes: int, strength: float
) -> NDArray[np.float64]:
    """Return the log probabilities of logistic regression for the next examples, shape NK.

    It also learns from one extra example of each class, with all features 0. So it knows all classes, however
    few labels were sent. Features should be standardised.
    """
    # Two extra examples of half the weight: scikit-learn takes labels for numbers if there are hardly more
    # examples.
    once_KD = np.zeros((2 * classes, seen_ND.shape[1]), seen_ND.dtype)
    train = LabelledFeatures(
        np.concatenate([seen_ND, once_KD]), np.concatenate([label_N, *2 * [np.arange(classes)]])
    )
    weight_N = np.concatenate([np.ones(len(seen_ND)), np.full(2 * classes, 0.5)])
    return classifier(train, strength=strength, weight_N=weight_N).log_probabilities(next_ND)


def frequency_log_probabilities(label_N: Integers, count: int, *, classes: int) -> NDArray[np.float64]:
    """Return the log probabilities by the frequencies of the labels, each class counted once more, shape NK.
    It is what is learned without features."""
    counts_K = np.bincount(label_N, minlength=classes) + 1
    return np.tile(np.log(counts_K / counts_K.sum()), (count, 1))


STEPS = 300
BATCH = 256
LEARNING_RATE = 0.02
STRENGTH = 0.1
"""Variance of the Gaussian prior on the head's weights while the mix is learned; see `STRENGTHS`."""


def learned_mix(
    states_LND: NDArray[np.float32], label_N: NDArray[np.int64], *, classes: int, seed: int
) -> NDArray[np.float64]:
    """Return the weight of each layer, shape L. The weights sum to 1.

    Args:
        states_LND: standardised, so that no layer counts for more because its numbers are larger.
        label_N: labels from 0.
        seed: seed of the order of examples. Nothing else is random: all layers start with equal weights.
    """
    rng = np.random.default_rng(seed)
    layers, examples, width = states_LND.shape
    states, labels = torch.from_numpy(states_LND), torch.from_numpy(label_N)
    logit_L, factor = torch.zeros(layers, requires_grad=True), torch.ones((), requires_grad=True)
    head_DK = torch.zeros(width, classes, requires_grad=True)
    bias_K = torch.zeros(classes, requires_grad=True)
    parameters = [logit_L, factor, head_DK, bias_K]
    optimiser = torch.optim.Adam(parameters, lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, total_iters=STEPS)
    for _ in range(STEPS):
        chosen_B = torch.from_numpy(rng.choice(examples, min(BATCH, examples), replace=False))
        mixed_BD = factor * torch.einsum("l,lbd->bd", logit_L.softmax(0), states[:, chosen_B])
        loss = nn.functional.cross_entropy(mixed_BD @ head_DK + bias_K, labels[chosen_B])
        penalty = head_DK.square().sum() / (2 * STRENGTH * examples)
        gradients = torch.autograd.grad(loss + penalty, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimiser.step()
        schedule.step()
    weight_L: NDArray[np.float64] = logit_L.detach().double().softmax(0).numpy()
    return weight_L


def mixed(states_LND: NDArray[np.float32], weight_L: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the weighted mean of the layers, shape ND."""
    return np.tensordot(weight_L.astype(np.float32), states_LND, axes=1)
