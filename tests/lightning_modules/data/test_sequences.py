"""Input formats: which sentences stand together, against a plain reference and by the laws of each format."""

import itertools
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

from lightning_modules.data.packing import BatchPlan, PackedRows, consecutive, pack
from lightning_modules.data.sequences import (
    NO_PAIR,
    PAIR,
    Sequences,
    document_parts,
    epochs,
    formatted,
    joined,
    single_sentences,
)
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, START
from lightning_modules.errors import DataError
from lightning_modules.randomness import derive
from tests.support.errors import error_text

PAIRS = ("sentence_pair", "segment_pair")
FORMATS = (*PAIRS, "full_sentences", "doc_sentences")
LENGTH = 64
"""Of a sequence; at most 30 pieces in each segment of a pair, so that the longest sentences are cut."""
BUDGET = 700
STEPS = 60

Entry = tuple[int, int, int, int, bool]
"""Sentence, epoch, segment, pieces, whether an END follows."""
Sequence = tuple[int, list[Entry]]
"""Label, entries."""


def made_split(sizes: list[list[int]], *, seed: int = 0) -> Split:
    """Documents of sentences of so many tokens, START and END included."""
    rng, lengths = np.random.default_rng(seed), [*itertools.chain(*sizes)]
    ids = [[START, *rng.integers(FIRST_WORD_ID, 30_000, n - 2), END] for n in lengths]
    flat = np.fromiter(itertools.chain(*ids), np.uint16)
    documents = np.repeat(np.arange(len(sizes)), [len(size) for size in sizes]).astype(np.int32)
    for array in (flat, documents):
        array.flags.writeable = False  # as those of a token store are, and so that no test can miss a change
    return Split(flat, np.cumsum([0, *lengths]), documents)


@cache
def text(documents: int = 40, *, seed: int = 0) -> Split:
    """Documents of 1 to 30 sentences of 3 to 60 tokens, half of the documents with short sentences."""
    rng = np.random.default_rng(seed)
    longest = rng.choice([15, 60], documents)
    return made_split([rng.integers(3, n + 1, rng.integers(1, 31)).tolist() for n in longest], seed=seed)


def listed(sequences: Sequences) -> list[Sequence]:
    """Sequences as plain lists, an entry at a time."""
    lists: list[Sequence] = [(label, []) for label in sequences.label_Q.tolist()]
    assert sequences.sequence_S.tolist() == sorted(sequences.sequence_S)
    for i, q in enumerate(sequences.sequence_S.tolist()):
        columns = ("sentence_S", "epoch_S", "segment_S", "pieces_S", "closes_S")
        lists[q][1].append(tuple(getattr(sequences, name)[i].item() for name in columns))
    return lists


def rendered(split: Split, entries: list[Entry]) -> list[int]:
    """The ids of a sequence: START, pieces, and END where it is asked for."""
    ids = [START]
    for sentence, _, _, pieces, closes in entries:
        ids += split.sentence(sentence)[1:-1].tolist()[:pieces]
        ids += [END] * closes
    return ids


def everything(split: Split, name: str, *, max_length: int = LENGTH, seed: int = 0, epoch: int = 0) -> Sequences:
    """All of an epoch."""
    made = epochs(split, name, max_length=max_length, seed=seed)(epoch)
    return made.part(0, len(made.lengths_Q))


def parts_of(split: Split, *, max_length: int = LENGTH) -> list[int]:
    """For each sentence the number of its part, of which a document of up to eight full sequences has one."""
    size, numbers, part, before = 8 * max_length, [], -1, 0
    for i, length in enumerate(split.lengths.tolist()):
        new = i == 0 or split.documents[i] != split.documents[i - 1]
        if new:
            before = 0
        part += new or before // size != (before - split.lengths[i - 1]) // size
        numbers.append(part)
        before += length
    return numbers


# The reference: one document, one segment, one sentence at a time -------------------------------------


