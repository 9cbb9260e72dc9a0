"""Lines with bands, chance levels and ceilings, for figures with a line for each arm, pair or group.

Each line has its name at its end, so no panel needs a legend. A note above the axes says what chance level
and ceiling are.

Drawn artists can be found by their gid: `mean`, `band`, `seed`, `floor`, `ceiling`, `beside`, `unnamed`
and `end`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from pandas import DataFrame, Series

from reports.figures.style import End, Style, mark_points, name_ends
from reports.words import number

LEAST_HEIGHT = 0.4
"""Smallest share of the axis that curves keep if their chance level is drawn; a level further away is written."""

ASIDE = 0.24
"""Distance from a layer to the first and to the last of several points that stand side by side."""

MARKER_SHARE = 0.8
"""Size of a marker on a line, relative to a marker without a line."""

ELSEWHERE = (0, (7, 2.5))
"""Line style of published curves: dashes longer than those of a chance level."""

CEILING_WIDTH = 0.8
"""Width of a ceiling's line, in points."""

SAME_CEILING = 1e-6
"""Largest difference in nats at which ceilings are drawn as one line."""

FEWEST_DIGITS = 2
"""Smallest number of decimals of a written chance level; a small level has enough decimals to differ from 0."""

FINEST_SHARE = 1e-3
"""Share of the axis' largest number below which a written level counts as 0, such as the error of rounding."""


class Line(NamedTuple):
    """Line of a panel."""

    name: str
    """Value of the line's rows in the column `line`."""
    label: str
    """Name at the end of the line."""
    style: Style


class PublishedCurve(NamedTuple):
    """Published curve from elsewhere, drawn beside the lines."""

    label: str
    colour: str
    y_by_x: dict[int, float]


class PanelLook(NamedTuple):
    """Look of a panel: everything that it draws besides the means."""

    floor: str
    """Data on which the chance level is computed, in a few words."""
    ceiling: str = ""
    """Largest possible value, in a few words; empty if no ceiling is drawn."""
    opacity: float = 0.18
    """Opacity of bands."""
    seeds: bool = True
    """Whether each seed is a thin line, if there are several."""
    every: bool = True
    """Whether the line breaks at a place without a number: True for layers, False for steps."""
    own_floors: bool = True
    """Whether each line has its own chance level; otherwise all share one, the mean."""
    bars: bool = False
    """Whether bands are bars at the points, side by side, which keeps many crossing lines readable."""
    note: str = ""
    """First line of the note above the axes."""


def draw_lines(
    rows: DataFrame,
    summary: DataFrame,
    lines: Sequence[Line],
    *,
    ax: Axes,
    look: PanelLook,
    published: Sequence[PublishedCurve] = (),
    unnamed: Sequence[str] = (),
) -> None:
    """Draw means, bands, seeds, chance levels and ceilings of the lines, curves from elsewhere, and the names
    of all.

    Args:
        rows: values of each seed, with `floor` and, if drawn, `ceiling`. The axis fits the values and chance
            levels of all lines, also of those that are not drawn.
        summary: result of `bands` for these rows.
        published: curves from elsewhere, which the axis fits too.
        unnamed: lines whose means are drawn thin and grey behind the others, without names. With such lines
            the axis fits means and the bands of the other lines, as single seeds of hundreds of lines reach far.
    """
    whole = list(range(int(rows["x"].min()), int(rows["x"].max()) + 1))
    asides = np.linspace(-ASIDE, ASIDE, len(lines)) if look.bars and len(lines) > 1 else np.zeros(len(lines))
    names = [line.name for line in lines]
    drawn, shown = rows[rows["line"].isin(names)], summary[summary["line"].isin(names)]
    if unnamed:
        _draw_unnamed(summary[summary["line"].isin(unnamed)], ax=ax)
    for line, aside in zip(lines, asides.tolist(), strict=True):
        line_rows = drawn[drawn["line"] == line.name]
        # The line breaks at a layer without a number, but it connects measured steps.
        places = whole if look.every else sorted(line_rows["x"].unique().tolist())
        if look.own_floors:
            _draw_floor(line_rows, places, ax=ax, colour=line.style.colour)
        if look.seeds:
            _draw_seeds(line_rows, places, ax=ax, colour=line.style.colour)
        _draw_mean(shown[shown["line"] == line.name], places, ax=ax, line=line, look=look, aside=aside)
    for curve in published:
        _draw_published(curve, ax=ax)
    fitted, banded = (rows["value"], summary) if not unnamed else (summary["mean"], shown)
    floors = _finite(rows.groupby(["line", "x"])["floor"].mean())
    if floors.size and not look.own_floors:
        _draw_floor(drawn, whole, ax=ax, colour="0.4")
    # A band over text is all that is known about the error of a single run, so the axis fits it.
    over_text = _finite(banded.loc[banded["band"] == "text", ["low", "high"]])
    elsewhere = [value for curve in published for value in curve.y_by_x.values()]
    values = np.concatenate([_finite(fitted), over_text.ravel(), elsewhere])
    bands = _finite(banded[["low", "high"]])
    ceilings = _draw_ceilings(drawn, lines, whole, ax=ax) if look.ceiling else np.empty(0)
    here = _finite(drawn.groupby(["line", "x"])["floor"].mean())
    _fit_ends(ax, values, bands, floors, ceilings, look=look, written=here if here.size else floors)
    ends = [end for line in lines for end in _end(shown[shown["line"] == line.name], line)]
    name_ends(ax, [*ends, *(_end_of_published(curve) for curve in published)])
    sns.despine(ax=ax)


