"""Faults on clusters: grids on SLURM or Ray with two nodes, whose processes, nodes and controllers are
killed.

The cluster is a real one on this machine (`clusters.py`). A seed decides the kinds of faults, the process
that each hits, and its delay after the start of a worker. What that process is doing then depends on the
cluster.
"""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.clusters import RayNodes, kill_all, printed_by, processes_below, ray_nodes, two_nodes, wait_for
from lightning_modules.files import write_json

SECONDS_OF_A_HANG = 600.0
MOST_FAULTS = 8
"""Largest number of faults of one grid."""
MOST_SECONDS = 9.0
"""Longest delay of a fault after the first worker is at work."""
COMMAND = ("kill command", "interrupt command", "second command")
WORKER = ("kill worker", "kill job", "freeze worker, kill it", "freeze worker for a while", "stop worker")
SLURM = ("requeue job", "warn job of its limit", "preempt job", "kill node", "kill controller")
RAY = ("kill process of Ray", "kill node", "kill first node")
KINDS = {"slurm": (*WORKER, *COMMAND, *SLURM), "ray": (*WORKER, *COMMAND, *RAY)}


class Fault(NamedTuple):
    """Fault: its kind, and two numbers in [0, 1) that decide its moment and its victim."""

    kind: str
    moment: float
    victim: float


def draw(rng: random.Random, place: str) -> Fault:
    """Draw a fault that can happen on a place, `slurm` or `ray`."""
    return Fault(rng.choice(KINDS[place]), rng.random(), rng.random())


class Grid:
    """Grid in a folder that runs on a cluster: its commands, and the processes of its runs."""

    def __init__(self, folder: Path, place: str, environment: dict[str, str]) -> None:
        self.folder, self.place, self.environment = folder, place, environment
        self.commands: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start `ablate run` as a user does; its output goes to the folder's output.txt."""
        command = [sys.executable, "-m", "ablations.cli", "run", str(self.folder / "faults.yaml")]
        command += ["--out", str(self.folder / "out"), "--data-root", str(self.folder)]
        command += ["--on", self.place, "--place", str(self.folder / "place.yaml")]
        with (self.folder / "output.txt").open("ab") as log:
            started = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        self.commands.append(started)

    def ended(self) -> bool:
        """Return whether all commands have ended."""
        return all(command.poll() is not None for command in self.commands)

    def processes(self, module: str) -> list[int]:
        """Return the processes of the grid that execute a module of the package, the lowest id first."""
        found = []
        for path in Path("/proc").iterdir():
            with suppress(OSError):
                words = (path / "cmdline").read_bytes().split(b"\0") if path.name.isdigit() else []
                if module.encode() in words and self.folder in (path / "cwd").readlink().parents:
                    found.append(int(path.name))
        return sorted(found)

    def workers(self) -> list[int]:
        """Return the processes that train or measure runs now."""
        return self.processes("ablations.runs.worker")


