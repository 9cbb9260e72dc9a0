"""Settings of the encoder and of the decoder, what a token may attend to, and the sizes of their parts.

Sizes are counted in two ways. Parameters are all trained numbers. Weights are the entries of matrices that a
token meets; each costs six floating-point operations of training: a multiply and an add forward, twice that
backward.
"""

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from lightning_modules.config.settings import MOST_LAYERS, SETTING_LIMIT, WIDEST, Settings


class EmbeddingSettings(Settings):
    """Settings of layer 0: how it is made of the embeddings of tokens and positions."""

    scale: bool = False
    """Whether token embeddings are multiplied by the square root of the width (Vaswani et al. 2017, section
    3.4). They are then larger than the position embeddings."""
    bias: bool = False
    """Whether one learned vector is added to all tokens."""
    norm: bool = True
    """Whether a norm follows the sum of token and position embeddings, as in BERT. The default is false in an
    encoder with `norm: pre`, and true otherwise."""


def default_intermediate_size(width: int, activation: str) -> int:
    """Return the default width inside the feed-forward layers: 4 D; with a gate 8 D / 3, rounded to a
    multiple of 8, which processors like, and at least 8."""
    return 8 * max(1, round(width / 3)) if activation == "swiglu" else 4 * width


class EncoderSettings(Settings):
    """Settings of the encoder, which all objectives share."""

    num_hidden_layers: int = Field(6, ge=1, le=MOST_LAYERS)
    """Number of blocks. There is one more hidden state than blocks, because layer 0 is the embeddings."""
    hidden_size: int = Field(256, ge=1, le=WIDEST)
    """Width of every hidden state."""
    num_attention_heads: int = Field(4, ge=1)
    """Number of heads of each attention; must divide `hidden_size`."""
    activation: Literal["gelu", "gelu_tanh", "relu", "swiglu"] = "gelu"
    """Activation inside the feed-forward layers. `gelu` is the exact GELU. `gelu_tanh` approximates it with a
    hyperbolic tangent, as in GPT-2 (Hendrycks and Gimpel 2016, section 2). `swiglu` is a gate: the product of
    two linear maps, one of which goes through x * sigmoid(x) (Shazeer 2020, equation 6, here with biases, as
    in all linear maps)."""
    intermediate_size: int = Field(
        default_factory=lambda data: default_intermediate_size(data["hidden_size"], data["activation"]),
        ge=1,
        lt=SETTING_LIMIT,
    )
    """Width inside the feed-forward layers. The default is four times `hidden_size`. For `swiglu`, which has
    three matrices instead of two, the default is two thirds of that, rounded to a multiple of 8. The number
    of weights is then nearly the same (Shazeer 2020, section 2)."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout rate of the embeddings and of the output of each sub-layer."""
    norm: Literal["post", "pre"] = "post"
    """Place of the norms. `post`: after each residual sum, as in BERT. `pre`: before each sub-layer and once
    more above the top layer, as in the public code of the authors of Voita et al. 2019."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """Kind of the norms of encoder, decoder and generator. `layer`: layer norm. `rms`: RMS norm, which
    subtracts no mean and adds no bias (Zhang and Sennrich 2019). The norm inside BERT's prediction head is
    always a layer norm."""
    positions: Literal["learned", "sinusoidal", "rotary", "alibi", "none"] = "learned"
    """Information about order. `learned` and `sinusoidal` are position embeddings: learned, or fixed sines
    and cosines (Vaswani et al. 2017, section 3.5). `rotary` and `alibi` act in self-attention alone: `rotary`
    turns queries and keys by angles (Su et al. 2021), `alibi` lowers the scores of distant tokens (Press et
    al. 2022), here alike on both sides. `none` is no information at all."""
    attention_window: int | None = Field(None, ge=1, lt=SETTING_LIMIT)
    """Largest distance at which a token attends to another, on either side; null is no limit. This is the
    local window of Longformer (Beltagy et al. 2020) and BigBird (Zaheer et al. 2020), without their global
    tokens; their w is the width of the whole window. It narrows what `objective.sees` allows. Training costs
    as much as without it."""
    embedding: EmbeddingSettings = Field(
        default_factory=lambda data: EmbeddingSettings(norm=data.get("norm") != "pre")
    )
    initialisation: Literal["normal", "glorot"] = "normal"
    """Initial weights. `normal`: all normal, with BERT's standard deviation of 0.02 at a width of 768, which
    is scaled with 1 / sqrt(`hidden_size`), in a generator too. `glorot`: matrices uniform (Glorot and Bengio
    2010, equation 16) and embeddings normal with variance 1 / width."""
    layer_norm_epsilon: float = Field(1e-12, gt=0)
    """Epsilon: the number that layer norms add to the variance, and RMS norms to the mean square."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate of the attention weights."""
    feed_forward_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate of the activations inside the feed-forward layers."""

    @field_validator("embedding", mode="before")
    @classmethod
    def _embedding_has_the_norm_of_its_blocks(cls, embedding: Any, info: ValidationInfo) -> Any:
        if isinstance(embedding, dict) and info.data.get("norm") == "pre":
            return {"norm": False, **embedding}
        return embedding

    @field_validator("num_attention_heads")
    @classmethod
    def _heads_divide_width(cls, heads: int, info: ValidationInfo) -> int:
        width = info.data.get("hidden_size")
        if width is not None and width % heads:
            raise ValueError(
                f"must divide hidden_size, but hidden_size = {width} is not a multiple of {heads}; change one "
                "of the two"
            )
        return heads

    @field_validator("positions")
    @classmethod
    def _numbers_make_pairs(cls, positions: str, info: ValidationInfo) -> str:
        width = info.data.get("hidden_size")
        if positions == "sinusoidal" and width is not None and width % 2:
            raise ValueError(f"sinusoidal needs an even hidden_size, but it is {width}; change one of the two")
        heads = info.data.get("num_attention_heads")
        if positions == "rotary" and width is not None and heads is not None and width // heads % 2:
            raise ValueError(
                f"positions: rotary needs heads of an even width, but hidden_size / num_attention_heads is "
                f"{width // heads}; change one of the three"
            )
        return positions


class DecoderSettings(Settings):
    """Settings of the decoder of translation. Its width and heads are the encoder's. No measure reads it."""

    num_hidden_layers: int = Field(6, ge=1, le=MOST_LAYERS)
    """Number of blocks of the decoder."""


