"""Figures of one's own: a panel each, of the rows that its author selects and draws."""

import json
import re
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from pandas import DataFrame

from ablations.spec.figures import NamedFigure
from reports.figures.panel import FigureKind, FigureText, Panel

SOURCE = "The authors of this experiment wrote this figure: its source says how it is drawn."
OWN = FigureKind("own", None, lambda bands, about_tasks: SOURCE)


class OwnContent(NamedTuple):
    """Content of a figure of one's own."""

    figure: NamedFigure
    rows: DataFrame

    def draw(self, figure: Figure) -> None:
        """Let the function of its author draw the rows."""
        self.figure.draw(self.rows, figure)


def own_figure(table: DataFrame, figure: NamedFigure) -> tuple[FigureText, list[Panel]]:
    """Return the text and the panel of a figure of one's own; no panel where it has no rows.

    Raises:
        PluginError: its function fails, or returns no table.
    """
    rows, card = figure.rows(table), figure.card
    name = re.sub(r"\W+", "_", figure.name)
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
        more={"rows": json.loads(rows.to_json(orient="records", double_precision=15))},
    )
    return text, [panel] if len(rows) else []
