"""Real workers and ranks without the seconds that they import: processes forked from one that has imported."""

import multiprocessing
import os
import pkgutil
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType, SimpleNamespace

from ablations import measures, tasks


def modules_of(package: ModuleType) -> list[str]:
    return [found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]


FORK_SERVER = multiprocessing.get_context("forkserver")
FORK_SERVER.set_forkserver_preload(["ablations.runs.worker", *modules_of(measures), *modules_of(tasks), __name__])


class ForkedWorker:
    """A worker as `launch.start_process` starts one, with the part of Popen that the pool uses."""

    def __init__(self, environment):
        reader, orders = FORK_SERVER.Pipe(duplex=False)
        answers, writer = FORK_SERVER.Pipe(duplex=False)
        self._process = FORK_SERVER.Process(
            target=_serve, args=(reader, writer, dict(os.environ) | environment), daemon=True
        )
        self._process.start()
        reader.close()
        writer.close()
        self.stdin = os.fdopen(os.dup(orders.fileno()), "w", encoding="utf-8")
        self.stdout = os.fdopen(os.dup(answers.fileno()), encoding="utf-8")
        orders.close()
        answers.close()
        self.pid = self._process.pid
        self.kill = self._process.kill

    def poll(self):
        return self._process.exitcode

    returncode = property(poll)

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self, timeout=None):
        self._process.join(timeout)
        return self._process.exitcode


def _serve(orders: Connection, answers: Connection, environment: dict[str, str]) -> None:
    """Become `python -m ablations.runs.worker`, whose standard input and output are the two pipes."""
    from ablations.runs.worker import serve

    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    for pipe, standard in ((orders, 0), (answers, 1)):
        os.dup2(pipe.fileno(), standard)
        pipe.close()
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)  # a forked rank opens 0 again
    _multiply_little()
    _fork_ranks()
    serve()


def forked_training(*arguments, real_ranks=False):
    """Start `python -m lightning_modules.training.train` with arguments and return its process.

    Its ranks are forked from it, or with `real_ranks` processes that import for themselves, as a user's are.
    """
    process = FORK_SERVER.Process(target=_train, args=(arguments, real_ranks), daemon=True)
    process.start()
    return process


def _train(arguments: tuple[str, ...], real_ranks: bool) -> None:
    from lightning_modules.training.train import main

    _multiply_little()
    if not real_ranks:
        _fork_ranks()
    main(arguments)


def _multiply_little() -> None:
    """Let the yardstick of utilisation, which each process measures, take next to no time."""
    from lightning_modules.model import numerics

    numerics.SIZES["cpu"], numerics.SECONDS_OF_TRIES = 64, 0.0


def _fork_ranks() -> None:
    """Let `run_ranks` fork this process, which trains nothing itself. Other processes are started as ever."""
    from lightning_modules.training import ranks

    ranks.subprocess = SimpleNamespace(Popen=ForkedRank, PIPE=subprocess.PIPE)


class ForkedRank:
    """A rank as `run_ranks` starts one, with the part of Popen that it uses."""

    def __init__(self, command, *, env, stdin, start_new_session, pass_fds):
        assert (stdin, start_new_session) == (subprocess.PIPE, True)
        assert command[:4] == [sys.executable, "-P", "-m", "lightning_modules.training.train"]
        reader, self._standard_input = os.pipe()
        self.returncode = None
        self.pid = os.fork()
        if self.pid == 0:
            _become_rank(command[4:], env, reader, pass_fds)
        os.close(reader)

    def poll(self):
        return self._wait(os.WNOHANG)

    def _wait(self, how):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, how)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def communicate(self):
        self._wait(0)
        os.close(self._standard_input)


def _become_rank(arguments, environment, standard_input, kept):
    """Become a rank: with a session, standard input, environment and signals of its own, and the files `kept`."""
    try:
        from lightning_modules.errors import STOP_SIGNALS
        from lightning_modules.training.train import main

        for number in (signal.SIGINT, *STOP_SIGNALS):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.dup2(standard_input, 0)
        for first, last in zip((2, *sorted(kept)), (*sorted(kept), 4096), strict=True):
            os.closerange(first + 1, last)
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        os.environ.clear()
        os.environ.update(environment)
        Path("/proc/self/comm").write_text(f"rank {environment['LOCAL_RANK']}")
        main(arguments)  # which ends the process
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def ranks_of(run_dir):
    """Return the process ids of the ranks that train a run on several devices, by rank: all hold its lock."""
    ranks = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if not any(os.readlink(file) == f"{run_dir}/lock" for file in (process / "fd").iterdir()):
                continue
            forked = (process / "comm").read_text().partition("rank ")[2]
            variables = (process / "environ").read_text().split("\0")
            numbers = [forked] if forked else [word[11:] for word in variables if word.startswith("LOCAL_RANK=")]
            ranks |= {int(number): int(process.name) for number in numbers}
    return ranks
