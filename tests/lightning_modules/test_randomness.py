"""Keyed random numbers: the same for the same key, unrelated otherwise, uniform."""

import numpy as np
import pytest
from scipy import stats

from lightning_modules.randomness import derive, uniforms

N = 200_000


def test_derived_seeds_depend_on_every_part_of_the_purpose_and_on_its_borders():
    seeds = {
        derive(0, "a", 1),
        derive(1, "a", 1),
        derive(0, "b", 1),
        derive(0, "a", 2),
        derive(0, "a1"),
        derive(0, "a"),
    }
    assert len(seeds) == 6
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive(0, "a", 1) == derive(0, "a", 1)


def test_uniforms_depend_on_key_and_counters_alone():
    counters = np.arange(N), np.arange(N)[::-1].copy()
    np.random.seed(0)  # noqa: NPY002 - the global state is what must not matter
    first = uniforms(7, *counters)
    np.random.seed(1)  # noqa: NPY002
    assert np.array_equal(first, uniforms(7, *counters))
    part = slice(100, 200)
    assert np.array_equal(first[part], uniforms(7, counters[0][part], counters[1][part]))


@pytest.mark.parametrize(
    "counters", [(np.arange(N),), (np.arange(N) % 500, np.arange(N) // 500)], ids=["one", "two"]
)
def test_uniforms_are_uniform_and_uncorrelated_for_consecutive_counters_and_keys(counters):
    draws = uniforms(0, *counters)
    assert draws.min() >= 0
    assert draws.max() < 1
    assert stats.kstest(draws, "uniform").pvalue > 1e-4  # one test in 10,000 would fail for true uniforms
    for other in (uniforms(1, *counters), np.roll(draws, 1), np.roll(draws, 500)):
        assert abs(np.corrcoef(draws, other)[0, 1]) < 4 / np.sqrt(N)  # four standard errors


def test_the_order_of_counters_matters():
    a, b = np.arange(1000), np.arange(1000) + 17
    assert not np.any(uniforms(0, a, b) == uniforms(0, b, a))
