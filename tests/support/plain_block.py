"""A Transformer block in plain formulas."""

import math

import torch
import torch.nn.functional as F


def plain_block(block, query_TD, content_SD, visible_TS=None):
    """A block with `norm: post` of a single row, from its definition; the queries may be other states."""
    heads, (width, bias) = block.attention.heads, (query_TD.shape[-1], block.attention.query_key_value.bias)
    weights, biases = block.attention.query_key_value.weight.split(width), bias.split(width)
    states = (query_TD, content_SD, content_SD)
    query, key, value = (
        (x @ w.T + b).unflatten(-1, (heads, -1)).transpose(0, 1)
        for x, w, b in zip(states, weights, biases, strict=True)
    )
    scores = query @ key.transpose(1, 2) / (width / heads) ** 0.5
    if visible_TS is not None:
        scores = scores.masked_fill(~visible_TS, -math.inf)
    mixed = (scores.softmax(-1) @ value).transpose(0, 1).flatten(1)
    hidden = block.attention_norm(query_TD + block.attention.output(mixed))
    inner = block.feed_forward
    return block.feed_forward_norm(hidden + inner.contract(F.gelu(inner.expand(hidden))))


def plain_embedding(encoder, ids):
    """Layer 0 of a sentence with `norm: post`."""
    ids = torch.as_tensor(ids)
    return encoder.norm(encoder.tokens.weight[ids] + encoder.positions.weight[: len(ids)])


def plain_logits(head, hidden, embeddings_VD):
    return head.norm(F.gelu(head.transform(hidden))) @ embeddings_VD.T + head.bias
