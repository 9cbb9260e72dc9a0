"""Examples of tasks from files: what is read, and what is refused."""

import json
import unicodedata
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ablations.measures.reading.texts import Texts
from ablations.tasks.datasets import SPLITS, TASKS, chosen
from ablations.tasks.examples import Answer, Examples, Source, all_examples, read_examples, subset, trees_of
from ablations.tasks.settings import StructuralProbeSettings
from ablations.wording import shown as in_words
from lightning_modules.data.tokenizer import train
from lightning_modules.errors import DataError
from tests.support.errors import error_text

DATA = Path(__file__).parents[4] / "shared" / "data"


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_classes_and_numbers_are_read_from_their_columns(tmp_path):
    for split in SPLITS:
        write(tmp_path / f"classification/sst2/{split}.parquet", sentence=["good", split], label=[1, 0])
        write(
            tmp_path / f"classification/stsb/{split}.parquet",
            sentence1=["a", "b"],
            sentence2=["c", "d"],
            label=[2.5, 5],
        )
    sst2 = read_examples(TASKS["sst2"], "test", data_root=tmp_path)
    assert sst2 == Examples(["good", "test"], None, None, ["1", "0"])
    stsb = read_examples(TASKS["stsb"], "train", data_root=tmp_path)
    assert stsb == Examples(["a", "b"], ["c", "d"], None, [2.5, 5.0])
    assert TASKS["sst2"].problem(tmp_path) is None
    (tmp_path / "classification/sst2/train.parquet").unlink()
    assert TASKS["sst2"].problem(tmp_path) == f"classification/sst2/train.parquet is not in {tmp_path}"


def test_white_space_in_a_text_or_word_is_one_space_as_in_a_corpus(tmp_path):
    texts = ["good\r\n\tfilm ", "\u00a0not\u2009so  good"]
    write(tmp_path / "classification/sst2/test.parquet", sentence=texts, label=[1, 0])
    assert read_examples(TASKS["sst2"], "test", data_root=tmp_path).first == ["good film", "not so good"]
    write(tmp_path / "classification/stsb/test.parquet", sentence1=texts, sentence2=texts[::-1], label=[1, 2])
    stsb = read_examples(TASKS["stsb"], "test", data_root=tmp_path)
    assert (stsb.first, stsb.second) == (["good film", "not so good"], ["not so good", "good film"])
    write(tmp_path / "ner/wikigold/test.parquet", tokens=[["20\u00a0000", "Rome\n"]], ner_tags=[["O", "I-LOC"]])
    assert read_examples(TASKS["wikigold"], "test", data_root=tmp_path).words == [["20 000", "Rome"]]


def test_one_file_may_hold_many_tasks(tmp_path):
    write(
        tmp_path / "probing/test.parquet",
        task=["tree_depth", "bigram_shift", "tree_depth"],
        label=["deep", "I", "shallow"],
        sentence=["a b", "c d", "e f"],
    )
    read = read_examples(TASKS["tree_depth"], "test", data_root=tmp_path)
    assert (read.first, read.answers) == (["a b", "e f"], ["deep", "shallow"])


def test_tags_and_their_words(tmp_path):
    tags = [["O", "I-LOC"], ["O"]]
    write(tmp_path / "ner/wikigold/test.parquet", tokens=[["In", "Rome"], ["no"]], ner_tags=tags)
    read = read_examples(TASKS["wikigold"], "test", data_root=tmp_path)
    assert read == Examples(["In Rome", "no"], None, [["In", "Rome"], ["no"]], [["O", "I-LOC"], ["O"]])


def test_of_a_paragraph_the_sentences_of_the_answer_are_kept(tmp_path):
    context = "It was cold. Ada Byron (1815) wrote. She died in London! Then others came."
    answers = ["Ada Byron", "wrote. She", "came."]
    starts = [context.index(answer) for answer in answers]
    titles = [title for title in map(str, range(40)) if _split_of_title(title) == "test"][:3]
    write(
        tmp_path / "qa_xquad/en.test.parquet",
        question=["Who?", "What?", "When?"],
        context=[context] * 3,
        answer=answers,
        answer_start=starts,
        title=titles,
    )
    read = read_examples(TASKS["xquad"], "test", data_root=tmp_path)
    assert read.second == [
        "Ada Byron (1815) wrote.",
        "Ada Byron (1815) wrote. She died in London!",
        "Then others came.",
    ]
    assert [c[a.start : a.stop] for c, a in zip(read.second, read.answers, strict=True)] == answers
    assert read.answers[0] == Answer(0, 9)
    assert read.cluster == titles
    whole = replace(TASKS["xquad"], divided_by=None)
    assert read_examples(whole, "test", data_root=tmp_path).cluster == [context] * 3


