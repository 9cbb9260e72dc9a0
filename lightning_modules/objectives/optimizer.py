"""Optimisers, the weights that they decay, and the learning rate at each step.

The optimisers are torch's, as `training.optimizer` says. The learning rate is its peak times a factor from 0
to 1. During the warm-up the factor rises to 1 in equal steps. Steps are counted from 0.
"""

import math
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import nn

from lightning_modules.config import TrainingSettings
from lightning_modules.config.training import SGD, Muon
from lightning_modules.model.encoder import DecoderBlock, EncoderBlock
from lightning_modules.model.numerics import bf16_products

DECAY_SHARE = 0.1
"""Share of all steps over which `wsd` decays. Hu et al. 2024, section 4, find that a tenth is enough."""


def build_optimizer(module: nn.Module, training: TrainingSettings) -> torch.optim.Optimizer:
    """Return the optimiser of all parameters of a module.

    Weight decay is for matrices that are not embeddings. Muon trains the matrices in the blocks of encoder,
    decoder and generator. AdamW trains the rest: embeddings, heads, norms and biases. Other code gives Muon
    query, key and value as separate matrices. Here a matrix that holds several maps side by side is one
    parameter, because torch's Muon takes whole parameters.
    """
    blocks = [block for block in module.modules() if isinstance(block, EncoderBlock | DecoderBlock)]
    inside = set(chain.from_iterable(block.parameters() for block in blocks))
    tables = {table.weight for table in module.modules() if isinstance(table, nn.Embedding)}
    matrices: list[nn.Parameter] = []
    hidden: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for parameter in module.parameters():
        if parameter.ndim < 2 or parameter in tables:
            rest.append(parameter)
        elif parameter in inside and isinstance(training.optimizer, Muon):
            hidden.append(parameter)
        else:
            matrices.append(parameter)
    groups = [{"params": matrices, "weight_decay": training.weight_decay}, {"params": rest, "weight_decay": 0.0}]
    rate, chosen = training.learning_rate, training.optimizer
    if isinstance(chosen, SGD):
        return torch.optim.SGD(groups, lr=rate, momentum=chosen.momentum, nesterov=chosen.nesterov, fused=True)
    betas = (training.adam_beta1, training.adam_beta2)
    adamw = torch.optim.AdamW(groups, lr=rate, betas=betas, eps=training.adam_epsilon, fused=True)
    if not isinstance(chosen, Muon):
        return adamw
    settings = chosen.model_dump(exclude={"kind"})  # these have the names of torch's arguments
    return JoinedOptimizers(
        torch.optim.Muon(hidden, lr=rate, weight_decay=training.weight_decay, **settings), adamw
    )


class JoinedOptimizers(torch.optim.Optimizer):
    """Two optimisers of different parameters that step together, with one list of groups and one state."""

    def __init__(self, first: torch.optim.Optimizer, second: torch.optim.Optimizer) -> None:
        self.first, self.second, self.first_groups = first, second, len(first.param_groups)
        super().__init__([*first.param_groups, *second.param_groups], defaults={})
        self._share()

    def _share(self) -> None:
        """Let both optimisers use the groups and the state of this one, which Lightning and the schedule know."""
        self.first.param_groups = self.param_groups[: self.first_groups]
        self.second.param_groups = self.param_groups[self.first_groups :]
        self.first.state = self.second.state = self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take a step of Muon and of AdamW. Muon computes in bf16, on a CPU without bf16 products in fp32."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with bf16_products(self.param_groups[0]["params"][0].device.type):
            self.first.step()
        self.second.step()
        return loss


def learning_rate_factor(step: int, training: TrainingSettings) -> float:
    """Return the factor on `training.learning_rate` at a step, as `training.schedule` says.

    After the warm-up `linear` falls in equal steps, `cosine` like half a cosine wave (Loshchilov and Hutter 2017,
    equation 5, without restarts), and `inverse_sqrt` with the inverse square root of the number of the step.
    `constant` stays 1. `wsd` stays 1 and falls in equal steps over the last `DECAY_SHARE` of all steps, or over
    those that the warm-up leaves if they are fewer. Hu et al. 2024, section 4, leave the form of this decay open
    and take an exponential one; this is the linear form of Hägele et al. 2024. After the last step `linear`,
    `cosine` and `wsd` are 0.
    """
    warmup, steps = training.warmup_steps, training.max_steps
    if step < warmup:
        return (step + 1) / warmup
    match training.schedule:
        case "linear":
            return _falling(step, steps, over=steps - warmup)
        case "inverse_sqrt":
            return (max(1, warmup) / (step + 1)) ** 0.5
        case "cosine":
            return (1 - math.cos(math.pi * _falling(step, steps, over=steps - warmup))) / 2
        case "constant":
            return 1.0
        case "wsd":
            decay = min(max(1, round(DECAY_SHARE * steps)), steps - warmup)
            return 1.0 if step < steps - decay else _falling(step, steps, over=decay)


def _falling(step: int, steps: int, *, over: int) -> float:
    """Return a factor that falls from 1 in equal steps over the last steps, and is 0 after the last one."""
    return max(0.0, (steps - step) / max(1, over))
