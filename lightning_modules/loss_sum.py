"""A loss before it is divided: sums add up over devices and batches, means do not."""

from typing import NamedTuple

from torch import Tensor

from lightning_modules.cross_entropy import IGNORED


class LossSum(NamedTuple):
    """A loss and how often it was taken."""

    total: Tensor
    """Sum over predictions, nats."""
    predictions: Tensor
    """How many predictions were asked for, float64."""


def asked(label_N: Tensor) -> Tensor:
    """How many predictions are asked for, float64."""
    return (label_N != IGNORED).sum().double()
