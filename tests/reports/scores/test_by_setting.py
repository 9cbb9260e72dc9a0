"""The figure of a score by a setting, on its artists."""

import io
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy import stats

from ablations import results
from ablations.wording import listed
from reports.figures import files
from reports.figures.by_setting import MOST_ROWS, SettingMap, SettingMarks, _name_places, by_setting
from reports.figures.lines import written_above
from reports.figures.style import FIXED_STYLES, arm_styles
from reports.scores.by_setting import (
    FIGURES_IN_SIGHT,
    MOST_LINES,
    MOST_MARKS,
    map_notes,
    points_in_words,
    setting_figures,
    setting_rows,
)
from reports.scores.factors import Level
from reports.scores.runs import RUN_SCORES
from tests.support.setting_panels import ARMS, GAIN, NOISE, PLACES, factor, panels, rows


def drawn(panel):
    figure = Figure()
    return by_setting(panel.content, ax=figure.subplots())


def artists(ax, gid):
    return [line for line in ax.lines if line.get_gid() == gid]


def test_each_arm_has_its_mean_interval_and_seeds_at_its_value():
    gain, _ = panels()
    ax = drawn(gain)
    by_colour = {to_hex(mark.get_color()).upper(): mark for mark in artists(ax, "mean")}
    assert len(by_colour) == len(artists(ax, "interval")) == len(artists(ax, "seed")) == 3
    for bar, dots, (arm, place) in zip(artists(ax, "interval"), artists(ax, "seed"), PLACES.items(), strict=True):
        values = np.array([GAIN[arm] + noise for noise in NOISE])
        mark = by_colour[FIXED_STYLES[arm].colour]
        assert mark.get_marker() == FIXED_STYLES[arm].marker
        assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (place, pytest.approx(values.mean()))
        interval = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
        assert tuple(bar.get_ydata()) == pytest.approx(interval)
        np.testing.assert_allclose(sorted(dots.get_ydata()), sorted(values), rtol=1e-12)  # float64 algebra
        assert set(dots.get_xdata()) == set(bar.get_xdata()) == {place}


@pytest.mark.parametrize(("seeds", "explained"), [(NOISE, True), ((0.0,), False)])
def test_intervals_are_explained_where_they_are(seeds, explained):
    (shown,) = setting_figures(results.table(rows(seeds=seeds)), [factor()], arms=ARMS)
    assert ("Each interval is about one arm." in " ".join(shown.text.how_to_read)) is explained


def test_a_remark_about_one_panel_stands_in_the_row_of_its_arm():
    whole = list(rows())
    lone = [row for row in whole if row["measure"] == "validation" or row["arm"] != "mt" or row["seed"] == 0]
    for table in (lone, lone[::-1]):
        (shown,) = setting_figures(results.table(table), [factor()], arms=ARMS)
        remarks = {row["arm"]: row["remarks"] for row in setting_rows(factor(), shown.panels)}
        assert remarks["mt"] == ["one seed, so no interval"]
        assert remarks["mlm"] == []


def test_seeds_stand_right_of_their_mark_on_the_page_and_at_its_value_in_the_data():
    ax = drawn(panels()[0])
    mark, dots = artists(ax, "mean")[0], artists(ax, "seed")[0]
    shown = [line.get_transform().transform(line.get_xydata())[0, 0] for line in (mark, dots)]
    assert shown[1] - shown[0] == pytest.approx(5.5 / 72 * ax.get_figure().dpi)


def test_numbers_are_joined_and_names_of_one_line_are_not():
    (join,) = artists(drawn(panels()[0]), "join")
    assert list(join.get_xdata()) == [0.05, 0.15, 0.8]
    names = panels(chosen=factor({"mlm": "natural", "clm": "ngrams", "mt": "corpus"}))[0]
    ax = drawn(names)
    assert not artists(ax, "join")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["natural", "ngrams", "corpus"]
    assert [mark.get_xdata()[0] for mark in artists(ax, "mean")] == [0, 1, 2]


def test_the_axis_marks_the_reference_and_is_labelled():
    ax = drawn(panels()[0])
    (line,) = artists(ax, "reference")
    assert set(line.get_xdata()) == {0.15}
    assert ax.get_xlabel() == "masking ratio"
    assert ax.get_ylabel() == "gain over no context (nats)"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0.05", "0.15", "0.8"]


