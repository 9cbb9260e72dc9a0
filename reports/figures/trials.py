"""Figures of the search for each arm's settings: the loss against a tuned setting, and against the number of
trials.

Drawn artists can be found by their gid: `trial`, `chosen`, `diverged`, `join`, `expected`.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import Any, NamedTuple

import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import offset_copy
from pandas import DataFrame

from ablations.runs.records import TunedArm, Tuning
from ablations.wording import exact_number as brief
from ablations.wording import shown
from reports.figures.by_setting import labels_apart
from reports.figures.files import PANEL_INCHES, legend_below
from reports.figures.panel import Panel, letters
from reports.figures.style import Style, arm_styles, is_logarithmic, is_number, mark_points
from reports.statistics.summaries import expected_best
from reports.words import number, setting_name

ABOVE = "Loss above the arm's best (nats)"
"""Label of the axis of losses, which are compared with the arm's best, as objectives predict different tokens."""

NEAR_TOP = 0.985
"""Height of a diverged trial, as a share of the axes."""

APART, MOST_APART = 8.0, 32.0
"""Points between crosses of two arms that diverged with one value, and between the outermost of many."""


class TrialMarks(NamedTuple):
    """Losses of the trials of a search: a line for each arm, against the values of a setting or the number of
    trials."""

    label: str
    """Label of the axis of values."""
    gid: str
    """Gid of the points: `trial` or `expected`."""
    logarithmic: bool
    places: Mapping[float, str]
    """Tried values in words, by their place on the axis; empty for numbers of trials."""
    points: list[dict[str, Any]]
    """`arm, x, above, chosen` in the order of the line; `above` is None if training diverged."""
    styles: Mapping[str, Style]

    def draw(self, figure: Figure) -> None:
        """Draw the lines, with the legend of the arms below them."""
        ax = figure.subplots()
        for arm in dict.fromkeys(point["arm"] for point in self.points):
            self._draw_arm(figure, ax, arm, [point for point in self.points if point["arm"] == arm])
        if self.logarithmic:
            ax.set_xscale("log")
        if self.places:
            self._name_places(ax)
        else:
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel(self.label)
        ax.set_ylabel(ABOVE)
        ax.set_ylim(bottom=min(0, -0.04 * ax.get_ylim()[1]))
        sns.despine(ax=ax)
        figure.set_figheight(PANEL_INCHES[1] + legend_below(figure, ax))

    def _name_places(self, ax: Axes) -> None:
        """Write as many of the tried values below the axis as have room."""
        places = sorted(self.places)
        at = [log(x) if self.logarithmic else x for x in places]
        width = (at[-1] - at[0]) or 1.0
        labels = [self.places[x] for x in places]
        kept = labels_apart([(x - at[0]) / width for x in at], labels, first=0)
        ax.set_xticks([places[i] for i in kept], [labels[i] for i in kept])
        ax.set_xticks([], minor=True)

    def _draw_arm(self, figure: Figure, ax: Axes, arm: str, points: Sequence[Mapping[str, Any]]) -> None:
        style = self.styles[arm]
        ended = [point for point in points if point["above"] is not None]
        look: dict[str, Any] = {"color": style.colour, "linestyle": style.line, "lw": 1.3, "gid": "join"}
        ax.plot([point["x"] for point in ended], [point["above"] for point in ended], **look)
        for point in points:
            diverged, chosen = point["above"] is None, point["chosen"]
            at_top = offset_copy(ax.get_xaxis_transform(), figure, x=self._aside(point), units="points")
            ax.plot(
                [point["x"]],
                [NEAR_TOP if diverged else point["above"]],
                linestyle="",
                marker="x" if diverged else style.marker,
                markersize=mark_points(style.marker) * (1.5 if chosen else 1),
                color=style.colour,
                markeredgecolor="black" if chosen else style.colour if diverged else "white",
                markeredgewidth=1.2 if chosen or diverged else 0.6,
                transform=at_top if diverged else ax.transData,
                zorder=4 if chosen else 3,
                clip_on=False,
                gid="diverged" if diverged else "chosen" if chosen else self.gid,
            )
        ax.plot([], [], **look | {"marker": style.marker, "label": arm, "gid": None})

    def _aside(self, point: Mapping[str, Any]) -> float:
        """Return by how many points a cross is moved aside, so that crosses of several arms can all be seen."""
        at_x = [other["arm"] for other in self.points if other["above"] is None and other["x"] == point["x"]]
        if len(at_x) < 2 or point["above"] is not None:
            return 0.0
        return (at_x.index(point["arm"]) - (len(at_x) - 1) / 2) * min(APART, MOST_APART / (len(at_x) - 1))


