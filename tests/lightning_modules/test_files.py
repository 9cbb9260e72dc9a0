"""Files appear whole or not at all; every refusal of the disk is a sentence."""

import errno
import hashlib
import itertools
import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_modules import files
from lightning_modules.errors import AblationsError, FilesError
from lightning_modules.files import (
    atomic,
    explained,
    file_version,
    locked,
    open_no_link,
    read_json,
    read_while_replaced,
    remove_leftovers,
    sha256,
    whole_folder,
    write_json,
)
from tests.support.errors import error_text
from tests.support.unprivileged import permissions_hold


def test_the_file_is_the_new_one_when_the_block_ends_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic(path) as temporary:
        assert temporary.parent == tmp_path  # a rename across file systems would be a copy
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_new_files_have_the_permissions_of_ordinary_ones(tmp_path):
    (tmp_path / "plain").write_text("")
    write_json(tmp_path / "a.json", {})
    assert (tmp_path / "a.json").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_group_can_append_to_a_file_if_the_umask_lets_it(tmp_path):
    before = os.umask(0o002)
    try:
        os.close(open_no_link(tmp_path / "log.txt", os.O_WRONLY | os.O_CREAT))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "log.txt").stat().st_mode) == 0o664


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_block_that_fails_leaves_the_old_file_and_no_rubbish(tmp_path, stop):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write_half():
        with atomic(path) as temporary:
            temporary.write_text("half")
            raise stop

    with pytest.raises(stop):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_another_process_removes_before_its_rename_is_refused(tmp_path):
    def write():
        with atomic(tmp_path / "run.json") as temporary:
            temporary.write_text("new")
            remove_leftovers(tmp_path)

    assert error_text(FilesError, write) == (
        f"{tmp_path / 'run.json'} cannot be written: another process removed the new file; start again."
    )


@pytest.mark.parametrize(("fails", "ends_well"), [(0, True), (2, True), (3, False)])
def test_a_file_that_is_half_visible_for_an_instant_is_read_again(monkeypatch, fails, ends_well):
    monkeypatch.setattr(files, "SECONDS_BEFORE_READING_AGAIN", 0)
    contents = iter([*['{"step": 1'] * fails, '{"step": 12}'])

    def read():
        return json.loads(next(contents))

    if ends_well:
        assert read_while_replaced(read) == {"step": 12}
    else:
        with pytest.raises(ValueError, match="delimiter"):
            read_while_replaced(read)


def test_a_file_that_is_not_there_or_may_not_be_read_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SECONDS_BEFORE_READING_AGAIN", 3600)
    path = tmp_path / "state.json"
    with pytest.raises(FileNotFoundError):
        read_while_replaced(path.read_bytes)
    path.touch(mode=0)
    with permissions_hold(), pytest.raises(PermissionError):
        read_while_replaced(path.read_bytes)


KILLED = """
import os, signal, sys
from pathlib import Path
from lightning_modules import files
path, old, new = Path(sys.argv[1]), "old" * 1000, "new" * 2000
for k in range(20):
    path.write_text(old)
    if not (child := os.fork()):
        calls = 0
        def deadly(call):
            def counted(*arguments, **named):
                global calls
                if calls == k:
                    os.kill(os.getpid(), signal.SIGKILL)
                calls += 1
                return call(*arguments, **named)
            return counted
        for name in ("open", "fsync", "replace", "close", "unlink"):
            setattr(os, name, deadly(getattr(os, name)))
        with files.atomic(path) as temporary:
            temporary.write_text(new)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    content = {old: "old", new: "new"}.get(path.read_text(), "torn")
    print(k, os.WIFSIGNALED(status), content)
"""


