"""Settings of the measures. No torch, no mathematics."""

from collections.abc import Hashable, Iterable
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from ablations.wording import equality_key, shown
from lightning_modules.config import InputFormat, Settings, WordOrder
from lightning_modules.config.settings import sentence_error

Grouping = Literal["frequency", "part_of_speech"]
AFTER_FINAL_NORM = "after final norm"
"""Group of the rows of the top layer as a head reads it, in encoders with a norm above all blocks."""

RANK_BOUNDS = (10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)
"""Last frequency ranks of the groups of Voita et al. 2019, section 5.2."""

REFUSED_BELOW = 5
"""Tokens per feature (of the wider side) below which chance decides and CCA is refused."""

About = Literal["input", "previous", "next", "output"]


def refuse_repeated(values: Iterable[Any], *, remedy: str = "give it once") -> None:
    """Raise a pydantic error if a value occurs twice, for use in a validator. The error names the index of the
    second one."""
    seen: set[Hashable] = set()
    for index, value in enumerate(values):
        if equality_key(value) in seen:
            raise sentence_error(f"has {shown(value)} twice; {remedy}", at=(index,))
        seen.add(equality_key(value))


class MeasureSettings(Settings):
    """Base class of measures that read the checkpoints of one run."""

    checkpoints: Literal["last", "all"] = "last"
    """Checkpoints to measure: only the last, or all that were kept (`training.keep_checkpoints`)."""

    @field_validator("*")
    @classmethod
    def _each_once(cls, value: Any) -> Any:
        """Refuse repeated entries: their rows could not be told apart."""
        if isinstance(value, tuple):
            # Group names write numbers in this format, so numbers that look equal in it count as repeated.
            refuse_repeated(float(f"{item:g}") if isinstance(item, float) else item for item in value)
        return value


class StateSettings(MeasureSettings):
    """Base class of measures that read the hidden states of tokens."""

    tokens: int = Field(50_000, ge=100)
    """Largest number of tokens to measure. They are the tokens of whole sentences from the start of the
    validation text."""


class LabelledSettings(StateSettings):
    """Base class of measures that may use parts of speech or syntax. The built-in language has these without
    a treebank."""

    treebank: str | None = None
    """A treebank, for text that is not the built-in language: CoNLL-U, or parquet with the columns text,
    tokens, upos, heads and deprels. Metrics that need labels read its sentences instead of the validation
    text."""


class LayerChangeSettings(LabelledSettings):
    """Change of tokens by each layer: 1 - similarity of two layers of one encoder."""

    kind: Literal["layer_change"]
    groups: tuple[Grouping, ...] = Field((), strict=False)
    """Kinds of groups that also have rows: tokens by frequency rank, or by part of speech. All groups of a
    kind have equally many tokens."""
    group_tokens: int | None = Field(None, ge=100)
    """Number of tokens of each group. Groups with fewer tokens are left out. A number below
    five tokens for each unit of the encoder's width is raised to five. Default: the size of the smallest group
    that has at least ten tokens for each unit of the width."""


class QuestionSettings(StateSettings):
    """Base class of measures of what a layer knows about tokens."""

    kind: str
    types: int = Field(1000, ge=2)
    """Number of the most frequent token types whose occurrences are used."""
    about: tuple[About, ...] = Field(("input",), min_length=1, strict=False)
    """Tokens to ask about: the token that is read, its neighbours, or the predicted token. All of these have
    equally many occurrences. For causal LM `output` is the next token. For masked LM it is the original of a
    token that is shown as a random other token, and further rows are about the shown token. Other objectives
    have no rows for `output`."""


class TokenInformationSettings(QuestionSettings):
    """Information of each layer about a token: mutual information with k-means clusters of the states. It
    is large only if the token has a large share of the variance of the states."""

    kind: Literal["token_information"]
    clusters: int = Field(1000, ge=2)
    """Number of clusters of each layer's states."""


