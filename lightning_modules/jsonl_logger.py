"""An append-only log: one JSON object a line, readable while the run goes on."""

import json
import math
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only


class JsonLinesLogger(Logger):
    """Appends `{"step": ..., "time": ..., metrics}` to a file; numbers that are none become null."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        line = json.dumps({"step": step, "time": round(time.time(), 3), **finite})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Nothing: run.json holds the settings."""
