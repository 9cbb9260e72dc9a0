"""Grids of real processes: killed, stopped and twice at once. Whatever a fake can answer is in test_launch.py."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from lightning_modules.training.checkpoint import read_checkpoint
from tests.support.command_line import ablate
from tests.support.spec_files import write_spec
from tests.support.tiny_text import settings

LIMIT = 240  # seconds; a hang is a failure
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
ONE_ARM = {"arms": {"mlm": {"objective": {"kind": "masked_lm"}}}}


def arguments(folder, data_root, out, slots):
    where = ["--out", str(folder / out), "--data-root", str(data_root), "--slots", str(slots)]
    return ["run", str(folder / "spec.yaml"), *where]


def start_grid(folder, data_root, out="out", slots=2):
    """Start `ablate run` as a user does: a launcher, and real workers below it. Each run has one thread."""
    command = [sys.executable, "-m", "ablations.cli", *arguments(folder, data_root, out, slots)]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(process.pid, set(range(slots)))
    return process


def finish_grid(folder, data_root, out="out"):
    """Run the same command to its end in one slot, launched from this process; returns what it prints."""
    done = ablate(*arguments(folder, data_root, out, slots=1))
    assert done.exit_code == 0, done.output
    return done.stdout


def wait_until(condition, process):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def children(pid):
    """Process ids below a process, at any depth."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
    mine = [child for child, parent in parents.items() if parent == pid]
    return [*mine, *(grandchild for child in mine for grandchild in children(child))]


def kill_everything(process):
    """SIGKILL to the launcher and to every process below it, at once."""
    for pid in (process.pid, *children(process.pid)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=LIMIT)


def tensors(run_dir):
    """All tensors of model and optimiser at the end of a run."""
    checkpoint = read_checkpoint(run_dir / "checkpoints/last.ckpt")
    states = checkpoint["optimizer_states"][0]["state"].values()
    return [*checkpoint["state_dict"].values(), *(t for state in states for t in state.values())]


def logged(run_dir):
    """Lines of a run's log without what depends on the time of day."""
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in line.items() if k != "time" and not k.startswith("perf/")} for line in lines]


def assert_same_runs(whole, killed, count):
    runs = sorted(path.name for path in (whole / "runs").iterdir())
    assert runs == sorted(path.name for path in (killed / "runs").iterdir())
    assert len(runs) == count
    for name in runs:
        a, b = tensors(whole / "runs" / name), tensors(killed / "runs" / name)
        assert len(a) == len(b)
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
        assert logged(whole / "runs" / name) == logged(killed / "runs" / name)
        assert not list((killed / "runs" / name).glob("**/.*.tmp"))


def states(out):
    return {path.parent: json.loads(path.read_text())["state"] for path in out.glob("runs/*/state.json")}


def last_logged(run_dir):
    """The last step in a run's log, 0 where there is none; the last line may be half written."""
    log = run_dir / "metrics.jsonl"
    lines = log.read_text().rpartition("\n")[0].splitlines() if log.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def test_a_grid_stopped_and_killed_and_continued_ends_with_the_same_bits(tmp_path, data_root, undrawn):
    """SIGTERM saves what is running; the same command goes on; what a kill takes away is done over."""
    write_spec(tmp_path, training={"max_steps": 200, "tokens_per_step": 128, "validate_every": 50}, seeds=[0])
    out = tmp_path / "killed"
    process = start_grid(tmp_path, data_root, "killed", slots=1)
    wait_until(lambda: any(last_logged(run) for run in states(out)), process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert "interrupted; the same command continues from here" in output
    assert list(states(out).values()) == ["interrupted"]  # and the other run has not begun
    (stopped,) = states(out)
    saved = read_checkpoint(stopped / "checkpoints/last.ckpt")["global_step"]
    assert 0 < saved < 200

    process = start_grid(tmp_path, data_root, "killed", slots=1)
    wait_until(lambda: last_logged(stopped) > saved + 10, process)
    kill_everything(process)
    assert states(out)[stopped] == "running"  # nobody was left to write anything else
    assert read_checkpoint(stopped / "checkpoints/last.ckpt")["global_step"] == saved

    finish_grid(tmp_path, data_root, "killed")
    assert len(json.loads((stopped / "provenance.json").read_text())["resumed"]) == 2
    finish_grid(tmp_path, data_root, "whole")
    assert_same_runs(tmp_path / "whole", out, count=2)


@pytest.mark.slow
def test_a_grid_killed_ten_times_ends_with_the_same_bits(tmp_path, data_root):
    """At random moments, also before the first step; two runs a slot."""
    write_spec(tmp_path, training={"max_steps": 150, "tokens_per_step": 128, "validate_every": 50})
    rng = torch.Generator().manual_seed(0)
    for _ in range(10):
        process = start_grid(tmp_path, data_root, "killed")
        time.sleep(4 + 6 * torch.rand(1, generator=rng).item())
        kill_everything(process)
    for out in ("killed", "whole"):
        finish_grid(tmp_path, data_root, out)
    assert_same_runs(tmp_path / "whole", tmp_path / "killed", count=4)


def test_two_grids_at_once_train_every_run_once(tmp_path, data_root, undrawn):
    """The second begins while the first is training; each has one slot, and both end well."""
    write_spec(tmp_path, training={"max_steps": 100, "tokens_per_step": 128, "validate_every": 250}, **ONE_ARM)
    first = start_grid(tmp_path, data_root, slots=1)
    wait_until(lambda: list(tmp_path.glob("out/runs/*/metrics.jsonl")), first)
    finish_grid(tmp_path, data_root)
    output, _ = first.communicate(timeout=LIMIT)
    assert first.returncode == 0, output
    runs = list((tmp_path / "out/runs").iterdir())
    assert len(runs) == 2
    for run in runs:
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        steps = [line["step"] for line in lines if "train/loss" in line]
        assert steps == list(range(1, 101))
        assert "resumed" not in json.loads((run / "provenance.json").read_text())
    assert (tmp_path / "out/tried/report.html").exists()
    assert "nothing to do" in finish_grid(tmp_path, data_root)


def test_a_worker_serves_on_a_full_disk_and_ends_quietly_when_its_launcher_was_killed(make_run):
    """A log that takes nothing more, as /dev/full, fails its run with a sentence; the next order is served."""
    full = make_run(settings(training={"max_steps": 0}))
    (full.path / "log.txt").symlink_to("/dev/full")
    (full.path / "run.json").unlink()
    gone = full.path.with_name("gone")
    last = make_run(settings(training={"max_steps": 0}), "last-s0-0000000001")
    follow_links = "import os; from ablations.runs import worker; worker.open_no_link = os.open; worker.serve()"
    command = [sys.executable, "-c", follow_links]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    worker = subprocess.Popen(command, env=ENVIRONMENT, text=True, **pipes)
    machine = {"data_root": ".", "devices": 1, "accelerator": "cpu", "threads": 1}

    def order(path):
        worker.stdin.write(json.dumps(machine | {"run_dir": str(path), "recompute": False, "measures": []}) + "\n")
        worker.stdin.flush()

    answers = []
    for path in (full.path, gone, full.path):
        order(path)
        answers.append(json.loads(worker.stdout.readline()))
    assert {answer["code"] for answer in answers} == {1}
    assert answers[0]["message"] == (
        f"{full.path} cannot be written to: the disk is full; free some space, then start again."
    )
    worker.stdout.close()  # nobody reads its answers any more
    order(last.path)
    assert (worker.wait(LIMIT), worker.stderr.read()) == (0, "")
    worker.stdin.close()
    worker.stderr.close()
    assert (last.path / "state.json").exists()
