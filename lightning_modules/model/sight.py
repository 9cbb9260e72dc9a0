"""Sight: which tokens a token sees, and how attention knows where they stand.

Letters: B rows, T positions that query, S positions that are attended to, H heads (one where all are alike), K
pairs of numbers of a head.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_modules.config import EncoderSettings, Sees
from lightning_modules.model.numerics import working_type


class Sight(NamedTuple):
    """Knowledge of self-attention about pairs of tokens; the same in every block."""

    score_mask_BHTT: Tensor | None
    """What is added to the scores: -inf where a key is not visible; elsewhere 0, or with `positions: alibi` the
    distance as a negative number. None where nothing is added."""
    turn_BTHK: tuple[Tensor, Tensor] | None = None
    """With `positions: rotary`, the angles of `turn`."""


def sight_of(
    settings: EncoderSettings, visible_BHTT: Tensor, like: Tensor, position_BT: Tensor | None = None
) -> Sight:
    """Return what self-attention over `like` knows: which keys are visible, less those outside
    `encoder.attention_window`, and the places that `encoder.positions` gives it.

    Args:
        position_BT: position of each token inside its sequence, counted from the left of the row unless given.
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
    """Return cosine and sine of the angles by which queries and keys are turned, shape BTHK alike for all heads.

    For pair k, from 0, of a head of width W the angle is the position times 10,000^(-2k / W) (Su et al. 2021,
    section 3.2.2). The product of a query and a key then depends on the difference of their positions.
    """
    rate_K = 1e4 ** (-torch.arange(0, width, 2, dtype=dtype, device=position_BT.device) / width)
    angle_BTHK = position_BT[..., None, None] * rate_K
    return angle_BTHK.cos(), angle_BTHK.sin()


def distances(position_BT: Tensor, *, heads: int, dtype: torch.dtype) -> Tensor:
    """Return what ALiBi adds to the scores, shape BHTT: minus the distance of two positions, times 2^(-8h / H) for
    head h, counted from 1 (Press et al. 2022, section 3).

    The paper's tokens see only what stands left of them. Here distances count alike on both sides: they do not
    tell left from right, but the distances to START and to END do. For a number of heads that is no power of two
    this is still the formula of the paper; its code then takes other slopes.
    """
    slope_H = 2.0 ** (-8 * torch.arange(1, heads + 1, dtype=dtype, device=position_BT.device) / heads)
    return -slope_H[:, None, None] * _distance(position_BT)


def within(visible_BHTT: Tensor, position_BT: Tensor, window: int) -> Tensor:
    """Return which visible tokens are at most `window` positions away (the sliding window of Beltagy et al. 2020).

    A token that would see nothing sees itself. Without that, the queries of permutation LM could be blind.
    """
    near_BHTT = visible_BHTT & (_distance(position_BT) <= window)
    itself_TT = torch.eye(visible_BHTT.shape[-1], dtype=torch.bool, device=visible_BHTT.device)
    return near_BHTT | (itself_TT & ~near_BHTT.any(-1, keepdim=True))


def _distance(position_BT: Tensor) -> Tensor:
    """Return the distance of each two positions of a row, shape B1TT."""
    return (position_BT[..., None, :, None] - position_BT[..., None, None, :]).abs()


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
