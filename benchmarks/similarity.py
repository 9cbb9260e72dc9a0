"""PWCCA and CKA of all pairs of layers, against the products X'Y alone: `python -m benchmarks.similarity N D
LAYERS`.

It prints a JSON object: wall and processor seconds of both sides, and the bytes used beyond the layers.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ablations.measures.similarity import Moments, debiased_cka, linear_cka, pwcca
from benchmarks.memory import peak, resident
from benchmarks.timing import compared

TOKENS, WIDTH, LAYERS = 200_000, 768, 13
BLOCK_ROWS = 2048


def measure(
    *, rounds: int, tokens: int = TOKENS, width: int = WIDTH, layers: int = LAYERS
) -> Iterator[dict[str, Any]]:
    """Yield time and memory, measured in a separate process that holds the layers in float32 (8 GB at full
    size)."""
    command = [sys.executable, "-m", "benchmarks.similarity", *map(str, (tokens, width, layers, rounds))]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    pairs = layers * (layers - 1) // 2
    what = f"PWCCA, CKA and debiased CKA of {pairs} pairs of {layers} layers, {tokens:,} x {width}"
    yield {
        "what": what,
        "against": f"{pairs} products X'Y in float64",
        "unit": "s",
        "at_most": 1.5,
        **compared(found["ours"], found["theirs"]),
    }
    yield {
        "what": f"memory beyond the layers, {what}",
        "unit": "GiB",
        "ours": found["bytes"] / 2**30,
        "at_most": 3.0,
        "rounds": 1,
    }


def similarities(layers_LND: list[NDArray[np.float32]]) -> dict[tuple[int, int], tuple[float, ...]]:
    """Return PWCCA, linear CKA and debiased CKA of each pair of layers. This is our side."""
    moments = Moments()
    moments.add(*layers_LND)
    sides = [moments.side(layer) for layer in range(len(layers_LND))]
    return {
        (i, j): tuple(similarity(sides[i], sides[j]) for similarity in (pwcca, linear_cka, debiased_cka))
        for i, j in combinations(range(len(sides)), 2)
    }


def products(layers_LND: list[NDArray[np.float32]]) -> dict[tuple[int, int], torch.Tensor]:
    """Return X'Y of each pair of layers, the other side: every layer is made float64 once, in blocks that fit
    into memory."""
    width = layers_LND[0].shape[1]
    pairs = list(combinations(range(len(layers_LND)), 2))
    found = {pair: torch.zeros(width, width, dtype=torch.float64) for pair in pairs}
    for start in range(0, len(layers_LND[0]), BLOCK_ROWS):
        blocks = [torch.from_numpy(layer_ND[start : start + BLOCK_ROWS]).double() for layer_ND in layers_LND]
        for i, j in pairs:
            found[i, j].addmm_(blocks[i].T, blocks[j])
    return found


def related(tokens: int, width: int, layers: int) -> list[NDArray[np.float32]]:
    """Return layers each of which is the layer before plus noise."""
    rng = np.random.default_rng(0)
    layers_LND = [rng.random((tokens, width), dtype=np.float32)]
    for _ in range(layers - 1):
        layer_ND = rng.random((tokens, width), dtype=np.float32)
        layer_ND += layers_LND[-1]
        layers_LND.append(layer_ND)
    return layers_LND


def seconds_of(work: Callable[[], Any]) -> tuple[float, float]:
    """Return the wall and processor seconds of a function call."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def main(tokens: int, width: int, layers: int, rounds: int = 1) -> None:
    """Time both sides in turn, and print the result as JSON."""
    layers_LND = related(tokens, width, layers)
    warm_up = [layer_ND[:1000, :64] for layer_ND in layers_LND]
    similarities(warm_up)
    products(warm_up)
    before = resident()
    found: dict[str, list[float]] = {"theirs": [], "ours": [], "theirs_processor": [], "ours_processor": []}
    for _ in range(rounds):
        for side, work in (("theirs", products), ("ours", similarities)):
            wall, processor = seconds_of(lambda work=work: work(layers_LND))
            found[side].append(wall)
            found[f"{side}_processor"].append(processor)
    print(json.dumps(found | {"bytes": peak() - before}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
