"""Compiled blocks compute what the blocks say, only where a run asks for it, and only in its steps."""

from functools import partialmethod

import pytest
import torch
from torch._dynamo.utils import counters

from ablations.runs.identity import run_identity
from lightning_modules.model.encoder import DecoderBlock, EncoderBlock
from lightning_modules.objectives import build
from lightning_modules.training import fit
from lightning_modules.training.data_module import RunData, evaluate_parts
from lightning_modules.training.fit import as_written, compile_blocks
from tests.support.plain_step import problem, require_equal
from tests.support.tiny_text import settings

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles

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


def compile_with(backend, monkeypatch):
    """Let blocks be compiled as ever, but for what makes machine code of the graphs."""
    for block in (EncoderBlock, DecoderBlock):
        monkeypatch.setattr(block, "compile", partialmethod(torch.nn.Module.compile, backend=backend))


@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",  # the graphs of both directions, in torch's own operations
        pytest.param("inductor", marks=pytest.mark.slow),  # as in training, which takes a compiler of C++ a minute
    ],
)
@pytest.mark.parametrize(("kind", "norm"), [("masked_lm", "post"), ("translation", "pre")])
def test_a_compiled_step_is_the_plain_thing(kind, norm, backend, tokens, monkeypatch):
    compile_with(backend, monkeypatch)
    objective, batch = problem(tokens, kind, norm, compile=True)
    compile_blocks(objective, GPU)
    assert compiled(objective) == (2 if kind == "masked_lm" else 3)
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


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_evaluations_of_a_compiled_module_have_the_bits_of_any_other(backend, tokens, monkeypatch):
    compile_with(backend, monkeypatch)
    run = settings(encoder={"dropout": 0.0}, training={"compile": True})
    plain, objective = build(run, tokens), build(run, tokens)
    compile_blocks(objective, GPU)
    objective.training_step(RunData(objective, tokens).batch(0), 0)
    graphs = counters["stats"]["unique_graphs"]
    assert graphs > 0
    with as_written(objective):
        assert (
            evaluate_parts(objective, tokens.validation)["loss"]
            == evaluate_parts(plain, tokens.validation)["loss"]
        )
    assert counters["stats"]["unique_graphs"] == graphs
    evaluate_parts(objective, tokens.validation)  # else one more for each kind of block would be made
    assert counters["stats"]["unique_graphs"] > graphs


@pytest.fixture
def quick(monkeypatch):
    """Graphs that run operation by operation, and so take no time to compile."""
    compile_with("eager", monkeypatch)


def test_unlike_runs_of_one_process_are_all_compiled(quick, tokens):
    """Each width, norm and shape has graphs of its own, and torch gives up where there are too many."""
    for width in (16, 32, 48):
        for norm in ("post", "pre"):
            encoder = {"hidden_size": width, "norm": norm, "dropout": 0.0}
            run = settings(encoder=encoder, training={"compile": True})
            objective = build(run, tokens)
            compile_blocks(objective, GPU)
            data = RunData(objective, tokens)
            for step in range(4):
                objective.training_step(data.batch(step), 0)
    assert counters["stats"]["unique_graphs"] > 8
    assert not [reason for reason in counters["unimplemented"] if "recompile_limit" in reason]


def test_a_compiled_run_ends_with_the_same_bits_and_its_validations_use_no_graph(
    quick, make_run, tokens, monkeypatch
):
    made, ended = [], []

    def counted(*args, **kwargs):
        graphs = counters["stats"]["unique_graphs"]
        found = evaluate_parts(*args, **kwargs)
        made.append((graphs, counters["stats"]["unique_graphs"]))
        return found

    evaluate_parts = fit.evaluate_parts
    monkeypatch.setattr(fit, "evaluate_parts", counted)
    monkeypatch.setattr(fit, "compile_blocks", lambda objective, device: compile_blocks(objective, GPU))
    for compile in (False, True):
        run = settings(encoder={"dropout": 0.0}, training={"compile": compile})
        directory = make_run(run, f"compile-s0-{int(compile):010}")
        directory.checkpoints.mkdir(exist_ok=True)
        fit.train(directory, tokens, threads=1, accelerator="cpu")
        ended.append(directory.last_weights.read_bytes())
    assert ended[0] == ended[1]
    assert [before == after for before, after in made] == [True] * 4
    assert (made[0][0], made[-1][0] > 0) == (0, True)


@pytest.mark.parametrize("with_trainer", [True, False])
def test_steps_are_compiled_for_the_device_that_does_them(with_trainer, make_run, tokens, monkeypatch):
    asked = []
    monkeypatch.setattr(fit, "compile_blocks", lambda objective, device: asked.append(device))
    run = settings(training={"max_steps": 1})
    if with_trainer:
        directory = make_run(run)
        directory.checkpoints.mkdir(exist_ok=True)
        fit.train(directory, tokens, accelerator="cpu")
    else:
        fit.bare_step(run, tokens)
    assert asked == ["cpu"]


def test_runs_that_are_not_compiled_keep_the_identity_they_had():
    written = settings(training={"compile": False})
    assert run_identity(written, "0" * 10) == run_identity(settings(), "0" * 10)
    assert run_identity(settings(training={"compile": True}), "0" * 10) != run_identity(settings(), "0" * 10)
