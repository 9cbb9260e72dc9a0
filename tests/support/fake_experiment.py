"""A finished experiment as the launcher leaves it on disk, with invented numbers."""

import json
from pathlib import Path

import numpy as np

from ablations import results
from reports.page import figures

LAYERS = 6
CHANGE = {
    "mlm": [0.21, 0.090, 0.077, 0.063, 0.066, 0.111],
    "clm": [0.18, 0.075, 0.067, 0.065, 0.079, 0.070],
    "mt": [0.15, 0.064, 0.064, 0.053, 0.049, 0.039],
    "untrained": [0.030, 0.021, 0.016, 0.013, 0.011, 0.010],
}
INFORMATION = {
    "mlm": [5.22, 5.22, 5.18, 5.05, 4.93, 4.99, 5.10],
    "clm": [5.30, 5.29, 5.22, 5.05, 4.80, 4.47, 3.97],
    "mt": [5.21, 5.21, 5.20, 5.10, 4.94, 4.76, 4.47],
    "untrained": [5.21, 5.16, 5.11, 5.05, 4.99, 4.93, 4.88],
}
UNIGRAM, GAIN = 5.43, {"mlm": 1.82, "clm": 1.31, "mt": 2.24, "untrained": -1.55}
CEILING = 5.9
"""Entropy of the tokens, in nats."""
ARMS = tuple(CHANGE)


def rows(arms=ARMS, seeds=(0, 1, 2), *, step=500, gain=GAIN, experiment="article-tiny"):
    """Rows of every measure; `untrained` is measured at step 0."""
    rng = np.random.default_rng(7)
    for arm in arms:
        for seed in seeds:
            run = run_of(arm, seed, step=step) | {"experiment": experiment}
            yield from _change(run, rng)
            yield from _information(run, rng)
            yield from _validation(run, gain[arm], rng)


def run_of(arm, seed, *, step=500):
    """What all rows of a run have in common."""
    return {
        "experiment": "article-tiny",
        "run_id": f"{ARMS.index(arm):05x}{seed:05x}",
        "arm": arm,
        "seed": seed,
        "step": 0 if arm == "untrained" else step,
    }


def _change(run, rng):
    sample = {"measure": "layer_change", "unit": "1", "n": 41_873, "d": 64}
    for metric, times, floor in (("pwcca", 1.0, 0.962), ("debiased_cka", 1.6, 1.0)):
        for layer, change in enumerate(CHANGE[run["arm"]]):
            value = times * change * (1 + 0.04 * rng.standard_normal())
            noise = floor + 0.002 * rng.standard_normal()
            here = {"metric": metric, "layer": layer, "value": value, "floor": noise}
            yield run | sample | here | {"layer_to": layer + 1}
            if layer:  # from the embeddings; 0 -> 1 is written above
                yield run | sample | here | {"layer": 0, "layer_to": layer + 1, "value": min(1.0, 3 * value)}


def _information(run, rng):
    sample = {"measure": "token_information", "unit": "nats", "n": 38_112, "d": 1000}
    for metric, shift, floor in (("cross_fitted", 0.0, -0.03), ("plug_in", 0.35, 1.72)):
        for layer, nats in enumerate(INFORMATION[run["arm"]]):
            value = nats + shift + 0.03 * rng.standard_normal()
            ends = {"floor": floor, "ceiling": CEILING}
            yield run | sample | {"metric": metric, "layer": layer, "value": value} | ends


def _validation(run, gain, rng):
    sample = {"measure": "validation", "n": 12_040}
    loss = UNIGRAM - gain + 0.02 * (1 - run["seed"])
    yield run | sample | {"metric": "loss", "value": loss, "floor": UNIGRAM, "unit": "nats"}
    yield run | sample | {"metric": "perplexity", "value": np.exp(loss), "floor": np.exp(UNIGRAM), "unit": "1"}
    if run["arm"] == "mt":
        for metric, score in (("bleu", 31.4), ("chrf", 54.9)):
            value = score + rng.standard_normal()
            yield run | sample | {"metric": metric, "value": value, "unit": "0 to 100", "n": 500}


def folder_name(arm, seed):
    """Name of a run's folder under OUT/runs."""
    return f"{arm}-s{seed}-{ARMS.index(arm):05x}{seed:05x}"


