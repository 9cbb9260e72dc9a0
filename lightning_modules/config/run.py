"""All that decides what a run computes."""

from pydantic import Field

from lightning_modules.config.data import Data
from lightning_modules.config.encoder import EncoderSettings
from lightning_modules.config.objectives import Objective
from lightning_modules.config.settings import Settings
from lightning_modules.config.training import TrainingSettings


class RunSettings(Settings):
    """Everything that decides what a run computes, and nothing about the machine it runs on."""

    data: Data
    encoder: EncoderSettings = EncoderSettings()
    objective: Objective
    training: TrainingSettings = TrainingSettings()
    seed: int = Field(ge=0)
    """Initial weights, data order and corruption each get a seed of their own from this one."""
