"""Words that masking selects: lists of words (lexica), and n-grams whose words predict each other (PMI).

A word of a text is in a list if `bare` writes both alike. Words are separated by spaces. A treebank cuts some
of them in two, as "don't" into "do" and "n't"; such a word of a text is not in a list made from the treebank.

Source of PMI: Levine et al. 2021, "PMI-Masking", section 3 (https://arxiv.org/abs/2010.01825), equation 3:

    PMI_n(g) = min over segmentations of g of log( p(g) / product of p(part) )

The minimum is over all ways to cut the n-gram g into two or more contiguous parts. The score is high only if
no such cut explains the n-gram, so that "is the United States" does not profit from "United States".

We differ from Levine et al., as the README of their repository AI21Labs/pmi-masking describes it. They rank
each length by itself, since PMI_n depends on the length, and take half of their list from pairs, a quarter
from triples and an eighth each from 4- and 5-grams. We rank all lengths together, so that no shares have to
be set. (Their lists also multiply p(g) in once more, which prefers frequent n-grams; we follow the article.)
If chosen n-grams overlap in the text, they take one at random, and we take the one that begins first. Words
of n-grams are compared as they are written, with case and punctuation.

Letters: N tokens, W words of a text, C types (different words), G n-grams of one length, R n-grams of all
lengths, best first.
"""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from lightning_modules.config.data import Data, LanguageData
from lightning_modules.config.masking import PMI, Cloze, GenericWords
from lightning_modules.data.tables import numbered_lines, status_of
from lightning_modules.data.token_store import Words, word_types
from lightning_modules.data.tokenizer import UNKNOWN, decode, space_before
from lightning_modules.data.treebank import parquet_rows, read_treebank
from lightning_modules.errors import DataError

DECIMALS = 9
"""Decimals to which PMI is rounded, so that ties and signs do not depend on the order of additions."""


class NGrams(NamedTuple):
    """N-grams of one length that occur often enough."""

    at_W: NDArray[np.int32]
    """Number of the n-gram that begins at each word; -1 if there is none, or a rare one."""
    first_G: NDArray[np.int64]
    """Place of the first occurrence of each n-gram."""
    log_p_G: NDArray[np.float64]
    """Natural log of (occurrences / places where an n-gram of this length fits). Occurrences may overlap."""


def collocated(type_W: NDArray[np.integer], sentence_W: NDArray[np.integer], settings: PMI) -> NDArray[np.bool_]:
    """Return a mask of the words that are hidden together with the word before, because both belong to one
    n-gram.

    N-grams of 2 to `longest` words are ranked by PMI_n, if they have at least `least_count` occurrences and a
    positive PMI_n. Among equals the longer comes first, then the one that occurs first. N-grams are chosen,
    best first, until a share `coverage` of all words lies inside an occurrence of one; all are chosen if they
    do not suffice. The text is then cut into units from left to right: always the longest chosen n-gram that
    begins there, or else a single word. The share of words in units of several is somewhat below `coverage`,
    since a word stays alone if all n-grams around it overlap an earlier unit.

    Args:
        type_W: number of each word's type, from 0.
        sentence_W: number of each word's sentence, rising; n-grams do not cross sentences.

    Raises:
        DataError: no n-gram occurs `least_count` times.
    """
    by_length = frequent_ngrams(type_W, sentence_W, longest=settings.longest, least_count=settings.least_count)
    if len(by_length) < 2:
        raise DataError(
            f"objective.masking.select: pmi needs word n-grams that occur at least {settings.least_count} times "
            f"(least_count), but no two words of the training text ({len(type_W):,}) are "
            "neighbours so often; lower least_count, or give more text."
        )
    rank_by_length = _ranks(pmi(by_length), by_length)
    chosen = _number_chosen(by_length, rank_by_length, settings.coverage)
    unit_W = np.ones(len(type_W), np.uint8)  # words of the longest chosen n-gram that begins here
    for n, (ngrams, rank_G) in enumerate(zip(by_length, rank_by_length, strict=True), start=1):
        place = np.flatnonzero(ngrams.at_W >= 0)
        unit_W[place[rank_G[ngrams.at_W[place]] < chosen]] = n
    return _inside_units(unit_W)


def frequent_ngrams(
    type_W: NDArray[np.integer], sentence_W: NDArray[np.integer], *, longest: int, least_count: int
) -> list[NGrams]:
    """Return the words and n-grams that occur at least `least_count` times, one entry for each length from 1
    on.

    The list ends before the first length without such n-grams, at the latest after `longest`.
    """
    by_length: list[NGrams] = []
    place, key = np.arange(len(type_W)), type_W.astype(np.int64)
    for n in range(1, longest + 1):
        if n > 1:
            # An n-gram occurs no more often than its parts, so n-grams with a rare part need no counting.
            before = by_length[-1].at_W
            both = (before[:-1] >= 0) & (before[1:] >= 0) & (sentence_W[:-1] == sentence_W[1:])
            place = np.flatnonzero(both)
            key = before[place] * np.int64(len(by_length[-1].first_G)) + before[place + 1]
        _, first, number, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        often = count >= least_count
        if not often.any():
            break
        places = int((sentence_W[n - 1 :] == sentence_W[: len(sentence_W) - n + 1]).sum())
        renumbered = np.where(often, np.cumsum(often) - 1, -1).astype(np.int32)
        at_W = np.full(len(type_W), -1, np.int32)
        at_W[place] = renumbered[number]
        by_length.append(NGrams(at_W, place[first[often]], np.log(count[often] / places)))
    return by_length


