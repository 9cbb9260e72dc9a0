"""Multi-head attention (Vaswani et al. 2017, section 3.2): its products, its masks and its positions.

Letters: B rows, T positions that query, S positions that are attended to, D width, E width of queries, keys
and values side by side, H heads (1 if all heads are alike), K pairs of numbers of a head.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lightning_modules.config import EncoderSettings, Sees
from lightning_modules.model.numerics import kept_on_cpu, working_type


class Sight(NamedTuple):
    """Visible keys and positions, as self-attention needs them. They are the same in every block."""

    score_mask_BHTT: Tensor | None
    """Numbers that are added to the scores: -inf where a key is not visible. Elsewhere 0, or with
    `positions: alibi` the negative bias for the distance. None if nothing is added."""
    turn_BTHK: tuple[Tensor, Tensor] | None = None
    """Cosine and sine from `turn`, with `positions: rotary` only."""


def sight_of(
    settings: EncoderSettings, visible_BHTT: Tensor, like: Tensor, position_BT: Tensor | None = None
) -> Sight:
    """Return the attention mask and the positions of self-attention (a `Sight`).

    Visible keys outside `encoder.attention_window` are hidden. Positions are used as `encoder.positions`
    says.

    Args:
        like: states that attend. Only their dtype and device count.
        position_BT: position of each token inside its sequence. By default the position in the row, from 0.
    """
    if position_BT is None:
        position_BT = torch.arange(visible_BHTT.shape[-1], device=visible_BHTT.device)
    if settings.attention_window is not None:
        visible_BHTT = within(visible_BHTT, position_BT, settings.attention_window)
    if settings.positions not in ("rotary", "alibi"):
        return Sight(score_mask(visible_BHTT, like))
    wide = torch.promote_types(like.dtype, torch.float32)
    heads = settings.num_attention_heads
    if settings.positions == "rotary":
        width = settings.hidden_size // heads
        return Sight(score_mask(visible_BHTT, like), turn(position_BT, width=width, dtype=wide))
    bias_BHTT = distances(position_BT, heads=heads, dtype=wide).to(working_type(like))
    return Sight(bias_BHTT.masked_fill(~visible_BHTT, float("-inf")))


def turn(position_BT: Tensor, *, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of the angles by which queries and keys are turned, shape BTHK with H = 1.

    For pair k, from 0, of a head of width W the angle is the position times 10,000^(-2k / W) (Su et al. 2021,
    section 3.2.2). The product of a query and a key then depends on the difference of their positions.
    """
    rate_K = 1e4 ** (-torch.arange(0, width, 2, dtype=dtype, device=position_BT.device) / width)
    angle_BTHK = position_BT[..., None, None] * rate_K
    return angle_BTHK.cos(), angle_BTHK.sin()


def distances(position_BT: Tensor, *, heads: int, dtype: torch.dtype) -> Tensor:
    """Return the ALiBi bias of the scores, shape BHTT: minus the distance of two positions times 2^(-8h / H).

    The head h is counted from 1 (Press et al. 2022, section 3). In the paper, tokens see only tokens left of
    them. Here a distance counts the same on both sides, so it does not tell left from right; the distances to
    START and to END do. If the number of heads is no power of two, the formula of the paper still holds here;
    the paper's code then takes other slopes.
    """
    slope_H = 2.0 ** (-8 * torch.arange(1, heads + 1, dtype=dtype, device=position_BT.device) / heads)
    return -slope_H[:, None, None] * _distance(position_BT)


def within(visible_BHTT: Tensor, position_BT: Tensor, window: int) -> Tensor:
    """Return which visible tokens are at most `window` positions away (sliding window, Beltagy et al. 2020).

    A token that would see nothing sees itself. Otherwise queries of permutation LM could see nothing at all.
    """
    near_BHTT = visible_BHTT & (_distance(position_BT) <= window)
    itself_TT = torch.eye(visible_BHTT.shape[-1], dtype=torch.bool, device=visible_BHTT.device)
    return near_BHTT | (itself_TT & ~near_BHTT.any(-1, keepdim=True))


def _distance(position_BT: Tensor) -> Tensor:
    """Return the distances between all positions of a row, shape B1TT."""
    return (position_BT[..., None, :, None] - position_BT[..., None, None, :]).abs()


def visible(query_sequence_BT: Tensor, key_sequence_BS: Tensor) -> Tensor:
    """Return which keys each query may attend to: those of its own sequence. Boolean, shape B1TS.

    Padding (0) sees padding, so that no row of the attention is empty.
    """
    return (query_sequence_BT[:, :, None] == key_sequence_BS[:, None, :])[:, None]


