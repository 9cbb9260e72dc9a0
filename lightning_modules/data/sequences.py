"""Sequences that an encoder reads: sentences joined as an input format says, and negative pairs of segments
for next-sentence and sentence-order prediction.

A stored sentence is START, pieces, END. A sequence is START, then the pieces of its sentences with an END
after each segment (and, in `full_sentences`, after each document). Formats are those of Liu et al. 2019,
section 4.2.

Negative pairs add no text and leave none out. The segments of a step are only combined in another way. So
every arm reads the same text in the same step, whatever its loss.

Letters: S sentences, in order; Q sequences.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from lightning_modules.config import PAIR_FORMATS, InputFormat
from lightning_modules.data.token_store import Split, ranges
from lightning_modules.errors import DataError
from lightning_modules.randomness import derive, uniforms

NO_PAIR, PAIR = -100, 1
"""Labels of sequences with one segment, and of those with two segments that follow each other in the text."""
SEQUENCES_PER_PART = 8
"""Size of the parts of long documents, in full sequences. The parts are shuffled like documents, so that a
step does not go through a single book."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences of sentences. Arrays `_S` have an entry for each sentence, and the sentences of a sequence
    stand together. `label_Q` has an entry for each sequence."""

    sentence_S: NDArray[np.int64]
    """Number of the sentence in its split."""
    epoch_S: NDArray[np.int64]
    sequence_S: NDArray[np.int64]
    """Number of the sentence's sequence here, rising from 0."""
    segment_S: NDArray[np.int64]
    """0, or 1 in the second segment of a pair."""
    pieces_S: NDArray[np.int64]
    """Number of the sentence's pieces that are read, from its beginning."""
    closes_S: NDArray[np.bool_]
    """Whether an END stands after the sentence."""
    label_Q: NDArray[np.int64]
    """1 for a pair as it stands in the text, 0 for any other pair, NO_PAIR for a single segment."""

    def __len__(self) -> int:
        return len(self.label_Q)

    @cached_property
    def opens_S(self) -> NDArray[np.bool_]:
        """Mask of the sentences that have a START before them."""
        return np.diff(self.sequence_S, prepend=-1) > 0

    @cached_property
    def first_Q(self) -> NDArray[np.int64]:
        """Place of each sequence's first sentence in the arrays `_S`."""
        return np.flatnonzero(self.opens_S)

    @cached_property
    def lengths_Q(self) -> NDArray[np.int64]:
        """Tokens of each sequence, special ones included."""
        tokens_S = self.opens_S + self.pieces_S + self.closes_S
        return np.add.reduceat(tokens_S, self.first_Q) if len(self) else np.empty(0, np.int64)

    def part(self, start: int, stop: int) -> "Sequences":
        """Return the sequences from `start` to before `stop`."""
        places = slice(*np.searchsorted(self.sequence_S, [start, stop]).tolist())
        taken = {name: getattr(self, name)[places] for name in PER_SENTENCE}
        taken["sequence_S"] = taken["sequence_S"] - start
        return Sequences(**taken, label_Q=self.label_Q[start:stop])

    def where(self, keep_Q: NDArray[np.bool_]) -> "Sequences":
        """Return the sequences that a mask selects, in their order."""
        keep_S = keep_Q[self.sequence_S]
        taken = {name: getattr(self, name)[keep_S] for name in PER_SENTENCE}
        taken["sequence_S"] = (np.cumsum(keep_Q) - 1)[taken["sequence_S"]]
        return Sequences(**taken, label_Q=self.label_Q[keep_Q])

    def of_epoch(self, epoch: int) -> "Sequences":
        """Return the sequences with another epoch number."""
        return replace(self, epoch_S=np.full(len(self.sentence_S), epoch))


PER_SENTENCE = tuple(field.name for field in fields(Sequences) if field.name.endswith("_S"))


def joined(parts: list[Sequences]) -> Sequences:
    """Return several lists of sequences as one, one after the other."""
    if len(parts) == 1:
        return parts[0]
    before = np.cumsum([0] + [len(part) for part in parts])
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in PER_SENTENCE}
    columns["sequence_S"] = np.concatenate([part.sequence_S + n for part, n in zip(parts, before, strict=False)])
    return Sequences(**columns, label_Q=np.concatenate([part.label_Q for part in parts]))


