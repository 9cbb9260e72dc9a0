"""Outcomes of claims in a table of results: their effects, and their verdicts at the level of their family.

Where seeds are added until claims are decided, a claim is judged at each look in turn, with the seeds and at the
level of that look (`reports.statistics.looks`). The first look that settles it gives its verdict; seeds that other
claims need later do not change it.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablations.runs.records import Looks
from ablations.spec.claim import Claim
from reports.claims.contrasts import effects
from reports.claims.select import NotMeasured, SeedTable
from reports.claims.verdicts import ALPHA, DECIDED, Judgement, decide, is_judged, judge, ways_to_fail
from reports.statistics.looks import look_levels
from reports.statistics.seed_tests import SeedEffects


class Measured(NamedTuple):
    """Effects of a claim in a table of results."""

    claim: Claim
    parts: dict[str, SeedEffects]
    beside: dict[str, SeedEffects]
    missing: tuple[str, ...]
    """Reasons why parts are missing, one each; not empty where a part is missing."""


def measured(
    claim: Claim, rows: SeedTable, *, arms: Collection[str] | None = None, measures: Collection[str] = ()
) -> Measured:
    """Return the effects of a claim, as far as the table has them.

    Args:
        claim: what to compute.
        rows: the table.
        arms: those that the experiment has, measured or not; those of the table, if not given.
        measures: kinds of those that it asks for, measured or not.
    """
    existing = set(rows.seeds if arms is None else arms)
    missing = []
    if lacking := [arm for arm in claim.needs.arms if arm not in existing]:
        missing.append(f"the experiment has no arm {', '.join(lacking)}")
    unmeasured = [name for name in claim.needs.measures if name not in rows.measures]
    if lacking := [name for name in unmeasured if name not in measures]:
        missing.append(f"there are no results of {', '.join(lacking)}")
    if missing and claim.needs.spec:
        missing[0] = f"needs {claim.needs.spec}, as {missing[0]}"
    if open_here := [name for name in unmeasured if name in measures]:
        missing.append(f"there are no results of {', '.join(open_here)} yet; `ablate run` computes them")
    parts: dict[str, SeedEffects] = {}
    for name, effect in (claim.provided | claim.parts).items():
        try:
            more_parts = effects(effect, rows)
        except NotMeasured as error:
            if not missing:  # what is said above says why
                missing.append(str(error))
            continue
        more_parts = {
            more: part._replace(
                condition=part.condition or name in claim.provided,
                in_each_seed=name in claim.provided and effect.in_each_seed,
            )
            for more, part in more_parts.items()
        }
        parts |= {"-".join(filter(None, (name, more))): part for more, part in more_parts.items()}
    beside: dict[str, SeedEffects] = {}
    for name, effect in claim.beside.items():
        try:
            more_parts = {more: part._replace(condition=False) for more, part in effects(effect, rows).items()}
            beside |= {"-".join(filter(None, (name, more))): part for more, part in more_parts.items()}
        except NotMeasured:
            continue
    return Measured(claim, parts, beside, tuple(missing))


End = Literal["decided", "not testable", "futile", "out of seeds", "open"]
"""State of a claim after its last look."""


class Stop(NamedTuple):
    """Look that a claim was last judged at."""

    number: int
    """Its number among all that may be taken, from 1 on."""
    of: int
    """Number of looks that may be taken."""
    seeds: int
    """Seeds in view."""
    up_to: int
    """Seeds at the last look that may be taken."""
    end: End


class Outcome(NamedTuple):
    """Claim with its verdict."""

    item: Measured
    judgement: Judgement | None
    """None for a claim of which a part is missing."""
    level: float
    """Level it was judged at: alpha of its family divided by the number of those of its claims that have evidence;
    of that, the level of the look."""
    family_level: float = ALPHA
    """Level for all looks together; the same as `level` where there is one."""
    look: Stop | None = None
    """Where seeds are added until claims are decided, the look that it was judged at."""


def smallest_effects(item: Measured, parts: Mapping[str, SeedEffects]) -> dict[str, float]:
    """Return the smallest effect that matters of each part of a claim."""
    return {name: part.smallest or item.claim.smallest_effect for name, part in parts.items()}


def outcomes(items: Iterable[Measured], *, alpha: float = ALPHA) -> dict[str, Outcome]:
    """Return the outcome of each claim, by name, with all seeds of the table."""
    items = list(items)
    levels = _levels(items, alpha)
    return {
        item.claim.name: Outcome(item, _judged(item, level), level, level)
        for item, level in zip(items, levels, strict=True)
    }


def outcomes_at_looks(
    claims: Iterable[Claim],
    rows: SeedTable,
    looks: Looks,
    *,
    arms: Collection[str],
    measures: Collection[str],
    alpha: float = ALPHA,
) -> dict[str, Outcome]:
    """Return the outcome of each claim, by name, at the look that settled it, or else at its last one.

    Args:
        claims: what to judge.
        rows: the table.
        looks: those that were taken.
        arms: those that the experiment has.
        measures: kinds of those that it asks for.
    """
    tables = {size: rows.of_seeds(set(looks.all_seeds[:size])) for size in looks.sizes}
    context: dict[str, Any] = {"arms": arms, "measures": measures}
    not_yet = f"no look was taken yet; the first is taken with {looks.sizes[0]} seeds"
    claims = list(claims)
    sizes_by_claim = {claim.name: looks.sizes_of(claim.needs.arms) for claim in claims}
    first_items = []
    for claim in claims:
        sizes = sizes_by_claim[claim.name]
        item = measured(claim, tables[sizes[0]] if sizes else rows, **context)
        first_items.append(item if sizes or item.missing else item._replace(missing=(not_yet,)))
    outcomes = {}
    for first, level in zip(first_items, _levels(first_items, alpha), strict=True):
        later = sizes_by_claim[first.claim.name][1:]
        items = itertools.chain([first], (measured(first.claim, tables[size], **context) for size in later))
        outcomes[first.claim.name] = _at_look(items, sizes_by_claim[first.claim.name], looks, level=level)
    return outcomes


def _at_look(items: Iterable[Measured], sizes: Sequence[int], looks: Looks, *, level: float) -> Outcome:
    """Return a claim at the first of its looks that settles it, or at the last that could judge it.

    Args:
        items: the claim as it was measured at each look, or without any look.
        sizes: seeds at these looks.
        looks: those that may be taken.
        level: of the claim in its family.
    """
    last: tuple[Measured, int, End, float] | None = None
    item = None
    for number, item in enumerate(items):
        if item.missing:
            continue
        size = sizes[number]
        ways = ways_to_fail(item.parts)
        at_look = look_levels(looks.sizes, level=level, ways=ways)[looks.sizes.index(size)]
        end = _end(item, looks, size, level=at_look)
        last = item, size, end, at_look
        if end in ("decided", "not testable"):
            break
    if last is None:
        assert item is not None
        return Outcome(item, None, level, level)
    item, size, end, at_look = last
    stop = Stop(looks.sizes.index(size) + 1, len(looks.sizes), size, looks.sizes[-1], end)
    return Outcome(item, _judged(item, at_look), at_look, level, stop)


def _end(item: Measured, looks: Looks, size: int, *, level: float) -> End:
    verdict, of_parts = decide(item.parts, smallest_effects(item, item.parts), level=level)
    if verdict in DECIDED:
        return "decided"
    if any(of_parts[name] == "not testable here" and part.in_each_seed for name, part in item.parts.items()):
        return "not testable"  # whatever other seeds show
    if looks.next_size(size) is None:
        return "out of seeds"
    return "futile" if any(item.claim.name in look.futile for look in looks.taken) else "open"


def _levels(items: list[Measured], alpha: float) -> list[float]:
    """Return the level of each claim: that of its family divided by the number of its claims with evidence."""
    sizes = Counter(item.claim.family for item in items if not item.missing and is_judged(item.parts))
    return [alpha / max(1, sizes[item.claim.family]) for item in items]


def _judged(item: Measured, level: float) -> Judgement | None:
    return None if item.missing else judge(item.parts, smallest_effects(item, item.parts), level=level)


# Futility --------------------------------------------------------------------------------------------


FUTILE_BELOW = 0.1
"""Chance of a verdict with all seeds, below which a claim is given up."""

FEWEST_FOR_FUTILITY = 5
"""Seeds below which no claim is given up, as so few tell their spread too roughly."""

FUTURES = 400
"""Continuations of an experiment that this chance is counted among."""


def after_look(outcomes: Mapping[str, Outcome], looks: Looks, *, size: int) -> tuple[list[str], list[str]]:
    """Return the arms that get more seeds after a look, and the claims that are given up at it.

    Args:
        outcomes: of all claims.
        looks: those that were taken, this one included.
        size: its number of seeds.
    """
    open_now = {
        name: one
        for name, one in outcomes.items()
        if one.look and (one.look.seeds, one.look.end) == (size, "open")
    }
    futile = [name for name, one in open_now.items() if is_futile(one, looks)]
    going_on = [one.item.claim for name, one in open_now.items() if name not in futile]
    return list(dict.fromkeys(arm for claim in going_on for arm in claim.needs.arms)), futile


def is_futile(outcome: Outcome, looks: Looks) -> bool:
    """Return whether all seeds that may be added would hardly decide an open claim.

    The seeds to come are drawn like those in view: each continuation weighs these anew (Bayesian bootstrap, Rubin
    1981) and draws from them, all parts of a seed together, with deviations from the mean stretched to the spread
    that so few seeds stand for. The claim is judged with all seeds at the level of the last look; a trend is taken
    to have steps that agree. To give up a claim needlessly costs a verdict, and never makes a wrong one.
    """
    item = outcome.item
    if outcome.look is None or outcome.look.seeds < FEWEST_FOR_FUTILITY:
        return False
    ways = ways_to_fail(item.parts)
    level = look_levels(looks.sizes, level=outcome.family_level, ways=ways)[-1]
    smallest, rng = smallest_effects(item, item.parts), np.random.default_rng(0)
    decided = 0
    for _ in range(FUTURES):
        weights = rng.dirichlet(np.ones(max(len(part.values) for part in item.parts.values())))
        drawn = rng.choice(len(weights), size=looks.sizes[-1], p=weights)
        later = {name: _continued(part, drawn, looks.sizes[-1]) for name, part in item.parts.items()}
        decided += decide(later, smallest, level=level)[0] in DECIDED
    return decided < FUTILE_BELOW * FUTURES


def _continued(part: SeedEffects, drawn: NDArray[np.int64], size: int) -> SeedEffects:
    """Return an effect with as many seeds as in the end: those in view, and further ones drawn from them."""
    seeds = len(part.values)
    if seeds < 2 or seeds >= size:
        return part
    stretched = np.sqrt((seeds + 1) / (seeds - 1))  # that of a new seed, about the mean of so few
    chosen = drawn[drawn < seeds][: size - seeds]

    def extended(values: NDArray[np.float64]) -> NDArray[np.float64]:
        centre = values.mean(-1, keepdims=True)
        return np.concatenate([values, centre + stretched * (values[..., chosen] - centre)], axis=-1)

    at = part.at_layers_LMS
    values = extended(part.values)
    return part._replace(
        seeds=tuple(range(len(values))),
        values=values,
        at_layers_LMS=None if at is None else extended(at),
        page=None,
    )
