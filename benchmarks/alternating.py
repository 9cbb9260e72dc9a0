"""Timing of two sides in turn in one process, so that other load on the machine meets both."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Side:
    """Side of a comparison: a step that can be repeated, and its settings in words."""

    settings: str
    step: Callable[[], float]
    """Function that does one step and returns how many units it did (real tokens, batches, ...)."""
    wait: Callable[[], None] = lambda: None
    """Function that returns when all steps are done. On a GPU a step is only queued when `step` returns."""


class Rates(NamedTuple):
    """Units per second of both sides in each round, and the settings of both."""

    ours: list[float]
    theirs: list[float]
    settings: tuple[str, str]

    def summary(self) -> dict[str, Any]:
        """Return settings and medians of both sides, and median, smallest and largest of the rounds'
        ratios."""
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

    The side that goes first changes from turn to turn.
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
    """Return the units per second of whole steps, over at least `seconds`."""
    done, start = 0.0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        done += side.step()
    side.wait()
    return done / (time.perf_counter() - start)
