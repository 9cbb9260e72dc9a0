"""How to read the figures of scores by a setting, and their panels in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from reports.descriptions import of_seeds
from reports.factors import Factor
from reports.numbers import is_absent, listed, number
from reports.panel import Panel


def points_in_words(points: Sequence[Mapping[str, Any]], *, digits: int) -> str:
    """Every mean of a panel, line by line, with the floor and the untrained encoder."""
    placed = [point for point in points if point["x"] is not None]
    sentences = [f"{of_seeds(placed)} by {placed[0]['setting']}."]
    for line in dict.fromkeys(point["line"] for point in placed):
        said = [f"{point['at']} {number(point['mean'], digits)}" for point in placed if point["line"] == line]
        sentences.append(f"{line}: {', '.join(said)}." if line else f"{', '.join(said)}.")
    floors = [point["floor"] for point in placed if not is_absent(point["floor"])]
    if floors:
        sentences.append(f"Chance floor {number(sum(floors) / len(floors), digits)}.")
    sentences += [f"Untrained {number(point['mean'], digits)}." for point in points if point["x"] is None]
    return " ".join(sentences)


def alone_note(arms: Sequence[str]) -> str:
    """Which arms have no gain in any panel."""
    if not arms:
        return ""
    return f"Without a gain here, as nothing else predicts the same: {listed(list(arms))}."


def setting_notes(every: Factor, factor: Factor, panels: Sequence[Panel]) -> list[str]:
    """What marks the reference and the untrained encoder, and which lines are left out."""
    said = [f"The broad pale line marks {factor.reference}, the first of these arms in the spec."]
    if any(point["x"] is None for panel in panels for point in panel.points):
        said.append(f"Dotted: {factor.untrained}, the encoder before training, or its value above the panel.")
    left = [level.arm for level in every.levels if level.arm not in factor.arms]
    if left:
        said.append(
            f"Only the first {len(factor.lines)} lines are drawn; in results.parquet alone: {listed(left)}."
        )
    return said


def how_to_read(factor: Factor, scores: Sequence[str], *, first: Factor | None) -> tuple[str, ...]:
    """Everything in the first such figure; in others what is new there."""
    lines = "" if len(factor.lines) == 1 else " Arms of different lines differ in what the legend says as well."
    alone = f"Arms that are compared here differ in one setting ({factor.title}) and in nothing else.{lines}"
    if first is not None:
        return (f"{alone} Read it as the scores by {first.title}.", *([" ".join(scores)] if scores else []))
    return (
        f"{alone} Within a seed that includes the initial weights and the order of the text, as far as the "
        "setting leaves them alone. What follows from it, as the warm-up from a longer training, follows.",
        "Each interval is of one arm by itself. Whether two arms differ is a question about their difference in "
        "the same seeds, which the intervals of either do not answer.",
        " ".join(scores),
    )
