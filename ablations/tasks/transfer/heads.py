"""Head of a task: one linear map of each item, and the conversion of answers to numbers and back.

The same head serves frozen and trained encoders. It scales its features by the mean and deviation that they have
in the training texts before anything is trained: arms differ widely in the scale of their states, and a linear
map learns at the pace of its features (He et al. 2022, appendix A.1, who use batch normalisation for that; a mean
and a deviation that stay are the same in training and test).

Letters: B examples of a batch, N items of all of them, K items of one, F features, O outputs.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ablations.tasks.datasets import Task
from ablations.tasks.transfer.states import States, Texts
from lightning_modules.randomness import derive

LONGEST_ANSWER = 30
"""Tokens of a span that is given as an answer, at most, as for SQuAD (Devlin et al. 2019)."""

INITIAL_DEVIATION = 0.02
"""Deviation of the head's initial weights (Devlin et al. 2019)."""

FAINTEST = 1e-3
"""Least deviation of a feature, as a share of the strongest feature's: a smaller one counts as this."""

Floats = NDArray[np.float32]


class Scale(NamedTuple):
    """Scale that brings features to mean 0 and deviation 1."""

    mean_F: Tensor
    deviation_F: Tensor


@torch.no_grad()
def scale_of(states: States, texts: Texts) -> Scale:
    """Return the scale of the items of some texts, without any training; answers play no part."""
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
    """Outputs of each item: a linear map of its scaled features."""

    mean_F: Tensor
    deviation_F: Tensor

    def __init__(self, scale: Scale, outputs: int, *, seed: int) -> None:
        super().__init__()
        self.register_buffer("mean_F", scale.mean_F)
        self.register_buffer("deviation_F", scale.deviation_F)
        rng = torch.Generator().manual_seed(derive(seed, "head"))
        # Not the constructor, which draws from torch's own generator.
        self.linear: nn.Linear = nn.utils.skip_init(nn.Linear, len(scale.mean_F), outputs)
        nn.init.normal_(self.linear.weight, std=INITIAL_DEVIATION, generator=rng)
        nn.init.zeros_(self.linear.bias)
        self.to(scale.mean_F.device)

    def forward(self, states_NF: Tensor) -> Tensor:
        return self.linear((states_NF - self.mean_F) / self.deviation_F)


# Answers ---------------------------------------------------------------------------------------------


class Answers(Protocol):
    """Answers of a kind of task: their form as numbers, for each item, and their reading from a head's outputs."""

    outputs: int

    def target(self, texts: Texts, example: int) -> Tensor | None:
        """Return the right output for each item of an example; None where `max_length` cut the answer off."""

    def loss(self, output_NO: Tensor, target_N: Tensor, counts_B: Tensor) -> Tensor:
        """Return the mean loss of a batch, whose examples have so many items each."""

    def answer(self, output_KO: Floats, texts: Texts, example: int) -> Any:
        """Return the answer that the outputs of an example give."""


def answers_of(task: Task, train: Texts) -> Answers:
    """Return the form of a task's answers; it knows the classes or tags of the training part, and no others."""
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
    """Answers that are a class of each text: the softmax over classes."""

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
    """Answers that are a number for each text, in deviations from the mean of the training part: the square of the
    error."""

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
    """Answers that are a tag of each word; words that `max_length` cut off get the most frequent one."""

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
    """Answers that are a span of the context: two softmaxes over its tokens, for beginning and end (Devlin et al.
    2019, section 4.2). An answer that was cut off in part cannot be given whole, and is scored like any other."""

    outputs = 2

    def target(self, texts: Texts, example: int) -> Tensor | None:
        """Return 1 at the first token, and in the second column at the last."""
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
    """Return first and last token of the span with the highest sum of start and end, of those that do not end
    before they begin and have at most `longest` tokens; of equal ones the first."""
    K = len(start_K)
    legal_KK = np.tri(K, K, longest - 1, dtype=bool) & ~np.tri(K, K, -1, dtype=bool)
    sum_KK = np.where(legal_KK, start_K[:, None] + end_K[None, :], -np.inf)
    first, last = np.unravel_index(int(sum_KK.argmax()), sum_KK.shape)
    return int(first), int(last)


def right_answers(task: Task, texts: Texts) -> list[Any]:
    """Return the answers of a split in the form of `Answers.answer`."""
    return texts.examples.right
