"""A whole training step against the plain thing: one sentence at a time, every logit at once, nothing fused.

Packing, padded rows and predictions, attention by products, the last block at predicted places only, the head in
slices: whatever makes a step fast must leave loss and gradients what the formulas of the papers say.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from lightning_modules.config.run import PRESETS
from lightning_modules.data.token_store import Split
from lightning_modules.model import attention, encoder, heads
from lightning_modules.model.attention import ProductAttention
from lightning_modules.model.heads import IGNORED
from tests.support.plain_step import problem, require_equal


def by_products(*projected, score_mask_BHTS, heads, dropout):
    return ProductAttention.apply(score_mask_BHTS, heads, 0.0, *projected)


def never_left_out(visible_BHTS, like):
    return torch.zeros_like(visible_BHTS, dtype=like.dtype).masked_fill_(~visible_BHTS, -math.inf)


@pytest.fixture(params=["as on a CPU in fp32", "as on a CPU in bf16", "as on a GPU", "many slices"])
def path(request, monkeypatch):
    """The ways that a step can take, in float64."""
    if request.param == "as on a CPU in bf16":
        monkeypatch.setattr(attention, "attend", by_products)
    elif request.param == "as on a GPU":
        monkeypatch.setattr(attention, "score_mask", never_left_out)
        monkeypatch.setattr(encoder, "score_mask", never_left_out)
        monkeypatch.setitem(heads.LOGITS_AT_ONCE, "cpu", heads.LOGITS_AT_ONCE["cuda"])
    elif request.param == "many slices":
        monkeypatch.setitem(heads.LOGITS_AT_ONCE, "cpu", 7 * 320)
    return request.param


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "translation"])
def test_a_step_is_the_plain_thing(kind, norm, path, tokens):
    objective, batch = problem(tokens, kind, norm)
    assert (batch["sequence_BT"].max(1).values > 1).any()  # sentences share rows
    assert (batch["sequence_BT"] == 0).any()
    assert (batch["label_N"] == IGNORED).any()
    require_equal(objective, batch)


VOITA = {
    name: setting
    for name, setting in PRESETS["voita-2019"]["encoder"].items()
    if not name.endswith("dropout") and name != "norm"
}
EMBEDDINGS = [{"scale": True}, {"bias": True}, {"norm": False}, {"norm": True, "scale": True, "bias": True}]


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(
    "encoder",
    [
        {"positions": "sinusoidal"},
        *({"embedding": embedding} for embedding in EMBEDDINGS),
        {"activation": "relu"},
        {"activation": "swiglu"},
        {"norm_kind": "rms", "layer_norm_epsilon": 0.1},
        {"layer_norm_epsilon": 0.1},
        VOITA,
    ],
    ids=str,
)
def test_every_setting_of_the_encoder_is_the_plain_thing(encoder, norm, tokens):
    for kind in ("masked_lm", "translation"):
        require_equal(*problem(tokens, kind, norm, encoder=encoder))


@pytest.mark.parametrize("positions", ["rotary", "alibi"])
@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "translation"])
def test_positions_inside_attention_are_the_plain_thing(kind, positions, path, tokens):
    require_equal(*problem(tokens, kind, "pre", encoder={"positions": positions, "num_hidden_layers": 1}))


@pytest.mark.parametrize("objective", [{"head": "linear"}, {"label_smoothing": 0.3}], ids=str)
@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "translation"])
def test_every_setting_of_the_loss_is_the_plain_thing(kind, objective, path, tokens):
    require_equal(*problem(tokens, kind, "post", objective=objective))


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "translation"])
def test_the_preset_of_the_authors_is_the_plain_thing(kind, tokens):
    objective = PRESETS["voita-2019"]["objective"]
    require_equal(*problem(tokens, kind, "pre", encoder=VOITA, objective=objective))


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm"])
def test_rows_without_padding_are_the_plain_thing(kind, path, tokens):
    length = 32
    cut = Split(
        tokens.train.ids[: 100 * length], np.arange(101, dtype=np.int64) * length, np.zeros(100, dtype=np.int32)
    )
    objective, batch = problem(replace(tokens, train=cut), kind, "post")
    assert (batch["sequence_BT"] == 1).all()
    assert batch["tokens_BT"].shape == (4, length)
    require_equal(objective, batch)


def test_the_comparison_would_tell(tokens, monkeypatch):
    objective, batch = problem(tokens, "masked_lm", "post")
    monkeypatch.setattr(
        attention, "score_mask", lambda visible_BHTT, like: None
    )  # sentences of a row see each other
    with pytest.raises(AssertionError):
        require_equal(objective, batch)
