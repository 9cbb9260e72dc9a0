"""Settings of the encoder and of the decoder, and what a token may attend to."""

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
