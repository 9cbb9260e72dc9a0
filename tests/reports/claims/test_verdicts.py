"""The rule, on effects that are known."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from reports.claims.verdicts import decide, judge
from reports.claims.words import claim_rule, part_rule
from reports.statistics.seed_tests import SeedEffects, power, t_interval

FIVE = np.array([1.0, 1.1, 0.9, 1.2, 0.8])


def seeds(values, **more):
    values = np.asarray(values, float)
    return SeedEffects(tuple(range(len(values))), values, **more)


HIGHER, EITHER = seeds([]), seeds([], direction="either")


def one(values, *, smallest=0.1, level=0.05, **more):
    """The single part of a claim."""
    judged = judge({"it": seeds(values, **more)}, {"it": smallest}, level=level)
    assert judged.verdict == judged.parts["it"].verdict
    effects = seeds(values, **more)
    assert claim_rule(judged, {"it": effects}) == part_rule(judged.parts["it"], effects, ways=1)
    return judged.parts["it"]


def words(judged):
    """The rule that decided a claim whose parts all say which is more."""
    return claim_rule(judged, dict.fromkeys(judged.parts, HIGHER))


@pytest.mark.parametrize(
    ("values", "smallest", "verdict", "rule"),
    [
        (FIVE, 0.1, "supported", "the 95% interval lies above 0, and nowhere below the 0.1 that matters"),
        (FIVE, 0.99, "supported", "the 95% interval lies above 0, but partly below the 0.99 that matters"),
        (-FIVE, 0.1, "contradicted", "the 95% interval lies below 0"),
        (
            FIVE,
            2.0,
            "equivalent",
            "the test of equivalence (TOST) places the effect within ±2, too small to matter (p < 0.001)",
        ),
        (
            -FIVE,
            2.0,
            "equivalent",
            "the test of equivalence (TOST) places the effect within ±2, too small to matter (p < 0.001)",
        ),
        (
            FIVE - 1,
            0.2,
            "equivalent",
            "the test of equivalence (TOST) places the effect within ±0.2, too small to matter (p = 0.024)",
        ),
        (FIVE - 1, 0.1, "undecided", "the 95% interval includes 0 and reaches beyond ±0.1"),
        (FIVE[:2], 0.1, "insufficient evidence", "2 seeds, but at least 3 are needed"),
        ([], 0.1, "insufficient evidence", "0 seeds, but at least 3 are needed"),
        ([0.0] * 9, 0.1, "undecided", "every seed shows exactly 0, which decides nothing"),
        (
            [1.0, 1.0, 1.0],
            0.1,
            "undecided",
            (
                "all 3 seeds show the same number, which may be chance with so few seeds (sign flips, one-sided p "
                "= 0.125)"
            ),
        ),
        (
            [1.0] * 6,
            0.1,
            "supported",
            "all 6 seeds show the same number above 0 (sign flips, one-sided p = 0.016)",
        ),
        (
            [-0.9] * 6,
            0.1,
            "contradicted",
            "all 6 seeds show the same number below 0 (sign flips, one-sided p = 0.016)",
        ),
        (
            [0.01] * 6,
            0.1,
            "equivalent",
            "all 6 seeds show the same number within ±0.1, too small to matter (sign flips, one-sided p = 0.016)",
        ),
        ([1.0, np.inf, 1.0], 0.1, "undecided", "the effect is not a finite number in every seed"),
    ],
)
def test_each_verdict_says_which_rule_fired(values, smallest, verdict, rule):
    part = one(values, smallest=smallest)
    assert (part.verdict, part_rule(part, HIGHER, ways=1)) == (verdict, rule)


def test_a_part_has_its_interval_its_seeds_and_what_they_could_see():
    part = one(FIVE)
    assert (part.effect, part.low, part.high) == pytest.approx(t_interval(FIVE, confidence=0.95))
    assert (part.seeds, part.values) == ((0, 1, 2, 3, 4), tuple(FIVE))
    assert power(part.smallest_seen, sd=FIVE.std(ddof=1), seeds=5, level=0.05) == pytest.approx(0.8)
    assert part.seeds_to_decide[1] > 5  # 0.1 is less than five seeds can see
    assert part.p_sign_flips is None


def test_sign_flips_stand_beside_it_from_six_seeds_on():
    assert one([*FIVE, 1.05]).p_sign_flips == 2 / 2**6


def test_a_stricter_level_takes_more():
    weak = [0.5, 1.5, 0.2, 1.1, 0.9]
    assert one(weak).verdict == "supported"
    assert one(weak, level=0.001).verdict == "undecided"
    assert one(weak, level=0.001).confidence == 0.999


@pytest.mark.parametrize(
    ("values", "verdict", "rule"),
    [
        (FIVE - 0.93, "undecided", "the 95% interval includes 0"),
        (FIVE, "supported", "the 95% interval lies above 0, and nowhere below the 0.1 that matters"),
        (-FIVE, "contradicted", "the 95% interval lies below 0"),
    ],
)
def test_close_to_a_bound_nothing_is_too_small_to_matter(values, verdict, rule):
    """A share of 0.57 is as close to 0.6 as one of 0.63, and neither says that nothing is kept."""
    assert one(FIVE - 0.93, smallest=0.3).verdict == "equivalent"  # the counter-example, without a bound
    found = one(values, bounded=True)
    assert (found.verdict, part_rule(found, HIGHER, ways=1)) == (verdict, rule)
    assert np.isnan(found.p_equivalent)
    assert one(FIVE - 0.93, smallest=0.3, bounded=True).verdict == "undecided"


@pytest.mark.parametrize(
    ("values", "smallest", "at_least", "at_most"),
    [
        (FIVE, 0.1, "lies above the claimed 5, everywhere by at least the 0.1 that matters",
         "lies below the claimed 5, everywhere by at least the 0.1 that matters"),
        (FIVE, 0.99, "lies above the claimed 5, but partly by less than the 0.99 that matters",
         "lies below the claimed 5, but partly by less than the 0.99 that matters"),
        (-FIVE, 0.1, "lies below the claimed 5", "lies above the claimed 5"),
        (FIVE - 1, 0.1, "includes the claimed 5", "includes the claimed 5"),
    ],
)  # fmt: skip
def test_an_effect_with_a_bound_is_judged_in_words_by_its_bound(values, smallest, at_least, at_most):
    """The distance from the bound lies above 0, but the page shows the measured number."""
    for name, rule in (("at_least", at_least), ("at_most", at_most)):
        effects = seeds(values, bounded=True, shown_numbers={"measured": 6.0, name: 5.0})
        (part,) = judge({"it": effects}, {"it": smallest}, level=0.05).parts.values()
        assert part_rule(part, effects, ways=1) == f"the 95% interval {rule}"


def test_the_level_of_a_look_stands_beside_that_of_all_looks():
    part = replace(one(-FIVE, level=0.01), confidence=0.95)
    assert part_rule(part, HIGHER, ways=1, at_look=0.01) == "the 95% interval (at this look 99%) lies below 0"
    of_two = replace(part, confidence=0.975)
    assert (
        part_rule(of_two, HIGHER, ways=2, at_look=0.01) == "the 97.5% interval (at this look 99.5%) lies below 0"
    )


def test_the_interval_of_a_contradicted_part_is_the_one_that_decides():
    """Each of two parts refutes at half the level; then the interval that is shown excludes 0."""
    clear = seeds(FIVE - 10)
    for shift in np.linspace(0.9, 1.3, 41):
        parts = judge(
            {"open": seeds(shift - FIVE), "clear": clear}, {"open": 0.01, "clear": 0.01}, level=0.05
        ).parts
        part = parts["open"]
        assert parts["clear"].confidence == 0.975
        assert part.confidence == (0.975 if part.verdict == "contradicted" else 0.95), shift
        if part.verdict == "contradicted":
            assert part.high < 0


def test_against_a_bound_fewer_seeds_decide_as_no_absence_is_to_be_found():
    spread = FIVE - 0.93
    wanted = [one(spread, smallest=0.1, bounded=bounded).seeds_to_decide for bounded in (True, False)]
    for seeds, tail in zip(wanted[0], (0.9, 0.1), strict=True):  # the ends of an 80% interval of the spread
        sd = spread.std(ddof=1) * np.sqrt(4 / stats.chi2.ppf(tail, 4))
        assert power(0.1, sd=sd, seeds=seeds, level=0.05) >= 0.8 > power(0.1, sd=sd, seeds=seeds - 1, level=0.05)
    assert wanted[0] < wanted[1]


def test_seeds_that_agree_exactly_need_as_many_as_the_level_asks():
    """2^-n against half of the level, and where one of several parts is refuted against its share of that."""
    assert one([1.0] * 5).verdict == "undecided"
    assert one([1.0] * 6, level=0.03).verdict == "undecided"
    assert one([1.0] * 7, level=0.03).verdict == "supported"
    assert (one([1.0] * 5).seeds_to_decide, one([1.0] * 5, level=0.03).seeds_to_decide) == ((6, 6), (7, 7))
    assert several(a=[-1.0] * 6, b=FIVE).verdict == "undecided"
    assert several(a=[-1.0] * 7, b=FIVE).verdict == "contradicted"
    assert one([1.0] * 6).p == 2 / 2**6 == one([1.0] * 6).p_sign_flips


def test_seeds_that_agree_exactly_at_one_layer_need_as_many_as_its_share_of_the_level_asks():
    def judged(spread):  # the lower of two layers, one of which is 0 in all seeds
        return one(spread, level=0.02, at_layers_LMS=np.stack([spread, np.zeros(len(spread))])[None])

    small = 1e-4 * (FIVE - 1)
    assert (judged(small).verdict, judged(small).p_equivalent) == ("undecided", 0.5**5)
    assert judged(small).seeds_to_decide == (7, 7)  # 2^-n against the level of one of two layers
    assert judged(1e-4 * np.linspace(-1, 1, 7)).verdict == "equivalent"
    assert one(small, level=0.02).seeds_to_decide[1] < 5  # the counter-example, without layers


def test_without_its_condition_a_claim_is_not_judged_whatever_its_parts_say():
    def judged(condition, part):
        parts = {"knows-its-task": seeds(condition, condition=True), "it": seeds(part)}
        return judge(parts, dict.fromkeys(parts, 0.1), level=0.05)

    for part in (FIVE, -FIVE, np.array([0.01, -0.01, 0.02, 0.0, -0.02])):
        for condition, verdict in ((-FIVE, "not testable here"), (FIVE - 0.95, "undecided")):
            found = judged(condition, part)
            assert (found.verdict, found.deciding) == (verdict, "knows-its-task")
    assert words(judged(FIVE - 0.95, FIVE)) == (
        "the claim cannot be judged, because the condition knows-its-task is not shown yet: the 95% interval "
        "includes 0"
    )
    assert judged(FIVE[:2], -FIVE).verdict == "insufficient evidence"
    assert judged(FIVE, FIVE).verdict == "supported"
    assert judged(FIVE, -FIVE).verdict == "contradicted"


def test_conditions_are_not_counted_among_the_parts():
    parts = {"given": seeds(FIVE - 0.4, condition=True), "it": seeds(-FIVE)}
    assert words(judge(parts, dict.fromkeys(parts, 0.001), level=0.05)) == "the 95% interval lies below 0"
    parts |= {"it": seeds(FIVE), "more": seeds(FIVE + 5)}
    found = judge(parts, dict.fromkeys(parts, 0.001), level=0.05)
    assert found.deciding == "it"  # though the condition holds less clearly
    assert words(found).startswith("both parts hold; the weakest is it: ")


def test_a_condition_takes_nothing_from_the_level_at_which_parts_refute():
    weak = np.array([-0.2, -1.2, -0.1, -0.9, -0.6])  # below 0 at 95%, not at 97.5%
    parts = {"given": seeds(FIVE, condition=True), "it": seeds(weak)}
    assert decide(parts, dict.fromkeys(parts, 0.1), level=0.05)[0] == "contradicted"
    parts["given"] = seeds(FIVE)
    assert decide(parts, dict.fromkeys(parts, 0.1), level=0.05)[0] == "undecided"


def test_a_trend_must_hold_for_page_too():
    assert one(FIVE, page=0.01).verdict == "supported"
    found = one(FIVE, page=0.2)
    assert found.verdict == "undecided"
    said = part_rule(found, HIGHER, ways=1)
    assert said == "the 95% interval lies above 0, but the steps do not agree (Page's test, p = 0.200)"


def test_a_ratio_whose_denominator_may_be_0_has_no_interval_that_could_include_0():
    above, below = np.arange(3.0), np.array([0.3, -0.2, 0.1])
    found = one((above - 0.5 * below) / below.mean(), ratio_of=(above, below, 0.5), bounded=True)
    assert (found.verdict, np.isnan(found.low), np.isnan(found.high)) == ("undecided", True, True)
    assert part_rule(found, HIGHER, ways=1) == (
        "the 95% interval has no ends, because the number that the effect is divided by may be 0"
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_a_ratio_without_an_interval_may_be_contradicted_but_not_supported(sign):
    """Where the denominator is negative, a numerator above the bound times the denominator is a ratio below it."""
    above, below = sign * np.array([5.0, 5.1, 5.2]), np.array([0.3, -0.2, 0.1])
    found = one((above - 0.5 * below) / below.mean(), ratio_of=(above, below, 0.5), bounded=True)
    assert np.isnan(found.low)
    assert found.verdict == ("undecided" if sign > 0 else "contradicted")
    assert part_rule(found, HIGHER, ways=1) == (
        "the 95% interval has no ends, because the number that the effect is divided by may be 0"
        if sign > 0
        else "the effect lies below 0, though without an interval, as the number that it is divided by may be 0"
    )


def test_a_trend_that_so_few_seeds_cannot_decide_is_called_so():
    def trend(size, **more):  # every step rises in every seed, over three places
        values = np.linspace(0.9, 1.1, size)
        return one(values, smallest=0.9, page=6.0**-size, places=3, **{"level": 0.004} | more)

    found = trend(3)
    assert (found.verdict, found.seeds_to_decide) == ("undecided", (4, 6))
    assert np.isnan(found.smallest_seen)
    assert part_rule(found, HIGHER, ways=1) == (
        "the 99.6% interval lies above 0, but 3 seeds cannot show that steps agree: Page's test needs at least 4 "
        "at this level"
    )
    assert trend(4).verdict == trend(3, level=0.005).verdict == "supported"  # 6^-3 = 0.0046
    assert one([1.0] * 3, level=1e-6, places=3).seeds_to_decide == (21, 21)


@pytest.mark.parametrize("sign", [1, -1])
def test_where_no_side_is_claimed_either_will_do_beyond_what_matters(sign):
    found = one(sign * FIVE, smallest=0.5, direction="either")
    assert found.verdict == "supported"
    assert part_rule(found, EITHER, ways=1) == "the 95% interval lies beyond 0.5 on one side"
    unsure = one(sign * FIVE, smallest=0.9, direction="either")
    assert unsure.verdict == "undecided"
    assert part_rule(unsure, EITHER, ways=1) == "the 95% interval lies neither within ±0.9 nor beyond it"
    assert one(sign * FIVE, smallest=2.0, direction="either").verdict == "equivalent"


def several(**parts):
    return judge({n: seeds(v) for n, v in parts.items()}, dict.fromkeys(parts, 0.1), level=0.05)


def test_a_claim_with_parts_holds_if_all_do_and_the_weakest_speaks():
    found = several(a=FIVE, b=FIVE + 5)
    assert (found.verdict, found.deciding) == ("supported", "a")
    assert words(found) == (
        "both parts hold; the weakest is a: the 95% interval lies above 0, and nowhere below the 0.1 that matters"
    )


def test_one_part_refutes_it_whatever_the_others_say():
    found = several(a=FIVE, b=-FIVE, c=FIVE[:2], d=FIVE - 1)
    assert (found.verdict, found.deciding) == ("contradicted", "b")
    assert words(found) == "1 of 4 parts hold; b is contradicted: the 98.75% interval lies below 0"


def test_one_part_that_is_open_leaves_the_claim_open():
    found = several(a=FIVE, b=FIVE - 1, c=FIVE - 1.01)
    assert found.verdict == "undecided"
    assert words(found).startswith("1 of 3 parts hold; b (and 1 more) is undecided: ")
    assert several(a=FIVE, b=FIVE[:2]).verdict == "insufficient evidence"


def test_to_refute_takes_a_level_that_is_shared_among_the_parts():
    """Every part has its own chance to look refuted by noise."""
    weak = np.array([-0.2, -1.2, -0.1, -0.9, -0.6])  # below 0 at 95%, not at 99%
    assert one(weak).verdict == "contradicted"
    found = several(a=weak, **dict.fromkeys("bcdef", FIVE))
    assert found.verdict == "undecided"
    said = part_rule(found.parts["a"], HIGHER, ways=6)
    assert said == "the 95% interval lies below 0, but refuting one of 6 parts needs the 99.17% interval"


@pytest.mark.parametrize("claims", [1, 6])
def test_a_family_whose_effects_lie_at_the_margin_calls_one_equivalent_in_5_of_100(claims):
    """The least favourable case: every effect is exactly the smallest that matters, and surely not 0. By Holm's
    rule, each claim that is surely above 0 would hand its level on: 13 of 100 for six claims."""
    drawn = np.random.default_rng(claims).normal(2.0, 1.0, (1200, claims, 6))
    wrong = [
        any(decide({"a": seeds(values)}, {"a": 2.0}, level=0.05 / claims)[0] == "equivalent" for values in family)
        for family in drawn
    ]
    assert np.mean(wrong) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1200)  # three standard errors


@pytest.mark.parametrize("absent", [0, 3, 6])
def test_any_wrong_verdict_in_a_family_is_as_rare_as_its_level_says(absent):
    """Six claims, some without any effect and the others exactly at the margin."""
    truth = np.array([0.0] * absent + [1.5] * (6 - absent))
    drawn = np.random.default_rng(absent).normal(truth[:, None], 1.0, (600, 6, 5))
    wrong = 0
    for family in drawn:
        found = [decide({"a": seeds(values)}, {"a": 1.5}, level=0.05 / 6)[0] for values in family]
        false = ["equivalent" if effect else "supported" for effect in truth]
        wrong += any(verdict in (no, "contradicted") for verdict, no in zip(found, false, strict=True))
    assert wrong / len(drawn) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(drawn))


@pytest.mark.parametrize("size", [3, 5])
def test_seeds_in_two_groups_are_no_evidence_where_each_must_meet_the_condition(size):
    """One seed of three does not learn and shows another effect. On their mean the 95% interval misses the truth
    too often; where each seed must have learned, what is judged has one group, and the interval holds."""
    rng = np.random.default_rng(size)
    held, mixed = [], []
    for _ in range(2000):
        learned = rng.uniform(size=size) > 1 / 3
        effect_S = rng.normal(size=size)
        _, low, high = t_interval(effect_S + np.where(learned, 0.0, 6.0), confidence=0.95)
        mixed.append(low < 2.0 < high)  # the mean of both groups
        meets = seeds(np.where(learned, 5.0, -5.0), condition=True, in_each_seed=True)
        parts = {"a": seeds(effect_S + np.where(learned, 0.0, 6.0)), "given": meets}
        verdict = decide(parts, {"a": 0.1, "given": 1.0}, level=0.05)[0]
        assert (verdict == "not testable here") == (not learned.all())
        _, low, high = t_interval(effect_S, confidence=0.95)  # as it is where all have learned
        held.append(low < 0 < high)
    assert 0.93 <= np.mean(held) <= 0.97
    assert np.mean(mixed) < 0.91


def test_an_interval_within_the_margin_that_is_not_equivalent_says_why():
    """With ten parts TOST is made at a tenth of the level."""
    parts = {f"p{i}": seeds([0.06, -0.03, 0.02, -0.02, 0.0]) for i in range(10)}
    judged = judge(parts, dict.fromkeys(parts, 0.06), level=0.05)
    assert judged.parts["p0"].verdict == "undecided"
    assert max(-judged.parts["p0"].low, judged.parts["p0"].high) < 0.06
    p = f"{judged.parts['p0'].p_equivalent:.3f}"
    assert part_rule(judged.parts["p0"], HIGHER, ways=10) == (
        f"the 95% interval lies within ±0.06, but TOST, stricter as there are several parts, does not (p = {p})"
    )


@pytest.mark.parametrize("in_each_seed", [True, False])
def test_an_infinite_number_on_the_wrong_side_fails_a_condition_and_rounding_does_not(in_each_seed):
    assert condition([-np.inf, 1.0, 2.0], in_each_seed=in_each_seed).verdict == "not testable here"
    at_bound = condition([0.3 - 0.2 - 0.1] * 3, in_each_seed=in_each_seed)
    assert at_bound.verdict != "not testable here"


def test_some_parts_that_make_no_difference_make_a_claim_partly():
    found = several(a=FIVE, b=(FIVE - 1) / 100, c=FIVE)
    assert found.verdict == "partly"
    assert words(found).startswith(
        "2 of 3 parts hold; b makes no difference that matters: the test of equivalence (TOST) places"
    )
    none = several(a=(FIVE - 1) / 100, b=(FIVE - 1) / 200)
    assert none.verdict == "equivalent"
    assert words(none).startswith(
        "both parts make no difference that matters; the clearest is b: the test of equivalence (TOST) places"
    )
    assert several(a=-FIVE, b=(FIVE - 1) / 100).verdict == "contradicted"
    assert several(a=FIVE - 1, b=(FIVE - 1) / 100).verdict == "partly"


def condition(values, **more):
    parts = {"a": seeds(FIVE), "learned": seeds(values, condition=True, bounded=True, **more)}
    return judge(parts, {"a": 0.1, "learned": 0.1}, level=0.05)


def test_a_condition_of_each_seed_fails_by_one():
    """The mean of these is surely above the bound."""
    found = condition([61.0, 67.0, 55.0, 60.0, -4.0], in_each_seed=True)
    assert (found.verdict, found.deciding) == ("not testable here", "learned")
    assert words(found) == (
        "the claim cannot be judged, because the condition learned fails: 1 of 5 seeds below the bound: seed 4 "
        "by 4"
    )
    assert condition([61.0, 67.0, 55.0, 60.0, 58.0], in_each_seed=True).verdict == "supported"
    assert condition([0.0, 9.0, 1.0, 2.0, 3.0], in_each_seed=True).verdict == "supported"  # at the bound
    two = condition([61.0, 67.0], in_each_seed=True)
    assert (two.verdict, words(two)) == (
        "insufficient evidence",
        (
            "the claim cannot be judged, because the condition learned is not shown yet: 2 seeds, but at least 3 "
            "are needed"
        ),
    )


def test_a_condition_of_each_seed_is_open_if_it_was_not_measured_in_a_seed_of_the_effect():
    found = condition([61.0, 67.0, 55.0], in_each_seed=True)
    assert words(found) == (
        "the claim cannot be judged, because the condition learned is not shown yet: it was not measured in seed "
        "3 and seed 4"
    )
    assert (found.verdict, found.parts["learned"].verdict) == ("undecided", "undecided")
    near = condition([5.0, 5.1, 4.9], in_each_seed=True)
    assert near.seeds_to_decide is None, "more seeds do not measure it in these"
    assert condition([61.0, 67.0, -1.0], in_each_seed=True).verdict == "not testable here"
    assert condition([61.0, 67.0, 55.0]).verdict == "supported", "a mean is that of the seeds that have it"


def test_no_bounds_are_told_of_what_cannot_be_reached():
    mean, each = (
        condition([1.0, 3.0, 2.0, 4.0, 2.0], in_each_seed=each).parts["learned"] for each in (False, True)
    )
    assert mean.supported_above > 0
    assert np.isnan([mean.contradicted_below, each.supported_above, each.contradicted_below]).all()


def test_an_effect_on_either_side_is_seen_beyond_the_smallest_one():
    """The smallest effect that is seen is found in 8 of 10 experiments with this spread."""
    shown = one(stats.norm.ppf((np.arange(8) + 0.5) / 8) / 0.93, smallest=1.0, direction="either")
    sd = float(np.std(shown.values, ddof=1))
    rng, draws = np.random.default_rng(0), 4000
    found = [
        decide({"it": seeds(values, direction="either")}, {"it": 1.0}, level=0.05)[0] == "supported"
        for values in rng.normal(shown.smallest_seen, sd, (draws, 8))
    ]
    assert np.mean(found) == pytest.approx(0.8, abs=3 * np.sqrt(0.8 * 0.2 / draws))
    fewest, most = shown.seeds_to_decide  # those that find that there is no difference
    assert fewest <= 8 <= most


def test_a_condition_of_the_mean_fails_below_the_bound_and_is_open_where_its_interval_holds_it():
    below = condition([-1.0, 0.2, 0.1, 0.3, -0.5])
    assert below.verdict == "not testable here"
    assert words(below) == (
        "the claim cannot be judged, because the condition learned fails: the mean over 5 seeds lies below the "
        "bound"
    )
    assert condition([1.0, -0.2, -0.1, 0.3, 0.5]).verdict == "undecided"
    assert condition([1.0, 1.2, 1.1, 1.3, 1.5]).verdict == "supported"


@pytest.mark.parametrize(("effect", "smallest"), [(0.0, 0.5), (0.5, 0.5), (-0.5, 0.5)])
def test_false_verdicts_are_as_rare_as_the_level_says(effect, smallest):
    """2,000 experiments with a known effect: supported although it is not above 0, contradicted although it is not
    below, equivalent although it is no smaller than what matters."""
    drawn = np.random.default_rng(1).normal(effect, 0.4, (2000, 5))
    found = [decide({"a": seeds(values)}, {"a": smallest}, level=0.05)[0] for values in drawn]
    false = {"supported": effect <= 0, "contradicted": effect >= 0, "equivalent": abs(effect) >= smallest}
    wrong = np.mean([false.get(verdict, False) for verdict in found])
    assert wrong <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)  # three standard errors


def test_an_effect_is_borne_out_as_often_as_its_power_says():
    expected = power(1.0, sd=0.8, seeds=6, level=0.05)
    drawn = np.random.default_rng(2).normal(1.0, 0.8, (3000, 6))
    found = np.mean([decide({"a": seeds(v)}, {"a": 0.01}, level=0.05)[0] == "supported" for v in drawn])
    assert found == pytest.approx(expected, abs=3 * np.sqrt(expected * (1 - expected) / 3000))  # standard errors


def test_an_effect_over_chosen_layers_with_an_infinite_seed_is_no_verdict():
    assert one([np.nan, np.nan, np.nan], chosen=(1, 1, 1)).verdict == "undecided"


# What would change a verdict --------------------------------------------------------------------------

SPREAD = np.random.default_rng(3).normal(0, 1, 8)
SPREAD -= SPREAD.mean()
LAYERS = SPREAD + np.array([[-0.4], [0.3], [0.1]]) + np.random.default_rng(4).normal(0, 0.3, (3, 8))
"""What each seed shows at three layers."""


def part(mean, *, spread=SPREAD, **more):
    return seeds(spread + mean, **more)


def over_layers(mean):
    """An effect at a chosen layer: what is seen at each layer moves with its mean."""
    return part(mean, chosen=(2,) * 8, at_layers_LMS=(LAYERS + mean)[:, None])


def judged(*, smallest=0.01, **parts):
    return judge(parts, dict.fromkeys(parts, smallest), level=0.05)


def bounds(found):
    return found.supported_above, found.contradicted_below, found.equivalent_above, found.equivalent_below


@pytest.mark.parametrize("of", [part, over_layers])
@pytest.mark.parametrize("ways", [1, 3])
@pytest.mark.parametrize("smallest", [0.01, 1.4, 4])
def test_a_mean_beyond_a_bound_has_another_verdict_and_one_before_it_has_not(of, ways, smallest):
    def verdict(mean):
        return judged(smallest=smallest, **{f"part-{i}": of(mean) for i in range(ways)}).verdict

    supported, contradicted, low, high = bounds(
        judged(smallest=smallest, **{f"part-{i}": of(0.1) for i in range(ways)}).parts["part-0"]
    )
    assert contradicted < 0 < supported
    step = 1e-6
    assert verdict(supported + step) == "supported" != verdict(supported - step)
    assert verdict(contradicted - step) == "contradicted" != verdict(contradicted + step)
    if np.isfinite(low):
        assert (verdict(low + step), verdict(high - step)) == ("equivalent", "equivalent")
        assert "equivalent" not in (verdict(low - step), verdict(high + step))


@pytest.mark.parametrize("sign", [1, -1])
def test_where_no_side_is_claimed_the_bound_holds_on_either_side_and_nothing_contradicts(sign):
    found = judged(smallest=1, it=part(4, direction="either")).parts["it"]
    assert np.isnan(found.contradicted_below)
    for share, verdict in ((1.001, "supported"), (0.999, "undecided")):
        mean = sign * share * found.supported_above
        assert judged(smallest=1, it=part(mean, direction="either")).verdict == verdict


def test_a_layer_that_seeds_choose_asks_for_more():
    alone, chosen = (judged(it=of(0.1)).parts["it"] for of in (part, over_layers))
    assert (
        chosen.supported_above > alone.supported_above > 0 > alone.contradicted_below > chosen.contradicted_below
    )


def test_seeds_without_a_spread_have_no_bounds():
    assert np.isnan(bounds(judged(it=part(1, spread=np.zeros(8))).parts["it"])).all()


def test_to_decide_all_open_parts_takes_the_most_seeds_of_any():
    found = judged(smallest=0.4, holds=part(9), wide=part(0.1), narrow=part(0.05, spread=SPREAD / 2))
    each = {name: own.seeds_to_decide for name, own in found.parts.items()}
    assert 5 < each["narrow"][0] < each["wide"][0] == found.seeds_to_decide[0]
    assert each["narrow"][1] < each["wide"][1] == found.seeds_to_decide[1]
    assert judged(smallest=0.4, holds=part(9)).seeds_to_decide is None
    more_than_anybody_trains = judged(smallest=0.001, wide=part(0.1), narrow=part(0.0))
    assert more_than_anybody_trains.seeds_to_decide is None


def test_a_condition_that_surely_fails_is_not_mended_by_more_seeds():
    def with_condition(mean):
        return judged(smallest=0.4, learned=part(mean, condition=True, bounded=True), it=part(9))

    assert with_condition(-9).seeds_to_decide is None
    assert with_condition(0.2).seeds_to_decide[1] > 8
