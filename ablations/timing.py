"""How fast this machine trains: a few steps of each objective at some widths, on made-up text."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from lightning_modules.allocator import keep_freed_memory
from lightning_modules.bare_loop import bare_step
from lightning_modules.config import RunSettings
from lightning_modules.data.tokens import Split, Tokens
from lightning_modules.operations import operations_per_token
from lightning_modules.vocabulary import FIRST_WORD_ID

OBJECTIVES = ("masked_lm", "causal_lm", "translation")
WIDTHS = (64, 128, 256)
PRECISIONS = ("32-true", "bf16-mixed")
VOCABULARY, LENGTH, TOKENS_PER_STEP, TIMED_STEPS = 4096, 64, 4096, 2


def reference_rates(threads: int) -> Iterator[tuple[str, str, int, float]]:
    """Objective, precision, width and useful operations a second of a run with so many threads.

    One step to warm up and two that count; about a second each on a CPU.
    """
    keep_freed_memory()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        text = made_up_text()
        for precision in PRECISIONS:
            for objective in OBJECTIVES:
                for width in WIDTHS:
                    yield objective, precision, width, _rate(_run(objective, precision, width), text)
    finally:
        torch.set_num_threads(before)


def made_up_text() -> Tokens:
    """Sentences of 6 to 30 ids, and as many translations of the same lengths."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(6, 31, size=2 * TOKENS_PER_STEP * (TIMED_STEPS + 1) // 6)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.integers(FIRST_WORD_ID, VOCABULARY, size=offsets[-1]).astype(np.uint16)
    split = Split(ids, offsets, np.arange(len(lengths), dtype=np.int32), ids, offsets)
    counts = np.bincount(ids, minlength=VOCABULARY)
    return Tokens(
        folder=Path(),
        address="",
        report={},
        vocab_size=VOCABULARY,
        target_vocab_size=VOCABULARY,
        train=split,
        validation=split,
        test=None,
        source_counts_V=counts,
        target_counts_V=counts,
    )


def _run(objective: str, precision: str, width: int) -> RunSettings:
    decoder = {"decoder": {"num_hidden_layers": 2}} if objective == "translation" else {}
    files = {"train": "made up", "validation": "made up", "target": "made up"}
    return RunSettings.model_validate(
        {
            "data": {"kind": "files", "vocab_size": VOCABULARY, "max_length": LENGTH} | files,
            "encoder": {"hidden_size": width, "dropout": 0},
            "objective": {"kind": objective} | decoder,
            "training": {
                "max_steps": TIMED_STEPS + 1,
                "tokens_per_step": TOKENS_PER_STEP,
                "precision": precision,
            },
            "seed": 0,
        }
    )


def _rate(run: RunSettings, text: Tokens) -> float:
    step = bare_step(run, text, device="cuda" if torch.cuda.is_available() else "cpu")
    step()
    start = time.perf_counter()
    tokens = sum(step() for _ in range(TIMED_STEPS))
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return tokens * operations_per_token(run) / (time.perf_counter() - start)
