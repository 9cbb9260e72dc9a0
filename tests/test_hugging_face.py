"""Models from Hugging Face folders: every layer's states, whatever the architecture, and nothing executed."""

import inspect
import json
import shutil
import socket

import numpy as np
import pytest
import torch
from tokenizers import processors

from ablations.errors import MeasureError
from ablations.hugging_face import load, untrained
from ablations.hugging_face_folder import reason
from ablations.hugging_face_states import states
from ablations.hugging_face_text import sample_of, tokenise
from ablations.measures.sample import NO_NEIGHBOUR
from lightning_modules.vocabulary import END, FIRST_WORD_ID, START
from tests import tiny_models
from tests.tiny_models import FAMILIES, LAYERS, POSITIONS, WIDTH

transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")

TEXT = [*tiny_models.sentences(30), "a " * 60]


def read(folder, text=TEXT, **options):
    """The model, its tokens, all of them as a sample, and their states."""
    loaded = load(folder)
    tokenised = tokenise(loaded, text, tokens=10**6)
    sample = sample_of(tokenised, tokens=10**6, source=folder)
    return loaded, tokenised, sample, states(loaded, tokenised, sample, **options)


def alone(loaded, sentence):
    """What goes into each block for one sentence, what leaves the last, and the norm's output, by name."""
    family = FAMILIES[loaded.folder.name]
    inputs = loaded.tokenizer(sentence, return_tensors="pt", truncation=True, max_length=family.longest or 10**6)
    inputs = {name: value for name, value in inputs.items() if name in loaded.accepts}
    entered, seen, hooks = [], [], []

    def keep(module, arguments, output):
        seen.append(output if isinstance(output, torch.Tensor) else output[0])

    def keep_what_enters(module, arguments, named):
        entered.append(arguments[0] if arguments else named["hidden_states"])

    blocks = loaded.model.get_submodule(family.blocks)
    hooks.append(blocks[0].register_forward_pre_hook(keep_what_enters, with_kwargs=True))
    for block in blocks:
        hooks.append(block.register_forward_hook(keep))
    if family.norm:
        hooks.append(loaded.model.get_submodule(family.norm).register_forward_hook(keep))
    with torch.no_grad():
        returned = loaded.model(**inputs, output_hidden_states=True).hidden_states
    for hook in hooks:
        hook.remove()
    if family.config == "XLNet":  # positions first
        entered, seen = ([state.transpose(0, 1) for state in states] for states in (entered, seen))
    assert torch.equal(returned[0], entered[0]) == (family.returns == "before blocks")
    text = (inputs["input_ids"][0] != 2) & (inputs["input_ids"][0] != 3)
    return [state[0, text].numpy() for state in (entered[0], *seen)]


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_are_what_leaves_each_block_and_the_normalised_state_is_kept_apart(family, tmp_path):
    folder = tiny_models.save(tmp_path / family, family)
    loaded, _, sample, found = read(folder)
    assert (loaded.layers, loaded.width, loaded.max_length) == (LAYERS, WIDTH, FAMILIES[family].longest)
    assert len(found.layers_LND) == LAYERS + 1
    assert (found.normalised_ND is not None) == (FAMILIES[family].norm is not None)
    everything = [*found.layers_LND, *([] if found.normalised_ND is None else [found.normalised_ND])]
    assert all(state.shape == (len(sample), WIDTH) and state.dtype == np.float32 for state in everything)
    for i in (0, 7, 30):
        for state, expected in zip(everything, alone(loaded, TEXT[i]), strict=True):
            np.testing.assert_allclose(
                state[sample.sentence_N == i], expected, atol=1e-5
            )  # float32 sums, other order
    if found.normalised_ND is not None:
        assert np.abs(found.normalised_ND - found.layers_LND[-1]).max() > 0.1


