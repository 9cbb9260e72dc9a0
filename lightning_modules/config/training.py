"""Settings of training: steps, optimiser and learning rate, and the order of the words in the training text."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from lightning_modules.config.settings import LARGEST_RATE, SETTING_LIMIT, Settings, from_name


class Natural(Settings):
    """Word order of the text as it was written."""

    kind: Literal["natural"]


class Shuffled(Settings):
    """Base of the word orders in which words are moved or drawn anew."""

    kind: str
    unit: Literal["words", "sub_words"] = "words"
    """Unit that is moved or drawn. `words`: words, before they are cut into sub-words; the inside of a word
    stays as it is. `sub_words`: sub-words, after the text was cut."""


class NGrams(Shuffled):
    """Word order that shuffles each sentence by itself. N-grams that do not overlap are moved as a whole, all
    other words one by one."""

    kind: Literal["ngrams"]
    n: int = Field(1, ge=1)
    """Number of words (or sub-words) that stay together; 1 moves every word by itself."""


class Blocks(Shuffled):
    """Word order that shuffles blocks of the running text. A block may reach over the ends of sentences and
    documents. Sentences keep their numbers of words, unless they become longer than `max_length`."""

    kind: Literal["blocks"]
    length: int = Field(512, ge=2, lt=SETTING_LIMIT)
    """Number of words (or sub-words) of a block."""


class Corpus(Shuffled):
    """Word order in which every word is drawn anew, with its frequency in the training text. Sentences keep
    their numbers of words, unless they become longer than `max_length`."""

    kind: Literal["corpus"]


class UniformDraw(Shuffled):
    """Word order in which every word is drawn anew from the different words of the training text, all equally
    likely. Sentences keep their numbers of words, unless they become longer than `max_length`."""

    kind: Literal["uniform"]


WordOrder = Annotated[
    Annotated[Natural | NGrams | Blocks | Corpus | UniformDraw, Field(discriminator="kind")],
    BeforeValidator(from_name),
]
"""Word order of the training text, as in Sinha et al. 2021, section 3."""


def word_order_name(order: Natural | Shuffled) -> str:
    """Return a short name of a word order, as in `ngrams, n 2` or `corpus, sub_words`."""
    match order:
        case NGrams():
            name = f"ngrams, n {order.n}"
        case Blocks():
            name = f"blocks of {order.length}"
        case _:
            name = str(order.kind)
    return f"{name}, sub_words" if isinstance(order, Shuffled) and order.unit == "sub_words" else name


class AdamW(Settings):
    """Optimiser AdamW (Loshchilov and Hutter 2019). Its settings are those of `training`: `adam_beta1`,
    `adam_beta2`, `adam_epsilon` and `weight_decay`."""

    kind: Literal["adamw"]


class Muon(Settings):
    """Optimiser Muon (Jordan et al. 2024) for the matrices of blocks. Its step is the momentum of the
    gradient with all singular values brought near 1. AdamW trains embeddings, heads, norms and biases."""

    kind: Literal["muon"]
    momentum: float = Field(0.95, ge=0, lt=1)
    """Decay rate of the running mean of the gradient."""
    nesterov: bool = True
    """Whether momentum is Nesterov's: each step looks ahead by one more momentum."""
    ns_steps: int = Field(5, ge=1, lt=100)
    """Number of steps of the Newton-Schulz iteration, which brings the singular values near 1."""
    adjust_lr_fn: Literal["match_rms_adamw", "original"] = "match_rms_adamw"
    """Factor on the learning rate of a matrix with A outputs and B inputs. `match_rms_adamw`: 0.2 sqrt(max(A,
    B)), which suits the learning rate and the weight decay of AdamW (Liu et al. 2025). `original`:
    sqrt(max(1, A / B)) (Jordan et al. 2024)."""


class SGD(Settings):
    """Optimiser SGD with momentum (Polyak 1964), or with Nesterov's (Sutskever et al. 2013). Weight decay is
    added to the gradient."""

    kind: Literal["sgd"]
    momentum: float = Field(0.9, ge=0, lt=1)
    """Decay rate of the running sum of the gradients; 0 is no momentum."""
    nesterov: bool = False
    """Whether momentum is Nesterov's: each step looks ahead by one more momentum."""

    @field_validator("nesterov")
    @classmethod
    def _has_momentum(cls, nesterov: bool, info: ValidationInfo) -> bool:
        if nesterov and info.data.get("momentum") == 0:
            raise ValueError(
                "must be false without momentum, but momentum is 0; raise momentum, or remove nesterov"
            )
        return nesterov


