"""Geometry of the cloud of states: the direction they share, the number of dimensions they spread over, and
how far a layer moves them.

Anisotropy and self-similarity are those of Ethayarajh 2019, https://arxiv.org/abs/1909.00512, sections 3.3
and 3.4. The paper draws pairs at random; we take all pairs. `similarity/sides.py` explains the ranks.

The mean cosine of all pairs of occurrences from different sentences is computed without forming a pair. Let u
be the states at unit length. Over all ordered pairs of some occurrences, each with itself included, the
cosines sum to |sum of u|^2. The pairs within a sentence sum to the same expression over its occurrences,
which is subtracted.

Letters: N occurrences, D width, L + 1 layers, C cells (occurrences of a group in a sentence), P parts (those
of a group in a block), T groups, G blocks.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch.nn.functional import normalize

from ablations.errors import MeasureError
from ablations.measures.jackknife import errors, sentence_blocks
from ablations.measures.neighbours import directions
from ablations.measures.reading.sample import Sample
from ablations.measures.reading.texts import Readings, Say, Texts
from ablations.measures.settings import GeometrySettings
from ablations.measures.similarity.moments import Moments
from ablations.measures.similarity.sides import (
    centred,
    effective_rank,
    or_nan,
    participation_ratio,
    rescaled,
    to_device,
)
from lightning_modules.config import RunSettings
from lightning_modules.randomness import derive

COLUMNS = 64
"""Number of columns held in float64 at once."""


class SentencePairs:
    """All pairs of occurrences of one group that stand in different sentences.

    Args:
        group_N: the group of each occurrence.
        sentence_N: the sentence of each occurrence.
        block_N: the block of whole sentences of each occurrence, from 0 to G - 1, for the jackknife.
    """

    def __init__(
        self, group_N: NDArray[np.integer], sentence_N: NDArray[np.integer], block_N: NDArray[np.integer]
    ) -> None:
        group_N, sentence_N = (np.unique(labels, return_inverse=True)[1] for labels in (group_N, sentence_N))
        blocks = int(block_N.max()) + 1
        _, first, cell_N = np.unique(
            group_N * (sentence_N.max() + 1) + sentence_N, return_index=True, return_inverse=True
        )
        parts, part_C = np.unique(group_N[first] * blocks + block_N[first], return_inverse=True)
        self._group_P, self._block_P = np.divmod(parts, blocks)
        self._of_cells, self._of_parts, self._of_groups = map(_members, (cell_N, part_C, self._group_P))
        self._blocks = blocks
        self._pairs_GT = self._added_up(np.ones((len(group_N), 1)))

    def mean_cosines(self, unit_ND: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the mean cosine of the pairs of a group, averaged over groups; G + 1 numbers.

        The first number is that of all sentences. The others are those without block 0, without block 1, ...
        All groups count the same, and groups without a pair do not count. NaN if no group has a pair.

        Args:
            unit_ND: the states at unit length.
        """
        has_GT = self._pairs_GT > 0
        cosine_GT = np.where(has_GT, self._added_up(unit_ND) / np.maximum(self._pairs_GT, 1), 0)
        groups_G = has_GT.sum(1)
        return np.where(groups_G > 0, cosine_GT.sum(1) / np.maximum(groups_G, 1), np.nan)

    @property
    def occurrences(self) -> int:
        """Number of occurrences that have a pair."""
        count_T = self._of_groups @ self._of_parts @ self._of_cells @ np.ones(self._of_cells.shape[1])
        return int(count_T[self._pairs_GT[0] > 0].sum())

    def _added_up(self, x_ND: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the sum of inner products of all ordered pairs, by group: of all sentences, then without
        each block; G + 1 x T."""
        all_T, change_P = np.zeros(self._of_groups.shape[0]), np.zeros(len(self._group_P))
        for start in range(0, x_ND.shape[1], COLUMNS):
            cell_CD = self._of_cells @ x_ND[:, start : start + COLUMNS].astype(np.float64)
            part_PD = self._of_parts @ cell_CD
            group_TD = self._of_groups @ part_PD
            within_P = self._of_parts @ np.square(cell_CD).sum(1)
            all_T += np.square(group_TD).sum(1) - self._of_groups @ within_P
            # |sum - part|^2 is |sum|^2 plus this. Pairs within the part's sentences are no longer subtracted.
            change_P += ((part_PD - 2 * group_TD[self._group_P]) * part_PD).sum(1) + within_P
        sums_GT = np.tile(all_T, (self._blocks + 1, 1))
        sums_GT[1 + self._block_P, self._group_P] += change_P
        return sums_GT


def _members(label_N: NDArray[np.integer]) -> csr_array:
    """Return a matrix with a 1 if the column's item has the row's label. A product with it sums items by label."""
    ones = np.ones(len(label_N))
    return csr_array((ones, (label_N, np.arange(len(label_N)))), shape=(int(label_N.max()) + 1, len(label_N)))


FEW_BELOW = 10
"""Tokens per dimension below which a count of dimensions is visibly low. The participation ratio of isotropic
data is 1 / (1 + D / N) of the width: 91% at ten tokens per dimension."""

RANKS = {"effective_rank": effective_rank, "participation_ratio": participation_ratio}


class LayerNumber(NamedTuple):
    """Number that describes a layer, with its chance level."""

    value: float
    floor: float
    left_out: Sequence[float] | NDArray[np.float64]
    """The value without block 0, without block 1, ..."""
    n: int
    unit: str = ""


def rows(readings: Readings, settings: GeometrySettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `geometry` of a run from its validation text."""
    reading = readings.texts.validation(settings)
    return geometry(readings.states(reading), reading.sample)


def require(settings: GeometrySettings, texts: Texts, run: RunSettings) -> None:
    """Raise a MeasureError if the text has one sentence."""
    _require_two_sentences(texts.validation(settings).sample)


def geometry(states_LND: list[NDArray[np.float32]], sample: Sample) -> Iterator[dict[str, Any]]:
    """Yield rows by layer: `anisotropy`, `self_similarity`, `effective_rank`, `participation_ratio`,
    `update_norm`.

    `anisotropy`: mean cosine of two occurrences from different sentences. The chance level (`floor`) is that
    of the states minus their mean. It keeps all but the common direction, so value minus floor is the effect
    of that direction. The floor is near 0 if the cloud is symmetric about its mean, and above 0 if the cloud
    is lopsided: long states weigh more in a mean, but not in a cosine. (Random signs also remove the
    direction, but make the number 0 for any cloud.)

    `self_similarity`: mean cosine of two occurrences of a type from different sentences, averaged over types,
    minus the anisotropy, -2 to 2. It is what occurrences of a type have in common beyond what all have. The
    floor has the tokens shuffled among the occurrences and may be negative. A text without a type in two
    sentences has no such rows.

    `effective_rank`, `participation_ratio`: numbers of dimensions. The floor has every column shuffled on its
    own: columns keep their spread and lose what they share. It is no lower bound but the value for
    independent columns. It depends on the basis; the value does not.

    `update_norm`, from layer to layer + 1: mean of |h' - h| / |h|, where h and h' are the states of an
    occurrence. The floor has the occurrences of the upper layer shuffled. The value is below it if tokens
    keep their places.

    Only these shuffles are random, and they are the same in every layer and arm. No setting is needed here.

    Raises:
        MeasureError: a text of one sentence; states that are not finite, 0, or all equal.
    """
    _require_two_sentences(sample)
    block_N = sentence_blocks(sample.sentence_N)
    pairs = _Pairs.of(sample, block_N)
    for layer, states_ND in enumerate(states_LND):
        if (states_ND == states_ND[0]).all():
            raise MeasureError(
                f"geometry is undefined: all {len(states_ND)} states of layer {layer} are equal; "
                f"look for a collapsed run, or leave the measure out."
            )
        for metric, number in (_cosines(states_ND, pairs) | _ranks(states_ND, block_N)).items():
            yield _row(metric, number, width=states_ND.shape[1]) | {"layer": layer}
        if layer + 1 < len(states_LND):
            number = _update_norm(states_ND, states_LND[layer + 1], block_N)
            yield _row("update_norm", number, width=states_ND.shape[1]) | {"layer": layer, "layer_to": layer + 1}


def _require_two_sentences(sample: Sample) -> None:
    if sample.sentence_N[0] == sample.sentence_N[-1]:
        raise MeasureError(
            "geometry compares occurrences in different sentences, but the text has 1 sentence; use more text."
        )


def doubt(tokens: int, *, width: int, remedy: str) -> str | None:
    """Return a sentence that warns of too few tokens for numbers of dimensions; None if the tokens are
    enough.

    Args:
        remedy: how to get more tokens, as the end of the sentence.
    """
    if tokens >= FEW_BELOW * width:
        return None
    return (
        f"geometry: {tokens:,} tokens are fewer than {FEW_BELOW} for each of the {width:,} units of the width, "
        "which bounds or lowers both counts of dimensions; compare them with their floors and the untrained "
        f"twin, and {remedy}."
    )


def _row(metric: str, number: LayerNumber, *, width: int) -> dict[str, Any]:
    return {
        "metric": metric,
        "value": number.value,
        "floor": number.floor,
        **errors(number.left_out),
        "unit": number.unit,
        "n": number.n,
        "d": width,
    }


class _Pairs(NamedTuple):
    """Pairs of occurrences that are compared: any two, two of a type, and two of a shuffled type."""

    of_all: SentencePairs
    of_types: SentencePairs
    of_shuffled_types: SentencePairs

    @classmethod
    def of(cls, sample: Sample, block_N: NDArray[np.int64]) -> "_Pairs":
        shuffled_N = _rng("tokens").permutation(sample.token_N)
        labels = (np.zeros_like(sample.token_N), sample.token_N, shuffled_N)
        return cls(*(SentencePairs(label_N, sample.sentence_N, block_N) for label_N in labels))


def _cosines(states_ND: NDArray[np.float32], pairs: _Pairs) -> dict[str, LayerNumber]:
    unit_ND = directions(states_ND).numpy()
    # A state that equals the mean has no direction left, and its cosines are 0.
    without_mean_ND = normalize(centred(rescaled(torch.from_numpy(states_ND))), dim=1).numpy()
    of_all, n = pairs.of_all.mean_cosines(unit_ND), len(unit_ND)
    floor = pairs.of_all.mean_cosines(without_mean_ND)[0]
    numbers = {"anisotropy": LayerNumber(float(of_all[0]), float(floor), of_all[1:], n)}
    if pairs.of_types.occurrences:
        adjusted = pairs.of_types.mean_cosines(unit_ND) - of_all
        floor = pairs.of_shuffled_types.mean_cosines(unit_ND)[0] - of_all[0]
        n = pairs.of_types.occurrences
        numbers["self_similarity"] = LayerNumber(float(adjusted[0]), float(floor), adjusted[1:], n)
    return numbers


def _ranks(states_ND: NDArray[np.float32], block_N: NDArray[np.int64]) -> dict[str, LayerNumber]:
    parts: list[Moments] = []
    for block in range(int(block_N.max()) + 1):
        parts.append(Moments(pairs=(), origin=parts[0].origin if parts else None))
        parts[-1].add(to_device(states_ND[block_N == block]))
    whole = sum(parts[1:], parts[0])
    left_out = [whole - part for part in parts]
    independent = Moments(pairs=(), origin=whole.origin)
    independent.add(to_device(_rng("columns").permuted(states_ND, axis=0)))
    return {
        metric: LayerNumber(
            value=rank(whole.side(0)),
            floor=rank(independent.side(0)),
            # A count is undefined for one token, and for tokens that are all equal.
            left_out=[or_nan(rank, others.side, 0) if len(others) > 1 else math.nan for others in left_out],
            n=len(states_ND),
            unit="dimensions",
        )
        for metric, rank in RANKS.items()
    }


def _update_norm(
    lower_ND: NDArray[np.float32], upper_ND: NDArray[np.float32], block_N: NDArray[np.int64]
) -> LayerNumber:
    length_N = _lengths(lower_ND)
    update_N = _lengths(upper_ND - lower_ND) / length_N
    shuffled_ND = upper_ND[_rng("occurrences").permutation(len(upper_ND))]
    return LayerNumber(
        value=float(update_N.mean()),
        floor=float((_lengths(shuffled_ND - lower_ND) / length_N).mean()),
        left_out=[float(update_N[block_N != block].mean()) for block in np.unique(block_N)],
        n=len(update_N),
    )


def _lengths(states_ND: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.sqrt(np.einsum("nd,nd->n", states_ND, states_ND, dtype=np.float64))


def _rng(purpose: str) -> np.random.Generator:
    return np.random.default_rng(derive(0, "geometry", purpose))
