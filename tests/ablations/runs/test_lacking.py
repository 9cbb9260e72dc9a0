"""What trained runs lack, and that two trainings of a run are never mixed."""

import json
import shutil

import pandas as pd
import pytest

from ablations.measures.settings import RunDistanceSettings
from ablations.runs import measure_pairs, plan
from ablations.runs import rows as run_rows
from ablations.runs.gather import gather
from ablations.runs.identity import PlannedRun
from ablations.runs.records import RunRecord
from ablations.runs.rows import key
from ablations.runs.worker import measure
from ablations.spec.experiment import Experiment, Run
from lightning_modules.errors import ExitCode
from lightning_modules.training.run_directory import OF_A_TRAINING
from lightning_modules.training.train import start
from tests.support.stop_after import StopAfter
from tests.support.tiny_text import settings

DISTANCE = RunDistanceSettings(kind="run_distance", tokens=400)


def experiment(*measures):
    arms = {"mlm": {"objective": {"kind": "masked_lm"}}}
    written = {"name": "it", "version": 1, "arms": arms, "seeds": [0], "measures": measures}
    return Experiment.model_validate(written)


def train(directory, stop=None):
    stop = stop or StopAfter(10**9)
    options = {"accelerator": "cpu", "threads": 1, "stop": stop, "on_line": stop.on_line}
    return start(directory, data_root=directory.path, **options)


@pytest.fixture
def add_run(make_run, tokens):
    """Make a run that is trained for two steps."""

    def add(seed=0, **sections):
        run = settings(seed=seed, **({"training": {"max_steps": 2}} | sections))
        run_id = f"{seed:010}"
        directory = make_run(run, f"mlm-s{seed}-{run_id}")
        assert train(directory) == ExitCode.DONE
        return PlannedRun(Run("mlm", seed, run), run_id, tokens.address, directory)

    return add


def lacks(planned, *measures, folder):
    return plan.lacking(experiment(*measures), planned, folder=folder, data_root=folder)


def test_a_run_without_its_checkpoint_is_trained_again_only_for_a_measure_that_is_missing(
    add_run, tokens, tmp_path
):
    item = add_run()
    both = ("validation", {"kind": "geometry", "tokens": 400})
    measures = experiment(*both).measures
    measure(item.directory, tokens, measures[:1], data_root=tmp_path, say=lambda line: None)
    (one,) = lacks([item], *both, folder=tmp_path).values()
    assert (one.number_requested, one.names, one.checkpoint, one.is_to_train) == (2, ("geometry",), "whole", False)
    item.directory.last_checkpoint.write_bytes(b"cut short")
    assert lacks([item], *both, folder=tmp_path)[item.run_id].checkpoint == "damaged"
    shutil.rmtree(item.directory.checkpoints)
    (one,) = lacks([item], *both, folder=tmp_path).values()
    assert (one.names, one.checkpoint, one.is_to_train) == (("geometry",), "gone", True)
    (one,) = lacks([item], "validation", folder=tmp_path).values()
    assert (one.names, one.is_to_train) == ((), False)


def test_all_checkpoints_are_measured_when_the_last_is(add_run, tokens, tmp_path):
    """A run whose checkpoints were deleted between two of them lacks the measure."""
    item = add_run()
    asked = {"kind": "geometry", "tokens": 400, "checkpoints": "all"}
    (geometry,) = experiment(asked).measures
    measure(item.directory, tokens, [geometry], data_root=tmp_path, say=lambda line: None)
    rows = run_rows.rows(item.directory.path)
    assert sorted(set(rows["step"])) == [0, 1, 2]
    shutil.rmtree(item.directory.checkpoints)
    assert lacks([item], asked, folder=tmp_path)[item.run_id].names == ()
    rows[rows["step"] < 2].to_parquet(item.directory.path / "measures.parquet")
    assert lacks([item], asked, folder=tmp_path)[item.run_id].names == ("geometry",)


@pytest.mark.parametrize("gone", ["all", "last", "damaged"])
def test_a_training_that_starts_again_leaves_nothing_of_the_one_before(gone, add_run, tokens, tmp_path):
    item = add_run(training={"max_steps": 12})
    directory, validation = item.directory, experiment("validation").measures
    measure(directory, tokens, validation, data_root=tmp_path, say=lambda line: None)
    run_rows.note_refusals(directory.path, {"k": "too little text"}, tried=["k"])
    run_rows.put_predictions(directory.path, pd.DataFrame({"key": ["k"], "step": [1], "example": [0]}))
    started = directory.provenance()["started"]
    assert {name for name in OF_A_TRAINING if (directory.path / name).exists()} == set(OF_A_TRAINING) - {
        "word_order.json",
        "wandb",
    }
    if gone == "all":
        shutil.rmtree(directory.checkpoints)
    elif gone == "last":
        directory.last_checkpoint.unlink()
    else:
        directory.last_checkpoint.write_bytes(b"cut short")
    assert train(directory, StopAfter(3)) == ExitCode.INTERRUPTED
    assert directory.state().state == "interrupted"
    assert directory.state().step < 12
    assert run_rows.rows(directory.path).empty
    assert run_rows.refusals(directory.path) == {}
    assert not (directory.path / "predictions.parquet").exists()
    steps = [json.loads(line)["step"] for line in directory.metrics.read_text().splitlines()]
    assert max(steps) < 12
    assert len(steps) == len(set(steps))
    assert "resumed" not in directory.provenance()
    assert gather("x", [item], keys={key(validation[0]): None}).empty
    assert train(directory) == ExitCode.DONE
    assert directory.provenance()["started"] >= started