def test_killed_at_any_call_it_leaves_the_old_file_or_the_new_one(tmp_path):
    path = tmp_path / "a.txt"
    said = subprocess.run(
        [sys.executable, "-c", KILLED, path], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    killed = [line.split()[2] for line in said if line.split()[1] == "True"]
    assert 5 <= len(killed) < 20  # some calls before and after the rename; the last children live
    assert killed == sorted(killed, reverse=True)  # old before the rename, new from then on
    assert set(killed) == {"old", "new"}
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_real_limit_on_the_disk_is_a_sentence_and_keeps_the_old_file(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    code = (
        "import resource, sys; from pathlib import Path; from lightning_modules.files import write_json\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); write_json(Path(sys.argv[1]), 'x' * 100_000)"
    )
    ended = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        f"lightning_modules.errors.FilesError: {path} cannot be written: the file is larger than the limit; "
        f"raise the limit (ulimit -f), then start again."
    )
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("ENOSPC", "the disk is full; free some space"),
        ("EDQUOT", "the disk quota is used up; free some space"),
        ("EROFS", "the file system is read-only; choose another folder"),
        ("EACCES", "permission is denied; change the permissions or choose another folder"),
        ("EIO", "the disk reports an error; check the disk"),
    ],
)
@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_every_refusal_at_every_call_is_a_sentence_and_keeps_the_old_file(
    tmp_path, monkeypatch, code, reason, call
):
    path = tmp_path / "a.json"
    write_json(path, 1)

    def refuse(*arguments, **named):
        raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)))

    with monkeypatch.context() as patch:
        patch.setattr(files.os, call, refuse)
        with pytest.raises(FilesError) as caught:
            write_json(path, 2)
    assert str(caught.value) == f"{path} cannot be written: {reason}, then start again."
    assert isinstance(caught.value, AblationsError) and isinstance(caught.value, OSError)  # noqa: PT018
    assert read_json(path) == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("ESTALE", "its file server has replaced it; wait a moment, then start again."),
        (
            "ENOMEM",
            "there is not enough memory; end other programs, or raise the limit (ulimit -v), then start again.",
        ),
        ("EPROTO", "Protocol error; check the disk, then start again."),
        ("EFBIG", "File too large; move it away, then start again."),
    ],
)
def test_nobody_is_told_to_delete_a_file_that_cannot_be_read(code, end):
    error = OSError(getattr(errno, code), os.strerror(getattr(errno, code)))
    assert files.unreadable("a.json", error) == f"a.json cannot be read: {end}"


def test_a_reason_that_a_writer_hides_behind_its_own_error_is_found(tmp_path):
    """As torch.save does, whose writer meets the full disk, then complains of a position in the file."""

    def save(file):
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        finally:
            raise RuntimeError("unexpected pos 704 vs 598")

    with (
        pytest.raises(FilesError) as error,
        atomic(tmp_path / "a") as temporary,
        temporary.open("wb") as file,
    ):
        save(file)
    assert str(error.value) == (
        f"{tmp_path / 'a'} cannot be written: the disk is full; free some space, then start again."
    )
    assert not list(tmp_path.iterdir())


def test_errors_about_other_files_and_bugs_are_left_alone(tmp_path):
    other = PermissionError(errno.EACCES, "Permission denied", "/elsewhere/text.txt")
    for error in (other, RuntimeError("a bug"), FileNotFoundError(errno.ENOENT, "No such file", "x")):
        with pytest.raises(type(error)) as caught, explained(tmp_path / "a"):
            raise error
        assert caught.value is error


def test_a_missing_folder_and_a_folder_in_the_way_are_sentences(tmp_path):
    assert error_text(FilesError, write_json, tmp_path / "no" / "a.json", 1) == (
        f"{tmp_path}/no/a.json cannot be written: its folder does not exist; create {tmp_path}/no."
    )
    assert error_text(FilesError, write_json, tmp_path, 1) == (
        f"{tmp_path} cannot be written: a folder has this name; move the folder away, then start again."
    )


def test_json_comes_back_and_is_readable_text(tmp_path):
    content = {"name": "Zoë", "n": 3, "x": 0.1, "none": None, "list": [1, True]}
    write_json(tmp_path / "a.json", content)
    assert read_json(tmp_path / "a.json") == content
    assert '  "name": "Zoë",\n' in (tmp_path / "a.json").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", float("nan"))
    assert read_json(tmp_path / "a.json") == content