def reference(
    split: Split, order: list[int], document: list[int], name: str, *, max_length: int
) -> list[Sequence]:
    """The format from its written rule."""
    texts = [[*group] for _, group in itertools.groupby(order, key=dict(zip(order, document, strict=True)).get)]
    if name in PAIRS:
        room = (max_length - 3) // 2
        divide = in_twos if name == "sentence_pair" else in_segments
        return [closed(split, segments, room) for one in texts for segments in divide(split, one, room)]
    if name == "doc_sentences":
        return [sequence for one in texts for sequence in filled(split, [one], max_length)]
    return filled(split, texts, max_length)


def in_twos(split: Split, sentences: list[int], room: int) -> list[list[list[int]]]:
    return [[[i] for i in sentences[k : k + 2]] for k in range(0, len(sentences), 2)]


def in_segments(split: Split, sentences: list[int], room: int) -> list[list[list[int]]]:
    """Two segments a sequence, each with as many sentences as there is room for; the rest of a document that
    fits into one is divided in the middle."""
    left, sequences = [*sentences], []
    while left:
        segments: list[list[int]] = []
        while left and len(segments) < 2:
            segment = [left.pop(0)]
            while left and sum(min(split.lengths[i] - 2, room) for i in [*segment, left[0]]) <= room:
                segment.append(left.pop(0))
            segments.append(segment)
        if len(segments) == 1 and len(segments[0]) > 1:
            half = (len(segments[0]) + 1) // 2
            segments = [segments[0][:half], segments[0][half:]]
        sequences.append(segments)
    return sequences


def closed(split: Split, segments: list[list[int]], room: int) -> Sequence:
    """A sequence with an END after each of its segments."""
    entries = [
        (i, 0, number, min(int(split.lengths[i]) - 2, room), i == segment[-1])
        for number, segment in enumerate(segments)
        for i in segment
    ]
    return PAIR if len(segments) == 2 else NO_PAIR, entries


def filled(split: Split, texts: list[list[int]], max_length: int) -> list[Sequence]:
    """As many sentences a sequence as fit when written out, an END after the last and at every document's end."""
    ends = {one[-1] for one in texts}

    def entries(taken: list[int]) -> list[Entry]:
        return [(i, 0, 0, int(split.lengths[i]) - 2, i in ends or i == taken[-1]) for i in taken]

    sequences: list[list[int]] = []
    for i in itertools.chain(*texts):
        if sequences and len(rendered(split, entries([*sequences[-1], i]))) <= max_length:
            sequences[-1].append(i)
        else:
            sequences.append([i])
    return [(NO_PAIR, entries(taken)) for taken in sequences]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("max_length", [60, 61, 64, 200])
def test_equals_the_plain_reference(name, max_length):
    for seed in range(3):
        split = text(seed=seed)
        ours = everything(split, name, max_length=max_length, seed=seed)
        part = parts_of(split, max_length=max_length)
        order = ours.sentence_S.tolist()
        plain = reference(split, order, [part[i] for i in order], name, max_length=max_length)
        assert listed(ours) == plain
        assert ours.lengths_Q.tolist() == [len(rendered(split, entries)) for _, entries in plain]


def test_a_text_small_enough_to_see():
    # Pieces: 4 3 3 | 9 | 1 1 2, in sequences of at most 15 tokens: in pairs 6 pieces a segment.
    split = made_split([[6, 5, 5], [11], [3, 3, 4]])

    def seen(name: str) -> list[str]:
        """Each sequence: its sentences, `-` behind what is cut, `]` where an END stands and `+` where none."""
        made = formatted(split, np.arange(7), split.documents.astype(np.int64), name, max_length=15)
        cut = np.where(made.pieces_S == split.lengths[made.sentence_S] - 2, "", "-")
        return [
            "".join(f"{i}{cut[i]}{'+]'[closes]}" for i, _, _, _, closes in entries) for _, entries in listed(made)
        ]

    assert seen("sentence_pair") == ["0]1]", "2]", "3-]", "4]5]", "6]"]
    assert seen("segment_pair") == ["0]1+2]", "3-]", "4+5]6]"]
    assert seen("doc_sentences") == ["0+1+2]", "3]", "4+5+6]"]
    assert seen("full_sentences") == ["0+1+2]", "3]4+5]", "6]"]


