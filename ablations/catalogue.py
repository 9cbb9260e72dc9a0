"""Cards of all measures that a spec may ask for, and the rules by which a measure suits a run.

A card holds the facts of a measure: its metrics, what it needs of an objective, and the functions that
compute its rows. A test compares the metrics with those that the page of results names. This module needs no
torch.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args

from pydantic import BeforeValidator, Field, SerializeAsAny, TypeAdapter

from ablations.measures.settings import (
    REFUSED_BELOW,
    GeometrySettings,
    InfluenceSettings,
    LayerChangeSettings,
    MeasureSettings,
    NeighboursSettings,
    PicturesSettings,
    ReadOutSettings,
    RunDistanceSettings,
    TokenInformationSettings,
    ValidationSettings,
)
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
from lightning_modules import plugins
from lightning_modules.config import Data, RunSettings
from lightning_modules.config.objectives import ObjectiveSettings
from lightning_modules.config.settings import from_name, kind_of_part, or_plugin
from lightning_modules.errors import PluginError
from lightning_modules.plugins import Plugin

RunMeasure = (
    LayerChangeSettings
    | TokenInformationSettings
    | ReadOutSettings
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
"""Settings of the measures that are computed from one run."""


class Need(NamedTuple):
    """Property of an objective that a measure needs."""

    is_met: Callable[[ObjectiveSettings], bool]
    lack: str
    """End of a sentence about an objective without the property."""
    applies: Callable[[Any], bool] = lambda settings: True
    """Whether a measure with these settings needs the property."""


HAS_PROBABILITY = Need(lambda objective: objective.output is not None, "gives no probability to a sentence")
DRAWS_SENTENCES = Need(
    lambda objective: objective.output in ("next", "hidden"), "predicts neither next nor hidden words"
)
PREDICTS_ITS_TEXT = Need(
    lambda objective: objective.output in ("next", "hidden"),
    "does not predict an output for a token that it reads",
    applies=lambda settings: set(settings.about) == {"output"},
)
PREDICTS_HIDDEN = Need(lambda objective: objective.output == "hidden", "does not predict hidden words")
HAS_VOCABULARY_LOSS = Need(
    lambda objective: objective.has_vocabulary_loss, "has no loss over the vocabulary, but objective_loss"
)
TRANSLATES = Need(lambda objective: "target" in objective.predictions, "does not translate")
HAS_MASKING = Need(lambda objective: hasattr(objective, "masking"), "hides no tokens")
HAS_PAIR_LOSS = Need(lambda objective: getattr(objective, "pair_loss", "none") != "none", "has no pair_loss here")


LayersOfRows = Literal["all", "some", "none"]
"""Which rows of a measure have a layer."""


class Card(NamedTuple):
    """All facts of a measure besides its settings."""

    rows: str | Callable[..., Iterable[dict[str, Any]]]
    """Function that computes the rows of a run, or its ``module:function``:
    ``rows(readings, settings, say)``. Empty for `run_distance`, whose rows are of two runs
    (`runs.measure_pairs`)."""
    metrics: tuple[str, ...]
    layers: LayersOfRows = "none"
    """Which numbers of the measure belong to a layer or to two layers."""
    first_layer: int = 0
    """Lowest layer that has numbers."""
    changes: tuple[str, ...] = ()
    """Metrics with a number for each change from a layer to the next, in place of one for each layer. Claims read
    them from layer 1 on."""
    units: Mapping[str, str] = MappingProxyType({})
    """Unit of each metric that is not a plain number, such as a share or a score."""
    has_ceiling: bool = False
    """Whether rows have their largest possible value (`ceiling`)."""
    groups: Literal["tasks", "treebanks"] | None = None
    """Whether each number belongs to a task of the catalogue (or a part of one), to a treebank, or to
    neither."""
    need: Need | None = None
    """Property of an objective that the measure needs. None if it suits all objectives."""
    metric_needs: Mapping[str, Need] = MappingProxyType({})
    """Properties of an objective that single metrics need."""
    require: str | Callable[..., None] = ""
    """Function, or its ``module:function``, that checks before training whether the measure can be computed:
    ``require(settings, texts, run)`` raises a `MeasureError`. Empty if nothing can be checked before
    training."""
    version: int = 3
    """Version of the rows. It is raised when the same settings give other rows; then the rows of this kind
    alone are computed again. A measure of a plugin needs no other version: its rows are computed again when
    its source changes."""
    settings: type[MeasureSettings] | None = None
    """Class of the settings of a plugin's measure. None for others: theirs are members of `RunMeasure`."""


