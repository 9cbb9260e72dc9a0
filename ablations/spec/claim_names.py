"""Check of the arms and groups that a claim names against those of its experiments.

A file of claims may be shared: `sight.yaml` is named by specs that have all its arms and by one that has few of
them, where some of its claims are not run. So an arm that a spec lacks may be meant for another experiment, or be
misspelt, and how alike two names are does not tell which: `clm-450` is near to `clm` and right, `word2vecs` may be
near to nothing and wrong. The claim itself tells: `needs.spec` is the experiment that has everything it names.

- A claim with `needs.spec` may name the arms of that experiment and no others. Where the spec at hand lacks some
  of them, the claim is not run there.
- A claim without it may name the arms that every spec has which names its file, and no others, also where all its
  other arms are there: that a claim can never be judged is noticed before days of training, not after.

An arm that is beside a claim follows the same rule: nobody would notice that it never shows.

Groups are checked against the settings of the spec's measures. Groups that only a table can show pass: patterns
with a star, treebanks, words of pictures, ranks of a text. A claim with `needs.spec` may be meant for that
experiment and passes too. So do `groups` where all of `or_groups` can be made.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError

from ablations.catalogue import Measure
from ablations.errors import Fault, KeyPath
from ablations.measures.settings import InfluenceSettings, LayerChangeSettings, QuestionSettings
from ablations.spec.claim_checks import written_effects
from ablations.spec.contrasts import Quantity
from ablations.tasks.settings import (
    ConditionalIndependenceSettings,
    GenerationSettings,
    RetrievalSettings,
    TaskSettings,
)
from ablations.wording import FEW, guess, listed, number, shown

ArmsOf = Callable[[str], Collection[str] | None]


class Mention(NamedTuple):
    """A place where a claim names an arm."""

    at: KeyPath
    subject: str
    """Subject of the sentence: what names the arm."""
    arm: str
    about: Literal["key", "value"] = "value"


def arm_faults(claims: Any, *, arms: Collection[str] | None, spec: str, arms_of: ArmsOf) -> Iterator[Fault]:
    """Yield every arm that no experiment of its claim has, at each place that names it.

    Args:
        claims: as they are written.
        arms: of the spec that names the file; None where there is no such spec, or its arms cannot be read.
        spec: the file name of that spec.
        arms_of: the arms of another spec by its file name; None where these cannot be read, which others say.
    """
    for index, claim in enumerate(claims if isinstance(claims, list) else ()):
        if not isinstance(claim, dict):
            continue
        needs = claim["needs"] if isinstance(claim.get("needs"), dict) else {}
        elsewhere = needs.get("spec") or None
        if elsewhere is not None and not isinstance(elsewhere, str):
            continue
        allowed = arms if elsewhere is None else arms_of(elsewhere)
        if allowed is None:
            continue
        for mention in _arms_named(claim, needs, ("claims", index)):
            if mention.arm not in allowed:
                sentence = _sentence(mention, allowed, spec=spec, elsewhere=elsewhere)
                yield Fault(mention.at, sentence, mention.about)


def _arms_named(claim: Mapping[str, Any], needs: Mapping[str, Any], at: KeyPath) -> Iterator[Mention]:
    names = needs.get("arms")
    for place, name in enumerate(names if isinstance(names, list) else ()):
        if isinstance(name, str):
            yield Mention((*at, "needs", "arms", place), "claims.needs.arms", name)
    for written in written_effects(claim, at):
        if written.effect is None:
            continue
        for keys, arm in written.effect.arms_at():
            is_key = len(keys) > 1 and keys[-1] == arm
            yield Mention((*written.at, *keys), written.name, arm, "key" if is_key else "value")
        for keys, of in written.effect.quantities_at():
            if of.measure == "run_distance":  # its groups are the arms of the other runs
                for place, group in enumerate(of.groups):
                    if "*" not in group:
                        yield Mention((*written.at, *keys, "groups", place), written.name, group)


def _sentence(mention: Mention, allowed: Collection[str], *, spec: str, elsewhere: str | None) -> str:
    named = f"{mention.subject} names the arm {shown(mention.arm)}"
    few = f"; its arms are {listed(list(allowed), 'and')}" if len(allowed) <= FEW else ""
    hint = guess(mention.arm, allowed) or few
    if elsewhere is not None:
        return f"{named}, but claims.needs.spec is {elsewhere}, which does not have it{hint}"
    other = "if another experiment has it, name that in claims.needs.spec"
    return f"{named}, but {spec} does not have it{hint} ({other})"


ABOUT = {
    "previous": ("previous token",),
    "next": ("next token",),
    "output": ("output label", "shown token"),
}
"""Groups of `token_information` and `read_out` by what they are about."""
BY = {"frequency": "rank", "part_of_speech": "tag"}
"""How names of groups begin, by what tokens are grouped by."""

MEASURE: TypeAdapter[Any] = TypeAdapter(Measure)


def groups_of_measures(measures: Any, data_kinds: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the groups that each measure of a spec can make, by its kind; of tokens and of parts of a task only
    how their names begin. Measures of which it cannot be told are left out.

    Args:
        measures: as the spec writes them.
        data_kinds: of its arms.
    """
    by_kind: dict[str, tuple[str, ...]] = {}
    for written in measures if isinstance(measures, list) else ():
        try:
            settings = MEASURE.validate_python(written)
        except ValidationError:
            continue  # which others say
        if (groups := _groups(settings, data_kinds)) is not None:
            by_kind[settings.kind] = groups
    return by_kind


