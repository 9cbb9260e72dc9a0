"""Traps: faults that happen inside the processes of a grid, each at the k-th call of a function.

The processes of the command and of its workers are forked from one that has imported everything, so that a
start is cheap. They run the real command, launcher and worker.
"""

import functools
import io
import json
import mmap
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ablations import cli
from ablations.runs import launch, worker
from lightning_modules.training.log import JsonLinesLogger, Meter

IN_PLACE: tuple[str, ...] = (
    "kill worker",
    "freeze worker, kill it",
    "freeze worker for a while",
    "second command",
)
IN_PLACE += ("second command, lock file removed", "clock jumps")
"""Faults that the command survives by itself, so that others can follow before it is started again."""
ENDS: tuple[str, ...] = (
    "kill command",
    "kill everything",
    "stop worker",
    "stop worker twice",
    "stop command",
    "interrupt command",
)
ENDS += ("freeze worker, stop command", "disk full")
DAMAGED = ("checkpoints/last.ckpt", "metrics.jsonl", "state.json", "run.json", "measures.parquet")
DAMAGES = tuple(f"{how} {name.rpartition('/')[2]}" for how in ("cut", "flip a bit of") for name in DAMAGED)
IN_COMMAND = ("kill everything", "kill command", "stop command", "interrupt command")
"""Faults that may also happen at a moment of the command itself."""
KINDS = (*IN_PLACE, *ENDS, *DAMAGES)

MOMENTS: dict[str, tuple[Any, str]] = {
    "start": (worker, "serve_one"),
    "step": (Meter, "on_train_batch_end"),
    "log": (JsonLinesLogger, "log_metrics"),
    "half a checkpoint": (torch, "save"),
    "sync": (os, "fsync"),
    "rename": (os, "replace"),
    "measure": (worker, "measure_rows"),
}
"""Functions at whose k-th call a fault happens, by the name of the moment."""


class Fault(NamedTuple):
    """Fault and its moment: call number `call`, from 1, of the function of `moment` in the process `where`."""

    kind: str
    where: str
    moment: str
    call: int
    chance: float
    """Number in [0, 1) that decides further details, such as which byte."""


class Trap:
    """Trap that injects faults into the processes of one start of the command, one after the other.

    All processes share the number of faults that have happened, and the process of each.
    """

    def __init__(self, faults: list[Fault], out: Path) -> None:
        self.faults, self.out = faults, out
        self.shared = memoryview(mmap.mmap(-1, 8 * (2 + len(faults)))).cast("q")
        self.role, self.count, self.since = "command", Counter[str](), 0
        self.fork_server = 0

    @property
    def happened(self) -> int:
        return self.shared[0]

    def due(self, moment: str) -> Fault | None:
        """Count a call in this process, and return the fault that happens now; None if there is none."""
        if self.since != self.happened:
            self.since = self.happened
            self.count.clear()
        self.count[moment] += 1
        if self.happened == len(self.faults):
            return None
        fault = self.faults[self.happened]
        return (
            fault if (fault.where, fault.moment, fault.call) == (self.role, moment, self.count[moment]) else None
        )

    def act(self, fault: Fault) -> None:
        """Let a fault happen to this process, or to the command for which it works."""
        command, mine = self.shared[1], os.getpid()
        fork_server = os.getppid() if self.role == "worker" else self.fork_server
        self.shared[2 + self.happened] = mine
        self.shared[0] += 1
        if fault.kind in DAMAGES or fault.kind == "kill everything":
            for pid in (*({command, fork_server} - {mine}), mine):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        elif fault.kind == "disk full":
            limit = int(fault.chance * 20_000)  # most bytes of a file: metrics fit, checkpoints do not
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        elif fault.kind == "clock jumps":
            jump, real = (86_400 if fault.chance < 0.5 else -86_400), time.time
            time.time = lambda: real() + jump
            for path in self.out.rglob("*"):
                with suppress(FileNotFoundError):
                    os.utime(path, (time.time(), time.time()))
        elif fault.kind == "second command, lock file removed":
            for path in self.out.glob("runs/*/lock"):
                path.unlink()
        elif fault.kind != "second command":
            for _ in range(2 if fault.kind == "stop worker twice" else 1):
                with suppress(ProcessLookupError):
                    os.kill(command if fault.kind in IN_COMMAND else mine, _signal(fault.kind))


