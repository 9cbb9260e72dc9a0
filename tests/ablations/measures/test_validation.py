"""Losses of masked LM by how a token is shown, and the same tokens hidden; scores of translations."""

import math
from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
import sacrebleu
import torch

from ablations.measures.jackknife import BLOCKS, standard_error
from ablations.measures.settings import ValidationSettings
from ablations.measures.validation import _translation_scores, bleu, chrf, validation
from ablations.measures.visible_tokens import TURNS
from ablations.metric_groups import groups_of
from lightning_modules.data.tokenizer import MASK
from lightning_modules.model.heads import IGNORED
from lightning_modules.objectives import build
from lightning_modules.training import data_module
from lightning_modules.training.data_module import evaluate_changed, evaluation_batches
from tests.support.tiny_text import settings

VALIDATION = ValidationSettings(kind="validation")


def losses(objective, tokens):
    """The rows of the loss by group."""
    rows = validation(objective, tokens, VALIDATION)
    return {row["group"]: row for row in rows if row["metric"] == "loss"}


def test_the_floor_of_a_visible_token_is_the_loss_where_it_is_hidden(tokens):
    """By hand, a batch at a time."""
    objective = build(settings("masked_lm", encoder={"dropout": 0.0}), tokens).eval()
    totals, counts = {"kept": 0.0, "random": 0.0}, {"kept": 0, "random": 0}
    for batch in evaluation_batches(objective, tokens.validation, tokens_per_step=8192):
        shown_N, original_N = batch["tokens_BT"].flatten(), batch["label_N"]
        shown_at_N = shown_N[batch["predict_N"]]
        meant = {
            "kept": (original_N != IGNORED) & (shown_at_N == original_N),
            "random": (original_N != IGNORED) & (shown_at_N != original_N) & (shown_at_N != MASK),
        }
        for name, meant_N in meant.items():
            place_N, label_N = batch["predict_N"][meant_N], original_N[meant_N]
            hidden_N = shown_N.clone()
            hidden_N[place_N] = MASK
            with torch.no_grad():
                top_BTD = objective.encode(batch | {"tokens_BT": hidden_N.view_as(batch["tokens_BT"])})[-1]
                score_NV = objective.head(top_BTD, objective.encoder.tokens.weight).flatten(0, 1)[place_N]
            totals[name] += torch.nn.functional.cross_entropy(score_NV, label_N, reduction="sum").item()
            counts[name] += len(label_N)
    rows = losses(objective, tokens)
    for name in totals:
        assert rows[name]["n"] == counts[name] > 10
        assert rows[name]["floor"] == pytest.approx(totals[name] / counts[name], rel=1e-5)  # float32
        assert rows[name]["floor"] != pytest.approx(rows[name]["value"], rel=1e-3)
    assert "floor" not in rows["masked"]


@pytest.mark.parametrize("kind", ["masked_lm", "mixture"])
def test_what_is_shown_alike_is_encoded_once(tokens, kind):
    """Of each batch: as it is, with the kept tokens hidden, and with the random ones hidden. Masked LM also reads
    it in turns that hide clean tokens. Its guesses at visible tokens need only the last layer again."""
    objective = build(settings(kind, encoder={"dropout": 0.0}), tokens)
    first, last = [], []
    for block, calls in ((objective.encoder.blocks[0], first), (objective.encoder.blocks[-1], last)):
        block.register_forward_pre_hook(lambda module, inputs, calls=calls: calls.append(inputs[0]))
    list(validation(objective, tokens, ValidationSettings(kind="validation")))
    batches = list(evaluation_batches(objective, tokens.validation, tokens_per_step=8192))
    assert len(batches) == 1
    turns, guesses = (TURNS, 2) if kind == "masked_lm" else (0, 0)
    assert len(first) == 3 + turns
    assert len(last) == 3 + turns + guesses
    assert not any(torch.equal(a, b) for a, b in combinations(first, 2))


