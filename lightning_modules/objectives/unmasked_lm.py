"""Language models that hide nothing: causal, in a random order (permutation), and naive from both sides.

The order of XLNet (Yang et al. 2019) is random. The paper runs two streams through the same weights: content
states, which see their own token, and query states, which see their place but not their token. Here the queries
are further tokens of the row, [MASK] at the place in question: they see what comes before it in the order, and
nothing ever sees them. That is the same computation, in which only predicted tokens need a query (a test proves
who sees whom).

The naive model shows why masks are needed. Every layer has a forward stream, which sees the tokens to the left
of a token, and a backward stream, which sees those to its right; both leave out the token itself, and their sum
is the layer's state. After one layer a state knows everything but its own token. But its neighbours know that
token, and from the second layer on they tell.

Letters: B rows, T positions, D width, N predictions.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lightning_modules.config import CausalLMSettings, PermutationLMSettings, RunSettings
from lightning_modules.data.packing import PackedRows, PackedStep
from lightning_modules.model.heads import LossSum
from lightning_modules.model.sight import EVERYTHING, sight_of, visible
from lightning_modules.objectives.masking import replace_tokens
from lightning_modules.objectives.objective import (
    EVALUATION_SEED,
    Batch,
    Objective,
    VocabularyPart,
    padded_predictions,
    shared_inputs,
)
from lightning_modules.randomness import derive, uniforms
from lightning_modules.vocabulary import FIRST_WORD_ID, MASK


class CausalLM(Objective):
    """Causal language model. The state of each token but a sequence's last predicts the token after it; the last
    one is END."""

    def __init__(self, run: RunSettings, *, vocab_size: int) -> None:
        super().__init__(run, vocab_size=vocab_size)
        assert isinstance(run.objective, CausalLMSettings)
        self.token_dropout = run.objective.token_dropout
        self.head = self.build_head()

    @property
    def window(self) -> tuple[int, int]:
        return self.run.objective.window, 0

    def make_batch(self, packed: PackedStep, *, seed: int) -> dict[str, NDArray[np.int64]]:
        source = packed.source
        return self._batch(
            packed, replace_tokens(source, self.token_dropout, vocab_size=self.vocab_size, seed=seed)
        )

    def make_evaluation_batch(self, packed: PackedStep) -> dict[str, NDArray[np.int64]]:
        return self._batch(packed, packed.source.ids_N)

    def _batch(self, packed: PackedStep, shown_N: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        source = packed.source
        follows = np.flatnonzero(source.position_N > 0)  # tokens of a sequence stand together, in order
        return shared_inputs(packed, shown_N) | padded_predictions(
            source.place_N[follows - 1], source.ids_N[follows]
        )

    def losses(self, batch: Batch) -> dict[str, LossSum]:
        top_ND = self.encode_at(batch, batch["predict_N"])
        loss = self.head.loss(
            top_ND, self.encoder.tokens.weight, batch["label_N"], label_smoothing=self.label_smoothing
        )
        return {"loss": loss}


EVALUATED = 1 / 6  # share of the tokens that an evaluation asks for, whatever the training does
QUERY_ROUNDING = 16  # queries of a row are padded to a multiple of this: few distinct shapes


class PermutationLM(Objective):
    """The last tokens of each sentence's order are predicted, each from the text before it in that order. Special
    tokens open every order: the length of a sentence is known, as it is to masked LM."""

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
        return {"loss": self.head.loss(top_ND, self.encoder.tokens.weight, batch["label_N"])}


def _order(source: PackedRows, seed: int, share: float) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the rank of each token in the order of its sequence, and whether it is predicted; depends on (seed,
    epoch, sentence)."""
    key = derive(seed, "permutation")
    is_text_N = source.ids_N >= FIRST_WORD_ID
    draw_N = uniforms(key, source.epoch_N, source.sentence_N, source.offset_N)
    start_Q = np.flatnonzero(source.position_N == 0)
    sequence_N = np.cumsum(source.position_N == 0) - 1
    order_N = np.lexsort((np.where(is_text_N, draw_N, -1.0), sequence_N))
    rank_N = np.empty_like(order_N)
    rank_N[order_N] = np.arange(len(order_N)) - start_Q[sequence_N]
    text_Q = np.bincount(sequence_N, is_text_N)
    length_Q = np.bincount(sequence_N)
    rounding_Q = uniforms(key, source.epoch_N[start_Q], source.sentence_N[start_Q])
    predicted_Q = np.floor(share * text_Q + rounding_Q).astype(np.int64)
    return rank_N, is_text_N & (rank_N >= (length_Q - predicted_Q)[sequence_N])


