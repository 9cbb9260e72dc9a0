"""Metrics of answers, their standard errors and chance levels; every metric lies in [0, 1] or [-1, 1], and
higher is better.

Scores of classes are scikit-learn's, correlations scipy's. F1 of entities is written here, because neither
scikit-learn nor torchmetrics has it. F1 of words and exact match are defined as in torchmetrics' `SQuAD`, which
adds up percentages in single precision: with 10,000 answers it would lose digits that decide whether a score is
at its chance level.

Two kinds of rules answer span tasks without understanding: with the words at the same place of every context,
or with the words next to those of the question. Spaces separate words, and in scripts without spaces each
character is a word (`examples.SPACED`). The number of words of a rule is chosen by its score.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn import metrics
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from ablations.tasks.datasets import Metric, Task
from ablations.tasks.examples import CONTINUES, ENDS, OUTSIDE, SPACED, Examples, is_entity_tag

MOST_WORDS = 30
"""Largest number of words of an answer at a fixed place, other than the whole context. A head's answers have
at most as many tokens."""

PUNCTUATION = string.punctuation + "".join(
    c for c in map(chr, range(0x10000)) if unicodedata.category(c)[0] == "P"
)
"""Characters that do not count in an answer: those of SQuAD, and the punctuation of other scripts."""


class WordsAtPlace(NamedTuple):
    """Rule that answers with the same part of every context: its first words, its last words, or all of it."""

    first: int | None = None
    last: int | None = None

    def answers(self, examples: Examples) -> list[str]:
        """Return the answer to each example. The question is ignored."""
        chosen = slice(None if self.last is None else -self.last, self.first)
        return [" ".join(re.findall(SPACED, context)[chosen]) for context in contexts(examples)]


class WordsBesideQuestion(NamedTuple):
    """Rule that answers with words of the context that stand before the first, or after the last, of the
    words that it shares with the question."""

    words: int
    after: bool

    def answers(self, examples: Examples) -> list[str]:
        """Return the answer to each example. Stop words do not count as shared.

        If no word is shared, the words stand at the end of the context, or with `after` at its beginning.
        """
        chosen = []
        for question, context in zip(examples.first, contexts(examples), strict=True):
            words = re.findall(SPACED, context)
            question_words = {_plain(word) for word in re.findall(SPACED, question)} - {"", *ENGLISH_STOP_WORDS}
            shared = [place for place, word in enumerate(words) if _plain(word) in question_words]
            if self.after:
                first = max(shared, default=-1) + 1
                chosen.append(" ".join(words[first : first + self.words]))
            else:
                last = min(shared, default=len(words))
                chosen.append(" ".join(words[max(0, last - self.words) : last]))
        return chosen


Rule = WordsAtPlace | WordsBesideQuestion

PLACES: tuple[Rule, ...] = (
    WordsAtPlace(),
    *(WordsAtPlace(first=count) for count in range(1, MOST_WORDS + 1)),
    *(WordsAtPlace(last=count) for count in range(1, MOST_WORDS + 1)),
)
"""Rules that ignore the question."""

BESIDE_QUESTION: tuple[Rule, ...] = tuple(
    WordsBesideQuestion(count, after) for after in (False, True) for count in range(1, MOST_WORDS + 1)
)
"""Rules that find the question's words in the context, and read nothing else."""


def contexts(examples: Examples) -> list[str]:
    """Return the contexts that answers of spans are taken from."""
    assert examples.second is not None, "only spans have contexts"
    return examples.second


def _plain(word: str) -> str:
    return word.lower().strip(PUNCTUATION)


Entity = tuple[int, int, int, str]
"""Entity: number of the sentence, first word, the word after the last, type."""


def score(task: Task, answers: Sequence[Any], right: Sequence[Any]) -> float:
    """Return the task's main metric of some answers.

    Args:
        answers, right: aligned answers: classes, numbers, tags of a sentence, or texts of spans.
    """
    return _SCORERS[task.metric](task, answers, right)


