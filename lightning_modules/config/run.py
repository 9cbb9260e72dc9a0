"""Settings of one run, with its initial model and presets, and counts of its operations and parameters.

A preset holds settings of encoder, objective and training that a published model used together. `bert` is the
default. `voita-2019` follows the public code of the authors of Voita et al. 2019, from May and June 2019
(lena-voita/the-story-of-heads and good-translation-wrong-in-context). The code of the paper itself is not
public. That it used the same settings is our inference.
"""

from typing import Any, Literal, get_args

from pydantic import Field

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
"""Settings of the preset `voita-2019`, without sizes, steps, batches, learning rate and warm-up. The authors'
learning rate at step t is 4 times width^-0.5 times the smaller of t^-0.5 and t * 16,000^-1.5. Its peak is
1.4e-3 for a width of 512."""

PRESETS: dict[Preset, Sections] = {"bert": {}, "voita-2019": VOITA_2019}

VOITA_OBJECTIVES: tuple[str, ...] = tuple(
    get_args(settings.model_fields["kind"].annotation)[0]
    for settings in OBJECTIVES
    if settings.model_fields.keys() >= VOITA_2019["objective"].keys()
)
"""Kinds of objective that have the settings of the preset `voita-2019`: the objectives that the paper
trains."""


UNSCORED_IDS = (0, 1, 2, 4)
"""Special ids that most folders of GPT-2 have no row for: all but the end of a sentence."""


class HuggingFaceInit(Settings):
    """Start of a run from a local Hugging Face folder, with its architecture, tokenizer and weights.

    The folder decides `encoder`, `objective.head`, `data.vocab_size` and `data.tokenizer`.
    """

    kind: Literal["hugging_face"]
    path: str = Field(min_length=1)
    """Folder with config.json, tokenizer and model.safetensors; relative paths start at --data-root."""
    weights: Literal["folder", "random"] = "folder"
    """Initial weights: those of the folder; or random ones, as in any other run, in the same architecture
    with the same tokenizer."""
    head: Literal["folder", "random"] = "folder"
    """Initial prediction head: that of the folder; or a random one, for a folder that has none. Predictions
    of a random head mean nothing before it is trained."""
    content: str | None = Field(None, pattern="^[0-9a-f]{64}$")
    """SHA-256 of everything that the run reads of the folder. The program fills it in. If a spec states it, a
    folder with another model is refused."""
    unscored: tuple[int, ...] = Field(UNSCORED_IDS, strict=False, exclude_if=lambda ids: ids == UNSCORED_IDS)
    """Special ids to which GPT-2's head gives no probability: [PAD], [UNK], [CLS] and [MASK], without those that
    the folder has a row for. For the folder of an exported run they are those of that run. The program fills it
    in."""
    segments: bool = Field(False, exclude_if=lambda has_segments: not has_segments)
    """Whether the folder has embeddings of two segments. The run keeps them, so that tasks of pairs read the
    second text as the model did in its training. The program fills it in."""


