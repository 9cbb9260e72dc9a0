"""Files that a spec names and that do not fit: each is found before the first run, at its place in the spec."""

import json
import re

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from ablations.measures.information.estimate import halves
from ablations.measures.reading.sample import first_tokens
from lightning_modules.data.token_store import load
from lightning_modules.training.run_directory import RunDirectory
from tests.support.command_line import ablate, place_of, refusal_of
from tests.support.spec_files import write_spec


def test_missing_text_is_found_before_the_first_run(tmp_path, data_root, monkeypatch):
    spec = write_spec(tmp_path)
    result = ablate("run", spec, "--out", tmp_path / "out", "--data-root", tmp_path)
    assert result.exit_code == 2
    gone = "".join(
        f"{spec}:{place_of(spec, name + '.tsv', before=1)}: {tmp_path / name}.tsv does not exist "
        f"(data.{name}; relative paths "
        f"start at --data-root); correct the path.\n"
        for name in ("train", "validation")
    )
    assert result.stderr == gone
    assert not (tmp_path / "out").exists()
    assert ablate("validate", spec, "--no-files").exit_code == 0  # the spec alone is good
    result = ablate("validate", spec, "--data-root", tmp_path)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", gone)
    monkeypatch.chdir(tmp_path)
    assert ablate("validate", spec).stderr == gone  # where every command looks unless it is told otherwise
    assert ablate("validate", spec, "--data-root", data_root).stdout == f"{spec}: good, 4 runs\n"


def test_a_page_of_text_that_is_gone_can_be_written_from_the_folder_of_results(tmp_path):
    spec, folder = write_spec(tmp_path), tmp_path / "out" / "tried"
    options = spec, "--out", tmp_path / "out", "--data-root", tmp_path
    text_is_gone = refusal_of("report", *options)
    folder.mkdir(parents=True)
    (folder / "results.parquet").touch()
    assert refusal_of("report", *options) == (
        f"{text_is_gone}To write the page without these files, from the last results, start `ablate report "
        f"{folder}`.\n"
    )


def test_validate_finds_all_files_that_are_not_there_at_once(tmp_path):
    spec = tmp_path / "names.yaml"
    spec.write_text(
        "name: names\nversion: 1\ndata: {kind: files, train: a.csv, validation: a.csv, document: book}\n"
        "training: {max_steps: 2, tokens_per_step: 128}\nobjective: {kind: masked_lm}\n"
        "arms:\n  all: {}\n  more: {data: {train: [a.csv, b.csv]}}\n"
        "  words: {objective: {masking: {select: {kind: cloze, file: gone.txt}}}}\n"
        "  tags: {objective: {masking: {select: {kind: cloze, part_of_speech: [NOUN], treebank: t.parquet}}}}\n"
        "seeds: [0, 1]\nmeasures: [{kind: layer_change, treebank: gone.conllu}]\n"
    )
    (tmp_path / "a.csv").write_text("text\na dog barks\n")
    result = ablate("validate", spec, "--data-root", tmp_path)
    no_book = (
        f"{tmp_path}/a.csv has no column 'book' (data.document), only 'text'; set data.document to one of these."
    )
    root = "relative paths start at --data-root); correct the path."
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        f"{spec}:{place_of(spec, 'book')}: {no_book}",
        f"{spec}:{place_of(spec, '[a.csv')}: arm more: {tmp_path}/b.csv does not exist (data.train; {root}",
        f"{spec}:{place_of(spec, 'gone.txt')}: arm words: {tmp_path}/gone.txt does not exist "
        f"(objective.masking.select.file; {root}",
        f"{spec}:{place_of(spec, 't.parquet')}: arm tags: {tmp_path}/t.parquet does not exist "
        f"(objective.masking.select.treebank; {root}",
        f"{spec}:{place_of(spec, '{kind: layer_change')}: measure layer_change: {tmp_path}/gone.conllu does not "
        f"exist, expected a treebank; correct the path.",
    ]


