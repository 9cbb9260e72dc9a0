"""Chances of verdicts before the first run, from the spread between seeds of a pilot."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from pandas import DataFrame

from ablations.spec.contrasts import Claim
from ablations.wording import several
from reports.claims.outcomes import may_be_judged, measured, smallest_effects
from reports.claims.select import SeedTable
from reports.claims.verdicts import ALPHA, ways_to_fail
from reports.claims.words import significant
from reports.statistics.looks import look_levels
from reports.statistics.seed_tests import SeedEffects, power, shared_level

SIZES = (3, 5, 10, 20)
"""Numbers of seeds of which the chances are shown."""

LARGE = 3
"""An effect so many times the smallest that matters is one that an experiment should not miss."""

UNLIKELY = 0.5
"""Chance of finding such an effect below which a claim is reported before the first run."""


class ClaimPower(NamedTuple):
    """Chances that a claim is supported, by its part that is hardest to see."""

    claim: str
    part: str
    unit: str
    smallest_effect: float
    spread: float
    """Standard deviation of the effect between the pilot's seeds."""
    pilot_seeds: int
    """Seeds of the pilot, from which the spread is."""
    chances: dict[int, float]
    """Chance of an interval above 0 with so many seeds, if the effect is the smallest that matters."""
    large_effect: float
    """The same chance with all seeds of the experiment, if the effect is `LARGE` times as large."""


def claim_powers(
    claims: Iterable[Claim],
    pilot: DataFrame,
    *,
    seeds: int,
    arms: Collection[str],
    measures: Collection[str],
    looks: Sequence[int] | None = None,
) -> list[ClaimPower | str]:
    """Return the chances of each claim, or a sentence where the pilot does not tell its spread.

    The chance is that of a t test at the level of the claim in its family; with looks, at the level of the first
    look with at least so many seeds, and the chance of a verdict before it is not counted. A claim with several
    parts holds only if all do, so its chance is at most that of its hardest part, which is shown. The spread of
    few seeds is known roughly.

    Args:
        claims: those of the experiment; what its arms and measures cannot judge is left out.
        pilot: table of results of an experiment with the same arms, or some of them.
        seeds: seeds of an arm in the experiment, at most.
        arms: arms of the experiment.
        measures: kinds of its measures.
        looks: numbers of seeds at the looks, where these are taken.
    """
    rows = SeedTable(pilot)
    claims = [claim for claim in claims if may_be_judged(claim, arms=arms, measures=measures)]
    items = [measured(claim, rows) for claim in claims]
    families = Counter(claim.family for claim in claims)
    powers: list[ClaimPower | str] = []
    for item in items:
        claim = item.claim
        parts = {name: part for name, part in item.parts.items() if not part.condition and len(part.values) > 1}
        if item.missing or not parts:
            why = "; ".join(item.missing) or "it has fewer than two seeds"
            powers.append(f"{claim.name}: the pilot does not tell how much seeds differ: {why}.")
            continue
        level = ALPHA / families[claim.family]
        levels = {seeds: level}
        if looks is not None:
            at_looks = look_levels(looks, level=level, ways=ways_to_fail(item.parts))
            levels = dict(zip(looks, at_looks, strict=True))
        smallest = smallest_effects(item, parts)
        by_part = {name: _part_power(claim, name, part, smallest[name], levels) for name, part in parts.items()}
        powers.append(min(by_part.values(), key=lambda one: one.large_effect))
    return powers


def _part_power(
    claim: Claim, name: str, part: SeedEffects, smallest: float, levels: Mapping[int, float]
) -> ClaimPower:
    """Return the chances of one part.

    Args:
        levels: level of the test by the number of seeds at each look; the last is that of all seeds.
    """
    spread, all_seeds = float(part.values.std(ddof=1)), max(levels)

    def chance(effect: float, seeds: int) -> float:
        level = shared_level(part, levels[min((size for size in levels if size >= seeds), default=all_seeds)])
        if part.direction == "either":  # it must surely be beyond what matters
            effect -= smallest
        whole = float(
            np.hypot(spread, part.text_error * np.sqrt(seeds))
        )  # of a seed, with that of the shared text
        return power(effect, sd=whole, seeds=seeds, level=level) if whole else 1.0

    return ClaimPower(
        claim=claim.name,
        part=name,
        unit=part.unit,
        smallest_effect=smallest,
        spread=spread,
        pilot_seeds=len(part.values),
        chances={size: chance(smallest, size) for size in SIZES},
        large_effect=chance(LARGE * smallest, all_seeds),
    )


def unlikely(powers: Iterable[ClaimPower | str], *, seeds: int) -> list[str]:
    """Return a sentence on each claim that so many seeds would hardly decide even if its effect were large."""
    sentences = []
    for one in powers:
        if isinstance(one, str) or one.large_effect >= UNLIKELY:
            continue
        effect = f"{significant(LARGE * one.smallest_effect)} {one.unit}".rstrip()
        sentences.append(
            f"{one.claim}: with {several(seeds, 'seed')} an effect of {LARGE} times the smallest that matters "
            f"({effect}) would be found in {100 * one.large_effect:.0f} of 100 experiments, as seeds of the pilot "
            f"differ by {significant(one.spread)} (standard deviation, n = {one.pilot_seeds}); plan more seeds, "
            "or say that a larger effect matters."
        )
    return sentences
