"""Settings of the measures of tasks. No torch, no mathematics."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, WrapValidator, field_validator

from ablations.errors import SpecProblems
from ablations.measures.settings import MeasureSettings
from ablations.tasks.datasets import TASKS, Split, Task, chosen, no_documents, task_called
from ablations.wording import guess, listed, must_be, shown
from lightning_modules import plugins
from lightning_modules.config import Data
from lightning_modules.config.settings import sentence_error
from lightning_modules.errors import PluginError

Effort = Literal["quick", "full"]

EXAMPLES: Mapping[Effort, int] = MappingProxyType({"quick": 1_000, "full": 10_000})
"""Largest number of training examples of every measure that trains, unless a spec gives another."""


def _known_task(name: str) -> str:
    if plugins.is_text(name):
        _read_task(name)
    elif name.endswith((".yaml", ".yml")):
        raise ValueError(
            'must be the name of a file without its folder, of letters, digits, ".", "_" and "-" and with the '
            f"ending .yaml, but is {shown(name)}; put the file beside the spec, or name it with --plugin"
        )
    elif name not in TASKS:
        of_file = "" if guess(name, TASKS) else "; name a task of your own by its file, such as my_task.yaml"
        raise ValueError(must_be(name, TASKS, noun="a task") + of_file)
    return name


def _read_task(name: str) -> Task:
    """Return the task that a file declares, or raise the error of a validator if the file is missing or wrong."""
    try:
        return task_called(name)
    except (PluginError, SpecProblems) as error:
        raise sentence_error(str(error).partition("\n")[0].removesuffix(".")) from error


TaskName = Annotated[
    str,
    AfterValidator(_known_task),
    Field(json_schema_extra={"anyOf": [{"enum": list(TASKS)}, {"pattern": f"^{plugins.TEXT}$"}]}),
]
"""Name of a task of the catalogue, or of a file that declares one."""


class TaskSettings(MeasureSettings):
    """Base class of measures of tasks."""

    effort: Effort = "full"
    """`quick` takes a part of everything, to see that it works. Its numbers are no evidence."""
    tasks: tuple[TaskName, ...] | None = Field(None, min_length=1, strict=False)
    """Tasks to measure. Default: the tasks that suit the measure, which are built-in ones if the text is the
    built-in language, and those of files otherwise. `quick` takes only a few of these."""

    quick_tasks: ClassVar[tuple[str, ...]] = ()
    """Tasks that `quick` takes by default."""

    @field_validator("tasks")
    @classmethod
    def _all_taken(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if unfit := {
            name: place for place, name in enumerate(names or ()) if not cls.can_measure(task_called(name))
        }:
            taken = [name for name, task in TASKS.items() if cls.can_measure(task)]
            out = listed(list(unfit), "and")
            sentence = f"has {out}, but this measure can use only {listed(taken, 'and')}; leave {out} out"
            raise sentence_error(sentence, at=(min(unfit.values()),))
        return names

    @classmethod
    def suits(cls, task: Task) -> bool:
        """Return whether the measure is computed on a task if a spec names none."""
        raise TypeError(f"{cls.__name__} must say which tasks suit it")

    @classmethod
    def can_measure(cls, task: Task) -> bool:
        """Return whether the measure can be computed on a task that a spec names; it can on all that suit it."""
        return cls.suits(task)

    def parts(self, *, built_in: bool) -> tuple[Self, ...]:
        """Return settings of one task each, in the order of the catalogue or of the spec."""
        names = self.tasks or chosen(self.suits, built_in=built_in)
        if not self.tasks and self.effort == "quick":
            few = tuple(name for name in self.quick_tasks if name in names)
            names = few or names
        return tuple(self.model_copy(update={"tasks": (name,)}) for name in names)

    @property
    def task_name(self) -> str:
        """Name of the task, if the settings are of one task as `parts` returns them."""
        (name,) = self.tasks or ()
        return name

    @property
    def task(self) -> Task:
        """Task, if the settings are of one task as `parts` returns them."""
        return task_called(self.task_name)


class TreesSettings(MeasureSettings):
    """Base class of measures of dependency trees."""

    treebank: str | None = None
    """A treebank, for text that is not the built-in language, which has trees of its own: CoNLL-U, or parquet
    with the columns text, tokens, upos, heads and deprels. If something is trained, its sentences are divided
    among training, validation and test."""
    effort: Effort = "full"
    """`quick` takes a part of everything, to see that it works. Its numbers are no evidence."""

    @property
    def treebank_name(self) -> str:
        """Name of the treebank: its folder, or the file without its ending if it has no folder; else
        `language`."""
        if self.treebank is None:
            return "language"
        path = PurePath(self.treebank)
        return path.parent.name or path.name.split(".")[0]


class PredictingSettings(TaskSettings):
    """Base class of measures that can keep the prediction for each example."""

    predictions: bool = False
    """Whether predictions for single examples are kept in predictions.parquet of the run, which `ablate diff`
    compares. This changes no number. A measure that was computed without predictions is computed again to
    have them."""


class MinimalPairsSettings(PredictingSettings):
    """Minimal pairs: the share of pairs in which an objective gives the grammatical sentence the higher
    probability."""

    kind: Literal["minimal_pairs"]
    pairs: int | None = Field(None, ge=1)
    """Number of pairs of each group, drawn at random. A group has one value in the last column of the task's
    `groups`: a paradigm of BLiMP, a case of LM-SynEval. A task without `groups` is one group. Default: all, and a
    tenth with `quick`."""

    @classmethod
    def suits(cls, task: Task) -> bool:
        return task.kind == "minimal_pairs"

    @staticmethod
    def group_of(task_name: str) -> str:
        """Return the group of a task's rows: its name, or `language` for the built-in language."""
        return task_name.removesuffix("_minimal_pairs")