def test_a_batch_with_other_places_of_predictions_is_encoded_as_when_it_is_read_alone(tokens):
    objective = build(settings("masked_lm", encoder={"dropout": 0.0}), tokens).eval()
    (batch,) = evaluation_batches(objective, tokens.validation, tokens_per_step=8192)
    changed = batch | {"tokens_BT": batch["tokens_BT"].flip(0)}
    place_N = batch["predict_N"]
    with torch.no_grad():
        alone = [objective.encode_at(x, place_N + shift) for x in (batch, changed) for shift in (0, -1)]
        with objective.encoding_once():
            together = [objective.encode_at(x, place_N + shift) for x in (batch, changed) for shift in (0, -1)]
    assert all(map(torch.equal, alone, together))
    assert not any(torch.equal(a, b) for a, b in combinations(together, 2))


def test_losses_are_kept_without_each_tenth_of_a_long_text(tokens, monkeypatch):
    """By hand, a batch at a time. A short text has too few batches."""
    objective = build(settings("masked_lm", encoder={"dropout": 0.0}), tokens).eval()
    assert losses(objective, tokens)[None]["left_out"] is None
    monkeypatch.setattr(data_module, "TOKENS_AT_ONCE", 64)
    with torch.no_grad():
        batches = evaluation_batches(objective, tokens.validation, tokens_per_step=64)
        sum_N2 = np.array([[float(x) for x in objective.losses(batch)["loss"]] for batch in batches])
    ends = [len(sum_N2) * block // BLOCKS for block in range(BLOCKS + 1)]
    without = []
    for first, last in pairwise(ends):
        total, count = np.delete(sum_N2, slice(first, last), axis=0).sum(0)
        without.append(total / count)
    assert len(sum_N2) > BLOCKS
    assert len(sum_N2) % BLOCKS, "blocks of different sizes"
    rows = validation(objective, tokens, VALIDATION)
    by_metric = {row["metric"]: row for row in rows if row.get("group") is None}
    assert by_metric["loss"]["left_out"] == pytest.approx(without)
    assert by_metric["loss"]["standard_error"] == pytest.approx(standard_error(without))
    assert by_metric["perplexity"]["left_out"] == pytest.approx(np.exp(without))


def test_changed_batches_have_the_losses_of_batches_that_are_read_alone(tokens):
    objective = build(settings("mixture", encoder={"dropout": 0.0}), tokens)

    def relabelled(batch):
        return batch | {"label_N": batch["label_N"].masked_fill(batch["label_N"] % 2 == 0, IGNORED)}

    def masked(batch):
        return batch | {"tokens_BT": torch.where(batch["tokens_BT"] % 3 == 0, MASK, batch["tokens_BT"])}

    changes = [lambda batch: batch, relabelled, masked, lambda batch: relabelled(masked(batch))]
    together = evaluate_changed(objective, tokens.validation, changes)
    alone = [evaluate_changed(objective, tokens.validation, [change])[0] for change in changes]
    assert [[tuple(map(float, part)) for part in parts.values()] for parts in together] == [
        [tuple(map(float, part)) for part in parts.values()] for parts in alone
    ]
    assert len({float(parts["loss"].total) for parts in together}) == 4


def test_after_an_evaluation_equal_inputs_are_encoded_with_the_weights_of_then(tokens):
    objective = build(settings("masked_lm", encoder={"dropout": 0.0}), tokens)
    before = evaluate_changed(objective, tokens.validation, [lambda batch: batch])[0]["loss"].total
    torch.nn.init.normal_(objective.head.bias, generator=torch.Generator().manual_seed(0))
    torch.nn.init.normal_(objective.encoder.tokens.weight, generator=torch.Generator().manual_seed(0))
    assert evaluate_changed(objective, tokens.validation, [lambda batch: batch])[0]["loss"].total != before


def test_who_does_not_see_its_own_token_has_its_floor_as_loss(tokens):
    """An encoder whose embeddings are all the same."""
    objective = build(settings("masked_lm", encoder={"dropout": 0.0}), tokens)
    torch.nn.init.constant_(objective.encoder.tokens.weight, 0.1)
    torch.nn.init.normal_(objective.head.bias, generator=torch.Generator().manual_seed(0))
    rows = losses(objective, tokens)
    for name in ("kept", "random"):
        assert rows[name]["floor"] == pytest.approx(rows[name]["value"], rel=1e-6)  # float32


# Translations ----------------------------------------------------------------------------------------

REFERENCES = [
    "the dog sees a cat in the garden .",
    "a small fish swims under the old bridge .",
    "she reads the long letter again .",
    "they walk home before it rains .",
]
HYPOTHESES = ["the dog sees a bird in the garden .", "", "she read the long letter .", ""]


def shared(hypotheses, references, units, longest):
    """Of each length of n-grams: how many the texts share, and how many the hypotheses and the references have."""
    counts_O3 = np.zeros((longest, 3))
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in range(1, longest + 1):
            mine, theirs = (
                Counter(tuple(x[i : i + n]) for i in range(len(x) - n + 1))
                for x in (units(hypothesis), units(reference))
            )
            counts_O3[n - 1] += (mine & theirs).total(), mine.total(), theirs.total()
    return counts_O3.T


@pytest.mark.parametrize("kind", ["translation", "skip_gram"])
def test_who_reads_one_sentence_at_a_time_has_no_loss_in_other_input_formats(tokens, kind):
    asked = ValidationSettings(kind="validation", input_formats=("sentence_pair", "full_sentences"))
    rows = validation(build(settings(kind), tokens), tokens, asked)
    assert {row.get("group") for row in rows} == {None}


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "replaced_token"])
def test_a_loss_on_another_copy_of_the_text_is_the_same_metric_in_a_group_that_claims_can_name(tokens, kind):
    """Read sentence by sentence, it is the loss itself."""
    formats, orders = ("sentences", "full_sentences"), ("uniform",)
    asked = ValidationSettings(kind="validation", input_formats=formats, word_orders=orders)
    objective = build(settings(kind, encoder={"dropout": 0.0}), tokens)
    rows = [row for row in validation(objective, tokens, asked) if row["unit"] == "nats"]
    whole = next(row for row in rows if row["group"] is None)
    copies = {row["group"]: row for row in rows if row["group"] in (*formats, *orders)}
    assert set(copies) == {*formats, *orders}
    for group, row in copies.items():
        assert row["metric"] == whole["metric"]
        assert groups_of("validation", row["metric"]).has(group)
    assert [copies["sentences"][key] for key in ("value", "n")] == [whole[key] for key in ("value", "n")]
    assert copies["full_sentences"]["value"] != whole["value"]


