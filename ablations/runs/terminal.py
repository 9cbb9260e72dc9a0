"""Tables of runs in the terminal."""

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablations.runs.records import Plan, RunRecord, RunStatus
from ablations.wording import by_kind, printable, several

WIDTH = 150
"""Characters of a line if the output is no terminal."""

MOST_ROWS = 200
"""Largest number of runs that have a row each; if there are more, each arm has one row."""

SHORTEST_ARM = 8
"""Least width of the column of arms. A narrower terminal wraps the lines of a table."""

STATE_STYLES = {"done": "green", "running": "cyan", "failed": "red", "interrupted": "yellow", "planned": "dim"}
STATE_STYLES |= {"trained": "green", "train again": "red", "trial": "dim", "unreadable": "red"}


def plan_table(plan: Plan) -> None:
    """Print the runs of a plan with their cost, then the plan's notes and the total."""
    rows = []
    for i, run in enumerate([*plan.trials, *plan.runs]):
        is_trial = i < len(plan.trials) and run.state == "planned"
        sizes = [compact(size or 0) for size in (run.tokens, run.parameters, run.flops)]
        cells = [f"{run.max_steps or 0:,}", *sizes, duration(run.seconds)]
        rows.append((run, "trial" if is_trial else state_in_words(run), cells))
    table = _table_of_runs(rows, numbers=("steps", "tokens", "params", "FLOPs", "time"))
    table.title = f"{plan.experiment}: {plan.question or ''}".rstrip(": ")
    console = console_for_tables()
    console.width = max(console.width, sum((column.width or SHORTEST_ARM) + 1 for column in table.columns))
    console.print(table)
    print_plainly(plan.notes, console)
    runs = {run.run_id: run for run in plan.runs}.values()  # arms with equal settings share runs
    todo = [several(len(runs), "run"), f"{sum(run.is_open for run in runs)} to do"]
    if plan.trials:
        todo.append(f"{several(len(plan.trials), 'trial')} before them")
    if plan.pairs_to_compare:
        todo.append(f"{several(plan.pairs_to_compare, 'pair')} to compare")
    console.print(f"{', '.join(todo)}; time left: {_time_left(plan)}", highlight=False)


def _time_left(plan: Plan) -> str:
    if plan.seconds is not None:
        return ("at least " if plan.left_out else "") + duration(plan.seconds)
    trained = not any(run.is_to_train for run in plan.runs)
    return "unknown" if trained else "unknown; `ablate doctor` calibrates this machine"


def state_in_words(run: RunRecord) -> str:
    """Return the state of a run in words, as `plan` and `status` show it.

    For a trained run this is how many measures it lacks, or ``train again`` if it must be trained
    again, or ``trained`` if the record does not say which measures are requested.
    """
    if run.state != "done":
        return run.state
    if run.not_measured is None or run.measures is None:
        return "trained"
    if run.not_measured:
        return "train again" if run.is_to_train else f"{len(run.not_measured)} to measure"
    return "done"


def status_table(statuses: Sequence[RunStatus], notes: Sequence[str] = ()) -> None:
    """Print the state and progress of runs, then messages of failed runs, missing and refused measures, and
    the notes."""
    rows = []
    for run, state in statuses:
        speed = f"{state.tokens_per_second:,.0f}" if state.tokens_per_second else "-"
        step = f"{state.step or 0:,}/{state.max_steps:,}" if state.max_steps is not None else "-"
        rows.append((run, state_in_words(run), [step, speed, duration(state.seconds)]))
    table = _table_of_runs(rows, numbers=("step", "tokens/s", "time"))
    console = console_for_tables()
    console.width = max(console.width, sum((column.width or SHORTEST_ARM) + 1 for column in table.columns))
    console.print(table)
    for run, state in statuses:
        unmeasured = [f"not measured: {by_kind(run.not_measured)}"] if run.not_measured else []
        refused = [f"{name} was refused: {why}" for name, why in run.refused.items()]
        sentences = [state.message] if state.message else unmeasured + refused
        print_plainly((f"{run.folder}: {sentence}" for sentence in sentences), console)
    print_plainly(notes, console)


def print_plainly(sentences: Iterable[str], console: Console) -> None:
    """Print sentences that may hold [brackets] or control characters, and may be longer than a line."""
    for sentence in sentences:
        console.print(printable(sentence), highlight=False, markup=False, soft_wrap=True)


def _table_of_runs(rows: Sequence[tuple[RunRecord, str, Sequence[str]]], *, numbers: Sequence[str]) -> Table:
    """Return a table with a row for each run, or for each arm if there are too many runs.

    Args:
        rows: each run with its state in words and the cells of its numbers.
        numbers: names of the columns of numbers.
    """
    # One space between columns, so that names of arms have room in 80 columns.
    table = Table(title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    if len(rows) > MOST_ROWS:
        _add_arms(table, [(run, state) for run, state, _ in rows])
        return table
    table.add_column("arm", overflow="fold")
    for name in ("seed", "run", "state"):
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    for run, state, cells in rows:
        _add_row(table, run.arm, str(run.seed), run.run_id, _styled(state), *cells)
    return table


def _add_arms(table: Table, rows: Sequence[tuple[RunRecord, str]]) -> None:
    """Fill a table with one row for each arm (its number of runs, and of runs in each state) and a row with
    the sum."""
    table.add_column("arm", overflow="fold")
    table.add_column("runs", justify="right", no_wrap=True)
    table.add_column("state", overflow="fold")
    states_by_arm: dict[str, list[str]] = defaultdict(list)
    for run, state in rows:
        states_by_arm[run.arm].append(state)
    everything = [state for _, state in rows]
    for arm, states in [*states_by_arm.items(), (f"all {len(states_by_arm)} arms", everything)]:
        counts = Counter(states)
        words = [(f"{count} {state}" if len(counts) > 1 else state) for state, count in counts.most_common()]
        _add_row(table, arm, str(len(states)), _styled(", ".join(words)))
    table.caption = f"Each row is an arm, because there are more than {MOST_ROWS} runs; --json shows each run."
    table.caption_justify = "left"


def console_for_tables() -> Console:
    """Return a console for tables. If the output is no terminal, lines have WIDTH characters, unless COLUMNS
    is set.

    A notebook counts as no terminal. rich would take it for one, because its kernel asks for colours
    (FORCE_COLOR).
    """
    console = Console(emoji=False)  # the :100: of a line number is no emoji
    is_wide = console.file.isatty() or os.environ.get("COLUMNS")
    return console if is_wide else Console(width=WIDTH, emoji=False)


def compact(number: float) -> str:
    """Return a count with three digits and a prefix: 1.02M, 375k, 1.9T."""
    number = float(f"{number:.3g}")  # rounded first: 999,999 is 1M and not 1e+03k
    for size, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def duration(seconds: float | None) -> str:
    """Return seconds as h:mm:ss; a dash for None, and for what is no number."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _add_row(table: Table, *cells: str | Text) -> None:
    """Add a row of plain text, in which nothing is markup, and widen the columns that must not wrap.

    rich could do both itself, but would take a fifth of a second for 1,000 rows.
    """
    row = [Text(printable(cell)) if isinstance(cell, str) else cell for cell in cells]
    table.add_row(*row)
    for column, cell in zip(table.columns, row, strict=True):
        if column.no_wrap:
            column.width = max(column.width or cell_len(str(column.header)), cell.cell_len)


def _styled(state: str) -> Text:
    return Text(state, STATE_STYLES.get(state, "yellow"))
