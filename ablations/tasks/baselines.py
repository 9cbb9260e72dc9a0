"""Baselines of a task without an encoder: its most frequent answer, or a linear model of its words.

Sentences are TF-IDF vectors of words and pairs of neighbouring words, for logistic or ridge regression. Pairs
of sentences are their two vectors a and b, and |a - b|. Words are tagged in two ways: with the most frequent
tag of the word, and by a linear classifier of the word and its two neighbours (a support vector machine,
which fits hundreds of thousands of words in seconds). Spans are answered with words at the same place of every
context, or with words next to those of the question (rules of `metrics`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

from ablations.measures.reading.texts import Readings, Say
from ablations.tasks.datasets import SPLITS, Split, Task
from ablations.tasks.examples import WORD, Examples, Source, all_examples, part, source_of
from ablations.tasks.linear import MOST_ITERATIONS, LabelledFeatures, best_classifier, best_ridge
from ablations.tasks.metrics import BESIDE_QUESTION, PLACES, Rule, chance, constant, most_frequent, score
from ablations.tasks.settings import BaselinesSettings

STRENGTHS = (1.0, 10.0, 100.0)
"""Candidates for features of at most 1 that are mostly 0; see `linear.STRENGTHS`."""
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Candidates for the same features; see `linear.PENALTIES`."""

TERM = WORD + r"|[^\w\s]"
"""Pattern of a word or punctuation mark."""


def rows(readings: Readings, settings: BaselinesSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `baselines` of one task. They are cached for the other runs of this process,
    because no encoder enters."""
    yield from map(dict, _kept_rows(settings, source_of(readings, settings)))


@lru_cache
def _kept_rows(settings: BaselinesSettings, source: Source) -> tuple[dict[str, Any], ...]:
    return tuple(baseline_rows(settings, all_examples(settings.task_name, source)))


def baseline_rows(settings: BaselinesSettings, splits: Mapping[Split, Examples]) -> Iterator[dict[str, Any]]:
    """Yield the task's scores of baselines without an encoder, which learn from the examples that encoders
    learn from.

    The rows are `majority` and `tfidf` for classes and numbers, `majority`, `word` and `word_window` for
    tagging, `place` and `beside_question` for spans. In tagging, probes take fewer examples than heads, so
    rows such as `probed_word` learn from the examples of probes. n counts test examples, which are sentences
    in tagging. For rows `probed_` n counts words, also those that an encoder's `max_length` cuts off. The
    chance level (`floor`) is `metrics.chance`.
    """
    for number, measure in enumerate(settings.compared_measures):
        parts = {split: part(splits[split], measure, split) for split in SPLITS}
        rows = score_rows(settings.task, splits=parts)
        if number == 0:
            yield from rows
        else:
            words = sum(map(len, parts["test"].answers))
            yield from (row | {"metric": f"probed_{row['metric']}", "n": words} for row in rows)


def score_rows(task: Task, *, splits: Mapping[Split, Examples]) -> Iterator[dict[str, Any]]:
    """Yield the score of each baseline, from all examples of the given splits."""
    train, validation, test = (splits[split] for split in SPLITS)
    answers_by_metric: dict[str, Sequence[Any]] = {}
    if task.kind != "span":
        answers_by_metric["majority"] = constant(most_frequent(train), test)
    match task.kind:
        case "classification" | "regression":
            answers_by_metric["tfidf"] = _by_tfidf(task, train, validation, test)
        case "tagging":
            answers_by_metric |= {"word": _by_word(train, test), "word_window": _by_window(train, test)}
        case "span":
            rules = {"place": PLACES, "beside_question": BESIDE_QUESTION}
            answers_by_metric = {name: _by_rule(task, of, train, test) for name, of in rules.items()}
        case _:
            raise TypeError(f"{task.kind} has no baselines")
    floor = chance(task, test)
    for metric, answers in answers_by_metric.items():
        value = score(task, answers, test.right)
        yield {
            "metric": metric,
            "group": task.name,
            "value": value,
            "floor": floor,
            "unit": "",
            "n": len(test),
        }


# Sentences and pairs ---------------------------------------------------------------------------------


def _by_tfidf(task: Task, train: Examples, validation: Examples, test: Examples) -> Sequence[Any]:
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=TERM, sublinear_tf=True)
    words.fit([*train.first, *(train.second or ())])

    def features(examples: Examples) -> csr_matrix:
        first_NV = words.transform(examples.first)
        if examples.second is None:
            return first_NV
        second_NV = words.transform(examples.second)
        return csr_matrix(hstack([first_NV, second_NV, abs(first_NV - second_NV)]))

    fitted_on = [LabelledFeatures(features(each), np.array(each.answers)) for each in (train, validation)]
    if task.kind == "regression":
        numbers: Sequence[Any] = best_ridge(*fitted_on, penalties=PENALTIES).predict(features(test)).tolist()
        return numbers
    if len(set(train.answers)) == 1:
        return constant(train.answers[0], test)
    return best_classifier(*fitted_on, strengths=STRENGTHS).predict(features(test)).tolist()


# Spans -----------------------------------------------------------------------------------------------


def _by_rule(task: Task, rules: Sequence[Rule], train: Examples, test: Examples) -> list[str]:
    """Return the answers of the rule that is best on the training part. Ties go to the first rule."""
    best = max(rules, key=lambda rule: score(task, rule.answers(train), train.right))
    return best.answers(test)


# Words -----------------------------------------------------------------------------------------------


def _by_word(train: Examples, test: Examples) -> list[list[str]]:
    """Return the most frequent tag of each word, or of all words if it is new. Ties go to the tag met first."""
    counts: dict[str, Counter[str]] = {}
    for sentence, tags in _tagged(train):
        for word, tag in zip(sentence, tags, strict=True):
            counts.setdefault(word, Counter())[tag] += 1
    of_word = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    overall = sum(counts.values(), Counter[str]()).most_common(1)[0][0]
    return [[of_word.get(word, overall) for word in sentence] for sentence, _ in _tagged(test)]


def _by_window(train: Examples, test: Examples) -> list[list[str]]:
    vectors = DictVectorizer()
    x_NV = vectors.fit_transform(_windows(train))
    # The fit needs 32-bit indices and does not convert them itself.
    x_NV.indices, x_NV.indptr = x_NV.indices.astype(np.int32), x_NV.indptr.astype(np.int32)
    tag_N = [tag for tags in train.answers for tag in tags]
    if len(set(tag_N)) == 1:
        return constant(tag_N[0], test)
    model = LinearSVC(random_state=0, max_iter=MOST_ITERATIONS).fit(x_NV, tag_N)
    predicted = model.predict(vectors.transform(_windows(test)))
    ends = np.cumsum([len(tags) for tags in test.answers])[:-1]
    return [tags.tolist() for tags in np.split(predicted, ends)]


def _windows(examples: Examples) -> Iterator[dict[str, str]]:
    """Yield each word with its neighbours, sentence by sentence."""
    for sentence, _ in _tagged(examples):
        before, after = ["<start>", *sentence[:-1]], [*sentence[1:], "<end>"]
        for left, word, right in zip(before, sentence, after, strict=True):
            yield {"word": word, "left": left, "right": right}


def _tagged(examples: Examples) -> Iterator[tuple[list[str], list[str]]]:
    assert examples.words is not None
    yield from zip(examples.words, examples.answers, strict=True)
