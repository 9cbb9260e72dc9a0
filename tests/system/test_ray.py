"""Grids on a real Ray cluster of this machine; run with `make test-ray`, skipped where Ray is not installed."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.clusters import ray_nodes, wait_for
from tests.support.cluster_grid import SPEC, table
from tests.support.command_line import ablate

ROOT = Path(__file__).parents[2]
SHORT = {"max_steps": 200, "validate_every": 200}
LONGER = {"max_steps": 2500, "validate_every": 2500}  # at work when the signals come, which only mlm gets
MLM, CLM = SPEC["arms"]["mlm"], SPEC["arms"]["clm"]
GRID = SPEC | {"training": SPEC["training"] | SHORT, "arms": {"mlm": MLM | {"training": LONGER}, "clm": CLM}}
IMPATIENT = """
from ablations.cli import main
from ablations.runs.places import ray_cluster
ray_cluster.SECONDS_WITHOUT_FIRST_NODE = 2.0
main()
"""
LIMIT = 600  # seconds; a hang is a failure
pytestmark = [pytest.mark.ray, pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra [ray]")]


@pytest.fixture(scope="module")
def cluster():
    """A cluster of two nodes with two cores each, the first of which declares a GPU. It ignores SIGINT, like one
    that a script starts in the background. The last test ends it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ray_nodes(2) as nodes:
        signal.signal(signal.SIGINT, before)
        nodes.environment |= {"PYTHONPATH": str(ROOT)}
        yield nodes


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Function that waits for the local run of GRID, which begins at once, and returns its output root."""
    folder = tmp_path_factory.mktemp("local")
    spec, log = folder / "spec.yaml", folder / "printed.txt"
    spec.write_text(json.dumps(GRID))
    words = ["run", str(spec), "--out", str(folder / "out"), "--slots", "2"]
    with log.open("wb") as file:
        command = subprocess.Popen([sys.executable, "-m", "ablations.cli", *words], stdout=file, stderr=file)

    def root():
        assert command.wait(LIMIT) == 0, log.read_text()
        return folder / "out"

    yield root
    command.kill()


def heed_interrupts():
    """Let the new process heed SIGINT. Jobs that a script starts in the background ignore it, and so do theirs."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Grid:
    """A spec and its output root."""

    def __init__(self, folder, cluster, **place):
        self.environment = cluster.environment
        folder.mkdir(exist_ok=True)
        self.out, self.spec, self.place = folder / "out", folder / "spec.yaml", folder / "ray.yaml"
        self.spec.write_text(json.dumps(SPEC))
        self.place.write_text(json.dumps({"address": cluster.address} | place))
        self.log = folder / "printed.txt"

    def start(self, *program):
        """Start `ablate run --on ray` as a user does, or with other options of Python that start `ablate`."""
        where = [str(self.spec), "--out", str(self.out), "--on", "ray", "--place", str(self.place)]
        with self.log.open("wb") as log:
            command = [sys.executable, *(program or ("-m", "ablations.cli")), "run", *where]
            return subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, preexec_fn=heed_interrupts
            )

    def printed(self):
        return self.log.read_text()

    def at_work(self, arm):
        """Process that trains the run of an arm now and has logged some steps; None before."""
        for path in self.out.glob(f"runs/{arm}-*/state.json"):
            state = json.loads(path.read_text())
            log = path.with_name("metrics.jsonl")
            if state["state"] == "running" and Path(f"/proc/{state['pid']}").exists() and log.exists():
                return state["pid"]
        return None


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def test_a_grid_that_is_killed_in_several_ways_ends_with_the_table_of_a_local_run(local, cluster, tmp_path):
    """Ray's process of a run is killed, with all below it; then the command is interrupted; then it is killed."""
    grid = Grid(tmp_path / "ray", cluster)
    grid.spec.write_text(json.dumps(GRID))
    first = grid.start()
    wait_for(lambda: grid.at_work("mlm") or first.poll() is not None)
    worker = grid.at_work("mlm")
    for process in (
        parent(parent(worker)),
        parent(worker),
        worker,
    ):  # Ray's, that of the job, and that which trains
        with suppress(ProcessLookupError):  # it may have ended with the one above it
            os.kill(process, signal.SIGKILL)
    wait_for(lambda: grid.at_work("mlm") not in (None, worker) or first.poll() is not None)  # Ray began it again
    first.send_signal(signal.SIGINT)
    assert first.wait(LIMIT) == 130, grid.printed()
    messages = grid.out / "grid" / "ray" / "messages.txt"
    assert f"submitted: 2 runs; the messages of Ray are in {messages}\n" in grid.printed()
    assert "Task attempt failed" in messages.read_text()  # Ray told of the processes that were killed
    assert "Task attempt failed" not in grid.printed()
    assert grid.printed().rpartition("page: ")[0].endswith("interrupted; the same command continues from here\n")
    states = {path.parent.name[:3]: json.loads(path.read_text()) for path in grid.out.glob("runs/*/state.json")}
    assert states["mlm"]["state"] == "interrupted"
    assert states["mlm"]["saved_step"] > 0  # a minute is not over, so it was saved on request

    second = grid.start()
    wait_for(lambda: grid.at_work("mlm") or second.poll() is not None)
    trains = grid.at_work("mlm")
    second.kill()
    second.wait()
    wait_for(lambda: not Path(f"/proc/{trains}").exists())  # Ray has ended what the command had submitted
    (mlm,) = grid.out.glob("runs/mlm-*/state.json")
    assert json.loads(mlm.read_text())["state"] == "interrupted"  # and it was saved

    third = grid.start()
    assert third.wait(LIMIT) == 0, grid.printed()
    assert "task" not in grid.printed()  # no message of Ray, also not of its end
    pd.testing.assert_frame_equal(table(grid.out), table(local()), check_exact=True)


