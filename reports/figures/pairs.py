"""Figure of the distance between runs in each layer: pairs of arms, and the seeds of each arm.

Functions that select rows raise a ResultsError if the table has no such rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from ablations.results import SHOWN
from ablations.wording import several
from reports.figures.by_arm import end_name
from reports.figures.curves import (
    FEWEST_PLACES,
    curves,
    curves_by_arm,
    learned,
    metric_rows,
    order,
    require,
)
from reports.figures.files import lay_out
from reports.figures.lines import Line, PanelLook, draw_lines
from reports.figures.panel import (
    BEYOND,
    OF_TEXT,
    FigureKind,
    FigureText,
    Panel,
    Shown,
    facts,
    facts_of,
    lines_in_words,
    points_of,
    rows_shown,
)
from reports.figures.style import Style, arm_styles, label_layers, pair_style, seeds_style
from reports.statistics.summaries import bands, last_step
from reports.words import MINUS, axis_label, words_of_metric

MOST_ARMS = 4
"""Largest number of arms of which all pairs are drawn; of more arms, only pairs with the first arm are drawn."""

MOST_BESIDE_FIRST = 6
"""Largest number of arms, the first included, in a figure that pairs arms with the first one only."""


class Pair(NamedTuple):
    """Pair of arms, or one arm twice for pairs of its seeds."""

    first: str
    second: str

    @property
    def name(self) -> str:
        """Name of the pair: ``mlm – clm``, or ``mlm, between its seeds``."""
        if self.first == self.second:
            return f"{self.first}, between its seeds"
        return f"{self.first} \N{EN DASH} {self.second}"


def choose_pairs(table: DataFrame, *, metric: str, arms: Sequence[str] | None = None) -> DataFrame:
    """Return the rows of every pair of runs at the last step at which it was compared.

    Two arms are compared at the same seed; pairs at different seeds have another distance, which only claims
    read. Further columns: `x` is the layer, `line` names the two arms in the order of `arms`, and
    `overlapping` marks the seeds of one arm, whose pairs share runs.
    """
    return last_step(_named(table, metric=metric, arms=arms))


def pairs_over_training(table: DataFrame, *, metric: str, arms: Sequence[str] | None = None) -> DataFrame:
    """Return a table for maps of layers by steps, in which each drawn pair is an arm with its distance at
    every compared step. `seed` holds the unit of `one_a_unit`."""
    rows = _named(table, metric=metric, arms=arms)
    pairs = [pair.name for pair in drawn_pairs(rows, arms)]
    steps = [
        one_a_unit(of_step).assign(step=step) for step, of_step in rows[rows["line"].isin(pairs)].groupby("step")
    ]
    distances = pd.concat(steps).rename(columns={"line": "arm", "x": "layer"})
    for column in ("experiment", "measure", "metric", "unit"):
        distances[column] = rows[column].iloc[0]
    return distances.set_index("arm").loc[pairs].reset_index().reindex(columns=table.columns)


def _named(table: DataFrame, *, metric: str, arms: Sequence[str] | None) -> DataFrame:
    """Return the rows of every pair of runs at every step, with the columns of `choose_pairs`."""
    rows = metric_rows(table, measure="run_distance", metric=metric)
    rows = require(
        rows[rows["other_run_id"].notna() & rows["group"].notna()], table, f"run_distance {metric}", by="layer"
    )
    other_seed = rows["other_run_id"].map(dict(zip(table["run_id"], table["seed"], strict=True)))
    rows = rows[(rows["arm"] == rows["group"]) | other_seed.isna() | (other_seed == rows["seed"])]
    place = {arm: i for i, arm in enumerate(_arms(rows, arms))}
    pairs = [Pair(*sorted(two, key=place.__getitem__)) for two in zip(rows["arm"], rows["group"], strict=True)]
    return rows.assign(
        line=[pair.name for pair in pairs], overlapping=[pair.first == pair.second for pair in pairs]
    )


def one_a_unit(rows: DataFrame) -> DataFrame:
    """Return rows of `choose_pairs` with one value for each line, layer and unit; the unit is in `seed`.

    For two arms the unit is the seed at which they are compared. For the seeds of one arm it is the pair of
    runs. Values of both directions are averaged.
    """
    ids = pd.Series(
        ["+".join(sorted(two)) for two in zip(rows["run_id"], rows["other_run_id"], strict=True)], index=rows.index
    )
    unit = rows["seed"].astype("string").where(~rows["overlapping"], ids)
    grouped = rows.assign(seed=unit).groupby(["line", "x", "seed"], sort=False)
    means = grouped[["value", "floor", "standard_error"]].mean()
    return means.join(grouped.agg({"n": "min", "d": "max", "overlapping": "any"})).reset_index()


def drawn_pairs(rows: DataFrame, arms: Sequence[str] | None = None) -> list[Pair]:
    """Return the pairs that get a line: first those of two arms, then the seeds of each arm.

    Up to four arms have all their pairs. Of more arms, only the first six are drawn, each paired with the
    first.
    """
    present = _arms(rows, arms)
    if len(present) > MOST_ARMS:
        present = present[:MOST_BESIDE_FIRST]
        two = [Pair(present[0], other) for other in present[1:]]
    else:
        two = [Pair(first, second) for i, first in enumerate(present) for second in present[i + 1 :]]
    lines = set(rows["line"])
    return [pair for pair in [*two, *(Pair(arm, arm) for arm in present)] if pair.name in lines]


class PairLines(NamedTuple):
    """Content of a figure with a line for each pair of arms: one metric, selected once."""

    metric: str
    pairs: list[Pair]
    """Pairs that have a line."""
    rows: DataFrame
    """Rows of `choose_pairs` for all pairs."""
    units: DataFrame
    """Rows of `one_a_unit` for the drawn pairs: one value for each unit."""
    summary: DataFrame
    """Result of `bands` for the units."""
    styles: dict[str, Style]
    """Styles by arm."""

    def draw(self, figure: Figure) -> None:
        """Draw the lines."""
        lay_out(figure, lambda ax: draw_pairs(self, ax=ax), names=[self.label(pair) for pair in self.pairs])

    def label(self, pair: Pair) -> str:
        """Return the name of a pair for the end of its line, with the number of its seeds or of pairs of seeds."""
        return end_name(f"{pair.name} ({_counted(self.units, pair)})")


def pair_lines(table: DataFrame, *, metric: str, arms: Sequence[str] | None = None) -> PairLines:
    """Select the content of the figure of distances between runs, which `draw_pairs` draws.

    Args:
        arms: arms of the experiment in order; by default those of the table.
    """
    rows = choose_pairs(table, metric=metric, arms=arms)
    pairs = drawn_pairs(rows, arms)
    units = one_a_unit(rows[rows["line"].isin([pair.name for pair in pairs])])
    styles = arm_styles([*dict.fromkeys([*(arms or ()), *(arm for pair in pairs for arm in pair)])])
    return PairLines(metric, pairs, rows, units, bands(units), styles)


def draw_pairs(drawn: PairLines, *, ax: Axes) -> Axes:
    """Draw the content that `pair_lines` selected, and return the axes."""
    lines = []
    for pair in drawn.pairs:
        first, second = (drawn.styles[arm] for arm in pair)
        style = seeds_style(first) if pair.first == pair.second else pair_style(first, second)
        lines.append(Line(pair.name, drawn.label(pair), style))
    floor = words_of_metric("run_distance", drawn.metric).floor
    look = PanelLook(floor, opacity=0.55, seeds=False, own_floors=False, bars=True)
    draw_lines(drawn.units, drawn.summary, lines, ax=ax, look=look)
    label_layers(ax, drawn.units["x"].tolist(), leads=False)
    ax.set_ylabel(axis_label("run_distance", drawn.metric))
    return ax


def _arms(rows: DataFrame, arms: Sequence[str] | None) -> list[str]:
    """Return the arms on both sides of pairs: first those of `arms` in that order, then the others."""
    sides = pd.concat([rows["arm"], rows["group"]])
    return order(DataFrame({"arm": sides}), arms)


def _counted(rows: DataFrame, pair: Pair) -> str:
    pair_rows = rows[(rows["line"] == pair.name) & rows["value"].notna()]
    units = int(pair_rows["seed"].nunique())
    counted = several(units, "pair") if pair.first == pair.second else f"n = {units}"
    return counted.replace(" ", "\N{NO-BREAK SPACE}")


def pair_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """Yield one panel with a line for each pair of arms and for the seeds of each arm, if the metric has rows."""
    if rows_shown(table, shown)["other_run_id"].isna().all():
        return
    drawn = pair_lines(table, metric=shown.metric, arms=arms)
    rows, units = drawn.rows, drawn.units
    if units["x"].nunique() < FEWEST_PLACES:
        return
    names = {pair.name: pair.name for pair in drawn.pairs}
    points = points_of(units, drawn.summary, shown, key="pair", names=names)
    present = _arms(rows, arms)
    doubts = {arm: curve.doubt for arm, curve in curves_by_arm(table, learned(table)).items()}
    about = facts_of(text, shown)
    yield Panel(
        **about,
        content=drawn,
        rows=rows[SHOWN],
        points=points,
        curves=_facts(drawn, doubts, _early(rows)),
        description=lines_in_words(points, line="pair", digits=about["digits"]),
        without_rows=[arm for arm in arms if arm not in present],
        notes=(_pairs_note(present),),
    )


def _pairs_note(arms: list[str]) -> str:
    """Return a note on which pairs are drawn if there are too many; empty otherwise."""
    if len(arms) <= MOST_ARMS:
        return ""
    condition = f", and only with the next {MOST_BESIDE_FIRST - 1} arms" if len(arms) > MOST_BESIDE_FIRST else ""
    return (
        f"Only the pairs with the first arm, {arms[0]}, are drawn{condition}; the CSV has the pairs of all "
        f"{len(arms)} arms."
    )


def _facts(drawn: PairLines, doubts: Mapping[str, str], early: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the facts about each line. `early` has the step at which its runs were compared, if it is not their
    last step."""
    units = drawn.units.assign(arm=drawn.units["line"], measure="run_distance", step=None)
    lines = curves(units, drawn.summary, {}, arms=[pair.name for pair in drawn.pairs])
    return [
        facts(
            line._replace(judged=False),
            *(f"{arm}: {doubts[arm]}" for arm in dict.fromkeys(pair) if doubts.get(arm) not in (None, "", arm)),
            *([f"compared at step {early[pair.name]}"] if pair.name in early else []),
        )
        for pair, line in zip(drawn.pairs, lines, strict=True)
    ]