class PartSettings(TaskSettings):
    """Base class of measures that learn from at most `most_examples` of a task, which `examples.part` draws."""

    examples: int | None = Field(None, ge=10)
    """Largest number of training examples. Default: 10,000, and 1,000 with `quick`."""

    counts: ClassVar[Literal["examples", "words"]] = "examples"
    """Unit of `most_examples` in tasks of tagging: sentences or words."""

    def most_examples(self, split: Split) -> int | None:
        """Return the largest number of examples of a split; None for all."""
        raise TypeError(f"{type(self).__name__} must say how much of a task it takes")

    def has_same_examples(self, other: "PartSettings") -> bool:
        """Return whether the measure learns from the same examples of its task as another measure, and is
        scored on the same ones."""
        same_units = self.task.kind != "tagging" or self.counts == other.counts
        return same_units and all(
            self.most_examples(split) == other.most_examples(split) for split in ("train", "test")
        )


class ProbingSettings(PartSettings, PredictingSettings):
    """Probes: linear classifiers of frozen states, layer by layer, and of a learned mix of all layers."""

    kind: Literal["probing"]
    quick_tasks: ClassVar = ("bigram_shift", "tree_depth", "ud_pos", "language_parts_of_speech", "language_tense")
    examples: int | None = Field(None, ge=10)
    """Largest number of training sentences, or of words in tasks of tagging. Default: 10,000, and 1,000 with
    `quick`."""

    counts: ClassVar = "words"

    def most_examples(self, split: Split) -> int | None:
        return None if split == "test" else self.examples or EXAMPLES[self.effort]

    @classmethod
    def suits(cls, task: Task) -> bool:
        of_tags = task.kind == "tagging" and task.metric == "accuracy" and plugins.is_text(task.name)
        return task.probe or of_tags or task.name in ("ud_pos", "language_parts_of_speech")

    @classmethod
    def can_measure(cls, task: Task) -> bool:
        return task.kind in ("classification", "tagging")


