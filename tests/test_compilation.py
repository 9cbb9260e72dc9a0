"""Compiled blocks compute what the blocks say, only where a run asks for it, and only in its steps."""

import pytest
import torch
from torch._dynamo.utils import counters

from ablations.runs import identity
from lightning_modules.compilation import as_written, compile_blocks
from lightning_modules.data.module import RunData
from lightning_modules.evaluation import evaluate
from lightning_modules.objectives import build
from tests.conftest import settings
from tests.plain_step import problem, require_equal

pytestmark = pytest.mark.filterwarnings("default")  # torch's own, while it compiles

# What is compiled for a GPU is compiled for the CPU here, with the same graph.
GPU = "cuda"


@pytest.fixture(autouse=True)
def no_graphs():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def compiled(objective):
    """How many of its modules are."""
    return sum(module._compiled_call_impl is not None for module in objective.modules())


@pytest.mark.parametrize(("kind", "norm"), [("masked_lm", "post"), ("translation", "pre")])
def test_a_compiled_step_is_the_plain_thing(kind, norm, tokens):
    objective, batch = problem(tokens, kind, norm, compile=True)
    compile_blocks(objective, GPU)
    assert compiled(objective) == 2 if kind == "masked_lm" else 3
    require_equal(objective, batch)
    assert counters["stats"]["unique_graphs"] > 0


def test_weights_keep_their_names(tokens):
    run = settings(training={"compile": True})
    objective = build(run, tokens)
    names = list(objective.state_dict())
    compile_blocks(objective, GPU)
    assert list(objective.state_dict()) == names


@pytest.mark.parametrize(("asked", "device"), [(False, GPU), (True, "cpu")])
def test_nothing_is_compiled_where_nobody_asked_or_on_a_cpu(asked, device, tokens):
    objective = build(settings(training={"compile": asked}), tokens)
    compile_blocks(objective, device)
    assert compiled(objective) == 0


def test_evaluations_of_a_compiled_module_have_the_bits_of_any_other(tokens):
    run = settings(encoder={"dropout": 0.0}, training={"compile": True})
    plain, objective = build(run, tokens), build(run, tokens)
    compile_blocks(objective, GPU)
    objective.training_step(RunData(objective, tokens).batch(0), 0)
    graphs = counters["stats"]["unique_graphs"]
    assert graphs > 0
    with as_written(objective):
        assert evaluate(objective, tokens.validation) == evaluate(plain, tokens.validation)
    assert counters["stats"]["unique_graphs"] == graphs
    evaluate(objective, tokens.validation)  # else one more for each kind of block would be made
    assert counters["stats"]["unique_graphs"] > graphs


def test_runs_that_are_not_compiled_keep_the_identity_they_had():
    written = settings(training={"compile": False})
    assert identity(written, "0" * 10) == identity(settings(), "0" * 10)
    assert identity(settings(training={"compile": True}), "0" * 10) != identity(settings(), "0" * 10)
