"""One side of a comparison: what the similarities need to know of it, and a side that is held in memory.

Shapes: N tokens (the same, in the same order, on both sides), D features on the left, E on the right, K and J
directions that are more than noise.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.matrices import Matrix, as_matrix, centred, require_pair, rescaled

RANK_CUTOFF = 1e-6
"""Directions whose singular value is below this share of the largest are noise of float32, not data."""

MIXED = (
    "{measure} compares two matrices or two sides of the same Moments, but x and y are one of each; "
    "add both to the same Moments."
)


class Principal(NamedTuple):
    """Principal components of centred data X = U S V', without those that are noise. On the CPU; U is not held."""

    singular_K: Tensor
    """The diagonal of S, largest first."""
    axes_KD: Tensor
    """V'."""

    @property
    def factor_KD(self) -> Tensor:
        """S V': the data in the orthonormal basis U."""
        return self.singular_K[:, None] * self.axes_KD


class AnySide(ABC):
    """One side X of comparisons, its columns centred, as far as the similarities need it. Its scale is free.

    Held as a matrix by `Side` and as sums over batches by `MomentSide`.
    """

    mean_D: Tensor
    """The means that were subtracted, in the scale of X."""

    @abstractmethod
    def __len__(self) -> int:
        """N."""

    @property
    @abstractmethod
    def width(self) -> int:
        """D."""

    @property
    @abstractmethod
    def squared_length(self) -> Tensor:
        """Sum of the squared lengths of all rows: 0 where all rows are equal."""

    @property
    @abstractmethod
    def principal(self) -> Principal:
        """X without the directions that are noise."""

    @abstractmethod
    def cross(self, other: Self) -> Tensor:
        """X'Y."""

    @abstractmethod
    def overlap(self, other: Self) -> Tensor:
        """Inner products (K x J) of the two bases U, on the CPU."""

    @abstractmethod
    def lengths_with(self, other: Self) -> Tensor:
        """Sum over tokens of the squared length of X's row times that of Y's."""

    @abstractmethod
    def require_comparable(self, other: "AnySide", *, measure: str) -> None:
        """Refuse another side that is not held as this one is.

        Raises:
            MeasureError: nothing is known of the two together.
        """


class Side(AnySide):
    """A matrix scaled and centred, and its decompositions, each made when it is first asked for and then kept.

    The similarities take one wherever they take a matrix; it pays where a matrix is compared several times.
    """

    def __init__(self, x_ND: Tensor, mean_D: Tensor) -> None:
        self.x_ND = x_ND
        """Float64, columns centred."""
        self.mean_D = mean_D

    @classmethod
    def of(cls, values: Matrix, *, name: str = "x") -> "Side":
        """A matrix over its largest absolute value, centred; constant columns become exactly 0.

        No similarity depends on the scale of a whole matrix, and without it no square overflows.

        Raises:
            MeasureError: no finite N x D matrix; `name` is for the sentence.
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
        """Q (N x R, orthonormal columns) and R (R x D) of X = Q R. Covariances in their place would lose the
        precision of small directions."""
        q_NR, r_RD = torch.linalg.qr(self.x_ND)
        return q_NR, r_RD.cpu()

    @cached_property
    def _decomposed(self) -> tuple[Tensor, Principal]:
        """U in terms of Q, and the rest of the singular value decomposition."""
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
        """Some of the rows, centred anew."""
        part_ND = self.x_ND[start:stop]
        return Side(centred(part_ND), self.mean_D + part_ND.mean(0))

    def reordered(self, order_N: np.ndarray) -> "Side":
        """The same rows in another order, without a new decomposition."""
        order = torch.from_numpy(order_N).to(self.x_ND.device)
        side = Side(self.x_ND[order], self.mean_D)
        side.gram_DD, side.length_N = self.gram_DD, self.length_N[order]
        side.factors, side._decomposed = (self.factors[0][order], self.factors[1]), self._decomposed
        return side


def side_pair(
    x_ND: Matrix | AnySide, y_NE: Matrix | AnySide, *, measure: str, tokens: int = 2
) -> tuple[AnySide, AnySide]:
    """Both sides, gradients cut; a matrix on another device than the first side goes there.

    Raises:
        MeasureError: a side is no finite N x D matrix, nothing is known of the two together, they differ in N,
            N < `tokens`, or all rows of a side are equal.
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
    """`side_pair` for measures that need the rows themselves.

    Raises:
        MeasureError: as `side_pair`, and for a side of Moments.
    """
    x = x_ND if isinstance(x_ND, Side) else Side.of(x_ND, name="x")
    if isinstance(y_NE, Tensor):
        y_NE = y_NE.to(x.mean_D.device)
    y = y_NE if isinstance(y_NE, Side) else Side.of(y_NE, name="y")
    side_pair(x, y, measure=measure, tokens=tokens)
    return x, y


def require_variance(side: AnySide, *, name: str, measure: str) -> None:
    """Refuse a side that does not vary.

    Raises:
        MeasureError: all rows are equal.
    """
    if not side.squared_length > 0:
        raise MeasureError(
            f"{measure} is undefined: all {len(side)} rows of {name} are equal; look for a collapsed run."
        )


def rank_of(singular_K: Tensor) -> int:
    """How many of the singular values, largest first, are more than noise."""
    return int((singular_K > RANK_CUTOFF * singular_K[0]).sum())
