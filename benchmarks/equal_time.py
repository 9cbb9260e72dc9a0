"""Validation loss of masked LM after equal wall time: ours, and BertForMaskedLM in its best loop.

Both read the same full blocks. Both warm up over the first twentieth of the time, and decay to 0 at its end.
Both are scored in fp32 on the same hidden tokens of the same text. Each trains with its best learning rate of
the same three, found with a seed that is used for nothing else. Everything else is each side's default, so the
comparison is not about speed alone: initial weights (theirs have a standard deviation of 0.02 at every width),
betas and decay of AdamW, and dropout, which the peer also has on attention weights.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from transformers import BertForMaskedLM

from benchmarks import ours, peers
from benchmarks.text import blocks
from benchmarks.timing import FASTER, autocast, precision_in_words
from lightning_modules.config import RunSettings
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.model.heads import IGNORED
from lightning_modules.objectives import build
from lightning_modules.objectives.objective import Objective
from lightning_modules.training.data_module import TOKENS_AT_ONCE, RunData, evaluate_parts, evaluation_batches

SHAPE: dict[str, Any] = {"layers": 6, "width": 256, "dropout": 0.1}
LEARNING_RATES = (2.5e-4, 5e-4, 1e-3)
TUNING_SEED, SEEDS = 100, (0, 1, 2)
TUNING_SHARE = 1 / 3
"""Share of the time for each learning rate that is tried."""
WARM_UP = 0.05


@dataclass(frozen=True)
class Learner:
    """Model that can be trained step by step at a given learning rate, and scored."""

    step: Callable[[float], None]
    loss: Callable[[], float]
    """Function that returns the validation loss in nats per hidden token."""


def measure(tokens: Tokens, *, seconds: float) -> dict[str, Any]:
    """Return the mean losses of three seeds, and the difference (theirs minus ours) with Welch's 95%
    interval."""
    tokens = replace(tokens, train=blocks(tokens.train), validation=blocks(tokens.validation))
    sides = {"ours": our_learner, "theirs": their_learner}
    tried: dict[str, dict[float, float]] = {name: {} for name in sides}
    for rate in LEARNING_RATES:
        for name, make in sides.items():
            tried[name][rate] = trained(make(tokens, TUNING_SEED), rate, seconds=TUNING_SHARE * seconds)
    losses: dict[str, list[float]] = {name: [] for name in sides}
    for seed in SEEDS:
        for name, make in sides.items():
            best = min(tried[name], key=tried[name].__getitem__)
            losses[name].append(trained(make(tokens, seed), best, seconds=seconds))
    low, high = welch_interval(losses["theirs"], losses["ours"])
    return {
        "what": f"masked LM, packed, 6 x 256: validation loss after {seconds:g} s",
        "against": "BertForMaskedLM, best",
        "our_settings": ours.said(_our_run()),
        "their_settings": f"{precision_in_words()}, SDPA, fused AdamW, clipping at 1, "
        "dropout 0.1 (attention 0.1), 64 rows",
        "unit": "nats",
        "ours": float(np.mean(losses["ours"])),
        "theirs": float(np.mean(losses["theirs"])),
        "difference": float(np.mean(losses["theirs"]) - np.mean(losses["ours"])),
        "low": low,
        "high": high,
        "losses": losses,
        "losses_by_learning_rate": tried,
        "rounds": len(SEEDS),
    }


def welch_interval(theirs: list[float], ours: list[float]) -> tuple[float, float]:
    """Return the 95% interval of the difference of the means. The seeds of the two sides share nothing, so
    they are not paired."""
    interval = stats.ttest_ind(theirs, ours, equal_var=False).confidence_interval(0.95)
    return float(interval.low), float(interval.high)


def trained(learner: Learner, learning_rate: float, *, seconds: float) -> float:
    """Return the validation loss after training for `seconds`."""
    start = time.perf_counter()
    while (share := (time.perf_counter() - start) / seconds) < 1:
        learner.step(learning_rate * min(share / WARM_UP, (1 - share) / (1 - WARM_UP)))
    return learner.loss()


def our_learner(tokens: Tokens, seed: int) -> Learner:
    """Return a learner with the module, batches and optimiser of a run."""
    run = _our_run().model_copy(update={"seed": seed})
    torch.manual_seed(seed)
    objective = build(run, tokens).train()
    batches = _batches(RunData(objective, tokens))
    optimizers: Any = objective.configure_optimizers()
    optimizer = optimizers["optimizer"]

    def step(learning_rate: float) -> None:
        with autocast():
            loss = objective.training_step(next(batches), 0)["loss"]
        loss.backward()
        objective.configure_gradient_clipping(optimizer)
        _update(optimizer, learning_rate)

    def loss() -> float:
        total, predictions = evaluate_parts(objective, tokens.validation)["loss"]
        return float(total / predictions)

    return Learner(step, loss)


def _our_run() -> RunSettings:
    return ours.settings("masked_lm", tokens_per_step=8192, precision=FASTER, **SHAPE)


def their_learner(tokens: Tokens, seed: int) -> Learner:
    """Return a learner of BertForMaskedLM with its own initial weights and collator, autocast and fused
    AdamW."""
    torch.manual_seed(seed)
    model = peers.bert(**SHAPE).train()
    batches = peers.masked_batches(tokens.train, tokens.tokenizer, grouped=False, seed=seed)
    optimizer = peers.optimizer(model)
    view = build(ours.settings("masked_lm", tokens_per_step=8192, precision="32-true", **SHAPE), tokens)

    def step(learning_rate: float) -> None:
        batch, _ = next(batches)
        with autocast():
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        _update(optimizer, learning_rate)

    return Learner(step, lambda: validation_loss(model, view, tokens.validation))


@torch.no_grad()
def validation_loss(model: BertForMaskedLM, view: Objective, split: Split) -> float:
    """Return the loss in nats per hidden token of full blocks. The hidden tokens are those of our evaluation,
    from the batches of `view`."""
    model.eval()
    total = predictions = 0.0
    for batch in evaluation_batches(view, split, tokens_per_step=TOKENS_AT_ONCE):
        asked = batch["label_N"] != IGNORED
        logits_ND = model(input_ids=batch["tokens_BT"]).logits.flatten(0, 1)[batch["predict_N"][asked]]
        total += float(F.cross_entropy(logits_ND, batch["label_N"][asked], reduction="sum"))
        predictions += int(asked.sum())
    return total / predictions


def _batches(data: RunData) -> Iterator[dict[str, torch.Tensor]]:
    for step in range(len(data.plan)):
        yield data.batch(step)


def _update(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