def damage(out: Path, fault: Fault) -> dict[Path, bytes]:
    """Cut a file of a run or flip a bit of it. Return its path with its new content; empty if there is no
    such file."""
    name = next(name for name in DAMAGED if fault.kind.endswith(name.rpartition("/")[2]))
    files = sorted(path for path in out.glob(f"runs/*/{name}") if path.stat().st_size)
    if not files:
        return {}
    place = fault.chance * len(files)
    content = bytearray(files[int(place)].read_bytes())
    at = int(place % 1 * len(content))
    if fault.kind.startswith("cut"):
        del content[at:]
    else:
        content[at] ^= 1 << (at % 8)
    files[int(place)].write_bytes(content)
    return {files[int(place)]: bytes(content)}


def _signal(kind: str) -> int:
    """Return the signal that the process of a fault gets at its moment."""
    first = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "stop": signal.SIGTERM, "interrupt": signal.SIGINT}
    return first[kind.partition(" ")[0]]


def install(trap: Trap) -> None:
    """Put the trap in front of the functions of `MOMENTS`, in this process and those that it forks."""
    for moment, (owner, name) in MOMENTS.items():
        setattr(owner, name, _trapped(getattr(owner, name), moment, trap))


def _trapped(function: Callable[..., Any], moment: str, trap: Trap) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        if (fault := trap.due(moment)) is not None:
            if moment == "half a checkpoint":
                content, file = arguments
                function(content, whole := io.BytesIO())
                file.write(whole.getvalue()[: int(fault.chance * whole.tell())])
                file.flush()
                trap.act(fault)
                file.seek(0)
                file.truncate()
            else:
                trap.act(fault)
        return function(*arguments, **options)

    return called


class ForkedWorker:
    """Worker that is forked instead of started, with the part of Popen that the launcher uses."""

    server: socket.socket

    def __init__(self, environment: dict[str, str]) -> None:
        (orders, mine), (answers, theirs), (self._status, ended) = (os.pipe() for _ in range(3))
        socket.send_fds(self.server, [json.dumps(environment).encode()], [orders, theirs, ended])
        self.pid = int(self.server.recv(32))
        for descriptor in (orders, theirs, ended):
            os.close(descriptor)
        self.stdin, self.stdout = os.fdopen(mine, "w", encoding="utf-8"), os.fdopen(answers, encoding="utf-8")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(os.read(self._status, 32) or -signal.SIGKILL)
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def serve_forks(connection: socket.socket, trap: Trap) -> int:
    """Fork workers for one command until it ends, and send it the exit code of each."""
    open_statuses: dict[int, int] = {}
    ForkedWorker.server.close()
    while True:
        if select.select([connection], [], [], 0.01)[0]:
            message, descriptors, _, _ = socket.recv_fds(connection, 65536, 3)
            if not message:
                return 0
            orders, answers, ended = descriptors
            pid = os.fork()
            if pid == 0:
                for descriptor in (connection.fileno(), ended, *open_statuses.values()):
                    os.close(descriptor)
                os.setsid()
                os.dup2(orders, 0)
                os.dup2(answers, 1)
                os.close(orders)
                os.close(answers)
                os.environ |= json.loads(message)
                sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
                trap.role = "worker"
                trap.count.clear()
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                worker.serve()
                sys.stderr.flush()
                os._exit(0)
            open_statuses[pid] = ended
            os.close(orders)
            os.close(answers)
            connection.send(str(pid).encode())
        with suppress(ChildProcessError):
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                with suppress(BrokenPipeError):
                    os.write(open_statuses[pid], str(os.waitstatus_to_exitcode(status)).encode())
                os.close(open_statuses.pop(pid))


def forked(function: Callable[[], int]) -> int:
    """Run a function in a new process that ends with the code that the function returns; return the process
    id."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        code = function()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def start_command(folder: Path, trap: Trap) -> int:
    """Start `ablate run` on the grid of a folder, with its output in the folder's output.txt; return the
    process id."""

    def run() -> int:
        trap.shared[1] = trap.shared[1] or os.getpid()
        with (folder / "output.txt").open("ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        install(trap)
        ForkedWorker.server, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        trap.fork_server = forked(lambda: serve_forks(theirs, trap))
        theirs.close()
        launch.start_process = ForkedWorker  # type: ignore[assignment]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            where = ["--out", str(folder / "out"), "--data-root", str(folder)]
            cli.main(["run", str(folder / "faults.yaml"), *where])
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return forked(run)
