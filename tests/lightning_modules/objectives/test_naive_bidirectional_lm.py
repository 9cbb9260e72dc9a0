"""A language model from both sides that hides nothing: honest in one layer, and told its answers from two on."""

import math

import numpy as np
import pytest
import torch

from lightning_modules.config import operations_per_token
from lightning_modules.data.packing import BatchPlan, pack
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, MASK, START
from lightning_modules.model.heads import IGNORED
from lightning_modules.objectives import build
from lightning_modules.objectives.naive_bidirectional_lm import NaiveBidirectionalLM
from lightning_modules.training.data_module import as_tensors
from tests.support.plain_block import plain_block, plain_embedding, plain_logits
from tests.support.sight import first_batch, influence, spread
from tests.support.tiny_text import settings

SEQUENCE = torch.tensor([1] * 6 + [2] * 4 + [0] * 3)
POSITION = torch.tensor([*range(6), *range(4), 0, 0, 0])
TEXT = torch.tensor([False, True, True, True, True, False, False, True, True, False, False, False, False])
"""What is neither START nor END nor padding: the places that are predicted."""


def naive(tokens, layers, **encoder):
    return build(settings("naive_bidirectional_lm", encoder={"num_hidden_layers": layers} | encoder), tokens)


def seen_in(objective, layer=-1):
    """Who influences whom in a row with two sentences and padding."""
    ids = torch.randint(9, 320, (13,), generator=torch.Generator().manual_seed(0))
    shared = {"sequence_BT": SEQUENCE.expand(14, -1), "position_BT": POSITION.expand(14, -1)}
    return influence(lambda rows: objective.encode(shared | {"tokens_BT": rows})[layer], ids)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_with_one_layer_a_state_knows_everything_but_its_own_token(norm, tokens):
    seen = seen_in(spread(naive(tokens, 1, norm=norm)))
    same = (SEQUENCE[:, None] == SEQUENCE) & (SEQUENCE > 0)
    assert torch.equal(seen[TEXT], (same & ~torch.eye(13, dtype=torch.bool))[TEXT])


def test_with_one_layer_a_state_knows_its_own_place_and_segment(tokens):
    run = settings("naive_bidirectional_lm", training={"input_format": "sentence_pair"})
    objective = spread(build(run.model_copy(update={"encoder": naive(tokens, 1).run.encoder}), tokens))
    batch = {"tokens_BT": torch.arange(10, 23), "sequence_BT": SEQUENCE, "position_BT": POSITION}
    batch = {name: x[None] for name, x in batch.items()} | {"segment_BT": torch.zeros(1, 13, dtype=torch.int64)}
    with torch.no_grad():
        before = objective.encode(batch)[-1][0, 3]
        for name, other in (("position_BT", 9), ("segment_BT", 1)):
            changed = batch | {name: batch[name].clone()}
            changed[name][0, 3] = other
            after = objective.encode(changed)[-1][0, 3]
            assert (after - before).abs().max() > 1e-3  # of numbers about 1


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_from_the_second_layer_on_the_others_tell_a_state_its_own_token(norm, layers, tokens):
    objective = spread(naive(tokens, layers, norm=norm))
    same = (SEQUENCE[:, None] == SEQUENCE) & (SEQUENCE > 0)
    for layer in range(2, layers + 1):
        assert torch.equal(seen_in(objective, layer)[TEXT], same[TEXT])  # and never the other sentence
    assert torch.equal(seen_in(objective, 0)[TEXT], torch.eye(13, dtype=torch.bool)[TEXT])  # the embeddings


def test_nothing_is_undefined_where_a_stream_has_nobody_to_look_at(tokens):
    objective = spread(naive(tokens, 2))
    sequence = torch.tensor([[1, 1, 2, 2, 2, 0], [0] * 6, [1] * 6])  # an empty sentence, a row of padding
    position = torch.tensor([[0, 1, 0, 1, 2, 0], [0] * 6, [*range(6)]])
    ids = torch.tensor([[START, END, START, 9, END, 0], [0] * 6, [START, 9, 10, 11, 12, END]])
    batch = {"tokens_BT": ids, "sequence_BT": sequence, "position_BT": position}
    layers = objective.encode(batch)
    assert all(layer.isfinite().all() for layer in layers)
    sum(layer.sum() for layer in layers).backward()
    assert all(p.grad.isfinite().all() for p in objective.parameters() if p.grad is not None)
    # The second sentence of the first row has the states that it has alone.
    alone = {name: x[:1, 2:5] for name, x in batch.items()}
    for packed, single in zip(layers, objective.encode(alone), strict=True):
        torch.testing.assert_close(packed[0, 2:5], single[0], rtol=0, atol=1e-12)  # float64, another order


