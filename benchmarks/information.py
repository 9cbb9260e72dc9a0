"""Information of one layer at full size: `python -m benchmarks.information N D CLUSTERS`.

It prints a JSON object: wall and processor seconds, the bytes used beyond the states, the estimates, and the
estimates after 50 passes of Lloyd's k-means from the same seeds.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ablations.measures.information import plug_in
from ablations.measures.information.estimate import token_information
from benchmarks.memory import peak, resident

TOKENS, WIDTH, CLUSTERS = 1_000_000, 512, 1000
TYPES, LENGTH = 1000, 20
DIRECTIONS = 64
"""Number of directions in which the states of one type differ most."""


def measure(*, tokens: int = TOKENS, width: int = WIDTH, clusters: int = CLUSTERS) -> Iterator[dict[str, Any]]:
    """Yield the time of the estimate and its change by Lloyd's passes, measured once in a separate process (5
    GB at full size)."""
    command = [sys.executable, "-m", "benchmarks.information", *map(str, (tokens, width, clusters))]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    what = f"information of {tokens:,} x {width}, {clusters:,} clusters"
    device = "GPU" if torch.cuda.is_available() else "CPU"
    yield {"what": f"{what}, {device}", "unit": "s", "ours": found["seconds"], "at_most": 180.0, "rounds": 1}
    yield {
        "what": f"what 50 passes of Lloyd's change, {what}",
        "unit": "nats",
        "ours": max(abs(found["passes"][name] - found[name]) for name in found["passes"]),
        "at_most": 0.02,
        "rounds": 1,
    }


def states(tokens: int, width: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return artificial states and the token of each: a vector for each type, plus a context in few
    directions, plus noise.

    Types follow a Zipf law. Clusters overlap and have unequal sizes, as those of trained encoders.
    """
    rng = np.random.default_rng(0)
    chances = 1 / np.arange(1, TYPES + 1)
    token_N = rng.choice(TYPES, tokens, p=chances / chances.sum())
    type_VD = rng.standard_normal((TYPES, width), dtype=np.float32)
    direction_RD = rng.standard_normal((DIRECTIONS, width), dtype=np.float32)
    direction_RD /= np.sqrt(np.arange(1, DIRECTIONS + 1, dtype=np.float32))[:, None]
    state_ND = rng.standard_normal((tokens, width), dtype=np.float32)
    for start in range(0, tokens, 2**16):
        block = slice(start, start + 2**16)
        state_ND[block] *= 0.5
        state_ND[block] += type_VD[token_N[block]]
        context_BR = rng.standard_normal((len(state_ND[block]), DIRECTIONS), dtype=np.float32)
        state_ND[block] += context_BR @ direction_RD
    return state_ND, token_N


def main(tokens: int, width: int, clusters: int) -> None:
    """Measure, and print the result as JSON."""
    state_ND, token_N = states(tokens, width)
    read = torch.from_numpy(state_ND).to("cuda" if torch.cuda.is_available() else "cpu")
    sentence_N = np.arange(tokens) // LENGTH
    small = 10 * LENGTH * TYPES
    token_information(read[:small], token_N[:small], sentence_N[:small], clusters=100, seed=0)  # warm-up
    before, wall, processor = resident(), time.perf_counter(), time.process_time()
    found = token_information(read, token_N, sentence_N, clusters=clusters, seed=0)
    told = {
        "seconds": time.perf_counter() - wall,
        "processor": time.process_time() - processor,
        "bytes": peak() - before,
        **found._asdict(),
    }
    plug_in.SETTLED, plug_in.PASSES, plug_in.MOMENTUM = 0, 50, 0  # Lloyd's
    settled = token_information(read, token_N, sentence_N, clusters=clusters, seed=0)
    told["passes"] = {name: getattr(settled, name) for name in ("plug_in", "cross_fitted")}
    print(json.dumps(told))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
