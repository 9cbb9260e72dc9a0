"""A judge of text that took no part in making it: a trigram model with interpolated Kneser-Ney smoothing.

Chen & Goodman 1999 (https://doi.org/10.1006/csla.1999.0128), section 3, with one discount an order. Trained on the
training text in the sub-words that all arms share, so that it is the same for all of them.

Where we differ: the discount is (n1 + 1/2) / (n1 + 2 n2 + 1) instead of n1 / (n1 + 2 n2), with n1 and n2 the
numbers of n-grams that were counted once and twice. It is never 0 or 1, even where every token is frequent.

Letters: N tokens, G different n-grams, K tokens of an n-gram, C different contexts, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lightning_modules.data.token_store import Split
from lightning_modules.vocabulary import MASK, PAD, START

Integers = NDArray[np.int64]

ORDER = 3
NEVER_ASKED = (PAD, START, MASK)


class Judge:
    """Judge of sentences: the probability of a token after the two before it; START, START before a sentence."""

    def __init__(self, split: Split, *, vocab_size: int) -> None:
        gram_GK, count_G = _different(ngrams(split.ids.astype(np.int64)), vocab_size)
        self._orders = [_Order(gram_GK, count_G, vocab_size)]
        while gram_GK.shape[1] > 1:
            # Of the lower orders it counts in how many contexts they occur, not how often.
            gram_GK, count_G = _different(gram_GK[:, 1:], vocab_size)
            self._orders.insert(0, _Order(gram_GK, count_G, vocab_size))
        self._uniform = 1 / (vocab_size - len(NEVER_ASKED))

    def probabilities(self, gram_NK: Integers) -> NDArray[np.float64]:
        """Return the probability of the last token of each trigram after the others."""
        share_N = np.full(len(gram_NK), self._uniform)
        for k, order in enumerate(self._orders, start=1):
            share_N = order.interpolated(gram_NK[:, ORDER - k :], share_N)
        return share_N

    def nats(self, sentences: Sequence[NDArray[np.integer]]) -> list[NDArray[np.float64]]:
        """Return the nats of each token of each sentence but START; END is a token like others."""
        nats_N = -np.log(self.probabilities(ngrams(np.concatenate(sentences).astype(np.int64))))
        return np.split(nats_N, np.cumsum([len(sentence) - 1 for sentence in sentences])[:-1])


def ngrams(ids_N: Integers) -> Integers:
    """Return each token but START with the two before it, of sentences that lie one after the other; shape NK.
    Before the first token of a sentence stand two STARTs."""
    last_N, before_N = np.roll(ids_N, 1), np.roll(ids_N, 2)
    before_N[last_N == START] = START
    return np.stack([before_N, last_N, ids_N], axis=1)[ids_N != START]


class _Order:
    """Counts of n-grams of one length."""

    def __init__(self, gram_GK: Integers, count_G: Integers, vocab_size: int) -> None:
        self._vocab_size, self._count_G = vocab_size, count_G
        self._gram_G = _keys(gram_GK, vocab_size)
        # n-grams are sorted, so those of one context stand together.
        context_G = _keys(gram_GK[:, :-1], vocab_size)
        self._context_C, first_C, self._kinds_C = np.unique(context_G, return_index=True, return_counts=True)
        self._total_C = np.add.reduceat(count_G, first_C)
        once, twice = ((count_G == n).sum() for n in (1, 2))
        self.discount = (once + 0.5) / (once + 2 * twice + 1)

    def interpolated(self, gram_NK: Integers, lower_N: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probabilities of the last tokens, given those by the order below."""
        count_N = _values_of(_keys(gram_NK, self._vocab_size), self._gram_G, self._count_G)
        context_N = _keys(gram_NK[:, :-1], self._vocab_size)
        total_N = _values_of(context_N, self._context_C, self._total_C)
        kinds_N = _values_of(context_N, self._context_C, self._kinds_C)
        kept_N = np.maximum(count_N - self.discount, 0) + self.discount * kinds_N * lower_N
        return np.where(total_N > 0, kept_N / np.maximum(total_N, 1), lower_N)


def _different(gram_NK: Integers, vocab_size: int) -> tuple[Integers, Integers]:
    """Return each n-gram once, sorted, and its number of occurrences."""
    _, first_G, count_G = np.unique(_keys(gram_NK, vocab_size), return_index=True, return_counts=True)
    return gram_NK[first_G], count_G


def _keys(gram_NK: Integers, vocab_size: int) -> Integers:
    """Return a number for each n-gram, in the same order; 0 for empty ones."""
    key_N = np.zeros(len(gram_NK), dtype=np.int64)
    for id_N in gram_NK.T:
        key_N = key_N * vocab_size + id_N
    return key_N


def _values_of(key_N: Integers, known_G: Integers, value_G: Integers) -> Integers:
    """Return the values of keys, 0 of unknown keys."""
    place_N = np.minimum(np.searchsorted(known_G, key_N), len(known_G) - 1)
    return np.where(known_G[place_N] == key_N, value_G[place_N], 0)
