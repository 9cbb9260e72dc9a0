"""The whole chain on a shipped spec: from the command to the table and the page."""

import json
import os
from pathlib import Path

import pandas as pd

from ablations.results import COLUMNS
from tests.support.command_line import ablate

ROOT = Path(__file__).parents[2]


def test_the_smoke_spec_becomes_a_table_and_a_page(tmp_path):
    """In test_grids.py the command and its workers are processes that import for themselves, as a user's are."""
    command = ("run", ROOT / "experiments/smoke.yaml", "--slots", 2, "--out", tmp_path)
    done = ablate(*command)
    assert done.exit_code == 0, done.output
    folder = tmp_path / "smoke"
    assert done.stdout.strip().splitlines()[-1] == f"page: {folder / 'report.html'}"
    table = pd.read_parquet(folder / "results.parquet")
    assert list(table.columns) == list(COLUMNS)
    arms = {"mlm", "clm", "mt", "mixture", "electra", "permutation", "nsp", "n1", "untrained"}
    assert set(zip(table["arm"], table["seed"], strict=True)) == {(arm, seed) for arm in arms for seed in (0, 1)}
    assert set(table["measure"]) == {"layer_change", "token_information", "validation", "learning", "corruption"}
    change = table[(table["measure"] == "layer_change") & (table["metric"] == "pwcca")]
    assert sorted(zip(change["layer"], change["layer_to"], strict=True)) == sorted([(0, 1), (1, 2), (0, 2)] * 18)
    whole = table[(table["measure"] == "validation") & table["group"].isna()]
    loss = whole[whole["metric"] == "loss"].groupby("arm")["value"].mean()
    assert all(loss[arm] < loss["untrained"] for arm in arms - {"untrained", "electra"})
    assert set(whole.loc[whole["metric"] == "objective_loss", "arm"]) == {"electra"}
    assert set(table.loc[table["metric"] == "pair_accuracy", "arm"]) == {"nsp"}
    assert set(table.loc[table["metric"] == "bleu", "arm"]) == {"mt"}
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "gains too little to interpret" in page  # thirty steps are no evidence, and the page says so
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    panels = [panel for figure in report["figures"] for panel in figure["panels"]]
    assert page.count('src="data:image/svg+xml') == len(panels)
    assert {panel["kind"] for panel in panels} == {"arms", "settings"}  # by layer and step; n1 beside mlm
    assert {panel["measure"] for panel in panels} >= {"layer_change", "token_information", "learning"}
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    assert len(plan["runs"]) == 18
    assert report["experiment"] == "smoke"
    assert "nothing to do" in ablate(*command).output
    assert os.path.getsize(folder / "report.html") < 3_000_000


LAYERS = """
name: layers
version: 1
data: {kind: language, train: 2000, validation: 400, test: 50}
encoder: {num_hidden_layers: 2, hidden_size: 16, num_attention_heads: 2, dropout: 0}
training: {max_steps: 3, tokens_per_step: 256}
arms: {mlm: {objective: {kind: masked_lm}}, clm: {objective: {kind: causal_lm}}}
seeds: [0]
measures:
  - {kind: layer_change, tokens: 3000, groups: [frequency, part_of_speech], checkpoints: all}
  - {kind: token_information, tokens: 3000, types: 50, clusters: 20, about: [input, previous, next, output]}
  - {kind: run_distance, tokens: 3000}
  - {kind: neighbours, tokens: 3000, types: 20, occurrences: 25, neighbours: 10, neighbours_of_type: 5}
  - {kind: geometry, tokens: 3000}
  - {kind: influence, tokens: 3000, groups: [frequency, part_of_speech], sentences: 40}
  - {kind: pictures, tokens: 3000, words: [ko, fel], occurrences: 10}
"""


def test_every_analysis_of_layers_becomes_rows_and_figures(tmp_path):
    (tmp_path / "layers.yaml").write_text(LAYERS)
    command = ("run", tmp_path / "layers.yaml", "--out", tmp_path / "out")
    done = ablate(*command)
    assert done.exit_code == 0, done.output
    folder = tmp_path / "out" / "layers"
    table = pd.read_parquet(folder / "results.parquet")
    analyses = {"layer_change", "token_information", "neighbours", "geometry", "influence"}
    assert set(table["measure"]) == analyses | {"run_distance", "pictures"}
    assert table.loc[table["measure"].isin(analyses), "standard_error"].notna().mean() > 0.9
    assert sorted(table.loc[table["measure"] == "layer_change", "step"].unique()) == [0, 1, 2, 3]
    groups = set(table.loc[table["measure"] == "token_information", "group"].dropna())
    assert groups == {"previous token", "next token", "output label", "shown token"}
    for measure in ("layer_change", "influence"):
        kinds = table.loc[table["measure"] == measure, "group"].dropna().str.partition(" ")[0]
        assert set(kinds) == {"rank", "tag"}
    syntax = {"same_relation", "same_left_part", "same_right_part"}
    assert syntax < set(table.loc[table["measure"] == "neighbours", "metric"])
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert {panel["measure"] for figure in report["figures"] for panel in figure["panels"]} == set(
        table["measure"]
    )
    assert "nothing to do" in ablate(*command).output
