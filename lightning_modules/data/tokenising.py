"""Cutting a corpus into token ids: the files of a token store and a report on them.

Memory stays bounded: sentences pass through in batches, arrays grow on disk.
Letters: B sentences of a batch, N their tokens one after the other, V vocabulary.
"""

import hashlib
import io
import itertools
import time
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tokenizers
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray
from tokenizers import Tokenizer

from lightning_modules.config import Data
from lightning_modules.data import tokenizer as subwords
from lightning_modules.data.corpus import Corpus, Row, Sentences, SplitName
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, START, UNKNOWN, word_starts
from lightning_modules.files import synced, write_json

SENTENCES_AT_ONCE = 8192
SECONDS_OF_SILENCE = 10
PREFIX = {"source": "", "target": "target_"}
PERCENTILES = (1, 5, 25, 50, 75, 95, 99, 100)
REFERENCES = "validation.references.json"
"""File with the translations of the validation text, as text."""


def write_tokens(
    folder: Path,
    settings: Data,
    corpus: Corpus,
    say: Callable[[str], None],
    *,
    tokenizer: Tokenizer | None = None,
) -> dict[str, Any]:
    """Write every file of a token store but `tokens.json`, and return the report for that. Sub-words are
    trained first.

    Args:
        tokenizer: tokenizer of sentences and translations, in our numbering; unless given, one is trained on
            each.

    Raises:
        DataError: the text is unfit, or the vocabulary too large for it.
    """
    say("Reading data.train.")
    train = _KeptRows(corpus.rows("train"), folder / "train.rows")
    is_trained_here = tokenizer is None
    if tokenizer is None:
        say(f"Training {settings.vocab_size:,} sub-words on data.train.")
        tokenizer = subwords.train(
            (row.text for row in train), settings.vocab_size, source="the sentences of data.train"
        )
    tokenizers_by_side = {"source": tokenizer}
    if corpus.has_target and not is_trained_here:
        tokenizers_by_side["target"] = tokenizer
    elif corpus.has_target:
        targets = (row.target for row in train if row.target is not None)
        tokenizers_by_side["target"] = subwords.train(
            targets, settings.vocab_size, source="the translations of data.train"
        )
    for side, tokenizer in tokenizers_by_side.items():
        path = folder / f"{PREFIX[side]}tokenizer.json"
        path.write_text(tokenizer.to_str(), encoding="utf-8")
        synced(path)
    reports: dict[str, dict[str, Any]] = {}
    train_S: NDArray[np.uint64] | None = None
    for split in corpus.splits:
        rows = train if split == "train" else corpus.rows(split)
        sides = {
            side: _Side(folder / f"{split}.{PREFIX[side]}", tokenizer, settings.max_length)
            for side, tokenizer in tokenizers_by_side.items()
        }
        reports[split], hashes_S = _write_split(folder, split, rows, sides, say, train_S=train_S)
        train_S = hashes_S if train_S is None else train_S  # train comes first
        for sentence in _remarks(split, reports[split], settings):
            say(sentence)
    (folder / "train.rows").unlink()
    return {
        "tokenizers_version": tokenizers.__version__,
        "vocab_size": settings.vocab_size,
        "target_vocab_size": settings.vocab_size if corpus.has_target else None,
        "splits": reports,
    }


def _write_split(
    folder: Path,
    split: SplitName,
    rows: "Sentences | _KeptRows",
    sides: dict[str, "_Side"],
    say: Callable[[str], None],
    *,
    train_S: NDArray[np.uint64] | None,
) -> tuple[dict[str, Any], NDArray[np.uint64]]:
    """Write the files of a split; return a report on them and the hashes of its S sentences.

    Args:
        train_S: hashes of the training sentences; None for these themselves.
    """
    hashes: list[NDArray[np.uint64]] = []
    references: list[str] = []
    documents, spoken = _GrowingArray(folder / f"{split}.documents.npy", np.int32), time.monotonic()
    for batch in _batches(rows):
        sides["source"].add([row.text for row in batch])
        hashes.append(sentence_hashes(row.text for row in batch))
        if "target" in sides:
            targets = [row.target for row in batch if row.target is not None]
            sides["target"].add(targets)
            references += targets if split == "validation" else []
        documents.append(np.array([row.document for row in batch]))
        if time.monotonic() > spoken + SECONDS_OF_SILENCE:
            say(f"data.{split}: {documents.length:,} sentences cut into sub-words so far.")
            spoken = time.monotonic()
    documents.close()
    if references:
        write_references(folder, references)
    hashes_S = np.concatenate(hashes)
    report = {
        "sentences": documents.length,
        "documents": batch[-1].document + 1,  # never unbound: a split has at least one sentence
        "skipped": rows.skipped,
        "repeated": len(hashes_S) - len(np.unique(hashes_S)),
        **({} if train_S is None else {"in_training": int(np.isin(hashes_S, train_S).sum())}),
        **{name: side.close(counts=split == "train") for name, side in sides.items()},
    }
    return report, hashes_S


