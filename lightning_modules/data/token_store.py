"""Token store: a corpus as token ids on disk, found again by the content of its text; and the words in it.

    STORE/<10 hex>/
      tokens.json                                     what is here, a report on it, and the hash of every file
      tokenizer.json  target_tokenizer.json
      train.ids.npy  train.offsets.npy  train.documents.npy  train.target_ids.npy  train.target_offsets.npy
      train.counts_V.npy  train.target_counts_V.npy   number of occurrences of each id in the training text
      ...                                             the same for validation and test, without counts
      validation.references.json                      the translations of the validation text, as text

Every sentence is START, pieces, END. The folder appears whole or not at all. If two processes want the same
store, only one makes it. Words are separated by spaces in the text.

Letters: S sentences, N their tokens one after the other, V vocabulary, W words, C types (different words).
"""

import errno
import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from lightning_modules.config import Data
from lightning_modules.data.corpus import content_address, open_corpus
from lightning_modules.data.tokenising import REFERENCES, write_references, write_tokens
from lightning_modules.data.tokenizer import (
    FIRST_WORD_ID,
    START,
    UNKNOWN,
    content_of,
    read_tokenizer,
    starts_word,
    word_starts,
)
from lightning_modules.errors import DataError, FilesError, OutOfMemoryError
from lightning_modules.files import (
    explained,
    locked,
    make_folder,
    read_json,
    refusal,
    sha256_now,
    synced,
    unreadable,
    write_json,
)
from lightning_modules.randomness import uniforms

FORMAT = 1
"""Version of the files. It counts up whenever the same text and settings give other files."""

ADDRESS_DIGITS = 10


@dataclass(frozen=True, eq=False)
class Split:
    """Sentences of one split. The arrays lie on disk and are read where they are used."""

    ids: NDArray[np.unsignedinteger]
    """Shape N: all sentences, one after the other."""
    offsets: NDArray[np.int64]
    """Shape S + 1: sentence i is `ids[offsets[i]:offsets[i + 1]]`."""
    documents: NDArray[np.int32]
    """Shape S: number of each sentence's document, rising from 0."""
    target_ids: NDArray[np.unsignedinteger] | None = None
    """Translations, in ids of the target's vocabulary; None if the text has none."""
    target_offsets: NDArray[np.int64] | None = None

    @classmethod
    def of_sentences(cls, sentences: Sequence[Sequence[int]], *, vocab_size: int) -> "Split":
        """Return sentences, which are lists of ids from START to END, as a split in memory. Each is a document of
        its own."""
        lengths = [len(ids) for ids in sentences]
        ids_N = np.fromiter(itertools.chain.from_iterable(sentences), dtype=np.int64, count=sum(lengths))
        return cls(
            ids=ids_N.astype(np.min_scalar_type(vocab_size - 1)),
            offsets=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
            documents=np.arange(len(sentences), dtype=np.int32),
        )

    def __len__(self) -> int:
        return len(self.documents)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each sentence, START and END included. Shape S."""
        return np.diff(self.offsets)

    @cached_property
    def target_lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each translation, START and END included. Shape S."""
        assert self.target_offsets is not None, "this text has no translations"
        return np.diff(self.target_offsets)

    def head(self, sentences: int) -> "Split":
        """Return the first sentences of the split; all of them if there are fewer."""
        count = min(sentences, len(self))
        target = self.target_offsets
        return Split(
            ids=self.ids[: self.offsets[count]],
            offsets=self.offsets[: count + 1],
            documents=self.documents[:count],
            target_ids=None if self.target_ids is None or target is None else self.target_ids[: target[count]],
            target_offsets=None if target is None else target[: count + 1],
        )

    def sentence(self, i: int) -> NDArray[np.unsignedinteger]:
        """Return the ids of sentence i."""
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    def target_sentence(self, i: int) -> NDArray[np.unsignedinteger]:
        """Return the ids of the translation of sentence i."""
        assert self.target_ids is not None, "this text has no translations"
        assert self.target_offsets is not None
        return self.target_ids[self.target_offsets[i] : self.target_offsets[i + 1]]


