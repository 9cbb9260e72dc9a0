"""`ablate analyse`: from a Hugging Face folder and a text to a table and a page."""

import gzip
import json
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from ablations import results
from ablations.analyse import folder as analyse_folder
from ablations.analyse.analyse import analyse
from ablations.analyse.measures import STATES_BYTES, usual_measures, usual_tokens
from ablations.analyse.model import load, untrained
from ablations.analyse.text import sentences
from ablations.cli import main
from ablations.errors import DataError, MeasureError
from ablations.measures.geometry import geometry
from ablations.measures.layer_change import layer_change
from ablations.measures.reading.sample import Sample, ranks
from ablations.measures.settings import (
    GeometrySettings,
    LayerChangeSettings,
    NeighboursSettings,
    TokenInformationSettings,
)
from ablations.measures.token_information import information_rows
from ablations.runs.worker import measure
from lightning_modules.training.export import export
from lightning_modules.training.stop import StopRequest
from lightning_modules.training.train import start
from reports.page import page
from tests.support import tiny_models
from tests.support.tiny_models import WIDTH
from tests.support.tiny_text import settings

transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")

CHANGE = LayerChangeSettings.model_validate({"kind": "layer_change", "groups": ["frequency"]})
CHANGE_BY_TAG = CHANGE.model_copy(update={"groups": ("frequency", "part_of_speech")})
INFORMATION = TokenInformationSettings(
    kind="token_information", types=10, clusters=8, about=("input", "previous", "next")
)
NEAR = NeighboursSettings(kind="neighbours", types=10, occurrences=21, neighbours=5, neighbours_of_type=5)
SHAPE = GeometrySettings(kind="geometry")
TEXT = tiny_models.sentences(120, longest=12)


def ablate(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def place(tmp_path):
    """A folder with text.txt, and models beside it."""
    (tmp_path / "text.txt").write_text("\n".join(TEXT) + "\n")
    return tmp_path


def quietly(folder, place, **options):
    """The table of an analysis."""
    told = {"text": place / "text.txt", "out": place / "out", "measures": [CHANGE, INFORMATION, NEAR, SHAPE]}
    return results.read(analyse(folder, **(told | options), say=lambda _: None) / "results.parquet")


def notices(place, name="bert"):
    """What the page says of an analysis besides its numbers."""
    return json.loads((place / "out" / name / "plan.json").read_text())["notices"]


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
def test_the_command_writes_what_the_measures_make_of_the_states_of_stock_classes(family, place):
    folder = tiny_models.save(place / family, family)
    done = ablate("analyse", folder, "--text", place / "text.txt", "--out", place / "out", "--name", "tried")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == f"page: {place / 'out/tried/report.html'}"
    table = results.read(place / "out/tried/results.parquet")
    assert set(table["arm"]) == {family, "untrained"}
    assert set(table["experiment"]) == {"tried"}
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
        ("geometry", geometry(layers, sample, SHAPE)),
    ):
        compare(table[(table["arm"] == family) & (table["measure"] == name)], list(rows))


def test_information_and_neighbours_know_the_models_special_tokens(place):
    folder = tiny_models.save(place / "bert")
    table = quietly(folder, place)
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


