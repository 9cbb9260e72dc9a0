"""Claims in words: the rule that decided, the effects in figures, and the counts of verdicts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, get_args

import numpy as np

from ablations.runs.records import Looks
from ablations.wording import listed, several
from reports.claims.contrasts import SHOWN_CONFIDENCE
from reports.claims.entries import ClaimEntry, PartEntry
from reports.claims.outcomes import End, Outcome
from reports.claims.verdicts import (
    ALPHA,
    DECIDED,
    FEWEST_SEEDS,
    Judgement,
    PartVerdict,
    SeedRange,
    Verdict,
    counted_parts,
    verdict_of_part,
    ways_to_fail,
)
from reports.statistics import seed_tests
from reports.statistics.seed_tests import MOST_SEEDS, Direction, SeedEffects
from reports.statistics.summaries import ROUNDING
from reports.words import ABSENT, MINUS, count, is_absent, number

VERDICTS = get_args(Verdict)
"""Verdicts in the order in which they are counted."""

MOST_DECIMALS = 8


def significant(value: float | None, figures: int = 3) -> str:
    """Return the number with `figures` significant figures, no zeros at the end: ``0.05``, ``2.1e−09``."""
    if is_absent(value):
        return ABSENT
    assert value is not None
    if value == 0 or not np.isfinite(value):
        return number(value, 0)
    if abs(value) < 10.0 ** (1 - MOST_DECIMALS):
        return f"{value:.{figures - 1}e}".replace("-", MINUS)
    text = number(float(f"{value:.{figures}g}"), min(MOST_DECIMALS, max(0, figures - 1 - _magnitude(value))))
    return text.rstrip("0").rstrip(".") if "." in text else text


def effect(part: PartEntry) -> str:
    """Return the effect of a part: ``0.113 [0.027, 0.200] nats``. A condition that must hold in each seed is not
    judged by its interval, so it has the range of the seeds: ``28.1 BLEU (seeds: 27.9 to 28.3)``."""
    seeds = [value for value in part.values if np.isfinite(value)]
    if not (part.condition and part.in_each_seed and seeds) or is_absent(part.effect):
        return mean_and_interval(part.effect, part.low, part.high, unit=part.unit)
    assert part.effect is not None
    mean = significant(part.effect)
    lowest, highest = (number(end, len(mean.partition(".")[2])) for end in (min(seeds), max(seeds)))
    return f"{mean} {part.unit}".rstrip() + f" (seeds: {lowest} to {highest})"


def mean_and_interval(mean: float | None, low: float | None, high: float | None, *, unit: str = "") -> str:
    """Return a mean with its interval and unit: ``0.113 [0.027, 0.200] nats``. It has as many decimals as
    half the interval's width to two figures, and up to two more if an end would be written as 0 and is not."""
    if is_absent(mean):
        return ABSENT
    assert mean is not None
    if low is None or high is None or is_absent(low) or high - low <= ROUNDING * abs(mean):
        return f"{significant(mean)} {unit}".rstrip()
    digits = max(0, 1 - _magnitude((high - low) / 2))
    nearest = min((abs(end) for end in (low, high) if end), default=1.0)
    digits = min(MOST_DECIMALS, digits + 2, max(digits, -_magnitude(nearest)))
    written = f"{number(mean, digits)} [{number(low, digits)}, {number(high, digits)}]"
    return f"{written} {unit}".rstrip()


