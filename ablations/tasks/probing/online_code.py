"""Description length of labels given features, by the online code (Voita & Titov 2020, section 2.2).

Sender and receiver both have the features. Labels are sent in growing blocks: the first with equal probability
for all classes, each next one with the probabilities of a probe that was trained on all before. A property that is
easy to extract is learned from few examples, and its code is short.

Letters: N examples, K classes.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ablations.tasks.linear import Features, Part, classifier

SHARES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Shares of the examples after which a block ends."""

Integers = NDArray[np.int64]

Learn = Callable[[int, int], NDArray[np.float64]]
"""Log-probabilities of the classes for the examples from the first number up to the second, shape NK, as learned
from the examples before the first."""


def block_ends(examples: int) -> list[int]:
    """Return the numbers of examples after which each block ends. Blocks of few examples that would be empty are
    left out."""
    return sorted({max(1, round(share * examples)) for share in SHARES})


def online_code(label_N: Integers, *, classes: int, learn: Learn) -> NDArray[np.float64]:
    """Return the cost of each label, in nats; the code length is their sum.

    Args:
        label_N: from 0, in the order in which they are sent, which should be random.
        learn: the probe.
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
    """Return the log probabilities of logistic regression, which has seen each class once more, with all features
    0.

    The extra examples make it know all classes, however few labels were sent; features should be standardised.
    """
    # Twice with half the weight, as scikit-learn takes labels for numbers where there are hardly more examples.
    once_KD = np.zeros((2 * classes, seen_ND.shape[1]), seen_ND.dtype)
    train = Part(np.concatenate([seen_ND, once_KD]), np.concatenate([label_N, *2 * [np.arange(classes)]]))
    weight_N = np.concatenate([np.ones(len(seen_ND)), np.full(2 * classes, 0.5)])
    model = classifier(train, strength=strength, weight_N=weight_N).model
    log_p_NK: NDArray[np.float64] = model.predict_log_proba(next_ND)
    return log_p_NK


def frequency_log_probabilities(label_N: Integers, count: int, *, classes: int) -> NDArray[np.float64]:
    """Return the log probabilities of the labels' frequencies, each class seen once more: what is learned without
    features."""
    counts_K = np.bincount(label_N, minlength=classes) + 1
    return np.tile(np.log(counts_K / counts_K.sum()), (count, 1))
