"""Words of the built-in language: their forms, senses and translations, and which words go together.

All forms are made up from syllables. Stems of content words end in a vowel, and function words have one
syllable. Inflection adds a consonant: ``-s`` plural noun, ``-t`` singular verb, ``-n`` verb after an
auxiliary. In the second language stems end in a consonant and suffixes begin with a vowel. Within a topic and
a kind, a lemma's weight is 1 / rank (Zipf 1949).

Three things decide a content word (`TopicTables`). The first is its topic: words of the topic by Zipf's law,
mixed with general words, which all topics share. The second is its role: agents are subjects, places follow
place prepositions. The third is the word that governs it, which has a few favourites. So a hidden word can be
guessed from the words on either side.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Generic, Literal, NamedTuple, TypeVar

Number = Literal["singular", "plural"]

TOPICS: Final = 14

CONTENT_LEMMAS: Final = {
    "agent": (7, 6),
    "thing": (11, 8),
    "place": (4, 4),
    "intransitive": (4, 4),
    "transitive": (6, 6),
    "ditransitive": (2, 2),
    "clausal": (0, 6),
    "adjective": (6, 8),
    "adverb": (0, 12),
}
"""Numbers of lemmas by kind of content word: those of each topic, and general ones, which all topics share."""

NOUNS: Final = ("agent", "thing", "place")
VERBS: Final = ("intransitive", "transitive", "ditransitive", "clausal")

_NUMBERED = ("singular", "plural")

FUNCTION_LEMMAS: Final[Mapping[tuple[str, str], Mapping[str, tuple[str, ...]]]] = {
    ("determiner", "DET"): {
        "the": _NUMBERED,
        "a": _NUMBERED,
        "this": _NUMBERED,
        "that": _NUMBERED,
        "every": _NUMBERED,
    },
    ("numeral", "NUM"): dict.fromkeys(("two", "three"), ("plural",)),
    ("noun preposition", "ADP"): dict.fromkeys(("of", "with", "near", "like", "without"), ("any",)),
    ("place preposition", "ADP"): dict.fromkeys(("in", "at", "on", "under", "behind", "from"), ("any",)),
    ("recipient preposition", "ADP"): {"to": ("any",)},
    ("auxiliary", "AUX"): dict.fromkeys(("past", "future"), _NUMBERED),
    ("copula", "AUX"): dict.fromkeys(("be present", "be past", "be future"), _NUMBERED),
    ("negation", "PART"): {"not": ("any",)},
    ("pronoun", "PRON"): {"it": _NUMBERED},
    ("relativiser", "PRON"): dict.fromkeys(("who", "which"), ("any",)),
    ("complementiser", "SCONJ"): dict.fromkeys(("that (clause)", "whether"), ("any",)),
    ("subordinator", "SCONJ"): dict.fromkeys(("because", "when", "while", "if", "although"), ("any",)),
    ("coordinator", "CCONJ"): dict.fromkeys(("and", "but", "so"), ("any",)),
    ("degree", "ADV"): dict.fromkeys(("very", "rather", "too"), ("any",)),
    ("time present", "ADV"): dict.fromkeys(("now", "today"), ("any",)),
    ("time past", "ADV"): dict.fromkeys(("yesterday", "once"), ("any",)),
    ("time future", "ADV"): dict.fromkeys(("tomorrow", "soon"), ("any",)),
}
"""Lemmas by (kind, part of speech): their English meanings, and the forms that each has."""

UNTRANSLATED: Final = frozenset({"auxiliary", "copula", "negation", "relativiser", "recipient preposition"})
"""Kinds of function words that the second language expresses by suffixes or word order. ``the`` has no word
either."""

HOMONYMS_ACROSS_TOPICS: Final = 32
"""Number of pairs of nouns of different topics that share their forms."""

HOMONYMS_ACROSS_CLASSES: Final = 16
"""Number of pairs of a noun and a verb that share a stem: the singular noun looks like the plural verb."""

T = TypeVar("T", bound=Hashable)

FAVOURITES = (0.5, 0.3, 0.2)
"""Shares of `PREFERENCE` that a word's first, second and third favourite get."""
PREFERENCE = 0.7
"""Probability that a governed word is a favourite of the word that governs it; else the topic decides."""
GENERAL = 0.2
"""Probability of a general word, which all topics share."""
SUBJECT_KINDS = {"agent": 0.8, "thing": 0.2}
OBJECT_KINDS = {"agent": 0.25, "thing": 0.75}
COMPANION_KINDS = {"agent": 0.4, "thing": 0.4, "place": 0.2}
"""Shares of the kinds of nouns after a noun preposition."""


