"""Levels at several looks: together they err as often as one test."""

import numpy as np
import pytest
from scipy import stats

from reports.claims.outcomes import look_levels
from reports.statistics.seed_tests import t_interval

SIZES = (3, 4, 6, 9, 13, 20)


def probabilities(draws, *, seed, mean=0.0, sizes=SIZES):
    """Two-sided probabilities of scipy's t test at each look, of new draws: (draws, looks)."""
    values = np.random.default_rng(seed).normal(mean, 1.0, (draws, sizes[-1]))
    return np.stack([stats.ttest_1samp(values[:, :size], 0.0, axis=1).pvalue for size in sizes], axis=1)


@pytest.mark.parametrize(("level", "ways"), [(0.05, 1), (0.05, 4), (0.01, 1)])
def test_the_looks_together_reject_as_often_as_one_test(level, ways):
    draws = 100_000
    levels = look_levels(SIZES, level=level, ways=ways)
    p = probabilities(draws, seed=5)
    for part in {1, ways}:
        rejected = (p <= np.asarray(levels) / part).any(1).mean()
        target = level / part
        # Three standard errors of these draws, and of the 2^19 that the levels are counted among.
        tolerance = 3 * np.sqrt(target * (1 - target) * (1 / draws + ways / part / 2**19))
        assert rejected <= target + tolerance
        if part == ways:
            assert rejected >= target - tolerance


def test_one_level_at_every_look_rejects_too_often():
    p = probabilities(20_000, seed=6)
    assert (p <= 0.05).any(1).mean() > 0.12


def test_error_is_spent_as_the_seeds_come():
    levels = np.asarray(look_levels(SIZES, level=0.05))
    p = probabilities(100_000, seed=7)
    first = np.where((p <= levels).any(1), (p <= levels).argmax(1), len(SIZES))
    for look, size in enumerate(SIZES):
        spent, target = (first <= look).mean(), 0.05 * size / SIZES[-1]
        assert spent == pytest.approx(target, abs=3 * np.sqrt(target / 100_000 + target / 2**19))


def test_the_first_look_has_its_share_and_a_single_look_the_whole_level():
    assert look_levels(SIZES, level=0.05)[0] == pytest.approx(0.05 * 3 / 20)
    assert look_levels((7,), level=0.05) == pytest.approx((0.05,))


def test_levels_are_above_those_that_ignore_how_alike_looks_are():
    """Bonferroni over the looks gives each the error that it spends; that is less than needed, never more."""
    shares = 0.05 * np.diff([0, *SIZES]) / SIZES[-1]
    levels = np.asarray(look_levels(SIZES, level=0.05))
    assert (levels >= shares * 0.99).all()  # counted among 2^19 draws
    assert levels[-1] > 1.2 * shares[-1]
    assert (levels < 0.05).all()


@pytest.mark.parametrize("level", [1e-4, 1e-5, 1e-6, 1e-7])
def test_a_look_errs_less_often_than_all_looks_also_if_its_share_is_less_than_one_draw(level):
    levels = np.asarray(look_levels(SIZES, level=level))
    assert (levels > 0).all()
    assert (levels < level).all()


@pytest.mark.parametrize("mean", [0.0, 0.7, 2.0])
def test_the_interval_at_the_stop_covers_the_truth(mean):
    draws, levels = 8_000, look_levels(SIZES, level=0.05)
    values = np.random.default_rng(8).normal(mean, 1.0, (draws, SIZES[-1]))
    covered = naive = 0
    for row in values:
        for size, level in zip(SIZES, levels, strict=True):
            interval = t_interval(row[:size], confidence=1 - level)
            if interval.low > 0 or interval.high < 0 or size == SIZES[-1]:
                plain = t_interval(row[:size], confidence=0.95)
                covered += interval.low <= mean <= interval.high
                naive += plain.low <= mean <= plain.high
                break
    assert covered / draws >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / draws)
    assert naive < covered
