"""Products of bf16 on a CPU that has none: their numbers, and that none is left to torch."""

import pytest
import torch

from lightning_modules import precision, utilisation
from lightning_modules.bare_loop import bare_step
from lightning_modules.callbacks import StopRequest
from lightning_modules.precision import Bf16ByFp32, bf16_products
from lightning_modules.train import train
from lightning_modules.utilisation import matrix_rate
from tests.products_seen import ProductsSeen
from tests.tiny_text import settings

HALF_A_STEP = 2.0**-8  # of bf16, which keeps 8 bits, relative to the smallest number of its exponent
K = 96


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


PRODUCTS = {
    "mm": lambda a, b, c: a[0] @ b[0],
    "mm into a tensor": lambda a, b, c: torch.mm(a[0], b[0], out=torch.empty_like(c[0])),
    "addmm": lambda a, b, c: torch.addmm(c[0, 0], a[0], b[0]),
    "bmm": lambda a, b, c: a @ b,
    "bmm into a tensor": lambda a, b, c: torch.bmm(a, b, out=torch.empty_like(c)),
    "baddbmm": lambda a, b, c: torch.baddbmm(c, a, b, beta=-1),
    "baddbmm of a number": lambda a, b, c: torch.baddbmm(c.new_full((1,), torch.nan), a, b, beta=0, alpha=0.25),
    "linear": lambda a, b, c: torch.nn.functional.linear(a, b[0].T, c[0, 0]),
    "matmul": lambda a, b, c: torch.matmul(a, b[0]),
}


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
def test_a_product_is_the_exact_one_rounded_once(product, context):
    inputs = random(3, 20, K), random(3, K, 24, seed=1), random(3, 20, 24, seed=2)
    exact = product(*(x.double() for x in inputs))
    with context(), ProductsSeen() as seen, Bf16ByFp32():
        found = product(*inputs)
    assert found.dtype == torch.bfloat16
    assert seen.types == {torch.float32}
    # Half a step of the result, and sums of 96 numbers of size 1 in fp32.
    assert ((found.double() - exact).abs() <= HALF_A_STEP * exact.abs() + 2 * K * 2.0**-24).all()
    assert (found.double() - exact).abs().max() > 2.0**-12


def test_other_types_are_left_alone():
    for dtype in (torch.float32, torch.float64):
        a, b = random(20, K).to(dtype), random(K, 24, seed=1).to(dtype) / 3
        with Bf16ByFp32():
            found = a @ b
        assert torch.equal(found, a @ b)


def test_on_a_processor_that_has_them_and_on_a_gpu_nothing_is_changed(monkeypatch):
    a, b = random(4, 4), random(4, 4, seed=1)
    for has_them, device, wanted in ((True, "cpu", True), (False, "cuda", True), (False, "cpu", False)):
        monkeypatch.setattr(precision, "cpu_multiplies_bf16", lambda has_them=has_them: has_them)
        with ProductsSeen() as seen, bf16_products(device, wanted=wanted):
            a @ b
        assert seen.types == {torch.bfloat16}


@pytest.fixture
def without_products(monkeypatch):
    monkeypatch.setattr(precision, "cpu_multiplies_bf16", lambda: False)


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "translation"])
def test_no_product_of_a_step_is_left_to_torch(kind, without_products, tokens, monkeypatch):
    step = bare_step(settings(kind, training={"precision": "bf16-mixed"}), tokens)
    with ProductsSeen() as seen:
        step()
    assert seen.types == {torch.float32}
    monkeypatch.undo()
    monkeypatch.setattr(precision, "cpu_multiplies_bf16", lambda: True)
    with ProductsSeen() as seen:
        step()
    assert torch.bfloat16 in seen.types  # so the test can tell


def test_no_product_of_a_run_is_left_to_torch(without_products, make_run, tokens):
    directory = make_run(settings(training={"precision": "bf16-mixed"}))
    directory.checkpoints.mkdir(exist_ok=True)
    with ProductsSeen() as seen:
        train(directory, tokens, threads=1, accelerator="cpu", stop=StopRequest())
    assert seen.types == {torch.float32}


def test_the_yardstick_is_that_of_the_products_that_a_run_has(without_products):
    utilisation._measured.cache_clear()
    with ProductsSeen() as seen:
        matrix_rate(torch.device("cpu"), torch.bfloat16)
    assert seen.types == {torch.float32}
    utilisation._measured.cache_clear()
