"""Grids whose runs train on two devices each: two at once, and disturbed. CPU processes, gloo."""

import json
import os
import signal
import threading
import time

import pytest
import torch

from ablations.runs import launch
from lightning_modules.training.checkpoint import read_checkpoint
from tests.support.command_line import ablate
from tests.support.forked_worker import ranks_of
from tests.support.spec_files import write_spec

LIMIT = 240  # seconds; a hang is a failure
TRAINING = {"max_steps": 60, "tokens_per_step": 128, "validate_every": 60}
ENCODER = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "dropout": 0}
ONE_ARM = {"arms": {"mlm": {"objective": {"kind": "masked_lm"}}}, "seeds": [0]}


def run_grid(folder, data_root, out, *options):
    where = ["--out", str(folder / out), "--data-root", str(data_root)]
    return ablate("run", folder / "spec.yaml", *where, *options)


def wait_for(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def at_step(out, arm, step):
    """The folder of the run of an arm, when its log has so many lines."""
    logs = []

    def is_there():
        logs[:] = [log for log in out.glob(f"runs/{arm}-*/metrics.jsonl") if log.read_text().count("\n") >= step]
        return bool(logs)

    wait_for(is_there)
    return logs[0].parent


def disturbed(disturb, *arguments):
    """What a grid prints that a thread disturbs; both must come to their end."""
    thread = threading.Thread(target=disturb)
    thread.start()
    done = run_grid(*arguments)
    thread.join(LIMIT)
    assert not thread.is_alive()
    return done


def losses(run_dir):
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [line.get("train/loss", line.get("val/loss")) for line in lines]


def test_two_runs_on_two_devices_at_once_survive_a_killed_rank_with_the_losses_of_one_device(
    tmp_path, data_root, undrawn, monkeypatch
):
    monkeypatch.setattr(launch, "SECONDS_AFTER_DEATH", 0.1)
    write_spec(tmp_path, training=TRAINING, encoder=ENCODER, seeds=[0])
    out = tmp_path / "two"

    def kill():
        os.kill(ranks_of(at_step(out, "mlm", 2))[1], signal.SIGKILL)

    done = disturbed(kill, tmp_path, data_root, "two", "--devices", "2", "--slots", "2")
    assert done.exit_code == 0, done.output
    assert run_grid(tmp_path, data_root, "one", "--slots", "2").exit_code == 0
    runs = sorted(path.name for path in (out / "runs").iterdir())
    assert len(runs) == 2
    for name in runs:
        a, b = losses(tmp_path / "one" / "runs" / name), losses(out / "runs" / name)
        assert a == pytest.approx(b, abs=1e-4)  # float32 sums in another order, over sixty steps
    logs = {name.partition("-")[0]: (out / "runs" / name / "log.txt").read_text() for name in runs}
    killed = {
        arm: "process 2 of the 2 that train the run was killed (SIGKILL)" in log for arm, log in logs.items()
    }
    assert killed == {arm: arm == "mlm" for arm in killed}
    assert len(killed) == 2


def weights(out):
    (last,) = out.glob("runs/*/checkpoints/last.ckpt")
    return read_checkpoint(last)["state_dict"]


@pytest.mark.slow
def test_a_run_on_two_devices_that_is_disturbed_in_any_way_ends_with_the_same_bits(tmp_path, data_root):
    """A rank is frozen before the grid is stopped, killed while it saves, asked to stop, or killed."""
    write_spec(tmp_path, training=TRAINING, encoder=ENCODER, **ONE_ARM)
    assert run_grid(tmp_path, data_root, "whole", "--devices", "2").exit_code == 0
    whole = weights(tmp_path / "whole")

    def kill(run, rank):
        os.kill(ranks_of(run)[rank], signal.SIGKILL)

    def kill_while_saving(run, rank):
        target = ranks_of(run)[rank]
        wait_for(lambda: list(run.glob("checkpoints/.*.tmp")))
        os.kill(target, signal.SIGKILL)

    def ask(run, rank):
        os.kill(ranks_of(run)[rank], signal.SIGTERM)

    def freeze(run, rank):
        os.kill(ranks_of(run)[rank], signal.SIGSTOP)
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)

    for disturbance, rank, code in ((freeze, 1, 130), (kill_while_saving, 0, 0), (ask, 1, 130), (kill, 0, 0)):
        name = disturbance.__name__
        out = tmp_path / name

        def disturb(out=out, disturbance=disturbance, rank=rank):
            disturbance(at_step(out, "mlm", 3), rank)

        assert disturbed(disturb, tmp_path, data_root, name, "--devices", "2").exit_code == code, name
        assert run_grid(tmp_path, data_root, name, "--devices", "2").exit_code == 0, name
        assert all(torch.equal(whole[key], tensor) for key, tensor in weights(out).items()), name
        assert not list(out.glob("runs/*/**/.*.tmp")), name
