"""How long runs take on this machine, from runs that ended here and from a short calibration. No torch.

OUT/calibration.json: {"version": 3, "machines": {processor and cores: {
"runs": {kind: [{"threads", "rate", "asked", "other"}, ...]},
"reference": {what: [{"threads", "width", "rate"}, ...]}}}}.
The rate of a run is useful operations a second; `other` are the seconds that were no training: setting the run up,
validations and measures (what of them was `asked`). `threads` is null where a GPU did the work; such entries come
before those of CPUs. `timing` says what the reference rates mean.
"""

import heapq
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict  # pydantic reads that of typing from Python 3.12 on

from ablations.catalogue import Measure
from ablations.runs import cost
from ablations.runs.cost import ValidationText
from lightning_modules.config import Data, RunSettings
from lightning_modules.files import locked, make_folder, write_json
from lightning_modules.provenance import available_cores, processor

VERSION: Literal[3] = 3
"""Raised when rates come to mean something else or training becomes faster; older files count as none."""

TIMED = ("masked_lm", "causal_lm", "translation")
"""Objectives that `timing` times at each width in each precision."""
COMPARED = ("mixture", "replaced_token", "permutation_lm", "naive_bidirectional_lm", "skip_gram")
"""The others are timed at COMPARED_WIDTH in fp32 alone, and taken to be as much slower than NEAREST elsewhere."""
COMPARED_WIDTH, NEAREST = 64, "masked_lm"

TIMED_BESIDES = (
    *("evaluation", "translation"),
    *("layer_change", "token_information", "neighbours", "geometry", "influence"),
)
"""What `timing` times besides training."""

KEPT = 9
"""Newest runs of a kind that count."""

Threads = Annotated[int, Field(ge=1)] | None


class Estimate(NamedTuple):
    """How long something takes besides the steps of training."""

    seconds: float
    left_out: tuple[str, ...] = ()
    """Kinds of measures of which nothing is known; not in the seconds."""


class _Run(TypedDict):
    threads: Threads
    rate: float
    asked: list[Any]
    other: float


class _Reference(TypedDict):
    threads: Threads
    width: Annotated[int, Field(ge=1)]
    rate: Annotated[float, Field(gt=0)]


class _Machine(TypedDict):
    runs: dict[str, list[_Run]]
    reference: dict[str, list[_Reference]]


class _File(TypedDict):
    version: Literal[3]
    machines: dict[str, _Machine]