@pytest.mark.parametrize(
    ("shared", "in_arms", "arms"),
    [(", tokenizer: their", "", ""), ("", "data: {tokenizer: their/}", "arms first and second: ")],
)
def test_a_tokenizer_that_is_refused_is_one_line_for_all_arms_that_have_it(shared, in_arms, arms, tmp_path):
    (tmp_path / "their").mkdir()
    Tokenizer(models.Unigram([("a", -1.0)], unk_id=0)).save(str(tmp_path / "their" / "tokenizer.json"))
    (tmp_path / "a.txt").write_text("a dog barks\n" * 40)
    spec = tmp_path / "names.yaml"
    spec.write_text(
        f"name: names\nversion: 1\ndata: {{kind: files, train: a.txt, validation: a.txt{shared}}}\n"
        "training: {max_steps: 2, tokens_per_step: 128}\nobjective: {kind: masked_lm}\nseeds: [0, 1]\n"
        f"arms:\n  first: {{{in_arms}}}\n  second: {{{in_arms}}}\n"
    )
    result = ablate("validate", spec, "--data-root", tmp_path)
    assert result.stderr == (
        f"{spec}:{place_of(spec, 'their')}: {arms}{tmp_path}/their: its tokenizer is of type Unigram, expected "
        "WordPiece or BPE; use another tokenizer.\n"
    )


def test_a_text_that_is_no_utf_8_is_said_once_where_its_file_is_named(tmp_path, data_root):
    (tmp_path / "old.txt").write_text("a dog barks\n", encoding="utf-16")
    (tmp_path / "good.txt").write_text("a dog barks\n")
    spec = write_spec(
        tmp_path,
        data={"kind": "files", "train": ["good.txt", "old.txt"], "validation": "good.txt", "vocab_size": 320},
        arms={"mlm": {"objective": {"kind": "masked_lm"}}, "clm": {"objective": {"kind": "causal_lm"}}},
    )
    assert ablate("validate", spec, "--data-root", tmp_path).stderr == (
        f"{spec}:{place_of(spec, '[' + chr(34) + 'good.txt')}: {tmp_path}/old.txt, line 1: byte 0xff at "
        "position 1 of the line is not UTF-8; convert the file to UTF-8, or remove the line.\n"
    )


def test_a_vocabulary_that_the_text_cannot_fill_is_said_at_its_line(tmp_path, data_root):
    data = json.loads(write_spec(tmp_path).read_text())["data"]
    spec = write_spec(tmp_path, data=data | {"vocab_size": 54321})
    result = ablate("run", spec, "--out", tmp_path / "out", "--data-root", data_root)
    assert result.exit_code == 2
    assert re.sub(r"(only|most) [\d,]+\d", r"\1 N", result.stderr) == (
        f"{spec}:{place_of(spec, '54321')}: data.vocab_size is 54,321, but the sentences of data.train give "
        "only N sub-words; lower it to at most N, or give more text.\n"
    )


def test_a_column_that_is_not_there_is_found_before_the_first_run(tmp_path, data_root):
    spec = write_spec(tmp_path)
    spec.write_text(spec.read_text().replace('"target": "target"', '"target": "german"'))
    result = ablate("run", spec, "--out", tmp_path / "out", "--data-root", data_root)
    assert result.exit_code == 2
    assert "german" in result.stderr
    assert "target" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_lexicon_that_is_not_there_is_found_with_its_line(tmp_path):
    spec = tmp_path / "needs.yaml"
    spec.write_text(
        "name: needs\nversion: 1\ndata: {kind: language, train: 300, vocab_size: 256}\n"
        "training: {max_steps: 2, tokens_per_step: 128}\nobjective: {kind: masked_lm}\n"
        "arms:\n  words: {objective: {masking: {select: {kind: cloze, file: gone.txt}}}}\nseeds: [0]\n"
    )
    assert refusal_of("plan", spec, "--out", tmp_path / "out", "--data-root", tmp_path) == (
        f"{spec}:{place_of(spec, 'gone.txt')}: arm words: {tmp_path}/gone.txt does not exist "
        f"(objective.masking.select.file; relative paths start at --data-root); correct the path.\n"
    )


