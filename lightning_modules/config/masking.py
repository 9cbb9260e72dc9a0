"""Settings of masked LM: the tokens that it hides and the tokens that it shows instead."""

import bisect
import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationInfo, field_validator

from lightning_modules.config.settings import SETTING_LIMIT, Settings, from_name, kind_of_part, or_plugin
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
"""Parts of speech of the words of the built-in language."""

# Selection -------------------------------------------------------------------------------------------


class Uniform(Settings):
    """Selection of single tokens, each drawn by itself."""

    kind: Literal["uniform"]


class WholeWord(Settings):
    """Selection of whole words: all pieces of a word are hidden or none. Words are separated by spaces."""

    kind: Literal["whole_word"]


class Span(Settings):
    """Selection of spans of whole words, with geometric lengths (Joshi et al. 2020, section 3.1). Spans are
    never cut to fit. Each span is hidden with probability `ratio`, so that the mean is right in sentences of
    any length. Most short sentences lose nothing (two thirds of those with 7 words, at 15%), and some lose
    nearly everything."""

    kind: Literal["span"]
    probability: float = Field(0.2, gt=0, le=1)
    """Probability that a span ends after each word. The geometric distribution is cut off at `longest` and
    scaled up to sum to 1."""
    longest: int = Field(10, ge=1)
    """Number of words of the longest span."""


class PMI(Settings):
    """Selection of word n-grams that occur together more often than their parts predict (Levine et al. 2021,
    section 3). These are hidden as a whole. All other words are drawn one by one."""

    kind: Literal["pmi"]
    longest: int = Field(5, ge=2, le=8)
    """Number of words of the longest n-gram."""
    least_count: int = Field(10, ge=2)
    """Smallest number of occurrences in the training text. Rarer n-grams are not considered."""
    coverage: float = Field(0.5, gt=0, le=1)
    """Share of the words of the training text that n-grams shall cover; the best are chosen first."""


class Lexicon(Settings):
    """Base of the selections that use a list of words. Case, and punctuation around words, are ignored."""

    kind: str
    words: tuple[Annotated[str, Field(min_length=1)], ...] = Field((), strict=False)
    """Words of the list."""
    file: str | None = Field(None, min_length=1)
    """Text file with one word a line, which is added to the list; relative paths start at --data-root."""
    part_of_speech: tuple[Tag, ...] = Field((), strict=False)
    """Universal tags, as in [NOUN, VERB]: adds all words that most often have one of these in `treebank`, or
    in the built-in language if that is the text."""
    treebank: str | None = Field(None, min_length=1)
    """CoNLL-U file, or parquet file with the columns `tokens` and `upos`, which have one list a sentence;
    relative paths start at --data-root."""


class Cloze(Lexicon):
    """Selection of tokens of the words of a lexicon only (Zhang and Hashimoto 2021). As many tokens of a sentence
    are hidden as with `uniform`, or all tokens of these words if they are fewer. Each token is hidden by itself:
    other tokens of the same word may stay visible. Punctuation at a word is not hidden."""

    kind: Literal["cloze"]


class GenericWords(Lexicon):
    """Selection of tokens of the words that are not in a lexicon. As many tokens of a sentence are hidden as with
    `uniform`, or all tokens of these words if they are fewer. Each token is hidden by itself.
    Punctuation at a word of the lexicon counts as another word."""

    kind: Literal["generic"]


class LabelWord(Settings):
    """Selection of one token a sentence: its label word (`data.label_words`), or one of the other tokens, all
    equally likely. This is the toy of Zhang and Hashimoto 2021 (`mlm_toy.py` of their code). It needs `count:
    fixed` and a ratio so small that one token is hidden."""

    kind: Literal["label_word"]
    probability: float = Field(ge=0, le=1)
    """Probability that the label word is hidden. It is drawn for each sentence, anew in every epoch."""


