"""From the settings of a spec to rows of scores: every measure of tasks, on one run of the built-in language."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import TypeAdapter

from ablations.catalogue import Measure, caveats, for_run
from ablations.errors import ResultsError
from ablations.measures.reading.texts import Readings
from ablations.results import table
from ablations.runs import rows as run_rows
from ablations.runs.worker import measure, measure_rows
from ablations.tasks import linear
from ablations.tasks.datasets import TASKS
from ablations.tasks.examples import Source, examples_of, read_examples
from ablations.tasks.transfer.heads import FrozenStates
from lightning_modules.config import RunSettings
from lightning_modules.data import token_store
from lightning_modules.errors import DataError
from lightning_modules.objectives import build
from tests.support.errors import error_text
from tests.support.start_here import start_here
from tests.support.tiny_text import run_folder

MEASURES = TypeAdapter(list[Measure]).validate_python(
    [
        {"kind": "minimal_pairs", "pairs": 4},
        {"kind": "probing", "tasks": ["language_tense"], "effort": "quick", "examples": 60},
        {"kind": "structural_probe", "effort": "quick", "sentences": 30},
        {"kind": "frozen_features", "tasks": ["language_topic"], "effort": "quick", "examples": 40, "epochs": 1},
        {"kind": "baselines", "tasks": ["language_topic"], "effort": "quick", "examples": 60},
        {"kind": "parsing", "effort": "quick", "sentences": 3, "sweeps": 24, "longest": 5},
        {"kind": "conditional_independence", "sentences": 20, "ratios": [0.15]},
        {"kind": "retrieval", "candidates": 40, "training_pairs": 40, "epochs": 1},
        {"kind": "generation", "sentences": 10, "iterations": [1]},
    ]
)
FILES = TypeAdapter(list[Measure]).validate_python(
    [{"kind": "fine_tuning", "tasks": ["rte"], "effort": "quick"}, "minimal_pairs", "validation"]
)


def test_no_measure_hands_another_what_it_has_changed(tmp_path):
    source = Source(tmp_path, 0, None)
    first = examples_of("language_parts_of_speech", "test", source)
    expected = examples_of("language_parts_of_speech", "test", source)
    first.words[0].clear()
    first.answers.clear()
    assert examples_of("language_parts_of_speech", "test", source) == expected
    assert expected.answers


def settings(kind="masked_lm", **training):
    return RunSettings.model_validate(
        {
            "data": {"kind": "language", "train": 400, "validation": 120, "test": 10, "vocab_size": 300},
            "encoder": {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2},
            "objective": {"kind": kind},
            "training": {"max_steps": 2, "tokens_per_step": 256} | training,
            "seed": 0,
        }
    )


@pytest.fixture(scope="module", autouse=True)
def hardly_learned_mixes():
    """Probing learns a mix of layers for each of ten blocks of its code, which takes most of the time here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "STEPS", 5)
        yield


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language")
    return token_store.prepare(settings().data, data_root=folder, store=folder / "tokens")


@pytest.mark.parametrize("asked", MEASURES, ids=lambda asked: asked.kind)
def test_every_measure_becomes_rows_that_the_table_takes(asked, tokens, tmp_path):
    readings = Readings(build(settings(), tokens), tokens, data_root=tmp_path)
    (one, *_) = for_run([asked], settings(), data_root=tmp_path)
    rows, _ = measure_rows(readings, one)
    made = table({"run_id": "r", "arm": "mlm", "seed": 0, "measure": one.kind} | row for row in rows)
    assert made["value"].notna().any()
    assert (made["n"].dropna() > 0).all()


def test_tasks_are_measured_one_by_one_and_only_what_is_missing_is(train_run, tokens):
    directory = train_run(settings())
    asked = TypeAdapter(list[Measure]).validate_python(
        [{"kind": "baselines", "tasks": ["language_tense", "language_topic"], "effort": "quick"}]
    )
    parts = list(for_run(asked, settings(), data_root=directory.path))
    assert [part.tasks for part in parts] == [("language_tense",), ("language_topic",)]

    def stopped(line):
        if "language_topic" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(directory, tokens, parts, data_root=directory.path, say=stopped)
    assert run_rows.missing_measures(directory.path, parts, data_root=directory.path) == parts[1:]
    measure(directory, tokens, parts, data_root=directory.path, say=lambda line: None)
    assert run_rows.missing_measures(directory.path, parts, data_root=directory.path) == []
    assert set(run_rows.rows(directory.path)["group"]) == {"language_tense", "language_topic"}


