"""What would change a verdict, in words: the means from which on the rule would say otherwise, and seeds.

The means are those of `reports.verdicts`, for as many seeds with the same spread and at the same level. Of layers
that were chosen they are of the widened interval, where the effects at all layers are thought to move as one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from reports.claim_texts import probability, seeds_for_all, significant
from reports.numbers import count, is_absent, listed, several
from reports.power import MOST_SEEDS
from reports.statistics import ROUNDING
from reports.verdicts import FEWEST_SEEDS

Direction = Literal["higher", "either"]

MOST_NAMED = 3
"""Parts of a claim that a sentence names; of the others it says how many there are."""


def would_change(entry: Mapping[str, Any], *, directions: Mapping[str, Direction]) -> str:
    """What would change the verdict, in one to three sentences: of every part that is open what it lacks.

    Args:
        entry: of a claim, with its verdict.
        directions: of its parts, where a part does not say which is more.
    """
    if entry["verdict"] == "not run":
        return "What is missing, measured at three seeds or more."
    parts = entry["parts"]
    part = next(part for part in parts if part["name"] == entry["deciding"])
    ways = sum(not own["condition"] for own in parts)
    if entry["verdict"] == "undecided" and part["condition"]:
        return _of_conditions([own for own in parts if own["condition"] and own["verdict"] != "supported"])
    if entry["verdict"] == "undecided" and ways > 1:
        return _of_open_parts(entry, directions=directions)
    sentence = _of_part(part, direction=directions.get(part["name"], "higher"))
    if len(parts) == 1:
        return sentence
    also = _of_the_others(entry, part, directions=directions)
    return f"For {part['name']}: {sentence[0].lower()}{sentence[1:]}{also}"


def _of_conditions(lacking: Sequence[Mapping[str, Any]]) -> str:
    """Of a claim that is undecided for want of them."""
    conditions = "condition" if len(lacking) == 1 else "conditions"
    surely = any(not is_absent(part["high"]) and part["high"] < 0 for part in lacking)
    vain = "; more seeds alone will not do" if surely else ""
    return f"First of all its {conditions} must be borne out: {_lacks(lacking, directions={})}{vain}."


def _of_open_parts(entry: Mapping[str, Any], *, directions: Mapping[str, Direction]) -> str:
    """Of an undecided claim with several parts: all must hold, one is enough to refute it."""
    lacking = [part for part in entry["parts"] if part["verdict"] != "supported"]
    lacks = _lacks(lacking, directions=directions)
    said = f"To be supported it lacks, with as many seeds of this spread, {lacks}."
    refuting = [
        part for part in entry["parts"] if not (part["condition"] or is_absent(part["contradicted_below"]))
    ]
    if refuting:
        nearest = min(refuting, key=lambda part: _widths(part, part["effect"] - part["contradicted_below"]))
        bound = f"{significant(nearest['contradicted_below'])} {nearest['unit']}".rstrip()
        said += f" One part alone would contradict it: nearest to that is {nearest['name']}, below {bound}."
    wanted = entry["seeds_to_decide"]
    if wanted is None or wanted > max(part["n"] for part in lacking):
        seeds = seeds_for_all(entry).replace(">", "more than")
        said += f" To decide on every open part takes {seeds} seeds." if seeds else ""
    return said


def _of_the_others(
    entry: Mapping[str, Any], part: Mapping[str, Any], *, directions: Mapping[str, Direction]
) -> str:
    """What the other parts have to do with it, once the part that decides has changed."""
    if entry["verdict"] == "supported":
        return " So would any other part that fails."
    others = [other for other in entry["parts"] if other is not part and other["verdict"] != "supported"]
    alike = [other["name"] for other in others if other["verdict"] == entry["verdict"]]
    lacking = [other for other in others if other["verdict"] != entry["verdict"]]
    said = f" {_some(alike)} would have to change too." if alike else ""
    return said + (f" To be supported it also lacks {_lacks(lacking, directions=directions)}." if lacking else "")


def _lacks(parts: Sequence[Mapping[str, Any]], *, directions: Mapping[str, Direction]) -> str:
    """What each of them would have to show with as many seeds of this spread, those that lack most first."""

    def distance(part: Mapping[str, Any]) -> float:
        if is_absent(part["supported_above"]):
            return np.inf
        height = abs(part["effect"]) if directions.get(part["name"]) == "either" else part["effect"]
        return _widths(part, part["supported_above"] - height)

    ordered = sorted(parts, key=distance, reverse=True)
    return _some([_lack(part, direction=directions.get(part["name"], "higher")) for part in ordered])


def _lack(part: Mapping[str, Any], *, direction: Direction) -> str:
    """What a part would have to show to be supported: ``it above 0.123 nats (it has −0.002)``."""
    if part["verdict"] == "insufficient evidence":
        return f"{part['name']} in {FEWEST_SEEDS} seeds or more (it has {count(part['n'])})"
    if is_absent(part["supported_above"]):
        return f"{part['name']} as a finite number in every seed, with a spread between them"
    bound = f"{significant(part['supported_above'])} {part['unit']}".rstrip()
    has = significant(part["effect"])
    disagree = _steps_disagree(part)
    if disagree and part["effect"] > part["supported_above"]:
        return f"{part['name']} in steps that agree ({disagree})"
    agreeing = f" in steps that agree ({disagree})" if disagree else ""
    if direction == "either":
        return f"{part['name']} further from 0 than {bound} (it has {has})"
    if part["bounded"]:
        return f"{part['name']} above its bound by more than {bound} (it is at {has})"
    return f"{part['name']} above {bound} (it has {has}){agreeing}"


def _steps_disagree(part: Mapping[str, Any]) -> str:
    """Of a trend that Page's test does not find, its probability; else nothing."""
    level = 1 - part["confidence"]
    if is_absent(part["p_page"]) or part["p_page"] <= level:
        return ""
    return f"Page’s test has p = {probability(part['p_page'])}, and at most {significant(level)} would do"


