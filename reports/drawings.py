"""Panels as files: the picture as SVG, and the rows it shows as CSV."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from pandas import DataFrame

from ablations.results import COLUMNS
from reports import svg
from reports.by_setting import by_setting
from reports.curves import choose
from reports.distances import choose_pairs, run_distance
from reports.figures import by_arm, shown_name
from reports.groups import by_group, choose_groups
from reports.lines import written_above
from reports.maps import choose_steps, map_table, over_training
from reports.panels_by_setting import runs_by_setting
from reports.panels_within_arms import MOST_PANELS
from reports.pictures import choose_picture, picture

PANEL_INCHES = 4.8, 3.5
"""Width and height of a panel above its legend: on a phone its text is about as large as the page's."""

FRAME_INCHES = 2.4
"""Height of a frame of a picture, two of which stand side by side."""

LEGEND_LINE_INCHES = 0.2

TITLE_INCHES = 0.25
"""Height of the title of a panel that has one."""

LEGEND_ROW_LETTERS = 54
"""Letters that stand side by side in a legend of several columns, each with room for six more."""


class Drawing(NamedTuple):
    """A drawn panel: what goes into its files and into the page."""

    svg: str
    csv: str


def draw(table: DataFrame, panel: dict[str, Any], *, arms: Sequence[str]) -> Drawing:
    """The panel's picture, its legend below it, and the rows it shows.

    Args:
        panel: as `figures` describes it.
        arms: the experiment's, in its order.
    """
    with sns.axes_style("ticks"), sns.plotting_context("paper", font_scale=1.1):
        figure = Figure(figsize=PANEL_INCHES, layout="constrained")
        if panel.get("arms") is not None and panel["kind"] == "arms":
            table = table[table["arm"].isin(panel["arms"])]
        if panel["kind"] == "pictures":
            return _picture(table, panel, figure)
        if panel["kind"] == "settings":
            return _by_setting(panel, figure, arms=arms)
        ax, rows = _drawn(table, panel, ax=figure.subplots(), arms=arms)
        title = ax.get_title(loc="left")
        height = PANEL_INCHES[1] + TITLE_INCHES * len(title.splitlines())
        legend = ax.get_legend()
        if legend is not None:
            height += _moved_below(figure, legend, columns=panel["kind"] == "groups")
        figure.set_figheight(height)
        return _rendered(figure, panel, rows)


def _rendered(figure: Figure, panel: dict[str, Any], rows: DataFrame) -> Drawing:
    drawn = svg.render(figure, name=panel["id"], title=panel["title"])
    return Drawing(svg=drawn, csv=rows[list(COLUMNS)].to_csv(index=False, lineterminator="\n"))


def _picture(table: DataFrame, panel: dict[str, Any], figure: Figure) -> Drawing:
    """Frames in two columns, the arm above, the legend below."""
    rows = choose_picture(table, arm=panel["arm"])
    layers = rows["layer"].nunique()
    axes = figure.subplots(-(-layers // 2), 2, squeeze=False).ravel().tolist()
    for unused in axes[layers:]:
        unused.remove()
    picture(table, axes=axes[:layers], arm=panel["arm"], by=panel["metric"])
    figure.suptitle(shown_name(panel["arm"]), x=0.02, ha="left", fontsize="medium")
    first = axes[0].get_legend()
    assert first is not None
    handles, labels = axes[0].get_legend_handles_labels()
    first.remove()
    beside = _columns(labels)
    figure.legend(handles, labels, loc="outside lower left", ncols=beside, frameon=False, fontsize="small")
    figure.set_figheight(
        FRAME_INCHES * -(-layers // 2) + LEGEND_LINE_INCHES * -(-len(labels) // beside) + TITLE_INCHES
    )
    return _rendered(figure, panel, rows)


def _by_setting(panel: dict[str, Any], figure: Figure, *, arms: Sequence[str]) -> Drawing:
    """A mark an arm, the legend below the names under the axis, and a row a run."""
    ax = by_setting(panel, ax=figure.subplots(), arms=arms)
    names = max(label.get_text().count("\n") for label in ax.get_xticklabels())
    above = len(written_above(ax))
    legend, lines = ax.get_legend(), 0
    if legend is not None:
        legend.remove()
        handles, labels = ax.get_legend_handles_labels()
        lines = sum(label.count("\n") + 1 for label in labels)
        figure.legend(handles, labels, loc="outside lower left", frameon=False, fontsize="small")
    figure.set_figheight(PANEL_INCHES[1] + LEGEND_LINE_INCHES * (lines + names + max(0, above - 1)))
    drawn = svg.render(figure, name=panel["id"], title=panel["title"])
    return Drawing(svg=drawn, csv=runs_by_setting(panel).to_csv(index=False, lineterminator="\n"))


def _drawn(table: DataFrame, panel: dict[str, Any], *, ax: Axes, arms: Sequence[str]) -> tuple[Axes, DataFrame]:
    """The panel's axes, and its rows."""
    chosen = {"measure": panel["measure"], "metric": panel["metric"]}
    if panel["kind"] == "pairs":
        rows = choose_pairs(table, metric=panel["metric"], arms=arms)
        return run_distance(table, ax=ax, metric=panel["metric"], arms=arms), rows
    if panel["kind"] == "groups":
        rows = choose_groups(table, family=panel["family"], **chosen)
        some = [arm for arm in arms if arm in set(rows["arm"])][:MOST_PANELS]
        by_group(table, ax=ax, arm=panel["arm"], family=panel["family"], arms=some, **chosen)
        return ax, rows[rows["arm"] == panel["arm"]]
    if panel["kind"] == "maps":
        table, arms = map_table(table, arms=arms, **chosen)
        over_training(table, ax=ax, arm=panel["arm"], arms=arms, group=panel["group"], **chosen)
        return ax, choose_steps(table, arm=panel["arm"], group=panel["group"], **chosen)
    chosen |= {"group": panel["group"], "axis": panel["axis"]}
    by_arm(table, ax=ax, arms=arms, **chosen)
    return ax, choose(table, **chosen)


def _moved_below(figure: Figure, legend: Legend, *, columns: bool) -> float:
    """Put the legend below the axes; returns its height in inches."""
    labels = [text.get_text() for text in legend.get_texts()]
    moved = figure.legend(
        [handle for handle in legend.legend_handles if handle is not None],
        labels,
        loc="outside lower left",
        frameon=False,
        ncols=_columns(labels) if columns else 1,
        alignment="left",
        handlelength=legend.handlelength,
        **({"title": legend.get_title().get_text()} if columns else {}),
    )
    legend.remove()
    with svg.lacking_glyphs():
        return float(moved.get_window_extent().height / figure.dpi)


def _columns(labels: Sequence[str]) -> int:
    """How many of the labels stand side by side."""
    return max(1, min(len(labels), LEGEND_ROW_LETTERS // (max(map(len, labels)) + 6)))