def test_a_loss_whose_perplexity_no_float_holds_has_the_largest_perplexity(tokens):
    """Training with a rate of 1,000 ends with such losses; it stops only where a loss is infinite."""
    objective = build(settings("causal_lm", objective={"head": "linear"}), tokens)
    with torch.no_grad():
        objective.head.weight.mul_(1e6)
    rows = validation(objective, tokens, ValidationSettings(kind="validation"))
    value = {row["metric"]: row["value"] for row in rows}
    assert value["loss"] > 1000
    assert value["perplexity"] == math.exp(700)


def test_chrf_counts_the_references_of_empty_translations():
    """By hand: the F of mean precision and mean recall, where recall counts twice."""
    same, mine, theirs = shared(HYPOTHESES, REFERENCES, lambda text: text.replace(" ", ""), 6)
    precision, recall = (same / mine).mean(), (same / theirs).mean()
    assert chrf(HYPOTHESES, REFERENCES) == pytest.approx(100 * 5 * precision * recall / (4 * precision + recall))
    kept = [REFERENCES[0], "", REFERENCES[2], ""]
    assert chrf(kept, REFERENCES) < 60 < chrf(REFERENCES, REFERENCES) == 100


def test_bleu_is_smoothed_and_counts_empty_translations_as_short():
    """By hand: the first length without a match has half a match, the next a quarter."""
    hypotheses, references = ["the dog sees the bird", ""], ["the dog saw a bird", "a fish swims"]
    same, mine, theirs = shared(hypotheses, references, str.split, 4)
    assert same.tolist() == [3, 1, 0, 0]
    precision_O = np.array([3, 1, 1 / 2, 1 / 4]) / mine
    expected = 100 * math.exp(1 - theirs[0] / mine[0]) * math.exp(np.log(precision_O).mean())
    assert bleu(hypotheses, references) == pytest.approx(expected)
    assert bleu(["a b c d e"], ["a b c d e"]) == 100  # 100.00000000000004 before it is cut off


