"""The tasks: their files, columns, kind, metric and chance level, each declared once, here or in a YAML file. No
torch.

A new task of a known kind is an entry here. Paths are relative to the data root; where each file came from and
under which licence, its folder's README says. A task of one's own is a YAML file that a measure of a spec names,
as in ``tasks: [sst2, my_task.yaml]``.

The data of a run are a task too where they say which of their sentences follow each other. A text without
documents is read as one, for the sequences that are cut from it. Its neighbours need not be related, as in files
of single sentences, and the text does not tell one case from the other: only declared documents count. In plain
text these are blank lines, as for formats of sentence pairs (`lightning_modules.config.contradictions`).
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from ablations.errors import SpecProblems
from ablations.spec import yamlfile
from ablations.spec.messages import faults
from ablations.wording import listed
from lightning_modules import plugins
from lightning_modules.config import Data, FilesData, LanguageData, Settings
from lightning_modules.config.data import Half
from lightning_modules.errors import DataError
from lightning_modules.plugins import Plugin

Kind = Literal["classification", "regression", "tagging", "span", "minimal_pairs"]
Metric = Literal["accuracy", "matthews", "f1", "pearson", "spearman", "entity_f1", "overlap_f1", "exact_match"]
Chance = Literal["constant", "place", "none", "half"]
Split = Literal["train", "validation", "test"]

SPLITS: Final[tuple[Split, ...]] = ("train", "validation", "test")

METRICS: dict[Kind, dict[Metric, Chance]] = {
    "classification": {"accuracy": "constant", "matthews": "none", "f1": "constant"},
    "regression": {"pearson": "none", "spearman": "none"},
    "tagging": {"accuracy": "constant", "entity_f1": "none"},
    "span": {"overlap_f1": "place", "exact_match": "place"},
    "minimal_pairs": {"accuracy": "half"},
}
"""Metrics of each kind of task, with their chance levels."""

Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)]


@dataclass(frozen=True)
class Task:
    """A task with gold answers."""

    name: str
    kind: Kind
    metric: Metric
    """Main metric of the task, which the table calls `score`."""
    chance: Chance
    """Chance level, the best score of guesses without the text: `constant`, one answer to everything; `place`, of
    spans the same place in every context; `none`, 0 by definition; `half`, one pair in two."""
    text: tuple[str, ...] = ("sentence",)
    """Columns of the text: one, or two of a pair; of a span, the question and the context."""
    label: str = "label"
    """Column of the answer; of a span, the answer's text, whose place is in `start`."""
    start: str | None = None
    """Column of the character of the context at which an answer begins."""
    files: Mapping[Split, str] = field(default_factory=dict)
    """Files, one a split; a split that is missing is cut from the test file (`divided_by`)."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Values of columns; only rows with these values are examples."""
    divided_by: str | None = None
    """Column whose values are divided among the splits, where there is one file for all."""
    positive: str | None = None
    """The class that F1 is about."""
    groups: tuple[str, ...] = ()
    """Columns by which minimal pairs are also scored apart."""
    built_in: bool = False
    """True if the built-in language makes the task; it has no files then."""
    probe: bool = False
    """Whether it asks for a property of the sentence itself, as probing tasks do."""
    reads: Literal["mean", "mask"] = "mean"
    """State that a head reads of a text to classify: the mean of its tokens, or the state at a [MASK] behind it,
    where text with `data.label_words` has its label."""
    half: Half | None = None
    """Half of the rows of its training file that the task learns from, as the other half is for pre-training
    (`data.half`). Such a task is only chosen by its name."""

    def problem(self, data_root: Path) -> str | None:
        """Return why the task cannot be run: the file that is missing; None if all exist."""
        missing = [path for path in self.files.values() if not (data_root / path).is_file()]
        return f"{missing[0]} is not in {data_root}" if missing else None

    @property
    def columns(self) -> list[str]:
        """Return the columns that are read of its files."""
        label = [] if self.kind == "minimal_pairs" else [self.label]
        others = [name for name in (self.start, self.divided_by) if name is not None]
        return list(dict.fromkeys([*self.text, *self.groups, *self.where, *label, *others]))

    def require_columns(self, place: Path, names: Collection[str]) -> None:
        """Refuse a file that lacks a column with a DataError."""
        missing = next((name for name in self.columns if name not in names), None)
        if missing is not None:
            is_own = plugins.is_text(self.name)  # its columns were named by the user
            remedy = f"name one of these in {self.name}" if is_own else "copy the file again"
            problem = f"{place} has no column {missing!r}, only {', '.join(map(repr, names))}"
            raise DataError(f"task {self.name}: {problem}; {remedy}, or leave the task out.")

    def check_heads(self, data_root: Path) -> None:
        """Look for the columns at the beginning of those files that are there and not empty.

        Raises:
            DataError: a file lacks one, or cannot be read.
        """
        from lightning_modules.data.tables import column_names  # pyarrow, which to read a spec does without

        for place in (data_root / path for path in self.files.values()):
            if place.is_file() and (names := column_names(place)):
                self.require_columns(place, names)


