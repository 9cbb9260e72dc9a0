"""Word lists: whatever they are made from, the same words, sorted; and which words of a text are in them.

PMI n-grams against a plain reference, and what their numbers must be where the text is known to be made so.
"""

from collections import Counter, defaultdict
from itertools import combinations, groupby, pairwise
from math import log
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightning_modules.config.data import FilesData, LanguageData
from lightning_modules.config.masking import PMI, Cloze, GenericWords
from lightning_modules.data.language import Language
from lightning_modules.data.lexica import bare, collocated, frequent_ngrams, in_lexicon, pmi, resolved
from lightning_modules.data.token_store import find_words
from lightning_modules.data.tokenizer import SPECIAL_TOKENS, UNKNOWN, encode, read_tokenizer, starts_word, train
from lightning_modules.errors import DataError
from tests.support.errors import error_text


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
    assert error_text(DataError, lambda: collocated(*apart, settings())) == refusal(words=30, least_count=10)


def test_an_ngram_counts_from_least_count_on():
    sentences = [[0, 1]] * 9 + [[2, 3]] * 10 + [[4]] * 100
    expected = [False] * 18 + [False, True] * 10 + [False] * 100
    assert collocated(*text(sentences), settings(least_count=10, coverage=1)).tolist() == expected
    assert error_text(DataError, lambda: collocated(*text(sentences), settings(least_count=11))) == refusal(
        words=138, least_count=11
    )
    assert error_text(DataError, lambda: collocated(*text([]), settings())) == refusal(words=0, least_count=10)


def refusal(*, words, least_count):
    return (
        f"objective.masking.select: pmi needs word n-grams that occur at least {least_count} times "
        f"(least_count), but no two words of the training text ({words}) are neighbours so "
        "often; lower least_count, or give more text."
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


FILES = FilesData(kind="files", train=("train.txt",), validation=("validation.txt",))


def words_of(root: Path, data=FILES, **fields) -> tuple[str, ...]:
    return resolved(Cloze(kind="cloze", **fields), data=data, data_root=root).words


def error_of(root: Path, data=FILES, **fields) -> str:
    return error_text(DataError, lambda: resolved(Cloze(kind="cloze", **fields), data=data, data_root=root))


# What a list consists of -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("good", "good"),
        ('"Good!"', "good"),
        ("don't", "don't"),
        ("well-known,", "well-known"),
        ("U.S.", "u.s"),
        ("¿Qué?", "qué"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("Zoe\u0308", "zoë"),
        ("$5", "$5"),
        ("a+", "a+"),
        ("...", "..."),
        ("", ""),
    ],
)
def test_bare_words(word, expected):
    assert bare(word) == expected
    assert bare(bare(word)) == expected


def test_a_list_is_sorted_and_distinct_and_resolving_it_again_changes_nothing(tmp_path):
    for settings in (
        Cloze(kind="cloze", words=("Zoë", "good", "Bad", '"bad"')),
        GenericWords(kind="generic", words=("b",)),
    ):
        ours = resolved(settings, data=FILES, data_root=tmp_path)
        assert ours == type(settings)(
            kind=settings.kind, words=tuple(sorted({bare(word) for word in settings.words}))
        )
        assert resolved(ours, data=FILES, data_root=tmp_path / "gone") == ours
    assert words_of(tmp_path, words=("Zoë", "good", "Bad", '"bad"')) == ("bad", "good", "zoë")


def test_a_file_has_a_word_a_line_and_comments(tmp_path):
    text = "\ufeff; Opinion words\r\n;;;;\r\n\r\nGood \r\n  bad\r\n# and more\r\ngood\r\na+\r\nna\u00efve"
    (tmp_path / "list.txt").write_bytes(text.encode())
    assert words_of(tmp_path, file="list.txt") == ("a+", "bad", "good", "na\u00efve")
    assert words_of(tmp_path / "elsewhere", file=str(tmp_path / "list.txt")) == words_of(tmp_path, file="list.txt")
    assert words_of(tmp_path, file="list.txt", words=("Ugly",)) == ("a+", "bad", "good", "na\u00efve", "ugly")


