"""Clusters on this machine, for tests and for faults: a SLURM of two nodes, and a Ray of one node or more.

SLURM needs Debian's packages slurm-wlm and munge, and root, but no systemd, no cgroups and no database. Ray
needs the extra [ray]. All files of a cluster are in one folder, and all its processes end with the context.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NEEDED = ("slurmctld", "slurmd", "sbatch", "munged")
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmctldPort={port}
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdTimeout=30
KillWait=3
MaxArraySize=4
GresTypes=gpu
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=2 Gres=gpu:1
PartitionName=work Nodes=n[1-2] Default=YES MaxTime=60 State=UP PriorityTier=1 GraceTime=10
PartitionName=urgent Nodes=n[1-2] MaxTime=60 State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=closed Nodes=n[1-2] MaxTime=60 State=DOWN
"""


def lacking() -> str:
    """Return what this machine lacks for SLURM, in words; empty if it lacks nothing."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if missing:
        return f"needs {', '.join(missing)} (apt-get install slurm-wlm munge)"
    return "" if os.geteuid() == 0 else "needs root, to start the daemons of SLURM"


@contextmanager
def two_nodes(folder: Path) -> Iterator[dict[str, str]]:
    """Start a SLURM with the nodes n1 and n2, and yield the environment for commands that use it."""
    for name in ("state", "spool/n1", "spool/n2", "log", "run", "munge"):
        (folder / name).mkdir(parents=True)
    first = _free_ports(3)
    host = socket.gethostname().partition(".")[0]
    text = CONFIGURATION.format(folder=folder, host=host, port=first, first=first + 1, last=first + 2)
    (folder / "slurm.conf").write_text(text)
    (folder / "gpu").touch()
    (folder / "gres.conf").write_text(f"NodeName=n[1-2] Name=gpu File={folder}/gpu\n")
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    environment = os.environ | {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
        "MASTER_ADDR": "127.0.0.1",  # the names of the nodes have no address
    }
    try:
        _start_munge(folder / "munge", environment)
        for command in (["slurmctld", "-c"], ["slurmd", "-N", "n1"], ["slurmd", "-N", "n2"]):
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=30)
        listing = ("sinfo", "-h", "-N", "-p", "work", "-o", "%T")
        wait_for(lambda: printed_by(environment, *listing).split() == ["idle"] * 2)
        yield environment
    finally:
        printed_by(environment, "scancel", "--me")
        for path in [*folder.glob("run/*.pid"), *folder.glob("munge/*.pid")]:
            with suppress(ValueError, ProcessLookupError, FileNotFoundError):
                os.kill(int(path.read_text()), signal.SIGTERM)
        for path in folder.glob("run/*.pid"):
            wait_for(lambda path=path: not path.exists())  # type: ignore[misc]


def _start_munge(folder: Path, environment: dict[str, str]) -> None:
    """Start a munge with its own key and socket."""
    key = folder / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    paths = {"key-file": key, "socket": folder / "socket", "pid-file": folder / "munged.pid"}
    paths |= {"log-file": folder / "munged.log", "seed-file": folder / "seed"}
    # Other users may read a folder of tests, which munge refuses without --force.
    command = ["munged", "--force", *(f"--{name}={path}" for name, path in paths.items())]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=30)


def _free_ports(count: int) -> int:
    """Return the first of some consecutive ports on which nobody listens, below those that the system gives
    out."""
    for first in range(17000, 20000, count):
        with suppress(OSError):
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
    raise AssertionError("no port is free")


def printed_by(environment: dict[str, str], *command: str) -> str:
    """Return the output of a SLURM command; empty if it prints nothing."""
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30).stdout


def wait_for(condition: Callable[[], object], *, seconds: float = 300) -> None:
    """Wait until a condition is true.

    Raises:
        AssertionError: the time was over before.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "this never came"
        time.sleep(0.1)


class RayNodes:
    """Ray on this machine: its nodes have two cores each, and the first node declares a GPU that does not
    exist.

    Attributes:
        environment: variables for commands that use it.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment
        self.nodes: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        return (self.folder / "ray_current_cluster").read_text().strip()

    def start_head(self) -> None:
        """Start the first node."""
        (self.folder / "ray_current_cluster").unlink(missing_ok=True)
        self._start("--head", "--port=0", "--num-gpus=1", "--include-dashboard=false", f"--temp-dir={self.folder}")

    def start_node(self) -> None:
        """Start one more node."""
        self._start(f"--address={self.address}")

    def _start(self, *options: str) -> None:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=2", *options]
        command.append("--object-store-memory=80000000")
        log = self.folder / "start.log"
        with log.open("wb") as file:
            node = subprocess.Popen(
                command,
                env=self.environment | {"RAY_AUTH_MODE": "token"},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.nodes.append(node)
        wait_for(lambda: node.poll() is not None or "Ray runtime started" in log.read_text())
        assert node.poll() is None, log.read_text()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End the node that was started last, with all its processes."""
        node = self.nodes.pop()
        if number == signal.SIGKILL:
            kill_all(processes_below(node.pid))
        with suppress(ProcessLookupError):
            os.killpg(node.pid, number)
        node.wait(60)


@contextmanager
def ray_nodes(count: int = 1) -> Iterator[RayNodes]:
    """Start a Ray of some nodes with its own token."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as name:  # sockets need short paths
        folder = Path(name)
        token = folder / "token"
        token.touch(mode=0o600)
        token.write_text("0123456789abcdef" * 4)
        variables = {"RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
        variables["RAY_worker_niceness"] = "0"  # otherwise other work on this machine starves its workers
        # Ray declares no GPU if this variable is empty.
        kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        cluster = RayNodes(folder, kept | variables | {"OMP_NUM_THREADS": "1"})
        try:
            cluster.start_head()
            for _ in range(count - 1):
                cluster.start_node()
            yield cluster
        finally:
            while cluster.nodes:
                cluster.stop()


def processes_below(pid: int) -> list[int]:
    """Return the descendants of a process, the lowest level first, and the process itself last."""
    children: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += [int(child) for child in (task / "children").read_text().split()]
    return [below for child in children for below in processes_below(child)] + [pid]


def kill_all(pids: Iterable[int]) -> None:
    """Kill processes; those that have ended are left out."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
