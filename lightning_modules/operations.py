"""How many useful operations training takes. No torch."""

from lightning_modules.config import RunSettings


def operations_per_token(run: RunSettings) -> float:
    """Floating-point operations of training for each real source token.

    Six for each weight of a matrix that a token meets: a multiply and an add forward, twice that backward. The
    head, and what of the last block is no key or value, count at predicted positions only. Attention's products
    are left out (they are small at these lengths), and a translation is taken to be as long as its source. Nothing
    that only a slow implementation would do is counted.
    """
    encoder, width = run.encoder, run.encoder.hidden_size
    block = 4 * width * width + 2 * width * encoder.intermediate_size
    weights = float(encoder.num_hidden_layers * block)
    head = width * (width + run.data.vocab_size)
    match run.objective.kind:
        case "masked_lm":
            ratio = run.objective.masking.ratio
            weights += ratio * head - (1 - ratio) * (block - 2 * width * width)
        case "causal_lm":
            weights += head
        case "translation":
            weights += run.objective.decoder.num_hidden_layers * (block + 4 * width * width)
            weights += width * run.data.vocab_size
    return 6 * weights
