"""Canonical correlations of two layers: CCA, SVCCA and projection-weighted CCA.

Sources: Raghu et al. 2017, https://arxiv.org/abs/1706.05806, section 2 (SVCCA); Morcos, Raghu & Bengio
2018, https://arxiv.org/abs/1806.05759, section 2.2 (PWCCA). Public implementations of PWCCA weight in
different ways (google/svcca skips the whitening, anatome orthonormalises the coefficients); ours takes
the canonical variates of the centred data, as the paper defines them.

All three ignore the means of the columns and any invertible linear map of Y; CCA, of X too. All are
inflated by chance: independent data of ten tokens per feature has a PWCCA near 0.27. Compare only values
of equal N, D and E, beside their floor.

Shapes: N tokens, D and E features, K directions on both sides.
"""

import warnings
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.matrices import Matrix, as_matrix, centred_pair, rescaled

REFUSED_BELOW = 5
"""Tokens per feature (of the wider side) below which chance decides, and CCA is refused."""

WARNED_BELOW = 10
"""Tokens per feature below which chance is still about 0.3, and CCA warns."""

RANK_CUTOFF = 1e-6
"""Directions whose singular value is below this share of the largest are noise of float32, not data."""


def cca(x_ND: Matrix, y_NE: Matrix) -> float:
    """Mean canonical correlation, 0 to 1, over as many directions as the side of lower rank has.

    1 when one side is a linear function of the other. Symmetric; ignores means and invertible linear
    maps of either side.

    Raises:
        MeasureError: unfit matrices, or fewer than five tokens per feature; below ten it warns.
    """
    x_RD, y_RE = _reduced_pair(x_ND, y_NE, measure="CCA")
    return _correlations(_basis(x_RD), _basis(y_RE)).mean().item()


def svcca(x_ND: Matrix, y_NE: Matrix, *, variance: float = 0.99) -> float:
    """`cca` of the leading principal components that hold the share `variance` of each side's variance.

    0 to 1; symmetric; ignores means, rotations and the scale of each side, not its other linear maps.
    `variance` is a share of *squared* singular values, as in the paper; google/svcca and anatome add up
    the singular values themselves and so keep more directions.

    Raises:
        MeasureError: as `cca`, and when `variance` is not above 0 and at most 1.
    """
    if not 0 < variance <= 1:
        raise MeasureError(
            f"SVCCA keeps a share of the variance, above 0 and at most 1, but variance is {variance}."
        )
    x_RD, y_RE = _reduced_pair(x_ND, y_NE, measure="SVCCA")
    return _correlations(_basis(x_RD, variance), _basis(y_RE, variance)).mean().item()


def pwcca(x_ND: Matrix, y_NE: Matrix, *, weights: Literal["first", "svcca_repo"] = "first") -> float:
    """Mean canonical correlation, 0 to 1, each direction weighted by how much of X it accounts for.

    The weight of a canonical variate h of X is the sum over the columns x_j of X of abs(<h, x_j>), the
    columns being centred and h of unit length. 1 when X is a linear function of Y; ignores the means, the
    overall scale of X and any invertible linear map of Y. It depends on the basis of X, and
    ``pwcca(x, y) != pwcca(y, x)`` in general: the paper weights by one side and leaves open which;
    ours is the first argument. Where correlations are tied, neither they nor the paper's formula fix
    the variates, and the weights within the tie are those of the decomposition.

    ``weights="svcca_repo"`` is for comparison with curves that were made with google/svcca: not the
    paper's formula. There the narrower side gives the weights; see `_repository_pwcca`.

    Raises:
        MeasureError: as `cca`, and for another name of `weights`.
    """
    if weights not in ("first", "svcca_repo"):
        raise MeasureError(f"PWCCA weights are 'first' or 'svcca_repo', but weights is {weights!r}.")
    x_RD, y_RE = _reduced_pair(x_ND, y_NE, measure="PWCCA")
    if weights == "svcca_repo":
        swapped = x_RD.shape[1] > y_RE.shape[1]
        narrow_RD, wide_RE = (y_RE, x_RD) if swapped else (x_RD, y_RE)
        return _repository_pwcca(narrow_RD, wide_RE, as_matrix(y_NE if swapped else x_ND, name="x"))
    basis_RK = _basis(x_RD)
    rotation_KK, correlation_K, _ = torch.linalg.svd(basis_RK.T @ _basis(y_RE), full_matrices=False)
    weight_K = ((basis_RK @ rotation_KK).T @ x_RD).abs().sum(1)
    return (weight_K @ correlation_K.clamp(0, 1) / weight_K.sum()).item()


