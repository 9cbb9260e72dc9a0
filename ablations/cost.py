"""What a run costs, before it runs: parameters, tokens, operations. No torch."""

from lightning_modules.config import EncoderSettings, RunSettings
from lightning_modules.operations import operations_per_token


def parameters(run: RunSettings) -> int:
    """Trained numbers of the whole module, heads and decoder included."""
    encoder, vocab = run.encoder, run.data.vocab_size
    width = encoder.hidden_size
    positions = run.data.max_length * width if encoder.positions == "learned" else 0
    total = vocab * width + positions + 2 * width + encoder.num_hidden_layers * _encoder_block(encoder)
    if run.objective.kind == "translation":
        attention = 4 * (width * width + width) + 2 * width
        block = _encoder_block(encoder) + attention
        return (
            total
            + vocab * width
            + run.data.max_length * width
            + 2 * width
            + (run.objective.decoder.num_hidden_layers * block)
        )
    return total + width * width + 3 * width + vocab


def _encoder_block(encoder: EncoderSettings) -> int:
    width, inside = encoder.hidden_size, encoder.intermediate_size
    return 4 * (width * width + width) + 2 * width * inside + inside + width + 4 * width


def tokens(run: RunSettings) -> int:
    """Real source tokens of a run, at most."""
    return run.training.max_steps * run.training.tokens_per_step


def flops(run: RunSettings) -> float:
    """Useful operations of training."""
    return operations_per_token(run) * tokens(run)