def test_the_page_says_what_was_measured_and_what_was_refused(place):
    folder = tiny_models.save(place / "bert")
    done = ablate("analyse", folder, "--text", place / "text.txt", "--out", place / "out")
    assert done.exit_code == 0
    said = json.loads((place / "out/bert/report.json").read_text())
    assert said["question"] == "What does each layer of bert change, keep and lose?"
    assert said["summary"] == (
        "Models measured as they are, none trained here: bert and untrained. The encoder has 3 layers of width "
        "16 with 2 heads. untrained keeps its initial weights. Text: the first 120 sentences of text.txt: 40 "
        "sub-words in the vocabulary."
    )
    assert [(run["arm"], run["state"]) for run in said["runs"]] == [("bert", "done"), ("untrained", "done")]
    assert [arm["training"] for arm in said["arms"]] == ["unknown", "untrained"]
    texts = [notice["text"] for notice in said["notices"]]
    assert texts[0] == "Whether bert is trained enough to interpret is unknown: it has no validation loss."
    n = sum(len(line.split()) for line in TEXT)
    assert texts[1] == (
        f"layer_change: {n} tokens are {n / WIDTH:.0f} for each of the 16 units of the width, so that chance "
        f"moves its distances; to have 150, give more text."
    )
    assert [text.rpartition(": ")[0] for text in texts[2:]] == [
        "layer_change",
        "token_information",
        "bert and untrained",
    ]
    assert "neighbours needs 2 types of 100 occurrences or more" in texts[4]
    for text in texts[1:]:
        assert text in done.stdout
    curves = {curve["arm"]: curve for curve in said["figures"][0]["panels"][0]["curves"]}
    assert "untrained" in curves["untrained"]["remarks"]
    assert set(curves) == {"bert", "untrained"}
    assert "transformers" in said["provenance"]["versions"]
    assert said["provenance"]["finished"] >= said["provenance"]["started"]
    assert f'analyse: "{folder}"' in said["spec"]


def test_cut_sentences_are_counted_on_the_console_and_on_the_page(place):
    (place / "text.txt").write_text("\n".join([*TEXT, "a " * 50]) + "\n")
    done = ablate(
        "analyse", tiny_models.save(place / "bert"), "--text", place / "text.txt", "--out", place / "out"
    )
    assert done.exit_code == 0, (done.output, done.exception)
    assert "1 of 121 sentences cut at 40 tokens, the model's longest" in done.stdout
    plan = json.loads((place / "out/bert/plan.json").read_text())
    assert plan["data"]["cut"] == {"sentence": 1}


def test_the_page_says_that_states_are_those_before_a_final_norm(place):
    quietly(tiny_models.save(place / "gpt2", "gpt2"), place, measures=[SHAPE])
    said = json.loads((page.write(place / "out/gpt2").parent / "report.json").read_text())
    sentence = "The encoder has 3 layers of width 16 with 2 heads. States are those before its final norm."
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


def test_labels_make_groups_by_part_of_speech(place):
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


def test_labels_without_parts_of_speech_leave_out_their_curves_and_say_so(place):
    labels = treebank(place / "gold.conllu", TEXT, tagged=False)
    table = quietly(tiny_models.save(place / "bert"), place, labels=labels, measures=[CHANGE_BY_TAG, NEAR])
    assert not table["group"].dropna().str.startswith("tag ").any()
    assert "same_relation" in set(table["metric"])
    assert "layer_change: the labels have no part of speech, so that there is no curve by it." in notices(place)


def test_labels_of_another_text_are_refused(place):
    folder = tiny_models.save(place / "bert")
    other = [*TEXT[:3], "other words", *TEXT[4:]]
    labels = treebank(place / "gold.conllu", other)
    done = ablate("analyse", folder, "--text", place / "text.txt", "--labels", labels, "--out", place / "out")
    assert done.exit_code == 2
    assert done.stderr == (
        f'{labels} has labels of another text than {place / "text.txt"}: sentence 4 is "other words" there and '
        f'"{TEXT[3]}" here; give labels of these sentences in this order.\n'
    )
    assert not (place / "out").exists()


def test_text_and_labels_are_read_before_the_model(place):
    """Which may take minutes; here there is none."""
    folder, labels = place / "bert", place / "gold.conllu"

    def said(error, **options):
        with pytest.raises(error) as raised:
            quietly(folder, place, **options)
        return str(raised.value)

    assert "is no folder" in said(MeasureError)
    assert said(DataError, labels=labels).startswith(f"{labels} ")
    labels.write_text("1\tdamaged\n\n")
    assert said(DataError, labels=labels).startswith(f"{labels}")
    assert "labels of another text" in said(MeasureError, labels=treebank(labels, TEXT[1:]))
    assert "is no folder" in said(MeasureError, labels=treebank(labels, TEXT))
    text = place / "none.txt"
    assert said(DataError, text=text) == f"{text} does not exist; give a file with text."


