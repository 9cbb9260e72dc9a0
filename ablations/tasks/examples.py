"""Examples of a task: texts and right answers, from its files or from the built-in language.

Entities are marked by tags of words: O outside, and a letter for the word's place in the entity, with the
type. ``B-LOC`` begins an entity, ``I-LOC`` continues it, ``E-LOC`` or ``L-LOC`` ends it, and ``S-LOC`` or
``U-LOC`` is all of it. IO, BIO, BIOES and BILOU use some of these letters. Tags without types are the letters
alone.
"""

import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablations.measures.reading.alignment import MARKS, UNSPACED
from ablations.measures.reading.texts import Readings, Say, Texts
from ablations.measures.settings import MeasureSettings
from ablations.tasks import built_in
from ablations.tasks.datasets import SPLITS, Split, Task, files_now, own_tasks, task_called
from ablations.tasks.settings import ParsingSettings, PartSettings, StructuralProbeSettings
from ablations.tasks.trees import GoldTree, gold_trees
from ablations.wording import shown
from lightning_modules.data.corpus import half_of
from lightning_modules.data.tables import format_of, numbered_rows, parquet_table
from lightning_modules.data.treebank import LabelledSentence, language_sentences, read_treebank
from lightning_modules.errors import DataError
from lightning_modules.randomness import derive, uniforms

OUTSIDE: Final = "O"
CONTINUES: Final = frozenset("IEL")
"""Prefixes of tags that may follow another tag of the same entity."""
ENDS: Final = frozenset("ELSU")
"""Prefixes of tags of the last word of an entity."""
_ALONE_OR_FIRST: Final = frozenset("BSU")


def is_entity_tag(tag: str) -> bool:
    """Return whether a tag can be read as the tag of an entity."""
    return tag == OUTSIDE or tag.partition("-")[0] in CONTINUES | _ALONE_OR_FIRST


DIVISION: dict[Split, float] = {"train": 0.70, "validation": 0.85, "test": 1.0}
"""End of each split in [0, 1), if one file serves all splits. A hash of the value of `divided_by` gives each
example its place in [0, 1)."""

SENTENCE_END = re.compile(r"[.!?…۔؟][\"'”’»)\]]*\s+(?=([^\s.!?…۔؟]))|[。！？।॥။។៕։።፧།༎][”’»」』）)]*\s*")
"""Pattern of the end of a sentence. Marks that also stand inside a word or number, such as the Urdu stop of
abbreviations, need white space after them."""

WORD: Final = rf"{UNSPACED}[{MARKS}]*|(?:(?!{UNSPACED})[\w{MARKS}])+"
"""Pattern of a word without punctuation."""
SPACED: Final = rf"{UNSPACED}[{MARKS}]*|(?:(?!{UNSPACED})\S)+"
"""Pattern of a word with the punctuation that touches it: what stands between blanks, or a character of a script
without spaces."""


class Answer(NamedTuple):
    """Span of characters of the context, as the answer to a question."""

    start: int
    stop: int


@dataclass(frozen=True)
class Examples:
    """Texts and answers of a task, aligned."""

    first: list[str]
    """The text; for a span the question; for tagging the words, joined by blanks."""
    second: list[str] | None
    """The other text of a pair; for a span the context; None for single texts."""
    words: list[list[str]] | None
    """Words of each sentence, for tagging; None for other kinds."""
    answers: list[Any]
    """Answers: `str` classes, `float` numbers, lists of `str` tags, or `Answer` for spans. Each is None for
    minimal pairs."""
    groups: list[tuple[str, ...]] | None = None
    """Values of the task's `groups`, for minimal pairs; None for other kinds."""
    cluster: list[str] | None = None
    """What examples share that are not independent: of a span the value of `divided_by`, or the whole paragraph;
    None for other kinds, whose examples are taken as independent."""

    def __len__(self) -> int:
        return len(self.first)

    @property
    def right(self) -> list[Any]:
        """Answers in the form in which they are scored: spans as their texts."""
        if self.second is None:
            return self.answers
        pairs = zip(self.second, self.answers, strict=True)
        return [
            text[answer.start : answer.stop] if isinstance(answer, Answer) else answer for text, answer in pairs
        ]

    @property
    def classes(self) -> set[Any]:
        """All classes, or tags of words, that occur as answers."""
        return set(self.answers if self.words is None else itertools.chain(*self.answers))

    def take(self, index_N: NDArray[np.int64] | Sequence[int]) -> "Examples":
        """Select some of the examples, in that order."""
        chosen = [int(i) for i in index_N]

        def of(values: list[Any] | None) -> Any:
            return None if values is None else [values[i] for i in chosen]

        return Examples(*(of(getattr(self, column.name)) for column in fields(self)))


