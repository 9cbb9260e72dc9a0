"""`python -m benchmarks`: our speed against that of named peers, as a table and as JSON."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import (
    commands,
    equal_time,
    faults,
    gpu,
    parts,
    scale,
    text,
    training,
)
from benchmarks.timing import FASTER
from lightning_modules.data.token_store import Tokens
from lightning_modules.files import write_json
from lightning_modules.model.numerics import keep_freed_memory, matrix_rate
from lightning_modules.provenance import provenance, utc_now

GROUPS = (
    "training",
    "lightning",
    "processes",
    "corruption",
    "grid",
    "memory",
    "equal-time",
    "gpu",
)
EQUAL_SECONDS = 300.0


@click.command()
@click.argument("groups", nargs=-1, type=click.Choice(GROUPS))
@click.option("--data-root", type=click.Path(path_type=Path, exists=True), default="../shared/data")
@click.option("--out", type=click.Path(path_type=Path), default="out/benchmarks", show_default=True)
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Turns of each pair.")
@click.option("--seconds", type=float, default=8.0, show_default=True, help="Of each side in each turn.")
@click.option("--only", help="Only rows of training whose name holds this.")
def main(
    groups: tuple[str, ...],
    data_root: Path,
    out: Path,
    threads: int,
    rounds: int,
    seconds: float,
    only: str | None,
) -> None:
    """Measure GROUPS (all, where none is named) and write them to OUT/results.json.

    The machine must be quiet. Pairs of training, lightning, processes and corruption are timed in turn; the ratio
    is the median over the turns, with the smallest and the largest beside it. grid and
    memory are measured once; equal-time trains both sides for 5 minutes with each of three seeds, 40 minutes in
    all. gpu (half an hour, estimated) wants a GPU, and is left out of all groups where there is none.

    `python -m benchmarks parts --help` says where the time of a step goes, `python -m benchmarks faults --help`
    how faults are injected, `python -m benchmarks scale --help` how a large grid is tried.
    """
    asked = groups or (("training",) if only else GROUPS)
    if not torch.cuda.is_available():
        if "gpu" in groups:
            raise click.ClickException("gpu: torch sees no GPU; run this group where torch.cuda.is_available().")
        asked = tuple(group for group in asked if group != "gpu")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    keep_freed_memory()
    out.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 200)
    found = []
    here = described()
    for result in results(asked, data_root, out, rounds=rounds, seconds=seconds, only=only or ""):
        console.print(sentence(result), highlight=False, soft_wrap=True)
        found.append(result)
        told = {"measured": utc_now(), "threads": threads, **here, "results": found}
        write_json(out / "results.json", told)
    if not found:
        raise click.ClickException(
            f"--only: no row of training has {only!r} in its name; leave it out to see all."
        )
    console.print(table(found))


def results(
    groups: tuple[str, ...], data_root: Path, out: Path, *, rounds: int, seconds: float, only: str
) -> Iterator[dict[str, Any]]:
    """Yield each row of the table as soon as it is measured."""
    english = text.english(data_root, store=out / "tokens")
    with tempfile.TemporaryDirectory(dir=out) as name:
        folder = Path(name)
        (folder / "tokens").symlink_to((out / "tokens").resolve())
        single: dict[str, Callable[[], dict[str, Any]]] = {
            "lightning": lambda: commands.lightning(folder, english, rounds=rounds),
            "processes": lambda: commands.processes(folder, english, rounds=rounds),
            "grid": lambda: commands.grid(folder),
            "memory": lambda: memory(english),
            "equal-time": lambda: equal_time.measure(english, seconds=EQUAL_SECONDS),
        }
        for group in groups:
            if group == "training":
                pairs = text.pairs(data_root, store=out / "tokens")
                for row in training.rows(english, pairs):
                    if only in f"{row.what} {row.against}":
                        yield training.measure(row, rounds=rounds, seconds=seconds)
            elif group == "corruption":
                yield training.corruption(english, rounds=rounds)
            elif group == "gpu":
                yield from gpu.measured(data_root, out / "tokens", rounds=rounds, seconds=seconds)
                yield from gpu.grids(data_root, folder, text.pairs(data_root, store=out / "tokens"))
            else:
                yield single[group]()


def described() -> dict[str, Any]:
    """Return what the benchmarks ran on: code, versions (the peers' too), and the machine with its speed in
    matrix products."""
    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16}
    rates = {name: matrix_rate(torch.device("cpu"), dtype) for name, dtype in kinds.items()}
    told = provenance()
    return told | {
        "versions": told["versions"] | {"transformers": version("transformers")},
        "machine": told["machine"] | {"matrix_operations_per_second": rates},
    }


def memory(tokens: Tokens) -> dict[str, Any]:
    """Return the memory of training in bytes, ours over the peer's."""

    def of(side: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "benchmarks.memory", side, str(tokens.folder), FASTER]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return told["bytes"], told["settings"]

    (ours, our_settings), (theirs, their_settings) = of("ours"), of("theirs")
    return {
        "what": "memory, masked LM, packed, 6 x 256, 8,192 tokens a step",
        "against": "BertForMaskedLM, default",
        "our_settings": our_settings,
        "their_settings": their_settings,
        "unit": "MB",
        "ours": ours / 1e6,
        "theirs": theirs / 1e6,
        "ratio": ours / theirs,
        "at_most": 0.6,
        "rounds": 1,
    }


def sentence(result: dict[str, Any]) -> str:
    """Return one result as a line of JSON."""
    return json.dumps({name: value for name, value in result.items() if name != "rounds"}, ensure_ascii=False)


def readable(value: float) -> str:
    """Return a number with at least three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(found: list[dict[str, Any]]) -> Table:
    """Return all results as a table: both sides, the ratio (or difference) with its range, the target, and
    the floor as a share of our step."""
    made = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("what", "against", "ours", "theirs", "ratio", "range", "target", "floor"):
        made.add_column(name, justify="left" if name in ("what", "against") else "right")
    for result in found:
        compared = result.get("ratio", result.get("difference"))
        value = result["ours"] if compared is None else compared
        if "difference" in result:
            target, met = "range above 0", result["low"] > 0
        elif "target" in result:
            target, met = f">= {result['target']:g}", value >= result["target"]
        else:
            target, met = f"<= {result['at_most']:g}", value <= result["at_most"]
        span = f"{result['low']:.2f} to {result['high']:.2f}" if "low" in result and result["rounds"] > 1 else ""
        made.add_row(
            result["what"],
            result.get("against", ""),
            f"{readable(result['ours'])} {result['unit']}",
            readable(result["theirs"]) if "theirs" in result else "",
            "" if compared is None else f"{compared:.2f}",
            span,
            f"[{'green' if met else 'red'}]{target}[/]",
            f"{result['floor']['seconds'] / result['our_step_seconds']:.0%}" if "floor" in result else "",
        )
    return made


if __name__ == "__main__":
    for name, command in {"parts": parts.main, "scale": scale.main, "faults": faults.main}.items():
        if sys.argv[1:2] == [name]:
            command(sys.argv[2:], prog_name=f"python -m benchmarks {name}")
    main()
