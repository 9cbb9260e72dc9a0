"""Rows of local files, with a reader for each format: bounded memory, and errors that name the file and the
line.

Hugging Face `datasets` reads these formats too. But it copies the text to disk first, guesses types over
whole chunks, and says of a bad byte or row only that the data set could not be generated. So parquet is read
with pyarrow, and the text formats are read line by line here.

csv follows RFC 4180 strictly: quotes may hold commas and line breaks. In tsv, as in most corpora of that
format, a quote is a character like any other, with two exceptions. A file whose first line begins with a
quote is read as csv with tabs. A field in quotes that has only doubled quotes inside was written by
a spreadsheet, and is unquoted.
"""

import csv
import difflib
import gzip
import json
import os
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lightning_modules.errors import AblationsError, DataError, OutOfMemoryError
from lightning_modules.files import refusal, unreadable

ENDINGS = (".parquet", ".jsonl", ".csv", ".tsv", ".txt")
"""Endings that have a reader. All but parquet may also end in .gz."""

ROWS_AT_ONCE = 4096

LONGEST_LINE = 2**24
"""Largest number of bytes of a line. A small packed file can hold one line that would fill the memory."""

csv.field_size_limit(LONGEST_LINE)  # a field may hold a book, but not all of a file whose quote is never closed


class Columns(NamedTuple):
    """Names of the columns that are read; `a.b` is field b inside column a."""

    text: str
    target: str | None = None
    document: str | None = None
    label: str | None = None


class Cells(NamedTuple):
    """One row as it stands in its source, before anything is checked."""

    number: int
    """Number of the line or row, from 1."""
    text: Any
    target: Any
    document: Any
    label: Any = None


@dataclass(frozen=True)
class Source:
    """Source of rows that can be read again and again: a file, or a split of a data set."""

    name: str
    unit: str
    """Unit that `Cells.number` counts: line or row."""
    cells: Callable[[], Iterator[Cells]]


def format_of(path: Path) -> str | None:
    """Return the ending that decides how a file is read, one of `ENDINGS`; None if the file has no reader."""
    name = path.name.lower()
    zipped, name = name.endswith(".gz"), name.removesuffix(".gz")
    ending = Path(name).suffix
    return ending if ending in ENDINGS and not (zipped and ending == ".parquet") else None


def file_source(path: Path, columns: Columns) -> Source:
    """Return the rows of a file as a source. Its ending must be one of `ENDINGS`."""
    ending = format_of(path)
    assert ending is not None
    unit = "row" if ending == ".parquet" else "line"
    return Source(str(path), unit, lambda: _READERS[ending](path, columns))


def check_head(path: Path, columns: Columns) -> None:
    """Check a file by reading its beginning only.

    Raises:
        DataError: the file is not readable, lacks one of the columns, or is a text file without a line. A parquet
            file without rows passes.
    """
    if format_of(path) == ".parquet":
        with _parquet(path) as file:
            _check_parquet_types(path, _flat_schema(file), columns)
    elif next(file_source(path, columns).cells(), None) is None and next(numbered_lines(path), None) is None:
        raise DataError(f"{path} is empty; give a file with one sentence in each line or row.")


def check_column(where: str, setting: str, name: str, names: Sequence[str]) -> None:
    """Check that a column occurs exactly once.

    Raises:
        DataError: the column is missing or occurs twice.
    """
    if names.count(name) != 1:
        raise column_error(where, setting, name, names)


def _require_different(where: object, names: Sequence[str]) -> None:
    """Raise a DataError if two columns have the same name. Columns without a name are ignored, as nobody can
    ask for them."""
    if len(set(names)) < len(names) and (twice := next((n for n in names if n and names.count(n) > 1), None)):
        raise DataError(f"{where} has two columns {twice!r}; rename one.")


def status_of(path: Path, where: str) -> os.stat_result:
    """Return the status of a file or folder that a spec names.

    Args:
        where: setting that names it, such as `data.train`.

    Raises:
        DataError: it does not exist, or its folder cannot be read.
    """
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # no file has a name with the character NUL
        raise missing_error(path, where) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({where}): {error.strerror}; correct the path.") from error