def _groups(settings: Any, data_kinds: Collection[str]) -> tuple[str, ...] | None:
    match settings:
        case TaskSettings() | RetrievalSettings():
            parts = [part for kind in data_kinds for part in settings.parts(built_in=kind == "language")]
            return tuple(dict.fromkeys(name for part in parts for name in part.tasks or ()))
        case QuestionSettings():
            return tuple(name for about in settings.about for name in ABOUT.get(about, ()))
        case LayerChangeSettings() | InfluenceSettings():
            return tuple(BY[by] for by in settings.groups)
        case ConditionalIndependenceSettings():
            return tuple(f"ratio={number(ratio)}" for ratio in settings.ratios)
        case GenerationSettings():
            return ("causal_lm", *(f"iterations={count}" for count in settings.iterations))
    return None


def group_faults(claims: Any, groups: Mapping[str, Sequence[str]], *, spec: str) -> Iterator[Fault]:
    """Yield every group that the measures do not make, at each place that names it.

    Args:
        claims: as they are written.
        groups: as `groups_of_measures` returns them.
        spec: the file name of the spec.
    """
    for index, claim in enumerate(claims if isinstance(claims, list) else ()):
        needs = claim.get("needs") if isinstance(claim, dict) else None
        if not isinstance(needs, dict) or needs.get("spec"):
            continue
        for written in written_effects(claim, ("claims", index)):
            for keys, of in written.effect.quantities_at() if written.effect else ():
                possible = groups.get(of.measure)
                if possible is not None:
                    for place, sentence in _of_quantity(of, possible, spec):
                        yield Fault((*written.at, *keys, *place), f"{written.name}: {sentence}")


def _of_quantity(of: Quantity, possible: Sequence[str], spec: str) -> Iterator[tuple[tuple[str, int], str]]:
    if of.or_groups and all(_is_made(group, possible) for group in of.or_groups):
        return
    for place, group in enumerate(of.groups):
        if not _is_made(group, possible):
            others = f"only {listed(possible, 'and')}" if possible else "without groups"
            never = f"{of.measure} of {spec} never makes the group {shown(group)} as it is set there"
            yield ("groups", place), f"{never}, {others}{guess(group, possible)}"


def _is_made(group: str, possible: Sequence[str]) -> bool:
    """Return whether a group is one of them, a part of one, or one whose name begins like it."""
    return (
        "*" in group
        or group in possible
        or group.partition("@")[0].partition("/")[0].partition(" ")[0] in possible
    )
