"""What the commands print about runs."""

from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.table import Table

STATE_STYLES = {"done": "green", "running": "cyan", "failed": "red", "interrupted": "yellow", "planned": "dim"}


def plan_table(content: dict[str, Any]) -> None:
    """The runs of a plan with their cost, what to know about these numbers, and the sum."""
    table = _table(f"{content['experiment']}: {content['question']}".rstrip(": "))
    table.add_column("arm", overflow="fold")
    for name in ("seed", "run", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("steps", "tokens", "parameters", "FLOPs", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in content["runs"]:
        table.add_row(
            run["arm"],
            str(run["seed"]),
            run["run_id"],
            _styled(run["state"]),
            f"{run['max_steps']:,}",
            compact(run["tokens"]),
            compact(run["parameters"]),
            compact(run["flops"]),
            duration(run["seconds"]),
        )
    console = Console()
    console.print(table)
    for note in content["notes"]:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    todo = sum(run["state"] != "done" for run in content["runs"])
    total = duration(content["seconds"])
    estimate = total if content["seconds"] is not None else "unknown; `ablate doctor` calibrates this machine"
    console.print(f"{len(content['runs'])} runs, {todo} to do; time left: {estimate}", highlight=False)


def status_table(states: list[dict[str, Any]]) -> None:
    """State and progress of runs; below, what failed ones said and which measures are missing."""
    table = _table(None)
    table.add_column("arm", overflow="fold")
    for name in ("seed", "run", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("step", "tokens/s", "time"):
        table.add_column(name, justify="right")
    for run in states:
        speed = run.get("tokens_per_second")
        table.add_row(
            run["arm"],
            str(run["seed"]),
            run["run_id"],
            _styled(run["state"]),
            f"{run.get('step') or 0:,}/{run['max_steps']:,}" if "max_steps" in run else "-",
            f"{speed:,.0f}" if speed else "-",
            duration(run.get("seconds")),
        )
    console = Console()
    console.print(table)
    for run in states:
        unmeasured = f"not measured: {', '.join(run['not_measured'])}" if run.get("not_measured") else None
        if said := run.get("message") or unmeasured:
            console.print(f"{run['folder']}: {said}", highlight=False, markup=False, soft_wrap=True)


def compact(number: float) -> str:
    """A count with three digits and a prefix: 1.02M, 375k, 1.9T."""
    for size, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def duration(seconds: float | None) -> str:
    """Seconds as h:mm:ss; a dash for none."""
    return "-" if seconds is None else str(timedelta(seconds=round(seconds)))


def _table(title: str | None) -> Table:
    return Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")


def _styled(state: str) -> str:
    return f"[{STATE_STYLES[state]}]{state}[/]"
