"""Machine translation: encode a sentence, decode its translation (Vaswani et al. 2017)."""

from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from lightning_modules.config import RunSettings, TranslationSettings
from lightning_modules.data.packing import PackedStep
from lightning_modules.data.token_store import Tokens
from lightning_modules.data.tokenizer import END, PAD, START
from lightning_modules.model.encoder import Decoder
from lightning_modules.model.heads import LossSum, vocabulary_loss
from lightning_modules.objectives.masking import replace_tokens
from lightning_modules.objectives.objective import Batch, Objective, padded_predictions, shared_inputs


class Translation(Objective):
    """Translation model: the decoder predicts each token from the tokens before it and the whole source."""

    needs_targets = True

    def __init__(self, run: RunSettings, *, vocab_size: int, target_vocab_size: int) -> None:
        super().__init__(run, vocab_size=vocab_size)
        assert isinstance(run.objective, TranslationSettings)
        self.token_dropout = run.objective.token_dropout
        self.decoder = Decoder(
            run.encoder,
            num_hidden_layers=run.objective.decoder.num_hidden_layers,
            vocab_size=target_vocab_size,
            max_length=run.data.max_length,
        )
        linear = run.objective.head == "linear"
        self.output = nn.Linear(run.encoder.hidden_size, target_vocab_size, bias=False) if linear else None

    @classmethod
    def of_text(cls, run: RunSettings, tokens: Tokens) -> Self:
        assert tokens.target_vocab_size is not None
        return cls(run, vocab_size=tokens.vocab_size, target_vocab_size=tokens.target_vocab_size)

    @property
    def output_VD(self) -> Tensor:
        """Weights with which tokens of the translation are predicted."""
        return self.decoder.tokens.weight if self.output is None else self.output.weight

    def make_batch(self, packed: PackedStep, *, seed: int) -> dict[str, NDArray[np.int64]]:
        shown_N = replace_tokens(packed.source, self.token_dropout, vocab_size=self.vocab_size, seed=seed)
        return self._batch(packed, shown_N)

    def make_evaluation_batch(self, packed: PackedStep) -> dict[str, NDArray[np.int64]]:
        return self._batch(packed, packed.source.ids_N)

    def _batch(self, packed: PackedStep, shown_N: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        target = packed.target
        assert target is not None
        # The tokens of a sentence are adjacent, so the token before place i is at i - 1.
        follows = np.flatnonzero(target.position_N > 0)
        return shared_inputs(packed, shown_N) | {
            "target_tokens_BU": target.grid(target.ids_N),
            "target_sequence_BU": target.grid(target.slot_N),
            "target_position_BU": target.grid(target.position_N),
            **padded_predictions(target.place_N[follows - 1], target.ids_N[follows]),
        }

    def losses(self, batch: Batch) -> dict[str, LossSum]:
        hidden_BUD = self.decoder(
            batch["target_tokens_BU"],
            self.encoder.head_input(self.encode(batch)[-1]),
            sequence_BU=batch["target_sequence_BU"],
            source_sequence_BT=batch["sequence_BT"],
            position_BU=batch["target_position_BU"],
        )
        loss = vocabulary_loss(
            hidden_BUD.flatten(0, 1)[batch["predict_N"]],
            self.output_VD,
            None,
            batch["label_N"],
            label_smoothing=self.label_smoothing,
        )
        return {"loss": loss}

    @torch.no_grad()
    def translate(self, tokens_BT: Tensor, *, max_length: int) -> list[list[int]]:
        """Return greedy translations of one sentence a row (PAD on the right), each without START and END.

        Decoding a row ends at END or at `max_length` tokens, START and END included.
        """
        source_sequence_BT = (tokens_BT != PAD).long()
        source_BTD = self.encoder.head_input(
            self.encoder(tokens_BT, sees=self.run.objective.sees, window=self.window)[-1]
        )
        decoded_BU = tokens_BT.new_full((len(tokens_BT), 1), START)
        ended_B = torch.zeros(len(tokens_BT), dtype=torch.bool, device=tokens_BT.device)
        while decoded_BU.shape[1] < max_length and not ended_B.all():
            hidden_BUD = self.decoder(
                decoded_BU,
                source_BTD,
                sequence_BU=torch.ones_like(decoded_BU),
                source_sequence_BT=source_sequence_BT,
                position_BU=torch.arange(decoded_BU.shape[1], device=tokens_BT.device),
            )
            next_B = F.linear(hidden_BUD[:, -1], self.output_VD).argmax(-1)
            next_B = torch.where(ended_B, PAD, next_B)
            decoded_BU = torch.cat([decoded_BU, next_B[:, None]], dim=1)
            ended_B |= next_B == END
        return [[i for i in row if i not in (PAD, START, END)] for row in decoded_BU.tolist()]
