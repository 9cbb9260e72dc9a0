"""Losses of masked LM by how a token is shown, and the same tokens hidden."""

import pytest
import torch

from ablations.measures.settings import ValidationSettings
from ablations.measures.validation import validation
from lightning_modules.model.heads import IGNORED
from lightning_modules.objectives import build
from lightning_modules.training.data_module import evaluation_batches
from lightning_modules.vocabulary import MASK
from tests.support.tiny_text import settings


def losses(objective, tokens):
    """The rows of the loss by group."""
    rows = validation(objective, tokens, ValidationSettings(kind="validation"))
    return {row["group"]: row for row in rows if row["metric"] == "loss"}


def test_the_floor_of_a_visible_token_is_the_loss_where_it_is_hidden(tokens):
    """By hand, a batch at a time."""
    objective = build(settings("masked_lm", encoder={"dropout": 0.0}), tokens).eval()
    totals, counts = {"kept": 0.0, "random": 0.0}, {"kept": 0, "random": 0}
    for batch in evaluation_batches(objective, tokens.validation, tokens_per_step=8192):
        shown_N, original_N = batch["tokens_BT"].flatten(), batch["label_N"]
        shown_at_N = shown_N[batch["predict_N"]]
        meant = {
            "kept": (original_N != IGNORED) & (shown_at_N == original_N),
            "random": (original_N != IGNORED) & (shown_at_N != original_N) & (shown_at_N != MASK),
        }
        for name, meant_N in meant.items():
            place_N, label_N = batch["predict_N"][meant_N], original_N[meant_N]
            hidden_N = shown_N.clone()
            hidden_N[place_N] = MASK
            with torch.no_grad():
                top_BTD = objective.encode(batch | {"tokens_BT": hidden_N.view_as(batch["tokens_BT"])})[-1]
                score_NV = objective.head(top_BTD, objective.encoder.tokens.weight).flatten(0, 1)[place_N]
            totals[name] += torch.nn.functional.cross_entropy(score_NV, label_N, reduction="sum").item()
            counts[name] += len(label_N)
    rows = losses(objective, tokens)
    for name in totals:
        assert rows[name]["n"] == counts[name] > 10
        assert rows[name]["floor"] == pytest.approx(totals[name] / counts[name], rel=1e-5)  # float32
        assert rows[name]["floor"] != pytest.approx(rows[name]["value"], rel=1e-3)
    assert "floor" not in rows["masked"]


def test_who_does_not_see_its_own_token_has_its_floor_as_loss(tokens):
    """An encoder whose embeddings are all the same."""
    objective = build(settings("masked_lm", encoder={"dropout": 0.0}), tokens)
    torch.nn.init.constant_(objective.encoder.tokens.weight, 0.1)
    torch.nn.init.normal_(objective.head.bias, generator=torch.Generator().manual_seed(0))
    rows = losses(objective, tokens)
    for name in ("kept", "random"):
        assert rows[name]["floor"] == pytest.approx(rows[name]["value"], rel=1e-6)  # float32
