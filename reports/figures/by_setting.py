"""Figure of a score against a setting: a mark for each arm, with its seeds beside it.

If arms have so many lines that marks would cover each other, a map over two settings replaces the marks. It has
a cell for each arm, in which colour is the mean.

Drawn artists can be found by their gid: `mean`, `interval`, `seed`, `join`, `floor`, `untrained` and `reference`
among marks; `map`, `reference`, `largest` and `smallest` in a map.
"""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.transforms import ScaledTranslation
from pandas import DataFrame

from reports.figures.by_arm import shown_name
from reports.figures.files import LEGEND_LINE_INCHES, PANEL_INCHES
from reports.figures.lines import fit_values, intervals_beyond, where_beyond, write_above, written_above
from reports.figures.maps import draw_cells
from reports.figures.panel import BEYOND, FigureKind
from reports.figures.style import GREY, LINES, TICK_LETTERS, Style, mark_points, thinned
from reports.words import count, is_absent, number

SEED_POINTS = 5.5
"""Distance from a mark to its seeds on the right, in points."""

LINE_POINTS = {True: 7.0, False: 13.0}
"""Distance between lines, in points: if the axis has numbers (True), and if it has names (False)."""

AXIS_LETTERS = 48
"""Number of digits and signs that fit side by side below an axis."""

NAME_LETTERS = 40
"""Number of letters that fit side by side below an axis in a column of a paper; letters are wider than digits."""

LABEL_LETTERS = 30
"""Largest number of letters in a line of a label beside an axis."""

MOST_ROWS = 40
"""Largest number of rows of a map; arms of further lines are left out."""

ROW_INCHES, ROWS_IN_PANEL = 0.12, 20
"""Inches by which a panel grows for each further row, and the number of rows for which it has room."""

LABELS = 20
"""Largest number of labels beside the rows."""


class SettingMarks(NamedTuple):
    """Content of a figure of a score against a setting."""

    axis_label: str
    """Label of the axis of the score."""
    floor: str
    """Data on which the chance level is computed, in a few words."""
    along: Mapping[str, Any]
    """Axis of the setting: `setting, label, numeric, logarithmic, places, values, reference`."""
    points: list[dict[str, Any]]
    """Mean of each arm; the untrained encoder has no `x`."""
    runs: list[dict[str, Any]]
    """Score of each run."""
    styles: Mapping[str, Style]
    """Styles by arm."""

    def entry(self) -> dict[str, Any]:
        """Return the content as plain data, without styles."""
        return {name: value for name, value in self._asdict().items() if name != "styles"}

    def draw(self, figure: Figure) -> None:
        """Draw a mark for each arm, with the legend at the bottom of the figure."""
        ax = by_setting(self, ax=figure.subplots())
        names = max(label.get_text().count("\n") for label in ax.get_xticklabels())
        above = len(written_above(ax))
        legend, lines = ax.get_legend(), 0
        if legend is not None:
            legend.remove()
            handles, labels = ax.get_legend_handles_labels()
            lines = sum(label.count("\n") + 1 for label in labels)
            figure.legend(handles, labels, loc="outside lower left", frameon=False, fontsize="small")
        figure.set_figheight(figure.get_figheight() + LEGEND_LINE_INCHES * (lines + names + max(0, above - 1)))


def runs_by_setting(drawn: SettingMarks, *, score: str) -> DataFrame:
    """Return the runs as rows of a CSV: the arm's value of the setting, the run's score and its chance level."""
    at = {point["arm"]: {name: point[name] for name in ("at", "line")} for point in drawn.points}
    setting = drawn.along["setting"]
    return DataFrame([{"setting": setting, **at[run["arm"]], "score": score, **run} for run in drawn.runs])


