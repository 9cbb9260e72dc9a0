"""Figures of one's own: a panel each, of the rows that its author selects and draws."""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from pandas import DataFrame

from ablations.errors import PluginError
from ablations.spec.figures import NamedFigure, planned_figure
from reports.figures.files import draw, lacking_glyphs
from reports.figures.panel import FigureKind, FigureText, Panel

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
