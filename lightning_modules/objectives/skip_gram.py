"""Static word vectors: skip-gram with negative sampling (Mikolov et al. 2013, sections 2.2 and 2.3).

There is no Transformer and no context. The only layer is the table of token embeddings. It is trained on the
same tokens in the same steps as every other arm. The number of pairs after subsampling is computed here too,
without torch.

Letters: S sentences, N tokens, P pairs of a token and a neighbour, K negatives, V vocabulary, D width.
"""

import math
from collections.abc import Mapping
from typing import Self, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from lightning_modules.config import RunSettings, SkipGramSettings
from lightning_modules.data.packing import PackedStep
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.data.tokenizer import FIRST_WORD_ID
from lightning_modules.data.word_order import training_text
from lightning_modules.model.encoder import Encoder
from lightning_modules.model.heads import LossSum
from lightning_modules.objectives.objective import PREDICTION_ROUNDING, Batch, Objective, shared_inputs
from lightning_modules.randomness import derive, uniforms


def training_counts(run: RunSettings, tokens: Tokens) -> NDArray[np.int64]:
    """Return the number of occurrences of each id in the text that a run trains on."""
    if not run.training.changes_frequencies:
        return tokens.source_counts_V
    return np.bincount(training_text(run, tokens)[0].ids, minlength=tokens.vocab_size)


