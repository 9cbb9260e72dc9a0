"""Cost of the commands on a grid of 10,000 runs, on a simulated cluster where nothing is trained.

One run is trained. A simulated SLURM takes the jobs of all others. Each of its jobs writes a run's folder as
a training would leave it, with the rows of the trained run and noise on their values. Some jobs lose their
node on the way and wait again. All commands of `ablate`, their files and the page are the real ones.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from ablations.results import sealed, write_whole
from ablations.runs import rows
from ablations.runs.places import arrays
from benchmarks import pretended_slurm
from lightning_modules.files import write_json
from lightning_modules.provenance import provenance, utc_now
from lightning_modules.randomness import derive
from lightning_modules.training.run_directory import RunDirectory

SPEC: dict[str, Any] = {
    "name": "scale",
    "version": 1,
    "question": "What do the commands cost where a grid is large?",
    "data": {"kind": "language", "train": 600, "validation": 200, "test": 10, "vocab_size": 300},
    "encoder": {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2},
    "training": {"max_steps": 20, "tokens_per_step": 256},
    "arms": {"mlm": {"objective": {"kind": "masked_lm"}}},
    "measures": ["validation", {"kind": "layer_change", "tokens": 1000}],
}
LOST_NODES = 0.02
"""Share of the jobs that lose their node on the way."""


WATCH = """
import json, os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=2)
_, status, usage = os.wait4(process.pid, 0)
print(json.dumps([status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))
"""
"""Program that starts a command from a small process. Memory that a process had before it starts a command
counts as the command's, so a small process distorts the peak least."""


def spec(runs: int) -> dict[str, Any]:
    """Return a grid of at least so many runs: up to 25 seeds of a base arm and of the points of two axes."""
    seeds = min(25, runs)
    points = max(1, round(((runs / seeds) - 1) ** 0.5))
    ratios = np.linspace(0.05, 0.9, points).round(4).tolist()
    rates = np.geomspace(1e-4, 1e-2, points).round(7).tolist()
    axes = {"objective.masking.ratio": ratios, "training.learning_rate": rates}
    return SPEC | {"grid": {"base": "mlm", "axes": axes}, "seeds": list(range(seeds))}


class Used(NamedTuple):
    """Time and memory that a command used."""

    command: str
    seconds: float
    """Wall time."""
    processor_seconds: float
    megabytes: float
    """Peak of its memory, in MiB."""


class Trained:
    """Trained run from which all other runs are made."""

    def __init__(self, directory: RunDirectory) -> None:
        self.state = directory.state()
        self.log = directory.metrics.read_bytes()
        self.provenance = directory.provenance()
        self.rows = rows.rows(directory.path)

    def finish(self, directory: RunDirectory) -> None:
        """Fill the folder of a planned run as its training and its measures would."""
        noise = np.random.default_rng(derive(int(directory.path.name[-10:], 16), "noise"))
        values = self.rows["value"] * (1 + 0.05 * noise.standard_normal(len(self.rows)))
        directory.checkpoints.mkdir(exist_ok=True)
        directory.last_checkpoint.write_bytes(b"none")
        directory.metrics.write_bytes(self.log)
        write_json(directory.path / "provenance.json", self.provenance)
        write_whole(directory.path / "measures.parquet", sealed(pd.DataFrame(self.rows).assign(value=values)))
        fields = self.state.model_dump(exclude={"state", "checksum", "last_checkpoint_bytes"}, exclude_none=True)
        directory.write_state("done", last_checkpoint_bytes=len(b"none"), **fields)


class Nodes:
    """Nodes of the simulated cluster, which start waiting jobs and end them after some seconds."""

    def __init__(self, folder: Path, trained: Trained, *, jobs_at_once: int, seconds: float, seed: int) -> None:
        self.folder, self.trained = folder, trained
        self.jobs_at_once, self.seconds, self.rng = jobs_at_once, seconds, random.Random(seed)
        self.lost = 0
        """Number of jobs that have lost their node so far."""
        (folder / "arrays").mkdir(parents=True)
        (folder / "queue.txt").write_text("\n")
        self._waiting: dict[tuple[str, int], str] = {}  # reason why each job waits
        self._at_work: dict[tuple[str, int], float] = {}  # time at which each job ends
        self._files: dict[str, list[arrays.JobFiles]] = {}

    def go_on(self) -> None:
        """End the jobs whose time is over, and start waiting ones."""
        self._take_new_arrays()
        self._end_jobs(time.monotonic())
        self._start_jobs(time.monotonic())
        self._write_queue()

    def _take_new_arrays(self) -> None:
        for path in sorted((self.folder / "arrays").iterdir()):
            if path.stem not in self._files:
                self._files[path.stem] = arrays.read(Path(json.loads(path.read_text())["folder"]))
                self._waiting |= {(path.stem, job.number): "None" for job in self._files[path.stem]}

    def _end_jobs(self, moment: float) -> None:
        for job, end in list(self._at_work.items()):
            if end <= moment:
                del self._at_work[job]
                if self.rng.random() < LOST_NODES:
                    self.lost += 1
                    self._waiting[job] = "BeginTime"
                    continue
                files = self._files[job[0]][job[1]]
                for name in files.run_names:
                    self.trained.finish(files.directory(name))

    def _start_jobs(self, moment: float) -> None:
        for job in list(self._waiting)[: self.jobs_at_once - len(self._at_work)]:
            del self._waiting[job]
            self._at_work[job] = moment + self.seconds * (0.5 + self.rng.random())

    def _write_queue(self) -> None:
        jobs = [(job, "RUNNING", "None") for job in self._at_work]
        jobs += [(job, "PENDING", reason) for job, reason in self._waiting.items()]
        lines = [
            pretended_slurm.line(number, element, state, reason, self._name(number))
            for (number, element), state, reason in jobs
        ]
        write_whole(self.folder / "queue.txt", (" ".join(self._files) + "\n" + "".join(lines)).encode())

    def _name(self, number: str) -> str:
        return arrays.job_name(self._files[number][0].folder)


def commands(folder: Path) -> Path:
    """Write the commands of the simulated SLURM into a folder, and return it."""
    folder.mkdir()
    for name in pretended_slurm.COMMANDS:
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{pretended_slurm.__file__}" {name} "$@"\n')
        path.chmod(0o755)
    return folder


def used(
    arguments: list[str], *, log: Path, environment: Mapping[str, str], meanwhile: Callable[[], None] | None = None
) -> Used:
    """Run a command of `ablate` to its end, and return its time and memory.

    Args:
        meanwhile: function that is called again and again until the command ends.
    """
    command = [sys.executable, "-S", "-E", "-c", WATCH, sys.executable, "-m", "ablations.cli", *arguments]
    with log.open("ab") as output:
        begin = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=output, text=True)
        while process.poll() is None:
            if meanwhile:
                meanwhile()
            time.sleep(0.1)
    seconds = time.perf_counter() - begin
    status, processor_seconds, kilobytes = json.loads(process.communicate()[0])
    if status:
        raise click.ClickException(f"ablate {arguments[0]} ended with status {status}; {log} says why.")
    return Used(arguments[0], seconds, processor_seconds, kilobytes / 1024)