def test_a_long_label_of_scores_is_inside_the_figure(monkeypatch):
    """Of `minimal pairs, mean accuracy over tasks` the last letters were cut off beside a legend."""
    content = panels()[0].content._replace(axis_label="minimal pairs, mean accuracy over tasks")
    figures = []
    monkeypatch.setattr(files, "render", lambda figure, **_: figures.append(figure) or "")
    files.draw(SimpleNamespace(id="f1a", title="t", content=content, csv_text=str))
    (figure,) = figures
    figure.draw_without_rendering()
    label = figure.axes[0].yaxis.label.get_window_extent()
    assert figure.bbox.y0 <= label.y0 < label.y1 <= figure.bbox.y1


def test_large_numbers_of_the_axis_have_commas_as_in_tables():
    steps = drawn(panels(chosen=factor({"mlm": 750, "clm": 3000, "mt": 12000}))[0])
    assert [label.get_text() for label in steps.get_xticklabels()] == ["750", "3,000", "12,000"]


def test_labels_without_room_are_left_out_and_the_reference_keeps_its_own():
    close = factor({"clm": 0.149, "mlm": 0.15, "mt": 0.8})
    assert [label.get_text() for label in drawn(panels(chosen=close)[0]).get_xticklabels()] == ["0.15", "0.8"]


def test_four_names_of_two_words_do_not_touch_in_a_column():
    ax = Figure().subplots()
    _name_places(range(4), ["natural", "ngrams n=1", "ngrams n=2", "corpus"], ax=ax)
    assert [label.get_text() for label in ax.get_xticklabels()][1:3] == ["ngrams\nn=1", "ngrams\nn=2"]


def test_long_names_lean():
    long = factor({"mlm": "natural", "clm": "a_name_that_is_long", "mt": "corpus"})
    assert {label.get_rotation() for label in drawn(panels(chosen=long)[0]).get_xticklabels()} == {35.0}
    ax = drawn(panels(chosen=factor({"mlm": "natural", "clm": "sentences in pairs", "mt": "corpus"}))[0])
    assert ax.get_xticklabels()[1].get_text() == "sentences in\npairs"
    assert {label.get_rotation() for label in ax.get_xticklabels()} == {0.0}


def test_a_floor_and_the_untrained_are_lines_where_they_leave_the_arms_readable():
    ax = drawn(panels()[1])
    (floor,) = artists(ax, "floor")
    np.testing.assert_allclose(floor.get_ydata(), 0.01)
    (untrained,) = artists(ax, "untrained")
    np.testing.assert_allclose(untrained.get_ydata(), 2.5 + np.mean(NOISE))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "chance level (labels shuffled)",
        "untrained",
    ]
    near = {"mlm": 4.01, "clm": 4.0, "mt": 4.02, "untrained": 2.5}
    ax = drawn(panels(top=near, seeds=(0.0, 0.001))[1])
    assert not artists(ax, "floor") + artists(ax, "untrained")
    assert written_above(ax) == ["chance level (labels shuffled): 0.01 ↓", "untrained: 2.50 ↓"]


def test_a_gain_is_drawn_with_its_floor_and_not_with_the_untrained():
    (floor,) = artists(drawn(panels()[0]), "floor")
    assert set(floor.get_ydata()) == {0.0}
    assert all(point["arm"] != "untrained" for point in panels()[0].points)


@pytest.mark.parametrize(("tasks", "is_drawn"), [(("sst2", "trec"), True), (("sst2",), False), ((), False)])
def test_an_untrained_encoder_that_lacks_a_task_is_not_drawn_beside_means_over_more_tasks(tasks, is_drawn):
    scored = results.table(
        {"run_id": f"{arm}0", "arm": arm, "seed": 0, "step": 5, "measure": "fine_tuning", "metric": "score"}
        | {"group": task, "value": 0.8 if task == "sst2" else 0.4, "floor": 0.5, "n": 100}
        for arm in ARMS
        for task in (("sst2", "trec") if arm != "untrained" else tasks)
    )
    ((panel,),) = [figure.panels for figure in setting_figures(scored, [factor()], arms=ARMS)]
    assert {point["arm"] for point in panel.points} == {*PLACES, *(["untrained"] if is_drawn else [])}
    assert all(point["mean"] == pytest.approx(0.6) for point in panel.points)


def test_one_seed_is_a_mark_alone():
    ax = drawn(panels(seeds=(0.0,))[0])
    assert len(artists(ax, "mean")) == 3
    assert not artists(ax, "interval") + artists(ax, "seed")


