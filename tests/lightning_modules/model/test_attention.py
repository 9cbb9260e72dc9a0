"""Attention as products of whole matrices against torch's own, with all gradients."""

import pytest
import torch
import torch.nn.functional as F

from lightning_modules.config import EncoderSettings
from lightning_modules.model.attention import ProductAttention, SelfAttention, attend, turned
from lightning_modules.model.numerics import kept_on_cpu
from lightning_modules.model.sight import Sight, score_mask, turn

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
    scores = score_mask(visible, projected[0]) if masked else None
    results = []
    for attention in (
        lambda *x: ProductAttention.apply(scores, HEADS, 0.0, *x),
        lambda *x: attend(*x, score_mask_BHTS=scores, heads=HEADS),  # in float64 that is torch's
    ):
        mixed = attention(*projected)
        (mixed**2).sum().backward()
        results.append([mixed, *(x.grad.clone() for x in projected)])
        for x in projected:
            x.grad = None
    assert results[0][0].shape == (B, T, D)
    for ours, torchs in zip(*results, strict=True):
        torch.testing.assert_close(
            ours, torchs, rtol=0, atol=1e-12
        )  # sums of a few dozen numbers in another order
    assert torch.autograd.gradcheck(lambda *x: ProductAttention.apply(scores, HEADS, 0.0, *x), projected)


def test_bf16_on_a_cpu_goes_by_products_and_stays_within_its_rounding():
    projected = leaves(2, packed=True)
    exact = attend(*projected, score_mask_BHTS=None, heads=HEADS)
    narrow = [x.detach().bfloat16().requires_grad_() for x in projected]
    rounded = attend(*narrow, score_mask_BHTS=None, heads=HEADS)
    assert type(rounded.grad_fn).__name__ == "ProductAttentionBackward"
    # Scores, shares and products of bf16: a few roundings of 2^-9 each, relative to values of about 1.
    assert 0 < (rounded.double() - exact).std() < 4 * 2**-9


def test_attention_weights_are_dropped_and_the_others_make_up_for_it():
    """Every value is 1, so that a result is the sum of a query's attention weights: 1 without dropout."""
    share, rows = 0.3, 4000
    query, key_value = torch.zeros(rows, 1, 2, dtype=torch.float64), torch.zeros(rows, 10, 4, dtype=torch.float64)
    key_value[..., 2:] = 1
    torch.manual_seed(0)
    sums = attend(query, key_value, score_mask_BHTS=None, heads=1, dropout=share)[:, 0, 0]
    # The sum of ten weights, each 0 or 1 / (10 (1 - share)).
    deviation = (share / (1 - share) / 10) ** 0.5
    assert float(sums.mean()) == pytest.approx(1, abs=4 * deviation / rows**0.5)
    assert float(sums.std()) == pytest.approx(deviation, rel=0.05)
    narrow = [x.bfloat16() for x in (query, key_value)]
    assert attend(*narrow, score_mask_BHTS=None, heads=1, dropout=share).unique().numel() > 3


