"""Masked language model: predict hidden tokens from the others (Devlin et al. 2019, section 3.1).

Its loss is the cross-entropy over the vocabulary. `lightning_modules/model/heads.py` computes its sum over a
batch, and `Objective.training_step` (`objective.py`) divides by the number of predictions.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from lightning_modules.config import MaskedLMSettings, MaskingSettings, RunSettings
from lightning_modules.data.packing import PackedStep
from lightning_modules.data.sequences import PairLoss
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.model.heads import BinaryHead, LossSum, count_predictions
from lightning_modules.objectives.masking import COUNTED, Corrupted, Units, mask_tokens
from lightning_modules.objectives.objective import (
    EVALUATION_SEED,
    Batch,
    Objective,
    VocabularyPart,
    padded_predictions,
    shared_inputs,
)

EVALUATED = MaskingSettings()
"""Masking of every evaluation: 15% of the tokens, 80-10-10."""


class Masker:
    """Masking of a run: its settings, and what they need to know about the text."""

    def __init__(self, masking: MaskingSettings, *, vocab_size: int, max_steps: int) -> None:
        self.masking, self._vocab_size, self._max_steps = masking, vocab_size, max_steps
        self._units: Units | None = None

    def fit_to_text(self, tokens: Tokens, split: Split) -> None:
        """Find the units of the training text that masking needs: words, n-grams or words of a lexicon.

        Raises:
            DataError: as `Units`.
        """
        self._units = Units(self.masking.select, tokens, split)

    def corrupt(self, packed: PackedStep, *, seed: int, where_N: NDArray[np.bool_] | None = None) -> Corrupted:
        """Return the corruption of a training step.

        It depends on (seed, epoch, sentence), and on the step only if a schedule changes the ratio. With
        `masking.copies` the epoch counts modulo that number.

        Args:
            where_N: for each token, whether its sentence is corrupted at all. By default all are.
        """
        assert self._units is not None, "fit_to_text comes first"
        source, copies = packed.source, self.masking.copies
        drawn_N = source.epoch_N if copies is None else source.epoch_N % copies
        candidate_N = self._units.candidates(source, epoch_N=drawn_N, seed=seed)
        if where_N is not None:
            candidate_N = where_N if candidate_N is None else where_N & candidate_N
        return mask_tokens(
            source,
            self.masking,
            vocab_size=self._vocab_size,
            seed=seed,
            ratio=self.masking.ratio_at(packed.number, self._max_steps),
            candidate_N=candidate_N,
            joined_N=self._units.joined(source, epoch_N=drawn_N, seed=seed),
        )

    def evaluation(self, packed: PackedStep) -> Corrupted:
        """Return the corruption for evaluation, which is fixed for all arms and seeds."""
        return mask_tokens(packed.source, EVALUATED, vocab_size=self._vocab_size, seed=EVALUATION_SEED)


class MaskedLM(Objective):
    """Masked language model: selected tokens are hidden, and only their originals are predicted."""

    vocabulary_parts = (VocabularyPart("loss", "label_N", shown=("tokens_BT", "predict_N")),)
    counted = COUNTED

    def __init__(self, run: RunSettings, *, vocab_size: int) -> None:
        super().__init__(run, vocab_size=vocab_size)
        assert isinstance(run.objective, MaskedLMSettings)
        self.masker = Masker(run.objective.masking, vocab_size=vocab_size, max_steps=run.training.max_steps)
        self.head = self.build_head()
        if self.pair_loss != "none":
            self.pair_head = BinaryHead(run.encoder.hidden_size, activation=nn.Tanh())

    @property
    def pair_loss(self) -> PairLoss:
        assert isinstance(self.run.objective, MaskedLMSettings)
        return self.run.objective.pair_loss

    @property
    def parts(self) -> Mapping[str, float]:
        pairs = {self.pair_loss: 1.0, f"{self.pair_loss}_accuracy": 0.0} if self.pair_loss != "none" else {}
        return {"loss": 1.0} | pairs

    def fit_to_text(self, tokens: Tokens, split: Split) -> None:
        self.masker.fit_to_text(tokens, split)

    def repeats_at(self, step: int) -> int:
        return self.masker.masking.repeats_at(step, self.run.training.max_steps)

    def make_batch(self, packed: PackedStep, *, seed: int) -> dict[str, NDArray[np.int64]]:
        return self._shown(packed, self.masker.corrupt(packed, seed=seed))

    def make_evaluation_batch(self, packed: PackedStep) -> dict[str, NDArray[np.int64]]:
        return self._shown(packed, self.masker.evaluation(packed))

    def _shown(self, packed: PackedStep, corrupted: Corrupted) -> dict[str, NDArray[np.int64]]:
        source, selected_N = packed.source, corrupted.selected_N
        arrays = shared_inputs(packed, corrupted.shown_N) | {"counts": corrupted.counts}
        arrays |= padded_predictions(source.place_N[selected_N], source.ids_N[selected_N])
        if self.pair_loss != "none":
            start_Q = source.place_N[source.position_N == 0]
            arrays |= padded_predictions(start_Q, source.label_Q, place="start_Q", label="label_Q")
        return arrays

    def predictions(self, batch: Batch) -> dict[str, Tensor]:
        pairs = {part: count_predictions(batch["label_Q"]) for part in self.parts if part != "loss"}
        return super().predictions(batch) | pairs

    def losses(self, batch: Batch) -> dict[str, LossSum]:
        if self.pair_loss == "none":
            top_ND = self.encode_at(batch, batch["predict_N"])
            return {"loss": self.token_loss(top_ND, batch["label_N"])}
        top_ND = self.encode_at(batch, batch["predict_N"], batch["start_Q"])
        tokens_ND, starts_QD = top_ND.split([len(batch["predict_N"]), len(batch["start_Q"])])
        return {
            "loss": self.token_loss(tokens_ND, batch["label_N"]),
            self.pair_loss: self.pair_head.loss(starts_QD, batch["label_Q"]),
            f"{self.pair_loss}_accuracy": self.pair_head.accuracy(starts_QD, batch["label_Q"]),
        }
