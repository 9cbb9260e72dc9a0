"""One run: what it writes, that it resumes bit for bit, and how it ends."""

import json
import math
import time
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lightning_modules import plugins
from lightning_modules.config import operations_per_token
from lightning_modules.data.token_store import prepare
from lightning_modules.errors import CheckpointError, ExitCode, Interrupted, StopRequest
from lightning_modules.model.numerics import matrix_rate
from lightning_modules.objectives import build
from lightning_modules.objectives.predictions import allowed_part
from lightning_modules.training import fit
from lightning_modules.training.checkpoint import read_checkpoint
from lightning_modules.training.fit import train
from lightning_modules.training.run_directory import RunBusyError, RunDirectoryError, RunState
from lightning_modules.training.train import start
from tests.support.errors import error_text
from tests.support.start_here import start_here
from tests.support.stop_after import StopAfter
from tests.support.tiny_text import WORDS, run_folder, settings, write_pairs


def run_to(directory, tokens, step=None):
    """Train in this process; stopped after a step, where one is given."""
    stop = StopAfter(step if step is not None else 10**9)
    directory.checkpoints.mkdir(exist_ok=True)
    train(directory, tokens, threads=1, accelerator="cpu", stop=stop, on_line=stop.on_line)


def contents(directory, name="last.ckpt"):
    return read_checkpoint(directory.checkpoints / name)


def same(x, y):
    """Whether two nested structures of tensors and plain values hold the same bits."""
    if isinstance(x, torch.Tensor):
        return torch.equal(x, y)
    if isinstance(x, dict):
        return x.keys() == y.keys() and all(same(x[key], y[key]) for key in x)
    if isinstance(x, list | tuple):
        return len(x) == len(y) and all(map(same, x, y))
    return x == y


def metrics(directory):
    lines = [json.loads(line) for line in directory.metrics.read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "time" and not k.startswith("perf/")} for line in lines]


@pytest.mark.parametrize(
    ("kind", "precision", "more", "stops"),
    [
        ("masked_lm", "32-true", {}, (1, 4, 5, 11)),
        ("translation", "32-true", {"accumulate": 3, "optimizer": "muon"}, (1, 5, 6)),
        ("masked_lm", "bf16-mixed", {"accumulate": 3, "optimizer": "sgd"}, (4, 11)),
        ("causal_lm", "32-true", {}, (1, 6)),
        ("translation", "32-true", {}, (5, 11)),
        ("masked_lm", "bf16-mixed", {}, (1, 5)),
        ("translation", "bf16-mixed", {}, (4, 5)),
        ("mixture", "32-true", {}, (5, 6)),
        ("replaced_token", "32-true", {}, (1, 11)),
        ("permutation_lm", "32-true", {}, (4, 5)),
        ("naive_bidirectional_lm", "32-true", {}, (5, 11)),
        ("skip_gram", "32-true", {}, (1, 6)),
    ],
)
def test_a_resumed_run_ends_with_the_same_bits(kind, precision, more, stops, make_run, tokens):
    """Stopped after the first step, between validations, at one (step 6), right before the end, and twice anew."""
    run = settings(kind, training={"precision": precision, **more})  # with dropout
    whole, pieces = make_run(run, "whole-s0-0000000000"), make_run(run, "pieces-s0-0000000000")
    run_to(whole, tokens)
    for step in stops:
        with pytest.raises(Interrupted):
            run_to(pieces, tokens, step)
        assert contents(pieces)["global_step"] == step
    run_to(pieces, tokens)
    a, b = contents(whole), contents(pieces)
    assert a["global_step"] == b["global_step"] == 12
    for part in ("state_dict", "optimizer_states", "lr_schedulers"):
        assert same(a[part], b[part]), part
    assert metrics(whole) == metrics(pieces)
    assert whole.last_weights.read_bytes() == pieces.last_weights.read_bytes()