def test_the_layers_of_gpt2_are_those_of_its_blocks_run_by_hand(tmp_path):
    loaded, _, sample, found = read(tiny_models.save(tmp_path / "gpt2", "gpt2"))
    ids = torch.from_numpy(loaded.tokenizer(TEXT[3], return_tensors="np")["input_ids"])
    with torch.no_grad():
        x = loaded.model.wte(ids) + loaded.model.wpe(torch.arange(ids.shape[1]))
        expected = [x]
        for block in loaded.model.h:
            n = block.ln_1(x)
            query, key, value = (
                part.unflatten(-1, (2, 8)).transpose(1, 2) for part in block.attn.c_attn(n).split(WIDTH, dim=-1)
            )
            weight = (query @ key.transpose(2, 3) / 8**0.5).masked_fill(
                torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool(), -torch.inf
            )
            x = x + block.attn.c_proj((weight.softmax(-1) @ value).transpose(1, 2).flatten(2))
            x = x + block.mlp(block.ln_2(x))
            expected.append(x)
        expected.append(loaded.model.ln_f(x))
    for state, by_hand in zip([*found.layers_LND, found.normalised_ND], expected, strict=True):
        np.testing.assert_allclose(state[sample.sentence_N == 3], by_hand[0, 1:-1], atol=1e-5)  # float32


def test_the_layers_of_mamba_are_those_of_its_blocks_run_by_hand(tmp_path):
    """It returns no state before its first block, and the last twice, of which once after the norm."""
    for layers in (LAYERS, 1):
        loaded, _, sample, found = read(tiny_models.save(tmp_path / "mamba", "mamba", num_hidden_layers=layers))
        ids = torch.from_numpy(loaded.tokenizer(TEXT[3], return_tensors="np")["input_ids"])
        with torch.no_grad():
            expected = [loaded.model.embeddings.weight[ids]]
            for block in loaded.model.layers:
                x = expected[-1]
                scale = (x.pow(2).mean(-1, keepdim=True) + block.norm.variance_epsilon).rsqrt()
                expected.append(x + block.mixer(block.norm.weight * x * scale))
            expected.append(loaded.model.norm_f(expected[-1]))
        assert len(found.layers_LND) == layers + 1
        for state, by_hand in zip([*found.layers_LND, found.normalised_ND], expected, strict=True):
            np.testing.assert_allclose(state[sample.sentence_N == 3], by_hand[0, 1:-1], atol=1e-5)  # float32


def test_the_layers_of_rwkv_are_those_of_its_blocks_run_by_hand_and_never_halved(tmp_path):
    loaded, _, sample, found = read(tiny_models.save(tmp_path / "rwkv", "rwkv"))
    stock = transformers.AutoModel.from_pretrained(tmp_path / "rwkv").eval()
    ids = torch.from_numpy(loaded.tokenizer(TEXT[3], return_tensors="np")["input_ids"])
    with torch.no_grad():
        expected = [loaded.model.embeddings.weight[ids]]
        for block in loaded.model.blocks:
            x = block.pre_ln(expected[-1]) if block.layer_id == 0 else expected[-1]
            x = x + block.attention(block.ln1(x))[0]
            expected.append(x + block.feed_forward(block.ln2(x))[0])
        expected.append(loaded.model.ln_out(expected[-1]))
        halved = stock(input_ids=ids, output_hidden_states=True).hidden_states
    for state, by_hand in zip([*found.layers_LND, found.normalised_ND], expected, strict=True):
        np.testing.assert_allclose(state[sample.sentence_N == 3], by_hand[0, 1:-1], atol=1e-5)  # float32
    for theirs, by_hand, factor in zip(halved, expected[1:], (1, 0.5, 0.5, 1), strict=True):
        np.testing.assert_allclose(theirs, factor * by_hand, atol=1e-4)  # float32, and an epsilon in norms


def test_a_model_whose_states_are_of_no_block_is_refused(tmp_path, monkeypatch):
    folder = tiny_models.save(tmp_path / "bert")
    stock = transformers.BertModel.forward

    def shifted(self, *inputs, **options):
        output = stock(self, *inputs, **options)
        output.hidden_states = tuple(state + 1 for state in output.hidden_states)
        return output

    shifted.__signature__ = inspect.signature(stock)
    monkeypatch.setattr(transformers.BertModel, "forward", shifted)
    refused(
        folder,
        f"{folder}: BertModel returns states of which neither the first goes into its first block nor the last "
        f"but one leaves its last, so that it is not known which is whose; analyse another model.",
    )


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5", "convbert", "mamba", "rwkv"])
def test_what_is_read_together_changes_nothing(family, tmp_path):
    folder = tiny_models.save(tmp_path / family, family)
    together, one_by_one = (read(folder, tokens_at_once=tokens)[3] for tokens in (10**6, 1))
    for state, expected in zip(together.layers_LND, one_by_one.layers_LND, strict=True):
        np.testing.assert_allclose(state, expected, atol=1e-5)  # float32 sums in another order


