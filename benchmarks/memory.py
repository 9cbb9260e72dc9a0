"""Memory of training, each side in its own process: `python -m benchmarks.memory SIDE TOKENS PRECISION`.

It prints the settings, and in bytes the peak resident set of some steps minus what was resident before the
model existed. Our side keeps freed memory, as every run does; the peer has Python's usual memory allocator.
"""

import json
import sys
from pathlib import Path
from typing import Any

SHAPE: dict[str, Any] = {"layers": 6, "width": 256, "dropout": 0.1}
STEPS = 10


def resident() -> int:
    """Return the bytes of this process in memory now."""
    return _status("VmRSS")


def peak() -> int:
    """Return the most bytes of this process that were in memory at once. Unlike `getrusage` it does not count
    the process that started it."""
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def main(side: str, folder: str, precision: str) -> None:
    """Train some steps, and print the bytes that they used."""
    # Imported here because other benchmarks use `peak` and `resident` without these modules.
    from benchmarks import ours, peers
    from lightning_modules.data.token_store import load
    from lightning_modules.model.numerics import keep_freed_memory

    if side == "ours":
        keep_freed_memory()
    tokens = load(Path(folder))
    tokens.train.ids[:].sum()  # the text is in memory before either side starts
    before = resident()
    if side == "ours":
        run = ours.settings("masked_lm", tokens_per_step=8192, precision=precision, **SHAPE)
        made = ours.training(run, tokens, packed=True)
    else:
        made = peers.masked_lm(tokens.train, tokens.tokenizer, loop="default", packed=True, **SHAPE)
    for _ in range(STEPS):
        made.step()
    print(json.dumps({"bytes": peak() - before, "settings": made.settings}))


if __name__ == "__main__":
    main(*sys.argv[1:])
