"""Spread over seeds by the sources of chance: the variance of runs in which some sources are held fixed, with
its figure.

The compared arms differ in `training.seeds` alone. In one arm every source follows the seed of the run; in
the others some sources have one seed in all runs. If only one source follows the seed, the variance is due to
that source (Bouthillier et al. 2021, *Accounting for Variance in Machine Learning Benchmarks*).

The figure shows the standard deviation for each set of sources. Drawn artists can be found by their gid:
`sd`, `interval`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import seaborn as sns
from matplotlib.figure import Figure
from pandas import DataFrame

from ablations.measures import jackknife
from ablations.wording import listed
from reports.figures.panel import Panel
from reports.folder import ReportedExperiment, ReportedRun
from reports.scores.factors import decisions
from reports.scores.runs import Column, on_common_tasks, run_numbers, task_scores
from reports.statistics.summaries import Share, Spread, pooled_spread, share_of_variance
from reports.words import is_absent, number

IN_WORDS = {"init": "initial weights", "order": "order", "corruption": "corruption", "dropout": "dropout"}
"""Sources of chance in training, the keys of `training.seeds`, with their words."""

SOURCES = tuple(IN_WORDS)
EVERYTHING = "every source"
HEADS = ("fine_tuning", "frozen_features")
"""Scores with heads that are trained after pre-training, with their own seeds."""


HOW_TO_READ = (
    "The arms differ only in training.seeds. In rows with every source, each run draws its own initial "
    "weights, order, corruption and dropout. In the other rows, the sources that are not named have the same "
    "draw in all runs of an arm. So a row shows the variance from its sources at one draw of the others. The "
    "shares need not add up to 100%, because sources interact. Arms in which the same sources vary are pooled.",
    "The intervals assume a normal distribution. A standard deviation of few runs is rough: with 5 runs the "
    "interval reaches from 0.6 to 2.9 times the number. Every row includes the noise of the measure.",
)
"""Sentences on the page about the tables and figure of the spread."""

OF_HEADS = (
    "The heads of a task are trained several times on each run, with the same seeds for all runs. Their row "
    "shows how much this draw moves a run's mean over tasks."
)
"""Further sentences on the page if there is a row for heads."""

OF_SCORES = "Scores on tasks are means over tasks, times 100."
"""Further sentence on the page if there are such scores."""

OF_POOLED = (
    "Arms that are pooled have the same seeds, so their runs are not independent: the intervals are no narrower "
    "than those of one arm."
)
"""Further sentence on the page if there are such arms."""

NO_SHARE = Share(None, None, None)


class EqualArms(NamedTuple):
    """Arms with equal settings, grouped by the sources of chance that follow the seed of the run."""

    name: str
    """Name of the first arm in which every source follows the seed."""
    arms_by_varying: Mapping[tuple[str, ...], list[str]]
    """Arms by the sources that follow the seed: first every source, then sets of sources from few to many."""


def spread_tables(experiment: ReportedExperiment, runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a table for each number of whole runs and each family of arms; an empty list if no arm has
    `training.seeds`.

    Args:
        runs: rows of the page's table of runs.
    """
    of_arms = families(experiment)
    if not of_arms:
        return []
    columns, rows = run_numbers(experiment.table, runs)
    numbers = DataFrame(rows)
    return [
        {"arm": family.name, "number": column._asdict(), "rows": table_rows}
        for family in of_arms
        for column in columns
        if column.name != "gain"  # its spread is that of the loss
        and (table_rows := list(_rows(family, column, numbers, experiment.table)))
    ]


def families(experiment: ReportedExperiment) -> list[EqualArms]:
    """Return the groups of arms that differ only in which sources of chance are fixed (`training.seeds`).

    A group needs an arm in which all sources vary.
    """
    varying: dict[str, tuple[str, ...]] = {}
    settings: dict[str, str] = {}
    if not any(map(_fixed_sources, experiment.runs)):  # as in most experiments
        return []
    for run in experiment.runs:
        arm = run.plan.arm
        if arm in settings or not run.settings or run.is_untrained:
            continue
        varying[arm] = tuple(source for source in SOURCES if source not in _fixed_sources(run))
        decided = decisions(run.settings)
        settings[arm] = json.dumps(decided, sort_keys=True, default=str)
    by_settings: dict[str, list[str]] = {}
    for arm in experiment.plan.arms:
        if arm in settings:
            by_settings.setdefault(settings[arm], []).append(arm)
    of_arms = []
    for arms in by_settings.values():
        together: dict[tuple[str, ...], list[str]] = {}
        for arm in arms:
            together.setdefault(varying[arm], []).append(arm)
        if SOURCES in together and len(together) > 1:
            others = sorted((key for key in together if key != SOURCES), key=len)
            of_arms.append(EqualArms(together[SOURCES][0], {key: together[key] for key in (SOURCES, *others)}))
    return of_arms


def _fixed_sources(run: ReportedRun) -> list[str]:
    """Return the sources of chance that have one seed in all runs of the arm."""
    seeds = (run.settings.get("training") or {}).get("seeds") or {}
    return [source for source in SOURCES if seeds.get(source) is not None]


