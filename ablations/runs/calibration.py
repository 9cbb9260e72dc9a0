"""Costs of runs before they run: tokens, operations, and seconds on this machine. No torch.

Seconds come from runs that ended here and from timed steps.

OUT/calibration.json: {"version": 4, "machines": {processor and cores: {
"runs": {kind: [{"threads", "rate", "work", "other"}, ...]},
"steps": {precision: [{"threads", "width", "rate"}, ...]}}}}.
A rate is useful operations of training a second. `other` are the seconds of a run that were no training: its
start, validations and measures; `work` says which these were. `threads` is null where a GPU did the work; such
entries come before those of CPUs. `doctor` times the steps.
"""

import heapq
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict  # pydantic reads that of typing from Python 3.12 on

from ablations.catalogue import Measure
from ablations.runs.identity import PlannedRun
from lightning_modules.config import RunSettings, operations_per_token
from lightning_modules.files import locked, make_folder, write_json
from lightning_modules.provenance import available_cores, processor


def tokens(run: RunSettings) -> int:
    """Return the real source tokens of a run, at most."""
    return run.training.max_steps * run.training.tokens_per_step


def flops(run: RunSettings) -> float:
    """Return the useful operations of training; of skip-gram, at most (see `operations_per_token`)."""
    return operations_per_token(run) * tokens(run)


