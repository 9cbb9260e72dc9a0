"""Batches of a run: its training steps, from the step that training has reached, and the loss over a whole
split.

The validation loss reads every sentence once. It is a sum divided by a count, in float64.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from lightning_modules.data.packing import BatchPlan, consecutive, pack, require_pairs
from lightning_modules.data.sequences import Sequences, single_sentences, with_negative_pairs
from lightning_modules.data.token_store import Split, Tokens, load, prepare
from lightning_modules.data.word_order import training_text
from lightning_modules.errors import DataError
from lightning_modules.objectives.objective import Batch, LossSum, Objective, sum_over_devices
from lightning_modules.randomness import derive
from lightning_modules.training.run_directory import RunDirectory

ROW_ROUNDING = 8  # row lengths are multiples of this, with which kernels are faster
GPU_WORKERS = 2
"""Number of processes that prepare the batches of a run on a GPU."""

TOKENS_AT_ONCE = 8192
"""Number of real source tokens of one forward pass of an evaluation."""


class RunData(L.LightningDataModule):
    """Batches of one device for every training step of a run."""

    def __init__(self, objective: Objective, tokens: Tokens, *, workers: int = 0) -> None:
        """Prepare the batches of a run.

        Args:
            workers: number of processes that make the batches, in memory that a GPU can copy from. 0 makes
                them in this process, for a CPU.

        Raises:
            DataError: the text is too short for one step, or does not have what the settings ask for.
        """
        super().__init__()
        self.objective, self.workers = objective, workers
        training, max_length = objective.run.training, objective.run.data.max_length
        self.split, self.word_order = training_text(objective.run, tokens)
        self.plan = BatchPlan.of_run(objective.run, self.split, steps=training.max_steps)
        self.row_length = row_length(self.split, None if training.input_format == "sentences" else max_length)
        self.seed = derive(objective.run.seed_of("corruption"), "data")
        if training.max_steps:
            require_pairs(objective.run, self.split, objective.pair_loss)
            objective.fit_to_text(tokens, self.split)

    def train_dataloader(self) -> DataLoader[list[Batch]]:
        trainer = self.trainer
        assert trainer is not None
        return self.loader(lambda: trainer.global_step)

    def loader(self, first: Callable[[], int]) -> DataLoader[list[Batch]]:
        """Return a loader of the micro-batches of each step. `first` is called at the first read and returns
        the first step."""
        return DataLoader(
            _Steps(self.micro_batches, len(self.plan)),
            batch_size=None,
            sampler=_FromStep(first, len(self.plan)),
            num_workers=self.workers,
            multiprocessing_context="fork" if self.workers else None,  # the workers share the text in memory
            pin_memory=self.workers > 0,
        )

    def rows_at(self, step: int) -> int:
        """Return the minimum number of rows of a step, over all devices."""
        showings = self.objective.repeats_at(step)
        return -(-self.objective.run.training.tokens_per_step * showings // self.row_length)

    def micro_batches(self, step: int) -> list[Batch]:
        """Return this device's share of a step, cut into `training.accumulate` batches."""
        parts = self.objective.run.training.accumulate
        return [self.batch(step, part=part, parts=parts) for part in range(parts)]

    def batch(self, step: int, *, part: int = 0, parts: int = 1) -> Batch:
        """Return the tensors of this device's share of a step, or of one of `parts` equal parts of it,
        counted from 0."""
        rank, ranks = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        sequences = with_negative_pairs(
            self.plan[step], self.objective.pair_loss, self.split.documents, seed=self.seed
        )
        packed = pack(
            self.split,
            sequences,
            row_length=self.row_length,
            rows=self.rows_at(step),
            targets=self.objective.needs_targets,
            showings=self.objective.repeats_at(step),
            number=step,
            rank=rank + part * ranks,
            ranks=ranks * parts,
        )
        return as_tensors(self.objective.make_batch(packed, seed=self.seed))


def evaluation_batches(
    objective: Objective,
    split: Split,
    *,
    tokens_per_step: int,
    rank: int = 0,
    ranks: int = 1,
    sequences: Sequences | None = None,
) -> Iterator[Batch]:
    """Yield the batches of a whole split, in its own order, with the fixed corruption of evaluation.

    Every sequence is read once, on one device.

    Args:
        sequences: sequences to read instead of the split's single sentences.
    """
    if sequences is None:
        sequences = single_sentences(split, np.arange(len(split)))
    length = row_length(split, int(sequences.lengths_Q.max()))
    for step in consecutive(sequences, tokens_per_step=tokens_per_step):
        packed = pack(split, step, row_length=length, targets=objective.needs_targets, rank=rank, ranks=ranks)
        yield as_tensors(objective.make_evaluation_batch(packed))


