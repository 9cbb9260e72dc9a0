"""Starts what is missing on a pool of slots, each a worker process with its own devices."""

import json
import os
import queue
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

from ablations.catalogue import Measure
from ablations.errors import ResultsError
from lightning_modules.config.settings import plugins_of
from lightning_modules.errors import ExitCode, FilesError
from lightning_modules.provenance import available_cores
from lightning_modules.training.run_directory import RunDirectory

WORKER = (sys.executable, "-m", "ablations.runs.worker")
SECONDS_BETWEEN_TRIES = 1.0  # at a run that another process is working on

MOST_DEATHS = 3
"""Workers that may die with a run one after the other without progress, before it is given up."""
SECONDS_AFTER_DEATH = 5.0
"""Pause of a slot after the first death of a run's worker; twice as long after each further one. Most die because
the machine is short of memory, which other runs may soon give back."""


@dataclass(frozen=True)
class Outcome:
    """End of one run: its exit code, and a sentence where there is one."""

    run_dir: Path
    code: int
    message: str | None
    seconds: float
    """That the worker was busy with it, its own start left out; 0 if it did not live to tell."""
    died: bool = False
    """Whether its worker died."""


@dataclass
class Pool:
    """`slots` workers that share the machine; one run at a time each."""

    slots: int
    devices: int
    """Processes (and GPUs, where there are any) of each run."""
    data_root: Path
    measures: Sequence[Measure]
    gpus: Sequence[str] = ()
    """Names of the GPUs as CUDA_VISIBLE_DEVICES has them; none means CPU."""
    recompute: bool = False
    """Measure also what is measured already."""
    threads: int | None = None
    """Threads of each process; None is an equal share of the cores that this process may use."""
    _stopped: threading.Event = field(default_factory=threading.Event)
    _deaths: dict[Path, tuple[int, int]] = field(default_factory=dict)
    """Of each run whose worker died: how often without progress, and its progress then."""
    _workers: list[subprocess.Popen[str]] = field(default_factory=list)
    _waiting: list[subprocess.Popen[str] | None] = field(default_factory=list)
    """Of each slot, the worker that was started before there was anything to do."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._environments = assign_devices(self.gpus, slots=self.slots, devices=self.devices)

    def __enter__(self) -> Self:
        """Start the workers: they import for seconds, in which their caller may prepare what they will do."""
        self._waiting = [self._start_worker(environment) for environment in self._environments]
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._waiting:
            if worker is not None:
                worker.kill()  # it has nothing to save
                _end(worker)

    def run(self, run_dirs: Sequence[Path], *, ended: Callable[[Outcome], None]) -> list[Outcome]:
        """Train and measure the runs; every one is tried, whatever happens to the others.

        Returns the outcomes in the order in which they ended; `ended` gets each at once. Runs not started
        when `stop` is called are left out.
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
                threads.submit(self._serve, environment, worker, todo, note)
                for environment, worker in zip(self._environments, waiting, strict=True)
            ]
            for slot in slots:
                slot.result()  # a bug in a slot is a traceback here, never a run left out in silence
        return outcomes

    def _serve(
        self,
        environment: dict[str, str],
        worker: subprocess.Popen[str] | None,
        todo: "queue.Queue[Path]",
        note: Callable[[Outcome], None],
    ) -> None:
        """One slot: give runs to a worker, start a new one when it dies."""
        try:
            while not self._stopped.is_set():
                try:
                    run_dir = todo.get_nowait()
                except queue.Empty:
                    return
                if worker is not None and worker.poll() is not None:
                    _end(worker)  # it is dead, and its pipes are still open
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
                    todo.put(run_dir)
                    self._stopped.wait(SECONDS_AFTER_DEATH * 2 ** (deaths - 1))
                else:
                    note(given_up(outcome) if outcome.died else outcome)
        finally:
            if worker is not None:
                _end(worker)

    def _count_death(self, run_dir: Path) -> int:
        """Return how many workers have died with a run since it was last saved or measured further."""
        from ablations.runs.rows import progress  # pandas, which `plan` does without

        before, progress_before = self._deaths.get(run_dir, (0, 0))
        now = progress(RunDirectory(run_dir))
        count = 1 if now > progress_before else before + 1
        self._deaths[run_dir] = count, now
        return count

    def _start_worker(self, environment: dict[str, str]) -> subprocess.Popen[str] | None:
        """A new worker, known to `stop`; none when it was called already."""
        with self._lock:
            if self._stopped.is_set():
                return None
            worker = start_process(environment)
            self._workers.append(worker)
            return worker

    def stop(self) -> None:
        """Start nothing more, and have the runs at hand saved and interrupted."""
        threading.Thread(target=self._stop).start()  # a signal handler must not wait for a lock

    def _stop(self) -> None:
        with self._lock:
            self._stopped.set()
            for worker in self._workers:
                _close_orders(worker)
                worker.send_signal(signal.SIGCONT)  # one that somebody froze could not save

    def _order(self, worker: subprocess.Popen[str], run_dir: Path) -> Outcome:
        """Have one run done, and wait for the answer."""
        assert worker.stdin is not None
        assert worker.stdout is not None
        order: dict[str, Any] = {
            "run_dir": str(run_dir),
            "data_root": str(self.data_root),
            "devices": self.devices,
            "accelerator": "gpu" if self.gpus else "cpu",
            "recompute": self.recompute,
            "threads": self.threads or threads_per_process(self.slots * self.devices),
            "measures": [settings.model_dump(mode="json") for settings in self.measures],
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
            return Outcome(run_dir, ExitCode.FAILED, how, 0.0, died=True)
        outcome = json.loads(answer)
        return Outcome(run_dir, outcome["code"], outcome["message"], outcome["seconds"])


def is_death(outcome: Outcome) -> bool:
    """Return whether a process of a run was killed, its worker or one of those that train it."""
    return outcome.died or outcome.code == ExitCode.RANK_DIED


def given_up(outcome: Outcome) -> Outcome:
    """Return how a run ended whose workers died, with a sentence; a run that is not trained keeps it."""
    message = (
        f"its worker process died {MOST_DEATHS} times without progress, at last of {outcome.message}; "
        f"{outcome.run_dir / 'log.txt'} may say why, and a machine that is short of memory needs a lower --slots."
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
        # Ctrl-C in the terminal reaches the launcher alone, which closes the workers' orders.
        start_new_session=True,
    )


def assign_devices(gpus: Sequence[str], *, slots: int, devices: int) -> list[dict[str, str]]:
    """The environment of each slot: GPUs of its own, or none where there are none.

    Where runs of one device each are more than the GPUs, they share them in turn: a small model leaves most of a
    card idle.

    Raises:
        ResultsError: runs of several devices are given more slots than there are GPUs for.
    """
    if not gpus:
        return [{} for _ in range(slots)]
    if devices == 1:
        return [{"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} for slot in range(slots)]
    if slots * devices > len(gpus):
        raise ResultsError(
            f"--slots {slots} with --devices {devices} needs {slots * devices} GPUs, but finds {len(gpus)}; "
            f"lower one of the two."
        )
    shares = [gpus[slot * devices : (slot + 1) * devices] for slot in range(slots)]
    return [{"CUDA_VISIBLE_DEVICES": ",".join(share)} for share in shares]


def visible_gpus() -> list[str]:
    """Names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES has them."""
    import torch

    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    names = listed.split(",") if listed else [str(i) for i in range(count)]
    return names[:count]


def threads_per_process(processes: int) -> int:
    """An equal share of the cores that this process may use, at least one."""
    return max(1, available_cores() // processes)


def _close_orders(worker: subprocess.Popen[str]) -> None:
    """Tell the worker that nothing more comes: it saves what it is at and ends."""
    assert worker.stdin is not None
    with suppress(BrokenPipeError):
        worker.stdin.close()


def _end(worker: subprocess.Popen[str]) -> None:
    _close_orders(worker)
    worker.wait()
    assert worker.stdout is not None
    worker.stdout.close()
