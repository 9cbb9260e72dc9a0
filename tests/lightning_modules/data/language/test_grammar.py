"""The grammar of the built-in language, against a second statement of it (`recogniser.py`)."""

import math
from collections import Counter

import numpy as np
import pytest

from lightning_modules.data.language import Language
from lightning_modules.data.language.grammar import Derivation
from lightning_modules.data.language.lexicon import CONTENT_LEMMAS, Table, coin, mixture, zipf


def test_every_sentence_is_derived_in_exactly_one_way(recogniser, text):
    assert {recogniser.derivations(sentence.words, sentence.senses) for sentence in text} == {1}


def test_syntax_tells_homonyms_of_different_classes_apart(language, recogniser, text):
    read = 0
    for sentence in text:
        forms = [form for form, sense in zip(sentence.words, sentence.senses, strict=True) if sense is not None]
        tags = [{language.lexicon.readings[form, sense].tag for sense in (0, 1)} for form in forms]
        if forms and all(len(both) == 2 for both in tags):
            assert recogniser.derivations(sentence.words) == 1
            read += 1
    assert read > 100


def test_the_recogniser_refuses_shuffled_words(recogniser, text):
    rng = np.random.default_rng(0)
    shuffled = [tuple(rng.permutation(sentence.words)) for sentence in text[:300]]
    assert sum(recogniser.derivations(words) > 0 for words in shuffled) < 5  # by chance, among the shortest


# Trees and heads -----------------------------------------------------------------------------------------


def leaves(tree):
    return [leaf for part in tree.parts for leaf in ([part] if isinstance(part, int) else leaves(part))]


def constituents(tree):
    yield tree
    for part in tree.parts:
        if not isinstance(part, int):
            yield from constituents(part)


def test_trees_span_the_sentence_and_each_constituent_has_one_head(text):
    for sentence in text:
        assert leaves(sentence.tree) == list(range(len(sentence.words)))
        for constituent in constituents(sentence.tree):
            inside = set(leaves(constituent))
            assert sum(sentence.heads[i] not in inside for i in inside) == 1


def test_heads_are_a_projective_tree(text):
    for sentence in text:
        assert [i for i, head in enumerate(sentence.heads) if head == -1] == [sentence.relations.index("root")]
        for position, head in enumerate(sentence.heads):
            path = [position]
            while path[-1] != -1:
                assert len(path) <= len(sentence.words)  # no cycle
                path.append(sentence.heads[path[-1]])
            for between in range(min(position, head) + 1, max(position, head)) if head >= 0 else ():
                ancestor = between
                while ancestor not in (-1, head):
                    ancestor = sentence.heads[ancestor]
                assert ancestor == head


def test_brackets():
    language = Language(0)
    sentence = next(s for _, s in language.sentences("train", 500) if s.tags == ("ADV", "PRON", "VERB", "PUNCT"))
    time, pronoun, verb, _ = sentence.words
    assert (
        sentence.bracketed == f"(TOP (ADVP (ADV {time})) (S (NP (PRON {pronoun})) (VP (VERB {verb}))) (PUNCT .))"
    )


# Agreement -----------------------------------------------------------------------------------------------


def number_as_written(language, sentence, position):
    """From the ending where the class has endings, else from the dictionary."""
    form, tag = sentence.words[position], sentence.tags[position]
    if tag == "NOUN":
        return "plural" if form.endswith("s") else "singular"
    if tag == "VERB":
        return {"t": "singular", "n": None}.get(form[-1], "plural")
    return language.lexicon.readings[form, sentence.senses[position]].number


def test_verbs_agree_with_their_subjects_and_determiners_with_their_nouns(language, text):
    checked = Counter()
    for sentence in text:
        for position, (head, relation) in enumerate(zip(sentence.heads, sentence.relations, strict=True)):
            number = number_as_written(language, sentence, position)
            assert number == sentence.numbers[position]
            if relation in ("det", "nummod"):
                assert number == number_as_written(language, sentence, head)
                checked["determiner"] += 1
            if relation == "nsubj":
                subject = position if number else sentence.heads[head]  # a relativiser has its noun's number
                helpers = [i for i, h in enumerate(sentence.heads) if h == head and sentence.tags[i] == "AUX"]
                finite = number_as_written(language, sentence, helpers[0] if helpers else head)
                assert finite == number_as_written(language, sentence, subject) is not None
                assert len(helpers) == (sentence.tense != "present" or sentence.tags[head] == "ADJ")
                nouns = [i for i in range(subject + 1, head) if sentence.tags[i] == "NOUN"]
                checked["attractor"] += any(sentence.numbers[i] != finite for i in nouns)
                checked["verb"] += 1
    assert checked["verb"] > len(text)
    assert checked["attractor"] > 0.05 * checked["verb"]


