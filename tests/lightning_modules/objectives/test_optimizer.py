"""Optimisers against plain references, which weights go by which, and the learning rate of each step."""

import math
from typing import get_args

import pytest
import torch

from lightning_modules.config import TrainingSettings
from lightning_modules.objectives import build
from lightning_modules.objectives.optimizer import JoinedOptimizers, learning_rate_factor
from tests.support.tiny_text import settings

RATE, DECAY, BETA1, BETA2, EPSILON = 1e-2, 0.1, 0.8, 0.95, 1e-8
TRAINING = {
    "learning_rate": RATE,
    "weight_decay": DECAY,
    "adam_beta1": BETA1,
    "adam_beta2": BETA2,
    "adam_epsilon": EPSILON,
}
KINDS = {"masked_lm": {"head": "linear"}, "translation": {"head": "linear"}, "replaced_token": {}}

SCHEDULES = get_args(TrainingSettings.model_fields["schedule"].annotation)


def prepared(optimizer, tokens, kind="masked_lm", *, dtype=torch.float64, **training):
    run = settings(kind, objective=KINDS.get(kind, {}), training=TRAINING | {"optimizer": optimizer} | training)
    objective = build(run, tokens).to(dtype)
    return objective, objective.configure_optimizers()["optimizer"]


def draw_gradients(objective, step):
    rng = torch.Generator().manual_seed(step)
    for weight in objective.parameters():
        weight.grad = torch.randn(weight.shape, generator=rng, dtype=torch.float64).to(weight.dtype)


def is_table(name):
    return name.endswith(("tokens.weight", "positions.weight"))


def is_hidden(name, weight):
    return ".blocks." in name and weight.ndim == 2


def adamw(weight, gradients, decay):
    """Loshchilov and Hutter 2019, algorithm 2, line by line."""
    mean = square = torch.zeros_like(weight)
    for step, gradient in enumerate(gradients, start=1):
        weight = weight - RATE * decay * weight
        mean = BETA1 * mean + (1 - BETA1) * gradient
        square = BETA2 * square + (1 - BETA2) * gradient**2
        root = (square / (1 - BETA2**step)).sqrt()
        weight = weight - RATE * mean / (1 - BETA1**step) / (root + EPSILON)
    return weight


def sgd(weight, gradients, decay, *, momentum, nesterov):
    velocity = torch.zeros_like(weight)
    for gradient in gradients:
        whole = gradient + decay * weight
        velocity = momentum * velocity + whole
        weight = weight - RATE * (whole + momentum * velocity if nesterov else velocity)
    return weight