def headline_effect(claim: ClaimEntry) -> str:
    """Return the effect of the part that decides a claim, with its interval and unit.

    A number that is compared with a bound is written as it was measured, beside its bound: ``0.208 [0.155, 0.260]
    share (claimed: at most 0.05)``. Its distance from the bound, which the verdict is about, says little alone.
    A share of a gain has no number if the gain is too small.
    """
    gains = (f"{claim.deciding}-gain", f"{claim.deciding}-gain-elsewhere")
    if any(part.name in gains and part.verdict == "not testable here" for part in claim.parts):
        return "no share, as the gain is too small"
    of_deciding = [part.numbers for part in claim.parts if part.name == claim.deciding]
    numbers: Mapping[str, float] = of_deciding[0] if of_deciding else {}
    shown = (claim.effect, claim.low, claim.high)
    if is_absent(claim.effect) or not (bounds := {"at_least", "at_most"} & numbers.keys()):
        return mean_and_interval(*shown, unit=claim.unit)
    (name,) = bounds
    bound, sign = numbers[name], 1 if name == "at_least" else -1
    mean, *ends = (None if value is None or is_absent(value) else bound + sign * value for value in shown)
    low, high = ends if sign == 1 else ends[::-1]
    written = mean_and_interval(mean, low, high, unit=claim.unit)
    return f"{written} (claimed: {name.replace('_', ' ')} {significant(bound)})"


def further_numbers(part: PartEntry) -> str:
    """Return the numbers that are shown beside a part's effect: ``top 0.21 [0.15, 0.30] (95%)``."""
    written = []
    for name, value in part.numbers.items():
        first, *rest = name.split("_")
        if rest[:1] in (["low"], ["high"]):
            continue
        words = f"{_NUMBER_NAMES.get(name, name.replace('_', ' '))} {significant(value)}"
        ends = [part.numbers.get("_".join([first, end, *rest]), value) for end in ("low", "high")]
        if any(is_absent(end) for end in ends):
            words += f" (no bounded {SHOWN_CONFIDENCE:.0%} interval)"
        elif ends != [value, value]:
            words += f" [{significant(ends[0])}, {significant(ends[1])}] ({SHOWN_CONFIDENCE:.0%})"
        written.append(words)
    return ", ".join(written)


_NUMBER_NAMES = {
    "groups_read": "tasks or groups averaged:",
    "at_least": "against the bound of at least",
    "at_most": "against the bound of at most",
}


def left_out(claim: ClaimEntry) -> list[str]:
    """Return the notes on what was left out of a claim and on arms that were measured on different text, as one
    for the same reason: ``seeds 45 and 46 left out: not in every arm (of over-clm)``. Parts are named if it
    concerns only some."""
    every = (*claim.parts, *claim.beside)
    seeds: dict[str, list[str]] = {}
    for note in dict.fromkeys(note for part in every for note in part.left_out):
        concerned, _, reason = note.partition(": ")
        names = [part.name for part in every if note in part.left_out]
        of_parts = f" (of {listed(names, 'and')})" if len(names) < len(every) else ""
        seeds.setdefault(f"{reason}{of_parts}", []).append(concerned.removeprefix("seed "))
    heads = (
        f"seed{'s' * (len(of) > 1)} {listed(of, 'and')} left out" if of[0].isdigit() else listed(of, "and")
        for of in seeds.values()
    )
    return [f"{head}: {why}" for head, why in zip(heads, seeds, strict=True)]


def beside_verdict(claim: ClaimEntry) -> str:
    """Return what a reader must know beside the verdict, or an empty text.

    For a partly supported claim it is the number of parts that hold, since the effect is that of one which does
    not: ``1 of 5 parts hold``. If none holds, it is the number of those that make no difference that matters:
    ``1 of 2 parts equivalent``. For an open claim it is the condition that it waits for, or that fails:
    ``condition transfers is not shown yet``. The effect is that of the claim itself then, and may look decided.
    """
    if claim.verdict == "partly":
        counted = [part.verdict for part in claim.parts if part.decides and not part.condition]
        held, equivalent = counted.count("supported"), counted.count("equivalent")
        number, how = (held, "hold") if held else (equivalent, "equivalent")
        return f"{number} of {len(counted)} parts {how}"
    unmet = [part for part in claim.parts if part.condition and part.verdict != "supported"]
    if not unmet or claim.verdict not in ("undecided", "not testable here"):
        return ""
    failing = [part.name for part in unmet if part.verdict == "not testable here"]
    return f"condition {failing[0]} fails" if failing else f"condition {unmet[0].name} is not shown yet"


