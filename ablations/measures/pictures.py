"""Pictures of the occurrences of a few words in each layer: t-SNE in two dimensions (Voita et al. 2019,
figures 1 and 9).

A picture only shows which occurrences are near each other. Sizes of clusters and distances between them mean
nothing (van der Maaten & Hinton 2008, https://jmlr.org/papers/v9/vandermaaten08a.html). Conclusions should be
drawn from `neighbours`.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from tokenizers import Tokenizer

from ablations.errors import MeasureError
from ablations.measures.reading.labels import JOINED, NEUTRAL, joined_words, spaced_word
from ablations.measures.reading.sample import NO_LABEL, Sample
from ablations.measures.reading.texts import Readings, Say, Texts
from ablations.measures.settings import PicturesSettings
from ablations.measures.similarity.sides import as_matrix, rescaled
from lightning_modules.config import RunSettings
from lightning_modules.data.tokenizer import space_before
from lightning_modules.randomness import derive

FEWEST = 5
"""Smallest number of occurrences of a word for a picture."""


def rows(readings: Readings, settings: PicturesSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `pictures` of a run from its validation text."""
    reading = readings.texts.validation(settings)
    return pictures(readings.states(reading), reading.sample, settings, readings.tokens.tokenizer)


def require(settings: PicturesSettings, texts: Texts, run: RunSettings) -> None:
    """Raise a MeasureError if a word is not one sub-word or occurs too rarely."""
    occurrences(texts.validation(settings).sample, settings, texts.tokens.tokenizer)


def pictures(
    states_LND: list[NDArray[np.float32]], sample: Sample, settings: PicturesSettings, tokenizer: Tokenizer
) -> Iterator[dict[str, Any]]:
    """Yield rows `x` and `y` of each occurrence in each layer.

    The group of a row describes the occurrence: word, position in its sentence, dependency relation, sense
    and number, in this order, between bars. A dash means that a part is not known. All layers and arms show
    the same occurrences. The coordinates of a layer have mean 0 and a largest absolute value of 1; they are all 0
    if its states are equal, as those of one word in layer 0 of an encoder that adds no positions. n is the number
    of points.

    Raises:
        MeasureError: as `occurrences`, and for states that are not finite.
    """
    place_P, name_P = occurrences(sample, settings, tokenizer)
    for layer, states_ND in enumerate(states_LND):
        states_PD = rescaled(as_matrix(states_ND[place_P], name="states")).numpy()
        flat_P2 = np.zeros((len(place_P), 2))
        if (states_PD != states_PD[0]).any():  # t-SNE of equal states would divide by 0 and end the process
            perplexity = min(30.0, (len(place_P) - 1) / 3)
            flat_P2 = TSNE(perplexity=perplexity, init="pca", random_state=0, n_jobs=1).fit_transform(states_PD)
            flat_P2 = flat_P2 - flat_P2.mean(0)
            flat_P2 /= np.abs(flat_P2).max()
        for metric, value_P in zip(("x", "y"), flat_P2.T.tolist(), strict=True):
            for name, value in zip(name_P, value_P, strict=True):
                yield {
                    "metric": metric,
                    "group": name,
                    "layer": layer,
                    "value": value,
                    "unit": "",
                    "n": len(place_P),
                    "d": states_ND.shape[1],
                }


def occurrences(
    sample: Sample, settings: PicturesSettings, tokenizer: Tokenizer
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the occurrences in a picture, as places in the sample, and the group name of each.

    A word is cut into sub-words as inside a sentence. A tokenizer that puts no space before a sentence, such as
    GPT-2's, has another sub-word for its first word, whose occurrences are left out. A word of a script without
    spaces between words may be two sub-words: one behind a space, one behind another word. Both count.

    Raises:
        MeasureError: a word that is not one sub-word, or that the text has too few of.
    """
    places, names, space = [], [], space_before(tokenizer)
    for word in settings.words:
        cuts = [tokenizer.encode(spaced_word(space, word), add_special_tokens=False).ids]
        if re.match(JOINED, word):
            cuts += [ids for ids, _ in joined_words([(NEUTRAL, word)], tokenizer).values()]
        whole = [ids[0] for ids in cuts if len(ids) == 1]
        if not whole:
            raise MeasureError(
                f"pictures show words of one sub-word, but {word!r} has {min(map(len, cuts))} sub-words; choose a "
                "more frequent word."
            )
        place_P = np.flatnonzero(np.isin(sample.token_N, whole))
        if len(place_P) < FEWEST:
            raise MeasureError(
                f"pictures need {FEWEST} occurrences of each word as one sub-word, but {word!r} has "
                f"{len(place_P)} in the validation text; choose another word."
            )
        rng = np.random.default_rng(derive(0, "picture", word))
        drawn = np.sort(rng.permutation(place_P)[: settings.occurrences])
        places.append(drawn)
        names += [_called(sample, word, place, number) for number, place in enumerate(drawn.tolist())]
    return np.concatenate(places), names


def _called(sample: Sample, word: str, place: int, number: int) -> str:
    parts = [word, str(sample.position_N[place])]
    for label in ("relation", "sense"):
        code = sample.labels[label][place] if label in sample.labels else NO_LABEL
        parts.append("-" if code == NO_LABEL else sample.names[label][code])
    return "|".join([*parts, str(number)])
