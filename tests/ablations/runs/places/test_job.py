"""Attempts of a job: which count, when it gives up, and what it does first."""

import json
import os
import signal
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path

import pytest

from ablations.runs.launch import WORKER, Outcome
from ablations.runs.places import arrays, job
from ablations.runs.places.arrays import Array
from ablations.runs.places.place import Resources
from lightning_modules.errors import ExitCode
from lightning_modules.training.run_directory import RunDirectory
from tests.support.tiny_text import settings

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])}


@pytest.fixture
def make_job(tmp_path):
    """Makes a job of two runs on disk."""

    def make(tries=3, **resources):
        names = ["mlm-s0-0000000000", "clm-s0-1111111111"]
        for name in names:
            (tmp_path / "runs" / name).mkdir(parents=True)
        array = Array(
            data_root=str(tmp_path),
            runs=str(tmp_path / "runs"),
            jobs=[names],
            measures=[],
            resources=Resources(**resources),
            tries=tries,
        )
        folder = arrays.new_folder(tmp_path / "grid")
        arrays.write(folder, array, before=None)
        return arrays.read(folder)[0]

    return make


def saved(one, number, step):
    one.directory(one.run_names[number]).write_state("interrupted", step=step, saved_step=step)


def test_attempts_with_progress_do_not_count(make_job):
    one = make_job(tries=2)
    for step in range(10):
        saved(one, 0, step)
        assert job.begin(one)
        assert one.attempts().without_progress == 1
        saved(one, 0, step + 1)
        assert job.is_left(one)


def test_a_run_that_is_trained_anew_makes_progress_although_it_has_fewer_steps(make_job):
    one = make_job(tries=1)
    saved(one, 0, 9)
    assert job.begin(one)
    saved(one, 0, 4)
    assert job.is_left(one)
    assert job.begin(one)
    assert not job.is_left(one)


def test_after_attempts_without_progress_the_job_gives_up_and_says_why(make_job):
    one = make_job(tries=2)
    assert job.begin(one)
    assert job.is_left(one)
    assert job.begin(one)
    job.note(one, one.run_names[0], "its worker process died (signal SIGKILL).", is_final=False)
    assert not job.is_left(one)
    endings = one.attempts().endings
    assert endings[one.run_names[0]].message == (
        "given up after 2 attempts without progress: its worker process died (signal SIGKILL)."
    )
    assert endings[one.run_names[1]].message == (
        f"given up after 2 attempts without progress: its job was ended each time, by a time "
        f"limit that is too short or otherwise; read the logs in {one.folder}"
    )
    assert arrays.endings(one.folder.parents[2]) == endings


def test_a_job_that_is_always_ended_from_outside_gives_up_when_it_begins(make_job):
    one = make_job(tries=2)
    assert [job.begin(one) for _ in range(4)] == [True, True, False, False]


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd-n1: error: StepId=1.0 exceeded memory limit (192073728 > 157286400), being killed",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0. Some of your processes may have been "
        "killed by the cgroup out-of-memory handler.",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.",
    ],
)
def test_a_job_that_slurm_ends_for_its_memory_says_so(make_job, line, capfd):
    """SLURM 22, 23 and later write this, and nothing else knows it. The page takes the reason from the state of
    the run. A limit that was only touched, and what earlier attempts wrote, count for nothing."""
    one = make_job(tries=2)
    log = one.folder / "12_0.log"
    (one.folder / "12_10.log").write_text(f"{line}\n")  # of another job
    job.note(one, one.run_names[0], "its worker process died (signal SIGKILL).", is_final=False)
    assert job.begin(one)
    log.write_text(capfd.readouterr().out + "slurmstepd: error: Exceeded job memory limit at some point.\n")
    assert job.is_left(one)
    assert list(one.attempts().endings) == one.run_names[:1]
    with log.open("a") as file:
        file.write(f"{line}\n")
    assert job.is_left(one)
    reason = (
        "its job used more memory than it has, so SLURM ended it; raise memory in the file of --place, or lower "
        "runs_at_once."
    )
    assert {ending.message for ending in one.attempts().endings.values()} == {reason}
    assert job.begin(one)
    with log.open("a") as file:
        file.write(capfd.readouterr().out)
    assert not job.lacked_memory(one)
    assert not job.is_left(one)
    for name in one.run_names:
        state = one.directory(name).state()
        assert state.state == "failed"
        assert state.message == f"given up after 2 attempts without progress: {reason}"
        assert state.exit_code == ExitCode.OUT_OF_MEMORY
        assert one.attempts().endings[name].message == state.message


def test_a_run_that_fails_for_good_leaves_the_others(make_job):
    one = make_job()
    job.begin(one)
    job.note(one, one.run_names[0], "the loss became no number.", is_final=True)
    assert job.worth_trying(one) == one.run_names[1:]
    assert job.is_left(one)
    directory = one.directory(one.run_names[1])
    (directory.path / "run.json").write_text(json.dumps({"settings": settings().model_dump(mode="json")}))
    directory.write_state("done", step=1)
    assert not job.is_left(one)


