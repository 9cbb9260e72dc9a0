"""Shuffled and redrawn text against plain references, and the laws of each order over many sentences."""

import itertools
import json
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

from lightning_modules.config.training import Blocks, Corpus, Natural, NGrams, UniformDraw
from lightning_modules.data import tokenizer as subwords
from lightning_modules.data import word_order
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, START, UNKNOWN
from lightning_modules.data.word_order import disjoint_starts, reordered
from lightning_modules.errors import DataError
from lightning_modules.randomness import derive, uniforms
from tests.support.errors import error_text

V, FIRST_START = 400, 50
STARTS_V = np.arange(V) >= FIRST_START  # ids from 50 begin a word, 5 to 49 continue one

Word = tuple[int, ...]


def split_of(sentences: list[list[Word]]) -> Split:
    """A split of sentences of words, two sentences a document."""
    ids = [[START, *itertools.chain(*words), END] for words in sentences]
    flat = np.fromiter(itertools.chain(*ids), np.uint16)
    offsets = np.cumsum([0, *map(len, ids)])
    flat.flags.writeable = False  # as those of a token store are, and so that no test can miss a change
    return Split(flat, offsets, (np.arange(len(ids)) // 2).astype(np.int32))


def sentences_of(split: Split, *, unit: str = "words") -> list[list[Word]]:
    """Back to words, or to pieces, one token at a time."""
    sentences = []
    for i in range(len(split)):
        ids = split.sentence(i).tolist()
        assert (ids[0], ids[-1]) == (START, END)
        units: list[Word] = []
        for piece in ids[1:-1]:
            if unit == "sub_words" or STARTS_V[piece]:
                units.append((piece,))
            else:
                units[-1] += (piece,)
        sentences.append(units)
    return sentences


@cache
def text(count: int = 300, *, seed: int = 0) -> Split:
    """Sentences of 0 to 20 words of 1 to 4 pieces; unknown bytes occur, and some words far more than others."""
    rng = np.random.default_rng(seed)
    continuing = [UNKNOWN, *range(FIRST_WORD_ID, FIRST_START)]
    lexicon = [
        (int(rng.integers(FIRST_START, V)), *rng.choice(continuing, rng.integers(0, 4))) for _ in range(150)
    ]
    weights = 1 / np.arange(1, len(lexicon) + 1)
    lengths = [0, 1, 2, *rng.integers(0, 21, count - 3)]
    draws = [rng.choice(len(lexicon), length, p=weights / weights.sum()) for length in lengths]
    return split_of([[tuple(map(int, lexicon[i])) for i in draw] for draw in draws])


def distinct(count: int, *, words: int) -> Split:
    """Sentences of the same words of one piece, each once: what stands where can be read from the ids."""
    return split_of([[(FIRST_START + i,) for i in range(words)]] * count)


def arranged(split: Split, order: Any, *, seed: int = 0, max_length: int = 10_000) -> tuple[Split, dict[str, Any]]:
    return reordered(split, order, starts_V=STARTS_V, max_length=max_length, seed=seed)


def sub_words(order: Any) -> Any:
    return order.model_copy(update={"unit": "sub_words"})


ONE, TWO, THREE, FOUR = (NGrams(kind="ngrams", n=n) for n in (1, 2, 3, 4))
BLOCKS, CORPUS, UNIFORM = Blocks(kind="blocks", length=32), Corpus(kind="corpus"), UniformDraw(kind="uniform")
NATURAL = Natural(kind="natural")
ORDERS = [o for order in (ONE, TWO, FOUR, BLOCKS, CORPUS, UNIFORM) for o in (order, sub_words(order))]
IDS = [f"{o.kind}{getattr(o, 'n', '')} of {o.unit}" for o in ORDERS]


# Plain references: one unit at a time --------------------------------------------------------------------


def circle(items: list[Any], chances: list[float]) -> list[Any]:
    """Each item takes the place of the one before it in the order of their chances."""
    ranked = sorted(range(len(items)), key=lambda i: chances[i])
    placed = dict(zip(ranked, ranked[1:] + ranked[:1], strict=True))
    return [items[placed[i]] for i in range(len(items))]


def chosen_one_by_one(starts: list[int], priorities: list[float], n: int) -> list[int]:
    taken: set[int] = set()
    chosen = []
    for _, start in sorted(zip(priorities, starts, strict=True)):
        run = set(range(start, start + n))
        if not run & taken:
            taken |= run
            chosen.append(start)
    return sorted(chosen)


def chance(key: int, *counters: int) -> float:
    return uniforms(key, *(np.array([counter]) for counter in counters)).item()


def reference_ngrams(units: list[Word], sentence: int, n: int, seed: int) -> list[Word]:
    key = derive(seed, "word order")
    starts = list(range(len(units) - n + 1))
    joined = chosen_one_by_one(starts, [chance(key, sentence, i, 0) for i in starts], n) if n > 1 else []
    inside = {start + k for start in joined for k in range(1, n)}
    opening = [i for i in range(len(units)) if i not in inside]
    groups = [units[a:b] for a, b in itertools.pairwise([*opening, len(units)])]
    return [unit for group in circle(groups, [chance(key, sentence, i, 1) for i in opening]) for unit in group]


def reference_blocks(units: list[Word], length: int, seed: int) -> list[Word]:
    key, new = derive(seed, "word order"), []
    for block in range(0, len(units), length):
        inside = units[block : block + length]
        new += circle(inside, [chance(key, block // length, i) for i in range(len(inside))])
    return new


@pytest.mark.parametrize("n", [2, 3, 4])
def test_rounds_choose_what_one_by_one_chooses(n):
    rng = np.random.default_rng(n)
    for _ in range(200):
        starts = np.flatnonzero(rng.random(rng.integers(0, 80)) < 0.8)
        priorities = rng.integers(0, 20, len(starts)) / 20  # with many ties
        ours = disjoint_starts(starts, priorities, n=n)
        assert ours.tolist() == chosen_one_by_one(starts.tolist(), priorities.tolist(), n)


@pytest.mark.parametrize("unit", ["words", "sub_words"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 30])
def test_ngrams_equal_the_plain_reference(n, unit):
    new, _ = arranged(text(60), NGrams(kind="ngrams", n=n, unit=unit), seed=5)
    natural = sentences_of(text(60), unit=unit)
    wanted = [reference_ngrams(units, i, n, 5) for i, units in enumerate(natural)]
    assert sentences_of(new, unit=unit) == wanted


@pytest.mark.parametrize("unit", ["words", "sub_words"])
@pytest.mark.parametrize("length", [2, 7, 100_000])
def test_blocks_equal_the_plain_reference(length, unit):
    new, _ = arranged(text(60), Blocks(kind="blocks", length=length, unit=unit), seed=5)
    natural, ours = sentences_of(text(60), unit=unit), sentences_of(new, unit=unit)
    assert [*itertools.chain(*ours)] == reference_blocks([*itertools.chain(*natural)], length, 5)
    assert [*map(len, ours)] == [*map(len, natural)]


# What every order keeps ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS, ids=IDS)
def test_sentences_documents_and_translations_stay(order):
    natural = text()
    natural = Split(natural.ids, natural.offsets, natural.documents, natural.ids[:50], np.array([0, 50]))
    before = natural.ids.copy()
    new, manifest = arranged(natural, order)
    assert np.array_equal(natural.ids, before)
    assert new.ids.dtype == natural.ids.dtype
    assert new.documents is natural.documents
    assert new.target_ids is natural.target_ids
    assert new.target_offsets is natural.target_offsets
    assert len(new.offsets) == len(natural.offsets)
    assert new.offsets.dtype == np.int64
    old_units, new_units = (sentences_of(s, unit=order.unit) for s in (natural, new))
    assert [*map(len, new_units)] == [*map(len, old_units)]
    assert manifest["sentences"] == len(natural)
    assert manifest["tokens"] == len(new.ids) == new.offsets[-1]


@pytest.mark.parametrize("order", ORDERS, ids=IDS)
def test_depends_on_the_seed_and_not_on_how_much_is_done_at_once(order, monkeypatch):
    first, manifest = arranged(text(), order, seed=1)
    other, _ = arranged(text(), order, seed=2)
    assert not np.array_equal(first.ids, other.ids)
    monkeypatch.setattr(word_order, "TOKENS_AT_ONCE", 40)
    again, again_manifest = arranged(text(), order, seed=1)
    assert np.array_equal(again.ids, first.ids)
    assert np.array_equal(again.offsets, first.offsets)
    assert again_manifest == manifest


@pytest.mark.parametrize("order", [ONE, TWO, FOUR], ids=["1", "2", "4"])
def test_ngrams_of_a_sentence_depend_on_no_other_sentence(order):
    here, there = sentences_of(text(seed=0)), sentences_of(text(seed=1))
    mixed = [ours if i % 3 else others for i, (ours, others) in enumerate(zip(here, there, strict=True))]
    new, _ = arranged(split_of(here), order)
    new_mixed, _ = arranged(split_of(mixed), order)
    for i in range(len(here)):
        assert not i % 3 or np.array_equal(new_mixed.sentence(i), new.sentence(i))
    assert sentences_of(new)[1:] != sentences_of(arranged(split_of(here[1:]), order)[0])  # but on its number


@pytest.mark.parametrize("order", [ONE, THREE, sub_words(ONE), sub_words(THREE)])
def test_ngrams_keep_the_units_and_the_length_of_every_sentence(order):
    new, manifest = arranged(text(), order, max_length=int(text().lengths.max()))
    old_units, new_units = (sentences_of(s, unit=order.unit) for s in (text(), new))
    assert [*map(Counter, new_units)] == [*map(Counter, old_units)]
    assert np.array_equal(new.offsets, text().offsets)
    assert manifest["cut_sentences"] == 0


@pytest.mark.parametrize("order", [BLOCKS, sub_words(BLOCKS)], ids=["words", "sub_words"])
def test_blocks_keep_the_units_of_every_block_and_mix_sentences(order):
    new, _ = arranged(text(), order)
    old, ours = ([*itertools.chain(*sentences_of(s, unit=order.unit))] for s in (text(), new))
    for block in range(0, len(old), order.length):
        assert Counter(ours[block : block + order.length]) == Counter(old[block : block + order.length])
    old_units, new_units = (sentences_of(s, unit=order.unit) for s in (text(), new))
    assert [*map(Counter, new_units)] != [*map(Counter, old_units)]


@pytest.mark.parametrize("order", [CORPUS, UNIFORM])
def test_redrawn_text_has_units_of_the_text_but_not_as_often(order):
    new, _ = arranged(text(), order)
    old, ours = (Counter(itertools.chain(*sentences_of(s))) for s in (text(), new))
    assert set(ours) <= set(old)
    assert ours != old


# Laws of chance: tolerances are four standard errors ------------------------------------------------------


def test_single_words_form_every_cyclic_order_equally_often():
    count = 6000
    new, manifest = arranged(distinct(count, words=4), ONE)
    orders = Counter(tuple(ids) for ids in (new.ids.reshape(count, 6)[:, 1:-1] - FIRST_START).tolist())

    def cyclic(order: tuple[int, ...]) -> bool:
        return order[0] and order[order[0]] and order[order[order[0]]]  # back at 0 after all four, not before

    assert set(orders) == {order for order in itertools.permutations(range(4)) if cyclic(order)}
    chi_squared = sum((n - count / 6) ** 2 / (count / 6) for n in orders.values())
    assert abs(chi_squared - 5) < 4 * np.sqrt(2 * 5)
    assert manifest["moved_share"] == 1


def test_no_single_word_keeps_its_place_unless_it_is_alone():
    for words in (2, 3, 20):
        natural = distinct(500, words=words)
        inside = natural.ids >= FIRST_START
        assert (arranged(natural, ONE)[0].ids != natural.ids)[inside].all()
    alone = distinct(5, words=1)
    assert np.array_equal(arranged(alone, ONE)[0].ids, alone.ids)


@cache
def expected_joined(words: int, n: int) -> float:
    """Mean number of n-grams among so many words: the first splits the rest into two parts of the same kind."""
    starts = words - n + 1
    if starts < 1:
        return 0.0
    parts = (expected_joined(left, n) + expected_joined(words - n - left, n) for left in range(starts))
    return 1 + sum(parts) / starts


def test_bigrams_survive_as_often_as_the_laws_say_and_more_for_longer_ngrams():
    count, words, shares = 3000, 12, []
    for order in (ONE, TWO, THREE, FOUR):
        new, manifest = arranged(distinct(count, words=words), order)
        inside = new.ids.reshape(count, words + 2)[:, 1:-1].astype(int)
        survivors = (np.diff(inside) == 1).sum(1)
        # Inside n-grams n - 1 each; between g >= 3 groups, g - 1 with a chance of 1 / (g - 1) each: one in all.
        expected = expected_joined(words, order.n) * (order.n - 1) + 1 if order.n > 1 else 1
        assert abs(survivors.mean() - expected) < 4 * survivors.std() / np.sqrt(count)
        shares.append(manifest["bigrams_survived_share"])
        assert shares[-1] == pytest.approx(survivors.mean() / (words - 1), abs=1e-12)  # float64
    assert shares == sorted(shares)
    assert len(set(shares)) == 4


def chi_squared(observed: Counter[Word], expected: dict[Word, float]) -> tuple[float, float]:
    """Chi squared and its bound, the mean and four standard deviations of its law.

    Its variance for cells of few counts: 2 f + sum(1 / expected) - ((f + 1)^2 + 2 f) / n, f degrees of freedom.
    """
    n, freedom = sum(observed.values()), len(expected) - 1
    value = sum((observed[cell] - mean) ** 2 / mean for cell, mean in expected.items())
    variance = 2 * freedom + sum(1 / mean for mean in expected.values()) - ((freedom + 1) ** 2 + 2 * freedom) / n
    return value, freedom + 4 * np.sqrt(variance)


@pytest.mark.parametrize("unit", ["words", "sub_words"])
def test_corpus_draws_follow_the_frequencies_and_uniform_draws_the_types(unit):
    count = Counter(itertools.chain(*sentences_of(text(2000), unit=unit)))
    n = count.total()
    uniform = dict.fromkeys(count, n / len(count))
    frequencies = {cell: float(times) for cell, times in count.items()}
    for order, follows, differs in ((CORPUS, frequencies, uniform), (UNIFORM, uniform, frequencies)):
        new, _ = arranged(text(2000), order if unit == "words" else sub_words(order))
        observed = Counter(itertools.chain(*sentences_of(new, unit=unit)))
        value, bound = chi_squared(observed, follows)
        assert value < bound
        value, bound = chi_squared(observed, differs)
        assert value > 10 * bound


def test_draws_at_different_places_have_nothing_to_do_with_each_other():
    natural = split_of([[(FIRST_START,), (FIRST_START + 1,)]] * 20_000)  # a fair coin, twice a sentence
    for order in (CORPUS, UNIFORM):
        coins = arranged(natural, order)[0].ids.reshape(-1, 4)[:, 1:3].astype(int) - FIRST_START
        same = [(coins[:, 0] == coins[:, 1]).mean(), (coins[1:, 0] == coins[:-1, 0]).mean(), coins.mean()]
        assert np.abs(np.array(same) - 0.5).max() < 4 * 0.5 / np.sqrt(19_999)


# Inside of n-grams and of words ---------------------------------------------------------------------------


def test_joined_units_stay_together_in_the_new_text():
    for order in (TWO, FOUR):
        for words in sentences_of(arranged(distinct(300, words=20), order)[0]):
            follows = [b == a + 1 for (a,), (b,) in itertools.pairwise(words)]
            runs = [1 + len([*run]) for kept, run in itertools.groupby(follows) if kept]
            # Between two n-grams at most n - 1 words are left over: k n-grams cover k n + (k + 1)(n - 1) >= 20.
            joined = -(-(20 - order.n + 1) // (2 * order.n - 1))
            assert sum(length // order.n for length in runs) >= joined


def inner_pairs(split: Split) -> set[Word]:
    """Adjacent tokens of which the second continues a word."""
    pairs = itertools.pairwise(split.ids.tolist())
    return {(a, b) for a, b in pairs if b == UNKNOWN or FIRST_WORD_ID <= b < FIRST_START}


@pytest.mark.parametrize("order", [ONE, TWO, BLOCKS, CORPUS, UNIFORM], ids=lambda order: order.kind)
def test_words_stay_whole_before_and_break_after_sub_words(order):
    natural = inner_pairs(text())
    assert inner_pairs(arranged(text(), order)[0]) <= natural
    broken = inner_pairs(arranged(text(), sub_words(order))[0])
    assert not broken <= natural
    assert START in {first for first, _ in broken}


@pytest.mark.parametrize("order", [ONE, THREE, Blocks(kind="blocks", length=10)], ids=["1", "3", "blocks"])
def test_shuffled_tokens_are_the_tokens_of_the_shuffled_text(order):
    texts = [
        "The naïve dog, who didn't bark; saw 12 cats (and 3.5 birds)!",
        "a  -- of",
        "Σ∂ é birds' dog-house don't don't",
        "cats",
        "unseen bytes: 猫 🐈 in the middle of a wo猫rd",
    ]
    texts = [" ".join(text.split()) for text in texts]  # as a corpus is read
    tokenizer = subwords.train(texts[:3], 80, source="text")
    starts_V = subwords.starts_word(tokenizer)
    ids = subwords.encode(tokenizer, texts)
    flat, offsets = np.array([*itertools.chain(*ids)], np.uint16), np.cumsum([0, *map(len, ids)])
    assert UNKNOWN in flat
    split = Split(flat, offsets, np.zeros(len(texts), np.int32))
    new, _ = reordered(split, order, starts_V=starts_V, max_length=200, seed=3)

    words: list[list[Any]] = [text.split() for text in texts]
    if isinstance(order, NGrams):
        shuffled = [reference_ngrams(sentence, i, order.n, 3) for i, sentence in enumerate(words)]
    else:
        running = iter(reference_blocks([*itertools.chain(*words)], order.length, 3))
        shuffled = [[*itertools.islice(running, len(sentence))] for sentence in words]
    assert shuffled != words
    wanted = subwords.encode(tokenizer, [" ".join(sentence) for sentence in shuffled])
    assert [new.sentence(i).tolist() for i in range(len(new))] == wanted


def test_first_words_without_a_beginning_are_refused_and_their_sub_words_are_moved():
    """GPT-2's tokenizer puts no space before a sentence, so its first piece is one that continues a word."""
    sentence = [START, 7, FIRST_START, 8, FIRST_START + 1, END]
    flat = np.array([*sentence, START, FIRST_START, END, START, END], np.uint16)
    split = Split(flat, np.array([0, 6, 9, 11]), np.zeros(3, np.int32))
    assert error_text(DataError, arranged, split, ONE) == (
        "word_order moves words with the spaces before them, but this tokenizer puts no space before the first "
        "word of a sentence (1 of 3 sentences), like that of GPT-2; set training.word_order.unit to sub_words, "
        "or use another data.tokenizer."
    )
    new, _ = arranged(split, sub_words(ONE))
    assert sorted(new.sentence(0).tolist()) == sorted(sentence)
    assert arranged(split, NATURAL)[1]["words"] == 4  # the first word of a sentence counts too


# Sentences that grow too long, and the manifest -----------------------------------------------------------


def cut(units: list[Word], room: int) -> list[Word]:
    """Whole units from the end while it is too long; of the last one left, pieces."""
    while len(units) > 1 and sum(map(len, units)) > room:
        units = units[:-1]
    return [unit[:room] for unit in units]


@pytest.mark.parametrize("order", ORDERS, ids=IDS)
@pytest.mark.parametrize("max_length", [3, 5, 20, 40])
def test_what_is_too_long_loses_units_from_its_end(order, max_length):
    whole, _ = arranged(text(), order)
    new, manifest = arranged(text(), order, max_length=max_length)
    uncut, ours = (sentences_of(split, unit=order.unit) for split in (whole, new))
    assert ours == [cut(units, max_length - 2) for units in uncut]
    assert new.lengths.max() <= max_length
    assert manifest["cut_sentences"] == (whole.lengths > max_length).sum()


@pytest.mark.parametrize("order", ORDERS, ids=IDS)
@pytest.mark.parametrize("max_length", [10, 10_000])
def test_the_manifest_counts_what_a_plain_count_finds(order, max_length):
    new, manifest = arranged(text(), order, seed=4, max_length=max_length)
    words = moved = pairs = survived = 0
    natural, ours = (sentences_of(split, unit=order.unit) for split in (text(), new))
    for old, units in zip(natural, ours, strict=True):
        words += len(units)
        moved += sum(a != b for a, b in zip(old, units, strict=False))
        bigrams = set(itertools.pairwise(old))
        pairs += len([*itertools.pairwise(units)])
        survived += sum(pair in bigrams for pair in itertools.pairwise(units))
    assert manifest == {
        "order": order.model_dump(mode="json"),
        "seed": 4,
        "sentences": len(natural),
        "natural_tokens": len(text().ids),
        "tokens": len(new.ids),
        "words": words,
        "moved_share": moved / words,
        "bigrams_survived_share": survived / pairs,
        "cut_sentences": int((arranged(text(), order, seed=4)[0].lengths > max_length).sum()),
    }
    assert json.loads(json.dumps(manifest)) == manifest


def test_the_natural_order_is_the_split_itself():
    new, manifest = arranged(text(), NATURAL, seed=4)
    assert new is text()
    assert manifest == {
        "order": {"kind": "natural"},
        "seed": 4,
        "sentences": len(new),
        "natural_tokens": len(new.ids),
        "tokens": len(new.ids),
        "words": int(STARTS_V[new.ids].sum()),
        "moved_share": 0.0,
        "bigrams_survived_share": 1.0,
        "cut_sentences": 0,
    }


@pytest.mark.parametrize("order", [NATURAL, *ORDERS], ids=["natural", *IDS])
@pytest.mark.parametrize(
    "sentences", [[], [[]], [[], [(FIRST_START,)], [], []]], ids=["none", "empty", "one word"]
)
def test_text_with_nothing_to_move_stays(order, sentences, monkeypatch):
    monkeypatch.setattr(word_order, "TOKENS_AT_ONCE", 1)  # every sentence by itself
    natural = split_of(sentences)
    new, manifest = arranged(natural, order)
    assert np.array_equal(new.ids, natural.ids)
    assert np.array_equal(new.offsets, natural.offsets)
    assert (manifest["moved_share"], manifest["bigrams_survived_share"]) == (0.0, 1.0)
