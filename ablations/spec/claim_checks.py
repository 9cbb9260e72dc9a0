"""Checks of claims that are well formed but could never be judged.

Examples are needs that differ from what the effects use, names that occur twice, misspelt measures, and an
arm that is compared with itself. The checks read the file as it was written, not a `ClaimFile`. So a
malformed part hides no fault of another part, and a file reports all its problems at once.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from ablations.catalogue import (
    MORE_IS_BETTER,
    OF_TASKS,
    OF_TREEBANKS,
    SHARES,
    UNITS,
    card,
    has_ceiling,
    layers_of,
    measures_of_tables,
    metrics_of,
)
from ablations.errors import Fault, KeyPath
from ablations.metric_groups import groups_of, metrics_of_task
from ablations.spec.contrasts import (
    EFFECT,
    Ahead,
    Apart,
    Claim,
    Contrast,
    Difference,
    Optimum,
    Quantity,
    Shape,
    Share,
    Trend,
    used_by,
)
from ablations.wording import guess, listed, must_be, shown
from lightning_modules import plugins
from lightning_modules.errors import PluginError


def effect_faults(content: Any, effect: Contrast | None, at: KeyPath, *, name: str) -> Iterator[Fault]:
    """Yield all faults of an effect, in any order.

    Args:
        content: the effect as it was written.
        effect: the validated effect; None if it is malformed. Its quantities are checked all the same.
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
            f"{name} must have minus, at_least or at_most: without a comparison, every value of "
            f"{effect.of.metric} supports the claim",
        )
    if isinstance(effect, Shape) and effect.form in RATIOS and effect.at_least <= 0:
        yield Fault(
            at,
            f"{name} must have at_least above 0: {effect.form} is a ratio, so without a bound every curve "
            "supports the claim",
        )
    if isinstance(effect, Difference) and effect.minus is None and effect.of.layers in OF_ITS_LOWEST:
        yield Fault(
            (*at, "of", "layers"),
            f"{name}.of.layers is {effect.of.layers}, which is positive for noise too; compare arms with minus, "
            f"or write kind: shape with form: {effect.of.layers}",
        )
    if effect is not None:
        yield from _other_units(effect, at, name=name)
        for keys, sentence in effect.repeated_arms():
            yield Fault((*at, *keys), f"{name}{sentence}")
        is_in_another_unit = isinstance(effect, Share | Optimum)  # a share of a gain, or a place
        for key in ("smallest_gain", "smallest_bend") if is_in_another_unit else (*BOUNDS, "smallest_effect"):
            yield from _points(getattr(effect, key, None), [effect], (*at, key), name=f"{name}.{key}")


RATIOS = ("top_over_lowest", "rise_after_inner")
"""Forms of a curve that are ratios of positive numbers."""

BOUNDS = ("at_least", "at_most")
"""Keys of an effect with a bound, which may be negative."""


def _points(value: Any, effects: Sequence[Contrast], at: KeyPath, *, name: str) -> Iterator[Fault]:
    """Yield a fault if a number is larger than any share that one of the effects compares. A bound may be 1."""
    metric = next(filter(None, map(_share, effects)), "")
    is_bound = at[-1] in BOUNDS
    if metric and type(value) in (int, float) and (abs(value) > 1 if is_bound else value >= 1):
        must_be = "between -1 and 1" if is_bound else "below 1"
        sentence = f"must be {must_be}, because {metric} is a share of at most 1, but is {value:g}"
        yield Fault(at, f"{name} {sentence}; for {value:g}% write {value / 100:g}")


def _share(effect: Contrast) -> str:
    """Return measure and metric of an effect that compares shares of 1; empty for others, sums and ratios."""
    quantities = list(effect.quantities())
    are_shares = all(
        of.metric in SHARES.get(of.measure, ())
        and of.read in ("value", "floor", "gain")
        and not (of.layers == "sum" or of.steps == "way")
        for of in quantities
    ) and not (isinstance(effect, Shape) and effect.form in RATIOS)
    return f"{quantities[0].measure} {quantities[0].metric}" if are_shares else ""


def _other_units(effect: Contrast, at: KeyPath, *, name: str) -> Iterator[Fault]:
    """Yield a fault if an effect compares numbers of different units, or has another of the known units than its
    numbers. Words of one's own are allowed."""
    if isinstance(effect, Share | Optimum) or (isinstance(effect, Shape) and effect.form in RATIOS):
        return  # its number is a share, a place or a ratio
    of = next(effect.quantities())
    minus_of = getattr(effect, "minus_of", None) or of
    unit, other = _unit(of), _unit(minus_of)
    if unit is None or other is None:
        return
    if unit != other:
        units = f"{of.metric} has {unit or 'none'}, and {minus_of.metric} has {other or 'none'}"
        yield Fault((*at, "minus_of"), f"{name}.minus_of must have the unit of {name}.of, but {units}")
    elif unit and unit not in (named := _units_named(effect.unit or "")) and named:
        sentence = f"must be {unit}, the unit of {of.measure} {of.metric}, but is {shown(effect.unit)}"
        yield Fault((*at, "unit"), f"{name}.unit {sentence}")
    elif not unit and effect.unit in UNITS.values():
        sentence = f"must not be {effect.unit}, because this number of {of.measure} {of.metric} has no unit"
        yield Fault((*at, "unit"), f"{name}.unit {sentence}; remove it")