@pytest.mark.parametrize("place", [8, 8.0, "8", "8.0"])
def test_the_place_of_an_answer_is_a_whole_number_however_it_is_written(place, tmp_path):
    """pandas writes 8.0 where the column of another task in the file has gaps."""
    row = {"question": "Who?", "context": "It was  Bob.", "answer": "Bob.", "at": place}
    (tmp_path / "one.jsonl").write_text(json.dumps(row))
    task = replace(TASKS["xquad"], files={"test": "one.jsonl"}, start="at", divided_by=None)
    assert read_examples(task, "test", data_root=tmp_path).answers == [Answer(8, 12)]


@pytest.mark.parametrize("place", [8.5, -1, "-1", True, "eight", [8]])
def test_a_place_that_is_no_number_of_characters_is_refused(place, tmp_path):
    row = {"question": "Who?", "context": "It was  Bob.", "answer": "Bob.", "at": place}
    (tmp_path / "one.jsonl").write_text(json.dumps(row))
    task = replace(TASKS["xquad"], files={"test": "one.jsonl"}, start="at", divided_by=None)
    assert error_text(DataError, read_examples, task, "test", data_root=tmp_path).endswith(
        f"line 1: at is {in_words(place)}, expected a number of characters; correct or remove the row, or leave "
        "the task out."
    )


@pytest.mark.parametrize("answer", ["Bob.", "Bob. ", " Bob.", " Bob.  "])
def test_white_space_around_an_answer_is_no_part_of_it(answer, tmp_path):
    """At the end of its sentences it was cut off with them, and no token ended the answer."""
    context = "It was  Bob.  He ran."
    (tmp_path / "one.jsonl").write_text(
        json.dumps({"question": "Who?", "context": context, "answer": answer, "at": context.index(answer)})
    )
    task = replace(TASKS["xquad"], files={"test": "one.jsonl"}, start="at", divided_by=None)
    read = read_examples(task, "test", data_root=tmp_path)
    assert (read.second, read.answers, read.right) == (["It was  Bob."], [Answer(8, 12)], ["Bob."])


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_an_answer_may_end_in_an_accent_however_it_is_written(form, tmp_path):
    context, answer = (unicodedata.normalize(form, text) for text in ("Zoë ran. Was it Zoë or André?", "André"))
    (tmp_path / "one.jsonl").write_text(
        json.dumps({"question": "Who?", "context": context, "answer": answer, "at": context.index(answer)})
    )
    task = replace(TASKS["xquad"], files={"test": "one.jsonl"}, start="at", divided_by=None)
    read = read_examples(task, "test", data_root=tmp_path)
    assert (read.second, read.answers, read.right) == (["Was it Zoë or André?"], [Answer(14, 19)], ["André"])


@pytest.mark.parametrize(
    ("context", "answer", "expected"),
    [
        ("Es ist gut. Über den Wolken lebt er. Ende.", "Wolken", "Über den Wolken lebt er."),
        ("Это хорошо. Он живёт в Москве. Конец.", "Москве", "Он живёт в Москве."),
        ("这很好。他住在北京。结束。", "北京", "他住在北京。"),
        ("یہ پہلا ہے۔ وہ ایم۔اے لاہور میں ہے۔ ختم۔", "لاہور", "وہ ایم۔اے لاہور میں ہے۔"),
        ("هل هذا سؤال؟ القاهرة كبيرة. نهاية.", "القاهرة", "القاهرة كبيرة."),
        ("ပထမ။ ရန်ကုန် မြို့။ တတိယ။", "ရန်ကုန်", "ရန်ကုန် မြို့။"),
        ("ទីមួយ។ ភ្នំពេញ ធំ។ ចុង។", "ភ្នំពេញ", "ភ្នំពេញ ធំ។"),
        ("Սա է։ Երևանը մեծ է։ Վերջ։", "Երևանը", "Երևանը մեծ է։"),
        ("ይህ ነው። አዲስ አበባ ናት። ሦስተኛ።", "አዲስ አበባ", "አዲስ አበባ ናት።"),
        ("དང་པོ། ལྷ་ས་ཆེ། མཐའ།", "ལྷ་ས", "ལྷ་ས་ཆེ།"),
        ("«Qué?» ¿Dónde vive? Vive en Lima… Fin.", "Lima", "Vive en Lima…"),
        ("Ja. Er kam, ca. um vier . . . und ging. Nein.", "vier", "Er kam, ca. um vier . . . und ging."),
    ],
)
def test_sentences_end_in_any_script(context, answer, expected, tmp_path):
    row = {"question": "?", "context": context, "answer": answer, "at": context.index(answer)}
    (tmp_path / "one.jsonl").write_text(json.dumps(row))
    task = replace(TASKS["xquad"], files={"test": "one.jsonl"}, start="at", divided_by=None)
    read = read_examples(task, "test", data_root=tmp_path)
    assert (read.second, read.right) == ([expected], [answer])


