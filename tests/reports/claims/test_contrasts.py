"""Effects, computed from small tables by hand."""

import itertools

import numpy as np
import pytest
from pydantic import TypeAdapter

from ablations import results
from ablations.spec.contrasts import Effect
from reports.claims import select
from reports.claims.contrasts import effects
from reports.claims.select import NotMeasured, SeedTable

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


def test_difference_is_paired_by_seed_and_not_by_order():
    a = rows({"mlm": [3.0, 5.0, 8.0]})
    b = rows({"clm": [1.0, 1.5, 2.0]})[::-1]
    assert values(effect(kind="difference", of=SCORE, arm="mlm", minus="clm"), a, b) == [2.0, 3.5, 6.0]
    assert values(effect(kind="difference", of=SCORE, arm="clm", minus="mlm"), a, b) == [-2.0, -3.5, -6.0]
    assert values(effect(kind="difference", of=SCORE, arm="mlm", at_least=4.0), a) == [-1.0, 1.0, 4.0]
    assert values(effect(kind="difference", of=SCORE, arm="mlm", at_most=4.0), a) == [1.0, -1.0, -4.0]


def test_against_a_bound_what_was_measured_stands_beside_it():
    a = rows({"mlm": [3.0, 5.0, 8.0]})
    (low,) = found(effect(kind="difference", of=SCORE, arm="mlm", at_least=4.0), a).values()
    (high,) = found(effect(kind="difference", of=SCORE, arm="mlm", at_most=4.0), a).values()
    assert dict(low.shown_numbers) == {"measured": pytest.approx(16 / 3), "at_least": 4.0}
    assert dict(high.shown_numbers) == {"measured": pytest.approx(16 / 3), "at_most": 4.0}
    (free,) = found(effect(kind="difference", of=SCORE, arm="mlm", at_least=0.0), a).values()
    assert dict(free.shown_numbers) == {}


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
    for read, expected in (
        ("value", [2, 4]),
        ("floor", [8, 8]),
        ("gain", [6, 4]),
        ("share_of_floor", [0.25, 0.5]),
        ("share_of_ceiling", [0.125, 0.25]),
    ):
        assert values(effect(kind="difference", of=SCORE | {"read": read}, arm="mlm"), early, table) == expected


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
    with pytest.raises(NotMeasured) as error:
        select.read(
            SeedTable(results.table(table)), effect(kind="difference", of=of, arm="mlm").of, ["mlm"], axis="groups"
        )
    assert str(error.value) == (
        "fine_tuning score has several numbers for one place of the effect; name fewer groups"
    )


def curve(arm, *seeds, to_next=False, measure="token_information"):
    """Rows over layers, a list of values for each seed; from layer 0, or from the step 0 -> 1."""
    shared = {"measure": measure, "metric": "m"}
    return [
        run(arm, seed) | shared | {"layer": layer, "layer_to": layer + 1 if to_next else None, "value": value}
        for seed, own in enumerate(seeds)
        for layer, value in enumerate(own)
    ]


