"""Grammar of the built-in language: rules that generate one sentence with its gold annotation.

Constituents are named as in the Penn Treebank, dependencies as in Universal Dependencies (content words are
heads). Every rule draws from tables and adds the log probability of each draw, so that a sentence knows its
probability. No two derivations give the same words with the same senses, because of these rules:

- Noun prepositions attach to the noun before them, place and recipient prepositions to the verb.
- A relative clause describes the head of its noun phrase, not a noun of a phrase between. It holds no
  place phrase and no other relative clause.
- Adverbs stand before their verb.
- Only the outermost clause is joined to a second one. A clause inside a verb phrase holds no other.
"""

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple, TypeVar

from lightning_modules.data.language.lexicon import Lemma, Lexicon, Number, Preferences, Table, Word, coin

T = TypeVar("T", bound=Hashable)


class Tree(NamedTuple):
    """Constituent of a parse tree."""

    label: str
    parts: tuple["int | Tree", ...]
    """Parts in order: other constituents, and positions of words."""


DETERMINERS: Final[dict[Number, dict[str, float]]] = {
    "singular": {"the": 0.58, "a": 0.22, "this": 0.08, "that": 0.06, "every": 0.06},
    "plural": {"the": 0.54, "a": 0.16, "this": 0.08, "that": 0.06, "every": 0.05, "two": 0.07, "three": 0.04},
}
"""Shares of determiners and numerals, by the number of the noun."""

TENSES: Final = {"present": 0.35, "past": 0.4, "future": 0.25}
"""Shares of the tenses. All clauses of a sentence have the same tense."""

CORES: Final = {"simple": 0.87, "coordinate": 0.06, "subordinate": 0.07}
"""Shares of sentences with one clause, with two coordinate clauses, and with a subordinate clause."""

FRAMES: Final = {
    "intransitive": 0.2,
    "transitive": 0.55,
    "ditransitive": 0.06,
    "clausal": 0.06,
    "copular": 0.13,
}
"""Shares of the kinds of predicate."""


class Tables:
    """Tables that the rules draw from. Closed classes and shares are here, content words by topic in
    `preferences`."""

    def __init__(self, lexicon: Lexicon, uniform: Callable[[], float]) -> None:
        """Make the tables from the lexicon. Only the preferences use the uniform numbers."""
        self.preferences = Preferences(lexicon, uniform)
        self._choose_words(lexicon)
        self._choose_shares()

    def _choose_words(self, lexicon: Lexicon) -> None:
        def word(name: str, slot: str = "any") -> Word:
            return lexicon.lemmas[name].forms[slot]

        def numbered(name: str) -> dict[Number, Word]:
            return {"singular": word(name, "singular"), "plural": word(name, "plural")}

        invariable = self.preferences.words
        self.full_stop, self.negation, self.recipient_preposition = word("."), word("not"), word("to")
        self.pronouns = numbered("it")
        self.relativisers = {"agent": word("who"), "thing": word("which")}
        self.auxiliaries = {tense: numbered(tense) for tense in ("past", "future")}
        self.copulas = {tense: numbered(f"be {tense}") for tense in TENSES}
        self.openers = {tense: Table(invariable(f"time {tense}")) for tense in TENSES}
        self.degrees = Table(invariable("degree"))
        self.coordinators = Table(invariable("coordinator"))
        self.subordinators = Table(invariable("subordinator"))
        self.determiners = {
            number: Table({word(name, number): share for name, share in shares.items()})
            for number, shares in DETERMINERS.items()
        }

    def _choose_shares(self) -> None:
        self.numbers: Table[Number] = Table({"singular": 0.55, "plural": 0.45})
        self.tenses = Table(TENSES)
        self.cores = Table(CORES)
        self.frames = Table(FRAMES)
        self.embedded_frames = Table({frame: share for frame, share in FRAMES.items() if frame != "clausal"})
        self.relative_frames = Table({frame: FRAMES[frame] for frame in ("intransitive", "transitive", "copular")})
        self.pronominal = coin(0.18)  # a subject is a pronoun, if one was named before
        self.described = coin(0.14)  # a noun has an adjective
        self.graded = coin(0.2)  # an adjective has a word of degree
        self.accompanied = coin(0.11)  # a noun has a prepositional phrase
        self.related = coin(0.09)  # a noun has a relative clause
        self.related_as_object = coin(0.35)  # the noun is the object of the relative clause, else its subject
        self.placed = coin(0.22)  # a verb has a prepositional phrase of place
        self.modified = coin(0.1)  # a verb has an adverb
        self.negated = coin(0.04)