def _split_of_title(title):
    from ablations.tasks.examples import _split_of

    return _split_of(title)


def test_one_file_for_all_splits_is_divided_by_titles(tmp_path):
    count = 300
    questions = [f"{i} {part}" for i in range(count) for part in "ab"]
    write(
        tmp_path / "qa_xquad/en.test.parquet",
        question=questions,
        context=["He came."] * 2 * count,
        answer=["He"] * 2 * count,
        answer_start=[0] * 2 * count,
        title=[str(i) for i in range(count) for _ in "ab"],
    )
    splits = [read_examples(TASKS["xquad"], split, data_root=tmp_path).first for split in SPLITS]
    assert sorted(q for split in splits for q in split) == sorted(questions)
    titles = [{q.split()[0] for q in split} for split in splits]
    assert [2 * len(some) for some in titles] == [len(split) for split in splits]
    for some, share in zip(titles, (0.7, 0.15, 0.15), strict=True):
        assert abs(len(some) - share * count) < 4 * (share * (1 - share) * count) ** 0.5  # standard errors


def error_of(task, tmp_path, split="test"):
    return error_text(DataError, read_examples, task, split, data_root=tmp_path)


def test_a_file_that_is_missing_or_damaged_or_lacks_something_is_named(tmp_path):
    place = tmp_path / "classification/sst2/test.parquet"
    assert error_of(TASKS["sst2"], tmp_path) == (
        f"task sst2: {place} does not exist; check --data-root, or leave the task out."
    )
    write(place, text=["a"], label=[1])
    assert error_of(TASKS["sst2"], tmp_path) == (
        f"task sst2: {place} has no column 'sentence', only 'text', 'label'; copy the file again, or leave the "
        f"task out."
    )
    write(place, sentence=["a", None], label=[1, 0])
    assert error_of(TASKS["sst2"], tmp_path) == (
        f"task sst2: {place}, row 2: sentence is empty, expected a value; remove the row."
    )
    (tmp_path / "labels.jsonl").write_text('{"sentence": "a", "label": 1}\n{"sentence": "b", "label": NaN}\n')
    assert error_of(replace(TASKS["sst2"], files={"test": "labels.jsonl"}), tmp_path) == (
        f"task sst2: {tmp_path / 'labels.jsonl'}, line 2: label is empty, expected a value; remove the row."
    )
    place.write_bytes(b"PAR1 and nothing else")
    said = error_of(TASKS["sst2"], tmp_path)
    assert said.startswith(f"task sst2: {place} cannot be read as parquet: ")
    assert said.endswith("; copy it again.")


@pytest.mark.parametrize(
    ("task", "columns", "said"),
    [
        ("sst2", {"sentence": [1, 2], "label": [1, 0]}, "row 1: sentence is 1, expected text"),
        (
            "stsb",
            {"sentence1": ["a", "b"], "sentence2": ["a", "b"], "label": ["4.5", "n/a"]},
            'row 2: label is "n/a", expected a number',
        ),
        (
            "stsb",
            {"sentence1": ["a", "b"], "sentence2": ["a", "b"], "label": [4.5, float("inf")]},
            "row 2: label is inf, expected a number",
        ),
        (
            "wikigold",
            {"tokens": ["In Rome"], "ner_tags": [["O", "O"]]},
            'row 1: tokens is "In Rome", expected a list of words',
        ),
        (
            "wikigold",
            {"tokens": [["In", "Rome"]], "ner_tags": ["O O"]},
            'row 1: ner_tags is "O O", expected a list of tags',
        ),
    ],
)
def test_a_column_of_another_type_is_refused_with_its_row(task, columns, said, tmp_path):
    place = tmp_path / TASKS[task].files["test"]
    write(place, **columns)
    told = f"task {task}: {place}, {said}; correct or remove the row, or leave the task out."
    assert error_of(TASKS[task], tmp_path) == told


