"""Settings of each objective, and the facts about it that other parts need. No torch."""

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, SerializeAsAny

from lightning_modules.config.encoder import (
    AnyHead,
    DecoderSettings,
    EncoderSettings,
    Head,
    Sees,
    attention_parameters,
    binary_head_parameters,
    block_parameters,
    block_weights,
    encoder_parameters,
    encoder_weights,
    norm_and_bias_parameters,
    norm_parameters,
    prediction_head_parameters,
    vocabulary_weights,
)
from lightning_modules.config.masking import MaskingSettings
from lightning_modules.config.settings import MOST_LAYERS, SETTING_LIMIT, Settings, kind_of_part, or_plugin
from lightning_modules.errors import PluginError
from lightning_modules.plugins import Plugin, guarded

Output = Literal["next", "hidden", "own"] | None
"""Token that the output at a position predicts. `next`: the next token. `hidden`: the hidden token at that
position. `own`: the module's `Objective.sentence_logits` decides. None: no output belongs to a token that is
read."""

Predicted = Literal["selected", "next", "text", "target", "pairs"]
"""Kind of predictions of an objective. `selected`: tokens that the masking selects. `next`: the token after
each token. `text`: tokens of the text that are not special. `target`: tokens of the translation. `pairs`:
pairs of words."""


StockOutput = Literal["states", "token", "next_token", "token_and_pair", "replaced", "target_text"]
"""Output of a stock class that an exported run needs. `states`: hidden states alone. `token`, `next_token`:
scores of the token at a position, or of the next. `token_and_pair`: scores of a token and of a pair.
`replaced`: one score of a token, such as whether it was replaced. `target_text`: scores of the tokens of a
translation."""


class ObjectiveSettings(Settings):
    """Base of the settings of all objectives, with facts about them as most have them."""

    module: ClassVar[Any] = None
    """Subclass of `Objective` that is trained, or its name as ``module:class``."""
    output: ClassVar[Output] = None
    """Token that the output at a position predicts. With an output, sentences have a probability."""
    has_layers: ClassVar[bool] = True
    """Whether the encoder has layers above the embeddings."""
    has_one_attention: ClassVar[bool] = True
    """Whether each layer has one attention, from which a token can be hidden."""
    reads_sentences_alone: ClassVar[bool] = False
    """Whether the objective reads one sentence at a time. No input format then joins several sentences."""
    has_vocabulary_loss: ClassVar[bool] = True
    """Whether the encoder's loss is a cross-entropy over the vocabulary; otherwise tables call it
    `objective_loss`."""
    above_zero: ClassVar[str] = "yes"
    """Meaning of a score above 0 with the stock output `replaced`, for the model card."""
    kind: str
    sees: Sees = "both_sides"
    """Tokens of its own sentence that a token may attend to. `left_only`, `window` and `itself` are controls:
    they take away a part of the context and change nothing else."""
    window: int = Field(2, ge=1, lt=SETTING_LIMIT)
    """Number of tokens on either side that a token may attend to, besides itself, with `sees: window`."""

    @property
    def predictions(self) -> Mapping[Predicted, float]:
        """Share of the tokens of each kind that the objective predicts."""
        raise NotImplementedError

    @property
    def stock_output(self) -> StockOutput | None:
        """Output that an exported run needs; None if no stock class computes the objective."""
        return None

    @property
    def draws(self) -> bool:
        """Return whether the objective draws random numbers when it makes a batch, such as hidden tokens."""
        return True

    def weights_per_token(
        self, encoder: EncoderSettings, *, vocab_size: int, max_steps: int, pairs: float | None = None
    ) -> float:
        """Return the number of matrix weights that a source token meets in training, as a mean over all
        steps.

        Some weights count at predicted positions only, as a share of all tokens, special tokens included.
        These are the weights of the head, and those of the last block that are not for keys or values.

        Args:
            pairs: predicted pairs of words for each token, if they were counted.
        """
        raise NotImplementedError

    def parameters(self, encoder: EncoderSettings, *, vocab_size: int, max_length: int, segments: bool) -> int:
        """Return the number of parameters of the whole module, including heads, generator and decoder."""
        shared = encoder_parameters(encoder, vocab_size=vocab_size, max_length=max_length, segments=segments)
        return shared + self.own_parameters(encoder, vocab_size=vocab_size, max_length=max_length)

    def own_parameters(self, encoder: EncoderSettings, *, vocab_size: int, max_length: int) -> int:
        """Return the number of parameters outside the encoder: by default those of a prediction head."""
        return prediction_head_parameters(encoder, vocab_size)


