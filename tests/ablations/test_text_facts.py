"""What a text is made of: counted by hand on a small one."""

import json

import pytest
from click.testing import CliRunner

from ablations.cli import main
from tests.support.spec_files import write_spec

LONG = "a " * 40 + "dog"


@pytest.fixture
def spec(tmp_path):
    lines = [f"the dog number {i} barks at the cat number {i * 7 % 50}" for i in range(300)]
    (tmp_path / "train.txt").write_text("\n".join([*lines, lines[3], LONG, "", lines[3]]) + "\n", encoding="utf-8")
    few = [lines[0], lines[0], "no dog  barks", lines[5], "☃"]
    (tmp_path / "validation.txt").write_text("\n".join(few) + "\n", encoding="utf-8")
    data = {
        "kind": "files",
        "train": "train.txt",
        "validation": "validation.txt",
        "vocab_size": 70,
        "max_length": 32,
    }
    return write_spec(
        tmp_path,
        data=data,
        arms={"mlm": {"objective": {"kind": "masked_lm"}}, "clm": {"objective": {"kind": "causal_lm"}}},
    )


def ablate(spec, *arguments):
    where = ["--out", str(spec.parent / "out"), "--data-root", str(spec.parent)]
    return CliRunner().invoke(main, ["text", str(spec), *where, *arguments])


def test_sentences_are_counted_as_they_are(spec):
    result = ablate(spec, "--json")
    assert result.exit_code == 0, result.output
    (text,) = json.loads(result.stdout)["texts"]
    assert text["arms"] == ["mlm", "clm"]
    train, validation = text["splits"]
    assert (train["split"], train["sentences"], train["documents"]) == ("train", 303, 2)
    assert (train["repeated"], train["in_training"]) == (2, None)
    assert train["cut"] >= 1
    assert train["longest"] > 40
    assert train["median"] <= train["p99"] <= train["longest"]
    assert (validation["sentences"], validation["repeated"], validation["in_training"]) == (5, 1, 3)
    assert validation["unknown"] == 3  # the bytes of a snowman
    assert (
        "data.validation: 3 sentences (60%) are also in data.train, where the models learn them, so that losses "
        "and measures look better than they are; remove them from one of the two."
    ) in text["notes"]


def test_the_table_names_the_arms_and_run_finds_the_tokens_made(spec):
    result = ablate(spec)
    assert "Text of mlm and clm: 70 sub-words" in result.stdout
    assert "3 sentences (60%) are also in data.train" in result.stdout
    assert "Training 70 sub-words" in result.stderr
    assert "Training 70 sub-words" not in ablate(spec).stderr
    assert len(list((spec.parent / "out/tokens").glob("*/tokens.json"))) == 1