def single_sentences(split: Split, sentence_S: NDArray[np.int64]) -> Sequences:
    """Return sentences as they are stored, each as its own sequence."""
    S = len(sentence_S)
    return Sequences(
        sentence_S=sentence_S,
        epoch_S=np.zeros(S, np.int64),
        sequence_S=np.arange(S),
        segment_S=np.zeros(S, np.int64),
        pieces_S=split.lengths[sentence_S] - 2,
        closes_S=np.ones(S, np.bool_),
        label_Q=np.full(S, NO_PAIR),
    )


# An epoch in some order ------------------------------------------------------------------------------


class Epoch(Protocol):
    """Sequences of one epoch, in its order."""

    @property
    def lengths_Q(self) -> NDArray[np.int64]:
        """Tokens of each sequence, special ones included."""

    def part(self, start: int, stop: int) -> Sequences:
        """Return the sequences from `start` to before `stop`."""


class ShuffledSentences:
    """Epoch of single sentences in a permuted order. There are many, so sequences are made when they are read."""

    def __init__(self, split: Split, order_Q: NDArray[np.int64]) -> None:
        self._split, self._order_Q = split, order_Q
        self.lengths_Q = split.lengths[order_Q]

    def part(self, start: int, stop: int) -> Sequences:
        return single_sentences(self._split, self._order_Q[start:stop])


def epochs(split: Split, input_format: InputFormat, *, max_length: int, seed: int) -> Callable[[int], Epoch]:
    """Return a function from an epoch's number to its sequences, in an order that depends on (seed, epoch)
    alone.

    Single sentences are permuted. Every other format permutes documents, all of them in the same way, and
    neighbouring sentences stay neighbours.
    """
    if input_format == "sentences":
        return lambda epoch: ShuffledSentences(split, _permutation(len(split), seed, "order", epoch))
    part_S = document_parts(split, SEQUENCES_PER_PART * max_length)

    def epoch_of(epoch: int) -> Epoch:
        rank_P = _permutation(int(part_S[-1]) + 1, seed, "documents", epoch)
        order_S = np.argsort(rank_P[part_S], kind="stable")
        return formatted(split, order_S, part_S[order_S], input_format, max_length=max_length)

    return epoch_of


def _permutation(count: int, seed: int, *purpose: str | int) -> NDArray[np.int64]:
    return np.random.Generator(np.random.Philox(derive(seed, *purpose))).permutation(count)


def document_parts(split: Split, tokens: int) -> NDArray[np.int64]:
    """Return the number of each sentence's document, shape S. A document with more than `tokens` tokens is
    divided into parts with numbers of their own."""
    new_document_S = np.diff(split.documents, prepend=-1) > 0
    document_start_S = np.maximum.accumulate(np.where(new_document_S, split.offsets[:-1], 0))
    place_S = (split.offsets[:-1] - document_start_S) // tokens
    return np.cumsum(new_document_S | (np.diff(place_S, prepend=0) != 0)) - 1


# Formats ---------------------------------------------------------------------------------------------


