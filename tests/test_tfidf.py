"""TF-IDF features against the formula, one sentence at a time."""

import math

import numpy as np

from ablations.measures.tfidf import term_counts, tfidf_features
from lightning_modules.vocabulary import FIRST_WORD_ID


def test_counts_are_those_of_text_alone(tokens):
    split = tokens.validation
    counts = term_counts(split, vocab_size=tokens.vocab_size).toarray()
    assert counts.shape == (len(split), tokens.vocab_size)
    assert counts[:, 2:FIRST_WORD_ID].sum() == 0  # START, END and MASK; an unknown piece is text
    for i in (0, 5, len(split) - 1):
        assert np.array_equal(counts[i], np.bincount(split.sentence(i)[1:-1], minlength=tokens.vocab_size))


def test_features_are_counts_times_the_rarity_in_training_text_at_unit_length(tokens):
    features = tfidf_features(tokens.validation, train=tokens.train, vocab_size=tokens.vocab_size).toarray()
    S = len(tokens.train)
    seen_in = np.zeros(tokens.vocab_size)
    for i in range(S):
        seen_in[np.unique(tokens.train.sentence(i)[1:-1])] += 1
    for i in (0, 3, 20):
        expected = np.zeros(tokens.vocab_size)
        for id_ in tokens.validation.sentence(i)[1:-1].tolist():
            expected[id_] += math.log((1 + S) / (1 + seen_in[id_])) + 1
        np.testing.assert_allclose(features[i], expected / np.linalg.norm(expected), atol=1e-12)
