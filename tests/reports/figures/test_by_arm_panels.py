"""Many arms share one panel or have several, with names that never overlap."""

import itertools
from types import SimpleNamespace

import pandas as pd
import pytest
from matplotlib.text import Text

from ablations import results
from reports.figures import files
from reports.figures.by_arm import arm_lines, arm_panels, draw_arms
from reports.figures.style import GREY
from reports.figures.texts import TOKEN_INFORMATION
from tests.support.figures import (
    axes,
    information,
    names,
)


def drawn_figure(panel, monkeypatch):
    """The figure of a panel, laid out."""
    drawn = []
    monkeypatch.setattr(files, "render", lambda figure, **_: drawn.append(figure) or "")
    files.draw(panel)
    drawn[0].draw_without_rendering()
    return drawn[0]


@pytest.mark.parametrize("many", [1, 8, 30])
def test_names_at_the_ends_are_whole_and_apart_whatever_the_number_of_arms(many, monkeypatch):
    arms = [f"arm-{i}-of-which-the-name-is-long-and-has-no-space-at-all" for i in range(many)]
    table = pd.concat([information([[1, 2, 3], [2, 3, 5]], arm=arm) for arm in arms])
    lines = arm_lines(table, measure="token_information", metric="cross_fitted", arms=arms)
    figure = drawn_figure(SimpleNamespace(id="f1a", title="t", content=lines, csv_text=str), monkeypatch)
    (ax,) = figure.axes
    boxes = sorted((Text.get_window_extent(text) for text in ax.texts), key=lambda box: box.y0)
    assert len(names(ax)) == many
    assert all(lower.y1 <= upper.y0 + 1 for lower, upper in itertools.pairwise(boxes))  # a pixel of rounding
    assert all(ax.get_window_extent().x1 < box.x0 < box.x1 <= figure.bbox.x1 for box in boxes)
    assert figure.bbox.y0 <= boxes[0].y0
    assert boxes[-1].y1 <= figure.bbox.y1


NAMES = [f"{objective}-{i}" for objective in ("mlm", "clm") for i in range(6)]


def panels_of(table, arms, text=TOKEN_INFORMATION):
    return [panel for shown in text.shown for panel in arm_panels(table, text, shown, arms=arms)]


def test_up_to_eight_arms_share_a_panel_and_more_have_one_a_family_with_the_first_arm_in_grey():
    table = results.concat([information([[5.0, 4.0 + i]], arm=arm) for i, arm in enumerate(NAMES)])
    (together,) = panels_of(table[table["arm"].isin(NAMES[:8])], NAMES[:8])
    assert together.arms is None
    first, second = panels_of(table, NAMES)
    assert (first.arms, second.arms) == (NAMES[:6], NAMES[6:])
    assert second.title == f"{first.title.removesuffix(': mlm')}: clm"
    assert {point["arm"] for point in second.points} == set(second.rows["arm"]) == set(NAMES[6:])
    drawn = [draw_arms(panel.content, ax=axes()) for panel in (first, second)]
    assert names(drawn[0]) == [str(i) for i in range(6)]  # the panel says what they share
    assert names(drawn[1]) == ["mlm-0", *map(str, range(6))]
    grey = [text.get_gid() == "end" and text.get_color() == GREY for text in drawn[1].texts]
    assert grey == [True] + [False] * 6
    assert drawn[0].get_ylim() == drawn[1].get_ylim()
    colours = [[text.get_color() for text in ax.texts][-6:] for ax in drawn]
    assert colours[0] == colours[1]  # the same place of a family, the same colour
    assert "Grey: mlm-0, repeated in the panels of other arms" in second.notes[1]
    assert not any(together.notes)


def grid_of(count):
    """A grid of arms with their tables; the gain of the i-th is i hundredths of a nat."""
    arms = ["mlm", *(f"mlm,rate={i // 10},ratio=0.{i:03}" for i in range(1, count))]
    tables = [information([[5.0, 4.0 + 0.01 * i]], arm=arm) for i, arm in enumerate(arms)]
    return arms, results.concat(tables)


