"""Figures over training: a map of layers by steps for each arm, in which colour is the value.

Functions that read rows raise a ResultsError if a column is missing, or if a seed has several values for a cell.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from pandas import DataFrame

from ablations.catalogue import METRICS
from ablations.errors import ResultsError
from ablations.results import SHOWN
from reports.figures.by_arm import arm_label
from reports.figures.curves import (
    FEWEST_STEPS,
    Curve,
    common_steps,
    curves_by_arm,
    is_about,
    learned,
    metric_rows,
    order,
)
from reports.figures.files import lay_out
from reports.figures.pairs import pairs_over_training
from reports.figures.panel import (
    CHANGE,
    CHANGE_CKA,
    MOST_PANELS,
    OTHER_TOKENS,
    FigureKind,
    FigureText,
    Panel,
    Shown,
    facts,
    facts_of,
    left_out_note,
    place_in_words,
    without_panel,
)
from reports.figures.style import TICK_LETTERS, thinned
from reports.words import MINUS, axis_label, count, leads_on, number

SHADES = 20
"""Number of colours of a map, few enough to find each again in the colour bar."""


def map_table(table: DataFrame, *, measure: str, metric: str, arms: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """Return the rows from which maps of a metric are made, and the names that may have a map: arms, or pairs
    of arms for distances between runs."""
    if metric_rows(table, measure=measure, metric=metric)["other_run_id"].isna().all():
        return table, list(arms)
    pairs = pairs_over_training(table, metric=metric, arms=arms)
    return pairs, order(pairs, None)


def choose_steps(table: DataFrame, *, measure: str, metric: str, group: str | None = None) -> DataFrame:
    """Return the rows of one group (None: all tokens), at every step at which all seeds of an arm were
    measured. The result is empty if there are no such rows."""
    rows = metric_rows(table, measure=measure, metric=metric)
    rows = rows[is_about(rows, group) & rows["other_run_id"].isna() & rows["step"].notna()]
    return common_steps(rows).sort_values(["step", "x"], kind="stable")


def grid(rows: DataFrame) -> DataFrame:
    """Return the mean over seeds, with a row for each layer from 0 up and a column for each step."""
    if rows.duplicated(["seed", "step", "x"]).any():
        raise ResultsError("a map needs one value for a seed, layer and step; choose the rows of one experiment.")
    return rows.groupby(["x", "step"])["value"].mean().unstack("step").sort_index().sort_index(axis=1)


class StepMap(NamedTuple):
    """Map of layers by steps of one arm, or of one pair of arms."""

    measure: str
    metric: str
    group: str | None
    rows: DataFrame
    """Rows of `choose_steps`."""
    means: DataFrame
    """Cells of the map: the `grid` of these rows."""
    ends: tuple[float, float]
    """Values of the first and the last colour, the same for all arms of a metric."""
    curve: Curve

    def draw(self, figure: Figure) -> None:
        """Draw the map."""
        lay_out(figure, lambda ax: draw_map(self, ax=ax))


def step_maps(
    table: DataFrame, *, measure: str, metric: str, arms: Sequence[str] | None = None, group: str | None = None
) -> dict[str, StepMap]:
    """Return the map of each arm that has enough steps, in the order of the arms."""
    every_row = choose_steps(table, measure=measure, metric=metric, group=group)
    rows_by_arm = dict(iter(every_row.groupby("arm")))
    every = {arm: rows_by_arm[arm] for arm in order(table, arms) if arm in rows_by_arm}
    chosen = {arm: rows for arm, rows in every.items() if rows["step"].nunique() >= FEWEST_STEPS}
    grids = {arm: grid(rows) for arm, rows in chosen.items()}
    values = np.concatenate([np.empty(0), *(cells.to_numpy(float).ravel() for cells in grids.values())])
    values = values[np.isfinite(values)]
    ends = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    curves = curves_by_arm(every_row, learned(table)) if chosen else {}
    return {
        arm: StepMap(
            *(measure, metric, group, rows, grids[arm], ends),
            curve=curves[arm]._replace(band="seeds" if rows["seed"].nunique() > 1 else ""),
        )
        for arm, rows in chosen.items()
    }


def draw_map(drawn: StepMap, *, ax: Axes) -> Axes:
    """Draw one map of `step_maps`, and return the axes."""
    measure, metric, means = drawn.measure, drawn.metric, drawn.means
    label = axis_label(measure, metric, drawn.group)
    draw_cells(means.to_numpy(float), ax=ax, ends=drawn.ends, label=label).set_clip_on(False)
    _label(ax, means, leads=leads_on(measure, metric))
    ax.set_title(arm_label(drawn.curve), loc="left", fontsize="medium")
    return ax


def draw_cells(cells_RC: np.ndarray, *, ax: Axes, ends: tuple[float, float], label: str) -> QuadMesh:
    """Draw a cell in a colour for each number, row 0 at the bottom, beside a bar of the colours. Return the
    cells.

    Args:
        ends: numbers with the first and the last colour.
        label: label of the bar.
    """
    mesh = ax.pcolormesh(
        np.arange(cells_RC.shape[1] + 1) - 0.5,
        np.arange(cells_RC.shape[0] + 1) - 0.5,
        np.ma.masked_invalid(cells_RC),
        cmap=colormaps["cividis"].resampled(SHADES),
        vmin=ends[0],
        vmax=ends[1] if ends[1] > ends[0] else ends[0] + 1,
        # Edges in the colours of the cells close the thin gaps between cells.
        edgecolors="face",
        linewidth=0.4,
        gid="map",
    )
    ax.set_facecolor("0.85")  # colour of cells without a number
    for side in ax.spines.values():
        side.set_visible(False)
    ax.tick_params(length=0)
    bar = ax.figure.colorbar(mesh, ax=ax, label=label)
    bar.outline.set_visible(False)
    assert bar.solids is not None
    bar.solids.set(edgecolor="face", linewidth=0.4)
    return mesh


def _label(ax: Axes, means: DataFrame, *, leads: bool) -> None:
    """Write ticks and labels of both axes. The last step always has a label."""
    steps, layers = [int(step) for step in means.columns], [int(layer) for layer in means.index]
    most_labels = TICK_LETTERS // (len(count(steps[-1])) + 1)
    places = thinned(list(range(len(steps)))[::-1], limit=most_labels)[::-1]
    ax.set_xticks(places, [count(steps[place]) for place in places])
    rows = thinned(list(range(len(layers))), limit=13)
    ax.set_yticks(rows, [f"{layers[row]}→{layers[row] + 1}" if leads else str(layers[row]) for row in rows])
    ax.set_xlabel("step")
    ax.set_ylabel("layer → next layer" if leads else "layer (0 = embeddings)")


def map_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """Yield a map of layers by steps for each arm, or pair of arms, that was measured at enough steps."""
    measure, metric, group = shown.measure, shown.metric, shown.about
    if table.loc[table["measure"] == measure, "step"].nunique() < FEWEST_STEPS:
        return  # as in most experiments, to save time
    table, arms = map_table(table, measure=measure, metric=metric, arms=arms)
    maps = step_maps(table, measure=measure, metric=metric, arms=arms, group=group)
    present = list(maps)
    for i, arm in enumerate(present[:MOST_PANELS]):
        drawn = maps[arm]
        cells = _cells(drawn, arm=arm)
        about = facts_of(text, shown, arm=arm, place=i, prefix="maps", part_each=True)
        seeds = drawn.rows["seed"].nunique()
        yield Panel(
            **about,
            content=drawn,
            rows=drawn.rows[SHOWN],
            points=cells,
            curves=[facts(drawn.curve)],
            description=map_in_words(cells, arm=arm, seeds=seeds, digits=about["digits"]),
            without_rows=without_panel(i, arms, present),
            notes=(left_out_note(present),),
        )


def _cells(drawn: StepMap, *, arm: str) -> list[dict[str, Any]]:
    """Return the cells of a map as plain data, step by step."""
    means, leads = drawn.means, leads_on(drawn.measure, drawn.metric)
    steps, layers = means.columns.astype(int).tolist(), means.index.astype(int).tolist()
    return [
        {"arm": arm, "step": step, "layer": layer, "layer_to": layer + 1 if leads else None, "mean": float(value)}
        for step, column in zip(steps, means.to_numpy(float, na_value=float("nan")).T, strict=True)
        for layer, value in zip(layers, column, strict=True)
    ]


def map_in_words(points: Sequence[dict[str, Any]], *, arm: str, seeds: int, digits: int) -> str:
    """Return the first and the last value of each layer in words; with several seeds they are means."""
    steps = sorted({point["step"] for point in points})
    of = "mean over seeds" if seeds > 1 else "one run"
    sentences = [f"{arm}: {of} by layer at {len(steps)} steps, {count(steps[0])} to {count(steps[-1])}."]
    for name in dict.fromkeys(place_in_words(point) for point in points):
        layer_points = [point for point in points if place_in_words(point) == name]
        ends = " to ".join(number(point["mean"], digits) for point in (layer_points[0], layer_points[-1]))
        sentences.append(f"Layer {name}: from {ends}.")
    return " ".join(sentences)


def caption(bands: set[str], about_tasks: bool) -> str:
    """Return the sentence that says what the cells are."""
    cells = "means over seeds" if "seeds" in bands else "single runs"
    return f"Cells are {cells}; grey cells have no number. All arms of a metric share their colours."


STEP_MAPS = FigureKind("maps", map_panels, caption)
"""Kind of panels with the map of one arm: layers by steps."""

MAPPED_RANKS = ((1, 10), (101, 250), (1001, 2500))
"""Frequency ranks that are mapped over training: frequent, medium and rare tokens."""

MAPPED_TAGS = ("NOUN", "VERB", "DET")
"""Parts of speech that are mapped over training, in the tags of Universal Dependencies."""

MAPPED_GROUPS = (
    *((f"frequency ranks {first}\N{EN DASH}{last}", f"rank {first}-{last}") for first, last in MAPPED_RANKS),
    *((f"part of speech {tag}", f"tag {tag}") for tag in MAPPED_TAGS),
)
"""Name of each mapped group on the page, and its name in the results."""

OVER_TRAINING = FigureText(
    name="over_training",
    title="Over training",
    kind=STEP_MAPS,
    shown=(
        CHANGE._replace(title=f"Change, 1 {MINUS} PWCCA similarity"),
        Shown("token_information", "cross_fitted", "Information about the input token"),
        CHANGE_CKA._replace(title=f"Change, 1 {MINUS} debiased CKA", folded=True),
        Shown("read_out", "linear", "Input token read by a linear probe", folded=True),
        *(
            Shown("token_information", "cross_fitted", f"Information about the {about}", about, folded=True)
            for about in OTHER_TOKENS
        ),
        *(
            Shown("neighbours", metric, f"Neighbours {sentence}", folded=True)
            for metric, sentence in (
                ("same_token", "with the same token"),
                ("position_distance", "and their distance of positions"),
                ("same_left", "with the same token to the left"),
                ("same_right", "with the same token to the right"),
                ("same_relation", "with the same syntactic relation"),
                ("same_sense", "with the same sense"),
                ("same_left_part", "with the same syntax to the left"),
                ("same_right_part", "with the same syntax to the right"),
            )
        ),
        *(Shown("geometry", metric, folded=True) for metric in METRICS["geometry"]),
        Shown("run_distance", "pwcca", "Distance between runs", folded=True),
        *(
            shown._replace(title=f"{shown.title} of {group}", about=about)
            for shown in (
                CHANGE._replace(title="Change", folded=True),
                Shown("influence", "pwcca", "Influence", folded=True),
            )
            for group, about in MAPPED_GROUPS
        ),
    ),
    n="tokens",
    d="dimensions or clusters",
    how_to_read=(
        "Each cell is a layer at a step; step 0 has the initial weights. A column is the curve of the figure "
        "above at that step. A row is one layer over training.",
        "All columns have the same width, whatever the number of steps between them, so a slope is not a "
        "speed. Colours show no uncertainty. Before you read a small difference, look at the interval of the "
        "curve at the last step.",
    ),
)
