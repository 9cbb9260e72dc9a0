"""Causal language model: predict each token from the tokens before it."""

import numpy as np
from numpy.typing import NDArray

from lightning_modules.config import CausalLMSettings, RunSettings
from lightning_modules.data.packing import PackedStep
from lightning_modules.model.heads import LossSum
from lightning_modules.objectives.masking import replace_tokens
from lightning_modules.objectives.objective import Batch, Objective, padded_predictions, shared_inputs


class CausalLM(Objective):
    """Causal language model: each state but the last of a sequence predicts the next token.

    The last token that is predicted is END.
    """

    def __init__(self, run: RunSettings, *, vocab_size: int) -> None:
        super().__init__(run, vocab_size=vocab_size)
        assert isinstance(run.objective, CausalLMSettings)
        self.token_dropout = run.objective.token_dropout
        self.head = self.build_head()

    @property
    def window(self) -> tuple[int, int]:
        return self.run.objective.window, 0

    def make_batch(self, packed: PackedStep, *, seed: int) -> dict[str, NDArray[np.int64]]:
        source = packed.source
        return self._batch(
            packed, replace_tokens(source, self.token_dropout, vocab_size=self.vocab_size, seed=seed)
        )

    def make_evaluation_batch(self, packed: PackedStep) -> dict[str, NDArray[np.int64]]:
        return self._batch(packed, packed.source.ids_N)

    def _batch(self, packed: PackedStep, shown_N: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        source = packed.source
        # The tokens of a sequence are adjacent, so the token before place i is at i - 1.
        follows = np.flatnonzero(source.position_N > 0)
        return shared_inputs(packed, shown_N) | padded_predictions(
            source.place_N[follows - 1], source.ids_N[follows]
        )

    def losses(self, batch: Batch) -> dict[str, LossSum]:
        top_ND = self.encode_at(batch, batch["predict_N"])
        return {"loss": self.token_loss(top_ND, batch["label_N"])}