def _units_named(words: str) -> set[str]:
    """Return the known units among the words of a claim's unit. A distance may be in words or in layers."""
    units = {"bits", *UNITS.values()}
    return {words.lower()} & units or set(words.lower().split()) & (units - {"distance"})


def _unit(of: Quantity) -> str | None:
    """Return the unit of a quantity; empty for a plain number, None if it is not known."""
    if plugins.is_name(of.measure) or of.metric not in metrics_of(of.measure):
        return None
    is_ratio = of.read.startswith("share") or of.steps == "way"
    return "" if is_ratio else UNITS.get((of.measure, of.metric), "")


OF_ITS_LOWEST = ("fall_to_inner", "rise_to_top")
"""Statistics over layers that use the lowest value of an inner layer of the same run."""


def _of_nothing(effect: Difference) -> bool:
    """Return whether a difference compares its value with nothing. A gain may stand alone, as it is a
    difference already."""
    alone = effect.minus is None and effect.at_least is None and effect.at_most is None
    return alone and effect.of.read != "gain"


def _unknown_measure(name: str) -> str:
    """Return what is wrong with the name of a measure that has no metrics."""
    if plugins.is_name(name):
        try:
            card(name)
        except PluginError as error:
            return f"cannot be read: {str(error).removesuffix('.')}"
    return must_be(name, measures_of_tables(), noun="a measure of the table of results")


def _quantity(content: Any) -> Quantity | None:
    try:
        return Quantity.model_validate(content)
    except ValidationError:
        return None


def _of_quantity(of: Quantity, effect: Contrast | None, at: KeyPath, *, name: str) -> Iterator[Fault]:
    if not metrics_of(of.measure):
        yield Fault((*at, "measure"), f"{name}.measure {_unknown_measure(of.measure)}")
        return
    if of.metric not in metrics_of(of.measure):
        yield from _unknown_metric(of.metric, (*at, "metric"), f"{name}.metric", of.measure)
    else:
        yield from _unknown_groups(of, at, name=name)
        yield from _metrics_of_other_tasks(of, at, name=name)
    if effect is None:  # unknown whether the effect goes over the layers, or has a bound
        return
    if of.read == "gain" and of.metric in MORE_IS_BETTER.get(of.measure, ()) and not effect.has_bound:
        sentence = (
            f"must not be gain, because gain is the chance level minus the value, and of {of.measure} {of.metric} "
            "more is better; leave read out"
        )
        vs_chance = (
            "; to compare an arm with its chance level, write it also as minus, with read: floor in minus_of"
        )
        is_alone = isinstance(effect, Difference) and effect.minus is None
        yield Fault((*at, "read"), f"{name}.read {sentence}{vs_chance if is_alone else ''}")
    if of.read == "share_of_ceiling" and not has_ceiling(of.measure):
        sentence = f"must not be share_of_ceiling, because numbers of {of.measure} have no ceiling"
        yield Fault((*at, "read"), f"{name}.read {sentence}; leave read out")
    has_axis = isinstance(effect, Shape | Ahead) or (isinstance(effect, Trend) and effect.over != "arms")
    if has_axis and of.steps != "last":
        sentence = f"{name}.steps must be left out, because this effect has a number for each layer, group or step"
        yield Fault((*at, "steps"), f"{sentence}; remove it", "key")
    over_layers = isinstance(effect, Shape) or (isinstance(effect, Trend) and effect.over == "layers")
    one_number = of.layers != "none" or of.layer is not None
    if over_layers and one_number:
        yield Fault(at, f"{name} must have neither layers nor layer, because its effect covers all layers")
    elif layers_of(of.measure) == "all" and not over_layers and not one_number:
        yield Fault(at, f"{name} must have layers or layer, because {of.measure} has a number for each layer")
    elif layers_of(of.measure) == "none" and (over_layers or one_number):
        yield Fault(at, f"{name} must read a measure with layers, but {of.measure} has none")