_RANKED = ("recall_at_1", "recall_at_20", "reciprocal_rank", "spearman")
_OF_TEXT = ("copied", "distinct_1", "distinct_2", "fluency", "length")
_SIMILARITIES = ("pwcca", "debiased_cka")
_OF_TASKS = ("score", "accuracy", "spearman", "exact_match", "shuffled_score")

CARDS: Final[Mapping[str, Card]] = MappingProxyType(
    {
        "layer_change": Card(
            rows="ablations.measures.layer_change:rows",
            require="ablations.measures.layer_change:require",
            metrics=_SIMILARITIES,
            layers="all",
            changes=_SIMILARITIES,
            units=dict.fromkeys(_SIMILARITIES, "distance"),
            need=Need(
                lambda objective: objective.has_layers, ("has one layer, so there is no change between layers")
            ),
            version=4,
        ),
        "token_information": Card(
            rows="ablations.measures.token_information:rows",
            require="ablations.measures.token_information:require",
            metrics=("cross_fitted", "plug_in"),
            layers="all",
            units=dict.fromkeys(("cross_fitted", "plug_in"), "nats"),
            has_ceiling=True,
            need=PREDICTS_ITS_TEXT,
            version=8,
        ),
        "read_out": Card(
            rows="ablations.measures.read_out:rows",
            require="ablations.measures.read_out:require",
            metrics=("linear", "mlp"),
            layers="all",
            units=dict.fromkeys(("linear", "mlp"), "nats"),
            has_ceiling=True,
            need=PREDICTS_ITS_TEXT,
            version=4,
        ),
        "run_distance": Card(
            rows="",
            require="ablations.measures.layer_change:require",
            metrics=_SIMILARITIES,
            layers="all",
            units=dict.fromkeys(_SIMILARITIES, "distance"),
            version=4,
        ),
        "neighbours": Card(
            rows="ablations.measures.neighbours:rows",
            require="ablations.measures.neighbours:require",
            metrics=(
                *("same_token", "position_distance", "same_left", "same_right", "same_sense"),
                *("same_relation", "same_left_part", "same_right_part"),
            ),
            layers="all",
            units={"position_distance": "tokens"},
            version=4,
        ),
        "geometry": Card(
            rows="ablations.measures.geometry:rows",
            require="ablations.measures.geometry:require",
            metrics=("anisotropy", "self_similarity", "effective_rank", "participation_ratio", "update_norm"),
            layers="all",
            changes=("update_norm",),
            units=dict.fromkeys(("effective_rank", "participation_ratio"), "dimensions"),
        ),
        "influence": Card(
            rows="ablations.measures.influence:rows",
            require="ablations.measures.influence:require",
            metrics=("pwcca",),
            layers="all",
            first_layer=1,
            units={"pwcca": "distance"},
            need=Need(
                lambda objective: objective.has_one_attention,
                "has no single attention from which a token could be hidden",
            ),
            version=4,
        ),
        "pictures": Card(
            rows="ablations.measures.pictures:rows",
            require="ablations.measures.pictures:require",
            metrics=("x", "y"),
            layers="all",
            version=7,
        ),
        "structural_probe": Card(
            rows="ablations.tasks.structural_probe:rows",
            metrics=("uuas",),
            layers="all",
            groups="treebanks",
            version=3,
        ),
        "probing": Card(
            rows="ablations.tasks.probing:rows",
            metrics=("accuracy", "selectivity", "code_length", "compression", "mix_weight"),
            layers="some",
            units={"code_length": "nats"},
            groups="tasks",
            version=9,
        ),
        "retrieval": Card(
            rows="ablations.tasks.transfer.retrieval:rows",
            require="ablations.tasks.transfer.retrieval:require",
            metrics=(
                *(metric + of for of in ("", "_centred", "_tfidf") for metric in _RANKED),
                "recall_at_1_reranked",
            ),
            layers="some",
            version=7,
        ),
        "validation": Card(
            rows="ablations.measures.validation:rows",
            require="ablations.measures.validation:require",
            metrics=(
                *("loss", "perplexity", "objective_loss", "bleu", "chrf", "pair_accuracy"),
                *("observed_clean", "observed_replaced", "recovered_replaced"),
            ),
            units=dict.fromkeys(("loss", "objective_loss"), "nats"),
            metric_needs=MappingProxyType(
                {
                    **dict.fromkeys(("loss", "perplexity"), HAS_VOCABULARY_LOSS),
                    **dict.fromkeys(("bleu", "chrf"), TRANSLATES),
                    "pair_accuracy": HAS_PAIR_LOSS,
                }
            ),
            version=7,
        ),
        "minimal_pairs": Card(
            rows="ablations.tasks.language_models.minimal_pairs:rows",
            metrics=(
                *("accuracy", "accuracy_within_word", "accuracy_left_to_right", "accuracy_whole_words"),
                *("accuracy_by_length", "accuracy_by_unigram"),
                *("accuracy_whole_words_by_length", "accuracy_whole_words_by_unigram"),
                *("covered", "whole_words"),
            ),
            groups="tasks",
            need=HAS_PROBABILITY,
            version=8,
        ),
        "frozen_features": Card(
            rows="ablations.tasks.transfer.transfer:rows", metrics=_OF_TASKS, groups="tasks", version=8
        ),
        "fine_tuning": Card(
            rows="ablations.tasks.transfer.transfer:rows", metrics=_OF_TASKS, groups="tasks", version=9
        ),
        "baselines": Card(
            rows="ablations.tasks.baselines:rows",
            metrics=(
                *("majority", "tfidf", "word", "word_window", "place", "beside_question"),
                *("probed_majority", "probed_word", "probed_word_window"),
            ),
            groups="tasks",
            version=7,
        ),
        "parsing": Card(
            rows="ablations.tasks.language_models.parsing:rows",
            metrics=("uuas", "uuas_adjacent", "uuas_random", "uuas_minus_adjacent", "conditional_information"),
            units={"conditional_information": "nats"},
            groups="treebanks",
            need=PREDICTS_HIDDEN,
            version=7,
        ),
        "conditional_independence": Card(
            rows="ablations.tasks.language_models.conditional_independence:rows",
            metrics=("joint_minus_chain", "joint", "chain"),
            units=dict.fromkeys(("joint_minus_chain", "joint", "chain"), "nats"),
            need=PREDICTS_HIDDEN,
            version=4,
        ),
        "generation": Card(
            rows="ablations.tasks.language_models.generation:rows",
            metrics=(*_OF_TEXT, *(f"{metric}_of_text" for metric in _OF_TEXT)),
            units={
                **dict.fromkeys(("fluency", "fluency_of_text"), "nats"),
                **dict.fromkeys(("length", "length_of_text"), "tokens"),
            },
            need=DRAWS_SENTENCES,
            version=4,
        ),
    }
)
"""Cards by the kind of the measure."""


