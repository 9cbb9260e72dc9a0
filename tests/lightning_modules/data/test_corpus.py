"""A corpus is its sentences, the same from every source; its address is their content and nothing else."""

import gzip
import hashlib
import json
import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightning_modules import files as disk
from lightning_modules.config import FilesData, HubData, LanguageData
from lightning_modules.data import corpus
from lightning_modules.data.corpus import LANGUAGE_VERSION, Row, check, content_address, open_corpus, problems
from lightning_modules.data.language import Language
from lightning_modules.errors import DataError
from tests.support.errors import error_text

PAIRS = [("One.", "Eins.", "x"), (" Two\t\n two ", "Zwei\u00a0zwei", "x"), ("", "", "x"), ("Three.", "Drei.", "y")]


def files(train, **more):
    return FilesData(kind="files", **{"train": train, "validation": train} | more)


def write_jsonl(path, rows, names=("text", "target", "document")):
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=False))) + "\n" for row in rows))
    return path.name


def rows_of(settings, root, split="train"):
    rows = open_corpus(settings, data_root=root).rows(split)
    return list(rows), rows.skipped


def sentence_of(settings, root):
    return error_text(DataError, rows_of, settings, root)


# Sentences -------------------------------------------------------------------------------------------


def test_sentences_are_one_line_with_single_spaces_and_empty_ones_are_counted(tmp_path):
    settings = files(write_jsonl(tmp_path / "a.jsonl", PAIRS), target="target", document="document")
    found, skipped = rows_of(settings, tmp_path)
    assert found == [Row("One.", "Eins.", 0), Row("Two two", "Zwei zwei", 0), Row("Three.", "Drei.", 1)]
    assert skipped == 1
    assert open_corpus(settings, data_root=tmp_path).has_target


def test_without_target_and_document_a_table_is_one_document_of_bare_sentences(tmp_path):
    settings = files(write_jsonl(tmp_path / "a.jsonl", PAIRS))
    assert rows_of(settings, tmp_path) == (
        [Row("One.", None, 0), Row("Two two", None, 0), Row("Three.", None, 0)],
        1,
    )
    assert not open_corpus(settings, data_root=tmp_path).has_target


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "csv", "tsv"])
def test_a_pair_is_skipped_whole(tmp_path, ending):
    """Half a pair would shift every translation after it."""
    rows = [("a", "A"), ("b", " "), ("b", ""), ("", "C"), ("d", "D")]
    table, path = pd.DataFrame(rows, columns=["text", "target"]), tmp_path / f"a.{ending}"
    if ending == "jsonl":
        write_jsonl(path, rows)
    elif ending == "parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, sep="," if ending == "csv" else "\t")
    assert rows_of(files(path.name, target="target"), tmp_path) == ([Row("a", "A", 0), Row("d", "D", 0)], 3)


