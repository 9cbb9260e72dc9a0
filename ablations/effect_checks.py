"""What in one effect of a claim could never be judged, though it is well formed: misspelt measures, arms less
themselves."""

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from pydantic import ValidationError

from ablations.effects import (
    Apart,
    Contrast,
    Crossing,
    Difference,
    Optimum,
    Quantity,
    Shape,
    Share,
    Trend,
    TwoByTwo,
)
from ablations.problems import Fault, KeyPath
from ablations.produced import METRICS, OF_LAYERS, OF_TASKS, OF_TREEBANKS, PARTLY_OF_LAYERS
from ablations.tasks.catalogue import TASKS
from ablations.wording import guess, listed, shown

GROUPED = (*TASKS, "language")
"""Tasks as groups have them: minimal pairs of the built-in language are `language`."""


def faults(content: Any, effect: Contrast | None, at: KeyPath, *, name: str) -> Iterator[Fault]:
    """All of them, in no order.

    Args:
        content: the effect as it was written.
        effect: what that is; None where its form is wrong, and then what it reads is checked by itself.
        at: its place in the file.
        name: as sentences call it.
    """
    for key in ("of", "minus_of", "than_of"):
        of = _quantity(content.get(key)) if isinstance(content, dict) else None
        if of is not None:
            yield from _of_quantity(of, effect, (*at, key), name=f"{name}.{key}")
    if isinstance(effect, Apart):
        metrics = METRICS["run_distance"]
        yield from _unknown(effect.metric, metrics, (*at, "metric"), f"{name}.metric", "run_distance")
    if isinstance(effect, Difference) and _of_nothing(effect):
        yield Fault(
            at,
            f"{name} must have minus, at_least or at_most: compared with nothing, {effect.of.metric} says "
            "what the claim says whatever comes out",
        )
    if effect is not None:
        yield from _repeated(effect, at, name=name)


def _of_nothing(effect: Difference) -> bool:
    """Whether a number stands alone, as only a gain, which is a difference already, may."""
    alone = effect.minus is None and effect.at_least is None and effect.at_most is None
    return alone and effect.of.read != "gain"


def twice(words: Sequence[str], at: KeyPath, wanted: str) -> Iterator[Fault]:
    """Each word that is there more than once, where `wanted` says what is asked for instead."""
    for word in dict.fromkeys(word for word in words if words.count(word) > 1):
        yield Fault(at, f"{wanted}, but {word} is there {words.count(word)} times")


def _quantity(content: Any) -> Quantity | None:
    try:
        return Quantity.model_validate(content)
    except ValidationError:
        return None


def _of_quantity(of: Quantity, effect: Contrast | None, at: KeyPath, *, name: str) -> Iterator[Fault]:
    if of.measure not in METRICS:
        known = f"{shown(of.measure)}{guess(of.measure, METRICS)}"
        yield Fault((*at, "measure"), f"{name}.measure must be a measure of the table of results, but is {known}")
        return
    yield from _unknown(of.metric, METRICS[of.measure], (*at, "metric"), f"{name}.metric", of.measure)
    yield from _of_tasks(of, at, name=name)
    if effect is None:  # whether it goes over the layers is not known
        return
    over_layers = isinstance(effect, Shape) or (isinstance(effect, Trend) and effect.over == "layers")
    one_number = of.layers != "none" or of.layer is not None
    if over_layers and one_number:
        yield Fault(at, f"{name} must have neither layers nor layer, as its effect goes over the layers")
    elif of.measure in OF_LAYERS and not over_layers and not one_number:
        yield Fault(at, f"{name} must have layers or layer, as {of.measure} has a number of each layer")
    elif of.measure not in OF_LAYERS | PARTLY_OF_LAYERS and (over_layers or one_number):
        yield Fault(at, f"{name} must read a measure of layers, but {of.measure} has none")


def _of_tasks(of: Quantity, at: KeyPath, *, name: str) -> Iterator[Fault]:
    """Measures whose every number is of a task are read of tasks that there are."""
    if of.measure in OF_TASKS | OF_TREEBANKS and not of.groups:
        yield Fault(
            at,
            f'{name} must have groups, as every number of {of.measure} is of a task; groups: ["*"] is the mean '
            f"over all that were measured",
        )
    if of.measure not in OF_TASKS:
        return
    for key in ("groups", "or_groups"):
        for place, group in enumerate(getattr(of, key)):
            task = re.split("[/@]", group)[0]
            if "*" not in task and task not in GROUPED:
                known = f"{shown(group)}{guess(task, GROUPED)}"
                yield Fault((*at, key, place), f"{name}.{key} must have tasks and parts of tasks, but has {known}")


def _unknown(metric: str, known: Sequence[str], at: KeyPath, name: str, measure: str) -> Iterator[Fault]:
    if metric not in known:
        what = f"{shown(metric)}{guess(metric, known)}"
        yield Fault(at, f"{name} must be a metric of {measure}, which has {listed(known, 'and')}, but is {what}")


def _repeated(effect: Contrast, at: KeyPath, *, name: str) -> Iterator[Fault]:
    """Arms that are compared with themselves."""
    match effect:
        case Difference() | Shape() if effect.minus == effect.arm and not _reads_another(effect):
            yield Fault((*at, "minus"), f"{name}.minus must be another arm than {effect.arm}, whose effect is 0")
        case Crossing() if effect.over == effect.arm:
            yield Fault(
                (*at, "over"), f"{name}.over must be another arm than {effect.arm}, which is its own equal"
            )
        case Share():
            yield from twice([*effect.arms_needed()], at, f"{name} must have three arms")
        case Trend() | TwoByTwo():
            yield from twice([*effect.arms_needed()], (*at, "arms"), f"{name}.arms must differ")
        case Optimum():
            places = [format(place, "g") for place in effect.arms.values()]
            yield from twice(places, (*at, "arms"), f"{name}.arms must lie at different places")
        case Apart():
            yield from _repeated_pairs(effect, at, name=name)


def _reads_another(effect: Difference | Shape) -> bool:
    """Whether something else is read of the second arm."""
    return isinstance(effect, Difference) and effect.minus_of not in (None, effect.of)


def _repeated_pairs(effect: Apart, at: KeyPath, *, name: str) -> Iterator[Fault]:
    for key, own in (("pairs", effect.pairs), ("than", effect.than)):
        for index, (first, second) in enumerate(own):
            if first == second:
                yield Fault((*at, key, index), f"{name}.{key} must pair different arms, but has {first} twice")
    pairs = [frozenset(pair) for pair in (*effect.pairs, *effect.than)]
    if any(one == other and len(one) > 1 for one, other in combinations(pairs, 2)):
        yield Fault((*at, "pairs"), f"{name}.pairs must not have the same pair of arms twice, there or in than")
