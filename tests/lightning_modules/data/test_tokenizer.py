"""Sub-words: nothing is lost or special, the same text gives the same vocabulary; and tokenizers of folders."""

import hashlib
import json
import os
import subprocess
import sys
import unicodedata
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordPiece
from tokenizers.pre_tokenizers import ByteLevel, Metaspace, Whitespace, WhitespaceSplit
from tokenizers.trainers import BpeTrainer

from lightning_modules.config.data import FilesData
from lightning_modules.data.token_store import address, prepare
from lightning_modules.data.tokenizer import (
    END,
    FIRST_WORD_ID,
    MASK,
    PAD,
    SPECIAL_TOKENS,
    START,
    UNKNOWN,
    _checked,
    decode,
    encode,
    read_tokenizer,
    starts_word,
    sub_words_at_least,
    train,
)
from lightning_modules.errors import DataError
from tests.support import tiny_pretrained
from tests.support.errors import error_text
from tests.support.tiny_text import settings

TEXTS = [
    "The cat sees the dog .",
    "The [MASK] is hidden [SEP] not [MASK]ed",
    "Zoë's café costs 1,000 €; she didn't \"pay\" ...",
    "Größe und Straße , Übermut \u2013 日本語 🙂",
    "the dog sees the cats and the cat sees the dogs",
] * 3
SIZE = 140

transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")

LINES = ["The man sang, 7 times.", "than an A", "x [MASK] y", "é ü 漢字", "  two   spaces "]


@pytest.fixture(scope="module")
def tokenizer():
    return train(TEXTS, SIZE, source="the sentences of data.train")


def pieces_of(tokenizer, text):
    return [tokenizer.id_to_token(i) for i in encode(tokenizer, [text])[0][1:-1]]


def test_the_special_tokens_come_first_and_the_size_is_exact(tokenizer):
    assert tokenizer.get_vocab_size() == SIZE
    assert tuple(tokenizer.id_to_token(i) for i in range(FIRST_WORD_ID)) == SPECIAL_TOKENS
    assert sorted(tokenizer.get_vocab().values()) == list(range(SIZE))


def test_sentences_stand_between_start_and_end(tokenizer):
    ids = encode(tokenizer, TEXTS)
    assert len(ids) == len(TEXTS)
    assert all(i[0] == START and i[-1] == END and len(i) > 2 for i in ids)
    assert encode(tokenizer, []) == []


@pytest.mark.parametrize("reloaded", [False, True])
def test_special_tokens_written_in_a_text_are_text(tokenizer, reloaded):
    if reloaded:
        tokenizer = Tokenizer.from_str(tokenizer.to_str())
    for text in ("a [MASK] [SEP] [MASK]", "[SEP]", "[MASK][MASK]"):
        (ids,) = encode(tokenizer, [text])
        assert min(ids[1:-1]) >= FIRST_WORD_ID
        assert decode(tokenizer, ids) == text


def test_decoding_gives_the_text_back_up_to_nfc(tokenizer):
    composed = [" ".join(text.split()) for text in TEXTS]
    decomposed = [unicodedata.normalize("NFD", text) for text in composed]
    assert decomposed != composed
    assert encode(tokenizer, decomposed) == encode(tokenizer, composed)
    assert [decode(tokenizer, ids) for ids in encode(tokenizer, decomposed)] == composed


def test_decoding_stops_at_the_end_and_special_ids_say_nothing(tokenizer):
    (ids,) = encode(tokenizer, ["the dog"])
    assert decode(tokenizer, np.array([PAD, MASK, *ids, *ids, PAD])) == "the dog"
    assert decode(tokenizer, ids[:-1]) == "the dog"
    assert decode(tokenizer, [END, *ids]) == ""
    assert decode(tokenizer, []) == ""


def test_a_byte_that_training_never_saw_is_unknown_and_the_rest_is_kept(tokenizer):
    (ids,) = encode(tokenizer, ["the dog£s"])
    known = "£".encode()[0]  # C2 opens many characters; neither it nor A3 is in the training text
    assert known not in "".join(TEXTS).encode()
    assert ids.count(UNKNOWN) == 2
    assert decode(tokenizer, ids) == "the dogs"


