"""Settings of a run: typed, frozen and complete. The package imports no torch. It reads no files but plugins.

Every default lives here and only here. A setting has the name that it has in Lightning or Hugging Face, if
there is one.
"""

from lightning_modules.config.contradictions import contradictions
from lightning_modules.config.data import ColumnSettings, Data, FilesData, HubData, LanguageData
from lightning_modules.config.encoder import DecoderSettings, EncoderSettings, Sees
from lightning_modules.config.masking import MaskingSettings
from lightning_modules.config.objectives import (
    CausalLMSettings,
    MaskedLMSettings,
    MixtureSettings,
    PermutationLMSettings,
    ReplacedTokenSettings,
    SkipGramSettings,
    TranslationSettings,
)
from lightning_modules.config.run import RunSettings, operations_per_token, parameters
from lightning_modules.config.settings import Settings
from lightning_modules.config.training import PAIR_FORMATS, InputFormat, TrainingSettings, WordOrder

__all__ = [
    "PAIR_FORMATS",
    "CausalLMSettings",
    "ColumnSettings",
    "Data",
    "DecoderSettings",
    "EncoderSettings",
    "FilesData",
    "HubData",
    "InputFormat",
    "LanguageData",
    "MaskedLMSettings",
    "MaskingSettings",
    "MixtureSettings",
    "PermutationLMSettings",
    "ReplacedTokenSettings",
    "RunSettings",
    "Sees",
    "Settings",
    "SkipGramSettings",
    "TrainingSettings",
    "TranslationSettings",
    "WordOrder",
    "contradictions",
    "operations_per_token",
    "parameters",
]