def test_a_job_that_is_tied_to_its_parent_ends_when_that_dies(make_job, monkeypatch):
    """Its pool is stopped, which saves what is at work."""
    reader, writer = os.pipe()
    stopped = threading.Event()

    class Waits:
        def __init__(self, **settings):
            assert settings["threads"] == 2  # of four cores, as a run has two processes

        def stop(self):
            stopped.set()

        def run(self, run_dirs, *, ended, tried_again):
            os.close(writer)
            assert stopped.wait(60)

    one = make_job(cpus=4, devices=2)
    job.begin(one)
    import_module("ablations.runs.progress")  # which would take the fake for the pool if it were imported later
    monkeypatch.setattr("ablations.runs.launch.Pool", Waits)
    with os.fdopen(reader) as pipe:
        monkeypatch.setattr("sys.stdin", pipe)
        job.work(one, 0, tied=True)
    assert stopped.is_set()


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_job_that_saves_because_it_was_asked_to_says_that_runs_are_left(make_job, is_asked, monkeypatch):
    """A further process that finds it out might start too late to put the job back into the queue."""
    one = make_job()
    job.begin(one)
    import_module("ablations.runs.progress")
    asked = [signal.SIGUSR2] * is_asked
    monkeypatch.setattr("ablations.runs.launch.Pool.run", lambda *_, **__: [signal.raise_signal(n) for n in asked])
    monkeypatch.chdir(one.folder)
    assert job.main("work", "0") == (ExitCode.INTERRUPTED if is_asked else ExitCode.DONE)


def test_each_attempt_without_progress_begins_with_another_run():
    assert [job.rotated(["a", "b", "c"], number) for number in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]
    assert job.rotated([], 5) == []


def test_a_training_on_several_nodes_that_fails_is_noted_with_the_reason_of_its_folder(make_job):
    one = make_job(nodes=2)
    one.directory(one.run_names[0]).write_state("failed", message="the loss became no number.")
    job.begin(one)
    assert job.work(one, ExitCode.INTERRUPTED)  # the requeued job trains on
    assert not job.work(one, 66)
    assert one.attempts().endings[one.run_names[0]].model_dump() == {
        "message": "the loss became no number.",
        "is_final": True,
    }


def test_a_process_that_fails_when_all_is_done_is_no_reason_to_work(make_job, monkeypatch):
    one = make_job(nodes=2)
    monkeypatch.setattr(job, "worth_trying", lambda job: [])
    job.work(one, ExitCode.FAILED)
    assert one.attempts().endings == {}


@pytest.mark.parametrize(("code", "is_final"), [(ExitCode.FAILED, True), (ExitCode.OUT_OF_MEMORY, False)])
def test_a_refused_measure_is_final_and_one_that_lacked_memory_is_not(make_job, code, is_final):
    one = make_job()
    directory = one.directory(one.run_names[0])
    directory.write_state("done", step=1)
    job.note_outcome(one, Outcome(directory.path, code, "geometry: why.", 1.5))
    assert one.attempts().endings[one.run_names[0]].is_final == is_final


def test_processes_of_jobs_import_nothing_from_the_current_folder(make_job, tmp_path):
    (tmp_path / "here.py").write_text("print('imported')")
    for command in (WORKER, job.train_command(make_job(nodes=2), threads=1)):
        options = command[1 : command.index("-m") + 1]
        done = subprocess.run([sys.executable, *options, "here"], cwd=tmp_path, capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("", f"{sys.executable}: No module named here\n")


def test_an_error_of_a_job_is_one_line_in_its_log(tmp_path):
    command = [sys.executable, "-m", "ablations.runs.places.job", "begin", "0"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        f"{tmp_path / 'array.json'} does not exist, but jobs of SLURM and Ray read it; end its jobs if any are in "
        "the queue, then start again.\n"
    )


def test_a_process_of_a_training_is_the_train_command(make_job):
    one = make_job(nodes=2, gpus=4, devices=4)
    run = RunDirectory(one.directory(one.run_names[0]).path).path
    assert job.train_command(one, threads=8)[1:] == [
        *("-P", "-m", "lightning_modules.training.train", str(run), "--nodes", "2", "--devices", "4"),
        *("--accelerator", "gpu", "--threads", "8", "--data-root", one.array.data_root),
    ]


def test_the_process_of_a_job_loads_no_torch_as_its_workers_do(make_job):
    """Each job would wait for it once more: it takes longer to load than all else that the process does."""
    one = make_job()
    code = (
        "import sys\n"
        "from ablations.runs import launch\n"
        "from ablations.runs.places import job\n"
        "launch.Pool.run = lambda pool, run_dirs, **_: print([path.name for path in run_dirs])\n"
        "job.main('begin', '0')\n"
        "job.main('work', '0')\n"
        "print(sorted({'torch', 'lightning'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=one.folder, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[1:] == [str(one.run_names), "[]"], done.stderr
