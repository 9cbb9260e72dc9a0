"""Information of each layer about the token it reads, about its neighbours and about what it predicts (Voita
et al. 2019, section 4).

Letters: N occurrences, D width, L + 1 layers.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablations.measures.information.estimate import (
    Clusters,
    clusters_of,
    information_of,
    require_fitting,
    smaller_half,
)
from ablations.measures.information.plug_in import entropy
from ablations.measures.jackknife import errors
from ablations.measures.questions import LayerQuestion, Question, StatesOf, each_layer, questions_of, rows_of_run
from ablations.measures.reading.sample import Sample
from ablations.measures.reading.texts import Readings, Say, Texts
from ablations.measures.settings import TokenInformationSettings
from ablations.measures.similarity.sides import to_device
from lightning_modules.config import RunSettings
from lightning_modules.config.objectives import Output

TOKENS_PER_CLUSTER = 10
"""Number of tokens per cluster in either half if the text decides the number of clusters. It is twice the
number below which clusters are refused."""


def rows(readings: Readings, settings: TokenInformationSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `token_information` of a run from its validation text."""
    return rows_of_run(information_rows, readings, settings)


def require(settings: TokenInformationSettings, texts: Texts, run: RunSettings) -> None:
    """Raise a MeasureError if the text has too few tokens for the clusters."""
    sample = texts.validation(settings).sample
    require_enough(questions_of(sample, settings, run.objective.output), sample, settings, seed=run.seed)


def information_rows(
    states_LND: list[NDArray[np.float32]],
    sample: Sample,
    settings: TokenInformationSettings,
    *,
    output: Output = None,
    seed: int = 0,
    normed_ND: NDArray[np.float32] | None = None,
    states_of: StatesOf | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield rows of the plug-in and the cross-fitted estimate, by layer, for the tokens in `settings.about`.

    Rows without a group are about the input token. The other groups are `previous token`, `next token`,
    `output label` and `shown token`. Rows of `after final norm` are about the input token again, told from
    the top layer as a head reads it.

    Args:
        output: which token the encoder's output predicts. None: no rows about the output.
        seed: seed of the run. It draws the halves of the text, the first centres and the shuffles. Their
            noise differs between the seeds of an experiment and is part of the spread between seeds.
        normed_ND: the top layer after the encoder's final norm, for rows of that group.
        states_of: reads the text with some tokens replaced. Masked LM's output needs it.

    Raises:
        MeasureError: too few tokens for the clusters, or as `questions_of`.
    """
    questions = questions_of(sample, settings, output)
    require_enough(questions, sample, settings, seed=seed)
    fitted: dict[tuple[int, bytes], Clusters] = {}
    for question in each_layer(
        questions, states_LND, sample, types=settings.types, normed_ND=normed_ND, states_of=states_of
    ):
        # Questions about original and shown tokens have the same states.
        key = (question.layer, question.place_N.tobytes())
        clustered = fitted.get(key) if question.hidden else None
        if clustered is None:
            clustered = clusters_of(
                to_device(question.states_ND), question.sentence_N, clusters=settings.clusters, seed=seed
            )
        if question.hidden:
            fitted[key] = clustered
        yield from _layer_rows(question, clustered, clusters=settings.clusters, seed=seed)


def _layer_rows(
    question: LayerQuestion, clustered: Clusters, *, clusters: int, seed: int
) -> Iterator[dict[str, Any]]:
    information = information_of(
        clustered,
        question.label_N,
        question.sentence_N,
        clusters=clusters,
        seed=seed,  # the same halves and shuffles in every layer: less noise in differences of layers
    )
    for metric in ("plug_in", "cross_fitted"):
        yield {
            "metric": metric,
            "group": question.group,
            "layer": question.layer,
            "value": getattr(information, metric),
            "floor": getattr(information, f"{metric}_floor"),
            "ceiling": entropy(question.label_N),
            **errors(getattr(information, f"{metric}_left_out")),
            "unit": "nats",
            "n": information.n,
            "d": information.clusters,
        }


def clusters_within(sample: Sample, settings: TokenInformationSettings, output: Output = None) -> int:
    """Return the number of clusters that gives each ten tokens, on average, in either half of the sentences
    by seed 0.

    It is at least 2, and at most that of the settings.

    Raises:
        MeasureError: the text has fewer than two sentences, or no token that is asked for.
    """
    fewest = min(_smaller_halves(questions_of(sample, settings, output), sample, seed=0))
    return max(2, min(settings.clusters, fewest // TOKENS_PER_CLUSTER))


def require_enough(
    questions: Sequence[Question], sample: Sample, settings: TokenInformationSettings, *, seed: int
) -> None:
    """Raise an error if a text is too short for the clusters, before states are computed.

    Each question has halves of its own. The error is about the question with the smallest half, so the number
    of clusters that it names is enough for all questions.

    Raises:
        MeasureError: fewer than two sentences, or fewer than five tokens per cluster in a half.
    """
    sizes = _smaller_halves(questions, sample, seed=seed)
    if sizes:
        fewest = questions[sizes.index(min(sizes))]
        require_fitting(sample.sentence_N[fewest.place_N], clusters=settings.clusters, seed=seed)


def _smaller_halves(questions: Sequence[Question], sample: Sample, *, seed: int) -> list[int]:
    return [smaller_half(sample.sentence_N[question.place_N], seed=seed) for question in questions]
