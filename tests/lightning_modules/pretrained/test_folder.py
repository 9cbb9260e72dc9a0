"""Settings that follow from a folder, and what is refused before anything runs."""

import json
import os

import pytest
from safetensors.torch import load_file, save_file

from ablations.runs.identity import run_identity
from lightning_modules.config import FilesData
from lightning_modules.errors import DataError
from lightning_modules.pretrained.folder import with_folder
from tests.support import tiny_pretrained
from tests.support.errors import error_text
from tests.support.tiny_pretrained import resolved

pytest.importorskip("transformers", reason="the extra [hf] is not installed")


@pytest.fixture
def root(tmp_path):
    """A folder with a tiny BERT and a tiny GPT-2."""
    tiny_pretrained.bert(tmp_path / "bert")
    tiny_pretrained.gpt2(tmp_path / "gpt2")
    return tmp_path


def edit(folder, **changes):
    """Change entries of config.json; None removes one."""
    config = json.loads((folder / "config.json").read_text()) | changes
    kept = {name: value for name, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))


def refusal(root, family="bert", **sections):
    return error_text(DataError, resolved, root, family, **sections)


def test_all_of_the_shape_follows_from_the_folder_and_stays(root):
    bert, gpt2 = resolved(root, "bert"), resolved(root, "gpt2")
    assert bert.encoder.hidden_size == gpt2.encoder.hidden_size == 16
    assert (bert.encoder.norm, gpt2.encoder.norm) == ("post", "pre")
    assert (bert.encoder.activation, gpt2.encoder.activation) == ("gelu", "gelu_tanh")
    assert (bert.encoder.intermediate_size, gpt2.encoder.intermediate_size) == (24, 64)
    assert (bert.objective.head, gpt2.objective.head) == ("bert", "tied")
    assert bert.data.vocab_size == len(tiny_pretrained.BERT_PIECES) + 3
    assert gpt2.data.vocab_size == 258 + 4  # its mark of an end is ours; the other special ids are new
    for run in (bert, gpt2):
        assert with_folder(run, root / "elsewhere") == run
        assert type(run).model_validate_json(run.model_dump_json()) == run
    assert resolved(root, "bert", data={"max_length": 40}).data.max_length == 40


def test_a_run_is_known_by_the_content_of_its_folder_and_not_by_its_place(root):
    run = resolved(root, "bert")
    first = run_identity(run, "t")
    (root / "bert").rename(root / "moved")
    moved = resolved(root, "bert", path="moved")
    assert run_identity(moved, "t") == first
    random = run_identity(resolved(root, "bert", path="moved", init={"weights": "random"}), "t")
    assert random != first
    weights = load_file(root / "moved/model.safetensors")
    weights["bert.encoder.layer.0.output.dense.bias"][0] += 1
    save_file(weights, root / "moved/model.safetensors", metadata={"format": "pt"})
    changed = resolved(root, "bert", path="moved")
    assert run_identity(changed, "t") != first
    assert run_identity(resolved(root, "bert", path="moved", init={"weights": "random"}), "t") == random
    stated = refusal(root, path="moved", init={"content": run.init.content})
    assert stated == (
        f"init.content is {run.init.content}, but the content of {root / 'moved'} is {changed.init.content}; "
        "name the folder with this content, or remove init.content."
    )


def test_settings_that_contradict_the_folder_are_one_sentence(root):
    folder = root / "bert"
    assert refusal(root, encoder={"hidden_size": 64}) == (
        f"encoder.hidden_size is 64, but the model of {folder} has 16; leave encoder.hidden_size out."
    )
    assert resolved(root, "bert", encoder={"hidden_size": 16, "dropout": 0.0}).encoder.dropout == 0
    assert refusal(root, data={"vocab_size": 99}) == (
        f"data.vocab_size is 99, but the model of {folder} has 84; leave data.vocab_size out."
    )
    assert refusal(root, data={"max_length": 41}) == (
        f"data.max_length is 41, but the model of {folder} has 40 positions; lower it."
    )
    assert refusal(root, objective={"kind": "causal_lm"}) == (
        f"objective.kind is causal_lm, but init.path {folder} has a BERT, which needs objective.kind masked_lm; "
        "change one of the two."
    )
    assert refusal(root, objective={"head": "linear"}) == (
        f'objective.head is "linear", but the model of {folder} has "bert"; leave objective.head out.'
    )
    assert refusal(root, objective={"sees": "left_only"}) == (
        f"objective.sees is left_only, but the model of init.path {folder} was trained with both_sides; leave "
        f"sees out."
    )


