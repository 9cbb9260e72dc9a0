"""Batch plan: the sequences that form step i, the same for any number of devices.

A step is a set of sequences whose tokens never exceed `tokens_per_step`; special tokens count, padding does
not. The order of the sequences depends on (seed, epoch) alone, and epochs follow each other. Every arm of a
seed therefore sees the same text at the same step. Inside a step the sequences are packed into rows of one
fixed length. Sequences of a row do not attend to each other (see the encoder), so packing changes the speed
and nothing else.

Letters: S sentences of a step, Q its sequences, N its tokens in order, B rows, T positions, U target
positions.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightning_modules.config import InputFormat, RunSettings
from lightning_modules.data.sequences import (
    NO_PAIR,
    OTHER,
    Epoch,
    PairLoss,
    Sequences,
    epochs,
    joined,
    require_documents,
    with_negative_pairs,
)
from lightning_modules.data.token_store import Split, ranges
from lightning_modules.data.tokenizer import END
from lightning_modules.errors import DataError
from lightning_modules.randomness import derive, uniforms

TARGET_ROUNDING = 16  # target rows are padded to a multiple of this, so that there are few shapes


class BatchPlan:
    """Plan of the batches: the sequences that form step i, for i = 0 .. steps - 1."""

    def __init__(
        self,
        split: Split,
        *,
        tokens_per_step: int,
        steps: int,
        seed: int,
        input_format: InputFormat = "sentences",
        max_length: int = 0,
    ) -> None:
        """Cut `steps` steps from the endless stream of epochs.

        Args:
            max_length: largest length of a sequence; not read if sequences are single sentences.

        Raises:
            DataError: an epoch has fewer tokens than one step.
        """
        self._epoch_of = epochs(split, input_format, max_length=max_length, seed=seed)
        self._epoch: tuple[int, Epoch] | None = None
        total = int(self._in_order(0).lengths_Q.sum())
        if steps and total < tokens_per_step:
            raise DataError(
                f"a step has {tokens_per_step:,} tokens (training.tokens_per_step), but the training text has "
                f"only {total:,} in {len(split):,} sentences; give more text (data.train, training.sentences), or "
                "lower training.tokens_per_step."
            )
        self._starts = self._cut(tokens_per_step, steps)

    @classmethod
    def of_run(cls, run: RunSettings, split: Split, *, steps: int) -> "BatchPlan":
        """Return the plan of the first steps of a run, whose training text is given.

        Raises:
            DataError: an epoch has fewer tokens than one step.
        """
        return cls(
            split,
            tokens_per_step=run.training.tokens_per_step,
            steps=steps,
            seed=run.seed_of("order"),
            input_format=run.training.input_format,
            max_length=run.data.max_length,
        )

    def _cut(self, tokens_per_step: int, steps: int) -> list[tuple[int, int]]:
        """Return (epoch, place in its order) for the start of each step, and for the end of the last one."""
        starts, epoch, place = [(0, 0)], 0, 0
        carried = 0  # tokens of the unfinished step that came from earlier epochs
        ends = self._cumulated(epoch)
        while len(starts) <= steps:
            stop = int(np.searchsorted(ends, ends[place] + tokens_per_step - carried, side="right")) - 1
            if stop < len(ends) - 1:
                starts.append((epoch, stop))
                place, carried = stop, 0
            else:
                carried += int(ends[-1] - ends[place])
                epoch, place = epoch + 1, 0
                ends = self._cumulated(epoch)
        return starts

    def _cumulated(self, epoch: int) -> NDArray[np.int64]:
        """Return the number of tokens before each place of an epoch's order, and their total at the end."""
        return np.concatenate([[0], np.cumsum(self._in_order(epoch).lengths_Q)])

    def _in_order(self, epoch: int) -> Epoch:
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = (epoch, self._epoch_of(epoch))
        return self._epoch[1]

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, step: int) -> Sequences:
        (epoch, start), (last_epoch, end) = self._starts[step], self._starts[step + 1]
        parts = []
        while epoch <= last_epoch:
            order = self._in_order(epoch)
            stop = end if epoch == last_epoch else len(order.lengths_Q)
            parts.append(order.part(start, stop).of_epoch(epoch))
            epoch, start = epoch + 1, 0
        return joined(parts)

    @property
    def epochs(self) -> float:
        """Number of epochs that the plan takes. The last one counts by the share of its sequences."""
        epoch, place = self._starts[-1]
        return epoch + place / len(self._in_order(epoch).lengths_Q)


STEPS_OF_PAIRS = 20
"""Number of steps in which negative pairs are counted before training."""


