"""Grids in jobs of a real SLURM with two nodes on this machine; skipped where SLURM is not installed."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from click.testing import CliRunner

from ablations.cli import main
from ablations.runs.identity import create
from ablations.runs.places import arrays, slurm_queue, watch
from ablations.runs.workspace import Workspace
from benchmarks.clusters import lacking, printed_by, two_nodes, wait_for
from tests.support.cluster_grid import SPEC as GRID
from tests.support.cluster_grid import table

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(lacking()), reason=lacking() or "it is there"),
]

SPEC = GRID | {"seeds": [0, 1]}
ONE = {"arms": {"mlm": {"objective": {"kind": "masked_lm"}}}, "seeds": [0]}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    with two_nodes(tmp_path_factory.mktemp("slurm") / "nodes") as variables:
        yield variables | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def nodes(environment, monkeypatch):
    """The nodes, for commands in this process too."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    yield environment
    printed_by(environment, "scancel", "--me")
    wait_for(lambda: not queued(environment))


def queued(nodes, form="%T"):
    """What the queue says of each job."""
    return sorted(printed_by(nodes, "squeue", "--me", "--array", "--noheader", f"--format={form}").splitlines())


class Grid:
    """A spec and its output root, on the nodes."""

    def __init__(self, folder, **changes):
        folder.mkdir(exist_ok=True)
        self.out, self.spec, self.place = folder / "out", folder / "spec.yaml", folder / "place.yaml"
        self.spec.write_text(json.dumps(SPEC | changes))

    def ablate(self, verb, *options):
        return CliRunner().invoke(main, [verb, str(self.spec), "--out", str(self.out), *options])

    def on_slurm(self, **place):
        self.place.write_text(json.dumps({"partition": "work", "time_limit": "00:30:00"} | place))
        return self.ablate("run", "--on", "slurm", "--place", str(self.place))

    def at_work(self, arm):
        """Processes that train a run of an arm now."""
        states = [json.loads(path.read_text()) for path in self.out.glob(f"runs/{arm}-*/state.json")]
        return [one["pid"] for one in states if one["state"] == "running" and Path(f"/proc/{one['pid']}").exists()]


def restarted(nodes):
    """Let requeued jobs start before their two minutes are over, but not at once: SLURM takes a job that starts
    while it ends for a failed one."""
    waiting = [line.split()[0] for line in queued(nodes, "%i %r") if line.endswith("BeginTime")]
    if waiting:
        time.sleep(5)
    for number in waiting:
        printed_by(nodes, "scontrol", "update", f"jobid={number}", "starttime=now")


def test_jobs_that_are_killed_and_requeued_end_with_the_table_of_a_local_run(nodes, tmp_path):
    grid = Grid(tmp_path / "slurm'; touch canary; $(touch canary) `touch canary`")

    def disturb():
        wait_for(lambda: grid.at_work("mlm"))
        worker = grid.at_work("mlm")[0]
        its_job = int(Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[1])
        for process in (its_job, worker):  # a worker alone would be replaced in the same job
            os.kill(process, signal.SIGKILL)
        wait_for(lambda: grid.at_work("clm"))
        (clm,) = {line.split()[0] for line in queued(nodes, "%i %j") if line.endswith(names["clm"])}
        printed_by(nodes, "scancel", "--signal=USR2", clm)
        while not over.is_set():
            restarted(nodes)
            over.wait(0.2)

    names, over = {}, threading.Event()
    thread = threading.Thread(target=disturb)

    def submit(options, script, *arguments):
        names[arrays.read(script.parent)[0].run_names[0].partition("-")[0]] = arrays.job_name(script.parent)
        return queue_submit(options, script, *arguments)

    queue_submit = slurm_queue.submit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slurm_queue, "submit", submit)
        thread.start()
        # Arms of other shapes are other arrays; a job has one run, or two of them one after the other.
        done = grid.on_slurm(arms={"clm": {"runs_per_job": 2}})
    over.set()
    thread.join()
    assert done.exit_code == 0, done.output
    assert "submitted: 4 runs" in done.output
    attempts = [path.read_text().count("; to do: ") for path in grid.out.glob("grid/slurm/*/*.log")]
    assert sorted(attempts) == [1, 2, 2]  # the job of the killed run came back, and the one that was asked to save
    local = Grid(tmp_path / "local")
    assert local.ablate("run", "--slots", "2").exit_code == 0
    pd.testing.assert_frame_equal(table(grid.out), table(local.out), check_exact=True)
    assert "nothing to do: every run is trained and measured" in grid.on_slurm().output
    assert not list(tmp_path.rglob("canary"))  # nor has a shell read the name of the folder


def test_a_run_on_two_nodes_has_the_losses_of_one(nodes, tmp_path):
    short = SPEC["training"] | {"max_steps": 3, "validate_every": 3}
    two, one = Grid(tmp_path / "two", training=short, **ONE), Grid(tmp_path / "one", training=short, **ONE)
    done = two.on_slurm(nodes=2)
    assert done.exit_code == 0, done.output
    (provenance,) = two.out.glob("runs/*/provenance.json")
    assert json.loads(provenance.read_text())["devices"] == 2
    assert one.ablate("run").exit_code == 0
    logs = [next(grid.out.glob("runs/*/metrics.jsonl")).read_text().splitlines() for grid in (two, one)]
    losses = [json.loads(lines[-1])["val/loss"] for lines in logs]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)  # float32 sums in another order


