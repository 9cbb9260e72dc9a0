"""Figures of the search for settings draw each trial where it belongs."""

import itertools

import pytest
from matplotlib.figure import Figure

from ablations.runs.records import TrialRecord, TunedArm, Tuning
from reports.figures.files import PANEL_INCHES
from reports.figures.trials import tuning_panels
from reports.page import page
from tests.support.fake_experiment import write
from tests.support.html_page import Page

RATES = (1e-3, 2e-3, 4e-3)


def trial(loss, **values):
    return TrialRecord(
        values={f"training.{name}": value for name, value in values.items()}, run_ids=["a"], losses=[loss]
    )


def tuning(*arms, settings=("training.learning_rate",)):
    return Tuning(settings=dict.fromkeys(settings), seeds=[1000], part_of_steps=0.25, arms=list(arms))


def searched(name, losses, chosen):
    trials = [trial(loss, learning_rate=rate) for rate, loss in zip(RATES, losses, strict=True)]
    return TunedArm(arm=name, trials=trials, chosen={"training.learning_rate": chosen})


TWO_ARMS = tuning(searched("mlm", (3.0, 2.5, None), 2e-3), searched("clm", (4.0, 4.5, 4.2), 1e-3))


def drawn(panel):
    figure = Figure()
    panel.content.draw(figure)
    artists = {}
    for line in figure.axes[0].lines:
        artists.setdefault(line.get_gid(), []).append(line)
    return figure.axes[0], artists


def test_each_trial_stands_above_the_best_of_its_arm_and_a_diverged_one_at_the_top():
    by_rate, _ = tuning_panels(TWO_ARMS, arms=["mlm", "clm"])
    ax, artists = drawn(by_rate)
    places = {
        gid: sorted((float(line.get_xdata()[0]), round(float(line.get_ydata()[0]), 3)) for line in artists[gid])
        for gid in ("trial", "chosen", "diverged")
    }
    assert places["chosen"] == [(1e-3, 0.0), (2e-3, 0.0)]
    assert places["trial"] == [(1e-3, 0.5), (2e-3, 0.5), (4e-3, 0.2)]
    assert places["diverged"][0][0] == 4e-3
    assert ax.get_xscale() == "log"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0.001", "0.002", "0.004"]
    assert (
        by_rate.description
        == "mlm: 0.001 3.000, 0.002 2.500, 0.004 diverged. clm: 0.001 4.000, 0.002 4.500, 0.004 4.200."
    )


@pytest.mark.parametrize("arms", [1, 2, 4, 40])
def test_crosses_of_several_arms_at_one_value_stand_side_by_side(arms):
    names = [f"arm-{i}" for i in range(arms)]
    figure = Figure(figsize=PANEL_INCHES)
    searches = tuning(*(searched(name, (3.0, 2.5, None), 2e-3) for name in names))
    tuning_panels(searches, arms=names)[0].content.draw(figure)
    ax = figure.axes[0]
    crosses = [line for line in ax.lines if line.get_gid() == "diverged"]
    at = [float(line.get_transform().transform(line.get_xydata())[0, 0]) * 72 / figure.dpi for line in crosses]
    value = float(ax.transData.transform((4e-3, 0))[0]) * 72 / figure.dpi
    assert sum(at) / arms == pytest.approx(value)
    apart = [after - before for before, after in itertools.pairwise(at)]
    assert apart == pytest.approx([min(8, 32 / max(arms - 1, 1))] * (arms - 1))


@pytest.mark.parametrize("arms", [2, 40])
def test_the_legend_takes_no_room_from_the_axes(arms):
    names = [f"arm-with-a-long-name-{i}" for i in range(arms)]
    searches = tuning(*(searched(name, (3.0, 2.5, None), 2e-3) for name in names))
    figure = Figure(figsize=PANEL_INCHES, layout="constrained")
    tuning_panels(searches, arms=names)[0].content.draw(figure)
    figure.draw_without_rendering()
    assert figure.axes[0].get_window_extent().height / figure.dpi > 0.75 * PANEL_INCHES[1]


