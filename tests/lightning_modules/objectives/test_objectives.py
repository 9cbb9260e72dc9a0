"""Objectives: what they show, what they ask for, and their losses against plain references."""

import itertools
import math
from pkgutil import resolve_name

import numpy as np
import pytest
import torch

from lightning_modules.config.objectives import OBJECTIVES
from lightning_modules.data.packing import pack
from lightning_modules.data.tokenizer import END, MASK, START
from lightning_modules.errors import PluginError
from lightning_modules.model.heads import IGNORED
from lightning_modules.objectives import build
from lightning_modules.objectives.masked_lm import MaskedLM
from lightning_modules.objectives.objective import (
    EVALUATION_SEED,
    INITIAL_SCALE,
    PREDICTION_ROUNDING,
    Objective,
    global_mean,
)
from lightning_modules.objectives.skip_gram import SkipGram
from lightning_modules.training.data_module import (
    RunData,
    as_tensors,
    evaluate_parts,
    evaluation_batches,
    row_length,
)
from tests.support.errors import error_text
from tests.support.sight import KINDS as ALL_KINDS
from tests.support.sight import first_batch
from tests.support.tiny_text import settings

KINDS = ["masked_lm", "causal_lm", "translation"]


@pytest.mark.parametrize("kind", KINDS)
def test_arms_of_a_seed_start_from_the_same_encoder(kind, tokens):
    reference = build(settings("masked_lm", seed=5), tokens).encoder.state_dict()
    other = build(settings(kind, seed=5, training={"max_steps": 3}), tokens).encoder.state_dict()
    assert all(torch.equal(reference[name], other[name]) for name in reference)  # bit-identical
    another_seed = build(settings(kind, seed=6), tokens).encoder.state_dict()
    assert not torch.equal(reference["tokens.weight"], another_seed["tokens.weight"])


def test_arms_of_a_seed_see_the_same_sentences_in_the_same_order(tokens):
    runs = [settings(kind, seed=2) for kind in KINDS]
    data = [RunData(build(run, tokens), tokens) for run in runs]
    for step in range(12):
        first, *others = (d.plan[step].sentence_S for d in data)
        assert all(np.array_equal(first, other) for other in others)
    counts = [int(d.batch(3)["source_tokens"]) for d in data]
    assert len(set(counts)) == 1
    other_seed = RunData(build(settings(seed=3), tokens), tokens)
    assert not np.array_equal(other_seed.plan[0].sentence_S, data[0].plan[0].sentence_S)


@pytest.mark.parametrize("settings_class", OBJECTIVES)
def test_settings_know_whether_the_loss_is_over_the_vocabulary(settings_class):
    module = resolve_name(settings_class.module)
    assert settings_class.has_vocabulary_loss == ("loss" in {part.name for part in module.vocabulary_parts})


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "translation"])
@pytest.mark.parametrize("none", ["no places", "ignored places"])
def test_a_batch_that_asks_for_nothing_costs_nothing(kind, none, tokens):
    objective, _, batch = first_batch(settings(kind), tokens)
    count = 0 if none == "no places" else 64
    batch |= {"predict_N": torch.zeros(count, dtype=torch.int64), "label_N": torch.full((count,), IGNORED)}
    outputs = objective.training_step(batch, 0)
    outputs["loss"].backward()
    assert outputs["totals"][1:3].tolist() == [0, 0]  # after the source tokens: the loss and its predictions
    assert all(p.grad is None or not p.grad.any() for p in objective.parameters())


