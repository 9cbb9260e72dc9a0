"""The loss on text that training did not see: every sentence once, sums over counts, in float64."""

import torch

from lightning_modules.data.module import evaluation_batches
from lightning_modules.data.tokens import Split
from lightning_modules.objective import LossSum, Objective, sum_over_devices

TOKENS_AT_ONCE = 8192
"""Real source tokens of one forward pass of an evaluation."""


@torch.no_grad()
def evaluate(objective: Objective, split: Split, *, rank: int = 0, ranks: int = 1) -> LossSum:
    """Summed loss (nats) and number of predictions over a whole split, the same for any number of devices.

    The module is put in evaluation mode and back. Corruption is the frozen one of evaluation.
    """
    was_training = objective.training
    objective.eval()
    sums = torch.zeros(2, dtype=torch.float64, device=objective.device)
    for batch in evaluation_batches(objective, split, tokens_per_step=TOKENS_AT_ONCE, rank=rank, ranks=ranks):
        loss = objective.loss({name: tensor.to(objective.device) for name, tensor in batch.items()})
        sums += torch.stack([loss.total.double(), loss.predictions.double()])
    objective.train(was_training)
    return LossSum(*sum_over_devices(sums))
