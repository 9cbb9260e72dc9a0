"""Words in token ids, against plain loops."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

from lightning_modules.data.token_store import Words, find_words, ranges, word_types
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, MASK, PAD, START, UNKNOWN

V, FIRST_START = 40, 20
STARTS_V = np.arange(V) >= FIRST_START  # ids from 20 begin a word, 5 to 19 continue one

Word = tuple[int, ...]


def random_sentences(count: int, *, seed: int) -> list[list[Word]]:
    """Sentences of 0 to 8 words of 1 to 5 pieces from a small lexicon; unknown pieces stand inside words only."""
    rng = np.random.default_rng(seed)
    continuing = [UNKNOWN, *range(FIRST_WORD_ID, FIRST_START)]
    lexicon = [(int(rng.integers(FIRST_START, V)), *rng.choice(continuing, rng.integers(0, 5))) for _ in range(60)]
    return [[lexicon[i] for i in rng.integers(0, 60, rng.integers(0, 9))] for _ in range(count)]


def flat(sentences: list[list[Word]]) -> np.ndarray:
    """Sentences one after the other, each from START to END."""
    ids = [[START, *itertools.chain(*words), END] for words in sentences]
    return np.fromiter(itertools.chain(*ids), np.uint16)


def words_of(ids_N: np.ndarray, words: Words) -> list[Word]:
    """The pieces of each word."""
    return [tuple(ids_N[i : i + n].tolist()) for i, n in zip(*(array.tolist() for array in words), strict=True)]


def reference(ids: list[int]) -> list[tuple[int, Word]]:
    """Place and pieces of each word, one token at a time."""
    found: list[tuple[int, Word]] = []
    for i, piece in enumerate(ids):
        if piece >= FIRST_START:
            found.append((i, (piece,)))
        elif found and (piece == UNKNOWN or piece >= FIRST_WORD_ID):
            found[-1] = (found[-1][0], (*found[-1][1], piece))
    return found


def test_words_are_where_a_walk_through_the_tokens_finds_them():
    for seed in range(20):
        sentences = random_sentences(40, seed=seed)
        ids_N = flat(sentences)
        words = find_words(ids_N, STARTS_V)
        found = reference(ids_N.tolist())
        assert words.start_W.tolist() == [start for start, _ in found]
        assert words_of(ids_N, words) == [word for _, word in found] == [*itertools.chain(*sentences)]
        assert words.token_N.tolist() == [i for i, piece in enumerate(ids_N) if piece not in (START, END)]


def test_the_first_piece_of_a_sentence_begins_a_word_also_without_a_space():
    """As in GPT-2, where only words after a space begin with one. A counter-example: a first piece inside a text
    continues the word before it."""
    sentences = [[(9,), (25, 7)], [(UNKNOWN, 8)], [], [(30,)]]
    words = find_words(flat(sentences), STARTS_V)
    assert words_of(flat(sentences), words) == [(9,), (25, 7), (UNKNOWN, 8), (30,)]
    assert words_of(np.array([25, 9, END]), find_words(np.array([25, 9, END]), STARTS_V)) == [(25, 9)]


@pytest.mark.parametrize("word", [(25,), (25, 7), (25, UNKNOWN), (25, UNKNOWN, 9, UNKNOWN)])
def test_a_word_ends_where_the_next_begins_or_its_sentence_or_the_array_ends(word):
    n = len(word)
    for before, after in itertools.product(
        [[], [START], [START, 30, 6]], [[], [END], [END, START, 31, END], [32]]
    ):
        ids_N = np.array([*before, *word, *after])
        words = find_words(ids_N, STARTS_V)
        place = words.start_W.tolist().index(len(before))
        assert words.length_W[place] == n
        assert words_of(ids_N, words)[place] == word


def test_a_text_without_words_has_none():
    for ids in ([], [START, END], [PAD, PAD], [START, END, START, END]):
        ids_N = np.array(ids, np.uint16)
        words = find_words(ids_N, STARTS_V)
        assert [len(array) for array in (*words, words.token_N, *word_types(ids_N, words))] == [0] * 5


def test_special_ids_belong_to_no_word_but_an_unknown_piece_does():
    words = find_words(np.array([START, 25, UNKNOWN, 8, MASK, END, PAD]), STARTS_V)
    assert (words.start_W.tolist(), words.length_W.tolist()) == ([1], [3])


def test_words_are_of_one_type_exactly_if_their_pieces_are_the_same():
    for seed in range(20):
        ids_N = flat(random_sentences(60, seed=seed))
        words = find_words(ids_N, STARTS_V)
        type_W, first_C = word_types(ids_N, words)
        places = defaultdict(list)
        for place, word in enumerate(words_of(ids_N, words)):
            places[word].append(place)
        assert sorted(set(type_W.tolist())) == [*range(len(places))] == [*range(len(first_C))]
        for same in places.values():
            (number,) = set(type_W[same].tolist())
            assert np.flatnonzero(type_W == number).tolist() == same
            assert first_C[number] == same[0]


def test_the_order_and_the_number_of_pieces_tell_words_apart():
    # The same pieces in another order, one of them twice, one of them left out: what a plain sum would confuse.
    different = [
        (25, 7, 8),
        (25, 8, 7),
        (25, 7, 7),
        (25, 8, 8),
        (25, 7),
        (25, 8),
        (25,),
        (25, 7, 8, 8),
        (26, 7, 8),
    ]
    ids_N = flat([different, different[::-1]])
    type_W, first_C = word_types(ids_N, find_words(ids_N, STARTS_V))
    assert len(set(type_W.tolist())) == 9
    assert type_W[:9].tolist() == type_W[:8:-1].tolist()
    assert sorted(first_C) == [*range(9)]


def test_no_two_of_many_words_are_taken_for_one():
    # All words of three pieces: 20 * 16 * 16, of which two share a number with a probability below 1e-8.
    pieces = itertools.product(range(FIRST_START, V), [UNKNOWN, *range(5, 20)], [UNKNOWN, *range(5, 20)])
    ids_N = flat([[*pieces]])
    type_W, first_C = word_types(ids_N, find_words(ids_N, STARTS_V))
    assert len(first_C) == len(np.unique(type_W)) == 5120


def test_runs_are_numbers_in_turn():
    rng = np.random.default_rng(0)
    for _ in range(50):
        start, length = rng.integers(-20, 100, (2, rng.integers(0, 30)))
        length = np.maximum(length, 0)  # some runs are empty
        plain = [
            *itertools.chain(*(range(a, a + n) for a, n in zip(start.tolist(), length.tolist(), strict=True)))
        ]
        ours = ranges(start, length)
        assert ours.tolist() == plain
        assert ours.dtype == np.int64