OVER_LAYERS = {"measure": "token_information", "metric": "m"}


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
    """At a quarter of training one has made 3 of its 4 nats, the other 10 of its 40."""
    of = SCORE | {"steps": "way", "until": 0.25}

    def learning(arm, own):
        return [
            run(arm, 0) | SCORE | {"step": step, "value": v} for step, v in zip((0, 50, 200), own, strict=True)
        ]

    table = learning("clm", [1.0, 4.0, 5.0]), learning("mlm", [-20.0, -10.0, 20.0])
    assert values(effect(kind="difference", of=of, arm="clm", minus="mlm"), *table) == [0.75 - 0.25]
    flat = learning("clm", [1.0, 1.0, 1.0])
    assert not np.isfinite(values(effect(kind="difference", of=of, arm="clm"), flat)).any()


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
    with pytest.raises(NotMeasured) as error:
        found(difference, real[:1])
    assert str(error.value) == (
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
    with pytest.raises(NotMeasured) as error:
        found(claim, of_tasks(a={"sst2": both["sst2"]}, b=both))
    assert str(error.value) == "fine_tuning score has no rows of arm a in mrpc, which others have"
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


def test_effects_against_a_bound_say_so_and_differences_do_not():
    table = rows({"mlm": [1.0, 2.0, 3.0], "clm": [1.0, 1.0, 2.0], "corpus": [0.0, 0.0, 1.0]})
    arms = {"kind": "difference", "of": SCORE, "arm": "mlm"}
    for fields, bounded in (
        (arms, False),
        (arms | {"minus": "clm"}, False),
        (arms | {"at_most": 0}, False),  # none of what is measured
        (arms | {"at_most": 0.1}, True),
        (arms | {"minus": "clm", "at_least": -0.01}, True),
    ):
        assert found(effect(**fields), table)[""].bounded == bounded
    share = {"kind": "share", "of": SCORE, "kept_by": "clm", "whole": "mlm", "none": "corpus", "smallest_gain": 1}
    assert found(effect(**share, at_least=0.6), table)[""].bounded
    assert found(effect(**share), table)[""].bounded  # a ratio to an estimated gain, so nothing is equivalent
    layers = curve("mlm", [1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
    shapes = {"kind": "shape", "of": OVER_LAYERS, "arm": "mlm"}
    assert not found(effect(**shapes, form="rise_to_top"), layers)[""].bounded
    assert found(effect(**shapes, form="top_over_lowest", at_least=1.2), layers)[""].bounded


def test_a_shape_comes_with_what_each_layer_shows_and_less_another_arms():
    curves = np.random.default_rng(0).normal(size=(2, 3, 5))
    table = [row for arm, own in zip("ab", curves, strict=True) for row in curve(arm, *own.tolist())]
    shapes = {"kind": "shape", "of": OVER_LAYERS, "arm": "a"}
    for form, one, two in (("rise_to_top", (3, 1), (3, 3)), ("top_is_lowest", (1, 4), (4, 4))):
        assert found(effect(**shapes, form=form), table)[""].at_layers_LMS.shape == (*one, 3)
        assert found(effect(**shapes, form=form, minus="b"), table)[""].at_layers_LMS.shape == (*two, 3)
    each = found(effect(**shapes, form="rise_to_top", minus="b"), table)[""].at_layers_LMS
    expected = (curves[0][:, 4] - curves[0][:, 1]) - (curves[1][:, 4] - curves[1][:, 3])
    assert each[0, 2] == pytest.approx(expected)


def test_trend_over_arms_in_their_order_and_over_layers():
    table = rows({"a": [1.0, 1.0], "b": [2.0, 4.0], "c": [5.0, 1.0]})
    made = found(effect(kind="trend", of=SCORE, arms=["a", "b", "c"]), table)[""]
    assert made.values.tolist() == pytest.approx([4.0, 0.0])
    assert 0 < made.page < 1
    assert made.places == 3
    falling = effect(kind="trend", of=OVER_LAYERS, arms=["mt"], over="layers", direction="falling")
    assert values(falling, curve("mt", [3.0, 2.0, 1.0], [1.0, 2.0, 3.0])) == [2.0, -2.0]


def test_trend_over_groups_goes_by_their_numbers():
    of = {**SCORE, "groups": ["ratio=*"]}
    table = [
        row for r, v in ((0.8, 9.0), (0.15, 1.0), (0.4, 5.0)) for row in rows({"mlm": [v, v]}, group=f"ratio={r}")
    ]
    assert values(effect(kind="trend", of=of, arms=["mlm"], over="groups"), table) == [8.0, 8.0]


def test_shape_is_judged_at_the_layer_of_the_other_seeds_and_names_it():
    table = curve("mlm", [9.0, 0.0, 5.0, 9.0], [9.0, 5.0, 1.0, 9.0], [9.0, 5.0, 1.0, 9.0])
    made = found(effect(kind="shape", of=OVER_LAYERS, arm="mlm", form="rise_to_top"), table)[""]
    assert (made.values.tolist(), made.chosen) == ([4.0, 4.0, 4.0], (2, 1, 1))
    flat = curve("clm", *[[1.0, 1.0, 1.0, 2.0]] * 3)
    less = effect(kind="shape", of=OVER_LAYERS, arm="mlm", minus="clm", form="rise_to_top")
    assert values(less, table, flat) == [3.0, 3.0, 3.0]


def test_one_seed_has_nobody_to_choose_its_layer():
    made = found(
        effect(kind="shape", of=OVER_LAYERS, arm="mlm", form="rise_to_top"), curve("mlm", [3.0, 1.0, 2.0])
    )
    assert np.isnan(made[""].values).all()


SHARE = {"kind": "share", "of": SCORE, "kept_by": "n1", "whole": "mlm", "none": "corpus", "smallest_gain": 0.1}


def test_share_is_of_means_and_comes_with_the_gain_it_is_of():
    table = rows({"mlm": [1.0, 2.0, 3.0], "corpus": [0.0, 0.0, 1.0], "n1": [0.7, 1.5, 2.3]})
    made = found(effect(**SHARE, at_least=0.6), table)
    assert list(made) == ["", "gain"]
    assert made[""].values.mean() == pytest.approx(3.5 / 5 - 0.6)
    assert made["gain"].values == pytest.approx(np.array([0.9, 1.9, 1.9]))
    assert (made["gain"].smallest, made["gain"].condition) == (0.1, True)
    in_words = found(effect(**SHARE, at_least=0.6, unit="of the gain"), table)
    assert {name: part.unit for name, part in in_words.items()} == {"": "of the gain", "gain": ""}
    assert made[""].shown_numbers["share"] == pytest.approx(0.7)


def test_shares_on_two_kinds_of_tasks_are_compared():
    here = rows({"mlm": [1.0, 1.1, 0.9], "corpus": [0.0, 0.1, 0.0], "n1": [0.8, 0.9, 0.75]})
    there = rows(
        {"mlm": [1.0, 1.0, 1.0], "corpus": [0.5, 0.5, 0.5], "n1": [0.6, 0.6, 0.6]}, measure="minimal_pairs"
    )
    of = {"measure": "minimal_pairs", "metric": "score"}
    made = found(effect(**SHARE, at_least=0.2, than_of=of), here, there)
    assert list(made) == ["", "gain", "gain-elsewhere"]
    assert made[""].values.mean() == pytest.approx(2.35 / 2.9 - 0.2 - 0.2, abs=1e-3)  # the jackknife's correction
    assert made[""].shown_numbers["share_elsewhere"] == pytest.approx(0.2)


def test_no_gain_at_all_is_no_number():
    made = found(effect(**SHARE), rows({"mlm": [1.0, 1.0], "corpus": [1.0, 1.0], "n1": [0.5, 0.6]}))
    assert not np.isfinite(made[""].values).any()


@pytest.mark.parametrize(
    ("arm", "minus", "expected"),
    [(["c", "d"], ["a", "b"], 1.5), (["b", "d"], ["a", "c"], 3.5), (["a", "d"], ["b", "c"], 1.5), ("d", "a", 5.0)],
)
def test_several_arms_stand_for_their_mean(arm, minus, expected):
    table = rows({"a": [1.0], "b": [3.0], "c": [1.0], "d": [6.0]})
    assert values(effect(kind="difference", of=SCORE, arm=arm, minus=minus), table) == [expected]


def test_a_mean_over_arms_takes_the_seeds_that_all_have():
    table = rows({"a": [1.0, 2.0, 3.0], "b": [3.0, 4.0], "c": [0.0, 0.0, 0.0]})
    part = found(effect(kind="difference", of=SCORE, arm=["a", "b"], minus="c"), table)[""]
    assert (part.seeds, part.values.tolist()) == ((0, 1), [2.0, 3.0])
    assert part.left_out == ("seed 2: numbers of arm b are missing",)


def test_optimum_is_the_distance_of_the_top_from_its_bounds():
    places = {"a": 0.0, "b": 1.0, "c": 2.0, "d": 4.0}
    table = rows({arm: [-((x - 1.5) ** 2), 7 - 2 * (x - 1.5) ** 2] for arm, x in places.items()})
    made = found(effect(kind="optimum", of=SCORE, arms=places, above=1.0, below=3.0, smallest_bend=0.1), table)
    assert made["above"].values.mean() == pytest.approx(0.5)
    assert made["below"].values.mean() == pytest.approx(1.5)
    assert made["peak"].values.tolist() == pytest.approx([4.0, 8.0])
    assert made["peak"].shown_numbers["top"] == pytest.approx(1.5)


def test_an_optimum_in_log_odds_is_shown_as_a_share():
    shares = {"a": 0.05, "b": 0.15, "c": 0.4, "d": 0.8}
    logit = {arm: np.log(share / (1 - share)) for arm, share in shares.items()}
    table = rows({arm: [-((x - np.log(0.25)) ** 2)] * 2 for arm, x in logit.items()})  # odds of a quarter: 20%
    scale = {"scale": "log_odds", "above": 0.1, "below": 0.3}
    made = found(effect(kind="optimum", of=SCORE, arms=shares, smallest_bend=0.1, **scale), table)
    assert made["peak"].shown_numbers["top"] == pytest.approx(0.2)
    assert made["below"].values.tolist() == pytest.approx([np.log(3 / 7) - np.log(0.25)] * 2)


def test_a_valley_has_no_peak():
    places = {"a": 0.0, "b": 1.0, "c": 2.0, "d": 3.0}
    table = rows({arm: [(x - 1.5) ** 2] * 2 for arm, x in places.items()})
    made = found(effect(kind="optimum", of=SCORE, arms=places, above=1.0, below=2.0, smallest_bend=0.1), table)
    assert (made["peak"].values < 0).all()
    assert made["peak"].shown_numbers == {}


def test_ahead_is_the_difference_at_every_checkpoint_from_a_share_of_training_on():
    def learning(arm, own):
        return [
            run(arm, 0) | SCORE | {"step": step, "value": v} for step, v in zip((0, 10, 100), own, strict=True)
        ]

    curves = learning("mlm", [0.0, 3.0, 5.0]), learning("clm", [1.0, 2.0, 2.5])
    made = found(effect(kind="ahead", of=SCORE, arm="mlm", over="clm", since=0.1), *curves)
    assert {name: part.values.tolist() for name, part in made.items()} == {"step-10": [1.0], "step-100": [2.5]}
    whole = found(effect(kind="ahead", of=SCORE, arm="mlm", over="clm"), *curves)
    assert whole["step-0"].values.tolist() == [-1.0]


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


def pairs(distance_of, *, seeds=4, layers=3, arms=("a", "b")):
    """Distances of all pairs of runs; each pair is written once."""
    runs = [(arm, seed) for arm in arms for seed in range(seeds)]
    for arm, seed in runs:
        yield run(arm, seed) | SCORE | {"value": 0.0}
    for (arm, seed), (other, other_seed) in itertools.combinations(runs, 2):
        for layer in range(layers):
            value = distance_of(arm, seed, other, other_seed, layer)
            pair = {"measure": "run_distance", "metric": "pwcca", "group": other, "layer": layer}
            yield run(arm, seed) | pair | {"other_run_id": f"{other}{other_seed}", "value": value}


def test_apart_is_the_distance_of_arms_minus_that_of_seeds_all_at_different_seeds():
    """Arms at the same seed are near for another reason, and do not count; the effect is a mean over layers."""

    def distance_of(arm, seed, other, other_seed, layer):
        if arm == other:
            return {"a": 1.0, "b": 3.0}[arm] + layer
        return 0.001 if seed == other_seed else 5.0 + 3 * layer

    made = found(effect(kind="apart", metric="pwcca", pairs=[["a", "b"]]), list(pairs(distance_of)))
    assert list(made) == [""]
    assert made[""].values.tolist() == pytest.approx([5 + 3 * 1.5 - 2 - 1.5] * 4)  # layers 1 and 2


def test_apart_counts_seeds_and_not_pairs():
    """One seed lies far from all others: the mean over its pairs, by the jackknife over seeds."""
    far = list(pairs(lambda arm, seed, other, other_seed, layer: 2.0 * (arm != other) + (0 in (seed, other_seed))))
    made = found(effect(kind="apart", metric="pwcca", pairs=[["b", "a"]]), far)
    assert made[""].values.tolist() == pytest.approx([2.0] * 4)
    half = list(pairs(lambda arm, seed, other, other_seed, layer: (arm != other) * (2.0 + (seed == 0))))
    values_S = found(effect(kind="apart", metric="pwcca", pairs=[["a", "b"]]), half)[""].values
    matrix = np.array([[2.0 + ((i == 0) + (j == 0)) / 2 for j in range(4)] for i in range(4)])

    def mean(kept):
        return np.mean([matrix[i, j] for i, j in itertools.permutations(kept, 2)])

    everyone = range(4)
    jackknife = [4 * mean(everyone) - 3 * mean([i for i in everyone if i != out]) for out in everyone]
    assert values_S.tolist() == pytest.approx(jackknife)


def test_apart_than_other_pairs():
    table = list(
        pairs(
            lambda arm, seed, other, other_seed, layer: 4.0 if "c" in (arm, other) else 1.0, arms=("a", "b", "c")
        )
    )
    made = found(effect(kind="apart", metric="pwcca", pairs=[["a", "c"]], than=[["a", "b"]]), table)
    assert made[""].values.tolist() == pytest.approx([3.0] * 4)


def test_apart_leaves_out_seeds_without_distances_and_says_so():
    everything = list(pairs(lambda arm, seed, other, other_seed, layer: 3.0 if arm != other else 1.0, seeds=5))
    apart = effect(kind="apart", metric="pwcca", pairs=[["a", "b"]])

    def without(*runs):
        return [row for row in everything if not {row["run_id"], row.get("other_run_id")} & set(runs)]

    score = [run("a", 2) | SCORE | {"value": 0.0}]  # trained, but without distances
    made = found(apart, without("a2", "b4"), score)[""]
    assert (made.seeds, made.values.tolist()) == ((0, 1, 3), pytest.approx([2.0] * 3))
    assert made.left_out == ("seed 4: not in every arm", "seed 2: distances to other seeds are missing")
    two = found(apart, without("a2", "b4", "b3"), score)[""]
    assert two.seeds == (0, 1)
    assert np.isnan(two.values).all()
    with pytest.raises(NotMeasured, match=r"^run_distance pwcca has no rows of a and b at different seeds"):
        found(apart, [row for row in everything if row["measure"] != "run_distance"])


# The text that all seeds share ------------------------------------------------------------------------


def with_text(arm, of_blocks, *, seeds=4):
    """Runs whose number is that of the seed plus the mean of what blocks of the text add, with the same left
    out."""
    of_blocks = np.asarray(of_blocks, float)
    rest = (of_blocks.sum() - of_blocks) / (len(of_blocks) - 1)
    for seed in range(seeds):
        own = {"a": 1.0, "b": 0.0}[arm] + seed / 100
        yield run(arm, seed) | SCORE | {"value": own + of_blocks.mean(), "left_out": list(own + rest)}


def test_what_the_arms_share_of_their_text_cancels_and_the_rest_is_the_error_of_the_contrast():
    rng = np.random.default_rng(0)
    shared, alone = rng.normal(size=10), rng.normal(size=10)
    difference = effect(kind="difference", of=SCORE, arm="a", minus="b")
    same = found(difference, list(with_text("a", shared)), list(with_text("b", shared)))[""]
    assert same.text_error == pytest.approx(0, abs=1e-12)
    other = found(difference, list(with_text("a", shared + alone)), list(with_text("b", shared)))[""]
    assert other.text_error == pytest.approx(alone.std(ddof=1) / np.sqrt(10))  # of the mean of ten blocks
    assert other.text_blocks == 10
    assert other.values.tolist() == pytest.approx([1 + alone.mean()] * 4)


def test_rows_without_numbers_left_out_have_no_error_of_the_text():
    table = rows({"mlm": [1.0, 2.0, 3.0], "clm": [1.0, 1.5, 2.0]})
    made = found(effect(kind="difference", of=SCORE, arm="mlm", minus="clm"), table)[""]
    assert (made.text_error, made.text_blocks) == (0.0, 0)


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
            "fine_tuning score has no rows of arm mlm by layer",
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
    with pytest.raises(NotMeasured) as error:
        found(effect(**fields), table, two_layers)
    assert str(error.value) == sentence
