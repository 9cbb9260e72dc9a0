"""The learning rate of each step, for every schedule."""

import math
from typing import get_args

import pytest

from lightning_modules.config import TrainingSettings
from lightning_modules.objectives import build
from lightning_modules.objectives.learning_rate import (
    learning_rate_factor,
    warmup_then_decay,
    warmup_then_inverse_sqrt,
)
from tests.support.tiny_text import settings

SCHEDULES = get_args(TrainingSettings.model_fields["schedule"].annotation)


def factors(schedule, *, steps, warmup):
    training = TrainingSettings(schedule=schedule, max_steps=steps, warmup_steps=warmup)
    return [learning_rate_factor(step, training) for step in range(steps + 1)]


def test_the_schedule_warms_up_and_decays_to_zero():
    factors = [warmup_then_decay(step, 4, 10) for step in range(11)]
    assert factors[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert factors[5:] == pytest.approx([5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0])
    assert warmup_then_decay(0, 0, 10) == 1


def test_the_schedule_of_the_authors_is_their_formula():
    """4 width^-0.5 min(t^-0.5, t 16,000^-1.5) at step t from 1, with the peak that it has at step 16,000."""
    width, warmup = 512, 16_000
    peak = 4 * (width * warmup) ** -0.5
    assert peak == pytest.approx(1.398e-3, abs=5e-7)
    for number in (1, 100, 15_999, 16_000, 16_001, 64_000, 10**6):
        theirs = 4 * width**-0.5 * min(number**-0.5, number * warmup**-1.5)
        assert peak * warmup_then_inverse_sqrt(number - 1, warmup) == pytest.approx(theirs, rel=1e-12)
    assert warmup_then_inverse_sqrt(3, 0) == 0.5


def test_a_cosine_is_half_a_wave_from_the_end_of_the_warm_up_to_the_last_step():
    found = factors("cosine", steps=10, warmup=4)
    wave = [(1 + math.cos(math.pi * step / 6)) / 2 for step in range(7)]
    assert found == pytest.approx([0.25, 0.5, 0.75, 1.0, *wave], abs=1e-15)  # rounding of float64
    assert found[7] == pytest.approx(0.5)  # half of the peak at half of the way


def test_a_constant_rate_stays_at_its_peak():
    assert factors("constant", steps=7, warmup=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]


def test_warm_up_stable_decay_falls_over_the_last_tenth_alone():
    found = factors("wsd", steps=40, warmup=5)
    assert found == pytest.approx([0.2, 0.4, 0.6, 0.8, *[1.0] * 33, 0.75, 0.5, 0.25, 0.0], abs=1e-15)
    assert sum(factor < 1 for factor in factors("wsd", steps=1000, warmup=0)) == 100


def test_the_decay_is_no_longer_than_what_the_warm_up_leaves():
    """Then it is the linear schedule."""
    for steps, warmup in ((40, 38), (40, 40), (3, 2), (1, 0), (1, 1)):
        assert factors("wsd", steps=steps, warmup=warmup) == factors("linear", steps=steps, warmup=warmup)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_is_a_share_of_its_peak_and_reaches_it(schedule):
    for steps, warmup in ((0, 0), (1, 0), (1, 1), (2, 1), (12, 0), (12, 12), (100, 10)):
        found = factors(schedule, steps=steps, warmup=warmup)
        assert all(0 <= factor <= 1 for factor in found)
        if steps:
            assert max(found) == 1
            assert found[: warmup or 1] == [(step + 1) / (warmup or 1) for step in range(warmup or 1)]
            assert found[steps - 1] > 0  # the last step learns


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_optimiser_has_the_learning_rate_of_the_schedule(schedule, tokens):
    training = {"schedule": schedule, "max_steps": 20, "warmup_steps": 4}
    objective = build(settings(training=training), tokens)
    built = objective.configure_optimizers()
    optimizer, schedule = built["optimizer"], built["lr_scheduler"]["scheduler"]
    for step in range(20):
        expected = 1e-3 * learning_rate_factor(step, objective.run.training)
        assert optimizer.param_groups[0]["lr"] == objective.learning_rate(step) == expected
        optimizer.step()
        schedule.step()
