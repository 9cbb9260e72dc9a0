"""Two sides timed in turn in one process, so that whatever else the machine does meets both."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Side:
    """Something that can be repeated, what one repetition is worth, and the settings it is done with."""

    settings: str
    step: Callable[[], float]
    """Does one step and returns how much of the unit it did (real tokens, batches, ...)."""
    wait: Callable[[], None] = lambda: None
    """Returns when all steps are done; on a GPU a step is only begun when it returns."""


class Rates(NamedTuple):
    """Units a second of both sides in each round, and what either side did them with."""

    ours: list[float]
    theirs: list[float]
    settings: tuple[str, str]

    def summary(self) -> dict[str, Any]:
        """Settings and medians of both, and median, smallest and largest of the rounds' ratios."""
        ratios = [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]
        return {
            "our_settings": self.settings[0],
            "their_settings": self.settings[1],
            "ours": statistics.median(self.ours),
            "theirs": statistics.median(self.theirs),
            "ratio": statistics.median(ratios),
            "low": min(ratios),
            "high": max(ratios),
            "rounds": len(ratios),
        }


def alternate(ours: Side, theirs: Side, *, rounds: int, seconds: float, warm_up: int = 3) -> Rates:
    """Time both sides in turn, `rounds` times, each for at least `seconds` and one step, after warming up.

    Who goes first changes from turn to turn.
    """
    for side in (ours, theirs):
        for _ in range(warm_up):
            side.step()
        side.wait()
    rates = Rates([], [], (ours.settings, theirs.settings))
    turn = [(ours, rates.ours), (theirs, rates.theirs)]
    for _ in range(rounds):
        for side, kept in turn:
            kept.append(rate(side, seconds=seconds))
        turn.reverse()
    return rates


def rate(side: Side, *, seconds: float) -> float:
    """Units a second of whole steps over at least `seconds`."""
    done, start = 0.0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        done += side.step()
    side.wait()
    return done / (time.perf_counter() - start)
