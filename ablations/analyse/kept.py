"""Results of single measures of an analysis, kept until it is whole, so that one that was killed goes on."""

import hashlib
import json
import shutil
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pandas import DataFrame

from ablations import results
from ablations.analyse.measures import AnyMeasure
from ablations.errors import MeasureError
from lightning_modules.files import make_folder, read_json, write_json

Row = dict[str, Any]


class Measured(NamedTuple):
    """Results of one measure of one model."""

    table: DataFrame
    """Its rows, in the columns of a table of results."""
    doubts: list[str]
    """Sentences that say why there are no rows, or what to doubt in them."""


def kept_rows(rows: Iterable[Row], settings: AnyMeasure) -> tuple[list[Row], list[str]]:
    """Return the rows of one measure, and in sentences why there are none or what to doubt in them."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            whole = list(rows)
        except MeasureError as error:
            return [], [_named(settings.kind, str(error))]
    doubts = [warning for warning in warned if issubclass(warning.category, UserWarning)]
    for warning in warned:
        if warning not in doubts:  # of a library, not of a measure
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return whole, [_named(settings.kind, str(warning.message)) for warning in doubts]


def _named(measure: str, doubt: str) -> str:
    return doubt if doubt.startswith(measure) else f"{measure}: {doubt}"


def place(target: Path, depends_on: Mapping[str, Any]) -> Path:
    """Return the file for the rows of a measure in a folder of results: its name is a hash of all that decides
    them."""
    content = json.dumps(depends_on, sort_keys=True, default=str)
    return target / "kept" / f"{hashlib.sha256(content.encode()).hexdigest()[:20]}.parquet"


def write(path: Path, measured: Measured) -> None:
    """Keep the results of a measure; the table comes last, so that where it is all is there.

    Raises:
        FilesError: the folder cannot be written to.
    """
    make_folder(path.parent)
    write_json(path.with_suffix(".json"), measured.doubts)
    results.write(measured.table, path)


def read(path: Path) -> Measured | None:
    """Return the results that were kept; None if there are none.

    Raises:
        ResultsError, FilesError: a file is damaged; the sentence says which to delete.
    """
    return Measured(results.read(path), read_json(path.with_suffix(".json"))) if path.exists() else None


def forget(target: Path) -> None:
    """Remove everything that was kept in a folder of results."""
    shutil.rmtree(target / "kept", ignore_errors=True)
