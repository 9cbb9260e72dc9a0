"""Trials on disk: which losses count, when an arm is tuned, and what stays when folders go."""

import json
import math
import shutil
import sys

import pytest

from ablations.commands import runs
from ablations.errors import ResultsError, SpecError
from ablations.runs.workspace import Workspace
from tests.support.errors import error_text
from tests.support.planned_spec import SPEC, opened, write

ARMS = {"mlm": {"objective": {"kind": "masked_lm"}}, "clm": {"objective": {"kind": "causal_lm"}}}
RATES = [1e-3, 2e-3, 4e-3]
TUNE = {"settings": {"training.learning_rate": RATES}}


@pytest.fixture
def spec(tmp_path):
    return written(tmp_path)


def written(folder, *, tune=TUNE, **changes):
    return write(folder, **{"arms": ARMS, "tune": tune} | changes)


def end(item, loss, *, state="done", step=None, **more):
    """Leave the run of a trial as training leaves it."""
    steps = item.run.settings.training.max_steps
    folder = item.directory.path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state.json").write_text(json.dumps({"state": state, "max_steps": steps} | more))
    lines = [{"step": 0, "val/loss": 99.0}, {"step": steps if step is None else step, "val/loss": loss}]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"step": ')


def end_all(workspace, losses):
    """End every open trial with the loss of its learning rate; None diverges."""
    for item in workspace.search.open_of([]):
        loss = losses[RATES.index(item.run.settings.training.learning_rate)]
        if loss is None:
            end(item, None, state="failed", exit_code=66)
        else:
            end(item, loss)


def rates(workspace):
    return {item.run.arm: item.run.settings.training.learning_rate for item in workspace.planned}


def test_before_the_trials_arms_have_the_settings_of_the_spec_and_are_not_to_be_trained(spec):
    workspace = opened(spec)
    assert workspace.todo(workspace.planned) == []
    assert len(workspace.search.open_of([])) == 6
    assert [item.run.arm for item in workspace.search.open_of(["clm"])] == [
        f"clm,learning_rate={rate}" for rate in RATES
    ]
    assert len(set(rates(workspace).values())) == 1
    assert workspace.warnings()[0] == (
        "tune: 0 trials ended; not tuned yet: mlm and clm. For these arms the settings of the spec are shown; "
        "`ablate run` trains the trials first."
    )


def test_a_trial_with_an_unended_run_is_counted_once_however_many_seeds_it_has(tmp_path):
    spec = written(tmp_path, tune=TUNE | {"seeds": [100, 101, 102]})
    workspace = opened(spec)
    assert [arm.open_trials for arm in workspace.search.tuning.arms] == [3, 3]
    first, *others = workspace.search.open_of(["mlm"])
    assert len(others) == 8
    for item in others:  # one of the three runs of a trial is left
        end(item, 2.0)
    mlm, clm = opened(spec).search.tuning.arms
    assert (mlm.open_trials, len(mlm.trials), clm.open_trials) == (1, 2, 3)
    end(first, 2.0)
    assert opened(spec).search.tuning.arms[0].open_trials == 0


def test_the_lowest_loss_of_each_arm_is_frozen_into_its_runs(spec, tmp_path):
    workspace = opened(spec)
    end_all(workspace, [3.0, 2.0, None])
    tuned = opened(spec)
    assert rates(tuned) == {"mlm": 2e-3, "clm": 2e-3}
    assert tuned.search.open_of([]) == []
    assert tuned.todo(tuned.planned) == tuned.planned
    (tmp_path / "written").mkdir()
    training = SPEC.get("training", {}) | {"learning_rate": 2e-3}
    plain = Workspace.open(
        written(tmp_path / "written", tune=None, training=training), out=tmp_path / "out", data_root=tmp_path
    )
    assert [item.run_id for item in tuned.planned] == [item.run_id for item in plain.planned]


def test_an_arm_is_tuned_when_all_its_trials_have_ended(spec):
    items = {item.run.arm: item for item in opened(spec).search.open_of([])}
    for rate, loss in zip(RATES, (1.0, 2.0, 3.0), strict=True):
        end(items[f"mlm,learning_rate={rate}"], loss)
    end(items["clm,learning_rate=0.001"], 1.0)
    workspace = opened(spec)
    assert workspace.waiting_arms() == ["clm"]
    assert {item.run.arm for item in workspace.todo(workspace.planned)} == {"mlm"}
    assert workspace.warnings()[:2] == [
        "tune: 4 trials ended; not tuned yet: clm. For these arms the settings of the spec are shown; `ablate "
        "run` trains the trials first.",
        "tune: the best value of arm mlm is at the edge of the tried values (training.learning_rate 0.001), so "
        "a better value may be outside; add values on that side, if the setting takes them.",
    ]


