"""Sample of token occurrences that a measure reads: the same in every arm and every run on the same text. No
torch.

The module also groups occurrences by frequency and by part of speech, with equally many of each group.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ablations.errors import MeasureError
from ablations.measures.settings import RANK_BOUNDS, Grouping
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import FIRST_WORD_ID, UNKNOWN
from lightning_modules.randomness import derive

NO_LABEL = -1
NO_NEIGHBOUR = -1


@dataclass(frozen=True)
class Sample:
    """Token occurrences of whole sentences in the order of the text, without special tokens."""

    sentences: int
    """Number of sentences, from the start of the split, that the occurrences come from."""
    token_N: NDArray[np.int64]
    sentence_N: NDArray[np.int64]
    position_N: NDArray[np.int64]
    """Position in the sentence; START has position 0."""
    left_N: NDArray[np.int64]
    """Id of the token before it in the sentence, which may be START; NO_NEIGHBOUR if there is none."""
    right_N: NDArray[np.int64]
    """Id of the token after it in the sentence, which may be END; NO_NEIGHBOUR if there is none."""
    rank_N: NDArray[np.int64]
    """Frequency rank of the token; 1 is the most frequent."""
    labels: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """Labels of words: a code for each occurrence, by label; NO_LABEL if it has none."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Meanings of the codes, by label."""

    def __len__(self) -> int:
        return len(self.token_N)

    @property
    def repeated(self) -> int:
        """Number of sentences that repeat an earlier one, token by token."""
        sentences = np.split(self.token_N, np.flatnonzero(np.diff(self.sentence_N)) + 1)
        return len(sentences) - len({tokens.tobytes() for tokens in sentences})

    @property
    def digest(self) -> str:
        """Ten hex digits that two samples share only if they hold the same occurrences with the same labels."""
        parts = [
            self.token_N,
            self.sentence_N,
            self.position_N,
            *(self.labels[name] for name in sorted(self.labels)),
        ]
        names = repr(sorted(self.names.items())).encode() if self.labels else b""
        return hashlib.sha256(b"".join(part.astype("<i8").tobytes() for part in parts) + names).hexdigest()[:10]

    def at(self, kept: NDArray[np.integer] | NDArray[np.bool_]) -> "Sample":
        """Return some of the occurrences as a sample."""
        arrays = ("token_N", "sentence_N", "position_N", "left_N", "right_N", "rank_N")
        labels = {name: label_N[kept] for name, label_N in self.labels.items()}
        return replace(self, labels=labels, **{name: getattr(self, name)[kept] for name in arrays})


def first_tokens(
    split: Split,
    tokens: int,
    *,
    counts_V: NDArray[np.integer] | None = None,
    labels: Mapping[str, NDArray[np.int64]] | None = None,
    names: Mapping[str, tuple[str, ...]] | None = None,
) -> Sample:
    """Return the text tokens of the split's first sentences: as many whole sentences as hold at most `tokens`
    of them.

    Args:
        counts_V: count of each id, for the frequency ranks. Special ids have no rank. Default: its count in
            these sentences.
        labels: labels of all text tokens of the split, in order.
        names: meanings of the codes of the labels.

    Raises:
        MeasureError: the first sentence has too many tokens, or no sentence has a text token.
    """
    ids = np.asarray(split.ids, dtype=np.int64)
    if counts_V is not None:  # START and END are in every sentence, and would take the first ranks
        counts_V = np.where(is_text_token(np.arange(len(counts_V))), counts_V, -1)
    return whole_sentences(
        ids, split.offsets, is_text_token(ids), tokens, counts_V=counts_V, labels=labels, names=names
    )


