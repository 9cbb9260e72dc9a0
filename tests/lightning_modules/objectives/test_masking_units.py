"""What is hidden together, on real sub-words: whole words, spans, n-grams; and what a lexicon never hides."""

import re
from typing import Any

import numpy as np
import pytest

from lightning_modules.config import FilesData, MaskingSettings, RunSettings
from lightning_modules.config.masking import GenericWords, OwnSelection
from lightning_modules.data.packing import BatchPlan, pack
from lightning_modules.data.sequences import single_sentences
from lightning_modules.data.token_store import prepare
from lightning_modules.data.tokenizer import FIRST_WORD_ID, read_tokenizer
from lightning_modules.data.word_order import training_text
from lightning_modules.errors import DataError
from lightning_modules.objectives.masked_lm import Masker
from lightning_modules.objectives.masking import Units
from tests.support import tiny_pretrained
from tests.support.errors import error_text

WORDS = ("alphabet", "beech", "cat", "dog", "elephant", "fish", "gazelle", "house")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """2,000 sentences of 30 words, some with punctuation, in which "grand piano" is one thing."""
    root = tmp_path_factory.mktemp("units")
    rng = np.random.default_rng(0)

    def sentence():
        words = [str(word) for word in rng.choice(WORDS, 28)]
        words[9:9] = ["grand", "piano"] if rng.random() < 0.5 else [words[0], words[1]]
        words[20] += ","
        return " ".join(words)

    for name, count in (("train", 2000), ("validation", 20)):
        (root / f"{name}.txt").write_text("\n".join(sentence() for _ in range(count)))
    settings = FilesData(
        kind="files", train="train.txt", validation="validation.txt", vocab_size=60, max_length=512
    )
    return prepare(settings, data_root=root, store=root / "store")


@pytest.fixture(scope="module")
def short_text(tmp_path_factory):
    """4,000 sentences of 1 to 12 words."""
    root = tmp_path_factory.mktemp("short")
    rng = np.random.default_rng(1)
    lines = [" ".join(rng.choice(WORDS[1:4], 1 + i % 12)) for i in range(4000)]
    (root / "a.txt").write_text("\n".join(lines))
    settings = FilesData(kind="files", train="a.txt", validation="a.txt", vocab_size=24, max_length=32)
    return prepare(settings, data_root=root, store=root / "store")


def rows_of(tokens, steps=1):
    plan = BatchPlan(tokens.train, tokens_per_step=20_000, steps=steps, seed=0)
    return pack(tokens.train, plan[steps - 1], row_length=int(tokens.train.lengths.max()))


def units_of(tokens, packed, select):
    """Text of each unit in a batch, in order."""
    masking = MaskingSettings.model_validate({"select": select})
    source = packed.source
    joined = Units(masking.select, tokens, tokens.train).joined(source, epoch_N=source.epoch_N, seed=1)
    is_text = source.ids_N >= FIRST_WORD_ID
    starts = np.flatnonzero(is_text & ~joined)
    ends = np.append(starts[1:], len(source.ids_N))
    return [
        tokens.tokenizer.decode(source.ids_N[a:b][is_text[a:b]].tolist()).strip()
        for a, b in zip(starts, ends, strict=True)
    ]


def test_tokens_stand_for_themselves_where_nothing_else_is_asked(text):
    packed = rows_of(text)
    for select in ("uniform", {"kind": "cloze", "words": ["cat"]}):
        masking = MaskingSettings.model_validate({"select": select})
        source = packed.source
        assert Units(masking.select, text, text.train).joined(source, epoch_N=source.epoch_N, seed=0) is None


def test_whole_words_are_what_stands_between_spaces(text):
    units = units_of(text, rows_of(text), "whole_word")
    words = {*WORDS, "grand", "piano"}
    assert words <= set(units) <= words | {f"{word}," for word in words}
    pieces = [len(text.tokenizer.encode(f" {word}", add_special_tokens=False).ids) for word in sorted(words)]
    assert max(pieces) > 1  # or a whole word would be no more than a token


