"""Settings of masked LM: the tokens that it hides and the tokens that it shows instead."""

import bisect
import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationInfo, field_validator

from lightning_modules.config.settings import Settings, from_name, kind_of_part, or_plugin
from lightning_modules.errors import PluginError
from lightning_modules.plugins import Plugin

Ratio = Annotated[float, Field(gt=0, le=1)]

# fmt: off
Tag = Literal[
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ",
    "SYM", "VERB", "X",
]
# fmt: on
"""Universal parts of speech."""
LANGUAGE_TAGS = frozenset(
    ("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "NOUN", "NUM", "PART", "PRON", "PUNCT", "SCONJ", "VERB")
)
"""Parts of speech that words of the built-in language have."""

# Selection -------------------------------------------------------------------------------------------


class Uniform(Settings):
    """Selection in which every token is hidden or kept by itself."""

    kind: Literal["uniform"]


class WholeWord(Settings):
    """Selection of whole words: all pieces of a word are hidden or none. A word is what stands between spaces."""

    kind: Literal["whole_word"]


class Span(Settings):
    """Selection of runs of whole words, their lengths geometric (Joshi et al. 2020, section 3.1). A span is never
    cut to fit: each is hidden with probability `ratio`, so that the mean is right in sentences of any length, but
    of short ones most lose nothing (of 7 words, two thirds at 15%) and some nearly everything."""

    kind: Literal["span"]
    probability: float = Field(0.2, gt=0, le=1)
    """Probability that a span ends after each word; the geometric distribution is cut off at `longest` and scaled
    up."""
    longest: int = Field(10, ge=1)
    """Words of the longest span."""


class PMI(Settings):
    """Selection of word n-grams that occur together more often than their parts predict, hidden as a whole (Levine
    et al. 2021, section 3); every other word is hidden or kept by itself."""

    kind: Literal["pmi"]
    longest: int = Field(5, ge=2, le=8)
    """Words of the longest n-gram."""
    least_count: int = Field(10, ge=2)
    """Occurrences in the training text below which an n-gram is not considered."""
    coverage: float = Field(0.5, gt=0, le=1)
    """Share of the training text's words that the n-grams, best first, are to cover."""


class Lexicon(Settings):
    """Base of the selections that a list of words decides; case and punctuation around words do not matter."""

    kind: str
    words: tuple[Annotated[str, Field(min_length=1)], ...] = Field((), strict=False)
    """The list itself."""
    file: str | None = Field(None, min_length=1)
    """A text file with a word a line; relative paths start at --data-root."""
    part_of_speech: tuple[Tag, ...] = Field((), strict=False)
    """Universal tags, as in [NOUN, VERB]: all words that are most often one of these in `treebank`, or in the
    built-in language where that is the text."""
    treebank: str | None = Field(None, min_length=1)
    """A CoNLL-U file, or a parquet file with the columns `tokens` and `upos`, a list a sentence; relative as
    `file`."""


class Cloze(Lexicon):
    """Selection of words of a lexicon only, as many tokens a sentence as `uniform` would hide (Zhang and Hashimoto
    2021)."""

    kind: Literal["cloze"]


class Generic(Lexicon):
    """Selection of words that are not in a lexicon, as many tokens a sentence as `uniform` would hide."""

    kind: Literal["generic"]


class LabelWord(Settings):
    """Selection of one token a sentence: the word of its label (`data.label_words`) or any of the others, each
    equally likely, as in the toy of Zhang and Hashimoto 2021 (`mlm_toy.py` of their code). It needs `count: fixed`
    and a small ratio, which is one token."""

    kind: Literal["label_word"]
    probability: float = Field(ge=0, le=1)
    """Probability that the label word is hidden; drawn for each sentence, anew in every epoch."""


class OwnSelection(Settings):
    """Base of the selections of one's own: masks over the tokens of the training text, made before training."""

    kind: str

    def allowed(self, tokens: Any, split: Any) -> Any:
        """Return which tokens may be hidden, a bool for each of `split.ids`; None for all that are not special.

        Args:
            tokens: the text of the run (`Tokens`), with its tokenizer.
            split: its training part (`Split`): `ids` of all sentences, one behind the other, and their `offsets`.
        """
        return None

    def joined(self, tokens: Any, split: Any) -> Any:
        """Return which tokens are hidden together with the token before them, a bool for each of `split.ids`; None
        where each is hidden by itself."""
        return None


def _of_plugin(plugin: Plugin) -> type[OwnSelection]:
    """Return the settings of a selection of one's own.

    Raises:
        PluginError: the plugin is none, or selects nothing.
    """
    settings = plugin.part
    if not isinstance(settings, type) or not issubclass(settings, OwnSelection):
        raise PluginError(
            f"{plugin.name} must be a subclass of OwnSelection of lightning_modules.config.masking, but is "
            f"{kind_of_part(settings)}."
        )
    if settings.allowed is OwnSelection.allowed and settings.joined is OwnSelection.joined:
        raise PluginError(
            f"{plugin.name} lacks allowed or joined; define one of them, as OwnSelection describes it."
        )
    return settings


Selection = Annotated[
    Annotated[Uniform | WholeWord | Span | PMI | Cloze | Generic | LabelWord, Field(discriminator="kind")],
    SerializeAsAny(),
    or_plugin(_of_plugin),
    BeforeValidator(from_name),
]

# Schedule --------------------------------------------------------------------------------------------


class Linear(Settings):
    """Schedule on a straight line from `ratio` at the first step to `to` at the last."""

    kind: Literal["linear"]
    to: Ratio
    """The ratio of the last step."""


class Cosine(Settings):
    """Schedule on half a cosine from `ratio` at the first step to `to` at the last."""

    kind: Literal["cosine"]
    to: Ratio
    """The ratio of the last step."""


class Steps(Settings):
    """Schedule with another ratio from each of some steps on."""

    kind: Literal["steps"]
    at: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1, strict=False)
    """Steps (the first is 0) at which the ratio changes, rising."""
    ratios: tuple[Ratio, ...] = Field(min_length=1, strict=False)
    """The ratio from each of them on."""

    @field_validator("at")
    @classmethod
    def _rising(cls, at: tuple[int, ...]) -> tuple[int, ...]:
        if list(at) != sorted(set(at)):
            raise ValueError(f"must rise from entry to entry, but is {list(at)}; put them in order, each once")
        return at

    @field_validator("ratios")
    @classmethod
    def _one_each(cls, ratios: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        if "at" in info.data and len(ratios) != len(info.data["at"]):
            raise ValueError(
                f"must have an entry for each of at, but {len(ratios)} is not {len(info.data['at'])}; give as many"
            )
        return ratios


Schedule = Annotated[Linear | Cosine | Steps, Field(discriminator="kind")]

# All of it -------------------------------------------------------------------------------------------


class MaskingSettings(Settings):
    """Settings of the corruption: which tokens are hidden and what is shown instead. The defaults are those of
    Devlin et al. 2019, section 3.1."""

    ratio: Ratio = 0.15
    """Share of a sentence's tokens (special ones excluded) that is hidden, on average, and predicted."""
    schedule: Schedule | None = None
    """Change of the ratio in the course of training; constant unless given."""
    mask: float = Field(0.8, ge=0, le=1)
    """Share of the hidden that is shown as [MASK]."""
    random: float = Field(0.1, ge=0, le=1)
    """Share of the hidden that is shown as a random token."""
    keep: float = Field(0.1, ge=0, le=1)
    """Share of the hidden that is shown unchanged."""
    random_differs: bool = False
    """Whether a random token is never the original, as articles say, or may be, as in BERT's code."""
    select: Selection = Uniform(kind="uniform")
    """Units of tokens that are hidden together, and tokens that are never hidden."""
    count: Literal["unbiased", "fixed", "independent"] = "unbiased"
    """Rule for the number of tokens that a sentence of n tokens loses. `unbiased`: ratio x n rounded up or down at
    random, so that the mean is exact. `fixed`: round(ratio x n), at least 1: no variance, but more than `ratio` in
    short sentences; halves go to the even number, as in BERT's code, which however counts special tokens in n.
    `independent`: each draws for itself. Words, spans and n-grams are not cut to fit."""
    copies: int | None = Field(None, ge=1)
    """Static masking: so many fixed corruptions of each sentence, in turn, epoch by epoch; without it every
    epoch draws a new one (dynamic masking)."""
    predict: float | None = Field(None, gt=0, le=1)
    """Share of a sentence's tokens that is predicted, where it is not `ratio` (Wettig et al. 2023, section 4); a
    schedule of the ratio does not change it. Less: some of the hidden are not asked for. More: the sentence is
    shown several times in a step, predict / ratio rounded up, each time with `ratio` of it hidden, no token being
    asked for twice. With `count: fixed` what all showings hide is the most that is asked for."""

    @field_validator("keep")
    @classmethod
    def _shares_sum_to_one(cls, keep: float, info: ValidationInfo) -> float:
        if "mask" in info.data and "random" in info.data:
            mask, random = info.data["mask"], info.data["random"]
            if not math.isclose(mask + random + keep, 1, abs_tol=1e-9):
                total = mask + random + keep
                shares = f"{mask:g} + {random:g} + {keep:g}"
                raise ValueError(f"mask + random + keep must be 1, but {shares} is {total:g}; set all three")
        return keep

    def ratio_at(self, step: int, max_steps: int) -> float:
        """Return the masking ratio of a step, counted from 0."""
        schedule = self.schedule
        if schedule is None:
            return self.ratio
        if isinstance(schedule, Steps):
            return (self.ratio, *schedule.ratios)[bisect.bisect_right(schedule.at, step)]
        progress = step / max(1, max_steps - 1)
        if isinstance(schedule, Cosine):
            progress = (1 - math.cos(math.pi * progress)) / 2
        return self.ratio + progress * (schedule.to - self.ratio)

    def mean_ratio(self, max_steps: int) -> float:
        """Return the mean masking ratio of all steps."""
        if self.schedule is None or not max_steps:
            return self.ratio
        return math.fsum(self.ratio_at(step, max_steps) for step in range(max_steps)) / max_steps

    def mean_predicted(self, max_steps: int) -> float:
        """Return the mean share of a sentence's tokens that is predicted, over all steps."""
        return self.mean_ratio(max_steps) if self.predict is None else self.predict

    def least_predicted(self) -> float:
        """Return the smallest share that is predicted in any step."""
        if self.predict is not None:
            return self.predict
        schedule = self.schedule
        later = () if schedule is None else schedule.ratios if isinstance(schedule, Steps) else (schedule.to,)
        return min((self.ratio, *later))

    def repeats_at(self, step: int, max_steps: int) -> int:
        """Return the number of times that a sentence is shown in a step, counted from 0."""
        if self.predict is None:
            return 1
        return max(1, math.ceil(self.predict / self.ratio_at(step, max_steps) - 1e-9))

    def mean_repeats(self, max_steps: int) -> float:
        """Return the mean number of times that a sentence is shown in a step, over all steps."""
        if self.schedule is None or not max_steps:
            return self.repeats_at(0, max_steps)
        return math.fsum(self.repeats_at(step, max_steps) for step in range(max_steps)) / max_steps
