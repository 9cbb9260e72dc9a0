"""Real workers without the seconds that they import: processes forked from a server that has imported already."""

import multiprocessing
import os
import pkgutil
import sys
from multiprocessing.connection import Connection
from types import ModuleType

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
    sys.stdin = os.fdopen(0, encoding="utf-8")
    serve()


def forked_training(*arguments):
    """Start `python -m lightning_modules.training.train` with arguments and return its process."""
    process = FORK_SERVER.Process(target=_train, args=arguments, daemon=True)
    process.start()
    return process


def _train(*arguments: str) -> None:
    from lightning_modules.training.train import main

    main(arguments)
