"""Which products of matrices a piece of code asks torch for."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class ProductsSeen(TorchDispatchMode):
    """The types of all products of matrices that reach torch."""

    NAMES = ("mm", "bmm", "matmul", "linear", "attention", "einsum", "tensordot", "convolution", "mv")

    def __init__(self):
        super().__init__()
        self.types = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(name in func.overloadpacket.__name__ for name in self.NAMES):
            self.types |= {x.dtype for x in args if isinstance(x, torch.Tensor)}
        return func(*args, **(kwargs or {}))
