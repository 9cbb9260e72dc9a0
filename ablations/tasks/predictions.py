"""Predictions of a run for each example of a task, so that two runs can be compared on the same examples.

An example has the same id in all arms, seeds and experiments: a hash of its content. `points` say how well it
was answered; higher is better. They depend on the task: 1 or 0 for a class or a minimal pair (a half if both
sentences are equally probable), the share of a sentence's words that have the right tag, the F1 of the words
of a span, or minus the error of a number. If several heads are trained on a task, points are the mean over
them.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from tokenizers import Tokenizer

from ablations.measures.reading.sample import ranks
from ablations.results import PREDICTION_COLUMNS
from ablations.tasks.datasets import Task
from ablations.tasks.examples import Examples
from ablations.tasks.metrics import exact_match, word_overlap
from lightning_modules.data.tokenizer import FIRST_WORD_ID

COLUMNS = [name for name in PREDICTION_COLUMNS if name not in ("measure", "step", "key")]
"""Columns of the predictions of one measure of one task."""


def predictions(
    examples: Examples,
    *,
    task: str,
    metric: str,
    points_N: ArrayLike,
    tokenizer: Tokenizer,
    counts_V: NDArray[np.int64],
    answers_RN: Sequence[Sequence[Any]] | None = None,
    margin_N: ArrayLike | None = None,
    weight_N: ArrayLike | None = None,
) -> pd.DataFrame:
    """Return the predictions for some examples, with the columns `COLUMNS` and one row for each example, in
    their order.

    Args:
        points_N: points of each example; higher is better.
        counts_V: how often each id of the tokenizer occurs in the training text.
        answers_RN: the answer of each head to each example; None for minimal pairs.
        margin_N: score of the right answer minus that of the wrong one, in nats.
        weight_N: number of items of each example; 1 unless given. Examples without an item are left out.
    """
    N = len(examples)
    answers = None if answers_RN is None else [[_written(said_N[i]) for said_N in answers_RN] for i in range(N)]
    columns: dict[str, Any] = {
        "task": [task] * N,
        "metric": [metric] * N,
        "example": example_ids(examples),
        "text": examples.first,
        "second": examples.second,
        "part": [group[-1] for group in examples.groups] if examples.groups and examples.groups[0] else None,
        "label": [None if answer is None else _written(answer) for answer in examples.right],
        "prediction": answers,
        "points": np.asarray(points_N, float),
        "weight": np.ones(N, np.int64) if weight_N is None else weight_N,
        "margin": np.nan if margin_N is None else margin_N,
        **_tokens(examples, tokenizer, counts_V),
    }
    frame = pd.DataFrame(
        {name: pd.Series(columns[name], range(N), dtype=PREDICTION_COLUMNS[name]) for name in COLUMNS}
    )
    return frame[frame["weight"] > 0].reset_index(drop=True)


def example_ids(examples: Examples) -> list[str]:
    """Return the id of each example: a hash of its texts, answer and groups. Repetitions of an example are
    numbered."""
    fields = (examples.first, examples.second, examples.words, examples.right, examples.groups)
    seen: dict[str, int] = {}
    ids = []
    for i in range(len(examples)):
        content = json.dumps([None if field is None else field[i] for field in fields], ensure_ascii=False)
        digest = hashlib.sha256(content.encode()).hexdigest()[:12]
        seen[digest] = seen.get(digest, 0) + 1
        ids.append(digest if seen[digest] == 1 else f"{digest}-{seen[digest]}")
    return ids


def points_of(task: Task, answers_N: Sequence[Any], right_N: Sequence[Any]) -> NDArray[np.float64]:
    """Return the points of a head's answers, one for each. `points_metric` names them."""

    def points(answer: Any, right: Any) -> float:
        match task.kind:
            case "tagging":
                return float(np.mean(np.equal(answer, right)))
            case "regression":
                return -abs(float(answer) - float(right))
            case "span":
                return (
                    exact_match([answer], [right]) if task.metric == "exact_match" else word_overlap(answer, right)
                )
            case _:
                return float(answer == right)

    return np.array([points(answer, right) for answer, right in zip(answers_N, right_N, strict=True)])


def points_metric(task: Task) -> str:
    """Return the metric whose value is the mean of the points, or another name if the points are of no metric."""
    match task.kind:
        case "tagging":
            return "score" if task.metric == "accuracy" else "right_tags"
        case "regression":
            return "minus_error"
        case "span":
            return "score"
        case _:
            return "score" if task.metric == "accuracy" else "accuracy"


def _tokens(examples: Examples, tokenizer: Tokenizer, counts_V: NDArray[np.int64]) -> dict[str, list[int]]:
    """Return `length` in tokens (of a minimal pair, its first sentence) and frequency rank `rarest` of each
    example."""
    words_V = np.where(np.arange(len(counts_V)) >= FIRST_WORD_ID, counts_V, 0)  # special ids count as the rarest
    rank_V = ranks(words_V)
    length_N, rarest_N = np.zeros(len(examples), np.int64), np.zeros(len(examples), np.int64)
    halves = examples.groups is not None
    for number, texts in enumerate((examples.first, examples.second)):
        for i, encoded in enumerate(tokenizer.encode_batch(list(texts or ()), add_special_tokens=False)):
            length_N[i] += len(encoded.ids) if number == 0 or not halves else 0
            rarest_N[i] = max(rarest_N[i], rank_V[encoded.ids].max(initial=0))
    return {"length": length_N.tolist(), "rarest": rarest_N.tolist()}


def _written(answer: Any) -> str:
    """Return an answer as text: tags with blanks between, numbers with six digits."""
    if isinstance(answer, list | tuple):
        return " ".join(map(str, answer))
    return f"{answer:.6g}" if isinstance(answer, float) else str(answer)
