"""Scores of whole runs, one row for each run: pre-training, layers and tasks.

A second table has a row for each arm: what masked LM did to its tokens. No column is chosen by looking at
scores: for probes it is the learned mix of layers, or the top layer without a mix.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pandas import DataFrame, Series, concat

from ablations.results import TEXT
from ablations.wording import listed
from reports.figures.curves import plugin_digits, plugin_unit
from reports.statistics.summaries import (
    NO_MEAN,
    differences,
    last_step,
    means_of_arms,
    seed_counts,
    validation_losses,
)
from reports.words import MINUS, are_whole, in_order, is_absent, is_of_plugin, words_of_metric

ARM_AND_SEED = ["arm", "seed"]

Numbers = dict[tuple[str, int], float]
"""Value of each run that has one, by arm and seed."""


class Column(NamedTuple):
    """Column of the table of runs, with one number for each run."""

    name: str
    label: str
    unit: str
    digits: int
    scale: float = 1


MEASURED = (
    Column("loss", "Validation loss", "nats", 3),
    Column("gain", "Gain over no context", "nats", 2),
)
"""Columns with the numbers of pre-training."""

LAYERS = (
    Column("change", "Change of layers, sum", "from 1→2", 3),
    Column("information_first", "Information at layer 0", "nats", 2),
    Column("information_least", "Information, minimum over layers", "nats", 2),
    Column("information_top", "Information at the top", "nats", 2),
)

SCORES = (
    Column("fine_tuning", "Fine-tuning", "mean", 1, 100),
    Column("frozen_features", "Frozen features", "mean", 1, 100),
    Column("minimal_pairs", "Minimal pairs", "mean", 1, 100),
    Column("probing", "Probes", "mean", 1, 100),
)
METRICS = {"fine_tuning": "score", "frozen_features": "score", "minimal_pairs": "accuracy", "probing": "accuracy"}
"""Metric of each measure of tasks."""


def joined(table: DataFrame, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the table of runs with their scores; it has no rows if nothing was scored.

    Args:
        runs: rows of the page's table of runs, in order.
    """
    tasks = {column.name: on_common_tasks(task_scores(table, column.name)) for column in SCORES}
    columns, rows = run_numbers(table, runs, tasks=tasks)
    of_pre_training = {column.name for column in (*MEASURED, *LAYERS)}
    scored = any(column.name not in of_pre_training for column in columns)
    return {
        "name": "joined",
        "csv": "figures/joined.csv",
        "columns": [column._asdict() for column in columns] if scored else [],
        "tasks": {name: in_order(part["group"].unique().tolist()) for name, part in tasks.items() if len(part)},
        "notes": _notes(table, tasks) if scored else [],
        "rows": rows if scored else [],
    }


def run_numbers(
    table: DataFrame, runs: Sequence[dict[str, Any]], *, tasks: Mapping[str, DataFrame] | None = None
) -> tuple[list[Column], list[dict[str, Any]]]:
    """Return the columns that any run has, and a row for each run; missing numbers are None.

    Args:
        runs: rows of the page's table of runs, in order.
        tasks: scores on the tasks that count, by measure; by default those on the tasks that all runs have.
    """
    if tasks is None:
        tasks = {column.name: on_common_tasks(task_scores(table, column.name)) for column in SCORES}
    numbers_by_column: dict[str, Numbers] = {
        name: _numbers_by_run(scores.groupby(ARM_AND_SEED)["value"].mean()) for name, scores in tasks.items()
    }
    numbers_by_column |= _layer_numbers(table)
    of_plugins = dict(_of_plugins(table))
    numbers_by_column |= {column.name: numbers for column, numbers in of_plugins.items()}
    columns = [
        column
        for column in (*MEASURED, *LAYERS, *SCORES, *of_plugins)
        if (column in MEASURED and any(not is_absent(run[column.name]) for run in runs))
        or numbers_by_column.get(column.name)
    ]
    rows = [
        {"arm": run["arm"], "seed": run["seed"], "run_id": run["run_id"]}
        | {
            column.name: run[column.name]
            if column in MEASURED
            else numbers_by_column[column.name].get((run["arm"], run["seed"]))
            for column in columns
        }
        for run in runs
    ]
    return columns, rows


