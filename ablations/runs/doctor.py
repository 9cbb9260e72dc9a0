"""What a machine has, and what is known to be bad.

How fast this machine trains and measures: a little of each at some widths, on made-up text.

Processes that keep the other cores as busy as runs in slots would, while something is timed.
"""

import importlib.metadata
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from packaging.version import Version

from ablations.measures.reading.sample import first_tokens
from ablations.measures.reading.texts import Readings
from ablations.measures.settings import (
    GeometrySettings,
    InfluenceSettings,
    LayerChangeSettings,
    NeighboursSettings,
    TokenInformationSettings,
)
from ablations.runs import cost
from ablations.runs.calibration import COMPARED, COMPARED_WIDTH, TIMED, Calibration
from ablations.runs.measure import rows_of
from ablations.runs.plan import validation_text
from ablations.runs.workspace import Workspace
from lightning_modules.config import RunSettings, operations_per_token
from lightning_modules.config.data import LanguageData
from lightning_modules.data.token_store import Split, Tokens, prepare
from lightning_modules.files import require_writable
from lightning_modules.model.numerics import keep_freed_memory
from lightning_modules.objectives import build
from lightning_modules.objectives.translation import Translation
from lightning_modules.provenance import available_cores
from lightning_modules.training.evaluation import evaluate
from lightning_modules.training.speed import bare_step, wait
from lightning_modules.vocabulary import END, FIRST_WORD_ID, START


class Shape(NamedTuple):
    """What a run of some width has besides; the speed of its steps depends on that, too."""

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
"""By device and width, as specs have it: what is timed should be what will be run. On a CPU wide runs read more in
a step, but are hardly faster by that."""
SHAPES = SHAPES_BY_DEVICE[DEVICE]

MEASURED_WIDTHS = (64, 256)
PRECISIONS = ("32-true", "bf16-mixed")
LENGTH = 64
VALIDATION_SENTENCES, TRANSLATED_SENTENCES = 800, 64
TEXT = LanguageData(kind="language", train=10_000, validation=500, test=500)
RUNS_OF_NO_STEPS = {
    "name": "runs-of-no-steps",
    "version": 1,
    "data": {"kind": "language", "train": 500, "validation": 100, "test": 10, "vocab_size": 256},
    "encoder": {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 1},
    "objective": {"kind": "masked_lm"},
    "training": {"max_steps": 0},
    "arms": {"untrained": {}},
    "seeds": [0, 1, 2, 3, 4, 5],  # most of them are no worker's first, which imports more
    "measures": [
        "validation",
        {"kind": "layer_change", "tokens": 500},
        {"kind": "token_information", "tokens": 500, "types": 50, "clusters": 20},
    ],
}
TRANSLATED_LENGTH, CLUSTERS, HIDDEN_IN = 18, 500, 250
FEW = {"types": 1200, "occurrences": 3, "neighbours": 2, "neighbours_of_type": 1}


def reference_rates(threads: int) -> Iterator[tuple[str, int, float]]:
    """What, at which width, and how much of it a second with so many threads; the units are those of `cost`.

    `training/OBJECTIVE/PRECISION`: one step to warm up and a few that count, about two seconds in all on a CPU.
    `other/KIND`: an evaluation, translations, the measures; with all cores also text of the built-in language, the
    setting up of a run, the start and the end of `ablate run`.
    """
    keep_freed_memory()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        texts = {width: made_up_text(shape) for width, shape in SHAPES.items()}
        for precision in PRECISIONS:
            for objective in TIMED:
                for width, text in texts.items():
                    rate = _rate(_run(objective, precision, width), text)
                    yield f"training/{objective}/{precision}", width, rate
        for objective in COMPARED:
            rate = _rate(_run(objective, "32-true", COMPARED_WIDTH), texts[COMPARED_WIDTH])
            yield f"training/{objective}/32-true", COMPARED_WIDTH, rate
        for width in MEASURED_WIDTHS:
            for kind, work, do in _others(width, texts[width]):
                yield f"other/{kind}", width, work / _seconds(do)
        if threads == available_cores():
            yield from _around_runs()
    finally:
        torch.set_num_threads(before)


