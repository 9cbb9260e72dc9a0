"""Weighted mean of all layers, with weights learned for a task (Peters et al. 2018, equation 1).

The weights (a softmax over layers), a factor and a linear head are trained together. What is kept is the weights:
for the probe itself the head is fitted anew to the mixed states, to convergence and with the penalty chosen as
for a single layer, so that a mix and a layer differ in nothing else.

Letters: L + 1 layers, N examples, D width.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

STEPS = 300
BATCH = 256
LEARNING_RATE = 0.02
STRENGTH = 0.1
"""Variance of the Gaussian prior on the head's weights while the mix is learned; see `linear.STRENGTHS`."""


def learned_mix(
    states_LND: NDArray[np.float32], label_N: NDArray[np.int64], *, classes: int, seed: int
) -> NDArray[np.float64]:
    """Return the weight of each layer, shape L; they sum to 1.

    Args:
        states_LND: standardised, so that no layer counts for more because its numbers are larger.
        label_N: from 0.
        seed: of the order of examples; all else begins at 0, that is, with equal weights.
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
