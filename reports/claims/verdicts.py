"""Rule of verdicts: effects over seeds go in, a verdict comes out. This module does not know what the effects
mean.

docs/claims.md ("The verdicts") has the rules in their order, and the level of a claim in its family
(Bonferroni). Holm's rule does not suit: a claim can get one of several verdicts, and one of them may still be
wrong when another passes its level on.

Parts of a claim are tested at alpha without a correction (intersection-union, Berger 1982). A single part can
refute the claim, so with k parts each is refuted, or found to make no difference, at alpha / k. A condition is
no part. It says that the subject of the claim exists, such as a head that has learned its own task.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from reports.statistics import seed_tests
from reports.statistics.seed_tests import SeedEffects, seeds_to_decide, smallest_seen, spread_interval

Verdict = Literal[
    "supported",
    "contradicted",
    "equivalent",
    "partly",
    "undecided",
    "not testable here",
    "insufficient evidence",
    "not run",
]
"""Verdict on a claim or a part of one."""

ALPHA = 0.05
"""Error rate of a family of claims: the chance that noise is taken for any of its effects."""

FEWEST_SEEDS = 3
"""Smallest number of seeds that are evidence, whatever their means are."""

DECIDED = ("supported", "contradicted", "equivalent", "partly")
"""Verdicts that need no more seeds."""

SeedRange = tuple[int, int | None]
"""Fewest and most seeds; None means more than `seed_tests.MOST_SEEDS`."""


@dataclass(frozen=True, kw_only=True)
class PartVerdict:
    """Part of a claim: one effect with its verdict."""

    verdict: Verdict
    effect: float
    low: float
    high: float
    confidence: float
    """Confidence of the interval from `low` to `high`."""
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    linear_form: tuple[float, ...]
    """Values whose spread is that of the effect, also where the effect is a ratio of means."""
    smallest_effect: float
    smallest_seen: float
    """Effect that this many seeds with this spread would find 8 times in 10."""
    seeds_to_decide: SeedRange | None
    """Range of the number of seeds that would find an effect of `smallest_effect` 8 times in 10, and its absence
    too unless 0 is a bound. If no side is claimed, it is the number that would find the absence. It is an 80%
    range, as few seeds tell their spread roughly. None if it is not known or beyond what anybody trains."""
    text_error: float
    """Standard error of the mean due to the text that all seeds share; 0 if it is not known."""
    p: float
    """Probability in the two-sided t test against 0."""
    p_equivalent: float
    """Probability in TOST within `smallest_effect`; NaN for a bound and for a condition."""
    p_sign_flips: float | None
    """Probability in the sign-flip test; None below six seeds."""
    p_page: float | None
    """Probability in Page's test of a trend; None for other effects."""
    fewest_for_page: int | None
    """Fewest seeds with which Page's test of a trend can reach the level; None for other effects."""
    bounded: bool
    """Whether 0 is a bound that the claim set; then nothing is equivalent."""
    condition: bool
    """Whether this is a condition, which must hold before the claim can be judged."""
    in_each_seed: bool
    """Whether a condition must hold in each seed, instead of on their mean."""
    unshown: tuple[int, ...]
    """Seeds of the claim's effects in which a condition that each seed must show was not measured."""
    supported_above: float
    """Mean above which this part would be `supported` with as many seeds of this spread; a trend needs steps that
    agree as well. If no side is claimed, it also holds below minus that mean. NaN without evidence or spread."""
    contradicted_below: float
    """Mean below which it would be `contradicted`; NaN for a condition, and if no side is claimed."""
    equivalent_above: float
    """Lower end of the means at which this part would be `equivalent`; NaN if there are none."""
    equivalent_below: float
    """Upper end of the means at which this part would be `equivalent`; NaN if there are none."""


class Judgement(NamedTuple):
    """Judgement of a claim and its parts."""

    verdict: Verdict
    deciding: str
    """Name of the part that decided, or that is nearest to deciding."""
    parts: dict[str, PartVerdict]

    @property
    def seeds_to_decide(self) -> SeedRange | None:
        """Return the range of seeds that would decide every open part, conditions included: the most that any
        of them needs.

        None if no part is open. It is also None if for one open part the number is not known, is more than
        anybody trains, or does not help, as a condition already fails.
        """
        needed = [
            None if part.verdict == "not testable here" else part.seeds_to_decide
            for part in self.parts.values()
            if part.verdict not in DECIDED
        ]
        ranges = [seeds for seeds in needed if seeds is not None]
        if not ranges or len(ranges) < len(needed):
            return None
        upper_ends = [high for _, high in ranges]
        return max(low for low, _ in ranges), None if None in upper_ends else max(high or 0 for high in upper_ends)


