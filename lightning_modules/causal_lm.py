"""Causal language model: predict each token from those before it."""

import numpy as np
from numpy.typing import NDArray

from lightning_modules.config import RunSettings
from lightning_modules.data.batches import PackedStep
from lightning_modules.masked_lm import predicted_token_loss
from lightning_modules.objective import Batch, LossSum, Objective, padded_predictions, shared_inputs
from lightning_modules.prediction_head import PredictionHead


class CausalLM(Objective):
    """The state of each token but a sentence's last predicts the token after it; the last one is END."""

    def __init__(self, run: RunSettings, *, vocab_size: int) -> None:
        super().__init__(run, vocab_size=vocab_size)
        self.head = PredictionHead(run.encoder.hidden_size, vocab_size=vocab_size)

    def view(self, packed: PackedStep, *, seed: int) -> dict[str, NDArray[np.int64]]:
        source = packed.source
        follows = np.flatnonzero(source.position_N > 0)  # tokens of a sentence stand together, in order
        return shared_inputs(packed, source.ids_N) | padded_predictions(
            source.place_N[follows - 1], source.ids_N[follows]
        )

    def loss(self, batch: Batch) -> LossSum:
        return predicted_token_loss(self, self.head, batch)
