"""All that a spec may ask to be measured, and what of it suits a run. No torch."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, Field

from ablations.measures.settings import (
    GeometrySettings,
    InfluenceSettings,
    LayerChangeSettings,
    NeighboursSettings,
    PicturesSettings,
    RunDistanceSettings,
    TokenInformationSettings,
    ValidationSettings,
)
from ablations.tasks.settings import (
    BaselinesSettings,
    FineTuningSettings,
    FrozenFeaturesSettings,
    MinimalPairsSettings,
    ProbingSettings,
    TaskSettings,
    TreesSettings,
)
from ablations.tasks.structural_settings import StructuralProbeSettings
from ablations.tasks.syntax_settings import ConditionalIndependenceSettings, ParsingSettings
from ablations.tasks.use_settings import GenerationSettings, RetrievalSettings
from ablations.wording import listed
from lightning_modules.config import Data, RunSettings
from lightning_modules.config.objectives import ObjectiveSettings
from lightning_modules.config.settings import from_name

RunMeasure = (
    LayerChangeSettings
    | TokenInformationSettings
    | NeighboursSettings
    | GeometrySettings
    | InfluenceSettings
    | PicturesSettings
    | ValidationSettings
    | MinimalPairsSettings
    | ProbingSettings
    | StructuralProbeSettings
    | FrozenFeaturesSettings
    | FineTuningSettings
    | BaselinesSettings
    | ParsingSettings
    | ConditionalIndependenceSettings
    | RetrievalSettings
    | GenerationSettings
)
"""Computed from one run."""

Measure = Annotated[
    Annotated[RunMeasure | RunDistanceSettings, Field(discriminator="kind")],
    BeforeValidator(from_name),
]


class Need(NamedTuple):
    """What a measure needs of an objective."""

    is_met: Callable[[ObjectiveSettings], bool]
    lack: str
    """What is said of an objective that does not have it."""


HAS_PROBABILITY = Need(lambda objective: objective.output is not None, "has no probability of a sentence")
PREDICTS_HIDDEN = Need(lambda objective: objective.output == "hidden", "does not predict hidden words")
NEEDS = {
    "minimal_pairs": HAS_PROBABILITY,
    "generation": HAS_PROBABILITY,
    "parsing": PREDICTS_HIDDEN,
    "conditional_independence": PREDICTS_HIDDEN,
    "layer_change": Need(lambda objective: objective.has_layers, "has one layer, which changes into no other"),
    "influence": Need(
        lambda objective: objective.has_one_attention, "has no layers of one attention to hide a token from"
    ),
}
"""What measures need of an objective, by kind; the others suit all objectives."""

HAS_OUTPUT = Need(
    lambda objective: objective.output is not None, "predicts no output that belongs to a token it reads"
)
"""What `token_information` needs of an objective when it is about the output alone."""


def for_run(
    measures: Sequence[Measure], run: RunSettings, *, data_root: Path | None = None
) -> Iterator[RunMeasure]:
    """What is computed from a run: those of its objective, and of tasks each by itself.

    Args:
        data_root: leaves out tasks without files there, and those that the text says too little for.
    """
    for settings in measures:
        if isinstance(settings, RunDistanceSettings) or not suits(settings, run):
            continue
        for part in _parts(settings, run.data):
            if data_root is None or _problem(part, run.data, data_root) is None:
                yield part


def caveats(
    measures: Sequence[Measure],
    runs: Sequence[tuple[str, RunSettings]],
    *,
    data_root: Path,
    is_there: Callable[[RunMeasure], bool] = lambda _: False,
) -> list[str]:
    """What of the measures is not computed, and why, and what is no evidence, a sentence each.

    Args:
        runs: of each arm one.
        is_there: whether a measure of one task has rows, from when its files were there.
    """
    sentences: dict[str, None] = {}
    asked = [settings for settings in measures if not isinstance(settings, RunDistanceSettings)]
    for settings in asked:
        unfit = [(arm, run.objective.kind) for arm, run in runs if not suits(settings, run)]
        for objective in dict.fromkeys(kind for _, kind in unfit):
            arms = listed([arm for arm, kind in unfit if kind == objective], "and")
            need = _need(settings)
            assert need is not None
            sentences[f"{settings.kind}: not run for {arms}: {objective} {need.lack}."] = None
        sentences |= dict.fromkeys(_not_run(settings, runs, data_root, is_there))

    def is_measured(settings: RunMeasure) -> bool:
        fit = [run for _, run in runs if suits(settings, run)]
        parts = [(part, run.data) for run in fit for part in _parts(settings, run.data)]
        return any(_problem(part, data, data_root) is None or is_there(part) for part, data in parts)

    in_brief = [settings for settings in asked if getattr(settings, "effort", "full") == "quick"]
    if quick := [settings.kind for settings in in_brief if is_measured(settings)]:
        kinds = listed(quick, "and")
        sentences[f"{kinds}: measured with effort quick, on a part of everything: no evidence."] = None
    return list(sentences)


def tasks_not_run(
    measures: Sequence[Measure], runs: Sequence[tuple[str, RunSettings]], *, data_root: Path
) -> list[str]:
    """Those of `caveats` that a file could mend: which tasks are not run, and why."""
    asked = [settings for settings in measures if not isinstance(settings, RunDistanceSettings)]
    return [sentence for settings in asked for sentence in _not_run(settings, runs, data_root, lambda _: False)]


def _not_run(
    settings: RunMeasure,
    runs: Sequence[tuple[str, RunSettings]],
    data_root: Path,
    is_there: Callable[[RunMeasure], bool],
) -> Iterator[str]:
    """Tasks of a measure that cannot be run, each with the reason, and the arms of which it is so."""
    found: dict[tuple[str, str], list[str]] = {}
    before = set[str]()
    for arm, run in runs:
        for part in _parts(settings, run.data):
            problem = _problem(part, run.data, data_root)
            if isinstance(part, TaskSettings | RetrievalSettings) and problem is not None:
                task = part.task if isinstance(part, RetrievalSettings) else part.task.name
                found.setdefault((task, problem), []).append(arm)
                if is_there(part):
                    before.add(task)
    for (task, problem), arms_without in found.items():
        where = "" if len(arms_without) == len(runs) else f" for {listed(arms_without, 'and')}"
        not_run = "was measured before, and cannot be again" if task in before else "not run"
        yield f"{settings.kind}: {task} {not_run}{where}: {problem}."


def _parts(settings: RunMeasure, data: Data) -> tuple[RunMeasure, ...]:
    """What is computed by itself: of several tasks each."""
    if isinstance(settings, TaskSettings | RetrievalSettings):
        return settings.parts(built_in=data.kind == "language")
    return (settings,)


def _problem(part: RunMeasure, data: Data, data_root: Path) -> str | None:
    """Why a task cannot be run; None if it can, and of what is no task."""
    match part:
        case TaskSettings():
            return part.task.problem(data_root)
        case RetrievalSettings():
            return part.problem(data, data_root)
        case _:
            return None


def lacks_labels(settings: Measure, data: Data) -> str | None:
    """Why a measure that names no treebank cannot have the labels it asks for from a text; None if it can, or asks
    for none."""
    if data.kind == "language" or getattr(settings, "treebank", None) is not None:
        return None
    remedy = "set treebank to a CoNLL-U or parquet file"
    if isinstance(settings, TreesSettings):
        return f"data of kind {data.kind} has no trees; {remedy}, or leave {settings.kind} out"
    if "part_of_speech" in getattr(settings, "groups", ()):
        return f"groups has part_of_speech, but data of kind {data.kind} has none; {remedy}, or leave it out"
    return None


def suits(settings: RunMeasure | RunDistanceSettings, run: RunSettings) -> bool:
    """Whether a measure can be computed from runs of this objective."""
    need = _need(settings)
    return need is None or need.is_met(run.objective)


def _need(settings: RunMeasure | RunDistanceSettings) -> Need | None:
    """Return what a measure needs of an objective; None if it suits all."""
    if isinstance(settings, TokenInformationSettings) and set(settings.about) == {"output"}:
        return HAS_OUTPUT
    return NEEDS.get(settings.kind)
