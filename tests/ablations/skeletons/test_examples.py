"""Examples: every shipped spec can be copied anywhere, and is valid there."""

import sys
from pathlib import Path

import pytest

from ablations.cli import main
from ablations.errors import SpecError
from ablations.skeletons import examples
from ablations.spec import load
from lightning_modules.errors import FilesError
from tests.support.command_line import ablate
from tests.support.errors import error_text

ROOT = Path(__file__).parents[3]


def run(*arguments):
    return ablate("examples", *arguments)


def test_lists_every_spec_with_its_cost_and_whether_it_needs_files():
    result = run()
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert [*lines] == sorted(path.stem for path in examples.SHIPPED.glob("*.yaml"))
    assert lines["smoke"].endswith(
        " Does every objective train, resume and get measured, from the text to the page?"
    )
    assert " 39 s " in lines["smoke"]
    assert "needs files" in lines["uses-small"]
    assert "needs files" not in lines["smoke"]


@pytest.mark.parametrize("columns", [80, 100])
def test_a_question_has_lines_of_its_own_in_a_narrow_terminal(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    main.commands["examples"].callback(None)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < columns
    (start,) = [i for i, line in enumerate(lines) if line.startswith("smoke ")]
    assert lines[start].split() == ["smoke", "39", "s"]
    question = [line for line in lines[start + 1 : start + 3] if line.startswith("  ")]
    assert " ".join(" ".join(question).split()) == (
        "Does every objective train, resume and get measured, from the text to the page?"
    )


@pytest.mark.parametrize("name", ["smoke", "cloze-words", "naive-bidirectional", "masking-ratio"])
def test_needs_files_where_its_text_is_of_files(name):
    """The list looks at the written spec, the sentence after a copy at the runs: both say the same."""
    listed = next(one for one in examples.examples() if one.name == name)
    assert bool(examples.files_of(examples.SHIPPED / f"{name}.yaml")) == listed.needs_files


@pytest.mark.parametrize("name", ["cloze-words", "norm-embedding-head"])
def test_every_spec_that_is_copied_is_valid_alone(name, tmp_path):
    """Also the specs that come along because a claim refers to them: load reads all files that a spec names."""
    files = examples.copy(name, tmp_path)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == set(files)
    assert files[0].stem == name
    for spec in tmp_path.glob("*.yaml"):
        assert load.load(spec).claims


def test_says_what_was_copied_which_files_are_missing_and_what_to_do_next(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("smoke")
    spec = "experiments/smoke.yaml"
    assert result.stdout == (
        f"{spec}: copied\nnext: `ablate validate {spec}`, `ablate plan {spec}` and `ablate run {spec}`\n"
    )
    result = run("masking-ratio")
    spec = "experiments/masking-ratio.yaml"
    sentence, following = result.stdout.splitlines()[-2:]
    assert sentence == (
        "The package does not contain the text of this experiment (tatoeba/en-de.train.parquet and "
        "tatoeba/en-de.validation.parquet): put these files into one folder and name it with --data-root; "
        f"{ROOT / 'NOTICE'} gives their sources."
    )
    assert following.startswith(f"next: `ablate validate {spec} --data-root FOLDER`, ")


def test_no_file_is_written_over_and_then_nothing_is_copied(tmp_path):
    claims = tmp_path / "claims" / "article.yaml"
    claims.parent.mkdir()
    claims.write_text("mine")
    assert error_text(FilesError, examples.copy, "article-tiny", tmp_path) == (
        f"{claims} already exists and differs from the example; move it away, or give the command in another "
        "folder."
    )
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [claims]
    claims.unlink()
    examples.copy("article-tiny", tmp_path)
    before = claims.stat().st_mtime_ns
    examples.copy("article-tiny", tmp_path)
    assert claims.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("smok", "did you mean smoke?"),
        ("xyz", "`ablate examples` lists all."),
        ("../x", "`ablate examples` lists all."),
    ],
)
def test_an_example_that_does_not_exist(name, hint, tmp_path):
    assert error_text(SpecError, examples.copy, name, tmp_path / "new") == f"there is no example {name}; {hint}"
    assert not (tmp_path / "new").exists()