def other_readings(claim: ClaimEntry) -> list[str]:
    """Return the verdicts from other rows of the same runs: ``after the final norm supported, 0.10 [0.02, 0.15]
    nats``."""
    return [
        f"{name} {reading.verdict}, {headline_effect(reading)}"
        + (f" ({reading.deciding})" if len(claim.parts) > 1 else "")
        for name, reading in claim.readings.items()
    ]


def other_verdicts(claim: ClaimEntry) -> str:
    """Return the verdicts from other rows of the same runs that differ from the claim's: ``supported after the
    final norm, undecided by CKA``; an empty text if none differs."""
    differing = {
        name: reading.verdict for name, reading in claim.readings.items() if reading.verdict != claim.verdict
    }
    return ", ".join(f"{verdict} {name}" for name, verdict in differing.items())


def confidence(level: float) -> str:
    """Return the confidence of an interval: ``99.17%``."""
    return f"{100 * level:.4g}%"


def probability(p: float | None) -> str:
    """Return a probability in words: ``0.013``, ``< 0.001``."""
    if is_absent(p):
        return ABSENT
    assert p is not None
    return "< 0.001" if p < 0.001 else number(min(p, 1.0), 3)


def layers(part: PartEntry) -> str:
    """Return the layers at which a part's seeds were judged: one if all chose the same, else one for each."""
    chosen = part.chosen_layers
    if not chosen:
        return ABSENT
    return str(chosen[0]) if len(set(chosen)) == 1 else ", ".join(map(str, chosen))


def seeds_wanted(part: PartEntry) -> str:
    """Return the range of seeds that would decide a part. It is a dash if the spread is not known, and if the
    part is decided or fails."""
    is_judged_by_seed = part.condition and part.in_each_seed
    if part.verdict in (*DECIDED, "not testable here") or is_judged_by_seed:
        return ABSENT
    if part.seeds_to_decide is not None:
        return seed_range(part.seeds_to_decide)
    return ABSENT if is_absent(part.smallest_seen) else f"> {count(MOST_SEEDS)}"


def seed_range(seeds: SeedRange) -> str:
    """Return the range of seeds in words: ``7 to 26``, ``12 to > 1,000``, ``6``."""
    low, high = seeds
    if high is None:
        return f"{count(low)} to > {count(MOST_SEEDS)}"
    return count(low) if low == high else f"{count(low)} to {count(high)}"


def seeds_shown(claim: ClaimEntry) -> str:
    """Return the number of seeds of a claim, with the number of planned seeds if not all have ended: ``5``,
    ``3 of 5``. It is empty if the claim was not run."""
    if claim.n is None:
        return ""
    return f"{claim.n} of {claim.planned_seeds}" if is_early(claim) else str(claim.n)


def is_early(claim: ClaimEntry) -> bool:
    """Return whether a claim was judged before all of its planned seeds have ended. A seed that has ended and is
    left out for a missing number does not count."""
    return claim.n is not None and max(claim.n, claim.ended_seeds or 0) < (claim.planned_seeds or 0)


def look_words(claim: ClaimEntry) -> str:
    """Return the look at which a claim was judged and why it stopped there; empty for a fixed list of seeds."""
    if claim.look is None:
        return ""
    sentence = "look {number} of {of}, with {seeds} of up to {up_to} seeds: " + _END[claim.look.end]
    return sentence.format(**vars(claim.look))


_END: dict[End, str] = {
    "decided": "decided",
    "not testable": "not testable, whatever more seeds show",
    "futile": "given up with {given_up} seeds, because the remaining seeds would hardly decide it",
    "out of seeds": "no seeds are left",
    "open": "it gets more seeds",
}


