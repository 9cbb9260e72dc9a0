"""Which tokens each token may attend to.

Letters: B rows, T positions, H heads (one for all).
"""

import torch
from torch import Tensor

from lightning_modules.attention import visible
from lightning_modules.config import Sees

UNLIMITED = None
REACH: dict[str, tuple[int | None, int | None]] = {
    "both_sides": (UNLIMITED, UNLIMITED),
    "left_only": (UNLIMITED, 0),
    "itself": (0, 0),
}
"""How far to the left and to the right, in tokens."""
EVERYTHING = 2**31 - 1
"""Rank, as a query, of a token that sees all of its sequence; as a key, of one that nothing sees."""


def visible_in(sequence_BT: Tensor, sees: Sees, window: tuple[int, int]) -> Tensor:
    """Those of its own sequence, itself always, as far as `sees` allows. Boolean, shape B1TT: queries, keys.

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
    """Those of its own sequence whose rank as a key is below its own as a query, and itself where its two ranks
    are equal. Boolean, shape B1TT.

    Any sight that is an order of the tokens: that of the text, a permutation, one of its own for every sentence.
    """
    T = sequence_BT.shape[1]
    earlier_BTT = key_rank_BT[:, None, :] < query_rank_BT[:, :, None]
    itself_TT = torch.eye(T, dtype=torch.bool, device=sequence_BT.device)
    itself_BTT = itself_TT & (key_rank_BT == query_rank_BT)[:, :, None]
    return visible(sequence_BT, sequence_BT) & (earlier_BTT | itself_BTT)[:, None]