def test_answers_that_do_not_suit_their_text_are_refused(tmp_path):
    write(tmp_path / "ner/wikigold/test.parquet", tokens=[["a"], ["In", "Rome"]], ner_tags=[["O"], ["O"]])
    assert error_of(TASKS["wikigold"], tmp_path) == (
        "task wikigold: example 2 of its test part has 2 words and 1 tags, expected at least one word and a tag "
        "for each word; correct or remove it."
    )
    write(tmp_path / "ner/wikigold/test.parquet", tokens=[["a"], ["In", "Rome"]], ner_tags=[["O"], ["O", "LOC"]])
    assert error_of(TASKS["wikigold"], tmp_path) == (
        'task wikigold: example 2 of its test part has the tag "LOC", expected O or a tag of BIO, BIOES or BILOU '
        "such as B-LOC; write the tags in this form, or give the task the metric accuracy."
    )
    for word, tag in ((None, "O"), ("", "O"), (" \u00a0", "O"), ("Rome", None), ("Rome", ""), ("Rome", " ")):
        write(tmp_path / "ner/wikigold/test.parquet", tokens=[["In", word]], ner_tags=[["O", tag]])
        assert error_of(TASKS["wikigold"], tmp_path) == (
            "task wikigold: example 1 of its test part has an empty word or tag, expected text; correct or remove "
            "it."
        )
    everywhere = replace(TASKS["xquad"], divided_by=None)
    for context, answer, start in (("She came.", "He", 0), ("Zoe\u0301 came.", "\u0301 came", 3)):
        write(
            tmp_path / "qa_xquad/en.test.parquet",
            question=["Who?"],
            context=[context],
            answer=[answer],
            answer_start=[start],
            title=["x"],
        )
        assert error_of(everywhere, tmp_path) == (
            f'task xquad: example 1 of its test part: the answer "{answer}" is not at character {start} of its '
            "context; correct or remove it."
        )
    write(
        tmp_path / "qa_xquad/en.test.parquet",
        question=["Who?"],
        context=["She came."],
        answer=[""],
        answer_start=[0],
        title=["x"],
    )
    assert error_of(everywhere, tmp_path) == (
        "task xquad: example 1 of its test part has an answer without words, expected a part of its context; "
        "remove it."
    )


@pytest.mark.parametrize(
    ("columns", "shared"),
    [
        ({"field": [0, 1, 2], "paradigm": [1, 2, 2]}, ("field", "paradigm", "1")),
        ({"field": ["x", "y"], "paradigm": ["x", "x"]}, ("field", "paradigm", "x")),
        ({"field": ["x", "y"], "paradigm": ["x", "z"]}, None),  # the same pairs by both names
        ({"field": ["x", "y"], "paradigm": ["near", "far"]}, None),
    ],
)
def test_a_group_of_minimal_pairs_is_not_the_union_of_two(columns, shared, tmp_path):
    size = len(columns["field"])
    sentences = {name: [f"{name} {i}" for i in range(size)] for name in TASKS["blimp"].text}
    write(tmp_path / "blimp/test.parquet", **sentences, **columns)
    if shared is None:
        assert len(read_examples(TASKS["blimp"], "test", data_root=tmp_path)) == size
        return
    first, second, value = shared
    assert error_of(TASKS["blimp"], tmp_path) == (
        f"task blimp: its group columns {first} and {second} both have the value {in_words(value)}, but on "
        "different pairs, expected other values in one of them, as each value has one score; write for example "
        f"{first}-{value} and {second}-{value}."
    )


def test_minimal_pairs_that_differ_in_white_space_alone_are_refused(tmp_path):
    pairs = {"sentence_good": ["a b", "if x:\n    y"], "sentence_bad": ["b a", "if x:\n  y"]}
    write(tmp_path / "blimp/test.parquet", **pairs, field=["x", "x"], paradigm=["y", "y"])
    assert error_of(TASKS["blimp"], tmp_path) == (
        "task blimp: example 2 of its test part has the same text on both sides once white space is single spaces "
        f"({in_words('if x: y')}), expected two different texts; remove it."
    )