@pytest.mark.parametrize("packed", [True, False])
def test_gradients_with_dropout_are_those_of_the_weights_that_were_kept(packed):
    projected, dropout = leaves(5, packed=packed), 0.3
    query, key, value = (
        x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in projected for x in part.split(D, dim=-1)
    )
    torch.manual_seed(6)
    share = torch.softmax(query @ key.transpose(-2, -1) * (D // HEADS) ** -0.5, -1)
    kept, scale = kept_on_cpu(share.flatten(0, 1), dropout)
    expected = (scale * kept.unflatten(0, (B, HEADS)) * share @ value).transpose(1, 2).flatten(-2)
    torch.manual_seed(6)
    mixed = attend(*projected, score_mask_BHTS=None, heads=HEADS, dropout=dropout)
    torch.testing.assert_close(mixed, expected, rtol=0, atol=1e-12)  # sums of a few numbers in another order
    assert 0 < int((kept == 0).sum()) < kept.numel()
    for ours, plain in zip(
        torch.autograd.grad((mixed**2).sum(), projected),
        torch.autograd.grad((expected**2).sum(), projected),
        strict=True,
    ):
        torch.testing.assert_close(ours, plain, rtol=0, atol=1e-11)  # as above, of squares


def test_attention_drops_nothing_outside_training():
    attention = SelfAttention(EncoderSettings(hidden_size=16, num_attention_heads=2, attention_dropout=0.5))
    hidden = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    once, again = attention(hidden, Sight(None)), attention(hidden, Sight(None))
    assert not torch.equal(once, again)
    attention.eval()
    assert torch.equal(attention(hidden, Sight(None)), attention(hidden, Sight(None)))


def test_turned_queries_and_keys_know_the_difference_of_their_positions_alone():
    (projected,) = leaves(3, packed=True)
    position = torch.randint(0, 50, (B, T), generator=torch.Generator().manual_seed(4))
    here, shifted, elsewhere = (
        attend(
            turned(projected, turn(x, width=D // HEADS, dtype=torch.float64), heads=HEADS),
            score_mask_BHTS=None,
            heads=HEADS,
        )
        for x in (position, position + 7, 2 * position)
    )
    torch.testing.assert_close(here, shifted, rtol=0, atol=1e-11)  # angles of up to 57, in float64
    assert not torch.allclose(here, elsewhere, atol=1e-3)
    unmoved = turned(projected, turn(0 * position, width=D // HEADS, dtype=torch.float64), heads=HEADS)
    assert torch.equal(unmoved, projected)


def test_turning_in_bf16_is_rounded_once():
    (projected,) = leaves(5, packed=True)
    narrow = projected.bfloat16()
    angles = turn(torch.arange(T), width=D // HEADS, dtype=torch.float32)
    exact = turned(narrow.float(), angles, heads=HEADS)
    assert torch.equal(turned(narrow, angles, heads=HEADS), exact.bfloat16())


def test_score_mask_are_left_out_where_all_is_visible():
    everything = torch.ones(B, 1, T, T, dtype=torch.bool)
    assert score_mask(everything, torch.empty(0)) is None
    everything[0, 0, 2, 5] = False
    scores = score_mask(everything, torch.empty(0, dtype=torch.float64))
    assert scores.dtype == torch.float64
    assert (scores == float("-inf")).nonzero().tolist() == [[0, 0, 2, 5]]
    assert (scores == 0).sum() == everything.numel() - 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert score_mask(everything, torch.empty(0)).dtype == torch.bfloat16


def test_gradients_in_bf16_are_no_worse_than_torchs_where_keys_and_values_have_a_large_common_part():
    """A common part drops out of the gradient of the scores, unless a rounding keeps some of it."""
    generator = torch.Generator().manual_seed(4)
    query, key, value = (torch.randn(B, T, HEADS, D // HEADS, generator=generator) for _ in range(3))
    offset = 5 * torch.randn(2, HEADS, D // HEADS, generator=generator)
    projected = torch.stack([query, key + offset[0], value + offset[1]], 2).flatten(2).bfloat16()
    weight = torch.randn(B, T, D, generator=generator).bfloat16()

    def gradient(attention, dtype):
        leaf = projected.to(dtype).requires_grad_()
        (attention(leaf) * weight.to(dtype)).sum().backward()
        return leaf.grad.double()

    exact = gradient(lambda x: attend(x, score_mask_BHTS=None, heads=HEADS), torch.float64)
    ours = gradient(lambda x: attend(x, score_mask_BHTS=None, heads=HEADS), torch.bfloat16)

    def torchs(x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in x.chunk(3, dim=-1))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)

    theirs = gradient(torchs, torch.bfloat16)
    # Both round shares and products to 2^-9; a factor of 2 is the luck of other roundings.
    assert (ours - exact).norm() < 2 * (theirs - exact).norm()


@pytest.mark.parametrize("heads", [1, 16])
def test_one_head_one_position_and_heads_of_width_one(heads):
    x = torch.randn(2, 1, 3 * D, dtype=torch.float64).requires_grad_()
    mixed = ProductAttention.apply(None, heads, 0.0, x)
    torch.testing.assert_close(mixed, x[..., 2 * D :])  # all attention is on the one value
    assert torch.autograd.gradcheck(lambda x: ProductAttention.apply(None, heads, 0.0, x), x)
