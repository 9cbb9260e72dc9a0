"""How fast training is, against Hugging Face's models of the same size on the same text."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks import ours, peers
from benchmarks.alternating import Side, alternate
from benchmarks.peers import SENTENCES, Loop
from benchmarks.text import LENGTH
from lightning_modules.data.tokens import Tokens

DROPOUT = 0.1  # the peers' default, on both sides


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    against: str
    target: float
    ours: Callable[[], Side]
    theirs: Callable[[], Side]


def rows(english: Tokens, pairs: Tokens) -> Iterator[Row]:
    """Every pair of sides, built when it is asked for."""
    blocks = SENTENCES * LENGTH
    a_batch = round(float(english.train.lengths.mean()) * SENTENCES)

    def bert(layers: int, width: int, loop: Loop, *, packed: bool, **more: float) -> Callable[[], Side]:
        shape: dict[str, Any] = {"layers": layers, "width": width, "dropout": DROPOUT} | more
        return lambda: peers.masked_lm(english.train, english.tokenizer, loop=loop, packed=packed, **shape)

    def us(kind: str, layers: int, width: int, tokens: Tokens, size: int, *, packed: bool) -> Callable[[], Side]:
        run = ours.settings(
            kind, layers=layers, width=width, tokens_per_step=size, dropout=DROPOUT, precision="bf16-mixed"
        )
        return lambda: ours.training(run, tokens, packed=packed)

    loops: dict[Loop, dict[str, float]] = {
        "default": {"6x256": 4, "4x128": 6, "sentences": 6},
        "best": {"6x256": 2.3, "4x128": 3, "sentences": 2.5},
    }
    for loop, targets in loops.items():
        for layers, width in ((6, 256), (4, 128)):
            yield Row(
                f"masked LM, packed, {layers} x {width}",
                f"BertForMaskedLM, {loop}",
                targets[f"{layers}x{width}"],
                us("masked_lm", layers, width, english, blocks, packed=True),
                bert(layers, width, loop, packed=True),
            )
        yield Row(
            "masked LM, sentences, 6 x 256",
            f"BertForMaskedLM, {loop}",
            targets["sentences"],
            us("masked_lm", 6, 256, english, a_batch, packed=False),
            bert(6, 256, loop, packed=False),
        )
    shape: dict[str, Any] = {"layers": 6, "width": 256, "dropout": DROPOUT, "loop": "best"}
    causal = us("causal_lm", 6, 256, english, blocks, packed=True)
    yield Row(
        "causal LM, packed, 6 x 256",
        "GPT2LMHeadModel, best",
        2,
        causal,
        lambda: peers.causal_lm(english.train, **shape),
    )
    # The same models without what ours do not have either.
    plain = {"attention_dropout": 0.0}
    for loop, targets in loops.items():
        yield Row(
            "masked LM, packed, 6 x 256",
            f"BertForMaskedLM, {loop}, attention weights not dropped out",
            targets["6x256"],
            us("masked_lm", 6, 256, english, blocks, packed=True),
            bert(6, 256, loop, packed=True, **plain),
        )
    yield Row(
        "causal LM, packed, 6 x 256",
        "GPT2LMHeadModel, best, attention weights not dropped out",
        2,
        causal,
        lambda: peers.causal_lm(english.train, **shape, **plain),
    )
    a_batch = round(float(pairs.train.lengths.mean()) * SENTENCES)
    yield Row(
        "translation, sentences, 6 x 256 + decoder of 6",
        "MarianMTModel, best",
        2,
        us("translation", 6, 256, pairs, a_batch, packed=False),
        lambda: peers.translation(pairs.train, **shape),
    )


def measure(row: Row, *, rounds: int, seconds: float) -> dict[str, Any]:
    """The row with its numbers: real source tokens a second of either side, and their ratio."""
    sides = row.ours(), row.theirs()
    rates = alternate(*sides, rounds=rounds, seconds=seconds)
    return {
        "what": row.what,
        "against": row.against,
        "unit": "tokens/s",
        "target": row.target,
        **rates.summary(),
    }
