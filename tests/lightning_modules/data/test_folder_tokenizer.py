"""The tokenizers of folders, in our numbering."""

import json

import numpy as np
import pytest

from lightning_modules.data.folder_tokenizer import read_tokenizer
from lightning_modules.data.token_store import address, prepare
from lightning_modules.data.tokenizer import decode, encode, starts_word
from lightning_modules.errors import DataError
from lightning_modules.vocabulary import END, FIRST_WORD_ID, START, UNKNOWN
from tests.support import tiny_pretrained
from tests.support.tiny_text import settings

transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")

LINES = ["The man sang, 7 times.", "than an A", "x [MASK] y", "é ü 漢字", "  two   spaces "]


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_text_has_the_pieces_of_the_stock_tokenizer_and_special_ids_are_ours(family, tmp_path):
    getattr(tiny_pretrained, family)(tmp_path)
    given = read_tokenizer(tmp_path)
    size = given.vocab_size(given.rows + 2)
    own = given.renumbered(size)
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path)
    order = given.order(given.rows + 2)
    assert own.get_vocab_size() == size == len(order)
    for line, ids in zip(LINES, encode(own, LINES), strict=True):
        assert (ids[0], ids[-1]) == (START, END)
        if "[MASK]" not in line:
            assert [order[i] for i in ids[1:-1]] == stock(line, add_special_tokens=False)["input_ids"]
    in_text = encode(own, ["x [MASK] y"])[0]
    assert all(i >= FIRST_WORD_ID or i == UNKNOWN for i in in_text[1:-1])
    assert decode(own, encode(own, ["the man"])[0]) == "the man"


def test_words_of_wordpiece_begin_where_a_piece_goes_on_with_nothing(tmp_path):
    tiny_pretrained.bert(tmp_path)
    given = read_tokenizer(tmp_path)
    own = given.renumbered(given.vocab_size(given.rows))
    (ids,) = encode(own, ["the man sang."])
    begins = starts_word(own)[np.array(ids)]
    assert begins.sum() == 4  # "the", "man", "sang" and the full stop
    assert not begins[[0, -1]].any()


def test_tokenizers_that_cannot_be_read_are_one_sentence(tmp_path):
    def refusal(content):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(DataError) as error:
            read_tokenizer(tmp_path)
        return str(error.value)

    assert refusal("[").startswith(f"{tmp_path}: its tokenizer cannot be read (")
    unigram = json.dumps({"model": {"type": "Unigram", "vocab": []}, "added_tokens": []})
    assert refusal(unigram) == (
        f"{tmp_path}: its tokenizer is of the kind Unigram, expected WordPiece or BPE; use another model."
    )
    nameless = json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": []})
    assert refusal(nameless) == (
        f"{tmp_path}: its tokenizer names no token for the start of a sentence; add cls_token or bos_token to "
        f"tokenizer_config.json."
    )


def test_a_store_is_cut_by_the_folder_and_known_by_it(tmp_path, data_root):
    tiny_pretrained.bert(tmp_path / "bert")
    given = read_tokenizer(tmp_path / "bert")
    size = given.vocab_size(given.rows)
    data = settings().data.model_copy(update={"tokenizer": str(tmp_path / "bert"), "vocab_size": size})
    tokens = prepare(data, data_root=data_root, store=tmp_path / "store")
    line = (data_root / "train.tsv").read_text().splitlines()[1].split("\t")
    own = given.renumbered(size)
    for text, sentence in zip(line, (tokens.train.sentence(0), tokens.train.target_sentence(0)), strict=True):
        (ids,) = encode(own, [text])
        assert sentence.tolist() == [*ids[: data.max_length - 1], END][: len(sentence)]
    assert tokens.vocab_size == tokens.target_vocab_size == size
    pieces = (tmp_path / "bert/vocab.txt").read_text()
    (tmp_path / "bert/vocab.txt").write_text(pieces.replace("##z\n", "##ze\n"))
    assert address(data, data_root) != tokens.address