def measured(out: Path, *, runs: int, nodes: int, seconds: float) -> Iterator[Used]:
    """Carry out the grid, and yield the time and memory of each command."""
    path, log = out / "scale.yaml", out / "output.txt"
    path.write_text(json.dumps(spec(runs)))
    (out / "place.yaml").write_text("partition: work\n")
    environment = os.environ | {"PATH": f"{commands(out / 'bin')}:{os.environ['PATH']}"}
    environment |= {"PRETENDED_SLURM": str(out / "cluster")}
    where = [str(path), "--out", str(out / "out")]
    used(["run", *where, "--arm", "mlm", "--seed", "0"], log=log, environment=environment)
    [folder] = (out / "out/runs").glob("mlm-s0-*")
    cluster = Nodes(
        out / "cluster", Trained(RunDirectory(folder)), jobs_at_once=4 * nodes, seconds=seconds, seed=0
    )
    yield used(["plan", *where], log=log, environment=environment)
    on_cluster = ["run", *where, "--on", "slurm", "--place", str(out / "place.yaml")]
    yield used(on_cluster, log=log, environment=environment, meanwhile=cluster.go_on)._replace(
        command="run --on slurm"
    )
    if cluster.lost == 0:
        raise click.ClickException("no job lost its node; ask for more runs.")
    for name in ("plan", "status", "report"):
        yield used([name, *where], log=log, environment=environment)._replace(command=f"{name}, all done")


@click.command()
@click.option("--runs", type=click.IntRange(min=50), default=10_000, show_default=True, help="At least so many.")
@click.option("--nodes", type=click.IntRange(min=1), default=64, show_default=True, help="Each with four runs.")
@click.option("--seconds", type=float, default=2.0, show_default=True, help="Of a job, in the mean.")
@click.option(
    "--out", type=click.Path(path_type=Path), default="out/scale", show_default=True, help="A folder that is new."
)
def main(runs: int, nodes: int, seconds: float, out: Path) -> None:
    """Send a large grid to a SLURM that pretends, and time each command."""
    out = out.absolute()
    if out.exists():
        raise click.ClickException(f"{out} exists; delete it, or choose another --out.")
    out.mkdir(parents=True)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("command", "seconds", "CPU time", "MB"):
        table.add_column(name, justify="left" if name == "command" else "right")
    results = []
    for one in measured(out, runs=runs, nodes=nodes, seconds=seconds):
        results.append(one._asdict())
        table.add_row(one.command, f"{one.seconds:.1f}", f"{one.processor_seconds:.1f}", f"{one.megabytes:.0f}")
        write_json(out / "results.json", {"measured": utc_now(), "runs": runs, **provenance(), "results": results})
    Console().print(table)