@pytest.mark.parametrize(("kind", "has_perplexity"), [("masked_lm", True), ("skip_gram", False)])
def test_a_perplexity_is_logged_of_a_loss_over_the_vocabulary_alone(kind, has_perplexity, make_run, tokens):
    directory = make_run(settings(kind, training={"max_steps": 1}))
    run_to(directory, tokens)
    line = next(line for line in metrics(directory) if "val/loss" in line)
    assert {"val/loss", "val/predicted"} < line.keys()
    assert ("val/ppl" in line) == has_perplexity


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize(("kind", "accumulate"), [("masked_lm", 1), ("translation", 1), ("masked_lm", 3)])
def test_the_bare_loop_takes_the_trainers_steps_to_the_bit(
    kind, accumulate, precision, make_run, tokens, monkeypatch
):
    run = settings(kind, encoder={"dropout": 0}, training={"precision": precision, "accumulate": accumulate})
    directory = make_run(run)
    run_to(directory, tokens)
    objective = build(run, tokens)
    monkeypatch.setattr(fit, "build", lambda *_: objective)
    step = fit.bare_step(run, tokens)
    for _ in range(run.training.max_steps):
        step()
    assert same(dict(objective.state_dict()), dict(contents(directory)["state_dict"]))


@pytest.mark.parametrize(("precision", "tolerance"), [("32-true", 1e-5), ("bf16-mixed", 1e-2)])
def test_a_run_in_micro_batches_logs_and_saves_what_a_run_in_whole_steps_does(
    precision, tolerance, make_run, tokens
):
    logs, files = [], []
    for parts in (1, 3):
        run = settings(encoder={"dropout": 0}, training={"precision": precision, "accumulate": parts})
        directory = make_run(run, f"parts-s0-{parts:010}")
        run_to(directory, tokens)
        logs.append(metrics(directory))
        files.append(sorted(path.name for path in directory.checkpoints.iterdir()))
        assert contents(directory)["global_step"] == 12
    assert files[0] == files[1]
    assert [line.keys() for line in logs[0]] == [line.keys() for line in logs[1]]
    for whole, cut in zip(*logs, strict=True):
        assert cut == pytest.approx(whole, rel=tolerance)  # sums in another order, rounded to the type


def test_a_resumed_run_of_pairs_spans_and_other_words_ends_with_the_same_bits(make_run, tokens):
    masking = {"select": "span", "schedule": {"kind": "linear", "to": 0.5}, "copies": 2}
    run = settings(
        objective={"masking": masking, "pair_loss": "sentence_order"},
        training={"input_format": "segment_pair", "word_order": {"kind": "blocks", "length": 64}, "max_steps": 40},
    )
    whole, pieces = make_run(run, "whole-s0-0000000000"), make_run(run, "pieces-s0-0000000000")
    run_to(whole, tokens)
    with pytest.raises(Interrupted):
        run_to(pieces, tokens, 27)
    run_to(pieces, tokens)
    assert same(contents(whole)["state_dict"], contents(pieces)["state_dict"])
    assert metrics(whole) == metrics(pieces)
    manifest = json.loads((whole.path / "word_order.json").read_text())
    assert manifest == json.loads((pieces.path / "word_order.json").read_text())
    assert manifest["order"] == {"kind": "blocks", "unit": "words", "length": 64}
    rates = [line["corruption/hidden"] for line in metrics(whole) if "corruption/hidden" in line]
    assert sum(rates[-10:]) > 1.3 * sum(rates[:10])  # the ratio rises from 0.19 to 0.46, of a few spans a step
    parts = {"train/sentence_order", "train/sentence_order_accuracy"}
    assert parts <= metrics(whole)[0].keys()


def test_steps_that_a_kill_took_back_are_in_no_log(make_run, tokens):
    directory = make_run(settings())
    a_second = 1.1  # TensorBoard reads its files in the order of their names, which hold the second they are of
    with pytest.raises(Interrupted):
        run_to(directory, tokens, 4)
    kept = directory.last_checkpoint.read_bytes()
    time.sleep(a_second)
    with pytest.raises(Interrupted):
        run_to(directory, tokens, 9)
    directory.last_checkpoint.write_bytes(kept)  # as if killed at step 9, before it was saved
    time.sleep(a_second)
    run_to(directory, tokens)
    shown = EventAccumulator(str(directory.path / "tensorboard"))
    shown.Reload()
    assert [event.step for event in shown.Scalars("train/loss")] == list(range(1, 13))
    assert [line["step"] for line in metrics(directory) if "train/loss" in line] == list(range(1, 13))


