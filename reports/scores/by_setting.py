"""Figures of scores against the settings that arms vary: their panels, their table, and their text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from pandas import DataFrame, concat

from ablations.wording import listed
from reports.figures.by_setting import (
    MOST_ROWS,
    SETTING_MAP,
    SETTING_MARKS,
    SettingMap,
    SettingMarks,
    runs_by_setting,
)
from reports.figures.curves import curves_by_arm, learned
from reports.figures.panel import FigureText, Panel, Shown, facts, facts_of, named_or_counted, of_seeds
from reports.figures.style import arm_styles
from reports.scores.factors import Factor, Level
from reports.scores.runs import RUN_SCORES, RunScore, tasks_of
from reports.statistics.summaries import differences, mean_interval, seed_counts
from reports.words import is_absent, number, setting_name, signed_interval


def map_in_words(drawn: SettingMap) -> str:
    """Return the largest and the smallest mean of a map in words, with their arms."""
    ends = [
        f"{extreme} {number(point['mean'], drawn.digits)} ({point['arm']})"
        for extreme, point in drawn.extremes().items()
    ]
    return f"{of_seeds(drawn.points)} of {len(drawn.points)} arms: {listed(ends, 'and')}."


def map_notes(points: Sequence[Mapping[str, Any]], score: RunScore) -> tuple[str, ...]:
    """Return notes on what the colours of a map leave out: how wide the intervals are, if there are any, and
    that extremes are chosen."""
    chance = f"The largest of {len(points)} numbers is partly the largest by chance."
    halves = [(point["high"] - point["low"]) / 2 for point in points if not is_absent(point["low"])]
    if not halves:
        return (chance,)
    half = number(median(halves), score.digits) + (f" {score.unit}" if score.unit != "1" else "")
    wide = f"{score.title}: half of an arm's 95% t interval over seeds is {half} (median). Colours do not show it."
    return (wide, chance)


def points_in_words(points: Sequence[Mapping[str, Any]], *, digits: int, reference: str) -> str:
    """Return every mean of a panel in words, line by line, with the differences within each seed from the value
    `reference`, the chance level and the untrained encoder."""
    placed = [point for point in points if point["x"] is not None]
    sentences = [f"{of_seeds(placed)} by {placed[0]['setting']}."]
    for line in dict.fromkeys(point["line"] for point in placed):
        of_line = [point for point in placed if point["line"] == line]
        means = ", ".join(f"{point['at']} {number(point['mean'], digits)}" for point in of_line)
        minus_reference = ", ".join(
            f"{point['at']} {signed_interval(point['difference'], digits)}"
            for point in of_line
            if point["difference"]
        )
        sentences.append(f"{line}: {means}." if line else f"{means}.")
        sentences.append(f"Difference from {reference}: {minus_reference}." if minus_reference else "")
    floors = [point["floor"] for point in placed if not is_absent(point["floor"])]
    if floors:  # arms of other sizes may have other levels, which have no mean
        ends = dict.fromkeys(number(end(floors), digits) for end in (min, max))
        sentences.append(f"Chance level {' to '.join(ends)}.")
    sentences += [f"Untrained {number(point['mean'], digits)}." for point in points if point["x"] is None]
    return " ".join(filter(None, sentences))


def alone_note(arms: Sequence[str]) -> str:
    """Return a note on the arms that have no gain in any panel; empty if there are none."""
    if not arms:
        return ""
    return f"No gain is shown for {listed(list(arms), 'and')}: no arm to compare with predicts the same tokens."


def setting_notes(every: Factor, factor: Factor, panels: Sequence[Panel]) -> list[str]:
    """Return notes on the marks of the reference and the untrained encoder, and on lines that are left out."""
    mark = "frame" if _is_map(factor) else "broad pale line"
    notes = [f"The {mark} marks {factor.reference}, the first of these arms in the spec."]
    if any(point["x"] is None for panel in panels for point in panel.points):
        notes.append(f"Dotted: {factor.untrained}, the encoder before training.")
    left = [level.arm for level in every.levels if level.arm not in factor.arms]
    if left:
        notes.append(
            f"Only the first {len(factor.lines)} lines are drawn; results.parquet also has "
            f"{named_or_counted(left, at_most=20)}."  # nobody reads hundreds of names
        )
    return notes


def how_to_read(
    factor: Factor, scores: Sequence[str], *, first: Factor | None, has_intervals: bool
) -> tuple[str, ...]:
    """Return how to read a figure: everything in the first such figure, and only what is new in others."""
    lines = "" if len(factor.lines) == 1 else " Arms of different lines also differ in what the legend says."
    if _is_map(factor):
        lines = " They are the cells of a row. Different rows also differ in the values beside them."
    tuned = listed([setting_name(path).title for path in factor.tuned], "and")
    others = f"nothing else but what was tuned for each of them ({tuned})" if tuned else "nothing else"
    alone = f"The arms compared here differ in one setting ({factor.title}) and in {others}.{lines}"
    if first is not None:
        return (f"{alone} Read it like the scores by {first.title}.", *([" ".join(scores)] if scores else []))
    interval = (
        "Each interval is about one arm. It does not say whether two arms differ. For this, the table has "
        "their difference within each seed, in grey."
    )
    return (
        f"{alone} Runs of the same seed also have the same initial weights and the same order of the text, "
        "unless the setting changes these. Values that depend on the setting change with it: a longer training "
        "has a longer warm-up.",
        *[interval] * has_intervals,
        " ".join(scores),
    )


FIGURES_IN_SIGHT = 4
"""Number of settings whose panels are open on the page; panels of further settings are folded."""

MOST_LINES = 4
"""Largest number of lines of arms in a panel with marks; further lines are left out."""

MOST_MARKS = 56
"""Largest number of arms that are drawn as marks although they form more than `MOST_LINES` lines. More arms are
drawn as a map, which has room for all."""

OF_RUNS = ("arm", "seed", "run_id", "value", "floor", "n")
"""Columns of the runs of a panel."""

FEWEST_ARMS = 2
"""Smallest number of arms of one line that can be compared."""


class SettingFigure(NamedTuple):
    """Figure of a setting, before its panels have letters."""

    factor: Factor
    text: FigureText
    panels: list[Panel]


def setting_figures(
    table: DataFrame, factors: Sequence[Factor], *, arms: Sequence[str] = ()
) -> list[SettingFigure]:
    """Return a figure for each setting that arms vary, if any score of these arms is known.

    Args:
        arms: arms of the experiment in order, which decides their styles.
    """
    figures: list[SettingFigure] = []
    explained: set[str] = set()
    mapped: set[str] = set()
    gains = learned(table)
    for every in factors:
        if _is_map(every) and mapped.issuperset(every.arms):  # another figure has the same cells
            continue
        factor = _within(every)
        text = _text(
            factor, folded=len(figures) >= FIGURES_IN_SIGHT, taken=[figure.text.name for figure in figures]
        )
        arm_rows = table[table["arm"].isin(factor.arms)]
        drawn = {
            score: list(_panels(table, arm_rows, text, shown, score, factor, gains, arms))
            for shown, score in zip(text.shown, RUN_SCORES, strict=True)
        }
        panels = [panel for score_panels in drawn.values() for panel in score_panels]
        if not panels:
            continue
        new = [
            score.reads for score, score_panels in drawn.items() if score_panels and score.title not in explained
        ]
        explained |= {score.title for score, score_panels in drawn.items() if score_panels}
        read = how_to_read(
            factor,
            new,
            first=figures[0].factor if figures else None,
            has_intervals=any(curve["band"] == "seeds" for panel in panels for curve in panel.curves),
        )
        panels[0] = replace(panels[0], notes=(*setting_notes(every, factor, panels), *panels[0].notes))
        figures.append(SettingFigure(factor, text._replace(how_to_read=read), panels))
        mapped |= set(factor.arms) if _is_map(factor) else set()
    return figures


def _text(factor: Factor, *, folded: bool, taken: Sequence[str]) -> FigureText:
    """Return the text of a figure, without the sentences on how to read it. Its name differs from the names
    `taken`, whatever the setting is called."""
    name = "by_" + re.sub(r"[^A-Za-z0-9]+", "_", factor.setting).strip("_")
    name += f"_{len(taken) + 1}" if name in taken else ""
    part = f"By {factor.title}" if folded else ""
    return FigureText(
        name=name,
        title=" and ".join(filter(None, (f"Scores by {factor.title}", _rows_vary(factor)[0]))),
        kind=SETTING_MAP if _is_map(factor) else SETTING_MARKS,
        shown=tuple(Shown(s.measure, s.metric, s.title, folded=folded, part=part) for s in RUN_SCORES),
        n="",
        how_to_read=(),
        family=name,
    )


def _is_map(factor: Factor) -> bool:
    """Return whether the figure is a map: there are too many arms for marks, and too many lines."""
    return len(factor.lines) > MOST_LINES and len(factor.levels) > MOST_MARKS


def _rows_vary(factor: Factor) -> tuple[str, tuple[str, ...]]:
    """Return the title of the setting that the rows of a map vary, and its values. The title is empty if
    there is no map, or if rows vary several settings; then the names of the lines are returned."""
    parts = [line.split(": ") for line in factor.lines]
    titles = {part[0] for part in parts}
    if not _is_map(factor) or len(titles) > 1 or any(len(part) != 2 for part in parts):
        return "", factor.lines
    return titles.pop(), tuple(value for _, value in parts)


def _within(factor: Factor) -> Factor:
    """Return the factor without the lines that do not fit into a panel."""
    most_lines = MOST_ROWS if _is_map(factor) else MOST_LINES
    levels = tuple(level for level in factor.levels if level.line < most_lines)
    return factor._replace(levels=levels, lines=factor.lines[:most_lines])


def _panels(
    table: DataFrame,
    arm_rows: DataFrame,
    text: FigureText,
    shown: Shown,
    score: RunScore,
    factor: Factor,
    gains: Mapping[str, float],
    arms: Sequence[str],
) -> Iterator[Panel]:
    """Yield the panel of a score, or several panels if some arms predict other things than others do."""
    scored = score.rows(arm_rows)
    scored = scored[scored["value"].notna()]
    prediction_by_arm = dict(
        zip(scored["arm"], scored["sample"] if score.metric == "gain" else [""] * len(scored), strict=True)
    )
    compared, alone = _by_prediction(factor, prediction_by_arm)
    for i, levels in enumerate(compared):
        rows = concat(
            [scored[scored["arm"].isin([level.arm for level in levels])], _untrained(table, score, factor, scored)]
        )
        placed = levels if factor.numeric else _side_by_side(levels)
        points = _points(rows, placed, factor)
        numbered = rows.assign(measure=score.measure, d=None)
        title_end = f", {_arms_in_words(levels, factor)}" if len(compared) > 1 else ""
        about = facts_of(text, shown, title_end=title_end, suffix=f"-{i + 1}" if i else "")
        about |= {"unit": score.unit, "digits": score.digits}
        marks = SettingMarks(
            axis_label=score.axis,
            floor=score.floor,
            along=_along(placed, factor),
            points=points,
            runs=[{str(name): run[name] for name in run} for run in rows[list(OF_RUNS)].to_dict("records")],
            styles=arm_styles([*dict.fromkeys([*arms, *factor.arms])]),
        )
        drawn = _map(marks, levels, factor, digits=score.digits) if _is_map(factor) else marks
        facts_by_arm = curves_by_arm(numbered, gains)
        yield Panel(
            **about,
            content=drawn,
            rows=runs_by_setting(marks, score=f"{shown.measure} {shown.metric}"),
            points=points,
            kind_fields=drawn.entry(),
            curves=[facts(facts_by_arm[point["arm"]]._replace(band=point["band"])) for point in points],
            description=(
                map_in_words(drawn)
                if isinstance(drawn, SettingMap)
                else points_in_words(points, digits=score.digits, reference=factor.reference_value)
            ),
            without_rows=[arm for arm in factor.arms if arm not in prediction_by_arm],
            notes=(
                tasks_of(arm_rows, score),
                alone_note(alone),
                *(map_notes(drawn.points, score) if _is_map(factor) else ()),
            ),
        )


def _by_prediction(factor: Factor, prediction_by_arm: Mapping[str, str]) -> tuple[list[list[Level]], list[str]]:
    """Return the levels in groups of arms that predict the same, and the arms of groups without two to compare."""
    groups = [
        [level for level in factor.levels if prediction_by_arm.get(level.arm) == prediction]
        for prediction in dict.fromkeys(prediction_by_arm.values())
    ]
    compared = [levels for levels in groups if _has_line(levels)]
    return compared, [level.arm for levels in groups if levels not in compared for level in levels]


def _map(marks: SettingMarks, levels: Sequence[Level], factor: Factor, *, digits: int) -> SettingMap:
    """Return the map of the arms that marks would show."""
    row_by_arm = {level.arm: level.line for level in levels}
    title, names = _rows_vary(factor)
    return SettingMap(
        axis_label=marks.axis_label,
        along=marks.along,
        row_label=title,
        row_names=names,
        points=[point | {"row": row_by_arm[point["arm"]]} for point in marks.points if point["arm"] in row_by_arm],
        reference=factor.reference,
        digits=digits,
    )


def _has_line(levels: Sequence[Level]) -> bool:
    """Return whether any two of the arms differ in nothing but the setting."""
    lines = [level.line for level in levels]
    return any(lines.count(line) >= FEWEST_ARMS for line in lines)


def _side_by_side(levels: Sequence[Level]) -> list[Level]:
    """Return the levels at places without gaps; a gap is a value that only other panels have."""
    places = sorted({level.at for level in levels})
    return [level._replace(at=float(places.index(level.at))) for level in levels]


def _arms_in_words(levels: Sequence[Level], factor: Factor) -> str:
    """Return the arms of one panel in words, for a title that differs from other panels of the same score."""
    names = dict.fromkeys(factor.lines[level.line] for level in levels)
    return listed([name for name in names if name], "and") or listed([level.arm for level in levels], "and")


def _untrained(table: DataFrame, score: RunScore, factor: Factor, scored: DataFrame) -> DataFrame:
    """Return the score of the encoder before its training. It is empty if encoders differ in shape, if the
    encoder lacks a task of the arms, and for the gain, whose chance level already stands for no training."""
    if factor.untrained is None:  # as in most experiments
        return scored[:0]
    together = table[table["arm"].isin([*factor.arms, factor.untrained])]
    if tasks_of(together, score) != tasks_of(together[together["arm"] != factor.untrained], score):
        return scored[:0]
    rows = score.rows(together)
    suits = score.metric != "gain" and not factor.setting.startswith("encoder.")
    return rows[(rows["arm"] == factor.untrained) & rows["value"].notna() & suits]


def _points(rows: DataFrame, levels: Sequence[Level], factor: Factor) -> list[dict[str, Any]]:
    """Return each arm's mean, interval and chance level; the untrained encoder is last, without a place."""
    summary = mean_interval(rows, by=["arm"]).set_index("arm")
    difference_by_arm = _differences(rows, levels, factor)
    floors = rows.groupby("arm")["floor"].mean()
    placed = [(level.arm, level.value, level.at, factor.lines[level.line]) for level in levels]
    start = [(arm, "untrained", None, "") for arm in summary.index if arm == factor.untrained]
    return [
        {"arm": arm, "setting": factor.title, "at": value, "x": at, "line": line}
        | {name: float(summary.loc[arm, name]) for name in ("mean", "low", "high")}
        | {"band": "" if is_absent(float(summary.loc[arm, "low"])) else "seeds"}
        | {"seeds": int(summary.loc[arm, "seeds"]), "floor": float(floors[arm])}
        | {"difference": difference_by_arm.get(arm)}
        for arm, value, at, line in [*placed, *start]
    ]


