import io
import time

import pytest
import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from ablations.measures.labels import spans_of
from ablations.piece_spans import piece_spans

TEXTS = [
    "The old dog didn't see  a café.",
    "Zum Beispiel: ½ Liter für Ｆｕｌｌ width… or „quotes“",
    "aa a aaa aaaa",
    "naïve e\u0301te\u0301, ﬁnal, Straße",
    "日本語 text, Мама мыла раму",
]


@pytest.fixture(scope="module")
def processor():
    """It knows neither Japanese nor Russian."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS[:3] * 5),
        model_writer=written,
        vocab_size=80,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_stand_where_sentencepiece_says(processor, text):
    """It counts a space before a piece to the piece; a letter that becomes several pieces is the first one's."""
    theirs = processor.encode(text, return_type="proto").pieces
    spans = piece_spans(text, [piece.piece for piece in theirs])
    assert spans is not None
    for (begin, end), piece in zip(spans, theirs, strict=True):
        assert text[begin:end] == piece.surface.strip() or (not piece.surface.strip() and end - begin == 1), piece


@pytest.mark.parametrize("text", TEXTS[:3])
def test_pieces_of_a_fast_tokenizer_stand_where_it_says(text):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[UNK]"]))
    encoding = tokenizer.encode(text)
    pieces = [
        text[start:end] if piece == "[UNK]" else piece
        for piece, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True)
    ]
    assert piece_spans(text, pieces) == spans_of(encoding, text)


def test_the_mere_space_before_a_word_stands_for_nothing():
    assert piece_spans("to be", ["▁", "to", "▁be"]) == [(0, 0), (0, 2), (3, 5)]
    assert piece_spans("to be", ["t@@", "o", "be</w>"]) == [(0, 1), (1, 2), (3, 5)]


def test_letters_are_the_same_in_any_case_and_form_and_what_cannot_be_seen_is_none():
    assert piece_spans("CAFÉ ÉTÉ", ["▁café", "▁e\u0301te\u0301"]) == [(0, 4), (5, 8)]
    assert piece_spans("so\u00adft\u200b x", ["▁soft", "▁x"]) == [(0, 5), (7, 8)]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("éa", ["Ã", "©", "a"]),
        ("日e", ["<0xE6>", "<0x97>", "<0xA5>", "e"]),
        ("née à", ["▁n", "<unk>", "e", "▁", "<unk>"]),
        ("Été", ["▁ete"]),
        ("one two", ["▁one"]),
        ("one", []),
    ],
)
def test_pieces_that_do_not_spell_the_text_stand_nowhere(text, pieces):
    assert piece_spans(text, pieces) is None


def test_a_long_line_takes_no_longer_for_each_letter():
    def seconds(words):
        start = time.perf_counter()
        assert piece_spans("café " * words, ["▁caf", "é"] * words)
        return time.perf_counter() - start

    seconds(100)
    assert seconds(40_000) < 100 * min(seconds(4_000) for _ in range(3))
