"""A finished experiment with any number of arms, as the launcher leaves it on disk, with invented numbers."""

import json

from ablations import results
from ablations.spec import claims as claims_file
from tests.support import fake_experiment as fake

RECIPES = tuple(
    f"{objective}-{norm}-{embedding}-{head}"
    for objective in ("mlm", "clm", "mt")
    for norm in ("post", "pre")
    for embedding in ("learned", "scaled")
    for head in ("bert", "linear", "tied")
)
"""Names of 36 arms, twelve of each objective."""

ARMS = (*RECIPES, "untrained-learned", "untrained-scaled", "untrained")


def kind(arm):
    """The arm of the usual four whose numbers an arm has, near enough."""
    return next((name for name in fake.ARMS if arm.startswith(name)), "mlm")


def rows(arms=ARMS, seeds=(0, 1, 2)):
    """Rows of every arm: those of its kind, moved a little."""
    of_kind = {name: list(fake.rows((name,), seeds)) for name in fake.ARMS}
    for i, arm in enumerate(arms):
        for row in of_kind[kind(arm)]:
            moved = row["value"] * (1 + 0.015 * (i % 12))
            yield row | {"arm": arm, "run_id": f"{i:05x}{row['seed']:05x}", "value": moved}


def write(out, arms=ARMS, *, seeds=(0, 1, 2), done=None, claims=None, table_rows=None):
    """Lay out an experiment with these arms; `done` are those whose runs have started, all unless given."""
    started = arms if done is None else done
    of_arms = list(rows(started, seeds)) if table_rows is None else table_rows
    folder = fake.write(out, arms=("mlm",), seeds=(), table_rows=[])
    results.write(results.table(of_arms), folder / "results.parquet")
    runs = []
    for i, arm in enumerate(arms):
        for run in fake.plan((kind(arm),), seeds)["runs"]:
            place = {"arm": arm, "run_id": f"{i:05x}{run['seed']:05x}", "folder": f"run-{i}-{run['seed']}"}
            runs.append(run | place)
            if arm not in started:
                continue
            run_folder = out / "runs" / place["folder"]
            run_folder.mkdir(parents=True)
            about = {"run_id": place["run_id"], "arm": arm, "seed": run["seed"]}
            settings = fake.settings(kind(arm), run["seed"])
            for name, record in (
                ("state", fake.state(kind(arm))),
                ("run", about | {"settings": settings}),
                ("provenance", fake.provenance()),
            ):
                (run_folder / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
    plan = fake.plan((), ()) | {"arms": list(arms), "runs": runs}
    if claims:
        path = folder / "claims" / "many.yaml"
        path.parent.mkdir()
        path.write_text(claims, encoding="utf-8")
        known = claims_file.planned([claims_file.load(path)], [], runs_started=0, at="2026-11-20")
        plan |= {"claims": ["many"], "claim_files": known}
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    return folder
