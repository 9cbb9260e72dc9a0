"""The folder of a run: its settings, state, provenance and lock.

run.json          settings, written before the first start and never changed
state.json        running, done, failed or interrupted; how far; why
provenance.json   commit, versions, machine, devices, threads
metrics.jsonl     one line per logged step
tensorboard/      the same for TensorBoard, unless the settings leave it out
wandb/            the same for Weights & Biases, if the settings ask for it
checkpoints/      last.ckpt, step=0000512.ckpt ..., last.safetensors
"""

import fcntl
import hashlib
import json
import math
import os
import platform
import re
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from lightning_modules import plugins
from lightning_modules.config import RunSettings
from lightning_modules.errors import AblationsError, ExitCode, PluginError
from lightning_modules.files import (
    atomic,
    explained,
    may_exist,
    open_no_link,
    read_file,
    read_while_replaced,
    synced,
    unreadable,
    write_json,
)

OF_A_TRAINING = (
    *("measures.parquet", "predictions.parquet", "refused.json"),
    *("metrics.jsonl", "tensorboard", "wandb", "checkpoints", "word_order.json", "provenance.json", "state.json"),
)
"""Files of one training in the folder of a run, in the order in which they are removed.

Files from which a table is made go first, state.json goes last. So a kill in between leaves no table with
rows of two trainings.
"""

Checkpoint = Literal["whole", "damaged", "gone"]
StateName = Literal["planned", "running", "done", "failed", "interrupted", "unreadable"]


