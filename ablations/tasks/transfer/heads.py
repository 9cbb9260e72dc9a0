"""Head of a task: one linear map of each item of the encoder's top layer, which is frozen or trained with the
head.

A head reads items of an example. For one class or one number the only item is the mean of the text, or the
features of a pair made of two means (`encoding.pair_features`), or the [MASK] behind the text if the task
reads that. For tagging the items are each word's first piece, and for a span every token of the context.

The same head serves frozen and trained encoders. It scales its features by the mean and deviation that they
have in the training texts before anything is trained. Arms differ widely in the scale of their states, and a
linear map learns at the pace of its features. (He et al. 2022, appendix A.1, use batch normalisation for
that. A fixed mean and deviation are the same in training and test.)

Letters: B examples of a batch, E of a split, N items of all of them, K items of one, F features, O outputs.
"""

import copy
import hashlib
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from ablations.tasks.datasets import Task
from ablations.tasks.encoding import (
    SECOND,
    EncodedTexts,
    encode_batch,
    encode_examples,
    pair_features,
    text_features,
)
from ablations.tasks.examples import Examples
from lightning_modules.data.token_store import ranges
from lightning_modules.model.numerics import bf16_products
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive

Integers = NDArray[np.int64]

LONGEST_ANSWER = 30
"""Largest number of tokens of a span that is given as an answer, as for SQuAD (Devlin et al. 2019)."""

INITIAL_DEVIATION = 0.02
"""Standard deviation of the head's initial weights (Devlin et al. 2019)."""

FAINTEST = 1e-3
"""Smallest deviation by which a feature is divided, as a share of the largest deviation of a feature."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts of a split as a head reads them."""

    examples: Examples
    rows: EncodedTexts
    places: list[Integers] | None
    """Places of the items in each row; None if the state of the text, or the features of a pair, are the only
    item."""

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
        """Number of items before each example, and last the number of all items: shape E + 1."""
        return np.append(0, self.counts_E.cumsum())

    def items(self, index_B: Integers) -> Integers:
        """Return the numbers of the items of some examples, in their order."""
        return ranges(self.bounds_E[index_B], self.counts_E[index_B])

    @cached_property
    def digest(self) -> bytes:
        """Hash of the tokens that a head reads and of the places of its items. Equal hashes mean equal states
        of an encoder."""
        hashed = hashlib.sha256(repr((self.rows.paired, self.places is None)).encode())
        arrays = [self.rows.lengths_N, self.counts_E, *(self.places or ())]
        for array in itertools.chain(arrays, *((row.ids_T, row.part_T) for row in self.rows.rows)):
            hashed.update(np.ascontiguousarray(array).data)
        return hashed.digest()

    @cached_property
    def characters_E(self) -> Integers:
        """Length of each example's texts in characters, however they are cut into pieces."""
        first, second = self.examples.first, self.examples.second
        return np.array([len(text) + len(second[i] if second else "") for i, text in enumerate(first)])


def texts_of(task: Task, examples: Examples, tokenizer: Tokenizer, *, max_length: int) -> Texts:
    """Return the examples of a split as a head reads them. Tokens that `max_length` cuts off are no items."""
    rows = encode_examples(task, examples, tokenizer, max_length=max_length)
    if task.kind in ("classification", "regression"):
        return Texts(examples, rows, None)
    places = [
        np.flatnonzero(row.word_T >= 0 if task.kind == "tagging" else row.part_T == SECOND) for row in rows.rows
    ]
    return Texts(examples, rows, places)


