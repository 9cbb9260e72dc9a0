"""Settings of an experiment spec: its question, arms, seeds and measures.

A spec writes only what it decides. This module keeps its sections as they were written. `ablations.spec.grid`
merges them with those of the arms; `lightning_modules.config` validates them and fills in defaults.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from ablations.catalogue import Measure
from ablations.errors import KeyPath
from ablations.measures.settings import refuse_repeated
from ablations.spec.figures import FigureName
from ablations.tasks.settings import mismatched_baselines
from ablations.wording import listed, shown
from lightning_modules.config import RunSettings, Settings
from lightning_modules.config.run import Preset

SECTIONS = ("data", "encoder", "objective", "training", "init")
"""Sections of a spec with the settings of a run. The seed is not among them, since it is a replicate and no
setting."""

WRITTEN = ("preset", *SECTIONS)
"""Keys of a spec or an arm that decide what a run computes."""

LONGEST_NAME = 200
"""Largest number of characters of a name. File systems stop at 255 bytes, and a run's folder adds its seed
and its identity."""


# Names -----------------------------------------------------------------------------------------------


def _folder_name(name: str, *, pattern: str, characters: str) -> str:
    if re.fullmatch(pattern, name) and len(name) <= LONGEST_NAME:
        return name
    raise ValueError(
        f"must consist of {characters} and start with a letter or a digit ({LONGEST_NAME} characters at most), "
        f"but is {shown(name)}"
    )


def _not_empty(question: str) -> str:
    if not question.strip():
        raise ValueError("must not be empty; write the question of the comparison, or leave it out")
    return question


def _experiment_name(name: str) -> str:
    if name in ("runs", "tokens"):
        raise ValueError(
            f"must not be {name}, because the output root has a folder of this name for all {name}; choose "
            "another name"
        )
    return name


_SMALL, _OF_ARM = "[a-z0-9][a-z0-9._-]*", "[A-Za-z0-9][A-Za-z0-9._+=,-]*"
SmallName = Annotated[
    str,
    AfterValidator(partial(_folder_name, pattern=_SMALL, characters="letters a-z, digits and ._-")),
    Field(json_schema_extra={"pattern": f"^{_SMALL}$"}),
]
ArmName = Annotated[
    str,
    AfterValidator(partial(_folder_name, pattern=_OF_ARM, characters="letters a-z and A-Z, digits and ._+=,-")),
    Field(json_schema_extra={"pattern": f"^{_OF_ARM}$"}),
]
"""Name of an arm. It may have the characters of generated names, as in ``mlm,ratio=0.4,norm=pre``."""


# Lists -----------------------------------------------------------------------------------------------


def _each_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    refuse_repeated(values)
    return values


def each_kind_once(measures: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the measures. A kind that occurs twice is an error, since its rows could not be told apart."""
    remedy = "give it once, and write other settings, such as another treebank, into another file"
    refuse_repeated((measure.kind for measure in measures), remedy=remedy)
    return measures


_EXAMPLES_OF = ("effort", "examples")


def _written_alone(key: str, first: Any, second: Any) -> tuple[Any, str] | None:
    """Return the value of a setting of two measures, and the measure that lacks this value; None if both have the
    same. If both were given one, it is that of the first."""
    if getattr(first, key) == getattr(second, key):
        return None
    giver, lacking = (first, second) if key in first.model_fields_set else (second, first)
    return getattr(giver, key), lacking.kind


def _fair_baselines(measures: tuple[Any, ...]) -> tuple[Any, ...]:
    if (unlike := mismatched_baselines(measures)) is not None:
        kind, task = unlike
        settings = {measure.kind: measure for measure in measures}
        changes = [
            f"set `{key}: {value}` in {lacking}"
            for key in _EXAMPLES_OF
            if (written := _written_alone(key, settings[kind], settings["baselines"])) is not None
            for value, lacking in [written]
        ]
        remedy = (
            f"{listed(changes, 'and')} too, or name other tasks for baselines"
            if changes
            else f"their effort and examples are the same, but {kind} takes other examples by itself; name other "
            f"tasks for baselines or for {kind}"
        )
        raise ValueError(
            f"must use the same examples of {task} for baselines as for {kind}, because they are compared; "
            f"{remedy}"
        )
    return measures


