"""Catalogue of tasks: the files, columns, kind, metric and chance level of each, declared once, here or in a
YAML file. No torch.

A new task of a known kind is an entry here. Paths are relative to the data root. The README of a file's
folder says where the file came from and under which licence. A user's own task is a YAML file that a measure
of a spec names, as in ``tasks: [sst2, my_task.yaml]``.

The data of a run are a task too if they say which of their sentences follow each other. A text without
documents is read as one document when sequences are cut from it. But its neighbouring sentences need not be
related, as in files of single sentences, and the text does not show whether they are. So only declared
documents count. In plain text these are blank lines, as for formats of sentence pairs
(`lightning_modules.config.contradictions`).
"""

import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from ablations import yamlfile
from ablations.errors import SpecProblems
from ablations.measures.settings import MeasureSettings
from ablations.messages import validated
from ablations.wording import listed
from lightning_modules import plugins
from lightning_modules.config import Data, FilesData, LanguageData, Settings
from lightning_modules.config.data import Half, is_plain_text
from lightning_modules.errors import DataError, PluginError
from lightning_modules.files import sha256, write_whole
from lightning_modules.plugins import Plugin

Kind = Literal["classification", "regression", "tagging", "span", "minimal_pairs"]
Metric = Literal[
    "accuracy", "matthews", "f1", "macro_f1", "pearson", "spearman", "entity_f1", "overlap_f1", "exact_match"
]
Chance = Literal["constant", "place", "none", "half"]
Split = Literal["train", "validation", "test"]

SPLITS: Final[tuple[Split, ...]] = ("train", "validation", "test")

METRICS: dict[Kind, dict[Metric, Chance]] = {
    "classification": {"accuracy": "constant", "matthews": "none", "f1": "constant", "macro_f1": "constant"},
    "regression": {"pearson": "none", "spearman": "none"},
    "tagging": {"accuracy": "constant", "entity_f1": "constant"},
    "span": {"overlap_f1": "place", "exact_match": "place"},
    "minimal_pairs": {"accuracy": "half"},
}
"""Metrics of each kind of task, with their chance levels."""

Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)]


@dataclass(frozen=True)
class Task:
    """A task with gold answers. `TaskFile` explains the other fields, which a user's own file has too."""

    name: str
    kind: Kind
    metric: Metric
    text: tuple[str, ...] = ("sentence",)
    label: str = "label"
    """Column of the answer. For a span it holds the answer's text, and `start` its place."""
    start: str | None = None
    files: Mapping[Split, str] = field(default_factory=dict)
    where: Mapping[str, str] = field(default_factory=dict)
    divided_by: str | None = None
    positive: str | None = None
    groups: tuple[str, ...] = ()
    built_in: bool = False
    """Whether the built-in language makes the task. It then has no files."""
    probe: bool = False
    reads: Literal["mean", "mask"] = "mean"
    """State that a head reads of a text to classify it: the mean of its tokens (`mean`), or the state at a
    [MASK] behind it (`mask`), where text with `data.label_words` has its label."""
    half: Half | None = None
    """Half of the rows of its training file that the task learns from. The other half is for pre-training
    (`data.half`). Such a task is only run if a spec names it."""

    @property
    def chance(self) -> Chance:
        """Chance level, the best score of guesses without the text; see `TaskFile.chance`."""
        return METRICS[self.kind][self.metric]

    @property
    def transfer_metrics(self) -> tuple[str, ...]:
        """Metrics of a head that is trained on the task: its own metric as `score`, and those beside it."""
        if self.kind == "span":
            return "score", "exact_match"
        second = {"classification": "accuracy", "regression": "spearman"}.get(self.kind, self.metric)
        return ("score", *([second] if second != self.metric else []), "shuffled_score")

    def problem(self, data_root: Path) -> str | None:
        """Return why the task cannot be run: the first file that is missing; None if all exist."""
        missing = [path for path in self.files.values() if not (data_root / path).is_file()]
        return f"{missing[0]} is not in {data_root}" if missing else None

    @property
    def columns(self) -> list[str]:
        """Columns of the task's files that are read."""
        label = [] if self.kind == "minimal_pairs" else [self.label]
        others = [name for name in (self.start, self.divided_by) if name is not None]
        return list(dict.fromkeys([*self.text, *self.groups, *self.where, *label, *others]))

    def require_columns(self, place: Path, names: Collection[str]) -> None:
        """Raise a DataError if a file lacks a column of the task."""
        missing = next((name for name in self.columns if name not in names), None)
        if missing is not None:
            is_own = plugins.is_text(self.name)  # its columns were named by the user
            remedy = f"name one of these in {self.name}" if is_own else "copy the file again"
            problem = f"{place} has no column {missing!r}, only {', '.join(map(repr, names))}"
            raise DataError(f"task {self.name}: {problem}; {remedy}, or leave the task out.")

    def check_heads(self, data_root: Path) -> None:
        """Raise a DataError if a file of the task lacks a column or cannot be read. Files that are missing or
        empty are skipped."""
        from lightning_modules.data.tables import column_names  # needs pyarrow; reading a spec does not

        for place in (data_root / path for path in self.files.values()):
            if place.is_file() and (names := column_names(place, self.columns)):
                self.require_columns(place, names)