def test_every_word_is_asked_for_in_its_own_place_and_shown(tokens):
    _, _, batch = first_batch(settings("naive_bidirectional_lm"), tokens)
    flat, known = batch["tokens_BT"].flatten(), batch["label_N"] != IGNORED
    assert torch.equal(batch["label_N"][known], flat[batch["predict_N"][known]])
    words = (flat >= FIRST_WORD_ID).nonzero().flatten()
    assert batch["predict_N"][known].sort().values.tolist() == words.tolist()


def test_the_loss_is_that_of_two_streams_written_out(tokens):
    """Sentence by sentence: in the first block blank queries read the embeddings, later ones the sums."""
    objective, data, _ = first_batch(settings("naive_bidirectional_lm"), tokens)
    spread(objective)
    packed = pack(data.split, data.plan[0], row_length=data.row_length)
    loss = objective.losses(as_tensors(objective.make_batch(packed, seed=data.seed)))["loss"]
    encoder, total = objective.encoder, 0.0
    with torch.no_grad():
        for number in data.plan[0].sentence_S:
            ids = data.split.sentence(number).astype(int)
            n = len(ids)
            hidden, query = plain_embedding(encoder, ids), plain_embedding(encoder, np.full(n, MASK))
            left = torch.ones(n, n, dtype=torch.bool).tril(-1)
            left[0, 0] = True  # START has nobody to its left
            right = torch.ones(n, n, dtype=torch.bool).triu(1)
            right[-1, -1] = True
            for block in encoder.blocks:
                query = hidden = sum(plain_block(block, query, hidden, side) for side in (left, right))
            logits = plain_logits(objective.head, hidden, encoder.tokens.weight).log_softmax(-1)
            total -= sum(logits[t, ids[t]].item() for t in np.flatnonzero(ids >= FIRST_WORD_ID))
    assert loss.total.item() == pytest.approx(total, rel=1e-9)  # float64, and sums of hundreds


V, STEPS, LENGTH, AT_ONCE = 13, 150, 5, 32


def random_text():
    """Sentences in which no token says anything about another: nobody can honestly do better than log 8."""
    count = STEPS * AT_ONCE
    ids = np.full((count, LENGTH), START)
    ids[:, 1:-1] = np.random.default_rng(0).integers(FIRST_WORD_ID, V, (count, LENGTH - 2))
    ids[:, -1] = END
    return Split(ids.ravel().astype(np.uint16), np.arange(count + 1) * LENGTH, np.zeros(count, np.int32))


@pytest.mark.parametrize("layers", [1, 2])
def test_on_random_text_two_layers_learn_what_one_cannot(layers):
    shape = {"num_hidden_layers": layers, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32}
    training = {"max_steps": STEPS, "tokens_per_step": LENGTH * AT_ONCE, "learning_rate": 1e-2}
    run = settings("naive_bidirectional_lm", encoder=shape | {"dropout": 0.0}, training=training)
    split = random_text()
    objective = NaiveBidirectionalLM(run, vocab_size=V)
    objective.initialise()
    configured = objective.configure_optimizers()
    optimizer, schedule = configured["optimizer"], configured["lr_scheduler"]["scheduler"]
    plan = BatchPlan(split, tokens_per_step=LENGTH * AT_ONCE, steps=STEPS, seed=0)
    assert plan.epochs == 1  # no sentence comes twice: nothing can be learnt by heart
    losses = []
    for step in range(STEPS):
        batch = as_tensors(objective.make_batch(pack(split, plan[step], row_length=LENGTH), seed=0))
        optimizer.zero_grad()
        loss = objective.training_step(batch, step)["loss"]
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    reached, chance = np.mean(losses[-10:]), math.log(V - FIRST_WORD_ID)
    if layers == 1:  # what a model loses by seeing patterns in the noise is about 0.01
        assert reached == pytest.approx(chance, abs=0.05)
    else:  # impossible without being told; how far below depends on the steps
        assert reached < 0.8 * chance


def test_a_token_meets_the_maps_of_attention_once_and_all_else_in_each_stream():
    run = settings("naive_bidirectional_lm")  # 2 blocks of width 16 and 64 inside; 320 sub-words
    once, in_each_stream = 3 * 16 * 16, 16 * 16 + 2 * 16 * 64
    head = 16 * 16 + 16 * 320
    assert operations_per_token(run) == 6 * (2 * (once + 2 * in_each_stream) + head)