def look_sentence(outcomes: Mapping[str, Outcome], looks: Looks, *, futile: Sequence[str]) -> str:
    """Return what the last look at the claims showed, as one sentence for the terminal; empty if it was at no
    claim.

    Args:
        outcomes: outcomes of all claims at their last looks.
        futile: names of the claims that are given up at the last look.
    """
    size = looks.taken[-1].seeds
    here = {name: outcome for name, outcome in outcomes.items() if outcome.look and outcome.look.seeds == size}
    verdicts = Counter(outcome.judgement.verdict for outcome in here.values() if outcome.judgement)
    counts = [f"{number_of} {verdict}" for verdict, number_of in verdicts.items()]
    shown = listed(counts, "and") or "none was judged"
    parts = [f"look with {size} seeds at {several(len(here), 'claim')}: {shown}"] * bool(here)
    if futile:
        parts.append(f"given up, because more seeds would hardly decide them: {listed(list(futile), 'and')}")
    by_size: dict[int | None, list[str]] = {}
    for name, outcome in outcomes.items():
        if outcome.look and outcome.look.end == "open" and name not in futile:
            by_size.setdefault(looks.next_size(outcome.look.seeds), []).append(name)
    parts += [f"next with {next_size} seeds: {listed(names, 'and')}" for next_size, names in by_size.items()]
    return f"{'; '.join(parts)}." if parts else ""


def wrong_at_most(claims: Iterable[ClaimEntry]) -> str:
    """Return the largest chance that any of these verdicts is wrong; empty if no claim is judged."""
    judged = [claim for claim in claims if claim.verdict not in ("not run", "insufficient evidence")]
    chance = min(1.0, ALPHA * len({claim.family for claim in judged}))
    if not judged:
        return ""
    return (
        f"The chance that any verdict here is wrong is about {100 * chance:.3g}% at most: {100 * ALPHA:.3g}% in "
        f"each family of claims, {_OF_LOOKS if any(map(look_words, judged)) else _OF_FIXED_SEEDS}."
    )


_OF_LOOKS = "over all looks at them together"
_OF_FIXED_SEEDS = "if the number of seeds was fixed before the runs, and all of them have ended"


def seeds_for_all(claim: ClaimEntry) -> str:
    """Return the range of seeds that would decide every part of an open claim: ``30 to 77``, ``> 1,000``.

    Empty if the claim is decided or not testable, and if no spread is known.
    """
    if claim.verdict in (*DECIDED, "not testable here", "not run"):
        return ""
    if claim.seeds_to_decide is not None:
        return seed_range(claim.seeds_to_decide)
    open_parts = [part for part in claim.parts if part.verdict != "supported"]
    beyond = any(part.seeds_to_decide is None and not is_absent(part.smallest_seen) for part in open_parts)
    return f"> {count(MOST_SEEDS)}" if beyond else ""


def counted(entries: Iterable[ClaimEntry]) -> str:
    """Return the number of claims with each verdict, and how many came out as expected."""
    claims = [entry for entry in entries if entry.says]  # the others are files that cannot be read
    if not claims:
        return "No claim could be read."
    met = Counter(word for claim in claims if (word := expectation(claim)))
    if len(claims) == 1:
        sentences = [f"1 claim: {claims[0].verdict}.", *(f"It {_OUTCOMES[word]}." for word in met)]
    else:
        sentences = _counted(Counter(claim.verdict for claim in claims), met)
    if early := [claim for claim in claims if is_early(claim) and claim.verdict != "insufficient evidence"]:
        have, these = "have fewer seeds", "these verdicts are early looks"
        if len(early) == 1:
            have, these = "has fewer seeds", "this verdict is an early look"
        seeds_of_early = listed(list(dict.fromkeys(map(seeds_shown, early))), "or")
        sentences.append(
            f"{several(len(early), 'claim')} {have} than planned (n = {seeds_of_early}): {these}, and the one "
            "with all seeds counts."
        )
    return " ".join(sentences)


