"""Text of a run, sentence by sentence: the built-in language, local files, or a data set of the hub.

A sentence is one line. White space at its ends is removed, and white space inside becomes one space. Words
are then separated by spaces, here and in the sub-words. Nothing else is changed.

`half_of` divides a table into two halves, so that a text and a task can share a parquet file without sharing
a row.

A data set of the Hugging Face hub, or of a local folder that `datasets.load_dataset` reads, is data only:
`datasets` 4 and later run no code of a data set and load no pickles. `datasets` is imported where it is used,
since its import takes a second, and reading rows with it imports torch.
"""

import hashlib
import json
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lightning_modules.config import Data, FilesData, HubData, LanguageData
from lightning_modules.config.data import Half
from lightning_modules.data.tables import (
    ENDINGS,
    Cells,
    Columns,
    Source,
    cell,
    check_column,
    check_head,
    file_source,
    format_of,
    missing_error,
    status_of,
)
from lightning_modules.errors import DataError
from lightning_modules.files import sha256
from lightning_modules.randomness import derive

SplitName = Literal["train", "validation", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")

LANGUAGE_VERSION = 1
"""Version of the built-in language. It counts up whenever the same seed gives other sentences."""

READING_VERSION = 1
"""Version of the readers. It counts up whenever the same bytes are read as other sentences."""

HUB_ROWS_AT_ONCE = 1000

CUTTING = {"vocab_size", "max_length", "tokenizer"}
"""Settings that say how sentences are cut into sub-words."""

LATER = {"half", "label", "label_words"}
"""Settings that were added later. Their default values are not part of an address, so that older addresses
stay valid."""


def half_of(number: int) -> Half:
    """Return the half that a row belongs to. It depends on the row's number (from 1) alone.

    A text and a task agree on the halves of a parquet file. Of other files a text counts lines and a task rows, so
    both may have the same row.
    """
    return "second" if derive(0, "half", number) % 2 else "first"


class Row(NamedTuple):
    """One sentence of a text, with its translation and document."""

    text: str
    target: str | None
    """Translation of the sentence; None if the corpus has none."""
    document: int
    """Number of the document, from 0 in every split. It rises by one with each new document."""


class Sentences:
    """Sentences of one split, in order. They can be read again and again."""

    def __init__(
        self,
        split: SplitName,
        sources: tuple[Source, ...],
        columns: Columns,
        *,
        half: Half | None = None,
        label_words: tuple[str, ...] = (),
    ) -> None:
        """Prepare to read columns of sources as `ColumnSettings` says. If `half` is given, only rows of this half
        are read."""
        self._split, self._sources, self._columns = split, sources, columns
        self._half, self._label_words = half, label_words
        self.skipped = 0
        """Number of rows that the latest reading left out, without a sentence or with an empty translation."""

    def __iter__(self) -> Iterator[Row]:
        """Yield the sentences of the split from the start.

        Raises:
            DataError: a row is not text, a translation or a document is missing, the rows of a document do not
                stand together, or no sentence is left at the end.
        """
        self.skipped, document = 0, -1
        for source in self._sources:
            last: tuple[Any] | None = None
            seen: set[int] = set()
            for cells in source.cells():
                if self._half is not None and half_of(cells.number) != self._half:
                    continue
                text, target = self._sentences(cells, source)
                if not text or target == "":
                    self.skipped += 1
                    continue
                if last != (cells.document,):
                    document, last = document + 1, (cells.document,)
                    if self._columns.document is not None:
                        self._require_new(cells, source, seen)
                yield Row(text, target, document)
        if document < 0:
            names = ", ".join(source.name for source in self._sources)
            raise DataError(f"{names}: all rows are empty (data.{self._split}); give a file with text.")

    def _require_new(self, cells: Cells, source: Source, seen: set[int]) -> None:
        """Add the hash of a row's document to those seen; a DataError if it is there, or if the row has none."""
        key, column = cells.document, self._columns.document
        where = f"{source.name}, {source.unit} {cells.number}"
        is_blank = isinstance(key, str) and not key.strip()
        if key is None or is_blank or key != key:  # NaN, a missing number of pandas, differs from itself
            raise DataError(
                f"{where}: there is a sentence in column {self._columns.text!r}, but no document in {column!r}; "
                "write the name of its document, or remove the row."
            )
        name = hash(repr(key))  # 64 bits; names themselves need more memory
        if name in seen:
            raise DataError(
                f"{where}: document {key!r:.40} (column {column!r}) begins a second time, but the rows of a "
                "document must stand together; sort the rows by this column without changing their order inside "
                "a document, or give each document a name of its own."
            )
        seen.add(name)

    def _sentences(self, cells: Cells, source: Source) -> tuple[str, str | None]:
        where = f"{source.name}, {source.unit} {cells.number}"
        text = _sentence(cells.text, self._columns.text, where)
        if text and self._label_words:
            text = f"{text} {_label_word(cells.label, self._label_words, where)}"
        if not text or self._columns.target is None:
            return text, None
        if cells.target is None:
            raise DataError(
                f"{where}: there is a sentence in column {self._columns.text!r}, but none in "
                f"{self._columns.target!r}; add the translation, or remove the row."
            )
        return text, _sentence(cells.target, self._columns.target, where)


def _sentence(value: Any, column: str, where: str) -> str:
    """Return a cell's text as one line with single spaces."""
    if isinstance(value, str):
        return " ".join(value.split())
    content = "nothing (null)" if value is None else f"{value!r:.40} ({type(value).__name__})"
    raise DataError(f"{where}: column {column!r} has {content}, expected text; correct or remove the row.")


def _label_word(value: Any, words: tuple[str, ...], where: str) -> str:
    """Return the word for a label."""
    number = str(value)
    if number.isdecimal() and int(number) < len(words):
        return words[int(number)]
    numbers = ", ".join(f"{i} for {word}" for i, word in enumerate(words))
    raise DataError(
        f"{where}: the label is {number!r:.40}, but a label must be the number of its word in data.label_words "
        f"({numbers}); write these numbers in the column."
    )


@dataclass(frozen=True)
class Corpus:
    """All splits of a text, and whether it has translations."""

    has_target: bool
    """Whether every sentence has a translation."""
    _rows: dict[SplitName, Sentences]

    @property
    def splits(self) -> tuple[SplitName, ...]:
        """Splits of the text: always train and validation, and test if it is given."""
        return tuple(self._rows)

    def rows(self, split: SplitName) -> Sentences:
        """Return the sentences of a split. They are read when they are iterated over."""
        return self._rows[split]


def open_corpus(settings: Data, *, data_root: Path) -> Corpus:
    """Return the text that the settings name.

    Raises:
        DataError: the text is unfit, as in `check`.
    """
    check(settings, data_root)
    columns = _columns(settings)

    def rows(split: SplitName) -> Sentences:
        sources = _sources(settings, data_root, split, columns)
        if isinstance(settings, LanguageData):
            return Sentences(split, sources, columns)
        half = settings.half if split == "train" else None
        return Sentences(split, sources, columns, half=half, label_words=settings.label_words)

    return Corpus(columns.target is not None, {split: rows(split) for split in SPLITS if getattr(settings, split)})


def _columns(settings: Data) -> Columns:
    if isinstance(settings, LanguageData):
        return Columns("text", "translated_text", "document")
    return Columns(settings.text, settings.target, settings.document, settings.label)


def _sources(settings: Data, data_root: Path, split: SplitName, columns: Columns) -> tuple[Source, ...]:
    if isinstance(settings, FilesData):
        return tuple(file_source(data_root / name, columns) for name in getattr(settings, split))
    if isinstance(settings, HubData):
        return (_hub_source(settings, _hub_folder(settings, data_root), getattr(settings, split), columns),)
    return (Source("the built-in language", "sentence", lambda: _language_cells(settings, split)),)


def _language_cells(settings: LanguageData, split: SplitName) -> Iterator[Cells]:
    from lightning_modules.data.language import language_of  # only imported where it is needed

    sentences = language_of(settings.seed).sentences(split, getattr(settings, split))
    for number, (document, sentence) in enumerate(sentences, start=1):
        yield Cells(number, sentence.text, sentence.translated_text, document)


# Checks before anything is read ----------------------------------------------------------------------


def check(settings: Data, data_root: Path) -> None:
    """Raise an error for all problems of a text that show without reading all of it: files, endings, columns,
    splits.

    This needs no network: data sets of the hub are not checked.

    Raises:
        DataError: the text has problems; the error has one sentence and one line for each.
    """
    if sentences := [problem for _, problem in problems(settings, data_root)]:
        raise DataError("\n".join(sentences))


def problems(settings: Data, data_root: Path) -> list[tuple[str, str]]:
    """Return every problem that `check` reports, as (name of the setting, sentence)."""
    pairs: list[tuple[str, str]] = []
    if isinstance(settings, FilesData):
        for split in SPLITS:
            for name in getattr(settings, split):
                try:
                    _check_file(settings, split, data_root / name)
                except DataError as error:
                    pairs.append((split, str(error)))
    elif isinstance(settings, HubData):
        try:
            folder = _hub_folder(settings, data_root)
            if folder is not None:
                _check_hub_splits(settings, folder)
        except DataError as error:
            pairs.append(("path", str(error)))
    return pairs


def _check_file(settings: FilesData, split: SplitName, path: Path) -> None:
    status = status_of(path, f"data.{split}")
    if stat.S_ISDIR(status.st_mode):
        raise DataError(
            f"{path} is a folder, but data.{split} of kind files must name files; name the files in it."
        )
    ending = format_of(path)
    if ending is None:
        raise DataError(
            f"{path} has an unknown ending (data.{split}), expected {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]} "
            "(all except parquet also with .gz); convert or rename the file."
        )
    if status.st_size == 0:
        raise DataError(f"{path} is empty (data.{split}); give a file with one sentence in each line or row.")
    columns = _columns(settings)
    if ending == ".txt":
        for setting in ("target", "document", "label"):
            if getattr(columns, setting) is not None:
                raise DataError(
                    f"{path} is plain text without columns, but data.{setting} names a column; use a file with "
                    f"columns, or leave data.{setting} out."
                )
    check_head(path, columns)


# Identity --------------------------------------------------------------------------------------------


def content_address(settings: Data, data_root: Path) -> str:
    """Return the SHA-256 (hex) that identifies the content of a text, wherever its files lie.

    Files count with their bytes, format, order and the columns read; of their names only the ending counts. A
    local folder of a data set counts with the bytes and names inside it, a data set of the hub with its name,
    commit and splits, the built-in language with its settings. How sentences are cut into sub-words does not
    count.

    Raises:
        DataError: the text is unfit, as in `check`.
    """
    check(settings, data_root)
    content: dict[str, Any] = {"kind": settings.kind, "reading": READING_VERSION}
    if isinstance(settings, FilesData):
        for split in SPLITS:
            paths = [data_root / name for name in getattr(settings, split)]
            content[split] = [(format_of(path), path.suffix.lower() == ".gz", sha256(path)) for path in paths]
        content |= settings.model_dump(include={"text", "target", "document"})
    elif isinstance(settings, HubData):
        folder = _hub_folder(settings, data_root)
        content |= settings.model_dump(exclude=CUTTING | LATER | {"path", "revision"})
        content["data"] = [settings.path, settings.revision] if folder is None else _folder(folder)
    else:
        content |= settings.model_dump(exclude=CUTTING) | {"language": LANGUAGE_VERSION}
    content |= settings.model_dump(include=LATER, exclude_defaults=True)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _folder(folder: Path) -> list[tuple[str, str]]:
    """Return the name and hash of every file that `datasets` could read, which are all but hidden files."""
    names: Iterable[Path] = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted((n.as_posix(), sha256(folder / n)) for n in names if not any(p.startswith(".") for p in n.parts))


# Data sets of the hub --------------------------------------------------------------------------------


def _hub_folder(settings: HubData, data_root: Path) -> Path | None:
    """Return the folder that `data.path` names; None if it names a data set of the hub.

    Raises:
        DataError: the path is neither a folder nor a possible name on the hub, or the commit is missing.
    """
    folder = data_root / settings.path
    if folder.is_dir():
        return folder
    if folder.is_file():
        raise DataError(
            f"{folder} is a file, but data.path of kind hub must be a folder or a name on the hub; write kind: "
            "files for a file."
        )
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", settings.path) or settings.path.startswith("."):
        raise missing_error(folder, "data.path")
    if settings.revision is None or not re.fullmatch(r"[0-9a-f]{40}", settings.revision):
        given = "is missing" if settings.revision is None else f"is {settings.revision!r}"
        raise DataError(
            f"data.revision {given}, but {settings.path!r} is not a folder under {data_root}, and a text on the "
            "hub may change after a run; give the commit, 40 hexadecimal digits."
        )
    return None


def _check_hub_splits(settings: HubData, folder: Path) -> None:
    """Check that a folder has the splits that are asked for and, if it declares its columns, these too.

    Raises:
        DataError: the folder is no data set, or a split or column is missing.
    """
    import datasets

    with _hub_explained(settings), tempfile.TemporaryDirectory() as cache:
        builder = datasets.load_dataset_builder(str(folder), settings.name, cache_dir=cache)
        splits, features = list(builder.config.data_files or ()), builder.info.features
    for setting in SPLITS:
        split = getattr(settings, setting)
        for name in re.split(r"\[.*?\]|\+", split or ""):  # parts and sums: train[:90%], train+validation
            if name and splits and name not in splits:
                listed = ", ".join(repr(str(existing)) for existing in splits)
                raise DataError(
                    f"{folder} has no split {name!r} (data.{setting}), only {listed}; name one of these."
                )
    for name in Columns._fields:
        column = getattr(settings, name)
        if column is not None and features is not None and column.partition(".")[0] not in features:
            check_column(str(folder), name, column, list(features))


def _hub_source(settings: HubData, folder: Path | None, split: str, columns: Columns) -> Source:
    """Return the rows of one split as a source.

    A data set of the hub is kept in Hugging Face's cache. A folder is streamed, without a copy. `datasets`
    cannot stream parts or sums of splits, so these are copied.
    """
    name = f"{settings.path}, split {split!r}"

    def cells() -> Iterator[Cells]:
        import datasets

        load = partial(datasets.load_dataset, name=settings.name, split=split)
        with _hub_explained(settings), tempfile.TemporaryDirectory() as cache:
            if folder is None:
                rows = load(settings.path, revision=settings.revision)
            else:
                rows = load(str(folder), streaming=not re.search(r"[\[+]", split), cache_dir=cache)
            yield from _hub_rows(rows, columns, name)

    return Source(name, "row", cells)


def _hub_rows(dataset: Any, columns: Columns, where: str) -> Iterator[Cells]:
    number, settings = 0, list(columns._asdict().items())
    if dataset.column_names is not None:  # columns of JSON lines are only known once they are read
        outer = {setting: name.partition(".")[0] for setting, name in settings if name is not None}
        for setting, name in outer.items():
            check_column(where, setting, name, dataset.column_names)
        dataset = dataset.select_columns(sorted(set(outer.values())))  # no pictures or sounds are decoded
    for batch in dataset.iter(batch_size=HUB_ROWS_AT_ONCE):
        for values in zip(*batch.values(), strict=True):
            number += 1
            row = dict(zip(batch, values, strict=True))
            place = f"{where}, row {number}"
            yield Cells(number, *(cell(row, setting, name, place) for setting, name in settings))


@contextmanager
def _hub_explained(settings: HubData) -> Iterator[None]:
    """Turn errors of `datasets` into DataErrors. `datasets` raises built-in errors for most problems."""
    from datasets.exceptions import DatasetsError

    try:
        yield
    except DataError:
        raise
    except ConnectionError as error:
        raise DataError(
            f"The data set {settings.path!r} cannot be downloaded from the hub: no connection; give the command "
            "once with a network (later it is read from Hugging Face's cache), or use local files."
        ) from error
    except (DatasetsError, OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise DataError(
            f"The data set {settings.path!r} cannot be read: {reason}; check data.path, name, revision and splits."
        ) from error
