"""Procrustes distance of two layers as clouds of points.

Shapes: N tokens, D and E features.
"""

import math

import torch

from ablations.measures.similarity.sides import AnySide, Matrix, side_pair


def procrustes(x_ND: Matrix | AnySide, y_NE: Matrix | AnySide) -> float:
    """Return the distance of the two clouds, each centred and of unit Frobenius norm, after the best rotation: 0
    to sqrt 2.

    The root of 2 - 2 ||X'Y||_*, a metric (Williams et al. 2021, https://arxiv.org/abs/2110.14739, section
    2); columns of 0 make up for different widths. Symmetric; ignores means, rotations, reflections and the
    scale of each side. Rounding under the root leaves up to 1e-7 where it should be 0.

    Raises:
        MeasureError: unfit matrices.
    """
    x, y = side_pair(x_ND, y_NE, measure="Procrustes")
    nuclear = torch.linalg.svdvals(x.cross(y).cpu()).sum().item()
    return math.sqrt(max(0.0, 2 - 2 * nuclear / math.sqrt(x.squared_length.item() * y.squared_length.item())))
