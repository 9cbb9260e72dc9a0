"""The loss on pairs of segments: which label meets which pair, the head that answers, and how it is scored."""

import csv
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ablations.measures.settings import ValidationSettings
from ablations.measures.validation import validation
from lightning_modules.data.sequences import formatted, with_negative_pairs
from lightning_modules.data.token_store import prepare
from lightning_modules.data.tokenizer import FIRST_WORD_ID, START
from lightning_modules.model.heads import IGNORED, BinaryHead
from lightning_modules.objectives import build
from lightning_modules.objectives.objective import EVALUATION_SEED
from lightning_modules.randomness import derive, uniforms
from lightning_modules.training.data_module import evaluate_parts
from tests.support.sight import KINDS, asking_for_nothing, check_packing, first_batch, spread
from tests.support.tiny_text import sentences, settings

TASKS = ["next_sentence", "sentence_order"]
FORMATS = ["sentence_pair", "segment_pair"]
SIZES = (1, 2, 3, 6, 7)
"""Sentences of a document, in turn."""


def write_documents(path, count, *, seed):
    names = np.repeat(np.arange(count), np.resize(SIZES, count))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["text", "document"])
        writer.writerows(zip(sentences(len(names), seed=seed), names, strict=True))


def pair_settings(pair_loss, input_format="sentence_pair", **training):
    data = {"target": None, "document": "document"}
    training = {"input_format": input_format, "tokens_per_step": 512} | training
    return settings("masked_lm", objective={"pair_loss": pair_loss}, data=data, training=training, seed=2)


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """A text of documents with one to seven sentences, as tokens."""
    root = tmp_path_factory.mktemp("documents")
    write_documents(root / "train.tsv", 100, seed=0)
    write_documents(root / "validation.tsv", 26, seed=1)
    return prepare(pair_settings("none").data, data_root=root, store=root / "store")


def stream_of(split):
    """The words of the text as a string, a character a token and a line a document."""
    lines = [""] * (int(split.documents[-1]) + 1)
    for i in range(len(split)):
        lines[split.documents[i]] += as_text(split.sentence(i)[1:-1])
    return "\n".join(lines)


def as_text(ids):
    return "".join(chr(1000 + int(token)) for token in ids)


def asked_pairs(batch):
    """(label, words of both segments) of each sequence that the head on pairs is told of, in its order."""
    original = batch["tokens_BT"].clone()
    known = batch["label_N"] != IGNORED
    original.view(-1)[batch["predict_N"][known]] = batch["label_N"][known]
    T = original.shape[1]
    starts = ((original == START) & (batch["sequence_BT"] > 0)).sum()
    for place, label in list(zip(batch["start_Q"].tolist(), batch["label_Q"].tolist(), strict=True))[:starts]:
        row, column = divmod(place, T)
        assert original[row, column] == START
        mine = batch["sequence_BT"][row] == batch["sequence_BT"][row, column]
        mine &= original[row] >= FIRST_WORD_ID
        yield label, [as_text(original[row, mine & (batch["segment_BT"][row] == k)]) for k in (0, 1)]
    assert (batch["label_Q"][starts:] == IGNORED).all()


@pytest.mark.parametrize("input_format", FORMATS)
@pytest.mark.parametrize("task", TASKS)
def test_each_label_says_how_the_two_segments_at_its_place_stand_in_the_text(task, input_format, documents):
    _, data, _ = first_batch(pair_settings(task, input_format), documents)
    stream, seen = stream_of(documents.train), []
    for step in range(4):
        for label, (first, second) in asked_pairs(data.batch(step)):
            seen.append(label)
            assert stream.count(first) == 1
            assert first
            if label == IGNORED:
                assert not second
                continue
            assert stream.count(second) == 1
            a, b = stream.index(first), stream.index(second)
            follows, precedes = a + len(first) == b, b + len(second) == a
            if label == 1:
                assert follows
            elif task == "sentence_order":
                assert precedes
            else:  # from another document
                assert "\n" in stream[min(a, b) : max(a, b)]
    counts = {label: seen.count(label) for label in (0, 1, IGNORED)}
    pairs = counts[0] + counts[1]
    # Half of the pairs are spoilt, within 4 errors of so many coins; next_sentence keeps a few more as they are.
    assert counts[0] / pairs == pytest.approx(0.5, abs=4 * 0.5 / pairs**0.5)
    assert counts[IGNORED] > 0


