"""The form of an experiment spec: its question, its arms, its seeds.

A spec writes only what it decides. Its sections stay here as they were written. `ablations.spec.grid` lays arms
over them; `lightning_modules.config` says what they may hold and fills in what they leave out.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from ablations.catalogue import Measure
from ablations.errors import KeyPath
from ablations.spec.figures import FigureName
from ablations.tasks.settings import beside_others
from ablations.wording import listed, refuse_repeated, shown
from lightning_modules.config import RunSettings, Settings
from lightning_modules.config.run import Preset

SECTIONS = ("data", "encoder", "objective", "training", "init")
"""The parts of a run that a spec writes. What is left, the seed, is a replicate and no setting."""

WRITTEN = ("preset", *SECTIONS)
"""Keys of a spec or an arm that decide what a run computes."""

LONGEST_NAME = 200
"""Characters. File systems stop at 255 bytes, and a run's folder adds its seed and its identity."""


# Names -----------------------------------------------------------------------------------------------


def _folder_name(name: str, pattern: str, characters: str) -> str:
    if re.fullmatch(pattern, name) and len(name) <= LONGEST_NAME:
        return name
    raise ValueError(
        f"must consist of {characters} and start with a letter or a digit ({LONGEST_NAME} characters at most), "
        f"because it names a folder, but is {shown(name)}"
    )


def _small_name(name: str) -> str:
    return _folder_name(name, "[a-z0-9][a-z0-9._-]*", "lower-case letters, digits and ._-")


def _arm_name(name: str) -> str:
    return _folder_name(name, "[A-Za-z0-9][A-Za-z0-9._+=,-]*", "letters, digits and ._+=,-")


def _not_empty(question: str) -> str:
    if not question.strip():
        raise ValueError("must not be empty; write what the comparison is to find out, or leave it out")
    return question


def _experiment_name(name: str) -> str:
    if name in ("runs", "tokens"):
        raise ValueError(f"must not be {name}: beside the experiments, a folder of this name holds all {name}")
    return name


SmallName = Annotated[
    str, AfterValidator(_small_name), Field(json_schema_extra={"pattern": "^[a-z0-9][a-z0-9._-]*$"})
]
ArmName = Annotated[
    str, AfterValidator(_arm_name), Field(json_schema_extra={"pattern": "^[A-Za-z0-9][A-Za-z0-9._+=,-]*$"})
]
"""Name of an arm. It has the characters of generated names too, as in ``mlm,ratio=0.4,norm=pre``."""


# Lists -----------------------------------------------------------------------------------------------


def _each_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    refuse_repeated(values)
    return values


