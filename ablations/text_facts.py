"""Facts about the text of an experiment before anything is trained: lengths, unknown tokens, cut and repeated
sentences, sentences of validation and of tasks that are also in the training text, and test examples of tasks
that repeat a training example or have a class of none.

Two sentences of a text are the same if they have the same words in the same order. Texts of tasks are compared
without white space.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from ablations.catalogue import Measure, for_run
from ablations.runs import doubts
from ablations.runs.terminal import console_for_tables, print_plainly
from ablations.tasks.datasets import task_called
from ablations.tasks.settings import NEXT_SENTENCE, RetrievalSettings, TaskSettings
from ablations.wording import listed, several
from lightning_modules.config import Data, RunSettings
from lightning_modules.data.corpus import open_corpus
from lightning_modules.data.tokenising import sentence_hashes

if TYPE_CHECKING:
    from ablations.tasks.examples import Examples


class SplitFacts(NamedTuple):
    """Facts about one split of a text. Lengths and counts are in tokens or sentences."""

    split: str
    sentences: int
    documents: int
    tokens: int
    """Number of tokens that are kept, special tokens included."""
    median: int
    """Length of the median sentence in tokens, before cutting."""
    p99: int
    """Length in tokens that 99 of 100 sentences do not exceed, before cutting."""
    longest: int
    cut: int
    """Number of sentences that are cut at `data.max_length`."""
    unknown: int
    """Number of tokens that are [UNK]."""
    repeated: int | None
    """Number of sentences that repeat an earlier sentence of the same split. None if tokens were made before
    2026-11-28, when this was not counted."""
    in_training: int | None
    """Number of sentences that are also in the training text. None for the training text itself, and if tokens
    were made before 2026-11-28."""


class TaskFacts(NamedTuple):
    """Facts about the test examples of a task."""

    task: str
    examples: int
    in_training: int
    """Number of examples with a text that is also a sentence of the training text."""
    repeated: int | None
    """Number of examples whose texts are those of a training example of the task; None for minimal pairs, which
    have no training examples."""
    new_class: int | None
    """Number of examples with a class or tag of no training example; None for tasks without classes."""


class TextFacts(NamedTuple):
    """Facts about a text, and about the tasks of models that are trained on it."""

    splits: list[SplitFacts]
    tasks: list[TaskFacts]


def task_names(measures: Sequence[Measure], runs: Iterable[RunSettings], *, data_root: Path) -> list[str]:
    """Return the tasks with test examples and existing files that are measured on some runs, each once."""
    parts = [part for run in runs for part in for_run(measures, run, data_root=data_root)]
    names = [part.task_name for part in parts if isinstance(part, TaskSettings | RetrievalSettings)]
    return [name for name in dict.fromkeys(names) if name != NEXT_SENTENCE]


def text_facts(data: Data, report: Mapping[str, Any], tasks: Iterable[str], *, data_root: Path) -> TextFacts:
    """Return the facts about each split of a text and about tasks. The text is read once.

    Args:
        data: settings of the text.
        report: report of its token store.
        tasks: names of tasks whose files exist.
        data_root: folder to which relative paths refer.

    Raises:
        DataError: a file of a task is damaged.
    """
    facts = []
    for split, counted in report["splits"].items():
        source, lengths = counted["source"], counted["source"]["whole_length_percentiles"]
        facts.append(
            SplitFacts(
                split=split,
                sentences=counted["sentences"],
                documents=counted["documents"],
                tokens=source["tokens"],
                median=lengths["50"],
                p99=lengths["99"],
                longest=lengths["100"],
                cut=source["cut"],
                unknown=source["unknown"],
                repeated=counted.get("repeated"),
                in_training=counted.get("in_training"),
            )
        )
    train_S = np.empty(0, np.uint64)
    if names := list(tasks):
        corpus = open_corpus(data, data_root=data_root)
        train_S = _joined_hashes(row.text for row in corpus.rows("train"))
    return TextFacts(facts, [_task_facts(name, data, train_S, data_root) for name in names])


def _task_facts(name: str, data: Data, train_S: NDArray[np.uint64], data_root: Path) -> TaskFacts:
    from ablations.tasks.examples import read_examples  # imports torch, which only tasks need

    seed = getattr(data, "seed", None)
    task = task_called(name)
    test = read_examples(task, "test", data_root=data_root, language_seed=seed)
    shared_N = np.zeros(len(test), np.bool_)
    for texts in filter(None, (test.first, test.second)):
        shared_N |= np.isin(_joined_hashes(texts), train_S)
    repeated = new_class = None
    if task.kind != "minimal_pairs":
        train = read_examples(task, "train", data_root=data_root, language_seed=seed)
        repeated = int(np.isin(_example_hashes(test), _example_hashes(train)).sum())
        if task.kind in ("classification", "tagging"):
            classes = train.classes
            new_class = sum(
                not classes.issuperset([right] if test.words is None else right) for right in test.answers
            )
    return TaskFacts(name, len(test), int(shared_N.sum()), repeated, new_class)


def _joined_hashes(texts: Iterable[str]) -> NDArray[np.uint64]:
    """Return hashes of texts without white space. The words of a tagging task are known without the white space
    between them: "spis" and "." may be "spis." in the text."""
    return sentence_hashes("".join(text.split()) for text in texts)


def _example_hashes(examples: "Examples") -> NDArray[np.uint64]:
    """Return a hash of the texts of each example, in their order."""
    first_N = _joined_hashes(examples.first)
    return first_N if examples.second is None else 3 * first_N + _joined_hashes(examples.second)


def warnings(facts: TextFacts, report: Mapping[str, Any]) -> list[str]:
    """Return a sentence for everything in a text that was probably not intended."""
    return [*doubts.unfit_text({"": report}), *_shared(facts)]


def _shared(facts: TextFacts) -> Iterator[str]:
    for task in facts.tasks:
        shares = (
            (
                task.in_training,
                "have a text that is also a sentence of data.train, so scores may look better than they are; "
                "remove them from the examples or from the training text",
            ),
            (
                task.repeated,
                "have the texts of a training example of this task, so scores may look better than they are; "
                "remove them from one of the two parts",
            ),
            (
                task.new_class,
                "have a class of no training example, so no answer to them can be right; write the same classes "
                "into all parts, or remove them",
            ),
        )
        for count, problem in shares:
            share = (count or 0) / max(1, task.examples)
            if count and share >= doubts.SHARED_SHARE:
                yield f"{task.task}: {several(count, 'test example')} ({share:.0%}) {problem}."


ROWS = (
    *("sentences", "documents", "tokens", "median length in tokens", "99% have at most", "longest"),
    *("sentences cut", "unknown tokens", "copies of an earlier sentence", "sentences also in train"),
)
"""Names of the facts in the table of splits, in the order of the fields of `SplitFacts`."""


def show(arms: Sequence[str], facts: TextFacts, report: Mapping[str, Any]) -> None:
    """Print the facts about the text of some arms as tables, with the warnings below them.

    The table of splits has a column for each split, so that it fits into 80 characters.
    """
    console = console_for_tables()
    _print_title(console, f"Text of {listed(arms, 'and')}: {report['vocab_size']:,} sub-words")
    splits, *rows = zip(*facts.splits, strict=True)
    console.print(_table(("", *splits), ((name, *row) for name, row in zip(ROWS, rows, strict=True))))
    if facts.tasks:
        console.print()
        _print_title(console, "Test examples of its tasks")
        console.print(
            _table(("task", "examples", "in data.train", "in its train part", "class not there"), facts.tasks)
        )
    print_plainly(warnings(facts, report), console)


def _print_title(console: Console, title: str) -> None:
    """Print the title of a table. A title inside a table would be wrapped at the width of the table."""
    console.print(title, style="italic", highlight=False, markup=False, soft_wrap=True)


def _table(heads: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for i, head in enumerate(heads):
        table.add_column(head, justify="right" if i else "left", no_wrap=i > 0, overflow="fold")
    for name, *numbers in rows:
        table.add_row(name, *("-" if number is None else f"{number:,}" for number in numbers))
    return table
