"""Pool of slots in which runs are trained and measured, each a worker process with its own devices."""

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from ablations.catalogue import Measure, plain_measures
from ablations.errors import ResultsError
from lightning_modules.config.settings import plugins_of
from lightning_modules.errors import ExitCode, FilesError
from lightning_modules.provenance import available_cores
from lightning_modules.training.run_directory import RunDirectory

WORKER = (sys.executable, "-P", "-m", "ablations.runs.worker")
"""Command of a worker. Without -P, a file of the current folder, such as queue.py, would be imported in the
place of an installed module."""
SECONDS_BETWEEN_TRIES = 1.0  # if another process is working on the run

MOST_DEATHS = 3
"""Number of deaths of a run's workers, without progress between them, after which the run is given up."""
SECONDS_AFTER_DEATH = 5.0
"""Pause of a slot after the first death of a run's worker; each further death doubles it. Most workers die
because memory is short, and other runs may soon free some."""


@dataclass(frozen=True)
class Outcome:
    """End of a run: its exit code, and a message if there is one."""

    run_dir: Path
    code: int
    message: str | None
    seconds: float
    """Seconds that the worker spent on the run, without its own start; 0 if it gave no answer."""
    died: bool = False
    """Whether its worker died."""
    in_one_go: bool = False
    """Whether the worker did the whole run, from its first step to its last measure."""


@dataclass
class Pool:
    """Pool of `slots` workers that share the machine; each has one run at a time."""

    slots: int
    devices: int
    """Number of processes (and GPUs, if there are any) of each run."""
    data_root: Path
    measures: Sequence[Measure]
    gpus: Sequence[str] = ()
    """Names of the GPUs, as in CUDA_VISIBLE_DEVICES; none means CPU."""
    recompute: bool = False
    """Whether measures that are done are computed again."""
    threads: int | None = None
    """Number of threads of each process; None is an equal share of the cores that this process may use."""
    _stopped: threading.Event = field(default_factory=threading.Event)
    _deaths: dict[Path, tuple[int, int]] = field(default_factory=dict)
    """Number of deaths of a run's workers since its last progress, and its progress then, by the run's
    folder."""
    _workers: list[subprocess.Popen[str]] = field(default_factory=list)
    _waiting: list[subprocess.Popen[str] | None] = field(default_factory=list)
    """For each slot, the worker that was started before there was anything to do."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._environments = assign_devices(self.gpus, slots=self.slots, devices=self.devices)

    def __enter__(self) -> Self:
        """Start the workers. They import for seconds, in which the caller can prepare the runs."""
        self._waiting = [self._start_worker(environment) for environment in self._environments]
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._waiting:
            if worker is not None:
                worker.kill()  # it has nothing to save
                _end(worker)

    def run(
        self,
        run_dirs: Sequence[Path],
        *,
        ended: Callable[[Outcome], None],
        tried_again: Callable[[str], None] = lambda sentence: None,
    ) -> list[Outcome]:
        """Train and measure the runs; all are tried, even if some fail.

        Returns the outcomes in the order in which the runs ended. Runs that were not started when `stop` is
        called are left out.

        Args:
            ended: called with each outcome at once.
            tried_again: called with a sentence when a process of a run has died and the run is tried again.
        """
        todo: queue.Queue[Path] = queue.Queue()
        for run_dir in run_dirs:
            todo.put(run_dir)
        outcomes: list[Outcome] = []
        lock = threading.Lock()

        def note(outcome: Outcome) -> None:
            with lock:
                outcomes.append(outcome)
                ended(outcome)

        with ThreadPoolExecutor(self.slots) as threads:
            waiting, self._waiting = self._waiting or [None] * self.slots, []
            slots = [
                threads.submit(self._serve, environment, worker, todo, note, tried_again)
                for environment, worker in zip(self._environments, waiting, strict=True)
            ]
            for slot in slots:
                slot.result()  # raises the error of a slot, so that no run is left out silently
        return outcomes

    def _serve(
        self,
        environment: dict[str, str],
        worker: subprocess.Popen[str] | None,
        todo: "queue.Queue[Path]",
        note: Callable[[Outcome], None],
        tried_again: Callable[[str], None],
    ) -> None:
        """Serve one slot: give runs to its worker, and start a new worker if it dies."""
        try:
            while not self._stopped.is_set():
                try:
                    run_dir = todo.get_nowait()
                except queue.Empty:
                    return
                if worker is not None and worker.poll() is not None:
                    _end(worker)  # it is dead, but its pipes are still open
                    worker = None
                if worker is None:
                    worker = self._start_worker(environment)
                if worker is None:
                    return
                outcome = self._order(worker, run_dir)
                if outcome.code == ExitCode.BUSY:
                    todo.put(run_dir)
                    time.sleep(SECONDS_BETWEEN_TRIES)
                elif is_death(outcome) and (deaths := self._count_death(run_dir)) < MOST_DEATHS:
                    tried_again(early_end(outcome))
                    todo.put(run_dir)
                    self._stopped.wait(SECONDS_AFTER_DEATH * 2 ** (deaths - 1))
                else:
                    note(given_up(outcome) if outcome.died else outcome)
        finally:
            if worker is not None:
                _end(worker)

    def _count_death(self, run_dir: Path) -> int:
        """Count the death of a run's worker; returns the number of deaths since the run's last progress."""
        from ablations.runs.rows import progress  # imports pandas, which `plan` does not need

        before, progress_before = self._deaths.get(run_dir, (0, 0))
        progress_now = progress(RunDirectory(run_dir))
        count = 1 if progress_now > progress_before else before + 1
        self._deaths[run_dir] = count, progress_now
        return count

    def _start_worker(self, environment: dict[str, str]) -> subprocess.Popen[str] | None:
        """Return a new worker, which `stop` will end; None if `stop` was called already."""
        with self._lock:
            if self._stopped.is_set():
                return None
            worker = start_process(environment)
            self._workers.append(worker)
            return worker

    def stop(self) -> None:
        """Start no more runs, and interrupt those at work, which are saved first."""
        threading.Thread(target=self._stop).start()  # a signal handler must not wait for a lock

    def _stop(self) -> None:
        with self._lock:
            self._stopped.set()
            for worker in self._workers:
                _close_orders(worker)
                worker.send_signal(signal.SIGCONT)  # wakes a suspended worker, which could not save

    def _order(self, worker: subprocess.Popen[str], run_dir: Path) -> Outcome:
        """Send a worker the order for one run, and wait for its answer."""
        assert worker.stdin is not None
        assert worker.stdout is not None
        order: dict[str, Any] = {
            "run_dir": str(run_dir),
            "data_root": str(self.data_root),
            "devices": self.devices,
            "accelerator": "gpu" if self.gpus else "cpu",
            "recompute": self.recompute,
            "threads": self.threads or threads_per_process(self.slots * self.devices),
            "measures": plain_measures(self.measures),
            "plugins": plugins_of(self.measures),
        }
        try:
            worker.stdin.write(json.dumps(order) + "\n")
            worker.stdin.flush()
            answer = worker.stdout.readline()
        except (BrokenPipeError, ValueError):  # it died, or its orders were closed by `stop`
            answer = ""
        if not answer:
            code = worker.wait()
            if self._stopped.is_set():
                return Outcome(run_dir, ExitCode.INTERRUPTED, None, 0.0)
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            if -code == signal.SIGXCPU:
                how += " (its processor time was used up; raise the limit, ulimit -t)"
            return Outcome(run_dir, ExitCode.FAILED, how, 0.0, died=True)
        outcome = json.loads(answer)
        return Outcome(run_dir, **{name: outcome[name] for name in ("code", "message", "seconds", "in_one_go")})


def is_death(outcome: Outcome) -> bool:
    """Return whether a process of a run died: its worker, or one of those that train it."""
    return outcome.died or outcome.code == ExitCode.RANK_DIED


def early_end(outcome: Outcome) -> str:
    """Return a sentence on a run that is tried again because one of its processes died."""
    died = f"its worker process ended with {outcome.message}; the run continues from its last checkpoint."
    return f"an attempt ended early: {outcome.run_dir.name}: {died if outcome.died else outcome.message}"


def given_up(outcome: Outcome) -> Outcome:
    """Return the outcome of a run that is given up because its workers died, with a message. The state of an
    untrained run gets the message too."""
    log = outcome.run_dir / "log.txt"  # there is none if the workers died before they began
    read = f"read {log}" if log.exists() else "read what they printed above"
    message = (
        f"its worker process died {MOST_DEATHS} times without progress, the last time of {outcome.message}; "
        f"{read}, and lower --slots if the machine is short of memory."
    )
    directory = RunDirectory(outcome.run_dir)
    if not directory.is_trained():
        with suppress(FilesError):  # a full disk
            directory.write_state("failed", message=message, exit_code=int(outcome.code))
    return replace(outcome, message=message)


def start_process(environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start a worker that reads orders from its standard input and answers on its standard output."""
    return subprocess.Popen(
        WORKER,
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Ctrl-C in the terminal must reach the launcher alone, which then stops the workers.
        start_new_session=True,
    )