def test_lines_are_told_apart_by_dashes_and_stand_beside_each_other():
    places = {"mlm": "none", "clm": "next", "mt": "none"}
    two = factor(places, lines=("pairs", "segments"), of={"mt": 1})
    levels = (*two.levels[:2], two.levels[2]._replace(at=0.0), Level("untrained", 1, 1.0, "next"))
    panel = panels(chosen=two._replace(levels=levels, untrained=None))[0]
    ax = drawn(panel)
    first, second = artists(ax, "join")
    assert first.get_linestyle() != second.get_linestyle()
    left, right = (line.get_transform().transform((0, 0))[0] for line in (first, second))
    assert right - left == pytest.approx(13 / 72 * ax.get_figure().dpi)
    assert [text.get_text() for text in ax.get_legend().get_texts()][:2] == ["pairs", "segments"]


def test_lines_with_chance_levels_of_their_own_have_no_mean_of_them():
    """Sums over 2 and 4 layers with chance levels of 0.95 and 2.85 had a chance level of 1.9, which no arm has."""
    two = factor({"mlm": 32.0, "clm": 64.0, "mt": 32.0}, lines=("2 layers", "4 layers"), of={"mt": 1})
    levels = (*two.levels[:3], Level("untrained", 1, 64.0, "64"))
    (*_, panel) = panels(chosen=two._replace(levels=levels, untrained=None))
    of_line = {"2 layers": 0.95, "4 layers": 2.85}
    points = [point | {"floor": of_line[point["line"]]} for point in panel.content.points]
    ax = by_setting(panel.content._replace(points=points), ax=Figure().subplots())
    assert sorted(set(line.get_ydata()) for line in artists(ax, "floor")) == [{0.95}, {2.85}]
    assert points_in_words(points, digits=2, reference="32").endswith(" Chance level 0.95 to 2.85.")


def test_gains_of_other_predictions_have_a_panel_of_their_own_or_none():
    apart = panels(asked={"clm": 7, "mt": 7}, chosen=factor(untrained=None))
    assert [panel.title for panel in apart[:1]] == ["Gain over no context"]
    assert [point["arm"] for point in apart[0].points] == ["clm", "mt"]
    assert "No gain is shown for mlm: no arm to compare with predicts the same tokens." in apart[0].notes
    assert apart[0].content.along["reference"] is None
    assert [point["arm"] for point in apart[1].points] == ["clm", "mlm", "mt"]  # of layers all compare
    assert [panel.metric for panel in panels(asked={"clm": 7, "mt": 8})] == ["cross_fitted"]


def test_the_text_alternative_says_every_mean():
    _, top = panels()
    assert top.description == (
        "Mean over seeds by masking ratio. 0.05 1.633, 0.15 3.333, 0.8 4.533. Difference from 0.15: "
        "0.05 \N{MINUS SIGN}1.700 ± 0.000, 0.8 +1.200 ± 0.000. Chance level 0.010. Untrained 2.533."
    )


def test_differences_are_those_within_each_seed_from_the_arm_of_the_same_line_at_the_value_of_the_reference():
    table = results.table(list(rows()))
    own = np.random.default_rng(0).normal(scale=0.01, size=len(table))
    table["value"] += own
    table = table[~((table["arm"] == "clm") & (table["seed"] == 2))]
    (figure,) = setting_figures(table, [factor()], arms=ARMS)
    top = table[table["layer"] == 1].pivot(index="seed", columns="arm", values="value")
    points = {point["arm"]: point["difference"] for point in figure.panels[1].points}
    assert points["mlm"] is points["untrained"] is None
    for arm in ("clm", "mt"):
        paired = stats.ttest_rel(top[arm], top["mlm"], nan_policy="omit")
        low, high = paired.confidence_interval(0.95)
        difference = points[arm]
        assert difference["seeds"] == (2 if arm == "clm" else 3)
        assert (difference["low"], difference["high"]) == (pytest.approx(low), pytest.approx(high))
        assert difference["mean"] == pytest.approx((top[arm] - top["mlm"]).mean())


def test_lines_without_the_value_of_the_reference_have_no_differences():
    chosen = factor({"mlm": 0.15, "clm": 0.4, "mt": 0.8}, lines=("a", "b"), of={"mt": 1})
    points = {point["arm"]: point["difference"] for point in panels(chosen=chosen)[1].points}
    assert points["clm"]["mean"] == pytest.approx(1.6 - 3.3)
    assert points["mt"] is None


