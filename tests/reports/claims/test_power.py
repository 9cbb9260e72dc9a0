"""Chances of claims before the first run, from the spread of a pilot."""

import numpy as np
import pandas as pd
import pytest
from pydantic import TypeAdapter
from scipy import stats

from ablations import results
from ablations.spec.contrasts import Effect
from reports.claims.outcomes import look_levels
from reports.claims.power import claim_powers, unlikely
from tests.support.loss_claims import claims_of

SPREAD = 0.2
CONTEXT = {"arms": ["a", "b", "base"], "measures": ["validation"]}


@pytest.fixture
def pilot():
    """Differences of arm a from the base with a standard deviation of .2 over six seeds."""
    values = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0]) * SPREAD * np.sqrt(5 / 6) + 3
    return results.table(
        {"run_id": f"{arm}-{seed}", "arm": arm, "seed": seed, "experiment": "x", "step": 5}
        | {"measure": "validation", "metric": "loss", "group": None, "value": value, "floor": 9.0}
        for arm, of_arm in {"a": values, "base": np.zeros(6)}.items()
        for seed, value in enumerate(of_arm)
    )


def test_the_chance_is_that_of_experiments_with_such_seeds(tmp_path, pilot):
    (one,) = claim_powers(claims_of(tmp_path, ("more", "a", {"smallest": 0.2})), pilot, seeds=10, **CONTEXT)
    assert (one.claim, one.part, one.unit, one.pilot_seeds) == ("more", "more", "nats", 6)
    assert one.spread == pytest.approx(SPREAD)
    rng, draws = np.random.default_rng(0), 20_000
    for seeds, chance in one.chances.items():
        test = stats.ttest_1samp(rng.normal(0.2, SPREAD, (draws, seeds)), 0, axis=1)
        counted = ((test.pvalue < 0.05) & (test.statistic > 0)).mean()
        assert chance == pytest.approx(counted, abs=3 * np.sqrt(0.25 / draws))
    assert one.large_effect > one.chances[10]


def test_a_family_of_two_makes_it_harder(tmp_path, pilot):
    (alone,) = claim_powers(claims_of(tmp_path, ("more", "a", {"smallest": 0.2})), pilot, seeds=10, **CONTEXT)
    two, _ = claim_powers(
        claims_of(tmp_path, ("more", "a", {"smallest": 0.2}), ("again", "a", {"smallest": 0.2})),
        pilot,
        seeds=10,
        **CONTEXT,
    )
    assert two.chances[5] < alone.chances[5]


def test_with_looks_the_level_is_that_of_the_next_look(tmp_path, pilot):
    looks = (3, 6, 12)
    (one,) = claim_powers(
        claims_of(tmp_path, ("more", "a", {"smallest": 0.2})), pilot, seeds=12, looks=looks, **CONTEXT
    )
    levels = look_levels(looks, level=0.05)
    rng, draws = np.random.default_rng(1), 20_000
    for seeds, level in ((5, levels[1]), (10, levels[2])):
        test = stats.ttest_1samp(rng.normal(0.2, SPREAD, (draws, seeds)), 0, axis=1)
        counted = ((test.pvalue < level) & (test.statistic > 0)).mean()
        assert one.chances[seeds] == pytest.approx(counted, abs=3 * np.sqrt(0.25 / draws))


def test_a_claim_that_so_many_seeds_would_not_decide_is_told(tmp_path, pilot):
    claims = claims_of(
        tmp_path, ("fine", "a", {"smallest": 0.2}), ("hopeless", "a", {"smallest": 0.01, "family": "two"})
    )
    assert unlikely(claim_powers(claims, pilot, seeds=20, **CONTEXT), seeds=20) == [
        "hopeless: with 20 seeds an effect of 3 times the smallest that matters (0.03 nats) would be found in 9 "
        "of 100 experiments, as seeds of the pilot differ by 0.2 (standard deviation, n = 6); plan more seeds, or "
        "say that a larger effect matters."
    ]


@pytest.mark.parametrize(("seeds", "number"), [(1, "1 seed"), (2, "2 seeds")])
def test_fewer_seeds_than_a_verdict_needs_decide_nothing(tmp_path, pilot, seeds, number):
    claims = claims_of(tmp_path, ("surely", "a", {"smallest": 100.0}))
    powers = claim_powers(claims, pilot, seeds=seeds, **CONTEXT)
    assert powers[0].large_effect == 0.0
    assert unlikely(powers, seeds=seeds) == [
        f"surely: {number} cannot decide a claim, which needs at least 3; plan more seeds."
    ]