Optimizer = Annotated[
    Annotated[AdamW | Muon | SGD, Field(discriminator="kind")],
    BeforeValidator(from_name),
]
"""Optimiser, as torch implements it."""

LoggerName = Literal["tensorboard", "wandb"]
InputFormat = Literal["sentences", "sentence_pair", "segment_pair", "full_sentences", "doc_sentences"]
PAIR_FORMATS = ("sentence_pair", "segment_pair")


Source = Literal["init", "order", "corruption", "dropout"]
"""Source of chance in training; see `SourceSeeds`."""


class SourceSeeds(Settings):
    """Seeds of single sources of chance. A source without a seed here takes the run's seed.

    A source with a seed here is the same in all runs of an arm. The spread over seeds then comes from the
    other sources.
    """

    init: int | None = Field(None, ge=0, lt=2**63)
    """Seed of the initial weights."""
    order: int | None = Field(None, ge=0, lt=2**63)
    """Seed of the order of sentences or documents, and of the words if `word_order` moves or draws them."""
    corruption: int | None = Field(None, ge=0, lt=2**63)
    """Seed of the choice of hidden or replaced tokens and of what is shown instead, of negative pairs of
    sentences, and of all else that an objective draws when it makes a batch."""
    dropout: int | None = Field(None, ge=0, lt=2**63)
    """Seed of the dropout of each step."""


