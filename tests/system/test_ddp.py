"""Two devices give the result of one, end together, and leave nothing behind. CPU processes, gloo."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from lightning_modules.training.checkpoint import read_checkpoint
from tests.support.forked_worker import FORK_SERVER, forked_training, ranks_of
from tests.support.ranks_in_float64 import save_weights, weights_in_float64
from tests.support.tiny_text import settings

LIMIT = 120  # seconds; a hang is a failure


def train(directory, devices, *, real_ranks=False):
    options = ["--devices", str(devices), "--accelerator", "cpu", "--threads", "1"]
    return forked_training(str(directory.path), *options, real_ranks=real_ranks)


def exit_code(process):
    process.join(LIMIT)
    return process.exitcode  # None of a process that hangs


def losses(directory):
    lines = [json.loads(line) for line in directory.metrics.read_text().splitlines()]
    return [line.get("train/loss", line.get("val/loss")) for line in lines]


LEARNING = [
    ("masked_lm", {}, {}),
    ("masked_lm", {"masking": {"select": "span", "predict": 0.3}}, {"word_order": "corpus"}),
    ("masked_lm", {"pair_loss": "sentence_order"}, {"input_format": "segment_pair"}),
    ("causal_lm", {"sees": "window"}, {"input_format": "full_sentences", "optimizer": "sgd"}),
    ("translation", {"token_dropout": 0.2}, {}),
    ("mixture", {}, {}),
    ("replaced_token", {}, {}),
    ("permutation_lm", {}, {}),
    ("naive_bidirectional_lm", {}, {}),
    ("skip_gram", {}, {}),
]


def test_two_devices_and_micro_batches_give_the_weights_of_one_step_in_float64(make_run, tokens, tmp_path):
    """On two devices some of the three micro-batches have no sentence."""
    for number, (kind, objective, training) in enumerate(LEARNING):
        run = settings(kind, encoder={"dropout": 0.0}, objective=objective, training=training)
        runs = make_run(run, f"{kind}-s0-{number:010}").path.parent
    store, target = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), tmp_path / "two.pt"
    ranks = [
        FORK_SERVER.Process(target=save_weights, args=(runs, tokens.folder, target, rank, store.port), daemon=True)
        for rank in range(2)
    ]
    for rank in ranks:
        rank.start()
    one, cut = (weights_in_float64(runs, tokens.folder, accumulate=parts) for parts in (1, 3))
    assert [exit_code(rank) for rank in ranks] == [0, 0]
    two = torch.load(target, weights_only=True)
    assert sum(len(x.unique()) for x in one.values()) > 10_000  # no weights of nothing
    assert len({name.split()[0] for name in one}) == len(LEARNING)
    for name in one:
        for other in (cut, *two.values()):
            torch.testing.assert_close(one[name], other[name], atol=1e-9, rtol=0, msg=name)


def test_a_run_on_two_devices_logs_the_losses_of_one_whole_or_in_micro_batches(make_run):
    one, two, cut = (
        make_run(settings(encoder={"dropout": 0.0}, training={"accumulate": parts}), f"{name}-s0-0000000000")
        for name, parts in (("one", 1), ("two", 1), ("cut", 2))
    )
    assert [exit_code(train(directory, n)) for directory, n in ((one, 1), (two, 2), (cut, 2))] == [0, 0, 0]
    for other in (two, cut):
        assert losses(one) == pytest.approx(losses(other), abs=1e-5)  # float32 sums in another order
        a, b = one.state(), other.state()
        assert (a.tokens_seen, a.tokens_predicted) == (b.tokens_seen, b.tokens_predicted)
        assert other.provenance()["devices"] == 2


def wait_for(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def started(directory, *, real_ranks=False):
    """A run on two devices that has logged its second step."""
    process = train(directory, 2, real_ranks=real_ranks)
    wait_for(lambda: directory.metrics.exists() and len(directory.metrics.read_text().splitlines()) >= 2)
    return process


LONG = {"max_steps": 100_000, "validate_every": 100_000}


@pytest.mark.parametrize("who", ["launcher", "rank 1"])
def test_sigterm_to_one_or_all_saves_within_a_step_and_resumes(who, make_run):
    directory = make_run(settings(training=LONG))
    process = started(directory)
    target = process.pid if who == "launcher" else ranks_of(directory.path)[1]
    os.kill(target, signal.SIGTERM)
    assert exit_code(process) == 75
    assert directory.state().state == "interrupted"
    saved = read_checkpoint(directory.last_checkpoint)["global_step"]
    logged = max(json.loads(line)["step"] for line in directory.metrics.read_text().splitlines())
    assert 0 <= saved - logged < 1000  # the log has a line every fifty steps
    assert saved > 0


@pytest.mark.parametrize("who", ["launcher", "rank 0"])
def test_a_killed_process_takes_the_others_with_it(who, make_run):
    """The launcher that is killed has the ranks that a user has, tied to it by nothing but a pipe and a lock."""
    directory = make_run(settings(training=LONG))
    process = started(directory, real_ranks=who == "launcher")
    ranks = ranks_of(directory.path)
    assert sorted(ranks) == [0, 1]
    os.kill(process.pid if who == "launcher" else ranks[0], signal.SIGKILL)
    assert exit_code(process) not in (None, 0)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks.values()))
    assert not directory.is_locked()
    assert directory.state().state in ("interrupted", "failed")