def test_sentences_that_the_text_does_not_have_are_found_before_the_first_run(tmp_path, data_root):
    few, many = ({"training": {"sentences": count}, "objective": {"kind": "masked_lm"}} for count in (3, 10**6))
    for arm, sentence in (
        (
            many,
            "training.sentences is 1,000,000, but data.train has only {sentences:,} sentences; lower it, give "
            "more text, or remove the setting to use all sentences.",
        ),
        (
            few,
            "a step has 128 tokens (training.tokens_per_step), but the training text has only {tokens:,} in 3 "
            "sentences; give more text (data.train, training.sentences), or lower training.tokens_per_step.",
        ),
    ):
        spec = write_spec(tmp_path, arms={"part": arm})
        result = ablate("run", spec, "--out", tmp_path / "out", "--data-root", data_root)
        store = next(path for path in (tmp_path / "out/tokens").iterdir() if path.is_dir())
        text = load(store).train
        wanted = sentence.format(sentences=len(text), tokens=text.offsets[3])
        assert result.exit_code == 2
        assert result.stderr.partition(": ")[2].removeprefix("arm part: ") == wanted + "\n"
    assert not (tmp_path / "out/runs").exists()


def test_a_step_larger_than_the_text_is_found_before_the_first_run(tmp_path, data_root):
    spec = write_spec(tmp_path, training={"max_steps": 4, "tokens_per_step": 10**6})
    result = ablate("run", spec, "--out", tmp_path / "out", "--data-root", data_root)
    assert result.exit_code == 2
    store = next(path for path in (tmp_path / "out/tokens").iterdir() if path.is_dir())
    text = load(store).train
    assert result.stderr == (
        f"{spec}:{place_of(spec, '1000000')}: a step has 1,000,000 tokens (training.tokens_per_step), "
        f"but the training text has only {len(text.ids):,} in {len(text):,} sentences; give more text "
        "(data.train, training.sentences), or lower training.tokens_per_step.\n"
    )
    assert not (tmp_path / "out/runs").exists()