def _counted(verdicts: Counter[Verdict], met: Counter[str]) -> list[str]:
    """Return sentences on the number of claims with each verdict, and with each outcome of an expectation."""
    words = [f"{count(verdicts[verdict])} {verdict}" for verdict in VERDICTS if verdicts[verdict]]
    subjects = {word: "it" if met.total() == 1 else count(number_of) for word, number_of in met.items()}
    outcomes = [f"{subjects[word]} {outcome}" for word, outcome in _OUTCOMES.items() if word in subjects]
    predicted = (
        f"A verdict was predicted for {count(met.total())} of the judged claims: {listed(outcomes, 'and')}."
    )
    sentences = [f"Of {several(verdicts.total(), 'claim')}, {listed(words, 'and')}."]
    return sentences + [predicted] * bool(outcomes)


_OUTCOMES = {"met": "came out as expected", "not met": "came out otherwise", "not decided": "stayed undecided"}


def decided_first(claims: Iterable[ClaimEntry]) -> list[ClaimEntry]:
    """Return the claims, first those that the seeds decide and then the others, each in their order."""
    return sorted(claims, key=lambda claim: claim.verdict not in DECIDED)


def expectation(claim: ClaimEntry) -> str:
    """Return `met` if the verdict is the expected one, else `not met`, or `not decided` if the seeds
    decide nothing. Empty if no verdict was expected or nothing was judged."""
    if claim.as_expected is None:
        return ""
    if claim.as_expected:
        return "met"
    return "not decided" if claim.verdict == "undecided" else "not met"


def described(claim: ClaimEntry) -> str:
    """Return a description of the plot of a claim's effects, for readers who do not see it."""
    first = "Mean effect over seeds with its interval, compared with 0 and the smallest effect that matters."
    return " ".join([first, *map(_described_part, (*claim.parts, *claim.beside))])


def _described_part(part: PartEntry) -> str:
    name = part.name if part.decides else f"{part.name} (beside)"
    if is_absent(part.effect):
        return f"{name}: no number."
    seeds = [value for value in part.values if np.isfinite(value)]
    words = f"{name}: {part.verdict}, {effect(part)}"
    if not is_absent(part.low):
        words += f" ({confidence(part.confidence)} interval)"
    of_seeds = f"{several(len(seeds), 'seed')} from {significant(min(seeds))} to {significant(max(seeds))}"
    return f"{words}, smallest that matters {significant(part.smallest_effect)}, {of_seeds}."


def _magnitude(value: float) -> int:
    return int(np.floor(np.log10(abs(value))))


# The rule that fired ----------------------------------------------------------------------------------


def claim_rule(judgement: Judgement, parts: Mapping[str, SeedEffects], *, at_look: float | None = None) -> str:
    """Return the rule of `reports.claims.verdicts` that decided a claim, in one sentence.

    Args:
        parts: effects of each part.
        at_look: level of the look at which the claim was judged; None for a fixed list of seeds.
    """
    verdict, deciding = judgement.verdict, judgement.deciding
    ways = ways_to_fail(judgement.parts)
    rule = part_rule(judgement.parts[deciding], parts[deciding], ways=ways, at_look=at_look)
    if judgement.parts[deciding].condition and verdict != "supported":
        fails = "fails" if verdict == "not testable here" else "is not shown yet"
        return f"the claim cannot be judged, because the condition {deciding} {fails}: {rule}"
    counted = counted_parts(judgement.parts)
    if len(counted) == 1:
        return rule
    every = "both" if len(counted) == 2 else f"all {len(counted)}"
    if verdict == "supported":
        return f"{every} parts hold; the weakest is {deciding}: {rule}"
    if verdict == "equivalent":
        return f"{every} parts make no difference that matters; the clearest is {deciding}: {rule}"
    verdicts = [part.verdict for part in counted.values()]
    held, alike = verdicts.count("supported"), verdicts.count(verdict_of_part(verdict))
    others = f" (and {alike - 1} more)" if alike > 1 else ""
    parts_so_far = f"{held} of {len(counted)} parts hold"
    if verdict == "partly" and not held:
        parts_so_far = f"{verdicts.count('equivalent')} of {len(counted)} parts equivalent"
    return f"{parts_so_far}; {deciding}{others} {_FAILS[verdict]}: {rule}"


