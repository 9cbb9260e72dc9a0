"""Objective of one's own: a language model that predicts the token after the next one.

Copy the file beside a spec and name the settings there:

    arms: {ahead: {objective: {kind: "my_objective.py:Ahead", label_smoothing: 0.1}}}
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from lightning_modules.config.encoder import EncoderSettings, encoder_weights, vocabulary_weights
from lightning_modules.config.objectives import ObjectiveSettings
from lightning_modules.data.packing import PackedStep
from lightning_modules.model.heads import LossSum
from lightning_modules.objectives.objective import Batch, Objective, padded_predictions, shared_inputs


class AheadLM(Objective):
    """Language model of the token after the next one. The base class has encoder, optimiser and training step."""

    def __init__(self, run: Any, *, vocab_size: int) -> None:
        super().__init__(run, vocab_size=vocab_size)
        self.head = self.build_head()

    def make_batch(self, packed: PackedStep, *, seed: int) -> dict[str, np.ndarray]:
        # numpy, in the data workers; any chance in it depends on (seed, epoch, sentence) alone
        source = packed.source
        predicted = np.flatnonzero(source.position_N > 1)  # tokens of a sequence stand together, in order
        return shared_inputs(packed, source.ids_N) | padded_predictions(
            source.place_N[predicted - 2], source.ids_N[predicted]
        )

    def losses(self, batch: Batch) -> dict[str, LossSum]:
        # a sum and a count, so that the loss is exact over devices and micro-batches
        top_ND = self.encode_at(batch, batch["predict_N"])
        tokens_VD = self.encoder.tokens.weight
        return {"loss": self.head.loss(top_ND, tokens_VD, batch["label_N"], label_smoothing=self.label_smoothing)}

    def sentence_logits(self, batch: Batch) -> Any:
        # what is predicted at each place of a sentence, for minimal pairs: nothing predicts the first two
        top_BTD = self.encoder.head_input(self.encode(batch)[-1])
        logits_BTV = self.head(top_BTD, self.encoder.tokens.weight).roll(2, dims=1)
        logits_BTV[:, :2] = 0
        return logits_BTV


class Ahead(ObjectiveSettings):
    """Settings of a language model that predicts the token after the next one."""

    sees: Literal["left_only"] = "left_only"
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of each label that is spread over the whole vocabulary in training."""

    module: ClassVar[Any] = AheadLM
    output: ClassVar[Any] = "own"
    """`next` and `hidden` are the outputs of causal and masked LM; `own` stands for `sentence_logits`."""

    @property
    def predictions(self) -> Mapping[Any, float]:
        # of a sentence as many tokens as are not special; `match: predictions` counts with it
        return {"text": 1.0}

    def weights_per_token(self, encoder: EncoderSettings, *, vocab_size: int, **_: Any) -> float:
        # weights of matrices that a token meets; `match: flops` and the plan count with it
        return encoder_weights(encoder) + vocabulary_weights(encoder, vocab_size)
