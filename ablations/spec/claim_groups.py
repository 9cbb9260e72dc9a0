"""Check of the groups that a claim names against the settings of its spec's measures.

Groups that only a table can show pass: patterns with a star, treebanks, words of pictures, ranks of a text. A
claim with `needs.spec` may be meant for that experiment and passes too. So do `groups` where all of `or_groups`
can be made.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ablations.catalogue import Measure
from ablations.measures.settings import InfluenceSettings, LayerChangeSettings, TokenInformationSettings
from ablations.spec.claim_checks import written_effects
from ablations.spec.contrasts import Quantity
from ablations.spec.problems import Fault
from ablations.tasks.settings import (
    ConditionalIndependenceSettings,
    GenerationSettings,
    RetrievalSettings,
    TaskSettings,
)
from ablations.wording import guess, listed, number, shown

ABOUT = {
    "previous": ("previous token",),
    "next": ("next token",),
    "output": ("output label", "shown token"),
}
"""Groups of `token_information` by what it is about."""
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
        case TokenInformationSettings():
            return tuple(name for about in settings.about for name in ABOUT.get(about, ()))
        case LayerChangeSettings() | InfluenceSettings():
            return tuple(BY[by] for by in settings.groups)
        case ConditionalIndependenceSettings():
            return tuple(f"ratio={number(ratio)}" for ratio in settings.ratios)
        case GenerationSettings():
            return ("causal_lm", *(f"iterations={count}" for count in settings.iterations))
    return None


def faults(claims: Any, groups: Mapping[str, Sequence[str]], *, spec: str) -> Iterator[Fault]:
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
