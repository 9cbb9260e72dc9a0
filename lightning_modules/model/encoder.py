"""The encoder that all objectives share, which returns every layer (0 = embeddings), and the decoder of
translation.

Letters: B rows, T positions (of the decoder's source), U target positions, D width, I width inside a
feed-forward layer, H heads, P positions of a table, K pairs of a sine and a cosine. A row may hold several
sequences one after the other (packing). `sequence_BT` numbers them from 1; 0 is padding. No token ever sees
another sequence. The target of the source sentence with number k in its row has number k in the target row.

The decoder is trained with the encoder; the measures do not use it.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightning_modules.config import EncoderSettings, Sees
from lightning_modules.data.tokenizer import PAD
from lightning_modules.model.attention import (
    SelfAttention,
    Sight,
    SourceAttention,
    score_mask,
    sight_of,
    visible,
    visible_by_rank,
    visible_in,
)
from lightning_modules.model.numerics import Dropout


def norm_layer(settings: EncoderSettings) -> nn.Module:
    """Return a norm with the kind, width and epsilon of the encoder's settings."""
    kind = RMSNorm if settings.norm_kind == "rms" else nn.LayerNorm
    return kind(settings.hidden_size, eps=settings.layer_norm_epsilon)


class RMSNorm(nn.Module):
    """Norm that divides a state by its root mean square and multiplies it by learned weights.

    Zhang and Sennrich 2019, equation 4, with epsilon added to the mean square. It is computed in fp32 or
    wider, as layer norms are.
    """

    def __init__(self, width: int, *, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        wide_BTD = hidden_BTD.to(torch.promote_types(hidden_BTD.dtype, self.weight.dtype))
        return F.rms_norm(wide_BTD, self.weight.shape, self.weight, self.eps)


def sinusoids(positions: int, width: int) -> Tensor:
    """Return fixed position embeddings, shape PD, float64: sines in the first half of the width, cosines in the
    second.

    Position p, counted from 0, has the sine and the cosine of p times 10,000^(-k / (D / 2 - 1)) for each k below
    D / 2, as in the public code of the authors of Voita et al. 2019 and in tensor2tensor. Vaswani et al. 2017,
    section 3.5, put each sine beside its cosine and divide by D / 2.
    """
    half = width // 2
    rate_K = 1e4 ** (-torch.arange(half, dtype=torch.float64) / max(1, half - 1))
    angle_PK = torch.arange(positions, dtype=torch.float64)[:, None] * rate_K
    return torch.cat([angle_PK.sin(), angle_PK.cos()], dim=1)


class SinusoidalPositions(nn.Module):
    """Position embeddings that are not trained and not in checkpoints; see `sinusoids`."""

    def __init__(self, max_length: int, width: int) -> None:
        super().__init__()
        table_PD = sinusoids(max_length, width).to(torch.get_default_dtype())
        self.register_buffer("table_PD", table_PD, persistent=False)

    def forward(self, position_BT: Tensor) -> Tensor:
        table_PD = self.table_PD
        assert isinstance(table_PD, Tensor)
        return table_PD[position_BT]


class Embeddings(nn.Module):
    """Base of encoder and decoder: it computes layer 0, and what a head reads from the top layer."""

    def __init__(
        self, settings: EncoderSettings, *, vocab_size: int, max_length: int, segments: bool = False
    ) -> None:
        super().__init__()
        self.settings = settings
        width, embedding = settings.hidden_size, settings.embedding
        self.pre_norm = settings.norm == "pre"
        self.tokens = nn.Embedding(vocab_size, width)
        self.token_scale = width**0.5 if embedding.scale else 1.0
        self.positions = self._positions(settings, max_length)
        self.segments = nn.Embedding(2, width) if segments else None
        self.embedding_bias = nn.Parameter(torch.zeros(width)) if embedding.bias else None
        # Checkpoints call this norm `norm`, both below all blocks (`norm: post`) and above them (`pre`).
        self.norm = norm_layer(settings) if self.pre_norm or embedding.norm else None
        self.embedding_norm = norm_layer(settings) if self.pre_norm and embedding.norm else None
        self.dropout = Dropout(settings.dropout)

    @staticmethod
    def _positions(settings: EncoderSettings, max_length: int) -> nn.Module | None:
        match settings.positions:
            case "learned":
                return nn.Embedding(max_length, settings.hidden_size)
            case "sinusoidal":
                return SinusoidalPositions(max_length, settings.hidden_size)
        return None

    def embed(
        self, tokens_BT: Tensor, position_BT: Tensor | None = None, segment_BT: Tensor | None = None
    ) -> Tensor:
        """Return layer 0, shape BTD: the sum of token, position and segment embeddings, with dropout.

        `encoder.embedding` says whether token embeddings are scaled, and whether a bias and a norm are
        applied.
        """
        hidden_BTD = self.tokens(tokens_BT)
        if self.token_scale != 1.0:
            hidden_BTD = hidden_BTD * self.token_scale
        if self.embedding_bias is not None:
            hidden_BTD = hidden_BTD + self.embedding_bias
        if self.positions is not None:
            if position_BT is None:
                position_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
            hidden_BTD = hidden_BTD + self.positions(position_BT)
        if self.segments is not None:
            hidden_BTD = hidden_BTD + self.segments(
                torch.zeros_like(tokens_BT) if segment_BT is None else segment_BT
            )
        norm = self.embedding_norm if self.pre_norm else self.norm
        return self.dropout(hidden_BTD if norm is None else norm(hidden_BTD))

    def head_input(self, top_BTD: Tensor) -> Tensor:
        """Return the top layer as a head reads it: with `norm: pre` it is normalised once more."""
        return self.norm(top_BTD) if self.pre_norm and self.norm is not None else top_BTD


class Encoder(Embeddings):
    """Token and position embeddings and a stack of Transformer blocks (Vaswani et al. 2017).

    With the default settings and `sees: both_sides` this is BERT (Devlin et al. 2019) without dropout on
    attention weights. With `segments` it also has BERT's segment embeddings.
    """

    def __init__(
        self, settings: EncoderSettings, *, vocab_size: int, max_length: int, segments: bool = False
    ) -> None:
        super().__init__(settings, vocab_size=vocab_size, max_length=max_length, segments=segments)
        self.blocks = nn.ModuleList(EncoderBlock(settings) for _ in range(settings.num_hidden_layers))

    def forward(
        self,
        tokens_BT: Tensor,
        *,
        sees: Sees,
        sequence_BT: Tensor | None = None,
        position_BT: Tensor | None = None,
        segment_BT: Tensor | None = None,
        window: tuple[int, int] = (2, 2),
        rank_BT: tuple[Tensor, Tensor] | None = None,
        top_place_N: Tensor | None = None,
        below: tuple[Tensor, ...] | None = None,
    ) -> tuple[Tensor, ...]:
        """Encode a batch and keep every layer.

        Args:
            tokens_BT: int64 ids.
            sees: which tokens of its own sequence a token may attend to.
            sequence_BT: number of the sequence in its row, 0 = padding. By default each row is one sequence,
                padded with PAD on the right.
            position_BT: position inside the sequence. By default the position in the row, from 0.
            segment_BT: 0 or 1, by default 0. It is ignored if there are no segment embeddings.
            window: numbers of visible tokens to the left and to the right, for `sees="window"`.
            rank_BT: rank of each token as a key and as a query. If given, `sees` is ignored, and a token sees
                the tokens of lower rank (`attention.visible_by_rank`).
            top_place_N: places of the flattened rows at which the last layer is needed, by default all.
            below: all layers but the last, if they are known from an earlier call with the same batch.

        Returns:
            L + 1 tensors of shape BTD: the embeddings, then the output of each block. If `top_place_N` is
            given, the last has shape ND, and after its attention only these places are computed. With
            `norm: post` blocks normalise their output. With `norm: pre` they return the residual stream, and
            `head_input` gives what a head reads. States at padding have no meaning; drop them before
            measuring anything.
        """
        if sequence_BT is None:
            sequence_BT = (tokens_BT != PAD).long()
        if rank_BT is None:
            visible_BHTT = visible_in(sequence_BT, sees, window)
        else:
            visible_BHTT = visible_by_rank(sequence_BT, *rank_BT)
        layers = [self.embed(tokens_BT, position_BT, segment_BT)] if below is None else list(below)
        sight = sight_of(self.settings, visible_BHTT, layers[0], position_BT)
        for block in self.blocks[len(layers) - 1 :]:
            place_N = top_place_N if len(layers) == len(self.blocks) else None
            layers.append(block(layers[-1], sight, place_N))
        return tuple(layers)


class EncoderBlock(nn.Module):
    """Block of the encoder: self-attention and feed-forward layer, each added to its input.

    The layer norm stands after each sum (`norm: post`) or before each part (`norm: pre`).
    """

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        self.pre_norm = settings.norm == "pre"
        self.attention = SelfAttention(settings)
        self.attention_norm = norm_layer(settings)
        self.feed_forward = FeedForward(settings)
        self.feed_forward_norm = norm_layer(settings)
        self.dropout = Dropout(settings.dropout)

    def forward(self, hidden_BTD: Tensor, sight: Sight, place_N: Tensor | None = None) -> Tensor:
        """Return the states after the block, shape BTD; ND if only some places of the flattened rows are
        needed."""
        read_BTD = self.attention_norm(hidden_BTD) if self.pre_norm else hidden_BTD
        mixed = self.attention(read_BTD, sight, place_N)
        hidden = self.dropout(mixed, residual=hidden_BTD if place_N is None else hidden_BTD.flatten(0, 1)[place_N])
        if self.pre_norm:
            return self.dropout(self.feed_forward(self.feed_forward_norm(hidden)), residual=hidden)
        hidden = self.attention_norm(hidden)
        return self.feed_forward_norm(self.dropout(self.feed_forward(hidden), residual=hidden))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "swiglu": F.silu,
}