UNSPACED_TEXTS = {
    "Han": ["我喜欢狗。", "他读 2 本书, 3.5 元 (about USD 0.5)"],
    "Kana": ["わたしは犬が好きです。", "ネコがサカナを食べた。"],
    "Thai": ["ผมชอบสุนัข", "เขาอ่านหนังสือที่บ้าน"],
    "Lao": ["ຂ້ອຍມັກໝາ", "ລາວອ່ານປຶ້ມ"],
    "Khmer": ["ខ្ញុំចូលចិត្តឆ្កែ", "គាត់អានសៀវភៅ"],
    "Burmese": ["ကျွန်တော်ခွေးကိုကြိုက်တယ်", "သူစာအုပ်ဖတ်တယ်"],
}


@pytest.mark.parametrize("script", UNSPACED_TEXTS)
def test_perfect_translations_into_a_script_without_spaces_have_full_bleu(script):
    texts = UNSPACED_TEXTS[script]
    assert bleu(texts, texts) == 100
    assert 0 < bleu([text[1:] for text in texts], texts) < 100
    assert bleu([text[::-1] for text in texts], texts) < 50  # words in another order


def test_characters_without_spaces_are_words_and_keep_their_marks():
    """As in sacreBLEU's own tokenisation of Chinese, with all its signs, and as in the same text with
    spaces between them, as sacreBLEU reads it; all other text is read as sacreBLEU reads it."""
    chinese = [
        "他读2本书, 3.5元 (about USD 0.5)",
        "我喜欢狗, don't I?",
        "他说：「好！」（２０２４ 年），人々〇〇。",
    ]
    others = [
        "他读3本书, 3.5元 (about USD 0.6)",
        "我也喜欢猫, don't you?",
        "她说：“好”！（2024年），人々〇。☃ ok、",
    ]
    assert bleu(chinese, others) == pytest.approx(sacrebleu.corpus_bleu(chinese, [others], tokenize="zh").score)
    thai, cut = "เขาที่บ้าน", "เ ข า ที่ บ้ า น"
    assert bleu([thai], [cut]) == bleu([cut], [thai]) == bleu([cut], [cut]) == 100
    plain = ["Le chat n'a pas vu, hélas, 3.5 souris.", "Это кошка; שלום לך, नमस्ते दुनिया, 개는 좋아"]
    near = [text.replace("a", "e", 1) for text in plain[:1]] + ["Это собака; שלום לך, नमस्ते, 개는 좋아"]
    assert bleu(plain, near) == sacrebleu.corpus_bleu(plain, [near]).score


def test_where_every_pair_was_cut_translations_have_no_rows(tokens):
    objective = build(settings("translation", data={"max_length": 8}), tokens)
    cut = replace(tokens, validation=tokens.validation.head(0))
    assert [*_translation_scores(objective, cut, ValidationSettings(kind="validation"))] == []


def test_without_sentences_translations_have_no_score():
    assert math.isnan(bleu([], []))
    assert math.isnan(chrf([], []))


def test_text_that_looks_cut_into_words_gets_no_advice(caplog):
    bleu(["a dog ."] * 101, ["a dog ."] * 101)
    assert not caplog.records
