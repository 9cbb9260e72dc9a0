"""Words that belong together: the n-grams whose words predict each other most, and where they stand in a text.

Source: Levine et al. 2021, "PMI-Masking", section 3 (https://arxiv.org/abs/2010.01825), equation 3:

    PMI_n(g) = min over segmentations of g of log( p(g) / product of p(part) )

over all ways to cut the n-gram g into two or more contiguous parts: it scores high only if no way to cut it
explains it, so that "is the United States" does not profit from "United States".

Where we differ from Levine et al., as the README of their repository AI21Labs/pmi-masking has it: they rank each
length by itself and take half of their list from pairs, a quarter from triples and an eighth each from 4- and
5-grams, since PMI_n depends on the length; we rank all lengths together, so that no shares have to be set. (The
lists in that repository also multiply p(g) in once more, which prefers frequent n-grams; we follow the article.)
Of chosen n-grams that overlap in the text they take one at random, we the one that begins first. Words are
compared as they are written, with case and punctuation.

Letters: W words of a text, G n-grams of one length, R n-grams of all lengths, best first.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightning_modules.config.masking import PMI
from lightning_modules.errors import DataError

DECIMALS = 9
"""To which PMI is rounded, so that neither ties nor its sign depend on the order of additions."""


class NGrams(NamedTuple):
    """The n-grams of one length that occur often enough."""

    at_W: NDArray[np.int32]
    """Number of the n-gram that begins at each word; -1 where there is none, or a rare one."""
    first_G: NDArray[np.int64]
    """Where each occurs first."""
    log_p_G: NDArray[np.float64]
    """Log of occurrences / places where an n-gram of this length could stand; occurrences may overlap."""


def collocated(type_W: NDArray[np.integer], sentence_W: NDArray[np.integer], settings: PMI) -> NDArray[np.bool_]:
    """Which words are hidden together with the word before: those inside a chosen n-gram, but for its first.

    The n-grams of 2 to `longest` words with at least `least_count` occurrences and a positive PMI_n are ranked by
    it; of equals the longer comes first, then the one that occurs first. As many of them are chosen, best first,
    as it takes until a share `coverage` of all words lies inside an occurrence of one; all, if they do not
    suffice. The text is then cut into units from left to right, always the longest chosen n-gram or else a single
    word. So the share of words that end in units of several is somewhat below `coverage`: a word stays alone if
    all n-grams it lies in overlap an earlier unit.

    Args:
        type_W: number of each word's type, from 0.
        sentence_W: number of each word's sentence, rising; n-grams do not cross sentences.

    Raises:
        DataError: no n-gram occurs `least_count` times.
    """
    by_length = frequent_ngrams(type_W, sentence_W, longest=settings.longest, least_count=settings.least_count)
    if len(by_length) < 2:
        raise DataError(
            f"objective.masking.select: pmi needs word n-grams that occur at least {settings.least_count} times "
            f"(least_count), but no two words of the training text ({len(type_W):,}) are neighbours so often; "
            f"lower least_count or give more text."
        )
    rank_by_length = _ranks(pmi(by_length), by_length)
    chosen = _number_chosen(by_length, rank_by_length, settings.coverage)
    unit_W = np.ones(len(type_W), np.uint8)  # words of the longest chosen n-gram that begins here
    for n, (ngrams, rank_G) in enumerate(zip(by_length, rank_by_length, strict=True), start=1):
        place = np.flatnonzero(ngrams.at_W >= 0)
        unit_W[place[rank_G[ngrams.at_W[place]] < chosen]] = n
    return _inside_units(unit_W)


def frequent_ngrams(
    type_W: NDArray[np.integer], sentence_W: NDArray[np.integer], *, longest: int, least_count: int
) -> list[NGrams]:
    """The words and n-grams that occur at least `least_count` times, by length from 1 on.

    Ends before the first length that has none, at the latest after `longest`.
    """
    found: list[NGrams] = []
    place, key = np.arange(len(type_W)), type_W.astype(np.int64)
    for n in range(1, longest + 1):
        if n > 1:
            # An n-gram occurs no more often than its parts, so that those with a rare part need no counting.
            before = found[-1].at_W
            both = (before[:-1] >= 0) & (before[1:] >= 0) & (sentence_W[:-1] == sentence_W[1:])
            place = np.flatnonzero(both)
            key = before[place] * np.int64(len(found[-1].first_G)) + before[place + 1]
        _, first, number, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        often = count >= least_count
        if not often.any():
            break
        places = int((sentence_W[n - 1 :] == sentence_W[: len(sentence_W) - n + 1]).sum())
        renumbered = np.where(often, np.cumsum(often) - 1, -1).astype(np.int32)
        at_W = np.full(len(type_W), -1, np.int32)
        at_W[place] = renumbered[number]
        found.append(NGrams(at_W, place[first[often]], np.log(count[often] / places)))
    return found


def pmi(by_length: list[NGrams]) -> list[NDArray[np.float64]]:
    """PMI_n of every n-gram, in nats, rounded; minus infinity for the single words that come first."""
    likeliest = [by_length[0].log_p_G]  # by length: sum of log p over the parts of the best cut, or of no cut
    found = [np.full(len(by_length[0].first_G), -np.inf)]
    for n, ngrams in enumerate(by_length[1:], start=2):
        cut_G = np.full(len(ngrams.first_G), -np.inf)
        for k in range(1, n):
            left, right = by_length[k - 1].at_W[ngrams.first_G], by_length[n - k - 1].at_W[ngrams.first_G + k]
            cut_G = np.maximum(cut_G, by_length[k - 1].log_p_G[left] + likeliest[n - k - 1][right])
        found.append(np.round(ngrams.log_p_G - cut_G, DECIMALS))
        likeliest.append(np.maximum(ngrams.log_p_G, cut_G))
    return found


def _ranks(pmi_by_length: list[NDArray[np.float64]], by_length: list[NGrams]) -> list[NDArray[np.int64]]:
    """Place of every n-gram among all, from 0; those without a positive PMI come last."""
    sizes = [len(pmi_G) for pmi_G in pmi_by_length]
    length_R = np.repeat(np.arange(len(sizes)), sizes)
    pmi_R, first_R = np.concatenate(pmi_by_length), np.concatenate([ngrams.first_G for ngrams in by_length])
    order_R = np.lexsort((first_R, -length_R, -pmi_R))
    rank_R = np.empty(len(order_R), np.int64)
    rank_R[order_R] = np.arange(len(order_R))
    rank_R[pmi_R <= 0] = len(rank_R)
    return np.split(rank_R, np.cumsum(sizes)[:-1])


def _number_chosen(by_length: list[NGrams], rank_by_length: list[NDArray[np.int64]], coverage: float) -> int:
    """How many n-grams, best first, it takes to cover a share of the words; all that may be, if too few."""
    W, R = len(by_length[0].at_W), sum(map(len, rank_by_length))
    best_W = np.full(W, R)  # rank of the best n-gram that each word lies in
    for n, (ngrams, rank_G) in enumerate(zip(by_length, rank_by_length, strict=True), start=1):
        place = np.flatnonzero(ngrams.at_W >= 0)
        rank = rank_G[ngrams.at_W[place]]
        for inside in range(n):
            best_W[place + inside] = np.minimum(best_W[place + inside], rank)
    covered_R = np.cumsum(np.bincount(best_W, minlength=R + 1)[:R])
    # A quotient of integers is rounded as the setting was when it was read: 7 of 100 words are 0.07 exactly.
    enough = int(np.searchsorted(covered_R / W, coverage))
    return min(enough + 1, R)


def _inside_units(unit_W: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Every word that no unit begins with, when units follow each other from the left."""
    # Where a unit begins depends on all before it. Steps over bytes cost 0.1 microseconds a word.
    inside, steps, w = bytearray(b"\x01") * len(unit_W), unit_W.tobytes(), 0
    while w < len(steps):
        inside[w] = 0
        w += steps[w]
    return np.frombuffer(inside, np.bool_)
