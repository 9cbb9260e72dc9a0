"""Entry of a claim with its verdict: what claims.json, the page and the command line show of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ablations.spec.contrasts import Expected, Needs
from reports.claims.outcomes import Stop
from reports.claims.verdicts import PartVerdict, SeedRange, Verdict


@dataclass(frozen=True, kw_only=True)
class PartEntry(PartVerdict):
    """Part of a claim with its verdict."""

    name: str
    unit: str
    n: int
    """Number of seeds."""
    rule: str
    """Rule that decided, in one sentence."""
    decides: bool = True
    """Whether the part decides the claim, or is only shown beside it."""
    left_out: tuple[str, ...] = ()
    """Notes on what was left out of the effect, and on arms that were measured on different text or examples."""
    chosen_layers: tuple[int, ...] | None = None
    """Layer at which each seed was judged; None if no layer was chosen."""
    groups: tuple[str, ...] = ()
    """Tasks or groups of rows that were read."""
    numbers: Mapping[str, float]
    """Further numbers that are shown beside the effect, by name."""


@dataclass(frozen=True, kw_only=True)
class ClaimEntry:
    """Claim with its verdict. A file of claims that cannot be read is one entry, with the reason as its rule and
    without statement."""

    file: str
    """Name of the file of claims."""
    name: str
    number: int | str | None = None
    says: str | None = None
    """Statement of the claim; None for a file that cannot be read."""
    source: str = ""
    published: str = ""
    needs: Needs | None = None
    family: str = ""
    expect: Expected | None = None
    because: str = ""
    changed: str | None = None
    """Whether the claim was `changed` or `added` after planning."""
    level: float | None = None
    """Level of the claim over all looks together."""
    look: Stop | None = None
    """Look at which the claim was last judged; None with a fixed list of seeds."""
    verdict: Verdict
    rule: str
    """Rule that decided, or why the claim was not run, in one sentence."""
    as_expected: bool | None = None
    """Whether the verdict is the expected one; None if none was expected or nothing was judged."""
    deciding: str | None = None
    """Name of the part whose effect stands for the claim. The next six numbers are those of this part."""
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    smallest_effect: float | None = None
    smallest_seen: float | None = None
    seeds_to_decide: SeedRange | None = None
    """Range of the number of seeds that would decide all open parts together."""
    n: int | None = None
    """Number of seeds of the part with the fewest; None if the claim was not run."""
    unit: str = ""
    parts: tuple[PartEntry, ...] = ()
    beside: tuple[PartEntry, ...] = ()
    """Effects that are shown and decide nothing."""
    planned_seeds: int | None = None
    """Number of planned seeds; None if seeds are added until claims are decided."""
    ended_seeds: int | None = None
    """Number of planned seeds that are trained and measured to the end."""
    readings: Mapping[str, "ClaimEntry"] = field(default_factory=dict)
    """Entries of the claim from other rows of the same runs (`judge.READINGS`), by what differs, with the deciding
    part alone. They decide nothing."""

    @property
    def label(self) -> str:
        """Return the name of the claim, after its number if it has one."""
        return f"{self.number}. {self.name}" if self.number else self.name
