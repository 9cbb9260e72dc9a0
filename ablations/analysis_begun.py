"""What an analysis that was stopped has measured: the next one of the same things goes on from there.

Each measure of each model has a file of its own in OUT/<name>/begun, named after all that decides its rows. The
folder goes away with the end of the analysis.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ablations import results
from ablations.analysis_measures import StateMeasure
from ablations.analysis_rows import Row
from ablations.measured import key
from lightning_modules.files import explained, make_folder, read_json, write_json


class Measured(NamedTuple):
    """What came out of one measure of one model."""

    rows: list[Row]
    doubts: list[str]
    normalised: bool
    """Whether the model has states after a final norm."""


@dataclass(frozen=True)
class Begun:
    """The files of an analysis of one text."""

    folder: Path
    asked: Mapping[str, Any]
    """What decides the rows, beside the model and the settings of the measure."""

    def there(self, run_id: str, settings: StateMeasure) -> Measured | None:
        """What a measure of a model came to, if it was computed."""
        path = self._path(run_id, settings)
        if not path.exists():
            return None
        told = read_json(path)
        rows = [{"value": float("nan")} | row for row in told["rows"]]
        return Measured(rows, told["doubts"], told["normalised"])

    def keep(self, run_id: str, settings: StateMeasure, measured: Measured) -> None:
        """Write it down."""
        make_folder(self.folder)
        records = results.table(measured.rows).astype(object).to_dict("records")  # Python's own numbers
        rows = [{name: value for name, value in row.items() if pd.notna(value)} for row in records]
        write_json(self._path(run_id, settings), measured._asdict() | {"rows": rows})

    def remove(self) -> None:
        """Forget all, as the analysis has ended."""
        with explained(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, run_id: str, settings: StateMeasure) -> Path:
        decides = {"model": run_id, "measure": key(settings), **self.asked}
        name = hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()[:16]
        return self.folder / f"{settings.kind}-{name}.json"
