"""What a spec may say about tasks. No torch."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, field_validator
from pydantic_core import PydanticCustomError

from ablations.measures.settings import MeasureSettings
from ablations.tasks.catalogue import TASKS, Split, Task, chosen
from ablations.wording import listed, must_be

Effort = Literal["quick", "full"]

EXAMPLES: Mapping[Effort, int] = MappingProxyType({"quick": 1_000, "full": 10_000})
"""Training examples of every measure that trains, at most, unless a spec says otherwise."""


def _known(name: str) -> str:
    if name not in TASKS:
        raise ValueError(must_be(name, TASKS, one="a task"))
    return name


TaskName = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(TASKS)})]


class TaskSettings(MeasureSettings):
    """Base of what is scored on tasks."""

    effort: Effort = "full"
    """`quick` takes a part of everything, to see that it works: no evidence."""
    tasks: tuple[TaskName, ...] | None = Field(None, min_length=1, strict=False)
    """Unless given, those that suit: of the built-in language where the text is the built-in language, of files
    elsewhere; with `quick`, few of them."""

    quick_tasks: ClassVar[tuple[str, ...]] = ()
    """The few."""

    @field_validator("tasks")
    @classmethod
    def _all_taken(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if unfit := {name: place for place, name in enumerate(names or ()) if not cls.takes(TASKS[name])}:
            taken = [name for name, task in TASKS.items() if cls.takes(task)]
            out = listed(list(unfit), "and")
            sentence = f"has {out}, but the measure takes {listed(taken, 'and')}; leave {out} out"
            context = {"sentence": sentence, "at": (min(unfit.values()),)}
            raise PydanticCustomError("sentence", "{sentence}", context)
        return names

    @classmethod
    def suits(cls, task: Task) -> bool:
        """Whether the measure is computed on a task where a spec names none."""
        raise TypeError(f"{cls.__name__} must say which tasks suit it")

    @classmethod
    def takes(cls, task: Task) -> bool:
        """Whether the measure can be computed on a task that a spec names: at least those that suit it."""
        return cls.suits(task)

    def parts(self, *, built_in: bool) -> tuple[Self, ...]:
        """The same settings for one task each, in the order of the catalogue or of the spec."""
        names = self.tasks or chosen(self.suits, built_in=built_in)
        if not self.tasks and self.effort == "quick":
            few = tuple(name for name in self.quick_tasks if name in names)
            names = few or names
        return tuple(self.model_copy(update={"tasks": (name,)}) for name in names)

    @property
    def task(self) -> Task:
        """The task of settings for one."""
        (name,) = self.tasks or ()
        return TASKS[name]


class TreesSettings(MeasureSettings):
    """Base of what is scored on dependency trees."""

    treebank: str | None = None
    """A treebank (CoNLL-U, or parquet with the columns text, tokens, upos, heads and deprels), for text of other
    kinds; the built-in language has trees of its own. Where something is trained, its sentences are divided among
    training, validation and test."""
    effort: Effort = "full"
    """`quick` takes a part of everything, to see that it works: no evidence."""

    @property
    def task(self) -> str:
        """The treebank's name: its folder, or the file without its ending where it has no folder."""
        if self.treebank is None:
            return "language"
        path = PurePath(self.treebank)
        return path.parent.name or path.name.split(".")[0]


class MinimalPairsSettings(TaskSettings):
    """How often an objective gives the grammatical half of a minimal pair the higher probability."""

    kind: Literal["minimal_pairs"]
    pairs: int | None = Field(None, ge=1)
    """Of each paradigm or case, at random; all unless given, with `quick` a tenth."""

    @classmethod
    def suits(cls, task: Task) -> bool:
        return task.kind == "minimal_pairs"


class PartSettings(TaskSettings):
    """Base of what learns from a part of a task, which `examples.part` takes."""

    examples: int | None = Field(None, ge=10)
    """Training examples at most; 10,000 unless given, with `quick` 1,000."""

    counts: ClassVar[Literal["examples", "words"]] = "examples"
    """What `most` counts where words have tags: sentences, or words."""

    def most(self, split: Split) -> int | None:
        """Examples of a split at most; None is all."""
        raise TypeError(f"{type(self).__name__} must say how much of a task it takes")

    def takes_what(self, other: "PartSettings") -> bool:
        """Whether it learns from the same examples of its task as another one, and is scored on the same."""
        same_units = self.task.kind != "tagging" or self.counts == other.counts
        return same_units and all(self.most(split) == other.most(split) for split in ("train", "test"))


class ProbingSettings(PartSettings):
    """What a linear classifier reads from frozen states, layer by layer, and from a learned mix of all."""

    kind: Literal["probing"]
    quick_tasks: ClassVar = ("bigram_shift", "tree_depth", "ud_pos", "language_parts_of_speech", "language_tense")
    examples: int | None = Field(None, ge=10)
    """Training sentences at most, or words of tagging; 10,000 unless given, with `quick` 1,000."""

    counts: ClassVar = "words"

    def most(self, split: Split) -> int | None:
        return None if split == "test" else self.examples or EXAMPLES[self.effort]

    @classmethod
    def suits(cls, task: Task) -> bool:
        return task.probe or task.name in ("ud_pos", "language_parts_of_speech")

    @classmethod
    def takes(cls, task: Task) -> bool:
        return task.kind in ("classification", "tagging")