def _of_plugins(table: DataFrame) -> Iterator[tuple[Column, Numbers]]:
    """Yield a column for each metric of a plugin's measure that has a number for a whole run, with its numbers."""
    whole = table["layer"].isna() & table["group"].isna() & table["other_run_id"].isna()
    is_plugin = table["measure"].isin([*filter(is_of_plugin, table["measure"].unique())])
    rows = last_step(table[is_plugin & whole & table["value"].notna()])
    for (measure, metric), part in rows.groupby(["measure", "metric"], sort=False):
        title = words_of_metric(str(measure), str(metric)).title
        column = Column(f"{measure} {metric}", title, plugin_unit(part), plugin_digits(part))
        yield column, _numbers_by_run(part.groupby(ARM_AND_SEED)["value"].mean())


# Tasks -----------------------------------------------------------------------------------------------


def task_scores(table: DataFrame, measure: str) -> DataFrame:
    """Return a score of each run on each whole task, at its last step: without a layer or else at the top."""
    rows = table[(table["measure"] == measure) & (table["metric"] == METRICS[measure])]
    if rows.empty:  # as for most measures, to save time
        return rows
    rows = last_step(rows)
    rows = rows[are_whole(rows["group"])]
    is_top = rows["layer"] == rows.groupby("run_id")["layer"].transform("max")
    scored = rows[rows["layer"].isna() if rows["layer"].isna().any() else is_top.fillna(False).astype(bool)]
    return scored[scored["value"].notna()]


def on_common_tasks(scores: DataFrame) -> DataFrame:
    """Return the scores on the tasks that every run with any score has, as other means cannot be compared."""
    runs = scores.groupby("group").size()
    return scores[scores["group"].isin(runs.index[runs == len(scores[ARM_AND_SEED].drop_duplicates())])]


def _notes(table: DataFrame, tasks: dict[str, DataFrame]) -> list[str]:
    """Return notes on the tasks over which each mean is taken."""
    sentences = []
    for column in SCORES:
        every = task_scores(table, column.name)
        if every.empty:
            continue
        tasks_scored = in_order(tasks[column.name]["group"].tolist())
        left = in_order(group for group in every["group"].tolist() if group not in tasks_scored)
        over = (
            f"mean over {listed(tasks_scored, 'and')}"
            if tasks_scored
            else "no mean, since no task was scored in every run"
        )
        remark = f" (not {listed(left, 'and')}, which some runs lack)" if left and tasks_scored else ""
        sentences.append(f"{column.label}: {over}{remark}.")
    return sentences


# Layers ----------------------------------------------------------------------------------------------


def rows_by_layer(table: DataFrame, measure: str, metric: str) -> DataFrame:
    """Return a metric of single runs over all tokens, by layer, at the last step; a layer may have no number."""
    rows = table[(table["measure"] == measure) & (table["metric"] == metric) & table["group"].isna()]
    return last_step(rows[rows["layer"].notna() & rows["other_run_id"].isna()])


def _information_by_layer(table: DataFrame) -> DataFrame:
    """Return the information about the input token of each run, from the first layer to the top."""
    return rows_by_layer(table, "token_information", "cross_fitted").sort_values("layer", kind="stable")


def _layer_numbers(table: DataFrame) -> dict[str, Numbers]:
    """Return the numbers of LAYERS by the name of their column."""
    information = _information_by_layer(table).groupby(ARM_AND_SEED)["value"]
    of_layers: dict[str, Callable[[Series], float]] = {
        "information_first": lambda layers: float(layers.iloc[0]),
        # A layer without a number may have the minimum, so there is none then.
        "information_least": lambda layers: float(layers.min(skipna=False)),
        "information_top": lambda layers: float(layers.iloc[-1]),
    }
    numbers = {name: _numbers_by_run(information.agg(of)) for name, of in of_layers.items()}
    return numbers | {"change": _numbers_by_run(total_change(table).set_index(ARM_AND_SEED)["value"])}


