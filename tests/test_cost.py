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


def test_time_is_unknown_until_a_run_of_the_kind_ended_and_then_scales_with_the_operations(tmp_path):
    calibration = tmp_path / "calibration.json"
    short, long = (settings(training={"max_steps": steps}) for steps in (10, 30))
    assert cost.seconds(short, calibration) is None
    assert cost.seconds(settings(training={"max_steps": 0}), calibration) == 0
    for measured in (4.0, 5.0, 60.0):  # one run met a busy machine: the median does not care
        cost.calibrate(short, measured, calibration)
    assert cost.seconds(long, calibration) == pytest.approx(15)
    assert cost.seconds(settings("causal_lm"), calibration) is None