_FAILS: dict[Verdict, str] = {
    "contradicted": "is contradicted",
    "partly": "makes no difference that matters",
    "insufficient evidence": "has too few seeds",
    "undecided": "is undecided",
}


def part_rule(part: PartVerdict, effects: SeedEffects, *, ways: int, at_look: float | None = None) -> str:
    """Return the rule that decided one part, in one sentence.

    Args:
        ways: number of parts that may refute the claim.
        at_look: level of the look at which the claim was judged; None for a fixed list of seeds.
    """
    margin, direction, sides = f"{part.smallest_effect:.3g}", effects.direction, _sides(effects.shown_numbers)
    if part.condition and (part.in_each_seed or part.verdict == "not testable here"):
        return _condition_rule(part)
    if part.verdict == "insufficient evidence":
        return f"{several(len(part.values), 'seed')}, but at least {FEWEST_SEEDS} are needed"
    if not np.isfinite(part.values).all():
        return "the effect is not a finite number in every seed"
    if seed_tests.constant(part.values):
        return _agreeing(part, direction, margin=margin, sides=sides)
    divided = ways if part.verdict == "contradicted" else 1  # of the part's interval
    shown, refuting = (_interval(part, wrong, divided=divided, at_look=at_look) for wrong in (1, ways))
    if part.verdict == "equivalent":
        return (
            f"the test of equivalence (TOST) places the effect within ±{margin}, too small to matter "
            f"({p_in_words(part.p_equivalent)})"
        )
    if part.verdict == "supported" and direction == "either":
        return f"the {shown} lies beyond {margin} on one side"
    if part.verdict == "supported":
        surely, partly = sides.by
        how = surely if part.low >= part.smallest_effect else partly
        return f"the {shown} lies {sides.claimed}, {how} the {margin} that matters"
    if part.verdict == "contradicted":
        return _BELOW_WITHOUT_ENDS if is_absent(part.low) else f"the {refuting} lies {sides.other}"
    if direction == "either":
        return f"the {shown} {_not_within(part, margin) or f'lies neither within ±{margin} nor beyond it'}"
    return f"the {shown} {_open(part, ways=ways, refuting=refuting, margin=margin, sides=sides)}"


class Sides(NamedTuple):
    """Sides of the number that an effect is compared with."""

    claimed: str
    other: str
    number: str
    by: tuple[str, str] = ("everywhere by at least", "but partly by less than")
    """Words before the smallest effect that matters: if all of the interval reaches it, and if a part does not."""


def _sides(numbers: Mapping[str, float]) -> Sides:
    """Return the sides of the bound that is among the numbers of an effect, or those of 0."""
    for name, claimed, other in (("at_least", "above", "below"), ("at_most", "below", "above")):
        if name in numbers:
            bound = f"the claimed {significant(numbers[name])}"
            return Sides(f"{claimed} {bound}", f"{other} {bound}", bound)
    return Sides("above 0", "below 0", "0", by=("and nowhere below", "but partly below"))


def _interval(part: PartVerdict, ways: int, *, divided: int, at_look: float | None) -> str:
    """Return the name of an interval: ``97.5% interval``. At a look it is wider, so that it holds over all looks,
    and its level there is named too.

    Args:
        ways: number by which the claim's level is divided.
        divided: number by which it is divided for the part's interval.
    """
    alone = "" if at_look is None else f" (at this look {confidence(1 - at_look / ways)})"
    return f"{confidence(1 - divided * (1 - part.confidence) / ways)} interval{alone}"