def card(kind: str) -> Card:
    """Return the card of a measure.

    Raises:
        PluginError: the kind is the name of a plugin that does not exist or is no valid card.
    """
    return CARDS[kind] if kind in CARDS else _card_of(plugins.load(kind))


def _card_of(plugin: Plugin) -> Card:
    """Return the card of a plugin, or raise a PluginError if it is no card or lacks an entry that it needs."""
    card = plugin.part
    if not isinstance(card, Card):
        raise PluginError(
            f"{plugin.name} must be a Card of ablations.catalogue, but is {kind_of_part(card)}; correct the file."
        )
    if card.settings is None or not issubclass(card.settings, MeasureSettings):
        lack = "settings, a subclass of MeasureSettings of ablations.measures.settings"
    elif not callable(card.rows):
        lack = "rows, a function of readings, settings and say"
    elif isinstance(card.metrics, str) or not (
        card.metrics and all(re.fullmatch(r"[a-z][a-z0-9_]*", str(metric)) for metric in card.metrics)
    ):
        lack = 'metrics, names in lower-case letters, as in ("rank",)'
    elif card.layers not in get_args(LayersOfRows):
        lack = f"layers {listed(get_args(LayersOfRows), 'or')}, and not {card.layers!r}"
    else:
        return card
    raise PluginError(f"{plugin.name} must have {lack}; write it into the card.")


