"""The form of a file of claims. A claim is written before the runs: what is compared, and what would matter.

Rules between the parts of a claim (one effect or several, needs that equal what the effects use, names that occur
once) are in `ablations.spec.claim_checks`, which also checks them when the form of another part is wrong.
"""

from typing import Annotated, Literal

from pydantic import Field

from ablations.spec.contrasts import Effect, Positive
from ablations.spec.experiment import ArmName, SmallName
from lightning_modules.config import Settings

Expected = Literal["supported", "contradicted", "equivalent", "open"]


class Needs(Settings):
    """Requirements of a claim: what an experiment must have for it to be judged."""

    arms: tuple[ArmName, ...] = Field(min_length=1, strict=False)
    """Names of arms."""
    measures: tuple[str, ...] = Field(min_length=1, strict=False)
    """Names of measures."""
    seeds: int | None = Field(None, ge=3)
    """Seeds that it takes at the published numbers and the usual spread, where it takes more than six."""
    spec: str = ""
    """An experiment that has them all, for readers of one that has not: `unmasking.yaml`."""


class Claim(Settings):
    """Claim: one statement that runs can support or refute."""

    name: SmallName
    """A short name, once in an experiment."""
    number: Annotated[int, Field(ge=1)] | Annotated[str, Field(pattern=r"^[1-9]\d*[a-z]$")] | None = None
    """Number of the claim in a source that numbers its claims; with a letter where it is a part of one: 2b."""
    says: str
    """The statement in one sentence."""
    source: str
    """Paper or article that says so, and the place in it."""
    published: str = ""
    """The number that was published, where there is one."""
    needs: Needs
    """Arms and measures without which it cannot be judged: those of the effects that decide and of their
    conditions, neither more nor less."""
    effect: Effect | None = None
    """Contrast that decides the claim."""
    effects: dict[SmallName, Effect] | None = Field(None, json_schema_extra={"minProperties": 2})
    """Contrasts of a statement with several parts, by name. The claim holds only if all of them do."""
    provided: dict[SmallName, Effect] = Field({})
    """Conditions without which it means nothing, as that a model has learned its own task: where one fails, the
    verdict is `not testable here`, and none of them can refute the claim."""
    beside: dict[SmallName, Effect] = Field({})
    """Effects that are shown beside it where they are measured, and decide nothing."""
    smallest_effect: Positive
    """The smallest effect that matters, in the unit of the effect: of one that is surely smaller, either way, the
    verdict is `equivalent`. Against a bound (`at_least`, `at_most`, `before`, those of an optimum) nothing is
    equivalent, and it only says how far beyond is worth seeing, for the number of seeds."""
    expect: Expected
    """The verdict that the literature lets expect."""
    because: str
    """Why: in the literature's numbers."""
    family: SmallName
    """Claims that are judged together: the more there are, the more evidence each needs (Bonferroni)."""

    @property
    def parts(self) -> dict[str, Effect]:
        """Effects that decide, by name; a single one has the name of the claim."""
        return {self.name: self.effect} if self.effect else dict(self.effects or {})


class ClaimFile(Settings):
    """A file of claims."""

    version: Literal[1]
    """The format of this file, always 1."""
    claims: Annotated[tuple[Claim, ...], Field(min_length=1, strict=False)]
    """List of the claims of the file."""