def require_pairs(run: RunSettings, split: Split, pair_loss: PairLoss) -> None:
    """Raise an error if a text gives no pairs, or too few negative ones for a loss.

    Raises:
        DataError: as in `require_documents`, or less than a quarter of the pairs of the first steps are negative.
    """
    require_documents(split, pair_loss, run.training.input_format)
    if pair_loss != "next_sentence":
        return
    plan, seed = BatchPlan.of_run(run, split, steps=STEPS_OF_PAIRS), derive(run.seed_of("corruption"), "data")
    steps = [with_negative_pairs(plan[i], pair_loss, split.documents, seed=seed) for i in range(len(plan))]
    label_Q = np.concatenate([step.label_Q for step in steps])
    pairs, negative = int((label_Q != NO_PAIR).sum()), int((label_Q == OTHER).sum())
    if negative < pairs / 4:
        raise DataError(
            "next_sentence needs second segments from another document in at least a quarter of the pairs, but "
            f"only {negative:,} of the first {pairs:,} pairs have one, because most steps hold few documents; "
            f"raise training.tokens_per_step ({run.training.tokens_per_step:,}), lower data.max_length "
            f"({run.data.max_length:,}), or give more documents."
        )


def consecutive(sequences: Sequences, *, tokens_per_step: int) -> list[Sequences]:
    """Return sequences in their own order as the plan of an evaluation: each part has at most
    `tokens_per_step` tokens, or is one longer sequence."""
    ends, steps, start = np.cumsum(sequences.lengths_Q), [], 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + tokens_per_step, side="right")))
        steps.append(sequences.part(start, stop))
        start = stop
    return steps


