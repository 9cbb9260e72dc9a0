"""The test text with its words in another order: how much a trained head asks of word order.

Sinha et al. 2021 shuffle the text that is learned from; here it is the text that is asked about, by heads that
learned from natural text. As there, no word keeps its place: a random permutation of a single cycle.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablations.tasks.examples import Examples
from lightning_modules.randomness import derive, uniforms


class Shuffled(NamedTuple):
    """Examples in another order of words."""

    examples: Examples
    place: list[NDArray[np.int64]]
    """Of tagging: where in its natural sentence each word stood."""


def shuffled(examples: Examples) -> Shuffled:
    """Every text by itself; of a pair each text by itself. What a word is, blanks say, or the task. The same for
    whoever asks: it depends on the number of the example, of the text in it and of the word in that alone."""
    if examples.words is not None:
        place = [_order(len(words), i, 0) for i, words in enumerate(examples.words)]
        moved = [[words[p] for p in order] for words, order in zip(examples.words, place, strict=True)]
        tags = [[tags[p] for p in order] for tags, order in zip(examples.answers, place, strict=True)]
        return Shuffled(Examples([" ".join(words) for words in moved], None, moved, tags), place)
    first = [_moved(text, i, 0) for i, text in enumerate(examples.first)]
    second = None if examples.second is None else [_moved(text, i, 1) for i, text in enumerate(examples.second)]
    return Shuffled(Examples(first, second, None, examples.answers), [])


def natural_order(said: list[Any], place: list[NDArray[np.int64]]) -> list[list[Any]]:
    """What was said of the words of shuffled sentences, at their places in the natural ones: spans of words that
    belong together are only there whole."""
    return [[tags[i] for i in np.argsort(order)] for tags, order in zip(said, place, strict=True)]


def _moved(text: str, example: int, number: int) -> str:
    words = text.split()
    return " ".join(words[i] for i in _order(len(words), example, number))


def _order(count: int, example: int, number: int) -> NDArray[np.int64]:
    """Which word stands at each place."""
    chance = uniforms(derive(0, "shuffled text"), np.array([example]), np.array([number]), np.arange(count))
    circle = np.argsort(chance, kind="stable")
    order = np.empty(count, dtype=np.int64)
    order[circle] = np.roll(circle, -1)  # each gives its place to the next on the circle
    return order
