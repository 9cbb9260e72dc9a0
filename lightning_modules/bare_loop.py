"""The steps of a run without the Trainer: what a calibration times, and the yardstick for the Trainer's cost."""

from collections.abc import Callable
from typing import Any, cast

import torch

from lightning_modules.config import RunSettings
from lightning_modules.data.module import RunData
from lightning_modules.data.tokens import Tokens
from lightning_modules.objectives import build
from lightning_modules.precision import bf16_products


def bare_step(run: RunSettings, tokens: Tokens, *, device: str = "cpu") -> Callable[[], int]:
    """A function that does the run's next step each time and returns how many real source tokens it had.

    Batch, loss, gradients, clipping, update and schedule are those of a run; nothing is logged or saved.
    """
    objective = build(run, tokens).to(device).train()
    data = RunData(objective, tokens)
    configured = cast(dict[str, Any], objective.configure_optimizers())
    optimizer, schedule = configured["optimizer"], configured["lr_scheduler"]["scheduler"]
    mixed = run.training.precision == "bf16-mixed"
    steps = iter(range(len(data.plan)))

    def step() -> int:
        batch = data.batch(next(steps))
        tokens_in_it = int(batch["source_tokens"])
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
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
