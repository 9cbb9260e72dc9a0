"""Numbers of runs that effects read: seeds that are complete, layers, steps and groups."""

import numpy as np
import pytest

from ablations import results
from ablations.spec.contrasts import Quantity
from reports.claims.select import NotMeasured, SeedTable, read
from tests.support.effects import OVER_LAYERS, SCORE, curve, effect, found, rows, run, values
from tests.support.errors import error_text

GAIN = {"measure": "learning", "metric": "gain"}


def test_a_seed_that_one_arm_lacks_is_left_out_and_said():
    made = found(
        effect(kind="difference", of=SCORE, arm="mlm", minus="clm"),
        rows({"mlm": [1.0, 2.0, 3.0], "clm": [0.0, 0.0]}),
    )[""]
    assert (made.seeds, made.values.tolist()) == ((0, 1), [1.0, 2.0])
    assert made.left_out == ("seed 2: not in every arm",)


def test_groups_are_averaged_within_the_seed_and_a_seed_that_lacks_one_is_left_out():
    grouped = {**SCORE, "groups": ["*"], "without": ["other"]}
    table = [
        *rows({"mlm": [1.0, 2.0]}, group="sst2"),
        *rows({"mlm": [3.0]}, group="mrpc"),
        *rows({"mlm": [100.0, 100.0]}, group="other"),
        *rows({"mlm": [100.0, 100.0]}, group="sst2@50"),
        *rows({"mlm": [100.0, 100.0]}, group="blimp/island"),
        *rows({"mlm": [100.0, 100.0]}),
    ]
    made = found(effect(kind="difference", of=grouped, arm="mlm"), table)[""]
    assert (made.seeds, made.values.tolist()) == ((0,), [2.0])
    assert made.left_out == ("seed 1: numbers of arm mlm are missing",)


def test_numbers_are_read_at_the_last_step_and_against_their_floor_and_ceiling():
    table = [row | {"floor": 8.0, "ceiling": 16.0} for row in rows({"mlm": [2.0, 4.0]})]
    early = [row | {"step": 4, "value": 99.0} for row in table]
    for column, expected in (
        ("value", [2, 4]),
        ("floor", [8, 8]),
        ("gain", [6, 4]),
        ("share_of_floor", [0.25, 0.5]),
        ("share_of_ceiling", [0.125, 0.25]),
    ):
        assert values(effect(kind="difference", of=SCORE | {"read": column}, arm="mlm"), early, table) == expected


def test_a_seed_that_was_measured_at_an_earlier_step_alone_is_left_out():
    table = rows({"mlm": [2.0, 4.0, 6.0], "clm": [1.0, 1.0, 1.0]})
    table = [row | ({"step": 4} if (row["arm"], row["seed"]) == ("clm", 2) else {}) for row in table]
    made = found(effect(kind="difference", of=SCORE, arm="mlm", minus="clm"), table)[""]
    assert (made.seeds, made.values.tolist()) == ((0, 1), [1.0, 3.0])
    assert made.left_out[0] == "seed 2: numbers of arm clm are missing"


def test_distances_to_another_seed_are_no_numbers_of_a_seed():
    of = {"measure": "run_distance", "metric": "pwcca", "groups": ["clm"]}
    pairs = [
        run("mlm", seed)
        | {"measure": "run_distance", "metric": "pwcca", "group": "clm", "value": value}
        | {"other_run_id": f"clm{other}"}
        for seed, other, value in ((0, 0, 0.5), (1, 1, 0.6), (0, 1, 0.9), (1, 0, 0.8))
    ]
    others = [
        row | {"run_id": f"clm{row['seed']}", "arm": "clm", "group": "mlm", "other_run_id": None}
        for row in pairs[:2]
    ]
    assert values(effect(kind="difference", of=of, arm="mlm", at_least=0.0), pairs, others) == [0.5, 0.6]


def test_two_rows_for_one_number_are_refused():
    of = SCORE | {"groups": ["sst2@*", "cola@*"]}
    table = [*rows({"mlm": [1.0]}, group="sst2@10"), *rows({"mlm": [2.0]}, group="cola@10")]
    table += [*rows({"mlm": [3.0]}, group="sst2@20"), *rows({"mlm": [4.0]}, group="cola@20")]
    assert error_text(
        NotMeasured,
        lambda: read(
            SeedTable(results.table(table)), effect(kind="difference", of=of, arm="mlm").of, ["mlm"], axis="groups"
        ),
    ) == ("fine_tuning score has several numbers for one place of the effect; name fewer groups")


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        *(("top", 7.0), ("bottom", 5.0), ("mean", 5.0), ("sum", 15.0), ("drop", -2.0)),
        *(("fall_to_inner", 2.0), ("rise_to_top", 4.0)),
    ],
)
def test_layers_come_to_one_number(layers, expected):
    of = OVER_LAYERS | {"layers": layers}
    assert values(effect(kind="difference", of=of, arm="mlm"), curve("mlm", [5.0, 3.0, 7.0])) == [expected]