def test_seeds_that_agree_up_to_rounding_decide_from_as_many_seeds_on_as_their_signs_do(tmp_path, pilot):
    value = np.where(pilot.arm == "a", 0.1, 0.0) + pilot.seed.to_numpy(float) * 1e-17
    (one,) = claim_powers(
        claims_of(tmp_path, ("more", "a", {"smallest": 0.05})), pilot.assign(value=value), seeds=10, **CONTEXT
    )
    assert one.chances == {3: 0.0, 5: 0.0, 10: 1.0, 20: 1.0}  # 2^-5 is above 0.025, and 2^-10 is not


def test_a_pilot_whose_effects_are_no_numbers_tells_no_spread(tmp_path, pilot):
    broken = pilot.assign(value=pilot.value.where((pilot.seed > 0) | (pilot.arm != "a")))
    alone = broken[broken.seed < 2]
    assert claim_powers(claims_of(tmp_path, ("more", "a", {"smallest": 0.2})), alone, seeds=10, **CONTEXT) == [
        "more: the pilot does not tell how much seeds differ: one of its effects is a finite number in fewer than "
        "two of its seeds."
    ]


def test_an_arm_that_the_pilot_lacks_is_told(tmp_path, pilot):
    assert claim_powers(claims_of(tmp_path, ("other", "b", {"smallest": 0.2})), pilot, seeds=10, **CONTEXT) == [
        "other: the pilot does not tell how much seeds differ: it has no results of b."
    ]


def test_a_claim_that_says_only_that_arms_differ_must_be_beyond_what_matters(tmp_path, pilot):
    (claim,) = claims_of(tmp_path, ("differ", "a", {"smallest": 0.1}))
    either = claim.model_copy(update={"effect": claim.effect.model_copy(update={"direction": "either"})})
    (one,) = claim_powers([either], pilot, seeds=10, **CONTEXT)
    rng, draws = np.random.default_rng(2), 20_000
    values = rng.normal(0.3, SPREAD, (draws, 10))
    counted = (stats.ttest_1samp(values, 0.1, axis=1, alternative="greater").pvalue < 0.025).mean()
    assert one.large_effect == pytest.approx(counted, abs=3 * np.sqrt(0.25 / draws))
    assert max(one.chances.values()) < 0.05


def test_a_trend_that_so_few_seeds_cannot_show_is_told(tmp_path, pilot):
    (claim,) = claims_of(tmp_path, ("rises", "a", {"smallest": 0.2}))
    trend = {"kind": "trend", "of": claim.effect.of, "arms": ["base", "middle", "a"], "direction": "rising"}
    rising = claim.model_copy(
        update={
            "effect": TypeAdapter(Effect).validate_python(trend),
            "needs": claim.needs.model_copy(update={"arms": ("base", "middle", "a")}),
        }
    )
    middle = pilot[pilot.arm == "a"].assign(arm="middle", run_id="m" + pilot.run_id, value=pilot.value / 2)
    context = {"arms": ["base", "middle", "a"], "measures": ["validation"], "seeds": 3}
    both = pd.concat([pilot, middle])
    powers = claim_powers(
        [rising, *[rising.model_copy(update={"name": f"{i}"}) for i in range(11)]], both, **context
    )
    assert powers[0].chances[3] == powers[0].large_effect == 0 < powers[0].chances[5]
    assert unlikely(powers[:1], seeds=3) == [
        "rises: 3 seeds cannot show that the steps of a trend agree: Page's test needs at least 4 at this level; "
        "plan more seeds."
    ]
    (alone,) = claim_powers([rising], both, **context)
    assert (alone.fewest_for_page, alone.chances[3] > 0) == (2, True)


def test_claims_of_arms_that_the_experiment_lacks_are_left_out(tmp_path, pilot):
    claims = claims_of(tmp_path, ("more", "a", {"smallest": 0.2}), ("never", "z", {"smallest": 0.2}))
    assert [one.claim for one in claim_powers(claims, pilot, seeds=10, **CONTEXT)] == ["more"]
