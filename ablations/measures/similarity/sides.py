"""Sides of a comparison: the interface that the similarities need, a side that is held in memory, and its
dimension.

Matrices of tokens by features are checked here once, before any measure of states reads them. The dimension
of a layer is the number of directions that its tokens spread over. It is 1 if all tokens lie on a line, and D
if they spread equally in all D directions. Both measures of dimension ignore the means of the columns,
rotations and the scale, but no other linear maps.

Shapes: N tokens (the same, in the same order, on both sides), D features on the left, E on the right, K and J
directions that are more than noise.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from ablations.errors import MeasureError

Matrix = Tensor | np.ndarray
"""Tokens by features, on any device, in any real precision."""


def centred(x_ND: Tensor) -> Tensor:
    """Return the columns minus their means. The first row is subtracted first, so that constant columns
    become exactly 0."""
    x_ND = x_ND - x_ND[0]
    return x_ND - x_ND.mean(0)


def as_matrix(values: Matrix, *, name: str, single: bool = False) -> Tensor:
    """Return a finite matrix of at least one row and column in float64, without gradients. Errors call it
    `name`.

    Args:
        single: whether values that float32 holds are returned in float32, which saves half of the memory.

    Raises:
        MeasureError: the values are no matrix, are not real numbers, or hold NaN or infinity.
    """
    values = as_tensor(values, name=name)
    fits = single and values.is_floating_point() and values.dtype != torch.float64
    values = values.to(torch.float32 if fits else torch.float64)
    if not torch.stack(values.aminmax()).isfinite().all():  # 80 times as fast as isfinite() of all values
        finite = values.isfinite()
        row, column = (~finite).nonzero()[0].tolist()
        raise MeasureError(
            f"{name} must be finite, but {int((~finite).sum())} of {finite.numel()} values are NaN or infinity, "
            f"first at row {row}, column {column}; check whether the run diverged or padding was kept."
        )
    return values


def as_tensor(values: Matrix, *, name: str) -> Tensor:
    """Return a matrix of at least one row and column, without gradients, finite or not. It may share memory
    with `values`.

    Raises:
        MeasureError: the values are no matrix, are not real numbers, or are masked or sparse.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise MeasureError(
            f"{name} is a masked array, but its mask would be ignored; give an array with only the rows that "
            "count."
        )
    if not isinstance(values, Tensor):
        try:
            array = np.asarray(values)
        except ValueError as error:
            raise MeasureError(
                f"{name} must be a matrix of tokens by features, but its rows have different lengths; give "
                "rows of equal length."
            ) from error
        if array.dtype.kind == "O" and array.ndim == 0:
            raise MeasureError(
                f"{name} must be a matrix of tokens by features, but is a {type(values).__name__}; give the "
                "matrix itself."
            )
        if array.dtype.kind not in "fiub":
            remedy = "; convert it, as with .to_numpy(float)" if array.dtype.kind == "O" else ""
            raise MeasureError(f"{name} must hold real numbers, but its type is {array.dtype}{remedy}.")
        # torch wants memory that is writable, of native byte order and of positive strides.
        real = np.float32 if array.dtype == np.float32 else np.float64
        values = torch.from_numpy(np.require(array, real, ["C", "W"]))
    if values.layout != torch.strided:
        raise MeasureError(f"{name} is a sparse tensor; give a dense one, as with .to_dense().")
    if values.is_complex():
        raise MeasureError(f"{name} must hold real numbers, but its type is {values.dtype}.")
    if values.ndim != 2 or values.numel() == 0:
        raise MeasureError(
            f"{name} must be a matrix of tokens by features, but its shape is {tuple(values.shape)}; give one "
            "row for each token, without padding."
        )
    return values.detach().double() if values.dtype == torch.bool else values.detach()


def to_device(values: Matrix) -> Matrix:
    """Return the matrix on the GPU, or as it is if there is none. It is for work that costs more than the
    transfer.

    States are kept in the memory of the CPU, which has room for all layers, and are moved one layer at a
    time.
    """
    if not torch.cuda.is_available():
        return values
    return as_tensor(values, name="states").to("cuda")


def rescaled(x_ND: Tensor) -> Tensor:
    """Return the matrix divided by its largest absolute value, so that squares neither overflow nor vanish."""
    largest = x_ND.abs().max()
    return x_ND / largest if largest > 0 else x_ND


def require_pair(x_rows: int, y_rows: int, *, measure: str, tokens: int) -> None:
    """Raise a MeasureError if the sides have different numbers of rows, or fewer than `tokens`."""
    if x_rows != y_rows:
        raise MeasureError(
            f"{measure} compares the same tokens on both sides, but x and y have {x_rows} and {y_rows} rows; "
            f"capture both from the same token occurrences, in the same order."
        )
    require_rows(x_rows, measure=measure, tokens=tokens)