class NaiveBidirectionalLM(Objective):
    """Language model that predicts every token from the top state of its own place. Both streams use the weights
    of the encoder."""

    vocabulary_parts = (VocabularyPart("loss", "label_N"),)

    def __init__(self, run: RunSettings, *, vocab_size: int) -> None:
        super().__init__(run, vocab_size=vocab_size)
        self.head = self.build_head()

    def make_batch(self, packed: PackedStep, *, seed: int) -> dict[str, NDArray[np.int64]]:
        source = packed.source
        is_text_N = source.ids_N >= FIRST_WORD_ID
        return shared_inputs(packed, source.ids_N) | padded_predictions(
            source.place_N[is_text_N], source.ids_N[is_text_N]
        )

    def encode(self, batch: Batch, *, top_place_N: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return all layers; in the first block, a state starts from its place alone and reads the embeddings of
        the others."""
        tokens_BT, sequence_BT, position_BT = batch["tokens_BT"], batch["sequence_BT"], batch["position_BT"]
        B, T = tokens_BT.shape
        own_BHTT = visible(sequence_BT, sequence_BT)
        above_TT = torch.ones(T, T, dtype=torch.bool, device=tokens_BT.device).triu(1)
        streams = [_nobody_blind(own_BHTT & beside_TT) for beside_TT in (above_TT.T, above_TT)]
        embedded_BTD = self.encoder.embed(tokens_BT, position_BT, batch.get("segment_BT"))
        blank_BTD = self.encoder.embed(torch.full_like(tokens_BT, MASK), position_BT, batch.get("segment_BT"))
        first, *others = self.encoder.blocks
        layers = [embedded_BTD]
        both_BUD = torch.cat([embedded_BTD, blank_BTD], dim=1)
        blank_N = torch.arange(B * 2 * T, device=tokens_BT.device).view(B, 2 * T)[:, T:].flatten()
        settings, both_BU = self.run.encoder, torch.cat([position_BT, position_BT], dim=1)
        read = [first(both_BUD, sight_of(settings, _reading(x), both_BUD, both_BU), blank_N) for x in streams]
        layers.append(sum(read).unflatten(0, (B, T)))
        sights = [sight_of(settings, x, embedded_BTD, position_BT) for x in streams]
        for block in others:
            layers.append(sum(block(layers[-1], sight) for sight in sights))
        if top_place_N is not None:
            layers[-1] = layers[-1].flatten(0, 1)[top_place_N]
        return tuple(layers)

    def losses(self, batch: Batch) -> dict[str, LossSum]:
        top_ND = self.encode_at(batch, batch["predict_N"])
        return {"loss": self.head.loss(top_ND, self.encoder.tokens.weight, batch["label_N"])}


def _nobody_blind(visible_BHTT: Tensor) -> Tensor:
    """Let what sees nothing (START to its left, END to its right, padding) see itself, so that no softmax is
    0/0."""
    itself_TT = torch.eye(visible_BHTT.shape[-1], dtype=torch.bool, device=visible_BHTT.device)
    return visible_BHTT | (itself_TT & ~visible_BHTT.any(-1, keepdim=True))


def _reading(visible_BHTT: Tensor) -> Tensor:
    """Return the mask for embeddings and, after them, as many blank states: each blank reads the embeddings that
    it may see."""
    T = visible_BHTT.shape[-1]
    itself_TT = torch.eye(T, dtype=torch.bool, device=visible_BHTT.device).expand_as(visible_BHTT)
    nothing = torch.zeros_like(visible_BHTT)
    return torch.cat([torch.cat([itself_TT, nothing], -1), torch.cat([visible_BHTT, nothing], -1)], -2)
