"""Nearest neighbours by cosine, a block of rows at a time.

Every similarity is computed, but no N x N matrix is held: beside the directions and the result, BLOCK
similarities of 4 bytes.

Shapes: N tokens, D features, K neighbours, B rows of a block.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.similarity.sides import Matrix, as_matrix

BLOCK = 2**22
"""Similarities held at once."""


def nearest_others(states_ND: Matrix, *, neighbours: int) -> NDArray[np.int64]:
    """Return the rows of highest cosine similarity to each row, without the row itself: N x K indices, nearest
    first.

    float32, on the device of the states. `torch.topk` decides which of equal similarities comes first; another
    machine may decide otherwise, also where similarities differ by 1e-7. Means count, lengths of rows do not.

    Raises:
        MeasureError: no finite matrix, a row of zeros, or `neighbours` not from 1 to N - 1.
    """
    return _nearest(directions(states_ND), neighbours)


def nearest_of_group(states_ND: Matrix, group_N: NDArray[np.integer], *, neighbours: int) -> NDArray[np.int64]:
    """Return `nearest_others` among the rows of the same group; the indices are those of all rows.

    Raises:
        MeasureError: as `nearest_others`, and for a group of fewer than K + 1 rows.
    """
    unit_ND = directions(states_ND)
    nearest_NK = np.empty((len(unit_ND), max(0, neighbours)), np.int64)
    _, group_N, sizes = np.unique(group_N, return_inverse=True, return_counts=True)
    for place in np.split(np.argsort(group_N, kind="stable"), sizes.cumsum()[:-1]):
        rows = torch.from_numpy(place).to(unit_ND.device)
        nearest_NK[place] = place[_nearest(unit_ND[rows], neighbours)]
    return nearest_NK


def directions(states_ND: Matrix) -> Tensor:
    """Return the rows at unit length; float32, on the device of the states.

    Raises:
        MeasureError: no finite matrix, or a row of zeros, which has no direction.
    """
    x_ND = as_matrix(states_ND, name="states", dtype=torch.float32)
    largest_N1 = x_ND.abs().amax(1, keepdim=True)
    if (zero := largest_N1 == 0).any():
        raise MeasureError(
            f"a cosine needs states that are not 0, but in {int(zero.sum())} of {len(x_ND)} all values are 0, "
            f"first in row {int(zero[:, 0].nonzero()[0])}; leave such tokens out."
        )
    x_ND = x_ND / largest_N1  # so that no square overflows or vanishes
    return x_ND / x_ND.norm(dim=1, keepdim=True)


def _nearest(unit_ND: Tensor, neighbours: int) -> NDArray[np.int64]:
    n = len(unit_ND)
    if not 1 <= neighbours < n:
        raise MeasureError(
            f"neighbours must be at least 1 and less than the number of tokens, {n}, but is {neighbours}; use "
            f"more tokens or fewer neighbours."
        )
    nearest = []
    for row_B in torch.arange(n, device=unit_ND.device).split(max(1, BLOCK // n)):
        similarity_BN = (unit_ND[row_B] @ unit_ND.T).scatter_(1, row_B[:, None], -torch.inf)
        nearest.append(similarity_BN.topk(neighbours, dim=1).indices.cpu())
    return torch.cat(nearest).numpy()
