"""Masked language model: predict hidden tokens from what is left (Devlin et al. 2019, section 3.1)."""

import numpy as np
from numpy.typing import NDArray

from lightning_modules.config import MaskedLMSettings, MaskingSettings, RunSettings
from lightning_modules.corruption import mask_tokens
from lightning_modules.cross_entropy import summed_cross_entropy
from lightning_modules.data.batches import PackedStep
from lightning_modules.objective import (
    EVALUATION_SEED,
    Batch,
    LossSum,
    Objective,
    asked,
    padded_predictions,
    shared_inputs,
)
from lightning_modules.prediction_head import PredictionHead


class MaskedLM(Objective):
    """Selected tokens are hidden; their originals are predicted, and only they."""

    special_labels = ()

    def __init__(self, run: RunSettings, *, vocab_size: int) -> None:
        super().__init__(run, vocab_size=vocab_size)
        self.head = PredictionHead(run.encoder.hidden_size, vocab_size=vocab_size)

    def view(self, packed: PackedStep, *, seed: int) -> dict[str, NDArray[np.int64]]:
        assert isinstance(self.run.objective, MaskedLMSettings)
        return self._masked(packed, self.run.objective.masking, seed)

    def evaluation_view(self, packed: PackedStep) -> dict[str, NDArray[np.int64]]:
        return self._masked(packed, MaskingSettings(), EVALUATION_SEED)

    def _masked(self, packed: PackedStep, masking: MaskingSettings, seed: int) -> dict[str, NDArray[np.int64]]:
        source = packed.source
        corrupted = mask_tokens(
            source.ids_N,
            epoch_N=source.epoch_N,
            sentence_N=source.sentence_N,
            position_N=source.position_N,
            masking=masking,
            vocab_size=self.vocab_size,
            seed=seed,
        )
        selected_N = corrupted.selected_N
        return shared_inputs(packed, corrupted.shown_N) | padded_predictions(
            source.place_N[selected_N], source.ids_N[selected_N]
        )

    def loss(self, batch: Batch) -> LossSum:
        return predicted_token_loss(self, self.head, batch)


def predicted_token_loss(objective: Objective, head: PredictionHead, batch: Batch) -> LossSum:
    """Cross-entropy at the positions `predict_N`; nothing past the last attention is computed at others."""
    predicted_ND = objective.encoder.head_input(objective.encode(batch, top_place_N=batch["predict_N"])[-1])
    label_N = batch["label_N"]
    total = summed_cross_entropy(head.features(predicted_ND), objective.encoder.tokens.weight, head.bias, label_N)
    return LossSum(total, asked(label_N))
