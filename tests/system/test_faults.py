"""Faults that are drawn from a seed, what they do to files, and what is done after a sentence that asks for it."""

import json
import random
import subprocess
import sys
from collections import Counter

import pytest

from benchmarks.faults import draw, draw_for_command, obey, sentence, summary
from benchmarks.traps import DAMAGES, IN_COMMAND, IN_PLACE, KINDS, MOMENTS, Trap, damage


def test_a_seed_repeats_its_faults_and_all_kinds_come():
    first, again = ([draw(rng) for _ in range(2000)] for rng in (random.Random(7), random.Random(7)))
    assert first == again
    assert min(Counter(fault.kind for fault in first)[kind] for kind in KINDS) > 40
    assert {fault.kind for fault in first if fault.where == "command"} <= set(IN_COMMAND)


def test_only_faults_that_the_command_survives_have_others_behind_them():
    rng = random.Random(0)
    for most in (1, 2, 12):
        for _ in range(100):
            *before, last = draw_for_command(rng, most)
            assert len(before) < min(most, 3)
            assert all(fault.kind in IN_PLACE for fault in before)
            assert last.kind not in IN_PLACE or len(before) + 1 == min(most, 3)


def test_a_fault_is_due_once_at_its_call_in_its_process(tmp_path):
    fault = draw(random.Random(1))._replace(kind="second command", where="worker", moment="step", call=3)
    trap = Trap([fault], tmp_path)
    assert [trap.due("step") for _ in range(4)] == [None] * 4  # this process is the command
    trap.role = "worker"
    trap.count.clear()
    assert [trap.due(moment) for moment in ("step", "log", "step", "step")] == [None, None, None, fault]
    trap.act(fault)
    assert trap.happened == 1
    assert trap.due("step") is None


@pytest.mark.parametrize("moment", MOMENTS)
def test_every_moment_is_a_call_that_a_worker_or_a_command_makes(moment):
    owner, name = MOMENTS[moment]
    assert callable(getattr(owner, name))


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_cuts_a_file_or_changes_one_bit_of_it(tmp_path, kind):
    content = bytes(range(200))
    for name in ("checkpoints/last.ckpt", "metrics.jsonl", "state.json", "run.json", "measures.parquet"):
        path = tmp_path / "runs/a" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    fault = draw(random.Random(3))._replace(kind=kind)
    ((path, now),) = damage(tmp_path, fault).items()
    assert kind.endswith(path.name)
    assert path.read_bytes() == now
    if kind.startswith("cut"):
        assert content.startswith(now)
        assert len(now) < len(content)
    else:
        changed = int.from_bytes(now, "big") ^ int.from_bytes(content, "big")
        assert changed.bit_count() == 1
    assert damage(tmp_path / "none", fault) == {}


def test_what_a_sentence_says_is_deleted_and_nothing_else(tmp_path):
    names = ("state.json", "last.ckpt", "measures.parquet")
    state, checkpoint, rows = (tmp_path / name for name in names)
    run = tmp_path / "run"
    run.mkdir()
    for path in (state, checkpoint, rows):
        path.touch()
    assert not obey(f"failed: {state} cannot be written: the disk is full; free some space, then start again.")
    assert obey(f"{state} cannot be read, so nobody knows; delete the file, and `ablate run` goes on.")
    assert not state.exists()
    assert obey(f"failed: a: {rows} has changed; copy it back, or delete {checkpoint}, and the run starts again.")
    assert (checkpoint.exists(), rows.exists()) == (False, True)
    assert obey(f"{rows} is damaged (x); delete it and `ablate run` measures the run again.")
    assert not rows.exists()
    assert obey(f"{state} has changed; copy it back, or delete {run}, and `ablate run` trains the run again.")
    assert not run.exists()


def test_the_summary_counts_by_kind_and_names_what_is_wrong(tmp_path):
    fault = draw(random.Random(0))._asdict() | dict.fromkeys(
        ("lost", "corrupt", "hang", "different", "unexplained"), 0
    )
    lost = fault | {"lost": 1, "by hand": 2}
    (tmp_path / "grids").mkdir()
    for number, faults in enumerate(([fault, fault], [], [lost])):
        told = {"grid": number, "seconds": 6.0, "cpu_seconds": 3.0, "faults": faults}
        (tmp_path / f"grids/{number}.json").write_text(json.dumps(told))
    told = summary(tmp_path)
    assert (told["injected"], told["lost"], told["by hand"], told["grids"]) == (3, 1, 2, 3)
    assert told["kinds"][fault["kind"]]["injected"] == 3
    assert [fault["grid"] for fault in told["wrong"]] == [2]
    assert sentence(told) == (
        "3 faults in 3 grids: 1 lost, 0 corrupt, 0 hang, 0 different, 0 unexplained; "
        "6.0 s and 3.0 s of CPU a fault"
    )


@pytest.mark.slow
def test_grids_survive_some_faults_and_the_command_goes_on(tmp_path):
    for count in (2, 4):
        command = [sys.executable, "-m", "benchmarks", "faults", "--n", str(count), "--slots", "1"]
        done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((tmp_path / "local-seed-0/faults.json").read_text())
    assert told["injected"] >= 4
    assert not (tmp_path / "local-seed-0/work/0").exists()
