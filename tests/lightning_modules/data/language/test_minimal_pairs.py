"""Minimal pairs of the built-in language: one half is a sentence, the other is none."""

from collections import Counter

import pytest

from lightning_modules.data.language.minimal_pairs import PARADIGMS, minimal_pairs
from lightning_modules.errors import DataError
from tests.support.errors import error_text


@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_minimal_pairs_differ_in_one_place_and_one_half_is_no_sentence(language, recogniser, paradigm):
    pairs = list(minimal_pairs(language, paradigm, 60))
    assert len(pairs) == 60
    assert list(minimal_pairs(language, paradigm, 11)) == pairs[:11]
    assert set(Counter(pair.value for pair in pairs).values()) == {60 // len(PARADIGMS[paradigm].values)}
    for pair in pairs:
        assert recogniser.derivations(pair.grammatical, pair.sentence.senses) == 1
        assert recogniser.derivations(pair.ungrammatical) == 0
        first, *rest = pair.positions
        if paradigm in ("noun_order", "phrase_order"):
            assert rest == [first + 1]
            assert pair.grammatical[first : first + 2] == pair.ungrammatical[first : first + 2][::-1]
        else:
            assert rest == []


def changed(pair):
    """Of the finite word that a pair changes: the subject's part of speech, the numbers of the nouns between, and
    how many relative clauses between describe the subject."""
    position, sentence = pair.positions[0], pair.sentence
    verb = position if sentence.tags[position] in ("VERB", "ADJ") else sentence.heads[position]
    subject = next(i for i, head in enumerate(sentence.heads) if head == verb and sentence.relations[i] == "nsubj")
    between = range(subject + 1, position)
    numbers = [sentence.numbers[i] for i in between if sentence.tags[i] == "NOUN"]
    clauses = [sentence.heads[i] for i in between if sentence.relations[i] == "acl:relcl"]
    return sentence.tags[subject], numbers, clauses.count(subject)


def test_paradigms_are_what_their_names_say(language):
    for pair in minimal_pairs(language, "agreement_simple", 40):
        assert changed(pair) == ("NOUN", [], 0)
    for pair in minimal_pairs(language, "agreement_across_phrase", 40):
        tag, numbers, clauses = changed(pair)
        assert (tag, numbers[-1] != pair.value, clauses) == ("NOUN", True, 0)
    for pair in minimal_pairs(language, "agreement_across_clause", 40):
        tag, numbers, clauses = changed(pair)
        assert (tag, numbers[-1] != pair.value, clauses) == ("NOUN", True, 1)
    for pair in minimal_pairs(language, "agreement_in_clause", 40):
        assert changed(pair)[0] == "PRON"
    for pair in minimal_pairs(language, "determiner_noun", 40):
        assert pair.sentence.tags[pair.positions[0]] == "DET"
    for pair in minimal_pairs(language, "tense_concord", 40):
        assert pair.positions == (0,)
        assert pair.sentence.tense == pair.value
    for pair in minimal_pairs(language, "verb_form", 40):
        assert pair.sentence.words[pair.positions[0]].endswith("n")


@pytest.mark.parametrize(
    ("paradigm", "count", "message"),
    [
        ("verb_form", -4, "The number of minimal pairs must be 0 or more, but is -4."),
        (
            "agreement",
            1,
            "'agreement' is not a paradigm; choose one of agreement_simple, agreement_across_phrase, "
            "agreement_across_clause, agreement_in_clause, determiner_noun, verb_form, tense_concord, "
            "noun_order, phrase_order.",
        ),
    ],
)
def test_wrong_requests_are_refused_in_a_sentence(language, paradigm, count, message):
    assert error_text(DataError, minimal_pairs, language, paradigm, count) == message
