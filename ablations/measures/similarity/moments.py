"""Similarities of more tokens than memory holds: sums over batches take the place of matrices.

Of sides X and Y the similarities need X'Y, the means, and the sum of products of their rows' lengths. These are
sums over tokens. `Moments` adds them up in float64 batch by batch, relative to a fixed origin near the means, and
a side centres them. Memory does not depend on the number of tokens.

Precision: sums of squares know a direction by its variance. One whose singular value is the share s of the largest
is known to about 1e-16 / s^2 of its size: 1e-10 at s = 1e-3, but 1e-4 at the cut-off of 1e-6, where it may fall on
either side. What rounding alone makes stays below 1e-7 and is always cut off. A matrix in memory keeps ten
digits at the cut-off.

Shapes: N tokens, D and E features of two sides.
"""

import math
from collections.abc import Collection, Sequence

import numpy as np
import torch
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.similarity.sides import Matrix, as_matrix, as_tensor
from ablations.measures.similarity.sums import BLOCK_ROWS, MomentSide, Sums

LARGEST = 1e70
"""Absolute value whose fourth power may be summed over any text."""


class Moments:
    """Sums over the tokens of several sides, such as the layers of a model.

    `side` gives what takes the place of a matrix in `cca`, `svcca`, `pwcca`, `linear_cka`, `debiased_cka`,
    `procrustes`, `effective_rank` and `participation_ratio`; other measures need the tokens themselves. Moments
    of parts of a text may be added and subtracted, if they have the same pairs and the same origin.

    Args:
        pairs: the sides that are to be compared, in any order; all, unless given. They decide time and memory:
            8 D E bytes a pair, 8 D^2 a side.
        origin: a vector for each side, near its means, which is subtracted before summing. Unless given, the means
            of the first batch, or of its first 2,048 tokens.

    Raises:
        MeasureError: `origin` holds something else than finite vectors.
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
        """Vectors that are subtracted from each side: the argument of Moments that are to be added to these.

        Raises:
            MeasureError: none was given, and no batch was added.
        """
        return self._begun().origin

    def add(self, *sides_ND: Matrix) -> None:
        """Add a batch: the same tokens, one or more, in each side; computed on the device of the first batch.

        Raises:
            MeasureError: a side is no finite matrix or exceeds 1e70, or sides have unequal rows, or other widths
                than before. Nothing was added then.
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
        """Return one of the sides, counted from 0, over all tokens so far. Its decomposition is made once.

        Raises:
            MeasureError: no such side, no tokens yet, means too far from the origin, or hardly any variance.
        """
        sums = self._begun()
        if not 0 <= index < len(sums.origin):
            raise MeasureError(
                f"There is no side {index}: sides are counted from 0, and the last is {len(sums.origin) - 1}."
            )
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
        """Return the moments without the tokens of the other, which must be among these.

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
                f"`pairs` name side {min(missing)}, but sides are counted from 0, and the last is "
                f"{len(origin) - 1}; name sides that there are."
            )
        self._sums = Sums(origin, self._pairs)

    def _require_fitting(self, shapes: list[tuple[int, ...]]) -> None:
        rows, widths = [shape[0] for shape in shapes], [shape[1] for shape in shapes]
        if len(set(rows)) > 1:
            raise MeasureError(
                f"Moments add the same tokens in every side, but the sides have {_listed(rows)} rows; capture all "
                f"from the same token occurrences, in the same order."
            )
        expected = [len(vector_D) for vector_D in self._sums.origin] if self._sums else widths
        if widths != expected:
            raise MeasureError(
                f"The sides of these Moments have the widths {_listed(expected)}, but those of the batch have "
                f"{_listed(widths)}; make new Moments for another encoder."
            )

    def _combined(self, other: "Moments", *, sign: int) -> "Moments":
        mine, theirs = self._begun(), other._begun()
        one, another = ([vector_D.cpu() for vector_D in sums.origin] for sums in (mine, theirs))
        if self._pairs != other._pairs or len(one) != len(another) or not all(map(torch.equal, one, another)):
            raise MeasureError(
                "Only Moments of the same pairs and the same origin can be added or subtracted; make the second "
                "ones as Moments(pairs=..., origin=first.origin)."
            )
        if sign < 0 and len(other) > len(self):
            raise MeasureError(
                f"Moments can be subtracted from those of as many tokens or more, but have {len(other)} "
                f"against {len(self)}; subtract a part from the whole."
            )
        result = Moments(pairs=self._pairs)
        result._sums = mine.combined(theirs, sign=sign)
        return result


def _rows(values: Matrix, *, name: str) -> Matrix:
    """Return a matrix that can be cut into blocks of rows, as it is: not yet checked, nor copied."""
    fit = isinstance(values, Tensor | np.ndarray) and values.ndim == 2 and 0 not in values.shape
    return values if fit else as_tensor(values, name=name)


def _require_finite(values: Matrix, *, name: str) -> None:
    """Refuse values that are not finite or too large, in one pass over blocks."""
    for start in range(0, len(values), BLOCK_ROWS):
        block_ND = as_tensor(values[start : start + BLOCK_ROWS], name=name)
        largest = torch.stack(torch.aminmax(block_ND)).double().abs().max().item()  # NaN, where there is one
        if largest <= LARGEST:
            continue
        if math.isfinite(largest):
            raise MeasureError(
                f"{name} reaches {largest:.3g}, too much for sums of fourth powers; divide it by its largest "
                f"absolute value."
            )
        row, column = (~block_ND.isfinite()).nonzero()[0].tolist()
        raise MeasureError(
            f"{name} must be finite, but the batch has {block_ND[row, column].item()} at row {start + row}, "
            f"column {column}; look for a diverged run or for padding that was kept."
        )


def _means(x_ND: Tensor) -> Tensor:
    """Return the means of the columns. The first row goes first: of constant columns the mean is exactly their
    value."""
    x_ND = x_ND.double()
    return x_ND[0] + (x_ND - x_ND[0]).mean(0)


def _vector(values_D: Tensor, *, name: str) -> Tensor:
    if len(shape := np.shape(values_D)) != 1:
        raise MeasureError(f"{name} must be a vector, a number for each feature, but its shape is {shape}.")
    return as_matrix(values_D[None], name=name)[0].clone()


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
