"""Panels of one arm each: groups of tokens, maps over training, pictures."""

from collections.abc import Iterator, Sequence
from typing import Any

from pandas import DataFrame

from reports.curves import curve, learned, order
from reports.descriptions import groups_note, left_out_note, lines_in_words, map_in_words, picture_in_words
from reports.figure_text import FigureText, Shown
from reports.groups import choose_groups, groups_in_order
from reports.maps import choose_steps, grid, map_table, mapped_arms
from reports.metrics import leads_on
from reports.panel import Panel, blank_panel, facts, points_of, rows_shown
from reports.pictures import choose_picture, known_facts

MOST_PANELS = 6
"""Arms that get a panel of their own."""


def group_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """For each arm a panel with a line a group."""
    if not rows_shown(table, shown)["group"].str.startswith(f"{text.family} ").any():
        return
    rows = choose_groups(table, measure=shown.measure, metric=shown.metric, family=text.family)
    present, gains = order(rows, arms), learned(table)
    notes = [groups_note(sorted({int(n) for n in rows["n"].dropna()})), left_out_note(present, MOST_PANELS)]
    for i, arm in enumerate(present[:MOST_PANELS]):
        own = rows[rows["arm"] == arm]
        points = points_of(own, shown, line="group", names=groups_in_order(own["group"].unique().tolist()))
        panel = blank_panel(text, shown, arm=arm, place=i)
        yield panel | {
            "description": f"{arm}. " + lines_in_words(points, line="group", digits=panel["digits"]),
            "curves": [facts(curve(own, gains, band=max(point["band"] for point in points)))],
            "notes": notes,
            "without_rows": _first(i, arms, present),
            "points": [{"arm": arm} | point for point in points],
        }


def map_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """For each arm, or pair of arms, that was measured at enough steps a map of layers by steps."""
    measure, metric, group = shown.measure, shown.metric, shown.about
    table, arms = map_table(table, measure=measure, metric=metric, arms=arms)
    present = mapped_arms(table, measure=measure, metric=metric, arms=arms, group=group)
    for i, arm in enumerate(present[:MOST_PANELS]):
        rows = choose_steps(table, measure=measure, metric=metric, arm=arm, group=group)
        points = _cells(rows, arm=arm, leads=leads_on(measure, metric))
        panel = blank_panel(text, shown, arm=arm, place=i)
        yield panel | {
            "description": map_in_words(points, arm=arm, seeds=rows["seed"].nunique(), digits=panel["digits"]),
            "curves": [facts(curve(rows, learned(table), band="seeds" if rows["seed"].nunique() > 1 else ""))],
            "notes": [left_out_note(present, MOST_PANELS)],
            "without_rows": _first(i, arms, present),
            "points": points,
        }


def picture_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """For each arm the tokens of its first seed, if the fact tells them apart.

    Where they lie is in the CSV alone: the numbers mean nothing by themselves.
    """
    present = order(table[(table["measure"] == shown.measure) & table["layer"].notna()], arms)
    for i, arm in enumerate(present[:MOST_PANELS]):
        rows = choose_picture(table, arm=arm)
        if shown.metric not in known_facts(rows):
            continue
        panel = blank_panel(text, shown, arm=arm, place=i)
        yield panel | {
            "csv": panel["csv"].replace(f"-{shown.metric}-", "-"),  # the same for all that tells its points apart
            "description": picture_in_words(rows, arm=arm, by=shown.metric),
            "curves": [facts(curve(rows, learned(table)))],
            "notes": [left_out_note(present, MOST_PANELS)],
            "without_rows": _first(i, arms, present),
            "points": [],
        }


def _cells(rows: DataFrame, *, arm: str, leads: bool) -> list[dict[str, Any]]:
    """The cells of a map, step by step."""
    means = grid(rows)
    steps, layers = means.columns.astype(int).tolist(), means.index.astype(int).tolist()
    return [
        {"arm": arm, "step": step, "layer": layer, "layer_to": layer + 1 if leads else None, "mean": float(value)}
        for step, column in zip(steps, means.to_numpy(float, na_value=float("nan")).T, strict=True)
        for layer, value in zip(layers, column, strict=True)
    ]


def _first(place: int, arms: Sequence[str], present: Sequence[str]) -> list[str]:
    """The arms without a panel, said once: of the first one."""
    return [arm for arm in arms if arm not in present] if place == 0 else []
