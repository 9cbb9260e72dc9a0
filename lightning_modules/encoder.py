"""The encoder that all objectives share; it returns every layer, 0 = embeddings.

Letters: B rows, T positions, D width, H heads. A row may hold several sentences one after the other
(packing): `sequence_BT` numbers them from 1, 0 is padding, and no token ever sees another sentence.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightning_modules.config import EncoderSettings, Sees
from lightning_modules.vocabulary import PAD

LAYER_NORM_EPSILON = 1e-12  # BERT's


class Encoder(nn.Module):
    """Token and position embeddings and a stack of Transformer blocks (Vaswani et al. 2017).

    With `norm: post` and both sides in sight this is BERT (Devlin et al. 2019) with GELU, without segment
    embeddings and without dropout on attention weights.
    """

    def __init__(self, settings: EncoderSettings, *, vocab_size: int, max_length: int) -> None:
        super().__init__()
        self.settings = settings
        width = settings.hidden_size
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(max_length, width) if settings.positions == "learned" else None
        self.norm = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.dropout = nn.Dropout(settings.dropout)
        self.blocks = nn.ModuleList(EncoderBlock(settings) for _ in range(settings.num_hidden_layers))

    def forward(
        self,
        tokens_BT: Tensor,
        *,
        sees: Sees,
        sequence_BT: Tensor | None = None,
        position_BT: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Encode a batch and keep every layer.

        Args:
            tokens_BT: int64 ids.
            sees: which tokens of its own sentence a token may attend to.
            sequence_BT: number of the sentence in its row, 0 = padding; one sentence a row, padded with
                PAD on the right, unless given.
            position_BT: position inside the sentence, counted from the left unless given.

        Returns:
            L + 1 tensors of shape BTD: the embeddings, then the output of each block. With `norm: post`
            they are normalised; with `norm: pre` they are the residual stream, and `head_input` gives
            what a head reads. What stands at padding means nothing; drop it before measuring anything.
        """
        if sequence_BT is None:
            sequence_BT = (tokens_BT != PAD).long()
        visible_BHTT = visible(sequence_BT, sequence_BT)
        if sees == "left_only":
            T = tokens_BT.shape[1]
            visible_BHTT = visible_BHTT & torch.ones(T, T, dtype=torch.bool, device=tokens_BT.device).tril()
        layers = [self.embed(tokens_BT, position_BT)]
        for block in self.blocks:
            layers.append(block(layers[-1], visible_BHTT))
        return tuple(layers)

    def embed(self, tokens_BT: Tensor, position_BT: Tensor | None = None) -> Tensor:
        """Layer 0: token plus position, normalised with `norm: post` (as BERT does), then dropped out."""
        hidden_BTD = self.tokens(tokens_BT)
        if self.positions is not None:
            if position_BT is None:
                position_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
            hidden_BTD = hidden_BTD + self.positions(position_BT)
        if self.settings.norm == "post":
            hidden_BTD = self.norm(hidden_BTD)
        return self.dropout(hidden_BTD)

    def head_input(self, top_BTD: Tensor) -> Tensor:
        """The top layer as a head reads it: as it is with `norm: post`, normalised once more with `pre`."""
        return top_BTD if self.settings.norm == "post" else self.norm(top_BTD)


def visible(query_sequence_BT: Tensor, key_sequence_BS: Tensor) -> Tensor:
    """Which key each query may attend to: those of its own sentence. Boolean, shape B1TS.

    Padding (0) sees padding, so that no row of the attention is empty.
    """
    return (query_sequence_BT[:, :, None] == key_sequence_BS[:, None, :])[:, None]


class EncoderBlock(nn.Module):
    """Self-attention and feed-forward, each added to its input; layer norm after the sum or before."""

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        width = settings.hidden_size
        self.pre_norm = settings.norm == "pre"
        self.attention = SelfAttention(width, settings.num_attention_heads)
        self.attention_norm = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.feed_forward = FeedForward(width, settings.intermediate_size)
        self.feed_forward_norm = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, hidden_BTD: Tensor, visible_BHTT: Tensor) -> Tensor:
        if self.pre_norm:
            hidden_BTD = hidden_BTD + self.dropout(self.attention(self.attention_norm(hidden_BTD), visible_BHTT))
            return hidden_BTD + self.dropout(self.feed_forward(self.feed_forward_norm(hidden_BTD)))
        hidden_BTD = self.attention_norm(hidden_BTD + self.dropout(self.attention(hidden_BTD, visible_BHTT)))
        return self.feed_forward_norm(hidden_BTD + self.dropout(self.feed_forward(hidden_BTD)))


class SelfAttention(nn.Module):
    """Multi-head attention of a row over itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, hidden_BTD: Tensor, visible_BHTT: Tensor) -> Tensor:
        query, key, value = self.query_key_value(hidden_BTD).chunk(3, dim=-1)
        return self.output(attend(query, key, value, visible_BHTT, heads=self.heads))


def attend(query_BTD: Tensor, key_BSD: Tensor, value_BSD: Tensor, visible_BHTS: Tensor, *, heads: int) -> Tensor:
    """Scaled dot-product attention over `heads` equal slices of the width; shape BTD."""
    query, key, value = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query_BTD, key_BSD, value_BSD))
    if query.dtype == torch.bfloat16 and query.device.type == "cpu":
        mixed = spelled_out_attention(query, key, value, visible_BHTS)
    else:
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=visible_BHTS)
    return mixed.transpose(1, 2).flatten(-2)


def spelled_out_attention(query: Tensor, key: Tensor, value: Tensor, visible_BHTS: Tensor) -> Tensor:
    """What `scaled_dot_product_attention` computes, from its definition; B x heads x tokens x slice each.

    In bf16 on CPU two and a half times as fast at 128 tokens (benchmarks/README.md).
    """
    scores_BHTS = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    return scores_BHTS.masked_fill(~visible_BHTS, float("-inf")).softmax(-1) @ value


class FeedForward(nn.Module):
    """Two linear maps with an exact GELU between them."""

    def __init__(self, width: int, intermediate: int) -> None:
        super().__init__()
        self.expand = nn.Linear(width, intermediate)
        self.contract = nn.Linear(intermediate, width)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        return self.contract(F.gelu(self.expand(hidden_BTD)))
