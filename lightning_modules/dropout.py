"""Dropout (Srivastava et al. 2014) where a Transformer has it: after the embeddings, before each residual sum."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 2**16


class Dropout(nn.Module):
    """In training each number is 0 with the given probability, and 1 / (1 - probability) as large otherwise.

    On a CPU the probability is rounded to a multiple of 1 / 65,536 (0.1 becomes 0.10000610), and the scale fits
    what is rounded: torch's own draws were a fifth of a step (benchmarks/LOG.md).
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, update: Tensor, *, residual: Tensor | None = None) -> Tensor:
        """`update` dropped out, added to `residual` where there is one.

        What is dropped depends on torch's default generator alone.
        """
        scale = 1.0
        if self.training and self.probability > 0:
            if update.device.type == "cpu":
                kept, scale = kept_on_cpu(update, self.probability)
                update = update * kept
            else:
                update = F.dropout(update, self.probability)
        if residual is None:
            return update if scale == 1.0 else update * scale
        return torch.add(residual, update, alpha=scale)

    def extra_repr(self) -> str:
        return f"probability={self.probability:g}"


def kept_on_cpu(update: Tensor, probability: float) -> tuple[Tensor, float]:
    """1 where a number is kept and 0 elsewhere, in its type and shape, and what makes up for the loss."""
    dropped_levels = min(round(probability * LEVELS), LEVELS - 1)
    generator = np.random.Generator(np.random.SFC64(int(torch.randint(2**63 - 1, ()))))
    words = generator.integers(2**64, size=-(-update.numel() // 4), dtype=np.uint64)
    bits = torch.from_numpy(words.view(np.int16))[: update.numel()].view(update.shape)
    kept = torch.ge(bits, dropped_levels - LEVELS // 2, out=torch.empty_like(update))
    return kept, LEVELS / (LEVELS - dropped_levels)