def read_states(objective: Objective, texts: Texts, index_B: Integers, *, mixed: bool = False) -> Tensor:
    """Return the features of the items of some examples, in their order: shape NF, fp32, on the objective's
    device.

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
        """Return the features of the items of some examples, in their order: shape NF."""


class FrozenStates:
    """States as pre-training left them, without dropout, in full precision. Each text is encoded once and
    kept for all that read it again."""

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
    """States of a copy of the encoder that is trained with the head. Dropout, attention and precision are
    those of pre-training."""

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


class Scale(NamedTuple):
    """Scale that brings features to mean 0 and deviation 1."""

    mean_F: Tensor
    deviation_F: Tensor


@torch.no_grad()
def scale_of(states: States, texts: Texts) -> Scale:
    """Return the scale of the features of some texts' items, before any training. Answers are ignored."""
    for module in states.trained.values():
        module.eval()
    sums: list[Tensor] = []
    for index_B in texts.rows.by_length():
        found_NF = states.of(texts, index_B).double()
        sums.append(torch.stack([found_NF.sum(0), found_NF.square().sum(0)]))
    mean_F, square_F = torch.stack(sums).sum(0) / max(1, texts.bounds_E[-1])
    deviation_F = (square_F - mean_F.square()).clamp(min=0).sqrt()
    faintest = max(FAINTEST * deviation_F.max().item(), 1e-6)
    return Scale(mean_F.float(), deviation_F.clamp(min=faintest).float())


class Head(nn.Module):
    """Linear map from the scaled features of each item to its outputs."""

    mean_F: Tensor
    deviation_F: Tensor

    def __init__(self, scale: Scale, outputs: int, *, seed: int) -> None:
        super().__init__()
        self.register_buffer("mean_F", scale.mean_F)
        self.register_buffer("deviation_F", scale.deviation_F)
        rng = torch.Generator().manual_seed(derive(seed, "head"))
        # The constructor would draw from torch's own generator.
        self.linear: nn.Linear = nn.utils.skip_init(nn.Linear, len(scale.mean_F), outputs)
        nn.init.normal_(self.linear.weight, std=INITIAL_DEVIATION, generator=rng)
        nn.init.zeros_(self.linear.bias)
        self.to(scale.mean_F.device)

    def forward(self, states_NF: Tensor) -> Tensor:
        return self.linear((states_NF - self.mean_F) / self.deviation_F)


# Answers ---------------------------------------------------------------------------------------------


class Answers(Protocol):
    """Form of the answers of a kind of task: the targets of the items, the loss, and the answer by a head's
    outputs."""

    outputs: int

    def target(self, texts: Texts, example: int) -> Tensor | None:
        """Return the right output for each item of an example; None if `max_length` cut the answer off."""

    def loss(self, output_NO: Tensor, target_N: Tensor, counts_B: Tensor) -> Tensor:
        """Return the mean loss of a batch, whose examples have `counts_B` items each."""

    def answer(self, output_KO: Floats, texts: Texts, example: int) -> Any:
        """Return the answer that the outputs of an example give."""


def answers_of(task: Task, train: Texts) -> Answers:
    """Return the form of a task's answers. It knows only the classes or tags of the training part."""
    given: Sequence[Any] = train.examples.answers
    match task.kind:
        case "classification":
            return Classes(sorted(set(given)))
        case "regression":
            return Numbers(float(np.mean(given)), float(np.std(given)) or 1.0)
        case "tagging":
            return Tags(Counter(tag for tags in given for tag in tags))
        case "span":
            return Spans()
        case _:
            raise TypeError(f"{task.kind} has no head")