def assign_devices(gpus: Sequence[str], *, slots: int, devices: int) -> list[dict[str, str]]:
    """Return the environment variables of each slot, which name its GPUs; empty if there are no GPUs.

    If each run has one device and there are more slots than GPUs, the slots share them in turn: a small model
    leaves most of a GPU idle.

    Raises:
        ResultsError: each run has several devices, and there are too few GPUs for all slots.
    """
    if not gpus:
        return [{} for _ in range(slots)]
    if devices == 1:
        return [{"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} for slot in range(slots)]
    if slots * devices > len(gpus):
        raise ResultsError(
            f"--slots {slots} with --devices {devices} needs {slots * devices} GPUs, but this machine has "
            f"{len(gpus)}; lower one of the two."
        )
    shares = [gpus[slot * devices : (slot + 1) * devices] for slot in range(slots)]
    return [{"CUDA_VISIBLE_DEVICES": ",".join(share)} for share in shares]


def visible_gpus() -> list[str]:
    """Return the names of the GPUs that this process may use, as in CUDA_VISIBLE_DEVICES."""
    import torch

    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    names = listed.split(",") if listed else [str(i) for i in range(count)]
    return names[:count]


def threads_per_process(processes: int) -> int:
    """Return an equal share of the cores that this process may use, at least one and at most OMP_NUM_THREADS.

    Threads of one process wait for each other after every operation. Beside other busy processes, two threads
    can be many times slower than one, so a user may want fewer than the share.
    """
    share = max(1, available_cores() // processes)
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(share, int(limit)) if re.fullmatch(r"[1-9][0-9]{0,5}", limit) else share


def _close_orders(worker: subprocess.Popen[str]) -> None:
    """Close the orders of a worker, so that it saves its current run and ends."""
    assert worker.stdin is not None
    with suppress(BrokenPipeError):
        worker.stdin.close()


def _end(worker: subprocess.Popen[str]) -> None:
    _close_orders(worker)
    worker.wait()
    assert worker.stdout is not None
    worker.stdout.close()
