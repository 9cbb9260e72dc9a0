"""Similarities of more tokens than memory holds: sums over batches take the place of matrices.

For two sides the similarities need X'Y, the means, and the sum over tokens of the products of their rows'
squared lengths. `Moments` adds these sums up in float64, batch by batch, relative to a fixed origin near the
means. A side centres them. Memory does not depend on the number of tokens.

Precision: sums of squares know a direction by its variance. A direction whose singular value is the share s
of the largest is known to about 1e-16 / s^2 of its size: 1e-10 at s = 1e-3, but 1e-4 at the cut-off of 1e-6,
where it may fall on either side. Directions made by rounding alone stay below 1e-7 and are always cut off. A
matrix in memory keeps ten digits at the cut-off.

Shapes: N tokens, D and E features of two sides, K and J principal components, L sides, F = L + 1, M columns:
the features of all sides, each side's squared row length, and 1.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.similarity.sides import (
    MIXED,
    AnySide,
    Matrix,
    Principal,
    UndefinedError,
    as_matrix,
    as_tensor,
    rank_of,
)

BLOCK_ROWS = 2048
"""Number of tokens held in float64 at once."""

Pair = tuple[int, int]
"""Pair of sides, the lower first."""

LARGEST_VALUE = 1e70
"""Largest absolute value: its fourth power may be summed over any text."""


class Sums:
    """Sums over tokens in float64, on the device of the origin.

    Let x and y be the rows of two sides minus their origins. The sums are those of x, |x|^2, |x|^2 |y|^2 and
    |x|^2 y for all sides, and of x y' for the pairs that are kept.

    Args:
        origin: a vector for each side.
        pairs: the pairs to keep; None keeps all. Each side is always kept with itself.
    """

    @torch.inference_mode(False)  # tensors made in inference mode could not be added to outside of it
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
                # One product with several neighbouring sides is faster than one with each.
                self._runs.append((self._columns[i], slice(ends[first], ends[stop])))
                self._products.append(origin[0].new_zeros(len(origin[i]), ends[stop] - ends[first]))

    def add(self, sides_ND: Sequence[Matrix]) -> None:
        """Add a batch of any size, with the same tokens in each side."""
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
        """Return these sums plus `sign` times those of `other`, on the device of these sums. Both have the same
        origin and pairs."""
        result = copy(self)
        result.tokens = self.tokens + sign * other.tokens
        device = self._beside_FM.device
        result._beside_FM = torch.add(self._beside_FM, other._beside_FM.to(device), alpha=sign)
        both = zip(self._products, other._products, strict=True)
        result._products = [torch.add(left, right.to(device), alpha=sign) for left, right in both]
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
    """Yield the runs of consecutive numbers, each as its first number and the number after its last."""
    first = ascending[0]
    for number, following in zip(ascending, [*ascending[1:], None], strict=True):
        if following != number + 1:
            yield first, number + 1
            first = following or 0


SMALLEST = 1e-70
"""Smallest standard deviation whose fourth power is still precise."""

FARTHEST = 10
"""Largest distance of the means from the origin, in standard deviations. There squares have lost two of their
16 digits, and fourth powers four."""


class MomentSide(AnySide):
    """Side over the tokens that were added before it was made, held as sums. It is scaled to a sum of squares
    of 1.

    Raises:
        UndefinedError: means too far from the origin, or hardly any variance.
    """

    def __init__(self, sums: Sums, index: int) -> None:
        self._sums, self._index, self._tokens = sums, index, sums.tokens
        self._offset_D = sums.sum_D(index) / sums.tokens
        """Means minus the origin."""
        of_means = sums.tokens * self._offset_D.square().sum().item()
        squares = sums.length(index).item() - of_means if sums.tokens > 1 else 0.0
        if sums.tokens > 1 and of_means > FARTHEST**2 * squares:
            raise UndefinedError(
                f"Side {index} varies too little for precise sums: its means are more than {FARTHEST} standard "
                f"deviations from the origin; give an `origin` near the means."
            )
        if 0 < squares < sums.tokens * SMALLEST**2:
            raise UndefinedError(
                f"The values of side {index} vary too little for precise sums (by less than {SMALLEST:g}); "
                "divide them by the largest absolute value."
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
        # Eigenvectors come smallest first. A Cholesky factor would only do with full rank.
        variance_D, axes_DD = torch.linalg.eigh(self._gram_DD.cpu())
        singular_D = variance_D.flip(0).clamp(min=0).sqrt()
        rank = rank_of(singular_D)
        return Principal(singular_D[:rank], axes_DD.T.flip(0)[:rank])

    def cross(self, other: "MomentSide") -> Tensor:
        return self._gram_DD if self is other else self._centred_product(other)

    def overlap(self, other: "MomentSide") -> Tensor:
        left, right = self.principal, other.principal
        inner_KJ = left.axes_KD @ self.cross(other).cpu() @ right.axes_KD.T
        return inner_KJ / left.singular_K[:, None] / right.singular_K

    def lengths_with(self, other: "MomentSide") -> Tensor:
        # The sum of (|x|^2 - 2 m'x + |m|^2) (|y|^2 - 2 p'y + |p|^2), where m and p are the offsets.
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
                f"{measure} compares sides of the same Moments, but x and y belong to different Moments; add "
                "the batches of both to the same Moments."
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
                f"Side {self._index} was read when there were {self._tokens} tokens, but now there are "
                f"{self._sums.tokens}; read the side again."
            )

    def _centred_product(self, other: "MomentSide") -> Tensor:
        self._require_current()
        product_DE = self._sums.product_DE(self._index, other._index)
        means_DE = self._tokens * torch.outer(self._offset_D, other._offset_D)
        return self._scale * other._scale * (product_DE - means_DE)


class Moments:
    """Sums over the tokens of several sides, such as the layers of a model.

    `side` returns what takes the place of a matrix in `cca`, `svcca`, `pwcca`, `linear_cka`, `debiased_cka`,
    `procrustes`, `effective_rank` and `participation_ratio`. Other measures need the tokens themselves.
    Moments of parts of a text may be added and subtracted if they have the same pairs and the same origin.

    Args:
        pairs: the pairs of sides to compare, in any order. Default: all. They decide time and memory: 8 D E
            bytes for a pair, 8 D^2 for a side.
        origin: a vector for each side, near its means, which is subtracted before summing. Default: the means
            of the first batch, or of its first 2,048 tokens.

    Raises:
        MeasureError: `origin` is not made of finite vectors.
    """

    def __init__(
        self, *, pairs: Collection[tuple[int, int]] | None = None, origin: Sequence[Tensor] | None = None
    ) -> None:
        self._pairs = None if pairs is None else frozenset((min(i, j), max(i, j)) for i, j in pairs)
        self._sums: Sums | None = None
        self._sides: dict[int, MomentSide] = {}
        if origin is not None:
            self._start([_vector(values_D, name=f"origin {i}") for i, values_D in enumerate(origin)])

    def __len__(self) -> int:
        """Return the number of tokens added so far."""
        return self._sums.tokens if self._sums else 0

    @property
    def origin(self) -> tuple[Tensor, ...]:
        """Vectors that are subtracted, one for each side. Moments that are to be added to these need them as
        `origin`.

        Raises:
            MeasureError: no origin was given, and no batch was added.
        """
        return self._begun().origin

    def add(self, *sides_ND: Matrix) -> None:
        """Add a batch of one or more tokens, the same in each side. It is computed on the device of the first
        batch.

        Raises:
            MeasureError: a side is no finite matrix or exceeds 1e70, or sides differ in their numbers of
                rows, or have other widths than before. Nothing was added then.
        """
        sides = [_rows(values, name=f"side {i}") for i, values in enumerate(sides_ND)]
        self._require_fitting([tuple(side.shape) for side in sides])
        for i, side in enumerate(sides):
            _require_finite(side, name=f"side {i}")
        if self._sums is None:
            self._start([_means(as_tensor(side[:BLOCK_ROWS], name="x")) for side in sides])
        self._begun().add(sides)
        self._sides = {}

    def side(self, index: int) -> "MomentSide":
        """Return one of the sides, counted from 0, over all tokens added so far. Its decomposition is made
        once.

        Raises:
            MeasureError: no such side, no tokens yet, means too far from the origin, or hardly any variance.
        """
        sums = self._begun()
        if not 0 <= index < len(sums.origin):
            raise MeasureError(f"There is no side {index}: the sides are 0 to {len(sums.origin) - 1}.")
        if sums.tokens < 1:
            raise MeasureError("These Moments hold no tokens; add a batch first.")
        if index not in self._sides:
            self._sides[index] = MomentSide(sums, index)
        return self._sides[index]

    def __add__(self, other: "Moments") -> "Moments":
        """Return the moments of the tokens of both.

        Raises:
            MeasureError: their pairs or origins differ.
        """
        return self._combined(other, sign=1)

    def __sub__(self, other: "Moments") -> "Moments":
        """Return the moments without the tokens of `other`, whose tokens must be among these.

        Raises:
            MeasureError: their pairs or origins differ, or the other has more tokens.
        """
        return self._combined(other, sign=-1)

    def _begun(self) -> Sums:
        if self._sums is None:
            raise MeasureError("These Moments have neither origin nor tokens yet; add a batch first.")
        return self._sums

    def _start(self, origin: Sequence[Tensor]) -> None:
        if not origin:
            raise MeasureError("Moments need at least one side; give a matrix for each layer.")
        missing = {side for pair in self._pairs or () for side in pair} - set(range(len(origin)))
        if missing:
            raise MeasureError(
                f"`pairs` names side {min(missing)}, but the sides are 0 to {len(origin) - 1}; name existing "
                "sides."
            )
        self._sums = Sums(origin, self._pairs)

    def _require_fitting(self, shapes: list[tuple[int, ...]]) -> None:
        rows, widths = [shape[0] for shape in shapes], [shape[1] for shape in shapes]
        if len(set(rows)) > 1:
            raise MeasureError(
                f"All sides of Moments must have the same tokens, but they have {_listed(rows)} rows; capture "
                "all sides from the same token occurrences, in the same order."
            )
        expected = [len(vector_D) for vector_D in self._sums.origin] if self._sums else widths
        if widths != expected:
            raise MeasureError(
                f"The sides of these Moments have the widths {_listed(expected)}, but those of the batch have "
                f"{_listed(widths)}; make new Moments for another encoder."
            )

    def _combined(self, other: "Moments", *, sign: int) -> "Moments":
        left, right = self._begun(), other._begun()
        left_origin, right_origin = ([vector_D.cpu() for vector_D in sums.origin] for sums in (left, right))
        if (
            self._pairs != other._pairs
            or len(left_origin) != len(right_origin)
            or not all(map(torch.equal, left_origin, right_origin))
        ):
            raise MeasureError(
                "Only Moments with the same pairs and the same origin can be added or subtracted; create the "
                "second as Moments(pairs=..., origin=first.origin)."
            )
        if sign < 0 and len(other) > len(self):
            raise MeasureError(
                f"Moments of {len(other)} tokens cannot be subtracted from Moments of {len(self)} tokens; "
                "subtract a part from the whole."
            )
        result = Moments(pairs=self._pairs)
        result._sums = left.combined(right, sign=sign)
        return result


def _rows(values: Matrix, *, name: str) -> Matrix:
    """Return a matrix that can be cut into blocks of rows: the values as they are if possible, neither
    checked nor copied."""
    fit = isinstance(values, Tensor | np.ndarray) and values.ndim == 2 and 0 not in values.shape
    return values if fit else as_tensor(values, name=name)


def _require_finite(values: Matrix, *, name: str) -> None:
    """Raise a MeasureError if values are not finite or too large, in one pass over blocks."""
    for start in range(0, len(values), BLOCK_ROWS):
        block_ND = as_tensor(values[start : start + BLOCK_ROWS], name=name)
        largest = torch.stack(torch.aminmax(block_ND)).double().abs().max().item()  # NaN if a value is NaN
        if largest <= LARGEST_VALUE:
            continue
        if math.isfinite(largest):
            raise MeasureError(
                f"{name} has values up to {largest:.3g}, which is too large for sums of fourth powers; divide "
                "it by its largest absolute value."
            )
        row, column = (~block_ND.isfinite()).nonzero()[0].tolist()
        raise MeasureError(
            f"{name} must be finite, but the batch has {block_ND[row, column].item()} at row {start + row}, "
            f"column {column}; check whether the run diverged or padding was kept."
        )


def _means(x_ND: Tensor) -> Tensor:
    """Return the means of the columns. The first row is subtracted first, so that the mean of a constant
    column is exactly its value."""
    x_ND = x_ND.double()
    return x_ND[0] + (x_ND - x_ND[0]).mean(0)


def _vector(values_D: Tensor, *, name: str) -> Tensor:
    if len(shape := np.shape(values_D)) != 1:
        raise MeasureError(f"{name} must be a vector with a number for each feature, but its shape is {shape}.")
    return as_matrix(values_D[None], name=name)[0].clone()


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
