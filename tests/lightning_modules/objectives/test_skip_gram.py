"""Skip-gram with negative sampling: its pairs, its negatives, its loss, and what it learns."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from lightning_modules.data.packing import BatchPlan, pack
from lightning_modules.data.sequences import single_sentences
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, MASK, START, UNKNOWN
from lightning_modules.data.word_order import training_text
from lightning_modules.objectives.objective import PREDICTION_ROUNDING
from lightning_modules.objectives.skip_gram import (
    FREQUENCY_POWER,
    SkipGram,
    kept_share,
    training_counts,
    words_only,
)
from lightning_modules.randomness import derive, uniforms
from lightning_modules.training.data_module import as_tensors
from tests.support.sight import first_batch
from tests.support.tiny_text import settings

V = 25


def split_of(rows):
    """Sentences with these ids between START and END."""
    ids = [[START, *row, END] for row in rows]
    offsets = np.cumsum([0, *map(len, ids)])
    return Split(np.concatenate(ids).astype(np.uint16), offsets, np.zeros(len(ids), np.int32))


def zipf_text(count=300):
    """Sentences of 0 to 12 words, some far more frequent than others; the last of the vocabulary never occurs."""
    rng = np.random.default_rng(0)
    weights = 1 / np.arange(1, V - FIRST_WORD_ID)
    words = np.arange(FIRST_WORD_ID, V - 1)
    rows = [rng.choice(words, rng.integers(0, 13), p=weights / weights.sum()) for _ in range(count)]
    return split_of([[UNKNOWN if rng.random() < 0.05 else word for word in row] for row in rows])


SPLIT = zipf_text()
COUNTS_V = np.bincount(SPLIT.ids, minlength=V)


def skip_gram(*, counts_V=COUNTS_V, training=None, **objective):
    run = settings("skip_gram", objective=objective, training=training or {})
    made = SkipGram(run, vocab_size=V, counts_V=counts_V)
    made.initialise()
    return made


def whole(split, *, epoch=0):
    return pack(split, single_sentences(split, np.arange(len(split))).of_epoch(epoch), row_length=64)


def plain_pairs(objective, split, *, epoch, seed):
    """(token, neighbour, negatives) from the written rule: one sentence, one token, one neighbour at a time."""
    window, negatives, share = (getattr(objective.settings, x) for x in ("window", "negatives", "subsample"))
    key, total = derive(seed, "skip-gram"), COUNTS_V[FIRST_WORD_ID:].sum()
    weights = [0.0] * FIRST_WORD_ID + [count**0.75 for count in COUNTS_V[FIRST_WORD_ID:].tolist()]
    steps = np.cumsum(weights) / sum(weights)

    def draw(number, offset, *more):
        return uniforms(key, *(np.array([x]) for x in (epoch, number, offset, *more))).item()

    pairs = []
    for number in range(len(split)):
        kept = []
        for offset, token in enumerate(split.sentence(number).tolist()):
            if token < FIRST_WORD_ID:
                continue
            frequency = COUNTS_V[token] / total
            if share is None or draw(number, offset, 0) < math.sqrt(share / frequency):
                kept.append((offset, token))
        for i, (offset, token) in enumerate(kept):
            reach = 1 + int(draw(number, offset, 1) * window)
            for j, (_, neighbour) in enumerate(kept):
                if i == j or abs(i - j) > reach:
                    continue
                uniform = [draw(number, offset, 2 + window + j - i, k) for k in range(negatives)]
                pairs.append((token, neighbour, tuple(int((steps <= u).sum()) for u in uniform)))
    return sorted(pairs)


@pytest.mark.parametrize("subsample", [None, 0.02])
@pytest.mark.parametrize("window", [1, 4, 10**6])
def test_pairs_are_those_of_a_plain_double_loop(window, subsample):
    objective = skip_gram(window=window, subsample=subsample, negatives=2)
    split = split_of([SPLIT.sentence(i)[1:-1] for i in range(12)])  # rows hold several sentences
    view = objective.make_batch(whole(split, epoch=3), seed=6)
    expected = plain_pairs(objective, split, epoch=3, seed=6)
    asked = view["centre_P"] >= FIRST_WORD_ID
    found = zip(view["centre_P"][asked], view["context_P"][asked], map(tuple, view["negative_PK"]), strict=False)
    assert sorted(found) == expected
    assert len(expected) >= 50
    assert len(view["centre_P"]) % PREDICTION_ROUNDING == 0
    assert not asked[len(expected) :].any()  # what fills up stands at the end


def test_negatives_follow_the_frequencies_to_the_power_of_three_quarters():
    objective = skip_gram(window=5, subsample=None, negatives=10)
    negative = np.concatenate(
        [view["negative_PK"][view["centre_P"] >= FIRST_WORD_ID] for view in views(objective, epochs=3)]
    ).ravel()
    weights = np.where(np.arange(V) >= FIRST_WORD_ID, COUNTS_V, 0) ** FREQUENCY_POWER
    expected = len(negative) * weights / weights.sum()
    counts = np.bincount(negative, minlength=V)
    assert (counts[expected == 0] == 0).all()  # no special token, and nothing that never occurs
    occurs = expected > 0
    assert expected[occurs].min() > 5  # or the statistic has no chi-squared distribution
    freedom = occurs.sum() - 1
    statistic = ((counts - expected)[occurs] ** 2 / expected[occurs]).sum()
    # Its mean is the degrees of freedom and its variance twice that; 5 standard deviations.
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5


def views(objective, *, epochs):
    return [objective.make_batch(whole(SPLIT, epoch=epoch), seed=0) for epoch in range(epochs)]


def test_how_far_a_token_reaches_is_uniform_and_frequent_tokens_are_left_out():
    window, count, share = 4, 2000, 0.02
    ids = list(range(FIRST_WORD_ID, FIRST_WORD_ID + 11))  # all different, so that a pair tells who it is of
    view = skip_gram(window=window, subsample=None).make_batch(whole(split_of([ids] * count)), seed=0)
    for distance in range(1, window + 1):
        for neighbour in (ids[5 - distance], ids[5 + distance]):
            pairs = np.count_nonzero((view["centre_P"] == ids[5]) & (view["context_P"] == neighbour))
            p = (window - distance + 1) / window  # of a reach, uniform from 1 to 4, that is at least so far
            assert pairs / count == pytest.approx(p, abs=4 * (p * (1 - p) / count) ** 0.5)  # binomial error
    frequency = COUNTS_V / COUNTS_V[FIRST_WORD_ID:].sum()
    likely = math.sqrt(share / frequency[FIRST_WORD_ID])
    assert likely < 0.5
    assert frequency[V - 2] < share  # never left out, so a pair is there when the other one is
    view = skip_gram(window=1, subsample=share).make_batch(
        whole(split_of([[FIRST_WORD_ID, V - 2]] * count)), seed=0
    )
    kept = np.count_nonzero(view["centre_P"] == V - 2) / count
    assert kept == pytest.approx(likely, abs=4 * (likely * (1 - likely) / count) ** 0.5)  # binomial error


def test_the_loss_is_the_formula_of_negative_sampling():
    objective = skip_gram(negatives=3, subsample=None).double()
    for table in (objective.encoder.tokens, objective.neighbours):
        nn.init.normal_(table.weight, std=0.7, generator=torch.Generator().manual_seed(1))
    view = objective.make_batch(whole(SPLIT), seed=0)
    loss = objective.losses(as_tensors(view))["loss"]
    here_VD, there_VD = (x.weight.detach().numpy() for x in (objective.encoder.tokens, objective.neighbours))
    total, count = 0.0, 0
    for centre, context, negatives in zip(
        *(view[x] for x in ("centre_P", "context_P", "negative_PK")), strict=True
    ):
        if centre < FIRST_WORD_ID:
            continue
        total += math.log1p(math.exp(-here_VD[centre] @ there_VD[context]))
        total += sum(math.log1p(math.exp(here_VD[centre] @ there_VD[k])) for k in negatives)
        count += 1
    assert int(loss.predictions) == count > 1000
    assert loss.total.item() == pytest.approx(total, rel=1e-9)  # float64, and sums of thousands


def test_vectors_that_know_nothing_lose_one_bit_an_answer():
    objective = skip_gram(negatives=7)
    nn.init.zeros_(objective.neighbours.weight)
    loss = objective.losses(as_tensors(objective.make_batch(whole(SPLIT), seed=0)))["loss"]
    expected = 8 * math.log(2)
    assert (loss.total / loss.predictions).item() == pytest.approx(expected, rel=1e-6)  # float32 logarithms
    assert objective.chance("loss", {}, {}) == pytest.approx(expected)


@pytest.mark.parametrize(
    "training",
    [
        {"sentences": 20},
        {"word_order": {"kind": "uniform"}, "sentences": 40},
        {"word_order": {"kind": "ngrams", "n": 1}},
        {},
    ],
)
def test_frequencies_are_those_of_the_text_that_the_run_trains_on(tokens, training):
    """They were those of the whole text, so that negatives were words that the run never reads."""
    run = settings("skip_gram", training=training)
    text, _ = training_text(run, tokens)
    counts_V = np.bincount(text.ids, minlength=tokens.vocab_size)
    assert np.array_equal(training_counts(run, tokens), counts_V)
    objective = SkipGram.of_text(run, tokens)
    negatives = objective.make_batch(whole(text), seed=0)["negative_PK"]
    assert set(np.unique(negatives[negatives > 0])) <= set(np.flatnonzero(words_only(counts_V)))
    kept = 1e-3 / np.maximum(words_only(counts_V) / words_only(counts_V).sum(), 1e-12)
    assert kept_share(1e-3, training_counts(run, tokens)) == pytest.approx(np.sqrt(kept))


def test_a_state_is_the_vector_of_its_token_whatever_stands_beside_it(tokens):
    objective, _, batch = first_batch(settings("skip_gram"), tokens)
    layers = objective.encode(batch)
    assert len(layers) == 1
    assert torch.equal(layers[0], objective.encoder.tokens.weight[batch["tokens_BT"]])
    changed = batch | {"tokens_BT": batch["tokens_BT"].clone(), "position_BT": 0 * batch["position_BT"]}
    changed["tokens_BT"][:, 1::2] = MASK
    assert torch.equal(objective.encode(changed)[0][:, ::2], layers[0][:, ::2])


def test_embeddings_do_not_decay(tokens):
    objective, _, _ = first_batch(settings("skip_gram", training={"weight_decay": 0.1}), tokens)
    groups = objective.configure_optimizers()["optimizer"].param_groups
    decayed = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
    tables = {name: x.weight for name, x in objective.named_modules() if isinstance(x, nn.Embedding)}
    assert [name for name, weight in tables.items() if id(weight) in decayed] == []


def test_words_of_one_topic_come_together():
    """Two topics whose words never meet in a sentence, and are equally frequent: only company tells them apart."""
    rng, steps, count = np.random.default_rng(0), 200, 2000
    topic_S = rng.integers(0, 2, count)
    split = split_of(FIRST_WORD_ID + 10 * topic_S[:, None] + rng.integers(0, 10, (count, 8)))
    training = {"max_steps": steps, "tokens_per_step": 400, "learning_rate": 2e-2}
    counts_V = np.bincount(split.ids, minlength=V)
    objective = skip_gram(counts_V=counts_V, training=training, subsample=None, window=3, negatives=5)
    plan = BatchPlan(split, tokens_per_step=400, steps=steps, seed=0)
    configured = objective.configure_optimizers()
    optimizer, schedule = configured["optimizer"], configured["lr_scheduler"]["scheduler"]

    def cosines():
        vectors = objective.encoder.tokens.weight.detach()[FIRST_WORD_ID:V]
        unit = vectors / vectors.norm(dim=1, keepdim=True)
        cosine, topic = unit @ unit.T, torch.arange(20) // 10
        same = (topic[:, None] == topic) & ~torch.eye(20, dtype=torch.bool)
        return cosine[same].mean().item(), cosine[topic[:, None] != topic].mean().item()

    same, other = cosines()
    # Directions at random: 90 and 100 pairs, each with a cosine of about 1 / 4; 5 errors of the difference.
    assert abs(same - other) < 5 * 0.25 * (1 / 90 + 1 / 100) ** 0.5
    losses = []
    for step in range(steps):
        packed = pack(split, plan[step], row_length=40)
        optimizer.zero_grad()
        loss = objective.training_step(as_tensors(objective.make_batch(packed, seed=0)), step)["loss"]
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    same, other = cosines()
    assert same > 0.8
    assert other < 0.4
    # The best that can be done: negatives of the other topic are known, of the 3.5 answers left one is a yes.
    best = math.log(3.5) + 2.5 * math.log(3.5 / 2.5)
    # Of 20 steps with about 1,300 pairs each the mean is known to 0.02; some is still to be learnt.
    assert np.mean(losses[-20:]) == pytest.approx(best, abs=0.1)
