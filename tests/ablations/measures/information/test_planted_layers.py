"""Layers that forget and restore what we tell them to: the information about their tokens says so, and no more.

Letters: S sentences, T positions, N = S x T tokens, D width.
"""

import math
from itertools import pairwise

import numpy as np
import pytest

from ablations.measures.jackknife import standard_error
from tests.support.channels import generator, standard_error_of_mean, zipf
from tests.support.information import token_information

TYPES, WIDTH, CLUSTERS = 40, 16, 60
SENTENCES, LENGTH = 300, 10


class Planted:
    """A text of unrelated tokens, a vector for each type, and noise."""

    def __init__(self, seed, sentences=SENTENCES):
        self.rng = generator(seed)
        self.tokens_ST = self.rng.choice(TYPES, (sentences, LENGTH), p=zipf(TYPES))
        self.vectors = self.rng.standard_normal((TYPES, WIDTH))
        self.copied_STD = self.noise(0.1) + self.vectors[self.tokens_ST]

    def noise(self, size):
        return size * self.rng.standard_normal((*self.tokens_ST.shape, WIDTH))

    def forgetting(self, *sizes):
        """Layer 0, which copies the token, and layers that each add noise to the one before."""
        layers = [self.copied_STD]
        for size in sizes:
            layers.append(layers[-1] + self.noise(size))
        return layers

    def mixing(self, *shares):
        """Layer 0, and layers in which a share of each state gives way to its neighbours in the one before."""
        layers = [self.copied_STD]
        for share in shares:
            beside = (np.roll(layers[-1], 1, axis=1) + np.roll(layers[-1], -1, axis=1)) / 2
            layers.append((1 - share) * layers[-1] + share * beside + self.noise(0.3))
        return layers

    def restoring(self, layer_STD, *shares):
        """Layers that each add a share of the token's own vector to the one before."""
        layers = []
        for share in shares:
            layers.append((layers[-1] if layers else layer_STD) + share * self.vectors[self.tokens_ST])
        return layers

    def information(self, layers, *, shift=0, clusters=CLUSTERS):
        """Of each layer about its own token, or the one `shift` to its right, of tokens with two neighbours."""
        inner = slice(1, -1)
        labels_ST = np.roll(self.tokens_ST, -shift, axis=1)[:, inner]
        sentences_N = np.repeat(np.arange(len(labels_ST)), labels_ST.shape[1])
        return [
            token_information(
                layer_STD[:, inner].reshape(-1, WIDTH), labels_ST.ravel(), sentences_N, clusters=clusters, seed=0
            )
            for layer_STD in layers
        ]


def rise(before, after):
    """How far the cross-fitted information rises, and the standard error of that."""
    return after.cross_fitted - before.cross_fitted, math.hypot(
        standard_error(before.cross_fitted_left_out), standard_error(after.cross_fitted_left_out)
    )


def rises(before, after):
    difference, error = rise(before, after)
    return difference > 3 * error


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("by", ["noise", "context"])
def test_layers_that_forget_and_then_restore_give_a_u(by, seed):
    planted = Planted(seed)
    if by == "noise":
        layers = planted.forgetting(0.7, 0.8, 0.9)
        layers += planted.restoring(layers[-1], 0.7, 1.5)
    else:
        layers = planted.mixing(0.45, 0.5, 0.5)
        layers += planted.restoring(layers[-1], 0.2, 0.3)
    found = planted.information(layers)
    values = [layer.cross_fitted for layer in found]
    lowest = int(np.argmin(values))
    assert lowest == 3  # strictly inside
    assert all(rises(after, before) for before, after in pairwise(found[:4]))
    assert all(rises(before, after) for before, after in pairwise(found[3:]))
    depth = rise(found[lowest], found[-1])[0]
    assert depth > 0.5
    # The plug-in estimate has the same shape, flattened by its bias, which is largest at the bottom of the U.
    assert int(np.argmin([layer.plug_in for layer in found])) == 3
    assert found[-1].plug_in - found[lowest].plug_in < depth


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("by", ["noise", "context"])
def test_layers_that_only_forget_fall_all_the_way(by, seed):
    planted = Planted(seed)
    layers = planted.forgetting(0.7, 0.8, 0.9, 1) if by == "noise" else planted.mixing(0.45, 0.5, 0.5)
    found = planted.information(layers)
    assert all(rises(after, before) for before, after in pairwise(found))


@pytest.mark.parametrize("known", [0, 1])
def test_layers_of_equal_information_show_no_u(known):
    """Of nothing, and of as much in each: the layer of the minimum comes from the seed before.

    Where it comes from the same seed, "top less minimum" is never below 0 and noise looks like a recovery.
    """
    found = []
    for seed in range(12):
        planted = Planted(seed, sentences=150)
        layers = [known * planted.vectors[planted.tokens_ST] + planted.noise(1) for _ in range(4)]
        found.append(planted.information(layers, clusters=30))
    lowest = [int(np.argmin([layer.cross_fitted for layer in layers])) for layers in found]
    fair = [rise(layers[other], layers[-1]) for layers, other in zip(found, np.roll(lowest, 1), strict=True)]
    values = [value for value, _ in fair]
    assert (
        abs(np.mean(values)) < 3 * standard_error_of_mean(values) + 1e-4
    )  # what the last of PRIOR_WEIGHTS leaves
    assert np.mean([abs(value) <= 2 * error + 1e-4 for value, error in fair]) > 0.7  # 95%, of twelve
    unfair = [rise(layers[own], layers[-1])[0] for layers, own in zip(found, lowest, strict=True)]
    assert min(unfair) >= 0
    assert np.mean(unfair) > 2 * standard_error_of_mean(unfair)


@pytest.mark.parametrize(("side", "other"), [(-1, 1), (1, -1)])
def test_a_layer_that_mixes_in_a_neighbour_knows_that_one_and_not_the_other(side, other):
    planted = Planted(3)
    neighbour_STD = np.roll(planted.copied_STD, -side, axis=1)
    layers = [planted.copied_STD, planted.copied_STD + 0.8 * neighbour_STD]
    before, after = planted.information(layers, shift=side)
    assert rises(before, after)
    assert after.cross_fitted > 0.3
    assert abs(before.cross_fitted) < 0.02  # chance of 2,400 tokens
    before, after = planted.information(layers, shift=other)
    assert abs(after.cross_fitted) < 0.02
    assert abs(before.cross_fitted) < 0.02
    own_before, own_after = planted.information(layers)
    assert rises(own_after, own_before)  # what a state gives to its neighbour it lacks for itself
    assert own_after.n == after.n == SENTENCES * (LENGTH - 2)
