"""Memory of training, each side in a process of its own: `python -m benchmarks.memory SIDE TOKENS_FOLDER`.

Prints the peak resident set of some steps less what was resident before the model existed, in bytes.
"""

import resource
import sys
from pathlib import Path

from benchmarks import ours, peers
from lightning_modules.data.tokens import load

SHAPE = {"layers": 6, "width": 256, "dropout": 0.1}
STEPS = 10


def resident() -> int:
    """Bytes of this process in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main(side: str, folder: str, precision: str) -> None:
    """Train a little and print the bytes it took."""
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
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
