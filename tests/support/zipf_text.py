"""Text of words that are drawn apart from each other, some much more frequent than others."""

import numpy as np

from ablations.measures.reading.sample import whole_sentences
from lightning_modules.data.tokenizer import FIRST_WORD_ID


def zipf_sample(count=40_000, types=300):
    rng = np.random.default_rng(0)
    ids = rng.zipf(1.2, count) % types + FIRST_WORD_ID
    return whole_sentences(ids, np.arange(0, count + 1, 20), np.ones(count, bool), count)
