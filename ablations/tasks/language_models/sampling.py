"""Sampling of sentences from language models.

A causal LM draws one token after the other. A masked LM starts from hidden tokens alone, draws all at once, hides
those again of which it was least sure, and so on: mask-predict (Ghazvininejad et al. 2019,
https://arxiv.org/abs/1904.09324, section 3). Where we differ: tokens are drawn, not the most probable ones taken,
since without a source all sentences of a length would be the same; and lengths are given.

What is drawn for a sentence depends on its number, not on what else is made up with it.

Letters: B sentences of a batch, T positions, K places, V vocabulary.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablations.tasks.language_models.conditional_information import draw
from ablations.tasks.language_models.sentence_scores import LogProbabilities
from lightning_modules.objectives.mixture import Mixture
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import uniforms
from lightning_modules.vocabulary import END, MASK, PAD, START

Sentence = NDArray[np.int64]
NextLogProbabilities = Callable[[Tensor], Tensor]
"""Function from the beginnings of sentences, BT, to the log probability of each token after them, BV."""
Draw = Callable[[Tensor, Tensor], Tensor]
"""Function from log probabilities, NV, and uniform numbers, N, to tokens, N."""

LOGITS_AT_ONCE = {"cpu": 2**21, "cuda": 2**26}
MOST_ROWS = {"cpu": 128, "cuda": 2048}


def drawing(*, temperature: float = 1.0, top_p: float = 1.0) -> Draw:
    """Return a function that draws tokens by their probabilities, made sharper or flatter by the temperature, and
    of the most probable ones that have at least `top_p` together (nucleus sampling, Holtzman et al. 2020, section
    3.1)."""

    def drawn(log_share_NV: Tensor, uniform_N: Tensor) -> Tensor:
        share_NV = (log_share_NV.double() / temperature).softmax(-1)
        if top_p < 1:
            sorted_NV, order_NV = share_NV.sort(dim=-1, descending=True, stable=True)
            needed_NV = sorted_NV.cumsum(-1) - sorted_NV < top_p
            share_NV = share_NV * torch.zeros_like(needed_NV).scatter(-1, order_NV, needed_NV)
        return draw(share_NV, uniform_N)

    return drawn


def at_once(vocab_size: int, places: int, device: torch.device) -> int:
    """Return the number of sentences of a batch, if each needs the logits of so many places."""
    return min(MOST_ROWS[device.type], max(1, LOGITS_AT_ONCE[device.type] // (vocab_size * places)))


# From left to right ----------------------------------------------------------------------------------


def next_log_probabilities(objective: Objective) -> NextLogProbabilities:
    """Return the log probabilities of a causal LM, or of the causal side of a mixture; tokens that training never
    predicts have none."""
    objective.eval()
    encoder, head = objective.encoder, objective.head
    sees = "left_only" if isinstance(objective, Mixture) else objective.run.objective.sees

    @torch.no_grad()
    def after(tokens_BT: Tensor) -> Tensor:
        B, T = tokens_BT.shape
        last_B = torch.arange(B, device=tokens_BT.device) * T + T - 1
        top_BD = encoder(tokens_BT, sees=sees, window=objective.window, top_place_N=last_B)[-1]
        logits_BV = head(encoder.head_input(top_BD), encoder.tokens.weight)
        logits_BV[:, [PAD, START, MASK]] = -math.inf
        return logits_BV.log_softmax(-1)

    return after


def from_left_to_right(
    model: NextLogProbabilities,
    count: int,
    *,
    max_length: int,
    key: int,
    drawn: Draw,
    rows: int,
    device: torch.device,
) -> list[Sentence]:
    """Generate so many sentences: START and the drawn tokens, up to END, or up to `max_length` tokens without one.

    Args:
        key: of the random numbers.
        rows: sentences of a batch.
    """
    sentences: list[Sentence] = []
    for first in range(0, count, rows):
        sentences += _batch_from_left_to_right(
            model, np.arange(first, min(first + rows, count)), max_length, key, drawn, device
        )
    return sentences


def _batch_from_left_to_right(
    model: NextLogProbabilities,
    number_B: NDArray[np.int64],
    max_length: int,
    key: int,
    drawn: Draw,
    device: torch.device,
) -> list[Sentence]:
    finished: dict[int, Sentence] = {}
    open_B, tokens_BT = number_B, torch.full((len(number_B), 1), START, device=device)
    while len(open_B):
        uniform_B = uniforms(key, open_B, np.array([tokens_BT.shape[1]]))
        next_B = drawn(model(tokens_BT), torch.from_numpy(uniform_B).to(device))
        tokens_BT = torch.cat([tokens_BT, next_B[:, None]], dim=1)
        ended_B = (next_B == END).cpu().numpy() | (tokens_BT.shape[1] == max_length)
        finished |= dict(zip(open_B[ended_B].tolist(), tokens_BT.cpu().numpy()[ended_B], strict=True))
        open_B, tokens_BT = open_B[~ended_B], tokens_BT[torch.from_numpy(~ended_B).to(device)]
    return [finished[number] for number in number_B.tolist()]


# All at once -----------------------------------------------------------------------------------------


def mask_predict(
    model: LogProbabilities,
    lengths: Sequence[int],
    *,
    iterations: int,
    key: int,
    drawn: Draw,
    vocab_size: int,
    device: torch.device,
) -> list[Sentence]:
    """Generate sentences with so many tokens between START and END, one for each length.

    In step t of T, from 0, those floor(n (T - t) / T) of n tokens are drawn anew whose probabilities were lowest
    when they were drawn, each given what is not hidden and apart from the others.

    Args:
        key: of the random numbers.
    """
    length_S = np.array(lengths)
    by_number: dict[int, Sentence] = {}
    # Of one length at a time: then all have the same number of hidden tokens, and there is no padding.
    for length in np.unique(length_S).tolist():
        same = np.flatnonzero(length_S == length)
        rows = at_once(vocab_size, max(length, 1), device)
        for number_B in np.split(same, range(rows, len(same), rows)):
            tokens_BT = _batch_of_length(model, number_B, length, iterations, key, drawn, device)
            by_number |= dict(zip(number_B.tolist(), tokens_BT.cpu().numpy(), strict=True))
    return [by_number[number] for number in range(len(length_S))]


def _batch_of_length(
    model: LogProbabilities,
    number_B: NDArray[np.int64],
    length: int,
    iterations: int,
    key: int,
    drawn: Draw,
    device: torch.device,
) -> Tensor:
    B = len(number_B)
    tokens_BT = torch.full((B, length + 2), MASK, device=device)
    tokens_BT[:, 0], tokens_BT[:, -1] = START, END
    log_share_BT = torch.full((B, length + 2), math.inf, dtype=torch.float64, device=device)
    log_share_BT[:, 1:-1] = -math.inf
    for step in range(iterations):
        hidden = length * (iterations - step) // iterations
        if not hidden:
            break
        place_BK = log_share_BT.argsort(dim=1, stable=True)[:, :hidden]
        tokens_BT.scatter_(1, place_BK, MASK)
        log_share_BKV = model(tokens_BT, place_BK)
        uniform_BK = uniforms(key, number_B[:, None], np.array([step]), place_BK.cpu().numpy())
        token_N = drawn(log_share_BKV.flatten(0, 1), torch.from_numpy(uniform_BK).flatten().to(device))
        token_BK = token_N.view_as(place_BK)
        tokens_BT.scatter_(1, place_BK, token_BK)
        log_share_BT.scatter_(1, place_BK, log_share_BKV.gather(2, token_BK[..., None])[..., 0].double())
    return tokens_BT
