"""Best of this machine: its fastest precision, in which our side and the peers' best loop compute, and a lower
bound for the time of a training step."""

import functools
import time
from typing import Any, Literal

import torch

from lightning_modules.config import RunSettings, operations_per_token, parameters
from lightning_modules.model.numerics import cpu_multiplies_bf16, matrix_rate, wait

MIXED = cpu_multiplies_bf16()
"""Whether this processor multiplies in bf16; then autocast uses bf16, otherwise everything is fp32."""
FASTER: Literal["bf16-mixed", "32-true"] = "bf16-mixed" if MIXED else "32-true"
TYPE_OF_PRODUCTS = torch.bfloat16 if MIXED else torch.float32
UPDATE_BYTES = 7 * 4
"""Bytes that AdamW moves for each weight in fp32: it reads the weight, its gradient and two moments, and
writes all but the gradient."""
COPIED, TRIES = 2**26, 9
CPU = torch.device("cpu")


def floor(run: RunSettings, device: torch.device = CPU, dtype: torch.dtype = TYPE_OF_PRODUCTS) -> dict[str, Any]:
    """Return useful operations of a step, bytes of its update, and the least seconds for both at the device's
    best rates.

    The seconds are a sum, as the update waits for the norm of all gradients. Memory traffic between the
    products is not counted, because a better program could keep it in the cache.
    """
    operations = operations_per_token(run) * run.training.tokens_per_step
    moved = float(UPDATE_BYTES * parameters(run))
    products = operations / matrix_rate(device, dtype)
    return {"operations": operations, "bytes": moved, "seconds": products + moved / copy_rate(device)}


@functools.cache
def copy_rate(device: torch.device) -> float:
    """Return the bytes per second that a copy of 256 MB reads and writes: the fastest of nine. On a CPU it uses
    this process's threads."""
    source = torch.ones(COPIED, device=device)
    copied = torch.empty_like(source)
    seconds = []
    for _ in range(TRIES):
        wait(device)
        start = time.perf_counter()
        copied.copy_(source)
        wait(device)
        seconds.append(time.perf_counter() - start)
    return 2 * source.nbytes / min(seconds)


def autocast(*, enabled: bool = True, device: str = "cpu") -> torch.autocast:
    """Return the context of a peer's forward pass."""
    return torch.autocast(device, dtype=torch.bfloat16, enabled=enabled and _mixed(device))


def precision_in_words(*, best: bool = True, device: str = "cpu") -> str:
    """Return a peer's precision in words."""
    return "bf16 autocast" if best and _mixed(device) else "fp32"


def _mixed(device: str) -> bool:
    return MIXED or device != "cpu"
