"""Layer 0 of encoder and decoder: token, position and segment embeddings, and the norms around the blocks.

Letters: B rows, T positions, D width, P positions of a table, K pairs of a sine and a cosine.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightning_modules.config import EncoderSettings
from lightning_modules.model.numerics import Dropout


def norm_layer(settings: EncoderSettings) -> nn.Module:
    """Return a norm of the encoder's kind, width and epsilon."""
    kind = RMSNorm if settings.norm_kind == "rms" else nn.LayerNorm
    return kind(settings.hidden_size, eps=settings.layer_norm_epsilon)


class RMSNorm(nn.Module):
    """Norm that divides a state by its root mean square and multiplies it by learned weights (Zhang and Sennrich
    2019, equation 4, with epsilon beside the mean square); computed in fp32 or wider, as layer norms are."""

    def __init__(self, width: int, *, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        wide_BTD = hidden_BTD.to(torch.promote_types(hidden_BTD.dtype, self.weight.dtype))
        return F.rms_norm(wide_BTD, self.weight.shape, self.weight, self.eps)


def sinusoids(positions: int, width: int) -> Tensor:
    """Return fixed position embeddings, shape PD, float64: sines in the first half of the width, cosines in the
    second.

    Position p, counted from 0, has the sine and the cosine of p times 10,000^(-k / (D / 2 - 1)) for each k below
    D / 2, as in the public code of the authors of Voita et al. 2019 and in tensor2tensor. Vaswani et al. 2017,
    section 3.5, put each sine beside its cosine and divide by D / 2.
    """
    half = width // 2
    rate_K = 1e4 ** (-torch.arange(half, dtype=torch.float64) / max(1, half - 1))
    angle_PK = torch.arange(positions, dtype=torch.float64)[:, None] * rate_K
    return torch.cat([angle_PK.sin(), angle_PK.cos()], dim=1)


class SinusoidalPositions(nn.Module):
    """Position embeddings that are not trained and that no checkpoint holds; see `sinusoids`."""

    def __init__(self, max_length: int, width: int) -> None:
        super().__init__()
        table_PD = sinusoids(max_length, width).to(torch.get_default_dtype())
        self.register_buffer("table_PD", table_PD, persistent=False)

    def forward(self, position_BT: Tensor) -> Tensor:
        table_PD = self.table_PD
        assert isinstance(table_PD, Tensor)
        return table_PD[position_BT]


class Embeddings(nn.Module):
    """Base of encoder and decoder: their layer 0, and what a head reads of their top layer."""

    def __init__(
        self, settings: EncoderSettings, *, vocab_size: int, max_length: int, segments: bool = False
    ) -> None:
        super().__init__()
        self.settings = settings
        width, embedding = settings.hidden_size, settings.embedding
        self.pre_norm = settings.norm == "pre"
        self.tokens = nn.Embedding(vocab_size, width)
        self.token_scale = width**0.5 if embedding.scale else 1.0
        self.positions = self._positions(settings, max_length)
        self.segments = nn.Embedding(2, width) if segments else None
        self.embedding_bias = nn.Parameter(torch.zeros(width)) if embedding.bias else None
        # Checkpoints have this name for the norm below all blocks with `norm: post`, above them with `pre`.
        self.norm = norm_layer(settings) if self.pre_norm or embedding.norm else None
        self.embedding_norm = norm_layer(settings) if self.pre_norm and embedding.norm else None
        self.dropout = Dropout(settings.dropout)

    @staticmethod
    def _positions(settings: EncoderSettings, max_length: int) -> nn.Module | None:
        match settings.positions:
            case "learned":
                return nn.Embedding(max_length, settings.hidden_size)
            case "sinusoidal":
                return SinusoidalPositions(max_length, settings.hidden_size)
        return None

    def embed(
        self, tokens_BT: Tensor, position_BT: Tensor | None = None, segment_BT: Tensor | None = None
    ) -> Tensor:
        """Return layer 0, shape BTD: token plus position plus segment, scaled, shifted and normalised as
        `encoder.embedding` says, then dropped out."""
        hidden_BTD = self.tokens(tokens_BT)
        if self.token_scale != 1.0:
            hidden_BTD = hidden_BTD * self.token_scale
        if self.embedding_bias is not None:
            hidden_BTD = hidden_BTD + self.embedding_bias
        if self.positions is not None:
            if position_BT is None:
                position_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
            hidden_BTD = hidden_BTD + self.positions(position_BT)
        if self.segments is not None:
            hidden_BTD = hidden_BTD + self.segments(
                torch.zeros_like(tokens_BT) if segment_BT is None else segment_BT
            )
        norm = self.embedding_norm if self.pre_norm else self.norm
        return self.dropout(hidden_BTD if norm is None else norm(hidden_BTD))

    def head_input(self, top_BTD: Tensor) -> Tensor:
        """Return the top layer as a head reads it: unchanged with `norm: post`, normalised once more with
        `pre`."""
        return self.norm(top_BTD) if self.pre_norm and self.norm is not None else top_BTD