class ReadOutSettings(QuestionSettings):
    """Information of each layer about a token that probes read from its states. The probes are linear or have
    a hidden layer, and are scored on held-out sentences."""

    kind: Literal["read_out"]


class NeighboursSettings(LabelledSettings):
    """Neighbours of a state, and what they share with it: token, position, adjacent tokens, syntax, sense."""

    kind: Literal["neighbours"]
    types: int = Field(100, ge=2)
    """Number of token types in the pool, spread evenly over their frequency ranks. Only types with enough
    `occurrences` count. If the text has fewer such types, all are taken. It must have at least two."""
    neighbours: int = Field(50, ge=1)
    """Number of nearest neighbours of a state among occurrences of all types."""
    neighbours_of_type: int = Field(10, ge=1)
    """Number of nearest neighbours of a state among occurrences of its own type."""
    occurrences: int = Field(100, ge=3)
    """Number of occurrences of each type in the pool, drawn at random. It must be more than `neighbours`, and
    more than twice `neighbours_of_type`."""

    @field_validator("occurrences")
    @classmethod
    def _more_than_neighbours(cls, occurrences: int, info: ValidationInfo) -> int:
        fewest = 1 + max(info.data.get("neighbours", 0), 2 * info.data.get("neighbours_of_type", 0))
        if occurrences < fewest:
            raise ValueError(
                f"must be at least {fewest}, more than neighbours and more than twice neighbours_of_type, but is "
                f"{occurrences}"
            )
        return occurrences


class GeometrySettings(StateSettings):
    """Geometry of the cloud of states: its common direction, its dimensions, and how far a layer moves the
    states."""

    kind: Literal["geometry"]


class InfluenceSettings(LabelledSettings):
    """Influence of a token: how much the other tokens' states in a layer change when none of them may attend
    to it."""

    kind: Literal["influence"]
    groups: tuple[Grouping, ...] = Field(("frequency",), min_length=1, strict=False)
    """Kinds of groups of the hidden tokens: by frequency rank or by part of speech."""
    sentences: int = Field(500, ge=20)
    """Number of sentences of each group. In each sentence one token of the group is hidden. Groups with fewer
    sentences are left out."""


class PicturesSettings(StateSettings):
    """Pictures of the occurrences of a few words in each layer, by t-SNE. They show which are near each
    other, and no more."""

    kind: Literal["pictures"]
    words: tuple[str, ...] = Field(min_length=1, strict=False)
    """Words to show. Each must be one sub-word."""
    occurrences: int = Field(50, ge=5)
    """Largest number of occurrences of each word."""


class ValidationSettings(MeasureSettings):
    """Validation loss and perplexity under one fixed corruption. Translation models also have BLEU and chrF,
    and heads on pairs have accuracy."""

    kind: Literal["validation"]
    translations: int = Field(500, ge=1)
    """Number of sentences that are translated (greedily) for BLEU and chrF, from the start of the validation
    text."""
    word_orders: tuple[WordOrder, ...] = Field((), strict=False)
    """Word orders of copies of the validation text. The loss is also measured on each copy."""
    input_formats: tuple[InputFormat, ...] = Field((), strict=False)
    """Input formats in which the validation text is also read, besides sentence by sentence. All but `sentences`
    and `full_sentences` need to know where documents end. Translation and skip-gram read one sentence at a time,
    so they have no such loss."""


class RunDistanceSettings(StateSettings):
    """Distance of two runs at equal depth: 1 - similarity of their states of the same tokens. Pairs are two
    arms at equal seed, or two seeds of an arm. The encoders of a pair have equally many layers."""

    kind: Literal["run_distance"]
    arms: tuple[str, ...] = Field((), strict=False)
    """Arms to compare. Default: all arms. The number of pairs grows with the square of the number of arms."""
    across_seeds: bool = False
    """Whether arms are also compared at different seeds. The contrast `apart` of a claim needs this, because
    arms share their initial weights at equal seed."""
