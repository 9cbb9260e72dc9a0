"""Sentences as bags of sub-words: what can be told of them without order, context or training."""

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer

from ablations.measures.sample import is_text_token
from lightning_modules.data.tokens import Split


def term_counts(split: Split, *, vocab_size: int) -> csr_matrix:
    """How often each id stands in each sentence, special ids apart; shape S x V."""
    text_N = is_text_token(split.ids)
    sentence_N = np.repeat(np.arange(len(split)), split.lengths)
    ones = np.ones(int(text_N.sum()))
    return csr_matrix((ones, (sentence_N[text_N], split.ids[text_N])), shape=(len(split), vocab_size))


def tfidf_features(split: Split, *, train: Split, vocab_size: int) -> csr_matrix:
    """TF-IDF vectors of sentences: counts times (log((1 + S) / (1 + df)) + 1), of unit length; shape S x V.

    S is the number of sentences of `train`, df in how many of them an id stands. A sentence without text is 0.
    """
    weights = TfidfTransformer().fit(term_counts(train, vocab_size=vocab_size))
    return weights.transform(term_counts(split, vocab_size=vocab_size))
