"""Files that appear whole or not at all, and locks that end with the process that holds them.

A file is written under a temporary name in its own folder, synced and renamed. So a reader, a kill or a full
disk meets the old file or the new one, never a part of one. (From a temporary folder on another file system,
the rename would be a copy, which a kill can cut in half.)
"""

import errno
import functools
import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from lightning_modules.errors import FilesError

Content = TypeVar("Content")

_REMEDIES = {
    errno.ENOSPC: ("the disk is full", "free some space"),
    errno.EDQUOT: ("the disk quota is used up", "free some space"),
    errno.EFBIG: ("the file is larger than the limit", "raise the limit (ulimit -f)"),
    errno.EACCES: ("permission is denied", "change the permissions or choose another folder"),
    errno.EPERM: ("permission is denied", "change the permissions or choose another folder"),
    errno.EROFS: ("the file system is read-only", "choose another folder"),
    errno.EIO: ("the disk reports an error", "check the disk"),
    errno.ESTALE: ("its file server has replaced it", "wait a moment"),
    errno.EISDIR: ("a folder has this name", "move the folder away"),
    errno.ENOTDIR: ("a part of its path is not a folder", "move the file in the way"),
    errno.EEXIST: ("a file of that name is in the way", "move the file away"),
    errno.ENAMETOOLONG: ("its name is too long", "choose a shorter one"),
    errno.ELOOP: ("it is a link, or a link in its path leads back to itself", "remove the link"),
    errno.ENXIO: ("it is not an ordinary file", "remove it"),
    errno.EMLINK: ("it is a hard link, so another file would change too", "put a copy in its place"),
    errno.EMFILE: ("this program has too many open files", "raise the limit (ulimit -n)"),
    errno.ENFILE: ("the machine has too many open files", "end other programs"),
    errno.ENOMEM: ("there is not enough memory", "end other programs, or raise the limit (ulimit -v)"),
    errno.ENOLCK: ("the file system has no locks", "choose a folder on another file system"),
    errno.ENOSYS: ("the file system has no locks", "choose a folder on another file system"),
}


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; its file becomes `path` when the block ends without an error.

    If the block fails, or the process is killed at any moment, `path` is what it was before. The block
    creates the file. A writer that hides the operating system's error behind its own (`torch.save`) should be
    given an open file, `with atomic(path) as temporary, temporary.open("wb") as file: ...`. Then the reason
    is still found.

    Raises:
        FilesError: the folder does not exist, the disk is full, writing is not allowed, or another process has
            removed the temporary file.
    """
    if not path.parent.is_dir():
        raise FilesError(f"{path} cannot be written: its folder does not exist; create {path.parent}.")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with explained(path, temporary):
            yield temporary
            synced(temporary)
            os.replace(temporary, path)
            synced(path.parent)
    except FileNotFoundError as error:
        if error.filename != str(temporary):
            raise
        # A worker on another machine takes it for a leftover, where the disk's locks do not reach.
        raise FilesError(
            f"{path} cannot be written: another process removed the new file; start again."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def open_no_link(path: str | Path, flags: int) -> int:
    """Open an ordinary file as `os.open` does, but never through a symbolic link, and never to write into a
    file that has a second name.

    Files that are appended to are opened in this way, so that a planted link cannot send the text elsewhere. The
    umask alone decides who may write to a new file, as for files that `open` makes.

    Raises:
        OSError: ELOOP, there is a link at `path`. EMLINK, it is a hard link. ENXIO, it is no file but a pipe
            or a device.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)  # a pipe would wait for its reader
    status = os.fstat(descriptor)
    is_file = stat.S_ISREG(status.st_mode)
    if not is_file or (flags & (os.O_WRONLY | os.O_RDWR) and status.st_nlink > 1):
        os.close(descriptor)
        number = errno.EMLINK if is_file else errno.ENXIO
        raise OSError(number, os.strerror(number), str(path))
    return descriptor


