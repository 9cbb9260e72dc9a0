"""Nearest neighbours of a state and what they share with it: token, position, adjacent tokens, syntax, sense.

Source: Voita, Sennrich & Titov 2019, https://arxiv.org/abs/1909.01380, section 6. Near means a high cosine.
The paper has CCG supertags and their halves. We have a word's relation in universal dependencies and its
syntactic links on the left and on the right. Senses of homonyms are an addition.

The same occurrences are compared in every layer and arm; the text alone decides which. All similarities are
computed, but only a block of rows at a time and never as an N x N matrix. Beside the directions and the
result, memory holds BLOCK similarities of 4 bytes.

Letters: N occurrences of the sample, P occurrences of a pool, K neighbours, D width, L + 1 layers, V token
types, C pairs of a type and a sense, B rows of a block.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.jackknife import errors, sentence_blocks
from ablations.measures.reading.sample import NO_LABEL, Sample
from ablations.measures.reading.texts import Readings, Say, Texts
from ablations.measures.settings import NeighboursSettings
from ablations.measures.similarity.sides import Matrix, as_matrix, to_device
from ablations.wording import times
from lightning_modules.config import RunSettings
from lightning_modules.randomness import derive, uniforms

BLOCK = 2**22
"""Number of similarities held at once."""


def nearest_others(states_ND: Matrix, *, neighbours: int) -> NDArray[np.int64]:
    """Return the rows of highest cosine similarity to each row, without the row itself: N x K indices,
    nearest first.

    The computation is in float32, on the device of the states. The mean of the states is not subtracted, and
    the lengths of rows do not count. `torch.topk` decides the order of equal similarities. Another machine
    may decide otherwise, also for similarities that differ by 1e-7.

    Raises:
        MeasureError: no finite matrix, a row of zeros, or `neighbours` not from 1 to N - 1.
    """
    return _nearest(directions(states_ND), neighbours)


def nearest_of_group(states_ND: Matrix, group_N: NDArray[np.integer], *, neighbours: int) -> NDArray[np.int64]:
    """Return for each row the nearest rows of its own group, as `nearest_others` does: indices into all rows,
    shape NK.

    Raises:
        MeasureError: as `nearest_others`, and for a group of fewer than K + 1 rows.
    """
    unit_ND = directions(states_ND)
    nearest_NK = np.empty((len(unit_ND), max(0, neighbours)), np.int64)
    _, group_N, sizes = np.unique(group_N, return_inverse=True, return_counts=True)
    for place in np.split(np.argsort(group_N, kind="stable"), sizes.cumsum()[:-1]):
        rows = torch.from_numpy(place).to(unit_ND.device)
        nearest_NK[place] = place[_nearest(unit_ND[rows], neighbours)]
    return nearest_NK


def directions(states_ND: Matrix) -> Tensor:
    """Return the rows at unit length, in float32, on the device of the states.

    Raises:
        MeasureError: no finite matrix, or a row of zeros, which has no direction.
    """
    x_ND = as_matrix(states_ND, name="states", single=True)
    largest_N1 = x_ND.abs().amax(1, keepdim=True)
    if (zero := largest_N1 == 0).any():
        raise MeasureError(
            f"a cosine needs states that are not 0, but all values are 0 in {int(zero.sum())} of {len(x_ND)} "
            f"rows, first in row {int(zero[:, 0].nonzero()[0])}; leave these tokens out."
        )
    x_ND = (x_ND / largest_N1).float()  # so that no square overflows or vanishes
    return x_ND / x_ND.norm(dim=1, keepdim=True)


def _nearest(unit_ND: Tensor, neighbours: int) -> NDArray[np.int64]:
    n = len(unit_ND)
    if not 1 <= neighbours < n:
        raise MeasureError(
            f"neighbours must be at least 1 and less than the number of tokens, {n}, but is {neighbours}; use "
            f"more tokens or fewer neighbours."
        )
    nearest = []
    for row_B in torch.arange(n, device=unit_ND.device).split(max(1, BLOCK // n)):
        similarity_BN = (unit_ND[row_B] @ unit_ND.T).scatter_(1, row_B[:, None], -torch.inf)
        nearest.append(similarity_BN.topk(neighbours, dim=1).indices.cpu())
    return torch.cat(nearest).numpy()


OTHERS = 2
"""Number of other occurrences of its type that an occurrence must have for each neighbour. If it has fewer,
most of them are neighbours, and what they share is near chance level wherever the states lie."""

SYNTAX = {"same_relation": "relation", "same_left_part": "left_part", "same_right_part": "right_part"}
"""Label behind each metric of syntax. Occurrences without the label are left out."""


class Pool(NamedTuple):
    """Occurrences that are compared with their nearest others in the pool."""

    place_P: NDArray[np.int64]
    """Places in the sample, in random order. Among equal states the first are taken as neighbours, and these
    must not be the start of the text."""
    token_P: NDArray[np.int64] | None
    """Token of each occurrence, which its neighbours must have too. None: neighbours may have any token."""
    neighbours: int
    """Number of nearest neighbours."""
    compared: Mapping[str, NDArray[np.int64]]
    """Values by metric, one for each occurrence, that are compared with those of its neighbours."""


def rows(readings: Readings, settings: NeighboursSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `neighbours` of a run from its validation text. Rows of syntax come from the
    treebank if one is named."""
    reading = readings.texts.validation(settings)
    yield from neighbours(readings.states(reading), reading.sample, settings)
    if settings.treebank is not None:
        labelled = readings.texts.treebank(settings.treebank, settings)
        of_treebank = neighbours(readings.states(labelled), labelled.sample, settings)
        yield from (row for row in of_treebank if row["metric"] in SYNTAX)


