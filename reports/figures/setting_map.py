"""Map of a score over two settings: a cell for each arm, in which colour is the mean.

It replaces marks if arms have so many lines that marks would cover each other. Drawn artists can be found by
their gid: `map`, `reference`, `largest`, `smallest`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from reports.figures.by_arm import shown_name
from reports.figures.files import LEGEND_LINE_INCHES, PANEL_INCHES
from reports.figures.maps import SHADES
from reports.figures.panel import FigureKind
from reports.figures.style import TICK_LETTERS, thinned
from reports.words import number

MOST_ROWS = 40
"""Largest number of rows of a map; arms of further lines are left out."""

ROW_INCHES, ROWS_IN_PANEL = 0.12, 20
"""Height that a panel grows for each row beyond so many."""

LABELS = 20
"""Largest number of labels beside the rows."""


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
        more = max(0, len(self.row_names) - ROWS_IN_PANEL) * ROW_INCHES
        figure.set_figheight(PANEL_INCHES[1] + more)
        handles = draw_setting_map(self, ax=figure.subplots())
        figure.legend(handles=handles, loc="outside lower left", frameon=False, fontsize="small")
        lines = sum(str(handle.get_label()).count("\n") + 1 for handle in handles)
        figure.set_figheight(figure.get_figheight() + LEGEND_LINE_INCHES * lines)


def draw_setting_map(drawn: SettingMap, *, ax: Axes) -> list[Any]:
    """Draw a map, and return the handles of its legend: the largest and the smallest mean, and the frame."""
    means_RP = drawn.means_RP()
    low, high = float(np.nanmin(means_RP)), float(np.nanmax(means_RP))
    mesh = ax.pcolormesh(
        np.arange(means_RP.shape[1] + 1) - 0.5,
        np.arange(means_RP.shape[0] + 1) - 0.5,
        np.ma.masked_invalid(means_RP),
        cmap=colormaps["cividis"].resampled(SHADES),
        vmin=low,
        vmax=high if high > low else low + 1,
        edgecolors="face",  # closes the thin gaps between cells
        linewidth=0.4,
        gid="map",
    )
    ax.set_facecolor("0.85")  # colour of cells without a number
    _label(drawn, ax=ax)
    bar = ax.figure.colorbar(mesh, ax=ax, label=drawn.axis_label)
    bar.outline.set_visible(False)
    assert bar.solids is not None
    bar.solids.set(edgecolor="face", linewidth=0.4)
    handles: list[Any] = [
        _mark(which, point, drawn, marker=marker, ax=ax)
        for (which, point), marker in zip(drawn.extremes().items(), ("^", "v"), strict=True)
    ]
    for point in drawn.points:
        if point["arm"] == drawn.reference:
            row, column = drawn._cell(point)
            frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, ec="#D55E00", lw=1.6, clip_on=False)
            frame.set(gid="reference", label=shown_name(drawn.reference))
            handles.append(ax.add_patch(frame))
    return handles


def _mark(which: str, point: Mapping[str, Any], drawn: SettingMap, *, marker: str, ax: Axes) -> Line2D:
    """Mark the cell of an arm, and return the mark with its number and its name as a label."""
    row, column = drawn._cell(point)
    label = f"{which}: {number(point['mean'], drawn.digits)}, {point['arm']}"
    (mark,) = ax.plot([column], [row], linestyle="", marker=marker, color="white", markeredgecolor="black", ms=7)
    mark.set(gid=which, label=shown_name(label))
    return mark


def _label(drawn: SettingMap, *, ax: Axes) -> None:
    """Write ticks and labels of both axes, as many as have room."""
    values = drawn.along["values"]
    columns = thinned(list(range(len(values))), most=max(1, TICK_LETTERS // (max(map(len, values)) + 1)))
    ax.set_xticks(columns, [shown_name(values[column]) for column in columns])
    rows = thinned(list(range(len(drawn.row_names))), most=LABELS)
    ax.set_yticks(rows, [shown_name(drawn.row_names[row]) for row in rows], fontsize="small")
    ax.set_xlabel(shown_name(drawn.along["label"]))
    ax.set_ylabel(shown_name(drawn.row_label))
    for side in ax.spines.values():
        side.set_visible(False)
    ax.tick_params(length=0)


def caption(bands: set[str], about_tasks: bool) -> str:
    """Return the sentence that says what cells are."""
    cells = "means over seeds" if "seeds" in bands else "single runs"
    return f"Cells are {cells}, one for each arm. Triangles mark the largest and the smallest number."


SETTING_MAP = FigureKind("settings", None, caption)
"""Kind of panels with a cell for each arm at its values of two settings."""