def _widths(part: Mapping[str, Any], distance: float) -> float:
    """A distance in widths of the part's interval, so that parts with different units can be compared."""
    return float(distance / (part["high"] - part["low"]))


def _some(words: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    more = [several(len(words) - MOST_NAMED, "more part")] if len(words) > MOST_NAMED else []
    return listed([*words[:MOST_NAMED], *more])


def _of_part(part: Mapping[str, Any], *, direction: Direction) -> str:
    if part["verdict"] == "insufficient evidence":
        return f"At least {FEWEST_SEEDS} seeds; there are {count(part['n'])}."
    if is_absent(part["smallest_seen"]):
        return "A finite number in every seed, and a spread between them: more seeds, or a longer measurement."
    if part["verdict"] == "undecided":
        return _of_open_part(part)
    if is_absent(part["supported_above"]):
        return f"Other seeds than these {count(part['n'])}, or more, that do not all show the same number."
    whichever = ", whichever layer they choose" if part["chosen_layers"] else ""
    start = f"With {several(part['n'], 'seed')} of this spread{whichever}, a mean effect"
    unit = f" {part['unit']}" if part["unit"] else ""
    if part["verdict"] == "equivalent":
        return f"{start} {_outside(part['equivalent_above'], part['equivalent_below'])}{unit}."
    to_support, to_refute = significant(part["supported_above"]), significant(part["contradicted_below"])
    if direction == "either":
        return f"{start} nearer to 0 than {to_support}{unit}."
    trend = not is_absent(part["p_page"])
    if part["verdict"] == "supported":
        steps = " So would steps that do not agree (Page’s test)." if trend else ""
        return (
            f"{start} below {to_support}{unit} would support it no longer, and one below {to_refute} would "
            f"contradict it.{steps}"
        )
    steps = " if the steps agree too (Page’s test)" if trend else ""
    return (
        f"{start} above {to_refute}{unit} would contradict it no longer, and one above {to_support} would support "
        f"it{steps}."
    )


def _of_open_part(part: Mapping[str, Any]) -> str:
    """Of the only part of an undecided claim."""
    disagree = _steps_disagree(part)
    if disagree and part["effect"] > part["supported_above"]:
        return f"Steps that agree, as more seeds may show: the line through them rises, but {disagree}."
    unit = f" {part['unit']}" if part["unit"] else ""
    seen = (
        f"More seeds. With this spread, {several(part['n'], 'seed')} find in 8 of 10 experiments an effect of "
        f"{significant(part['smallest_seen'])}{unit}"
    )
    steps = f" The steps must agree too: {disagree}." if disagree else ""
    wanted = part["seeds_to_decide"]
    if wanted and wanted <= part["n"]:
        matters = significant(part["smallest_effect"])
        return f"{seen}, no more than the {matters} that matters; a smaller one takes more.{steps}"
    enough = several(wanted, "seed") if wanted else f"more than {count(MOST_SEEDS)} seeds"
    absence = "" if part["bounded"] or part["condition"] else ", or that there is none,"
    return f"{seen}; to find one of {significant(part['smallest_effect'])}{unit}{absence} takes {enough}.{steps}"


def _outside(low: float, high: float) -> str:
    """Of two bounds about 0."""
    if abs(low + high) <= ROUNDING * high:
        return f"further from 0 than {significant(high)}"
    return f"below {significant(low)} or above {significant(high)}"