def _end(summary: DataFrame, line: Line) -> list[End]:
    """Return the last point of a line with its name; empty if the line has no number."""
    points = summary.loc[summary["mean"].notna(), ["x", "mean"]].sort_values("x").to_numpy(float)
    return [End(float(x), float(y), line.label, line.style.colour) for x, y in points[-1:]]


def _end_of_published(curve: PublishedCurve) -> End:
    x = max(curve.y_by_x)
    return End(x, curve.y_by_x[x], curve.label, curve.colour)


def _draw_published(curve: PublishedCurve, *, ax: Axes) -> None:
    """Draw a curve from elsewhere, dashed with hollow points."""
    ax.plot(
        list(curve.y_by_x),
        list(curve.y_by_x.values()),
        color=curve.colour,
        linestyle=ELSEWHERE,
        marker="o",
        markersize=4,
        markerfacecolor="white",
        lw=1.2,
        label=curve.label,
        zorder=2.5,
        gid="beside",
    )


def _draw_mean(
    summary: DataFrame, places: list[int], *, ax: Axes, line: Line, look: PanelLook, aside: float
) -> None:
    """Draw mean and band of one line. The line breaks at a place without a number.

    `aside` is the distance of its points from their places.
    """
    style = line.style
    at = summary.set_index("x")[["mean", "low", "high"]].reindex(places).astype(float)
    shown = np.array(places) + aside if aside else places
    if look.bars and at["low"].notna().any():
        ax.vlines(shown, at["low"], at["high"], color=style.colour, alpha=look.opacity, lw=2, zorder=2, gid="band")
    elif at["low"].notna().any():
        ax.fill_between(places, at["low"], at["high"], color=style.colour, alpha=look.opacity, lw=0, gid="band")
    hollow = style.filling == "white"
    ax.plot(
        shown,
        at["mean"],
        color=style.colour,
        linestyle=style.line,
        marker=style.marker,
        markersize=MARKER_SHARE * mark_points(style.marker),
        markerfacecolor=style.filling or style.colour,
        markeredgecolor=style.colour if hollow else "white",
        markeredgewidth=1 if hollow else 0.6,
        lw=1.2 if look.bars else 1.8,
        label=line.label,
        zorder=3,
        gid="mean",
    )


def _draw_floor(rows: DataFrame, places: list[int], *, ax: Axes, colour: str) -> None:
    """Draw the chance level, dashed, as mean over seeds."""
    floors = rows.groupby("x")["floor"].mean().reindex(places).to_numpy(float)
    if np.isfinite(floors).any():
        ax.plot(places, floors, color=colour, linestyle="--", lw=1, alpha=0.8, zorder=1, gid="floor")


def _fit_ends(
    ax: Axes,
    values: np.ndarray,
    bands: np.ndarray,
    floors: np.ndarray,
    ceilings: np.ndarray,
    *,
    look: PanelLook,
    written: np.ndarray,
) -> None:
    """Fit the y axis to the curves, and to chance levels and then ceilings if the curves stay readable.

    A note above the axes explains the lines of chance levels and ceilings. Those that do not fit are written
    out as numbers; for chance levels these are the numbers of `written`.
    """
    notes, beyond = [look.note] if look.note else [], []
    inside = floors if fit_values(ax, values, bands, floors) else floors[:0]
    if ceilings.size:
        name = f"ceiling ({look.ceiling})"
        if fit_values(ax, values, bands, np.concatenate([inside, ceilings])):
            notes.append(f"thin: {name}")
        else:
            fit_values(ax, values, bands, inside)
            beyond.append(where_beyond(ax, ceilings, name=name))
    if inside.size:
        notes.append(f"dashed: chance level ({look.floor})")
    elif floors.size:
        beyond.append(where_beyond(ax, written, name=f"chance level ({look.floor})"))
    beyond += intervals_beyond(ax, bands)
    if notes or beyond:
        write_above(ax, "\n".join([*notes, *beyond]))


