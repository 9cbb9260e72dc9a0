"""Matrices of tokens by features, checked once at the border: what every measure of states starts from.

Shapes: N tokens, D features.
"""

import numpy as np
import torch
from torch import Tensor

from ablations.errors import MeasureError

Matrix = Tensor | np.ndarray
"""Tokens by features, on any device, in any real precision."""


def centred(x_ND: Tensor) -> Tensor:
    """The columns less their means. The first row goes first: a constant column leaves no rounding behind."""
    x_ND = x_ND - x_ND[0]
    return x_ND - x_ND.mean(0)


def as_matrix(values: Matrix, *, name: str, dtype: torch.dtype = torch.float64) -> Tensor:
    """A finite matrix of at least one row and column in `dtype`, gradients cut; `name` is for the error.

    Raises:
        MeasureError: it is no matrix, not of real numbers, or holds NaN or infinity.
    """
    values = as_tensor(values, name=name).to(dtype)
    if not torch.stack(values.aminmax()).isfinite().all():  # without a matrix of truth values, 80 times as fast
        finite = values.isfinite()
        row, column = (~finite).nonzero()[0].tolist()
        raise MeasureError(
            f"{name} must be finite, but NaN or infinity stands in {int((~finite).sum())} of {finite.numel()} "
            f"values, first at row {row}, column {column}; look for a diverged run or for padding that was kept."
        )
    return values


def as_tensor(values: Matrix, *, name: str) -> Tensor:
    """A matrix of at least one row and column, gradients cut, finite or not; it may share memory with `values`.

    Raises:
        MeasureError: it is no matrix, not of real numbers, or masked.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise MeasureError(
            f"{name} is a masked array, whose mask would be ignored; give an array of the rows that count."
        )
    if not isinstance(values, Tensor):
        array = np.asarray(values)
        if array.dtype.kind == "O" and array.ndim == 0:
            raise MeasureError(
                f"{name} must be a matrix of tokens by features here, but it is a {type(values).__name__}; "
                f"give the matrix that it was made of."
            )
        if array.dtype.kind not in "fiub":
            raise MeasureError(f"{name} must hold real numbers, but its type is {array.dtype}.")
        # What torch wants: writable, of native byte order and of positive strides.
        real = np.float32 if array.dtype == np.float32 else np.float64
        values = torch.from_numpy(np.require(array, real, ["C", "W"]))
    if values.is_complex():
        raise MeasureError(f"{name} must hold real numbers, but its type is {values.dtype}.")
    if values.ndim != 2 or values.numel() == 0:
        raise MeasureError(
            f"{name} must be a matrix of tokens by features, but its shape is {tuple(values.shape)}; "
            f"make every token, padding left out, a row."
        )
    return values.detach().double() if values.dtype == torch.bool else values.detach()


def to_device(values: Matrix) -> Matrix:
    """The matrix on the GPU, if there is one, else as it is: for what costs more than the way there.

    States are kept in the memory of the CPU, where there is room for all layers, and go over one at a time.
    """
    if not torch.cuda.is_available():
        return values
    return as_tensor(values, name="states").to("cuda")


def rescaled(x_ND: Tensor) -> Tensor:
    """The matrix over its largest absolute value, so that squares neither overflow nor vanish."""
    largest = x_ND.abs().max()
    return x_ND / largest if largest > 0 else x_ND


def require_pair(x_rows: int, y_rows: int, *, measure: str, tokens: int) -> None:
    """Refuse sides of different length, or of fewer than `tokens` rows.

    Raises:
        MeasureError: they are.
    """
    if x_rows != y_rows:
        raise MeasureError(
            f"{measure} compares the same tokens on both sides, but x and y have {x_rows} and {y_rows} rows; "
            f"capture both from the same token occurrences, in the same order."
        )
    require_rows(x_rows, measure=measure, tokens=tokens)


def require_rows(rows: int, *, measure: str, tokens: int) -> None:
    """Refuse fewer than `tokens` rows.

    Raises:
        MeasureError: there are fewer.
    """
    if rows < tokens:
        raise MeasureError(f"{measure} needs at least {tokens} tokens, got {rows}; capture more sentences.")
