"""The decoder of translation. It is trained with the encoder and thrown away for the measures.

Letters: B rows, U target positions, T source positions, D width. Rows are packed as the encoder's are:
the target of the source sentence with number k in its row has number k in the target row.
"""

import torch
from torch import Tensor, nn

from lightning_modules.config import EncoderSettings
from lightning_modules.model.attention import SelfAttention, SourceAttention
from lightning_modules.model.encoder import Embeddings, FeedForward, norm_layer
from lightning_modules.model.numerics import Dropout
from lightning_modules.model.sight import Sight, score_mask, sight_of, visible


class Decoder(Embeddings):
    """Transformer decoder (Vaswani et al. 2017) with the settings of the encoder, but always with positions:
    learned ones where the encoder has none. Rotary positions, ALiBi and a window of attention are in its
    self-attention alone; its attention to the source knows no distances."""

    def __init__(
        self, settings: EncoderSettings, *, num_hidden_layers: int, vocab_size: int, max_length: int
    ) -> None:
        super().__init__(settings, vocab_size=vocab_size, max_length=max_length)
        self.blocks = nn.ModuleList(DecoderBlock(settings) for _ in range(num_hidden_layers))

    @staticmethod
    def _positions(settings: EncoderSettings, max_length: int) -> nn.Module | None:
        if settings.positions == "none":
            return nn.Embedding(max_length, settings.hidden_size)
        return Embeddings._positions(settings, max_length)

    def forward(
        self,
        tokens_BU: Tensor,
        source_BTD: Tensor,
        *,
        sequence_BU: Tensor,
        source_sequence_BT: Tensor,
        position_BU: Tensor,
    ) -> Tensor:
        """Return the states from which each target token's successor is predicted, shape BUD.

        A target token sees itself and what stands left of it in its own sentence, and the whole source
        sentence of the same number.
        """
        U = tokens_BU.shape[1]
        own_BHUU = visible(sequence_BU, sequence_BU)
        own_BHUU = own_BHUU & torch.ones(U, U, dtype=torch.bool, device=tokens_BU.device).tril()
        source_BHUT = visible(sequence_BU, source_sequence_BT)
        # A padded target row may meet a source row without padding: let it see something, or softmax is 0/0.
        source_BHUT = source_BHUT | (sequence_BU == 0)[:, None, :, None]
        hidden_BUD = self.embed(tokens_BU, position_BU)
        own_sight = sight_of(self.settings, own_BHUU, hidden_BUD, position_BU)
        source_scores = score_mask(source_BHUT, hidden_BUD)
        for block in self.blocks:
            hidden_BUD = block(hidden_BUD, source_BTD, own_sight, source_scores)
        return self.head_input(hidden_BUD)


class DecoderBlock(nn.Module):
    """Block of the decoder: self-attention, attention to the source, feed-forward."""

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        self.pre_norm = settings.norm == "pre"
        self.attention = SelfAttention(settings)
        self.source_attention = SourceAttention(settings)
        self.feed_forward = FeedForward(settings)
        self.attention_norm, self.source_attention_norm, self.feed_forward_norm = (
            norm_layer(settings) for _ in range(3)
        )
        self.dropout = Dropout(settings.dropout)

    def forward(
        self, hidden_BUD: Tensor, source_BTD: Tensor, own_sight: Sight, source_scores: Tensor | None
    ) -> Tensor:
        steps = (
            (self.attention_norm, lambda x: self.attention(x, own_sight)),
            (self.source_attention_norm, lambda x: self.source_attention(x, source_BTD, source_scores)),
            (self.feed_forward_norm, self.feed_forward),
        )
        for norm, sublayer in steps:
            if self.pre_norm:
                hidden_BUD = self.dropout(sublayer(norm(hidden_BUD)), residual=hidden_BUD)
            else:
                hidden_BUD = norm(self.dropout(sublayer(hidden_BUD), residual=hidden_BUD))
        return hidden_BUD