class OwnSelection(Settings):
    """Base of selections of plugins: masks over the tokens of the training text, made before training."""

    kind: str

    def allowed(self, tokens: Any, split: Any) -> Any:
        """Return a mask of the tokens that may be hidden, one bool for each of `split.ids`; None allows all
        tokens that are not special.

        Args:
            tokens: the text of the run (`Tokens`), with its tokenizer.
            split: the training part of the text (`Split`): `ids` of all sentences, one after the other, and
                their `offsets`.
        """
        return None

    def joined(self, tokens: Any, split: Any) -> Any:
        """Return a mask of the tokens that are hidden together with the token before them, one bool for each
        of `split.ids`; None if each token is hidden by itself."""
        return None


def _of_plugin(plugin: Plugin) -> type[OwnSelection]:
    """Return the settings class of a selection that a plugin defines.

    Raises:
        PluginError: the part is no selection, or defines neither `allowed` nor `joined`.
    """
    settings = plugin.part
    if not isinstance(settings, type) or not issubclass(settings, OwnSelection):
        raise PluginError(
            f"{plugin.name} must be a subclass of OwnSelection of lightning_modules.config.masking, but is "
            f"{kind_of_part(settings)}; correct the class."
        )
    if settings.allowed is OwnSelection.allowed and settings.joined is OwnSelection.joined:
        raise PluginError(
            f"{plugin.name} lacks allowed or joined; define one of them, as OwnSelection describes it."
        )
    return settings


Selection = Annotated[
    Annotated[Uniform | WholeWord | Span | PMI | Cloze | GenericWords | LabelWord, Field(discriminator="kind")],
    SerializeAsAny(),
    or_plugin(_of_plugin),
    BeforeValidator(from_name),
]

# Schedule --------------------------------------------------------------------------------------------


class Linear(Settings):
    """Linear schedule of the ratio, from `ratio` at the first step to `to` at the last."""

    kind: Literal["linear"]
    to: Ratio
    """Ratio at the last step."""


class Cosine(Settings):
    """Schedule of the ratio along half a cosine, from `ratio` at the first step to `to` at the last."""

    kind: Literal["cosine"]
    to: Ratio
    """Ratio at the last step."""


