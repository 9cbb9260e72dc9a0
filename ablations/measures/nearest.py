"""Exact nearest neighbours by cosine, a block of rows at a time.

Every similarity is computed, but no N x N matrix is held: beside the directions and the result, BLOCK
similarities of 4 bytes, twice and a mask where equal ones have to be told apart: 38 MB.

Shapes: N tokens, D features, K neighbours, B rows of a block.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from ablations.errors import MeasureError
from ablations.measures.matrices import Matrix, as_matrix

BLOCK = 2**22
"""Similarities held at once."""

WHOLE_COLUMNS = 64
"""Columns of a product are a multiple of it: a remainder is multiplied by other code (MKL's on an AMD EPYC), which
rounds in another way, as that for a single row does."""

FEWEST_ROWS = 3
"""Rows of a block, so that splitting them evenly leaves at least two in each: a single row is multiplied by other
code, which rounds in another way, and equal states would no longer be equally near."""


def nearest_others(states_ND: Matrix, *, neighbours: int) -> NDArray[np.int64]:
    """The rows of highest cosine similarity to each row, the row itself left out: N x K indices, nearest first.

    Of equal similarities the lower index comes first. float32, on the device of the states; equal runs on
    one machine give equal results, and another machine may tell apart otherwise what differs by 1e-7. Means
    count, lengths of rows do not.

    Raises:
        MeasureError: no finite matrix, a row of zeros, or `neighbours` not from 1 to N - 1.
    """
    return _nearest(directions(states_ND), neighbours)


def nearest_of_group(states_ND: Matrix, group_N: NDArray[np.integer], *, neighbours: int) -> NDArray[np.int64]:
    """`nearest_others` among the rows of the same group; the indices are those of all rows.

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
    """The rows at unit length; float32, on the device of the states.

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
    blocks = torch.arange(n, device=unit_ND.device).tensor_split(math.ceil(n / max(FEWEST_ROWS, BLOCK // n)))
    whole_MD = pad(unit_ND, (0, 0, 0, -n % WHOLE_COLUMNS))
    return torch.cat([_nearest_of(rows, whole_MD, n, neighbours).cpu() for rows in blocks]).numpy()


def _nearest_of(row_B: Tensor, whole_MD: Tensor, n: int, neighbours: int) -> Tensor:
    """Of some of the first n rows; those behind are filling."""
    similarity_BN = (whole_MD[row_B] @ whole_MD.T)[:, :n]
    similarity_BN.scatter_(1, row_B[:, None], -torch.inf)
    best = similarity_BN.topk(neighbours + 1, dim=1)
    index_BK = best.indices[:, :neighbours]
    # Which of the equal ones `topk` returns is not defined. It matters where the last that is in equals the next.
    if (best.values[:, -2] == best.values[:, -1]).any():
        index_BK = _lowest_of_equal(similarity_BN, best.values[:, :-1], index_BK)
    index_BK = index_BK.sort(dim=1).values
    order_BK = similarity_BN.gather(1, index_BK).argsort(dim=1, descending=True, stable=True)
    return index_BK.gather(1, order_BK)


def _lowest_of_equal(similarity_BN: Tensor, highest_BK: Tensor, index_BK: Tensor) -> Tensor:
    """The indices of the K highest, given in descending order; of all that equal the last, the lowest ones."""
    rows, k = index_BK.shape
    last_B1 = highest_BK[:, -1:]
    # float32 counts columns exactly, up to 2^24.
    column_N = torch.arange(similarity_BN.shape[1], dtype=torch.float32, device=index_BK.device)
    equal_BK = torch.where(similarity_BN == last_B1, column_N, torch.inf).topk(k, dim=1, largest=False).indices
    above_B1 = (highest_BK > last_B1).sum(1, keepdim=True)
    rank_BK = torch.arange(k, device=index_BK.device).expand(rows, k)
    return torch.where(rank_BK < above_B1, index_BK, equal_BK.gather(1, (rank_BK - above_B1).clamp(min=0)))
