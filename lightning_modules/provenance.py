"""Provenance of a run: code, versions and machine."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_modules.files import write_json

if TYPE_CHECKING:
    from lightning_modules.training.run_directory import RunDirectory

LIBRARIES = (
    "pretraining-ablations",
    "torch",
    "lightning",
    "torchmetrics",
    "tokenizers",
    "datasets",
    "numpy",
    "pandas",
)


def utc_now() -> str:
    """Return the time in ISO format, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def provenance() -> dict[str, Any]:
    """Return the facts of this process: `commit` and `dirty` (None outside a checkout), versions, machine."""
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        **checkout(),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in LIBRARIES},
        "machine": {
            "platform": platform.platform(),
            "cpu": processor(),
            "cores": available_cores(),
            "gpus": gpus,
        },
    }


def machine_changes(before: dict[str, Any], this_machine: dict[str, Any]) -> list[str]:
    """Return the differences between this machine and the one of a run that change the bits of its weights.

    Each reads like `torch 2.12.0 there, torch 2.13.0 here`. Facts that either side lacks are left out.

    Args:
        before: provenance of the run.
        this_machine: provenance of this machine.
    """
    pairs = zip(_facts_of_bits(before), _facts_of_bits(this_machine), strict=True)
    return [f"{old} there, {new} here" for old, new in pairs if None not in (old, new) and old != new]


def accept_machine(directory: "RunDirectory", *, devices: int) -> None:
    """Allow a run to continue on this machine although it began on another kind of machine, or with other
    versions or devices.

    From then on its provenance is that of this machine, and `moved_from` says what has changed. A trained run
    is not changed.

    Args:
        devices: number of devices here, over all nodes.

    Raises:
        RunBusyError: another process is training it.
    """
    before = directory.provenance()
    if not before or directory.is_trained():
        return
    this_machine = provenance() | {"devices": devices}
    if changed := machine_changes(before, this_machine):
        moves = [*before.get("moved_from", []), {"at": utc_now(), "changed": changed}]
        with directory.lock():
            write_json(directory.path / "provenance.json", before | this_machine | {"moved_from": moves})


def _facts_of_bits(facts: dict[str, Any]) -> list[str | None]:
    """Return the facts that the bits of the weights depend on, in words; None for an unknown fact."""
    versions, machine, devices = facts.get("versions", {}), facts.get("machine", {}), facts.get("devices")
    gpus = " and ".join(dict.fromkeys(machine.get("gpus") or []))
    return [
        None if devices is None else f"{devices} device{'s' * (devices != 1)}",
        *(f"{name} {versions[name]}" if versions.get(name) else None for name in ("torch", "numpy")),
        f"GPU {gpus}" if gpus else machine.get("cpu"),
    ]


def checkout() -> dict[str, Any]:
    """Return `commit` and `dirty` of the checkout that this code runs from; both None outside a checkout."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # If the package is installed below somebody else's checkout, git does not know this file.
    is_in_checkout = git("ls-files", "--error-unmatch", __file__) is not None
    commit = git("rev-parse", "HEAD") if is_in_checkout else None
    changed = git("status", "--porcelain") if commit else None
    return {"commit": commit, "dirty": None if changed is None else bool(changed)}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def available_cores() -> int:
    """Return the number of cores that this process may use: those that it is bound to, at most as many as its
    container has time for (the quota of a cgroup), and in a SLURM job at most the cores of its task."""
    from joblib import cpu_count  # here, because importing it takes a tenth of a second

    cores = cpu_count()
    of_task = os.environ.get("SLURM_CPUS_PER_TASK", "")  # not every cluster binds a task to its cores
    return min(cores, int(of_task)) if of_task.isdigit() and int(of_task) else cores


def processor() -> str:
    """Return the name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
