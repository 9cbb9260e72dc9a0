"""Settings of one run with the model that it starts from, its operations and parameters, and presets.

Presets are settings of encoder, objective and training that a published model used together. `bert` is the
default. `voita-2019` is the public code of the authors of Voita et al. 2019 from May and June 2019
(lena-voita/the-story-of-heads and good-translation-wrong-in-context). The code of that paper is not public; that
it was the same is an inference.
"""

from typing import Any, Literal, get_args

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from lightning_modules.config.data import Data
from lightning_modules.config.encoder import EncoderSettings
from lightning_modules.config.objectives import OBJECTIVES, Objective
from lightning_modules.config.settings import Settings
from lightning_modules.config.training import PAIR_FORMATS, Source, TrainingSettings

Preset = Literal["bert", "voita-2019"]

Sections = dict[str, dict[str, Any]]

VOITA_2019: Sections = {
    "encoder": {
        "norm": "pre",
        "positions": "sinusoidal",
        "embedding": {"scale": True, "bias": True, "norm": False},
        "initialisation": "glorot",
        "activation": "relu",
        "layer_norm_epsilon": 1e-6,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "feed_forward_dropout": 0.1,
    },
    "objective": {"head": "linear", "label_smoothing": 0.1},
    "training": {
        "schedule": "inverse_sqrt",
        "adam_beta1": 0.9,
        "adam_beta2": 0.998,
        "adam_epsilon": 1e-9,
        "weight_decay": 0.0,
        "gradient_clip_val": 0.0,
    },
}
"""Sizes, steps, batches, learning rate and warm-up are not part of it. The authors' learning rate at step t is 4
times width^-0.5 times the smaller of t^-0.5 and t * 16,000^-1.5: its peak is 1.4e-3 for a width of 512."""

PRESETS: dict[Preset, Sections] = {"bert": {}, "voita-2019": VOITA_2019}

VOITA_OBJECTIVES: tuple[str, ...] = tuple(
    get_args(settings.model_fields["kind"].annotation)[0]
    for settings in OBJECTIVES
    if settings.model_fields.keys() >= VOITA_2019["objective"].keys()
)
"""Objectives that have the settings of the preset: those that the paper trains."""


class HuggingFaceInit(Settings):
    """A local Hugging Face folder that a run starts from: its architecture, its tokenizer and its weights.

    `encoder`, `objective.head`, `data.vocab_size` and `data.tokenizer` follow from the folder.
    """

    kind: Literal["hugging_face"]
    path: str = Field(min_length=1)
    """Folder with config.json, tokenizer and model.safetensors; relative paths start at --data-root."""
    weights: Literal["folder", "random"] = "folder"
    """Weights of the folder; or random ones, as of any other run, in the same architecture with the same
    tokenizer."""
    head: Literal["folder", "random"] = "folder"
    """Prediction head of the folder; or a random one for a folder that has none. What a random head predicts means
    nothing before it is trained."""
    content: str | None = Field(None, pattern="^[0-9a-f]{64}$")
    """SHA-256 over what the run reads of the folder. It is filled in; a spec may state it, so that another model
    in the folder is refused."""


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

    def differs_in_seed_alone(self, other: "RunSettings") -> bool:
        """Return whether both have the same objects as their sections, as the runs of an arm have: what follows
        from these is then worked out once. Equal sections that are other objects count as others."""
        sections = ("data", "encoder", "objective", "training", "init")
        return all(getattr(self, name) is getattr(other, name) for name in sections)

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


def preset_problem(preset: Preset, kind: str) -> str | None:
    """Say why a preset does not suit an objective, or return None."""
    if preset == "voita-2019" and kind not in VOITA_OBJECTIVES:
        return (
            f"preset voita-2019 is for {', '.join(VOITA_OBJECTIVES)}, but objective.kind is {kind}; write the "
            "settings of the encoder one by one"
        )
    return None