def _files(folder: str, *splits: Split) -> dict[Split, str]:
    return {split: f"{folder}/{split}.parquet" for split in splits or SPLITS}


def _sentences(name: str, metric: Metric = "accuracy", **fields: Any) -> Task:
    return Task(name, "classification", metric, **{"files": _files(f"classification/{name}"), **fields})


def _pairs(name: str, kind: Kind, metric: Metric, **fields: Any) -> Task:
    columns = ("sentence1", "sentence2")
    return Task(name, kind, metric, text=columns, **{"files": _files(f"classification/{name}"), **fields})


def _entities(name: str) -> Task:
    return Task(name, "tagging", "entity_f1", text=("tokens",), label="ner_tags", files=_files(f"ner/{name}"))


def _probing(name: str) -> Task:
    where = {"task": name}
    return Task(name, "classification", "accuracy", files=_files("probing"), where=where, probe=True)


def _answers(name: str) -> Task:
    return Task(
        name,
        "span",
        "overlap_f1",
        text=("question", "context"),
        label="answer",
        start="answer_start",
        files={"test": "qa_xquad/en.test.parquet"},
        divided_by="title",
    )


def _built_in(name: str, kind: Kind, metric: Metric = "accuracy", **fields: Any) -> Task:
    return Task(f"language_{name}", kind, metric, built_in=True, **fields)


_ALL: Final[tuple[Task, ...]] = (
    # Sentences
    _sentences("cola", "matthews"),
    _sentences("sst2"),
    _sentences("sst2_at_mask", files=_files("classification/sst2"), reads="mask", half="second"),
    _sentences("trec"),
    _sentences("subj"),
    # Pairs of sentences
    _pairs("mrpc", "classification", "f1", positive="1"),
    _pairs("rte", "classification", "accuracy"),
    _pairs("sick", "classification", "accuracy"),
    _pairs("stsb", "regression", "pearson"),
    _pairs("sick_relatedness", "regression", "pearson", label="relatedness", files=_files("classification/sick")),
    # Words and spans
    _entities("wnut17"),
    _entities("wikigold"),
    Task("ud_pos", "tagging", "accuracy", text=("tokens",), label="upos", files=_files("ud_en_ewt")),
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
        text=("sentence_good", "sentence_bad"),
        files={"test": "blimp/test.parquet"},
        groups=("field", "paradigm"),
    ),
    Task(
        "lm_syneval",
        "minimal_pairs",
        "accuracy",
        text=("sentence_good", "sentence_bad"),
        files={"test": "lm_syneval/test.parquet"},
        groups=("case",),
    ),
    # Tasks of these kinds, made by the built-in language
    _built_in("acceptability", "classification", "matthews"),
    _built_in("topic", "classification"),
    _built_in("same_document", "classification", text=("sentence1", "sentence2")),
    _built_in("parts_of_speech", "tagging", text=("tokens",)),
    _built_in("noun_phrases", "tagging", "entity_f1", text=("tokens",)),
    _built_in("subject", "span", "overlap_f1", text=("question", "context"), start="start"),
    _built_in("tense", "classification", probe=True),
    _built_in("subject_number", "classification", probe=True),
    _built_in("clauses", "classification", probe=True),
    _built_in("word_order", "classification", probe=True),
    _built_in("minimal_pairs", "minimal_pairs", text=("sentence_good", "sentence_bad"), groups=("paradigm",)),
)

TASKS: Final[Mapping[str, Task]] = MappingProxyType({task.name: task for task in _ALL})
"""Tasks by name."""


def chosen(suits: Callable[[Task], bool], *, built_in: bool) -> tuple[str, ...]:
    """Return the names of the tasks that suit a measure: those of the built-in language, or those of files.
    Tasks of a `half` are not among them."""
    return tuple(task.name for task in _ALL if task.built_in == built_in and task.half is None and suits(task))


LINES = 10_000
"""Number of lines of each file of plain text in which a blank line is searched."""


