"""The rule: effects over seeds in, a verdict out. Nothing here knows what the effects are of.

A part of a claim, an effect with one number a seed, is judged at a level alpha (its family's, by Holm):

equivalent      TOST: the mean lies within -smallest_effect and smallest_effect, p <= alpha
supported       the two-sided t interval at 1 - alpha lies above 0
contradicted    it lies below 0
undecided       none of these, or every seed shows the same number

in this order, so an effect that is surely too small to matter is `equivalent` though it may differ from 0. Where a
claim does not say which is more, it is supported by an interval beyond smallest_effect on either side.

A claim with several parts holds if all do: each is tested at alpha, and no correction is needed
(intersection-union, Berger 1982). One part that fails is enough to refute it, so with k parts each is refuted, or
found to make no difference, at alpha / k.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from reports import seed_tests
from reports.numbers import number, several
from reports.power import seeds_to_decide, smallest_seen
from reports.seed_effects import SeedEffects

Verdict = Literal["supported", "contradicted", "equivalent", "undecided", "insufficient evidence", "not run"]

ALPHA = 0.05
"""Of a family of claims: how often noise may be taken for any of its effects."""

FEWEST_SEEDS = 3
"""Below, there is no evidence, whatever the means are."""


class Probabilities(NamedTuple):
    """Of one part: how likely the seeds would be if it were not so. Small ones decide."""

    supported: float
    contradicted: float
    equivalent: float


class Part(NamedTuple):
    """One effect, judged."""

    verdict: Verdict
    rule: str
    """What fired, in one sentence."""
    effect: float
    low: float
    high: float
    confidence: float
    """Of the interval from low to high."""
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    smallest_effect: float
    smallest_seen: float
    """The effect that this many seeds with this spread would find 8 times in 10."""
    seeds_to_decide: int | None
    """Seeds that would find an effect of `smallest_effect`, or its absence, 8 times in 10; None: not known, or
    more than anybody trains."""
    p: float
    """Of the two-sided t test against 0."""
    p_equivalent: float
    """Of TOST within `smallest_effect`."""
    p_sign_flips: float | None
    """From six seeds on."""
    p_page: float | None
    """Of a trend."""


class Judgement(NamedTuple):
    """A claim, judged."""

    verdict: Verdict
    rule: str
    """Which rule fired, in one sentence."""
    deciding: str
    """The part that decided, or is nearest to."""
    parts: dict[str, Part]


def has_evidence(effects: SeedEffects) -> bool:
    """Whether there are seeds enough, all of them with a number, and a spread between them."""
    values = effects.values
    return len(values) >= FEWEST_SEEDS and bool(np.isfinite(values).all()) and not _is_constant(values)


def probability(parts: Mapping[str, SeedEffects], smallest: Mapping[str, float]) -> float | None:
    """Of the claim, for Holm: the smallest of those of its verdicts; None where no part has evidence."""
    found = [_probabilities(part, smallest[name]) for name, part in parts.items() if has_evidence(part)]
    if not found:
        return None
    whole = len(found) == len(parts)
    return min(
        1.0,
        max(each.supported for each in found) if whole else 1.0,
        len(parts) * min(each.contradicted for each in found),
        len(parts) * min(each.equivalent for each in found),
    )


def decide(
    parts: Mapping[str, SeedEffects], smallest: Mapping[str, float], *, level: float
) -> tuple[Verdict, dict[str, Verdict]]:
    """The verdict on a claim and on each of its parts, at the level that its family leaves it.

    Args:
        parts: its effects, by name.
        smallest: of each part, the smallest effect that matters.
        level: alpha of this claim.
    """
    found = {name: _verdict(part, smallest[name], level=level, ways=len(parts)) for name, part in parts.items()}
    return next(verdict for verdict in _STRONGEST_FIRST if verdict in found.values()), found


def judge(parts: Mapping[str, SeedEffects], smallest: Mapping[str, float], *, level: float) -> Judgement:
    """What `decide` says, with the numbers behind it and the rule in words; arguments as there."""
    judged = {name: _part(part, smallest[name], level=level, ways=len(parts)) for name, part in parts.items()}
    verdict, _ = decide(parts, smallest, level=level)
    names = [name for name, part in judged.items() if part.verdict == verdict]
    deciding = _deciding(judged, verdict, names)
    rule = judged[deciding].rule if len(judged) == 1 else _of_several(judged, verdict, names, deciding)
    return Judgement(verdict, rule, deciding, judged)


_STRONGEST_FIRST: tuple[Verdict, ...] = (
    "contradicted",
    "insufficient evidence",
    "equivalent",
    "undecided",
    "supported",
)
"""What one part of this kind makes of the whole, whatever those of later kinds are."""


def _deciding(judged: Mapping[str, Part], verdict: Verdict, names: Sequence[str]) -> str:
    """The part that refutes most clearly or, where none does, that holds least clearly."""
    if verdict == "contradicted":
        return min(names, key=lambda name: judged[name].p)
    if verdict == "equivalent":
        return min(names, key=lambda name: judged[name].p_equivalent)
    return max(names, key=lambda name: np.nan_to_num(judged[name].p, nan=2.0))


def _of_several(judged: Mapping[str, Part], verdict: Verdict, names: Sequence[str], deciding: str) -> str:
    """The sentence about a claim with several parts."""
    if verdict == "supported":
        return f"all {len(judged)} parts hold; the weakest is {deciding}: {judged[deciding].rule}"
    held = sum(part.verdict == "supported" for part in judged.values())
    fails = {
        "contradicted": "is contradicted",
        "equivalent": "makes no difference that matters",
        "insufficient evidence": "has too few seeds",
        "undecided": "is undecided",
    }[verdict]
    others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{held} of {len(judged)} parts hold; {deciding}{others} {fails}: {judged[deciding].rule}"


def _part(effects: SeedEffects, smallest: float, *, level: float, ways: int) -> Part:
    values = effects.values
    own_level = level / 2 if effects.chosen is not None else level
    interval = seed_tests.t_interval(values, confidence=1 - own_level)
    bare: dict[str, Any] = {"p": np.nan, "p_equivalent": np.nan, "p_sign_flips": None, "p_page": effects.page}
    bare |= {"smallest_seen": np.nan, "seeds_to_decide": None}
    if has_evidence(effects):
        sd = float(values.std(ddof=1))
        flips = None
        if len(values) >= seed_tests.FEWEST_FOR_SIGN_FLIPS:
            flips = seed_tests.sign_flips(values, rng=np.random.default_rng(0))
        bare |= {
            "p": seed_tests.t_test(values),
            "p_equivalent": seed_tests.equivalence(values, margin=smallest),
            "p_sign_flips": flips,
            "smallest_seen": smallest_seen(sd=sd, seeds=len(values), level=own_level),
            "seeds_to_decide": seeds_to_decide(smallest, sd=sd, level=own_level),
        }
    verdict = _verdict(effects, smallest, level=level, ways=ways)
    return Part(
        verdict=verdict,
        rule=_rule(effects, smallest, verdict, level=level, ways=ways),
        effect=interval.mean,
        low=interval.low,
        high=interval.high,
        confidence=1 - own_level,
        seeds=effects.seeds,
        values=tuple(map(float, values)),
        smallest_effect=smallest,
        **bare,
    )


def _probabilities(effects: SeedEffects, smallest: float) -> Probabilities:
    """Each doubled where it is of one side, so that all are compared with the same alpha; and once more where the
    seeds chose layers for each other."""
    values = effects.values
    times = 2 if effects.chosen is not None else 1
    equivalent = seed_tests.equivalence(values, margin=smallest)
    if effects.direction == "either":
        beyond = min(
            seed_tests.t_above(values, against=smallest), 1 - seed_tests.t_above(values, against=-smallest)
        )
        return Probabilities(times * 2 * beyond, 1.0, times * equivalent)
    above = seed_tests.t_above(values)
    supported = max(times * 2 * above, effects.page or 0.0)
    return Probabilities(supported, times * 2 * (1 - above), times * equivalent)


def _verdict(effects: SeedEffects, smallest: float, *, level: float, ways: int) -> Verdict:
    """On one of `ways` parts: the rule at the head of this file."""
    if len(effects.values) < FEWEST_SEEDS:
        return "insufficient evidence"
    if not has_evidence(effects):
        return "undecided"
    found = _probabilities(effects, smallest)
    if ways * found.equivalent <= level:
        return "equivalent"
    if found.supported <= level:
        return "supported"
    return "contradicted" if ways * found.contradicted <= level else "undecided"


def _rule(effects: SeedEffects, smallest: float, verdict: Verdict, *, level: float, ways: int) -> str:
    """The same in one sentence."""
    values, margin = effects.values, f"{smallest:.3g}"
    if verdict == "insufficient evidence":
        return f"{several(len(values), 'seed')}, and {FEWEST_SEEDS} are the least"
    if not np.isfinite(values).all():
        return "the effect is no finite number in every seed"
    if _is_constant(values):
        return "every seed shows the same number, so nothing is known of the spread between seeds"
    own_level = level / 2 if effects.chosen is not None else level
    interval = seed_tests.t_interval(values, confidence=1 - own_level)
    shown = f"the {100 * (1 - own_level):.4g}% interval"
    if verdict == "equivalent":
        p = _p(_probabilities(effects, smallest).equivalent)
        return f"TOST places the effect within ±{margin}, too small to matter ({p})"
    if verdict == "supported" and effects.direction == "either":
        return f"{shown} lies beyond {margin} on one side"
    if verdict == "supported":
        surely = "all of it at least" if interval.low >= smallest else "though not all of it at"
        return f"{shown} lies above 0, {surely} the {margin} that matters"
    if verdict == "contradicted":
        return f"{shown} lies below 0"
    return _open(effects, interval, shown=shown, level=own_level, margin=margin, ways=ways)


def _open(
    effects: SeedEffects, interval: seed_tests.Interval, *, shown: str, level: float, margin: str, ways: int
) -> str:
    """Why nothing is decided."""
    if effects.direction == "either":
        return f"{shown} lies neither within ±{margin} nor beyond it"
    if interval.low > 0:
        return f"{shown} lies above 0, but the steps do not agree (Page's test, {_p(effects.page or 1.0)})"
    if interval.high < 0:
        return f"{shown} lies below 0, but to refute one of {ways} parts takes {100 * (1 - level / ways):.4g}%"
    return f"{shown} holds 0, and reaches beyond ±{margin}"


def _is_constant(values: np.ndarray) -> bool:
    """Whether the spread is no more than rounding."""
    return bool(np.ptp(values) <= 1e-12 * max(1.0, float(np.abs(values).max())))


def _p(probability: float) -> str:
    return "p < 0.001" if probability < 0.001 else f"p = {number(min(probability, 1.0), 3)}"
