"""The steps of a run without the Trainer: they are timed by a calibration, and are the yardstick for the Trainer's
cost.

The speed of a device is measured here too: it is the yardstick for how well a run uses it. `torch.compile` of a
module's blocks is for runs that ask for it.
"""

import functools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch

from lightning_modules.config import RunSettings
from lightning_modules.data.token_store import Tokens
from lightning_modules.model.encoder import DecoderBlock, EncoderBlock
from lightning_modules.model.numerics import bf16_products
from lightning_modules.objectives import build
from lightning_modules.objectives.objective import Objective
from lightning_modules.training.data_module import GPU_WORKERS, RunData

GRAPHS = 64
"""Limit of graphs of a block: a worker's runs may differ in kind, width and norm. Past it blocks would run
uncompiled."""


def compile_blocks(objective: Objective, device: str) -> None:
    """Compile the blocks of encoder and decoder if the run says so and trains on a GPU; weights keep their names.

    Blocks of a kind share a few graphs, first for the shapes at hand and then for any, however many blocks there
    are. On a CPU nothing is compiled, as it gains next to nothing there (benchmarks/LOG.md).

    Args:
        device: the type of the device that will train it, "cpu" or "cuda".
    """
    if not objective.run.training.compile or device == "cpu":
        return
    torch._dynamo.config.recompile_limit = GRAPHS
    for module in objective.modules():
        if isinstance(module, EncoderBlock | DecoderBlock):
            module.compile()


def as_written(objective: Objective) -> AbstractContextManager[object]:
    """Use no graph in the block, so that an evaluation has the numbers of every other, and compiles nothing."""
    return torch.compiler.set_stance("force_eager") if objective.run.training.compile else nullcontext()


SIZES = {"cpu": 2048, "cuda": 8192}  # smaller ones do not occupy every core
FEWEST_TRIES, SECONDS_OF_TRIES = 5, 0.4


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Return the operations a second of a large square matrix product on the device, with this process's threads.

    Measured once for each device, type and number of threads of a process: the fastest of at least five products
    and of those that fit in 0.4 seconds, of which one should meet a quiet moment. What else runs all that
    time takes its share.
    """
    return _measured(device, dtype, torch.get_num_threads())


@functools.cache
def _measured(device: torch.device, dtype: torch.dtype, threads: int) -> float:
    size = SIZES.get(device.type, SIZES["cuda"])
    # Random numbers, as a GPU multiplies ones with less power, and so faster.
    rng = torch.Generator(device).manual_seed(0)
    left, right = (torch.randn(size, size, generator=rng, device=device).to(dtype) for _ in range(2))
    seconds: list[float] = []
    begin = time.perf_counter()
    with bf16_products(device.type, enabled=dtype == torch.bfloat16):
        while len(seconds) < FEWEST_TRIES or time.perf_counter() - begin < SECONDS_OF_TRIES:
            wait(device)
            start = time.perf_counter()
            left @ right
            wait(device)
            seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


def wait(device: torch.device) -> None:
    """Wait until the device has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def bare_step(run: RunSettings, tokens: Tokens, *, device: str = "cpu") -> Callable[[], int]:
    """Return a function that does the run's next step each time and returns how many real source tokens it had.

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
        on_host = next(batches)
        tokens_in_it = sum(int(batch["source_tokens"]) for batch in on_host)
        on_device = [{name: x.to(device, non_blocking=True) for name, x in batch.items()} for batch in on_host]
        with bf16_products(device, enabled=mixed):
            with torch.autocast(device, dtype=torch.bfloat16, enabled=mixed):
                loss = objective.training_step(on_device, 0)["loss"]
            loss.backward()
        objective.configure_gradient_clipping(optimizer)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        return tokens_in_it

    return step
