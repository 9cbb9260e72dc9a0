"""A tiny spec for plans."""

SPEC = {
    "name": "it",
    "version": 1,
    "data": {"kind": "language", "train": 300, "validation": 100, "test": 10, "vocab_size": 256},
    "encoder": {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2},
    "objective": {"kind": "masked_lm"},
    "training": {"max_steps": 4, "tokens_per_step": 128},
    "arms": {"a": {}, "b": {"training": {"max_steps": 2}}},
    "seeds": [0, 1],
}
