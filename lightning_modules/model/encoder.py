"""The encoder that all objectives share; it returns every layer, 0 = embeddings.

Letters: B rows, T positions, D width, I width inside a feed-forward layer, H heads. A row may hold several
sequences one after the other (packing): `sequence_BT` numbers them from 1, 0 is padding, and no token ever sees
another sequence.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from lightning_modules.config import EncoderSettings, Sees
from lightning_modules.model.attention import SelfAttention
from lightning_modules.model.embeddings import Embeddings, norm_layer
from lightning_modules.model.numerics import Dropout
from lightning_modules.model.sight import Sight, sight_of, visible_by_rank, visible_in
from lightning_modules.vocabulary import PAD


class Encoder(Embeddings):
    """Token and position embeddings and a stack of Transformer blocks (Vaswani et al. 2017).

    With the settings that are the default and both sides in sight this is BERT (Devlin et al. 2019) without
    dropout on attention weights; with `segments`, also with its segment embeddings.
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
    ) -> tuple[Tensor, ...]:
        """Encode a batch and keep every layer.

        Args:
            tokens_BT: int64 ids.
            sees: which tokens of its own sequence a token may attend to.
            sequence_BT: number of the sequence in its row, 0 = padding; one sequence a row, padded with
                PAD on the right, unless given.
            position_BT: position inside the sequence, counted from the left unless given.
            segment_BT: 0 or 1; 0 unless given. Without segment embeddings it is ignored.
            window: with that `sees`, how many tokens to the left and to the right.
            rank_BT: of each token as a key and as a query; a token then sees those of lower rank instead of
                what `sees` says (`sight.visible_by_rank`).
            top_place_N: the only places of the flattened rows at which the last layer is wanted; everywhere
                unless given.

        Returns:
            L + 1 tensors of shape BTD: the embeddings, then the output of each block; the last has shape
            ND where `top_place_N` is given: past its attention nothing else is computed. With `norm: post`
            blocks normalise what they return; with `norm: pre` they return the residual stream, and
            `head_input` gives what a head reads. What stands at padding means nothing; drop it before
            measuring anything.
        """
        if sequence_BT is None:
            sequence_BT = (tokens_BT != PAD).long()
        if rank_BT is None:
            visible_BHTT = visible_in(sequence_BT, sees, window)
        else:
            visible_BHTT = visible_by_rank(sequence_BT, *rank_BT)
        layers = [self.embed(tokens_BT, position_BT, segment_BT)]
        sight = sight_of(self.settings, visible_BHTT, layers[0], position_BT)
        for block in self.blocks:
            place_N = top_place_N if len(layers) == len(self.blocks) else None
            layers.append(block(layers[-1], sight, place_N))
        return tuple(layers)


class EncoderBlock(nn.Module):
    """Block of the encoder: self-attention and feed-forward, each added to its input; layer norm after the sum or
    before."""

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        self.pre_norm = settings.norm == "pre"
        self.attention = SelfAttention(settings)
        self.attention_norm = norm_layer(settings)
        self.feed_forward = FeedForward(settings)
        self.feed_forward_norm = norm_layer(settings)
        self.dropout = Dropout(settings.dropout)

    def forward(self, hidden_BTD: Tensor, sight: Sight, place_N: Tensor | None = None) -> Tensor:
        """Return the states after the block, shape BTD; ND where only `place_N` of the flattened rows are
        needed."""
        read_BTD = self.attention_norm(hidden_BTD) if self.pre_norm else hidden_BTD
        mixed = self.attention(read_BTD, sight, place_N)
        hidden = self.dropout(mixed, residual=hidden_BTD if place_N is None else hidden_BTD.flatten(0, 1)[place_N])
        if self.pre_norm:
            return self.dropout(self.feed_forward(self.feed_forward_norm(hidden)), residual=hidden)
        hidden = self.attention_norm(hidden)
        return self.feed_forward_norm(self.dropout(self.feed_forward(hidden), residual=hidden))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu, "swiglu": F.silu}


class FeedForward(nn.Module):
    """Feed-forward layer: two linear maps with an activation between them, or with a gate beside the first
    (`swiglu`)."""

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
