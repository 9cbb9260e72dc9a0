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
    assert "Grey: mlm-0, in each panel of other arms" in second.notes[1]
    assert not any(together.notes)


def test_of_very_many_arms_eight_families_at_equal_distances_have_panels_and_a_note_counts_them():
    arms = [f"mlm,ratio=0.{i:03}" for i in range(100)]
    table = results.concat([information([[5.0, 4.0 + 0.01 * i]], arm=arm) for i, arm in enumerate(arms)])
    panels = panels_of(table, arms)
    assert len(panels) == 8
    shown = [arm for panel in panels for arm in panel.arms]
    assert shown == [arm for arm in arms if arm in shown]  # in order, each once
    assert shown[0] == arms[0]
    assert shown[-1] == arms[-1]
    assert (
        f"Panels show {len(shown)} of 100 arms, in 8 groups at equal distances in the order of the experiment; "
        "the numbers of all are in results.parquet."
    ) in panels[0].notes[0]
    assert len(panels_of(table, arms[:48])) == 7  # as many as there are
    assert not panels_of(table, arms[:48])[0].notes[0]


def test_a_single_point_has_no_panel():
    one = information([[5.0]])
    assert panels_of(one, ["mlm"]) == []
    assert len(panels_of(information([[5.0, 4.0]]), ["mlm"])) == 1
    curve = results.concat([information([[5.0, 4.0]], arm=arm) for arm in NAMES[:6]])
    dots = results.concat([information([[5.0]], arm=arm) for arm in NAMES[6:]])
    assert [panel.arms for panel in panels_of(results.concat([curve, dots]), NAMES)][:1] == [NAMES[:6]]