def test_arms_with_the_same_value_at_the_edge_share_a_sentence(spec):
    end_all(opened(spec), [3.0, 2.0, 1.0])
    assert opened(spec).warnings()[0] == (
        "tune: the best value of arms mlm and clm is at the edge of the tried values (training.learning_rate "
        "0.004), so a better value may be outside; add values on that side, if the setting takes them."
    )


def test_a_chosen_setting_that_match_scales_is_shown_with_both_numbers(tmp_path):
    tune = {"settings": {"training.warmup_steps": [1, 2]}, "part_of_steps": 1}
    arms = {"mlm": {}, "wide": {"training": {"tokens_per_step": 64}}}
    spec = written(tmp_path, tune=tune, match="flops", arms=arms)
    for item in opened(spec).search.open_of([]):
        end(item, 1.0 if item.run.arm.endswith("=2") else 2.0)
    workspace = opened(spec)
    wide = next(item.run.settings.training for item in workspace.planned if item.run.arm == "wide")
    assert wide.warmup_steps == 4
    assert workspace.warnings()[1] == (
        "tune: match scales the chosen training.warmup_steps with the steps of an arm, so in training wide has "
        "4 instead of 2."
    )


def test_trained_arms_beside_tuned_ones_are_named(tmp_path):
    arms = ARMS | {
        "wide": {"objective": {"kind": "masked_lm"}, "encoder": {"dropout": 0.1}},
        "untrained": {"objective": {"kind": "masked_lm"}, "training": {"max_steps": 0}},
    }
    workspace = opened(written(tmp_path, arms=arms, tune=TUNE | {"arms": ["mlm", "clm"]}))
    assert workspace.warnings()[1] == (
        "tune: arm wide is not tuned, so a difference from mlm and clm may come from the tuning; add it to "
        "tune.arms, or leave tune.arms out to tune all arms."
    )
    workspace = opened(written(tmp_path, arms=arms))
    assert not any("not tuned, so" in sentence for sentence in workspace.warnings())


@pytest.mark.parametrize(
    "ending",
    [
        {"state": "interrupted"},
        {"state": "failed", "exit_code": 1, "message": "the disk is full"},
        {"state": "done", "step": 3},
    ],
    ids=["interrupted", "failed otherwise", "done without the loss of its last step"],
)
def test_a_run_that_has_not_ended_well_has_no_loss(spec, ending):
    item = opened(spec).search.open_of([])[0]
    end(item, 1.0, **ending)
    assert item.run_id in {one.run_id for one in opened(spec).search.open_of([])}


def test_a_trial_whose_loss_is_no_number_after_its_last_step_has_diverged(spec):
    """The log writes null for it. The trial would be tried again and again, and its arm would never be trained."""
    for item in opened(spec).search.open_of([]):
        rate = item.run.settings.training.learning_rate
        end(item, None if rate == max(RATES) else 1 / rate)
    search = opened(spec).search
    assert search.open_of([]) == []
    assert [[trial.losses for trial in arm.trials] for arm in search.tuning.arms] == [
        [[None] if rate == max(RATES) else [1 / rate] for rate in RATES]
    ] * 2


def test_the_losses_stay_when_the_folders_of_trials_are_deleted(spec):
    end_all(opened(spec), [3.0, None, 2.0])
    tuned = opened(spec)
    tuned.write_plan()
    shutil.rmtree(spec.parent / "out" / "runs")
    after = opened(spec)
    assert rates(after) == {"mlm": 4e-3, "clm": 4e-3}
    assert [item.run_id for item in after.planned] == [item.run_id for item in tuned.planned]
    assert after.search.tuning == tuned.search.tuning


def test_other_values_make_other_trials_and_keep_those_that_are_the_same(spec):
    end_all(opened(spec), [3.0, 2.0, 2.5])
    opened(spec).write_plan()
    more = written(spec.parent, tune={"settings": {"training.learning_rate": [2e-3, 4e-3, 8e-3]}})
    workspace = opened(more)
    assert [item.run.arm for item in workspace.search.open_of([])] == [
        "mlm,learning_rate=0.008",
        "clm,learning_rate=0.008",
    ]