def missing_error(path: Path, where: str) -> DataError:
    """Return the error for a file or folder of a spec that does not exist. It names the nearest name in the
    same folder, if one is near.

    Args:
        path: the missing file or folder.
        where: setting that names it, such as `data.train`.
    """
    try:  # without their endings, which make short names alike
        by_stem = {sibling.name.partition(".")[0]: sibling for sibling in sorted(path.parent.iterdir())}
    except (OSError, ValueError):
        by_stem = {}
    near = difflib.get_close_matches(path.name.partition(".")[0], by_stem, n=1)
    advice = f"did you mean {by_stem[near[0]]}?" if near else "correct the path."
    return DataError(f"{path} does not exist ({where}; relative paths start at --data-root); {advice}")


def column_error(where: str, setting: str, name: str, names: Sequence[str]) -> DataError:
    """Return the error for a column that is missing or occurs twice. It names the existing columns and the
    nearest one."""
    if name in names:
        return DataError(
            f"{where} has {names.count(name)} columns {name!r} (data.{setting}), expected one; rename the others."
        )
    if not names:
        return DataError(f"{where} has no column {name!r} (data.{setting}) and no other columns; add it.")
    lower = {n.lower(): n for n in names}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    columns = ", ".join(map(repr, names))
    advice = f"did you mean {lower[near[0]]!r}?" if near else f"set data.{setting} to one of these."
    return DataError(f"{where} has no column {name!r} (data.{setting}), only {columns}; {advice}")


def cell(row: dict[str, Any], setting: str, name: str | None, where: str) -> Any:
    """Return a column's value in a row; None if `name` is None.

    Raises:
        DataError: the row has no such column.
    """
    if name is None:
        return None
    if name in row:
        return row[name]
    outer, _, inner = name.partition(".")
    if isinstance(row.get(outer), dict) and inner in row[outer]:
        return row[outer][inner]
    if inner and outer in row and row[outer] is None:  # a gap, as parquet reads it
        return None
    names = []
    for column, value in row.items():
        names += [f"{column}.{part}" for part in value] if isinstance(value, dict) else [column]
    raise column_error(where, setting, name, names)


def text_columns(path: Path) -> list[str]:
    """Return the columns that hold text, by the schema of parquet or the first object of jsonl; all columns
    of csv and tsv. `a.b` is field b inside column a.

    Raises:
        DataError: the beginning of the file cannot be read.
    """
    if format_of(path) == ".parquet":
        with _parquet(path) as file:
            return [field.name for field in _flat_schema(file) if _is_text(field.type)]
    if format_of(path) != ".jsonl":
        return next(_fields(path), (0, []))[1]
    _, row = next(_objects(path), (0, {}))
    parts = [(outer, part) for outer, part in row.items() if isinstance(part, dict)]
    inner = [(f"{outer}.{name}", value) for outer, part in parts for name, value in part.items()]
    return [name for name, value in [*row.items(), *inner] if isinstance(value, str)]


def column_names(path: Path, needed: Collection[str]) -> list[str]:
    """Return the columns of a table. Those of jsonl are the fields of its objects, which are read until all
    `needed` fields have occurred. A jsonl, csv or tsv file without rows has no columns.

    Raises:
        DataError: the part that is read is damaged, or two columns have the same name.
    """
    if format_of(path) == ".parquet":
        with _parquet(path) as file:
            _require_different(path, file.schema_arrow.names)
            return list(file.schema_arrow.names)
    names: dict[str, None] = {}
    for row in whole_rows(path):
        names |= dict.fromkeys(row)
        if format_of(path) != ".jsonl" or names.keys() >= set(needed):
            break
    return list(names)


def _reason(error: Exception) -> str:
    """Return the first line of a library's message, as part of another sentence."""
    return str(error).strip().partition("\n")[0].rstrip(".")


