"""One side of `Moments`: what the similarities need of it, from sums over tokens.

Shapes: D and E features of two sides, K and J principal components.
"""

from functools import cached_property

import torch
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.sides import MIXED, AnySide, Principal, rank_of
from ablations.measures.sums import Sums

SMALLEST = 1e-70
"""Standard deviation whose fourth power is still precise."""

FARTHEST = 10
"""Standard deviations between means and origin: there squares have lost two of their 16 digits, fourth powers
four."""


class MomentSide(AnySide):
    """A side over the tokens that were added before it was asked for, scaled to a sum of squares of 1.

    Raises:
        MeasureError: means too far from the origin, or hardly any variance.
    """

    def __init__(self, sums: Sums, index: int) -> None:
        self._sums, self._index, self._tokens = sums, index, sums.tokens
        self._offset_D = sums.sum_D(index) / sums.tokens
        """Means less origin."""
        of_means = sums.tokens * self._offset_D.square().sum().item()
        squares = sums.length(index).item() - of_means if sums.tokens > 1 else 0.0
        if sums.tokens > 1 and of_means > FARTHEST**2 * squares:
            raise MeasureError(
                f"Side {index} varies too little for precise sums: its means are more than {FARTHEST} standard "
                f"deviations from the origin; give an `origin` near the means."
            )
        if 0 < squares < sums.tokens * SMALLEST**2:
            raise MeasureError(
                f"Side {index} varies too little for precise sums: by less than {SMALLEST:g}; divide it by its "
                f"largest absolute value."
            )
        self._scale = squares**-0.5 if squares else 1.0
        self._squares = float(squares > 0)
        self.mean_D = self._scale * (sums.origin[index] + self._offset_D)

    def __len__(self) -> int:
        return self._tokens

    @property
    def width(self) -> int:
        return len(self._offset_D)

    @property
    def squared_length(self) -> Tensor:
        return self._offset_D.new_tensor(self._squares)

    @cached_property
    def _gram_DD(self) -> Tensor:
        return self._centred_product(self)

    @cached_property
    def principal(self) -> Principal:
        # Eigenvectors, smallest first. A Cholesky factor would do with full rank only.
        variance_D, axes_DD = torch.linalg.eigh(self._gram_DD.cpu())
        singular_D = variance_D.flip(0).clamp(min=0).sqrt()
        rank = rank_of(singular_D)
        return Principal(singular_D[:rank], axes_DD.T.flip(0)[:rank])

    def cross(self, other: "MomentSide") -> Tensor:
        return self._gram_DD if self is other else self._centred_product(other)

    def overlap(self, other: "MomentSide") -> Tensor:
        mine, theirs = self.principal, other.principal
        inner_KJ = mine.axes_KD @ self.cross(other).cpu() @ theirs.axes_KD.T
        return inner_KJ / mine.singular_K[:, None] / theirs.singular_K

    def lengths_with(self, other: "MomentSide") -> Tensor:
        # The sum of (|x|^2 - 2 m'x + |m|^2) (|y|^2 - 2 p'y + |p|^2), m and p being the offsets.
        sums, i, j, m_D, p_E = self._sums, self._index, other._index, self._offset_D, other._offset_D
        m_squared, p_squared = m_D.square().sum(), p_E.square().sum()
        total = sums.lengths(i, j) - 2 * sums.weighted_E(i, j) @ p_E - 2 * sums.weighted_E(j, i) @ m_D
        total += p_squared * sums.length(i) + m_squared * sums.length(j)
        total += 4 * m_D @ sums.product_DE(i, j) @ p_E - 3 * self._tokens * m_squared * p_squared
        return self._scale**2 * other._scale**2 * total

    def require_comparable(self, other: AnySide, *, measure: str) -> None:
        if not isinstance(other, MomentSide):
            raise MeasureError(MIXED.format(measure=measure))
        if other._sums is not self._sums:
            raise MeasureError(
                f"{measure} compares sides of the same Moments, but x and y are of different ones; add the "
                f"batches of both to the same Moments."
            )
        if not self._sums.holds(self._index, other._index):
            raise MeasureError(
                f"{measure} needs sides {self._index} and {other._index}, but these Moments do not keep that "
                f"pair; name it in `pairs`."
            )
        for side in (self, other):
            side._require_current()

    def _require_current(self) -> None:
        if self._tokens != self._sums.tokens:
            raise MeasureError(
                f"Side {self._index} was asked for when the number of tokens was {self._tokens}, but now it is "
                f"{self._sums.tokens}; ask for it again."
            )

    def _centred_product(self, other: "MomentSide") -> Tensor:
        self._require_current()
        product_DE = self._sums.product_DE(self._index, other._index)
        means_DE = self._tokens * torch.outer(self._offset_D, other._offset_D)
        return self._scale * other._scale * (product_DE - means_DE)