def test_a_run_writes_what_it_promises(make_run, tokens):
    directory = make_run(settings())
    assert start_here(directory) == ExitCode.DONE
    names = sorted(path.name for path in directory.checkpoints.iterdir())
    steps = [f"step={step:07d}.ckpt" for step in (0, 1, 2, 4, 8, 12)]
    assert names == ["last.ckpt", "last.safetensors", *steps]
    state, provenance = directory.state(), directory.provenance()
    assert state.state == "done"
    assert state.step == 12
    assert provenance["threads"] == 1
    # Of a wheel from PyPI torch adds the build (2.13.0+cu130), which the package's version lacks.
    assert torch.__version__.startswith(provenance["versions"]["torch"])
    lines = metrics(directory)
    assert [line["step"] for line in lines if "train/loss" in line] == list(range(1, 13))
    assert [line["step"] for line in lines if "val/loss" in line] == [6, 12]
    last = [line for line in lines if "train/loss" in line][-1]
    assert last["train/tokens"] == state.tokens_seen
    assert last["train/predicted"] == state.tokens_predicted
    assert 0.9 * 12 * 128 < state.tokens_seen <= 12 * 128
    timed = [json.loads(line) for line in directory.metrics.read_text().splitlines()]
    started = [line["perf/first_step_sec"] for line in timed if "perf/first_step_sec" in line]
    assert started == [state.first_step_seconds]
    shares = {line["perf/tokens_per_sec"] / line["perf/mfu"] for line in timed if "train/loss" in line}
    assert max(shares) == pytest.approx(min(shares))  # one yardstick: what is best over what a token takes
    best = matrix_rate(torch.device("cpu"), torch.float32)
    assert max(shares) == pytest.approx(best / operations_per_token(settings()))
    assert state.mfu == pytest.approx(state.tokens_per_second / max(shares))
    checkpoint = contents(directory)
    encoder = [name for name in checkpoint["state_dict"] if name.startswith("encoder.")]
    assert len(encoder) == 4 + 2 * 12
    assert any((directory.path / "tensorboard").iterdir())
    before = directory.last_checkpoint.stat().st_mtime_ns
    assert start(directory, data_root=directory.path, accelerator="cpu", stop=StopRequest()) == 0
    assert directory.last_checkpoint.stat().st_mtime_ns == before  # done is done


def test_the_operations_of_a_run_with_a_lexicon_are_those_of_the_tokens_that_it_hides(make_run, tokens):
    """Also of a run that is taken up again."""
    select = {"kind": "cloze", "words": [WORDS[3]]}
    run = settings(objective={"masking": {"ratio": 0.5, "select": select}})
    directory = make_run(run)
    with pytest.raises(Interrupted):
        run_to(directory, tokens, 4)
    run_to(directory, tokens)
    state, allowed = directory.state(), allowed_part(run, tokens)
    assert allowed < 0.5
    assert state.flops == pytest.approx(state.tokens_seen * operations_per_token(run, allowed=allowed))
    assert state.flops < 0.9 * state.tokens_seen * operations_per_token(run)


def test_an_untrained_run_writes_its_initial_weights(make_run, tokens):
    directory = make_run(settings(training={"max_steps": 0}))
    assert start_here(directory) == ExitCode.DONE
    assert sorted(p.name for p in directory.checkpoints.iterdir()) == [
        "last.ckpt",
        "last.safetensors",
        "step=0000000.ckpt",
    ]
    first, last = contents(directory, "step=0000000.ckpt"), contents(directory)
    assert same(first["state_dict"], last["state_dict"])
    assert directory.state().step == 0


def test_only_the_newest_step_files_are_kept_when_asked(make_run, tokens):
    directory = make_run(settings(training={"keep_checkpoints": 2}))
    run_to(directory, tokens)
    assert sorted(p.name for p in directory.checkpoints.glob("step=*")) == [
        "step=0000008.ckpt",
        "step=0000012.ckpt",
    ]


def test_training_learns(make_run, tokens):
    directory = make_run(settings("causal_lm", training={"max_steps": 80, "learning_rate": 1e-2}))
    run_to(directory, tokens)
    losses = [line["val/loss"] for line in metrics(directory) if "val/loss" in line]
    assert losses[-1] < losses[0] - 0.5  # nats; a model that stood still would gain nothing


def test_a_validation_without_one_part_of_the_loss_logs_the_other(tmp_path):
    """In a text of one word nothing is hidden, but its word and its end are predicted."""
    write_pairs(tmp_path / "train.tsv", 600, seed=0)
    (tmp_path / "validation.tsv").write_text("text\ttarget\na\ta\n")
    run = settings("mixture")
    directory = run_folder(run, prepare(run.data, data_root=tmp_path, store=tmp_path / "s"), out=tmp_path / "out")
    assert start_here(directory) == ExitCode.DONE
    lines = [line for line in metrics(directory) if any(name.startswith("val/") for name in line)]
    assert [line.keys() - {"time"} for line in lines] == [{"step", "val/causal_lm"}] * 2