def formatted(
    split: Split,
    sentence_S: NDArray[np.int64],
    document_S: NDArray[np.int64],
    input_format: InputFormat,
    *,
    max_length: int,
) -> Sequences:
    """Return sentences in the given order as sequences of at most `max_length` tokens.

    Each segment of a pair has at most half of the room, so that any two fit: a longer sentence is cut at its
    end. (BERT's code draws where a pair is divided and cuts the longer half.) If the last sentence of a
    document has no partner, its sequence has one segment.

    Args:
        document_S: number of each sentence's document. Neighbours with the same number follow each other in
            the text.
    """
    pieces_S = split.lengths[sentence_S] - 2
    ends_S = np.diff(document_S, append=-1) != 0
    if input_format in ("sentence_pair", "segment_pair"):
        pieces_S = np.minimum(pieces_S, (max_length - 3) // 2)
        if input_format == "sentence_pair":
            sequence_S, segment_S = _sentence_pairs(ends_S)
        else:
            sequence_S, segment_S = _segment_pairs(pieces_S, ends_S, (max_length - 3) // 2)
        closes_S = np.diff(2 * sequence_S + segment_S, append=-1) != 0
    else:
        crossing = input_format == "full_sentences"
        sequence_S, closes_S = _filled(pieces_S, ends_S, max_length, crossing=crossing)
        segment_S = np.zeros(len(sentence_S), np.int64)
    has_two_Q = np.zeros(int(sequence_S[-1]) + 1, np.bool_)
    has_two_Q[sequence_S[segment_S == 1]] = True
    return Sequences(
        sentence_S=sentence_S,
        epoch_S=np.zeros(len(sentence_S), np.int64),
        sequence_S=sequence_S,
        segment_S=segment_S,
        pieces_S=pieces_S,
        closes_S=closes_S,
        label_Q=np.where(has_two_Q, PAIR, NO_PAIR),
    )


def _sentence_pairs(ends_S: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sequence and the segment of each sentence. Pairs are the first and second sentence of a
    document, the third and fourth, and so on."""
    place_S = np.arange(len(ends_S))
    begins_S = np.roll(ends_S, 1)  # the last sentence of all ends its document
    in_document_S = place_S - np.maximum.accumulate(np.where(begins_S, place_S, 0))
    segment_S = in_document_S % 2
    return np.cumsum(segment_S == 0) - 1, segment_S


def _segment_pairs(
    pieces_S: NDArray[np.int64], ends_S: NDArray[np.bool_], room: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sequence and the segment of each sentence. Both segments of a pair are filled with whole
    sentences, the first one first."""
    sequence, segment, used, fresh = -1, 0, 0, True
    sequences, segments = [], []
    for pieces, end in zip(pieces_S.tolist(), ends_S.tolist(), strict=True):
        if fresh or (used + pieces > room and segment == 1):
            sequence, segment, used = sequence + 1, 0, 0
        elif used + pieces > room:
            segment, used = 1, 0
        sequences.append(sequence)
        segments.append(segment)
        used, fresh = used + pieces, end
    sequence_S, segment_S = np.array(sequences), np.array(segments)
    # The last sequence of a document may have filled its first segment only: divide that.
    size_Q = np.bincount(sequence_S)
    alone_S = np.bincount(sequence_S, segment_S)[sequence_S] == 0
    place_S = np.arange(len(sequence_S)) - (np.cumsum(size_Q) - size_Q)[sequence_S]
    return sequence_S, np.where(alone_S, 2 * place_S >= np.maximum(size_Q[sequence_S], 2), segment_S).astype(
        np.int64
    )


def _filled(
    pieces_S: NDArray[np.int64], ends_S: NDArray[np.bool_], max_length: int, *, crossing: bool
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the sequence of each sentence, and whether an END follows it. A sequence has as many sentences
    as fit. With `crossing` it goes on over the ends of documents."""
    sequence, used = -1, max_length
    sequences: list[int] = []
    closes: list[bool] = []
    for pieces, end in zip(pieces_S.tolist(), ends_S.tolist(), strict=True):
        if used + pieces + 1 > max_length:
            sequence, used = sequence + 1, 1
            if closes:
                closes[-1] = True
        sequences.append(sequence)
        closes.append(end)
        used += pieces + end
        if end and not crossing:
            used = max_length
    closes[-1] = True
    return np.array(sequences), np.array(closes)


PairLoss = Literal["none", "next_sentence", "sentence_order"]

OTHER = 0
"""Label of a pair that does not stand in the text."""


def require_documents(split: Split, pair_loss: PairLoss, input_format: InputFormat) -> None:
    """Raise an error if a text gives no pairs, or no pairs from two documents though a loss needs them.

    Raises:
        DataError: every document is one sentence, or the text is one document.
    """
    if input_format in PAIR_FORMATS and np.diff(split.documents).all():
        asks = f"training.input_format = {input_format}" if pair_loss == "none" else pair_loss
        raise DataError(
            f"data.train: {asks} needs documents of several sentences, but each document has one sentence; set "
            "data.document to the column of documents, or separate only documents by blank lines."
        )
    if pair_loss == "next_sentence" and split.documents[-1] == 0:
        raise DataError(
            "data.train: next_sentence needs second segments from another document, but the text is one "
            "document; set data.document to the column of documents, or separate documents by blank lines."
        )


def with_negative_pairs(
    step: Sequences, pair_loss: PairLoss, documents: NDArray[np.integer], *, seed: int
) -> Sequences:
    """Return a step in which about half of the pairs are negative, as the loss defines them. The choice
    depends on (seed, epoch, first sentence).

    `next_sentence`: the chosen pairs exchange their second segments, so that both segments of a pair are from
    different documents. If one document has more than half of the chosen pairs, its surplus stays positive;
    `packing.require_pairs` refuses steps in which this leaves few negative pairs. (Devlin et al. 2019 draw second
    segments from all of the text, and a little more than half of all pairs are negative.)
    `sentence_order`: the two segments change places (Lan et al. 2020, section 3.1).

    Args:
        documents: number of the document of every sentence of the split.
    """
    if pair_loss == "none":
        return step
    first_sentence_Q, epoch_Q = step.sentence_S[step.first_Q], step.epoch_S[step.first_Q]
    coin_Q = uniforms(derive(seed, "pairs"), epoch_Q, first_sentence_Q)
    spoilt_Q = np.flatnonzero((step.label_Q == PAIR) & (coin_Q < 0.5))
    begin_QK, size_QK = _segments(step)
    if pair_loss == "sentence_order":
        begin_QK[spoilt_Q], size_QK[spoilt_Q] = begin_QK[spoilt_Q, ::-1], size_QK[spoilt_Q, ::-1]
    else:
        spoilt_Q = _of_many_documents(spoilt_Q, documents[first_sentence_Q], seed)
        _, pairs_of_document = np.unique(documents[first_sentence_Q[spoilt_Q]], return_counts=True)
        partner_Q = np.roll(spoilt_Q, -pairs_of_document.max(initial=0))
        begin_QK[spoilt_Q, 1], size_QK[spoilt_Q, 1] = begin_QK[partner_Q, 1], size_QK[partner_Q, 1]
    return _recombined(step, begin_QK, size_QK, spoilt_Q)


def _segments(step: Sequences) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places of the first sentences of both segments of each sequence, and the numbers of their
    sentences. Shapes Q x 2."""
    size_Q = np.diff(step.first_Q, append=len(step.sentence_S))
    second_Q = np.add.reduceat(step.segment_S, step.first_Q)
    size_QK = np.stack([size_Q - second_Q, second_Q], axis=1)
    return np.stack([step.first_Q, step.first_Q + size_QK[:, 0]], axis=1), size_QK


def _of_many_documents(
    spoilt_Q: NDArray[np.int64], document_Q: NDArray[np.integer], seed: int
) -> NDArray[np.int64]:
    """Select the sequences that get new partners, sorted by document, so that no document has more than half
    of them.

    Documents are in a random order, since neighbouring documents of a corpus may be alike.
    """
    document_P = document_Q[spoilt_Q]
    documents, count = np.unique(document_P, return_counts=True)
    ordered_Q = spoilt_Q[np.lexsort((document_P, uniforms(derive(seed, "partners"), document_P)))]
    surplus = 2 * count.max(initial=0) - len(spoilt_Q)
    if surplus <= 0:
        return ordered_Q
    of_longest = np.flatnonzero(document_Q[ordered_Q] == documents[count.argmax()])
    return np.delete(ordered_Q, of_longest[:surplus])


def _recombined(
    step: Sequences, begin_QK: NDArray[np.int64], size_QK: NDArray[np.int64], spoilt_Q: NDArray[np.int64]
) -> Sequences:
    """Return a step whose sequences are put together from two segments each. Those of `spoilt_Q` get the
    label OTHER."""
    take_S = ranges(begin_QK.ravel(), size_QK.ravel())
    label_Q = step.label_Q.copy()
    label_Q[spoilt_Q] = OTHER
    return replace(
        step,
        sentence_S=step.sentence_S[take_S],
        epoch_S=step.epoch_S[take_S],
        sequence_S=np.repeat(np.arange(len(step)), size_QK.sum(1)),
        segment_S=np.repeat(np.tile([0, 1], len(step)), size_QK.ravel()),
        pieces_S=step.pieces_S[take_S],
        closes_S=step.closes_S[take_S],
        label_Q=label_Q,
    )
