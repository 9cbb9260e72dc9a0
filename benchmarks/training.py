"""Speed of training, against Hugging Face's models of the same size on the same text, and of corrupting
batches, against Hugging Face's collator on the same blocks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import DataCollatorForLanguageModeling

from benchmarks import ours, peers
from benchmarks.peers import SENTENCES, Loop, fast_tokenizer
from benchmarks.text import LENGTH, VOCABULARY, blocks
from benchmarks.timing import CPU, FASTER, TYPE_OF_PRODUCTS, Side, alternate, floor
from lightning_modules.config import MaskingSettings, RunSettings
from lightning_modules.data.packing import pack
from lightning_modules.data.sequences import single_sentences
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.objectives.masking import mask_tokens

DROPOUT = 0.1  # the peers' default, on both sides


@dataclass(frozen=True)
class Row:
    """Row of the table: two sides and a target for their ratio."""

    what: str
    against: str
    target: float
    run: RunSettings
    ours: Callable[[], Side]
    theirs: Callable[[], Side]


def rows(english: Tokens, pairs: Tokens) -> Iterator[Row]:
    """Yield every row; its sides are built when they are called."""
    yield from masked_lm(english)
    yield causal_lm(english)
    yield Row(
        "translation, sentences, 6 x 256 + decoder of 6",
        "MarianMTModel, best",
        2,
        *our_run("translation", 6, 256, pairs, packed=False),
        lambda: peers.translation(pairs.train, layers=6, width=256, dropout=DROPOUT, loop="best"),
    )


def masked_lm(tokens: Tokens) -> Iterator[Row]:
    """Yield rows against both loops: packed in two sizes, and sentences."""
    sides: dict[tuple[bool, int, int], dict[Loop, float]] = {
        (True, 6, 256): {"default": 4, "best": 2.3},
        (True, 4, 128): {"default": 6, "best": 3},
        (False, 6, 256): {"default": 6, "best": 2.5},
    }
    for (packed, layers, width), targets in sides.items():
        for loop, target in targets.items():
            peer = partial(peers.masked_lm, layers=layers, width=width, dropout=DROPOUT, packed=packed)
            yield Row(
                f"masked LM, {'packed' if packed else 'sentences'}, {layers} x {width}",
                f"BertForMaskedLM, {loop}",
                target,
                *our_run("masked_lm", layers, width, tokens, packed=packed),
                partial(peer, tokens.train, tokens.tokenizer, loop=loop),
            )


def causal_lm(tokens: Tokens) -> Row:
    """Return the row against the best loop."""
    return Row(
        "causal LM, packed, 6 x 256",
        "GPT2LMHeadModel, best",
        2,
        *our_run("causal_lm", 6, 256, tokens, packed=True),
        partial(peers.causal_lm, tokens.train, layers=6, width=256, dropout=DROPOUT, loop="best"),
    )


def our_run(
    kind: str, layers: int, width: int, tokens: Tokens, *, packed: bool
) -> tuple[RunSettings, Callable[[], Side]]:
    """Return a run and its side: packed batches are full blocks; others have the mean number of tokens of as
    many sentences."""
    a_batch = SENTENCES * LENGTH if packed else round(float(tokens.train.lengths.mean()) * SENTENCES)
    run = ours.settings(
        kind, layers=layers, width=width, tokens_per_step=a_batch, dropout=DROPOUT, precision=FASTER
    )
    return run, partial(ours.training, run, tokens, packed=packed)


def measure(
    row: Row,
    *,
    rounds: int,
    seconds: float,
    warm_up: int = 3,
    device: torch.device = CPU,
    dtype: torch.dtype = TYPE_OF_PRODUCTS,
) -> dict[str, Any]:
    """Return the row with its numbers: real source tokens per second of both sides, their ratio, the time of
    our step, and its floor.

    Args:
        warm_up: steps of each side before it is timed.
        device, dtype: device and type of the products from which the floor is computed.
    """
    sides = row.ours(), row.theirs()
    told = alternate(*sides, rounds=rounds, seconds=seconds, warm_up=warm_up).summary()
    return {
        "what": row.what,
        "against": row.against,
        "unit": "tokens/s",
        "target": row.target,
        **told,
        "our_step_seconds": row.run.training.tokens_per_step / told["ours"],
        "floor": floor(row.run, device, dtype),
    }


def corruption(tokens: Tokens, *, rounds: int) -> dict[str, Any]:
    """Return the number of batches of 64 blocks that each side corrupts per second."""
    split = blocks(tokens.train)
    sides = (
        Side("mask_tokens, 15%, 80/10/10", _our_corruption(split)),
        Side("15%, 80/10/10", _their_corruption(tokens, split.ids)),
    )
    rates = alternate(*sides, rounds=rounds, seconds=1)
    return {
        "what": "corruption of 64 blocks, keyed by (seed, epoch, sentence)",
        "against": "DataCollatorForLanguageModeling",
        "unit": "batches/s",
        "target": 2.0,
        **rates.summary(),
    }


def _our_corruption(split: Split) -> Callable[[], float]:
    source = pack(split, single_sentences(split, np.arange(SENTENCES)), row_length=LENGTH).source

    def corrupt() -> float:
        mask_tokens(source, MaskingSettings(), vocab_size=VOCABULARY, seed=0)
        return 1.0

    return corrupt


def _their_corruption(tokens: Tokens, ids: Any) -> Callable[[], float]:
    collator = DataCollatorForLanguageModeling(fast_tokenizer(tokens.tokenizer), mlm_probability=0.15)
    examples = [{"input_ids": ids[i * LENGTH : (i + 1) * LENGTH].astype(np.int64)} for i in range(SENTENCES)]

    def step() -> float:
        collator(examples)
        return 1.0

    return step