def write_references(folder: Path, targets: Iterable[str]) -> None:
    """Write the translations of the validation text, in NFC as sub-words are. A translation that was cut, has
    unknown bytes, or has capitals that the tokenizer changes, cannot be made of its ids again."""
    write_json(folder / REFERENCES, [unicodedata.normalize("NFC", target) for target in targets])


def sentence_hashes(texts: Iterable[str]) -> NDArray[np.uint64]:
    """Return a hash of each sentence, shape S. Sentences that differ only in how Unicode composes their letters
    (NFC or NFD) have equal hashes. Other sentences share a hash with probability 2^-64."""
    hashes = array("Q")
    for text in texts:
        hashes.frombytes(hashlib.blake2b(unicodedata.normalize("NFC", text).encode(), digest_size=8).digest())
    return np.frombuffer(hashes, np.uint64)


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    iterator = iter(rows)
    while batch := list(itertools.islice(iterator, SENTENCES_AT_ONCE)):
        yield batch


class _KeptRows:
    """Rows of a corpus, kept on disk to be read more than once. Generating the built-in language or parsing
    text again would take longer than all other work."""

    SCHEMA = pa.schema({"text": pa.large_string(), "target": pa.large_string(), "document": pa.int64()})

    def __init__(self, rows: Sentences, path: Path) -> None:
        self._path = path
        with path.open("wb") as file, pa.ipc.new_stream(file, self.SCHEMA) as writer:
            for batch in _batches(rows):
                writer.write_batch(pa.record_batch([*map(list, zip(*batch, strict=True))], schema=self.SCHEMA))
        self.skipped = rows.skipped

    def __iter__(self) -> Iterator[Row]:
        with self._path.open("rb") as file, pa.ipc.open_stream(file) as reader:
            for batch in reader:
                yield from map(Row, *(column.to_pylist() for column in batch.columns))


def _remarks(split: SplitName, report: dict[str, Any], settings: Data) -> Iterator[str]:
    """Yield remarks on a split: its size, and what the tokens do not show (sentences left out, sentences cut,
    text unknown)."""
    sentences, max_length = report["sentences"], settings.max_length
    yield (
        f"data.{split}: {_several(sentences, 'sentence')}, {_several(report['source']['tokens'], 'token')}, "
        f"{_several(report['documents'], 'document')}."
    )
    if report["skipped"]:
        were = "was" if report["skipped"] == 1 else "were"
        lacking = "a sentence or a translation" if "target" in report else "a sentence"
        yield f"data.{split}: {_several(report['skipped'], 'row')} without {lacking} {were} left out."
    for side, noun in (("source", "sentence"), ("target", "translation")):
        if report.get(side, {}).get("cut"):
            are, were = ("is", "was") if report[side]["cut"] == 1 else ("are", "were")
            whole = report[side]["tokens"] + report[side]["dropped"]
            yield (
                f"data.{split}: {report[side]['cut']:,} of {_several(sentences, noun)} {are} longer than "
                f"data.max_length = {max_length} tokens and {were} cut, which dropped {report[side]['dropped']:,} "
                f"of {_several(whole, 'token')}."
            )
        if unknown := report.get(side, {}).get("unknown"):
            if settings.tokenizer is not None:
                yield f"data.{split}: data.tokenizer made [UNK] of {_several(unknown, 'piece')} of the {noun}s."
                continue
            do = "does" if unknown == 1 else "do"
            yield (
                f"data.{split}: {_several(unknown, 'byte')} of the {noun}s {do} not occur in training and became "
                f"[UNK]."
            )


def _several(number_of: int, word: str) -> str:
    return f"{number_of:,} {word}{'' if number_of == 1 else 's'}"


