"""What an encoder is trained to do."""

from typing import Annotated, Literal

from pydantic import Field

from lightning_modules.config.encoder import DecoderSettings, EncoderSettings, Sees
from lightning_modules.config.masking import MaskingSettings
from lightning_modules.config.settings import Settings


class ObjectiveSettings(Settings):
    """Base of all objectives."""

    kind: str
    sees: Sees = "both_sides"
    """Which tokens of its own sentence a token may attend to. `left_only`, `window` and `itself` are controls
    that take away a part of the context and nothing else."""
    window: int = Field(2, ge=1)
    """With `sees: window`: how many tokens on either side a token may attend to, itself besides."""


class MaskedLMSettings(ObjectiveSettings):
    """Predict hidden tokens from what is left (Devlin et al. 2019)."""

    kind: Literal["masked_lm"]
    masking: MaskingSettings = MaskingSettings()
    pair_loss: Literal["none", "next_sentence", "sentence_order"] = "none"
    """A second loss on pairs of segments: is the second the next one or from another document (Devlin et al.
    2019), are the two in order or swapped (Lan et al. 2020). Needs a pair format of `training.input_format`."""


class CausalLMSettings(ObjectiveSettings):
    """Predict each token from those before it."""

    kind: Literal["causal_lm"]
    sees: Literal["left_only", "window", "itself"] = "left_only"
    """Which of the tokens before it a token may attend to; `window` and `itself` never look right."""
    token_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the input tokens that is shown as a random one; what is predicted stays (Voita et al. 2019)."""


class TranslationSettings(ObjectiveSettings):
    """Encode a sentence, decode its translation; only the encoder is analysed (Voita et al. 2019)."""

    kind: Literal["translation"]
    decoder: DecoderSettings = DecoderSettings()
    token_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the source tokens that is shown as a random one; the translation stays (Voita et al. 2019)."""


class MixtureSettings(ObjectiveSettings):
    """Masked LM on some sentences, causal LM on the others, with one encoder and one head."""

    kind: Literal["mixture"]
    masking: MaskingSettings = MaskingSettings()
    causal: float = Field(0.5, gt=0, lt=1)
    """Share of the sentences, drawn anew each epoch, that are read from left to right; also the weight of their
    loss beside that of the others."""
    sees: Literal["both_sides"] = "both_sides"
    """What the tokens of masked sentences may attend to, and those of any text that is only read."""


class GeneratorSettings(Settings):
    """The small masked LM that fills in replacements; the measures never see it."""

    shrink: int = Field(4, ge=1)
    """How many times narrower than the encoder it is, with as many times fewer heads."""
    num_hidden_layers: int | None = Field(None, ge=1)
    """Its blocks; as many as the encoder's unless given."""


def generator_shape(encoder: EncoderSettings, generator: GeneratorSettings) -> EncoderSettings:
    """Shape of the generator's blocks."""
    return EncoderSettings(
        num_hidden_layers=generator.num_hidden_layers or encoder.num_hidden_layers,
        hidden_size=encoder.hidden_size // generator.shrink,
        num_attention_heads=max(1, encoder.num_attention_heads // generator.shrink),
        intermediate_size=max(1, encoder.intermediate_size // generator.shrink),
        dropout=encoder.dropout,
        norm=encoder.norm,
    )


class ReplacedTokenSettings(ObjectiveSettings):
    """Tell tokens that a small generator filled in from original ones (ELECTRA, Clark et al. 2020)."""

    kind: Literal["replaced_token"]
    masking: MaskingSettings = MaskingSettings(mask=1.0, random=0.0, keep=0.0)
    """What the generator has to fill in."""
    generator: GeneratorSettings = GeneratorSettings()
    predict: Literal["replaced", "original"] = "replaced"
    """For each token, whether it was replaced; or which token stood there, over the vocabulary."""
    loss_on: Literal["all", "selected"] = "all"
    """All tokens; or those that were selected only. With `predict: original` these are the paper's all-tokens MLM
    (here without its copy mechanism) and Replace MLM; `replaced` on `selected` is its ELECTRA 15%."""
    weight: float = Field(default_factory=lambda data: 50.0 if data["predict"] == "replaced" else 1.0, gt=0)
    """Of the encoder's loss beside the generator's; 50 for `replaced` unless given, whose loss is small, else
    1."""


class PermutationLMSettings(ObjectiveSettings):
    """Predict each token from those before it in a random order of the sentence (XLNet, Yang et al. 2019)."""

    kind: Literal["permutation_lm"]
    predict: float = Field(1 / 6, gt=0, le=1)
    """Share of a sentence's tokens, the last ones of its order, that is predicted."""
    sees: Literal["both_sides"] = "both_sides"
    """What a token of text that is only read may attend to."""


class NaiveBidirectionalLMSettings(ObjectiveSettings):
    """Predict every token from both sides without hiding any: a forward and a backward stream that each leave
    the token itself out, summed at every layer. From the second layer on the others give it away."""

    kind: Literal["naive_bidirectional_lm"]
    sees: Literal["both_sides"] = "both_sides"


class SkipGramSettings(ObjectiveSettings):
    """Static word vectors: skip-gram with negative sampling (word2vec, Mikolov et al. 2013); no Transformer. The
    only layer is the table of token embeddings."""

    kind: Literal["skip_gram"]
    sees: Literal["itself"] = "itself"
    window: int = Field(5, ge=1)
    """Largest distance of a predicted neighbour; each token draws its own from 1 to this."""
    negatives: int = Field(5, ge=1)
    """Random tokens that each neighbour is told from."""
    subsample: float | None = Field(1e-3, gt=0)
    """Frequency above which occurrences of a token are left out, with probability 1 - sqrt(subsample / frequency);
    null keeps all."""


Objective = Annotated[
    MaskedLMSettings
    | CausalLMSettings
    | TranslationSettings
    | MixtureSettings
    | ReplacedTokenSettings
    | PermutationLMSettings
    | NaiveBidirectionalLMSettings
    | SkipGramSettings,
    Field(discriminator="kind"),
]
