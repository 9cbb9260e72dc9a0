"""Settings of claims and of the contrasts that they compare. Their computation is elsewhere.

A claim is written before the runs. It says what is compared, and which effect would matter. Rules between its
parts (one effect or several, needs that fit the effects, unique names) are in `ablations.spec.claim_checks`,
which also checks them if another part is malformed.

A contrast gives one number for each seed: the effect. A positive effect agrees with the claim. Every effect
can also be negative, because layers are chosen on the other seeds, never on the seed that is judged.
`reports.claims.contrasts` computes the effects and gives the reasons.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, TypeAdapter, field_validator, model_validator

from ablations.errors import KeyPath
from ablations.spec.experiment import ArmName, SmallName
from ablations.wording import guess, must_be
from lightning_modules.config import Settings
from lightning_modules.config.settings import sentence_error

_AT_LEAST_ONE = Field(min_length=1, strict=False)
Positive = Annotated[float, Field(gt=0)]
Pair = Annotated[tuple[str, str], Field(strict=False)]
Arms = str | Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
"""Name of an arm, or names of several, whose mean is taken."""

FEWEST_STEPS = 3
"""Smallest number of checkpoints that make a learning curve."""

Expected = Literal["supported", "contradicted", "equivalent", "open"]


class Quantity(Settings):
    """Quantity that is read from one run: one number, at the last measured step unless `steps` says
    otherwise."""

    measure: str
    """Name of the measure, as in the table of results."""
    metric: str
    """Name of the metric, as in the table of results."""
    groups: tuple[str, ...] = Field((), strict=False)
    """Tasks or other groups, over which the mean is taken; `*` stands for any characters but / and @. An
    empty list reads the rows without a group."""
    without: tuple[str, ...] = Field((), strict=False)
    """Groups that are left out although `groups` matches them."""
    or_groups: tuple[str, ...] = Field((), strict=False)
    """Groups that are read instead if some of `groups` were not measured; all of these must be measured."""
    read: Literal["value", "floor", "gain", "share_of_floor", "share_of_ceiling"] = "value"
    """Number that is read: the value, its chance level (`floor`), the chance level minus the value (which is
    the gain of a loss), or the value divided by its chance level or by its largest possible value."""
    layers: Literal["none", "top", "bottom", "mean", "sum", "drop", "fall_to_inner", "rise_to_top"] = "none"
    """Statistic over layers, for measures with a value for each layer: the top layer, the bottom layer, the
    mean, the sum, or the drop from the bottom to the top. Changes from one layer to the next count from layer
    1 on. `fall_to_inner` is the bottom minus the lowest inner layer of the same run, and `rise_to_top` is the
    top minus it. Noise makes these two larger, so use them to compare arms, and use `shape` for the curve of one
    arm."""
    layer: int | None = Field(None, ge=0)
    """The only layer that is read, for measures with a value for each layer."""
    steps: Literal["last", "area", "way"] = "last"
    """Statistic over training: the last step, the mean over steps (area under the learning curve), or the
    way. The way is the share of a run's own final gain that is reached at `until`, and compares the pace of
    curves of different height."""
    until: float = Field(1.0, gt=0, le=1)
    """Share of training up to which the area is read, or at which the way is read."""

    @property
    def layers_needed(self) -> int:
        """Smallest number of layers for `layers`: a drop takes two, and an inner layer exists from three on."""
        return {"none": 0, "drop": 2, "fall_to_inner": 3, "rise_to_top": 3}.get(self.layers, 1)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [self.layers != "none", self.layer is not None, self.steps != "last"]
        if sum(ways) > 1:
            raise ValueError("must have only one of layers, layer and steps, but has several")
        if self.steps == "way" and self.until == 1:
            raise ValueError(
                "has steps: way, so until must be below 1: at the end of training the way is always complete"
            )
        if self.steps == "way" and "gain" not in (self.read, self.metric):
            raise ValueError(
                "has steps: way, so it must read a gain, which is 0 where nothing is learned: metric: gain of "
                "learning, or read: gain of a loss"
            )
        if self.steps == "last" and self.until != 1:
            raise ValueError(
                "has until, which is read only with steps: area or steps: way; set steps, or remove until"
            )
        if self.or_groups and not self.groups:
            raise ValueError("has or_groups, so it must also have groups, which or_groups can replace")
        return self


class Contrast(Settings):
    """Base class of all contrasts."""

    smallest_effect: Positive | None = None
    """The smallest effect that matters in this contrast; that of the claim unless given."""
    unit: str = ""
    """Unit of the effect, as the page writes it."""
    in_each_seed: bool = False
    """Whether a condition (`provided`) must hold in every seed; otherwise it must hold in the mean over
    seeds."""

    ARMS: ClassVar[tuple[str, ...]]
    """Fields that name arms."""
    QUANTITIES: ClassVar[tuple[str, ...]] = ("of",)
    """Fields with quantities."""
    DIFFERENT: ClassVar[tuple[KeyPath, str]] = (("minus",), " must compare different arms")
    """Rule that no arm occurs twice: the keys where an error is reported, and its words after the effect's
    name."""

    @property
    def has_bound(self) -> bool:
        """Return whether the effect is judged against a number that the claim sets, and so is never
        `equivalent`. A bound of 0 is none, as it stands for the absence of what is measured."""
        return False

    def arms_at(self) -> Iterator[tuple[KeyPath, str]]:
        """Yield each arm that the contrast compares: the keys that lead to its name, and the name."""
        for key in self.ARMS:
            yield from _names(getattr(self, key), (key,))

    def quantities_at(self) -> Iterator[tuple[KeyPath, Quantity]]:
        """Yield each quantity that the contrast reads: the keys that lead to it, and the quantity."""
        for key in self.QUANTITIES:
            if (of := getattr(self, key)) is not None:
                yield (key,), of

    def arms_needed(self) -> Iterator[str]:
        """Yield the names of the arms that the contrast compares."""
        yield from (arm for _, arm in self.arms_at())

    def quantities(self) -> Iterator[Quantity]:
        """Yield the quantities that the contrast reads from runs."""
        yield from (of for _, of in self.quantities_at())

    def repeated_arms(self) -> Iterator[tuple[KeyPath, str]]:
        """Yield an error for each arm that is compared with itself: the keys that lead to it, and the words
        after the effect's name."""
        at, rule = self.DIFFERENT
        yield from ((at, f"{rule}, but {times}") for times in repeated([*self.arms_needed()]))


