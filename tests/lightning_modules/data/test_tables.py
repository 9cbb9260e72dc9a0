"""Every format gives the same rows; whatever is wrong in a file is a sentence with its place."""

import csv
import gzip
import json
import re
import tracemalloc
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightning_modules.data.tables import (
    Cells,
    Columns,
    check_head,
    column_names,
    file_source,
    format_of,
    numbered_lines,
    parquet_table,
    text_columns,
    whole_rows,
)
from lightning_modules.errors import DataError
from tests.support.errors import error_text

ROWS = [
    {"en": 'He said "no".', "de": 'Er sagte „nein".', "doc": "a", "other": "x"},
    {"en": '"Hello," she said, "you."', "de": '"Hallo", sagte sie, "du."', "doc": "a", "other": ""},
    {"en": "Zoë\u2019s\u2028café, 1,000; 日本語 🙂", "de": "", "doc": "b", "other": "y"},
    {"en": "", "de": "", "doc": "b", "other": "z"},
    {"en": '"', "de": '""', "doc": "c", "other": "z"},
]
COLUMNS = Columns("en", "de", "doc")


def write(path, rows):
    """Each format as the usual tools write it: pandas for tables, json for lines."""
    if path.name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
    elif ".jsonl" in path.name:
        _text(path, "".join(json.dumps(row, ensure_ascii=len(row["en"]) % 2 == 0) + "\n" for row in rows))
    else:
        separator = "," if ".csv" in path.name.lower() else "\t"
        _text(path, pd.DataFrame(rows).to_csv(sep=separator, index=False, quoting=csv.QUOTE_MINIMAL))
    return path


def _text(path, text):
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def cells(path, columns=COLUMNS):
    return list(file_source(path, columns).cells())


def sentence_of(path, columns=COLUMNS):
    return error_text(DataError, cells, path, columns)


