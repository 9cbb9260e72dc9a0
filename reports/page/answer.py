"""Choice of the figure that answers the question of an experiment: the one that shows what its claims read."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ablations.spec.claim import Claim
from ablations.spec.contrasts import Ahead, Difference
from reports.claims.judge import NOT_JUDGED, Judged
from reports.claims.verdicts import DECIDED
from reports.figures.curves import ALONG_STEPS, Axis
from reports.figures.panel import Panel


class Reading(NamedTuple):
    """Numbers that a claim reads."""

    measure: str
    metric: str
    along_steps: bool
    """Whether the course of training is compared, not its end."""


def readings(judged: Judged) -> list[Reading]:
    """Return what the claims read, each as often as claims read it.

    Of the claims those count that are decided; if there are none, those that are judged; if there are none, all.
    """
    verdicts = {entry["name"]: entry["verdict"] for entry in judged.entries}
    decided = [claim for name, claim in judged.claims.items() if verdicts[name] in DECIDED]
    tested = [claim for name, claim in judged.claims.items() if verdicts[name] not in NOT_JUDGED]
    return [reading for claim in decided or tested or judged.claims.values() for reading in read_by(claim)]


def read_by(claim: Claim) -> list[Reading]:
    """Return what the parts of a claim read that decide it."""
    along_steps = compares_courses(claim)
    read = (of for part in claim.parts.values() for of in part.quantities())
    return list(dict.fromkeys(Reading(of.measure, of.metric, along_steps) for of in read))


def compares_courses(claim: Claim) -> bool:
    """Return whether a claim compares the course of training, not its end."""
    return any(
        isinstance(part, Ahead) or (isinstance(part, Difference) and part.of.steps == "area")
        for part in claim.parts.values()
    )


def is_along(kind: str, measure: str, axis: Axis | None, *, along_steps: bool) -> bool:
    """Return whether lines of a panel run along what is compared: training, or layers and the like."""
    if kind not in ("arms", "pairs"):
        return False
    return measure in ALONG_STEPS or (axis == "step" if along_steps else axis in (None, "layer", "ratio"))


def times_read(panel: Panel, read: Iterable[Reading]) -> int:
    """Return how many of the readings a panel shows; where arms vary a setting, a loss is shown as a gain."""
    metrics = {panel.metric} | ({"loss"} if panel.metric == "gain" else set())
    return sum(
        reading.measure == panel.measure
        and reading.metric in metrics
        and panel.group is None
        and (
            panel.kind == "settings"
            or is_along(panel.kind, panel.measure, panel.axis, along_steps=reading.along_steps)
        )
        for reading in read
    )


def answering(figures: Mapping[str, Sequence[Panel]], read: Sequence[Reading]) -> str | None:
    """Return the name of the figure that shows most of what is read, the first of several; None if none does.

    Args:
        figures: panels by the name of their figure.
        read: what claims read.
    """
    most = {
        name: max((times_read(panel, read) for panel in panels), default=0) for name, panels in figures.items()
    }
    best = max(most.values(), default=0)
    return next((name for name, times in most.items() if times == best), None) if best else None