def each_kind_once(measures: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the measures, if no kind occurs twice: their rows could not be told apart."""
    refuse_repeated(measure.kind for measure in measures)
    return measures


def _fair_baselines(measures: tuple[Any, ...]) -> tuple[Any, ...]:
    if (unlike := beside_others(measures)) is not None:
        kind, task = unlike
        raise ValueError(
            f"must take the same examples of {task} for baselines as for {kind}, beside which they stand; give "
            f"both the same effort and examples, or let baselines name other tasks"
        )
    return measures


def _same_length(lists: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    if len({len(values) for values in lists.values()}) > 1:
        lengths = listed([f"{path} has {len(values)}" for path, values in lists.items()], "and")
        raise ValueError(
            f"must pair lists of one length, but {lengths}; write as many values for each, or vary them under axes"
        )
    return lists


def _storable(seed: int) -> int:
    if seed >= 2**63:
        raise ValueError(f"must fit into 64 bits, as tables store it, but is {seed}")
    return seed


_LISTED = Field(strict=False)
"""For a tuple that is written as a list; strict pydantic would take nothing but a tuple."""
_DISTINCT = Field(strict=False, json_schema_extra={"uniqueItems": True})
_SOME = Field(min_length=1)

Seed = Annotated[int, Field(ge=0), AfterValidator(_storable)]
AxisValues = Annotated[tuple[Any, ...], _SOME, _DISTINCT, AfterValidator(_each_once)]
PairedValues = Annotated[tuple[Any, ...], _SOME, _LISTED]
Section = dict[str, Any]
"""A section, or the part of it that was written."""


# The spec --------------------------------------------------------------------------------------------


class Sections(Settings):
    """Base class of what writes the parts of a run, each whole, in part or not at all."""

    preset: Preset = "bert"
    """Settings of a published model: `bert`, which are the defaults, or `voita-2019`, the public code of the
    authors of Voita et al. 2019. A setting that is written as well takes precedence."""
    data: Section = Field(default_factory=dict)
    """The text: built in, local files or the hub."""
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
    """Changes of an arm; `{}` is the arm that the spec's own sections describe."""


class Grid(Settings):
    """Arms that are generated: `base` with each combination of values."""

    base: str
    """Name of the arm to vary."""
    axes: dict[str, AxisValues] = Field(default_factory=dict)
    """Setting to values, as in `{objective.masking.ratio: [0.15, 0.4]}`; every combination is an arm."""
    zip: Annotated[dict[str, PairedValues], AfterValidator(_same_length)] = Field(default_factory=dict)
    """Settings that change together: lists of one length, paired entry by entry, as in
    `{encoder.hidden_size: [64, 128], encoder.num_attention_heads: [2, 4]}`."""
    exclude: Annotated[tuple[Section, ...], _LISTED] = ()
    """Combinations to leave out: each entry names some of the settings and a value of each, as in
    `[{objective.masking.ratio: 0.8, encoder.hidden_size: 64}]`."""


class Range(Settings):
    """Numbers that a search may try: all from `low` to `high`."""

    low: int | float
    """The smallest."""
    high: int | float
    """The largest."""
    log: bool = False
    """Whether the logarithm is drawn evenly, as suits learning rates."""

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if not self.low < self.high or (self.log and self.low <= 0):
            above = " and above 0, as its logarithm is drawn" if self.log else ""
            raise ValueError(f"must have a low below high{above}, but has {self.low} and {self.high}")
        return self


def _two_or_more(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(values) < 2:
        raise ValueError(f"must have two values or more to choose from, but has {len(values)}")
    return values


Searched = Annotated[
    Annotated[tuple[Any, ...], _DISTINCT, AfterValidator(_two_or_more), AfterValidator(_each_once), Tag("values")]
    | Annotated[Range, Tag("range")],
    Discriminator(lambda written: "range" if isinstance(written, dict | Range) else "values"),
]
"""Values that a search tries of a setting."""


class Tune(Settings):
    """Search for the settings that give each arm its lowest validation loss, before its runs."""

    settings: Annotated[dict[str, Searched], _SOME]
    """Values to try, by setting; one of `training` or `encoder`, as in
    `{training.learning_rate: [5e-4, 1e-3, 2e-3]}`; with a `budget` also a range of numbers, as in
    `{training.learning_rate: {low: 1e-4, high: 1e-2, log: true}}`."""
    arms: Annotated[tuple[str, ...] | None, _DISTINCT] = None
    """Arms that are tuned, each by itself; all that are trained unless given."""
    seeds: Annotated[tuple[Seed, ...], _SOME, _DISTINCT, AfterValidator(_each_once)] = (1000,)
    """Seeds of the trials, none of them a seed of the experiment. An arm's loss is the mean over them."""
    part_of_steps: float = Field(0.25, gt=0, le=1)
    """Share of an arm's steps that a trial takes; its warm-up is the same share."""
    budget: int | None = Field(None, ge=1)
    """Number of trials of all arms together, as many for each arm. Optuna chooses them one after the other (TPE:
    Bergstra et al. 2011). Without a budget every combination of the values is tried."""


class SeedsUntilDecided(Settings):
    """Seeds that are added, look by look, to the arms whose claims are open."""

    first: int = Field(ge=3)
    """Seeds of every arm at the first look at the claims."""
    up_to: int = Field(ge=4, le=1000)
    """Seeds of an arm at the last look."""
    until: Literal["decided"]
    """Always `decided`: an arm gets more seeds while a claim about it has no verdict."""
    start: Annotated[int, Field(ge=0, lt=2**62)] = 0
    """The first seed; the others are the numbers after it."""
    pilot: str | None = None
    """Folder of results, from the folder of the spec, as `results/pilot`: an experiment with the same arms, from
    which `ablate plan` reads how much seeds differ, and tells which claims so many seeds can decide."""

    @model_validator(mode="after")
    def _has_two_looks(self) -> Self:
        if self.up_to <= self.first:
            raise ValueError(
                f"must have an up_to above first, but has {self.up_to} and {self.first}; for a fixed number of "
                "seeds write them as a list, as in [0, 1, 2]"
            )
        return self

    @property
    def all(self) -> tuple[int, ...]:
        """Return every seed that an arm may get, in order."""
        return tuple(range(self.start, self.start + self.up_to))

    @property
    def looks(self) -> tuple[int, ...]:
        """Return the number of seeds at each look: from the first to the last, about a quarter more each time."""
        steps = math.ceil(math.log(self.up_to / self.first) / math.log(1.25))
        ratio = self.up_to / self.first
        return tuple(sorted({round(self.first * ratio ** (step / steps)) for step in range(steps + 1)}))


ListedSeeds = Annotated[tuple[Seed, ...], _SOME, _DISTINCT, AfterValidator(_each_once)]
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
    arms: Annotated[dict[ArmName, Overrides], _SOME]
    """The settings under comparison, by name; each says how it differs from the spec's own sections."""
    grid: Grid | None = None
    """Further arms, generated from one of them."""
    tune: Tune | None = None
    """Search for each arm's best settings before its runs."""
    seeds: Seeds
    """The replicates of every arm; never a factor. A list; or `{first: 3, up_to: 20, until: decided}`, which adds
    seeds to the arms whose claims are open."""
    match: Literal["steps", "predictions", "flops"] = "steps"
    """Quantity that is equal in all arms: the steps of training; or the predicted tokens or the operations of the
    first arm in its steps, to which the steps of the others are set."""
    measures: Annotated[
        tuple[Measure, ...], _DISTINCT, AfterValidator(each_kind_once), AfterValidator(_fair_baselines)
    ] = ()
    """Measures that are computed from the checkpoints: names, or mappings with a kind and its settings."""
    claims: Annotated[tuple[SmallName, ...], _DISTINCT, AfterValidator(_each_once)] = ()
    """Files in `claims/` beside the specs, without their ending: what is expected to come out."""
    published: Annotated[tuple[SmallName, ...], _DISTINCT, AfterValidator(_each_once)] = ()
    """Files in `published/` beside the specs, without their ending: published curves, which figures draw beside
    those of the arms with the same objective."""
    figures: Annotated[tuple[FigureName, ...], _DISTINCT, AfterValidator(_each_once)] = ()
    """Figures of one's own, as in `my_figure.py:LossByChange`, which the page draws behind its own."""

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Return every seed that a run may have, in order."""
        return self.seeds.all if isinstance(self.seeds, SeedsUntilDecided) else self.seeds


# What a spec comes to --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arm:
    """Arm: one setting under comparison, defaults not yet filled in."""

    name: str
    sections: Mapping[str, Any]
    """All that is written for it: the spec's own sections and what was laid over them."""
    origins: tuple[Mapping[KeyPath, KeyPath], ...]
    """Places in the spec where each setting was written, a mapping for every layer, the uppermost first."""

    def changed(self, name: str, changes: Mapping[str, Any], origin: Mapping[KeyPath, KeyPath]) -> "Arm":
        """Return an arm that differs from this one by ``changes``, which were written at ``origin``.

        Mappings merge, and anything else is replaced. A mapping whose ``kind`` changes is replaced whole: settings
        of masking have no meaning for translation.
        """
        return Arm(name, merged(self.sections, changes), (origin, *self.origins))


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(below)
    for key, value in above.items():
        old = below.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and _same_kind(old, value):
            value = merged(old, value)
        both[key] = value
    return both


def _same_kind(below: dict[str, Any], above: dict[str, Any]) -> bool:
    return "kind" not in below or "kind" not in above or below["kind"] == above["kind"]


def nodes(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of everything below ``value``, level by level of each branch; not that of ``value``
    itself."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from nodes(inner, (*path, key))


@dataclass(frozen=True)
class Run:
    """Run: an arm and a seed, which are trained."""

    arm: str
    seed: int
    settings: RunSettings
    """Settings that decide what the run computes, the seed included."""
