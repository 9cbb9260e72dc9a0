"""A run's folder: what it was told, where it stands, on what it ran, and who may write there.

run.json          settings, written before the first start and never changed
state.json        running, done, failed or interrupted; how far; why
provenance.json   commit, versions, machine, devices, threads
metrics.jsonl     one line a logged step
tensorboard/      the same for TensorBoard
checkpoints/      last.ckpt, step=0000512.ckpt ..., last.safetensors
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ValidationError

from lightning_modules.config import RunSettings
from lightning_modules.errors import AblationsError
from lightning_modules.files import atomic, explained, write_json

OF_A_TRAINING = (
    *("measures.parquet", "refused.json", "metrics.jsonl", "tensorboard", "checkpoints"),
    *("word_order.json", "provenance.json", "state.json"),
)
"""What a run's folder holds of one training, in the order in which it is removed: first what a table is made from,
last what says that the run was trained. A kill between two of them leaves no table with rows of two trainings."""

Checkpoint = Literal["whole", "damaged", "gone"]
State = Literal["planned", "running", "done", "failed", "interrupted"]


class RunDirectoryError(AblationsError, RuntimeError):
    """A folder that is asked to be a run's is none, or was changed by hand."""


class RunBusyError(RunDirectoryError):
    """Another process is writing in the run's folder."""


class RunDirectory:
    """Paths and files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.last_checkpoint = self.checkpoints / "last.ckpt"
        self.last_weights = self.checkpoints / "last.safetensors"
        self.metrics = path / "metrics.jsonl"

    def description(self) -> dict[str, Any]:
        """run.json as it is: run_id, arm, seed, tokens (the address of its token store), settings."""
        try:
            return json.loads((self.path / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunDirectoryError(
                f"{self.path}: no run.json that can be read; `ablate run` makes run folders, "
                f"point this command at one under OUT/runs."
            ) from error

    def settings(self) -> RunSettings:
        """What the run was told."""
        try:
            return RunSettings.model_validate_json(json.dumps(self.description().get("settings")))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise RunDirectoryError(
                f"{self.path / 'run.json'}: settings.{place}: {first['msg']}; "
                f"the file was changed by hand or by another version, plan the run again."
            ) from error

    def state(self) -> dict[str, Any]:
        """state.json; a run nobody started is planned, one whose process is gone interrupted at its last save.

        Raises:
            RunDirectoryError: the file is there and cannot be read.
        """
        state = self._written_state()
        if not state:
            return {"state": "planned", "step": 0}
        if state["state"] == "running" and not self.is_locked():
            state |= {"state": "interrupted", "step": state.get("saved_step", 0)}
        return state

    def _written_state(self) -> dict[str, Any]:
        path = self.path / "state.json"
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError):
            state = None
        if not isinstance(state, dict) or state.get("state") not in get_args(State):
            raise RunDirectoryError(
                f"{path} cannot be read, so nobody knows how far the run is; delete the file, and `ablate run` "
                "goes on from the last checkpoint."
            )
        return state

    def write_state(self, state: State, **fields: Any) -> None:
        """Replace state.json; fields not given keep their value."""
        write_json(self.path / "state.json", self._written_state() | {"message": None} | fields | {"state": state})

    def is_trained(self) -> bool:
        """Return whether training ended, as state.json says; the checkpoints may have been deleted since."""
        return self.state()["state"] == "done"

    def checkpoint(self) -> Checkpoint:
        """Return what became of the last checkpoint of a trained run: damaged means of another size."""
        if not self.last_checkpoint.is_file():
            return "gone"
        same = self.last_checkpoint.stat().st_size == self.state().get("last_checkpoint_bytes")
        return "whole" if same else "damaged"

    def is_done(self) -> bool:
        """Return whether training ended and its last checkpoint can be read."""
        return self.is_trained() and self.checkpoint() == "whole"

    def forget_training(self) -> None:
        """Remove what an earlier training left, so that nothing of it is mixed with the one that starts now. Only
        for who holds the folder's lock."""
        for name in OF_A_TRAINING:
            path = self.path / name
            with explained(path):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def provenance(self) -> dict[str, Any]:
        """provenance.json, empty before the first start."""
        try:
            return json.loads((self.path / "provenance.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def cut_metrics(self, step: int) -> None:
        """Drop the lines of metrics.jsonl after a step, and a half-written last one."""
        if not self.metrics.exists():
            return
        kept = []
        for line in self.metrics.read_text(encoding="utf-8").splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except ValueError:
                break
        with atomic(self.metrics) as temporary:
            temporary.write_text("".join(kept), encoding="utf-8")

    @contextmanager
    def lock(self, *, patience: float = 1.0) -> Iterator[int]:
        """Be the one writer of this folder, until the block ends or the process dies; yields the descriptor.

        Args:
            patience: seconds to wait for it; somebody who only asks whether it is taken holds it for an instant.

        Raises:
            RunBusyError: another process is at work here.
        """
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._take(descriptor, patience)
            yield descriptor
        finally:
            os.close(descriptor)

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
        """Whether some process is at work here."""
        if not self.path.is_dir():
            return False
        try:
            with self.lock(patience=0):
                return False
        except RunBusyError:
            return True