def test_marian_as_it_is_on_the_hub_has_a_table_and_no_labels(place):
    """Its tokenizer is a sentencepiece model, which does not say where its pieces stand in the text."""
    folder = tiny_models.save(place / "marian", "marian")
    tiny_models.save_sentencepiece(folder, tiny_models.sentencepiece_model())
    (place / "text.txt").write_text("\n".join(tiny_models.SENTENCES) + "\n")
    labels = treebank(place / "gold.conllu", tiny_models.SENTENCES)
    with pytest.raises(MeasureError) as error:
        quietly(folder, place, labels=labels)
    assert str(error.value) == (
        "the model's tokenizer does not say where its tokens stand in the text; give a model with a "
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
                f"{path} has no column {column or 'text'!r} with text (with text: 'de', 'en'); name one "
                "with --column.",
                column=column,
            )


def wrong(path, sentence, **options):
    with pytest.raises(DataError) as error:
        list(sentences(path, **options))
    assert str(error.value) == sentence


def test_text_that_cannot_be_read_is_a_sentence(tmp_path):
    wrong(tmp_path / "no.txt", f"{tmp_path / 'no.txt'} does not exist; give a file with text.")
    wrong(tmp_path, f"{tmp_path} is a folder; give a file with text.")
    (tmp_path / "a.pdf").write_text("a")
    wrong(
        tmp_path / "a.pdf",
        f"{tmp_path / 'a.pdf'} has an ending that is not known, expected .parquet, .jsonl, .csv, .tsv or .txt, "
        f"all but parquet also with .gz; convert or rename the file.",
    )
    (tmp_path / "a.txt").write_text(" \n\n")
    wrong(tmp_path / "a.txt", f"{tmp_path / 'a.txt'} has no sentence; give a file with text.")
    wrong(
        tmp_path / "a.txt",
        f"{tmp_path / 'a.txt'} is plain text, which has no columns; leave --column out.",
        column="text",
    )
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": 3}\n')
    wrong(
        tmp_path / "a.jsonl",
        f"{tmp_path / 'a.jsonl'}, line 2: column 'text' holds 3, expected text; correct or remove it.",
    )
    (tmp_path / "b.jsonl").write_text("[")
    with pytest.raises(DataError, match=r"b\.jsonl cannot be read \(.+\); make or copy it again\.$"):
        list(sentences(tmp_path / "b.jsonl"))


# What is refused --------------------------------------------------------------------------------------


