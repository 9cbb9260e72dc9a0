"""`ablate analyse`: from a Hugging Face folder and a text to a table and a page."""

import gzip
import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from ablations import results
from ablations.analyse.analyse import analyse
from ablations.analyse.measures import usual_measures
from ablations.analyse.model import load, untrained
from ablations.analyse.text import sentences
from ablations.errors import MeasureError
from ablations.measures.geometry import geometry
from ablations.measures.layer_change import layer_change
from ablations.measures.reading.sample import Sample, ranks
from ablations.measures.settings import (
    LayerChangeSettings,
)
from ablations.measures.token_information import information_rows
from ablations.runs.worker import measure
from lightning_modules.errors import DataError
from lightning_modules.export.folder import export, export_series
from reports.page import page
from tests.support import tiny_models
from tests.support.analysis import CHANGE, INFORMATION, NEAR, SHAPE, TEXT, notices, quietly
from tests.support.command_line import ablate, refusal_of
from tests.support.errors import error_text
from tests.support.start_here import start_here
from tests.support.tiny_models import WIDTH
from tests.support.tiny_text import settings

transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")


CHANGE_BY_TAG = CHANGE.model_copy(update={"groups": ("frequency", "part_of_speech")})


def by_hand(model, tokenizer, text):
    """The states of all letters and unknown words, a sentence at a time, and the sample, made without our code."""
    layers, token, sentence, position, left, right = [], [], [], [], [], []
    for number, line in enumerate(text):
        ids = tokenizer(line, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            states = model(input_ids=ids, output_hidden_states=True).hidden_states
        layers.append([state[0, 1:-1].numpy() for state in states])
        own = ids[0].tolist()
        token += own[1:-1]
        left += own[:-2]
        right += own[2:]
        sentence += [number] * (len(own) - 2)
        position += range(1, len(own) - 1)
    arrays = [np.array(values) for values in (token, sentence, position, left, right)]
    token_N = arrays[0]
    # As many ids as in the tokenizer, [CLS] and [SEP] no words to our measures: words stand at 5 and above.
    words = [5 if i == 1 else i + 1 for i in range(40)]
    shifted = [np.array(words)[token_N], *arrays[1:3]]
    beside = [np.array([2 if i == 2 else 3 if i == 3 else words[i] for i in side]) for side in (left, right)]
    sample = Sample(len(text), *shifted, *beside, ranks(np.bincount(shifted[0]))[shifted[0]])
    return [np.concatenate(layer) for layer in zip(*layers, strict=True)], sample


def compare(table, rows):
    """Every row is in the table, with its numbers."""
    for row in rows:
        at = pd.Series(True, index=table.index)
        for name in ("metric", "group", "layer", "layer_to"):
            at &= table[name].isna() if row.get(name) is None else table[name] == row[name]
        (found,) = table[at].to_dict("records")
        for name in ("value", "floor", "standard_error", "n", "d"):
            np.testing.assert_allclose(
                found[name], row[name], rtol=1e-4, atol=1e-5, err_msg=str(row)
            )  # float32 states


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_the_command_writes_what_the_measures_make_of_the_states_of_stock_classes(
    family, place, analysed, undrawn
):
    if family == "bert":
        (place, done), name = analysed, "bert"
    else:
        name = "tried"
        told = ("--text", place / "text.txt", "--out", place / "out", "--name", name)
        done = ablate("analyse", tiny_models.save(place / family, family), *told)
    folder = place / family
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == f"page: {place / 'out' / name / 'report.html'}"
    table = results.read(place / "out" / name / "results.parquet")
    assert set(table["arm"]) == {family, "untrained"}
    assert set(table["experiment"]) == {name}
    assert set(table["run_id"]) == {load(folder).run_id, untrained(load(folder), seed=0).run_id}
    tokenizer = tiny_models.tokenizer()
    of_all = table["group"].isna() & (table["measure"] != "token_information")
    assert set(table["n"][of_all]) == {sum(len(tokenizer.tokenize(line)) for line in TEXT)}
    model = tiny_models.model(family).eval()
    whole = model.encoder if family == "t5" else model
    before_norm = []
    if family == "t5":  # the stock class returns the last state after the norm: keep what goes into it
        whole.final_layer_norm.register_forward_hook(lambda _, inputs, __: before_norm.append(inputs[0][0, 1:-1]))
    layers, sample = by_hand(whole, tokenizer, TEXT)
    if family == "t5":
        layers[-1] = torch.cat(before_norm).numpy()
    for name, rows in (
        ("layer_change", layer_change(layers, sample, usual_measures(50_000, labelled=False)[0])),
        ("geometry", geometry(layers, sample)),
    ):
        compare(table[(table["arm"] == family) & (table["measure"] == name)], list(rows))


def test_information_and_neighbours_know_the_models_special_tokens(place):
    folder = tiny_models.save(place / "bert")
    table = quietly(folder, place, measures=[INFORMATION, NEAR])
    layers, sample = by_hand(tiny_models.model("bert").eval(), tiny_models.tokenizer(), TEXT)
    own = table[(table["arm"] == "bert") & (table["measure"] == "token_information")]
    assert set(own["group"].dropna()) == {"previous token", "next token"}
    compare(own, information_rows(layers, sample, INFORMATION))
    from ablations.measures.neighbours import neighbours

    compare(table[(table["arm"] == "bert") & (table["measure"] == "neighbours")], neighbours(layers, sample, NEAR))


def test_the_untrained_twin_is_in_the_table_and_differs(place):
    table = quietly(tiny_models.save(place / "gpt2", "gpt2"), place, measures=[CHANGE])
    twin = table[table["arm"] == "untrained"]
    assert (twin["step"] == 0).all()
    assert table["step"][table["arm"] == "gpt2"].isna().all()
    trained = table[table["arm"] == "gpt2"]
    assert len(twin) == len(trained)
    assert not np.isclose(twin["value"], trained["value"]).any()
    assert (trained["n"] >= 5 * WIDTH).all()


def test_the_step_is_in_the_table_where_the_trainer_has_left_it(place):
    folder = tiny_models.save(place / "bert")
    (folder / "trainer_state.json").write_text('{"global_step": 70}')
    table = quietly(folder, place, measures=[SHAPE])
    assert set(table["step"][table["arm"] == "bert"]) == {70}


# The page ---------------------------------------------------------------------------------------------


def test_the_page_says_what_was_measured_and_what_was_refused(analysed):
    place, done = analysed
    said = json.loads((place / "out/bert/report.json").read_text())
    assert said["question"] == "What does each layer of bert change, keep and lose?"
    assert said["summary"] == (
        "These models were measured as they are, without training: bert and untrained. The encoder has 3 "
        "layers of width 16 with 2 heads. untrained keeps its initial weights. Text: the first 120 sentences "
        "of text.txt: 40 sub-words in the vocabulary."
    )
    assert [(run["arm"], run["state"]) for run in said["runs"]] == [("bert", "done"), ("untrained", "done")]
    assert [arm["training"] for arm in said["arms"]] == ["unknown", "untrained"]
    texts = [notice["text"] for notice in said["notices"]]
    assert (
        texts[0]
        == "Whether bert is trained enough to interpret is unknown: it has no validation loss over the vocabulary."
    )
    assert texts.pop(1).startswith(f"the text repeats {len(TEXT) - len(set(TEXT))} sentences (")
    n = sum(len(line.split()) for line in TEXT)
    assert texts[1] == (
        f"layer_change: {n} tokens are {n / WIDTH:.0f} for each of the 16 units of the width, so chance changes "
        "its distances; to have 150 for each, give more text."
    )
    assert [text.rpartition(": ")[0] for text in texts[2:]] == [
        "layer_change",
        "token_information",
        "bert and untrained",
    ]
    assert "neighbours needs 2 types with 100 occurrences or more" in texts[4]
    for text in texts[1:]:
        assert text in done.stdout
    curves = {curve["arm"]: curve for curve in said["figures"][0]["panels"][0]["curves"]}
    assert "untrained" in curves["untrained"]["remarks"]
    assert set(curves) == {"bert", "untrained"}
    assert "transformers" in said["provenance"]["versions"]
    assert said["provenance"]["finished"] >= said["provenance"]["started"]
    assert f'analyse: "{place / "bert"}"' in said["spec"]


def test_cut_sentences_are_counted_on_the_console_and_on_the_page(place, undrawn):
    (place / "text.txt").write_text("\n".join([*TEXT, "a " * 50]) + "\n")
    (place / "asked.yaml").write_text("measures: [geometry]\n")
    told = ("--text", place / "text.txt", "--out", place / "out", "--measures", place / "asked.yaml")
    done = ablate("analyse", tiny_models.save(place / "bert"), *told)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "1 of 121 sentences are cut, because the model reads at most 40 tokens" in done.stdout
    plan = json.loads((place / "out/bert/plan.json").read_text())
    assert plan["data"]["cut"] == {"sentence": 1}


def test_the_page_says_that_states_are_those_before_a_final_norm(place):
    quietly(tiny_models.save(place / "gpt2", "gpt2"), place, measures=[SHAPE])
    said = json.loads((page.write(place / "out/gpt2").parent / "report.json").read_text())
    sentence = "The encoder has 3 layers of width 16 with 2 heads. States are read before its final norm."
    assert sentence in said["summary"]


# Labels -----------------------------------------------------------------------------------------------


def treebank(path, lines, *, tagged=True):
    """A vowel is a NOUN, any other letter a VERB, what is no letter has no tag; each hangs on the one before."""
    blocks = []
    for line in lines:
        rows = [f"# text = {line}"]
        for i, word in enumerate(line.split()):
            tag = "NOUN" if word in "aeiou" else "VERB" if len(word) == 1 else "_"
            tag = tag if tagged else "_"
            rows.append(
                "\t".join([str(i + 1), word, word, tag, "_", "_", str(i), "dep" if i else "root", "_", "_"])
            )
        blocks.append("\n".join(rows))
    path.write_text("\n\n".join(blocks) + "\n\n")
    return path


def test_labels_make_groups_by_part_of_speech(place, undrawn):
    labels = treebank(place / "gold.conllu", TEXT)
    folder = tiny_models.save(place / "bert")
    table = quietly(folder, place, labels=labels, measures=[CHANGE_BY_TAG, NEAR])
    groups = set(table["group"].dropna())
    assert {"tag NOUN", "tag VERB"} <= groups
    assert {"same_relation", "same_left_part"} <= set(table["metric"])
    words = " ".join(TEXT).split()
    counts = [
        sum(word in "aeiou" for word in words),
        sum(word not in "aeiou" and len(word) == 1 for word in words),
    ]
    assert set(table["n"][table["group"] == "tag NOUN"]) == {min(counts)}
    done = ablate("analyse", folder, "--text", place / "text.txt", "--labels", labels, "--out", place / "out")
    assert done.exit_code == 0
    assert "tag NOUN" in set(results.read(place / "out/bert/results.parquet")["group"].dropna())


def test_a_part_of_speech_with_one_type_leaves_out_only_its_change_from_embeddings_without_positions(place):
    text = [f"{'a ' * 4}{line}" for line in TEXT]
    (place / "text.txt").write_text("\n".join(text) + "\n")
    labels = treebank(place / "gold.conllu", text)
    labels.write_text(re.sub(r"\t([^a])\t(\1)\tNOUN", r"\t\1\t\2\tX", labels.read_text()))  # a alone is a noun
    asked = CHANGE.model_copy(update={"groups": ("part_of_speech",)})
    table = quietly(tiny_models.save(place / "deberta", "deberta-v2"), place, labels=labels, measures=[asked])
    of_model = table[table["arm"] == "deberta"]
    steps = {group: set(rows["layer"]) for group, rows in of_model.groupby("group", dropna=False)}
    assert steps["tag NOUN"] == {1, 2}
    assert steps["tag VERB"] == {0, 1, 2}
    assert set(of_model[of_model["group"].isna()]["layer"]) == {0, 1, 2}


def test_labels_without_parts_of_speech_leave_out_their_curves_and_say_so(place):
    labels = treebank(place / "gold.conllu", TEXT, tagged=False)
    table = quietly(tiny_models.save(place / "bert"), place, labels=labels, measures=[CHANGE_BY_TAG, NEAR])
    assert not table["group"].dropna().str.startswith("tag ").any()
    assert "same_relation" in set(table["metric"])
    sentence = "layer_change: the labels have no part of speech, so there is no curve by part of speech."
    assert sentence in notices(place)


def test_labels_of_another_text_are_refused(place):
    folder = tiny_models.save(place / "bert")
    other = [*TEXT[:3], "other words", *TEXT[4:]]
    labels = treebank(place / "gold.conllu", other)
    assert refusal_of(
        "analyse", folder, "--text", place / "text.txt", "--labels", labels, "--out", place / "out"
    ) == (
        f'{labels} has labels of another text than {place / "text.txt"}: sentence 4 is "other words" in the '
        f'labels and "{TEXT[3]}" in the text; give labels of these sentences in this order.\n'
    )
    assert not (place / "out").exists()


def test_text_and_labels_are_read_before_the_model(place):
    """Which may take minutes; here there is none."""
    folder, labels = place / "bert", place / "gold.conllu"

    def said(error, **options):
        return error_text(error, quietly, folder, place, **options)

    assert "is not a folder" in said(MeasureError)
    assert said(DataError, labels=labels).startswith(f"{labels} ")
    labels.write_text("1\tdamaged\n\n")
    assert said(DataError, labels=labels).startswith(f"{labels}")
    assert "labels of another text" in said(MeasureError, labels=treebank(labels, TEXT[1:]))
    assert "is not a folder" in said(MeasureError, labels=treebank(labels, TEXT))
    text = place / "none.txt"
    assert said(DataError, text=text) == f"{text} does not exist; give a file with text."


def test_marian_as_it_is_on_the_hub_has_a_table_and_no_labels(place):
    """Its tokenizer is a sentencepiece model, which does not say where its pieces stand in the text."""
    folder = tiny_models.save(place / "marian", "marian")
    tiny_models.save_sentencepiece(folder, tiny_models.sentencepiece_model())
    (place / "text.txt").write_text("\n".join(tiny_models.SENTENCES) + "\n")
    labels = treebank(place / "gold.conllu", tiny_models.SENTENCES)
    assert error_text(MeasureError, quietly, folder, place, labels=labels) == (
        "the model's tokenizer does not give the positions of its tokens in the text; give a model with a "
        "tokenizer.json, or leave --labels out."
    )
    assert not (place / "out").exists()
    table = quietly(folder, place, measures=[SHAPE])
    pieces = tiny_models.sentencepiece_model()
    assert table["n"].max() == sum(map(len, pieces.encode(tiny_models.SENTENCES)))


# Text -------------------------------------------------------------------------------------------------


def test_every_format_of_text_is_read_alike(tmp_path):
    lines = ['a "quoted"  word', "", "two, words"]
    expected = ['a "quoted" word', "two, words"]
    frame = pd.DataFrame({"id": [1, 2, 3], "text": lines})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame[["text"]].rename(columns={"text": "only"}).to_csv(tmp_path / "b.csv", index=False)
    (tmp_path / "a.tsv").write_text("id\ttext\n" + "".join(f"{i}\t{line}\n" for i, line in enumerate(lines)))
    (tmp_path / "a.txt").write_text("\n".join(lines))
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    nested = [json.dumps({"n": 1, "english": {"words": line}}) for line in lines]
    (tmp_path / "b.jsonl").write_text("\n".join(nested))
    for path in sorted(tmp_path.iterdir()):
        assert list(sentences(path)) == expected, path
    assert list(sentences(tmp_path / "b.jsonl", column="english.words")) == expected


def test_which_column_is_meant_must_be_clear(tmp_path):
    pq.write_table(pa.table({"de": ["ja"], "en": ["yes"], "n": [1]}), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text('{"de": "ja", "en": "yes", "n": 1}\n')
    for path in tmp_path.iterdir():
        assert list(sentences(path, column="en")) == ["yes"]
        for column in (None, "n"):
            wrong(
                path,
                f"{path} has no column {column or 'text'!r} with text (columns with text: 'de', 'en'); name one "
                "of these with --column.",
                column=column,
            )


def wrong(path, sentence, **options):
    assert error_text(DataError, lambda: list(sentences(path, **options))) == sentence


def test_text_that_cannot_be_read_is_a_sentence(tmp_path):
    wrong(tmp_path / "no.txt", f"{tmp_path / 'no.txt'} does not exist; give a file with text.")
    wrong(tmp_path, f"{tmp_path} is a folder; give a file with text.")
    (tmp_path / "a.pdf").write_text("a")
    wrong(
        tmp_path / "a.pdf",
        f"{tmp_path / 'a.pdf'} has an unknown ending, expected .parquet, .jsonl, .csv, .tsv or .txt (all except "
        "parquet also with .gz); convert or rename the file.",
    )
    (tmp_path / "a.txt").write_text(" \n\n")
    wrong(tmp_path / "a.txt", f"{tmp_path / 'a.txt'} has no sentences; give a file with text.")
    wrong(
        tmp_path / "a.txt",
        f"{tmp_path / 'a.txt'} is plain text, which has no columns; leave --column out.",
        column="text",
    )
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": 3}\n')
    wrong(
        tmp_path / "a.jsonl",
        f"{tmp_path / 'a.jsonl'}, line 2: column 'text' has 3, expected text; correct or remove this row.",
    )
    (tmp_path / "b.jsonl").write_text("[")
    wrong(
        tmp_path / "b.jsonl",
        f"{tmp_path / 'b.jsonl'}, line 1: this is not valid JSON (Expecting value); write one object in each "
        "line.",
    )


# A run of ours ----------------------------------------------------------------------------------------


VOITA_2019 = {
    "norm": "pre",
    "positions": "sinusoidal",
    "embedding": {"scale": True, "bias": True, "norm": False},
    "activation": "relu",
}


@pytest.mark.parametrize(
    ("kind", "sections"),
    [
        ("masked_lm", {}),
        ("causal_lm", {}),
        ("masked_lm", {"encoder": VOITA_2019, "objective": {"head": "linear"}}),
        ("translation", {"encoder": VOITA_2019, "objective": {"head": "linear"}}),
        ("replaced_token", {}),
    ],
    ids=["mlm", "clm", "mlm-voita", "mt-voita", "replaced"],
)
def test_an_exported_run_has_the_numbers_of_the_run(kind, sections, make_run, data_root, tokens, tmp_path):
    directory = make_run(settings(kind, training={"max_steps": 6}, **sections))
    start_here(directory, data_root=data_root)
    change = LayerChangeSettings(kind="layer_change", tokens=600)
    measure(directory, tokens, [change], data_root=data_root, say=lambda _: None)
    expected = pd.read_parquet(directory.path / "measures.parquet")
    if "group" in expected:  # rows after the final norm, which are of runs alone
        expected = expected[expected["group"].isna()]
    export(directory.path, tmp_path / "exported")
    told = {"text": data_root / "validation.tsv", "out": tmp_path / "analyses", "tokens": 600, "column": "text"}
    found = analyse(tmp_path / "exported", **told, measures=[change], say=lambda _: None)
    table = results.read(found / "results.parquet")
    assert not expected.empty
    own = table[(table["arm"] == "exported") & table["group"].isna()]
    compare(own, expected.astype(object).where(expected.notna(), None).to_dict("records"))


def test_a_folder_of_a_series_is_measured_at_its_step(make_run, data_root, tmp_path):
    directory = make_run(settings(training={"max_steps": 4}))
    start_here(directory, data_root=data_root)
    export_series(directory.path, tmp_path / "series")
    told = {"text": data_root / "validation.tsv", "out": tmp_path / "out", "tokens": 600, "column": "text"}
    change = LayerChangeSettings(kind="layer_change", tokens=600)
    for step in (2, 4):
        found = analyse(tmp_path / "series" / f"step-{step:08d}", **told, measures=[change], say=lambda _: None)
        table = results.read(found / "results.parquet")
        assert set(table.loc[table["arm"] == f"step-{step:08d}", "step"]) == {step}