def test_a_job_that_never_starts_is_explained_left_and_taken_up_again(nodes, tmp_path, monkeypatch):
    grid, pauses = Grid(tmp_path, **ONE), []

    def interrupted(seconds):
        pauses.append(seconds)
        if len(pauses) % 3 == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=time.monotonic, sleep=interrupted))
    waits = (
        "in SLURM's queue: 0 at work, 1 waiting (PartitionDown: the partition is down; wait, or choose another)"
    )
    submits, watches = grid.on_slurm(partition="closed"), grid.on_slurm(partition="closed")
    (array,) = set(queued(nodes, "%F"))
    for done in (submits, watches):
        assert done.exit_code == 130
        assert (
            "interrupted; the jobs continue, and the same command shows them again; to end them: scancel "
            f"{array}\n"
        ) in done.output
    assert waits in watches.output.splitlines()
    assert ("submitted: 1 run\n" in submits.output, "submitted" in watches.output) == (True, False)
    (job,) = queued(nodes, "%i")
    assert f"{waits} ({job}).\n" in grid.ablate("status").stdout
    here = grid.ablate("run")
    assert here.exit_code == 2
    assert here.stderr == (
        "1 job in SLURM's queue will train the same runs; add `--on slurm` to watch them, or end them with "
        f"`scancel {array}`.\n"
    )
    assert queued(nodes) == ["PENDING"]


def test_an_array_that_is_refused_takes_the_others_out_of_the_queue(nodes, tmp_path):
    grid = Grid(tmp_path)
    done = grid.on_slurm(partition="closed", arms={"clm": {"constraint": "moon"}})
    assert done.exit_code == 2
    assert done.stderr == (
        "sbatch refuses: Batch job submission failed: Invalid feature specification; nothing was submitted; "
        "change the file of --place, then start again.\n"
    )
    wait_for(lambda: queued(nodes) == [])
    assert not list(grid.out.glob("grid/slurm/*/array.json"))


def test_a_partition_that_does_not_exist_is_refused_before_anything_is_done(nodes, tmp_path):
    grid = Grid(tmp_path)
    done = grid.on_slurm(partition="wrok")
    assert done.exit_code == 2
    assert done.stderr == (
        f'{grid.place}:1:15: partition must be closed, urgent or work, but is "wrok"; did you mean work?\n'
    )
    assert not grid.out.exists()


@pytest.mark.parametrize("wrong", [{"nodes": 5}, {"arms": {"clm": {"nodes": 5, "partition": "urgent"}}}])
def test_more_nodes_than_the_partition_has_are_refused_before_anything_is_done(nodes, tmp_path, wrong):
    grid = Grid(tmp_path)
    done = grid.on_slurm(**wrong)
    assert done.exit_code == 2
    above = "arms.clm." if "arms" in wrong else ""
    column = grid.place.read_text().index("5") + 1
    assert done.stderr == (
        f"{grid.place}:1:{column}: {above}nodes must be at most 2, because the partition has no more nodes, but "
        "is 5\n"
    )
    assert not grid.out.exists()


def test_gpus_that_no_node_has_are_refused_before_anything_is_done(nodes, tmp_path):
    grid = Grid(tmp_path)
    done = grid.on_slurm(gpus=7)
    assert done.exit_code == 2
    column = grid.place.read_text().index("7") + 1
    assert done.stderr == (
        f"{grid.place}:1:{column}: gpus must be at most 1, because no node of the partition has more GPUs, but is "
        "7\n"
    )
    assert not grid.out.exists()


def test_a_run_that_another_process_trains_is_not_submitted(nodes, tmp_path):
    grid = Grid(tmp_path, **ONE)
    grid.ablate("run", "--dry-run")
    workspace = Workspace.open(grid.spec, out=grid.out, data_root=tmp_path)
    create(workspace.planned[0])
    with workspace.planned[0].directory.lock():
        done = grid.on_slurm()
    assert done.exit_code == 2
    assert done.stderr == (
        f"{workspace.planned[0].directory.path.name}: a process that is no job in the queue is using this run; "
        "wait for it or end it, then give the command again; nothing was submitted.\n"
    )
    assert queued(nodes) == []


def test_a_job_without_the_gpu_that_it_asked_for_says_so(nodes, tmp_path):
    grid = Grid(tmp_path, **ONE)
    done = grid.on_slurm(gpus=1, tries=1)
    assert done.exit_code == 1, done.output
    (run,) = grid.out.glob("runs/*-s0-*")
    sentence = (
        f"{run.name}: given up after 1 attempt without progress: the job requested 1 GPU, but torch finds 0 on "
    )
    assert f"failed: {sentence}" in done.output
    assert "; install torch with CUDA, or set gpus to 0.\n" in done.output
    assert sentence in grid.ablate("status").output
    wait_for(lambda: queued(nodes) == [])
