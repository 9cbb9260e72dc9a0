"""What a text is made of: counted by hand on a small one."""

import json

import pytest
from click.testing import CliRunner

from ablations.cli import main
from ablations.runs.text_facts import ROWS
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


@pytest.fixture
def tasks(spec):
    """Names of two files of tasks beside the spec: pairs that the training text has in part, and a task without
    files."""
    lines = (spec.parent / "train.txt").read_text(encoding="utf-8").splitlines()
    rows = [(lines[0], "never read"), ("never read", lines[1]), ("a", "b"), (f"{lines[2]} ", lines[3])]
    pairs = "".join(f"{good}\t{bad}\n" for good, bad in rows)
    (spec.parent / "pairs.tsv").write_text("good\tbad\n" + pairs, encoding="utf-8")
    task = "kind: minimal_pairs\nmetric: accuracy\ntext: [good, bad]\nfiles: {test: FILE}\n"
    for name in ("pairs", "missing"):
        (spec.parent / f"{name}.yaml").write_text(task.replace("FILE", f"{name}.tsv"), encoding="utf-8")
    return ["pairs.yaml", "missing.yaml"]


def ablate(spec, *arguments):
    where = ["--out", str(spec.parent / "out"), "--data-root", str(spec.parent)]
    return CliRunner().invoke(main, ["text", str(spec), *where, *arguments])


def test_a_sentence_in_another_form_of_unicode_is_the_same_sentence(spec):
    """The sub-words are those of NFC, so a model sees no difference."""
    composed, decomposed = "the caf\u00e9 was closed", "the cafe\u0301 was closed"
    with (spec.parent / "train.txt").open("a", encoding="utf-8") as file:
        file.write(composed + "\n")
    (spec.parent / "validation.txt").write_text(f"{decomposed}\n{composed}\nno dog barks\n", encoding="utf-8")
    (text,) = json.loads(ablate(spec, "--json").stdout)["texts"]
    assert (text["splits"][1]["repeated"], text["splits"][1]["in_training"]) == (1, 2)


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
        "data.train also has 3 sentences (60%) of data.validation, so losses and measures look better than they "
        "are; remove these sentences from data.train or from the other text."
    ) in text["notes"]


def test_the_table_names_the_arms_and_run_finds_the_tokens_made(spec):
    result = ablate(spec)
    assert "Text of mlm and clm: 70 sub-words" in result.stdout
    assert "data.train also has 3 sentences (60%) of data.validation" in result.stdout
    assert "Training 70 sub-words" in result.stderr
    assert "Training 70 sub-words" not in ablate(spec).stderr
    assert len(list((spec.parent / "out/tokens").glob("*/tokens.json"))) == 1


def test_the_table_of_splits_fits_into_80_characters_with_all_names(spec, monkeypatch):
    """The names of the splits were cut to "…": the columns of numbers took all of the 80 characters."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = ablate(spec).stdout.splitlines()
    table = lines[lines.index("Text of mlm and clm: 70 sub-words") :]
    assert max(map(len, table[: len(ROWS) + 2])) <= 80
    assert table[1].split() == ["train", "validation"]
    rows = {name: line for name, line in zip(ROWS, table[2:], strict=False) if line.startswith(f"{name} ")}
    assert [*rows] == [*ROWS]
    assert rows["sentences"].split()[1:] == ["303", "5"]
    assert rows["sentences also in train"].split()[-2:] == ["-", "3"]


def test_test_examples_of_tasks_that_are_training_sentences_are_counted(spec, tasks):
    """An example counts once, whichever of its texts is a training sentence; a task without files has none."""
    measures = [{"kind": "minimal_pairs", "tasks": tasks}]
    result = ablate(spec, "--json", "--set", f"measures={json.dumps(measures)}")
    assert result.exit_code == 0, result.output
    (text,) = json.loads(result.stdout)["texts"]
    assert text["tasks"] == [
        {"task": "pairs.yaml", "examples": 4, "in_training": 3, "repeated": None, "new_class": None, "cut": None}
    ]
    assert text["notes"][-1] == (
        "pairs.yaml: 3 test examples (75%) have a text that is also a sentence of data.train, so scores may "
        "look better than they are; remove them from the examples or from the training text."
    )
    shown = ablate(spec, "--set", f"measures={json.dumps(measures)}").stdout
    assert "Test examples of its tasks" in shown
    assert text["notes"][-1] in shown


def test_words_of_a_tagging_task_are_in_the_training_text_whatever_white_space_is_between_them(spec):
    with (spec.parent / "train.txt").open("a", encoding="utf-8") as file:
        file.write("a spis.\n")
    for words, name in ((["a", "spis", "."], "test"), (["b", "spis"], "train"), (["c"], "validation")):
        line = json.dumps({"words": words, "label": ["x"] * len(words)})
        (spec.parent / f"{name}.jsonl").write_text(f"{line}\n", encoding="utf-8")
    files = {part: f"{part}.jsonl" for part in ("train", "validation", "test")}
    task = {"kind": "tagging", "metric": "accuracy", "text": ["words"], "files": files}
    (spec.parent / "own.yaml").write_text(json.dumps(task), encoding="utf-8")
    measures = [{"kind": "baselines", "tasks": ["own.yaml"]}]
    (text,) = json.loads(ablate(spec, "--json", "--set", f"measures={json.dumps(measures)}").stdout)["texts"]
    assert text["tasks"] == [
        {"task": "own.yaml", "examples": 1, "in_training": 1, "repeated": 0, "new_class": 0, "cut": 0}
    ]


def own_task(spec, rows, task, **measure):
    """Write a task and its rows by part beside the spec, and return what overrides the spec's measures."""
    for part, of_part in rows.items():
        written = "".join(json.dumps(row) + "\n" for row in of_part)
        (spec.parent / f"{part}.jsonl").write_text(written, encoding="utf-8")
    task = task | {"files": {part: f"{part}.jsonl" for part in rows}}
    (spec.parent / "own.yaml").write_text(json.dumps(task), encoding="utf-8")
    return ["--set", f"measures={json.dumps([{'tasks': ['own.yaml']} | measure])}"]


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_test_examples_that_repeat_a_training_example_or_have_a_new_class_are_counted(kind, spec):
    """A pair of texts is repeated only if both are, in their order."""
    parts = {
        "train": [("a dog", "b", "x y"), ("b", "a dog", "y x"), ("c", "c", "x x")] * 4,
        "validation": [("d", "e", "x y"), ("e", "d", "y x")],
        "test": [("a  dog", "b", "x y"), ("b", "b", "z x"), ("c", "b", "Y X"), ("never", "c", "y y")],
    }
    is_pair = kind == "classification"

    def row(first, second, label):
        if is_pair:
            return {"first": first, "second": second, "label": label[0]}
        return {"words": f"{first} {second}".split()[:2], "label": label.split()}

    rows = {part: [row(*of_row) for of_row in of_part] for part, of_part in parts.items()}
    task = {"kind": kind, "metric": "accuracy", "text": ["first", "second"] if is_pair else ["words"]}
    result = ablate(spec, "--json", *own_task(spec, rows, task, kind="baselines"))
    assert result.exit_code == 0, result.output
    (text,) = json.loads(result.stdout)["texts"]
    assert text["tasks"] == [
        {"task": "own.yaml", "examples": 4, "in_training": 0, "repeated": 1, "new_class": 2, "cut": 0}
    ]
    assert text["notes"][-2:] == [
        "own.yaml: 1 test example (25%) have the texts of a training example of this task, so scores may look "
        "better than they are; remove them from one of the two parts.",
        "own.yaml: 2 test examples (50%) have a class of no training example, so no answer to them can be right; "
        "write the same classes into all parts, take more training examples, or remove them.",
    ]


