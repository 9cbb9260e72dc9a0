"""Figures with a line for each arm. Each function takes the tidy table and an Axes, draws one comparison and
returns the Axes.

The mean over seeds has its 95% t interval as a band, each seed is a thin line, and the chance level is
dashed. If an arm has one seed, the band is 1.96 standard errors of that run. An arm looks the same in every
figure of an experiment. The argument `arms` holds the experiment's arms in order; an arm without rows is left
out, and its colour stays free.

Functions that select rows raise a ResultsError if the table has no such rows, or has several
values for one seed.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from textwrap import wrap
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from ablations.results import COLUMNS, SHOWN
from ablations.wording import listed
from reports.figures.curves import (
    AXES,
    FEWEST_PLACES,
    FEWEST_STEPS,
    Axis,
    Curve,
    choose,
    common_steps,
    curves,
    is_about,
    learned,
    means_over_tasks,
    order,
    own_axis,
    plugin_digits,
    plugin_unit,
)
from reports.figures.files import lay_out
from reports.figures.lines import Line, PanelLook, PublishedCurve, draw_lines
from reports.figures.panel import (
    FigureKind,
    FigureText,
    Panel,
    Shown,
    facts,
    facts_of,
    line_caption,
    lines_in_words,
    points_of,
    rows_shown,
    title_of,
)
from reports.figures.style import (
    GREY,
    MOST_LINES,
    USUAL_LINES,
    PanelArms,
    Style,
    arm_styles,
    families,
    label_layers,
    label_steps,
    spread_out,
)
from reports.statistics.summaries import bands
from reports.words import (
    are_whole,
    axis_label,
    in_order,
    is_of_plugin,
    leads_on,
    number,
    task_axis_label,
    words_of_metric,
)

NAME_LETTERS = 46
"""Largest number of letters in a line of a name below or above a panel; arms of a grid have long names."""

END_LETTERS, WIDE_END_LETTERS = 22, 28
"""Largest number of letters in a line of a name at the end of a curve, and in a panel of all arms of a grid."""


def by_arm(
    table: DataFrame,
    *,
    ax: Axes,
    measure: str,
    metric: str,
    arms: Sequence[str] | None = None,
    group: str | None = None,
    axis: Axis | None = None,
) -> Axes:
    """Draw any metric of single runs, with a line for each arm and a band over its seeds, and return the
    axes.

    Args:
        table: table of `ablations.results.read`, or some of its rows.
        ax: axes for the lines; their labels are set, a title is not.
        arms: arms to draw, in this order; by default all.
        group: group of the rows; by default the rows without a group.
        axis: quantity on the x axis; by default that of the measure, mostly layers.
    """
    table = table.reindex(columns=[*dict.fromkeys([*COLUMNS, *table])])  # older files lack some columns
    return draw_arms(arm_lines(table, measure=measure, metric=metric, arms=arms, group=group, axis=axis), ax=ax)


class ArmLines(NamedTuple):
    """Content of a figure with a line for each arm: one metric, selected once."""

    measure: str
    metric: str
    group: str | None
    axis: Axis | None
    rows: DataFrame
    """Rows of `choose`, with the arm in the column `line`."""
    summary: DataFrame
    """Result of `bands` for these rows."""
    curves: list[Curve]
    styles: dict[str, Style]
    """Styles by arm."""
    family: PanelArms | None = None
    """Arms that the panel is about, if it does not have all arms; other curves are grey, for comparison."""
    published: tuple[PublishedCurve, ...] = ()
    """Published curves."""
    unnamed: tuple[str, ...] = ()
    """Arms whose means are thin grey lines without a name."""

    @property
    def common_doubt(self) -> str:
        """Doubt about the gain that all trained arms share, if there are several arms; otherwise empty. It stands
        once above the panel, and not beside each name."""
        doubts = [curve.doubt * (curve.gain is not None) for curve in self.curves if not curve.untrained]
        return doubts[0] if len(doubts) > 1 and len(set(doubts)) == 1 else ""

    @property
    def lines(self) -> list[Line]:
        """Lines of the curves; arms that the panel is not about are grey."""
        lines = []
        for curve in self.curves:
            style, about = self.styles[curve.arm], self.family is None or curve.arm in self.family.arms
            name = curve.arm if self.family is None else self.family.short(curve.arm)
            label = end_label(name, curve, noted=bool(self.common_doubt))
            if self.unnamed:
                label = shown_name(_spaced(name), WIDE_END_LETTERS)
            lines.append(Line(curve.arm, label, style if about else style._replace(colour=GREY)))
        return lines

    def draw(self, figure: Figure) -> None:
        """Draw the lines."""
        lay_out(
            figure,
            lambda ax: draw_arms(self, ax=ax),
            names=[*(line.label for line in self.lines), *(curve.label for curve in self.published)],
        )


def arm_lines(
    table: DataFrame,
    *,
    measure: str,
    metric: str,
    arms: Sequence[str] | None = None,
    group: str | None = None,
    axis: Axis | None = None,
) -> ArmLines:
    """Select the content that `by_arm` draws; the arguments are those of `by_arm`."""
    rows = choose(table, measure=measure, metric=metric, group=group, axis=axis)
    rows = rows.assign(line=rows["arm"])
    summary = bands(rows)
    return ArmLines(
        *(measure, metric, group, axis, rows, summary),
        curves=curves(rows, summary, learned(table), arms=arms),
        styles=arm_styles([*dict.fromkeys([*(arms or ()), *order(table, arms)])]),
    )


def draw_arms(drawn: ArmLines, *, ax: Axes) -> Axes:
    """Draw the content that `arm_lines` selected, and return the axes."""
    measure, metric, group, axis, rows, summary = drawn[:6]
    along = axis or own_axis(measure)
    names, doubt = words_of_metric(measure, metric), drawn.common_doubt
    look = PanelLook(
        names.floor,
        ceiling=names.ceiling,
        seeds=not drawn.unnamed,
        every=along == "layer",
        note="\n".join(filter(None, [seeds_note(drawn.curves), doubt and f"each trained arm {doubt}"])),
    )
    draw_lines(rows, summary, drawn.lines, ax=ax, look=look, published=drawn.published, unnamed=drawn.unnamed)
    if along == "layer":
        label_layers(ax, rows["x"].tolist(), leads=leads_on(measure, metric))
    else:
        ax.set_xlabel(AXES[along].label)
        label_steps(ax, rows["x"].max())
    if axis in ("step", "examples"):
        spread_out(ax, rows["x"].astype(int).tolist())
    label = axis_label(measure, metric, group) if axis is None else task_axis_label(measure, metric, group)
    unit = plugin_unit(rows) if is_of_plugin(measure) else "1"
    ax.set_ylabel(label if unit == "1" else shown_name(f"{label} ({unit})"))
    if axis is not None and group is not None:
        ax.set_title(shown_name(group), loc="left", fontsize="medium")
    elif drawn.family is not None:
        ax.set_title(shown_name(drawn.family.name), loc="left", fontsize="medium")
    return ax


def shown_name(name: str, letters: int = NAME_LETTERS) -> str:
    """Return a name as text of a figure, broken into lines of at most `letters` letters.

    Lines are not broken at no-break spaces. A dollar sign is escaped, as it would start a formula, and so is
    a leading underscore, which would hide the name.
    """
    name = "\n".join(wrap(name, letters)).replace("\N{NO-BREAK SPACE}", " ")
    return name.replace("$", r"\$").replace("_", "\N{WORD JOINER}_", name.startswith("_"))


def arm_label(curve: Curve) -> str:
    """Return the arm with its number of seeds and its gain: ``mlm (n = 3, gain 1.80 nats)``."""
    facts = [f"n = {curve.seeds}"]
    if curve.gain is not None and not curve.untrained:
        facts.append(f"gain {number(curve.gain)} nats")
    if curve.doubt not in ("", curve.arm) and (curve.untrained or curve.gain is not None):
        facts.append(curve.doubt)
    # No-break spaces keep each fact on one line.
    facts = [fact.replace(" ", "\N{NO-BREAK SPACE}") for fact in facts]
    return shown_name(f"{curve.arm} ({', '.join(facts)})")


def end_name(name: str) -> str:
    """Return a name broken for the end of a curve."""
    return shown_name(_spaced(name), END_LETTERS)


def _spaced(name: str) -> str:
    """Return the name of an arm of a grid with a space after each comma, where its lines may break."""
    return re.sub(r",(?=\S)", ", ", name)


def end_label(name: str, curve: Curve, *, noted: bool) -> str:
    """Return the name of an arm for the end of its curve, with the reason to doubt its layers, if there is
    one: ``random (untrained)``.

    Args:
        noted: whether a note on the panel gives the doubt of trained arms already.
    """
    doubted = curve.doubt not in ("", curve.arm) and (curve.untrained or (curve.gain is not None and not noted))
    told_by_name = curve.arm.startswith(curve.doubt)
    return end_name(f"{name} ({curve.doubt})" if doubted and not told_by_name else name)


def seeds_note(curves: Sequence[Curve]) -> str:
    """Return the number of seeds of the curves: ``n = 3 seeds``, ``n = 1 to 3 seeds``."""
    lowest, highest = (extreme(curve.seeds for curve in curves) for extreme in (min, max))
    return f"n = {lowest}{f' to {highest}' if highest > lowest else ''} seed{'s' if highest != 1 else ''}"


MOST_TASKS = 12
"""Largest number of tasks that get their own panel."""

TASKS_IN_SIGHT = 6
"""Number of tasks whose panels are open on the page; further panels are folded."""


def arm_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """Yield the panels with a line for each arm. A metric of tasks has a panel for each of the first `MOST_TASKS`
    tasks with curves. If the axis is training steps and there are several tasks, their mean comes first."""
    rows = rows_shown(table, shown)
    rows = rows[rows["other_run_id"].isna()]
    if not shown.each:
        if is_about(rows, shown.about).any():
            yield from _panels(table, text, shown, arms=arms, rows=rows)
        return
    tasks = _tasks(rows, shown)
    if shown.axis == "step" and len(tasks) > 1:
        means = means_over_tasks(rows[rows["about"].isin(tasks)])
        mean_of = shown._replace(each=False)
        title_end = ", mean over tasks"
        yield from _panels(pd.concat([table, means]), text, mean_of, arms=arms, rows=means, title_end=title_end)
    for i, task in enumerate(tasks[:MOST_TASKS]):
        of_task = shown._replace(about=task)
        if not shown.folded and i >= TASKS_IN_SIGHT:
            of_task = of_task._replace(
                folded=True, part=f"{shown.part}, further tasks" if shown.part else "Further tasks"
            )
        note = tasks_note(tasks, shown)
        yield from _panels(table, text, of_task, arms=arms, rows=rows, place=i, title_end=f", {task}", note=note)


def _panels(
    table: DataFrame,
    text: FigureText,
    shown: Shown,
    *,
    arms: list[str],
    rows: DataFrame,
    place: int = 0,
    title_end: str = "",
    note: str = "",
) -> Iterator[Panel]:
    """Yield panels for all arms: one for each depth of the encoders, and with many arms one for each family
    of arms. If there are more than `MOST_FAMILIES` families, one panel has all arms and names only some.

    Each depth has its own panels, because layers of encoders of different depths cannot be compared place by
    place. Beside a depth with curves, one with a single place has a panel of points. The panels of families
    have the same y axis, and all contain the first arm.
    """
    rows = rows[is_about(rows, shown.about)]
    if rows.groupby("arm")["x"].nunique().max() < FEWEST_PLACES:
        return
    depths = _depths(rows, shown, arms)
    fewest = FEWEST_PLACES if len(depths) == 1 else 1
    for place_of_depth, (layers, of_depth) in enumerate(depths.items()):
        kept = table if len(depths) == 1 else table[table["arm"].isin(of_depth)]
        places = rows[rows["arm"].isin(of_depth)].groupby("arm")["x"].nunique()
        present = order(rows[rows["arm"].isin(of_depth)], of_depth)
        groups = families(of_depth, drawn=present) if len(present) > MOST_LINES else families(present)
        groups = [family for family in groups if (places.reindex(list(family.arms)) >= fewest).any()]
        if not groups:  # no family has enough points
            continue
        drawn = arm_lines(
            kept, measure=shown.measure, metric=shown.metric, arms=arms, group=shown.about, axis=shown.axis
        )
        if len(groups) > MOST_FAMILIES:
            groups = [some_of_many(drawn.curves)]
            drawn = drawn._replace(unnamed=tuple(present))
        split = len(present) > MOST_LINES
        of = f", encoders of {layers} layer{'s' * (layers != 1)}" if place_of_depth else ""
        suffix = f"-{layers}_layers" if place_of_depth else ""
        for i, family in enumerate(groups):
            about = facts_of(
                text,
                shown._replace(part=title_of(shown) + title_end + of) if split and not shown.part else shown,
                place=place,
                title_end=title_end + of + (f": {family.name}" if split else ""),
                suffix=suffix + (f"-{i + 1}" if i else ""),
            )
            curves = [curve for curve in drawn.curves if curve.arm in (present[0], *family.arms)]
            yield _panel(
                drawn._replace(curves=curves, family=family if split else None),
                about,
                shown,
                compared=list(family.arms) if split or len(depths) > 1 else None,
                without_rows=[arm for arm in of_depth if arm not in present] if i == 0 else [],
                note=note,
            )


MOST_FAMILIES = 8
"""Largest number of families of arms that have their own panels; the arms of more families share a panel."""


def some_of_many(curves: Sequence[Curve]) -> PanelArms:
    """Return the `USUAL_LINES` arms that are named in a panel of all arms: those with the largest gain or, if
    the gain of fewer was measured, arms at equal steps in the order of the spec. The first arm is not named."""
    best = _by_gain(curves)
    apart = [curves[1 + round(i * (len(curves) - 2) / (USUAL_LINES - 1))] for i in range(USUAL_LINES)]
    chosen = [curve.arm for curve in (best if len(best) >= USUAL_LINES else apart)[:USUAL_LINES]]
    base = f"{curves[0].arm},"  # the arms of a grid begin with the name of its base, which is named beside them
    shared = base if all(arm.startswith(base) for arm in chosen) else ""
    return PanelArms(f"{len(curves)} arms", tuple(chosen), shared)


def _by_gain(curves: Sequence[Curve]) -> list[Curve]:
    """Return the curves with a gain, without the first curve, from the largest gain on."""
    return sorted((curve for curve in curves[1:] if curve.gain is not None), key=lambda curve: -(curve.gain or 0))


def _depths(rows: DataFrame, shown: Shown, arms: list[str]) -> dict[int, list[str]]:
    """Return the arms by the number of layers of their encoders, beginning with the depth of the first arm that
    has rows. Arms without rows are in the first list. All arms are in it if the axis is not layers."""
    if own_axis(shown.measure) != "layer" or shown.axis is not None:
        return {0: arms}
    layers = rows["layer_to"].fillna(rows["x"]).groupby(rows["arm"]).max()
    depths = list(dict.fromkeys(int(layers[arm]) for arm in arms if arm in layers)) or [0]
    return {depth: [arm for arm in arms if layers.get(arm, depths[0]) == depth] for depth in depths}


def _tasks(rows: DataFrame, shown: Shown) -> list[str]:
    """Return the whole tasks that have a curve: enough steps of one arm, or enough numbers of examples."""
    rows = rows[are_whole(rows["about"])]
    if shown.axis == "step":
        steps = common_steps(rows).groupby(["about", "arm"])["step"].nunique()
        enough = steps.groupby("about").max() >= FEWEST_STEPS
    else:
        enough = rows.groupby("about")["x"].nunique() >= FEWEST_PLACES
    return in_order(name for name in rows["about"].tolist() if enough.get(name, False))


def tasks_note(tasks: list[str], shown: Shown) -> str:
    """Return a note on the tasks without a panel if there are too many; empty otherwise."""
    if len(tasks) <= MOST_TASKS:
        return ""
    rest, of = tasks[MOST_TASKS:], f" of {shown.part}" if shown.part else ""
    others = listed(rest, "and") if len(rest) <= MOST_TASKS else f"{len(rest)} tasks"
    return f"Only the first {MOST_TASKS} tasks{of} have panels; results.parquet also has {others}."


def _panel(
    drawn: ArmLines,
    about: dict[str, Any],
    shown: Shown,
    *,
    compared: list[str] | None,
    without_rows: list[str],
    note: str,
) -> Panel:
    """Return the panel of these lines, with the numbers of the arms that it is about."""
    family = drawn.family
    compared_curves = [curve for curve in drawn.curves if family is None or curve.arm in family.arms]
    names = {curve.arm: curve.arm for curve in compared_curves}
    rows = drawn.rows[drawn.rows["arm"].isin(list(names))]
    points = points_of(rows, drawn.summary, shown, key="arm", names=names)
    if is_of_plugin(drawn.measure):
        about |= {"unit": plugin_unit(drawn.rows), "digits": plugin_digits(drawn.rows)}
    return Panel(
        **about,
        content=drawn,
        rows=rows[SHOWN],
        points=points,
        curves=[facts(curve) for curve in compared_curves],
        description=lines_in_words(points, line="arm", digits=about["digits"]),
        without_rows=without_rows,
        arms=compared,
        notes=(note, against_note(drawn)),
    )


def against_note(drawn: ArmLines) -> str:
    """Return a note on the grey curve in panels of some arms; empty if the panel has all arms."""
    if drawn.family is None:
        return ""
    if drawn.unnamed:
        choice = (
            "with the largest gain, which is partly chance"
            if len(_by_gain(drawn.curves)) >= USUAL_LINES
            else "at equal steps in the order of the spec"
        )
        return (
            f"Thin grey lines are means of all {len(drawn.unnamed)} arms; the thick grey line is "
            f"{drawn.curves[0].arm}. Single seeds are not drawn. The named arms are the "
            f"{len(drawn.family.arms)} {choice}. The numbers of all arms are in results.parquet."
        )
    return f"Grey: {drawn.curves[0].arm}, repeated in the panels of other arms for comparison."


ARM_LINES = FigureKind("arms", arm_panels, partial(line_caption, thin=", thin lines single seeds"))
"""Kind of panels with a line for each arm."""
