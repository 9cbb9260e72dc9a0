"""Text in the tokens of Hugging Face models, and the states of these tokens."""

import json
import re

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from ablations.analyse.model import load
from ablations.analyse.text import sample_of, tokenise
from ablations.errors import MeasureError
from ablations.measures.reading.sample import NO_NEIGHBOUR
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, START
from tests.support import tiny_models
from tests.support.analysis import CUT_TEXT, read
from tests.support.errors import error_text
from tests.support.tiny_models import FAMILIES, POSITIONS

transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5", "marian"])
def test_what_is_read_together_changes_nothing(family, tmp_path):
    folder = tiny_models.save(tmp_path / family, family)
    together, one_by_one = (read(folder, tokens_at_once=tokens)[3] for tokens in (10**6, 1))
    for state, expected in zip(together, one_by_one, strict=True):
        np.testing.assert_allclose(state, expected, atol=1e-5)  # float32 sums in another order


def test_a_sentence_that_memory_cannot_hold_is_named(tmp_path, monkeypatch):
    folder = tiny_models.save(tmp_path / "bert")

    def refuse(*arguments, **options):
        torch.empty(2**60)

    monkeypatch.setattr("ablations.analyse.text.hidden_states", refuse)
    sentence = error_text(MeasureError, read, folder)
    assert re.fullmatch(
        rf"{re.escape(str(folder))}: a sentence has \d+ tokens, and there is no room for [\d.e+]+ GiB; put each "
        r"sentence on a line of its own\.",
        sentence,
    )


@pytest.mark.parametrize("family", ["bert", "marian", "gpt2"])
def test_states_are_those_of_a_padded_batch(family, tmp_path):
    loaded, _, _, found = read(tiny_models.save(tmp_path / family, family))
    inputs = loaded.tokenizer(CUT_TEXT, padding=True, truncation=True, max_length=POSITIONS, return_tensors="pt")
    inputs = {name: value for name, value in inputs.items() if name in loaded.accepts}
    with torch.no_grad():
        padded = loaded.model(**inputs, output_hidden_states=True).hidden_states[2]
    text = (inputs["attention_mask"] == 1) & (inputs["input_ids"] != 2) & (inputs["input_ids"] != 3)
    np.testing.assert_allclose(found[2], padded[text], atol=1e-5)  # float32 sums in another order


def test_segments_are_those_of_the_tokenizer(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    made = tiny_models.tokenizer(model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:1 [SEP]:0", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.save_pretrained(folder)
    loaded, tokenised, _, found = read(folder)
    assert tokenised.types is not None
    assert np.array_equal(tokenised.types == 1, tokenised.is_text)
    ids = torch.from_numpy(tokenised.ids[: tokenised.offsets[1]])[None]
    with torch.no_grad():
        embedded = loaded.model.embeddings(input_ids=ids, token_type_ids=torch.ones_like(ids))[0, 1:-1]
    np.testing.assert_allclose(found[0][: len(embedded)], embedded, atol=1e-6)  # float32


def test_text_tokens_are_all_but_special_ones(tmp_path):
    loaded, tokenised, sample, _ = read(
        tiny_models.save(tmp_path / "bert"), ["a b what? c", "[SEP] a [MASK] [UNK]", "d"]
    )
    assert tokenised.ids.tolist() == [2, 5, 6, 1, 7, 3, 2, 3, 5, 4, 1, 3, 2, 8, 3]
    assert tokenised.is_text.astype(int).tolist() == [0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0]
    codes = sample.token_N - FIRST_WORD_ID  # the ids that occur, in order: [UNK] a b c d
    assert codes.tolist() == [1, 2, 0, 3, 1, 0, 4]
    assert sample.sentence_N.tolist() == [0, 0, 0, 0, 1, 1, 2]
    assert sample.position_N.tolist() == [1, 2, 3, 4, 2, 4, 1]
    assert sample.left_N[[0, 1, 4, 6]].tolist() == [START, 1 + FIRST_WORD_ID, START, START]
    assert sample.right_N[[3, 4, 5, 6]].tolist() == [END, END, END, END]
    assert tokenised.text_spans()[0] == [(0, 1), (2, 3), (4, 9), (10, 11)]
    assert loaded.tokenizer.is_fast


def test_what_the_tokenizer_puts_before_a_sentence_is_no_text_though_it_may_stand_in_one(tmp_path):
    """As the name of a language that no list of special tokens has: here the word d."""
    folder = tiny_models.save(tmp_path / "bert")
    made = tiny_models.tokenizer()
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] d $A [SEP]", special_tokens=[("[CLS]", 2), ("d", 8), ("[SEP]", 3)]
    )
    made.save_pretrained(folder)
    tokenised = tokenise(load(folder), ["a d", "b"], tokens=100)
    assert tokenised.ids.tolist() == [2, 8, 5, 8, 3, 2, 8, 6, 3]
    assert tokenised.is_text.astype(int).tolist() == [0, 0, 1, 1, 0, 0, 0, 1, 0]