def test_the_rows_of_a_panel_are_what_it_draws():
    by_rate, by_trials = tuning_panels(TWO_ARMS, arms=["mlm", "clm"])
    assert by_rate.csv_text().splitlines()[:4] == [
        "arm,value,loss,above",
        "mlm,0.001,3,0.5",
        "mlm,0.002,2.5,0",
        "mlm,0.004,,",
    ]
    assert [point["loss"] for point in by_trials.points if point["arm"] == "clm"] == pytest.approx(
        [12.7 / 3, (4.0 + 4.0 + 4.2) / 3, 4.0]
    )


def test_of_two_settings_each_shows_the_lowest_loss_over_the_other():
    grid = [(1e-3, "linear", 3.0), (1e-3, "cosine", 2.0), (2e-3, "linear", 1.5), (2e-3, "cosine", None)]
    trials = [trial(loss, learning_rate=rate, schedule=schedule) for rate, schedule, loss in grid]
    arm = TunedArm(arm="mlm", trials=trials, chosen=trials[2].values)
    both = tuning(arm, settings=("training.learning_rate", "training.schedule"))
    by_rate, by_schedule, _ = tuning_panels(both, arms=["mlm"])
    assert [(point["value"], point["loss"]) for point in by_rate.points] == [("0.001", 2.0), ("0.002", 1.5)]
    assert [(point["value"], point["loss"]) for point in by_schedule.points] == [
        ('"linear"', 1.5),
        ('"cosine"', 2.0),
    ]
    ax, _ = drawn(by_schedule)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["linear", "cosine"]


def test_there_is_nothing_to_draw_before_a_trial_has_ended():
    assert tuning_panels(tuning(TunedArm(arm="mlm")), arms=["mlm"]) == []
    assert tuning_panels(tuning(TunedArm(arm="mlm", trials=[trial(None, learning_rate=1)])), arms=["mlm"]) == []


def test_an_arm_of_which_every_trial_diverged_is_not_said_to_be_tuned_later(tmp_path):
    diverged = TunedArm(arm="wild", trials=[trial(None, learning_rate=1)])
    search = tuning(*TWO_ARMS.arms, diverged, diverged.model_copy(update={"arm": "later", "open_trials": 1}))
    folder = write(tmp_path, table_rows=[], plan_changes={"tuning": search.model_dump(mode="json")})
    page.write(folder)
    report = (folder / "report.md").read_text(encoding="utf-8")
    remarks = {row.split("|")[1].strip(): row.split("|")[-2].strip() for row in report.splitlines() if "|" in row}
    assert remarks["wild"] == "every trial diverged"
    assert remarks["later"] == "not tuned yet"


@pytest.mark.parametrize(("part", "words"), [(0.125, "12.5%"), (0.004, "0.4%"), (0.07, "7%"), (1, "100%")])
def test_the_page_says_how_long_trials_are_and_how_diverged_ones_count(part, words, tmp_path):
    plan = {"tuning": TWO_ARMS.model_copy(update={"part_of_steps": part}).model_dump(mode="json")}
    folder = write(tmp_path, table_rows=[], plan_changes=plan)
    texts = Page(page.write(folder)).text, (folder / "report.md").read_text(encoding="utf-8")
    assert all(f", for {words} of its steps." in text for text in texts)
    assert "A trial that diverged counts as the worst loss of its arm." in texts[0]


OF_OPTUNA = (
    "Optuna chooses later trials by the losses of earlier ones, so a smaller budget would have found other "
    "losses. "
)


@pytest.mark.parametrize(("budget", "first", "more"), [(6, OF_OPTUNA, "trials"), (None, "", "values")])
def test_the_page_says_what_the_expected_best_loss_tells(budget, first, more, tmp_path):
    plan = {"tuning": TWO_ARMS.model_copy(update={"budget": budget}).model_dump(mode="json")}
    text = Page(page.write(write(tmp_path, table_rows=[], plan_changes=plan))).text
    assert (
        f"counts as the worst loss of its arm. {first}If the expected best loss still falls clearly at the right "
        f"end, more {more} may find better settings, and arms with fewer trials had a disadvantage."
    ) in text
    assert "In the panel of the setting, each mark is a trial." in text
