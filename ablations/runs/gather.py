"""Table of results of an experiment, made from the rows and the logs of its runs. No torch.

The rows of `learning` and `corruption` come from the logs.

Files of unchanged runs are not read again, as their rows are in the last table: OUT/<experiment>/gathered.json
has the version of each file that was read. A file is unchanged as long as its inode, size and times are those of
the record. A program can set back the time of the last write, but not the time at which the file's entry changed;
so both count. A copied folder has other times, and is read again.
"""

import functools
import hashlib
import itertools
import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic_core import from_json

import ablations
import lightning_modules
from ablations import results
from ablations.catalogue import CARDS
from ablations.errors import ResultsError
from ablations.runs import measure_pairs
from ablations.runs import rows as run_rows
from ablations.runs.identity import PlannedRun
from ablations.runs.records import Record
from ablations.runs.rows import MeasuredStep
from lightning_modules.data.tokenizer import FIRST_WORD_ID
from lightning_modules.files import locked, make_folder, read_file
from lightning_modules.training.run_directory import RunDirectory

Row = dict[str, Any]

RECORD = "gathered.json"
"""Name of the record, in the folder of an experiment's results."""

READ_FILES = ("measures.parquet", "metrics.jsonl", "state.json", "provenance.json", "run.json")
"""Files of a run that must be whole, and from which its rows in the table of results are made."""

SETTLED_SECONDS = 2.0
"""Smallest age at which the times of a file identify its version. Some file systems round times to one or two
seconds, so a file that was just written could change again without another time."""

MISSING = "missing"

Version = str | None
"""Version of a file, MISSING without a file, None if the file is too young for its version to be known."""

TREATED = ("hidden", "masked", "random", "kept")
"""Metrics of `corruption` in the log, which are shares of the tokens that could be hidden."""


def learning(log: Sequence[Row], *, floor: float) -> Iterator[Row]:
    """Yield rows with the loss and the gain at every validation during training, in nats. The gain is the
    floor minus the loss.

    Args:
        floor: chance level: the loss of a guess without context on the same predictions.
    """
    for line in log:
        if (loss := line.get("val/loss")) is None:
            continue
        row = {"measure": "learning", "step": line["step"], "unit": "nats", "n": line["val/predicted"]}
        yield row | {"metric": "loss", "value": loss, "floor": floor}
        yield row | {"metric": "gain", "value": floor - loss, "floor": 0.0}


def corruption(log: Sequence[Row], *, vocab_size: int, random_differs: bool) -> Iterator[Row]:
    """Yield rows on masking over all training steps: shares of the tokens that could be hidden, and
    `collision_rate`.

    The collision rate is the share of random replacements that equal the original token. Its floor is that of
    a uniform draw.

    Args:
        random_differs: whether the draw leaves out the original token; the floor is 0 then.
    """
    logged = [line for line in log if "corruption/random_unchanged" in line]
    if not logged:
        return
    row = {"measure": "corruption", "step": logged[-1]["step"], "unit": ""}
    # Each line has shares of its own candidates. Older logs do not count these; then all lines weigh the same.
    weights = [line.get("corruption/candidates", 1.0) for line in logged]

    def over_all(name: str) -> float:
        parts = (weight * line[f"corruption/{name}"] for weight, line in zip(weights, logged, strict=True))
        return math.fsum(parts) / max(math.fsum(weights), 1.0)

    for name in TREATED:
        yield row | {"metric": name, "value": over_all(name)}
    if random := over_all("random"):
        floor = 0.0 if random_differs else 1 / (vocab_size - FIRST_WORD_ID)
        yield row | {"metric": "collision_rate", "value": over_all("random_unchanged") / random, "floor": floor}


def read_log(directory: RunDirectory) -> list[Row]:
    """Return the lines of metrics.jsonl; an empty list if there is no file.

    Raises:
        ResultsError: a line is no JSON.
        RunDirectoryError: the log has changed since the training ended.
    """
    try:
        return [from_json(line) for line in directory.require_log().splitlines()]
    except ValueError as error:
        raise ResultsError(
            f"{directory.metrics} is damaged; copy it back, or delete {directory.path}, and `ablate run` trains "
            "the run again."
        ) from error


MUST_AGREE = {
    "sample": "tokens than in earlier runs; start `ablate measure` again",
    "files": "files than in earlier runs, which are missing now; put them back and start `ablate run` again",
}
"""Columns that must agree for a measure in all runs on the same text, each with the end of the error if they
do not."""


MEASURED = {name: kind for name, kind in run_rows.ROW_COLUMNS.items() if name not in run_rows.OWN_COLUMNS}
"""Columns that a measure writes, with their types."""


