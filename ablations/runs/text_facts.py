"""Facts about the text of an experiment before anything is trained: lengths, unknown tokens, cut and repeated
sentences, sentences of validation and of tasks that are also in the training text, and test examples of tasks
that are cut, repeat a training example or have a class of none.

Two sentences of a text are the same if they have the same words in the same order. Texts of tasks are compared
without white space.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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
from ablations.tasks.settings import (
    NEXT_SENTENCE,
    BaselinesSettings,
    PartSettings,
    RetrievalSettings,
    TaskSettings,
)
from ablations.wording import listed, several
from lightning_modules import plugins
from lightning_modules.config import Data, RunSettings
from lightning_modules.data.corpus import open_corpus
from lightning_modules.data.tokenising import sentence_hashes
from lightning_modules.errors import AblationsError

if TYPE_CHECKING:
    from ablations.tasks.examples import Examples
    from lightning_modules.data.token_store import Tokens


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
    """Facts about the test examples of a task that a measure takes, beside the training examples that it takes. If
    measures take different examples, it is the measure of which most test examples have one fault."""

    task: str
    examples: int
    in_training: int
    """Number of examples with a text that is also a sentence of the training text."""
    repeated: int | None
    """Number of examples whose texts are those of a training example of the task; None for minimal pairs, which
    have no training examples, and for retrieval, which learns from none."""
    new_class: int | None
    """Number of examples with a class or tag of no training example; None for tasks without classes."""
    cut: int | None
    """Number of examples that are cut at `data.max_length`; None for minimal pairs and retrieval."""


class TextFacts(NamedTuple):
    """Facts about a text, and about the tasks of models that are trained on it."""

    splits: list[SplitFacts]
    tasks: list[TaskFacts]


MeasuresByTask = dict[str, list[TaskSettings | RetrievalSettings]]


def measures_by_task(
    measures: Sequence[Measure], runs: Iterable[RunSettings], *, data_root: Path
) -> MeasuresByTask:
    """Return, for each task with test examples and existing files, the measures of it on some runs. In place of
    baselines it has the measures whose examples they take."""
    by_task: MeasuresByTask = {}
    for settings in (part for run in runs for part in for_run(measures, run, data_root=data_root)):
        if isinstance(settings, TaskSettings | RetrievalSettings) and settings.task_name != NEXT_SENTENCE:
            taking = settings.compared_measures if isinstance(settings, BaselinesSettings) else (settings,)
            of_task = by_task.setdefault(settings.task_name, [])
            of_task += [measure for measure in taking if measure not in of_task]
    return by_task


def text_facts(data: Data, tokens: "Tokens", tasks: MeasuresByTask, *, data_root: Path) -> TextFacts:
    """Return the facts about each split of a text and about tasks. The text is read once.

    Args:
        data: settings of the text.
        tokens: its tokens.
        tasks: measures of tasks whose files exist, by the task.
        data_root: folder to which relative paths refer.

    Raises:
        DataError: a file of a task is damaged.
    """
    facts = []
    for split, counted in tokens.report["splits"].items():
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
    if tasks:
        corpus = open_corpus(data, data_root=data_root)
        train_S = _joined_hashes(row.text for row in corpus.rows("train"))
    of_tasks = [_task_facts(name, of_task, data, tokens, train_S, data_root) for name, of_task in tasks.items()]
    return TextFacts(facts, of_tasks)


def warnings_of_own_tasks(
    measures: Sequence[Measure], runs: Iterable[RunSettings], data: Data, tokens: "Tokens", *, data_root: Path
) -> Iterator[str]:
    """Yield the sentences of `warnings` on tasks of the user's own, without those on the training text, which is
    not read. Damaged tasks are left out.

    Args:
        runs: settings of runs on one text.
        data: settings of this text.
        tokens: its tokens.
    """
    for name, of_task in measures_by_task(measures, runs, data_root=data_root).items():
        if plugins.is_text(name):
            with suppress(AblationsError):  # runs are refused with this error before they start
                facts = _task_facts(name, of_task, data, tokens, np.empty(0, np.uint64), data_root)
                yield from _shared([facts], data.max_length)


def _task_facts(
    name: str,
    measures: Sequence[TaskSettings | RetrievalSettings],
    data: Data,
    tokens: "Tokens",
    train_S: NDArray[np.uint64],
    data_root: Path,
) -> TaskFacts:
    from ablations.tasks.encoding import encode_examples  # imports torch, which only tasks need
    from ablations.tasks.examples import part, read_examples

    seed = getattr(data, "seed", None)
    task = task_called(name)
    all_test = read_examples(task, "test", data_root=data_root, language_seed=seed)
    if task.kind == "minimal_pairs":
        return TaskFacts(name, len(all_test), _count_shared(all_test, train_S), None, None, None)
    all_train = read_examples(task, "train", data_root=data_root, language_seed=seed)
    learning = [settings for settings in measures if isinstance(settings, PartSettings)]
    taken = [(part(all_train, each, "train"), part(all_test, each, "test")) for each in learning]
    if not taken:  # retrieval learns from no examples of the task, and reads each text of a pair alone
        return TaskFacts(name, len(all_test), _count_shared(all_test, train_S), None, None, None)
    facts = []
    for train, test in taken:
        new_class = None
        if task.kind in ("classification", "tagging"):
            classes = train.classes
            new_class = sum(
                not classes.issuperset([right] if test.words is None else right) for right in test.answers
            )
        encoded = encode_examples(task, test, tokens.tokenizer, max_length=data.max_length)
        cut = sum(row.cut for row in encoded.rows)
        repeated = int(np.isin(_example_hashes(test), _example_hashes(train)).sum())
        facts.append(TaskFacts(name, len(test), _count_shared(test, train_S), repeated, new_class, cut))
    return max(facts, key=lambda each: max(each.new_class or 0, each.cut or 0, each.repeated or 0) / each.examples)


def _count_shared(test: "Examples", train_S: NDArray[np.uint64]) -> int:
    """Return the number of examples with a text that is also a sentence of the training text."""
    shared_N = np.zeros(len(test), np.bool_)
    for texts in filter(None, (test.first, test.second)):
        shared_N |= np.isin(_joined_hashes(texts), train_S)
    return int(shared_N.sum())


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
    return [*doubts.unfit_text({"": report}), *_shared(facts.tasks, report["settings"]["max_length"])]


CUT_SHARE = 0.05
"""Smallest share of cut test examples that gives a warning."""


def _shared(tasks: Iterable[TaskFacts], max_length: int) -> Iterator[str]:
    for task in tasks:
        shares = (
            (
                task.in_training,
                doubts.SHARED_SHARE,
                "have a text that is also a sentence of data.train, so scores may look better than they are; "
                "remove them from the examples or from the training text",
            ),
            (
                task.repeated,
                doubts.SHARED_SHARE,
                "have the texts of a training example of this task, so scores may look better than they are; "
                "remove them from one of the two parts",
            ),
            (
                task.new_class,
                doubts.SHARED_SHARE,
                "have a class of no training example, so no answer to them can be right; write the same classes "
                "into all parts, take more training examples, or remove them",
            ),
            (
                task.cut,
                CUT_SHARE,
                f"have more than {max_length} tokens (data.max_length), so encoders do not read them to their "
                "end, but baselines do; raise data.max_length",
            ),
        )
        for count, least, problem in shares:
            share = (count or 0) / max(1, task.examples)
            if count and share >= least:
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
            _table(
                ("task", "examples", "in data.train", "in its train part", "class not in it", "cut at max_length"),
                facts.tasks,
            )
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
