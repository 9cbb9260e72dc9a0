"""A second statement of the grammar of the built-in language, which reads words alone."""

from collections import defaultdict

from lightning_modules.data.language.lexicon import NOUNS, VERBS


class Recogniser:
    """How many derivations a row of words has, from the dictionary and the rules of the language.

    Each method takes a position and yields where a constituent that starts there may end.
    """

    def __init__(self, lexicon):
        self.readings = defaultdict(list)
        for lemma in lexicon.lemmas.values():
            for slot, word in lemma.forms.items():
                self.readings[word.form].append((lemma.kind, slot, lemma.name, word.sense))

    def derivations(self, words, senses=None):
        self.words, self.senses = words, senses
        return sum(end == len(words) for end in self.sentence())

    def at(self, i, *kinds):
        if i < len(self.words):
            for kind, slot, name, sense in self.readings[self.words[i]]:
                if kind in kinds and (self.senses is None or sense == self.senses[i]):
                    yield kind, slot, name

    def sentence(self):
        for tense in ("present", "past", "future"):
            for _ in self.at(0, f"time {tense}"):
                for i in self.clause(1, tense, clausal=True):
                    ends = [i]
                    for _ in self.at(i, "coordinator", "subordinator"):
                        ends += self.clause(i + 1, tense, clausal=False)
                    for end in ends:
                        yield from (end + 1 for _ in self.at(end, "punctuation"))

    def clause(self, i, tense, *, clausal):
        for _, number, _ in self.at(i, "pronoun"):
            yield from self.predicate(i + 1, number, tense, clausal=clausal)
        for j, number in self.noun_phrase(i, ("agent", "thing"), relative=tense):
            yield from self.predicate(j, number, tense, clausal=clausal)

    def predicate(self, i, number, tense, *, clausal=False, outer=True):
        for _, slot, name in self.at(i, "copula"):
            if (slot, name) == (number, f"be {tense}"):
                for j in self.perhaps(i + 1, "negation"):
                    yield from self.adjective_phrase(j)
        for j, kind in self.verb(i, number, tense):
            if kind == "clausal" and clausal:
                for _ in self.at(j, "complementiser"):
                    yield from self.clause(j + 1, tense, clausal=False)
            elif kind != "clausal":
                yield from self.complements(j, kind, relative=tense if outer else None)

    def complements(self, i, kind, *, relative):
        """What follows a verb; inside a relative clause (`relative` is None) no more than an object."""
        ends = [i]
        if kind != "intransitive":
            ends = [j for j, _ in self.noun_phrase(i, ("agent", "thing"), relative=relative)]
        for end in ends:
            if kind != "ditransitive":
                yield end
            if relative and kind == "ditransitive":
                yield from self.phrase(end, "recipient preposition", ("agent",), depth=1)
            elif relative:
                yield from self.phrase(end, "place preposition", ("place",), depth=1)

    def verb(self, i, number, tense):
        starts, slot = [i], number
        if tense != "present":
            slot = "nonfinite"
            starts = [i + 1 for _, *form in self.at(i, "auxiliary") if form == [number, tense]]
        for start in starts:
            for j in self.perhaps(start, "negation"):
                for k in self.perhaps(j, "adverb"):
                    yield from ((k + 1, kind) for kind, found, _ in self.at(k, *VERBS) if found == slot)

    def noun_phrase(self, i, kinds, *, relative, depth=0):
        """`relative`: the tense of a relative clause that it may hold, or None."""
        for _, number, _ in self.at(i, "determiner", "numeral"):
            for j in [i + 1, *self.adjective_phrase(i + 1)]:
                for kind, slot, _ in self.at(j, *kinds):
                    if slot == number:
                        ends = [j + 1]
                        if depth < 2:
                            ends += self.phrase(j + 1, "noun preposition", NOUNS, depth=depth + 1)
                        for end in ends:
                            yield end, number
                            if relative:
                                yield from ((k, number) for k in self.relative_clause(end, kind, number, relative))

    def relative_clause(self, i, kind, number, tense):
        for _, _, name in self.at(i, "relativiser"):
            if name == {"agent": "who", "thing": "which"}[kind]:
                yield from self.relative_predicate(i + 1, number, tense)
                for j, other in self.noun_phrase(i + 1, ("agent", "thing"), relative=None):
                    yield from (k for k, verb in self.verb(j, other, tense) if verb == "transitive")

    def relative_predicate(self, i, number, tense):
        yield from self.predicate(i, number, tense, outer=False)

    def phrase(self, i, preposition, kinds, *, depth):
        for _ in self.at(i, preposition):
            yield from (j for j, _ in self.noun_phrase(i + 1, kinds, relative=None, depth=depth))

    def adjective_phrase(self, i):
        for j in self.perhaps(i, "degree"):
            yield from (j + 1 for _ in self.at(j, "adjective"))

    def perhaps(self, i, kind):
        yield i
        yield from (i + 1 for _ in self.at(i, kind))
