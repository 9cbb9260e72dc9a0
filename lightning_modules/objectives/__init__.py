"""Objectives: from a run's settings to the module that is trained."""

from pkgutil import resolve_name

from lightning_modules.config import RunSettings
from lightning_modules.data.token_store import Tokens
from lightning_modules.objectives.objective import Objective


def build(run: RunSettings, tokens: Tokens) -> Objective:
    """Return the run's objective on a fresh encoder, with the initial weights of its seed."""
    module = run.objective.module
    objective: Objective = (resolve_name(module) if isinstance(module, str) else module).of_text(run, tokens)
    objective.initialise()
    return objective