def _numbers_by_run(values: Series) -> Numbers:
    rows = values.dropna().reset_index()
    keys = zip(rows["arm"].tolist(), rows["seed"].tolist(), strict=True)
    return dict(zip(keys, rows["value"].tolist(), strict=True))


RUN = ["arm", "seed", "run_id", "step"]

Read = Callable[[DataFrame], DataFrame]
"""Function from the tidy table of some arms to a row for each run: RUN, `value`, `floor` and `n`. If there is
a column `sample`, only runs with the same text in it can be subtracted."""


class RunScore(NamedTuple):
    """Score of a whole run."""

    measure: str
    metric: str
    title: str
    axis: str
    """Name of the score below an axis, with the unit."""
    floor: str
    """Data on which the chance level is computed."""
    unit: str
    digits: int
    rows: Read
    reads: str
    """Sentences on how to read the score."""
    over_tasks: bool = False
    """Whether it is a mean over tasks."""
    apart: str = ""
    """Sentence on the arms that have no difference, for a table of differences."""


def gains(table: DataFrame) -> DataFrame:
    """Return the gain of each run over a guess without context, with what it predicts in the column `sample`.

    `sample` is a text of the numbers of predictions of an arm's runs and the losses of that guess. Gains of
    arms whose texts differ cannot be compared. Runs without a finite loss are left out.
    """
    rows = validation_losses(table)
    rows = rows.assign(value=rows["floor"] - rows["value"])
    rows = rows[np.isfinite(rows["value"].to_numpy(float))]
    guess = rows["floor"].round(6).astype("string")  # the last digits depend on the division into batches
    predictions = (
        (rows["n"].astype("string").fillna("") + " " + guess)
        .groupby(rows["arm"])
        .transform(lambda values: "; ".join(sorted(set(values))))
    )
    return rows.assign(floor=0.0, sample=predictions)[[*RUN, "value", "floor", "n", "sample"]]


def total_change(table: DataFrame) -> DataFrame:
    """Return the sum of the changes from layer to layer, from 1 -> 2 on, and that of their chance levels."""
    rows = rows_by_layer(table, "layer_change", "pwcca")
    inner = (rows["layer"] >= 1) & (rows["layer_to"] == rows["layer"] + 1).fillna(False).astype(bool)
    sums = _by_run(rows[inner], value="sum")
    layers = rows[inner].groupby(RUN, sort=False, dropna=False).size()
    return _with_sample(sums, table, layers.to_numpy())


def top_information(table: DataFrame) -> DataFrame:
    """Return the information of the top layer about its input token."""
    runs = _information_by_layer(table).groupby(RUN, sort=False, dropna=False)
    return _with_sample(runs.tail(1)[[*RUN, "value", "floor", "n"]], table)


def _with_sample(runs: DataFrame, table: DataFrame, *others: Any) -> DataFrame:
    """Return runs with a column `sample`, a text of what their layers were measured on.

    It has the number of tokens, the text, the entropy of the tokens, and `others`. Many texts and vocabularies
    give the same number of tokens, as a measure reads at most so many; their entropies differ.
    """
    entropy = _information_by_layer(table).groupby("run_id")["ceiling"].max().round(6)
    facts = [runs["n"], runs["run_id"].map(entropy), *others]
    if TEXT in table:
        facts.append(runs["run_id"].map(table.drop_duplicates("run_id").set_index("run_id")[TEXT]))
    samples = [" ".join(map(str, of_run)) for of_run in zip(*facts, strict=True)]
    return runs.assign(sample=samples)


def minimal_pairs_by_task(table: DataFrame) -> Iterator[tuple[str, DataFrame]]:
    """Yield the name of each task of minimal pairs, with the rows of its accuracy over all pairs."""
    rows = table[(table["measure"] == "minimal_pairs") & (table["metric"] == METRICS["minimal_pairs"])]
    for task, rows_of_task in rows[are_whole(rows["group"]) & rows["n"].notna()].groupby("group"):
        yield str(task), rows_of_task


