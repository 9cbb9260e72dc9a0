"""One row a run: what it learned in pre-training, what its layers are like, and what it scores on tasks.

No column is chosen by looking at the scores it stands for: of probes the learned mix of layers counts, or the top
layer where there is no mix.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pandas import DataFrame, Series

from reports.curves import with_columns
from reports.numbers import is_absent, listed
from reports.statistics import last_step
from reports.task_names import are_whole, in_order

RUN = ["arm", "seed"]

Numbers = dict[tuple[str, int], float]
"""A number of each run that has it, by arm and seed."""


class Column(NamedTuple):
    """A number of a run."""

    name: str
    label: str
    unit: str
    digits: int
    scale: float = 1


MEASURED = (
    Column("loss", "Validation loss", "nats", 3),
    Column("gain", "Gain over no context", "nats", 2),
)
"""Those that the table of runs has."""

LAYERS = (
    Column("change", "Change of layers, sum", "from 1→2", 3),
    Column("information_first", "Information at layer 0", "nats", 2),
    Column("information_least", "Its minimum", "nats", 2),
    Column("information_top", "At the top", "nats", 2),
)

SCORES = (
    Column("fine_tuning", "Fine-tuning", "mean", 1, 100),
    Column("frozen_features", "Frozen features", "mean", 1, 100),
    Column("minimal_pairs", "Minimal pairs", "mean", 1, 100),
    Column("probing", "Probes", "mean", 1, 100),
)
METRICS = {"fine_tuning": "score", "frozen_features": "score", "minimal_pairs": "accuracy", "probing": "accuracy"}


def joined(table: DataFrame, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The table of runs by their scores; no rows where nothing was scored.

    Args:
        runs: the rows of the page's table of runs, in order.
    """
    tasks = {column.name: on_common_tasks(task_scores(table, column.name)) for column in SCORES}
    means = {name: _by_run(found.groupby(RUN)["value"].mean()) for name, found in tasks.items()}
    found: dict[str, Numbers] = {name: dict(numbers) for name, numbers in means.items()}
    found |= {name: of(table) for name, of in _OF_LAYERS.items()}
    columns = [
        column
        for column in (*MEASURED, *LAYERS, *SCORES)
        if (column in MEASURED and any(not is_absent(run[column.name]) for run in runs)) or found.get(column.name)
    ]
    rows = [
        {"arm": run["arm"], "seed": run["seed"], "run_id": run["run_id"]}
        | {column.name: _number(run, column, found) for column in columns}
        for run in runs
    ]
    scored = any(means.values())
    return {
        "name": "joined",
        "csv": "figures/joined.csv",
        "columns": [column._asdict() for column in columns] if scored else [],
        "tasks": {name: in_order(part["group"].unique().tolist()) for name, part in tasks.items() if len(part)},
        "notes": _notes(table, tasks) if scored else [],
        "rows": rows if scored else [],
    }


def _number(run: dict[str, Any], column: Column, found: dict[str, Numbers]) -> float | None:
    if column in MEASURED:
        number: float | None = run[column.name]
        return number
    return found[column.name].get((run["arm"], run["seed"]))


# Tasks -----------------------------------------------------------------------------------------------


def task_scores(table: DataFrame, measure: str) -> DataFrame:
    """A score of each run on each whole task, at its last step."""
    rows = with_columns(table)
    rows = last_step(rows[(rows["measure"] == measure) & (rows["metric"] == METRICS[measure])])
    rows = rows[are_whole(rows["group"]) & rows["value"].notna()]
    if rows["layer"].isna().any():
        return rows[rows["layer"].isna()]
    return rows[(rows["layer"] == rows.groupby("run_id")["layer"].transform("max")).fillna(False).astype(bool)]


def on_common_tasks(scores: DataFrame) -> DataFrame:
    """Those on tasks that every run with any score has: means over other tasks would not compare."""
    runs = scores.groupby("group").size()
    return scores[scores["group"].isin(runs.index[runs == len(scores[RUN].drop_duplicates())])]


def _notes(table: DataFrame, tasks: dict[str, DataFrame]) -> list[str]:
    """Over which tasks each mean is."""
    said = []
    for column in SCORES:
        every = task_scores(table, column.name)
        if every.empty:
            continue
        named = in_order(tasks[column.name]["group"].tolist())
        left = in_order(group for group in every["group"].tolist() if group not in named)
        over = f"over {listed(named)}" if named else "none, as no task was scored in every run"
        some = f" (not {listed(left)}, which some run lacks)" if left and named else ""
        said.append(f"{column.label}: {over}{some}.")
    return said


# Layers ----------------------------------------------------------------------------------------------


def rows_by_layer(table: DataFrame, measure: str, metric: str) -> DataFrame:
    """The rows of a metric of single runs, of all tokens, at each run's last step."""
    rows = with_columns(table)
    rows = rows[(rows["measure"] == measure) & (rows["metric"] == metric) & rows["group"].isna()]
    return last_step(rows[rows["layer"].notna() & rows["other_run_id"].isna() & rows["value"].notna()])


def _change(table: DataFrame) -> Numbers:
    """The sum over layers of the change to the next, from 1 -> 2 on."""
    return _by_run(inner_changes(table).groupby(RUN)["value"].sum())


def inner_changes(table: DataFrame) -> DataFrame:
    """The rows of the change to the next layer, from 1 -> 2 on."""
    rows = rows_by_layer(table, "layer_change", "pwcca")
    return rows[(rows["layer"] >= 1) & (rows["layer_to"] == rows["layer"] + 1).fillna(False).astype(bool)]


def _information(which: str) -> Callable[[DataFrame], Numbers]:
    def of(table: DataFrame) -> Numbers:
        rows = rows_by_layer(table, "token_information", "cross_fitted").sort_values("layer", kind="stable")
        return _by_run(rows.groupby(RUN)["value"].agg(which))

    return of


def _by_run(values: Series) -> Numbers:
    rows = values.reset_index()
    keys = zip(rows["arm"].tolist(), rows["seed"].tolist(), strict=True)
    return dict(zip(keys, rows["value"].tolist(), strict=True))


_OF_LAYERS: dict[str, Callable[[DataFrame], Numbers]] = {
    "change": _change,
    "information_first": _information("first"),
    "information_least": _information("min"),
    "information_top": _information("last"),
}