def score_mask(visible_BHTS: Tensor, like: Tensor) -> Tensor | None:
    """Return the mask that is added to the scores: -inf where a key is not visible, 0 elsewhere.

    Its type is the one in which attention over `like` will be computed. Returns None if everything is
    visible. This is only checked on a CPU, because the check would have to wait for a GPU.
    """
    if visible_BHTS.device.type == "cpu" and bool(visible_BHTS.all()):
        return None
    return torch.zeros_like(visible_BHTS, dtype=working_type(like)).masked_fill_(~visible_BHTS, float("-inf"))


UNLIMITED = None
REACH: dict[str, tuple[int | None, int | None]] = {
    "both_sides": (UNLIMITED, UNLIMITED),
    "left_only": (UNLIMITED, 0),
    "itself": (0, 0),
}
"""Numbers of visible tokens to the left and to the right, for each value of `sees` that fixes them."""
EVERYTHING = 2**31 - 1
"""Rank of a query that sees all tokens of its sequence, and of a key that no query sees."""


def visible_in(sequence_BT: Tensor, sees: Sees, window: tuple[int, int]) -> Tensor:
    """Return which tokens of its sequence each token may attend to. Boolean, shape B1TT: queries, keys.

    A token always sees itself.

    Args:
        sequence_BT: number of the sequence in its row, 0 = padding. Padding sees padding.
        window: numbers of visible tokens to the left and to the right, for `sees="window"`.
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
    """Return which keys of its sequence have a lower rank than each query. Boolean, shape B1TT.

    A token also sees itself if its two ranks are equal. The ranks can express any order of the tokens: the
    order of the text, a permutation, or another order for every sentence.
    """
    T = sequence_BT.shape[1]
    earlier_BTT = key_rank_BT[:, None, :] < query_rank_BT[:, :, None]
    itself_TT = torch.eye(T, dtype=torch.bool, device=sequence_BT.device)
    itself_BTT = itself_TT & (key_rank_BT == query_rank_BT)[:, :, None]
    return visible(sequence_BT, sequence_BT) & (earlier_BTT | itself_BTT)[:, None]


class SelfAttention(nn.Module):
    """Attention of the tokens of a row to each other."""

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        width, self.heads = settings.hidden_size, settings.num_attention_heads
        self.dropout = settings.attention_dropout
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, hidden_BTD: Tensor, sight: Sight, place_N: Tensor | None = None) -> Tensor:
        """Return the states after attention within each row. Shape BTD; ND if only the places `place_N` of the
        flattened rows are needed."""
        projected_BTE = self.query_key_value(hidden_BTD)
        if sight.turn_BTHK is not None:
            projected_BTE = turned(projected_BTE, sight.turn_BTHK, heads=self.heads)
        mixed_BTD = attend(
            projected_BTE,
            score_mask_BHTS=sight.score_mask_BHTT,
            heads=self.heads,
            dropout=self.dropout if self.training else 0.0,
        )
        return self.output(mixed_BTD if place_N is None else mixed_BTD.flatten(0, 1)[place_N])


class SourceAttention(nn.Module):
    """Attention of target rows to source rows."""

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


def turned(projected_BTE: Tensor, turn_BTHK: tuple[Tensor, Tensor], *, heads: int) -> Tensor:
    """Return queries, keys and values side by side, with queries and keys turned by `turn_BTHK`.

    In a head of width W, the numbers i and i + W / 2 are a pair. Su et al. 2021 pair neighbours instead,
    which is the same model with its numbers in another order.

    Args:
        turn_BTHK: cosine and sine of the angles (from `turn`).
    """
    query_key, value_BTD = projected_BTE.tensor_split([projected_BTE.shape[-1] // 3 * 2], -1)
    first_BTHK, second_BTHK = query_key.unflatten(-1, (2 * heads, 2, -1)).unbind(-2)
    cosine_BTHK, sine_BTHK = turn_BTHK
    turned_BTHK = (
        first_BTHK * cosine_BTHK - second_BTHK * sine_BTHK,
        second_BTHK * cosine_BTHK + first_BTHK * sine_BTHK,
    )
    return torch.cat([torch.stack(turned_BTHK, -2).flatten(-3).to(value_BTD.dtype), value_BTD], -1)


def attend(*projected: Tensor, score_mask_BHTS: Tensor | None, heads: int, dropout: float = 0.0) -> Tensor:
    """Return scaled dot-product attention over `heads` equal slices of the width; shape BTD.

    Args:
        projected: one tensor with queries, keys and values side by side; or two tensors, the queries, and keys
            and values side by side.
        score_mask_BHTS: numbers that are added to the scores (from `score_mask`).
        dropout: share of the attention weights that is dropped.
    """
    if projected[0].device.type == "cpu" and (projected[0].dtype == torch.bfloat16 or dropout):
        return ProductAttention.apply(score_mask_BHTS, heads, dropout, *projected)
    query, key, value = (
        part.unflatten(-1, (heads, -1)).transpose(1, 2)
        for x, parts in zip(projected, _parts(projected), strict=True)
        for part in x.chunk(parts, dim=-1)
    )
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=score_mask_BHTS, dropout_p=dropout)
    return mixed.transpose(1, 2).flatten(-2)


class ProductAttention(torch.autograd.Function):
    """Scaled dot-product attention as products of whole matrices, with its own gradient, for a CPU.

    On a CPU torch's function takes more than twice as long in bf16 at 128 tokens. With dropout, in any type,
    torch's random draws take most of the time (benchmarks/LOG.md). Dropout of the weights works as in
    `numerics.Dropout`. Letters: Z rows times heads, W width of a head.
    """

    @staticmethod
    def forward(
        ctx: Any, score_mask_BHTS: Tensor | None, heads: int, dropout: float, *projected: Tensor
    ) -> Tensor:
        split = [_split(x, parts, heads) for x, parts in zip(projected, _parts(projected), strict=True)]
        query_ZTW, key_ZSW, value_ZSW = (part for x in split for part in x)
        scores_ZTS = _scaled(query_ZTW, key_ZSW.transpose(1, 2), query_ZTW.shape[-1] ** -0.5)
        if score_mask_BHTS is not None:
            scores_ZTS.unflatten(0, (-1, heads)).add_(score_mask_BHTS)
        share_ZTS = kept_share_ZTS = torch.softmax(scores_ZTS, -1, out=scores_ZTS)
        ctx.heads, ctx.kept_scale = heads, 1.0
        if dropout:
            kept_ZTS, ctx.kept_scale = kept_on_cpu(share_ZTS, dropout)
            kept_share_ZTS = kept_ZTS.mul_(share_ZTS)
        mixed_ZTW = _scaled(kept_share_ZTS, value_ZSW, ctx.kept_scale)
        ctx.save_for_backward(share_ZTS, kept_share_ZTS, mixed_ZTW, *split)
        return _join(mixed_ZTW[None], heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BTD: Tensor) -> tuple[Tensor | None, ...]:
        share_ZTS, kept_share_ZTS, mixed_ZTW, *split = ctx.saved_tensors
        query_ZTW, key_ZSW, value_ZSW = (part for x in split for part in x)
        grads = [torch.empty_like(x) for x in split]
        grad_query, grad_key, grad_value = (part for x in grads for part in x)
        (grad_ZTW,) = _split(grad_BTD, 1, ctx.heads)
        _scaled(kept_share_ZTS.transpose(1, 2), grad_ZTW, ctx.kept_scale, out=grad_value)
        # d score = share (d share - sum over keys of share d share), and the sum equals mixed d mixed.
        common_ZT1 = (mixed_ZTW * grad_ZTW).sum(-1, keepdim=True)
        if kept_share_ZTS is share_ZTS:
            grad_scores_ZTS = torch.baddbmm(common_ZT1, grad_ZTW, value_ZSW.transpose(1, 2), beta=-1).mul_(
                share_ZTS
            )
        else:
            grad_scores_ZTS = _scaled(grad_ZTW, value_ZSW.transpose(1, 2), ctx.kept_scale).mul_(kept_share_ZTS)
            grad_scores_ZTS.addcmul_(share_ZTS, common_ZT1, value=-1)
        scale = query_ZTW.shape[-1] ** -0.5
        _scaled(grad_scores_ZTS, key_ZSW, scale, out=grad_query)
        _scaled(grad_scores_ZTS.transpose(1, 2), query_ZTW, scale, out=grad_key)
        return None, None, None, *(_join(x, ctx.heads) for x in grads)


def _parts(projected: tuple[Tensor, ...]) -> tuple[int, ...]:
    """Return the number of queries, keys and values that stand side by side in each tensor."""
    return (3,) if len(projected) == 1 else (1, 2)


def _scaled(left: Tensor, right: Tensor, scale: float, *, out: Tensor | None = None) -> Tensor:
    """Return the products of two batches of matrices, times `scale`."""
    return torch.baddbmm(left.new_empty(1), left, right, beta=0, alpha=scale, out=out)


def _split(x_BTD: Tensor, parts: int, heads: int) -> Tensor:
    """Split `parts` tensors that are side by side into a matrix per head, shape (parts, B * heads, T, W)."""
    B, T, _ = x_BTD.shape
    return x_BTD.reshape(B, T, parts, heads, -1).permute(2, 0, 3, 1, 4).reshape(parts, B * heads, T, -1)


def _join(split: Tensor, heads: int) -> Tensor:
    """Join the output of `_split` again, shape BTD."""
    parts, rows, T, width = split.shape
    x = split.view(parts, rows // heads, heads, T, width)
    return x.permute(1, 3, 0, 2, 4).reshape(rows // heads, T, -1)