def require_rows(rows: int, *, measure: str, tokens: int) -> None:
    """Raise a MeasureError if there are fewer than `tokens` rows."""
    if rows < tokens:
        raise MeasureError(f"{measure} needs at least {tokens} tokens, got {rows}; capture more sentences.")


RANK_CUTOFF = 1e-6
"""Share of the largest singular value below which a direction is noise of float32, not data."""

MIXED = (
    "{measure} compares two matrices, or two sides of the same Moments, but got a matrix and a side; add both "
    "to the same Moments."
)


class Principal(NamedTuple):
    """Principal components of centred data X = U S V', without those that are noise. They are on the CPU; U
    is not held."""

    singular_K: Tensor
    """The diagonal of S, largest first."""
    axes_KD: Tensor
    """V', whose rows are the principal axes."""

    @property
    def factor_KD(self) -> Tensor:
        """S V', the data in the orthonormal basis U."""
        return self.singular_K[:, None] * self.axes_KD


class AnySide(ABC):
    """Interface of a side X with centred columns: what the similarities need of it. Its scale is arbitrary.

    `Side` holds it as a matrix, and `MomentSide` as sums over batches.
    """

    mean_D: Tensor
    """The means that were subtracted, in the scale of X."""

    @abstractmethod
    def __len__(self) -> int:
        """Return N."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Width D."""

    @property
    @abstractmethod
    def squared_length(self) -> Tensor:
        """Sum of the squared lengths of all rows; 0 if all rows are equal."""

    @property
    @abstractmethod
    def principal(self) -> Principal:
        """Principal components of X without the directions that are noise."""

    @abstractmethod
    def cross(self, other: Self) -> Tensor:
        """Return X'Y, where Y is the other side."""

    @abstractmethod
    def overlap(self, other: Self) -> Tensor:
        """Return the inner products (K x J) of the two bases U, on the CPU."""

    @abstractmethod
    def lengths_with(self, other: Self) -> Tensor:
        """Return the sum over tokens of the squared length of X's row times the squared length of Y's row."""

    @abstractmethod
    def require_comparable(self, other: "AnySide", *, measure: str) -> None:
        """Raise a MeasureError if `measure` cannot compare this side with the other one."""


class Side(AnySide):
    """Side held as a matrix, scaled and centred. Each decomposition is made when it is first needed, and then
    kept.

    The similarities take a Side wherever they take a matrix. It saves time if a matrix is compared several
    times.
    """

    def __init__(self, x_ND: Tensor, mean_D: Tensor) -> None:
        self.x_ND = x_ND
        """Float64, columns centred."""
        self.mean_D = mean_D

    @classmethod
    def of(cls, values: Matrix, *, name: str = "x") -> "Side":
        """Return the side of a matrix, divided by its largest absolute value and centred. Constant columns
        become exactly 0.

        No similarity depends on the scale of a whole matrix, and the division keeps squares from overflowing.

        Raises:
            MeasureError: no finite N x D matrix. The error calls it `name`.
        """
        values_ND = rescaled(as_matrix(values, name=name))
        return cls(centred(values_ND), values_ND.mean(0))

    def __len__(self) -> int:
        return len(self.x_ND)

    @property
    def width(self) -> int:
        return self.x_ND.shape[1]

    @cached_property
    def length_N(self) -> Tensor:
        """Squared lengths of the rows."""
        return self.x_ND.square().sum(1)

    @property
    def squared_length(self) -> Tensor:
        return self.length_N.sum()

    @cached_property
    def gram_DD(self) -> Tensor:
        """X'X."""
        return self.x_ND.T @ self.x_ND

    @cached_property
    def factors(self) -> tuple[Tensor, Tensor]:
        """Q (N x R, orthonormal columns) and R (R x D) of X = Q R. Covariances would lose the precision of
        small directions."""
        q_NR, r_RD = torch.linalg.qr(self.x_ND)
        return q_NR, r_RD.cpu()

    @cached_property
    def _decomposed(self) -> tuple[Tensor, Principal]:
        """U as combinations of the columns of Q, and the rest of the singular value decomposition."""
        u_RK, singular_K, axes_KD = torch.linalg.svd(self.factors[1], full_matrices=False)
        rank = rank_of(singular_K)
        return u_RK[:, :rank], Principal(singular_K[:rank], axes_KD[:rank])

    @property
    def principal(self) -> Principal:
        return self._decomposed[1]

    def cross(self, other: "Side") -> Tensor:
        return self.gram_DD if self is other else self.x_ND.T @ other.x_ND

    def overlap(self, other: "Side") -> Tensor:
        inner_RR = (self.factors[0].T @ other.factors[0]).cpu()
        return self._decomposed[0].T @ inner_RR @ other._decomposed[0]

    def lengths_with(self, other: "Side") -> Tensor:
        return self.length_N @ other.length_N

    def require_comparable(self, other: AnySide, *, measure: str) -> None:
        if not isinstance(other, Side):
            raise MeasureError(MIXED.format(measure=measure))

    def rows(self, start: int, stop: int) -> "Side":
        """Return the side of some of the rows, centred again."""
        part_ND = self.x_ND[start:stop]
        return Side(centred(part_ND), self.mean_D + part_ND.mean(0))