def test_minimal_pairs_that_differ_in_how_letters_are_composed_alone_are_refused(tmp_path):
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    pairs = {"sentence_good": ["a b", composed], "sentence_bad": ["b a", decomposed]}
    write(tmp_path / "blimp/test.parquet", **pairs, field=["x", "x"], paradigm=["y", "y"])
    assert error_of(TASKS["blimp"], tmp_path) == (
        "task blimp: example 2 of its test part has the same text on both sides once white space is single spaces "
        f"and letters are composed (Unicode's NFC) ({in_words(composed)}), expected two different texts; "
        "remove it."
    )


def parts_of(tmp_path, task, train, test):
    """The error for a task whose training and test part have these answers."""
    for split, labels in (("train", train), ("validation", train), ("test", test)):
        sentences = [f"{i}" for i in range(len(labels))]
        columns = {"sentence": sentences} if len(task.text) == 1 else dict.fromkeys(task.text, sentences)
        write(tmp_path / task.files[split], **columns, label=labels)
    return error_text(DataError, lambda: all_examples(task.name, Source(tmp_path, None, f"{train} {test}")))


@pytest.mark.parametrize(
    ("changes", "content"),
    [
        ({}, "sentence\tlabel\n"),
        ({}, ""),
        ({"where": {"label": "2"}}, "sentence\tlabel\na\t1\n"),
        ({"divided_by": "sentence", "files": {"test": "one.tsv"}}, "sentence\tlabel\n0\t1\n"),
    ],
    ids=["head", "nothing", "where", "divided_by"],
)
def test_a_part_without_examples_is_refused(changes, content, tmp_path):
    assert _split_of_title("0") == "test"
    (tmp_path / "one.tsv").write_text(content)
    task = replace(TASKS["sst2"], **{"name": "my.yaml", "files": dict.fromkeys(SPLITS, "one.tsv")} | changes)
    for split in ("train", "validation"):
        assert error_of(task, tmp_path, split) == (
            f"task my.yaml: its {split} part has no examples; add some, check where and divided_by, or leave the "
            "task out."
        )


def test_a_value_that_is_missing_in_text_is_named_by_its_last_line(tmp_path):
    """As other errors of the file: the header is line 1, empty lines count, and a quoted field has several."""
    (tmp_path / "mine.csv").write_text('sentence,label\n\n"a\nb",pos\n,pos\n', encoding="utf-8")
    task = replace(TASKS["sst2"], name="my.yaml", files={"test": "mine.csv"})
    assert error_of(task, tmp_path) == (
        f"task my.yaml: {tmp_path / 'mine.csv'}, line 5: sentence is empty, expected a value; remove the row."
    )


def test_white_space_makes_no_other_class_or_tag(tmp_path):
    (tmp_path / "mine.csv").write_text('sentence,label\na,"pos "\nb,pos\nc,"very  good"\n', encoding="utf-8")
    task = replace(TASKS["sst2"], name="my.yaml", files={"test": "mine.csv"})
    assert read_examples(task, "test", data_root=tmp_path).answers == ["pos", "pos", "very good"]
    (tmp_path / "mine.jsonl").write_text(json.dumps({"tokens": ["a", "b"], "ner_tags": ["O ", "O"]}))
    tags = replace(TASKS["wikigold"], name="my.yaml", metric="accuracy", files={"test": "mine.jsonl"})
    assert read_examples(tags, "test", data_root=tmp_path).answers == [["O", "O"]]


@pytest.mark.parametrize("value", ["true", "True", "1", "1.0"])
def test_only_rows_that_where_keeps_must_be_complete(value, tmp_path):
    """Other rows of the file belong to other tasks, which may have other columns."""
    column = [True, None, False, True] if value.lower() == "true" else [1.0, None, 2.0, 1.0]
    write(tmp_path / "mine.parquet", sentence=["a", None, "c", "d"], label=["x", "y", None, "z"], kept=column)
    files = dict.fromkeys(SPLITS, "mine.parquet")
    task = replace(TASKS["sst2"], name="my.yaml", files=files, where={"kept": value})
    examples = read_examples(task, "test", data_root=tmp_path)
    assert (examples.first, examples.answers) == (["a", "d"], ["x", "z"])
    write(tmp_path / "mine.parquet", sentence=["a", None, "c", None], label=["x", "y", None, "z"], kept=column)
    assert error_of(task, tmp_path) == (
        f"task my.yaml: {tmp_path / 'mine.parquet'}, row 4: sentence is empty, expected a value; remove the row."
    )


