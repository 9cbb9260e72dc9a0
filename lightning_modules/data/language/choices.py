"""Tables of choices of the built-in language: the probability of each word given its context.

Three things decide a content word: its topic (Zipf over the topic's own words, mixed with words at home in
every topic), its role (agents are subjects, places follow place prepositions), and the word that governs it,
which has a few favourites. So a hidden word can be told from the words on either side.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from lightning_modules.data.language.lexicon import NOUNS, TOPICS, VERBS, Lemma, Lexicon, Word

T = TypeVar("T", bound=Hashable)

FAVOURITES = (0.5, 0.3, 0.2)
"""Shares of a word's preference that its favourites get."""
PREFERENCE = 0.7
"""Chance that a word governed by another is one of its favourites; else the topic decides."""
GENERAL = 0.2
"""Chance of a word that is at home in every topic."""
SUBJECT_KINDS = {"agent": 0.8, "thing": 0.2}
OBJECT_KINDS = {"agent": 0.25, "thing": 0.75}
COMPANION_KINDS = {"agent": 0.4, "thing": 0.4, "place": 0.2}
"""Kinds of noun after a noun preposition."""


class Table(Generic[T]):
    """A distribution over a few items, ready to draw from."""

    __slots__ = ("cumulative", "items", "log_probabilities")

    def __init__(self, weights: Mapping[T, float]) -> None:
        positive = {item: weight for item, weight in weights.items() if weight > 0}
        total = math.fsum(positive.values())
        self.items: Sequence[T] = tuple(positive)
        self.cumulative = [weight / total for weight in accumulate(positive.values())]
        self.cumulative[-1] = 1.0  # else rounding could leave a uniform number without an item
        self.log_probabilities = [math.log(weight / total) for weight in positive.values()]

    def draw(self, uniform: float) -> tuple[T, float]:
        """Return the item at a uniform number in [0, 1), and the natural log of its probability."""
        index = bisect_right(self.cumulative, uniform)
        return self.items[index], self.log_probabilities[index]


def coin(probability: float) -> Table[bool]:
    """Return a table that gives True with this probability."""
    return Table({True: probability, False: 1 - probability})


def zipf(items: Iterable[T]) -> dict[T, float]:
    """Return the items with weights 1 / rank that sum to 1."""
    weights = {item: 1 / rank for rank, item in enumerate(items, 1)}
    total = math.fsum(weights.values())
    return {item: weight / total for item, weight in weights.items()}


def mixture(*parts: tuple[float, Mapping[T, float]]) -> dict[T, float]:
    """Return the weighted sum of distributions."""
    total: dict[T, float] = {}
    for share, weights in parts:
        for item, weight in weights.items():
            total[item] = total.get(item, 0.0) + share * weight
    return total


class Preferences:
    """Tables of which words govern which, drawn once for a language."""

    def __init__(self, lexicon: Lexicon, uniform: Callable[[], float]) -> None:
        self.lexicon, self._uniform = lexicon, uniform
        self.topics = [TopicTables(self, topic) for topic in range(TOPICS)]
        nouns, verbs = self._everywhere(NOUNS), self._everywhere(VERBS)
        adverbs = zipf(lexicon.of_kind("adverb"))
        self.adverbs = {verb: self.favouring(adverbs) for verb in verbs}
        self.noun_prepositions = {noun: self.favouring(self.words("noun preposition")) for noun in nouns}
        self.place_prepositions = {
            place: self.favouring(self.words("place preposition")) for place in self._everywhere(("place",))
        }
        self.complementisers = {
            verb: self.favouring(self.words("complementiser")) for verb in self._everywhere(("clausal",))
        }

    def favouring(self, base: Mapping[T, float]) -> Table[T]:
        """Return a table in which a few items, drawn from the base, get most of the weight."""
        left, favourites = dict(base), {}
        for weight in FAVOURITES[: len(base)]:
            favourite, _ = Table(left).draw(self._uniform())
            del left[favourite]
            favourites[favourite] = weight
        return Table(mixture((PREFERENCE / math.fsum(favourites.values()), favourites), (1 - PREFERENCE, base)))

    def words(self, kind: str) -> dict[Word, float]:
        """Return the invariable words of a kind, weighted by Zipf's law."""
        return zipf(lemma.forms["any"] for lemma in self.lexicon.of_kind(kind))

    def _everywhere(self, kinds: Iterable[str]) -> list[Lemma]:
        return [lemma for lemma in self.lexicon.lemmas.values() if lemma.kind in kinds]


class TopicTables:
    """Tables of one topic: its content words, and which of them go together."""

    def __init__(self, preferences: Preferences, topic: int) -> None:
        lexicon, favouring = preferences.lexicon, preferences.favouring

        def of_kind(kind: str) -> dict[Lemma, float]:
            of_topic, general = lexicon.of_kind(kind, topic), lexicon.of_kind(kind)
            share = GENERAL if of_topic else 1.0
            return mixture((1 - share, zipf(of_topic)), (share, zipf(general)))

        def of_kinds(kinds: Mapping[str, float]) -> dict[Lemma, float]:
            return mixture(*((share, of_kind(kind)) for kind, share in kinds.items()))

        subjects, objects = of_kinds(SUBJECT_KINDS), of_kinds(OBJECT_KINDS)
        adjectives = of_kind("adjective")
        nouns = [noun for kind in NOUNS for noun in of_kind(kind)]
        self.subjects = Table(subjects)
        self.places = Table(of_kind("place"))
        self.recipients = Table(of_kind("agent"))
        self.companions = {noun: favouring(of_kinds(COMPANION_KINDS)) for noun in nouns}
        self.adjectives: dict[Lemma | None, Table[Lemma]] = {noun: favouring(adjectives) for noun in nouns}
        self.adjectives[None] = Table(adjectives)
        self.objects = {
            verb: favouring(objects) for kind in ("transitive", "ditransitive") for verb in of_kind(kind)
        }
        self.verbs: dict[str, dict[Lemma | None, Table[Lemma]]] = {}
        """Tables of verbs by kind of verb and subject noun; None stands for a pronoun."""
        for kind in VERBS:
            verbs = of_kind(kind)
            self.verbs[kind] = {noun: favouring(verbs) for noun in subjects} | {None: Table(verbs)}