SENTENCES = [
    (["The", "run", "was", "March", "."], ["DET", "NOUN", "AUX", "PROPN", "PUNCT"]),
    (["I", "run", "1 000", "US"], ["PRON", "VERB", "NUM", "PROPN"]),
    (["they", "Run", "with", "us", "and", "US"], ["PRON", "VERB", "ADP", "PRON", "CCONJ", "PROPN"]),
    (["march", ",", "march"], ["VERB", "PUNCT", "NOUN"]),
]


def treebank(path: Path, sentences=SENTENCES, **columns) -> Path:
    table = {"tokens": [words for words, _ in sentences], "upos": [tags for _, tags in sentences]} | columns
    pq.write_table(pa.table({name: values for name, values in table.items() if values is not None}), path)
    return path


def test_a_word_of_a_treebank_has_its_most_frequent_tag(tmp_path):
    treebank(tmp_path / "bank.parquet")
    expected = {
        "VERB": ("run",),
        "NOUN": ("march",),  # as often VERB and PROPN, which come later in the alphabet
        "PROPN": ("us",),  # without case, US and us are one word
        "PUNCT": (",", "."),
        "PRON": ("i", "they"),
    }
    for tag, words in expected.items():
        assert words_of(tmp_path, part_of_speech=(tag,), treebank="bank.parquet") == words
    both = words_of(tmp_path, part_of_speech=("VERB", "PROPN"), treebank="bank.parquet", words=("x",))
    assert both == ("run", "us", "x")


def test_a_conllu_treebank_says_the_same_as_parquet(tmp_path):
    lines = [
        "\n".join(
            f"{i}\t{word}\t_\t{tag}\t_\t_\t_\t_\t_\t_" for i, (word, tag) in enumerate(zip(*both, strict=True), 1)
        )
        for both in SENTENCES
    ]
    untagged = "1\trun\t_\t_\t_\t_\t_\t_\t_\t_"  # no tag is no part of speech
    (tmp_path / "bank.conllu").write_text("\n\n".join([*lines, *[untagged] * 9]) + "\n\n")
    treebank(tmp_path / "bank.parquet", [*SENTENCES, *[(["run"], ["_"]), (["run"], [""])] * 5])
    for tag in ("VERB", "NOUN", "PROPN", "DET"):
        of_both = {
            words_of(tmp_path, part_of_speech=(tag,), treebank=f"bank.{end}") for end in ("conllu", "parquet")
        }
        assert len(of_both) == 1
    assert words_of(tmp_path, part_of_speech=("VERB",), treebank="bank.parquet") == ("run",)
    (tmp_path / "bank.txt").write_text("x")
    assert error_of(tmp_path, part_of_speech=("VERB",), treebank="bank.txt") == (
        f"{tmp_path}/bank.txt is no treebank by its ending, expected a file that ends in .conllu, .conllu.gz or "
        f".parquet; name, convert or rename the file."
    )


def test_a_treebank_goes_before_the_built_in_language(tmp_path):
    treebank(tmp_path / "bank.parquet")
    language = LanguageData(kind="language")
    assert words_of(tmp_path, language, part_of_speech=("VERB",), treebank="bank.parquet") == ("run",)


def test_nouns_of_the_built_in_language_are_nouns_by_its_gold_tags(tmp_path):
    data = LanguageData(kind="language", seed=3, train=10)
    nouns = set(words_of(tmp_path, data, part_of_speech=("NOUN",)))
    right = Counter((word in nouns, tag == "NOUN") for word, tag in validation_words(seed=3))
    # Some forms are a noun here and a verb there; what is most often a noun is so in most places.
    assert right[True, True] > 0.95 * (right[True, True] + right[True, False])
    assert right[True, True] > 0.95 * (right[True, True] + right[False, True])


