"""Checkpoints that appear whole or not at all, and are read without executing anything.

Lightning's own writer stages in the temporary folder and copies: a kill or a full disk can destroy the last
good file. This one writes beside the target, syncs and renames.
"""

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from safetensors.torch import save
from torch import Tensor, nn

from lightning_modules.errors import CheckpointError
from lightning_modules.files import atomic


class AtomicCheckpoints(CheckpointIO):
    """Lightning's checkpoint format through our own writer and reader."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        with atomic(Path(path)) as temporary, temporary.open("wb") as file:
            torch.save(checkpoint, file)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: Any = None
    ) -> dict[str, Any]:
        return read_checkpoint(Path(path), map_location=map_location)

    def remove_checkpoint(self, path: str | Path) -> None:
        Path(path).unlink(missing_ok=True)


def read_checkpoint(path: Path, *, map_location: Any = "cpu") -> dict[str, Any]:
    """Return a checkpoint's content: tensors and plain values only, among them `state_dict` and `global_step`.

    Raises:
        CheckpointError: the environment would let it execute code; or the file is missing, was cut short, has
            another byte than was written, or holds anything but tensors and plain values.
    """
    if os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):
        raise CheckpointError(
            f"{path}: TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, which lets a checkpoint execute code; unset it."
        )
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no such checkpoint; train the run first.")
    try:
        _require_whole(path)
        content = torch.load(path, map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as error:
        raise _foreign(path) from error
    except Exception as error:  # a file that was made for it lets the reader raise anything
        raise CheckpointError(
            f"{path}: the checkpoint is damaged or was cut short; delete it, and the run starts again "
            f"from the beginning."
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get("state_dict"), dict):
        raise _foreign(path)
    if not isinstance(content.get("global_step"), int):
        raise _foreign(path)
    return content


def _require_whole(path: Path) -> None:
    """Compare the parts of the file with their checksums, which torch writes and does not read.

    Raises:
        zipfile.BadZipFile: a part has another byte than was written, or is compressed, which torch's never are: a
            small file could ask for all memory.
    """
    with zipfile.ZipFile(path) as archive:
        if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
            raise zipfile.BadZipFile("compressed")
        if (part := archive.testzip()) is not None:
            raise zipfile.BadZipFile(part)


def _foreign(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path}: holds something else than tensors and plain values and was not opened; "
        f"use only checkpoints that this project wrote."
    )


def load_weights(module: nn.Module, path: Path) -> int:
    """Put a checkpoint's weights into a module, on the GPU if there is one and ready for evaluation; return their
    step.

    Raises:
        CheckpointError: as `read_checkpoint`.
    """
    content = read_checkpoint(path)
    module.load_state_dict(content["state_dict"])
    module.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    return int(content["global_step"])


def write_safetensors(state: dict[str, Tensor], path: Path) -> None:
    """Write tensors for every other tool, in the safetensors format."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    with atomic(path) as temporary:
        temporary.write_bytes(save(tensors))