def test_the_alphabet_is_the_bytes_of_the_training_text(tokenizer):
    alphabet = {piece for piece in tokenizer.get_vocab() if len(piece) == 1}
    used = {c for text in TEXTS for word, _ in ByteLevel().pre_tokenize_str(text) for c in word}
    assert alphabet == used
    assert len(used) < len(ByteLevel.alphabet())


def test_a_sentence_has_as_many_word_starts_as_words(tokenizer):
    starts_V = starts_word(tokenizer)
    assert starts_V.shape == (SIZE,)
    assert starts_V.dtype == np.bool_
    assert not starts_V[:FIRST_WORD_ID].any()
    for text in [" ".join(text.split()) for text in [*TEXTS, "a", "'s", "...", "\u0301a b\u0301", "£ £"]]:
        (ids,) = encode(tokenizer, [text])
        assert starts_V[ids].sum() == len(text.split())
        assert starts_V[ids[1]]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (" ".join(["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3), 30),
        ("the cat sees the dog and the cats see the dogs as others see them there then", 44),
    ],
)
def test_pieces_are_those_of_pair_merging_done_by_hand(text, size):
    """Sennrich et al. 2016, figure 1, on words with their counts; ties go to the pair with the smaller ids."""
    tokenizer = train([text], size, source="the sentences of data.train")
    words = Counter(tuple("Ġ" + word) for word in text.split())
    ids = {piece: i for i, piece in enumerate([*SPECIAL_TOKENS, *sorted({c for word in words for c in word})])}
    merges = []
    while len(ids) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        merges.append(min(pairs, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]])))
        ids.setdefault("".join(merges[-1]), len(ids))
        words = Counter({_merged(word, merges[-1]): count for word, count in words.items()})
    assert tokenizer.get_vocab() == ids
    for word in [*text.split(), "lowest", "these"]:
        by_hand = tuple("Ġ" + word)
        for pair in merges:
            by_hand = _merged(by_hand, pair)
        assert pieces_of(tokenizer, word) == [piece if piece in ids else "[UNK]" for piece in by_hand]


def _merged(word, pair):
    made, i = [], 0
    while i < len(word):
        step = 2 if word[i : i + 2] == pair else 1
        made.append("".join(word[i : i + step]))
        i += step
    return tuple(made)


SHUFFLED = """
import hashlib, random, sys
from lightning_modules.data.tokenizer import train
texts = sys.argv[2].split("|")
random.Random(int(sys.argv[1])).shuffle(texts)
print(hashlib.sha256(train(texts, 140, source="x").to_str().encode()).hexdigest())
"""


def test_neither_order_nor_threads_nor_hash_seeds_matter(tokenizer):
    expected = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()
    for seed, threads, parallel in (("0", "1", "false"), ("1", "1", "true"), ("2", "4", "true")):
        environment = os.environ | {
            "PYTHONHASHSEED": seed,
            "RAYON_NUM_THREADS": threads,
            "TOKENIZERS_PARALLELISM": parallel,
        }
        command = [sys.executable, "-c", SHUFFLED, seed, "|".join(TEXTS)]
        said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        assert said.strip() == expected


def test_a_vocabulary_that_the_text_cannot_fill_is_refused():
    with pytest.raises(DataError) as caught:
        train(["aa ab"], 1000, source="the translations of data.train")
    # 5 special tokens, 3 bytes (space, a, b) and the merges " a", " aa", " ab"
    assert str(caught.value) == (
        "data.vocab_size is 1,000, but the translations of data.train give only 11 sub-words; lower it to at "
        "most 11, or give more text."
    )
    assert train(["aa ab"], 11, source="the translations of data.train").get_vocab_size() == 11