def side_pair(
    x_ND: Matrix | AnySide, y_NE: Matrix | AnySide, *, measure: str, tokens: int = 2
) -> tuple[AnySide, AnySide]:
    """Return both sides, without gradients. A matrix on another device is moved to that of the first side.

    Raises:
        MeasureError: a side is no finite N x D matrix, the sides are not held in the same way, they differ in
            N, N < `tokens`, or all rows of a side are equal.
    """
    x = x_ND if isinstance(x_ND, AnySide) else Side.of(x_ND, name="x")
    if isinstance(y_NE, Tensor):
        y_NE = y_NE.to(x.mean_D.device)
    y = y_NE if isinstance(y_NE, AnySide) else Side.of(y_NE, name="y")
    x.require_comparable(y, measure=measure)
    require_pair(len(x), len(y), measure=measure, tokens=tokens)
    for name, side in (("x", x), ("y", y)):
        require_variance(side, name=name, measure=measure)
    return x, y


def matrix_pair(x_ND: Matrix | Side, y_NE: Matrix | Side, *, measure: str, tokens: int = 2) -> tuple[Side, Side]:
    """Return both sides as `side_pair` does, for measures that need the rows themselves.

    Raises:
        MeasureError: as `side_pair`, and for a side of Moments.
    """
    x = x_ND if isinstance(x_ND, Side) else Side.of(x_ND, name="x")
    if isinstance(y_NE, Tensor):
        y_NE = y_NE.to(x.mean_D.device)
    y = y_NE if isinstance(y_NE, Side) else Side.of(y_NE, name="y")
    side_pair(x, y, measure=measure, tokens=tokens)
    return x, y


class UndefinedError(MeasureError):
    """Error of a similarity without a value, because the rows of a side hardly differ, or all differ equally."""


def or_nan(number: Callable[..., float], side_at: Callable[[int], AnySide], *places: int) -> float:
    """Return a similarity of the sides at some places without its warnings; NaN if it is undefined.

    It is for chance levels and for parts of a text: the warning comes once, for the whole text.
    """
    with warnings.catch_warnings(), suppress(UndefinedError):
        warnings.simplefilter("ignore")
        return number(*map(side_at, places))
    return math.nan


def require_variance(side: AnySide, *, name: str, measure: str) -> None:
    """Raise an UndefinedError if all rows of a side are equal."""
    if not side.squared_length > 0:
        raise UndefinedError(
            f"{measure} is undefined: all {len(side)} rows of {name} are equal; check whether the run has "
            "collapsed."
        )


def rank_of(singular_K: Tensor) -> int:
    """Return how many of the singular values, which must be in descending order, are more than noise."""
    return int((singular_K > RANK_CUTOFF * singular_K[0]).sum())


def effective_rank(x_ND: Matrix | AnySide) -> float:
    """Return the effective rank, 1 to min(N - 1, D): exp of the entropy of the singular values as shares of
    their sum.

    Source: Roy & Vetterli 2007, The effective rank (EUSIPCO), section 2. We centre the data; the paper does
    not. Directions below a millionth of the largest are noise and left out.

    Raises:
        MeasureError: no finite matrix, fewer than two tokens, or all rows equal.
    """
    singular_K = _varying(x_ND, measure="effective rank").principal.singular_K
    share_K = singular_K / singular_K.sum()
    return torch.special.entr(share_K).sum().exp().item()


def participation_ratio(x_ND: Matrix | AnySide) -> float:
    """Return the participation ratio, 1 to min(N - 1, D): (sum of v)^2 / sum of v^2 over the principal
    components' variances v.

    Source: Gao et al. 2017, https://doi.org/10.1101/214262. It is never above the effective rank, because the
    directions of most variance decide.

    Raises:
        MeasureError: as `effective_rank`.
    """
    side = _varying(x_ND, measure="participation ratio")
    return (side.squared_length**2 / side.cross(side).square().sum()).item()


def _varying(x_ND: Matrix | AnySide, *, measure: str) -> AnySide:
    side = x_ND if isinstance(x_ND, AnySide) else Side.of(x_ND)
    require_rows(len(side), measure=measure, tokens=2)
    require_variance(side, name="x", measure=measure)
    return side
