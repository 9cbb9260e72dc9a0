"""Settings of the measures of tasks. No torch, no mathematics."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, WrapValidator, field_validator
from pydantic_core import PydanticCustomError

from ablations.errors import SpecProblems
from ablations.measures.settings import MeasureSettings
from ablations.tasks.datasets import TASKS, Split, Task, chosen, no_documents, task_called
from ablations.wording import guess, listed, must_be
from lightning_modules import plugins
from lightning_modules.config import Data
from lightning_modules.errors import PluginError

Effort = Literal["quick", "full"]

EXAMPLES: Mapping[Effort, int] = MappingProxyType({"quick": 1_000, "full": 10_000})
"""Training examples of every measure that trains, at most, unless a spec says otherwise."""


def _schema(names: Iterable[str]) -> dict[str, Any]:
    """Return the form of the name of a task for editors: one of these, or that of a file."""
    return {"anyOf": [{"enum": list(names)}, {"pattern": f"^{plugins.TEXT}$"}]}


def _known_task(name: str) -> str:
    if plugins.is_text(name):
        _read_task(name)
    elif name not in TASKS:
        of_file = "" if guess(name, TASKS) else "; name a task of your own by its file, as my_task.yaml"
        raise ValueError(must_be(name, TASKS, one="a task") + of_file)
    return name


def _read_task(name: str) -> Task:
    """Return the task of a file of one's own, for a validator.

    Raises:
        PydanticCustomError: there is no such file, or something is wrong with it.
    """
    try:
        return task_called(name)
    except (PluginError, SpecProblems) as error:
        sentence = str(error).partition("\n")[0].removesuffix(".")
        raise PydanticCustomError("sentence", "{sentence}", {"sentence": sentence, "at": ()}) from error


TaskName = Annotated[str, AfterValidator(_known_task), Field(json_schema_extra=_schema(TASKS))]


class TaskSettings(MeasureSettings):
    """Base of the measures of tasks."""

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
        if unfit := {name: place for place, name in enumerate(names or ()) if not cls.takes(task_called(name))}:
            taken = [name for name, task in TASKS.items() if cls.takes(task)]
            out = listed(list(unfit), "and")
            sentence = f"has {out}, but the measure takes {listed(taken, 'and')}; leave {out} out"
            context = {"sentence": sentence, "at": (min(unfit.values()),)}
            raise PydanticCustomError("sentence", "{sentence}", context)
        return names

    @classmethod
    def suits(cls, task: Task) -> bool:
        """Return whether the measure is computed on a task where a spec names none."""
        raise TypeError(f"{cls.__name__} must say which tasks suit it")

    @classmethod
    def takes(cls, task: Task) -> bool:
        """Return whether the measure can be computed on a task that a spec names: at least those that suit it."""
        return cls.suits(task)

    def parts(self, *, built_in: bool) -> tuple[Self, ...]:
        """Return the settings for one task each, in the order of the catalogue or of the spec."""
        names = self.tasks or chosen(self.suits, built_in=built_in)
        if not self.tasks and self.effort == "quick":
            few = tuple(name for name in self.quick_tasks if name in names)
            names = few or names
        return tuple(self.model_copy(update={"tasks": (name,)}) for name in names)

    @property
    def task_name(self) -> str:
        """Name of the task of settings for one task."""
        (name,) = self.tasks or ()
        return name

    @property
    def task(self) -> Task:
        """Task of settings for one task."""
        return task_called(self.task_name)


class TreesSettings(MeasureSettings):
    """Base of the measures of dependency trees."""

    treebank: str | None = None
    """A treebank (CoNLL-U, or parquet with the columns text, tokens, upos, heads and deprels), for text of other
    kinds; the built-in language has trees of its own. Where something is trained, its sentences are divided among
    training, validation and test."""
    effort: Effort = "full"
    """`quick` takes a part of everything, to see that it works: no evidence."""

    @property
    def treebank_name(self) -> str:
        """Name of the treebank: its folder, or the file without its ending where it has no folder."""
        if self.treebank is None:
            return "language"
        path = PurePath(self.treebank)
        return path.parent.name or path.name.split(".")[0]


class PredictingSettings(TaskSettings):
    """Base of the measures that can keep the prediction for each example."""

    predictions: bool = False
    """Whether the predictions for single examples are kept in predictions.parquet of the run, which `ablate diff`
    compares. It changes no number: a measure that is there is computed again only to have its predictions."""


class MinimalPairsSettings(PredictingSettings):
    """Minimal pairs: the share in which an objective gives the grammatical half the higher probability."""

    kind: Literal["minimal_pairs"]
    pairs: int | None = Field(None, ge=1)
    """Number of pairs of each paradigm or case, at random; all unless given, with `quick` a tenth."""

    @classmethod
    def suits(cls, task: Task) -> bool:
        return task.kind == "minimal_pairs"


class PartSettings(TaskSettings):
    """Base of the measures that learn from a part of a task, which `examples.part` takes."""

    examples: int | None = Field(None, ge=10)
    """Training examples at most; 10,000 unless given, with `quick` 1,000."""

    counts: ClassVar[Literal["examples", "words"]] = "examples"
    """Unit that `most` counts where words have tags: sentences, or words."""

    def most(self, split: Split) -> int | None:
        """Return the most examples of a split; None is all."""
        raise TypeError(f"{type(self).__name__} must say how much of a task it takes")

    def takes_what(self, other: "PartSettings") -> bool:
        """Return whether the measure learns from the same examples of its task as another one, and is scored on
        the same."""
        same_units = self.task.kind != "tagging" or self.counts == other.counts
        return same_units and all(self.most(split) == other.most(split) for split in ("train", "test"))


class ProbingSettings(PartSettings, PredictingSettings):
    """Probes: linear classifiers of frozen states, layer by layer, and of a learned mix of all layers."""

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


class TransferSettings(PartSettings, PredictingSettings):
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
    """Numbers of training examples that a head learns from too, other ones in each repetition; numbers that a task
    does not have are left out."""
    epochs: int | None = Field(None, ge=1)
    """Over the training examples; 10 unless given, with `quick` 3; for frozen features, where one costs next to
    nothing and a head learns alone, 30 and 10. Few examples are shown more often: until there are 200 steps, with
    `quick` 60."""

    usual_epochs: ClassVar[tuple[int, int]]
    """Unless given; and with `quick`."""

    @property
    def repetitions(self) -> int:
        """Number of repetitions."""
        return self.seeds or (3 if self.effort == "quick" else 5)

    @property
    def passes(self) -> int:
        """Number of epochs."""
        return self.epochs or self.usual_epochs[self.effort == "quick"]

    @property
    def least_steps(self) -> int:
        """Least number of steps of a training."""
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
    """Frozen features: scores of a head on the states as pre-training left them."""

    kind: Literal["frozen_features"]
    usual_epochs: ClassVar = (30, 10)


class FineTuningSettings(TransferSettings):
    """Fine-tuning: scores where the encoder is trained on the task with the head."""

    kind: Literal["fine_tuning"]
    usual_epochs: ClassVar = (10, 3)
    learning_rates: tuple[Annotated[float, Field(gt=0)], ...] = Field((), strict=False)
    """Learning rates of the encoder, tried with the first repetition; the best on the validation part is taken for
    all, and for the learning curve."""

    @property
    def rates(self) -> tuple[float, ...]:
        return self.learning_rates or ((3e-4, 1e-3) if self.effort == "quick" else (1e-4, 3e-4, 1e-3))


class BaselinesSettings(PartSettings):
    """Baselines without any encoder: the most frequent answer, TF-IDF or words with a linear model, and of spans
    the same place in every context. They learn from the examples that probing, frozen features and fine-tuning
    take with this effort and so many examples."""

    kind: Literal["baselines"]
    quick_tasks: ClassVar = (*ProbingSettings.quick_tasks, *TransferSettings.quick_tasks)

    @property
    def beside(self) -> tuple[PartSettings, ...]:
        """Measures of one task that baselines stand beside, as they are with the same effort and examples: frozen
        features, which take what fine-tuning takes, or probing, or one after the other."""
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
    """Return a measure and a task of which it takes other examples than the baselines beside it; None if there is
    none."""
    taking: list[Any] = [settings for settings in measures if isinstance(settings, PartSettings)]
    for baselines in (settings for settings in taking if isinstance(settings, BaselinesSettings)):
        for built_in in (False, True):
            beside_by_task = {part.task_name: part.beside for part in baselines.parts(built_in=built_in)}
            for other in (settings for settings in taking if settings is not baselines):
                for part in other.parts(built_in=built_in):
                    measures_beside = beside_by_task.get(part.task_name, ())
                    if measures_beside and not any(part.takes_what(beside) for beside in measures_beside):
                        return other.kind, part.task_name
    return None


class StructuralProbeSettings(TreesSettings):
    """Structural probe: a linear map of a layer's states that makes distances between words those of their
    dependency tree (Hewitt & Manning 2019)."""

    kind: Literal["structural_probe"]
    sentences: int | None = Field(None, ge=10)
    """Training sentences, drawn at random; fewer if there are fewer. For validation as many at most, for test
    1,000. 10,000 unless given, with `quick` 2,000: with 500 the map of a width of 128 knows its sentences by
    heart."""
    longest: int = Field(40, ge=3)
    """Words of the longest sentence, punctuation not counted."""
    rank: int = Field(64, ge=1)
    """Rank of the map; at most the encoder's width."""

    @property
    def sentences_wanted(self) -> int:
        return self.sentences or {"quick": 2000, "full": 10_000}[self.effort]


