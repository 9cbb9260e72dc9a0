"""The batch plan: which sentences form step i, the same for any number of devices.

A step is a set of sentences whose real tokens (special ones included, padding not) never exceed
`tokens_per_step`. They are taken in an order that depends on (seed, epoch) alone: epoch after epoch, each
a new permutation, so every arm of a seed sees the same sentences at the same step. Inside a step the
sentences are packed into rows of one fixed length; no row mixes their attention (see the encoder), so
packing changes the speed and nothing else.

Letters: S sentences of a step, N their tokens in order, B rows, T positions, U target positions.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightning_modules.data.tokens import Split
from lightning_modules.errors import DataError
from lightning_modules.randomness import derive

TARGET_ROUNDING = 16  # target rows are padded to a multiple of this: few distinct shapes


class Step(NamedTuple):
    """The sentences of one step, in the order of the plan."""

    sentence_S: NDArray[np.int64]
    epoch_S: NDArray[np.int64]


class BatchPlan:
    """Which sentences form step i, for i = 0 .. steps - 1."""

    def __init__(self, lengths: NDArray[np.integer], *, tokens_per_step: int, steps: int, seed: int) -> None:
        """Cut `steps` steps from the endless stream of epochs; needs the lengths and nothing else.

        Raises:
            DataError: the split has fewer tokens than one step.
        """
        total = int(lengths.sum())
        if steps and total < tokens_per_step:
            raise DataError(
                f"data.train: {len(lengths):,} sentences with {total:,} tokens are fewer than one step of "
                f"training.tokens_per_step = {tokens_per_step:,}; give more text or make the steps smaller."
            )
        self._lengths, self._seed = lengths, seed
        self._order: tuple[int, NDArray[np.int64]] = (-1, np.empty(0, np.int64))
        self._starts = self._cut(tokens_per_step, steps)

    def _cut(self, tokens_per_step: int, steps: int) -> list[tuple[int, int]]:
        """(epoch, place in its order) where each step starts, and where the last one ends."""
        starts, epoch, place = [(0, 0)], 0, 0
        carried = 0  # tokens of the step in the making that came from the epoch before
        ends = self._cumulated(epoch)
        while len(starts) <= steps:
            stop = int(np.searchsorted(ends, ends[place] + tokens_per_step - carried, side="right")) - 1
            if stop < len(self._lengths):
                starts.append((epoch, stop))
                place, carried = stop, 0
            else:
                carried += int(ends[-1] - ends[place])
                epoch, place = epoch + 1, 0
                ends = self._cumulated(epoch)
        return starts

    def _cumulated(self, epoch: int) -> NDArray[np.int64]:
        """Tokens before each place of an epoch's order, and after the last."""
        return np.concatenate([[0], np.cumsum(self._lengths[self._epoch_order(epoch)])])

    def _epoch_order(self, epoch: int) -> NDArray[np.int64]:
        if self._order[0] != epoch:
            rng = np.random.Generator(np.random.Philox(derive(self._seed, "order", epoch)))
            self._order = (epoch, rng.permutation(len(self._lengths)))
        return self._order[1]

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, step: int) -> Step:
        (epoch, start), (last_epoch, end) = self._starts[step], self._starts[step + 1]
        sentences, epochs = [], []
        while epoch <= last_epoch:
            order = self._epoch_order(epoch)
            part = order[start : end if epoch == last_epoch else len(order)]
            sentences.append(part)
            epochs.append(np.full(len(part), epoch))
            epoch, start = epoch + 1, 0
        return Step(np.concatenate(sentences), np.concatenate(epochs))

    @property
    def epochs(self) -> float:
        """How often the plan goes through the text."""
        epoch, place = self._starts[-1]
        return epoch + place / len(self._lengths)


def consecutive(lengths: NDArray[np.integer], *, tokens_per_step: int) -> list[Step]:
    """The whole split once, in its own order (epoch 0): the plan of an evaluation."""
    ends, steps, start = np.cumsum(lengths), [], 0
    while start < len(lengths):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + tokens_per_step, side="right")))
        steps.append(Step(np.arange(start, stop), np.zeros(stop - start, np.int64)))
        start = stop
    return steps


