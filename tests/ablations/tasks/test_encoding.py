"""Texts as rows of tokens, and states that do not depend on what they are padded or batched with."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from ablations.tasks import encoding
from ablations.tasks.encoding import (
    FIRST,
    SECOND,
    SPECIAL,
    encode_batch,
    encode_pairs,
    encode_texts,
    encode_words,
    mean_over,
    pair_features,
    pooled_states,
    word_states,
)
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, PAD, START, read_tokenizer, train
from lightning_modules.objectives import build
from tests.support import tiny_pretrained
from tests.support.tiny_text import sentences, settings

LONG = 64


@pytest.fixture(scope="module", params=["masked_lm", "causal_lm"])
def objective(request, tokens):
    torch.manual_seed(0)
    return build(settings(request.param), tokens).eval()


def pieces(tokens, text):
    return tokens.tokenizer.encode(text, add_special_tokens=False).ids


def test_a_text_is_start_its_pieces_end(tokens):
    (row,) = encode_texts(["the green dog"], tokens.tokenizer, max_length=LONG).rows
    inside = pieces(tokens, "the green dog")
    assert row.ids_T.tolist() == [START, *inside, END]
    assert row.part_T.tolist() == [SPECIAL, *[FIRST] * len(inside), SPECIAL]
    assert (row.word_T == -1).all()
    assert not row.cut
    assert "".join("the green dog"[a:b] for a, b in row.span_T2) == "the green dog".replace(" ", "") or (
        "".join("the green dog"[a:b] for a, b in row.span_T2) == "the green dog"
    )


def test_a_pair_is_start_a_end_b_end_with_b_in_the_second_segment(tokens):
    rows = encode_pairs(["the dog"], ["a small cat"], tokens.tokenizer, max_length=LONG)
    (row,) = rows.rows
    a, b = pieces(tokens, "the dog"), pieces(tokens, "a small cat")
    assert row.ids_T.tolist() == [START, *a, END, *b, END]
    assert row.part_T.tolist() == [SPECIAL, *[FIRST] * len(a), SPECIAL, *[SECOND] * len(b), SPECIAL]
    batch = rows.batch(np.array([0]))
    length, T = len(row.ids_T), batch["tokens_BT"].shape[1]
    assert T % 8 == 0
    assert batch["tokens_BT"][0].tolist() == [*row.ids_T, *[PAD] * (T - length)]
    second = [0] * (len(a) + 2) + [1] * (len(b) + 1) + [0] * (T - length)
    assert batch["segment_BT"][0].tolist() == second
    assert batch["sequence_BT"][0].tolist() == [1] * length + [0] * (T - length)
    assert batch["position_BT"][0].tolist() == list(range(T))


def test_words_begin_where_their_first_piece_is(tokens):
    words = ["the", "xyzzyx", "cat"]
    (row,) = encode_words([words], tokens.tokenizer, max_length=LONG).rows
    each = [pieces(tokens, word) for word in words]
    assert len(each[1]) > 1
    assert row.ids_T.tolist() == [START, *[i for ids in each for i in ids], END]
    assert tokens.tokenizer.id_to_token(each[1][0]) == "Ġ"  # the letter x is unknown
    rest = [-1] * (len(each[1]) - 2)
    assert row.word_T.tolist() == [-1, 0, -1, 1, *rest, 2, *[-1] * (len(each[2]) - 1), -1]


def test_a_word_without_a_piece_begins_nowhere(tokens):
    (row,) = encode_words([["the", "", "cat"]], tokens.tokenizer, max_length=LONG).rows
    assert row.word_T[row.word_T >= 0].tolist() == [0, 2]


def test_the_space_before_punctuation_is_left_out(tokens):
    assert pieces(tokens, "!") == pieces(tokens, " !") != []
    (row,) = encode_words([["the", "cat", "!"]], tokens.tokenizer, max_length=LONG).rows
    begun = [tokens.tokenizer.id_to_token(i) for i in row.ids_T[row.word_T >= 0].tolist()]
    assert len(begun) == 3
    assert not {"Ġ", "▁"} & set(begun)
    assert row.ids_T[1:-1].tolist() == tokens.tokenizer.encode("the cat!", add_special_tokens=False).ids


def of_bytes(texts, *, merges=0):
    """Without merges, a space is a piece of its own."""
    return train(texts, FIRST_WORD_ID + len(set(" ".join(texts).encode())) + merges, source="the test")


def of_folder(model, trainer, pre_tokenizer, normalizer=None):
    """Pieces that occur less than 20 times are not learnt."""

    def trained(texts):
        tokenizer = Tokenizer(model(unk_token="[UNK]"))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
        settings = {"special_tokens": ["[UNK]"], "min_frequency": 20, "show_progress": False}
        tokenizer.train_from_iterator(texts, trainer(**settings))
        return tokenizer

    return trained


SENTENCES_WITHOUT_SPACES = {
    "zh": ["我们", "学习", "「", "文件", "」", "，", "cats", "！"],
    "ja": ["王様", "が", "この", "ファイル", "を", "開く", "。"],
    "th": ["ครู", "เห็น", "บ้าน", "ใหม่"],
}
TOKENIZERS = {
    "bytes": of_bytes,
    "byte pairs": partial(of_bytes, merges=15),
    "WordPiece": of_folder(
        models.WordPiece,
        trainers.WordPieceTrainer,
        pre_tokenizers.BertPreTokenizer(),
        normalizers.BertNormalizer(strip_accents=False),
    ),
    "Metaspace": of_folder(models.BPE, trainers.BpeTrainer, pre_tokenizers.Metaspace()),
    "GPT-2": of_folder(models.BPE, trainers.BpeTrainer, pre_tokenizers.ByteLevel(add_prefix_space=False)),
}


@pytest.mark.parametrize("script", SENTENCES_WITHOUT_SPACES)
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_words_of_a_script_without_spaces_are_cut_as_in_running_text(kind, script):
    """In the training text words begin sentences and stand in them, so a word is learnt with and without a space
    before it. Two words stand together too rarely for a piece of both."""
    words = SENTENCES_WITHOUT_SPACES[script]
    pairs = ["".join(pair) for pair in itertools.permutations(words, 2)]
    tokenizer = TOKENIZERS[kind]([*words, "a cats"] * 50 + pairs * 3)
    (row,) = encode_words([words], tokenizer, max_length=LONG).rows
    running = tokenizer.encode("".join(words).replace("cats", " cats"), add_special_tokens=False)
    assert row.ids_T[1:-1].tolist() == running.ids
    assert row.word_T[row.word_T >= 0].tolist() == list(range(len(words)))
    assert (row.span_T2[row.word_T >= 0, 0] == 0).all()
    assert row.span_T2[-2, 1] == len(words[-1])


def test_a_piece_of_two_words_is_not_read():
    """Then each is cut by itself, as inside a sentence."""
    tokenizer = of_bytes(["ファイルを"] * 9 + ["を", "x、を"], merges=15)
    together, alone = (tokenizer.encode(text, add_special_tokens=False).ids for text in ("ファイルを", "x、を"))
    assert len(together) == 1
    (row,) = encode_words([["ファイル", "を"]], tokenizer, max_length=LONG).rows
    assert row.word_T[row.word_T >= 0].tolist() == [0, 1]
    assert row.ids_T[-2] == alone[-1]


def test_a_tokenizer_that_puts_no_space_before_a_sentence_reads_words_as_in_running_text(tmp_path):
    tiny_pretrained.gpt2(tmp_path)
    given = read_tokenizer(tmp_path)
    gpt2 = given.renumbered(given.vocab_size(given.rows))
    words = ["The", "man", "sang", ",", "7", "New York", "."]
    (row,) = encode_words([words], gpt2, max_length=LONG).rows
    running = gpt2.encode("The man sang, 7 New York.", add_special_tokens=False)
    assert row.ids_T.tolist() == [START, *running.ids, END]
    begins = [gpt2.id_to_token(i) for i in row.ids_T[row.word_T >= 0].tolist()]
    assert begins == ["T", "m", "s", ",", "7", "N", "."]
    assert row.word_T[row.word_T >= 0].tolist() == list(range(7))


def test_what_is_too_long_loses_its_end_and_of_a_pair_the_longer_text_first(tokens):
    short, long = "the dog", " ".join(["cat"] * 40)
    (row,) = encode_texts([long], tokens.tokenizer, max_length=10).rows
    assert row.cut
    assert row.ids_T.tolist() == [START, *pieces(tokens, long)[:8], END]
    for first, second in ((short, long), (long, short)):
        (row,) = encode_pairs([first], [second], tokens.tokenizer, max_length=12).rows
        assert row.cut
        assert len(row.ids_T) == 12
        assert row.ids_T[-1] == END
        whole = SECOND if second == short else FIRST
        assert (row.part_T == whole).sum() == len(pieces(tokens, short))
    (row,) = encode_pairs([long], [long], tokens.tokenizer, max_length=13).rows
    assert sorted([(row.part_T == FIRST).sum(), (row.part_T == SECOND).sum()]) == [5, 5]


def test_batches_hold_every_row_once_and_no_more_tokens_than_wanted(tokens, monkeypatch):
    monkeypatch.setattr(encoding, "TOKENS_AT_ONCE", 200)
    rows = encode_texts(sentences(100, seed=5), tokens.tokenizer, max_length=LONG)
    batches = list(rows.by_length())
    assert sorted(np.concatenate(batches).tolist()) == list(range(100))
    for index_B in batches:
        assert len(index_B) == 1 or rows.batch(index_B)["tokens_BT"].numel() <= 200


def test_states_do_not_depend_on_padding_or_company(objective, tokens):
    texts = ["the dog", *sentences(12, seed=6)]
    together = pooled_states(objective, encode_texts(texts, tokens.tokenizer, max_length=LONG))
    assert together.shape == (3, 13, 16)
    for number, text in enumerate(texts):
        ids = torch.tensor([[START, *pieces(tokens, text), END]])
        with torch.no_grad():
            alone = objective.encoder(ids, sees=objective.run.objective.sees)
        for layer, states in enumerate(alone):
            expected = states[0, 1:-1].mean(0)  # of the text, without START and END
            np.testing.assert_allclose(together[layer, number], expected, atol=2e-6)  # float32


def test_padding_reaches_beyond_the_longest_sentence_of_the_encoder(tokens):
    """Rows are padded to a multiple of 8; this encoder has position embeddings for 12 tokens."""
    objective = build(settings("masked_lm", data={"max_length": 12}), tokens).eval()
    rows = encode_texts(["cat " * 30, "the dog"], tokens.tokenizer, max_length=12)
    assert [*rows.lengths_N] == [12, 4]
    assert rows.batch(np.array([0]))["tokens_BT"].shape == (1, 16)
    together = pooled_states(objective, rows)
    alone = pooled_states(objective, encode_texts(["the dog"], tokens.tokenizer, max_length=12))
    np.testing.assert_allclose(together[:, 1:], alone, rtol=1e-4, atol=1e-6)  # float32


def test_the_top_is_what_a_head_reads(tokens):
    objective = build(settings(encoder={"norm": "pre"}), tokens).eval()
    batch = encode_texts(["the dog"], tokens.tokenizer, max_length=LONG).batch(np.array([0]))
    with torch.no_grad():
        layers, plain = encode_batch(objective, batch), objective.encode(batch)
    assert torch.equal(layers[-1], objective.encoder.norm(plain[-1]))
    assert not torch.allclose(layers[-1], plain[-1], atol=1e-3)
    assert all(torch.equal(a, b) for a, b in zip(layers[:-1], plain[:-1], strict=True))


def test_a_pair_is_its_two_means_their_distance_and_product(objective, tokens):
    rows = encode_pairs(["the dog sees"], ["a cat"], tokens.tokenizer, max_length=LONG)
    (row,) = rows.rows
    with torch.no_grad():
        top_TD = encode_batch(objective, rows.batch(np.array([0])))[-1][0, : len(row.ids_T)]
    a, b = (top_TD[torch.from_numpy(row.part_T == part)].mean(0) for part in (FIRST, SECOND))
    found = pooled_states(objective, rows)
    assert found.shape == (3, 1, 64)
    np.testing.assert_allclose(found[-1, 0], torch.cat([a, b, (a - b).abs(), a * b]), atol=2e-6)  # float32


def test_pairs_whose_second_texts_are_all_empty_are_pairs(objective, tokens):
    rows = encode_pairs(["the dog sees", "a cat"], ["", ""], tokens.tokenizer, max_length=LONG)
    found_LNF = pooled_states(objective, rows)
    assert found_LNF.shape == (3, 2, 64)
    assert (found_LNF[..., 16:32] == 0).all()
    assert (found_LNF[..., 32:48] == abs(found_LNF[..., :16])).all()


def test_means_are_of_what_is_inside_and_nothing_gives_zero():
    states_BTD = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [100.0, 100.0]], [[5.0, 5.0]] * 3])
    inside_BT = torch.tensor([[True, True, False], [False, False, False]])
    assert mean_over(states_BTD, inside_BT).tolist() == [[2, 3], [0, 0]]
    part_BT = torch.tensor([[FIRST, SECOND, SPECIAL], [FIRST, SECOND, SECOND]])
    features = pair_features(states_BTD, part_BT)
    assert features[0].tolist() == [1, 2, 3, 4, 2, 2, 3, 8]


def test_word_states_are_those_of_first_pieces_sentence_by_sentence(objective, tokens):
    words = [["a", "cat", "xyzzyx", "often"], ["the", *["pqpq"] * 9], ["fish"]]
    rows = encode_words(words, tokens.tokenizer, max_length=LONG)
    found = word_states(objective, rows)
    assert found.row_W.tolist() == [0] * 4 + [1] * 10 + [2]
    assert found.word_W.tolist() == [0, 1, 2, 3, *range(10), 0]
    for number, sentence in enumerate(words):
        each = [pieces(tokens, word) for word in sentence]
        ids = torch.tensor([[START, *[i for one in each for i in one], END]])
        space = [ids[0] == tokens.tokenizer.token_to_id("Ġ") for ids in each]
        starts = 1 + np.cumsum([0, *map(len, each)])[:-1] + space
        with torch.no_grad():
            alone = objective.encoder(ids, sees=objective.run.objective.sees)
        for layer, states in enumerate(alone):
            mine = found.states_LWD[layer, found.row_W == number]
            np.testing.assert_allclose(mine, states[0, starts], atol=2e-6)  # float32


def test_words_that_are_cut_off_have_no_states(objective, tokens):
    found = word_states(objective, encode_words([["cat"] * 30], tokens.tokenizer, max_length=10))
    assert found.word_W.tolist() == list(range(len(found.word_W)))
    assert 0 < len(found.word_W) <= 8
