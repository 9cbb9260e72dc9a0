"""Dimension of a layer: the number of directions that its tokens spread over.

Both measures are 1 for a layer in which all tokens lie on a line and D for one that spreads equally in all D
directions. They ignore the means of the columns, rotations and the scale; not other linear maps.

Shapes: N tokens, D features.
"""

import torch

from ablations.measures.similarity.sides import AnySide, Matrix, Side, require_rows, require_variance


def effective_rank(x_ND: Matrix | AnySide) -> float:
    """Return exp of the entropy of the singular values of the centred data, as shares of their sum: 1 to min(N -
    1, D).

    Roy & Vetterli 2007, The effective rank (EUSIPCO), section 2; there the matrix is taken as it stands.
    Directions below a millionth of the largest are noise and left out.

    Raises:
        MeasureError: no finite matrix, fewer than two tokens, or all rows equal.
    """
    singular_K = _varying(x_ND, measure="effective rank").principal.singular_K
    share_K = singular_K / singular_K.sum()
    return torch.special.entr(share_K).sum().exp().item()


def participation_ratio(x_ND: Matrix | AnySide) -> float:
    """Return (sum of v)^2 / sum of v^2 over the variances v of the principal components, 1 to min(N - 1, D).

    Gao et al. 2017, https://doi.org/10.1101/214262. Never above the effective rank: the directions of most
    variance decide.

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
