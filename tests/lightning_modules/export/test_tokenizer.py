"""The exported tokenizer gives the ids of training, and a mask in a text is the mask that the model knows."""

import itertools
import random
import re

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, normalizers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Metaspace, Punctuation, Sequence

from lightning_modules.config import RunSettings
from lightning_modules.data.language import Language
from lightning_modules.data.token_store import prepare
from lightning_modules.data.tokenizer import END, MASK, SPECIAL_TOKENS, START, encode, train
from lightning_modules.export.folder import STOCKS, export, write_tokenizer
from lightning_modules.files import write_json
from lightning_modules.objectives import build
from tests.support.start_here import start_here
from tests.support.tiny_text import SECTIONS, run_folder, settings

transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")

TEXTS = (
    "The cat sees the dog .",
    "The cat, which (nobody's) dog sees: 1,000 times; it's late...",
    "Größe und Straße , Übermut \u2013 Zoe\u0308's café",
    "日本語のテキスト、こんにちは。 中文 文本",
    "Привет, мир! Как дела ?",
    "مرحبا بالعالم، كيف حالك؟ שלום עולם",
    "नमस्ते दुनिया 🙂👩‍👧 x² ½",
    "two  spaces\tand a tab, \u00a0 hard and \u3000 wide ones ",
    " a space before",
    "a\nb",
    "",
)
"""Natural text of several scripts; the last ones have white space that is no single space."""

WRITTEN_OUT = ("a [MASK] [SEP] [MASK]", "[SEP]", "[MASK][MASK]", "see [CLS], [PAD] and the [UNK]known")
"""Names of special tokens as a text about them writes them."""


@pytest.fixture(scope="module")
def tokenizer():
    return train([*TEXTS, *WRITTEN_OUT] * 2, 320, source="data.text")


@pytest.fixture(scope="module")
def exported(tokenizer, tmp_path_factory):
    """The tokenizer as transformers loads it from an exported folder."""
    folder = tmp_path_factory.mktemp("exported")
    tokenizer.save(str(folder / "source.json"))
    write_tokenizer(folder / "source.json", folder, max_length=64, segments=True)
    write_json(folder / "config.json", {"model_type": "bert"})
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_all_text_gets_the_ids_of_training(tokenizer, exported):
    rng = random.Random(0)
    letters = "ab .,'s \t\n\u00a0\u3000Ġ▁éж日🙂\u200d\u0301 123[]"
    made = ["".join(rng.choices(letters, k=rng.randint(0, 12))) for _ in range(2000)]
    texts = [*TEXTS, *made]
    assert exported(texts)["input_ids"] == encode(tokenizer, texts)


def test_names_of_special_tokens_are_text_where_that_is_asked_for(tokenizer, exported):
    texts = [*TEXTS, *WRITTEN_OUT]
    assert exported(texts, split_special_tokens=True)["input_ids"] == encode(tokenizer, texts)
    assert exported(texts)["input_ids"] != encode(tokenizer, texts)


def test_a_pair_is_joined_as_in_training(tokenizer, exported):
    (first, second) = encode(tokenizer, ["the dog", "sees, it"])
    both = exported("the dog", "sees, it")
    assert both["input_ids"] == [*first, *second[1:]]
    assert both["token_type_ids"] == [0] * len(first) + [1] * (len(second) - 1)


@pytest.mark.parametrize("text", TEXTS[:7])
def test_a_masked_word_leaves_all_other_pieces_as_they_are(text, tokenizer, exported):
    text = tokenizer.normalizer.normalize_str(text)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    words = list(re.finditer(r"(?<!')[^\W\d_]+", text))
    assert words
    for word in words:
        masked = f"{text[: word.start()]}[MASK]{text[word.end() :]}"
        hidden = [a >= word.start() - (text[a] == " ") and b <= word.end() for a, b in encoding.offsets]
        kept = [(MASK if h else i, h) for i, h in zip(encoding.ids, hidden, strict=True)]
        joined = [list(same) for _, same in itertools.groupby(kept, key=lambda pair: pair[1])]
        expected = [i for same in joined for i, h in (same[:1] if same[0][1] else same)]
        assert exported(masked)["input_ids"] == [START, *expected, END], masked
        assert expected.count(MASK) == 1


