"""An experiment whose arms differ in the sources of chance that follow the seed, with invented losses."""

import json

import numpy as np

from ablations import results
from reports import folder

SOURCES = ("init", "order", "corruption", "dropout")
ONE_BY_ONE = ("all", *SOURCES)
"""Arms: one in which everything varies, and one for each source that varies alone."""


def runs_of(rng, variances, *, seeds):
    """Losses of each arm by an additive model; runs of a seed share what follows it in both arms."""
    draws = rng.normal(0, np.sqrt(variances), (seeds, len(variances)))
    fixed = rng.normal(0, np.sqrt(variances))
    alone = {source: draws[:, place] + np.delete(fixed, place).sum() for place, source in enumerate(SOURCES)}
    return {"all": draws.sum(1), **alone}


def experiment(tmp_path, *, seeds=5, change=lambda arm, settings: settings, without=""):
    """The experiment as `reports.folder` reads it, written to `tmp_path`."""
    values = runs_of(np.random.default_rng(3), np.array([4.0, 2.0, 1.0, 0.5]), seeds=seeds)
    arms = [arm for arm in ONE_BY_ONE if arm not in without.split()]
    out = tmp_path / "sources"
    out.mkdir()
    planned, rows = [], []
    for arm in arms:
        for seed in range(seeds):
            run_id = f"{ONE_BY_ONE.index(arm):05x}{seed:05x}"
            name = f"{arm}-s{seed}-{run_id}"
            planned.append({"run_id": run_id, "arm": arm, "seed": seed, "folder": name, "max_steps": 100})
            fixed = {} if arm == "all" else {source: 0 for source in SOURCES if source != arm}
            settings = {
                "objective": {"kind": "masked_lm"},
                "encoder": {"hidden_size": 16},
                "training": {"max_steps": 100, "seeds": dict.fromkeys(SOURCES) | fixed},
            }
            run = tmp_path / "runs" / name
            run.mkdir(parents=True)
            (run / "run.json").write_text(json.dumps({"settings": change(arm, settings)}))
            about = {"experiment": "sources", "run_id": run_id, "arm": arm, "seed": seed, "step": 100}
            loss = {"measure": "validation", "metric": "loss", "value": 3 + values[arm][seed], "floor": 5.0}
            rows.append(about | loss | {"unit": "nats", "n": 1000})
    plan = {"experiment": "sources", "question": "", "arms": arms, "runs": planned}
    (out / "plan.json").write_text(json.dumps(plan))
    results.write(results.table(rows), out / "results.parquet")
    return folder.read(out)