def _files(folder: str, *splits: Split) -> dict[Split, str]:
    return {split: f"{folder}/{split}.parquet" for split in splits or SPLITS}


def _sentences(name: str, metric: Metric = "accuracy", **more: Any) -> Task:
    chance: Chance = "none" if metric == "matthews" else "constant"
    return Task(name, "classification", metric, chance, **{"files": _files(f"classification/{name}"), **more})


def _pairs(name: str, kind: Kind, metric: Metric, chance: Chance, **more: Any) -> Task:
    columns = ("sentence1", "sentence2")
    return Task(name, kind, metric, chance, text=columns, **{"files": _files(f"classification/{name}"), **more})


def _entities(name: str) -> Task:
    return Task(
        name, "tagging", "entity_f1", "none", text=("tokens",), label="ner_tags", files=_files(f"ner/{name}")
    )


def _probing(name: str) -> Task:
    where = {"task": name}
    return Task(name, "classification", "accuracy", "constant", files=_files("probing"), where=where, probe=True)


def _answers(name: str) -> Task:
    return Task(
        name,
        "span",
        "overlap_f1",
        "place",
        text=("question", "context"),
        label="answer",
        start="answer_start",
        files={"test": "qa_xquad/en.test.parquet"},
        divided_by="title",
    )


def _built_in(
    name: str, kind: Kind, metric: Metric = "accuracy", chance: Chance = "constant", **more: Any
) -> Task:
    return Task(f"language_{name}", kind, metric, chance, built_in=True, **more)


_ALL: Final[tuple[Task, ...]] = (
    # Sentences
    _sentences("cola", "matthews"),
    _sentences("sst2"),
    _sentences("sst2_at_mask", files=_files("classification/sst2"), reads="mask", half="second"),
    _sentences("trec"),
    _sentences("subj"),
    # Pairs of sentences
    _pairs("mrpc", "classification", "f1", "constant", positive="1"),
    _pairs("rte", "classification", "accuracy", "constant"),
    _pairs("sick", "classification", "accuracy", "constant"),
    _pairs("stsb", "regression", "pearson", "none"),
    _pairs(
        "sick_relatedness",
        "regression",
        "pearson",
        "none",
        label="relatedness",
        files=_files("classification/sick"),
    ),
    # Words and spans
    _entities("wnut17"),
    _entities("wikigold"),
    Task("ud_pos", "tagging", "accuracy", "constant", text=("tokens",), label="upos", files=_files("ud_en_ewt")),
    _answers("xquad"),
    # Properties of the sentence
    *map(
        _probing,
        (
            "sentence_length",
            "word_content",
            "tree_depth",
            "bigram_shift",
            "past_present",
            "subj_number",
            "coordination_inversion",
        ),
    ),
    # Minimal pairs
    Task(
        "blimp",
        "minimal_pairs",
        "accuracy",
        "half",
        text=("sentence_good", "sentence_bad"),
        files={"test": "blimp/test.parquet"},
        groups=("field", "paradigm"),
    ),
    Task(
        "lm_syneval",
        "minimal_pairs",
        "accuracy",
        "half",
        text=("sentence_good", "sentence_bad"),
        files={"test": "lm_syneval/test.parquet"},
        groups=("case",),
    ),
    # The same, made by the built-in language
    _built_in("acceptability", "classification", "matthews", "none"),
    _built_in("topic", "classification"),
    _built_in("same_document", "classification", text=("sentence1", "sentence2")),
    _built_in("parts_of_speech", "tagging", text=("tokens",)),
    _built_in("noun_phrases", "tagging", "entity_f1", "none", text=("tokens",)),
    _built_in("subject", "span", "overlap_f1", "place", text=("question", "context"), start="start"),
    _built_in("tense", "classification", probe=True),
    _built_in("subject_number", "classification", probe=True),
    _built_in("clauses", "classification", probe=True),
    _built_in("word_order", "classification", probe=True),
    _built_in(
        "minimal_pairs",
        "minimal_pairs",
        "accuracy",
        "half",
        text=("sentence_good", "sentence_bad"),
        groups=("paradigm",),
    ),
)

TASKS: Final[Mapping[str, Task]] = MappingProxyType({task.name: task for task in _ALL})
"""Tasks by name."""

Suits = Callable[[Task], bool]


def chosen(suits: Suits, *, built_in: bool) -> tuple[str, ...]:
    """Return the names of the tasks that suit a measure: those of the built-in language, or those of files."""
    return tuple(task.name for task in _ALL if task.built_in == built_in and task.half is None and suits(task))


LINES = 10_000
"""Number of lines of each file of plain text that are searched for a blank one."""


def no_documents(data: Data, data_root: Path) -> str | None:
    """Return why it is not known of the training or the validation text which sentences follow each other; None
    where it is.

    Raises:
        DataError: a file of plain text is damaged.
    """
    if isinstance(data, LanguageData):
        return None
    if data.half is not None:
        return (
            f"data.half = {data.half} takes half of the training sentences: neighbours need not follow each other"
        )
    if data.document is not None:
        return None
    files = (*data.train, *data.validation) if isinstance(data, FilesData) else ()
    if not files or any(not name.removesuffix(".gz").endswith(".txt") for name in files):
        return "there is no data.document, the column that says which sentences follow each other"
    for name in files:
        if not (data_root / name).is_file():
            return f"{name} is not in {data_root}"
        if not _divided(data_root / name):
            return f"{name} has no blank line in its first {LINES:,} that says where a document ends"
    return None


