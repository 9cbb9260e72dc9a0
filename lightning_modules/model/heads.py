"""Prediction heads and their losses, over the vocabulary or over yes and no.

A loss is kept as a sum and a count, because sums can be added over devices and batches and means cannot. The
cross-entropy over the vocabulary never holds all N x V logits. It computes losses and gradients slice by
slice; the logits of a slice of rows fit into a cache.

Letters: N predictions, D width, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lightning_modules.config import EncoderSettings
from lightning_modules.model.numerics import without_autocast, working_type

IGNORED = -100
"""Label of a place where nothing is predicted."""
LOGITS_AT_ONCE = {"cpu": 2**22, "cuda": 2**27}


def summed_cross_entropy(
    hidden_ND: Tensor,
    embeddings_VD: Tensor,
    bias_V: Tensor | None,
    label_N: Tensor,
    *,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the sum over N of -log softmax(hidden E' + bias)[label], nats, float64.

    With label smoothing (Szegedy et al. 2016, section 7) the loss is 1 - `label_smoothing` times the above, plus
    `label_smoothing` times the mean of -log softmax over the whole vocabulary, the label included. Products are
    in autocast's type if autocast is on and in the type of `hidden_ND` otherwise, the softmax is in fp32 or
    wider, and the sum in float64. Rows whose label is IGNORED add nothing. Gradients flow to everything but the
    labels. There is no second derivative.
    """
    dtype = working_type(hidden_ND)
    # Inside the function gradients are always off, and its inputs ask for a gradient even in an evaluation.
    return _SummedCrossEntropy.apply(
        hidden_ND, embeddings_VD, bias_V, label_N, dtype, label_smoothing, torch.is_grad_enabled()
    )


class _SummedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        embeddings_VD: Tensor,
        bias_V: Tensor | None,
        label_N: Tensor,
        dtype: torch.dtype,
        smoothing: float,
        learning: bool,
    ) -> Tensor:
        N, V = len(hidden_ND), len(embeddings_VD)
        wide = torch.promote_types(dtype, torch.float32)
        with_gradient = learning and any(ctx.needs_input_grad)
        hidden, embeddings = hidden_ND.to(dtype), embeddings_VD.to(dtype)
        bias = hidden.new_zeros(1) if bias_V is None else bias_V.to(wide)
        known_N1 = (label_N != IGNORED).to(wide)[:, None]
        label_N1 = label_N.masked_fill(label_N == IGNORED, 0)[:, None]
        loss_N1 = torch.empty_like(known_N1)
        if with_gradient:
            grad_hidden = torch.empty_like(hidden)
            grad_embeddings = hidden.new_zeros(embeddings.shape, dtype=wide)
            grad_bias = hidden.new_zeros(V, dtype=wide)
        with without_autocast(hidden):
            slices = slice_rows(N, V, hidden.device.type)
            products = hidden.new_empty(max((rows.stop - rows.start for rows in slices), default=0), V)
            narrow = dtype != wide
            weights = torch.empty_like(products, dtype=wide) if narrow else products
            for rows in slices:
                part, label, weight = hidden[rows], label_N1[rows], known_N1[rows]
                product = torch.mm(part, embeddings.T, out=products[: len(part)])
                logits = weights[: len(part)].copy_(product) if narrow else product
                logits += bias
                highest, at_label = logits.amax(1, keepdim=True), logits.gather(1, label)
                if smoothing:
                    at_label = (1 - smoothing) * at_label + smoothing * logits.mean(1, keepdim=True)
                share = torch.softmax(logits, 1, out=logits)
                # The log of the sum is the highest logit minus the log of the largest share. The share of the
                # label is not used, because it may underflow to 0.
                loss_N1[rows] = (highest - share.amax(1, keepdim=True).log() - at_label) * weight
                if with_gradient:
                    share.scatter_add_(1, label, torch.full_like(weight, smoothing - 1))  # d loss / d logits
                    if smoothing:
                        share -= smoothing / V
                    slope = product.copy_(share) if narrow else share
                    torch.mul(slope @ embeddings, weight, out=grad_hidden[rows])
                    weighted_part = (part * weight).to(dtype)
                    if narrow:
                        grad_embeddings += slope.T @ weighted_part
                    else:
                        grad_embeddings.addmm_(slope.T, weighted_part)
                    grad_bias += weight[:, 0] @ share
        if with_gradient:
            ctx.save_for_backward(grad_hidden, grad_embeddings, grad_bias)
            ctx.types = hidden_ND.dtype, embeddings_VD.dtype, None if bias_V is None else bias_V.dtype
        return loss_N1.double().sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, embeddings, bias = ctx.saved_tensors
        types = ctx.types
        scaled = [
            None if dtype is None else (saved * grad.to(saved.dtype)).to(dtype)
            for saved, dtype in zip((hidden, embeddings, bias), types, strict=True)
        ]
        return (*scaled, None, None, None, None)


