"""A task from a YAML file alone: it is checked, read in every format, and taken by every measure of its kind."""

import json

import pytest

from ablations.errors import SpecError
from ablations.metric_groups import groups_of
from ablations.spec import load
from ablations.tasks import datasets
from ablations.tasks.datasets import files_now, keep_tasks, kept_tasks, task_called
from ablations.tasks.examples import read_examples
from ablations.tasks.settings import FrozenFeaturesSettings, ParsingSettings, ProbingSettings, RetrievalSettings
from lightning_modules import plugins
from lightning_modules.errors import DataError
from tests.support.command_line import ablate
from tests.support.errors import error_text
from tests.support.spec_files import write_spec

CLASSES = """\
kind: classification
metric: accuracy
text: [sentence]
label: animal
files: {train: train.tsv, validation: validation.csv, test: test.jsonl}
"""
SPAN = "kind: span\nmetric: overlap_f1\ntext: [question, context]"
TAGS = "kind: tagging\nmetric: accuracy\ntext: [words, more]"
MINIMAL_PAIRS = "kind: minimal_pairs\nmetric: accuracy\ndivided_by: animal\ntext: [good, bad]"
PAIRS = """\
kind: regression
metric: spearman
text: [first, second]
files: {test: pairs.tsv}
divided_by: first
"""


@pytest.fixture
def folder(tmp_path):
    """Folder of a spec with two tasks and the files of one."""
    (tmp_path / "animals.yaml").write_text(CLASSES)
    (tmp_path / "pairs.yaml").write_text(PAIRS)
    (tmp_path / "train.tsv").write_text('animal\tsentence\nyes\ta dog\nno\ta "door"\n')
    (tmp_path / "validation.csv").write_text('sentence,animal\n"a cat, here",yes\n')
    (tmp_path / "test.jsonl").write_text(json.dumps({"sentence": "a cow", "animal": True, "more": 1}) + "\n")
    plugins.look_beside(tmp_path / "spec.yaml")
    return tmp_path


@pytest.mark.parametrize(
    ("split", "texts", "answers"),
    [
        ("train", ["a dog", 'a "door"'], ["yes", "no"]),
        ("validation", ["a cat, here"], ["yes"]),
        ("test", ["a cow"], ["True"]),
    ],
)
def test_the_columns_of_every_format_are_read(folder, split, texts, answers):
    examples = read_examples(task_called("animals.yaml"), split, data_root=folder)
    assert (examples.first, examples.answers) == (texts, answers)


def test_a_folder_of_results_keeps_the_tasks_that_its_spec_names_and_no_others(folder):
    results = folder / "out" / "mine"
    assert kept_tasks(results) == []  # neither a spec nor tasks
    (folder / "spec.yaml").write_text(CLASSES)
    measures = [
        FrozenFeaturesSettings(kind="frozen_features", tasks=("sst2", "animals.yaml", "spec.yaml")),
        RetrievalSettings(kind="retrieval", tasks=("pairs.yaml",)),
    ]
    keep_tasks(measures, results)
    assert {path.name: path.read_text() for path in results.iterdir()} == {
        "animals.yaml": CLASSES,
        "pairs.yaml": PAIRS,
    }
    (results.parent / "beside.yaml").write_text(CLASSES)
    (results / "folder.yaml").mkdir()
    named = "[pairs.yaml, spec.yaml, ../beside.yaml, gone.yaml, folder.yaml, 7, [animals.yaml]]"
    spec = f"measures: [validation, {{kind: frozen_features, tasks: {named}}}, {{tasks: animals.yaml}}]\n"
    (results / "spec.yaml").write_text(spec)
    assert kept_tasks(results) == ["pairs.yaml"]
    (results / "spec.yaml").write_text("measures: 7\n")
    assert kept_tasks(results) == []


def test_a_task_of_more_than_a_page_of_text_is_refused(folder):
    (folder / "animals.yaml").write_text(CLASSES + "#" * 2**18)
    assert error_text(SpecError, task_called, "animals.yaml") == (
        f"{folder}/animals.yaml:1:1: this file is larger than 256 KiB, but a spec is about a page of text; name "
        "another file"
    )


def test_a_row_of_text_without_a_value_is_refused(folder):
    (folder / "train.tsv").write_text("animal\tsentence\n\ta dog\n")
    with pytest.raises(
        ValueError, match=r"train.tsv, line 2: animal is empty, expected a value; remove the row\."
    ):
        read_examples(task_called("animals.yaml"), "train", data_root=folder)