class Word(NamedTuple):
    """Form of a lemma."""

    form: str
    """Spelling of the form."""
    tag: str
    """Part of speech, as in Universal Dependencies."""
    number: Number | None
    """Number that the form shows: of nouns, finite verbs and auxiliaries, pronouns, some determiners; else
    None."""
    sense: int | None
    """Number of the lemma among the two that share this form, 0 or 1; None if there is only one."""
    name: str
    """Key of the lemma in `Lexicon.lemmas`; for a function word, its English meaning."""
    foreign: str
    """Stem in the second language; empty if suffixes or word order express the word."""


@dataclass(frozen=True, slots=True, eq=False)
class Lemma:
    """Dictionary entry. A lemma is equal to itself only."""

    name: str
    kind: str
    """Key of `CONTENT_LEMMAS`, or first half of a key of `FUNCTION_LEMMAS`."""
    topic: int | None
    """Number of its topic; None for general words."""
    forms: Mapping[str, Word]
    """Forms by slot: ``singular`` and ``plural`` if the lemma has number, ``nonfinite`` of verbs, else ``any``."""


class Lexicon:
    """Dictionary of all lemmas of the language, made from uniform random numbers."""

    lemmas: Mapping[str, Lemma]
    """Lemmas by name. Within each kind and topic the more frequent ones come first."""
    readings: Mapping[tuple[str, int | None], Word]
    """Words by form and sense."""

    def __init__(self, uniform: Callable[[], float]) -> None:
        source, foreign = _Coiner(uniform, "ptkbdgmlrfv", "nrl"), _Coiner(uniform, "zhyjwcgdb", "kgxdbmz")
        drafts = _function_drafts(source, foreign) + _content_drafts(uniform, source, foreign)
        _make_homonyms(uniform, drafts)
        forms = [(draft, slot, *form) for draft in drafts for slot, form in draft.inflected().items()]
        spellings = Counter(form for _, _, form, _ in forms)
        met: Counter[str] = Counter()
        words: dict[str, dict[str, Word]] = {}
        for draft, slot, form, number in forms:
            sense = met[form] if spellings[form] > 1 else None
            met[form] += 1
            words.setdefault(draft.name, {})[slot] = Word(
                form, draft.tag, number, sense, draft.name, draft.foreign
            )
        self.lemmas = {d.name: Lemma(d.name, d.kind, d.topic, words[d.name]) for d in drafts}
        self.readings = {(w.form, w.sense): w for lemma in self.lemmas.values() for w in lemma.forms.values()}
        self._by_kind: dict[tuple[str, int | None], list[Lemma]] = {}
        for lemma in self.lemmas.values():
            self._by_kind.setdefault((lemma.kind, lemma.topic), []).append(lemma)

    def of_kind(self, kind: str, topic: int | None = None) -> list[Lemma]:
        """Return the lemmas of a kind by rank: those of a topic, or general ones (None)."""
        return self._by_kind.get((kind, topic), [])

    def inflected(self, word: Word, slot: str) -> Word:
        """Return another form of the word's lemma."""
        return self.lemmas[word.name].forms[slot]


@dataclass
class _Draft:
    """Lemma whose stem may still be changed to make homonyms."""

    name: str
    kind: str
    tag: str
    topic: int | None
    stems: Mapping[str, str]  # per slot; content words have one, under ""
    foreign: str

    def inflected(self) -> dict[str, tuple[str, Number | None]]:
        """Return form and number by slot."""
        if self.tag == "NOUN":
            stem = self.stems[""]
            return {"singular": (stem, "singular"), "plural": (stem + "s", "plural")}
        if self.tag == "VERB":
            stem = self.stems[""]
            return {
                "singular": (stem + "t", "singular"),
                "plural": (stem, "plural"),
                "nonfinite": (stem + "n", None),
            }
        numbers: dict[str, Number] = {"singular": "singular", "plural": "plural"}
        return {slot or "any": (stem, numbers.get(slot)) for slot, stem in self.stems.items()}


class _Coiner:
    """Generator of invented words. No word comes twice."""

    def __init__(self, uniform: Callable[[], float], onsets: str, codas: str) -> None:
        self.uniform, self.onsets, self.codas = uniform, onsets, codas
        self.taken: set[str] = set()

    def coin(self, syllables: int, *, inner: float = 0.0, final: float = 0.0) -> str:
        """Return a new word. `inner` and `final` are the probabilities that a coda closes an inner or the
        final syllable."""
        while True:
            word = "".join(
                self._draw_letter(self.onsets)
                + self._draw_letter("aeiou")
                + (self._draw_letter(self.codas) if self.uniform() < (final if last else inner) else "")
                for last in [False] * (syllables - 1) + [True]
            )
            if word not in self.taken:
                self.taken.add(word)
                return word

    def _draw_letter(self, letters: str) -> str:
        return letters[int(self.uniform() * len(letters))]


