"""Multi-head attention (Vaswani et al. 2017, section 3.2), of a row over itself or another row, and its masks.

Letters: B rows, T positions that query, S positions that are attended to, D width, H heads (one for all in a
mask).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lightning_modules.config import EncoderSettings, Sees
from lightning_modules.model.numerics import working_type


class SelfAttention(nn.Module):
    """Attention of a row over itself."""

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        width, self.heads = settings.hidden_size, settings.num_attention_heads
        self.dropout = settings.attention_dropout
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, hidden_BTD: Tensor, score_mask_BHTT: Tensor | None, place_N: Tensor | None = None) -> Tensor:
        """Attend within each row. Shape BTD, or ND where only the positions `place_N` of the flattened rows are
        needed."""
        mixed_BTD = attend(
            self.query_key_value(hidden_BTD),
            score_mask_BHTS=score_mask_BHTT,
            heads=self.heads,
            dropout=self.dropout if self.training else 0.0,
        )
        return self.output(mixed_BTD if place_N is None else mixed_BTD.flatten(0, 1)[place_N])


class SourceAttention(nn.Module):
    """Attention of a row of targets over a row of sources."""

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        width, self.heads = settings.hidden_size, settings.num_attention_heads
        self.dropout = settings.attention_dropout
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def forward(self, hidden_BTD: Tensor, source_BSD: Tensor, score_mask_BHTS: Tensor | None) -> Tensor:
        query, key_value = self.query(hidden_BTD), self.key_value(source_BSD)
        dropout = self.dropout if self.training else 0.0
        mixed_BTD = attend(query, key_value, score_mask_BHTS=score_mask_BHTS, heads=self.heads, dropout=dropout)
        return self.output(mixed_BTD)


def visible(query_sequence_BT: Tensor, key_sequence_BS: Tensor) -> Tensor:
    """Return which key each query may attend to: those of its own sentence. Boolean, shape B1TS.

    Padding (0) sees padding, so that no row of the attention is empty.
    """
    return (query_sequence_BT[:, :, None] == key_sequence_BS[:, None, :])[:, None]


def score_mask(visible_BHTS: Tensor, like: Tensor) -> Tensor | None:
    """Return the mask that is added to the scores: -inf where a key is not visible, 0 elsewhere.

    In the type in which attention over `like` will be computed; None where there is nothing to hide (not looked
    for on a GPU, which would have to be waited for).
    """
    if visible_BHTS.device.type == "cpu" and bool(visible_BHTS.all()):
        return None
    return torch.zeros_like(visible_BHTS, dtype=working_type(like)).masked_fill_(~visible_BHTS, float("-inf"))


def attend(*projected: Tensor, score_mask_BHTS: Tensor | None, heads: int, dropout: float = 0.0) -> Tensor:
    """Return scaled dot-product attention over `heads` equal slices of the width; shape BTD.

    Args:
        projected: queries, keys and values side by side in one tensor; or queries, and keys and values.
        score_mask_BHTS: what `score_mask` returns.
        dropout: share of the attention weights that is dropped.
    """
    if projected[0].device.type == "cpu" and projected[0].dtype == torch.bfloat16 and not dropout:
        return ProductAttention.apply(score_mask_BHTS, heads, *projected)
    query, key, value = (
        part.unflatten(-1, (heads, -1)).transpose(1, 2)
        for x, parts in zip(projected, _parts(projected), strict=True)
        for part in x.chunk(parts, dim=-1)
    )
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=score_mask_BHTS, dropout_p=dropout)
    return mixed.transpose(1, 2).flatten(-2)


class ProductAttention(torch.autograd.Function):
    """Scaled dot-product attention as products of whole matrices, with its own gradient.

    For bf16 on a CPU, where torch's takes more than twice as long at 128 tokens (benchmarks/LOG.md).
    Letters: Z rows times heads, W width of a head.
    """

    @staticmethod
    def forward(ctx: Any, score_mask_BHTS: Tensor | None, heads: int, *projected: Tensor) -> Tensor:
        split = [_split(x, parts, heads) for x, parts in zip(projected, _parts(projected), strict=True)]
        query_ZTW, key_ZSW, value_ZSW = (part for x in split for part in x)
        scores_ZTS = _scaled(query_ZTW, key_ZSW.transpose(1, 2), query_ZTW.shape[-1] ** -0.5)
        if score_mask_BHTS is not None:
            scores_ZTS.unflatten(0, (-1, heads)).add_(score_mask_BHTS)
        share_ZTS = torch.softmax(scores_ZTS, -1, out=scores_ZTS)
        mixed_ZTW = share_ZTS @ value_ZSW
        ctx.heads = heads
        ctx.save_for_backward(share_ZTS, mixed_ZTW, *split)
        return _join(mixed_ZTW[None], heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BTD: Tensor) -> tuple[Tensor | None, ...]:
        share_ZTS, mixed_ZTW, *split = ctx.saved_tensors
        query_ZTW, key_ZSW, value_ZSW = (part for x in split for part in x)
        grads = [torch.empty_like(x) for x in split]
        grad_query, grad_key, grad_value = (part for x in grads for part in x)
        (grad_ZTW,) = _split(grad_BTD, 1, ctx.heads)
        torch.bmm(share_ZTS.transpose(1, 2), grad_ZTW, out=grad_value)
        # d score = share (d share - sum over keys of share d share), and that sum is mixed d mixed.
        common_ZT1 = (mixed_ZTW * grad_ZTW).sum(-1, keepdim=True)
        grad_scores_ZTS = torch.baddbmm(common_ZT1, grad_ZTW, value_ZSW.transpose(1, 2), beta=-1).mul_(share_ZTS)
        scale = query_ZTW.shape[-1] ** -0.5
        _scaled(grad_scores_ZTS, key_ZSW, scale, out=grad_query)
        _scaled(grad_scores_ZTS.transpose(1, 2), query_ZTW, scale, out=grad_key)
        return None, None, *(_join(x, ctx.heads) for x in grads)


def _parts(projected: tuple[Tensor, ...]) -> tuple[int, ...]:
    """Return the number of queries, keys and values that stand side by side in each tensor."""
    return (3,) if len(projected) == 1 else (1, 2)


def _scaled(left: Tensor, right: Tensor, scale: float, *, out: Tensor | None = None) -> Tensor:
    """Return the products of two batches of matrices, times `scale`."""
    return torch.baddbmm(left.new_empty(1), left, right, beta=0, alpha=scale, out=out)


def _split(x_BTD: Tensor, parts: int, heads: int) -> Tensor:
    """Split a tensor of `parts` tensors side by side, each head a matrix: shape (parts, B * heads, T, W)."""
    B, T, _ = x_BTD.shape
    return x_BTD.reshape(B, T, parts, heads, -1).permute(2, 0, 3, 1, 4).reshape(parts, B * heads, T, -1)


def _join(split: Tensor, heads: int) -> Tensor:
    """Join what `_split` split, shape BTD."""
    parts, rows, T, width = split.shape
    x = split.view(parts, rows // heads, heads, T, width)
    return x.permute(1, 3, 0, 2, 4).reshape(rows // heads, T, -1)


UNLIMITED = None
REACH: dict[str, tuple[int | None, int | None]] = {
    "both_sides": (UNLIMITED, UNLIMITED),
    "left_only": (UNLIMITED, 0),
    "itself": (0, 0),
}
"""Number of visible tokens to the left and to the right."""
EVERYTHING = 2**31 - 1
"""Rank, as a query, of a token that sees all of its sequence; as a key, of one that nothing sees."""


def visible_in(sequence_BT: Tensor, sees: Sees, window: tuple[int, int]) -> Tensor:
    """Return which tokens of its own sequence each token may attend to under `sees`, itself always. Boolean, shape
    B1TT: queries, keys.

    Args:
        sequence_BT: number of the sequence in its row, 0 = padding, which sees padding.
        window: with `sees` of that name, how many tokens to the left and to the right.
    """
    visible_BHTT = visible(sequence_BT, sequence_BT)
    left, right = window if sees == "window" else REACH[sees]
    T = sequence_BT.shape[1]
    near_TT = torch.ones(T, T, dtype=torch.bool, device=sequence_BT.device)
    if left is not UNLIMITED:
        near_TT = near_TT.triu(-left)
    if right is not UNLIMITED:
        near_TT = near_TT.tril(right)
    return visible_BHTT if left is right is UNLIMITED else visible_BHTT & near_TT


def visible_by_rank(sequence_BT: Tensor, key_rank_BT: Tensor, query_rank_BT: Tensor) -> Tensor:
    """Return which tokens have a rank as a key below that of the query, within a sequence; a token sees itself
    where its two ranks are equal. Boolean, shape B1TT.

    The ranks express any order of the tokens: that of the text, a permutation, one of its own for every sentence.
    """
    T = sequence_BT.shape[1]
    earlier_BTT = key_rank_BT[:, None, :] < query_rank_BT[:, :, None]
    itself_TT = torch.eye(T, dtype=torch.bool, device=sequence_BT.device)
    itself_BTT = itself_TT & (key_rank_BT == query_rank_BT)[:, :, None]
    return visible(sequence_BT, sequence_BT) & (earlier_BTT | itself_BTT)[:, None]
