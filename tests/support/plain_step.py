"""A training step written plainly: one sentence at a time, every logit at once, nothing fused; in float64."""

import math
from functools import partial

import torch

from lightning_modules.model.encoder import RMSNorm, SinusoidalPositions, sinusoids
from lightning_modules.model.heads import IGNORED
from lightning_modules.objectives import build
from lightning_modules.training.data_module import RunData
from tests.support.tiny_text import settings

TOLERANCE = 1e-9


def linear(x, module):
    return x @ module.weight.T + module.bias


def normalised(x, module, epsilon):
    if isinstance(module, RMSNorm):
        return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt() * module.weight
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + epsilon).sqrt() * module.weight + module.bias


def gelu(x):
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def softmax(x):
    weight = (x - x.max(-1, keepdim=True).values).exp()
    return weight / weight.sum(-1, keepdim=True)


def rotated(x_TW):
    """Queries or keys of one head, each times the rotation matrix of its place (Su et al. 2021, equation 15)."""
    positions, width = x_TW.shape
    matrix_TWW = torch.zeros(positions, width, width, dtype=x_TW.dtype)
    for place in range(positions):
        for i in range(width // 2):
            angle, other = place * 10_000 ** (-2 * i / width), i + width // 2
            matrix_TWW[place, i, i] = matrix_TWW[place, other, other] = math.cos(angle)
            matrix_TWW[place, other, i] = math.sin(angle)
            matrix_TWW[place, i, other] = -math.sin(angle)
    return (matrix_TWW @ x_TW[:, :, None]).squeeze(-1)


def lowered(scores_UT, slope):
    """Scores lowered by the slope times the distance (Press et al. 2022, section 3)."""
    distance = [[abs(i - j) for j in range(scores_UT.shape[1])] for i in range(scores_UT.shape[0])]
    return scores_UT - slope * torch.tensor(distance)


def attended(query_UD, key_TD, value_TD, heads, *, causal, positions=None):
    width, mixed = query_UD.shape[1] // heads, []
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        query_UW, key_TW = query_UD[:, part], key_TD[:, part]
        if positions == "rotary":
            query_UW, key_TW = rotated(query_UW), rotated(key_TW)
        scores_UT = query_UW @ key_TW.T / math.sqrt(width)
        if positions == "alibi":
            scores_UT = lowered(scores_UT, 2 ** (-8 * (head + 1) / heads))
        if causal:
            scores_UT = scores_UT + torch.full_like(scores_UT, -math.inf).triu(1)
        mixed.append(softmax(scores_UT) @ value_TD[:, part])
    return torch.cat(mixed, 1)


def self_attention(x, module, *, causal, positions):
    query, key, value = linear(x, module.query_key_value).split(x.shape[1], 1)
    mixed = attended(query, key, value, module.heads, causal=causal, positions=positions)
    return linear(mixed, module.output)


def source_attention(x, source, module):
    key, value = linear(source, module.key_value).split(x.shape[1], 1)
    mixed = attended(linear(x, module.query), key, value, module.heads, causal=False)
    return linear(mixed, module.output)


def through(x, pre, epsilon, *steps):
    """Residual sums of (norm, sub-layer), the norm before or after."""
    for norm, sublayer in steps:
        added = x + sublayer(normalised(x, norm, epsilon) if pre else x)
        x = added if pre else normalised(added, norm, epsilon)
    return x


def feed_forward(x, module, activation):
    inside = linear(x, module.expand)
    if activation == "swiglu":
        gate = linear(x, module.gate)
        return linear(gate / (1 + torch.exp(-gate)) * inside, module.contract)
    return linear(gelu(inside) if activation == "gelu" else inside * (inside > 0), module.contract)


def sinusoidal(positions, width):
    """Position embeddings number by number: sines in the first half of the width, cosines in the second."""
    pairs = width // 2
    rates = [10_000 ** (-k / (pairs - 1)) for k in range(pairs)]
    rows = [[f(p * rate) for f in (math.sin, math.cos) for rate in rates] for p in range(positions)]
    return torch.tensor(rows, dtype=torch.float64)


def embedded(stack, ids, encoder):
    hidden = stack.tokens.weight[ids]
    if encoder.embedding.scale:
        hidden = hidden * math.sqrt(encoder.hidden_size)
    if encoder.embedding.bias:
        hidden = hidden + stack.embedding_bias
    if encoder.positions == "sinusoidal":
        hidden = hidden + sinusoidal(len(ids), encoder.hidden_size)
    elif encoder.positions == "learned":
        hidden = hidden + stack.positions.weight[: len(ids)]
    if not encoder.embedding.norm:
        return hidden
    return normalised(
        hidden, stack.norm if encoder.norm == "post" else stack.embedding_norm, encoder.layer_norm_epsilon
    )


def stacked(stack, ids, *, encoder, causal, source=None):
    """The top of an encoder, or of a decoder that reads `source`."""
    pre, epsilon = encoder.norm == "pre", encoder.layer_norm_epsilon
    hidden = embedded(stack, ids, encoder)
    for block in stack.blocks:
        looks = partial(self_attention, module=block.attention, causal=causal, positions=encoder.positions)
        steps = [(block.attention_norm, looks)]
        if source is not None:
            reads = partial(source_attention, source=source, module=block.source_attention)
            steps.append((block.source_attention_norm, reads))
        inner = partial(feed_forward, module=block.feed_forward, activation=encoder.activation)
        steps.append((block.feed_forward_norm, inner))
        hidden = through(hidden, pre, epsilon, *steps)
    return normalised(hidden, stack.norm, epsilon) if pre else hidden


def encoded(objective, ids):
    """What a head reads of one sentence."""
    causal = objective.run.objective.kind == "causal_lm"
    return stacked(objective.encoder, ids, encoder=objective.run.encoder, causal=causal)


def decoded(objective, ids, source):
    """What predicts the next token of one translation."""
    return stacked(objective.decoder, ids, encoder=objective.run.encoder, causal=True, source=source)


def logits(objective, state):
    translation = objective.run.objective.kind == "translation"
    if objective.run.objective.head == "linear":
        return state @ (objective.output if translation else objective.head).weight.T
    if translation:
        return state @ objective.decoder.tokens.weight.T
    head = objective.head
    features = normalised(gelu(linear(state, head.transform)), head.norm, objective.run.encoder.layer_norm_epsilon)
    return features @ objective.encoder.tokens.weight.T + head.bias


def sentences(tokens, numbers):
    """Of each sentence of a batch: its place (row, number in the row), its ids and their flat places."""
    for row in range(len(tokens)):
        for number in range(1, int(numbers[row].max()) + 1):
            column = torch.nonzero(numbers[row] == number)[:, 0]
            yield (row, number), tokens[row, column], (row * tokens.shape[1] + column).tolist()


def plain_loss(objective, batch):
    """Mean of -log softmax(logits)[label] over what the batch asks for.

    With label smoothing a share of each is the mean over the vocabulary.
    """
    smoothing = objective.run.objective.label_smoothing
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
                loss_V = -softmax(logits(objective, hidden[i])).log()
                losses.append((1 - smoothing) * loss_V[asked[place]] + smoothing * loss_V.mean())
    assert len(losses) == len(asked)
    return torch.stack(losses).mean()


def with_gradients(objective, loss):
    found = torch.autograd.grad(loss, list(objective.parameters()), allow_unused=True)
    names = (name for name, _ in objective.named_parameters())
    return loss.detach(), dict(zip(names, found, strict=True))


def problem(tokens, kind, norm, step=0, *, encoder=None, objective=None, **training):
    """A module in float64 with weights far from their initial ones, and a batch of its training."""
    run = settings(
        kind,
        encoder={"norm": norm, "dropout": 0.0} | (encoder or {}),
        objective=objective or {},
        training=training,
    )
    objective = build(run, tokens).double().train()
    for module in objective.modules():
        if isinstance(module, SinusoidalPositions):  # its table was rounded to float32
            module.table_PD = sinusoids(*module.table_PD.shape)
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
