"""Similarity indices of two layers: CKA in four forms, RSA, CCA, SVCCA and PWCCA; and the Procrustes distance.

CKA and RSA compare the similarities between tokens. Sources: Kornblith et al. 2019,
https://arxiv.org/abs/1905.00414, section 3 (CKA); Song et al. 2012,
https://jmlr.org/papers/v13/song12a.html, theorem 2 (unbiased HSIC); Nguyen, Raghu & Kornblith 2021,
https://arxiv.org/abs/2010.15327, section 3 (minibatches). All forms of CKA (linear, debiased, in minibatches,
with an RBF kernel) are symmetric and 1 for equal arguments. They ignore the means of the columns, rotations
and the scale of each side, but no other linear maps: the leading principal components decide. Linear and RBF
CKA are inflated by chance (independent data of ten tokens per feature has a linear CKA near 0.09). The other
two have chance level 0 and so may be negative.

CCA, SVCCA and PWCCA (projection-weighted CCA) are canonical correlations. Sources: Raghu et al. 2017,
https://arxiv.org/abs/1706.05806, section 2 (SVCCA); Morcos, Raghu & Bengio 2018,
https://arxiv.org/abs/1806.05759, section 2.2 (PWCCA). Public implementations of PWCCA weight in different
ways (google/svcca skips the whitening, anatome orthonormalises the coefficients). Ours takes the canonical
variates of the centred data, as the paper defines them. All three ignore the means of the columns. CCA also
ignores any invertible linear map of either side, PWCCA any such map of Y, and SVCCA only rotations and scale.
All three are inflated by chance: independent data of ten tokens per feature has a PWCCA near 0.27. Compare
only values of equal N, D and E, beside their chance levels. The Procrustes distance ignores means, rotations
and scale, and no other linear map.

Shapes: N tokens, D and E features, R rows of the factor R, K and J principal components.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from typing import Literal

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.settings import REFUSED_BELOW
from ablations.measures.similarity.sides import (
    AnySide,
    Matrix,
    Side,
    UndefinedError,
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
            raise UndefinedError(
                f"{measure} is undefined: all pairs of tokens of {name} are equally similar, so its unbiased "
                "HSIC with itself is 0; use more tokens."
            )
    return _ratio(*(_summed(_unbiased_hsic, *sides) for sides in ((xs, ys), (xs, xs), (ys, ys))))


def _summed(hsic: Callable[[AnySide, AnySide], Tensor], xs: Iterable[AnySide], ys: Iterable[AnySide]) -> Tensor:
    return torch.stack([hsic(x, y) for x, y in zip(xs, ys, strict=True)]).sum()


def _ratio(cross: Tensor, x_own: Tensor, y_own: Tensor) -> float:
    """Return the ratio, clipped to [-1, 1]. By Cauchy-Schwarz it lies in this interval, but rounding may move
    it out."""
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
            f"RBF CKA is undefined: at least half of all pairs of rows of {name} are equal, so the median "
            "distance is 0; leave repeated tokens out."
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
            f"RSA correlates rows, but all values are equal in {int(constant.sum())} of the {len(x_ND)} rows of "
            f"{name}, first in row {int(constant.nonzero()[0])}; leave these tokens out on both sides."
        )
    x_ND = x_ND - x_ND.mean(1, keepdim=True)
    x_ND = x_ND / x_ND.norm(dim=1, keepdim=True)
    similarity_NN = (x_ND @ x_ND.T).cpu().numpy()
    ranks = rankdata(similarity_NN[np.triu_indices(len(x_ND), 1)].round(TIED))
    ranks -= ranks.mean()
    if not ranks.any():
        raise MeasureError(f"RSA is undefined: all pairs of rows of {name} are equally similar; use more tokens.")
    return ranks / np.linalg.norm(ranks)


WARNED_BELOW = 10
"""Tokens per feature below which CCA warns: its chance level is still about 0.3."""


def cca(x_ND: Matrix | AnySide, y_NE: Matrix | AnySide) -> float:
    """Return the mean canonical correlation, 0 to 1, over as many directions as the side of lower rank has.

    It is 1 if one side is a linear function of the other. It is symmetric, and ignores means and invertible
    linear maps of either side. In all measures of CCA, directions of a side that are smaller than a millionth of
    its largest one are noise of float32 and left out (`RANK_CUTOFF`).

    Raises:
        MeasureError: unfit matrices, or fewer than five tokens per feature; below ten it warns.
    """
    pair = _canonical_pair(x_ND, y_NE, measure="CCA")
    return _correlations(*pair).mean().item()


def svcca(x_ND: Matrix | AnySide, y_NE: Matrix | AnySide, *, variance: float = 0.99) -> float:
    """Return `cca` of the leading principal components that hold the share `variance` of each side's
    variance.

    It is 0 to 1 and symmetric. It ignores means, rotations and the scale of each side, but no other linear
    maps. `variance` is a share of *squared* singular values, as in the paper. google/svcca and anatome add up
    the singular values themselves and so keep more directions.

    Raises:
        MeasureError: as `cca`, and if `variance` is no number above 0 and at most 1.
    """
    if not (isinstance(variance, Real) and 0 < variance <= 1):
        raise MeasureError(
            "variance is the share of variance that SVCCA keeps and must be above 0 and at most 1, but is "
            f"{variance!r}."
        )
    pair = _canonical_pair(x_ND, y_NE, measure="SVCCA")
    return _correlations(*pair, variance).mean().item()


def pwcca(
    x_ND: Matrix | AnySide, y_NE: Matrix | AnySide, *, weights: Literal["first", "svcca_repo"] = "first"
) -> float:
    """Return the mean canonical correlation, 0 to 1, each direction weighted by how much of X it accounts
    for.

    The weight of a canonical variate h of X is the sum over the columns x_j of X of abs(<h, x_j>), where the
    columns are centred and h has unit length. PWCCA is 1 if either side is a linear function of the other.
    There are as many variates as the side of lower rank has directions, so what a map X -> Y drops is in no
    variate and costs nothing. (PWCCA is 1 for a Y of rank 1 that is a map of X; `debiased_cka` is not.) PWCCA
    ignores the means, the overall scale of X and any invertible linear map of Y. It depends on the basis of
    X, and ``pwcca(x, y) != pwcca(y, x)`` in general: the paper weights by one side and leaves open which; we
    take the first argument. If correlations are tied, neither they nor the paper's formula determine the
    variates, and the weights within the tie are those of the decomposition.

    ``weights="svcca_repo"`` is for comparison with curves that were made with google/svcca. It is not the
    paper's formula: the narrower side gives the weights; see `_repository_pwcca`.

    Raises:
        MeasureError: as `cca`, and for another name of `weights`.
    """
    if weights not in ("first", "svcca_repo"):
        raise MeasureError(f"weights of PWCCA must be 'first' or 'svcca_repo', but is {weights!r}.")
    x, y = _canonical_pair(x_ND, y_NE, measure="PWCCA")
    if weights == "svcca_repo":
        return _repository_pwcca(y, x) if x.width > y.width else _repository_pwcca(x, y)
    rotation_KK, correlation_K, _ = torch.linalg.svd(x.overlap(y), full_matrices=False)
    weight_K = (rotation_KK.T @ x.principal.factor_KD).abs().sum(1)
    return (weight_K @ correlation_K.clamp(0, 1) / weight_K.sum()).item()


def _repository_pwcca(x: AnySide, y: AnySide) -> float:
    """Return PWCCA as google/svcca computes it; X is the narrower side.

    It departs from the paper in three ways. Let Sxx, Sxy, Syy be the covariances, U the left singular vectors
    of Sxx^-1/2 Sxy Syy^-1/2, and m the means of the columns. First, the directions are (X - m) U, without the
    whitening Sxx^-1/2 that would make them canonical variates. Second, m is added back, the mean of column k
    to direction k. Third, the weights project the uncentred X on the directions made orthonormal.

    X is the side with fewer features, or the first side if both have equally many. (The repository means to
    swap the sides if Y has fewer, and fails.) The result depends on the means, on the basis of either side,
    and on the signs of the singular vectors, which come from numpy both here and there.
    """
    axes_KD, axes_JE = x.principal.axes_KD, y.principal.axes_KD
    # Z (Z'Z)^-1/2 is U V', also if Z'Z has no inverse.
    u_DD, correlation_K, _ = np.linalg.svd((axes_KD.T @ x.overlap(y) @ axes_JE).numpy())
    kept = slice(min(len(axes_KD), len(axes_JE)))
    # All rows in terms of U and of the constant column of unit length, which is orthogonal to it.
    raw_RD = torch.cat([x.principal.factor_KD, math.sqrt(len(x)) * x.mean_D.cpu()[None]])
    directions_RK = torch.cat([raw_RD[:-1] @ torch.from_numpy(u_DD)[:, kept], raw_RD[-1:, kept]])
    weight_K = (torch.linalg.qr(directions_RK).Q.T @ raw_RD).abs().sum(1).numpy()
    return float(weight_K @ correlation_K[kept].clip(0, 1) / weight_K.sum())


def require_tokens(tokens: int, features: int, *, measure: str) -> None:
    """Raise a MeasureError if there are fewer than five tokens per feature of the wider side: chance decides
    then."""
    if tokens < REFUSED_BELOW * features:
        raise MeasureError(
            f"{measure} needs at least {REFUSED_BELOW} tokens per feature, which is {REFUSED_BELOW * features} "
            f"at a width of {features}, but got {tokens}; give more tokens or fewer features."
        )


def _canonical_pair(x_ND: Matrix | AnySide, y_NE: Matrix | AnySide, *, measure: str) -> tuple[AnySide, AnySide]:
    x, y = side_pair(x_ND, y_NE, measure=measure)
    tokens, features = len(x), max(x.width, y.width)
    require_tokens(tokens, features, measure=measure)
    if tokens < WARNED_BELOW * features:
        warnings.warn(
            f"{measure} of {tokens} tokens at a width of {features}: with fewer than {WARNED_BELOW} tokens per "
            "feature, most of a weak similarity is chance; show its floor beside it.",
            stacklevel=3,
        )
    return x, y


def _correlations(x: AnySide, y: AnySide, variance: float = 1.0) -> Tensor:
    """Return the canonical correlations of the fewest principal components that reach `variance` on each side."""
    overlap_KJ = x.overlap(y)[: _components(x, variance), : _components(y, variance)]
    return torch.linalg.svdvals(overlap_KJ).clamp(0, 1)


def _components(x: AnySide, variance: float) -> int:
    variance_K = x.principal.singular_K**2
    if variance == 1:  # rounding of sums must not leave out the last ones
        return len(variance_K)
    share_K = variance_K.cumsum(0) / variance_K.sum()
    return int((share_K < variance).sum()) + 1


def procrustes(x_ND: Matrix | AnySide, y_NE: Matrix | AnySide) -> float:
    """Return the distance of two clouds after the best rotation, each centred and of unit Frobenius norm: 0
    to sqrt 2.

    It is the root of 2 - 2 ||X'Y||_*, a metric (Williams et al. 2021, https://arxiv.org/abs/2110.14739,
    section 2). Columns of 0 make up for different widths. It is symmetric, and ignores means, rotations,
    reflections and the scale of each side. Rounding under the root leaves up to 1e-7 if it should be 0.

    Raises:
        MeasureError: unfit matrices.
    """
    x, y = side_pair(x_ND, y_NE, measure="Procrustes")
    nuclear = torch.linalg.svdvals(x.cross(y).cpu()).sum().item()
    return math.sqrt(max(0.0, 2 - 2 * nuclear / math.sqrt(x.squared_length.item() * y.squared_length.item())))