def test_spans_are_runs_of_whole_words_with_geometric_lengths(text):
    units = units_of(text, rows_of(text), "span")
    lengths = np.array([unit.count(" ") + 1 for unit in units])
    assert lengths.max() <= 10
    packed = rows_of(text)
    starts_N = ~Units(MaskingSettings.model_validate({"select": "span"}).select, text, text.train).joined(
        packed.source, epoch_N=packed.source.epoch_N, seed=1
    )
    # The first span of a sentence is never cut off by its end: 30 words are more than 10.
    word_starts = units_of(text, packed, "whole_word")
    assert len(word_starts) % 30 == 0
    word_is_start = starts_N[_word_starts(text, packed)].reshape(-1, 30)
    first = np.array([np.flatnonzero(row)[1] for row in word_is_start])
    share = 0.2 * 0.8 ** np.arange(10) / (1 - 0.8**10)
    counts = np.bincount(first, minlength=11)[1:]
    expected = share * len(first)
    assert ((counts - expected) ** 2 / expected).sum() < 9 + 4 * np.sqrt(
        2 * 9
    )  # chi squared, 9 degrees of freedom
    assert share @ np.arange(1, 11) == pytest.approx(3.797, abs=5e-4)  # Joshi et al. 2020
    assert first.mean() == pytest.approx(3.797, abs=4 * first.std() / np.sqrt(len(first)))  # four standard errors


def _word_starts(tokens, packed):
    masking = MaskingSettings.model_validate({"select": "whole_word"})
    source = packed.source
    joined = Units(masking.select, tokens, tokens.train).joined(source, epoch_N=source.epoch_N, seed=0)
    return (source.ids_N >= FIRST_WORD_ID) & ~joined


def test_spans_depend_on_seed_epoch_and_sentence(text):
    select = MaskingSettings.model_validate({"select": "span"}).select
    units = Units(select, text, text.train)
    one = rows_of(text).source
    drawn = units.joined(one, epoch_N=one.epoch_N, seed=1)
    assert np.array_equal(drawn, units.joined(one, epoch_N=one.epoch_N, seed=1))
    assert not np.array_equal(drawn, units.joined(one, epoch_N=one.epoch_N, seed=2))
    assert not np.array_equal(drawn, units.joined(one, epoch_N=one.epoch_N + 1, seed=1))
    plan = BatchPlan(text.train, tokens_per_step=20_000, steps=1, seed=0)
    alone = pack(text.train, plan[0].part(5, 6), row_length=512).source
    mine = one.sentence_N == plan[0].sentence_S[5]
    assert np.array_equal(units.joined(alone, epoch_N=alone.epoch_N, seed=1), drawn[mine])


def test_a_span_of_certain_length_one_is_whole_words(text):
    packed = rows_of(text)
    assert units_of(text, packed, {"kind": "span", "probability": 1.0}) == units_of(text, packed, "whole_word")


def test_spans_of_a_tiny_probability_have_every_length_up_to_the_longest(text):
    units = units_of(text, rows_of(text), {"kind": "span", "probability": 1e-17, "longest": 4})
    assert {unit.count(" ") + 1 for unit in units} == {1, 2, 3, 4}


@pytest.mark.parametrize("count", ["unbiased", "fixed", "independent"])
def test_spans_hide_the_ratio_in_sentences_of_any_length(count, short_text):
    """Whole spans in short sentences: most lose nothing, and yet the mean is what was asked for."""
    masking = MaskingSettings.model_validate({"ratio": 0.15, "select": "span", "count": count})
    masker = Masker(masking, vocab_size=short_text.vocab_size, max_steps=1)
    masker.fit_to_text(short_text, short_text.train)
    sentences = single_sentences(short_text.train, np.arange(len(short_text.train)))
    hidden_S, epochs = np.zeros(len(sentences)), 5
    none = 0
    for epoch in range(epochs):
        packed = pack(short_text.train, sentences.of_epoch(epoch), row_length=32)
        corrupted = masker.corrupt(packed, seed=1)
        lost_S = np.bincount(packed.source.sentence_N, corrupted.selected_N)
        hidden_S += lost_S
        none += (lost_S == 0).sum()
    n_S = short_text.train.lengths - 2
    for n in np.unique(n_S):
        share = hidden_S[n_S == n] / (epochs * n)
        expected = max(1, round(0.15 * n)) / n if count == "fixed" else 0.15
        # A share of a sentence varies by at most p (1 - p), that of all or nothing; four standard errors.
        assert abs(share.mean() - expected) <= 4 * np.sqrt(expected * (1 - expected) / (epochs * len(share)))
    assert none / (epochs * len(n_S)) > 0.5


