"""Watching of runs on a cluster, by their folders, until each is done, given up or lost. No torch."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from rich.console import Console

from ablations.errors import SpecError
from ablations.runs.identity import PlannedRun
from ablations.runs.launch import Outcome
from ablations.runs.places import arrays
from ablations.runs.places.arrays import Ending
from ablations.runs.progress import display, is_failed
from ablations.runs.workspace import Workspace
from ablations.wording import listed, printable
from lightning_modules.errors import AblationsError, ExitCode

SECONDS_BETWEEN_LOOKS = 2.0
"""Seconds between two checks of the runs' folders; also between two queries of the cluster, after something
changed."""
LONGEST_PAUSE = 20.0
"""Longest time in seconds between two queries of the cluster, if nothing changes."""


def require_free(items: Sequence[PlannedRun], stranger: str, *, patience: float = 0.0) -> None:
    """Raise an error if a process that the cluster did not start is working on a run.

    Args:
        stranger: verb phrase about such a process for the error, as in ``is no job in the queue``.
        patience: seconds to wait until the process ends, which may be about to save.

    Raises:
        SpecError: such a process is at work; the error names its runs.
    """
    deadline = time.monotonic() + patience
    while busy := [item.directory.path.name for item in items if item.directory.is_locked()]:
        if time.monotonic() >= deadline:
            raise SpecError(
                f"{listed(busy, 'and')}: a process that {stranger} is using this run; wait for it or end it, "
                "then give the command again; nothing was submitted."
            )
        time.sleep(0.5)


def watch(
    workspace: Workspace,
    items: Sequence[PlannedRun],
    console: Console,
    *,
    look: Callable[[Collection[str]], tuple[set[str] | None, str]],
    why_lost: Callable[[str], str],
) -> tuple[bool, list[Outcome]]:
    """Show the progress of runs until each has ended or is no longer on the cluster. The reason why a run did
    not end well is printed at once, also if it will be tried again.

    Args:
        look: returns the names of the runs on the cluster (None if it does not answer), and a sentence to
            print; it gets the names of the runs that have not ended.
        why_lost: returns why a run was lost, by its name, if neither its folder nor its job says it.

    Returns whether Ctrl-C came (or a signal that raises KeyboardInterrupt too), and the outcomes of the runs. A
    run that failed, and that another command has completed since, is done.
    """
    all_items = {item.directory.path.name: item for item in items}
    open_items = dict(all_items)
    outcomes: list[Outcome] = []
    reasons_before = {name: ending.message for name, ending in arrays.endings(workspace.out).items()}
    covered, printed, pause, due = None, "", SECONDS_BETWEEN_LOOKS, 0.0
    with display(items, console) as show_end:
        try:
            while True:
                if time.monotonic() >= due:
                    covered, words = look(open_items)
                    if words != printed:
                        console.print(words, soft_wrap=True)
                    pause = SECONDS_BETWEEN_LOOKS if words != printed else min(LONGEST_PAUSE, pause * 1.5)
                    printed, due = words, time.monotonic() + pause
                endings = arrays.endings(workspace.out)
                for name in open_items.keys() & endings.keys():
                    ending = endings[name]
                    if not ending.is_final and reasons_before.get(name) != ending.message:
                        sentence = printable(f"an attempt ended early: {name}: {ending.message}")
                        console.print(sentence, highlight=False, soft_wrap=True)
                    reasons_before[name] = ending.message
                for outcome in list(_ended(workspace, open_items, covered, why_lost, endings)):
                    outcomes.append(outcome)
                    show_end(open_items.pop(outcome.run_dir.name), outcome)
                if not open_items:
                    failed_names = [outcome.run_dir.name for outcome in outcomes if is_failed(outcome)]
                    failed = {name: all_items[name] for name in failed_names}
                    done = {end.run_dir: end for end in _ended(workspace, failed, None, why_lost, {})}
                    return False, [done.get(outcome.run_dir, outcome) for outcome in outcomes]
                time.sleep(SECONDS_BETWEEN_LOOKS)
        except KeyboardInterrupt:
            return True, outcomes


def _ended(
    workspace: Workspace,
    open_items: dict[str, PlannedRun],
    covered: set[str] | None,
    why_lost: Callable[[str], str],
    endings: Mapping[str, Ending],
) -> Iterator[Outcome]:
    """Yield the outcomes of open runs that are done, given up, or no longer on the cluster."""
    for name, item in open_items.items():
        path = item.directory.path
        try:
            missing = arrays.number_of_missing_measures(
                item.directory, workspace.experiment.measures, data_root=workspace.data_root
            )
        except AblationsError as error:
            if covered is not None and name not in covered:
                yield Outcome(path, ExitCode.FAILED, str(error), 0.0)
            continue  # its job may be writing the file; a later look tells
        if missing == 0:
            yield Outcome(path, ExitCode.DONE, None, 0.0)
        elif name in endings and endings[name].is_final:
            yield Outcome(path, ExitCode.FAILED, endings[name].message, 0.0)
        elif covered is not None and name not in covered:
            why = endings[name].message if name in endings else item.directory.state().message
            yield Outcome(path, ExitCode.FAILED, why or why_lost(name), 0.0)
