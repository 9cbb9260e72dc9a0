"""In which type a product is computed."""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
PRODUCTS = frozenset((aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.linear, aten.matmul))
"""Of matrices; the last two are seen whole in inference mode alone."""


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


@functools.cache
def cpu_multiplies_bf16() -> bool:
    """Whether torch has a fast product of bf16 matrices for this processor: with AVX-512, or bf16 of an ARM."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def bf16_products(device: str, *, wanted: bool = True) -> AbstractContextManager[object]:
    """Within it products of bf16 matrices, forward and backward, take little longer than in fp32, if at all.

    On a CPU without such products torch's take hundreds of times as long as in fp32 (benchmarks/LOG.md); there
    `Bf16ByFp32` computes them. Nothing changes elsewhere, or where they are not `wanted`.

    Args:
        device: the type of the device, "cpu" or "cuda".
    """
    by_fp32 = wanted and device == "cpu" and not cpu_multiplies_bf16()
    return Bf16ByFp32() if by_fp32 else nullcontext()


class Bf16ByFp32(TorchDispatchMode):
    """Products of bf16 matrices on a CPU: multiplied and summed in fp32, and the result rounded once to bf16.

    That is what a processor with such products does, up to the order of the sums.
    """

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        product: Callable[..., Tensor] = func.overloadpacket
        if product not in PRODUCTS or not any(_is_bf16_on_cpu(x) for x in args):
            return func(*args, **kwargs)
        out = kwargs.pop("out", None)
        exact = product(*(x.float() if _is_bf16_on_cpu(x) else x for x in args), **kwargs)
        return exact.to(torch.bfloat16) if out is None else out.copy_(exact)


def _is_bf16_on_cpu(x: object) -> bool:
    return isinstance(x, Tensor) and x.dtype == torch.bfloat16 and x.device.type == "cpu"
