"""The rule-made translation of a sentence into a language with other word order and other morphology.

Verbs stand last, adjectives and determiners follow their noun, adpositions follow their phrase, and whatever
describes a noun at length (phrases, relative clauses) comes before it. One word carries what the source says
in several: case, number, tense, negation and subordination are suffixes, ``the``, ``to``, auxiliaries and
relativisers have no word. A noun after a numeral stays singular. Words with two senses have two translations.
"""

from collections.abc import Mapping, Sequence

from lightning_modules.data.language.lexicon import Word

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
"""Tense by the auxiliary or copula, where there is one."""
NEGATION = "ni"
RELATIVE = "un"


def translate(words: Sequence[Word], heads: Sequence[int], relations: Sequence[str]) -> tuple[str, ...]:
    """Return the words of the translation.

    Heads and relations are those of the grammar, which follow from the words and their senses; so does, then,
    the translation.
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
    """Return a stem with its suffixes, given the dependents that have no word of their own."""
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