def repeated(words: Sequence[str]) -> Iterator[str]:
    """Yield how often each word occurs that occurs more than once: ``mlm occurs 2 times``."""
    for word in dict.fromkeys(word for word in words if words.count(word) > 1):
        yield f"{word} occurs {words.count(word)} times"


def _names(value: Any, at: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield the names in a field, each with its path: the value itself, the entries of a list, or the keys of
    a mapping."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, dict):
        yield from (((*at, name), name) for name in value)
    elif value is not None:
        for index, inner in enumerate(value):
            yield from _names(inner, (*at, index))


class Difference(Contrast):
    """Contrast of an arm with another arm at the same seed, or with a fixed number.

    If a side has several arms, their mean is taken. So a difference can be the main effect of a factor: arms
    with one setting minus arms with the other. It can also be the interaction of two factors: arms where both
    or neither of them change minus arms where one changes. This is half of the difference of differences.
    """

    ARMS = ("arm", "minus")
    QUANTITIES = ("of", "minus_of")

    kind: Literal["difference"]
    of: Quantity
    """Quantity that is compared."""
    arm: Arms
    """Arm with the higher value according to the claim, or the lower value if `at_most` is given; or several
    arms."""
    minus: Arms | None = None
    """The other arm, or several. Without it the value itself is compared with `at_least` or `at_most`."""
    minus_of: Quantity | None = None
    """Quantity that is read from the other arm, if it is not `of`."""
    at_least: float | None = None
    """Lower bound in the claim: the effect is the difference, or the value, minus this bound. 0 unless
    given."""
    at_most: float | None = None
    """Upper bound in the claim: the effect is this bound minus the difference, or minus the value."""
    direction: Literal["higher", "either"] = "higher"
    """Whether the claim names the higher arm. With `either` an effect supports the claim if it is beyond
    `smallest_effect`, whatever its sign."""

    @field_validator("direction", mode="before")
    @classmethod
    def _no_lower(cls, direction: Any) -> Any:
        """Refuse other directions. For `lower` the error says how to write the claim so that its effect is
        positive."""
        words = ("higher", "either")
        if direction in words:
            return direction
        hint = (
            ""
            if guess(direction, words)
            else "; to claim that it is lower, exchange arm and minus, or set at_most"
        )
        raise sentence_error(must_be(direction, words, noun="a direction") + hint)

    @property
    def has_bound(self) -> bool:
        return bool(self.at_least or self.at_most)

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if self.at_least is not None and self.at_most is not None:
            raise ValueError("must have at_least or at_most, but has both")
        if self.direction == "either" and (self.at_least is not None or self.at_most is not None):
            raise ValueError(
                "has direction: either, so it must have neither at_least nor at_most, which name a side; remove "
                "the bound, or remove direction"
            )
        if self.minus_of is not None and self.minus is None:
            raise ValueError("has minus_of, so it must also have minus, the arm whose number minus_of names")
        return self

    def repeated_arms(self) -> Iterator[tuple[KeyPath, str]]:
        """Yield nothing if another quantity is read from the second arm: then it may be the same arm."""
        if self.minus_of in (None, self.of):
            yield from super().repeated_arms()


class Trend(Contrast):
    """Contrast that tests a trend along an ordered factor: arms in order, or the layers or groups of one
    arm."""

    ARMS = ("arms",)
    DIFFERENT = (("arms",), ".arms must differ")

    kind: Literal["trend"]
    of: Quantity
    """Quantity that rises or falls."""
    arms: tuple[str, ...] = _AT_LEAST_ONE
    """Arms in order, at least three; or a single arm, if the trend is over its layers or groups."""
    over: Literal["arms", "layers", "groups"] = "arms"
    """The ordered factor. Groups are ordered by the number in their names."""
    direction: Literal["rising", "falling"] = "rising"
    """Direction of the trend in the claim."""

    @model_validator(mode="after")
    def _enough_arms(self) -> Self:
        if self.over == "arms" and len(self.arms) < 3:
            raise ValueError(
                f"must have at least three arms in order, but has {len(self.arms)}; add arms, or name one "
                "arm and write over: layers or over: groups"
            )
        if self.over != "arms" and len(self.arms) != 1:
            raise ValueError(f"must have one arm with over: {self.over}, but has {len(self.arms)}")
        return self


class Shape(Contrast):
    """Contrast that tests the shape of one arm's curve over layers, or compares it with that of another arm.
    The layers that are compared are chosen on the other seeds."""

    ARMS = ("arm", "minus")

    kind: Literal["shape"]
    of: Quantity
    """Quantity of the curve."""
    arm: str
    """Arm whose curve has this form according to the claim."""
    minus: str | None = None
    """Arm whose curve has less of this form; none to test one arm alone."""
    form: Literal["rise_to_top", "fall_to_inner", "top_is_lowest", "top_over_lowest", "rise_after_inner"]
    """Form of the curve. `rise_to_top`: the top minus the lowest inner layer. `fall_to_inner`: the bottom
    minus the lowest inner layer. `top_is_lowest`: the lowest of the other layers minus the top.
    `top_over_lowest`: the top divided by the lowest of the other layers. `rise_after_inner`: the highest
    value above the lowest inner layer, divided by the value of this inner layer."""
    at_least: float = 0.0
    """Number that the form must exceed: a difference, or a ratio for the forms that divide."""

    @property
    def has_bound(self) -> bool:
        return bool(self.at_least)

    @model_validator(mode="after")
    def _differences_of_differences(self) -> Self:
        if self.minus is not None and self.form in ("top_over_lowest", "rise_after_inner"):
            raise ValueError(f"has minus, so its form must be a difference of layers, but {self.form} is a ratio")
        return self


class Share(Contrast):
    """Contrast that tests which share of a gain an arm keeps. The gain is that of the arm `whole` over the
    arm `none`. With `than_of` it compares the shares of two quantities."""

    ARMS = ("kept_by", "whole", "none")
    QUANTITIES = ("of", "than_of")
    DIFFERENT = ((), " must have three arms")

    kind: Literal["share"]
    of: Quantity
    """Quantity whose gain is shared."""
    kept_by: str
    """The arm that keeps a share of the gain."""
    whole: str
    """The arm that has the whole gain."""
    none: str
    """The arm that has nothing of the gain."""
    at_least: float = 0.0
    """Lower bound in the claim: the effect is the share, or with `than_of` the difference of the shares,
    minus this bound."""
    than_of: Quantity | None = None
    """Quantity whose share is smaller according to the claim."""
    smallest_gain: Positive
    """Gain that the arm `whole` must exceed for the claim to be judged; otherwise there is no gain to
    keep."""

    @property
    def has_bound(self) -> bool:
        """Return whether the effect is never `equivalent`: one share, or a difference of shares with a bound."""
        return self.than_of is None or bool(self.at_least)


class Optimum(Contrast):
    """Contrast that tests whether the maximum of a curve over arms lies above or below a bound, or between two
    bounds. The curve must have a maximum."""

    ARMS = ("arms",)

    kind: Literal["optimum"]
    of: Quantity
    """Quantity whose maximum is sought."""
    arms: dict[str, float] = Field(json_schema_extra={"minProperties": 4})
    """Position of each arm on the horizontal axis; at least four arms."""
    scale: Literal["linear", "log_odds"] = "linear"
    """Scale of the positions. On this scale a parabola is fitted, and the effect is a distance."""
    above: float | None = None
    """Lower bound of the position of the maximum."""
    below: float | None = None
    """Upper bound of the position of the maximum. At least one of the two bounds must be given."""
    smallest_bend: Positive
    """The smallest drop from the maximum to the ends of the curve that matters."""

    @property
    def has_bound(self) -> bool:
        return True

    @property
    def bounds(self) -> dict[str, float]:
        """Bounds that are given, by the name of their setting."""
        return {name: bound for name in ("above", "below") if (bound := getattr(self, name)) is not None}

    @model_validator(mode="after")
    def _places_on_the_scale(self) -> Self:
        if len(self.arms) < 4:
            raise ValueError(f"must have at least four arms, each with its place, but has {len(self.arms)}")
        if not self.bounds:
            raise ValueError("must have a bound of its place: above, below or both")
        places = [*self.arms.values(), *self.bounds.values()]
        if self.scale == "log_odds" and not all(0 < place < 1 for place in places):
            raise ValueError("has the scale log_odds, so all its places must be between 0 and 1")
        if self.above is not None and self.below is not None and self.above >= self.below:
            raise ValueError(f"must have above less than below, but has {self.above} and {self.below}")
        return self

    def repeated_arms(self) -> Iterator[tuple[KeyPath, str]]:
        """Yield an error for each place that two arms share."""
        places = [format(place, "g") for place in self.arms.values()]
        yield from ((("arms",), f".arms must have different places, but {times}") for times in repeated(places))


class Ahead(Contrast):
    """Contrast that tests whether the learning curve of one arm is above that of another arm at every
    checkpoint."""

    ARMS = ("arm", "over")

    kind: Literal["ahead"]
    of: Quantity
    """Quantity of the curves, at every checkpoint."""
    arm: str
    """The arm whose curve is above."""
    over: str
    """The arm whose curve is below."""
    since: float = Field(0.0, ge=0, lt=1)
    """Share of training from which on the curve must be above."""

    def repeated_arms(self) -> Iterator[tuple[KeyPath, str]]:
        """Yield an error if both arms are the same."""
        if self.over == self.arm:
            yield ("over",), f".over is the same arm as arm ({self.arm}); name another arm"


class Apart(Contrast):
    """Contrast of distances between runs of different seeds: two arms are further apart than two seeds of one
    arm, or than two other arms."""

    ARMS = ("pairs", "than")

    kind: Literal["apart"]
    metric: str
    """Metric of the measure run_distance, whose setting `across_seeds` must be true."""
    pairs: Annotated[tuple[Pair, ...], _AT_LEAST_ONE]
    """Pairs of arms that are further apart according to the claim."""
    than: Annotated[tuple[Pair, ...], Field(strict=False)] = ()
    """Pairs of arms that are closer together; if empty, pairs of seeds of each arm."""
    from_layer: int = Field(1, ge=0)
    """Lowest layer that enters the mean over layers."""

    def quantities_at(self) -> Iterator[tuple[KeyPath, Quantity]]:
        yield (), Quantity(measure="run_distance", metric=self.metric)

    def repeated_arms(self) -> Iterator[tuple[KeyPath, str]]:
        """Yield an error for each pair of an arm with itself, and for pairs that are named twice."""
        for key, key_pairs in (("pairs", self.pairs), ("than", self.than)):
            for index, (first, second) in enumerate(key_pairs):
                if first == second:
                    remedy = "; to compare with seeds of one arm, leave than out" if key == "than" else ""
                    yield (key, index), f".{key} must pair different arms, but has {first} twice{remedy}"
        pairs = [frozenset(pair) for pair in (*self.pairs, *self.than)]
        if any(first == second and len(first) > 1 for first, second in combinations(pairs, 2)):
            yield ("pairs",), " has the same pair of arms twice in pairs and than; name each pair once"


Effect = Annotated[Difference | Trend | Shape | Share | Optimum | Ahead | Apart, Field(discriminator="kind")]

EFFECT: TypeAdapter[Effect] = TypeAdapter(Effect)
"""Validator of a single effect."""


def used_by(effects: Iterable[Contrast]) -> dict[str, tuple[str, ...]]:
    """Return the names of the arms and of the measures that effects use, each once, by the key of `Needs`."""
    effects = list(effects)
    return {
        "arms": tuple(dict.fromkeys(arm for effect in effects for arm in effect.arms_needed())),
        "measures": tuple(dict.fromkeys(of.measure for effect in effects for of in effect.quantities())),
    }


class Needs(Settings):
    """Requirements of a claim: arms, measures and seeds that an experiment must have to judge it."""

    arms: tuple[ArmName, ...] = Field((), strict=False)
    """Names of arms; those of the deciding effects and the conditions unless given."""
    measures: tuple[str, ...] = Field((), strict=False)
    """Names of measures; those of the deciding effects and the conditions unless given."""
    seeds: int | None = Field(None, ge=3)
    """Number of seeds that the claim needs, given the published numbers and the usual spread, if it is more
    than six."""
    spec: str = ""
    """Spec that has all these arms and measures, such as `unmasking.yaml`. If a spec lacks some of them,
    the reason why the claim is not run names this spec."""


class Claim(Settings):
    """Claim: one statement that runs can support or refute."""

    name: SmallName
    """Short name, unique in an experiment."""
    number: Annotated[int, Field(ge=1)] | Annotated[str, Field(pattern=r"^[1-9]\d*[a-z]$")] | None = None
    """Number of the claim in its source, if the source numbers its claims; with a letter for a part of a
    claim, such as 2b."""
    says: str
    """The statement in one sentence."""
    source: str
    """Paper or article that says so, and the place in it."""
    published: str = ""
    """The published number, if there is one."""
    needs: Needs = Field(default_factory=Needs)
    """Arms and measures that the claim needs: exactly those of its deciding effects and its conditions, from which
    they are taken if they are left out."""
    effect: Effect | None = None
    """Contrast that decides the claim."""
    effects: dict[SmallName, Effect] | None = Field(None, json_schema_extra={"minProperties": 2})
    """Contrasts of a statement with several parts, by name. The claim holds only if all of them do."""
    provided: dict[SmallName, Effect] = Field({})
    """Conditions without which the claim means nothing, such as that a model has learned its own task. If one
    fails, the verdict is `not testable here`. A condition cannot refute the claim."""
    beside: dict[SmallName, Effect] = Field({})
    """Effects that are shown beside the claim if they are measured; they do not affect the verdict."""
    smallest_effect: Positive
    """The smallest effect that matters, in the unit of the effect. If the effect is surely smaller in both
    directions, the verdict is `equivalent`. Claims with a bound (`at_least`, `at_most`, those of an optimum)
    are never `equivalent`. For them this number only helps to plan the number of seeds."""
    expect: Expected
    """The verdict that the literature suggests."""
    because: str
    """Reason for the expected verdict, with numbers from the literature."""
    family: SmallName
    """Name of a family of claims that are judged together. The more claims it has, the more evidence each
    needs (Bonferroni)."""

    @model_validator(mode="after")
    def _fill_needs(self) -> Self:
        used = used_by([*self.parts.values(), *self.provided.values()])
        missing = {key: names for key, names in used.items() if not getattr(self.needs, key)}
        object.__setattr__(self, "needs", self.needs.model_copy(update=missing))  # settings are frozen
        return self

    @property
    def parts(self) -> dict[str, Effect]:
        """Return the effects that decide, by name; a single effect has the name of the claim."""
        return {self.name: self.effect} if self.effect else dict(self.effects or {})


class ClaimFile(Settings):
    """A file of claims."""

    version: Literal[1]
    """The format of this file, always 1."""
    claims: Annotated[tuple[Claim, ...], Field(min_length=1, strict=False)]
    """List of the claims of the file."""
