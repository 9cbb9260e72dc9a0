"""Questions that measures put to each layer: occurrences with their labels, and the hidden states to find
these in.

A label is the token that is read, one of its neighbours, or what the objective predicts.

Letters: N occurrences, D width, L + 1 layers.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablations.errors import MeasureError
from ablations.measures.information.estimate import most_frequent
from ablations.measures.reading.sample import Sample, is_text_token
from ablations.measures.reading.texts import AFTER_FINAL_NORM, Readings
from ablations.measures.settings import QuestionSettings
from lightning_modules.config.objectives import Output
from lightning_modules.randomness import derive, uniforms

READINGS = 6
"""Number of times that the text is read with some tokens shown as others. Each time it is other tokens."""

HIDDEN = 0.15
"""Share of the tokens that are shown as others in one reading. In all readings together it is 90%."""

StatesOf = Callable[[NDArray[np.int64]], list[NDArray[np.float32]]]
"""Function from ids, one for each occurrence of a sample, to the states when these ids are shown instead."""

Rows = Callable[..., Iterator[dict[str, Any]]]
"""Function that yields the rows of a measure, from states, sample and settings, with the keywords of
`rows_of_run`."""


class Question(NamedTuple):
    """Question to all layers: some occurrences and their labels."""

    group: str | None
    place_N: NDArray[np.int64]
    """Places of the occurrences in the sample, ascending."""
    label_N: NDArray[np.int64]
    hidden: bool = False
    """Whether the states come from a reading in which the occurrence is shown as another token."""


class Hidden(NamedTuple):
    """Occurrences that are shown as other tokens."""

    place_N: NDArray[np.int64]
    """Places of the occurrences in the sample, ascending."""
    shown_N: NDArray[np.int64]
    reading_N: NDArray[np.int64]
    """The reading of the text in which the occurrence is shown as another token, from 0."""


class LayerQuestion(NamedTuple):
    """Question to one layer, with its states."""

    group: str | None
    layer: int
    states_ND: NDArray[np.float32]
    """States of the occurrences of the question."""
    label_N: NDArray[np.int64]
    sentence_N: NDArray[np.int64]
    place_N: NDArray[np.int64]
    """Places of the occurrences in the sample, ascending."""
    hidden: bool
    """Whether the states come from a reading in which the occurrence is shown as another token."""


def rows_of_run(measure: Rows, readings: Readings, settings: QuestionSettings) -> Iterator[dict[str, Any]]:
    """Return the rows of a measure that puts questions to the layers of a run. It reads the validation
    text."""
    reading = readings.texts.validation(settings)
    return measure(
        readings.states(reading),
        reading.sample,
        settings,
        output=readings.objective.run.objective.output,
        seed=readings.objective.run.seed,
        normed_ND=readings.after_final_norm(reading),
        states_of=lambda shown_N: readings.shown(reading, shown_N),
    )


def each_layer(
    questions: Sequence[Question],
    states_LND: list[NDArray[np.float32]],
    sample: Sample,
    *,
    types: int,
    normed_ND: NDArray[np.float32] | None = None,
    states_of: StatesOf | None = None,
) -> Iterator[LayerQuestion]:
    """Yield each question to each layer.

    Args:
        types: number of token types of the hidden tokens (see `hidden_tokens`).
        normed_ND: the top layer after the encoder's final norm. The question about the input token is also
            put to it, as the group `after final norm`.
        states_of: reads the text with some tokens replaced. Masked LM's output needs it.
    """
    unseen_LND = None
    if any(question.hidden for question in questions):
        assert states_of is not None, "masked LM's output needs the text to be read anew"
        unseen_LND = _hidden_states(hidden_tokens(sample, types), sample, states_of)
    for question in questions:
        sentence_N = sample.sentence_N[question.place_N]
        layers = unseen_LND if question.hidden and unseen_LND is not None else states_LND
        for layer, states_ND in enumerate(layers):
            asked_ND = states_ND[question.place_N]
            yield LayerQuestion(
                question.group, layer, asked_ND, question.label_N, sentence_N, question.place_N, question.hidden
            )
        if normed_ND is not None and question.group is None:
            after_ND = normed_ND[question.place_N]
            yield LayerQuestion(
                AFTER_FINAL_NORM,
                len(states_LND) - 1,
                after_ND,
                question.label_N,
                sentence_N,
                question.place_N,
                hidden=False,
            )


def questions_of(sample: Sample, settings: QuestionSettings, output: Output) -> list[Question]:
    """Return the questions for `settings.about`: occurrences whose label is one of the `types` most frequent.

    All questions have equally many occurrences, taken from the start of the text.

    Raises:
        MeasureError: the output is asked for and all tokens of the text are the same; or no token stands
            beside another.
    """
    questions: list[Question] = []
    unseen: list[Question] = []
    rivals: list[Question] = []
    if "output" in settings.about:
        place_N, shown_N, _ = hidden_tokens(sample, settings.types)
        unseen.append(Question("output label", place_N, sample.token_N[place_N], hidden=True))
        unseen.append(Question("shown token", place_N, shown_N, hidden=True))
        beside = _beside("output label", sample.right_N)
        rivals = [*unseen, *([beside] if len(beside.place_N) else [])]
    for about in settings.about:
        match about, output:
            case "input", _:
                questions.append(Question(None, np.arange(len(sample)), sample.token_N))
            case "previous", _:
                questions.append(_beside("previous token", sample.left_N))
            case "next", _:
                questions.append(_beside("next token", sample.right_N))
            case "output", "next":
                questions.append(_beside("output label", sample.right_N))
            case "output", "hidden":
                questions += unseen
    for question in questions:
        if not len(question.place_N):
            raise MeasureError(
                f"{settings.kind} of the {question.group} needs a sentence of two tokens or more, but the text "
                f"has none; use other text or ask `about` the input alone."
            )
    # All arms have equally many occurrences, whichever token their objective predicts.
    n = min((len(_frequent(question, settings.types)) for question in [*questions, *rivals]), default=0)
    return [
        question._replace(place_N=question.place_N[kept], label_N=question.label_N[kept])
        for question in questions
        for kept in [_frequent(question, settings.types)[:n]]
    ]


def _frequent(question: Question, types: int) -> NDArray[np.int64]:
    """Return the indices of a question's occurrences that have one of the most frequent labels."""
    return np.flatnonzero(most_frequent(question.label_N, types))