def test_masked_lm_loss_is_the_mean_negative_log_probability_of_the_hidden_tokens(tokens):
    objective, data, batch = first_batch(settings(), tokens)
    loss = objective.losses(batch)["loss"]
    packed = pack(data.split, data.plan[0], row_length=data.row_length, rows=data.rows_at(0))
    # The formula in numpy: softmax over the vocabulary at each selected position.
    with torch.no_grad():
        states = objective.encode(batch)[-1]
        logits = (
            objective.head(states, objective.encoder.tokens.weight).double().numpy().reshape(-1, tokens.vocab_size)
        )
    original = np.zeros(logits.shape[0], int)
    original[packed.source.place_N] = packed.source.ids_N
    places = batch["predict_N"][batch["label_N"] != IGNORED].numpy()
    assert len(places) < len(batch["predict_N"]) == PREDICTION_ROUNDING * -(-len(places) // PREDICTION_ROUNDING)
    log_probability = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    expected = -sum(log_probability[i, original[i]] for i in places)
    assert loss.predictions == len(places)
    assert loss.total.item() == pytest.approx(expected, rel=1e-5)  # float32 logits
    shown = batch["tokens_BT"].flatten().numpy()
    changed = np.flatnonzero(shown[packed.source.place_N] != packed.source.ids_N)
    assert set(packed.source.place_N[changed]) <= set(places)
    assert (shown[places] == MASK).any()


def test_causal_lm_predicts_each_token_from_those_before_it(tokens):
    objective, data, batch = first_batch(settings("causal_lm"), tokens)
    shown = batch["tokens_BT"].flatten().numpy()
    asked = batch["label_N"] != IGNORED
    places, labels = batch["predict_N"][asked].numpy(), batch["label_N"][asked].numpy()
    assert np.array_equal(shown[places + 1], labels)
    assert START not in labels
    assert (labels == END).sum() == len(data.plan[0].sentence_S)
    assert len(labels) == int(batch["source_tokens"]) - len(data.plan[0].sentence_S)
    # What is predicted cannot be seen: changing a label's token leaves its own prediction alone.
    place = places[5]
    changed = {name: tensor.clone() for name, tensor in batch.items()}
    changed["tokens_BT"].view(-1)[place + 1] = 7 if shown[place + 1] != 7 else 8
    with torch.no_grad():
        before, after = (objective.encode(b)[-1].flatten(0, 1) for b in (batch, changed))
    assert torch.equal(before[place], after[place])
    assert not torch.equal(before[place + 1], after[place + 1])


def test_translation_sees_its_whole_source_and_its_own_past_only(tokens):
    objective, _, batch = first_batch(settings("translation"), tokens)

    def states(b):
        with torch.no_grad():
            return objective.decoder(
                b["target_tokens_BU"],
                objective.encode(b)[-1],
                sequence_BU=b["target_sequence_BU"],
                source_sequence_BT=b["sequence_BT"],
                position_BU=b["target_position_BU"],
            )

    before = states(batch)
    assert before.isfinite().all()
    target = {name: tensor.clone() for name, tensor in batch.items()}
    target["target_tokens_BU"][0, 3] = 9 if batch["target_tokens_BU"][0, 3] != 9 else 10
    changed = (states(target) != before).any(-1)
    same_sentence = batch["target_sequence_BU"][0] == batch["target_sequence_BU"][0, 3]
    later = torch.arange(len(same_sentence)) >= 3
    assert torch.equal(changed[0], same_sentence & later)
    assert not changed[1:].any()
    source = {name: tensor.clone() for name, tensor in batch.items()}
    last_of_first = int((batch["sequence_BT"][0] == 1).sum()) - 2
    source["tokens_BT"][0, last_of_first] = 9 if batch["tokens_BT"][0, last_of_first] != 9 else 10
    changed = (states(source) != before).any(-1)
    numbers = batch["target_sequence_BU"]
    assert torch.equal(changed[0][numbers[0] > 0], numbers[0][numbers[0] > 0] == 1)
    assert not changed[1:].any()


def test_translation_decodes_greedily(tokens):
    objective, _, _ = first_batch(settings("translation"), tokens)
    torch.nn.init.normal_(objective.decoder.tokens.weight, std=1.0)  # so that the answers differ
    sentences = [tokens.validation.sentence(i).astype(int).tolist() for i in (0, 1)]
    width = max(map(len, sentences))
    rows = torch.tensor([s + [0] * (width - len(s)) for s in sentences])
    both = objective.translate(rows, max_length=20)
    for row, sentence in enumerate(sentences):  # alone and without padding, token by token
        ids = torch.tensor([sentence])
        source, decoded = objective.encoder(ids, sees="both_sides")[-1], [START]
        while len(decoded) < 20 and decoded[-1] != END:
            hidden = objective.decoder(
                torch.tensor([decoded]),
                source,
                sequence_BU=torch.ones(1, len(decoded), dtype=int),
                source_sequence_BT=torch.ones_like(ids),
                position_BU=torch.arange(len(decoded)),
            )
            decoded.append(int((hidden[0, -1] @ objective.decoder.tokens.weight.T).argmax()))
        assert both[row] == [i for i in decoded if i not in (START, END, 0)]


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_counts_every_sentence_once_and_is_the_same_for_any_devices(kind, tokens):
    objective = build(settings(kind), tokens).eval()
    whole = evaluate_parts(objective, tokens.validation)["loss"]
    shares = [
        [
            objective.losses(b)["loss"]
            for b in evaluation_batches(objective, tokens.validation, tokens_per_step=8192, rank=rank, ranks=3)
        ]
        for rank in range(3)
    ]
    total = sum(loss.total.double().item() for share in shares for loss in share)
    count = sum(int(loss.predictions) for share in shares for loss in share)
    assert count == int(whole.predictions)
    assert total == pytest.approx(whole.total.item(), rel=1e-6)  # float32 sums in another order
    if kind == "causal_lm":
        assert count == int(tokens.validation.lengths.sum()) - len(tokens.validation)


def test_evaluation_corruption_is_frozen(tokens):
    heavy = settings(objective={"masking": {"ratio": 0.8, "mask": 1.0, "random": 0.0, "keep": 0.0}}, seed=9)
    counts = [
        evaluate_parts(build(run, tokens), tokens.validation)["loss"].predictions
        for run in (settings(seed=1), heavy)
    ]
    assert counts[0] == counts[1]
    batches = [
        next(iter(evaluation_batches(build(run, tokens), tokens.validation, tokens_per_step=999)))
        for run in (settings(seed=1), heavy)
    ]
    assert torch.equal(batches[0]["tokens_BT"], batches[1]["tokens_BT"])


def test_packed_rows_give_the_loss_of_one_sentence_a_row(tokens):
    for kind in KINDS:
        objective = build(settings(kind), tokens).eval()
        data = RunData(objective, tokens)
        packed_loss = objective.losses(data.batch(0))["loss"]
        alone = []
        for i in range(len(data.plan[0])):
            one = pack(
                data.split,
                data.plan[0].part(i, i + 1),
                row_length=row_length(data.split),
                targets=objective.needs_targets,
            )
            alone.append(objective.losses(as_tensors(objective.make_batch(one, seed=data.seed)))["loss"])
        assert sum(int(loss.predictions) for loss in alone) == int(packed_loss.predictions)
        total = sum(loss.total.item() for loss in alone)
        assert total == pytest.approx(packed_loss.total.item(), rel=1e-5)  # float32 sums in another order


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_micro_batches_have_the_gradient_and_the_totals_of_the_step_and_a_mean_of_means_has_not(kind, tokens):
    """Of the third step, whose parts differ in the number of predictions with every objective."""
    objective, data, _ = first_batch(settings(kind, encoder={"dropout": 0}), tokens)
    objective.double().train()
    whole, *parts = data.batch(2), *(data.batch(2, part=part, parts=3) for part in range(3))
    for batch in (whole, *parts):
        losses, counts = objective.losses(batch), objective.predictions(batch)
        assert {part: int(loss.predictions) for part, loss in losses.items()} == {
            part: int(count) for part, count in counts.items()
        }
    gradients = {}
    for name, batch in (("whole", whole), ("cut", parts)):
        objective.zero_grad()
        outputs = objective.training_step(batch, 0)
        outputs["loss"].backward()
        gradients[name] = torch.cat([weight.grad.flatten() for weight in objective.parameters()])
        if name == "whole":
            totals = outputs["totals"]
    torch.testing.assert_close(outputs["totals"], totals, rtol=1e-11, atol=0)  # float64 sums in another order
    torch.testing.assert_close(gradients["cut"], gradients["whole"], rtol=0, atol=1e-12)
    objective.zero_grad()
    for batch in parts:
        (objective.training_step(batch, 0)["loss"] / 3).backward()
    mean_of_means = torch.cat([weight.grad.flatten() for weight in objective.parameters()])
    assert float((mean_of_means - gradients["whole"]).abs().max()) > 1e-5


class Uncounted(SkipGram):
    predictions = Objective.predictions


def test_an_objective_that_does_not_count_its_predictions_is_refused_in_micro_batches_alone(tokens):
    run = settings("skip_gram")
    objective = Uncounted.of_text(run, tokens)
    data = RunData(objective, tokens)
    assert objective.training_step([data.batch(0)], 0)["loss"].isfinite()
    parts = [data.batch(0, part=part, parts=2) for part in range(2)]
    assert error_text(PluginError, objective.training_step, parts, 0) == (
        "skip_gram: its module Uncounted does not count the predictions of loss, as micro-batches need; define "
        "the method predictions in the class, or set training.accumulate to 1."
    )


def test_what_is_masked_does_not_depend_on_the_cut(tokens):
    _, data, whole = first_batch(settings(), tokens)

    def shown(batch):
        rows, sequences = batch["tokens_BT"].tolist(), batch["sequence_BT"].tolist()
        found = []
        for row, numbers in zip(rows, sequences, strict=True):
            for number in range(1, max(numbers) + 1):
                found.append(tuple(token for token, own in zip(row, numbers, strict=True) if own == number))
        return found

    parts = [data.batch(0, part=part, parts=3) for part in range(3)]
    assert sorted(shown(whole)) == sorted(sentence for part in parts for sentence in shown(part))
    assert all(len(shown(part)) > 1 for part in parts)
    labels = [sorted(x for x in batch["label_N"].tolist() if x >= 0) for batch in (whole, *parts)]
    assert labels[0] == sorted(itertools.chain(*labels[1:]))


def test_global_mean_divides_by_the_count_and_never_by_zero():
    assert global_mean(torch.tensor(6.0), torch.tensor(3.0)) == 2
    assert global_mean(torch.tensor(0.0), torch.tensor(0.0)) == 0


def test_the_optimiser_has_the_constants_of_the_settings(tokens):
    training = {"adam_beta1": 0.8, "adam_beta2": 0.998, "adam_epsilon": 1e-9, "schedule": "inverse_sqrt"}
    objective = build(settings(training=training | {"max_steps": 100, "warmup_steps": 4}), tokens)
    optimizer = objective.configure_optimizers()["optimizer"]
    assert (optimizer.defaults["betas"], optimizer.defaults["eps"]) == ((0.8, 0.998), 1e-9)
    assert objective.learning_rate(15) == objective.run.training.learning_rate / 2


@pytest.mark.parametrize("kind", ["masked_lm", "translation"])
def test_glorot_weights_are_uniform_with_the_variance_of_the_paper(kind, tokens):
    encoder = {"initialisation": "glorot", "hidden_size": 64, "embedding": {"bias": True}}
    objective = build(settings(kind, encoder=encoder, objective={"head": "linear"}), tokens)
    for name, parameter in objective.state_dict().items():
        if parameter.ndim < 2:
            assert parameter.unique().tolist() == [0.0 if name.endswith("bias") else 1.0]
            continue
        if "tokens" in name or "positions" in name:
            variance, kurtosis = 1 / 64, 3.0
        else:
            outputs = parameter.shape[0] // {"query_key_value": 3, "key_value": 2}.get(name.split(".")[-2], 1)
            variance, kurtosis = 2 / (outputs + parameter.shape[1]), 1.8
            assert float(parameter.abs().max()) <= math.sqrt(3 * variance)
        spread = math.sqrt((kurtosis - 1) / parameter.numel())  # standard error of a variance, as a share of it
        assert float(parameter.double().var()) == pytest.approx(variance, rel=5 * spread), name


@pytest.mark.parametrize("initialisation", ["normal", "glorot"])
def test_a_matrix_of_an_objective_of_ones_own_has_initial_weights(initialisation):
    class WithMatrix(MaskedLM):
        def __init__(self, run, *, vocab_size):
            super().__init__(run, vocab_size=vocab_size)
            self.mix = torch.nn.Parameter(torch.zeros(30, 50))

    encoder = {"initialisation": initialisation, "hidden_size": 64}
    objective = WithMatrix(settings("masked_lm", encoder=encoder), vocab_size=320)
    objective.initialise()
    expected = {"normal": INITIAL_SCALE / 8, "glorot": math.sqrt(2 / (30 + 50))}[initialisation]
    assert float(objective.mix.detach().std()) == pytest.approx(
        expected, rel=0.1
    )  # 1,500 numbers: five standard errors


def test_label_smoothing_is_of_training_alone(tokens):
    plain, smooth = (
        build(settings(objective={"label_smoothing": share}, encoder={"dropout": 0.0}), tokens)
        for share in (0.0, 0.4)
    )
    batch = RunData(smooth, tokens).batch(0)
    assert smooth.train().losses(batch)["loss"].total > plain.train().losses(batch)["loss"].total
    assert smooth.eval().losses(batch)["loss"].total == plain.eval().losses(batch)["loss"].total


def test_weight_decay_touches_matrices_only(tokens):
    objective = build(settings(training={"weight_decay": 0.1}), tokens)
    configured = objective.configure_optimizers()
    decayed = {id(p) for g in configured["optimizer"].param_groups if g["weight_decay"] for p in g["params"]}
    for name, parameter in objective.named_parameters():
        expected = parameter.ndim == 2 and "tokens" not in name and "positions" not in name
        assert (id(parameter) in decayed) == expected, name


def test_an_untrained_model_knows_next_to_nothing(tokens):
    for kind in KINDS:
        objective = build(settings(kind), tokens)
        size = tokens.target_vocab_size if kind == "translation" else tokens.vocab_size
        loss = evaluate_parts(objective, tokens.validation)["loss"]
        # Initial logits have a standard deviation of INITIAL_SCALE nats, and so far the loss may be from a guess.
        assert (loss.total / loss.predictions).item() == pytest.approx(math.log(size), abs=INITIAL_SCALE)


def test_the_evaluation_seed_is_no_run_seed_in_disguise(tokens):
    """A run with seed 0 must not train on the very corruption that evaluates it."""
    objective, data, _ = first_batch(settings(seed=0), tokens)
    packed = pack(data.split, data.plan[0], row_length=data.row_length)
    training = objective.make_batch(packed, seed=data.seed)
    frozen = objective.make_batch(packed, seed=EVALUATION_SEED)
    assert not np.array_equal(training["tokens_BT"], frozen["tokens_BT"])


def test_steps_that_asked_nothing_have_no_loss(tokens):
    objective = build(settings(), tokens)
    totals = [100.0, 0.0, 0.0, *[0.0] * len(objective.counted)]
    assert objective.explain(totals) == (100, 0, {f"corruption/{name}": 0.0 for name in objective.counted})


@pytest.mark.parametrize(("limit", "share"), [(0.5, 0.5), (2.0, 1.0), (0.0, 1.0)])
def test_gradients_are_clipped_to_the_limit_together_and_zero_is_no_limit(limit, share, tokens):
    objective, _, batch = first_batch(settings(encoder={"dropout": 0}), tokens)
    objective.training_step(batch, 0)["loss"].backward()
    before = {name: weight.grad.clone() for name, weight in objective.named_parameters()}
    norm = torch.linalg.vector_norm(torch.cat([grad.flatten() for grad in before.values()])).item()
    clipped = objective.run.training.model_copy(update={"gradient_clip_val": limit * norm})
    objective.run = objective.run.model_copy(update={"training": clipped})
    objective.configure_gradient_clipping(None)
    assert objective.gradient_norm.item() == pytest.approx(norm, rel=1e-5)  # what is logged is that before
    for name, weight in objective.named_parameters():
        torch.testing.assert_close(weight.grad, share * before[name], rtol=1e-4, atol=0)