def require(settings: NeighboursSettings, texts: Texts, run: RunSettings) -> None:
    """Raise a MeasureError if the text or the treebank has too few occurrences of its frequent tokens."""
    require_occurrences(texts.validation(settings).sample, settings)
    if settings.treebank is not None:
        require_occurrences(texts.treebank(settings.treebank, settings).sample, settings)


def require_occurrences(sample: Sample, settings: NeighboursSettings) -> None:
    """Raise a MeasureError if fewer than two types have as many occurrences as the pool takes of each."""
    types = types_within(sample, settings)
    if types < 2:
        second = np.sort(np.bincount(sample.token_N, minlength=2))[-2]
        raise MeasureError(
            f"neighbours needs 2 types with {settings.occurrences} occurrences or more, but the text has "
            f"{types}, and its second most frequent type occurs {times(second)}; use more text, or lower the "
            "measure's `occurrences`."
        )


def types_within(sample: Sample, settings: NeighboursSettings) -> int:
    """Return the number of types of the pool: that of the settings, or fewer if fewer have enough occurrences."""
    return len(_types(sample, settings))


def pools(sample: Sample, settings: NeighboursSettings) -> list[Pool]:
    """Return the pools of all metrics for which the sample has enough text.

    Raises:
        MeasureError: as `require_occurrences`.
    """
    require_occurrences(sample, settings)
    place_P, k = _of_types(sample, settings), settings.neighbours_of_type
    within_types = {
        "position_distance": sample.position_N,
        "same_left": sample.left_N,
        "same_right": sample.right_N,
    }
    candidates = [
        Pool(place_P, None, settings.neighbours, {"same_token": sample.token_N[place_P]}),
        _within_types(sample, place_P, k, within_types),
    ]
    for metric, label in SYNTAX.items():
        if label in sample.labels:
            label_N = sample.labels[label]
            known_P = place_P[label_N[place_P] != NO_LABEL]
            candidates.append(_within_types(sample, known_P, k, {metric: label_N}))
    if "sense" in sample.labels:
        place_P = _of_senses(sample, settings)
        candidates.append(_within_types(sample, place_P, k, {"same_sense": sample.labels["sense"]}))
    return [pool for pool in candidates if len(pool.place_P)]