@pytest.mark.parametrize("lacking", [0, 1, 2])
def test_an_object_without_a_column_has_a_gap_there(lacking, tmp_path):
    """The column is not missing from the file, and rows of other tasks need none."""
    rows = [{"sentence": "a", "label": 1, "of": "x"}, {"sentence": "c", "label": 0, "of": "x"}]
    rows.insert(lacking, {"sentence": "b", "of": "y"})
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = dict.fromkeys(SPLITS, "mine.jsonl")
    task = replace(TASKS["sst2"], name="my.yaml", files=files, where={"of": "x"})
    task.check_heads(tmp_path)
    assert read_examples(task, "test", data_root=tmp_path).first == ["a", "c"]
    assert error_of(replace(task, where={}), tmp_path) == (
        f"task my.yaml: {tmp_path / 'mine.jsonl'}, line {lacking + 1}: label is empty, expected a value; remove "
        "the row."
    )
    (tmp_path / "mine.jsonl").write_text("\n".join(json.dumps({"sentence": "a", name: 1}) for name in "uv"))
    for refuse in (lambda: task.check_heads(tmp_path), lambda: read_examples(task, "test", data_root=tmp_path)):
        assert error_text(DataError, refuse) == (
            f"task my.yaml: {tmp_path / 'mine.jsonl'} has no column 'of', only 'sentence', 'u', 'v'; name one of "
            "these in my.yaml, or leave the task out."
        )


@pytest.mark.parametrize("blank", ["", " ", "\t\u00a0"])
@pytest.mark.parametrize(("name", "column"), [("sst2", "sentence"), ("mrpc", "sentence1"), ("stsb", "sentence2")])
def test_texts_that_are_all_blank_are_refused(name, column, blank, tmp_path):
    task, place = TASKS[name], tmp_path / TASKS[name].files["test"]
    columns = {name: ["a", "b"] for name in task.text} | {"label": [0, 1]}
    write(place, **columns | {column: [blank, blank]})
    assert error_of(task, tmp_path) == (
        f"task {name}: all texts of its test part are blank in {column}; write the texts into this column, or "
        "leave the task out."
    )
    write(place, **columns | {column: [blank, "b"]})
    assert len(read_examples(task, "test", data_root=tmp_path)) == 2


@pytest.mark.parametrize(
    ("name", "labels", "answer"),
    [
        ("stsb", [-1.0, -1.0], "-1.0"),
        ("cola", [0, 0], '"0"'),
        ("wikigold", [["O", "O"], ["O"]], '"O"'),
    ],
)
def test_answers_that_tell_no_models_apart_are_refused(name, labels, answer, tmp_path):
    """A correlation with a constant, or F1 of no entities, is the same for all models that are not silent."""
    texts = [["a", "b"], ["c"]] if name == "wikigold" else ["a", "b"]
    columns = dict.fromkeys(TASKS[name].text, texts) | {TASKS[name].label: labels}
    write(tmp_path / TASKS[name].files["test"], **columns)
    assert error_of(TASKS[name], tmp_path) == (
        f"task {name}: its test part has no answer but {answer}, so {TASKS[name].metric} cannot tell models "
        "apart; write the right answers, or leave the task out."
    )


def test_a_part_without_a_class_of_the_training_part_is_refused(tmp_path):
    assert parts_of(tmp_path, TASKS["sst2"], [0, 1, 1], [-1, -1]) == (
        'task sst2: the test part ("-1") and the training part ("0", "1") have no class in common, so no '
        "answer can be right; write the same classes into all parts, or leave the task out."
    )
    assert parts_of(tmp_path, TASKS["trec"], [0, 1, 2, 3, 4, 5], [0.0, 1.0]) == (
        'task trec: the test part ("0.0", "1.0") and the training part ("0", "1", "2", "3", "4", ...) have no '
        "class in common, so no answer can be right; write the same classes into all parts, or leave the task "
        "out."
    )


