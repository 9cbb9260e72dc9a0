"""The cost of a run before it runs, against the real thing."""

import pytest

from ablations.measures.settings import LayerChangeSettings
from ablations.runs import cost
from lightning_modules.config import parameters
from lightning_modules.objectives import build
from tests.support.tiny_text import settings


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "translation"])
@pytest.mark.parametrize("encoder", [{}, {"positions": "none"}, {"norm": "pre", "intermediate_size": 24}], ids=str)
def test_parameters_are_those_of_the_module(kind, encoder, tokens):
    run = settings(kind, encoder=encoder)
    assert parameters(run) == sum(p.numel() for p in build(run, tokens).parameters())


def test_operations_are_six_a_weight_and_token():
    run = settings("causal_lm", encoder={"num_hidden_layers": 2, "hidden_size": 16})
    matrices = 2 * (4 * 16 * 16 + 2 * 16 * 64) + 16 * 16 + 16 * 320
    assert cost.flops(run) == 6 * matrices * 12 * 128
    assert cost.flops(settings("masked_lm")) < cost.flops(run) < cost.flops(settings("translation"))
    assert cost.flops(settings(training={"max_steps": 0})) == 0


def test_masked_lm_needs_the_top_of_its_last_block_at_predicted_positions_only():
    run = settings("masked_lm", encoder={"num_hidden_layers": 2, "hidden_size": 16})
    below = 4 * 16 * 16 + 2 * 16 * 64  # the first block, and the second's keys and values
    everywhere = below + 2 * 16 * 16
    predicted = (
        2 * 16 * 16 + 2 * 16 * 64 + 16 * 16 + 16 * 320
    )  # its queries, output and feed-forward, and the head
    assert cost.flops(run) == pytest.approx(6 * (everywhere + 0.15 * predicted) * 12 * 128)


@pytest.mark.parametrize(("every", "times"), [(4, 3), (5, 2), (10, 1), (100, 1)])
def test_a_run_is_evaluated_at_its_end_too(every, times):
    assert cost.evaluations(settings(training={"max_steps": 10, "validate_every": every})) == times
    assert cost.evaluations(settings(training={"max_steps": 0})) == 0


@pytest.mark.parametrize(("steps", "keep", "saved"), [(10, "all", 6), (16, "all", 6), (0, "all", 1), (10, 2, 2)])
def test_checkpoints_are_those_of_0_the_powers_of_two_and_the_last(steps, keep, saved):
    run = settings(training={"max_steps": steps, "keep_checkpoints": keep})
    last, every = (LayerChangeSettings(kind="layer_change", checkpoints=which) for which in ("last", "all"))
    assert cost.measured_checkpoints(last, run) == 1
    assert cost.measured_checkpoints(every, run) == saved
