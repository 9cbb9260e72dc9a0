"""The states after a model's final norm, which are no layer: a mark behind the last layer, and a note.

Only models from elsewhere that have such a norm have these rows (`ablate analyse`).
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from pandas import DataFrame

from ablations.results import AFTER_NORM
from reports.curves import order, with_columns
from reports.metrics import leads_on, named
from reports.numbers import listed, number
from reports.statistics import NORMAL_95, last_step
from reports.styles import Style


def after_norm(table: DataFrame, *, measure: str, metric: str, group: str | None = None) -> DataFrame:
    """The rows of a metric after the final norm, of all tokens or a group; of a metric that leads from a layer to
    the next, from the last layer to what the norm makes of it. None where there is no norm.

    Raises:
        ResultsError: the table lacks a column.
    """
    rows = with_columns(table)
    name = AFTER_NORM if group is None else f"{group}, {AFTER_NORM}"
    own = (rows["measure"] == measure) & (rows["metric"] == metric) & (rows["group"] == name).fillna(False)
    return last_step(rows[own.astype(bool) & rows["value"].notna()])


def mark_after_norm(rows: DataFrame, *, ax: Axes, styles: dict[str, Style], place: int) -> None:
    """A hollow mark for each arm, with its error over text, at a place of its own behind the layers.

    The axis grows to show them.
    """
    if rows.empty:
        return
    ends = list(ax.get_ylim())
    for arm, own in rows.groupby("arm", sort=False):
        value, style = float(own["value"].mean()), styles[str(arm)]
        errors = own["standard_error"].to_numpy(float)
        error = NORMAL_95 * errors[0] if len(errors) == 1 and np.isfinite(errors[0]) else 0.0
        (drawn,) = ax.plot(
            [place],
            [value],
            linestyle="",
            marker=style.marker,
            markersize=6.5,
            markerfacecolor="white",
            markeredgecolor=style.colour,
            zorder=3,
            gid="after norm",
        )
        ax.vlines(place, value - error, value + error, color=drawn.get_markeredgecolor(), lw=1.2, zorder=2)
        margin = 0.04 * (ends[1] - ends[0])
        ends = [min(ends[0], value - error - margin), max(ends[1], value + error + margin)]
    ax.set_ylim(*ends)
    labels = [label.get_text() for label in ax.get_xticklabels()]
    ax.set_xticks([*ax.get_xticks(), place], [*labels, "norm"])


def note_after_norm(rows: DataFrame, *, measure: str, metric: str, title: str, arms: Sequence[str]) -> str:
    """The same in a sentence; empty where there is no norm."""
    if rows.empty:
        return ""
    digits = named(measure, metric).digits
    means = rows.groupby("arm")["value"].mean()
    said = listed([f"{arm} {number(means[arm], digits)}" for arm in order(rows, list(arms))])
    where = "From the last layer through the final norm" if leads_on(measure, metric) else "After the final norm"
    return f"{where}, {title[0].lower()}{title[1:]}: {said}."
