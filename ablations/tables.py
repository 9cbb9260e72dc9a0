"""What the commands print about runs."""

from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.table import Table

STATE_STYLES = {"done": "green", "running": "cyan", "failed": "red", "interrupted": "yellow", "planned": "dim"}


def plan_table(content: dict[str, Any]) -> None:
    """The runs of a plan with their cost, and the sum."""
    table = _table(f"{content['experiment']}: {content['question']}".rstrip(": "))
    for name in ("arm", "seed", "run"):
        table.add_column(name)
    table.add_column("state")
    for name in ("steps", "tokens", "parameters", "operations", "time"):
        table.add_column(name, justify="right")
    for run in content["runs"]:
        table.add_row(
            run["arm"],
            str(run["seed"]),
            run["run_id"],
            _styled(run["state"]),
            f"{run['max_steps']:,}",
            f"{run['tokens']:,}",
            f"{run['parameters']:,}",
            f"{run['flops']:.1e}",
            duration(run["seconds"]),
        )
    console = Console()
    console.print(table)
    todo = sum(run["state"] != "done" for run in content["runs"])
    total = duration(content["seconds"])
    estimate = (
        total if content["seconds"] is not None else "unknown until a run of this kind ended on this machine"
    )
    console.print(f"{len(content['runs'])} runs, {todo} to do; training time left: {estimate}", highlight=False)


def status_table(states: list[dict[str, Any]]) -> None:
    """State and progress of runs, and what failed ones said."""
    table = _table(None)
    for name in ("arm", "seed", "run", "state"):
        table.add_column(name)
    for name in ("step", "tokens/s", "time"):
        table.add_column(name, justify="right")
    table.add_column("message", overflow="fold")
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
            run.get("message") or "",
        )
    Console().print(table)


def duration(seconds: float | None) -> str:
    """Seconds as h:mm:ss; a dash for none."""
    return "-" if seconds is None else str(timedelta(seconds=round(seconds)))


def _table(title: str | None) -> Table:
    return Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")


def _styled(state: str) -> str:
    return f"[{STATE_STYLES[state]}]{state}[/]"