class ParsingSettings(TreesSettings):
    """Trees without supervision: dependence of each two words of a sentence given all others in a masked LM
    (conditional mutual information, by Gibbs sampling), compared with the trees of a treebank."""

    kind: Literal["parsing"]
    sentences: int | None = Field(None, ge=2)
    """Sentences, drawn at random, the same in all arms and seeds; fewer if there are fewer that short. 400 unless
    given, with `quick` 100."""
    sweeps: int | None = Field(None, ge=24)
    """Number of times that Gibbs sampling draws both tokens of a pair; 2,000 unless given, with `quick` 50. A
    pair's information is underestimated by a few sweeps."""
    longest: int = Field(10, ge=3)
    """Words of the longest sentence, punctuation not counted."""
    window: int = Field(10, ge=2)
    """Sub-words that stand as far apart, or farther, are taken to be independent."""

    @property
    def sentences_wanted(self) -> int:
        return self.sentences or {"quick": 100, "full": 400}[self.effort]

    @property
    def sweeps_wanted(self) -> int:
        return self.sweeps or {"quick": 50, "full": 2000}[self.effort]


class ConditionalIndependenceSettings(MeasureSettings):
    """Conditional independence: the cost to masked LM of predicting two neighbours that are both hidden as if they
    were independent."""

    kind: Literal["conditional_independence"]
    effort: Effort = "full"
    """Sentences unless given below: 300, or 3,000."""
    sentences: int | None = Field(None, ge=20)
    """Sentences of the validation text from its start, each with one pair; fewer if it has fewer."""
    ratios: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        (0.05, 0.15, 0.3, 0.4, 0.6, 0.8), min_length=1, strict=False
    )
    """Probabilities with which each of the other tokens is hidden, too."""

    @property
    def sentences_wanted(self) -> int:
        return self.sentences or {"quick": 300, "full": 3000}[self.effort]


