"""Settings of training: steps, optimiser and learning rate, and the order of the words in the training text."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from lightning_modules.config.settings import Settings, from_name


class Natural(Settings):
    """Word order of the text as it is written."""

    kind: Literal["natural"]


class Shuffled(Settings):
    """Base of the orders in which words are moved or drawn."""

    kind: str
    unit: Literal["words", "sub_words"] = "words"
    """Unit that is moved or redrawn: words before they are cut into sub-words, so that the inside of a word stays
    as it is, or sub-words afterwards."""


class NGrams(Shuffled):
    """Order that shuffles inside each sentence: n-grams that do not overlap are moved as a whole, other words one
    by one."""

    kind: Literal["ngrams"]
    n: int = Field(1, ge=1)
    """Words (or sub-words) that stay together; 1 moves every one."""


class Blocks(Shuffled):
    """Order that shuffles inside blocks of the running text, whatever sentences and documents end in them;
    sentences keep their numbers of words."""

    kind: Literal["blocks"]
    length: int = Field(512, ge=2)
    """Words (or sub-words) of a block."""


class Corpus(Shuffled):
    """Order in which every word is redrawn with its frequency in the training text; sentences keep their numbers
    of words."""

    kind: Literal["corpus"]


class UniformDraw(Shuffled):
    """Order in which every word is redrawn from those of the training text, all equally likely; sentences keep
    their numbers of words."""

    kind: Literal["uniform"]


WordOrder = Annotated[
    Annotated[Natural | NGrams | Blocks | Corpus | UniformDraw, Field(discriminator="kind")],
    BeforeValidator(from_name),
]
"""The orders of Sinha et al. 2021, section 3."""


def name_of(order: Natural | Shuffled) -> str:
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
    """Optimiser AdamW (Loshchilov and Hutter 2019). Its settings stand beside it: `adam_beta1`, `adam_beta2`,
    `adam_epsilon` and `weight_decay`."""

    kind: Literal["adamw"]


class Muon(Settings):
    """Optimiser Muon (Jordan et al. 2024) for the matrices of blocks: a step is the momentum of the gradient with
    all singular values brought near 1. Embeddings, heads, norms and biases go by AdamW."""

    kind: Literal["muon"]
    momentum: float = Field(0.95, ge=0, lt=1)
    """Decay of the mean of the gradient."""
    nesterov: bool = True
    """Whether a step looks ahead by one more momentum."""
    ns_steps: int = Field(5, ge=1, lt=100)
    """Steps of the Newton-Schulz iteration, which brings the singular values near 1."""
    adjust_lr_fn: Literal["match_rms_adamw", "original"] = "match_rms_adamw"
    """Factor on the learning rate of a matrix of A outputs and B inputs: 0.2 sqrt(max(A, B)), with which learning
    rate and weight decay of AdamW fit (Liu et al. 2025); or sqrt(max(1, A / B)) (Jordan et al. 2024)."""


class SGD(Settings):
    """Optimiser SGD with momentum (Polyak 1964), or with Nesterov's (Sutskever et al. 2013). Its weight decay is
    added to the gradient."""

    kind: Literal["sgd"]
    momentum: float = Field(0.9, ge=0, lt=1)
    """Decay of the sum of the gradients; 0 is none."""
    nesterov: bool = False
    """Whether a step looks ahead by one more momentum."""

    @field_validator("nesterov")
    @classmethod
    def _has_momentum(cls, nesterov: bool, info: ValidationInfo) -> bool:
        if nesterov and info.data.get("momentum") == 0:
            raise ValueError("must be false without momentum, but momentum is 0; raise momentum, or take it away")
        return nesterov


Optimizer = Annotated[
    Annotated[AdamW | Muon | SGD, Field(discriminator="kind")],
    BeforeValidator(from_name),
]
"""The optimisers, each torch's own."""

LoggerName = Literal["tensorboard", "wandb"]
InputFormat = Literal["sentences", "sentence_pair", "segment_pair", "full_sentences", "doc_sentences"]
PAIR_FORMATS = ("sentence_pair", "segment_pair")


Source = Literal["init", "order", "corruption", "dropout"]
"""Sources of chance in a training; see `SourceSeeds`."""


class SourceSeeds(Settings):
    """Seeds of single sources of chance; a source without one takes the run's seed.

    A source that has one is the same in all seeds of an arm, so that their spread comes from the others.
    """

    init: int | None = Field(None, ge=0, lt=2**63)
    """Initial weights."""
    order: int | None = Field(None, ge=0, lt=2**63)
    """Order of the sentences or documents, and of the words where `word_order` moves or draws them."""
    corruption: int | None = Field(None, ge=0, lt=2**63)
    """Which tokens are hidden or replaced and by what, which sentences are paired, and whatever else an objective
    draws when it makes a batch."""
    dropout: int | None = Field(None, ge=0, lt=2**63)
    """Dropout of each step."""


