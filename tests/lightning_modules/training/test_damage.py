"""Files of a run that changed on the disk, and a lock file that was removed: noticed, and said in a sentence."""

import json
import os
import zipfile
from pathlib import Path

import pytest
import torch

from lightning_modules.errors import CheckpointError, ExitCode, OutOfMemoryError
from lightning_modules.files import write_json
from lightning_modules.objectives import build
from lightning_modules.training.checkpoint import load_weights, read_checkpoint
from lightning_modules.training.run_directory import RunBusyError, RunDirectory, RunDirectoryError, checksum
from tests.support.errors import error_text
from tests.support.start_here import start_here
from tests.support.stop_after import StopAfter
from tests.support.tiny_text import settings
from tests.support.unprivileged import permissions_hold


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "last.ckpt"
    torch.save({"state_dict": {"weight": torch.arange(64.0)}, "global_step": 3}, path)
    return path


def same(read, whole):
    return read["global_step"] == whole["global_step"] and torch.equal(
        read["state_dict"]["weight"], whole["state_dict"]["weight"]
    )


def test_no_flipped_bit_of_a_checkpoint_becomes_another_weight(checkpoint):
    """torch alone reads some of these files without a word, with another number in them."""
    whole, content = read_checkpoint(checkpoint), checkpoint.read_bytes()
    noticed, unnoticed_by_torch = 0, 0
    for place in range(0, len(content), 3):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        checkpoint.write_bytes(flipped)
        try:
            assert same(read_checkpoint(checkpoint), whole), place
        except CheckpointError:
            noticed += 1
            try:
                unnoticed_by_torch += not same(torch.load(checkpoint, weights_only=True), whole)
            except Exception:
                continue
    assert noticed > 50
    assert unnoticed_by_torch > 50


