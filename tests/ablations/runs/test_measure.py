"""What the measures read, and the rows they write."""

import math
import queue
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import TypeAdapter

from ablations import catalogue
from ablations.catalogue import CARDS, MEASURES, RunMeasure
from ablations.errors import MeasureError
from ablations.measures import layer_change
from ablations.measures.reading.sample import first_tokens
from ablations.measures.reading.texts import Readings, layer_states
from ablations.measures.settings import (
    GeometrySettings,
    LayerChangeSettings,
    TokenInformationSettings,
    ValidationSettings,
)
from ablations.measures.validation import bleu, chrf, translations, unigram_losses, validation
from ablations.runs import rows as run_rows
from ablations.runs import worker
from ablations.runs.worker import measure, measure_rows
from ablations.tasks.datasets import files_now
from ablations.tasks.settings import BaselinesSettings, MinimalPairsSettings, ProbingSettings
from lightning_modules import plugins
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import END, MASK, PAD, START, decode
from lightning_modules.errors import AblationsError, ExitCode, Interrupted, OutOfMemoryError, StopRequest
from lightning_modules.objectives import build
from lightning_modules.training.data_module import evaluation_batches
from tests.support.errors import error_text
from tests.support.tiny_text import settings


def test_a_sample_is_whole_sentences_without_special_tokens(tokens):
    sample = first_tokens(tokens.validation, 200)
    assert len(sample.token_N) <= 200 < len(first_tokens(tokens.validation, 230).token_N) + 30
    for i in range(sample.sentences):
        ids = tokens.validation.sentence(i)
        assert ids[0] == START
        assert ids[-1] == END
        mine = sample.sentence_N == i
        assert np.array_equal(sample.token_N[mine], ids[1:-1])
        assert np.array_equal(sample.position_N[mine], np.arange(1, len(ids) - 1))
    whole = first_tokens(tokens.validation, 10**9)
    assert whole.sentences == len(tokens.validation)
    assert whole.digest != sample.digest
    assert first_tokens(tokens.validation, 200).digest == sample.digest


def test_a_sample_that_holds_nothing_is_refused(tokens):
    assert error_text(MeasureError, first_tokens, tokens.validation, 1) == (
        "the first 1 tokens of the validation text contain no whole sentence that a measure can read; raise "
        "the measure's `tokens`, or give more validation text."
    )


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm"])
def test_states_are_those_of_each_sentence_alone_uncorrupted_with_its_own_sight(kind, tokens):
    objective = build(settings(kind), tokens)
    sample = first_tokens(tokens.validation, 300)
    layers = layer_states(objective, tokens.validation, sample)
    assert len(layers) == 3
    assert all(layer.shape == (len(sample.token_N), 16) for layer in layers)
    for i in (0, 7, sample.sentences - 1):
        ids = torch.from_numpy(tokens.validation.sentence(i).astype(np.int64))[None]
        with torch.no_grad():
            alone = objective.encoder(ids, sees=objective.run.objective.sees)
        for layer, expected in zip(layers, alone, strict=True):
            mine = layer[sample.sentence_N == i]
            np.testing.assert_allclose(mine, expected[0, 1:-1], atol=2e-6)  # float32 sums in another order


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "translation"])
def test_the_floor_of_the_loss_is_the_loss_of_the_token_frequencies(kind, tokens):
    objective = build(settings(kind), tokens)
    rows = {
        row["metric"]: row
        for row in validation(objective, tokens, ValidationSettings(kind="validation", translations=10))
        if row.get("group") is None
    }
    loss, perplexity = rows["loss"], rows["perplexity"]
    assert perplexity["value"] == pytest.approx(math.exp(loss["value"]))
    assert loss["floor"] == unigram_losses(objective, tokens, tokens.validation)["loss"]
    if (
        kind == "causal_lm"
    ):  # by hand: every token of the text but START, under the frequencies of the training text
        counts = np.bincount(np.asarray(tokens.train.ids), minlength=tokens.vocab_size) + 1
        counts[[PAD, START, MASK]] = 0  # nobody is ever asked for these
        ids = np.asarray(tokens.validation.ids)
        by_hand = -np.log(counts[ids[ids != START]] / counts.sum()).mean()
        assert loss["floor"] == pytest.approx(by_hand)
        assert loss["n"] == (ids != START).sum()
    assert ("bleu" in rows) == (kind == "translation")
    # Worse than the frequencies before training, better than a uniform guess by at most what chance gives.
    assert loss["value"] > loss["floor"]


