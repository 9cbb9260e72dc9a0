"""Models from Hugging Face folders: every layer's states, and nothing executed."""

import json
import pickle
import re
import shutil
import socket
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ablations.analyse.model import SUPPORTED, load, reason, untrained
from ablations.commands.models import analyse
from ablations.errors import MeasureError
from lightning_modules.errors import DataError
from tests.support import tiny_models
from tests.support.analysis import CUT_TEXT, read
from tests.support.errors import error_text
from tests.support.tiny_models import FAMILIES, LAYERS, POSITIONS, WIDTH

transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")

UNKNOWN_TYPE = (
    "cannot be analysed, because it is not tested which of their states are the outputs of blocks; use a model of "
    "a type that `ablate analyse --help` lists."
)
WITHOUT_FINAL_NORM = (
    *("bert", "roberta", "distilbert", "electra", "albert", "xlm-roberta", "camembert", "mpnet", "deberta-v2"),
    *("deberta", "ernie", "data2vec-text", "rembert", "longformer", "roformer", "xlm", "bart", "marian"),
)


def alone(loaded, sentence):
    """What enters the first block for one sentence, then what leaves each: asked of the blocks themselves."""
    family = FAMILIES[loaded.folder.name]
    inputs = loaded.tokenizer(sentence, return_tensors="pt", truncation=True, max_length=family.longest or 10**6)
    inputs = {name: value for name, value in inputs.items() if name in loaded.accepts}
    states = []

    def enter(module, arguments, named):
        states.append(arguments[0] if arguments else named["hidden_states"])

    def leave(module, arguments, output):
        states.append(output if isinstance(output, torch.Tensor) else output[0])

    blocks = loaded.model.get_submodule(family.blocks)
    hooks = [blocks[0].register_forward_pre_hook(enter, with_kwargs=True)]
    hooks += [block.register_forward_hook(leave) for block in blocks]
    with torch.no_grad():
        loaded.model(**inputs)
    for hook in hooks:
        hook.remove()
    text = (inputs["input_ids"][0] != 2) & (inputs["input_ids"][0] != 3)
    if len(blocks) == 1:  # ALBERT runs one block again and again, and is entered each time
        states[1:] = states[1::2]
    return [state[0, text].numpy() for state in states]


# Longformer pads its blocks' input, and XLM has no module that is a block.
@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in ("longformer", "xlm")])
def test_layers_are_what_enters_the_first_block_and_what_leaves_each(family, tmp_path):
    folder = tiny_models.save(tmp_path / family, family)
    loaded, _, sample, found = read(folder)
    assert (loaded.layers, loaded.width, loaded.max_length) == (LAYERS, WIDTH, FAMILIES[family].longest)
    assert len(found) == LAYERS + 1
    assert all(state.shape == (len(sample), WIDTH) and state.dtype == np.float32 for state in found)
    for i in (0, 7, 30):
        for state, expected in zip(found, alone(loaded, CUT_TEXT[i]), strict=True):
            np.testing.assert_allclose(
                state[sample.sentence_N == i], expected, atol=1e-5
            )  # float32 sums, other order


def test_absolute_positions_of_esm_begin_after_that_of_padding(tmp_path):
    folder = tiny_models.save(tmp_path / "esm", "esm", position_embedding_type="absolute")
    loaded, tokenised, _, found = read(folder)
    assert loaded.max_length == POSITIONS - 1
    longest = int(np.diff(tokenised.offsets).argmax())
    assert np.diff(tokenised.offsets)[longest] == POSITIONS - 1
    ids = torch.from_numpy(tokenised.ids[tokenised.offsets[longest] : tokenised.offsets[longest + 1]])
    with torch.no_grad():
        embeddings = loaded.model.embeddings
        places = torch.arange(1, POSITIONS)
        expected = embeddings.word_embeddings(ids) + embeddings.position_embeddings(places)
    np.testing.assert_allclose(found[0][-(POSITIONS - 3) :], expected[1:-1], atol=1e-6)  # float32


