"""Memory of training, each side in a process of its own: `python -m benchmarks.memory SIDE TOKENS PRECISION`.

Prints the settings, and the peak resident set of some steps less what was resident before the model existed, in
bytes.
Ours keeps freed memory, as every run does; the peer has the memory allocator that Python comes with.
"""

import json
import sys
from pathlib import Path

SHAPE = {"layers": 6, "width": 256, "dropout": 0.1}
STEPS = 10


def resident() -> int:
    """Bytes of this process in memory now."""
    return _status("VmRSS")


def peak() -> int:
    """The most bytes of this process that were in memory at once; not those of the process that started it,
    which `getrusage` counts too."""
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def main(side: str, folder: str, precision: str) -> None:
    """Train a little and print the bytes it took."""
    # Not above, as `peak` and `resident` are those of any process.
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