def validation_words(seed: int):
    for _, sentence in Language(seed).sentences("validation", 500):
        yield from zip(sentence.words, sentence.tags, strict=True)


# What is wrong with a list ---------------------------------------------------------------------------


def test_words_with_spaces_are_refused(tmp_path):
    (tmp_path / "list.txt").write_text("good\n\ngood\t3\n")
    assert error_of(tmp_path, file="list.txt") == (
        f"{tmp_path}/list.txt, line 3: 'good\\t3' has a space, but each entry must be one word; write each word "
        "as an entry of its own."
    )


def test_errors_of_files(tmp_path):
    assert error_of(tmp_path, file="gone.txt") == (
        f"{tmp_path}/gone.txt does not exist (objective.masking.select.file; relative paths start at "
        f"--data-root); correct the path."
    )
    assert error_of(tmp_path, file=".") == (f"{tmp_path} cannot be read: Is a directory; write or copy it again.")
    (tmp_path / "latin.txt").write_bytes("good\nna\u00efve\n".encode("latin-1"))
    assert error_of(tmp_path, file="latin.txt") == (
        f"{tmp_path}/latin.txt, line 2: byte 0xef at position 3 of the line is not UTF-8; convert the file to "
        "UTF-8, or remove the line."
    )
    (tmp_path / "empty.txt").write_text("; nothing\n\n# here\n")
    assert error_of(tmp_path, file="empty.txt") == (
        f"{tmp_path}/empty.txt has no words (objective.masking.select.file): all its lines are blank or begin "
        "with ; or #; write one word in each line."
    )


def test_errors_of_treebanks(tmp_path):
    def error(name: str) -> str:
        return error_of(tmp_path, part_of_speech=("VERB",), treebank=name).removeprefix(f"{tmp_path}/")

    assert error("gone.parquet") == (
        "gone.parquet does not exist (objective.masking.select.treebank; relative paths start at --data-root); "
        "correct the path."
    )
    treebank(tmp_path / "no_tags.parquet", upos=None)
    assert error("no_tags.parquet") == (
        "no_tags.parquet: expected one column 'upos' (objective.masking.select.treebank), but the columns are "
        "'tokens'; write tokens and upos with a list a sentence."
    )
    treebank(tmp_path / "joined.parquet", tokens=[" ".join(words) for words, _ in SENTENCES])
    assert error("joined.parquet") == (
        "joined.parquet: column 'tokens' holds string (objective.masking.select.treebank), expected lists of "
        "text; write a list of words a sentence."
    )
    treebank(tmp_path / "numbers.parquet", upos=[[1] * len(words) for words, _ in SENTENCES])
    assert error("numbers.parquet") == (
        "numbers.parquet: column 'upos' holds list<element: int64> (objective.masking.select.treebank), expected "
        "lists of text; write a list of tags a sentence."
    )
    for name, tags in (("short", ["DET"]), ("null", None), ("nulls", [None, "NOUN"])):
        treebank(tmp_path / f"{name}.parquet", [*SENTENCES, (["a", "word"], tags)])
        assert error(f"{name}.parquet") == (
            f"{name}.parquet, row 5: upos must have a tag for every word in tokens "
            "(objective.masking.select.treebank); correct or remove the row."
        )
    (tmp_path / "text.parquet").write_text("no parquet, although it says so in its name")
    assert error("text.parquet").startswith(
        "text.parquet cannot be read as parquet (objective.masking.select.treebank): Parquet magic bytes not found"
    )
    assert error("text.parquet").endswith("; write or copy it again.")


def test_errors_of_parts_of_speech(tmp_path):
    treebank(tmp_path / "bank.parquet")
    # NUM is only the tag of "1 000", which is no word between spaces.
    for tag in ("INTJ", "NUM"):
        assert error_of(tmp_path, part_of_speech=("VERB", tag), treebank="bank.parquet") == (
            f"objective.masking.select.part_of_speech: no word of {tmp_path}/bank.parquet is most often {tag!r}, "
            f"only ADP, AUX, CCONJ, DET, NOUN, PRON, PROPN, PUNCT, VERB; name one of these."
        )
    assert error_of(tmp_path, LanguageData(kind="language"), part_of_speech=("X",)) == (
        "objective.masking.select.part_of_speech: no word of the built-in language is most often 'X', only "
        "ADJ, ADP, ADV, AUX, CCONJ, DET, NOUN, NUM, PART, PRON, PUNCT, SCONJ, VERB; name one of "
        "these."
    )


