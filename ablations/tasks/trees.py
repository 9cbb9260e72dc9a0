"""Dependency trees over the words of a sentence, without direction: gold trees, trees from scores, random
trees, and the number of edges that they share.

UUAS (undirected unlabelled attachment score) is the share of gold edges that a tree has, over all edges of
all sentences. No torch. Letters: W words, S sentences, G resamplings.

A gold tree is a sentence as sub-words, with the dependencies between its words. Punctuation (the tag PUNCT, or
the relation punct of a word without a tag) is left out, and so is each word without a sub-word of its own: the
second word of a contraction ("le" of French "du"), and a word whose letters belong to a sub-word that begins in
the word before it. A dependency that leads to or from such a word, or from the root, is also left out and not
moved to another word. Nearly all punctuation is leaves. The second word of a contraction may have dependents, as
after the proclitics of Hebrew and Arabic, and they lose their edge to it. Which words share a sub-word depends on
the tokenizer, so trees differ between tokenizers. The edges that are left have no direction.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import minimum_spanning_tree
from tokenizers import Tokenizer

from ablations.errors import MeasureError
from ablations.measures.reading.alignment import NO_WORD, align
from ablations.measures.reading.labels import spans_of
from ablations.wording import several
from lightning_modules.data.tokenizer import END, START
from lightning_modules.data.treebank import LabelledSentence
from lightning_modules.randomness import derive

PUNCTUATION = "PUNCT"
PUNCTUATION_RELATION = "punct"
FEWEST_WORDS = 3
"""Number of words of the shortest sentence. Two words have only one tree."""

Edge = tuple[int, int]
"""Edge between two words. The first word comes first."""


class GoldTree(NamedTuple):
    """Sentence as tokens, and the dependencies between its words."""

    ids_T: NDArray[np.int64]
    """Ids of START, the sub-words and END."""
    word_T: NDArray[np.int64]
    """Word that each token belongs to, from 0; NO_WORD for special tokens and for words that are left out."""
    words: int
    edges: frozenset[Edge]
    place: int = 0
    """Number of the sentence in the random order, before any were left out because of their sub-words."""


def gold_trees(
    sentences: Sequence[LabelledSentence],
    tokenizer: Tokenizer,
    *,
    count: int,
    longest: int,
    max_length: int,
    where: str,
    say: Callable[[str], None] = lambda line: None,
) -> list[GoldTree]:
    """Return the gold trees of `count` sentences, drawn at random, in a random order. Equal input gives equal
    trees.

    A sentence must have 3 to `longest` words that are left, at most `max_length` tokens and a dependency. All
    such sentences are taken if there are fewer.

    Args:
        where: name of the sentences for errors.
        say: gets a sentence if the trees have less than half of the dependencies between words that are not
            punctuation.

    Raises:
        MeasureError: there is no such sentence, or a sentence does not have the words of its text.
    """
    trees: list[GoldTree] = []
    order = np.random.default_rng(derive(0, "parsing")).permutation(len(sentences)).tolist()
    fitting = (number for number in order if FEWEST_WORDS <= len(_kept(sentences[number])) <= longest)
    dependencies = 0
    for place, number in enumerate(fitting):
        if len(trees) < count:
            words = set(_kept(sentences[number]))
            dependencies += sum(sentences[number].heads[word] in words for word in words)
            tree = gold_tree(sentences[number], tokenizer)
            if tree.words >= FEWEST_WORDS and tree.edges and len(tree.ids_T) <= max_length:
                trees.append(tree._replace(place=place))
    if not sentences:
        raise MeasureError(f"{where} has no sentences; give a treebank with more sentences.")
    if not trees:
        raise MeasureError(
            f"{where}: none of the {several(len(sentences), 'sentence')} has a tree with {FEWEST_WORDS} to "
            f"{longest} words (without punctuation) and at most {max_length} sub-words; give another treebank, or "
            "raise the measure's `longest`."
        )
    left = sum(len(tree.edges) for tree in trees)
    if left < dependencies / 2:
        say(
            f"{where}: its trees have {left:,} of {dependencies:,} dependencies. The others lead to words without "
            f"a sub-word of their own, or stand in sentences with fewer than {FEWEST_WORDS} such words or more "
            f"than {max_length} sub-words; a smaller data.vocab_size may keep more."
        )
    return trees


def gold_tree(sentence: LabelledSentence, tokenizer: Tokenizer) -> GoldTree:
    """Return the gold tree of a sentence: its sub-words, and the dependencies between the words that are
    left.

    Raises:
        MeasureError: the sentence does not have the words of its text.
    """
    encoding = tokenizer.encode(sentence.text, add_special_tokens=False)
    word_T = align(sentence.text, sentence.forms, spans_of(encoding, sentence.text), where=sentence.where)
    kept = np.intersect1d(word_T, _kept(sentence))
    number = {word: i for i, word in enumerate(kept.tolist())}
    ends = [(i, head) for i, head in enumerate(sentence.heads) if i in number and head in number]
    return GoldTree(
        ids_T=np.array([START, *encoding.ids, END]),
        word_T=np.array([NO_WORD, *(number.get(word, NO_WORD) for word in word_T.tolist()), NO_WORD]),
        words=len(kept),
        edges=frozenset((min(number[a], number[b]), max(number[a], number[b])) for a, b in ends),
    )


def _kept(sentence: LabelledSentence) -> list[int]:
    """Return the words that are not punctuation."""
    labels = enumerate(zip(sentence.tags, sentence.relations, strict=True))
    return [i for i, (tag, relation) in labels if tag != PUNCTUATION and (tag or relation != PUNCTUATION_RELATION)]


NEIGHBOUR_BONUS = 1e-4
"""Bonus on the score of neighbouring words. Neighbours win ties, so that scores without information give the
adjacency chain. It is the value of Zhang & Hashimoto 2021."""
RESAMPLINGS = 2000


def maximum_spanning_tree(score_WW: NDArray[np.float64]) -> frozenset[Edge]:
    """Return the tree with the largest sum of scores. The larger of the two scores of a pair counts."""
    both_WW = np.maximum(score_WW, score_WW.T).astype(np.float64)
    words = np.arange(len(both_WW))
    both_WW += NEIGHBOUR_BONUS * (abs(words[:, None] - words) == 1)
    # Distances start at 1, because scipy takes 0 for no edge.
    distance_WW = np.triu(both_WW.max() - both_WW + 1, k=1)
    first, second = minimum_spanning_tree(distance_WW).nonzero()
    return frozenset((min(a, b), max(a, b)) for a, b in zip(first.tolist(), second.tolist(), strict=True))


def adjacency_chain(words: int) -> frozenset[Edge]:
    """Return the edges between each word and the next one."""
    return frozenset((i, i + 1) for i in range(words - 1))


def expected_at_random(edges: int, words: int) -> float:
    """Return how many of some edges are expected in a tree that is drawn uniformly from all trees over the
    words.

    Such a tree has `words` - 1 of words (words - 1) / 2 pairs, each with the same probability.
    """
    return edges * 2 / words


def resampled(right_S: NDArray[Any], edges_S: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the sum of `right_S` over the sum of `edges_S`, for sentences drawn with replacement, G times.
    The draws do not depend on the numbers, so that results of two parsers can be subtracted."""
    S = len(edges_S)
    drawn_GS = np.random.default_rng(derive(0, "sentences")).multinomial(S, np.full(S, 1 / S), size=RESAMPLINGS)
    return drawn_GS @ right_S / (drawn_GS @ edges_S)


def resampled_error(right_S: NDArray[Any], edges_S: NDArray[np.integer]) -> float:
    """Return the standard error over sentences of the sum of `right_S` over the sum of `edges_S`; NaN below
    two sentences."""
    S = len(edges_S)
    if S < 2:
        return math.nan
    # Resampled sentences are spread around the mean of these S sentences, not around the true mean, so their
    # variance is (S - 1) / S of the variance of the ratio. That G resamplings are few is what ddof is for.
    return float(resampled(right_S, edges_S).std(ddof=1) * math.sqrt(S / (S - 1)))