def pmi(by_length: list[NGrams]) -> list[NDArray[np.float64]]:
    """Return PMI_n of every n-gram in nats, rounded, one array a length. Single words have minus infinity."""
    likeliest = [by_length[0].log_p_G]  # by length: largest sum of log p over the parts of a cut, or log p
    pmi_by_length = [np.full(len(by_length[0].first_G), -np.inf)]
    for n, ngrams in enumerate(by_length[1:], start=2):
        cut_G = np.full(len(ngrams.first_G), -np.inf)
        for k in range(1, n):
            left, right = by_length[k - 1].at_W[ngrams.first_G], by_length[n - k - 1].at_W[ngrams.first_G + k]
            cut_G = np.maximum(cut_G, by_length[k - 1].log_p_G[left] + likeliest[n - k - 1][right])
        pmi_by_length.append(np.round(ngrams.log_p_G - cut_G, DECIMALS))
        likeliest.append(np.maximum(ngrams.log_p_G, cut_G))
    return pmi_by_length


def _ranks(pmi_by_length: list[NDArray[np.float64]], by_length: list[NGrams]) -> list[NDArray[np.int64]]:
    """Return the rank of every n-gram among those of all lengths, from 0. N-grams without a positive PMI all
    have the last rank."""
    sizes = [len(pmi_G) for pmi_G in pmi_by_length]
    length_R = np.repeat(np.arange(len(sizes)), sizes)
    pmi_R, first_R = np.concatenate(pmi_by_length), np.concatenate([ngrams.first_G for ngrams in by_length])
    order_R = np.lexsort((first_R, -length_R, -pmi_R))
    rank_R = np.empty(len(order_R), np.int64)
    rank_R[order_R] = np.arange(len(order_R))
    rank_R[pmi_R <= 0] = len(rank_R)
    return np.split(rank_R, np.cumsum(sizes)[:-1])


def _number_chosen(by_length: list[NGrams], rank_by_length: list[NDArray[np.int64]], coverage: float) -> int:
    """Return the number of best n-grams that cover a share of the words; all if they cover less."""
    W, R = len(by_length[0].at_W), sum(map(len, rank_by_length))
    best_W = np.full(W, R)  # rank of the best n-gram that each word lies in
    for n, (ngrams, rank_G) in enumerate(zip(by_length, rank_by_length, strict=True), start=1):
        place = np.flatnonzero(ngrams.at_W >= 0)
        rank = rank_G[ngrams.at_W[place]]
        for inside in range(n):
            best_W[place + inside] = np.minimum(best_W[place + inside], rank)
    covered_R = np.cumsum(np.bincount(best_W, minlength=R + 1)[:R])
    # The quotient of integers is rounded as the setting was when it was read: 7 / 100 is exactly 0.07.
    enough = int(np.searchsorted(covered_R / W, coverage))
    return min(enough + 1, R)