class Calibration:
    """What an output root knows of its machine."""

    def __init__(self, out: Path) -> None:
        self._path = out / "calibration.json"
        self._read()

    def _read(self) -> None:
        try:
            told = TypeAdapter(_File).validate_json(self._path.read_bytes())
        except (OSError, ValueError):  # damaged or older is as good as none
            told = _File(version=VERSION, machines={})
        self._machines = told["machines"]
        self._mine = self._machines.setdefault(_this_machine(), {"runs": {}, "reference": {}})

    def training_seconds(self, run: RunSettings, *, threads: int) -> float | None:
        """Estimated seconds of training with so many threads (over all its processes); None if unknown.

        From runs of the same kind; else from the calibration, between its widths. Where only other numbers of
        threads were timed, speed is taken to grow with them.
        """
        if run.training.max_steps == 0:
            return 0.0
        rate = _rate(self._mine["runs"].get(_kind(run), []), threads) or self._training_rate(run, threads)
        return cost.flops(run) / rate if rate else None

    def _training_rate(self, run: RunSettings, threads: int) -> float | None:
        def timed(objective: str, precision: str, width: int) -> float | None:
            return self._reference_rate(f"training/{objective}/{precision}", width, threads)

        objective, precision, width = run.objective.kind, run.training.precision, run.encoder.hidden_size
        if objective in TIMED:
            return timed(objective, precision, width)
        own, nearest = (timed(one, "32-true", COMPARED_WIDTH) for one in (objective, NEAREST))
        slower = own / nearest if own and nearest else 1.0
        rate = timed(NEAREST, precision, width)
        return slower * rate if rate else None

    def around_steps(
        self,
        run: RunSettings,
        measures: Sequence[Measure],
        *,
        asked: Sequence[Measure],
        threads: int,
        validation: ValidationText,
    ) -> Estimate:
        """Of what a run takes besides its steps: its setting up, evaluations and measures.

        From runs of the same kind that were asked for the same; else from the calibration, between its widths.

        Args:
            measures: those that are computed from this run.
            asked: all that the spec asks for.
        """
        known = [
            entry["other"]
            for entry in self._mine["runs"].get(_kind(run), [])
            if entry["asked"] == _asked(run, asked, validation)
        ]
        if known:
            return Estimate(statistics.median(known))
        evaluations = self._seconds(cost.training_work(run, validation=validation), run, threads)
        measured = self.measuring(run, measures, threads=threads, validation=validation)
        return measured._replace(seconds=self._seconds_of("other/set_up") + evaluations + measured.seconds)

    def measuring(
        self, run: RunSettings, measures: Sequence[Measure], *, threads: int, validation: ValidationText
    ) -> Estimate:
        """Of the measures of a run that is trained, from the calibration, between its widths."""
        work = cost.measuring_work(run, measures, validation=validation)
        unknown = [settings.kind for settings in measures if not self._knows(cost.rate_of(settings))]
        return Estimate(self._seconds(work, run, threads), tuple(dict.fromkeys(unknown)))

    def comparing_seconds(self, run: RunSettings, work: float, *, threads: int) -> float | None:
        """Of the distances of runs like this one to others, so much `cost.distance_work` in all; None if
        unknown."""
        rate = self._reference_rate("other/layer_change", run.encoder.hidden_size, threads)
        return work / rate if rate else None

    def _seconds_of(self, what: str) -> float:
        """Of what takes as long whatever is done; 0 if unknown."""
        rates = [entry["rate"] for entry in self._mine["reference"].get(what, [])]
        return 1 / statistics.median(rates) if rates else 0.0

    def _knows(self, rate: str | None) -> bool:
        return f"other/{rate}" in self._mine["reference"]

    def _seconds(self, work: Mapping[str, float], run: RunSettings, threads: int) -> float:
        """Of work by rate, that of unknown rates left out."""
        rates = {what: self._reference_rate(f"other/{what}", run.encoder.hidden_size, threads) for what in work}
        return sum(amount / rate for what, amount in work.items() if (rate := rates[what]))

    def start_and_end_seconds(self) -> float:
        """Estimated seconds that `ablate run` takes before its first run, the text left out, and after its last; 0
        if unknown."""
        return self._seconds_of("other/start_and_end")

    def text_seconds(self, data: Data) -> float:
        """Estimated seconds of making text of the built-in language and cutting it into tokens; 0 if unknown, as
        it is of text from elsewhere."""
        rate = self._reference_rate("other/text", 1, available_cores())
        if rate is None or data.kind != "language":
            return 0.0
        return (data.train + data.validation + data.test) / rate

    def note_run(
        self,
        run: RunSettings,
        measures: Sequence[Measure],
        *,
        threads: int | None,
        validation: ValidationText,
        training_seconds: float,
        wall_seconds: float,
    ) -> None:
        """Remember how long a run took that was trained and measured in one go; `threads` is None on a GPU."""
        steps = run.training.max_steps
        if steps and training_seconds <= 0:
            return
        rate = cost.flops(run) / training_seconds if steps else 0.0
        entry: _Run = {
            "threads": threads,
            "rate": rate,
            "asked": _asked(run, measures, validation),
            "other": max(0.0, wall_seconds - training_seconds),
        }
        with self._rewriting():
            runs = self._mine["runs"]
            runs[_kind(run)] = [*runs.get(_kind(run), []), entry][-KEPT:]

    def note_reference(self, rates: Iterable[tuple[str, int, float]], *, threads: int | None) -> None:
        """Remember the rates of `doctor.reference_rates` in place of older ones for so many threads (None on a
        GPU)."""
        fresh: dict[str, list[_Reference]] = {}
        for what, width, rate in rates:
            fresh.setdefault(what, []).append({"threads": threads, "width": width, "rate": rate})
        with self._rewriting():
            reference = self._mine["reference"]
            for what, entries in fresh.items():
                others = [entry for entry in reference.get(what, []) if entry["threads"] != threads]
                reference[what] = others + entries

    def _reference_rate(self, what: str, width: int, threads: int) -> float | None:
        entries = self._mine["reference"].get(what, [])
        known = [
            (math.log(timed), math.log(rate))
            for timed in sorted({entry["width"] for entry in entries})
            if (rate := _rate([entry for entry in entries if entry["width"] == timed], threads))
        ]
        return math.exp(_between(known, math.log(width))) if known else None

    @contextmanager
    def _rewriting(self) -> Iterator[None]:
        """What the block changes is written, beside what other processes have written since."""
        make_folder(self._path.parent)
        with locked(self._path.with_name(".calibration.lock")):
            self._read()
            yield
            write_json(self._path, {"version": VERSION, "machines": self._machines})


def makespan(seconds: Sequence[float], *, slots: int) -> float:
    """Seconds until the last of these runs ends, the longest first, each on the first free slot."""
    free = [0.0] * slots
    for one in sorted(seconds, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + one)
    return max(free)


def _rate(entries: Sequence[_Run] | Sequence[_Reference], threads: int) -> float | None:
    """Median rate of a GPU if there is one, else of entries with so many threads, else of all, each scaled."""
    told = [(entry["threads"], entry["rate"]) for entry in entries]
    rates = [rate for known, rate in told if known is None]
    rates = rates or [rate for known, rate in told if known == threads]
    rates = rates or [rate * threads / known for known, rate in told if known]
    return statistics.median(rates) if rates else None


def _between(points: list[tuple[float, float]], x: float) -> float:
    """Linear between the points, constant beyond them."""
    before = [point for point in points if point[0] <= x]
    after = [point for point in points if point[0] > x]
    if not before or not after:
        return (before[-1] if before else after[0])[1]
    (x0, y0), (x1, y1) = before[-1], after[0]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


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


def _asked(run: RunSettings, measures: Sequence[Measure], validation: ValidationText) -> list[Any]:
    """What is done besides the steps: how many validations of how many tokens, and each measure at how many
    checkpoints."""
    measured = [[settings.model_dump_json(), cost.measured_checkpoints(settings, run)] for settings in measures]
    return [cost.evaluations(run), validation.tokens, sorted(measured)]
