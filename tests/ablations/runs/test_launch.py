"""The pool: devices of its own for each run, every run tried, deaths and stops survived."""

import os
import signal
import subprocess
import sys
import threading
import time

import joblib
import pytest

from ablations.errors import ResultsError
from ablations.runs import launch
from ablations.runs.launch import Pool, assign_devices, start_process, threads_per_process
from lightning_modules.errors import ExitCode
from lightning_modules.provenance import available_cores
from lightning_modules.training.run_directory import RunDirectory
from tests.support.errors import error_text
from tests.support.fake_worker import FAKE, fake_run, orders_of
from tests.support.tiny_text import settings

LIMIT = 600  # seconds; a hang is a failure, and a busy machine is none


def test_four_gpus_are_shared_out_without_overlap():
    four = ["0", "1", "2", "3"]
    shares = assign_devices(four, slots=2, devices=2)
    assert shares == [{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2,3"}]
    assert len({share["CUDA_VISIBLE_DEVICES"] for share in assign_devices(four, slots=4, devices=1)}) == 4
    assert assign_devices([], slots=3, devices=2) == [{}, {}, {}]
    shared = [share["CUDA_VISIBLE_DEVICES"] for share in assign_devices(four[:2], slots=5, devices=1)]
    assert shared == ["0", "1", "0", "1", "0"]  # small runs of one device each share a card
    assert (
        error_text(ResultsError, assign_devices, four, slots=3, devices=2)
        == "--slots 3 with --devices 2 needs 6 GPUs, but this machine has 4; lower one of the two."
    )


def test_threads_share_the_cores(monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [threads_per_process(n) for n in (1, 2, 3, 8, 20)] == [8, 4, 2, 1, 1]


def test_a_container_has_as_many_cores_as_its_quota_is_worth():
    """joblib reads the quota of a cgroup, or this variable."""
    code = "from lightning_modules.provenance import available_cores; print(available_cores())"
    environment = os.environ | {"LOKY_MAX_CPU_COUNT": "1"}
    printed = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert printed == "1\n"


@pytest.mark.parametrize(("of_task", "cores"), [("3", 3), ("20", 8), ("0", 8), ("3,1", 8), ("", 8)])
def test_a_task_of_slurm_has_the_cores_that_it_was_given(monkeypatch, of_task, cores):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", of_task)
    assert available_cores() == cores


@pytest.mark.parametrize(("wanted", "threads"), [("1", 1), ("3", 3), ("9", 4), ("0", 4), ("4,2", 4), ("", 4)])
def test_a_user_may_want_fewer_threads_than_the_share(monkeypatch, wanted, threads):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", wanted)
    assert threads_per_process(2) == threads


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
    assert "but the training text has only" in outcomes[bad.path].message
    assert outcomes[gone.path].code != 0
    assert "has no run.json, so it is not the folder of a run" in outcomes[gone.path].message
    assert (good.path / "log.txt").exists()


WITH_LOADERS = """
from lightning_modules.training import fit
plain = fit.RunData
fit.RunData = lambda objective, tokens, workers: plain(objective, tokens, workers=1)
from ablations.runs.worker import serve
serve()
"""


@pytest.mark.filterwarnings("ignore")  # this process has threads when it forks
def test_a_worker_trains_with_processes_that_make_its_batches(make_run, monkeypatch):
    """As on a GPU: they are forked from the worker, which reads its orders in a thread."""
    monkeypatch.setattr(launch, "start_process", start_process)  # and no forked worker
    monkeypatch.setattr(launch, "WORKER", (sys.executable, "-c", WITH_LOADERS))
    monkeypatch.setattr(launch, "MOST_DEATHS", 1)
    run = make_run(settings(training={"max_steps": 2}), "mlm-s0-0000000001")
    pool = Pool(slots=1, devices=1, data_root=run.path, measures=[])
    late = threading.Timer(LIMIT, lambda: [worker.kill() for worker in pool._workers])
    late.daemon = True
    late.start()
    (outcome,) = pool.run([run.path], ended=lambda _: None)
    late.cancel()
    assert (outcome.code, outcome.message) == (ExitCode.DONE, None)


@pytest.fixture
def pool(tmp_path, monkeypatch):
    """Makes a pool of fake workers."""
    monkeypatch.setattr(launch, "start_process", start_process)  # and no forked worker
    monkeypatch.setattr(launch, "WORKER", FAKE)
    monkeypatch.setattr(launch, "threads_per_process", threads_per_process)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(launch, "SECONDS_BETWEEN_TRIES", 0.01)
    monkeypatch.setattr(launch, "SECONDS_AFTER_DEATH", 0.01)

    def make(**changes):
        return Pool(**({"slots": 1, "devices": 1, "data_root": tmp_path, "measures": []} | changes))

    return make


def test_every_run_has_an_outcome_and_a_dead_worker_is_replaced(pool, tmp_path):
    plans = {
        "bad": {"answers": [65], "message": "bad text."},
        "killed": {"signal": signal.SIGKILL},
        "ended": {"exit": 3},
        "good": {},
    }
    runs = [fake_run(tmp_path / name, **plan) for name, plan in plans.items()]
    (runs[1] / "log.txt").touch()
    ended, retried = [], []
    outcomes = pool().run(runs, ended=ended.append, tried_again=retried.append)
    assert ended == outcomes
    assert sorted(retried) == [
        f"an attempt ended early: {name}: its worker process ended with {how}; the run continues from its last "
        "checkpoint."
        for name, how in (("ended", "exit code 3"), ("killed", "signal SIGKILL"))
        for _ in range(2)  # the third attempt is the last, and `ended` has its reason
    ]
    died = (
        "its worker process died 3 times without progress, the last time of {}; {}, and lower --slots if "
        "the machine is short of memory."
    )
    by_run = {one.run_dir: (one.code, one.message, one.seconds) for one in outcomes}
    assert by_run == {
        runs[0]: (65, "bad text.", 1.5),
        runs[1]: (1, died.format("signal SIGKILL", f"read {runs[1] / 'log.txt'}"), 0.0),
        runs[2]: (1, died.format("exit code 3", "read what they printed above"), 0.0),
        runs[3]: (0, None, 1.5),
    }
    assert [len(orders_of(run)) for run in runs] == [1, 3, 3, 1]
    assert len({order["pid"] for run in runs[1:3] for order in orders_of(run)}) == 6
    state = RunDirectory(runs[1]).state()
    assert (state.state, state.message, state.exit_code) == ("failed", by_run[runs[1]][1], 1)


def test_a_run_whose_workers_die_goes_on_as_long_as_it_is_saved_further(pool, tmp_path):
    """Of five deaths only the last three are without progress between them; a run that ends after two is done."""
    run = fake_run(tmp_path / "run", signal=signal.SIGKILL, saves=[10, 20, 20, 20])
    (outcome,) = pool().run([run], ended=lambda _: None)
    assert outcome.code == 1
    assert len(orders_of(run)) == 4
    recovers = fake_run(tmp_path / "recovers", signal=signal.SIGKILL, deaths=2)
    (outcome,) = pool().run([recovers], ended=lambda _: None)
    assert (outcome.code, outcome.message) == (0, None)


def test_a_run_is_tried_again_when_one_of_its_processes_was_killed_and_keeps_that_reason(pool, tmp_path):
    """The worker lives on; a run on several devices has processes of its own."""
    recovers = fake_run(tmp_path / "recovers", answers=[ExitCode.RANK_DIED, ExitCode.RANK_DIED, 0])
    fails = fake_run(tmp_path / "fails", answers=[ExitCode.RANK_DIED], message="process 2 was killed.")
    retried = []
    ranks = pool(devices=2).run([recovers, fails], ended=lambda _: None, tried_again=retried.append)
    outcomes = {one.run_dir: one for one in ranks}
    assert retried[-1] == "an attempt ended early: fails: process 2 was killed."
    assert len(retried) == 4
    assert (outcomes[recovers].code, len(orders_of(recovers))) == (0, 3)
    assert (outcomes[fails].code, outcomes[fails].message) == (ExitCode.RANK_DIED, "process 2 was killed.")
    assert len(orders_of(fails)) == 3
    assert len({order["pid"] for run in (recovers, fails) for order in orders_of(run)}) == 1


def test_a_trained_run_whose_workers_die_stays_trained(pool, tmp_path):
    run = fake_run(tmp_path / "run", signal=signal.SIGKILL)
    RunDirectory(run).write_state("done")
    (outcome,) = pool().run([run], ended=lambda _: None)
    assert "died 3 times" in outcome.message
    assert RunDirectory(run).state().state == "done"


def test_a_pool_that_is_stopped_waits_for_no_pause_after_a_death(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "SECONDS_AFTER_DEATH", LIMIT)
    run = fake_run(tmp_path / "run", signal=signal.SIGKILL)
    stopped = pool()
    threading.Timer(0.5, stopped.stop).start()
    begin = time.monotonic()
    assert stopped.run([run], ended=lambda _: None) == []
    assert time.monotonic() - begin < LIMIT


def test_a_run_that_somebody_else_works_on_is_tried_again_after_the_others(pool, tmp_path):
    busy = fake_run(tmp_path / "busy", answers=[ExitCode.BUSY, ExitCode.BUSY, 0])
    free = fake_run(tmp_path / "free")
    outcomes = pool().run([busy, free], ended=lambda _: None)
    assert [(one.run_dir, one.code) for one in outcomes] == [(free, 0), (busy, 0)]
    assert len(orders_of(busy)) == 3


def test_slots_work_at_once_each_with_its_own_devices_and_its_share_of_the_cores(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 16)
    left, right = tmp_path / "left", tmp_path / "right"
    fake_run(left, until=str(right / "orders.jsonl"))  # neither ends before the other has begun
    fake_run(right, until=str(left / "orders.jsonl"))
    both = pool(slots=2, devices=2, gpus=["0", "1", "2", "3"], recompute=True)
    assert [one.code for one in both.run([left, right], ended=lambda _: None)] == [0, 0]
    got = [one for run in (left, right) for one in orders_of(run)]
    assert {one["gpus"] for one in got} == {"0,1", "2,3"}
    assert len({one["pid"] for one in got}) == 2
    assert [one["order"] for one in got] == [
        {
            "run_dir": str(run),
            "data_root": str(tmp_path),
            "devices": 2,
            "accelerator": "gpu",
            "recompute": True,
            "threads": 4,
            "measures": [],
            "plugins": {},
        }
        for run in (left, right)
    ]


def test_what_runs_when_the_pool_is_stopped_is_interrupted_and_the_rest_is_not_begun(pool, tmp_path):
    """One worker saves and says so, another one dies of the stop; both runs are interrupted and none failed."""
    saved = fake_run(tmp_path / "saved", waits=True)
    died = fake_run(tmp_path / "died", waits=True, exit_at_end=True)
    rest = fake_run(tmp_path / "rest")
    stopped = pool(slots=2)

    def stop():
        deadline = time.monotonic() + LIMIT
        while not (orders_of(saved) and orders_of(died)) and time.monotonic() < deadline:
            time.sleep(0.01)
        stopped.stop()

    threading.Thread(target=stop).start()
    outcomes = stopped.run([saved, died, rest], ended=lambda _: None)
    assert {(one.run_dir, one.code, one.message) for one in outcomes} == {
        (saved, ExitCode.INTERRUPTED, None),
        (died, ExitCode.INTERRUPTED, None),
    }
    assert orders_of(rest) == []


def test_a_bug_in_a_slot_is_no_run_left_out_in_silence(pool, tmp_path):
    def broken(outcome):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pool().run([fake_run(tmp_path / "run")], ended=broken)


def test_workers_start_before_there_is_anything_to_do_and_take_what_comes(pool, tmp_path):
    run = fake_run(tmp_path / "run")
    with pool(slots=2) as waiting:
        started = [worker.pid for worker in waiting._workers]
        (outcome,) = waiting.run([run], ended=lambda _: None)
    assert outcome.code == 0
    assert [worker.pid for worker in waiting._workers] == started
    assert [order["pid"] in started for order in orders_of(run)] == [True]
    assert len(started) == 2
    assert all(worker.poll() is not None for worker in waiting._workers)


def test_what_goes_wrong_before_the_first_run_ends_the_workers_at_once(pool):
    waiting = pool(slots=2)
    with pytest.raises(ZeroDivisionError), waiting:
        raise ZeroDivisionError
    assert [worker.returncode for worker in waiting._workers] == [-signal.SIGKILL] * 2


def test_a_stopped_pool_starts_nothing(pool, tmp_path):
    run = fake_run(tmp_path / "run")
    stopped = pool()
    stopped._stop()
    assert stopped.run([run], ended=lambda _: None) == []
    assert (orders_of(run), stopped._workers) == ([], [])
