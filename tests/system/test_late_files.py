"""An output root on a file system that shows changes late and does not hold locks between machines, as NFS can.

Two mounts of one folder stand for two machines: each keeps what it knows of a file for seconds, and sees no locks
of the other. Skipped where Debian's bindfs is not installed; run with `make test-cluster`.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.clusters import processes_below, wait_for
from tests.support.cluster_grid import SPEC as GRID
from tests.support.cluster_grid import table

ROOT = Path(__file__).parents[2]
SECONDS = 3
LIMIT = 1200  # seconds; a hang is a failure, and a busy machine is none
LACKS = shutil.which("bindfs") is None or os.geteuid() != 0 or not Path("/dev/fuse").exists()
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(LACKS, reason="needs bindfs (apt-get install bindfs), root and /dev/fuse"),
]
SPEC = GRID | {"training": GRID["training"] | {"max_steps": 1500}}


@pytest.fixture
def machines(tmp_path):
    """The output root as two machines see it, and as it is on the disk of the server."""
    server, mounts = tmp_path / "server", [tmp_path / "one", tmp_path / "two"]
    late = f"attr_timeout={SECONDS},entry_timeout={SECONDS},negative_timeout={SECONDS}"
    for folder in (server, *mounts):
        folder.mkdir()
    try:
        for mount in mounts:
            subprocess.run(["bindfs", "-o", late, str(server), str(mount)], check=True, timeout=30)
        yield *mounts, server
    finally:
        for mount in mounts:
            subprocess.run(["umount", "--lazy", str(mount)], check=False, timeout=30)


def start(out, log):
    spec = log.parent / "spec.yaml"
    spec.write_text(json.dumps(SPEC))
    command = [sys.executable, "-m", "ablations.cli", "run", str(spec), "--out", str(out), "--slots", "2"]
    variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with log.open("ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env=variables, start_new_session=True)


def steps(out):
    """Steps that the runs have logged, as the server has them."""
    return [len(path.read_text().splitlines()) for path in out.glob("runs/*/metrics.jsonl")]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert start(folder / "out", folder / "log.txt").wait(LIMIT) == 0, (folder / "log.txt").read_text()
    return table(folder / "out")


def test_the_mounts_show_changes_late_and_hold_no_locks_between_them(machines):
    one, two, _ = machines
    for name in map(str, range(100)):
        began = time.monotonic()
        assert not (two / name).exists()
        with (one / name).open("w") as mine:
            fcntl.flock(mine, fcntl.LOCK_EX)
            seen = (two / name).exists()
            if time.monotonic() - began > SECONDS:
                continue  # a busy machine, on which the change may be seen by now
            assert not seen
            wait_for((two / name).exists)
            with (two / name).open() as theirs:
                fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    pytest.fail("no two looks were less than SECONDS apart")


def test_a_grid_whose_machine_dies_goes_on_on_another_one_at_once(machines, tmp_path, undisturbed):
    one, two, server = machines
    first = start(one, tmp_path / "first.txt")
    wait_for(lambda: sum(steps(server)) > 0, seconds=LIMIT)
    list(two.rglob("*"))  # the other machine now knows the folder as it is, and keeps that for a while
    for pid in processes_below(first.pid):
        os.kill(pid, signal.SIGKILL)
    first.wait()
    second = start(two, tmp_path / "second.txt")
    assert second.wait(LIMIT) == 0, (tmp_path / "second.txt").read_text()
    pd.testing.assert_frame_equal(table(server), undisturbed, check_exact=True)
    time.sleep(SECONDS)
    pd.testing.assert_frame_equal(table(one), undisturbed, check_exact=True)


def test_a_grid_that_two_machines_train_at_once_ends_with_the_same_table(machines, tmp_path, undisturbed):
    one, two, server = machines
    first = start(one, tmp_path / "first.txt")
    wait_for(lambda: sum(steps(server)) > 0, seconds=LIMIT)
    second = start(two, tmp_path / "second.txt")
    codes = [command.wait(LIMIT) for command in (first, second)]
    printed = [(tmp_path / name).read_text() for name in ("first.txt", "second.txt")]
    assert not any("Traceback" in text for text in printed), printed
    if codes != [
        0,
        0,
    ]:  # who came first was told to leave the runs to the other, which the same command then shows
        time.sleep(SECONDS)
        third = start(one, tmp_path / "third.txt")
        assert third.wait(LIMIT) == 0, (tmp_path / "third.txt").read_text()
    pd.testing.assert_frame_equal(table(server), undisturbed, check_exact=True)