def test_a_missing_file_of_data_leaves_the_task_out(folder):
    assert task_called("animals.yaml").problem(folder) is None
    assert task_called("pairs.yaml").problem(folder) == f"pairs.tsv is not in {folder}"


@pytest.mark.parametrize("place", ["train.tsv", "validation.csv", "test.jsonl"])
def test_a_file_of_data_without_a_column_is_refused_before_anything_runs(folder, place):
    def validate():
        return ablate("validate", spec, "--data-root", folder)

    language = {"kind": "language", "train": 100, "validation": 20, "test": 20}
    spec = write_spec(folder, data=language, measures=[{"kind": "probing", "tasks": ["animals.yaml"]}])
    (folder / place).write_text((folder / place).read_text().replace("animal", "beast"))
    names = {
        "train.tsv": "'beast', 'sentence'",
        "validation.csv": "'sentence', 'beast'",
        "test.jsonl": "'sentence', 'beast', 'more'",
    }
    refused = validate()
    assert refused.exit_code == 2
    assert refused.stderr.partition(": measure probing: ")[2] == (
        f"task animals.yaml: {folder / place} has no column 'animal', only {names[place]}; name one of these in "
        "animals.yaml, or leave the task out.\n"
    )
    (folder / place).unlink()  # a task without a file is left out
    assert validate().exit_code == 0


@pytest.mark.parametrize(("place", "separator"), [("train.tsv", "\t"), ("validation.csv", ",")])
def test_a_file_of_data_with_a_column_twice_is_refused(folder, place, separator):
    head, *rows = (folder / place).read_text().splitlines()
    doubled = [f"{head}{separator}animal", *(f"{row}{separator}no" for row in rows)]
    (folder / place).write_text("".join(f"{line}\n" for line in doubled))
    task, split = task_called("animals.yaml"), place.partition(".")[0]
    for read in (task.check_heads, lambda root: read_examples(task, split, data_root=root)):
        assert error_text(DataError, read, folder) == f"{folder / place} has two columns 'animal'; rename one."


def test_every_measure_of_its_kind_takes_it(folder):
    for kind, measure in (("frozen_features", FrozenFeaturesSettings), ("probing", ProbingSettings)):
        settings = measure.model_validate({"kind": kind, "tasks": ["animals.yaml"]})
        (part,) = settings.parts(built_in=False)
        assert part.task == task_called("animals.yaml")
    retrieval = RetrievalSettings.model_validate({"kind": "retrieval", "tasks": ["pairs.yaml", "stsb"]})
    assert retrieval.tasks == ("pairs.yaml", "stsb")


def test_another_declaration_is_other_content(folder):
    settings = ProbingSettings.model_validate({"kind": "probing", "tasks": ["animals.yaml"]})
    before = files_now(settings, folder)
    (folder / "animals.yaml").write_text(CLASSES + "probe: true\n")
    assert files_now(settings, folder) != before


def test_another_reading_of_declared_tasks_is_other_content_of_theirs_alone(folder, monkeypatch):
    declared = ProbingSettings.model_validate({"kind": "probing", "tasks": ["animals.yaml"]})
    parsing = ParsingSettings.model_validate({"kind": "parsing", "treebank": "train.tsv"})
    before = [files_now(settings, folder) for settings in (declared, parsing)]
    monkeypatch.setattr(datasets, "READING_VERSION", "of another day")
    after = [files_now(settings, folder) for settings in (declared, parsing)]
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_a_claim_may_name_its_group(folder):
    task_called("animals.yaml")
    groups = groups_of("frozen_features", "score")
    assert groups.has("animals.yaml")
    assert groups.has("animals.yaml@100")
    assert not groups.has("animls.yaml")
    assert groups_of("minimal_pairs", "accuracy").refusal("x", "minimal_pairs") == (
        "must be a group of minimal_pairs, such as animals.yaml/VALUE, animals.yaml, blimp, lm_syneval or "
        'language, but is "x"'
    )


def problems(folder, measure, task):
    with pytest.raises(SpecError) as error:
        load.load(write_spec(folder, measures=[{"kind": measure, "tasks": [task]}]))
    return [problem.sentence.replace(f"{folder}/", "") for problem in error.value.problems]