class TrainingSettings(Settings):
    """Settings of training: number and size of steps, and optimiser."""

    max_steps: int = Field(1000, ge=0)
    """Optimiser steps. 0 is an untrained model: it writes its first checkpoint and is done."""
    tokens_per_step: int = Field(8192, ge=8)
    """Real source tokens of a step over all devices, special tokens included and padding not; never
    exceeded, nearly reached."""
    accumulate: int = Field(1, ge=1)
    """Micro-batches that each device cuts its share of a step into and goes through one by one, for steps that
    need more memory than there is. Masks, gradient and log are those of the whole step; dropout draws other
    numbers. It is no part of a run's identity."""
    sentences: int | None = Field(None, ge=1)
    """Use only so many sentences of the training text, from its start; the vocabulary is that of all of it."""
    input_format: InputFormat = "sentences"
    """Format of a sequence; it never exceeds `data.max_length`. `sentences`: one sentence. The others as in Liu et
    al. 2019, section 4.2. `sentence_pair`: two neighbouring sentences of a document, apart by [SEP], with segment
    embeddings. `segment_pair`: the same with runs of sentences. `full_sentences`: neighbouring sentences until it
    is full, with one more [SEP] where a document ends. `doc_sentences`: the same, ending with the document. Each
    segment of a pair has half of the room: longer sentences are cut (at 128 tokens, 5% of Wikipedia's text). A
    document of more than eight full sequences is put in order in parts of that size, which end like documents."""
    word_order: WordOrder = Natural(kind="natural")
    """In which order the words of the training text stand; the text of validation and measures stays natural."""
    optimizer: Optimizer = AdamW(kind="adamw")
    """Optimiser: `adamw`, `muon` or `sgd`, or a mapping with a kind and its settings, as in
    `{kind: sgd, momentum: 0.9}`."""
    learning_rate: float = Field(5e-4, gt=0)
    """Peak of the schedule, reached after a linear warm-up."""
    schedule: Literal["linear", "inverse_sqrt", "cosine", "constant", "wsd"] = "linear"
    """Decay of the learning rate after the warm-up. To 0 at `max_steps`: `linear`; `cosine`, half a wave
    (Loshchilov and Hutter 2017, section 3); `wsd`, none until the last tenth of `max_steps`, then linear (warm-up,
    stable, decay: Hu et al. 2024, section 4). The others do not depend on `max_steps`: `inverse_sqrt`, with the
    inverse square root of the step (Vaswani et al. 2017, section 5.3), and `constant`, none."""
    warmup_steps: int = Field(default_factory=lambda data: data["max_steps"] // 10, ge=0)
    """Steps of warm-up; a tenth of `max_steps` unless given."""
    adam_beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of Adam's mean of the gradient."""
    adam_beta2: float = Field(0.98, ge=0, lt=1)
    """Decay of Adam's mean of the squared gradient."""
    adam_epsilon: float = Field(1e-6, gt=0)
    """Number that Adam adds to the root of that mean."""
    weight_decay: float = Field(0.01, ge=0)
    """Weight decay of matrices, whatever the optimiser; biases, layer norms and embeddings have none."""
    gradient_clip_val: float = Field(1.0, ge=0)
    """Largest norm of the gradient; 0 is no clipping."""
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    """Lightning's names; weights and optimiser are fp32 in both. A CPU without products of bf16 computes them in
    fp32 and rounds: the same numbers up to the order of sums, but slower than 32-true."""
    compile: bool = False
    """Train with the blocks compiled (`torch.compile`) where that is on a GPU: a faster step after a slower first
    one, and the same numbers up to rounding and to what dropout draws. Evaluations are not compiled."""
    validate_every: int = Field(default_factory=lambda data: max(1, data["max_steps"] // 5), ge=1)
    """Steps between two validation losses in the log; a fifth of `max_steps` unless given."""
    keep_checkpoints: int | Literal["all"] = "all"
    """Number of the `step=` files (0, powers of two, last) to keep, the newest ones."""
    loggers: tuple[LoggerName, ...] = Field(("tensorboard",), strict=False)
    """Tools that get the numbers of `metrics.jsonl` too, while a run is trained: `tensorboard`; `wandb`, Weights &
    Biases, which stays offline unless WANDB_MODE says otherwise. They are no part of a run's identity."""
    seeds: SourceSeeds = SourceSeeds()
    """Seeds of single sources of chance, as in `{init: 0}`: `init`, `order`, `corruption` and `dropout`. A source
    without one takes the run's seed. Arms with other sources fixed show how much of the spread over seeds comes
    from each."""

    @field_validator("loggers")
    @classmethod
    def _each_logger_once(cls, loggers: tuple[LoggerName, ...]) -> tuple[LoggerName, ...]:
        if len(set(loggers)) < len(loggers):
            raise ValueError(f"must name each logger once, but is {list(loggers)}; take the second one away")
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
