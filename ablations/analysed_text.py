"""The sentences of a text that is not an experiment's: any format that data of kind files has. No torch."""

from collections.abc import Iterator
from pathlib import Path

from ablations.errors import DataError
from ablations.wording import shown
from lightning_modules.data.readers import ENDINGS, Columns, file_source, format_of, text_columns

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
    name = USUAL_COLUMN if ending == ".txt" else _column(path, column)
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


def _column(path: Path, wanted: str | None) -> str:
    names = text_columns(path)
    if wanted is None and USUAL_COLUMN not in names and len(names) == 1:
        return names[0]
    name = USUAL_COLUMN if wanted is None else wanted
    if name not in names:
        listed = ", ".join(map(repr, names)) or "none"
        raise DataError(f"{path} has no column {name!r} with text (with text: {listed}); name one with --column.")
    return name
