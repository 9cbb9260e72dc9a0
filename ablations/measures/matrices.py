"""Matrices of tokens by features, checked once at the border: what every measure of states starts from.

Shapes: N tokens (the same, in the same order, on both sides), D features on the left, E on the right.
"""

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ablations.errors import MeasureError

Matrix = Tensor | np.ndarray
"""Tokens by features, on any device, in any real precision."""


class Side:
    """One side of comparisons: a matrix scaled and centred, and its decompositions, each made when it is first
    asked for and then kept. The similarities take one wherever they take a matrix; it pays where a matrix is
    compared several times.
    """

    def __init__(self, x_ND: Tensor, mean_D: Tensor) -> None:
        self.x_ND = x_ND
        """Float64, columns centred."""
        self.mean_D = mean_D
        """The means that were subtracted."""

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

    @cached_property
    def length_N(self) -> Tensor:
        """Squared lengths of the rows."""
        return self.x_ND.square().sum(1)

    @cached_property
    def gram_DD(self) -> Tensor:
        """X'X."""
        return self.x_ND.T @ self.x_ND

    @cached_property
    def factors(self) -> tuple[Tensor, Tensor]:
        """Q (N x K, orthonormal columns) and R (K x D) of X = Q R. Covariances in their place would lose the
        precision of small directions."""
        q_NK, r_KD = torch.linalg.qr(self.x_ND)
        return q_NK, r_KD.cpu()

    def rows(self, start: int, stop: int) -> "Side":
        """Some of the rows, centred anew."""
        part_ND = self.x_ND[start:stop]
        return Side(centred(part_ND), self.mean_D + part_ND.mean(0))

    def reordered(self, order_N: np.ndarray) -> "Side":
        """The same rows in another order, without a new decomposition."""
        order = torch.from_numpy(order_N).to(self.x_ND.device)
        side = Side(self.x_ND[order], self.mean_D)
        side.gram_DD, side.length_N = self.gram_DD, self.length_N[order]
        side.factors = self.factors[0][order], self.factors[1]
        return side


def centred_pair(x_ND: Matrix | Side, y_NE: Matrix | Side, *, measure: str, tokens: int = 2) -> tuple[Side, Side]:
    """Both sides, gradients cut; a matrix on another device than the first side goes there.

    Raises:
        MeasureError: a side is no finite N x D matrix, the sides differ in N, N < `tokens`, or all rows of
            a side are equal.
    """
    x = x_ND if isinstance(x_ND, Side) else Side.of(x_ND, name="x")
    if isinstance(y_NE, Tensor):
        y_NE = y_NE.to(x.x_ND.device)
    y = y_NE if isinstance(y_NE, Side) else Side.of(y_NE, name="y")
    require_pair(len(x), len(y), measure=measure, tokens=tokens)
    for name, side in (("x", x), ("y", y)):
        if not side.x_ND.any():
            raise MeasureError(
                f"{measure} is undefined: all {len(side)} rows of {name} are equal. There is nothing to compare."
            )
    return x, y


def require_pair(x_rows: int, y_rows: int, *, measure: str, tokens: int) -> None:
    """Refuse sides of different length, or of fewer than `tokens` rows.

    Raises:
        MeasureError: they are.
    """
    if x_rows != y_rows:
        raise MeasureError(
            f"{measure} compares the same tokens on both sides, but x has {x_rows} rows and y has {y_rows}. "
            f"Capture both from the same token occurrences, in the same order."
        )
    if x_rows < tokens:
        raise MeasureError(f"{measure} needs at least {tokens} tokens, got {x_rows}. Capture more sentences.")


def centred(x_ND: Tensor) -> Tensor:
    """The columns less their means. The first row goes first: a constant column leaves no rounding behind."""
    x_ND = x_ND - x_ND[0]
    return x_ND - x_ND.mean(0)


def as_matrix(values: Matrix, *, name: str, dtype: torch.dtype = torch.float64) -> Tensor:
    """A finite matrix of at least one row and column in `dtype`, gradients cut; `name` is for the error.

    Raises:
        MeasureError: it is no matrix, not of real numbers, or holds NaN or infinity.
    """
    if not isinstance(values, Tensor):
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise MeasureError(f"{name} must hold real numbers, but its type is {array.dtype}.")
        # The copy is what torch wants: writable, of native byte order and of positive strides.
        values = torch.from_numpy(array.astype(np.float32 if array.dtype == np.float32 else np.float64, order="C"))
    if values.is_complex():
        raise MeasureError(f"{name} must hold real numbers, but its type is {values.dtype}.")
    if values.ndim != 2 or values.numel() == 0:
        raise MeasureError(
            f"{name} must be a matrix of tokens by features, but its shape is {tuple(values.shape)}. "
            f"Make every token, padding left out, a row."
        )
    values = values.detach().to(dtype)
    if not (finite := values.isfinite()).all():
        row, column = (~finite).nonzero()[0].tolist()
        raise MeasureError(
            f"{name} must be finite, but {int((~finite).sum())} of its values are NaN or infinite, "
            f"the first at row {row}, column {column}. Look for a diverged run or for padding that was kept."
        )
    return values


def rescaled(x_ND: Tensor) -> Tensor:
    """The matrix over its largest absolute value, so that squares neither overflow nor vanish."""
    largest = x_ND.abs().max()
    return x_ND / largest if largest > 0 else x_ND