@pytest.mark.parametrize("way", [{"layers": name} for name in ("top", "bottom", "mean", "sum")] + [{"layer": 1}])
def test_the_one_step_of_an_encoder_of_two_layers_is_a_number(way):
    table = curve("mlm", [100.0, 3.0], to_next=True)
    assert values(effect(kind="difference", of=OVER_LAYERS | way, arm="mlm"), table) == [3.0]


def test_over_one_step_nothing_drops_and_nothing_rises():
    table = curve("mlm", [100.0, 3.0], to_next=True)
    drop = {"kind": "difference", "of": OVER_LAYERS | {"layers": "drop"}, "arm": "mlm"}
    rise = {"kind": "trend", "of": OVER_LAYERS, "arms": ["mlm"], "over": "layers"}
    sentence = "token_information m has 1 of the layers that the effect covers, but the effect needs 2"
    for fields in (drop, rise):
        with pytest.raises(NotMeasured, match=f"^{sentence}$"):
            found(effect(**fields), table)


def test_two_layers_have_none_inside():
    table = curve("mlm", [5.0, 3.0]) + curve("clm", [5.0, 3.0])
    of = OVER_LAYERS | {"layers": "rise_to_top"}
    with pytest.raises(NotMeasured, match=r"^token_information m has 2 of the layers .* but the effect needs 3$"):
        found(effect(kind="difference", of=of, arm="mlm", minus="clm"), table)


@pytest.mark.parametrize(("end", "other"), [("bottom", 2), ("top", 0)])
def test_one_end_is_read_where_the_other_has_no_number(end, other):
    of = OVER_LAYERS | {"layers": end}
    table = curve("mlm", [5.0, 3.0, 7.0], [6.0, 3.0, 8.0])
    for row in table:
        row["value"] = float("nan") if row["layer"] == other else row["value"]
    read_end = effect(kind="difference", of=of, arm="mlm")
    assert values(read_end, table) == ([5.0, 6.0] if end == "bottom" else [7.0, 8.0])
    for row in table:
        row["value"] = float("nan") if row["layer"] == 2 - other else row["value"]
    assert (
        error_text(NotMeasured, found, read_end, table)
        == f"token_information m has no number of arm mlm in layer {2 - other}"
    )


def test_the_lowest_layer_is_that_of_each_run():
    table = curve("mlm", [5.0, 1.0, 3.0, 4.0], [5.0, 3.0, 2.0, 4.0]) + curve("clm", [5.0] * 4, [5.0] * 4)
    of = OVER_LAYERS | {"layers": "rise_to_top"}
    assert values(effect(kind="difference", of=of, arm="mlm", minus="clm"), table) == [3.0, 2.0]


def test_of_steps_between_layers_those_from_layer_1_on_count():
    of = OVER_LAYERS | {"layers": "sum"}
    table = curve("mlm", [100.0, 3.0, 7.0], to_next=True)
    far = [table[0] | {"layer": 0, "layer_to": 3, "value": 100.0}]
    assert values(effect(kind="difference", of=of, arm="mlm"), table, far) == [10.0]
    of = OVER_LAYERS | {"layer": 2}
    assert values(effect(kind="difference", of=of, arm="mlm"), table) == [7.0]


def test_the_area_under_a_learning_curve_is_its_mean_up_to_a_share():
    table = [
        run("mlm", 0) | SCORE | {"step": step, "value": value} for step, value in ((0, 0.0), (50, 1.0), (100, 1.0))
    ]
    assert values(effect(kind="difference", of=SCORE | {"steps": "area"}, arm="mlm"), table) == [0.75]
    half = SCORE | {"steps": "area", "until": 0.25}
    assert values(effect(kind="difference", of=half, arm="mlm"), table) == [0.25]


