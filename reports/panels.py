"""The figures of a page as data: which panels there are, what they show, how to read them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from pandas import DataFrame

from reports.curves import X_AXES, choose, curves, order
from reports.figures import layer_change, learning, token_information
from reports.numbers import MINUS, listed, number
from reports.statistics import mean_interval


class FigureText(NamedTuple):
    """One figure of the page, before any numbers."""

    measure: str
    title: str
    metrics: dict[str, str]
    """Metrics that get a panel, with the panel's title."""
    draw: Callable[..., Axes]
    unit: str
    n: str
    d: str
    how_to_read: tuple[str, ...]


FIGURES = (
    FigureText(
        measure="layer_change",
        title="Change between consecutive layers",
        metrics={"pwcca": f"1 {MINUS} PWCCA similarity", "debiased_cka": f"1 {MINUS} debiased CKA"},
        draw=layer_change,
        unit="1",
        n="tokens",
        d="dimensions",
        how_to_read=(
            f"Each point compares the states of the same tokens in a layer and in the next: 1 {MINUS} "
            "similarity, without unit. At 0 the next layer holds the same states up to an invertible linear "
            "map (PWCCA) or up to a rotation and one scale (CKA). The chance floor is the same number after "
            "the rows of one layer are shuffled: what two unrelated layers of this size would show. A curve "
            "that reaches it has no more in common with its next layer than chance.",
            "Levels are not comparable to published PWCCA curves: public implementations weight the "
            "directions differently, and similarity is inflated where there are few tokens per dimension "
            "(n/d). Shapes, and the order of arms measured on the same tokens, are. Sums over layers start at "
            "1→2, as in Voita et al. 2019; 0→1 leaves the embeddings and is shown for completeness.",
        ),
    ),
    FigureText(
        measure="token_information",
        title="Information about the input token",
        metrics={"cross_fitted": "Cross-fitted estimate", "plug_in": "Plug-in estimate"},
        draw=token_information,
        unit="nats",
        n="tokens",
        d="clusters",
        how_to_read=(
            "Each point is the mutual information, in nats, between a token and the k-means cluster of its "
            "state. The cross-fitted estimate learns clusters and counts on one half of the tokens and is "
            "scored on the other: it errs low, and may fall below 0 where nothing is left to know. The plug-"
            "in estimate counts on the tokens it is scored on and errs high, by more the fewer tokens a "
            "cluster has (n/d). The chance floor is the same estimate with the token labels shuffled: a "
            "curve that reaches it no longer tells its tokens apart.",
            "Levels depend on the number of clusters, of tokens and of token types, so they are not "
            "comparable to published ones. Shapes, and the order of arms measured on the same tokens, are: "
            "where a curve falls, the model forgets which token it read; where it rises again, it recovers "
            "it.",
        ),
    ),
    FigureText(
        measure="learning",
        title="Learning curves",
        metrics={"gain": "Gain over no context"},
        draw=learning,
        unit="nats",
        n="predictions",
        d="",
        how_to_read=(
            "Each point is what a model has learned by that step beyond the best guess without context: the "
            "loss of a guess that knows how frequent each word is and what is shown in its place, minus the "
            "model's, in nats per prediction, on the validation text, always read as written and under one "
            "frozen corruption. At 0 a model makes no use of context.",
            "Arms that predict other things (masked, next or translated words) are not comparable in height: "
            "some words are easier to tell than others. Where one curve overtakes another of the same "
            "objective is a finding; across objectives it is a hint.",
        ),
    ),
)

EVERY_FIGURE = (
    "Lines are means over seeds, bands their 95% Student t intervals, thin lines single seeds. Dashed: the chance "
    "floor, or its value above the panel where it lies beyond the axis."
)


