"""One panel of a figure of the page, typed: what it draws, and what it says as data."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pandas import DataFrame

from ablations.results import COLUMNS
from reports.axes import Axis, own_axis
from reports.by_setting import SettingMarks, runs_by_setting
from reports.curves import Curve, rows_of
from reports.distances import PairLines
from reports.figure_text import FigureText, Kind, Shown
from reports.figures import ArmLines
from reports.groups import GroupLines
from reports.maps import StepMap
from reports.metrics import leads_on, named
from reports.pictures import Cloud

Content = ArmLines | PairLines | GroupLines | StepMap | Cloud | SettingMarks
"""What a panel draws, one type a kind."""

NAME_LETTERS = 40
"""Letters of an arm in the names of its files."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """One panel, built once: its picture, its CSV and its entry in report.json are made from it alone."""

    name: str
    """Unique on the page; letters, digits, `-` and `_`."""
    kind: Kind
    measure: str
    metric: str
    group: str | None
    family: str | None
    arm: str | None
    """The arm that it shows, if it is one."""
    axis: Axis | None
    """What it runs along, if not its measure's own axis."""
    title: str
    unit: str
    digits: int
    part: str
    folded: bool
    data: str
    """The name of its CSV, which panels with the same rows share."""
    content: Content
    rows: DataFrame
    """The rows of the table that are its CSV."""
    points: list[dict[str, Any]]
    """The numbers that it draws, but for single seeds."""
    curves: list[dict[str, Any]]
    """What to know about each of its curves."""
    description: str
    """What it shows, for a reader who does not see it."""
    without_rows: list[str]
    """Arms that it lacks."""
    arms: list[str] | None = None
    """The arms that it compares, if it leaves out others."""
    notes: tuple[str, ...] = ()
    """Sentences for below the figure."""
    letter: str = ""
    id: str = ""
    """Short and unique on the page."""

    @property
    def svg(self) -> str:
        """The file of its picture, in the experiment's folder."""
        return f"figures/{self.name}.svg"

    @property
    def csv(self) -> str:
        """The file of its data, in the experiment's folder."""
        return f"figures/{self.data}.csv"

    def entry(self) -> dict[str, Any]:
        """Return the panel as plain data, for the page and report.json."""
        head = ("name", "kind", "measure", "metric", "group", "family", "arm", "axis", "title", "unit", "digits")
        more = ("part", "folded", "svg", "csv", "without_rows")
        if isinstance(self.content, SettingMarks):
            shown = self.content.entry() | {"curves": self.curves, "description": self.description}
        else:
            shown = {"description": self.description, "curves": self.curves, "points": self.points}
        compared = {} if self.arms is None else {"arms": self.arms}
        about = {name: getattr(self, name) for name in (*head, *more)}
        return about | shown | compared | {"letter": self.letter, "id": self.id}

    def csv_text(self) -> str:
        """Return its data: a row of the table of results each, or a run each where arms vary a setting."""
        if isinstance(self.content, SettingMarks):
            rows = runs_by_setting(self.content, score=f"{self.measure} {self.metric}")
        else:
            rows = self.rows[list(COLUMNS)]
        return rows.to_csv(index=False, lineterminator="\n")


def title_of(shown: Shown) -> str:
    """Return the title of a panel without what tells it from others of its metric."""
    return shown.title or named(shown.measure, shown.metric).title


def facts_of(
    text: FigureText, shown: Shown, *, arm: str | None = None, place: int = 0, more: str = "", suffix: str = ""
) -> dict[str, Any]:
    """Return what a panel is called and what it is about, as arguments of `Panel`.

    Args:
        text: the figure.
        shown: what the panel shows of it.
        arm: the arm that it shows, if it is one.
        place: where that arm stands among the panels, or the task.
        more: the end of its title.
        suffix: the end of its name.
    """
    names = named(shown.measure, shown.metric)
    title = title_of(shown)
    return {
        "name": _name(text, shown, arm=arm, place=place) + suffix,
        "data": _name(text, shown, arm=arm, place=place, metric=text.kind != "pictures") + suffix,
        "kind": text.kind,
        "measure": shown.measure,
        "metric": shown.metric,
        "group": shown.about,
        "family": text.family or None,
        "arm": arm,
        "axis": shown.axis,
        "title": (f"{title}, {arm}" if arm is not None else title) + more,
        "unit": names.unit,
        "digits": names.digits,
        "part": title if text.kind in ("maps", "pictures") else shown.part,
        "folded": shown.folded,
    }


def _name(text: FigureText, shown: Shown, *, arm: str | None, place: int, metric: bool = True) -> str:
    """Return the name of a panel's files."""
    about, kind = None if shown.each else shown.about, text.kind if text.kind == "maps" else ""
    parts = [shown.measure, shown.metric if metric else "", about, text.family, kind, shown.axis]
    name = "-".join(part.replace(" ", "_") for part in parts if part)
    own = shown.about if shown.each else arm
    if own is not None:  # by its place too, since two names may have the same letters and digits
        name += f"-{place + 1}_{re.sub(r'[^A-Za-z0-9]+', '_', own)[:NAME_LETTERS].strip('_')}"
    return name


def rows_shown(table: DataFrame, shown: Shown) -> DataFrame:
    """All rows of the metric that have a place on the axis, of any group."""
    return rows_of(table, measure=shown.measure, metric=shown.metric, axis=shown.axis)


def facts(curve: Curve, *remarks: str) -> dict[str, Any]:
    """What to know about a curve, with further remarks."""
    return curve._asdict() | {
        "tokens_per_dimension": curve.tokens_per_dimension,
        "remarks": [*remarks, *curve.remarks],
    }


def points_of(
    rows: DataFrame, summary: DataFrame, shown: Shown, *, key: str, names: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Mean, band and floor of each line at each place on the axis, as drawn.

    Args:
        rows: with the column `line`.
        summary: `bands` of these rows.
        shown: what the panel shows.
        key: what a point calls its line: `arm`, `pair` or `group`.
        names: of each line that is drawn, by the value that it has in `line`.
    """
    floors = rows.groupby(["line", "x"])["floor"].mean().to_dict()
    leads = leads_on(shown.measure, shown.metric)
    axis = shown.axis or own_axis(shown.measure)
    found = []
    for line, name in names.items():
        for point in summary[summary["line"] == line].to_dict("records"):
            x = float(point["x"]) if axis == "ratio" else int(point["x"])
            at = {axis: x} | ({"layer_to": x + 1 if leads else None} if axis in ("layer", "step") else {})
            floor = float(floors[line, point["x"]])
            found.append(
                {key: name, **at}
                | {end: float(point[end]) for end in ("mean", "low", "high")}
                | {"band": str(point["band"]), "seeds": int(point["seeds"]), "floor": floor}
            )
    return found
