"""Judge the claims of a skeleton on invented numbers."""

import numpy as np

from ablations import results
from ablations.catalogue import layers_of
from ablations.metric_groups import groups_of
from reports.claims.outcomes import outcomes
from reports.claims.select import SeedTable


def rows_of(claim, seeds=3):
    """Noise wherever the effects of a claim look."""
    rng = np.random.default_rng(0)
    arms = claim.needs.arms
    for of in [of for effect in claim.parts.values() for of in effect.quantities()]:
        has_layers = layers_of(of.measure) == "all" or (layers_of(of.measure) == "some" and of.layers != "none")
        there = groups_of(of.measure, of.metric)
        named = (name for name in of.groups if "*" not in name)
        group = next(iter((*named, *there.names, *there.examples, "any"))) if of.groups else None
        for arm in arms:
            for seed in range(seeds):
                for layer in range(4) if has_layers else [None]:
                    row = {"run_id": f"{arm}-{seed}", "arm": arm, "seed": seed, "step": 100, "layer": layer}
                    row |= {"measure": of.measure, "metric": of.metric, "experiment": "x", "group": group}
                    to = layer + 1 if of.measure == "layer_change" else None
                    if of.measure != "run_distance":
                        yield row | {"layer_to": to, "value": rng.normal(), "floor": rng.normal()}
                        continue
                    others = [(other, seed) for other in arms if other > arm]
                    others += [(arm, other) for other in range(seed + 1, seeds)]
                    for other, other_seed in others:
                        pair = {"group": other, "other_run_id": f"{other}-{other_seed}"}
                        yield row | pair | {"value": rng.normal(), "floor": 1.0}


def verdict(claim):
    table = SeedTable(results.table(rows_of(claim)))
    (outcome,) = outcomes([claim], table, arms=claim.needs.arms, measures=claim.needs.measures).values()
    assert outcome.item.missing == ()
    return outcome.judgement.verdict
