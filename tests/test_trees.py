"""Trees without direction: against all trees there are, and counted by hand."""

import itertools

import numpy as np
import pytest

from ablations.tasks.trees import adjacency_chain, expected_at_random, maximum_spanning_tree, resampled


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
