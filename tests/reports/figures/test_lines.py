"""Lines show their chance levels and ceilings, in the axes or above them."""

import numpy as np
import pytest
from scipy import stats

from ablations import results
from reports.figures.lines import write_above, written_above
from tests.support.figures import (
    axes,
    ceilings,
    floors,
    geometry,
    information,
    token_information,
)


def test_a_small_floor_is_written_with_a_digit_that_tells():
    ax = token_information(information([[2.0, 1.9]], floor=0.0042), ax=axes())
    assert written_above(ax) == ["n = 1 seed", "chance level (labels shuffled): 0.004 ↓"]


def test_floors_that_are_nothing_but_rounding_are_written_as_0():
    both = [information([[5.0, 4.9]], arm=arm, floor=floor) for arm, floor in (("mlm", -3e-16), ("clm", 4e-6))]
    ax = token_information(results.concat(both), ax=axes())
    assert written_above(ax) == ["n = 1 seed", "chance level (labels shuffled): 0.00 ↓"]


def test_a_floor_near_the_curves_is_in_the_axes_and_explained_above():
    ax = token_information(information([[2.0, 1.0]], floor=0.8), ax=axes())
    assert ax.get_ylim()[0] < 0.8
    assert written_above(ax) == ["n = 1 seed", "dashed: chance level (labels shuffled)"]


@pytest.mark.parametrize(("floor", "text"), [(-30, "\N{MINUS SIGN}30.00 ↓"), (99, "99.00 ↑")])
def test_a_floor_far_off_is_written_out_and_does_not_flatten_the_curves(floor, text):
    ax = token_information(information([[2.0, 1.0]], floor=floor), ax=axes())
    np.testing.assert_allclose(ax.get_ylim(), [0.94, 2.06])  # the curve and a margin of 6%
    assert written_above(ax) == ["n = 1 seed", f"chance level (labels shuffled): {text}"]


def test_intervals_beyond_the_axis_are_written_out():
    """The interval of two seeds is 12.7 standard errors wide to each side."""
    ax = token_information(information([[2.0, 1.0], [2.3, 1.1]], floor=1.2), ax=axes())
    high = 2.15 + stats.t.ppf(0.975, 1) * np.std([2.0, 2.3], ddof=1) / 2**0.5
    assert high > ax.get_ylim()[1]
    assert written_above(ax)[-1] == f"intervals reach: {high:.2f} ↑"
    ax = token_information(information([[2.0, 1.0], [2.01, 1.01]], floor=1.2), ax=axes())
    assert not [note for note in written_above(ax) if note.startswith("intervals")]


def test_a_ceiling_that_all_arms_have_is_one_thin_line():
    both = [information([[4.0, 3.0]], arm=arm, floor=2.0, ceiling=4.5) for arm in ("mlm", "clm")]
    ax = token_information(results.concat(both), ax=axes())
    (line,) = ceilings(ax)
    np.testing.assert_array_equal(line.get_ydata(), [4.5, 4.5])
    assert line.get_linewidth() < 1
    assert ax.get_ylim()[1] > 4.5
    assert written_above(ax) == [
        "n = 1 seed",
        "thin: ceiling (entropy of the labels)",
        "dashed: chance level (labels shuffled)",
    ]


def test_arms_that_are_asked_for_other_labels_have_ceilings_of_their_own():
    two = [
        information([[4.0, 3.0]], arm=arm, group="output label", ceiling=at)
        for arm, at in (("mlm", 4.5), ("clm", 4.2))
    ]
    ax = token_information(results.concat(two), ax=axes(), group="output label")
    assert [(line.get_color(), line.get_ydata()[0]) for line in ceilings(ax)] == [
        ("#0072B2", 4.5),
        ("#D55E00", 4.2),
    ]


def test_a_ceiling_far_off_is_written_out_and_does_not_flatten_the_curves():
    ax = token_information(information([[2.0, 1.0]], floor=-30, ceiling=9.0), ax=axes())
    np.testing.assert_allclose(ax.get_ylim(), [0.94, 2.06])  # the curve and a margin of 6%
    assert written_above(ax) == [
        "n = 1 seed",
        "ceiling (entropy of the labels): 9.00 ↑",
        "chance level (labels shuffled): \N{MINUS SIGN}30.00 ↓",
    ]
    near = token_information(information([[2.0, 1.0]], floor=0.8, ceiling=9.0), ax=axes())
    assert near.get_ylim()[0] < 0.8  # the floor stays
    assert near.get_ylim()[1] < 2.2
    assert written_above(near)[1] == "dashed: chance level (labels shuffled)"


def test_numbers_without_a_ceiling_show_none():
    ax = token_information(information([[2.0, 1.0]], floor=0.8), ax=axes())
    assert not ceilings(ax)
    change = information([[0.2, 0.1]], measure="geometry", metric="anisotropy", ceiling=0.3)
    assert not ceilings(geometry(change, ax=axes(), metric="anisotropy"))


def test_without_floors_none_are_drawn_or_spoken_of():
    ax = token_information(information([[2.0, 1.0]]).assign(floor=float("nan")), ax=axes())
    assert not floors(ax)
    assert written_above(ax) == ["n = 1 seed"]


def test_a_note_above_a_logarithmic_axis_is_alone():
    """The second axis had ticks such as 2 x 10^0 in its place, which pushed it out of the figure."""
    ax = axes()
    ax.set(xscale="log", xlim=(1, 4))
    write_above(ax, "chance level: 0.00")
    ax.get_figure().draw_without_rendering()
    (above,) = ax.child_axes
    ticks = [*above.xaxis.get_major_ticks(), *above.xaxis.get_minor_ticks()]
    assert not any(part.get_visible() for tick in ticks for part in (tick.label2, tick.tick2line))
    assert above.xaxis.label.get_window_extent().y0 <= ax.bbox.y1 + 10  # pixels: right above the axes
