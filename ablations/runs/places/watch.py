"""Watch runs at a place, by their folders, until each is done, given up, or gone from there. No torch."""

import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console

from ablations.errors import SpecError
from ablations.runs.identity import PlannedRun
from ablations.runs.launch import Outcome
from ablations.runs.places import arrays
from ablations.runs.progress import display
from ablations.runs.workspace import Workspace
from ablations.wording import listed
from lightning_modules.errors import ExitCode

SECONDS_BETWEEN_LOOKS = 2.0
"""Seconds between two looks at the folders of the runs, and at the place after something changed there."""
LONGEST_PAUSE = 20.0
"""Seconds between two looks at the place while nothing changes."""


def require_free(items: Sequence[PlannedRun], stranger: str, *, patience: float = 0.0) -> None:
    """Refuse runs that a process works on which the place did not start.

    Args:
        stranger: says of such a process what it is not.
        patience: seconds to wait for it to end, as one that is about to save.

    Raises:
        SpecError: names the runs.
    """
    deadline = time.monotonic() + patience
    while busy := [item.directory.path.name for item in items if item.directory.is_locked()]:
        if time.monotonic() >= deadline:
            raise SpecError(
                f"{listed(busy, 'and')}: a process that {stranger} is at work here; wait for it or end it, then "
                "start again; nothing was submitted."
            )
        time.sleep(0.5)


def watch(
    workspace: Workspace,
    items: Sequence[PlannedRun],
    console: Console,
    *,
    look: Callable[[], tuple[set[str] | None, str]],
    why_lost: Callable[[str], str],
) -> tuple[bool, list[Outcome]]:
    """Show how the runs go until each is done or the place does not have it any more.

    Args:
        look: returns the names of the runs that the place has, None where it does not answer; and a sentence.
        why_lost: returns why a run is neither done nor at the place, where its folder and its job do not say it.

    Returns whether Ctrl-C or SIGTERM came, and how the runs ended.
    """
    open_items = {item.directory.path.name: item for item in items}
    outcomes: list[Outcome] = []
    covered, printed, pause, due = None, "", SECONDS_BETWEEN_LOOKS, 0.0
    with display(items, console) as show_end:
        try:
            while True:
                if time.monotonic() >= due:
                    covered, words = look()
                    if words != printed:
                        console.print(words, highlight=False, soft_wrap=True)
                    pause = SECONDS_BETWEEN_LOOKS if words != printed else min(LONGEST_PAUSE, pause * 1.5)
                    printed, due = words, time.monotonic() + pause
                for outcome in list(_ended(workspace, open_items, covered, why_lost)):
                    outcomes.append(outcome)
                    show_end(open_items.pop(outcome.run_dir.name), outcome)
                if not open_items:
                    return False, outcomes
                time.sleep(SECONDS_BETWEEN_LOOKS)
        except KeyboardInterrupt:
            return True, outcomes


def _ended(
    workspace: Workspace,
    open_items: dict[str, PlannedRun],
    covered: set[str] | None,
    why_lost: Callable[[str], str],
) -> Iterator[Outcome]:
    """Yield the open runs that are done, given up, or nowhere at the place any more."""
    endings = arrays.endings(workspace.out)
    for name, item in open_items.items():
        path = item.directory.path
        missing = arrays.missing(item.directory, workspace.experiment.measures, data_root=workspace.data_root)
        if missing == 0:
            yield Outcome(path, ExitCode.DONE, None, 0.0)
        elif name in endings and endings[name].is_final:
            yield Outcome(path, ExitCode.FAILED, endings[name].message, 0.0)
        elif covered is not None and name not in covered:
            why = endings[name].message if name in endings else item.directory.state().message
            yield Outcome(path, ExitCode.FAILED, why or why_lost(name), 0.0)