@pytest.mark.parametrize(
    ("measure", "sentence"),
    [
        (
            {"kind": "layer_change", "tokens": 2000},
            "layer_change needs at least 5 tokens per feature, which is 1280 at a width of 256, but got "
            "{there}; give more tokens or fewer features.",
        ),
        (
            {"kind": "token_information", "tokens": 100, "clusters": 50},
            "each half of the sentences needs at least 5 tokens per cluster, 250 with clusters = 50, but the "
            "halves hold {halves[0]} and {halves[1]}; give more tokens, "
            "or lower clusters to at most {enough_for}.",
        ),
    ],
)
def test_text_too_short_for_a_measure_is_found_before_the_first_run(tmp_path, data_root, measure, sentence):
    wide = {"num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 2}
    spec = write_spec(tmp_path, encoder=wide, measures=["validation", measure])
    result = ablate("run", spec, "--out", tmp_path / "out", "--data-root", data_root)
    assert result.exit_code == 2
    store = next(path for path in (tmp_path / "out/tokens").iterdir() if path.is_dir())
    sample = first_tokens(load(store).validation, measure["tokens"])
    there = len(sample.token_N)
    sizes = np.bincount(halves(sample.sentence_N, rng=np.random.default_rng(0).spawn(1)[0]))
    told = sentence.format(there=there, halves=sizes, enough_for=sizes.min() // 5)
    place = place_of(spec, json.dumps(measure))
    assert result.stderr == f"{spec}:{place}: measure {measure['kind']}: {told}\n"
    assert not (tmp_path / "out/runs").exists()


def test_text_too_short_for_a_measure_is_found_before_the_trials_of_tune(tmp_path, data_root):
    spec = write_spec(
        tmp_path,
        measures=["validation", {"kind": "layer_change", "tokens": 2000}],
        encoder={"num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 2},
        tune={"settings": {"training.learning_rate": [1e-3, 2e-3]}},
    )
    result = ablate("run", spec, "--out", tmp_path / "out", "--data-root", data_root)
    assert result.exit_code == 2
    assert (
        ": arms mlm,learning_rate=0.001, mlm,learning_rate=0.002, mt,learning_rate=0.001 and "
        "mt,learning_rate=0.002: measure layer_change: layer_change needs at least 5 tokens per feature"
        in result.stderr
    )
    assert not (tmp_path / "out/runs").exists()


@pytest.mark.parametrize(
    ("arm", "sentence"),
    {
        "{objective: {kind: masked_lm, masking: {select: {kind: cloze, words: [zzz]}}}}": (
            r"objective\.masking\.select: none of the words of the lexicon \(1\) occurs in data\.train, so "
            r"nothing could be hidden; give words that occur in the text\."
        ),
        "{objective: {kind: masked_lm, masking: {select: {kind: pmi, least_count: 1000000}}}}": (
            r"objective\.masking\.select: pmi needs word n-grams that occur at least 1000000 times "
            r"\(least_count\), but no two words of the training text \([\d,]+\) are neighbours "
            r"so often; lower least_count, or give more text\."
        ),
        "{objective: {kind: masked_lm, masking: {ratio: 0.01, select: {kind: cloze, words: [damen]}}}}": (
            r"objective\.masking\.select: the lexicon of cloze leaves 0\.\d+ tokens to predict in a step "
            r"\(training\.tokens_per_step = 128\), expected at least 1; give more frequent words, or raise "
            r"objective\.masking\.ratio\."
        ),
    }.items(),
    ids=["lexicon", "n-grams", "few words"],
)
def test_what_an_arm_needs_of_the_text_is_asked_before_any_run_starts(arm, sentence, tmp_path):
    spec = tmp_path / "needs.yaml"
    spec.write_text(
        "name: needs\nversion: 1\ndata: {kind: language, train: 300, validation: 100, test: 10, vocab_size: 256}\n"
        "encoder: {num_hidden_layers: 1, hidden_size: 8, num_attention_heads: 1}\n"
        "training: {max_steps: 2, tokens_per_step: 128}\n"
        f"arms:\n  fine: {{objective: {{kind: masked_lm}}}}\n  needy: {arm}\n"
        "seeds: [0]\nmeasures: [{kind: layer_change, tokens: 500}]\n"
    )
    result = ablate("run", spec, "--out", tmp_path / "out")
    assert result.exit_code == 2
    place = place_of(spec, arm, "select: ")
    assert re.fullmatch(re.escape(f"{spec}:{place}: arm needy: ") + sentence + "\n", result.stderr)
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.parametrize(
    ("text", "training", "at", "sentence"),
    [
        (
            "a dog barks\n\nthe cat is old\n\n" * 40,
            "{input_format: segment_pair}",
            "train.txt",
            "data.train: training.input_format = segment_pair needs documents of several sentences, but each "
            "document has one sentence; set data.document to the column of documents, or separate only "
            "documents by blank lines.",
        ),
    ],
)
def test_text_without_pairs_is_found_before_any_run_starts(text, training, at, sentence, tmp_path):
    for name in ("train.txt", "validation.txt"):
        (tmp_path / name).write_text(text)
    spec = tmp_path / "needs.yaml"
    spec.write_text(
        "name: needs\nversion: 1\ndata: {kind: files, train: train.txt, validation: validation.txt, vocab_size: "
        "30}\n"
        "encoder: {num_hidden_layers: 1, hidden_size: 8, num_attention_heads: 1}\n"
        "objective: {kind: masked_lm}\ntraining: {max_steps: 2, tokens_per_step: 128}\n"
        f"arms:\n  fine: {{}}\n  needy: {{training: {training}}}\nseeds: [0]\n"
    )
    assert (
        refusal_of("run", spec, "--out", tmp_path / "out", "--data-root", tmp_path)
        == f"{spec}:{place_of(spec, at)}: arm needy: {sentence}\n"
    )
    assert not (tmp_path / "out" / "runs").exists()


def test_all_arms_that_need_words_are_found_before_any_run_starts_and_then_in_the_plan(tmp_path, monkeypatch):
    for name in ("train.txt", "validation.txt"):
        (tmp_path / name).write_text("thedogbarks\nthecatisold\n" * 40)
    spec = tmp_path / "needs.yaml"
    spec.write_text(
        "name: needs\nversion: 1\ndata: {kind: files, train: train.txt, validation: validation.txt, vocab_size: "
        "30}\n"
        "encoder: {num_hidden_layers: 1, hidden_size: 8, num_attention_heads: 1}\n"
        "objective: {kind: masked_lm}\ntraining: {max_steps: 2, tokens_per_step: 128}\nseeds: [0, 1]\n"
        "arms:\n  fine: {}\n"
        "  span: {objective: {masking: {select: span}}}\n"
        "  wide: {encoder: {hidden_size: 16}, objective: {masking: {select: span}}}\n"
        "  word: {objective: {masking: {select: whole_word}}}\n"
        "  order: {training: {word_order: {kind: ngrams}}}\n"
        "  pieces: {training: {word_order: {kind: ngrams, unit: sub_words}}}\n"
    )
    no_words = (
        "needs words, but sentences with a space between two words hold only 0.0% of the tokens of data.train, "
        "expected at least half;"
    )
    uniform = f"{no_words} use uniform, which needs no words."
    refused = (
        f"{spec}:{place_of(spec, 'span}}}')}: arms span and wide: objective.masking.select: span {uniform}\n"
        f"{spec}:{place_of(spec, 'whole_word')}: arm word: objective.masking.select: whole_word {uniform}\n"
        f"{spec}:{place_of(spec, '{kind: ngrams}')}: arm order: training.word_order {no_words} set its unit to "
        "sub_words, which needs no words.\n"
    )
    where = ("--out", tmp_path / "out", "--data-root", tmp_path)
    assert ablate("plan", spec, *where).exit_code == 0  # no text is cut into tokens yet
    assert refusal_of("run", spec, *where) == refused
    assert not (tmp_path / "out" / "runs").exists()
    assert refusal_of("plan", spec, *where) == refused
    monkeypatch.setattr(RunDirectory, "is_trained", lambda directory: "-s1-" in directory.path.name)
    assert refusal_of("plan", spec, *where) == refused  # seed 0 is still to be trained


def test_skip_gram_on_sentences_of_one_token_is_refused_before_any_run_starts(tmp_path):
    for name in ("train.txt", "validation.txt"):
        (tmp_path / name).write_text("\n".join("abcde" * 40))
    spec = tmp_path / "needs.yaml"
    spec.write_text(
        "name: needs\nversion: 1\ndata: {kind: files, train: train.txt, validation: validation.txt, vocab_size: "
        "16}\n"
        "encoder: {num_hidden_layers: 1, hidden_size: 8, num_attention_heads: 1}\n"
        "training: {max_steps: 2, tokens_per_step: 128}\n"
        "arms:\n  fine: {objective: {kind: masked_lm}}\n  needy: {objective: {kind: skip_gram}}\nseeds: [0]\n"
    )
    result = ablate("run", spec, "--out", tmp_path / "out", "--data-root", tmp_path)
    assert result.exit_code == 2
    assert re.fullmatch(
        rf"{re.escape(str(spec))}:\d+:\d+: arm needy: skip_gram learns from pairs of words, but no sentence of "
        r"data\.train has two tokens; give text with longer sentences, or remove the arm\.\n",
        result.stderr,
    )
    assert not (tmp_path / "out" / "runs").exists()


def test_too_few_sentences_that_follow_each_other_are_found_before_any_run_starts(tmp_path):
    spec = tmp_path / "needs.yaml"
    spec.write_text(
        "name: needs\nversion: 1\ndata: {kind: language, train: 300, validation: 30, vocab_size: 256}\n"
        "encoder: {num_hidden_layers: 1, hidden_size: 8, num_attention_heads: 1}\n"
        "objective: {kind: masked_lm}\ntraining: {max_steps: 2, tokens_per_step: 128}\nseeds: [0]\n"
        "arms:\n  only: {}\nmeasures:\n  - {kind: retrieval, effort: quick}\n"
    )
    result = ablate("run", spec, "--out", tmp_path / "out")
    assert result.exit_code == 2
    said = result.stderr
    assert re.sub(r"has \d+ pairs", "has few pairs", said) == (
        f"{spec}:{place_of(spec, '{kind: retrieval')}: measure retrieval: "
        f"data.validation has few pairs of sentences that follow each other in a document and occur nowhere else, "
        "but next_sentence needs 40; give more text, or leave next_sentence out of the measure's tasks.\n"
    )
    assert not (tmp_path / "out" / "runs").exists()
