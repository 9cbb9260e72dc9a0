"""Tasks with right answers made by the built-in language, for evaluation without any files.

The documents of a task are in no split of the language's text, and each split of a task has its own. A short
sentence may still come twice, about one in a hundred.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import count, islice
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from ablations.tasks.datasets import SPLITS, Split, Task
from lightning_modules.data.language import Language, Sentence, language_of
from lightning_modules.data.language.minimal_pairs import PARADIGMS, minimal_pairs
from lightning_modules.randomness import derive, uniforms

SIZES: Final[Mapping[Split, int]] = MappingProxyType({"train": 2000, "validation": 500, "test": 1000})
"""Number of examples of each split."""

PAIRS_OF_PARADIGM = 200
"""Number of minimal pairs of each paradigm."""


def rows(task: Task, split: Split, *, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the examples of a split, under the names of the task's columns. They depend only on the seed of
    the language."""
    name = task.name.removeprefix("language_")
    language = language_of(seed)
    yield from islice(_TASKS[name](language, split), SIZES[split] if name != "minimal_pairs" else None)


def _sentences(language: Language, split: Split) -> Iterator[Sentence]:
    """Yield one sentence of each document, so that they are independent."""
    for number in count():
        yield next(language.document_sentences(f"task: {split}", number))


def _beginnings(language: Language, split: Split) -> Iterator[tuple[Sentence, Sentence]]:
    """Yield the first two sentences of each document."""
    for number in count():
        sentences = language.document_sentences(f"task: {split}", number)
        yield next(sentences), next(sentences)


def _labelled(label: Callable[[Sentence], Any]) -> Callable[[Language, Split], Iterator[dict[str, Any]]]:
    """Return a function that yields a task's examples: sentences labelled by a property. Sentences without it
    are left out."""

    def rows_of(language: Language, split: Split) -> Iterator[dict[str, Any]]:
        for sentence in _sentences(language, split):
            if (value := label(sentence)) is not None:
                yield {"sentence": sentence.text, "label": str(value)}

    return rows_of


def _acceptability(language: Language, split: Split) -> Iterator[dict[str, Any]]:
    """Yield one sentence of each minimal pair, grammatical or not at random. The paradigms take turns."""
    of_split = {name: -(-size // len(PARADIGMS)) for name, size in SIZES.items()}
    first = sum(of_split[before] for before in SPLITS[: SPLITS.index(split)])
    # The first pairs of each paradigm are left out, because the task of minimal pairs uses them.
    halves = _halves(language.seed, PAIRS_OF_PARADIGM, PAIRS_OF_PARADIGM + sum(of_split.values()))
    for number in range(of_split[split]):
        for paradigm, of_paradigm in enumerate(halves):
            good = _coin(split, number, paradigm)
            yield {"sentence": of_paradigm[first + number][int(good)], "label": str(int(good))}


@lru_cache(maxsize=1)
def _halves(seed: int, first: int, last: int) -> list[list[tuple[str, str]]]:
    """Return the minimal pairs from `first` to `last` of each paradigm, as texts, the ungrammatical sentence
    first. They are cached for the next split, because rare kinds of sentences take long to find."""
    language = language_of(seed)
    return [
        [
            (" ".join(pair.ungrammatical), " ".join(pair.grammatical))
            for pair in islice(minimal_pairs(language, paradigm, last), first, None)
        ]
        for paradigm in PARADIGMS
    ]


def _same_document(language: Language, split: Split) -> Iterator[dict[str, Any]]:
    """Yield pairs of sentences, labelled by whether the second follows the first. Otherwise the second is
    from the next document."""
    beginnings = _beginnings(language, split)
    for number in range(SIZES[split]):
        (first, follows), (_, other) = next(beginnings), next(beginnings)
        is_same = _coin(split, number)
        yield {
            "sentence1": first.text,
            "sentence2": (follows if is_same else other).text,
            "label": str(int(is_same)),
        }


def _word_order(language: Language, split: Split) -> Iterator[dict[str, Any]]:
    """Yield sentences, labelled by whether two neighbouring words have changed places. The two are different
    words, and neither is the last."""
    for number, sentence in enumerate(_sentences(language, split)):
        words = list(sentence.words)
        swapped = _coin(split, number)
        places = [i for i in range(len(words) - 2) if words[i] != words[i + 1]]
        if swapped:
            i = places[int(_chance("swap", split, number) * len(places))]
            words[i], words[i + 1] = words[i + 1], words[i]
        yield {"sentence": " ".join(words), "label": "swapped" if swapped else "natural"}


def _parts_of_speech(language: Language, split: Split) -> Iterator[dict[str, Any]]:
    for sentence in _sentences(language, split):
        yield {"tokens": list(sentence.words), "label": list(sentence.tags)}


def _noun_phrases(language: Language, split: Split) -> Iterator[dict[str, Any]]:
    """Yield sentences with tags (B, I, O) for nouns with the determiners, numerals and adjectives before them."""
    for sentence in _sentences(language, split):
        tags = ["O"] * len(sentence.words)
        for noun, tag in enumerate(sentence.tags):
            if tag == "NOUN":
                first = _phrase_start(sentence, noun)
                tags[first : noun + 1] = ["B-NP"] + ["I-NP"] * (noun - first)
        yield {"tokens": list(sentence.words), "label": tags}


def _subject(language: Language, split: Split) -> Iterator[dict[str, Any]]:
    """Yield questions about the subject of a sentence. The question is the main verb, the answer the noun phrase
    that is its subject."""
    for sentence in _sentences(language, split):
        root = sentence.heads.index(-1)
        dependents = (i for i, head in enumerate(sentence.heads) if head == root)
        subject = next(i for i in dependents if sentence.relations[i] == "nsubj")
        first = _phrase_start(sentence, subject)
        start = sum(len(word) + 1 for word in sentence.words[:first])
        answer = " ".join(sentence.words[first : subject + 1])
        yield {"question": sentence.words[root], "context": sentence.text, "label": answer, "start": start}


def _phrase_start(sentence: Sentence, noun: int) -> int:
    """Return the place where a noun phrase begins: the first of the determiners, numerals and adjectives that
    stand directly before the noun and depend on it."""
    first = noun
    while first > 0 and sentence.heads[first - 1] == noun and sentence.tags[first - 1] in ("DET", "NUM", "ADJ"):
        first -= 1
    return first


def _minimal_pairs(language: Language, split: Split) -> Iterator[dict[str, Any]]:
    for paradigm in PARADIGMS:
        for pair in minimal_pairs(language, paradigm, PAIRS_OF_PARADIGM):
            yield {
                "sentence_good": " ".join(pair.grammatical),
                "sentence_bad": " ".join(pair.ungrammatical),
                "paradigm": paradigm,
            }


def _coin(split: Split, *number: int) -> bool:
    return _chance("coin", split, *number) < 0.5


def _chance(purpose: str, split: Split, *number: int) -> float:
    return float(uniforms(derive(0, purpose, split), *map(np.array, number))[0])


_TASKS: Final[Mapping[str, Callable[[Language, Split], Iterator[dict[str, Any]]]]] = {
    "acceptability": _acceptability,
    "topic": _labelled(lambda sentence: sentence.topic),
    "same_document": _same_document,
    "parts_of_speech": _parts_of_speech,
    "noun_phrases": _noun_phrases,
    "subject": _subject,
    "tense": _labelled(lambda sentence: sentence.tense),
    "subject_number": _labelled(lambda sentence: sentence.subject_number),
    "clauses": _labelled(lambda sentence: min(sentence.clauses, 3)),
    "word_order": _word_order,
    "minimal_pairs": _minimal_pairs,
}