def test_a_mark_is_no_text_where_it_is_the_unknown_token_too(tmp_path):
    """GPT-2 has one token for the end of a text and for what is unknown, which to its bytes nothing is."""
    folder = tiny_models.save(tmp_path / "gpt2", "gpt2")
    text = ["a [SEP] b", "[SEP]", "[PAD] c [UNK]"]
    for names, is_text in (
        ({"eos_token": "[SEP]", "unk_token": "[SEP]"}, [1, 0, 1, 0, 0, 1, 1]),
        ({"pad_token": "[UNK]"}, [1, 0, 1, 0, 1, 1, 1]),
    ):
        tiny_models.tokenizer(**names).save_pretrained(folder)
        tokenised = tokenise(load(folder), text, tokens=100)
        inner = [i for i, token in enumerate(tokenised.ids) if i not in (0, 4, 5, 7, 8, 12)]
        assert tokenised.is_text[inner].astype(int).tolist() == is_text, names


def test_a_space_between_special_tokens_is_no_text_but_one_at_a_word_is(tmp_path):
    """Byte-level BPE has a token for a space; with words beside it, it is the model's reading of the text."""
    folder = tiny_models.save(tmp_path / "roberta", "roberta", vocab_size=300)
    tiny_models.byte_level_tokenizer().save_pretrained(folder)
    loaded = load(folder)

    def read_as(sentence):
        tokenised = tokenise(loaded, [sentence, "a"], tokens=100)
        ids = tokenised.ids[: tokenised.offsets[1]][tokenised.is_text[: tokenised.offsets[1]]]
        return loaded.tokenizer.convert_ids_to_tokens(ids.tolist())

    for nothing in ("<s> </s>", "<pad> <mask>", "<s> <s> <s>"):
        assert "Ġ" in loaded.tokenizer.tokenize(nothing)
        assert read_as(nothing) == []
        assert error_text(MeasureError, tokenise, loaded, [nothing], tokens=100) == (
            f"the tokenizer of {folder} makes no tokens from the text except special and unknown ones; "
            f"give text in the language of the model."
        )
    assert read_as("b c") == ["b", "Ġ", "c"]
    assert read_as("<s> b </s> </s>") == ["Ġ", "b", "Ġ"]
    assert read_as("é <s>") == ["Ã", "©", "Ġ"]
    assert read_as("<s>é<s>") == ["Ã", "©"]  # two bytes, of which neither is a letter


def test_sentences_without_special_tokens_have_no_neighbours_at_their_ends(tmp_path):
    folder = tiny_models.save(tmp_path / "gpt2", "gpt2")
    raw = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(raw | {"post_processor": None}))
    _, _, sample, found = read(folder, ["a b", "", "c", "[SEP]"])
    assert sample.position_N.tolist() == [0, 1, 0]
    assert sample.left_N.tolist() == [NO_NEIGHBOUR, sample.token_N[0], NO_NEIGHBOUR]
    assert sample.right_N.tolist() == [sample.token_N[1], NO_NEIGHBOUR, NO_NEIGHBOUR]
    assert len(found[0]) == 3


def test_sentences_that_are_too_long_are_cut_and_counted(tmp_path):
    for family in ("roberta", "t5"):
        _, tokenised, sample, _ = read(tiny_models.save(tmp_path / family, family))
        longest = FAMILIES[family].longest
        assert tokenised.cut_S.tolist() == [False] * 30 + [longest is not None]
        assert (sample.sentence_N == 30).sum() == (60 if longest is None else longest - 2)
    tiny_models.tokenizer(model_max_length=12).save_pretrained(tmp_path / "t5")
    assert load(tmp_path / "t5").max_length == 12


def test_only_as_much_text_is_cut_into_tokens_as_is_asked_for(tmp_path):
    loaded = load(tiny_models.save(tmp_path / "bert"))
    endless = ("a b c" for _ in iter(int, 1))
    tokenised = tokenise(loaded, endless, tokens=4000)
    sample = sample_of(tokenised, tokens=4000, source=tmp_path)
    assert (len(sample), sample.sentences) == (3999, 1333)


