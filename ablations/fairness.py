"""What is held equal between arms: steps, predictions or operations. No torch.

The first trained arm runs for the steps that the spec writes; every other arm gets as many as make it predict as
many tokens, or take as many operations, as that one. Tokens a step stay equal.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ablations.errors import SpecError
from ablations.spec import Experiment, Run
from lightning_modules.config import RunSettings
from lightning_modules.operations import operations_per_token

Report = Mapping[str, Any]
"""What `tokens.json` says of a text."""


def matched(
    experiment: Experiment, runs: tuple[Run, ...], *, report: Callable[[RunSettings], Report]
) -> tuple[Run, ...]:
    """The runs with as many steps as `match` gives each; warm-up and validations are scaled with them.

    Args:
        report: of a run's text; asked for only where predictions are to be equal.

    Raises:
        SpecError: an arm's loss is not on tokens, so its predictions cannot be those of another.
    """
    trained = [run for run in runs if run.settings.training.max_steps]
    if experiment.match == "steps" or not trained:
        return runs

    def rate(run: Run) -> float:
        if experiment.match == "flops":
            return operations_per_token(run.settings) * run.settings.training.tokens_per_step
        if run.settings.objective.kind == "skip_gram":
            raise SpecError(
                f"{experiment.name}: match: predictions cannot hold for arm {run.arm}, which predicts pairs of "
                f"words; match flops or steps, or give the arm an experiment of its own."
            )
        return predictions_per_token(run.settings, report(run.settings)) * run.settings.training.tokens_per_step

    reference = rate(trained[0]) * trained[0].settings.training.max_steps
    return tuple(
        _lasting(run, round(reference / rate(run))) if run.settings.training.max_steps else run for run in runs
    )


def _lasting(run: Run, max_steps: int) -> Run:
    """The run with other steps; what happens at certain steps happens at the same share of them."""
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


def predictions_per_token(run: RunSettings, report: Report) -> float:
    """Predicted tokens for each real source token, expected from the settings and the training text's report.

    Exact up to chance for single sentences and `count: unbiased` or `independent`; other input formats have fewer
    special tokens, and a lexicon may not have enough words in a sentence.
    """
    train = report["splits"]["train"]
    tokens, sentences = train["source"]["tokens"], train["sentences"]
    text = 1 - 2 * sentences / tokens
    objective, causal = run.objective, 1 - sentences / tokens
    match objective.kind:
        case "masked_lm":
            return objective.masking.mean_predicted(run.training.max_steps) * text
        case "causal_lm":
            return causal
        case "translation":
            return (train["target"]["tokens"] - sentences) / tokens
        case "mixture":
            masked = objective.masking.mean_ratio(run.training.max_steps) * text
            return objective.causal * causal + (1 - objective.causal) * masked
        case "replaced_token":
            ratio = objective.masking.mean_ratio(run.training.max_steps)
            return text * (1.0 if objective.loss_on == "all" else ratio)
        case "permutation_lm":
            return objective.predict * text
        case _:
            return text
