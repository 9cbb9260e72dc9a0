"""Figures of a page in its order, the panels that each has, and panels as files: the picture as SVG, and the rows
it shows as CSV."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from pandas import DataFrame

from reports.figures import svg
from reports.figures.by_arm import ArmLines, draw_arms, shown_name
from reports.figures.by_setting import SettingMarks, by_setting
from reports.figures.groups import GroupLines, draw_groups
from reports.figures.lines import written_above
from reports.figures.maps import StepMap, draw_map
from reports.figures.pairs import PairLines, draw_pairs
from reports.figures.panel import FigureText, Kind, Panel, caption, letters
from reports.figures.panels import arm_panels, group_panels, map_panels, pair_panels, picture_panels
from reports.figures.pictures import Cloud, draw_picture
from reports.figures.texts import (
    CHANGE_BY_RANK,
    CHANGE_BY_TAG,
    EXAMPLES,
    GEOMETRY,
    INDEPENDENCE,
    INFLUENCE_BY_RANK,
    INFLUENCE_BY_TAG,
    LAYER_CHANGE,
    LEARNING,
    NEIGHBOURS,
    OTHER_INFORMATION,
    OVER_TRAINING,
    PICTURES,
    PROBES,
    RETRIEVAL,
    RUN_DISTANCE,
    SCORES_OVER_TRAINING,
    STRUCTURE,
    TOKEN_INFORMATION,
)
from reports.folder import QUICK
from reports.scores.by_setting import setting_figures, setting_rows
from reports.scores.factors import Factor
from reports.words import listed

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
    """Drawing of a panel: the text of its files and of the page."""

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
        height += _moved_below(figure, legend, columns=isinstance(content, GroupLines))
    figure.set_figheight(height)


def _picture(content: Cloud, figure: Figure) -> None:
    """Draw frames in two columns, the arm above, the legend below."""
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
    """Draw a mark an arm, the legend below the names under the axis."""
    ax = by_setting(content, ax=figure.subplots())
    names = max(label.get_text().count("\n") for label in ax.get_xticklabels())
    above = len(written_above(ax))
    legend, lines = ax.get_legend(), 0
    if legend is not None:
        legend.remove()
        handles, labels = ax.get_legend_handles_labels()
        lines = sum(label.count("\n") + 1 for label in labels)
        figure.legend(handles, labels, loc="outside lower left", frameon=False, fontsize="small")
    figure.set_figheight(PANEL_INCHES[1] + LEGEND_LINE_INCHES * (lines + names + max(0, above - 1)))


def _moved_below(figure: Figure, legend: Legend, *, columns: bool) -> float:
    """Put the legend below the axes; return its height in inches."""
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
    """Return the number of labels that stand side by side."""
    return max(1, min(len(labels), LEGEND_ROW_LETTERS // (max(map(len, labels)) + 6)))


FIGURES = (
    LEARNING,
    LAYER_CHANGE,
    TOKEN_INFORMATION,
    OTHER_INFORMATION,
    RUN_DISTANCE,
    NEIGHBOURS,
    GEOMETRY,
    CHANGE_BY_RANK,
    CHANGE_BY_TAG,
    INFLUENCE_BY_RANK,
    INFLUENCE_BY_TAG,
    OVER_TRAINING,
    PICTURES,
    PROBES,
    STRUCTURE,
    RETRIEVAL,
    EXAMPLES,
    SCORES_OVER_TRAINING,
    INDEPENDENCE,
)
"""In the order of the page."""

PANELS: dict[Kind, Callable[..., Iterator[Panel]]] = {
    "arms": arm_panels,
    "pairs": pair_panels,
    "groups": group_panels,
    "maps": map_panels,
    "pictures": picture_panels,
}
"""Functions that make the panels of one metric of a figure, by kind."""


@dataclass(frozen=True, eq=False)
class PageFigure:
    """Figure of the page with its panels."""

    text: FigureText
    panels: tuple[Panel, ...]
    notes: tuple[str, ...]
    """Sentences for below it."""
    factor: Factor | None = None
    """The setting that its arms vary, if it is a figure of one."""

    def entry(self) -> dict[str, Any]:
        """Return the figure as plain data, for the page and report.json."""
        text = self.text
        bands = {curve["band"] for panel in self.panels for curve in panel.curves}
        facts = {
            "name": text.name,
            "title": text.title,
            "kind": text.kind,
            "section": text.section,
            "caption": caption(text.kind, bands, about_tasks=text.section == "tasks"),
            "notes": list(self.notes),
            "how_to_read": list(text.how_to_read),
            "n": text.n,
            "d": text.d,
            "panels": [panel.entry() for panel in self.panels],
            "samples": _samples(self.panels),
        }
        if self.factor is None:
            return facts
        rows = setting_rows(self.factor, self.panels)
        return facts | {"setting": self.factor.setting, "arms": self.factor.arms, "rows": rows}


def figures(
    table: DataFrame, *, arms: Sequence[str], factors: Sequence[Factor] = (), quick: Collection[str] = ()
) -> list[PageFigure]:
    """Return every figure that has rows, with its panels; scores by what the arms vary stand before the maps.

    Args:
        table: the results.
        arms: the experiment's, in its order.
        factors: the settings that its arms vary.
        quick: measures of which a figure says that they are no evidence.
    """
    candidates: list[tuple[FigureText, list[Panel], Factor | None]]
    candidates = [(text, _panels(table, text, arms=list(arms)), None) for text in FIGURES]
    place = FIGURES.index(OVER_TRAINING)
    by_setting = setting_figures(table, factors, arms=arms)
    candidates[place:place] = [(figure.text, figure.panels, figure.factor) for figure in by_setting]
    shown = [(text, panels, factor) for text, panels, factor in candidates if panels]
    return [
        _figure(text, panels, factor, number=number, quick=quick)
        for number, (text, panels, factor) in enumerate(shown, start=1)
    ]


def _panels(table: DataFrame, text: FigureText, *, arms: list[str]) -> list[Panel]:
    return [panel for shown in text.shown for panel in PANELS[text.kind](table, text, shown, arms=arms)]


def _figure(
    text: FigureText, panels: list[Panel], factor: Factor | None, *, number: int, quick: Collection[str]
) -> PageFigure:
    """Return the figure with its place on the page: its panels get their letters."""
    lettered = tuple(
        replace(panel, letter=letters(i), id=f"f{number}{letters(i)}") for i, panel in enumerate(panels)
    )
    notes = dict.fromkeys(note for panel in panels for note in panel.notes if note)
    return PageFigure(text, lettered, (*_quick_words(lettered, quick), *notes), factor)


def _quick_words(panels: Sequence[Panel], quick: Collection[str]) -> list[str]:
    """Return the sentence about panels of quick measures: which they are, unless they are all."""
    those = [panel.letter for panel in panels if panel.measure in quick]
    if 0 < len(those) < len(panels):
        return [f"Panel{'s' * (len(those) > 1)} {listed(those)}: {QUICK[0].lower()}{QUICK[1:]}"]
    return [QUICK] * bool(those)


def _samples(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Return the curves behind panels, once for all panels that have the same: their letters, and the curves."""
    samples: list[dict[str, Any]] = []
    for panel in panels:
        same = next((sample for sample in samples if sample["curves"] == panel.curves), None)
        if same is None:
            samples.append(same := {"panels": [], "curves": panel.curves})
        same["panels"].append(panel.letter)
    return samples
