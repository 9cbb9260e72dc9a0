"""Text of the benchmarks in sub-words, as sentences and as full blocks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lightning_modules.config import FilesData
from lightning_modules.data import token_store
from lightning_modules.data.token_store import Split, Tokens

VOCABULARY = 8192
LENGTH = 128


def _splits(*files: str) -> dict[str, list[str]]:
    """Return the files of both splits; `{}` in a file's name stands for the split."""
    return {split: [file.format(split) for file in files] for split in ("train", "validation")}


PARALLEL: dict[str, Any] = {"text": "source", "target": "target"} | _splits(
    *(f"{name}/en-de.{{}}.parquet" for name in ("tatoeba", "newstest", "multi30k"))
)
"""Columns and files of English sentences and their German translations, as in a spec."""


def english(data_root: Path, *, store: Path) -> Tokens:
    """Return sentences of English Wikipedia, of at most 128 tokens."""
    return _prepared({"text": "text"} | _splits("wikipedia_en/{}.parquet"), data_root, store)


def pairs(data_root: Path, *, store: Path) -> Tokens:
    """Return English sentences with their German translations, of at most 128 tokens."""
    return _prepared(PARALLEL, data_root, store)


def articles(data_root: Path, *, store: Path, length: int) -> Tokens:
    """Return passages of English Wikipedia, of at most `length` tokens."""
    columns = {"text": "text", "document": "doc_id"}
    whole = _prepared(columns | _splits("wikipedia_en/{}.parquet"), data_root, store, length=length)
    return replace(whole, train=passages(whole.train, length))


def _prepared(data: dict[str, Any], data_root: Path, store: Path, *, length: int = LENGTH) -> Tokens:
    sizes = {"kind": "files", "vocab_size": VOCABULARY, "max_length": length}
    return token_store.prepare(FilesData.model_validate(sizes | data), data_root=data_root, store=store)


def blocks(split: Split) -> Split:
    """Return the same ids cut into full blocks of 128; the last, shorter block is left out."""
    count = len(split.ids) // LENGTH
    return Split(
        ids=split.ids[: count * LENGTH],
        offsets=np.arange(count + 1, dtype=np.int64) * LENGTH,
        documents=np.zeros(count, dtype=np.int32),
    )


def passages(split: Split, length: int) -> Split:
    """Return the same ids with neighbouring sentences of a document joined to passages of at most `length`
    tokens."""
    starts: list[int] = []
    room = 0
    for number, (size, document) in enumerate(zip(split.lengths, split.documents, strict=True)):
        if not starts or size > room or document != split.documents[number - 1]:
            starts.append(number)
            room = length
        room -= size
    return Split(
        ids=split.ids, offsets=split.offsets[[*starts, len(split.documents)]], documents=split.documents[starts]
    )
