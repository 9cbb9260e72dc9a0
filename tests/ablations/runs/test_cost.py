"""The cost of a run before it runs, against the real thing."""

import pytest

from ablations.measures.settings import (
    LayerChangeSettings,
    RunDistanceSettings,
    TokenInformationSettings,
    ValidationSettings,
)
from ablations.runs import cost
from ablations.runs.cost import ValidationText
from ablations.tasks.settings import ConditionalIndependenceSettings, FineTuningSettings, ParsingSettings
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


TEXT = ValidationText(tokens=5000, sentences=400)


def test_work_besides_steps_is_what_the_spec_asks_for():
    measures = [
        LayerChangeSettings(kind="layer_change", tokens=1000),
        TokenInformationSettings(kind="token_information", tokens=90_000, clusters=10),
        ValidationSettings(kind="validation", translations=7),
    ]
    run = settings("translation", training={"max_steps": 10, "validate_every": 4})
    layers = run.encoder.num_hidden_layers + 1
    evaluation = 5000 * cost.flops(run) / (10 * 128) / 3
    assert cost.training_work(run, validation=TEXT) == {"evaluation": pytest.approx(3 * evaluation)}
    assert cost.measuring_work(run, measures, validation=TEXT) == {
        "layer_change": 1000 * layers,
        "token_information": 5000 * layers * 10,  # there are no more
        "translation": 7 * run.objective.decoder.num_hidden_layers,
        "evaluation": pytest.approx(evaluation),
    }
    untrained = settings(training={"max_steps": 0})
    masked = cost.measuring_work(untrained, measures, validation=TEXT)
    # One evaluation, and one for each of masked, kept and replaced tokens.
    assert masked["evaluation"] == pytest.approx(4 * cost.evaluation_work(settings(), tokens=5000))
    assert "translation" not in masked
    assert cost.training_work(untrained, validation=TEXT) == {}
    assert cost.measuring_work(untrained, [], validation=TEXT) == {}


@pytest.mark.parametrize(("asked", "read"), [(100, 100), (3000, 400)], ids=["some of the text", "all there is"])
def test_hiding_neighbours_takes_three_forward_passes_at_each_ratio(asked, read):
    hiding = ConditionalIndependenceSettings(
        kind="conditional_independence", sentences=asked, ratios=(0.1, 0.2, 0.3, 0.4)
    )
    one = cost.evaluation_work(settings(), tokens=5000) * read / 400
    work = cost.measuring_work(settings(), [hiding], validation=TEXT)
    assert work == {"evaluation": pytest.approx(3 * 4 * one)}


def test_distances_read_both_runs_layer_by_layer_and_are_no_run_s_own_work():
    apart = RunDistanceSettings(kind="run_distance", tokens=1000)
    run = settings()
    assert cost.distance_work(apart, run, validation=TEXT) == 1000 * (run.encoder.num_hidden_layers + 1)
    assert cost.distance_work(apart, run, validation=TEXT._replace(tokens=70)) == 70 * 3
    assert cost.measuring_work(run, [apart], validation=TEXT) == {}


def test_of_tasks_nothing_is_counted_and_no_rate_would_tell():
    asked = [
        FineTuningSettings(kind="fine_tuning", tasks=("rte",)),
        ParsingSettings(kind="parsing"),
        ValidationSettings(kind="validation"),
        LayerChangeSettings(kind="layer_change"),
        RunDistanceSettings(kind="run_distance"),
    ]
    assert [cost.rate_of(one) for one in asked] == [None, None, "evaluation", "layer_change", "layer_change"]
    assert cost.measuring_work(settings(), asked[:2], validation=TEXT) == {}