def test_a_run_on_two_nodes_goes_on_after_a_kill_and_has_the_losses_of_one(local, cluster, tmp_path):
    """A process of the second node is killed; those of the first then end too, and Ray starts all again."""
    grid = Grid(tmp_path / "two", cluster, nodes=2)
    grid.spec.write_text(json.dumps(GRID | {"arms": {"clm": CLM}}))
    first = grid.start()
    wait_for(lambda: grid.at_work("clm") or first.poll() is not None)
    begun = grid.at_work("clm")
    (second_rank,) = [pid for pid in trainers(grid.out) if pid != begun]
    os.kill(second_rank, signal.SIGKILL)
    assert first.wait(LIMIT) == 0, grid.printed()
    (provenance,) = grid.out.glob("runs/*/provenance.json")
    assert json.loads(provenance.read_text())["devices"] == 2
    (attempts,) = grid.out.glob("grid/ray/*/job-0.log")
    assert attempts.read_text().count("step 200/200") == 1
    logs = [next(out.glob("runs/clm-*/metrics.jsonl")).read_text().splitlines() for out in (grid.out, local())]
    losses = [json.loads(lines[-1])["val/loss"] for lines in logs]
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)  # float32 sums in another order, over 200 steps


def trainers(out):
    """Processes that train a run of an output root on several nodes."""
    pids = []
    for path in Path("/proc").iterdir():
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().decode().split("\0") if path.name.isdigit() else []
            if "lightning_modules.training.train" in words and any(str(out) in word for word in words):
                pids.append(int(path.name))
    return pids


def test_a_part_of_a_gpu_is_asked_for_and_a_run_that_has_none_says_so(cluster, tmp_path):
    """The cluster declares a GPU that is not there; the run has half of it, and is tried once."""
    grid = Grid(tmp_path, cluster, gpus=0.5, tries=1)
    grid.spec.write_text(json.dumps(SPEC | {"arms": {"mlm": MLM}}))
    assert grid.start().wait(LIMIT) == 1, grid.printed()
    lost = "given up after 1 attempt without progress: the job requested 1 GPU, but torch finds 0 on "
    assert grid.printed().count(lost) == 1
    status = ablate("status", grid.spec, "--out", grid.out)
    assert status.output.count(lost) == 1


def test_what_no_node_has_is_refused_before_anything_is_done(cluster, tmp_path):
    grid = Grid(tmp_path, cluster, gpus=4)
    assert grid.start().wait(LIMIT) == 2
    column = grid.place.read_text().index("4}") + 1
    assert grid.printed() == (
        f"{grid.place}:1:{column}: arm clm: a run needs 1 core, 4 GPUs, but no node has that much (2 cores, 0 "
        "GPUs; 2 cores, 1 GPU); lower the resources in the file of --place, or add a node to the cluster\n"
    )
    assert not grid.out.exists()


def test_a_first_node_that_is_lost_is_one_sentence_and_the_runs_at_work_are_saved(cluster, tmp_path):
    """All processes of the cluster are killed, so this is the last test; the same command then needs a new one."""
    address, grid = cluster.address, Grid(tmp_path, cluster)
    grid.spec.write_text(json.dumps(SPEC | {"arms": {"mlm": MLM}}))
    first = grid.start("-c", IMPATIENT)
    wait_for(lambda: grid.at_work("mlm") or first.poll() is not None)
    trains = grid.at_work("mlm")
    while cluster.nodes:
        cluster.stop(signal.SIGKILL)
    assert first.wait(LIMIT) == 2, grid.printed()
    assert grid.printed().endswith(
        f"the first node of Ray, {address}, does not answer any more (Connection refused); the runs at work are "
        "saved, so start the cluster again, then the same command.\n"
    )
    wait_for(lambda: not Path(f"/proc/{trains}").exists())
    (state,) = grid.out.glob("runs/mlm-*/state.json")
    assert json.loads(state.read_text())["state"] in ("interrupted", "running")  # by its lock it is interrupted