@pytest.mark.parametrize("texts", [["ab cd e ab"], ["3.14 2.71 10"], ["e\u0301te été"], TEXTS], ids=str)
def test_words_give_at_least_the_sub_words_that_are_counted(texts):
    size = sub_words_at_least({word for text in texts for word in text.split()}, limit=1000)
    assert train(texts, size, source="texts").get_vocab_size() == size
    assert sub_words_at_least(["a", "a", "b"], limit=10) == FIRST_WORD_ID + 5  # Ġ, a, b, Ġa, Ġb


def test_a_vocabulary_smaller_than_the_bytes_of_the_text_is_refused():
    """As of Chinese, whose characters have many different bytes."""
    assert error_text(DataError, train, ["aa ab"], 7, source="the sentences of data.train") == (
        "data.vocab_size is 7, but the special tokens and the different bytes of the sentences of data.train "
        "already need 8; raise it to at least 8."
    )
    assert train(["aa ab"], 8, source="the sentences of data.train").get_vocab_size() == 8


def test_text_without_spaces_that_would_train_for_hours_is_refused_at_once():
    with pytest.raises(DataError) as caught:
        train(["aa ab", "to " + "ä" * 33_000], 12, source="the sentences of data.train")
    # two bytes for each letter and one for the space before
    assert str(caught.value) == (
        "the sentences of data.train have 66,001 bytes without a space in one sentence "
        "('to äääääääääääääääääääääääääääääääääääää'...), but at most 65,536 are possible; put spaces between its "
        "words, or remove the sentence."
    )
    assert train(["aa ab", "to " * 33_000], 12, source="a text as long").get_vocab_size() == 12


@pytest.mark.parametrize("part", ["a" * 2**17, "!\x1c" * 2**16, " \t" * 2**16, "\u3000" * 2**16])
def test_every_kind_of_long_part_is_found(part):
    with pytest.raises(DataError, match=r"bytes without a space in one sentence"):
        train(["aa ab", f"to {part} go"], 12, source="a text")


def test_a_long_text_of_short_words_is_not_cut_an_extra_time(monkeypatch):
    """That took half of the time of training."""
    with monkeypatch.context() as patch:
        patch.setattr("lightning_modules.data.tokenizer.pre_tokenizers.ByteLevel", lambda **_: None)
        text = "to " * 100_000
        assert [*_checked([text], "a text")] == [text]


def test_an_error_while_reading_the_text_is_the_error_that_is_seen():
    def texts():
        yield "fine"
        raise DataError("line 2 is bad")

    with pytest.raises(DataError, match=r"^line 2 is bad$"):
        train(texts(), 300, source="the sentences of data.train")


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


def test_an_unknown_word_of_wordpiece_begins_where_it_stands(tmp_path):
    tiny_pretrained.bert(tmp_path)
    given = read_tokenizer(tmp_path)
    own = given.renumbered(given.vocab_size(given.rows))
    (ids,) = encode(own, ["漢 the 漢."])
    assert [ids[1], ids[3]] == [UNKNOWN, UNKNOWN]
    assert starts_word(own)[np.array(ids)].tolist() == [False, True, True, True, True, False]


def test_only_a_line_feed_ends_a_piece_of_vocab_txt(tmp_path):
    """A vocabulary of all of Wikipedia has U+2028 and U+0085 as pieces; the ids after them would shift."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2028", "a", "\x85", "\x1c", "b"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    given = read_tokenizer(tmp_path)
    assert given.rows == len(pieces)
    assert given.content["model"]["vocab"] == {piece: i for i, piece in enumerate(pieces)}


def saved(folder, pre_tokenizer, **suffix):
    """A folder with a byte pair encoding, whose special tokens are RoBERTa's."""
    made = Tokenizer(BPE(unk_token="<unk>", **suffix))
    made.pre_tokenizer = pre_tokenizer
    special = ["<unk>", "<s>", "</s>"]
    trainer = BpeTrainer(vocab_size=SIZE, special_tokens=special, show_progress=False, **suffix)
    made.train_from_iterator(TEXTS, trainer)
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    names = dict(zip(("unk_token", "bos_token", "eos_token"), special, strict=True))
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder


def test_words_of_metaspace_begin_with_its_sign_and_not_with_a_letter_of_maltese(tmp_path):
    given = read_tokenizer(saved(tmp_path / "metaspace", Metaspace()))
    own = given.renumbered(given.vocab_size(given.rows))
    for text in ("the dog sees", "The cat", "Zoë Ġunju dogĠ"):
        (ids,) = encode(own, [text])
        assert starts_word(own)[np.array(ids)].sum() == len(text.split())
    maltese = Tokenizer(BPE({name: i for i, name in enumerate([*SPECIAL_TOKENS, "▁", "Ġ", "u"])}, []))
    assert np.flatnonzero(starts_word(maltese)).tolist() == [5]


def test_pieces_that_do_not_show_where_a_word_begins_are_refused(tmp_path):
    for name, suffix in (("plain", {}), ("ends", {"end_of_word_suffix": "</w>"})):
        folder = saved(tmp_path / name, Whitespace(), **suffix)
        assert error_text(DataError, read_tokenizer, folder) == (
            f"{folder}: the pieces of its tokenizer do not mark where a word begins, expected ▁ or Ġ before the "
            "first piece of a word; use another tokenizer."
        )


def saved_pieces(folder, model, pre_tokenizer):
    """A folder with a tokenizer of these pieces, whose special tokens are RoBERTa's."""
    made = Tokenizer(model)
    made.pre_tokenizer = pre_tokenizer
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder


@pytest.mark.parametrize(("space", "cut"), [("▁", Metaspace(split=False)), ("Ġ", ByteLevel(use_regex=False))])
def test_pieces_that_go_beyond_the_end_of_a_word_are_refused(space, cut, tmp_path):
    """Without a cut at spaces a sentence is one word for BPE, which then joins words."""

    def folder(name, merged):
        pieces = ["<unk>", "<s>", "</s>", space, "e", *merged]
        return saved_pieces(tmp_path / name, BPE({piece: i for i, piece in enumerate(pieces)}, []), cut)

    joined = folder("joined", [f"e{space}"])
    assert error_text(DataError, read_tokenizer, joined) == (
        f"{joined}: the piece 'e{space}' of its tokenizer goes beyond the end of a word, expected pieces of one "
        "word; use another tokenizer, or train it with a pre-tokenizer that cuts at spaces."
    )
    assert read_tokenizer(folder("spaces", [space * 2, space * 2 + "e"])).rows == 7


def test_a_name_of_a_special_token_is_text_also_where_words_are_looked_up_whole(tmp_path):
    """WordPiece that cuts at spaces alone leaves [MASK] whole, and finds it among the pieces."""
    pieces = ["<unk>", "<s>", "</s>", "the", "[", "##M", "MASK]", "##]"]
    model = WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>")
    given = read_tokenizer(saved_pieces(tmp_path / "spaces", model, WhitespaceSplit()))
    own = given.renumbered(given.vocab_size(given.rows))
    (ids,) = encode(own, ["the [MASK] [M] [MASK]the [CLS]"])
    read = [own.id_to_token(i) for i in ids[1:-1]]
    assert read == ["the", "[", "MASK]", "[", "##M", "##]", "[", "[UNK]", "[", "[UNK]"]


def test_ends_of_words_are_no_beginnings_also_with_the_alphabet_of_bytes(tmp_path):
    with pytest.raises(DataError, match="do not mark where a word begins"):
        read_tokenizer(saved(tmp_path / "ends", ByteLevel(), end_of_word_suffix="</w>"))


