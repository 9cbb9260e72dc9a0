"""Corruption of one's own: masked LM that never hides the most frequent tokens of the text.

Copy the file beside a spec and name the selection there:

    objective: {kind: masked_lm, masking: {select: {kind: "my_corruption.py:Rare", frequent: 50}}}

What is shown in the place of a hidden token is a matter of `mask`, `random` and `keep` as always.
"""

from typing import Any

import numpy as np
from pydantic import Field

from lightning_modules.config.masking import OwnSelection


class Rare(OwnSelection):
    """Selection of tokens that are not among the most frequent ones."""

    frequent: int = Field(20, ge=0)
    """Number of the most frequent tokens that are never hidden."""

    def allowed(self, tokens: Any, split: Any) -> np.ndarray:
        # One truth value for each token of the training text. `joined`, beside it, says which tokens are hidden
        # together with the one before them, as the pieces of a word. `tokens.tokenizer.id_to_token(i)` is the text
        # of an id of `split.ids`.
        rank_V = np.argsort(np.argsort(-tokens.source_counts_V, kind="stable"))
        return rank_V[split.ids] >= self.frequent