def test_what_is_not_run_and_what_is_no_evidence_is_said(tmp_path):
    data = {"kind": "files", "train": "t.txt", "validation": "v.txt", "vocab_size": 300}
    changed = settings().model_dump(mode="json") | {"data": data}
    files = RunSettings.model_validate(changed)
    skipping = RunSettings.model_validate(changed | {"objective": {"kind": "skip_gram"}})
    assert caveats(FILES, {"mlm": files, "words": skipping}, data_root=tmp_path) == [
        f"fine_tuning: rte not run: classification/rte/train.parquet is not in {tmp_path}.",
        "minimal_pairs: not run for words: skip_gram gives no probability to a sentence.",
        f"minimal_pairs: blimp and lm_syneval not run: blimp/test.parquet and others are not in {tmp_path}.",
    ]
    assert [settings.kind for settings in for_run(FILES, files, data_root=tmp_path)] == ["validation"]
    before = caveats(FILES, {"mlm": files}, data_root=tmp_path, is_there=lambda one: one.kind == "fine_tuning")
    assert before[0] == (
        "fine_tuning: rte was measured before, but cannot be measured again: classification/rte/train.parquet "
        f"is not in {tmp_path}."
    )
    assert before[1].startswith("minimal_pairs: blimp and lm_syneval not run: ")
    assert before[-1] == "fine_tuning: measured with effort quick, on a part of the data: no evidence."


def test_a_measure_of_layers_is_left_out_where_there_are_none():
    asked = TypeAdapter(list[Measure]).validate_python(["layer_change", "influence", "geometry"])
    runs = {kind: settings(kind) for kind in ("masked_lm", "skip_gram", "naive_bidirectional_lm")}
    assert [[one.kind for one in for_run(asked, run)] for run in runs.values()] == [
        ["layer_change", "influence", "geometry"],
        ["geometry"],
        ["layer_change", "geometry"],
    ]
    no_attention = "has no single attention from which a token could be hidden"
    assert caveats(asked, runs, data_root=Path()) == [
        "layer_change: not run for skip_gram: skip_gram has one layer, so there is no change between layers.",
        f"influence: not run for skip_gram: skip_gram {no_attention}.",
        f"influence: not run for naive_bidirectional_lm: naive_bidirectional_lm {no_attention}.",
    ]


def test_information_about_the_output_alone_is_left_out_where_there_is_none():
    asked = TypeAdapter(list[Measure]).validate_python([{"kind": "token_information", "about": ["output"]}])
    both = TypeAdapter(list[Measure]).validate_python(
        [{"kind": "token_information", "about": ["input", "output"]}]
    )
    runs = {kind: settings(kind) for kind in ("causal_lm", "masked_lm", "translation", "naive_bidirectional_lm")}
    assert [len(list(for_run(asked, run))) for run in runs.values()] == [1, 1, 0, 0]
    assert [len(list(for_run(both, run))) for run in runs.values()] == [1, 1, 1, 1]
    lacks = "does not predict an output for a token that it reads"
    assert caveats(asked, runs, data_root=Path()) == [
        f"token_information: not run for translation: translation {lacks}.",
        f"token_information: not run for naive_bidirectional_lm: naive_bidirectional_lm {lacks}.",
    ]


def test_text_of_files_has_no_built_in_task(tmp_path):
    assert error_text(DataError, read_examples, TASKS["language_topic"], "test", data_root=tmp_path) == (
        "task language_topic: its examples come from the built-in language, but the data are files; leave the "
        "task out."
    )


def test_measures_of_a_task_share_until_another_task_or_other_weights_come(tokens, tmp_path):
    readings = Readings(build(settings(), tokens), tokens, data_root=tmp_path)
    first = readings.shared("a", object)
    assert readings.shared("a", object) is first
    second = readings.shared("b", object)
    assert second is not first
    again = readings.shared("a", object)
    assert again is not first
    readings.forget_states()
    assert readings.shared("a", object) is not again


def test_fine_tuning_finds_what_frozen_features_read_in_the_readings_of_a_run(tokens, tmp_path):
    readings = Readings(build(settings(), tokens), tokens, data_root=tmp_path)
    options = {"tasks": ["language_topic"], "effort": "quick", "examples": 40, "epochs": 1, "seeds": 1}
    parts = TypeAdapter(list[Measure]).validate_python(
        [{"kind": "frozen_features", **options}, {"kind": "fine_tuning", **options}]
    )
    found = [measure_rows(readings, part) for part in parts]
    kept = readings.shared("language_topic", lambda: FrozenStates(readings.objective))._kept
    assert len(kept) == 4  # the splits, and the test texts in another order
    apart = [measure_rows(Readings(build(settings(), tokens), tokens, data_root=tmp_path), part) for part in parts]
    assert found == apart


