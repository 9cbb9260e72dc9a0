"""Processes of one run on several devices: they share a port of their own and end together.

On one node they are started here. On several nodes SLURM, Ray or torchrun starts them.

Lightning would start them by running the launching command again, which inside a grid would start the whole
grid again. Here the process that holds the run's lock starts one child per device. It passes signals on, ends
all children when one is lost, and never leaves one behind. If the parent dies, the standard input of its
children closes; then they save and end as on request.
"""

import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments import ClusterEnvironment
from lightning.pytorch.plugins.environments import SLURMEnvironment, TorchElasticEnvironment

from lightning_modules.errors import AblationsError, ExitCode, StopRequest
from lightning_modules.training.run_directory import RunDirectoryError

SECONDS_TO_END = 20.0  # between asking the other ranks to end and killing them
TIME_TO_ANSWER = timedelta(minutes=10)
"""Time that ranks wait for another rank before they fail."""
SECONDS_TO_CONNECT = 10.0
SECONDS_TO_REACH = 120.0
"""Time that a process waits for an answer of the first process's node before it fails. A node that refuses the
connection answers: its first process may not have started yet."""
SECONDS_BEFORE_NOTICE = 60.0
"""Time after which a process that still waits for the first process says so."""
SECONDS_SUSPENDED = 60.0
"""Time after which a suspended rank is woken, if others wait for it."""
POLL_SECONDS = 0.1
RANK_VARIABLE = "PRETRAINING_ABLATIONS_RANK"
"""Environment variable of the processes started here. LOCAL_RANK alone may come from any launcher."""
STOPPED = (ExitCode.INTERRUPTED, -signal.SIGTERM, -signal.SIGINT)
"""Exit codes of a rank that was stopped: it has saved, or had not begun yet."""


class RankDiedError(AblationsError, RuntimeError):
    """Error of a training on several devices of which a process was killed.

    Training goes on from the last checkpoint.
    """

    exit_code = ExitCode.RANK_DIED


def run_ranks(
    run_dir: Path, *, data_root: Path = Path(), devices: int, accelerator: str, lock: int, stop: StopRequest
) -> ExitCode:
    """Train a run folder in `devices` processes and return the exit code of the run.

    The code is 0 if all ranks end with 0, and INTERRUPTED if the other ranks were only stopped. Otherwise it is
    the code of the failed rank with the lowest number; a code with its own meaning (such as NOT_FINITE) has
    priority over a plain FAILED.

    Raises:
        RankDiedError: a rank was killed, and not by this process. A machine that is short of memory does
            that.
    """
    # This process listens on a port from the kernel, so no other can take it before the ranks start.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(devices),
        "NODE_RANK": "0",
    }
    command = [sys.executable, "-P", "-m", "lightning_modules.training.train", str(run_dir)]
    command += ["--data-root", str(data_root.absolute())]
    command += ["--devices", str(devices), "--accelerator", accelerator]
    ranks = [
        subprocess.Popen(
            command,
            env=environment | {"LOCAL_RANK": str(rank), RANK_VARIABLE: str(rank)},
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the parent alone, which passes it on
            # The lock lasts until its last holder has ended, so nobody else starts while a rank still writes.
            pass_fds=(lock,),
        )
        for rank in range(devices)
    ]
    try:
        return _wait(ranks, stop)
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()  # waits, and closes its standard input


