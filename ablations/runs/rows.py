"""Rows of measures in the folder of a run, and the measures that it lacks. No torch.

Experiments share runs, and may ask for the same measure with other settings. So `measures.parquet` in a run's
folder has columns that the table of results lacks: the key of the settings of each row, and the digests of
the sample and of the files that it was computed from. An experiment takes the rows that match its own
settings. `predictions.parquet` has predictions for single examples, if they are requested. `refused.json`
says why measures could not be computed: {key: sentence}.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa

from ablations.catalogue import Measure, RunMeasure, card
from ablations.measures.settings import MeasureSettings
from ablations.results import COLUMNS, PREDICTION_COLUMNS, read_sealed, sealed
from ablations.tasks.datasets import files_now
from ablations.tasks.settings import PredictingSettings
from lightning_modules.files import may_exist, read_json, write_json, write_whole
from lightning_modules.training.run_directory import RunDirectory

OWN_COLUMNS = ["key", "sample", "files"]
"""Columns of a run's rows that the table of results does not have."""

ROW_COLUMNS = {
    **{name: kind for name, kind in COLUMNS.items() if name not in ("experiment", "run_id", "arm", "seed")},
    **dict.fromkeys(OWN_COLUMNS, "string"),
}
"""Columns of a run's rows, and their pandas types. Columns that a measure does not fill are null."""

PREDICTIONS = "predictions.parquet"

ANSWERED = ("accuracy", "score")
"""Metrics of rows that have predictions if these are requested. A measure without such rows has none to keep, as
`minimal_pairs` for an objective without a probability of a sentence."""

NO_ROWS = pd.DataFrame(columns=list(ROW_COLUMNS)).astype(ROW_COLUMNS)


