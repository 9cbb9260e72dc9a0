"""The batch plan: what a step holds, the same for any number of devices and for any way to get there."""

from itertools import combinations

import numpy as np
import pytest

from lightning_modules.data.packing import (
    TARGET_ROUNDING,
    BatchPlan,
    consecutive,
    first_fit_decreasing,
    level,
    pack,
)
from lightning_modules.data.sequences import single_sentences
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import END, START
from lightning_modules.errors import DataError
from tests.support.errors import error_text

BUDGET = 300


def made_split(sentences: int = 200, *, seed: int = 0) -> Split:
    rng = np.random.default_rng(seed)
    lengths, target_lengths = rng.integers(3, 40, (2, sentences))

    def flat(lengths):
        return np.concatenate([[START, *rng.integers(5, 99, n - 2), END] for n in lengths]).astype(np.uint16)

    def offsets(lengths):
        return np.concatenate([[0], np.cumsum(lengths)])

    return Split(
        ids=flat(lengths),
        offsets=offsets(lengths),
        documents=np.zeros(sentences, np.int32),
        target_ids=flat(target_lengths),
        target_offsets=offsets(target_lengths),
    )


split = made_split()
plan = BatchPlan(split, tokens_per_step=BUDGET, steps=40, seed=0)


def test_a_step_never_exceeds_its_tokens_and_nearly_reaches_them():
    sizes = [split.lengths[plan[i].sentence_S].sum() for i in range(len(plan))]
    assert max(sizes) <= BUDGET
    assert min(sizes) > BUDGET - split.lengths.max()  # one more sentence would not have fitted


def test_every_epoch_holds_every_sentence_once_in_another_order():
    stream = [
        (epoch, sentence)
        for i in range(len(plan))
        for sentence, epoch in zip(plan[i].sentence_S, plan[i].epoch_S, strict=True)
    ]
    first = [sentence for epoch, sentence in stream if epoch == 0]
    second = [sentence for epoch, sentence in stream if epoch == 1]
    assert sorted(first) == sorted(second) == list(range(200))
    assert first != second
    assert [epoch for epoch, _ in stream] == sorted(epoch for epoch, _ in stream)
    assert plan.epochs == pytest.approx(len(stream) / 200)


def test_steps_do_not_depend_on_how_many_there_are_or_on_what_was_asked_before():
    short = BatchPlan(split, tokens_per_step=BUDGET, steps=20, seed=0)
    for i in (19, 3, 18, 0):
        assert np.array_equal(short[i].sentence_S, plan[i].sentence_S)
        assert np.array_equal(short[i].epoch_S, plan[i].epoch_S)
    other = BatchPlan(split, tokens_per_step=BUDGET, steps=20, seed=1)
    assert not np.array_equal(other[0].sentence_S, plan[0].sentence_S)


def test_too_little_text_for_one_step_is_refused():
    two = Split(ids=np.zeros(11, np.uint16), offsets=np.array([0, 5, 11]), documents=np.zeros(2, np.int32))
    assert error_text(DataError, BatchPlan, two, tokens_per_step=100, steps=1, seed=0) == (
        "a step has 100 tokens (training.tokens_per_step), but the training text has only 11 in 2 sentences; give "
        "more text (data.train, training.sentences), or lower training.tokens_per_step."
    )
    assert len(BatchPlan(two, tokens_per_step=100, steps=0, seed=0)) == 0


