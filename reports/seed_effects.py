"""An effect as the tests over seeds take it: one number a seed."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray


class SeedEffects(NamedTuple):
    """One effect."""

    seeds: tuple[int, ...]
    values: NDArray[np.float64]
    """One a seed; positive as the claim says."""
    smallest: float | None = None
    """The smallest that matters, where it is not the claim's or the contrast's."""
    unit: str = ""
    """Of the values."""
    direction: Literal["higher", "either"] = "higher"
    left_out: tuple[str, ...] = ()
    """Seeds that were not whole, each with the reason."""
    chosen: tuple[int, ...] | None = None
    """The layer that each seed was judged at, chosen on the other seeds; its tests then use half the level."""
    page: float | None = None
    """Of a trend: probability of Page's test in the direction of the claim."""
    beside: Mapping[str, float] = {}
    """Numbers that help to read it: shares, places."""