class TransferSettings(PartSettings, PredictingSettings):
    """Base class of frozen features and fine-tuning, which train the same head."""

    quick_tasks: ClassVar = (
        *("sst2", "mrpc", "wikigold"),
        *("language_topic", "language_same_document", "language_noun_phrases"),
    )
    seeds: int | None = Field(None, ge=1)
    """Number of repetitions, each with another initial head and order of examples. Default: 5, and 3 with
    `quick`."""
    examples: int | None = Field(None, ge=10)
    """Largest number of training examples. Default: 10,000, and 1,000 with `quick` (also of the other parts).
    Of the shipped tasks only SST-2 and the treebank have more. All of SST-2 would take seven times as
    long."""
    learning_curve: tuple[Annotated[int, Field(ge=1)], ...] = Field((), strict=False)
    """Numbers of training examples on which heads are also trained. Each repetition draws other examples.
    Numbers that a task does not have are left out."""
    epochs: int | None = Field(None, ge=1)
    """Number of epochs over the training examples. Default for fine-tuning: 10, and 3 with `quick`. Default
    for frozen features: 30, and 10 with `quick`, because an epoch costs next to nothing and a head learns
    alone. Few examples are shown more often, until there are 200 steps (60 with `quick`)."""

    usual_epochs: ClassVar[tuple[int, int]]
    """Default numbers of epochs: with `full`, and with `quick`."""

    @property
    def repetitions(self) -> int:
        """Number of repetitions of a training."""
        return self.seeds or (3 if self.effort == "quick" else 5)

    @property
    def epochs_wanted(self) -> int:
        """Number of epochs of a training."""
        return self.epochs or self.usual_epochs[self.effort == "quick"]

    @property
    def least_steps(self) -> int:
        """Smallest number of steps of a training."""
        return 60 if self.effort == "quick" else 200

    @property
    def rates(self) -> tuple[float, ...]:
        """Learning rates of the encoder that are tried; 0 for a frozen one."""
        return (0.0,)

    def most_examples(self, split: Split) -> int | None:
        if split == "train":
            return self.examples or EXAMPLES[self.effort]
        return EXAMPLES["quick"] if self.effort == "quick" else None

    @classmethod
    def suits(cls, task: Task) -> bool:
        return task.kind != "minimal_pairs" and not task.probe

    @classmethod
    def can_measure(cls, task: Task) -> bool:
        return task.kind != "minimal_pairs"


class FrozenFeaturesSettings(TransferSettings):
    """Frozen features: scores of a head on the states as pre-training left them."""

    kind: Literal["frozen_features"]
    usual_epochs: ClassVar = (30, 10)


class FineTuningSettings(TransferSettings):
    """Fine-tuning: scores of a head if the encoder is trained with it on the task."""

    kind: Literal["fine_tuning"]
    usual_epochs: ClassVar = (10, 3)
    learning_rates: tuple[Annotated[float, Field(gt=0)], ...] = Field((), strict=False)
    """Learning rates of the encoder. The first repetition tries all of them. The one that is best on the
    validation part is taken for all repetitions and for the learning curve. Default: 1e-4, 3e-4 and 1e-3,
    without the first with `quick`."""

    @property
    def rates(self) -> tuple[float, ...]:
        return self.learning_rates or ((3e-4, 1e-3) if self.effort == "quick" else (1e-4, 3e-4, 1e-3))


class BaselinesSettings(PartSettings):
    """Baselines without any encoder: the most frequent answer, TF-IDF or words with a linear model, and for
    spans the same place in every context. They learn from the examples that probing, frozen features and
    fine-tuning take with the same `effort` and `examples`."""

    kind: Literal["baselines"]
    quick_tasks: ClassVar = (*ProbingSettings.quick_tasks, *TransferSettings.quick_tasks)

    @property
    def compared_measures(self) -> tuple[PartSettings, ...]:
        """Settings of the measures whose scores baselines of one task are compared with, with the same effort
        and examples: frozen features (fine-tuning takes the same examples), probing, or both in this order."""
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


def mismatched_baselines(measures: Sequence[Any]) -> tuple[str, str] | None:
    """Return the kind of a measure and a task on which the measure and the baselines learn from different
    examples; None if there is no such pair."""
    learning: list[Any] = [settings for settings in measures if isinstance(settings, PartSettings)]
    for baselines in (settings for settings in learning if isinstance(settings, BaselinesSettings)):
        for built_in in (False, True):
            compared_by_task = {
                part.task_name: part.compared_measures for part in baselines.parts(built_in=built_in)
            }
            for other in (settings for settings in learning if settings is not baselines):
                for part in other.parts(built_in=built_in):
                    compared = compared_by_task.get(part.task_name, ())
                    if compared and not any(part.has_same_examples(measure) for measure in compared):
                        return other.kind, part.task_name
    return None


