"""What all objectives share: initial weights, optimiser, schedule, and a loss that is exact over devices."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import lightning as L
import numpy as np
import torch
import torch.distributed as dist
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from numpy.typing import NDArray
from torch import Tensor, nn

from lightning_modules.config import RunSettings
from lightning_modules.cross_entropy import IGNORED
from lightning_modules.data.batches import PackedStep
from lightning_modules.encoder import Encoder
from lightning_modules.randomness import derive
from lightning_modules.vocabulary import END, UNKNOWN

EVALUATION_SEED = 0  # one corruption of the evaluation text for all arms and seeds

INITIAL_SCALE = 0.02 * 768**0.5
"""Standard deviation of initial weights times the square root of the width: BERT's 0.02 at its width of 768.
A fixed 0.02 makes the sub-layers of a narrow encoder all but silent, and learning slow (experiments/LOG.md)."""

PREDICTION_ROUNDING = 64
"""Predictions of a batch are filled up to a multiple of this."""

Batch = dict[str, Tensor]
"""Tensors of one step, or of one device's share of it. Every objective has `tokens_BT`, `sequence_BT`,
`position_BT` (see the encoder) and `source_tokens`, the number of real source tokens; the rest is its own."""


class LossSum(NamedTuple):
    """A loss before it is divided: sums add up over devices and batches, means do not."""

    total: Tensor
    """Sum over predicted tokens, nats."""
    predictions: Tensor
    """How many tokens were predicted."""


class Objective(L.LightningModule):
    """An encoder, something to learn with it, and how. One subclass an objective.

    A subclass builds its heads, turns packed sentences into tensors (`view`, numpy, in the data workers)
    and tensors into a loss (`loss`).
    """

    def __init__(self, run: RunSettings, *, vocab_size: int) -> None:
        super().__init__()
        self.run = run
        self.vocab_size = vocab_size
        self.encoder = Encoder(run.encoder, vocab_size=vocab_size, max_length=run.data.max_length)

    needs_targets = False
    """Whether `view` reads the translations."""
    special_labels: tuple[int, ...] = (UNKNOWN, END)
    """Special ids that the objective may be asked to predict, besides every id that stands for text."""

    def view(self, packed: PackedStep, *, seed: int) -> dict[str, NDArray[np.int64]]:
        """What this objective shows and asks of packed sentences: arrays for `loss`.

        Any chance in it depends on (seed, epoch, sentence) alone.
        """
        raise TypeError(f"{type(self).__name__} must say what it shows")

    def evaluation_view(self, packed: PackedStep) -> dict[str, NDArray[np.int64]]:
        """The same for evaluation: frozen, whatever the training corruption and the run's seed."""
        return self.view(packed, seed=EVALUATION_SEED)

    def loss(self, batch: Batch) -> LossSum:
        """Cross-entropy of the predictions that the batch asks for, summed, and their number."""
        raise TypeError(f"{type(self).__name__} must say what it learns")

    def encode(self, batch: Batch, *, top_place_N: Tensor | None = None) -> tuple[Tensor, ...]:
        """All layers of a batch with this objective's sight; the last at `top_place_N` only, if that is given."""
        return self.encoder(
            batch["tokens_BT"],
            sees=self.run.objective.sees,
            sequence_BT=batch["sequence_BT"],
            position_BT=batch["position_BT"],
            top_place_N=top_place_N,
        )

    def initialise(self) -> None:
        """Set the initial weights from the run's seed: normal, scaled with the width; biases 0.

        Each parameter has a generator of its own, keyed by its name, so the encoder's weights are the same
        bits whatever else the module holds.
        """
        seed = derive(self.run.seed, "weights")
        deviation = INITIAL_SCALE / self.run.encoder.hidden_size**0.5
        for name, parameter in self.named_parameters():
            if parameter.ndim >= 2:
                rng = torch.Generator().manual_seed(derive(seed, name))
                nn.init.normal_(parameter, std=deviation, generator=rng)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.ones_(parameter)

    def training_step(self, batch: Batch, batch_idx: int) -> Mapping[str, Tensor]:
        loss = self.loss(batch)
        totals = torch.stack(
            [loss.total.detach().double(), loss.predictions.double(), batch["source_tokens"].double()]
        )
        totals = sum_over_devices(totals)
        return {"loss": global_mean(loss.total, totals[1]), "totals": totals}

    def configure_optimizers(self) -> OptimizerLRScheduler:
        training = self.run.training
        matrices: list[nn.Parameter] = []
        rest: list[nn.Parameter] = []
        for name, parameter in self.named_parameters():
            is_matrix = parameter.ndim >= 2 and not name.endswith(("tokens.weight", "positions.weight"))
            (matrices if is_matrix else rest).append(parameter)
        optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": training.weight_decay}, {"params": rest, "weight_decay": 0.0}],
            lr=training.learning_rate,
            betas=(0.9, 0.98),
            eps=1e-6,
            fused=True,
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self._learning_rate_factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _learning_rate_factor(self, step: int) -> float:
        return warmup_then_decay(step, self.run.training.warmup_steps, self.run.training.max_steps)

    def learning_rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        return self.run.training.learning_rate * self._learning_rate_factor(step)

    def configure_gradient_clipping(
        self, optimizer: torch.optim.Optimizer, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        # Lightning refuses to clip for a fused optimiser under mixed precision, fearing fp16 scalers that
        # bf16 does not have; so the clipping is torch's own.
        limit = self.run.training.gradient_clip_val or float("inf")
        self.gradient_norm = nn.utils.clip_grad_norm_(self.parameters(), limit)


def warmup_then_decay(step: int, warmup_steps: int, max_steps: int) -> float:
    """Factor on the learning rate at a step (from 0): up to 1 over the warm-up, then down, 0 after the last."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return max(0.0, (max_steps - step) / max(1, max_steps - warmup_steps))


def global_mean(loss_sum: Tensor, total_count: Tensor) -> Tensor:
    """Loss per predicted token over every device, scaled so that DDP's gradients come out right.

    DDP averages gradients with equal weight, but devices predict different numbers of tokens; dividing by
    the count over all devices and undoing DDP's average gives each token the same weight.
    """
    devices = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    return loss_sum / total_count.clamp(min=1).to(loss_sum.dtype) * devices


def sum_over_devices(values: Tensor) -> Tensor:
    """The elementwise sum over all devices; the values themselves where there is one."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(values)
    return values


def shared_inputs(packed: PackedStep, shown_N: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """The arrays that every objective's batch has, with the given ids shown to the encoder."""
    source = packed.source
    return {
        "tokens_BT": source.grid(shown_N),
        "sequence_BT": source.grid(source.slot_N),
        "position_BT": source.grid(source.position_N),
        "source_tokens": np.array(len(source.ids_N)),
    }


def padded_predictions(place_N: NDArray[np.int64], label_N: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Where predictions are asked for and what is right, filled up with IGNORED ones to a round number.

    So that steps differ in few shapes: each new one makes the matrix library prepare kernels, and breaks up the
    memory that the steps before left (benchmarks/README.md).
    """
    missing = -len(label_N) % PREDICTION_ROUNDING
    return {
        "predict_N": np.pad(place_N, (0, missing)),
        "label_N": np.pad(label_N, (0, missing), constant_values=IGNORED),
    }


def asked(label_N: Tensor) -> Tensor:
    """How many predictions are asked for, float64."""
    return (label_N != IGNORED).sum().double()