def _same_length(lists: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    if len({len(values) for values in lists.values()}) > 1:
        lengths = listed([f"{path} has {len(values)}" for path, values in lists.items()], "and")
        raise ValueError(
            f"must have lists of equal length, but {lengths}; write equally many values for each, or vary them "
            "under axes"
        )
    return lists


def _storable(seed: int) -> int:
    if seed >= 2**63:
        raise ValueError(f"must fit into 64 bits, as tables store it, but is {seed}")
    return seed


_LISTED = Field(strict=False)
"""Field of a tuple that YAML writes as a list, which strict pydantic would refuse."""
_DISTINCT = Field(strict=False, json_schema_extra={"uniqueItems": True})
_AT_LEAST_ONE = Field(min_length=1)

Seed = Annotated[int, Field(ge=0), AfterValidator(_storable)]
AxisValues = Annotated[tuple[Any, ...], _AT_LEAST_ONE, _DISTINCT, AfterValidator(_each_once)]
PairedValues = Annotated[tuple[Any, ...], _AT_LEAST_ONE, _LISTED]
Section = dict[str, Any]
"""Content of a section, or of the part of it that was written."""


# The spec --------------------------------------------------------------------------------------------


class Sections(Settings):
    """Base class of specs and of arms. Both may write a section in full, in part or not at all."""

    preset: Preset = "bert"
    """Published model whose settings are used: `bert`, which are the defaults, or `voita-2019`, the public
    code of the authors of Voita et al. 2019. Settings that the spec writes take precedence."""
    data: Section = Field(default_factory=dict)
    """Text of the runs: the built-in language, local files or a data set of the hub."""
    encoder: Section = Field(default_factory=dict)
    """Shape of the encoder that all objectives share."""
    objective: Section = Field(default_factory=dict)
    """Objective that the encoder is trained with."""
    training: Section = Field(default_factory=dict)
    """Number and size of steps, and optimiser."""
    init: Section = Field(default_factory=dict)
    """Model that runs start from: a local Hugging Face folder."""

    def written(self) -> dict[str, Section]:
        """Return the preset and the sections that were written, by name."""
        return {name: getattr(self, name) for name in WRITTEN if name in self.model_fields_set}


class Overrides(Sections):
    """Sections that an arm changes; `{}` is an arm with the spec's own sections."""


class Grid(Settings):
    """Grid of generated arms: `base` with each combination of values."""

    base: str
    """Name of the arm to vary."""
    axes: dict[str, AxisValues] = Field(default_factory=dict)
    """Values of each setting, as in `{objective.masking.ratio: [0.15, 0.4]}`; every combination is an arm."""
    zip: Annotated[dict[str, PairedValues], AfterValidator(_same_length)] = Field(default_factory=dict)
    """Settings that change together: lists of equal length, paired entry by entry, as in
    `{encoder.hidden_size: [64, 128], encoder.num_attention_heads: [2, 4]}`."""
    exclude: Annotated[tuple[Section, ...], _LISTED] = ()
    """Combinations to leave out: each entry names some of the settings and a value of each, as in
    `[{objective.masking.ratio: 0.8, encoder.hidden_size: 64}]`."""


class Range(Settings):
    """Range of numbers that a search may try, from `low` to `high`."""

    low: int | float
    """The smallest number."""
    high: int | float
    """The largest number."""
    log: bool = False
    """Whether numbers are drawn evenly on a logarithmic scale, as suits learning rates."""

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if not self.low < self.high or (self.log and self.low <= 0):
            above = " and above 0, because its logarithm is drawn" if self.log else ""
            raise ValueError(f"must have a low below high{above}, but has {self.low} and {self.high}")
        return self


def _two_or_more(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(values) < 2:
        raise ValueError(f"must have at least two values to choose from, but has {len(values)}")
    return values


Searched = Annotated[
    Annotated[tuple[Any, ...], _DISTINCT, AfterValidator(_two_or_more), AfterValidator(_each_once), Tag("values")]
    | Annotated[Range, Tag("range")],
    Discriminator(lambda written: "range" if isinstance(written, dict | Range) else "values"),
]
"""Values of a setting that a search tries: a list, or a range."""


class Tune(Settings):
    """Search for the settings with the lowest validation loss, for each arm, before its runs."""

    settings: Annotated[dict[str, Searched], _AT_LEAST_ONE]
    """Values to try, by setting. Each setting is one of `training` or `encoder`, as in
    `{training.learning_rate: [5e-4, 1e-3, 2e-3]}`. With a `budget` a range of numbers is possible too, as in
    `{training.learning_rate: {low: 1e-4, high: 1e-2, log: true}}`."""
    arms: Annotated[tuple[str, ...] | None, _DISTINCT] = None
    """Arms that are tuned, each by itself; all arms that are trained unless given."""
    seeds: Annotated[tuple[Seed, ...], _AT_LEAST_ONE, _DISTINCT, AfterValidator(_each_once)] = (1000,)
    """Seeds of the trials, which must not be seeds of the experiment. The loss of a trial is the mean over
    them."""
    part_of_steps: float = Field(0.25, gt=0, le=1)
    """Share of an arm's training steps that a trial takes; its warm-up is shortened in proportion."""
    budget: int | None = Field(None, ge=1)
    """Number of trials of all arms together, divided equally among the arms. Optuna chooses them one after
    the other (TPE: Bergstra et al. 2011). Without a budget every combination of the values is tried."""


class SeedsUntilDecided(Settings):
    """Seeds that are added until claims are decided: after each look at the claims, arms with open claims get
    more."""

    first: int = Field(ge=3)
    """Number of seeds of every arm at the first look at the claims."""
    up_to: int = Field(ge=4, le=1000)
    """Number of seeds of an arm at the last look."""
    until: Literal["decided"]
    """Always `decided`: an arm gets more seeds while a claim about it has no verdict."""
    start: Annotated[int, Field(ge=0, lt=2**62)] = 0
    """The first seed; the others are the numbers after it."""
    pilot: str | None = None
    """Folder of results of an earlier experiment with the same arms, relative to the folder of the spec, as
    `results/pilot`. From it `ablate plan` reads how much seeds differ, and says which claims this many seeds
    can decide."""

    @model_validator(mode="after")
    def _has_two_looks(self) -> Self:
        if self.up_to <= self.first:
            raise ValueError(
                f"must have an up_to above first, but has {self.up_to} and {self.first}; for a fixed number of "
                "seeds write them as a list, as in [0, 1, 2]"
            )
        return self

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Return every seed that an arm may get, in order."""
        return tuple(range(self.start, self.start + self.up_to))

    @property
    def looks(self) -> tuple[int, ...]:
        """Return the number of seeds at each look, from `first` to `up_to`, each about a quarter larger than
        the one before."""
        steps = math.ceil(math.log(self.up_to / self.first) / math.log(1.25))
        ratio = self.up_to / self.first
        return tuple(sorted({round(self.first * ratio ** (step / steps)) for step in range(steps + 1)}))


ListedSeeds = Annotated[tuple[Seed, ...], _AT_LEAST_ONE, _DISTINCT, AfterValidator(_each_once)]
Seeds = Annotated[
    Annotated[ListedSeeds, Tag("list")] | Annotated[SeedsUntilDecided, Tag("seedsuntildecided")],
    Discriminator(
        lambda written: "seedsuntildecided" if isinstance(written, dict | SeedsUntilDecided) else "list"
    ),
]
"""Seeds of an experiment: a list, or as many as its claims need."""


class Experiment(Sections):
    """An experiment: a question, the arms that are compared, and the seeds that repeat each of them."""

    name: Annotated[
        SmallName, AfterValidator(_experiment_name), Field(json_schema_extra={"not": {"enum": ["runs", "tokens"]}})
    ]
    """Names the folder of the results: lower-case letters, digits, dots, underscores and hyphens."""
    version: Literal[1]
    """The format of this file, always 1."""
    question: Annotated[str, AfterValidator(_not_empty)] = Field("", validate_default=False)
    """Question of the experiment, in one sentence."""
    arms: Annotated[dict[ArmName, Overrides], _AT_LEAST_ONE]
    """The settings under comparison, by name. Each arm writes how it differs from the spec's own sections."""
    grid: Grid | None = None
    """Further arms, which are generated from one of `arms`."""
    tune: Tune | None = None
    """Search for each arm's best settings before its runs."""
    seeds: Seeds
    """The replicates of every arm. Either a list, or `{first: 3, up_to: 20, until: decided}`, which adds
    seeds to arms with open claims. A seed is never a factor."""
    match: Literal["steps", "predictions", "flops"] = "steps"
    """Quantity that is equal in all arms: training steps, predicted tokens, or operations (FLOPs). For the
    last two, the first arm has the steps of the spec, and the steps of the other arms are set to match it."""
    measures: Annotated[
        tuple[Measure, ...], _DISTINCT, AfterValidator(each_kind_once), AfterValidator(_fair_baselines)
    ] = ()
    """Measures that are computed from the checkpoints: names, or mappings with a kind and its settings."""
    claims: Annotated[tuple[SmallName, ...], _DISTINCT, AfterValidator(_each_once)] = ()
    """Files of claims in `claims/` beside the specs, without their ending. They state which results are
    expected."""
    published: Annotated[tuple[SmallName, ...], _DISTINCT, AfterValidator(_each_once)] = ()
    """Files of published curves in `published/` beside the specs, without their ending. Figures draw them
    beside the curves of arms with the same objective."""
    figures: Annotated[tuple[FigureName, ...], _DISTINCT, AfterValidator(_each_once)] = ()
    """Your own figures, as in `my_figure.py:LossByChange`. The page shows them after its other figures."""

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Return every seed that a run may have, in order."""
        return self.seeds.all_seeds if isinstance(self.seeds, SeedsUntilDecided) else self.seeds


# Arms and runs of a spec -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Arm:
    """Arm of a spec: one setting under comparison, without defaults."""

    name: str
    sections: Mapping[str, Any]
    """Sections of the spec, merged with those of the arm."""
    origins: tuple[Mapping[KeyPath, KeyPath], ...]
    """Places in the spec where the settings were written: one mapping for each layer of changes, the last
    layer first."""

    def changed(self, name: str, changes: Mapping[str, Any], origin: Mapping[KeyPath, KeyPath]) -> "Arm":
        """Return an arm that differs from this one by ``changes``. ``origin`` has the place in the spec of each
        changed key.

        Mappings are merged; other values are replaced. A mapping whose ``kind`` changes is replaced whole,
        because settings of one kind mean nothing for another.
        """
        return Arm(name, merged(self.sections, changes), (origin, *self.origins))


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(below)
    for key, value in above.items():
        old = below.get(key)
        if isinstance(old, str) and isinstance(value, dict):
            old = {"kind": old}  # the short form of a mapping that has only its kind
        if isinstance(old, dict) and isinstance(value, dict) and _same_kind(old, value):
            value = merged(old, value)
        both[key] = value
    return both


def _same_kind(below: dict[str, Any], above: dict[str, Any]) -> bool:
    return "kind" not in below or "kind" not in above or below["kind"] == above["kind"]


def nodes(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of every key and entry inside ``value``, parents before children; ``value`` itself has
    none."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from nodes(inner, (*path, key))


@dataclass(frozen=True)
class Run:
    """Run of an experiment: one arm with one seed."""

    arm: str
    seed: int
    settings: RunSettings
    """Settings that decide what the run computes, with the seed."""
