"""Dropout on a CPU: how much, where, and what flows back."""

import pytest
import torch

from lightning_modules.dropout import LEVELS, Dropout


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.999999])
def test_drops_the_share_it_says_and_keeps_the_mean(probability, dtype):
    torch.manual_seed(0)
    n = 400_000
    out = Dropout(probability)(torch.ones(n, dtype=dtype))
    dropped = min(round(probability * LEVELS), LEVELS - 1) / LEVELS
    share = float((out == 0).double().mean())
    # Four standard errors of a share, and of a correlation below.
    assert abs(share - dropped) < 4 * (dropped * (1 - dropped) / n) ** 0.5
    scale = torch.tensor(1 / (1 - dropped), dtype=dtype)
    assert set(out.unique().tolist()) == {0.0, float(scale)}


def test_neighbours_are_dropped_independently():
    torch.manual_seed(0)
    n = 1_000_000
    kept = (Dropout(0.5)(torch.ones(n)) > 0).double() - 0.5
    for distance in (1, 2, 3, 4, 8, 256):  # four numbers share a 64-bit draw
        correlation = float((kept[:-distance] * kept[distance:]).mean()) / 0.25
        assert abs(correlation) < 4 / n**0.5


def test_the_sum_and_its_gradients_are_those_of_the_definition():
    update = torch.randn(7, 9, dtype=torch.float64, requires_grad=True)
    residual = torch.randn(7, 9, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(3)
    kept = Dropout(0.3)(torch.ones(7, 9, dtype=torch.float64))
    torch.manual_seed(3)
    total = Dropout(0.3)(update, residual=residual)
    torch.testing.assert_close(total, residual + kept * update, rtol=0, atol=1e-14)  # one rounding
    (total**2).sum().backward()
    torch.testing.assert_close(residual.grad, 2 * total.detach())
    torch.testing.assert_close(update.grad, 2 * total.detach() * kept)


def test_the_same_seed_drops_the_same_and_the_next_draw_others():
    x = torch.ones(1000)
    torch.manual_seed(5)
    first, second = Dropout(0.5)(x), Dropout(0.5)(x)
    torch.manual_seed(5)
    assert torch.equal(Dropout(0.5)(x), first)
    assert not torch.equal(first, second)


def test_evaluation_and_probability_zero_drop_nothing_and_draw_nothing():
    x = torch.randn(100)
    state = torch.get_rng_state()
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(Dropout(0.0)(x, residual=x), x + x)
    assert torch.equal(torch.get_rng_state(), state)
