"""From a state to logits over the vocabulary."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightning_modules.encoder import LAYER_NORM_EPSILON


class PredictionHead(nn.Module):
    """BERT's: a linear map, GELU and layer norm, then the token embeddings themselves and a bias.

    The embeddings are an argument, not a parameter: they belong to the encoder or decoder, and a
    checkpoint holds them once.
    """

    def __init__(self, width: int, *, vocab_size: int) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, hidden_ND: Tensor, embeddings_VD: Tensor) -> Tensor:
        """Logits, shape NV."""
        return F.linear(self.features(hidden_ND), embeddings_VD, self.bias)

    def features(self, hidden_ND: Tensor) -> Tensor:
        """What is compared with the embeddings, shape ND."""
        return self.norm(F.gelu(self.transform(hidden_ND)))