@pytest.mark.parametrize(
    ("change", "place", "sentence"),
    [
        (
            ("accuracy", "pearson"),
            "1:1",
            "metric must be accuracy, matthews, f1 or macro_f1 for classification, but is pearson",
        ),
        (
            ("accuracy", "f1"),
            "1:1",
            "positive is missing; the metric f1 needs the class whose F1 is the score",
        ),
        (
            ("metric: accuracy", "positive: a\nmetric: accuracy"),
            "1:1",
            "positive works only with the metric f1, but the metric is accuracy; remove it",
        ),
        (
            ("kind: classification\nmetric: accuracy\ntext: [sentence]", SPAN),
            "1:1",
            "start is missing; a span needs the column with the position of the answer in the context",
        ),
        (
            ("kind: classification", "kind: classification\nstart: begins"),
            "1:1",
            "start works only with span, but the kind is classification; remove it",
        ),
        (
            ("kind: classification\nmetric: accuracy\ntext: [sentence]", TAGS),
            "1:1",
            "text must name 1 column for tagging, but names 2",
        ),
        (("[sentence]", "[a, b, c]"), "1:1", "text must name 1 or 2 columns for classification, but names 3"),
        (("label:", "lable:"), "4:1", "lable is unknown; did you mean label?"),
        (
            ("kind: classification\nmetric: accuracy", "probe: true\nkind: regression\nmetric: pearson"),
            "1:1",
            "probe works only with classification and tagging, but the kind is regression; remove it",
        ),
        (
            ("kind: classification\nmetric: accuracy\ntext: [sentence]", MINIMAL_PAIRS),
            "1:1",
            "divided_by does not work with minimal_pairs, which learn nothing and need no splits; remove it",
        ),
        (
            ("train: train.tsv, ", ""),
            "1:1",
            "files must be test, train and validation, but are validation and test; with divided_by, give only "
            "the file test for all splits",
        ),
        (
            ("test.jsonl", "test.json"),
            "1:1",
            "files must end in .parquet, .jsonl, .csv or .tsv, all but parquet also in .gz, but one is test.json",
        ),
        (
            ("classification", "clasification"),
            "1:7",
            'kind must be classification, regression, tagging, span or minimal_pairs, but is "clasification"; did '
            "you mean classification?",
        ),
    ],
)
def test_what_is_wrong_with_its_file_is_one_sentence_with_its_line(folder, change, place, sentence):
    (folder / "mine.yaml").write_text(CLASSES.replace(*change))
    assert problems(folder, "probing", "mine.yaml") == [f"mine.yaml:{place}: {sentence}"]


def test_a_file_in_another_encoding_is_one_sentence_and_a_mark_of_utf_8_is_none(folder):
    (folder / "mine.yaml").write_bytes(b"# caf\xe9\n" + CLASSES.encode())
    assert problems(folder, "probing", "mine.yaml") == [
        "mine.yaml:1:6: the byte 0xe9 is not UTF-8; save the file as UTF-8"
    ]
    (folder / "mine.yaml").write_text(CLASSES, encoding="utf-8-sig")
    load.load(write_spec(folder, measures=[{"kind": "probing", "tasks": ["mine.yaml"]}]))


def test_a_task_of_another_kind_or_without_a_file_is_one_sentence(folder):
    assert problems(folder, "minimal_pairs", "animals.yaml") == [
        "measures.minimal_pairs.tasks has animals.yaml, but this measure can use only blimp, lm_syneval and "
        "language_minimal_pairs; leave animals.yaml out"
    ]
    assert problems(folder, "retrieval", "animals.yaml") == [
        "an entry of measures.retrieval.tasks must be a regression task with two texts for retrieval, but "
        "animals.yaml is classification; leave it out"
    ]
    one_text = CLASSES.replace("kind: classification\nmetric: accuracy", "kind: regression\nmetric: pearson")
    (folder / "one.yaml").write_text(one_text)
    assert problems(folder, "retrieval", "one.yaml") == [
        "an entry of measures.retrieval.tasks must be a regression task with two texts for retrieval, but "
        "one.yaml is regression of 1 text; leave it out"
    ]
    (sentence,) = problems(folder, "probing", "animals")
    assert sentence.endswith('but is "animals"; name a task of your own by its file, such as my_task.yaml')
    assert problems(folder, "probing", "nowhere.yaml") == [
        "nowhere.yaml: nowhere.yaml cannot be read (No such file or directory); put the file beside the spec, or "
        "name it with --plugin"
    ]


@pytest.mark.parametrize("name", ["tasks/animals.yaml", "my animals.yaml", "animals.yml"])
def test_a_file_that_a_spec_cannot_name_is_one_short_sentence(folder, name):
    assert problems(folder, "probing", name) == [
        "an entry of measures.probing.tasks must be the name of a file without its folder, of letters, digits, "
        f'".", "_" and "-" and with the ending .yaml, but is "{name}"; put the file beside the spec, or name it '
        "with --plugin"
    ]
