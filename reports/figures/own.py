"""Figures and curves that a spec brings: figures of one's own, a panel each, of the rows that its author selects
and draws; and curves that a paper published, drawn beside those of an experiment."""

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
    """Content of a figure of one's own."""

    figure: NamedFigure
    rows: DataFrame

    def draw(self, figure: Figure) -> None:
        """Let the function of its author draw the rows, then lay them out: a wrong formula fails there."""
        self.figure.draw(self.rows, figure)
        with lacking_glyphs():
            self.figure.attempt(figure.draw_without_rendering)


def own_figures(
    table: DataFrame, records: Mapping[str, Mapping[str, str]]
) -> tuple[list[tuple[FigureText, list[Panel]]], dict[str, str]]:
    """Return the text and the panel of each figure of one's own, no panel where it has no rows; and a sentence on
    each that fails, by its name on the page.

    Each is drawn once, and the drawing thrown away: so one that fails leaves no gap among the numbers of figures.

    Args:
        table: the results.
        records: `Plugin.record` of each, by its name in the spec.
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
    """Return the panel with the published curves of its metric, if it has a line an arm and there are any.

    Args:
        panel: any panel.
        points: of published curves.
        objectives: kind of the objective of each trained arm. A curve has the colour of the first arm that the
            panel shows with its objective; without such an arm it is left out.
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
    """Return the entry of a published point: its band is how sure its reading is."""
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
