"""Fastest precision of this processor, in which our side and the peers' best loop compute."""

from typing import Literal

import torch

from lightning_modules.model.numerics import cpu_multiplies_bf16

MIXED = cpu_multiplies_bf16()
"""Whether this processor multiplies in bf16; then autocast uses bf16, otherwise everything is fp32."""
FASTER: Literal["bf16-mixed", "32-true"] = "bf16-mixed" if MIXED else "32-true"
TYPE_OF_PRODUCTS = torch.bfloat16 if MIXED else torch.float32


def autocast(*, enabled: bool = True, device: str = "cpu") -> torch.autocast:
    """Return the context of a peer's forward pass."""
    return torch.autocast(device, dtype=torch.bfloat16, enabled=enabled and _mixed(device))


def said(*, best: bool = True, device: str = "cpu") -> str:
    """Return a peer's precision in words."""
    return "bf16 autocast" if best and _mixed(device) else "fp32"


def _mixed(device: str) -> bool:
    return MIXED or device != "cpu"
