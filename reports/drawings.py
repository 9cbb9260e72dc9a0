"""Panels as files: the picture as SVG, and the rows it shows as CSV."""

from collections.abc import Sequence
from typing import NamedTuple

import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from reports import svg
from reports.by_setting import SettingMarks, by_setting
from reports.distances import PairLines, draw_pairs
from reports.figures import ArmLines, draw_arms, shown_name
from reports.groups import GroupLines, draw_groups
from reports.maps import StepMap, draw_map
from reports.panel import Panel
from reports.pictures import Cloud, draw_picture

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


def draw(panel: Panel) -> Drawing:
    """Draw a panel as an image, its legend below it, and write its data."""
    with sns.axes_style("ticks"), sns.plotting_context("paper", font_scale=1.1):
        figure = Figure(figsize=PANEL_INCHES, layout="constrained")
        match panel.content:
            case Cloud():
                _picture(panel.content, figure)
            case SettingMarks():
                _by_setting(panel.content, figure)
            case _:
                _lines_or_map(panel.content, figure)
        return Drawing(svg=svg.render(figure, name=panel.id, title=panel.title), csv=panel.csv_text())


def _lines_or_map(content: ArmLines | PairLines | GroupLines | StepMap, figure: Figure) -> None:
    ax = figure.subplots()
    match content:
        case ArmLines():
            draw_arms(content, ax=ax)
        case PairLines():
            draw_pairs(content, ax=ax)
        case GroupLines():
            draw_groups(content, ax=ax)
        case StepMap():
            draw_map(content, ax=ax)
    height = PANEL_INCHES[1] + TITLE_INCHES * len(ax.get_title(loc="left").splitlines())
    legend = ax.get_legend()
    if legend is not None:
        height += LEGEND_LINE_INCHES * _moved_below(ax, legend, columns=isinstance(content, GroupLines))
    figure.set_figheight(height)


def _picture(content: Cloud, figure: Figure) -> None:
    """Frames in two columns, the arm above, the legend below."""
    layers = content.points["layer"].nunique()
    axes = figure.subplots(-(-layers // 2), 2, squeeze=False).ravel().tolist()
    for unused in axes[layers:]:
        unused.remove()
    draw_picture(content, axes=axes[:layers])
    figure.suptitle(shown_name(content.arm), x=0.02, ha="left", fontsize="medium")
    first = axes[0].get_legend()
    assert first is not None
    handles, labels = axes[0].get_legend_handles_labels()
    first.remove()
    beside = _columns(labels)
    figure.legend(handles, labels, loc="outside lower left", ncols=beside, frameon=False, fontsize="small")
    figure.set_figheight(
        FRAME_INCHES * -(-layers // 2) + LEGEND_LINE_INCHES * -(-len(labels) // beside) + TITLE_INCHES
    )


def _by_setting(content: SettingMarks, figure: Figure) -> None:
    """A mark an arm, the legend below the names under the axis."""
    ax = by_setting(content, ax=figure.subplots())
    names = max(label.get_text().count("\n") for label in ax.get_xticklabels())
    above = sum(text.get_text().count("\n") + 1 for text in ax.texts)
    legend, lines = ax.get_legend(), 0
    if legend is not None:
        legend.remove()
        handles, labels = ax.get_legend_handles_labels()
        lines = sum(label.count("\n") + 1 for label in labels)
        figure.legend(handles, labels, loc="outside lower left", frameon=False, fontsize="small")
    figure.set_figheight(PANEL_INCHES[1] + LEGEND_LINE_INCHES * (lines + names + max(0, above - 1)))


def _moved_below(ax: Axes, legend: Legend, *, columns: bool) -> int:
    """Put the legend below the axes; returns how many lines of text it takes there."""
    labels = [text.get_text() for text in legend.get_texts()]
    beside = _columns(labels) if columns else 1
    sns.move_legend(
        ax,
        "upper left",
        bbox_to_anchor=(-0.06, -0.19),
        frameon=False,
        borderaxespad=0,
        ncols=beside,
        alignment="left",
        handlelength=legend.handlelength,
        **({"title": legend.get_title().get_text()} if columns else {}),
    )
    if columns:
        return -(-len(labels) // beside) + 1
    return sum(label.count("\n") + 1 for label in labels)


def _columns(labels: Sequence[str]) -> int:
    """How many of the labels stand side by side."""
    return max(1, min(len(labels), LEGEND_ROW_LETTERS // (max(map(len, labels)) + 6)))