@dataclass(frozen=True, eq=False)
class Tokens:
    """A corpus as token ids."""

    folder: Path
    address: str
    """Ten hex digits that identify the text and how it was cut; also the folder's name."""
    report: dict[str, Any]
    """Content of `tokens.json`, with counts, lengths, unknown and cut tokens of each split."""
    vocab_size: int
    target_vocab_size: int | None
    train: Split
    validation: Split
    test: Split | None
    source_counts_V: NDArray[np.int64]
    """Number of occurrences of each id in the training text, special ids included."""
    target_counts_V: NDArray[np.int64] | None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the text."""
        return Tokenizer.from_file(str(self.folder / "tokenizer.json"))

    @cached_property
    def share_with_words(self) -> float:
        """Share of the training tokens that are in sentences of several words. It is low in scripts without spaces
        between words."""
        split = self.train
        start_W = find_words(split.ids, starts_word(self.tokenizer)).start_W
        several_S = (
            np.bincount(np.searchsorted(split.offsets, start_W, side="right") - 1, minlength=len(split)) > 1
        )
        return float(split.lengths[several_S].sum() / split.lengths.sum())

    @cached_property
    def target_tokenizer(self) -> Tokenizer:
        """Tokenizer of the translations."""
        assert self.target_vocab_size is not None, "this text has no translations"
        return Tokenizer.from_file(str(self.folder / "target_tokenizer.json"))

    @cached_property
    def references(self) -> list[str]:
        """Translations of the S sentences of the validation text, as they stand in its files, in NFC."""
        assert self.target_vocab_size is not None, "this text has no translations"
        return list(read_json(self.folder / REFERENCES, remedy="start `ablate run`, which writes it"))


def address(settings: Data, data_root: Path) -> str:
    """Return ten hex digits that identify the text's content and how it is cut into tokens. No sentence is
    parsed.

    Raises:
        DataError: the text is unfit, as in `corpus.check`.
    """
    return _address(settings, content_address(settings, data_root), data_root)


def _address(settings: Data, content: str, data_root: Path) -> str:
    decided = {"content": content, "format": FORMAT} | settings.model_dump(include={"vocab_size", "max_length"})
    if settings.tokenizer is not None:
        decided["tokenizer"] = content_of(data_root / settings.tokenizer)
    return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()[:ADDRESS_DIGITS]


def prepare(
    settings: Data,
    *,
    data_root: Path,
    store: Path,
    progress: Callable[[str], None] | None = None,
    check: Literal["sizes", "hashes"] = "sizes",
) -> Tokens:
    """Return the token store of a text. A missing store is made by one process, while others wait.

    Args:
        store: folder that holds stores; made if missing.
        progress: receives sentences on what is done, what was cut and what was left out.
        check: as in `load`.

    Raises:
        DataError: the text is unfit, the vocabulary too large for it, or the store damaged.
        FilesError: the store cannot be written.
    """
    say = progress or (lambda sentence: None)
    content = content_address(settings, data_root)
    name = _address(settings, content, data_root)
    folder = store / name
    if not folder.exists():
        make_folder(store)
        waiting = partial(say, f"Waiting for another process that writes the token store {folder}.")
        with locked(store / f".{name}.lock", waiting=waiting):
            if not folder.exists():
                _make(folder, settings, content, data_root, say)
    tokens = load(folder, check=check)
    if tokens.target_vocab_size is not None and not (folder / REFERENCES).exists():  # a store of earlier versions
        rows = open_corpus(settings, data_root=data_root).rows("validation")
        write_references(folder, (row.target for row in rows if row.target is not None))
    return tokens


def _make(folder: Path, settings: Data, content: str, data_root: Path, say: Callable[[str], None]) -> None:
    """Write the store beside its place and rename it. The caller holds the lock, so files of a killed writer
    may be deleted."""
    making = folder.with_name(f".{folder.name}.partial")
    try:
        with explained(folder, making):
            if making.exists():
                shutil.rmtree(making)
            making.mkdir()
            given = None if settings.tokenizer is None else read_tokenizer(data_root / settings.tokenizer)
            tokenizer = None if given is None else given.renumbered(settings.vocab_size)
            corpus = open_corpus(settings, data_root=data_root)
            report = write_tokens(making, settings, corpus, say, tokenizer=tokenizer)
            files = {path.name: _facts(path) for path in sorted(making.iterdir())}
            manifest = {
                "format": FORMAT,
                "address": folder.name,
                "content_sha256": content,
                "settings": settings.model_dump(mode="json"),
                **report,
                "files": files,
            }
            write_json(making / "tokens.json", {"sha256": _digest(manifest), **manifest})
            synced(making)
            making.rename(folder)
            synced(folder.parent)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _facts(path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = {"bytes": path.stat().st_size, "sha256": sha256_now(path)}
    if path.suffix == ".npy":
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        facts |= {"dtype": str(array.dtype), "length": len(array)}
    return facts


def _digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


# Reading ---------------------------------------------------------------------------------------------


def load(folder: Path, *, check: Literal["sizes", "hashes"] = "sizes") -> Tokens:
    """Open a token store. `hashes` checks every byte of it, `sizes` only the sizes of all files and the bytes of
    the JSON files.

    Raises:
        DataError: there is no store, or it is damaged.
    """
    manifest = read_report(folder)
    for name, facts in manifest["files"].items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != facts["bytes"]:
            raise _damaged(
                folder, f"{name} is {'shorter or longer than written' if path.is_file() else 'missing'}"
            )
        if (check == "hashes" or path.suffix == ".json") and sha256_now(path) != facts["sha256"]:
            raise _damaged(folder, f"{name} has changed since it was written")

    def array(name: str) -> Any:
        return _array(folder, name, manifest["files"][name]) if name in manifest["files"] else None

    def split(name: str) -> Split:
        return Split(*(array(f"{name}.{field.name}.npy") for field in fields(Split)))

    return Tokens(
        folder=folder,
        address=manifest["address"],
        report=manifest,
        vocab_size=manifest["vocab_size"],
        target_vocab_size=manifest["target_vocab_size"],
        train=split("train"),
        validation=split("validation"),
        test=split("test") if "test" in manifest["splits"] else None,
        source_counts_V=array("train.counts_V.npy"),
        target_counts_V=array("train.target_counts_V.npy"),
    )


def read_report(folder: Path) -> dict[str, Any]:
    """Return the content of a store's `tokens.json`.

    Raises:
        DataError: there is no store, or the file is damaged.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} does not exist, expected a token store; start `ablate run`, which writes it.")
    try:
        manifest = read_json(folder / "tokens.json")
    except FilesError as error:
        if isinstance(error.__cause__, OSError):  # it may be whole
            raise DataError(str(error)) from error
        raise _damaged(folder, "tokens.json is missing or unreadable") from error
    if not isinstance(manifest, dict) or manifest.pop("sha256", None) != _digest(manifest):
        raise _damaged(folder, "tokens.json has changed since it was written")
    if manifest["format"] != FORMAT:
        raise _damaged(folder, f"its format is {manifest['format']}, expected {FORMAT}")
    return manifest


