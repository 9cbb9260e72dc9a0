"""Runs of a spec as it was before."""

import json

from ablations.runs import identity
from ablations.runs.workspace import Workspace
from lightning_modules.files import write_json
from tests.support.planned_spec import SPEC


def opened(folder, **changes):
    (folder / "it.yaml").write_text(json.dumps(SPEC | changes))
    return Workspace.open(folder / "it.yaml", out=folder / "out", data_root=folder)


def start(workspace):
    workspace.write_plan()
    for item in workspace.planned:
        identity.create(item)
        item.directory.write_state("done", step=2)


def test_runs_of_an_earlier_version_are_counted_with_the_settings_that_differ(tmp_path):
    before = opened(tmp_path)
    assert before.earlier_runs() == []
    start(before)
    assert before.earlier_runs() == []
    longer = opened(tmp_path, training={"max_steps": 8, "tokens_per_step": 128})
    said = f"runs of an earlier version of this spec are in {tmp_path / 'out' / 'runs'} and not counted here: "
    assert longer.earlier_runs() == [f"2 {said}arm a differed in training.max_steps (4, now 8)."]
    fewer = opened(tmp_path, arms={"b": SPEC["arms"]["b"], "c": {}}, seeds=[1, 2])
    # Arm a, seed 1 is now called c: the run is the same.
    assert fewer.earlier_runs() == [f"2 {said}arm a not in the spec now; arm b without seed 0 now."]
    narrow = opened(tmp_path, encoder=SPEC["encoder"] | {"hidden_size": 8, "norm": "pre", "dropout": 0.0})
    assert narrow.earlier_runs() == [
        f"4 {said}arms a and b differed in encoder.hidden_size (16, now 8), encoder.intermediate_size (64, now "
        f'32), encoder.dropout (0.1, now 0.0) and encoder.norm ("post", now "pre").'
    ]
    measured = opened(tmp_path, measures=["geometry"])
    assert measured.earlier_runs() == []


def test_runs_that_never_started_are_none_of_an_earlier_version(tmp_path):
    opened(tmp_path).write_plan()
    assert opened(tmp_path, training={"max_steps": 8, "tokens_per_step": 128}).earlier_runs() == []


def test_a_difference_that_no_setting_shows_is_the_text_or_the_version(tmp_path):
    before = opened(tmp_path)
    start(before)
    for item in before.planned:
        old = item.directory.path.rename(item.directory.path.with_name(f"old-{item.run_id}"))
        changed = identity.description(item) | ({"tokens": "other"} if item.run.arm == "a" else {})
        write_json(old / "run.json", changed)
    plan = json.loads((before.folder / "plan.json").read_text())
    plan["runs"] = [
        run | {"run_id": f"old-{i}", "folder": f"old-{run['run_id']}"} for i, run in enumerate(plan["runs"])
    ]
    write_json(before.folder / "plan.json", plan)
    (said,) = opened(tmp_path).earlier_runs()
    assert said.endswith(": arm a with another text now; arm b with another version of this project now.")