def test_a_damaged_or_missing_json_file_is_a_sentence_wherever_it_was_cut(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": [1, "ü"], "b": {"c": None}})
    whole = path.read_bytes()
    for length in range(len(whole.rstrip())):
        path.write_bytes(whole[:length])
        with pytest.raises(
            FilesError,
            match=rf"^{re.escape(str(path))} is not a complete JSON file .*; delete it and start again\.$",
        ):
            read_json(path)
    path.write_bytes(b"[" * 200_000)
    with pytest.raises(
        FilesError, match=rf"^{re.escape(str(path))} is not a complete JSON file .*; delete it and start again\.$"
    ):
        read_json(path)
    path.unlink()
    assert error_text(FilesError, read_json, path) == f"{path} does not exist."


HOLDER = """
import sys, time
from pathlib import Path
from lightning_modules.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_another_content_is_seen_by_inode_size_or_time_of_change(tmp_path):
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"one")
    os.utime(path, ns=(0, 0))
    versions, hashes = [file_version(path)], [sha256(path)]
    path.write_bytes(b"two")
    os.utime(path, ns=(0, 1))  # another time
    versions, hashes = [*versions, file_version(path)], [*hashes, sha256(path)]
    path.write_bytes(b"three")
    os.utime(path, ns=(0, 1))  # another size
    versions, hashes = [*versions, file_version(path)], [*hashes, sha256(path)]
    other.write_bytes(b"seven")
    os.utime(other, ns=(0, 1))
    other.replace(path)  # another inode
    versions, hashes = [*versions, file_version(path)], [*hashes, sha256(path)]
    assert hashes == [hashlib.sha256(content).hexdigest() for content in (b"one", b"two", b"three", b"seven")]
    assert [sum(a != b for a, b in zip(*two, strict=True)) for two in itertools.pairwise(versions)] == [1, 1, 1]


def test_a_lock_keeps_others_out_until_its_holder_is_killed(tmp_path):
    path: Path = tmp_path / ".lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        waited = []

        def waiting():
            waited.append(holder.poll())  # still alive: the lock was really taken
            holder.send_signal(signal.SIGKILL)

        with locked(path, waiting=waiting):
            pass
    assert waited == [None]
    with locked(path, waiting=lambda: pytest.fail("nobody holds it")):
        pass


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a" / "b"
    with whole_folder(path) as temporary:
        (temporary / "inside").mkdir()
        write_json(temporary / "inside" / "x.json", {})
        assert not path.exists()
    assert sorted(tmp_path.rglob("*")) == [path.parent, path, path / "inside", path / "inside" / "x.json"]
    with pytest.raises(FilesError) as error, whole_folder(path):
        raise AssertionError("the block is not entered")
    assert str(error.value) == (
        f"{path} already exists and is not an empty folder; choose another folder, or remove it."
    )


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt])
def test_a_folder_that_fails_leaves_nothing_and_what_a_kill_left_is_no_hindrance(tmp_path, stop):
    (tmp_path / ".b.tmp").mkdir()
    (tmp_path / ".b.tmp" / "half").write_text("")
    (tmp_path / "b").mkdir()

    def write_half():
        with whole_folder(tmp_path / "b") as temporary:
            assert list(temporary.iterdir()) == []
            (temporary / "x").write_text("")
            raise stop

    with pytest.raises(stop):
        write_half()
    assert list(tmp_path.rglob("*")) == [tmp_path / "b"]


def test_without_a_folder_for_temporary_files_there_is_a_sentence(tmp_path):
    """As on a full disk: no file may get a byte. `import torch` would end in a traceback."""
    code = (
        "import resource, signal, sys, pathlib, lightning_modules.files as files\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "try: files.require_writable(pathlib.Path(sys.argv[1]))\n"
        "except files.FilesError as error: print(error)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout == (
        "no folder for temporary files can be written to, mostly because the disk is full; free some space, or "
        "name a folder in the variable TMPDIR, then start again.\n"
    )