def test_the_losses_of_deleted_trials_stay_while_the_spec_has_other_values(spec):
    end_all(opened(spec), [3.0, None, 2.0])
    before = opened(spec)
    before.write_plan()
    shutil.rmtree(spec.parent / "out" / "runs")
    fewer = opened(written(spec.parent, tune={"settings": {"training.learning_rate": RATES[:2]}}))
    assert rates(fewer) == dict.fromkeys(ARMS, RATES[0])
    fewer.write_plan()
    opened(spec).write_plan()  # of a spec that has not changed since
    after = opened(written(spec.parent))
    assert after.search.tuning == before.search.tuning
    assert after.search.open_of([]) == []


DIVERGED = (
    "tune: all 3 trials of arm mlm diverged, so its runs are not trained; give other values, such as smaller "
    "learning rates."
)


def test_an_arm_of_which_every_trial_diverged_waits_and_says_why_while_the_others_are_trained(
    tmp_path, monkeypatch, capsys
):
    spec = written(
        tmp_path, arms=ARMS | {"plain": {"training": {"max_steps": 3}}}, tune=TUNE | {"arms": ["mlm", "clm"]}
    )
    for item in opened(spec).search.open_of([]):
        if item.run.arm.startswith("mlm"):
            end(item, None, state="failed", exit_code=66)
        else:
            end(item, item.run.settings.training.learning_rate)
    workspace = opened(spec)
    assert workspace.waiting_arms() == ["mlm"]
    assert {item.run.arm for item in workspace.todo(workspace.planned)} == {"clm", "plain"}
    content = workspace.plan()
    assert {run.arm for run in content.runs if run.is_open} == {"clm", "plain"}
    assert {run.arm for run in content.runs if run.is_to_train} == {"clm", "plain"}
    assert {run.arm for run in content.runs} == {"mlm", "clm", "plain"}
    assert workspace.warnings()[0] == DIVERGED
    here = runs.ThisMachine(devices=1, slots=1, other_machine=False)
    assert runs.tune_at(here, workspace, ())[1:] == (False, True)
    assert f"{DIVERGED}\n" in capsys.readouterr().out
    assert runs.tune_at(here, workspace, ("clm",))[1:] == (False, False)