def no_documents(data: Data, data_root: Path) -> str | None:
    """Return why the training or the validation text does not say which sentences follow each other; None if
    both do.

    Raises:
        DataError: a file of plain text is damaged.
    """
    if isinstance(data, LanguageData):
        return None
    if data.half is not None:
        return (
            f"data.half = {data.half} takes only half of the training sentences, so the remaining neighbours "
            "may not follow each other in the document"
        )
    if data.document is not None:
        return None
    files = (*data.train, *data.validation) if isinstance(data, FilesData) else ()
    if not files or not all(map(is_plain_text, files)):
        return "data.document is not set, so it is not known which sentences follow each other"
    for name in files:
        if not (data_root / name).is_file():
            return f"{name} is not in {data_root}"
        if not _divided(data_root / name):
            return f"{name} has no blank line in its first {LINES:,}, so it is not known where documents end"
    return None


def _divided(path: Path) -> bool:
    """Return whether a blank line stands between two sentences."""
    from lightning_modules.data.tables import numbered_lines  # needs pyarrow; reading a spec does not

    gap = written = False
    for _, line in itertools.islice(numbered_lines(path), LINES):
        if not line.strip():
            gap = written
        elif gap:
            return True
        else:
            written = True
    return False


TABLES = (".parquet", ".jsonl", ".csv", ".tsv")
"""Endings of the files of a task."""


