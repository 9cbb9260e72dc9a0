"""Where the time of a training step goes: `python -m benchmarks parts`.

Each operation of torch is timed inside real steps. Then it is repeated alone on numbers of the same shapes,
which may then lie in a cache. Two floors are computed for it: its matrix products at the rate of large
products, and the bytes that it reads and writes at the rate of a copy of 256 MB.
"""

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from benchmarks import text
from benchmarks.timing import CPU, TYPE_OF_PRODUCTS, Side, copy_rate
from benchmarks.training import our_run
from lightning_modules.model.numerics import keep_freed_memory, matrix_rate

PARTS = {
    "linear maps and vocabulary: products": ("mm", "addmm", "addmm_"),
    "attention: products": ("bmm", "baddbmm"),
    "attention: softmax of it and of the vocabulary": ("_softmax", "softmax"),
    "attention: heads apart and together": ("clone",),
    "GELU": ("gelu", "gelu_backward"),
    "layer norm": ("native_layer_norm", "native_layer_norm_backward"),
    "dropout: random bits to 0 and 1": ("ge",),
    "products of numbers: dropout, attention weights, scales": ("mul", "mul_"),
    "sums of tensors: residuals, gradients": ("add", "add_"),
    "sums over rows: biases, attention": ("sum",),
    "changes of type": ("_to_copy", "copy_"),
    "clipping and AdamW": ("_fused_adamw_", "_foreach_norm", "_foreach_mul_"),
}
"""Parts of a step: the operations of torch that belong to them. All others are `OTHER`."""
PART_OF = {name: part for part, names in PARTS.items() for name in names}
OTHER = "other operations"
PRODUCTS = PARTS["linear maps and vocabulary: products"] + PARTS["attention: products"]
STEPS, WARM_UP, TRIES = 10, 4, 5
LEAST_SHARE = 0.002  # of a step; an operation below it is not repeated alone
SHAPES = (
    "masked_lm packed 6x256",
    "masked_lm packed 4x128",
    "masked_lm sentences 6x256",
    "causal_lm packed 6x256",
    "translation sentences 6x256",
)


@dataclass
class Operation:
    """Operation on tensors of certain shapes and types: its seconds in all timed steps, and one call of it."""

    name: str
    calls: int = 0
    seconds: float = 0.0
    bytes: float = 0.0
    """Bytes that it reads and writes in all timed steps."""
    products: float = 0.0
    """Operations of its matrix products in all timed steps, two for each multiplication."""
    again: Callable[[], object] | None = field(default=None, repr=False)


class Stopwatch(TorchDispatchMode):
    """Mode that times each operation of torch that reads or writes a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: dict[tuple[Any, ...], Operation] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        start = time.perf_counter()
        result = func(*args, **kwargs)
        seconds = time.perf_counter() - start
        read = _tensors((args, kwargs))
        name = func.overloadpacket.__name__
        key = (func, *((x.shape, x.stride(), x.dtype) for x in read))
        operation = self.operations.setdefault(key, Operation(name))
        operation.calls += 1
        operation.seconds += seconds
        if name in PART_OF:
            out = _tensors(kwargs.get("out"))
            operation.bytes += sum(x.nbytes for x in (*read, *_tensors(result))) - sum(x.nbytes for x in out)
            operation.products += _products(name, read)
        if operation.again is None and name in PART_OF:
            copied_args, copied_kwargs = tree_map_only(Tensor, _copy, (args, kwargs))
            operation.again = lambda: func(*copied_args, **copied_kwargs)
        return result


def _tensors(tree: object) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def _copy(x: Tensor) -> Tensor:
    """Return a copy with the same strides."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x.detach())


def _products(name: str, read: list[Tensor]) -> float:
    """Return the operations of a matrix product, 0 for other operations."""
    if name not in PRODUCTS:
        return 0.0
    left, right = (read[0], read[1]) if name in ("mm", "bmm") else (read[1], read[2])
    return 2.0 * left.numel() * right.shape[-1]


def alone(operation: Operation) -> float:
    """Return the seconds of one call of an operation that is repeated: the fastest of five."""
    assert operation.again is not None
    seconds = []
    for _ in range(TRIES):
        start = time.perf_counter()
        operation.again()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def measured(side: Side) -> list[dict[str, Any]]:
    """Return a row for each part of a side's step, the longest first, then their sum, then the whole step
    without a stopwatch. All times are seconds of one step. Operations outside of `PARTS` have no floors."""
    for _ in range(WARM_UP):
        side.step()
    seconds_of_steps = []
    for _ in range(STEPS):
        start = time.perf_counter()
        side.step()
        seconds_of_steps.append(time.perf_counter() - start)
    step = statistics.median(seconds_of_steps)
    with Stopwatch() as watch:
        side.step()  # makes the copies
        for operation in watch.operations.values():
            operation.calls, operation.seconds, operation.bytes, operation.products = 0, 0.0, 0.0, 0.0
        for _ in range(STEPS):
            side.step()
    rate, copied = matrix_rate(CPU, TYPE_OF_PRODUCTS), copy_rate(CPU)
    parts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for operation in watch.operations.values():
        row, seconds = parts[PART_OF.get(operation.name, OTHER)], operation.seconds / STEPS
        repeated = operation.again is not None and seconds > LEAST_SHARE * step
        row["calls"] += operation.calls / STEPS
        row["in_step"] += seconds
        row["alone"] += alone(operation) * operation.calls / STEPS if repeated else seconds
        row["products"] += operation.products / STEPS / rate
        row["memory"] += operation.bytes / STEPS / copied
    total = {name: sum(row[name] for row in parts.values()) for name in next(iter(parts.values()))}
    ordered = sorted(parts.items(), key=lambda part: -part[1]["in_step"])
    rows: list[dict[str, Any]] = [{"part": name, **row} for name, row in [*ordered, ("sum", total)]]
    return [*rows, {"part": "step without stopwatch", "in_step": step}]


@click.command()
@click.option("--data-root", type=click.Path(path_type=Path, exists=True), default="../shared/data")
@click.option("--out", type=click.Path(path_type=Path), default="out/benchmarks", show_default=True)
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--only", default="", help="Only steps whose name holds this.")
def main(data_root: Path, out: Path, threads: int, only: str) -> None:
    """Show where the time of a training step goes: each part in the step, alone, and its two floors.

    The machine must be quiet. A stopwatch around each operation makes the sum of all parts larger than a step.
    """
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    keep_freed_memory()
    names = [name for name in SHAPES if only in name]
    if not names:
        raise click.ClickException(f"--only: no step has {only!r} in its name, only {', '.join(SHAPES)}.")
    for name in names:
        kind, packing, shape = name.split()
        layers, width = map(int, shape.split("x"))
        read = text.pairs if kind == "translation" else text.english
        tokens = read(data_root, store=out / "tokens")
        _, side = our_run(kind, layers, width, tokens, packed=packing == "packed")
        Console(width=160).print(table(name, measured(side())))


def table(name: str, rows: list[dict[str, Any]]) -> Table:
    """Return the rows of a step as a table, in milliseconds."""
    made = Table(title=name, title_justify="left", box=None, header_style="bold", pad_edge=False)
    made.add_column("part, ms of a step")
    columns = {
        "in_step": "in the step",
        "alone": "alone",
        "products": "floor: products",
        "memory": "floor: memory",
    }
    for title in ("calls", *columns.values()):
        made.add_column(title, justify="right")
    for row in rows:
        times = (f"{1e3 * row[column]:.1f}" if column in row else "" for column in columns)
        made.add_row(row["part"], f"{row['calls']:.0f}" if "calls" in row else "", *times)
    return made
