"""Words in their text: found whatever the white space, contractions among them; and the words of sub-words."""

import unicodedata

import numpy as np
import pytest

from ablations.errors import MeasureError
from ablations.measures.reading.alignment import NO_WORD, align, words_of_characters
from tests.support.errors import error_text


def pieces(text: str, words) -> list[str]:
    """What stands in the text for each word."""
    word_C = words_of_characters(text, words, where="sentence 1")
    assert len(word_C) == len(text)
    found = ["".join(c for c, of in zip(text, word_C, strict=True) if of == w) for w in range(len(words))]
    return [piece.replace(" ", "").replace("\u00ad", "") for piece in found]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I don't cannot .", ("I", "do", "n't", "can", "not", ".")),
        ("plus de 1 000 %", ("plus", "de", "1000", "%")),
        ("👩‍👩‍👧 and 👍🏽!", ("👩‍👩‍👧", "and", "👍🏽", "!")),
        ("東京タワーへ行く", ("東京", "タワー", "へ", "行く")),
        ("a b", ("", "a", "", "b", "")),
        ("", ()),
        (" ", ("",)),
    ],
)
def test_words_are_found_whatever_stands_between_them(text, words):
    assert pieces(text, words) == list(words)


def test_white_space_inside_of_words_does_not_matter():
    for space in (" ", "\u00a0", "\u202f", ""):
        assert words_of_characters("de 1 000 %", ("de", f"1{space}000", "%"), where="").tolist() == [
            *(0, 0, NO_WORD, 1, 1, 1, 1, 1, NO_WORD, 2)
        ]


def test_what_means_the_same_is_the_same():
    decomposed = unicodedata.normalize("NFD", "Zoé était là")
    assert pieces(decomposed, ("Zoé", "était", "là")) == decomposed.split()
    assert pieces("Zoé était là", unicodedata.normalize("NFD", "Zoé était là").split()) == ["Zoé", "était", "là"]
    assert pieces("co\u00adop\u200b er\ufeff", ("coop", "\u200ber")) == ["coop", "er"]  # without what is not seen
    assert pieces("“So”, he‘s …", ('"', "So", '"', ",", "he", "'s", "...")) == [
        "“",
        "So",
        "”",
        ",",
        "he",
        "‘s",
        "…",
    ]
    assert pieces("``So''", ('"', "So", '"')) == ["``", "So", "''"]
    assert pieces("The CAT", ("the", "cat")) == ["The", "CAT"]


CONTRACTIONS = {
    "du": (("de", "le"), ("du", "")),
    "des": (("de", "les"), ("de", "s")),
    "au": (("à", "le"), ("au", "")),
    "aux": (("à", "les"), ("aux", "")),
    "auxquelles": (("à", "lesquelles"), ("auxquelles", "")),
    "duquel": (("de", "lequel"), ("duquel", "")),
    "im": (("in", "dem"), ("im", "")),
    "vom": (("von", "dem"), ("vom", "")),
    "zum": (("zu", "dem"), ("zu", "m")),
    "ins": (("in", "das"), ("in", "s")),
    "z.": (("zu", "dem"), ("z.", "")),
    "à": (("a", "a"), ("à", "")),
    "no": (("em", "o"), ("no", "")),
    "nesse": (("em", "esse"), ("nesse", "")),
    "pelo": (("por", "o"), ("pelo", "")),
    "nella": (("in", "la"), ("nella", "")),
    "degli": (("di", "gli"), ("degli", "")),
    "del": (("de", "el"), ("de", "l")),
    "dámelo": (("da", "me", "lo"), ("dá", "me", "lo")),
}


@pytest.mark.parametrize("surface", CONTRACTIONS)
def test_a_contraction_belongs_to_its_first_word_but_for_what_is_the_words_own(surface):
    words, expected = CONTRACTIONS[surface]
    assert pieces(f"lui, ({surface}) mer.", ("lui", ",", "(", *words, ")", "mer", ".")) == [
        *("lui", ",", "("),
        *expected,
        *(")", "mer", "."),
    ]
    assert pieces(surface, words) == list(expected)


PLAIN = ("chat", "mer", "lendemain", "leur", "désert", "aucun", "lesdits", ",", "«", "3", "Dupont")


