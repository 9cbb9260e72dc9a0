"""Grids in jobs of a real SLURM with two nodes on this machine; skipped where SLURM is not installed."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from tests.support import slurm_nodes
from tests.support.slurm_nodes import said, two_nodes, wait_for

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(bool(slurm_nodes.lacking()), reason=slurm_nodes.lacking() or "it is there")

SPEC = {
    "name": "grid",
    "version": 1,
    "data": {"kind": "language", "train": 600, "validation": 200, "test": 10, "vocab_size": 300},
    "encoder": {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "dropout": 0},
    "training": {"max_steps": 2000, "tokens_per_step": 128, "validate_every": 2000},
    "arms": {"mlm": {"objective": {"kind": "masked_lm"}}, "clm": {"objective": {"kind": "causal_lm"}}},
    "seeds": [0, 1],
    "measures": ["validation"],
}
ONE = {"arms": {"mlm": {"objective": {"kind": "masked_lm"}}}, "seeds": [0]}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with two_nodes(tmp_path_factory.mktemp("slurm") / "nodes") as environment:
        yield environment | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


class Grid:
    """A spec and its output root, on the nodes."""

    def __init__(self, folder, nodes, **changes):
        self.nodes, self.out = nodes, folder / "out"
        self.spec, self.place = folder / "spec.yaml", folder / "place.yaml"
        self.spec.write_text(json.dumps(SPEC | changes))

    def command(self, verb, *options):
        return [sys.executable, "-m", "ablations.cli", verb, str(self.spec), "--out", str(self.out), *options]

    def on_slurm(self, *options, **place):
        self.place.write_text(json.dumps({"partition": "work", "time_limit": "00:30:00"} | place))
        return self.command("run", "--on", "slurm", "--place", str(self.place), *options)

    def call(self, command):
        return subprocess.run(command, env=self.nodes, capture_output=True, text=True, timeout=110)

    @contextmanager
    def started(self, command):
        """The command at work; it is interrupted if it does not end in the block."""
        process = subprocess.Popen(
            command, env=self.nodes, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)

    def states(self):
        return {path.parent.name: json.loads(path.read_text()) for path in self.out.glob("runs/*/state.json")}

    def at_work(self):
        """Processes that train now, by the name of the run's folder."""
        steps = {name: state for name, state in self.states().items() if state["state"] == "running"}
        return {name: state["pid"] for name, state in steps.items() if Path(f"/proc/{state['pid']}").exists()}

    def queued(self):
        return sorted(said(self.nodes, "squeue", "--me", "-r", "-h", "-o", "%T").split())

    def restart(self):
        """Let requeued jobs start before their two minutes are over, but not at once: SLURM takes a job that
        starts while it ends for a failed one."""
        for job in said(self.nodes, "squeue", "--me", "-r", "-h", "-t", "PD", "-o", "%i %r").splitlines():
            number, reason = job.split(maxsplit=1)
            if reason == "BeginTime":
                os.sync()
                subprocess.run(["sleep", "5"], check=True)
                said(self.nodes, "scontrol", "update", f"jobid={number}", "starttime=now")


def table(out):
    """The table of an experiment, its rows in one order."""
    rows = pd.read_parquet(out / "grid" / "results.parquet")
    keys = ["arm", "seed", "measure", "metric", "group", "step"]
    return rows.drop(columns="left_out", errors="ignore").sort_values(keys, ignore_index=True)


def test_jobs_that_are_killed_and_requeued_end_with_the_table_of_a_local_run(nodes, tmp_path):
    grid = Grid(tmp_path, nodes)
    # Arms of other shapes are other arrays; a job has one run, or two of them one after the other.
    command = grid.on_slurm(arms={"clm": {"runs_per_job": 2}})
    with grid.started(command) as process:
        wait_for(lambda: any(name.startswith("mlm") for name in grid.at_work()))
        os.kill(next(pid for name, pid in grid.at_work().items() if name.startswith("mlm")), signal.SIGKILL)
        wait_for(lambda: any(name.startswith("clm") for name in grid.at_work()))
        clm = said(nodes, "squeue", "--me", "-r", "-h", "-t", "R", "-o", "%i").split()[-1]
        said(nodes, "scancel", "--signal=USR2", clm)
        while process.poll() is None:
            grid.restart()
            subprocess.run(["sleep", "0.2"], check=True)
        output = process.stdout.read()
        assert process.returncode == 0, output
    assert "submitted: 4 runs" in output
    assert len(list(grid.out.glob("grid/slurm/*/array.json"))) == 2
    attempts = [path.read_text().count("; to do: ") for path in grid.out.glob("grid/slurm/*/*.log")]
    assert sorted(attempts) == [1, 2, 2]  # the job of the killed run came back, and the one that was asked to save
    local = Grid(tmp_path, nodes)
    local.out = tmp_path / "local"
    done = local.call(local.command("run", "--slots", "2"))  # a thread each, as a job of one core has
    assert done.returncode == 0, done.stderr
    pd.testing.assert_frame_equal(table(grid.out), table(local.out), check_exact=True)
    nothing = grid.call(command)
    assert "nothing to do: every run is trained and measured" in nothing.stdout