def test_references_are_the_translations_and_perfect_ones_score_a_hundred(tokens):
    objective = build(settings("translation"), tokens)
    hypotheses, references = translations(objective, tokens, 12)
    assert len(hypotheses) == len(references) == 12
    assert references[3] == decode(tokens.target_tokenizer, tokens.validation.target_sentence(3).tolist())
    assert bleu(references, references) == pytest.approx(100)
    assert chrf(references, references) == pytest.approx(100)
    assert bleu(references[1:], references[:-1]) < 50


def test_measuring_adds_what_is_missing_and_keeps_what_is_there(train_run, tokens):
    directory = train_run(settings("translation", training={"max_steps": 2}))
    change = LayerChangeSettings(kind="layer_change", tokens=400)
    information = TokenInformationSettings(kind="token_information", tokens=400, types=30, clusters=5)
    scores = ValidationSettings(kind="validation", translations=5)
    said = []
    measure(directory, tokens, [change], data_root=directory.path, say=said.append)
    first = run_rows.rows(directory.path)
    assert run_rows.missing_measures(directory.path, [change, information, scores], data_root=directory.path) == [
        information,
        scores,
    ]
    measure(directory, tokens, [change, information, scores], data_root=directory.path, say=said.append)
    rows = run_rows.rows(directory.path)
    pd.testing.assert_frame_equal(rows.iloc[: len(first)][first.columns], first, check_dtype=False)
    assert said == [f"measuring {kind} at step 2" for kind in ("layer_change", "token_information", "validation")]
    assert (rows["step"] == 2).all()
    by_layer = rows[rows["metric"] == "cross_fitted"]
    assert by_layer["layer"].tolist() == [0, 1, 2]
    assert (by_layer["d"] == 5).all()
    other_settings = change.model_copy(update={"tokens": 500})
    assert run_rows.missing_measures(directory.path, [other_settings], data_root=directory.path) == [
        other_settings
    ]
    digests = rows.groupby("measure")["sample"].unique()
    assert (
        digests["layer_change"][0]
        == digests["token_information"][0]
        == first_tokens(tokens.validation, 400).digest
    )


def test_a_measure_that_is_refused_does_not_take_the_others_away(train_run, tokens):
    directory = train_run(settings(training={"max_steps": 1}))
    too_many = TokenInformationSettings(kind="token_information", tokens=400, clusters=1000)
    scores = ValidationSettings(kind="validation", translations=5)
    with pytest.raises(MeasureError, match=r"^token_information: "):
        measure(directory, tokens, [too_many, scores], data_root=directory.path, say=lambda _: None)
    assert run_rows.missing_measures(directory.path, [too_many, scores], data_root=directory.path) == [too_many]


def test_a_measure_without_rows_is_refused_and_the_run_says_why(train_run, tokens):
    """Otherwise it would be measured again at each `ablate run`, and nobody would know why it has no numbers."""
    directory = train_run(settings("skip_gram", training={"max_steps": 1}))
    scores = ValidationSettings(kind="validation")
    single = replace(tokens, validation=single_tokens(3))
    assert error_text(
        MeasureError, measure, directory, single, [scores], data_root=directory.path, say=lambda _: None
    ) == (
        "validation: there is nothing to measure in this text for this run, so there are no numbers; give more "
        "text, or leave the measure out."
    )
    assert list(run_rows.refusals(directory.path)) == [run_rows.key(scores)]


def test_a_reason_that_begins_with_the_measure_does_not_name_it_twice(train_run, tokens, monkeypatch):
    directory = train_run(settings(training={"max_steps": 1}))
    reasons = {
        "conditional_independence": "conditional_independence needs at least 20 sentences.",
        "geometry": "all states are equal.",
        "minimal_pairs": "minimal_pairs: language_minimal_pairs has no pair.",
    }

    def refuse(readings, settings, *, say):
        raise MeasureError(reasons[settings.kind])

    monkeypatch.setattr(worker, "measure_rows", refuse)
    asked = MEASURES.validate_python(["conditional_independence", "geometry"])
    pairs = MinimalPairsSettings(kind="minimal_pairs", tasks=("language_minimal_pairs",))
    assert error_text(
        MeasureError, measure, directory, tokens, [*asked, pairs], data_root=directory.path, say=lambda _: None
    ) == (
        "conditional_independence needs at least 20 sentences. geometry: all states are equal. "
        "minimal_pairs language_minimal_pairs: language_minimal_pairs has no pair."
    )
    kept = run_rows.refusals(directory.path)  # the page and `ablate status` write the name before each
    assert kept[run_rows.key(pairs)] == "language_minimal_pairs has no pair."