def test_a_folder_without_two_segments_is_refused_for_pairs(root):
    tiny_pretrained.bert(root / "bert", type_vocab_size=1)
    for family in ("bert", "gpt2"):
        sentence = refusal(root, family, data={"document": "target"}, training={"input_format": "segment_pair"})
        assert sentence == (
            f"training.input_format is segment_pair, but the model of {root / family} has no embeddings of two "
            "segments; use sentences or full_sentences."
        )


def test_folders_that_the_encoder_cannot_hold_are_one_sentence(root):
    folder = root / "bert"
    assert refusal(root, path="none") == (
        f"init.path: {root / 'none'} is not a folder; name a folder with config.json, tokenizer and "
        "model.safetensors."
    )
    edit(folder, hidden_act="relu")
    assert refusal(root) == (
        f'init.path: {folder} has a BERT with hidden_act: "relu", but `init` reads only "gelu"; use another model.'
    )
    edit(root / "gpt2", activation_function="gelu_fast")
    assert refusal(root, "gpt2") == (
        f'init.path: {root / "gpt2"} has a GPT-2 with activation_function: "gelu_fast", but `init` reads '
        'only "gelu_new" or "gelu_pytorch_tanh" or "gelu" or "relu"; use another model.'
    )
    edit(folder, hidden_act="gelu", model_type="roberta")
    assert refusal(root) == (
        f'init.path: {folder} has a model of model_type "roberta", expected bert or gpt2; use another model '
        "(`ablate analyse` can measure this one)."
    )
    edit(folder, model_type=["bert"])
    assert refusal(root).startswith(f'init.path: {folder} has a model of model_type ["bert"], expected')
    edit(folder, model_type="bert", num_hidden_layers=3)
    assert refusal(root) == (
        f"init.path: 16 of the weights of a BERT are missing in {folder}, such as "
        "encoder.layer.2.attention.output.LayerNorm.bias; copy the whole folder."
    )
    edit(folder, num_hidden_layers=2, vocab_size=60)
    assert refusal(root) == (
        f"init.path: the tokenizer of {folder} has 81 ids, but config.json says 60; save the model's own "
        "tokenizer in this folder."
    )
    edit(folder, vocab_size=84)
    (folder / "vocab.txt").rename(root / "vocab.txt")
    assert refusal(root) == (
        f"{folder} has no tokenizer, expected tokenizer.json, vocab.txt, or vocab.json with merges.txt; save "
        "the model's own tokenizer in this folder."
    )
    (root / "vocab.txt").rename(folder / "vocab.txt")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    damaged = (
        f"{weights} cannot be read as safetensors (Error while deserializing header: {{}}); copy the folder again."
    )
    assert refusal(root) == damaged.format("incomplete metadata, file not fully covered")
    weights.write_bytes(whole + b"more")
    assert refusal(root) == damaged.format("incomplete metadata, file not fully covered")
    weights.write_bytes(whole[:20])
    assert refusal(root) == damaged.format("invalid header length")
    weights.unlink()
    assert refusal(root) == (
        f"init.path: {folder} has no model.safetensors; save the model there in this format, with "
        f"`save_pretrained` of transformers."
    )
    assert resolved(root, "bert", init={"weights": "random"}).init.weights == "random"


def test_weights_outside_of_the_folder_or_under_another_name_are_refused(root):
    folder = root / "bert"
    edit(folder, transformers_weights="real.safetensors")
    assert refusal(root) == (
        f"{folder / 'config.json'} names a file of weights (transformers_weights), but `init` reads only "
        "model.safetensors; rename this file to model.safetensors, and remove the entry."
    )
    assert resolved(root, "bert", init={"weights": "random"}).init.weights == "random"
    edit(folder, transformers_weights=None)
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    for part in ("/dev/null", "../gpt2/model.safetensors"):
        index.write_text(json.dumps({"weight_map": {"a": part}}))
        assert refusal(root) == (
            f"{index} names {part!r}, expected the name of a file in the same folder; copy the folder again."
        )


