"""The grammar of the built-in language: rules that grow one sentence, with everything that is true of it.

Constituents are named as in the Penn Treebank, dependencies as in Universal Dependencies (content words
are heads). Every rule draws from tables and adds up what its draws cost, so a sentence knows its probability.
No two derivations give the same words with the same senses:

- noun prepositions attach to the noun before them, place and recipient prepositions to the verb;
- a relative clause describes the head of its noun phrase, across the phrases between, and holds no place
  phrase and no relative clause of its own;
- adverbs stand before their verb;
- only the outermost clause is joined to a second one, and a clause inside a verb phrase holds no other.
"""

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple, TypeVar

from lightning_modules.data.lexicon import Lemma, Lexicon, Number, Word
from lightning_modules.data.selection import Preferences, Table, coin, zipf

T = TypeVar("T", bound=Hashable)

Tree = tuple["str | int | Tree", ...]
"""A constituent: its label, then its parts in order, each a constituent or the position of a word."""

DETERMINERS: Final[dict[Number, dict[tuple[str, str], float]]] = {
    "singular": {
        ("the", "any"): 0.5,
        ("a", "singular"): 0.25,
        ("this", "singular"): 0.1,
        ("that", "singular"): 0.08,
        ("every", "singular"): 0.07,
    },
    "plural": {
        ("the", "any"): 0.5,
        ("a", "plural"): 0.2,
        ("this", "plural"): 0.08,
        ("that", "plural"): 0.06,
        ("every", "plural"): 0.05,
        ("two", "plural"): 0.07,
        ("three", "plural"): 0.04,
    },
}
"""Shares of the determiners and numerals, as (lemma, form), by the number of the noun."""

FRAMES: Final = {
    "intransitive": 0.24,
    "transitive": 0.44,
    "ditransitive": 0.08,
    "clausal": 0.1,
    "copular": 0.14,
}
"""Shares of the kinds of predicate."""


class Tables(NamedTuple):
    """What the rules draw from, whatever the topic."""

    preferences: Preferences
    punctuation: dict[str, Word]
    determiners: dict[Number, Table[Word]]
    pronouns: dict[Number, Word]
    recipient_preposition: Word
    negation: Word
    relativisers: dict[str, Word]
    auxiliaries: dict[str, dict[Number, Word]]
    copulas: dict[str, dict[Number, Word]]
    degrees: Table[Word]
    coordinators: Table[Word]
    subordinators: Table[Word]
    openers: dict[str, Table[Word]]

    numbers: Table[Number] = Table({"singular": 0.55, "plural": 0.45})
    tenses: Table[str] = Table({"present": 0.45, "past": 0.35, "future": 0.2})
    cores: Table[str] = Table({"simple": 0.78, "coordinate": 0.1, "subordinate": 0.12})
    frames: Table[str] = Table(FRAMES)
    embedded_frames: Table[str] = Table({k: share for k, share in FRAMES.items() if k != "clausal"})
    relative_frames: Table[str] = Table(
        {k: FRAMES[k] for k in ("intransitive", "transitive", "copular")}
    )
    opened: Table[bool] = coin(0.22)
    pronominal: Table[bool] = coin(0.25)
    """Given that a subject has been named before."""
    described: Table[bool] = coin(0.3)
    """By an adjective."""
    graded: Table[bool] = coin(0.2)
    """By a word of degree."""
    accompanied: Table[bool] = coin(0.16)
    """By a noun preposition and its noun phrase."""
    related: Table[bool] = coin(0.11)
    """By a relative clause."""
    related_as_object: Table[bool] = coin(0.35)
    placed: Table[bool] = coin(0.28)
    modified: Table[bool] = coin(0.15)
    """By an adverb."""
    negated: Table[bool] = coin(0.06)