def _draw_ceilings(rows: DataFrame, lines: Sequence[Line], places: list[int], *, ax: Axes) -> np.ndarray:
    """Draw the ceiling of each line, thin, or one grey line if all are the same; return all their numbers."""
    ceiling_by_line = {
        line.name: rows[rows["line"] == line.name].groupby("x")["ceiling"].mean().reindex(places).to_numpy(float)
        for line in lines
    }
    numbers = np.concatenate([np.empty(0), *ceiling_by_line.values()])
    numbers = numbers[np.isfinite(numbers)]
    if not numbers.size:
        return numbers
    if np.ptp(numbers) <= SAME_CEILING:
        ax.plot(
            places, np.full(len(places), numbers.mean()), color="0.4", lw=CEILING_WIDTH, zorder=1, gid="ceiling"
        )
        return numbers
    for line in lines:
        ceilings = ceiling_by_line[line.name]
        ax.plot(places, ceilings, color=line.style.colour, lw=CEILING_WIDTH, zorder=1, gid="ceiling")
    return numbers


def _draw_seeds(rows: DataFrame, places: list[int], *, ax: Axes, colour: str) -> None:
    """Draw each seed as a thin line, if there are several."""
    value_by_x = rows.pivot(index="seed", columns="x", values="value").reindex(columns=places)
    if len(value_by_x) > 1:
        curves = [np.column_stack([places, values]) for values in value_by_x.to_numpy(float)]
        ax.add_collection(LineCollection(curves, colors=colour, lw=0.7, alpha=0.45, zorder=2, gid="seed"))


def _draw_unnamed(summary: DataFrame, *, ax: Axes) -> None:
    """Draw the means of lines thin and grey behind all others, without bands and names."""
    means = summary.pivot(index="line", columns="x", values="mean").sort_index(axis=1)
    places = means.columns.to_numpy(float)
    curves = [np.column_stack([places, values]) for values in means.to_numpy(float)]
    ax.add_collection(LineCollection(curves, colors="0.82", lw=0.6, zorder=0.5, gid="unnamed"), autolim=False)


def _finite(numbers: DataFrame | Series) -> np.ndarray:
    values = numbers.to_numpy(float)
    return values[np.isfinite(values)]


def fit_values(ax: Axes, values: np.ndarray, bands: np.ndarray, floors: np.ndarray) -> bool:
    """Fit the y axis to the curves. Return whether their chance levels fit too and leave the curves readable."""
    if not values.size:
        return True
    low, high = values.min(), values.max()
    height = (high - low) or abs(high) or 1.0
    if bands.size:
        # Intervals of two seeds reach 13 standard errors to each side, so they may leave the axis.
        low = min(low, max(bands.min(), low - height / 2))
        high = max(high, min(bands.max(), high + height / 2))
    lowest, highest = min([low, *floors]), max([high, *floors])
    floors_fit = bool(high - low >= LEAST_HEIGHT * (highest - lowest))
    if floors_fit:
        low, high = lowest, highest
    margin = 0.06 * ((high - low) or height)
    ax.set_ylim(low - margin, high + margin)
    return floors_fit


def write_above(ax: Axes, text: str) -> None:
    """Write a small note above the axes, at the right: the label of a second axis, which titles avoid."""
    above = ax.secondary_xaxis("top")
    # On a logarithmic axis, the second axis gets minor ticks when it is drawn.
    above.tick_params(which="both", top=False, labeltop=False)
    above.spines["top"].set_visible(False)
    above.patch.set_visible(False)
    above.set_xlabel(text, loc="right", size="small", color="0.35")


def written_above(ax: Axes) -> list[str]:
    """Return the lines of the notes above the axes."""
    notes = [above.get_xlabel() for above in ax.child_axes]
    return [line for note in notes for line in note.splitlines()]


def where_beyond(ax: Axes, numbers: np.ndarray, *, name: str, digits: int = FEWEST_DIGITS) -> str:
    """Return the numbers beyond the axis in words: ``chance level (rows shuffled): 4.81 ↑``.

    Args:
        digits: least number of decimals.
    """
    bottom, top = ax.get_ylim()
    finest = FINEST_SHARE * max(abs(bottom), abs(top))
    lowest, highest = (
        number(end, max(digits, _digits(end if abs(end) >= finest else 0)))
        for end in (numbers.min(), numbers.max())
    )
    where = lowest if lowest == highest else f"{lowest} to {highest}"
    arrow = "↑" * bool(numbers.max() > top) + "↓" * bool(numbers.min() < bottom)
    return f"{name}: {where} {arrow}"


def intervals_beyond(ax: Axes, bands: np.ndarray) -> list[str]:
    """Return a note on intervals that leave the axis, with the ends that are farthest away: ``intervals reach:
    4.81 ↑``. It is empty if all intervals fit."""
    bottom, top = ax.get_ylim()
    ends = (bands.min(initial=bottom), bands.max(initial=top))
    farthest = np.array([end for end in ends if not bottom <= end <= top])
    if not farthest.size:
        return []
    digits = 1 - int(np.floor(np.log10(top - bottom)))  # an interval may reach just beyond the axis
    return [where_beyond(ax, farthest, name="intervals reach", digits=max(FEWEST_DIGITS, digits))]


def _digits(value: float) -> int:
    return FEWEST_DIGITS if value == 0 else max(FEWEST_DIGITS, -int(np.floor(np.log10(abs(value)))))
