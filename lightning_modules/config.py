"""What a run may be told: typed, frozen, complete. Knows neither torch nor files.

Every default lives here and only here. Names are Lightning's and Hugging Face's where those have one.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator


class Settings(BaseModel):
    """Base of all settings: unknown keys are errors, types are not guessed, nothing changes later."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        validate_default=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


# Text ------------------------------------------------------------------------------------------------


class TextSettings(Settings):
    """What every source of text shares: how it is cut into sub-words."""

    vocab_size: int = Field(8192, ge=16)
    """Entries of each sub-word vocabulary, special tokens included. The source's is trained on the natural
    `text` of the training split alone, the decoder's on its `target`."""
    max_length: int = Field(128, ge=8)
    """Longest sentence in tokens, special tokens included. A longer one is cut, counted and reported."""


class LanguageData(TextSettings):
    """The built-in language: a seeded generator with gold trees, senses and translations, no download."""

    kind: Literal["language"]
    seed: int = Field(0, ge=0)
    """Which language and which text; no part of a run's randomness."""
    train: int = Field(100_000, ge=1)
    """Sentences to train on."""
    validation: int = Field(4_000, ge=1)
    """Sentences of other documents, for validation and for the layer measures."""
    test: int = Field(4_000, ge=1)
    """Sentences that nothing looks at until the end."""
    vocab_size: int = Field(1024, ge=16)
    max_length: int = Field(64, ge=8)


def _as_tuple(value: Any) -> Any:
    """One file, or a list of files, as a tuple."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


Files = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_as_tuple)]


class ColumnSettings(TextSettings):
    """Which columns of a table hold the text."""

    text: str = Field("text", min_length=1)
    """Column with one sentence a row."""
    target: str | None = Field(None, min_length=1)
    """Column with the translation of that sentence; translation arms need it."""
    document: str | None = Field(None, min_length=1)
    """Column that says which document a sentence belongs to; its rows are contiguous. Without it, a text
    file's blank lines end documents, and any other file is one document."""


class FilesData(ColumnSettings):
    """Local files: parquet, jsonl, csv, tsv (also .gz) with columns, or txt with a sentence a line."""

    kind: Literal["files"]
    train: Files = Field(min_length=1)
    """File or files to train on; relative paths start at --data-root."""
    validation: Files = Field(min_length=1)
    """File or files for validation and for the layer measures."""
    test: Files = ()
    """File or files that nothing looks at until the end."""


class HubData(ColumnSettings):
    """A data set of the Hugging Face hub, or a local folder that `datasets.load_dataset` reads."""

    kind: Literal["hub"]
    path: str = Field(min_length=1)
    """Name on the hub, or a local folder (relative paths start at --data-root)."""
    name: str | None = Field(None, min_length=1)
    """Configuration of the data set, where it has several."""
    revision: str | None = Field(None, min_length=1)
    """Commit on the hub. Needed there, so that the text cannot change under a finished run."""
    train: str = Field("train", min_length=1)
    """Split to train on."""
    validation: str = Field("validation", min_length=1)
    """Split for validation and for the layer measures."""
    test: str | None = Field(None, min_length=1)
    """Split that nothing looks at until the end."""


Data = Annotated[LanguageData | FilesData | HubData, Field(discriminator="kind")]


# Model -----------------------------------------------------------------------------------------------


class EncoderSettings(Settings):
    """Shape of the encoder that all objectives share."""

    num_hidden_layers: int = Field(6, ge=1)
    """Blocks; the encoder returns one state more, the embeddings being layer 0."""
    hidden_size: int = Field(256, ge=1)
    """Width of every state."""
    num_attention_heads: int = Field(4, ge=1)
    """Heads of each attention; must divide `hidden_size`."""
    intermediate_size: int = Field(default_factory=lambda data: 4 * data["hidden_size"], ge=1)
    """Width inside the feed-forward layers; four times `hidden_size` unless given."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Share of the embeddings and of each sub-layer's output that is dropped; attention weights are not."""
    norm: Literal["post", "pre"] = "post"
    """Layer norm after each residual sum, as in BERT and in Voita et al. 2019, or before each sub-layer."""
    positions: Literal["learned", "none"] = "learned"
    """Learned position embeddings, or no information about order at all."""

    @field_validator("num_attention_heads")
    @classmethod
    def _heads_divide_width(cls, heads: int, info: ValidationInfo) -> int:
        width = info.data.get("hidden_size")
        if width is not None and width % heads:
            raise ValueError(f"must divide hidden_size, but {width} is not a multiple of {heads}")
        return heads


class DecoderSettings(Settings):
    """The decoder of translation; the measures never see it. Its width and heads are the encoder's."""

    num_hidden_layers: int = Field(6, ge=1)
    """Blocks of the decoder."""


# Objectives ------------------------------------------------------------------------------------------