def task_means(measure: str) -> Read:
    """Return a function for the mean score, and mean chance level, over the tasks that all runs have.

    The column `sample` is a text of the number of examples of each task.
    """

    def rows(table: DataFrame) -> DataFrame:
        scores = on_common_tasks(task_scores(table, measure))
        examples = scores["group"].astype("string") + " " + scores["n"].astype("string").fillna("")
        samples = examples.groupby(scores["run_id"]).agg(lambda texts: "; ".join(sorted(texts)))
        means = _by_run(scores, value="mean")
        return means.assign(sample=means["run_id"].map(samples))

    return rows


def tasks_of(table: DataFrame, score: RunScore) -> str:
    """Return the tasks over which a score is averaged, in a sentence; empty for other scores."""
    if not score.over_tasks:
        return ""
    tasks = in_order(on_common_tasks(task_scores(table, score.measure))["group"].tolist())
    return f"{score.title}: mean over {listed(tasks, 'and')}."


def _by_run(rows: DataFrame, *, value: str) -> DataFrame:
    groups = rows.groupby(RUN, sort=False, dropna=False)
    # If one layer or task has no number or no chance level, their sum or mean has none.
    columns = groups[["value", "floor"]]
    numbers = columns.agg(value).where(columns.count().eq(groups.size(), axis=0))
    return numbers.join(groups.agg(n=("n", "min"))).reset_index()


def _of_tasks(measure: str, title: str, reads: str) -> RunScore:
    metric, floor = METRICS[measure], "one in two" if measure == "minimal_pairs" else "most frequent answers"
    axis = f"{title.lower()}, mean {metric} over tasks"
    apart = f"{title}: no difference between arms scored on different examples."
    rows = task_means(measure)
    return RunScore(measure, metric, title, axis, floor, "1", 3, rows, reads, over_tasks=True, apart=apart)


RUN_SCORES = (
    RunScore(
        *("validation", "gain", "Gain over no context", "gain over no context (nats)", "no context", "nats", 3),
        gains,
        "The gain is the loss of the best guess without context minus the loss of the model. All arms of a "
        "panel predict the same tokens of natural text. For masked LM these are 15% of the tokens, hidden "
        "80-10-10. This favours arms that were trained with this corruption.",
        apart="Gains have no difference between arms that predict different things.",
    ),
    RunScore(
        "layer_change",
        "pwcca",
        "Change of layers, sum",
        *(f"sum of 1 {MINUS} PWCCA from 1→2", "rows shuffled", "1", 3),
        total_change,
        f"The change of layers is the sum of 1 {MINUS} PWCCA similarity between a layer and the next one, from "
        "1→2 on. It grows with the number of layers.",
        apart="Sums have no difference between arms with different numbers of layers or measured on different "
        "tokens.",
    ),
    RunScore(
        "token_information",
        "cross_fitted",
        "Information about the input token at the top",
        *("information at the top (nats)", "labels shuffled", "nats", 3),
        top_information,
        "Information at the top is the k-means information about the input token in the last layer: how much "
        "of the geometry of the states the token explains.",
        apart="Information has no difference between arms measured on different tokens.",
    ),
    _of_tasks("minimal_pairs", "Minimal pairs", "Minimal pairs are the share of pairs that are judged correctly."),
    _of_tasks("fine_tuning", "Fine-tuning", "Fine-tuning trains the encoder with a head on each task."),
    _of_tasks(
        "frozen_features", "Frozen features", "Frozen features train the same head on the states as they are."
    ),
    _of_tasks(
        "probing",
        "Probes",
        ("Probes are linear. They read the learned mix of layers, or the top layer if there is no mix."),
    ),
)
"""Scores in the order of a figure's panels."""


