"""What masked LM says of tokens that it sees: whether it copies them, as its corruption has taught it.

Letters: N tokens, V vocabulary.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lightning_modules.cross_entropy import IGNORED
from lightning_modules.data.module import evaluation_batches
from lightning_modules.data.tokens import Split
from lightning_modules.evaluation import TOKENS_AT_ONCE
from lightning_modules.masked_lm import MaskedLM
from lightning_modules.vocabulary import FIRST_WORD_ID, MASK

ENOUGH = 20_000
"""Clean tokens that are asked for; the text is read until then."""

ROWS_AT_ONCE = 2048
"""Tokens whose scores over the vocabulary are in memory at once."""


def observed(objective: MaskedLM, split: Split) -> Iterator[dict[str, Any]]:
    """Rows, each the share of some visible tokens at which the first guess is a certain token.

    The text is that of evaluation: 15% are to be predicted, 80/10/10. `observed_clean`: of the tokens that are
    not to be predicted, all shown as they are, those guessed to be what is shown. `observed_replaced`: the same of
    tokens that are shown as a random other one. `recovered_replaced`: of the latter, those guessed to be the
    original. The floor is the share of the most frequent token among those that would be right: that of always
    guessing it.

    A head is only trained at tokens that are to be predicted; of clean ones, what it says is how it was taught to
    think of any visible token (Devlin et al. 2019, appendix A.1, on why 10% are kept).
    """
    objective.eval()
    shown: dict[str, list[Tensor]] = {"clean": [], "replaced": []}
    guessed: dict[str, list[Tensor]] = {"clean": [], "replaced": []}
    original: list[Tensor] = []
    for batch in evaluation_batches(objective, split, tokens_per_step=TOKENS_AT_ONCE):
        batch = {name: tensor.to(objective.device) for name, tensor in batch.items()}
        shown_N = batch["tokens_BT"].flatten()
        asked_N = batch["label_N"] != IGNORED
        place_N, label_N = batch["predict_N"][asked_N], batch["label_N"][asked_N]
        is_clean_N = shown_N >= FIRST_WORD_ID
        is_clean_N[place_N] = False
        is_replaced_N = (shown_N[place_N] != MASK) & (shown_N[place_N] != label_N)
        places = {"clean": is_clean_N.nonzero().flatten(), "replaced": place_N[is_replaced_N]}
        for name, of_kind_N in places.items():
            shown[name].append(shown_N[of_kind_N].cpu())
            guessed[name].append(_guesses(objective, batch, of_kind_N).cpu())
        original.append(label_N[is_replaced_N].cpu())
        if sum(map(len, shown["clean"])) >= ENOUGH:
            break
    right = {
        "observed_clean": ("clean", shown["clean"]),
        "observed_replaced": ("replaced", shown["replaced"]),
        "recovered_replaced": ("replaced", original),
    }
    for metric, (kind, wanted) in right.items():
        wanted_N, guessed_N = torch.cat(wanted), torch.cat(guessed[kind])
        if len(wanted_N):
            share = (guessed_N == wanted_N).double().mean().item()
            floor = wanted_N.bincount().max().item() / len(wanted_N)
            yield {"metric": metric, "value": share, "floor": floor, "unit": "", "n": len(wanted_N)}


@torch.no_grad()
def _guesses(objective: MaskedLM, batch: dict[str, Tensor], place_N: Tensor) -> Tensor:
    """The most probable token of text at each place."""
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