# Text formats ----------------------------------------------------------------------------------------


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line with its end) of a text file, also of one that ends in .gz. Only a line feed
    ends a line, since a sentence may hold other separators.

    Raises:
        DataError: the file cannot be read, or a line is no UTF-8 or longer than LONGEST_LINE.
    """
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as stream:
            for number, line in enumerate(iter(partial(stream.readline, LONGEST_LINE + 1), b""), start=1):
                if len(line) > LONGEST_LINE:
                    raise DataError(
                        f"{path}, line {number} is longer than {LONGEST_LINE // 2**20} MiB; write one sentence in "
                        "each line."
                    )
                text = line.decode("utf-8")
                yield number, text.removeprefix("\ufeff") if number == 1 else text
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}: byte {error.object[error.start]:#04x} at position {error.start + 1} of the "
            "line is not UTF-8; convert the file to UTF-8, or remove the line."
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and _may_be_whole(error):
            raise DataError(unreadable(path, error)) from error
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        place = f" after line {number}" if number else ""
        raise DataError(f"{path} cannot be read{place}: {reason}; write or copy it again.") from error


def _txt(path: Path, columns: Columns) -> Iterator[Cells]:
    document = 0
    for number, line in numbered_lines(path):
        if line.strip():
            yield Cells(number, line, None, document)
        else:
            document += 1


def _jsonl(path: Path, columns: Columns) -> Iterator[Cells]:
    settings = list(columns._asdict().items())
    for number, row in _objects(path):
        where = f"{path}, line {number}"
        yield Cells(number, *(cell(row, setting, name, where) for setting, name in settings))


def _objects(path: Path, *, different: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the object of each line. If `different`, a name that an object has twice is an error; otherwise
    its last value counts."""
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line, object_pairs_hook=partial(_different_pairs, where) if different else None)
            if "\\ud" in line.lower():  # half of a surrogate pair is valid JSON, but no text
                json.dumps(row, ensure_ascii=False).encode()
        except DataError:
            raise
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else error
            raise DataError(
                f"{where}: this is not valid JSON ({reason}); write one object in each line."
            ) from error
        if not isinstance(row, dict):
            raise DataError(
                f"{where}: expected a JSON object with a key for each column, found {line.strip()[:40]}; "
                "correct the line."
            )
        yield number, row


