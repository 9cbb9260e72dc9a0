"""Panels of figures: panels that compare arms, with a line an arm or a pair of arms; and panels of one arm each,
with groups of tokens, maps over training, or pictures."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from pandas import DataFrame

from reports.figures.by_arm import arm_lines
from reports.figures.curves import (
    FEWEST_STEPS,
    Curve,
    common_steps,
    curve,
    is_about,
    learned,
    order,
    own_axis,
    with_columns,
)
from reports.figures.groups import choose_groups, group_lines
from reports.figures.maps import StepMap, map_table, step_maps
from reports.figures.pairs import MOST_ARMS, MOST_BESIDE_FIRST, Pair, pair_lines
from reports.figures.panel import (
    FigureText,
    Panel,
    Shown,
    facts,
    facts_of,
    groups_note,
    left_out_note,
    lines_in_words,
    map_in_words,
    picture_in_words,
    points_of,
    rows_shown,
)
from reports.figures.pictures import Cloud, choose_picture, known_facts, points
from reports.words import are_whole, in_order, leads_on, listed

MOST_PANELS = 6
"""Arms that get a panel of their own."""


def group_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """Yield for each arm a panel with a line a group."""
    if not rows_shown(table, shown)["group"].str.startswith(f"{text.family} ").any():
        return
    rows = choose_groups(table, measure=shown.measure, metric=shown.metric, family=text.family)
    present = order(rows, arms)
    some = present[:MOST_PANELS]
    every = group_lines(rows[rows["arm"].isin(some)], learned(table), text.family)
    notes = (groups_note(sorted({int(n) for n in rows["n"].dropna()})), left_out_note(present, MOST_PANELS))
    for i, arm in enumerate(some):
        drawn = every[arm]
        numbers = points_of(drawn.rows, drawn.summary, shown, key="group", names=drawn.lines)
        about = facts_of(text, shown, arm=arm, place=i)
        yield Panel(
            **about,
            content=drawn,
            rows=drawn.arm_rows,
            points=[{"arm": arm} | point for point in numbers],
            curves=[facts(drawn.curve)],
            description=f"{arm}. " + lines_in_words(numbers, line="group", digits=about["digits"]),
            without_rows=_first(i, arms, present),
            notes=notes,
        )


def map_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """Yield for each arm, or pair of arms, that was measured at enough steps a map of layers by steps."""
    measure, metric, group = shown.measure, shown.metric, shown.about
    table, arms = map_table(table, measure=measure, metric=metric, arms=arms)
    maps = step_maps(table, measure=measure, metric=metric, arms=arms, group=group)
    present = list(maps)
    for i, arm in enumerate(present[:MOST_PANELS]):
        drawn = maps[arm]
        cells = _cells(drawn, arm=arm)
        about = facts_of(text, shown, arm=arm, place=i)
        seeds = drawn.rows["seed"].nunique()
        yield Panel(
            **about,
            content=drawn,
            rows=drawn.rows,
            points=cells,
            curves=[facts(drawn.curve)],
            description=map_in_words(cells, arm=arm, seeds=seeds, digits=about["digits"]),
            without_rows=_first(i, arms, present),
            notes=(left_out_note(present, MOST_PANELS),),
        )


def picture_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """Yield for each arm the tokens of its first seed, if the fact tells them apart.

    Where they lie is in the CSV alone: the numbers mean nothing by themselves.
    """
    present = order(table[(table["measure"] == shown.measure) & table["layer"].notna()], arms)
    for i, arm in enumerate(present[:MOST_PANELS]):
        rows = choose_picture(table, arm=arm)
        drawn = Cloud(arm, shown.metric, points(rows))
        if shown.metric not in known_facts(drawn.points):
            continue
        yield Panel(
            **facts_of(text, shown, arm=arm, place=i),
            content=drawn,
            rows=rows,
            points=[],
            curves=[facts(curve(rows, learned(table)))],
            description=picture_in_words(rows, arm=arm, by=shown.metric),
            without_rows=_first(i, arms, present),
            notes=(left_out_note(present, MOST_PANELS),),
        )


def _cells(drawn: StepMap, *, arm: str) -> list[dict[str, Any]]:
    """Return the cells of a map, step by step."""
    means, leads = drawn.means, leads_on(drawn.measure, drawn.metric)
    steps, layers = means.columns.astype(int).tolist(), means.index.astype(int).tolist()
    return [
        {"arm": arm, "step": step, "layer": layer, "layer_to": layer + 1 if leads else None, "mean": float(value)}
        for step, column in zip(steps, means.to_numpy(float, na_value=float("nan")).T, strict=True)
        for layer, value in zip(layers, column, strict=True)
    ]


def _first(place: int, arms: Sequence[str], present: Sequence[str]) -> list[str]:
    """Return the arms without a panel, reported once: with the first panel."""
    return [arm for arm in arms if arm not in present] if place == 0 else []


MOST_TASKS = 12
"""Tasks that get a panel of their own."""

TASKS_IN_SIGHT = 6
"""The panels of further tasks are opened on demand."""

FEWEST_PLACES = 2
"""Numbers of examples or masking ratios below which there is no curve."""


def arm_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """Yield the panel with a line an arm, or one for each task, if it has rows.

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
        of_task = shown._replace(about=task)
        if not shown.folded and i >= TASKS_IN_SIGHT:
            of_task = of_task._replace(
                folded=True, part=f"{shown.part}, further tasks" if shown.part else "Further tasks"
            )
        note = tasks_note(tasks, shown)
        yield replace(_arm_panel(table, text, of_task, arms=arms, place=i, more=f", {task}"), notes=(note,))


