"""The built-in language: the same text always, its words, topics, translations and entropy."""

import math
import subprocess
import sys
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from benchmarks.entropy import entropies
from lightning_modules.data.language import Language, translate
from lightning_modules.data.language.lexicon import CONTENT_LEMMAS, TOPICS
from lightning_modules.errors import DataError
from tests.support.errors import error_text

CONTENT_TAGS = {"NOUN", "VERB", "ADJ"}


# The same text, always -----------------------------------------------------------------------------------


def test_a_document_depends_on_language_split_and_number_alone(language, documents):
    other = Language(0)
    assert other.document("train", 17) == documents[17]
    assert language.document("train", 17) == documents[17]
    different = [
        Language(1).document("train", 17),
        language.document("test", 17),
        language.document("train", 18),
    ]
    assert all(document != documents[17] for document in different)


def test_fewer_sentences_are_the_start_of_more(language, documents):
    more = list(language.sentences("train", 200))
    assert more[:37] == list(language.sentences("train", 37))
    assert len(more) == 200
    expected = [(index, sentence) for index, document in enumerate(documents) for sentence in document]
    assert more == expected[:200]
    assert list(language.sentences("train", 0)) == []


def test_global_random_numbers_neither_matter_nor_change(documents):
    np.random.seed(3)  # noqa: NPY002 - the global state is the point
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert Language(0).document("train", 2) == documents[2]
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_loads_no_torch():
    code = "import sys; import lightning_modules.data.language; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: Language(-1), "The seed of a language must be 0 or more, but is -1."),
        (
            lambda spoken: spoken.document("train", -2),
            "The number of a document must be 0 or more, but is -2.",
        ),
        (
            lambda spoken: list(spoken.sentences("train", -3)),
            "The number of sentences must be 0 or more, but is -3.",
        ),
    ],
)
def test_wrong_requests_are_refused_in_a_sentence(language, call, message):
    assert error_text(DataError, call, language) == message


# Words ---------------------------------------------------------------------------------------------------


def test_sizes(language, documents, text):
    assert 600 <= sum(topical * TOPICS + general for topical, general in CONTENT_LEMMAS.values()) <= 1200
    lemmas = language.lexicon.lemmas.values()
    closed = {word.form for lemma in lemmas if lemma.kind not in CONTENT_LEMMAS for word in lemma.forms.values()}
    assert 40 <= len(closed) <= 60
    assert {len(document) for document in documents} == set(range(5, 21))
    lengths = [len(sentence.words) for sentence in text]
    assert 10 < np.mean(lengths) < 11.3  # 10.65; a standard error is 0.09
    assert 0.003 < np.mean(np.array(lengths) > 25) < 0.03  # 0.012; a standard error is 0.002
    assert max(lengths) < 60


def test_forms_are_plain_and_have_two_readings_at_most(language):
    forms = [word.form for lemma in language.lexicon.lemmas.values() for word in lemma.forms.values()]
    assert all(form == "." or (form.isascii() and form.isalpha() and form.islower()) for form in forms)
    assert set(Counter(forms).values()) == {1, 2}
    assert len(language.lexicon.readings) == len(forms)


def test_words_follow_zipfs_law(text):
    counts = sorted(Counter(word for sentence in text for word in sentence.words).values(), reverse=True)
    ranks = np.arange(10, 501)
    slope = np.polyfit(np.log(ranks), np.log(counts[9:500]), 1)[0]
    assert slope == pytest.approx(-1, abs=0.1)  # the law; the design leaves 0.05 between seeds of the language


def test_frequent_words_are_shorter(text):
    occurrences = Counter(word for sentence in text for word in sentence.words if word != ".")
    ranked = [len(word) for word, _ in occurrences.most_common()]
    assert np.mean(ranked[:50]) + 1 < np.mean(ranked[50:300]) < np.mean(ranked[600:]) - 0.5