def chance(task: Task, test: Examples) -> float:
    """Return the chance level: the best score on the test part of answers that ignore the input.

    For classes and tags it is one answer to everything: the most frequent one of the test part, the positive
    class if F1 is about one class, or the best tag if F1 is of entities. (The most frequent answer of the
    training part scores no more, and may score far less by the luck of a sample.) For spans it is the same
    place in every context, the best of `PLACES`. It is a half for minimal pairs, and 0 if the metric has it by
    definition.
    """
    match task.chance:
        case "half":
            return 0.5
        case "none":
            return 0.0
        case "place":
            return max(score(task, rule.answers(test), test.right) for rule in PLACES)
    answers = {"f1": [task.positive], "entity_f1": set(_flat(test.answers))}.get(
        task.metric, [most_frequent(test)]
    )
    return max(score(task, constant(answer, test), test.right) for answer in answers)


def most_frequent(examples: Examples) -> Any:
    """Return the answer, or the tag of a word, that occurs most often. Ties go to the one met first."""
    given = examples.answers if examples.words is None else _flat(examples.answers)
    return Counter(given).most_common(1)[0][0]


def constant(answer: Any, examples: Examples) -> list[Any]:
    """Return one answer to all examples, or one tag of all their words."""
    if examples.words is None:
        return [answer] * len(examples)
    return [[answer] * len(words) for words in examples.words]


def _accuracy(task: Task, answers: Sequence[Any], right: Sequence[Any]) -> float:
    if task.kind == "tagging":
        answers, right = _flat(answers), _flat(right)
    return float(metrics.accuracy_score(right, answers))


def _matthews(task: Task, predicted: Sequence[Any], right: Sequence[Any]) -> float:
    """Return Matthews' correlation; 0 if all are of one class, of which scikit-learn would warn."""
    if len({*predicted, *right}) == 1:
        return 0.0
    return float(metrics.matthews_corrcoef(right, predicted))


def _f1(task: Task, predicted: Sequence[Any], right: Sequence[Any]) -> float:
    is_positive = [[answer == task.positive for answer in answers] for answers in (right, predicted)]
    return float(metrics.f1_score(*is_positive, zero_division=0.0))


def _macro_f1(task: Task, predicted: Sequence[Any], right: Sequence[Any]) -> float:
    """Return the mean F1 of the classes among the right answers, which are the same for all models."""
    classes = sorted(set(right))
    return float(metrics.f1_score(right, predicted, labels=classes, average="macro", zero_division=0.0))


def correlation(of: Callable[..., Any], first: ArrayLike, second: ArrayLike) -> float:
    """Return a correlation of scipy, such as `stats.spearmanr`; 0 if one side is constant, because a constant
    tells nothing."""
    return 0.0 if np.ptp(first) == 0 or np.ptp(second) == 0 else float(of(first, second).statistic)


def _entity_f1(task: Task, answers: Sequence[Sequence[str]], right: Sequence[Sequence[str]]) -> float:
    """Return F1 of whole entities with their types, over all sentences together (Tjong Kim Sang and De Meulder
    2003)."""
    predicted, gold = entities(answers), entities(right)
    if not predicted and not gold:
        return 1.0
    return 2 * len(predicted & gold) / (len(predicted) + len(gold))


def _overlap_f1(task: Task, answers: Sequence[str], right: Sequence[str]) -> float:
    """Return the mean over examples of F1 between the words of an answer and those of the right answer (Rajpurkar
    et al. 2016, section 6.1)."""
    return float(np.mean([word_overlap(a, b) for a, b in zip(answers, right, strict=True)]))


def exact_match(answers: Sequence[str], right: Sequence[str]) -> float:
    """Return the share of answers that equal the right ones. They are compared in lower case, without
    punctuation and, in every language, without the words a, an and the."""
    return float(np.mean([_words(a) == _words(b) for a, b in zip(answers, right, strict=True)]))


