"""Estimated costs of runs: tokens, operations, and seconds on this machine. No torch.

Estimates of seconds use runs that ended on this machine, and training steps that `ablate doctor` timed.

OUT/calibration.json: {"version": 4, "machines": {processor and cores: {
"runs": {kind: [{"threads", "rate", "work", "other"}, ...]},
"steps": {precision: [{"threads", "width", "rate"}, ...]}}}}.
A rate is in useful operations of training per second. `other` are the seconds of a run outside training: its
start, validations and measures. `work` says which these were. `threads` is null for work on a GPU; such
entries take precedence over those of CPUs.
"""

import heapq
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict  # pydantic takes typing's only from Python 3.12 on

from ablations.catalogue import Measure
from ablations.runs.identity import PlannedRun
from lightning_modules.config import RunSettings, operations_per_token
from lightning_modules.files import locked, make_folder, read_file, write_json
from lightning_modules.provenance import available_cores, processor


def tokens(run: RunSettings) -> int:
    """Return an upper bound of the source tokens of a run, padding not counted."""
    return run.training.max_steps * run.training.tokens_per_step


def flops(run: RunSettings) -> float:
    """Return the useful operations of training; an upper bound for skip-gram (see `operations_per_token`)."""
    return operations_per_token(run) * tokens(run)


def longest_first(items: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Return the runs, each identity once, with the longest training first, so that no long run starts
    last."""
    return list({item.run_id: item for item in sorted(items, key=lambda item: -flops(item.run.settings))}.values())


def evaluations(run: RunSettings) -> int:
    """Return the number of validations while a run is trained."""
    return len(run.training.validated_steps)


def measured_checkpoints(settings: Measure, run: RunSettings) -> int:
    """Return how many checkpoints a measure reads: the last one, or all that are kept of step 0, the powers
    of two and the last step."""
    return 1 if settings.checkpoints == "last" else len(run.training.kept_steps)


VERSION: Literal[4] = 4
"""Version of the file. It is raised if rates get another meaning or training becomes faster; older files are
ignored."""

KEPT = 9
"""Number of runs of a kind that are kept, the newest ones."""

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
    """Record of how long work takes on this machine, kept in an output root."""

    def __init__(self, out: Path) -> None:
        self._path = out / "calibration.json"
        self._read()

    def _read(self) -> None:
        try:
            content = TypeAdapter(_File).validate_json(read_file(self._path))
        except (OSError, ValueError):  # a damaged or older file is ignored
            content = _File(version=VERSION, machines={})
        self._machines = content["machines"]
        self._of_this_machine = self._machines.setdefault(_this_machine(), {"runs": {}, "steps": {}})

    def training_seconds(self, run: RunSettings, *, threads: int) -> float | None:
        """Return the estimated seconds of training; None if unknown. `threads` counts those of all processes
        of the run.

        The estimate comes from runs of the same kind. Without such runs it comes from the steps that were
        timed at the nearest width, whatever the objective. If only other numbers of threads were timed, speed
        is assumed to grow in proportion.
        """
        if run.training.max_steps == 0:
            return 0.0
        rate = _rate(self._of_this_machine["runs"].get(_kind(run), []), threads) or self._steps_rate(run, threads)
        return flops(run) / rate if rate else None

    def _steps_rate(self, run: RunSettings, threads: int) -> float | None:
        timed = self._of_this_machine["steps"].get(run.training.precision, [])
        distances = {entry["width"]: abs(math.log(entry["width"] / run.encoder.hidden_size)) for entry in timed}
        nearest = min(distances, key=distances.__getitem__, default=None)
        return _rate([entry for entry in timed if entry["width"] == nearest], threads)

    def other_seconds(self, item: PlannedRun, measures: Sequence[Measure]) -> float | None:
        """Return the estimated seconds of a run outside training: its start, validations and measures.

        The estimate is the median of runs of the same kind on the same text with the same measures; None
        before such a run has ended here.
        """
        work = _other_work(item, measures)
        seconds = [
            entry["other"]
            for entry in self._of_this_machine["runs"].get(_kind(item.run.settings), [])
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
        """Record the times of a run that was trained and measured in one go; `threads` is None on a GPU."""
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
            runs = self._of_this_machine["runs"]
            runs[_kind(run)] = [*runs.get(_kind(run), []), entry][-KEPT:]

    def note_steps(self, rates: Iterable[tuple[str, int, float]], *, threads: int | None) -> None:
        """Record timed steps, each as (precision, width, rate). Older ones of the same precision and
        `threads` (None on a GPU) are replaced."""
        fresh: dict[str, list[_Steps]] = {}
        for precision, width, rate in rates:
            fresh.setdefault(precision, []).append({"threads": threads, "width": width, "rate": rate})
        with self._rewriting():
            steps = self._of_this_machine["steps"]
            for precision, entries in fresh.items():
                others = [entry for entry in steps.get(precision, []) if entry["threads"] != threads]
                steps[precision] = others + entries

    @contextmanager
    def _rewriting(self) -> Iterator[None]:
        """Write what the block changes into the file. The file is locked and read first, so changes by other
        processes stay."""
        make_folder(self._path.parent)
        with locked(self._path.with_name(".calibration.lock")):
            self._read()
            yield
            write_json(self._path, {"version": VERSION, "machines": self._machines})


def makespan(seconds: Sequence[float], *, slots: int) -> float:
    """Return the seconds until all runs have ended, if the longest starts first and each takes the first free
    slot."""
    free = [0.0] * slots
    for duration in sorted(seconds, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + duration)
    return max(free)


def _rate(entries: Sequence[_Run] | Sequence[_Steps], threads: int) -> float | None:
    """Return the median rate; None without entries.

    Entries of a GPU come first, then those with this number of threads, then all others, scaled to this
    number.
    """
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
    """Return the work outside training: the text, the number of validations, and each measure with its number
    of checkpoints."""
    run = item.run.settings
    measured = [[settings.model_dump_json(), measured_checkpoints(settings, run)] for settings in measures]
    return [item.tokens, evaluations(run), sorted(measured)]