@pytest.mark.parametrize(
    ("limit", "advice"),
    [
        (1.0, "lower training.learning_rate or training.gradient_clip_val"),
        (0.0, "lower training.learning_rate, set training.gradient_clip_val (0 is no clipping)"),
    ],
)
def test_a_loss_that_is_no_number_ends_the_run_with_a_sentence(
    limit, advice, make_run, tokens, capsys, monkeypatch
):
    from lightning_modules.objectives import objective

    directory = make_run(settings(training={"gradient_clip_val": limit}))
    honest = objective.global_mean
    calls = []

    def poisoned(loss_sum, count):
        calls.append(1)
        return honest(loss_sum, count) * (math.nan if len(calls) == 6 else 1)

    monkeypatch.setattr(objective, "global_mean", poisoned)
    code = start_here(directory)
    assert code == ExitCode.NOT_FINITE
    sentence = (
        "step 6: the norm of the gradient is nan, so training stopped (the last checkpoint is from an earlier "
        f"step); {advice}, or raise training.warmup_steps."
    )
    assert sentence in capsys.readouterr().err
    assert directory.state().state == "failed"
    assert directory.state().message == sentence
    assert directory.state().step == 6  # less than a second after the first, which was written
    newest = sorted(directory.checkpoints.glob("step=*"))[-1]
    assert newest.name == "step=0000004.ckpt"
    assert all(tensor.isfinite().all() for tensor in read_checkpoint(newest)["state_dict"].values())


def test_a_gradient_that_dropout_makes_too_large_is_not_blamed_on_the_learning_rate(make_run, tokens, capsys):
    """Each layer multiplies what dropout leaves by 100, so the gradient overflows before any step was taken."""
    dropout = {"dropout": 0.99, "attention_dropout": 0.2, "feed_forward_dropout": 0.9}
    directory = make_run(settings(encoder=dropout | {"num_hidden_layers": 12}))
    code = start_here(directory)
    assert code == ExitCode.NOT_FINITE
    assert (
        "step 1: the norm of the gradient is nan, so training stopped (the last checkpoint is from an earlier "
        "step); lower encoder.dropout (0.99) and encoder.feed_forward_dropout (0.9), because what dropout leaves "
        "is multiplied by 1 / (1 - rate)."
    ) in capsys.readouterr().err


def test_memory_that_is_used_up_ends_the_run_with_a_sentence_and_its_own_code(make_run, tokens, monkeypatch):
    from lightning_modules.objectives import objective

    directory = make_run(settings())
    monkeypatch.setattr(objective, "global_mean", lambda *_: torch.empty(2**60))  # more than any machine has
    code = start_here(directory)
    assert code == ExitCode.OUT_OF_MEMORY == 67
    assert directory.state().exit_code == 67
    assert directory.state().message == (
        "training ran out of memory (no room for 4.29e+09 GiB); raise training.accumulate (which cuts a step "
        "into parts), or lower training.tokens_per_step or --slots."
    )


def test_a_model_that_does_not_fit_is_told_from_a_step_that_does_not(make_run, tokens, monkeypatch):
    directory = make_run(settings())
    monkeypatch.setattr(fit, "build", lambda *_: torch.empty(2**60))
    assert start_here(directory) == 67
    assert directory.state().message == (
        "building the model ran out of memory (no room for 4.29e+09 GiB); lower encoder.hidden_size, "
        "encoder.num_hidden_layers, or --slots."
    )


def test_interrupting_is_not_failing(make_run, tokens):
    directory, stop = make_run(settings()), StopRequest()
    directory.write_state("running", step=8, saved_step=5)  # a killed attempt
    stop.received = True
    assert start(directory, data_root=directory.path, accelerator="cpu", threads=1, stop=stop) == 75
    assert (directory.state().state, directory.state().step) == ("interrupted", 5)


def test_too_little_text_is_wrong_data(make_run, tokens, capsys):
    directory = make_run(settings(training={"tokens_per_step": 10**6}))
    assert start(directory, data_root=directory.path, accelerator="cpu", stop=StopRequest()) == ExitCode.WRONG_DATA
    assert "but the training text has only" in capsys.readouterr().err