class PackedRows(NamedTuple):
    """Sequences of one step, or of one device's share of it, placed in rows. N: their tokens, in order."""

    shape: tuple[int, int]
    """Number of rows B and their length T."""
    ids_N: NDArray[np.int64]
    epoch_N: NDArray[np.int64]
    sentence_N: NDArray[np.int64]
    """Number of the sentence in its split."""
    index_N: NDArray[np.int64]
    """Place of the token among all tokens of the split."""
    offset_N: NDArray[np.int64]
    """Place of the token in its sentence, from 0, which is START."""
    showing_N: NDArray[np.int64]
    """Number of the repetition of the token's sequence in this step, from 0."""
    position_N: NDArray[np.int64]
    """Place of the token in its sequence, from 0."""
    segment_N: NDArray[np.int64]
    """0, or 1 in the second segment of a pair."""
    slot_N: NDArray[np.int64]
    """Number of the token's sequence in its row, from 1, as 0 is padding."""
    place_N: NDArray[np.int64]
    """Flat index of the token into B x T."""
    label_Q: NDArray[np.int64]
    """Labels as in `Sequences`, in the order in which the sequences begin here."""

    def draw(
        self, key: int, *purpose: int, where: NDArray[np.integer] | NDArray[np.bool_] | slice = slice(None)
    ) -> NDArray[np.float64]:
        """Return a uniform number in [0, 1) for each token, or for those at `where`. It depends on (key, epoch,
        sentence, place in the sentence, purpose) alone."""
        counters = (self.epoch_N, self.sentence_N, self.offset_N)
        return uniforms(key, *(x[where] for x in counters), *(np.array([number]) for number in purpose))

    def grid(self, values_N: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the values laid out in rows, shape BT; places without a token are 0."""
        grid = np.zeros(self.shape[0] * self.shape[1], dtype=np.int64)
        grid[self.place_N] = values_N
        return grid.reshape(self.shape)


class PackedStep(NamedTuple):
    """One device's share of a step: its source rows and, if there are translations, its target rows."""

    source: PackedRows
    target: PackedRows | None
    number: int = 0
    """Number of the step, from 0."""


def pack(
    split: Split,
    step: Sequences,
    *,
    row_length: int,
    rows: int = 1,
    targets: bool = False,
    showings: int = 1,
    number: int = 0,
    rank: int = 0,
    ranks: int = 1,
) -> PackedStep:
    """Place a step's sequences in rows and keep every `ranks`-th row, starting at `rank`.

    Args:
        row_length: T; at least the longest sequence.
        rows: smallest number of rows over all devices, so that most steps have the same shape.
        targets: also place the translations, in the rows of their sources; sequences are single sentences
            then.
        showings: number of times that each sequence is shown.
        number: number of the step.
        rank: number of this device.
        ranks: number of devices.
    """
    showing_Q = np.repeat(np.arange(showings), len(step))
    step = joined([step] * showings)
    row_Q = first_fit_decreasing(step.lengths_Q, row_length)
    if targets:
        row_Q = level(row_Q, step.lengths_Q, split.target_lengths[step.sentence_S], row_length)
    rows = max(rows, int(row_Q.max()) + 1)
    rows += -rows % ranks
    mine_Q = row_Q % ranks == rank
    step, showing_Q, local_row_Q = step.where(mine_Q), showing_Q[mine_Q], row_Q[mine_Q] // ranks
    local_rows = rows // ranks
    source = _place(split.ids, split.offsets, step, showing_Q, local_row_Q, (local_rows, row_length))
    if not targets:
        return PackedStep(source, None, number)
    assert split.target_ids is not None
    assert split.target_offsets is not None
    target = replace(step, pieces_S=split.target_lengths[step.sentence_S] - 2)
    longest = int(np.bincount(local_row_Q, target.lengths_Q, minlength=1).max()) if len(step) else 1
    longest += -longest % TARGET_ROUNDING
    shape = (local_rows, longest)
    placed = _place(split.target_ids, split.target_offsets, target, showing_Q, local_row_Q, shape)
    return PackedStep(source, placed, number)


def first_fit_decreasing(length_Q: NDArray[np.integer], capacity: int) -> NDArray[np.int64]:
    """Return the row of each sequence: longest sequences first, each in the first row with room for it."""
    order = np.argsort(-length_Q, kind="stable")
    row_Q = np.empty(len(length_Q), dtype=np.int64)
    room: list[int] = []
    row, length = 0, -1
    for i, next_length in zip(order.tolist(), length_Q[order].tolist(), strict=True):
        if next_length != length:
            row, length = 0, next_length
        # Rows without room for this length have none later either, so the search does not go back.
        while row < len(room) and room[row] < length:
            row += 1
        if row == len(room):
            room.append(capacity)
        room[row] -= length
        row_Q[i] = row
    return row_Q


def level(
    row_Q: NDArray[np.int64],
    source_Q: NDArray[np.integer],
    target_Q: NDArray[np.integer],
    capacity: int,
) -> NDArray[np.int64]:
    """Return the row of each sequence after swaps that shorten the fullest row of targets, since all rows get
    its length.

    A swap exchanges a sequence of the fullest row with one of another row. It is always the swap that helps
    most, and no row may get more than `capacity` source tokens. The swaps end if none helps. They save a
    tenth of the target places of a batch (benchmarks/LOG.md).

    Args:
        source_Q: tokens of each sequence.
        target_Q: tokens of its translation.
    """
    row_Q = row_Q.copy()
    source_B, target_B = np.bincount(row_Q, source_Q), np.bincount(row_Q, target_Q)
    while True:
        fullest = int(target_B.argmax())
        here, elsewhere = np.flatnonzero(row_Q == fullest), np.flatnonzero(row_Q != fullest)
        if not len(elsewhere):
            return row_Q
        other = row_Q[elsewhere]
        less_source = source_Q[here][:, None] - source_Q[elsewhere]
        less_target = target_Q[here][:, None] - target_Q[elsewhere]
        fits = (source_B[other] + less_source <= capacity) & (source_B[fullest] - less_source <= capacity)
        longer = np.maximum(target_B[fullest] - less_target, target_B[other] + less_target)
        longer[~fits] = target_B[fullest]
        i, j = np.unravel_index(longer.argmin(), longer.shape)
        if longer[i, j] >= target_B[fullest]:
            return row_Q
        row_Q[here[i]], row_Q[elsewhere[j]] = other[j], fullest
        for load_B, less in ((source_B, less_source[i, j]), (target_B, less_target[i, j])):
            load_B[fullest] -= less
            load_B[other[j]] += less


def _place(
    ids: NDArray[np.integer],
    offsets: NDArray[np.int64],
    step: Sequences,
    showing_Q: NDArray[np.int64],
    row_Q: NDArray[np.int64],
    shape: tuple[int, int],
) -> PackedRows:
    length_Q = step.lengths_Q
    order = np.argsort(row_Q, kind="stable")
    before = np.cumsum(length_Q[order]) - length_Q[order]
    first = np.searchsorted(row_Q[order], row_Q[order])  # first sequence of the same row
    column_Q, slot_Q = np.empty_like(length_Q), np.empty_like(length_Q)
    column_Q[order] = before - before[first]
    slot_Q[order] = np.arange(len(order)) - first + 1
    tokens_S = step.opens_S + step.pieces_S + step.closes_S
    end_S = np.cumsum(tokens_S)
    first_offset_S = 1 - step.opens_S.astype(np.int64)
    offset_N = ranges(first_offset_S, tokens_S)
    sentence_N = np.repeat(step.sentence_S, tokens_S)
    index_N = offsets[sentence_N] + offset_N
    ids_N = ids[index_N].astype(np.int64)
    length_S = offsets[step.sentence_S + 1] - offsets[step.sentence_S]
    cut_S = step.closes_S & (step.pieces_S < length_S - 2)
    ids_N[end_S[cut_S] - 1] = END
    position_N = ranges(np.zeros_like(length_Q), length_Q)
    return PackedRows(
        shape=shape,
        ids_N=ids_N,
        epoch_N=np.repeat(step.epoch_S, tokens_S),
        sentence_N=sentence_N,
        index_N=index_N,
        offset_N=offset_N,
        showing_N=np.repeat(showing_Q, length_Q),
        position_N=position_N,
        segment_N=np.repeat(step.segment_S, tokens_S),
        slot_N=np.repeat(slot_Q, length_Q),
        place_N=np.repeat(row_Q * shape[1] + column_Q, length_Q) + position_N,
        label_Q=step.label_Q,
    )