class MaskedLMSettings(ObjectiveSettings):
    """Settings of masked LM: predict hidden tokens from what is left (Devlin et al. 2019)."""

    kind: Literal["masked_lm"]
    masking: MaskingSettings = MaskingSettings()
    head: Head = "bert"
    """Prediction head, which scores each token of the vocabulary: `bert`, or `linear`, one linear map."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of each label that is spread over the whole vocabulary in training (Szegedy et al. 2016, section
    7). Validation losses are computed without it."""
    pair_loss: Literal["none", "next_sentence", "sentence_order"] = "none"
    """Second loss, on pairs of segments. `next_sentence`: does the second segment follow the first, or is it
    from another document (Devlin et al. 2019)? Half of the pairs are from another, but fewer if a step holds
    few documents; less than a quarter is an error. `sentence_order`: are the two in order or swapped (Lan et
    al. 2020)? Both need a pair format as `training.input_format`."""

    output: ClassVar[Output] = "hidden"
    module: ClassVar[Any] = "lightning_modules.objectives.masked_lm:MaskedLM"

    @property
    def predictions(self) -> Mapping[Predicted, float]:
        return {"selected": 1.0}

    @property
    def stock_output(self) -> StockOutput | None:
        return "token" if self.pair_loss == "none" else "token_and_pair"

    def weights_per_token(
        self, encoder: EncoderSettings, *, vocab_size: int, max_steps: int, pairs: float | None = None
    ) -> float:
        predicted = self.masking.mean_predicted(max_steps)
        blocks = encoder_weights(encoder, read=self.masking.mean_repeats(max_steps), predicted=predicted)
        return blocks + predicted * vocabulary_weights(encoder, vocab_size, head=self.head)

    def own_parameters(self, encoder: EncoderSettings, *, vocab_size: int, max_length: int) -> int:
        binary_head = 0 if self.pair_loss == "none" else binary_head_parameters(encoder)
        return prediction_head_parameters(encoder, vocab_size, head=self.head) + binary_head


class CausalLMSettings(ObjectiveSettings):
    """Settings of causal LM: predict each token from the tokens before it."""

    kind: Literal["causal_lm"]
    sees: Literal["left_only", "window", "itself"] = "left_only"
    """Tokens that a token may attend to: itself and all before it, itself and the nearest before it
    (`window`), or `itself`. It never sees tokens on its right."""
    token_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the input tokens that is shown as random ones; those to predict stay (Voita et al. 2019)."""
    head: AnyHead = "bert"
    """Prediction head, which scores each token of the vocabulary: `bert`; `linear`, one linear map; or
    `tied`, the token embeddings alone."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of each label that is spread over the whole vocabulary in training (Szegedy et al. 2016, section
    7). Validation losses are computed without it."""

    output: ClassVar[Output] = "next"
    module: ClassVar[Any] = "lightning_modules.objectives.causal_lm:CausalLM"

    @property
    def predictions(self) -> Mapping[Predicted, float]:
        return {"next": 1.0}

    @property
    def draws(self) -> bool:
        return self.token_dropout > 0

    @property
    def stock_output(self) -> StockOutput | None:
        return "next_token"

    def weights_per_token(
        self, encoder: EncoderSettings, *, vocab_size: int, max_steps: int, pairs: float | None = None
    ) -> float:
        return encoder_weights(encoder) + vocabulary_weights(encoder, vocab_size, head=self.head)

    def own_parameters(self, encoder: EncoderSettings, *, vocab_size: int, max_length: int) -> int:
        return prediction_head_parameters(encoder, vocab_size, head=self.head)


class TranslationSettings(ObjectiveSettings):
    """Settings of translation: encode a sentence and decode its translation (Voita et al. 2019). Only the
    encoder is analysed."""

    kind: Literal["translation"]
    decoder: DecoderSettings = DecoderSettings()
    token_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the source tokens that is shown as random ones; the translation stays (Voita et al. 2019)."""
    head: Literal["tied", "linear"] = "tied"
    """Weights that score the tokens of the translation: the decoder's token embeddings (`tied`), or weights
    of their own (`linear`)."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of each label that is spread over the whole vocabulary in training (Szegedy et al. 2016, section
    7). Validation losses are computed without it."""

    reads_sentences_alone: ClassVar[bool] = True
    module: ClassVar[Any] = "lightning_modules.objectives.translation:Translation"

    @property
    def predictions(self) -> Mapping[Predicted, float]:
        return {"target": 1.0}

    @property
    def draws(self) -> bool:
        return self.token_dropout > 0

    @property
    def stock_output(self) -> StockOutput | None:
        return "target_text"

    def weights_per_token(
        self, encoder: EncoderSettings, *, vocab_size: int, max_steps: int, pairs: float | None = None
    ) -> float:
        """Return the number of weights of encoder and decoder. A translation counts as long as its source."""
        width = encoder.hidden_size
        decoder = self.decoder.num_hidden_layers * (block_weights(encoder) + 4 * width * width)
        return encoder_weights(encoder) + decoder + width * vocab_size

    def own_parameters(self, encoder: EncoderSettings, *, vocab_size: int, max_length: int) -> int:
        width = encoder.hidden_size
        positions = max_length * width if encoder.positions in ("learned", "none") else 0
        output = vocab_size * width if self.head == "linear" else 0
        embeddings = vocab_size * width + positions + norm_and_bias_parameters(encoder) + output
        block = block_parameters(encoder) + attention_parameters(encoder)
        return embeddings + self.decoder.num_hidden_layers * block