def test_a_file_that_does_not_name_the_type_of_its_model_is_read_as_one_that_does(tmp_path):
    """Older files of GPT-2 have no `type`."""
    folder = saved(tmp_path / "old", ByteLevel())
    known = read_tokenizer(folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    del content["model"]["type"]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    read = read_tokenizer(folder)
    assert (read.content["model"]["type"], read.special) == ("BPE", known.special)
    first, second = (given.renumbered(given.vocab_size(given.rows)) for given in (read, known))
    assert first.encode("the dog sees").ids == second.encode("the dog sees").ids


def test_a_piece_with_the_name_of_a_special_token_of_ours_is_never_read(tmp_path):
    """A folder whose mask token is <mask> may still have a piece [MASK], in its list or among added tokens."""
    folder = saved(tmp_path / "leftover", ByteLevel())
    content = json.loads((folder / "tokenizer.json").read_text())
    rows = len(content["model"]["vocab"])
    content["model"]["vocab"]["[MASK]"] = rows
    of_added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    content["added_tokens"].append({"id": rows + 1, "content": "[SEP]", **of_added})
    (folder / "tokenizer.json").write_text(json.dumps(content))
    given = read_tokenizer(folder)
    own = given.renumbered(given.vocab_size(given.rows))
    assert [own.id_to_token(i) for i in range(FIRST_WORD_ID)] == list(SPECIAL_TOKENS)
    assert own.get_vocab_size() == given.vocab_size(given.rows)
    (ids,) = encode(own, ["the [MASK] [SEP]"])
    assert min(ids[1:-1]) >= FIRST_WORD_ID
    assert "".join(own.id_to_token(i) for i in ids[1:-1]) == "Ġthe" + "Ġ[MASK]" + "Ġ[SEP]"


def test_a_special_token_that_merges_would_make_is_cut_into_its_parts(tmp_path):
    folder = saved(tmp_path / "merged", ByteLevel())
    content = json.loads((folder / "tokenizer.json").read_text())
    first, second = content["model"]["merges"][-1]
    names = json.loads((folder / "tokenizer_config.json").read_text()) | {"bos_token": first + second}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    given = read_tokenizer(folder)
    own = given.renumbered(given.vocab_size(given.rows))
    word = (first + second).removeprefix("Ġ")
    assert own.encode(word).tokens == [first, second]
    stock = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert own.encode("1,0.").tokens == stock.encode("1,0.").tokens


def test_a_text_without_a_space_has_a_store_if_the_tokenizer_puts_none_before_it(tmp_path):
    tiny_pretrained.gpt2(tmp_path / "gpt2")
    given = read_tokenizer(tmp_path / "gpt2")
    (tmp_path / "text.txt").write_text("ab\nba\n")
    about = {"kind": "files", "train": "text.txt", "validation": "text.txt", "tokenizer": "gpt2"}
    data = FilesData.model_validate(about | {"vocab_size": given.vocab_size(given.rows)})
    report = prepare(data, data_root=tmp_path, store=tmp_path / "store").report["splits"]["train"]["source"]
    assert (report["tokens"], report["words"], report["one_piece_word_share"]) == (8, 2, 0)


def test_tokenizers_that_cannot_be_read_are_one_sentence(tmp_path):
    def refusal(content):
        (tmp_path / "tokenizer.json").write_text(content)
        return error_text(DataError, read_tokenizer, tmp_path)

    assert refusal("[").startswith(f"{tmp_path}: its tokenizer cannot be read (")
    unigram = json.dumps({"model": {"type": "Unigram", "vocab": []}, "added_tokens": []})
    assert refusal(unigram) == (
        f"{tmp_path}: its tokenizer is of type Unigram, expected WordPiece or BPE; use another tokenizer."
    )
    nameless = json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": []})
    assert refusal(nameless) == (
        f"{tmp_path}: its tokenizer has no token for the start of a sentence; in tokenizer_config.json name a "
        "token of its vocabulary as cls_token or bos_token."
    )
    foreign = (
        f"{tmp_path}: tokenizer.json or tokenizer_config.json does not have the form that Hugging Face writes; "
        "save the tokenizer again with `save_pretrained` of transformers."
    )
    assert refusal("[]") == refusal('{"version": "1.0"}') == foreign
    (tmp_path / "tokenizer_config.json").write_text("[1]")
    assert refusal(nameless) == foreign


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
