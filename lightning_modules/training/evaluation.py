"""The loss on text that training did not see: every sentence once, sums over counts, in float64."""

from collections.abc import Callable

import torch

from lightning_modules.data.sequences import Sequences
from lightning_modules.data.token_store import Split
from lightning_modules.objectives.objective import Batch, LossSum, Objective, sum_over_devices
from lightning_modules.training.data_module import evaluation_batches

TOKENS_AT_ONCE = 8192
"""Real source tokens of one forward pass of an evaluation."""


def evaluate(objective: Objective, split: Split, *, rank: int = 0, ranks: int = 1) -> LossSum:
    """Return summed loss (nats) and number of predictions over a whole split; see `evaluate_parts`."""
    return evaluate_parts(objective, split, rank=rank, ranks=ranks)["loss"]


@torch.no_grad()
def evaluate_parts(
    objective: Objective,
    split: Split,
    *,
    rank: int = 0,
    ranks: int = 1,
    sequences: Sequences | None = None,
    change: Callable[[Batch], Batch] = lambda batch: batch,
) -> dict[str, LossSum]:
    """Return each part of the loss, summed (nats), and its number of predictions, over a whole split; the same for
    any number of devices.

    The module is put in evaluation mode and back. Corruption is the frozen one of evaluation. Text is read
    sentence by sentence, whatever the training's input format, unless `sequences` are given.
    """
    was_training = objective.training
    objective.eval()
    sums = torch.zeros(len(objective.parts), 2, dtype=torch.float64, device=objective.device)
    batches = evaluation_batches(
        objective, split, tokens_per_step=TOKENS_AT_ONCE, rank=rank, ranks=ranks, sequences=sequences
    )
    for batch in map(change, batches):
        losses = objective.losses({name: tensor.to(objective.device) for name, tensor in batch.items()})
        sums += torch.stack([torch.stack([x.double() for x in losses[part]]) for part in objective.parts])
    objective.train(was_training)
    return {name: LossSum(*part) for name, part in zip(objective.parts, sum_over_devices(sums), strict=True)}