@pytest.mark.parametrize("task", TASKS)
def test_a_step_adds_the_loss_on_pairs_to_that_on_tokens(task, documents):
    objective, _, batch = first_batch(pair_settings(task), documents)
    objective.double()
    with torch.no_grad():
        objective.pair_head.output.weight.mul_(20)  # so that the answers differ
        top_ND = objective.encode(batch)[-1].flatten(0, 1)
    outputs, head = objective.training_step(batch, 0), objective.pair_head
    losses, right = [], []
    for place, label in zip(batch["start_Q"].tolist(), batch["label_Q"].tolist(), strict=True):
        if label != IGNORED:
            logit = head.output(torch.tanh(head.transform(top_ND[place]))).item()
            losses.append(math.log1p(math.exp(-logit if label == 1 else logit)))
            right.append((logit > 0) == (label == 1))
    assert 0 < sum(right) < len(right)
    known = batch["label_N"] != IGNORED
    logits = objective.head(top_ND[batch["predict_N"][known]], objective.encoder.tokens.weight)
    tokens = F.cross_entropy(logits, batch["label_N"][known]).item()
    assert outputs["loss"].item() == pytest.approx(tokens + np.mean(losses), rel=1e-12)  # float64
    seen, predicted, line = objective.explain(outputs["totals"].tolist())
    assert (seen, predicted) == (int(batch["source_tokens"]), int(known.sum()))
    assert line["train/loss"] == pytest.approx(tokens)
    assert line[f"train/{task}"] == pytest.approx(np.mean(losses))
    assert line[f"train/{task}_accuracy"] == pytest.approx(np.mean(right))


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.GELU()], ids=str)
def test_the_binary_head_is_its_formula(activation):
    torch.manual_seed(0)
    head, hidden = BinaryHead(6, activation=activation).double(), torch.randn(40, 6, dtype=torch.float64) * 5
    labels = torch.tensor([0, 1, IGNORED, 1] * 10)
    total, right = 0.0, 0
    for x, label in zip(hidden, labels.tolist(), strict=True):
        inner = activation(head.transform.weight @ x + head.transform.bias)
        probability = 1 / (1 + math.exp(-(head.output.weight[0] @ inner + head.output.bias[0]).item()))
        if label != IGNORED:
            total -= math.log(probability if label else 1 - probability)
            right += (probability > 0.5) == bool(label)
    loss, accuracy = head.loss(hidden, labels), head.accuracy(hidden, labels)
    assert loss.total.item() == pytest.approx(total, rel=1e-12)  # float64
    assert loss.predictions == accuracy.predictions == 30
    assert accuracy.total == right
    assert not accuracy.total.requires_grad
    assert head.loss(hidden, torch.full((40,), IGNORED)) == (0, 0)
    assert head.accuracy(hidden, torch.full((40,), IGNORED)) == (0, 0)
    rounded = head.bfloat16()
    with torch.no_grad():
        head.output.bias.fill_(200.0)  # a sigmoid of which a loss from probabilities would make infinity
    far = rounded.loss(hidden.bfloat16(), torch.zeros(40, dtype=torch.int64))
    assert far.total.dtype == torch.float64
    assert far.total.isfinite()


def test_single_sentences_ask_the_head_on_pairs_nothing(documents):
    objective, _, _ = first_batch(pair_settings("next_sentence"), documents)
    parts = evaluate_parts(objective, documents.validation)
    assert [int(part.predictions) > 0 for part in parts.values()] == [True, False, False]
    assert [part.total.item() for part in parts.values()][1:] == [0, 0]


@pytest.mark.parametrize("task", TASKS)
def test_no_parameter_is_without_a_gradient_whatever_a_batch_asks_for(task, documents):
    objective, _, batch = first_batch(pair_settings(task), documents)
    lacking = [asking_for_nothing(batch, place, "no places") for place in ("predict_N", "start_Q")]
    lacking += [{name: x for name, x in batch.items() if name != "segment_BT"}]  # of single segments only
    lacking += [asking_for_nothing(lacking[0], "start_Q", "ignored")]
    for each in [batch, *lacking]:
        objective.zero_grad()
        objective.training_step(each, 0)["loss"].backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in objective.parameters())
    objective.to("meta").train()
    outputs = objective.training_step({name: tensor.to("meta") for name, tensor in batch.items()}, 0)
    outputs["loss"].backward()
    assert outputs["totals"].device.type == "meta"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("translation", "skip_gram")])