def test_a_share_of_training_counts_from_its_start_and_not_from_the_first_checkpoint():
    table = [
        run(arm, 0) | SCORE | {"step": step, "value": value}
        for arm in ("mlm", "clm")
        for step, value in ((20, 0.0), (40, 2.0), (60, 4.0), (100, 8.0))
    ]
    half = SCORE | {"steps": "area", "until": 0.5}
    assert values(effect(kind="difference", of=half, arm="mlm"), table) == [pytest.approx(1.5)]  # of 0 to 3
    ahead = effect(kind="ahead", of=SCORE, arm="mlm", over="clm", since=0.35)
    assert list(found(ahead, table)) == ["step-40", "step-60", "step-100"]
    early = SCORE | {"steps": "area", "until": 0.1}
    assert error_text(NotMeasured, lambda: values(effect(kind="difference", of=early, arm="mlm"), table)) == (
        "fine_tuning score is first measured at step 20, after the 10% of training (until) at which the effect "
        "reads it"
    )


def test_a_seed_with_fewer_checkpoints_is_left_out_and_shortens_no_other_course():
    def learning(seed, steps):
        return [run("mlm", seed) | SCORE | {"step": step, "value": float(step)} for step in steps]

    of = SCORE | {"steps": "area"}
    whole = [row for seed in (0, 1) for row in learning(seed, (0, 50, 100))]
    made = found(effect(kind="difference", of=of, arm="mlm"), whole, learning(2, (50, 100)))[""]
    assert (made.seeds, made.values.tolist()) == ((0, 1), [50.0, 50.0])
    assert made.left_out == ("seed 2: numbers of arm mlm are missing",)


def test_the_area_is_of_each_arms_own_course_however_long_it_is():
    """Both have a mean of 0.75; up to step 100, which both have, that of the long one is 0.25."""

    def learning(arm, seed, steps):
        return [
            run(arm, seed) | SCORE | {"step": step, "value": v}
            for step, v in zip(steps, (0.0, 1.0, 1.0), strict=True)
        ]

    of = SCORE | {"steps": "area"}
    both = learning("mlm", 0, (0, 200, 400)), learning("clm", 0, (0, 50, 100))
    [difference] = values(effect(kind="difference", of=of, arm="mlm", minus="clm"), *both)
    assert difference == 0.0


def test_the_way_is_each_arms_own_whatever_its_height():
    """At a quarter of training one has 3 of its 4 nats, the other 10 of its 40. One learns most before its
    first checkpoint, which is left out by a share of the change between checkpoints: there it is the slower,
    with 0.2 of 1.2 nats against 9 of 39."""
    of = GAIN | {"steps": "way", "until": 0.25}

    def learning(arm, own, steps=(40, 50, 200)):
        return [run(arm, 0) | GAIN | {"step": step, "value": v} for step, v in zip(steps, own, strict=True)]

    table = learning("clm", [2.8, 3.0, 4.0]), learning("mlm", [1.0, 10.0, 40.0])
    assert values(effect(kind="difference", of=of, arm="clm", minus="mlm"), *table) == [0.75 - 0.25]
    alone = effect(kind="difference", of=of, arm="clm")
    for nothing_learned in ([0.0, 0.0, 0.0], [-3.0, -2.0, -1.0]):
        assert np.isnan(values(alone, learning("clm", nothing_learned))).all()
    halfway = learning("clm", [1.0, 4.0, 5.0], steps=(0, 100, 200))
    assert values(alone, halfway) == [2.5 / 5.0]
    assert error_text(
        NotMeasured, lambda: values(alone, learning("clm", [3.0, 4.0, 5.0], steps=(1500, 2000, 4000)))
    ) == (
        "learning gain is first measured at step 1,500, after the 25% of training (until) at which the "
        "effect reads it"
    )


@pytest.mark.parametrize("percent", range(1, 100))
def test_a_checkpoint_at_a_share_of_training_is_at_that_share(percent):
    """0.57 * 100 is less than 57, and 0.55 * 100 is more than 55."""
    share = percent / 100
    learning = [run("mlm", 0) | GAIN | {"step": step, "value": float(step)} for step in (percent, 100, 200)]
    way = effect(kind="difference", of=GAIN | {"steps": "way", "until": share / 2}, arm="mlm")
    assert values(way, learning) == pytest.approx([share / 2])
    courses = [
        run(arm, 0) | GAIN | {"step": step, "value": 1.0} for arm in ("mlm", "clm") for step in (0, percent, 100)
    ]
    ahead = effect(kind="ahead", of=GAIN, arm="mlm", over="clm", since=share)
    assert list(found(ahead, courses)) == [f"step-{percent}", "step-100"]


REAL_OR_NOT = {**SCORE, "groups": ["sst2", "trec"], "or_groups": ["language_topic"]}