def by_setting(drawn: SettingMarks, *, ax: Axes) -> Axes:
    """Draw the mean of each arm with its 95% t interval, and its seeds, at the arm's value of the setting;
    return the axes.

    Numbers are placed at their value, and names side by side. Arms look as in every figure of the experiment.
    Arms of one line are joined if the values are numbers or if there are several lines.
    """
    along = drawn.along
    points = [point for point in drawn.points if point["x"] is not None]
    lines = list(dict.fromkeys(point["line"] for point in points))
    apart = LINE_POINTS[along["numeric"]]
    handles = []
    for i, line in enumerate(lines):
        of_line, right = [point for point in points if point["line"] == line], (i - (len(lines) - 1) / 2) * apart
        if along["numeric"] or len(lines) > 1:
            handles += _join(
                of_line, ax=ax, right=right, look=LINES[i % len(LINES)], label=line if len(lines) > 1 else ""
            )
        for point in of_line:
            _draw_arm(point, drawn.runs, ax=ax, right=right, style=drawn.styles[point["arm"]])
    handles += _draw_levels(drawn, points, ax=ax)
    _label_places(along, ax=ax)
    ax.set_ylabel(shown_name(drawn.axis_label, LABEL_LETTERS))
    if handles:
        ax.legend(handles=handles, frameon=False, fontsize="small")
    sns.despine(ax=ax)
    return ax


def _join(points: Sequence[Mapping[str, Any]], *, ax: Axes, right: float, look: Any, label: str) -> list[Line2D]:
    """Draw the line through arms that differ in the setting alone. Return it for the legend if it has a label."""
    x, y = [point["x"] for point in points], [point["mean"] for point in points]
    (drawn,) = ax.plot(x, y, color="0.6", lw=1.1, linestyle=look, zorder=1.5, gid="join", label=shown_name(label))
    drawn.set_transform(_moved(ax, right))
    return [drawn] if label else []


def _draw_arm(
    point: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], *, ax: Axes, right: float, style: Any
) -> None:
    x, values = point["x"], [run["value"] for run in runs if run["arm"] == point["arm"]]
    if len(values) > 1:
        ax.plot(
            *([x] * len(values), values),
            linestyle="",
            marker="o",
            markersize=3.4,
            markerfacecolor="none",
            markeredgecolor=style.colour,
            markeredgewidth=0.8,
            transform=_moved(ax, right + SEED_POINTS),
            zorder=2.5,
            gid="seed",
        )
    if not is_absent(point["low"]):
        bar = _moved(ax, right)
        ends = (point["low"], point["high"])
        ax.plot([x, x], ends, color=style.colour, lw=1.8, solid_capstyle="butt", transform=bar, gid="interval")
    ax.plot(
        *([x], [point["mean"]]),
        linestyle="",
        marker=style.marker,
        markersize=mark_points(style.marker),
        color=style.colour,
        markeredgecolor="white",
        markeredgewidth=0.7,
        transform=_moved(ax, right),
        zorder=4,
        gid="mean",
    )