Head = Literal["bert", "linear"]
"""Prediction head. `bert`: a linear map, GELU, layer norm, and the token embeddings with a bias. `linear`:
one linear map with its own weights and no bias."""

AnyHead = Head | Literal["tied"]
"""Prediction head: `bert`, `linear`, or `tied`, which is the token embeddings alone, as in GPT-2."""

Sees = Literal["both_sides", "left_only", "window", "itself"]
"""Tokens of its own sentence that a token may attend to."""


def block_weights(encoder: EncoderSettings) -> float:
    """Return the number of weights in the matrices of one Transformer block."""
    width = encoder.hidden_size
    return 4.0 * width * width + (1.0 + maps_inside(encoder)) * width * encoder.intermediate_size


def maps_inside(encoder: EncoderSettings) -> int:
    """Return the number of linear maps that read the input of a feed-forward layer: 2 with a gate, else 1."""
    return 2 if encoder.activation == "swiglu" else 1


def encoder_weights(encoder: EncoderSettings, *, read: float = 1, predicted: float | None = None) -> float:
    """Return the number of weights of all blocks that each source token meets.

    Args:
        read: number of times that each token is read.
        predicted: share of the tokens that the top layer is computed for; all of them unless given. The other
            tokens only need keys and values of the last block.
    """
    past_attention = block_weights(encoder) - 2 * encoder.hidden_size**2
    skipped = 0.0 if predicted is None else (read - predicted) * past_attention
    return read * encoder.num_hidden_layers * block_weights(encoder) - skipped


def vocabulary_weights(encoder: EncoderSettings, vocab_size: int, *, head: AnyHead = "bert") -> float:
    """Return the number of weights of the head that a predicted token meets, tied embeddings included."""
    transform = encoder.hidden_size if head == "bert" else 0
    return encoder.hidden_size * (transform + vocab_size)


def block_parameters(encoder: EncoderSettings) -> int:
    """Return the number of parameters of one block: attention, feed-forward layer and two norms."""
    width, inside, maps = encoder.hidden_size, encoder.intermediate_size, maps_inside(encoder)
    feed_forward = maps * (width * inside + inside) + inside * width + width
    return attention_parameters(encoder) + feed_forward + norm_parameters(encoder)


def attention_parameters(encoder: EncoderSettings) -> int:
    """Return the number of parameters of one attention with its norm."""
    width = encoder.hidden_size
    return 4 * (width * width + width) + norm_parameters(encoder)


def norm_parameters(encoder: EncoderSettings) -> int:
    """Return the number of parameters of one norm: its weights and, for a layer norm, its bias."""
    return encoder.hidden_size * (1 if encoder.norm_kind == "rms" else 2)


def encoder_parameters(encoder: EncoderSettings, *, vocab_size: int, max_length: int, segments: bool) -> int:
    """Return the number of parameters of embeddings and blocks.

    Args:
        segments: whether there are embeddings for the two segments of a pair.
    """
    width = encoder.hidden_size
    positions = max_length * width if encoder.positions == "learned" else 0
    embeddings = (
        vocab_size * width + positions + (2 * width if segments else 0) + norm_and_bias_parameters(encoder)
    )
    return embeddings + encoder.num_hidden_layers * block_parameters(encoder)


def norm_and_bias_parameters(encoder: EncoderSettings) -> int:
    """Return the number of parameters of the norms below and above all blocks, and of the bias of layer 0."""
    norms = encoder.embedding.norm + (encoder.norm == "pre")
    return norms * norm_parameters(encoder) + encoder.hidden_size * encoder.embedding.bias


def prediction_head_parameters(encoder: EncoderSettings, vocab_size: int, *, head: AnyHead = "bert") -> int:
    """Return the number of parameters of the head over the vocabulary. Token embeddings that the head uses
    are not counted: the output matrix of BERT's head, and all of a tied head."""
    width = encoder.hidden_size
    if head == "tied":
        return 0
    return vocab_size * width if head == "linear" else width * width + 3 * width + vocab_size


def binary_head_parameters(encoder: EncoderSettings) -> int:
    """Return the number of parameters of a head with one output."""
    width = encoder.hidden_size
    return width * width + 2 * width + 1
