"""What every panel of a page says as data, whatever it shows."""

import re
from collections.abc import Sequence
from typing import Any

from pandas import DataFrame

from reports.axes import own_axis
from reports.curves import Curve, rows_of
from reports.figure_text import FigureText, Shown
from reports.metrics import leads_on, named
from reports.statistics import bands

Panel = dict[str, Any]

NAME_LETTERS = 40
"""Letters of an arm in the names of its files."""


def blank_panel(text: FigureText, shown: Shown, *, arm: str | None = None, place: int = 0) -> Panel:
    """A panel without numbers. `arm` is the one it shows, if it is one, and `place` where it stands among them, or
    among the tasks."""
    names = named(shown.measure, shown.metric)
    about = None if shown.each else shown.about
    parts = [shown.measure, shown.metric, about, text.family, text.kind if text.kind == "maps" else "", shown.axis]
    name = "-".join(part.replace(" ", "_") for part in parts if part)
    own = shown.about if shown.each else arm
    if own is not None:  # by its place too, since two names may have the same letters and digits
        name += f"-{place + 1}_{re.sub(r'[^A-Za-z0-9]+', '_', own)[:NAME_LETTERS].strip('_')}"
    title = shown.title or names.title
    return {
        "name": name,
        "kind": text.kind,
        "measure": shown.measure,
        "metric": shown.metric,
        "group": shown.about,
        "family": text.family or None,
        "arm": arm,
        "axis": shown.axis,
        "title": f"{title}, {arm}" if arm is not None else title,
        "unit": names.unit,
        "digits": names.digits,
        "part": title if text.kind in ("maps", "pictures") else shown.part,
        "folded": shown.folded,
        "svg": f"figures/{name}.svg",
        "csv": f"figures/{name}.csv",
        "without_rows": [],
    }


def rows_shown(table: DataFrame, shown: Shown) -> DataFrame:
    """All rows of the metric that have a place on the axis, of any group."""
    return rows_of(table, measure=shown.measure, metric=shown.metric, axis=shown.axis)


def facts(curve: Curve, *remarks: str) -> dict[str, Any]:
    """What to know about a curve, with further remarks."""
    return curve._asdict() | {
        "tokens_per_dimension": curve.tokens_per_dimension,
        "remarks": [*remarks, *curve.remarks],
    }


def points_of(rows: DataFrame, shown: Shown, *, line: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """Mean, band and floor of each line at each place on the axis, as drawn; `line` is the column of its name."""
    summary = bands(rows, line=line)
    floors = rows.groupby([line, "x"])["floor"].mean().to_dict()
    leads = leads_on(shown.measure, shown.metric)
    axis = shown.axis or own_axis(shown.measure)
    found = []
    for name in names:
        for point in summary[summary[line] == name].to_dict("records"):
            x = float(point["x"]) if axis == "ratio" else int(point["x"])
            at = {axis: x} | ({"layer_to": x + 1 if leads else None} if axis in ("layer", "step") else {})
            floor = float(floors[name, point["x"]])
            found.append(
                {line: name, **at}
                | {key: float(point[key]) for key in ("mean", "low", "high")}
                | {"band": str(point["band"]), "seeds": int(point["seeds"]), "floor": floor}
            )
    return found
