"""Conditional mutual information of two tokens of a sentence given all others: I(x_i; x_j | rest), in nats.

Source: Zhang & Hashimoto 2021 (https://arxiv.org/abs/2104.05694). A masked LM gives p(x_i | x_j, rest) and
p(x_j | x_i, rest). Drawing from the two in turn (Gibbs sampling) gives tokens x_i and x_j that suit the rest
and each other. Let p_r be the model's probabilities of x_i in sweep r. The information is the mean over
sweeps of the divergence of p_r from the mean of all p_r: the entropy of the mean minus the mean of the
entropies.

Where we differ: the authors draw x_i from p_r and take the mean of log p_r(x_i) - log mean p(x_i). We sum
over all x_i instead of drawing one. This has the same mean without the noise of the draw, and cannot be
negative. Both underestimate with few sweeps, because the mean of few p_r is too close to each of them.

Letters: B chains, T positions, R sweeps, 2 sides of a pair, V vocabulary, K stops, M chains that the model is
asked about, Q answers that are kept.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ablations.tasks.language_models.sentence_scores import LogProbabilities
from lightning_modules.data.tokenizer import MASK

BURN_IN = 5
"""Divisor of the number of sweeps. The first fifth (rounded up) is burn-in and left out, as by the
authors."""


def conditional_information(
    model: LogProbabilities,
    tokens_BT: Tensor,
    pair_B2: Tensor,
    *,
    uniform_BR2: Tensor,
    stops: Sequence[int],
    remembered: int = 64,
) -> Tensor:
    """Return the nats that one token of a pair tells about the other, after each of `stops` sweeps; shape
    KB2, float64.

    The last axis is the information about x_i and about x_j. The two are equal under one joint distribution,
    but the conditionals of a masked LM need not have one.

    Args:
        tokens_BT: whole sentences, one for each chain, padded with PAD on the right. Tokens at the pair's
            places do not matter.
        pair_B2: places of x_i and x_j. Chains of the same pair are independent estimates.
        uniform_BR2: random numbers in [0, 1), one for each draw.
        stops: numbers of sweeps, each at least 2 and at most R.
        remembered: number of the model's answers that are kept for each side of a chain, on average; at least
            1. The model is not asked again when a token is drawn again. This changes only the cost.
    """
    means = [(Mean(stop), Mean(stop)) for stop in stops]
    chains = gibbs(model, tokens_BT, pair_B2, uniform_BR2[:, : max(stops)], remembered=remembered)
    for sweep, side, share_BV in chains:
        entropy_B = entropy(share_BV)
        for sides in means:
            sides[side].add(sweep, share_BV, entropy_B)
    return torch.stack([torch.stack([mean.information() for mean in sides], dim=-1) for sides in means])


class Mean:
    """Mean of the model's probabilities for one side of each chain, over the sweeps from burn-in to a
    stop."""

    def __init__(self, stop: int) -> None:
        self._start, self._stop = -(-stop // BURN_IN), stop
        self._share_BV: Tensor | None = None
        self._entropy_B: Tensor | float = 0.0

    def add(self, sweep: int, share_BV: Tensor, entropy_B: Tensor) -> None:
        """Add the probabilities of one sweep, if it is between burn-in and stop."""
        if self._start <= sweep < self._stop:
            self._share_BV = share_BV.clone() if self._share_BV is None else self._share_BV.add_(share_BV)
            self._entropy_B = self._entropy_B + entropy_B

    def information(self) -> Tensor:
        """Return the entropy of the mean minus the mean of the entropies, in nats, shape B. It is never below
        0."""
        assert self._share_BV is not None
        sweeps = self._stop - self._start
        return (entropy(self._share_BV / sweeps) - self._entropy_B / sweeps).clamp(min=0)


def gibbs(
    model: LogProbabilities, tokens_BT: Tensor, pair_B2: Tensor, uniform_BR2: Tensor, *, remembered: int = 64
) -> Iterator[tuple[int, int, Tensor]]:
    """Yield sweep, side of the pair, and the probability BV of each token there given all others, in the
    order of the draws. Both tokens are hidden when the first one is drawn."""
    shown_BT = tokens_BT.scatter(1, pair_B2, MASK)
    memories = [Memory(len(tokens_BT), remembered) for _ in range(2)]
    for sweep in range(uniform_BR2.shape[1]):
        for side, memory in enumerate(memories):
            place_B1 = pair_B2[:, side, None]
            shown_BT.scatter_(1, place_B1, MASK)

            def ask(chain_M: Tensor, place_B1: Tensor = place_B1) -> Tensor:
                return model(shown_BT[chain_M], place_B1[chain_M])[:, 0].exp()

            share_BV = memory.recall(shown_BT.gather(1, pair_B2[:, 1 - side, None])[:, 0], ask)
            shown_BT.scatter_(1, place_B1, draw(share_BV, uniform_BR2[:, sweep, side])[:, None])
            yield sweep, side, share_BV


class Memory:
    """Memory of the model's answers about one side of each chain, by the token on the other side. A full
    memory forgets all of them."""

    def __init__(self, chains: int, remembered: int) -> None:
        self._capacity, self._used = chains * remembered, 0
        self._share_QV: Tensor | None = None
        self._answer_BV: Tensor | None = None  # number of the answer for a chain and a token, -1 for none

    def recall(self, other_B: Tensor, ask: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the model's answers given these tokens on the other side, shape BV.

        Args:
            ask: returns the model's answers, MV, for some chains, M.
        """
        chain_B = torch.arange(len(other_B), device=other_B.device)
        if self._share_QV is None or self._answer_BV is None:
            first_BV = ask(chain_B)
            self._share_QV = first_BV.new_empty(self._capacity, first_BV.shape[1])
            self._answer_BV = torch.full_like(first_BV, -1, dtype=torch.int64)
            self._keep(chain_B, other_B, first_BV)
            return first_BV
        new_M = (self._answer_BV[chain_B, other_B] < 0).nonzero()[:, 0]
        if self._used + len(new_M) > self._capacity:
            self._answer_BV.fill_(-1)
            self._used, new_M = 0, chain_B
        if len(new_M):
            self._keep(new_M, other_B[new_M], ask(new_M))
        return self._share_QV[self._answer_BV[chain_B, other_B]]

    def _keep(self, chain_M: Tensor, other_M: Tensor, share_MV: Tensor) -> None:
        assert self._share_QV is not None
        assert self._answer_BV is not None
        places = torch.arange(self._used, self._used + len(chain_M), device=chain_M.device)
        self._share_QV[places], self._answer_BV[chain_M, other_M] = share_MV, places
        self._used += len(chain_M)


def draw(share_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Draw a token of each row by its probability, shape B.

    It is the token at which the running sum of probabilities passes the uniform number, so the draw of a row
    does not depend on other rows.
    """
    sum_BV = share_BV.cumsum(-1)
    point_B1 = uniform_B[:, None].to(sum_BV.dtype) * sum_BV[:, -1:]
    drawn_B = torch.searchsorted(sum_BV, point_B1, right=True)[:, 0]
    return drawn_B.clamp(max=share_BV.shape[1] - 1)  # a number that rounds to 1 passes all sums


def entropy(share_BV: Tensor) -> Tensor:
    """Return the entropy of each row in nats, shape B, float64."""
    return torch.special.entr(share_BV).sum(-1, dtype=torch.float64)
