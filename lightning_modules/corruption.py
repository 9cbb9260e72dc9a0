"""Which tokens are hidden and what is shown instead. Pure functions of arrays.

A token is known by (epoch, sentence, position); N tokens of any number of sentences are handled at once.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightning_modules.config import MaskingSettings
from lightning_modules.randomness import derive, uniforms
from lightning_modules.vocabulary import FIRST_WORD_ID, MASK


class Corrupted(NamedTuple):
    """What masked LM shows the encoder, and what it asks for."""

    shown_N: NDArray[np.int64]
    """Ids with the selected ones replaced by [MASK], by a random token, or kept."""
    selected_N: NDArray[np.bool_]
    """Which tokens are to be predicted. Never a special token."""


def mask_tokens(
    ids_N: NDArray[np.integer],
    *,
    epoch_N: NDArray[np.integer],
    sentence_N: NDArray[np.integer],
    position_N: NDArray[np.integer],
    masking: MaskingSettings,
    vocab_size: int,
    seed: int,
) -> Corrupted:
    """Corrupt whole sentences as masked LM does (Devlin et al. 2019, section 3.1).

    Of a sentence's n tokens that are not special, floor(ratio * n + u) are selected without replacement,
    u uniform in [0, 1): on average exactly `ratio` of them, with next to no variance. (BERT rounds and
    takes at least one, which selects far more than 15% of short sentences.) Each selected token is then
    shown as [MASK], as a uniform draw from the non-special vocabulary, which may equal the original, or
    unchanged, with the shares of `masking`.

    Tokens of one sentence must stand together, and all of them must be given: the result depends on
    (seed, epoch, sentence) and on the sentence itself, on nothing else.
    """
    key = derive(seed, "corruption")

    def draw(purpose: int) -> NDArray[np.float64]:
        return uniforms(key, epoch_N, sentence_N, position_N, np.array([purpose]))

    shown_N = ids_N.astype(np.int64)
    candidate_N = ids_N >= FIRST_WORD_ID
    start_N, count_N = _segments(epoch_N, sentence_N, candidate_N)
    rounding_N = uniforms(key, epoch_N, sentence_N)
    wanted_N = np.floor(masking.ratio * count_N + rounding_N).astype(np.int64)
    selected_N = candidate_N & (_rank_in_segment(np.where(candidate_N, draw(0), 2.0), start_N) < wanted_N)

    treatment_N = draw(1)
    masked_N = selected_N & (treatment_N < masking.mask)
    random_N = selected_N & ~masked_N & (treatment_N < masking.mask + masking.random)
    shown_N[masked_N] = MASK
    words = vocab_size - FIRST_WORD_ID
    shown_N[random_N] = FIRST_WORD_ID + np.floor(draw(2)[random_N] * words).astype(np.int64)
    return Corrupted(shown_N, selected_N)


def _segments(
    epoch_N: NDArray[np.integer], sentence_N: NDArray[np.integer], candidate_N: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each token: where its sentence starts, and how many candidates its sentence has."""
    new = np.ones(len(sentence_N), dtype=bool)
    new[1:] = (sentence_N[1:] != sentence_N[:-1]) | (epoch_N[1:] != epoch_N[:-1])
    starts = np.flatnonzero(new)
    segment_N = np.cumsum(new) - 1
    count = np.add.reduceat(candidate_N.astype(np.int64), starts) if len(starts) else starts
    return starts[segment_N], count[segment_N]


def _rank_in_segment(score_N: NDArray[np.float64], start_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 for the smallest score of a sentence, 1 for the next, and so on."""
    order_N = np.lexsort((score_N, start_N))
    rank_N = np.empty(len(score_N), dtype=np.int64)
    rank_N[order_N] = np.arange(len(score_N)) - start_N[order_N]
    return rank_N
