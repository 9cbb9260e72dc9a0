"""What a device can do at best: the yardstick for how well a run uses it."""

import functools
import time

import torch

from lightning_modules.precision import bf16_products

SIZES = {"cpu": 2048, "cuda": 8192}  # smaller ones do not occupy every core
FEWEST_TRIES, SECONDS_OF_TRIES = 5, 0.4


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of a large square matrix product on the device, with this process's threads.

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
    with bf16_products(device.type, wanted=dtype == torch.bfloat16):
        while len(seconds) < FEWEST_TRIES or time.perf_counter() - begin < SECONDS_OF_TRIES:
            wait(device)
            start = time.perf_counter()
            left @ right
            wait(device)
            seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


def wait(device: torch.device) -> None:
    """Until the device has done all that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