def test_a_pronoun_has_the_number_of_the_subject_before_it(documents):
    pronouns = 0
    for document in documents:
        antecedent = None
        for sentence in document:
            for position, relation in enumerate(sentence.relations):
                number = sentence.numbers[position]
                if relation == "nsubj" and sentence.relations[sentence.heads[position]] != "acl:relcl":
                    if sentence.tags[position] == "PRON":
                        assert number == antecedent
                        pronouns += 1
                    antecedent = number
    assert pronouns > 100


def test_labels(text):
    for sentence in text:
        predicates = {"root", "conj", "advcl", "ccomp", "acl:relcl"}
        assert sentence.clauses == sum(relation in predicates for relation in sentence.relations)
        assert sentence.subject_number == sentence.numbers[sentence.relations.index("nsubj")]
    assert {sentence.tense for sentence in text} == {"present", "past", "future"}
    assert {1, 2, 3} <= {sentence.clauses for sentence in text}


# Probability ---------------------------------------------------------------------------------------------


def test_tables_draw_what_they_say():
    table = Table({"a": 1, "never": 0, "b": 3})
    assert table.draw(0.0) == ("a", math.log(1 / 4))
    assert table.draw(0.2499)[0] == "a"
    assert table.draw(0.25) == ("b", math.log(3 / 4))
    assert table.draw(1 - 2**-53)[0] == "b"
    assert coin(1).draw(0.999) == (True, 0.0)
    assert zipf("abc") == pytest.approx({"a": 6 / 11, "b": 3 / 11, "c": 2 / 11})  # float64 rounding
    assert mixture((0.5, {"a": 1.0}), (0.5, {"a": 0.5, "b": 0.5})) == {"a": 0.75, "b": 0.25}


class TooLongError(Exception):
    """A derivation has more words than the enumeration asks for."""


class Enumerated(Derivation):
    """A derivation whose draws follow a script of choices, the first item where the script has ended."""

    def __init__(self, tables, topic, antecedent, script, longest):
        super().__init__(tables, topic, lambda: 0.0, antecedent)
        self.script, self.longest, self.choices = script, longest, []

    def draw(self, table):
        chosen = self.script[len(self.choices)] if len(self.choices) < len(self.script) else 0
        self.choices.append((chosen, len(table.items)))
        self.log_probability += table.log_probabilities[chosen]
        return table.items[chosen]

    def add(self, word):
        if len(self.words) == self.longest:
            raise TooLongError
        return super().add(word)


def enumeration(language, antecedent, longest):
    """All sentences of topic 0 with so many words at most: (words, senses, log-probability), each as derived."""
    script = []
    while script is not None:
        derivation = Enumerated(language.tables, 0, antecedent, script, longest)
        try:
            derivation.sentence()
            forms, _, _, senses, _, _ = zip(*derivation.words, strict=True)
            yield forms, senses, derivation.log_probability
        except TooLongError:
            pass
        choices = derivation.choices
        while choices and choices[-1][0] + 1 == choices[-1][1]:
            choices.pop()
        script = [chosen for chosen, _ in choices[:-1]] + [choices[-1][0] + 1] if choices else None


@pytest.fixture
def few_words(monkeypatch):
    """A language small enough to enumerate its short sentences."""
    monkeypatch.setattr(
        "lightning_modules.data.language.lexicon.CONTENT_LEMMAS", dict.fromkeys(CONTENT_LEMMAS, (1, 1))
    )
    monkeypatch.setattr("lightning_modules.data.language.lexicon.HOMONYMS_ACROSS_TOPICS", 0)
    monkeypatch.setattr("lightning_modules.data.language.lexicon.HOMONYMS_ACROSS_CLASSES", 0)
    determiners = {"singular": {"the": 0.6, "a": 0.4}, "plural": {"the": 0.7, "two": 0.3}}
    monkeypatch.setattr("lightning_modules.data.language.grammar.DETERMINERS", determiners)
    return Language(0)


def test_probabilities_are_frequencies(few_words):
    """Of all sentences of at most four words: no two derivations alike, and the sum is their share of a sample."""
    antecedent = "plural"
    short = list(enumeration(few_words, antecedent, longest=4))
    cost = {(words, senses): log_probability for words, senses, log_probability in short}
    assert len(cost) == len(short)
    share = math.fsum(math.exp(log_probability) for log_probability in cost.values())
    rng = np.random.default_rng(0)
    samples, met = 5000, Counter()
    for _ in range(samples):
        derivation = Derivation(few_words.tables, 0, rng.random, antecedent)
        derivation.sentence()
        forms, _, _, senses, _, _ = zip(*derivation.words, strict=True)
        if len(forms) <= 4:
            met[forms, senses] += 1
            assert derivation.log_probability == cost[forms, senses]
    error = math.sqrt(share * (1 - share) / samples)
    assert abs(met.total() / samples - share) < 4 * error
    for sentence, times in met.most_common(20):
        probability = math.exp(cost[sentence])
        assert abs(times / samples - probability) < 5 * math.sqrt(probability / samples)  # the 20 largest counts