_BELOW_WITHOUT_ENDS = (
    "the effect lies below 0, though without an interval, as the number that it is divided by may be 0"
)


def _condition_rule(part: PartVerdict) -> str:
    """Return a sentence about a condition that each seed must show, or that fails by its mean."""
    if not part.in_each_seed:
        return f"the mean over {several(len(part.values), 'seed')} lies below the bound"
    is_below = seed_tests.below_bound(part.values)
    below = {part.seeds[i]: -part.values[i] for i in np.flatnonzero(is_below)}
    if below:
        seeds_below = listed([f"seed {seed} by {significant(value)}" for seed, value in below.items()], "and")
        return f"{len(below)} of {several(len(part.values), 'seed')} below the bound: {seeds_below}"
    if len(part.values) < FEWEST_SEEDS:
        return f"{several(len(part.values), 'seed')}, but at least {FEWEST_SEEDS} are needed"
    if not np.isfinite(part.values).all():
        return "it is not a finite number in every seed"
    if part.unshown:
        return f"it was not measured in {listed([f'seed {seed}' for seed in part.unshown], 'and')}"
    return f"each of {several(len(part.values), 'seed')} is at the bound or above it"


def _open(part: PartVerdict, *, ways: int, refuting: str, margin: str, sides: Sides) -> str:
    """Return why a part that claims a side is undecided, as the end of a sentence about its interval."""
    if is_absent(part.low):
        return "has no ends, because the number that the effect is divided by may be 0"
    if part.low > 0:
        if part.p_page is None:  # of a shape
            return "lies above 0, but one layer shows the same number in all seeds, which may be chance"
        if (part.fewest_for_page or 0) > len(part.values):
            return (
                f"lies above 0, but {several(len(part.values), 'seed')} cannot show that steps agree: Page's test "
                f"needs at least {part.fewest_for_page} at this level"
            )
        return f"lies above 0, but the steps do not agree (Page's test, {p_in_words(part.p_page)})"
    if part.high < 0:
        return f"lies {sides.other}, but refuting one of {ways} parts needs the {refuting}"
    if part.bounded or part.condition:
        return f"includes {sides.number}"
    return _not_within(part, margin) or f"includes 0 and reaches beyond ±{margin}"


def _not_within(part: PartVerdict, margin: str) -> str:
    """Return why an interval within the smallest effect is not `equivalent`, as the end of a sentence; empty for
    other intervals. With several parts TOST has a stricter level than the interval."""
    if part.low < -part.smallest_effect or part.high > part.smallest_effect:
        return ""
    p = p_in_words(part.p_equivalent)
    return f"lies within ±{margin}, but TOST, stricter as there are several parts, does not ({p})"


def _agreeing(part: PartVerdict, direction: Direction, *, margin: str, sides: Sides) -> str:
    """Return a sentence about seeds that all show the same number."""
    size = len(part.values)
    if seed_tests.constant([*part.values, 0.0]):
        return "every seed shows exactly 0, which decides nothing"
    p = f"one-sided {p_in_words(0.5**size)}"
    side = {"supported": sides.claimed, "contradicted": sides.other}.get(part.verdict)
    if part.verdict == "equivalent":
        return f"all {size} seeds show the same number within ±{margin}, too small to matter (sign flips, {p})"
    if side and direction == "either":
        return f"all {size} seeds show the same number beyond {margin} on one side (sign flips, {p})"
    if side:
        return f"all {size} seeds show the same number {side} (sign flips, {p})"
    return f"all {size} seeds show the same number, which may be chance with so few seeds (sign flips, {p})"


def p_in_words(p: float) -> str:
    """Return a probability for a sentence: ``p = 0.013``, ``p < 0.001``."""
    shown = probability(p)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"
