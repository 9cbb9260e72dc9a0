"""Facts about the text of an experiment before anything is trained: lengths, unknown tokens, cut and repeated
sentences, and validation sentences that are also in the training text. No torch.

Sentences are the same if all their words are, in the same order; of each only a hash of 64 bits is kept.
"""

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from ablations.runs import doubts
from ablations.runs.terminal import console_for_tables
from ablations.wording import listed, several
from lightning_modules.config import Data
from lightning_modules.data.corpus import SPLITS, Row, open_corpus

SHARED_SHARE = 0.01
"""From this share on, a sentence says that validation sentences are also training sentences."""


class SplitFacts(NamedTuple):
    """Facts about one split of a text."""

    split: str
    sentences: int
    documents: int
    tokens: int
    """Tokens that are kept, special ones included."""
    median: int
    """Tokens of the median sentence, before cutting."""
    p99: int
    """Tokens that 99 of 100 sentences do not exceed."""
    longest: int
    cut: int
    """Sentences that are cut at `data.max_length`."""
    unknown: int
    """Tokens that are [UNK]."""
    repeated: int
    """Sentences that stand earlier in the same split already."""
    in_training: int | None
    """Sentences that are also in the training text; None for that itself."""


def split_facts(data: Data, report: Mapping[str, Any], *, data_root: Path) -> list[SplitFacts]:
    """Return the facts about each split of a text, in one reading.

    Args:
        data: settings of the text.
        report: what its token store says of it.
        data_root: where relative paths start.
    """
    corpus = open_corpus(data, data_root=data_root)
    facts, train_S = [], np.empty(0, np.uint64)
    for split in (name for name in SPLITS if name in corpus.splits):
        hashes_S = _hashes(corpus.rows(split))
        different_S = np.unique(hashes_S)
        if split == "train":
            train_S = different_S
        counted = report["splits"][split]
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
                repeated=len(hashes_S) - len(different_S),
                in_training=None if split == "train" else int(np.isin(hashes_S, train_S).sum()),
            )
        )
    return facts


def _hashes(rows: Iterable[Row]) -> NDArray[np.uint64]:
    """Return a hash of each sentence, shape S; two different ones share it with a chance of 1 in 2 to the 64."""
    hashes = array("Q")
    for row in rows:
        hashes.frombytes(hashlib.blake2b(row.text.encode(), digest_size=8).digest())
    return np.frombuffer(hashes, np.uint64)


def warnings(facts: Sequence[SplitFacts], report: Mapping[str, Any]) -> list[str]:
    """Return a sentence for all in a text that was probably not meant."""
    return [*doubts.unfit_tokens({"": report}), *_shared(facts)]


def _shared(facts: Sequence[SplitFacts]) -> Iterator[str]:
    for one in facts:
        share = (one.in_training or 0) / one.sentences
        if share >= SHARED_SHARE:
            yield (
                f"data.{one.split}: {several(one.in_training or 0, 'sentence')} ({share:.0%}) are also in "
                "data.train, where the models learn them, so that losses and measures look better than they "
                "are; remove them from one of the two."
            )


def show(arms: Sequence[str], facts: Sequence[SplitFacts], report: Mapping[str, Any]) -> None:
    """Print the facts about the text of some arms as a table, and the warnings below it."""
    table = Table(
        title=f"Text of {listed(arms, 'and')}: {report['vocab_size']:,} sub-words",
        **{"title_justify": "left", "box": None, "pad_edge": False, "padding": (0, 1, 0, 0)},  # type: ignore[arg-type]
    )
    table.add_column("split")
    heads = (
        "sentences",
        "documents",
        "tokens",
        "median",
        "99%",
        "longest",
        "cut",
        "unknown",
        "repeated",
        "in training",
    )
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for one in facts:
        table.add_row(one.split, *("-" if number is None else f"{number:,}" for number in one[1:]))
    console = console_for_tables()
    console.print(table)
    for sentence in warnings(facts, report):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
