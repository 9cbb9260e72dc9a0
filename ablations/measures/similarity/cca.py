"""Canonical correlations of two layers (CCA, SVCCA, PWCCA or projection-weighted CCA) and Procrustes
distance.

Sources: Raghu et al. 2017, https://arxiv.org/abs/1706.05806, section 2 (SVCCA); Morcos, Raghu & Bengio 2018,
https://arxiv.org/abs/1806.05759, section 2.2 (PWCCA). Public implementations of PWCCA weight in different
ways (google/svcca skips the whitening, anatome orthonormalises the coefficients). Ours takes the canonical
variates of the centred data, as the paper defines them.

CCA, SVCCA and PWCCA ignore the means of the columns. CCA also ignores any invertible linear map of either
side, PWCCA any such map of Y, and SVCCA only rotations and scale. All three are inflated by chance:
independent data of ten tokens per feature has a PWCCA near 0.27. Compare only values of equal N, D and E,
beside their chance levels. The Procrustes distance ignores means, rotations and scale, and no other linear
map.

Shapes: N tokens, D and E features, R rows of the factor R, K and J principal components.
"""

import math
import warnings
from numbers import Real
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.similarity.sides import AnySide, Matrix, side_pair

REFUSED_BELOW = 5
"""Tokens per feature (of the wider side) below which chance decides and CCA is refused."""

WARNED_BELOW = 10
"""Tokens per feature below which CCA warns: its chance level is still about 0.3."""


def cca(x_ND: Matrix | AnySide, y_NE: Matrix | AnySide) -> float:
    """Return the mean canonical correlation, 0 to 1, over as many directions as the side of lower rank has.

    It is 1 if one side is a linear function of the other. It is symmetric, and ignores means and invertible
    linear maps of either side.

    Raises:
        MeasureError: unfit matrices, or fewer than five tokens per feature; below ten it warns.
    """
    pair = _pair(x_ND, y_NE, measure="CCA")
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
            f"SVCCA keeps a share of the variance, above 0 and at most 1, but variance is {variance!r}."
        )
    pair = _pair(x_ND, y_NE, measure="SVCCA")
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
        raise MeasureError(f"PWCCA weights are 'first' or 'svcca_repo', but weights is {weights!r}.")
    x, y = _pair(x_ND, y_NE, measure="PWCCA")
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
            f"{measure} needs at least {REFUSED_BELOW} tokens per feature, {REFUSED_BELOW * features} at a width "
            f"of {features}, but got {tokens}; give more tokens or fewer features."
        )


def _pair(x_ND: Matrix | AnySide, y_NE: Matrix | AnySide, *, measure: str) -> tuple[AnySide, AnySide]:
    x, y = side_pair(x_ND, y_NE, measure=measure)
    tokens, features = len(x), max(x.width, y.width)
    require_tokens(tokens, features, measure=measure)
    if tokens < WARNED_BELOW * features:
        warnings.warn(
            f"{measure} of {tokens} tokens at a width of {features}: below {WARNED_BELOW} tokens per feature most "
            f"of a weak similarity is chance; show its floor beside it.",
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
