"""Figure of where the spread over seeds comes from: the standard deviation with each source of chance.

What is drawn can be found again by its gid: `sd`, `interval`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import seaborn as sns
from matplotlib.figure import Figure
from pandas import DataFrame

from reports.figures.panel import Panel
from reports.words import is_absent, number


class SpreadMarks(NamedTuple):
    """Content of a panel: a mark with its interval for each set of sources."""

    label: str
    """Label of the axis below."""
    points: list[dict[str, Any]]
    """`says, sd, low, high` from top to bottom; `low` and `high` may be None."""

    def draw(self, figure: Figure) -> None:
        """Draw the marks, the first one on top."""
        ax = figure.subplots()
        places = range(len(self.points))
        for place, point in zip(places, self.points, strict=True):
            colour = "black" if place == 0 else "0.35"
            if not is_absent(point["low"]):
                ax.plot([point["low"], point["high"]], [place, place], color=colour, lw=1.6, gid="interval")
            ax.plot([point["sd"]], [place], marker="o", markersize=5.5, color=colour, linestyle="", gid="sd")
        ax.axvline(self.points[0]["sd"], color="0.8", lw=0.8, zorder=0)
        ax.set_yticks(list(places), [point["says"] for point in self.points])
        ax.set_ylim(len(self.points) - 0.5, -0.5)
        ax.set_xlim(left=0)
        ax.set_xlabel(self.label)
        sns.despine(ax=ax)


def spread_panels(tables: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Return a panel for each table of `spread_tables`."""
    several = len({table["arm"] for table in tables}) > 1
    return [_panel(table, place, of_several=several) for place, table in enumerate(tables)]


def _panel(table: Mapping[str, Any], place: int, *, of_several: bool) -> Panel:
    column = table["number"]
    scale, digits = column["scale"], column["digits"] + 1
    points = [
        {"says": row["says"], "sd": row["sd"] * scale}
        | {end: None if row[f"sd_{end}"] is None else row[f"sd_{end}"] * scale for end in ("low", "high")}
        for row in table["rows"]
    ]
    name = f"spread-{place + 1}"
    described = "; ".join(f"{point['says']} {number(point['sd'], digits)}" for point in points)
    return Panel(
        name=name,
        kind="spread",
        measure=column["name"],
        metric="sd",
        group=None,
        family=None,
        arm=table["arm"],
        axis=None,
        title=f"{column['label']}, {table['arm']}" if of_several else column["label"],
        unit=column["unit"],
        digits=digits,
        part="",
        folded=False,
        data=name,
        content=SpreadMarks(f"standard deviation over runs ({column['unit']})", points),
        rows=DataFrame(points),
        points=points,
        curves=[],
        description=f"Standard deviation by what varies: {described}.",
        without_rows=[],
        letter="",
        id=name,
    )
