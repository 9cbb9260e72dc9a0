import itertools

import numpy as np
import pytest
from scipy import stats

from reports.seed_tests import (
    MOST_FLIPPED,
    holm_levels,
    one_sided,
    page_trend,
    sign_flips,
    standard_error,
    t_interval,
)

FIVE = np.array([0.3, -0.1, 0.2, 0.25, 0.05])


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_95_percent_interval_holds_the_truth_in_93_to_97_of_100(seeds):
    """10,000 experiments: one standard error of the coverage is 0.2%."""
    drawn = rng(seeds).normal(0.4, 1.3, (10_000, seeds))
    found = [t_interval(values, confidence=0.95) for values in drawn]
    assert 0.93 <= np.mean([low <= 0.4 <= high for _, low, high in found]) <= 0.97


def test_interval_and_test_are_scipys():
    low, high = stats.t.interval(0.9, 4, FIVE.mean(), stats.sem(FIVE))
    assert t_interval(FIVE, confidence=0.9) == pytest.approx((FIVE.mean(), low, high))
    assert standard_error(FIVE) == pytest.approx(stats.sem(FIVE))
    assert t_interval(FIVE, confidence=0.9)[1:] == pytest.approx(
        stats.ttest_1samp(FIVE, 0).confidence_interval(0.9)
    )
    for against in (0, 0.5):
        expected = stats.ttest_1samp(FIVE, against, alternative="greater").pvalue
        assert one_sided(FIVE, against=against) == pytest.approx(expected)


def test_the_paired_test_is_that_of_the_differences():
    a, b = rng().normal(size=(2, 6))
    assert one_sided(a - b) == pytest.approx(stats.ttest_rel(a, b, alternative="greater").pvalue)


def equivalence(values, *, margin):
    """The larger probability of the two one-sided tests that the mean lies beyond -margin or margin."""
    values = np.asarray(values)
    return np.maximum(one_sided(values, against=-margin), one_sided(-values, against=-margin))


def test_below_two_seeds_there_is_no_interval():
    mean, low, high = t_interval([2.5], confidence=0.95)
    assert mean == 2.5
    assert np.isnan([low, high]).all()
    assert np.isnan(t_interval([], confidence=0.95)).all()


def test_equivalence_is_the_interval_of_twice_the_level_inside_the_margin():
    """TOST at 5% says yes exactly if the 90% interval lies within the margin."""
    inside = 0
    for values in rng(1).normal(0.1, 0.5, (300, 5)):
        _, low, high = t_interval(values, confidence=0.90)
        assert (equivalence(values, margin=0.6) <= 0.05) == (low > -0.6 and high < 0.6)
        inside += low > -0.6 and high < 0.6
    assert 30 < inside < 270  # both happen


def test_equivalence_is_that_of_statsmodels():
    """ttost_paired(FIVE, zeros, -0.4, 0.4) of statsmodels 0.15.0."""
    assert equivalence(FIVE, margin=0.4) == pytest.approx(0.011849767325905829, rel=1e-9)


def test_equivalence_at_its_margin_is_found_in_5_of_100():
    """The truth is exactly the margin, the hardest case; 4,000 experiments."""
    found = np.mean(equivalence(rng(2).normal(1.0, 0.4, (4000, 5)), margin=1.0) <= 0.05)
    assert found == pytest.approx(0.05, abs=3 * np.sqrt(0.05 * 0.95 / 4000))  # three standard errors


def test_sign_flips_are_scipys_permutation_test():
    values = rng(3).normal(0.5, 1.0, 8)
    expected = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert sign_flips(values, rng=rng()) == pytest.approx(expected.pvalue)


def test_sums_that_differ_by_rounding_alone_are_ties():
    """Scores in hundredths, whose sums are counted in whole numbers here."""
    for hundredths in rng(7).integers(-25, 30, (50, 7)):
        sums = [abs(np.dot(signs, hundredths)) for signs in itertools.product([-1, 1], repeat=7)]
        expected = np.mean(np.array(sums) >= abs(hundredths.sum()))
        assert sign_flips(hundredths / 100, rng=rng()) == expected


def test_seeds_that_agree_reach_the_smallest_probability():
    assert sign_flips(np.arange(1.0, 7.0), rng=rng()) == 2 / 2**6
    assert sign_flips([1.0, -1.0, 1.0, -1.0, 1.0, -1.0], rng=rng()) == 1.0


def test_many_seeds_are_flipped_at_random_by_the_given_generator():
    values = rng(4).normal(0.2, 1.0, MOST_FLIPPED + 4)
    first, again, other = (sign_flips(values, rng=rng(seed)) for seed in (0, 0, 1))
    assert first == again
    assert first == pytest.approx(other, abs=6 * np.sqrt(first * (1 - first) / 2**MOST_FLIPPED))  # of a difference
    assert first == pytest.approx(
        stats.ttest_1samp(values, 0).pvalue, abs=0.05
    )  # normal values: the t test's, nearly


def test_page_counts_all_rankings():
    """Three seeds of three settings: L over all 6^3 ways to rank."""
    values = np.array([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [1.0, 2.0, 5.0]])
    ranks = stats.rankdata(values, axis=1)
    seen = (ranks @ [1, 2, 3]).sum()
    orders = [np.dot(order, [1, 2, 3]) for order in itertools.permutations([1, 2, 3])]
    sums = [sum(three) for three in itertools.product(orders, repeat=3)]
    assert page_trend(values) == pytest.approx(np.mean(np.array(sums) >= seen))


def test_page_sees_ranks_within_a_seed_alone_and_one_direction():
    values = rng(5).normal(size=(4, 5)) + np.arange(5)
    assert page_trend(values) < 0.01
    assert page_trend(values * [[1], [2], [9], [0.1]] + [[0], [5], [-7], [3]]) == page_trend(values)
    assert page_trend(-values) > 0.99


def test_holm_is_that_of_statsmodels():
    """multipletests([0.01, 0.04, 0.03, 0.005], method="holm") of statsmodels 0.15.0 rejects the first and the
    last."""
    p = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}
    levels = holm_levels(p, alpha=0.05)
    assert levels == pytest.approx({"d": 0.05 / 4, "a": 0.05 / 3, "c": 0.05 / 2, "b": 0.05 / 2})
    assert [name for name in p if p[name] <= levels[name]] == ["a", "d"]
    assert holm_levels({"alone": 0.2}, alpha=0.05) == {"alone": 0.05}


def test_after_the_first_failure_nothing_passes():
    """c would pass at alpha / 1, the level of the last, but the one before it has failed."""
    p = {"a": 0.001, "b": 0.03, "c": 0.04}
    assert [name for name, level in holm_levels(p, alpha=0.05).items() if p[name] <= level] == ["a"]


def test_a_family_errs_at_most_at_alpha():
    """Of 2,000 families of five tests of nothing, Holm finds something in at most 5% and three standard errors;
    five tests at 5% each would in 23%."""
    tests = rng(6).uniform(size=(2000, 5))
    families = [dict(zip("abcde", p, strict=True)) for p in tests]
    found = [any(p[name] <= level for name, level in holm_levels(p, alpha=0.05).items()) for p in families]
    assert np.mean(found) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)
    assert (tests.min(1) <= 0.05).mean() > 0.2
