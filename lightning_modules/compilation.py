"""`torch.compile` of a module's blocks, for runs that ask for it."""

from contextlib import AbstractContextManager, nullcontext

import torch

from lightning_modules.decoder import DecoderBlock
from lightning_modules.encoder import EncoderBlock
from lightning_modules.objective import Objective


def compile_blocks(objective: Objective, device: str) -> None:
    """Compile the blocks of encoder and decoder if the run says so and trains on a GPU; weights keep their names.

    Blocks of one kind share their graphs: it takes as long as compiling two or three, however many there are. On
    a CPU nothing is compiled, as it gains next to nothing there (benchmarks/README.md).

    Args:
        device: the type of the device that will train it, "cpu" or "cuda".
    """
    if not objective.run.training.compile or device == "cpu":
        return
    for module in objective.modules():
        if isinstance(module, EncoderBlock | DecoderBlock):
            module.compile()


def as_written(objective: Objective) -> AbstractContextManager[object]:
    """Within it no graph is used, so that an evaluation has the numbers of every other, and compiles nothing."""
    return torch.compiler.set_stance("force_eager") if objective.run.training.compile else nullcontext()
