"""`torch.compile` of a module's blocks, for runs that ask for it."""

from contextlib import AbstractContextManager, nullcontext

import torch

from lightning_modules.decoder import DecoderBlock
from lightning_modules.encoder import EncoderBlock
from lightning_modules.objective import Objective

GRAPHS = 64
"""Of a block, at most: a worker's runs may differ in kind, width and norm. Past it blocks would run uncompiled."""


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
    """Within it no graph is used, so that an evaluation has the numbers of every other, and compiles nothing."""
    return torch.compiler.set_stance("force_eager") if objective.run.training.compile else nullcontext()
