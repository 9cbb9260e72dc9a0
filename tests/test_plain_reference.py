"""A whole training step against the plain thing: one sentence at a time, every logit at once, nothing fused.

Packing, padded rows and predictions, attention by products, the last block at predicted places only, the head in
slices: whatever makes a step fast must leave loss and gradients what the formulas of the papers say.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from lightning_modules import attention, cross_entropy, decoder, encoder
from lightning_modules.attention import ProductAttention
from lightning_modules.cross_entropy import IGNORED
from lightning_modules.data.module import RunData
from lightning_modules.data.tokens import Split
from lightning_modules.objectives import build
from tests.conftest import settings

TOLERANCE = 1e-9
EPSILON = 1e-12


def linear(x, module):
    return x @ module.weight.T + module.bias


def normalised(x, module):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + EPSILON).sqrt() * module.weight + module.bias


def gelu(x):
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def softmax(x):
    weight = (x - x.max(-1, keepdim=True).values).exp()
    return weight / weight.sum(-1, keepdim=True)


def attended(query_UD, key_TD, value_TD, heads, *, causal):
    width, mixed = query_UD.shape[1] // heads, []
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        scores_UT = query_UD[:, part] @ key_TD[:, part].T / math.sqrt(width)
        if causal:
            scores_UT = scores_UT + torch.full_like(scores_UT, -math.inf).triu(1)
        mixed.append(softmax(scores_UT) @ value_TD[:, part])
    return torch.cat(mixed, 1)


def self_attention(x, module, *, causal):
    query, key, value = linear(x, module.query_key_value).split(x.shape[1], 1)
    return linear(attended(query, key, value, module.heads, causal=causal), module.output)


def source_attention(x, source, module):
    key, value = linear(source, module.key_value).split(x.shape[1], 1)
    mixed = attended(linear(x, module.query), key, value, module.heads, causal=False)
    return linear(mixed, module.output)


def through(x, pre, *steps):
    """Residual sums of (norm, sub-layer), the norm before or after."""
    for norm, sublayer in steps:
        x = x + sublayer(normalised(x, norm)) if pre else normalised(x + sublayer(x), norm)
    return x


def feed_forward(x, module):
    return linear(gelu(linear(x, module.expand)), module.contract)


def embedded(stack, ids, pre):
    hidden = stack.tokens.weight[ids] + stack.positions.weight[: len(ids)]
    return hidden if pre else normalised(hidden, stack.norm)


def stacked(stack, ids, *, pre, causal, source=None):
    """The top of an encoder, or of a decoder that reads `source`."""
    hidden = embedded(stack, ids, pre)
    for block in stack.blocks:
        steps = [(block.attention_norm, partial(self_attention, module=block.attention, causal=causal))]
        if source is not None:
            reads = partial(source_attention, source=source, module=block.source_attention)
            steps.append((block.source_attention_norm, reads))
        steps.append((block.feed_forward_norm, partial(feed_forward, module=block.feed_forward)))
        hidden = through(hidden, pre, *steps)
    return normalised(hidden, stack.norm) if pre else hidden


def encoded(objective, ids):
    """What a head reads of one sentence."""
    causal = objective.run.objective.kind == "causal_lm"
    return stacked(objective.encoder, ids, pre=objective.run.encoder.norm == "pre", causal=causal)


def decoded(objective, ids, source):
    """What predicts the next token of one translation."""
    pre = objective.run.encoder.norm == "pre"
    return stacked(objective.decoder, ids, pre=pre, causal=True, source=source)


def logits(objective, state):
    if objective.run.objective.kind == "translation":
        return state @ objective.decoder.tokens.weight.T
    head = objective.head
    features = normalised(gelu(linear(state, head.transform)), head.norm)
    return features @ objective.encoder.tokens.weight.T + head.bias


def sentences(tokens, numbers):
    """Of each sentence of a batch: its place (row, number in the row), its ids and their flat places."""
    for row in range(len(tokens)):
        for number in range(1, int(numbers[row].max()) + 1):
            column = torch.nonzero(numbers[row] == number)[:, 0]
            yield (row, number), tokens[row, column], (row * tokens.shape[1] + column).tolist()


def plain_loss(objective, batch):
    """Mean of -log softmax(logits)[label] over what the batch asks for."""
    translation = objective.run.objective.kind == "translation"
    real = batch["label_N"] != IGNORED
    asked = dict(zip(batch["predict_N"][real].tolist(), batch["label_N"][real].tolist(), strict=True))
    assert len(asked) == int(real.sum())  # no place is asked for twice
    state = {
        place: (encoded(objective, ids), flat)
        for place, ids, flat in sentences(batch["tokens_BT"], batch["sequence_BT"])
    }
    if translation:
        state = {
            place: (decoded(objective, ids, state[place][0]), flat)
            for place, ids, flat in sentences(batch["target_tokens_BU"], batch["target_sequence_BU"])
        }
    losses = []
    for hidden, flat in state.values():
        for i, place in enumerate(flat):
            if place in asked:
                losses.append(-softmax(logits(objective, hidden[i]))[asked[place]].log())
    assert len(losses) == len(asked)
    return torch.stack(losses).mean()


def with_gradients(objective, loss):
    found = torch.autograd.grad(loss, list(objective.parameters()), allow_unused=True)
    names = (name for name, _ in objective.named_parameters())
    return loss.detach(), dict(zip(names, found, strict=True))


def problem(tokens, kind, norm, step=0):
    """A module in float64 with weights far from their initial ones, and a batch of its training."""
    run = settings(kind, encoder={"norm": norm, "dropout": 0.0})
    objective = build(run, tokens).double().train()
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=rng, dtype=torch.float64)
    return objective, RunData(objective, tokens).batch(step)


def require_equal(objective, batch):
    fast, fast_gradients = with_gradients(objective, objective.training_step(batch, 0)["loss"])
    plain, gradients = with_gradients(objective, plain_loss(objective, batch))
    assert abs(float(fast - plain)) <= TOLERANCE * float(plain)
    assert sum(gradient is not None for gradient in gradients.values()) >= len(gradients) - 1
    for name, gradient in gradients.items():
        assert (gradient is None) == (fast_gradients[name] is None), name
        if gradient is not None:
            assert float(gradient.norm()) > 1e-6, name
            assert float((fast_gradients[name] - gradient).norm()) <= TOLERANCE * float(gradient.norm()), name


def by_products(*projected, score_mask_BHTS, heads):
    return ProductAttention.apply(score_mask_BHTS, heads, *projected)


def never_left_out(visible_BHTS, like):
    return torch.zeros_like(visible_BHTS, dtype=like.dtype).masked_fill_(~visible_BHTS, -math.inf)


@pytest.fixture(params=["as on a CPU in fp32", "as on a CPU in bf16", "as on a GPU", "many slices"])
def path(request, monkeypatch):
    """The ways that a step can take, in float64."""
    if request.param == "as on a CPU in bf16":
        monkeypatch.setattr(attention, "attend", by_products)
    elif request.param == "as on a GPU":
        monkeypatch.setattr(encoder, "score_mask", never_left_out)
        monkeypatch.setattr(decoder, "score_mask", never_left_out)
        monkeypatch.setitem(cross_entropy.LOGITS_AT_ONCE, "cpu", cross_entropy.LOGITS_AT_ONCE["cuda"])
    elif request.param == "many slices":
        monkeypatch.setitem(cross_entropy.LOGITS_AT_ONCE, "cpu", 7 * 320)
    return request.param


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "translation"])
def test_a_step_is_the_plain_thing(kind, norm, path, tokens):
    objective, batch = problem(tokens, kind, norm)
    assert (batch["sequence_BT"].max(1).values > 1).any()  # sentences share rows
    assert (batch["sequence_BT"] == 0).any()
    assert (batch["label_N"] == IGNORED).any()
    require_equal(objective, batch)


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
        encoder, "score_mask", lambda visible_BHTT, like: None
    )  # sentences of a row see each other
    with pytest.raises(AssertionError):
        require_equal(objective, batch)