def compared_arms(table: DataFrame, arms: Sequence[str]) -> dict[str, Any]:
    """Return every score of whole runs by arm: the mean over seeds with its 95% t interval, and the difference
    within each seed from the first arm.

    Returns:
        `base`, the first arm; `columns`, each with `title`, `unit`, `digits` and `note`, a sentence or ""; and
        `rows`, each with `arm`, `cells` by title, and `seeds`: their number, or the smallest and the largest
        if cells have different numbers. Arms without scores, and scores of a single arm, are
        left out.
    """
    base, columns = arms[0], []
    rows_by_arm: dict[str, dict[str, Any]] = {arm: {"arm": arm, "cells": {}} for arm in arms}
    measured = set(table["measure"].unique())
    for score in RUN_SCORES:
        if score.measure not in measured:
            continue
        rows = score.rows(table)
        rows = rows[rows["value"].notna()]
        if rows["arm"].nunique() < 2:
            continue
        note = tasks_of(table, score)
        if "sample" in rows and (score.metric == "gain" or rows["sample"].nunique() > 1):
            note = f"{note} {score.apart}".lstrip()
        difference_by_arm = differences(rows, dict.fromkeys(arms[1:], base))
        for (arm, _), mean in means_of_arms(rows.assign(name=score.title)).items():
            rows_by_arm[arm]["cells"][score.title] = mean | {"difference": difference_by_arm.get(arm)}
        columns.append({"title": score.title, "unit": score.unit, "digits": score.digits, "note": note})
    rows_with_cells = [row for row in rows_by_arm.values() if row["cells"]]
    for row in rows_with_cells:
        row["seeds"] = seed_counts(row["cells"].values())
    return {"base": base, "columns": columns, "rows": rows_with_cells}


RATES = ("hidden", "masked", "random", "kept", "collision_rate")
"""Rates of the measure `corruption`, as counted in the run's log."""

LOSSES = ("masked", "random", "kept")
"""Groups of the validation loss: how the predicted token was shown."""

OBSERVED = ("observed_clean", "observed_replaced", "recovered_replaced")
"""Metrics of `validation` on shown tokens; see `ablations.measures.validation`."""

GUESSED = "guessed_clean"
"""Name for the chance level of `observed_clean`: how often the same tokens are guessed if they are hidden."""


def corruptions(table: DataFrame, *, arms: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each arm that has a number named in `RATES`, `OBSERVED` or `GUESSED`, or `loss_` with one
    of `LOSSES`. Each number is the mean over seeds at the last step, with its 95% t interval."""
    last = last_step(table[table["measure"].isin(["corruption", "validation"])])
    by_treatment = (last["metric"] == "loss") & last["group"].isin(LOSSES)
    of_all_tokens = last["group"].isna() & last["metric"].isin([*RATES, *OBSERVED])
    chosen = last[by_treatment | of_all_tokens]
    chosen = chosen.assign(name=chosen["metric"].where(chosen["group"].isna(), "loss_" + chosen["group"]))
    guessed = chosen[chosen["metric"] == OBSERVED[0]]
    guessed = guessed.assign(name=GUESSED, value=guessed["floor"]).dropna(subset="value")
    chosen = concat([chosen, guessed], ignore_index=True)
    means = means_of_arms(chosen)
    names = [*RATES, *(f"loss_{group}" for group in LOSSES), GUESSED, *OBSERVED]
    measured_arms = {arm for arm, _ in means}
    return [
        {"arm": arm} | {name: means.get((arm, name), NO_MEAN) for name in names}
        for arm in arms
        if arm in measured_arms
    ]


def other_losses(table: DataFrame, *, arms: Sequence[str]) -> dict[str, Any]:
    """Return the validation losses of other input formats, other word orders and parts of the loss.

    `columns` names them as the groups of `validation` do. `rows` has an entry for each arm that has any: its
    mean over seeds at the last step with a 95% t interval, by group.
    """
    last = last_step(table[table["measure"] == "validation"])
    in_a_group = last["group"].notna() & ~last["group"].isin(LOSSES)
    chosen = last[in_a_group & last["metric"].isin(["loss", "objective_loss"])]
    groups = list(dict.fromkeys(chosen["group"]))
    means = means_of_arms(chosen.assign(name=chosen["group"]))
    measured_arms = {arm for arm, _ in means}
    rows = [
        {"arm": arm, "cells": {group: means.get((arm, group), NO_MEAN) for group in groups}}
        for arm in arms
        if arm in measured_arms
    ]
    return {"columns": groups, "rows": rows}


SHOWN = frozenset({*RATES, *OBSERVED})
"""Metrics that the table of `corruptions` shows."""