def test_a_named_set_of_tasks_is_read_whole_or_another_in_its_place():
    difference = effect(kind="difference", of=REAL_OR_NOT, arm="mlm")
    real = [*rows({"mlm": [1.0]}, group="sst2"), *rows({"mlm": [3.0]}, group="trec")]
    built_in = rows({"mlm": [100.0]}, group="language_topic")
    for table, expected, groups in (
        (real, 2.0, ("sst2", "trec")),
        ([*real, *built_in], 2.0, ("sst2", "trec")),
        ([*built_in, real[0]], 100.0, ("language_topic",)),
    ):
        made = found(difference, table)[""]
        assert (made.values.tolist(), made.groups) == ([expected], groups)
    assert error_text(NotMeasured, found, difference, real[:1]) == (
        "fine_tuning score has no rows of trec, or else of language_topic, which the claim names"
    )


def of_tasks(**scores_by_arm):
    """A row for each arm, task and seed."""
    return [
        row
        for arm, by_task in scores_by_arm.items()
        for task, scores in by_task.items()
        for row in rows({arm: scores}, group=task)
    ]


def test_both_sides_of_a_difference_have_the_same_tasks():
    """Otherwise the mean of one side would be over easier tasks. A seed that lacks a task is left out."""
    both = {"sst2": [0.5, 0.6, 0.7], "mrpc": [0.3, 0.3, 0.3]}
    claim = effect(kind="difference", of=SCORE | {"groups": ["*"]}, arm="a", minus="b")
    (whole,) = found(claim, of_tasks(a=both, b=both)).values()
    assert whole.values.tolist() == [0.0, 0.0, 0.0]
    assert (
        error_text(NotMeasured, lambda: found(claim, of_tasks(a={"sst2": both["sst2"]}, b=both)))
        == "fine_tuning score has no rows of arm a in mrpc, which others have"
    )
    (two,) = found(claim, of_tasks(a=both | {"mrpc": [0.3, 0.3]}, b=both)).values()
    assert (two.seeds, two.left_out) == ((0, 1), ("seed 2: numbers of arm a are missing",))
    instead = effect(kind="difference", of=SCORE | {"groups": ["sst2"], "or_groups": ["subj"]}, arm="a", minus="b")
    with pytest.raises(NotMeasured):
        found(instead, of_tasks(a={"sst2": [0.5] * 3}, b={"subj": [0.5] * 3}))


def test_arms_of_different_depth_are_compared_by_their_tops():
    depths = [curve("d2", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), curve("d3", *[[1.0, 2.0, 3.0, 4.0]] * 2)]
    depths.append(curve("d4", *[[1.0, 2.0, 3.0, 4.0, 6.0]] * 2))
    of = OVER_LAYERS | {"layers": "top"}
    (rise,) = found(effect(kind="trend", of=of, over="arms", arms=["d2", "d3", "d4"]), *depths).values()
    assert rise.values.tolist() == pytest.approx([3.0, 3.0])
    (mean,) = found(effect(kind="difference", of=of, arm=["d3", "d4"], minus="d2"), *depths).values()
    assert mean.values.tolist() == [2.0, 2.0]


def test_a_number_that_is_not_finite_stays_and_one_that_is_absent_goes():
    claim = effect(kind="difference", of=SCORE, arm="a", minus="b")
    diverged = rows({"a": [1.0, float("inf"), 1.0], "b": [0.0, 0.0, 0.0]})
    assert found(claim, diverged)[""].seeds == (0, 1, 2)
    absent = rows({"a": [1.0, float("nan"), 1.0], "b": [0.0, 0.0, 0.0]})
    assert found(claim, absent)[""].seeds == (0, 2)


@pytest.mark.parametrize("course", [{"steps": "area"}, {"steps": "way", "until": 0.7}], ids=["area", "way"])
def test_arms_with_the_same_curve_do_not_differ_by_their_checkpoints(course):
    """The area from a later first checkpoint on lies above that of the whole curve."""
    curves = {"a": (4, 6, 8), "b": (0, 1, 2, 4, 6, 8)}
    table = [
        run(arm, seed) | GAIN | {"step": step, "value": step**0.5}
        for arm, steps in curves.items()
        for seed in range(3)
        for step in steps
    ]
    claim = effect(kind="difference", of=GAIN | course, arm="a", minus="b")
    assert values(claim, table) == pytest.approx([0, 0, 0])
    shorter = [row for row in table if row["arm"] == "a" or row["step"] <= 6]
    assert values(claim, shorter) != pytest.approx([0, 0, 0])  # each over its own training


