"""Peers: Hugging Face's models of the same size, in the loops with which people train them.

The loop `default` is fp32, as the example scripts run it. The loop `best` is bf16 autocast if the processor
has such products, with sentences of similar length in one batch. In both, attention is torch's SDPA and AdamW
is fused, as Trainer has them by default. BERT and GPT-2 have dropout of attention weights by default; ours
have none.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
)

from benchmarks.text import LENGTH, VOCABULARY, blocks
from benchmarks.timing import Side, autocast, precision_in_words
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import END, PAD, SPECIAL_TOKENS, START
from lightning_modules.errors import DataError
from lightning_modules.model.numerics import wait

Loop = Literal["default", "best"]
SENTENCES = 64
"""Sentences, or blocks, in a batch."""
MEGABATCH = 50
"""Number of batches within which grouped sentences are sorted by length."""


def masked_lm(
    split: Split,
    tokenizer: Tokenizer,
    *,
    layers: int,
    width: int,
    dropout: float,
    attention_dropout: float | None = None,
    loop: Loop,
    packed: bool,
) -> Side:
    """Return BertForMaskedLM with DataCollatorForLanguageModeling as a side that counts real tokens.

    Args:
        attention_dropout: dropout of attention weights; by default the same as `dropout`, as in the model's
            configuration.
    """
    attention_dropout = dropout if attention_dropout is None else attention_dropout
    model = bert(layers=layers, width=width, dropout=dropout, attention_dropout=attention_dropout)
    grouped = loop == "best" and not packed
    batches = masked_batches(blocks(split) if packed else split, tokenizer, grouped=grouped)
    said = _said(dropout, attention_dropout, "" if packed else "padded", "grouped by length" if grouped else "")
    return training(model, batches, loop=loop, said=said)


def bert(
    *,
    layers: int,
    width: int,
    dropout: float,
    attention_dropout: float | None = None,
    max_length: int = LENGTH,
) -> BertForMaskedLM:
    """Return a model of the benchmark's sizes with the library's initial weights. `attention_dropout` is as
    in `masked_lm`."""
    return BertForMaskedLM(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=width // 64,
            intermediate_size=4 * width,
            max_position_embeddings=max_length,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout if attention_dropout is None else attention_dropout,
        )
    )


def masked_batches(
    split: Split,
    tokenizer: Tokenizer,
    *,
    grouped: bool,
    seed: int = 0,
    rows: int = SENTENCES,
    multiple: int | None = None,
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the inputs of BertForMaskedLM and the number of their real tokens.

    Args:
        multiple: rows are padded to a multiple of this length.
    """
    collator = DataCollatorForLanguageModeling(
        fast_tokenizer(tokenizer), mlm_probability=0.15, pad_to_multiple_of=multiple
    )
    for batch in _rows(split, grouped=grouped, seed=seed, rows=rows):
        yield dict(collator([{"input_ids": ids} for ids in batch])), sum(map(len, batch))


def causal_lm(
    split: Split, *, layers: int, width: int, dropout: float, attention_dropout: float | None = None, loop: Loop
) -> Side:
    """Return GPT2LMHeadModel on full blocks as a side that counts real tokens. `attention_dropout` is as in
    `masked_lm`."""
    attention_dropout = dropout if attention_dropout is None else attention_dropout
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=width,
        n_layer=layers,
        n_head=width // 64,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=attention_dropout,
        bos_token_id=START,
        eos_token_id=END,
    )

    def batches() -> Iterator[tuple[dict[str, Any], int]]:
        for batch in _rows(blocks(split), grouped=False):
            ids = torch.from_numpy(np.stack(batch))
            yield {"input_ids": ids, "labels": ids}, ids.numel()

    return training(GPT2LMHeadModel(config), batches(), loop=loop, said=_said(dropout, attention_dropout))