def single_tokens(sentences):
    """Sentences of one token each."""
    ids = np.tile(np.array([START, 50, END], np.uint16), sentences)
    return Split(ids=ids, offsets=np.arange(sentences + 1) * 3, documents=np.zeros(sentences, np.int32))


def test_a_damaged_file_of_a_task_takes_no_other_measure_away_and_the_run_says_why(train_run, tokens, tmp_path):
    directory = train_run(settings(training={"max_steps": 1}))
    path = tmp_path / "classification/mrpc/train.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PAR1 cut off")
    damaged = BaselinesSettings(kind="baselines", tasks=("mrpc",))
    later = [
        ProbingSettings(kind="probing", tasks=("sst2",)),  # its file is not there
        ValidationSettings(kind="validation", translations=5),
        LayerChangeSettings(kind="layer_change", tokens=400),
    ]
    with pytest.raises(MeasureError) as error:
        measure(directory, tokens, [damaged, *later], data_root=tmp_path, say=lambda _: None)
    assert run_rows.missing_measures(directory.path, [damaged, *later], data_root=tmp_path) == [damaged, later[0]]
    why = run_rows.refusals(directory.path)
    assert list(why) == [run_rows.key(damaged), run_rows.key(later[0])]
    of_damaged, of_missing = why.values()
    assert of_damaged.startswith(f"task mrpc: {path} cannot be read as parquet: ")
    assert str(error.value) == f"baselines mrpc: {of_damaged} probing sst2: {of_missing}"
    # What was said of others stays, what is there is said no longer.
    run_rows.note_refusals(directory.path, {}, tried=[run_rows.key(damaged)])
    assert list(run_rows.refusals(directory.path)) == [run_rows.key(later[0])]


def test_a_bug_in_one_measure_takes_no_other_away_and_the_log_has_it(train_run, tokens, monkeypatch, capfd):
    directory = train_run(settings(training={"max_steps": 1}))
    change = LayerChangeSettings(kind="layer_change", tokens=400)
    scores = ValidationSettings(kind="validation", translations=5)

    def broken(*_):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(layer_change, "layer_change", broken)
    assert (
        error_text(
            MeasureError,
            measure,
            directory,
            tokens,
            [change, scores],
            data_root=directory.path,
            say=lambda _: None,
        )
        == "layer_change: ZeroDivisionError: by zero"
    )
    assert run_rows.missing_measures(directory.path, [change, scores], data_root=directory.path) == [change]
    assert "Traceback (most recent call last)" in capfd.readouterr().err

    def too_large(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has 1 GiB free.")

    monkeypatch.setattr(layer_change, "layer_change", too_large)
    sentence = (
        "layer_change: measuring ran out of memory (no room for 2.50 GiB); lower the measure's tokens, or "
        "lower --slots."
    )
    with pytest.raises(OutOfMemoryError) as error:  # which may not come again where more memory is free
        measure(directory, tokens, [change], data_root=directory.path, say=lambda _: None)
    assert str(error.value) == sentence
    assert [f"layer_change: {why}" for why in run_rows.refusals(directory.path).values()] == [sentence]


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (OutOfMemoryError("too large."), ExitCode.OUT_OF_MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory."), ExitCode.OUT_OF_MEMORY),
        (MeasureError("too few."), ExitCode.FAILED),
    ],
)
def test_a_measure_that_ran_out_of_memory_has_the_exit_code_of_that(raised, code, make_run, monkeypatch):
    directory = make_run(settings())

    def fails(*_):
        raise raised

    monkeypatch.setattr(worker, "_train_and_measure", fails)
    assert worker.serve_one({"run_dir": str(directory.path)}, StopRequest())["code"] == code


