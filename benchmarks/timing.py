"""Timing of two sides in turn in one process, so that other load on the machine meets both. Beside it stands the
best of this machine: its fastest precision, in which our side and the peers' best loop compute, and a lower
bound for the time of a training step."""

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

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


@dataclass(frozen=True)
class Side:
    """Side of a comparison: a step that can be repeated, and its settings in words."""

    settings: str
    step: Callable[[], float]
    """Function that does one step and returns how many units it did (real tokens, batches, ...)."""
    wait: Callable[[], None] = lambda: None
    """Function that returns when all steps are done. On a GPU a step is only queued when `step` returns."""


class Rates(NamedTuple):
    """Units per second of both sides in each round, and the settings of both."""

    ours: list[float]
    theirs: list[float]
    settings: tuple[str, str]

    def summary(self) -> dict[str, Any]:
        """Return settings and medians of both sides, and median, smallest and largest of the rounds'
        ratios."""
        settings = {"our_settings": self.settings[0], "their_settings": self.settings[1]}
        return settings | compared(self.ours, self.theirs)


def compared(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """Return medians of both sides over rounds, and median, smallest and largest of the rounds' ratios."""
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    return {
        "ours": statistics.median(ours),
        "theirs": statistics.median(theirs),
        "ratio": statistics.median(ratios),
        "low": min(ratios),
        "high": max(ratios),
        "rounds": len(ratios),
    }


def alternate(ours: Side, theirs: Side, *, rounds: int, seconds: float, warm_up: int = 3) -> Rates:
    """Time both sides in turn, `rounds` times, each for at least `seconds` and one step, after warming up.

    The side that goes first changes from turn to turn.
    """
    for side in (ours, theirs):
        for _ in range(warm_up):
            side.step()
        side.wait()
    rates = Rates([], [], (ours.settings, theirs.settings))
    turn = [(ours, rates.ours), (theirs, rates.theirs)]
    for _ in range(rounds):
        for side, kept in turn:
            kept.append(rate(side, seconds=seconds))
        turn.reverse()
    return rates


def rate(side: Side, *, seconds: float) -> float:
    """Return the units per second of whole steps, over at least `seconds`."""
    done, start = 0.0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        done += side.step()
    side.wait()
    return done / (time.perf_counter() - start)


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
