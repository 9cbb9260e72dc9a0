"""Sums over tokens that `Moments` are made of, and the side of a comparison that they give.

Shapes: N tokens of a batch, D and E features of two sides, K and J principal components, L sides, F = L + 1, M
columns: the features of all sides, each side's squared row length, and 1.
"""

from collections.abc import Collection, Iterator, Sequence
from copy import copy
from functools import cached_property
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.similarity.sides import MIXED, AnySide, Matrix, Principal, as_tensor, rank_of

BLOCK_ROWS = 2048
"""Tokens held in float64 at once."""

Pair = tuple[int, int]
"""Pair of sides, the lower first."""


class Sums:
    """Sums in float64, on the device of the origin. With x and y the rows of two sides less their origins: of x,
    |x|^2, |x|^2 |y|^2 and |x|^2 y for all sides, of x y' for the pairs that are kept.

    Args:
        origin: a vector for each side.
        pairs: the pairs kept; all, where it is None. Each side with itself is kept in any case.
    """

    @torch.inference_mode(False)  # or what is made in that mode could not be added to outside of it
    def __init__(self, origin: Sequence[Tensor], pairs: Collection[Pair] | None) -> None:
        self.origin = tuple(vector_D.to(origin[0].device) for vector_D in origin)
        self.tokens = 0
        sides, ends = range(len(origin)), [0, *accumulate(map(len, origin))]
        self._columns = [slice(*bounds) for bounds in pairwise(ends)]
        # Lengths and 1 are columns beside the features, so that their sums are products too.
        self._beside_FM = origin[0].new_zeros(len(sides) + 1, ends[-1] + len(sides) + 1)
        self._products: list[Tensor] = []
        self._place: dict[Pair, tuple[int, slice]] = {}
        self._runs: list[tuple[slice, slice]] = []
        for i in sides:
            for first, stop in _runs([j for j in sides[i:] if j == i or pairs is None or (i, j) in pairs]):
                for j in range(first, stop):
                    self._place[i, j] = len(self._runs), slice(ends[j] - ends[first], ends[j + 1] - ends[first])
                # One product with neighbouring sides is faster than one with each.
                self._runs.append((self._columns[i], slice(ends[first], ends[stop])))
                self._products.append(origin[0].new_zeros(len(origin[i]), ends[stop] - ends[first]))

    def add(self, sides_ND: Sequence[Matrix]) -> None:
        """Add a batch of any size: the same tokens in each side."""
        rows = len(sides_ND[0])
        held_NM = self._beside_FM.new_ones(min(BLOCK_ROWS, rows), self._beside_FM.shape[1])
        for start in range(0, rows, BLOCK_ROWS):
            block_NM = held_NM[: rows - start]
            for i, (values, columns) in enumerate(zip(sides_ND, self._columns, strict=True)):
                side_ND = as_tensor(values[start : start + BLOCK_ROWS], name=f"side {i}").to(self.origin[i].device)
                torch.sub(side_ND, self.origin[i], out=block_NM[:, columns])
                block_NM[:, self._length_column(i)] = block_NM[:, columns].square().sum(1)
            self._beside_FM.addmm_(block_NM[:, self._columns[-1].stop :].T, block_NM)
            for product_DW, (left, right) in zip(self._products, self._runs, strict=True):
                product_DW.addmm_(block_NM[:, left].T, block_NM[:, right])
        self.tokens += rows

    @torch.inference_mode(False)
    def combined(self, other: "Sums", *, sign: int) -> "Sums":
        """Return these sums plus `sign` times the others, which have the same origin and pairs, on the device of
        these."""
        result = copy(self)
        result.tokens = self.tokens + sign * other.tokens
        device = self._beside_FM.device
        result._beside_FM = torch.add(self._beside_FM, other._beside_FM.to(device), alpha=sign)
        both = zip(self._products, other._products, strict=True)
        result._products = [torch.add(mine, theirs.to(device), alpha=sign) for mine, theirs in both]
        return result

    def holds(self, i: int, j: int) -> bool:
        """Return whether the product of two sides is kept."""
        return (min(i, j), max(i, j)) in self._place

    def product_DE(self, i: int, j: int) -> Tensor:
        """Return the sum of x y'."""
        if i > j:
            return self.product_DE(j, i).T
        place, columns = self._place[i, j]
        return self._products[place][:, columns]

    def sum_D(self, i: int) -> Tensor:
        """Return the sum of x."""
        return self._beside_FM[-1, self._columns[i]]

    def length(self, i: int) -> Tensor:
        """Return the sum of |x|^2."""
        return self._beside_FM[-1, self._length_column(i)]

    def lengths(self, i: int, j: int) -> Tensor:
        """Return the sum of |x|^2 |y|^2."""
        return self._beside_FM[i, self._length_column(j)]

    def weighted_E(self, i: int, j: int) -> Tensor:
        """Return the sum of |x|^2 y."""
        return self._beside_FM[i, self._columns[j]]

    def _length_column(self, i: int) -> int:
        return self._columns[-1].stop + i


def _runs(ascending: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of consecutive numbers, each as its first and the one after its last."""
    first = ascending[0]
    for number, following in zip(ascending, [*ascending[1:], None], strict=True):
        if following != number + 1:
            yield first, number + 1
            first = following or 0


SMALLEST = 1e-70
"""Standard deviation whose fourth power is still precise."""

FARTHEST = 10
"""Standard deviations between means and origin: there squares have lost two of their 16 digits, fourth powers
four."""


class MomentSide(AnySide):
    """Side over the tokens that were added before it was made, scaled to a sum of squares of 1.

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
