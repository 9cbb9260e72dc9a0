"""Runs that were never trained and look as if: weights far from their initial values, in checkpoints."""

from typing import Any

import torch

from lightning_modules.objectives import build
from lightning_modules.training.checkpoint import AtomicCheckpoints
from lightning_modules.training.run_directory import RunDirectory

KEPT, LAST = 8, 12


def draw(directory: RunDirectory, tokens: Any, *, done: bool = True) -> Any:
    """Write checkpoints of step 8 and of the last step, 12, with the same weights; returns the module."""
    objective = build(directory.settings(), tokens).eval().requires_grad_(False)
    rng = torch.Generator().manual_seed(3)
    for parameter in objective.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=rng), alpha=0.3)
    write(directory, objective)
    directory.write_state("done" if done else "interrupted", step=LAST if done else KEPT, saved_step=KEPT)
    return objective


def write(directory: RunDirectory, objective: Any) -> None:
    """Write the module's weights as both checkpoints."""
    directory.checkpoints.mkdir(exist_ok=True)
    for path, step in ((directory.checkpoints / f"step={KEPT:07d}.ckpt", KEPT), (directory.last_checkpoint, LAST)):
        AtomicCheckpoints().save_checkpoint({"state_dict": objective.state_dict(), "global_step": step}, path)