def plan(arms=ARMS, seeds=(0, 1, 2)):
    """The content of plan.json."""
    return {
        "experiment": "article-tiny",
        "question": "What does each layer keep about its token under each objective?",
        "spec_sha256": "9f2c1ab47d" + "0" * 54,
        "created": "2026-11-20T09:14:03+00:00",
        "claims": [],
        "arms": list(arms),
        "data": {
            "address": "language-3f9ac2d1",
            "content_sha256": "c0ffee" + "1" * 58,
            "description": "the built-in language, seed 0",
            "train_sentences": 100_000,
            "validation_sentences": 4_000,
            "train_tokens": 1_534_211,
            "vocab_size": 1024,
            "cut": {},
        },
        "runs": [
            {
                "run_id": run_of(arm, seed)["run_id"],
                "folder": folder_name(arm, seed),
                "arm": arm,
                "seed": seed,
                "max_steps": 0 if arm == "untrained" else 500,
                "tokens": 0 if arm == "untrained" else 1_013_220,
                "parameters": 371_200 if arm != "mt" else 742_912,
                "flops": 2.3e12,
                "seconds": 55.0,
            }
            for arm in arms
            for seed in seeds
        ],
        "seconds": 660.0,
    }


def state(arm, **changes):
    """The content of a run's state.json."""
    steps = 0 if arm == "untrained" else 500
    return {
        "state": "done",
        "step": steps,
        "max_steps": steps,
        "tokens_seen": 2026 * steps,
        "flops": 2.4e9 * steps,
        "tokens_predicted": {"mlm": 281, "clm": 1893, "mt": 2010, "untrained": 0}[arm] * steps,
        "seconds": 57.3 if steps else 0.4,
        "tokens_per_second": 17_691.2 if steps else None,
        "mfu": 0.184 if steps else None,
        "first_step_seconds": 1.26 if steps else None,
        "message": None,
    } | changes


def provenance(**changes):
    """The content of a run's provenance.json."""
    return {
        "commit": "4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f70",
        "dirty": False,
        "versions": {
            "python": "3.11.7",
            "torch": "2.13.0",
            "lightning": "2.6.6",
            "pretraining-ablations": "0.1.0",
        },
        "machine": {"platform": "Linux-6.1-x86_64", "cpu": "Example 9000", "cores": 2, "gpus": []},
        "devices": 1,
        "threads": 1,
        "started": "2026-11-20T09:14:05+00:00",
        "finished": "2026-11-20T09:15:02+00:00",
    } | changes


def settings(arm, seed):
    """The content of `settings` in a run's run.json, cut down to what a page could show."""
    kinds = {"mlm": "masked_lm", "clm": "causal_lm", "mt": "translation", "untrained": "masked_lm"}
    return {
        "data": {"kind": "language", "vocab_size": 1024},
        "encoder": {"num_hidden_layers": LAYERS, "hidden_size": 64, "num_attention_heads": 4, "norm": "post"},
        "objective": {"kind": kinds[arm]},
        "training": {
            "max_steps": 0 if arm == "untrained" else 500,
            "tokens_per_step": 2048,
            "learning_rate": 1e-3,
        },
        "seed": seed,
    }


SPEC = """\
# Question  What does each layer keep about its token under each objective?
name: article-tiny
version: 1
question: What does each layer keep about its token under each objective?
data: {kind: language}
arms:
  mlm: {objective: {kind: masked_lm}}
  clm: {objective: {kind: causal_lm}}
  mt:  {objective: {kind: translation}}
  untrained: {objective: {kind: masked_lm}, training: {max_steps: 0}}
seeds: [0, 1, 2]
measures: [layer_change, token_information, validation]
"""


def figure_entries(table, **about):
    """The figures of a page as plain data."""
    return [figure.entry() for figure in figures.figures(table, **about)]


def write(out: Path, *, arms=ARMS, seeds=(0, 1, 2), table_rows=None, plan_changes=None, states=None) -> Path:
    """Lay out OUT/article-tiny and OUT/runs as after `ablate run`; returns the experiment's folder."""
    folder = out / "article-tiny"
    folder.mkdir(parents=True)
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    content = plan(arms, seeds) | (plan_changes or {})
    (folder / "plan.json").write_text(json.dumps(content), encoding="utf-8")
    results.write(
        results.table(rows(arms, seeds) if table_rows is None else table_rows), folder / "results.parquet"
    )
    for run in plan(arms, seeds)["runs"]:
        changes = (states or {}).get((run["arm"], run["seed"]), {})
        if changes is None:
            continue  # never started: no folder yet
        run_folder = out / "runs" / run["folder"]
        run_folder.mkdir(parents=True)
        about = {"run_id": run["run_id"], "arm": run["arm"], "seed": run["seed"]}
        for name, record in (
            ("state", state(run["arm"], **changes)),
            ("run", about | {"settings": settings(run["arm"], run["seed"])}),
            ("provenance", provenance()),
        ):
            (run_folder / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
    return folder
