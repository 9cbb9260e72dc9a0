import numpy as np
import pytest
from scipy import integrate, stats

from reports.statistics.seed_tests import equivalence_power, one_sided, power, seeds_to_decide, smallest_seen


def test_smallest_paired_effects_at_a_spread_of_half_a_point():
    """Textbook values of the paired t test at 5% and 80% power: 0.84, 0.50 and 0.33 for 5, 10 and 20 seeds."""
    found = [smallest_seen(sd=0.5, seeds=seeds, level=0.05) for seeds in (5, 10, 20)]
    assert found == pytest.approx([0.84, 0.50, 0.33], abs=0.005)


def test_smallest_effect_is_that_of_statsmodels():
    """TTestPower().solve_power(nobs=10, alpha=0.05, power=0.8) of statsmodels 0.15.0."""
    assert smallest_seen(sd=1, seeds=10, level=0.05) == pytest.approx(0.9960019, rel=1e-5)


@pytest.mark.parametrize(("seeds", "effect", "level"), [(3, 2.0, 0.05), (5, 1.0, 0.05), (10, 0.8, 0.05 / 6)])
def test_power_is_as_computed(seeds, effect, level):
    """4,000 experiments with this effect and a spread of 1."""
    expected = power(effect, sd=1.0, seeds=seeds, level=level)
    drawn = np.random.default_rng(seeds).normal(effect, 1.0, (4000, seeds))
    found = np.mean(one_sided(drawn) <= level / 2)
    assert found == pytest.approx(expected, abs=3 * np.sqrt(expected * (1 - expected) / 4000))  # standard errors
    assert 0.2 < expected < 0.9


def test_power_at_the_smallest_effect_is_that_of_8_times_in_10():
    effect = smallest_seen(sd=0.7, seeds=7, level=0.01)
    assert power(effect, sd=0.7, seeds=7, level=0.01) == pytest.approx(0.8, abs=1e-9)  # brentq's tolerance
    assert power(-effect, sd=0.7, seeds=7, level=0.01) == pytest.approx(0.8, abs=1e-9)
    assert power(0.0, sd=0.7, seeds=7, level=0.01) == pytest.approx(0.005)  # its own side only


def test_far_in_the_tail_power_is_that_of_the_normal_given_the_spread():
    """Noncentrality 40 at two degrees of freedom, where the quantiles take over: by numerical integration."""
    critical = stats.t.isf(0.05 / 20 / 2, 2)
    exact, _ = integrate.quad(lambda q: stats.norm.cdf(40 - critical * np.sqrt(stats.chi2.ppf(q, 2) / 2)), 0, 1)
    assert power(40 / np.sqrt(3), sd=1, seeds=3, level=0.05 / 20) == pytest.approx(exact, abs=1 / 400)  # quantiles


def test_power_to_find_nothing_is_as_computed():
    expected = equivalence_power(1.5, sd=1.0, seeds=5, level=0.05)
    drawn = np.random.default_rng(1).normal(0.0, 1.0, (4000, 5))
    found = np.mean(np.maximum(one_sided(drawn, against=-1.5), one_sided(-drawn, against=-1.5)) <= 0.05)
    assert found == pytest.approx(expected, abs=3 * np.sqrt(expected * (1 - expected) / 4000))  # standard errors
    assert 0.5 < expected < 0.9


def test_the_seeds_that_decide_do_and_one_fewer_does_not():
    def decides(seeds):
        return (
            power(0.5, sd=0.6, seeds=seeds, level=0.01) >= 0.8
            and equivalence_power(0.5, sd=0.6, seeds=seeds, level=0.01) >= 0.8
        )

    seeds = seeds_to_decide(0.5, sd=0.6, level=0.01, absent_level=0.01)
    assert decides(seeds)
    assert not decides(seeds - 1)


def test_a_wider_spread_and_a_stricter_level_take_more_seeds_and_never_fewer_than_three():
    found = [seeds_to_decide(1.0, sd=sd, level=0.05, absent_level=0.05) for sd in (0.01, 0.5, 1.0, 2.0)]
    assert found[0] == 3
    assert found == sorted(found)
    assert seeds_to_decide(1.0, sd=0.5, level=0.005, absent_level=0.005) > seeds_to_decide(
        1.0, sd=0.5, level=0.05, absent_level=0.05
    )
    assert seeds_to_decide(0.001, sd=1.0, level=0.05, absent_level=0.05) is None


def test_a_very_strict_level_has_an_effect_that_is_seen():
    assert smallest_seen(sd=1.0, seeds=3, level=1e-8) > smallest_seen(sd=1.0, seeds=3, level=1e-7) > 0
