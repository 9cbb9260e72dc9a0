"""Matrices of tokens by features, checked once at the border: what every measure of states starts from.

Shapes: N tokens (the same, in the same order, on both sides), D features on the left, E on the right.
"""

import numpy as np
import torch
from torch import Tensor

from ablations.errors import MeasureError

Matrix = Tensor | np.ndarray
"""Tokens by features, on any device, in any real precision."""


def as_pair(x_ND: Matrix, y_NE: Matrix, *, measure: str, tokens: int = 2) -> tuple[Tensor, Tensor]:
    """Both matrices in float64, each divided by its largest absolute value; gradients are cut.

    No similarity depends on the scale of a whole matrix, and without it no square overflows.

    Raises:
        MeasureError: a side is no finite N x D matrix, the sides differ in N, or N < `tokens`.
    """
    x_ND, y_NE = as_matrix(x_ND, name="x"), as_matrix(y_NE, name="y")
    if len(x_ND) != len(y_NE):
        raise MeasureError(
            f"{measure} compares the same tokens on both sides, but x has {len(x_ND)} rows and y has {len(y_NE)}. "
            f"Capture both from the same token occurrences, in the same order."
        )
    if len(x_ND) < tokens:
        raise MeasureError(f"{measure} needs at least {tokens} tokens, got {len(x_ND)}. Capture more sentences.")
    return rescaled(x_ND), rescaled(y_NE.to(x_ND.device))


def centred_pair(x_ND: Matrix, y_NE: Matrix, *, measure: str, tokens: int = 2) -> tuple[Tensor, Tensor]:
    """`as_pair` with the mean of each column subtracted; constant columns become exactly 0.

    Raises:
        MeasureError: as `as_pair`, and when all rows of a side are equal.
    """
    x_ND, y_NE = as_pair(x_ND, y_NE, measure=measure, tokens=tokens)
    for name, z_ND in (("x", x_ND), ("y", y_NE)):
        if torch.equal(z_ND, z_ND[:1].expand_as(z_ND)):
            raise MeasureError(
                f"{measure} is undefined: all {len(z_ND)} rows of {name} are equal. There is nothing to compare."
            )
    return centred(x_ND), centred(y_NE)


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
