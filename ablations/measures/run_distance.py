"""Distance of two runs at equal depth (Voita et al. 2019, section 5.1), between objectives and between seeds.

All encoders read the text side by side, and memory holds only moments of their states.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ablations.errors import MeasureError
from ablations.measures.jackknife import BLOCKS, errors, sentence_blocks
from ablations.measures.layer_change import METRICS
from ablations.measures.reading.texts import Reading, states_in_batches, validation_text
from ablations.measures.settings import REFUSED_BELOW, RunDistanceSettings
from ablations.measures.similarity.moments import Moments
from ablations.measures.similarity.sides import UndefinedError, or_nan, participation_ratio, to_device
from ablations.wording import listed
from lightning_modules.objectives import build
from lightning_modules.objectives.objective import Objective
from lightning_modules.training.checkpoint import load_weights
from lightning_modules.training.data_module import load_tokens
from lightning_modules.training.run_directory import RunDirectory

MOMENTS_BYTES = 2**30
"""Largest number of bytes of moments held at once. If all layers need more, the text is read several times."""

_Sides = tuple[tuple[int, int], tuple[int, int]]
"""Sides of a pair of runs, and of the first run with the second run's tokens shuffled."""


def run_distance(
    runs: Mapping[str, tuple[RunDirectory, Path]],
    pairs: Sequence[tuple[str, str]],
    settings: RunDistanceSettings,
    *,
    data_root: Path,
) -> Iterator[dict[str, Any]]:
    """Yield rows of 1 - similarity of two runs in the same layer, from 0, for each pair of run ids.

    The weights of PWCCA come from the first run. The chance level (`floor`) is the same number after the
    tokens of the second run were shuffled within each batch of the encoder. The standard error is by the
    jackknife over blocks of sentences. It is NaN if the moments of the blocks need more than `MOMENTS_BYTES`
    (as for 12 runs of width 512), and if without a block too few tokens are left or the distance is undefined.
    The runs must have equally many layers and read the same text. A layer in which all states of a run are equal
    has no rows of this run.

    Args:
        runs: folder and checkpoint of each run, by its id.

    Raises:
        MeasureError: fewer than five tokens per unit of the wider encoder's width, or a pair of runs without a
            number in any layer.
        CheckpointError: a checkpoint is missing or damaged.
    """
    tokens = load_tokens(next(iter(runs.values()))[0], data_root=data_root)
    encoders = [build(directory.settings(), tokens) for directory, _ in runs.values()]
    loaded = zip(runs.items(), encoders, strict=True)
    step = {run_id: load_weights(encoder, checkpoint) for (run_id, (_, checkpoint)), encoder in loaded}
    run = encoders[0].run
    reading = validation_text(tokens, run.data, settings.tokens)
    sides = _sides(list(runs), pairs)
    widths = [encoder.run.encoder.hidden_size for encoder in encoders]
    portions, blocks = _portions(
        run.encoder.num_hidden_layers + 1, runs=len(encoders), pairs=len(pairs), width=max(widths)
    )
    collapsed: dict[tuple[str, str], str] = {}
    for layers in portions:
        parts = _moments(encoders, reading, layers, sides=sides, blocks=blocks)
        for layer in layers:
            for ids, (side_pair, _), distances in zip(pairs, sides, _compared(parts[layer], sides), strict=True):
                if distances:
                    collapsed.pop(ids, None)
                elif layer == 0:
                    equal = [list(runs)[side] for side in _collapsed(parts[layer], side_pair)]
                    collapsed[ids] = listed(equal, "and")
                for metric, distance in distances.items():
                    yield {
                        "value": distance.value,
                        "floor": distance.floor,
                        **errors(distance.left_out),
                        "run_id": ids[0],
                        "other_run_id": ids[1],
                        "step": step[ids[0]],
                        "metric": metric,
                        "layer": layer,
                        "unit": "distance",
                        "n": len(reading.sample),
                        "d": max(widths[side] for side in side_pair),
                        "sample": reading.sample.digest,
                    }
    _require_distances(collapsed, states=len(reading.sample))


