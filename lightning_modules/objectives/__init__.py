"""Objectives: from a run's settings to the module that is trained."""

from pkgutil import resolve_name

from lightning_modules.config import RunSettings
from lightning_modules.data.token_store import Tokens
from lightning_modules.errors import PluginError
from lightning_modules.objectives.objective import Objective


def build(run: RunSettings, tokens: Tokens) -> Objective:
    """Return the objective of a run, with a new encoder and the initial weights of the run's seed.

    Raises:
        PluginError: an objective from a plugin has no head for the output that its settings name.
    """
    module = run.objective.module
    objective: Objective = (resolve_name(module) if isinstance(module, str) else module).of_text(run, tokens)
    if run.objective.output in ("next", "hidden") and not hasattr(objective, "head"):
        raise PluginError(
            f"{run.objective.kind} has the output {run.objective.output}, but its module has no self.head; "
            "define self.head, or leave output out."
        )
    objective.initialise()
    return objective
