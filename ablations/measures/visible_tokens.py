"""First guesses of masked LM at tokens that it sees, beside its guesses where the same tokens are hidden.

A head is only trained at tokens that are to be predicted. What it says at others is how it was taught to think of
any visible token (Devlin et al. 2019, appendix A.1, on why 10% are kept). But a model that ignores the token at
its place also guesses many right, from the context alone. So the floor of each number is the same number from the
guesses of the same model where these tokens are shown as [MASK]. A model that was never trained on [MASK] has no
good guess there, and a floor that is too low.

Letters: N tokens, V vocabulary, D width.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lightning_modules.data.token_store import Split
from lightning_modules.model.heads import IGNORED
from lightning_modules.objectives.masked_lm import MaskedLM
from lightning_modules.objectives.objective import Batch
from lightning_modules.randomness import derive, uniforms
from lightning_modules.training.data_module import TOKENS_AT_ONCE, evaluation_batches
from lightning_modules.vocabulary import FIRST_WORD_ID, MASK

ENOUGH = 20_000
"""Clean tokens that are asked for; the text is read until then."""

TURNS = 6
"""Turns in which clean tokens are hidden for their floor, each in one: a turn hides about as many tokens as
evaluation does, 1/6 of 85%."""

ROWS_AT_ONCE = 2048
"""Tokens whose scores over the vocabulary are in memory at once."""


def observed(objective: MaskedLM, split: Split) -> Iterator[dict[str, Any]]:
    """Yield rows, each the share of some visible tokens at which the first guess is a certain token.

    The text is that of evaluation: 15% are to be predicted, 80/10/10. `observed_clean`: of the tokens that are
    not to be predicted, all shown as they are, those guessed to be what is shown. `observed_replaced`: the same of
    tokens that are shown as a random other one. `recovered_replaced`: of the latter, those guessed to be the
    original.

    The floor is the same share, of the same tokens, from the guesses where they are shown as [MASK]: the guess
    from context. Replaced tokens are hidden all at once. Clean ones are hidden in turns, and tokens that are to be
    predicted are then shown as they are, so that about as many tokens are corrupted as before.
    """
    objective.eval()
    names = ("shown", "original", "guess", "hidden_guess")
    by_kind: dict[str, dict[str, list[Tensor]]] = {kind: {name: [] for name in names} for kind in KINDS}
    for number, cpu_batch in enumerate(evaluation_batches(objective, split, tokens_per_step=TOKENS_AT_ONCE)):
        batch = {name: tensor.to(objective.device) for name, tensor in cpu_batch.items()}
        shown_N = batch["tokens_BT"].flatten()
        original_N = _originals(batch)
        is_asked_N = torch.zeros_like(shown_N, dtype=torch.bool)
        is_asked_N[batch["predict_N"][batch["label_N"] != IGNORED]] = True
        clean_N = ((shown_N >= FIRST_WORD_ID) & ~is_asked_N).nonzero().flatten()
        replaced_N = ((shown_N != MASK) & (shown_N != original_N)).nonzero().flatten()
        both_N = _guesses(objective, batch, torch.cat([clean_N, replaced_N]))
        clean_guess_N, replaced_guess_N = both_N.split([len(clean_N), len(replaced_N)])
        for kind, place_N, guess_N, hidden_guess_N in (
            ("clean", clean_N, clean_guess_N, _guesses_in_turns(objective, batch, clean_N, number)),
            (
                "replaced",
                replaced_N,
                replaced_guess_N,
                _guesses(objective, _hiding(batch, shown_N, replaced_N), replaced_N),
            ),
        ):
            arrays = (shown_N[place_N], original_N[place_N], guess_N, hidden_guess_N)
            for name, array_N in zip(names, arrays, strict=True):
                by_kind[kind][name].append(array_N.cpu())
        if sum(map(len, by_kind["clean"]["shown"])) >= ENOUGH:
            break
    for metric, (kind, right) in METRICS.items():
        pooled = {name: torch.cat(parts) for name, parts in by_kind[kind].items()}
        if count := len(pooled[right]):
            value, floor = (
                (pooled[guess] == pooled[right]).double().mean().item() for guess in ("guess", "hidden_guess")
            )
            yield {"metric": metric, "value": value, "floor": floor, "unit": "", "n": count}


KINDS = ("clean", "replaced")
METRICS = {
    "observed_clean": ("clean", "shown"),
    "observed_replaced": ("replaced", "shown"),
    "recovered_replaced": ("replaced", "original"),
}
"""Of each metric the tokens, and what the guess is compared with."""


def _originals(batch: Batch) -> Tensor:
    """Return the tokens of the flattened rows as they are in the text."""
    asked_N = batch["label_N"] != IGNORED
    original_N = batch["tokens_BT"].flatten().clone()
    original_N[batch["predict_N"][asked_N]] = batch["label_N"][asked_N]
    return original_N


def _guesses_in_turns(objective: MaskedLM, batch: Batch, place_N: Tensor, number: int) -> Tensor:
    """Return the guess at each place of the text as it is, with [MASK] there and at the other places of its
    turn.

    Args:
        number: of the batch; the turns depend on it.
    """
    original_N = _originals(batch)
    draw_N = uniforms(derive(0, "turns", number), torch.arange(len(place_N)).numpy())
    turn_N = torch.from_numpy((draw_N * TURNS).astype("int64")).to(place_N.device)
    guess_N = torch.empty_like(place_N)
    for turn in range(TURNS):
        now_N = place_N[turn_N == turn]
        guess_N[turn_N == turn] = _guesses(objective, _hiding(batch, original_N, now_N), now_N)
    return guess_N


def _hiding(batch: Batch, shown_N: Tensor, place_N: Tensor) -> Batch:
    """Return a batch that shows these tokens, with [MASK] at the places."""
    hidden_N = shown_N.clone()
    hidden_N[place_N] = MASK
    return batch | {"tokens_BT": hidden_N.view_as(batch["tokens_BT"])}


@torch.no_grad()
def _guesses(objective: MaskedLM, batch: Batch, place_N: Tensor) -> Tensor:
    """Return the most probable token of text at each place."""
    if not len(place_N):
        return place_N
    top_ND = objective.encode_at(batch, place_N)
    embeddings_VD = objective.encoder.tokens.weight
    parts = []
    for some_ND in top_ND.split(ROWS_AT_ONCE):
        score_NV = objective.head(some_ND, embeddings_VD)
        score_NV[:, :FIRST_WORD_ID] = -torch.inf
        parts.append(score_NV.argmax(1))
    return torch.cat(parts)
