"""Predictions of runs with invented points, as measuring leaves them on disk."""

import json

import numpy as np
import pandas as pd

from ablations.results import PREDICTION_COLUMNS
from ablations.runs import rows as run_rows


def frame(
    points_N, *, measure="minimal_pairs", task="language", metric="accuracy", step=500, key="0" * 10, **columns
):
    """Predictions for examples e0, e1, ...; of minimal pairs unless there are answers."""
    N = len(points_N)
    usual = {
        "measure": measure,
        "step": step,
        "key": key,
        "task": task,
        "metric": metric,
        "example": [f"e{i}" for i in range(N)],
        "text": [f"good {i}" for i in range(N)],
        "second": [f"bad {i}" for i in range(N)],
        "part": None,
        "label": None,
        "prediction": None,
        "points": np.asarray(points_N, float),
        "weight": 1,
        "margin": np.asarray(points_N, float) - 0.5,
        "length": np.arange(N) + 3,
        "rarest": 10 * np.arange(N) + 5,
    }
    return pd.DataFrame(usual | columns, columns=list(PREDICTION_COLUMNS), index=range(N)).astype(
        PREDICTION_COLUMNS
    )


def write_run(path, points_N, *, seed=0, **more):
    """Make the folder of a run with predictions."""
    path.mkdir(parents=True, exist_ok=True)
    if not (path / "run.json").exists():
        (path / "run.json").write_text(json.dumps({"seed": seed, "arm": path.name, "settings": {}}), "utf-8")
    run_rows.put_predictions(path, frame(points_N, **more))
    return path