# Laws of every format ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sentences", *FORMATS])
def test_every_sentence_stands_once_in_every_epoch(name):
    for seed, epoch in ((0, 0), (0, 1), (5, 0)):
        made = everything(text(), name, seed=seed, epoch=epoch)
        assert sorted(made.sentence_S) == [*range(len(text()))]
        assert len(made) == len(made.label_Q) == made.sequence_S[-1] + 1


def tokens_by_sequence(rows: PackedRows) -> dict[tuple[int, int], list[int]]:
    """Places among the N tokens, by row and slot, in the order of their columns."""
    grid = np.full(rows.shape[0] * rows.shape[1], -1)
    grid[rows.place_N] = np.arange(len(rows.place_N))
    assert (grid >= 0).sum() == len(rows.place_N)  # no place is taken twice
    found: dict[tuple[int, int], list[int]] = {}
    for i in grid[grid >= 0].tolist():
        found.setdefault((rows.place_N[i] // rows.shape[1], rows.slot_N[i]), []).append(i)
    return found


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("max_length", [60, 61, 64, 200])
def test_what_a_packed_sequence_says(name, max_length):
    split, made = text(), everything(text(), name, max_length=max_length)
    part = parts_of(split, max_length=max_length)
    rows = pack(split, made, row_length=max_length).source
    starts = np.flatnonzero(rows.position_N == 0)
    sequences = np.split(np.arange(len(rows.ids_N)), starts[1:])
    assert len(sequences) == len(made)
    for places, (_, entries) in zip(sequences, listed(made), strict=True):
        ids = rows.ids_N[places].tolist()
        assert len(ids) <= max_length
        assert ids == rendered(split, entries)
        assert [i for i, piece in enumerate(ids) if piece == START] == [0]
        assert ids[-1] == END
        # Where an END stands: after a segment's last sentence, and in full_sentences after a document's.
        after = np.cumsum([1, *(pieces + closes for _, _, _, pieces, closes in entries)])[1:]
        units = [part[i] if name == "full_sentences" else k for i, _, k, _, _ in entries]
        wanted = [after[i] - 1 for i in range(len(units)) if i == len(units) - 1 or units[i] != units[i + 1]]
        assert [i for i, piece in enumerate(ids) if piece == END] == wanted


@pytest.mark.parametrize("name", ["sentences", *FORMATS])
def test_sentences_are_whole_but_for_those_of_pairs_that_are_longer_than_a_segment(name):
    split, made = text(), everything(text(), name)
    whole_S = split.lengths[made.sentence_S] - 2
    cut_S = made.pieces_S != whole_S
    if name in PAIRS:
        room = (LENGTH - 3) // 2
        assert np.array_equal(cut_S, whole_S > room)
        assert cut_S.sum() > 50  # or the law is about nothing
        assert (made.pieces_S[cut_S] == room).all()
        assert made.closes_S[cut_S].all()
    else:
        assert not cut_S.any()


# Laws of some formats ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("max_length", [8, 9, 64])
def test_any_two_segments_of_pairs_fit_into_a_sequence(name, max_length):
    made = everything(text(), name, max_length=max_length)
    pieces_QK = np.zeros((len(made), 2), int)
    np.add.at(pieces_QK, (made.sequence_S, made.segment_S), made.pieces_S)
    assert pieces_QK.max() <= (max_length - 3) // 2
    assert pieces_QK[:, 0].min() > 0
    assert np.array_equal(pieces_QK[:, 1] > 0, made.label_Q == PAIR)


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_is_of_neighbours_and_what_has_no_partner_is_the_last_sentence_of_its_document(name):
    split, part = text(), parts_of(text())
    made = listed(everything(split, name))
    for label, entries in made:
        sentences, segments = [entry[0] for entry in entries], [entry[2] for entry in entries]
        assert sentences == [*range(sentences[0], sentences[0] + len(sentences))]
        assert len({part[i] for i in sentences}) == 1
        assert segments == sorted(segments)
        assert label == (PAIR if 1 in segments else NO_PAIR)
        if label == NO_PAIR:
            assert len(sentences) == 1
            assert (sentences[0] + 1 == len(split)) or part[sentences[0] + 1] != part[sentences[0]]
    if name == "sentence_pair":
        assert {len(entries) for label, entries in made if label == PAIR} == {2}
        odd = sum(size % 2 for size in Counter(part).values())
        assert sum(label == NO_PAIR for label, _ in made) == odd > 0


def test_a_segment_takes_sentences_until_the_next_has_no_room():
    split, part, room = text(), parts_of(text()), (LENGTH - 3) // 2
    rests = 0
    for _, entries in listed(everything(split, "segment_pair")):
        first, second = ([pieces for _, _, k, pieces, _ in entries if k == segment] for segment in (0, 1))
        after = entries[-1][0] + 1
        is_last = after == len(split) or part[after] != part[after - 1]
        if is_last and sum(first) + sum(second) <= room:
            # What is left of a document and fits into one segment is divided in the middle.
            assert len(first) - len(second) in (0, 1)
            rests += len(second) > 0
        else:
            assert sum(first) + second[0] > room
            assert is_last or sum(second) + min(split.lengths[after] - 2, room) > room
    assert rests > 2


@pytest.mark.parametrize("name", ["full_sentences", "doc_sentences"])
def test_a_sequence_takes_sentences_until_the_next_has_no_room(name):
    split, part = text(), parts_of(text())
    ours = everything(split, name)
    made = [entries for _, entries in listed(ours)]
    assert (ours.label_Q == NO_PAIR).all()
    assert (ours.segment_S == 0).all()
    crossing = [entries for entries in made if len({part[e[0]] for e in entries}) > 1]
    assert bool(crossing) == (name == "full_sentences")
    for here, following in itertools.pairwise(made):
        goes_on = part[here[-1][0]] == part[following[0][0]]
        if goes_on or name == "full_sentences":
            # Inside a document the END moves behind the sentence; after one it stays, and another stands there.
            more = following[0][3] + (not goes_on)
            assert len(rendered(split, here)) + more > LENGTH


def test_full_sentences_make_the_fewest_sequences_where_nothing_is_cut():
    split = made_split([[4, 12, 9], [30], [20] * 3] * 20)
    count = {name: len(everything(split, name)) for name in FORMATS}
    assert count["full_sentences"] < count["doc_sentences"] < count["segment_pair"] < count["sentence_pair"]


# Orders -----------------------------------------------------------------------------------------------


def test_the_order_of_documents_is_the_same_in_all_formats_and_another_for_each_seed_and_epoch():
    orders = set()
    for seed, epoch in itertools.product(range(3), range(3)):
        order, *others = [everything(text(), name, seed=seed, epoch=epoch).sentence_S.tolist() for name in FORMATS]
        assert others == [order] * 3
        orders.add(tuple(order))
    assert len(orders) == 9
    single = {tuple(everything(text(), "sentences", seed=s, epoch=e).sentence_S) for s in (0, 1) for e in (0, 1)}
    assert len(single) == 4


@pytest.mark.parametrize("max_length", [8, LENGTH])  # parts of a sixteenth of a step, parts of a sequence
def test_parts_of_documents_are_put_in_order_and_nothing_inside_them(max_length):
    split, part = text(), np.array(parts_of(text(), max_length=max_length))
    drawn = np.random.Generator(np.random.Philox(derive(7, "documents", 2))).permutation(part[-1] + 1)
    plain = [i for number in np.argsort(drawn) for i in np.flatnonzero(part == number)]
    ours = everything(split, "segment_pair", max_length=max_length, seed=7, epoch=2)
    assert ours.sentence_S.tolist() == plain


@pytest.mark.parametrize("tokens", [1, 60, 64, 500, 10**6])
def test_a_document_is_one_part_or_parts_of_the_size_asked_for(tokens):
    split = text()
    part_S = document_parts(split, tokens)
    assert part_S[0] == 0
    assert set(np.diff(part_S)) <= {0, 1}
    parts_D = [len(np.unique(part_S[split.documents == document])) for document in range(40)]
    assert sum(parts_D) == part_S[-1] + 1  # no part is of two documents
    # A part begins with the first sentence that begins behind a multiple of the size.
    assert (np.bincount(part_S, split.lengths) < tokens + split.lengths.max()).all()
    tokens_D = np.bincount(split.documents, split.lengths)
    for parts, size in zip(parts_D, tokens_D, strict=True):
        assert parts == 1 or size > tokens
        assert parts <= np.ceil(size / tokens)
    if tokens == 10**6:
        assert np.array_equal(part_S, split.documents)


def test_the_parts_are_those_of_the_plain_reference():
    for seed in range(5):
        for max_length in (8, 60, 200):
            split = text(seed=seed)
            size = 8 * max_length
            assert document_parts(split, size).tolist() == parts_of(split, max_length=max_length)


def test_a_text_that_is_one_document_is_put_in_order_too():
    split = made_split([np.random.default_rng(0).integers(3, 30, 3000).tolist()])
    made = everything(split, "doc_sentences")
    jumps = np.flatnonzero(np.diff(made.sentence_S) != 1)
    parts = parts_of(split)[-1] + 1
    # Of P parts in a random order about one stands behind its neighbour: four standard deviations of Poisson(1).
    assert parts - 1 - 5 <= len(jumps) <= parts - 1
    assert parts > 50


# Steps ------------------------------------------------------------------------------------------------


@cache
def plan_of(name: str, *, seed: int = 0) -> BatchPlan:
    return BatchPlan(text(), tokens_per_step=BUDGET, steps=STEPS, seed=seed, input_format=name, max_length=LENGTH)


@pytest.mark.parametrize("name", ["sentences", *FORMATS])
def test_a_step_never_exceeds_its_tokens_and_one_more_sequence_would(name):
    plan = plan_of(name)
    size = [sum(len(rendered(text(), entries)) for _, entries in listed(plan[i])) for i in range(STEPS)]
    first = [len(rendered(text(), listed(plan[i])[0][1])) for i in range(STEPS)]
    assert max(size) <= BUDGET
    assert all(size[i] + first[i + 1] > BUDGET for i in range(STEPS - 1))
    assert size == [plan[i].lengths_Q.sum() for i in range(STEPS)]
    assert size == [len(pack(text(), plan[i], row_length=LENGTH).source.ids_N) for i in range(STEPS)]


@pytest.mark.parametrize("name", ["sentences", *FORMATS])
def test_steps_are_the_epochs_one_after_the_other(name):
    plan = plan_of(name)
    stream = [sequence for i in range(STEPS) for sequence in listed(plan[i])]
    last = int(plan.epochs)
    assert last >= 2
    whole = [
        sequence
        for epoch in range(last + 1)
        for sequence in listed(everything(text(), name, epoch=epoch).of_epoch(epoch))
    ]
    assert stream == whole[: len(stream)]
    crossing = [i for i in range(STEPS) if len({*plan[i].epoch_S.tolist()}) == 2]
    assert 1 <= len(crossing) <= last  # a step crosses every end of an epoch but one that it ends with
    for i in crossing:
        assert plan[i].epoch_S.tolist() == sorted(plan[i].epoch_S)
        assert {*pack(text(), plan[i], row_length=LENGTH).source.epoch_N.tolist()} == {*plan[i].epoch_S.tolist()}
    sequences = [len(everything(text(), name, epoch=epoch)) for epoch in range(last + 1)]
    assert plan.epochs == pytest.approx(last + (len(stream) - sum(sequences[:last])) / sequences[last])


@pytest.mark.parametrize("name", FORMATS)
def test_steps_do_not_depend_on_how_many_there_are_or_on_what_was_asked_before(name):
    short = BatchPlan(text(), tokens_per_step=BUDGET, steps=30, seed=0, input_format=name, max_length=LENGTH)
    for i in (29, 3, 28, 0):
        assert listed(short[i]) == listed(plan_of(name)[i])
    assert listed(plan_of(name, seed=1)[0]) != listed(plan_of(name)[0])


def test_an_epoch_of_fewer_tokens_than_a_step_is_refused():
    # 240 tokens are stored, 126 are left of them when every sentence is cut to half of a sequence.
    split = made_split([[60, 60], [60, 60]])
    assert error_text(
        DataError,
        BatchPlan,
        split,
        tokens_per_step=240,
        steps=3,
        seed=0,
        input_format="sentence_pair",
        max_length=64,
    ) == (
        "a step has 240 tokens (training.tokens_per_step), but the training text has only 126 in 4 sentences; "
        "give more text (data.train, training.sentences), or lower training.tokens_per_step."
    )


@pytest.mark.parametrize("name", FORMATS)
def test_an_evaluation_reads_every_sequence_once_in_order(name):
    made = everything(text(), name)
    steps = consecutive(made, tokens_per_step=BUDGET)
    assert [sequence for step in steps for sequence in listed(step)] == listed(made)
    size = [step.lengths_Q.sum() for step in steps]
    assert max(size) <= BUDGET
    assert all(here + step.lengths_Q[0] > BUDGET for here, step in zip(size, steps[1:], strict=False))
    # A sequence that is longer than a step stands alone in one.
    assert [len(step) for step in consecutive(made, tokens_per_step=1)] == [1] * len(made)


# Rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sentences", *FORMATS])
@pytest.mark.parametrize(("ranks", "showings"), [(1, 1), (2, 1), (3, 3), (16, 1)])
def test_devices_together_hold_every_sequence_once_a_showing(name, ranks, showings):
    crossing = next(i for i in range(STEPS) if len({*plan_of(name)[i].epoch_S.tolist()}) == 2)
    for number in (0, crossing):
        step = plan_of(name)[number]
        wanted = [
            (showing, epoch, label, rendered(text(), entries))
            for showing in range(showings)
            for label, entries in listed(step)
            for epoch in {entry[1] for entry in entries}
        ]
        held: list[Any] = []
        for rank in range(ranks):
            rows = pack(text(), step, row_length=LENGTH, showings=showings, rank=rank, ranks=ranks).source
            by_sequence = tokens_by_sequence(rows)
            starts = rows.place_N[rows.position_N == 0]  # in the order of the labels
            assert len(starts) == len(rows.label_Q) == len(by_sequence)
            labels = dict(zip(starts.tolist(), rows.label_Q.tolist(), strict=True))
            for places in by_sequence.values():
                (showing,), (epoch,) = np.unique(rows.showing_N[places]), np.unique(rows.epoch_N[places])
                held.append((showing, epoch, labels[rows.place_N[places[0]]], rows.ids_N[places].tolist()))
        assert sorted(held) == sorted(wanted)


@pytest.mark.parametrize("name", FORMATS)
def test_every_array_of_the_rows_against_a_walk_through_the_sequences(name):
    split, step = text(), plan_of(name)[2]
    rows = pack(split, step, row_length=72, rows=20, showings=2).source
    assert rows.shape[1] == 72
    assert rows.shape[0] >= 20
    walked = []
    for showing in range(2):
        for _, entries in listed(step):
            position = 0
            for number, (sentence, epoch, segment, pieces, closes) in enumerate(entries):
                opens = number == 0
                for offset in range(0 if opens else 1, 1 + pieces + closes):
                    index = split.offsets[sentence] + offset
                    walked.append((epoch, sentence, index, offset, showing, position, segment))
                    position += 1
    names = ("epoch_N", "sentence_N", "index_N", "offset_N", "showing_N", "position_N", "segment_N")
    assert [*zip(*(getattr(rows, n).tolist() for n in names), strict=True)] == walked
    assert rows.label_Q.tolist() == 2 * step.label_Q.tolist()
    # The text is where the index says, but for an END in the place of the first piece that was cut off.
    replaced_N = rows.ids_N != split.ids[rows.index_N]
    kept = {i: pieces for _, entries in listed(step) for i, _, _, pieces, _ in entries}
    cut = [split.offsets[i] + 1 + pieces for i, pieces in kept.items() if pieces + 2 < split.lengths[i]]
    assert sorted(rows.index_N[replaced_N]) == sorted(2 * cut)
    assert (rows.ids_N[replaced_N] == END).all()
    assert bool(cut) == (name in PAIRS)


@pytest.mark.parametrize("name", FORMATS)
def test_slots_count_the_sequences_of_a_row_from_left_to_right(name):
    rows = pack(text(), plan_of(name)[5], row_length=200, rows=6).source
    slots, positions = rows.grid(rows.slot_N), rows.grid(rows.position_N)
    assert slots.max() > 1
    for slot_T, position_T in zip(slots.tolist(), positions.tolist(), strict=True):
        runs = [(slot, len([*group])) for slot, group in itertools.groupby(slot_T)]
        filled_runs = [run for run in runs if run[0]]
        assert [slot for slot, _ in filled_runs] == [*range(1, len(filled_runs) + 1)]
        assert runs[: len(filled_runs)] == filled_runs  # padding is at the end
        counted = [position for _, length in filled_runs for position in range(length)]
        assert position_T[: len(counted)] == counted
        assert slot_T == sorted(slot_T[: len(counted)]) + [0] * (len(slot_T) - len(counted))


# Parts of sequences -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sentences", *FORMATS])
def test_part_where_and_joined_are_what_they_are_of_lists(name):
    made = everything(text(12, seed=3), name).of_epoch(4)
    plain, rng = listed(made), np.random.default_rng(0)
    assert {entry[1] for _, entries in plain for entry in entries} == {4}
    lengths = [len(rendered(text(12, seed=3), entries)) for _, entries in plain]
    cuts = sorted([0, 0, *rng.integers(0, len(made) + 1, 12), len(made)])  # the first part is empty
    parts = []
    for start, stop in itertools.pairwise(cuts):
        parts.append(made.part(start, stop))
        assert listed(parts[-1]) == plain[start:stop]
        assert parts[-1].lengths_Q.tolist() == lengths[start:stop]
    assert listed(joined(parts)) == plain
    assert listed(joined([made, made.part(0, 0), made])) == plain + plain
    assert joined([made]) is made
    for keep_Q in (rng.random(len(made)) < 0.3, np.zeros(len(made), bool), np.ones(len(made), bool)):
        kept = made.where(keep_Q)
        assert listed(kept) == [sequence for sequence, keep in zip(plain, keep_Q, strict=True) if keep]
        assert np.array_equal(kept.lengths_Q, made.lengths_Q[keep_Q])
    assert listed(made.part(3, 9).where(np.arange(6) % 2 == 0)) == plain[3:9:2]


def test_single_sentences_are_those_stored():
    split, numbers = text(), np.array([5, 2, 2, 9])
    made = single_sentences(split, numbers)
    assert listed(made) == [(NO_PAIR, [(int(i), 0, 0, int(split.lengths[i]) - 2, True)]) for i in numbers]
    assert np.array_equal(made.lengths_Q, split.lengths[numbers])
    rows = pack(split, made, row_length=LENGTH).source
    assert rows.ids_N.tolist() == [*itertools.chain(*(split.sentence(int(i)).tolist() for i in numbers))]
