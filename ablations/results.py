"""The tidy table of results, which every measure writes and every figure reads: one observation a row.

Layer 0 is the embeddings. A value that does not apply to an observation is null, never a stand-in such as 0
or an empty string.
"""

import hashlib
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ablations.errors import ResultsError
from lightning_modules.files import read_file, unreadable, write_whole
from lightning_modules.training.run_directory import RunDirectory

COLUMNS: dict[str, str] = {
    "experiment": "string",
    "run_id": "string",
    "arm": "string",
    "seed": "int64",
    "step": "Int64",  # step of the measured checkpoint; null for a model without checkpoints
    "measure": "string",
    "metric": "string",
    "group": "string",  # task, frequency bin, part of speech, ...; null means all
    "layer": "Int64",
    "layer_to": "Int64",
    "other_run_id": "string",  # the second run, if two runs are compared
    "value": "float64",  # NaN if the measure has no number
    "floor": "float64",  # chance level: the same number on data without the relation that is measured
    "ceiling": "float64",  # highest possible value; for information the entropy of the quantity
    "unit": "string",
    "n": "Int64",  # number of tokens, sentences or examples behind the value
    "d": "Int64",  # width, number of features, or number of clusters
    "standard_error": "float64",  # within the run, over the text or the examples that are measured
    "left_out": "object",  # list of the values without each block of text, for the jackknife of a contrast
}
"""Columns of the table in their order, with their pandas types. Int64 with a capital letter may be null."""

LATER = ("ceiling", "standard_error", "left_out")
"""Columns that came later. In older tables they are null."""

SHOWN = [name for name in COLUMNS if name != "left_out"]
"""Columns of the data of a figure."""

STARTS_TRAINED = "starts_trained"
"""Column that a page adds if some runs start from a trained model: whether the row is of such a run."""

TEXT = "text"
"""Column that a page adds if its runs read different texts: the address of the token store of the run."""

REQUIRED = ("run_id", "arm", "seed", "measure", "metric")
"""Columns that are never null."""

KEY = [name for name in COLUMNS if name not in ("value", "floor", "unit", "n", "d", *LATER)]
"""Columns that together identify an observation."""

PREDICTION_COLUMNS: dict[str, str] = {
    "measure": "string",
    "step": "int64",  # step of the checkpoint
    "key": "string",  # hash of the settings of the measure, as in the rows of the run
    "task": "string",
    # The value of the metric is the mean of the points, weighted with `weight`. `right_tags` and
    # `minus_error` are no metrics of the table.
    "metric": "string",
    "example": "string",  # twelve hex digits of a hash of its content; "-2", ... if the content is repeated
    "text": "string",
    "second": "string",  # the other text of a pair, the context of a span, or the ungrammatical half
    "part": "string",  # part of the task, such as the paradigm of a minimal pair
    "label": "string",
    "prediction": "object",  # list of the answers, one a head
    "points": "float64",  # higher is better
    "weight": "int64",  # number of items behind the points: words in tagging, otherwise 1
    "margin": "float64",  # nats by which the grammatical half is more probable
    "length": "int64",  # tokens of both texts; for a minimal pair those of the grammatical half
    "rarest": "int64",  # frequency rank, from 1, of the rarest token in the training text
}
"""Columns of a run's predictions for single examples, with pandas types. What a task lacks is null."""

_EXPECTED = {
    "string": "text",
    "int64": "a whole number from 0",
    "Int64": "a whole number from 0, or nothing",
    "float64": "a number",
    "object": "a list of numbers, or nothing",
}


def table(rows: Iterable[Mapping[str, Any]], *, source: str = "results") -> pd.DataFrame:
    """Return the rows as a table with exactly the columns of `COLUMNS`, in that order and with those types.

    A row must have `REQUIRED` and `value`. Other columns that it lacks are null.

    Args:
        source: what has made the rows, for the errors.

    Raises:
        ResultsError: an unknown column, a missing one, a value of the wrong type, or two rows for one
            observation.
    """
    rows = list(rows)
    for number, row in enumerate(rows):
        unknown = [name for name in row if name not in COLUMNS]
        if unknown:
            raise ResultsError(
                f"{source}, row {number}: unknown column {unknown[0]!r}; the columns are {', '.join(COLUMNS)}."
            )
        if "value" not in row:
            raise ResultsError(f"{source}, row {number}: 'value' is missing; write NaN where there is no number.")
    return _checked({name: [row.get(name) for row in rows] for name in COLUMNS}, source=source)