def slice_rows(predictions: int, vocabulary: int, device: str) -> list[slice]:
    """Return slices of equal height (the last may be lower), each with at most `LOGITS_AT_ONCE` logits."""
    height = max(1, LOGITS_AT_ONCE.get(device, LOGITS_AT_ONCE["cuda"]) // vocabulary)
    return [slice(start, min(start + height, predictions)) for start in range(0, predictions, height)]


class LossSum(NamedTuple):
    """Sum of a loss and the number of its predictions."""

    total: Tensor
    """Sum over predictions, in nats; for an accuracy, the number of right predictions."""
    predictions: Tensor
    """Number of predictions, float64."""


def count_predictions(label_N: Tensor) -> Tensor:
    """Return the number of labels that are not IGNORED, float64."""
    return (label_N != IGNORED).sum().double()


class PredictionHead(nn.Module):
    """BERT's prediction head: a linear map, GELU and layer norm, then the token embeddings and a bias.

    The embeddings are an argument, not a parameter. They belong to the encoder or decoder, so a checkpoint
    holds them once.
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
        """Return the features that are multiplied with the embeddings, shape ND."""
        return self.norm(F.gelu(self.transform(hidden_ND)))

    def loss(
        self, hidden_ND: Tensor, embeddings_VD: Tensor, label_N: Tensor, *, label_smoothing: float = 0.0
    ) -> LossSum:
        """Return the summed cross-entropy over the vocabulary, in nats; IGNORED labels are left out."""
        return vocabulary_loss(
            self.features(hidden_ND), embeddings_VD, self.bias, label_N, label_smoothing=label_smoothing
        )


class LinearHead(nn.Module):
    """Prediction head that is one linear map with weights of its own, without a bias.

    It has the interface of `PredictionHead`, but ignores the token embeddings.
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
        """Return the summed cross-entropy over the vocabulary, in nats; IGNORED labels are left out."""
        return vocabulary_loss(hidden_ND, self.weight, None, label_N, label_smoothing=label_smoothing)


UNSCORED = -1e9
"""Logit of an id that a head does not score. Its share of a softmax is 0. It is finite, because the loss at an
IGNORED label is multiplied by 0, and infinity times 0 would be NaN."""


class TiedHead(nn.Module):
    """Prediction head without weights of its own: it multiplies with the token embeddings, as in GPT-2.

    It has the interface of `PredictionHead`. Ids that it does not score have a probability of 0.
    """

    def __init__(self, *, vocab_size: int, unscored: Sequence[int] = ()) -> None:
        super().__init__()
        bias_V = torch.zeros(vocab_size)
        bias_V[list(unscored)] = UNSCORED
        self.bias_V: Tensor | None
        self.register_buffer("bias_V", bias_V if unscored else None, persistent=False)

    def forward(self, hidden_ND: Tensor, embeddings_VD: Tensor) -> Tensor:
        """Return the logits, shape NV."""
        return F.linear(hidden_ND, embeddings_VD, self.bias_V)

    def loss(
        self, hidden_ND: Tensor, embeddings_VD: Tensor, label_N: Tensor, *, label_smoothing: float = 0.0
    ) -> LossSum:
        """Return the summed cross-entropy over the vocabulary, in nats; IGNORED labels are left out."""
        return vocabulary_loss(hidden_ND, embeddings_VD, self.bias_V, label_N, label_smoothing=label_smoothing)


def vocabulary_loss(
    features_ND: Tensor,
    output_VD: Tensor,
    bias_V: Tensor | None,
    label_N: Tensor,
    *,
    label_smoothing: float = 0.0,
) -> LossSum:
    """Return the summed cross-entropy over the vocabulary in nats, and the number of labels that are not
    IGNORED."""
    total = summed_cross_entropy(features_ND, output_VD, bias_V, label_N, label_smoothing=label_smoothing)
    return LossSum(total, count_predictions(label_N))


class BinaryHead(nn.Module):
    """Head with one output: a linear map, an activation and one logit.

    For pairs of segments it is BERT's head (with tanh; only the difference of BERT's two logits matters). For
    replaced tokens it is ELECTRA's head (with GELU).
    """

    def __init__(self, width: int, *, activation: nn.Module) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.activation = activation
        self.output = nn.Linear(width, 1)

    def forward(self, hidden_ND: Tensor) -> Tensor:
        """Return the logit of yes, shape N."""
        return self.output(self.activation(self.transform(hidden_ND))).squeeze(-1)

    def loss(self, hidden_ND: Tensor, label_N: Tensor) -> LossSum:
        """Return the summed binary cross-entropy in nats, computed in fp32 or wider. Labels are 1 (yes), 0 (no)
        or IGNORED (left out)."""
        logit_N = self.forward(hidden_ND)
        wide_N = logit_N.to(torch.promote_types(logit_N.dtype, torch.float32))
        known_N = label_N != IGNORED
        loss_N = F.binary_cross_entropy_with_logits(wide_N, (label_N == 1).to(wide_N.dtype), reduction="none")
        return LossSum((loss_N * known_N).sum(dtype=torch.float64), count_predictions(label_N))

    @torch.no_grad()
    def accuracy(self, hidden_ND: Tensor, label_N: Tensor) -> LossSum:
        """Return the number of right predictions, and the number of labels that are not IGNORED."""
        right_N = ((self.forward(hidden_ND) > 0) == (label_N == 1)) & (label_N != IGNORED)
        return LossSum(right_N.sum().double(), count_predictions(label_N))