class Derivation:
    """Derivation of one sentence. After `sentence` every word has its head and relation."""

    def __init__(
        self, tables: Tables, topic: int, uniform: Callable[[], float], antecedent: Number | None
    ) -> None:
        self.tables, self.uniform = tables, uniform
        self.topic = tables.preferences.topics[topic]
        self.antecedent = antecedent
        """Number of the last subject that was named, to which a pronoun may refer; None at the start of a
        document."""
        self.words: list[Word] = []
        self.heads: list[int] = []
        self.relations: list[str] = []
        self.tense = "present"
        self.clauses = 0
        self.log_probability = 0.0

    def draw(self, table: Table[T]) -> T:
        """Return an item drawn from the table, and add its log probability to the sentence's."""
        item, log_probability = table.draw(self.uniform())
        self.log_probability += log_probability
        return item

    def add(self, word: Word) -> int:
        """Append a word and return its position. Its head is attached later."""
        self.words.append(word)
        self.heads.append(-1)
        self.relations.append("root")
        return len(self.words) - 1

    def attach(self, dependent: int, head: int, relation: str) -> None:
        self.heads[dependent] = head
        self.relations[dependent] = relation

    # Sentences and clauses ---------------------------------------------------------------------------

    def sentence(self) -> Tree:
        """Derive ``TOP``: a time adverb, one or two clauses of its tense, and a full stop."""
        tables = self.tables
        self.tense = self.draw(tables.tenses)
        opener = self.add(self.draw(tables.openers[self.tense]))
        core = self.draw(tables.cores)
        clause, root = self.clause(tables.frames)
        if core == "coordinate":
            joint = self.add(self.draw(tables.coordinators))
            second, head = self.clause(tables.embedded_frames)
            self.attach(joint, head, "cc")
            self.attach(head, root, "conj")
            clause = Tree("S", (clause, joint, second))
        elif core == "subordinate":
            subordinate, head = self.introduced_clause(self.draw(tables.subordinators), tables.embedded_frames)
            self.attach(head, root, "advcl")
            clause = Tree("S", (*clause.parts, subordinate))
        stop = self.add(tables.full_stop)
        self.attach(stop, root, "punct")
        self.attach(opener, root, "advmod:time")
        return Tree("TOP", (Tree("ADVP", (opener,)), clause, stop))

    def clause(self, frames: Table[str]) -> tuple[Tree, int]:
        """Derive ``S``, a subject and a predicate that agrees with it. Return it with the position of its head."""
        self.clauses += 1
        tables = self.tables
        noun: Lemma | None = None
        if self.antecedent is not None and self.draw(tables.pronominal):
            number = self.antecedent
            subject = self.add(tables.pronouns[number])
            tree = Tree("NP", (subject,))
        else:
            noun, number = self.draw(self.topic.subjects), self.draw(tables.numbers)
            tree, subject = self.noun_phrase(noun, number, relative=True)
            self.antecedent = number
        predicate, head = self.predicate(noun, number, frames, outer=True)
        self.attach(subject, head, "nsubj")
        return Tree("S", (tree, predicate)), head

    def introduced_clause(self, word: Word, frames: Table[str]) -> tuple[Tree, int]:
        """Derive ``SBAR``, a clause after a subordinating word. Return it with the position of its head."""
        mark = self.add(word)
        clause, head = self.clause(frames)
        self.attach(mark, head, "mark")
        return Tree("SBAR", (mark, clause)), head

    # Predicates --------------------------------------------------------------------------------------

    def predicate(
        self, subject: Lemma | None, number: Number, frames: Table[str], *, outer: bool
    ) -> tuple[Tree, int]:
        """Derive ``VP`` and return it with the position of its head. Inside a relative clause (`outer` is
        false) it holds no place phrase and no relative clause."""
        frame = self.draw(frames)
        if frame == "copular":
            return self.copular(subject, number)
        verb = self.draw(self.topic.verbs[frame][subject])
        parts, head = self.verb_group(verb, number)
        if frame == "clausal":
            word = self.draw(self.tables.preferences.complementisers[verb])
            complement, embedded = self.introduced_clause(word, self.tables.embedded_frames)
            self.attach(embedded, head, "ccomp")
            return Tree("VP", (*parts, complement)), head
        if frame != "intransitive":
            tree, object_head = self.object_phrase(verb, relative=outer)
            self.attach(object_head, head, "obj")
            parts.append(tree)
        if frame == "ditransitive":
            noun = self.draw(self.topic.recipients)
            phrase, recipient = self.prepositional_phrase(self.tables.recipient_preposition, noun, depth=1)
            self.attach(recipient, head, "iobj")
            parts.append(phrase)
        elif outer and self.draw(self.tables.placed):
            place = self.draw(self.topic.places)
            preposition = self.draw(self.tables.preferences.place_prepositions[place])
            phrase, where = self.prepositional_phrase(preposition, place, depth=1)
            self.attach(where, head, "obl")
            parts.append(phrase)
        return Tree("VP", tuple(parts)), head

    def copular(self, subject: Lemma | None, number: Number) -> tuple[Tree, int]:
        """Derive ``VP`` with a copula. Return it with the position of its head, the adjective."""
        dependents = [(self.add(self.tables.copulas[self.tense][number]), "cop"), *self.negation()]
        adjective, head = self.adjective_phrase(subject)
        for dependent, relation in dependents:
            self.attach(dependent, head, relation)
        return Tree("VP", (*(dependent for dependent, _ in dependents), adjective)), head

    def verb_group(self, verb: Lemma, number: Number) -> tuple[list[int | Tree], int]:
        """Add a verb with its auxiliary, negation and adverb, if drawn. Return the positions of all these words,
        and the position of the verb."""
        dependents: list[tuple[int, str]] = []
        form = verb.forms[number]
        if self.tense != "present":
            dependents.append((self.add(self.tables.auxiliaries[self.tense][number]), "aux"))
            form = verb.forms["nonfinite"]
        dependents += self.negation()
        if self.draw(self.tables.modified):
            adverb = self.draw(self.tables.preferences.adverbs[verb])
            dependents.append((self.add(adverb.forms["any"]), "advmod"))
        head = self.add(form)
        for dependent, relation in dependents:
            self.attach(dependent, head, relation)
        return [*(dependent for dependent, _ in dependents), head], head

    def negation(self) -> list[tuple[int, str]]:
        """Return the position and relation of a negation in a list; an empty list if none is drawn."""
        return [(self.add(self.tables.negation), "neg")] if self.draw(self.tables.negated) else []

    # Phrases -----------------------------------------------------------------------------------------

    def object_phrase(self, verb: Lemma, *, relative: bool) -> tuple[Tree, int]:
        noun = self.draw(self.topic.objects[verb])
        return self.noun_phrase(noun, self.draw(self.tables.numbers), relative=relative)

    def noun_phrase(self, noun: Lemma, number: Number, *, relative: bool, depth: int = 0) -> tuple[Tree, int]:
        """Derive ``NP`` and return it with the position of its noun. Adjective, prepositional phrase and
        relative clause are optional.

        Args:
            noun: lemma of the noun.
            number: number of noun and determiner.
            relative: whether the phrase may hold a relative clause.
            depth: number of prepositional phrases around it; from 2 on it holds no other.
        """
        tables = self.tables
        determiner = self.add(self.draw(tables.determiners[number]))
        parts: list[int | Tree] = [determiner]
        described = None
        if self.draw(tables.described):
            tree, described = self.adjective_phrase(noun)
            parts.append(tree)
        head = self.add(noun.forms[number])
        parts.append(head)
        self.attach(determiner, head, "nummod" if self.words[determiner].tag == "NUM" else "det")
        if described is not None:
            self.attach(described, head, "amod")
        if depth < 2 and self.draw(tables.accompanied):
            companion = self.draw(self.topic.companions[noun])
            preposition = self.draw(tables.preferences.noun_prepositions[noun])
            tree, dependent = self.prepositional_phrase(preposition, companion, depth=depth + 1)
            self.attach(dependent, head, "nmod")
            parts.append(tree)
        if relative and self.draw(tables.related):
            tree, dependent = self.relative_clause(noun, number)
            self.attach(dependent, head, "acl:relcl")
            parts.append(tree)
        return Tree("NP", tuple(parts)), head

    def adjective_phrase(self, noun: Lemma | None) -> tuple[Tree, int]:
        """Derive ``AP`` and return it with the position of its adjective, which suits the noun."""
        adjective = self.draw(self.topic.adjectives[noun])
        degree = self.add(self.draw(self.tables.degrees)) if self.draw(self.tables.graded) else None
        head = self.add(adjective.forms["any"])
        if degree is None:
            return Tree("AP", (head,)), head
        self.attach(degree, head, "advmod:degree")
        return Tree("AP", (degree, head)), head

    def prepositional_phrase(self, preposition: Word, noun: Lemma, *, depth: int) -> tuple[Tree, int]:
        """Derive ``PP`` and return it with the position of its noun."""
        case = self.add(preposition)
        tree, head = self.noun_phrase(noun, self.draw(self.tables.numbers), relative=False, depth=depth)
        self.attach(case, head, "case")
        return Tree("PP", (case, tree)), head

    def relative_clause(self, noun: Lemma, number: Number) -> tuple[Tree, int]:
        """Derive ``SBAR``, a relative clause, and return it with the position of its head. The noun that it
        describes is its subject or its object."""
        self.clauses += 1
        tables = self.tables
        relativiser = self.add(tables.relativisers[noun.kind])
        if not self.draw(tables.related_as_object):
            predicate, head = self.predicate(noun, number, tables.relative_frames, outer=False)
            self.attach(relativiser, head, "nsubj")
            return Tree("SBAR", (relativiser, Tree("S", (predicate,)))), head
        other, other_number = self.draw(self.topic.subjects), self.draw(tables.numbers)
        tree, subject = self.noun_phrase(other, other_number, relative=False)
        group, head = self.verb_group(self.draw(self.topic.verbs["transitive"][other]), other_number)
        self.attach(subject, head, "nsubj")
        self.attach(relativiser, head, "obj")
        return Tree("SBAR", (relativiser, Tree("S", (tree, Tree("VP", tuple(group)))))), head
