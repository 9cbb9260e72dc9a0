"""The whole chain on a shipped spec: from the command to the table and the page."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd

from ablations.results import COLUMNS

ROOT = Path(__file__).parent.parent


def ablate(*arguments):
    command = [sys.executable, "-m", "ablations.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)


def test_the_smoke_spec_becomes_a_table_and_a_page(tmp_path):
    done = ablate("run", "experiments/smoke.yaml", "--out", tmp_path)
    folder = tmp_path / "smoke"
    assert done.stdout.strip().splitlines()[-1] == f"page: {folder / 'report.html'}"
    table = pd.read_parquet(folder / "results.parquet")
    assert list(table.columns) == list(COLUMNS)
    arms = {"mlm", "clm", "mt", "mixture", "electra", "permutation", "nsp", "n1", "untrained"}
    assert set(zip(table["arm"], table["seed"], strict=True)) == {(arm, seed) for arm in arms for seed in (0, 1)}
    assert set(table["measure"]) == {"layer_change", "token_information", "validation", "learning"}
    change = table[(table["measure"] == "layer_change") & (table["metric"] == "pwcca")]
    assert sorted(zip(change["layer"], change["layer_to"], strict=True)) == sorted([(0, 1), (1, 2), (0, 2)] * 18)
    whole = table[(table["measure"] == "validation") & table["group"].isna()]
    loss = whole[whole["metric"] == "loss"].groupby("arm")["value"].mean()
    assert all(loss[arm] < loss["untrained"] for arm in arms - {"untrained", "electra"})
    assert set(whole.loc[whole["metric"] == "objective_loss", "arm"]) == {"electra"}
    assert set(table.loc[table["metric"] == "pair_accuracy", "arm"]) == {"nsp"}
    assert set(table.loc[table["metric"] == "bleu", "arm"]) == {"mt"}
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count('role="img"') == 5
    assert "not trained enough to interpret" in page  # thirty steps are no evidence, and the page says so
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    assert len(plan["runs"]) == 18
    assert report["experiment"] == "smoke"
    again = ablate("run", "experiments/smoke.yaml", "--out", tmp_path)
    assert "nothing to do" in again.stdout
    assert os.path.getsize(folder / "report.html") < 3_000_000
