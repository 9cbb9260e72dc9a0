"""The grid of tests on clusters: two arms of a tiny encoder, and its table."""

import pandas as pd

SPEC = {
    "name": "grid",
    "version": 1,
    "data": {"kind": "language", "train": 600, "validation": 200, "test": 10, "vocab_size": 300},
    "encoder": {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "dropout": 0},
    "training": {"max_steps": 500, "tokens_per_step": 128, "validate_every": 500},
    "arms": {"mlm": {"objective": {"kind": "masked_lm"}}, "clm": {"objective": {"kind": "causal_lm"}}},
    "seeds": [0],
    "measures": ["validation"],
}


def table(out):
    """Return the table of the grid, its rows in one order."""
    rows = pd.read_parquet(out / "grid" / "results.parquet")
    keys = ["arm", "seed", "measure", "metric", "group", "step"]
    return rows.drop(columns="left_out", errors="ignore").sort_values(keys, ignore_index=True)
