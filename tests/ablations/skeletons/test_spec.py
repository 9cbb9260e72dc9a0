"""First spec for a text of one's own: it passes all checks, and nothing that is there is lost."""

import itertools
import json

import numpy as np
import pytest
from rich.console import Console

from ablations.runs.prepare import prepare_text
from ablations.runs.workspace import Workspace
from ablations.skeletons.spec import SIZES, Text, count, name_from_file, steps_of, vocabulary_of, vocabulary_size
from ablations.spec import load
from lightning_modules.data import token_store
from lightning_modules.data.corpus import open_corpus
from lightning_modules.data.language import Language
from tests.support.command_line import ablate, refusal_of

SENTENCES = [(number, sentence) for number, sentence in Language(0).sentences("train", 900)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines, last = [], 0
    for number, sentence in SENTENCES:
        lines += [""] * (number != last) + [sentence.text]
        last = number
    (tmp_path / "Books 1.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    records = [{"de": s.text, "en": s.translated_text} for _, s in SENTENCES]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return tmp_path


def prepared(folder, spec):
    """Make the tokens and check the text as `ablate run` does before its first run."""
    workspace = Workspace.open(folder / spec, out=folder / "out", data_root=folder)
    prepare_text(workspace, workspace.planned, Console(quiet=True))
    return workspace


def test_the_spec_of_a_text_passes_all_checks_before_the_first_run(folder):
    result = ablate("init", "--text", "Books 1.txt")
    assert result.output == (
        "Books 1.yaml: written\nBooks 1-train.txt: written\nBooks 1-validation.txt: written\n"
        "next: read Books 1.yaml, then `ablate validate Books 1.yaml`, `ablate plan Books 1.yaml` and "
        "`ablate run Books 1.yaml`\n"
    )
    workspace = prepared(folder, "Books 1.yaml")
    assert workspace.experiment.name == "books-1"
    assert workspace.arms == ["mlm", "clm", "untrained"]
    assert workspace.experiment.seeds == (0, 1, 2)
    assert workspace.warnings() == []
    assert "# Written by `ablate init` from Books 1.txt: 900 sentences, " in (folder / "Books 1.yaml").read_text()


def test_the_two_parts_are_the_text_and_end_with_whole_documents(folder):
    ablate("init", "--text", "Books 1.txt")
    whole = (folder / "Books 1.txt").read_text()
    train, validation = ((folder / f"Books 1-{part}.txt").read_text() for part in ("train", "validation"))
    assert train + "\n" + validation == whole
    assert 0.02 <= len(validation.split()) / len(whole.split()) <= 0.12


def test_the_documents_held_out_are_about_a_twentieth_of_the_text(folder):
    """With documents of ten sentences and 50 sentences wanted, 100 were held out: a tenth of the text."""
    documents = ["\n".join(f"the dog number {i} of {part} saw a cat" for i in range(10)) for part in range(100)]
    (folder / "parts.txt").write_text("\n\n".join(documents))
    assert ablate("init", "--text", "parts.txt", "--arm", "mlm").exit_code == 0
    held_out = (folder / "parts-validation.txt").read_text().split("\n\n")
    assert [part.strip() for part in held_out] == documents[-5:]


def test_translations_need_the_column_that_holds_them(folder):
    assert (
        refusal_of("init", "it.yaml", "--text", "pairs.jsonl", "--arm", "mt", "--column", "de")
        == "--arm mt needs the column of the translations; name it with --target.\n"
    )
    assert ablate("init", "it.yaml", "--text", "pairs.jsonl").stderr == (
        f"{folder}/pairs.jsonl has text in de and en; name the column of the sentences with --column.\n"
    )
    result = ablate("init", "it.yaml", "--text", "pairs.jsonl", "--arm", "mt", "--arm", "mlm", "--target", "en")
    assert result.exit_code == 0, result.output
    assert prepared(folder, "it.yaml").arms == ["mt", "mlm", "untrained"]


def test_nothing_that_is_there_is_overwritten_without_a_word(folder):
    (folder / "it-train.txt").write_text("mine")
    assert (
        refusal_of("init", "it.yaml", "--text", "Books 1.txt")
        == "it-train.txt already exists; choose another name, or add --overwrite.\n"
    )
    assert not (folder / "it.yaml").exists()
    assert (folder / "it-train.txt").read_text() == "mine"
    assert ablate("init", "it.yaml", "--text", "Books 1.txt", "--overwrite").exit_code == 0


def test_a_text_for_validation_is_taken_as_it_is(folder):
    (folder / "v.txt").write_text("\n".join(s.text for _, s in SENTENCES[:400]))
    sizes = ["--seeds", 2, "--steps", 7, "--size", "small"]
    result = ablate("init", "it.yaml", "--text", "Books 1.txt", "--validation", "v.txt", *sizes)
    assert result.output.startswith("it.yaml: written\nnext: ")
    experiment = load.load(folder / "it.yaml")
    assert experiment.data["validation"] == "v.txt"
    assert (experiment.training["max_steps"], experiment.seeds) == (7, (0, 1))
    assert experiment.encoder["hidden_size"] == 256


def test_what_is_missing_is_said_in_a_sentence(folder):
    assert "Error: --text is missing; name your text file, as in --text sentences.txt." in ablate("init").stderr
    for option in ("--text", "--validation"):  # init has no --data-root and no data.train to speak of
        result = ablate("init", "--text", "Books 1.txt", option, "gone.txt")
        assert result.stderr.endswith(f"Error: Invalid value for '{option}': File 'gone.txt' does not exist.\n")
    (folder / "short.txt").write_text("a dog barks\n")
    assert ablate("init", "--text", "short.txt").stderr == (
        "short.txt: 3 words are too few for training, expected at least 2,000; give more text.\n"
    )


def test_on_a_terminal_it_asks_for_what_is_not_said(folder, monkeypatch):
    monkeypatch.setattr("ablations.commands.specs.is_asking", lambda: True)
    answers = ["gone.txt", "Books 1.txt", "mlm, gpt", "mlm, electra", "", "0", "1", "mine.yaml"]
    result = ablate("init", input="\n".join(answers) + "\n")
    assert result.exit_code == 0, result.output
    assert "Error: File 'gone.txt' does not exist." in result.output
    assert "Error: gpt is not one of mlm, clm, mt, mixture, electra, xlnet." in result.output
    assert "Size of the model (tiny, small, base) [tiny]: " in result.output
    assert "Error: 0 is not in the range x>=1." in result.output
    experiment = load.load(folder / "mine.yaml")
    assert (list(experiment.arms), experiment.seeds) == (["mlm", "electra", "untrained"], (0,))


def test_sizes_follow_the_text():
    small, large = (
        Text(5_000, 60_000, 6_000, 90, 1, 6_100),
        Text(2_000_000, 30_000_000, 400_000, 200, 1, 33_000),
    )
    assert vocabulary_size(small) == (1024, False)
    assert vocabulary_size(large) == (32_768, False)
    assert vocabulary_size(small._replace(sub_words=700)) == (122, True)
    assert steps_of(small, SIZES["tiny"], pieces=2.2) == (
        690,
        "optimiser steps; they read the text about 10 times",
    )
    assert steps_of(large, SIZES["tiny"], pieces=1.3) == (2000, "optimiser steps; they read 10% of the text")


@pytest.mark.parametrize(
    "words",
    [["the", "cat", "sees", "a", "dog."], ["ab", "cd", "e"], [f"{i / 100:.2f}" for i in range(1_000)]],
    ids=["one sentence", "three words", "numbers"],
)
def test_a_text_of_few_words_or_parts_of_words_gives_the_vocabulary_that_the_spec_asks_for(words, folder):
    rng = np.random.default_rng(0)
    lines = [" ".join(words), *(" ".join(rng.choice(words, 5)) for _ in range(600))]
    (folder / "few.txt").write_text("\n".join(lines) + "\n")
    assert ablate("init", "few.yaml", "--text", "few.txt").exit_code == 0
    workspace = Workspace.open(folder / "few.yaml", out=folder / "out", data_root=folder)
    data = workspace.planned[0].run.settings.data
    tokens = token_store.prepare(data, data_root=folder, store=folder / "store")
    assert tokens.tokenizer.get_vocab_size() == data.vocab_size


def test_measures_count_no_more_types_than_the_vocabulary_has(folder):
    rng = np.random.default_rng(0)
    words = ["".join(letters) for letters in itertools.product("acgt", repeat=3)]
    (folder / "dna.txt").write_text("".join(" ".join(rng.choice(words, 40)) + "\n" for _ in range(2_000)))
    assert ablate("init", "--text", "dna.txt", "--arm", "clm").exit_code == 0
    experiment = load.load(folder / "dna.yaml")
    assert experiment.question == "What does clm teach an encoder about this text?"
    (information,) = (measure for measure in experiment.measures if measure.kind == "token_information")
    assert information.types == information.clusters == experiment.data["vocab_size"] < 300


def test_text_without_spaces_between_words_is_not_taken_for_a_few_words(folder):
    rng = np.random.default_rng(0)
    words = ["".join(map(chr, rng.integers(0x4E00, 0x5200, size))) for size in rng.integers(1, 4, 3_000)]
    share_W = 1 / np.arange(1, 3_001)
    chosen = rng.choice(words, (2_000, 15), p=share_W / share_W.sum())
    (folder / "chinese.txt").write_text("\n".join("".join(line) for line in chosen) + "\n", encoding="utf-8")
    assert ablate("init", "--text", "chinese.txt").exit_code == 0
    data = prepared(folder, "chinese.yaml").planned[0].run.settings.data
    tokens = token_store.prepare(data, data_root=folder, store=folder / "out" / "tokens")
    rows = open_corpus(data, data_root=folder).rows("train")
    text = count(rows)
    vocabulary = vocabulary_of(rows, text)
    assert vocabulary.size == data.vocab_size
    assert text.words * vocabulary.pieces == len(tokens.train.ids) - 2 * text.sentences
    assert (tokens.train.lengths <= data.max_length).mean() >= 0.99


@pytest.mark.parametrize("alphabet", ["abcdefgh", "".join(map(chr, range(0x915, 0x939)))], ids=["Latin", "Hindi"])
def test_few_different_words_are_cut_into_many_sub_words_but_no_sentence_is_cut(alphabet, folder):
    """The vocabulary is small, so that a word is several sub-words in any script; here with vowel signs."""
    rng = np.random.default_rng(0)
    vowel = "\u093f" if alphabet[0] > "z" else ""
    words = [vowel.join(rng.choice(list(alphabet), 6)) for _ in range(40)]
    text = "".join(" ".join(rng.choice(words, 12)) + "\n" for _ in range(3_000))
    (folder / "few.txt").write_text(text, encoding="utf-8")
    assert ablate("init", "few.yaml", "--text", "few.txt").exit_code == 0
    data = prepared(folder, "few.yaml").planned[0].run.settings.data
    tokens = token_store.prepare(data, data_root=folder, store=folder / "out" / "tokens")
    assert tokens.report["splits"]["train"]["source"]["cut"] <= 0.01 * 3_000
    assert data.max_length / 2 <= tokens.train.lengths.max()  # and it is no larger than it must be


def test_translations_longer_than_their_sentences_decide_the_maximum_length(folder):
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefgh"), 5)) for _ in range(300)]
    rows = [
        {"text": " ".join(rng.choice(words, 4)), "target": " ".join(rng.choice(words, 30))} for _ in range(900)
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ["--text", "pairs.jsonl", "--target", "target", "--arm", "mt"]
    assert ablate("init", "pairs.yaml", *asked).exit_code == 0
    data = prepared(folder, "pairs.yaml").planned[0].run.settings.data
    tokens = token_store.prepare(data, data_root=folder, store=folder / "out" / "tokens")
    assert tokens.report["splits"]["train"]["target"]["cut"] <= 0.01 * 900


def test_a_text_of_one_line_is_refused_and_leaves_nothing(folder):
    (folder / "line.txt").write_text("a dog barks " * 1_000)
    before = sorted(folder.iterdir())
    assert ablate("init", "--text", "line.txt").stderr == (
        "line.txt: all text is one sentence, so no sentence can be held out for validation; write each "
        "sentence in a line or row of its own, or give other text with --validation.\n"
    )
    assert sorted(folder.iterdir()) == before


def test_names_of_experiments_are_those_of_files_in_small_letters(tmp_path):
    assert [name_from_file(tmp_path / f"{name}.yaml") for name in ("My Text", "runs", "é")] == [
        "my-text",
        "my-runs",
        "my-text",
    ]