def test_a_checkpoint_that_is_compressed_is_refused_before_it_is_read(checkpoint):
    """A small file could ask for all memory."""
    with zipfile.ZipFile(checkpoint) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(checkpoint, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    with pytest.raises(CheckpointError, match=r"damaged or incomplete; restore it, or delete /"):
        read_checkpoint(checkpoint)


def test_a_whole_checkpoint_that_does_not_fit_into_memory_is_not_called_damaged(checkpoint, monkeypatch):
    """To delete its run, as for a damaged one, would lose the training."""

    def no_room(*args, **options):
        raise RuntimeError("[enforce fail] . DefaultCPUAllocator: you tried to allocate 5368709120 bytes.")

    monkeypatch.setattr(torch, "load", no_room)
    assert error_text(OutOfMemoryError, read_checkpoint, checkpoint) == (
        f"{checkpoint} cannot be read: there is not enough memory (no room for 5 GiB); end other programs, or "
        "lower --slots, then start again."
    )


WEIGHTS: dict[object, object] = {
    "text": "x",
    "none": None,
    "sparse": torch.eye(3).to_sparse(),
    "meta": torch.empty(3, device="meta"),
    "repeated": torch.zeros(1, 1).expand(10**6, 10**6),
    5: torch.zeros(1),
}


@pytest.mark.parametrize(
    "content",
    [
        *([1, 2], {"state_dict": 3, "global_step": 1}, {"state_dict": {}}, {}),
        *({"state_dict": {}, "global_step": step} for step in (-5, 2**63, True, 1.0)),
        {"state_dict": {}, "global_step": 1, "run_id": [1]},
        *({"state_dict": {name: weight}, "global_step": 1} for name, weight in WEIGHTS.items()),
    ],
)
def test_plain_values_that_are_no_checkpoint_are_refused(tmp_path, content):
    torch.save(content, tmp_path / "last.ckpt")
    assert error_text(CheckpointError, read_checkpoint, tmp_path / "last.ckpt") == (
        f"{tmp_path / 'last.ckpt'} contains other things than tensors and plain values, so it was not opened; "
        "use only checkpoints that this project wrote."
    )


def test_a_digit_that_changed_in_the_state_is_noticed_and_a_state_without_checksum_is_read(make_run):
    directory = make_run(settings())
    directory.write_state("interrupted", step=7, saved_step=7)
    directory.write_state("interrupted", step=8)
    assert (directory.state().step, directory.state().saved_step) == (8, 7)
    path = directory.path / "state.json"
    written = path.read_text()
    path.write_text(written.replace('"saved_step": 7', '"saved_step": 6'))
    assert error_text(RunDirectoryError, directory.state) == (
        f"{path} cannot be read or has changed since it was written, so the progress of the run is unknown; "
        "delete the file, then `ablate run` continues from the last checkpoint."
    )
    path.write_text(json.dumps({"state": "interrupted", "saved_step": 6}))
    assert directory.state().saved_step == 6


def test_files_that_may_not_be_read_are_not_called_damaged(make_run):
    """To delete them, as damaged ones, would lose what they know."""
    directory = make_run(settings())
    directory.write_state("interrupted", step=7, saved_step=7)
    directory.metrics.write_text("")
    directory.checkpoints.mkdir()
    torch.save({"state_dict": {}, "global_step": 3}, directory.last_checkpoint)
    readers = {
        "state.json": directory.state,
        "run.json": directory.description,
        "metrics.jsonl": directory.log_sha256,
    }
    directory.path.chmod(0)
    try:
        with permissions_hold():
            texts = {name: error_text(RunDirectoryError, read) for name, read in readers.items()}
    finally:
        directory.path.chmod(0o700)
    directory.last_checkpoint.chmod(0)
    with permissions_hold():
        texts["checkpoints/last.ckpt"] = error_text(CheckpointError, read_checkpoint, directory.last_checkpoint)
    places = dict.fromkeys(readers, directory.path) | {"checkpoints/last.ckpt": directory.last_checkpoint}
    assert texts == {
        name: f"{path} cannot be read: permission is denied; change the permissions or choose another folder, "
        "then start again."
        for name, path in places.items()
    }


def test_settings_that_changed_on_the_disk_are_noticed_and_those_without_checksum_are_read(make_run):
    directory = make_run(settings())
    path = directory.path / "run.json"
    content = directory.description()
    write_json(path, content | {"checksum": checksum(content)})
    written = path.read_text()
    assert directory.settings() == settings()
    for changed in (written.replace('"max_steps": ', '"max_steps": 1'), written[:-9], "[]", "", "[" * 100_000):
        path.write_text(changed)
        assert error_text(RunDirectoryError, directory.settings) == (
            f"{path} cannot be read or has changed since it was written; delete the file, then `ablate run` "
            "writes it again."
        )


def test_a_log_that_changed_while_the_run_was_stopped_is_refused_and_starts_anew_without_checkpoint(
    make_run, capsys
):
    directory = make_run(settings())
    assert start_here(directory, StopAfter(5)) == ExitCode.INTERRUPTED
    written = directory.metrics.read_bytes()
    for changed in (written.replace(b"train/loss", b"train/lost", 1), written[:-2], b"\xff" + written, b""):
        directory.metrics.write_bytes(changed)
        assert start_here(directory) == ExitCode.WRONG_SETTINGS
        assert (
            f"{directory.metrics} has changed since the run was saved at step 5; restore it, or delete "
            f"{directory.last_checkpoint}, then the run starts again from the beginning."
        ) in capsys.readouterr().err
        assert directory.metrics.read_bytes() == changed
    directory.metrics.unlink()
    assert start_here(directory) == ExitCode.WRONG_SETTINGS
    assert (
        f"{directory.metrics} is missing; restore it, or delete {directory.last_checkpoint}, then the run starts "
        "again from the beginning."
    ) in capsys.readouterr().err
    directory.metrics.write_bytes(written + b'{"step": 6, "half')  # what a kill leaves is no damage
    assert start_here(directory) == ExitCode.DONE
    directory.require_log()
    directory.metrics.write_bytes(directory.metrics.read_bytes().replace(b"train/loss", b"train/lost", 1))
    assert error_text(RunDirectoryError, directory.require_log) == (
        f"{directory.metrics} has changed since training ended; restore it, or delete {directory.path}, then "
        "`ablate run` trains the run again."
    )
    changed = directory.metrics.read_bytes()
    directory.metrics.unlink()
    assert error_text(RunDirectoryError, directory.require_log) == (
        f"{directory.metrics} is missing; restore it, or delete {directory.path}, then `ablate run` trains the "
        "run again."
    )
    directory.metrics.write_bytes(changed)
    (directory.path / "state.json").unlink()  # and with it what it knew of the log: the checkpoint knows it too
    assert start_here(directory) == ExitCode.WRONG_SETTINGS
    step = directory.settings().training.max_steps
    assert f"{directory.metrics} has changed since the run was saved at step {step};" in capsys.readouterr().err
    directory.metrics.write_bytes(directory.metrics.read_bytes().replace(b"train/lost", b"train/loss", 1))
    assert start_here(directory) == ExitCode.DONE


def test_the_log_is_on_the_disk_before_its_hash_is(make_run, monkeypatch):
    """Else a crash of the system leaves a log that is shorter than its hash says, and the run is refused."""
    directory, real = make_run(settings()), os.fsync
    on_disk, hashed = [b""], []

    def fsync(descriptor):
        real(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.name == directory.metrics.name:
            on_disk.append(path.read_bytes())
        elif ".last.ckpt." in path.name or (".state.json." in path.name and '"done"' in path.read_text()):
            hashed.append((directory.metrics.read_bytes(), on_disk[-1]))

    monkeypatch.setattr("os.fsync", fsync)
    assert start_here(directory, StopAfter(5)) == ExitCode.INTERRUPTED
    assert start_here(directory) == ExitCode.DONE
    assert len(hashed) == 3  # the checkpoints of both starts, and the end
    assert all(log == synced for log, synced in hashed)
    assert hashed[-1][0] == directory.require_log() != b""


class AtAStep(StopAfter):
    """Does something to the folder of a run at a step."""

    def __init__(self, step, directory):
        super().__init__(step)
        self.directory = directory


class Thief(AtAStep):
    """Removes the lock file of a run at a step, as somebody who tidies up would."""

    def on_line(self, step, line):
        if step == self.step:
            (self.directory.path / "lock").unlink()


class SecondPlace(AtAStep):
    """Locks the folder of a run at a step, as another machine can where locks do not hold."""

    def on_line(self, step, line):
        if step == self.step:
            with self.directory.lock():
                pass


def test_a_run_that_is_taken_where_locks_do_not_hold_is_left_to_who_took_it(make_run, monkeypatch):
    directory = make_run(settings())
    monkeypatch.setattr("fcntl.flock", lambda descriptor, how: None)
    assert error_text(
        RunBusyError, lambda: start_here(directory, SecondPlace(3, RunDirectory(directory.path)))
    ) == (
        f"{directory.path}: another process started to train this run too, so the locks of this file system do "
        "not work between machines; train the run in one place only, or mount the file system with locks."
    )
    lines = directory.metrics.read_text().splitlines()
    assert max(json.loads(line)["step"] for line in lines) == 3  # nothing was written after
    assert start_here(directory) == ExitCode.DONE


class LateWriter(StopAfter):
    """Adds its own lines to the log of a run, as a process does that has not yet seen that it lost the run."""

    def __init__(self, directory):
        super().__init__(10**9)
        self.directory, self.lines = directory, 0

    def on_line(self, step, line):
        with self.directory.metrics.open("a") as log:
            log.write(json.dumps({"step": step, **line}) + "\n")
        self.lines += 1


def steps_of(directory):
    lines = [json.loads(line) for line in directory.metrics.read_text().splitlines()]
    own = ("time", "perf/")
    return [{name: value for name, value in line.items() if not name.startswith(own)} for line in lines]


def test_lines_that_a_process_adds_after_it_lost_the_run_are_not_counted(make_run):
    directory, alone = make_run(settings()), make_run(settings(), out="alone")
    late = LateWriter(directory)
    assert (start_here(directory, late), start_here(alone)) == (ExitCode.DONE, ExitCode.DONE)
    assert late.lines == directory.state().max_steps
    assert steps_of(directory) == steps_of(alone)
    directory.require_log()
    late.on_line(1, {})  # after the training ended, no line is taken back, but none is counted either
    with pytest.raises(RunDirectoryError, match="has changed since training ended"):
        directory.require_log()


def test_a_process_that_lost_the_run_does_not_mend_the_log_of_who_took_it(make_run, monkeypatch):
    directory = make_run(settings())
    monkeypatch.setattr("fcntl.flock", lambda descriptor, how: None)
    taker = RunDirectory(directory.path)
    with directory.lock():
        directory.add_to_log('{"step": 1}')
        with taker.lock():
            taker.cut_log(-1, sha256=None)
            taker.add_to_log('{"step": 1, "of": "the taker"}')
            with pytest.raises(RunBusyError):
                directory.add_to_log('{"step": 2}')
            assert directory.metrics.read_text() == '{"step": 1, "of": "the taker"}\n'


def test_a_run_whose_lock_file_was_removed_leaves_the_folder_to_others_and_can_go_on(make_run):
    directory = make_run(settings())
    assert error_text(RunBusyError, lambda: start_here(directory, Thief(3, directory))) == (
        f"{directory.path}: its file lock was removed during training, so another process may train this run "
        "too; do not remove this file, and start again."
    )
    lines = directory.metrics.read_text().splitlines()
    assert max(json.loads(line)["step"] for line in lines) == 3  # nothing was written after
    assert directory.state().state == "interrupted"  # and no failure, as the folder is another's
    assert start_here(directory) == ExitCode.DONE


def test_a_checkpoint_of_another_run_is_refused(train_run):
    """Both files have as many bytes, so the size shows nothing."""
    directory = train_run(settings())
    other = train_run(settings(seed=1), "other-s1-0123456789")
    whole = directory.last_checkpoint.read_bytes()
    assert other.last_checkpoint.stat().st_size == len(whole)
    kept = directory.checkpoint_at(4)
    for path in (directory.last_checkpoint, kept):
        path.write_bytes((other.checkpoints / path.name).read_bytes())
        assert error_text(CheckpointError, read_checkpoint, path) == (
            f"{path}: the checkpoint is of another run (0123456789); restore it, or delete {directory.path}, then "
            "`ablate run` trains the run again."
        )
    directory.last_checkpoint.write_bytes(whole)
    assert read_checkpoint(directory.last_checkpoint)["run_id"] == "0000000000"


def test_a_checkpoint_of_the_same_run_is_read_from_a_folder_with_another_name_or_arm(train_run):
    directory = train_run(settings(training={"max_steps": 1}))
    for name in ("arm-s0-0000000000", "mine"):
        directory = RunDirectory(directory.path.rename(directory.path.with_name(name)))
        assert read_checkpoint(directory.last_checkpoint)["global_step"] == 1
    content = directory.description()
    write_json(directory.path / "run.json", content | {"run_id": "0123456789"})
    assert error_text(CheckpointError, read_checkpoint, directory.last_checkpoint) == (
        f"{directory.last_checkpoint}: the checkpoint is of another run (0000000000); restore it, or delete "
        f"{directory.path}, then `ablate run` trains the run again."
    )


def test_a_checkpoint_of_an_earlier_version_names_no_run_and_goes_on(make_run):
    directory, whole = make_run(settings()), make_run(settings(), out="whole")
    assert start_here(directory, StopAfter(5)) == ExitCode.INTERRUPTED
    content = read_checkpoint(directory.last_checkpoint)
    del content["run_id"]
    torch.save(content, directory.last_checkpoint)
    assert (start_here(directory), start_here(whole)) == (ExitCode.DONE, ExitCode.DONE)
    assert directory.last_weights.read_bytes() == whole.last_weights.read_bytes()


WRONG = {
    "is missing": lambda state, name: state.pop(name),
    "has the shape (3,) in place of (320, 16)": lambda state, name: state.update({name: torch.zeros(3)}),
    "has the type torch.int64 in place of torch.float32": lambda state, name: state.update(
        {name: state[name].long()}
    ),
    "has the type torch.complex64 in place of torch.float32": lambda state, name: state.update(
        {name: state[name].cfloat()}
    ),
    "'evil' is unknown": lambda state, name: state.update(evil=state[name]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_weights_that_the_settings_do_not_have_are_not_loaded(wrong, train_run, tokens):
    directory = train_run(settings(training={"max_steps": 1}))
    content, name = read_checkpoint(directory.last_checkpoint), "encoder.tokens.weight"
    WRONG[wrong](content["state_dict"], name)
    torch.save(content, directory.last_checkpoint)
    module = build(directory.settings(), tokens)
    assert error_text(CheckpointError, load_weights, module, directory.last_checkpoint) == (
        f"{directory.last_checkpoint}: the weights are not those of a model with the settings of the run "
        f"({wrong if 'unknown' in wrong else f'{name} {wrong}'}); restore it, or delete {directory.path}, then "
        "`ablate run` trains the run again."
    )


def test_a_file_among_the_checkpoints_without_a_step_in_its_name_is_ignored(train_run):
    directory = train_run(settings(training={"max_steps": 1}))
    for name in ("step=abc.ckpt", "step=.ckpt", "step=-1.ckpt", "step=\u0661.ckpt"):
        (directory.checkpoints / name).write_bytes(b"x")
    assert [*directory.kept_checkpoints()] == [0, 1]