def longest_first(items: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Return the runs, the longest training first and runs of one identity once. No slot then waits in the end for
    a run that began late."""
    return list({item.run_id: item for item in sorted(items, key=lambda item: -flops(item.run.settings))}.values())


def evaluations(run: RunSettings) -> int:
    """Return how often a run is evaluated while it trains."""
    return -(-run.training.max_steps // run.training.validate_every)


def measured_checkpoints(settings: Measure, run: RunSettings) -> int:
    """Return how many checkpoints a measure reads: the last, or 0, the powers of two and the last, as far as they
    are kept."""
    steps, keep = run.training.max_steps, run.training.keep_checkpoints
    if settings.checkpoints == "last":
        return 1
    saved = len({0, steps} | {2**i for i in range(steps.bit_length())})
    return saved if keep == "all" else min(saved, keep)


VERSION: Literal[4] = 4
"""Raised when rates come to mean something else or training becomes faster; older files count as none."""

KEPT = 9
"""Newest runs of a kind that count."""

Threads = Annotated[int, Field(ge=1)] | None


class _Run(TypedDict):
    threads: Threads
    rate: float
    work: list[Any]
    other: float


class _Steps(TypedDict):
    threads: Threads
    width: Annotated[int, Field(ge=1)]
    rate: Annotated[float, Field(gt=0)]


class _Machine(TypedDict):
    runs: dict[str, list[_Run]]
    steps: dict[str, list[_Steps]]


class _File(TypedDict):
    version: Literal[4]
    machines: dict[str, _Machine]


class Calibration:
    """The times that an output root keeps of this machine."""

    def __init__(self, out: Path) -> None:
        self._path = out / "calibration.json"
        self._read()

    def _read(self) -> None:
        try:
            content = TypeAdapter(_File).validate_json(self._path.read_bytes())
        except (OSError, ValueError):  # damaged or older is as good as none
            content = _File(version=VERSION, machines={})
        self._machines = content["machines"]
        self._mine = self._machines.setdefault(_this_machine(), {"runs": {}, "steps": {}})

    def training_seconds(self, run: RunSettings, *, threads: int) -> float | None:
        """Estimate the seconds of training with so many threads (over all its processes); None if unknown.

        The estimate comes from runs of the same kind; else from the steps that were timed at the nearest width,
        whatever the objective. Where only other numbers of threads were timed, speed is taken to grow with them.
        """
        if run.training.max_steps == 0:
            return 0.0
        rate = _rate(self._mine["runs"].get(_kind(run), []), threads) or self._steps_rate(run, threads)
        return flops(run) / rate if rate else None

    def _steps_rate(self, run: RunSettings, threads: int) -> float | None:
        timed = self._mine["steps"].get(run.training.precision, [])
        distances = {entry["width"]: abs(math.log(entry["width"] / run.encoder.hidden_size)) for entry in timed}
        nearest = min(distances, key=distances.__getitem__, default=None)
        return _rate([entry for entry in timed if entry["width"] == nearest], threads)

    def other_seconds(self, item: PlannedRun, measures: Sequence[Measure]) -> float | None:
        """Estimate the seconds that a run takes besides its steps: its start, validations and measures.

        The estimate is the median of runs of the same kind on the same text for which the same measures were
        asked; None before one of them has ended here.
        """
        work = _other_work(item, measures)
        seconds = [
            entry["other"]
            for entry in self._mine["runs"].get(_kind(item.run.settings), [])
            if entry["work"] == work
        ]
        return statistics.median(seconds) if seconds else None

    def note_run(
        self,
        item: PlannedRun,
        measures: Sequence[Measure],
        *,
        threads: int | None,
        training_seconds: float,
        wall_seconds: float,
    ) -> None:
        """Remember how long a run took that was trained and measured in one go; `threads` is None on a GPU."""
        run = item.run.settings
        steps = run.training.max_steps
        if steps and training_seconds <= 0:
            return
        entry: _Run = {
            "threads": threads,
            "rate": flops(run) / training_seconds if steps else 0.0,
            "work": _other_work(item, measures),
            "other": max(0.0, wall_seconds - training_seconds),
        }
        with self._rewriting():
            runs = self._mine["runs"]
            runs[_kind(run)] = [*runs.get(_kind(run), []), entry][-KEPT:]

    def note_steps(self, rates: Iterable[tuple[str, int, float]], *, threads: int | None) -> None:
        """Remember precision, width and rate of timed steps in place of older ones for so many threads (None on a
        GPU)."""
        fresh: dict[str, list[_Steps]] = {}
        for precision, width, rate in rates:
            fresh.setdefault(precision, []).append({"threads": threads, "width": width, "rate": rate})
        with self._rewriting():
            steps = self._mine["steps"]
            for precision, entries in fresh.items():
                others = [entry for entry in steps.get(precision, []) if entry["threads"] != threads]
                steps[precision] = others + entries

    @contextmanager
    def _rewriting(self) -> Iterator[None]:
        """Write what the block changes, beside what other processes have written since."""
        make_folder(self._path.parent)
        with locked(self._path.with_name(".calibration.lock")):
            self._read()
            yield
            write_json(self._path, {"version": VERSION, "machines": self._machines})


def makespan(seconds: Sequence[float], *, slots: int) -> float:
    """Return the seconds until the last of these runs ends, the longest first, each on the first free slot."""
    free = [0.0] * slots
    for one in sorted(seconds, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + one)
    return max(free)


def _rate(entries: Sequence[_Run] | Sequence[_Steps], threads: int) -> float | None:
    """Return the median rate of a GPU if there is one, else of entries with so many threads, else of all, each
    scaled."""
    timed = [(entry["threads"], entry["rate"]) for entry in entries]
    rates = [rate for by, rate in timed if by is None]
    rates = rates or [rate for by, rate in timed if by == threads]
    rates = rates or [rate * threads / by for by, rate in timed if by]
    return statistics.median(rates) if rates else None


def _this_machine() -> str:
    return f"{processor()}, {available_cores()} cores"


def _kind(run: RunSettings) -> str:
    encoder, training = run.encoder, run.training
    learns = run.objective.kind if training.max_steps else "untrained"
    model: list[Any] = [learns, f"{encoder.num_hidden_layers}x{encoder.hidden_size}"]
    text: list[Any] = [run.data.vocab_size, run.data.max_length, training.tokens_per_step, training.precision]
    if training.compile:
        text.append("compiled")
    return "/".join(map(str, model + text))


def _other_work(item: PlannedRun, measures: Sequence[Measure]) -> list[Any]:
    """Return the work besides the steps: the text, how many validations, and each measure at how many
    checkpoints."""
    run = item.run.settings
    measured = [[settings.model_dump_json(), measured_checkpoints(settings, run)] for settings in measures]
    return [item.tokens, evaluations(run), sorted(measured)]
