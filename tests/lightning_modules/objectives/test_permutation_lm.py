"""Permutation language model: the order, who sees whom in it, and the paper's two streams written out."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lightning_modules.config import operations_per_token
from lightning_modules.data.packing import pack
from lightning_modules.data.sequences import single_sentences
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, MASK, START, UNKNOWN
from lightning_modules.model.heads import IGNORED
from lightning_modules.objectives import build
from lightning_modules.objectives.objective import EVALUATION_SEED
from lightning_modules.objectives.permutation_lm import QUERY_ROUNDING
from lightning_modules.randomness import derive, uniforms
from lightning_modules.training.data_module import as_tensors
from tests.support.plain_block import plain_block, plain_embedding, plain_logits
from tests.support.sight import influence, spread
from tests.support.tiny_text import settings

V, ROW = 320, 24


def split_of(lengths):
    """Sentences of so many tokens besides START and END, some of them unknown."""
    rng = np.random.default_rng(0)
    ids = [[START, *np.where(rng.random(n) < 0.1, UNKNOWN, rng.integers(9, V, n)), END] for n in lengths]
    offsets = np.cumsum([0, *map(len, ids)])
    return Split(np.concatenate(ids).astype(np.uint16), offsets, np.zeros(len(ids), np.int32))


SPLIT = split_of([9, 6, 0, 1, 12, 5, 7, 3, 8])


def permutation(tokens, *, predict=1 / 6, layers=2):
    run = settings("permutation_lm", objective={"predict": predict}, encoder={"num_hidden_layers": layers})
    return build(run, tokens).eval()


def packed_of(sentences, epochs=0, split=SPLIT, row_length=ROW):
    """Sentences, each in an epoch, packed in rows."""
    step = single_sentences(split, np.asarray(sentences))
    epoch_S = np.broadcast_to(np.asarray(epochs), len(step)).astype(np.int64)
    return pack(split, replace(step, epoch_S=epoch_S), row_length=row_length)


def plain_order(ids, *, epoch, sentence, predict, seed):
    """Rank of each token of a sentence, and which are predicted, from the written rule."""
    key, words = derive(seed, "permutation"), [i for i, token in enumerate(ids) if token >= FIRST_WORD_ID]
    where = np.array([epoch]), np.array([sentence])
    shuffled = sorted(words, key=lambda i: uniforms(key, *where, np.array([i])).item())
    order = [i for i in range(len(ids)) if i not in words] + shuffled
    wanted = int(predict * len(words) + uniforms(key, *where).item())
    return {place: rank for rank, place in enumerate(order)}, set(order[len(order) - wanted :])


@pytest.mark.parametrize("predict", [0.3, 1.0])
def test_in_two_layers_nobody_sees_its_own_token_or_a_later_one(predict, tokens):
    objective = spread(permutation(tokens, predict=predict))
    packed = packed_of([0, 1, 4])  # nine and six tokens in one row, twelve in the next
    view = objective.make_batch(packed, seed=1)
    for row in range(2):
        width = view["tokens_BT"].shape[1]
        batch = {name: torch.from_numpy(x[row]).expand(width + 1, -1) for name, x in view.items() if "_BT" in name}
        seen = influence(
            lambda rows, batch=batch: objective.encode(batch | {"tokens_BT": rows})[-1], batch["tokens_BT"][0]
        )
        expected, real = torch.zeros(width, width, dtype=torch.bool), np.zeros(width, bool)
        source = packed.source
        for number in np.unique(source.sentence_N[source.place_N // ROW == row]).tolist():
            mine = np.flatnonzero(source.sentence_N == number)
            place = source.place_N[mine] % ROW
            rank, predicted = plain_order(source.ids_N[mine], epoch=0, sentence=number, predict=predict, seed=1)
            real[place] = True
            for i in rank:
                for j in rank:
                    expected[place[i], place[j]] = rank[j] <= rank[i]
            queries = (np.arange(width) >= ROW) & (view["sequence_BT"][row] == view["sequence_BT"][row, place[0]])
            positions = view["position_BT"][row, queries].tolist()
            assert set(positions) == predicted
            for query, i in zip(np.flatnonzero(queries).tolist(), positions, strict=True):
                real[query] = True
                for j in rank:
                    expected[query, place[j]] = rank[j] < rank[i]
                assert expected[query, place[0]]
                assert expected[query, place[-1]]
                assert not expected[query, place[i]]
        assert torch.equal(seen[real][:, :ROW], expected[real][:, :ROW])
        # Nothing sees a query, but perhaps itself.
        others = seen & ~torch.eye(width, dtype=torch.bool)
        assert not others[real][:, ROW:].any()


@torch.no_grad()
def two_streams(objective, ids, rank, predicted):
    """Sum of the losses of a sentence as Yang et al. 2019, section 2.3, writes it: content states h see content of
    their rank and below, query states g start from the place alone and see content below their rank."""
    encoder, n = objective.encoder, len(ids)
    rank_T = torch.tensor([rank[i] for i in range(n)])
    content = plain_embedding(encoder, ids)
    query = plain_embedding(encoder, np.full(n, MASK))
    content_sees, query_sees = rank_T[None] <= rank_T[:, None], rank_T[None] < rank_T[:, None]
    asked = sorted(predicted)
    for block in encoder.blocks:
        query[asked] = plain_block(block, query[asked], content, query_sees[asked])
        content = plain_block(block, content, content, content_sees)
    logits = plain_logits(objective.head, query[asked], encoder.tokens.weight)
    return -sum(logits[k].log_softmax(-1)[ids[i]].item() for k, i in enumerate(asked))


@pytest.mark.parametrize("predict", [1 / 6, 1.0])
def test_the_loss_is_that_of_the_two_streams_of_the_paper(predict, tokens):
    objective = spread(permutation(tokens, predict=predict, layers=3))
    loss = objective.losses(as_tensors(objective.make_batch(packed_of(range(len(SPLIT)), 2), seed=3)))["loss"]
    expected, count = 0.0, 0
    for number in range(len(SPLIT)):
        ids = SPLIT.sentence(number).astype(int)
        rank, predicted = plain_order(ids, epoch=2, sentence=number, predict=predict, seed=3)
        if predicted:
            expected += two_streams(objective, ids, rank, predicted)
        count += len(predicted)
    assert int(loss.predictions) == count > 0
    assert loss.total.item() == pytest.approx(expected, rel=1e-9)  # float64, and sums of hundreds


def ranks_of(objective, packed, *, seed=0):
    """Rank and whether predicted, of every token in order, read off the tensors."""
    view, source = objective.make_batch(packed, seed=seed), packed.source
    width = view["tokens_BT"].shape[1]
    row, column = np.divmod(source.place_N, source.shape[1])
    asked = view["predict_N"][view["label_N"] != IGNORED]
    labels = view["label_N"][view["label_N"] != IGNORED]
    assert (view["tokens_BT"].ravel()[asked] == MASK).all()
    assert (asked % width >= source.shape[1]).all()
    names = ("sequence_BT", "position_BT", "query_rank_BT")
    queries = {
        (place // width, *(int(view[name].ravel()[place]) for name in names)): label
        for place, label in zip(asked.tolist(), labels.tolist(), strict=True)
    }
    rank_N = view["key_rank_BT"][row, column]
    assert np.array_equal(rank_N, view["query_rank_BT"][row, column])
    predicted_N = np.zeros(len(rank_N), bool)
    for n, key in enumerate(zip(row, source.slot_N, source.position_N, rank_N, strict=True)):
        label = queries.pop(tuple(map(int, key)), None)
        predicted_N[n] = label is not None
        assert label in (None, source.ids_N[n])
    assert not queries  # each belongs to a token
    return rank_N, predicted_N


def test_every_order_is_equally_likely_and_as_many_are_predicted_as_asked_for(tokens):
    objective, epochs, number, predict = permutation(tokens, predict=0.3), 1500, 1, 0.3
    ids = SPLIT.sentence(number)
    words = np.flatnonzero(ids >= FIRST_WORD_ID)
    n, T = len(words), len(ids)
    rank_N, predicted_N = ranks_of(objective, packed_of(np.full(epochs, number), np.arange(epochs)))
    rank_ET, predicted_ET = rank_N.reshape(epochs, T), predicted_N.reshape(epochs, T)
    assert (np.sort(rank_ET) == np.arange(T)).all()
    assert (rank_ET[:, [0, T - 1]] == [0, T - n - 1]).all()  # what is no text comes first, as it stands
    table = np.stack([np.bincount(rank_ET[:, i] - (T - n), minlength=n) for i in words])
    freedom = (n - 1) ** 2  # rows and columns add up
    chi_squared = ((table - epochs / n) ** 2 / (epochs / n)).sum()
    # Mean: the degrees of freedom, variance: twice that; 5 standard deviations.
    assert chi_squared < freedom + 5 * (2 * freedom) ** 0.5
    count_E = predicted_ET.sum(1)
    assert set(count_E.tolist()) == {int(predict * n), int(predict * n) + 1}
    part = predict * n % 1  # the chance of one more
    assert count_E.mean() == pytest.approx(predict * n, abs=4 * (part * (1 - part) / epochs) ** 0.5)
    assert not predicted_ET[:, ids < FIRST_WORD_ID].any()
    error = (predict * (1 - predict) / epochs) ** 0.5  # of a binomial share
    assert predicted_ET[:, words].mean(0) == pytest.approx(np.full(n, predict), abs=4 * error)
    # The last of the order are predicted.
    assert all(set(r[p]) == set(range(T - p.sum(), T)) for r, p in zip(rank_ET, predicted_ET, strict=True))


def test_the_order_depends_on_seed_epoch_and_sentence_alone(tokens):
    objective = permutation(tokens, predict=0.5)

    def order(sentences, epoch, seed, number):
        packed = packed_of(sentences, epoch)
        rank_N, predicted_N = ranks_of(objective, packed, seed=seed)
        mine = packed.source.sentence_N == number
        return rank_N[mine].tolist(), predicted_N[mine].tolist()

    for number in (0, 4, 7):
        alone = order([number], 3, 1, number)
        assert alone == order([8, number, 2, 5, 1], 3, 1, number)
    assert order([4], 3, 1, 4) != order([4], 4, 1, 4)
    assert order([4], 3, 1, 4) != order([4], 3, 2, 4)
    assert order([4], 3, EVALUATION_SEED, 4)[0] == [
        plain_order(SPLIT.sentence(4), epoch=3, sentence=4, predict=0.5, seed=EVALUATION_SEED)[0][i]
        for i in range(len(SPLIT.sentence(4)))
    ]


def test_queries_are_no_tokens_of_the_text_and_few_shapes_arise(tokens):
    objective = permutation(tokens, predict=1.0)
    packed = packed_of(range(len(SPLIT)))
    view = objective.make_batch(packed, seed=0)
    assert view["source_tokens"] == len(packed.source.ids_N) == SPLIT.lengths.sum()
    assert (view["tokens_BT"].shape[1] - ROW) % QUERY_ROUNDING == 0
    assert np.array_equal(view["tokens_BT"][:, :ROW], packed.source.grid(packed.source.ids_N))
    halves = packed.source._replace(segment_N=(packed.source.position_N > 4).astype(np.int64))
    paired = objective.make_batch(packed._replace(source=halves), seed=0)
    assert np.array_equal(paired["segment_BT"], (paired["position_BT"] > 4))  # that of the token in question
    nothing = objective.make_batch(packed_of([2]), seed=0)  # START and END: nothing to predict
    assert (nothing["label_N"] == IGNORED).all()
    batch = as_tensors(nothing)
    assert objective.losses(batch)["loss"].total == 0
    assert objective.encode(batch)[-1].isfinite().all()


@pytest.mark.parametrize("predict", [1 / 6, 0.5, 1.0])
def test_a_token_meets_the_weights_of_two_streams_of_which_one_has_keys_and_values(predict):
    run = settings("permutation_lm", objective={"predict": predict})  # 2 blocks of width 16 and 64 inside
    keys_and_values, all_else = 2 * 16 * 16, 2 * 16 * 16 + 2 * 16 * 64
    of_content = (
        2 * keys_and_values + all_else
    )  # the last block needs no more of the tokens that are not asked for
    of_query = 2 * all_else + 16 * 16 + 16 * 320
    assert operations_per_token(run) == pytest.approx(6 * (of_content + predict * of_query))