def _settings_of(plugin: Plugin) -> type[MeasureSettings]:
    settings = _card_of(plugin).settings
    assert settings is not None
    return settings


Measure = Annotated[
    Annotated[RunMeasure | RunDistanceSettings, Field(discriminator="kind")],
    SerializeAsAny(),
    or_plugin(_settings_of),
    BeforeValidator(from_name),
]
"""Settings of a measure of this project or of a plugin."""

MEASURES: Final[TypeAdapter[list[Measure]]] = TypeAdapter(list[Measure])
"""Validator of the settings of several measures."""


def plain_measures(measures: Sequence[Measure]) -> list[dict[str, Any]]:
    """Return the settings of measures as plain data, which `MEASURES` validates."""
    return [settings.model_dump(mode="json") for settings in measures]


class Logged(NamedTuple):
    """Facts of a measure that no spec asks for: it is read from a run's log if `validation` is measured."""

    metrics: tuple[str, ...]
    need: Need
    """Property that an objective needs for it."""
    unit: str | None = None


LOGGED: Final[Mapping[str, Logged]] = MappingProxyType(
    {
        "learning": Logged(("gain", "loss"), HAS_VOCABULARY_LOSS, unit="nats"),
        "corruption": Logged(("collision_rate", "hidden", "masked", "kept", "random"), HAS_MASKING),
    }
)
"""Measures that are read from the log, by name."""

UNITS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {(kind, metric): unit for kind, card in CARDS.items() for metric, unit in card.units.items()}
    | {(name, metric): logged.unit for name, logged in LOGGED.items() if logged.unit for metric in logged.metrics}
)
"""Unit of each metric that is not a plain number, by measure and metric. Plugins are not included."""

METRICS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {kind: card.metrics for kind, card in CARDS.items()}
    | {name: logged.metrics for name, logged in LOGGED.items()}
)
"""Metrics that a table of results can hold, by measure. Plugins are not included."""

SHARES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **{kind: METRICS[kind] for kind in ("minimal_pairs", "structural_probe", "retrieval", "baselines")},
        **{kind: METRICS[kind] for kind in ("frozen_features", "fine_tuning", "corruption")},
        "neighbours": tuple(name for name in METRICS["neighbours"] if name != "position_distance"),
        "probing": ("accuracy", "selectivity", "mix_weight"),
        "parsing": ("uuas", "uuas_adjacent", "uuas_random", "uuas_minus_adjacent"),
        "validation": ("pair_accuracy", "observed_clean", "observed_replaced", "recovered_replaced"),
        "generation": tuple(name for name in METRICS["generation"] if name.startswith(("copied", "distinct"))),
    }
)
"""Metrics whose largest value is 1, by measure: shares, probabilities and correlations, never points of 100."""

MORE_IS_BETTER: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **{kind: card.metrics for kind, card in CARDS.items() if card.has_ceiling},  # information
        **{kind: SHARES[kind] for kind, card in CARDS.items() if card.groups and kind in SHARES},
        "retrieval": SHARES["retrieval"],
        "neighbours": SHARES["neighbours"],
        "probing": ("accuracy", "selectivity", "compression"),
        "validation": ("bleu", "chrf", "pair_accuracy", "recovered_replaced"),
        "learning": ("gain",),
    }
)
"""Metrics of which more is better, or means that more is kept, by measure."""


def metrics_of(measure: str) -> tuple[str, ...]:
    """Return the metrics that a table of results can hold for a measure; empty if the measure is unknown."""
    if plugins.is_name(measure):
        with suppress(PluginError):
            return card(measure).metrics
    return METRICS.get(measure, ())


def measures_of_tables() -> list[str]:
    """Return the names of all measures that a table of results can hold, including loaded plugins."""
    return [*METRICS, *(plugin.name for plugin in plugins.loaded() if isinstance(plugin.part, Card))]


def layers_of(measure: str) -> Literal["all", "some", "none"]:
    """Return whether all, some or none of the numbers of a measure belong to a layer, or to a pair of layers."""
    return "none" if measure in LOGGED else card(measure).layers


def has_ceiling(measure: str) -> bool:
    """Return whether rows of a measure may have their largest possible value (`ceiling`)."""
    return plugins.is_name(measure) or (measure not in LOGGED and card(measure).has_ceiling)