def test_sentences_of_plain_words_and_contractions_with_any_white_space():
    rng = np.random.default_rng(0)
    french = ("du", "des", "au", "aux", "auxquelles")
    for _ in range(300):
        text, words, expected = "", [], []
        for _ in range(int(rng.integers(1, 12))):
            word = str(rng.choice(PLAIN if rng.random() < 0.6 else french))
            text += word + " " * int(rng.integers(1, 3))
            of_word, surfaces = CONTRACTIONS.get(word, ((word,), (word,)))
            words += of_word
            expected += surfaces
        assert pieces(text, words) == expected, text


def test_a_text_cut_anywhere_is_found_again():
    rng = np.random.default_rng(1)
    for _ in range(200):
        letters = rng.choice(list("aabé.'“3"), int(rng.integers(1, 30)))
        cuts = np.flatnonzero(rng.random(len(letters)) < 0.4)
        words = ["".join(part) for part in np.split(letters, cuts)]
        spaces = rng.choice(["", "", " ", "\u00a0 "], len(letters))
        text = "".join(letter + space for letter, space in zip(letters, spaces, strict=True))
        word_of_letter = np.repeat(np.arange(len(words)), [len(word) for word in words])
        expected = np.repeat(word_of_letter, [1 + len(space) for space in spaces])
        written = np.array([not c.isspace() for c in text])
        assert np.array_equal(words_of_characters(text, words, where="")[written], expected[written])


def test_a_sub_word_belongs_to_the_word_of_its_first_character():
    text, words = " I don't, du “cat”", ("I", "do", "n't", ",", "de", "le", '"', "cat", '"')
    spans = {
        (0, 0): NO_WORD,  # as [CLS] has it
        (0, 1): NO_WORD,
        (0, 2): 0,
        (2, 3): NO_WORD,
        (2, 5): 1,
        (5, 6): 2,
        (3, 8): 1,
        (6, 8): 2,
        (7, 9): 2,
        (8, 9): 3,
        (9, 12): 4,
        (11, 12): 4,
        (12, 14): 6,
        (13, 14): 6,
        (14, 18): 7,
        (17, 18): 8,
        (18, 18): NO_WORD,
    }
    ours = align(text, words, list(spans), where="sentence 1")
    assert ours.dtype == np.int64
    assert ours.tolist() == list(spans.values())
    assert align(text, words, [], where="sentence 1").shape == (0,)


# Labels of another text ------------------------------------------------------------------------------


def error_of(text: str, *words: str) -> str:
    return error_text(MeasureError, words_of_characters, text, words, where="sentence 7")


@pytest.mark.parametrize(
    ("text", "words", "wanted", "found"),
    [
        ("The cat sleeps .", ("The", "dog", "sleeps", "."), 'word 2, "dog"', '"cat sleeps ."'),
        ("The cat .", ("The", "big", "cat", "."), 'word 2, "big"', '"cat ."'),
        ("The cat.", ("The", "big", "cat", "."), 'word 2, "big"', '"cat."'),
        ("The big cat .", ("The", "cat", "."), 'word 2, "cat"', '"big cat ."'),
        ("The cat .", ("The", "cat"), "the end", '"."'),
        ("The cat", ("The", "cat", "."), 'word 3, "."', "the end"),
        ("The cat", ("cat", "The"), 'word 1, "cat"', '"The cat"'),
        ("hello world", ("a", "b", "c", "d"), 'word 1, "a"', '"hello world"'),
        ("Hello!", ("I", "went", "to", "the", "sea", "."), 'word 1, "I"', '"Hello!"'),
        ("", ("a",), 'word 1, "a"', "the end"),
        ("a", (), "the end", '"a"'),
    ],
)
def test_words_of_another_text_are_refused(text, words, wanted, found):
    assert error_of(text, *words) == (
        f"sentence 7: the labels do not match the text: expected {wanted}, but the text has {found} in "
        f'"{text}"; give words and text of the same sentence.'
    )


def test_long_texts_are_shortened_in_the_error_and_cost_little():
    text = "x " + "abcdefghij" * 100
    assert error_of(text, "x", *"abcdefghij" * 100, "b") == (
        'sentence 7: the labels do not match the text: expected word 1002, "b", but the text has the end in '
        f'"{text[:77]}..."; give words and text of the same sentence.'
    )
    assert error_of(text, "x", *["no"] * 1000) == (
        'sentence 7: the labels do not match the text: expected word 2, "no", but the text has '
        f'"{text[2:29]}..." in "{text[:77]}..."; give words and text of the same sentence.'
    )
