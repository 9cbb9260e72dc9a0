"""Panels in words: captions, notes, and alternatives to pictures. Nothing is judged here."""

from collections.abc import Mapping, Sequence
from typing import Any

from pandas import DataFrame

from reports.axes import AXES, Axis
from reports.numbers import count, is_absent, listed, number

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
    """What lines, bands or cells are, in every panel of a figure with these bands."""
    over = OF_EXAMPLES if about_tasks else OF_TEXT
    if kind == "maps":
        cells = "means over seeds" if "seeds" in bands else "single runs"
        return f"Cells are {cells}; grey ones have no number. All arms of a metric share their colours."
    if kind == "settings":
        said = (
            "Small dots are seeds, marks beside them their means in the look of their arm, bars the 95% Student t "
            "intervals over seeds."
        )
        return f"{said if 'seeds' in bands else 'Marks are single runs in the look of their arm.'} {BEYOND}"
    if kind == "pictures":
        return "Each picture is one run, that of the arm's first seed, at its last step."
    thin = ", thin lines single seeds" if kind == "arms" else ""
    if kind == "pairs":
        said = (
            "Lines are means, bars the 95% Student t intervals over seeds, side by side where they stand for the "
            "same layer. The pairs of one arm's seeds share runs, so their mean has no interval."
        )
        if "text" in bands:
            said += f" Where there is one pair, its bar is {over}."
    elif bands == {""}:
        said = "Lines are single runs, without bands."
    elif "text" not in bands:
        said = f"Lines are means over seeds, bands their 95% Student t intervals{thin}."
    elif bands <= {"text", ""}:
        said = f"Lines are single runs. Each band is {over}."
    else:
        said = (
            f"Lines are means over seeds, bands their 95% Student t intervals{thin}; where an arm has one "
            f"seed, its band is {over}."
        )
    return f"{said} {BEYOND}"


def place(point: dict[str, Any]) -> str:
    """A point's place on the x axis: ``3``, ``3→4``, a step, or what else it runs along."""
    if "setting" in point:
        return str(point["at"])
    at = point[axis_of(point)]
    to = point.get("layer_to")
    return f"{at:g}" if isinstance(at, float) else f"{at}" if to is None else f"{at}→{to}"


def axis_of(point: dict[str, Any]) -> Axis:
    """What a point's place is on."""
    return next(axis for axis in AXES if axis in point)


def axis_head(points: Sequence[dict[str, Any]]) -> str:
    """What the points' places are called above a column."""
    if "setting" in points[0]:
        return sentence_case(points[0]["setting"])
    return AXES[axis_of(points[0])].head


def sentence_case(title: str) -> str:
    """With a capital letter in front, the rest as it is."""
    return title[:1].upper() + title[1:]


def of_seeds(points: Sequence[Mapping[str, Any]]) -> str:
    """What the numbers of points are, as the start of a sentence that goes on with *by*."""
    return "Mean over seeds" if max((point["seeds"] for point in points), default=0) > 1 else "Single runs"


def lines_in_words(points: Sequence[dict[str, Any]], *, line: str, digits: int) -> str:
    """Where each line starts, ends, is lowest and is highest, and its mean floor.

    `line` is what tells them apart: `arm`, `pair` or `group`.
    """
    by = AXES[axis_of(points[0])].head.lower() if points else "layer"
    sentences = []
    for name in dict.fromkeys(point[line] for point in points):
        own = [point for point in points if point[line] == name and point["mean"] == point["mean"]]
        if not own:
            sentences.append(f"{name}: no numbers.")
            continue
        lowest, highest = (which(own, key=lambda point: round(point["mean"], digits)) for which in (min, max))
        remarks = {} if lowest is highest else {id(lowest): " (lowest)", id(highest): " (highest)"}
        named = {id(point): point for point in (own[0], own[-1], lowest, highest)}
        said = [
            f"{number(point['mean'], digits)} at {place(point)}{remarks.get(own_id, '')}"
            for own_id, point in named.items()
        ]
        mean_floor = sum(point["floor"] for point in own) / len(own)
        at_chance = "" if is_absent(mean_floor) else f"; chance floor {number(mean_floor, digits)}"
        sentences.append(f"{name}: {listed(said)}{at_chance}.")
    return f"{of_seeds(points)} by {by}. " + " ".join(sentences)


def map_in_words(points: Sequence[dict[str, Any]], *, arm: str, seeds: int, digits: int) -> str:
    """Where each layer starts and where it ends, in the mean of so many seeds."""
    steps = sorted({point["step"] for point in points})
    of = "mean over seeds" if seeds > 1 else "one run"
    sentences = [f"{arm}: {of} by layer at {len(steps)} steps, {count(steps[0])} to {count(steps[-1])}."]
    for name in dict.fromkeys(place(point) for point in points):
        own = [point for point in points if place(point) == name]
        ends = " to ".join(number(point["mean"], digits) for point in (own[0], own[-1]))
        sentences.append(f"Layer {name}: from {ends}.")
    return " ".join(sentences)


def picture_in_words(rows: DataFrame, *, arm: str, by: str) -> str:
    """How many tokens of which layers a picture shows."""
    layers = listed([str(layer) for layer in sorted(rows["layer"].unique().tolist())])
    return (
        f"{arm}, seed {rows['seed'].iloc[0]}: {rows['group'].nunique()} tokens in layers {layers}, a point each, "
        f"told apart by {by}; who is near whom, and nothing else."
    )


def groups_note(sizes: Sequence[int]) -> str:
    """Whether the groups of tokens are equally large."""
    if not sizes:
        return ""
    if min(sizes) == max(sizes):
        return f"All groups have n = {count(sizes[0])}."
    return (
        f"Groups differ in n, {count(min(sizes))} to {count(max(sizes))}: similarity is inflated in small "
        "ones, so they do not compare."
    )


def left_out_note(arms: Sequence[str], most: int) -> str:
    """Which arms have no panel of their own because there are too many."""
    if len(arms) <= most:
        return ""
    rest = arms[most:]
    named = listed(list(rest)) if len(rest) <= 8 else f"{len(rest)} arms"
    return f"Only the first {most} arms with such rows have panels; in results.parquet alone: {named}."


def letters(place: int) -> str:
    """The letter of a panel, from 0: a to z, then aa, ab, ..."""
    return (letters(place // 26 - 1) if place >= 26 else "") + chr(ord("a") + place % 26)