def read_examples(task: Task, split: Split, *, data_root: Path, language_seed: int | None = None) -> Examples:
    """Read all examples of a split.

    Texts, words, classes and tags have single spaces, as the sentences of a corpus have. Questions and contexts of
    spans keep their white space, as the places of answers count it. The context of a span is the sentence of the
    paragraph that holds the answer, because the encoders here read sentences.

    Args:
        language_seed: seed of the built-in language, from which its tasks are made.

    Raises:
        DataError: a file is missing or damaged, or lacks a column; the split has no examples, only blank texts,
            or answers that tell no models apart; both texts of a minimal pair are the same; or the task is built
            in and the data are files.
    """
    if task.built_in:
        if language_seed is None:
            raise DataError(
                f"task {task.name}: its examples come from the built-in language, but the data are files; leave "
                "the task out."
            )
        rows = list(built_in.rows(task, split, seed=language_seed))
    else:
        rows = list(_rows(task, split, data_root))
    if not rows:
        raise DataError(
            f"task {task.name}: its {split} part has no examples; add some, check where and divided_by, or leave "
            "the task out."
        )
    for name in task.text if task.kind != "tagging" else ():
        if not any(row[name].strip() for row in rows):
            raise DataError(
                f"task {task.name}: all texts of its {split} part are blank in {name}; write the texts into this "
                "column, or leave the task out."
            )
    examples = _examples(task, split, rows)
    # Answers that are all the same have no correlation with any others: hidden labels of -1, no word in an entity.
    answers = examples.classes if task.chance == "none" or task.metric == "entity_f1" else set()
    if answers == {OUTSIDE} if task.metric == "entity_f1" else len(answers) == 1:
        raise DataError(
            f"task {task.name}: its {split} part has no answer but {shown(*answers)}, so {task.metric} cannot "
            "tell models apart; write the right answers, or leave the task out."
        )
    return examples


def subset(examples: Examples, count: int, *, seed: int) -> Examples:
    """Return `count` examples at random, or all if there are fewer. A larger subset of the same seed contains
    the smaller ones."""
    return examples.take(drawn(derive(seed, "examples"), len(examples), count))


def drawn(seed: int, of: int, count: int) -> NDArray[np.int64]:
    """Draw `count` of the numbers below `of`, ascending; all if there are fewer. A larger draw of the same seed
    contains the smaller ones."""
    return np.sort(np.argsort(uniforms(seed, np.arange(of)), kind="stable")[:count])


def part(examples: Examples, settings: PartSettings, split: Split) -> Examples:
    """Select the examples of a split that a measure takes: at most `settings.most_examples(split)`, at
    random.

    If the measure counts words of tagged sentences, it takes whole sentences with at most that many words in
    all, but at least one sentence.
    """
    limit = settings.most_examples(split)
    if limit is None:
        return examples
    if examples.words is None or settings.counts == "examples":
        return subset(examples, limit, seed=0)
    words_S = np.array([len(sentence) for sentence in examples.words])
    order_S = np.random.default_rng(derive(0, "probed sentences")).permutation(len(words_S))
    kept_S = order_S[words_S[order_S].cumsum() <= limit]
    return examples.take(np.sort(kept_S if len(kept_S) else order_S[:1]))


def _rows(task: Task, split: Split, data_root: Path) -> Iterator[dict[str, Any]]:
    shared = split not in task.files
    columns = task.columns
    place = data_root / task.files["test" if shared else split]
    if not place.is_file():
        raise DataError(f"task {task.name}: {place} does not exist; check --data-root, or leave the task out.")
    half = task.half if split == "train" else None
    for number, row in _table(task, place, columns):
        if half is not None and half_of(number) != half:
            continue
        if task.divided_by is None or _split_of(str(row[task.divided_by])) == split:
            yield row