def predicting(**switch):
    """Measures that can keep predictions, one of each kind that scores in another way."""
    quick = {"effort": "quick", "examples": 40} | switch
    heads = {"epochs": 1, "seeds": 2} | quick
    return TypeAdapter(list[Measure]).validate_python(
        [
            {"kind": "minimal_pairs", "pairs": 4, **switch},
            {"kind": "probing", "tasks": ["language_parts_of_speech"], **quick},
            {"kind": "frozen_features", "tasks": ["language_topic", "language_noun_phrases"], **heads},
        ]
    )


@pytest.fixture(scope="module")
def predicted(tmp_path_factory, tokens):
    """A run that was measured without predictions, and then with them: its rows before and after, and what it was
    told."""
    directory = run_folder(settings(), tokens, out=tmp_path_factory.mktemp("out"), name="mlm-s0-0000000000")
    start_here(directory)
    told = []

    def measured(measures):
        parts = list(for_run(measures, settings(), data_root=directory.path))
        measure(directory, tokens, parts, data_root=directory.path, say=told.append)
        return parts, run_rows.rows(directory.path)

    _, before = measured(predicting())
    assert not (directory.path / run_rows.PREDICTIONS).exists()
    told.clear()
    parts, after = measured(predicting(predictions=True))
    return directory.path, parts, before, after, told


def test_predictions_change_no_key_and_no_number_and_are_made_where_they_are_missing(predicted):
    path, parts, before, after, told = predicted
    assert sum(line.endswith("at step 2") for line in told) == len(parts)
    plain = list(for_run(predicting(), settings(), data_root=path))
    assert [run_rows.key(one) for one in parts] == [run_rows.key(one) for one in plain]
    order = ["key", "metric", "group", "layer"]
    again, first = (rows.sort_values(order).reset_index(drop=True) for rows in (after, before))
    pd.testing.assert_frame_equal(again, first)
    assert run_rows.missing_measures(path, parts, data_root=path) == []
    assert run_rows.missing_measures(path, plain, data_root=path) == []


def test_the_mean_of_the_points_is_the_number_in_the_table(predicted):
    path, _, _, rows, _ = predicted
    table = run_rows.predictions(path)
    means = {
        (measure, metric, task): np.average(some["points"], weights=some["weight"])
        for (measure, metric, task), some in table.groupby(["measure", "metric", "task"])
    }
    assert set(means) == {
        ("minimal_pairs", "accuracy", "language"),
        ("minimal_pairs", "accuracy_within_word", "language"),
        ("probing", "accuracy", "language_parts_of_speech"),
        ("frozen_features", "score", "language_topic"),
        ("frozen_features", "right_tags", "language_noun_phrases"),
    }
    whole = rows[rows["layer"].isna()].set_index(["measure", "metric", "group"])["value"]
    for place, mean in means.items():
        if place[1] != "right_tags":  # F1 of entities is no mean over sentences
            assert mean == pytest.approx(whole[place], abs=1e-12)  # float64: sums in another order
    heads = table[table["measure"] == "frozen_features"]
    assert heads["prediction"].map(len).eq(2).all()
    pairs = table[table["measure"] == "minimal_pairs"]
    assert (np.sign(pairs["margin"]) == np.sign(pairs["points"] - 0.5)).all()
    assert not table.duplicated(["key", "metric", "step", "example"]).any()


def test_a_lost_file_of_predictions_is_made_again_and_a_damaged_one_is_refused(predicted, tmp_path):
    path, parts, *_ = predicted
    other = tmp_path / path.name
    shutil.copytree(path, other)
    (other / run_rows.PREDICTIONS).unlink()
    assert run_rows.missing_measures(other, parts, data_root=path) == parts
    (other / run_rows.PREDICTIONS).write_bytes(b"PAR1 cut off")
    with pytest.raises(ResultsError) as error:
        run_rows.predictions(other)
    start, reason = str(error.value).split(" (")
    assert start == f"{other / 'predictions.parquet'} is damaged"
    assert reason.endswith("); delete it and `ablate run` measures the run again.")