class Earlier(NamedTuple):
    """Rows of the last table of results, and the runs whose files have not changed since."""

    rows: pd.DataFrame
    """Rows of the table, of any runs."""
    measured: Mapping[str, Sequence[MeasuredStep]]
    """Measures and steps with rows, by the name of an unchanged run's folder."""


def gather(
    experiment: str,
    planned: Sequence[PlannedRun],
    *,
    keys: Mapping[str, str | None],
    compared: pd.DataFrame | None = None,
    rows: pd.DataFrame | None = None,
    earlier: Earlier | None = None,
) -> pd.DataFrame:
    """Return the table of results: the rows of the runs for the experiment's measures, and those of pairs of
    its runs.

    Runs for which `validation` was measured also have rows from their log: `learning` and `corruption`. If
    another experiment trained a run for an arm with another name, the rows get the name of this experiment's
    arm. Runs without rows are left out.

    Args:
        keys: digest of each measure's files (`files_now`), by its key. Rows that were computed from files
            with other content are left out.
        compared: rows from `measure_pairs.rows`. Those of other runs, settings or earlier trainings are left
            out.
        rows: rows of all measures of the runs that are not in `earlier`, as from `rows_of_all` of all runs; they
            are read unless given.
        earlier: rows of unchanged runs, gathered for the same experiment, keys and runs.

    Raises:
        ResultsError: two runs on the same text were measured on different tokens or files, or a log is
            damaged.
        RunDirectoryError: a log has changed since the training ended.
    """
    rows = run_rows.rows_of_all([item.directory.path for item in planned]) if rows is None else rows
    rows = run_rows.of_these(rows, keys)
    _require_same_text([rows, *_measured_earlier(earlier, planned, keys)], planned)
    tables = [
        _named(rows.drop(columns=run_rows.OWN_COLUMNS), experiment, [planned[run] for run in rows["run"]]),
        *_logged(rows, experiment, planned),
        *_rows_earlier(earlier, planned),
    ]
    in_order = pd.concat(tables).sort_values("run", kind="stable")  # for each run first measures, then its log
    tables = [in_order.drop(columns="run")]
    if compared is not None:
        compared = measure_pairs.of_last_trainings(compared, planned)
        tables += _comparisons(compared[compared["key"].isin(keys)], experiment, planned)
    return results.concat(tables)


def _folder(item: PlannedRun) -> str:
    return item.directory.path.name


def _rows_earlier(earlier: Earlier | None, planned: Sequence[PlannedRun]) -> Iterator[pd.DataFrame]:
    """Yield a table with the rows of unchanged runs, without those of pairs of runs."""
    if earlier is not None:
        of_pairs = [kind for kind, card in CARDS.items() if not card.rows]
        rows = earlier.rows[~earlier.rows["measure"].isin(of_pairs)]
        names = ["run_id", "arm", "seed"]
        runs = pd.DataFrame(
            [
                (item.run_id, item.run.arm, item.run.seed, i)
                for i, item in enumerate(planned)
                if _folder(item) in earlier.measured
            ],
            columns=[*names, "run"],
        )
        yield rows.merge(runs.astype({name: rows[name].dtype for name in names}), on=names)


def _measured_earlier(
    earlier: Earlier | None, planned: Sequence[PlannedRun], keys: Mapping[str, str | None]
) -> Iterator[pd.DataFrame]:
    """Yield a table with the measures of unchanged runs that have rows."""
    if earlier is not None:
        steps = [(i, *step) for i, item in enumerate(planned) for step in earlier.measured.get(_folder(item), ())]
        yield run_rows.of_these(pd.DataFrame(steps, columns=["run", *MeasuredStep._fields]), keys)


def _require_same_text(tables: Sequence[pd.DataFrame], planned: Sequence[PlannedRun]) -> None:
    """Raise an error if a measure was computed from other tokens or files than in an earlier run on the same
    text."""
    differing = []
    kinds = pd.concat([table[["run", "measure", "key", *MUST_AGREE]] for table in tables])
    kinds = kinds.drop_duplicates().sort_values("run", kind="stable")
    kinds["tokens"] = [planned[run].tokens for run in kinds["run"]]
    for column in MUST_AGREE:
        digests = kinds.dropna(subset=column)
        first = digests.groupby(["tokens", "key"])[column].transform("first")
        others = digests[digests[column] != first]
        differing += [(run, column, measure) for run, measure in others[["run", "measure"]].to_numpy()]
    if differing:
        run, column, measure = min(differing, key=lambda difference: difference[0])
        raise ResultsError(f"{planned[run].directory.path}: {measure} was measured on other {MUST_AGREE[column]}.")