def test_an_arm_of_which_every_trial_diverged_is_no_arm_with_trials_to_come(tmp_path):
    pytest.importorskip("optuna")
    tune = {"settings": {"training.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}, "budget": 4}
    spec = written(tmp_path, tune=tune)
    while trials := opened(spec).search.open_of([]):
        for item in trials:
            end(item, None, state="failed", exit_code=66)
    assert [len(tuned.trials) for tuned in opened(spec).search.tuning.arms] == [2, 2]
    assert opened(spec).search.later_trials() == []
    assert [sentence.partition(" diverged")[0] for sentence in opened(spec).search.sentences()] == [
        "tune: all 2 trials of arm mlm",
        "tune: all 2 trials of arm clm",
    ]


def test_the_loss_of_a_trial_is_the_mean_over_its_seeds_and_diverged_with_any_of_them(tmp_path):
    spec = written(tmp_path, tune=TUNE | {"seeds": [8, 9]})
    losses = {(8, 1e-3): 1.0, (9, 1e-3): 5.0, (8, 2e-3): 2.5, (9, 2e-3): 2.7, (8, 4e-3): 0.1, (9, 4e-3): None}
    for item in opened(spec).search.open_of([]):
        loss = losses[item.run.seed, item.run.settings.training.learning_rate]
        end(item, loss, **({"state": "failed", "exit_code": 66} if loss is None else {}))
    tuned = opened(spec).search.tuning
    assert tuned.chosen["mlm"] == {"training.learning_rate": 2e-3}
    assert [trial.loss for trial in tuned.arms[0].trials] == [3.0, pytest.approx(2.6), None]


@pytest.mark.parametrize(
    "trial",
    [
        3,
        {"values": {}, "run_ids": ["0"], "losses": []},
        {"values": {}, "run_ids": ["0"], "losses": [1.0, 2.0]},
        {"values": {}, "run_ids": ["0"], "losses": [math.nan]},
    ],
    ids=str,
)
def test_a_damaged_tuned_json_is_named(spec, trial):
    folder = opened(spec).folder
    folder.mkdir(parents=True)
    about = {"settings": {}, "seeds": [9], "part_of_steps": 0.5}
    (folder / "tuned.json").write_text(json.dumps(about | {"arms": [{"arm": "mlm", "trials": [trial]}]}))
    assert error_text(ResultsError, opened, spec) == (
        f"{folder / 'tuned.json'} cannot be read; delete it, and `ablate run` writes it again."
    )


def test_the_plan_of_trials_has_the_measures_of_the_experiment(tmp_path):
    workspace = opened(written(tmp_path, measures=["validation", "layer_change"]))
    for item in workspace.planned:
        end(item, 2.0)
    measures = []
    for written_by in (workspace, workspace.for_trials()):
        written_by.write_plan()
        plan = json.loads((workspace.folder / "plan.json").read_text(encoding="utf-8"))
        measures.append([run["measures"] for run in plan["runs"]])
    assert measures == [[2] * 4] * 2


def test_the_plan_counts_the_trials_before_the_runs(spec):
    content = opened(spec).plan()
    assert len(content.trials) == 6
    assert {run.max_steps for run in content.trials} == {max(1, round(content.runs[0].max_steps * 0.25))}
    assert content.tuning.settings == {"training.learning_rate": RATES}


def test_what_optuna_suggested_before_is_taken_from_tuned_json_and_needs_no_optuna(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    spec = written(tmp_path, tune=RANGE)
    assert [len(tried) for tried in searched(spec).values()] == [3, 3]
    chosen = rates(opened(spec))
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert rates(opened(spec)) == chosen
    with pytest.raises(SpecError, match="needs Optuna, which is not installed"):
        opened(written(tmp_path, tune=RANGE | {"budget": 8}))


RANGE = {"settings": {"training.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}, "budget": 6}


def searched(spec):
    """End the trials of a spec one by one, and return the rates that were tried, by arm."""
    while trials := opened(spec).search.open_of([]):
        for item in trials:
            width = item.run.settings.encoder.hidden_size
            end(item, abs(item.run.settings.training.learning_rate - 1e-4 * width))
    opened(spec).write_plan()
    arms = opened(spec).search.tuning.arms
    return {tuned.arm: [trial.values["training.learning_rate"] for trial in tuned.trials] for tuned in arms}


def test_an_arm_that_changes_is_searched_as_if_it_had_not_been_searched_before(tmp_path):
    pytest.importorskip("optuna")
    encoder = SPEC["encoder"]
    spec = {"arms": {"mlm": {}}, "tune": RANGE | {"budget": 12}}  # Optuna draws the first ten trials at random
    before = searched(written(tmp_path, **spec))
    wider = written(tmp_path, encoder=encoder | {"hidden_size": 4 * encoder["hidden_size"]}, **spec)
    after = searched(wider)
    shutil.rmtree(tmp_path / "out")
    assert after == searched(wider)
    assert after != before


def test_a_new_arm_under_a_budget_gets_as_many_trials_as_the_others(tmp_path):
    pytest.importorskip("optuna")
    few = searched(written(tmp_path, tune=RANGE))
    more = searched(
        written(
            tmp_path,
            tune=RANGE,
            arms=ARMS | {"again": {"objective": {"kind": "causal_lm"}, "training": {"max_steps": 40}}},
        )
    )
    assert {arm: len(rates) for arm, rates in few.items()} == {"mlm": 3, "clm": 3}
    assert {arm: len(rates) for arm, rates in more.items()} == {"mlm": 2, "clm": 2, "again": 2}
    assert more["mlm"] == few["mlm"][:2]


def test_a_trial_that_ends_without_a_loss_is_tried_once_and_said(spec, monkeypatch, capsys):
    offered = []

    def end_one_without_loss(place, workspace, items):
        offered.append([item.run_id for item in items])
        for item in items:
            loss = None if item.run.arm == "clm,learning_rate=0.001" else 2.0
            end(item, loss, step=None if loss else 0)
        return False, []

    monkeypatch.setattr(runs, "carry_out_at", end_one_without_loss)
    here = runs.ThisMachine(devices=1, slots=1, other_machine=False)
    workspace, interrupted, is_given_up = runs.tune_at(here, opened(spec), ())
    assert (len(offered), len(offered[0]), interrupted, is_given_up) == (1, 6, False, True)
    assert workspace.waiting_arms() == ["clm"]
    (name,) = [path.name for path in (spec.parent / "out" / "runs").glob("clm,learning_rate=0.001-*")]
    assert f"tune: {name} has no validation loss, so its arm is not tuned.\n" in capsys.readouterr().out
