"""What is said of runs at work."""

import json
import threading

import pytest
from rich.console import Console

from ablations.errors import MeasureError
from ablations.runs import measure_pairs, progress
from ablations.runs.calibration import Calibration
from ablations.runs.identity import create
from ablations.runs.launch import Outcome
from ablations.runs.progress import LOG_END, _measured_now, _through, compare_runs, display
from ablations.runs.terminal import WIDTH, console_for_tables
from lightning_modules.errors import CheckpointError, DataError
from lightning_modules.training.run_directory import RunDirectoryError, checksum
from tests.support.planned_spec import workspace_of


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            "a warning\nmeasuring probing ud_pos at step 500\nlayer 3 of 6\n",
            "measuring probing ud_pos at step 500",
        ),
        ("measuring geometry at step 0\nmeasuring parsing at step 0\n", "measuring parsing at step 0"),
        (
            "measuring geometry at step 0\nmeasuring geometry at step 0: layer 3 done\n",
            "measuring geometry at step 0: layer 3 done",
        ),
        ("", "measuring"),
        ("measuring geometry at step 0\n" + "x" * LOG_END, "measuring"),  # too far back to look for
        (b"measuring parsing at step 0\n\xff\xfe", "measuring parsing at step 0"),
    ],
)
def test_what_is_measured_is_what_the_log_said_last(tmp_path, written, said):
    log = tmp_path / "log.txt"
    log.write_bytes(written if isinstance(written, bytes) else written.encode())
    assert _measured_now(log) == said


@pytest.mark.parametrize(
    "error",
    [
        MeasureError("too few tokens."),
        CheckpointError("last.ckpt is damaged."),
        DataError("text.txt is gone."),
        RunDirectoryError("run.json is damaged."),
    ],
)
def test_runs_that_cannot_be_compared_are_said_and_do_not_stop_the_command(error, tmp_path, monkeypatch, capsys):
    workspace = workspace_of(tmp_path, measures=["run_distance"])

    def fails(*_, **more):
        raise error

    monkeypatch.setattr(measure_pairs, "compare", fails)
    assert not compare_runs(workspace)
    assert capsys.readouterr().out == f"failed: run_distance: {error}\n"


def test_runs_have_the_present_places_of_their_files_before_they_are_compared(tmp_path, monkeypatch):
    workspace = workspace_of(tmp_path, measures=["run_distance"])
    done, planned, *_ = workspace.planned
    create(done)
    done.directory.checkpoints.mkdir()
    done.directory.last_checkpoint.write_bytes(b"weights")
    done.directory.write_state("done", step=4, last_checkpoint_bytes=len(b"weights"))
    before = done.directory.description()
    elsewhere = before | {"settings": before["settings"] | {"data": {"kind": "files", "train": "moved.txt"}}}
    (done.directory.path / "run.json").write_text(json.dumps(elsewhere | {"checksum": checksum(elsewhere)}))
    monkeypatch.setattr(measure_pairs, "compare", lambda *_, **more: None)
    assert compare_runs(workspace)
    assert done.directory.description() == before
    assert not planned.directory.path.exists()


def test_a_run_without_a_log_is_being_measured_all_the_same(tmp_path):
    assert _measured_now(tmp_path / "log.txt") == "measuring"


def test_a_folder_that_cannot_be_read_for_an_instant_ends_no_display(tmp_path, monkeypatch, capfd):
    """Another machine replaces state.json on a shared disk."""
    (item, *_) = workspace_of(tmp_path).planned
    create(item)
    looks = threading.Semaphore(0)

    def unreadable(directory):
        looks.release()
        raise RunDirectoryError(f"{directory.path / 'state.json'} cannot be read.")

    monkeypatch.setattr(type(item.directory), "state", unreadable)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0)
    with display([item], Console()):
        assert all(looks.acquire(timeout=20) for _ in range(3))
    assert capfd.readouterr() == ("", "")


def test_a_notebook_which_asks_for_colours_gets_lines_and_no_bars(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as the kernel of a notebook sets it
    console = Console()
    assert console.is_terminal
    assert console_for_tables().width == WIDTH
    with display([], console):
        pass
    assert capsys.readouterr().out == ""


class PoolThatEnds:
    """A pool of which every run ends well, some of them done in one go."""

    slots = devices = 1
    gpus = ()

    def __init__(self, in_one_go):
        self.in_one_go = in_one_go

    def run(self, run_dirs, *, ended, tried_again):
        outcomes = [Outcome(path, 0, None, 3.0, in_one_go=path in self.in_one_go) for path in run_dirs]
        for outcome in outcomes:
            ended(outcome)
        return outcomes


def test_the_times_of_a_run_are_kept_only_if_one_worker_did_all_of_it(tmp_path, capsys):
    """Another command may have trained it meanwhile. Then its measures seem to take no time."""
    workspace = workspace_of(tmp_path)
    todo = list({item.run_id: item for item in workspace.planned}.values())
    for item in workspace.planned:
        create(item)
        item.directory.write_state("done", seconds=2.0)
    alone, *others = workspace.planned
    for in_one_go, expected in ((others[:0], []), ([alone.directory.path], [1.0])):
        _through(workspace, PoolThatEnds(in_one_go), todo, Console())
        calibration = Calibration(workspace.out)
        kept = [entry["other"] for runs in calibration._of_this_machine["runs"].values() for entry in runs]
        assert kept == expected