class StructuralProbeSettings(TreesSettings):
    """Structural probe: a linear map of a layer's states after which squared distances between words
    approximate distances in the dependency tree (Hewitt & Manning 2019)."""

    kind: Literal["structural_probe"]
    sentences: int | None = Field(None, ge=10)
    """Number of training sentences, drawn at random; all if there are fewer. Default: 10,000, and 2,000 with
    `quick`: with 500 a map of width 128 learns its sentences by heart. Validation takes at most as many
    sentences, and test at most 1,000."""
    longest: int = Field(40, ge=3)
    """Largest number of words of a sentence, without punctuation."""
    rank: int = Field(64, ge=1)
    """Rank of the map. It is at most the encoder's width."""

    @property
    def trees_wanted(self) -> dict[Split, int]:
        """Largest number of trees of each split."""
        count = self.sentences or {"quick": 2000, "full": 10_000}[self.effort]
        return {"train": count, "validation": count, "test": 1000}


class ParsingSettings(TreesSettings):
    """Trees without supervision, compared with the trees of a treebank. They join words of a sentence that
    depend on each other given all other words in a masked LM (conditional mutual information, by Gibbs
    sampling)."""

    kind: Literal["parsing"]
    sentences: int | None = Field(None, ge=2)
    """Number of sentences, drawn at random, the same in all arms and seeds; all if fewer are short enough.
    Default: 400, and 100 with `quick`."""
    sweeps: int | None = Field(None, ge=24)
    """Number of times that Gibbs sampling draws both tokens of a pair. Default: 2,000, and 50 with `quick`.
    Few sweeps underestimate the information of a pair."""
    longest: int = Field(10, ge=3)
    """Largest number of words of a sentence, without punctuation."""
    window: int = Field(10, ge=2)
    """Sub-words that stand this far apart, or farther, are taken to be independent. It counts sub-words, so a
    tokenizer with small pieces needs a larger one."""

    @property
    def trees_wanted(self) -> dict[Split, int]:
        """Largest number of trees of the only split."""
        return {"test": self.sentences or {"quick": 100, "full": 400}[self.effort]}

    @property
    def sweeps_wanted(self) -> int:
        return self.sweeps or {"quick": 50, "full": 2000}[self.effort]


class ConditionalIndependenceSettings(MeasureSettings):
    """Conditional independence: what it costs masked LM to predict two hidden neighbours as if they were
    independent of each other."""

    kind: Literal["conditional_independence"]
    effort: Effort = "full"
    """Decides the default of `sentences`: 300 with `quick`, 3,000 with `full`."""
    sentences: int | None = Field(None, ge=20)
    """Number of sentences from the start of the validation text, each with one pair; all if there are
    fewer."""
    ratios: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        (0.05, 0.15, 0.3, 0.4, 0.6, 0.8), min_length=1, strict=False
    )
    """Probabilities with which each token besides the pair is hidden too. Each has rows of its own."""

    @property
    def sentences_wanted(self) -> int:
        return self.sentences or {"quick": 300, "full": 3000}[self.effort]

    @staticmethod
    def group_of(ratio: float) -> str:
        """Return the group of the rows of a ratio, such as `ratio=0.15`."""
        return f"ratio={ratio:g}"


NEXT_SENTENCE = "next_sentence"

RetrievalTask = Literal["stsb", "sick_relatedness", "next_sentence"]


def _or_related(name: Any, built_in: Callable[[Any], Any]) -> Any:
    """Return the name of a built-in task, or that of a file whose task is regression of two texts."""
    if not plugins.is_text(name):
        return built_in(name)
    task = _read_task(name)
    if (task.kind, len(task.text)) != ("regression", 2):
        texts = f" of {len(task.text)} text" if task.kind == "regression" else ""
        raise sentence_error(
            f"must be a regression task with two texts for retrieval, but {name} is {task.kind}{texts}; leave it "
            "out"
        )
    return name


