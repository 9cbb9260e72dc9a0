"""Entropy of the built-in language: without context, under a simple model, and under its grammar."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from lightning_modules.data.language import Language, Sentence
from lightning_modules.data.language.lexicon import TOPICS

ANTECEDENTS = 3  # a sentence may start a text or follow a singular or a plural subject

Contexts = tuple[tuple[str, ...], ...]
"""Contexts from which a word is predicted, from the widest class to the narrowest; the first is empty."""


class Entropies(NamedTuple):
    """Entropies in nats per word, full stops included."""

    unigram: float
    """Entropy of the word frequencies."""
    before: float
    """Cross-entropy of an interpolated model that sees the two words before, on text that it has not seen."""
    after: float
    """Cross-entropy of an interpolated model that sees the two words after, on text that it has not seen."""
    around: float
    """Cross-entropy of an interpolated model that sees the words before and after, on text that it has not
    seen."""
    sentence: float
    """Upper bound on the entropy of each word given those before it, in a sentence without context."""
    generator: float
    """Entropy of each word given those before it, the topic, and the number of the subject of the sentence
    before: the cost of the generator's own choices. It is a mean over the test text."""


def entropies(language: Language, *, sentences: int) -> Entropies:
    """Return the entropies measured on this many sentences; the models are tested on a quarter as many
    others."""
    train = [sentence for _, sentence in language.sentences("entropy: train", sentences)]
    test = [sentence for _, sentence in language.sentences("entropy: test", max(1, sentences // 4))]
    words = sum(len(sentence.words) for sentence in test)
    nats = -math.fsum(sentence.log_probability for sentence in test)
    return Entropies(
        unigram=_entropy(Counter(word for sentence in train for word in sentence.words)),
        before=_cross_entropy(train, test, _before),
        after=_cross_entropy(train, test, _after),
        around=_cross_entropy(train, test, _around),
        sentence=(nats + len(test) * math.log(TOPICS * ANTECEDENTS)) / words,
        generator=nats / words,
    )


def _entropy(counts: Counter[str]) -> float:
    total = counts.total()
    return -math.fsum(n / total * math.log(n / total) for n in counts.values())


def _cross_entropy(
    train: Iterable[Sentence], test: Iterable[Sentence], contexts: Callable[[Sequence[str], int], Contexts]
) -> float:
    """Return the cross-entropy of an interpolated model, with the weights of Witten and Bell 1991, method C.

    The more new words a context has met, the more it trusts the next wider one: with n words of which t
    differ, p = (count + t * wider p) / (n + t). The widest context falls back on a uniform choice among the
    known words and one unknown word.
    """
    counts: dict[tuple[str, ...], Counter[str]] = {(): Counter()}
    for sentence in train:
        for position, word in enumerate(sentence.words):
            for context in contexts(sentence.words, position):
                counts.setdefault(context, Counter())[word] += 1
    totals = {context: met.total() for context, met in counts.items()}
    costs = []
    for sentence in test:
        for position, word in enumerate(sentence.words):
            probability = 1 / (len(counts[()]) + 1)
            for context in contexts(sentence.words, position):
                if met := counts.get(context):
                    probability = (met[word] + len(met) * probability) / (totals[context] + len(met))
            costs.append(-math.log(probability))
    return math.fsum(costs) / len(costs)


def _before(words: Sequence[str], position: int) -> Contexts:
    near = words[position - 1] if position > 0 else ""
    far = words[position - 2] if position > 1 else ""
    return (), (near,), (near, far)


def _after(words: Sequence[str], position: int) -> Contexts:
    near = words[position + 1] if position + 1 < len(words) else ""
    far = words[position + 2] if position + 2 < len(words) else ""
    return (), (near,), (near, far)


def _around(words: Sequence[str], position: int) -> Contexts:
    left = words[position - 1] if position > 0 else ""
    right = words[position + 1] if position + 1 < len(words) else ""
    return (), (left,), (left, right)
