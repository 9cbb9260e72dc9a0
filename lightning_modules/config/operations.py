"""Sizes of the network's parts: trained numbers, and the weights that a token meets. No torch.

A weight that a token meets costs six floating-point operations of training: a multiply and an add forward, twice
that backward.
"""

from lightning_modules.config.encoder import EncoderSettings


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
