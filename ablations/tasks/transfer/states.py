"""States of an encoder's top layer that a head reads, frozen or trained with the head.

A head reads items of an example. Where one class or one number is asked for, the only item is the mean of the
text, or what is made of the means of a pair (`encoding.pair_features`), or the [MASK] behind the text where the
task reads that; of tagging, each word's first piece; of a span, every token of the context.

Letters: B examples of a batch, E of a split, N items, F features of an item.
"""

import copy
import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from ablations.tasks.datasets import Task
from ablations.tasks.encoding import (
    SECOND,
    EncodedTexts,
    Row,
    encode_batch,
    encode_examples,
    pair_features,
    text_features,
)
from ablations.tasks.examples import Examples
from lightning_modules.data.token_store import runs
from lightning_modules.model.numerics import bf16_products
from lightning_modules.objectives.objective import Objective
from lightning_modules.vocabulary import MASK

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts of a split as a head reads them."""

    examples: Examples
    rows: EncodedTexts
    places: list[Integers] | None
    """Places of the items in each row; None where the mean of the text is the only item."""

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def counts_E(self) -> Integers:
        """Number of items of each example."""
        if self.places is None:
            return np.ones(len(self), dtype=np.int64)
        return np.array([len(place) for place in self.places], dtype=np.int64)

    @cached_property
    def bounds_E(self) -> Integers:
        """Number of items before each example, and in all: shape E + 1."""
        return np.append(0, self.counts_E.cumsum())

    def items(self, index_B: Integers) -> Integers:
        """Return the numbers of the items of some examples, in their order."""
        return runs(self.bounds_E[index_B], self.counts_E[index_B])

    @cached_property
    def digest(self) -> bytes:
        """Hash that differs where a head reads other tokens, or other places of them: of one encoder, other
        states."""
        hashed = hashlib.sha256(repr((self.rows.paired, self.places is None)).encode())
        arrays = [self.rows.lengths_N, self.counts_E, *(self.places or ())]
        for array in itertools.chain(arrays, *((row.ids_T, row.part_T) for row in self.rows.rows)):
            hashed.update(np.ascontiguousarray(array).data)
        return hashed.digest()

    @cached_property
    def characters_E(self) -> Integers:
        """Lengths of the texts in characters, in whatever pieces they are read."""
        first, second = self.examples.first, self.examples.second
        return np.array([len(text) + len(second[i] if second else "") for i, text in enumerate(first)])


def texts_of(task: Task, examples: Examples, tokenizer: Tokenizer, *, max_length: int) -> Texts:
    """Return the examples of a split of a task. What `max_length` cuts off is no item."""
    rows = encode_examples(task, examples, tokenizer, max_length=max_length)
    pooled = task.kind in ("classification", "regression") and task.reads == "mean"
    return Texts(examples, rows, None if pooled else [_places(task, row) for row in rows.rows])


def _places(task: Task, row: Row) -> Integers:
    if task.reads == "mask":
        return np.flatnonzero(row.ids_T == MASK)
    return np.flatnonzero(row.word_T >= 0 if task.kind == "tagging" else row.part_T == SECOND)


def read_states(objective: Objective, texts: Texts, index_B: Integers, *, mixed: bool = False) -> Tensor:
    """Return the items of some examples, in their order: shape NF, fp32, on the objective's device.

    Args:
        mixed: whether the encoder computes in bf16-mixed precision.
    """
    batch = texts.rows.batch(index_B)
    device = objective.device.type
    with bf16_products(device, enabled=mixed), torch.autocast(device, dtype=torch.bfloat16, enabled=mixed):
        top_BTD = encode_batch(objective, batch)[-1].float()
    if texts.places is None:
        features = pair_features if texts.rows.paired else text_features
        return features(top_BTD, batch["part_BT"].to(top_BTD.device))
    T = top_BTD.shape[1]
    place_N = np.concatenate([number * T + texts.places[i] for number, i in enumerate(index_B)])
    return top_BTD.flatten(0, 1)[torch.from_numpy(place_N).to(top_BTD.device)]


class States(Protocol):
    """Source of a head's features."""

    @property
    def trained(self) -> Mapping[str, nn.Module]:
        """Modules that are trained with the head, by name."""

    def restart(self) -> None:
        """Undo all training."""

    def of(self, texts: Texts, index_B: Integers) -> Tensor:
        """Return the items of some examples, in their order: shape NF."""


class FrozenStates:
    """States as pre-training left them, without dropout, in full precision; texts are encoded once and kept,
    whatever reads them again."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._kept: dict[bytes, Tensor] = {}

    @property
    def trained(self) -> Mapping[str, nn.Module]:
        return {}

    def restart(self) -> None:
        pass

    def of(self, texts: Texts, index_B: Integers) -> Tensor:
        if texts.digest not in self._kept:
            self._kept[texts.digest] = self._encoded(texts)
        kept_NF = self._kept[texts.digest]
        return kept_NF[torch.from_numpy(texts.items(index_B)).to(kept_NF.device)]

    @torch.no_grad()
    def _encoded(self, texts: Texts) -> Tensor:
        was_training = self._objective.training
        self._objective.eval()
        order = list(texts.rows.by_length())
        states_NF = torch.cat([read_states(self._objective, texts, index_B) for index_B in order])
        item_N = torch.from_numpy(np.concatenate([texts.items(index_B) for index_B in order]))
        self._objective.train(was_training)
        return torch.empty_like(states_NF).index_copy_(0, item_N.to(states_NF.device), states_NF)


class TunedStates:
    """States of a copy of the encoder, which is trained with its own dropout and attention, in the precision of
    pre-training."""

    def __init__(self, objective: Objective) -> None:
        self._initial = objective.encoder
        self.mixed = objective.run.training.precision == "bf16-mixed"
        """Whether the encoder computes in bf16-mixed precision."""
        self._copy = copy.deepcopy(objective)

    @property
    def trained(self) -> Mapping[str, nn.Module]:
        return {"encoder": self._copy.encoder}

    def restart(self) -> None:
        self._copy.encoder.load_state_dict(self._initial.state_dict())

    def of(self, texts: Texts, index_B: Integers) -> Tensor:
        return read_states(self._copy, texts, index_B, mixed=self.mixed)