def _table(task: Task, place: Path, columns: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows that `where` keeps, with their numbers from 1."""
    if format_of(place) in (".jsonl", ".csv", ".tsv"):
        lines = list(numbered_rows(place))
        if lines:  # an object of jsonl may lack a column: a gap, as in other formats
            task.require_columns(
                place, list(dict.fromkeys(itertools.chain.from_iterable(row for _, row in lines)))
            )
        rows = [{name: row.get(name) for name in columns} for _, row in lines]
        places = [f"line {line}" for line, _ in lines]
    else:
        damaged = f"task {task.name}: {place} cannot be read as parquet"
        rows = parquet_table(
            place,
            columns,
            lambda schema: task.require_columns(place, schema.names),
            damaged=damaged,
            remedy="copy it again",
        )
        places = [f"row {number}" for number in range(1, len(rows) + 1)]
    holds = _held(task)
    for number, (where, row) in enumerate(zip(places, rows, strict=True), start=1):
        if any(value not in _spellings(row[name]) for name, value in task.where.items()):
            continue
        if (empty := next((name for name in columns if _is_missing(row[name])), None)) is not None:
            raise DataError(
                f"task {task.name}: {place}, {where}: {empty} is empty, expected a value; remove the row."
            )
        for name, (expected, fits) in holds.items():
            if not fits(row[name]):
                raise DataError(
                    f"task {task.name}: {place}, {where}: {name} is {shown(row[name])}, expected {expected}; "
                    f"correct or remove the row, or leave the task out."
                )
        yield number, row


def _spellings(value: Any) -> set[str]:
    """Return the texts that stand for a value in `where`: `true` for True, and `1` for 1.0, which pandas makes of
    1 if the column has gaps."""
    if isinstance(value, bool):
        return {str(value), str(value).lower()}
    return {str(value), f"{value:.15g}"} if isinstance(value, float) else {str(value)}


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _is_place(value: Any) -> bool:
    """Return whether a value is a whole number from 0 on, also as text or as 1.0, which pandas makes of 1 if the
    column has gaps."""
    return not isinstance(value, bool) and _is_number(value) and float(value) >= 0 and float(value).is_integer()


def _held(task: Task) -> dict[str, tuple[str, Callable[[Any], bool]]]:
    """Return, for each column of a task, what it must hold, in words, and a check of a value."""
    text = ("text", lambda value: isinstance(value, str))
    held: dict[str, tuple[str, Callable[[Any], bool]]] = dict.fromkeys(task.text, text)
    match task.kind:
        case "tagging":
            kinds = {task.text[0]: "words", task.label: "tags"}
            held = {
                name: (f"a list of {kind}", lambda value: isinstance(value, list)) for name, kind in kinds.items()
            }
        case "span":
            held |= {task.label: text, task.start or "": ("a number of characters", _is_place)}
        case "regression":
            held[task.label] = ("a number", _is_number)
    return held


def _split_of(value: str, division: Mapping[Split, float] = DIVISION) -> Split:
    share = derive(0, "split", value) / 2**63 % 1.0
    return next(split for split, below in division.items() if share < below)


def _examples(task: Task, split: Split, rows: list[dict[str, Any]]) -> Examples:
    match task.kind:
        case "tagging":
            return _tagged(task, split, rows)
        case "span":
            _check_spans(task, split, rows)
            spans = [
                _around(row[task.text[1]], int(float(row[task.start or ""])), row[task.label]) for row in rows
            ]
            contexts, answers = [context for context, _ in spans], [answer for _, answer in spans]
            cluster = [str(row[task.divided_by or task.text[1]]) for row in rows]
            return Examples([row[task.text[0]] for row in rows], contexts, None, answers, cluster=cluster)
    first, *others = ([" ".join(row[name].split()) for row in rows] for name in task.text)
    second = others[0] if others else None
    match task.kind:
        case "minimal_pairs":
            _check_groups(task, rows)
            for number, (good, bad) in enumerate(zip(first, second or [], strict=True), start=1):
                if _composed(good) == _composed(bad):  # it would count as half right for any model
                    letters = "" if good == bad else " and letters are composed (Unicode's NFC)"
                    raise DataError(
                        f"{_named(task, split, number)} has the same text on both sides once white space is "
                        f"single spaces{letters} ({shown(good)}), expected two different texts; remove it."
                    )
            groups = [tuple(str(row[name]) for name in task.groups) for row in rows]
            return Examples(first, second, None, [None] * len(rows), groups)
        case "regression":
            return Examples(first, second, None, [float(row[task.label]) for row in rows])
        case _:
            return Examples(first, second, None, [_spaced(row[task.label]) for row in rows])


def _named(task: Task, split: Split, number: int) -> str:
    """Return the name of an example in errors."""
    return f"task {task.name}: example {number} of its {split} part"


def _tagged(task: Task, split: Split, rows: list[dict[str, Any]]) -> Examples:
    words, tags = ([row[name] for row in rows] for name in (task.text[0], task.label))
    for number, (words_T, tags_T) in enumerate(zip(words, tags, strict=True), start=1):
        if not len(words_T) == len(tags_T) > 0:
            raise DataError(
                f"{_named(task, split, number)} has {len(words_T)} words and {len(tags_T)} tags, expected at "
                "least one word and a tag for each word; correct or remove it."
            )
        if any(_is_missing(value) or not str(value).strip() for value in (*words_T, *tags_T)):
            raise DataError(
                f"{_named(task, split, number)} has an empty word or tag, expected text; correct or remove it."
            )
    words, tags = ([[_spaced(entry) for entry in each] for each in column] for column in (words, tags))
    if task.metric == "entity_f1":
        _check_entity_tags(task, split, tags)
    return Examples([" ".join(sentence) for sentence in words], None, words, tags)


def _spaced(value: Any) -> str:
    """Return a value as text with single spaces and none around it."""
    return " ".join(str(value).split())


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _check_groups(task: Task, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise a DataError if two columns of groups share a value but not its pairs. Its score would be that of all
    pairs of both."""
    for first, second in itertools.combinations(task.groups, 2):
        values = [(str(row[first]), str(row[second])) for row in rows]
        of_first, of_second = map(set, zip(*values, strict=True))
        for value in dict.fromkeys(itertools.chain.from_iterable(pair for pair in values if pair[0] != pair[1])):
            if value in of_first & of_second:
                raise DataError(
                    f"task {task.name}: its group columns {first} and {second} both have the value "
                    f"{shown(value)}, but on different pairs, expected other values in one of them, as each value "
                    f"has one score; write for example {first}-{value} and {second}-{value}."
                )


def _check_spans(task: Task, split: Split, rows: list[dict[str, Any]]) -> None:
    for number, row in enumerate(rows, start=1):
        context, start, answer = row[task.text[1]], int(float(row[task.start or ""])), row[task.label]
        if not answer.strip():
            raise DataError(
                f"{_named(task, split, number)} has an answer without words, expected a part of its context; "
                "remove it."
            )
        # In NFC a mark at the beginning of an answer becomes a part of the letter before it.
        is_letter = _nfc(context).startswith(_nfc(context[:start]))
        if context[start : start + len(answer)] != answer or not is_letter:
            raise DataError(
                f"{_named(task, split, number)}: the answer {shown(answer)} is not at character {start} of its "
                "context; correct or remove it."
            )


def _check_entity_tags(task: Task, split: Split, tags: list[list[str]]) -> None:
    for number, of_sentence in enumerate(tags, start=1):
        if (wrong := next((tag for tag in of_sentence if not is_entity_tag(tag)), None)) is not None:
            raise DataError(
                f"{_named(task, split, number)} has the tag {shown(wrong)}, expected O or a tag of BIO, "
                "BIOES or BILOU such as B-LOC; write the tags in this form, or give the task the metric "
                "accuracy."
            )


def _around(context: str, start: int, answer: str) -> tuple[str, Answer]:
    """Return the sentences of a paragraph that hold an answer, and the answer's place in them, without white
    space around it.

    Both are brought to NFC, as the tokenizer brings them. Otherwise no token would end where an answer ends with
    an accent that is a character of its own.
    """
    start, context, answer = len(_nfc(context[:start])), _nfc(context), _nfc(answer)
    start += len(answer) - len(answer.lstrip())
    stop = start + len(answer.strip())
    # A small letter does not begin a sentence: the mark before it ends an abbreviation, or a question inside.
    marks = (match for match in SENTENCE_END.finditer(context) if not (match[1] or "").islower())
    ends = [0, *(mark.end() for mark in marks), len(context)]
    first = max(end for end in ends if end <= start)
    last = min(end for end in ends if end >= stop)
    return context[first:last].rstrip(), Answer(start - first, stop - first)


_nfc = partial(unicodedata.normalize, "NFC")


TREES = {"train": 2000, "validation": 500, "test": 1000}
"""Number of sentences with trees of the built-in language, by split."""

TREE_DIVISION: dict[Split, float] = {"train": 0.8, "validation": 0.9, "test": 1.0}
"""End of each split in [0, 1), where a hash of its text places each sentence of a treebank. So copies of a
sentence are in one split."""


class Source(NamedTuple):
    """Source of the examples of a task."""

    data_root: Path
    language_seed: int | None
    content: str | None
    """Digest of the task's files. If it changes, cached examples are not used."""


def source_of(readings: Readings, settings: MeasureSettings) -> Source:
    """Return the source of the examples that a measure reads for a run."""
    root = readings.texts.data_root
    return Source(root, getattr(readings.objective.run.data, "seed", None), files_now(settings, root))


def examples_of(name: str, split: Split, source: Source) -> Examples:
    """Return the examples of a task, copied, so that the caller may change them.

    Raises:
        DataError: a file of the task is missing or damaged, or the split has no examples.
    """
    return deepcopy(_kept_examples(name, split, source))


@lru_cache(maxsize=len(SPLITS))
def _kept_examples(name: str, split: Split, source: Source) -> Examples:
    """Read the examples. They are cached until another task comes, because several measures ask for the same
    ones."""
    return read_examples(task_called(name), split, data_root=source.data_root, language_seed=source.language_seed)


def all_examples(name: str, source: Source) -> dict[Split, Examples]:
    """Return the examples of a task by split, copied as by `examples_of`.

    Raises:
        DataError: as `examples_of`; a part has no class of the training part; or a part lacks the class that F1
            is about.
    """
    splits = {split: examples_of(name, split, source) for split in SPLITS}
    _require_shared_classes(task_called(name), splits)
    return splits


def require_own_tasks(settings: MeasureSettings, data_root: Path) -> None:
    """Read the examples that a measure takes from tasks of the user's own. Tasks whose files are missing are
    skipped.

    Raises:
        DataError: as `all_examples`, or as `examples_of` for measures that train nothing.
    """
    source = Source(data_root, language_seed=None, content=files_now(settings, data_root))
    for name in own_tasks([settings]):
        if task_called(name).problem(data_root) is None:
            if isinstance(settings, PartSettings):
                all_examples(name, source)
            else:
                examples_of(name, "test", source)


def _require_shared_classes(task: Task, splits: Mapping[Split, Examples]) -> None:
    """Raise a DataError if a part has no class of the training part, as where hidden test labels are all -1, or
    if a part lacks the class that F1 is about."""
    if task.kind not in ("classification", "tagging"):
        return
    classes = {split: examples.classes for split, examples in splits.items()}
    train = classes["train"]
    for split in SPLITS[1:]:
        if not train & classes[split]:
            raise DataError(
                f"task {task.name}: the {split} part ({_few(classes[split])}) and the training part "
                f"({_few(train)}) have no class in common, so no answer can be right; write the same classes "
                "into all parts, or leave the task out."
            )
    if task.positive is not None:
        for split, names in classes.items():
            if task.positive not in names:
                raise DataError(
                    f"task {task.name}: positive is {shown(task.positive)}, but the {split} part has only the "
                    f"classes {_few(names)}, so its F1 is 0; name a class of all parts, or add examples."
                )


def _few(classes: set[str]) -> str:
    """Return the first five classes for a sentence."""
    few = [shown(name, 30) for name in sorted(classes)[:5]]
    return ", ".join([*few, "..."] if len(classes) > len(few) else few)


def trees_of(
    texts: Texts, settings: ParsingSettings | StructuralProbeSettings, *, say: Say = lambda line: None
) -> dict[Split, list[GoldTree]]:
    """Return the trees that a measure wants by split, from the built-in language or from the treebank of the
    settings.

    The treebank is divided among the splits for a structural probe, and whole for parsing, which trains
    nothing and has only the split test. `say` gets a sentence on a split that loses most of its dependencies.

    Raises:
        DataError: the file is missing or damaged.
        MeasureError: a split has no sentence with a tree, or a sentence does not have the words of its text.
    """
    sentences: dict[Split, list[LabelledSentence]] = {split: [] for split in settings.trees_wanted}
    if settings.treebank is None:
        seed = getattr(texts.data, "seed", 0)
        sentences = {split: language_sentences(seed, f"trees: {split}", TREES[split]) for split in sentences}
    else:
        for sentence in read_treebank(texts.data_root / settings.treebank):
            split = _split_of(sentence.text, TREE_DIVISION) if len(sentences) > 1 else "test"
            sentences[split].append(sentence)
    whole = settings.treebank or "the built-in language"
    return {
        split: gold_trees(
            sentences[split],
            texts.tokens.tokenizer,
            count=count,
            longest=settings.longest,
            max_length=texts.data.max_length,
            where=whole if len(sentences) == 1 else f"the {split} part of {whole}",
            say=say,
        )
        for split, count in settings.trees_wanted.items()
    }
