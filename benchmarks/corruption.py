"""Speed of corrupting batches, against Hugging Face's collator on the same blocks; and speed of shuffling a
text."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from transformers import DataCollatorForLanguageModeling

from benchmarks.alternating import Side, alternate
from benchmarks.peers import SENTENCES, fast_tokenizer
from benchmarks.text import LENGTH, VOCABULARY, blocks
from lightning_modules.config import MaskingSettings, TrainingSettings
from lightning_modules.data.token_store import Tokens
from lightning_modules.data.tokenizer import starts_word
from lightning_modules.data.word_order import reordered
from lightning_modules.objectives.masking import mask_tokens


def measure(tokens: Tokens, *, rounds: int) -> dict[str, Any]:
    """Return the number of batches of 64 blocks that each side corrupts per second."""
    split = blocks(tokens.train)
    sides = Side("mask_tokens, 15%, 80/10/10", _ours(split.ids)), Side("15%, 80/10/10", _theirs(tokens, split.ids))
    rates = alternate(*sides, rounds=rounds, seconds=1)
    return {
        "what": "corruption of 64 blocks, keyed by (seed, epoch, sentence)",
        "against": "DataCollatorForLanguageModeling",
        "unit": "batches/s",
        "target": 2.0,
        **rates.summary(),
    }


def word_orders(tokens: Tokens) -> Iterator[dict[str, Any]]:
    """Yield for each order the words per second at which the whole training text is reordered, its manifest
    included; timed once."""
    starts_V = starts_word(tokens.tokenizer)
    words = int(np.count_nonzero(starts_V[tokens.train.ids]))
    for kind in ("ngrams", "blocks", "corpus", "uniform"):
        order = TrainingSettings.model_validate({"word_order": kind}).word_order
        start = time.perf_counter()
        reordered(tokens.train, order, starts_V=starts_V, max_length=LENGTH, seed=0)
        yield {
            "what": f"words of {words:,} in order {kind}",
            "unit": "words/s",
            "ours": words / (time.perf_counter() - start),
            "target": 200_000,
            "rounds": 1,
        }


def _ours(ids: Any) -> Callable[[], float]:
    size = SENTENCES * LENGTH
    sentence_N = np.repeat(np.arange(SENTENCES), LENGTH)
    position_N = np.tile(np.arange(LENGTH), SENTENCES)
    epoch_N = np.zeros(size, np.int64)
    ids_N = ids[:size].astype(np.int64)

    def step() -> float:
        mask_tokens(
            ids_N,
            epoch_N=epoch_N,
            sentence_N=sentence_N,
            position_N=position_N,
            masking=MaskingSettings(),
            vocab_size=VOCABULARY,
            seed=0,
        )
        return 1.0

    return step


def _theirs(tokens: Tokens, ids: Any) -> Callable[[], float]:
    collator = DataCollatorForLanguageModeling(fast_tokenizer(tokens.tokenizer), mlm_probability=0.15)
    examples = [{"input_ids": ids[i * LENGTH : (i + 1) * LENGTH].astype(np.int64)} for i in range(SENTENCES)]

    def step() -> float:
        collator(examples)
        return 1.0

    return step