def label_counts(label_N: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return for each occurrence the number of occurrences with the same label."""
    _, own_N, sizes = np.unique(label_N, return_inverse=True, return_counts=True)
    return sizes[own_N]


def rank_within_label(label_N: NDArray[np.integer], by_N: NDArray[Any]) -> NDArray[np.int64]:
    """Return the rank of each occurrence, from 0, among those of its label: by ascending value, then by place."""
    order = np.lexsort((by_N, label_N))
    _, start, own_N = np.unique(label_N[order], return_index=True, return_inverse=True)
    rank_N = np.empty(len(order), np.int64)
    rank_N[order] = np.arange(len(order)) - start[own_N]
    return rank_N


def _within_types(
    sample: Sample, place_P: NDArray[np.int64], neighbours: int, compared: Mapping[str, NDArray[np.int64]]
) -> Pool:
    """Return the pool of the types that have enough occurrences at these places."""
    place_P = place_P[label_counts(sample.token_N[place_P]) > OTHERS * neighbours]
    values = {metric: value_N[place_P] for metric, value_N in compared.items()}
    return Pool(place_P, sample.token_N[place_P], neighbours, values)


def _of_types(sample: Sample, settings: NeighboursSettings) -> NDArray[np.int64]:
    """Draw `occurrences` places of each type of the pool, in random order."""
    chance_N = _chances(sample)
    drawn_N = rank_within_label(sample.token_N, chance_N) < settings.occurrences
    place_P = np.flatnonzero(drawn_N & np.isin(sample.token_N, _types(sample, settings)))
    return place_P[np.argsort(chance_N[place_P])]


def _of_senses(sample: Sample, settings: NeighboursSettings) -> NDArray[np.int64]:
    """Draw equally many occurrences of the two most frequent senses of each type with two senses, in random
    order.

    Each sense has more occurrences than there are neighbours, and at most `occurrences`. With senses as
    frequent as in the text, most neighbours would have the common sense wherever the states lie, and the mean
    would show how uneven the senses are. With equally many, a share above chance level means that the senses
    lie apart.
    """
    labelled = np.flatnonzero(sample.labels["sense"] != NO_LABEL)
    token_P, sense_P = sample.token_N[labelled], sample.labels["sense"][labelled]
    chance_P = _chances(sample)[labelled]
    cell_P = token_P * (sense_P.max(initial=0) + 1) + sense_P
    _, first, own_P, sizes = np.unique(cell_P, return_index=True, return_inverse=True, return_counts=True)
    rank_C = rank_within_label(token_P[first], -sizes)  # 0 is the most frequent sense of its type
    token_V, each_V = token_P[first][rank_C == 1], sizes[rank_C == 1].clip(max=settings.occurrences)
    kept_V = _spread(token_V[each_V > settings.neighbours_of_type], sample, settings.types)
    drawn = np.flatnonzero(np.isin(token_P, kept_V) & (rank_C[own_P] <= 1))
    each = each_V[np.searchsorted(token_V, token_P[drawn])]
    drawn = drawn[rank_within_label(cell_P, chance_P)[drawn] < each]
    return labelled[drawn[np.argsort(chance_P[drawn])]]


def _types(sample: Sample, settings: NeighboursSettings) -> NDArray[np.int64]:
    token_V, counts = np.unique(sample.token_N, return_counts=True)
    return _spread(token_V[counts >= settings.occurrences], sample, settings.types)


def _spread(token_V: NDArray[np.int64], sample: Sample, types: int) -> NDArray[np.int64]:
    """Return at most `types` of the types, spread evenly over their frequency ranks. The ranks are cut into
    equal parts, and the middle type of each part is taken."""
    known_V, first = np.unique(sample.token_N, return_index=True)
    rank_V = sample.rank_N[first[np.searchsorted(known_V, token_V)]]
    parts = min(types, len(token_V))
    return token_V[np.argsort(rank_V)][(2 * np.arange(parts) + 1) * len(token_V) // (2 * parts or 1)]


def _chances(sample: Sample) -> NDArray[np.float64]:
    """Return a random number for each occurrence. It depends only on the place of the occurrence in the text."""
    return uniforms(derive(0, "neighbours"), sample.sentence_N, sample.position_N)


def neighbours(
    states_LND: list[NDArray[np.float32]], sample: Sample, settings: NeighboursSettings
) -> Iterator[dict[str, Any]]:
    """Yield rows by layer: what an occurrence shares with its nearest neighbours, on average over a pool.

    * `same_token`: share of the nearest in the whole pool that are of its type.
    * `position_distance`: distance in tokens to the positions of the nearest of its own type. It is lower
      where the states keep the position better.
    * `same_left`, `same_right`: share of the nearest of its own type with the same token on that side.
    * `same_relation`, `same_left_part`, `same_right_part`, `same_sense`: share of the nearest of its own type
      with the same label, if there are labels.

    A metric has no rows if the text has too few occurrences for it. The chance level (`floor`) is exact: the
    expectation for neighbours drawn at random from those that could be neighbours. n counts the occurrences
    whose neighbours are looked up.

    For the standard error the occurrences of a block are left out, and also as neighbours of others; nothing
    takes their place. Over newly generated texts this error was 1 to 1.5 times the spread of the value. If they
    stayed as neighbours, it would be only 0.5 to 0.9 times the spread, since nearness is mutual.

    Raises:
        MeasureError: fewer occurrences of a type than neighbours to look up, fewer than two types with enough
            occurrences, or states that are not finite or 0.
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
    for metric, value_P in pool.compared.items():
        if metric == "position_distance":
            score_PK, floor = distance_to(value_P, nearest_PK), chance_of_distance(value_P, pool.token_P)
        else:
            score_PK, floor = same_as(value_P, nearest_PK), chance_of_same(value_P, pool.token_P)
        yield {
            "metric": metric,
            "value": float(score_PK.mean()),
            "floor": floor,
            **errors(_means_left_out(score_PK, nearest_PK, block_P)),
            "unit": "tokens" if metric == "position_distance" else "",
            "n": len(score_PK),
            "d": states_PD.shape[1],
        }


def same_as(label_P: NDArray[np.integer], nearest_PK: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return whether each neighbour has the same label as its occurrence; P x K."""
    return label_P[nearest_PK] == label_P[:, None]


def chance_of_same(label_P: NDArray[np.integer], group_P: NDArray[np.integer] | None = None) -> float:
    """Return the expected mean of `same_as` for neighbours drawn at random among all others, or those of the
    group.

    Each group must have two occurrences or more.
    """
    group_P = np.zeros_like(label_P) if group_P is None else group_P
    label_P = np.unique(label_P, return_inverse=True)[1]
    cell_P = group_P * (label_P.max() + 1) + label_P
    return float(((label_counts(cell_P) - 1) / (label_counts(group_P) - 1)).mean())


def distance_to(position_P: NDArray[np.integer], nearest_PK: NDArray[np.integer]) -> NDArray[np.integer]:
    """Return the distance between the positions of each neighbour and of its occurrence; P x K."""
    return np.abs(position_P[nearest_PK] - position_P[:, None])


def chance_of_distance(position_P: NDArray[np.integer], group_P: NDArray[np.integer] | None = None) -> float:
    """Return the expected mean of `distance_to` for neighbours drawn at random among all others, or those of the
    group.

    Each group must have two occurrences or more.
    """
    group_P = np.zeros_like(position_P) if group_P is None else group_P
    others_P = label_counts(group_P) - 1
    # Over the pairs of a group, the position of rank r is added r times and subtracted (others - r) times.
    times_P = 2 * rank_within_label(group_P, position_P) - others_P
    return float((2 * times_P * position_P / others_P).mean())


def _means_left_out(
    score_PK: NDArray[Any], nearest_PK: NDArray[np.integer], block_P: NDArray[np.int64]
) -> list[float]:
    """Return the mean score without each block, whose occurrences are left out also as neighbours."""
    left_out = []
    for block in np.unique(block_P):
        kept_P = block_P != block
        kept_PK = kept_P[:, None] & kept_P[nearest_PK]
        left_out.append(score_PK[kept_PK].mean() if kept_PK.any() else np.nan)
    return left_out
