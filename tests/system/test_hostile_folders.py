"""Folders of results from somebody else: pipes, devices, links, damaged records and texts for the terminal."""

import json
import os
import re
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ablations import results, yamlfile
from ablations.errors import ResultsError, SpecError
from ablations.runs import gather, plan, records, rows
from ablations.runs.calibration import Calibration
from ablations.runs.launch import Outcome
from ablations.runs.places import arrays
from ablations.runs.progress import carry_out, display
from ablations.runs.records import DataRecord, RunRecord, RunState, RunStatus, last_plan
from ablations.runs.terminal import status_table
from ablations.wording import REFUSED, printable
from lightning_modules.errors import AblationsError, ExitCode, FilesError
from lightning_modules.files import read_file
from lightning_modules.training.log import JsonLinesLogger
from lightning_modules.training.run_directory import RunDirectory, RunDirectoryError
from reports import folder as results_folder
from tests.support.errors import error_text
from tests.support.fake_experiment import write
from tests.support.hostile import PAYLOADS
from tests.support.tiny_text import settings

DEEP = "[" * 200_000
READERS = {
    "run.json": RunDirectory.description,
    "state.json": RunDirectory.state,
    "provenance.json": RunDirectory.provenance,
    "metrics.jsonl": RunDirectory.last_validation_loss,
    "measures.parquet": lambda run: rows.rows(run.path),
    "refused.json": lambda run: rows.refusals(run.path),
}
PLANTED = {
    "a pipe": os.mkfifo,
    "a device without an end": lambda path: path.symlink_to("/dev/zero"),
    "a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a folder": Path.mkdir,
    "a file of a terabyte": lambda path: [path.touch(), os.truncate(path, 2**40)],
    "deep lists": lambda path: path.write_text(DEEP),
    "a number of many digits": lambda path: path.write_text('{"step": ' + "9" * 5000 + "}"),
    "no text": lambda path: path.write_bytes(b'{"state": "\xff"}'),
}


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("name", READERS)
def test_what_is_planted_for_a_file_of_a_run_is_one_sentence(tmp_path, name, planted):
    """A pipe would wait for ever, and a device would fill the memory."""
    run = RunDirectory(tmp_path)
    PLANTED[planted](tmp_path / name)
    begin = time.monotonic()
    if name == "metrics.jsonl" and planted in ("deep lists", "a number of many digits", "no text"):
        run.cut_log(0, sha256=None)  # an unfinished run drops lines that it did not write
        assert (tmp_path / name).read_bytes() == b""
        return
    with pytest.raises(AblationsError) as error:
        READERS[name](run)
    assert str(tmp_path / name) in str(error.value)
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)
    assert time.monotonic() - begin < 2


@pytest.mark.parametrize("planted", ["a pipe", "a device without an end"])
def test_a_spec_of_somebody_else_is_not_waited_for(tmp_path, planted):
    path = tmp_path / "spec.yaml"
    PLANTED[planted](path)
    begin = time.monotonic()
    assert error_text(SpecError, yamlfile.read, path) == (
        f"{path}: this file cannot be read: it is not an ordinary file"
    )
    plan.write(
        records.Plan(experiment="it", arms=[], runs=[]), tmp_path, spec=b"a: 1\n", claims=[], data=DataRecord()
    )
    assert path.read_bytes() == b"a: 1\n"
    assert time.monotonic() - begin < 2


def test_a_pipe_of_the_shell_is_read():
    ends = os.pipe()
    os.write(ends[1], b"a: 1\n")
    os.close(ends[1])
    assert yamlfile.read(Path(f"/dev/fd/{ends[0]}")).content == {"a": 1}
    os.close(ends[0])