def _moved(ax: Axes, points: float) -> Any:
    """Return a transform to data coordinates that shifts to the right by `points`."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return ax.transData + ScaledTranslation(points / 72, 0, figure.dpi_scale_trans)


def _draw_levels(marks: SettingMarks, points: Sequence[Mapping[str, Any]], *, ax: Axes) -> list[Line2D]:
    """Draw the chance level and the untrained encoder, and return their handles. A level that would make the
    arms unreadable is written above the axes instead."""
    drawn = {point["arm"] for point in points}
    values = np.array([run["value"] for run in marks.runs if run["arm"] in drawn], float)
    bands = np.array(
        [point[end] for point in points for end in ("low", "high") if not is_absent(point[end])], float
    )
    lines: dict[Any, list[tuple[float, float]]] = {}  # lines of other sizes may have other chance levels
    for point in sorted(points, key=lambda point: point["x"]):
        lines.setdefault(point["line"], []).append((point["x"], point["floor"]))
    floors = [floor for level in lines.values() for _, floor in level if np.isfinite(floor)]
    untrained = [point["mean"] for point in marks.points if point["x"] is None]
    levels = {
        "floor": (f"chance level ({marks.floor})", floors),
        "untrained": ("untrained", untrained),
    }
    inside: list[str] = []
    for name, (_, numbers) in levels.items():
        drawn_numbers = [number for kept in [*inside, name] for number in levels[kept][1]]
        if numbers and fit_values(ax, values, bands, np.array(drawn_numbers)):
            inside.append(name)
    fit_values(ax, values, bands, np.array([number for name in inside for number in levels[name][1]], float))
    handles = []
    if "floor" in inside:
        style: dict[str, Any] = {"color": GREY, "linestyle": "--", "lw": 1, "zorder": 1, "gid": "floor"}
        handles += [ax.plot(*zip(*level, strict=True), **style)[0] for level in lines.values()][:1]
    if "untrained" in inside:
        handles.append(
            ax.axhline(untrained[0], color="black", linestyle=(0, (1, 2)), lw=1, zorder=1, gid="untrained")
        )
    for handle, name in zip(handles, inside, strict=True):
        handle.set_label(levels[name][0])
    beyond = [
        where_beyond(ax, np.array(numbers), name=label)
        for name, (label, numbers) in levels.items()
        if numbers and name not in inside
    ]
    beyond += intervals_beyond(ax, bands)
    if beyond:
        write_above(ax, "\n".join(beyond))
    return handles


def _label_places(along: Mapping[str, Any], *, ax: Axes) -> None:
    """Set the scale, ticks and label of the axis, and mark the reference value."""
    places = along["places"]
    labels = [count(int(value)) if value.isdecimal() else shown_name(value) for value in along["values"]]
    if along["logarithmic"]:
        ax.set_xscale("log", base=2)
    low, high = (np.log2(places[end]) if along["logarithmic"] else places[end] for end in (0, -1))
    margin = 0.08 * (high - low) if along["numeric"] else 0.5
    ends = np.array([low - margin, high + margin + (0 if not along["numeric"] else 0.02 * (high - low))])
    ax.set_xlim(*(2**ends if along["logarithmic"] else ends))
    if along["numeric"]:
        shares = [((np.log2(x) if along["logarithmic"] else x) - ends[0]) / (ends[1] - ends[0]) for x in places]
        first = 0 if along["reference"] is None else places.index(along["reference"])
        kept = labels_apart(shares, labels, first=first)
        ax.set_xticks([places[i] for i in kept], [labels[i] for i in kept])
        ax.set_xticks([], minor=True)
    else:
        _name_places(places, labels, ax=ax)
    if along["reference"] is not None:
        ax.axvline(along["reference"], color="0.9", lw=6, zorder=0, gid="reference")
    ax.set_xlabel(shown_name(along["label"]))


def labels_apart(shares: Sequence[float], labels: Sequence[str], *, first: int) -> list[int]:
    """Return the places whose labels have room beside each other; `first` and both ends have priority."""
    kept: list[int] = []
    for i in [first, 0, len(shares) - 1, *range(len(shares))]:
        room = [(len(labels[i]) + len(labels[j]) + 2) / 2 / AXIS_LETTERS for j in kept]
        if all(abs(shares[i] - shares[j]) >= need for j, need in zip(kept, room, strict=True)):
            kept.append(i)
    return sorted(kept)


def _name_places(places: Sequence[float], labels: Sequence[str], *, ax: Axes) -> None:
    """Write names below an axis: in several lines, or slanted if a word has no room."""
    room = NAME_LETTERS // len(places) - 1
    if all(len(word) <= room for label in labels for word in label.split()):
        ax.set_xticks(places, ["\n".join(wrap(label, room)) for label in labels])
    else:
        ax.set_xticks(places, labels, rotation=35, ha="right", rotation_mode="anchor")


class SettingMap(NamedTuple):
    """Content of a map of a score over two settings."""

    axis_label: str
    """Label of the colours."""
    along: Mapping[str, Any]
    """Axis of the setting along a row: `setting, label, numeric, logarithmic, places, values, reference`."""
    row_label: str
    """Setting that rows vary; empty if rows vary several."""
    row_names: tuple[str, ...]
    """Names of the rows, from the bottom."""
    points: list[dict[str, Any]]
    """Mean of each arm, with `x`, its place along the row, and `row`, the number of its row."""
    reference: str
    """Arm whose cell has a frame."""
    digits: int

    def entry(self) -> dict[str, Any]:
        """Return the content as plain data."""
        return self._asdict()

    def means_RP(self) -> np.ndarray:
        """Return the means by row (R) and place (P); NaN where there is no arm."""
        means_RP = np.full((len(self.row_names), len(self.along["places"])), np.nan)
        for point in self.points:
            means_RP[self._cell(point)] = point["mean"]
        return means_RP

    def extremes(self) -> dict[str, dict[str, Any]]:
        """Return the arms with the largest and the smallest mean."""
        by_mean = sorted(self.points, key=lambda point: point["mean"])
        return {"largest": by_mean[-1], "smallest": by_mean[0]}

    def _cell(self, point: Mapping[str, Any]) -> tuple[int, int]:
        return point["row"], self.along["places"].index(point["x"])

    def draw(self, figure: Figure) -> None:
        """Draw the map, with the legend at the bottom of the figure."""
        added_height = max(0, len(self.row_names) - ROWS_IN_PANEL) * ROW_INCHES
        figure.set_figheight(PANEL_INCHES[1] + added_height)
        handles = draw_setting_map(self, ax=figure.subplots())
        figure.legend(handles=handles, loc="outside lower left", frameon=False, fontsize="small")
        lines = sum(str(handle.get_label()).count("\n") + 1 for handle in handles)
        figure.set_figheight(figure.get_figheight() + LEGEND_LINE_INCHES * lines)


def draw_setting_map(drawn: SettingMap, *, ax: Axes) -> list[Any]:
    """Draw a map, and return the handles of its legend: the largest and the smallest mean, and the frame."""
    means_RP = drawn.means_RP()
    ends = float(np.nanmin(means_RP)), float(np.nanmax(means_RP))
    draw_cells(means_RP, ax=ax, ends=ends, label=drawn.axis_label)
    _label_cells(drawn, ax=ax)
    handles: list[Any] = [
        _mark(extreme, point, drawn, marker=marker, ax=ax)
        for (extreme, point), marker in zip(drawn.extremes().items(), ("^", "v"), strict=True)
    ]
    for point in drawn.points:
        if point["arm"] == drawn.reference:
            row, column = drawn._cell(point)
            frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, ec="#D55E00", lw=1.6, clip_on=False)
            frame.set(gid="reference", label=shown_name(drawn.reference))
            handles.append(ax.add_patch(frame))
    return handles


def _mark(extreme: str, point: Mapping[str, Any], drawn: SettingMap, *, marker: str, ax: Axes) -> Line2D:
    """Mark the cell of an arm, and return the mark with its number and its name as a label."""
    row, column = drawn._cell(point)
    label = f"{extreme}: {number(point['mean'], drawn.digits)}, {point['arm']}"
    (mark,) = ax.plot([column], [row], linestyle="", marker=marker, color="white", markeredgecolor="black", ms=7)
    mark.set(gid=extreme, label=shown_name(label))
    return mark


def _label_cells(drawn: SettingMap, *, ax: Axes) -> None:
    """Write ticks and labels of both axes, as many as have room."""
    values = drawn.along["values"]
    columns = thinned(list(range(len(values))), limit=max(1, TICK_LETTERS // (max(map(len, values)) + 1)))
    ax.set_xticks(columns, [shown_name(values[column]) for column in columns])
    rows = thinned(list(range(len(drawn.row_names))), limit=LABELS)
    ax.set_yticks(rows, [shown_name(drawn.row_names[row]) for row in rows], fontsize="small")
    ax.set_xlabel(shown_name(drawn.along["label"]))
    ax.set_ylabel(shown_name(drawn.row_label))


def marks_caption(bands: set[str], about_tasks: bool) -> str:
    """Return the sentence that says what marks and bars are."""
    sentence = "Marks are single runs in the colour and shape of their arm."
    if "seeds" in bands:
        sentence = (
            "Small dots are seeds. The marks beside them are their means, in the colour and shape of their arm. "
            "Bars are the 95% Student t intervals over seeds."
        )
    return f"{sentence} {BEYOND}"


def map_caption(bands: set[str], about_tasks: bool) -> str:
    """Return the sentence that says what cells are."""
    cells = "means over seeds" if "seeds" in bands else "single runs"
    return f"Cells are {cells}, one for each arm. Triangles mark the largest and the smallest number."


SETTING_MARKS = FigureKind("settings", None, marks_caption)
"""Kind of panels with a mark for each arm at its value of the setting."""

SETTING_MAP = FigureKind("settings", None, map_caption)
"""Kind of panels with a cell for each arm at its values of two settings."""
