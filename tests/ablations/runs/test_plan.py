"""The plan that an experiment's folder keeps."""

import json
import math

import joblib
import pytest

from ablations.runs import plan
from ablations.runs.calibration import Calibration
from ablations.runs.records import DataRecord, Plan, RunRecord
from lightning_modules.files import read_json
from lightning_modules.training.run_directory import RunDirectoryError
from tests.support.errors import error_text
from tests.support.planned_spec import workspace_of
from tests.support.unprivileged import permissions_hold


@pytest.mark.parametrize(("runs", "kept"), [(("a", "b"), True), (("a", "c"), False), (("a",), False)])
def test_what_was_known_of_text_that_is_gone_stays_with_the_same_runs_alone(tmp_path, runs, kept):
    spec = tmp_path / "it.yaml"
    spec.write_text("name: it\n", encoding="utf-8")

    def write(runs, data):
        records = [RunRecord(run_id=run, folder=run, arm="a", seed=0, state="planned") for run in runs]
        content = Plan(experiment="it", arms=["a"], runs=records)
        plan.write(
            content, tmp_path / "out", spec=spec.read_bytes(), claims=[], data=DataRecord.model_validate(data)
        )
        return read_json(tmp_path / "out/plan.json")["data"]

    known = {"address": "x", "train_tokens": 5}
    assert write(("a", "b"), known) == known
    assert write(runs, {}) == (known if kept else {})
    assert write(("a", "b"), {"address": "y"}) == {"address": "y"}


def test_the_date_of_a_plan_stays_when_comments_of_the_spec_change(tmp_path, monkeypatch):
    folder, days = tmp_path / "out", iter(("first", "second", "third"))
    monkeypatch.setattr(plan, "utc_now", lambda: day)

    def created(spec):
        content = Plan(experiment="it", arms=[], runs=[])
        plan.write(content, folder, spec=spec, claims=[], data=DataRecord())
        assert (folder / "spec.yaml").read_bytes() == spec
        return read_json(folder / "plan.json")["created"]

    day = next(days)
    assert created(b"name: it\nversion: 1\n") == "first"
    day = next(days)
    assert created(b"# State complete\nversion: 1\nname: it  # a name\n") == "first"
    day = next(days)
    assert created(b"name: it\nversion: 2\n") == "third"
    (folder / "spec.yaml").write_bytes(b"no: [spec")
    assert created(b"name: it\nversion: 2\n") == "third"


def planned(folder, *measures):
    workspace = workspace_of(folder, measures=measures)
    return workspace, workspace.plan()


def test_the_distances_between_all_runs_come_after_them_and_take_nobody_knows_how_long(tmp_path):
    Calibration(tmp_path / "out").note_steps([("32-true", 16, 1e9)], threads=1)
    workspace, without = planned(tmp_path)
    for item in workspace.planned:
        Calibration(tmp_path / "out").note_run(item, [], threads=1, training_seconds=2.0, wall_seconds=3.0)
    without = workspace.plan()
    assert (without.pairs_to_compare, without.left_out, without.notes) == (0, [], [])
    assert without.seconds is not None
    _, told = planned(tmp_path, {"kind": "run_distance", "tokens": 1000})
    assert told.pairs_to_compare == 4  # a-b twice, the seeds of a and of b
    assert "run_distance" in told.left_out


def test_slots_without_a_run_get_no_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    Calibration(tmp_path / "out").note_steps([("32-true", 16, 1e6)], threads=1)
    workspace, _ = planned(tmp_path)
    four, eight, two = (workspace.plan(slots=slots) for slots in (4, 8, 2))
    assert eight.seconds == four.seconds > 0
    assert eight.runs == four.runs
    assert two.runs[0].seconds == pytest.approx(four.runs[0].seconds / 2)  # 4 threads, not 2
    assert four.seconds == pytest.approx(max(run.seconds for run in four.runs))
    assert two.seconds == pytest.approx(sum(run.seconds for run in two.runs) / 2)


