import io

import pytest
import sentencepiece
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ablations.measures.labels import spans_of
from ablations.piece_spans import piece_spans

TEXTS = [
    "The old dog didn't see  a café.",
    "Zum Beispiel: ½ Liter für Ｆｕｌｌ width… or „quotes“",
    "aa a aaa aaaa",
    "naïve e\u0301te\u0301, ﬁnal",
    "日本語 text",
]


@pytest.fixture(scope="module")
def processor():
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS[:4] * 5),
        model_writer=written,
        vocab_size=90,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_stand_where_sentencepiece_says(processor, text):
    """It counts a space before a piece to the piece; a letter that becomes several pieces is the first one's."""
    theirs = processor.encode(text, return_type="proto").pieces
    pieces = ["" if piece.id == processor.unk_id() else piece.piece for piece in theirs]
    for (begin, end), piece in zip(piece_spans(text, pieces), theirs, strict=True):
        assert text[begin:end] == piece.surface.strip() or (not piece.surface.strip() and end - begin == 1), piece


@pytest.mark.parametrize("text", TEXTS[:3])
def test_pieces_of_a_fast_tokenizer_stand_where_it_says(text):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=80, special_tokens=["[UNK]"]))
    encoding = tokenizer.encode(text)
    pieces = ["" if piece == "[UNK]" else piece for piece in encoding.tokens]
    assert piece_spans(text, pieces) == spans_of(encoding, text)


def test_special_tokens_stand_for_nothing_and_may_be_anywhere():
    assert piece_spans("to be", [None, "▁to", None, "▁be", None]) == [(0, 0), (0, 2), (0, 0), (3, 5), (0, 0)]


def test_what_is_unknown_stands_for_what_is_left_between_its_neighbours():
    assert piece_spans("a 日本 b", ["▁a", "", "▁b"]) == [(0, 1), (2, 4), (5, 6)]
    assert piece_spans("日本 b", ["", "▁b"]) == [(0, 2), (3, 4)]
    assert piece_spans("a 日本", ["▁a", "▁", "", ""]) == [(0, 1), (0, 0), (2, 4), (2, 4)]
    assert piece_spans("a b", ["▁a", "", "▁b"]) == [(0, 1), (0, 0), (2, 3)]


def test_case_and_accents_that_a_tokenizer_drops_are_no_obstacle():
    assert piece_spans("Café ÉTÉ", ["cafe", "ete"]) == [(0, 4), (5, 8)]


def test_a_text_that_was_cut_has_no_more_pieces():
    assert piece_spans("one two three", ["▁one", "▁two"]) == [(0, 3), (4, 7)]
    assert piece_spans("one two three", []) == []
