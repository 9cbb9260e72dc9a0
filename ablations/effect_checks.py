"""What in one effect of a claim could never be judged, though it is well formed: misspelt measures, arms less
themselves."""

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
from ablations.produced_groups import groups_of
from ablations.wording import must_be


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
        yield from _unknown_metric(effect.metric, (*at, "metric"), f"{name}.metric", "run_distance")
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
        sentence = must_be(of.measure, METRICS, one="a measure of the table of results")
        yield Fault((*at, "measure"), f"{name}.measure {sentence}")
        return
    if of.metric not in METRICS[of.measure]:
        yield from _unknown_metric(of.metric, (*at, "metric"), f"{name}.metric", of.measure)
    else:
        yield from _unknown_groups(of, at, name=name)
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


def _unknown_groups(of: Quantity, at: KeyPath, *, name: str) -> Iterator[Fault]:
    """Groups that the metric never has, and those that are missing where every number is of a group."""
    groups = groups_of(of.measure, of.metric)
    if not of.groups and not groups.whole:
        kind = "task" if of.measure in OF_TASKS | OF_TREEBANKS else "group"
        yield Fault(
            at,
            f'{name} must have groups, as every number of {of.measure} is of a {kind}; groups: ["*"] is the mean '
            f"over all that were measured",
        )
    for key in ("groups", "without", "or_groups"):
        for place, group in enumerate(getattr(of, key)):
            if not groups.names and not groups.families:
                sentence = f"{name} must have no {key}, as {of.measure} {of.metric} has none; take them out"
                yield Fault((*at, key), sentence, "key")
                break
            if not groups.has(group):
                yield Fault((*at, key, place), f"an entry of {name}.{key} {groups.refusal(group, of.measure)}")


def _unknown_metric(metric: str, at: KeyPath, name: str, measure: str) -> Iterator[Fault]:
    if metric not in METRICS[measure]:
        yield Fault(at, f"{name} {must_be(metric, METRICS[measure], one=f'a metric of {measure}')}")


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
