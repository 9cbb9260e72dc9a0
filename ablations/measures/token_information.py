"""Information of each layer about the token it reads, about its neighbours and about what it predicts (Voita
et al. 2019, section 4).

A question to a layer is a set of occurrences with a label each, and the hidden states that may have information
about the labels. A label is the token that is read, one of its neighbours, or what the objective predicts.
`read_out` puts the same questions.

Letters: N occurrences, D width, L + 1 layers.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablations.errors import MeasureError
from ablations.measures.information.estimate import (
    Clusters,
    clusters_of,
    information_of,
    most_frequent,
    require_fitting,
    smaller_half,
)
from ablations.measures.information.plug_in import entropy
from ablations.measures.jackknife import errors
from ablations.measures.reading.sample import Sample, is_text_token
from ablations.measures.reading.texts import Readings, Say, Texts
from ablations.measures.settings import AFTER_FINAL_NORM, QuestionSettings, TokenInformationSettings
from ablations.measures.similarity.sides import to_device
from lightning_modules.config import RunSettings
from lightning_modules.config.objectives import Output
from lightning_modules.randomness import derive, uniforms

TOKENS_PER_CLUSTER = 10
"""Number of tokens per cluster in either half if the text decides the number of clusters. It is twice the
number below which clusters are refused."""

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
    """Question to one layer, with its states; other fields are as in `Question`."""

    group: str | None
    layer: int
    states_ND: NDArray[np.float32]
    """States of the occurrences that the question is about."""
    label_N: NDArray[np.int64]
    sentence_N: NDArray[np.int64]
    place_N: NDArray[np.int64]
    hidden: bool


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
    `output label` and `shown token`. Rows of `after final norm` are about the input token again, in the top
    layer as a head reads it.

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


def clusters_within(sample: Sample, settings: TokenInformationSettings) -> int:
    """Return the number of clusters for which the smaller half of the sentences has ten tokens per cluster.

    The halves are drawn with seed 0. If there are several questions, the one with the smallest half decides. The
    number is at least 2, and at most that of the settings.

    Raises:
        MeasureError: the text has fewer than two sentences, or no token that is asked for.
    """
    fewest = min(_smaller_halves(questions_of(sample, settings, output=None), sample, seed=0))
    return max(2, min(settings.clusters, fewest // TOKENS_PER_CLUSTER))


def require_enough(
    questions: Sequence[Question], sample: Sample, settings: TokenInformationSettings, *, seed: int
) -> None:
    """Raise a MeasureError if a text has fewer than two sentences, or fewer than five tokens per cluster in a
    half.

    Each question has halves of its own. The error is about the question with the smallest half, so the number
    of clusters that it names is small enough for all questions.
    """
    sizes = _smaller_halves(questions, sample, seed=seed)
    if sizes:
        fewest = questions[sizes.index(min(sizes))]
        require_fitting(sample.sentence_N[fewest.place_N], clusters=settings.clusters, seed=seed)


def _smaller_halves(questions: Sequence[Question], sample: Sample, *, seed: int) -> list[int]:
    return [smaller_half(sample.sentence_N[question.place_N], seed=seed) for question in questions]


def rows_of_run(measure: Rows, readings: Readings, settings: QuestionSettings) -> Iterator[dict[str, Any]]:
    """Return the rows of a measure that puts questions to the layers of a run. It reads the validation text."""
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
    normed_ND: NDArray[np.float32] | None,
    states_of: StatesOf | None,
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
        group, place_N, label_N, hidden = question
        sentence_N = sample.sentence_N[place_N]
        layers = unseen_LND if hidden and unseen_LND is not None else states_LND
        named_layers = [(group, layer, states_ND) for layer, states_ND in enumerate(layers)]
        if normed_ND is not None and group is None:
            named_layers.append((AFTER_FINAL_NORM, len(states_LND) - 1, normed_ND))
        for name, layer, states_ND in named_layers:
            yield LayerQuestion(name, layer, states_ND[place_N], label_N, sentence_N, place_N, hidden)


def questions_of(sample: Sample, settings: QuestionSettings, output: Output) -> list[Question]:
    """Return the questions for `settings.about`: occurrences whose label is one of the `types` most frequent.

    All questions have equally many occurrences, taken from the start of the text.

    Raises:
        MeasureError: the output is asked for and all tokens of the text are the same; or a neighbour is asked
            for and no token has one.
    """
    questions: list[Question] = []
    unseen: list[Question] = []
    rivals: list[Question] = []
    if "output" in settings.about:
        place_N, shown_N, _ = hidden_tokens(sample, settings.types)
        unseen.append(Question("output label", place_N, sample.token_N[place_N], hidden=True))
        unseen.append(Question("shown token", place_N, shown_N, hidden=True))
        about_neighbours = _question_about_neighbours("output label", sample.right_N)
        rivals = [*unseen, *([about_neighbours] if len(about_neighbours.place_N) else [])]
    for about in settings.about:
        match about, output:
            case "input", _:
                questions.append(Question(None, np.arange(len(sample)), sample.token_N))
            case "previous", _:
                questions.append(_question_about_neighbours("previous token", sample.left_N))
            case "next", _:
                questions.append(_question_about_neighbours("next token", sample.right_N))
            case "output", "next":
                questions.append(_question_about_neighbours("output label", sample.right_N))
            case "output", "hidden":
                questions += unseen
    for question in questions:
        if not len(question.place_N):
            raise MeasureError(
                f"{settings.kind} about the {question.group} needs a sentence of two tokens or more, but the "
                "text has none; use other text, or write `about: [input]`."
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


def _question_about_neighbours(group: str, label_N: NDArray[np.int64]) -> Question:
    """Return the question about a neighbour, for the occurrences whose neighbour is a text token."""
    place_N = np.flatnonzero(is_text_token(label_N))
    return Question(group, place_N, label_N[place_N])


def hidden_tokens(sample: Sample, types: int) -> Hidden:
    """Choose occurrences of the most frequent types, each to be shown as another of these types in one of the
    readings.

    All other types are equally likely, so that the shown token has the entropy of a uniform choice, as in the
    figure of Voita et al. 2019, section 4. [MASK] is never shown, because it has no information that a layer
    could forget. The choice of occurrences, shown tokens and readings depends on the text alone.

    Raises:
        MeasureError: all tokens are the same.
    """
    place_N = np.flatnonzero(most_frequent(sample.token_N, types))
    type_V = np.unique(sample.token_N[place_N])
    if len(type_V) < 2:
        raise MeasureError(
            "the output label needs a text with at least 2 different tokens, but the text has 1; use another "
            "text, or leave `output` out of `about`."
        )
    where = sample.sentence_N[place_N], sample.position_N[place_N]
    reading_N = (uniforms(derive(0, "reading"), *where) / HIDDEN).astype(np.int64)
    own_N = np.searchsorted(type_V, sample.token_N[place_N])
    other_N = (uniforms(derive(0, "shown"), *where) * (len(type_V) - 1)).astype(np.int64)
    shown_N = type_V[other_N + (other_N >= own_N)]  # any but its own
    is_hidden_N = reading_N < READINGS
    return Hidden(place_N[is_hidden_N], shown_N[is_hidden_N], reading_N[is_hidden_N])


def _hidden_states(hidden: Hidden, sample: Sample, states_of: StatesOf) -> list[NDArray[np.float32]]:
    """Return states for all occurrences of the sample in every layer. Occurrences that are never hidden have
    states 0."""
    layers: list[NDArray[np.float32]] = []
    for reading in range(READINGS):
        is_read_N = hidden.reading_N == reading
        ids_N = sample.token_N.copy()
        ids_N[hidden.place_N[is_read_N]] = hidden.shown_N[is_read_N]
        read = states_of(ids_N)
        layers = layers or [np.zeros_like(layer_ND) for layer_ND in read]
        for layer_ND, read_ND in zip(layers, read, strict=True):
            layer_ND[hidden.place_N[is_read_N]] = read_ND[hidden.place_N[is_read_N]]
    return layers
