"""All that a spec may ask to be measured, and what of it suits a run. No torch.

What measures read beside the text, the files of their tasks and treebanks: which, and with what content. No
torch.

Which numbers a table of results can hold: metrics of each measure, and whether they are of layers. No torch.

For what is asked of a table before there is one, as in a file of claims. A measure that gets a new metric says so
here; a test compares the list with the measures and with the metrics that a page names.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple

from pydantic import BeforeValidator, Field

from ablations.measures.settings import (
    GeometrySettings,
    InfluenceSettings,
    LayerChangeSettings,
    MeasureSettings,
    NeighboursSettings,
    PicturesSettings,
    RunDistanceSettings,
    TokenInformationSettings,
    ValidationSettings,
)
from ablations.tasks.datasets import TASKS
from ablations.tasks.settings import (
    BaselinesSettings,
    ConditionalIndependenceSettings,
    FineTuningSettings,
    FrozenFeaturesSettings,
    GenerationSettings,
    MinimalPairsSettings,
    ParsingSettings,
    ProbingSettings,
    RetrievalSettings,
    StructuralProbeSettings,
    TaskSettings,
    TreesSettings,
)
from ablations.wording import listed
from lightning_modules.config import Data, RunSettings
from lightning_modules.config.objectives import ObjectiveSettings
from lightning_modules.config.settings import from_name
from lightning_modules.files import sha256


def files_read(settings: MeasureSettings) -> tuple[str, ...]:
    """The files of the tasks that it names and its treebank; relative paths start at the data root."""
    tasks = [TASKS[name] for name in getattr(settings, "tasks", None) or () if name in TASKS]
    treebank = getattr(settings, "treebank", None)
    return (*(path for task in tasks for path in task.files.values()), *((treebank,) if treebank else ()))


def files_now(settings: MeasureSettings, data_root: Path) -> str | None:
    """Sixteen hex digits of their contents; None where there are no files, or where one is missing, so that nobody
    knows whether they have changed."""
    places = [data_root / path for path in files_read(settings)]
    if not places or not all(place.is_file() for place in places):
        return None
    return hashlib.sha256("".join(map(sha256, places)).encode()).hexdigest()[:16]


_RANKED = ("recall_at_1", "recall_at_20", "reciprocal_rank", "spearman")
_OF_TEXT = ("copied", "distinct_1", "distinct_2", "fluency", "length")
_OF_TASKS = ("score", "accuracy", "spearman", "exact_match", "shuffled_score")

METRICS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "layer_change": ("pwcca", "debiased_cka"),
        "token_information": ("cross_fitted", "plug_in"),
        "run_distance": ("pwcca", "debiased_cka"),
        "neighbours": (
            *("same_token", "position_distance", "same_left", "same_right", "same_sense"),
            *("same_relation", "same_left_part", "same_right_part"),
        ),
        "geometry": (*("anisotropy", "self_similarity", "effective_rank", "participation_ratio", "update_norm"),),
        "influence": ("pwcca",),
        "pictures": ("x", "y"),
        "structural_probe": ("uuas",),
        "probing": ("accuracy", "selectivity", "code_length", "compression", "mix_weight"),
        "retrieval": (
            *(metric + of for of in ("", "_centred", "_tfidf") for metric in _RANKED),
            "recall_at_1_reranked",
        ),
        "validation": (
            *("loss", "perplexity", "objective_loss", "bleu", "chrf", "pair_accuracy"),
            *("observed_clean", "observed_replaced", "recovered_replaced"),
        ),
        "minimal_pairs": (
            *("accuracy", "accuracy_within_word", "accuracy_left_to_right", "accuracy_whole_words"),
            *("covered", "whole_words"),
        ),
        "frozen_features": _OF_TASKS,
        "fine_tuning": _OF_TASKS,
        "baselines": (
            *("majority", "tfidf", "word", "word_window", "place", "beside_question"),
            *("probed_majority", "probed_word", "probed_word_window"),
        ),
        "parsing": ("uuas", "uuas_adjacent", "uuas_random", "uuas_minus_adjacent", "conditional_information"),
        "conditional_independence": ("joint_minus_chain", "joint", "chain"),
        "generation": (*_OF_TEXT, *(f"{metric}_of_text" for metric in _OF_TEXT)),
        "learning": ("gain", "loss"),
        "corruption": ("collision_rate", "hidden", "masked", "kept", "random"),
    }
)
"""By measure."""

LOGGED: Final = ("learning", "corruption")
"""Measures that no spec asks for: they are read of a run's log where `validation` is measured."""

OF_LAYERS: Final = frozenset(
    {
        *("layer_change", "token_information", "run_distance", "neighbours", "geometry", "influence"),
        *("pictures", "structural_probe"),
    }
)
"""Measures whose every number is of a layer, or of two."""

PARTLY_OF_LAYERS: Final = frozenset(("probing", "retrieval"))
"""Measures that have numbers of layers and others."""

OF_TASKS: Final = frozenset(("minimal_pairs", "probing", "frozen_features", "fine_tuning", "baselines"))
"""Measures whose every number is of a task of the catalogue, or of a part of one."""

OF_TREEBANKS: Final = frozenset(("structural_probe", "parsing"))
"""Measures whose every number is of a treebank."""


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
