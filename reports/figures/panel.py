"""Panel of a figure of the page, typed: its content, and its words as data.

Captions, notes and alternatives to pictures are written here; nothing is judged. The text of a figure of the page
is what is known before any numbers: what it shows and how to read it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pandas import DataFrame

from ablations.results import COLUMNS
from reports.figures.by_arm import ArmLines
from reports.figures.by_setting import SettingMarks, runs_by_setting
from reports.figures.curves import AXES, Axis, Curve, own_axis, rows_of
from reports.figures.groups import GroupLines
from reports.figures.maps import StepMap
from reports.figures.pairs import PairLines
from reports.figures.pictures import Cloud
from reports.words import count, is_absent, leads_on, listed, named, number

BEYOND = "Dashed: the chance floor, or its value above the panel where it lies beyond the axis."

OF_TEXT = (
    "± 1.96 standard errors of that run's number over text of the same kind, by a jackknife over blocks of "
    "sentences, which says nothing about other seeds"
)


OF_EXAMPLES = (
    "± 1.96 standard errors of that run's number over examples (of frozen features and fine-tuning, also "
    "over repetitions with other heads), which says nothing about other seeds"
)


def caption(kind: str, bands: set[str], *, about_tasks: bool = False) -> str:
    """Return what lines, bands or cells are, in every panel of a figure with these bands."""
    over = OF_EXAMPLES if about_tasks else OF_TEXT
    if kind == "maps":
        cells = "means over seeds" if "seeds" in bands else "single runs"
        return f"Cells are {cells}; grey ones have no number. All arms of a metric share their colours."
    if kind == "settings":
        sentence = (
            "Small dots are seeds, marks beside them their means in the look of their arm, bars the 95% Student t "
            "intervals over seeds."
        )
        return f"{sentence if 'seeds' in bands else 'Marks are single runs in the look of their arm.'} {BEYOND}"
    if kind == "pictures":
        return "Each picture is one run, that of the arm's first seed, at its last step."
    thin = ", thin lines single seeds" if kind == "arms" else ""
    if kind == "pairs":
        sentence = (
            "Lines are means, bars the 95% Student t intervals over seeds, side by side where they stand for the "
            "same layer. The pairs of one arm's seeds share runs, so their mean has no interval."
        )
        if "text" in bands:
            sentence += f" Where there is one pair, its bar is {over}."
    elif bands == {""}:
        sentence = "Lines are single runs, without bands."
    elif "text" not in bands:
        sentence = f"Lines are means over seeds, bands their 95% Student t intervals{thin}."
    elif bands <= {"text", ""}:
        sentence = f"Lines are single runs. Each band is {over}."
    else:
        sentence = (
            f"Lines are means over seeds, bands their 95% Student t intervals{thin}; where an arm has one "
            f"seed, its band is {over}."
        )
    return f"{sentence} {BEYOND}"


def place(point: dict[str, Any]) -> str:
    """Return a point's place on the x axis: ``3``, ``3→4``, a step, or what else it runs along."""
    if "setting" in point:
        return str(point["at"])
    at = point[axis_of(point)]
    to = point.get("layer_to")
    return f"{at:g}" if isinstance(at, float) else f"{at}" if to is None else f"{at}→{to}"


def axis_of(point: dict[str, Any]) -> Axis:
    """Return the axis that a point's place is on."""
    return next(axis for axis in AXES if axis in point)


def axis_head(points: Sequence[dict[str, Any]]) -> str:
    """Return the head of a column of the points' places."""
    if "setting" in points[0]:
        return sentence_case(points[0]["setting"])
    return AXES[axis_of(points[0])].head


def sentence_case(title: str) -> str:
    """Return a title with a capital letter in front, the rest as it is."""
    return title[:1].upper() + title[1:]


def of_seeds(points: Sequence[Mapping[str, Any]]) -> str:
    """Return what the numbers of points are, as the start of a sentence that goes on with *by*."""
    return "Mean over seeds" if max((point["seeds"] for point in points), default=0) > 1 else "Single runs"