@pytest.mark.parametrize("family", FAMILIES)
def test_the_layers_are_the_hidden_states_of_transformers_but_for_the_last_before_a_final_norm(family, tmp_path):
    loaded, _, sample, found = read(tiny_models.save(tmp_path / family, family))
    ids = loaded.tokenizer(CUT_TEXT[3], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        theirs = loaded.model(input_ids=ids, output_hidden_states=True).hidden_states
    ours = [torch.from_numpy(state[sample.sentence_N == 3]) for state in found]
    for state, expected in zip(ours[:-1], theirs[:-1], strict=True):
        np.testing.assert_allclose(state, expected[0, 1:-1], atol=1e-5)  # float32 sums, other order
    assert (loaded.final_norm is None) == (family in WITHOUT_FINAL_NORM)
    if loaded.final_norm is not None:
        with torch.no_grad():
            after = loaded.model.get_submodule(loaded.final_norm)(ours[-1])
        assert (after - ours[-1]).abs().max() > 0.1
        ours[-1] = after
    np.testing.assert_allclose(ours[-1], theirs[-1][0, 1:-1], atol=1e-5)  # float32 sums, other order


def test_the_layers_of_gpt2_are_those_of_its_blocks_run_by_hand(tmp_path):
    loaded, _, sample, found = read(tiny_models.save(tmp_path / "gpt2", "gpt2"))
    ids = torch.from_numpy(loaded.tokenizer(CUT_TEXT[3], return_tensors="np")["input_ids"])
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
    for state, by_hand in zip(found, expected, strict=True):
        np.testing.assert_allclose(state[sample.sentence_N == 3], by_hand[0, 1:-1], atol=1e-5)  # float32


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


def test_models_that_differ_in_their_head_alone_share_a_twin(tmp_path):
    folders = [tiny_models.save(tmp_path / name) for name in ("bert", "tuned")]
    config = json.loads((folders[1] / "config.json").read_text())
    of_head = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "no", "1": "yes"}}
    of_head |= {"label2id": {"no": 0, "yes": 1}, "problem_type": "single_label_classification"}
    (folders[1] / "config.json").write_text(json.dumps(config | of_head))
    first, second = (untrained(load(folder), seed=0).run_id for folder in folders)
    assert first == second


def test_a_config_that_asks_for_tuples_changes_nothing(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    expected = read(folder)[3]
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"return_dict": False}))
    np.testing.assert_array_equal(read(folder)[3][3], expected[3])


def test_positions_of_mpnet_begin_at_2_whatever_its_padding_is(tmp_path):
    loaded, tokenised, _, _ = read(tiny_models.save(tmp_path / "mpnet", "mpnet", pad_token_id=0))
    assert loaded.max_length == POSITIONS - 2
    assert np.diff(tokenised.offsets).max() == POSITIONS - 2


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
    for state, expected in zip(with_head, without, strict=True):
        np.testing.assert_array_equal(state, expected)


def with_weights(folder, **weights):
    """Add tensors to the file of a saved model."""
    held = load_file(folder / "model.safetensors")
    save_file(held | weights, folder / "model.safetensors", metadata={"format": "pt"})
    return load(folder)