def test_collocations_are_hidden_as_a_whole(text):
    units = units_of(text, rows_of(text), {"kind": "pmi", "coverage": 0.01})
    assert "grand piano" in units
    assert not {"grand", "piano"} & set(units)
    assert {"cat", "dog"} <= set(units)


@pytest.mark.parametrize(("kind", "inside"), [("cloze", True), ("generic", False)])
def test_a_lexicon_decides_what_may_be_hidden(text, kind, inside):
    select = {"kind": kind, "words": ["elephant", "grand", "cat"]}
    masking = MaskingSettings.model_validate(
        {"select": select, "ratio": 1.0, "mask": 1.0, "random": 0.0, "keep": 0.0}
    )
    packed = rows_of(text)
    masker = Masker(masking, vocab_size=text.vocab_size, max_steps=1)
    masker.fit_to_text(text, text.train)
    hidden = masker.corrupt(packed, seed=0).selected_N
    source = packed.source
    starts = _word_starts(text, packed)
    word_N = np.cumsum(starts) - 1
    words = {}
    for number in range(300):
        mine = np.flatnonzero((word_N == number) & (source.ids_N >= FIRST_WORD_ID))
        words.setdefault(text.tokenizer.decode(source.ids_N[mine].tolist()).strip(), []).append(hidden[mine])
    for word, found in words.items():
        pieces = np.concatenate(found)
        if word in ("elephant", "grand", "cat"):
            assert (pieces == inside).all()
        elif word in ("elephant,", "grand,", "cat,"):  # punctuation at a word is not the word
            assert all((x[:-1] == inside).all() and x[-1] != inside for x in found)
        else:
            assert (pieces != inside).all()


def test_a_lexicon_that_matches_nothing_or_everything_is_refused(text):
    nothing = MaskingSettings.model_validate({"select": {"kind": "cloze", "words": ["zebra", "yak"]}}).select
    assert error_text(DataError, Units, nothing, text, text.train) == (
        "objective.masking.select: none of the words of the lexicon (2) occurs in data.train, so nothing could "
        "be hidden; give words that occur in the text."
    )
    with pytest.raises(DataError) as error:  # else the arm would be uniform under another name
        Units(GenericWords(kind="generic", words=("zebra",)), text, text.train)
    assert str(error.value) == (
        "objective.masking.select: none of the words of the lexicon (1) occurs in data.train, so it would "
        "change nothing; give words that occur in the text."
    )
    all_of_it = {"kind": "generic", "words": [*WORDS, "grand", "piano"]}
    assert error_text(
        DataError, lambda: Units(MaskingSettings.model_validate({"select": all_of_it}).select, text, text.train)
    ) == (
        "objective.masking.select: every word of data.train is in the lexicon (10 words), so nothing could be "
        "hidden; give a shorter list."
    )


HINDI = "\u0915\u093f\u0924\u093e\u092c"  # the word for book, with two vowel signs


@pytest.mark.parametrize("vocab_size", [21, 36])  # bytes alone, where a space is a piece; whole words
@pytest.mark.parametrize(
    ("words", "hidden"), [([HINDI], HINDI), (["$"], "$"), (["."], "."), ([".", "cat"], "cat . cat")], ids=str
)
def test_all_of_a_listed_word_may_be_hidden_whatever_its_script(vocab_size, words, hidden, tmp_path):
    """A vowel sign is no punctuation, and neither is a symbol. A word may be nothing but punctuation."""
    (tmp_path / "a.txt").write_text(f"cat {HINDI} $ .\ncat, dog")
    settings = FilesData(kind="files", train="a.txt", validation="a.txt", vocab_size=vocab_size)
    given = prepare(settings, data_root=tmp_path, store=tmp_path / "store")
    for kind in ("cloze", "generic"):
        select = MaskingSettings.model_validate({"select": {"kind": kind, "words": words}}).select
        allowed_N = Units(select, given, given.train).allowed_N == (kind == "cloze")
        ids_N = given.train.ids[allowed_N & (given.train.ids >= FIRST_WORD_ID)]
        assert given.tokenizer.decode(ids_N.tolist()) == f" {hidden}"


def test_pmi_on_too_little_text_is_refused(text):
    rare = MaskingSettings.model_validate({"select": {"kind": "pmi", "least_count": 10**6}}).select
    assert re.sub(r"\([\d,]+\)", "(W)", error_text(DataError, Units, rare, text, text.train)) == (
        "objective.masking.select: pmi needs word n-grams that occur at least 1000000 times (least_count), but "
        "no two words of the training text (W) are neighbours so often; lower least_count, or "
        "give more text."
    )


