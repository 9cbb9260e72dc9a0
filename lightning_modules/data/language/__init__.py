"""The built-in language: text with gold trees, senses and translations, generated from a seed alone.

    language = Language(0)
    for sentence in language.document("train", 0):
        print(sentence.text, sentence.translated_text)

A document keeps to one topic. `grammar.py` grows its sentences from the words of `lexicon.py`, which are
chosen to suit each other. `minimal_pairs.py` makes ungrammatical twins of sentences. `benchmarks/entropy.py`
says how predictable the words are.

Sentences are translated by rule into a language with another word order and another morphology. Verbs stand
last. Adjectives and determiners follow their noun, and adpositions follow their phrase. Phrases and relative
clauses that describe a noun come before it. Case, number, tense, negation and subordination are suffixes, so
one word says what several words say in the source. ``the``, ``to``, auxiliaries and relativisers have no
word. A noun after a numeral stays singular. Words with two senses have two translations.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count as from_zero

import numpy as np

from lightning_modules.data.language.grammar import Derivation, Tables, Tree
from lightning_modules.data.language.lexicon import TOPICS, Lexicon, Number, Word
from lightning_modules.errors import DataError
from lightning_modules.randomness import derive, uniforms

SENTENCES_PER_DOCUMENT = (5, 20)
"""Numbers of sentences of the shortest and the longest document. Short ones are more frequent, the mean is
about 10."""


@dataclass(frozen=True)
class Sentence:
    """Sentence with its gold annotation. Tuples with one entry per word are aligned with `words`."""

    words: tuple[str, ...]
    """Words in lower-case ASCII letters. The full stop is a word too."""
    tags: tuple[str, ...]
    """Parts of speech, as in Universal Dependencies."""
    heads: tuple[int, ...]
    """Position of the word that each word depends on, -1 for the root. The tree is projective."""
    relations: tuple[str, ...]
    """Kind of each dependency, as in Universal Dependencies; ``root`` for the root."""
    numbers: tuple[Number | None, ...]
    """Number of each word, singular or plural; None if its form does not show it."""
    senses: tuple[int | None, ...]
    """0 or 1 for a form that two lemmas share; else None."""
    tree: Tree
    """Constituents, labelled as in the Penn Treebank. The innermost parts are positions of words."""
    translation: tuple[str, ...]
    """Words of the translation. They depend on `words` and `senses` alone."""
    topic: int
    tense: str
    """``present``, ``past`` or ``future``, the same in all clauses."""
    clauses: int
    """Number of finite clauses, relative and embedded ones included."""
    log_probability: float
    """Natural log of the sentence's probability, given its topic and whether the subject before it is
    singular or plural."""

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def translated_text(self) -> str:
        return " ".join(self.translation)

    @property
    def subject_number(self) -> Number | None:
        """Number of the subject of the first clause, with which its verb agrees."""
        root = self.heads.index(-1)
        subject = next(i for i, h in enumerate(self.heads) if h == root and self.relations[i] == "nsubj")
        return self.numbers[subject]

    @property
    def bracketed(self) -> str:
        """Tree of the sentence in the notation of the Penn Treebank."""
        return self._bracketed(self.tree)

    def _bracketed(self, tree: Tree) -> str:
        inside = (
            f"({self.tags[part]} {self.words[part]})" if isinstance(part, int) else self._bracketed(part)
            for part in tree.parts
        )
        return f"({tree.label} {' '.join(inside)})"


class Language:
    """Language with all its text, decided by the seed alone."""

    lexicon: Lexicon
    """Words of the language."""
    tables: Tables
    """Tables that the grammar draws from."""

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise DataError(f"The seed of a language must be 0 or more, but is {seed}.")
        self.seed = seed
        self.lexicon = Lexicon(_stream(derive(seed, "lexicon")).__next__)
        self.tables = Tables(self.lexicon, _stream(derive(seed, "preferences")).__next__)

    def document(self, split: str, index: int) -> tuple[Sentence, ...]:
        """Return a document of 5 to 20 sentences on one topic. It does not depend on what else was generated.

        Args:
            split: "train", "validation" or "test", as runs and tasks read them. Any other name gives documents
                that none of these has.
            index: number of the document, from 0.
        """
        return tuple(self.document_sentences(split, index))

    def document_sentences(self, split: str, index: int) -> Iterator[Sentence]:
        """Yield the sentences of a document. Each is only made when it is reached."""
        if index < 0:
            raise DataError(f"The number of a document must be 0 or more, but is {index}.")
        uniform = _stream(derive(self.seed, "document", split, index)).__next__
        topic = int(uniform() * TOPICS)
        smallest, largest = SENTENCES_PER_DOCUMENT
        size = smallest + int((largest - smallest + 1) * uniform() ** 2)
        antecedent: Number | None = None
        for _ in range(size):
            derivation = Derivation(self.tables, topic, uniform, antecedent)
            yield _finished(derivation, topic)
            antecedent = derivation.antecedent

    def sentences(self, split: str, count: int) -> Iterator[tuple[int, Sentence]]:
        """Yield the first sentences of a split, each with the number of its document. The last document may
        be cut short."""
        if count < 0:
            raise DataError(f"The number of sentences must be 0 or more, but is {count}.")
        left = count
        for index in from_zero():
            for sentence in self.document_sentences(split, index):
                if not left:
                    return
                left -= 1
                yield index, sentence


@lru_cache(maxsize=2)
def language_of(seed: int) -> Language:
    """Return the language of a seed. It never changes, so it is made once and shared.

    Raises:
        DataError: the seed is below 0.
    """
    return Language(seed)


def _finished(derivation: Derivation, topic: int) -> Sentence:
    tree = derivation.sentence()
    forms, tags, numbers, senses, _, _ = zip(*derivation.words, strict=True)
    return Sentence(
        words=forms,
        tags=tags,
        heads=tuple(derivation.heads),
        relations=tuple(derivation.relations),
        numbers=numbers,
        senses=senses,
        tree=tree,
        translation=translate(derivation.words, derivation.heads, derivation.relations),
        topic=topic,
        tense=derivation.tense,
        clauses=derivation.clauses,
        log_probability=derivation.log_probability,
    )


def _stream(key: int) -> Iterator[float]:
    """Yield uniform random numbers in [0, 1) without end."""
    for block in from_zero():
        yield from uniforms(key, np.arange(256 * block, 256 * (block + 1))).tolist()


ORDER = {
    "cc": -9,
    "advcl": -8,
    "advmod:time": -7,
    "nsubj": -6,
    "obl": -5,
    "iobj": -4,
    "obj": -3,
    "ccomp": -2,
    "acl:relcl": -2,
    "nmod": -1,
    "advmod": -1,
    "amod": 1,
    "advmod:degree": 1,
    "nummod": 2,
    "det": 3,
    "case": 4,
    "mark": 5,
    "conj": 6,
    "punct": 7,
}
"""Place of a dependent by its relation: before its head if negative, after if positive, the lowest first."""

PLURAL = "ul"
CASE = {"nsubj": "", "obj": "em", "iobj": "ar", "nmod": "ov", "obl": "ish"}
TENSE = {None: "e", "past": "ot", "future": "ask", "be present": "ay", "be past": "ayot", "be future": "ayask"}
"""Suffix of the tense, by the name of the auxiliary or copula; None if there is neither."""
NEGATION = "ni"
RELATIVE = "un"


def translate(words: Sequence[Word], heads: Sequence[int], relations: Sequence[str]) -> tuple[str, ...]:
    """Return the words of the translation.

    Heads and relations are those of the grammar. They follow from the words and their senses, and so does the
    translation.
    """
    dependents: list[list[int]] = [[] for _ in words]
    for position, head in enumerate(heads):
        if head >= 0:
            dependents[head].append(position)
    translation: list[str] = []

    def visit(head: int) -> None:
        silent = {}
        placed = []
        for position in dependents[head]:
            relation = relations[position]
            if relation in ORDER:
                placed.append((ORDER[relation], position))
            else:
                silent[relation] = words[position]
        placed.sort()
        for place, position in placed:
            if place < 0:
                visit(position)
        counted = any(relations[position] == "nummod" for position in dependents[head])
        translation.append(_inflected(words[head], relations[head], silent, counted=counted))
        for place, position in placed:
            if place > 0:
                visit(position)

    visit(heads.index(-1))
    return tuple(word for word in translation if word)


def _inflected(word: Word, relation: str, silent: Mapping[str, Word], *, counted: bool) -> str:
    """Return a word of the translation, a stem with suffixes; empty if there is none. The dependents `silent`
    have no word of their own."""
    if not word.foreign:
        return ""
    if word.tag in ("NOUN", "PRON"):
        return word.foreign + (PLURAL if word.number == "plural" and not counted else "") + CASE[relation]
    if relation in ("root", "conj", "advcl", "ccomp", "acl:relcl"):
        finite = silent.get("aux") or silent.get("cop")
        return "".join(
            (
                word.foreign,
                NEGATION if "neg" in silent else "",
                TENSE[finite.name if finite else None],
                PLURAL if (finite or word).number == "plural" else "",
                RELATIVE if relation == "acl:relcl" else "",
            )
        )
    return word.foreign
