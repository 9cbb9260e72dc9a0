"""How answers are scored; every number in [0, 1] or [-1, 1], higher is better."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats
from sklearn import metrics

from ablations.tasks.catalogue import Metric, Task

Entity = tuple[int, int, int, str]
"""Sentence, first word, the word after the last, type."""


def score(task: Task, said: Sequence[Any], right: Sequence[Any]) -> float:
    """The task's main metric.

    Args:
        said, right: aligned answers: classes, numbers, tags of a sentence, or texts of answers.
    """
    return _SCORERS[task.metric](task, said, right)


def chance(task: Task, train: Sequence[Any], right: Sequence[Any]) -> float:
    """What the most frequent answer of the training part scores; 0 where the metric says so by definition."""
    match task.chance:
        case "half":
            return 0.5
        case "none":
            return 0.0
    if task.kind == "tagging":
        common = Counter(tag for tags in train for tag in tags).most_common(1)[0][0]
        return score(task, [[common] * len(tags) for tags in right], right)
    common = Counter(train).most_common(1)[0][0]
    return score(task, [common] * len(right), right)


def _accuracy(task: Task, said: Sequence[Any], right: Sequence[Any]) -> float:
    if task.kind == "tagging":
        said, right = _flat(said), _flat(right)
    return float(metrics.accuracy_score(right, said))


def _matthews(task: Task, said: Sequence[Any], right: Sequence[Any]) -> float:
    return float(metrics.matthews_corrcoef(right, said))


def _f1(task: Task, said: Sequence[Any], right: Sequence[Any]) -> float:
    return float(metrics.f1_score(right, said, pos_label=task.positive, zero_division=0.0))


def _pearson(task: Task, said: Sequence[float], right: Sequence[float]) -> float:
    """0 where one side is constant, as a constant says nothing."""
    if np.ptp(said) == 0 or np.ptp(right) == 0:
        return 0.0
    return float(stats.pearsonr(said, right).statistic)


def _spearman(task: Task, said: Sequence[float], right: Sequence[float]) -> float:
    """0 where one side is constant."""
    if np.ptp(said) == 0 or np.ptp(right) == 0:
        return 0.0
    return float(stats.spearmanr(said, right).statistic)


def _entity_f1(task: Task, said: Sequence[Sequence[str]], right: Sequence[Sequence[str]]) -> float:
    """F1 of whole entities with their types, over all sentences together (Tjong Kim Sang and De Meulder 2003)."""
    found, wanted = entities(said), entities(right)
    if not found and not wanted:
        return 1.0
    return 2 * len(found & wanted) / (len(found) + len(wanted))


def _overlap_f1(task: Task, said: Sequence[str], right: Sequence[str]) -> float:
    """Mean F1 of the words of two answers (Rajpurkar et al. 2016, section 6.1)."""
    return float(np.mean([word_overlap(a, b) for a, b in zip(said, right, strict=True)]))


def exact_match(said: Sequence[str], right: Sequence[str]) -> float:
    """Share of answers that are the same after lower-casing, without punctuation and articles."""
    return float(np.mean([_words(a) == _words(b) for a, b in zip(said, right, strict=True)]))


def word_overlap(said: str, right: str) -> float:
    """F1 of the words of two answers, each word counted as often as it occurs."""
    a, b = Counter(_words(said)), Counter(_words(right))
    if not a or not b:
        return float(a == b)
    return 2 * (a & b).total() / (a.total() + b.total())


def entities(sentences: Sequence[Sequence[str]]) -> set[Entity]:
    """The spans of BIO or IO tags; an I that continues nothing of its type begins a span."""
    found: set[Entity] = set()
    for sentence, tags in enumerate(sentences):
        start, current = 0, ""
        for place, tag in enumerate([*tags, "O"]):
            prefix, _, kind = tag.partition("-")
            if current and not (prefix == "I" and kind == current):
                found.add((sentence, start, place, current))
                current = ""
            if prefix in ("B", "I") and not current:
                start, current = place, kind
    return found


def _words(answer: str) -> list[str]:
    plain = "".join(c for c in answer.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def _flat(values: Sequence[Sequence[Any]]) -> list[Any]:
    return [value for inner in values for value in inner]


_SCORERS: dict[Metric, Callable[[Task, Sequence[Any], Sequence[Any]], float]] = {
    "accuracy": _accuracy,
    "matthews": _matthews,
    "f1": _f1,
    "pearson": _pearson,
    "spearman": _spearman,
    "entity_f1": _entity_f1,
    "overlap_f1": _overlap_f1,
}