def tuning_panels(tuning: Tuning, *, arms: Sequence[str]) -> list[Panel]:
    """Return a panel for each tuned setting and one for the number of trials; an empty list before any trial
    has ended.

    Args:
        arms: arms of the experiment in order, which decides their styles.
    """
    tuned = [arm for arm in tuning.arms if any(trial.loss is not None for trial in arm.trials)]
    if not tuned:
        return []
    styles = arm_styles([*dict.fromkeys([*arms, *(arm.arm for arm in tuned)])])
    panels = [_by_setting(path, tuned, styles, place) for place, path in enumerate(tuning.settings)]
    return [*panels, _by_trials(tuned, styles)]


def _by_setting(path: str, tuned: Sequence[TunedArm], styles: Mapping[str, Style], place: int) -> Panel:
    """Return the panel of a setting: for each value the lowest loss over the values of the other settings."""
    values = list(
        {shown(trial.values[path]): trial.values[path] for arm in tuned for trial in arm.trials}.values()
    )
    numeric = all(map(is_number, values))
    x_of = {shown(value): float(value) if numeric else float(at) for at, value in enumerate(values)}
    points = [point for arm in tuned for point in _points_of(arm, path, x_of)]
    title = setting_name(path).title
    marks = TrialMarks(
        label=path,
        gid="trial",
        logarithmic=numeric and is_logarithmic(values),
        places={x_of[shown(value)]: brief(value) if numeric else shown(value).strip('"') for value in values},
        points=points,
        styles=styles,
    )
    return _panel(marks, name=f"tuning-{place + 1}", title=f"Loss over the {title}", letter=letters(place))


def _points_of(arm: TunedArm, path: str, x_of: Mapping[str, float]) -> list[dict[str, Any]]:
    losses: dict[str, list[float]] = {}
    for trial in arm.trials:
        losses.setdefault(shown(trial.values[path]), []).extend([] if trial.loss is None else [trial.loss])
    lowest = {value: min(ended, default=None) for value, ended in losses.items()}
    best = min(loss for loss in lowest.values() if loss is not None)
    chosen = None if arm.chosen is None else shown(arm.chosen[path])
    return [
        {"arm": arm.arm, "value": at, "x": x_of[at], "loss": loss, "chosen": at == chosen}
        | {"above": None if loss is None else loss - best}
        for at, loss in sorted(lowest.items(), key=lambda pair: x_of[pair[0]])
    ]


def _by_trials(tuned: Sequence[TunedArm], styles: Mapping[str, Style]) -> Panel:
    """Return the panel of the best loss that is expected from fewer trials."""
    points = []
    for arm in tuned:
        expected = expected_best([trial.loss for trial in arm.trials])
        points += [
            {
                "arm": arm.arm,
                "value": str(trials),
                "x": float(trials),
                "loss": loss,
                "above": loss - expected[-1],
                "chosen": False,
            }
            for trials, loss in enumerate(expected, start=1)
        ]
    marks = TrialMarks("Number of trials", "expected", False, {}, points, styles)
    return _panel(marks, name="tuning-trials", title="Expected best loss over the number of trials", letter="")


def _panel(marks: TrialMarks, *, name: str, title: str, letter: str) -> Panel:
    rows = DataFrame(marks.points, columns=["arm", "value", "loss", "above"])
    sentences = [
        f"{arm}: " + ", ".join(f"{at} {number(loss, 3) if loss == loss else 'diverged'}" for at, loss in pairs)
        for arm, pairs in (
            (arm, list(zip(part["value"], part["loss"].astype(float), strict=True)))
            for arm, part in rows.groupby("arm", sort=False)
        )
    ]
    return Panel(
        name=name,
        kind="trials",
        measure="validation",
        metric="loss",
        title=title,
        unit="nats",
        digits=3,
        data=name,
        content=marks,
        rows=rows,
        points=marks.points,
        description=". ".join(sentences) + ".",
        letter=letter,
        id=name,
    )