@pytest.mark.parametrize("select", ["whole_word", "span", "pmi", {"kind": "cloze", "words": ["cat"]}], ids=str)
@pytest.mark.parametrize(("more", "share"), [("", "0.0%"), ("\ncat dog", "1.2%")])
def test_a_text_without_spaces_has_no_words(more, share, select, tmp_path):
    """A space in one of its sentences changes nothing."""
    text = "\n".join("abcdefgh"[i % 5 :] * (2 + i % 7) for i in range(200)) + more
    for name in ("train", "validation"):
        (tmp_path / f"{name}.txt").write_text(text)
    data = FilesData(kind="files", train="train.txt", validation="validation.txt", vocab_size=40, max_length=64)
    tokens = prepare(data, data_root=tmp_path, store=tmp_path / "store")
    run = RunSettings.model_validate(
        {
            "data": data,
            "encoder": {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 1},
            "objective": {"kind": "masked_lm", "masking": {"select": select}},
            "training": {"max_steps": 2, "tokens_per_step": 128},
            "seed": 0,
        }
    )
    kind = run.objective.masking.select.kind
    assert error_text(DataError, training_text, run, tokens) == (
        f"objective.masking.select: {kind} needs words, but sentences with a space between two words hold only "
        f"{share} of the tokens of data.train, expected at least half; use uniform, which needs no words."
    )


@pytest.fixture(scope="module")
def of_gpt2(tmp_path_factory):
    """4,000 sentences, cut by a tokenizer that puts no space before a sentence."""
    root = tmp_path_factory.mktemp("gpt2")
    tiny_pretrained.gpt2(root / "gpt2")
    given = read_tokenizer(root / "gpt2")
    (root / "a.txt").write_text("man ran\nran man can\n" * 2000)
    about = {"kind": "files", "train": "a.txt", "validation": "a.txt", "tokenizer": "gpt2"}
    data = FilesData.model_validate(about | {"vocab_size": given.vocab_size(given.rows)})
    return prepare(data, data_root=root, store=root / "store")


def test_the_first_word_of_a_sentence_is_a_word_like_the_others_for_gpt2(of_gpt2):
    """Its first word begins with no space."""
    packed = rows_of(of_gpt2)
    words = units_of(of_gpt2, packed, "whole_word")
    assert set(words) == {"man", "ran", "can"}
    texts = [of_gpt2.tokenizer.decode(ids[1:-1].tolist()) for ids in sentences_of(packed)]
    assert words == " ".join(texts).split()
    ids_N = of_gpt2.train.ids

    def hidden(kind):
        select = MaskingSettings.model_validate({"select": {"kind": kind, "words": ["man"]}}).select
        allowed_N = Units(select, of_gpt2, of_gpt2.train).allowed_N & (ids_N >= FIRST_WORD_ID)
        return of_gpt2.tokenizer.decode(ids_N[allowed_N].tolist()).split()

    assert "".join(hidden("cloze")) == "man" * 4000
    assert "m" not in "".join(hidden("generic"))


def sentences_of(packed):
    """The ids of each sentence of a batch."""
    return np.split(packed.source.ids_N, np.flatnonzero(packed.source.offset_N == 0)[1:])


class _Own(OwnSelection):
    """A selection of one's own that allows or joins what a test says."""

    mask: Any = None

    def allowed(self, tokens, split):
        return self.mask


@pytest.mark.parametrize(
    ("mask", "sentence"),
    [
        (np.ones(3, bool), r"allowed of own must return [\d,]+ truth values, one for each token of data.train, "
         r"but has returned bool of shape \(3,\); correct it\."),
        (0, "own allows no token of data.train to be hidden; let it allow one\\."),
    ],
)  # fmt: skip
def test_a_selection_of_ones_own_gives_a_truth_value_for_each_token(tokens, mask, sentence):
    mask_N = np.zeros(len(tokens.train.ids), bool) if isinstance(mask, int) else mask
    with pytest.raises(DataError, match=sentence):
        Units(_Own(kind="own", mask=mask_N), tokens, tokens.train)
    mask_N = tokens.train.ids % 2 == 0
    assert np.array_equal(Units(_Own(kind="own", mask=mask_N), tokens, tokens.train).allowed_N, mask_N)