def test_the_data_are_a_row_a_run():
    data = pd.read_csv(io.StringIO(panels()[1].csv_text()), dtype={"at": str}, keep_default_na=False)
    assert list(data) == ["setting", "at", "line", "score", "arm", "seed", "run_id", "value", "floor", "n"]
    assert len(data) == 4 * 3
    one = data[(data["arm"] == "mt") & (data["seed"] == 2)].iloc[0]
    assert (one["at"], one["value"], one["n"]) == ("0.8", pytest.approx(4.7), 20_000)
    assert set(data["setting"]) == {"objective.masking.ratio"}


def test_an_arm_looks_as_in_every_other_figure():
    panel = panels(chosen=factor({"mlm": 1, "clm": 2}))[0]
    styles = arm_styles(ARMS)
    assert [to_hex(mark.get_color()).upper() for mark in artists(drawn(panel), "mean")] == [
        styles[arm].colour for arm in ("mlm", "clm")
    ]


def test_settings_beyond_a_handful_are_opened_on_demand():
    every = [factor(setting=f"training.number_{i}", title=f"number {i}") for i in range(FIGURES_IN_SIGHT + 2)]
    made = setting_figures(results.table(rows()), every)
    folded = [{(panel.folded, panel.part) for panel in figure.panels} for figure in made]
    assert folded == [{(False, "")}] * FIGURES_IN_SIGHT + [{(True, "By number 4")}, {(True, "By number 5")}]


def test_settings_with_the_same_letters_have_names_of_their_own():
    alike = [factor(setting="training.a_b"), factor(setting="training.a.b")]
    first, second = setting_figures(results.table(rows()), alike)
    assert (first.text.name, second.text.name) == ("by_training_a_b", "by_training_a_b_2")
    assert not {panel.csv for panel in first.panels} & {panel.csv for panel in second.panels}


def test_lines_beyond_what_a_panel_has_room_for_are_named():
    names = tuple(f"line {i}" for i in range(MOST_LINES + 1))
    levels = [Level(arm, 0, i, str(i)) for i, arm in enumerate(("mlm", "clm"))]
    levels += [Level(f"far{i}", MOST_LINES, i, str(i)) for i in range(2)]
    (figure,) = setting_figures(results.table(rows()), [factor(lines=names, levels=tuple(levels))])
    expected = f"Only the first {MOST_LINES} lines are drawn; results.parquet also has far0 and far1."
    assert expected in figure.panels[0].notes
    levels += [Level(f"far{i}", MOST_LINES, i, str(i)) for i in range(2, 21)]  # 21, which nobody would read
    (figure,) = setting_figures(results.table(rows()), [factor(lines=names, levels=tuple(levels))])
    assert expected.replace("far0 and far1", "21 arms") in figure.panels[0].notes


def crossed(rows_of_map, columns, *, seeds=3):
    """Factors of a grid of two settings with the validation of each arm: its gain is 10 r + c hundredths."""
    arms = {(r, c): f"mlm,ratio={c},rate={r}" for r in range(rows_of_map) for c in range(columns)}
    observed = [
        {"run_id": f"{arm}{seed}", "arm": arm, "seed": seed, "step": 9, "measure": "validation", "metric": "loss"}
        | {"experiment": "e", "value": 5.0 - 0.01 * (10 * r + c) + 0.001 * seed, "floor": 5.0, "n": 70}
        for (r, c), arm in arms.items()
        for seed in range(seeds)
    ]

    def crossing(setting, other, place):
        levels = [Level(arm, at[1 - place], float(at[place]), str(at[place])) for at, arm in arms.items()]
        lines = tuple(f"{other}: {i}" for i in range((rows_of_map, columns)[1 - place]))
        about = {"setting": f"training.{setting}", "title": setting, "label": setting, "untrained": None}
        levels.sort(key=lambda level: (level.line, level.at))
        return factor()._replace(lines=lines, levels=tuple(levels), reference=arms[0, 0], **about)

    return results.table(observed), [crossing("ratio", "rate", 1), crossing("rate", "ratio", 0)]


