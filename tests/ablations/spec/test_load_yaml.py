"""A file that is no plain YAML mapping is one sentence, and nothing in it is constructed."""

import pytest

from tests.support.wrong_specs import SPEC, edited


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("", "1:1: this file is empty; start it with a name, as in `name: my-experiment`"),
        ("# nothing\n", "1:1: this file is empty; start it with a name, as in `name: my-experiment`"),
        ("- name: x\n", "1:1: this file must hold keys, as in `name: my-experiment`, but is a list"),
        ("name", "1:1: this file must hold keys, as in `name: my-experiment`, but is a single value"),
        (
            SPEC + "---\nname: y\n",
            "13:1: a second document starts here, but a file has only one; remove this `---`",
        ),
        (
            "%YAML 1.1\n---\nname: x\n",
            "1:1: this file declares YAML 1.1, but is read as YAML 1.2; remove the %YAML line",
        ),
        (
            "# a\n%YAML 1.3\n---\nname: x\n",
            "2:1: this file declares YAML 1.3, but is read as YAML 1.2; remove the %YAML line",
        ),
        (
            "name: a: b",
            "1:8: a colon is not expected here; check the indentation, and quote text with ': ' in it",
        ),
        ("arms:\n\tmlm: {}", "2:1: YAML cannot be indented with tabs; use spaces"),
        (
            "data: {kind: language\nseeds: [0]",
            "2:6: a comma or } is missing before this; its bracket was opened on line 1",
        ),
        ("seeds: [0, 1", "1:13: a comma or ] is missing before this; its bracket was opened on line 1"),
        ("arms:\n  a: {}\n b: {}", "3:2: this line does not fit what started on line 1; check the indentation"),
        ("name: 'x", "1:9: the quote opened on line 1 is never closed"),
        ("name: x\nversion", "2:8: a colon is missing after this key; write `key: value`"),
        ("name: @x", "1:7: text cannot start with @; put it in quotes"),
        (r'name: "a\qb"', r"1:10: \q means nothing in double quotes; use single quotes, or \\ for \ "[:-1]),
        (r'name: "\UFFFFFFFF"', r"1:8: this escape is not a character (the last one is \U0010FFFF); correct it"),
        ("name: }", "1:7: a value is missing here"),
        ("name: x\0", "1:8: the character U+0000 is not allowed in YAML; remove it"),
        (b"name: x\nquestion: caf\xe9\n", "2:14: the byte 0xe9 is not UTF-8; save the file as UTF-8"),
        ("name: x".encode("utf-16"), "1:1: the byte 0xff is not UTF-8; save the file as UTF-8"),
        (
            "a: " + "[" * 100_000,
            "1:36: this is nested more than 32 levels deep, but a spec needs about seven; check the indentation",
        ),
        (
            "# " + "x" * 2**18,
            "1:1: this file is larger than 256 KiB, but a spec is about a page of text; name another file",
        ),
    ],
)
def test_what_is_no_yaml_mapping_is_one_sentence(wrong, spec, expected):
    assert wrong(spec) == [expected]


def test_nothing_is_constructed_and_nothing_expands(wrong, tmp_path):
    spec = edited("question: Which objective?", f"question: !!python/object/apply:os.mkdir [{tmp_path}/made]")
    spec = spec.replace("seeds: [0, 1]", "seeds: !!set {0, 1}").replace("mlm: {}", "mlm: &arm {}\n  copy: *arm")
    assert wrong(spec) == [
        "3:11: tags such as !!python/object/apply:os.mkdir are not allowed; write the value without a tag",
        "9:8: anchors such as &arm are not allowed; write the value at each place",
        "10:9: aliases such as *arm are not allowed; write the value out",
        "12:8: tags such as !!set are not allowed; write the value without a tag",
    ]
    assert not (tmp_path / "made").exists()


def test_what_a_merged_alias_would_add_is_not_said_to_be_missing(wrong):
    spec = edited(
        "mlm: {}", "mlm: &arm {objective: {kind: masked_lm}}\n  copy: {<<: *arm, training: {max_steps: 5}}"
    )
    assert wrong(spec) == [
        "9:8: anchors such as &arm are not allowed; write the value at each place",
        "10:14: aliases such as *arm are not allowed; write the value out",
    ]


def test_aliases_that_would_grow_without_end_are_refused(wrong):
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 12))
    problems = wrong(f"name: x\nl0: &l0 [lol]\n{levels}")
    assert len([problem for problem in problems if "aliases such as" in problem]) == 99
