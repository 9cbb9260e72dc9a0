"""Contrasts that a claim may compare, a closed set, and the form of a file of claims. No mathematics.

A claim is written before the runs: what is compared, and what would matter. Rules between its parts (one effect or
several, needs that equal what the effects use, names that occur once) are in `ablations.spec.claim_checks`, which
also checks them when the form of another part is wrong.

A contrast is one number a seed. Every number is written so that more is as the claim says, and every one can come
out negative: layers are chosen on other seeds, never on the seed that is then judged. `reports.claims.contrasts`
says how each is computed, and why.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, TypeAdapter, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ablations.errors import KeyPath
from ablations.spec.experiment import ArmName, SmallName
from ablations.wording import guess, must_be
from lightning_modules.config import Settings

_SOME = Field(min_length=1, strict=False)
Positive = Annotated[float, Field(gt=0)]
Pair = Annotated[tuple[str, str], Field(strict=False)]
Arms = str | Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
"""An arm, or several, over which the mean is taken."""

Expected = Literal["supported", "contradicted", "equivalent", "open"]


class Quantity(Settings):
    """Quantity that is read of one run: one number, at the last step that was measured."""

    measure: str
    """Measure, as in the table of results."""
    metric: str
    """In which way."""
    groups: tuple[str, ...] = Field((), strict=False)
    """Tasks or other groups, over which the mean is taken; `*` stands for any letters but / and @. None: the rows
    that are of no group."""
    without: tuple[str, ...] = Field((), strict=False)
    """Groups that `groups` would take in otherwise."""
    or_groups: tuple[str, ...] = Field((), strict=False)
    """The groups instead, where `groups` were not all measured: of the built-in language, say. Of those that are
    named none may be missing."""
    read: Literal["value", "floor", "gain", "share_of_floor", "share_of_ceiling"] = "value"
    """The number itself; its chance level; the chance level minus it, as what a loss has gained; or it divided by
    that level, or by the most that it can be."""
    layers: Literal["none", "top", "bottom", "mean", "sum", "drop", "fall_to_inner", "rise_to_top"] = "none"
    """Statistic over rows that have a layer: at the top, at the bottom, over all, or how much it drops from the
    bottom to the top. Of rows from a layer to the next, those from layer 1 on. `fall_to_inner` and `rise_to_top`
    are the bottom and the top minus the lowest inner layer of the run itself: noise makes them larger, so they are
    for comparing arms, and `shape` is for the form of one arm."""
    layer: int | None = Field(None, ge=0)
    """Layer that is read alone, of rows that have a layer."""
    steps: Literal["last", "area", "way"] = "last"
    """Statistic over the course of training: the end; the mean (the area under the learning curve); or the share
    of its way from the first checkpoint to the last that it has made by `until`, which compares the pace of curves
    of different height."""
    until: float = Field(1.0, gt=0, le=1)
    """Share of training up to which the area or the way is read."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [self.layers != "none", self.layer is not None, self.steps != "last"]
        if sum(ways) > 1:
            raise ValueError("must have one of layers, layer and steps, but has several")
        if self.steps == "way" and self.until == 1:
            raise ValueError("reads the way made by the end, which is all of it; say until when, below 1")
        if self.or_groups and not self.groups:
            raise ValueError("has or_groups, so it must also have groups, which they stand for")
        return self


class Contrast(Settings):
    """Base of the contrasts."""

    smallest_effect: Positive | None = None
    """The smallest effect that matters, unless the claim's own holds for this one."""
    unit: str = ""
    """Unit of the effect, as the page writes it."""
    in_each_seed: bool = False
    """Whether each seed must show it, where it is a condition (`provided`); otherwise their mean must."""

    ARMS: ClassVar[tuple[str, ...]]
    """Fields that name arms."""
    QUANTITIES: ClassVar[tuple[str, ...]] = ("of",)
    """Fields that say what is read."""

    def arms_at(self) -> Iterator[tuple[KeyPath, str]]:
        """Yield the names of the arms that the contrast compares, each behind the keys that lead to it."""
        for key in self.ARMS:
            yield from _names(getattr(self, key), (key,))

    def quantities_at(self) -> Iterator[tuple[KeyPath, Quantity]]:
        """Yield the quantities that the contrast reads of runs, each behind the keys that lead to it."""
        for key in self.QUANTITIES:
            if (of := getattr(self, key)) is not None:
                yield (key,), of

    def arms_needed(self) -> Iterator[str]:
        """Yield the names of the arms that the contrast compares."""
        yield from (arm for _, arm in self.arms_at())

    def quantities(self) -> Iterator[Quantity]:
        """Yield the quantities that the contrast reads of runs."""
        yield from (of for _, of in self.quantities_at())


