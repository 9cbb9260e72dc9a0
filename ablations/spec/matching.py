"""Matching of arms: steps, predictions or operations are held equal. No torch.

The first trained arm runs for the steps that the spec writes; every other arm gets as many as make it predict as
many tokens, or take as many operations, as that one. Tokens a step stay equal. Predictions are counted in the text
of each arm, sentence by sentence.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ablations.errors import SpecError
from ablations.spec.experiment import Experiment, Run
from lightning_modules.config import RunSettings, operations_per_token
from lightning_modules.config.objectives import ObjectiveSettings

if TYPE_CHECKING:
    from lightning_modules.data.token_store import Tokens


def matched(
    experiment: Experiment, runs: tuple[Run, ...], *, text: Callable[[RunSettings], "Tokens"]
) -> tuple[Run, ...]:
    """Return the runs with as many steps as `match` gives each; warm-up and validations are scaled with them.

    Args:
        text: of a run, in tokens; asked for where predictions are to be equal, and for skip-gram's operations. Of
            seeds the first one's text speaks for all.

    Raises:
        SpecError: an arm's loss is not on tokens, so its predictions cannot be those of another.
    """
    trained = [run for run in runs if run.settings.training.max_steps]
    if experiment.match == "steps" or not trained:
        return runs

    first = {run.arm: run.settings for run in reversed(trained)}
    if why := unmatched(experiment.match, {arm: settings.objective for arm, settings in first.items()}):
        raise SpecError(f"{experiment.name}: {why}.")
    from lightning_modules.objectives.predictions import (
        predictions_per_token,  # reads text, which most specs need not wait for
    )

    def of_step(run: RunSettings) -> float:
        words, per_step = "pairs" in run.objective.predictions, run.training.tokens_per_step
        if experiment.match == "predictions":
            return predictions_per_token(run, text(run)) * per_step
        pairs = predictions_per_token(run, text(run)) if words else None
        return operations_per_token(run, pairs=pairs) * per_step

    rates = {arm: of_step(settings) for arm, settings in first.items()}
    reference = rates[trained[0].arm] * trained[0].settings.training.max_steps
    return tuple(
        lasting(run, round(reference / rates[run.arm])) if run.settings.training.max_steps else run for run in runs
    )


def unmatched(match: object, objectives: Mapping[str, ObjectiveSettings]) -> str | None:
    """Return the reason why predictions cannot be held equal between arms; None if they can or need not.

    Args:
        objectives: the objective of each arm.
    """
    words = next((arm for arm, objective in objectives.items() if "pairs" in objective.predictions), None)
    if match != "predictions" or words is None:
        return None
    return (
        f"match: predictions cannot hold for arm {words}, which predicts pairs of words; match flops or steps, or "
        f"give the arm an experiment of its own"
    )


def lasting(run: Run, max_steps: int) -> Run:
    """Return the run with other steps; what happens at certain steps happens at the same share of them."""
    training, objective = run.settings.training, run.settings.objective
    scale = max_steps / training.max_steps
    masking = getattr(objective, "masking", None)
    if masking is not None and masking.schedule is not None and masking.schedule.kind == "steps":
        at = tuple(max(1, round(step * scale)) for step in masking.schedule.at)
        schedule = masking.schedule.model_copy(update={"at": at})
        masking = masking.model_copy(update={"schedule": schedule})
        objective = objective.model_copy(update={"masking": masking})
    changed = training.model_copy(
        update={
            "max_steps": max(1, max_steps),
            "warmup_steps": min(max(1, max_steps), round(training.warmup_steps * scale)),
            "validate_every": max(1, round(training.validate_every * scale)),
        }
    )
    return replace(run, settings=run.settings.model_copy(update={"training": changed, "objective": objective}))