def figures(table: DataFrame, *, arms: Sequence[str]) -> list[dict[str, Any]]:
    """Every figure whose measure has rows, with its panels."""
    drawn = [
        {
            "name": text.measure,
            "title": text.title,
            "caption": EVERY_FIGURE,
            "how_to_read": list(text.how_to_read),
            "n": text.n,
            "d": text.d,
            "panels": [
                _panel(table, text, metric, arms=arms)
                for metric in text.metrics
                if _has_rows(table, text.measure, metric)
            ],
        }
        for text in FIGURES
    ]
    return [figure for figure in drawn if figure["panels"]]


def drawing(measure: str) -> Callable[..., Axes]:
    """The function that draws the measure."""
    return next(text.draw for text in FIGURES if text.measure == measure)


def _has_rows(table: DataFrame, measure: str, metric: str) -> bool:
    rows = table[(table["measure"] == measure) & (table["metric"] == metric)]
    return bool((rows[X_AXES.get(measure, "layer")].notna() & rows["group"].isna()).any())


def _panel(table: DataFrame, text: FigureText, metric: str, *, arms: Sequence[str]) -> dict[str, Any]:
    """One panel's curves and points, and what it shows in words."""
    points = _points(choose(table, measure=text.measure, metric=metric), arms=arms)
    shown = curves(table, measure=text.measure, metric=metric, arms=arms)
    name = f"{text.measure}-{metric}"
    return {
        "name": name,
        "measure": text.measure,
        "metric": metric,
        "title": text.metrics[metric],
        "unit": text.unit,
        "svg": f"figures/{name}.svg",
        "csv": f"figures/{name}.csv",
        "description": _in_words(points),
        "curves": [
            curve._asdict() | {"tokens_per_dimension": curve.tokens_per_dimension, "remarks": curve.remarks}
            for curve in shown
        ],
        "without_rows": [arm for arm in arms if arm not in {curve.arm for curve in shown}],
        "points": points,
    }


def _points(rows: DataFrame, *, arms: Sequence[str]) -> list[dict[str, Any]]:
    """Mean, interval and floor of each arm at each layer or step, as drawn."""
    summary = mean_interval(rows, by=["arm", "x"])
    floors = rows.groupby(["arm", "x"])["floor"].mean()
    axis = X_AXES.get(str(rows["measure"].iloc[0]), "layer")
    change = rows["layer_to"].notna().any()
    found = []
    for arm in order(rows, arms):
        for point in summary[summary["arm"] == arm].to_dict("records"):
            x = int(point["x"])
            found.append(
                {"arm": arm, axis: x, "layer_to": x + 1 if change else None}
                | {name: float(point[name]) for name in ("mean", "low", "high")}
                | {"seeds": int(point["seeds"]), "floor": float(floors[arm, x])}
            )
    return found


def place(point: dict[str, Any]) -> str:
    """A point's place on the x axis: ``3``, ``3→4``, or a step."""
    if "step" in point:
        return f"{point['step']}"
    return f"{point['layer']}" if point["layer_to"] is None else f"{point['layer']}→{point['layer_to']}"


def _in_words(points: list[dict[str, Any]]) -> str:
    """Where each curve starts, ends, is lowest and is highest."""
    sentences = []
    for arm in dict.fromkeys(point["arm"] for point in points):
        own = [point for point in points if point["arm"] == arm and point["mean"] == point["mean"]]
        if not own:
            sentences.append(f"{arm}: no numbers.")
            continue
        said = [
            f"{number(point['mean'], 3)} at {place(point)}{remark}"
            for point, remark in (
                (own[0], ""),
                (own[-1], ""),
                (min(own, key=lambda point: point["mean"]), " (lowest)"),
                (max(own, key=lambda point: point["mean"]), " (highest)"),
            )
        ]
        floors = sum(point["floor"] for point in own) / len(own)
        sentences.append(f"{arm}: {listed(said)}; chance floor {number(floors, 3)}.")
    return f"Mean over seeds by {'step' if points and 'step' in points[0] else 'layer'}. " + " ".join(sentences)