def key(settings: Measure) -> str:
    """Return the key of a measure: ten hex digits for its settings, the version of its kind, and the source
    of a plugin.

    Whether predictions are kept does not enter, as it changes no number.
    """
    source = [] if settings.plugin is None else [settings.plugin.sha256]
    left_out = {"predictions"} if isinstance(settings, PredictingSettings) else None
    decisions = [card(settings.kind).version, settings.model_dump(mode="json", exclude=left_out), *source]
    text = json.dumps(decisions, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def name_for_users(settings: Measure) -> str:
    """Return the name of a measure for users: its kind, and its task if it is of one, as in ``baselines
    mrpc``."""
    return " ".join([settings.kind, *(getattr(settings, "tasks", None) or ())])


MEASURES_AGAIN = "`ablate run` measures the run again"
"""Remedy in errors about a damaged file of rows."""


def rows(run_dir: Path) -> pd.DataFrame:
    """Return a run's rows with `ROW_COLUMNS`, whichever measures wrote them; empty before the first measure.

    Raises:
        ResultsError: their file is damaged, or has the rows of another run.
    """
    return rows_of_all([run_dir]).drop(columns="run")


def rows_of_all(run_dirs: Sequence[Path]) -> pd.DataFrame:
    """Return the rows of several runs, in their order, with `ROW_COLUMNS` and `run`, the index of the run's
    folder.

    Raises:
        ResultsError: a file is damaged, or has the rows of another run.
    """
    # By schema: a column without values may be of any type.
    tables: dict[Hashable, list[pa.Table]] = defaultdict(list)
    for i, run_dir in enumerate(run_dirs):
        path = run_dir / "measures.parquet"
        if may_exist(path):
            arrow = read_sealed(path, remedy=MEASURES_AGAIN, directory=RunDirectory(run_dir))
            arrow = arrow.append_column("run", pa.array([i] * len(arrow), pa.int64()))
            tables[*arrow.column_names, *arrow.schema.types].append(arrow)
    if not tables:
        return NO_ROWS.assign(run=pd.Series(dtype="int64"))
    frames = [pa.concat_tables(alike).to_pandas() for alike in tables.values()]
    frames = [frame.reindex(columns=[*ROW_COLUMNS, "run"]).astype(ROW_COLUMNS) for frame in frames]
    return pd.concat(frames).sort_values("run", kind="stable", ignore_index=True)


def of_these(table: pd.DataFrame, measures: Mapping[str, str | None]) -> pd.DataFrame:
    """Return the rows of the given measures, without those that were computed from files with other content.

    Args:
        measures: digest of each measure's files (`files_now`), by its key. If the digest is unknown, or was
            unknown when the row was computed, the row stays.
    """
    current_digest = table["key"].map(measures)
    is_current = current_digest.isna() | table["files"].isna() | (table["files"] == current_digest)
    return table[table["key"].isin(measures) & is_current]


class Requested(NamedTuple):
    """Requested measure, with the key and the digest of files that its rows must have."""

    settings: RunMeasure
    key: str
    files: str | None
    """Digest of the files, as from `files_now`."""


def requested(measures: Iterable[RunMeasure], data_root: Path) -> tuple[Requested, ...]:
    """Return measures with their keys and digests of files. All runs of an arm can share the result."""
    return tuple(Requested(settings, key(settings), files_now(settings, data_root)) for settings in measures)


def checkpoints(run_dir: Path, settings: MeasureSettings) -> dict[int | None, Path]:
    """Return the paths of the checkpoints that a measure reads, by step. The step is None if only the last
    one is read."""
    directory = RunDirectory(run_dir)
    last: dict[int | None, Path] = {None: directory.last_checkpoint}
    if settings.checkpoints == "last":
        return last
    kept: list[tuple[int | None, Path]] = [*directory.kept_checkpoints().items()]
    return dict(kept) or last


def missing_measures(run_dir: Path, measures: Sequence[RunMeasure], *, data_root: Path) -> list[RunMeasure]:
    """Return the measures of a run that lack rows, for these settings and files, at a checkpoint that they
    read.

    Args:
        measures: measures that suit the run, as from `catalogue.for_run`.
    """
    return missing_of(run_dir, requested(measures, data_root))


def missing_of(
    run_dir: Path, measures: Sequence[Requested], *, measured: "Sequence[MeasuredStep] | None" = None
) -> list[RunMeasure]:
    """Return the measures that lack rows, as `missing_measures` does, for measures with known keys and digests.

    Args:
        measured: measures and steps with rows; None if the run's file must be read.
    """
    measured = _measured(run_dir) if measured is None else measured
    return [request.settings for request in measures if _open(run_dir, request, measured)]


def open_checkpoints(
    run_dir: Path, settings: RunMeasure, *, data_root: Path, recompute: bool = False
) -> dict[int | None, Path]:
    """Return the checkpoints at which a measure lacks rows for its settings and files, by step; all with
    `recompute`."""
    if recompute:
        return checkpoints(run_dir, settings)
    (request,) = requested([settings], data_root)
    return _open(run_dir, request, _measured(run_dir))


class MeasuredStep(NamedTuple):
    """Measure that has rows at a step."""

    key: str
    step: int | None
    files: str | None = None
    measure: str | None = None
    sample: str | None = None


def _measured(run_dir: Path, name: str = "measures.parquet") -> list[MeasuredStep]:
    """Return the measures and steps with rows in a file of the run, each once, much faster than `rows`. Raise a
    ResultsError if the file is damaged."""
    path = run_dir / name
    if not may_exist(path):
        return []
    table = read_sealed(path, remedy=MEASURES_AGAIN, columns=MeasuredStep._fields, directory=RunDirectory(run_dir))
    columns = (table[name].to_pylist() for name in table.column_names)
    return [
        MeasuredStep(**dict(zip(table.column_names, kind, strict=True)))
        for kind in set(zip(*columns, strict=True))
    ]


def measured_of(rows: pd.DataFrame) -> Iterator[tuple[int, MeasuredStep]]:
    """Yield the measures and steps in rows of `rows_of_all`, each once, with the index of the run's folder."""
    names = ["run", *MeasuredStep._fields]
    kinds = rows[names].drop_duplicates().astype(object)
    for run, *kind in kinds.where(kinds.notna(), None).itertuples(index=False):
        yield run, MeasuredStep(*kind)


def _open(run_dir: Path, request: Requested, measured: Iterable[MeasuredStep]) -> dict[int | None, Path]:
    settings = request.settings
    steps = {
        kind.step
        for kind in measured
        if kind.key == request.key and (None in (request.files, kind.files) or kind.files == request.files)
    }
    if steps and isinstance(settings, PredictingSettings) and settings.predictions:
        predicted = {kind.step for kind in _measured(run_dir, PREDICTIONS) if kind.key == request.key}
        if unpredicted := steps - predicted:
            table = rows(run_dir)
            answered = table[(table["key"] == request.key) & table["metric"].isin(ANSWERED)]
            steps -= unpredicted & set(answered["step"])
    if steps and settings.checkpoints == "last":
        return {}
    if steps and RunDirectory(run_dir).state().step in steps:
        steps.add(None)
    return {step: path for step, path in checkpoints(run_dir, settings).items() if step not in steps}


def measured_keys(run_dirs: Iterable[Path]) -> set[str]:
    """Return the keys of the measures that have rows in any of these runs.

    Raises:
        ResultsError: the file of a run is damaged.
    """
    return {measured.key for run_dir in run_dirs for measured in _measured(run_dir)}


def progress(directory: RunDirectory) -> int:
    """Return a number that grows whenever the run is saved at a later step or gets another measure."""
    measured = rows(directory.path)[["key", "step"]].drop_duplicates()
    return (directory.state().saved_step or 0) + directory.is_trained() + len(measured)


def put(run_dir: Path, new: pd.DataFrame) -> None:
    """Write the rows of one measure at one step into a run's file, in place of its earlier ones; whole or not
    at all."""
    table = instead(rows(run_dir), new)
    write_whole(run_dir / "measures.parquet", sealed(table, run_id=RunDirectory(run_dir).run_id))


def put_predictions(run_dir: Path, new: pd.DataFrame) -> None:
    """Write the predictions of one measure at one step into a run's file, in place of its earlier ones; whole
    or not at all."""
    table = instead(predictions(run_dir), new)
    write_whole(run_dir / PREDICTIONS, sealed_predictions(table, run_id=RunDirectory(run_dir).run_id))


def sealed_predictions(table: pd.DataFrame, *, run_id: str | None = None) -> bytes:
    """Return the bytes of a file of predictions: parquet in which a changed byte is noticed. `run_id` is as in
    `sealed`."""
    # Texts repeat with each metric and step: a large dictionary page holds each once.
    return sealed(table, run_id=run_id, compression="zstd", dictionary_pagesize_limit=2**26)


def predictions(run_dir: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the predictions of a run, with the columns PREDICTION_COLUMNS or some of them; empty where none are
    kept.

    Raises:
        ResultsError: the file is damaged, or has the predictions of another run.
    """
    names = list(PREDICTION_COLUMNS if columns is None else columns)
    path = run_dir / PREDICTIONS
    types = {name: PREDICTION_COLUMNS[name] for name in names}
    if not may_exist(path):
        return pd.DataFrame(columns=names).astype(types)
    table = read_sealed(path, remedy=MEASURES_AGAIN, columns=names, directory=RunDirectory(run_dir))
    return table.to_pandas().astype(types)


def instead(before: pd.DataFrame, new: pd.DataFrame, by: Sequence[str] = ("key", "step")) -> pd.DataFrame:
    """Return the earlier rows that differ from all new rows in these columns, and then the new rows."""
    if before.empty:
        return new
    earlier, later = (pd.MultiIndex.from_frame(table[list(by)]) for table in (before, new))
    return pd.concat([before[~earlier.isin(later)], new], ignore_index=True)


def refusals(run_dir: Path) -> dict[str, str]:
    """Return why measures could not be computed when they were last tried, by key."""
    path = run_dir / "refused.json"
    return dict(read_json(path)) if may_exist(path) else {}


def note_refusals(run_dir: Path, refused: Mapping[str, str], *, tried: Iterable[str]) -> None:
    """Record why measures could not be computed, by key. Earlier reasons of all measures that were tried are
    removed."""
    before, names_tried = refusals(run_dir), set(tried)
    after = {name: why for name, why in before.items() if name not in names_tried} | dict(refused)
    if after != before:
        write_json(run_dir / "refused.json", after)
