"""Attention as products of whole matrices against torch's own, with all gradients."""

import pytest
import torch

from lightning_modules.attention import ProductAttention, attend, hidden_scores

B, T, S, D, HEADS = 3, 10, 7, 16, 4


def leaves(seed: int, *, packed: bool) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(B, T, 3 * D)] if packed else [(B, T, D), (B, S, 2 * D)]
    return [torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_the_result_and_its_gradients_are_those_of_torch(packed, masked):
    projected = leaves(0, packed=packed)
    generator = torch.Generator().manual_seed(1)
    visible = torch.rand(B, 1, T, T if packed else S, generator=generator) < 0.5
    visible[..., 0] = True  # a query that may look at nothing has no attention
    scores = hidden_scores(visible, projected[0]) if masked else None
    results = []
    for attention in (
        lambda *x: ProductAttention.apply(scores, HEADS, *x),
        lambda *x: attend(*x, hidden_scores_BHTS=scores, heads=HEADS),  # in float64 that is torch's
    ):
        mixed = attention(*projected)
        (mixed**2).sum().backward()
        results.append([mixed, *(x.grad.clone() for x in projected)])
        for x in projected:
            x.grad = None
    assert results[0][0].shape == (B, T, D)
    for ours, torchs in zip(*results, strict=True):
        torch.testing.assert_close(ours, torchs, rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(lambda *x: ProductAttention.apply(scores, HEADS, *x), projected)


def test_bf16_on_a_cpu_goes_by_products_and_stays_within_its_rounding():
    projected = leaves(2, packed=True)
    exact = attend(*projected, hidden_scores_BHTS=None, heads=HEADS)
    narrow = [x.detach().bfloat16().requires_grad_() for x in projected]
    rounded = attend(*narrow, hidden_scores_BHTS=None, heads=HEADS)
    assert type(rounded.grad_fn).__name__ == "ProductAttentionBackward"
    # Scores, shares and products of bf16: a few roundings of 2^-9 each, relative to values of about 1.
    assert 0 < (rounded.double() - exact).std() < 4 * 2**-9


def test_hidden_scores_are_left_out_where_all_is_visible():
    everything = torch.ones(B, 1, T, T, dtype=torch.bool)
    assert hidden_scores(everything, torch.empty(0)) is None
    everything[0, 0, 2, 5] = False
    scores = hidden_scores(everything, torch.empty(0, dtype=torch.float64))
    assert scores.dtype == torch.float64
    assert (scores == float("-inf")).nonzero().tolist() == [[0, 0, 2, 5]]
    assert (scores == 0).sum() == everything.numel() - 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert hidden_scores(everything, torch.empty(0)).dtype == torch.bfloat16
