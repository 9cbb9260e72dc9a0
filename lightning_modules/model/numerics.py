"""Numerics: types and speed of matrix products, the memory allocator, and dropout.

A step frees and allocates the same large tensors again and again. The C library returns freed memory to the
system, which then fills every new page with zeros. That takes a tenth of a step in fp32 and a sixth in bf16.
So this module keeps freed memory for the next step.

Dropout (Srivastava et al. 2014) stands where a Transformer has it: after the embeddings, before each residual
sum.
"""

import ctypes
import errno
import functools
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # of glibc's malloc.h
LARGEST_INT = 2**31 - 1
TOP_PAD_BYTES = 64 * 2**20


def keep_freed_memory() -> bool:
    """Make the allocator of this process keep freed memory. Return whether that worked (it needs glibc)."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    options = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, LARGEST_INT), (M_TOP_PAD, TOP_PAD_BYTES))
    taken = [mallopt(option, value) for option, value in options]
    return all(taken)


LEVELS = 2**16


class Dropout(nn.Module):
    """Dropout: in training each number is set to 0 with a probability p, and otherwise divided by 1 - p.

    On a CPU the probability is rounded to a multiple of 1 / 65,536 (0.1 becomes 0.10000610), and the scale
    fits the rounded value. The reason is speed: torch's own draws took a fifth of a step (benchmarks/LOG.md).
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, update: Tensor, *, residual: Tensor | None = None) -> Tensor:
        """Return `update` with dropout, added to `residual` if that is given.

        Which numbers are dropped depends on torch's default generator alone.
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
    """Return a tensor with 1 where a number is kept and 0 elsewhere, and the factor that restores the mean."""
    dropped_levels = min(round(probability * LEVELS), LEVELS - 1)
    generator = np.random.Generator(np.random.SFC64(int(torch.randint(2**63 - 1, ()))))
    words = generator.integers(2**64, size=-(-update.numel() // 4), dtype=np.uint64)
    bits = torch.from_numpy(words.view(np.int16))[: update.numel()].view(update.shape)
    kept = torch.ge(bits, dropped_levels - LEVELS // 2, out=torch.empty_like(update))
    return kept, LEVELS / (LEVELS - dropped_levels)


aten = torch.ops.aten
PRODUCTS = frozenset((aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.linear, aten.matmul))
"""Operations that multiply matrices. The last two reach a dispatch mode as one operation in inference mode
only."""


def working_type(like: Tensor) -> torch.dtype:
    """Return autocast's type if autocast is on for the tensor's device, otherwise the tensor's type."""
    device = like.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return like.dtype


def without_autocast(like: Tensor) -> AbstractContextManager[object]:
    """Return a context in which each operation on the tensor's device keeps the types of its arguments."""
    device = like.device.type
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


@functools.cache
def cpu_multiplies_bf16() -> bool:
    """Return whether torch has a fast bf16 product for this processor: AVX-512, or an ARM with bf16."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def bf16_products(device: str, *, enabled: bool = True) -> AbstractContextManager[object]:
    """Return a context in which bf16 matrix products take hardly longer than fp32 products, forward and
    backward.

    On a CPU without bf16 products, torch needs hundreds of times as long for them as in fp32
    (benchmarks/LOG.md). There `Bf16ByFp32` computes them. Elsewhere, and if not `enabled`, nothing changes.

    Args:
        device: the type of the device, "cpu" or "cuda".
    """
    by_fp32 = enabled and device == "cpu" and not cpu_multiplies_bf16()
    return Bf16ByFp32() if by_fp32 else nullcontext()


class Bf16ByFp32(TorchDispatchMode):
    """Products of bf16 matrices on a CPU, computed in fp32 and rounded once to bf16.

    A processor with bf16 products does the same, up to the order of the sums.
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


NO_ROOM = ("could not create a primitive", "failed to map segment from shared object", "std::bad_alloc")
"""Words of oneDNN, of the dynamic linker and of C++ if memory is short. The first has rarer reasons too."""


def out_of_memory(error: BaseException) -> str | None:
    """Return what did not fit, as in ``no room for 2.5 GiB``; None if the error is not about memory.

    torch has an error class for a GPU's memory. Its CPU allocator raises a RuntimeError, as do other libraries.
    """
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return "no room for a file or a process"
    if isinstance(error, RuntimeError | ImportError) and (
        words := next((w for w in NO_ROOM if w in str(error)), None)
    ):
        return words
    is_of_cpu = isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error)
    if not is_of_cpu and not isinstance(error, MemoryError | torch.OutOfMemoryError):
        return None
    amount = re.search(r"tried to allocate ([\d.]+) (bytes|\w?iB)", str(error), re.IGNORECASE)
    if amount is None:
        return "no room for a tensor"
    if amount[2] == "bytes":
        return f"no room for {float(amount[1]) / 2**30:,.3g} GiB"
    return f"no room for {amount[1]} {amount[2]}"


SIZES = {"cpu": 2048, "cuda": 8192}  # smaller matrices do not occupy every core
FEWEST_TRIES, SECONDS_OF_TRIES = 5, 0.4


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Return the floating-point operations per second of a large matrix product, with this process's threads.

    A process measures it once for each device, type and number of threads. The product is repeated for 0.4
    seconds, and at least five times. The fastest one counts, since it is the least disturbed by other work.
    Other work that runs the whole time makes the rate lower.
    """
    return _measured(device, dtype, torch.get_num_threads())


@functools.cache
def _measured(device: torch.device, dtype: torch.dtype, threads: int) -> float:
    size = SIZES.get(device.type, SIZES["cuda"])
    # Random numbers: a GPU multiplies a constant with less power, and so faster.
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