ENDINGS = [".parquet", ".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".CSV"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_same_rows(tmp_path, ending):
    found = [cell[1:4] for cell in cells(write(tmp_path / f"text{ending}", ROWS))]
    assert found == [(row["en"], row["de"], row["doc"]) for row in ROWS]


@pytest.mark.parametrize("ending", ENDINGS)
def test_columns_that_are_not_asked_for_are_none(tmp_path, ending):
    path = write(tmp_path / f"text{ending}", ROWS)
    assert [cell[1:] for cell in cells(path, Columns("en"))] == [(row["en"], None, None, None) for row in ROWS]


def test_numbers_are_lines_of_the_file_or_rows_of_the_table(tmp_path):
    assert [c.number for c in cells(write(tmp_path / "a.parquet", ROWS))] == [1, 2, 3, 4, 5]
    assert [c.number for c in cells(write(tmp_path / "a.jsonl", ROWS))] == [1, 2, 3, 4, 5]
    assert [c.number for c in cells(write(tmp_path / "a.tsv", ROWS))] == [2, 3, 4, 5, 6]
    path = _text(tmp_path / "a.csv", 'en,de,doc\r\n"two\nlines",x,1\r\n\r\nlast,y,1\r\n')
    assert cells(path) == [Cells(3, "two\nlines", "x", "1"), Cells(5, "last", "y", "1")]


@pytest.mark.parametrize("ending", [".txt", ".txt.gz"])
def test_a_blank_line_of_plain_text_ends_a_document(tmp_path, ending):
    path = _text(tmp_path / f"a{ending}", "One.\r\nTwo \u2028 still two.\n\n \nThree.")
    assert cells(path, Columns("text")) == [
        Cells(1, "One.\r\n", None, 0),
        Cells(2, "Two \u2028 still two.\n", None, 0),
        Cells(5, "Three.", None, 2),
    ]


def test_columns_of_tsv_have_the_names_by_which_they_are_read(tmp_path):
    path = _text(tmp_path / "a.tsv", 'en\t"Oh," he said\na\tb\n')
    assert text_columns(path) == list(next(whole_rows(path))) == ["en", '"Oh," he said']
    path = _text(tmp_path / "a.csv", 'en,"Oh, he said"\na,b\n')
    assert text_columns(path) == list(next(whole_rows(path))) == ["en", "Oh, he said"]


def test_quotes_of_tsv_are_text_unless_the_file_says_otherwise(tmp_path):
    plain = _text(tmp_path / "a.tsv", 'en\tde\n"Hi!"\tsay "hi\n"Oh," he said\t"a "b" c"\n"say ""hi"""\t"""x"""\n')
    assert [c[1:3] for c in cells(plain, Columns("en", "de"))] == [
        ('"Hi!"', 'say "hi'),
        ('"Oh," he said', '"a "b" c"'),
        ('say "hi"', '"x"'),
    ]
    quoted = _text(tmp_path / "b.tsv", '"en"\t"de"\n"Hi!"\t"two\nlines"\n')
    assert [c[1:3] for c in cells(quoted, Columns("en", "de"))] == [("Hi!", "two\nlines")]


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    for ending in (".csv", ".tsv"):
        assert cells(_text(tmp_path / f"a{ending}", "\ufeffen\nx\n"), Columns("en"))[0].text == "x"
    assert cells(_text(tmp_path / "a.txt", "\ufeffx\n"), Columns("en"))[0].text == "x\n"


def test_a_column_inside_a_structure_is_named_with_a_dot(tmp_path):
    rows = [
        {"translation": {"en": "a", "de": "b"}, "dot.ted": 1},
        {"translation": {"en": "c", "de": "d"}, "dot.ted": 2},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    _text(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    for name in ("a.parquet", "a.jsonl"):
        found = cells(tmp_path / name, Columns("translation.en", "translation.de", "dot.ted"))
        assert found == [Cells(1, "a", "b", 1), Cells(2, "c", "d", 2)]


def test_a_structure_without_a_value_is_a_gap_in_every_format(tmp_path):
    rows = [{"en": "a", "m": {"d": "x"}}, {"en": "b", "m": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    _text(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    for name in ("a.parquet", "a.jsonl"):
        assert cells(tmp_path / name, Columns("en", document="m.d")) == [
            Cells(1, "a", None, "x"),
            Cells(2, "b", None, None),
        ]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_all_string_types_of_parquet_are_text(tmp_path, kind):
    pq.write_table(pa.table({"text": pa.array(["a", "b", "a"], kind)}), tmp_path / "a.parquet")
    assert [c.text for c in cells(tmp_path / "a.parquet", Columns("text"))] == ["a", "b", "a"]


def test_what_has_a_reader():
    known = {"a.TXT.gz": ".txt", "b.c.jsonl": ".jsonl", "a.JSONL.GZ": ".jsonl", "a.parquet": ".parquet"}
    assert {name: format_of(Path(name)) for name in known} == known
    assert [format_of(Path(name)) for name in ("a.json", "a", "gz", "a.parquet.gz", "a.gz")] == [None] * 5


# What can be wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_line_that_would_fill_the_memory_is_refused_before_it_is_read(tmp_path, name):
    """200 MB of zeros are 200 KB in a .gz."""
    with (gzip.open if name.endswith("gz") else open)(tmp_path / name, "wb") as file:
        file.write(b"short\n")
        for _ in range(200):
            file.write(bytes(10**6))
    tracemalloc.start()
    sentence = sentence_of(tmp_path / name, Columns("text"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sentence == f"{tmp_path / name}, line 2 is longer than 16 MiB; write one sentence in each line."
    assert peak < 60_000_000
    (tmp_path / "b.txt").write_bytes(b"x" * (2**24 - 1) + b"\n")
    assert sum(1 for _ in numbered_lines(tmp_path / "b.txt")) == 1


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.tsv", "a.txt.gz"])
def test_bytes_that_are_no_text_have_a_line_and_a_place(tmp_path, name):
    head = {"a.jsonl": b'{"en": "ok"}\n{"en": "'}.get(name, b"en\nok\n")
    data = head + "Zo\u00eb".encode("latin-1")
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    line, place = (2, 11) if name == "a.jsonl" else (3, 3)
    assert sentence_of(tmp_path / name, Columns("en")) == (
        f"{tmp_path / name}, line {line}: byte 0xeb at position {place} of the line is not UTF-8; convert the "
        "file to UTF-8, or remove the line."
    )


def test_a_time_that_python_does_not_know_is_one_sentence(tmp_path):
    times = pa.array([1, 2**62], pa.timestamp("us"))
    pq.write_table(pa.table({"en": ["a", "b"], "time": times}), path := tmp_path / "a.parquet")
    assert sentence_of(path, Columns("en", document="time")) == (
        f"{path}: column 'time' has a timestamp[us] that cannot be read (date value out of range); write the "
        "column as text or as numbers."
    )


def test_bytes_that_are_no_text_in_parquet_have_a_row(tmp_path):
    strings = pa.array([b"ok"] * 4999 + [b"Zo\xeb"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"en": strings}), path := tmp_path / "a.parquet")
    assert sentence_of(path, Columns("en")) == (
        f"{path}, row 5000: column 'en' is not UTF-8 at byte 3; write it as UTF-8."
    )


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_missing_column_lists_those_there_are(tmp_path, ending):
    path = write(tmp_path / f"a{ending}", ROWS)
    where = f"{path}, line 1" if "jsonl" in ending else str(path)
    for columns, sentence in (
        (Columns("En"), "no column 'En' (data.text), only {}; did you mean 'en'?"),
        (
            Columns("en", "french"),
            "no column 'french' (data.target), only {}; set data.target to one of these.",
        ),
        (Columns("en", "de", "docs"), "no column 'docs' (data.document), only {}; did you mean 'doc'?"),
    ):
        expected = f"{where} has " + sentence.format("'en', 'de', 'doc', 'other'")
        assert sentence_of(path, columns) == expected
        assert error_text(DataError, check_head, path, columns) == expected


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    pq.write_table(pa.Table.from_arrays([pa.array(["a"])] * 2, names=["en", "en"]), tmp_path / "a.parquet")
    for path in (_text(tmp_path / "a.csv", "en,en\na,b\n"), tmp_path / "a.parquet"):
        expected = f"{path} has 2 columns 'en' (data.text), expected one; rename the others."
        assert sentence_of(path, Columns("en")) == expected


def test_a_table_that_is_read_whole_has_no_column_twice(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array(["a"])] * 3, names=["id", "en", "en"]), path)
    calls = [
        lambda: parquet_table(path, ["en"], lambda _: None, damaged="", remedy=""),
        lambda: column_names(path, ()),
    ]
    for name, content in (
        ("a.csv", "en,id,en\na,1,b\n"),
        ("a.tsv", "en\tid\ten\n"),
        ("b.tsv", '"en"\t"en"\na\tb\n'),
    ):
        text = _text(tmp_path / name, content)
        calls += [lambda text=text: list(whole_rows(text)), lambda text=text: column_names(text, "z")]
    said = set()
    for call in calls:
        with pytest.raises(DataError) as caught:
            call()
        said.add(str(caught.value))
    names = ("a.parquet", "a.csv", "a.tsv", "b.tsv")
    assert said == {f"{tmp_path / name} has two columns 'en'; rename one." for name in names}


def test_an_object_that_is_read_whole_has_no_key_twice(tmp_path):
    path = _text(tmp_path / "a.jsonl", '{"en": "a", "id": 1}\n{"en": "a", "id": 1, "en": "b"}\n')
    assert (
        error_text(DataError, lambda: list(whole_rows(path)))
        == f"{path}, line 2 has two columns 'en'; rename one."
    )


def test_columns_without_a_name_may_be_several(tmp_path):
    path = _text(tmp_path / "a.csv", "en,,\na,1,2\n")
    assert [row["en"] for row in whole_rows(path)] == ["a"]


def test_a_parquet_column_of_another_type_is_refused(tmp_path):
    pq.write_table(pa.table({"en": [1, 2]}), path := tmp_path / "a.parquet")
    expected = (
        f"{path}: column 'en' (data.text) has values of type int64, expected text; name a column of strings."
    )
    assert sentence_of(path, Columns("en")) == expected
    assert error_text(DataError, lambda: check_head(path, Columns("en"))) == expected
    assert [c.text for c in cells(write(tmp_path / "b.parquet", ROWS), Columns("en"))]  # a counter-example


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"en": "a"', "this is not valid JSON (Expecting ',' delimiter); write one object in each line."),
        ("not json", "this is not valid JSON (Expecting value); write one object in each line."),
        (
            '["a", "b"]',
            """expected a JSON object with a key for each column, found ["a", "b"]; correct the line.""",
        ),
    ],
)
def test_a_line_that_is_no_json_object(tmp_path, line, what):
    path = _text(tmp_path / "a.jsonl", f'{{"en": "ok"}}\n\n{line}\n')
    assert sentence_of(path, Columns("en")) == f"{path}, line 3: {what}"


@pytest.mark.parametrize("line", ['{"en": "\\ud83d"}', '{"en": ' + "[" * 100_000, '{"en": ' + "9" * 5000 + "}"])
def test_json_that_python_cannot_hold_is_a_sentence_too(tmp_path, line):
    path = _text(tmp_path / "a.jsonl", f'{{"en": "\\ud83d\\ude42"}}\n{line}\n')
    assert sentence_of(path, Columns("en")).startswith(f"{path}, line 2: this is not valid JSON (")
    assert next(file_source(path, Columns("en")).cells()).text == "🙂"
    first = _text(tmp_path / "b.jsonl", f"{line}\n")
    assert error_text(DataError, text_columns, first).startswith(f"{first}, line 1: this is not valid JSON (")


def test_a_field_may_be_as_long_as_a_book(tmp_path):
    book = "word " * 40_000
    path = _text(tmp_path / "books.csv", f'en,de,doc\n"{book}",x,1\n')
    assert [cell.text for cell in cells(path)] == [book]


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(tmp_path):
    line = "word " * 200 + "\n"
    path = _text(tmp_path / "a.csv.gz", 'en\n"' + line * 40_000)
    tracemalloc.start()
    sentence = sentence_of(path, Columns("en"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    where = f"{path}, line {2 + (2**24 - 1) // len(line)}"
    assert sentence == (
        f"{where}: field larger than field limit (16777216); put fields with a separator, a quote or "
        "a line break in quotes, and double the quotes inside."
    )
    assert peak < 150_000_000  # characters of four bytes while the field grows


def test_a_row_with_too_few_or_too_many_fields(tmp_path):
    """In tsv a quote is a character like any other, so it holds neither tabs nor line breaks together."""
    in_quotes = ", or write .csv or .parquet if a field in quotes holds a tab or a line break"
    for name, text, count, otherwise in (
        ("a.csv", "en,de\na,b\nc\n", 1, ""),
        ("a.tsv", "en\tde\na\tb\nc\n", 1, in_quotes),
        ("b.tsv", 'en\tde\na\tb\n"a\nb"\tc\n', 1, in_quotes),
        ("c.tsv.gz", 'en\tde\na\tb\n"a\tb"\tc\n', 3, in_quotes),
    ):
        path = _text(tmp_path / name, text)
        assert sentence_of(path, Columns("en", "de")) == (
            f"{path}, line 3: expected 2 fields, one for each column of the first line, but found {count}; "
            f"correct the line{otherwise}."
        )


@pytest.mark.parametrize(
    ("row", "what"), [('"a" b,c\n', "',' expected after '\"'"), ('"never closed,c\n', "unexpected end of data")]
)
def test_wrong_quotes_in_csv(tmp_path, row, what):
    path = _text(tmp_path / "a.csv", f"en,de\na,b\n{row}")
    assert sentence_of(path, Columns("en")) == (
        f"{path}, line 3: {what}; put fields with a separator, a quote or a line break in quotes, and double "
        "the quotes inside."
    )


@pytest.mark.parametrize("ending", [".jsonl.gz", ".csv.gz", ".tsv.gz"])
def test_a_gz_file_cut_anywhere_is_a_sentence(tmp_path, ending):
    path = write(tmp_path / f"a{ending}", ROWS)
    whole = path.read_bytes()
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        sentence = sentence_of(path, Columns("en"))
        assert sentence.startswith(f"{path} cannot be read")
        assert sentence.endswith("; write or copy it again.")
    path.write_bytes(b"en\nno gz at all\n")
    assert sentence_of(path, Columns("en")) == (
        f"{path} cannot be read: Not a gzipped file (b'en'); write or copy it again."
    )


def test_a_parquet_file_cut_anywhere_is_a_sentence(tmp_path):
    path = write(tmp_path / "a.parquet", ROWS)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        where = rf"^{re.escape(str(path))} cannot be read as parquet: .*[^.]; write or copy it again\.$"
        with pytest.raises(DataError, match=where):
            cells(path)


def test_damage_inside_a_parquet_file_is_a_sentence(tmp_path):
    table = pa.table({"en": [f"sentence {i}" for i in range(20_000)]})
    pq.write_table(table, path := tmp_path / "a.parquet", write_page_checksum=True)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    where = rf"^{re.escape(str(path))} cannot be read as parquet: .*[^.]; write or copy it again\.$"
    with pytest.raises(DataError, match=where):
        cells(path, Columns("en"))


def test_the_head_alone_finds_what_the_head_shows(tmp_path):
    path = _text(tmp_path / "a.jsonl", '{"en": "ok"}\nbroken\n')
    check_head(path, Columns("en"))  # the second line is not looked at
    assert (
        error_text(DataError, lambda: check_head(_text(tmp_path / "a.txt.gz", ""), Columns("en")))
        == f"{tmp_path}/a.txt.gz is empty; give a file with one sentence in each line or row."
    )
