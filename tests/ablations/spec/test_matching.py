"""What `match` holds equal, against what runs really predict."""

import numpy as np
import pytest

from ablations.errors import SpecError
from ablations.runs.identity import self_contained
from ablations.spec import grid
from ablations.spec.experiment import Experiment, Run
from lightning_modules.config import RunSettings, operations_per_token
from lightning_modules.config.contradictions import contradictions
from lightning_modules.config.masking import OwnSelection
from lightning_modules.data.token_store import prepare
from lightning_modules.model.heads import IGNORED
from lightning_modules.objectives import build
from lightning_modules.objectives.predictions import allowed_part, predictions_per_token
from lightning_modules.training.data_module import RunData
from tests.support.errors import error_text
from tests.support.tiny_text import SECTIONS, settings

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
    assert grid.matched(experiment("steps", ARMS), runs, text=pytest.fail) is runs


def test_predictions_are_those_of_the_first_arm(tokens):
    spec = experiment("predictions", ARMS)
    matched = grid.matched(spec, grid.runs(spec), text=lambda run: tokens)
    steps = {run.arm: run.settings.training.max_steps for run in matched}
    assert steps["mlm"] == 1000
    assert steps["untrained"] == 0
    assert steps["mlm-40"] == round(1000 * 0.15 / 0.4)
    predicted = {run.arm: predictions_per_token(run.settings, tokens) * steps[run.arm] for run in matched}
    # Equal up to the rounding of steps.
    assert predicted["clm"] == pytest.approx(predicted["mlm"], rel=0.5 / steps["clm"])
    clm = next(run.settings.training for run in matched if run.arm == "clm")
    assert clm.warmup_steps == round(100 * clm.max_steps / 1000)


def test_operations_are_those_of_the_first_arm():
    spec = experiment("flops", ARMS)
    matched = grid.matched(spec, grid.runs(spec), text=pytest.fail)
    work = [
        operations_per_token(run.settings) * run.settings.training.max_steps
        for run in matched
        if run.settings.training.max_steps
    ]
    assert work == pytest.approx([work[0]] * len(work), rel=0.002)  # half a step in 300 or more


@pytest.mark.parametrize(
    ("steps", "at", "ratios"),
    [
        (2000, (40, 60, 1998), (0.4, 0.2, 0.3)),
        (500, (10, 15), (0.4, 0.2)),  # 499.5 is rounded to 500, but the last of 500 steps has the number 499
        (50, (1, 2), (0.4, 0.2)),
        (25, (1,), (0.2,)),
        (1, (), ()),
    ],
)
def test_a_schedule_with_too_few_steps_loses_the_ratios_that_have_none(steps, at, ratios):
    schedule = {"kind": "steps", "at": [20, 30, 999], "ratios": [0.4, 0.2, 0.3]}
    run = settings("masked_lm", objective={"masking": {"schedule": schedule}}, training={"max_steps": 1000})
    scaled = grid.lasting(Run("x", 0, run), steps).settings
    kept = scaled.objective.masking.schedule
    assert ((kept.at, kept.ratios) if kept else ((), ())) == (at, ratios)
    assert RunSettings.model_validate_json(scaled.model_dump_json()) == scaled
    assert contradictions(scaled) == []


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
    expected = predictions_per_token(run, tokens)
    # 60 steps of 128 tokens: each of about 700 sentences rounds its count, with a variance of at most 1/4; which
    # sentences are causal is worth about four standard errors more, and the sample differs a little from all text.
    spread = 4 * np.sqrt(700 / 4) / seen + (0.04 if objective["kind"] == "mixture" else 0.012)
    assert predicted / seen == pytest.approx(expected, abs=spread)


LANGUAGE = {"kind": "language", "train": 400, "validation": 50, "test": 10, "vocab_size": 300, "max_length": 64}
CLOZE = {"kind": "cloze", "part_of_speech": ["ADJ"]}
COUNTED = [
    ({"select": "span"}, {}),
    ({"select": CLOZE}, {}),
    ({"select": CLOZE, "count": "fixed"}, {}),
    ({"count": "fixed"}, {}),
    ({"count": "independent"}, {}),
    ({"count": "fixed", "predict": 0.4}, {}),
    ({"schedule": {"kind": "steps", "at": [20, 50], "ratios": [0.6, 1.0]}, "predict": 0.4}, {}),
    ({"schedule": {"kind": "cosine", "to": 0.6}, "count": "fixed"}, {}),
    ({}, {"input_format": "segment_pair"}),
    ({}, {"input_format": "sentence_pair"}),
    ({}, {"input_format": "full_sentences"}),
    ({"select": CLOZE}, {"word_order": "corpus", "sentences": 300}),
]