def gains_of(arms):
    rows = [
        {"run_id": arm, "arm": arm, "seed": 0, "step": 500, "measure": "validation", "metric": "loss", "n": 9}
        | {"experiment": "e", "value": 5.0 - 0.01 * i, "floor": 5.0}
        for i, arm in enumerate(arms)
    ]
    return results.table(rows)


def test_hundreds_of_arms_share_a_panel_with_the_first_and_those_of_the_largest_gain_named():
    arms, table = grid_of(100)
    (panel,) = panels_of(results.concat([table, gains_of(arms)]), arms)
    best = arms[-1:-8:-1]
    assert panel.arms == best
    assert {point["arm"] for point in panel.points} == set(panel.rows["arm"]) == set(best)
    assert panel.title.endswith(": 100 arms")
    ax = draw_arms(panel.content, ax=axes())
    assert names(ax) == ["mlm", *(arm.removeprefix("mlm,").replace(",", ", ") for arm in best[::-1])]
    (grey,) = [drawn for drawn in ax.collections if drawn.get_gid() == "unnamed"]
    ends = [curve[-1].tolist() for curve in grey.get_segments()]
    assert sorted(ends) == [[1, pytest.approx(4.0 + 0.01 * i)] for i in range(100)]  # every arm, found by its mean
    bottom, top = ax.get_ylim()
    assert bottom < 4.0 < 5.0 < top
    assert panel.notes[1] == (
        "Thin grey lines are means of all 100 arms; the thick grey line is mlm. Single seeds are not drawn. "
        "The named arms are the 7 with the largest gain, which is partly chance. The numbers of all arms are "
        "in results.parquet."
    )


def test_without_gains_hundreds_of_arms_are_named_at_equal_distances():
    arms, table = grid_of(100)
    (panel,) = panels_of(table, arms)
    assert panel.arms == [arms[place] for place in (1, 17, 34, 50, 66, 83, 99)]
    assert "The named arms are the 7 at equal steps in the order of the spec." in panel.notes[1]


def test_fewer_gains_than_names_choose_no_arms():
    """The only arm with a gain was the only one named: `the 1 with the largest gain, which is partly chance`."""
    arms, table = grid_of(100)
    (panel,) = panels_of(results.concat([table, gains_of(arms[:2])]), arms)
    assert panel.arms == [arms[place] for place in (1, 17, 34, 50, 66, 83, 99)]
    assert "The named arms are the 7 at equal steps in the order of the spec." in panel.notes[1]


def test_dozens_of_arms_keep_a_panel_a_family():
    arms, table = grid_of(48)
    panels = panels_of(table, arms)
    assert len(panels) == 7
    assert {arm for panel in panels for arm in panel.arms} == set(arms)
    assert not any(panel.content.unnamed for panel in panels)


def test_a_single_point_has_no_panel():
    one = information([[5.0]])
    assert panels_of(one, ["mlm"]) == []
    assert len(panels_of(information([[5.0, 4.0]]), ["mlm"])) == 1
    curve = results.concat([information([[5.0, 4.0]], arm=arm) for arm in NAMES[:6]])
    dots = results.concat([information([[5.0]], arm=arm) for arm in NAMES[6:]])
    assert [panel.arms for panel in panels_of(results.concat([curve, dots]), NAMES)] == [NAMES[:6], NAMES[6:]]


def test_each_depth_has_its_own_panel_that_says_how_deep_its_encoders_are():
    """Encoders of 2, 4 and 6 layers shared a panel, in which equal places are different shares of the way."""
    depth_by_arm = {"two": 2, "three": 3, "also-two": 2, "one": 1, "none": 0}
    tables = [information([[5.0, *[4.0] * depth]], arm=arm) for arm, depth in depth_by_arm.items()]
    panels = panels_of(results.concat(tables), list(depth_by_arm))
    title = panels[0].title
    assert [(panel.arms, panel.title, panel.name) for panel in panels] == [
        (["two", "also-two"], title, "token_information-cross_fitted"),
        (["three"], f"{title}, encoders of 3 layers", "token_information-cross_fitted-3_layers"),
        (["one"], f"{title}, encoders of 1 layer", "token_information-cross_fitted-1_layers"),
        (["none"], f"{title}, encoders of 0 layers", "token_information-cross_fitted-0_layers"),
    ]
    assert [len(panel.points) for panel in panels] == [6, 4, 2, 1]