def concat(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return all rows of several tables, in order. Without tables the result is the empty table.

    Raises:
        ResultsError: as `table`, also if an observation is in two tables.
    """
    parts = [_columns(part, source="results") for part in tables] or [table([])]
    return _checked(pd.concat(parts, ignore_index=True), source="results")


def write(table: pd.DataFrame, path: Path) -> None:
    """Write the table to `path` as parquet, whole or not at all.

    Raises:
        ResultsError: the function `table` would refuse its rows.
        FilesError: the file cannot be written.
    """
    checked = _checked(_columns(table, source=str(path)), source=str(path))
    # All first bytes of real numbers are stored together, then all second bytes: a third less space.
    by_place = [*(name for name, kind in COLUMNS.items() if kind == "float64"), "left_out.list.element"]
    others = [name for name in COLUMNS if name not in by_place]
    options: dict[str, Any] = {"use_byte_stream_split": by_place, "use_dictionary": others}
    write_whole(path, sealed(checked, compression="zstd", **options))


def read(path: Path, *, remedy: str = "start `ablate run` again") -> pd.DataFrame:
    """Return the table that `write` wrote to `path`. In older files the columns of `LATER` are null.

    Args:
        remedy: what a user should do after deleting a damaged file, for the error.

    Raises:
        ResultsError: the file is missing, truncated or damaged, or holds something else.
    """
    if not path.is_file():
        raise ResultsError(
            f"{path} does not exist, so there are no results yet; `ablate run` writes them after a run is "
            "measured."
        )
    arrow = read_sealed(path, remedy=remedy)
    _require_all(dict.fromkeys((*arrow.column_names, *LATER)), source=str(path))
    return _checked(_columns(arrow.to_pandas(), source=str(path)), source=str(path))


SEAL, UNSEALED = b"sha256", b"0" * 64
"""Key of the SHA-256 (hex) of a parquet file in its metadata, and the value while the hash is computed."""

MOST_ROWS = 1_000_000
"""Number of rows that a file of any size may have. Equal rows take nearly no bytes, so a larger table may have ten
rows a byte."""

RUN_ID = b"run_id"
"""Key of the identity of the run, in the metadata of a parquet file in the folder of a run."""


def sealed(table: pd.DataFrame, *, run_id: str | None = None, **options: Any) -> bytes:
    """Return the bytes of a parquet file in which `read_sealed` notices every changed byte.

    Args:
        run_id: identity of the run whose rows these are, if they are of one run.
        options: options of pyarrow's ParquetWriter.
    """
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, arrow.schema, **options) as writer:
        writer.write_table(arrow)
        writer.add_key_value_metadata({SEAL: UNSEALED} | ({RUN_ID: run_id.encode()} if run_id else {}))
    written = sink.getvalue().to_pybytes()
    return written.replace(UNSEALED, hashlib.sha256(written).hexdigest().encode())


def read_sealed(
    path: Path, *, remedy: str, columns: Sequence[str] | None = None, directory: RunDirectory | None = None
) -> pa.Table:
    """Return the table of a file that `sealed` made. Files of earlier versions have no seal to check.

    Args:
        columns: columns to read; those that the file lacks are ignored. By default all.
        remedy: what a user should do after deleting the file, for the error.
        directory: folder of the run whose rows they must be; None for rows of several runs.

    Raises:
        ResultsError: the file cannot be read, was cut short, has changed since it was written, or has the rows
            of another run.
    """
    try:
        written = read_file(path)
    except OSError as error:
        raise ResultsError(unreadable(path, error)) from error
    try:
        file = pq.ParquetFile(pa.BufferReader(written))
        notes = file.metadata.metadata or {}
        seal = notes.get(SEAL)
        if not notes.keys() <= {SEAL, RUN_ID, b"ARROW:schema", b"pandas"}:  # the name of the seal may have changed
            raise ValueError("it has changed since it was written")
        if seal is not None and hashlib.sha256(written.replace(seal, UNSEALED)).hexdigest().encode() != seal:
            raise ValueError("it has changed since it was written")
        if file.metadata.num_rows > max(MOST_ROWS, 10 * len(written)):  # it is made to fill the memory
            raise ValueError(f"it has {file.metadata.num_rows:,} rows in {len(written):,} bytes")
        table = file.read(columns=columns, use_threads=False)
        run_id = notes[RUN_ID].decode() if RUN_ID in notes else None
    except MemoryError:  # pyarrow's is an ArrowException too
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
        reason = reason.partition("\n")[0].rstrip(".")
        raise ResultsError(f"{path} is damaged ({reason}); delete it and {remedy}.") from error
    if directory is not None and not directory.is_of_this_run(run_id):
        raise ResultsError(f"{path} has the rows of another run ({run_id}); delete it and {remedy}.")
    return table


def _columns(frame: pd.DataFrame, *, source: str) -> pd.DataFrame:
    frame = frame.assign(**dict.fromkeys(name for name in LATER if name not in frame))
    _require_all(frame.columns, source=source)
    return frame[[*COLUMNS]]


def _require_all(names: Iterable[str], *, source: str) -> None:
    """Raise a ResultsError if a table has other columns than `COLUMNS`."""
    names = list(names)
    missing = [name for name in COLUMNS if name not in names]
    foreign = [str(name) for name in names if name not in COLUMNS]
    if missing or foreign or len(names) > len(COLUMNS):
        faults = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"also has {', '.join(foreign)}"] * bool(
            foreign
        )
        raise ResultsError(
            f"{source} is not a table of results: it {' and '.join(faults) or 'repeats a column'}; give a table "
            f"with the columns {', '.join(COLUMNS)}."
        )


def _checked(columns: Mapping[str, Sequence[Any] | pd.Series] | pd.DataFrame, *, source: str) -> pd.DataFrame:
    """Return the columns with their types, after checking every rule of a table."""
    frame = pd.DataFrame({name: _column(name, columns[name], source=source) for name in COLUMNS})
    is_repeated = frame.duplicated(KEY)
    if is_repeated.any():
        number = int(is_repeated.to_numpy().argmax())
        row = frame.iloc[number]
        names = KEY if row["run_id"] else KEY[KEY.index("metric") :]  # rows that are of no run yet
        key = ", ".join(f"{name}={row[name]}" for name in names if not pd.isna(row[name]))
        raise ResultsError(
            f"{source}, row {number}: {key} has an observation already; remove one of the two rows."
        )
    return frame


def _column(name: str, values: Sequence[Any] | pd.Series, *, source: str) -> pd.Series:
    """Return a column with its type. Cells are checked one by one only if the type alone is not enough."""
    kind = COLUMNS[name]
    if isinstance(values, pd.Series):
        given = values.notna()
        if kind == "object" and name not in REQUIRED and all(map(_is_vector, values[given])):
            return values.astype(object).where(given, None).reset_index(drop=True)
        if values.dtype == kind and kind != "object":
            is_missing = name in REQUIRED and values.isna().any()
            is_negative = (kind in ("int64", "Int64") or name == "standard_error") and (values < 0).any()
            if not is_missing and not is_negative:
                return values.reset_index(drop=True).astype(pd.api.types.pandas_dtype(kind))
        values = values.tolist()
    return pd.Series(_cells(name, values, source=source), dtype=kind)


def _cells(name: str, values: Sequence[Any], *, source: str) -> list[Any]:
    """Return the values, checked against the type of their column, with None for missing values."""
    kind, cells = COLUMNS[name], []
    for number, value in enumerate(values):
        if value is None or value is pd.NA or (isinstance(value, numbers.Real) and math.isnan(value)):
            if name in REQUIRED:
                raise ResultsError(f"{source}, row {number}: {name!r} is missing; every row needs one.")
            value = None
        elif not _fits(kind, value):
            raise ResultsError(f"{source}, row {number}: {name} is {value!r}, expected {_EXPECTED[kind]}.")
        elif name == "standard_error" and value < 0:
            raise ResultsError(f"{source}, row {number}: {name} is {value!r}, expected a number from 0.")
        cells.append(np.asarray(value, float).tolist() if kind == "object" and value is not None else value)
    return cells


def _is_vector(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64 and value.ndim == 1


def _fits(kind: str, value: Any) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if kind == "object":
        if _is_vector(value):
            return True
        return isinstance(value, list | np.ndarray) and all(_fits("float64", part) for part in value)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return kind == "float64" or (float(value).is_integer() and 0 <= float(value) < 2**63)
