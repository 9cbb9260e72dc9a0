"""First guesses of masked LM at tokens that it sees, beside its guesses where the same tokens are hidden.

A prediction head is only trained at tokens that are to be predicted. Its guess at another token shows how the
model learned to treat visible tokens (Devlin et al. 2019, appendix A.1, on why 10% are kept). But a model
that ignores the token at its place also guesses many right, from the context alone. The chance level
(`floor`) is therefore the same number when these tokens are shown to the same model as [MASK]. A model that
was never trained on [MASK] has no good guess there, and its floor is too low.

Letters: N tokens, V vocabulary, D width.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ablations.measures.jackknife import errors, means_left_out
from lightning_modules.data.tokenizer import FIRST_WORD_ID, MASK
from lightning_modules.model.heads import IGNORED
from lightning_modules.objectives.masked_lm import MaskedLM
from lightning_modules.objectives.objective import Batch
from lightning_modules.randomness import derive, uniforms

ENOUGH_CLEAN_TOKENS = 20_000
"""Number of clean tokens (visible and not to be predicted) after which no more batches are read."""

TURNS = 6
"""Number of turns in which clean tokens are hidden for the chance level. Each token is hidden in one turn. A
turn hides about as many tokens as evaluation does: 1/6 of 85%."""

ROWS_AT_ONCE = 2048
"""Number of tokens whose scores over the vocabulary are in memory at once."""


KINDS = ("clean", "replaced")
METRICS = {
    "observed_clean": ("clean", "shown"),
    "observed_replaced": ("replaced", "shown"),
    "recovered_replaced": ("replaced", "original"),
}
"""Tokens of each metric, and the token that the guess is compared with."""


class VisibleTokens:
    """Shares of visible tokens at which the first guess is the shown token, or the original token.

    The text is corrupted as in evaluation: 15% of the tokens are to be predicted, 80-10-10. A metric without
    tokens has no row.

    * `observed_clean`: share of the tokens that are not to be predicted, all shown as they are, at which the
      guess is the shown token.
    * `observed_replaced`: the same share among the tokens that are shown as a random other token.
    * `recovered_replaced`: share of these replaced tokens at which the guess is the original token.

    The chance level (`floor`) is the same share, of the same tokens, when they are shown as [MASK]: the guess
    from context. Replaced tokens are hidden all at once. Clean tokens are hidden in turns, in which the
    tokens that are to be predicted are shown as they are, so that a turn hides about as many tokens as training.
    """

    def __init__(self, objective: MaskedLM) -> None:
        self._objective, self._clean_tokens, self._rows = objective, 0, 0
        names = ("shown", "original", "guess", "hidden_guess", "row")
        self._by_kind: dict[str, dict[str, list[Tensor]]] = {kind: {name: [] for name in names} for kind in KINDS}

    def read(self, number: int, batch: Batch) -> None:
        """Add the tokens of an evaluation batch, unless there are enough.

        Args:
            number: number of the batch, on which the turns depend.
        """
        if self._clean_tokens >= ENOUGH_CLEAN_TOKENS:
            return
        objective = self._objective
        shown_N = batch["tokens_BT"].flatten()
        original_N = _originals(batch)
        is_asked_N = torch.zeros_like(shown_N, dtype=torch.bool)
        is_asked_N[batch["predict_N"][batch["label_N"] != IGNORED]] = True
        clean_N = ((shown_N >= FIRST_WORD_ID) & ~is_asked_N).nonzero().flatten()
        replaced_N = ((shown_N != MASK) & (shown_N != original_N)).nonzero().flatten()
        both_N = _guesses(objective, batch, torch.cat([clean_N, replaced_N]))
        clean_guess_N, replaced_guess_N = both_N.split([len(clean_N), len(replaced_N)])
        replaced_hidden_N = _guesses(objective, _hiding(batch, shown_N, replaced_N), replaced_N)
        clean_hidden_N = _guesses_in_turns(objective, batch, original_N, clean_N, number)
        for kind, place_N, guess_N, hidden_guess_N in (
            ("clean", clean_N, clean_guess_N, clean_hidden_N),
            ("replaced", replaced_N, replaced_guess_N, replaced_hidden_N),
        ):
            row_N = self._rows + place_N // batch["tokens_BT"].shape[1]
            arrays = (shown_N[place_N], original_N[place_N], guess_N, hidden_guess_N, row_N)
            for parts, array_N in zip(self._by_kind[kind].values(), arrays, strict=True):
                parts.append(array_N.cpu())
        self._clean_tokens += len(clean_N)
        self._rows += len(batch["tokens_BT"])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the metrics. Errors over the text are of blocks of rows of a batch, which hold whole
        sentences."""
        for metric, (kind, right) in METRICS.items():
            pooled = {name: torch.cat(parts) for name, parts in self._by_kind[kind].items()}
            if count := len(pooled[right]):
                is_right_N, is_right_hidden_N = (
                    (pooled[guess] == pooled[right]).double().numpy() for guess in ("guess", "hidden_guess")
                )
                yield {
                    "metric": metric,
                    "value": is_right_N.mean().item(),
                    "floor": is_right_hidden_N.mean().item(),
                    "unit": "",
                    "n": count,
                    **errors(means_left_out(is_right_N, pooled["row"].numpy()) or ()),
                }


def _originals(batch: Batch) -> Tensor:
    """Return the tokens of a batch as they are in the text, flattened."""
    asked_N = batch["label_N"] != IGNORED
    original_N = batch["tokens_BT"].flatten().clone()
    original_N[batch["predict_N"][asked_N]] = batch["label_N"][asked_N]
    return original_N


def _guesses_in_turns(
    objective: MaskedLM, batch: Batch, original_N: Tensor, place_N: Tensor, number: int
) -> Tensor:
    """Return the guess at each place, with [MASK] there and at the other places of its turn. Other tokens are
    original."""
    draw_N = uniforms(derive(0, "turns", number), torch.arange(len(place_N)).numpy())
    turn_N = torch.from_numpy((draw_N * TURNS).astype("int64")).to(place_N.device)
    guess_N = torch.empty_like(place_N)
    for turn in range(TURNS):
        now_N = place_N[turn_N == turn]
        with objective.encoding_once():  # what is kept of a turn is not read again
            guess_N[turn_N == turn] = _guesses(objective, _hiding(batch, original_N, now_N), now_N)
    return guess_N


def _hiding(batch: Batch, shown_N: Tensor, place_N: Tensor) -> Batch:
    """Return a copy of the batch that shows the tokens `shown_N`, with [MASK] at the places `place_N`."""
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
