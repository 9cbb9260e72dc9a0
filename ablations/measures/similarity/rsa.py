"""Representational similarity analysis: whether the same tokens are alike in two layers.

Shapes: N tokens, D and E features.
"""

import numpy as np
from scipy.stats import rankdata
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.similarity.sides import Matrix, as_matrix, require_pair, rescaled

TIED = 12
"""Decimals of a correlation. What differs by less is a tie that rounding broke."""


def rsa(x_ND: Matrix, y_NE: Matrix) -> float:
    """Return Spearman's correlation, -1 to 1, of the two sides' similarities over all pairs of tokens.

    The similarity of two tokens is Pearson's correlation of their rows (Kriegeskorte et al. 2008,
    https://doi.org/10.3389/neuro.06.004.2008, with similarities for dissimilarities), so the columns are
    *not* centred and their means count. Symmetric; ignores the order of the features and the mean and the
    scale of each row. Rotations change it, unless they keep the direction in which all features are equal.
    Holds three N x N float64 matrices: 2.4 GB for 10,000 tokens.

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