def open_ordinary(path: str, flags: int) -> int:
    """Open a file or a folder as `os.open` does, but no pipe and no device: reading them could wait forever.

    Raises:
        OSError: ENXIO, it is a pipe or a device.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK)  # a pipe would wait for its writer
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        os.close(descriptor)
        raise OSError(errno.ENXIO, "it is not an ordinary file", str(path))
    return descriptor


LARGEST_FILE = 2**30
"""Largest number of bytes that `read_file` reads. No record, log or table of a run comes near it."""


def read_file(path: str | Path) -> bytes:
    """Return the content of an ordinary file. Pipes and devices are refused: reading them could wait forever.

    Raises:
        OSError: ENXIO, it is no file but a pipe or a device. EFBIG, it is larger than LARGEST_FILE.
    """
    with open(path, "rb", buffering=0, opener=open_ordinary) as file:
        if os.fstat(file.fileno()).st_size > LARGEST_FILE:
            raise OSError(errno.EFBIG, f"it is larger than {LARGEST_FILE // 2**20} MiB", str(path))
        return file.read()


SECONDS_BEFORE_READING_AGAIN = 0.1
"""Time after which `read_while_replaced` reads a file again."""


def read_while_replaced(read: Callable[[], Content]) -> Content:
    """Return what `read` makes of a file that another machine may replace at this moment.

    On a shared disk a reader may then see the new content cut at the length of the old for an instant. So a read
    that fails is tried twice more, unless there is no file or this user may not read it.

    Raises:
        OSError, ValueError: as `read` at the third attempt.
    """
    for _ in range(2):
        try:
            return read()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            raise
        except (OSError, ValueError):
            time.sleep(SECONDS_BEFORE_READING_AGAIN)
    return read()


def make_folder(path: Path) -> None:
    """Make a folder, and the missing folders above it, and check that files can be written to it.

    Raises:
        FilesError: the folder cannot be made, or not be written to.
    """
    with _refused_folder(path):
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()


def require_writable(path: Path) -> None:
    """Check that a folder can be made and written to, without leaving anything behind, and that there is one for
    temporary files, without which torch cannot be imported.

    Raises:
        FilesError: as `make_folder`; or no folder for temporary files can be written to.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise FilesError(
            "no folder for temporary files can be written to, mostly because the disk is full; free some space, "
            "or name a folder in the variable TMPDIR, then start again."
        ) from error
    with _refused_folder(path):
        existing = path.absolute()
        while not (existing.exists() or existing.is_symlink()):
            existing = existing.parent
        tempfile.TemporaryFile(dir=existing).close()


