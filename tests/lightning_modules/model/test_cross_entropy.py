"""Cross-entropy in slices against torch's on all logits at once, with all gradients."""

import pytest
import torch
import torch.nn.functional as F

from lightning_modules.model import heads
from lightning_modules.model.heads import IGNORED, slice_rows, summed_cross_entropy

N, D, V = 50, 8, 30


def problem(dtype=torch.float64, *, bias=True):
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(*shape, dtype=dtype, generator=generator) for shape in ((N, D), (V, D), (V,))]
    leaves = [tensor.requires_grad_() for tensor in made]
    return leaves if bias else [*leaves[:2], None], torch.randint(V, (N,), generator=generator)


def plain(hidden, embeddings, bias, label):
    return F.cross_entropy(F.linear(hidden, embeddings, bias), label, reduction="sum")


def loss_and_gradients(function, leaves, label, upstream=1.0):
    loss = function(*leaves, label)
    (loss * upstream).backward()
    gradients = [leaf.grad.clone() for leaf in leaves if leaf is not None]
    for leaf in leaves:
        if leaf is not None:
            leaf.grad = None
    return [loss.detach(), *gradients]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 25, 1000])
def test_loss_and_gradients_are_those_of_all_logits_at_once(bias, rows, monkeypatch):
    monkeypatch.setitem(heads.LOGITS_AT_ONCE, "cpu", rows * V)
    leaves, label = problem(bias=bias)
    ours = loss_and_gradients(summed_cross_entropy, leaves, label, upstream=0.3)
    torchs = loss_and_gradients(plain, leaves, label, upstream=0.3)
    assert len(ours) == (4 if bias else 3)
    for a, b in zip(ours, torchs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rows", [7, 1000])
def test_label_smoothing_is_that_of_torch(rows, monkeypatch):
    monkeypatch.setitem(heads.LOGITS_AT_ONCE, "cpu", rows * V)
    leaves, label = problem()
    label[::3] = IGNORED

    def ours(hidden, embeddings, bias, label):
        return summed_cross_entropy(hidden, embeddings, bias, label, label_smoothing=0.2)

    def torchs(hidden, embeddings, bias, label):
        logits = F.linear(hidden, embeddings, bias)
        return F.cross_entropy(logits, label, reduction="sum", label_smoothing=0.2, ignore_index=IGNORED)

    both = (loss_and_gradients(function, leaves, label) for function in (ours, torchs))
    for a, b in zip(*both, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_ignored_labels_add_nothing_and_get_no_gradient():
    (hidden, embeddings, bias), label = problem()
    label[::3] = IGNORED
    asked = label != IGNORED
    ours = loss_and_gradients(summed_cross_entropy, [hidden, embeddings, bias], label)
    torchs = loss_and_gradients(
        lambda h, e, b, i: plain(h[asked], e, b, i[asked]), [hidden, embeddings, bias], label
    )
    assert not ours[1][~asked].any()
    for a, b in zip(ours, torchs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_fp32_and_bf16_stay_within_their_rounding():
    leaves, label = problem()
    exact = loss_and_gradients(plain, leaves, label)
    single = [leaf.detach().float().requires_grad_() for leaf in leaves]
    for context, tolerance in (
        (torch.autocast("cpu", enabled=False), 1e-5),
        (torch.autocast("cpu", dtype=torch.bfloat16), 0.05),
    ):
        with context:
            found = loss_and_gradients(summed_cross_entropy, single, label)
        assert found[0].dtype == torch.float64
        assert [gradient.dtype for gradient in found[1:]] == [torch.float32] * 3
        for a, b in zip(found, exact, strict=True):
            assert (a - b).norm() <= tolerance * b.norm()
            assert a.ndim == 0 or (a - b).norm() > 0  # the comparison can tell precisions apart


def test_without_gradients_nothing_but_the_loss_is_computed():
    leaves, label = problem()
    with torch.no_grad():
        loss = summed_cross_entropy(*leaves, label)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, plain(*leaves, label).detach(), rtol=0, atol=1e-12)


def test_no_predictions_cost_nothing():
    leaves, label = problem()
    loss = summed_cross_entropy(leaves[0][:0], *leaves[1:], label[:0])
    loss.backward()
    assert loss == 0
    assert leaves[1].grad.abs().sum() == 0


def test_slices_cover_every_row_once_and_hold_at_most_so_many_logits():
    for predictions, vocabulary in ((0, 10), (1, 10**9), (5000, 8192), (257, 8192)):
        slices = slice_rows(predictions, vocabulary, "cpu")
        rows = [row for part in slices for row in range(predictions)[part]]
        assert rows == list(range(predictions))
        height = max((part.stop - part.start for part in slices), default=0)
        assert height == 1 or height * vocabulary <= heads.LOGITS_AT_ONCE["cpu"]


def test_an_evaluation_makes_no_gradients(monkeypatch):
    (hidden, embeddings, bias), label = problem()
    with torch.no_grad():
        expected = plain(hidden, embeddings, bias, label)
        monkeypatch.setattr(torch, "mul", None)  # the first thing that only a gradient needs
        loss = summed_cross_entropy(hidden, embeddings, bias, label)
    monkeypatch.undo()
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_label_that_is_all_but_impossible_has_its_loss_and_no_infinity(dtype):
    logits = torch.zeros(2, V, dtype=dtype)
    logits[:, 3] = 800.0  # e to the minus 800 is no number in either type
    loss = summed_cross_entropy(logits.requires_grad_(), torch.eye(V, dtype=dtype), None, torch.tensor([5, 3]))
    loss.backward()
    assert loss.item() == pytest.approx(800)
    expected = torch.zeros_like(logits)
    expected[0, 3], expected[0, 5] = 1, -1
    torch.testing.assert_close(logits.grad, expected)
