"""Negative examples for next-sentence and sentence-order prediction.

Nothing is added and nothing is left out: the same segments are combined in another way inside a step, so every arm
reads the same text in the same step, whatever its loss. Letters: S sentences, Q sequences.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lightning_modules.config import PAIR_FORMATS, InputFormat
from lightning_modules.data.sequences import PAIR, Sequences
from lightning_modules.data.token_store import Split
from lightning_modules.data.words import runs
from lightning_modules.errors import DataError
from lightning_modules.randomness import derive, uniforms

PairLoss = Literal["none", "next_sentence", "sentence_order"]

OTHER = 0
"""Label of a pair that is not as it stands in the text."""


def require_documents(split: Split, pair_loss: PairLoss, input_format: InputFormat) -> None:
    """Refuse a text from which no pair can be made, or, where a loss needs them, no pair from two documents.

    Raises:
        DataError: every document is one sentence, or the text is one document.
    """
    if input_format in PAIR_FORMATS and np.diff(split.documents).all():
        asks = f"training.input_format = {input_format}" if pair_loss == "none" else pair_loss
        raise DataError(
            f"data.train: {asks} needs documents of several sentences, but each has one; name the column "
            f"data.document, or end documents with blank lines only."
        )
    if pair_loss == "next_sentence" and split.documents[-1] == 0:
        raise DataError(
            "data.train: next_sentence needs second segments from another document, but the text is one "
            "document; name the column data.document, or end documents with blank lines."
        )


def rearranged(step: Sequences, pair_loss: PairLoss, documents: NDArray[np.integer], *, seed: int) -> Sequences:
    """Return a step in which half of the pairs are negative, as the loss defines them; the choice depends on
    (seed, epoch, first sentence).

    `next_sentence`: the second segments of the spoilt pairs change places so that none stands in its own document
    (Devlin et al. 2019, where they are drawn from all of the text and the pairs are a little more than half of
    all). Where one document has more than half of them, as many stay as they are. `sentence_order`: the two
    segments change places (Lan et al. 2020, section 3.1).

    Args:
        documents: of every sentence of the split.
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
        partner_Q = np.roll(spoilt_Q, -_most_of_one(documents[first_sentence_Q[spoilt_Q]]))
        begin_QK[spoilt_Q, 1], size_QK[spoilt_Q, 1] = begin_QK[partner_Q, 1], size_QK[partner_Q, 1]
    return _recombined(step, begin_QK, size_QK, spoilt_Q)


def _segments(step: Sequences) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the place of the first sentence of both segments of each sequence, and their numbers of sentences;
    shape Q x 2."""
    size_Q = np.diff(step.first_Q, append=len(step.sentence_S))
    second_Q = np.add.reduceat(step.segment_S, step.first_Q)
    size_QK = np.stack([size_Q - second_Q, second_Q], axis=1)
    return np.stack([step.first_Q, step.first_Q + size_QK[:, 0]], axis=1), size_QK


def _most_of_one(document_Q: NDArray[np.integer]) -> int:
    """Return the number of occurrences of the most frequent document."""
    return int(np.unique(document_Q, return_counts=True)[1].max(initial=0))


def _of_many_documents(
    spoilt_Q: NDArray[np.int64], document_Q: NDArray[np.integer], seed: int
) -> NDArray[np.int64]:
    """Select sequences for new partners, by documents in a drawn order, so that no document has more than half of
    them.

    Drawn, since documents that stand beside each other in a corpus may be alike.
    """
    document_P = document_Q[spoilt_Q]
    documents, count = np.unique(document_P, return_counts=True)
    ordered_Q = spoilt_Q[np.lexsort((document_P, uniforms(derive(seed, "partners"), document_P)))]
    surplus = 2 * count.max(initial=0) - len(spoilt_Q)
    if surplus <= 0:
        return ordered_Q
    most = np.flatnonzero(document_Q[ordered_Q] == documents[count.argmax()])
    return np.delete(ordered_Q, most[:surplus])


def _recombined(
    step: Sequences, begin_QK: NDArray[np.int64], size_QK: NDArray[np.int64], spoilt_Q: NDArray[np.int64]
) -> Sequences:
    """Put every sequence together from its two segments."""
    take_S = runs(begin_QK.ravel(), size_QK.ravel())
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
