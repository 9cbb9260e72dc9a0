"""Selection of numbers that have a layer and a place along another axis: steps, or groups."""

import numpy as np
import pytest

from ablations import results
from ablations.spec.contrasts import Quantity
from reports.claims.select import NotMeasured, SeedTable, read

STEPS = (0, 10, 100, 1000)


def of(**more):
    return Quantity(measure="layer_change", metric="pwcca", **more)


def table(numbers_by_arm, *, places, leave_out=()):
    """A table with a row for each number of each arm, an array of seeds, places and layers."""
    return SeedTable(
        results.table(
            {"run_id": f"{arm}{seed}", "arm": arm, "seed": seed, "measure": "layer_change", "metric": "pwcca"}
            | {"step": 1000, "layer": layer, **places[place], "value": numbers_SPL[seed, place, layer]}
            for arm, numbers_SPL in numbers_by_arm.items()
            for seed, place, layer in np.ndindex(numbers_SPL.shape)
            if (arm, seed, place, layer) not in leave_out
        )
    )


@pytest.fixture(scope="module")
def numbers_SPL():
    return np.random.default_rng(5).normal(size=(3, 4, 5))


OF_LAYERS = {
    "top": lambda numbers: numbers[..., -1],
    "bottom": lambda numbers: numbers[..., 0],
    "sum": lambda numbers: numbers.sum(-1),
    "rise_to_top": lambda numbers: numbers[..., -1] - numbers[..., 1:-1].min(-1),
}


@pytest.mark.parametrize("layers", OF_LAYERS)
@pytest.mark.parametrize("axis", ["steps", "groups"])
def test_layers_become_one_number_at_each_step_or_group(numbers_SPL, layers, axis):
    places = [{"step": step} if axis == "steps" else {"group": f"rank-{step}"} for step in STEPS]
    groups = () if axis == "steps" else ("rank-*",)
    reading = read(
        table({"mlm": numbers_SPL}, places=places), of(layers=layers, groups=groups), ["mlm"], axis=axis
    )
    assert reading.positions == STEPS
    assert np.array_equal(reading.values_ASK, OF_LAYERS[layers](numbers_SPL)[None])


def test_one_layer_is_read_at_each_step_also_beside_groups_over_which_the_mean_is_taken(numbers_SPL):
    places = [{"step": step, "group": group} for step in STEPS for group in ("NOUN", "VERB")]
    doubled = np.concatenate([numbers_SPL, numbers_SPL + 1], axis=2).reshape(3, 8, 5)
    reading = read(table({"mlm": doubled}, places=places), of(layer=3, groups=("*",)), ["mlm"], axis="steps")
    assert np.allclose(reading.values_ASK[0], numbers_SPL[..., 3] + 0.5, rtol=0, atol=1e-15)  # one rounding


def test_arms_of_different_depth_are_read_at_the_steps_and_seeds_that_both_have(numbers_SPL):
    places = [{"step": step} for step in STEPS]
    deep = np.random.default_rng(6).normal(size=(3, 4, 7))
    lacking = {("deep", seed, 1, 6) for seed in range(3)} | {
        ("mlm", 1, 3, 2)
    }  # a layer at step 10, one at the end
    both = table({"mlm": numbers_SPL, "deep": deep}, places=places, leave_out=lacking)
    reading = read(both, of(layers="top"), ["mlm", "deep"], axis="steps")
    assert (reading.seeds, reading.positions) == ((0, 2), (0, 100, 1000))
    assert reading.left_out == ("seed 1: numbers of arm mlm are missing",)
    assert np.array_equal(
        reading.values_ASK, np.stack([numbers[[0, 2]][:, [0, 2, 3], -1] for numbers in (numbers_SPL, deep)])
    )


def test_too_few_common_steps_and_a_layer_that_is_not_there_are_not_measured(numbers_SPL):
    places = [{"step": step} for step in STEPS]
    with pytest.raises(NotMeasured, match=r"^layer_change pwcca has no layer 5$"):
        read(table({"mlm": numbers_SPL}, places=places), of(layer=5), ["mlm"], axis="steps")
    lacking = {("clm", seed, place, 2) for seed in range(3) for place in (0, 1)}
    both = table({"mlm": numbers_SPL, "clm": numbers_SPL}, places=places, leave_out=lacking)
    with pytest.raises(
        NotMeasured, match=r"^layer_change pwcca has 2 steps in common, but a learning curve needs 3$"
    ):
        read(both, of(layers="mean"), ["mlm", "clm"], axis="steps")
