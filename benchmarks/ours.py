"""Our side of a training benchmark: the module and batches of a run, in a bare loop."""

from dataclasses import replace
from functools import partial

import torch

from benchmarks.text import LENGTH, VOCABULARY, blocks
from benchmarks.timing import Side
from lightning_modules.config import RunSettings
from lightning_modules.data.token_store import Tokens
from lightning_modules.model.numerics import wait
from lightning_modules.training.fit import bare_step

STEPS = 100_000  # more than any benchmark does


def settings(
    kind: str,
    *,
    layers: int,
    width: int,
    tokens_per_step: int,
    dropout: float,
    precision: str,
    steps: int = STEPS,
    max_length: int = LENGTH,
    compiled: bool = False,
) -> RunSettings:
    """Return the settings of a run on the benchmark's text. Its data settings only decide how large the
    model's tables are."""
    objective = {"kind": kind} | ({"decoder": {"num_hidden_layers": layers}} if kind == "translation" else {})
    return RunSettings.model_validate(
        {
            "data": {
                "kind": "files",
                "train": "train",
                "validation": "validation",
                "target": "target",
                "vocab_size": VOCABULARY,
                "max_length": max_length,
            },
            "encoder": {
                "num_hidden_layers": layers,
                "hidden_size": width,
                "num_attention_heads": width // 64,
                "dropout": dropout,
            },
            "objective": objective,
            "training": {
                "max_steps": steps,
                "tokens_per_step": tokens_per_step,
                "learning_rate": 5e-4,
                "precision": precision,
                "compile": compiled,
                "validate_every": steps,
            },
            "seed": 0,
        }
    )


def training(run: RunSettings, tokens: Tokens, *, packed: bool, device: str = "cpu") -> Side:
    """Return the steps of a run as a side that counts real source tokens; if `packed`, on full blocks of the
    text."""
    if packed:
        tokens = replace(tokens, train=blocks(tokens.train))
    return Side(said(run), bare_step(run, tokens, device=device), partial(wait, torch.device(device)))


def said(run: RunSettings) -> str:
    """Return the settings of a run in words."""
    training, dropout = run.training, run.encoder.dropout
    compiled = ", torch.compile" if training.compile else ""
    return (
        f"{training.precision}{compiled}, fused AdamW, clipping at {training.gradient_clip_val:g}, "
        f"dropout {dropout:g} (attention 0), {training.tokens_per_step:,} tokens"
    )
