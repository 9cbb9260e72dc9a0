"""The figures of scores by the settings that arms vary: which there are, their panels and their table."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pandas import DataFrame, concat

from reports.curves import curve, learned
from reports.factors import Factor, Level
from reports.figure_text import FigureText, Shown
from reports.numbers import is_absent, listed, number
from reports.panel import Panel, blank_panel, facts
from reports.run_scores import RUN_SCORES, Score, tasks_of
from reports.statistics import mean_interval

FIGURES_IN_SIGHT = 4
"""The panels of further settings are opened on demand."""

MOST_LINES = 4
"""Lines of arms that a panel has room for; those of further arms are left out."""

FEWEST_ARMS = 2
"""Of one line, or there is nothing to compare."""


class SettingFigure(NamedTuple):
    """A figure before its panels have letters."""

    factor: Factor
    text: FigureText
    panels: list[Panel]


def setting_figures(table: DataFrame, factors: Sequence[Factor]) -> list[SettingFigure]:
    """A figure for each setting that arms vary and that any score is known for."""
    found: list[SettingFigure] = []
    explained: set[str] = set()
    gains = learned(table)
    for i, every in enumerate(factors):
        factor = _within(every)
        folded = len(found) >= FIGURES_IN_SIGHT
        shown = tuple(
            Shown(
                score.measure,
                score.metric,
                score.title,
                folded=folded,
                part=f"By {factor.title}" if folded else "",
            )
            for score in RUN_SCORES
        )
        slug = re.sub(r"[^A-Za-z0-9]+", "_", factor.setting).strip("_")
        if any(
            figure.text.family == f"by_{slug}" for figure in found
        ):  # paths may have the same letters and digits
            slug += f"_{i + 1}"
        text = FigureText(
            name=f"by_{slug}",
            title=f"Scores by {factor.title}",
            kind="settings",
            shown=shown,
            n="",
            d="",
            how_to_read=(),
            family=f"by_{slug}",
        )
        drawn = [
            (score, list(_panels(table, text, own, score, factor, gains)))
            for own, score in zip(shown, RUN_SCORES, strict=True)
        ]
        panels = [panel for _, some in drawn for panel in some]
        if not panels:
            continue
        new = [score.reads for score, some in drawn if some and score.title not in explained]
        explained |= {score.title for score, some in drawn if some}
        read = _how_to_read(factor, new, first=found[0].factor if found else None)
        panels[0]["notes"] = [*_notes(every, factor, panels), *panels[0]["notes"]]
        found.append(SettingFigure(factor, text._replace(how_to_read=read), panels))
    return found


def _within(factor: Factor) -> Factor:
    """The factor with no more lines than a panel has room for."""
    levels = tuple(level for level in factor.levels if level.line < MOST_LINES)
    return factor._replace(levels=levels, lines=factor.lines[:MOST_LINES])


def _panels(
    table: DataFrame, text: FigureText, shown: Shown, score: Score, factor: Factor, gains: Mapping[str, float]
) -> Iterator[Panel]:
    """The panel of a score; several where some arms were asked something else than others."""
    own = table[table["arm"].isin(factor.arms)]
    known = score.rows(own)
    known = known[known["value"].notna()]
    asked = dict(zip(known["arm"], known["asked"] if "asked" in known else [""] * len(known), strict=True))
    groups = [
        [level for level in factor.levels if asked.get(level.arm) == one] for one in dict.fromkeys(asked.values())
    ]
    compared = [levels for levels in groups if _has_line(levels)]
    alone = [level.arm for levels in groups if not _has_line(levels) for level in levels] if compared else []
    without = [arm for arm in factor.arms if arm not in asked]
    for i, levels in enumerate(map(_side_by_side, compared) if not factor.numeric else compared):
        rows = known[known["arm"].isin([level.arm for level in levels])]
        panel = blank_panel(text, shown) | {"unit": score.unit, "digits": score.digits}
        if i:
            files = {kind: f"figures/{panel['name']}-{i + 1}.{kind}" for kind in ("svg", "csv")}
            panel |= {"name": f"{panel['name']}-{i + 1}"} | files
        if len(compared) > 1:
            panel["title"] += f", {_called(levels, factor)}"
        untrained = _untrained(table, score, factor)
        points = [*_points(rows, levels, factor), *_untrained_points(untrained, factor)]
        scored = concat([rows, untrained]).assign(measure=score.measure, d=None)
        panel |= {
            "axis_label": score.axis,
            "floor": score.floor,
            "along": _along(levels, factor),
            "points": points,
            "runs": scored[["arm", "seed", "run_id", "value", "floor", "n"]].to_dict("records"),
            "curves": [
                facts(curve(part, gains, band=point["band"]))
                for point in points
                for part in [scored[scored["arm"] == point["arm"]]]
            ],
            "without_rows": without,
            "notes": [tasks_of(own, score), _alone_note(alone)],
        }
        yield panel | {"description": points_in_words(panel)}


def _has_line(levels: Sequence[Level]) -> bool:
    """Whether some of the arms differ in nothing but the setting."""
    lines = [level.line for level in levels]
    return any(lines.count(line) >= FEWEST_ARMS for line in lines)


def _side_by_side(levels: Sequence[Level]) -> list[Level]:
    """Names without gaps for those that only other panels have."""
    places = sorted({level.at for level in levels})
    return [level._replace(at=float(places.index(level.at))) for level in levels]


def _called(levels: Sequence[Level], factor: Factor) -> str:
    """What arms of one panel are called where there are several panels of a score."""
    names = dict.fromkeys(factor.lines[level.line] for level in levels)
    return listed([name for name in names if name]) or listed([level.arm for level in levels])


def _points(rows: DataFrame, levels: Sequence[Level], factor: Factor) -> list[dict[str, Any]]:
    """The mean of each arm, its interval and its mean floor."""
    summary = mean_interval(rows, by=["arm"]).set_index("arm")
    floors = rows.groupby("arm")["floor"].mean()
    return [
        {
            "arm": level.arm,
            "setting": factor.title,
            "at": level.value,
            "x": level.at,
            "line": factor.lines[level.line],
        }
        | _numbers(summary.loc[level.arm], floors[level.arm])
        for level in levels
    ]


def _untrained(table: DataFrame, score: Score, factor: Factor) -> DataFrame:
    """The score of the encoder before its training. It has none where encoders differ in shape, and no gain: that
    measures training against a guess, which the floor stands for."""
    rows = score.rows(table[table["arm"].isin([*factor.arms, factor.untrained])])
    suits = score.metric != "gain" and not factor.setting.startswith("encoder.")
    return rows[(rows["arm"] == factor.untrained) & rows["value"].notna() & suits]


def _untrained_points(rows: DataFrame, factor: Factor) -> list[dict[str, Any]]:
    """Its mean, which has no place on the axis."""
    if rows.empty:
        return []
    summary = mean_interval(rows, by=["arm"]).iloc[0]
    at = {"arm": factor.untrained, "setting": factor.title, "at": "untrained", "x": None, "line": ""}
    return [at | _numbers(summary, rows["floor"].mean())]


def _numbers(summary: Any, floor: float) -> dict[str, Any]:
    return {name: float(summary[name]) for name in ("mean", "low", "high")} | {
        "band": "seeds" if not is_absent(float(summary["low"])) else "",
        "seeds": int(summary["seeds"]),
        "floor": float(floor),
    }


def _along(levels: Sequence[Level], factor: Factor) -> dict[str, Any]:
    """The axis of the setting, and where on it the reference stands, if it is there."""
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


def points_in_words(panel: Mapping[str, Any]) -> str:
    """Every mean of a panel, line by line, with the floor and the untrained encoder."""
    placed = [point for point in panel["points"] if point["x"] is not None]
    sentences = [f"Mean over seeds by {placed[0]['setting']}."]
    for line in dict.fromkeys(point["line"] for point in placed):
        said = [
            f"{point['at']} {number(point['mean'], panel['digits'])}" for point in placed if point["line"] == line
        ]
        sentences.append(f"{line}: {', '.join(said)}." if line else f"{', '.join(said)}.")
    floors = [point["floor"] for point in placed if not is_absent(point["floor"])]
    if floors:
        sentences.append(f"Chance floor {number(sum(floors) / len(floors), panel['digits'])}.")
    sentences += [
        f"Untrained {number(point['mean'], panel['digits'])}." for point in panel["points"] if point["x"] is None
    ]
    return " ".join(sentences)


def _alone_note(arms: Sequence[str]) -> str:
    if not arms:
        return ""
    return f"Without a gain here, as nothing else predicts the same: {listed(list(arms))}."


def _notes(every: Factor, factor: Factor, panels: Sequence[Panel]) -> list[str]:
    said = [f"The broad pale line marks {factor.reference}, the first of these arms in the spec."]
    if any(point["x"] is None for panel in panels for point in panel["points"]):
        said.append(f"Dotted: {factor.untrained}, the encoder before training, or its value above the panel.")
    left = [level.arm for level in every.levels if level.line >= MOST_LINES]
    if left:
        said.append(f"Only the first {MOST_LINES} lines are drawn; in results.parquet alone: {listed(left)}.")
    return said


def _how_to_read(factor: Factor, scores: Sequence[str], *, first: Factor | None) -> tuple[str, ...]:
    """Everything in the first such figure; in others what is new there."""
    lines = "" if len(factor.lines) == 1 else " Arms of different lines differ in what the legend says as well."
    alone = f"Arms that are compared here differ in one setting ({factor.title}) and in nothing else.{lines}"
    if first is not None:
        return (f"{alone} Read it as the scores by {first.title}.", *([" ".join(scores)] if scores else []))
    return (
        f"{alone} Of each seed they have the same initial weights and the same text in the same order. Where one "
        "setting makes another follow, as a longer training its warm-up, that follows.",
        "Each interval is of one arm by itself. Whether two arms differ is a question about their difference in "
        "the same seeds, which the intervals of either do not answer.",
        " ".join(scores),
    )


def runs_by_setting(panel: Mapping[str, Any]) -> DataFrame:
    """The rows of a panel's CSV: a run each, its arm's value of the setting, its score and the floor of that."""
    at = {point["arm"]: {name: point[name] for name in ("at", "line")} for point in panel["points"]}
    setting, score = panel["along"]["setting"], f"{panel['measure']} {panel['metric']}"
    return DataFrame([{"setting": setting, **at[run["arm"]], "score": score, **run} for run in panel["runs"]])


def setting_rows(figure: SettingFigure) -> list[dict[str, Any]]:
    """The table of a figure, a row an arm: its value of the setting, seeds, a cell a panel, and what to doubt."""
    arms: dict[str, dict[str, Any]] = {}
    for panel in figure.panels:
        for point in panel["points"]:
            row = arms.setdefault(point["arm"], {"arm": point["arm"], "at": point["at"], "line": point["line"]})
            row["seeds"] = max(point["seeds"], row.get("seeds", 0))
            row.setdefault("cells", {})[panel["letter"]] = {name: point[name] for name in ("mean", "low", "high")}
        for known in panel["curves"]:
            arms[known["arm"]]["remarks"] = [remark for remark in known["remarks"] if remark != known["arm"]]
    order = {arm: i for i, arm in enumerate(figure.factor.arms)}
    return sorted(arms.values(), key=lambda row: order.get(row["arm"], len(order)))