@pytest.mark.parametrize(
    ("normalizer", "cutter", "is_alone"),
    [
        (None, Metaspace(prepend_scheme="always"), True),
        (None, Sequence([Metaspace(prepend_scheme="always"), Punctuation()]), True),
        (None, ByteLevel(add_prefix_space=True, use_regex=False), True),
        (None, Sequence([ByteLevel(add_prefix_space=True), Digits()]), True),
        (None, Sequence([Digits(), ByteLevel(add_prefix_space=True)]), False),
        (normalizers.Strip(), Metaspace(prepend_scheme="always"), False),
        (normalizers.Strip(), ByteLevel(add_prefix_space=True), False),
        (None, Metaspace(prepend_scheme="first"), True),
        (None, ByteLevel(add_prefix_space=False), True),
        (None, None, True),
    ],
)
def test_tokenizers_of_folders_put_a_space_before_the_whole_text_alone(normalizer, cutter, is_alone, tmp_path):
    """Where that would change the ids of a text without masks, they put it after each mask too."""
    characters = [*SPECIAL_TOKENS, *sorted({*ByteLevel.alphabet(), "▁", " "})]
    source = Tokenizer(BPE({character: i for i, character in enumerate(characters)}, []))
    if normalizer is not None:
        source.normalizer = normalizer
    if cutter is not None:
        source.pre_tokenizer = cutter
    source.save(str(tmp_path / "source.json"))
    write_tokenizer(tmp_path / "source.json", tmp_path, max_length=64, segments=False)
    written = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    texts = ["a.", " a", "  a b", "a1.b2", "", "1"]
    assert [written.encode(text).ids for text in texts] == encode(source, texts)
    assert (written.encode("a [MASK].").ids[-3] == MASK) == is_alone


def test_special_tokens_are_added_tokens_and_stay_so_when_saved_again(exported, tmp_path):
    exported.save_pretrained(tmp_path)
    for loaded in (exported, transformers.AutoTokenizer.from_pretrained(tmp_path)):
        added = loaded.added_tokens_decoder
        assert [str(added[i]) for i in range(len(added))] == list(SPECIAL_TOKENS)
        assert all(token.special and not token.normalized for token in added.values())
        assert [i for i in added if added[i].lstrip] == [MASK]
        assert set(loaded.all_special_ids) == set(added)
        assert loaded("a [MASK], b")["input_ids"] == exported("a [MASK], b")["input_ids"]


def test_fill_mask_predicts_what_the_run_predicts(tmp_path):
    run = RunSettings.model_validate(
        SECTIONS
        | {
            "data": {"kind": "language", "train": 300, "validation": 40, "test": 10, "vocab_size": 256},
            "objective": {"kind": "masked_lm"},
            "seed": 0,
        }
    )
    tokens = prepare(run.data, data_root=tmp_path, store=tmp_path / "out" / "tokens")
    directory = run_folder(run, tokens, out=tmp_path / "out")
    start_here(directory, data_root=tmp_path)
    export(directory.path, tmp_path / "exported")
    ours = build(run, tokens).eval()
    ours.load_state_dict(torch.load(directory.last_checkpoint, weights_only=True)["state_dict"])
    transformers.logging.set_verbosity_error()
    pipeline = transformers.pipeline("fill-mask", model=str(tmp_path / "exported"), device="cpu", top_k=20)

    for sentence in Language(0).document("validation", 0)[:4]:
        words = sentence.text.split()
        for place in sorted({0, 1, len(words) // 2, len(words) - 1}):
            text = " ".join([*words[:place], "[MASK]", *words[place + 1 :]])
            pieces = encode(tokens.tokenizer, [" ".join(words[:place]), " ".join(words[place + 1 :])])
            ids = [START, *pieces[0][1:-1], MASK, *pieces[1][1:-1], END]
            assert pipeline.tokenizer(text)["input_ids"] == ids
            with torch.no_grad():
                top_TD = ours.encoder.head_input(ours.encoder(torch.tensor([ids]), sees="both_sides")[-1])[0]
                expected_V = ours.head(top_TD, ours.encoder.tokens.weight)[ids.index(MASK)].softmax(-1)
            predicted = pipeline(text)
            assert [guess["token"] for guess in predicted] == expected_V.topk(20).indices.tolist()
            np.testing.assert_allclose(
                [guess["score"] for guess in predicted], expected_V.topk(20).values, rtol=1e-4
            )


@pytest.mark.parametrize("stock", STOCKS, ids=lambda stock: stock.model_type)
def test_every_model_type_gets_the_ids_and_the_inputs_that_it_reads(stock, tokenizer, exported, tmp_path):
    tokenizer.save(str(tmp_path / "source.json"))
    write_tokenizer(tmp_path / "source.json", tmp_path, max_length=64, segments=stock.reads_segments)
    run = settings("translation" if "target_text" in stock.classes else "masked_lm")
    state = {f"{stem}.tokens.weight": torch.zeros(320, 16) for stem in ("encoder", "decoder")}
    if stock.model_type == "longformer":
        run = settings(encoder={"attention_window": 2})
    write_json(tmp_path / "config.json", stock.full_config(state, run, next(iter(stock.classes))))
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = [*TEXTS, *WRITTEN_OUT]
    assert loaded(texts)["input_ids"] == exported(texts)["input_ids"]
    pair = loaded(TEXTS[0], TEXTS[1])
    assert ("token_type_ids" in pair) == stock.reads_segments
    assert (loaded.pad_token_id, loaded.mask_token_id, loaded.model_max_length) == (0, MASK, 64)
    assert loaded.decode(loaded(TEXTS[0])["input_ids"], skip_special_tokens=True).strip() == TEXTS[0]