def translation(split: Split, *, layers: int, width: int, dropout: float, loop: Loop) -> Side:
    """Return MarianMTModel on sentence pairs as a side that counts real source tokens. It has no dropout of
    attention weights, its default."""
    config = MarianConfig(
        vocab_size=VOCABULARY,
        decoder_vocab_size=VOCABULARY,
        share_encoder_decoder_embeddings=False,
        tie_word_embeddings=True,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=width // 64,
        decoder_attention_heads=width // 64,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        max_position_embeddings=LENGTH,
        dropout=dropout,
        attention_dropout=0.0,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=START,
        forced_eos_token_id=END,
    )

    def batches() -> Iterator[tuple[dict[str, Any], int]]:
        for order in _orders(split.lengths, grouped=loop == "best"):
            source = [split.sentence(i).astype(np.int64) for i in order]
            target = [split.target_sentence(i).astype(np.int64) for i in order]
            ids = _padded(source)
            labels = _padded([t[1:] for t in target], value=-100)
            yield (
                {
                    "input_ids": ids,
                    "attention_mask": (ids != PAD).long(),
                    "decoder_input_ids": _padded([t[:-1] for t in target]),
                    "labels": labels,
                },
                sum(map(len, source)),
            )

    said = _said(dropout, 0.0, "padded", "grouped by length" if loop == "best" else "")
    return training(MarianMTModel(config), batches(), loop=loop, said=said)


def fast_tokenizer(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """Return our tokenizer with the names of special tokens that the collator needs."""
    pad, unknown, start, end, mask = SPECIAL_TOKENS
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        unk_token=unknown,
        cls_token=start,
        sep_token=end,
        mask_token=mask,
    )


def _said(dropout: float, attention_dropout: float, *more: str) -> str:
    """Return the settings in words."""
    batch = " ".join(("rows", *(word for word in more if word)))
    return f"dropout {dropout:g} (attention {attention_dropout:g}), {SENTENCES} {batch}"


def training(
    model: torch.nn.Module,
    batches: Iterator[tuple[dict[str, Any], int]],
    *,
    loop: Loop,
    said: str,
    device: str = "cpu",
) -> Side:
    """Return steps with AdamW, a linear schedule and clipping at 1, as Trainer has by default."""
    model.train()
    adamw = optimizer(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(adamw, lambda step: max(0.0, 1 - step / 100_000))

    def step() -> float:
        batch, real_tokens = next(batches)
        batch = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        with autocast(enabled=loop == "best", device=device):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        schedule.step()
        return float(real_tokens)

    numbers = precision_in_words(best=loop == "best", device=device)
    settings = f"{numbers}, SDPA, fused AdamW, clipping at 1, {said}"
    return Side(settings, step, partial(wait, torch.device(device)))


def optimizer(model: torch.nn.Module) -> torch.optim.AdamW:
    """Return AdamW as Trainer makes it by default, fused since transformers 5 (`optim` of
    TrainingArguments)."""
    return torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0, fused=True)


def _rows(split: Split, *, grouped: bool, seed: int = 0, rows: int = SENTENCES) -> Iterator[list[np.ndarray]]:
    for order in _orders(split.lengths, grouped=grouped, seed=seed, rows=rows):
        yield [split.sentence(i).astype(np.int64) for i in order]


def _orders(length_S: np.ndarray, *, grouped: bool, seed: int = 0, rows: int = SENTENCES) -> Iterator[np.ndarray]:
    """Yield endless batches of sentence numbers in random order; with `grouped`, each batch has sentences of
    similar length.

    Raises:
        DataError: there are fewer sentences than a batch has.
    """
    rng = np.random.default_rng(seed)
    size = rows * min(MEGABATCH, len(length_S) // rows)
    if not size:
        raise DataError(f"a batch of the peer has {rows} rows, but the text only {len(length_S)}; give more text.")
    while True:
        order = rng.permutation(len(length_S))
        for start in range(0, len(order) - size + 1, size):
            part = order[start : start + size]
            if grouped:
                part = part[np.argsort(-length_S[part], kind="stable")]
            batches = part.reshape(-1, rows)
            yield from (batches[rng.permutation(len(batches))] if grouped else batches)


def _padded(rows: list[np.ndarray], *, value: int = PAD) -> torch.Tensor:
    longest = max(map(len, rows))
    grid = np.full((len(rows), longest), value, dtype=np.int64)
    for row, ids in zip(grid, rows, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(grid)
