"""Settings of the encoder and of the decoder, what a token may attend to, and the sizes of their parts.

Sizes are trained numbers, and the weights that a token meets. A weight that a token meets costs six floating-point
operations of training: a multiply and an add forward, twice that backward.
"""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from lightning_modules.config.settings import Settings


class EncoderSettings(Settings):
    """Shape of the encoder that all objectives share."""

    num_hidden_layers: int = Field(6, ge=1)
    """Blocks; the encoder returns one state more, the embeddings being layer 0."""
    hidden_size: int = Field(256, ge=1)
    """Width of every state."""
    num_attention_heads: int = Field(4, ge=1)
    """Heads of each attention; must divide `hidden_size`."""
    intermediate_size: int = Field(default_factory=lambda data: 4 * data["hidden_size"], ge=1)
    """Width inside the feed-forward layers; four times `hidden_size` unless given."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Share of the embeddings and of each sub-layer's output that is dropped; attention weights are not."""
    norm: Literal["post", "pre"] = "post"
    """Layer norm after each residual sum, as in BERT and in Voita et al. 2019, or before each sub-layer."""
    positions: Literal["learned", "none"] = "learned"
    """Learned position embeddings, or no information about order at all."""

    @field_validator("num_attention_heads")
    @classmethod
    def _heads_divide_width(cls, heads: int, info: ValidationInfo) -> int:
        width = info.data.get("hidden_size")
        if width is not None and width % heads:
            raise ValueError(
                f"must divide hidden_size, but {width} is not a multiple of {heads}; change one of the two"
            )
        return heads


class DecoderSettings(Settings):
    """Settings of the decoder of translation; the measures never read it. Its width and heads are the
    encoder's."""

    num_hidden_layers: int = Field(6, ge=1)
    """Blocks of the decoder."""


Sees = Literal["both_sides", "left_only", "window", "itself"]
"""Which tokens of its own sentence a token may attend to."""


def block_weights(encoder: EncoderSettings) -> float:
    """Return the weights of the matrices of one Transformer block."""
    width = encoder.hidden_size
    return 4.0 * width * width + 2.0 * width * encoder.intermediate_size


def encoder_weights(encoder: EncoderSettings, *, read: float = 1, predicted: float | None = None) -> float:
    """Return the weights of all blocks that each source token meets.

    Args:
        read: how often each token is read.
        predicted: share of the tokens that the top layer is computed for; all of them unless given. The others
            skip what of the last block is no key or value.
    """
    past_attention = block_weights(encoder) - 2 * encoder.hidden_size**2
    skipped = 0.0 if predicted is None else (read - predicted) * past_attention
    return read * encoder.num_hidden_layers * block_weights(encoder) - skipped


def vocabulary_weights(encoder: EncoderSettings, vocab_size: int) -> float:
    """Return the weights of the prediction head, tied embeddings included."""
    return encoder.hidden_size * (encoder.hidden_size + vocab_size)


def block_parameters(encoder: EncoderSettings) -> int:
    """Return the trained numbers of one Transformer block: attention, feed-forward layer, two layer norms."""
    width, inside = encoder.hidden_size, encoder.intermediate_size
    return attention_parameters(encoder) - 2 * width + 2 * width * inside + inside + width + 4 * width


def attention_parameters(encoder: EncoderSettings) -> int:
    """Return the trained numbers of one attention with its layer norm."""
    width = encoder.hidden_size
    return 4 * (width * width + width) + 2 * width


def encoder_parameters(encoder: EncoderSettings, *, vocab_size: int, max_length: int, segments: bool) -> int:
    """Return the trained numbers of embeddings and blocks.

    Args:
        segments: whether tokens of a pair's two segments have embeddings of their own.
    """
    width = encoder.hidden_size
    positions = max_length * width if encoder.positions == "learned" else 0
    embeddings = vocab_size * width + positions + (2 * width if segments else 0) + 2 * width
    return embeddings + encoder.num_hidden_layers * block_parameters(encoder)


def prediction_head_parameters(encoder: EncoderSettings, vocab_size: int) -> int:
    """Return the trained numbers of the head over the vocabulary; its matrix is the token embeddings'."""
    width = encoder.hidden_size
    return width * width + 3 * width + vocab_size


def binary_head_parameters(encoder: EncoderSettings) -> int:
    """Return the trained numbers of a head with one output."""
    width = encoder.hidden_size
    return width * width + 2 * width + 1