def _function_drafts(source: _Coiner, foreign: _Coiner) -> list[_Draft]:
    """Return the function words, which are short. The forms of one lemma share nothing, as ``is`` and ``are``."""
    drafts = [_Draft(".", "punctuation", "PUNCT", None, {"any": "."}, ".")]
    for (kind, tag), lemmas in FUNCTION_LEMMAS.items():
        for name, slots in lemmas.items():
            stems = {slot: source.coin(1, final=0.5) for slot in slots}
            silent = kind in UNTRANSLATED or name == "the"
            drafts.append(_Draft(name, kind, tag, None, stems, "" if silent else foreign.coin(1, final=1.0)))
    return drafts


def _content_drafts(uniform: Callable[[], float], source: _Coiner, foreign: _Coiner) -> list[_Draft]:
    """Return the content lemmas. Frequent stems have two syllables, rarer ones two or three (Zipf's law of
    abbreviation)."""
    tags = dict.fromkeys(NOUNS, "NOUN") | dict.fromkeys(VERBS, "VERB") | {"adjective": "ADJ", "adverb": "ADV"}
    drafts = []
    for kind, (topical, general) in CONTENT_LEMMAS.items():
        homes = [(topic, topical) for topic in range(TOPICS)] + [(None, general)]
        for topic, size in homes:
            for rank in range(size):
                long = rank > 2 and uniform() < 0.4
                stem = source.coin(3 if long else 2, inner=0.0 if long else 0.3)
                name = f"{kind} {'general' if topic is None else topic}.{rank}"
                drafts.append(_Draft(name, kind, tags[kind], topic, {"": stem}, foreign.coin(2, final=1.0)))
    return drafts


def _make_homonyms(uniform: Callable[[], float], drafts: list[_Draft]) -> None:
    """Give one lemma of each chosen pair the stem of the other."""

    def take(pool: list[_Draft], other_than: int | None = None) -> _Draft:
        eligible = [draft for draft in pool if draft.topic != other_than]
        chosen = eligible[int(uniform() * len(eligible))]
        pool.remove(chosen)
        return chosen

    nouns = [draft for draft in drafts if draft.kind in NOUNS and draft.topic is not None]
    verbs = [draft for draft in drafts if draft.kind in ("intransitive", "transitive") and draft.topic is not None]
    for _ in range(HOMONYMS_ACROSS_TOPICS):
        first = take(nouns)
        take(nouns, other_than=first.topic).stems = first.stems
    for _ in range(HOMONYMS_ACROSS_CLASSES):
        take(verbs).stems = take(nouns).stems


class Table(Generic[T]):
    """Distribution over a few items, ready to draw from."""

    __slots__ = ("cumulative", "items", "log_probabilities")

    def __init__(self, weights: Mapping[T, float]) -> None:
        positive = {item: weight for item, weight in weights.items() if weight > 0}
        total = math.fsum(positive.values())
        self.items: Sequence[T] = tuple(positive)
        self.cumulative = [weight / total for weight in accumulate(positive.values())]
        self.cumulative[-1] = 1.0  # else rounding could leave a uniform number without an item
        self.log_probabilities = [math.log(weight / total) for weight in positive.values()]

    def draw(self, uniform: float) -> tuple[T, float]:
        """Return the item for a uniform number in [0, 1), and the natural log of its probability."""
        index = bisect_right(self.cumulative, uniform)
        return self.items[index], self.log_probabilities[index]


def coin(probability: float) -> Table[bool]:
    """Return a table that gives True with this probability."""
    return Table({True: probability, False: 1 - probability})


def zipf(items: Iterable[T]) -> dict[T, float]:
    """Return the items with weights proportional to 1 / rank, which sum to 1."""
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
    """Tables of the words that each word favours, drawn once for a language."""

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
        """Return a table in which a few items, drawn from the base, have most of the weight."""
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
        """Tables of verbs, by kind of verb and by subject noun; None is a pronoun as subject."""
        for kind in VERBS:
            verbs = of_kind(kind)
            self.verbs[kind] = {noun: favouring(verbs) for noun in subjects} | {None: Table(verbs)}
