"""Effects of claims from small tables, written by hand."""

from pydantic import TypeAdapter

from ablations import results
from ablations.spec.contrasts import Effect
from reports.claims.contrasts import effects
from reports.claims.select import SeedTable

SCORE = {"measure": "fine_tuning", "metric": "score"}


def effect(**fields):
    return TypeAdapter(Effect).validate_python(fields)


def run(arm, seed):
    return {"run_id": f"{arm}{seed}", "arm": arm, "seed": seed, "step": 8}


def rows(numbers, **more):
    """A row for each arm and seed: `numbers` has a list of seeds' values by arm."""
    shared = SCORE | more
    return [
        run(arm, seed) | shared | {"value": value}
        for arm, own in numbers.items()
        for seed, value in enumerate(own)
    ]


def found(effect, *parts):
    return effects(effect, SeedTable(results.table([row for part in parts for row in part])))


def values(effect, *parts):
    made = found(effect, *parts)
    assert list(made) == [""]
    return made[""].values.tolist()


def curve(arm, *seeds, to_next=False, measure="token_information"):
    """Rows over layers, a list of values for each seed; from layer 0, or from the step 0 -> 1."""
    shared = {"measure": measure, "metric": "m"}
    return [
        run(arm, seed) | shared | {"layer": layer, "layer_to": layer + 1 if to_next else None, "value": value}
        for seed, own in enumerate(seeds)
        for layer, value in enumerate(own)
    ]


OVER_LAYERS = {"measure": "token_information", "metric": "m"}
