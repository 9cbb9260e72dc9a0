"""Outcomes of claims in a table of results: their effects, and their verdicts at the level of their family
and of each look.

The first look that settles the claim gives its verdict; `partly` does not settle it while a part is undecided.
docs/claims.md ("Seeds until claims are decided") says how each look gets its level. The error is spent by the
power family of Kim and DeMets (1987), exponent 1. The levels are counted among the t tests of 2^19 draws of N
normal numbers: these tests do not depend on mean and spread, so one set of draws serves every effect.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ablations.catalogue import LOGGED
from ablations.runs.records import Looks
from ablations.spec.contrasts import Claim, Effect
from ablations.wording import listed
from reports.claims.contrasts import effects
from reports.claims.select import NotMeasured, SeedTable
from reports.claims.verdicts import ALPHA, DECIDED, Judgement, Verdict, confidence_of, decide, judge, ways_to_fail
from reports.statistics.seed_tests import SeedEffects


class MeasuredClaim(NamedTuple):
    """Effects of a claim in a table of results."""

    claim: Claim
    parts: dict[str, SeedEffects]
    beside: dict[str, SeedEffects]
    missing: tuple[str, ...]
    """Reasons why parts are missing, one for each; empty if no part is missing."""


def measured(
    claim: Claim, rows: SeedTable, *, arms: Collection[str] | None = None, measures: Collection[str] = ()
) -> MeasuredClaim:
    """Return the effects of a claim, as far as the table has them.

    Args:
        arms: arms of the experiment, measured or not; by default the arms of the table.
        measures: kinds of measures that the experiment asks for, measured or not.
    """
    existing = set(rows.seeds if arms is None else arms)
    missing = []
    if lacking := [arm for arm in claim.needs.arms if arm not in existing]:
        missing.append(f"the experiment has no arm {listed(lacking)}")
    unmeasured = [name for name in claim.needs.measures if name not in rows.measures]
    if lacking := [name for name in unmeasured if name not in measures]:
        missing.append(f"there are no results of {listed(lacking)}")
    if missing and claim.needs.spec:
        missing[0] = f"needs {claim.needs.spec}, because {missing[0]}"
    if not missing and (open_here := [name for name in unmeasured if name in measures]):
        missing.append(f"there are no results of {listed(open_here)} yet")
    parts: dict[str, SeedEffects] = {}
    for name, effect in (claim.provided | claim.parts).items():
        try:
            for part_name, part in _named_parts(name, effect, rows):
                parts[part_name] = part._replace(
                    condition=part.condition or name in claim.provided,
                    in_each_seed=name in claim.provided and effect.in_each_seed,
                )
        except NotMeasured as error:
            if not missing:  # otherwise the reasons above already explain it
                missing.append(str(error))
    beside: dict[str, SeedEffects] = {}
    for name, effect in claim.beside.items():
        with suppress(NotMeasured):
            named = _named_parts(name, effect, rows)
            beside |= {part_name: part._replace(condition=False) for part_name, part in named}
    return MeasuredClaim(claim, parts, beside, tuple(missing))


def _named_parts(name: str, effect: Effect, rows: SeedTable) -> list[tuple[str, SeedEffects]]:
    """Return the parts of an effect, each with the name of the effect before its own."""
    return [("-".join(filter(None, (name, part_name))), part) for part_name, part in effects(effect, rows).items()]


End = Literal["decided", "not testable", "futile", "out of seeds", "open"]
"""State of a claim after its last look."""


@dataclass(frozen=True)
class Stop:
    """Look at which a claim was last judged."""

    number: int
    """Number of the look among all that may be taken, from 1 on."""
    of: int
    """Number of looks that may be taken."""
    seeds: int
    """Number of seeds at this look."""
    up_to: int
    """Number of seeds at the last look that may be taken."""
    end: End
    level: float
    """Level of this look alone; all looks together have the claim's level in its family."""
    given_up: int | None = None
    """Number of seeds at the look at which the claim was given up; None if it was not."""


