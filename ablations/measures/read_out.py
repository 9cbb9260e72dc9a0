"""Information that probes read from each layer about its token, about its neighbours and about what it predicts.

Letters: N occurrences, D width, L + 1 layers.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablations.measures.information.plug_in import entropy
from ablations.measures.information.read_out import read_out, require_sentences
from ablations.measures.jackknife import errors
from ablations.measures.questions import LayerQuestion, Question, StatesOf, each_layer, questions_of
from ablations.measures.reading.sample import Sample
from ablations.measures.reading.texts import Readings, Say, Texts
from ablations.measures.settings import ReadOutSettings
from ablations.measures.similarity.sides import to_device
from lightning_modules.config import RunSettings
from lightning_modules.config.objectives import Output


def rows(readings: Readings, settings: ReadOutSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `read_out` of a run from its validation text."""
    reading = readings.texts.validation(settings)
    return read_out_rows(
        readings.states(reading),
        reading.sample,
        settings,
        output=readings.objective.run.objective.output,
        seed=readings.objective.run.seed,
        normed_ND=readings.after_final_norm(reading),
        states_of=lambda shown_N: readings.shown(reading, shown_N),
    )


def require(settings: ReadOutSettings, texts: Texts, run: RunSettings) -> None:
    """Refuse a text with too few sentences.

    Raises:
        MeasureError: too few sentences.
    """
    sample = texts.validation(settings).sample
    _require_enough(questions_of(sample, settings, run.objective.output), sample)


def read_out_rows(
    states_LND: list[NDArray[np.float32]],
    sample: Sample,
    settings: ReadOutSettings,
    *,
    output: Output = None,
    seed: int = 0,
    normed_ND: NDArray[np.float32] | None = None,
    states_of: StatesOf | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield rows `linear` and `mlp`, by layer, for the labels in `settings.about`; groups are those of
    `token_information`.

    The floor has the labels shuffled among the occurrences; the ceiling is the entropy of the labels. The error
    of the text (`standard_error`, `left_out`) is that of the same probes on another text: how these would change
    with the text is not in it.

    Args:
        output: which token the encoder's output predicts; None leaves rows about the output away.
        seed: of the run. It draws folds, probes and shuffles, the same in all layers and arms.
        normed_ND: the top layer after the encoder's final norm, for rows of that group.
        states_of: reads the text with other tokens in place of some, for masked LM's output.

    Raises:
        MeasureError: too few sentences.
    """
    questions = questions_of(sample, settings, output)
    _require_enough(questions, sample)
    for question in each_layer(
        questions, states_LND, sample, types=settings.types, normed_ND=normed_ND, states_of=states_of
    ):
        yield from _layer_rows(question, seed=seed)


def _layer_rows(question: LayerQuestion, *, seed: int) -> Iterator[dict[str, Any]]:
    information = read_out(to_device(question.states_ND), question.label_N, question.sentence_N, seed=seed)
    for metric, probe in information._asdict().items():
        yield {
            "metric": metric,
            "group": question.group,
            "layer": question.layer,
            "value": probe.value,
            "floor": probe.floor,
            "ceiling": entropy(question.label_N),
            **errors(probe.left_out),
            "unit": "nats",
            "n": len(question.label_N),
            "d": question.states_ND.shape[1],
        }


def _require_enough(questions: list[Question], sample: Sample) -> None:
    for question in questions:
        require_sentences(sample.sentence_N[question.place_N])