def whole_sentences(
    ids: NDArray[np.int64],
    offsets: NDArray[np.int64],
    is_text: NDArray[np.bool_],
    tokens: int,
    *,
    counts_V: NDArray[np.integer] | None = None,
    labels: Mapping[str, NDArray[np.int64]] | None = None,
    names: Mapping[str, tuple[str, ...]] | None = None,
) -> Sample:
    """Return a sample as `first_tokens` does, for sentences of any vocabulary. Sentence i is
    `ids[offsets[i]:offsets[i + 1]]`.

    Args:
        is_text: whether each token is read. The others are only neighbours.

    Raises:
        MeasureError: as `first_tokens`.
    """
    before = np.concatenate([[0], np.cumsum(is_text)])[offsets]
    sentences = int(np.searchsorted(before[1:], tokens, side="right"))
    if not sentences or not before[sentences]:
        raise MeasureError(
            f"the first {tokens:,} tokens of the validation text contain no whole sentence that a measure can "
            "read; raise the measure's `tokens`, or give more validation text."
        )
    end, lengths = int(offsets[sentences]), np.diff(offsets[: sentences + 1])
    sentence = np.repeat(np.arange(sentences), lengths)
    position = np.arange(end) - np.repeat(offsets[:sentences], lengths)
    is_last = position == np.repeat(lengths, lengths) - 1
    left = np.where(position > 0, ids[np.arange(end) - 1], NO_NEIGHBOUR)
    right = np.where(is_last, NO_NEIGHBOUR, np.roll(ids[:end], -1))
    place_N = np.flatnonzero(is_text[:end])
    token_N = ids[place_N]
    return Sample(
        sentences=sentences,
        token_N=token_N,
        sentence_N=sentence[place_N],
        position_N=position[place_N],
        left_N=left[place_N],
        right_N=right[place_N],
        rank_N=ranks(np.bincount(token_N) if counts_V is None else counts_V)[token_N],
        labels={name: label_N[: len(place_N)] for name, label_N in (labels or {}).items()},
        names=names or {},
    )


def ranks(counts_V: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the frequency rank of each id, from 1. Ties go to the lower id."""
    rank_V = np.empty(len(counts_V), np.int64)
    rank_V[np.argsort(-np.asarray(counts_V, np.int64), kind="stable")] = np.arange(1, len(counts_V) + 1)
    return rank_V


def is_text_token(ids: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return which ids stand for text. UNKNOWN does; the other special ids do not."""
    return (ids >= FIRST_WORD_ID) | (ids == UNKNOWN)


def groups(sample: Sample, by: Grouping) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield the groups that occur, each with its name and its occurrences, as ascending places in the sample.

    Names are `rank 1-10`, `rank 11-25`, ... from frequent to rare, or `tag ADJ`, ... in alphabetical order.
    There are no groups by part of speech if the sample has no labels.
    """
    if by == "frequency":
        first = 1
        for last in (*RANK_BOUNDS, int(sample.rank_N.max())):
            place = np.flatnonzero((sample.rank_N >= first) & (sample.rank_N <= last))
            if len(place):
                yield f"rank {first}-{last}", place
            first = last + 1
    elif "tag" in sample.labels:
        code_N, names = sample.labels["tag"], sample.names["tag"]
        for code in sorted(set(code_N.tolist()) - {NO_LABEL}, key=lambda code: names[code]):
            if names[code]:
                yield f"tag {names[code]}", np.flatnonzero(code_N == code)


def equal_parts(
    parts: Iterable[tuple[str, NDArray[np.int64]]], *, fewest: int, size: int | None, seed: int
) -> list[tuple[str, NDArray[np.int64]]]:
    """Return the groups with at least `size` occurrences, and `size` occurrences of each, drawn at random, in
    order.

    If `size` is None, it is that of the smallest group with at least `fewest` occurrences. The draw depends
    only on the seed, the name of the group and its occurrences.
    """
    large = [(name, place) for name, place in parts if len(place) >= (size or fewest)]
    size = size or min((len(place) for _, place in large), default=0)
    draws = [np.random.default_rng(derive(seed, name)) for name, _ in large]
    return [
        (name, np.sort(rng.choice(place, size, replace=False)))
        for rng, (name, place) in zip(draws, large, strict=True)
    ]
