"""PMI n-grams against a plain reference, and what their numbers must be where the text is known to be made so."""

from collections import Counter, defaultdict
from itertools import combinations, groupby, pairwise
from math import log

import numpy as np
import pytest

from lightning_modules.config.masking import PMI
from lightning_modules.data.collocations import collocated, frequent_ngrams, pmi
from lightning_modules.errors import DataError


def settings(**changes) -> PMI:
    return PMI(kind="pmi", **changes)


def text(sentences: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Types and sentence numbers of all words; the numbers rise by two, as if sentences had been left out."""
    sentence_W = np.repeat(2 * np.arange(len(sentences)), [len(sentence) for sentence in sentences])
    return np.array([word for sentence in sentences for word in sentence], dtype=np.int64), sentence_W


def cuts(ngram):
    """All segmentations into two or more parts."""
    for number in range(1, len(ngram)):
        for places in combinations(range(1, len(ngram)), number):
            yield [ngram[start:end] for start, end in pairwise([0, *places, len(ngram)])]


def ranked(type_W, sentence_W, chosen_settings):
    """N-grams with PMI > 0, best first, with the places where each begins: equation 3, one n-gram at a time."""
    begins, places = defaultdict(list), Counter()
    for _, group in groupby(range(len(type_W)), key=lambda w: sentence_W[w]):
        sentence = list(group)
        for n in range(1, chosen_settings.longest + 1):
            for i in range(len(sentence) - n + 1):
                places[n] += 1
                begins[tuple(type_W[sentence[i : i + n]].tolist())].append(sentence[i])
    log_p = {ngram: log(len(where) / places[len(ngram)]) for ngram, where in begins.items()}
    scores = {}
    for ngram, where in begins.items():
        if len(ngram) > 1 and len(where) >= chosen_settings.least_count:
            least = min(log_p[ngram] - sum(log_p[part] for part in parts) for parts in cuts(ngram))
            scores[ngram] = round(least, 9)  # ties are real, not of the last bit
    best_first = sorted(scores, key=lambda ngram: (-scores[ngram], -len(ngram), begins[ngram][0]))
    return [(ngram, begins[ngram]) for ngram in best_first if scores[ngram] > 0]


def reference(type_W, sentence_W, chosen_settings):
    chosen, covered = {}, set()
    for ngram, where in ranked(type_W, sentence_W, chosen_settings):
        if len(covered) / len(type_W) >= chosen_settings.coverage:
            break
        covered |= {w + i for w in where for i in range(len(ngram))}
        for w in where:
            chosen[w] = max(chosen.get(w, 1), len(ngram))
    inside, w = np.ones(len(type_W), bool), 0
    while w < len(type_W):
        inside[w] = False
        w += chosen.get(w, 1)
    return inside


@pytest.mark.parametrize("longest", [2, 3, 5, 8])
@pytest.mark.parametrize("coverage", [0.1, 0.5, 1.0])
def test_equals_the_plain_reference(longest, coverage):
    found = Counter()
    for seed in range(12):
        rng = np.random.default_rng(seed)
        phrases = [rng.integers(0, 8, rng.integers(1, 6)).tolist() for _ in range(8)]  # so that long ones recur
        sentences = [[word for i in rng.integers(0, 8, 1 + s % 4) for word in phrases[i]] for s in range(60)]
        arguments = *text(sentences), settings(longest=longest, coverage=coverage, least_count=2 + seed % 3)
        ours = collocated(*arguments)
        assert ours.dtype == np.bool_
        assert np.array_equal(ours, reference(*arguments))
        found.update(np.diff(np.append(np.flatnonzero(~ours), len(ours))).tolist())
    assert found[1]
    assert found[longest]  # the cases are not empty: units of every extreme occur


def test_planted_collocations_are_found_and_nothing_else():
    rng = np.random.default_rng(0)
    type_W, sentence_W = rng.integers(0, 200, 60_000), np.arange(60_000) // 30
    planted = np.zeros(60_000, bool)
    for place in rng.permutation(2000)[:700] * 30:
        type_W[place + 3 : place + 5] = 7, 8
        type_W[place + 10 : place + 13] = 9, 10, 11
        planted[[place + 4, place + 11, place + 12]] = True
    share = 5 * 700 / 60_000
    # By chance a planted word (1,000 times) and another (300 times) meet 5 times, others less: 20 is out of reach.
    ours = collocated(type_W, sentence_W, settings(least_count=20, coverage=share))
    assert ours[planted].all()
    # The pair and the two pairs in the triple meet by chance, too, 60,000 / 200^2 = 1.5 times each.
    assert (ours & ~planted).sum() < 4.5 + 4 * np.sqrt(4.5)  # four standard deviations of a Poisson count


def test_words_that_are_drawn_independently_have_no_pmi():
    """Twice the counts times PMI sum to the likelihood ratio of independence, chi squared (Wilks 1938)."""
    C, W = 20, 60_000
    type_W = np.random.default_rng(0).integers(0, C, W)
    by_length = frequent_ngrams(type_W, np.zeros(W, int), longest=2, least_count=2)
    count_G = np.exp(by_length[1].log_p_G) * (W - 1)
    assert len(count_G) == C**2
    freedom = (C - 1) ** 2
    ratio = 2 * (count_G * pmi(by_length)[1]).sum()
    assert abs(ratio - freedom) < 4 * np.sqrt(2 * freedom)  # four standard deviations of chi squared


def test_an_ngram_does_not_profit_from_a_collocation_inside_it():
    """Units are drawn independently: five words, and with probability q a pair that is one unit.

    Of U units, W = U (1 + q) words: PMI of the pair is log(W / (U q)), of a word and the pair log(W / U), while
    the words alone would make the latter log(W / U) + log(W / (U q)).
    """
    U, q = 50_000, 0.2
    unit_U = np.random.default_rng(0).choice(6, U, p=[(1 - q) / 5] * 5 + [q])
    type_W = np.array([word for unit in unit_U.tolist() for word in ([5, 6] if unit == 5 else [unit])])
    by_length = frequent_ngrams(type_W, np.zeros(len(type_W), int), longest=3, least_count=2)
    scores = {
        tuple(type_W[first : first + n].tolist()): score
        for n, ngrams, pmi_G in zip((1, 2, 3), by_length, pmi(by_length), strict=True)
        for first, score in zip(ngrams.first_G.tolist(), pmi_G.tolist(), strict=True)
    }
    assert abs(scores[5, 6] - log((1 + q) / q)) < 4 / np.sqrt(U * q)  # four standard errors of a log count
    for word in range(5):
        error = 1 / np.sqrt(U * q * (1 - q) / 5)
        assert abs(scores[word, 5, 6] - log(1 + q)) < 4 * error  # four standard errors of a log count


def test_names_of_the_types_do_not_matter():
    rng = np.random.default_rng(0)
    type_W, sentence_W = np.minimum(rng.geometric(0.2, 2000), 15) - 1, np.arange(2000) // 12
    ours = collocated(type_W, sentence_W, settings())
    assert ours.any()
    renamed = rng.permutation(1000)[:15]
    assert np.array_equal(collocated(renamed[type_W], sentence_W, settings()), ours)


def test_ngrams_do_not_cross_sentences():
    together = text([[0, 1]] * 10 + [[2]] * 10)
    assert collocated(*together, settings()).tolist() == [False, True] * 10 + [False] * 10
    apart = text([[0], [1]] * 10 + [[2]] * 10)
    with pytest.raises(DataError) as caught:
        collocated(*apart, settings())
    assert str(caught.value) == refusal(words=30, least_count=10)


def test_an_ngram_counts_from_least_count_on():
    sentences = [[0, 1]] * 9 + [[2, 3]] * 10 + [[4]] * 100
    expected = [False] * 18 + [False, True] * 10 + [False] * 100
    assert collocated(*text(sentences), settings(least_count=10, coverage=1)).tolist() == expected
    with pytest.raises(DataError) as caught:
        collocated(*text(sentences), settings(least_count=11))
    assert str(caught.value) == refusal(words=138, least_count=11)
    with pytest.raises(DataError) as caught:
        collocated(*text([]), settings())
    assert str(caught.value) == refusal(words=0, least_count=10)


def refusal(*, words, least_count):
    return (
        f"objective.masking.select: pmi needs word n-grams that occur at least {least_count} times (least_count), "
        f"but no two words of the training text ({words}) are neighbours so often; lower least_count or give more "
        f"text."
    )


@pytest.mark.parametrize(("coverage", "pairs"), [(0.01, 1), (0.1, 1), (0.11, 2), (0.3, 2), (0.31, 3), (1.0, 4)])
def test_as_many_ngrams_are_chosen_as_cover_the_share_of_words(coverage, pairs):
    """Pair i occurs c = 10 (i + 1) times and makes up c of 100 sentences: its PMI is log(400 / c)."""
    type_W, sentence_W = text([[2 * i, 2 * i + 1] for i in range(4) for _ in range(10 * (i + 1))])
    ours = collocated(type_W, sentence_W, settings(coverage=coverage))
    assert np.array_equal(ours, (type_W % 2 == 1) & (type_W < 2 * pairs))


def test_of_equally_good_ngrams_the_longer_comes_first_then_the_earlier():
    """W = 90 words, 30 places for pairs and 10 for triples: PMI is log(90 x 90 / (30 x 10)) of each pair and
    log(90 x 30 / (10 x 10)) of the triple, which is the same."""
    type_W, sentence_W = text([[3, 4]] * 10 + [[0, 1, 2]] * 10 + [[5]] * 40)
    ours = collocated(type_W, sentence_W, settings(coverage=30 / 90))
    assert np.array_equal(ours, np.isin(type_W, [1, 2]))
    ours = collocated(type_W, sentence_W, settings(coverage=31 / 90))
    assert np.array_equal(ours, np.isin(type_W, [1, 2, 4]))


def test_no_ngram_is_chosen_where_none_has_more_than_chance():
    """One word again and again: it never predicts itself better than its frequency does."""
    assert not collocated(*text([[0] * 30] * 5), settings(coverage=1)).any()