class Rows(NamedTuple):
    """Sentences of one step, or one device's share of it, placed in rows. N = their tokens, in order."""

    shape: tuple[int, int]
    """B, T."""
    ids_N: NDArray[np.int64]
    epoch_N: NDArray[np.int64]
    sentence_N: NDArray[np.int64]
    """Number of the sentence in its split."""
    position_N: NDArray[np.int64]
    """Place in the sentence, from 0."""
    slot_N: NDArray[np.int64]
    """Number of the sentence in its row, from 1; 0 is padding."""
    place_N: NDArray[np.int64]
    """Flat index into B x T."""

    def grid(self, values_N: NDArray[np.integer]) -> NDArray[np.int64]:
        """The values laid out in rows, shape BT, 0 elsewhere."""
        grid = np.zeros(self.shape[0] * self.shape[1], dtype=np.int64)
        grid[self.place_N] = values_N
        return grid.reshape(self.shape)


class PackedStep(NamedTuple):
    """One device's share of a step: its source rows and, where there are translations, the target rows."""

    source: Rows
    target: Rows | None


def pack(
    split: Split,
    step: Step,
    *,
    row_length: int,
    rows: int = 1,
    targets: bool = False,
    rank: int = 0,
    ranks: int = 1,
) -> PackedStep:
    """Place a step's sentences in rows and keep every `ranks`-th row, starting at `rank`.

    Args:
        row_length: T; at least the longest sentence.
        rows: at least this many rows over all devices, so that steps differ in few shapes.
        targets: also place the translations, in the rows of their sources.
    """
    length_S = split.lengths[step.sentence_S]
    row_S = first_fit_decreasing(length_S, row_length)
    rows = max(rows, int(row_S.max()) + 1)
    rows += -rows % ranks
    mine_S = np.flatnonzero(row_S % ranks == rank)
    local_row_S = row_S[mine_S] // ranks
    local_rows = rows // ranks
    sentence_S, epoch_S = step.sentence_S[mine_S], step.epoch_S[mine_S]
    source = _place(split.ids, split.offsets, sentence_S, epoch_S, local_row_S, (local_rows, row_length))
    if not targets:
        return PackedStep(source, None)
    assert split.target_ids is not None
    assert split.target_offsets is not None
    target_length_S = split.target_lengths[sentence_S]
    longest = int(np.bincount(local_row_S, target_length_S, minlength=1).max()) if len(mine_S) else 1
    longest += -longest % TARGET_ROUNDING
    shape = (local_rows, longest)
    return PackedStep(
        source, _place(split.target_ids, split.target_offsets, sentence_S, epoch_S, local_row_S, shape)
    )


def first_fit_decreasing(length_S: NDArray[np.integer], capacity: int) -> NDArray[np.int64]:
    """The row of each sentence: the longest first, each into the first row with room for it."""
    order = np.argsort(-length_S, kind="stable")
    row_S = np.empty(len(length_S), dtype=np.int64)
    room: list[int] = []
    row, length = 0, -1
    for i, next_length in zip(order.tolist(), length_S[order].tolist(), strict=True):
        if next_length != length:
            row, length = 0, next_length
        # What had no room for this length before has none now: no need to look again.
        while row < len(room) and room[row] < length:
            row += 1
        if row == len(room):
            room.append(capacity)
        room[row] -= length
        row_S[i] = row
    return row_S


def _place(
    ids: NDArray[np.integer],
    offsets: NDArray[np.int64],
    sentence_S: NDArray[np.int64],
    epoch_S: NDArray[np.int64],
    row_S: NDArray[np.int64],
    shape: tuple[int, int],
) -> Rows:
    start_S = offsets[sentence_S]
    length_S = offsets[sentence_S + 1] - start_S
    order = np.argsort(row_S, kind="stable")
    before = np.cumsum(length_S[order]) - length_S[order]
    first = np.searchsorted(row_S[order], row_S[order])  # of each sentence's row
    column_S, slot_S = np.empty_like(length_S), np.empty_like(length_S)
    column_S[order] = before - before[first]
    slot_S[order] = np.arange(len(order)) - first + 1
    first_S = np.cumsum(length_S) - length_S
    position_N = np.arange(length_S.sum()) - np.repeat(first_S, length_S)
    return Rows(
        shape=shape,
        ids_N=ids[np.repeat(start_S, length_S) + position_N].astype(np.int64),
        epoch_N=np.repeat(epoch_S, length_S),
        sentence_N=np.repeat(sentence_S, length_S),
        position_N=position_N,
        slot_N=np.repeat(slot_S, length_S),
        place_N=np.repeat(row_S * shape[1] + column_S, length_S) + position_N,
    )
