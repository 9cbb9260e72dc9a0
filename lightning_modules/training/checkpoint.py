"""Checkpoints that appear whole or not at all, and that are read without executing code from them.

Lightning's own writer writes to the temporary folder and copies. A kill or a full disk can then destroy the
last good file. Ours writes beside the target, syncs and renames.
"""

import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from safetensors.torch import save
from torch import Tensor, nn

from lightning_modules.errors import AblationsError, CheckpointError, OutOfMemoryError
from lightning_modules.files import atomic, refusal, unreadable
from lightning_modules.model.numerics import out_of_memory
from lightning_modules.training.run_directory import RunDirectory

RUN_ID = "run_id"
"""Key of the identity of the run in a checkpoint."""


class AtomicCheckpoints(CheckpointIO):
    """Lightning's checkpoint format with the identity of the run, and with our own writer and reader."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        whose = {RUN_ID: RunDirectory(Path(path).parent.parent).run_id}
        with atomic(Path(path)) as temporary, temporary.open("wb") as file:
            torch.save(checkpoint | whose, file)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: Any = None
    ) -> dict[str, Any]:
        return read_checkpoint(Path(path), map_location=map_location)

    def remove_checkpoint(self, path: str | Path) -> None:
        Path(path).unlink(missing_ok=True)


def read_checkpoint(path: Path, *, map_location: Any = "cpu") -> dict[str, Any]:
    """Return the content of a checkpoint: only tensors and plain values, among them `state_dict` and
    `global_step`.

    Args:
        path: file in the folder `checkpoints` of a run.

    Raises:
        CheckpointError: the environment would let it execute code; or the file is missing, cut short or
            changed since it was written, holds anything but tensors and plain values, or is of another run.
        OutOfMemoryError: it does not fit into memory.
        RunDirectoryError: the folder of the run has a name of its own, and its run.json cannot be read.
    """
    if os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):
        raise CheckpointError(
            f"{path}: TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, so a checkpoint could execute code; unset this "
            "variable."
        )
    if not path.is_file():
        raise CheckpointError(
            f"{path} does not exist; start `ablate run`, and if the run is trained already, delete "
            f"{path.parent.parent} before."
        )
    try:
        _require_whole(path)
        content = torch.load(path, map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as error:
        raise _foreign(path) from error
    except Exception as error:  # a malicious file can make the reader raise any error
        raise _not_read(path, error) from error
    if not isinstance(content, dict) or not isinstance(state := content.get("state_dict"), dict):
        raise _foreign(path)
    step = content.get("global_step")
    if type(step) is not int or not 0 <= step < 2**63 or not isinstance(content.get(RUN_ID), str | None):
        raise _foreign(path)
    if not all(isinstance(name, str) and _is_plain(tensor) for name, tensor in state.items()):
        raise _foreign(path)
    if not RunDirectory(path.parent.parent).is_of_this_run(run_id := content.get(RUN_ID)):
        raise CheckpointError(
            f"{path}: the checkpoint is of another run ({run_id}); restore it, or delete {path.parent.parent}, "
            "then `ablate run` trains the run again."
        )
    return content


def _not_read(path: Path, error: Exception) -> AblationsError:
    """Return the error of a checkpoint that was not read. It may be whole if memory is short, or if the operating
    system refuses to read it."""
    if (no_room := out_of_memory(error)) is not None:
        return OutOfMemoryError(
            f"{path} cannot be read: there is not enough memory ({no_room}); end other programs, or lower "
            "--slots, then start again."
        )
    if isinstance(error, OSError) and refusal(error):
        return CheckpointError(unreadable(path, error))
    return CheckpointError(
        f"{path}: the checkpoint is damaged or incomplete; restore it, or delete {path.parent.parent}, then "
        "`ablate run` trains the run again."
    )


def _is_plain(tensor: Any) -> bool:
    """Return whether an object is a dense tensor that holds all of its numbers. One that repeats a single number
    could ask for all memory."""
    return (
        isinstance(tensor, Tensor)
        and tensor.layout == torch.strided
        and not tensor.is_nested
        and not tensor.is_meta
        and tensor.numel() * tensor.itemsize <= tensor.untyped_storage().nbytes()
    )


def _require_whole(path: Path) -> None:
    """Check the parts of the file against their checksums, which torch writes and does not read.

    Raises:
        zipfile.BadZipFile: a part has changed since it was written, or is compressed. torch never compresses
            parts, and a small compressed file could fill all memory.
    """
    with zipfile.ZipFile(path) as archive:
        if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
            raise zipfile.BadZipFile("compressed")
        if (part := archive.testzip()) is not None:
            raise zipfile.BadZipFile(part)


def _foreign(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} contains other things than tensors and plain values, so it was not opened; use only "
        "checkpoints that this project wrote."
    )


def require_fit(path: Path, state: Mapping[str, Tensor], module: nn.Module) -> None:
    """Check that the weights of a checkpoint are those of a module.

    Raises:
        CheckpointError: one is missing, unknown, of another shape, or of another kind of number.
    """
    expected = module.state_dict()
    wrong = ""
    for name in [*expected, *(state.keys() - expected.keys())]:
        if name not in expected:
            wrong = f"{name!r} is unknown"
        elif name not in state:
            wrong = f"{name} is missing"
        elif state[name].shape != expected[name].shape:
            wrong = f"{name} has the shape {tuple(state[name].shape)} in place of {tuple(expected[name].shape)}"
        elif state[name].is_floating_point() != expected[name].is_floating_point():
            wrong = f"{name} has the type {state[name].dtype} in place of {expected[name].dtype}"
        if wrong:
            raise unfit(path, wrong)


def unfit(path: Path, why: str) -> CheckpointError:
    """Return the error of a checkpoint whose weights are not those of the run."""
    return CheckpointError(
        f"{path}: the weights are not those of a model with the settings of the run ({why}); restore it, or "
        f"delete {path.parent.parent}, then `ablate run` trains the run again."
    )


def load_weights(module: nn.Module, path: Path) -> int:
    """Load a checkpoint's weights into a module and return their step.

    The module is moved to the GPU if there is one, and put into evaluation mode.

    Raises:
        CheckpointError: as `read_checkpoint` and `require_fit`.
    """
    content = read_checkpoint(path)
    require_fit(path, content["state_dict"], module)
    module.load_state_dict(content["state_dict"])
    module.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    return int(content["global_step"])


def write_safetensors(state: dict[str, Tensor], path: Path) -> None:
    """Write tensors in the safetensors format, which other tools read."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    with atomic(path) as temporary:
        temporary.write_bytes(save(tensors))