def has_evidence(effects: SeedEffects) -> bool:
    """Return whether there are enough seeds, all with a finite number, and not all with 0."""
    values = effects.values
    if len(values) < FEWEST_SEEDS or not np.isfinite(values).all():
        return False
    return not (seed_tests.constant(values) and seed_tests.constant([*values, 0.0]))


def ways_to_fail(parts: Mapping[str, "SeedEffects | PartVerdict"]) -> int:
    """Return the number of parts that may refute a claim: all but the conditions, and at least 1."""
    return max(1, sum(not part.condition for part in parts.values()))


def decide(
    parts: Mapping[str, SeedEffects], smallest: Mapping[str, float], *, level: float
) -> tuple[Verdict, dict[str, Verdict]]:
    """Return the verdict on a claim, and the verdict on each of its parts by name.

    Args:
        smallest: smallest effect that matters for each part.
        level: level of this claim in its family.
    """
    ways = ways_to_fail(parts)
    verdicts = {name: _verdict(part, smallest[name], level=level, ways=ways) for name, part in parts.items()}
    for name, part in parts.items():
        if verdicts[name] == "supported" and unshown_seeds(part, parts):
            verdicts[name] = "undecided"
    conditions = {verdict for name, verdict in verdicts.items() if parts[name].condition}
    of_parts = {verdict for name, verdict in verdicts.items() if not parts[name].condition}
    for verdict in ("not testable here", "insufficient evidence", "undecided"):
        if verdict in conditions:
            return verdict, verdicts
    if "equivalent" in of_parts and len(of_parts) > 1:
        of_parts = of_parts - {"equivalent"} | {"partly"}
    return next((verdict for verdict in _STRONGEST_FIRST if verdict in of_parts), "supported"), verdicts


def judge(parts: Mapping[str, SeedEffects], smallest: Mapping[str, float], *, level: float) -> Judgement:
    """Return the verdicts of `decide` with the numbers behind them. The arguments are those of `decide`."""
    verdict, verdicts = decide(parts, smallest, level=level)
    ways = ways_to_fail(parts)
    judged = {
        name: _part(
            part, smallest[name], verdicts[name], level=level, ways=ways, unshown=unshown_seeds(part, parts)
        )
        for name, part in parts.items()
    }
    open_conditions = [name for name, part in judged.items() if part.condition and part.verdict == verdict]
    if open_conditions and verdict != "supported":
        return Judgement(verdict, open_conditions[0], judged)
    alike = {
        name: part for name, part in counted_parts(judged).items() if part.verdict == verdict_of_part(verdict)
    }
    return Judgement(verdict, _deciding(alike or judged, verdict), judged)


def unshown_seeds(condition: SeedEffects, parts: Mapping[str, SeedEffects]) -> tuple[int, ...]:
    """Return the seeds of a claim's effects in which a condition that each seed must show was not measured.

    Empty for a part that is no such condition.
    """
    if not (condition.condition and condition.in_each_seed):
        return ()
    of_effects = {seed for part in parts.values() if not part.condition for seed in part.seeds}
    return tuple(sorted(of_effects - set(condition.seeds)))


def counted_parts(judged: Mapping[str, PartVerdict]) -> dict[str, PartVerdict]:
    """Return the parts that make the verdict: all but the conditions."""
    return {name: part for name, part in judged.items() if not part.condition}


def verdict_of_part(verdict: Verdict) -> Verdict:
    """Return the verdict that a part must have to give the whole claim this verdict."""
    return "equivalent" if verdict == "partly" else verdict


_STRONGEST_FIRST: tuple[Verdict, ...] = (
    "contradicted",
    "insufficient evidence",
    "partly",
    "equivalent",
    "undecided",
    "supported",
)
"""Order of the parts' verdicts. The claim gets the first one that any of its parts has."""


