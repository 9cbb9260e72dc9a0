"""The cost of a run before it runs, against the real thing."""

import pytest

from ablations import cost
from lightning_modules.objectives import build
from tests.conftest import settings


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "translation"])
@pytest.mark.parametrize("encoder", [{}, {"positions": "none"}, {"norm": "pre", "intermediate_size": 24}], ids=str)
def test_parameters_are_those_of_the_module(kind, encoder, tokens):
    run = settings(kind, encoder=encoder)
    assert cost.parameters(run) == sum(p.numel() for p in build(run, tokens).parameters())


def test_operations_are_six_a_weight_and_token():
    run = settings("causal_lm", encoder={"num_hidden_layers": 2, "hidden_size": 16})
    matrices = 2 * (4 * 16 * 16 + 2 * 16 * 64) + 16 * 16 + 16 * 320
    assert cost.flops(run) == 6 * matrices * 12 * 128
    assert cost.flops(settings("masked_lm")) < cost.flops(run) < cost.flops(settings("translation"))
    assert cost.flops(settings(training={"max_steps": 0})) == 0
