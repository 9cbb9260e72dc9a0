"""Matching of arms: equal steps, predictions or operations (FLOPs) in all arms. Torch is loaded only to count
predictions in a text.

The first trained arm has the steps that the spec writes. The steps of every other arm are set so that it
predicts as many tokens, or takes as many operations, as the first one. The tokens per step stay as they are.
Predictions are counted in the text of each arm, sentence by sentence.
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


SCALED = ("training.warmup_steps", "training.validate_every")
"""Settings that a search may choose and that are scaled with the steps of an arm."""


def matched(
    experiment: Experiment, runs: tuple[Run, ...], *, text: Callable[[RunSettings], "Tokens"]
) -> tuple[Run, ...]:
    """Return the runs with the steps that `match` gives them; warm-up and validations are scaled in
    proportion.

    Args:
        text: returns the tokens of a run's text. It is called if predictions are matched, and to count the
            operations of skip-gram, always for the first seed of an arm.

    Raises:
        SpecError: predictions are matched, and an arm predicts pairs of words instead of tokens.
    """
    trained = [run for run in runs if run.settings.training.max_steps]
    if experiment.match == "steps" or not trained:
        return runs

    first = {run.arm: run.settings for run in reversed(trained)}
    if why := unmatched(experiment.match, {arm: settings.objective for arm, settings in first.items()}):
        raise SpecError(f"{experiment.name}: {why}.")

    def counted(run: RunSettings) -> float:
        tokens = text(run)
        from lightning_modules.objectives.predictions import predictions_per_token  # loads torch

        return predictions_per_token(run, tokens)

    def of_step(run: RunSettings) -> float:
        words, per_step = "pairs" in run.objective.predictions, run.training.tokens_per_step
        if experiment.match == "predictions":
            return counted(run) * per_step
        return operations_per_token(run, pairs=counted(run) if words else None) * per_step

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
        f"match: predictions is not possible for arm {words}, because it predicts pairs of words; write match: "
        "flops or match: steps, or give the arm an experiment of its own"
    )


def lasting(run: Run, max_steps: int) -> Run:
    """Return the run with another number of steps. Warm-up, validations and masking schedules are scaled in
    proportion. A ratio of a masking schedule that would have no step is left out."""
    training, objective = run.settings.training, run.settings.objective
    steps, scale = max(1, max_steps), max_steps / training.max_steps
    masking = getattr(objective, "masking", None)
    if masking is not None and masking.schedule is not None and masking.schedule.kind == "steps":
        pairs = zip(masking.schedule.at, masking.schedule.ratios, strict=True)
        ratio_by_step = {max(1, round(step * scale)): ratio for step, ratio in pairs}  # the later one counts
        ratio_by_step = {step: ratio for step, ratio in ratio_by_step.items() if step < steps}
        changed_at = {"at": tuple(ratio_by_step), "ratios": tuple(ratio_by_step.values())}
        schedule = masking.schedule.model_copy(update=changed_at) if ratio_by_step else None
        masking = masking.model_copy(update={"schedule": schedule})
        objective = objective.model_copy(update={"masking": masking})
    changed = training.model_copy(
        update={
            "max_steps": steps,
            "warmup_steps": min(steps, round(training.warmup_steps * scale)),
            "validate_every": max(1, round(training.validate_every * scale)),
        }
    )
    return replace(run, settings=run.settings.model_copy(update={"training": changed, "objective": objective}))