def _deciding(parts_with_verdict: Mapping[str, PartVerdict], verdict: Verdict) -> str:
    """Return the name of the part that refutes most clearly. If no part refutes, it is the part that holds
    least clearly.
    """
    if verdict == "contradicted":
        return min(parts_with_verdict, key=lambda name: parts_with_verdict[name].p)
    if verdict in ("equivalent", "partly"):
        return min(parts_with_verdict, key=lambda name: parts_with_verdict[name].p_equivalent)
    return max(parts_with_verdict, key=lambda name: np.nan_to_num(parts_with_verdict[name].p, nan=2.0))


def confidence_of(verdict: Verdict, *, level: float, ways: int) -> float:
    """Return the confidence of the interval that decides a part. One of several parts refutes a claim at a level
    that is divided by their number."""
    return 1 - level / (ways if verdict == "contradicted" else 1)


def _part(
    effects: SeedEffects, smallest: float, verdict: Verdict, *, level: float, ways: int, unshown: tuple[int, ...]
) -> PartVerdict:
    values = effects.values
    confidence = confidence_of(verdict, level=level, ways=ways)
    interval = seed_tests.interval(effects, confidence=confidence)
    numbers: dict[str, Any] = {"p": np.nan, "p_equivalent": np.nan, "p_sign_flips": None}
    numbers |= {"smallest_seen": np.nan, "seeds_to_decide": None, "text_error": effects.text_error}
    numbers |= _other_means(effects, smallest, level=level, ways=ways)
    if has_evidence(effects):
        flips = None
        if len(values) >= seed_tests.FEWEST_FOR_SIGN_FLIPS:
            flips = seed_tests.sign_flips(values, rng=np.random.default_rng(0))
        numbers |= {
            "p": min(1.0, 2 * min(seed_tests.above(effects), seed_tests.below(effects))),
            "p_equivalent": _equivalence(effects, smallest) if _may_be_equivalent(effects) else np.nan,
            "p_sign_flips": flips,
        }
        if not (effects.condition and effects.in_each_seed):  # judged seed by seed
            numbers |= _seeds_wanted(effects, smallest, level=level, ways=ways)
    return PartVerdict(
        verdict=verdict,
        effect=interval.mean,
        low=interval.low,
        high=interval.high,
        confidence=confidence,
        seeds=effects.seeds,
        values=tuple(map(float, values)),
        linear_form=tuple(map(float, seed_tests.linear_form(effects))),
        smallest_effect=smallest,
        p_page=effects.page,
        fewest_for_page=_fewest_for_page(effects, level),
        bounded=effects.bounded,
        condition=effects.condition,
        in_each_seed=effects.in_each_seed,
        unshown=unshown,
        **numbers,
    )


def _other_means(effects: SeedEffects, smallest: float, *, level: float, ways: int) -> dict[str, float]:
    """Return the means at which the verdict would change.

    All seeds are assumed to move by the same amount at every layer, so each interval keeps its distance from
    the mean.
    """
    means = dict.fromkeys(
        ("supported_above", "contradicted_below", "equivalent_above", "equivalent_below"), float("nan")
    )
    if not has_evidence(effects) or seed_tests.constant(effects.values):
        return means
    if effects.condition and effects.in_each_seed:
        return means  # judged seed by seed
    down, _ = _distances(effects, 1 - level)
    means["supported_above"] = smallest + down if effects.direction == "either" else down
    if effects.direction != "either" and not effects.condition:
        means["contradicted_below"] = -_distances(effects, 1 - level / ways)[1]
    # This interval lies within the margin if TOST at level / ways holds.
    down, up = _distances(effects, 1 - 2 * level / ways)
    low, high = down - smallest, smallest - up
    if _may_be_equivalent(effects) and low < high:  # `equivalent` goes before the other verdicts
        means |= {"equivalent_above": low, "equivalent_below": high}
        means["supported_above"] = max(high, means["supported_above"])
        means["contradicted_below"] = min(means["contradicted_below"], low)  # NaN stays where no side is claimed
    return means


def _distances(effects: SeedEffects, confidence: float) -> tuple[float, float]:
    """Return the distances from the mean to the lower and to the upper end of the interval."""
    mean, low, high = seed_tests.interval(effects, confidence=confidence)
    return mean - low, high - mean


