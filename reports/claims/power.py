"""Power of claims before the first run, from the spread between the seeds of a pilot."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from pandas import DataFrame

from ablations.spec.contrasts import Claim
from ablations.wording import listed, several
from reports.claims.outcomes import family_levels, levels_at_looks, may_be_judged, measured, smallest_effects
from reports.claims.select import SeedTable
from reports.claims.verdicts import FEWEST_SEEDS
from reports.claims.words import significant
from reports.statistics.seed_tests import SeedEffects, constant, fewest_for_page, power, shared_level

SIZES = (3, 5, 10, 20)
"""Numbers of seeds for which chances are shown."""

LARGE = 3
"""Factor of a large effect: an experiment should not miss this many times the smallest effect that matters."""

UNLIKELY = 0.5
"""A claim is reported before the first run if its chance to find a large effect is below this."""


class ClaimPower(NamedTuple):
    """Chances that a claim is supported, computed for the part that is hardest to see."""

    claim: str
    part: str
    unit: str
    smallest_effect: float
    spread: float
    """Standard deviation of the effect between the pilot's seeds."""
    pilot_seeds: int
    """Number of pilot seeds from which the spread is computed."""
    chances: dict[int, float]
    """Chance of an interval above 0, by number of seeds, if the effect is the smallest that matters."""
    large_effect: float
    """Chance with all seeds of the experiment, if the effect is `LARGE` times the smallest that matters."""
    fewest_for_page: int = 0
    """Fewest seeds with which Page's test of a trend can reach the level; 0 for other effects."""


def claim_powers(
    claims: Collection[Claim],
    pilot: DataFrame,
    *,
    seeds: int,
    arms: Collection[str],
    measures: Collection[str],
    looks: Sequence[int] | None = None,
) -> list[ClaimPower | str]:
    """Return the chances of each claim, or a sentence if the pilot does not tell its spread.

    The chance is that of a t test at the claim's level in its family. With looks, it is taken at the level of
    the first look with at least so many seeds; the chance of an earlier verdict is not counted. A claim with
    several parts holds only if all hold, so its chance is at most that of its hardest part, which is
    returned. The spread of few seeds is known roughly.

    Args:
        claims: claims of the experiment; those that its arms and measures cannot judge are left out.
        pilot: table of results of an experiment with the same arms, or some of them.
        seeds: most seeds of an arm in the experiment.
        looks: number of seeds at each look, if looks are taken.
    """
    rows = SeedTable(pilot)
    family_level = family_levels(claims, arms=arms, measures=measures)
    items = [measured(claim, rows) for claim in claims if may_be_judged(claim, arms=arms, measures=measures)]
    powers: list[ClaimPower | str] = []
    for item in items:
        claim = item.claim
        parts = {name: part for name, part in item.parts.items() if not part.condition}
        are_finite = [len(part.values) > 1 and np.isfinite(part.values).all() for part in parts.values()]
        if item.missing or not parts or not all(are_finite):
            why = "; ".join(item.missing) or "one of its effects is a finite number in fewer than two of its seeds"
            if lacking := [arm for arm in claim.needs.arms if arm not in rows.seeds]:  # the experiment has them
                why = f"it has no results of {listed(lacking, 'and')}"
            powers.append(f"{claim.name}: the pilot does not tell how much seeds differ: {why}.")
            continue
        level = family_level[claim.name]
        levels = {seeds: level}
        if looks is not None:
            levels = dict(zip(looks, levels_at_looks(item, looks, level), strict=True))
        smallest = smallest_effects(item, parts)
        by_part = {name: _part_power(claim, name, part, smallest[name], levels) for name, part in parts.items()}
        powers.append(min(by_part.values(), key=lambda power: power.large_effect))
    return powers


def _part_power(
    claim: Claim, name: str, part: SeedEffects, smallest: float, levels: Mapping[int, float]
) -> ClaimPower:
    """Return the chances of one part of a claim.

    Args:
        levels: level of the test at each look, by number of seeds; the last is that of all seeds.
    """
    spread, all_seeds = float(part.values.std(ddof=1)), max(levels)

    def fewest_for_trend(level: float) -> int:
        return fewest_for_page(part.places, level=level) if part.places else 0

    def chance(effect: float, seeds: int) -> float:
        if seeds < FEWEST_SEEDS:
            return 0.0
        level = shared_level(part, levels[min((size for size in levels if size >= seeds), default=all_seeds)])
        if seeds < fewest_for_trend(level):
            return 0.0
        if part.direction == "either":  # the interval must lie beyond the smallest effect that matters
            effect -= smallest
        whole = float(
            np.hypot(spread, part.text_error * np.sqrt(seeds))
        )  # spread of one seed, the error of the shared text included
        if constant(part.values) and seeds < np.log2(2 / level):  # seeds that agree are judged by their signs
            return 0.0
        if not whole:
            return 1.0
        return power(effect, sd=whole, seeds=seeds, level=level)

    return ClaimPower(
        claim=claim.name,
        part=name,
        unit=part.unit,
        smallest_effect=smallest,
        spread=spread,
        pilot_seeds=len(part.values),
        chances={size: chance(smallest, size) for size in SIZES},
        large_effect=chance(LARGE * smallest, all_seeds),
        fewest_for_page=fewest_for_trend(levels[all_seeds]),
    )


def unlikely(powers: Iterable[ClaimPower | str], *, seeds: int) -> list[str]:
    """Return a sentence on each claim whose chance of a verdict is below `UNLIKELY` even for a large effect."""
    sentences = []
    for claim_power in powers:
        if isinstance(claim_power, str) or claim_power.large_effect >= UNLIKELY:
            continue
        if seeds < FEWEST_SEEDS:
            sentences.append(
                f"{claim_power.claim}: {several(seeds, 'seed')} cannot decide a claim, which needs at least "
                f"{FEWEST_SEEDS}; plan more seeds."
            )
            continue
        if seeds < claim_power.fewest_for_page:
            sentences.append(
                f"{claim_power.claim}: {several(seeds, 'seed')} cannot show that the steps of a trend agree: "
                f"Page's test needs at least {claim_power.fewest_for_page} at this level; plan more seeds."
            )
            continue
        effect = f"{significant(LARGE * claim_power.smallest_effect)} {claim_power.unit}".rstrip()
        sentences.append(
            f"{claim_power.claim}: with {several(seeds, 'seed')} an effect of {LARGE} times the smallest that "
            f"matters ({effect}) would be found in {100 * claim_power.large_effect:.0f} of 100 experiments, as "
            f"seeds of the pilot differ by {significant(claim_power.spread)} (standard deviation, n = "
            f"{claim_power.pilot_seeds}); plan more seeds, or say that a larger effect matters."
        )
    return sentences
