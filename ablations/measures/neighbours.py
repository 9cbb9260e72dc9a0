"""What the nearest states have in common with a state: token, position, the tokens beside it, syntax, sense.

Voita, Sennrich & Titov 2019, https://arxiv.org/abs/1909.01380, section 6. Near is what has a high cosine. Where
the paper has CCG supertags and their halves, ours are a word's relation in universal dependencies and what it is
linked with on its left and on its right; senses of homonyms are an addition.

Letters: P occurrences of a pool, K neighbours, D width, L + 1 layers.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablations.measures.jackknife import sentence_blocks, standard_error
from ablations.measures.matrices import to_device
from ablations.measures.nearest import nearest_of_group, nearest_others
from ablations.measures.pools import Pool, pools, rank_in_own, size_of_own
from ablations.measures.sample import Sample
from ablations.measures.settings import NeighboursSettings


def neighbours(
    states_LND: list[NDArray[np.float32]], sample: Sample, settings: NeighboursSettings
) -> Iterator[dict[str, Any]]:
    """Rows by layer: what an occurrence has in common with its nearest others, on average over a pool.

    `same_token`: the share of the nearest in the whole pool that are of its type. The others look at the nearest
    of its own type: `position_distance`, in tokens, lower where the position is better kept; `same_left` and
    `same_right`, the share with the same token beside it; with labels `same_relation`, `same_left_part`,
    `same_right_part` and `same_sense`. What the text has too little of has no rows.

    The floor is exact: what neighbours drawn at random, from those that could be neighbours, have on average. n
    counts the occurrences that ask. For the standard error the occurrences of a block are left out as those that
    ask and as neighbours, without others in their place. Over texts made anew this was 1 to 1.5 times the spread
    of the value; to leave them out as those that ask alone was 0.5 to 0.9 times, since nearness is mutual.

    Raises:
        MeasureError: fewer occurrences of a type than the neighbours take, fewer than two types with as many, or
            states that are not finite or 0.
    """
    block_N = sentence_blocks(sample.sentence_N)
    asking = pools(sample, settings)
    for layer, states_ND in enumerate(states_LND):
        for pool in asking:
            for row in _rows(pool, states_ND[pool.place_P], block_N[pool.place_P]):
                yield row | {"layer": layer}


def _rows(pool: Pool, states_PD: NDArray[np.float32], block_P: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
    if pool.token_P is None:
        nearest_PK = nearest_others(to_device(states_PD), neighbours=pool.neighbours)
    else:
        nearest_PK = nearest_of_group(to_device(states_PD), pool.token_P, neighbours=pool.neighbours)
    score_PK: NDArray[Any]
    for metric, value_P in pool.asked.items():
        if metric == "position_distance":
            score_PK, floor = distance_to(value_P, nearest_PK), chance_of_distance(value_P, pool.token_P)
        else:
            score_PK, floor = same_as(value_P, nearest_PK), chance_of_same(value_P, pool.token_P)
        yield {
            "metric": metric,
            "value": float(score_PK.mean()),
            "floor": floor,
            "standard_error": _error_of_mean(score_PK, nearest_PK, block_P),
            "unit": "tokens" if metric == "position_distance" else "",
            "n": len(score_PK),
            "d": states_PD.shape[1],
        }


def same_as(label_P: NDArray[np.integer], nearest_PK: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Whether each neighbour has the label of the occurrence that asks; P x K."""
    return label_P[nearest_PK] == label_P[:, None]


def chance_of_same(label_P: NDArray[np.integer], group_P: NDArray[np.integer] | None = None) -> float:
    """Expected mean of `same_as` for neighbours drawn at random among all others, or those of the group.

    Each group must have two occurrences or more.
    """
    group_P = np.zeros_like(label_P) if group_P is None else group_P
    label_P = np.unique(label_P, return_inverse=True)[1]
    cell_P = group_P * (label_P.max() + 1) + label_P
    return float(((size_of_own(cell_P) - 1) / (size_of_own(group_P) - 1)).mean())


def distance_to(position_P: NDArray[np.integer], nearest_PK: NDArray[np.integer]) -> NDArray[np.integer]:
    """How far the position of each neighbour is from that of the occurrence that asks; P x K."""
    return np.abs(position_P[nearest_PK] - position_P[:, None])


def chance_of_distance(position_P: NDArray[np.integer], group_P: NDArray[np.integer] | None = None) -> float:
    """Expected mean of `distance_to` for neighbours drawn at random among all others, or those of the group.

    Each group must have two occurrences or more.
    """
    group_P = np.zeros_like(position_P) if group_P is None else group_P
    others_P = size_of_own(group_P) - 1
    # Over the pairs of a group the position of rank r is added r times and subtracted others - r times.
    times_P = 2 * rank_in_own(group_P, position_P) - others_P
    return float((2 * times_P * position_P / others_P).mean())


def _error_of_mean(score_PK: NDArray[Any], nearest_PK: NDArray[np.integer], block_P: NDArray[np.int64]) -> float:
    """By the jackknife over the blocks of those that ask and of their neighbours."""
    left_out = []
    for block in np.unique(block_P):
        kept_P = block_P != block
        kept_PK = kept_P[:, None] & kept_P[nearest_PK]
        left_out.append(score_PK[kept_PK].mean() if kept_PK.any() else np.nan)
    return standard_error(left_out)