class TrainingSettings(Settings):
    """Settings of training: number and size of steps, order of the text, and optimiser."""

    max_steps: int = Field(1000, ge=0, lt=SETTING_LIMIT)
    """Optimiser steps. With 0 the model stays untrained: the run writes its first checkpoint and is done."""
    tokens_per_step: int = Field(8192, ge=8, lt=SETTING_LIMIT)
    """Number of source tokens of a step over all devices. Special tokens count, padding does not. Steps come
    close to this number and never exceed it."""
    accumulate: int = Field(1, ge=1, lt=SETTING_LIMIT)
    """Number of micro-batches into which each device divides its share of a step, if a step needs more memory
    than there is. They are computed one by one. Masks, gradient and log are those of the whole step; dropout
    draws other numbers. It is no part of a run's identity."""
    sentences: int | None = Field(None, ge=1)
    """Number of sentences to use, from the start of the training text. The vocabulary is trained on all of
    it."""
    input_format: InputFormat = "sentences"
    """Format of a sequence, which is never longer than `data.max_length`. `sentences`: one sentence. The
    other formats are those of Liu et al. 2019, section 4.2. `sentence_pair`: two neighbouring sentences of a
    document, with [SEP] between them and segment embeddings. `segment_pair`: the same with segments of
    several sentences. `full_sentences`: neighbouring sentences until the sequence is full, with one more
    [SEP] where a document ends. `doc_sentences`: neighbouring sentences until the sequence is full or the
    document ends. Each segment of a pair has half of the room, and longer sentences are cut (at 128 tokens,
    5% of Wikipedia's text). Documents are shuffled. A document of more than eight full sequences is shuffled
    in parts of that size, which end like documents."""
    word_order: WordOrder = Natural(kind="natural")
    """Order of the words in the training text. The text of validation and measures stays natural."""
    optimizer: Optimizer = AdamW(kind="adamw")
    """Optimiser: `adamw`, `muon` or `sgd`, or a mapping with a kind and its settings, as in
    `{kind: sgd, momentum: 0.9}`."""
    learning_rate: float = Field(5e-4, gt=0, le=LARGEST_RATE)
    """Largest learning rate, which is reached after a linear warm-up."""
    schedule: Literal["linear", "inverse_sqrt", "cosine", "constant", "wsd"] = "linear"
    """Decay of the learning rate after the warm-up. Three schedules reach 0 at `max_steps`. `linear`: a
    straight line. `cosine`: half a cosine wave (Loshchilov and Hutter 2017, section 3). `wsd`: constant until
    the last tenth of `max_steps`, then linear (warm-up, stable, decay: Hu et al. 2024, section 4). Two
    schedules do not depend on `max_steps`. `inverse_sqrt`: with the inverse square root of the step (Vaswani
    et al. 2017, section 5.3). `constant`: no decay."""
    warmup_steps: int = Field(default_factory=lambda data: data["max_steps"] // 10, ge=0)
    """Steps of warm-up; a tenth of `max_steps` unless given."""
    adam_beta1: float = Field(0.9, ge=0, lt=1)
    """Decay rate of Adam's running mean of the gradient."""
    adam_beta2: float = Field(0.98, ge=0, lt=1)
    """Decay rate of Adam's running mean of the squared gradient."""
    adam_epsilon: float = Field(1e-6, gt=0, le=LARGEST_RATE)
    """Number that Adam adds to the square root of the mean of the squared gradient."""
    weight_decay: float = Field(0.01, ge=0)
    """Weight decay of matrices, with every optimiser. Biases, norms and embeddings have none."""
    gradient_clip_val: float = Field(1.0, ge=0)
    """Largest norm of the gradient; larger gradients are scaled down. 0 is no clipping."""
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    """Precision of the products, in Lightning's names. Weights and optimiser are fp32 in both cases. A CPU
    that has no bf16 products computes `bf16-mixed` in fp32 and rounds. The numbers are the same up to the
    order of sums, but it is slower than `32-true`."""
    compile: bool = False
    """Whether training on a GPU compiles the blocks (`torch.compile`). Steps are faster after a slower first
    one. The numbers are the same up to rounding and to what dropout draws. Evaluations are not compiled."""
    validate_every: int = Field(default_factory=lambda data: max(1, data["max_steps"] // 5), ge=1)
    """Steps between two validation losses in the log; a fifth of `max_steps` unless given."""
    keep_checkpoints: int | Literal["all"] = "all"
    """Number of the newest `step=` checkpoints that are kept, or `all`. They are written at step 0, at powers
    of two and at the last step."""
    loggers: tuple[LoggerName, ...] = Field(("tensorboard",), strict=False)
    """Tools that also get the numbers of `metrics.jsonl` during training: `tensorboard`; `wandb`, Weights &
    Biases, which stays offline unless WANDB_MODE says otherwise. They are no part of a run's identity."""
    seeds: SourceSeeds = SourceSeeds()
    """Seeds of single sources of chance (`init`, `order`, `corruption`, `dropout`), as in `{init: 0}`. A
    source without a seed here takes the run's seed. Arms that fix different sources show how much of the
    spread over seeds comes from each source."""

    @property
    def changes_frequencies(self) -> bool:
        """Return whether words have other frequencies in the training text of a run than in the whole text: the
        run uses only some sentences, or draws its words anew."""
        return self.sentences is not None or self.word_order.kind in ("corpus", "uniform")

    @property
    def kept_steps(self) -> list[int]:
        """Return the steps whose checkpoints are kept after training."""
        steps = sorted({0, self.max_steps, *(2**i for i in range(self.max_steps.bit_length()))})
        return steps if self.keep_checkpoints == "all" else steps[-self.keep_checkpoints :]

    @property
    def validated_steps(self) -> list[int]:
        """Return the steps whose validation loss is logged; none if the run is not trained."""
        steps, every = self.max_steps, self.validate_every
        return [*range(every, steps, every), steps] if steps else []

    @field_validator("loggers")
    @classmethod
    def _each_logger_once(cls, loggers: tuple[LoggerName, ...]) -> tuple[LoggerName, ...]:
        if len(set(loggers)) < len(loggers):
            raise ValueError(f"must name each logger once, but is {list(loggers)}; remove the repeated one")
        return loggers

    @field_validator("warmup_steps")
    @classmethod
    def _warmup_fits(cls, warmup: int, info: ValidationInfo) -> int:
        steps = info.data.get("max_steps")
        if steps is not None and warmup > steps:
            raise ValueError(f"must not exceed max_steps, but {warmup} > {steps}; lower it")
        return warmup

    @field_validator("keep_checkpoints")
    @classmethod
    def _keep_is_a_count(cls, keep: int | str) -> int | str:
        if isinstance(keep, int) and keep < 1:
            raise ValueError(f"must be 'all' or at least 1, but is {keep}; raise it")
        return keep
