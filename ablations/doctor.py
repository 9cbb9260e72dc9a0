"""Checks of the machine: versions and devices, known problems, and the speed of training steps.

The steps are those of masked LM on random text, at a few widths, in fp32 and in bf16. `plan` estimates the
time of training from them, until runs of the same kind have ended on this machine.
"""

import importlib.metadata
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from packaging.version import Version

from ablations.runs.calibration import Calibration
from lightning_modules.config import RunSettings, operations_per_token
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, START
from lightning_modules.files import require_writable
from lightning_modules.model.numerics import cpu_multiplies_bf16, keep_freed_memory, wait
from lightning_modules.provenance import available_cores
from lightning_modules.training.fit import bare_step


class Shape(NamedTuple):
    """Settings of a timed run that depend on its width and influence the speed of its steps."""

    vocab_size: int
    tokens_per_step: int
    timed_steps: int


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES_BY_DEVICE = {
    "cpu": {
        32: Shape(1024, 512, 8),
        64: Shape(1024, 2048, 6),
        128: Shape(4096, 4096, 2),
        256: Shape(8192, 2048, 2),
    },
    "cuda": {
        32: Shape(1024, 2048, 20),
        64: Shape(1024, 2048, 20),
        256: Shape(8192, 8192, 20),
        512: Shape(8192, 16384, 20),
        768: Shape(8192, 32768, 10),
    },
}
"""Shapes by device and width. They are like those of specs, because the timed runs should resemble real ones.

On a CPU wide runs of specs have more tokens a step than here, but that makes them hardly faster.
"""
SHAPES = SHAPES_BY_DEVICE[DEVICE]

PRECISIONS = ("32-true", "bf16-mixed")
LENGTH = 64

KNOWN_BAD = {
    "lightning": ("2.6.2", "2.6.3"),
    "pytorch-lightning": ("2.6.2", "2.6.3"),
}
"""Versions that were malicious uploads, in April 2026 (GHSA-w37p-236h-pfx3)."""

FIRST_GOOD_LIGHTNING = Version("2.6.6")
SHOWN = ("pretraining-ablations", "torch", "lightning", "datasets", "tokenizers", "transformers")


def findings(out: Path) -> Iterator[tuple[str, str, str | None]]:
    """Yield name, value and remedy of each check; the remedy is None if nothing is wrong."""
    import platform

    yield "python", platform.python_version(), None
    for name in SHOWN:
        installed = _installed(name)
        yield name, installed or "not installed", None if installed or name == "transformers" else "install it"
    yield from _bad_packages()
    yield "cores", str(available_cores()), None
    fast = cpu_multiplies_bf16()
    yield "bf16 on the CPU", "has instructions of its own" if fast else "no faster than 32-true", None
    for i in range(torch.cuda.device_count()):
        yield f"gpu {i}", torch.cuda.get_device_name(i), None
    if not torch.cuda.is_available():
        yield "gpu", "none", None
    folder = out.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 2**30
    yield "free disk", f"{free:.1f} GiB", "free some space" if free < 1 else None
    yield (
        "output root",
        str(out),
        None if os.access(folder, os.W_OK) else "is not writable; choose another --out",
    )
    if os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):
        yield (
            "environment",
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD",
            "is set, so a checkpoint could execute code; unset it",
        )


def calibrate(out: Path) -> Iterator[tuple[str, str]]:
    """Time steps of training with one thread and with all threads, store the rates, and yield them in words.

    A GPU is timed once. Takes about 20 seconds on two cores.

    Raises:
        FilesError: the output root cannot be written to.
    """
    require_writable(out)  # first, because the timing takes long
    cores = available_cores()
    for threads in sorted({1, cores}) if DEVICE == "cpu" else [cores]:
        rates = []
        for precision, width, rate in step_rates(threads):
            rates.append((precision, width, rate))
            on = f"threads: {threads}" if DEVICE == "cpu" else "GPU"
            yield f"training, {precision}", f"{float(f'{rate / 1e9:.2g}'):,g} GFLOP/s at width {width}, {on}"
        Calibration(out).note_steps(rates, threads=threads if DEVICE == "cpu" else None)


def step_rates(threads: int) -> Iterator[tuple[str, int, float]]:
    """Yield precision, width and useful operations a second of training with `threads` threads.

    One step warms up and a few are timed, about two seconds in all on a CPU.
    """
    keep_freed_memory()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for width, shape in SHAPES.items():
            text = made_up_text(shape)
            for precision in PRECISIONS:
                yield precision, width, _rate(_run(precision, width), text)
    finally:
        torch.set_num_threads(before)


def made_up_text(shape: Shape) -> Tokens:
    """Return a text of random ids in sentences of 6 to 30 tokens, long enough for the timed steps."""
    rng = np.random.default_rng(0)
    vocab_size, tokens = shape.vocab_size, shape.tokens_per_step * (shape.timed_steps + 1)
    train = _sentences(2 * tokens // 6, vocab_size, rng)
    return Tokens(
        folder=Path(),
        address="",
        report={},
        vocab_size=vocab_size,
        target_vocab_size=None,
        train=train,
        validation=_sentences(1, vocab_size, rng),
        test=None,
        source_counts_V=np.bincount(train.ids, minlength=vocab_size),
        target_counts_V=None,
    )


def _sentences(count: int, vocab_size: int, rng: np.random.Generator) -> Split:
    lengths = rng.integers(6, 31, size=count)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.integers(FIRST_WORD_ID, vocab_size, size=offsets[-1]).astype(np.uint16)
    ids[offsets[:-1]], ids[offsets[1:] - 1] = START, END
    return Split(ids, offsets, np.arange(count, dtype=np.int32), None, None)


def _run(precision: str, width: int) -> RunSettings:
    shape = SHAPES[width]
    return RunSettings.model_validate(
        {
            "data": {
                **{"kind": "files", "vocab_size": shape.vocab_size, "max_length": LENGTH},
                **{"train": "made up", "validation": "made up"},
            },
            "encoder": {"hidden_size": width, "num_attention_heads": max(4, width // 64)},
            "objective": {"kind": "masked_lm"},
            "training": {
                "max_steps": shape.timed_steps + 1,
                "tokens_per_step": shape.tokens_per_step,
                "precision": precision,
            },
            "seed": 0,
        }
    )


def _rate(run: RunSettings, text: Tokens) -> float:
    step, device = bare_step(run, text, device=DEVICE), torch.device(DEVICE)
    step()
    wait(device)
    start = time.perf_counter()
    tokens = sum(step() for _ in range(run.training.max_steps - 1))
    wait(device)
    return tokens * operations_per_token(run) / (time.perf_counter() - start)


def _bad_packages() -> Iterator[tuple[str, str, str | None]]:
    for name, versions in KNOWN_BAD.items():
        installed = _installed(name)
        if installed in versions:
            yield name, installed, "a malicious upload: uninstall it at once and change your credentials"
        elif name == "lightning" and installed and Version(installed) < FIRST_GOOD_LIGHTNING:
            yield name, installed, f"has an open advisory; install {FIRST_GOOD_LIGHTNING} or later"
    for name in ("reports", "ablations"):
        owners = set(importlib.metadata.packages_distributions().get(name, ())) - {"pretraining-ablations"}
        if owners:
            yield name, ", ".join(owners), f"another package provides the module {name}; uninstall it"


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