def _unknown_groups(of: Quantity, at: KeyPath, *, name: str) -> Iterator[Fault]:
    """Yield a fault for each group that the metric never has, and for missing groups if every row of the
    measure has one."""
    groups = groups_of(of.measure, of.metric)
    if not of.groups and not groups.whole:
        kind = "task" if of.measure in OF_TASKS | OF_TREEBANKS else "group"
        yield Fault(
            at,
            f"{name} must have groups, because every number of {of.measure} belongs to a {kind}; write groups: "
            '["*"] for the mean over all of them',
        )
    for key in ("groups", "without", "or_groups"):
        for place, group in enumerate(getattr(of, key)):
            if not groups.names and not groups.families:
                sentence = (
                    f"{name} must not have {key}, because {of.measure} {of.metric} has no groups; remove {key}"
                )
                yield Fault((*at, key), sentence, "key")
                break
            if not groups.has(group):
                yield Fault((*at, key, place), f"an entry of {name}.{key} {groups.refusal(group, of.measure)}")


def _metrics_of_other_tasks(of: Quantity, at: KeyPath, *, name: str) -> Iterator[Fault]:
    """Yield a fault for each named task that does not have the metric, although the measure has it."""
    for group in (*of.groups, *of.or_groups):
        metrics = metrics_of_task(of.measure, group)
        if metrics is not None and of.metric not in metrics:
            sentence = (
                f"must be {listed(metrics)} for {group}, but is {shown(of.metric)}{guess(of.metric, metrics)}"
            )
            yield Fault((*at, "metric"), f"{name}.metric {sentence}")


def _unknown_metric(metric: str, at: KeyPath, name: str, measure: str) -> Iterator[Fault]:
    if metric not in metrics_of(measure):
        yield Fault(at, f"{name} {must_be(metric, metrics_of(measure), noun=f'a metric of {measure}')}")


SENTENCES = ("says", "source", "because")
"""Keys of a claim whose text must not be empty."""


class Written(NamedTuple):
    """Effect of a claim, as it is written and as it is validated."""

    key: str
    """The key of the claim that holds it."""
    at: KeyPath
    name: str
    """Name of the effect in errors."""
    content: Any
    effect: Contrast | None
    """The validated effect; None if it is malformed, which is reported elsewhere."""


def written_claims(claims: Any) -> Iterator[tuple[KeyPath, dict[str, Any], dict[str, Any] | None]]:
    """Yield the path, the content and the needs of each claim of a file that is a mapping. The needs are empty if
    they are left out, and None if they are malformed, which is reported elsewhere."""
    for index, claim in enumerate(claims if isinstance(claims, list) else ()):
        if isinstance(claim, dict):
            needs = claim.get("needs", {})
            yield ("claims", index), claim, needs if isinstance(needs, dict) else None


def faults(claims: Any) -> Iterator[Fault]:
    """Yield all faults in the claims of a file, in any order. Parts that cannot be read are skipped."""
    written = [(at, claim) for at, claim, _ in written_claims(claims)]
    for at, claim in written:
        yield from _of_claim(claim, at)
    for key in ("name", "number"):
        seen: set[Any] = set()
        for at, claim in written:
            value = claim.get(key)
            if type(value) not in (int, str):
                continue
            if value in seen:
                sentence = f"claims has the {key} {shown(value)} twice; give each {key} once"
                yield Fault((*at, key), sentence)
            seen.add(value)


def _of_claim(claim: Mapping[str, Any], at: KeyPath) -> Iterator[Fault]:
    for key in SENTENCES:
        if isinstance(claim.get(key), str) and not claim[key].strip():
            yield Fault((*at, key), f"claims.{key} must not be empty")
    effects = list(written_effects(claim, at))
    for written in effects:
        yield from effect_faults(written.content, written.effect, written.at, name=written.name)
        if written.effect is not None and written.effect.in_each_seed and written.key != "provided":
            sentence = (
                f"{written.name}.in_each_seed works only in a condition (`provided`), because an effect is judged "
                "by all seeds together"
            )
            yield Fault((*written.at, "in_each_seed"), f"{sentence}; remove it", "key")
        if written.key == "provided" and getattr(written.effect, "direction", None) == "either":
            sentence = (
                f"{written.name}.direction must not be either in a condition (`provided`), because a condition "
                "holds only above 0; name the arm that is higher as arm, and the other as minus"
            )
            yield Fault((*written.at, "direction"), sentence)
    yield from _clashing_names(claim, at)
    deciding = [(written.name, written.effect) for written in effects if written.key in DECIDE and written.effect]
    bounds = [name for name, effect in deciding if effect.has_bound]
    if claim.get("expect") == "equivalent" and bounds:
        yield Fault(
            (*at, "expect"),
            f"claims.expect must be supported, contradicted or open, but is equivalent: {bounds[0]} has a bound "
            "or is a share, so it is never equivalent",
        )
    directions = {getattr(written.effect, "direction", None) for written in effects if written.key in DECIDE}
    if claim.get("expect") == "contradicted" and directions == {"either"}:
        yield Fault(
            (*at, "expect"),
            f"claims.expect must be supported, equivalent or open, but is contradicted: {deciding[0][0]} has "
            "direction: either, so it is never contradicted",
        )
    without_own = [
        effect
        for _, effect in deciding
        if effect.smallest_effect is None and not isinstance(effect, Share | Optimum)
    ]
    key = "smallest_effect"
    yield from _points(claim.get(key), without_own, (*at, key), name=f"claims.{key}")
    claim_name = f"claim {claim['name']}" if isinstance(claim.get("name"), str) else "this claim"
    yield from _effect_or_effects(claim, at, claim_name=claim_name)
    yield from _of_needs(
        claim, [written for written in effects if written.key != "beside"], at, claim_name=claim_name
    )