def test_weights_that_the_class_has_no_place_for_are_named(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    adapter = "encoder.layer.0.attention.self.query.lora_{}.weight"
    loaded = with_weights(folder, **{adapter.format(x): torch.ones(2, 2) for x in "AB"})
    assert loaded.caveats == (
        f"2 tensors of the weights, such as {adapter.format('A')}, have no place in BertModel with this "
        "config.json and were not read; if the model needs them, as adapters or more blocks, the states are not "
        "its own, so merge adapters into the weights or correct config.json.",
    )
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": LAYERS - 1}))
    (caveat,) = load(folder).caveats
    assert caveat.startswith("18 tensors of the weights")  # 16 of a block


@pytest.mark.parametrize(
    ("family", "others"),
    [
        ("bert", ["cls.predictions.bias", "embeddings.position_ids", "embeddings.token_type_ids"]),
        ("gpt2", ["lm_head.weight", "h.0.attn.bias", "h.0.attn.masked_bias"]),
        ("t5", ["decoder.block.7.layer.0.SelfAttention.q.weight", "lm_head.weight"]),
        ("modernbert", ["layers.0.attn.rotary_emb.inv_freq", "head.dense.weight"]),
    ],
)
def test_heads_decoders_and_constants_beside_the_weights_are_not_named(family, others, tmp_path):
    folder = tiny_models.save(tmp_path / family, family)
    assert with_weights(folder, **{name: torch.ones(3, 3) for name in others}).caveats == ()


def test_weights_in_parts_are_read(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    whole, expected = load(folder), read(folder)[3]
    (folder / "model.safetensors").unlink()
    whole.model.save_pretrained(folder, max_shard_size="10KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    np.testing.assert_array_equal(read(folder)[3][3], expected[3])


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
    monkeypatch.setattr("ablations.analyse.model.find_spec", lambda name: None)
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
    sentence = (
        f"{folder}: its weights contain other things than tensors, so they were not opened; save them as "
        "safetensors."
    )
    refused(folder, sentence)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Touch(marker), protocol=4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of this protocol
        refused(folder, sentence)
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
    loaded = load(folder)
    assert loaded.layers == LAYERS  # transformers knows BERT itself
    assert loaded.caveats == (
        "config.json names code of its own (auto_map), which is never executed; the states are those of BertModel "
        "of transformers, and not the model's if its code computes anything else.",
    )
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": mapped, "model_type": "mine"}))
    refused(
        folder,
        f"{folder}: models of model_type 'mine' {UNKNOWN_TYPE}",
    )
    assert not marker.exists()


def test_no_network_is_asked(tmp_path, monkeypatch):
    def connect(*_):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    assert untrained(load(tiny_models.save(tmp_path / "gpt2", "gpt2")), seed=0).layers == LAYERS


def test_the_help_lists_the_types_that_are_supported():
    (listed,) = re.findall(r"Types of models \(`model_type` in config.json\): (.+?)\.\n", analyse.help, re.DOTALL)
    assert sorted(SUPPORTED) == " ".join(listed.split()).split(", ")


@pytest.mark.parametrize("kind", ["opt", "funnel", "xlnet", "unheard-of"])
def test_another_architecture_is_refused(kind, tmp_path):
    folder = tiny_models.save(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    refused(
        folder,
        f"{folder}: models of model_type {kind!r} {UNKNOWN_TYPE}",
    )


# What is wrong with a folder --------------------------------------------------------------------------


def refused(folder, sentence):
    assert error_text(MeasureError, load, folder) == sentence


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
        f"{tmp_path / 'none'} is not a folder; name a folder with the config.json, weights and tokenizer of a "
        "model.",
    )
    refused(
        tmp_path,
        f"{tmp_path} has no config.json, so it is not the folder of a Hugging Face model; for a run, write such "
        "a folder with `ablate export`.",
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
    refused(
        folder,
        f"{folder} has no tokenizer; save the model's own tokenizer in this folder, if possible as "
        "tokenizer.json.",
    )


def test_damaged_files_are_named(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    config, weights = (folder / "config.json").read_text(), (folder / "model.safetensors").read_bytes()
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(
        MeasureError,
        match=r"bert: the tokenizer cannot be loaded \(.+\); save the model's own tokenizer in this folder, ",
    ):
        load(folder)
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    refused(
        folder,
        f"{folder}: the model cannot be loaded (Error while deserializing header: incomplete metadata, file not "
        "fully covered); write or copy the folder again.",
    )
    (folder / "model.safetensors.index.json").write_text("[]")
    (folder / "model.safetensors").unlink()
    sentence = f"{folder / 'model.safetensors.index.json'} is not an index of weights; copy the folder again."
    assert error_text(DataError, load, folder) == sentence
    (folder / "config.json").write_text(config[:20])
    with pytest.raises(MeasureError, match=r"config\.json cannot be read \(.+\); write or copy it again\.$"):
        load(folder)
    for nothing in ("{}", '{"model_type": null}', '{"model_type": ["bert"]}'):
        (folder / "config.json").write_text(nothing)
        refused(
            folder,
            f"{folder / 'config.json'} has no model_type, which says what it is; write it there, such as "
            f'"model_type": "bert".',
        )


def test_a_model_that_cannot_count_its_positions_is_refused(tmp_path):
    folder = tiny_models.save(tmp_path / "roberta", "roberta")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": None}))
    with pytest.raises(MeasureError) as error:
        load(folder)
    assert str(error.value).startswith(f"{folder}: the model cannot read two tokens (")
    assert str(error.value).endswith("); correct its config.json, or copy the folder again.")


def test_weights_of_another_model_are_refused(tmp_path):
    bert, gpt = tiny_models.save(tmp_path / "bert"), tiny_models.save(tmp_path / "gpt2", "gpt2")
    needed = 5 + 16 * LAYERS  # three tables and a norm; each block has six maps and two norms
    shutil.copy(gpt / "model.safetensors", bert / "model.safetensors")
    refused(
        bert,
        f"{bert}: {needed} of the weights that BertModel needs are missing, such as embeddings.LayerNorm.bias; "
        "the weights and config.json are not of the same model, so copy the whole folder again.",
    )
    tiny_models.save(tmp_path / "bert")
    config = json.loads((bert / "config.json").read_text())
    (bert / "config.json").write_text(json.dumps(config | {"intermediate_size": 48}))
    refused(
        bert,
        f"{bert}: {3 * LAYERS} of the weights that BertModel needs are missing, such as "
        "encoder.layer.0.intermediate.dense.bias (in the file with shape (32,)); the weights and config.json "
        "are not of the same model, so copy the whole folder again.",
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
        f"{folder}: 1 of the weights that BertModel needs are missing, such as "
        "encoder.layer.1.output.LayerNorm.bias; the weights and config.json are not of the same model, so copy "
        "the whole folder again.",
    )