def row_length(split: Split, longest: int | None = None) -> int:
    """Return the length of the longest sequence in tokens, rounded up. By default this is the longest
    sentence of the split."""
    longest = int(split.lengths.max()) if longest is None else longest
    return longest + -longest % ROW_ROUNDING


def as_tensors(arrays: dict[str, np.ndarray]) -> Batch:
    """Return arrays as tensors, without a copy."""
    return {name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()}


class _Steps(Dataset[list[Batch]]):
    def __init__(self, micro_batches: Callable[[int], list[Batch]], steps: int) -> None:
        self._micro_batches, self._steps = micro_batches, steps

    def __getitem__(self, step: int) -> list[Batch]:
        return self._micro_batches(step)

    def __len__(self) -> int:
        return self._steps


class _FromStep(Sampler[int]):
    """Sampler of the steps that are still to do.

    Lightning restores `global_step` before it asks for the first batch. Its own resume inside an epoch would
    repeat the start of the epoch and never reach the rest.
    """

    def __init__(self, first: Callable[[], int], steps: int) -> None:
        self._first, self._steps = first, steps

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._first(), self._steps))

    def __len__(self) -> int:
        return self._steps


def load_tokens(directory: RunDirectory, *, data_root: Path) -> Tokens:
    """Return the token store that run.json names. If it is missing, make it from the text, beside the run
    folders.

    Raises:
        DataError: the text has changed since the run was planned.
    """
    store, address = directory.path.parent.parent / "tokens", directory.description()["tokens"]
    if (store / address).is_dir():
        return load(store / address)
    tokens = prepare(directory.settings().data, data_root=data_root, store=store)
    if tokens.address != address:
        raise DataError(
            f"{directory.path / 'run.json'}: the text has changed since the run was planned (tokens {address} "
            f"then, {tokens.address} now); restore the text, or start `ablate run` with the spec to plan a new "
            "run."
        )
    return tokens


def evaluate_parts(
    objective: Objective,
    split: Split,
    *,
    rank: int = 0,
    ranks: int = 1,
    sequences: Sequences | None = None,
) -> dict[str, LossSum]:
    """Return the sum (nats) and the number of predictions of each part of the loss over a whole split.

    The result is the same for any number of devices. The module is put into evaluation mode and back. The
    corruption is the fixed one of evaluation. Text is read sentence by sentence, whatever the input format of
    training, unless `sequences` are given.
    """
    (parts,) = evaluate_changed(
        objective, split, [lambda batch: batch], rank=rank, ranks=ranks, sequences=sequences
    )
    return parts


@torch.no_grad()
def evaluate_changed(
    objective: Objective,
    split: Split,
    changes: Sequence[Callable[[Batch], Batch]],
    *,
    rank: int = 0,
    ranks: int = 1,
    sequences: Sequences | None = None,
    also: Callable[[int, Batch, Tensor], None] | None = None,
) -> list[dict[str, LossSum]]:
    """Return `evaluate_parts` of a split for each of several changes of its batches.

    Changes that differ only in the labels share one encoding.

    Args:
        also: function that is called with the number of each batch, from 0, the batch, and its sums and
            numbers of predictions by change and part (shape CP2, float64), while its encodings are kept.
    """
    was_training = objective.training
    objective.eval()
    device = objective.device
    sums_CP2 = torch.zeros(len(changes), len(objective.parts), 2, dtype=torch.float64, device=device)
    batches = evaluation_batches(
        objective, split, tokens_per_step=TOKENS_AT_ONCE, rank=rank, ranks=ranks, sequences=sequences
    )
    for number, cpu_batch in enumerate(batches):
        batch = {name: tensor.to(device) for name, tensor in cpu_batch.items()}
        with objective.encoding_once():
            batch_CP2 = torch.zeros_like(sums_CP2)
            for summed_P2, change in zip(batch_CP2, changes, strict=True):
                losses = objective.losses(change(batch))
                summed_P2 += torch.stack(
                    [torch.stack([x.double() for x in losses[part]]) for part in objective.parts]
                )
            sums_CP2 += batch_CP2
            if also is not None:
                also(number, batch, batch_CP2)
    objective.train(was_training)
    return [
        {name: LossSum(*part) for name, part in zip(objective.parts, of_change, strict=True)}
        for of_change in sum_over_devices(sums_CP2)
    ]