MADE_PART = re.compile(r"peak|above|below|gain|gain-elsewhere|step-\d+")
"""Names of the parts that one effect may be split into. They follow its own name and a hyphen."""


def _clashing_names(claim: Mapping[str, Any], at: KeyPath) -> Iterator[Fault]:
    """Yield the names of effects and conditions that the verdict could not tell apart."""
    is_whole = claim.get("effect") is not None and "name" in claim
    places: dict[tuple[str, ...], Any] = {("name",): claim["name"]} if is_whole else {}
    for key in ("effects", "provided"):
        named_effects = claim.get(key)
        places |= {(key, name): name for name in (named_effects if isinstance(named_effects, dict) else {})}
    for (place, name), (_, other) in itertools.permutations(places.items(), 2):
        whole, begin = str(name), f"{other}-"
        is_part = whole.startswith(begin) and MADE_PART.fullmatch(whole.removeprefix(begin))
        if (is_part or name == other) and place[0] != "name":
            of = f"a part of {other} may have this name" if is_part else "another effect has the same name"
            yield Fault((*at, *place), f"claims.{'.'.join(place)} needs another name, because {of}", "key")


DECIDE = ("effect", "effects")
"""Keys of a claim whose effects decide it."""


def _unknown_keys(claim: Mapping[str, Any]) -> set[str]:
    """Return the unknown keys of a claim. One of them may be a misspelt form of a key that seems to be
    missing."""
    return set(claim) - set(Claim.model_fields)


def written_effects(claim: Mapping[str, Any], at: KeyPath) -> Iterator[Written]:
    """Yield every effect of a claim as it is written: first those that decide, then conditions, then effects
    beside it."""
    if claim.get("effect") is not None:
        content = claim["effect"]
        yield Written("effect", (*at, "effect"), "claims.effect", content, _effect(content))
    for key in ("effects", "provided", "beside"):
        named_effects = claim.get(key)
        for name, content in (named_effects if isinstance(named_effects, dict) else {}).items():
            yield Written(key, (*at, key, name), f"claims.{key}.{name}", content, _effect(content))


def _effect(content: Any) -> Contrast | None:
    try:
        return EFFECT.validate_python(content)
    except ValidationError:
        return None


# One effect or several, and what they need --------------------------------------------------------------


def _effect_or_effects(claim: Mapping[str, Any], at: KeyPath, *, claim_name: str) -> Iterator[Fault]:
    keys_present = [key for key in ("effect", "effects") if claim.get(key) is not None]
    if len(keys_present) == 2 or not (keys_present or _unknown_keys(claim)):
        present = "both" if keys_present else "neither"
        sentence = f"{claim_name} must have either effect, or effects for several parts, but has {present}"
        yield Fault(at, sentence)
    parts = claim.get("effects")
    if isinstance(parts, dict) and len(parts) < 2:
        problem = f"has only {next(iter(parts))}; write a single part as `effect`" if parts else "is empty"
        yield Fault((*at, "effects"), f"claims.effects must have two parts or more, but {problem}", "key")


def _of_needs(
    claim: Mapping[str, Any], effects: Sequence[Written], at: KeyPath, *, claim_name: str
) -> Iterator[Fault]:
    """Yield a fault for needs that are written, but are not what the deciding effects and the conditions use.

    Nothing is said as long as an effect cannot be read or has an unknown measure, which is reported elsewhere.
    """
    needs = claim.get("needs")
    read = [written.effect for written in effects if written.effect]
    if not isinstance(needs, dict) or not read or len(read) < len(effects) or _unknown_keys(claim):
        return
    used = used_by(read)
    if not all(map(metrics_of, used["measures"])):
        return
    for key, names in used.items():
        written = needs.get(key)
        if isinstance(written, list) and written and sorted(map(str, written)) != sorted(names):
            present, expected = listed([*map(str, written)], "and"), listed(names, "and")
            sentence = f"claims.needs.{key} is {present}, but {claim_name} uses {expected}"
            yield Fault((*at, "needs", key), f"{sentence}; make them equal, or leave claims.needs.{key} out")