class RetrievalSettings(MeasureSettings):
    """Retrieval of texts that belong together, by the cosine of their mean states (bi-encoder) and by a head
    that reads both texts at once (cross-encoder)."""

    kind: Literal["retrieval"]
    tasks: tuple[Annotated[RetrievalTask, WrapValidator(_or_related)], ...] | None = Field(
        None, min_length=1, strict=False
    )
    """Tasks. `stsb`, `sick_relatedness` and tasks of your own: how related people judge two sentences.
    `next_sentence`: which sentence of the text follows another. Default: all, and only `next_sentence` if the
    text is the built-in language."""
    effort: Effort = "full"
    """Decides the defaults below. `quick`: 500 pairs, 200 candidates, 500 training pairs. `full`: all pairs,
    1,000 candidates, 5,000 training pairs."""
    pairs: int | None = Field(None, ge=10)
    """Number of pairs of each task of relatedness, drawn at random; all if there are fewer."""
    candidates: int | None = Field(None, ge=40)
    """Number of sentences of the validation text among which the next sentence is searched; all if there are
    fewer."""
    training_pairs: int | None = Field(None, ge=40)
    """Number of sentences of the training text, each with the next one, that the cross-encoder is trained on;
    all if there are fewer."""
    epochs: int = Field(3, ge=1)
    """Number of epochs over the training pairs."""
    learning_rate: float = Field(3e-4, gt=0)
    """Learning rate of the cross-encoder."""

    def parts(self, *, built_in: bool) -> tuple[Self, ...]:
        """Return settings of one task each."""
        all_tasks = (NEXT_SENTENCE,) if built_in else ("stsb", "sick_relatedness", NEXT_SENTENCE)
        return tuple(self.model_copy(update={"tasks": (name,)}) for name in self.tasks or all_tasks)

    @property
    def task_name(self) -> str:
        """Name of the task, if the settings are of one task as `parts` returns them."""
        (name,) = self.tasks or ()
        return name

    def problem(self, data: Data, data_root: Path) -> str | None:
        """Return why the task of these settings, which must be of one task, cannot be run with a text; None
        if it can."""
        if self.task_name == NEXT_SENTENCE:
            return no_documents(data, data_root)
        return task_called(self.task_name).problem(data_root)

    @property
    def pairs_wanted(self) -> int | None:
        """Number of pairs; None for all."""
        return self.pairs or {"quick": 500, "full": None}[self.effort]

    @property
    def candidates_wanted(self) -> int:
        return self.candidates or {"quick": 200, "full": 1000}[self.effort]

    @property
    def training_pairs_wanted(self) -> int:
        return self.training_pairs or {"quick": 500, "full": 5000}[self.effort]


class GenerationSettings(MeasureSettings):
    """Generation: fluency and diversity of sentences that a language model generates. A causal LM generates
    from left to right; a masked LM generates all tokens at once and then improves them (mask-predict)."""

    kind: Literal["generation"]
    effort: Effort = "full"
    """Decides the default of `sentences`: 200 with `quick`, 1,000 with `full`."""
    sentences: int | None = Field(None, ge=2)
    """Number of sentences to generate."""
    temperature: float = Field(1.0, gt=0)
    """Divisor of the logits before a token is drawn. 1 draws by the model's own probabilities."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Total probability of the most probable tokens, from which tokens are drawn (Holtzman et al. 2020)."""
    iterations: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 4, 10), min_length=1, strict=False)
    """Numbers of steps of mask-predict, ascending. Each generates sentences of its own. The last is the main
    one."""

    @field_validator("iterations")
    @classmethod
    def _ascending(cls, iterations: tuple[int, ...]) -> tuple[int, ...]:
        if list(iterations) != sorted(iterations):
            raise ValueError("must ascend, because the last number is the main one; put the numbers in order")
        return iterations

    @property
    def sentences_wanted(self) -> int:
        return self.sentences or {"quick": 200, "full": 1000}[self.effort]
