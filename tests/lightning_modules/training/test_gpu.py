"""A step of training on a GPU.

Without one it is followed with tensors that say they lie there and hold nothing: torch refuses what would mix
devices, and what would make the program wait for a number.
"""

import json
from typing import get_args

import pytest
import torch
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from lightning_modules.config.objectives import OBJECTIVES
from lightning_modules.objectives import build
from lightning_modules.objectives.objective import Objective
from lightning_modules.training.data_module import RunData
from lightning_modules.training.fit import compile_blocks, train
from tests.support.plain_step import problem, require_equal
from tests.support.tiny_text import settings

KINDS = [get_args(each.model_fields["kind"].annotation)[0] for each in OBJECTIVES]
ELSEWHERE = "meta"  # a device whose tensors hold nothing; like a GPU it is not the CPU


@pytest.fixture
def fake_step(monkeypatch):
    """Forward, backward and clipping of a run that is not on the CPU; returns the loss."""
    monkeypatch.setattr(Objective, "initialise", lambda self: None)  # weights are drawn on the CPU

    def step(kind, tokens):
        run = settings(kind)
        source = build(run, tokens)
        batch = RunData(source, tokens).batch(0)
        with FakeTensorMode() as fake:
            with torch.device(ELSEWHERE):
                objective = build(run, tokens).train()
            batch = {name: fake.from_tensor(tensor).to(ELSEWHERE) for name, tensor in batch.items()}
            loss = objective.training_step(batch, 0)["loss"]
            loss.backward()
            objective.configure_gradient_clipping(objective.configure_optimizers()["optimizer"])
            return loss

    return step


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_stays_on_its_device_and_waits_for_no_number(kind, fake_step, tokens):
    assert fake_step(kind, tokens).device.type == ELSEWHERE


@pytest.mark.parametrize("leak", ["a number is waited for", "a tensor is left behind"])
def test_it_would_tell(leak, tokens, fake_step, monkeypatch):
    def spoilt(self, batch, *places_N):
        top_ND = encode_at(self, batch, *places_N)
        return top_ND * (top_ND.sum().item() if leak == "a number is waited for" else torch.ones(len(top_ND), 1))

    encode_at = Objective.encode_at
    monkeypatch.setattr(Objective, "encode_at", spoilt)
    with pytest.raises((DataDependentOutputException, RuntimeError)):
        fake_step("masked_lm", tokens)


def last_validation(directory):
    lines = [json.loads(line) for line in directory.metrics.read_text().splitlines()]
    return next(line["val/loss"] for line in reversed(lines) if "val/loss" in line)


@pytest.fixture
def graphs():
    """How many were compiled."""
    torch._dynamo.reset()
    counters.clear()
    return lambda: counters["stats"]["unique_graphs"]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "translation"])
def test_a_step_on_a_gpu_is_the_plain_thing(kind, compile, graphs, tokens):
    objective, batch = problem(tokens, kind, "post", compile=compile)
    objective.to("cuda")
    compile_blocks(objective, "cuda")
    require_equal(objective, {name: tensor.to("cuda") for name, tensor in batch.items()})
    assert (graphs() > 0) == compile


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compile", [False, True])
def test_a_run_learns_the_same_on_a_gpu(compile, graphs, make_run, tokens):
    losses = []
    for accelerator in ("cpu", "gpu"):
        run = settings(encoder={"dropout": 0.0}, training={"compile": compile})
        directory = make_run(run, f"{accelerator}-s0-0000000000")
        directory.checkpoints.mkdir(exist_ok=True)
        train(directory, tokens, accelerator=accelerator)
        losses.append(last_validation(directory))
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert (graphs() > 0) == compile
