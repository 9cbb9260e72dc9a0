"""YAML 1.2's core schema, and where each value was written."""

import math

import pytest

from ablations import yamlfile
from ablations.yamlfile import plain_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # section 10.3.2 of the specification of YAML 1.2.2, its table of examples among them
        ("", None), ("~", None), ("null", None), ("Null", None), ("NULL", None), ("nUll", "nUll"),
        ("true", True), ("True", True), ("TRUE", True), ("false", False), ("tRue", "tRue"),
        ("0", 0), ("0o7", 7), ("0x3A", 58), ("-19", -19), ("+12", 12), ("010", 10),
        ("0o8", "0o8"), ("-0x1", "-0x1"),
        ("0.", 0.0), ("-0.0", -0.0), (".5", 0.5), ("+12e03", 12_000.0), ("-2E+05", -200_000.0), ("1e-4", 1e-4),
        (".inf", math.inf), ("-.Inf", -math.inf), ("+.INF", math.inf), ("inf", "inf"), ("nan", "nan"), (".", "."),
        # what YAML 1.1 would have read differently
        ("no", "no"), ("on", "on"), ("y", "y"), ("12:30:00", "12:30:00"), ("1_000", "1_000"), ("0b1", "0b1"),
        ("2001-12-14", "2001-12-14"), ("<<", "<<"), ("=", "="),
        # what Python's int() and float() would read, and YAML does not
        ("\u0661", "\u0661"), ("1e", "1e"), ("Infinity", "Infinity"), (" 1", " 1"),
        ("9" * 5000, "9" * 5000),
    ],
)  # fmt: skip
def test_unquoted_text_is_what_the_core_schema_says(text, value):
    found = plain_value(text)
    assert (type(found), found) == (type(value), value)


def test_nan_is_a_number():
    assert math.isnan(plain_value(".nan"))


def read(tmp_path, text):
    path = tmp_path / "a.yaml"
    path.write_bytes(text.encode())
    return yamlfile.read(path)


def test_quoted_text_stays_text_and_keys_always_are(tmp_path):
    document = read(tmp_path, "1: '1'\nno: \"true\"\nnull: |\n  12\n0.4: >-\n  no\n'': {~: x}\n")
    assert document.content == {"1": "1", "no": "true", "null": "12\n", "0.4": "no"}
    assert [problem.sentence for problem in document.problems] == ["a key is missing before this colon"]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_value_knows_its_line_and_column(tmp_path, newline):
    lines = ["# é", "name: x", "arms:", "  a: {b: [1, 22]}", "", "  c:", "    - d", "    - e: f", "empty:"]
    places = read(tmp_path, newline.join(lines)).places
    assert {path: (*place.key, *place.value) for path, place in places.items()} == {
        (): (2, 1, 2, 1),
        ("name",): (2, 1, 2, 7),
        ("arms",): (3, 1, 4, 3),
        ("arms", "a"): (4, 3, 4, 6),
        ("arms", "a", "b"): (4, 7, 4, 10),
        ("arms", "a", "b", 0): (4, 11, 4, 11),
        ("arms", "a", "b", 1): (4, 14, 4, 14),
        ("arms", "c"): (6, 3, 7, 5),
        ("arms", "c", 0): (7, 7, 7, 7),
        ("arms", "c", 1): (8, 7, 8, 7),
        ("arms", "c", 1, "e"): (8, 7, 8, 10),
        ("empty",): (9, 1, 9, 1),
    }


def test_a_byte_order_mark_is_no_text(tmp_path):
    document = read(tmp_path, "\ufeffname: x\n")
    assert document.content == {"name": "x"}
    assert document.places[("name",)].key == (1, 1)


def test_the_first_of_two_equal_keys_stays(tmp_path):
    document = read(tmp_path, "a: 1\nb: {c: 2, c: {a: [x, {y: z}]}, d: 3}\na: [4]\n")
    assert document.content == {"a": 1, "b": {"c": 2, "d": 3}}
    assert [(problem.line, problem.column, problem.sentence) for problem in document.problems] == [
        (2, 11, "c is written twice; the first is on line 2"),
        (3, 1, "a is written twice; the first is on line 1"),
    ]


def test_what_was_refused_is_known_to_be(tmp_path):
    document = read(tmp_path, "a: !x {b: 1}\nc: [!y 2, 3]\nd: 4\n")
    assert document.refused(("a",))
    assert document.refused(("a", "b"))
    assert document.refused(("c", 0))
    assert not any(
        document.refused(path) for path in [(), ("c",), ("c", 1), ("c", 9), ("d",), ("d", "e"), ("f", 0)]
    )


def test_a_key_may_be_text_that_yaml_1_1_would_merge_or_read_as_a_date(tmp_path):
    document = read(tmp_path, "%YAML 1.2\n---\n<<: {a: 012}\n2001-12-14: [1_000, off]\n.inf: .inf\n")
    assert document.content == {"<<": {"a": 12}, "2001-12-14": ["1_000", "off"], ".inf": math.inf}
    assert document.problems == ()


def test_half_a_character_is_refused(tmp_path):
    (problem,) = read(tmp_path, 'a: "\\ud800"\n').problems
    assert problem.sentence == "this text has half of a character (a lone surrogate); write the whole character"


def test_a_character_that_no_path_has_is_refused(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text('name: "a\\0b"\n')
    assert [str(problem) for problem in yamlfile.read(path).problems] == [
        f"{path}:1:7: this text has the character U+0000, which cannot be displayed; remove it"
    ]