class Classes:
    """Answers that are a class of each text, by a softmax over classes."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._number = {name: i for i, name in enumerate(names)}
        self.outputs = len(names)

    def target(self, texts: Texts, example: int) -> Tensor:
        return torch.tensor([self._number[texts.examples.answers[example]]])

    def loss(self, output_NO: Tensor, target_N: Tensor, counts_B: Tensor) -> Tensor:
        return F.cross_entropy(output_NO, target_N)

    def answer(self, output_KO: Floats, texts: Texts, example: int) -> str:
        return self._names[int(output_KO[0].argmax())]


class Numbers:
    """Answers that are a number for each text. The head predicts deviations from the mean of the training
    part, and the loss is the squared error."""

    outputs = 1

    def __init__(self, mean: float, deviation: float) -> None:
        self._mean, self._deviation = mean, deviation

    def target(self, texts: Texts, example: int) -> Tensor:
        return torch.tensor([(texts.examples.answers[example] - self._mean) / self._deviation])

    def loss(self, output_NO: Tensor, target_N: Tensor, counts_B: Tensor) -> Tensor:
        return F.mse_loss(output_NO[:, 0], target_N.to(output_NO.dtype))

    def answer(self, output_KO: Floats, texts: Texts, example: int) -> float:
        return float(output_KO[0, 0]) * self._deviation + self._mean


class Tags:
    """Answers that are a tag of each word. Words that `max_length` cut off get the most frequent tag."""

    def __init__(self, counts: Counter[str]) -> None:
        self._names = sorted(counts)
        self._number = {name: i for i, name in enumerate(self._names)}
        self._common = min(counts, key=lambda name: (-counts[name], name), default="O")
        self.outputs = len(self._names)

    def target(self, texts: Texts, example: int) -> Tensor | None:
        assert texts.places is not None
        tags = texts.examples.answers[example]
        words = texts.rows.rows[example].word_T[texts.places[example]]
        return torch.tensor([self._number[tags[word]] for word in words]) if len(words) else None

    def loss(self, output_NO: Tensor, target_N: Tensor, counts_B: Tensor) -> Tensor:
        return F.cross_entropy(output_NO, target_N)

    def answer(self, output_KO: Floats, texts: Texts, example: int) -> list[str]:
        assert texts.places is not None
        assert texts.examples.words is not None
        tags = [self._common] * len(texts.examples.words[example])
        words = texts.rows.rows[example].word_T[texts.places[example]]
        for word, number in zip(words, output_KO.argmax(1), strict=True):
            tags[word] = self._names[number]
        return tags


class Spans:
    """Answers that are a span of the context, by two softmaxes over its tokens, for beginning and end (Devlin
    et al. 2019, section 4.2). An answer that was cut off in part cannot be given whole, but is scored like
    any other."""

    outputs = 2

    def target(self, texts: Texts, example: int) -> Tensor | None:
        """Return 1 in the first column at the first token of the answer, and in the second column at the last
        token."""
        assert texts.places is not None
        span_K2 = texts.rows.rows[example].span_T2[texts.places[example]]
        answer = texts.examples.answers[example]
        begins_K = (span_K2[:, 0] <= answer.start) & (answer.start < span_K2[:, 1])
        ends_K = (span_K2[:, 0] < answer.stop) & (answer.stop <= span_K2[:, 1])
        if not (begins_K.any() and ends_K.any()):
            return None
        target_K2 = torch.zeros(len(span_K2), 2)
        target_K2[np.flatnonzero(begins_K)[0], 0] = target_K2[np.flatnonzero(ends_K)[-1], 1] = 1.0
        return target_K2

    def loss(self, output_NO: Tensor, target_N: Tensor, counts_B: Tensor) -> Tensor:
        log_share = [part.log_softmax(0) for part in output_NO.split(counts_B.tolist())]
        return -(torch.cat(log_share) * target_N).sum() / (2 * len(counts_B))

    def answer(self, output_KO: Floats, texts: Texts, example: int) -> str:
        assert texts.places is not None
        assert texts.examples.second is not None
        if not len(output_KO):
            return ""
        first, last = best_span(output_KO[:, 0], output_KO[:, 1])
        span_K2 = texts.rows.rows[example].span_T2[texts.places[example]]
        return texts.examples.second[example][span_K2[first, 0] : span_K2[last, 1]].strip()


def best_span(start_K: Floats, end_K: Floats, *, longest: int = LONGEST_ANSWER) -> tuple[int, int]:
    """Return the first and the last token of the span with the highest sum of start and end.

    The span has 1 to `longest` tokens. Ties go to the first span.
    """
    K = len(start_K)
    legal_KK = np.tri(K, K, longest - 1, dtype=bool) & ~np.tri(K, K, -1, dtype=bool)
    sum_KK = np.where(legal_KK, start_K[:, None] + end_K[None, :], -np.inf)
    first, last = np.unravel_index(int(sum_KK.argmax()), sum_KK.shape)
    return int(first), int(last)
