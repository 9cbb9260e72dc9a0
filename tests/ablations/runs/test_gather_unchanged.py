"""Unchanged files are not read again, and a changed one is seen."""

import json
import os
import threading
import time
from types import SimpleNamespace

import pandas as pd
import pytest

from ablations import results
from ablations.errors import ResultsError
from ablations.runs import gather, measure_pairs
from ablations.runs import rows as run_rows
from lightning_modules.config import MaskingSettings
from lightning_modules.files import write_json
from lightning_modules.training.run_directory import RunDirectory, RunDirectoryError
from tests.support.errors import error_text

KEYS = {"k": None}
STEP = run_rows.MeasuredStep("k", 20, None, "validation")
ROWS = {"measure": "validation", "metric": "loss", "floor": 5.0, "n": 70, "step": 20, "key": "k"}


def put(run_dir, value, **others):
    rows = pd.DataFrame([{**dict.fromkeys(run_rows.ROW_COLUMNS), **ROWS, "value": value, **others}])
    (run_dir / "measures.parquet").write_bytes(results.sealed(rows))


def add_run(tmp_path, arm, *, value=3.0):
    directory = RunDirectory(tmp_path / "runs" / f"{arm}-s1")
    directory.path.mkdir(parents=True)
    put(directory.path, value)
    line = {"step": 20, "val/loss": value, "val/predicted": 70}
    directory.metrics.write_text(json.dumps(line) + "\n")
    directory.write_state("done", step=20, log_sha256=directory.log_sha256())
    settings = SimpleNamespace(
        data=SimpleNamespace(vocab_size=105),
        encoder=SimpleNamespace(num_hidden_layers=2),
        objective=SimpleNamespace(masking=MaskingSettings(), has_layers=True),
    )
    run = SimpleNamespace(arm=arm, seed=1, settings=settings)
    return SimpleNamespace(directory=directory, tokens="t", run_id=arm, run=run)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Two runs whose files count as old enough."""
    monkeypatch.setattr(gather, "SETTLED_SECONDS", 0.0)
    monkeypatch.setitem(gather.version.__kwdefaults__, "age", 0.0)
    (tmp_path / "it").mkdir()
    return [add_run(tmp_path, "mlm"), add_run(tmp_path, "clm", value=4.0)]


@pytest.fixture
def read_files(monkeypatch):
    """Files of rows and logs that are read."""
    read = []
    rows_of, log_of = run_rows.read_sealed, gather.read_log
    monkeypatch.setattr(
        run_rows, "read_sealed", lambda path, **options: read.append(path) or rows_of(path, **options)
    )
    monkeypatch.setattr(gather, "read_log", lambda run: read.append(run.metrics) or log_of(run))
    return read


def update(runs, tmp_path, *, keys=KEYS, experiment="it"):
    gather.update(experiment, runs, keys=keys, folder=tmp_path / "it")
    return results.read(tmp_path / "it" / "results.parquet")


def test_files_are_read_once_and_not_again_while_they_are_unchanged(runs, read_files, tmp_path):
    table = update(runs, tmp_path)
    files = [item.directory.path / name for item in runs for name in ("measures.parquet", "metrics.jsonl")]
    assert sorted(read_files) == sorted(files)
    pd.testing.assert_frame_equal(table, gather.gather("it", runs, keys=KEYS))
    read_files.clear()
    before = (tmp_path / "it/results.parquet").stat()
    pd.testing.assert_frame_equal(update(runs, tmp_path), table)
    assert (tmp_path / "it/results.parquet").stat() == before
    assert not read_files


def test_commands_that_end_together_write_one_after_the_other(runs, tmp_path, monkeypatch):
    """The second one begins while the first one writes; the table and its record must be of one command."""
    tables, second = [], threading.Thread(target=update, args=(runs, tmp_path))
    write = results.write

    def write_slowly(table, path):
        tables.append(table)
        if second.ident is None:
            second.start()
            second.join(0.2)
        write(table, path)

    monkeypatch.setattr(results, "write", write_slowly)
    update(runs, tmp_path)
    second.join()
    assert len(tables) == 1  # the second one has nothing left to do


def test_new_rows_are_seen_although_size_and_time_of_writing_are_the_same(runs, tmp_path):
    update(runs, tmp_path)
    path = runs[0].directory.path / "measures.parquet"
    before = path.stat()
    put(path.parent, 2.5)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    table = update(runs, tmp_path)
    assert 2.5 in table["value"].tolist()
    pd.testing.assert_frame_equal(table, gather.gather("it", runs, keys=KEYS))


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_only_changed_runs_are_read_and_the_table_is_that_of_all_files(runs, read_files, tmp_path, changed):
    """The last two runs are one that two arms share. Rows of pairs come from their own file each time."""
    shared = SimpleNamespace(**{**vars(runs[1]), "run": SimpleNamespace(**{**vars(runs[1].run), "arm": "shared"})})
    runs = [*runs, shared]
    pair = {"measure": "run_distance", "metric": "distance", "step": 20, "key": "k", "run_id": "mlm"}
    compared = pd.DataFrame([{**pair, "value": 0.25, "other_run_id": "clm"}])
    (tmp_path / "it/comparisons.parquet").write_bytes(results.sealed(compared))
    update(runs, tmp_path)
    read_files.clear()
    put(runs[changed].directory.path, 2.5)
    table = update(runs, tmp_path)
    assert {path.parent for path in read_files} == {runs[changed].directory.path}
    whole = gather.gather("it", runs, keys=KEYS, compared=measure_pairs.rows(tmp_path / "it"))
    pd.testing.assert_frame_equal(table, whole)
    assert (table["measure"] == "run_distance").sum() == 2
    assert (table["value"] == 2.5).sum() > 0
    assert gather.read_record(tmp_path / "it").measured == {"mlm-s1": [STEP], "clm-s1": [STEP, STEP]}


def test_a_changed_run_must_still_agree_with_the_unchanged_ones(runs, tmp_path):
    for item in runs:
        put(item.directory.path, 3.0, sample="a")
    update(runs, tmp_path)
    put(runs[0].directory.path, 3.0, sample="b")
    assert error_text(ResultsError, update, runs, tmp_path) == (
        f"{runs[1].directory.path}: validation was measured on other tokens than in earlier runs; start "
        "`ablate measure` again."
    )
    put(runs[1].directory.path, 3.0, sample="b")
    assert len(update(runs, tmp_path)) == 6


@pytest.mark.parametrize(
    ("name", "error"),
    [("measures.parquet", ResultsError), ("metrics.jsonl", RunDirectoryError), ("state.json", RunDirectoryError)],
)
def test_a_changed_bit_in_any_file_is_an_error_as_at_the_first_time(runs, tmp_path, name, error):
    update(runs, tmp_path)
    path = runs[1].directory.path / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(error):
        update(runs, tmp_path)


def test_another_plan_other_measures_and_a_changed_table_are_gathered_again(runs, read_files, tmp_path):
    for change in ({"experiment": "other"}, {"keys": {"k": None, "more": None}}, {}):
        read_files.clear()
        update(runs, tmp_path, **change)
        assert len(read_files) == 4
    read_files.clear()
    update(runs[:1], tmp_path)
    assert len(read_files) == 2
    (tmp_path / "it/results.parquet").write_bytes(b"none")
    assert len(update(runs, tmp_path)) == 6


def test_files_that_were_just_written_are_read_again(tmp_path, read_files, monkeypatch):
    """Their next version could have the same times, where times are coarse. A minute counts as just now, so that
    the test may be slow."""
    monkeypatch.setitem(gather.version.__kwdefaults__, "age", 60.0)
    (tmp_path / "it").mkdir()
    runs = [add_run(tmp_path, "mlm")]
    for _ in range(2):
        update(runs, tmp_path)
    assert len(read_files) == 4
    assert gather.version(runs[0].directory.metrics) is None
    assert gather.version(runs[0].directory.metrics, age=0.0) is not None
    os.utime(runs[0].directory.metrics, (time.time() + 99, time.time() + 99))
    assert gather.version(runs[0].directory.metrics, age=0.0) is None  # the clock has jumped
    assert gather.version(tmp_path / "none") == gather.MISSING


def test_what_is_measured_is_known_without_reading_until_the_file_changes(runs, tmp_path):
    update(runs, tmp_path)
    record, run_dir = gather.read_record(tmp_path / "it"), runs[0].directory.path
    assert record.measured_in(run_dir) == run_rows._measured(run_dir) == [STEP]
    assert record.measured_in(tmp_path / "runs/other") is None
    put(run_dir, 2.0)
    assert record.measured_in(run_dir) is None
    (run_dir / "measures.parquet").unlink()
    assert record.measured_in(run_dir) is None


@pytest.mark.parametrize("damage", [b"", b"{}", b"x\n{}"])
def test_a_damaged_record_is_no_record(runs, read_files, tmp_path, damage):
    table = update(runs, tmp_path)
    path = tmp_path / "it/gathered.json"
    flipped = bytearray(path.read_bytes())
    flipped[-9] ^= 1
    for content in (damage, bytes(flipped)):
        path.write_bytes(content)
        assert gather.read_record(tmp_path / "it") == gather.Gathered()
        read_files.clear()
        pd.testing.assert_frame_equal(update(runs, tmp_path), table)
        assert len(read_files) == 4


def test_rows_and_predictions_of_another_run_are_refused(tmp_path):
    """Their checksum is right, so it shows nothing."""
    here, other = (tmp_path / f"mlm-s{seed}-{seed:010}" for seed in (1, 2))
    for run_dir in (here, other):
        run_rows.put(run_dir, pd.DataFrame([{**dict.fromkeys(run_rows.ROW_COLUMNS), **ROWS, "value": 3.0}]))
        run_rows.put_predictions(run_dir, pd.DataFrame({"key": ["k"], "step": [20], "task": ["cola"]}))
    readers = {
        "measures.parquet": (run_rows.rows, run_rows._measured),
        "predictions.parquet": (lambda run_dir: run_rows.predictions(run_dir, ["task"]),),
    }
    for name, functions in readers.items():
        path = here / name
        assert path.stat().st_size == (other / name).stat().st_size
        path.write_bytes((other / name).read_bytes())
        for read in functions:
            assert len(read(other)) == 1
            assert error_text(ResultsError, read, here) == (
                f"{path} has the rows of another run (0000000002); delete it and `ablate run` measures the run "
                "again."
            )


def test_rows_are_read_from_a_folder_with_another_name_and_those_of_earlier_versions_from_any(tmp_path):
    run_dir = tmp_path / "mlm-s1-0000000001"
    run_rows.put(run_dir, pd.DataFrame([{**dict.fromkeys(run_rows.ROW_COLUMNS), **ROWS, "value": 3.0}]))
    write_json(run_dir / "run.json", {"run_id": "0000000001"})
    run_dir = run_dir.rename(tmp_path / "mine")
    assert len(run_rows.rows(run_dir)) == 1
    put(run_dir, 2.5)
    run_dir = run_dir.rename(tmp_path / "mlm-s2-0000000002")
    assert run_rows.rows(run_dir)["value"].tolist() == [2.5]
