"""The trigram model against counting by hand, and the laws of probability."""

import itertools
import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from ablations.tasks.language_models.generation import NEVER_ASKED, Judge, ngrams
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, START, UNKNOWN

A, B, C, D = range(FIRST_WORD_ID, FIRST_WORD_ID + 4)
V = FIRST_WORD_ID + 4
ASKED = [i for i in range(V) if i not in NEVER_ASKED]


def split_of(*sentences):
    whole = [np.array([START, *sentence, END], np.uint16) for sentence in sentences]
    return Split(
        ids=np.concatenate(whole),
        offsets=np.cumsum([0, *map(len, whole)]),
        documents=np.arange(len(whole), dtype=np.int32),
    )


def counted(sentences):
    """Kneser-Ney with tables of Python, as a function of a token and the two before it."""
    grams = Counter()
    for sentence in sentences:
        ids = [START, START, *sentence, END]
        grams.update(zip(ids, ids[1:], ids[2:], strict=False))

    tables = {3: grams}
    for k in (2, 1):
        tables[k] = Counter(gram[1:] for gram in tables[k + 1])

    def probability(*gram):
        if not gram:
            return 1 / len(ASKED)
        table = tables[len(gram)]
        once, twice = (sum(count == n for count in table.values()) for n in (1, 2))
        discount = (once + 0.5) / (once + 2 * twice + 1)
        after = {other: count for other, count in table.items() if other[:-1] == gram[:-1]}
        lower = probability(*gram[1:])
        if not after:
            return lower
        own = max(table[gram] - discount, 0) if gram in table else 0
        return (own + discount * len(after) * lower) / sum(after.values())

    return probability


SENTENCES = [(A, B), (A, B), (A, C), (B,), (A, B, C, A, B), (UNKNOWN, C), ()]


def test_trigrams_start_anew_with_every_sentence():
    ids = np.array([START, A, B, END, START, END, START, C, END])
    assert ngrams(ids).tolist() == [
        [START, START, A],
        [START, A, B],
        [A, B, END],
        [START, START, END],
        [START, START, C],
        [START, C, END],
    ]


def test_a_probability_worked_out_on_paper():
    # Two sentences, "A" and "B". Trigrams, each once: START START A, START START B, START A END, START B END.
    # Bigrams as often as different tokens precede them: START A, START B, A END, B END, each once.
    # Tokens likewise: A 1, B 1, END 2.
    judge = Judge(split_of((A,), (B,)), vocab_size=V)
    discount_3 = discount_2 = (4 + 0.5) / (4 + 0 + 1)
    discount_1 = (2 + 0.5) / (2 + 2 * 1 + 1)
    uniform = 1 / (V - 3)
    end = (2 - discount_1) / 4 + discount_1 * 3 / 4 * uniform
    end_after_a = (1 - discount_2) + discount_2 * end
    end_after_start_a = (1 - discount_3) + discount_3 * end_after_a
    assert judge.probabilities(np.array([[START, A, END]]))[0] == pytest.approx(end_after_start_a, rel=1e-12)
    # After C nothing was ever seen: what is left is how many tokens END follows.
    assert judge.probabilities(np.array([[A, C, END]]))[0] == pytest.approx(end, rel=1e-12)


def test_every_probability_is_that_of_plain_tables():
    judge, slow = Judge(split_of(*SENTENCES), vocab_size=V), counted(SENTENCES)
    grams = list(itertools.product([START, *ASKED], [START, *ASKED], ASKED))
    np.testing.assert_allclose(judge.probabilities(np.array(grams)), [slow(*gram) for gram in grams], rtol=1e-12)


def test_the_probabilities_after_any_context_sum_to_one(tokens):
    judge, size = Judge(tokens.train, vocab_size=tokens.vocab_size), tokens.vocab_size
    seen = ngrams(tokens.validation.ids.astype(np.int64))[:40, :2]
    never = np.array([[size - 1, size - 2], [END, END]])
    asked = np.setdiff1d(np.arange(size), NEVER_ASKED)
    for context in np.concatenate([seen, never]):
        share = judge.probabilities(np.column_stack([np.tile(context, (len(asked), 1)), asked]))
        assert (share > 0).all()
        assert share.sum() == pytest.approx(1, abs=1e-10)


def test_nothing_is_impossible_even_where_nothing_was_counted_once():
    judge = Judge(split_of(*[(A, B)] * 5), vocab_size=V)
    (nats,) = judge.nats([np.array([START, D, C, END])])
    assert np.isfinite(nats).all()
    assert (nats > judge.nats([np.array([START, A, B, END])])[0]).all()


def test_nats_are_of_every_token_but_start_and_do_not_depend_on_other_sentences(tokens):
    judge = Judge(tokens.train, vocab_size=tokens.vocab_size)
    sentences = [tokens.validation.sentence(i) for i in range(10)]
    together = judge.nats(sentences)
    for sentence, nats in zip(sentences, together, strict=True):
        assert len(nats) == len(sentence) - 1
        np.testing.assert_array_equal(nats, judge.nats([sentence])[0])


def test_it_prefers_the_order_of_the_text_and_other_orders_to_other_tokens(tokens):
    judge = Judge(tokens.train, vocab_size=tokens.vocab_size)
    rng = np.random.default_rng(0)
    natural = [tokens.validation.sentence(i) for i in range(len(tokens.validation))]
    mixed = [np.r_[START, rng.permutation(sentence[1:-1]), END] for sentence in natural]
    random = [np.r_[START, rng.integers(FIRST_WORD_ID, tokens.vocab_size, len(s) - 2), END] for s in natural]
    mean = [np.concatenate(judge.nats(sentences)).mean() for sentences in (natural, mixed, random)]
    assert mean == sorted(mean)
    assert math.isfinite(mean[-1])


def test_more_counts_are_not_more_contexts():
    """Kneser and Ney's point: C is as frequent as B but only ever follows A, so it is less likely after a context
    that was never seen."""
    sentences = [(A, C)] * 6 + [(A, B), (D, B), (B,), (A, B), (D, B), (B,)]
    judge = Judge(split_of(*sentences), vocab_size=V)
    frequency = Counter(itertools.chain(*sentences))
    assert frequency[B] == frequency[C]
    b, c = judge.probabilities(np.array([[C, UNKNOWN, B], [C, UNKNOWN, C]]))
    assert b > c
    followers = defaultdict(set)
    for sentence in sentences:
        for before, token in zip([START, *sentence], sentence, strict=False):
            followers[token].add(before)
    assert len(followers[B]) == 3
    assert len(followers[C]) == 1