def layers_with_numbers(measure: str, metric: str, *, top: int) -> range:
    """Return the layers of which claims can read a metric, in an encoder with so many layers. The changes from
    a layer to the next count from layer 1 on, and the last one belongs to the layer below the top."""
    facts = card(measure)
    return range(1, top) if metric in facts.changes else range(facts.first_layer, top + 1)


def _kinds(fits: Callable[[Card], bool]) -> frozenset[str]:
    return frozenset(kind for kind, card in CARDS.items() if fits(card))


OF_TASKS: Final = _kinds(lambda card: card.groups == "tasks")
OF_TREEBANKS: Final = _kinds(lambda card: card.groups == "treebanks")


def for_run(
    measures: Sequence[Measure], run: RunSettings, *, data_root: Path | None = None
) -> Iterator[RunMeasure]:
    """Yield the measures to compute from a run: those that suit its objective, one for each task.

    Args:
        data_root: if given, tasks are left out if their files are missing there or the text does not suffice.
    """
    for settings in _run_measures(measures):
        for part in _parts(settings, run.data) if suits(settings, run) else ():
            if data_root is None or _problem(part, run.data, data_root) is None:
                yield part


def caveats(
    measures: Sequence[Measure],
    runs: Mapping[str, RunSettings],
    *,
    data_root: Path,
    is_there: Callable[[RunMeasure], bool] = lambda _: False,
) -> list[str]:
    """Return sentences about measures that are not computed, or that are no evidence, with the reason.

    Args:
        runs: settings of one run of each arm, by the name of the arm.
        is_there: whether a measure of one task has rows already, from a time when its files were there.
    """
    sentences: dict[str, None] = {}
    for settings in _run_measures(measures):
        unfit = [(arm, run.objective.kind) for arm, run in runs.items() if not suits(settings, run)]
        for objective in dict.fromkeys(kind for _, kind in unfit):
            arms = listed([arm for arm, kind in unfit if kind == objective], "and")
            need = _need(settings)
            assert need is not None
            sentences[f"{settings.kind}: not run for {arms}: {objective} {need.lack}."] = None
        sentences |= dict.fromkeys(_not_run(settings, runs, data_root, is_there))

    def is_measured(settings: RunMeasure) -> bool:
        fit = [run for run in runs.values() if suits(settings, run)]
        parts = [(part, run.data) for run in fit for part in _parts(settings, run.data)]
        return any(_problem(part, data, data_root) is None or is_there(part) for part, data in parts)

    in_brief = [part for part in _run_measures(measures) if getattr(part, "effort", "full") == "quick"]
    if quick := [settings.kind for settings in in_brief if is_measured(settings)]:
        kinds = listed(quick, "and")
        sentences[f"{kinds}: measured with effort quick, on a part of the data: no evidence."] = None
    return list(sentences)


def tasks_not_run(measures: Sequence[Measure], runs: Mapping[str, RunSettings], *, data_root: Path) -> list[str]:
    """Return the sentences of `caveats` about tasks whose files are missing or unfit."""
    return [
        sentence
        for settings in _run_measures(measures)
        for sentence in _not_run(settings, runs, data_root, lambda _: False)
    ]


def _run_measures(measures: Sequence[Measure]) -> list[RunMeasure]:
    return [settings for settings in measures if not isinstance(settings, RunDistanceSettings)]


def distance_settings(measures: Sequence[Measure]) -> RunDistanceSettings | None:
    """Return the settings of `run_distance` from a list of measures; None if the list lacks it."""
    return next((settings for settings in measures if isinstance(settings, RunDistanceSettings)), None)