class FeedForward(nn.Module):
    """Feed-forward layer: two linear maps with an activation between them, or with a gate (`swiglu`)."""

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        self.expand = nn.Linear(settings.hidden_size, settings.intermediate_size)
        self.contract = nn.Linear(settings.intermediate_size, settings.hidden_size)
        gated = settings.activation == "swiglu"
        self.gate = nn.Linear(settings.hidden_size, settings.intermediate_size) if gated else None
        self.activation = ACTIVATIONS[settings.activation]
        self.dropout = Dropout(settings.feed_forward_dropout)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        inside_BTI = self.expand(hidden_BTD)
        if self.gate is None:
            inside_BTI = self.activation(inside_BTI)
        else:
            inside_BTI = self.activation(self.gate(hidden_BTD)) * inside_BTI
        return self.contract(self.dropout(inside_BTI))


class Decoder(Embeddings):
    """Transformer decoder (Vaswani et al. 2017) with the settings of the encoder.

    It always has positions: learned ones if the encoder has none. Rotary positions, ALiBi and an attention
    window act in its self-attention only, not in its attention to the source.
    """

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
        """Return the states from which the token after each target token is predicted, shape BUD.

        A target token sees itself and the tokens left of it in its own sentence, and the whole source
        sentence of the same number.
        """
        U = tokens_BU.shape[1]
        own_BHUU = visible(sequence_BU, sequence_BU)
        own_BHUU = own_BHUU & torch.ones(U, U, dtype=torch.bool, device=tokens_BU.device).tril()
        source_BHUT = visible(sequence_BU, source_sequence_BT)
        # Target padding sees the whole source row. Otherwise its softmax could be 0/0, as the source row may
        # have no padding.
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