@pytest.mark.parametrize(
    ("family", "agrees"), [("bert", True), ("marian", True), ("gpt2", True), ("convbert", False)]
)
def test_states_are_those_of_a_padded_batch_where_the_model_ignores_padding(family, agrees, tmp_path):
    """Convolutions of ConvBERT read padding: no batch with padding has its states."""
    loaded, _, _, found = read(tiny_models.save(tmp_path / family, family))
    inputs = loaded.tokenizer(TEXT, padding=True, truncation=True, max_length=POSITIONS, return_tensors="pt")
    inputs = {name: value for name, value in inputs.items() if name in loaded.accepts}
    with torch.no_grad():
        padded = loaded.model(**inputs, output_hidden_states=True).hidden_states[2]
    text = (inputs["attention_mask"] == 1) & (inputs["input_ids"] != 2) & (inputs["input_ids"] != 3)
    assert np.allclose(found.layers_LND[2], padded[text], atol=1e-5) == agrees


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
    np.testing.assert_allclose(found.layers_LND[0][: len(embedded)], embedded, atol=1e-6)  # float32


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
        with pytest.raises(MeasureError) as error:
            tokenise(loaded, [nothing], tokens=100)
        assert str(error.value) == (
            f"the tokenizer of {folder} makes no token of the text, special ones apart; give text in the language "
            f"of the model."
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
    assert len(found.layers_LND[0]) == 3


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


@pytest.mark.parametrize("family", ["bert", "t5", "gpt2"])
def test_the_untrained_twin_has_the_weights_of_its_seed_and_leaves_the_global_state_alone(family, tmp_path):
    trained = load(tiny_models.save(tmp_path / family, family))
    before = torch.get_rng_state()
    twin, again, other = (untrained(trained, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    weights = [torch.cat([p.flatten() for p in m.model.parameters()]) for m in (trained, twin, again, other)]
    assert len({len(weight) for weight in weights}) == 1
    assert torch.equal(weights[1], weights[2])
    assert not torch.equal(weights[1], weights[3])
    assert not torch.equal(weights[1], weights[0])
    assert len({trained.run_id, twin.run_id, other.run_id}) == 3
    assert (twin.run_id, twin.step, twin.model.training) == (again.run_id, 0, False)
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(trained.folder)
    stock = transformers.AutoModel.from_config(config).get_input_embeddings().weight
    assert torch.equal(twin.model.get_input_embeddings().weight, stock)


def test_the_same_model_is_known_again_wherever_it_lies(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((tmp_path / "copy/config.json").read_text())
    (tmp_path / "copy/config.json").write_text(json.dumps(config | {"transformers_version": "4.0", "dtype": None}))
    assert load(folder).run_id == load(tmp_path / "copy").run_id
    (tmp_path / "copy/config.json").write_text(json.dumps(config | {"layer_norm_eps": 1e-3}))
    assert load(folder).run_id != load(tmp_path / "copy").run_id
    other = tiny_models.model("bert")
    with torch.no_grad():
        other.embeddings.word_embeddings.weight[9, 9] += 1
    other.save_pretrained(tmp_path / "bert")
    assert load(folder).run_id != load(tmp_path / "copy").run_id


def test_the_step_is_the_trainers(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    assert load(folder).step is None
    (folder / "trainer_state.json").write_text('{"global_step": 1200}')
    assert load(folder).step == 1200


@pytest.mark.parametrize(
    ("family", "head"),
    [("bert", "BertForMaskedLM"), ("gpt2", "GPT2LMHeadModel"), ("t5", "T5ForConditionalGeneration"),
     ("t5", "T5EncoderModel"), ("marian", "MarianMTModel"), ("electra", "ElectraForPreTraining")],
)  # fmt: skip
def test_a_head_or_a_missing_decoder_changes_nothing(family, head, tmp_path):
    folder = tiny_models.save(tmp_path / family, family)
    whole = tiny_models.model(family)
    headed = getattr(transformers, head)(whole.config)
    own = {name.removeprefix(f"{headed.base_model_prefix}."): name for name in headed.state_dict()}
    missing = headed.load_state_dict(
        {own[name]: value for name, value in whole.state_dict().items() if name in own}, strict=False
    )
    assert len(missing.missing_keys) < len(own) / 2
    shutil.copytree(folder, tmp_path / "headed" / family)
    headed.save_pretrained(tmp_path / "headed" / family)
    with_head, without = (read(path / family)[3] for path in (tmp_path / "headed", tmp_path))
    for state, expected in zip(with_head.layers_LND, without.layers_LND, strict=True):
        np.testing.assert_array_equal(state, expected)


def test_weights_in_parts_are_read(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    whole, expected = load(folder), read(folder)[3]
    (folder / "model.safetensors").unlink()
    whole.model.save_pretrained(folder, max_shard_size="10KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    np.testing.assert_array_equal(read(folder)[3].layers_LND[3], expected.layers_LND[3])


def test_a_slow_tokenizer_is_read_and_where_its_bytes_stand_is_known_of_plain_letters_alone(tmp_path):
    folder = tiny_models.save(tmp_path / "t5", "t5", vocab_size=300)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    transformers.ByT5Tokenizer(extra_ids=0).save_pretrained(folder)
    loaded, tokenised, sample, _ = read(folder, ["ab", "é"])
    assert not loaded.tokenizer.is_fast
    assert tokenised.ids.tolist() == [100, 101, 1, 198, 172, 1]
    assert len(sample) == 4
    assert tokenised.text_spans() == [[(0, 1), (1, 2)], [(0, 0), (0, 0)]]
    assert tokenised.placed_S.tolist() == [True, False]


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
    for spans, sentence in zip(tokenised.text_spans(), tiny_models.SENTENCES, strict=True):
        assert "".join(sentence[a:b] for a, b in spans).replace(" ", "") == sentence.replace(" ", "")
    with torch.no_grad():
        states = loaded.model(input_ids=torch.tensor(expected[5:6]), output_hidden_states=True).hidden_states
    np.testing.assert_allclose(
        found.layers_LND[1][sample.sentence_N == 5], states[1][0, :-1], atol=1e-5
    )  # float32


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("marian", ImportError("\nMarianTokenizer requires the SentencePiece library but it was not found.\n")),
        ("t5", ValueError("`tiktoken` is required to read a `tiktoken` file.")),
    ],
)
def test_without_sentencepiece_one_sentence_says_how_to_install_it(family, said, tmp_path, monkeypatch):
    """Whatever transformers says then: here are its own words."""
    folder = tiny_models.save(tmp_path / family, family)

    def lacks(*_, **__):
        raise said

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lacks)
    monkeypatch.setattr("ablations.hugging_face_folder.find_spec", lambda name: None)
    with pytest.raises(MeasureError, match="the tokenizer cannot be loaded"):
        load(folder)  # tokenizer.json needs none
    tiny_models.save_sentencepiece(folder, tiny_models.sentencepiece_model())
    refused(
        folder,
        f"{folder}: its tokenizer needs sentencepiece, which is not installed; install it with "
        f'pip install "pretraining-ablations[hf]".',
    )


def test_what_a_library_says_is_one_sentence_on_one_line():
    said = "\nFugashi is needed\nfor model.safetensors of v1.2. Please see\nthe page.\n"
    assert reason(ImportError(said)) == "Fugashi is needed for model.safetensors of v1.2"
    assert reason(ValueError("a.")) == "a"
    assert reason(ValueError()) == "ValueError"
    assert reason(ValueError("word " * 100)) == "word " * 59 + "..."


# Nothing is executed, nothing is fetched --------------------------------------------------------------


def test_a_pickle_that_is_more_than_tensors_is_not_opened(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    weights = load(folder).model.state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    assert load(folder).layers == LAYERS
    marker = tmp_path / "executed"
    with (folder / "pytorch_model.bin").open("wb") as file:
        torch.save({"weight": Touch(marker)}, file)
    refused(
        folder,
        f"{folder}: its weights hold something else than tensors and were not opened; save them as safetensors.",
    )
    assert not marker.exists()


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return type(self.path).touch, (self.path,)


def test_code_in_the_folder_is_not_executed(tmp_path):
    folder, marker = tiny_models.save(tmp_path / "bert"), tmp_path / "executed"
    (folder / "code.py").write_text(f"open({str(marker)!r}, 'w')\n")
    config = json.loads((folder / "config.json").read_text())
    mapped = {"AutoConfig": "code.Config", "AutoModel": "code.Model"}
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": mapped}))
    assert load(folder).layers == LAYERS  # transformers knows BERT itself
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": mapped, "model_type": "mine"}))
    refused(
        folder,
        f"{folder}: its model_type 'mine' is code of its own (auto_map in config.json), which is never executed; "
        f"only models that transformers itself has can be analysed.",
    )
    assert not marker.exists()


def test_no_network_is_asked(tmp_path, monkeypatch):
    def connect(*_):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    assert untrained(load(tiny_models.save(tmp_path / "gpt2", "gpt2")), seed=0).layers == LAYERS


# What is wrong with a folder --------------------------------------------------------------------------


def refused(folder, sentence):
    with pytest.raises(MeasureError) as error:
        load(folder)
    assert str(error.value) == sentence


def test_without_the_library_one_sentence_says_how_to_install_it(tmp_path, monkeypatch):
    folder = tiny_models.save(tmp_path / "bert")
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    refused(
        folder,
        "transformers, which reads Hugging Face folders, is not installed; install it with "
        'pip install "pretraining-ablations[hf]".',
    )


def test_a_folder_that_lacks_something_is_refused_with_what_it_lacks(tmp_path):
    refused(
        tmp_path / "none",
        f"{tmp_path / 'none'} is no folder; give one that holds the config.json, weights and tokenizer of a "
        f"model.",
    )
    refused(
        tmp_path,
        f"{tmp_path} has no config.json, so it holds no Hugging Face model; `ablate export` makes one of a run.",
    )
    folder = tiny_models.save(tmp_path / "bert")
    (folder / "model.safetensors").rename(tmp_path / "kept")
    refused(
        folder,
        f"{folder} has no weights; expected model.safetensors, model.safetensors.index.json, pytorch_model.bin or "
        f"pytorch_model.bin.index.json beside config.json.",
    )
    (tmp_path / "kept").rename(folder / "model.safetensors")
    for path in folder.glob("tokenizer*"):
        path.unlink()
    refused(folder, f"{folder} has no tokenizer; save the model's own there, best as tokenizer.json.")


def test_damaged_files_are_named(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    config, weights = (folder / "config.json").read_text(), (folder / "model.safetensors").read_bytes()
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(
        MeasureError, match=r"bert: the tokenizer cannot be loaded \(.+\); save the model's own there, "
    ):
        load(folder)
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    refused(
        folder,
        f"{folder}: the model cannot be loaded (Error while deserializing header: incomplete metadata, file not "
        f"fully covered); make or copy the folder again.",
    )
    (folder / "model.safetensors.index.json").write_text("[]")
    (folder / "model.safetensors").unlink()
    refused(folder, f"{folder / 'model.safetensors.index.json'} is no index of weights; make or copy it again.")
    (folder / "config.json").write_text(config[:20])
    with pytest.raises(MeasureError, match=r"config\.json cannot be read \(.+\); make or copy it again\.$"):
        load(folder)
    for nothing in ("{}", '{"model_type": null}', '{"model_type": ["bert"]}'):
        (folder / "config.json").write_text(nothing)
        refused(
            folder,
            f"{folder / 'config.json'} has no model_type, which says what it is; copy the model's own there.",
        )
    (folder / "config.json").write_text('{"model_type": "unheard-of"}')
    refused(
        folder,
        f"{folder}: transformers {transformers.__version__} has no model_type 'unheard-of'; a newer version may.",
    )


def test_weights_of_another_model_are_refused(tmp_path):
    bert, gpt = tiny_models.save(tmp_path / "bert"), tiny_models.save(tmp_path / "gpt2", "gpt2")
    needed = 5 + 16 * LAYERS  # three tables and a norm; each block has six maps and two norms
    shutil.copy(gpt / "model.safetensors", bert / "model.safetensors")
    refused(
        bert,
        f"{bert}: its weights lack {needed} of those that BertModel needs, such as embeddings.LayerNorm.bias; "
        f"they and config.json are not of one model.",
    )
    tiny_models.save(tmp_path / "bert")
    config = json.loads((bert / "config.json").read_text())
    (bert / "config.json").write_text(json.dumps(config | {"intermediate_size": 48}))
    refused(
        bert,
        f"{bert}: its weights lack {3 * LAYERS} of those that BertModel needs, such as "
        f"encoder.layer.0.intermediate.dense.bias (there of shape (32,)); they and config.json are not of one "
        f"model.",
    )


def test_a_model_that_pads_what_it_reads_is_refused(tmp_path):
    usual = {"vocab_size": 40, "hidden_size": WIDTH, "num_attention_heads": 2, "feed_forward_size": 32}
    places = {"max_position_embeddings": POSITIONS, "axial_pos_shape": [5, 8], "axial_pos_embds_dim": [8, 8]}
    windows = {"attn_layers": ["local"] * LAYERS, "attention_head_size": 8, "local_attn_chunk_length": 4}
    config = transformers.ReformerConfig(**usual, **places, **windows, pad_token_id=0, eos_token_id=3)
    folder = tmp_path / "reformer"
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    tiny_models.tokenizer().save_pretrained(folder)
    with pytest.raises(MeasureError) as error:
        read(folder, ["a b c d e", "a b"])
    assert str(error.value) == (
        f"{folder}: ReformerModel makes 8 states of a sentence of 7 tokens, so that it is not known which is "
        f"whose; analyse an encoder or a language model that makes one of each."
    )


def test_what_the_states_do_not_depend_on_may_be_missing(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    weights = load(folder).model.state_dict()
    kept = {name: value for name, value in weights.items() if not name.startswith("pooler")}
    from safetensors.torch import save_file

    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    assert load(folder).layers == LAYERS
    kept.pop("encoder.layer.1.output.LayerNorm.bias")
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    refused(
        folder,
        f"{folder}: its weights lack 1 of those that BertModel needs, such as "
        f"encoder.layer.1.output.LayerNorm.bias; they and config.json are not of one model.",
    )


def test_models_that_shorten_a_sentence_are_refused(tmp_path):
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "hidden_size": 16}
    canine = transformers.CanineModel(transformers.CanineConfig(**sizes, downsampling_rate=2))
    sizes = {"vocab_size": 40, "block_sizes": [1, 1], "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32}
    funnel = transformers.FunnelModel(transformers.FunnelConfig(**sizes, num_decoder_layers=1))
    for model, fewer in ((canine, 3), (funnel, 4)):
        folder = tmp_path / model.config.model_type
        model.save_pretrained(folder)
        tiny_models.tokenizer().save_pretrained(folder)
        refused(
            folder,
            f"{folder}: {type(model).__name__} makes {fewer} states of a sentence of 7 tokens, so that it is not "
            f"known which is whose; analyse an encoder or a language model that makes one of each.",
        )


def test_what_fails_inside_the_library_is_said_with_the_type_of_model(tmp_path):
    folder = tmp_path / "flaubert"
    sizes = {"vocab_size": 40, "n_words": 40, "emb_dim": WIDTH, "n_layers": LAYERS, "n_heads": 2}
    model = transformers.FlaubertModel(transformers.FlaubertConfig(**sizes, pre_norm=True))
    model.save_pretrained(folder)
    tiny_models.tokenizer().save_pretrained(folder)
    with pytest.raises(TypeError) as error:
        model(input_ids=torch.arange(6)[None])
    refused(
        folder,
        f"{folder}: FlaubertModel, of model_type 'flaubert', does not run in transformers "
        f"{transformers.__version__} on the ids of a text alone ({error.value}); analyse a model of text, or try "
        f"another version of transformers.",
    )


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    folder = tiny_models.save(tmp_path / "bert", vocab_size=12)
    loaded = load(folder)
    with pytest.raises(MeasureError) as error:
        tokenise(loaded, ["a b", "z"], tokens=100)
    assert str(error.value) == (
        f"{folder}: the tokenizer gives the id 30, but the model has 12 ids; put the model's own tokenizer there."
    )


def test_a_text_without_a_token_is_refused(tmp_path):
    loaded = load(tiny_models.save(tmp_path / "bert"))
    with pytest.raises(MeasureError) as error:
        tokenise(loaded, ["[SEP]", " "], tokens=100)
    assert str(error.value) == (
        f"the tokenizer of {loaded.folder} makes no token of the text, special ones apart; give text in the "
        f"language of the model."
    )