def test_a_thousand_subwords_suffice_and_are_needed(text):
    tokenizer = Tokenizer(models.BPE(unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=1024, special_tokens=["?"], show_progress=False)
    tokenizer.train_from_iterator((sentence.text for sentence in text), trainer)
    pieces = Counter(len(tokenizer.encode(word).ids) for sentence in text[:500] for word in sentence.words)
    assert (pieces[1] + pieces[2]) / pieces.total() > 0.97
    assert pieces[1] < pieces.total()


# Topics --------------------------------------------------------------------------------------------------


def test_the_next_sentence_is_known_by_its_words(documents):
    """Share of content words of a sentence that the next has too, against a sentence of the next document."""

    def overlap(first, second):
        words, others = (
            {word for word, tag in zip(s.words, s.tags, strict=True) if tag in CONTENT_TAGS}
            for s in (first, second)
        )
        return len(words & others) / max(1, len(words))

    within = [overlap(a, b) for document in documents for a, b in pairwise(document)]
    across = [overlap(a, b) for one, other in pairwise(documents) for a, b in zip(one, other, strict=False)]
    error = math.hypot(np.std(within) / len(within) ** 0.5, np.std(across) / len(across) ** 0.5)
    assert np.mean(within) - np.mean(across) > 10 * error
    assert np.mean(within) > 2 * np.mean(across)


def test_a_document_keeps_its_topic_and_topics_are_equally_frequent(documents):
    assert all(len({sentence.topic for sentence in document}) == 1 for document in documents)
    counts = Counter(document[0].topic for document in documents)
    expected = len(documents) / TOPICS
    chi_squared = sum((counts[topic] - expected) ** 2 / expected for topic in range(TOPICS))
    assert chi_squared < TOPICS - 1 + 4 * math.sqrt(2 * (TOPICS - 1))  # mean + 4 standard deviations


# Homonyms and translation --------------------------------------------------------------------------------


def test_homonyms_occur_in_both_senses_and_are_translated_by_sense(language, text):
    senses = defaultdict(Counter)
    for sentence in text:
        for form, sense in zip(sentence.words, sentence.senses, strict=True):
            if sense is not None:
                word = language.lexicon.readings[form, sense]
                senses[form][sense] += 1
                assert any(foreign.startswith(word.foreign) for foreign in sentence.translation)
    assert sum(len(counts) == 2 for counts in senses.values()) > 50
    for form in senses:
        one, other = (language.lexicon.readings[form, sense] for sense in (0, 1))
        assert one.foreign != other.foreign
        topics = {language.lexicon.lemmas[word.name].topic for word in (one, other)}
        assert one.tag != other.tag or (len(topics) == 2 and None not in topics)


def test_heads_and_so_the_translation_follow_from_words_and_senses(language, text):
    """Sentences of one shape (function words, kinds and forms of content words) have the same structure."""
    shapes = {}
    for sentence in text:
        shape = []
        for form, sense in zip(sentence.words, sentence.senses, strict=True):
            word = language.lexicon.readings[form, sense]
            lemma = language.lexicon.lemmas[word.name]
            shape.append((lemma.kind, word.number) if lemma.kind in CONTENT_LEMMAS else form)
        structure = (sentence.heads, sentence.relations, sentence.tree)
        assert shapes.setdefault(tuple(shape), structure) == structure
        words = [
            language.lexicon.readings[reading] for reading in zip(sentence.words, sentence.senses, strict=True)
        ]
        assert sentence.translation == translate(words, sentence.heads, sentence.relations)
    assert len(shapes) < 0.9 * len(text)  # else nothing was compared


def test_a_translation_by_hand(language):
    """Soon, the child who not-sees the two big dogs of a king will give a book to these men."""
    source = [
        ("soon", "any", 14, "advmod:time"),
        ("the", "singular", 2, "det"),
        ("agent 3.0", "singular", 14, "nsubj"),
        ("who", "any", 6, "nsubj"),
        ("future", "singular", 6, "aux"),
        ("not", "any", 6, "neg"),
        ("transitive 3.0", "nonfinite", 2, "acl:relcl"),
        ("two", "plural", 9, "nummod"),
        ("adjective 3.0", "any", 9, "amod"),
        ("thing 3.0", "plural", 6, "obj"),
        ("of", "any", 12, "case"),
        ("a", "singular", 12, "det"),
        ("agent 3.1", "singular", 9, "nmod"),
        ("future", "singular", 14, "aux"),
        ("ditransitive 3.0", "nonfinite", -1, "root"),
        ("a", "singular", 16, "det"),
        ("thing 3.1", "singular", 14, "obj"),
        ("to", "any", 19, "case"),
        ("this", "plural", 19, "det"),
        ("agent 3.2", "plural", 14, "iobj"),
        (".", "any", 14, "punct"),
    ]
    names, slots, heads, relations = zip(*source, strict=True)
    words = [language.lexicon.lemmas[name].forms[slot] for name, slot in zip(names, slots, strict=True)]
    abroad = {name: word.foreign for name, word in zip(names, words, strict=True)}
    expected = [
        abroad["soon"],
        abroad["agent 3.1"] + "ov",  # of a king: genitive, before its noun
        abroad["a"],
        abroad["of"],
        abroad["thing 3.0"] + "em",  # two dog: accusative, singular after a numeral
        abroad["adjective 3.0"],
        abroad["two"],
        abroad["transitive 3.0"] + "ni" + "ask" + "un",  # not, future, relative
        abroad["agent 3.0"],
        abroad["agent 3.2"] + "ul" + "ar",  # plural, dative
        abroad["this"],
        abroad["thing 3.1"] + "em",
        abroad["a"],
        abroad["ditransitive 3.0"] + "ask",
        ".",
    ]
    assert list(translate(words, heads, relations)) == expected


def test_verbs_stand_last_abroad(language, text):
    simple = [s for s in text if s.clauses == 1 and "obj" in s.relations and s.tags[s.heads.index(-1)] == "VERB"]
    assert len(simple) > 500
    for sentence in simple:
        root = sentence.heads.index(-1)
        verb = language.lexicon.readings[sentence.words[root], sentence.senses[root]].foreign
        assert sentence.translation[-2].startswith(verb)
        assert root < sentence.relations.index("obj")


# Entropy -------------------------------------------------------------------------------------------------


def test_context_takes_most_of_the_entropy_away(language):
    measured = entropies(language, sentences=6000)
    assert measured.unigram == pytest.approx(5.3, abs=0.1)
    assert measured.generator == pytest.approx(2.06, abs=0.05)  # a standard error is 0.007
    assert measured.sentence - measured.generator == pytest.approx(math.log(3 * TOPICS) / 10.65, abs=0.02)
    # No model without the topic can beat the truth, and both sides tell more than either.
    assert measured.sentence < measured.around < min(measured.before, measured.after)
    assert max(measured.before, measured.after) < measured.unigram - 1
