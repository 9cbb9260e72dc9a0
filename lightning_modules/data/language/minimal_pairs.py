"""Minimal pairs: sentences of the built-in language, each with a twin that breaks one rule of it.

The grammatical halves are ordinary sentences. The ungrammatical halves change nothing but what the paradigm
names. The pairs alternate between the values of the changed feature (number or tense). A model that merely
prefers one value is then right half of the time. As in BLiMP (Warstadt et al. 2020), a model is right about a
pair if it gives the grammatical half the higher probability.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from lightning_modules.data.language import Language, Sentence
from lightning_modules.data.language.lexicon import Lexicon, Number
from lightning_modules.errors import DataError

OTHER_NUMBER: Final[Mapping[str, Number]] = {"singular": "plural", "plural": "singular"}
OTHER_TENSE: Final = {"present": "past", "past": "future", "future": "present"}


@dataclass(frozen=True)
class MinimalPair:
    """Sentence with an ungrammatical twin of equal length."""

    paradigm: str
    sentence: Sentence
    """Grammatical half, with its gold annotation."""
    ungrammatical: tuple[str, ...]
    value: str
    """Value of the changed feature (number or tense) in the grammatical half."""

    @property
    def grammatical(self) -> tuple[str, ...]:
        return self.sentence.words

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions at which the halves differ."""
        pairs = enumerate(zip(self.grammatical, self.ungrammatical, strict=True))
        return tuple(position for position, (good, bad) in pairs if good != bad)


class Twin(NamedTuple):
    """Ungrammatical version of a sentence."""

    value: str
    words: tuple[str, ...]


def minimal_pairs(language: Language, paradigm: str, count: int) -> Iterator[MinimalPair]:
    """Yield the first pairs of a paradigm, one of `PARADIGMS`; a sentence has at most one.

    The pairs depend on the language and the paradigm alone. Their sentences are in no split of the text.

    Raises:
        DataError: there is no such paradigm, or the count is negative.
    """
    if paradigm not in PARADIGMS:
        raise DataError(f"{paradigm!r} is not a paradigm; choose one of {', '.join(PARADIGMS)}.")
    if count < 0:
        raise DataError(f"The number of minimal pairs must be 0 or more, but is {count}.")
    return _pairs(language, paradigm, count)


def _pairs(language: Language, paradigm: str, count: int) -> Iterator[MinimalPair]:
    twins, values = PARADIGMS[paradigm]
    pairs = document = 0
    while pairs < count:
        for sentence in language.document(f"minimal pairs: {paradigm}", document):
            value = values[pairs % len(values)]
            words = next((twin.words for twin in twins(sentence, language.lexicon) if twin.value == value), None)
            if words is not None and pairs < count:
                yield MinimalPair(paradigm, sentence, words, value)
                pairs += 1
        document += 1


# Agreement of subject and verb ---------------------------------------------------------------------------


class Agreement(NamedTuple):
    """Finite word with the subject that it agrees with."""

    subject: int
    """Position of the subject, a noun or pronoun; of the noun that is described, if a relativiser is the
    subject."""
    finite: int
    """Position of the auxiliary or copula; of the verb, if there is neither."""
    relativised: bool
    """Whether the subject is a relativiser."""


def agreements(sentence: Sentence) -> Iterator[Agreement]:
    """Yield every subject of a sentence with its finite word, from left to right."""
    for position, relation in enumerate(sentence.relations):
        if relation == "nsubj":
            verb = sentence.heads[position]
            dependents = (i for i, head in enumerate(sentence.heads) if head == verb)
            finite = next((i for i in dependents if sentence.relations[i] in ("aux", "cop")), verb)
            relativised = sentence.numbers[position] is None
            yield Agreement(sentence.heads[verb] if relativised else position, finite, relativised)


def _agreement_paradigm(sentence: Sentence, agreement: Agreement) -> str:
    """Return the name of the paradigm that an agreement tests, by what stands between subject and verb; an empty
    text if it tests none."""
    if agreement.relativised:
        return "agreement_in_clause"
    if sentence.tags[agreement.subject] != "NOUN":
        return ""
    between = range(agreement.subject + 1, agreement.finite)
    nouns = [position for position in between if sentence.tags[position] == "NOUN"]
    clause = any(sentence.relations[i] == "acl:relcl" and sentence.heads[i] == agreement.subject for i in between)
    if not nouns:
        return "" if clause else "agreement_simple"
    if sentence.numbers[nouns[-1]] == sentence.numbers[agreement.subject]:
        return ""
    return "agreement_across_clause" if clause else "agreement_across_phrase"


