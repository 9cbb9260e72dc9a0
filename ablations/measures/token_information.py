"""Information of each layer about the token it reads, about its neighbours and about what it predicts: Voita et
al. 2019, section 4.

Letters: N occurrences, D width, L + 1 layers.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablations.errors import MeasureError
from ablations.measures.information.estimate import most_frequent, require_fitting, smaller_half, token_information
from ablations.measures.jackknife import errors
from ablations.measures.reading.sample import Sample, is_text_token
from ablations.measures.reading.texts import AFTER_FINAL_NORM, Readings, Say, Texts
from ablations.measures.settings import TokenInformationSettings
from ablations.measures.similarity.sides import to_device
from lightning_modules.config import RunSettings
from lightning_modules.config.objectives import Output
from lightning_modules.randomness import derive, uniforms

READINGS = 6
"""Readings of the text in which tokens are shown as others, each time others."""

TOKENS_PER_CLUSTER = 10
"""In either half, where the text decides how many clusters there are: twice as many as are refused."""

HIDDEN = 0.15
"""Share of the tokens that are shown as others in one reading; in all of them together 90%."""

StatesOf = Callable[[NDArray[np.int64]], list[NDArray[np.float32]]]
"""The states of all occurrences of a sample where these ids, one for each, are shown in their places."""


class Question(NamedTuple):
    """Question to a layer: labels of some occurrences."""

    group: str | None
    place_N: NDArray[np.int64]
    """Places of the occurrences in the sample, ascending."""
    label_N: NDArray[np.int64]
    hidden: bool = False
    """Whether the states are those of a reading in which the occurrence is shown as another token."""


class Hidden(NamedTuple):
    """Occurrences that are shown as other tokens."""

    place_N: NDArray[np.int64]
    """Places of the occurrences in the sample, ascending."""
    shown_N: NDArray[np.int64]
    reading_N: NDArray[np.int64]
    """In which reading of the text, from 0."""


def rows(readings: Readings, settings: TokenInformationSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `token_information` of a run from its validation text."""
    reading = readings.texts.validation(settings)
    return information_rows(
        readings.states(reading),
        reading.sample,
        settings,
        output=readings.objective.run.objective.output,
        seed=readings.objective.run.seed,
        normed_ND=readings.after_final_norm(reading),
        states_of=lambda shown_N: readings.shown(reading, shown_N),
    )


def require(settings: TokenInformationSettings, texts: Texts, run: RunSettings) -> None:
    """Refuse a text with too few tokens for the clusters.

    Raises:
        MeasureError: too few tokens.
    """
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
    """Yield rows of the plug-in and the cross-fitted estimate, by layer, for the labels in `settings.about`.

    No group is the input token; the others are `previous token`, `next token`, `output label` and `shown token`.
    `after final norm` is the input token again, told from the top layer as a head reads it.

    Args:
        output: which token the encoder's output predicts; None leaves rows about the output away. seed: of the
        run. It draws the halves of the text, the first centres and the shuffles, so that their noise is
            another one in every seed of an experiment, and is part of the spread between seeds.
        normed_ND: the top layer after the encoder's final norm, for rows about the input token of that group.
        states_of: reads the text with other tokens in place of some, for masked LM's output.

    Raises:
        MeasureError: too few tokens for the clusters.
    """
    questions = questions_of(sample, settings, output)
    require_enough(questions, sample, settings, seed=seed)
    unseen_LND = None
    if any(question.hidden for question in questions):
        assert states_of is not None, "masked LM's output needs the text to be read anew"
        unseen_LND = _hidden_states(hidden_tokens(sample, settings.types), sample, states_of)
    for question in questions:
        layers = unseen_LND if question.hidden and unseen_LND is not None else states_LND
        for layer, states_ND in enumerate(layers):
            yield from _layer_rows(states_ND, question, sample, layer=layer, clusters=settings.clusters, seed=seed)
        if normed_ND is not None and question.group is None:
            again = question._replace(group=AFTER_FINAL_NORM)
            top = len(states_LND) - 1
            yield from _layer_rows(normed_ND, again, sample, layer=top, clusters=settings.clusters, seed=seed)