NEXT_SENTENCE = "next_sentence"

RetrievalTask = Literal["stsb", "sick_relatedness", "next_sentence"]


def _or_related(name: Any, built_in: Callable[[Any], Any]) -> Any:
    """Also take the file of a task that is regression of two texts."""
    if not plugins.is_text(name):
        return built_in(name)
    task = _read_task(name)
    if task.kind != "regression" or len(task.text) != 2:
        sentence = f"must be regression of two texts for retrieval, but {name} is {task.kind}; leave it out"
        raise PydanticCustomError("sentence", "{sentence}", {"sentence": sentence, "at": ()})
    return name


class RetrievalSettings(MeasureSettings):
    """Retrieval of texts that belong together: by the cosine of their mean states (bi-encoder), and by a head on
    the states of both in one (cross-encoder)."""

    kind: Literal["retrieval"]
    tasks: tuple[Annotated[RetrievalTask, WrapValidator(_or_related)], ...] | None = Field(
        None, min_length=1, strict=False
    )
    """Tasks: how related people judge two sentences, in two data sets or one's own, and which sentence of the text
    follows another. Unless given, all; where the text is the built-in language, the last alone."""
    effort: Effort = "full"
    """Sizes unless given below: 500 pairs, 200 candidates, 500 training pairs; or all, 1,000 and 5,000."""
    pairs: int | None = Field(None, ge=10)
    """Pairs of each task of relatedness, drawn at random; fewer if there are fewer."""
    candidates: int | None = Field(None, ge=40)
    """Sentences of the validation text among which the one that follows is looked for; fewer if it has fewer."""
    training_pairs: int | None = Field(None, ge=40)
    """Sentences of the training text, each with the one that follows it, to train the cross-encoder on; fewer if
    it has fewer."""
    epochs: int = Field(3, ge=1)
    """Over the training pairs."""
    learning_rate: float = Field(3e-4, gt=0)
    """Learning rate of the cross-encoder."""

    def parts(self, *, built_in: bool) -> tuple[Self, ...]:
        """Return the settings for one task each."""
        all_tasks = (NEXT_SENTENCE,) if built_in else ("stsb", "sick_relatedness", NEXT_SENTENCE)
        return tuple(self.model_copy(update={"tasks": (name,)}) for name in self.tasks or all_tasks)

    @property
    def task_name(self) -> str:
        """Name of the task of settings for one task."""
        (name,) = self.tasks or ()
        return name

    def problem(self, data: Data, data_root: Path) -> str | None:
        """Return why the task of settings for one cannot be run with a text; None if it can."""
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
    """Generation: sentences that a language model makes up, from left to right by a causal one, all at once and
    then improved (mask-predict) by a masked one; their fluency and diversity."""

    kind: Literal["generation"]
    effort: Effort = "full"
    """Sentences unless given below: 200, or 1,000."""
    sentences: int | None = Field(None, ge=2)
    """Sentences to make up."""
    temperature: float = Field(1.0, gt=0)
    """Logits are divided by it before a token is drawn; 1 draws by the model's own probabilities."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Tokens are drawn from the most probable ones that together have this probability (Holtzman et al. 2020)."""
    iterations: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 4, 10), min_length=1, strict=False)
    """Numbers of steps of mask-predict, ascending; each is a way of its own, and the last one the main one."""

    @field_validator("iterations")
    @classmethod
    def _ascending(cls, iterations: tuple[int, ...]) -> tuple[int, ...]:
        if list(iterations) != sorted(iterations):
            raise ValueError("must ascend, as the last number is the main one; put them in order")
        return iterations

    @property
    def sentences_wanted(self) -> int:
        return self.sentences or {"quick": 200, "full": 1000}[self.effort]