def endless_steps() -> Iterator[int]:
    """Does a step of training of middle size each time, and says how many tokens it had."""
    width, shape = list(SHAPES.items())[len(SHAPES) // 2]
    text = made_up_text(shape)
    while True:
        step = bare_step(_run("masked_lm", "32-true", width), text)
        for _ in range(shape.timed_steps + 1):
            yield step()


def made_up_text(shape: Shape) -> Tokens:
    """Sentences of 6 to 30 ids, and as many translations of the same lengths."""
    rng = np.random.default_rng(0)
    vocab_size, tokens = shape.vocab_size, shape.tokens_per_step * (shape.timed_steps + 1)
    train = _sentences(2 * tokens // 6, vocab_size, rng)
    counts = np.bincount(train.ids, minlength=vocab_size)
    return Tokens(
        folder=Path(),
        address="",
        report={},
        vocab_size=vocab_size,
        target_vocab_size=vocab_size,
        train=train,
        validation=_sentences(VALIDATION_SENTENCES, vocab_size, rng),
        test=None,
        source_counts_V=counts,
        target_counts_V=counts,
    )


def _sentences(count: int, vocab_size: int, rng: np.random.Generator) -> Split:
    lengths = rng.integers(6, 31, size=count)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.integers(FIRST_WORD_ID, vocab_size, size=offsets[-1]).astype(np.uint16)
    ids[offsets[:-1]], ids[offsets[1:] - 1] = START, END
    return Split(ids, offsets, np.arange(count, dtype=np.int32), ids, offsets)


def _others(width: int, text: Tokens) -> Iterator[tuple[str, float, Callable[[], object]]]:
    """What a run waits for besides its steps: its name, how much of its unit there is, and how to do it."""
    split = text.validation
    run = _run("masked_lm", "32-true", width)
    objective = build(run, text).to(DEVICE).eval()
    yield "evaluation", cost.evaluation_work(run, tokens=len(split.ids)), lambda: evaluate(objective, split)

    run = _run("translation", "32-true", width)
    translation = build(run, text).to(DEVICE).eval()
    assert isinstance(translation, Translation)
    rows = torch.full((TRANSLATED_SENTENCES, TRANSLATED_LENGTH), FIRST_WORD_ID, device=DEVICE)
    work = cost.translation_work(run, sentences=TRANSLATED_SENTENCES)
    yield "translation", work, lambda: translation.translate(rows, max_length=TRANSLATED_LENGTH)

    tokens = len(first_tokens(split, len(split.ids)).token_N)
    readings = Readings(objective, text, data_root=Path())  # the first measure makes states for all, as in a run
    for settings in (
        LayerChangeSettings(kind="layer_change", tokens=tokens),
        TokenInformationSettings(
            kind="token_information", tokens=tokens, types=text.vocab_size, clusters=CLUSTERS
        ),
        NeighboursSettings.model_validate({"kind": "neighbours", "tokens": tokens, **FEW}),
        GeometrySettings(kind="geometry", tokens=tokens),
        InfluenceSettings(kind="influence", tokens=tokens, sentences=HIDDEN_IN),
    ):
        work = cost.measure_work(settings, run, tokens=tokens)
        yield settings.kind, work, partial(rows_of, readings, settings)


def _around_runs() -> Iterator[tuple[str, int, float]]:
    """Rates of making text, of what a run does besides steps and what is told by its size, and of all that
    `ablate run` does besides runs: the start of its processes, the table and the page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds = _seconds(lambda: prepare(TEXT, data_root=folder, store=folder / "tokens"))
        yield "other/text", 1, (TEXT.train + TEXT.validation + TEXT.test) / seconds
        spec, slots = folder / "runs-of-no-steps.yaml", min(2, available_cores())
        spec.write_text(json.dumps(RUNS_OF_NO_STEPS), encoding="utf-8")
        options: list[str | Path] = ["run", spec, "--slots", str(slots), "--out", folder]
        whole = _seconds(lambda: _ablate(options))
        workspace = Workspace.open(spec, out=folder, data_root=folder)
        measures = workspace.experiment.measures
        settings, address = workspace.planned[0].run.settings, workspace.planned[0].tokens
        text = validation_text(folder, address, settings.data)
        known = Calibration(folder).around_steps(settings, measures, asked=measures, threads=1, validation=text)
        yield "other/set_up", 1, 1 / known.seconds
        yield "other/start_and_end", 1, 1 / (whole - known.seconds * len(workspace.planned) / slots)


def _ablate(options: list[str | Path]) -> None:
    command = [sys.executable, "-m", "ablations.cli", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stdout}")


def _seconds(do: Callable[[], object]) -> float:
    start = time.perf_counter()
    do()
    wait(torch.device(DEVICE))
    return time.perf_counter() - start


def _run(objective: str, precision: str, width: int) -> RunSettings:
    shape = SHAPES[width]
    decoder = {"decoder": {"num_hidden_layers": 2}} if objective == "translation" else {}
    shallow = {"num_hidden_layers": 2} if objective == "naive_bidirectional_lm" else {}  # more give all away
    files = {"train": "made up", "validation": "made up", "target": "made up"}
    return RunSettings.model_validate(
        {
            "data": {"kind": "files", "vocab_size": shape.vocab_size, "max_length": LENGTH} | files,
            "encoder": {"hidden_size": width, "num_attention_heads": max(4, width // 64)} | shallow,
            "objective": {"kind": objective} | decoder,
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


MOST = 7
"""Where there are more cores, so many share their caches and memory as well as all would."""


@contextmanager
def companions(count: int) -> Iterator[None]:
    """Inside, so many processes of one thread train without end; it begins when all of them do."""
    context = multiprocessing.get_context("spawn")
    ready = context.Semaphore(0)
    processes = [context.Process(target=_train, args=(ready,), daemon=True) for _ in range(min(count, MOST))]
    try:
        for process in processes:
            process.start()
        for process in processes:
            while not ready.acquire(timeout=1):
                if not process.is_alive():
                    raise RuntimeError("a process that trains beside what is timed ended by itself")
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _train(ready: Semaphore) -> None:
    import torch

    torch.set_num_threads(1)
    steps = endless_steps()
    next(steps)
    ready.release()
    for _ in steps:
        pass


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

    from lightning_modules.model.numerics import cpu_multiplies_bf16

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
    from ablations.runs.calibration import Calibration

    require_writable(out)  # not after minutes
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
