"""Settings of the measures. No torch, no mathematics."""

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from ablations.wording import refuse_repeated
from lightning_modules.config import InputFormat, Settings, WordOrder

Grouping = Literal["frequency", "part_of_speech"]
RANK_BOUNDS = (10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)
"""Last frequency ranks of the groups of Voita et al. 2019, section 5.2."""

About = Literal["input", "previous", "next", "output"]


class MeasureSettings(Settings):
    """Base of the measures of the checkpoints of one run."""

    checkpoints: Literal["last", "all"] = "last"
    """Checkpoints to measure: the last, or every one that was kept (`training.keep_checkpoints`)."""

    @field_validator("*")
    @classmethod
    def _each_once(cls, value: Any) -> Any:
        """Refuse repeated entries: their rows could not be told apart."""
        if isinstance(value, tuple):
            # A number is written so in the name of its group.
            refuse_repeated(float(f"{one:g}") if isinstance(one, float) else one for one in value)
        return value


class StateSettings(MeasureSettings):
    """Base of the measures of the states of tokens."""

    tokens: int = Field(50_000, ge=100)
    """Token occurrences of the validation text, whole sentences from its start; fewer if it has fewer."""


class LabelledSettings(StateSettings):
    """Base of the measures that may use parts of speech or syntax, which the built-in language has without a
    treebank."""

    treebank: str | None = None
    """A treebank (CoNLL-U, or parquet with the columns text, tokens, upos, heads and deprels), for text of other
    kinds: where labels are asked for, its sentences are read instead of the validation text."""


class LayerChangeSettings(LabelledSettings):
    """Change of tokens by each layer: 1 - similarity of two layers of one encoder."""

    kind: Literal["layer_change"]
    groups: tuple[Grouping, ...] = Field((), strict=False)
    """Kinds of groups that also have rows: by frequency rank or part of speech, equally many tokens of each."""
    group_tokens: int | None = Field(None, ge=100)
    """Number of tokens of each group; groups with fewer are left out. Unless given, the size of the smallest group
    that has ten for each unit of the encoder's width."""


class QuestionSettings(StateSettings):
    """Base of the measures of what a layer knows about tokens."""

    kind: str
    types: int = Field(1000, ge=2)
    """Number of the most frequent sub-words whose occurrences are used."""
    about: tuple[About, ...] = Field(("input",), min_length=1, strict=False)
    """About which tokens: the one that is read, its neighbours, or the one to be predicted; of all equally many
    occurrences. `output` is the next token for causal LM; for masked LM the original of a token that is shown as a
    random other one, with what the layer knows of that other one beside it; nothing for other objectives."""


class TokenInformationSettings(QuestionSettings):
    """Information of each layer about a token: mutual information with k-means clusters, which follows the share
    of the states' variance that the token has."""

    kind: Literal["token_information"]
    clusters: int = Field(1000, ge=2)
    """Clusters of each layer's states."""


class ReadOutSettings(QuestionSettings):
    """Information of each layer about a token that probes read from its states, linear and with a hidden layer,
    held out by sentence."""

    kind: Literal["read_out"]


class NeighboursSettings(LabelledSettings):
    """Neighbours of a state and what they share with it: token, position, words beside it, syntax, sense."""

    kind: Literal["neighbours"]
    types: int = Field(100, ge=2)
    """Token types in the pool, of those with enough occurrences, evenly over their frequency ranks; fewer if fewer
    have as many. At least two must."""
    neighbours: int = Field(50, ge=1)
    """Nearest others of a state, among all types."""
    neighbours_of_type: int = Field(10, ge=1)
    """Nearest others of a state, among its own type."""
    occurrences: int = Field(100, ge=3)
    """Occurrences of each type in the pool, drawn at random; more than `neighbours`, and more than twice
    `neighbours_of_type`."""

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
    """Geometry of the cloud of states: its common direction, its dimensions, how far a layer moves it."""

    kind: Literal["geometry"]


class InfluenceSettings(LabelledSettings):
    """Influence of one token: the change of the other tokens' states in a layer when none of them may attend to
    it."""

    kind: Literal["influence"]
    groups: tuple[Grouping, ...] = Field(("frequency",), min_length=1, strict=False)
    """The hidden tokens, grouped by frequency rank or part of speech."""
    sentences: int = Field(500, ge=20)
    """Sentences of each group in which one of its tokens is hidden; groups with fewer are left out."""


class PicturesSettings(StateSettings):
    """Pictures of the occurrences of a few words in each layer, by t-SNE: for the eye."""

    kind: Literal["pictures"]
    words: tuple[str, ...] = Field(min_length=1, strict=False)
    """Words that are one sub-word."""
    occurrences: int = Field(50, ge=5)
    """Occurrences of each word, fewer if the text has fewer."""


class ValidationSettings(MeasureSettings):
    """Validation loss and perplexity under one frozen corruption; BLEU and chrF of translations; accuracy of a
    head on pairs."""

    kind: Literal["validation"]
    translations: int = Field(500, ge=1)
    """Sentences translated (greedily) for BLEU and chrF, from the start of the validation text."""
    word_orders: tuple[WordOrder, ...] = Field((), strict=False)
    """Word orders of copies of the validation text on which the loss is measured too."""
    input_formats: tuple[InputFormat, ...] = Field((), strict=False)
    """Input formats in which the validation text is read too, besides sentence by sentence."""


class RunDistanceSettings(StateSettings):
    """Distance of two runs at equal depth: 1 - similarity of their states of the same tokens. Pairs are arms at
    equal seed, and seeds of an arm; their encoders have equally many layers."""

    kind: Literal["run_distance"]
    arms: tuple[str, ...] = Field((), strict=False)
    """Arms to compare; all unless given. The number of pairs grows with the square of their number."""
    across_seeds: bool = False
    """Whether arms are compared at different seeds too, as the contrast `apart` of a claim needs: at equal seed
    they share their initial weights."""
