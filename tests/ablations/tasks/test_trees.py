"""Trees without direction: against all trees there are, and counted by hand.

Which words of a treebank a parser is asked about, and where they are among the sub-words.
"""

import itertools
import math

import numpy as np
import pytest

from ablations.errors import MeasureError
from ablations.measures.reading.alignment import NO_WORD
from ablations.tasks.trees import (
    adjacency_chain,
    expected_at_random,
    gold_tree,
    gold_trees,
    maximum_spanning_tree,
    resampled,
    resampled_error,
)
from lightning_modules.data.tokenizer import END, START, train
from lightning_modules.data.treebank import ROOT, LabelledSentence
from tests.support.errors import error_text


def labelled(words, heads, tags=None, *, text=None, forms=None):
    words = tuple(words.split())
    tags = tuple(tags.split()) if tags else ("NOUN",) * len(words)
    relations, senses = ("dep",) * len(words), (None,) * len(words)
    return LabelledSentence(text or " ".join(words), words, tags, tuple(heads), relations, senses, forms or words)


@pytest.fixture(scope="module")
def tokenizer():
    """Knows the words a, b, c, dog and sees; everything else falls apart into letters."""
    return train(["a dog sees b dog c . , du ple xyz"] * 5, 32, source="a test")


def test_words_are_numbered_without_punctuation_and_edges_with_it_are_left_out(tokenizer):
    #                    0   1 2    3 4 5
    sentence = labelled("a , dog . b c", [2, 0, ROOT, 2, 3, 4], "DET PUNCT NOUN PUNCT NOUN NOUN")
    tree = gold_tree(sentence, tokenizer)
    assert tree.words == 4
    assert tree.edges == {(0, 1), (2, 3)}  # a-dog and b-c; b hangs on the full stop
    assert (tree.ids_T[0], tree.ids_T[-1]) == (START, END)
    assert tokenizer.decode(tree.ids_T[1:-1].tolist()).split() == list(sentence.words)
    named = [word for word in dict.fromkeys(tree.word_T.tolist()) if word != NO_WORD]
    assert named == [0, 1, 2, 3]
    assert (tree.word_T[[0, -1]] == NO_WORD).all()


def test_punctuation_of_a_treebank_without_universal_tags_is_known_by_its_relation(tokenizer):
    sentence = labelled("a dog sees . b", [1, 2, ROOT, 2, 2], "_ _ _ _ NOUN")
    untagged = sentence._replace(
        tags=("", "", "", "", "NOUN"), relations=("det", "nsubj", "root", "punct", "punct")
    )
    tree = gold_tree(untagged, tokenizer)
    assert (tree.words, tree.edges) == (4, {(0, 1), (1, 2), (2, 3)})


def test_all_sub_words_of_a_word_belong_to_it(tokenizer):
    tree = gold_tree(labelled("a xyz dog", [1, ROOT, 1]), tokenizer)
    pieces = [tokenizer.decode([i]).strip() for i in tree.ids_T.tolist()]
    for word, text in enumerate(["a", "xyz", "dog"]):
        assert "".join(p for p, w in zip(pieces, tree.word_T.tolist(), strict=True) if w == word) == text


def test_the_second_word_of_a_contraction_is_left_out(tokenizer):
    sentence = labelled("a de le dog", [ROOT, 3, 3, 0], text="a du dog", forms=("a", "du", "", "dog"))
    tree = gold_tree(sentence, tokenizer)
    assert tree.words == 3
    assert tree.edges == {(0, 2), (1, 2)}


def test_sentences_are_chosen_by_their_length_without_punctuation(tokenizer):
    two = labelled("a dog .", [1, ROOT, 1], "DET NOUN PUNCT")
    three = labelled("a dog sees .", [1, 2, ROOT, 2], "DET NOUN VERB PUNCT")
    four = labelled("a dog sees b", [1, 2, ROOT, 2])
    bare = labelled("a b c", [None, None, None])
    everything = [two, three, four, bare]

    def words(sentences=everything, **options):
        options = {"count": 10, "longest": 10, "max_length": 64, "where": "the test part of a.conllu"} | options
        return sorted(tree.words for tree in gold_trees(sentences, tokenizer, **options))

    assert words() == [3, 4]
    assert words(longest=3) == [3]
    assert len(words(count=1)) == 1
    assert error_text(MeasureError, words, max_length=4) == (
        "the test part of a.conllu: none of the 4 sentences has a tree with 3 to 10 words (without punctuation) "
        "and at most 4 sub-words; give another treebank, or raise the measure's `longest`."
    )
    assert error_text(MeasureError, words, []) == (
        "the test part of a.conllu has no sentences; give a treebank with more sentences."
    )


@pytest.mark.parametrize(("contracted", "said"), [(0, False), (2, False), (3, True)])
def test_trees_that_lose_most_of_their_dependencies_are_announced(contracted, said, tokenizer):
    """Two words of a contracted sentence have no sub-word, so it has none of its 4 dependencies; others have 4."""
    whole = labelled("a dog sees b c", [1, 2, ROOT, 2, 3])
    words = "du ple a dog b"
    cut = labelled(words, [ROOT, 0, 0, 0, 0], text="du a", forms=("du", "", "a", "", ""))
    lines = []
    gold_trees(
        [whole] * 2 + [cut] * contracted, tokenizer, count=9, longest=9, max_length=64, where="a", say=lines.append
    )
    sentence = (
        "a: its trees have 8 of 20 dependencies. The others lead to words without a sub-word of their own, or "
        "stand in sentences with fewer than 3 such words or more than 64 sub-words; a smaller data.vocab_size "
        "may keep more."
    )
    assert lines == [sentence] * said


