"""Permutation language model (XLNet, Yang et al. 2019): predict each token from those before it in a random
order.

The paper runs two streams through the same weights: content states, which see their own token, and query
states, which see their position but not their token. Here the queries are additional tokens in the row:
[MASK] at the position to predict. They see the tokens before it in the order, and no token ever sees them.
This is the same computation, in which only predicted tokens need a query (a test checks which tokens see
which).
"""

import numpy as np
from numpy.typing import NDArray

from lightning_modules.config import PermutationLMSettings, RunSettings
from lightning_modules.data.packing import PackedRows, PackedStep
from lightning_modules.data.tokenizer import FIRST_WORD_ID, MASK
from lightning_modules.model.attention import EVERYTHING
from lightning_modules.model.heads import LossSum
from lightning_modules.objectives.masking import rank_in_segment
from lightning_modules.objectives.objective import (
    EVALUATION_SEED,
    Batch,
    Objective,
    VocabularyPart,
    padded_predictions,
    shared_inputs,
)
from lightning_modules.randomness import derive, uniforms

EVALUATED = 1 / 6  # share of the tokens that are predicted in an evaluation, whatever the share in training
QUERY_ROUNDING = 16  # queries of a row are padded to a multiple of this, so that there are few shapes


class PermutationLM(Objective):
    """Permutation language model: the last tokens of a random order are predicted from those before them.

    Each sentence has its own order. It begins with the special tokens, so the model knows the length of a
    sentence, as masked LM does.
    """

    vocabulary_parts = (VocabularyPart("loss", "label_N"),)

    def __init__(self, run: RunSettings, *, vocab_size: int) -> None:
        super().__init__(run, vocab_size=vocab_size)
        assert isinstance(run.objective, PermutationLMSettings)
        self.predict = run.objective.predict
        self.head = self.build_head()

    def make_batch(self, packed: PackedStep, *, seed: int) -> dict[str, NDArray[np.int64]]:
        return self._batch(packed, seed, self.predict)

    def make_evaluation_batch(self, packed: PackedStep) -> dict[str, NDArray[np.int64]]:
        return self._batch(packed, EVALUATION_SEED, EVALUATED)

    def _batch(self, packed: PackedStep, seed: int, share: float) -> dict[str, NDArray[np.int64]]:
        source = packed.source
        rank_N, predicted_N = _order(source, seed, share)
        predicted = np.flatnonzero(predicted_N)
        B, T = source.shape
        row_P = source.place_N[predicted] // T
        order = np.argsort(row_P, kind="stable")
        predicted, row_P = predicted[order], row_P[order]
        column_P = np.arange(len(row_P)) - np.searchsorted(row_P, row_P)
        queries = int(column_P.max(initial=-1)) + 1
        queries += -queries % QUERY_ROUNDING
        width = T + queries
        place_P = row_P * width + T + column_P

        def with_queries(content_BT: NDArray[np.int64], query_P: NDArray[np.int64]) -> NDArray[np.int64]:
            grid = np.zeros((B, width), np.int64)
            grid[:, :T] = content_BT
            grid.reshape(-1)[place_P] = query_P
            return grid

        of_queries = {
            "tokens_BT": np.full(len(predicted), MASK),
            "sequence_BT": source.slot_N[predicted],
            "position_BT": source.position_N[predicted],
            "segment_BT": source.segment_N[predicted],
        }
        shared = shared_inputs(packed, source.ids_N)
        return {
            **{name: with_queries(x, of_queries[name]) if name in of_queries else x for name, x in shared.items()},
            "key_rank_BT": with_queries(source.grid(rank_N), np.full(len(predicted), EVERYTHING)),
            "query_rank_BT": with_queries(source.grid(rank_N), rank_N[predicted]),
            **padded_predictions(place_P, source.ids_N[predicted]),
        }

    def losses(self, batch: Batch) -> dict[str, LossSum]:
        top_ND = self.encode_at(batch, batch["predict_N"])
        return {"loss": self.token_loss(top_ND, batch["label_N"])}


def _order(source: PackedRows, seed: int, share: float) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the rank of each token in the order of its sequence, and whether the token is predicted.

    Both depend on (seed, epoch, sentence) alone.
    """
    key = derive(seed, "permutation")
    is_text_N = source.ids_N >= FIRST_WORD_ID
    start_Q = np.flatnonzero(source.position_N == 0)
    sequence_N = np.cumsum(source.position_N == 0) - 1
    rank_N = rank_in_segment(np.where(is_text_N, source.draw(key), -1.0), start_Q[sequence_N])
    text_Q = np.bincount(sequence_N, is_text_N)
    length_Q = np.bincount(sequence_N)
    rounding_Q = uniforms(key, source.epoch_N[start_Q], source.sentence_N[start_Q])
    predicted_Q = np.floor(share * text_Q + rounding_Q).astype(np.int64)
    return rank_N, is_text_N & (rank_N >= (length_Q - predicted_Q)[sequence_N])