def _disagreeing(paradigm: str) -> Callable[[Sentence, Lexicon], Iterator[Twin]]:
    def twins(sentence: Sentence, lexicon: Lexicon) -> Iterator[Twin]:
        for agreement in agreements(sentence):
            if _agreement_paradigm(sentence, agreement) == paradigm:
                yield _other_number(sentence, lexicon, agreement.finite)

    return twins


def _other_number(sentence: Sentence, lexicon: Lexicon, position: int) -> Twin:
    number = sentence.numbers[position]
    assert number is not None
    return Twin(number, _inflected(sentence, lexicon, position, OTHER_NUMBER[number]))


# The other rules -----------------------------------------------------------------------------------------


def _wrong_determiners(sentence: Sentence, lexicon: Lexicon) -> Iterator[Twin]:
    for position, tag in enumerate(sentence.tags):
        if tag == "DET":
            yield _other_number(sentence, lexicon, position)


def _finite_after_auxiliary(sentence: Sentence, lexicon: Lexicon) -> Iterator[Twin]:
    for position, relation in enumerate(sentence.relations):
        if relation == "aux":
            number = sentence.numbers[position]
            assert number is not None
            yield Twin(number, _inflected(sentence, lexicon, sentence.heads[position], number))


def _wrong_time(sentence: Sentence, lexicon: Lexicon) -> Iterator[Twin]:
    """Yield the sentence with a time adverb of another tense, that of the same rank."""
    adverbs, other_adverbs = (
        lexicon.of_kind(f"time {tense}") for tense in (sentence.tense, OTHER_TENSE[sentence.tense])
    )
    position = sentence.relations.index("advmod:time")
    rank = [lemma.forms["any"].form for lemma in adverbs].index(sentence.words[position])
    yield Twin(sentence.tense, _replaced(sentence, position, other_adverbs[rank].forms["any"].form))


def _determiner_after_noun(sentence: Sentence, lexicon: Lexicon) -> Iterator[Twin]:
    for position, head in enumerate(sentence.heads):
        if sentence.tags[position] == "DET" and head == position + 1:
            yield _swapped(sentence, position, value=sentence.numbers[head])


def _preposition_in_phrase(sentence: Sentence, lexicon: Lexicon) -> Iterator[Twin]:
    for position, relation in enumerate(sentence.relations):
        if relation == "case":
            yield _swapped(sentence, position, value=sentence.numbers[sentence.heads[position]])


def _swapped(sentence: Sentence, position: int, *, value: str | None) -> Twin:
    """Return the twin in which a word and its right neighbour change places."""
    words = sentence.words
    assert value is not None
    return Twin(value, (*words[:position], words[position + 1], words[position], *words[position + 2 :]))


def _inflected(sentence: Sentence, lexicon: Lexicon, position: int, slot: str) -> tuple[str, ...]:
    word = lexicon.readings[sentence.words[position], sentence.senses[position]]
    return _replaced(sentence, position, lexicon.inflected(word, slot).form)


def _replaced(sentence: Sentence, position: int, form: str) -> tuple[str, ...]:
    return (*sentence.words[:position], form, *sentence.words[position + 1 :])


class Paradigm(NamedTuple):
    """Rule of the language, with the ways to break it."""

    twins: Callable[[Sentence, Lexicon], Iterator[Twin]]
    """Function that yields the twins of a sentence that break the rule, from left to right."""
    values: tuple[str, ...] = ("singular", "plural")
    """Values of the changed feature, between which the pairs of the paradigm alternate."""


PARADIGMS: Final[Mapping[str, Paradigm]] = {
    "agreement_simple": Paradigm(_disagreeing("agreement_simple")),
    "agreement_across_phrase": Paradigm(_disagreeing("agreement_across_phrase")),
    "agreement_across_clause": Paradigm(_disagreeing("agreement_across_clause")),
    "agreement_in_clause": Paradigm(_disagreeing("agreement_in_clause")),
    "determiner_noun": Paradigm(_wrong_determiners),
    "verb_form": Paradigm(_finite_after_auxiliary),
    "tense_concord": Paradigm(_wrong_time, tuple(OTHER_TENSE)),
    "noun_order": Paradigm(_determiner_after_noun),
    "phrase_order": Paradigm(_preposition_in_phrase),
}
"""Paradigms by name. `agreement_simple`: the verb has the wrong number, and no noun is between it and its
subject. `agreement_across_phrase` and `agreement_across_clause`: a prepositional phrase or a relative clause
is between, and its last noun has the verb's wrong number. `agreement_in_clause`: the verb of a relative
clause disagrees with the noun that the clause describes. `determiner_noun`: the determiner has the wrong
number. `verb_form`: a finite verb follows an auxiliary. `tense_concord`: the time adverb has another tense.
`noun_order`: the noun stands before its determiner. `phrase_order`: the determiner stands before the
preposition."""