def test_two_processes_cannot_train_one_run(make_run, tokens):
    directory = make_run(settings())
    with directory.lock(), pytest.raises(RunBusyError) as error:
        start(directory, data_root=directory.path, stop=StopRequest())
    assert str(error.value) == (
        f"{directory.path}: another process is training this run; wait for it, or end it first."
    )


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9, 0.999])
def test_a_checkpoint_that_was_cut_short_is_a_sentence(make_run, tokens, keep):
    directory = make_run(settings(training={"max_steps": 1}))
    run_to(directory, tokens)
    whole = directory.last_checkpoint.read_bytes()
    directory.last_checkpoint.write_bytes(whole[: int(len(whole) * keep)])
    assert error_text(CheckpointError, read_checkpoint, directory.last_checkpoint) == (
        f"{directory.last_checkpoint}: the checkpoint is damaged or incomplete; restore it, or delete "
        f"{directory.path}, then `ablate run` trains the run again."
    )


class Payload:
    def __reduce__(self):
        return (print, ("executed",))


def test_a_checkpoint_never_executes_anything(tmp_path, capsys):
    torch.save({"state_dict": Payload()}, tmp_path / "last.ckpt")
    assert error_text(CheckpointError, read_checkpoint, tmp_path / "last.ckpt") == (
        f"{tmp_path / 'last.ckpt'} contains other things than tensors and plain values, so it was not opened; "
        "use only checkpoints that this project wrote."
    )
    assert "executed" not in capsys.readouterr().out


def test_what_a_killed_writer_left_is_cleared_away(make_run, tokens):
    directory = make_run(settings(training={"max_steps": 1}))
    directory.checkpoints.mkdir()
    left = directory.checkpoints / ".last.ckpt.deadbeef.tmp"
    left.write_bytes(b"half a checkpoint")
    start_here(directory)
    assert not left.exists()


def test_a_done_run_whose_checkpoint_was_cut_short_is_not_done(train_run, tokens):
    directory = train_run(settings(training={"max_steps": 1}))
    assert directory.is_done()
    directory.last_checkpoint.write_bytes(directory.last_checkpoint.read_bytes()[:-100])
    assert not directory.is_done()


def test_no_checkpoint_is_opened_where_the_environment_lets_it_execute_code(tmp_path, monkeypatch, capsys):
    torch.save({"state_dict": Payload()}, tmp_path / "last.ckpt")
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    assert error_text(CheckpointError, read_checkpoint, tmp_path / "last.ckpt") == (
        f"{tmp_path / 'last.ckpt'}: TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, so a checkpoint could execute "
        "code; unset this variable."
    )
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize("content", ['{"sta', "[]", '{"state": "perhaps"}', "\xff"])
def test_a_state_that_cannot_be_read_is_no_run_that_nobody_started(make_run, content):
    directory = make_run(settings())
    assert directory.state() == RunState(state="planned", step=0)
    (directory.path / "state.json").write_bytes(content.encode("latin-1"))
    sentence = (
        f"{directory.path}/state.json cannot be read or has changed since it was written, so the progress of "
        "the run is unknown; delete the file, then `ablate run` continues from the last checkpoint."
    )
    for ask in (directory.state, directory.is_trained, lambda: directory.write_state("running")):
        assert error_text(RunDirectoryError, ask) == sentence


@pytest.mark.parametrize(
    ("statement", "reason"),
    [("raise ValueError('no loss')", "ValueError: no loss"), ("raise SystemExit(3)", "SystemExit: 3")],
)
def test_an_objective_of_ones_own_that_fails_or_exits_ends_its_run_with_the_line_of_its_file(
    statement, reason, make_run, tmp_path
):
    template = Path(__file__).parents[3] / "docs" / "plugins" / "my_objective.py"
    comment = "# a sum and a count"
    lines = template.read_text().replace(comment, f"{statement}  {comment}").splitlines()
    file = tmp_path / "failing.py"
    file.write_text("\n".join(lines))
    plugins.look_beside(tmp_path / "spec.yaml")
    directory = make_run(settings("failing.py:Ahead"))
    code = start_here(directory)
    assert (code, directory.state().state) == (ExitCode.WRONG_SETTINGS, "failed")
    line = next(number for number, text in enumerate(lines, 1) if statement in text)
    assert directory.state().message == f"failing.py:Ahead: {file}, line {line}: {reason}; correct the file."