def word_overlap(answer: str, right: str) -> float:
    """Return F1 of the words of two answers, each word counted as often as it occurs."""
    a, b = Counter(_words(answer)), Counter(_words(right))
    if not a or not b:
        return float(a == b)
    return 2 * (a & b).total() / (a.total() + b.total())


def entities(sentences: Sequence[Sequence[str]]) -> set[Entity]:
    """Return the spans of IO, BIO, BIOES or BILOU tags, which may be mixed. A tag that continues or ends no
    span of its type begins one, because predictions may have such tags."""
    spans: set[Entity] = set()
    for sentence, tags in enumerate(sentences):
        start, current = 0, None
        for place, tag in enumerate([*tags, OUTSIDE]):
            prefix, _, kind = tag.partition("-")
            assert is_entity_tag(tag), "tags are checked where they are read"
            if current is not None and not (prefix in CONTINUES and kind == current):
                spans.add((sentence, start, place, current))
                current = None
            if tag != OUTSIDE and current is None:
                start, current = place, kind
            if prefix in ENDS and current is not None:
                spans.add((sentence, start, place + 1, current))
                current = None
    return spans


@lru_cache(maxsize=2**15)
def _words(answer: str) -> tuple[str, ...]:
    """Return the normalised words of an answer. They are cached, because each right answer is compared with
    the answers of many rules."""
    plain = answer.lower().translate(dict.fromkeys(map(ord, PUNCTUATION)))
    return tuple(re.findall(SPACED, re.sub(r"\b(a|an|the)\b", " ", plain)))


def _flat(values: Sequence[Sequence[Any]]) -> list[Any]:
    return [value for inner in values for value in inner]


_SCORERS: dict[Metric, Callable[[Task, Sequence[Any], Sequence[Any]], float]] = {
    "accuracy": _accuracy,
    "matthews": _matthews,
    "f1": _f1,
    "macro_f1": _macro_f1,
    "pearson": lambda task, answers, right: correlation(stats.pearsonr, answers, right),
    "spearman": lambda task, answers, right: correlation(stats.spearmanr, answers, right),
    "entity_f1": _entity_f1,
    "overlap_f1": _overlap_f1,
    "exact_match": lambda task, answers, right: exact_match(answers, right),
}


def share_error(right_N: NDArray[np.floating] | NDArray[np.bool_]) -> float:
    """Return the standard error of the mean of independent answers, each from 0 (wrong) to 1 (right).

    It is s / root n. If all answers are right, or all wrong, it is the error after two more of either kind
    are added (Agresti & Coull 1998, https://doi.org/10.1080/00031305.1998.10480550), because four right
    answers of four prove little. NaN for a single answer that is neither right nor wrong.
    """
    n, share = len(right_N), float(np.mean(right_N))
    if share in (0, 1):
        smoothed = (share * n + 2) / (n + 4)
        return float((smoothed * (1 - smoothed) / (n + 4)) ** 0.5)
    return float(np.std(right_N, ddof=1) / n**0.5) if n > 1 else float("nan")


def standard_error(value_N: NDArray[np.floating] | NDArray[np.bool_], cluster_N: NDArray[np.integer]) -> float:
    """Return the standard error of the mean of values that are independent only between clusters, to first
    order (Liang & Zeger 1986).

    If each example is a cluster, it is the usual s / root n; for right and wrong answers it is the binomial
    one. NaN for fewer than two clusters.

    Args:
        cluster_N: the cluster of each value, any integers in any order.
    """
    _, place_N = np.unique(cluster_N, return_inverse=True)
    deviation_N = value_N - np.mean(value_N, dtype=np.float64)
    sums_C = np.bincount(place_N, weights=deviation_N)
    if len(sums_C) < 2:
        return float("nan")
    return float(np.sqrt(np.square(sums_C).sum() * len(sums_C) / (len(sums_C) - 1)) / len(value_N))