def _array(folder: Path, name: str, facts: dict[str, Any]) -> NDArray[Any]:
    """Return the array of a file, left on disk; a DataError if type or length differ from the manifest,
    or if it cannot be opened; an OutOfMemoryError if memory is short."""
    try:
        array = np.load(folder / name, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        if isinstance(error, OSError) and refusal(error):
            kind = OutOfMemoryError if error.errno == errno.ENOMEM else DataError
            raise kind(unreadable(folder / name, error)) from error
        raise _damaged(folder, f"{name} is not an array") from error
    if (str(array.dtype), array.shape) != (facts["dtype"], (facts["length"],)):
        raise _damaged(folder, f"{name} has changed since it was written")
    return np.asarray(array)


def _damaged(folder: Path, why: str) -> DataError:
    return DataError(
        f"The token store {folder} is damaged: {why}; delete the folder, then `ablate run` writes it again."
    )


class Words(NamedTuple):
    """Words of a text, in order."""

    start_W: NDArray[np.int64]
    """Place of each word's first piece among the N tokens."""
    length_W: NDArray[np.int64]
    """Number of pieces of each word."""

    @property
    def token_N(self) -> NDArray[np.int64]:
        """Places of all pieces of all words, in order: all tokens but special ones. [UNK] is a piece."""
        return ranges(self.start_W, self.length_W)


def find_words(ids_N: NDArray[np.integer], starts_V: NDArray[np.bool_]) -> Words:
    """Return the words of sentences that lie one after the other.

    Args:
        starts_V: mask of the ids that begin a word, as `tokenizer.starts_word` returns it.
    """
    start_W = np.flatnonzero(word_starts(ids_N, starts_V, first_N=np.append(False, ids_N[:-1] == START)))
    is_piece_N = (ids_N >= FIRST_WORD_ID) | (ids_N == UNKNOWN)
    pieces_before = np.concatenate([[0], np.cumsum(is_piece_N)])
    ends_W = np.append(start_W[1:], len(ids_N))
    return Words(start_W, pieces_before[ends_W] - pieces_before[start_W])


def word_types(ids_N: NDArray[np.integer], words: Words) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of each word's type (from 0), and the place of each type's first word. Shapes W and
    C.

    Words are of one type if their pieces are the same. They are compared by a hash of 53 bits: among 10
    million types, two share a number with a probability below 1%.
    """
    place_N = np.arange(len(words.token_N)) - np.repeat(np.cumsum(words.length_W) - words.length_W, words.length_W)
    hash_N = uniforms(0, ids_N[words.token_N], place_N)  # hash of each piece with its place in the word
    if not len(words.start_W):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    as_integers = (hash_N * 2.0**53).astype(np.uint64)
    sum_W = np.add.reduceat(as_integers, np.cumsum(words.length_W) - words.length_W)
    _, first_C, type_W = np.unique(sum_W, return_index=True, return_inverse=True)
    return type_W.astype(np.int64), first_C.astype(np.int64)


def ranges(start: NDArray[np.integer], length: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the numbers from start to before start + length of each range, one range after the other."""
    before = np.cumsum(length) - length
    return np.repeat(start - before, length) + np.arange(int(length.sum()))