class MixtureSettings(ObjectiveSettings):
    """Settings of a mixture: masked LM on some sentences, causal LM on the others, one encoder and one
    head."""

    kind: Literal["mixture"]
    masking: MaskingSettings = MaskingSettings()
    causal: float = Field(0.5, gt=0, lt=1)
    """Share of the sentences that are read from left to right, drawn anew each epoch. It is also the weight
    of their loss; the others have the rest."""
    sees: Literal["both_sides"] = "both_sides"
    """Tokens that a token may attend to in masked sentences, and in text that measures read."""

    output: ClassVar[Output] = "hidden"
    module: ClassVar[Any] = "lightning_modules.objectives.mixture:Mixture"

    @property
    def predictions(self) -> Mapping[Predicted, float]:
        return {"next": self.causal, "selected": 1 - self.causal}

    @property
    def stock_output(self) -> StockOutput | None:
        return "token"

    def weights_per_token(
        self, encoder: EncoderSettings, *, vocab_size: int, max_steps: int, pairs: float | None = None
    ) -> float:
        predicted = self.causal + (1 - self.causal) * self.masking.mean_ratio(max_steps)
        return encoder_weights(encoder, predicted=predicted) + predicted * vocabulary_weights(encoder, vocab_size)


class GeneratorSettings(Settings):
    """Settings of the generator, a small masked LM that fills in replacements. No measure reads it."""

    shrink: int = Field(4, ge=1)
    """Factor by which the generator is narrower than the encoder; it has fewer heads by this factor too."""
    num_hidden_layers: int | None = Field(None, ge=1, le=MOST_LAYERS)
    """Number of blocks of the generator; as many as the encoder has unless given."""


