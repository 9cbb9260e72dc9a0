"""How far runs lie apart, layer by layer: arms from arms, arms from their own seeds."""

import numpy as np

from ablations.effects import Apart
from reports.jackknife import distances_between_seeds
from reports.readings import Array, NotMeasured, Rows
from reports.seed_effects import SeedEffects


def apart(effect: Apart, rows: Rows) -> dict[str, SeedEffects]:
    """How much further apart some pairs of arms lie, at each layer on its own: all layers must hold.

    A pair of arms has one distance a seed. A pair of seeds belongs to two seeds, so the distances within an arm
    come in by the jackknife over seeds, and have no more weight than there are seeds.
    """
    pairs = [*effect.pairs, *effect.than]
    seeds = _seeds_of_all(rows, {arm for pair in pairs for arm in pair})
    between = [_between_arms(rows, effect.metric, pair, seeds) for pair in pairs]
    layers = sorted(set.intersection(*(set(found) for found in between)))
    layers = [layer for layer in layers if layer >= effect.from_layer]
    if not layers:
        raise NotMeasured(f"run_distance {effect.metric} has no layer from {effect.from_layer} on")
    if not effect.than and len(seeds) < 3:
        return {"": SeedEffects(tuple(seeds), np.full(len(seeds), np.nan))}
    parts = {}
    for layer in layers:
        far = np.mean([found[layer] for found in between[: len(effect.pairs)]], axis=0)
        if effect.than:
            near = np.mean([found[layer] for found in between[len(effect.pairs) :]], axis=0)
        else:
            arms = dict.fromkeys(arm for pair in effect.pairs for arm in pair)
            near = np.mean([_between_seeds(rows, effect.metric, arm, seeds, layer) for arm in arms], axis=0)
        parts[f"layer-{layer}"] = SeedEffects(tuple(seeds), far - near)
    return parts


def _seeds_of_all(rows: Rows, arms: set[str]) -> list[int]:
    return [seed for seed in rows.seeds_of(arms) if all(seed in rows.seeds.get(arm, []) for arm in arms)]


def _between_arms(rows: Rows, metric: str, pair: tuple[str, str], seeds: list[int]) -> dict[int, Array]:
    """By layer the distance of two arms at each seed; the mean where both directions were compared."""
    found: dict[int, dict[int, list[float]]] = {}
    for first, second in (pair, pair[::-1]):
        for seed in seeds:
            for cell in rows.last(first, seed, "run_distance", metric):
                same_seed = rows.seed_of.get(cell.other_run_id or "") == seed
                if cell.group == second and same_seed and cell.layer is not None:
                    found.setdefault(cell.layer, {}).setdefault(seed, []).append(cell.value)
    whole = {layer: own for layer, own in found.items() if len(own) == len(seeds)}
    if not whole:
        raise NotMeasured(f"run_distance {metric} has no rows of {pair[0]} and {pair[1]} at every seed")
    return {layer: np.array([np.mean(own[seed]) for seed in seeds]) for layer, own in whole.items()}


def _between_seeds(rows: Rows, metric: str, arm: str, seeds: list[int], layer: int) -> Array:
    """Pseudo-values of the mean distance between the seeds of an arm."""
    place = {seed: index for index, seed in enumerate(seeds)}
    total = np.zeros((len(seeds), len(seeds)))
    count = np.zeros_like(total)
    for seed in seeds:
        for cell in rows.last(arm, seed, "run_distance", metric):
            other = rows.seed_of.get(cell.other_run_id or "")
            if cell.group == arm and cell.layer == layer and other in place and other != seed:
                for here in ((place[seed], place[other]), (place[other], place[seed])):
                    total[here] += cell.value
                    count[here] += 1
    if (count + np.eye(len(seeds)) == 0).any():
        raise NotMeasured(f"run_distance {metric} lacks pairs of the seeds of {arm} at layer {layer}")
    return distances_between_seeds(total / np.maximum(count, 1))