class RunSettings(Settings):
    """Settings that decide what a run computes. Settings of the machine are not among them."""

    data: Data
    encoder: EncoderSettings = EncoderSettings()
    objective: Objective
    training: TrainingSettings = TrainingSettings()
    init: HuggingFaceInit | None = Field(None, exclude_if=lambda model: model is None)
    """Model that the run starts from. Unless given, the initial weights are random."""
    seed: int = Field(ge=0)
    """Seed of the run. Initial weights, data order, corruption and dropout each derive their own seed from
    it, or from the seed that `training.seeds` gives them."""

    @property
    def has_segments(self) -> bool:
        """Return whether the encoder has embeddings of two segments."""
        return self.training.input_format in PAIR_FORMATS or (self.init is not None and self.init.segments)

    def differs_in_seed_alone(self, other: "RunSettings") -> bool:
        """Return whether the sections of both runs are the same objects (`is`), as in the runs of one arm. Then
        numbers that follow from the sections are computed only once. Equal sections that are different objects
        do not count as the same."""
        sections = ("data", "encoder", "objective", "training", "init")
        return all(getattr(self, name) is getattr(other, name) for name in sections)

    def seed_of(self, source: Source) -> int:
        """Return the seed of a source of chance in training: that of `training.seeds` if given, else the
        run's."""
        fixed: int | None = getattr(self.training.seeds, source)
        return self.seed if fixed is None else fixed

    @property
    def unread(self) -> dict[str, str]:
        """Return the dotted paths of settings without any effect here, each with the optimiser or objective that
        does not read it. Runs that differ only in them have equal weights."""
        unread: dict[str, str] = {}
        if self.training.optimizer.kind == "sgd":
            adam = ("adam_beta1", "adam_beta2", "adam_epsilon")
            unread |= {f"training.{name}": "sgd" for name in adam}
        if self.objective.kind == "skip_gram":
            read = ("hidden_size", "initialisation")
            unread |= {f"encoder.{name}": "skip_gram" for name in EncoderSettings.model_fields if name not in read}
        return unread

    @property
    def sources(self) -> tuple[Source, ...]:
        """Return the sources of chance that these settings use.

        With random weights a run uses `init`. Steps use `order`. They use `corruption` if the objective draws
        anything, and `dropout` if some rate is above 0.
        """
        rates = (self.encoder.dropout, self.encoder.attention_dropout, self.encoder.feed_forward_dropout)
        from_folder = self.init is not None and self.init.weights == self.init.head == "folder"
        trains = self.training.max_steps > 0
        used: dict[Source, bool] = {
            "init": not (from_folder and self.objective.kind in ("masked_lm", "causal_lm")),
            "order": trains,
            "corruption": trains and self.objective.draws,
            "dropout": trains and self.objective.has_layers and max(rates) > 0,
        }
        return tuple(source for source in used if used[source])

    @property
    def is_same_for_all_seeds(self) -> bool:
        """Return whether runs with these settings have equal weights whatever their seed, because each source of
        chance that they use has a seed in `training.seeds`. Such runs are copies and no replicates."""
        return all(getattr(self.training.seeds, source) is not None for source in self.sources)


def operations_per_token(run: RunSettings, *, pairs: float | None = None, allowed: float = 1.0) -> float:
    """Return the floating-point operations of training for each source token (padding is not counted).

    Each matrix weight that a token meets (`weights_per_token`) counts six operations. Heads with one output
    and the attention products are left out. In sequences of T tokens at width D, the attention products are T
    / (6 D) of a block: 8% for 128 tokens at width 256, a third at width 64. Work that only a slow
    implementation would do is not counted.

    Args:
        pairs: predicted pairs of words for each token, if the text was counted (`skip_gram.pairs_per_token`).
        allowed: part of the predictions that a lexicon leaves, if the text was counted
            (`predictions.allowed_part`).
    """
    objective, masking = run.objective, getattr(run.objective, "masking", None)
    if masking is not None and allowed != 1:
        objective = objective.model_copy(update={"masking": masking.scaled(allowed)})
    return 6.0 * objective.weights_per_token(
        run.encoder, vocab_size=run.data.vocab_size, max_steps=run.training.max_steps, pairs=pairs
    )


def parameters(run: RunSettings) -> int:
    """Return the number of trained parameters of the whole module, including heads, generator and decoder."""
    return run.objective.parameters(
        run.encoder,
        vocab_size=run.data.vocab_size,
        max_length=run.data.max_length,
        segments=run.has_segments,
    )


def preset_problem(preset: Preset, kind: str) -> str | None:
    """Return a sentence that says why a preset does not suit an objective; None if it suits."""
    if preset == "voita-2019" and kind not in VOITA_OBJECTIVES:
        return (
            f"preset voita-2019 is for {', '.join(VOITA_OBJECTIVES)}, but objective.kind is {kind}; write the "
            "settings of the encoder one by one"
        )
    return None
