"""Which token occurrences a measure reads: the same in every arm and every run on the same text. No torch."""

import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablations.errors import MeasureError
from lightning_modules.data.tokens import Split
from lightning_modules.vocabulary import FIRST_WORD_ID, UNKNOWN


class Sample(NamedTuple):
    """Token occurrences of whole sentences, special tokens left out, in the order of the text."""

    sentences: int
    """How many sentences, from the start of the split, they come from."""
    token_N: NDArray[np.int64]
    sentence_N: NDArray[np.int64]
    position_N: NDArray[np.int64]

    @property
    def digest(self) -> str:
        """Ten hex digits that two samples share only when they are the same occurrences."""
        parts = (self.token_N, self.sentence_N, self.position_N)
        return hashlib.sha256(b"".join(part.astype("<i8").tobytes() for part in parts)).hexdigest()[:10]


def first_tokens(split: Split, tokens: int) -> Sample:
    """The occurrences in the split's first sentences, as many whole sentences as hold at most `tokens`.

    Raises:
        MeasureError: not one sentence fits.
    """
    ids = np.asarray(split.ids, dtype=np.int64)
    is_text = is_text_token(ids)
    text_lengths = np.add.reduceat(is_text.astype(np.int64), split.offsets[:-1])
    sentences = int(np.searchsorted(np.cumsum(text_lengths), tokens, side="right"))
    if not sentences or not text_lengths[:sentences].sum():
        raise MeasureError(
            f"the validation text has no sentence within {tokens:,} tokens that a measure could read; "
            f"raise the measure's `tokens`, or give more validation text."
        )
    end = int(split.offsets[sentences])
    lengths = split.lengths[:sentences]
    sentence = np.repeat(np.arange(sentences), lengths)
    position = np.arange(end) - np.repeat(split.offsets[:sentences], lengths)
    keep = is_text[:end]
    return Sample(sentences, ids[:end][keep], sentence[keep], position[keep])


def is_text_token(ids: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Tokens that stand for text: an unknown piece does, the other special ids do not."""
    return (ids >= FIRST_WORD_ID) | (ids == UNKNOWN)
