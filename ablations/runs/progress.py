"""Training and measuring of missing runs on this machine, with a display of their progress."""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ablations.catalogue import distance_settings
from ablations.errors import MeasureError
from ablations.runs.calibration import Calibration, longest_first
from ablations.runs.identity import PlannedRun, create
from ablations.runs.launch import Outcome, Pool, threads_per_process, visible_gpus
from ablations.runs.terminal import duration
from ablations.runs.workspace import Workspace
from ablations.wording import GOES_ON, printable, several
from lightning_modules.errors import AblationsError, CheckpointError, DataError, ExitCode, OutOfMemoryError
from lightning_modules.files import require_writable
from lightning_modules.training.run_directory import RunDirectoryError, RunState

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_BETWEEN_LINES = 30.0  # where the output is no terminal

LOG_END = 16_384
"""Bytes at the end of a run's log in which its current measure is looked for."""


def carry_out(
    workspace: Workspace, items: Sequence[PlannedRun], *, devices: int, slots: int, recompute: bool = False
) -> tuple[bool, list[Outcome]]:
    """Train and measure runs on this machine. Runs with the same identity are trained once. With `recompute`,
    measures that are done are computed again.

    Raises:
        SpecError: the text is unfit; found before the first run starts.
        FilesError: the output root cannot be written to.
    """
    require_writable(workspace.out)  # before anything is started that would have nowhere to write
    console = Console(markup=False, highlight=False, emoji=False)  # a reason may hold [brackets]
    todo = longest_first(items)
    with Pool(
        slots=max(1, min(slots, len(todo))),
        devices=devices,
        data_root=workspace.data_root,
        measures=workspace.experiment.measures,
        gpus=visible_gpus(),
        recompute=recompute,
    ) as pool:
        from ablations.runs.prepare import prepare_text  # imports torch, while the workers do too

        prepare_text(workspace, items, console)
        workspace.write_plan()
        todo = workspace.make_run_folders(todo)
        signalled, outcomes = _through(workspace, pool, todo, console)
    failed = say_failed(outcomes, console)
    interrupted = signalled or any(outcome.code == ExitCode.INTERRUPTED for outcome in outcomes)
    if interrupted:
        console.print(GOES_ON, style="yellow")
    return interrupted, failed


def say_failed(outcomes: Sequence[Outcome], console: Console) -> list[Outcome]:
    """Print how many runs failed, and return their outcomes. `display` has printed the reasons already."""
    failed = [outcome for outcome in outcomes if is_failed(outcome)]
    if failed:
        console.print(
            f"{len(failed)} of {several(len(outcomes), 'run')} failed, for the reasons above",
            style="red",
            soft_wrap=True,
        )
    return failed


def is_failed(outcome: Outcome) -> bool:
    """Return whether a run ended neither done nor interrupted."""
    return outcome.code not in (ExitCode.DONE, ExitCode.INTERRUPTED)


def _through(
    workspace: Workspace, pool: Pool, todo: Sequence[PlannedRun], console: Console
) -> tuple[bool, list[Outcome]]:
    """Run everything in the pool with a display, and record how long runs took that were done in one go.

    Returns whether a signal came, and the outcomes of all runs that ended.
    """
    by_path = {item.directory.path: item for item in todo}
    threads = None if pool.gpus else pool.devices * threads_per_process(pool.slots * pool.devices)
    with stopped_by_signals(pool) as signalled, display(todo, console) as show_end:

        def ended(outcome: Outcome) -> None:
            item = by_path[outcome.run_dir]
            if outcome.in_one_go:
                with suppress(AblationsError):  # an estimate that cannot be kept is no reason to stop
                    Calibration(workspace.out).note_run(
                        item,
                        workspace.experiment.measures,
                        threads=threads,
                        training_seconds=item.directory.state().seconds or 0.0,
                        wall_seconds=outcome.seconds,
                    )
            show_end(item, outcome)

        def tried_again(sentence: str) -> None:
            console.print(printable(sentence), highlight=False, soft_wrap=True)

        outcomes = pool.run(list(by_path), ended=ended, tried_again=tried_again)
    return signalled.is_set(), outcomes


def compare_runs(workspace: Workspace, *, recompute: bool = False) -> bool:
    """Compute the missing distances between runs, or all with `recompute`. Returns False, after a message, if
    they cannot be computed."""
    from ablations.runs import measure_pairs

    console = Console(markup=False, highlight=False, emoji=False)  # a reason may hold [brackets]
    settings = distance_settings(workspace.experiment.measures)
    assert settings is not None, "nobody asked for distances between runs"

    items = workspace.readable()
    for item in items:
        if item.directory.is_done():
            create(item)  # with the present places of its files
    try:
        measure_pairs.compare(
            workspace.folder,
            items,
            settings,
            data_root=workspace.data_root,
            say=console.print,
            recompute=recompute,
        )
    except (MeasureError, CheckpointError, DataError, OutOfMemoryError, RunDirectoryError) as error:
        console.print(f"failed: run_distance: {error}", style="red", soft_wrap=True)
        return False
    return True


