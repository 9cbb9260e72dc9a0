"""Pairs that are not as they stand in the text: what changes place, what stays, and how often."""

import itertools
import re
from collections import Counter
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from lightning_modules.data.packing import BatchPlan, pack, require_pairs
from lightning_modules.data.sequences import (
    NO_PAIR,
    OTHER,
    PAIR,
    Sequences,
    epochs,
    formatted,
    joined,
    with_negative_pairs,
)
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, START
from lightning_modules.errors import DataError
from lightning_modules.randomness import derive, uniforms
from lightning_modules.training.data_module import RunData
from tests.support.errors import error_text
from tests.support.tiny_text import settings

FORMATS = ("sentence_pair", "segment_pair")
LOSSES = ("next_sentence", "sentence_order")
LENGTH = 40
"""Of a sequence: at most 18 pieces a segment."""

Entry = tuple[int, int, int, bool]
"""Sentence, epoch, pieces, whether an END follows."""
Pair = tuple[int, list[Entry], list[Entry]]
"""Label, first segment, second segment."""


def made_split(sizes: list[int], *, longest: int = 30) -> Split:
    """Documents of so many sentences of 3 to `longest` tokens."""
    rng = np.random.default_rng(len(sizes))
    lengths = rng.integers(3, longest + 1, sum(sizes))
    ids_N = rng.integers(FIRST_WORD_ID, 999, lengths.sum()).astype(np.uint16)
    ids_N[np.cumsum(lengths) - lengths], ids_N[np.cumsum(lengths) - 1] = START, END
    documents = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
    return Split(ids_N, np.concatenate([[0], np.cumsum(lengths)]), documents)


@cache
def text() -> Split:
    """300 documents of 1 to 14 sentences."""
    return made_split(np.random.default_rng(0).integers(1, 15, 300).tolist())


@cache
def everything(name: str, *, epoch: int = 0) -> Sequences:
    """An epoch of the text as one step."""
    made = epochs(text(), name, max_length=LENGTH, seed=0)(epoch)
    return made.part(0, len(made.lengths_Q)).of_epoch(epoch)


def in_order(split: Split, name: str = "sentence_pair") -> Sequences:
    """A split in its own order, as one step."""
    return formatted(split, np.arange(len(split)), split.documents.astype(np.int64), name, max_length=LENGTH)


def pairs_of(step: Sequences) -> list[Pair]:
    """The sequences as plain lists, an entry at a time."""
    pairs: list[Pair] = [(label, [], []) for label in step.label_Q.tolist()]
    for i, q in enumerate(step.sequence_S.tolist()):
        columns = (step.sentence_S, step.epoch_S, step.pieces_S, step.closes_S)
        segment = step.segment_S[i]
        assert segment == 0 or pairs[q][1]  # the first segment stands first
        assert segment == 1 or not pairs[q][2]
        pairs[q][1 + segment].append(tuple(column[i].item() for column in columns))
    assert step.sequence_S.tolist() == sorted(step.sequence_S)
    return pairs


def coin(pair: Pair, *, seed: int) -> bool:
    """Whether a pair is to be spoilt, from the written rule: (seed, epoch, first sentence) alone."""
    return pair[0] == PAIR and drawn(seed, *pair[1][0][:2]) < 0.5


@cache
def drawn(seed: int, sentence: int, epoch: int) -> float:
    return uniforms(derive(seed, "pairs"), np.array([epoch]), np.array([sentence])).item()


def document(entry: Entry, split: Split) -> int:
    return int(split.documents[entry[0]])


def spoilt_as_asked(split: Split, natural: list[Pair], ours: list[Pair], *, seed: int) -> tuple[int, int]:
    """Check what next_sentence does to pairs, and count the spoilt ones and those that the coin chose."""
    chosen = [q for q, pair in enumerate(natural) if coin(pair, seed=seed)]
    spoilt = {q for q, (label, _, _) in enumerate(ours) if label == OTHER}
    assert spoilt <= {*chosen}
    for q, (before, now) in enumerate(zip(natural, ours, strict=True)):
        if q in spoilt:
            assert now[1] == before[1]
            assert not {document(e, split) for e in now[1]} & {document(e, split) for e in now[2]}
        else:
            assert now == before
    # The second segments of the spoilt pairs, each whole and each once.
    assert Counter(str(ours[q][2]) for q in spoilt) == Counter(str(natural[q][2]) for q in spoilt)
    return len(spoilt), len(chosen)


