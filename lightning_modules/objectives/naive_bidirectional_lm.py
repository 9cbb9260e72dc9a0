"""Naive bidirectional language model: it hides nothing, which shows why masks are needed.

Every layer has two streams. In the forward stream a token sees the tokens left of it, in the backward stream
those right of it. Neither shows the token itself. The sum of both streams is the layer's state. After one
layer a state depends on all tokens but its own. But the states of its neighbours depend on that token, so
from the second layer on its own token is known to it.

Letters: B rows, T positions, U twice as many (tokens, then blanks), D width, N predictions.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lightning_modules.config import RunSettings
from lightning_modules.data.packing import PackedStep
from lightning_modules.data.tokenizer import FIRST_WORD_ID, MASK
from lightning_modules.model.attention import sight_of, visible
from lightning_modules.model.heads import LossSum
from lightning_modules.objectives.objective import (
    Batch,
    Objective,
    VocabularyPart,
    padded_predictions,
    shared_inputs,
)


class NaiveBidirectionalLM(Objective):
    """Language model that predicts every token from the top state at its own place, with two streams.

    Both streams use the weights of the encoder.
    """

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
        """Return all layers of a batch.

        In the first block a state starts from its position alone and reads the embeddings of the other
        tokens.
        """
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
        return {"loss": self.token_loss(top_ND, batch["label_N"])}


def _nobody_blind(visible_BHTT: Tensor) -> Tensor:
    """Let tokens that see nothing see themselves, so that no softmax is 0/0.

    In the forward stream this is START, in the backward stream END, and in both padding.
    """
    itself_TT = torch.eye(visible_BHTT.shape[-1], dtype=torch.bool, device=visible_BHTT.device)
    return visible_BHTT | (itself_TT & ~visible_BHTT.any(-1, keepdim=True))


def _reading(visible_BHTT: Tensor) -> Tensor:
    """Return the mask for a row of embeddings and then as many blank states, which read the embeddings."""
    T = visible_BHTT.shape[-1]
    itself_TT = torch.eye(T, dtype=torch.bool, device=visible_BHTT.device).expand_as(visible_BHTT)
    nothing = torch.zeros_like(visible_BHTT)
    return torch.cat([torch.cat([itself_TT, nothing], -1), torch.cat([visible_BHTT, nothing], -1)], -2)