def _differences(rows: DataFrame, levels: Sequence[Level], factor: Factor) -> dict[str, dict[str, Any]]:
    """Return by arm the `differences` from the arm of its line with the reference's value, if the line has one."""
    place = next((level.at for level in levels if level.arm == factor.reference), None)
    base_by_line = {level.line: level.arm for level in levels if level.at == place}
    compared = [level for level in levels if level.at != place and level.line in base_by_line]
    return differences(rows, {level.arm: base_by_line[level.line] for level in compared})


def _along(levels: Sequence[Level], factor: Factor) -> dict[str, Any]:
    """Return the axis of the setting. `reference` is the reference arm's place; None if the panel lacks it."""
    places = {level.at: level.value for level in levels}
    return {
        "setting": factor.setting,
        "label": factor.label,
        "numeric": factor.numeric,
        "logarithmic": factor.logarithmic,
        "places": sorted(places),
        "values": [places[place] for place in sorted(places)],
        "reference": next((level.at for level in levels if level.arm == factor.reference), None),
    }


def setting_rows(factor: Factor, panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Return the table of a figure, a row for each arm: its value, seeds, a cell for each panel, and remarks."""
    arms: dict[str, dict[str, Any]] = {}
    for panel in panels:
        for point in panel.points:
            row = arms.setdefault(point["arm"], {"arm": point["arm"], "at": point["at"], "line": point["line"]})
            row.setdefault("cells", {})[panel.letter] = {
                name: point[name] for name in ("mean", "low", "high", "seeds", "difference")
            }
        for drawn in panel.curves:
            row = arms[drawn["arm"]]
            row["remarks"] = list(dict.fromkeys([*row.get("remarks", ()), *drawn["remarks"]]))
    for row in arms.values():
        row["seeds"] = seed_counts(row["cells"].values())
        row["remarks"] = [remark for remark in row.get("remarks", ()) if remark != row["arm"]]
    order = {arm: i for i, arm in enumerate(factor.arms)}
    return sorted(arms.values(), key=lambda row: order.get(row["arm"], len(order)))