# Laws of both losses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_holds_the_same_text_and_only_pairs_change(name, loss):
    for natural in (everything(name), everything(name).part(3, 40)):
        ours = with_negative_pairs(natural, loss, text().documents, seed=1)
        before, now = pairs_of(natural), pairs_of(ours)
        for whole in (lambda pair: [*pair[1], *pair[2]], lambda pair: [str(pair[1]), str(pair[2])]):
            assert Counter(itertools.chain(*map(whole, before))) == Counter(itertools.chain(*map(whole, now)))
        assert ours.lengths_Q.sum() == natural.lengths_Q.sum()
        assert ours.lengths_Q.max() <= LENGTH
        alone = [q for q, (label, _, _) in enumerate(before) if label == NO_PAIR]
        assert [q for q, (label, _, _) in enumerate(now) if label == NO_PAIR] == alone
        assert len(alone) > 0
        assert all(now[q] == before[q] for q in alone)
        assert {label for label, _, _ in now} == {NO_PAIR, OTHER, PAIR}
        assert all(bool(second) == (label != NO_PAIR) for label, _, second in now)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("loss", LOSSES)
def test_about_half_of_the_pairs_are_spoilt(name, loss):
    shares = []
    for seed in range(5):
        label_Q = with_negative_pairs(everything(name), loss, text().documents, seed=seed).label_Q
        pairs = np.isin(label_Q, (OTHER, PAIR)).sum()
        shares.append((label_Q == OTHER).sum() / pairs)
        assert abs(shares[-1] - 0.5) < 4 * np.sqrt(0.25 / pairs)  # four standard errors of a fair coin
    assert len(set(shares)) > 1


@pytest.mark.parametrize("loss", LOSSES)
def test_packed_rows_hold_the_tokens_of_the_text(loss):
    natural = everything("segment_pair")
    ours = with_negative_pairs(natural, loss, text().documents, seed=0)
    before, now = (pack(text(), step, row_length=LENGTH).source for step in (natural, ours))
    for rows in (before, now):
        assert np.array_equal(rows.ids_N == START, rows.position_N == 0)
        assert (np.diff(rows.segment_N)[np.diff(rows.position_N) == 1] >= 0).all()  # 0, then 1
        ends = np.flatnonzero(rows.ids_N == END)
        assert len(ends) == len(natural) + (natural.label_Q == PAIR).sum()  # one a segment
    # The same tokens but for START, which is that of whatever sentence stands first.
    inner = [rows.place_N[rows.position_N > 0] for rows in (before, now)]
    told = [
        sorted(zip(rows.grid(rows.index_N).flat[places], rows.grid(rows.ids_N).flat[places], strict=True))
        for rows, places in zip((before, now), inner, strict=True)
    ]
    assert told[0] == told[1]
    assert np.array_equal(now.label_Q, ours.label_Q)


@pytest.mark.parametrize("name", [*FORMATS, "doc_sentences"])
def test_without_a_loss_on_pairs_a_step_is_itself(name):
    step = everything(name)
    assert with_negative_pairs(step, "none", text().documents, seed=0) is step


@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_without_pairs_stays_as_it_is(loss):
    alone = made_split([1] * 30)
    assert pairs_of(with_negative_pairs(in_order(alone), loss, alone.documents, seed=0)) == pairs_of(
        in_order(alone)
    )
    one = in_order(made_split([2]))
    nothing = one.part(0, 0)
    assert len(with_negative_pairs(nothing, loss, np.zeros(2, np.int32), seed=0)) == 0


