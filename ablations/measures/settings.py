"""What a spec may say about its measures. No torch, no mathematics."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from lightning_modules.config import InputFormat, Settings, WordOrder
from lightning_modules.config.settings import from_name


class LayerChangeSettings(Settings):
    """How much each layer changes its tokens: 1 - similarity of two layers of one encoder."""

    kind: Literal["layer_change"]
    tokens: int = Field(50_000, ge=100)
    """Token occurrences of the validation text, whole sentences from its start; fewer if it has fewer."""


class TokenInformationSettings(Settings):
    """How much each layer still knows about its input token: mutual information with k-means clusters."""

    kind: Literal["token_information"]
    tokens: int = Field(50_000, ge=100)
    """Token occurrences of the validation text, whole sentences from its start; fewer if it has fewer."""
    types: int = Field(1000, ge=2)
    """Only occurrences of this many most frequent sub-words are used."""
    clusters: int = Field(1000, ge=2)
    """Clusters of each layer's states."""


class ValidationSettings(Settings):
    """Loss and perplexity on the validation text under one frozen corruption; BLEU and chrF of translations;
    accuracy of a head on pairs."""

    kind: Literal["validation"]
    translations: int = Field(500, ge=1)
    """Sentences translated (greedily) for BLEU and chrF, from the start of the validation text."""
    word_orders: tuple[WordOrder, ...] = Field((), strict=False)
    """Also the loss on copies of the validation text with its words in these orders."""
    input_formats: tuple[InputFormat, ...] = Field((), strict=False)
    """Also the loss where the validation text is read in these formats, instead of sentence by sentence."""


Measure = Annotated[
    Annotated[LayerChangeSettings | TokenInformationSettings | ValidationSettings, Field(discriminator="kind")],
    BeforeValidator(from_name),
]
