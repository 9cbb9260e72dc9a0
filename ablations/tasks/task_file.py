"""Task of one's own from a YAML file: files, columns, kind, metric and chance level. No torch.

A measure of a spec names it, as in ``tasks: [sst2, my_task.yaml]``; it is a task as those of `datasets` then.
"""

from collections.abc import Iterator
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from ablations.errors import SpecProblems
from ablations.spec import yamlfile
from ablations.spec.messages import faults
from ablations.tasks.datasets import TASKS, Chance, Kind, Metric, Split, Task
from ablations.wording import listed
from lightning_modules import plugins
from lightning_modules.config import Settings
from lightning_modules.plugins import Plugin

METRICS: dict[Kind, dict[Metric, Chance]] = {
    "classification": {"accuracy": "constant", "matthews": "none", "f1": "constant"},
    "regression": {"pearson": "none", "spearman": "none"},
    "tagging": {"accuracy": "constant", "entity_f1": "none"},
    "span": {"overlap_f1": "place", "exact_match": "place"},
    "minimal_pairs": {"accuracy": "half"},
}
"""Metrics of each kind of task, with their chance levels."""

Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)]


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
    document = yamlfile.parsed(str(plugin.path), plugin.part.decode(), example="kind: classification")
    problems = set(document.problems)
    try:
        file = TaskFile.model_validate(document.content)
    except ValidationError as error:
        for fault in faults(error, TaskFile):
            at_key = fault.about in ("key", "missing")
            problems.add(document.problem(fault.path, fault.sentence, at="key" if at_key else "value"))
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