@contextmanager
def _refused_folder(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a FilesError about the folder."""
    try:
        yield
    except OSError as error:
        remedies = {errno.ENOENT: ("no folder can be created there", "choose another folder")} | _REMEDIES
        reason, remedy = remedies.get(error.errno or 0, (str(error), "choose another folder"))
        raise FilesError(f"{path} cannot be written: {reason}; {remedy}, then start again.") from error


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder beside `path`; it becomes `path` when the block ends without an error.

    If the block fails, `path` is what it was before. After a kill `path` is unchanged too, but the temporary
    folder stays until the next call for the same `path`.

    Raises:
        FilesError: something is at `path` already and is no empty folder; or no folder can be created there.
    """
    temporary = path.absolute().with_name(f".{path.absolute().name}.tmp")
    with _refused_folder(path):
        is_free = not path.exists() or (path.is_dir() and not any(path.iterdir()))
        if path.is_dir():
            tempfile.TemporaryFile(dir=path).close()
        if is_free:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
    if not is_free:
        raise FilesError(f"{path} already exists and is not an empty folder; choose another folder, or remove it.")
    try:
        with explained(path, temporary):
            yield temporary
            for written in (*temporary.rglob("*"), temporary):
                synced(written)
            os.replace(temporary, path)
            synced(path.absolute().parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Delete temporary files of killed writers in a folder. The caller must hold the folder's lock."""
    for temporary in folder.glob(".*.tmp"):
        with explained(temporary):
            temporary.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write bytes to `path` so that a reader sees the old file or the new one, never a part.

    Missing folders are made. After a failure the old file is unchanged.

    Raises:
        FilesError: the disk is full, or the place cannot be written to.
    """
    make_folder(path.parent)
    with atomic(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, content: Any) -> None:
    """Write plain data as indented UTF-8 JSON, atomically. NaN and infinity raise a ValueError.

    Raises:
        FilesError: as `atomic`.
    """
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    with atomic(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path, *, remedy: str = "delete it and start again") -> Any:
    """Return the content of a JSON file. All its texts can be written as UTF-8.

    Args:
        remedy: what a user should do about a damaged file, for the error.

    Raises:
        FilesError: the file is missing, not readable or no JSON.
    """
    try:
        written = read_file(path)
        content = json.loads(written.decode("utf-8-sig"))
        if b"\\u" in written:  # half of a pair of surrogates is valid JSON, but no file can hold it as text
            json.dumps(content, ensure_ascii=False).encode()
        return content
    except FileNotFoundError:
        raise FilesError(f"{path} does not exist.") from None
    except OSError as error:
        raise FilesError(unreadable(path, error)) from error
    except (ValueError, RecursionError) as error:
        raise FilesError(f"{path} is not a complete JSON file ({error}); {remedy}.") from error


def file_version(path: Path) -> tuple[int, int, int]:
    """Return inode, size and time of change (ns) of a file. As long as these are equal, so is the content."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of a file's content, which is read again only if `file_version` has changed."""
    return _sha256(path, file_version(path))


@functools.lru_cache(maxsize=4096)
def _sha256(path: Path, version: tuple[int, int, int]) -> str:
    return sha256_now(path)


def sha256_now(path: Path) -> str:
    """Return the SHA-256 (hex) of a file's content, which is always read."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def synced(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def explained(path: Path, *aliases: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write `path` into a FilesError, and let every other error pass.

    A refusal that names another file (not `path`, an alias, or a file below them) passes too.

    Raises:
        FilesError: names the path, what happened and what to do.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        refused = _refused(error, (path, *aliases))
        if refused is None:
            raise
        reason, remedy = refused
        raise FilesError(f"{path} cannot be written: {reason}; {remedy}, then start again.") from error


def refusal(error: OSError) -> tuple[str, str] | None:
    """Return the reason of an error and its remedy; None if the reason of the operating system is not listed."""
    return _REMEDIES.get(error.errno or 0)


def may_exist(path: str | Path) -> bool:
    """Return whether a file exists, or is in a folder that this user may not look into, so that nobody knows."""
    try:
        os.stat(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def unreadable(path: str | Path, error: OSError) -> str:
    """Return a sentence on a file that the operating system does not let this user read. The file may be whole, so
    the sentence never advises to delete it. It names the first folder that the user may not look into, if any."""
    if isinstance(error, PermissionError):
        folders = reversed(Path(path).absolute().parents)
        path = next((folder for folder in folders if not os.access(folder, os.X_OK, effective_ids=True)), path)
    usual = refusal(error) or (error.strerror or error, "check the disk")
    too_large = error.strerror, "move it away"  # the limit of `read_file`, not one of the system
    reason, remedy = too_large if error.errno == errno.EFBIG else usual
    return f"{path} cannot be read: {reason}; {remedy}, then start again."


def _refused(error: BaseException | None, paths: tuple[Path, ...]) -> tuple[str, str] | None:
    """Return reason and remedy of an error or of its causes; None if the error is about another path."""
    while error is not None and not isinstance(error, FilesError):
        if isinstance(error, OSError) and (reason := refusal(error)):
            is_own_file = error.filename is None or any(
                Path(os.fsdecode(error.filename)).is_relative_to(p) for p in paths
            )
            return reason if is_own_file else None
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def locked(path: Path, *, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of a lock file. If another process holds it, call `waiting` once and then wait.

    The kernel frees the lock when its holder ends, in whatever way. The lock file stays: if it were deleted,
    two processes could lock two files of the same name.

    Raises:
        FilesError: the lock file cannot be made, or the file system knows no locks.
    """
    lock = FileLock(path, fallback_to_soft=False)  # a soft lock would outlive its process
    with explained(path):
        try:
            lock.acquire(blocking=False)
        except Timeout:
            waiting()
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