def test_a_worker_says_whether_it_did_the_whole_run(make_run, data_root):
    directory = make_run(settings(training={"max_steps": 2}))
    machine = {"devices": 1, "accelerator": "cpu", "threads": 1, "data_root": str(data_root)}
    order = machine | {"run_dir": str(directory.path), "measures": [], "plugins": {}, "recompute": False}
    assert worker.serve_one(order, StopRequest()).items() >= {"code": ExitCode.DONE, "in_one_go": True}.items()
    assert worker.serve_one(order, StopRequest()).items() >= {"code": ExitCode.DONE, "in_one_go": False}.items()
    directory.write_state("interrupted")
    assert worker.serve_one(order, StopRequest()).items() >= {"code": ExitCode.DONE, "in_one_go": False}.items()


def test_a_task_is_measured_again_when_its_file_has_changed_and_not_when_it_is_gone(train_run, tokens, tmp_path):
    directory = train_run(settings(training={"max_steps": 1}))
    path = tmp_path / "lm_syneval/test.parquet"
    path.parent.mkdir()

    def write(pairs):
        good = ["the cat sleeps"] * pairs
        columns = {
            "sentence_good": good,
            "sentence_bad": ["the cat sleep"] * pairs,
            "case": ["simple_agrmt"] * pairs,
        }
        pd.DataFrame(columns).to_parquet(path)

    pairs = MinimalPairsSettings(kind="minimal_pairs", tasks=("lm_syneval",))
    scores = ValidationSettings(kind="validation", translations=5)

    def missing():
        return run_rows.missing_measures(directory.path, [pairs, scores], data_root=tmp_path)

    def measured_pairs():
        measure(directory, tokens, [pairs, scores], data_root=tmp_path, say=lambda _: None)
        rows = run_rows.rows(directory.path)
        return rows[(rows["measure"] == "minimal_pairs") & (rows["metric"] == "accuracy")]["n"].unique().tolist()

    write(pairs=6)
    assert measured_pairs() == [6]
    assert missing() == []
    content = path.read_bytes()
    path.write_bytes(content)  # written again with what it had
    assert missing() == []
    write(pairs=9)
    assert missing() == [pairs]
    keys = {run_rows.key(one): files_now(one, tmp_path) for one in (pairs, scores)}
    there = run_rows.of_these(run_rows.rows(directory.path), keys)
    assert set(there["measure"]) == {"validation"}, "a table has no number of a file that is another one now"
    assert measured_pairs() == [9]
    assert missing() == []
    path.unlink()
    assert missing() == []
    # Rows of before files were noted are taken to be of these.
    write(pairs=6)
    rows = run_rows.rows(directory.path).drop(columns="files")
    rows.to_parquet(directory.path / "measures.parquet", index=False)
    assert missing() == []


def test_measuring_again_replaces_its_own_rows_and_no_others(train_run, tokens):
    directory = train_run(settings(training={"max_steps": 1}))
    change = LayerChangeSettings(kind="layer_change", tokens=400)
    other = LayerChangeSettings(kind="layer_change", tokens=300)
    measure(directory, tokens, [change, other], data_root=directory.path, say=lambda _: None)
    before = run_rows.rows(directory.path)
    measure(directory, tokens, [change], data_root=directory.path, say=lambda _: None, recompute=True)
    after = run_rows.rows(directory.path)
    by = ["key", "metric", "layer", "layer_to"]
    pd.testing.assert_frame_equal(
        before.sort_values(by, ignore_index=True), after.sort_values(by, ignore_index=True), check_dtype=False
    )


def test_a_new_version_of_one_kind_leaves_the_rows_of_the_others(monkeypatch):
    shape, information = GeometrySettings(kind="geometry"), TokenInformationSettings(kind="token_information")
    before = run_rows.key(shape), run_rows.key(information)
    # As in all files written since version 3.
    assert run_rows.key(GeometrySettings(kind="geometry", checkpoints="all", tokens=50_000)) == "4ed1c1d5d0"
    card = CARDS["token_information"]
    newer = {**CARDS, "token_information": card._replace(version=card.version + 1)}
    monkeypatch.setattr(catalogue, "CARDS", newer)
    assert run_rows.key(shape) == before[0]
    assert run_rows.key(information) != before[1]


