"""The pool: devices of its own for each run, every run tried, kills survived."""

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

from ablations.errors import ResultsError
from ablations.runs.launch import Pool, assign_devices, threads_per_process
from lightning_modules.training.checkpoint import read_checkpoint
from tests.support.spec_files import write_spec
from tests.support.tiny_text import settings

LIMIT = 240  # seconds; a hang is a failure
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def test_four_gpus_are_shared_out_without_overlap():
    four = ["0", "1", "2", "3"]
    shares = assign_devices(four, slots=2, devices=2)
    assert shares == [{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2,3"}]
    assert len({share["CUDA_VISIBLE_DEVICES"] for share in assign_devices(four, slots=4, devices=1)}) == 4
    assert assign_devices([], slots=3, devices=2) == [{}, {}, {}]
    shared = [share["CUDA_VISIBLE_DEVICES"] for share in assign_devices(four[:2], slots=5, devices=1)]
    assert shared == ["0", "1", "0", "1", "0"]  # small runs of one device each share a card
    with pytest.raises(ResultsError) as error:
        assign_devices(four, slots=3, devices=2)
    assert str(error.value) == "--slots 3 with --devices 2 needs 6 GPUs, but finds 4; lower one of the two."


def test_threads_share_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert [threads_per_process(n) for n in (1, 2, 3, 8, 20)] == [8, 4, 2, 1, 1]


def test_one_failing_run_does_not_stop_the_others_and_is_named(make_run):
    bad = make_run(settings(training={"tokens_per_step": 10**6}), "bad-s0-0000000001")
    good = make_run(settings(training={"max_steps": 2}), "good-s0-0000000002")
    gone = make_run(settings(), "gone-s0-0000000003")
    (gone.path / "run.json").unlink()
    pool = Pool(slots=1, devices=1, data_root=bad.path, measures=[])
    outcomes = {
        outcome.run_dir: outcome for outcome in pool.run([bad.path, gone.path, good.path], ended=lambda _: None)
    }
    assert outcomes[good.path].code == 0
    assert outcomes[bad.path].code == 65
    assert "fewer than one step" in outcomes[bad.path].message
    assert outcomes[gone.path].code != 0
    assert "no run.json that can be read" in outcomes[gone.path].message
    assert (good.path / "log.txt").exists()


def tensors(run_dir):
    """All tensors of model and optimiser at the end of a run."""
    checkpoint = read_checkpoint(run_dir / "checkpoints/last.ckpt")
    states = checkpoint["optimizer_states"][0]["state"].values()
    return [*checkpoint["state_dict"].values(), *(t for state in states for t in state.values())]


def grid(folder, data_root, out):
    arguments = [
        str(folder / "spec.yaml"),
        "--out",
        str(folder / out),
        "--data-root",
        str(data_root),
        "--slots",
        "2",
    ]
    return [sys.executable, "-m", "ablations.cli", "run", *arguments]


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
    below = children(process.pid)
    for pid in (process.pid, *below):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(LIMIT)


def killed_and_continued(tmp_path, data_root, kills):
    """Run a grid undisturbed, and once more with kills at random moments; returns both output roots."""
    write_spec(tmp_path, training={"max_steps": 150, "tokens_per_step": 128, "validate_every": 50})
    subprocess.run(
        grid(tmp_path, data_root, "whole"), env=ENVIRONMENT, check=True, capture_output=True, timeout=LIMIT
    )
    rng = torch.Generator().manual_seed(0)
    for _ in range(kills):
        process = subprocess.Popen(grid(tmp_path, data_root, "killed"), env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        time.sleep(4 + 6 * torch.rand(1, generator=rng).item())
        kill_everything(process)
    subprocess.run(
        grid(tmp_path, data_root, "killed"), env=ENVIRONMENT, check=True, capture_output=True, timeout=LIMIT
    )
    return tmp_path / "whole", tmp_path / "killed"


def assert_same_runs(whole, killed):
    runs = sorted(path.name for path in (whole / "runs").iterdir())
    assert runs == sorted(path.name for path in (killed / "runs").iterdir())
    assert len(runs) == 4
    for name in runs:
        a, b = tensors(whole / "runs" / name), tensors(killed / "runs" / name)
        assert len(a) == len(b)
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
        kept = [
            [
                {k: v for k, v in json.loads(line).items() if k != "time" and not k.startswith("perf/")}
                for line in lines
            ]
            for lines in (
                (root / "runs" / name / "metrics.jsonl").read_text().splitlines() for root in (whole, killed)
            )
        ]
        assert kept[0] == kept[1]
        assert not list((killed / "runs" / name).glob("**/.*.tmp"))


def test_a_grid_killed_and_continued_ends_with_the_same_bits(tmp_path, data_root):
    assert_same_runs(*killed_and_continued(tmp_path, data_root, kills=2))


@pytest.mark.slow
def test_a_grid_killed_ten_times_ends_with_the_same_bits(tmp_path, data_root):
    assert_same_runs(*killed_and_continued(tmp_path, data_root, kills=10))


def test_two_grids_at_once_train_every_run_once(tmp_path, data_root):
    write_spec(tmp_path, training={"max_steps": 40, "tokens_per_step": 128, "validate_every": 50})
    both = [
        subprocess.Popen(grid(tmp_path, data_root, "out"), env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=LIMIT)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    for metrics in (tmp_path / "out/runs").glob("*/metrics.jsonl"):
        steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines() if "train/loss" in line]
        assert steps == list(range(1, 41))
    assert (tmp_path / "out/tried/report.html").exists()
    again = subprocess.run(
        grid(tmp_path, data_root, "out"), capture_output=True, text=True, check=True, timeout=LIMIT
    )
    assert "nothing to do" in again.stdout


def test_sigterm_saves_what_is_running_and_the_same_command_goes_on(tmp_path, data_root):
    write_spec(
        tmp_path, training={"max_steps": 100_000, "tokens_per_step": 128, "validate_every": 50_000}, seeds=[0]
    )
    process = subprocess.Popen(
        grid(tmp_path, data_root, "out"), env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + LIMIT
    while not list(Path(tmp_path / "out/runs").glob("*/metrics.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == 130
    assert "interrupted; the same command goes on from here" in output
    states = [json.loads(path.read_text())["state"] for path in (tmp_path / "out/runs").glob("*/state.json")]
    assert "interrupted" in states
    assert "failed" not in states
    assert any((tmp_path / "out/runs").glob("*/checkpoints/last.ckpt"))


def test_a_bug_in_a_slot_is_no_run_left_out_in_silence(make_run):
    directory = make_run(settings(training={"max_steps": 1}))

    def broken(outcome):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Pool(slots=1, devices=1, data_root=directory.path, measures=[]).run([directory.path], ended=broken)


def test_workers_start_before_there_is_anything_to_do_and_take_what_comes(make_run):
    directory = make_run(settings(training={"max_steps": 2}))
    with Pool(slots=2, devices=1, data_root=directory.path, measures=[]) as pool:
        started = [worker.pid for worker in pool._workers]
        (outcome,) = pool.run([directory.path], ended=lambda _: None)
    assert outcome.code == 0
    assert [worker.pid for worker in pool._workers] == started
    assert len(started) == 2
    assert all(worker.poll() is not None for worker in pool._workers)


def test_what_goes_wrong_before_the_first_run_ends_the_workers_at_once(make_run):
    pool = Pool(slots=2, devices=1, data_root=make_run(settings()).path, measures=[])
    with pytest.raises(ZeroDivisionError), pool:
        raise ZeroDivisionError
    assert [worker.returncode for worker in pool._workers] == [-signal.SIGKILL] * 2


def test_a_stopped_pool_starts_nothing(make_run):
    directory = make_run(settings())
    pool = Pool(slots=1, devices=1, data_root=directory.path, measures=[])
    pool._stop()
    assert pool.run([directory.path], ended=lambda _: None) == []
    assert directory.state().state == "planned"


def start_worker():
    return subprocess.Popen(
        [sys.executable, "-m", "ablations.runs.worker"],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_worker_whose_launcher_was_killed_ends_without_a_traceback(make_run):
    directory = make_run(settings(training={"max_steps": 0}))
    order = {
        "run_dir": str(directory.path),
        "data_root": ".",
        "devices": 1,
        "accelerator": "cpu",
        "recompute": False,
    }
    worker = start_worker()
    worker.stdout.close()  # nobody reads its answers any more
    worker.stdin.write(json.dumps(order | {"threads": 1, "measures": []}) + "\n")
    worker.stdin.flush()
    assert (worker.wait(LIMIT), worker.stderr.read()) == (0, "")
    worker.stdin.close()
    worker.stderr.close()
    assert (directory.path / "state.json").exists()


def test_a_log_that_takes_nothing_more_is_a_sentence_and_ends_no_worker(make_run):
    """As on a full disk, which /dev/full is like; the run fails, and the next order is served."""
    directory = make_run(settings(training={"max_steps": 0}))
    (directory.path / "log.txt").symlink_to("/dev/full")
    (directory.path / "run.json").unlink()
    gone = directory.path.with_name("gone")
    order = {
        "data_root": ".",
        "devices": 1,
        "accelerator": "cpu",
        "recompute": False,
        "threads": 1,
        "measures": [],
    }
    orders = [order | {"run_dir": str(path)} for path in (directory.path, gone, directory.path)]
    worker = start_worker()
    answers = []
    for one in orders:
        worker.stdin.write(json.dumps(one) + "\n")
        worker.stdin.flush()
        answers.append(json.loads(worker.stdout.readline()))
    _, printed = worker.communicate(timeout=LIMIT)
    assert (worker.returncode, printed) == (0, "")
    assert {answer["code"] for answer in answers} == {1}
    assert answers[0]["message"] == (
        f"{directory.path} cannot be written to: the disk is full; free some space, then start again."
    )
