"""The text of the benchmarks in sub-words, as sentences and as full blocks."""

from pathlib import Path

import numpy as np

from lightning_modules.config import FilesData
from lightning_modules.data import tokens
from lightning_modules.data.tokens import Split, Tokens

VOCABULARY = 8192
LENGTH = 128


def english(data_root: Path, *, store: Path) -> Tokens:
    """Sentences of English Wikipedia, of at most 128 tokens."""
    return _prepared({"text": "text"}, ["wikipedia_en/{split}.parquet"], data_root, store)


def pairs(data_root: Path, *, store: Path) -> Tokens:
    """English sentences with their German translations, of at most 128 tokens."""
    files = [f"{name}/en-de.{{split}}.parquet" for name in ("tatoeba", "newstest", "multi30k")]
    return _prepared({"text": "source", "target": "target"}, files, data_root, store)


def _prepared(columns: dict[str, str], files: list[str], data_root: Path, store: Path) -> Tokens:
    splits = {split: [file.format(split=split) for file in files] for split in ("train", "validation")}
    sizes = {"vocab_size": VOCABULARY, "max_length": LENGTH}
    return tokens.prepare(
        FilesData.model_validate({"kind": "files"} | splits | columns | sizes), data_root=data_root, store=store
    )


def blocks(split: Split) -> Split:
    """The same ids, one after the other, cut into full blocks of 128; the last, shorter one is left out."""
    count = len(split.ids) // LENGTH
    return Split(
        ids=split.ids[: count * LENGTH],
        offsets=np.arange(count + 1, dtype=np.int64) * LENGTH,
        documents=np.zeros(count, dtype=np.int32),
    )
