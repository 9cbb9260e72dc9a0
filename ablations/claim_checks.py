"""What in claims could never be judged, though each part is well formed: needs that are not what the effects use,
names that are there twice, and what `ablations.effect_checks` finds.

Read from what was written and not from a whole `ClaimFile`, so that what is wrong with the form of one part hides
nothing that is wrong with another: a file has all its problems at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from ablations import effect_checks
from ablations.claim import Claim, Needs
from ablations.effect_checks import twice
from ablations.effects import EFFECT, Contrast
from ablations.problems import Fault, KeyPath
from ablations.produced import METRICS
from ablations.wording import must_be, nearest, shown

SENTENCES = ("says", "source", "because")
"""Keys of a claim that a reader needs."""


class Written(NamedTuple):
    """An effect as it stands in a claim."""

    key: str
    """The key of the claim that holds it."""
    at: KeyPath
    name: str
    """As sentences call it."""
    content: Any
    effect: Contrast | None
    """None where its form is wrong, which others say."""


class Use(NamedTuple):
    """Where an effect uses an arm or a measure."""

    at: KeyPath
    name: str
    """Of the effect, as sentences call it."""
    about: Literal["key", "value"]
    """Whether the name is a key or a value there."""
    together: frozenset[str]
    """All names that the effect uses, so that none of these was meant."""


def faults(claims: Any) -> Iterator[Fault]:
    """All of them in the claims of a file, in no order, as far as these can be read."""
    entries = [
        (("claims", index), claim) for index, claim in enumerate(claims if isinstance(claims, list) else ())
    ]
    written = [(at, claim) for at, claim in entries if isinstance(claim, dict)]
    for at, claim in written:
        yield from _of_claim(claim, at)
    for what, kind in (("name", str), ("number", int)):
        seen: set[Any] = set()
        for at, claim in written:
            value = claim.get(what)
            if type(value) is kind and value in seen:
                sentence = f"claims has the {what} {shown(value)} twice; each may be there once"
                yield Fault((*at, what), sentence)
            seen |= {value} if type(value) is kind else set()


def _of_claim(claim: Mapping[str, Any], at: KeyPath) -> Iterator[Fault]:
    for key in SENTENCES:
        if isinstance(claim.get(key), str) and not claim[key].strip():
            yield Fault((*at, key), f"claims.{key} must not be empty")
    effects = list(written_effects(claim, at))
    for one in effects:
        yield from effect_checks.faults(one.content, one.effect, one.at, name=one.name)
    called = f"claim {claim['name']}" if isinstance(claim.get("name"), str) else "this claim"
    yield from _effect_or_effects(claim, at, called=called)
    try:
        needs = Needs.model_validate(claim.get("needs"))
    except ValidationError:
        return
    # A part that cannot be read may use what no other does.
    whole = bool(effects) and all(one.effect for one in effects) and not _unknown_keys(claim)
    yield from _of_needs(needs, effects, (*at, "needs"), called=called, whole=whole)


def _unknown_keys(claim: Mapping[str, Any]) -> set[str]:
    """One of which may be meant where a key is missed."""
    return set(claim) - set(Claim.model_fields)


def written_effects(claim: Mapping[str, Any], at: KeyPath) -> Iterator[Written]:
    """Yield every effect of a claim as it is written, those that decide before those beside it."""
    if claim.get("effect") is not None:
        content = claim["effect"]
        yield Written("effect", (*at, "effect"), "claims.effect", content, _effect(content))
    for key in ("effects", "provided", "beside"):
        parts = claim.get(key)
        for name, content in (parts if isinstance(parts, dict) else {}).items():
            yield Written(key, (*at, key, name), f"claims.{key}.{name}", content, _effect(content))


def _effect(content: Any) -> Contrast | None:
    try:
        return EFFECT.validate_python(content)
    except ValidationError:
        return None


# One effect or several, and what they need --------------------------------------------------------------


def _effect_or_effects(claim: Mapping[str, Any], at: KeyPath, *, called: str) -> Iterator[Fault]:
    given = [key for key in ("effect", "effects") if claim.get(key) is not None]
    if len(given) == 2 or not (given or _unknown_keys(claim)):
        has = "both" if given else "neither"
        sentence = f"{called} must have one effect, or effects where it has several parts, but has {has}"
        yield Fault(at, sentence)
    parts = claim.get("effects")
    if isinstance(parts, dict) and len(parts) < 2:
        has = f"has only {next(iter(parts))}; write a single one as `effect`" if parts else "is empty"
        yield Fault((*at, "effects"), f"claims.effects must have two parts or more, but {has}", "key")


def _of_needs(
    needs: Needs, effects: Sequence[Written], at: KeyPath, *, called: str, whole: bool
) -> Iterator[Fault]:
    """That it needs the arms and measures of the effects that decide and of their conditions, and no others."""
    for index, name in enumerate(needs.measures):
        if name not in METRICS:
            sentence = must_be(name, METRICS, one="a measure of the table of results")
            yield Fault((*at, "measures", index), f"an entry of claims.needs.measures {sentence}")
    yield from twice(needs.arms, (*at, "arms"), "claims.needs.arms must differ")
    yield from twice(needs.measures, (*at, "measures"), "claims.needs.measures must differ")
    deciding = [one for one in effects if one.key != "beside"]
    beside = [one for one in effects if one.key == "beside"]
    arms = {name: index for index, name in enumerate(needs.arms)}
    measures = {meant: index for index, name in enumerate(needs.measures) if (meant := _meant(name))}
    for what, said, uses in (("arms", arms, _arms), ("measures", measures, _measures)):
        used, place = uses(deciding), (*at, what)
        unused = [name for name in said if name not in used] if whole else []
        lacking = [name for name in used if name not in said]
        for name in unused:
            if meant := nearest(name, lacking):
                lacking.remove(meant)
                sentence = f"no effect of {called} uses {name}; did you mean {meant}, as in {used[meant].name}?"
            elif name in uses(beside):
                sentence = f"only what stands beside {called} uses {name}; take it out, as nothing else needs it"
            else:
                sentence = f"no effect of {called} uses {name}; take it out"
            yield Fault((*place, said[name]), sentence)
        for name in lacking:
            meant = nearest(name, [other for other in said if other not in used[name].together])
            remedy = f"write {meant}, or add it there" if meant else "add it there"
            sentence = f"{used[name].name} uses {name}, which is not in claims.needs.{what}; {remedy}"
            yield Fault(used[name].at, sentence, used[name].about)


def _arms(effects: Sequence[Written]) -> dict[str, Use]:
    """Every arm that they use, with the first place of each."""
    found: dict[str, Use] = {}
    for one in effects:
        named = list(one.effect.arms_at()) if one.effect else []
        together = frozenset(arm for _, arm in named)
        for at, arm in named:
            about: Literal["key", "value"] = "key" if len(at) > 1 and at[-1] == arm else "value"
            found.setdefault(arm, Use((*one.at, *at), one.name, about, together))
    return found


def _measures(effects: Sequence[Written]) -> dict[str, Use]:
    """The same of measures, each by the name that was meant."""
    found: dict[str, Use] = {}
    for one in effects:
        read = [(at, _meant(of.measure)) for at, of in one.effect.quantities_at()] if one.effect else []
        together = frozenset(measure for _, measure in read if measure)
        for at, measure in read:
            if measure:
                place = (*one.at, *at, "measure") if at else one.at
                found.setdefault(measure, Use(place, one.name, "value", together))
    return found


def _meant(measure: str) -> str | None:
    """The measure that a misspelt one is taken for, so that a slip is said once: where it was made."""
    return measure if measure in METRICS else nearest(measure, METRICS)