class Outcome(NamedTuple):
    """Claim with its verdict."""

    item: MeasuredClaim
    judgement: Judgement | None
    """Judgement of the claim; None if a part is missing."""
    level: float
    """Level of the claim over all looks together (`family_levels`)."""
    look: Stop | None = None
    """Look at which the claim was last judged; None if seeds are not added until claims are decided."""


def smallest_effects(item: MeasuredClaim, parts: Mapping[str, SeedEffects]) -> dict[str, float]:
    """Return the smallest effect that matters for each part of a claim, by name."""
    return {name: part.smallest or item.claim.smallest_effect for name, part in parts.items()}


def family_levels(
    claims: Collection[Claim], *, arms: Collection[str], measures: Collection[str], alpha: float = ALPHA
) -> dict[str, float]:
    """Return the level of each claim, by name: alpha divided by the number of claims of its family that the
    experiment may judge.

    Claims count with or without evidence so far. So the level is known before the first run, and verdicts on
    a part of the runs are at the same level as those on all of them.

    Args:
        alpha: chance of any wrong verdict in a family.
    """
    sizes = Counter(claim.family for claim in claims if may_be_judged(claim, arms=arms, measures=measures))
    return {claim.name: alpha / max(1, sizes[claim.family]) for claim in claims}


def may_be_judged(claim: Claim, *, arms: Collection[str], measures: Collection[str]) -> bool:
    """Return whether an experiment with these arms and kinds of measures has everything that a claim needs."""
    return set(claim.needs.arms) <= set(arms) and set(claim.needs.measures) <= {*measures, *LOGGED}


def outcomes(
    claims: Collection[Claim],
    rows: SeedTable,
    *,
    arms: Collection[str],
    measures: Collection[str],
    alpha: float = ALPHA,
) -> dict[str, Outcome]:
    """Return the outcome of each claim with all seeds of the table, by name."""
    levels = family_levels(claims, arms=arms, measures=measures, alpha=alpha)
    items = [measured(claim, rows, arms=arms, measures=measures) for claim in claims]
    return {
        name: Outcome(item, None if item.missing else _judged(item, level), level)
        for item, (name, level) in zip(items, levels.items(), strict=True)
    }


def outcomes_at_looks(
    claims: Collection[Claim],
    rows: SeedTable,
    looks: Looks,
    *,
    arms: Collection[str],
    measures: Collection[str],
    failed: Collection[tuple[str, int]] = (),
    alpha: float = ALPHA,
) -> dict[str, Outcome]:
    """Return the outcome of each claim at the look that settled it, or else at its last look, by name.

    Args:
        failed: arm and seed of each run that failed. Claims that wait for such runs name them.
        alpha: chance of any wrong verdict in a family, over all looks.
    """
    tables = {size: rows.of_seeds(set(looks.all_seeds[:size])) for size in looks.sizes}
    context: dict[str, Any] = {"arms": arms, "measures": measures}
    levels = family_levels(claims, **context, alpha=alpha)
    outcomes = {}
    for claim in claims:
        level, sizes = levels[claim.name], looks.sizes_of(claim.needs.arms)
        if sizes:
            items = (measured(claim, tables[size], **context) for size in sizes)
            outcomes[claim.name] = _at_look(items, sizes, looks, level=level)
            continue
        item = measured(claim, rows, **context)
        if not item.missing:
            item = item._replace(missing=(_not_yet(claim, looks, failed),))
        outcomes[claim.name] = Outcome(item, None, level)
    return outcomes


def _not_yet(claim: Claim, looks: Looks, failed: Collection[tuple[str, int]]) -> str:
    """Return why no look at a claim was taken yet."""
    waits_for = [f"{arm}, seed {seed}" for arm, seed in failed if arm in claim.needs.arms]
    why = f"; it waits for runs that failed: {'; '.join(waits_for)}" if waits_for else ""
    return f"the first look at the claim is taken with {looks.sizes[0]} seeds of its arms{why}"