class TransferSettings(PartSettings):
    """Base of frozen features and fine-tuning: the same head, both ways."""

    quick_tasks: ClassVar = (
        *("sst2", "mrpc", "wikigold"),
        *("language_topic", "language_same_document", "language_noun_phrases"),
    )
    seeds: int | None = Field(None, ge=1)
    """Repetitions, each with another initial head and order of examples; 5 unless given, with `quick` 3."""
    examples: int | None = Field(None, ge=10)
    """Training examples at most; 10,000 unless given, with `quick` 1,000 (and 1,000 of the other parts). Of the
    files here only SST-2 and the treebank have more, and seven times as many would take seven times as long."""
    learning_curve: tuple[Annotated[int, Field(ge=1)], ...] = Field((), strict=False)
    """Also from so many training examples, other ones in each repetition; numbers that a task does
    not have are left out."""
    epochs: int | None = Field(None, ge=1)
    """Over the training examples; 10 unless given, with `quick` 3; for frozen features, where one costs next to
    nothing and a head learns alone, 30 and 10. Few examples are shown more often: until there are 200 steps, with
    `quick` 60."""

    usual_epochs: ClassVar[tuple[int, int]]
    """Unless given; and with `quick`."""

    @property
    def repetitions(self) -> int:
        """How many."""
        return self.seeds or (3 if self.effort == "quick" else 5)

    @property
    def passes(self) -> int:
        """Epochs."""
        return self.epochs or self.usual_epochs[self.effort == "quick"]

    @property
    def least_steps(self) -> int:
        """Steps of a training."""
        return 60 if self.effort == "quick" else 200

    @property
    def rates(self) -> tuple[float, ...]:
        """Learning rates of the encoder that are tried."""
        return (0.0,)

    def most(self, split: Split) -> int | None:
        if split == "train":
            return self.examples or EXAMPLES[self.effort]
        return EXAMPLES["quick"] if self.effort == "quick" else None

    @classmethod
    def suits(cls, task: Task) -> bool:
        return task.kind != "minimal_pairs" and not task.probe

    @classmethod
    def takes(cls, task: Task) -> bool:
        return task.kind != "minimal_pairs"


class FrozenFeaturesSettings(TransferSettings):
    """Scores of a head on the states as pre-training left them."""

    kind: Literal["frozen_features"]
    usual_epochs: ClassVar = (30, 10)


class FineTuningSettings(TransferSettings):
    """Scores where the encoder is trained on the task with the head."""

    kind: Literal["fine_tuning"]
    usual_epochs: ClassVar = (10, 3)
    learning_rates: tuple[Annotated[float, Field(gt=0)], ...] = Field((), strict=False)
    """Of the encoder, tried with the first repetition; the best on the validation part is taken for all, and for
    the learning curve. 1e-4, 3e-4 and 1e-3 unless given, with `quick` the last two."""

    @property
    def rates(self) -> tuple[float, ...]:
        return self.learning_rates or ((3e-4, 1e-3) if self.effort == "quick" else (1e-4, 3e-4, 1e-3))


class BaselinesSettings(PartSettings):
    """Scores without any encoder: the most frequent answer, TF-IDF or words with a linear model, and of spans the
    same place in every context. They learn from the examples that probing, frozen features and fine-tuning take
    with this effort and so many examples."""

    kind: Literal["baselines"]
    quick_tasks: ClassVar = (*ProbingSettings.quick_tasks, *TransferSettings.quick_tasks)

    @property
    def beside(self) -> tuple[PartSettings, ...]:
        """The measures of one task that baselines stand beside, as they are with the same effort and examples:
        frozen features, which take what fine-tuning takes, or probing, or one after the other."""
        common: dict[str, Any] = {"effort": self.effort, "tasks": self.tasks, "examples": self.examples}
        measures: dict[str, type[PartSettings]] = {
            "frozen_features": FrozenFeaturesSettings,
            "probing": ProbingSettings,
        }
        return tuple(
            measure.model_validate({"kind": kind} | common)
            for kind, measure in measures.items()
            if measure.suits(self.task)
        )

    @classmethod
    def suits(cls, task: Task) -> bool:
        return task.kind != "minimal_pairs"


def beside_others(measures: Sequence[Any]) -> tuple[str, str] | None:
    """A measure and a task of which it takes other examples than the baselines that would stand beside it; None
    if there is none."""
    taking: list[Any] = [settings for settings in measures if isinstance(settings, PartSettings)]
    for baselines in (settings for settings in taking if isinstance(settings, BaselinesSettings)):
        for built_in in (False, True):
            own = {part.task.name: part.beside for part in baselines.parts(built_in=built_in)}
            for other in (settings for settings in taking if settings is not baselines):
                for part in other.parts(built_in=built_in):
                    there = own.get(part.task.name, ())
                    if there and not any(part.takes_what(beside) for beside in there):
                        return other.kind, part.task.name
    return None
