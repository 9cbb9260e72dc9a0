"""Figures of single tokens in some layers of one run: a frame for each layer, a point for each occurrence."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series

from ablations.errors import ResultsError
from ablations.results import SHOWN
from ablations.wording import listed
from reports.figures.by_arm import shown_name
from reports.figures.curves import curves_by_arm, learned, order, require
from reports.figures.files import TITLE_INCHES, legend_below
from reports.figures.panel import (
    MOST_PANELS,
    FigureKind,
    FigureText,
    Panel,
    Shown,
    facts,
    facts_of,
    left_out_note,
    without_panel,
)
from reports.figures.style import COLOURS, GREY, LINES, MARKERS, Style, shade
from reports.statistics.summaries import last_step

FRAME_INCHES = 2.4
"""Height of a frame of a picture; two frames stand side by side."""

FACTS = ("word", "position", "relation", "sense", "number")
"""Facts in the group name of an occurrence, in this order, separated by bars; `-` stands for an unknown fact."""

FRAMES = 4
"""Number of layers in a picture: the first, the last, and others between them at even distances."""

MOST_KINDS = 6
"""Largest number of kinds of points that are told apart; rarer kinds are `other`."""

OTHER = "other"

RANGES = 5
"""Number of ranges into which positions are divided."""


def choose_picture(table: DataFrame, *, arm: str) -> DataFrame:
    """Return the rows of the arm's first seed at its last step, in the layers that are shown.

    Raises:
        ResultsError: the table has no such rows.
    """
    rows = table[(table["measure"] == "pictures") & table["metric"].isin(["x", "y"]) & (table["arm"] == arm)]
    rows = rows[rows["group"].notna() & rows["layer"].notna()]
    rows = last_step(require(rows, table, f"pictures of {arm}", by="layer"))
    rows = rows[rows["seed"] == rows["seed"].min()]
    layers = sorted(rows["layer"].unique().tolist())
    shown = {layers[round(i * (len(layers) - 1) / (FRAMES - 1))] for i in range(FRAMES)}
    return rows[rows["layer"].isin(shown)]


def points(rows: DataFrame) -> DataFrame:
    """Return the points of one picture, with a row for each occurrence and layer: `layer, x, y` and the
    facts, absent if unknown.

    Raises:
        ResultsError: an occurrence has two places in one layer.
    """
    if rows.duplicated(["layer", "group", "metric"]).any():
        raise ResultsError(
            "a picture needs one place for each token and layer; choose the rows of one experiment."
        )
    placed = rows.pivot(index=["layer", "group"], columns="metric", values="value").reset_index()
    facts = placed["group"].str.rsplit("|", n=len(FACTS) - 1, expand=True).reindex(columns=range(len(FACTS)))
    return placed[["layer", "x", "y"]].join(facts.set_axis(FACTS, axis=1).replace("-", pd.NA))


def known_facts(points: DataFrame) -> list[str]:
    """Return the facts in which the points of a picture differ."""
    return [fact for fact in FACTS[:-1] if points[fact].nunique() > 1]


class Cloud(NamedTuple):
    """Content of a picture: the tokens of one arm as points."""

    arm: str
    by: str
    """Fact by which the points are told apart."""
    points: DataFrame
    """Rows of the function `points`."""

    def draw(self, figure: Figure) -> None:
        """Draw frames in two columns, with the name of the arm above and the legend below."""
        layers = self.points["layer"].nunique()
        axes = figure.subplots(-(-layers // 2), 2, squeeze=False).ravel().tolist()
        for unused in axes[layers:]:
            unused.remove()
        draw_picture(self, axes=axes[:layers])
        figure.suptitle(shown_name(self.arm), x=0.02, ha="left", fontsize="medium")
        first = axes[0].get_legend()
        assert first is not None
        first.remove()
        figure.set_figheight(FRAME_INCHES * -(-layers // 2) + legend_below(figure, axes[0]) + TITLE_INCHES)


def draw_picture(drawn: Cloud, *, axes: Sequence[Axes]) -> Sequence[Axes]:
    """Draw a picture with one layer on each of the axes, and return the axes."""
    cloud_points, by = drawn.points, drawn.by
    kind = kinds(cloud_points[by], ordered=by == "position")
    styles = kind_styles(kind.cat.categories.tolist(), ordered=by == "position")
    for ax, layer in zip(axes, sorted(cloud_points["layer"].unique().tolist()), strict=False):
        for name, style in styles.items():
            here = cloud_points[(cloud_points["layer"] == layer) & (kind == name)]
            ax.plot(
                here["x"].to_numpy(float),
                here["y"].to_numpy(float),
                linestyle="",
                marker=style.marker,
                markersize=3.5,
                markeredgewidth=0,
                color=style.colour,
                label=shown_name(name),
                gid="points",
            )
        ax.set_title(f"layer {layer}", fontsize="small")
        ax.set(xticks=[], yticks=[], aspect="equal", xlim=(-1.08, 1.08), ylim=(-1.08, 1.08))
        ax.spines[:].set_color("0.85")
    axes[0].legend(frameon=False, fontsize="small")
    return axes


def kinds(facts: Series, *, ordered: bool) -> Series:
    """Return a category for each point; unknown facts are absent.

    Names become the most frequent facts, and `other` for all others. Numbers (`ordered`) become ranges with
    about equally many points each.
    """
    if ordered:
        whole = pd.to_numeric(facts)
        numbers = sorted(whole.dropna().astype(int))
        edges = sorted({numbers[max(0, len(numbers) * (i + 1) // RANGES - 1)] for i in range(RANGES)})
        starts = [int(whole.min()), *(edge + 1 for edge in edges[:-1])]
        names = [f"{a}" if a == b else f"{a}\N{EN DASH}{b}" for a, b in zip(starts, edges, strict=True)]
        place = np.searchsorted(edges, whole.fillna(edges[-1]).to_numpy(float))
        named = pd.Series([names[i] for i in place], index=facts.index).where(whole.notna())
        return named.astype(pd.CategoricalDtype(names, ordered=True))
    often = [name for name in facts.value_counts().index[:MOST_KINDS] if name != OTHER]  # it may be a word too
    names = [*often, OTHER] if facts.nunique() > len(often) else often
    return facts.where(facts.isin(often) | facts.isna(), OTHER).astype(pd.CategoricalDtype(names))


def kind_styles(names: Sequence[str], *, ordered: bool) -> dict[str, Style]:
    """Return the style of each kind: a sequential palette if the kinds are ordered, and grey for `other`."""
    styles = {}
    for i, name in enumerate(names):
        usual = GREY if name == OTHER else COLOURS[i % len(COLOURS)]
        colour = shade(i, len(names)) if ordered else usual
        styles[name] = Style(colour, MARKERS[i % len(MARKERS)], LINES[0])
    return styles


def picture_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """Yield a panel for each of the first `MOST_PANELS` arms: tokens of its first seed, coloured by one of
    `FACTS`, such as the word or its position. An arm whose tokens do not differ in this fact is left out.

    The coordinates are in the CSV alone, because the numbers mean nothing by themselves.
    """
    present = order(table[(table["measure"] == shown.measure) & table["layer"].notna()], arms)
    gains = learned(table) if present else {}
    pictures = {arm: choose_picture(table, arm=arm) for arm in present[:MOST_PANELS]}
    clouds = [Cloud(arm, shown.metric, points(rows)) for arm, rows in pictures.items()]
    differing = [cloud for cloud in clouds if shown.metric in known_facts(cloud.points)]
    for i, drawn in enumerate(differing):
        arm, rows = drawn.arm, pictures[drawn.arm]
        yield Panel(
            **facts_of(text, shown, arm=arm, place=i, one_csv=True, part_each=True),
            content=drawn,
            rows=rows[SHOWN],
            points=[],
            curves=[facts(curves_by_arm(rows, gains)[arm])],
            description=picture_in_words(rows, arm=arm, by=shown.metric),
            without_rows=without_panel(i, arms, present),
            notes=(left_out_note(present),),
        )


def picture_in_words(rows: DataFrame, *, arm: str, by: str) -> str:
    """Return the number of tokens and the layers of a picture in words."""
    layers = listed([str(layer) for layer in sorted(rows["layer"].unique().tolist())], "and")
    return (
        f"{arm}, seed {rows['seed'].iloc[0]}: {rows['group'].nunique()} tokens in layers {layers}, one point "
        f"each. Colours and markers show the {by}. Only nearness means something."
    )


def caption(bands: set[str], about_tasks: bool) -> str:
    """Return the sentence that says what the pictures are."""
    return "Each picture is one run: the arm's first seed at its last step."


TOKEN_CLOUDS = FigureKind("pictures", picture_panels, caption)
"""Kind of panels of one arm that show where tokens lie in some of its layers."""

PICTURES = FigureText(
    name="pictures",
    title="Pictures of single tokens",
    kind=TOKEN_CLOUDS,
    shown=(
        Shown("pictures", "word"),
        Shown("pictures", "position", folded=True),
        Shown("pictures", "relation", folded=True),
        Shown("pictures", "sense", folded=True),
    ),
    n="tokens",
    d="dimensions",
    how_to_read=(
        "Each point is an occurrence of a word in a sentence, each frame a layer. t-SNE places the states in "
        "two dimensions so that near states stay near. It does not use what the colours and markers show.",
        "Read only which points are near each other. The axes, the size of clusters and the distances between "
        "them mean nothing, and another seed looks different. The measure `neighbours` gives numbers on what "
        "near states share.",
    ),
)
