"""Effects, computed from small tables by hand."""

import itertools

import numpy as np
import pytest

from reports.claims.select import NotMeasured
from reports.statistics import curve_shapes, seed_tests
from tests.support.effects import OVER_LAYERS, SCORE, curve, effect, found, rows, run, values


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


LOSS = {"measure": "validation", "metric": "loss"}
PAIRS = {"measure": "minimal_pairs", "metric": "accuracy"}


@pytest.mark.parametrize(
    ("of", "arms", "facts", "notes"),
    [
        (LOSS, {"arm": "a", "minus": "b"}, {"a": {"n": 1200, "floor": 5.25}, "b": {"n": 1200, "floor": 5.25}}, ()),
        (LOSS, {"arm": "a", "at_least": 1}, {"a": {"n": 1200, "floor": 5.25}, "b": {"n": 800, "floor": 5.25}}, ()),
        (
            LOSS | {"read": "gain"},
            {"arm": "a", "minus": "b"},
            {"a": {"n": 1200, "floor": 5.25}, "b": {"n": 800, "floor": 5.5}},
            (),
        ),
        (
            LOSS,
            {"arm": "a", "minus": "b"},
            {"a": {"n": 1200, "floor": 5.25}, "b": {"n": 1200, "floor": 5.5}},
            (
                "validation loss: the arms were measured on different tokens or examples (n = 1,200, chance level "
                "5.25 in a; n = 1,200, chance level 5.5 in b), and the effect may come from these",
            ),
        ),
        (
            PAIRS | {"groups": ["mine.yaml"]},
            {"arm": "a", "minus": ["b", "c"]},
            {arm: {"n": n, "floor": 0.5, "group": "mine.yaml"} for arm, n in {"a": 160, "b": 62, "c": 62}.items()},
            (
                "minimal_pairs accuracy of mine.yaml: the arms were measured on different tokens or examples "
                "(n = 160 in a; n = 62 in b and c), and the effect may come from these",
            ),
        ),
    ],
    ids=["same", "one arm", "gain", "chance level", "pairs"],
)  # fmt: skip
def test_arms_that_were_measured_on_different_text_or_examples_are_noted(of, arms, facts, notes):
    named = {key: of[key] for key in ("measure", "metric")}
    table = [row for arm in facts for row in rows({arm: [1.0, 2.0]}, **named, **facts[arm])]
    (part,) = found(effect(kind="difference", of=of, **arms), table).values()
    assert part.left_out == notes


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


def test_a_share_of_a_loss_has_the_sign_of_the_share():
    """The effect was positive beside a share below its bound; the condition fails whatever it is."""
    table = rows({"n1": [0.2, 0.22, 0.18], "mlm": [0.1, 0.12, 0.11], "corpus": [0.3, 0.28, 0.31]})
    made = found(effect(**SHARE, at_least=0.9), table)
    kept, gain = 0.2 - 0.89 / 3, 0.11 - 0.89 / 3
    assert made[""].values.mean() == pytest.approx(kept / gain - 0.9)
    assert made[""].shown_numbers["share"] - 0.9 == pytest.approx(made[""].values.mean())
    assert made["gain"].values.mean() == pytest.approx(gain - 0.1)


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
    alone = found(effect(kind="optimum", of=SCORE, arms=places, below=3.0, smallest_bend=0.1), table)
    assert list(alone) == ["peak", "below"]
    assert alone["below"].values.tolist() == made["below"].values.tolist()
    assert alone["below"].ratio_of[2] == made["below"].ratio_of[2]


def test_the_interval_of_an_optimum_is_that_of_its_top_and_never_narrower():
    noise = np.random.default_rng(2)
    places = {"a": 0.0, "b": 1.0, "c": 2.0, "d": 3.0}
    table = rows({arm: -((x - 1.4) ** 2) + noise.normal(0, 0.3, 6) for arm, x in places.items()})
    made = found(effect(kind="optimum", of=SCORE, arms=places, above=1.4, below=3.5, smallest_bend=0.1), table)
    low, high = (made["peak"].shown_numbers[f"top_{end}"] for end in ("low", "high"))
    ends = {"above": (low - 1.4, high - 1.4), "below": (3.5 - high, 3.5 - low)}
    for name, (ratio_low, ratio_high) in ends.items():
        shown = seed_tests.interval(made[name], confidence=0.95)
        alone = seed_tests.t_interval(made[name].values, confidence=0.95)
        assert shown[1:] == pytest.approx((min(alone.low, ratio_low), max(alone.high, ratio_high)))
        is_wider = shown.high - shown.low > 1.01 * (alone.high - alone.low)
        assert is_wider == (name == "above")  # the t interval takes the bend for known, as for a top at its bound


