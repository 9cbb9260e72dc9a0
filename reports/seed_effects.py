"""An effect as the tests over seeds take it: one number a seed."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Direction = Literal["higher", "either"]
"""Whether a claim says that one side is more, or only that both differ."""


class SeedEffects(NamedTuple):
    """One effect."""

    seeds: tuple[int, ...]
    values: NDArray[np.float64]
    """One a seed; positive as the claim says."""
    smallest: float | None = None
    """The smallest that matters, where it is not the claim's or the contrast's."""
    unit: str = ""
    """Of the values."""
    direction: Direction = "higher"
    left_out: tuple[str, ...] = ()
    """Seeds that were not whole, each with the reason."""
    bounded: bool = False
    """Whether 0 is a bound that the claim set, and not the absence of a difference: what lies close to a bound is
    undecided, and never too small to matter."""
    condition: bool = False
    """Whether the claim means something only where this holds: it can keep a claim open, and never refutes it."""
    chosen: tuple[int, ...] | None = None
    """The layer that each seed was judged at, chosen on the other seeds."""
    at_layers_LMS: NDArray[np.float64] | None = None
    """With layers that were chosen: what each seed shows at any that could have been. The effect in truth is the
    largest over L of the smallest over M."""
    page: float | None = None
    """Of a trend: probability of Page's test in the direction of the claim."""
    beside: Mapping[str, float] = {}
    """Numbers that help to read it: shares, places."""
    groups: tuple[str, ...] = ()
    """Tasks or other groups that it is a mean over."""
