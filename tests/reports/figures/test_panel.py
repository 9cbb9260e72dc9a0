"""Panels of figures: each selects its rows once, and its picture, its data and its entry show the same."""

import io
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from ablations import results
from reports.figures import by_arm, groups, lines, pairs
from reports.figures.files import draw
from reports.figures.panel import csv_of
from reports.page.figures import figures as page_figures
from reports.page.page import is_made
from reports.scores.runs import run_numbers
from reports.words import number
from tests.support.fake_layers import layer_rows

ARMS = ("mlm", "clm")
KEPT = ("pwcca", "self_similarity", "gain", "loss")


@pytest.fixture(scope="module")
def table():
    made = layer_rows(ARMS, (0, 1), steps=(0, 8, 500))
    return results.table(
        [row for row in made if row["metric"] in KEPT and not (row.get("group") or "").startswith("tag ")]
    )


@pytest.fixture(scope="module")
def panels(table):
    return [panel for figure in page_figures(table, arms=ARMS) for panel in figure.panels]


def drawn(panel):
    ax = Figure().subplots()
    draw_one = {"arms": by_arm.draw_arms, "pairs": pairs.draw_pairs, "groups": groups.draw_groups}[panel.kind]
    return draw_one(panel.content, ax=ax)


def test_lines_go_through_the_points_of_the_entry(panels):
    kinds = set()
    for panel in panels:
        if panel.kind not in ("arms", "pairs", "groups"):
            continue
        key = {"arms": "arm", "pairs": "pair", "groups": "group"}[panel.kind]
        points = panel.entry()["points"]
        curves = [line for line in drawn(panel).lines if line.get_gid() == "mean"]
        names = list(dict.fromkeys(point[key] for point in points))
        assert len(curves) == len(names) > 0
        for name, line in zip(names, curves, strict=True):
            means = [point["mean"] for point in points if point[key] == name]
            np.testing.assert_array_equal(line.get_ydata(), means)
            kinds.add(panel.kind)
    assert kinds == {"arms", "pairs", "groups"}


def test_metrics_of_a_plugin_may_have_any_sign_and_their_files_are_apart_and_plain():
    metrics = ("top 5", "top_5", "top/5", "../top 5", "F1 (%)")
    run = {"experiment": "e", "measure": "my_measures.py:Rank", "step": 9}
    made = [
        run | {"run_id": arm, "arm": arm, "seed": 0, "metric": metric, "layer": layer, "value": layer / 2}
        for arm in ARMS
        for metric in metrics
        for layer in range(3)
    ]
    (figure,) = page_figures(results.table(made), arms=ARMS)
    names = [panel.name for panel in figure.panels]
    assert [panel.metric for panel in figure.panels] == list(metrics)
    assert len(set(names)) == len(metrics)
    assert [name for name in names if not re.fullmatch(r"[\w-]+", name)] == []
    assert names[1] == "my_measures_py_Rank-top_5"
    assert all(is_made(path) for panel in figure.panels for path in (panel.svg, panel.csv))


@pytest.mark.parametrize(("unit", "known", "label"), [("bits", "bits", "my rank (bits)"), (None, "1", "my rank")])
def test_a_metric_of_a_plugin_has_the_unit_of_its_rows(unit, known, label):
    row = {"experiment": "e", "measure": "my_measures.py:Rank", "metric": "my_rank", "unit": unit, "seed": 0}
    made = [
        row | {"run_id": arm, "arm": arm, "step": 9, "layer": layer, "value": layer / 2}
        for arm in ARMS
        for layer in range(3)
    ]
    ((panel,),) = [figure.panels for figure in page_figures(results.table(made), arms=ARMS)]
    assert panel.entry()["unit"] == known
    assert drawn(panel).get_ylabel() == label


@pytest.mark.parametrize(
    ("scale", "written"), [(1e-5, "0.0000100"), (0.02, "0.0200"), (1.0, "1.000"), (400, "400.000")]
)
def test_small_numbers_of_a_plugin_have_digits(scale, written):
    row = {"experiment": "e", "measure": "my_measures.py:Rank", "metric": "my_rank", "run_id": "a", "arm": "mlm"}
    values = [*(layer * scale for layer in (0.0, 0.5, 1.0)), np.nan, np.inf]
    made = [row | {"seed": 0, "step": 9, "layer": layer, "value": value} for layer, value in enumerate(values)]
    whole = {"run_id": "a", "arm": "mlm", "seed": 0, "loss": None, "gain": None}
    table = results.table([*made, row | {"seed": 0, "step": 9, "value": scale}])
    ((panel,),) = [figure.panels for figure in page_figures(table, arms=["mlm"])]
    (column,), (of_run,) = run_numbers(table, [whole])
    assert number(panel.points[2]["mean"], panel.digits) == written
    assert number(of_run[column.name], column.digits) == written


def test_the_data_are_the_rows_behind_the_points(panels):
    """Derived again from the CSV: the mean over seeds of each arm and layer."""
    (panel,) = [one for one in panels if (one.kind, one.measure, one.metric) == ("arms", "layer_change", "pwcca")]
    rows = pd.read_csv(io.StringIO(panel.csv_text()))
    means = rows.groupby(["arm", "layer"])["value"].mean()
    assert len(means) == len(panel.points)
    for point in panel.points:
        assert point["mean"] == pytest.approx(means[point["arm"], point["layer"]], rel=1e-11)


def test_csv_has_twelve_significant_digits_and_whole_numbers_whole():
    rows = pd.DataFrame({"value": [1 / 3, 4e10 + 1, -2e-7 / 3, np.nan], "tokens": [2**60, 1, 2, 3]})
    assert csv_of(rows).splitlines() == [
        "value,tokens",
        "0.333333333333,1152921504606846976",
        "40000000001,1",
        "-6.66666666667e-08,2",
        ",3",
    ]


def test_the_cells_of_a_map_are_its_points(panels):
    maps = [panel for panel in panels if panel.kind == "maps"]
    assert maps
    for panel in maps:
        cells = panel.content.means
        assert panel.points == [
            point | {"mean": cells.loc[point["layer"], point["step"]]} for point in panel.points
        ]
        assert cells.size == len(panel.points)


def test_a_figure_selects_its_rows_and_computes_its_bands_once_a_panel(table, monkeypatch):
    counts = {"choose": 0, "bands": 0}

    def counted(module, name):
        original = getattr(module, name)

        def call(*arguments, **named):
            counts[name] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(module, name, call)

    counted(by_arm, "choose")
    counted(by_arm, "bands")
    only = table[(table["measure"] == "layer_change") & table["group"].isna() & (table["step"] == 500)]
    (figure,) = page_figures(only, arms=ARMS)
    for panel in figure.panels:
        draw(panel)
    assert counts == {"choose": len(figure.panels), "bands": len(figure.panels)}
    assert not hasattr(lines, "bands")


def test_a_panel_does_not_change(panels):
    with pytest.raises(AttributeError):
        panels[0].title = "another"
