"""The rows a run has so far, and which measures are missing. No torch.

A run is shared by experiments, which may ask for the same measure with other settings. `measures.parquet`
in the run's folder therefore keeps, beside the columns of the table, the key of the settings that each row
was computed with and the digest of the sample it read; an experiment takes the rows that match its own.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ablations.measures.settings import Measure
from lightning_modules.files import atomic

MEASURES_VERSION = 2
"""Raised when a measure's numbers change, so that old rows are computed again."""


def key(settings: Measure) -> str:
    """Ten hex digits of a measure's settings and version."""
    text = json.dumps([MEASURES_VERSION, settings.model_dump(mode="json")], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def rows(run_dir: Path) -> pd.DataFrame:
    """A run's rows with the columns `key` and `sample`; empty before the first measure."""
    path = run_dir / "measures.parquet"
    return pd.read_parquet(path) if path.exists() else pd.DataFrame(columns=["key", "sample"])


def missing(run_dir: Path, measures: Sequence[Measure]) -> list[Measure]:
    """The measures that have no rows yet for these settings."""
    known = set(rows(run_dir)["key"])
    return [settings for settings in measures if key(settings) not in known]


def put(run_dir: Path, new: pd.DataFrame) -> None:
    """Write the rows of one measure into a run's file, instead of those with the same key; all or nothing."""
    before = rows(run_dir)
    before = before[~before["key"].isin(new["key"].unique())]
    with atomic(run_dir / "measures.parquet") as temporary:
        (pd.concat([before, new], ignore_index=True) if len(before) else new).to_parquet(temporary, index=False)