def lines_in_words(points: Sequence[dict[str, Any]], *, line: str, digits: int) -> str:
    """Return where each line starts, ends, is lowest and is highest, and its mean floor.

    `line` is what tells them apart: `arm`, `pair` or `group`.
    """
    by = AXES[axis_of(points[0])].head.lower() if points else "layer"
    sentences = []
    for name in dict.fromkeys(point[line] for point in points):
        line_points = [point for point in points if point[line] == name and point["mean"] == point["mean"]]
        if not line_points:
            sentences.append(f"{name}: no numbers.")
            continue
        lowest, highest = (
            which(line_points, key=lambda point: round(point["mean"], digits)) for which in (min, max)
        )
        remarks = {} if lowest is highest else {id(lowest): " (lowest)", id(highest): " (highest)"}
        named = {id(point): point for point in (line_points[0], line_points[-1], lowest, highest)}
        values = [
            f"{number(point['mean'], digits)} at {place(point)}{remarks.get(point_id, '')}"
            for point_id, point in named.items()
        ]
        mean_floor = sum(point["floor"] for point in line_points) / len(line_points)
        at_chance = "" if is_absent(mean_floor) else f"; chance floor {number(mean_floor, digits)}"
        sentences.append(f"{name}: {listed(values)}{at_chance}.")
    return f"{of_seeds(points)} by {by}. " + " ".join(sentences)


def map_in_words(points: Sequence[dict[str, Any]], *, arm: str, seeds: int, digits: int) -> str:
    """Return where each layer starts and where it ends, in the mean of so many seeds."""
    steps = sorted({point["step"] for point in points})
    of = "mean over seeds" if seeds > 1 else "one run"
    sentences = [f"{arm}: {of} by layer at {len(steps)} steps, {count(steps[0])} to {count(steps[-1])}."]
    for name in dict.fromkeys(place(point) for point in points):
        layer_points = [point for point in points if place(point) == name]
        ends = " to ".join(number(point["mean"], digits) for point in (layer_points[0], layer_points[-1]))
        sentences.append(f"Layer {name}: from {ends}.")
    return " ".join(sentences)


def picture_in_words(rows: DataFrame, *, arm: str, by: str) -> str:
    """Return how many tokens of which layers a picture shows."""
    layers = listed([str(layer) for layer in sorted(rows["layer"].unique().tolist())])
    return (
        f"{arm}, seed {rows['seed'].iloc[0]}: {rows['group'].nunique()} tokens in layers {layers}, a point each, "
        f"told apart by {by}; who is near whom, and nothing else."
    )


def groups_note(sizes: Sequence[int]) -> str:
    """Return a note on whether the groups of tokens are equally large."""
    if not sizes:
        return ""
    if min(sizes) == max(sizes):
        return f"All groups have n = {count(sizes[0])}."
    return (
        f"Groups differ in n, {count(min(sizes))} to {count(max(sizes))}: similarity is inflated in small "
        "ones, so they do not compare."
    )


def left_out_note(arms: Sequence[str], most: int) -> str:
    """Return a note on the arms that have no panel of their own because there are too many."""
    if len(arms) <= most:
        return ""
    rest = arms[most:]
    named = listed(list(rest)) if len(rest) <= 8 else f"{len(rest)} arms"
    return f"Only the first {most} arms with such rows have panels; in results.parquet alone: {named}."