def words_only(counts_V: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of occurrences of each id, 0 for ids that do not stand for text."""
    return np.where(np.arange(len(counts_V)) >= FIRST_WORD_ID, counts_V, 0)


def kept_share(subsample: float | None, counts_V: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the probability with which each occurrence of an id is kept. Values of 1 or more mean always.

    Args:
        subsample: as in `SkipGramSettings`.
        counts_V: number of occurrences of each id in the training text.
    """
    if subsample is None:
        return np.ones(len(counts_V))
    words_V = words_only(counts_V)
    return np.sqrt(subsample / np.maximum(words_V / max(1, words_V.sum()), 1e-12))


def pairs_per_token(settings: SkipGramSettings, split: Split, counts_V: NDArray[np.int64]) -> float:
    """Return the expected number of pairs (token, neighbour) for each token, special tokens included.

    The expectation is over the reach of the tokens. The subsampling of frequent tokens is drawn once.

    A sentence with k kept tokens has 2 (k - d) ordered pairs at distance d, for d < k. The reach of a token
    is at least d with probability (window - d + 1) / window.
    """
    drawn_N = uniforms(derive(0, "pairs of words"), np.arange(len(split.ids)))
    kept_N = (split.ids >= FIRST_WORD_ID) & (drawn_N < kept_share(settings.subsample, counts_V)[split.ids])
    before = np.concatenate([[0], np.cumsum(kept_N)])
    left_S = before[split.offsets[1:]] - before[split.offsets[:-1]]
    window, pairs = settings.window, 0.0
    for distance in range(1, min(window, left_S.max()) + 1):
        pairs += 2 * float(np.maximum(left_S - distance, 0).sum()) * (window - distance + 1) / window
    return pairs / len(split.ids)


FREQUENCY_POWER = 0.75  # negatives are drawn in proportion to frequency to this power (section 2.2)


class SkipGram(Objective):
    """Skip-gram: each token is trained to tell its neighbours from random tokens.

    The reach of a token is drawn from 1 to `window`. Some occurrences of frequent tokens are left out
    (section 2.3).

    The loss is per pair, in nats: the loss of the neighbour plus that of its K negatives. Untrained vectors,
    whose products are all 0, have a loss of (1 + K) log 2.
    """

    vocabulary_parts = ()

    def __init__(self, run: RunSettings, *, vocab_size: int, counts_V: NDArray[np.int64]) -> None:
        super().__init__(run, vocab_size=vocab_size)
        assert isinstance(run.objective, SkipGramSettings)
        self.settings = run.objective
        self.neighbours = nn.Embedding(vocab_size, run.encoder.hidden_size)
        self._kept_V = kept_share(self.settings.subsample, counts_V)
        self._cumulated_V = np.cumsum(words_only(counts_V) ** FREQUENCY_POWER)

    @classmethod
    def of_text(cls, run: RunSettings, tokens: Tokens) -> Self:
        return cls(run, vocab_size=tokens.vocab_size, counts_V=training_counts(run, tokens))

    def build_encoder(self) -> Encoder:
        # Not an encoder, but it has what this objective and the measures use of one: `tokens`, and a call
        # that returns the layers.
        return cast(Encoder, WordVectors(self.run.encoder.hidden_size, vocab_size=self.vocab_size))

    def make_batch(self, packed: PackedStep, *, seed: int) -> dict[str, NDArray[np.int64]]:
        source, key = packed.source, derive(seed, "skip-gram")
        ids_N = source.ids_N
        kept = np.flatnonzero((ids_N >= FIRST_WORD_ID) & (source.draw(key, 0) < self._kept_V[ids_N]))
        reach = 1 + np.floor(source.draw(key, 1)[kept] * self.settings.window).astype(np.int64)
        centre_P, context_P = _neighbours(np.cumsum(source.position_N == 0)[kept], reach, self.settings.window)
        token_P, distance_P = kept[centre_P], context_P - centre_P + self.settings.window
        uniform_PK = uniforms(
            key,
            *(x[token_P][:, None] for x in (source.epoch_N, source.sentence_N, source.offset_N)),
            2 + distance_P[:, None],
            np.arange(self.settings.negatives),
        )
        negative_PK = np.searchsorted(self._cumulated_V, uniform_PK * self._cumulated_V[-1], side="right")
        missing = -len(token_P) % PREDICTION_ROUNDING
        return {
            **shared_inputs(packed, ids_N),
            "centre_P": np.pad(ids_N[token_P], (0, missing)),
            "context_P": np.pad(ids_N[kept[context_P]], (0, missing)),
            "negative_PK": np.pad(negative_PK, ((0, missing), (0, 0))),
        }

    def chance(self, part: str, means: Mapping[str, float], unigram: Mapping[str, float]) -> float:
        """Return the chance level: the loss of vectors whose products are all 0."""
        return (1 + self.settings.negatives) * math.log(2)

    def predictions(self, batch: Batch) -> dict[str, Tensor]:
        return {"loss": (batch["centre_P"] >= FIRST_WORD_ID).sum().double()}

    def losses(self, batch: Batch) -> dict[str, LossSum]:
        known_P = batch["centre_P"] >= FIRST_WORD_ID
        centre_PD = self.encoder.tokens(batch["centre_P"])
        near_P = (centre_PD * self.neighbours(batch["context_P"])).sum(-1)
        far_PK = torch.einsum("pd,pkd->pk", centre_PD, self.neighbours(batch["negative_PK"]))
        wide = torch.promote_types(near_P.dtype, torch.float32)
        loss_P = -F.logsigmoid(near_P.to(wide)) - F.logsigmoid(-far_PK.to(wide)).sum(-1)
        return {"loss": LossSum((loss_P * known_P).sum(dtype=torch.float64), known_P.sum().double())}


class WordVectors(nn.Module):
    """Table of word vectors in place of an encoder. Its only layer is layer 0."""

    def __init__(self, width: int, *, vocab_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)

    def forward(self, tokens_BT: Tensor, **_: object) -> tuple[Tensor, ...]:
        """Return the vector of each token, shape BTD, in a tuple of one. Other arguments are ignored."""
        return (self.tokens(tokens_BT),)

    def head_input(self, top_BTD: Tensor) -> Tensor:
        """Return the vectors unchanged."""
        return top_BTD


def _neighbours(
    sequence_N: NDArray[np.int64], reach_N: NDArray[np.int64], window: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places of both tokens of every pair; the second is in reach of the first."""
    centres, contexts = [], []
    for distance in range(1, min(window, max(1, len(sequence_N) - 1)) + 1):
        left = np.flatnonzero(sequence_N[distance:] == sequence_N[:-distance])
        for centre, context in ((left, left + distance), (left + distance, left)):
            near = reach_N[centre] >= distance
            centres.append(centre[near])
            contexts.append(context[near])
    return np.concatenate(centres), np.concatenate(contexts)
