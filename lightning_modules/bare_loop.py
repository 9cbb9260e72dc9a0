"""The steps of a run without the Trainer: what a calibration times, and the yardstick for the Trainer's cost."""

from collections.abc import Callable
from typing import Any, cast

import torch

from lightning_modules.compilation import compile_blocks
from lightning_modules.config import RunSettings
from lightning_modules.data.module import GPU_WORKERS, RunData
from lightning_modules.data.tokens import Tokens
from lightning_modules.objectives import build
from lightning_modules.precision import bf16_products


def bare_step(run: RunSettings, tokens: Tokens, *, device: str = "cpu") -> Callable[[], int]:
    """A function that does the run's next step each time and returns how many real source tokens it had.

    Batch, loss, gradients, clipping, update and schedule are those of a run; nothing is logged or saved. On a GPU
    other processes make the batches, as in a run, and a step has only begun when it returns.
    """
    objective = build(run, tokens).to(device).train()
    compile_blocks(objective, device)
    data = RunData(objective, tokens, workers=0 if device == "cpu" else GPU_WORKERS)
    configured = cast(dict[str, Any], objective.configure_optimizers())
    optimizer, schedule = configured["optimizer"], configured["lr_scheduler"]["scheduler"]
    mixed = run.training.precision == "bf16-mixed"
    batches = iter(data.loader(lambda: 0))

    def step() -> int:
        batch = next(batches)
        tokens_in_it = int(batch["source_tokens"])
        batch = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        with bf16_products(device, wanted=mixed):
            with torch.autocast(device, dtype=torch.bfloat16, enabled=mixed):
                loss = objective.training_step(batch, 0)["loss"]
            loss.backward()
        objective.configure_gradient_clipping(optimizer)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        return tokens_in_it

    return step
