"""Hugging Face folders from somebody else: pipes, devices, links, and JSON with which transformers would hang."""

import json
import os
from pathlib import Path

import pytest

from ablations.analyse.model import load
from ablations.errors import MeasureError
from lightning_modules.errors import DataError
from tests.support import tiny_models
from tests.support.errors import error_text
from tests.support.tiny_models import LAYERS

pytest.importorskip("transformers", reason="the extra [hf] is not installed")

DEEP = "[" * 100_000


def refused(folder, sentence):
    assert error_text(MeasureError, load, folder) == sentence


def replaced(path, content):
    """Put a text, or what a function makes, in the place of a file."""
    path.unlink(missing_ok=True)
    path.write_text(content) if isinstance(content, str) else content(path)


def edited(path, **entries):
    """Change entries of a JSON file."""
    replaced(path, json.dumps(json.loads(path.read_text()) | entries))


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer_config.json", "trainer_state.json", "model.safetensors"]
)
@pytest.mark.parametrize("plant", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_pipes_and_devices_are_refused_before_anything_is_read(name, plant, tmp_path):
    """A pipe would wait for ever, and a device would fill the memory."""
    folder = tiny_models.save(tmp_path / "bert")
    replaced(folder / name, plant)
    sentence = f"{folder / name} is a pipe or a device, which may have no end; remove it from the folder."
    refused(folder, sentence)
    # The tokenizer of a series lies in another folder than the weights.
    other = tiny_models.save(tmp_path / "other")
    assert error_text(MeasureError, load, other, tokenizer_folder=folder) == sentence


def test_links_of_files_to_other_folders_are_followed(tmp_path):
    """In the cache of Hugging Face every file is a link, and some links have lost their file."""
    folder, blobs = tiny_models.save(tmp_path / "bert"), tmp_path / "blobs"
    expected = load(folder).run_id
    blobs.mkdir()
    for path in list(folder.iterdir()):
        path.rename(blobs / path.name)
        path.symlink_to(Path("../blobs") / path.name)
    (folder / "README.md").symlink_to("../blobs/README.md")
    assert load(folder).run_id == expected


@pytest.mark.parametrize("part", ["/dev/null", "../other/model.safetensors", "deep/model.safetensors", "a\0b"])
def test_an_index_names_only_files_beside_it(part, tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    index = folder / "model.safetensors.index.json"
    (folder / "model.safetensors").unlink()
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"a": part}}))
    sentence = f"{index} names {part!r}, expected the name of a file in the same folder; copy the folder again."
    assert error_text(DataError, load, folder) == sentence
    index.write_text(DEEP)
    assert error_text(DataError, load, folder) == f"{index} is not an index of weights; copy the folder again."


def test_another_name_of_the_weights_in_the_config_is_refused(tmp_path):
    """transformers reads the file of this name, so the identity would be that of other weights."""
    folder = tiny_models.save(tmp_path / "bert")
    edited(folder / "config.json", transformers_weights=None)
    load(folder)
    edited(folder / "config.json", transformers_weights="real.safetensors")
    refused(
        folder,
        f"{folder / 'config.json'} names a file of weights (transformers_weights), but only usual names are read; "
        "rename this file to model.safetensors, and remove the entry.",
    )


def test_json_that_is_too_deep_is_a_sentence_or_no_step(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    (folder / "trainer_state.json").write_text(DEEP)
    assert load(folder).step is None
    (folder / "config.json").write_text(DEEP)
    refused(
        folder,
        f"{folder / 'config.json'} cannot be read (it has too many brackets inside each other); write or copy it "
        "again.",
    )


def test_a_model_without_layers_or_with_too_many_is_refused(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    for layers in (0, -3):
        edited(folder / "config.json", num_hidden_layers=layers)
        refused(folder, f"{folder}: the model has no layers; correct their number in its config.json.")
    too_many = f"{folder / 'config.json'} gives more than 10,000 layers; write or copy it again."
    edited(folder / "config.json", num_hidden_layers=10**7)
    refused(folder, too_many)
    edited(folder / "config.json", num_hidden_layers=LAYERS, encoder={"n_layers": 10_001})
    refused(folder, too_many)


def test_a_limit_that_is_no_number_or_leaves_no_room_is_refused(tmp_path):
    folder = tiny_models.save(tmp_path / "bert")
    settings = folder / "tokenizer_config.json"
    edited(settings, model_max_length="x")
    refused(folder, f'{folder}: model_max_length in tokenizer_config.json is "x", expected a number; correct it.')
    for limit, tokens in ((1, "1 token"), (2, "2 tokens")):
        edited(settings, model_max_length=limit)
        refused(
            folder,
            f"{folder}: the model reads at most {tokens}, but 2 special tokens stand around a sentence; correct "
            "model_max_length in tokenizer_config.json or positions in config.json.",
        )
    edited(settings, model_max_length=3)
    assert load(folder).max_length == 3