def _not_run(
    settings: RunMeasure,
    runs: Mapping[str, RunSettings],
    data_root: Path,
    is_there: Callable[[RunMeasure], bool],
) -> Iterator[str]:
    """Yield a sentence on tasks that cannot be run, with the reason and the arms. Tasks without their files share
    a sentence, which names the first missing file."""
    arms_by_reason: dict[tuple[str, str], list[str]] = {}
    before = set[str]()
    for arm, run in runs.items():
        for part in _parts(settings, run.data):
            problem = _problem(part, run.data, data_root)
            if isinstance(part, TaskSettings | RetrievalSettings) and problem is not None:
                task = part.task_name
                arms_by_reason.setdefault((task, problem), []).append(arm)
                if is_there(part):
                    before.add(task)
    tasks_by_words: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for (task, problem), arms_without in arms_by_reason.items():
        where = "" if len(arms_without) == len(runs) else f" for {listed(arms_without, 'and')}"
        not_run = "measured before, but cannot be measured again" if task in before else "not run"
        has_no_file = problem.endswith(f" is not in {data_root}")
        words = (not_run, where, "" if has_no_file else problem)
        tasks_by_words.setdefault(words, []).append((task, problem))
    for (not_run, where, _), tasks in tasks_by_words.items():
        names, problem = listed([task for task, _ in tasks], "and"), tasks[0][1]
        was = "" if not_run == "not run" else "was " if len(tasks) == 1 else "were "
        if len(tasks) > 1:
            problem = problem.replace(f" is not in {data_root}", f" and others are not in {data_root}")
        yield f"{settings.kind}: {names} {was}{not_run}{where}: {problem}."


def _parts(settings: RunMeasure, data: Data) -> tuple[RunMeasure, ...]:
    """Return a measure split into its parts, one for each task."""
    if isinstance(settings, TaskSettings | RetrievalSettings):
        return settings.parts(built_in=data.kind == "language")
    return (settings,)


def _problem(part: RunMeasure, data: Data, data_root: Path) -> str | None:
    """Return why a task cannot be run; None if it can, or if the measure is of no task."""
    match part:
        case TaskSettings():
            return part.task.problem(data_root)
        case RetrievalSettings():
            return part.problem(data, data_root)
        case _:
            return None


def unfit(settings: Measure, run: RunSettings) -> str | None:
    """Return why a measure with these settings cannot be computed from a run; None if there is no problem.

    Either the text has no labels and the measure names no treebank, or the measure reads too few tokens for the
    width.
    """
    if not isinstance(settings, LayerChangeSettings | RunDistanceSettings):
        return _lacks_labels(settings, run.data)
    width = run.encoder.hidden_size
    if settings.tokens < REFUSED_BELOW * width:
        return (
            f"tokens of {settings.kind} must be at least {REFUSED_BELOW} for each unit of the width, which is "
            f"{REFUSED_BELOW * width:,} for encoder.hidden_size {width:,}, but is {settings.tokens:,}"
        )
    return _lacks_labels(settings, run.data)


def _lacks_labels(settings: Measure, data: Data) -> str | None:
    if data.kind == "language" or getattr(settings, "treebank", None) is not None:
        return None
    remedy = "set treebank to a CoNLL-U or parquet file"
    if isinstance(settings, TreesSettings):
        return f"data of kind {data.kind} have no trees; {remedy}, or leave {settings.kind} out"
    if "part_of_speech" in getattr(settings, "groups", ()):
        return (
            f"groups has part_of_speech, but data of kind {data.kind} have no parts of speech; {remedy}, or "
            "leave part_of_speech out"
        )
    return None


def suits(settings: RunMeasure | RunDistanceSettings, run: RunSettings) -> bool:
    """Return whether a measure can be computed from runs of this objective."""
    with plugins.guarded(settings.plugin):
        need = _need(settings)
        return need is None or need.is_met(run.objective)


def metric_lack(
    settings: RunMeasure, measure: str, metric: str, run: RunSettings, *, in_groups: bool
) -> str | None:
    """Return the end of a sentence that says why a metric is never measured for runs of this objective; None if
    it may be.

    Args:
        settings: the measure, or `validation` for a measure that is read from the log.
        in_groups: whether the metric is read in groups. The loss of a generator, for example, is in a group
            also if the encoder has no loss over the vocabulary.
    """
    logged = LOGGED.get(measure)
    need = logged.need if logged else card(settings.kind).metric_needs.get(metric)
    if need is HAS_VOCABULARY_LOSS and in_groups:
        need = None
    needs = (_need(settings), need)
    return next((each.lack for each in needs if each is not None and not each.is_met(run.objective)), None)


def _need(settings: RunMeasure | RunDistanceSettings) -> Need | None:
    """Return the property that a measure needs of an objective; None if it suits all."""
    need = card(settings.kind).need
    return need if need is not None and need.applies(settings) else None
