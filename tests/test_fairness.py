"""What `match` holds equal, against what runs really predict."""

import numpy as np
import pytest

from ablations import fairness, grid
from ablations.errors import SpecError
from ablations.spec import Experiment
from lightning_modules.cross_entropy import IGNORED
from lightning_modules.data.module import RunData
from lightning_modules.objectives import build
from lightning_modules.operations import operations_per_token
from tests.conftest import SECTIONS, settings

DATA = {"kind": "files", "train": "train.tsv", "validation": "validation.tsv", "target": "target"}


def experiment(match, arms):
    return Experiment.model_validate(
        {
            "name": "x",
            "version": 1,
            "data": DATA | {"vocab_size": 320, "max_length": 64},
            **SECTIONS,
            "training": SECTIONS["training"] | {"max_steps": 1000},
            "arms": arms,
            "seeds": [0],
            "match": match,
        }
    )


ARMS = {
    "mlm": {"objective": {"kind": "masked_lm"}},
    "clm": {"objective": {"kind": "causal_lm"}},
    "mlm-40": {"objective": {"kind": "masked_lm", "masking": {"ratio": 0.4}}},
    "untrained": {"objective": {"kind": "masked_lm"}, "training": {"max_steps": 0}},
}


def test_steps_are_left_alone():
    runs = grid.runs(experiment("steps", ARMS))
    assert fairness.matched(experiment("steps", ARMS), runs, report=pytest.fail) is runs


def test_predictions_are_those_of_the_first_arm(tokens):
    spec = experiment("predictions", ARMS)
    matched = fairness.matched(spec, grid.runs(spec), report=lambda run: tokens.report)
    steps = {run.arm: run.settings.training.max_steps for run in matched}
    assert steps["mlm"] == 1000
    assert steps["untrained"] == 0
    assert steps["mlm-40"] == round(1000 * 0.15 / 0.4)
    predicted = {
        run.arm: fairness.predictions_per_token(run.settings, tokens.report) * steps[run.arm] for run in matched
    }
    # Equal up to the rounding of steps.
    assert predicted["clm"] == pytest.approx(predicted["mlm"], rel=0.5 / steps["clm"])
    clm = next(run.settings.training for run in matched if run.arm == "clm")
    assert clm.warmup_steps == round(100 * clm.max_steps / 1000)


def test_operations_are_those_of_the_first_arm():
    spec = experiment("flops", ARMS)
    matched = fairness.matched(spec, grid.runs(spec), report=pytest.fail)
    work = [
        operations_per_token(run.settings) * run.settings.training.max_steps
        for run in matched
        if run.settings.training.max_steps
    ]
    assert work == pytest.approx([work[0]] * len(work), rel=0.002)  # half a step in 300 or more


PREDICTING = [
    {"kind": "masked_lm"},
    {"kind": "masked_lm", "masking": {"ratio": 0.15, "predict": 0.4}},
    {"kind": "masked_lm", "masking": {"ratio": 0.4, "schedule": {"kind": "linear", "to": 0.1}}},
    {"kind": "causal_lm"},
    {"kind": "translation"},
    {"kind": "mixture", "causal": 0.3},
    {"kind": "replaced_token"},
    {"kind": "replaced_token", "loss_on": "selected"},
    {"kind": "permutation_lm"},
    {"kind": "naive_bidirectional_lm"},
]


@pytest.mark.parametrize("objective", PREDICTING, ids=str)
def test_expected_predictions_are_those_that_are_made(objective, tokens):
    run = settings(objective["kind"], objective=objective, training={"max_steps": 60})
    data = RunData(build(run, tokens), tokens)
    seen = predicted = 0
    for step in range(60):
        batch = data.batch(step)
        seen += int(batch["source_tokens"])
        main = ["original_N"] if objective["kind"] == "replaced_token" else ["label_N", "next_label_N"]
        predicted += sum(int((batch[name] != IGNORED).sum()) for name in main if name in batch)
    expected = fairness.predictions_per_token(run, tokens.report)
    # 60 steps of 128 tokens: each of about 700 sentences rounds its count, with a variance of at most 1/4; which
    # sentences are causal is worth about four standard errors more, and the sample differs a little from all text.
    spread = 4 * np.sqrt(700 / 4) / seen + (0.04 if objective["kind"] == "mixture" else 0.012)
    assert predicted / seen == pytest.approx(expected, abs=spread)


def test_pairs_of_words_are_no_predicted_tokens(tokens):
    spec = experiment("predictions", {"mlm": ARMS["mlm"], "vectors": {"objective": {"kind": "skip_gram"}}})
    with pytest.raises(SpecError) as error:
        fairness.matched(spec, grid.runs(spec), report=lambda run: tokens.report)
    assert str(error.value) == (
        "x: match: predictions cannot hold for arm vectors, which predicts pairs of words; match flops or steps, "
        "or give the arm an experiment of its own."
    )
