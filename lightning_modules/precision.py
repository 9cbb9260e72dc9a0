"""In which type a product is computed."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def working_type(like: Tensor) -> torch.dtype:
    """Autocast's type where that is on for the tensor's device, and the tensor's own otherwise."""
    device = like.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return like.dtype


def without_autocast(like: Tensor) -> AbstractContextManager[object]:
    """Each operation on the tensor's device in the types of what it is given."""
    device = like.device.type
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()