def _named(rows: pd.DataFrame, experiment: str, items: Sequence[PlannedRun]) -> pd.DataFrame:
    """Return the rows with the columns experiment, run_id, arm and seed; `items` has the run of each row."""
    return rows.assign(
        experiment=pd.Series(experiment, rows.index, dtype="string"),
        run_id=pd.Series([item.run_id for item in items], rows.index, dtype="string"),
        arm=pd.Series([item.run.arm for item in items], rows.index, dtype="string"),
        seed=pd.Series([item.run.seed for item in items], rows.index, dtype="int64"),
    )


def _comparisons(compared: pd.DataFrame, experiment: str, planned: Sequence[PlannedRun]) -> Iterator[pd.DataFrame]:
    """Yield tables with the rows of compared pairs; the group of a row is the arm of the second run.

    Arms with equal settings share their runs, and each of them gets the rows.
    """
    pairs: dict[tuple[str, str], list[measure_pairs.Pair]] = defaultdict(list)
    with_rows = set(zip(compared["run_id"], compared["other_run_id"], strict=True))
    run_ids = set(itertools.chain.from_iterable(with_rows))  # in a large grid few runs are compared
    items = [item for item in planned if item.run_id in run_ids]
    for pair in measure_pairs.as_measured(measure_pairs.planned_pairs(items, across_seeds=True), with_rows):
        pairs[pair.ids].append(pair)
    for (run_id, other_run_id), rows in compared.groupby(["run_id", "other_run_id"], sort=False):
        for first, second in pairs.get((str(run_id), str(other_run_id)), ()):
            yield _named(_typed(rows.assign(group=second.run.arm)), experiment, [first] * len(rows))


def _logged(rows: pd.DataFrame, experiment: str, planned: Sequence[PlannedRun]) -> Iterator[pd.DataFrame]:
    """Yield a table with the rows from the logs of runs for which `validation` was measured."""
    validated = rows[rows["measure"] == "validation"]
    losses = validated[(validated["metric"] == "loss") & validated["group"].isna()].drop_duplicates("run")
    floors = dict(zip(losses["run"], losses["floor"], strict=True))
    records: list[Row] = []
    for run in validated["run"].unique().tolist():
        item = planned[int(run)]
        masking = getattr(item.run.settings.objective, "masking", None)
        log = read_log(item.directory)
        of_log = [
            # The floor holds for every validation, as the masks of validation text never change.
            *(learning(log, floor=float(floors[run])) if run in floors else ()),
            *corruption(
                log,
                vocab_size=item.run.settings.data.vocab_size,
                random_differs=masking is not None and masking.random_differs,
            ),
        ]
        records += [row | {"run": int(run)} for row in of_log]
    if records:
        runs = [row["run"] for row in records]
        yield _named(_typed(pd.DataFrame(records)), experiment, [planned[run] for run in runs]).assign(run=runs)


