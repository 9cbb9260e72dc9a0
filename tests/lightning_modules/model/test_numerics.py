"""Products of bf16 on a CPU that has none: their numbers, and that none is left to torch.

Freed memory is kept: in the end a tensor of the same size costs no new pages.

Dropout on a CPU: how much, where, and what flows back.
"""

import errno
import platform
import subprocess
import sys

import pytest
import torch

from lightning_modules.errors import StopRequest
from lightning_modules.model import numerics
from lightning_modules.model.numerics import LEVELS, Bf16ByFp32, Dropout, bf16_products, matrix_rate, out_of_memory
from lightning_modules.training.fit import bare_step, train
from tests.support.products_seen import ProductsSeen
from tests.support.tiny_text import settings

SCRIPT = """
import resource, sys
import torch
from lightning_modules.model.numerics import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
faults = []
for _ in range(16):  # until the heap has a hole of that size
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(15_000_000)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(faults[-1])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is glibc's")
def test_the_pages_of_a_freed_tensor_are_used_again():
    faults = {
        how: int(
            subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True).stdout
        )
        for how in ("keep", "give back")
    }
    pages = 15_000_000 * 4 // 4096
    assert faults["keep"] < pages // 100
    assert faults["give back"] > pages // 600  # huge pages are 512 times as large


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
        monkeypatch.setattr(numerics, "cpu_multiplies_bf16", lambda has_them=has_them: has_them)
        with ProductsSeen() as seen, bf16_products(device, enabled=wanted):
            a @ b
        assert seen.types == {torch.bfloat16}


@pytest.fixture
def without_products(monkeypatch):
    monkeypatch.setattr(numerics, "cpu_multiplies_bf16", lambda: False)


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "translation"])
def test_no_product_of_a_step_is_left_to_torch(kind, without_products, tokens, monkeypatch):
    step = bare_step(settings(kind, training={"precision": "bf16-mixed"}), tokens)
    with ProductsSeen() as seen:
        step()
    assert seen.types == {torch.float32}
    monkeypatch.undo()
    monkeypatch.setattr(numerics, "cpu_multiplies_bf16", lambda: True)
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
    numerics._measured.cache_clear()
    with ProductsSeen() as seen:
        matrix_rate(torch.device("cpu"), torch.bfloat16)
    assert seen.types == {torch.float32}
    numerics._measured.cache_clear()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0"), "no room for 2.50 GiB"),
        (
            RuntimeError("[enforce fail] . DefaultCPUAllocator: you tried to allocate 5368709120 bytes."),
            "no room for 5 GiB",
        ),
        (MemoryError(), "no room for a tensor"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "no room for a file or a process"),
        (OSError(errno.ENOENT, "No such file or directory"), None),
        (RuntimeError("could not create a primitive"), "could not create a primitive"),
        (
            ImportError("libgomp.so.1: failed to map segment from shared object"),
            "failed to map segment from shared object",
        ),
        (ImportError("No module named x"), None),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
        (ValueError("DefaultCPUAllocator: no error of torch"), None),
    ],
)
def test_memory_that_is_used_up_is_told_apart(error, says):
    assert out_of_memory(error) == says