def _seeds_wanted(effects: SeedEffects, smallest: float, *, level: float, ways: int) -> dict[str, Any]:
    """Return the smallest effect that so many seeds find, and the range of seeds that would decide.

    Both follow from the power of the t test. If all seeds show the same number, it is the number of seeds
    that would have to agree; it is at least as many if they do at one of the layers that could have been chosen.
    A trend also needs as many as Page's test.
    """
    seeds, text_error = len(effects.values), effects.text_error
    fewest = _fewest_for_page(effects, level) or 0
    if seed_tests.constant(effects.values):
        fewest = max(fewest, int(np.ceil(np.log2(2 * ways / level))))
        return {"smallest_seen": 0.0 if seeds >= fewest else np.nan, "seeds_to_decide": (fewest, fewest)}
    sd, part_level = float(effects.values.std(ddof=1)), seed_tests.shared_level(effects, level)
    absent_level = part_level / ways if _may_be_equivalent(effects) else None  # one absent part is enough
    # If no side is claimed, an effect must lie beyond the smallest one: only its absence can be found there.
    is_either = effects.direction == "either"
    present_level, beyond = (None, smallest) if is_either else (part_level, 0.0)
    low, high = (
        seeds_to_decide(smallest, sd=end, level=present_level, absent_level=absent_level, text_error=text_error)
        for end in spread_interval(sd, seeds=seeds)
    )
    at_layers_LMS = effects.at_layers_LMS
    if at_layers_LMS is not None and seed_tests.constant(at_layers_LMS).any():
        fewest = max(fewest, int(np.ceil(np.log2(ways / part_level))))
    low, high = (None if end is None else max(end, fewest) for end in (low, high))
    seen = beyond + smallest_seen(sd=sd, seeds=seeds, level=part_level, text_error=text_error)
    return {
        "smallest_seen": seen if low is None or seeds >= fewest else np.nan,
        "seeds_to_decide": None if low is None or (is_either and absent_level is None) else (low, high),
    }


def _fewest_for_page(effects: SeedEffects, level: float) -> int | None:
    return seed_tests.fewest_for_page(effects.places, level=level) if effects.places else None


def _may_be_equivalent(effects: SeedEffects) -> bool:
    """Return whether an effect near 0 means that there is no difference; this excludes bounds and conditions."""
    return not (effects.bounded or effects.condition)


def _equivalence(effects: SeedEffects, smallest: float) -> float:
    """Return the probability in TOST: the larger one of its two sides."""
    return max(seed_tests.above(effects, against=-smallest), seed_tests.below(effects, against=smallest))


def _verdict(effects: SeedEffects, smallest: float, *, level: float, ways: int) -> Verdict:
    """Return the verdict on one of `ways` parts by the rule in this module's docstring."""
    if effects.condition and effects.in_each_seed and seed_tests.below_bound(effects.values).any():
        return "not testable here"
    if len(effects.values) < FEWEST_SEEDS:
        return "insufficient evidence"
    if effects.condition and effects.in_each_seed:
        return "supported" if np.isfinite(effects.values).all() else "undecided"
    if effects.condition and seed_tests.below_bound(effects.values.mean()):
        return "not testable here"
    if not has_evidence(effects):
        return "undecided"
    if _may_be_equivalent(effects) and ways * _equivalence(effects, smallest) <= level:
        return "equivalent"
    # One-sided probabilities are doubled, so that all are compared with the level.
    if effects.direction == "either":
        beyond = min(seed_tests.above(effects, against=smallest), seed_tests.below(effects, against=-smallest))
        supported, contradicted = 2 * beyond, 1.0
    else:
        supported = max(2 * seed_tests.above(effects), effects.page or 0.0)
        contradicted = 2 * seed_tests.below(effects)
    if supported <= level:
        # If a ratio has no interval, its denominator may be 0. Then the numerator may be above the bound times the
        # denominator, and the ratio below the bound, as both change their order with the denominator's sign.
        is_unbounded = effects.ratio_of and np.isnan(seed_tests.interval(effects, confidence=1 - level).low)
        return "undecided" if is_unbounded else "supported"
    return "contradicted" if ways * contradicted <= level and not effects.condition else "undecided"