def test_a_slow_tokenizer_is_read_and_does_not_say_where_its_tokens_stand(tmp_path):
    folder = tiny_models.save(tmp_path / "t5", "t5", vocab_size=300)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    transformers.ByT5Tokenizer(extra_ids=0).save_pretrained(folder)
    loaded, tokenised, sample, _ = read(folder, ["ab", "é"])
    assert not loaded.tokenizer.is_fast
    assert tokenised.ids.tolist() == [100, 101, 1, 198, 172, 1]
    assert len(sample) == 4
    assert tokenised.spans is None


@pytest.mark.parametrize("family", ["marian", "t5"])
def test_a_tokenizer_of_sentencepiece_is_that_of_sentencepiece_itself(family, tmp_path):
    pieces = tiny_models.sentencepiece_model()
    folder = tiny_models.save(tmp_path / family, family)
    tiny_models.save_sentencepiece(folder, pieces)
    loaded, tokenised, sample, found = read(folder, tiny_models.SENTENCES)
    parts = np.split(tokenised.ids, tokenised.offsets[1:-1])
    expected = [[*pieces.encode(sentence), pieces.eos_id()] for sentence in tiny_models.SENTENCES]
    assert [part.tolist() for part in parts] == expected
    assert tokenised.is_text.tolist() == [i != pieces.eos_id() for ids in expected for i in ids]
    with torch.no_grad():
        states = loaded.model(input_ids=torch.tensor(expected[5:6]), output_hidden_states=True).hidden_states
    np.testing.assert_allclose(found[1][sample.sentence_N == 5], states[1][0, :-1], atol=1e-5)  # float32


CASED = ["Aa bA ï", "B", "ïB a"]


def cased_tokenizer(**normalizer):
    """A tokenizer of single characters, upper and lower case, as its file describes it."""
    words = {word: i for i, word in enumerate((*tiny_models.SPECIAL, *"abABï"))}
    tokenizer = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(**{"lowercase": False, "strip_accents": False} | normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def ids_of(folder, texts):
    tokenised = tokenise(load(folder), texts, tokens=100)
    return [part.tolist() for part in np.split(tokenised.ids, tokenised.offsets[1:-1])]


@pytest.mark.parametrize("config", [None, {"tokenizer_class": "BertTokenizerFast"}])
def test_a_tokenizer_does_what_its_file_describes(config, tmp_path):
    """transformers gives the vocabulary of the file to a tokenizer that cuts words and makes them lower case."""
    folder, written = tiny_models.save(tmp_path / "bert"), cased_tokenizer()
    written.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").unlink()
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert ids_of(folder, CASED) == [encoding.ids for encoding in written.encode_batch(CASED)]


def test_options_beside_the_file_of_a_tokenizer_win(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    cased_tokenizer().save(str(folder / "tokenizer.json"))
    options = {"tokenizer_class": "BertTokenizerFast", "do_lower_case": True, "strip_accents": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    written = cased_tokenizer(lowercase=True, strip_accents=True)
    assert ids_of(folder, CASED) == [encoding.ids for encoding in written.encode_batch(CASED)]


def test_a_sentence_that_is_cut_keeps_its_beginning(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    tokenizer = tiny_models.tokenizer()
    whole = tokenizer("a b c d " * POSITIONS)["input_ids"]
    tokenizer.truncation_side = "left"
    tokenizer.save_pretrained(folder)
    assert ids_of(folder, ["a b c d " * POSITIONS]) == [[*whole[: POSITIONS - 1], whole[-1]]]


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    folder = tiny_models.save(tmp_path / "bert", vocab_size=12)
    loaded = load(folder)
    assert error_text(MeasureError, tokenise, loaded, ["a b", "z"], tokens=100) == (
        f"{folder}: the tokenizer gives the id 30, but the model has 12 ids; save the model's own "
        f"tokenizer in this folder."
    )


def test_a_text_without_a_token_that_is_known_is_refused(tmp_path):
    loaded = load(tiny_models.save(tmp_path / "bert"))
    for nothing in (["[SEP]", " "], ["漢字", "漢"]):
        assert error_text(MeasureError, tokenise, loaded, nothing, tokens=100) == (
            f"the tokenizer of {loaded.folder} makes no tokens from the text except special and unknown ones; "
            "give text in the language of the model."
        )
    assert tokenise(loaded, ["漢字", "a"], tokens=100).is_text.sum() == 2  # one token is enough