class RunState(BaseModel):
    """Content of state.json of a run. Keys of a later version are ignored; missing keys are None."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True)

    state: StateName = "planned"
    step: int | None = None
    max_steps: int | None = None
    saved_step: int | None = None
    """Step of the last checkpoint, from which an interrupted run continues."""
    last_checkpoint_bytes: int | None = None
    """Size of the last checkpoint of a run that is done."""
    log_sha256: str | None = None
    """SHA-256 (hex) of metrics.jsonl of a run that is done."""
    tokens_seen: int | None = None
    tokens_predicted: int | None = None
    flops: float | None = None
    """Useful operations of training so far."""
    seconds: float | None = None
    tokens_per_second: float | None = None
    mfu: float | None = None
    """Useful operations divided by those of a large matrix product in the same time."""
    matrix_operations_per_second: float | None = None
    """Operations a second of the matrix product behind `mfu`."""
    first_step_seconds: float | None = None
    """Seconds from the start of the run to the end of its first step, at its last start."""
    pid: int | None = None
    """Id of the process that trains the run, or trained it last."""
    message: str | None = None
    """Reason why the run failed."""
    exit_code: int | None = None
    """Exit code of the training that failed."""
    checksum: str | None = None
    """SHA-256 (hex) of all other fields. It shows whether a byte has changed on the disk."""


DAMAGED_DESCRIPTION = (
    "cannot be read or has changed since it was written; delete the file, then `ablate run` writes it again."
)
"""What is wrong with a damaged run.json, and what to do."""


class _Description(BaseModel):
    """Types of the keys of run.json."""

    run_id: str = ""
    arm: str = ""
    seed: int = 0
    tokens: str = ""
    settings: dict[str, Any] = {}
    plugins: dict[str, dict[str, str]] = {}


class RunDirectoryError(AblationsError, RuntimeError):
    """Error of a folder that is no run folder, or that was changed by hand."""

    exit_code = ExitCode.WRONG_SETTINGS


class RunBusyError(RunDirectoryError):
    """Error of a run folder in which another process is writing."""


class RunDirectory:
    """Paths and files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: tuple[int, bytes] | None = None
        """Descriptor of the lock, and the text that this process wrote into it. None without the lock."""
        self._log: bytearray | None = None
        """Content of metrics.jsonl as the training of this process wrote it. None if it trains nothing."""

    @cached_property
    def run_id(self) -> str | None:
        """Identity of the run, by which its folder is named; None if somebody gave the folder another name."""
        match = re.search(r"-s\d+-([0-9a-f]{10})$", self.path.name)
        return match and match[1]

    def is_of_this_run(self, run_id: str | None) -> bool:
        """Return whether a file that says for which run it was written is of the run of this folder.

        In a folder with another name, the run is the one of run.json.

        Args:
            run_id: what the file says; None for a file that says nothing, as those of earlier versions.

        Raises:
            RunDirectoryError: run.json is needed, and cannot be read.
        """
        return run_id is None or run_id == (self.run_id or self.description().get("run_id"))

    @cached_property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @cached_property
    def last_checkpoint(self) -> Path:
        """Path of the last checkpoint."""
        return self.checkpoints / "last.ckpt"

    @cached_property
    def last_weights(self) -> Path:
        """Path of the last weights for other tools."""
        return self.checkpoints / "last.safetensors"

    @cached_property
    def metrics(self) -> Path:
        """Path of the log."""
        return self.path / "metrics.jsonl"

    def checkpoint_at(self, step: int) -> Path:
        """Return the path of the checkpoint of a step, which exists only if it was kept."""
        return self.checkpoints / f"step={step:07d}.ckpt"

    def kept_checkpoints(self) -> dict[int, Path]:
        """Return the checkpoints that were kept for analysis, by step, in ascending order. Files with other names
        are ignored."""
        paths = sorted(self.checkpoints.glob("step=*.ckpt"))
        return {int(path.stem[5:]): path for path in paths if re.fullmatch("step=[0-9]+", path.stem)}

    def description(self) -> dict[str, Any]:
        """Return the content of run.json: run_id, arm, seed, tokens (address of the token store), settings.

        Raises:
            RunDirectoryError: the file is missing, cannot be read, or has changed since it was written.
        """
        content = self._read("run.json", DAMAGED_DESCRIPTION, parse=_described)
        if content is not None:
            return content
        if (self.path / "state.json").exists():
            raise RunDirectoryError(
                f"{self.path / 'run.json'} is missing; start `ablate run` with the spec of the run, which writes "
                "it again."
            )
        raise RunDirectoryError(
            f"{self.path} has no run.json, so it is not the folder of a run; name a folder under OUT/runs."
        )

    def _read(self, name: str, problem: str, *, parse: Callable[[bytes], Any] = json.loads) -> Any:
        """Return the content of a JSON file of this folder, as `parse` makes it of bytes; None if there is no
        such file.

        Raises:
            RunDirectoryError: the file cannot be read, or differs from its checksum. `problem` says so, unless
                the operating system refuses to read it: then nothing is known to be damaged.
        """
        path = self.path / name

        def whole() -> Any:
            written = read_file(path)
            content = json.loads(written)
            if content.get("checksum") not in (None, checksum(content)):
                raise ValueError("checksum")
            return parse(written)

        try:
            return read_while_replaced(whole)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise RunDirectoryError(unreadable(path, error)) from error
        except (ValueError, AttributeError, RecursionError) as error:
            raise RunDirectoryError(f"{path} {problem}") from error

    def settings(self) -> RunSettings:
        """Return the settings of the run. Plugins are loaded from the files that the plan recorded.

        Raises:
            RunDirectoryError: run.json cannot be read, or the source of a plugin has changed since the plan.
        """
        description = self.description()
        try:
            plugins.recall(description.get("plugins", {}))
            return RunSettings.model_validate_json(json.dumps(description.get("settings")))
        except PluginError as error:
            raise RunDirectoryError(f"{self.path / 'run.json'}: {error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise RunDirectoryError(
                f"{self.path / 'run.json'}: settings.{place}: {first['msg']}; the file was written by another "
                "version or changed by hand; use that version, or train the run again."
            ) from error

    def state(self) -> RunState:
        """Return the state of the run, from state.json.

        A run that was never started is planned. A run whose process is gone is interrupted, at the step of
        its last checkpoint.

        Raises:
            RunDirectoryError: the file exists, and cannot be read or has changed since it was written.
        """
        state = self._written_state()
        if state is None:
            return RunState(state="planned", step=0)
        if state.state == "running" and not self.is_locked():
            state = state.model_copy(update={"state": "interrupted", "step": state.saved_step or 0})
        return state

    def _written_state(self) -> RunState | None:
        state: RunState | None = self._read(
            "state.json",
            "cannot be read or has changed since it was written, so the progress of the run is unknown; delete "
            "the file, then `ablate run` continues from the last checkpoint.",
            parse=RunState.model_validate_json,
        )
        return state

    def write_state(self, state: StateName, **fields: Any) -> None:
        """Replace state.json. Fields that are not given keep their values, but `message` and `exit_code` become
        None."""
        before = self._written_state()
        kept = {} if before is None else before.model_dump(exclude_unset=True)
        written = RunState.model_validate(kept | {"message": None, "exit_code": None} | fields | {"state": state})
        fields = written.model_dump(mode="json", exclude_unset=True)
        write_json(self.path / "state.json", fields | {"checksum": checksum(fields)})

    def is_trained(self) -> bool:
        """Return whether training ended, by state.json. Its checkpoints may have been deleted since."""
        return self.state().state == "done"

    def checkpoint_condition(self, state: RunState) -> Checkpoint:
        """Return whether the last checkpoint of a trained run is whole, damaged (of another size) or gone.

        Args:
            state: state of the run.
        """
        try:
            status = os.stat(self.last_checkpoint)
        except (FileNotFoundError, NotADirectoryError):
            return "gone"
        if not stat.S_ISREG(status.st_mode):
            return "gone"
        return "whole" if status.st_size == state.last_checkpoint_bytes else "damaged"

    def is_done(self) -> bool:
        """Return whether training ended and its last checkpoint is whole."""
        state = self.state()
        return state.state == "done" and self.checkpoint_condition(state) == "whole"

    def forget_training(self) -> None:
        """Remove the files of an earlier training, so that they are not mixed with those of a new one.

        The caller must hold the folder's lock.
        """
        for name in OF_A_TRAINING:
            path = self.path / name
            with explained(path):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:  # only the link is removed: its target may belong to others
                    path.unlink(missing_ok=True)

    def provenance(self) -> dict[str, Any]:
        """Return the content of provenance.json; empty if there is none.

        Raises:
            RunDirectoryError: the file cannot be read.
        """
        content = self._read(
            "provenance.json",
            "cannot be read, so it is unknown on which machine the run started; delete the file if it was this "
            "machine.",
        )
        return content or {}

    def last_validation_loss(self) -> float | None:
        """Return the validation loss in the run's log after its last step, in nats; NaN if it was no number, None
        if the log has none.

        The last step is `max_steps` of state.json.

        Raises:
            RunDirectoryError: the log has changed since the training ended.
        """
        step, loss = self.state().max_steps, None
        for line in self.require_log().splitlines():
            with suppress(ValueError):  # a line that was cut off by a kill
                content = json.loads(line)
                if content.get("step") == step and "val/loss" in content:
                    loss = math.nan if content["val/loss"] is None else content["val/loss"]
        return loss

    def log_sha256(self) -> str:
        """Return the SHA-256 (hex) of metrics.jsonl; an empty log and a missing one have the same.

        If this process trains the run, this is the hash of what it has written, otherwise that of the file.
        """
        return hashlib.sha256(self._read_log() if self._log is None else self._log).hexdigest()

    def _read_log(self) -> bytes:
        try:
            return read_file(self.metrics)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            raise RunDirectoryError(unreadable(self.metrics, error)) from error

    def require_log(self) -> bytes:
        """Return the content of metrics.jsonl; empty if there is no such file.

        Raises:
            RunDirectoryError: the log has changed since the training of the run ended, or is gone.
        """
        written = self._read_log()
        if self.state().log_sha256 not in (None, hashlib.sha256(written).hexdigest()):
            condition = "has changed since training ended" if self.metrics.exists() else "is missing"
            raise RunDirectoryError(
                f"{self.metrics} {condition}; restore it, or delete {self.path}, then `ablate run` trains the run "
                "again."
            )
        return written

    def cut_log(self, step: int, *, sha256: str | None) -> None:
        """Drop the lines of metrics.jsonl after a step, and a half-written last line.

        Args:
            sha256: hash of the log when the run was saved at that step. None if it is not known.

        Raises:
            RunDirectoryError: the lines up to that step have changed since the run was saved, or are gone.
        """
        kept = bytearray()
        for line in self._read_log().splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept += line + b"\n"
            except (ValueError, KeyError, TypeError, RecursionError):
                break
        if sha256 not in (None, hashlib.sha256(kept).hexdigest()):
            changed = f"has changed since the run was saved at step {step}"
            raise RunDirectoryError(
                f"{self.metrics} {changed if self.metrics.exists() else 'is missing'}; restore it, or delete "
                f"{self.last_checkpoint}, then the run starts again from the beginning."
            )
        self._log = kept
        if self.metrics.exists():
            self.mend_log()

    def add_to_log(self, line: str) -> None:
        """Append a line to metrics.jsonl.

        Raises:
            RunBusyError: another process has written into it, and has taken the run.
            FilesError: the file cannot be written.
        """
        if self._log is None:
            self._log = bytearray(self._read_log())
        written = line.encode() + b"\n"
        with explained(self.metrics), open(self.metrics, "ab", opener=open_no_link) as file:
            is_ours = file.tell() == len(self._log)
            self._log += written
            if is_ours:
                file.write(written)
        if not is_ours:
            self.mend_log()

    def mend_log(self) -> None:
        """Restore metrics.jsonl to what this process wrote, if another process has written to it since.

        A process that has lost the lock may notice this only after seconds, if the file system shows changes
        late. Its lines would be mixed with those of this training.

        Raises:
            RunBusyError: the other process has taken the run.
        """
        if self._log is not None and self._read_log() != self._log:
            self.require_lock()
            with atomic(self.metrics) as temporary:
                temporary.write_bytes(self._log)

    def sync_log(self) -> None:
        """Wait until metrics.jsonl is on the disk, so that a crash of the system does not take lines whose hash is
        in a file on the disk already."""
        if self.metrics.exists():
            with explained(self.metrics):
                synced(self.metrics)
                synced(self.path)

    @contextmanager
    def lock(self, *, patience: float = 1.0) -> Iterator[int]:
        """Lock this folder for one writer until the block ends or the process dies; yields a descriptor.

        Args:
            patience: seconds to wait for the lock. `is_locked` of another process holds it for an instant.

        Raises:
            RunBusyError: another process holds the lock.
            FilesError: the file system has no locks.
        """
        with explained(self.path / "lock"):
            descriptor = open_no_link(self.path / "lock", os.O_RDWR | os.O_CREAT)
        try:
            with explained(self.path / "lock"):
                self._take(descriptor, patience)
                token = f"{platform.node()} {os.getpid()} {uuid.uuid4()}\n".encode()
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, token, 0)
            before, self._lock = self._lock, (descriptor, token)
            try:
                yield descriptor
            finally:
                self._lock = before
        finally:
            os.close(descriptor)

    def require_lock(self) -> None:
        """Check that this process still holds the lock that it took; nothing is checked if it took none.

        Another process can take the folder if somebody removes the lock file, or if the file system does not
        hold locks between machines.

        Raises:
            RunBusyError: another process has taken the folder, or may have taken it.
        """
        if self._lock is None:
            return
        descriptor, token = self._lock
        if os.pread(descriptor, 2 * len(token), 0) != token:
            raise RunBusyError(
                f"{self.path}: another process started to train this run too, so the locks of this file system "
                "do not work between machines; train the run in one place only, or mount the file system with "
                "locks."
            )
        try:
            if os.path.samestat(os.fstat(descriptor), os.stat(self.path / "lock")):
                return
        except FileNotFoundError:
            pass
        raise RunBusyError(
            f"{self.path}: its file lock was removed during training, so another process may train this run "
            "too; do not remove this file, and start again."
        )

    def _take(self, descriptor: int, patience: float) -> None:
        deadline = time.monotonic() + patience
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise RunBusyError(
                        f"{self.path}: another process is training this run; wait for it, or end it first."
                    ) from None
            time.sleep(0.02)

    def is_locked(self) -> bool:
        """Return whether some process holds the lock. Permission to read the folder is enough.

        Raises:
            FilesError: the lock file cannot be read, or the file system has no locks.
        """
        with explained(self.path / "lock"):
            try:
                descriptor = open_no_link(self.path / "lock", os.O_RDONLY)
            except (FileNotFoundError, NotADirectoryError):
                return False
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)


def run_directories(out: Path) -> list[RunDirectory]:
    """Return the folders of all runs of an output root, by name; folders without run.json are left out. A folder
    that this user may not look into may have one, so it is not left out.

    Raises:
        RunDirectoryError: permission to look into the folder of all runs is denied.
    """
    try:
        folders = [out / "runs" / name for name in sorted(os.listdir(out / "runs"))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError as error:
        raise RunDirectoryError(unreadable(error.filename, error)) from error
    return [RunDirectory(folder) for folder in folders if may_exist(folder / "run.json")]


def _described(written: bytes) -> dict[str, Any]:
    """Return the content of run.json, or raise a ValueError if a key is of another type."""
    content: dict[str, Any] = json.loads(written)
    _Description.model_validate(content, strict=True)
    return content


def checksum(fields: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) of the fields of run.json or state.json, without the field `checksum`."""
    others = {name: value for name, value in fields.items() if name != "checksum"}
    return hashlib.sha256(_SORTED.encode(others).encode()).hexdigest()


_SORTED = json.JSONEncoder(sort_keys=True)
