"""How many useful operations training takes. No torch."""

from lightning_modules.config import EncoderSettings, RunSettings
from lightning_modules.config.objectives import generator_shape


def operations_per_token(run: RunSettings, *, pairs: float | None = None) -> float:
    """Floating-point operations of training for each real source token.

    Six for each weight of a matrix that a token meets: a multiply and an add forward, twice that backward. The
    head, and what of the last block is no key or value, count at predicted positions only: at the share that was
    asked for of all tokens, special ones included. Left out are heads with one output and attention's products,
    which in sequences of T tokens are T / (6 D) of a block of width D: 8% of 128 tokens at 256, a third at 64. A
    translation is taken to be as long as its source. Nothing that only a slow implementation would do is counted.

    Args:
        pairs: of skip-gram, for each token, where the text was counted (`subsampling.pairs_per_token`). Unless
            given, as many as a text without sentence ends has of which nothing is left out: real ones have a third
            to a half of it.
    """
    encoder, width = run.encoder, run.encoder.hidden_size
    vocabulary = width * (width + run.data.vocab_size)
    objective = run.objective
    match objective.kind:
        case "masked_lm":
            masking = objective.masking
            asked = masking.mean_predicted(run.training.max_steps)
            weights = (
                _blocks(encoder, read=masking.mean_showings(run.training.max_steps), asked=asked)
                + asked * vocabulary
            )
        case "causal_lm":
            weights = _blocks(encoder) + vocabulary
        case "translation":
            decoder = objective.decoder.num_hidden_layers * (_block(encoder) + 4 * width * width)
            weights = _blocks(encoder) + decoder + width * run.data.vocab_size
        case "mixture":
            masked = (1 - objective.causal) * objective.masking.mean_ratio(run.training.max_steps)
            asked = objective.causal + masked
            weights = _blocks(encoder, asked=asked) + asked * vocabulary
        case "replaced_token":
            ratio = objective.masking.mean_ratio(run.training.max_steps)
            judged = 1.0 if objective.loss_on == "all" else ratio
            head = vocabulary if objective.predict == "original" else width * width
            shape = generator_shape(encoder, objective.generator)
            narrow = shape.hidden_size
            generator = width * narrow + _blocks(shape, asked=ratio)
            generator += ratio * width * (narrow + run.data.vocab_size)
            weights = _blocks(encoder, asked=judged) + judged * head + generator
        case "permutation_lm":
            asked = objective.predict
            weights = _blocks(encoder, read=1 + asked, asked=asked) + asked * vocabulary
        case "naive_bidirectional_lm":
            weights = 2 * _blocks(encoder) + vocabulary
        case "skip_gram":
            pairs = objective.window + 1 if pairs is None else pairs
            weights = pairs * (1 + objective.negatives) * width
    return 6.0 * weights


def _block(encoder: EncoderSettings) -> float:
    width = encoder.hidden_size
    return 4.0 * width * width + 2.0 * width * encoder.intermediate_size


def _blocks(encoder: EncoderSettings, *, read: float = 1, asked: float | None = None) -> float:
    """Weights met for each source token that is read so often, the top being asked for at some share of them."""
    past_attention = _block(encoder) - 2 * encoder.hidden_size**2
    skipped = 0.0 if asked is None else (read - asked) * past_attention
    return read * encoder.num_hidden_layers * _block(encoder) - skipped
