"""Similarities of two layers by their similarities between tokens: CKA in four forms, and RSA.

Sources: Kornblith et al. 2019, https://arxiv.org/abs/1905.00414, section 3 (CKA); Song et al. 2012,
https://jmlr.org/papers/v13/song12a.html, theorem 2 (unbiased HSIC); Nguyen, Raghu & Kornblith 2021,
https://arxiv.org/abs/2010.15327, section 3 (minibatches).

All forms of CKA (linear, debiased, in minibatches, with an RBF kernel) are symmetric and 1 for equal
arguments. They ignore the means of the columns, rotations and the scale of each side, but no other linear
maps: the leading principal components decide. Linear and RBF CKA are inflated by chance (independent data of
ten tokens per feature has a linear CKA near 0.09). The other two have chance level 0 and so may be negative.

Shapes: N tokens, D and E features.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.similarity.sides import (
    AnySide,
    Matrix,
    Side,
    as_matrix,
    matrix_pair,
    require_pair,
    rescaled,
    side_pair,
)

FEWEST_TOKENS = 4
"""Smallest number of tokens. The unbiased HSIC divides by N (N - 3)."""

SAME_POINT = 1e-12
"""Squared distance of two rows, as a share of their squared lengths, below which it is rounding and counts as
0."""

NO_SIMILARITY = 1e-12
"""Share of the biased HSIC below which an unbiased one is only rounding."""


def linear_cka(x_ND: Matrix | AnySide, y_NE: Matrix | AnySide) -> float:
    """Return linear CKA, 0 to 1: ||X'Y||^2 / (||X'X|| ||Y'Y||) in Frobenius norms. It takes O(N D E) and no N
    x N matrix.

    Raises:
        MeasureError: unfit matrices.
    """
    x, y = side_pair(x_ND, y_NE, measure="linear CKA")
    return _ratio(_hsic(x, y), _hsic(x, x), _hsic(y, y))


def debiased_cka(x_ND: Matrix | AnySide, y_NE: Matrix | AnySide) -> float:
    """Return debiased CKA, -1 to 1: the ratio of unbiased HSICs, near 0 for independent data of any N.

    Each HSIC is unbiased, and their ratio nearly so. It takes O(N D E) and no N x N matrix.

    Raises:
        MeasureError: unfit matrices, fewer than four tokens, or a side whose tokens are all equally alike.
    """
    pair = side_pair(x_ND, y_NE, measure="debiased CKA", tokens=FEWEST_TOKENS)
    return _unbiased_cka([pair], measure="debiased CKA")


def minibatch_cka(x_ND: Matrix | Side, y_NE: Matrix | Side, *, batch_size: int) -> float:
    """Return the ratio of unbiased HSICs, -1 to 1, each the mean over consecutive batches of `batch_size`
    rows.

    It estimates `debiased_cka` for data that comes in batches, and equals it for one batch. It depends on the
    order of the rows. Rows after the last full batch are left out.

    Raises:
        MeasureError: as `debiased_cka`, and for a batch of fewer than four rows or more than there are.
    """
    x, y = matrix_pair(x_ND, y_NE, measure="minibatch CKA", tokens=FEWEST_TOKENS)
    if not (isinstance(batch_size, Integral) and FEWEST_TOKENS <= batch_size <= len(x)):
        raise MeasureError(
            f"minibatch CKA needs batches of {FEWEST_TOKENS} tokens up to all {len(x)}, "
            f"but batch_size is {batch_size!r}."
        )
    starts = range(0, len(x) - batch_size + 1, batch_size)
    batches = [(x.rows(start, start + batch_size), y.rows(start, start + batch_size)) for start in starts]
    return _unbiased_cka(batches, measure="minibatch CKA")


def rbf_cka(x_ND: Matrix | Side, y_NE: Matrix | Side, *, bandwidth: float = 0.5) -> float:
    """Return CKA, 0 to 1, of the kernels exp(-d^2 / (2 bandwidth^2 m)), where d^2 are squared distances and m
    their median.

    The median is over all N^2 pairs, also of a token with itself, as in the notebook of Kornblith et al. A
    wide bandwidth approaches `linear_cka`. Memory holds four N x N float64 matrices: 3.2 GB for 10,000
    tokens.

    Raises:
        MeasureError: unfit matrices, a `bandwidth` that is not positive, or m = 0.
    """
    if not (isinstance(bandwidth, Real) and 0 < bandwidth < math.inf):
        raise MeasureError(f"RBF CKA needs a positive bandwidth, but bandwidth is {bandwidth!r}.")
    x, y = matrix_pair(x_ND, y_NE, measure="RBF CKA")
    x_NN, y_NN = _rbf_kernel(x.x_ND, bandwidth, name="x"), _rbf_kernel(y.x_ND, bandwidth, name="y")
    return _ratio((x_NN * y_NN).sum(), (x_NN * x_NN).sum(), (y_NN * y_NN).sum())


def _hsic(x: AnySide, y: AnySide) -> Tensor:
    """Return tr(K L) of the centred linear kernels K = XX' and L = YY', in feature space."""
    return x.cross(y).square().sum()


def _unbiased_hsic(x: AnySide, y: AnySide) -> Tensor:
    """Return N (N - 3) times the unbiased HSIC of Song et al., in feature space, for centred columns.

    Let K~ and L~ be the kernels with zeros on the diagonal. The result is tr(K~L~) + 1'K~1 1'L~1 /
    ((N-1)(N-2)) - 2/(N-2) 1'K~L~1. Because K1 = 0, K~1 = -k, where k are the squared lengths of the rows. So
    all three terms need no more than k, l and ||X'Y||^2. Centring changes nothing, because the unbiased HSIC
    does not depend on the means.
    """
    n, lengths = len(x), x.lengths_with(y)
    total = x.squared_length * y.squared_length
    return _hsic(x, y) - lengths + total / ((n - 1) * (n - 2)) - 2 / (n - 2) * lengths


def _unbiased_cka(batches: Sequence[tuple[AnySide, AnySide]], *, measure: str) -> float:
    """Return the ratio of unbiased HSICs, each summed over batches of equal size."""
    xs, ys = zip(*batches, strict=True)
    for name, side in (("x", xs), ("y", ys)):
        if _summed(_unbiased_hsic, side, side) <= NO_SIMILARITY * _summed(_hsic, side, side):
            raise MeasureError(
                f"{measure} is undefined: all tokens of {name} are equally alike, so that its unbiased HSIC "
                f"with itself is 0; use more tokens."
            )
    return _ratio(*(_summed(_unbiased_hsic, *sides) for sides in ((xs, ys), (xs, xs), (ys, ys))))


def _summed(hsic: Callable[[AnySide, AnySide], Tensor], xs: Iterable[AnySide], ys: Iterable[AnySide]) -> Tensor:
    return torch.stack([hsic(x, y) for x, y in zip(xs, ys, strict=True)]).sum()


def _ratio(cross: Tensor, x_own: Tensor, y_own: Tensor) -> float:
    """Return the ratio, clipped to -1 and 1: it lies within by Cauchy-Schwarz, and rounding must not break
    that."""
    return (cross / (x_own.sqrt() * y_own.sqrt())).clamp(-1, 1).item()


def _rbf_kernel(x_ND: Tensor, bandwidth: float, *, name: str) -> Tensor:
    """Return the centred kernel. It is computed minus the constant 1, which centring removes anyway, so that
    wide kernels stay precise."""
    length_N = x_ND.square().sum(1)
    lengths_NN = length_N[:, None] + length_N
    squared_NN = lengths_NN - 2 * x_ND @ x_ND.T
    squared_NN[squared_NN < SAME_POINT * lengths_NN] = 0
    median = float(np.median(squared_NN.cpu().numpy()))
    if median == 0:
        raise MeasureError(
            f"RBF CKA is undefined: half of all pairs of rows of {name} are equal, so the median distance is 0; "
            f"drop repeated tokens."
        )
    kernel_NN = torch.expm1(squared_NN / (-2 * bandwidth**2 * median))
    return kernel_NN - kernel_NN.mean(0) - kernel_NN.mean(1, keepdim=True) + kernel_NN.mean()


TIED = 12
"""Number of decimals of a correlation. Correlations that differ by less are ties that rounding broke."""


def rsa(x_ND: Matrix, y_NE: Matrix) -> float:
    """Return Spearman's correlation, -1 to 1, of the two sides' similarities over all pairs of tokens.

    The similarity of two tokens is Pearson's correlation of their rows (Kriegeskorte et al. 2008,
    https://doi.org/10.3389/neuro.06.004.2008, who take dissimilarities), so the columns are *not* centred and
    their means count. RSA is symmetric, and ignores the order of the features and the mean and the scale of
    each row. Rotations change it, unless they keep the direction in which all features are equal. Memory
    holds three N x N float64 matrices: 2.4 GB for 10,000 tokens.

    Raises:
        MeasureError: unfit matrices, fewer than three tokens, a constant row, or all pairs equally similar.
    """
    sides = [rescaled(as_matrix(values, name=name)) for name, values in (("x", x_ND), ("y", y_NE))]
    require_pair(*map(len, sides), measure="RSA", tokens=3)
    ranks = np.stack([_ranked_similarities(z_ND, name=name) for name, z_ND in zip("xy", sides, strict=True)])
    return float(np.clip(ranks[0] @ ranks[1], -1, 1))


def _ranked_similarities(x_ND: Tensor, *, name: str) -> np.ndarray:
    """Return the ranks of the correlations above the diagonal, ties averaged; centred, of unit length."""
    x_ND = x_ND - x_ND[:, :1]  # makes a constant row exactly 0
    if (constant := (x_ND == 0).all(1)).any():
        raise MeasureError(
            f"RSA correlates rows, but in {int(constant.sum())} of the {len(x_ND)} rows of {name} all values are "
            f"equal, first in row {int(constant.nonzero()[0])}; leave such tokens out on both sides."
        )
    x_ND = x_ND - x_ND.mean(1, keepdim=True)
    x_ND = x_ND / x_ND.norm(dim=1, keepdim=True)
    similarity_NN = (x_ND @ x_ND.T).cpu().numpy()
    ranks = rankdata(similarity_NN[np.triu_indices(len(x_ND), 1)].round(TIED))
    ranks -= ranks.mean()
    if not ranks.any():
        raise MeasureError(f"RSA is undefined: all pairs of rows of {name} are equally similar; use more tokens.")
    return ranks / np.linalg.norm(ranks)
