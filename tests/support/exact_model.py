"""A joint distribution over short sentences that can be written down, and what a perfect masked LM makes of it."""

import itertools

import torch
from torch import Tensor

from lightning_modules.data.tokenizer import FIRST_WORD_ID, MASK


class ExactModel:
    """`log_probabilities` of a table of joint probabilities, one axis a position, one entry a value."""

    def __init__(self, joint: Tensor) -> None:
        self.joint, self.values = joint.double() / joint.double().sum(), joint.shape[0]
        self.length = joint.ndim
        self.sentences_CT = torch.tensor(list(itertools.product(range(self.values), repeat=self.length)))
        self.sentences_CT += FIRST_WORD_ID

    def __call__(self, tokens_BT: Tensor, place_BK: Tensor) -> Tensor:
        """Shape BKV, -inf for special tokens; hidden tokens are summed over."""
        fits_BTC = (tokens_BT[:, :, None] == self.sentences_CT.T) | (tokens_BT[:, :, None] == MASK)
        weight_BC = fits_BTC.all(1) * self.joint.flatten()
        one_hot_CTV = torch.nn.functional.one_hot(self.sentences_CT, FIRST_WORD_ID + self.values).double()
        weight_BTV = torch.einsum("bc,ctv->btv", weight_BC, one_hot_CTV)
        weight_BKV = weight_BTV.gather(1, place_BK[:, :, None].expand(-1, -1, weight_BTV.shape[2]))
        return (weight_BKV / weight_BKV.sum(-1, keepdim=True)).log()

    def draw(self, count: int, *, seed: int) -> Tensor:
        """Sentences of the distribution, shape BT."""
        rng = torch.Generator().manual_seed(seed)
        return self.sentences_CT[torch.multinomial(self.joint.flatten(), count, replacement=True, generator=rng)]

    def information(self, sentence_T: Tensor, i: int, j: int) -> float:
        """I(x_i; x_j | all other tokens of this sentence), by its definition."""
        rest = [slice(None) if t in (i, j) else int(sentence_T[t]) - FIRST_WORD_ID for t in range(self.length)]
        pair = self.joint[tuple(rest)]
        pair = pair / pair.sum()
        return float((pair * (pair / (pair.sum(0, keepdim=True) * pair.sum(1, keepdim=True))).log()).sum())


def any_joint(values: int, length: int, *, seed: int) -> Tensor:
    """A table in which everything depends on everything."""
    rng = torch.Generator().manual_seed(seed)
    return torch.rand((values,) * length, generator=rng, dtype=torch.float64) ** 3


def markov_joint(values: int, length: int, *, stay: float) -> Tensor:
    """A table in which each token is as the one before it with the probability `stay`, and any one otherwise."""
    step = stay * torch.eye(values, dtype=torch.float64) + (1 - stay) / values
    joint = torch.full((values,), 1 / values, dtype=torch.float64)
    for _ in range(length - 1):
        joint = joint[..., None] * step
    return joint
