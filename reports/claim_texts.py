"""Claims in words: their effects as they are written, how the verdicts are counted, what would change one."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from scipy import special

from reports.numbers import ABSENT, MINUS, count, is_absent, listed, number, several
from reports.power import MOST_SEEDS
from reports.seed_tests import standard_error
from reports.verdicts import FEWEST_SEEDS

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

Direction = Literal["higher", "either"]


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
    if part["verdict"] in ("supported", "contradicted", "equivalent"):
        return ABSENT
    if part["seeds_to_decide"] is not None:
        return count(part["seeds_to_decide"])
    return ABSENT if is_absent(part["smallest_seen"]) else f"> {count(MOST_SEEDS)}"


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


def would_change(entry: Mapping[str, Any], *, directions: Mapping[str, Direction]) -> str:
    """What would change the verdict, in one or two sentences.

    Args:
        entry: of a claim, with its verdict.
        directions: of its parts, where a part does not say which is more.
    """
    if entry["verdict"] == "not run":
        return "What is missing, measured at three seeds or more."
    part = next(part for part in entry["parts"] if part["name"] == entry["deciding"])
    ways = sum(not part["condition"] for part in entry["parts"])
    if entry["verdict"] == "undecided" and part["condition"]:
        lacking = [own["name"] for own in entry["parts"] if own["condition"] and own["verdict"] != "supported"]
        return f"First of all {listed(lacking)} must be borne out."
    if entry["verdict"] == "undecided" and ways > 1:
        return _of_open_parts(entry["parts"], directions=directions)
    sentence = _of_part(part, direction=directions.get(part["name"], "higher"), ways=ways)
    if len(entry["parts"]) == 1:
        return sentence
    also = ""
    if entry["verdict"] == "supported":
        also = " So would any other part that fails."
    elif entry["verdict"] in ("contradicted", "equivalent"):
        fails = [other for other in entry["parts"] if other["verdict"] == entry["verdict"]]
        also = f" {several(len(fails) - 1, 'more part')} would have to change too." if len(fails) > 1 else ""
    return f"For {part['name']}: {sentence[0].lower()}{sentence[1:]}{also}"


def _of_open_parts(parts: Sequence[Mapping[str, Any]], *, directions: Mapping[str, Direction]) -> str:
    """Of an undecided claim with several parts: all must hold, one is enough to refute it."""
    lacking = [part["name"] for part in parts if part["verdict"] != "supported"]
    are = "is" if len(lacking) == 1 else "are"
    said = f"It would be supported once {listed(lacking)} {are}, and contradicted by one part alone"
    refuting = [part for part in parts if not part["condition"] and directions.get(part["name"]) != "either"]
    known = [part for part in refuting if not (is_absent(part["smallest_seen"]) or part["chosen_layers"])]
    if not known:
        return f"{said}."
    ways = sum(not part["condition"] for part in parts)
    level = {part["name"]: (1 - part["confidence"]) / 2 / ways for part in known}
    bound = {part["name"]: -_reach(part, level[part["name"]]) for part in known}
    nearest = min(known, key=lambda part: (part["effect"] - bound[part["name"]]) / standard_error(part["values"]))
    unit = f" {nearest['unit']}" if nearest["unit"] else ""
    return (
        f"{said}: nearest to it is {nearest['name']}, which with {several(nearest['n'], 'seed')} of this spread "
        f"would do so with a mean below {significant(bound[nearest['name']])}{unit}; it has "
        f"{significant(nearest['effect'])}."
    )


def _of_part(part: Mapping[str, Any], *, direction: Direction, ways: int) -> str:
    seeds = several(part["n"], "seed")
    if part["verdict"] == "insufficient evidence":
        return f"At least {FEWEST_SEEDS} seeds; there are {count(part['n'])}."
    if is_absent(part["smallest_seen"]):
        return "A finite number in every seed, and a spread between them: more seeds, or a longer measurement."
    unit = f" {part['unit']}" if part["unit"] else ""
    level = 1 - part["confidence"]
    if part["verdict"] == "undecided":
        wanted = part["seeds_to_decide"]
        enough = several(wanted, "seed") if wanted else f"more than {count(MOST_SEEDS)} seeds"
        absence = "" if part["bounded"] or part["condition"] else ", or that there is none,"
        return (
            f"More seeds. With this spread, {seeds} find in 8 of 10 experiments an effect of "
            f"{significant(part['smallest_seen'])}{unit}; to find one of "
            f"{significant(part['smallest_effect'])}{unit}{absence} takes {enough}."
        )
    if part["chosen_layers"]:  # whose interval does not follow from the mean alone
        return f"Other seeds than these {count(part['n'])}, or more, whose interval reaches 0."
    if part["verdict"] == "equivalent":
        room = part["smallest_effect"] - _reach(part, level / ways)
        return f"With {seeds} of this spread, a mean effect further from 0 than {significant(room)}{unit}."
    to_support, to_refute = _reach(part, level / 2), _reach(part, level / 2 / ways)
    if direction == "either":
        bound = part["smallest_effect"] + to_support
        return f"With {seeds} of this spread, a mean effect nearer to 0 than {significant(bound)}{unit}."
    if part["verdict"] == "supported":
        return (
            f"With {seeds} of this spread, a mean effect below {significant(to_support)}{unit} would support it "
            f"no longer, and one below {significant(-to_refute)} would contradict it."
        )
    return (
        f"With {seeds} of this spread, a mean effect above {significant(-to_refute)}{unit} would contradict it no "
        f"longer, and one above {significant(to_support)} would support it."
    )


def _reach(part: Mapping[str, Any], level: float) -> float:
    """How far a one-sided test at `level` asks the mean to lie from where it is not to be."""
    values = part["values"]
    return float(special.stdtrit(len(values) - 1, 1 - level)) * standard_error(values)


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