class _Side:
    """Writer of the source or the target of one split."""

    def __init__(self, path: Path, tokenizer: Tokenizer, max_length: int) -> None:
        self._tokenizer, self._max_length = tokenizer, max_length
        self._starts_V = subwords.starts_word(tokenizer)
        V = len(self._starts_V)
        self._path = path
        self._ids = _GrowingArray(path.with_name(f"{path.name}ids.npy"), np.min_scalar_type(V - 1))
        self._offsets = _GrowingArray(path.with_name(f"{path.name}offsets.npy"), np.int64)
        self._offsets.append(np.zeros(1))
        self._whole_lengths: Counter[int] = Counter()
        self._words = self._one_piece = 0
        self._counts_V = np.zeros(V, np.int64)

    def add(self, texts: list[str]) -> None:
        sentences = subwords.encode(self._tokenizer, texts)
        whole_B = np.array([len(ids) for ids in sentences])
        ends_B = np.minimum(whole_B, self._max_length).cumsum()
        kept = itertools.chain.from_iterable(ids[: self._max_length] for ids in sentences)
        ids_N = np.fromiter(kept, dtype=np.int64, count=ends_B[-1])
        ids_N[ends_B - 1] = END  # a cut sentence has lost it
        self._offsets.append(self._ids.length + ends_B)
        self._ids.append(ids_N)
        self._whole_lengths.update(whole_B.tolist())
        self._counts_V += np.bincount(ids_N, minlength=len(self._counts_V))
        starts_N = word_starts(ids_N, self._starts_V, first_N=np.append(False, ids_N[:-1] == START))
        continues_N = ~starts_N & ((ids_N >= FIRST_WORD_ID) | (ids_N == UNKNOWN))
        self._words += int(starts_N.sum())
        self._one_piece += int((starts_N[:-1] & ~continues_N[1:]).sum())  # the last token is END

    def close(self, *, counts: bool) -> dict[str, Any]:
        """Finish the files and return a report on them. With `counts`, also write the number of occurrences
        of each id."""
        self._ids.close()
        self._offsets.close()
        if counts:
            array = _GrowingArray(self._path.with_name(f"{self._path.name}counts_V.npy"), np.int64)
            array.append(self._counts_V)
            array.close()
        unknown = int(self._counts_V[UNKNOWN])
        too_long = {length: n for length, n in self._whole_lengths.items() if length > self._max_length}
        return {
            "tokens": self._ids.length,
            "cut": sum(too_long.values()),
            "dropped": sum((length - self._max_length) * n for length, n in too_long.items()),
            "unknown": unknown,
            "unknown_share": unknown / self._ids.length,
            "words": self._words,
            "one_piece_word_share": self._one_piece / max(self._words, 1),
            "whole_length_percentiles": _percentiles(self._whole_lengths),
        }


def _percentiles(lengths: Counter[int]) -> dict[str, int]:
    """Return for each p of `PERCENTILES` the smallest length that at least p percent of the sentences do not
    exceed. Lengths are those before cutting."""
    values = sorted(lengths)
    cumulated = np.cumsum([lengths[value] for value in values])
    places = np.searchsorted(cumulated * 100, np.array(PERCENTILES) * cumulated[-1])
    return {str(p): values[place] for p, place in zip(PERCENTILES, places, strict=True)}


class _GrowingArray:
    """One-dimensional .npy file that grows on disk, so that no split has to fit in memory.

    NumPy pads the header, so that the length in it can be rewritten in place. `open_memmap` would need the
    length first. To count it, the text would be encoded twice. That takes 33 s for 261,015 sentences of
    Wikipedia, whose files are written in 0.04 s.
    """

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self._path, self._dtype, self.length = path, np.dtype(dtype), 0
        self._path.write_bytes(self._header())

    def _header(self) -> bytes:
        header = io.BytesIO()
        fields = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self.length,)}
        npy.write_array_header_1_0(header, fields)
        return header.getvalue()

    def append(self, values: NDArray[Any]) -> None:
        with self._path.open("ab") as file:
            file.write(values.astype(self._dtype).tobytes())
        self.length += len(values)

    def close(self) -> None:
        header = self._header()
        assert self._path.stat().st_size == len(header) + self.length * self._dtype.itemsize
        with self._path.open("r+b") as file:
            file.write(header)
        synced(self._path)
