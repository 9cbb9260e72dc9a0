"""Figure of the page as data: its text, its kind, and its panels with their words.

The text of a figure is known before any numbers: what the figure shows and how to read it. Nothing is judged
here.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from matplotlib.figure import Figure
from pandas import DataFrame

from ablations.wording import listed
from reports.figures.curves import AXES, Axis, Curve, metric_rows, own_axis
from reports.words import is_absent, leads_on, number, words_of_metric

BEYOND = "Dashed: the chance level. A level beyond the axis is written above the panel."
CEILING = "Thin: the ceiling, which no number can exceed."

OF_TEXT = (
    "± 1.96 standard errors of that run's number over text of the same kind (jackknife over blocks of "
    "sentences). It says nothing about other seeds"
)

OF_EXAMPLES = (
    "± 1.96 standard errors of that run's number over examples (with frozen features and fine-tuning, also "
    "over repetitions with other heads). It says nothing about other seeds"
)


def line_caption(bands: set[str], about_tasks: bool, thin: str = "") -> str:
    """Return the sentence that says what lines and bands are, for a figure whose panels have these bands.

    Args:
        about_tasks: whether the band of a single run is over examples, and not over text.
        thin: remark on thin lines.
    """
    over = OF_EXAMPLES if about_tasks else OF_TEXT
    if bands == {""}:
        sentence = "Lines are single runs, without bands."
    elif "text" not in bands:
        sentence = f"Lines are means over seeds, bands their 95% Student t intervals{thin}."
    elif bands <= {"text", ""}:
        sentence = f"Lines are single runs. Each band is {over}."
    else:
        sentence = (
            f"Lines are means over seeds, bands their 95% Student t intervals{thin}. If an arm has one seed, "
            f"its band is {over}."
        )
    return f"{sentence} {BEYOND}"


def lines_in_words(points: Sequence[dict[str, Any]], *, line: str, digits: int) -> str:
    """Return in words where each line starts, ends, is lowest and is highest, with its mean chance level and
    mean ceiling.

    `line` names the key that tells lines apart: `arm`, `pair` or `group`.
    """
    by = AXES[axis_of(points[0])].head.lower() if points else "layer"
    sentences = []
    for name in dict.fromkeys(point[line] for point in points):
        line_points = [point for point in points if point[line] == name and point["mean"] == point["mean"]]
        if not line_points:
            sentences.append(f"{name}: no numbers.")
            continue
        lowest, highest = (
            extreme(line_points, key=lambda point: round(point["mean"], digits)) for extreme in (min, max)
        )
        remarks = {} if lowest is highest else {id(lowest): " (lowest)", id(highest): " (highest)"}
        remarked = {id(point): point for point in (line_points[0], line_points[-1], lowest, highest)}
        values = [
            f"{number(point['mean'], digits)} at {place_in_words(point)}{remarks.get(point_id, '')}"
            for point_id, point in remarked.items()
        ]
        mean_floor = sum(point["floor"] for point in line_points) / len(line_points)
        at_chance = "" if is_absent(mean_floor) else f"; chance level {number(mean_floor, digits)}"
        ceilings = [point["ceiling"] for point in line_points if not is_absent(point.get("ceiling"))]
        at_most = f"; ceiling {number(sum(ceilings) / len(ceilings), digits)}" if ceilings else ""
        sentences.append(f"{name}: {listed(values, 'and')}{at_chance}{at_most}.")
    return f"{of_seeds(points)} by {by}. " + " ".join(sentences)


def place_in_words(point: dict[str, Any]) -> str:
    """Return a point's place on the x axis: ``3``, ``3→4``, a step, or the value of another axis."""
    if "setting" in point:
        return str(point["at"])
    at = point[axis_of(point)]
    to = point.get("layer_to")
    return f"{at:g}" if isinstance(at, float) else f"{at}" if to is None else f"{at}→{to}"


def axis_of(point: dict[str, Any]) -> Axis:
    """Return the axis on which a point has its place."""
    return next(axis for axis in AXES if axis in point)


def axis_head(points: Sequence[dict[str, Any]]) -> str:
    """Return the heading of a table column with the points' places."""
    if "setting" in points[0]:
        return sentence_case(points[0]["setting"])
    return AXES[axis_of(points[0])].head


def sentence_case(title: str) -> str:
    """Return a title with a capital first letter; the other letters stay as they are."""
    return title[:1].upper() + title[1:]


def of_seeds(points: Sequence[Mapping[str, Any]]) -> str:
    """Return whether points are means over seeds, single runs or published curves, to be followed by *by*."""
    if points and all(point.get("band") == "published" for point in points):
        return "Published curves"
    return "Mean over seeds" if max((point["seeds"] for point in points), default=0) > 1 else "Single runs"