# Which words of a text are in a list -----------------------------------------------------------------

TEXTS = [
    "The cat, the CAT and the \u201ccats\u201d see Zo\u00eb\u2019s unbelievable cat .",
    "Unbelievable ! Un believable cat-like things (believable, unbelievable) ...",
    "a",
]


@pytest.fixture(scope="module")
def tokenizer():
    return train(TEXTS, 80, source="data.text")


def found(tokenizer, texts: list[str], lexicon) -> list[str]:
    """The words, as they are written, that are in the list."""
    ids_N = np.array([i for ids in encode(tokenizer, texts) for i in ids], dtype=np.uint16)
    words = find_words(ids_N, starts_word(tokenizer))
    ours = in_lexicon(ids_N, words, tokenizer, lexicon)
    assert ours.dtype == np.bool_
    written = [word for text in texts for word in text.split()]
    assert len(ours) == len(written)
    return [word for word, belongs in zip(written, ours.tolist(), strict=True) if belongs]


def test_case_and_punctuation_at_the_ends_do_not_matter(tokenizer):
    assert found(tokenizer, TEXTS, {"cat"}) == ["cat,", "CAT", "cat"]
    assert found(tokenizer, TEXTS, {"Cats."}) == ["\u201ccats\u201d"]
    assert found(tokenizer, TEXTS, ["zoe\u0308\u2019s", "A"]) == ["Zo\u00eb\u2019s", "a"]
    assert found(tokenizer, TEXTS, {"..."}) == ["..."]
    assert found(tokenizer, TEXTS, ()) == []


def test_accents_do_not_matter_if_the_tokenizer_removes_them(tmp_path, tokenizer):
    pieces = [*SPECIAL_TOKENS, "cafe", "the", "naive"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    given = read_tokenizer(tmp_path)
    uncased = given.renumbered(given.vocab_size(given.rows))
    assert found(uncased, ["The Caf\u00e9 the cafe"], {"caf\u00e9"}) == ["Caf\u00e9", "cafe"]
    assert found(uncased, ["the cafe"], {"caf\u00e9", "zebra"}) == ["cafe"]  # the text has no word [UNK]
    assert found(tokenizer, TEXTS, {"zoe\u2019s"}) == []  # a tokenizer that keeps accents tells them apart


def test_a_word_of_several_pieces_belongs_as_a_whole(tokenizer):
    (ids,) = encode(tokenizer, ["unbelievable)"])
    assert len(ids) > 2 + 1
    assert found(tokenizer, TEXTS, {"unbelievable"}) == ["unbelievable", "Unbelievable", "unbelievable)"]
    assert found(tokenizer, TEXTS, {"un", "believable"}) == ["Un", "believable", "(believable,"]


def test_equals_word_by_word_comparison(tokenizer):
    written = " ".join(TEXTS).split()
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(written, 8)) for _ in range(200)]
    lexicon = {"cat", "the", "believable", "things"}
    expected = [word for text in texts for word in text.split() if bare(word) in lexicon]
    assert found(tokenizer, texts, lexicon) == expected
    assert expected


def test_a_word_with_an_unknown_byte_is_in_no_list(tokenizer):
    (ids,) = encode(tokenizer, ["cat£"])
    assert UNKNOWN in ids
    assert found(tokenizer, ["cat£ cat", "£"], {"cat", "cat£", ""}) == ["cat"]


def test_a_text_without_words_has_none_in_a_list(tokenizer):
    assert found(tokenizer, [], {"cat"}) == []
