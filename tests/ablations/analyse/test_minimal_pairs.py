"""Minimal pairs of a masked LM from elsewhere: against stock classes, against a run, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from ablations import results
from ablations.analyse import minimal_pairs as module
from ablations.analyse.minimal_pairs import HEADS, require_tasks, rows, with_head
from ablations.analyse.model import load, untrained
from ablations.cli import main
from ablations.errors import MeasureError
from ablations.tasks.examples import Source, examples_of
from ablations.tasks.language_models.minimal_pairs import minimal_pairs_rows
from ablations.tasks.language_models.sentence_scores import pieces_of, pseudo_log_likelihoods_by, sentence_scores
from ablations.tasks.settings import MinimalPairsSettings
from lightning_modules.export.folder import export
from lightning_modules.objectives import build
from lightning_modules.training.checkpoint import load_weights
from tests.support import tiny_models
from tests.support.errors import error_text
from tests.support.start_here import start_here
from tests.support.tiny_text import settings

transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")

SYNEVAL = MinimalPairsSettings(kind="minimal_pairs", tasks=("lm_syneval",))
COUNTS = np.zeros(tiny_models.VOCABULARY, np.int64)


def write_pairs(root, pairs):
    """A file of minimal pairs as lm_syneval has them."""
    (root / "lm_syneval").mkdir(exist_ok=True)
    good, bad = zip(*pairs, strict=True)
    table = {"sentence_good": good, "sentence_bad": bad, "case": ["planted"] * len(good)}
    pd.DataFrame(table).to_parquet(root / "lm_syneval/test.parquet")
    return root


def random_pairs(count):
    """Pairs of sentences of letters of which the good one has an a where the bad one has a b."""
    lines = tiny_models.sentences(count, seed=5, longest=8)
    return [(f"{line} a c", f"{line} b c") for line in lines]


def save_headed(folder, family="bert", *, likes=None, **changes):
    """A folder with a masked LM with random weights, which may like a letter."""
    tiny_models.save(folder, family, **changes)
    whole = tiny_models.model(family, **changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        headed = transformers.AutoModelForMaskedLM.from_config(whole.config)
    setattr(headed, headed.base_model_prefix, whole)
    headed.tie_weights()
    (bias_V,) = (each for each in headed.parameters() if each.shape == (tiny_models.VOCABULARY,))
    with torch.no_grad():
        bias_V += 0.1 * torch.randn(tiny_models.VOCABULARY, generator=torch.Generator().manual_seed(4))
        if likes is not None:
            bias_V[tiny_models.tokenizer().convert_tokens_to_ids(likes)] += 20
    headed.save_pretrained(folder)
    return folder, headed.eval()


def score_by_hand(model, tokenizer, line):
    """The sum of the log probabilities of the pieces, each hidden alone, a sentence at a time."""
    ids = tokenizer(line, return_tensors="pt")["input_ids"]
    total = 0.0
    for place in range(1, ids.shape[1] - 1):
        shown = ids.clone()
        shown[0, place] = tokenizer.mask_token_id
        with torch.no_grad():
            logits = model(input_ids=shown).logits
        total += float(logits[0, place].log_softmax(-1)[ids[0, place]])
    return total


def table_of(model, root, asked=SYNEVAL, counts_V=COUNTS):
    """Rows by group and metric."""
    found = rows(model, asked, data_root=root, counts_V=counts_V)
    return {(row["group"], row["metric"]): row for row in found}


def scores_of(model, lines):
    masked = with_head(model)
    pieces = pieces_of(lines, masked.tokenizer)
    answers = lambda rows_RT, query: module._answers(masked, rows_RT, query)  # noqa: E731
    return [score.nats_S for score in pseudo_log_likelihoods_by(answers, pieces, special=masked.special)]


@pytest.mark.parametrize(
    ("family", "changes"), [*((family, {}) for family in HEADS), ("deberta-v2", {"legacy": False})]
)
def test_scores_are_those_of_the_stock_class_with_one_piece_hidden_at_a_time(family, changes, tmp_path):
    folder, headed = save_headed(tmp_path / family, family, **changes)
    lines = tiny_models.sentences(12, seed=2, longest=7)
    plain, within = scores_of(load(folder), lines)
    expected = [score_by_hand(headed, tiny_models.tokenizer(), line) for line in lines]
    np.testing.assert_allclose(plain, expected, rtol=1e-5)  # float32
    np.testing.assert_array_equal(plain, within)  # every word is one piece
    assert len(set(np.round(plain, 3))) > 6, "the sentences must differ"


def test_a_model_that_likes_the_answer_is_right_and_its_contrary_is_not(tmp_path):
    root = write_pairs(tmp_path, random_pairs(20))
    for likes, expected in (("a", 1.0), ("b", 0.0)):
        found = table_of(load(save_headed(tmp_path / likes, likes=likes)[0]), root)
        for metric in ("accuracy", "accuracy_within_word", "accuracy_whole_words"):
            for group in ("lm_syneval", "lm_syneval/planted"):
                row = found[group, metric]
                assert (row["value"], row["floor"], row["n"]) == (expected, 0.5, 20)


def test_guesses_are_by_length_and_by_the_frequencies_of_the_text_and_nothing_is_covered(tmp_path):
    pairs = [("a c", "b c"), ("a", "a c"), ("b c", "a c")]
    root = write_pairs(tmp_path, pairs)
    folder, _ = save_headed(tmp_path / "bert")
    counts_V = COUNTS.copy()
    counts_V[tiny_models.tokenizer().convert_tokens_to_ids("a")] = 9
    found = table_of(load(folder), root, counts_V=counts_V)
    assert {metric for _, metric in found} == {
        *("accuracy", "accuracy_within_word", "accuracy_whole_words", "whole_words"),
        *(f"accuracy{of}_by_{guess}" for of in ("", "_whole_words") for guess in ("length", "unigram")),
    }
    assert found["lm_syneval", "accuracy_by_unigram"]["value"] == pytest.approx(2 / 3)
    assert found["lm_syneval", "accuracy_by_length"]["value"] == pytest.approx((0.5 + 1 + 0.5) / 3)


def test_sentences_are_neither_padded_nor_cut_as_the_tokenizer_file_says(tmp_path):
    folder, _ = save_headed(tmp_path / "bert")
    lines = ["a", "a b c d e"]
    before, _ = scores_of(load(folder), lines)
    saved = json.loads((folder / "tokenizer.json").read_text())
    saved["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    saved["padding"] = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None}
    saved["padding"] |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    (folder / "tokenizer.json").write_text(json.dumps(saved))
    after, _ = scores_of(load(folder), lines)
    np.testing.assert_array_equal(before, after)


def test_pairs_that_are_too_long_are_left_out(tmp_path):
    root = write_pairs(tmp_path, [("a " * 60, "b"), ("a", "b")])
    folder, _ = save_headed(tmp_path / "bert")
    assert table_of(load(folder), root)["lm_syneval", "accuracy"]["n"] == 1
    write_pairs(tmp_path, [("a " * 60, "b")])
    assert error_text(MeasureError, lambda: table_of(load(folder), root)) == (
        "minimal_pairs: lm_syneval has no pair of sentences with at most 40 tokens, special tokens included; "
        "leave the task out."
    )


@pytest.mark.parametrize(("family", "changes"), [("bert", {}), ("electra", {}), ("deberta-v2", {"legacy": False})])
def test_the_untrained_head_reads_the_untrained_encoder_that_is_measured(family, changes, tmp_path):
    folder, _ = save_headed(tmp_path / family, family, **changes)
    twin = untrained(load(folder), seed=0)
    masked = with_head(twin)
    assert masked.model.base_model is twin.model
    again = scores_of(untrained(load(folder), seed=0), ["a b c"])
    np.testing.assert_array_equal(again, scores_of(twin, ["a b c"]))
    assert scores_of(untrained(load(folder), seed=1), ["a b c"])[0] != again[0]


def test_the_command_has_the_rows_of_both_models_and_says_where_the_pairs_lie(tmp_path):
    root = write_pairs(tmp_path, random_pairs(20))
    (root / "text.txt").write_text("\n".join(tiny_models.sentences(120, longest=12)) + "\n")
    folder, _ = save_headed(tmp_path / "bert", likes="a")
    asked = tmp_path / "asked.yaml"
    asked.write_text("measures:\n  - geometry\n  - {kind: minimal_pairs, tasks: [lm_syneval]}\n")
    told = ["analyse", folder, "--text", root / "text.txt", "--out", root / "out", "--measures", asked]
    done = CliRunner().invoke(
        main, [str(x) for x in (*told, "--data-root", root, "--publish", root / "published")]
    )
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == f"published: {root / 'published/bert'}"
    kept = {path.name for path in (root / "published/bert").iterdir()}
    assert kept == {
        "report.md",
        "figures",
        "tables",
        "results.parquet",
        "spec.yaml",
        "plan.json",
        "provenance.json",
    }
    table = results.read(root / "out/bert/results.parquet")
    ours = table[(table["measure"] == "minimal_pairs") & (table["metric"] == "accuracy")]
    assert set(ours["arm"]) == {"bert", "untrained"}
    assert set(ours["value"][ours["arm"] == "bert"]) == {1.0}
    assert f"data_root: {json.dumps(str(root))}" in (root / "out/bert/spec.yaml").read_text()
    assert "lm_syneval" in (root / "out/bert/report.md").read_text()


def test_an_exported_run_has_the_scores_and_accuracies_of_the_run(make_run, data_root, tokens, tmp_path):
    directory = make_run(settings("masked_lm", training={"max_steps": 6}))
    start_here(directory, data_root=data_root)
    export(directory.path, tmp_path / "exported")
    lines = ["the dog sees a cat", "a cat sees the small dog", "the fish", "dog likes the the cat"]
    root = write_pairs(tmp_path, list(zip(lines, lines[1:] + lines[:1], strict=True)))
    model = load(tmp_path / "exported")
    objective = build(settings("masked_lm"), tokens)
    load_weights(objective, directory.last_checkpoint)
    expected = sentence_scores(objective, pieces_of(lines, tokens.tokenizer))
    found = scores_of(model, lines)
    for ours, theirs in zip((expected.main, expected.within_word), found, strict=True):
        np.testing.assert_allclose(ours.nats_S, theirs, rtol=1e-5)  # float32
    examples = examples_of("lm_syneval", "test", Source(root, None, None))
    counts_V = tokens.source_counts_V
    of_run = minimal_pairs_rows(objective, examples, tokens.tokenizer, SYNEVAL, max_length=40, counts_V=counts_V)
    of_model = table_of(model, root, counts_V=counts_V)
    for row in of_run:
        if row["metric"] != "covered" and not row["metric"].endswith("_by_unigram"):
            assert of_model[row["group"], row["metric"]]["value"] == row["value"], row["metric"]


# What is refused --------------------------------------------------------------------------------------


def refused(model, sentence):
    assert error_text(MeasureError, with_head, model) == sentence


def test_an_encoder_without_its_head_is_refused(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    refused(
        load(folder),
        f"minimal_pairs needs a model that predicts hidden tokens, but {folder} lacks weights of the head that "
        "predicts them, such as cls.predictions.bias; give a masked LM with its head, or leave the measure out.",
    )


def test_other_models_are_refused(tmp_path):
    refused(
        load(tiny_models.save(tmp_path / "gpt2", "gpt2")),
        "minimal_pairs needs a model that predicts hidden tokens, but models of model_type 'gpt2' do not, "
        "expected bert, roberta, distilbert, electra, albert, xlm-roberta, camembert, mpnet, deberta-v2, "
        "modernbert, longformer, roformer, xlm-roberta-xl or roberta-prelayernorm; leave the measure out.",
    )


def test_a_translation_model_is_refused_although_its_encoder_is_of_a_known_type(make_run, data_root, tmp_path):
    directory = make_run(settings("translation", training={"max_steps": 0}))
    start_here(directory, data_root=data_root)
    export(directory.path, tmp_path / "exported")
    with pytest.raises(
        MeasureError,
        match=r"^minimal_pairs needs a model that .* models of model_type 'encoder-decoder' do not",
    ):
        with_head(load(tmp_path / "exported"))


def test_a_tokenizer_without_a_mask_is_refused(tmp_path):
    folder, _ = save_headed(tmp_path / "bert")
    tiny_models.tokenizer(mask_token=None).save_pretrained(folder)
    refused(
        load(folder),
        f"minimal_pairs needs a fast tokenizer with the tokens [CLS], [SEP] and [MASK], but {folder} has none; "
        "give a model with its tokenizer.json, or leave the measure out.",
    )


def test_ids_without_a_row_in_the_embeddings_are_refused(tmp_path):
    folder, _ = save_headed(tmp_path / "bert")
    tokenizer = tiny_models.tokenizer()
    tokenizer.add_tokens([f"word{i}" for i in range(20)])
    tokenizer.save_pretrained(folder)
    loaded = load(folder)
    root = write_pairs(tmp_path, [("a b word19", "a b c")])
    sentence = (
        f"{folder}: the tokenizer gives the id 50, but the model has 40 ids; save the model's own tokenizer in "
        "this folder."
    )
    assert error_text(MeasureError, table_of, loaded, root) == sentence
    tokenizer.add_special_tokens({"mask_token": "<hidden>"})
    tokenizer.save_pretrained(folder)
    refused(load(folder), sentence.replace("50", "51"))


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        ("blimp", "blimp/test.parquet is not in {root}; give --data-root, or leave blimp out."),
        (
            "language_minimal_pairs",
            "language_minimal_pairs has sentences of the built-in language, which a model from elsewhere has "
            "not learned; leave it out.",
        ),
    ],
)
def test_tasks_that_are_not_there_are_refused_before_anything_is_read(task, sentence, tmp_path):
    asked = MinimalPairsSettings(kind="minimal_pairs", tasks=(task,))
    assert (
        error_text(MeasureError, require_tasks, asked, data_root=tmp_path)
        == f"minimal_pairs: {sentence.format(root=tmp_path)}"
    )
