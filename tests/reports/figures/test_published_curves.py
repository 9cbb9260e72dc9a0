"""Published curves stand beside those of an experiment, in the colour of the same objective."""

import numpy as np
import pytest

from ablations.spec.figures import PublishedPoint
from reports.figures.by_arm import draw_arms
from reports.figures.style import arm_styles
from reports.page import figures
from reports.page.figures import beside_published
from tests.support.fake_experiment import ARMS
from tests.support.figures import (
    axes,
    names,
)


def of_paper(objective, layer, value, **more):
    about = {"measure": "layer_change", "metric": "pwcca", "layer_to": layer + 1, "read": "from the figure"} | more
    return PublishedPoint(source="A paper", objective=objective, layer=layer, value=value, **about)


OBJECTIVES = {"mlm": "masked_lm", "clm": "causal_lm", "mt": "translation", "untrained": "masked_lm"}


def change_panel(table, published, *, objectives=OBJECTIVES):
    (figure,) = (
        figure
        for figure in figures.figures(table, arms=ARMS, published=published, objectives=objectives)
        if figure.text.name == "layer_change"
    )
    return {panel.metric: panel for panel in figure.panels}


def test_a_published_curve_has_the_colour_of_the_arm_with_its_objective(table):
    curve = [of_paper("causal_lm", 1, 0.5, error=0.01), of_paper("causal_lm", 2, 0.6)]
    panel = change_panel(table, curve)["pwcca"]
    ax = draw_arms(panel.content, ax=axes())
    (line,) = (line for line in ax.lines if line.get_gid() == "beside")
    assert line.get_color() == arm_styles(ARMS)["clm"].colour
    assert line.get_xydata().tolist() == [[1, 0.5], [2, 0.6]]
    low, high = ax.get_ylim()
    assert low < 0.5 < 0.6 < high
    assert "A paper, causal LM" in names(ax)
    first, second = (point for point in panel.points if point["band"] == "published")
    assert (first["arm"], first["layer"], first["layer_to"]) == ("A paper, causal LM", 1, 2)
    assert [first[end] for end in ("low", "mean", "high")] == pytest.approx([0.49, 0.5, 0.51])
    assert np.isnan([second["low"], second["high"]]).all()  # nobody knows how sure its reading is
    assert "A paper, causal LM: 0.500 at 1→2" in panel.description


def notes(table, published):
    drawn = figures.figures(table, arms=ARMS, published=published, objectives=OBJECTIVES)
    return next(figure.notes for figure in drawn if figure.text.name == "layer_change")


def test_published_curves_are_explained_only_for_panels_that_have_them(table):
    explained = (
        "ong dashes with hollow points are published curves of other models on other text. "
        "Compare only their shape."
    )
    in_one = [of_paper("causal_lm", 1, 0.5)]
    letter = change_panel(table, in_one)["pwcca"].letter
    assert notes(table, in_one)[-1] == f"Panel {letter}: l{explained}"
    in_all = [*in_one, of_paper("causal_lm", 1, 0.5, metric="debiased_cka")]
    assert notes(table, in_all)[-1] == f"L{explained}"
    assert not [note for note in notes(table, []) if explained in note]


@pytest.mark.parametrize(
    "point",
    [
        of_paper("permutation_lm", 1, 0.5),  # no arm has this objective
        of_paper("causal_lm", 1, 0.5, metric="debiased_cka_of_another_kind"),
        of_paper("causal_lm", 1, 0.5, group="rank 1-10"),
    ],
    ids=["no such arm", "another metric", "a group"],
)
def test_a_published_curve_of_something_else_is_not_drawn(table, point):
    for panel in change_panel(table, [point]).values():
        assert panel.content.published == ()
        assert all(point["band"] != "published" for point in panel.points)


def test_without_published_curves_a_panel_is_as_it_was(table):
    panel = change_panel(table, [])["pwcca"]
    assert beside_published(panel, [], objectives=OBJECTIVES) is panel
