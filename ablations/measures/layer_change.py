"""How much a layer changes its tokens: Voita et al. 2019, section 5.1, with a second, independent similarity."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    top = len(states_LND) - 1
    pairs = [(layer, layer + 1) for layer in range(top)] + [(0, layer) for layer in range(2, top + 1)]
    for lower, upper in pairs:
        x, y = states_LND[lower], states_LND[upper]
        for metric, similarity in METRICS.items():
            yield {
                "metric": metric,
                "layer": lower,
                "layer_to": upper,
                "value": 1 - similarity(x, y),
                "floor": 1 - similarity(x, y[shuffled_N]),
                "unit": "distance",
                "n": n,
                "d": width,
            }