def break_weights(folder, name, value):
    """Put a value into a model's weights."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights[name].view(-1)[0] = value
    save_file(weights, path, metadata={"format": "pt"})
    return folder


def test_a_model_that_has_diverged_is_refused_with_its_first_broken_layer(place):
    name = "encoder.layer.1.output.dense.bias"
    folder = break_weights(tiny_models.save(place / "bert"), name, float("nan"))
    done = ablate("analyse", folder, "--text", place / "text.txt", "--out", place / "out")
    n = sum(len(line.split()) for line in TEXT)
    assert (done.exit_code, done.stderr) == (
        2,
        f"{folder}: {n:,} of {n:,} states of layer 2 hold NaN or infinity, as of a diverged training or of "
        f"damaged weights; give another checkpoint of the model.\n",
    )
    assert not (place / "out").exists()


def test_one_sentence_says_that_a_text_is_too_short_for_all(place):
    folder = tiny_models.save(place / "bert")
    (place / "text.txt").write_text("a\n")
    done = ablate("analyse", folder, "--text", place / "text.txt", "--out", place / "out")
    assert (done.exit_code, done.stderr) == (
        2,
        f"{place / 'text.txt'} has 1 token in 1 sentence, too few for any measure of a model of width 16; give at "
        f"least 80 tokens.\n",
    )


def test_sentences_of_one_token_have_no_neighbours_to_know_of(place):
    (place / "text.txt").write_text("\n".join("abcdefgh" * 20) + "\n")
    quietly(tiny_models.save(place / "bert"), place, measures=[SHAPE, INFORMATION])
    assert notices(place) == [
        "bert and untrained: token_information of the previous token needs a sentence of two tokens or more, but "
        "the text has none; use other text or ask `about` the input alone."
    ]


def test_a_pool_of_fewer_types_than_are_asked_for_says_so(place):
    quietly(tiny_models.save(place / "bert"), place, measures=[SHAPE, NEAR.model_copy(update={"types": 1000})])
    counts = Counter(" ".join(TEXT).split())
    types = sum(count >= 21 for count in counts.values())
    assert 2 <= types < 1000
    said = f"neighbours: {types} types and not 1,000, as the others occur fewer than 21 times; give more text."
    assert said in notices(place)


def test_a_page_of_next_to_no_tokens_says_what_it_is_worth(place):
    (place / "text.txt").write_text("a b\nb c\nc a\n")
    assert set(quietly(tiny_models.save(place / "bert"), place)["measure"]) == {"geometry"}
    assert notices(place)[0] == (
        "geometry: 6 tokens are fewer than 10 for each of the 16 units of the width, so that their number bounds "
        "or lowers both counts of dimensions; read them beside their floors and the untrained twin, and give more "
        "text."
    )


def test_short_texts_have_fewer_clusters_and_say_so(place):
    done = ablate(
        "analyse", tiny_models.save(place / "bert"), "--text", place / "text.txt", "--out", place / "out"
    )
    assert done.exit_code == 0
    table = results.read(place / "out/bert/results.parquet")
    own = table[table["measure"] == "token_information"]
    (clusters,) = own["d"].unique()
    # Of the tokens that have one before and one behind them, ten for each cluster in either half.
    assert own["n"].min() / 20 * 0.8 < clusters <= own["n"].min() / 20
    assert (
        f"token_information: {clusters} clusters and not the usual 1,000; its numbers compare with those of as "
        f"many clusters and tokens."
    ) in notices(place)


def test_groups_that_are_too_small_are_named(place):
    quietly(tiny_models.save(place / "bert"), place, measures=[CHANGE])
    words = Counter(" ".join(TEXT).split())
    rare = sum(count for _, count in words.most_common()[25:])
    assert notices(place)[-1] == (
        f"layer_change: groups with fewer than 160 tokens have no curve, which are rank 26-50 ({rare}); give more "
        f"text."
    )


def test_the_measures_may_come_from_a_file(place):
    folder, asked = tiny_models.save(place / "bert"), place / "asked.yaml"
    told = ("analyse", folder, "--text", place / "text.txt", "--out", place / "out", "--measures", asked)
    asked.write_text(
        "measures:\n  - geometry\n  - {kind: token_information, types: 10, clusters: 7}\n  - read_out\n"
    )
    assert ablate(*told).exit_code == 0
    table = results.read(place / "out/bert/results.parquet")
    assert set(table["measure"]) == {"geometry", "token_information", "read_out"}
    assert set(table["d"][table["measure"] == "token_information"]) == {7}
    asked.write_text("measures:\n  - validation\n  - {kind: geometry, cluster: 7}\n")
    done = ablate(*told)
    assert (done.exit_code, done.stderr) == (
        2,
        f"{asked}:2:5: an entry of measures must be of kind layer_change, token_information, read_out, "
        f'neighbours, geometry or minimal_pairs, but is "validation"\n'
        f"{asked}:3:22: measures.geometry.cluster is unknown; measures.geometry of kind geometry takes "
        f"checkpoints, tokens and kind\n",
    )


def test_a_file_of_measures_may_not_say_what_the_command_says(place):
    folder, asked = tiny_models.save(place / "bert"), place / "asked.yaml"
    told = ("analyse", folder, "--text", place / "text.txt", "--out", place / "out", "--measures", asked)
    asked.write_text(
        "measures:\n  - {kind: geometry, checkpoints: all}\n  - kind: layer_change\n    tokens: 500\n"
        "    treebank: gold.conllu\n"
    )
    done = ablate(*told)
    assert (done.exit_code, done.stderr) == (
        2,
        f"{asked}:2:22: measures.geometry.checkpoints is not asked for here: the folder holds one state of its "
        f"model; leave it out\n"
        f"{asked}:4:5: measures.layer_change.tokens is not asked for here: --tokens says how many are read, the "
        f"same for all measures; leave it out\n"
        f"{asked}:5:5: measures.layer_change.treebank is not asked for here: --labels gives the treebank of the "
        f"text; leave it out\n",
    )
    asked.write_text("measures:\n  - {kind: layer_change, groups: [frequency, part_of_speech]}\n")
    done = ablate(*told)
    assert (done.exit_code, done.stderr) == (
        2,
        "layer_change: groups has part_of_speech, of which a text alone says nothing; give --labels, or leave "
        "part_of_speech out.\n",
    )
    asked.write_text("measures:\n  - {kind: token_information, about: [output], clusters: 8}\n")
    done = ablate(*told)
    assert (done.exit_code, done.stderr) == (
        2,
        "token_information: about has output, but what a model from elsewhere is to predict is not known; leave "
        "output out, and ask for next where it is the token behind.\n",
    )
    assert not (place / "out").exists()


def test_usual_tokens_follow_the_width_as_far_as_memory_goes():
    assert usual_tokens(width=128, layers=5) == 50_000
    assert usual_tokens(width=768, layers=13) == 150 * 768
    large = usual_tokens(width=1600, layers=49)
    assert large * 1600 * 49 * 4 <= STATES_BYTES < (large + 1) * 1600 * 49 * 4


def test_too_few_tokens_for_a_measure_leave_the_others(place):
    (place / "text.txt").write_text("\n".join(TEXT[:8]) + "\n")
    table = quietly(tiny_models.save(place / "bert"), place)
    assert set(table["measure"]) == {"geometry"}
    with pytest.raises(MeasureError) as error:
        quietly(place / "bert", place, measures=[CHANGE], name="nothing")
    there = sum(len(line.split()) for line in TEXT[:8])
    assert str(error.value) == (
        f"layer_change needs at least 5 tokens per feature, 80 at a width of 16, but got {there}; give more "
        "tokens or fewer features."
    )
    assert not (place / "out/nothing").exists()


def test_doubts_of_a_measure_are_told(place):
    (place / "text.txt").write_text("\n".join(TEXT[:20]) + "\n")
    quietly(tiny_models.save(place / "bert"), place, measures=[CHANGE])
    told = [notice for notice in notices(place) if "PWCCA" in notice]
    n = sum(len(line.split()) for line in TEXT[:20])
    assert told == [
        f"bert and untrained: layer_change: PWCCA of {n} tokens at a width of 16: below 10 tokens per feature "
        f"most of a weak similarity is chance; show its floor beside it."
    ]


def test_what_is_asked_for_wrongly_ends_with_2_and_a_sentence(place):
    folder = tiny_models.save(place / "bert")
    text = place / "text.txt"
    text.write_text("[SEP]\n")
    done = ablate("analyse", folder, "--text", text, "--out", place / "out")
    assert (done.exit_code, done.stderr) == (
        2,
        f"the tokenizer of {folder} makes no token of the text, special ones apart; give text in the language of "
        f"the model.\n",
    )
    loose = tiny_models.save(place / "t5", "t5")
    text.write_text("a " * 300)
    done = ablate("analyse", loose, "--text", text, "--tokens", 200, "--out", place / "out")
    assert (done.exit_code, done.stderr) == (
        2,
        f"{text}: the first sentence has 300 tokens, more than the 200 to be measured; raise --tokens.\n",
    )
    done = ablate("analyse", place, "--text", text, "--out", place / "out")
    assert (done.exit_code, done.stderr) == (
        2,
        f"{place} has no config.json, so it holds no Hugging Face model; `ablate export` makes one of a run.\n",
    )
    assert ablate("analyse", folder).exit_code == 2
    assert not (place / "out").exists()


def test_an_experiment_is_not_overwritten_but_an_earlier_analysis_is(place):
    folder = tiny_models.save(place / "bert")
    (place / "out/bert").mkdir(parents=True)
    (place / "out/bert/plan.json").write_text('{"experiment": "bert", "arms": ["mlm"], "runs": [{"arm": "mlm"}]}')
    with pytest.raises(MeasureError) as error:
        quietly(folder, place, measures=[SHAPE])
    assert str(error.value) == (
        f"{place / 'out/bert'} holds an experiment; choose another --name for the results."
    )
    first = quietly(folder, place, measures=[SHAPE], name="other")
    pd.testing.assert_frame_equal(first, quietly(folder, place, measures=[SHAPE], name="other"))


class Stopped(Exception):
    """A kill, as far as a test goes."""


def test_a_killed_analysis_leaves_whole_results_and_starts_over(place):
    folder = tiny_models.save(place / "bert")
    told = {"text": place / "text.txt", "out": place / "out", "measures": [SHAPE, CHANGE]}
    lines = []

    def killed_at(line):
        def say(said):
            lines.append(said)
            if said == line:
                raise Stopped

        with pytest.raises(Stopped):
            analyse(folder, **told, say=say)

    killed_at("bert: measuring layer_change")
    assert not (place / "out").exists()
    killed_at("untrained: measuring geometry")
    first = results.read(place / "out/bert/results.parquet")
    assert set(first["arm"]) == {"bert"}
    assert notices(place)[0] == "The analysis has not ended, all of untrained still to come; run it again."
    said = json.loads((page.write(place / "out/bert").parent / "report.json").read_text())
    assert notices(place)[0] in [notice["text"] for notice in said["notices"]]
    lines.clear()
    analyse(folder, **told, say=lines.append)
    assert "bert: measuring geometry" in lines
    assert not any("has not ended" in notice for notice in notices(place))
    whole = results.read(place / "out/bert/results.parquet")
    pd.testing.assert_frame_equal(first, whole.iloc[: len(first)], check_dtype=False)
    killed_at("untrained: measuring geometry")
    pd.testing.assert_frame_equal(results.read(place / "out/bert/results.parquet"), whole)


def test_the_analysis_of_another_model_of_the_same_name_is_kept(place):
    first, second = tiny_models.save(place / "a/bert"), tiny_models.save(place / "b/bert", num_hidden_layers=2)
    before = quietly(first, place, measures=[SHAPE])
    done = ablate("analyse", second, "--text", place / "text.txt", "--out", place / "out")
    assert (done.exit_code, done.stderr) == (
        2,
        f"{place / 'out/bert'} holds the analysis of another model: {load(first).run_id}, and {second} is "
        f"{load(second).run_id}; choose another --name for the results, or remove that folder.\n",
    )
    pd.testing.assert_frame_equal(results.read(place / "out/bert/results.parquet"), before)


def test_names_of_folders_and_arms(tmp_path):
    for name, arm, small in [
        ("bert-base", "bert-base", "bert-base"),
        ("Größe 1,5B", "Gr-e-1,5B", "gr-e-1-5b"),
        ("untrained", "model", "model"),
        ("runs", "runs", "runs-model"),
        ("__", "model", "model"),
    ]:
        assert analyse_folder.arm_of(tmp_path / name) == arm
        assert analyse_folder.name_of(tmp_path / name) == small
        assert analyse_folder.place(tmp_path, small) == tmp_path / small
    with pytest.raises(MeasureError) as error:
        analyse_folder.place(tmp_path, "../runs")
    assert str(error.value) == (
        "--name '../runs' cannot name the folder of results: expected lower-case letters, digits and ._- that "
        "start with a letter or a digit, and not runs or tokens."
    )


# A run of ours ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm"])
def test_an_exported_run_has_the_numbers_of_the_run(kind, make_run, data_root, tokens, tmp_path):
    directory = make_run(settings(kind, training={"max_steps": 6}))
    start(directory, data_root=data_root, accelerator="cpu", threads=1, stop=StopRequest())
    change = LayerChangeSettings(kind="layer_change", tokens=600)
    measure(directory, tokens, [change], data_root=data_root, say=lambda _: None)
    expected = pd.read_parquet(directory.path / "measures.parquet")
    export(directory.path, tmp_path / "exported")
    told = {"text": data_root / "validation.tsv", "out": tmp_path / "analyses", "tokens": 600, "column": "text"}
    found = analyse(tmp_path / "exported", **told, measures=[change], say=lambda _: None)
    table = results.read(found / "results.parquet")
    assert not expected.empty
    own = table[(table["arm"] == "exported") & table["group"].isna()]
    compare(own, expected.astype(object).where(expected.notna(), None).to_dict("records"))
