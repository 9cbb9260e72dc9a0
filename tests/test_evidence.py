"""What seeds say of an effect: no side more often than its level, whatever was chosen by the seeds themselves."""

import numpy as np
import pytest
from scipy import stats

from reports import curve_shapes
from reports.evidence import above, below, interval, shared_level
from reports.seed_effects import SeedEffects
from reports.seed_tests import one_sided, sign_flips, t_interval

FORMS = {
    "rise_to_top": curve_shapes.rise_to_top,
    "fall_to_inner": curve_shapes.fall_to_inner,
    "top_is_lowest": curve_shapes.top_is_lowest,
    "top_over_lowest": lambda curves: curve_shapes.top_over_lowest(curves, ratio=1.0),
    "rise_after_inner": lambda curves: curve_shapes.rise_after_inner(curves, ratio=1.0),
}
SIDE = 0.025


def plain(values):
    values = np.asarray(values, float)
    return SeedEffects(tuple(range(len(values))), values)


def with_layers(form):
    at = form.at_layers_LS[:, None] if form.extreme == "largest" else form.at_layers_LS[None]
    return plain(form.values_S)._replace(at_layers_LMS=at)


def less(first, second):
    """The form of one arm's curves minus that of another's, of the forms that are the largest over layers."""
    at = first.at_layers_LS[:, None] - second.at_layers_LS[None]
    return plain(first.values_S - second.values_S)._replace(at_layers_LMS=at)


def test_without_layers_and_with_a_spread_it_is_the_t_test():
    values = [0.4, 1.1, -0.2, 0.9]
    found = plain(values)
    expected = stats.ttest_1samp(values, 0.3, alternative="greater").pvalue
    assert above(found, against=0.3) == pytest.approx(expected)
    assert below(found, against=0.3) == pytest.approx(1 - expected)
    assert interval(found, confidence=0.9) == t_interval(values, confidence=0.9)
    assert shared_level(found, 0.05) == 0.05


@pytest.mark.parametrize("n", [3, 6, 9])
def test_seeds_that_agree_have_the_sign_flip_test(n):
    found = plain([0.7] * n)
    assert above(found) == 0.5**n == sign_flips(found.values, rng=np.random.default_rng(0)) / 2
    assert (below(found), above(found, against=0.7), above(found, against=1.0)) == (1.0, 1.0, 1.0)
    assert below(found, against=1.0) == 0.5**n


def test_the_interval_is_what_neither_side_refuses():
    """With chosen layers too: at its ends a probability is half of 1 - confidence, and inside larger."""
    rng = np.random.default_rng(4)
    for form in FORMS.values():
        effects = with_layers(form(rng.normal(5, 1, (6, 7))))
        found = interval(effects, confidence=0.95)
        assert above(effects, against=found.low) == pytest.approx(SIDE)
        assert below(effects, against=found.high) == pytest.approx(SIDE)
        own = t_interval(effects.values, confidence=0.95)
        assert found.low <= own.low
        assert found.high >= own.high
        assert found.mean == own.mean


def test_a_single_layer_is_no_choice():
    curves = np.random.default_rng(5).normal(size=(6, 3))
    effects = with_layers(curve_shapes.rise_to_top(curves))
    assert interval(effects, confidence=0.95) == pytest.approx(t_interval(effects.values, confidence=0.95))
    assert shared_level(effects, 0.05) == 0.05


def test_a_clear_form_at_one_layer_is_seen_though_the_others_lack_it():
    rng = np.random.default_rng(6)
    curve = np.array([5.0, 5.0, 5.0, 3.0, 5.0, 5.0, 5.0])
    effects = with_layers(curve_shapes.rise_to_top(curve + 0.3 * rng.normal(size=(6, 7))))
    assert above(effects) <= 0.05 / 20
    none = with_layers(curve_shapes.rise_to_top(-curve + 0.3 * rng.normal(size=(6, 7))))
    assert below(none) > 2 * SIDE  # most layers are as high as the top, so that it is not below all
    falling = with_layers(curve_shapes.rise_to_top(-2 * np.arange(7.0) + 0.3 * rng.normal(size=(6, 7))))
    assert below(falling) <= 0.05 / 20


def curves_of_noise(kind, *, size, rng):
    """Flat curves: of independent layers, of layers that have to do with their neighbours, of uneven spread."""
    drawn = rng.normal(size=size)
    if kind == "walk":
        return drawn.cumsum(-1)
    return drawn * (1 + np.arange(size[-1]) % 3 * 2) if kind == "uneven" else drawn


def rates(form, kind, n, *, tables, layers=7, seed=0):
    """How often each side is found at 2.5%: by what is shipped, and by the t test of the seeds alone."""
    rng = np.random.default_rng([seed, n])
    shipped, alone = np.zeros(2), np.zeros(2)
    for _ in range(tables):
        made = FORMS[form](curves_of_noise(kind, size=(n, layers), rng=rng))
        effects, p = with_layers(made), float(one_sided(made.values_S))
        shipped += above(effects) <= SIDE, below(effects) <= SIDE
        alone += p <= SIDE, 1 - p <= SIDE
    return shipped / tables, alone / tables


def most(tables):
    """2.5% and three standard errors."""
    return SIDE + 3 * np.sqrt(SIDE * (1 - SIDE) / tables)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [3, 10])
def test_flat_curves_have_no_form(form, n):
    shipped, _ = rates(form, "flat", n, tables=1000)
    assert shipped.max() <= most(1000)


def test_the_seeds_alone_would_find_forms_in_noise_and_the_more_of_them_the_more():
    """Why the layers are asked one by one."""
    alone = [rates("rise_after_inner", "flat", n, tables=1500)[1] for n in (3, 20)]
    assert alone[1].min() > 2 * SIDE
    assert alone[1].sum() > alone[0].sum()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flat", "walk", "uneven"])
@pytest.mark.parametrize("n", [3, 5, 6, 10, 20])
@pytest.mark.parametrize("form", FORMS)
def test_curves_of_noise_have_no_form_in_6000_tables(form, n, kind):
    shipped, _ = rates(form, kind, n, tables=6000, seed=1)
    assert shipped.max() <= most(6000)


@pytest.mark.parametrize("n", [3, 6, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", ["rise_to_top", "fall_to_inner"])
def test_two_arms_of_noise_differ_in_no_form(form, n):
    rng = np.random.default_rng([2, n])
    found = np.zeros(2)
    for _ in range(1000):
        both = less(*(FORMS[form](rng.normal(size=(n, 7))) for _ in range(2)))
        found += above(both) <= SIDE, below(both) <= SIDE
    assert (found / 1000).max() <= most(1000)


@pytest.mark.parametrize(("n", "expected"), [(5, 0.0), (6, 1 / 64)])
def test_where_all_or_nothing_is_a_toss_seeds_that_agree_decide_as_rarely_as_they_agree(n, expected):
    """Curves that are ahead from the start or never, by chance: 2^-n on either side, no more than 2.5%."""
    tossed = np.random.default_rng(7).choice([-0.9, 0.9], size=(4000, n))
    agree = tossed[np.ptp(tossed, axis=1) == 0.0]
    found = sum(above(plain(values)) <= SIDE for values in agree) / 4000
    assert found == pytest.approx(expected, abs=3 * np.sqrt(SIDE * (1 - SIDE) / 4000))  # standard errors