def test_a_class_that_f1_is_about_and_nobody_can_learn_is_refused(tmp_path):
    assert parts_of(tmp_path, TASKS["mrpc"], ["same", "other"], ["same"]) == (
        'task mrpc: positive is "1", but the train part has only the classes "other", "same", so its F1 is 0; '
        "name a class of all parts, or add examples."
    )
    assert parts_of(tmp_path, TASKS["mrpc"], ["0", "1"], ["0"]) == (
        'task mrpc: positive is "1", but the test part has only the classes "0", so its F1 is 0; name a class of '
        "all parts, or add examples."
    )


def test_a_class_that_only_the_test_part_has_is_no_error(tmp_path):
    task = TASKS["sst2"]
    for split, labels in (("train", [0, 1]), ("validation", [1]), ("test", [1, 2])):
        write(tmp_path / task.files[split], sentence=["a"] * len(labels), label=labels)
    splits = all_examples("sst2", Source(tmp_path, None, "three"))
    assert splits["test"].answers == ["1", "2"]


def tree_of(*words):
    """Return the lines of a CoNLL-U sentence in which each word depends on the word before it."""
    return "".join(f"{i}\t{word}\t_\tX\t_\t_\t{i - 1}\tdep\t_\t_\n" for i, word in enumerate(words, start=1))


def texts_in(folder):
    tokenizer = train(["a b w 0 1 2 3 4 5 6 7 8 9"] * 5, 28, source="a test")
    return Texts(SimpleNamespace(tokenizer=tokenizer), SimpleNamespace(max_length=64), data_root=folder)


def test_copies_of_a_sentence_of_a_treebank_are_in_one_split(tmp_path):
    words = [f"w{i % 60}" for i in range(180)]
    (tmp_path / "a.conllu").write_text("".join(f"{tree_of('a', 'b', word)}\n" for word in words))
    probe = StructuralProbeSettings(kind="structural_probe", treebank="a.conllu")
    trees = trees_of(texts_in(tmp_path), probe)
    splits = {split: [tuple(tree.ids_T.tolist()) for tree in some] for split, some in trees.items()}
    assert sum(map(len, splits.values())) == 180
    counts = {split: len(set(some)) for split, some in splits.items()}
    assert sum(counts.values()) == 60
    assert counts["train"] > counts["test"] > 0 < counts["validation"]


# Subsets and the catalogue ---------------------------------------------------------------------------


def test_a_subset_is_random_in_order_and_holds_the_smaller_ones():
    examples = Examples([f"{i:04}" for i in range(1000)], None, None, list(range(1000)))
    few, more = (subset(examples, count, seed=0) for count in (50, 400))
    assert len(few) == 50
    assert set(few.first) < set(more.first)
    assert few.first == sorted(few.first)
    assert [int(text) for text in few.first] == few.answers
    assert abs(np.mean(more.answers) - 499.5) < 4 * 288.7 / 400**0.5  # standard errors of a uniform draw
    assert subset(examples, 400, seed=0) == more
    assert subset(examples, 400, seed=1).first != more.first
    assert subset(examples, 1000, seed=0) == examples


def test_some_examples_are_taken_with_all_that_is_theirs():
    words, groups = [["a"], ["b"], ["c"]], [("g",), ("h",), ("i",)]
    examples = Examples(list("abc"), list("xyz"), words, [1, 2, 3], groups, list("uvw"))
    assert examples.take([2, 0]) == Examples(
        ["c", "a"], ["z", "x"], [["c"], ["a"]], [3, 1], [("i",), ("g",)], ["w", "u"]
    )


def test_the_catalogue_says_which_tasks_suit():
    assert all(name == task.name for name, task in TASKS.items())
    tagging = chosen(lambda task: task.kind == "tagging", built_in=True)
    assert tagging == ("language_parts_of_speech", "language_noun_phrases")
    assert chosen(lambda task: task.kind == "span", built_in=False) == ("xquad",)
    for task in TASKS.values():
        assert bool(task.files) != task.built_in
        assert (task.kind == "span") == (task.start is not None)
        assert (task.metric == "f1") == (task.positive is not None)


@pytest.mark.skipif(not DATA.is_dir(), reason="needs the tasks of ../shared/data")
@pytest.mark.slow
@pytest.mark.parametrize("task", [task for task in TASKS.values() if task.files], ids=lambda task: task.name)
def test_the_shipped_files_of_every_task_can_be_read(task):
    assert task.problem(DATA) is None
    splits = SPLITS if task.kind != "minimal_pairs" else ("test",)
    assert all(len(read_examples(task, split, data_root=DATA)) > 100 for split in splits)