def _rows(family: EqualArms, column: Column, numbers: DataFrame, table: DataFrame) -> Iterator[dict[str, Any]]:
    """Yield for each set of sources: the number of runs, their standard deviation and its share of the
    variance of all sources, both with intervals."""
    whole: Spread | None = None
    for varying, arms in family.arms_by_varying.items():
        values = [_values(numbers, arm, column.name) for arm in arms]
        spread = pooled_spread(values)
        if spread is None:
            continue
        pooled = {arm: len(runs) for arm, runs in zip(arms, values, strict=True) if len(runs) > 1}
        row: dict[str, Any] = {"varying": list(varying), "says": sources_in_words(varying), "arms": list(pooled)}
        row |= {"runs": sum(pooled.values()), "sd": spread.sd, "sd_low": spread.low, "sd_high": spread.high}
        share = NO_SHARE
        if varying == SOURCES:
            whole = spread
        elif whole is not None:
            share = share_of_variance(spread, whole) or NO_SHARE
        yield row | {"share": share.share, "share_low": share.low, "share_high": share.high}
    if column.name in HEADS and whole is not None:
        yield from _of_heads(family, column, whole, table)


def _of_heads(family: EqualArms, column: Column, whole: Spread, table: DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the row for the heads that are trained on a task, if each run had several.

    A score is a mean over repetitions with other heads. Its error has two parts. The part over examples
    follows from the values without each block; the rest is the part over heads. A run's number is a mean over
    tasks.
    """
    arms = family.arms_by_varying[SOURCES]
    scores = on_common_tasks(task_scores(table, column.name))  # as in the numbers of the other rows
    scores = scores[scores["arm"].isin(arms) & scores["left_out"].notna() & scores["standard_error"].notna()]
    of_examples = np.array([jackknife.standard_error(left_out) for left_out in scores["left_out"]])
    of_heads = np.clip(scores["standard_error"].to_numpy(float) ** 2 - of_examples**2, 0, None)
    if not of_heads.any() or not np.isfinite(of_heads).all():
        return
    variance = float(of_heads.mean()) / scores["group"].nunique()
    row: dict[str, Any] = {"varying": ["heads"], "says": "heads of the tasks, inside a run", "arms": arms}
    row |= {"runs": int(scores["run_id"].nunique()), "sd": variance**0.5, "sd_low": None, "sd_high": None}
    share = variance / whole.sd**2 if whole.sd else None
    yield row | {"share": share, "share_low": None, "share_high": None}


def sources_in_words(varying: Sequence[str]) -> str:
    """Return the sources of chance that differ between the runs of an arm, in words."""
    if tuple(varying) == SOURCES:
        return EVERYTHING
    return listed([IN_WORDS[source] for source in varying], "and") if varying else "no source"


def _values(numbers: DataFrame, arm: str, name: str) -> list[float]:
    values = numbers[numbers["arm"] == arm][name]
    return [float(value) for value in values if not is_absent(value) and np.isfinite(value)]


class SpreadMarks(NamedTuple):
    """Content of a panel: a mark with its interval for each set of sources."""

    label: str
    """Label of the axis of standard deviations."""
    points: list[dict[str, Any]]
    """`says, sd, low, high` from top to bottom; `low` and `high` may be None."""

    def draw(self, figure: Figure) -> None:
        """Draw the marks, the first one at the top."""
        ax = figure.subplots()
        places = range(len(self.points))
        for place, point in zip(places, self.points, strict=True):
            colour = "black" if place == 0 else "0.35"
            if not is_absent(point["low"]):
                ax.plot([point["low"], point["high"]], [place, place], color=colour, lw=1.6, gid="interval")
            ax.plot([point["sd"]], [place], marker="o", markersize=5.5, color=colour, linestyle="", gid="sd")
        ax.axvline(self.points[0]["sd"], color="0.8", lw=0.8, zorder=0)
        ax.set_yticks(list(places), [point["says"] for point in self.points])
        ax.set_ylim(len(self.points) - 0.5, -0.5)
        ax.set_xlim(left=0)
        ax.set_xlabel(self.label)
        sns.despine(ax=ax)


def spread_panels(tables: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Return a panel for each table of `spread_tables`."""
    several = len({table["arm"] for table in tables}) > 1
    return [_panel(table, place, of_several=several) for place, table in enumerate(tables)]


def _panel(table: Mapping[str, Any], place: int, *, of_several: bool) -> Panel:
    column = table["number"]
    scale, digits = column["scale"], column["digits"] + 1
    points = [
        {"says": row["says"], "sd": row["sd"] * scale}
        | {end: None if row[f"sd_{end}"] is None else row[f"sd_{end}"] * scale for end in ("low", "high")}
        for row in table["rows"]
    ]
    name = f"spread-{place + 1}"
    described = "; ".join(f"{point['says']} {number(point['sd'], digits)}" for point in points)
    return Panel(
        name=name,
        kind="spread",
        measure=column["name"],
        metric="sd",
        arm=table["arm"],
        title=f"{column['label']}, {table['arm']}" if of_several else column["label"],
        unit=column["unit"],
        digits=digits,
        data=name,
        content=SpreadMarks(f"standard deviation over runs ({column['unit']})", points),
        rows=DataFrame(points),
        points=points,
        description=f"Standard deviation by what varies: {described}.",
        id=name,
    )
