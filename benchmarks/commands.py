"""What a run costs besides its steps: a grid of short runs, Lightning, several processes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import ours
from benchmarks.timing import FASTER, compared, rate
from lightning_modules.config import RunSettings
from lightning_modules.data.token_store import Tokens
from lightning_modules.errors import StopRequest
from lightning_modules.files import write_json
from lightning_modules.training.run_directory import RunDirectory
from lightning_modules.training.train import start

SPEC: dict[str, Any] = {
    "version": 1,
    "data": {"kind": "language"},
    "encoder": {"num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 4},
    "training": {"max_steps": 60, "tokens_per_step": 2048},
    "arms": {"mlm": {"objective": {"kind": "masked_lm"}}},
}

RUN: dict[str, Any] = {
    "kind": "masked_lm",
    "layers": 6,
    "width": 256,
    "tokens_per_step": 8192,
    "dropout": 0.1,
    "precision": FASTER,
}
STEPS, WARM_UP = 20, 3
GRID_STEPS = 180


def seconds_of(*arguments: str, environment: Mapping[str, str] | None = None) -> float:
    """Return the wall time of a command in its own process; `environment` is added to that of this
    process."""
    begin = time.perf_counter()
    variables = os.environ | (environment or {})
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=variables)
    return time.perf_counter() - begin


def grid(folder: Path) -> dict[str, Any]:
    """Return the wall time of 20 runs of about 10 s, one after the other, over the time of their steps alone.

    Each run computes its validation loss once, after the last step.
    """
    steps_each = {"max_steps": GRID_STEPS, "validate_every": GRID_STEPS}
    spec = _write_spec(folder, "grid", seeds=list(range(20)), training=SPEC["training"] | steps_each)
    wall = seconds_of("-m", "ablations.cli", "run", str(spec), "--out", str(folder / "grid"))
    states = [json.loads(path.read_text()) for path in (folder / "grid/runs").glob("*/state.json")]
    steps = sum(state["seconds"] for state in states)
    return {
        "what": f"grid of {len(states)} runs of {steps / len(states):.1f} s, --slots 1",
        "against": "the sum of their training steps",
        "unit": "s",
        "ours": wall,
        "theirs": steps,
        "ratio": wall / steps,
        "at_most": 1.15,
        "rounds": 1,
    }


def lightning(folder: Path, tokens: Tokens, *, rounds: int) -> dict[str, Any]:
    """Return the speed of a run under the Trainer, without its saves, against the same module and batches in
    a bare loop."""
    bare = ours.training(ours.settings(**RUN), tokens, packed=False)
    for _ in range(WARM_UP):
        bare.step()
    run = ours.settings(**RUN, steps=STEPS)
    speeds: list[tuple[float, float]] = []
    for number in range(rounds):
        directory = _run_folder(folder / "runs" / f"lightning-{number}", run, tokens)
        start(directory, data_root=folder, accelerator="cpu", stop=StopRequest())
        speeds.append((speed(directory), rate(bare, seconds=directory.state().seconds or 0.0)))
    return _ratio("masked LM, 6 x 256, under Lightning", "bare loop", run, speeds, target=0.95)


def processes(folder: Path, tokens: Tokens, *, rounds: int) -> dict[str, Any]:
    """Return the speed of two processes with one thread each against one process with two threads."""
    run = ours.settings(**RUN, steps=STEPS)
    speeds = []
    for number in range(rounds):
        pair = []
        for devices in (2, 1):
            directory = _run_folder(folder / "runs" / f"devices-{devices}-{number}", run, tokens)
            command = ["-m", "lightning_modules.training.train", str(directory.path), "--accelerator", "cpu"]
            seconds_of(*command, "--devices", str(devices), "--threads", str(2 // devices))
            pair.append(speed(directory))
        speeds.append((pair[0], pair[1]))
    what, against = "masked LM, 6 x 256, 2 processes of 1 thread", "1 process of 2 threads"
    return _ratio(what, against, run, speeds, target=0.9)


def speed(directory: RunDirectory) -> float:
    """Return the tokens per second of a run's steps, without the first steps and without the time of
    validations and saves."""
    lines = [json.loads(line) for line in (directory.path / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if "perf/tokens_per_sec" in line]
    seen = [0, *(line["train/tokens"] for line in lines)]
    tokens = [after - before for before, after in pairwise(seen)]
    seconds = [count / line["perf/tokens_per_sec"] for count, line in zip(tokens, lines, strict=True)]
    return sum(tokens[WARM_UP:]) / sum(seconds[WARM_UP:])


def _run_folder(path: Path, run: RunSettings, tokens: Tokens) -> RunDirectory:
    path.mkdir(parents=True)
    write_json(path / "run.json", {"tokens": tokens.address, "settings": run.model_dump(mode="json")})
    return RunDirectory(path)


def _write_spec(folder: Path, name: str, **changes: Any) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(SPEC | {"name": name, "measures": []} | changes))
    return path


def _ratio(
    what: str, against: str, run: RunSettings, speeds: list[tuple[float, float]], *, target: float
) -> dict[str, Any]:
    """Return the result of two ways to do the same run, with their ratio over rounds."""
    return {
        "what": what,
        "against": against,
        "our_settings": ours.said(run),
        "their_settings": ours.said(run),
        "unit": "tokens/s",
        "target": target,
        **compared(*zip(*speeds, strict=True)),
    }
