"""Labels of words, and of the first sub-word of each, whichever tokenizer made it."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from ablations.errors import MeasureError
from ablations.measures.reading.alignment import words_of_characters
from ablations.measures.reading.labels import (
    NOTHING,
    first_sub_words,
    labelled_split,
    labels_of_split,
    parts,
    spans_of,
    token_labels,
    with_texts,
    word_labels,
)
from ablations.measures.reading.sample import NO_LABEL, first_tokens, is_text_token
from lightning_modules.data.tokenizer import END, START, UNKNOWN, encode, train
from lightning_modules.data.treebank import ROOT, LabelledSentence, language_sentences, read_treebank
from tests.support.errors import error_text

TREEBANKS = Path(__file__).parents[5] / "shared" / "data"


def sentence(text: str, words: str, tags: str, heads: tuple, relations: str, forms: str = "") -> LabelledSentence:
    """Of words between spaces; _ is none."""
    values = ["" if value == "_" else value for value in words.split()]
    shown = tuple("" if form == "_" else form for form in (forms or words).split())
    labels = [tuple("" if label == "_" else label for label in column.split()) for column in (tags, relations)]
    return LabelledSentence(text, tuple(values), labels[0], heads, labels[1], (None,) * len(values), shown)


CAT = sentence(
    "The old cat doesn't see unbelievable mice.",
    "The old cat does n't see unbelievable mice .",
    "DET ADJ NOUN AUX PART VERB ADJ NOUN PUNCT",
    (2, 2, 5, 5, 5, ROOT, 7, 5, 5),
    "det amod nsubj aux advmod root amod obj punct",
)
SEA = sentence(
    "Je viens du marché, dit-il.",
    "Je viens de le marché , dit -il .",
    "PRON VERB ADP DET NOUN PUNCT VERB PRON PUNCT",
    (1, 6, 4, 4, 1, 6, ROOT, 6, 6),
    "nsubj ccomp case det obl:arg punct root nsubj:pass punct",
    "Je viens du _ marché , dit -il .",
)
ODD = sentence(
    "“Oui” 😀 1 000 ẛ̣",
    '" Oui " 😀 1_000 ẛ̣',
    "PUNCT INTJ PUNCT SYM NUM X",
    (1, ROOT, 1, 1, 1, 1),
    "punct root punct discourse dep dep",
)
ODD = ODD._replace(words=('"', "Oui", '"', "😀", "1 000", "ẛ̣"), forms=('"', "Oui", '"', "😀", "1 000", "ẛ̣"))
SENTENCES = [CAT, SEA, ODD]


def plain(text: str) -> LabelledSentence:
    words = tuple(text.split())
    W = len(words)
    return LabelledSentence(text, words, ("X",) * W, (ROOT,) * W, ("root",) * W, (None,) * W, words)


# Words -----------------------------------------------------------------------------------------------


def test_labels_of_words():
    labels = word_labels(CAT)
    assert labels["tag"] == list(CAT.tags)
    assert labels["left_part"] == [
        *("-", "-", "det amod", "-", "-", "nsubj aux advmod", "-", "^obj amod", "^punct"),
    ]
    assert labels["right_part"] == [
        *("^det", "^amod", "^nsubj", "^aux", "^advmod", "obj", "^amod", "-", "-"),
    ]
    assert labels["sense"] == [""] * 9
    assert NOTHING == "-"
    assert word_labels(SEA)["relation"] == [
        "nsubj",
        "ccomp",
        "case",
        "det",
        "obl",
        "punct",
        "root",
        "nsubj",
        "punct",
    ]
    assert word_labels(SEA)["left_part"][6:8] == ["ccomp", "^nsubj"]


def test_parts_equal_what_a_slow_search_finds():
    rng = np.random.default_rng(0)
    for _ in range(100):
        W = int(rng.integers(1, 10))
        heads = [int(h) for h in rng.integers(-1, W, W)]  # circles and loops are no concern of this
        heads = [ROOT if head == word else head for word, head in enumerate(heads)]
        relations = rng.choice(["a", "b", "punct"], W).tolist()
        left, right = parts(heads, relations)
        for word in range(W):
            for side, found in ((range(word), left[word]), (range(word + 1, W), right[word])):
                own = [f"^{relations[word]}"] if heads[word] in side else []
                asked = [relations[i] for i in side if heads[i] == word and relations[i] != "punct"]
                assert found == (" ".join(own + asked) or "-")


def test_parts_are_told_apart_by_side_kind_and_order():
    def both(heads, relations):
        return [*zip(*parts(heads, relations), strict=True)]

    assert both([1, ROOT], ["obj", "root"])[1] == ("obj", "-")
    assert both([ROOT, 0], ["root", "obj"])[0] == ("-", "obj")
    assert both([ROOT, 0], ["root", "obj"])[1] == ("^obj", "-")
    assert both([2, 2, ROOT], ["a", "b", "root"])[2] != both([2, 2, ROOT], ["b", "a", "root"])[2]


def test_there_are_no_parts_where_the_tree_is_not_known_whole():
    assert parts([1, ROOT, None], ["a", "root", "b"]) == (["", "", ""], ["", "", ""])
    assert parts([1, ROOT, 1], ["a", "root", ""]) == (["", "", ""], ["", "", ""])


# Tokens ----------------------------------------------------------------------------------------------

TEXTS = [s.text for s in SENTENCES[:2]] * 20


def ours() -> Tokenizer:
    return train(TEXTS, 70, source="data.text")


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()  # lower case, without accents
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=70, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def encodings_of(kind: str, texts: list[str]) -> list:
    from transformers import BertTokenizerFast, PreTrainedTokenizerFast

    if kind == "ours":
        return ours().encode_batch(texts, add_special_tokens=False)
    if kind == "bert":
        return BertTokenizerFast(vocab=word_piece().get_vocab())(texts).encodings
    return PreTrainedTokenizerFast(tokenizer_object=byte_level())(texts).encodings


@pytest.mark.parametrize("kind", ["ours", "bert", "gpt"])
def test_the_first_sub_word_of_each_word_has_its_labels(kind):
    texts = [s.text for s in SENTENCES]
    encodings = encodings_of(kind, texts)
    spans = [spans_of(encoding, text) for encoding, text in zip(encodings, texts, strict=True)]
    labels = token_labels(SENTENCES, spans)
    assert set(labels.codes) == set(labels.names) == {"tag", "relation", "left_part", "right_part"}
    expected = {name: [] for name in labels.codes}
    for s, encoding in zip(SENTENCES, encodings, strict=True):
        word_of = words_of_characters(s.text, s.forms, where="")
        seen, by_word = {-1}, word_labels(s)
        for piece, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            word = next((int(w) for w in word_of[start:end] if w >= 0), -1)
            word = -1 if piece == "Ġ" or start == end else word
            for name in expected:
                expected[name].append("" if word in seen else by_word[name][word])
            seen.add(word)
    for name, code_N in labels.codes.items():
        assert code_N.dtype == np.int64
        assert named(labels, name) == expected[name]
        assert labels.names[name] == tuple(sorted(set(expected[name]) - {""}))


@pytest.mark.parametrize("kind", ["ours", "bert", "gpt"])
def test_words_that_share_no_sub_word_have_each_a_label_in_order(kind):
    for s in (CAT, SEA):
        (encoding,) = encodings_of(kind, [s.text])
        labels = token_labels([s], [spans_of(encoding, s.text)])
        assert [tag for tag in named(labels, "tag") if tag] == [
            tag for tag, form in zip(s.tags, s.forms, strict=True) if form
        ]


def test_first_sub_words():
    assert first_sub_words(np.array([-1, 2, 2, -1, 0, 2])).tolist() == [False, True, False, False, True, False]
    assert first_sub_words(np.array([], dtype=np.int64)).tolist() == []


def test_a_word_inside_of_a_longer_sub_word_counts_nowhere():
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "doesn't": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    encoding = tokenizer.encode(CAT.text)
    labels = token_labels([CAT], [spans_of(encoding, CAT.text)])
    tags = [tag for word, tag in zip(CAT.words, CAT.tags, strict=True) if word not in ("n't", ".")]
    assert named(labels, "tag") == tags


def test_the_space_that_our_tokenizer_adds_is_no_sub_word_of_a_word():
    text = "xx yy"
    encoding = ours().encode(text, add_special_tokens=False)
    assert encoding.tokens[0] == "Ġ"
    assert encoding.offsets[0] == encoding.offsets[1] == (0, 1)  # so it says, but no x is in it
    assert spans_of(encoding, text) == [(0, 0), (0, 1), (1, 2), (0, 0), *encoding.offsets[4:]]
    labels = token_labels([plain(text)], [spans_of(encoding, text)])
    assert [code == 0 for code in labels.codes["tag"]] == [False, True, False, False, True, False]


def test_a_letter_that_looks_like_the_sign_of_a_space_is_a_letter():
    tokenizer = Tokenizer(models.WordLevel({"Ġ": 0, "ħ": 1}))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    assert spans_of(tokenizer.encode("Ġ ħ"), "Ġ ħ") == [(0, 1), (2, 3)]


def test_labels_that_nothing_has_are_left_out():
    bare = CAT._replace(tags=("",) * 9, heads=(None, *CAT.heads[1:]))
    spans = [[(0, 3), (4, 7)]]
    assert set(token_labels([bare], spans).codes) == {"relation"}
    assert token_labels([bare._replace(relations=("",) * 9)], spans) == ({}, {})
    assert token_labels([], []) == ({}, {})
    partly = CAT._replace(tags=("", *CAT.tags[1:]))
    assert token_labels([partly], spans).codes["tag"].tolist() == [NO_LABEL, 0]


def test_a_sentence_of_another_text_is_named():
    assert error_text(MeasureError, lambda: token_labels([CAT, SEA._replace(text="Il vient.")], [[], []])) == (
        'sentence 2: the labels do not match the text: expected word 1, "Je", but the text has "Il vient." in '
        '"Il vient."; give words and text of the same sentence.'
    )


# Splits ----------------------------------------------------------------------------------------------


def test_a_split_of_labelled_sentences_is_that_of_a_token_store(data_root, tokens):
    lines = (data_root / "validation.tsv").read_text().splitlines()[1:]
    sentences = [plain(line.split("\t")[0]) for line in lines]
    split, labels = labelled_split(sentences, tokens.tokenizer, max_length=64)
    assert np.array_equal(split.ids, tokens.validation.ids)
    assert split.ids.dtype == tokens.validation.ids.dtype
    assert np.array_equal(split.offsets, tokens.validation.offsets)
    assert split.offsets.dtype == tokens.validation.offsets.dtype
    assert len(split) == len(sentences)
    assert split.documents.tolist() == list(range(len(sentences)))
    assert labels_of_split(tokens.validation, sentences, tokens.tokenizer, max_length=64).codes.keys() == {
        *("tag", "relation", "left_part", "right_part")
    }
    words = sum(len(s.words) for s in sentences)
    assert (labels.codes["tag"] == 0).sum() == words  # between spaces each has a first sub-word


def named(labels, name: str) -> list[str]:
    return [labels.names[name][code] if code != NO_LABEL else "" for code in labels.codes[name].tolist()]


@pytest.mark.parametrize("max_length", [3, 6, 1000])
def test_a_sentence_that_is_cut_keeps_the_labels_of_what_is_left(max_length):
    tokenizer = ours()
    whole_ids = encode(tokenizer, [s.text for s in SENTENCES])
    _, whole = labelled_split(SENTENCES, tokenizer, max_length=1000)
    split, labels = labelled_split(SENTENCES, tokenizer, max_length=max_length)
    begin = place = 0
    for i, ids in enumerate(whole_ids):
        kept = min(len(ids), max_length) - 2
        assert split.sentence(i).tolist() == [START, *ids[1 : 1 + kept], END]
        for name in ("tag", "left_part"):
            ours_names = [
                labels.names[name][c] if c >= 0 else "" for c in labels.codes[name][place : place + kept]
            ]
            theirs = [whole.names[name][c] if c >= 0 else "" for c in whole.codes[name][begin : begin + kept]]
            assert ours_names == theirs
        begin, place = begin + len(ids) - 2, place + kept
    assert place == is_text_token(split.ids).sum() == len(labels.codes["tag"])
    assert UNKNOWN in split.ids or max_length < 1000  # an unknown piece is text


@pytest.mark.parametrize("max_length", [8, 16])
def test_the_first_half_of_a_word_has_no_sense_where_the_sentence_is_cut_inside_of_the_word(max_length):
    sentences = language_sentences(0, "validation", 1000)
    tokenizer = train([s.text for s in sentences], 300, source="data.text")
    _, whole = labelled_split(sentences, tokenizer, max_length=1000)
    split, cut = labelled_split(sentences, tokenizer, max_length=max_length)
    pieces = [len(ids) - 2 for ids in encode(tokenizer, [s.text for s in sentences])]
    is_kept_N = np.concatenate([np.arange(n) < max_length - 2 for n in pieces])
    assert is_kept_N.sum() == is_text_token(split.ids).sum() < len(is_kept_N)
    for name in ("sense", "tag"):
        assert named(cut, name) == np.array(named(whole, name))[is_kept_N].tolist()


def test_a_sample_of_the_built_in_language_has_the_gold_labels_of_its_words():
    sentences = language_sentences(0, "validation", 200)
    tokenizer = train([s.text for s in sentences], 400, source="data.text")
    split, _ = labelled_split(sentences[:150], tokenizer, max_length=128)
    labels = labels_of_split(split, sentences, tokenizer, max_length=128)
    sample = first_tokens(split, 1000, labels=labels.codes, names=labels.names)
    assert set(sample.labels) == {"tag", "relation", "left_part", "right_part", "sense"}
    whole = set(tokenizer.get_vocab())
    for name, code_N in sample.labels.items():
        pairs = zip(sample.sentence_N.tolist(), code_N.tolist(), strict=True)
        found = [(i, sample.names[name][code]) for i, code in pairs if code != NO_LABEL]
        gold = [(i, label) for i in range(sample.sentences) for label in word_labels(sentences[i])[name] if label]
        if name == "sense":  # such as "lede 1", of words that are one sub-word
            assert len(gold) > len(found) > 10
            gold = [(i, label) for i, label in gold if "Ġ" + label.split()[0] in whole]
        assert found == gold
    first_pieces = tokenizer.decode_batch([[i] for i in sample.token_N[sample.labels["tag"] != NO_LABEL].tolist()])
    words = [word for s in sentences[: sample.sentences] for word in s.words]
    assert all(word.startswith(piece.strip()) for word, piece in zip(words, first_pieces, strict=True))


def test_labels_of_another_text_are_refused():
    tokenizer = ours()
    split, _ = labelled_split([CAT, SEA], tokenizer, max_length=64)
    assert labels_of_split(split, [CAT, SEA, ODD], tokenizer, max_length=64).names["tag"]

    def error(sentences, max_length=64) -> str:
        return error_text(MeasureError, labels_of_split, split, sentences, tokenizer, max_length=max_length)

    advice = "expected the sentence of the tokens; give labels of this text."
    assert error([SEA, CAT]) == f'the labels are of another text: sentence 1 with labels is "{SEA.text}", {advice}'
    assert error([CAT, CAT]) == f'the labels are of another text: sentence 2 with labels is "{CAT.text}", {advice}'
    assert error([CAT]) == f"the labels are of another text: sentence 2 with labels is missing, {advice}"
    assert error([CAT, SEA], max_length=8) == (
        f'the labels are of another text: sentence 1 with labels is "{CAT.text}", {advice}'
    )


# A text and its labels -------------------------------------------------------------------------------


def test_a_text_with_other_white_space_takes_the_place_of_the_labelled_one():
    texts = ["The  old cat does n't see\tunbelievable mice .", "Je viens du marche\u0301 , dit-il."]
    given = with_texts([CAT, SEA], texts, labels_from="a.conllu", texts_from="a.txt")
    assert given == [CAT._replace(text=texts[0]), SEA._replace(text=texts[1])]
    for s in given:
        words_of_characters(s.text, s.forms, where="")


def test_texts_and_labels_that_differ_are_refused():
    def error(sentences, texts) -> str:
        return error_text(MeasureError, with_texts, sentences, texts, labels_from="a.conllu", texts_from="a.txt")

    assert error([CAT, SEA], [CAT.text, "Je viens de la mer.", "x"]) == (
        'a.conllu has labels of another text than a.txt: sentence 2 is "Je viens du marché, dit-il." in the '
        'labels and "Je viens de la mer." in the text; give labels of these sentences in this order.'
    )
    assert error([CAT], [CAT.text, SEA.text]) == (
        "a.conllu has 1 sentences and a.txt has 2, which are the same up to the end of the shorter file; give "
        "labels of all sentences and no others."
    )
    assert error([CAT] * 1001, [CAT.text] * 1000) == (
        "a.conllu has 1,001 sentences and a.txt has 1,000, which are the same up to the end of the shorter "
        "file; give labels of all sentences and no others."
    )


# Published treebanks ---------------------------------------------------------------------------------

FRENCH = {"de du", "à au", "à aux", "à auxquels", "le", "les", "les s", "lesdites sdites", "lesquels"}
GERMAN = {"in im", "an am", "von vom", "dem", "dem m", "der r", "das s"}


@pytest.mark.skipif(not TREEBANKS.is_dir(), reason="needs the treebanks of ../shared/data")
@pytest.mark.parametrize(
    ("name", "contractions"),
    [("ud_fr_sequoia/test", FRENCH), ("ud_de_gsd/validation", GERMAN), ("ud_en_partut/test", set())],
)
def test_in_a_treebank_every_word_is_found_but_those_of_contractions(name, contractions):
    for s in read_treebank(TREEBANKS / f"{name}.parquet"):
        word_C = words_of_characters(s.text, s.forms, where=name)
        assert all(c.isspace() for c, word in zip(s.text, word_C, strict=True) if word == -1)
        for w, word in enumerate(s.words):
            place = np.flatnonzero(word_C == w)
            stands = s.text[place[0] : place[-1] + 1] if len(place) else ""
            assert stands == word or f"{word} {stands}".strip().casefold() in contractions