def _wait(ranks: list[subprocess.Popen[bytes]], stop: StopRequest) -> ExitCode:
    """Wait for all ranks and return the exit code of the run.

    Requests to stop are passed on. If one rank is lost, the others are ended.
    """
    stopping, deadline = False, float("inf")
    killed_here: set[int] = set()
    suspended: Counter[int] = Counter()
    while None in [rank.poll() for rank in ranks]:  # not any(), which would not poll every rank
        lost = any(rank.returncode not in (None, 0) for rank in ranks)
        if (stop.received or lost) and not stopping:
            stopping = True
            for rank in ranks:
                rank.send_signal(signal.SIGTERM)
                rank.send_signal(signal.SIGCONT)  # a frozen process would keep the others waiting
        if lost and deadline == float("inf"):
            deadline = time.monotonic() + SECONDS_TO_END
        if time.monotonic() > deadline:
            killed_here |= {number for number, rank in enumerate(ranks) if rank.poll() is None}
            for rank in ranks:
                rank.kill()
        _wake(ranks, suspended)
        time.sleep(POLL_SECONDS)
    died = {
        number: signal.Signals(-rank.returncode).name
        for number, rank in enumerate(ranks)
        if rank.returncode < 0 and rank.returncode not in STOPPED and number not in killed_here
    }
    codes = [rank.returncode for rank in ranks if rank.returncode != 0]
    failures = [code for code in codes if code not in STOPPED]
    if not failures or (died and stop.received):
        return ExitCode.INTERRUPTED if codes else ExitCode.DONE
    meaningful = [ExitCode(code) for code in failures if code in set(ExitCode) and code > ExitCode.FAILED]
    if died and not meaningful:
        number, name = next(iter(died.items()))
        raise RankDiedError(
            f"process {number + 1} of the {len(ranks)} that train the run was killed ({name}), probably because "
            "memory is short; lower --slots and give the command again: the run continues from its last "
            "checkpoint."
        )
    return (meaningful or [ExitCode.FAILED])[0]


def _wake(ranks: list[subprocess.Popen[bytes]], suspended: Counter[int]) -> None:
    """Resume each rank that has been suspended (SIGSTOP) for SECONDS_SUSPENDED while another rank was not.

    Args:
        suspended: by rank, the number of calls in a row that found it, and not all ranks, suspended; updated
            here.
    """
    suspended_now = [number for number, rank in enumerate(ranks) if _is_suspended(rank.pid)]
    for number in range(len(ranks)):
        suspended[number] = (
            suspended[number] + 1 if number in suspended_now and len(suspended_now) < len(ranks) else 0
        )
        # Calls count, not the clock, which goes on while this process itself is suspended.
        if suspended[number] * POLL_SECONDS >= SECONDS_SUSPENDED:
            print(
                f"process {number + 1} of the {len(ranks)} that train the run was suspended; it is resumed now",
                flush=True,
            )
            ranks[number].send_signal(signal.SIGCONT)


def _is_suspended(pid: int) -> bool:
    """Return whether a process is suspended; False where the system does not say."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


def stop_when_orphaned(stop: StopRequest) -> None:
    """Ask this process to stop as soon as its standard input closes, as it does when the parent dies."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        stop.ask()

    threading.Thread(target=watch, daemon=True).start()


def cluster_environment() -> ClusterEnvironment:
    """Return the environment of a process on one of several nodes.

    It is read from the variables of torchrun, which Ray's tasks set too, or from those of SLURM.
    """
    return TorchElasticEnvironment() if "RANK" in os.environ else SLURMEnvironment(auto_requeue=False)


def rank_of_nodes(*, devices: int, nodes: int) -> int:
    """Return the number of this process, from 0, among the processes of a run on several nodes.

    Raises:
        RunDirectoryError: this process was not started on several nodes, or with other numbers of nodes or
            processes.
    """
    by_slurm = {"SLURM_NNODES": nodes, "SLURM_NTASKS": devices * nodes}
    expected = {"WORLD_SIZE": devices * nodes} if "RANK" in os.environ else by_slurm
    if any(os.environ.get(name) != str(number) for name, number in expected.items()):
        raise RunDirectoryError(
            f"--nodes {nodes} --devices {devices} needs {devices * nodes} processes on {nodes} nodes, but this "
            f"process was not started as one of them; start it with `srun --nodes={nodes} "
            f"--ntasks-per-node={devices}` or with torchrun, or let `ablate run --on slurm` do that."
        )
    return cluster_environment().global_rank()


