"""What a final norm makes of the last layer: a mark behind the layers, a sentence, rows of the CSV."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from ablations import results
from ablations.results import AFTER_NORM
from reports.after_norm import after_norm, note_after_norm
from reports.figures import by_arm
from reports.styles import arm_styles

ARMS = ("gpt2", "untrained")
VALUES = {"gpt2": [3.0, 5.0, 4.0], "untrained": [2.0, 2.5, 2.6]}
NORMALISED = {"gpt2": 9.0, "untrained": 1.0}


def rows(measure="geometry", metric="effective_rank", group=None, *, leads=False):
    """Three layers of two models, and their last states after a norm, far above and below the curves."""
    for arm in ARMS:
        run = {"run_id": arm, "arm": arm, "seed": 0, "step": None, "measure": measure, "metric": metric}
        run |= {"standard_error": 0.1, "floor": 2.0}
        for layer, value in enumerate(VALUES[arm]):
            yield run | {"group": group, "layer": layer, "layer_to": layer + 1 if leads else None, "value": value}
        top = len(VALUES[arm]) - (not leads)
        after = AFTER_NORM if group is None else f"{group}, {AFTER_NORM}"
        place = {"group": after, "layer": top, "layer_to": top if leads else None}
        yield run | place | {"value": NORMALISED[arm]}


def marks(ax):
    return {to_hex(line.get_markeredgecolor()): line for line in ax.lines if line.get_gid() == "after norm"}


@pytest.mark.parametrize(
    ("measure", "metric", "group", "leads"),
    [
        ("geometry", "effective_rank", None, False),
        ("geometry", "update_norm", None, True),
        ("layer_change", "pwcca", None, True),
        ("token_information", "cross_fitted", "next token", False),
    ],
)
def test_each_arm_has_a_hollow_mark_behind_the_last_layer_and_no_curve_leads_there(measure, metric, group, leads):
    table = results.table(rows(measure, metric, group, leads=leads))
    ax = by_arm(table, ax=Figure().subplots(), measure=measure, metric=metric, group=group, arms=ARMS)
    styles, found = arm_styles(ARMS), marks(ax)
    for arm in ARMS:
        mark = found[styles[arm].colour.lower()]
        np.testing.assert_array_equal(mark.get_xydata(), [[3, NORMALISED[arm]]])
        assert mark.get_markerfacecolor() == "white"
    assert ax.get_xticklabels()[-1].get_text() == "norm"
    assert ax.get_ylim()[0] < 1 < 9 < ax.get_ylim()[1]
    for line in ax.lines:
        if line.get_gid() == "mean":
            assert max(line.get_xdata()) == 2


def test_without_a_norm_nothing_is_marked():
    table = results.table(row for row in rows() if row["group"] is None)
    ax = by_arm(table, ax=Figure().subplots(), measure="geometry", metric="effective_rank", arms=ARMS)
    assert not marks(ax)
    assert "norm" not in [label.get_text() for label in ax.get_xticklabels()]
    assert note(table) == ""


def note(table, *, measure="geometry", metric="effective_rank", title="Effective rank"):
    after = after_norm(table, measure=measure, metric=metric)
    return note_after_norm(after, measure=measure, metric=metric, title=title, arms=ARMS)


def test_the_numbers_are_said():
    assert note(results.table(rows())) == "After the final norm, effective rank: gpt2 9.0 and untrained 1.0."
    table = results.table(rows("layer_change", "pwcca", leads=True))
    said = note(table, measure="layer_change", metric="pwcca", title="1 - PWCCA similarity")
    assert (
        said == "From the last layer through the final norm, 1 - PWCCA similarity: gpt2 9.000 and untrained 1.000."
    )


def test_other_groups_and_measures_are_left_alone():
    table = results.table([*rows(), *rows("token_information", "cross_fitted", "next token")])
    assert set(after_norm(table, measure="geometry", metric="effective_rank")["measure"]) == {"geometry"}
    assert after_norm(table, measure="token_information", metric="cross_fitted").empty
    assert len(after_norm(table, measure="token_information", metric="cross_fitted", group="next token")) == 2