def _require_distances(collapsed: Mapping[tuple[str, str], str], *, states: int) -> None:
    """Raise a MeasureError about the first pair of runs without a distance.

    Args:
        collapsed: runs whose states are equal in layer 0, by pair without a distance in any layer.
        states: number of states in a layer.
    """
    for ids, equal_runs in collapsed.items():
        raise MeasureError(
            f"run_distance of {listed(ids, 'and')} is undefined in every layer: all {states} states of "
            f"{equal_runs} in layer 0 are equal; look for a collapsed run, or name other arms in `arms`."
        )


class _Distance(NamedTuple):
    value: float
    floor: float
    left_out: list[float]
    """The distance without each block of sentences; empty if the moments of the blocks were not held."""


def _moments(
    encoders: Sequence[Objective], reading: Reading, layers: range, *, sides: Sequence[_Sides], blocks: int
) -> dict[int, list[Moments]]:
    """Return the moments of each block of sentences, for some layers. Sides are the runs, then the runs with
    their tokens shuffled."""
    split, sample = reading
    block_N = sentence_blocks(sample.sentence_N, blocks)
    compared = [two for both in sides for two in both]
    parts: dict[int, list[Moments]] = {layer: [] for layer in layers}
    rng = np.random.default_rng(0)
    start = 0
    for batches in zip(*(states_in_batches(encoder, split, sample) for encoder in encoders), strict=True):
        shuffled = torch.from_numpy(rng.permutation(len(batches[0][0])))
        block_B = torch.from_numpy(block_N[start : start + len(shuffled)])
        start += len(shuffled)
        for layer, of_blocks in parts.items():
            states = [batch[layer] for batch in batches]
            states += [states_ND[shuffled] for states_ND in states]
            for block in block_B.unique().tolist():
                if block == len(of_blocks):
                    origin = of_blocks[0].origin if of_blocks else None
                    of_blocks.append(Moments(pairs=compared, origin=origin))
                of_blocks[block].add(*(to_device(states_ND[block_B == block]) for states_ND in states))
    return parts


def _compared(parts: list[Moments], sides: Sequence[_Sides]) -> list[dict[str, _Distance]]:
    """Return the distances of each pair of runs, by metric, without those that are undefined."""
    whole = sum(parts[1:], parts[0])
    widths = [len(vector_D) for vector_D in whole.origin]
    left_out: dict[tuple[int, str], list[float]] = {}
    for part in parts if len(parts) > 1 else ():
        others = whole - part
        for (place, (side_pair, _)), (metric, similarity) in itertools.product(enumerate(sides), METRICS.items()):
            enough = len(others) >= REFUSED_BELOW * max(widths[side] for side in side_pair)
            # It is also NaN if the only different states are in this block.
            value = 1 - or_nan(similarity, others.side, *side_pair) if enough else math.nan
            left_out.setdefault((place, metric), []).append(value)
    distances: list[dict[str, _Distance]] = [{} for _ in sides]
    for (place, (side_pair, chance)), (metric, similarity) in itertools.product(enumerate(sides), METRICS.items()):
        with suppress(UndefinedError):
            value = 1 - similarity(*map(whole.side, side_pair))
            floor = 1 - or_nan(similarity, whole.side, *chance)
            distances[place][metric] = _Distance(value, floor, left_out.get((place, metric), []))
    return distances


def _collapsed(parts: list[Moments], sides: Iterable[int]) -> list[int]:
    """Return those of some sides whose states are all equal."""
    whole = sum(parts[1:], parts[0])
    return [side for side in sides if math.isnan(or_nan(participation_ratio, whole.side, side))]


def _sides(runs: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[_Sides]:
    """Return the two sides of each pair, and the first side with the shuffled second side."""
    place = {run_id: i for i, run_id in enumerate(runs)}
    return [((place[first], place[second]), (place[first], len(runs) + place[second])) for first, second in pairs]


def _portions(layers: int, *, runs: int, pairs: int, width: int) -> tuple[list[range], int]:
    """Return the layers in portions, and the number of blocks of the text.

    The moments of a portion fit into the allowed memory, but a portion has at least one layer. If all blocks
    of one layer do not fit, there is only one block and no standard error.
    """
    each = 8 * width**2 * (2 * runs + 2 * pairs)
    blocks = BLOCKS if (BLOCKS + 1) * each <= MOMENTS_BYTES else 1
    size = max(1, min(layers, MOMENTS_BYTES // (each * (blocks + (blocks > 1)))))
    return [range(start, min(start + size, layers)) for start in range(0, layers, size)], blocks