def test_files_follow_each_other_and_each_starts_a_document(tmp_path):
    (tmp_path / "a.txt").write_text("\n\nA one.\nA two.\n\n\n\nA three.\n\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"B one.\n"))
    write_jsonl(tmp_path / "c.jsonl", [("C one.",), ("C two.",)])
    settings = files(["c.jsonl", str(tmp_path / "a.txt"), "b.txt.gz"])
    found, skipped = rows_of(settings, tmp_path)
    assert [(row.text, row.document) for row in found] == [
        ("C one.", 0),
        ("C two.", 0),
        ("A one.", 1),
        ("A two.", 1),
        ("A three.", 2),
        ("B one.", 3),
    ]
    assert skipped == 0  # blank lines are the end of a document, not sentences


def test_documents_are_contiguous_rows_of_a_file_and_rise_by_one_over_what_is_left(tmp_path):
    rows = [("a", "", -1), ("", "", "y"), ("b", "", -2), ("c", "", -2), ("d", "", [1])]
    settings = files([write_jsonl(tmp_path / "a.jsonl", rows)] * 2, document="document")
    assert [row.document for row in rows_of(settings, tmp_path)[0]] == [0, 1, 1, 2, 3, 4, 4, 5]


@pytest.mark.parametrize("names", [list("xyx"), [1, 2, 1], [[1], [2], [1]]])
def test_a_document_whose_rows_do_not_stand_together_is_refused(tmp_path, names):
    """Pairs of sentences from "different" documents could be of the same one."""
    write_jsonl(tmp_path / "a.jsonl", zip("abc", names, strict=True), names=("text", "document"))
    assert sentence_of(files("a.jsonl", document="document"), tmp_path) == (
        f"{tmp_path}/a.jsonl, line 3: document {names[0]!r} (column 'document') begins a second time, but the "
        "rows of a document must stand together; sort the rows by this column without changing their order inside "
        "a document, or give each document a name of its own."
    )


def test_white_space_is_no_name_of_a_document(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", [("a", "x"), ("b", " ")], names=("text", "document"))
    assert "line 2: there is a sentence in column 'text', but no document" in sentence_of(
        files("a.jsonl", document="document"), tmp_path
    )


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_sentence_without_a_document_is_refused(tmp_path, missing):
    """Such sentences were one document with their neighbours, whatever they are."""
    table = pa.table({"text": list("abc"), "document": pa.array([1.0, 2.0, missing], from_pandas=False)})
    pq.write_table(table, tmp_path / "a.parquet")
    write_jsonl(tmp_path / "a.jsonl", [("a", 1.0), ("b", 2.0), ("c", missing)], names=("text", "document"))
    (tmp_path / "a.csv").write_text("text,document\na,1\nb,2\nc,\n")
    for place in ("parquet, row 3", "jsonl, line 3", "csv, line 4"):
        name = "a." + place.partition(",")[0]
        assert sentence_of(files(name, document="document"), tmp_path) == (
            f"{tmp_path}/a.{place}: there is a sentence in column 'text', but no document in 'document'; write "
            "the name of its document, or remove the row."
        )


def test_splits_are_those_that_are_given_and_can_be_read_again(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", PAIRS)
    write_jsonl(tmp_path / "b.jsonl", PAIRS[3:])
    assert open_corpus(files("a.jsonl"), data_root=tmp_path).splits == ("train", "validation")
    opened = open_corpus(files("a.jsonl", test="b.jsonl"), data_root=tmp_path)
    assert opened.splits == ("train", "validation", "test")
    assert [row.text for row in opened.rows("test")] == ["Three."]
    rows = opened.rows("train")
    assert list(rows) == list(rows)
    assert rows.skipped == 1  # of the newest reading, not of both


def test_a_translation_that_is_null_is_refused(tmp_path):
    expected = (
        f"{tmp_path}/a.{{}}: there is a sentence in column 'text', but none in 'target'; add the translation, "
        "or remove the row."
    )
    pd.DataFrame({"text": ["a", "b"], "target": ["A", None]}).to_parquet(tmp_path / "a.parquet")
    assert sentence_of(files("a.parquet", target="target"), tmp_path) == expected.format("parquet, row 2")
    write_jsonl(tmp_path / "a.jsonl", [("a", "A"), ("b", None)])
    assert sentence_of(files("a.jsonl", target="target"), tmp_path) == expected.format("jsonl, line 2")


@pytest.mark.parametrize(
    ("column", "value", "found"),
    [
        ("text", None, "nothing (null)"),  # a missing translation has a sentence of its own
        ("text", 3.5, "3.5 (float)"),
        ("target", 3, "3 (int)"),
        ("target", ["a", "b"], "['a', 'b'] (list)"),
    ],
)
def test_a_value_that_is_no_text_has_a_line(tmp_path, column, value, found):
    good = {"text": "a", "target": "A"}
    (tmp_path / "a.jsonl").write_text(json.dumps(good) + "\n" + json.dumps(good | {column: value}) + "\n")
    assert sentence_of(files("a.jsonl", target="target"), tmp_path) == (
        f"{tmp_path}/a.jsonl, line 2: column '{column}' has {found}, expected text; correct or remove the row."
    )


def test_text_without_a_sentence_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("\n \n\t\n")
    write_jsonl(tmp_path / "b.jsonl", [("",), ("  ",)])
    assert sentence_of(files(["a.txt", "b.jsonl"]), tmp_path) == (
        f"{tmp_path}/a.txt, {tmp_path}/b.jsonl: all rows are empty (data.train); give a file with text."
    )


# The built-in language -------------------------------------------------------------------------------


def test_the_built_in_language_is_read_as_it_is_written():
    settings = LanguageData(kind="language", seed=3, train=40, validation=20, test=10)
    opened = open_corpus(settings, data_root=Path())
    assert opened.splits == ("train", "validation", "test")
    assert opened.has_target
    for split, count in (("train", 40), ("validation", 20), ("test", 10)):
        written = list(Language(3).sentences(split, count))
        found = list(opened.rows(split))
        assert [(r.text, r.target) for r in found] == [(s.text, s.translated_text) for _, s in written]
        assert [r.document for r in found] == [document for document, _ in written]
        assert len(found) == count


def test_a_change_of_the_language_needs_a_new_version():
    """Other sentences under an old address would be taken for the text that finished runs have seen: when this
    fails, count LANGUAGE_VERSION up and write the new hash beside it."""
    text = [
        (split, row)
        for seed in (0, 1)
        for split in ("train", "validation", "test")
        for row in open_corpus(
            LanguageData(kind="language", seed=seed, train=100, validation=50, test=50), data_root=Path()
        ).rows(split)
    ]
    digest = hashlib.sha256(json.dumps(text).encode()).hexdigest()[:16]
    assert (LANGUAGE_VERSION, digest) == (1, "660daa48d4426e0d")


# Before anything is read -----------------------------------------------------------------------------


def test_every_problem_is_found_at_once_without_reading_the_text(tmp_path):
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "empty.csv").write_text("")
    write_jsonl(tmp_path / "good.jsonl", PAIRS)
    (tmp_path / "other.csv").write_text("Target,document,texts\n")
    settings = files(
        ["missing.txt", "folder.txt", "a.json", "good.jsonl", "good.jsonl/a.txt"],
        validation="empty.csv",
        test="other.csv",
    )
    root = tmp_path
    absent = " does not exist (data.train; relative paths start at --data-root); correct the path."
    expected = [
        ("train", f"{root}/missing.txt{absent}"),
        (
            "train",
            f"{root}/folder.txt is a folder, but data.train of kind files must name files; name the files in it.",
        ),
        (
            "train",
            f"{root}/a.json has an unknown ending (data.train), expected .parquet, .jsonl, .csv, .tsv or .txt "
            "(all except parquet also with .gz); convert or rename the file.",
        ),
        ("train", f"{root}/good.jsonl/a.txt{absent}"),
        (
            "validation",
            f"{root}/empty.csv is empty (data.validation); give a file with one sentence in each line or row.",
        ),
        (
            "test",
            f"{root}/other.csv has no column 'text' (data.text), only 'Target', 'document', 'texts'; "
            f"did you mean 'texts'?",
        ),
    ]
    assert problems(settings, root) == expected
    for refused in (check, content_address, lambda s, r: open_corpus(s, data_root=r)):
        assert error_text(DataError, refused, settings, root) == "\n".join(sentence for _, sentence in expected)
    assert problems(files("good.jsonl"), root) == []


def test_a_missing_file_names_the_nearest_one_in_its_folder(tmp_path):
    (tmp_path / "validation_tok.txt").write_text("ek ro vi\n")
    (sentence,) = [
        text for _, text in problems(files(["validation.txt"], validation="validation_tok.txt"), tmp_path)
    ]
    assert sentence == (
        f"{tmp_path}/validation.txt does not exist (data.train; relative paths start at --data-root); "
        f"did you mean {tmp_path}/validation_tok.txt?"
    )
    for name in ("x.jsonl", "x\0.jsonl", "x\0/a.txt"):  # the system knows no names with the character NUL
        (sentence,) = [text for _, text in problems(files([name], validation="validation_tok.txt"), tmp_path)]
        absent = " does not exist (data.train; relative paths start at --data-root); correct the path."
        assert sentence == f"{tmp_path}/{name}{absent}"


@pytest.mark.parametrize("setting", ["target", "document"])
def test_plain_text_has_no_columns(tmp_path, setting):
    (tmp_path / "a.txt").write_text("a\n")
    assert sentence_of(files("a.txt", validation="a.txt", **{setting: "x"}), tmp_path).splitlines()[0] == (
        f"{tmp_path}/a.txt is plain text without columns, but data.{setting} names a column; use a file with "
        f"columns, or leave data.{setting} out."
    )


def test_a_file_that_may_not_be_read_is_a_sentence(tmp_path, monkeypatch):
    write_jsonl(tmp_path / "a.jsonl", PAIRS)
    monkeypatch.setattr(
        Path, "stat", lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    assert problems(files("a.jsonl"), tmp_path)[0] == (
        "train",
        f"{tmp_path}/a.jsonl cannot be read (data.train): Permission denied; correct the path.",
    )


# Identity --------------------------------------------------------------------------------------------


def test_the_address_follows_the_content_wherever_it_lies(tmp_path):
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        write_jsonl(folder / "one.jsonl", PAIRS)
        write_jsonl(folder / "two.jsonl", PAIRS[3:])
    (tmp_path / "b" / "one.jsonl").rename(tmp_path / "b" / "renamed.jsonl")
    base = content_address(files(["one.jsonl", "two.jsonl"]), tmp_path / "a")
    assert len(base) == 64
    same = files([str(tmp_path / "b" / "renamed.jsonl"), "two.jsonl"], validation=["renamed.jsonl", "two.jsonl"])
    assert content_address(same, tmp_path / "b") == base
    assert content_address(files(["one.jsonl", "two.jsonl"], vocab_size=300, max_length=9), tmp_path / "a") == base
    others = [
        files(["two.jsonl", "one.jsonl"]),
        files(["one.jsonl"]),
        files(["one.jsonl", "two.jsonl"], test="one.jsonl"),
        files(["one.jsonl", "two.jsonl"], target="target"),
        files(["one.jsonl", "two.jsonl"], document="document"),
        files(["one.jsonl", "two.jsonl"], text="target"),
    ]
    addresses = [content_address(settings, tmp_path / "a") for settings in others]
    assert len({base, *addresses}) == len(others) + 1


def test_the_same_bytes_in_another_format_are_another_text(tmp_path):
    (tmp_path / "a.txt").write_text("text\n")
    (tmp_path / "a.csv").write_text("text\n")
    assert content_address(files("a.txt"), tmp_path) != content_address(files("a.csv"), tmp_path)


def test_a_change_of_one_byte_is_seen_and_an_unchanged_file_is_hashed_once(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("abc\n")
    disk._sha256.cache_clear()
    hashed = []
    digest = hashlib.file_digest
    monkeypatch.setattr(
        hashlib, "file_digest", lambda stream, name: (hashed.append(stream.name), digest(stream, name))[1]
    )
    first = content_address(files("a.txt"), tmp_path)
    assert content_address(files("a.txt"), tmp_path) == first
    assert len(hashed) == 1  # train and validation are the same file
    before = path.stat()
    path.write_text("abd\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))  # the clock of a file system may be coarse
    assert content_address(files("a.txt"), tmp_path) != first
    assert len(hashed) == 2


def test_the_address_of_the_language_is_its_settings(tmp_path, monkeypatch):
    def at(**settings):
        return content_address(LanguageData(kind="language", **settings), tmp_path)

    assert at() == at(seed=0, vocab_size=500, max_length=32)
    assert len({at(), at(seed=1), at(train=99), at(validation=99), at(test=99)}) == 5
    base = at()
    monkeypatch.setattr(corpus, "LANGUAGE_VERSION", LANGUAGE_VERSION + 1)
    assert at() != base


def test_the_address_of_a_remote_data_set_is_its_commit(tmp_path):
    def at(**settings):
        return content_address(HubData(kind="hub", **{"path": "a/b", "revision": "0" * 40} | settings), tmp_path)

    assert at() == at(vocab_size=500)
    assert len({at(), at(path="a/c"), at(revision="1" * 40), at(name="x"), at(train="all"), at(text="t")}) == 6
