"""Claims in words: their effects as they are written, how the verdicts are counted."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from reports.numbers import ABSENT, MINUS, count, is_absent, listed, number, several
from reports.power import MOST_SEEDS
from reports.verdicts import DECIDED

VERDICTS = ("supported", "contradicted", "equivalent", "undecided", "insufficient evidence", "not run")
"""In the order in which they are counted."""

FILTERS = (
    *("confidence", "counted", "effect", "expectation", "layers"),
    *("probability", "seeds_wanted", "significant"),
)
"""Functions of this file that templates use."""

MOST_DECIMALS = 8

ROUNDING = 1e-9
"""Of a mean: a narrower interval is none."""


def significant(value: float | None, figures: int = 3) -> str:
    """The number with so many figures, zeros at the end left out: ``0.05``, ``1,230``, ``2.1e−09``."""
    if is_absent(value):
        return ABSENT
    assert value is not None
    if value == 0 or not np.isfinite(value):
        return number(value, 0)
    if abs(value) < 10.0 ** (1 - MOST_DECIMALS):
        return f"{value:.{figures - 1}e}".replace("-", MINUS)
    text = number(float(f"{value:.{figures}g}"), min(MOST_DECIMALS, max(0, figures - 1 - _magnitude(value))))
    return text.rstrip("0").rstrip(".") if "." in text else text


def effect(part: Mapping[str, Any]) -> str:
    """A mean with its interval and unit, no more decimals than two figures of half the width:
    ``0.113 [0.027, 0.200] nats``."""
    mean, low, high = part["effect"], part["low"], part["high"]
    if is_absent(mean):
        return ABSENT
    if is_absent(low) or high - low <= ROUNDING * abs(mean):
        return f"{significant(mean)} {part['unit']}".rstrip()
    digits = min(MOST_DECIMALS, max(0, 1 - _magnitude((high - low) / 2)))
    written = f"{number(mean, digits)} [{number(low, digits)}, {number(high, digits)}]"
    return f"{written} {part['unit']}".rstrip()


def confidence(part: Mapping[str, Any]) -> str:
    """Of the interval: ``99.17%``."""
    return f"{100 * part['confidence']:.4g}%"


def probability(p: float | None) -> str:
    """``0.013``, ``< 0.001``."""
    if is_absent(p):
        return ABSENT
    assert p is not None
    return "< 0.001" if p < 0.001 else number(min(p, 1.0), 3)


def layers(part: Mapping[str, Any]) -> str:
    """Those that its seeds were judged at: one, where all chose the same, else one a seed."""
    chosen = part["chosen_layers"]
    if not chosen:
        return ABSENT
    return str(chosen[0]) if len(set(chosen)) == 1 else ", ".join(map(str, chosen))


def seeds_wanted(part: Mapping[str, Any]) -> str:
    """How many would decide; a dash where nothing is known of the spread, and where it is decided."""
    if part["verdict"] in DECIDED:
        return ABSENT
    if part["seeds_to_decide"] is not None:
        return count(part["seeds_to_decide"])
    return ABSENT if is_absent(part["smallest_seen"]) else f"> {count(MOST_SEEDS)}"


def seeds_for_all(entry: Mapping[str, Any]) -> str:
    """How many seeds would decide every part of an open claim: ``77``, ``> 1,000``, or ``none``.

    `none` is where a condition surely fails, which more seeds do not mend. Empty where the claim is decided, and
    where nothing is known of a spread.
    """
    if entry["verdict"] in (*DECIDED, "not run"):
        return ""
    open_parts = [part for part in entry["parts"] if part["verdict"] != "supported"]
    if any(part["condition"] and not is_absent(part["high"]) and part["high"] < 0 for part in open_parts):
        return "none"
    if entry["seeds_to_decide"] is not None:
        return count(entry["seeds_to_decide"])
    beyond = any(part["seeds_to_decide"] is None and not is_absent(part["smallest_seen"]) for part in open_parts)
    return f"> {count(MOST_SEEDS)}" if beyond else ""


def counted(entries: Iterable[Mapping[str, Any]]) -> str:
    """How many claims have which verdict, and how many came out as the literature predicts."""
    claims = [entry for entry in entries if entry.get("says")]  # the others are files that cannot be read
    if not claims:
        return "No claim could be read."
    found = Counter(claim["verdict"] for claim in claims)
    words = listed([f"{count(found[verdict])} {verdict}" for verdict in VERDICTS if found[verdict]])
    said = f"Of {several(len(claims), 'claim')}, {words}"
    met = Counter(expectation(claim) for claim in claims)
    outcomes = [f"{count(met[word])} {told}" for word, told in _OUTCOMES.items() if met[word]]
    if not outcomes:
        return f"{said}."
    expected = sum(met[word] for word in _OUTCOMES)
    return f"{said}. The literature predicts a verdict on {count(expected)} of them: {listed(outcomes)}."


_OUTCOMES = {"met": "came out so", "not met": "came out otherwise", "left open": "stayed open"}


def expectation(entry: Mapping[str, Any]) -> str:
    """Whether the verdict is the one that the literature predicts: `met`, `not met`, `left open` where the
    seeds decide nothing; empty where it expects none, or nothing was judged."""
    if entry["as_expected"] is None:
        return ""
    if entry["as_expected"]:
        return "met"
    return "left open" if entry["verdict"] == "undecided" else "not met"


def described(entry: Mapping[str, Any]) -> str:
    """The plot of a claim's effects, for a reader who does not see it."""
    said = [
        *(_described_part(part) for part in entry["parts"]),
        *(_described_part(part, beside=True) for part in entry["beside"]),
    ]
    return "Mean effect over seeds with its interval, against 0 and the smallest that matters. " + " ".join(said)


def _described_part(part: Mapping[str, Any], *, beside: bool = False) -> str:
    name = f"{part['name']} (beside)" if beside else part["name"]
    if is_absent(part["effect"]):
        return f"{name}: no number."
    seeds = _finite(part["values"])
    said = f"{name}: {part['verdict']}, {effect(part)}"
    if not is_absent(part["low"]):
        said += f" ({confidence(part)} interval)"
    of_seeds = f"{several(len(seeds), 'seed')} from {significant(min(seeds))} to {significant(max(seeds))}"
    return f"{said}, smallest that matters {significant(part['smallest_effect'])}, {of_seeds}."


def _finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if np.isfinite(value)]


def _magnitude(value: float) -> int:
    return int(np.floor(np.log10(abs(value))))