def test_every_kept_checkpoint_is_measured_and_what_is_there_is_not_measured_twice(train_run, tokens):
    directory = train_run(settings(training={"max_steps": 5}))
    all_steps = LayerChangeSettings(kind="layer_change", tokens=400, checkpoints="all")
    last = LayerChangeSettings(kind="layer_change", tokens=400)
    measure(directory, tokens, [all_steps, last], data_root=directory.path, say=lambda _: None)
    rows = run_rows.rows(directory.path)
    everywhere = rows[rows["key"] == run_rows.key(all_steps)]
    assert sorted(everywhere["step"].unique()) == [0, 1, 2, 4, 5]
    assert set(rows[rows["key"] == run_rows.key(last)]["step"]) == {5}
    by = ["metric", "layer", "layer_to"]
    at_end, whole = (
        part[part["step"] == 5].set_index(by)["value"]
        for part in (everywhere, rows[rows["key"] == run_rows.key(last)])
    )
    pd.testing.assert_series_equal(at_end, whole)
    untrained = everywhere[everywhere["step"] == 0].set_index(by)["value"]
    assert (untrained != at_end).all()
    # Rows of one step are lost: only that step is open.
    rows[rows["step"] != 2].to_parquet(directory.path / "measures.parquet", index=False)
    assert run_rows.missing_measures(directory.path, [all_steps, last], data_root=directory.path) == [all_steps]
    assert list(run_rows.open_checkpoints(directory.path, all_steps, data_root=directory.path)) == [2]
    said = []
    measure(directory, tokens, [all_steps], data_root=directory.path, say=said.append)
    assert said == ["measuring layer_change at step 2"]
    again = run_rows.rows(directory.path)
    pd.testing.assert_frame_equal(
        again.sort_values(["key", "step", *by], ignore_index=True),
        rows.sort_values(["key", "step", *by], ignore_index=True),
        check_dtype=False,
    )


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "token_information", "types": 30, "clusters": 5, "about": ("input", "output")},
        {"kind": "neighbours", "types": 5, "occurrences": 10, "neighbours": 4, "neighbours_of_type": 2},
        {"kind": "geometry"},
        {"kind": "influence", "sentences": 30},
    ],
    ids=lambda asked: asked["kind"],
)
def test_every_measure_of_states_is_computed_from_every_kept_checkpoint(asked, train_run, tokens):
    directory = train_run(settings(training={"max_steps": 2}))
    all_steps = TypeAdapter(RunMeasure).validate_python({"tokens": 1000, "checkpoints": "all"} | asked)
    measure(directory, tokens, [all_steps], data_root=directory.path, say=lambda _: None)
    rows = run_rows.rows(directory.path)
    by = [name for name in ("metric", "group", "layer", "layer_to") if name in rows]
    steps = {step: part.set_index(by) for step, part in rows.groupby("step")}
    assert sorted(steps) == [0, 1, 2]
    assert all(part.index.equals(steps[0].index) for part in steps.values())
    assert not steps[0]["value"].equals(steps[2]["value"])
    # Those of a checkpoint are those of its weights, whatever was measured before.
    (directory.path / "measures.parquet").unlink()
    last = all_steps.model_copy(update={"checkpoints": "last"})
    measure(directory, tokens, [last], data_root=directory.path, say=lambda _: None)
    at_end = run_rows.rows(directory.path)
    pd.testing.assert_series_equal(at_end.set_index(by)["value"], steps[2]["value"])