def _typed(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that a measure writes, with their types."""
    return rows.reindex(columns=[*MEASURED]).astype(MEASURED)


def is_current(
    experiment: str, planned: Sequence[PlannedRun], *, keys: Mapping[str, str | None], folder: Path
) -> bool:
    """Return whether results.parquet has the rows of these runs and of no others, and none of their files has
    changed since. The files were whole then."""
    return read_record(folder).is_current(record_now(experiment, planned, keys=keys, folder=folder))


def update(
    experiment: str, planned: Sequence[PlannedRun], *, keys: Mapping[str, str | None], folder: Path
) -> None:
    """Write results.parquet and gathered.json into an experiment's folder, unless the table is current. Only the
    files of changed runs are read, unless the plan, the measures or the code changed, too. Commands that end
    together write one after the other.

    Args:
        keys: digest of each measure's files (`files_now`), by its key.

    Raises:
        ResultsError, RunDirectoryError: as `gather`.
        FilesError: the folder cannot be written to.
    """
    make_folder(folder)
    with locked(folder / ".gather.lock"):
        _write(experiment, planned, keys=keys, folder=folder)


def _write(
    experiment: str, planned: Sequence[PlannedRun], *, keys: Mapping[str, str | None], folder: Path
) -> None:
    """Write the files of `update`, unless another command has written them while this one waited."""
    files = record_now(experiment, planned, keys=keys, folder=folder)
    before = read_record(folder)
    if before.is_current(files):
        return
    unchanged = before.unchanged(files)
    changed = [i for i, item in enumerate(planned) if _folder(item) not in unchanged]
    rows = run_rows.rows_of_all([planned[i].directory.path for i in changed])
    rows["run"] = np.array(changed, dtype=int)[rows["run"]]
    earlier = Earlier(results.read(folder / "results.parquet"), unchanged) if unchanged else None
    compared = measure_pairs.rows(folder)
    table = gather(experiment, planned, keys=keys, compared=compared, rows=rows, earlier=earlier)
    results.write(table, folder / "results.parquet")
    measured: dict[str, list[MeasuredStep]] = defaultdict(list, unchanged)
    for run, rows_at_step in run_rows.measured_of(rows):
        measured[_folder(planned[run])].append(rows_at_step)
    write_record(files, measured, folder)


class Gathered(Record):
    """Content of gathered.json."""

    table: tuple[Version, ...] = ()
    """Hash of what was planned and asked for, and the versions of comparisons.parquet and results.parquet."""
    runs: dict[str, tuple[Version, ...]] = Field({})
    """Versions of the files READ_FILES, by the name of the run's folder."""
    measured: dict[str, list[MeasuredStep]] = Field({})
    """Measures and steps with rows, by the name of the run's folder."""

    def is_current(self, current: "Gathered") -> bool:
        """Return whether results.parquet is up to date: neither it nor the files that it was made from have
        changed since."""
        is_known = not any(None in versions for versions in (self.table, *self.runs.values()))
        return is_known and self.table == current.table and self.runs == current.runs

    def unchanged(self, current: "Gathered") -> dict[str, list[MeasuredStep]]:
        """Return, by run folder, the measures and steps that the table has for runs whose files have not changed.
        The result is empty if the table was made for another plan, or was itself changed."""
        plan, _, table = self.table or (None, None, None)
        if None in (plan, table) or (plan, table) != (current.table[0], current.table[2]):
            return {}
        return {
            name: self.measured[name]
            for name, versions in current.runs.items()
            if None not in versions and versions == self.runs.get(name) and name in self.measured
        }

    def measured_in(self, run_dir: Path) -> list[MeasuredStep] | None:
        """Return the measures and steps with rows in a run's file; None if one of READ_FILES has changed,
        or is not known."""
        before = self.runs.get(run_dir.name, (None,))
        if None in before or before[0] == MISSING:
            return None
        if before != tuple(version(f"{run_dir}/{name}") for name in READ_FILES):
            return None
        return self.measured.get(run_dir.name)


def read_record(folder: Path) -> Gathered:
    """Return the record in an experiment's folder. It is empty if there is none, or if it is damaged: then all
    files are read again."""
    try:
        seal, _, text = read_file(folder / RECORD).partition(b"\n")
        if hashlib.sha256(text).hexdigest().encode() != seal:
            return Gathered()
        return Gathered.model_validate_json(text)
    except (OSError, ValueError):
        return Gathered()


def record_now(
    experiment: str, planned: Sequence[PlannedRun], *, keys: Mapping[str, str | None], folder: Path
) -> Gathered:
    """Return the record of the files as they are now; `measured` is empty."""
    about = [[item.run_id, item.run.arm, item.run.seed, item.tokens, item.directory.path.name] for item in planned]
    inputs = json.dumps([experiment, about, sorted(keys.items()), _code()])
    return Gathered(
        table=(
            hashlib.sha256(inputs.encode()).hexdigest(),
            version(folder / "comparisons.parquet"),
            version(folder / "results.parquet", age=0.0),
        ),
        runs={
            _folder(item): tuple(version(f"{item.directory.path}/{name}") for name in READ_FILES)
            for item in planned
        },
    )


def write_record(record: Gathered, measured: Mapping[str, Sequence[MeasuredStep]], folder: Path) -> None:
    """Write the record into an experiment's folder, after results.parquet was written.

    Args:
        record: result of `record_now` before the files were read, so that a change since then is noticed.
        measured: measures and steps with rows, by the name of the run's folder.
    """
    by_run = {name: list(measured.get(name, ())) for name in record.runs}
    table = (*record.table[:2], version(folder / "results.parquet", age=0.0))
    text = record.model_copy(update={"table": table, "measured": by_run}).model_dump_json().encode()
    results.write_whole(folder / RECORD, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)


def version(path: str | Path, *, age: float = SETTLED_SECONDS) -> Version:
    """Return the version of a file: its inode, size and times, which change when the file is written.

    The file is opened, as an NFS client then asks its server; without that it may answer from memory.

    Args:
        age: seconds for which the file must not have changed for its version to be known.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a planted pipe must not block
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if time.time() - max(status.st_mtime, status.st_ctime) < age:
        return None
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


@functools.cache
def _code() -> str:
    """Return a hash of the source of the packages that make the table."""
    sha256 = hashlib.sha256()
    for package in (ablations, lightning_modules):
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            sha256.update(hashlib.sha256(path.read_bytes()).digest())
    return sha256.hexdigest()
