"""Base of all objectives: initial weights, optimiser, and a loss that is the same for any number of devices."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import lightning as L
import numpy as np
import torch
import torch.distributed as dist
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from numpy.typing import NDArray
from torch import Tensor, nn

from lightning_modules.config import RunSettings
from lightning_modules.data.packing import PackedStep
from lightning_modules.data.sequences import PairLoss
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.data.tokenizer import END, UNKNOWN
from lightning_modules.errors import PluginError
from lightning_modules.model.encoder import Encoder
from lightning_modules.model.heads import IGNORED, LinearHead, LossSum, PredictionHead, TiedHead, count_predictions
from lightning_modules.model.numerics import without_autocast
from lightning_modules.model.parts import unscored_ids
from lightning_modules.objectives.optimizer import build_optimizer, learning_rate_factor
from lightning_modules.randomness import derive

EVALUATION_SEED = 0  # all arms and seeds are evaluated on the same corruption of the text

INITIAL_SCALE = 0.02 * 768**0.5
"""Standard deviation of initial weights times the square root of the width: BERT's 0.02 at its width of 768.

A fixed 0.02 would make the output of a narrow encoder's sub-layers very small and learning slow
(experiments/LOG.md).
"""

SIDE_BY_SIDE = {"query_key_value": 3, "key_value": 2}
"""Number of linear maps that are side by side in one matrix, by the name of its module."""

SOURCE_TOKENS = "source_tokens"

ENCODED = ("tokens_BT", "sequence_BT", "position_BT", "segment_BT", "key_rank_BT", "query_rank_BT")
"""Tensors of a batch that `Objective.encode` reads."""

PREDICTION_ROUNDING = 64
"""The predictions of a batch are padded to a multiple of this number."""

Batch = dict[str, Tensor]
"""Tensors of one step, or of one device's share of it.

