"""Several models at once, and series of checkpoints."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from ablations import results
from ablations.analyse.analyse import _folder_of_results, analyse
from ablations.analyse.arms import Subject, _names, arms_of, twins_of
from ablations.analyse.model import load
from ablations.errors import MeasureError
from reports.page import page
from tests.support import tiny_models
from tests.support.analysis import SHAPE, quietly
from tests.support.command_line import ablate
from tests.support.errors import error_text

pytest.importorskip("transformers", reason="the extra [hf] is not installed")


def weights_times(folder, factor, like):
    """Save the model of another folder with its weights times a factor, without a tokenizer."""
    model = load(like).model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)
    model.save_pretrained(folder)
    return folder


def numbers(table, arm, step=None):
    """Layer, metric and value of an arm's rows."""
    rows = table[(table["arm"] == arm) & (True if step is None else table["step"] == step)]
    return rows[["metric", "layer", "layer_to", "value", "n"]].reset_index(drop=True)


def test_several_models_are_arms_of_one_table_and_equal_architectures_share_a_twin(place, undrawn):
    first = tiny_models.save(place / "bert")
    second = weights_times(place / "sharp", 1.5, first)
    tiny_models.tokenizer().save_pretrained(second)
    other = tiny_models.save(place / "gpt2", "gpt2")
    (place / "asked.yaml").write_text("measures: [layer_change, geometry]\n")
    told = ("--text", place / "text.txt", "--out", place / "out", "--measures", place / "asked.yaml")
    done = ablate("analyse", first, second, other, *told)
    assert done.exit_code == 0, done.output
    folder = place / "out/bert-and-sharp-and-gpt2"
    table = results.read(folder / "results.parquet")
    twins = ["untrained-bert", "untrained-gpt2"]
    assert table["arm"].drop_duplicates().tolist() == ["bert", "sharp", "gpt2", *twins]
    report = json.loads((folder / "report.json").read_text())
    assert report["question"] == "What does each layer of bert, sharp and gpt2 change, keep and lose?"
    assert [arm["training"] for arm in report["arms"]] == ["unknown"] * 3 + ["untrained"] * 2
    for name in ("bert", "gpt2"):  # what is measured together has the numbers that it has alone
        own = {"measures": [SHAPE], "name": "alone"}
        alone = quietly(place / name, place, **own | {"out": place / f"out-{name}"})
        together = table[table["measure"] == "geometry"]
        pd.testing.assert_frame_equal(numbers(together, name), numbers(alone, name))
        pd.testing.assert_frame_equal(numbers(together, f"untrained-{name}"), numbers(alone, "untrained"))
    assert not np.allclose(numbers(table, "bert")["value"], numbers(table, "sharp")["value"])


def test_all_models_read_the_same_sentences(place):
    """One counts single letters, the other bytes: the same tokens would be fewer sentences of the second."""
    by_word = tiny_models.save(place / "words", "bert")
    by_byte = place / "bytes"
    tiny_models.model("roberta", vocab_size=300).save_pretrained(by_byte)
    tiny_models.byte_level_tokenizer().save_pretrained(by_byte)
    told = {"text": place / "text.txt", "out": place / "out", "tokens": 200, "measures": [SHAPE]}
    table = results.read(analyse(by_word, by_byte, **told, say=lambda _: None) / "results.parquet")
    text = (place / "text.txt").read_text().splitlines()
    spaces_too = np.cumsum([len(line) for line in text])  # one byte a letter and one a space
    sentences = int(np.searchsorted(spaces_too, 200, side="right"))
    expected = sum(len(line.split()) for line in text[:sentences])
    assert table["n"][table["arm"] == "words"].max() == expected
    assert table["n"][table["arm"] == "bytes"].max() == spaces_too[sentences - 1]
    assert set(table["arm"]) == {"words", "bytes", "untrained-words", "untrained-bytes"}
    plan = json.loads((place / "out/words-and-bytes/plan.json").read_text())
    assert plan["data"]["description"] == f"the first {sentences} sentences of text.txt"