@pytest.mark.parametrize("form", ["top_over_lowest", "rise_after_inner"])
def test_a_ratio_to_a_layer_that_is_not_above_0_is_no_number(form):
    """-0.0105 is more than 1.1 times -0.01, and lies below it."""
    table = curve("mlm", *([0.3, 0.2, low, low - 0.0005] for low in (-0.0101, -0.01, -0.0099)))
    made = found(effect(kind="shape", of=OVER_LAYERS, arm="mlm", form=form, at_least=1.1), table)[""]
    assert np.isnan(made.values).all()


def test_a_ratio_over_layers_has_the_interval_of_a_ratio():
    """The t interval takes the lowest layer for known."""
    noise = np.random.default_rng(4)
    lowest = noise.normal(1.0, 0.3, 5)
    curves = np.stack([np.full(5, 9.0), lowest, 2.0 + noise.normal(0, 0.05, 5)])
    table = [
        run("mlm", seed) | OVER_LAYERS | {"layer": layer, "value": curves[layer, seed]}
        for layer, seed in np.ndindex(curves.shape)
    ]
    made = found(effect(kind="shape", of=OVER_LAYERS, arm="mlm", form="top_over_lowest", at_least=0.5), table)[""]
    ratio = curve_shapes.ratio_interval(curves[2], lowest, confidence=0.95)
    shown = seed_tests.interval(made, confidence=0.95)
    assert (shown.mean, shown.high) == pytest.approx((ratio.value - 0.5, ratio.high - 0.5))
    assert shown.high > 1.1 * seed_tests.t_interval(made.values, confidence=0.95).high


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


def test_a_flat_curve_has_no_highest_point_and_is_not_decided_by_rounding():
    places = {"a": 0.1, "b": 0.2, "c": 0.4, "d": 0.8}
    table = rows({arm: [1.0] * 8 for arm in places})
    made = found(effect(kind="optimum", of=SCORE, arms=places, above=0.1, below=0.5, smallest_bend=0.1), table)
    assert list(made) == [""]
    assert np.isnan(made[""].values).all()


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


@pytest.mark.parametrize("seeds", [(1,), (0, 1, 2, 3)])
@pytest.mark.parametrize(
    ("lost", "note"),
    [
        ((3,), "block 4 of 10 of the text: without it the effect is not known; "),
        ((0, 9), "blocks 1 and 10 of 10 of the text: without them the effect is not known; "),
    ],
)
def test_numbers_that_are_nan_without_a_block_leave_the_error_to_the_other_blocks(seeds, lost, note):
    of_blocks = np.arange(10.0)
    table = [*with_text("a", of_blocks), *with_text("b", np.zeros(10))]
    for row in table[:4]:
        if row["seed"] in seeds:
            for block in lost:
                row["left_out"][block] = float("nan")
    made = found(effect(kind="difference", of=SCORE, arm="a", minus="b"), table)[""]
    others = np.delete(of_blocks, lost)
    assert made.text_error == pytest.approx(others.std(ddof=1) / np.sqrt(10))  # of the mean of ten blocks
    assert (made.text_blocks, made.values.tolist()) == (10 - len(lost), [5.5] * 4)
    assert made.left_out == (note + "the error of the text comes from the others",)


def test_a_group_that_is_nan_without_a_block_is_no_effect_over_other_groups():
    table = [
        row | {"group": group, "value": row["value"] + far, "left_out": [far + value for value in row["left_out"]]}
        for arm, of_blocks in (("a", np.arange(10.0)), ("b", np.zeros(10)))
        for group, far in (("near", 0.0), ("far", 100.0))
        for row in with_text(arm, of_blocks)
    ]
    for row in table:
        if row["group"] == "far":
            row["left_out"][3] = float("nan")
    of = SCORE | {"groups": ["near", "far"]}
    made = found(effect(kind="difference", of=of, arm="a", minus="b"), table)[""]
    assert made.text_error == pytest.approx(np.delete(np.arange(10.0), 3).std(ddof=1) / np.sqrt(10))
    assert made.text_blocks == 9


def test_an_effect_that_is_known_without_one_block_alone_says_that_it_lacks_the_error_of_the_text():
    table = [*with_text("a", np.arange(3.0)), *with_text("b", np.zeros(3))]
    for row in table[:4]:
        row["left_out"][:2] = [float("nan")] * 2
    made = found(effect(kind="difference", of=SCORE, arm="a", minus="b"), table)[""]
    assert (made.text_error, made.text_blocks) == (0.0, 0)
    note = (
        "blocks 1 and 2 of 3 of the text: without them the effect is not known; its error of the text is not known"
    )
    assert made.left_out == (note,)


def test_rows_without_numbers_left_out_have_no_error_of_the_text():
    table = rows({"mlm": [1.0, 2.0, 3.0], "clm": [1.0, 1.5, 2.0]})
    made = found(effect(kind="difference", of=SCORE, arm="mlm", minus="clm"), table)[""]
    assert (made.text_error, made.text_blocks) == (0.0, 0)
