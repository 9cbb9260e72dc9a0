"""Which occurrences skip-gram leaves out, and how many pairs of words that leaves (Mikolov et al. 2013, sections 2
and 2.3). No torch.

Letters: S sentences, N tokens, V vocabulary.
"""

import numpy as np
from numpy.typing import NDArray

from lightning_modules.config import SkipGramSettings
from lightning_modules.data.tokens import Split
from lightning_modules.randomness import derive, uniforms
from lightning_modules.vocabulary import FIRST_WORD_ID


def words_only(counts_V: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each id occurs, 0 for those that do not stand for text."""
    return np.where(np.arange(len(counts_V)) >= FIRST_WORD_ID, counts_V, 0)


def kept_share(subsample: float | None, counts_V: NDArray[np.int64]) -> NDArray[np.float64]:
    """With which probability an occurrence of each id is kept; 1 or more is always.

    Args:
        subsample: as in `SkipGramSettings`.
        counts_V: how often each id occurs in the training text.
    """
    if subsample is None:
        return np.ones(len(counts_V))
    words_V = words_only(counts_V)
    return np.sqrt(subsample / np.maximum(words_V / max(1, words_V.sum()), 1e-12))


def pairs_per_token(settings: SkipGramSettings, split: Split, counts_V: NDArray[np.int64]) -> float:
    """Pairs of a token and a neighbour for each token of a text, special ones included: expected over how far
    tokens reach, with one draw of the frequent ones that are left out.

    Of k tokens that are left of a sentence, 2 (k - d) ordered pairs are d apart, for d < k, and a token reaches so
    far with probability (window - d + 1) / window.
    """
    drawn_N = uniforms(derive(0, "pairs of words"), np.arange(len(split.ids)))
    kept_N = (split.ids >= FIRST_WORD_ID) & (drawn_N < kept_share(settings.subsample, counts_V)[split.ids])
    before = np.concatenate([[0], np.cumsum(kept_N)])
    left_S = before[split.offsets[1:]] - before[split.offsets[:-1]]
    window, pairs = settings.window, 0.0
    for distance in range(1, window + 1):
        pairs += 2 * float(np.maximum(left_S - distance, 0).sum()) * (window - distance + 1) / window
    return pairs / len(split.ids)
