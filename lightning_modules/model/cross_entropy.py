"""Cross-entropy of predictions over the vocabulary, without ever holding all their logits.

Logits are N x V numbers of which a loss needs two a row and a gradient needs each once. Slices of rows that
fit a cache are turned into losses and gradients at once, one after the other.

Letters: N predictions, D width, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lightning_modules.model.numerics import without_autocast, working_type

IGNORED = -100
"""A label that asks for nothing."""
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

    With label smoothing (Szegedy et al. 2016, section 7) that share of each label is spread over the whole
    vocabulary, the label included: that share of the loss is the mean of -log softmax over the vocabulary.
    Products in autocast's type where that is on and in the type of `hidden_ND` otherwise; the softmax in fp32 or
    wider, and the sum in float64. Rows whose label is IGNORED add nothing. Gradients flow to all but the labels,
    once.
    """
    dtype = working_type(hidden_ND)
    # Inside the function gradients are always off, and its inputs say what they want even in an evaluation.
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
                # The log of the sum in it, from the largest share: a label's may be too small to be a number.
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
    """Return slices of equal height, except the last, of at most as many logits as are held at once."""
    height = max(1, LOGITS_AT_ONCE.get(device, LOGITS_AT_ONCE["cuda"]) // vocabulary)
    return [slice(start, min(start + height, predictions)) for start in range(0, predictions, height)]
