"""Replaced token detection (ELECTRA, Clark et al. 2020): a small generator fills in hidden tokens, and the
encoder tells them from original tokens.

Variants show where the gain of ELECTRA comes from.

Letters: N predictions, V vocabulary, B rows, T positions, D width.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from lightning_modules.config import EncoderSettings, ReplacedTokenSettings, RunSettings
from lightning_modules.config.objectives import generator_shape
from lightning_modules.data.packing import PackedStep
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.data.tokenizer import FIRST_WORD_ID
from lightning_modules.model.attention import Sight, sight_of, visible_in
from lightning_modules.model.encoder import EncoderBlock, norm_layer
from lightning_modules.model.heads import IGNORED, BinaryHead, LossSum, PredictionHead, count_predictions
from lightning_modules.objectives.masked_lm import Masker
from lightning_modules.objectives.masking import COUNTED, Corrupted
from lightning_modules.objectives.objective import (
    EVALUATION_SEED,
    Batch,
    Objective,
    VocabularyPart,
    padded_predictions,
    shared_inputs,
)
from lightning_modules.randomness import derive

LOGITS_AT_ONCE = 2**24


class ReplacedToken(Objective):
    """Replaced token detection, and its variants.

    The generator is trained as a masked LM on the selected tokens. Tokens that it draws take their places.
    The encoder then judges all tokens or the selected ones: either whether the token was replaced, or which
    token stood there. A drawn token that happens to equal the original counts as original. No gradient flows
    through the draw.
    """

    vocabulary_parts = (VocabularyPart("generator", "label_N", shown=("masked_BT", "predict_N")),)
    counted = COUNTED

    def __init__(self, run: RunSettings, *, vocab_size: int) -> None:
        super().__init__(run, vocab_size=vocab_size)
        settings = run.objective
        assert isinstance(settings, ReplacedTokenSettings)
        self.judges_all, self.detects = settings.loss_on == "all", settings.predict == "replaced"
        self.weight = settings.weight
        self.masker = Masker(settings.masking, vocab_size=vocab_size, max_steps=run.training.max_steps)
        self.generator = Generator(run.encoder, settings, vocab_size=vocab_size)
        width = run.encoder.hidden_size
        self.head = (
            BinaryHead(width, activation=nn.GELU())
            if self.detects
            else PredictionHead(run.encoder, vocab_size=vocab_size)
        )

    @property
    def parts(self) -> Mapping[str, float]:
        return {"loss": self.weight, "generator": 1.0, "replaced": 0.0}

    def fit_to_text(self, tokens: Tokens, split: Split) -> None:
        self.masker.fit_to_text(tokens, split)

    def make_batch(self, packed: PackedStep, *, seed: int) -> dict[str, NDArray[np.int64]]:
        return self._shown(packed, self.masker.corrupt(packed, seed=seed), seed)

    def make_evaluation_batch(self, packed: PackedStep) -> dict[str, NDArray[np.int64]]:
        return self._shown(packed, self.masker.evaluation(packed), EVALUATION_SEED)

    def _shown(self, packed: PackedStep, corrupted: Corrupted, seed: int) -> dict[str, NDArray[np.int64]]:
        source, selected_N = packed.source, corrupted.selected_N
        judged_N = source.ids_N >= FIRST_WORD_ID if self.judges_all else selected_N
        uniform_N = source.draw(derive(seed, "generator"), where=selected_N)
        asked_for = padded_predictions(source.place_N[selected_N], source.ids_N[selected_N])
        return {
            **shared_inputs(packed, source.ids_N),
            "masked_BT": source.grid(corrupted.shown_N),
            "counts": corrupted.counts,
            **asked_for,
            "uniform_N": np.pad(uniform_N, (0, len(asked_for["label_N"]) - len(uniform_N))),
            **padded_predictions(
                source.place_N[judged_N], source.ids_N[judged_N], place="judge_N", label="original_N"
            ),
        }

    def chance(self, part: str, means: Mapping[str, float], unigram: Mapping[str, float]) -> float:
        """Return the loss in nats of a guess that knows only the share of replaced tokens.

        If originals are predicted, it guesses the shown token unless that is replaced. For a replaced token
        its loss is the generator's chance level.
        """
        share = means["replaced"]
        detected = -sum(p * math.log(p) for p in (share, 1 - share) if p > 0)
        return detected if self.detects else detected + share * unigram["generator"]

    def predictions(self, batch: Batch) -> dict[str, Tensor]:
        judged = count_predictions(batch["original_N"])
        return super().predictions(batch) | {"loss": judged, "replaced": judged}

    def losses(self, batch: Batch) -> dict[str, LossSum]:
        embeddings_VD, label_N = self.encoder.tokens.weight, batch["label_N"]
        embedded_BTD = self.encoder.embed(batch["masked_BT"], batch["position_BT"], batch.get("segment_BT"))
        visible_BHTT = visible_in(batch["sequence_BT"], self.run.objective.sees, self.window)
        sight = sight_of(self.generator.shape, visible_BHTT, embedded_BTD, batch["position_BT"])
        guess_NG = self.generator(embedded_BTD, sight, batch["predict_N"])
        generator_loss = self.generator.head.loss(guess_NG, embeddings_VD, label_N)
        drawn_N = self.generator.draw(guess_NG, embeddings_VD, batch["uniform_N"])
        filled_BT = batch["tokens_BT"].clone()
        flat = filled_BT.view(-1)
        # Padding of the predictions writes back the token that is there.
        flat[batch["predict_N"]] = torch.where(label_N == IGNORED, flat[batch["predict_N"]], drawn_N)
        original_N = batch["original_N"]
        known_N = original_N != IGNORED
        replaced_N = (flat[batch["judge_N"]] != original_N) & known_N
        judged_ND = self.encode_at({**batch, "tokens_BT": filled_BT}, batch["judge_N"])
        if isinstance(self.head, BinaryHead):
            loss = self.head.loss(judged_ND, torch.where(known_N, replaced_N.long(), IGNORED))
        else:
            loss = self.head.loss(judged_ND, embeddings_VD, original_N)
        replaced = LossSum(replaced_N.sum().double(), count_predictions(original_N))
        return {"loss": loss, "generator": generator_loss, "replaced": replaced}


class Generator(nn.Module):
    """Generator of replaced token detection: a narrow encoder on the embeddings of the big one, and its head.

    Letters: G width of the generator.
    """

    def __init__(self, encoder: EncoderSettings, settings: ReplacedTokenSettings, *, vocab_size: int) -> None:
        super().__init__()
        self.shape = shape = generator_shape(encoder, settings.generator)
        self.project = nn.Linear(encoder.hidden_size, shape.hidden_size)
        self.blocks = nn.ModuleList(EncoderBlock(shape) for _ in range(shape.num_hidden_layers))
        self.norm = norm_layer(shape) if shape.norm == "pre" else None
        self.head = PredictionHead(shape, vocab_size=vocab_size, embedding_width=encoder.hidden_size)

    def forward(self, embedded_BTD: Tensor, sight: Sight, place_N: Tensor) -> Tensor:
        """Return the top layer as a head reads it, at some places of the flattened rows, shape NG."""
        hidden = self.project(embedded_BTD)
        *lower, top = self.blocks
        for block in lower:
            hidden = block(hidden, sight)
        top_NG = top(hidden, sight, place_N)
        return top_NG if self.norm is None else self.norm(top_NG)

    @torch.no_grad()
    def draw(self, guess_NG: Tensor, embeddings_VD: Tensor, uniform_N: Tensor) -> Tensor:
        """Draw a token that stands for text for each place, from the generator's distribution. Shape N.

        It is the first token at which the cumulated probability exceeds the uniform number.
        """
        rows = max(1, LOGITS_AT_ONCE // len(embeddings_VD))
        return torch.cat(
            [
                _drawn(self.head(guess, embeddings_VD), uniform)
                for guess, uniform in zip(guess_NG.split(rows), uniform_N.split(rows), strict=True)
            ]
        )


def _drawn(logits_NV: Tensor, uniform_N: Tensor) -> Tensor:
    words_NV = logits_NV[:, FIRST_WORD_ID:].float()
    cumulated_NV = F.softmax(words_NV, -1).cumsum(-1)
    wanted_N1 = uniform_N.to(cumulated_NV.dtype)[:, None] * cumulated_NV[:, -1:]
    place_N = torch.searchsorted(cumulated_NV, wanted_N1, right=True).squeeze(-1)
    return FIRST_WORD_ID + place_N.clamp(max=words_NV.shape[1] - 1)
