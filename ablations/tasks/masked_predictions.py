"""What a masked LM says of some places of a sentence: how probable every token is there.

Letters: B rows, T positions, K places of a row, N places of all rows, V vocabulary, D width.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ablations.errors import MeasureError
from lightning_modules.masked_lm import MaskedLM
from lightning_modules.mixture import Mixture
from lightning_modules.objective import Objective
from lightning_modules.vocabulary import FIRST_WORD_ID

LogProbabilities = Callable[[Tensor, Tensor], Tensor]
"""From tokens, BT, and places in them, BK, to the log probability of each token at each of them, BKV. What stands
at the places is up to the caller: MASK, if the model is not to see it."""


def log_probabilities(objective: Objective, *, asks: str) -> LogProbabilities:
    """Those of a masked LM in evaluation mode, with its own sight; special tokens have none.

    Past the attention of the last layer only the places asked for are computed.

    Args:
        asks: name of the measure, for the error.

    Raises:
        MeasureError: the objective has no head for hidden tokens.
    """
    if not isinstance(objective, MaskedLM | Mixture):
        raise MeasureError(
            f"{asks} asks for hidden tokens, but {objective.run.objective.kind} does not predict them; leave the "
            f"measure out, or give the arm a spec of its own."
        )
    objective.eval()
    encoder, head, sees = objective.encoder, objective.head, objective.run.objective.sees

    @torch.no_grad()
    def at_places(tokens_BT: Tensor, place_BK: Tensor) -> Tensor:
        B, T = tokens_BT.shape
        place_N = (torch.arange(B, device=tokens_BT.device)[:, None] * T + place_BK).flatten()
        layers = encoder(tokens_BT, sees=sees, window=objective.window, top_place_N=place_N)
        logits_NV = head(encoder.head_input(layers[-1]), encoder.tokens.weight)
        logits_NV[:, :FIRST_WORD_ID] = -math.inf  # never asked for in training
        return logits_NV.log_softmax(-1).unflatten(0, place_BK.shape)

    return at_places
