"""Blocks of sentences, and the error that leaving them out gives."""

import math

import numpy as np
import pytest

from ablations.measures.jackknife import kept_without, sentence_blocks, standard_error


def sentences(*lengths):
    return np.repeat(np.arange(len(lengths)), lengths)


def test_blocks_are_runs_of_whole_sentences_with_about_as_many_tokens():
    rng = np.random.default_rng(0)
    sentence_N = sentences(*rng.integers(1, 30, 400))
    block_N = sentence_blocks(sentence_N)
    assert (np.diff(block_N) >= 0).all()
    assert set(block_N.tolist()) == set(range(10))
    for sentence in range(400):
        assert len(set(block_N[sentence_N == sentence].tolist())) == 1
    sizes = np.bincount(block_N)
    assert sizes.max() - sizes.min() <= 2 * 30  # a block is off by half a sentence at either end


def test_names_of_sentences_do_not_matter_and_few_sentences_make_few_blocks():
    assert sentence_blocks(np.array([3, 3, 8, 8, 9])).tolist() == [0, 0, 1, 1, 2]
    assert sentence_blocks(np.array([4, 4, 4])).tolist() == [0, 0, 0]
    one_long = sentence_blocks(sentences(1000, 1, 1))
    assert sorted(set(one_long.tolist())) == [0, 1]  # the two short ones end in the last tenth, and are one block


def test_a_sentence_belongs_to_the_block_of_its_middle():
    block_N = sentence_blocks(sentences(9, 2, 9, 2), 2)  # the border is behind token 11, in the third sentence
    assert block_N.tolist() == [0] * 11 + [1] * 11
    assert sentence_blocks(sentences(3, 9, 2), 2).tolist() == [0] * 3 + [1] * 11  # begins in the first half


def test_neighbouring_clusters_go_into_different_blocks():
    kept = kept_without(np.arange(20))
    assert len(kept) == 10
    assert [np.flatnonzero(~kept_N).tolist() for kept_N in kept] == [[block, block + 10] for block in range(10)]


def test_the_error_of_a_mean_is_that_of_the_means_of_the_blocks():
    rng = np.random.default_rng(1)
    values_GN = rng.standard_normal((10, 50))
    left_out = [np.delete(values_GN, g, axis=0).mean() for g in range(10)]
    expected = values_GN.mean(1).std(ddof=1) / math.sqrt(10)
    assert standard_error(left_out) == pytest.approx(expected, rel=1e-12)  # algebra


def test_the_error_covers_the_spread_of_texts_whose_sentences_repeat_themselves():
    """Tokens of a sentence alike: an error from single tokens would be too small by the root of their number."""
    rng = np.random.default_rng(2)
    sentence_N = sentences(*[10] * 200)
    means, errors, naive = [], [], []
    for _ in range(200):
        values_N = rng.standard_normal(200)[sentence_N]
        block_N = sentence_blocks(sentence_N)
        means.append(values_N.mean())
        errors.append(standard_error([values_N[block_N != g].mean() for g in range(10)]))
        naive.append(values_N.std() / math.sqrt(len(values_N)))
    spread = np.std(means)
    # The spread over 200 texts is known to 1 / sqrt(400) = 5%; the mean of 200 errors, each known to 24%, to 2%.
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(spread, rel=0.17)
    assert np.mean(naive) < spread / 2


def test_without_two_blocks_or_with_a_value_missing_there_is_no_error():
    assert math.isnan(standard_error([1.0]))
    assert math.isnan(standard_error([1.0, math.nan, 2.0]))
    assert standard_error([2.0, 2.0, 2.0]) == 0
