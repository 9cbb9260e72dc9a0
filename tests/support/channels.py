"""Channels from token to symbol whose information is known, and states whose clusters are the symbols."""

import math

import numpy as np

V = 12
"""Token types."""


def generator(seed):
    return np.random.default_rng(seed)


def zipf(types):
    weight = 1 / np.arange(1, types + 1)
    return weight / weight.sum()


def entropy(share):
    return -(share[share > 0] * np.log(share[share > 0])).sum()


def information(joint):
    return entropy(joint.sum(0)) + entropy(joint.sum(1)) - entropy(joint.ravel())


def draw(joint, tokens, seed):
    """Token and symbol of each occurrence, from their joint distribution."""
    return np.divmod(generator(seed).choice(joint.size, tokens, p=joint.ravel()), joint.shape[1])


def noisy(types, right):
    """The symbol is that of the token with the chance `right`, and otherwise any."""
    return right * np.diag(zipf(types)) + (1 - right) * np.outer(zipf(types), np.full(types, 1 / types))


CHANNELS = {
    "one_to_one": np.diag(zipf(V)),
    "noisy": noisy(V, 0.8),
    "merging": np.diag(zipf(V)) @ np.eye(3)[np.arange(V) % 3],
    "independent": noisy(V, 0),
}
"""Joint distributions of token and symbol."""


def states_of(symbols, seed):
    """The centre of each symbol and a little noise."""
    centres = 10 * np.eye(symbols.max() + 1)
    return centres[symbols] + 0.5 * generator(seed).standard_normal((len(symbols), len(centres)))


def moody(sentences, length, seed):
    """Tokens and symbols of sentences that repeat themselves: three types each, and half of them much noise."""
    rng, shape = generator(seed), (sentences, length)
    types = rng.choice(V, (sentences, 3), p=zipf(V))
    tokens = np.take_along_axis(types, rng.integers(3, size=shape), axis=1)
    wrong = rng.random(shape) < rng.choice([0.1, 0.7], (sentences, 1))
    return tokens.ravel(), np.where(wrong, rng.integers(V, size=shape), tokens).ravel()


def standard_error_of_mean(values):
    return np.std(values, ddof=1) / math.sqrt(len(values))