def test_a_run_on_several_devices_has_the_threads_of_them_all(tmp_path, monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    Calibration(tmp_path / "out").note_steps([("32-true", 16, 1e6)], threads=1)
    workspace, _ = planned(tmp_path)
    one, three = (workspace.plan(devices=devices).runs[0].seconds for devices in (1, 3))
    assert three == pytest.approx(one * 8 / 6)  # three devices of two threads each


def test_measures_of_which_nothing_is_known_are_named_and_not_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 1)
    asked = ("probing", "generation", "layer_change", "run_distance")
    workspace, told = planned(tmp_path, *asked)
    assert told.left_out == [*asked]
    assert told.seconds is None
    assert told.notes[-1] == (
        "The time does not include probing, generation, layer_change and run_distance. Measures take "
        "extra time, which is unknown until one run has been measured here without interruption."
    )
    Calibration(tmp_path / "out").note_steps([("32-true", 16, 1e9)], threads=1)
    steps_alone = workspace.plan()
    assert steps_alone.left_out == told.left_out
    assert steps_alone.seconds == pytest.approx(sum(run.flops for run in steps_alone.runs) / 1e9)
    for item in workspace.planned:
        Calibration(tmp_path / "out").note_run(
            item, workspace.experiment.measures, threads=1, training_seconds=2.0, wall_seconds=9.0
        )
    with_runs = workspace.plan()
    assert with_runs.left_out == ["run_distance"]
    assert with_runs.seconds == pytest.approx(4 * (2 + 7))


def test_an_arm_that_takes_no_steps_leaves_the_time_of_the_others_known(tmp_path, monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 1)
    Calibration(tmp_path / "out").note_steps([("32-true", 16, 1e9)], threads=1)
    arms = {"a": {}, "untrained": {"training": {"max_steps": 0}}}
    content = workspace_of(tmp_path, arms=arms, measures=["validation"]).plan()
    assert content.left_out == ["validation"]
    assert [run.seconds for run in content.runs if run.arm == "untrained"] == [0.0, 0.0]
    assert content.seconds == pytest.approx(sum(run.flops for run in content.runs) / 1e9)
    assert content.seconds > 0


RUN = {"run_id": "0123456789", "arm": "mlm", "seed": 0, "tokens": "t", "settings": {}}


@pytest.mark.parametrize(
    "damaged",
    [
        "null",
        "[1]",
        "{",
        "{}",
        *(json.dumps(RUN | {name: value}) for name, value in [("arm", None), ("seed", "0"), ("plugins", [1])]),
        json.dumps(RUN | {"seed": math.nan}),
    ],
)
def test_a_damaged_record_of_a_run_is_one_sentence_in_the_status_of_all(tmp_path, damaged):
    runs = tmp_path / "runs"
    for name, text in (("mlm-s0-0123456789", json.dumps(RUN)), ("mlm-x-s12-0123456780", damaged), ("x", damaged)):
        (runs / name).mkdir(parents=True)
        (runs / name / "run.json").write_text(text)
    statuses = plan.all_statuses(tmp_path)
    assert [(run.arm, run.seed, run.run_id, run.state) for run, _ in statuses] == [
        (RUN["arm"], RUN["seed"], RUN["run_id"], "planned"),
        ("mlm-x", 12, "0123456780", "unreadable"),
        ("x", 0, "", "unreadable"),
    ]
    assert [state.message for _, state in statuses[1:]] == [
        f"{runs / name}/run.json cannot be read or has changed since it was written; delete the file, then "
        "`ablate run` writes it again."
        for name in ("mlm-x-s12-0123456780", "x")
    ]


def test_a_folder_of_runs_that_may_not_be_read_is_not_taken_for_no_runs(tmp_path):
    path = tmp_path / "runs" / "mlm-s0-0123456789" / "run.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(RUN))
    (tmp_path / "runs" / "no-run").mkdir()
    assert [status.record.folder for status in plan.all_statuses(tmp_path)] == [path.parent.name]
    path.parent.chmod(0)
    with permissions_hold():
        statuses = plan.all_statuses(tmp_path)
    path.parent.chmod(0o700)
    denied = (
        "cannot be read: permission is denied; change the permissions or choose another folder, then start again."
    )
    assert [(run.arm, run.state, state.message) for run, state in statuses] == [
        ("mlm", "unreadable", f"{path.parent} {denied}")
    ]
    runs = tmp_path / "runs"
    runs.chmod(0)
    try:
        with permissions_hold():
            text = error_text(RunDirectoryError, plan.all_statuses, tmp_path)
    finally:
        runs.chmod(0o700)
    assert text == f"{runs} {denied}"


def test_an_output_root_without_runs_has_no_statuses(tmp_path):
    assert plan.all_statuses(tmp_path) == []
    (tmp_path / "runs").write_text("no folder")
    assert plan.all_statuses(tmp_path) == []
