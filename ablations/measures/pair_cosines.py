"""The mean cosine of all pairs of occurrences from different sentences, without looking at a single pair.

With u the states at unit length, the cosines of all ordered pairs of some occurrences, each with itself included,
sum to |sum of u|^2. What pairs within a sentence add to it is the sum over sentences of the same.

Letters: N occurrences, D width, C cells (occurrences of a group in a sentence), P parts (those of a group in a
block), T groups, G blocks.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

COLUMNS = 64
"""Columns held in float64 at once."""


class SentencePairs:
    """All pairs of occurrences that are of one group and stand in different sentences.

    Args:
        group_N: the group of each occurrence.
        sentence_N: its sentence.
        block_N: its block of whole sentences, from 0 to G - 1, for the jackknife.
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
        """The mean over groups, each counting the same, of the mean cosine of their pairs; G + 1 numbers.

        First that of all sentences, then those without block 0, without block 1, ... Groups without a pair do
        not count; NaN where none has any.

        Args:
            unit_ND: the states at unit length.
        """
        has_GT = self._pairs_GT > 0
        cosine_GT = np.where(has_GT, self._added_up(unit_ND) / np.maximum(self._pairs_GT, 1), 0)
        groups_G = has_GT.sum(1)
        return np.where(groups_G > 0, cosine_GT.sum(1) / np.maximum(groups_G, 1), np.nan)

    @property
    def occurrences(self) -> int:
        """How many have a pair."""
        count_T = self._of_groups @ self._of_parts @ self._of_cells @ np.ones(self._of_cells.shape[1])
        return int(count_T[self._pairs_GT[0] > 0].sum())

    def _added_up(self, x_ND: NDArray[np.floating]) -> NDArray[np.float64]:
        """The inner products of all ordered pairs, by group; then without each of the blocks; G + 1 x T."""
        all_T, change_P = np.zeros(self._of_groups.shape[0]), np.zeros(len(self._group_P))
        for start in range(0, x_ND.shape[1], COLUMNS):
            cell_CD = self._of_cells @ x_ND[:, start : start + COLUMNS].astype(np.float64)
            part_PD = self._of_parts @ cell_CD
            group_TD = self._of_groups @ part_PD
            within_P = self._of_parts @ np.square(cell_CD).sum(1)
            all_T += np.square(group_TD).sum(1) - self._of_groups @ within_P
            # |sum - part|^2 is |sum|^2 and this, and pairs within the part's sentences are no longer subtracted.
            change_P += ((part_PD - 2 * group_TD[self._group_P]) * part_PD).sum(1) + within_P
        sums_GT = np.tile(all_T, (self._blocks + 1, 1))
        sums_GT[1 + self._block_P, self._group_P] += change_P
        return sums_GT


def _members(label_N: NDArray[np.integer]) -> csr_array:
    """A 1 where the column's item has the row's label: sums by label when multiplied."""
    ones = np.ones(len(label_N))
    return csr_array((ones, (label_N, np.arange(len(label_N)))), shape=(int(label_N.max()) + 1, len(label_N)))