@contextmanager
def stopped_by_signals(
    pool: Pool, signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM)
) -> Iterator[threading.Event]:
    """Stop the pool if a signal comes while the block runs; runs at work are saved. Yields an event that the
    signal sets."""
    signalled = threading.Event()

    def stop(number: int, frame: Any) -> None:
        signalled.set()
        pool.stop()

    before = {number: signal.signal(number, stop) for number in signals}
    try:
        yield signalled
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def display(items: Sequence[PlannedRun], console: Console) -> Iterator[Any]:
    """Show the progress of runs while the block runs. Yields the function to call with a run and its outcome
    when it ends.

    A terminal shows a bar for each run at work. Other outputs get plain lines, even if colours are asked for.
    """
    watch = _Bars(items, console) if console.file.isatty() else _Lines(items, console)
    over = threading.Event()

    def look() -> None:
        while not over.wait(SECONDS_BETWEEN_LOOKS):
            with suppress(AblationsError, OSError):  # a folder that cannot be read now is shown at a later look
                watch.look()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield watch.ended
    finally:
        over.set()
        thread.join()
        watch.close()


class _Watch:
    """Base class of the displays: progress of runs, read from their folders."""

    def __init__(self, items: Sequence[PlannedRun], console: Console) -> None:
        self.console, self.started = console, time.monotonic()
        self.count, self.open = len(items), {item.run_id: item for item in items}

    def at_work(self) -> Iterator[tuple[PlannedRun, RunState, str]]:
        """Yield each run that a process trains or measures now, with its state, and its speed or current
        measure in words."""
        for item in list(self.open.values()):
            state = item.directory.state()
            if state.state == "running":
                yield item, state, _speed(state)
            elif state.state == "done" and item.directory.is_locked():
                yield item, state, _measured_now(item.directory.path / "log.txt")

    def ended(self, item: PlannedRun, outcome: Outcome) -> None:
        """Print how a run ended."""
        self.open.pop(item.run_id)
        words: dict[int, str] = {ExitCode.DONE: "done", ExitCode.INTERRUPTED: "interrupted"}
        word = words.get(outcome.code, "failed")
        seconds = None
        with suppress(AblationsError):  # a damaged state.json is why this run failed, and no reason to stop others
            seconds = item.directory.state().seconds
        self.console.print(
            f"{duration(time.monotonic() - self.started)}  {word:<11} {item.directory.path.name}  "
            f"trained {duration(seconds)}  ({self.count - len(self.open)} of {self.count})",
            soft_wrap=True,
        )
        if is_failed(outcome):
            sentence = printable(f"failed: {item.directory.path.name}: {outcome.message}")
            self.console.print(sentence, style="red", soft_wrap=True)

    def look(self) -> None:
        """Show the progress at this moment."""

    def close(self) -> None:
        """End the display."""


def _speed(state: RunState) -> str:
    """Return the training speed of a run in words."""
    parts = [f"{state.tokens_per_second or 0:,.0f} tokens/s"]
    if state.mfu:
        parts.append(f"{state.mfu:.0%} MFU")
    if state.first_step_seconds:
        parts.append(f"first step after {state.first_step_seconds:.1f} s")
    return ", ".join(parts)


def _measured_now(log: Path) -> str:
    """Return the line of a run's log about its current measure; ``measuring`` if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_END))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        lines = []
    return next((line for line in reversed(lines) if line.startswith("measuring ")), "measuring")


class _Lines(_Watch):
    def __init__(self, items: Sequence[PlannedRun], console: Console) -> None:
        super().__init__(items, console)
        self.last = self.started

    def look(self) -> None:
        if time.monotonic() - self.last < SECONDS_BETWEEN_LINES:
            return
        self.last = time.monotonic()
        for item, state, how in self.at_work():
            self.console.print(
                f"{duration(self.last - self.started)}  at work     {item.directory.path.name}  "
                f"step {state.step or 0}/{state.max_steps}  {how}",
                soft_wrap=True,
            )


class _Bars(_Watch):
    def __init__(self, items: Sequence[PlannedRun], console: Console) -> None:
        super().__init__(items, console)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[how]}"),
            TimeElapsedColumn(),
        )
        # If standard output goes to a file meanwhile, rich must not bring it to the terminal.
        here = console.file is sys.stdout
        self.bar = Progress(*columns, console=console, redirect_stdout=here, redirect_stderr=here)
        self.bar.start()
        self.all = self.bar.add_task("runs", total=len(items), how="")
        self.tasks: dict[str, Any] = {}

    def look(self) -> None:
        for item, state, how in self.at_work():
            if item.run_id not in self.tasks:
                name = item.directory.path.name
                self.tasks[item.run_id] = self.bar.add_task(name, total=state.max_steps, how="")
            self.bar.update(self.tasks[item.run_id], completed=state.step or 0, how=how)

    def ended(self, item: PlannedRun, outcome: Outcome) -> None:
        super().ended(item, outcome)
        if item.run_id in self.tasks:
            self.bar.remove_task(self.tasks.pop(item.run_id))
        self.bar.update(self.all, completed=self.count - len(self.open))

    def close(self) -> None:
        self.bar.stop()