Every objective has `tokens_BT`, `sequence_BT`, `position_BT` (see the encoder) and `source_tokens`, the
number of real source tokens, each counted once. `counts` is there if the objective counts something. Each
objective adds tensors of its own.
"""


class VocabularyPart(NamedTuple):
    """Part of a loss that is a cross-entropy over a vocabulary."""

    name: str
    labels: str
    """Name of the tensor with its labels in a batch."""
    special: tuple[int, ...] = ()
    """Special ids that may be labels, besides all ids that stand for text."""
    shown: tuple[str, str] | None = None
    """Names of two tensors of a batch: the corrupted ids that are read, and the places of the predictions in
    their flattened rows. None if nothing is corrupted."""


class Objective(L.LightningModule, ABC):
    """Objective: an encoder, a task that it learns, and how it is trained. Each objective is a subclass.

    A subclass builds its heads, turns packed sequences into tensors (`make_batch`, numpy, in the data
    workers) and tensors into a loss (`losses`).
    """

    head: Any
    """Head over the vocabulary (`build_head`). Objectives with the output `next` or `hidden` must build it."""

    def __init__(self, run: RunSettings, *, vocab_size: int) -> None:
        super().__init__()
        self.run = run
        self.vocab_size = vocab_size
        self._encoded: list[tuple[tuple[Tensor | None, ...], Tensor | None, tuple[Tensor, ...]]] | None = None
        self.encoder: Encoder = self.build_encoder()

    @classmethod
    def of_text(cls, run: RunSettings, tokens: Tokens) -> Self:
        """Return the objective for a text."""
        return cls(run, vocab_size=tokens.vocab_size)

    @property
    def parts(self) -> Mapping[str, float]:
        """Weight of each part of the loss, by name. The part `loss` is reported as the loss. A part of weight
        0 is not trained on; its mean is only reported."""
        return {"loss": 1.0}

    @property
    def pair_loss(self) -> PairLoss:
        """Kind of negative pairs in the loss on pairs of segments; `none` without such a loss."""
        return "none"

    needs_targets = False
    """Whether `make_batch` reads the translations."""
    predicting: tuple[str, ...] = ("loss",)
    """Parts whose predictions count as predicted tokens."""
    counted: tuple[str, ...] = ()
    """Names of the entries of a batch's `counts`. The log reports the others as shares of the first."""
    vocabulary_parts: tuple[VocabularyPart, ...] = (VocabularyPart("loss", "label_N", (UNKNOWN, END)),)
    """Parts that are cross-entropies over a vocabulary."""

    def build_encoder(self) -> Encoder:
        """Return the encoder, whose initial weights are the same bits in every objective."""
        run = self.run
        sizes = {"vocab_size": self.vocab_size, "max_length": run.data.max_length}
        return Encoder(run.encoder, **sizes, segments=run.has_segments)

    def fit_to_text(self, tokens: Tokens, split: Split) -> None:
        """Learn what `make_batch` has to know about the training text. It is called once, before training.

        Raises:
            DataError: the text does not have what the settings ask for.
        """

    def repeats_at(self, step: int) -> int:
        """Return how many times each sequence is shown in a step. Steps are counted from 0."""
        return 1

    @abstractmethod
    def make_batch(self, packed: PackedStep, *, seed: int) -> dict[str, NDArray[np.int64]]:
        """Return the arrays of a batch for `losses`: the ids that the encoder reads, and the tokens to predict.

        Everything random in it depends on (seed, epoch, sentence) alone, and on the step if a schedule changes
        the masking ratio.
        """

    def make_evaluation_batch(self, packed: PackedStep) -> dict[str, NDArray[np.int64]]:
        """Return the arrays of a batch for evaluation, with a corruption that is fixed for all arms and seeds."""
        return self.make_batch(packed, seed=EVALUATION_SEED)

    @abstractmethod
    def losses(self, batch: Batch) -> dict[str, LossSum]:
        """Return the sum of each of `parts` over the batch, and its number of predictions."""

    def predictions(self, batch: Batch) -> dict[str, Tensor]:
        """Return the number of predictions of each of `parts`, from the labels alone. By default these are all
        `vocabulary_parts`."""
        return {part.name: count_predictions(batch[part.labels]) for part in self.vocabulary_parts}

    def chance(self, part: str, means: Mapping[str, float], unigram: Mapping[str, float]) -> float:
        """Return the chance level of a part that is no `VocabularyPart`: the loss of a guess without context,
        in nats.

        Args:
            means: mean loss of every part in the same evaluation.
            unigram: chance levels of the parts that are a `VocabularyPart`.

        Raises:
            TypeError: the objective does not define the chance level of this part.
        """
        raise TypeError(f"{type(self).__name__} must say what chance is in {part}")

    @contextmanager
    def encoding_once(self) -> Iterator[None]:
        """Keep encoded batches in this block, so that those that differ only in labels are encoded once.

        Where they also differ in the places of the predictions, only the last layer is computed again. The
        weights must not change in the block. A block inside another keeps its own batches.
        """
        outside, self._encoded = self._encoded, []
        try:
            yield
        finally:
            self._encoded = outside

    def encode(self, batch: Batch, *, top_place_N: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return all layers of a batch, with the attention that this objective allows.

        If `top_place_N` is given, the last layer is computed at these places of the flattened rows only.
        """
        inputs = tuple(batch.get(name) for name in ENCODED)
        below: dict[str, tuple[Tensor, ...]] = {}
        for earlier, earlier_place_N, layers in self._encoded or ():
            if all(map(_equal, inputs, earlier)):
                if _equal(top_place_N, earlier_place_N):
                    return layers
                below = {"below": layers[:-1]}
        layers = self.encoder(
            batch["tokens_BT"],
            sees=self.run.objective.sees,
            sequence_BT=batch["sequence_BT"],
            position_BT=batch["position_BT"],
            segment_BT=batch.get("segment_BT"),
            window=self.window,
            rank_BT=(batch["key_rank_BT"], batch["query_rank_BT"]) if "key_rank_BT" in batch else None,
            top_place_N=top_place_N,
            **below,
        )
        if self._encoded is not None:
            self._encoded.append((inputs, top_place_N, layers))
        return layers

    def encode_at(self, batch: Batch, *places_N: Tensor) -> Tensor:
        """Return the top layer as a head reads it, at the given places of the flattened rows, shape ND."""
        place_N = places_N[0] if len(places_N) == 1 else torch.cat(places_N)
        return self.encoder.head_input(self.encode(batch, top_place_N=place_N)[-1])

    def sentence_logits(self, batch: Batch) -> Tensor:
        """Return the logits of the token at each place of sentences, BTV, for minimal pairs and lm-eval.

        Only an objective whose settings have the output `own` defines this method. The objective decides from
        which tokens it predicts a place. Equal logits mean that it knows nothing. The score of a sentence is
        the sum, over its pieces and END, of the log of the softmax over the vocabulary.

        Args:
            batch: sentences of one length, each with START and END, as `tokens_BT`, `sequence_BT`, `position_BT`.
        """
        raise NotImplementedError

    def build_head(self) -> PredictionHead | LinearHead | TiedHead:
        """Return the head over the vocabulary that the settings of the objective ask for."""
        head = getattr(self.run.objective, "head", "bert")
        if head == "tied":
            return TiedHead(vocab_size=self.vocab_size, unscored=unscored_ids(self.run))
        return (LinearHead if head == "linear" else PredictionHead)(self.run.encoder, vocab_size=self.vocab_size)

    def token_loss(self, top_ND: Tensor, label_N: Tensor) -> LossSum:
        """Return the loss of the head over the vocabulary, summed over the predictions, with label smoothing
        in training."""
        return self.head.loss(top_ND, self.encoder.tokens.weight, label_N, label_smoothing=self.label_smoothing)

    @property
    def label_smoothing(self) -> float:
        """Share of each label that is spread over the vocabulary; 0 outside training."""
        return getattr(self.run.objective, "label_smoothing", 0.0) if self.training else 0.0

    @property
    def window(self) -> tuple[int, int]:
        """Numbers of visible tokens to the left and to the right, with `sees: window`."""
        return self.run.objective.window, self.run.objective.window

    def initialise(self) -> None:
        """Set the initial weights from their seed, as `encoder.initialisation` says. Biases are 0, and the
        weights of norms 1.

        Each parameter has its own random generator, whose seed depends on its name. So the encoder's weights
        are the same bits whatever else the module holds.
        """
        seed = derive(self.run.seed_of("init"), "weights")
        width = self.run.encoder.hidden_size
        tables = {id(module.weight) for module in self.modules() if isinstance(module, nn.Embedding)}
        for name, parameter in self.named_parameters():
            if parameter.ndim >= 2:
                rng = torch.Generator().manual_seed(derive(seed, name))
                if self.run.encoder.initialisation == "normal":
                    nn.init.normal_(parameter, std=INITIAL_SCALE / width**0.5, generator=rng)
                elif id(parameter) in tables:
                    nn.init.normal_(parameter, std=width**-0.5, generator=rng)
                else:
                    module = name.rpartition(".")[0].rpartition(".")[2]
                    glorot(parameter, maps=SIDE_BY_SIDE.get(module, 1), generator=rng)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.ones_(parameter)

    @property
    def total_names(self) -> tuple[str, ...]:
        """Names of the numbers in `totals`, which `training_step` returns and `explain` reads."""
        losses = [name for part in self.parts for name in (_summed(part), _predictions(part))]
        return SOURCE_TOKENS, *losses, *(_counted(name) for name in self.counted)

    def training_step(self, batch: Batch | list[Batch], batch_idx: int) -> Mapping[str, Tensor]:
        """Return the weighted loss of a step, and its `totals` over all devices.

        `totals` has one number for each of `total_names`, so that one sum over the devices is enough.

        If a step has several micro-batches (a list), this method adds up the gradients of all but the last.
        It returns the loss of the last one, whose gradient the caller adds, and the totals of all. The loss
        of each micro-batch is divided by the predictions of the whole step, which are counted first.
        """
        *earlier, last = [batch] if isinstance(batch, dict) else batch
        counts = None
        if earlier:
            self.zero_grad()
            counts = sum_over_devices(sum(map(self._count, earlier), self._count(last)))
        totals: Tensor | float = 0.0
        for micro_batch in earlier:
            # Here DDP sums no gradients: it waits for the backward pass after the whole method.
            loss, own_totals = self._loss_and_totals(micro_batch, counts)
            with without_autocast(loss):
                loss.backward()
            totals = totals + own_totals
        loss, own_totals = self._loss_and_totals(last, counts)
        return {"loss": loss, "totals": own_totals if counts is None else sum_over_devices(totals + own_totals)}

    def _count(self, batch: Batch) -> Tensor:
        """Return the number of predictions of each of `parts`, in their order.

        Raises:
            PluginError: `predictions` does not count each of them.
        """
        predictions = self.predictions(batch)
        if lacking := [part for part in self.parts if part not in predictions]:
            raise PluginError(
                f"{self.run.objective.kind}: its module {type(self).__name__} does not count the predictions of "
                f"{', '.join(lacking)}, as micro-batches need; define the method predictions in the class, or set "
                "training.accumulate to 1."
            )
        return torch.stack([predictions[part] for part in self.parts])

    def _loss_and_totals(self, batch: Batch, counts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the weighted loss of a batch, and its totals.

        Args:
            counts: number of predictions by which the sum of each of `parts` is divided. By default the
                numbers of this batch over all devices; then the totals are over all devices too.
        """
        losses = self.losses(batch)
        entries = {SOURCE_TOKENS: batch["source_tokens"]}
        for part, summed in losses.items():
            entries |= {_summed(part): summed.total.detach(), _predictions(part): summed.predictions}
        if self.counted:
            entries |= {_counted(name): count for name, count in zip(self.counted, batch["counts"], strict=True)}
        totals = torch.stack([entries[name].double() for name in self.total_names])
        if counts is None:
            totals = sum_over_devices(totals)
            whole = dict(zip(self.total_names, totals, strict=True))
            predictions = {part: whole[_predictions(part)] for part in self.parts}
        else:
            predictions = dict(zip(self.parts, counts, strict=True))
        means = {part: global_mean(losses[part].total, predictions[part]) for part in self.parts}
        loss = sum(weight * means[part] for part, weight in self.parts.items())
        assert isinstance(loss, Tensor)
        return loss, totals

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        # Lightning calls this after the forward pass, and would drop the gradients of earlier micro-batches.
        if self.run.training.accumulate == 1:
            optimizer.zero_grad()

    def explain(self, totals: list[float]) -> tuple[int, int, dict[str, float]]:
        """Return the numbers of tokens seen and predicted in some steps, and the entries of their log line.

        Args:
            totals: sums over these steps, in the order of `total_names`.
        """
        entries = dict(zip(self.total_names, totals, strict=True))
        # A part without predictions has no entry; a loss of 0 would be wrong.
        line = {
            f"train/{part}": entries[_summed(part)] / entries[_predictions(part)]
            for part in self.parts
            if entries[_predictions(part)]
        }
        for whole in self.counted[:1]:
            line[_counted(whole)] = entries[_counted(whole)]
            rest = {_counted(name): entries[_counted(name)] for name in self.counted[1:]}
            line |= {name: count / max(entries[_counted(whole)], 1) for name, count in rest.items()}
        predicted = sum(entries[_predictions(part)] for part in self.predicting)
        return round(entries[SOURCE_TOKENS]), round(predicted), line

    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = build_optimizer(self, self.run.training)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self._learning_rate_factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _learning_rate_factor(self, step: int) -> float:
        return learning_rate_factor(step, self.run.training)

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        return self.run.training.learning_rate * self._learning_rate_factor(step)

    def configure_gradient_clipping(
        self, optimizer: torch.optim.Optimizer, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        # Lightning does not clip for a fused optimiser under mixed precision, because fp16 has scalers. bf16
        # has none, so torch clips here.
        limit = self.run.training.gradient_clip_val or float("inf")
        self.gradient_norm = nn.utils.clip_grad_norm_(self.parameters(), limit)


def _equal(first: Tensor | None, second: Tensor | None) -> bool:
    return first is second or (first is not None and second is not None and torch.equal(first, second))


def _summed(part: str) -> str:
    return f"{part}/sum"


def _predictions(part: str) -> str:
    return f"{part}/predictions"


def _counted(name: str) -> str:
    return f"corruption/{name}"


def glorot(parameter: Tensor, *, maps: int, generator: torch.Generator) -> None:
    """Draw a matrix uniformly, with variance 2 / (inputs + outputs) (Glorot and Bengio 2010, equation 16).

    Args:
        maps: number of linear maps that are side by side in the matrix. Each has an equal share of the
            outputs.
    """
    outputs, inputs = parameter.shape[0] // maps, parameter.shape[1]
    bound = (6 / (inputs + outputs)) ** 0.5
    nn.init.uniform_(parameter, -bound, bound, generator=generator)


def global_mean(loss_sum: Tensor, total_count: Tensor) -> Tensor:
    """Return this batch's part of the mean loss over all devices, times the number of devices.

    DDP averages gradients with equal weight, but devices predict different numbers of tokens. The division by
    the count over all devices and the factor give each token the same weight.
    """
    devices = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    return loss_sum / total_count.clamp(min=1).to(loss_sum.dtype) * devices


def sum_over_devices(values: Tensor) -> Tensor:
    """Return the elementwise sum over all devices, computed in place; on one device the values themselves."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(values)
    return values


def shared_inputs(packed: PackedStep, shown_N: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Return the arrays that the batches of all objectives have. The encoder reads the ids in `shown_N`."""
    source = packed.source
    return {
        "tokens_BT": source.grid(shown_N),
        "sequence_BT": source.grid(source.slot_N),
        "position_BT": source.grid(source.position_N),
        "source_tokens": np.array(np.count_nonzero(source.showing_N == 0)),
        **({"segment_BT": source.grid(source.segment_N)} if source.segment_N.any() else {}),
    }


def padded_predictions(
    place_N: NDArray[np.int64], label_N: NDArray[np.int64], *, place: str = "predict_N", label: str = "label_N"
) -> dict[str, NDArray[np.int64]]:
    """Return places and labels of predictions, padded with IGNORED to a multiple of `PREDICTION_ROUNDING`.

    This keeps the number of different shapes small. For each new shape the matrix library prepares kernels,
    and the memory that earlier steps left is broken up (benchmarks/LOG.md).

    Args:
        place, label: names of the two arrays.
    """
    missing = -len(label_N) % PREDICTION_ROUNDING
    return {
        place: np.pad(place_N, (0, missing)),
        label: np.pad(label_N, (0, missing), constant_values=IGNORED),
    }