def orthogonal(matrix, steps):
    """The Newton-Schulz iteration of Jordan et al. 2024, along the shorter side."""
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonal(matrix.T, steps).T
    x = matrix / matrix.norm()
    for _ in range(steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


def muon(weight, gradients, decay, *, momentum, nesterov, steps, adjust):
    mean = torch.zeros_like(weight)
    for gradient in gradients:
        mean = momentum * mean + (1 - momentum) * gradient
        ahead = momentum * mean + (1 - momentum) * gradient if nesterov else mean
        outputs, inputs = weight.shape
        factor = 0.2 * math.sqrt(max(outputs, inputs)) if adjust else math.sqrt(max(1, outputs / inputs))
        weight = weight - RATE * decay * weight - RATE * factor * orthogonal(ahead, steps)
    return weight


def require_equal(objective, optimizer, reference):
    """Five steps with drawn gradients end where the reference ends, for each weight by its name."""
    before = {name: weight.detach().clone() for name, weight in objective.named_parameters()}
    gradients = {name: [] for name in before}
    for step in range(5):
        draw_gradients(objective, step)
        for name, weight in objective.named_parameters():
            gradients[name].append(weight.grad.clone())
        optimizer.step()
    for name, weight in objective.named_parameters():
        decay = DECAY if weight.ndim == 2 and not is_table(name) else 0.0
        expected = reference(name, before[name], gradients[name], decay)
        torch.testing.assert_close(weight.detach(), expected, atol=1e-9, rtol=0, msg=name)  # float64 algebra
        assert float((expected - before[name]).abs().max()) > 1e-3, name


@pytest.mark.parametrize("kind", KINDS)
def test_adamw_is_that_of_the_paper(kind, tokens):
    objective, optimizer = prepared("adamw", tokens, kind)
    require_equal(objective, optimizer, lambda name, *rest: adamw(*rest))


@pytest.mark.parametrize("own", [{}, {"momentum": 0.7, "nesterov": True}, {"momentum": 0.0}])
def test_sgd_adds_its_weight_decay_to_the_gradient(own, tokens):
    objective, optimizer = prepared({"kind": "sgd", **own}, tokens)
    own = {"momentum": 0.9, "nesterov": False} | own
    require_equal(objective, optimizer, lambda name, *rest: sgd(*rest, **own))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "own", [{}, {"momentum": 0.7, "nesterov": False, "ns_steps": 3, "adjust_lr_fn": "original"}], ids=str
)
def test_muon_is_for_the_matrices_of_blocks_and_adamw_for_the_rest(own, kind, tokens, monkeypatch):
    """Torch's Muon computes in bf16; here in float64, so that only its algebra is compared."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda x: x.double().clone())
    objective, optimizer = prepared({"kind": "muon", **own}, tokens, kind)
    own = {"momentum": 0.95, "nesterov": True, "ns_steps": 5, "adjust_lr_fn": "match_rms_adamw"} | own
    steps, adjust = own.pop("ns_steps"), own.pop("adjust_lr_fn") == "match_rms_adamw"
    hidden = {name for name, weight in objective.named_parameters() if is_hidden(name, weight)}
    assert len(hidden) > 6

    def reference(name, *rest):
        return muon(*rest, steps=steps, adjust=adjust, **own) if name in hidden else adamw(*rest)

    require_equal(objective, optimizer, reference)


def test_a_step_of_muon_has_singular_values_near_one_and_one_of_sgd_has_not(tokens):
    flat = {"momentum": 0.0, "nesterov": False}
    spread = {}
    for kind, factor in (("muon", 0.2 * math.sqrt(64)), ("sgd", 1.0)):
        objective, optimizer = prepared({"kind": kind, **flat}, tokens, dtype=torch.float32, weight_decay=0.0)
        weight = objective.encoder.blocks[0].feed_forward.expand.weight  # 64 x 16
        before = weight.detach().clone()
        draw_gradients(objective, 0)
        optimizer.step()
        values = torch.linalg.svdvals((before - weight.detach()) / RATE / factor)
        spread[kind] = float(values.min()), float(values.max())
    assert 0.6 < spread["muon"][0] < spread["muon"][1] < 1.3  # about 0.7 to 1.2 by the paper, and bf16
    assert spread["sgd"][1] > 5 * spread["muon"][1]


@pytest.mark.parametrize("kind", ["adamw", "muon", "sgd"])
def test_an_optimiser_goes_on_from_its_saved_state_to_the_bit(kind, tokens):
    (whole, its), (pieces, first) = (prepared(kind, tokens, dtype=torch.float32) for _ in range(2))
    optimizers = {0: first, 1: first}
    for step in range(4):
        if step == 2:
            saved = first.state_dict()
            second = pieces.configure_optimizers()["optimizer"]
            second.load_state_dict(saved)
            optimizers |= {2: second, 3: second}
        for objective, optimizer in ((whole, its), (pieces, optimizers[step])):
            for group in optimizer.param_groups:
                group["lr"] = RATE / (1 + step)  # as a schedule sets it
            draw_gradients(objective, step)
            optimizer.step()
    for name, weight in whole.named_parameters():
        assert torch.equal(weight, dict(pieces.named_parameters())[name]), name
    assert isinstance(its, JoinedOptimizers) == (kind == "muon")


def factors(schedule, *, steps, warmup):
    training = TrainingSettings(schedule=schedule, max_steps=steps, warmup_steps=warmup)
    return [learning_rate_factor(step, training) for step in range(steps + 1)]


def test_the_schedule_warms_up_and_decays_to_zero():
    linear = factors("linear", steps=10, warmup=4)
    assert linear[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert linear[5:] == pytest.approx([5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0])
    assert factors("linear", steps=10, warmup=0)[0] == 1


def test_the_schedule_of_the_authors_is_their_formula():
    """4 width^-0.5 min(t^-0.5, t 16,000^-1.5) at step t from 1, with the peak that it has at step 16,000."""
    width, warmup = 512, 16_000
    peak = 4 * (width * warmup) ** -0.5
    assert peak == pytest.approx(1.398e-3, abs=5e-7)
    ours = factors("inverse_sqrt", steps=64_000, warmup=warmup)
    for number in (1, 100, 15_999, 16_000, 16_001, 64_000):
        theirs = 4 * width**-0.5 * min(number**-0.5, number * warmup**-1.5)
        assert peak * ours[number - 1] == pytest.approx(theirs, rel=1e-12)
    assert factors("inverse_sqrt", steps=4, warmup=0)[3] == 0.5


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