def test_the_floor_of_masked_lm_makes_use_of_what_is_shown(tokens):
    """Bayes' rule by hand, one prediction at a time: a tenth of what is asked for is shown as it is."""
    objective = build(settings(), tokens)
    words = np.arange(tokens.vocab_size) >= 5
    share = np.where(words, tokens.source_counts_V + 1.0, 0)
    share /= share.sum()
    nats, apart = [], {"masked": [], "kept": [], "random": []}
    for batch in evaluation_batches(objective, tokens.validation, tokens_per_step=8192):
        shown = batch["tokens_BT"].flatten()[batch["predict_N"]].tolist()
        for label, seen in zip(batch["label_N"].tolist(), shown, strict=True):
            if label == -100:
                continue
            # Joint probability of every original with what is shown: hidden, kept, or replaced by any word.
            joint = share * (0.8 if seen == MASK else 0.1 / words.sum())
            if seen != MASK:
                joint[seen] += share[seen] * 0.1
            nats.append(-math.log(joint[label] / joint.sum()))
            apart["masked" if seen == MASK else "kept" if seen == label else "random"].append(nats[-1])
    floor = unigram_losses(objective, tokens, tokens.validation)["loss"]
    assert floor == pytest.approx(np.mean(nats))
    plain = -np.log(share[np.concatenate([*labels_of(objective, tokens)])]).mean()
    assert floor < plain - 0.2
    rows = list(validation(objective, tokens, ValidationSettings(kind="validation")))
    own = {row["group"]: row for row in rows if row["metric"] == "loss"}
    assert {name: own[name]["n"] for name in apart} == {name: len(values) for name, values in apart.items()}
    total = sum(own[name]["value"] * own[name]["n"] for name in apart)
    assert total / own[None]["n"] == pytest.approx(own[None]["value"], rel=1e-6)  # float32 sums in another order


def labels_of(objective, tokens):
    """What an evaluation asks for, batch by batch."""
    for batch in evaluation_batches(objective, tokens.validation, tokens_per_step=8192):
        yield batch["label_N"][batch["label_N"] != -100].numpy()


def test_the_loss_can_be_read_in_other_formats_and_orders(tokens):
    objective = build(settings("causal_lm"), tokens)
    asked = ValidationSettings.model_validate(
        {"kind": "validation", "input_formats": ["full_sentences"], "word_orders": ["ngrams"]}
    )
    own = {row["group"]: row for row in validation(objective, tokens, asked) if row["metric"] == "loss"}
    assert set(own) == {None, "full_sentences", "ngrams, n 1"}
    # One START a sequence instead of one a sentence, and no END between sentences of one document.
    assert own["full_sentences"]["n"] < own[None]["n"] == own["ngrams, n 1"]["n"]
    assert len({row["value"] for row in own.values()}) == 3


@pytest.fixture
def stop():
    """A request that takes signals of this process, for as long as a test runs."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    request = StopRequest()
    request.install()
    yield request
    for number, handler in before.items():
        signal.signal(number, handler)


def test_measuring_ends_in_the_middle_of_a_measure_when_somebody_asks_and_a_training_step_does_not(stop):
    began = time.monotonic()
    threading.Timer(0.5, stop.ask).start()
    with pytest.raises(Interrupted), stop.at_once():
        time.sleep(30)
    assert time.monotonic() - began < 20
    with pytest.raises(Interrupted), stop.at_once():
        pytest.fail("it was asked for before")
    training = StopRequest()
    training.ask()
    assert training.received  # and nothing was raised


def test_a_slow_measure_says_which_layers_are_done(tokens, monkeypatch):
    geometry, said = GeometrySettings(kind="geometry", tokens=400), []
    measure_rows(readings(tokens), geometry, say=said.append)
    assert not said  # it takes less than five seconds
    monkeypatch.setattr(worker, "SECONDS_BETWEEN_LAYERS", -1)
    measure_rows(readings(tokens), geometry, say=said.append)
    assert {*said} == {f"layer {layer} done" for layer in range(3)}


def readings(tokens):
    return Readings(build(settings("masked_lm"), tokens), tokens, data_root=Path())


OWN = """
from ablations.catalogue import Card
from ablations.measures.settings import MeasureSettings

class Settings(MeasureSettings):
    pass

def rows(readings, settings, say):
    yield from ROWS

