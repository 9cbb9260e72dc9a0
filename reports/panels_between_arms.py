"""Panels that compare arms: a line an arm, or a line a pair of arms."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd
from pandas import DataFrame

from reports.after_norm import note_after_norm
from reports.axes import FEWEST_STEPS, common_steps, is_about, own_axis
from reports.curves import Curve, curve, learned, order, with_columns
from reports.descriptions import lines_in_words
from reports.distances import MOST_ARMS, MOST_BESIDE_FIRST, Pair, pair_lines
from reports.figure_text import FigureText, Shown
from reports.figures import arm_lines
from reports.numbers import listed
from reports.panel import Panel, facts, facts_of, points_of, rows_shown, title_of
from reports.task_names import are_whole, in_order

MOST_TASKS = 12
"""Tasks that get a panel of their own."""

TASKS_IN_SIGHT = 6
"""The panels of further tasks are opened on demand."""

FEWEST_PLACES = 2
"""Numbers of examples or masking ratios below which there is no curve."""


def arm_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """The panel with a line an arm, or one for each task, if it has rows.

    Arms of another depth than the first one's have a panel of their own: their layers are others, and where they
    differ much, neither could be read beside the other.
    """
    rows = rows_shown(table, shown)
    rows = rows[rows["other_run_id"].isna()]
    if not shown.each:
        if is_about(rows, shown.about).any() and (shown.axis is None or rows["x"].nunique() >= FEWEST_PLACES):
            yield from _by_depth(table, text, shown, arms=arms, rows=rows)
        return
    tasks = _tasks(rows, shown)
    for i, task in enumerate(tasks[:MOST_TASKS]):
        own = shown._replace(about=task)
        if not shown.folded and i >= TASKS_IN_SIGHT:
            own = own._replace(folded=True, part=f"{shown.part}, further tasks" if shown.part else "Further tasks")
        note = tasks_note(tasks, shown)
        yield replace(_arm_panel(table, text, own, arms=arms, place=i, more=f", {task}"), notes=(note,))


def _by_depth(
    table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str], rows: DataFrame
) -> Iterator[Panel]:
    """One panel, or two where an axis of layers has encoders of several depths."""
    depths = rows.groupby("arm")["x"].max()
    first = next((depths[arm] for arm in arms if arm in depths), None)
    others = [arm for arm in arms if arm in depths and depths[arm] != first]
    if own_axis(shown.measure) != "layer" or shown.axis is not None or not others:
        yield _arm_panel(table, text, shown, arms=arms)
        return
    alike = [arm for arm in arms if arm not in others]
    yield _arm_panel(table, text, shown, arms=arms, some=alike)
    more, suffix = ", encoders of another depth", "-other_depths"
    yield _arm_panel(table, text, shown, arms=arms, some=others, more=more, suffix=suffix)


def _tasks(rows: DataFrame, shown: Shown) -> list[str]:
    """The whole tasks that have a curve: with enough steps of one arm, or with enough numbers of examples."""
    rows = rows[are_whole(rows["about"])]
    if shown.axis == "step":
        steps = common_steps(rows).groupby(["about", "arm"])["step"].nunique()
        enough = steps.groupby("about").max() >= FEWEST_STEPS
    else:
        enough = rows.groupby("about")["x"].nunique() >= (FEWEST_PLACES if shown.axis == "examples" else 1)
    return in_order(name for name in rows["about"].tolist() if enough.get(name, False))


def tasks_note(tasks: list[str], shown: Shown) -> str:
    """Which tasks have no panel because there are too many."""
    if len(tasks) <= MOST_TASKS:
        return ""
    rest, of = tasks[MOST_TASKS:], f" of {shown.part}" if shown.part else ""
    named = listed(rest) if len(rest) <= MOST_TASKS else f"{len(rest)} tasks"
    return f"Only the first {MOST_TASKS} tasks{of} have panels; in results.parquet alone: {named}."


def _arm_panel(
    table: DataFrame,
    text: FigureText,
    shown: Shown,
    *,
    arms: list[str],
    some: list[str] | None = None,
    place: int = 0,
    more: str = "",
    suffix: str = "",
) -> Panel:
    """The panel of all arms, or of `some`; the other arguments are those of `facts_of`."""
    measure, metric = shown.measure, shown.metric
    compared = arms if some is None else some
    kept = table if some is None else table[table["arm"].isin(some)]
    drawn = arm_lines(kept, measure=measure, metric=metric, arms=arms, group=shown.about, axis=shown.axis)
    known = {curve.arm: curve.arm for curve in drawn.curves}
    points = points_of(drawn.rows, drawn.summary, shown, key="arm", names=known)
    about = facts_of(text, shown, place=place, more=more, suffix=suffix)
    note = note_after_norm(drawn.after, measure=measure, metric=metric, title=title_of(shown), arms=compared)
    return Panel(
        **about,
        content=drawn,
        rows=drawn.rows if shown.axis is not None or drawn.after.empty else pd.concat([drawn.rows, drawn.after]),
        points=points,
        curves=[facts(curve) for curve in drawn.curves],
        description=lines_in_words(points, line="arm", digits=about["digits"]),
        without_rows=[arm for arm in compared if arm not in known],
        arms=some,
        notes=(note,),
    )


def pair_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """The panel with a line a pair of arms, and one for the seeds of each, if it has rows."""
    if rows_shown(table, shown)["other_run_id"].isna().all():
        return
    drawn = pair_lines(table, metric=shown.metric, arms=arms)
    rows, units = drawn.rows, drawn.units
    names = {pair.name: pair.name for pair in drawn.pairs}
    points = points_of(units, drawn.summary, shown, key="pair", names=names)
    present = order(DataFrame({"arm": pd.concat([rows["arm"], rows["group"]])}), arms)
    doubts, early = _doubts(table), _early(rows)
    about = facts_of(text, shown)
    yield Panel(
        **about,
        content=drawn,
        rows=rows,
        points=points,
        curves=[
            _pair_facts(
                units[units["line"] == pair.name],
                pair,
                doubts,
                early.get(pair.name),
                band=max((point["band"] for point in points if point["pair"] == pair.name), default=""),
            )
            for pair in drawn.pairs
        ],
        description=lines_in_words(points, line="pair", digits=about["digits"]),
        without_rows=[arm for arm in arms if arm not in present],
        notes=(_pairs_note(present),),
    )


def _pairs_note(arms: list[str]) -> str:
    """Which pairs are drawn where there are too many."""
    if len(arms) <= MOST_ARMS:
        return ""
    some = f", and only of {MOST_BESIDE_FIRST} arms" if len(arms) > MOST_BESIDE_FIRST else ""
    return f"Of {len(arms)} arms only the pairs with the first, {arms[0]}, are drawn{some}; the CSV has all pairs."


def _pair_facts(
    rows: DataFrame, pair: Pair, doubts: dict[str, str], step: int | None, *, band: str
) -> dict[str, Any]:
    """What to know about a line; `step` is where its runs were compared if not at their last."""
    known = Curve(
        arm=pair.name,
        measure="run_distance",
        seeds=int(rows.loc[rows["value"].notna(), "seed"].nunique()),
        gain=None,
        untrained=False,
        n=None if rows["n"].isna().all() else int(rows["n"].min()),
        d=None if rows["d"].isna().all() else int(rows["d"].max()),
        band=band,
        judged=False,
    )
    remarks = [f"{arm}: {doubts[arm]}" for arm in dict.fromkeys(pair) if doubts.get(arm) not in (None, "", arm)]
    return facts(known, *remarks, *([] if step is None else [f"compared at step {step}"]))


def _doubts(table: DataFrame) -> dict[str, str]:
    """Why each arm's layers say little about its objective, if they do."""
    gains = learned(table)
    return {str(arm): curve(rows, gains).doubt for arm, rows in with_columns(table).groupby("arm", sort=False)}


def _early(rows: DataFrame) -> dict[str, int]:
    """The step of each line whose runs were compared earlier than others, for want of a later step in common."""
    last = rows.groupby("run_id")["step"].transform("max")
    early = rows[(rows["step"] < last).fillna(False)]
    return {str(line): int(step) for line, step in early.groupby("line")["step"].min().items()}
