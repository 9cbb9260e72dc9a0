"""The processes of one run on several devices: their own port, one fate.

On one node they are started here; on several, SLURM starts them.

Lightning would start them by running the launching command again, which inside a grid starts the grid
again. Here the process that holds the run's lock starts one child a device, passes signals on, ends all
when one is lost, and never outlives them. A child whose parent dies sees its standard input close and
saves as if it had been asked to.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from lightning.pytorch.plugins.environments import SLURMEnvironment

from lightning_modules.errors import ExitCode
from lightning_modules.training.run_directory import RunDirectoryError
from lightning_modules.training.stop import StopRequest

SECONDS_TO_END = 20.0  # between asking the other ranks to end and killing them
POLL_SECONDS = 0.1
RANK_VARIABLE = "PRETRAINING_ABLATIONS_RANK"
"""Set in the processes started here; LOCAL_RANK alone may come from any launcher."""
STOPPED = (ExitCode.INTERRUPTED, -signal.SIGTERM, -signal.SIGINT)
"""Exit code of a rank that was stopped: it saved, or had not yet begun."""


def run_ranks(run_dir: Path, *, devices: int, accelerator: str, lock: int, stop: StopRequest) -> ExitCode:
    """Train a run folder on `devices` processes and return the exit code of the run.

    The code is 0 when all ranks end with 0; otherwise that of the first rank that ended with another one
    (a rank killed by a signal counts as 1, unless a later one knows better, such as NOT_FINITE).
    """
    environment = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(devices),
        "NODE_RANK": "0",
    }
    command = [sys.executable, "-m", "lightning_modules.training.train", str(run_dir)]
    command += ["--devices", str(devices), "--accelerator", accelerator]
    ranks = [
        subprocess.Popen(
            command,
            env=environment | {"LOCAL_RANK": str(rank), RANK_VARIABLE: str(rank)},
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the parent alone, which passes it on
            # The lock lives until the last holder is gone: nobody else starts while a rank still writes.
            pass_fds=(lock,),
        )
        for rank in range(devices)
    ]
    try:
        return _wait(ranks, stop)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def _wait(ranks: list[subprocess.Popen[bytes]], stop: StopRequest) -> ExitCode:
    """Wait for all ranks; pass a request to stop on; end the others when one is lost."""
    stopping, deadline = False, float("inf")
    while any(rank.poll() is None for rank in ranks):
        lost = any(rank.returncode not in (None, 0) for rank in ranks)
        if (stop.received or lost) and not stopping:
            stopping = True
            deadline = time.monotonic() + SECONDS_TO_END if lost else float("inf")
            for rank in ranks:
                rank.send_signal(signal.SIGTERM)
        if lost and deadline == float("inf"):
            deadline = time.monotonic() + SECONDS_TO_END
        if time.monotonic() > deadline:
            for rank in ranks:
                rank.kill()
        time.sleep(POLL_SECONDS)
    codes = [rank.returncode for rank in ranks if rank.returncode != 0]
    if stop.received and all(code in STOPPED for code in codes):
        return ExitCode.INTERRUPTED if codes else ExitCode.DONE
    meaningful = [ExitCode(code) for code in codes if code in set(ExitCode) and code > ExitCode.FAILED]
    return (meaningful or [ExitCode.FAILED])[0] if codes else ExitCode.DONE


def free_port() -> int:
    """Return a port that nobody listens on; each run has its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def stop_when_orphaned(stop: StopRequest) -> None:
    """Ask this process to stop as soon as its standard input closes, which it does when its parent dies."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        stop.ask()

    threading.Thread(target=watch, daemon=True).start()


def slurm_rank(*, devices: int, nodes: int) -> int:
    """Return the number of this process among those that SLURM started for a run, from 0.

    Raises:
        RunDirectoryError: SLURM started none, or other numbers of nodes and processes than those given.
    """
    expected = {"SLURM_NNODES": nodes, "SLURM_NTASKS": devices * nodes}
    if any(os.environ.get(name) != str(number) for name, number in expected.items()):
        raise RunDirectoryError(
            f"--nodes {nodes} --devices {devices} takes {devices * nodes} processes that SLURM starts on {nodes} "
            f"nodes, but this is none of them; start it with `srun --nodes={nodes} --ntasks-per-node={devices}`, "
            "or let `ablate run --on slurm` do that."
        )
    return int(os.environ["SLURM_PROCID"])


@contextmanager
def joined_ranks(*, accelerator: str) -> Iterator[None]:
    """Wait until every process that SLURM started for this run is here, and again where the block ends well.

    What the first of them wrote before is then there for all. Lightning takes over the process group.
    """
    environment = SLURMEnvironment(auto_requeue=False)
    on_gpu = accelerator != "cpu" and torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(environment.local_rank())
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"tcp://{environment.main_address}:{environment.main_port}",
        rank=environment.global_rank(),
        world_size=environment.world_size(),
    )
    dist.barrier()
    yield
    part_ranks()


def part_ranks() -> None:
    """Wait for all ranks at the end of a training that ended well, and leave the process group."""
    # Without this the gloo threads abort about one clean exit in five.
    dist.barrier()
    dist.destroy_process_group()