def _inside_units(unit_W: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return a mask of the words that continue a unit, if the text is cut into units from left to right."""
    # The beginning of a unit depends on all units before it. This loop costs 0.1 microseconds a word.
    inside, steps, w = bytearray(b"\x01") * len(unit_W), unit_W.tobytes(), 0
    while w < len(steps):
        inside[w] = 0
        w += steps[w]
    return np.frombuffer(inside, np.bool_)


COMMENTS = (";", "#")
"""Beginnings of lines that hold no word; published opinion lexica have such lines."""

LANGUAGE_SENTENCES = 20_000
"""Number of training sentences in which the words of the built-in language are tagged, however many a run
trains on. They take a second. In language 0 they lack one of the 1,293 words of 60,000 sentences."""

WHERE = "objective.masking.select"


def bare(word: str) -> str:
    """Return a word without case (Unicode's case folding) and without punctuation at its ends, in NFC form.

    Punctuation is what Unicode calls punctuation; symbols such as + and $ are kept. A word that is only
    punctuation is kept whole.
    """
    folded = unicodedata.normalize("NFC", word.casefold())
    inner = [i for i, c in enumerate(folded) if not unicodedata.category(c).startswith("P")]
    return folded[inner[0] : inner[-1] + 1] if inner else folded


def resolved(settings: Cloze | GenericWords, *, data: Data, data_root: Path) -> Cloze | GenericWords:
    """Return the settings with the whole list in `words`, sorted, distinct and `bare`, and with empty other
    fields.

    A run keeps these settings, so that it does not depend on files. Resolved settings resolve to themselves. The
    rules between the settings themselves are in `contradictions`.

    Args:
        data: the text of the run. Without a treebank, parts of speech are those of the built-in language.
        data_root: folder where relative paths start.

    Raises:
        DataError: a file or a part of speech is unfit.
    """
    words = set(map(bare, settings.words))
    if settings.file:
        words |= _words_of_file(data_root / settings.file)
    if settings.part_of_speech:
        words |= _words_of_tags(settings, data, data_root)
    empty = {"file": None, "part_of_speech": (), "treebank": None}
    return settings.model_copy(update={"words": tuple(sorted(words)), **empty})


def in_lexicon(
    ids_N: NDArray[np.integer], words: Words, tokenizer: Tokenizer, lexicon: Collection[str]
) -> NDArray[np.bool_]:
    """Return a mask of the words of a text that are in a list. Shape W.

    Words are compared as `bare` writes them. A word of the list counts as it is, and as the tokenizer writes it
    (some remove accents). A word with a byte that the tokenizer does not know is in no list.
    """
    ids_N, space = np.asarray(ids_N), space_before(tokenizer)
    encodings = tokenizer.encode_batch([space + word for word in lexicon], add_special_tokens=False)
    rewritten = {bare(decode(tokenizer, pieces.ids)) for pieces in encodings if UNKNOWN not in pieces.ids}
    listed = {bare(word) for word in lexicon} | rewritten
    type_W, first_C = word_types(ids_N, words)
    belongs_C = np.zeros(len(first_C), np.bool_)
    bounds = zip(words.start_W[first_C].tolist(), words.length_W[first_C].tolist(), strict=True)
    for c, (start, length) in enumerate(bounds):
        pieces = ids_N[start : start + length].tolist()
        belongs_C[c] = UNKNOWN not in pieces and bare(decode(tokenizer, pieces)) in listed
    return belongs_C[type_W]


# Files -----------------------------------------------------------------------------------------------


def _words_of_file(path: Path) -> set[str]:
    where, words = f"{WHERE}.file", set()
    status_of(path, where)
    for number, line in numbered_lines(path):
        word = line.strip()
        if word and not word.startswith(COMMENTS):
            if word.split() != [word]:
                raise DataError(
                    f"{path}, line {number}: {word!r} has a space, but each entry must be one word; write each "
                    "word as an entry of its own."
                )
            words.add(bare(word))
    if not words:
        raise DataError(
            f"{path} has no words ({where}): all its lines are blank or begin with {' or '.join(COMMENTS)}; "
            "write one word in each line."
        )
    return words


# Parts of speech -------------------------------------------------------------------------------------


def _words_of_tags(settings: Cloze | GenericWords, data: Data, data_root: Path) -> set[str]:
    """Return the words whose most frequent tag is among the given tags."""
    tag_by_word: Mapping[str, str]
    if settings.treebank:
        path = data_root / settings.treebank
        tag_by_word, source = _most_frequent_tags(_treebank(path)), str(path)
    else:
        assert isinstance(data, LanguageData), "other data need a treebank"
        tag_by_word, source = _tags_of_language(data.seed), "the built-in language"
    tags = set(tag_by_word.values())
    for tag in settings.part_of_speech:
        if tag not in tags:
            listed = ", ".join(sorted(tags))
            instead = (
                f"only {listed}; name one of these"
                if tags
                else ("because no word has a tag; name another treebank")
            )
            raise DataError(f"{WHERE}.part_of_speech: no word of {source} is most often {tag!r}, {instead}.")
    return {word for word, tag in tag_by_word.items() if tag in settings.part_of_speech}


def _most_frequent_tags(tagged: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Return the most frequent tag of each bare word. Ties go to the alphabetically first tag."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (form, tag), count in Counter(tagged).items():
        if form.split() == [form]:  # some treebanks have words such as "1 000"
            counts[bare(form)][tag] += count
    return {word: min(tags, key=lambda tag: (-tags[tag], tag)) for word, tags in counts.items()}


@lru_cache(maxsize=2)  # every arm with a lexicon asks again
def _tags_of_language(seed: int) -> Mapping[str, str]:
    return MappingProxyType(_most_frequent_tags(_language(seed)))


def _language(seed: int) -> Iterator[tuple[str, str]]:
    from lightning_modules.data.language import language_of  # only imported where it is needed

    for _, sentence in language_of(seed).sentences("train", LANGUAGE_SENTENCES):
        yield from zip(sentence.words, sentence.tags, strict=True)


def _treebank(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the words and tags of a treebank, in order. Words without a tag ("_") are left out."""
    status_of(path, f"{WHERE}.treebank")
    if path.name.lower().endswith(".parquet"):
        rows = parquet_rows(path, ("tokens", "upos"), where=f" ({WHERE}.treebank)")
    else:
        rows = ((sentence.words, sentence.tags) for sentence in read_treebank(path))
    for words, tags in rows:
        yield from ((word, tag) for word, tag in zip(words, tags, strict=True) if tag not in ("", "_"))
