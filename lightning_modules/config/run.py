"""The settings of one run, and the operations and parameters that follow from them."""

from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from lightning_modules.config.data import Data
from lightning_modules.config.encoder import EncoderSettings
from lightning_modules.config.initial import HuggingFaceInit
from lightning_modules.config.objectives import Objective
from lightning_modules.config.settings import Settings
from lightning_modules.config.training import PAIR_FORMATS, Source, TrainingSettings


class RunSettings(Settings):
    """Settings that decide what a run computes; the machine is no part of them."""

    data: Data
    encoder: EncoderSettings = EncoderSettings()
    objective: Objective
    training: TrainingSettings = TrainingSettings()
    init: HuggingFaceInit | None = None
    """Model that the run starts from; random weights unless given."""
    seed: int = Field(ge=0)
    """Initial weights, data order and corruption each get a seed of their own from this one, unless
    `training.seeds` names another."""

    def seed_of(self, source: Source) -> int:
        """Return the seed of a source of chance in training: its own in `training.seeds`, else the run's."""
        fixed: int | None = getattr(self.training.seeds, source)
        return self.seed if fixed is None else fixed

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave `init` out where there is none, as runs from before it have no such key."""
        written: dict[str, Any] = handler(self)
        return {name: value for name, value in written.items() if name != "init" or value is not None}


def operations_per_token(run: RunSettings, *, pairs: float | None = None) -> float:
    """Return the floating-point operations of training for each real source token.

    Each weight of a matrix that a token meets (`weights_per_token`) counts six. Heads with one output and the
    products of attention are left out; these are T / (6 D) of a block in sequences of T tokens at width D: 8% of
    128 tokens at 256, a third at 64. Nothing that only a slow implementation would do is counted.

    Args:
        pairs: predicted pairs of words for each token, where the text was counted (`skip_gram.pairs_per_token`).
    """
    return 6.0 * run.objective.weights_per_token(
        run.encoder, vocab_size=run.data.vocab_size, max_steps=run.training.max_steps, pairs=pairs
    )


def parameters(run: RunSettings) -> int:
    """Return the trained numbers of the whole module, heads, generator and decoder included."""
    return run.objective.parameters(
        run.encoder,
        vocab_size=run.data.vocab_size,
        max_length=run.data.max_length,
        segments=run.training.input_format in PAIR_FORMATS,
    )