def test_packed_rows_give_the_losses_of_one_pair_a_row(kind, documents):
    run = pair_settings("sentence_order", "segment_pair")
    if kind != "masked_lm":
        run = run.model_copy(update={"objective": settings(kind).objective})
    objective, data, batch = first_batch(run, documents)
    check_packing(spread(objective), data)
    without = {name: x for name, x in batch.items() if name != "segment_BT"}
    told, blind = objective.losses(batch), objective.losses(without)
    assert all(told[name].total != blind[name].total for name, weight in objective.parts.items() if weight)


def test_segment_embeddings_do_not_decay(documents):
    objective, _, _ = first_batch(pair_settings("none", weight_decay=0.1), documents)
    groups = objective.configure_optimizers()["optimizer"].param_groups
    decayed = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
    tables = {name: x.weight for name, x in objective.named_modules() if isinstance(x, nn.Embedding)}
    assert "encoder.segments" in tables
    assert [name for name, weight in tables.items() if id(weight) in decayed] == []


def accuracies(objective, documents):
    rows = validation(objective, documents, ValidationSettings(kind="validation"))
    return {row["group"]: row for row in rows if row["metric"] == "pair_accuracy"}


def answering(task, input_format, documents, *, always):
    """An objective whose head on pairs says the same of all."""
    objective = build(pair_settings(task, input_format), documents)
    nn.init.constant_(objective.pair_head.output.bias, 1e4 if always else -1e4)
    return objective


@pytest.mark.parametrize("input_format", FORMATS)
@pytest.mark.parametrize("trained_on", TASKS)
def test_validation_scores_both_tasks_whichever_was_learnt(trained_on, input_format, documents):
    yes, no = (
        accuracies(answering(trained_on, input_format, documents, always=x), documents) for x in (True, False)
    )
    assert yes.keys() == no.keys() == set(TASKS)
    for task in TASKS:
        assert yes[task]["n"] == no[task]["n"] > 0
        assert yes[task]["value"] + no[task]["value"] == pytest.approx(1)
        assert yes[task]["floor"] == no[task]["floor"] >= max(yes[task]["value"], no[task]["value"])
    if input_format == "sentence_pair":
        sizes = np.bincount(documents.validation.documents)
        assert yes["sentence_order"]["n"] == (sizes // 2).sum()
        first = np.concatenate(
            [np.arange(0, n - 1, 2) + b for n, b in zip(sizes, np.cumsum(sizes) - sizes, strict=True)]
        )
        coins = uniforms(derive(EVALUATION_SEED, "pairs"), np.zeros_like(first), first)
        share = (coins >= 0.5).mean()
        assert share < 0.5  # the floor is the guess that is right more often, whichever that is
        assert yes["sentence_order"]["value"] == pytest.approx(share)


def test_without_a_loss_on_pairs_there_is_no_accuracy(documents):
    assert accuracies(build(pair_settings("none"), documents), documents) == {}


def test_an_evaluation_of_pairs_on_three_devices_adds_up_to_that_on_one(documents):
    objective, split = build(pair_settings("sentence_order"), documents).double(), documents.validation
    numbers = split.documents.astype(np.int64)
    natural = formatted(split, np.arange(len(split)), numbers, "sentence_pair", max_length=64)
    pairs = with_negative_pairs(natural, "sentence_order", split.documents, seed=EVALUATION_SEED)
    whole = evaluate_parts(objective, split, sequences=pairs)
    shares = [evaluate_parts(objective, split, sequences=pairs, rank=rank, ranks=3) for rank in range(3)]
    for name, part in whole.items():
        assert sum(share[name].predictions for share in shares) == part.predictions > 0
        assert sum(share[name].total.item() for share in shares) == pytest.approx(part.total.item(), rel=1e-12)