@pytest.mark.parametrize("half", [b'"\\ud800"', b'"\\uDFFF"', b'"\xed\xa0\x80"'])
def test_half_a_surrogate_pair_in_a_plan_is_one_sentence(tmp_path, half):
    """Every file into which its text is written would end in an error of Python."""
    claims = b'{"name": "first", "planned_claims": {"first-claim": %s}}' % half
    written = b'{"experiment": "it", "arms": [], "runs": [], "claim_files": [%s]}' % claims
    (tmp_path / "plan.json").write_bytes(written)
    text = error_text(FilesError, last_plan, tmp_path)
    assert text.startswith(f"{tmp_path / 'plan.json'} is not a complete JSON file (")
    assert text.endswith(f"); {records.PLAN_AGAIN}.")
    (tmp_path / "plan.json").write_bytes(written.replace(half, b'"\\ud83d\\ude00"'))
    assert last_plan(tmp_path).claim_files[0].planned_claims == {"first-claim": "\U0001f600"}


REREAD = {
    "calibration.json": lambda folder: Calibration(folder).training_seconds(settings(), threads=1) is None,
    "gathered.json": lambda folder: gather.read_record(folder) == gather.Gathered(),
    "report.json": lambda folder: not results_folder.is_fresh(folder),
}
"""Files that are made again if they cannot be read, each with a check that it counts as missing."""


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("name", REREAD)
def test_what_is_planted_for_a_file_that_is_made_again_counts_as_none(tmp_path, name, planted):
    PLANTED[planted](tmp_path / name)
    begin = time.monotonic()
    assert REREAD[name](tmp_path)
    assert time.monotonic() - begin < 2


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_no_number_in_the_state_of_a_run_is_one_sentence(tmp_path, number):
    """`ablate status` ended with a traceback, because no time can be made of it."""
    (tmp_path / "state.json").write_text(f'{{"state": "done", "seconds": {number}}}')
    assert error_text(RunDirectoryError, lambda: RunDirectory(tmp_path).state()) == (
        f"{tmp_path / 'state.json'} cannot be read or has changed since it was written, so the progress of the "
        "run is unknown; delete the file, then `ablate run` continues from the last checkpoint."
    )


def test_an_ordinary_file_is_read_also_behind_a_link(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_file(tmp_path / "link") == b"content"


@pytest.mark.parametrize("name", ["run.json", "state.json", "provenance.json"])
def test_deep_records_are_one_sentence_on_the_page_too(tmp_path, name):
    folder = write(tmp_path / "out", arms=("mlm",), seeds=(0,))
    (run,) = results_folder.read_plan(folder).runs
    path = folder.parent / "runs" / run.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(DEEP)
    (run,) = results_folder.read(folder).runs
    assert run.state.state == "unreadable"
    sentence = f"{path} is not a complete JSON file (maximum recursion depth exceeded"
    assert (run.state.message or "").startswith(sentence)


def test_a_small_table_that_would_fill_the_memory_is_refused(tmp_path):
    path, count = tmp_path / "results.parquet", 20_000_000
    pq.write_table(pa.table({name: np.zeros(count) for name in results.COLUMNS}), path, row_group_size=count)
    size = path.stat().st_size
    assert size < count / 10
    assert error_text(ResultsError, results.read, path) == (
        f"{path} is damaged (it has 20,000,000 rows in {size:,} bytes); delete it and start `ablate run` again."
    )


@pytest.mark.parametrize("name", ["array.json", "job-0.json"])
@pytest.mark.parametrize("content", ["", "x", "[]", '{"colour": "red"}', DEEP])
def test_a_damaged_record_of_jobs_is_one_sentence(tmp_path, name, content):
    out = tmp_path / "out"
    folder = out / "grid" / "slurm" / "0a1b2c3d"
    folder.mkdir(parents=True)
    array = {"data_root": ".", "runs": str(out / "runs"), "jobs": [["mlm-s0-0"]], "measures": [], "tries": 3}
    (folder / "array.json").write_text(json.dumps(array | {"resources": {}}))
    assert arrays.endings(out) == {}
    (folder / name).write_text(content)
    with pytest.raises(ResultsError) as error:
        arrays.endings(out)
    begin, _, end = str(error.value).partition("(")
    assert begin == f"{folder / name} is damaged or was written by another version "
    assert end.endswith(f"); end its jobs if any are in the queue, then remove {folder}.")
    assert "\n" not in end


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl"])
@pytest.mark.parametrize("planted", ["a hard link", "a pipe"])
def test_nothing_is_written_into_a_file_with_another_name_or_a_pipe(tmp_path, name, planted):
    """Snapshots of folders are often made of hard links: they must not change with the run."""
    run, victim = RunDirectory(tmp_path / "run"), tmp_path / "victim"
    run.path.mkdir()
    victim.write_text("old")
    os.link(victim, run.path / name) if planted == "a hard link" else os.mkfifo(run.path / name)
    assert str(run.path / name) in error_text((FilesError, RunDirectoryError), _write_to, run, name)
    assert victim.read_text() == "old"
    (run.path / name).unlink()
    _write_to(run, name)


def _write_to(run, name):
    if name == "lock":
        with run.lock(patience=0):
            assert run.is_locked()
    else:
        JsonLinesLogger(run).log_metrics({"loss": 1.0}, step=1)


COMMANDS = (
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\x1b]8;;file:///etc/passwd\x1b\\x\x1b]8;;\x1b\\",
    "\x9b31m",
    "\x00",
    "\x08" * 20,
    "\u202egpj",
    "\u2066x",
)
BRACKETS = (
    "[/]",
    "[/foo]",
    "[red]x",
    "[link=file:///etc]x",
    "[enforce fail at alloc_cpu.cpp:117] no memory",
    "[@click]x",
)


