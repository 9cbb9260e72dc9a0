"""Scores of whole runs, one number a run: what it learned, what its layers are like, what it is good for."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from pandas import DataFrame

from reports.curves import with_columns
from reports.joined import inner_changes, on_common_tasks, rows_by_layer, task_scores
from reports.numbers import MINUS, listed
from reports.statistics import last_step
from reports.task_names import in_order

RUN = ["arm", "seed", "run_id", "step"]

Read = Callable[[DataFrame], DataFrame]
"""From the tidy table of some arms to a row a run: RUN, `value`, `floor` and `n`. Where there is a column `asked`,
only runs with the same there compare."""


class Score(NamedTuple):
    """A score of a run."""

    measure: str
    metric: str
    title: str
    axis: str
    """Its name below an axis, with the unit."""
    floor: str
    """What the data of the chance floor are."""
    unit: str
    digits: int
    rows: Read
    reads: str
    """How to read it, in a sentence or two."""
    over_tasks: bool = False
    """Whether it is a mean over tasks."""


def gains(table: DataFrame) -> DataFrame:
    """The gain of each run over a guess without context. The same is asked where there are as many predictions
    with the same loss of that guess: losses of other predictions do not compare."""
    rows = with_columns(table)
    rows = rows[(rows["measure"] == "validation") & (rows["metric"] == "loss") & rows["group"].isna()]
    rows = last_step(rows)
    rows = rows.assign(value=rows["floor"] - rows["value"], least=0.0)
    rows = rows[np.isfinite(rows["value"].to_numpy(float))]
    guess = rows["floor"].round(6).astype("string")  # the last digits depend on how a text was cut into batches
    asked = (rows["n"].astype("string").fillna("") + " " + guess).groupby(rows["arm"]).transform(_together)
    return rows.assign(floor=rows["least"], asked=asked)[[*RUN, "value", "floor", "n", "asked"]]


def _together(values: Sequence[str]) -> str:
    return "; ".join(sorted(set(values)))


def changes(table: DataFrame) -> DataFrame:
    """The sum over layers of the change to the next, from 1 -> 2 on, and of its floors."""
    return _by_run(inner_changes(table), value="sum")


def top_information(table: DataFrame) -> DataFrame:
    """What the last layer knows of its input token."""
    rows = rows_by_layer(table, "token_information", "cross_fitted").sort_values("layer", kind="stable")
    return rows.groupby(RUN, sort=False, dropna=False).tail(1)[[*RUN, "value", "floor", "n"]]


def task_means(measure: str) -> Read:
    """The mean over the tasks that all runs with any have, and over their floors."""

    def rows(table: DataFrame) -> DataFrame:
        return _by_run(on_common_tasks(task_scores(table, measure)), value="mean")

    return rows


def tasks_of(table: DataFrame, score: Score) -> str:
    """Over which tasks a mean is, in a sentence; empty of other scores."""
    if not score.over_tasks:
        return ""
    tasks = in_order(on_common_tasks(task_scores(table, score.measure))["group"].tolist())
    return f"{score.title}: over {listed(tasks)}."


def _by_run(rows: DataFrame, *, value: str) -> DataFrame:
    groups = rows.groupby(RUN, sort=False, dropna=False)
    # A floor that is absent of one layer or task is absent of all of them together.
    floors = groups["floor"].agg(lambda floors: getattr(floors, value)(skipna=False))
    return groups.agg(value=("value", value), n=("n", "min")).assign(floor=floors).reset_index()


def _of_tasks(measure: str, title: str, reads: str) -> Score:
    metric, floor = {
        "minimal_pairs": ("accuracy", "one in two"),
        "probing": ("accuracy", "most frequent answers"),
    }.get(measure, ("score", "most frequent answers"))
    axis = f"{title.lower()}, mean {metric} over tasks"
    return Score(measure, metric, title, axis, floor, "1", 3, task_means(measure), reads, over_tasks=True)


RUN_SCORES = (
    Score(
        *("validation", "gain", "Gain over no context", "gain over no context (nats)", "no context", "nats", 3),
        gains,
        "The gain is how much smaller the loss of the model is than that of the best guess without context. It is "
        "read on the same predictions of natural text in all arms of a panel; those of masked LM are of 15% of "
        "the tokens, hidden 80/10/10: an arm that was trained on just this is at home there, others are not.",
    ),
    Score(
        "layer_change",
        "pwcca",
        "Change of layers, sum",
        *(f"sum of 1 {MINUS} PWCCA from 1→2", "rows shuffled", "1", 3),
        changes,
        f"The change of layers is the sum of 1 {MINUS} PWCCA similarity to the next layer, from 1→2 on: how far "
        "the states go from the first layer to the last. It grows with the number of layers.",
    ),
    Score(
        "token_information",
        "cross_fitted",
        "Information about the input token at the top",
        *("information at the top (nats)", "labels shuffled", "nats", 3),
        top_information,
        "Information at the top is what the last layer still tells of the token that was read.",
    ),
    _of_tasks("minimal_pairs", "Minimal pairs", "Minimal pairs are the share of pairs told right."),
    _of_tasks("fine_tuning", "Fine-tuning", "Fine-tuning trains the encoder with a head on each task."),
    _of_tasks(
        "frozen_features", "Frozen features", "Frozen features train the same head on the states as they are."
    ),
    _of_tasks("probing", "Probes", "Probes are linear, on the learned mix of layers or, without one, on the top."),
)
"""In the order of a figure's panels."""
