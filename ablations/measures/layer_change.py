"""How much a layer changes its tokens: Voita et al. 2019, section 5.1, with a second, independent similarity."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablations.measures.matrices import Side
from ablations.measures.similarity import debiased_cka, pwcca

METRICS = {"pwcca": pwcca, "debiased_cka": debiased_cka}


def layer_change(states_LND: list[NDArray[np.float32]], *, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of 1 - similarity for layers l -> l + 1, and for 0 -> l.

    PWCCA's weights come from the lower layer. The floor is the same number after the tokens of the upper
    layer were shuffled, the chance level of these very matrices.

    Raises:
        MeasureError: fewer than five tokens per unit of width.
    """
    n, width = states_LND[0].shape
    shuffled_N = np.random.default_rng(seed).permutation(n)
    first = below = Side.of(states_LND[0])
    for layer in range(1, len(states_LND)):
        above = Side.of(states_LND[layer])
        shuffled = above.reordered(shuffled_N)
        for lower, side in ((layer - 1, below), (0, first))[: 1 if layer == 1 else 2]:
            for metric, similarity in METRICS.items():
                yield {
                    "metric": metric,
                    "layer": lower,
                    "layer_to": layer,
                    "value": 1 - similarity(side, above),
                    "floor": 1 - similarity(side, shuffled),
                    "unit": "distance",
                    "n": n,
                    "d": width,
                }
        below = above
