"""The sentences of a text that is not an experiment's: any format that data of kind files has. No torch."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ablations.errors import DataError
from ablations.wording import shown
from lightning_modules.data.readers import ENDINGS, Columns, file_source, format_of, numbered_lines

USUAL_COLUMN = "text"


def sentences(path: Path, *, column: str | None = None) -> Iterator[str]:
    """One line each, with single spaces, as a corpus reads them; rows without a sentence are left out.

    Args:
        column: of a table; without it the column `text`, or the only one with text.

    Raises:
        DataError: the file is missing, empty, damaged or of another format, or it is not clear which column is
        meant.
    """
    if not path.is_file():
        raise DataError(f"{path} {'is a folder' if path.is_dir() else 'does not exist'}; give a file with text.")
    ending = format_of(path)
    if ending is None:
        raise DataError(
            f"{path} has an ending that is not known, expected {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, all "
            f"but parquet also with .gz; convert or rename the file."
        )
    if ending == ".txt" and column is not None:
        raise DataError(f"{path} is plain text, which has no columns; leave --column out.")
    name = USUAL_COLUMN if ending == ".txt" else _column(path, ending, column)
    source, found = file_source(path, Columns(name)), False
    for cells in source.cells():
        if not isinstance(cells.text, str):
            raise DataError(
                f"{path}, {source.unit} {cells.number}: column {name!r} holds {shown(cells.text)}, expected text; "
                f"correct or remove it."
            )
        if line := " ".join(cells.text.split()):
            found = True
            yield line
    if not found:
        raise DataError(f"{path} has no sentence; give a file with text.")


def _column(path: Path, ending: str, wanted: str | None) -> str:
    names = _text_columns(path, ending)
    if wanted is None and USUAL_COLUMN not in names and len(names) == 1:
        return names[0]
    name = USUAL_COLUMN if wanted is None else wanted
    if name not in names:
        listed = ", ".join(map(repr, names)) or "none"
        raise DataError(f"{path} has no column {name!r} with text (with text: {listed}); name one with --column.")
    return name


def _text_columns(path: Path, ending: str) -> list[str]:
    """The columns that hold text, by the file's schema, first line or first object."""
    lines = (line for _, line in numbered_lines(path))
    try:
        if ending == ".parquet":
            kinds = pq.read_schema(path)
            return [field.name for field in kinds.empty_table().flatten().schema if _is_text(field.type)]
        if ending != ".jsonl":
            return next(csv.reader(lines, delimiter="\t" if ending == ".tsv" else ","), [])
        row = json.loads(next(filter(str.strip, lines), "{}"))
        parts = [(outer, part) for outer, part in row.items() if isinstance(part, dict)]
        inner = [(f"{outer}.{name}", value) for outer, part in parts for name, value in part.items()]
        return [name for name, value in [*row.items(), *inner] if isinstance(value, str)]
    except (OSError, ValueError, AttributeError, csv.Error, pa.ArrowException) as error:
        if isinstance(error, DataError):
            raise
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise DataError(f"{path} cannot be read ({reason}); make or copy it again.") from error


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(is_(kind) for is_ in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))