class SlurmCluster:
    """SLURM of two nodes, with its faults."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.place = {"partition": "work", "time_limit": "00:30:00", "tries": 50}
        self.folder = Path(environment["SLURM_CONF"]).parent
        self.over = threading.Event()
        self.by_hand = 0
        """Number of held jobs that were released, which docs/clusters.md leaves to people."""
        threading.Thread(target=self._look_after, daemon=True).start()

    def say(self, *command: str) -> str:
        return printed_by(self.environment, *command)

    def _look_after(self) -> None:
        """Let requeued jobs start after five seconds, and do what is otherwise left to people.

        SLURM itself waits two minutes. People release jobs that SLURM holds because their start failed, and
        take back nodes that it drained then. Every 20 seconds nodes report their jobs, as they do by
        themselves every few minutes: only then does SLURM notice a job that was about to start when its node
        died.
        """
        since: dict[str, float] = {}
        reported = time.monotonic()
        while not self.over.wait(0.5):
            with suppress(subprocess.TimeoutExpired):  # the controller is down
                if time.monotonic() - reported > 20:
                    self.say("scontrol", "reconfigure")
                    reported = time.monotonic()
                lines = self.say("squeue", "--me", "--array", "--noheader", "--format=%i %r").splitlines()
                waiting = {line.split()[0] for line in lines if line.endswith("BeginTime")}
                since = {number: since.get(number, time.monotonic()) for number in waiting}
                for number in [number for number, begin in since.items() if time.monotonic() - begin > 5]:
                    self.say("scontrol", "update", f"jobid={number}", "starttime=now")
                    since[number] = time.monotonic()
                for node in self.say("sinfo", "--noheader", "--Node", "--states=drained", "--format=%N").split():
                    self.say("scontrol", "update", f"nodename={node}", "state=resume")
                for number in [line.split()[0] for line in lines if line.endswith("requeued held")]:
                    self.say("scontrol", "release", number)
                    self.by_hand += 1

    def job_of(self, worker: int) -> str:
        """Return the id of the job to which a process belongs."""
        variables = Path(f"/proc/{worker}/environ").read_bytes().decode(errors="replace").split("\0")
        return next(word.partition("=")[2] for word in variables if word.startswith("SLURM_JOB_ID="))

    def inject(self, kind: str, worker: int) -> None:
        """Inject a fault of the cluster."""
        job = self.job_of(worker)
        match kind:
            case "requeue job":
                self.say("scontrol", "requeue", job)
            case "warn job of its limit":
                self.say("scancel", "--signal=USR2", job)
            case "preempt job":
                node = self.say("squeue", "--noheader", f"--jobs={job}", "--format=%N").strip()
                options = ("--partition=urgent", "--ntasks=2", f"--nodelist={node}", "--output=/dev/null")
                self.say("sbatch", *options, "--wrap=sleep 2")
            case "kill node":
                node = self.say("squeue", "--noheader", f"--jobs={job}", "--format=%N").strip()
                on_node = self.say("squeue", "--noheader", f"--nodelist={node}", "--format=%A").split()
                daemon = int((self.folder / f"run/slurmd-{node}.pid").read_text())
                os.kill(daemon, signal.SIGKILL)
                for step in _job_steps(on_node):
                    kill_all(processes_below(step))
                time.sleep(1)
                subprocess.run(["slurmd", "-N", node], env=self.environment, check=True, capture_output=True)
            case "kill controller":
                os.kill(int((self.folder / "run/slurmctld.pid").read_text()), signal.SIGKILL)
                time.sleep(4)
                subprocess.run(["slurmctld"], env=self.environment, check=True, capture_output=True)


def _job_steps(jobs: list[str]) -> list[int]:
    """Return the processes with which SLURM supervises the steps of jobs."""
    steps = []
    for path in Path("/proc").iterdir():
        with suppress(OSError):
            title = (path / "cmdline").read_text(errors="replace") if path.name.isdigit() else ""
            if (held := re.match(r"slurmstepd: \[(\d+)\.", title)) and held[1] in jobs:
                steps.append(int(path.name))
    return steps


class RayCluster:
    """Ray of two nodes, with its faults."""

    def __init__(self, nodes: RayNodes) -> None:
        self.nodes, self.environment = nodes, nodes.environment
        self.by_hand = 0

    @property
    def place(self) -> dict[str, Any]:
        return {"address": self.nodes.address, "tries": 50}

    def inject(self, kind: str, worker: int) -> None:
        """Inject a fault of the cluster."""
        match kind:
            case "kill process of Ray":
                kill_all([_ancestor(worker, 2, title="ray::")])
            case "kill node":
                self.nodes.stop(signal.SIGKILL)
                self.nodes.start_node()
            case "kill first node":
                while self.nodes.nodes:
                    self.nodes.stop(signal.SIGKILL)
                self.nodes.start_head()
                self.nodes.start_node()


def _ancestor(pid: int, generations: int, *, title: str) -> int:
    """Return the parent of a process, or its parent's parent, whose command line holds a title.

    Raises:
        ProcessLookupError: it has another command line. Then the ancestor has ended, and the process belongs to
            init now, which is no process of a grid.
    """
    for _ in range(generations):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    if pid <= 1 or title.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
        raise ProcessLookupError(pid)
    return pid


Cluster = SlurmCluster | RayCluster


@contextmanager
def cluster(place: str, folder: Path) -> Iterator[Cluster]:
    """Start the cluster of a place, `slurm` or `ray`, and yield it; its processes end with the block."""
    if place == "ray":
        with ray_nodes(2) as nodes:
            yield RayCluster(nodes)
        return
    with two_nodes(folder) as environment:
        made = SlurmCluster(environment)
        try:
            yield made
        finally:
            made.over.set()


def inject(fault: Fault, grid: Grid, made: Cluster) -> bool:
    """Inject a fault once a worker is at work. Return False if the grid ended before, or if no worker came in
    ten minutes. If the victim ends at that moment, another worker is taken."""
    deadline = time.monotonic() + SECONDS_OF_A_HANG
    while not (workers := grid.workers()):
        if grid.ended() or time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    time.sleep(fault.moment * MOST_SECONDS)
    if grid.ended() or not (workers := grid.workers()):
        return False
    worker = workers[int(fault.victim * len(workers))]
    try:
        if fault.kind in COMMAND:
            _hit_command(fault.kind, grid)
        elif fault.kind in WORKER:
            _hit_worker(fault.kind, worker)
        else:
            made.inject(fault.kind, worker)
    except (ProcessLookupError, FileNotFoundError):
        time.sleep(0.5)
        return inject(fault, grid, made)
    return True


def _hit_command(kind: str, grid: Grid) -> None:
    if kind == "second command":
        grid.start()
    else:
        grid.commands[-1].send_signal(signal.SIGKILL if kind.startswith("kill") else signal.SIGINT)


def _hit_worker(kind: str, worker: int) -> None:
    if kind.startswith("freeze"):
        os.kill(worker, signal.SIGSTOP)
        time.sleep(2)
        os.kill(worker, signal.SIGCONT if kind.endswith("while") else signal.SIGKILL)
    elif kind == "stop worker":
        os.kill(worker, signal.SIGTERM)
    else:
        kill_all([_ancestor(worker, 1, title="ablations"), worker] if kind == "kill job" else [worker])


def carry_out_grid(
    folder: Path,
    rng: random.Random,
    place: str,
    made: Cluster,
    check: Callable[[dict[str, Any], bool], None],
) -> list[dict[str, Any]]:
    """Train the grid of a folder through faults to its end, and return a record of each fault that happened.

    Args:
        check: function that is called when a command has ended, with the last record and whether the grid is
            done. It writes problems into the record.
    """
    grid = Grid(folder, place, dict(made.environment) | {"PYTHONPATH": str(Path(__file__).parents[1])})
    records: list[dict[str, Any]] = []
    failures = 0
    while True:
        write_json(
            folder / "place.yaml", made.place
        )  # JSON is YAML; a Ray that was started again has a new address
        begin = len(records)
        grid.commands.clear()
        grid.start()
        while len(records) < MOST_FAULTS:
            fault = draw(rng, place)
            if not inject(fault, grid, made):
                break
            records.append({"kind": fault.kind, "where": place, "moment": f"{fault.moment:.3f}"})
            if fault.kind in ("kill command", "interrupt command", "kill first node"):
                break
        if not records:
            raise RuntimeError((folder / "output.txt").read_text())
        try:
            wait_for(grid.ended, seconds=SECONDS_OF_A_HANG)
        except AssertionError:
            records[-1]["hang"] = 1
            for command in grid.commands:
                command.kill()
                command.wait()
        done = grid.commands[0].returncode == 0 and not records[-1].get("hang")
        records[-1]["by hand"] = records[-1].get("by hand", 0) + made.by_hand
        made.by_hand = 0
        check(records[-1], done)
        if done:
            return records
        # A command that ends without a fault may be started again, up to three times.
        failures = 0 if len(records) > begin else failures + 1
        if failures > 3:
            records[-1]["lost"] = 1
            records[-1]["output"] = (folder / "output.txt").read_text()[-2000:]
            return records