@contextmanager
def joined_ranks(*, accelerator: str) -> Iterator[None]:
    """Wait until every process of the run has started; wait for all again after a block without an error.

    In the block, all processes see what the first one wrote before. Lightning uses the process group made
    here.
    """
    on_gpu = accelerator != "cpu" and torch.cuda.is_available()
    store, rank, local_rank, count = _of_parent() if RANK_VARIABLE in os.environ else _of_nodes()
    if on_gpu:
        torch.cuda.set_device(local_rank)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo", store=store, rank=rank, world_size=count, timeout=TIME_TO_ANSWER
    )
    dist.barrier()
    yield
    # Without this barrier the gloo threads abort about one in five clean exits.
    dist.barrier()
    dist.destroy_process_group()


def _of_parent() -> tuple[dist.Store, int, int, int]:
    """Return store, rank, rank on this node and number of processes, in a process of `run_ranks`."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), timeout=TIME_TO_ANSWER)
    rank = int(os.environ["LOCAL_RANK"])
    return store, rank, rank, int(os.environ["WORLD_SIZE"])


def lost_rank(error: BaseException) -> RankDiedError | None:
    """Return the error of a training on several nodes of which another process ended or does not answer; None if
    the given error has another cause."""
    words = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting")
    if isinstance(error, AblationsError) or not isinstance(error, RuntimeError):
        return None
    if not isinstance(error, dist.DistError) and not any(each in str(error) for each in words):
        return None
    return RankDiedError(
        "another process of this run, on this or another node, ended or does not answer; the run continues from "
        "its last checkpoint."
    )


class AddressError(AblationsError, OSError):
    """Error of a run on several nodes whose first process has an address that another node does not know or
    cannot reach."""


def _of_nodes() -> tuple[dist.Store, int, int, int]:
    """Return store, rank, rank on this node and number of processes, on several nodes.

    The first process listens.

    Raises:
        AddressError: the address of the first process is unknown here, or does not answer. Torch would wait for
            it for a long time.
    """
    environment = cluster_environment()
    rank, count = environment.global_rank(), environment.world_size()
    process = f"process {rank + 1} of {count} on {platform.node()}"
    try:
        socket.getaddrinfo(environment.main_address, environment.main_port)
    except OSError as error:
        raise AddressError(
            f"{process} does not know the address {environment.main_address} of the first process "
            f"({error.strerror}); set MASTER_ADDR in the file of `before` to a name or number that all nodes know."
        ) from error
    if rank > 0:
        _wait_for_first(process, environment.main_address, environment.main_port)
    store = dist.TCPStore(
        environment.main_address, environment.main_port, count, is_master=rank == 0, timeout=TIME_TO_ANSWER
    )
    return store, rank, environment.local_rank(), count


def _wait_for_first(process: str, address: str, port: int) -> None:
    """Wait until the first process of a run listens.

    Raises:
        AddressError: its node did not answer for SECONDS_TO_REACH, or refused the connection for TIME_TO_ANSWER.
    """
    begin = answered = time.monotonic()
    is_said = False
    while True:
        try:
            return socket.create_connection((address, port), timeout=SECONDS_TO_CONNECT).close()
        except OSError as error:
            present, reason = time.monotonic(), error.strerror or error
            answered = present if isinstance(error, ConnectionRefusedError) else answered
        waited = f"{process} has waited {present - begin:.0f} seconds for the first process at {address}:{port}"
        remedy = "on SLURM, set MASTER_ADDR in the file of `before` to an address that all nodes reach"
        if present - answered > SECONDS_TO_REACH or present - begin > TIME_TO_ANSWER.total_seconds():
            raise AddressError(f"{waited} ({reason}); {remedy}.")
        if present - begin > SECONDS_BEFORE_NOTICE and not is_said:
            is_said = True
            print(f"{waited} ({reason}) and waits on; if this does not end, {remedy}", file=sys.stderr, flush=True)
        time.sleep(POLL_SECONDS)
