"""Figures and curves that a spec adds: figures by plugins, and published curves.

A plugin's figure has one panel, with the rows that its author selects and draws. Published curves are drawn
beside those of an experiment.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from pandas import DataFrame

from ablations.errors import PluginError
from ablations.spec.figures import NamedFigure, PublishedPoint, planned_figure
from reports.figures.by_arm import ArmLines, shown_name
from reports.figures.files import draw, lacking_glyphs
from reports.figures.lines import Beside
from reports.figures.panel import FigureKind, FigureText, Panel, lines_in_words

SOURCE = "The authors of this experiment wrote this figure: its source says how it is drawn."
OWN = FigureKind("own", None, lambda bands, about_tasks: SOURCE)


class OwnContent(NamedTuple):
    """Content of a figure by a plugin."""

    figure: NamedFigure
    rows: DataFrame

    def draw(self, figure: Figure) -> None:
        """Let the author's function draw the rows, then lay out the figure, which raises on a wrong
        formula."""
        self.figure.draw(self.rows, figure)
        with lacking_glyphs():
            self.figure.attempt(figure.draw_without_rendering)


def own_figures(
    table: DataFrame, records: Mapping[str, Mapping[str, str]]
) -> tuple[list[tuple[FigureText, list[Panel]]], dict[str, str]]:
    """Return the text and the panels of each plugin figure (an empty list if it has no rows), and an error
    sentence for each that fails, by its name on the page.

    Each figure is drawn once as a trial, so that a figure that fails leaves no gap in the numbering of
    figures.

    Args:
        table: the results.
        records: `Plugin.record` of each figure, by its name in the spec.
    """
    figures, failures = [], {}
    for name, record in records.items():
        try:
            text, panels = _figure(table, planned_figure(name, record))
            for panel in panels:
                draw(panel)
        except PluginError as error:
            failures[_on_the_page(name)] = str(error)
        else:
            figures.append((text, panels))
    return figures, failures


def _on_the_page(name: str) -> str:
    return re.sub(r"\W+", "_", name)


def _figure(table: DataFrame, figure: NamedFigure) -> tuple[FigureText, list[Panel]]:
    rows, card = figure.rows(table), figure.card
    name = _on_the_page(figure.name)
    text = FigureText(name, card.title, OWN, shown=(), n="", how_to_read=card.how_to_read)
    nothing: dict[str, Any] = {
        **dict.fromkeys(("group", "family", "arm", "axis")),
        **{"unit": "1", "digits": 0, "part": "", "folded": False, "points": [], "curves": [], "without_rows": []},
    }
    panel = Panel(
        **nothing,
        name=name,
        data=name,
        kind=OWN.name,
        measure=figure.name,
        metric="",
        title=card.title,
        content=OwnContent(figure, rows),
        rows=rows,
        description=" ".join(card.how_to_read),
        more={"rows": json.loads(figure.attempt(rows.to_json, orient="records", double_precision=15))},
    )
    return text, [panel] if len(rows) else []


def beside_published(panel: Panel, points: Sequence[PublishedPoint], *, objectives: Mapping[str, str]) -> Panel:
    """Return the panel with the published curves of its metric, if it has a line for each arm and such curves
    exist.

    Args:
        panel: any panel.
        points: points of published curves.
        objectives: kind of objective of each trained arm. A curve gets the colour of the first arm in the
            panel with its objective; without such an arm it is left out.
    """
    drawn = panel.content
    if not isinstance(drawn, ArmLines) or drawn.axis is not None:
        return panel
    shown = [curve.arm for curve in drawn.curves if drawn.family is None or curve.arm in drawn.family.arms]
    of_metric = [
        point
        for point in points
        if (point.measure, point.metric, point.group) == (drawn.measure, drawn.metric, drawn.group)
    ]
    curves, more = [], []
    for source, objective in dict.fromkeys((point.source, point.objective) for point in of_metric):
        arm = next((arm for arm in shown if objectives.get(arm) == objective), None)
        if arm is None:
            continue
        name = f"{source}, {objective.replace('_lm', ' LM')}"
        curve = [point for point in of_metric if (point.source, point.objective) == (source, objective)]
        y_by_x = {point.layer: point.value for point in curve}
        curves.append(Beside(shown_name(name), drawn.styles[arm].colour, y_by_x))
        more += [_published_point(point, name) for point in curve]
    if not curves:
        return panel
    return replace(
        panel,
        content=drawn._replace(beside=tuple(curves)),
        points=[*panel.points, *more],
        description=f"{panel.description} {lines_in_words(more, line='arm', digits=panel.digits)}",
        notes=(*panel.notes, PUBLISHED),
    )


PUBLISHED = "Long dashes with hollow points: published curves, of other text and other models; compare their form."


def _published_point(point: PublishedPoint, name: str) -> dict[str, Any]:
    """Return the entry of a published point. Its band is the error of reading it from the paper; NaN if it is
    not known."""
    error = float("nan") if point.error is None else point.error
    return {
        "arm": name,
        "layer": point.layer,
        "layer_to": point.layer_to,
        "mean": point.value,
        "low": point.value - error,
        "high": point.value + error,
        "band": "published",
        "seeds": 0,
        "floor": float("nan"),
    }