def _at_look(items: Iterable[MeasuredClaim], sizes: Sequence[int], looks: Looks, *, level: float) -> Outcome:
    """Return the outcome of a claim at the first look that settles it, or else at the last look that could
    judge it.

    Args:
        items: the claim as measured at each look.
        sizes: number of seeds at each of these looks.
        level: level of the claim in its family.
    """
    last: tuple[MeasuredClaim, int, End, float] | None = None
    item = None
    for number, item in enumerate(items):
        if item.missing:
            continue
        size = sizes[number]
        at_look = levels_at_looks(item, looks.sizes, level)[looks.sizes.index(size)]
        end = _end(item, looks, size, level=at_look)
        last = item, size, end, at_look
        if end in ("decided", "not testable"):
            break
    if last is None:
        assert item is not None
        return Outcome(item, None, level)
    item, size, end, at_look = last
    given_up = next((look.seeds for look in looks.taken if item.claim.name in look.futile), None)
    number = looks.sizes.index(size) + 1
    stop = Stop(number, len(looks.sizes), size, looks.sizes[-1], end, at_look, given_up)
    return Outcome(item, _judged(item, at_look, over_all_looks=level), level, stop)


def levels_at_looks(item: MeasuredClaim, sizes: Sequence[int], level: float) -> tuple[float, ...]:
    """Return the level of a claim at each look. It allows for several parts and several layers to choose from."""
    chosen = [max(part.at_layers_LMS.shape[:2]) for part in item.parts.values() if part.at_layers_LMS is not None]
    return look_levels(tuple(sizes), level=level, ways=ways_to_fail(item.parts) * max(chosen, default=1))


def _end(item: MeasuredClaim, looks: Looks, size: int, *, level: float) -> End:
    verdict, of_parts = decide(item.parts, smallest_effects(item, item.parts), level=level)
    if _is_settled(verdict, of_parts):
        return "decided"
    if any(of_parts[name] == "not testable here" and part.in_each_seed for name, part in item.parts.items()):
        return "not testable"  # more seeds cannot change this
    if any(part.copied_seeds for part in item.parts.values()):
        return "not testable"  # more seeds would be more copies
    if looks.next_size(size) is None:
        return "out of seeds"
    return "futile" if any(item.claim.name in look.futile for look in looks.taken) else "open"


def _is_settled(verdict: Verdict, of_parts: Mapping[str, Verdict]) -> bool:
    """Return whether more seeds are not needed. An undecided part of a claim that is `partly` may still contradict
    the claim."""
    return verdict in DECIDED and not (verdict == "partly" and "undecided" in of_parts.values())


def _judged(item: MeasuredClaim, level: float, *, over_all_looks: float | None = None) -> Judgement:
    """Return the judgement at the level of a look, with intervals that state their confidence over all looks."""
    judgement = judge(item.parts, smallest_effects(item, item.parts), level=level)
    if over_all_looks is None:
        return judgement
    ways = ways_to_fail(judgement.parts)
    parts = {
        name: replace(part, confidence=confidence_of(part.verdict, level=over_all_looks, ways=ways))
        for name, part in judgement.parts.items()
    }
    return judgement._replace(parts=parts)


# Futility --------------------------------------------------------------------------------------------


FUTILE_BELOW = 0.1
"""Chance of a verdict with all seeds below which a claim is given up."""

FEWEST_FOR_FUTILITY = 5
"""Smallest number of seeds with which a claim may be given up; fewer tell their spread too roughly."""

FUTURES = 400
"""Number of simulated continuations of an experiment, from which the chance of a verdict is counted."""


def after_look(outcomes: Mapping[str, Outcome], looks: Looks) -> tuple[dict[str, int], list[str]]:
    """Return the number of seeds that each arm of an open claim gets, and the names of the claims that are
    given up now.
    """
    seeds_of: dict[str, int] = {}
    futile = []
    for name, outcome in outcomes.items():
        if outcome.look is None or outcome.look.end != "open":
            continue
        if is_futile(outcome, looks):
            futile.append(name)
            continue
        for arm in outcome.item.claim.needs.arms:
            seeds_of[arm] = max(seeds_of.get(arm, 0), looks.next_size(outcome.look.seeds) or 0)
    return seeds_of, futile


