"""What a run costs, before it runs: tokens and operations. No torch."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ablations.catalogue import Measure
from ablations.measures.settings import (
    InfluenceSettings,
    LayerChangeSettings,
    NeighboursSettings,
    RunDistanceSettings,
    StateSettings,
    TokenInformationSettings,
    ValidationSettings,
)
from ablations.tasks.settings import ConditionalIndependenceSettings
from lightning_modules.config import RunSettings, TranslationSettings, operations_per_token


class ValidationText(NamedTuple):
    """How much validation text there is."""

    tokens: int
    """Source tokens, the special ones included."""
    sentences: int


def tokens(run: RunSettings) -> int:
    """Real source tokens of a run, at most."""
    return run.training.max_steps * run.training.tokens_per_step


def flops(run: RunSettings) -> float:
    """Useful operations of training; of skip-gram, at most (see `operations_per_token`)."""
    return operations_per_token(run) * tokens(run)


def evaluation_work(run: RunSettings, *, tokens: int) -> float:
    """Operations of an evaluation on so many tokens: a forward pass is a third of a step."""
    return operations_per_token(run) / 3 * tokens


def translation_work(run: RunSettings, *, sentences: int) -> float:
    """Sentences times decoder layers; 0 where nothing is translated."""
    objective = run.objective
    return sentences * objective.decoder.num_hidden_layers if isinstance(objective, TranslationSettings) else 0.0


def measure_work(settings: StateSettings, run: RunSettings, *, tokens: int) -> float:
    """Of one checkpoint: layers, the embeddings included, times what grows with them in that measure."""
    layers = run.encoder.num_hidden_layers + 1
    match settings:
        case TokenInformationSettings():
            return tokens * layers * settings.clusters * len(settings.about)
        case NeighboursSettings():
            return (settings.types * settings.occurrences) ** 2 * layers
        case InfluenceSettings():
            return settings.sentences * layers * len(settings.groups)
        case LayerChangeSettings():
            return tokens * layers * (1 + len(settings.groups))
        case _:
            return tokens * layers


def measured_checkpoints(settings: Measure, run: RunSettings) -> int:
    """How many checkpoints a measure reads: the last, or 0, the powers of two and the last, as far as they are
    kept."""
    steps, keep = run.training.max_steps, run.training.keep_checkpoints
    if settings.checkpoints == "last":
        return 1
    there = len({0, steps} | {2**i for i in range(steps.bit_length())})
    return there if keep == "all" else min(there, keep)


def independence_work(
    settings: ConditionalIndependenceSettings, run: RunSettings, *, validation: ValidationText
) -> float:
    """Operations of one checkpoint: at each ratio three forward passes over the sentences, with both neighbours
    hidden and with either."""
    share = min(settings.sentences_wanted, validation.sentences) / max(1, validation.sentences)
    return 3 * len(settings.ratios) * evaluation_work(run, tokens=round(share * validation.tokens))


def distance_work(settings: RunDistanceSettings, run: RunSettings, *, validation: ValidationText) -> float:
    """Tokens times layers, the embeddings included, of two runs at one checkpoint: as much as `measure_work` of
    how much the layers of one run change."""
    return min(settings.tokens, validation.tokens) * (run.encoder.num_hidden_layers + 1)


def rate_of(settings: Measure) -> str | None:
    """What the rate is called by which the time of a measure is told from its work; None where no work is
    counted."""
    match settings:
        case ValidationSettings() | ConditionalIndependenceSettings():
            return "evaluation"
        case RunDistanceSettings():
            return "layer_change"
        case StateSettings():
            return settings.kind
    return None


def evaluations(run: RunSettings) -> int:
    """How often a run is evaluated while it trains."""
    return -(-run.training.max_steps // run.training.validate_every)


def training_work(run: RunSettings, *, validation: ValidationText) -> dict[str, float]:
    """What training does besides its steps, by rate: an evaluation now and then."""
    times = evaluations(run)
    return {"evaluation": times * evaluation_work(run, tokens=validation.tokens)} if times else {}


def measuring_work(
    run: RunSettings, measures: Sequence[Measure], *, validation: ValidationText
) -> dict[str, float]:
    """What the measures of a run do, by rate, each in the unit of its function here; of distances to other runs
    nothing, as they come when all runs are there."""
    work: dict[str, float] = defaultdict(float)
    for settings in measures:
        times = measured_checkpoints(settings, run)
        match settings:
            case RunDistanceSettings():
                continue
            case ValidationSettings():
                pairs = getattr(run.objective, "pair_loss", "none") != "none"
                treatments = 3 if run.objective.output == "hidden" else 0
                others = len(settings.word_orders) + len(settings.input_formats) + 2 * pairs
                evaluations = times * (1 + treatments + others)
                work["evaluation"] += evaluations * evaluation_work(run, tokens=validation.tokens)
                work["translation"] += times * translation_work(run, sentences=settings.translations)
            case ConditionalIndependenceSettings():
                work["evaluation"] += times * independence_work(settings, run, validation=validation)
            case StateSettings():
                tokens = min(settings.tokens, validation.tokens)
                work[settings.kind] += times * measure_work(settings, run, tokens=tokens)
    return {rate: amount for rate, amount in work.items() if amount}
