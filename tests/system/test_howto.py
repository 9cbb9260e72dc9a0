"""docs/start.md and docs/howto.md: quick commands run as they stand, others are checked."""

import ast
import re
import shlex
import shutil
from pathlib import Path

import click
import pandas as pd
import pytest
from click.testing import CliRunner

from ablations.cli import main
from ablations.runs.places import place
from lightning_modules.data.tokenizer import decode, read_tokenizer

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
QUICK = ("examples", "init", "validate", "plan", "claims", "status")
"""Commands that train nothing."""


def blocks(page):
    """The code of a page in its order: the language and the text of each block."""
    return re.findall(r"^```(\w+)\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def commands(text):
    """The words of each line of a block that calls `ablate`, without its comment."""
    lines = [shlex.split(line, comments=True) for line in text.splitlines()]
    return [line[1:] for line in lines if line[:1] == ["ablate"]]


def ablate(words):
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, f"ablate {shlex.join(words)}: {done.output}"
    return done.output


def follow(page):
    """Do what a page says: write its files, give its commands; those that train are checked instead."""
    given = []
    for language, text in blocks(page):
        if language == "yaml":
            name = re.match(r"# (\S+\.yaml)\n", text)[1]
            Path(name).write_text(text, encoding="utf-8")
        for words in commands(text) if language == "sh" else ():
            given.append(words)
            name, *arguments = words
            main.commands[name].make_context(name, list(arguments))  # an unknown option is an error
            if name in QUICK:
                ablate(words)
            elif name == "run":
                ablate(["validate", *(arguments if "--set" in words else arguments[:1])])
            if "--place" in words:
                place.load(Path(words[words.index("--place") + 1]), place.SlurmPlace, arms=[])
    return given


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with what the pages take for granted: a text, a spec of it and the template of a measure."""
    monkeypatch.chdir(tmp_path)
    sentences = [f"The {noun} {verb} {number} times ." for number in range(120) for noun in ("dog", "cat")
                 for verb in ("sees", "hears")]  # fmt: skip
    Path("sentences.txt").write_text("\n".join(sentences), encoding="utf-8")
    ablate(["init", "my-text.yaml", "--text", "sentences.txt"])
    shutil.copy(DOCS / "plugins" / "my_measures.py", tmp_path)
    return tmp_path


@pytest.mark.parametrize(("page", "sections"), [("start.md", 4), ("howto.md", 14)])
def test_commands_run_as_they_stand(page, sections, here):
    assert len(re.findall("^## ", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)) >= sections
    assert {"validate", "run"} <= {words[0] for words in follow(page)}


def test_the_claim_of_the_start_is_the_one_that_the_page_judges(here):
    follow("start.md")
    claim = (here / "claims" / "first.yaml").read_text(encoding="utf-8")
    assert 'says: "mlm-15 gains more on a guess without context than mlm-40."' in claim
    page = (DOCS / "start.md").read_text(encoding="utf-8")
    assert re.search(r"first-claim\n  contradicted; effect −", page)


def test_a_wrong_option_in_a_page_is_noticed(here, monkeypatch):
    monkeypatch.setattr("tests.system.test_howto.DOCS", here)
    for text, error in (("run my-text.yaml --sloths 4", "No such option"), ("validate no.yaml", "no.yaml")):
        (here / "wrong.md").write_text(f"```sh\nablate {text}  # comment\n```\n", encoding="utf-8")
        with pytest.raises((click.UsageError, AssertionError), match=error):
            follow("wrong.md")


def test_python_code_reads_a_published_table_and_trains_a_tokenizer_that_joins_vowel_signs(here):
    sentence = "\u0930\u093e\u091c\u093e \u0915\u093f\u0924\u093e\u092c."  # the words of Hindi for king and book
    (here / "my-text.txt").write_text(f"{sentence}\n" * 20, encoding="utf-8")
    folder = here / "out" / "article-tiny"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "experiments" / "results" / "article-tiny" / "results.parquet", folder)
    names: dict = {}
    for language, text in blocks("howto.md"):
        if language == "python":
            exec(compile(text, "howto.md", "exec"), names)
    assert isinstance(names["loss"], pd.DataFrame)
    assert set(names["loss"]["arm"]) == {"mlm", "clm", "mt", "untrained"}
    assert (here / "mine.svg").read_text(encoding="utf-8").count("<svg") == 1
    given = read_tokenizer(here / "my-tokenizer")
    tokenizer = given.renumbered(given.vocab_size(given.rows))
    assert len(tokenizer.encode(sentence).ids) == 3
    assert decode(tokenizer, tokenizer.encode(sentence).ids) == sentence


OF_THE_ENGINES = (
    *("waiting (", "(Resources)", "(PartitionConfig)", "(BadConstraints)", "(Nodes required", "requeued held"),
    *(
        "QOSMaxSubmit",
        "Slurm temporarily",
        "Unable to contact",
        "ModuleNotFoundError",
        "timed out during startup",
        "Session name",
    ),
    *("ray start", "ray status", "refuses: ..."),
)
"""Words of SLURM and of Ray in the symptoms of clusters.md."""


def test_symptoms_are_in_the_words_that_the_program_prints():
    """Parts of a symptom that are values (numbers, names of nodes, commands) are left out."""
    trees = [
        ast.parse(path.read_text(encoding="utf-8"))
        for folder in ("ablations", "lightning_modules")
        for path in (ROOT / folder).rglob("*.py")
    ]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    printed = "\n".join(node.value for node in nodes if isinstance(node.value, str))
    page = (ROOT / "docs/clusters.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| ([^|]*`[^|]*) \|", page, re.MULTILINE)
    quoted = [words for cell in cells for words in re.findall("`([^`]+)`", cell) if " " in words]
    ours = [words for words in quoted if not any(word in words for word in OF_THE_ENGINES)]
    assert len(ours) > 15
    values = r"\.\.\.|\d+|\b[A-Z]{3,}\b|Ray|is no job in the queue|was not started here"
    parts = {part.strip(" .:,") for words in ours for part in re.split(values, words)}
    assert [part for part in sorted(parts) if len(part) > 5 and part not in printed] == []


def test_no_page_is_longer_than_it_must_be():
    """A section of the how-tos is at most a screen."""
    page = (DOCS / "howto.md").read_text(encoding="utf-8")
    sections = page.split("\n## ")[1:]
    assert len(sections) == 14
    assert max(len(section.splitlines()) for section in sections) <= 35
