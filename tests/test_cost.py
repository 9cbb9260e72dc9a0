"""The cost of a run before it runs, against the real thing."""

import pytest

from ablations import cost
from ablations.measures.settings import LayerChangeSettings, TokenInformationSettings, ValidationSettings
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


def test_masked_lm_needs_the_top_of_its_last_block_at_predicted_positions_only():
    run = settings("masked_lm", encoder={"num_hidden_layers": 2, "hidden_size": 16})
    below = 4 * 16 * 16 + 2 * 16 * 64  # the first block, and the second's keys and values
    everywhere = below + 2 * 16 * 16
    predicted = (
        2 * 16 * 16 + 2 * 16 * 64 + 16 * 16 + 16 * 320
    )  # its queries, output and feed-forward, and the head
    assert cost.flops(run) == pytest.approx(6 * (everywhere + 0.15 * predicted) * 12 * 128)


def test_other_work_is_what_the_spec_asks_for():
    measures = [
        LayerChangeSettings(kind="layer_change", tokens=1000),
        TokenInformationSettings(kind="token_information", tokens=90_000, clusters=10),
        ValidationSettings(kind="validation", translations=7),
    ]
    run = settings("translation", training={"max_steps": 10, "validate_every": 4})
    work = cost.other_work(run, measures, validation_tokens=5000)
    layers = run.encoder.num_hidden_layers + 1
    assert work == {
        "layer_change": 1000 * layers,
        "token_information": 5000 * layers * 10,  # there are no more
        "translation": 7 * run.objective.decoder.num_hidden_layers,
        "evaluation": pytest.approx((3 + 1) * 5000 * cost.flops(run) / (10 * 128) / 3),
    }
    masked = cost.other_work(settings(training={"max_steps": 0}), measures, validation_tokens=5000)
    # One evaluation, and one for each of masked, kept and replaced tokens.
    one = cost.evaluation_work(settings(), tokens=5000)
    assert masked["evaluation"] == pytest.approx(4 * one)
    assert "translation" not in cost.other_work(settings(), measures, validation_tokens=5000)
    assert cost.other_work(settings(training={"max_steps": 0}), [], validation_tokens=5000) == {}