def _divided(path: Path) -> bool:
    """Return whether a blank line stands between two sentences."""
    from lightning_modules.data.tables import numbered_lines  # pyarrow, which to read a spec does without

    gap = written = False
    for _, line in itertools.islice(numbered_lines(path), LINES):
        if not line.strip():
            gap = written
        elif gap:
            return True
        else:
            written = True
    return False


class TaskFile(Settings):
    """Content of the file of a task."""

    kind: Kind
    """Kind: classification or regression of one text or two, tagging of words, span, minimal_pairs."""
    metric: Metric
    """Main metric, which tables call score."""
    chance: Chance | None = None
    """Chance level; that of the metric unless given: `constant`, one answer to everything; `place`, of spans the
    same place in every context; `none`, 0 by definition; `half`, one pair in two."""
    text: Names
    """Columns of the text: one, or two of a pair; of a span, question and context; of minimal pairs, the right
    sentence and the wrong one; of tagging, the words."""
    label: str = "label"
    """Column of the answer; of tagging, the tags."""
    start: str | None = None
    """Column of the character of the context at which the answer of a span begins."""
    files: dict[Split, str]
    """Files by split, parquet, jsonl, csv or tsv; relative paths start at --data-root."""
    where: dict[str, str] = Field(default_factory=dict)
    """Values of columns; only rows with these values are examples."""
    divided_by: str | None = None
    """Column whose values are divided among the splits, where there is one file for all."""
    positive: str | None = None
    """Class that F1 is about."""
    groups: Names = ()
    """Columns by which minimal pairs are also scored apart."""
    probe: bool = False
    """Whether it asks for a property of the sentence itself, as probing tasks do."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (sentence := next(self._contradictions(), None)) is not None:
            raise ValueError(sentence)
        return self

    def _contradictions(self) -> Iterator[str]:
        metrics = METRICS[self.kind]
        columns = {"classification": (1, 2), "regression": (1, 2), "tagging": (1,)}.get(self.kind, (2,))
        whole = {"test"} if self.kind == "minimal_pairs" or self.divided_by else {"train", "validation", "test"}
        if self.metric not in metrics:
            yield f"metric must be {listed([*metrics])} for {self.kind}, but is {self.metric}"
        elif self.chance not in (None, metrics[self.metric]):
            yield f"chance must be {metrics[self.metric]} for {self.metric} of {self.kind}, but is {self.chance}"
        if len(self.text) not in columns:
            number = listed([str(count) for count in columns])
            yield f"text must name {number} columns for {self.kind}, but names {len(self.text)}"
        if (self.start is not None) != (self.kind == "span"):
            yield f"start must be there for span and for nothing else, but the kind is {self.kind}"
        if (self.positive is not None) != (self.metric == "f1"):
            yield f"positive must be there for f1 and for nothing else, but the metric is {self.metric}"
        if self.groups and self.kind != "minimal_pairs":
            yield f"groups must be for minimal_pairs, but the kind is {self.kind}; take it out"
        if set(self.files) != whole:
            rest = "" if self.kind == "minimal_pairs" else "; with divided_by one file, test, serves all splits"
            splits = listed([*self.files] or ["none"], "and")
            yield f"files must be {listed(sorted(whole), 'and')}, but are {splits}{rest}"


def task_called(name: str) -> Task:
    """Return the task of that name: one of the catalogue, or that of a file such as ``my_task.yaml``.

    Raises:
        PluginError: there is no such file.
        SpecProblems: anything is wrong with it.
    """
    return TASKS[name] if name in TASKS else read_task(plugins.load(name))


def loaded_task(name: str) -> Task | None:
    """Return the task of a file that was loaded for the present spec; None without one."""
    return next((read_task(plugin) for plugin in plugins.loaded() if plugin.name == name), None)


@lru_cache(maxsize=64)
def read_task(plugin: Plugin) -> Task:
    """Return the task that a file declares; its name is that of the file.

    Raises:
        SpecProblems: anything is wrong with it; all of it, with line and column.
    """
    text = yamlfile.decoded(plugin.path, plugin.part)
    document = yamlfile.parsed(str(plugin.path), text, example="kind: classification")
    problems = set(document.problems)
    try:
        file = TaskFile.model_validate(document.content)
    except ValidationError as error:
        problems.update(document.problems_of(faults(error, TaskFile)))
        raise SpecProblems(tuple(sorted(problems))) from error
    if problems:
        raise SpecProblems(tuple(sorted(problems)))
    return Task(
        name=plugin.name,
        kind=file.kind,
        metric=file.metric,
        chance=METRICS[file.kind][file.metric],
        text=file.text,
        label=file.label,
        start=file.start,
        files=MappingProxyType(file.files),
        where=MappingProxyType(file.where),
        divided_by=file.divided_by,
        positive=file.positive,
        groups=file.groups,
        probe=file.probe,
    )
