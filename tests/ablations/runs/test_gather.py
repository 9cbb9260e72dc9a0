"""The table of an experiment: the rows of its runs, and what their logs say of learning."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest

from ablations.errors import ResultsError
from ablations.runs.gather import corruption, gather
from lightning_modules.config import MaskingSettings
from lightning_modules.training.run_directory import RunDirectory
from tests.support.errors import error_text

ROWS = [
    {
        "measure": "validation",
        "metric": "loss",
        "group": None,
        "value": 3.0,
        "floor": 5.0,
        "unit": "nats",
        "n": 70,
    },
    {"measure": "validation", "metric": "loss", "group": "generator", "value": 4.0, "floor": 6.0, "n": 9},
]


@pytest.fixture
def run(tmp_path):
    """A run's folder with rows of `validation` and a log of three validations and some training lines."""
    pd.DataFrame(ROWS).assign(step=20, key="k", sample=None, files=None).to_parquet(tmp_path / "measures.parquet")
    lines = [
        {"step": 5, "train/loss": 9.0},
        {"step": 10, "val/loss": 4.0, "val/predicted": 70},
        {"step": 20, "val/loss": 3.0, "val/predicted": 70},
    ]
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = SimpleNamespace(
        data=SimpleNamespace(vocab_size=105), objective=SimpleNamespace(masking=MaskingSettings())
    )
    planned = SimpleNamespace(arm="mlm", seed=1, settings=settings)
    return SimpleNamespace(directory=RunDirectory(tmp_path), tokens="t", run_id="r", run=planned)


def test_learning_has_a_loss_and_a_gain_for_every_validation(run):
    table = gather("x", [run], keys={"k": None})
    learning = table[table["measure"] == "learning"]
    assert learning[["step", "metric", "value", "floor", "n"]].to_numpy().tolist() == [
        [10, "loss", 4.0, 5.0, 70],
        [10, "gain", 1.0, 0.0, 70],
        [20, "loss", 3.0, 5.0, 70],
        [20, "gain", 2.0, 0.0, 70],
    ]
    assert learning["arm"].unique().tolist() == ["mlm"]
    assert len(table) == 6


def test_damaged_rows_and_a_damaged_log_are_sentences(run, tmp_path):
    """The log is of a training from before its digest was noted."""
    log = tmp_path / "metrics.jsonl"
    log.write_text(log.read_text()[:-3])
    assert error_text(ResultsError, gather, "x", [run], keys={"k": None}) == (
        f"{log} is damaged; copy it back, or delete {tmp_path}, and `ablate run` trains the run again."
    )
    rows = tmp_path / "measures.parquet"
    rows.write_bytes(rows.read_bytes()[:-9])
    with pytest.raises(ResultsError) as error:
        gather("x", [run], keys={"k": None})
    assert str(error.value).startswith(f"{rows} is damaged (")
    assert str(error.value).endswith("); delete it and `ablate run` measures the run again.")


def test_without_a_floor_nothing_is_said_of_learning_and_corruption_has_its_rows(run):
    """As for replaced token detection, whose generator sees masks and whose loss is not over the vocabulary."""
    rows = pd.DataFrame(ROWS[1:]).assign(step=20, key="k", sample=None, files=None)
    rows.to_parquet(run.directory.path / "measures.parquet")
    with run.directory.metrics.open("a") as log:
        corrupted = {"hidden": 0.2, "masked": 0.2, "random": 0.0, "kept": 0.0, "random_unchanged": 0.0}
        log.write(
            json.dumps({"step": 5} | {f"corruption/{name}": share for name, share in corrupted.items()}) + "\n"
        )
    measured = set(gather("x", [run], keys={"k": None})["measure"])
    assert measured == {"validation", "corruption"}
    assert gather("x", [run], keys={"another": None}).empty


def test_runs_that_were_measured_on_different_files_are_not_put_into_one_table(run, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "metrics.jsonl").write_bytes(run.directory.metrics.read_bytes())
    later = SimpleNamespace(directory=RunDirectory(other), tokens="t", run_id="s", run=run.run)
    for folder, digest in ((tmp_path, "a"), (other, "b")):
        pd.DataFrame(ROWS).assign(step=20, key="k", sample=None, files=digest).to_parquet(
            folder / "measures.parquet"
        )
    assert error_text(ResultsError, gather, "x", [run, later], keys={"k": None}) == (
        f"{other}: validation was measured on other files than in earlier runs, which are missing now; put "
        "them back and start `ablate run` again."
    )
    assert gather("x", [run, later], keys={"k": "b"})["run_id"].unique().tolist() == ["s"]


def test_a_column_without_values_in_one_run_may_have_them_in_another(run, tmp_path):
    """Files of rows name no type for a column in which nothing stands, or another one."""
    groups = {"a": [None, "generator"], "b": [float("nan")] * 2, "c": [None, None]}
    runs = []
    for name, group in groups.items():
        folder = tmp_path / name
        folder.mkdir()
        rows = pd.DataFrame(ROWS).assign(step=20, key="k", sample=None, files=None, group=group)
        rows["metric"] = ["loss", "bleu"]
        rows.to_parquet(folder / "measures.parquet")
        runs.append(SimpleNamespace(directory=RunDirectory(folder), tokens="t", run_id=name, run=run.run))
    table = gather("x", runs, keys={"k": None})
    assert table["run_id"].tolist() == ["a", "a", "b", "b", "c", "c"]
    assert [None if pd.isna(group) else group for group in table["group"]] == [None, "generator"] + [None] * 4


def test_corruption_has_its_shares_and_how_often_a_random_token_is_the_original(run):
    shares = {"hidden": 0.2, "masked": 0.1, "random": 0.04, "kept": 0.06, "random_unchanged": 0.001}
    others = shares | {"random": 0.06, "random_unchanged": 0.0}
    lines = [{f"corruption/{name}": value for name, value in line.items()} for line in (shares, others)]
    with run.directory.metrics.open("a") as log:
        log.writelines(json.dumps({"step": 5 * i} | line) + "\n" for i, line in enumerate(lines, start=1))
    table = gather("x", [run], keys={"k": None})
    rows = table[table["measure"] == "corruption"].set_index("metric")
    assert rows["value"].to_dict() == pytest.approx(
        {"hidden": 0.2, "masked": 0.1, "random": 0.05, "kept": 0.06, "collision_rate": 0.001 / 0.1}
    )
    assert rows.loc["collision_rate", "floor"] == pytest.approx(1 / 100)
    assert rows["step"].unique().tolist() == [10]


def test_shares_are_of_all_that_could_be_hidden():
    """Lines weigh as the tokens that could be hidden do, and a draw without the original has no chance of it."""
    counts = [(100, 15, 9, 3, 3, 0), (300, 15, 12, 0, 3, 0), (0, 0, 0, 0, 0, 0)]
    names = ("hidden", "masked", "random", "kept", "random_unchanged")
    lines = [
        {"step": 1, "corruption/candidates": n}
        | {f"corruption/{name}": count / max(n, 1) for name, count in zip(names, of, strict=True)}
        for n, *of in counts
    ]
    rows = {row["metric"]: row for row in corruption(lines, vocab_size=105, random_differs=True)}
    expected = {"hidden": 30 / 400, "masked": 21 / 400, "random": 3 / 400, "kept": 6 / 400, "collision_rate": 0.0}
    assert {name: row["value"] for name, row in rows.items()} == pytest.approx(expected)
    assert rows["collision_rate"]["floor"] == 0
