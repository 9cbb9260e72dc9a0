"""Labels at the ends of lines do not overlap, keep their order and move no farther than that takes."""

import itertools

import numpy as np
import pytest

from reports.figures.axes import spread


@pytest.mark.parametrize("many", [1, 2, 8, 20])
@pytest.mark.parametrize("seed", range(5))
def test_labels_are_apart_in_order_and_on_the_axis(many, seed):
    rng = np.random.default_rng(seed)
    places, heights = rng.uniform(0, 1, many), np.full(many, 0.9 / many)
    middles = np.array(spread(places, heights))
    rising = np.argsort(places)
    gaps = [b - a for a, b in itertools.pairwise(middles[rising])]
    assert all(gap >= 0.9 / many - 1e-12 for gap in gaps)  # float64 algebra
    assert (middles - heights / 2).min() >= -1e-12  # float64 algebra
    assert (middles + heights / 2).max() <= 1 + 1e-12  # float64 algebra


def test_labels_that_have_room_stay_where_they_are():
    places = [0.9, 0.1, 0.5]
    assert spread(places, [0.1] * 3) == pytest.approx(places)


def test_two_labels_at_one_place_move_equally_and_a_third_stays():
    assert spread([0.5, 0.5, 0.1], [0.2] * 3) == pytest.approx([0.4, 0.6, 0.1])


def test_a_label_of_two_lines_takes_more():
    low, high = spread([0.5, 0.5], [0.2, 0.1])
    assert high - low == pytest.approx(0.15)


def test_the_moves_are_the_least():
    """The counter-example: a pile from the lowest up is apart as well, and moves more."""
    places, height = np.array([0.5, 0.52, 0.54]), 0.1
    moved = np.square(np.array(spread(places, [height] * 3)) - places).sum()
    assert moved < np.square(places[0] + height * np.arange(3) - places).sum()


def test_more_labels_than_there_is_room_for_are_still_apart():
    middles = spread([0.5] * 4, [0.5] * 4)
    assert [b - a for a, b in itertools.pairwise(middles)] == pytest.approx([0.5] * 3)