def _different_pairs(where: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require_different(where, [name for name, _ in pairs])
    return dict(pairs)


def _fields(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Return the rows of a csv or tsv file that are not empty, each with the number of its last line."""
    return _csv_fields(path) if format_of(path) == ".csv" else _tsv_fields(path)


def _csv_fields(path: Path, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    rows = csv.reader((line for _, line in numbered_lines(path)), delimiter=delimiter, strict=True)
    try:
        yield from ((rows.line_num, row) for row in rows if row)
    except csv.Error as error:
        raise DataError(
            f"{path}, line {rows.line_num}: {error}; put fields with a separator, a quote or a line break in "
            "quotes, and double the quotes inside."
        ) from error


def _tsv_fields(path: Path) -> Iterator[tuple[int, list[str]]]:
    _, first = next(numbered_lines(path), (0, ""))
    if first.startswith('"'):
        yield from _csv_fields(path, "\t")
        return
    lines = ((number, line.rstrip("\r\n")) for number, line in numbered_lines(path))
    yield from ((number, [_unquoted(field) for field in line.split("\t")]) for number, line in lines if line)


def _unquoted(field: str) -> str:
    inner = field[1:-1]
    quoted = len(field) > 1 and field[0] == field[-1] == '"' and '"' in inner
    return inner.replace('""', '"') if quoted and '"' not in inner.replace('""', "") else field


def _table(path: Path, columns: Columns) -> Iterator[Cells]:
    """Yield the rows of a csv or tsv file, whose first row names the columns."""
    rows = _fields(path)
    _, header = next(rows, (0, []))
    if not header:
        return
    places = []
    for setting, name in columns._asdict().items():
        if name is not None:
            check_column(str(path), setting, name, header)
        places.append(None if name is None else header.index(name))
    for number, row in _of_width(path, rows, len(header)):
        text, target, document, label = (None if place is None else row[place] for place in places)
        yield Cells(number, text, target, document, label)


def _of_width(path: Path, rows: Iterator[tuple[int, list[str]]], width: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows; a DataError for a row that does not have so many fields."""
    for number, row in rows:
        if len(row) != width:
            is_tsv = format_of(path) == ".tsv"
            otherwise = ", or write .csv or .parquet if a field in quotes holds a tab or a line break"
            raise DataError(
                f"{path}, line {number}: expected {width} fields, one for each column of the first line, but "
                f"found {len(row)}; correct the line{otherwise if is_tsv else ''}."
            )
        yield number, row


def whole_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a jsonl, csv or tsv file with all their columns, as `numbered_rows`."""
    return (row for _, row in numbered_rows(path))


def numbered_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a jsonl, csv or tsv file with all their columns, each with the number of its last line.
    Empty fields of csv and tsv are None.

    Raises:
        DataError: the file, or a line of it, cannot be read, or two columns have the same name.
    """
    if format_of(path) == ".jsonl":
        yield from _objects(path, different=True)
        return
    rows = _fields(path)
    _, header = next(rows, (0, []))
    _require_different(path, header)
    for number, row in _of_width(path, rows, len(header)):
        yield number, {name: field or None for name, field in zip(header, row, strict=True)}


# Parquet ---------------------------------------------------------------------------------------------


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)  # if the writer has made checksums
    except (pa.ArrowException, OSError) as error:
        raise _damaged_parquet(path, error) from error


def _may_be_whole(error: OSError) -> bool:
    """Return whether the operating system refused to read a file, which need not be damaged."""
    return refusal(error) is not None and not isinstance(error, IsADirectoryError)


def _damaged_parquet(path: Path, error: Exception) -> AblationsError:
    if isinstance(error, MemoryError):  # pyarrow's is an ArrowException too
        return OutOfMemoryError(f"{path} cannot be read: there is not enough memory; end other programs.")
    if isinstance(error, OSError) and _may_be_whole(error):
        return DataError(unreadable(path, error))
    return DataError(f"{path} cannot be read as parquet: {_reason(error)}; write or copy it again.")


def parquet_table(
    path: Path, names: Sequence[str], check: Callable[[pa.Schema], None], *, damaged: str, remedy: str
) -> list[dict[str, Any]]:
    """Read whole columns of a parquet file, as one mapping a row.

    Args:
        check: raises a DataError for a schema that does not fit.
        damaged: beginning of the error sentence for a file that cannot be read.
        remedy: end of that sentence.

    Raises:
        DataError: the file is damaged, its schema does not fit, or two columns have the same name.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            check(file.schema_arrow)
            _require_different(path, file.schema_arrow.names)
            rows: list[dict[str, Any]] = file.read(list(names)).to_pylist()
            return rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and _may_be_whole(error)):
            raise _damaged_parquet(path, error) from error
        raise DataError(f"{damaged}: {_reason(error)}; {remedy}.") from error


def _flat_schema(file: pq.ParquetFile) -> pa.Schema:
    """Return the schema with structures replaced by their fields, under dotted names."""
    return file.schema_arrow.empty_table().flatten().schema


def _check_parquet_types(path: Path, schema: pa.Schema, columns: Columns) -> None:
    for setting, name in columns._asdict().items():
        if name is None:
            continue
        check_column(str(path), setting, name, schema.names)
        if setting in ("text", "target") and not _is_text(schema.field(name).type):
            raise DataError(
                f"{path}: column {name!r} (data.{setting}) has values of type {schema.field(name).type}, "
                "expected text; name a column of strings."
            )


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(is_(kind) for is_ in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _parquet_rows(path: Path, columns: Columns) -> Iterator[Cells]:
    names = [name for name in columns if name is not None]
    with _parquet(path) as file:
        _check_parquet_types(path, _flat_schema(file), columns)
        batches = file.iter_batches(ROWS_AT_ONCE, columns=names)
        first = 1
        while (batch := _next_batch(path, batches)) is not None:
            flat = pa.Table.from_batches([batch]).flatten()
            values = [_values(path, flat, name, first) for name in columns]
            for i in range(len(flat)):
                yield Cells(first + i, *(None if column is None else column[i] for column in values))
            first += len(flat)


def _next_batch(path: Path, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    try:
        return next(batches, None)
    except (pa.ArrowException, OSError) as error:
        raise _damaged_parquet(path, error) from error


def _values(path: Path, table: pa.Table, name: str | None, first: int) -> list[Any] | None:
    """Return a column as Python values; None if `name` is None.

    Raises:
        DataError: a string is no UTF-8, or a value has no Python value (a time after the year 9999).
    """
    if name is None:
        return None
    try:
        return table.column(name).to_pylist()
    except UnicodeDecodeError:
        for row, value in enumerate(table.column(name), start=first):
            try:
                value.as_py()
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}, row {row}: column {name!r} is not UTF-8 at byte {error.start + 1}; write it as "
                    "UTF-8."
                ) from error
        raise
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"{path}: column {name!r} has a {table.schema.field(name).type} that cannot be read "
            f"({_reason(error)}); write the column as text or as numbers."
        ) from error


_READERS: dict[str, Callable[[Path, Columns], Iterator[Cells]]] = {
    ".parquet": _parquet_rows,
    ".jsonl": _jsonl,
    ".csv": _table,
    ".tsv": _table,
    ".txt": _txt,
}