def is_futile(outcome: Outcome, looks: Looks) -> bool:
    """Return whether an open claim would hardly be settled even with all seeds that may be added.

    Future seeds are simulated from the present ones. Each of `FUTURES` continuations gives the present seeds
    random weights (Bayesian bootstrap, Rubin 1981) and draws from them, with all parts of a seed together.
    Deviations from the mean are enlarged, because a new seed lies further from the mean of few seeds. The claim
    is judged with all seeds at the level of the last look; the steps of a trend are assumed to agree, and the
    denominators of ratios not to be 0. Giving up a claim needlessly costs a verdict, but never makes a wrong one.
    """
    item = outcome.item
    if min(len(part.values) for part in item.parts.values()) < FEWEST_FOR_FUTILITY:
        return False
    level = levels_at_looks(item, looks.sizes, outcome.level)[-1]
    smallest, rng = smallest_effects(item, item.parts), np.random.default_rng(0)
    settled = 0
    for _ in range(FUTURES):
        weights = rng.dirichlet(np.ones(max(len(part.values) for part in item.parts.values())))
        drawn = rng.choice(len(weights), size=looks.sizes[-1], p=weights)
        later = {name: _continued(part, drawn, looks.sizes[-1]) for name, part in item.parts.items()}
        settled += _is_settled(*decide(later, smallest, level=level))
    return settled < FUTILE_BELOW * FUTURES


def _continued(part: SeedEffects, drawn: NDArray[np.int64], size: int) -> SeedEffects:
    """Return an effect with the final number of seeds: the present ones, and further ones drawn from them."""
    seeds = len(part.values)
    if seeds < 2 or seeds >= size:
        return part
    # A new seed lies further from the mean of so few seeds. Values of a condition in each seed are not
    # stretched, because this could move one of them over 0.
    stretched = 1.0 if part.in_each_seed else np.sqrt((seeds + 1) / (seeds - 1))
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
        ratio_of=None,
    )


LEVEL_DRAWS = 2**19
"""Number of draws among which the levels are counted; a level of 0.1% is 500 of them."""

DRAWS_AT_ONCE = 2**15
"""Number of draws in memory at once."""


@cache
def look_levels(sizes: tuple[int, ...], *, level: float, ways: int = 1) -> tuple[float, ...]:
    """Return the two-sided level of the t test at each look.

    A claim as a whole has `level`; each of the `ways` parts that may refute it is tested at a level divided
    by `ways`. The returned levels hold for both. Tests at a look's level have a chance of a wrong rejection
    over all looks of at most `level`. Tests at that level divided by `ways` have a chance of at most `level`
    divided by `ways`.

    Args:
        sizes: number of seeds at each look, rising.
    """
    p_DK = _null_probabilities(sizes)
    is_open = np.ones(len(p_DK), bool)
    levels: list[float] = []
    for look, (before, size) in enumerate(pairwise((0, *sizes))):
        at_look = level / ways / 2 * (size - before) / sizes[-1]
        here = p_DK[:, look]
        if look:  # the probability that so many draws do not exceed, interpolated, as it may be less than one draw
            rank = at_look * len(p_DK)
            lowest = np.sort(np.partition(here[is_open], int(rank))[: int(rank) + 1])
            at_look = float(np.interp(rank, np.arange(len(lowest) + 1), [0.0, *lowest]))
        is_open &= here > at_look
        levels.append(2 * ways * at_look)
    return tuple(levels)


@cache
def _null_probabilities(sizes: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the one-sided probability of the t test at each look, for draws with mean 0: shape (draws, looks)."""
    rng = np.random.default_rng(sizes)
    columns = np.asarray(sizes) - 1
    count_K = np.asarray(sizes, float)
    p_DK = np.empty((LEVEL_DRAWS, len(sizes)), np.float32)
    for start in range(0, LEVEL_DRAWS, DRAWS_AT_ONCE):
        values_DN = rng.standard_normal((DRAWS_AT_ONCE, sizes[-1]))
        mean_DK = values_DN.cumsum(1)[:, columns] / count_K
        square_DK = np.square(values_DN).cumsum(1)[:, columns] / count_K
        error_DK = np.sqrt((square_DK - np.square(mean_DK)) / (count_K - 1))
        p_DK[start : start + DRAWS_AT_ONCE] = special.stdtr(count_K - 1, -mean_DK / error_DK)
    return p_DK