def test_more_sentences_are_asked_for_and_the_first_ones_stay(tokenizer):
    sentences = [labelled("a dog sees" + " b" * i, [1, 2, ROOT, *[2] * i]) for i in range(7)]

    def chosen(count):
        return [
            t.words for t in gold_trees(sentences, tokenizer, count=count, longest=10, max_length=64, where="a")
        ]

    assert sorted(chosen(7)) == [3, 4, 5, 6, 7, 8, 9]
    assert chosen(7)[:3] == chosen(3)
    assert chosen(7) != sorted(chosen(7))  # at random, since treebanks go from one kind of text to the next

    def places(max_length):  # a vocabulary that needs more sub-words leaves sentences out
        trees = gold_trees(sentences, tokenizer, count=9, longest=10, max_length=max_length, where="a")
        return {tree.words: tree.place for tree in trees}

    assert sorted(places(64).values()) == list(range(7))
    assert 0 < len(places(9)) < 7
    assert places(9).items() < places(64).items()


def all_trees(words):
    """Each tree over the words once, from its Pruefer sequence."""
    for sequence in itertools.product(range(words), repeat=words - 2):
        degree = [1 + sequence.count(word) for word in range(words)]
        edges = set()
        for word in sequence:
            leaf = degree.index(1)
            edges.add((min(leaf, word), max(leaf, word)))
            degree[leaf] -= 1
            degree[word] -= 1
        first, second = (word for word in range(words) if degree[word] == 1)
        yield frozenset(edges | {(first, second)})


def test_there_are_as_many_trees_as_cayley_says():
    assert len(set(all_trees(5))) == 5**3


@pytest.mark.parametrize("seed", range(5))
def test_the_tree_is_the_best_of_all(seed):
    score_WW = np.random.default_rng(seed).random((6, 6))
    both_WW = np.maximum(score_WW, score_WW.T)

    def total(tree):
        return sum(both_WW[edge] + 1e-4 * (edge[1] - edge[0] == 1) for edge in tree)

    assert maximum_spanning_tree(score_WW) == max(all_trees(6), key=total)


def test_the_larger_of_two_scores_of_a_pair_counts():
    score_WW = np.zeros((4, 4))
    score_WW[3, 0], score_WW[0, 3] = 1.0, 0.1
    assert (0, 3) in maximum_spanning_tree(score_WW)
    assert (0, 3) in maximum_spanning_tree(score_WW.T)


@pytest.mark.parametrize("words", [2, 3, 10])
@pytest.mark.parametrize("level", [0.0, 0.3])
def test_scores_that_are_all_the_same_give_the_adjacency_chain(words, level):
    assert maximum_spanning_tree(np.full((words, words), level)) == adjacency_chain(words)


def test_a_difference_beyond_the_bonus_of_neighbours_decides():
    score_WW = np.zeros((3, 3))
    score_WW[0, 2] = 0.9e-4
    assert maximum_spanning_tree(score_WW) == {(0, 1), (1, 2)}
    score_WW[0, 2] = 1.1e-4
    assert (0, 2) in maximum_spanning_tree(score_WW)


def test_the_average_tree_has_the_edges_that_all_trees_have_on_average():
    for gold in ({(0, 1), (1, 2)}, {(0, 4), (0, 3), (2, 3), (1, 2)}):
        shared = [len(gold & tree) for tree in all_trees(5)]
        assert expected_at_random(len(gold), 5) == pytest.approx(np.mean(shared))


def test_resampling_gives_the_error_of_a_ratio_of_sums():
    """Against the delta method: the variance of right - uuas x edges over sentences."""
    rng = np.random.default_rng(1)
    edges_S = rng.integers(2, 10, size=400)
    right_S = rng.binomial(edges_S, 0.6)
    found = resampled(right_S, edges_S)
    uuas = right_S.sum() / edges_S.sum()
    expected = (right_S - uuas * edges_S).std() / 400**0.5 / edges_S.mean()
    assert found.std() == pytest.approx(expected, rel=0.08)  # 2,000 resamplings: 1.6% standard error, and bias
    assert found.mean() == pytest.approx(uuas, abs=4 * expected / 2000**0.5 + 1e-3)


def test_parsers_are_resampled_on_the_same_sentences():
    edges_S = np.arange(3, 50)
    right_S = edges_S // 2
    assert resampled(right_S + edges_S, edges_S) - resampled(right_S, edges_S) == pytest.approx(1)


@pytest.mark.parametrize("sentences", [2, 3, 8])
def test_the_error_of_few_sentences_is_that_of_a_mean(sentences):
    """Sentences of equal length: the spread over sentences by S - 1, divided by the root of S."""
    edges_S = np.full(sentences, 10)
    right_S = np.random.default_rng(1).binomial(edges_S, 0.6)
    expected = (right_S / 10).std(ddof=1) / sentences**0.5
    assert expected > 0
    assert resampled_error(right_S, edges_S) == pytest.approx(expected, rel=0.08)  # five of 1.6% by resampling


def test_the_squared_error_of_few_sentences_is_on_average_the_variance_over_texts():
    """Sentences of unequal length, so that their number of edges varies too."""
    rng = np.random.default_rng(5)
    texts = [(edges_S := rng.integers(8, 13, size=5), rng.binomial(edges_S, 0.6)) for _ in range(300)]
    variance = np.var([right_S.sum() / edges_S.sum() for edges_S, right_S in texts], ddof=1)
    squared = np.mean([resampled_error(right_S, edges_S) ** 2 for edges_S, right_S in texts])
    # Variances of 300 texts (8%) and of 4 degrees of freedom each (4%): two standard errors, below the 20% that
    # the resamplings alone lack.
    assert squared == pytest.approx(variance, rel=0.18)


def test_one_sentence_has_no_error():
    assert math.isnan(resampled_error(np.array([3]), np.array([5])))
