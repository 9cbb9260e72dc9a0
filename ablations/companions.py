"""Processes that keep the other cores as busy as runs in slots would, while something is timed."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Semaphore

MOST = 7
"""Where there are more cores, so many share their caches and memory as well as all would."""


@contextmanager
def companions(count: int) -> Iterator[None]:
    """Inside, so many processes of one thread train without end; it begins when all of them do."""
    context = multiprocessing.get_context("spawn")
    ready = context.Semaphore(0)
    processes = [context.Process(target=_train, args=(ready,), daemon=True) for _ in range(min(count, MOST))]
    try:
        for process in processes:
            process.start()
        for process in processes:
            while not ready.acquire(timeout=1):
                if not process.is_alive():
                    raise RuntimeError("a process that trains beside what is timed ended by itself")
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _train(ready: Semaphore) -> None:
    import torch

    from ablations.timing import endless_steps

    torch.set_num_threads(1)
    steps = endless_steps()
    next(steps)
    ready.release()
    for _ in steps:
        pass