def tables(lexicon: Lexicon, uniform: Callable[[], float]) -> Tables:
    """The tables of a lexicon; preferences are drawn from the uniform numbers."""
    preferences = Preferences(lexicon, uniform)

    def forms(name: str) -> dict[Number, Word]:
        form = lexicon.lemmas[name].forms
        return {"singular": form["singular"], "plural": form["plural"]}

    def word(name: str) -> Word:
        return lexicon.lemmas[name].forms["any"]

    return Tables(
        preferences=preferences,
        punctuation={mark: word(mark) for mark in (".", ",")},
        determiners={
            number: Table({lexicon.lemmas[name].forms[form]: share for (name, form), share in shares.items()})
            for number, shares in DETERMINERS.items()
        },
        pronouns=forms("it"),
        recipient_preposition=word("to"),
        negation=word("not"),
        relativisers={"agent": word("who"), "thing": word("which"), "place": word("which")},
        auxiliaries={tense: forms(tense) for tense in ("past", "future")},
        copulas={tense: forms(f"be {tense}") for tense in ("present", "past", "future")},
        degrees=Table(preferences.words("degree")),
        coordinators=Table(preferences.words("coordinator")),
        subordinators=Table(preferences.words("subordinator")),
        openers={t: Table(preferences.words(f"time {t}")) for t in ("present", "past", "future")},
    )


