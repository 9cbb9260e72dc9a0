"""How far two runs lie apart at equal depth: Voita et al. 2019, section 5.1, between objectives and between seeds.

All encoders go through the text side by side, and nothing is held but moments of their states.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ablations.measures.layer_change import METRICS
from ablations.measures.moments import Moments
from ablations.measures.reading import validation_text
from ablations.measures.settings import RunDistanceSettings
from ablations.measures.states import states_in_batches
from lightning_modules.checkpoint import read_checkpoint
from lightning_modules.objective import Objective
from lightning_modules.objectives import build
from lightning_modules.run_directory import RunDirectory
from lightning_modules.train import load_tokens

MOMENTS_BYTES = 2**30
"""Of moments held at once; where all layers need more, the text is read several times."""


def run_distance(
    checkpoints: Mapping[str, Path],
    directories: Mapping[str, RunDirectory],
    pairs: Sequence[tuple[str, str]],
    settings: RunDistanceSettings,
    *,
    data_root: Path,
) -> Iterator[dict[str, Any]]:
    """Rows of 1 - similarity of two runs in the same layer, from 0, for each pair of run ids.

    PWCCA's weights come from the first run. The floor is the same number with the tokens of the second run
    shuffled within the batches that they are encoded in. The runs must have equally many layers and read the same
    text.

    Raises:
        MeasureError: fewer than five tokens per unit of the wider encoder's width.
        CheckpointError: a checkpoint is missing or damaged.
    """
    tokens = load_tokens(next(iter(directories.values())), data_root=data_root)
    encoders: dict[str, Objective] = {}
    step = {}
    for run_id, directory in directories.items():
        encoders[run_id] = build(directory.settings(), tokens)
        read = read_checkpoint(checkpoints[run_id])
        encoders[run_id].load_state_dict(read["state_dict"])
        encoders[run_id].to("cuda" if torch.cuda.is_available() else "cpu")
        step[run_id] = int(read["global_step"])
    some = next(iter(encoders.values()))
    split, sample = validation_text(tokens, some.run.data, settings.tokens)
    runs = list(encoders)
    widths = [encoders[run_id].run.encoder.hidden_size for run_id in runs]
    for layers in _portions(
        some.run.encoder.num_hidden_layers + 1, runs=len(runs), pairs=len(pairs), width=max(widths)
    ):
        moments = {layer: Moments(pairs=_sides(runs, pairs)) for layer in layers}
        rng = np.random.default_rng(0)
        for batches in zip(*(states_in_batches(encoders[r], split, sample) for r in runs), strict=True):
            shuffled = torch.from_numpy(rng.permutation(len(batches[0][0])))
            for layer in layers:
                states = [batch[layer] for batch in batches]
                moments[layer].add(*states, *(states_ND[shuffled] for states_ND in states))
        for layer, sums in moments.items():
            for (first, second), (one, other), (_, chance) in zip(
                pairs, _sides(runs, pairs)[::2], _sides(runs, pairs)[1::2], strict=True
            ):
                for metric, similarity in METRICS.items():
                    yield {
                        "run_id": first,
                        "other_run_id": second,
                        "step": step[first],
                        "metric": metric,
                        "layer": layer,
                        "value": 1 - similarity(sums.side(one), sums.side(other)),
                        "floor": 1 - similarity(sums.side(one), sums.side(chance)),
                        "unit": "distance",
                        "n": len(sample),
                        "d": max(widths[one], widths[other]),
                        "sample": sample.digest,
                    }


def _sides(runs: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    """The two sides of each pair, and the first with the second's shuffled twin, in turn."""
    place = {run_id: i for i, run_id in enumerate(runs)}
    return [
        sides
        for first, second in pairs
        for sides in ((place[first], place[second]), (place[first], len(runs) + place[second]))
    ]


def _portions(layers: int, *, runs: int, pairs: int, width: int) -> Iterator[range]:
    """The layers in portions whose moments fit into the memory allowed, at least one each."""
    each = 8 * width**2 * (2 * runs + 2 * pairs)
    size = max(1, min(layers, math.floor(MOMENTS_BYTES / each)))
    for start in range(0, layers, size):
        yield range(start, min(start + size, layers))