def test_a_grid_of_two_settings_is_one_map_in_which_each_arm_has_its_cell():
    table, factors = crossed(8, 9)
    (figure,) = setting_figures(table, factors)  # the other setting would show the same cells
    (panel,) = figure.panels
    assert figure.text.title == "Scores by ratio and rate"
    assert figure.text.kind.caption({"seeds"}, False) == (
        "Cells are means over seeds, one for each arm. Triangles mark the largest and the smallest number."
    )
    marks = {row: panel.content.means_RP()[row].tolist() for row in range(8)}
    assert marks == {r: [pytest.approx(0.01 * (10 * r + c) - 0.001) for c in range(9)] for r in range(8)}
    assert {point["arm"] for point in panel.points} == set(table["arm"])
    assert panel.description == (
        "Mean over seeds of 72 arms: largest 0.779 (mlm,ratio=8,rate=7) and smallest −0.001 (mlm,ratio=0,rate=0)."
    )
    half = stats.t.ppf(0.975, 2) * stats.sem([0, 0.001, 0.002])
    assert panel.notes[-2:] == (
        f"Gain over no context: half of an arm's 95% t interval over seeds is {half:.3f} nats (median). Colours "
        "do not show it.",
        "The largest of 72 numbers is partly the largest by chance.",
    )


def test_of_an_even_number_of_arms_the_median_interval_is_between_the_two_in_the_middle():
    points = [{"low": -half, "high": half} for half in (0.1, 0.2, 0.4, 0.9)] + [
        {"low": math.nan, "high": math.nan}
    ]
    wide, chance = map_notes(points, RUN_SCORES[0])
    assert "is 0.300 nats (median)" in wide  # (0.2 + 0.4) / 2
    assert chance == "The largest of 5 numbers is partly the largest by chance."


def test_a_map_labels_both_settings_and_marks_the_extremes_and_the_reference():
    table, factors = crossed(8, 9)
    ((panel,),) = [figure.panels for figure in setting_figures(table, factors)]
    figure = Figure()
    panel.content.draw(figure)
    ax = figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("ratio", "rate")
    assert [label.get_text() for label in ax.get_yticklabels()] == [str(i) for i in range(8)]
    (mesh,) = [drawn for drawn in ax.collections if drawn.get_gid() == "map"]
    assert mesh.get_array().shape == (8, 9)
    places = {line.get_gid(): (line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines}
    assert places == {"largest": (8, 7), "smallest": (0, 0)}
    (frame,) = [patch for patch in ax.patches if patch.get_gid() == "reference"]
    assert frame.get_xy() == (-0.5, -0.5)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "largest: 0.779, mlm,ratio=8,rate=7",
        "smallest: −0.001, mlm,ratio=0,rate=0",
        "mlm,ratio=0,rate=0",
    ]


def test_dozens_of_arms_and_four_lines_stay_marks_and_a_map_of_single_runs_has_no_interval():
    for lines, columns in ((MOST_LINES, MOST_MARKS), (MOST_MARKS // 7, 7)):
        table, factors = crossed(lines, columns)
        (panel,) = setting_figures(table, factors[:1])[0].panels
        assert isinstance(panel.content, SettingMarks)
    table, factors = crossed(MOST_LINES + 1, 12, seeds=1)
    (panel,) = setting_figures(table, factors[:1])[0].panels
    assert isinstance(panel.content, SettingMap)
    assert panel.notes[-1] == "The largest of 60 numbers is partly the largest by chance."
    assert not any("interval" in note for note in panel.notes)


def test_rows_beyond_what_a_map_has_room_for_are_counted():
    table, factors = crossed(MOST_ROWS + 2, 2)
    figure = setting_figures(table, factors[:1])[0]
    assert len(figure.panels[0].points) == 2 * MOST_ROWS
    names = listed([f"mlm,ratio={c},rate={r}" for r in (MOST_ROWS, MOST_ROWS + 1) for c in (0, 1)], "and")
    expected = f"Only the first {MOST_ROWS} lines are drawn; results.parquet also has {names}."
    assert expected in figure.panels[0].notes
    table, factors = crossed(MOST_ROWS + 11, 2)  # 22 arms, which nobody would read
    figure = setting_figures(table, factors[:1])[0]
    assert expected.replace(names, "22 arms") in figure.panels[0].notes


def test_a_setting_without_scores_has_no_figure():
    assert setting_figures(results.table([]), [factor()]) == []
    lone = [row for row in rows() if row["arm"] == "mlm"]
    assert setting_figures(results.table(lone), [factor()]) == []