def letters(place: int) -> str:
    """Return the letter of a panel, from 0: a to z, then aa, ab, ..."""
    return (letters(place // 26 - 1) if place >= 26 else "") + chr(ord("a") + place % 26)


Kind = Literal["arms", "pairs", "groups", "maps", "pictures", "settings"]
"""A panel has a line an arm, a line a pair of arms, or is of one arm: a line a group of tokens, its map, or where
tokens lie in some of its layers. Of settings it has a mark an arm, at its value of the setting."""


class Shown(NamedTuple):
    """Selection of rows that a panel shows, or one panel for each arm."""

    measure: str
    metric: str
    title: str = ""
    """Title of the panel; its metric's unless given."""
    about: str | None = None
    """The rows' group; None means all tokens."""
    part: str = ""
    """The heading of the part of the figure that it stands in, if any; of maps, each metric is one."""
    folded: bool = False
    """Whether that part is opened on demand."""
    each: bool = False
    """Whether there is such a panel for each task that the rows are about, instead of the one in `about`."""
    axis: Axis | None = None
    """Axis of a panel with a line an arm, if not its measure's own axis."""


class FigureText(NamedTuple):
    """Text of one figure of the page."""

    name: str
    title: str
    kind: Kind
    shown: tuple[Shown, ...]
    n: str
    """Unit that n counts."""
    d: str
    how_to_read: tuple[str, ...]
    family: str = ""
    """First word of the names of groups."""
    section: Literal["layers", "tasks"] = "layers"
    """Section of the page in which the figure stands."""


Content = ArmLines | PairLines | GroupLines | StepMap | Cloud | SettingMarks
"""Content of a panel, one type a kind."""

NAME_LETTERS = 40
"""Letters of an arm in the names of its files."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """Panel of a figure, built once: its picture, its CSV and its entry in report.json are made from it alone."""

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
    """Axis of the panel, if not its measure's own."""
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
    """Facts about each of its curves."""
    description: str
    """Description of the panel, for a reader who does not see it."""
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
        """Path of its picture in the experiment's folder."""
        return f"figures/{self.name}.svg"

    @property
    def csv(self) -> str:
        """Path of its data in the experiment's folder."""
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
        """Return its data as CSV: a row of the table of results each, or a run each where arms vary a setting."""
        if isinstance(self.content, SettingMarks):
            rows = runs_by_setting(self.content, score=f"{self.measure} {self.metric}")
        else:
            rows = self.rows[list(COLUMNS)]
        return rows.to_csv(index=False, lineterminator="\n")


def title_of(shown: Shown) -> str:
    """Return the title of a panel without the words that tell it from others of its metric."""
    return shown.title or named(shown.measure, shown.metric).title


def facts_of(
    text: FigureText, shown: Shown, *, arm: str | None = None, place: int = 0, more: str = "", suffix: str = ""
) -> dict[str, Any]:
    """Return the name and the subject of a panel, as arguments of `Panel`.

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
    subject = shown.about if shown.each else arm
    if subject is not None:  # by its place too, since two names may have the same letters and digits
        name += f"-{place + 1}_{re.sub(r'[^A-Za-z0-9]+', '_', subject)[:NAME_LETTERS].strip('_')}"
    return name


def rows_shown(table: DataFrame, shown: Shown) -> DataFrame:
    """Return all rows of the metric that have a place on the axis, of any group."""
    return rows_of(table, measure=shown.measure, metric=shown.metric, axis=shown.axis)


def facts(curve: Curve, *remarks: str) -> dict[str, Any]:
    """Return the facts about a curve, with further remarks."""
    return curve._asdict() | {
        "tokens_per_dimension": curve.tokens_per_dimension,
        "remarks": [*remarks, *curve.remarks],
    }


def points_of(
    rows: DataFrame, summary: DataFrame, shown: Shown, *, key: str, names: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return mean, band and floor of each line at each place on the axis, as drawn.

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
    points = []
    for line, name in names.items():
        for point in summary[summary["line"] == line].to_dict("records"):
            x = float(point["x"]) if axis == "ratio" else int(point["x"])
            at = {axis: x} | ({"layer_to": x + 1 if leads else None} if axis in ("layer", "step") else {})
            floor = float(floors[line, point["x"]])
            points.append(
                {key: name, **at}
                | {end: float(point[end]) for end in ("mean", "low", "high")}
                | {"band": str(point["band"]), "seeds": int(point["seeds"]), "floor": floor}
            )
    return points
