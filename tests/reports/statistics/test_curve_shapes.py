import numpy as np
import pytest

from reports.statistics import curve_shapes
from reports.statistics.curve_shapes import (
    fall_to_inner,
    lowest_elsewhere,
    parabola,
    ratio_interval,
    rise,
    rise_after_inner,
    rise_to_top,
    top_is_lowest,
    top_over_lowest,
)
from reports.statistics.seed_tests import one_sided

MLM = np.array([5.22, 5.22, 5.18, 5.05, 4.93, 4.99, 5.10])
"""Voita et al. 2019: information of masked LM about its token, layers 0 to 6."""
LM = np.array([5.30, 5.285, 5.22, 5.05, 4.80, 4.47, 3.97])
LM_CHANGE = np.array([0.0747, 0.0668, 0.0649, 0.0791, 0.0704])
"""And the change of causal LM, steps 1 to 2 and so on."""


def seeds(curve, n=5, *, spread=0.0, seed=0):
    return curve + spread * np.random.default_rng(seed).normal(size=(n, len(curve)))


def test_the_curves_of_the_paper_have_the_forms_that_it_names():
    rises = rise_to_top(seeds(MLM))
    assert rises.values_S == pytest.approx(np.full(5, 0.17))
    assert rises.chosen_S.tolist() == [4] * 5
    assert fall_to_inner(seeds(MLM)).values_S == pytest.approx(np.full(5, 0.29))
    assert top_is_lowest(seeds(LM)).values_S == pytest.approx(np.full(5, 4.47 - 3.97))
    assert top_is_lowest(seeds(MLM)).values_S == pytest.approx(np.full(5, 4.93 - 5.10))
    assert rise_after_inner(seeds(LM_CHANGE), ratio=1.1).values_S == pytest.approx(
        np.full(5, 0.0791 / 0.0649 - 1.1)
    )
    assert top_over_lowest(seeds(LM_CHANGE), ratio=1.2).values_S == pytest.approx(
        np.full(5, 0.0704 / 0.0649 - 1.2)
    )


def test_each_seed_is_judged_where_the_others_are_lowest_and_not_where_it_is():
    curves = np.array([[9.0, 0.0, 5.0, 9.0], [9.0, 5.0, 1.0, 9.0], [9.0, 5.0, 1.0, 9.0]])
    assert lowest_elsewhere(curves, among=np.array([1, 2])).tolist() == [2, 1, 1]
    assert rise_to_top(curves).values_S.tolist() == [4.0, 4.0, 4.0]


@pytest.mark.parametrize("form", [rise_to_top, fall_to_inner, top_is_lowest])
def test_noise_has_no_form_on_average_but_a_minimum_of_the_same_seeds_has(form):
    found = np.array([form(seeds(np.zeros(7), spread=1.0, seed=seed)).values_S.mean() for seed in range(2000)])
    assert found.mean() == pytest.approx(0, abs=3 * found.std() / np.sqrt(2000))  # three standard errors
    same = seeds(np.zeros(7), n=2000, spread=1.0)
    assert (same[:, -1] - same[:, 1:-1].min(1)).mean() > 1  # the counter-example


def test_the_layers_that_could_have_been_chosen_hold_the_one_that_was():
    """A curve without noise has its form at the largest, or the smallest, of them."""
    for form in (rise_to_top, fall_to_inner, top_is_lowest, ratio_of_top, ratio_after_inner):
        for curve in (MLM, LM, LM_CHANGE):
            made = form(seeds(curve))
            extreme = {"largest": np.max, "smallest": np.min}[made.extreme]
            if form is not ratio_after_inner:  # which asks only behind the lowest layer
                assert made.values_S == pytest.approx(extreme(made.at_layers_LS, axis=0))
            assert any(made.values_S == pytest.approx(each_S) for each_S in made.at_layers_LS)


def ratio_of_top(curves):
    return top_over_lowest(curves, ratio=1.2)


def ratio_after_inner(curves):
    return rise_after_inner(curves, ratio=1.1)


def test_ratios_keep_their_mean_and_are_linear_in_each_seed():
    curves = seeds(LM_CHANGE, spread=0.002)
    found = top_over_lowest(curves, ratio=1.2)
    low = curves[np.arange(5), found.chosen_S]
    assert found.values_S.mean() == pytest.approx(curves[:, -1].mean() / low.mean() - 1.2)


def test_rise_is_that_of_the_least_squares_line():
    values = np.random.default_rng(1).normal(size=(4, 6))
    expected = [5 * np.polyfit(range(6), row, 1)[0] for row in values]
    assert rise(values) == pytest.approx(np.array(expected))
    assert rise(np.array([[1.0, 2.0, 3.0]])).tolist() == [2.0]


def test_parabola_is_polyfits_and_its_derivative_is_that():
    x = np.array([-2.0, -1.0, 0.5, 1.0, 3.0])
    values = np.random.default_rng(2).normal(size=(3, 5))
    fit = parabola(x, values)
    expected = np.array([np.polyfit(x, row, 2) for row in values])
    assert fit.bend_S == pytest.approx(expected[:, 0])
    assert fit.derivative(0.7) == pytest.approx([np.polyval(np.polyder(row), 0.7) for row in expected])


def test_the_interval_of_a_ratio_holds_every_ratio_that_a_t_test_does_not_refuse():
    rng = np.random.default_rng(3)
    below = rng.normal(3.0, 0.4, 6)
    above = 0.7 * below + rng.normal(0.0, 0.3, 6)
    found = ratio_interval(above, below, confidence=0.95)
    assert found.value == pytest.approx(above.mean() / below.mean())
    assert one_sided(above - found.low * below) == pytest.approx(0.025)
    assert one_sided(above - found.high * below) == pytest.approx(0.975)


def test_a_ratio_to_what_may_be_nothing_has_no_interval():
    assert np.isnan(
        ratio_interval(np.array([1.0, 2.0, 3.0]), np.array([1.0, -1.0, 0.5]), confidence=0.95)[1:]
    ).all()
    assert np.isnan(ratio_interval(np.array([1.0]), np.array([2.0]), confidence=0.95)[1:]).all()


def test_nothing_is_chosen_at_random():
    curves = seeds(MLM, spread=0.1)
    assert curve_shapes.rise_to_top(curves).values_S.tolist() == curve_shapes.rise_to_top(curves).values_S.tolist()