@pytest.mark.parametrize("text", [*COMMANDS, *BRACKETS, " ".join(PAYLOADS)])
def test_a_reason_reaches_the_terminal_as_text(text, capsys, monkeypatch, tmp_path):
    """Neither the terminal nor rich takes any of it for a command, and no bracket is lost."""
    run = RunRecord(run_id="1", folder="mlm-s0-1", arm="mlm", seed=0, state="failed")
    status_table([RunStatus(run, RunState(state="failed", message=text))])
    of_status = capsys.readouterr().out
    item = SimpleNamespace(run_id="1", directory=RunDirectory(tmp_path))
    monkeypatch.setattr("ablations.runs.progress._through", partial(_failed, item, text))
    monkeypatch.setattr("ablations.runs.prepare.prepare_text", lambda *_: None)
    monkeypatch.setattr("ablations.runs.launch.start_process", lambda _: None)
    workspace = SimpleNamespace(
        out=tmp_path,
        data_root=tmp_path,
        experiment=SimpleNamespace(measures=()),
        write_plan=lambda: None,
        make_run_folders=list,
    )
    monkeypatch.setattr("ablations.runs.progress.longest_first", lambda items: items)
    _, (failed,) = carry_out(workspace, [item], devices=1, slots=1)
    assert failed.message == text
    for printed in (of_status, capsys.readouterr().out):
        assert printable(text).replace("\r", "") in printed
        assert not set(re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", printed))


def _failed(item, text, workspace, pool, todo, console):
    outcome = Outcome(item.directory.path, ExitCode.FAILED, text, 0.0)
    with display([item], console) as show_end:
        show_end(item, outcome)
    return False, [outcome]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_name_of_an_arm_reaches_the_terminal_as_text(command, capsys):
    """`ablate status` without a spec shows the names that run.json has."""
    run = RunRecord(run_id="1", folder="mlm-s0-1", arm=f"mlm{command}", seed=0)
    status_table([RunStatus(run, RunState())])
    printed = capsys.readouterr().out
    assert not set(re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", printed))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_spec_holds_no_commands_of_a_terminal(tmp_path, command):
    path, quoted, code = tmp_path / "spec.yaml", json.dumps(command), ord(REFUSED.search(command)[0])
    for text in (f"question: {quoted}", f"{quoted}: 1", f"arms: [{quoted}]"):
        path.write_text(text)
        assert [problem.sentence for problem in yamlfile.read(path).problems] == [
            f"this text has the character U+{code:04X}, which cannot be displayed; remove it"
        ]
