"""A SLURM of two nodes on this machine, for tests: no systemd, no cgroups, no database.

Debian's packages slurm-wlm and munge are enough. All files lie in one folder; all processes end with the context.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
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
SlurmdTimeout=30
KillWait=3
MaxArraySize=4
GresTypes=gpu
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=2 Gres=gpu:1
PartitionName=work Nodes=n[1-2] Default=YES MaxTime=60 State=UP
PartitionName=closed Nodes=n[1-2] MaxTime=60 State=DOWN
"""


def lacking():
    """Return what this machine lacks for it; empty where it has all."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if missing:
        return f"needs {', '.join(missing)} (apt-get install slurm-wlm munge)"
    return "" if os.geteuid() == 0 else "needs root, to start the daemons of SLURM"


@contextmanager
def two_nodes(folder):
    """Start the nodes n1 and n2; yields the environment of commands that are to use them."""
    folder = Path(folder)
    for name in ("state", "spool/n1", "spool/n2", "log", "run", "munge"):
        (folder / name).mkdir(parents=True)
    first = free_ports(3)
    host = socket.gethostname().partition(".")[0]
    text = CONFIGURATION.format(folder=folder, host=host, port=first, first=first + 1, last=first + 2)
    (folder / "slurm.conf").write_text(text)
    (folder / "gpu").touch()
    (folder / "gres.conf").write_text(f"NodeName=n[1-2] Name=gpu File={folder}/gpu\n")
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    environment = os.environ | {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
        "MASTER_ADDR": "127.0.0.1",  # the names of the nodes lead nowhere
    }
    try:
        start_munge(folder / "munge", environment)
        for command in (["slurmctld", "-c"], ["slurmd", "-N", "n1"], ["slurmd", "-N", "n2"]):
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=30)
        wait_for(lambda: said(environment, "sinfo", "-h", "-N", "-p", "work", "-o", "%T").split() == ["idle"] * 2)
        yield environment
    finally:
        said(environment, "scancel", "--me")
        for path in [*folder.glob("run/*.pid"), *folder.glob("munge/*.pid")]:
            with suppress(ValueError, ProcessLookupError, FileNotFoundError):
                os.kill(int(path.read_text()), signal.SIGTERM)
        for path in folder.glob("run/*.pid"):
            wait_for(lambda path=path: not path.exists())


def start_munge(folder, environment):
    """Start a munge with a key and a socket of its own."""
    key = folder / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    paths = {"key-file": key, "socket": folder / "socket", "pid-file": folder / "munged.pid"}
    paths |= {"log-file": folder / "munged.log", "seed-file": folder / "seed"}
    # A folder of tests may be open to others, which munge refuses without --force.
    command = ["munged", "--force", *(f"--{name}={path}" for name, path in paths.items())]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=30)


def free_ports(count):
    """Return the first of some ports, one after the other, that nobody listens on, below those that are given
    out."""
    for first in range(17000, 20000, count):
        with suppress(OSError):
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
    raise AssertionError("no port is free")


def said(environment, *command):
    """Return what a command of SLURM prints; nothing where it fails."""
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30).stdout


def wait_for(condition, *, seconds=300):
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "this never came"
        time.sleep(0.1)