def generator_shape(encoder: EncoderSettings, generator: GeneratorSettings) -> EncoderSettings:
    """Return the settings of the generator's blocks: those of the encoder, with the generator's sizes."""
    return encoder.model_copy(
        update={
            "num_hidden_layers": generator.num_hidden_layers or encoder.num_hidden_layers,
            "hidden_size": encoder.hidden_size // generator.shrink,
            "num_attention_heads": max(1, encoder.num_attention_heads // generator.shrink),
            "intermediate_size": max(1, encoder.intermediate_size // generator.shrink),
        }
    )


class ReplacedTokenSettings(ObjectiveSettings):
    """Settings of replaced token detection: tell original tokens from tokens that a small generator filled in
    (ELECTRA, Clark et al. 2020)."""

    kind: Literal["replaced_token"]
    masking: MaskingSettings = MaskingSettings(mask=1.0, random=0.0, keep=0.0)
    """Masking of the tokens that the generator has to fill in."""
    generator: GeneratorSettings = GeneratorSettings()
    predict: Literal["replaced", "original"] = "replaced"
    """Question that the encoder answers for each token. `replaced`: was it replaced? `original`: which token
    of the vocabulary stood there?"""
    loss_on: Literal["all", "selected"] = "all"
    """Tokens of the encoder's loss: `all`, or only those that were `selected` for the generator. With
    `predict: original` these are the All-Tokens MLM (here without its copy mechanism) and the Replace MLM of
    the paper. `predict: replaced` with `selected` is its ELECTRA 15%."""
    weight: float = Field(default_factory=lambda data: 50.0 if data["predict"] == "replaced" else 1.0, gt=0)
    """Weight of the encoder's loss relative to the generator's. The default is 50 for `predict: replaced`,
    whose loss is small, and 1 for `original`."""

    has_vocabulary_loss: ClassVar[bool] = False
    above_zero: ClassVar[str] = "that the token was replaced"
    module: ClassVar[Any] = "lightning_modules.objectives.replaced_token:ReplacedToken"

    @property
    def predictions(self) -> Mapping[Predicted, float]:
        return {"text": 1.0} if self.loss_on == "all" else {"selected": 1.0}

    @property
    def stock_output(self) -> StockOutput | None:
        return "replaced" if self.predict == "replaced" else "token"

    def weights_per_token(
        self, encoder: EncoderSettings, *, vocab_size: int, max_steps: int, pairs: float | None = None
    ) -> float:
        width, ratio = encoder.hidden_size, self.masking.mean_ratio(max_steps)
        judged = 1.0 if self.loss_on == "all" else ratio
        head = vocabulary_weights(encoder, vocab_size) if self.predict == "original" else width * width
        shape = generator_shape(encoder, self.generator)
        generator = width * shape.hidden_size + encoder_weights(shape, predicted=ratio)
        generator += ratio * width * (shape.hidden_size + vocab_size)
        return encoder_weights(encoder, predicted=judged) + judged * head + generator

    def own_parameters(self, encoder: EncoderSettings, *, vocab_size: int, max_length: int) -> int:
        width, shape = encoder.hidden_size, generator_shape(encoder, self.generator)
        narrow = shape.hidden_size
        generator = (width + 1) * narrow + shape.num_hidden_layers * block_parameters(shape)
        generator += (
            (narrow + 1) * width + 2 * width + vocab_size + (norm_parameters(shape) if shape.norm == "pre" else 0)
        )
        head = (
            binary_head_parameters(encoder)
            if self.predict == "replaced"
            else prediction_head_parameters(encoder, vocab_size)
        )
        return generator + head


class PermutationLMSettings(ObjectiveSettings):
    """Settings of permutation LM: predict each token from the tokens before it in a random order of the
    sentence (XLNet, Yang et al. 2019)."""

    kind: Literal["permutation_lm"]
    predict: float = Field(1 / 6, gt=0, le=1)
    """Share of a sentence's tokens that is predicted: the last tokens of the random order."""
    sees: Literal["both_sides"] = "both_sides"
    """Tokens that a token may attend to in text that measures read."""

    module: ClassVar[Any] = "lightning_modules.objectives.permutation_lm:PermutationLM"

    @property
    def predictions(self) -> Mapping[Predicted, float]:
        return {"text": self.predict}

    @property
    def stock_output(self) -> StockOutput | None:
        return "token"

    def weights_per_token(
        self, encoder: EncoderSettings, *, vocab_size: int, max_steps: int, pairs: float | None = None
    ) -> float:
        blocks = encoder_weights(encoder, read=1 + self.predict, predicted=self.predict)
        # No token sees the queries of predicted tokens, so these need no keys and values.
        unseen = self.predict * encoder.num_hidden_layers * 2 * encoder.hidden_size**2
        return blocks - unseen + self.predict * vocabulary_weights(encoder, vocab_size)


class NaiveBidirectionalLMSettings(ObjectiveSettings):
    """Settings of the naive bidirectional LM: predict every token from both sides without hiding any. Each
    layer sums a forward and a backward stream, and neither stream includes the token itself. From the second
    layer on, the other tokens give it away."""

    kind: Literal["naive_bidirectional_lm"]
    sees: Literal["both_sides"] = "both_sides"

    has_one_attention: ClassVar[bool] = False
    module: ClassVar[Any] = "lightning_modules.objectives.naive_bidirectional_lm:NaiveBidirectionalLM"

    @property
    def predictions(self) -> Mapping[Predicted, float]:
        return {"text": 1.0}

    @property
    def draws(self) -> bool:
        return False

    def weights_per_token(
        self, encoder: EncoderSettings, *, vocab_size: int, max_steps: int, pairs: float | None = None
    ) -> float:
        # Both streams of a block have the same queries, keys and values.
        shared = encoder.num_hidden_layers * 3 * encoder.hidden_size**2
        return 2 * encoder_weights(encoder) - shared + vocabulary_weights(encoder, vocab_size)


class SkipGramSettings(ObjectiveSettings):
    """Settings of static word vectors: skip-gram with negative sampling (word2vec, Mikolov et al. 2013).
    There is no Transformer: the only layer is the table of token embeddings."""

    kind: Literal["skip_gram"]
    sees: Literal["itself"] = "itself"
    window: int = Field(5, ge=1, lt=SETTING_LIMIT)
    """Largest distance of a predicted neighbour. Each token draws its own distance from 1 to this number."""
    negatives: int = Field(5, ge=1, lt=SETTING_LIMIT)
    """Number of random tokens that each neighbour is told from."""
    subsample: float | None = Field(1e-3, gt=0)
    """Frequency above which occurrences of a token are left out, with probability 1 - sqrt(subsample /
    frequency); null keeps all occurrences."""

    has_layers: ClassVar[bool] = False
    has_one_attention: ClassVar[bool] = False
    reads_sentences_alone: ClassVar[bool] = True
    has_vocabulary_loss: ClassVar[bool] = False
    module: ClassVar[Any] = "lightning_modules.objectives.skip_gram:SkipGram"

    @property
    def predictions(self) -> Mapping[Predicted, float]:
        return {"pairs": 1.0}

    def weights_per_token(
        self, encoder: EncoderSettings, *, vocab_size: int, max_steps: int, pairs: float | None = None
    ) -> float:
        """Return the number of weights that all pairs of a token meet. Unless counted, a token has `window` +
        1 pairs, as in a text that has no sentence ends and leaves nothing out. Real texts have a third to a
        half of that."""
        pairs = self.window + 1 if pairs is None else pairs
        return pairs * (1 + self.negatives) * encoder.hidden_size

    def parameters(self, encoder: EncoderSettings, *, vocab_size: int, max_length: int, segments: bool) -> int:
        """Return the number of parameters of the two tables of embeddings."""
        return 2 * vocab_size * encoder.hidden_size


NEEDED = ("module", "predictions", "weights_per_token")
"""Facts that every objective has to define."""


def _of_plugin(plugin: Plugin) -> type[ObjectiveSettings]:
    """Return the settings class of an objective that a plugin defines.

    Raises:
        PluginError: the part is no objective, lacks a fact, or has a module that cannot be trained or scored.
    """
    settings = plugin.part
    if not isinstance(settings, type) or not issubclass(settings, ObjectiveSettings):
        raise PluginError(
            f"{plugin.name} must be a subclass of ObjectiveSettings of lightning_modules.config.objectives, but "
            f"is {kind_of_part(settings)}; correct the class."
        )
    lacking = [name for name in NEEDED if getattr(settings, name) is getattr(ObjectiveSettings, name)]
    if lacking:
        raise PluginError(
            f"{plugin.name} lacks {', '.join(lacking)}; define it in the class, as ObjectiveSettings describes it."
        )
    if (output := settings.output) not in (None, *get_args(get_args(Output)[0])):
        raise PluginError(f"{plugin.name}: output must be next, hidden or own, but is {output!r}; correct it.")
    _require_module(plugin, settings)
    return settings


MODULE_BASE = "lightning_modules.objectives.objective.Objective"
"""Class that the module of every objective inherits, by name: the settings of a run need no torch."""


def _require_module(plugin: Plugin, settings: type[ObjectiveSettings]) -> None:
    """Refuse a module that cannot be trained, or cannot be scored as its settings say.

    Raises:
        PluginError: the module cannot be imported, is no `Objective`, or lacks a method.
    """
    with guarded(plugin):
        module = resolve_name(settings.module) if isinstance(settings.module, str) else settings.module
    bases = module.__mro__ if isinstance(module, type) else ()
    base: Any = next((base for base in bases if f"{base.__module__}.{base.__name__}" == MODULE_BASE), None)
    if base is None:
        raise PluginError(
            f"{plugin.name}: module must be a subclass of Objective of lightning_modules.objectives.objective, "
            f"but is {kind_of_part(module)}; correct the class."
        )
    if lacking := sorted(module.__abstractmethods__):
        raise PluginError(
            f"{plugin.name}: its module {module.__name__} lacks {', '.join(lacking)}; define it in the class, as "
            f"Objective describes it."
        )
    if settings.output == "own" and module.sentence_logits is base.sentence_logits:
        raise PluginError(
            f"{plugin.name} has the output own, but its module {module.__name__} defines no sentence_logits; "
            f"define it, or leave the output out."
        )


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
    SerializeAsAny(),
    or_plugin(_of_plugin),
]
"""Settings of an objective of this project, or of a plugin."""

OBJECTIVES: tuple[type[ObjectiveSettings], ...] = get_args(get_args(Objective)[0])
"""Settings classes of the objectives of this project."""
