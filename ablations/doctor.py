"""What a machine has, and what is known to be bad."""

import importlib.metadata
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

from ablations.companions import companions
from lightning_modules.files import make_folder
from lightning_modules.provenance import available_cores

KNOWN_BAD = {
    "lightning": ("2.6.2", "2.6.3"),
    "pytorch-lightning": ("2.6.2", "2.6.3"),
}
"""Malicious uploads of April 2026 (GHSA-w37p-236h-pfx3)."""

UNITS = {
    "other/translation": "sentences x layers",
    "other/layer_change": "tokens x layers",
    "other/token_information": "tokens x layers x clusters",
    "other/neighbours": "pairs x layers",
    "other/geometry": "tokens x layers",
    "other/influence": "sentences x layers x groups",
}
"""Of the rates that are no operations."""

FIRST_GOOD_LIGHTNING = Version("2.6.6")
SHOWN = ("pretraining-ablations", "torch", "lightning", "datasets", "tokenizers", "transformers")


def findings(out: Path) -> Iterator[tuple[str, str, str | None]]:
    """Name, value and, where something is wrong, what to do about it."""
    import platform

    import torch

    from lightning_modules.precision import cpu_multiplies_bf16

    yield "python", platform.python_version(), None
    for name in SHOWN:
        found = _installed(name)
        yield name, found or "not installed", None if found or name == "transformers" else "install it"
    yield from _bad_packages()
    yield "cores", str(available_cores()), None
    fast = cpu_multiplies_bf16()
    yield "bf16 on the cores", "multiplied" if fast else "by products in fp32: no faster than 32-true", None
    for i in range(torch.cuda.device_count()):
        yield f"gpu {i}", torch.cuda.get_device_name(i), None
    if not torch.cuda.is_available():
        yield "gpu", "none", None
    there = out.absolute()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free / 2**30
    yield "free disk", f"{free:.1f} GiB", "free some space" if free < 1 else None
    yield (
        "output root",
        str(out),
        None if os.access(there, os.W_OK) else "cannot be written to; choose another --out",
    )
    if os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):
        yield "environment", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "lets a checkpoint execute code; unset it"


def calibrate(out: Path) -> Iterator[tuple[str, str]]:
    """Time a little of what runs do, with one thread and with all, keep what came out, and tell it.

    One thread is timed while the other cores train, as they do when runs have a core each; a GPU is timed once,
    and alone. Three to six minutes on two cores.

    Raises:
        FilesError: the output root cannot be written to.
    """
    from ablations.calibration import Calibration
    from ablations.timing import DEVICE, reference_rates

    make_folder(out)  # not after minutes
    cores = available_cores()
    for threads in sorted({1, cores}) if DEVICE == "cpu" else [cores]:
        rates = []
        with companions(cores - threads):
            for what, width, rate in reference_rates(threads):
                rates.append((what, width, rate))
                yield what, f"{_speed(what, width, rate)}, {f'threads: {threads}' if DEVICE == 'cpu' else 'GPU'}"
        Calibration(out).note_reference(rates, threads=threads if DEVICE == "cpu" else None)


def _speed(what: str, width: int, rate: float) -> str:
    if what in ("other/set_up", "other/start_and_end"):
        return f"{1 / rate:.1f} s"
    if what == "other/text":
        return f"{rate:,.0f} sentences a second"
    unit = UNITS.get(what)
    return (
        f"{rate:.3g} {unit} a second at width {width}" if unit else f"{rate / 1e9:,.0f} GFLOP/s at width {width}"
    )


def _bad_packages() -> Iterator[tuple[str, str, str | None]]:
    for name, versions in KNOWN_BAD.items():
        found = _installed(name)
        if found in versions:
            yield name, found, "a malicious upload: uninstall it at once and change your credentials"
        elif name == "lightning" and found and Version(found) < FIRST_GOOD_LIGHTNING:
            yield name, found, f"has an open advisory; install {FIRST_GOOD_LIGHTNING} or later"
    for name in ("reports", "ablations"):
        owners = set(importlib.metadata.packages_distributions().get(name, ())) - {"pretraining-ablations"}
        if owners:
            yield name, ", ".join(owners), f"another package provides the module {name}; uninstall it"


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