def _names(value: Any, at: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield the names in a field: the value itself, those in a list, or the keys of a mapping."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, dict):
        yield from (((*at, name), name) for name in value)
    elif value is not None:
        for index, inner in enumerate(value):
            yield from _names(inner, (*at, index))


class Difference(Contrast):
    """Contrast of an arm with another at the same seed, or with a fixed number.

    Several arms instead of one stand for their mean. So this is also the main effect of a factor: the arms of one
    setting against those of the other; and the interaction of two: the arms where both or neither change, against
    those where one does. Of two factors this is half of the difference of differences.
    """

    ARMS = ("arm", "minus")
    QUANTITIES = ("of", "minus_of")

    kind: Literal["difference"]
    of: Quantity
    """Quantity that is compared."""
    arm: Arms
    """The arm that the claim says has more, unless `at_most` says otherwise; or several."""
    minus: Arms | None = None
    """The other arm, or several; none, where the number itself is compared with `at_least` or `at_most`."""
    minus_of: Quantity | None = None
    """Quantity that is read of the other arm, where it differs from `of`."""
    at_least: float | None = None
    """The effect is the number minus this one; 0 unless given."""
    at_most: float | None = None
    """The effect is this one minus the number."""
    direction: Literal["higher", "either"] = "higher"
    """Whether the claim says which is more. Where it says `either`, an effect supports it that lies beyond
    `smallest_effect` on one side or the other."""

    @field_validator("direction", mode="before")
    @classmethod
    def _no_lower(cls, direction: Any) -> Any:
        """Name the one way in which a claim says `lower`, so that every effect is positive as its claim says."""
        words = ("higher", "either")
        if direction in words:
            return direction
        hint = (
            ""
            if guess(direction, words)
            else "; to claim that it is lower, exchange arm and minus, or set at_most"
        )
        raise PydanticCustomError(
            "sentence", "{sentence}", {"sentence": must_be(direction, words, one="a direction") + hint, "at": ()}
        )

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if self.at_least is not None and self.at_most is not None:
            raise ValueError("must have at_least or at_most, but has both")
        if self.minus_of is not None and self.minus is None:
            raise ValueError("has minus_of, so it must also have minus, the arm that it is read of")
        return self


class Trend(Contrast):
    """Contrast of a rise along an ordered factor: arms in their order, or the layers or groups of one arm."""

    ARMS = ("arms",)

    kind: Literal["trend"]
    of: Quantity
    """Quantity that rises."""
    arms: tuple[str, ...] = _SOME
    """Arms in their order, at least three; or one, whose layers or groups are in order."""
    over: Literal["arms", "layers", "groups"] = "arms"
    """The ordered factor. Groups are ordered by the number in their names."""
    direction: Literal["rising", "falling"] = "rising"
    """Direction of the curve in the claim."""

    @model_validator(mode="after")
    def _enough_arms(self) -> Self:
        if self.over == "arms" and len(self.arms) < 3:
            raise ValueError(
                f"must have three arms in order or more, but has {len(self.arms)}; or say over: layers"
            )
        if self.over != "arms" and len(self.arms) != 1:
            raise ValueError(f"must have one arm where it goes over {self.over}, but has {len(self.arms)}")
        return self


class Shape(Contrast):
    """Contrast of the form of one arm's curve over layers, the layer chosen on other seeds; or how much more of it
    one arm has than another."""

    ARMS = ("arm", "minus")

    kind: Literal["shape"]
    of: Quantity
    """Quantity of the curve."""
    arm: str
    """Arm whose curve has this form."""
    minus: str | None = None
    """The arm whose curve has it less."""
    form: Literal["rise_to_top", "fall_to_inner", "top_is_lowest", "top_over_lowest", "rise_after_inner"]
    """`rise_to_top`: the top minus the lowest inner layer. `fall_to_inner`: the bottom minus the lowest inner
    layer. `top_is_lowest`: the lowest of the others minus the top. `top_over_lowest`: the top divided by the
    lowest of the others. `rise_after_inner`: the highest layer above the lowest inner one, divided by it."""
    at_least: float = 0.0
    """Number that the form must exceed: a difference, or a ratio for the forms that divide."""

    @model_validator(mode="after")
    def _differences_of_differences(self) -> Self:
        if self.minus is not None and self.form in ("top_over_lowest", "rise_after_inner"):
            raise ValueError(f"has minus, so its form must be a difference of layers, but is {self.form}, a ratio")
        return self


class Share(Contrast):
    """Contrast of the share of the gain of one arm over another that a third arm keeps; or how much more of it
    here than elsewhere."""

    ARMS = ("kept_by", "whole", "none")
    QUANTITIES = ("of", "than_of")

    kind: Literal["share"]
    of: Quantity
    """Quantity that is gained."""
    kept_by: str
    """The arm that keeps a share of the gain."""
    whole: str
    """The arm that has all of it."""
    none: str
    """The arm that has none of it."""
    at_least: float = 0.0
    """The effect is the share minus this; or, with `than_of`, the difference of the shares minus this."""
    than_of: Quantity | None = None
    """Quantity whose share is to be smaller."""
    smallest_gain: Positive
    """The gain that the whole must have more than for the claim to be judged: without one there is nothing to
    keep."""


class Optimum(Contrast):
    """Contrast of the place of the highest point of a curve over arms with two bounds; the curve must have one."""

    ARMS = ("arms",)

    kind: Literal["optimum"]
    of: Quantity
    """The height of the curve."""
    arms: dict[str, float] = Field(json_schema_extra={"minProperties": 4})
    """Place of each arm on the curve; at least four."""
    scale: Literal["linear", "log_odds"] = "linear"
    """Scale on which the curve is a parabola, and the effect a distance."""
    above: float
    """Lower bound of the place of the highest point."""
    below: float
    """Upper bound of the place of the highest point."""
    smallest_bend: Positive
    """The smallest fall from the highest point to the ends of the curve that matters."""

    @model_validator(mode="after")
    def _places_on_the_scale(self) -> Self:
        if len(self.arms) < 4:
            raise ValueError(f"must have four arms or more, each with its place, but has {len(self.arms)}")
        places = [*self.arms.values(), self.above, self.below]
        if self.scale == "log_odds" and not all(0 < place < 1 for place in places):
            raise ValueError("has the scale log_odds, so all its places must lie between 0 and 1")
        if self.above >= self.below:
            raise ValueError(f"must have above less than below, but has {self.above} and {self.below}")
        return self


class Ahead(Contrast):
    """Contrast of one arm's learning curve with another's at every checkpoint: it must be above at each of
    them."""

    ARMS = ("arm", "over")

    kind: Literal["ahead"]
    of: Quantity
    """Quantity of the curves, at every checkpoint."""
    arm: str
    """The arm whose curve is above."""
    over: str
    """The arm whose curve is below."""
    since: float = Field(0.0, ge=0, lt=1)
    """Share of training from which on it must be above."""


class Apart(Contrast):
    """Contrast of distances between runs of different seeds: two arms further apart than two seeds of an arm, or
    than two other arms."""

    ARMS = ("pairs", "than")

    kind: Literal["apart"]
    metric: str
    """Metric of the measure run_distance, whose setting `across_seeds` must be true."""
    pairs: Annotated[tuple[Pair, ...], _SOME]
    """The pairs of arms that lie further apart."""
    than: Annotated[tuple[Pair, ...], Field(strict=False)] = ()
    """The pairs that lie closer together; none: the seeds of each arm."""
    from_layer: int = Field(1, ge=0)
    """Lowest layer of the mean over layers."""

    def quantities_at(self) -> Iterator[tuple[KeyPath, Quantity]]:
        yield (), Quantity(measure="run_distance", metric=self.metric)


Effect = Annotated[Difference | Trend | Shape | Share | Optimum | Ahead | Apart, Field(discriminator="kind")]

EFFECT: TypeAdapter[Effect] = TypeAdapter(Effect)
"""Checks one that stands alone."""


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