def _layer_rows(
    states_ND: NDArray[np.float32], question: Question, sample: Sample, *, layer: int, clusters: int, seed: int
) -> Iterator[dict[str, Any]]:
    information = token_information(
        to_device(states_ND[question.place_N]),
        question.label_N,
        sample.sentence_N[question.place_N],
        clusters=clusters,
        seed=seed,  # the same halves and shuffles in every layer: less noise in their differences
    )
    for metric in ("plug_in", "cross_fitted"):
        yield {
            "metric": metric,
            "group": question.group,
            "layer": layer,
            "value": getattr(information, metric),
            "floor": getattr(information, f"{metric}_floor"),
            **errors(getattr(information, f"{metric}_left_out")),
            "unit": "nats",
            "n": information.n,
            "d": information.clusters,
        }


def questions_of(sample: Sample, settings: TokenInformationSettings, output: Output) -> list[Question]:
    """Return the questions: labels of occurrences of the `types` most frequent ones, equally many for each
    question, from the start of the text.

    Raises:
        MeasureError: the output is asked for, and all tokens of the text are the same; or no token stands beside
            another.
    """
    questions: list[Question] = []
    unseen: list[Question] = []
    if "output" in settings.about:
        place_N, shown_N, _ = hidden_tokens(sample, settings.types)
        unseen.append(Question("output label", place_N, sample.token_N[place_N], hidden=True))
        unseen.append(Question("shown token", place_N, shown_N, hidden=True))
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
                f"token_information of the {question.group} needs a sentence of two tokens or more, but the text "
                f"has none; use other text or ask `about` the input alone."
            )
    # Whatever an arm has learned, it is asked as often as those that are asked for hidden tokens.
    n = min((len(_frequent(question, settings.types)) for question in [*questions, *unseen]), default=0)
    return [
        question._replace(place_N=question.place_N[kept], label_N=question.label_N[kept])
        for question in questions
        for kept in [_frequent(question, settings.types)[:n]]
    ]


def clusters_within(sample: Sample, settings: TokenInformationSettings, output: Output = None) -> int:
    """Return the number of clusters that leave ten tokens to each in either half of the sentences by seed 0; at
    least 2, and at most that of the settings.

    Raises:
        MeasureError: the text has no two sentences, or no token that is asked for.
    """
    fewest = min(_smaller_halves(questions_of(sample, settings, output), sample, seed=0))
    return max(2, min(settings.clusters, fewest // TOKENS_PER_CLUSTER))


def require_enough(
    questions: Sequence[Question], sample: Sample, settings: TokenInformationSettings, *, seed: int
) -> None:
    """Refuse texts that are too short for the clusters, before there are states.

    Halves differ from question to question; the one with the smallest is refused, so that the number of clusters
    that its sentence names is enough for all.

    Raises:
        MeasureError: fewer than two sentences, or fewer than five tokens per cluster in a half.
    """
    sizes = _smaller_halves(questions, sample, seed=seed)
    if sizes:
        fewest = questions[sizes.index(min(sizes))]
        require_fitting(sample.sentence_N[fewest.place_N], clusters=settings.clusters, seed=seed)


def _smaller_halves(questions: Sequence[Question], sample: Sample, *, seed: int) -> list[int]:
    return [smaller_half(sample.sentence_N[question.place_N], seed=seed) for question in questions]


def _frequent(question: Question, types: int) -> NDArray[np.int64]:
    """Return which of a question's occurrences have one of the most frequent labels."""
    return np.flatnonzero(most_frequent(question.label_N, types))


def _beside(group: str, label_N: NDArray[np.int64]) -> Question:
    """Return the question about a neighbour, where it stands for text."""
    place_N = np.flatnonzero(is_text_token(label_N))
    return Question(group, place_N, label_N[place_N])


def hidden_tokens(sample: Sample, types: int) -> Hidden:
    """Choose occurrences of the most frequent types, each shown as another of these types in one of some readings.

    All other types are equally likely, so that the shown token has the entropy of a uniform choice, as in the
    paper's figure. [MASK] is never shown: of it there is nothing to forget. Which occurrences, as what and in
    which reading depends on the text alone.

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
    """Return as many states as the sample has occurrences, in every layer; those that are never hidden are 0."""
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