@pytest.mark.parametrize("loss", LOSSES)
def test_another_seed_or_epoch_spoils_others_and_the_same_the_same(loss):
    natural = everything("segment_pair")
    ours = [
        pairs_of(with_negative_pairs(step, loss, text().documents, seed=seed))
        for step, seed in ((natural, 0), (natural, 0), (natural, 1), (natural.of_epoch(1), 0))
    ]
    assert ours[0] == ours[1]
    labels = [[label for label, _, _ in pairs] for pairs in ours]
    # Two fair coins differ in half of the pairs: four standard errors.
    pairs = (natural.label_Q == PAIR).sum()
    for other in labels[2:]:
        differ = sum(a != b for a, b in zip(labels[0], other, strict=True))
        assert abs(differ / pairs - 0.5) < 4 * np.sqrt(0.25 / pairs)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_that_holds_two_epochs_keeps_both(loss):
    two = joined([everything("segment_pair", epoch=0), everything("segment_pair", epoch=1)])
    ours = with_negative_pairs(two, loss, text().documents, seed=0)
    before, now = pairs_of(two), pairs_of(ours)
    chosen = [q for q, pair in enumerate(before) if coin(pair, seed=0)]
    assert [q for q, (label, _, _) in enumerate(now) if label == OTHER] == chosen
    assert Counter(e[:2] for pair in now for segment in pair[1:] for e in segment) == {
        (sentence, epoch): 1 for sentence in range(len(text())) for epoch in (0, 1)
    }


# Sentence order ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_sentence_order_swaps_the_segments_and_nothing_else(name):
    natural = pairs_of(everything(name))
    ours = pairs_of(with_negative_pairs(everything(name), "sentence_order", text().documents, seed=2))
    assert ours == [(OTHER, pair[2], pair[1]) if coin(pair, seed=2) else pair for pair in natural]


@pytest.mark.parametrize("name", FORMATS)
def test_sentence_order_of_a_pair_does_not_depend_on_its_step(name):
    whole = with_negative_pairs(everything(name), "sentence_order", text().documents, seed=0)
    for start, stop in ((0, 1), (7, 60), (100, 101), (0, len(whole))):
        step = with_negative_pairs(everything(name).part(start, stop), "sentence_order", text().documents, seed=0)
        assert pairs_of(step) == pairs_of(whole)[start:stop]
    turned = joined([everything(name).part(50, 90), everything(name).part(0, 50)])
    step = with_negative_pairs(turned, "sentence_order", text().documents, seed=0)
    assert pairs_of(step) == pairs_of(whole)[50:90] + pairs_of(whole)[:50]


def test_sentence_order_works_in_a_text_of_one_document():
    one = made_split([200])
    label_Q = with_negative_pairs(in_order(one), "sentence_order", one.documents, seed=0).label_Q
    assert abs((label_Q == OTHER).mean() - 0.5) < 4 * np.sqrt(0.25 / 100)  # four standard errors


# Next sentence ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_next_sentence_takes_second_segments_from_other_documents(name):
    natural = everything(name)
    for seed, step in enumerate((natural, natural.part(20, 200), joined([natural, natural.of_epoch(1)]))):
        ours = pairs_of(with_negative_pairs(step, "next_sentence", text().documents, seed=seed))
        spoilt, chosen = spoilt_as_asked(text(), pairs_of(step), ours, seed=seed)
        assert spoilt == chosen  # no document has more than half of them


def test_next_sentence_of_small_steps():
    natural = everything("sentence_pair")
    for start, size in itertools.product(range(0, 400, 3), (1, 2, 5, 9)):
        step = natural.part(start, start + size)
        before, ours = (
            pairs_of(step),
            pairs_of(with_negative_pairs(step, "next_sentence", text().documents, seed=0)),
        )
        spoilt, chosen = spoilt_as_asked(text(), before, ours, seed=0)
        documents = Counter(document(pair[1][0], text()) for pair in before if coin(pair, seed=0))
        most = max(documents.values(), default=0)
        # As many as can be: each pair of the most frequent document needs one of another.
        assert spoilt == min(chosen, 2 * (chosen - most))