class Derivation:
    """One sentence as it grows; after `sentence` every word has its head and relation."""

    def __init__(
        self, tables: Tables, topic: int, uniform: Callable[[], float], antecedent: Number | None
    ) -> None:
        self.tables, self.uniform = tables, uniform
        self.topic = tables.preferences.topics[topic]
        self.antecedent = antecedent
        """Number of the subject named last, to which a pronoun may refer; None at the start of a text."""
        self.words: list[Word] = []
        self.heads: list[int] = []
        self.relations: list[str] = []
        self.tense = "present"
        self.clauses = 0
        self.log_probability = 0.0

    def draw(self, table: Table[T]) -> T:
        """An item of the table; its cost is added to the sentence's."""
        item, log_probability = table.draw(self.uniform())
        self.log_probability += log_probability
        return item

    def add(self, word: Word) -> int:
        """Position of the word, which is appended and waits for its head."""
        self.words.append(word)
        self.heads.append(-1)
        self.relations.append("root")
        return len(self.words) - 1

    def attach(self, dependent: int, head: int, relation: str) -> None:
        self.heads[dependent] = head
        self.relations[dependent] = relation

    # Sentences and clauses ---------------------------------------------------------------------------

    def sentence(self) -> Tree:
        """``TOP``: perhaps a time adverb, one or two clauses, a full stop."""
        tables = self.tables
        parts: list[str | int | Tree] = ["TOP"]
        self.tense = self.draw(tables.tenses)
        opener = comma = None
        if self.draw(tables.opened):
            opener = self.add(self.draw(tables.openers[self.tense]))
            comma = self.add(tables.punctuation[","])
            self.attach(comma, opener, "punct")
            parts.append(("ADVP", opener, comma))
        core = self.draw(tables.cores)
        clause, root = self.clause(tables.frames)
        if core == "coordinate":
            joint = self.add(self.draw(tables.coordinators))
            second, head = self.clause(tables.embedded_frames)
            self.attach(joint, head, "cc")
            self.attach(head, root, "conj")
            clause = ("S", clause, joint, second)
        elif core == "subordinate":
            subordinate, head = self.introduced_clause(self.draw(tables.subordinators), tables.embedded_frames)
            self.attach(head, root, "advcl")
            clause = (*clause, subordinate)
        stop = self.add(tables.punctuation["."])
        self.attach(stop, root, "punct")
        if opener is not None:
            self.attach(opener, root, "advmod:time")
        return (*parts, clause, stop)

    def clause(self, frames: Table[str]) -> tuple[Tree, int]:
        """``S``: a subject and a predicate that agrees with it; and the position of its head."""
        self.clauses += 1
        tables = self.tables
        noun: Lemma | None = None
        if self.antecedent is not None and self.draw(tables.pronominal):
            number = self.antecedent
            subject = self.add(tables.pronouns[number])
            tree: Tree = ("NP", subject)
        else:
            noun, number = self.draw(self.topic.subjects), self.draw(tables.numbers)
            tree, subject = self.noun_phrase(noun, number, relative=True)
            self.antecedent = number
        predicate, head = self.predicate(noun, number, frames, outer=True)
        self.attach(subject, head, "nsubj")
        return ("S", tree, predicate), head

    def introduced_clause(self, word: Word, frames: Table[str]) -> tuple[Tree, int]:
        """``SBAR``: a clause after a subordinating word."""
        mark = self.add(word)
        clause, head = self.clause(frames)
        self.attach(mark, head, "mark")
        return ("SBAR", mark, clause), head

    # Predicates --------------------------------------------------------------------------------------

    def predicate(
        self, subject: Lemma | None, number: Number, frames: Table[str], *, outer: bool
    ) -> tuple[Tree, int]:
        """``VP`` and its head. Inside a relative clause (not `outer`) it holds no place and no relative clause."""
        frame = self.draw(frames)
        if frame == "copular":
            return self.copular(subject, number)
        verb = self.draw(self.topic.verbs[frame][subject])
        parts, head = self.verb_group(verb, number)
        if frame == "clausal":
            word = self.draw(self.tables.preferences.complementisers[verb])
            complement, embedded = self.introduced_clause(word, self.tables.embedded_frames)
            self.attach(embedded, head, "ccomp")
            return ("VP", *parts, complement), head
        if frame != "intransitive":
            tree, thing = self.object_phrase(verb, relative=outer)
            self.attach(thing, head, "obj")
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
        return ("VP", *parts), head

    def copular(self, subject: Lemma | None, number: Number) -> tuple[Tree, int]:
        """A copula and an adjective, which is the head."""
        dependents = [(self.add(self.tables.copulas[self.tense][number]), "cop"), *self.negation()]
        adjective, head = self.adjective_phrase(subject)
        for dependent, relation in dependents:
            self.attach(dependent, head, relation)
        return ("VP", *(dependent for dependent, _ in dependents), adjective), head

    def verb_group(self, verb: Lemma, number: Number) -> tuple[list[int | Tree], int]:
        """Auxiliary, negation, adverb, verb: their positions, and the verb's."""
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
        """Perhaps a negation: its position and relation."""
        return [(self.add(self.tables.negation), "neg")] if self.draw(self.tables.negated) else []

    # Phrases -----------------------------------------------------------------------------------------

    def object_phrase(self, verb: Lemma, *, relative: bool) -> tuple[Tree, int]:
        noun = self.draw(self.topic.objects[verb])
        return self.noun_phrase(noun, self.draw(self.tables.numbers), relative=relative)

    def noun_phrase(
        self, noun: Lemma, number: Number, *, relative: bool, depth: int = 0
    ) -> tuple[Tree, int]:
        """``NP`` and the position of its noun: determiner, adjective, noun, perhaps a phrase, perhaps a clause.

        Args:
            noun: its lemma.
            number: of noun and determiner.
            relative: whether it may hold a relative clause.
            depth: of prepositional phrases around it; from 2 on it holds no other.
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
        return ("NP", *parts), head

    def adjective_phrase(self, noun: Lemma | None) -> tuple[Tree, int]:
        """``AP`` and the position of an adjective that suits the noun."""
        adjective = self.draw(self.topic.adjectives[noun])
        degree = self.add(self.draw(self.tables.degrees)) if self.draw(self.tables.graded) else None
        head = self.add(adjective.forms["any"])
        if degree is None:
            return ("AP", head), head
        self.attach(degree, head, "advmod:degree")
        return ("AP", degree, head), head

    def prepositional_phrase(self, preposition: Word, noun: Lemma, *, depth: int) -> tuple[Tree, int]:
        """``PP`` and the position of its noun."""
        case = self.add(preposition)
        tree, head = self.noun_phrase(noun, self.draw(self.tables.numbers), relative=False, depth=depth)
        self.attach(case, head, "case")
        return ("PP", case, tree), head

    def relative_clause(self, noun: Lemma, number: Number) -> tuple[Tree, int]:
        """``SBAR`` and the position of its head; the described noun is its subject or its object."""
        self.clauses += 1
        tables = self.tables
        relativiser = self.add(tables.relativisers[noun.kind])
        if not self.draw(tables.related_as_object):
            predicate, head = self.predicate(noun, number, tables.relative_frames, outer=False)
            self.attach(relativiser, head, "nsubj")
            return ("SBAR", relativiser, ("S", predicate)), head
        other, other_number = self.draw(self.topic.subjects), self.draw(tables.numbers)
        tree, subject = self.noun_phrase(other, other_number, relative=False)
        group, head = self.verb_group(self.draw(self.topic.verbs["transitive"][other]), other_number)
        self.attach(subject, head, "nsubj")
        self.attach(relativiser, head, "obj")
        return ("SBAR", relativiser, ("S", tree, ("VP", *group))), head