@pytest.mark.parametrize("form", ["checkpoint-{}", "step{}", "index"])
def test_a_series_is_measured_at_every_step(form, place, undrawn):
    first = tiny_models.save(place / "bert")
    series, steps = place / "series", [0, 5, 100]
    entries = []
    for step in steps[::-1]:
        name = f"at-{step}" if form == "index" else form.format(step)
        weights_times(series / name, 1 + step / 50, first)
        entries.append({"step": step, "folder": name})
    if form == "index":
        (series / "index.json").write_text(json.dumps({"checkpoints": entries}))
    tiny_models.tokenizer().save_pretrained(series)
    (series / "logs").mkdir()
    folder = analyse(series, text=place / "text.txt", out=place / "out", measures=[SHAPE], say=lambda _: None)
    table = results.read(folder / "results.parquet")
    assert table.loc[table["arm"] == "series", "step"].drop_duplicates().tolist() == steps
    assert table.loc[table["arm"] == "series", "run_id"].nunique() == 1
    assert set(table["arm"]) == {"series", "untrained"}
    tiny_models.tokenizer().save_pretrained(series / entries[0]["folder"])
    alone = quietly(series / entries[0]["folder"], place, measures=[SHAPE], name="alone")
    expected = numbers(alone, alone["arm"].iloc[0])
    pd.testing.assert_frame_equal(numbers(table, "series", 100), expected)
    assert not np.allclose(numbers(table, "series", 5)["value"], expected["value"])
    report = json.loads((page.write(folder).parent / "report.json").read_text())
    kinds = {panel["kind"] for figure in report["figures"] for panel in figure["panels"]}
    assert "maps" in kinds
    assert report["runs"][0]["max_steps"] == 100
    assert "Checkpoints are measured up to 100 steps of training; untrained keeps" in report["summary"]


def refusal(*folders):
    return error_text(MeasureError, arms_of, folders, seed=0)


def test_no_two_arms_or_twins_have_one_name(tmp_path):
    folders = [tmp_path / path for path in ("x/p/m", "y/p/m", "z/p-m-2", "bert", "untrained-bert")]
    names = _names(folders)
    assert names == ["p-m", "p-m-3", "p-m-2", "bert", "untrained-bert"]
    subjects = [
        Subject(name, SimpleNamespace(untrained_id=name), None, SimpleNamespace(text=SimpleNamespace(ids=[])))
        for name in names
    ]
    twins = [twin.name for twin in twins_of(subjects)]
    assert twins == [f"untrained-twin-{name}" for name in names]
    assert [twin.name for twin in twins_of(subjects[:2])] == ["untrained-p-m", "untrained-p-m-3"]


def test_models_with_long_names_have_a_folder_of_results(tmp_path):
    folders = [tmp_path / f"{'long' * 20}-{i}" for i in range(3)]
    target = _folder_of_results(tmp_path / "out", None, folders, [])
    assert target == tmp_path / "out" / "-and-".join(folder.name for folder in folders)[:200]


def test_folders_that_make_no_arms_are_sentences(tmp_path):
    first = tiny_models.save(tmp_path / "a/bert")
    second = tiny_models.save(tmp_path / "b/bert")
    assert refusal(first, second) == (
        f"{first} and {second} have the same weights and config.json; leave one of them out."
    )
    small = tiny_models.save(tmp_path / "c/bert", num_hidden_layers=2)
    assert [arm.name for arm in arms_of([first, small], seed=0)] == ["a-bert", "c-bert"]
    series = tmp_path / "series"
    (series / "nothing").mkdir(parents=True)
    assert refusal(series) == (
        f"{series} has no config.json, so it is not the folder of a Hugging Face model; for a run, write such a "
        "folder with `ablate export`."
    )
    (tmp_path / "c/bert").rename(series / "step2")
    (tmp_path / "b/bert").rename(series / "step1")
    assert refusal(series) == (
        f"{series / 'step1'} and {series / 'step2'} are not checkpoints of the same model: in config.json "
        "num_hidden_layers is 3 and 2; name the folder of each model in the command."
    )
    (series / "step2").rename(series / "step_1")
    shared_step = "are both of step 1, but a series has one checkpoint for each step; remove one of them."
    assert refusal(series).endswith(shared_step)
    (series / "index.json").write_text("[]")
    assert refusal(series) == (
        f"{series / 'index.json'} is not an index of checkpoints as `ablate export --all-steps` writes it; "
        "export the series again, or remove the file if the names of the folders give their steps."
    )