def own_classes(spec, parts, **measure):
    """Write a task of sentences with classes beside the spec, and return what overrides the spec's measures."""
    rows = {part: [{"sentence": text, "label": label} for text, label in rows] for part, rows in parts.items()}
    task = {"kind": "classification", "metric": "accuracy", "text": ["sentence"]}
    return own_task(spec, rows, task, kind="frozen_features", **measure)


def test_classes_are_counted_among_the_training_examples_that_the_measure_takes(spec):
    """Of twenty classes, ten training examples have at most ten."""
    parts = {
        part: [(f"{part} {i}", f"class {i % 20}") for i in range(count)]
        for part, count in (("train", 200), ("validation", 20), ("test", 20))
    }
    all_examples, few = (own_classes(spec, parts, **more) for more in ({}, {"examples": 10}))
    facts = [
        json.loads(ablate(spec, "--json", *each).stdout)["texts"][0]["tasks"][0] for each in (all_examples, few)
    ]
    assert facts[0]["new_class"] == 0
    assert 10 <= facts[1]["new_class"] < 20


def test_run_says_what_is_wrong_with_own_tasks(spec):
    long = " ".join(["the"] * 40)
    parts = {
        "train": [(f"train {i}", "ab"[i % 2]) for i in range(20)],
        "validation": [("validation 0", "a"), ("validation 1", "b")],
        "test": [(long, "a"), ("train 0", "a"), ("test 2", "c"), ("test 3", "b")],
    }
    override = own_classes(spec, parts)
    sentences = [
        "own.yaml: 1 test example (25%) have the texts of a training example of this task, so scores may look "
        "better than they are; remove them from one of the two parts.",
        "own.yaml: 1 test example (25%) have a class of no training example, so no answer to them can be right; "
        "write the same classes into all parts, take more training examples, or remove them.",
        "own.yaml: 1 test example (25%) have more than 32 tokens (data.max_length), so encoders do not read them "
        "to their end, but baselines do; raise data.max_length.",
    ]
    (text,) = json.loads(ablate(spec, "--json", *override).stdout)["texts"]
    assert [note for note in text["notes"] if note.startswith("own.yaml")] == sentences
    where = ["--out", str(spec.parent / "out"), "--data-root", str(spec.parent)]
    result = CliRunner().invoke(main, ["run", str(spec), *where, *override, "--set", "training.max_steps=0"])
    assert [line for line in result.output.splitlines() if line.startswith("own.yaml:")] == sentences


def test_retrieval_reads_each_text_of_a_pair_alone_and_learns_from_none(spec):
    """Both texts together would be cut; and a copy of a training pair cannot help it."""
    half = " ".join(["the"] * 20)
    pairs = [{"a": f"{half} {i}", "b": f"{half} {i}", "y": i} for i in range(12)]
    task = {"kind": "regression", "metric": "spearman", "text": ["a", "b"], "label": "y"}
    rows = dict.fromkeys(("train", "validation", "test"), pairs)
    result = ablate(spec, "--json", *own_task(spec, rows, task, kind="retrieval"))
    assert result.exit_code == 0, result.output
    (text,) = json.loads(result.stdout)["texts"]
    assert text["tasks"] == [
        {"task": "own.yaml", "examples": 12, "in_training": 0, "repeated": None, "new_class": None, "cut": None}
    ]