def test_a_run_on_two_nodes_has_the_losses_of_one(nodes, tmp_path):
    short = SPEC["training"] | {"max_steps": 3, "validate_every": 3}
    grid = Grid(tmp_path, nodes, training=short, **ONE)
    done = grid.call(grid.on_slurm(nodes=2))
    assert done.returncode == 0, done.stdout + done.stderr
    (provenance,) = grid.out.glob("runs/*/provenance.json")
    assert json.loads(provenance.read_text())["devices"] == 2
    local = Grid(tmp_path, nodes, training=short, **ONE)
    local.out = tmp_path / "local"
    assert local.call(local.command("run")).returncode == 0
    (two,), (one,) = ([*out.glob("runs/*/metrics.jsonl")] for out in (grid.out, local.out))
    losses = [[json.loads(line).get("val/loss") for line in path.read_text().splitlines()] for path in (two, one)]
    assert losses[0][-1] == pytest.approx(losses[1][-1], abs=1e-5)  # float32 sums in another order


def test_a_job_that_never_starts_is_explained_left_and_taken_up_again(nodes, tmp_path):
    grid = Grid(tmp_path, nodes, **ONE)
    waits = (
        "in SLURM's queue: 0 at work, 1 waiting (PartitionDown: the partition is down; wait, or choose another)"
    )
    for attempt in ("submits", "watches"):
        with grid.started(grid.on_slurm(partition="closed")) as process:
            lines = iter(process.stdout.readline, "")
            assert any(line.strip() == waits for line in lines), attempt
            process.send_signal(signal.SIGINT)
            output = process.stdout.read()
            assert process.wait() == 130
        (name,) = (path.parent.name for path in grid.out.glob("grid/slurm/*/array.json"))
        assert (
            "interrupted; the jobs go on, and the same command shows them again; to end them: scancel "
            f"--name=grid-{name}\n"
        ) in output
        assert grid.queued() == ["PENDING"]
    (job,) = said(nodes, "squeue", "--me", "-r", "-h", "-o", "%i").split()
    assert f"{waits} ({job}).\n" in grid.call(grid.command("status")).stdout
    here = grid.call(grid.command("run"))
    assert here.returncode == 2
    assert here.stderr == (
        "1 job in SLURM's queue will train runs that are asked for here; add `--on slurm` to watch them, or end "
        f"them with `scancel --name=grid-{name}`.\n"
    )
    said(nodes, "scancel", "--me")


def test_an_array_that_is_refused_takes_the_others_out_of_the_queue(nodes, tmp_path):
    grid = Grid(tmp_path, nodes)
    done = grid.call(grid.on_slurm(partition="closed", arms={"clm": {"constraint": "moon"}}))
    assert done.returncode == 2
    assert done.stderr == (
        "sbatch refuses: Batch job submission failed: Invalid feature specification; nothing was submitted; "
        "change the file of --place, then start again.\n"
    )
    assert grid.queued() == []
    assert not list(grid.out.glob("grid/slurm/*/array.json"))


def test_a_partition_that_does_not_exist_is_refused_before_anything_is_done(nodes, tmp_path):
    grid = Grid(tmp_path, nodes)
    done = grid.call(grid.on_slurm(partition="wrok"))
    assert done.returncode == 2
    assert done.stderr == (f'{grid.place}: partition must be closed or work, but is "wrok"; did you mean work?\n')
    assert not grid.out.exists()


def test_a_job_without_the_gpu_that_it_asked_for_says_so(nodes, tmp_path):
    grid = Grid(tmp_path, nodes, **ONE)
    done = grid.call(grid.on_slurm(gpus=1, tries=1))
    assert done.returncode == 1
    (run,) = grid.out.glob("runs/*")
    sentence = (
        f"{run.name}: given up after 1 attempt without progress: the job asked for 1 GPU, but torch finds 0 on "
    )
    assert f"failed: {sentence}" in done.stdout
    assert "; install a torch with CUDA, or set gpus to 0.\n" in done.stdout
    assert sentence in grid.call(grid.command("status")).stdout
    assert grid.queued() == []
