"""What a file of claims may say. A claim is written before the runs: what is compared, and what would matter."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from ablations.effects import Effect, Positive
from ablations.spec import ArmName, SmallName
from ablations.wording import guess, listed, shown
from lightning_modules.config import Settings

Expected = Literal["supported", "contradicted", "equivalent", "open"]


def _fault(sentence: str, *at: str | int) -> PydanticCustomError:
    """An error that points at something inside the value that is wrong."""
    return PydanticCustomError("sentence", "{sentence}", {"sentence": sentence, "at": at})


class Needs(Settings):
    """What an experiment must have for the claim to be judged."""

    arms: tuple[ArmName, ...] = Field(min_length=1, strict=False)
    """Names of arms."""
    measures: tuple[str, ...] = Field(min_length=1, strict=False)
    """Names of measures."""
    spec: str = ""
    """An experiment that has them all, for readers of one that has not: `unmasking.yaml`."""


class Claim(Settings):
    """One statement that runs can bear out or refute."""

    name: SmallName
    """A short name, once in an experiment."""
    number: int | None = Field(None, ge=1)
    """Where claims are counted."""
    says: str
    """The statement in one sentence."""
    source: str
    """Who says so: paper or article, and the place in it."""
    published: str = ""
    """The number that was published, where there is one."""
    needs: Needs
    """Arms and measures without which it cannot be judged: those of the effects that decide and of their
    conditions, neither more nor less."""
    effect: Effect | None = None
    """What is compared."""
    effects: dict[SmallName, Effect] | None = Field(None, min_length=2)
    """Where the statement has several parts: each by name. It holds only if all of them do."""
    provided: dict[SmallName, Effect] = Field({})
    """Conditions without which it means nothing, as that a model has learned its own task: where one is not borne
    out, the verdict is `undecided`, and none of them can refute the claim."""
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
    """Claims that are judged together: the more there are, the more evidence each needs (Holm)."""

    @property
    def parts(self) -> dict[str, Effect]:
        """The effects that decide, by name; a single one has the name of the claim."""
        return {self.name: self.effect} if self.effect else dict(self.effects or {})

    @model_validator(mode="after")
    def _effect_or_effects(self) -> Self:
        if (self.effect is None) == (self.effects is None):
            both = "has both" if self.effect else "has neither"
            raise _fault(
                f"claim {self.name} must have one effect, or effects where it has several parts, but {both}"
            )
        return self

    @model_validator(mode="after")
    def _needs_what_it_uses(self) -> Self:
        effects = [*self.provided.values(), *self.parts.values()]
        used = {
            "arms": list(dict.fromkeys(arm for effect in effects for arm in effect.arms_needed())),
            "measures": list(dict.fromkeys(name for effect in effects for name in effect.measures_needed())),
        }
        for what, names in used.items():
            said = getattr(self.needs, what)
            for index, name in enumerate(said):
                if name not in names:
                    hint = guess(name, [other for other in names if other not in said])
                    raise _fault(f"no effect of claim {self.name} uses {name}{hint}", "needs", what, index)
            if missing := [name for name in names if name not in said]:
                sentence = f"claim {self.name} needs {listed(missing, 'and')} too, as its effects use them"
                raise _fault(sentence, "needs", what)
        return self


def _each_name_once(claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    for what in ("name", "number"):
        seen: set[object] = set()
        for index, claim in enumerate(claims):
            value = getattr(claim, what)
            if value is not None and value in seen:
                raise _fault(f"has the {what} {shown(value)} twice; each may be there once", index, what)
            seen.add(value)
    return claims


class ClaimFile(Settings):
    """A file of claims."""

    version: Literal[1]
    """The format of this file, always 1."""
    claims: Annotated[tuple[Claim, ...], Field(min_length=1, strict=False), AfterValidator(_each_name_once)]
    """What is claimed."""