@pytest.mark.parametrize("layers", ["top", "sum", "drop"])
def test_an_arm_without_a_number_in_its_top_layer_is_not_read_as_if_it_had_fewer_layers(layers):
    """PWCCA of a layer that is the same for every token is no number."""
    of = OVER_LAYERS | {"layers": layers}
    a, b = curve("a", *[[1.0, 1.0, 1.0]] * 3), curve("b", *[[1.0, 1.0, float("nan")]] * 3)
    with pytest.raises(NotMeasured, match=r"^token_information m has no number of arm b in layer 2$"):
        found(effect(kind="difference", of=of, arm="a", minus="b"), a, b)
    some = curve("b", [1.0, 1.0, float("nan")], *[[0.0, 0.0, 1.0]] * 2)
    made = found(effect(kind="difference", of=of, arm="a", minus="b"), a, some)[""]
    assert (made.seeds, made.left_out) == ((1, 2), ("seed 0: numbers of arm b are missing",))
    lower = effect(kind="difference", of=OVER_LAYERS | {"layer": 1}, arm="a", minus="b")
    assert found(lower, a, b)[""].seeds == (0, 1, 2)  # reads no other layer


def test_forms_of_curves_with_different_numbers_of_layers_are_not_compared():
    curves = curve("a", *[[1.0, 0.5, 0.6, 1.0]] * 3), curve("b", *[[1.0, 0.5, 1.0]] * 3)
    with pytest.raises(NotMeasured, match=r"^token_information m has no number of arm b in layer 3$"):
        found(effect(kind="shape", of=OVER_LAYERS, arm="a", minus="b", form="rise_to_top"), *curves)


def test_an_arm_whose_last_checkpoint_was_not_measured_is_not_compared_at_an_earlier_one():
    a = [run("mlm", seed) | SCORE | {"step": step, "value": 1.0} for seed in range(3) for step in (0, 2, 5, 8)]
    b = [run("clm", seed) | SCORE | {"step": step, "value": 0.0} for seed in range(3) for step in (0, 2, 5)]
    loss = [run("clm", seed) | {"measure": "validation", "metric": "loss", "value": 2.0} for seed in range(3)]
    ahead = effect(kind="ahead", of=SCORE, arm="mlm", over="clm")
    difference = effect(kind="difference", of=SCORE, arm="mlm", minus="clm")
    assert list(found(ahead, a, b)) == ["step-0", "step-2", "step-5"]  # clm was trained for five steps
    for compared, sentence in (
        (ahead, "fine_tuning score has no rows of arm clm at its last step, 8"),
        (difference, "fine_tuning score has no rows of arm clm"),
    ):
        with pytest.raises(NotMeasured, match=f"^{sentence}$"):
            found(compared, a, b, loss)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"kind": "difference", "of": SCORE, "arm": "mt"}, "fine_tuning score has no rows of arm mt"),
        (
            {"kind": "difference", "of": SCORE | {"groups": ["sst2", "x"]}, "arm": "mlm"},
            "fine_tuning score has no rows of arm mlm in sst2, x",
        ),
        (
            {"kind": "difference", "of": SCORE | {"layers": "top"}, "arm": "mlm"},
            "fine_tuning score has no rows of arm mlm",
        ),
        (
            {"kind": "difference", "of": SCORE | {"read": "share_of_ceiling"}, "arm": "mlm"},
            "fine_tuning score has no rows of arm mlm with a ceiling",
        ),
        (
            {"kind": "ahead", "of": SCORE, "arm": "mlm", "over": "clm"},
            "fine_tuning score has 1 step in common, but a learning curve needs 3",
        ),
        (
            {"kind": "apart", "metric": "pwcca", "pairs": [["mlm", "clm"]]},
            "run_distance pwcca has no rows of mlm and clm at different seeds from layer 1 on; set across_seeds: "
            "true in the measure",
        ),
        (
            {"kind": "shape", "of": {"measure": "a", "metric": "b"}, "arm": "mlm", "form": "rise_to_top"},
            "a b has two layers and no inner layer",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_there_is_a_sentence(fields, sentence):
    table = rows({"mlm": [1.0, 2.0, 3.0], "clm": [1.0, 2.0, 3.0]})
    two_layers = [row | {"measure": "a", "metric": "b"} for row in curve("mlm", [1.0, 2.0], [1.0, 2.0])]
    assert error_text(NotMeasured, lambda: found(effect(**fields), table, two_layers)) == sentence


# Layers at each step or group ---------------------------------------------------------------------------

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
