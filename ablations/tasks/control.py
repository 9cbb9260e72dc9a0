"""Control tasks (Hewitt & Liang 2019, section 2): labels that mean nothing, of which only a probe that memorises
can say anything.

Each kind of input gets one random label, always the same, drawn from the labels of the real task. Of words the
kind is the word. Of sentences and pairs, where the source has no control, it is one word of theirs: the rarest of
those that are in at least ten of the training sentences. So there are many kinds, each is met often enough to be
learned, and the label is a function of the text that takes no understanding of it.
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lightning_modules.randomness import derive, uniforms

FEWEST = 10
"""Training sentences that a word must be in to decide about a label."""

NO_WORD = ""
"""The kind of sentences without such a word."""

_WORD = re.compile(r"\w+")


def deciding_words(texts: Sequence[str], *, train: Sequence[str]) -> list[str]:
    """The rarest word of each text that is in at least ten training texts; the first by the alphabet of equals."""
    counts = Counter(word for text in train for word in _words(text))
    return [
        min(
            (word for word in _words(text) if counts[word] >= FEWEST),
            key=lambda word: (counts[word], word),
            default=NO_WORD,
        )
        for text in texts
    ]


def control_labels(
    kinds: Sequence[str], *, labels: Sequence[str] | NDArray[np.str_], seed: int
) -> NDArray[np.str_]:
    """A label for each input, the same for inputs of a kind: drawn at random from the labels of the real task.

    Args:
        labels: those of the training part, as often as they occur there.
    """
    names_K, counts_K = np.unique(labels, return_counts=True)
    until_K = counts_K.cumsum() / counts_K.sum()
    drawn = {kind: uniforms(derive(seed, "control task", kind), np.zeros(1, int))[0] for kind in set(kinds)}
    return names_K[np.searchsorted(until_K, [drawn[kind] for kind in kinds], side="right")]


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))