def _repository_pwcca(x_RD: Tensor, y_RE: Tensor, x_ND: Tensor) -> float:
    """PWCCA as google/svcca computes it, from the reduced pair and the uncentred X, the narrower side.

    It departs from the paper three times. With Sxx, Sxy, Syy the covariances, U from the singular value
    decomposition of Sxx^-1/2 Sxy Syy^-1/2 and m the means of the columns: the directions are (X - m) U,
    without the whitening Sxx^-1/2 that would make them canonical variates; m is added back, column k's
    to direction k; and the weights project the uncentred X on the directions made orthonormal.

    The side with fewer features is X, the first where they are equal (the repository means to swap the
    sides where Y has fewer, and fails). The result depends on the means and on the basis of either side,
    and on the signs of the singular vectors, which are those of numpy here as there.
    """
    ux_RK, _, vx_KD = _decomposed(x_RD)
    uy_RK, _, vy_KE = _decomposed(y_RE)
    # Z (Z'Z)^-1/2 is U V', also where Z'Z has no inverse.
    u_DD, correlation_K, _ = np.linalg.svd((vx_KD.T @ (ux_RK.T @ uy_RK) @ vy_KE).numpy())
    kept = slice(min(len(vx_KD), len(vy_KE)))
    x_ND = rescaled(x_ND).cpu()
    directions_NK = (x_ND - x_ND.mean(0)) @ torch.from_numpy(u_DD)[:, kept] + x_ND.mean(0)[kept]
    weight_K = (torch.linalg.qr(directions_NK).Q.T @ x_ND).abs().sum(1).numpy()
    return float(weight_K @ correlation_K[kept].clip(0, 1) / weight_K.sum())


def require_tokens(tokens: int, features: int, *, measure: str) -> None:
    """Refuse a comparison that chance decides.

    Raises:
        MeasureError: fewer than five tokens per feature of the wider side.
    """
    if tokens < REFUSED_BELOW * features:
        raise MeasureError(
            f"{measure} needs at least {REFUSED_BELOW} tokens per feature: {features} features need "
            f"{REFUSED_BELOW * features} tokens, got {tokens}. Capture more sentences or project the layer "
            f"down first."
        )


def _reduced_pair(x_ND: Matrix, y_NE: Matrix, *, measure: str) -> tuple[Tensor, Tensor]:
    """R = D + E rows on each side with the inner products that the N centred ones have, between all columns.

    CCA needs nothing else, and N is a hundred times larger: the triangular factor of [X Y] is the one pass
    over the tokens, and unlike covariances it keeps the precision of small directions.
    """
    x_ND, y_NE = centred_pair(x_ND, y_NE, measure=measure)
    tokens, features = len(x_ND), max(x_ND.shape[1], y_NE.shape[1])
    require_tokens(tokens, features, measure=measure)
    if tokens < WARNED_BELOW * features:
        warnings.warn(
            f"{measure} of {tokens} tokens and {features} features: below {WARNED_BELOW} tokens per feature "
            f"most of a weak similarity is chance. Show its floor beside it.",
            stacklevel=3,
        )
    both_RC = torch.linalg.qr(torch.cat([x_ND, y_NE], 1), mode="r").R.cpu()
    return both_RC[:, : x_ND.shape[1]], both_RC[:, x_ND.shape[1] :]


def _decomposed(x_RD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Singular value decomposition without the directions that are noise."""
    u_RK, s_K, v_KD = torch.linalg.svd(x_RD, full_matrices=False)
    rank = int((s_K > RANK_CUTOFF * s_K[0]).sum())
    return u_RK[:, :rank], s_K[:rank], v_KD[:rank]


def _basis(x_RD: Tensor, variance: float = 1.0) -> Tensor:
    """Orthonormal basis of the fewest principal components that reach `variance`, by falling variance."""
    u_RK, s_K, _ = _decomposed(x_RD)
    share_K = (s_K**2).cumsum(0) / (s_K**2).sum()
    return u_RK[:, : int((share_K < variance).sum()) + 1]


def _correlations(x_RK: Tensor, y_RK: Tensor) -> Tensor:
    return torch.linalg.svdvals(x_RK.T @ y_RK).clamp(0, 1)