Mine = Card(settings=Settings, rows=rows, metrics=("rank",), layers="some")
"""


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "mine.py:Mine: its function rows has yielded nothing; yield at least one row."),
        (
            [{"metric": "rnk", "value": 1.0}],
            "mine.py:Mine: its function rows has yielded the metric rnk, which its card does not list (rank); add "
            "it to the card.",
        ),
        (
            [1.5],
            "mine.py:Mine: its function rows has yielded '1.5', expected a mapping with metric and value; correct "
            "the file.",
        ),
        ([{"metric": "rank"}], "mine.py:Mine, row 0: 'value' is missing; write NaN where there is no number."),
        ([{"metric": "rank", "value": "high"}], "mine.py:Mine, row 0: value is 'high', expected a number."),
        (
            [{"metric": "rank", "layer": 2, "value": 1.0}] * 2,
            "mine.py:Mine, row 1: metric=rank, layer=2 has an observation already; remove one of the two rows.",
        ),
        (
            [{"metric": "rank", "layer": 1, "layer_to": 3, "value": 1.0}],
            "mine.py:Mine: its function rows has yielded layer 3, but the layers of the encoder are 0 "
            "(embeddings) to 2; correct the file.",
        ),
    ],
)
def test_rows_of_a_measure_of_ones_own_that_no_table_could_hold_are_refused(tmp_path, tokens, rows, sentence):
    (tmp_path / "mine.py").write_text(OWN.replace("ROWS", repr(rows)))
    plugins.look_beside(tmp_path / "spec.yaml")
    (settings,) = MEASURES.validate_python(["mine.py:Mine"])
    assert error_text(AblationsError, measure_rows, readings(tokens), settings) == sentence


@pytest.mark.parametrize(("layers", "row", "fit"), [("none", {"layer": 0}, "all"), ("all", {}, "none")])
def test_rows_whose_layers_the_card_does_not_promise_are_refused(layers, row, fit, tmp_path, tokens):
    """A claim could not read them: it asks the card whether the measure has layers."""
    text = OWN.replace("ROWS", repr([{"metric": "rank", "value": 1.0} | row]))
    (tmp_path / "mine.py").write_text(text.replace('layers="some"', f'layers="{layers}"'))
    plugins.look_beside(tmp_path / "spec.yaml")
    (settings,) = MEASURES.validate_python(["mine.py:Mine"])
    assert error_text(AblationsError, measure_rows, readings(tokens), settings) == (
        f"mine.py:Mine: its function rows has yielded a row {'with' if row else 'without'} a layer, but its card "
        f'has layers="{layers}"; write layers="{fit}" into the card, or "some" if only some rows have a layer.'
    )


def test_single_numbers_of_torch_and_numpy_are_numbers_of_a_measure_of_ones_own(tmp_path, tokens):
    text = OWN.replace("yield from ROWS", "import numpy, torch; yield {'metric': 'rank', 'layer': numpy.int64(2), "
                       "'value': torch.tensor(0.5), 'n': torch.tensor(7)}")  # fmt: skip
    (tmp_path / "mine.py").write_text(text)
    plugins.look_beside(tmp_path / "spec.yaml")
    (settings,) = MEASURES.validate_python(["mine.py:Mine"])
    rows, _ = measure_rows(readings(tokens), settings)
    assert rows == [{"metric": "rank", "layer": 2, "value": 0.5, "n": 7}]
    assert [type(value) for value in rows[0].values()] == [str, int, float, int]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("raise RuntimeError('no rank')", ", line 9: RuntimeError: no rank"),
        ("__import__('sys').exit(3)", ", line 9: SystemExit: 3"),
        ("return None", ": TypeError: 'NoneType' object is not iterable"),
    ],
)
def test_a_measure_of_ones_own_that_fails_or_exits_is_refused_with_the_line_of_its_file(
    tmp_path, tokens, statement, reason
):
    path = tmp_path / "mine.py"
    path.write_text(OWN.replace("yield from ROWS", statement))
    plugins.look_beside(tmp_path / "spec.yaml")
    (settings,) = MEASURES.validate_python(["mine.py:Mine"])
    assert (
        error_text(AblationsError, measure_rows, readings(tokens), settings)
        == f"mine.py:Mine: {path}{reason}; correct the file."
    )


def test_a_worker_that_hangs_after_its_launcher_has_ended_ends_itself(monkeypatch):
    """It would keep the lock of its run for ever."""
    happened = []
    monkeypatch.setattr(worker.time, "sleep", lambda seconds: happened.append(("waits", seconds)))
    monkeypatch.setattr(worker.os, "_exit", lambda code: happened.append(("ends", code)))
    orders, stop = queue.Queue(), StopRequest()
    worker._listen(['{"run_dir": "a"}\n'], orders, stop)
    assert (orders.get(), orders.get()) == ({"run_dir": "a"}, None)
    assert stop.received
    assert happened == [("waits", worker.SECONDS_TO_END), ("ends", ExitCode.INTERRUPTED)]