MOST_PANELS = 6
"""Largest number of arms that get their own panel."""


def left_out_note(arms: Sequence[str]) -> str:
    """Return a note on the arms without a panel if there are too many; empty otherwise."""
    if len(arms) <= MOST_PANELS:
        return ""
    rest = named_or_counted(arms[MOST_PANELS:], at_most=8)
    return f"Only the first {MOST_PANELS} arms with such rows have panels; results.parquet also has {rest}."


def named_or_counted(arms: Sequence[str], *, at_most: int) -> str:
    """Return the names of arms for a sentence; if there are more than `at_most`, return their number."""
    return listed(list(arms), "and") if len(arms) <= at_most else f"{len(arms)} arms"


def without_panel(place: int, arms: Sequence[str], present: Sequence[str]) -> list[str]:
    """Return the arms without a panel, for the first panel alone, so that they are reported once."""
    return [arm for arm in arms if arm not in present] if place == 0 else []


def letters(place: int) -> str:
    """Return the letter of a panel, counted from 0: a to z, then aa, ab, ..."""
    return (letters(place // 26 - 1) if place >= 26 else "") + chr(ord("a") + place % 26)


class FigureKind(NamedTuple):
    """Kind of figure: how its panels are made, and what its caption says."""

    name: str
    panels: Callable[..., Iterator["Panel"]] | None
    """Function of (table, text, shown, arms=...) that yields the panels of one metric. None for figures that
    need more than the table, such as the settings that arms vary."""
    caption: Callable[[set[str], bool], str]
    """Function that returns the caption: what lines, bands or cells show. Its arguments are the bands of all
    panels, and whether the figure is about tasks."""


class Content(Protocol):
    """Content of a panel, selected once."""

    def draw(self, figure: Figure) -> None:
        """Draw everything on an empty figure, legend included, and set the height of the figure."""


class Shown(NamedTuple):
    """Selection of rows that a panel shows; some kinds of figures make a panel for each arm of it."""

    measure: str
    metric: str
    title: str = ""
    """Title of the panel; if empty, that of the metric."""
    about: str | None = None
    """Group of the rows; None stands for all tokens."""
    part: str = ""
    """Heading of the figure's part that holds the panel; empty if it is in none. In maps each metric is a part."""
    folded: bool = False
    """Whether the panel's part of the figure is folded until a reader opens it."""
    each: bool = False
    """Whether each task of the rows gets its own panel, instead of the group in `about`."""
    axis: Axis | None = None
    """Axis of a panel with a line for each arm; None for the measure's own axis."""


class FigureText(NamedTuple):
    """Text of one figure of the page."""

    name: str
    title: str
    kind: FigureKind
    shown: tuple[Shown, ...]
    n: str
    """Unit that n counts."""
    how_to_read: tuple[str, ...]
    d: str = ""
    """Unit that d counts; empty if there is none."""
    family: str = ""
    """First word of the names of groups, if the figure is about groups."""
    section: Literal["layers", "tasks"] = "layers"
    """Section of the page in which the figure stands."""


CHANGE, CHANGE_CKA = Shown("layer_change", "pwcca"), Shown("layer_change", "debiased_cka")

OTHER_TOKENS = ("next token", "previous token", "output label", "shown token")
"""Groups of `token_information` and `read_out` that are about another token than the one that is read."""


NAME_LETTERS = 40
"""Largest number of letters of an arm or task in the names of its files."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """Panel of a figure. Its picture, its CSV and its entry in report.json are all made from it."""

    name: str
    """Name that is unique on the page; letters, digits, `-` and `_`."""
    kind: str
    """Name of the kind of figure."""
    measure: str
    metric: str
    group: str | None = None
    family: str | None = None
    arm: str | None = None
    """Arm of a panel that shows only one; None otherwise."""
    axis: Axis | None = None
    """Axis of the panel; None for the measure's own axis."""
    title: str
    unit: str
    digits: int
    part: str = ""
    folded: bool = False
    data: str
    """Name of its CSV, which panels with the same rows share."""
    content: Content
    rows: DataFrame
    """Rows of its CSV: rows of the table of results, or a row for each run if arms vary a setting."""
    points: list[dict[str, Any]]
    """Numbers that it draws, without those of single seeds."""
    curves: list[dict[str, Any]] = field(default_factory=list)
    """Facts about each of its curves."""
    description: str
    """Description of the panel for readers who do not see it."""
    without_rows: list[str] = field(default_factory=list)
    """Arms that it cannot show, as they have no rows."""
    arms: list[str] | None = None
    """Arms in this panel; None means all arms."""
    kind_fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of its entry that only its kind has."""
    notes: tuple[str, ...] = ()
    """Sentences that are shown below the figure."""
    letter: str = ""
    id: str = ""
    """Short name that is unique on the page."""

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
        last = ("part", "folded", "svg", "csv", "without_rows")
        shown = {"description": self.description, "curves": self.curves, "points": self.points, **self.kind_fields}
        compared = {} if self.arms is None else {"arms": self.arms}
        about = {name: getattr(self, name) for name in (*head, *last)}
        return about | shown | compared | {"letter": self.letter, "id": self.id}

    def csv_text(self) -> str:
        """Return its data as CSV."""
        return csv_of(self.rows)


def csv_of(rows: DataFrame) -> str:
    """Return rows as CSV, with twelve significant digits."""
    return rows.to_csv(index=False, lineterminator="\n", float_format="%.12g")


def title_of(shown: Shown) -> str:
    """Return the title of a panel, without the words that tell it from other panels of its metric."""
    return shown.title or words_of_metric(shown.measure, shown.metric).title


def facts_of(
    text: FigureText,
    shown: Shown,
    *,
    arm: str | None = None,
    place: int = 0,
    title_end: str = "",
    prefix: str = "",
    suffix: str = "",
    one_csv: bool = False,
    part_each: bool = False,
) -> dict[str, Any]:
    """Return the name and the subject of a panel, as arguments of `Panel`.

    Args:
        arm: arm of a panel that shows only one.
        place: place of that arm, or of the task, among the panels.
        title_end: end of the title.
        prefix: word before the arm or task in the panel's name.
        suffix: end of the panel's name.
        one_csv: whether panels of all metrics share a CSV.
        part_each: whether each metric is a part of the figure.
    """
    names = words_of_metric(shown.measure, shown.metric)
    title = title_of(shown)
    return {
        "name": _name(text, shown, arm, place, prefix, metric=shown.metric) + suffix,
        "data": _name(text, shown, arm, place, prefix, metric="" if one_csv else shown.metric) + suffix,
        "kind": text.kind.name,
        "measure": shown.measure,
        "metric": shown.metric,
        "group": shown.about,
        "family": text.family or None,
        "arm": arm,
        "axis": shown.axis,
        "title": (f"{title}, {arm}" if arm is not None else title) + title_end,
        "unit": names.unit,
        "digits": names.digits,
        "part": title if part_each else shown.part,
        "folded": shown.folded,
    }


def _name(text: FigureText, shown: Shown, arm: str | None, place: int, prefix: str, *, metric: str) -> str:
    """Return the name of a panel's files."""
    about = None if shown.each else shown.about
    measure, plain = re.sub(r"\W+", "_", shown.measure), re.sub(r"\W+", "_", metric)
    if plain != metric:  # a plugin's metric; its place makes the name unique
        plain += f"-{1 + [other.metric for other in text.shown].index(metric)}"
    parts = [measure, plain, about, text.family, prefix, shown.axis]
    name = "-".join(part.replace(" ", "_") for part in parts if part)
    subject = shown.about if shown.each else arm
    if subject is not None:  # the place makes it unique, since two names may have the same letters and digits
        name += f"-{place + 1}_{re.sub(r'[^A-Za-z0-9]+', '_', subject)[:NAME_LETTERS].strip('_')}"
    return name


def rows_shown(table: DataFrame, shown: Shown) -> DataFrame:
    """Return all rows of the metric that have a place on the axis, for any group."""
    return metric_rows(table, measure=shown.measure, metric=shown.metric, axis=shown.axis)


def facts(curve: Curve, *remarks: str) -> dict[str, Any]:
    """Return the facts about a curve as plain data, with further remarks."""
    return curve._asdict() | {
        "tokens_per_dimension": curve.tokens_per_dimension,
        "remarks": [*remarks, *curve.remarks],
    }


def points_of(
    rows: DataFrame, summary: DataFrame, shown: Shown, *, key: str, names: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return mean, band and chance level of each line at each place on the axis, as drawn, and the ceiling if
    there is one.

    Args:
        rows: rows with the column `line`.
        summary: result of `bands` for these rows.
        key: key of a point under which its line is named: `arm`, `pair` or `group`.
        names: name of each drawn line, by its value in the column `line`.
    """
    floors = rows.groupby(["line", "x"])["floor"].mean().to_dict()
    ceilings = rows.groupby(["line", "x"])["ceiling"].mean().dropna().to_dict() if "ceiling" in rows else {}
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
                | ({"ceiling": float(ceilings[line, point["x"]])} if (line, point["x"]) in ceilings else {})
            )
    return points