def _early(rows: DataFrame) -> dict[str, int]:
    """Return the step of each line whose runs were compared before their last step, as they share no later one."""
    last = rows.groupby("run_id")["step"].transform("max")
    early = rows[(rows["step"] < last).fillna(False)]
    return {str(line): int(step) for line, step in early.groupby("line")["step"].min().items()}


def caption(bands: set[str], about_tasks: bool) -> str:
    """Return the sentence that says what lines and bars are."""
    sentence = (
        "Lines are means, bars the 95% Student t intervals over seeds. Bars of the same layer stand side by "
        "side. The pairs of one arm's seeds share runs, so their mean has no interval."
    )
    if "text" in bands:
        sentence += f" If there is one pair, its bar is {OF_TEXT}."
    return f"{sentence} {BEYOND}"


PAIR_LINES = FigureKind("pairs", pair_panels, caption)
"""Kind of panels with a line for each pair of arms."""

RUN_DISTANCE = FigureText(
    name="run_distance",
    title="Distance between runs in the same layer",
    kind=PAIR_LINES,
    shown=(Shown("run_distance", "pwcca"), Shown("run_distance", "debiased_cka")),
    n="tokens",
    d="dimensions",
    how_to_read=(
        f"Each point compares the states of two runs for the same tokens in the same layer: 1 {MINUS} "
        "similarity. PWCCA is 0 if the states of one run are a linear map of the other's; a direction that "
        "only one run has is not counted. CKA is 0 if the states differ only by a rotation and one scale. "
        "Lines with filled markers are two arms with the same seed, with the colour of the second arm and the "
        "markers of the first. Dotted lines with hollow markers are two seeds of one arm. The chance level is "
        "the same number with the rows of one run shuffled: two runs with nothing in common.",
        "If the line of two arms lies above the dotted lines of both, the arms differ by more than the chance "
        "of training. Beware: arms with the same seed start from the same weights, but two seeds do not. So "
        "layers that training moves little may be closer between arms than between seeds.",
    ),
)
