"""The words in token ids: where they are, and which are the same.

A word is what stands between spaces in the text. Letters: N tokens, W words, C types (different words).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightning_modules.data.token_store import Split
from lightning_modules.errors import DataError
from lightning_modules.randomness import uniforms
from lightning_modules.vocabulary import FIRST_WORD_ID, UNKNOWN


class Words(NamedTuple):
    """The words of a text, in order."""

    start_W: NDArray[np.int64]
    """Place of the first piece of each word among the N tokens."""
    length_W: NDArray[np.int64]
    """Pieces of each word."""

    @property
    def token_N(self) -> NDArray[np.int64]:
        """Places of all pieces of all words, in order: every token but START, END and other special ones."""
        return runs(self.start_W, self.length_W)


def find_words(ids_N: NDArray[np.integer], starts_V: NDArray[np.bool_]) -> Words:
    """Return the words of sentences that lie one after the other.

    Args:
        starts_V: which ids begin a word, as `tokenizer.starts_word` says.
    """
    start_W = np.flatnonzero(starts_V[ids_N])
    is_piece_N = (ids_N >= FIRST_WORD_ID) | (ids_N == UNKNOWN)
    pieces_before = np.concatenate([[0], np.cumsum(is_piece_N)])
    ends_W = np.append(start_W[1:], len(ids_N))
    return Words(start_W, pieces_before[ends_W] - pieces_before[start_W])


def require_boundaries(split: Split, starts_V: NDArray[np.bool_], *, setting: str, instead: str) -> None:
    """Refuse a text without words between spaces, as in languages that write none.

    Args:
        setting: what needs them, for the error.
        instead: what does without them.

    Raises:
        DataError: no sentence has a second word.
    """
    if np.count_nonzero(starts_V[split.ids]) <= len(split):
        raise DataError(
            f"{setting} needs words, but no sentence of data.train has two of them with a space between; put "
            f"spaces between words, or {instead}."
        )


def word_types(ids_N: NDArray[np.integer], words: Words) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of each word's type (from 0), and for each type one word of it, the first in the text.

    Words are the same if their pieces are, compared by a hash of 53 bits: of 10 million types, two share a number
    with a probability below 1%.
    """
    place_N = np.arange(len(words.token_N)) - np.repeat(np.cumsum(words.length_W) - words.length_W, words.length_W)
    hash_N = uniforms(0, ids_N[words.token_N], place_N)  # of one piece at one place in a word
    if not len(words.start_W):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    as_integers = (hash_N * 2.0**53).astype(np.uint64)
    sum_W = np.add.reduceat(as_integers, np.cumsum(words.length_W) - words.length_W)
    _, first_C, type_W = np.unique(sum_W, return_index=True, return_inverse=True)
    return type_W.astype(np.int64), first_C.astype(np.int64)


def runs(start: NDArray[np.integer], length: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the numbers start, start + 1, ..., start + length - 1 of every run, one run after the other."""
    before = np.cumsum(length) - length
    return np.repeat(start - before, length) + np.arange(int(length.sum()))