class MaskingSettings(Settings):
    """Which tokens are hidden and what is shown instead. Devlin et al. 2019, section 3.1, by default."""

    ratio: float = Field(0.15, gt=0, le=1)
    """Share of a sentence's tokens (special ones excluded) that is selected and predicted."""
    mask: float = Field(0.8, ge=0, le=1)
    """Share of the selected that is shown as [MASK]."""
    random: float = Field(0.1, ge=0, le=1)
    """Share of the selected that is shown as a random token, which may equal the original."""
    keep: float = Field(0.1, ge=0, le=1)
    """Share of the selected that is shown unchanged."""
    select: Literal["uniform"] = "uniform"
    """How tokens are selected: uniformly without replacement, the count rounded up or down at random so
    that its mean is exactly `ratio` times the length."""

    @field_validator("keep")
    @classmethod
    def _shares_sum_to_one(cls, keep: float, info: ValidationInfo) -> float:
        if "mask" in info.data and "random" in info.data:
            mask, random = info.data["mask"], info.data["random"]
            if not math.isclose(mask + random + keep, 1, abs_tol=1e-9):
                total = mask + random + keep
                shares = f"{mask:g} + {random:g} + {keep:g}"
                raise ValueError(f"mask + random + keep must be 1, but {shares} is {total:g}")
        return keep


Sees = Literal["both_sides", "left_only"]
"""Which tokens of its own sentence a token may attend to."""


class MaskedLMSettings(Settings):
    """Predict hidden tokens from what is left (Devlin et al. 2019)."""

    kind: Literal["masked_lm"]
    masking: MaskingSettings = MaskingSettings()
    sees: Sees = "both_sides"
    """`left_only` is the control that takes away the right context and nothing else."""


class CausalLMSettings(Settings):
    """Predict each token from those before it."""

    kind: Literal["causal_lm"]
    sees: Literal["left_only"] = "left_only"


class TranslationSettings(Settings):
    """Encode a sentence, decode its translation; only the encoder is analysed (Voita et al. 2019)."""

    kind: Literal["translation"]
    decoder: DecoderSettings = DecoderSettings()
    sees: Literal["both_sides"] = "both_sides"


ObjectiveSettings = Annotated[
    MaskedLMSettings | CausalLMSettings | TranslationSettings, Field(discriminator="kind")
]


# Training --------------------------------------------------------------------------------------------


class TrainingSettings(Settings):
    """How long, how large the steps, and which optimiser (AdamW, beta 0.9 and 0.98, epsilon 1e-6)."""

    max_steps: int = Field(1000, ge=0)
    """Optimiser steps. 0 is an untrained model: it writes its first checkpoint and is done."""
    tokens_per_step: int = Field(8192, ge=8)
    """Real source tokens of a step over all devices, special tokens included and padding not; never
    exceeded, nearly reached."""
    learning_rate: float = Field(5e-4, gt=0)
    """Peak of the schedule: linear warm-up, then linear decay to 0 at `max_steps`."""
    warmup_steps: int = Field(default_factory=lambda data: data["max_steps"] // 10, ge=0)
    """Steps of warm-up; a tenth of `max_steps` unless given."""
    weight_decay: float = Field(0.01, ge=0)
    """On matrices only: biases, layer norms and embeddings are left alone."""
    gradient_clip_val: float = Field(1.0, ge=0)
    """Largest norm of the gradient; 0 is no clipping."""
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    """Lightning's names; weights and optimiser are fp32 in both."""
    validate_every: int = Field(default_factory=lambda data: max(1, data["max_steps"] // 5), ge=1)
    """Steps between two validation losses in the log; a fifth of `max_steps` unless given."""
    keep_checkpoints: int | Literal["all"] = "all"
    """How many of the `step=` files (0, powers of two, last) to keep, the newest ones."""

    @field_validator("warmup_steps")
    @classmethod
    def _warmup_fits(cls, warmup: int, info: ValidationInfo) -> int:
        steps = info.data.get("max_steps")
        if steps is not None and warmup > steps:
            raise ValueError(f"must not exceed max_steps, but {warmup} > {steps}")
        return warmup

    @field_validator("keep_checkpoints")
    @classmethod
    def _keep_is_a_count(cls, keep: int | str) -> int | str:
        if isinstance(keep, int) and keep < 1:
            raise ValueError(f"must be 'all' or at least 1, but is {keep}")
        return keep


class RunSettings(Settings):
    """Everything that decides what a run computes, and nothing about the machine it runs on."""

    data: Data
    encoder: EncoderSettings = EncoderSettings()
    objective: ObjectiveSettings
    training: TrainingSettings = TrainingSettings()
    seed: int = Field(ge=0)
    """Initial weights, data order and corruption each get a seed of their own from this one."""


def contradictions(run: RunSettings) -> list[tuple[tuple[str, ...], str]]:
    """Settings that are fine alone and impossible together, as (path, sentence); empty when all is well."""
    found: list[tuple[tuple[str, ...], str]] = []
    if run.training.max_steps and run.training.tokens_per_step < run.data.max_length:
        found.append(
            (
                ("training", "tokens_per_step"),
                f"must be at least data.max_length, or the longest sentence would never fit, "
                f"but {run.training.tokens_per_step} < {run.data.max_length}",
            )
        )
    if run.objective.kind == "translation" and isinstance(run.data, ColumnSettings) and not run.data.target:
        found.append(
            (
                ("objective", "kind"),
                "translation needs data.target, the column that holds the translations; name it, or drop the arm",
            )
        )
    return found