def _by_depth(
    table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str], rows: DataFrame
) -> Iterator[Panel]:
    """Yield one panel, or two where an axis of layers has encoders of several depths."""
    depths = rows[is_about(rows, shown.about)].groupby("arm")["x"].max()
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
    """Return the whole tasks that have a curve: with enough steps of one arm, or with enough numbers of
    examples."""
    rows = rows[are_whole(rows["about"])]
    if shown.axis == "step":
        steps = common_steps(rows).groupby(["about", "arm"])["step"].nunique()
        enough = steps.groupby("about").max() >= FEWEST_STEPS
    else:
        enough = rows.groupby("about")["x"].nunique() >= (FEWEST_PLACES if shown.axis == "examples" else 1)
    return in_order(name for name in rows["about"].tolist() if enough.get(name, False))


def tasks_note(tasks: list[str], shown: Shown) -> str:
    """Return a note on the tasks that have no panel because there are too many."""
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
    """Return the panel of all arms, or of `some`; the other arguments are those of `facts_of`."""
    measure, metric = shown.measure, shown.metric
    compared = arms if some is None else some
    kept = table if some is None else table[table["arm"].isin(some)]
    drawn = arm_lines(kept, measure=measure, metric=metric, arms=arms, group=shown.about, axis=shown.axis)
    name_by_line = {curve.arm: curve.arm for curve in drawn.curves}
    points = points_of(drawn.rows, drawn.summary, shown, key="arm", names=name_by_line)
    about = facts_of(text, shown, place=place, more=more, suffix=suffix)
    return Panel(
        **about,
        content=drawn,
        rows=drawn.rows,
        points=points,
        curves=[facts(curve) for curve in drawn.curves],
        description=lines_in_words(points, line="arm", digits=about["digits"]),
        without_rows=[arm for arm in compared if arm not in name_by_line],
        arms=some,
    )


def pair_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """Yield the panel with a line a pair of arms, and one for the seeds of each, if it has rows."""
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
    """Return a note on which pairs are drawn where there are too many."""
    if len(arms) <= MOST_ARMS:
        return ""
    some = f", and only of {MOST_BESIDE_FIRST} arms" if len(arms) > MOST_BESIDE_FIRST else ""
    return f"Of {len(arms)} arms only the pairs with the first, {arms[0]}, are drawn{some}; the CSV has all pairs."


def _pair_facts(
    rows: DataFrame, pair: Pair, doubts: dict[str, str], step: int | None, *, band: str
) -> dict[str, Any]:
    """Return the facts about a line; `step` is where its runs were compared if not at their last."""
    line = Curve(
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
    return facts(line, *remarks, *([] if step is None else [f"compared at step {step}"]))


def _doubts(table: DataFrame) -> dict[str, str]:
    """Return why each arm's layers say little about its objective, if they do."""
    gains = learned(table)
    return {str(arm): curve(rows, gains).doubt for arm, rows in with_columns(table).groupby("arm", sort=False)}


def _early(rows: DataFrame) -> dict[str, int]:
    """Return the step of each line whose runs were compared earlier than others, for want of a later step in
    common."""
    last = rows.groupby("run_id")["step"].transform("max")
    early = rows[(rows["step"] < last).fillna(False)]
    return {str(line): int(step) for line, step in early.groupby("line")["step"].min().items()}
