"""The plan that an experiment's folder keeps."""

import json
import os

import pytest

from ablations.runs import cost, plan
from ablations.runs.calibration import Calibration
from ablations.runs.cost import ValidationText
from ablations.runs.launch import threads_per_process
from ablations.runs.workspace import Workspace
from lightning_modules.data.token_store import prepare
from lightning_modules.files import read_json
from tests.support.planned_spec import SPEC


@pytest.mark.parametrize(("runs", "kept"), [(("a", "b"), True), (("a", "c"), False), (("a",), False)])
def test_what_was_known_of_text_that_is_gone_stays_with_the_same_runs_alone(tmp_path, runs, kept):
    spec = tmp_path / "it.yaml"
    spec.write_text("name: it\n", encoding="utf-8")

    def write(runs, data):
        content = {"runs": [{"run_id": run, "state": "planned"} for run in runs]}
        plan.write(content, tmp_path / "out", spec=spec, claims=[], data=data)
        return read_json(tmp_path / "out/plan.json")["data"]

    known = {"address": "x", "train_tokens": 5}
    assert write(("a", "b"), known) == known
    assert write(runs, {}) == (known if kept else {})
    assert write(("a", "b"), {"address": "y"}) == {"address": "y"}


def planned(folder, *measures):
    (folder / "it.yaml").write_text(json.dumps(SPEC | {"measures": measures}))
    workspace = Workspace.open(folder / "it.yaml", out=folder / "out", data_root=folder)
    return workspace, workspace.plan()


def test_the_distances_between_all_runs_come_after_them_on_the_whole_machine(tmp_path):
    cores = threads_per_process(1)
    rates = [
        ("training/masked_lm/32-true", 16, 1e9),
        ("other/evaluation", 16, 1e9),
        ("other/layer_change", 16, 100.0),
    ]
    Calibration(tmp_path / "out").note_reference(rates, threads=cores)
    apart = {"kind": "run_distance", "tokens": 1000}
    workspace, without = planned(tmp_path)
    _, told = planned(tmp_path, apart)
    assert (without["pairs_to_compare"], told["pairs_to_compare"]) == (0, 4)  # a-b twice, the seeds of a and of b
    assert told["left_out"] == []
    work = cost.distance_work(
        Workspace.open(tmp_path / "it.yaml", out=tmp_path, data_root=tmp_path).experiment.measures[0],
        workspace.planned[0].run.settings,
        validation=ValidationText(1_500, 100),
    )
    assert work == 1000 * 3
    assert told["seconds"] - without["seconds"] == pytest.approx(4 * work / 100)


def test_slots_without_a_run_get_no_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    Calibration(tmp_path / "out").note_reference([("training/masked_lm/32-true", 16, 1e6)], threads=1)
    workspace, _ = planned(tmp_path)
    four, eight, two = (workspace.plan(slots=slots) for slots in (4, 8, 2))
    assert eight["seconds"] == four["seconds"] > 0
    assert eight["runs"] == four["runs"]
    assert two["runs"][0]["seconds"] == pytest.approx(four["runs"][0]["seconds"] / 2)  # 4 threads, not 2
    assert four["seconds"] == pytest.approx(max(run["seconds"] for run in four["runs"]))
    assert two["seconds"] == pytest.approx(sum(run["seconds"] for run in two["runs"]) / 2)


def test_a_run_on_several_devices_has_the_threads_of_them_all(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    Calibration(tmp_path / "out").note_reference([("training/masked_lm/32-true", 16, 1e6)], threads=1)
    workspace, _ = planned(tmp_path)
    one, three = (workspace.plan(devices=devices)["runs"][0]["seconds"] for devices in (1, 3))
    assert three == pytest.approx(one * 8 / 6)  # three devices of two threads each


def test_around_the_runs_processes_start_and_a_page_is_drawn_and_the_language_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    rates = [("training/masked_lm/32-true", 16, 1e6), ("other/start_and_end", 1, 0.25), ("other/text", 1, 50.0)]
    text = {"kind": "language", "train": 2000, "validation": 300, "test": 200, "vocab_size": 512}
    (tmp_path / "it.yaml").write_text(json.dumps(SPEC | {"data": text}))
    workspace = Workspace.open(tmp_path / "it.yaml", out=tmp_path / "out", data_root=tmp_path)
    Calibration(tmp_path / "out").note_reference(rates[:1], threads=2)
    runs_alone = workspace.plan(slots=2)["seconds"]
    Calibration(tmp_path / "out").note_reference(rates, threads=2)
    assert workspace.plan(slots=2)["seconds"] == pytest.approx(runs_alone + 4 + 2500 / 50)
    prepare(workspace.planned[0].run.settings.data, data_root=tmp_path, store=tmp_path / "out" / "tokens")
    assert workspace.plan(slots=2)["seconds"] == pytest.approx(runs_alone + 4)


def test_measures_of_which_nothing_is_known_are_left_out_and_named(tmp_path):
    asked = ("probing", "generation", "layer_change", "run_distance")
    _, told = planned(tmp_path, *asked)
    assert told["left_out"] == ["probing", "generation", "layer_change", "run_distance"]
    assert told["seconds"] is None
    assert told["notes"] == [
        "The time leaves out layer_change and run_distance, which `ablate doctor` times.",
        "The time leaves out probing and generation, of which nothing is known until a run of the kind was "
        "trained and measured here in one go.",
    ]
    rates = [("training/masked_lm/32-true", 16, 1e9), ("other/layer_change", 16, 100.0)]
    Calibration(tmp_path / "out").note_reference(rates, threads=1)
    _, told = planned(tmp_path, *asked)
    assert told["left_out"] == ["probing", "generation"]
    assert told["seconds"] > 0
