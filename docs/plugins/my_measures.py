"""Measure of one's own: the rank of a layer, as the number of directions that hold 90% of its variance.

Copy the file beside a spec and name its card there:

    measures: [{kind: "my_measures.py:Rank", share: 0.9}]
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import Field

from ablations.catalogue import Card
from ablations.measures.settings import StateSettings


class RankSettings(StateSettings):
    """Number of directions that hold most of the variance of a layer's states. Its floor has each column shuffled
    on its own, which takes away all that the columns share."""

    # `tokens` and `checkpoints` come from the base class.
    share: float = Field(0.9, gt=0, lt=1)
    """Share of the variance that the directions hold."""


def rows(readings: Any, settings: RankSettings, say: Any) -> Iterator[dict[str, Any]]:
    """Yield a row for each layer of a checkpoint."""
    # The same sentences in every arm; `readings.objective` is the whole module, for measures that need more.
    reading = readings.texts.validation(settings)
    rng = np.random.default_rng(0)
    for layer, states_ND in enumerate(readings.states(reading)):  # layer 0 is the embeddings
        yield {
            "metric": "rank",
            "layer": layer,
            "value": directions(states_ND, settings.share),
            # The chance level is computed, never assumed.
            "floor": directions(rng.permuted(states_ND, axis=0), settings.share),
            "unit": "directions",
            "n": len(states_ND),
            "d": states_ND.shape[1],
        }


def directions(states_ND: np.ndarray, share: float) -> float:
    """Return the smallest number of principal directions that hold this share of the variance."""
    centred_ND = states_ND - states_ND.mean(0, dtype=np.float64)
    variance_D = np.linalg.svd(centred_ND, compute_uv=False) ** 2
    return float(1 + np.searchsorted(np.cumsum(variance_D) / variance_D.sum(), share))


Rank = Card(settings=RankSettings, rows=rows, metrics=("rank",), layers="all")