@pytest.mark.parametrize("others", [0, 1, 5, 30, 60, 100])
def test_next_sentence_where_one_document_has_many_of_the_pairs(others):
    sizes = [4] * (others // 2) + [120] + [2] * (others - others // 2)
    split = made_split(sizes)
    natural, large = pairs_of(in_order(split)), others // 2
    for seed in range(5):
        ours = pairs_of(with_negative_pairs(in_order(split), "next_sentence", split.documents, seed=seed))
        spoilt, chosen = spoilt_as_asked(split, natural, ours, seed=seed)
        of_large = sum(coin(pair, seed=seed) and document(pair[1][0], split) == large for pair in natural)
        assert spoilt == min(chosen, 2 * (chosen - of_large))
        assert spoilt > 0 or others < 5
        if 0 < spoilt < chosen:
            # All of the other documents' pairs are spoilt, and as many of the large one's.
            ours_spoilt = Counter(document(pair[1][0], split) == large for pair in ours if pair[0] == OTHER)
            assert ours_spoilt == {True: chosen - of_large, False: chosen - of_large}


def test_next_sentence_spoils_nothing_in_a_text_of_one_document():
    one = made_split([50])
    natural = pairs_of(in_order(one))
    assert sum(coin(pair, seed=0) for pair in natural) > 5
    assert pairs_of(with_negative_pairs(in_order(one), "next_sentence", one.documents, seed=0)) == natural


def test_next_sentence_counts_a_document_that_is_in_parts_as_one():
    # Two documents in many parts each, which are put in order on their own.
    split = made_split([300, 300])
    made = epochs(split, "segment_pair", max_length=LENGTH, seed=0)(0)
    step = made.part(0, len(made.lengths_Q))
    assert (np.diff(split.documents[step.sentence_S]) != 0).sum() > 5
    ours = pairs_of(with_negative_pairs(step, "next_sentence", split.documents, seed=0))
    spoilt, _ = spoilt_as_asked(split, pairs_of(step), ours, seed=0)
    assert spoilt > 50


def test_next_sentence_needs_two_documents():
    run = settings(
        training={"input_format": "sentence_pair"},
        objective={"pair_loss": "next_sentence"},
        data={"document": "target"},
    )
    looked_through = []
    objective = SimpleNamespace(
        run=run, pair_loss="next_sentence", fit_to_text=lambda *given: looked_through.append(given)
    )
    one, two = (made_split(sizes) for sizes in ([200], [199, 1]))
    assert error_text(DataError, lambda: RunData(objective, SimpleNamespace(train=one))) == (
        "data.train: next_sentence needs second segments from another document, but the text is one document; "
        "set data.document to the column of documents, or separate documents by blank lines."
    )
    assert not looked_through
    assert error_text(DataError, lambda: RunData(objective, SimpleNamespace(train=two))).startswith(
        "next_sentence needs second segments from another document in at least a quarter of the pairs, but only "
    )
    objective.pair_loss = "sentence_order"
    RunData(objective, SimpleNamespace(train=one))
    assert len(looked_through) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_steps_with_few_documents_have_too_few_negative_pairs(name):
    """Neighbouring sequences of a long document share a step, unless the step is much longer than its parts."""
    books, run = made_split([800] * 12), {"data": {"document": "target", "max_length": LENGTH}}

    def required(**training):
        training = {"input_format": name} | training
        require_pairs(settings(training=training, **run), books, "next_sentence")

    sentence = error_text(DataError, required, tokens_per_step=2 * LENGTH)
    counts = re.fullmatch(
        r"next_sentence needs second segments from another document in at least a quarter of the pairs, but only "
        r"(\d+) of the first (\d+) pairs have one, because most steps hold few documents; raise "
        r"training\.tokens_per_step "
        r"\(80\), lower data\.max_length \(40\), or give more documents\.",
        sentence,
    )
    negative, pairs = map(int, counts.groups())
    assert negative < pairs / 4
    # 24 of 166 and 38 of 186 pairs are negative: more than an eighth and less than a quarter.
    error_text(DataError, required, tokens_per_step={"sentence_pair": 6, "segment_pair": 8}[name] * LENGTH)
    required(tokens_per_step=32 * LENGTH)


# Steps of a plan --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_steps_of_a_plan_hold_the_same_text_whatever_the_loss(name):
    plan = BatchPlan(text(), tokens_per_step=800, steps=60, seed=0, input_format=name, max_length=LENGTH)
    assert plan.epochs > 1
    for i in range(len(plan)):
        texts = []
        for loss in ("none", *LOSSES):
            step = with_negative_pairs(plan[i], loss, text().documents, seed=0)
            assert step.lengths_Q.sum() <= 800
            texts.append(sorted(zip(step.sentence_S, step.epoch_S, step.pieces_S, step.closes_S, strict=True)))
        assert texts[0] == texts[1] == texts[2]