class TaskFile(Settings):
    """Content of the YAML file of a task."""

    kind: Kind
    """Kind of task: classification or regression of one text or two, tagging of words, span, or
    minimal_pairs."""
    metric: Metric
    """Main metric, which tables call score."""
    chance: Chance | None = None
    """Chance level. Default: that of the metric. `constant`: one answer to everything; `place`: the same
    place in every context, for spans; `none`: 0 by definition; `half`: one pair in two."""
    text: Names
    """Columns of the text: one, or two for a pair. For a span they are question and context, for minimal
    pairs the grammatical and the ungrammatical sentence, for tagging the words."""
    label: str = "label"
    """Column of the answer; for tagging, the tags."""
    start: str | None = None
    """Column with the character of the context at which the answer of a span begins."""
    files: dict[Split, str]
    """Files by split: parquet, jsonl, csv or tsv. Relative paths start at --data-root."""
    where: dict[str, str] = Field(default_factory=dict)
    """Values of columns. Only rows with these values are examples."""
    divided_by: str | None = None
    """Column whose values are divided among the splits, if one file serves all splits."""
    positive: str | None = None
    """Class whose F1 is the score; only with the metric `f1`."""
    groups: Names = ()
    """Columns whose values are groups of minimal pairs with a score of their own."""
    probe: bool = False
    """Whether the task asks for a property of the sentence itself, as probing tasks do."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (sentence := next(self._contradictions(), None)) is not None:
            raise ValueError(sentence)
        return self

    def _contradictions(self) -> Iterator[str]:
        metrics = METRICS[self.kind]
        columns = {"classification": (1, 2), "regression": (1, 2), "tagging": (1,)}.get(self.kind, (2,))
        if self.metric not in metrics:
            yield f"metric must be {listed([*metrics])} for {self.kind}, but is {self.metric}"
        elif self.chance not in (None, metrics[self.metric]):
            yield f"chance must be {metrics[self.metric]} for {self.metric} of {self.kind}, but is {self.chance}"
        if len(self.text) not in columns:
            number = listed([str(count) for count in columns])
            plural = "s" if columns != (1,) else ""
            yield f"text must name {number} column{plural} for {self.kind}, but names {len(self.text)}"
        if self.kind == "span" and self.start is None:
            yield "start is missing; a span needs the column with the position of the answer in the context"
        if self.kind != "span" and self.start is not None:
            yield f"start works only with span, but the kind is {self.kind}; remove it"
        if self.metric == "f1" and self.positive is None:
            yield "positive is missing; the metric f1 needs the class whose F1 is the score"
        if self.metric != "f1" and self.positive is not None:
            yield f"positive works only with the metric f1, but the metric is {self.metric}; remove it"
        if self.groups and self.kind != "minimal_pairs":
            yield f"groups works only with minimal_pairs, but the kind is {self.kind}; remove it"
        if self.probe and self.kind not in ("classification", "tagging"):
            yield f"probe works only with classification and tagging, but the kind is {self.kind}; remove it"
        yield from self._contradictions_of_files()

    def _contradictions_of_files(self) -> Iterator[str]:
        if self.divided_by is not None and self.kind == "minimal_pairs":
            yield "divided_by does not work with minimal_pairs, which learn nothing and need no splits; remove it"
        whole = {"test"} if self.kind == "minimal_pairs" or self.divided_by else {"train", "validation", "test"}
        if set(self.files) != whole:
            rest = (
                "" if self.kind == "minimal_pairs" else "; with divided_by, give only the file test for all splits"
            )
            splits = listed([*self.files] or ["none"], "and")
            yield f"files must be {listed(sorted(whole), 'and')}, but are {splits}{rest}"
        for path in self.files.values():
            if not path.lower().removesuffix(".gz").endswith(TABLES) or path.lower().endswith(".parquet.gz"):
                yield f"files must end in {listed(TABLES)}, all but parquet also in .gz, but one is {path}"


def task_called(name: str) -> Task:
    """Return the task of a name: one of the catalogue, or that of a file such as ``my_task.yaml``.

    Raises:
        PluginError: there is no such file.
        SpecProblems: something is wrong with the file.
    """
    return TASKS[name] if name in TASKS else read_task(plugins.load(name))


def own_tasks(measures: Iterable[Any]) -> list[str]:
    """Return the names of the files of tasks that measures name, once each."""
    names = (name for settings in measures for name in getattr(settings, "tasks", None) or ())
    return list(dict.fromkeys(filter(plugins.is_text, names)))


def keep_tasks(measures: Iterable[Any], folder: Path) -> None:
    """Copy the files of tasks that measures name into the folder of an experiment's results, beside its copy of
    the spec. A task with the name of this copy is left out.

    Raises:
        FilesError: the disk is full, or the place cannot be written to.
    """
    for name in own_tasks(measures):
        if name.lower() != "spec.yaml":
            write_whole(folder / name, plugins.load(name).part)


def kept_tasks(folder: Path) -> list[str]:
    """Return the names of the files of tasks that the spec in a folder of results names and that lie there."""
    files = {path.name for path in folder.glob("*.yaml") if path.is_file() and path.name.lower() != "spec.yaml"}
    measures = yamlfile.read(folder / "spec.yaml").content.get("measures") if files else None
    entries = measures if isinstance(measures, list) else []
    lists = [entry.get("tasks") for entry in entries if isinstance(entry, dict)]
    names = {name for tasks in lists if isinstance(tasks, list) for name in filter(plugins.is_text, tasks)}
    return sorted(names & files)


def load_kept_tasks(folder: Path) -> None:
    """Load the user's own tasks of a folder of results, except files that cannot be read. Those that are loaded
    for the present spec stay.

    Raises:
        SpecProblems: a file declares no task.
    """
    for name in kept_tasks(folder):
        with suppress(PluginError):
            plugins.add_text(name, folder, check=read_task)


def loaded_task(name: str) -> Task | None:
    """Return the task of that name among the files loaded for the present spec; None if there is none."""
    return next((read_task(plugin) for plugin in plugins.loaded() if plugin.name == name), None)


@lru_cache(maxsize=64)
def read_task(plugin: Plugin) -> Task:
    """Return the task that a file declares. Its name is that of the file.

    Raises:
        SpecProblems: something is wrong with the file. It holds all problems, with line and column.
    """
    text = yamlfile.decoded(plugin.path, plugin.part)
    document = yamlfile.parsed(str(plugin.path), text, example="kind: classification")
    file, problems = validated(document, TaskFile)
    if problems or file is None:
        raise SpecProblems(tuple(sorted(problems)))
    fields = dict(file) | {name: MappingProxyType(getattr(file, name)) for name in ("files", "where")}
    del fields["chance"]  # it follows from kind and metric
    return Task(name=plugin.name, **fields)


READING_VERSION = "3"
"""Version of the reading of declared tasks. It is raised when the same files give other examples in a declared
task, and the tasks of the catalogue do not change."""


def files_now(settings: MeasureSettings, data_root: Path) -> str | None:
    """Return sixteen hex digits of a hash over the contents of the files that a measure reads: those of its
    tasks, its treebank, and those that declare tasks.

    Returns None if the measure reads no files, or if one is missing, because then nobody knows whether they
    have changed.
    """
    names = getattr(settings, "tasks", None) or ()
    tasks = [task_called(name) for name in names if name in TASKS or plugins.is_text(name)]
    files = [path for task in tasks for path in task.files.values()]
    files += [treebank] if (treebank := getattr(settings, "treebank", None)) else []
    declared = [str(plugins.load(name).path) for name in names if plugins.is_text(name)]
    places = [data_root / path for path in [*files, *declared]]
    if not places or not all(place.is_file() for place in places):
        return None
    version = READING_VERSION if declared else ""
    return hashlib.sha256("".join([*map(sha256, places), version]).encode()).hexdigest()[:16]
