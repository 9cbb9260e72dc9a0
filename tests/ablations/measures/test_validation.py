"""What masked LM says of tokens that it sees."""

import numpy as np
import pytest
import torch

from ablations.measures import validation as module
from ablations.measures.validation import observed
from lightning_modules.model.cross_entropy import IGNORED
from lightning_modules.objectives import build
from lightning_modules.training.data_module import evaluation_batches
from lightning_modules.vocabulary import FIRST_WORD_ID, MASK
from tests.support.tiny_text import settings


class Copier(torch.nn.Module):
    """A head that says what its state says: with `encode_at` giving ids, the guess is the token that is shown."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, shown_N, embeddings_VD):
        return torch.nn.functional.one_hot(self.answer(shown_N), len(embeddings_VD)).float()


def planted(tokens, answer):
    """A masked LM whose first guess is `answer` of the id that is shown."""
    objective = build(settings("masked_lm"), tokens)
    objective.encode_at = lambda batch, place_N: batch["tokens_BT"].flatten()[place_N]
    objective.head = Copier(answer)
    return objective


def by_hand(objective, tokens):
    """(shown, original) of the clean and of the replaced tokens of the evaluation text."""
    clean, replaced = [], []
    for batch in evaluation_batches(objective, tokens.validation, tokens_per_step=512):
        shown = batch["tokens_BT"].flatten().tolist()
        labels = {
            place: label
            for place, label in zip(batch["predict_N"].tolist(), batch["label_N"].tolist(), strict=True)
            if label != IGNORED
        }
        for place, token in enumerate(shown):
            if place in labels and token != MASK and token != labels[place]:
                replaced.append((token, labels[place]))
            elif place not in labels and token >= FIRST_WORD_ID:
                clean.append(token)
    return clean, replaced


def values(objective, tokens):
    return {row["metric"]: row for row in observed(objective, tokens.validation)}


def test_who_copies_is_right_on_clean_tokens_and_never_recovers_one(tokens):
    objective = planted(tokens, lambda shown_N: shown_N)
    clean, replaced = by_hand(objective, tokens)
    rows = values(objective, tokens)
    assert rows["observed_clean"]["value"] == 1.0
    assert rows["observed_replaced"]["value"] == 1.0
    assert rows["recovered_replaced"]["value"] == 0.0
    assert rows["observed_clean"]["n"] == len(clean)
    assert rows["recovered_replaced"]["n"] == rows["observed_replaced"]["n"] == len(replaced)
    assert rows["observed_clean"]["floor"] == pytest.approx(np.bincount(clean).max() / len(clean))


def test_one_answer_for_all_scores_its_frequency(tokens):
    _, replaced = by_hand(build(settings("masked_lm"), tokens), tokens)
    originals = np.bincount([original for _, original in replaced])
    favourite = int(originals.argmax())
    rows = values(planted(tokens, lambda shown_N: torch.full_like(shown_N, favourite)), tokens)
    assert rows["recovered_replaced"]["value"] == pytest.approx(originals.max() / len(replaced))
    assert rows["recovered_replaced"]["floor"] == rows["recovered_replaced"]["value"]


def test_a_real_head_is_read_at_the_places_that_are_asked_for(tokens, monkeypatch):
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 7)
    objective = build(settings("masked_lm"), tokens).eval()
    right = total = 0
    for batch in evaluation_batches(objective, tokens.validation, tokens_per_step=512):
        with torch.no_grad():
            top_BTD = objective.encode(batch)[-1]
            score_BTV = objective.head(top_BTD, objective.encoder.tokens.weight)[..., FIRST_WORD_ID:]
        guess_N = score_BTV.argmax(-1).flatten() + FIRST_WORD_ID
        shown_N = batch["tokens_BT"].flatten()
        asked = set(batch["predict_N"][batch["label_N"] != IGNORED].tolist())
        for place, token in enumerate(shown_N.tolist()):
            if token >= FIRST_WORD_ID and place not in asked:
                right, total = right + int(guess_N[place] == token), total + 1
    row = values(objective, tokens)["observed_clean"]
    assert (row["n"], row["value"]) == (total, pytest.approx(right / total))