def test_pipes_and_json_that_is_too_deep_are_refused(root):
    """A pipe would wait for ever."""
    folder = root / "bert"
    deep = "[" * 100_000
    weights, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    weights.write_bytes(len(deep).to_bytes(8, "little") + deep.encode())
    assert refusal(root).startswith(f"{weights} cannot be read as safetensors (Error while deserializing header: ")
    weights.unlink()
    index.write_text(json.dumps({"weight_map": {"a": "pipe"}}))
    os.mkfifo(folder / "pipe")
    assert refusal(root) == (
        f"{folder / 'pipe'} cannot be read as safetensors (it is not a regular file); copy the folder again."
    )
    index.write_text(deep)
    assert refusal(root) == f"{index} is not an index of weights; copy the folder again."
    index.unlink()
    os.mkfifo(index)
    assert refusal(root).startswith(f"init.path: {folder} has no model.safetensors; ")
    config = folder / "config.json"
    config.write_text(deep)
    assert refusal(root).startswith(f"{config} cannot be read (maximum recursion depth exceeded")
    config.unlink()
    os.mkfifo(config)
    assert refusal(root) == (
        f"{config} cannot be read ([Errno 6] it is not an ordinary file: '{config}'); copy the folder again."
    )


@pytest.mark.parametrize(
    ("family", "name", "value", "weights_say"),
    [
        ("bert", "vocab_size", 90, "84 ids"),
        ("bert", "hidden_size", 18, "16 numbers in an embedding"),
        ("bert", "max_position_embeddings", 100, "40 positions"),
        ("bert", "num_hidden_layers", 1, "2 layers"),
        ("bert", "intermediate_size", 48, "24 units in a feed-forward layer"),
        ("bert", "type_vocab_size", 3, "2 segments"),
        ("gpt2", "n_positions", 30, "40 positions"),
        ("gpt2", "n_inner", 24, "64 units in a feed-forward layer"),
    ],
)
def test_weights_of_other_sizes_than_the_config_says_are_refused(root, family, name, value, weights_say):
    edit(root / family, **{name: value})
    assert refusal(root, family) == (
        f"init.path: the weights of {root / family} have {weights_say}, but its config.json says {value}; the two "
        "files are not of the same model, so copy the whole folder again."
    )


@pytest.mark.parametrize(
    ("family", "entry", "value", "gives"),
    [
        ("bert", "layer_norm_eps", 0.0, "encoder.layer_norm_epsilon: 0.0"),
        ("bert", "hidden_dropout_prob", 1.0, "encoder.dropout: 1.0"),
        ("bert", "hidden_dropout_prob", None, "encoder.dropout: null"),
        ("bert", "num_hidden_layers", 0, "encoder.num_hidden_layers: 0"),
        ("bert", "num_attention_heads", 3, "encoder.num_attention_heads: 3"),
        ("gpt2", "n_embd", None, "encoder.hidden_size: null"),
        ("bert", "max_position_embeddings", None, "max_position_embeddings: null"),
        ("bert", "vocab_size", "84", 'vocab_size: "84"'),
        ("bert", "type_vocab_size", 0, "type_vocab_size: 0"),
    ],
)
def test_values_of_the_config_that_the_encoder_cannot_hold_are_one_sentence(root, family, entry, value, gives):
    config = json.loads((root / family / "config.json").read_text())
    (root / family / "config.json").write_text(json.dumps(config | {entry: value}))
    assert refusal(root, family) == (
        f"init.path: config.json of {root / family} gives {gives}, which the encoder cannot hold; use another "
        "model."
    )


def test_text_may_be_cut_by_the_tokenizer_of_a_folder_alone(root):
    run = resolved(root, "bert")
    data = FilesData(kind="files", train=("a",), validation=("a",), tokenizer="bert")
    bare = run.model_copy(update={"init": None, "data": data})
    assert with_folder(bare, root).data.vocab_size == len(tiny_pretrained.BERT_PIECES)
    wrong = bare.model_copy(update={"data": FilesData.model_validate(data.model_dump() | {"vocab_size": 99})})
    assert error_text(DataError, with_folder, wrong, root) == (
        f"data.vocab_size is 99, but the model of {root / 'bert'} has 81; leave data.vocab_size out."
    )
