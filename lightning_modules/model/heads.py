"""Prediction heads and their losses, over the vocabulary or over yes and no.

A loss is kept as a sum and a count: sums add up over devices and batches, means do not.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightning_modules.config import EncoderSettings
from lightning_modules.model.cross_entropy import IGNORED, summed_cross_entropy


class LossSum(NamedTuple):
    """Sum of a loss and the number of predictions in it."""

    total: Tensor
    """Sum over predictions, nats."""
    predictions: Tensor
    """Number of predictions, float64."""


def count_predictions(label_N: Tensor) -> Tensor:
    """Return the number of predictions in labels, float64; IGNORED labels do not count."""
    return (label_N != IGNORED).sum().double()


class PredictionHead(nn.Module):
    """BERT's prediction head: a linear map, GELU and layer norm, then the token embeddings themselves and a bias.

    The embeddings are an argument, not a parameter: they belong to the encoder or decoder, and a
    checkpoint holds them once.
    """

    def __init__(self, settings: EncoderSettings, *, vocab_size: int, embedding_width: int | None = None) -> None:
        super().__init__()
        width = settings.hidden_size
        self.transform = nn.Linear(width, embedding_width or width)
        self.norm = nn.LayerNorm(embedding_width or width, eps=settings.layer_norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, hidden_ND: Tensor, embeddings_VD: Tensor) -> Tensor:
        """Return the logits, shape NV."""
        return F.linear(self.features(hidden_ND), embeddings_VD, self.bias)

    def features(self, hidden_ND: Tensor) -> Tensor:
        """Return the features that are compared with the embeddings, shape ND."""
        return self.norm(F.gelu(self.transform(hidden_ND)))

    def loss(
        self, hidden_ND: Tensor, embeddings_VD: Tensor, label_N: Tensor, *, label_smoothing: float = 0.0
    ) -> LossSum:
        """Return the cross-entropy over the vocabulary; IGNORED labels are left out."""
        return vocabulary_loss(
            self.features(hidden_ND), embeddings_VD, self.bias, label_N, label_smoothing=label_smoothing
        )


class LinearHead(nn.Module):
    """Prediction head that is one linear map with weights of its own, without a bias.

    It is called as `PredictionHead` is; the token embeddings that it is given are not used.
    """

    def __init__(self, settings: EncoderSettings, *, vocab_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocab_size, settings.hidden_size))

    def forward(self, hidden_ND: Tensor, embeddings_VD: Tensor) -> Tensor:
        """Return the logits, shape NV."""
        return F.linear(hidden_ND, self.weight)

    def loss(
        self, hidden_ND: Tensor, embeddings_VD: Tensor, label_N: Tensor, *, label_smoothing: float = 0.0
    ) -> LossSum:
        """Return the cross-entropy over the vocabulary; IGNORED labels are left out."""
        return vocabulary_loss(hidden_ND, self.weight, None, label_N, label_smoothing=label_smoothing)


def vocabulary_loss(
    features_ND: Tensor,
    output_VD: Tensor,
    bias_V: Tensor | None,
    label_N: Tensor,
    *,
    label_smoothing: float = 0.0,
) -> LossSum:
    """Return the cross-entropy over the vocabulary, and the number of labels that are not IGNORED."""
    total = summed_cross_entropy(features_ND, output_VD, bias_V, label_N, label_smoothing=label_smoothing)
    return LossSum(total, count_predictions(label_N))


class BinaryHead(nn.Module):
    """Head with one output: a linear map, a non-linearity and one logit. For pairs of segments it is BERT's (with
    tanh; its two logits say no more than their difference), for replaced tokens ELECTRA's (with GELU)."""

    def __init__(self, width: int, *, activation: nn.Module) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.activation = activation
        self.output = nn.Linear(width, 1)

    def forward(self, hidden_ND: Tensor) -> Tensor:
        """Return the logit of a yes, shape N."""
        return self.output(self.activation(self.transform(hidden_ND))).squeeze(-1)

    def loss(self, hidden_ND: Tensor, label_N: Tensor) -> LossSum:
        """Return the binary cross-entropy in fp32 or wider; label 1 is a yes, 0 a no, IGNORED ones are left
        out."""
        logit_N = self.forward(hidden_ND)
        wide_N = logit_N.to(torch.promote_types(logit_N.dtype, torch.float32))
        known_N = label_N != IGNORED
        loss_N = F.binary_cross_entropy_with_logits(wide_N, (label_N == 1).to(wide_N.dtype), reduction="none")
        return LossSum((loss_N * known_N).sum(dtype=torch.float64), count_predictions(label_N))

    @torch.no_grad()
    def accuracy(self, hidden_ND: Tensor, label_N: Tensor) -> LossSum:
        """Return the number of labels that are predicted right, and their number; IGNORED ones are left out."""
        right_N = ((self.forward(hidden_ND) > 0) == (label_N == 1)) & (label_N != IGNORED)
        return LossSum(right_N.sum().double(), count_predictions(label_N))