def test_who_stops_before_the_training_starts_again_keeps_what_is_there(add_run, tokens, tmp_path):
    item = add_run()
    measure(item.directory, tokens, experiment("validation").measures, data_root=tmp_path, say=lambda line: None)
    before, state = run_rows.rows(item.directory.path), item.directory.state()
    shutil.rmtree(item.directory.checkpoints)
    stop = StopAfter(0)
    stop.ask()
    assert train(item.directory, stop) == ExitCode.INTERRUPTED
    pd.testing.assert_frame_equal(run_rows.rows(item.directory.path), before)
    assert item.directory.state() == state


def test_a_kill_between_two_files_leaves_no_rows_of_the_training_before(add_run, tokens, tmp_path, monkeypatch):
    """Whatever is removed before the kill, the table has all of the old training or none of it."""
    item = add_run()
    validation = experiment("validation").measures
    measure(item.directory, tokens, validation, data_root=tmp_path, say=lambda line: None)
    item.directory.last_checkpoint.unlink()
    for removed in range(1, len(OF_A_TRAINING) + 1):
        monkeypatch.setattr("lightning_modules.training.run_directory.OF_A_TRAINING", OF_A_TRAINING[:removed])
        item.directory.forget_training()
        assert gather("x", [item], keys={key(validation[0]): None}).empty
        assert (
            not item.directory.is_trained()
            or lacks([item], "validation", folder=tmp_path)[item.run_id].is_to_train
        )


def test_a_run_whose_checkpoints_are_on_another_disk_is_trained_again(add_run, tmp_path):
    directory, disk = add_run().directory, tmp_path / "disk"
    directory.checkpoints.rename(disk)
    directory.checkpoints.symlink_to(disk)
    (directory.path / "state.json").unlink()
    directory.last_checkpoint.unlink()
    kept = sorted(path.name for path in disk.iterdir())
    assert train(directory) == ExitCode.DONE
    assert directory.is_done()
    assert not directory.checkpoints.is_symlink()
    assert sorted(path.name for path in disk.iterdir()) == kept


def test_distances_are_of_the_last_trainings_and_need_the_checkpoints_of_both(add_run, tmp_path):
    runs = [add_run(seed) for seed in range(3)]
    asked = {"kind": "run_distance", "tokens": 400}
    names = {item.run_id: one.names for item in runs for one in [lacks(runs, asked, folder=tmp_path)[item.run_id]]}
    assert set(names.values()) == {()}  # they can be compared as they are
    measure_pairs.compare(tmp_path, runs[:2], DISTANCE, data_root=tmp_path, say=lambda line: None)
    for item in runs[:2]:
        shutil.rmtree(item.directory.checkpoints)
    # The two are compared with each other, but not with the third: both are trained again, and all pairs are open.
    found = lacks(runs, asked, folder=tmp_path)
    assert [found[item.run_id].is_to_train for item in runs] == [True, True, False]
    assert [len(measure_pairs.pairs_to_measure(tmp_path, some, DISTANCE)) for some in (runs, runs[:2])] == [0, 0]
    table = measure_pairs.rows(tmp_path)
    assert len(measure_pairs.of_last_trainings(table, runs)) == len(table) > 0
    provenance = runs[0].directory.path / "provenance.json"
    provenance.write_text(json.dumps(runs[0].directory.provenance() | {"started": "later"}))
    assert measure_pairs.of_last_trainings(table, runs).empty
    assert measure_pairs.of_last_trainings(table.drop(columns=["started"]).assign(started=None), runs).equals(
        table.drop(columns=["started"]).assign(started=None)
    )


def test_a_run_that_is_trained_again_takes_those_along_that_it_was_compared_with(add_run, tmp_path):
    runs = [add_run(seed) for seed in range(2)]
    measure_pairs.compare(tmp_path, runs, DISTANCE, data_root=tmp_path, say=lambda line: None)
    for item in runs:
        shutil.rmtree(item.directory.checkpoints)
    assert measure_pairs.to_train_again(tmp_path, runs, DISTANCE, to_train=set()) == set()
    assert measure_pairs.to_train_again(tmp_path, runs, DISTANCE, to_train={runs[0].run_id}) == {runs[1].run_id}


def run_of(arm, names, checkpoint="gone"):
    return RunRecord(run_id=arm, folder=arm, arm=arm, seed=0, not_measured=names, checkpoint=checkpoint)


def test_what_is_gone_and_what_is_done_about_it_are_sentences():
    assert plan.checkpoint_sentences([run_of("a", ["validation"], "whole")]) == []
    said = [run_of("a", ["validation", "geometry"]), run_of("b", ["validation", "geometry"]), run_of("c", [])]
    assert plan.checkpoint_sentences(said) == [
        "The last checkpoint of a (seed 0) and b (seed 0) is gone, but validation, geometry must be measured "
        "from it: `ablate run` removes the rows and the log of them and trains them again from the first step.",
        "The last checkpoint of c (seed 0) is gone, and no measure needs it: `ablate run` does not train it "
        "again. To have it trained again, delete its folder in runs.",
    ]
    assert plan.checkpoint_sentences([run_of("a", ["validation"], "damaged")])[0].startswith(
        "The last checkpoint of a (seed 0) is damaged, but validation must be measured from it"
    )