def on_language(masking, **training):
    return RunSettings.model_validate(
        {
            "data": LANGUAGE,
            "encoder": SECTIONS["encoder"],
            "objective": {"kind": "masked_lm", "masking": masking},
            "training": SECTIONS["training"] | {"max_steps": 200, "tokens_per_step": 512} | training,
            "seed": 0,
        }
    )


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language")
    return prepare(on_language({}).data, data_root=folder, store=folder)


@pytest.mark.parametrize(("masking", "training"), COUNTED, ids=str)
def test_predictions_are_counted_in_the_text(masking, training, language, tmp_path):
    """Where few words may be hidden, a count is rounded, or a format has fewer special tokens."""
    steps = 200
    run = self_contained(Run("arm", 0, on_language(masking, **training)), tmp_path).settings
    data = RunData(build(run, language), language)
    batches = [data.batch(step) for step in range(steps)]
    seen = sum(int(batch["source_tokens"]) for batch in batches)
    predicted = np.array([int((batch["label_N"] != IGNORED).sum()) for batch in batches])
    expected = predictions_per_token(run, language)
    # Four standard errors of a step's predictions around the ratio of that step, which changes by schedule, and
    # half a percent for the part of the last epoch that was not read.
    around = predicted - np.convolve(np.pad(predicted, 5, mode="edge"), np.ones(11) / 11, mode="valid")
    spread = 4 * around.std() * np.sqrt(steps) / seen + 0.005 * expected
    assert predicted.sum() / seen == pytest.approx(expected, abs=spread)


def test_few_words_of_a_lexicon_make_a_run_as_long_as_its_predictions_need(language, tmp_path):
    spec = Experiment.model_validate(
        {
            "name": "x",
            "version": 1,
            "data": LANGUAGE,
            **SECTIONS,
            "training": SECTIONS["training"] | {"max_steps": 100, "tokens_per_step": 512},
            "arms": {
                "mlm": {"objective": {"kind": "masked_lm"}},
                "adjectives": {"objective": {"kind": "masked_lm", "masking": {"select": CLOZE}}},
            },
            "seeds": [0, 1],
            "match": "predictions",
        }
    )
    runs = tuple(self_contained(run, tmp_path) for run in grid.runs(spec))
    matched = grid.matched(spec, runs, text=lambda run: language)
    steps = [run.settings.training.max_steps for run in matched]
    assert steps[:2] == [100, 100]
    assert steps[2] == steps[3] > 150
    made = []
    for run in matched[::2]:
        data = RunData(build(run.settings, language), language)
        asked = (data.batch(step)["label_N"] for step in range(run.settings.training.max_steps))
        made.append(sum(int((label_N != IGNORED).sum()) for label_N in asked))
    # Some 4,000 sentences that each round their count: four standard errors are 130 of 7,000.
    assert made[1] == pytest.approx(made[0], rel=0.02)


def masked_steps(of_second, language, folder, first=ARMS["mlm"]["objective"]):
    """Return runs on the built-in language that match in operations: 1,000 steps, and those of another arm."""
    arms = {"first": {"objective": first}, "second": {"objective": of_second}}
    spec = experiment("flops", arms).model_dump(exclude_unset=True)
    training = SECTIONS["training"] | {"max_steps": 1000, "tokens_per_step": 512}
    spec = Experiment.model_validate(spec | SECTIONS | {"data": LANGUAGE, "training": training})
    runs = tuple(self_contained(run, folder) for run in grid.runs(spec))
    return grid.matched(spec, runs, text=lambda run: language)