def _beside(group: str, label_N: NDArray[np.int64]) -> Question:
    """Return the question about a neighbour, for the occurrences whose neighbour is a text token."""
    place_N = np.flatnonzero(is_text_token(label_N))
    return Question(group, place_N, label_N[place_N])


def hidden_tokens(sample: Sample, types: int) -> Hidden:
    """Choose occurrences of the most frequent types, each to be shown as another of these types in one of the
    readings.

    All other types are equally likely, so that the shown token has the entropy of a uniform choice, as in the
    figure of Voita et al. 2019, section 4. [MASK] is never shown, because a layer has nothing of it to
    forget. The choice of occurrences, shown tokens and readings depends on the text alone.

    Raises:
        MeasureError: all tokens are the same.
    """
    place_N = np.flatnonzero(most_frequent(sample.token_N, types))
    type_V = np.unique(sample.token_N[place_N])
    if len(type_V) < 2:
        raise MeasureError(
            "the output label needs a text of at least 2 different tokens, got 1; use another text or leave "
            "`output` out of `about`."
        )
    where = sample.sentence_N[place_N], sample.position_N[place_N]
    reading_N = (uniforms(derive(0, "reading"), *where) / HIDDEN).astype(np.int64)
    own_N = np.searchsorted(type_V, sample.token_N[place_N])
    other_N = (uniforms(derive(0, "shown"), *where) * (len(type_V) - 1)).astype(np.int64)
    shown_N = type_V[other_N + (other_N >= own_N)]  # any but its own
    now = reading_N < READINGS
    return Hidden(place_N[now], shown_N[now], reading_N[now])


def _hidden_states(hidden: Hidden, sample: Sample, states_of: StatesOf) -> list[NDArray[np.float32]]:
    """Return states for all occurrences of the sample in every layer. Occurrences that are never hidden have
    states 0."""
    layers: list[NDArray[np.float32]] = []
    for reading in range(READINGS):
        now = hidden.reading_N == reading
        ids_N = sample.token_N.copy()
        ids_N[hidden.place_N[now]] = hidden.shown_N[now]
        read = states_of(ids_N)
        layers = layers or [np.zeros_like(layer_ND) for layer_ND in read]
        for layer_ND, read_ND in zip(layers, read, strict=True):
            layer_ND[hidden.place_N[now]] = read_ND[hidden.place_N[now]]
    return layers
