"""Masked and causal language model in one run: some sentences are masked, others are read from left to right."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lightning_modules.config import MixtureSettings, RunSettings
from lightning_modules.data.packing import PackedStep
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.data.tokenizer import END, UNKNOWN
from lightning_modules.model.attention import EVERYTHING
from lightning_modules.model.heads import LossSum
from lightning_modules.objectives.masked_lm import Masker
from lightning_modules.objectives.masking import COUNTED, Corrupted
from lightning_modules.objectives.objective import (
    Batch,
    Objective,
    VocabularyPart,
    padded_predictions,
    shared_inputs,
)
from lightning_modules.randomness import derive, uniforms


class Mixture(Objective):
    """Mixture of masked and causal LM, with one encoder and one head.

    A share of the sequences, drawn anew each epoch, is causal: they are not corrupted, and each token is
    predicted from the tokens before it. The others are masked, and their tokens see both sides. The means of
    both losses are weighted with the share.

    An evaluation reads the text in both ways. The loss is that of masked LM; that of causal LM is reported
    beside it.
    """

    vocabulary_parts = (
        VocabularyPart("loss", "label_N", shown=("tokens_BT", "predict_N")),
        VocabularyPart("causal_lm", "next_label_N", (UNKNOWN, END)),
    )
    predicting = ("loss", "causal_lm")
    counted = COUNTED

    def __init__(self, run: RunSettings, *, vocab_size: int) -> None:
        super().__init__(run, vocab_size=vocab_size)
        assert isinstance(run.objective, MixtureSettings)
        self.causal = run.objective.causal
        self.masker = Masker(run.objective.masking, vocab_size=vocab_size, max_steps=run.training.max_steps)
        self.head = self.build_head()

    @property
    def parts(self) -> Mapping[str, float]:
        return {"loss": 1 - self.causal, "causal_lm": self.causal}

    def fit_to_text(self, tokens: Tokens, split: Split) -> None:
        self.masker.fit_to_text(tokens, split)

    def make_batch(self, packed: PackedStep, *, seed: int) -> dict[str, NDArray[np.int64]]:
        source = packed.source
        start_Q = np.flatnonzero(source.position_N == 0)
        coin_Q = uniforms(derive(seed, "mixture"), source.epoch_N[start_Q], source.sentence_N[start_Q])
        causal_N = (coin_Q < self.causal)[np.cumsum(source.position_N == 0) - 1]
        corrupted = self.masker.corrupt(packed, seed=seed, where_N=~causal_N)
        return self._shown(packed, corrupted, causal_N)

    def make_evaluation_batch(self, packed: PackedStep) -> dict[str, NDArray[np.int64]]:
        N, (B, T) = len(packed.source.ids_N), packed.source.shape
        nothing = Corrupted(packed.source.ids_N, np.zeros(N, np.bool_), np.zeros(len(COUNTED), np.int64))
        masked = self._shown(packed, self.masker.evaluation(packed), np.zeros(N, np.bool_))
        causal = self._shown(packed, nothing, np.ones(N, np.bool_))
        both = {name: np.concatenate([masked[name], causal[name]]) for name in masked if name.endswith("_BT")}
        predictions = {name: masked[name] for name in ("predict_N", "label_N", "counts", "source_tokens")}
        return both | predictions | {"next_N": causal["next_N"] + B * T, "next_label_N": causal["next_label_N"]}

    def _shown(
        self, packed: PackedStep, corrupted: Corrupted, causal_N: NDArray[np.bool_]
    ) -> dict[str, NDArray[np.int64]]:
        source, selected_N = packed.source, corrupted.selected_N
        follows = np.flatnonzero((source.position_N > 0) & causal_N)
        return {
            **shared_inputs(packed, corrupted.shown_N),
            "key_rank_BT": source.grid(source.position_N),
            "query_rank_BT": source.grid(np.where(causal_N, source.position_N, EVERYTHING)),
            "counts": corrupted.counts,
            **padded_predictions(source.place_N[selected_N], source.ids_N[selected_N]),
            **padded_predictions(
                source.place_N[follows - 1], source.ids_N[follows], place="next_N", label="next_label_N"
            ),
        }

    def losses(self, batch: Batch) -> dict[str, LossSum]:
        top_ND = self.encode_at(batch, batch["predict_N"], batch["next_N"])
        masked_ND, causal_ND = top_ND.split([len(batch["predict_N"]), len(batch["next_N"])])
        return {
            "loss": self.token_loss(masked_ND, batch["label_N"]),
            "causal_lm": self.token_loss(causal_ND, batch["next_label_N"]),
        }