class Steps(Settings):
    """Schedule of the ratio with sudden changes: the ratio is constant between the steps in `at`."""

    kind: Literal["steps"]
    at: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1, strict=False)
    """Steps at which the ratio changes, in rising order; the first step of training is 0."""
    ratios: tuple[Ratio, ...] = Field(min_length=1, strict=False)
    """Ratios, one for each step in `at`, from that step on."""

    @field_validator("at")
    @classmethod
    def _rising(cls, at: tuple[int, ...]) -> tuple[int, ...]:
        if list(at) != sorted(set(at)):
            raise ValueError(
                f"must rise from entry to entry, but is {list(at)}; put the entries in order, each once"
            )
        return at

    @field_validator("ratios")
    @classmethod
    def _one_each(cls, ratios: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        if "at" in info.data and len(ratios) != len(info.data["at"]):
            raise ValueError(
                f"must have one entry for each entry of at, but has {len(ratios)} and at has "
                f"{len(info.data['at'])}; give equally many"
            )
        return ratios


Schedule = Annotated[Linear | Cosine | Steps, Field(discriminator="kind")]

# Masking ---------------------------------------------------------------------------------------------


class MaskingSettings(Settings):
    """Settings of the corruption: which tokens are hidden and what is shown instead. The defaults are those of
    Devlin et al. 2019, section 3.1."""

    ratio: Ratio = 0.15
    """Mean share of a sentence's tokens that is hidden and predicted. Special tokens are not counted."""
    schedule: Schedule | None = None
    """Change of the ratio during training; constant unless given."""
    mask: float = Field(0.8, ge=0, le=1)
    """Share of the hidden tokens that is shown as [MASK]."""
    random: float = Field(0.1, ge=0, le=1)
    """Share of the hidden tokens that is shown as a random token."""
    keep: float = Field(0.1, ge=0, le=1)
    """Share of the hidden tokens that is shown unchanged."""
    random_differs: bool = False
    """Whether a random token always differs from the original, as articles say. Otherwise it may equal the
    original, as in BERT's code."""
    select: Selection = Uniform(kind="uniform")
    """Units of tokens that are hidden together, and tokens that are never hidden."""
    count: Literal["unbiased", "fixed", "independent"] = "unbiased"
    """Rule for the number of tokens that are hidden in a sentence of n tokens. `unbiased`: ratio x n, rounded
    up or down at random, so that the mean is exact. `fixed`: round(ratio x n), at least 1. This has no
    variance, but hides more than `ratio` of short sentences. Halves are rounded to the even number, as in
    BERT's code, which however counts special tokens in n. `independent`: one draw for each token. Words,
    spans and n-grams are not cut to fit the number."""
    copies: int | None = Field(None, ge=1, lt=SETTING_LIMIT)
    """Number of fixed corruptions of each sentence, which epochs take in turn (static masking). Unless given,
    every epoch draws a new corruption (dynamic masking)."""
    predict: float | None = Field(None, gt=0, le=1)
    """Share of a sentence's tokens that is predicted, if it is not `ratio` (Wettig et al. 2023, section 4). A
    schedule of the ratio does not change it. If it is less than `ratio`, some hidden tokens are not
    predicted. If it is more, the sentence is shown several times in a step: predict / ratio times, rounded
    up. Each time `ratio` of it is hidden, and no token is predicted twice. With `count: fixed`, at most the
    tokens that all repetitions hide are predicted."""

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

    @property
    def leaves_out(self) -> bool:
        """Return whether the selection may leave so many tokens out that fewer than `ratio` can be hidden."""
        return isinstance(self.select, Cloze | GenericWords | OwnSelection)

    def scaled(self, part: float) -> "MaskingSettings":
        """Return the settings with this part of every share that is hidden or predicted. They are for counting
        operations, and need not be valid."""
        schedule = self.schedule
        if isinstance(schedule, Steps):
            ratios = tuple(part * ratio for ratio in schedule.ratios)
            schedule = schedule.model_copy(update={"ratios": ratios})
        elif schedule is not None:
            schedule = schedule.model_copy(update={"to": part * schedule.to})
        predict = None if self.predict is None else part * self.predict
        return self.model_copy(update={"ratio": part * self.ratio, "schedule": schedule, "predict": predict})

    def ratio_at(self, step: int, max_steps: int) -> float:
        """Return the masking ratio at a step. Steps are counted from 0."""
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
        """Return the mean of the masking ratio over all steps."""
        if self.schedule is None or not max_steps:
            return self.ratio
        return math.fsum(self.ratio_at(step, max_steps) for step in range(max_steps)) / max_steps

    def mean_predicted(self, max_steps: int) -> float:
        """Return the mean share of a sentence's tokens that is predicted, over all steps."""
        return self.mean_ratio(max_steps) if self.predict is None else self.predict

    def least_predicted(self) -> float:
        """Return the smallest share of a sentence's tokens that is predicted in any step."""
        if self.predict is not None:
            return self.predict
        schedule = self.schedule
        later = () if schedule is None else schedule.ratios if isinstance(schedule, Steps) else (schedule.to,)
        return min((self.ratio, *later))

    def repeats_at(self, step: int, max_steps: int) -> int:
        """Return the number of times that a sentence is shown in a step. Steps are counted from 0."""
        if self.predict is None:
            return 1
        return max(1, math.ceil(self.predict / self.ratio_at(step, max_steps) - 1e-9))

    def mean_repeats(self, max_steps: int) -> float:
        """Return the mean number of times that a sentence is shown in a step, over all steps."""
        if self.schedule is None or not max_steps:
            return self.repeats_at(0, max_steps)
        return math.fsum(self.repeats_at(step, max_steps) for step in range(max_steps)) / max_steps