def test_an_evaluation_reads_every_sentence_once_in_order():
    steps = consecutive(single_sentences(split, np.arange(len(split))), tokens_per_step=BUDGET)
    assert np.concatenate([step.sentence_S for step in steps]).tolist() == list(range(200))
    assert max(split.lengths[step.sentence_S].sum() for step in steps) <= BUDGET


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_packing_places_every_token_once_whatever_the_devices(ranks):
    for i in (0, 13, 39):
        seen = {}
        for rank in range(ranks):
            source, target, _ = pack(split, plan[i], row_length=40, rows=8, targets=True, rank=rank, ranks=ranks)
            assert target is not None
            assert len(np.unique(source.place_N)) == len(source.place_N)
            for rows, sentence in ((source, split.sentence), (target, split.target_sentence)):
                grid, slots, positions = rows.grid(rows.ids_N), rows.grid(rows.slot_N), rows.grid(rows.position_N)
                for number in np.unique(rows.sentence_N):
                    place = rows.place_N[rows.sentence_N == number]
                    row = place[0] // rows.shape[1]
                    assert np.array_equal(place, np.arange(place[0], place[0] + len(place)))  # contiguous
                    assert np.array_equal(grid.flat[place], sentence(number))
                    assert np.array_equal(positions.flat[place], np.arange(len(place)))
                    assert np.array_equal(
                        slots[row] == slots.flat[place[0]],
                        np.isin(np.arange(rows.shape[1]) + row * rows.shape[1], place),
                    )
                    seen[rows is target, number] = (row, slots.flat[place[0]])
        numbers = sorted(number for is_target, number in seen if not is_target)
        assert numbers == sorted(plan[i].sentence_S)
        # A translation stands in the row and slot of its source: that is how the decoder finds it.
        assert all(seen[False, number] == seen[True, number] for number in numbers)


def test_first_fit_decreasing_is_what_its_name_says():
    rng = np.random.default_rng(1)
    for _ in range(50):
        lengths = rng.integers(1, 65, size=rng.integers(0, 120))
        rooms = np.full(len(lengths), 64)
        rows = np.empty(len(lengths), int)
        for i in np.argsort(-lengths, kind="stable"):
            rows[i] = np.flatnonzero(rooms >= lengths[i])[0]
            rooms[rows[i]] -= lengths[i]
        assert np.array_equal(first_fit_decreasing(lengths, 64), rows)


def test_first_fit_decreasing_fills_rows_without_overflow():
    lengths = np.random.default_rng(0).integers(3, 40, 500)
    rows = first_fit_decreasing(lengths, 64)
    fill = np.bincount(rows, lengths)
    assert fill.max() <= 64
    assert len(fill) <= 11 / 9 * np.ceil(lengths.sum() / 64) + 6 / 9  # the known bound of first fit decreasing


def longest_target(rows, source, target):
    """Of the rows; endless where the sources of one do not fit into 64."""
    return np.inf if np.bincount(rows, source).max() > 64 else np.bincount(rows, target).max()


def test_levelled_rows_are_those_that_no_swap_with_the_fullest_makes_shorter():
    rng = np.random.default_rng(2)
    shorter = 0
    for _ in range(50):
        source, target = rng.integers(3, 33, (2, rng.integers(1, 20)))
        rows = first_fit_decreasing(source, 64)
        found = level(rows, source, target, 64)
        before, after = longest_target(rows, source, target), longest_target(found, source, target)
        assert sorted(np.bincount(found)) == sorted(np.bincount(rows))  # sequences are swapped, none is lost
        for a, b in combinations(range(len(source)), 2):
            swapped = found.copy()
            swapped[[a, b]] = found[[b, a]]
            loads = np.bincount(found, target)
            if loads.argmax() in found[[a, b]]:
                gains = np.maximum(*np.bincount(swapped, target, len(loads))[found[[a, b]]]) < loads.max()
                assert not (gains and longest_target(swapped, source, target) < np.inf)
        assert after <= before
        shorter += after < before
    assert shorter > 25


def test_targets_are_levelled_where_there_are_some():
    narrower = 0
    for i in range(40):
        _, target, _ = pack(split, plan[i], row_length=40, targets=True)
        lengths = split.target_lengths[plan[i].sentence_S]
        by_source = np.bincount(first_fit_decreasing(plan[i].lengths_Q, 40), lengths).max()
        assert target.shape[1] < by_source + TARGET_ROUNDING
        narrower += target.shape[1] < by_source
    assert narrower > 20


def test_swaps_keep_the_sources_in_their_rows():
    source, target = np.array([60, 50, 4, 10]), np.array([40, 9, 8, 7])
    rows = np.array([0, 1, 0, 1])
    assert level(rows, source, target, 64).tolist() == [0, 1, 0, 1]  # 60 and 10 do not fit into one row
    assert np.bincount(level(rows, source, target, 70), target).max() == 47