def test_operations_of_a_lexicon_are_those_of_the_tokens_that_it_hides(language, tmp_path):
    """Adjectives are few: with the ratio in place of their number, an arm would stop before it did the work."""
    matched = masked_steps({"kind": "masked_lm", "masking": {"select": CLOZE, "ratio": 0.5}}, language, tmp_path)
    data = RunData(build(matched[1].settings, language), language)
    batches = [data.batch(step) for step in range(60)]
    hidden = sum(int((batch["label_N"] != IGNORED).sum()) for batch in batches)
    seen = sum(int(batch["source_tokens"]) for batch in batches)
    text = 1 - 2 * len(language.train) / len(language.train.ids)  # a sentence has two special tokens
    shares = [0.15, hidden / (seen * text)]
    width, inner, vocabulary = 16, matched[0].settings.encoder.intermediate_size, LANGUAGE["vocab_size"]
    assert matched[0].settings.encoder.num_hidden_layers == 2
    block, keys_and_values = 4 * width**2 + 2 * width * inner, 2 * width**2
    of_token = [
        block + keys_and_values + share * (block - keys_and_values + width**2 + width * vocabulary)
        for share in shares
    ]
    assert shares[1] < 0.5 / 3
    steps = matched[1].settings.training.max_steps
    # Four standard errors of the share over 60 steps of some 80 sentences, each of which rounds its count.
    assert steps == pytest.approx(1000 * of_token[0] / of_token[1], rel=0.02)


class _All(OwnSelection):
    """Selection that leaves nothing out, though it could."""

    def allowed(self, tokens, split):
        return np.ones(len(split.ids), bool)


@pytest.mark.parametrize(
    "masking",
    [
        {},
        {"ratio": 0.4, "schedule": {"kind": "linear", "to": 0.1}},
        {"ratio": 0.3, "schedule": {"kind": "steps", "at": [200], "ratios": [0.6]}, "predict": 0.4},
        {"count": "fixed"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["masked_lm", "mixture", "replaced_token"])
def test_a_selection_that_leaves_nothing_out_changes_no_steps(kind, masking, language):
    objective = ARMS["mlm"]["objective"] | {"kind": kind, "masking": masking}
    run = on_language({}).model_copy(update={"objective": settings(kind, objective=objective).objective})
    whole = run.objective.masking.model_copy(update={"select": _All(kind="all")})
    other = run.model_copy(update={"objective": run.objective.model_copy(update={"masking": whole})})
    assert allowed_part(other, language) == allowed_part(run, language) == 1
    # Half of the predictions leave the encoder's other weights as they were: the number is a straight line.
    at = [operations_per_token(other, allowed=part) for part in (0.25, 0.5, 1.0)]
    assert at[2] == operations_per_token(run)
    assert at[1] - at[0] == pytest.approx((at[2] - at[1]) / 2)
    assert at[0] < at[1]


def test_operations_of_word_vectors_are_those_of_the_pairs_there_are(tokens):
    """A window of 5 would make 6 pairs of every token in a text without sentences of which nothing is left out."""
    spec = experiment("flops", {"mlm": ARMS["mlm"], "vectors": {"objective": {"kind": "skip_gram"}}})
    steps = {
        run.arm: run.settings.training.max_steps
        for run in grid.matched(spec, grid.runs(spec), text=lambda run: tokens)
    }
    run = settings("skip_gram", training={"max_steps": 60})
    data = RunData(build(run, tokens), tokens)
    batches = [data.batch(step) for step in range(60)]
    seen = sum(int(batch["source_tokens"]) for batch in batches)
    per_step = np.array([int((batch["centre_P"] > 0).sum()) for batch in batches])
    pairs = predictions_per_token(run, tokens)
    assert pairs == pytest.approx(per_step.sum() / seen, abs=4 * per_step.std() * np.sqrt(60) / seen)
    assert pairs < 6 / 2
    ours, reference = operations_per_token(run, pairs=pairs), operations_per_token(settings())
    assert ours == pytest.approx(operations_per_token(run) * pairs / 6)
    assert steps["vectors"] == round(1000 * reference / ours)


def test_pairs_of_words_are_no_predicted_tokens(tokens):
    spec = experiment("predictions", {"mlm": ARMS["mlm"], "vectors": {"objective": {"kind": "skip_gram"}}})
    assert error_text(SpecError, lambda: grid.matched(spec, grid.runs(spec), text=lambda run: tokens)) == (
        "x: match: predictions is not possible for arm vectors, because it predicts pairs of words; write "
        "match: flops or match: steps, or give the arm an experiment of its own."
    )
