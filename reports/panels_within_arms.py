"""Panels of one arm each: groups of tokens, maps over training, pictures."""

from collections.abc import Iterator, Sequence
from typing import Any

from pandas import DataFrame

from reports.curves import curve, learned, order
from reports.descriptions import groups_note, left_out_note, lines_in_words, map_in_words, picture_in_words
from reports.figure_text import FigureText, Shown
from reports.groups import choose_groups, group_lines
from reports.maps import StepMap, map_table, step_maps
from reports.metrics import leads_on
from reports.panel import Panel, facts, facts_of, points_of, rows_shown
from reports.pictures import Cloud, choose_picture, known_facts, points

MOST_PANELS = 6
"""Arms that get a panel of their own."""


def group_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """For each arm a panel with a line a group."""
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
            rows=drawn.own,
            points=[{"arm": arm} | point for point in numbers],
            curves=[facts(drawn.curve)],
            description=f"{arm}. " + lines_in_words(numbers, line="group", digits=about["digits"]),
            without_rows=_first(i, arms, present),
            notes=notes,
        )


def map_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """For each arm, or pair of arms, that was measured at enough steps a map of layers by steps."""
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
    """For each arm the tokens of its first seed, if the fact tells them apart.

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
    """The cells of a map, step by step."""
    means, leads = drawn.means, leads_on(drawn.measure, drawn.metric)
    steps, layers = means.columns.astype(int).tolist(), means.index.astype(int).tolist()
    return [
        {"arm": arm, "step": step, "layer": layer, "layer_to": layer + 1 if leads else None, "mean": float(value)}
        for step, column in zip(steps, means.to_numpy(float, na_value=float("nan")).T, strict=True)
        for layer, value in zip(layers, column, strict=True)
    ]


def _first(place: int, arms: Sequence[str], present: Sequence[str]) -> list[str]:
    """The arms without a panel, said once: of the first one."""
    return [arm for arm in arms if arm not in present] if place == 0 else []
