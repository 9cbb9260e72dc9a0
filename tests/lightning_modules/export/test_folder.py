"""A run becomes a Hugging Face folder, or a series of them, that stock classes load."""

import json
import shutil
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors import safe_open

from lightning_modules.config import ReplacedTokenSettings
from lightning_modules.errors import CheckpointError, DataError, FilesError
from lightning_modules.export.card import Facts, Origin, card
from lightning_modules.export.folder import export, export_series, has_stock_generator
from lightning_modules.export.stock import ExportError
from lightning_modules.files import read_json, sha256
from lightning_modules.objectives import build
from lightning_modules.training.run_directory import RunDirectoryError
from tests.support.errors import error_text
from tests.support.tiny_text import settings

transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")

VOITA_2019 = {
    "norm": "pre",
    "positions": "sinusoidal",
    "embedding": {"scale": True, "bias": True, "norm": False},
    "activation": "relu",
}
TEXTS = ["the dog sees a small tree", "a bird", "the cat likes the old green house here " * 12]


@pytest.fixture
def trained(train_run):
    """Trains a tiny run for some steps."""

    def train(kind, **sections):
        training = {"max_steps": 6, "validate_every": 4} | sections.pop("training", {})
        directory = train_run(settings(kind, training=training, **sections))
        return directory

    return train


def ours(directory, tokens):
    """The trained module."""
    made = build(directory.settings(), tokens).eval()
    made.load_state_dict(torch.load(directory.last_checkpoint, weights_only=True)["state_dict"])
    return made.requires_grad_(False)


def load(folder, class_name):
    """The model and the tokenizer of a folder."""
    transformers.logging.set_verbosity_error()
    model = getattr(transformers, class_name).from_pretrained(folder).eval().requires_grad_(False)
    return model, transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(
    ("kind", "sections", "expected"),
    [
        ("masked_lm", {}, "BertForMaskedLM"),
        ("causal_lm", {}, "BertLMHeadModel"),
        ("causal_lm", {"encoder": VOITA_2019, "objective": {"head": "linear"}}, "GPT2LMHeadModel"),
        ("translation", {"encoder": VOITA_2019}, "EncoderDecoderModel"),
        ("mixture", {}, "BertForMaskedLM"),
        ("permutation_lm", {}, "BertForMaskedLM"),
        ("replaced_token", {}, "ElectraForPreTraining"),
        ("masked_lm", {"training": {"input_format": "sentence_pair"}}, "BertForMaskedLM"),
    ],
    ids=str,
)
def test_stock_classes_compute_the_states_of_a_trained_run(kind, sections, expected, trained, tokens, tmp_path):
    directory = trained(kind, **sections)
    exported = export(directory.path, tmp_path / "exported")
    assert exported == (tmp_path / "exported", expected)
    theirs, tokenizer = load(*exported)
    made = ours(directory, tokens)
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True, truncation=True)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    assert ids.shape == (3, 64)  # the longest text is cut at data.max_length
    assert ids[0, mask[0] == 1].tolist() == [2, *tokens.tokenizer.encode(TEXTS[0]).ids, 3]
    assert (tokenizer.pad_token_id, tokenizer.mask_token_id, tokenizer.model_max_length) == (0, 4, 64)
    more = {"decoder_input_ids": ids[:, :1]} if kind == "translation" else {}
    output = theirs(**inputs, **more, output_hidden_states=True)
    states = output.encoder_hidden_states if kind == "translation" else output.hidden_states
    layers = made.encoder(ids, sees=made.run.objective.sees)
    for mine, other in zip([*layers[:-1], made.encoder.head_input(layers[-1])], states, strict=True):
        np.testing.assert_allclose(mine[mask == 1], other[mask == 1], atol=1e-5)  # float32 sums in another order


def test_a_translation_has_two_tokenizers_and_is_that_of_the_run(trained, tokens, tmp_path):
    directory = trained("translation", training={"max_steps": 40})
    theirs, tokenizer = load(*export(directory.path, tmp_path / "exported"))
    target = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported" / "target_tokenizer")
    inputs = tokenizer(TEXTS[:2], return_tensors="pt", padding=True)
    assert set(inputs) == {"input_ids", "attention_mask"}
    generated = theirs.generate(**inputs)
    expected = ours(directory, tokens).translate(inputs["input_ids"], max_length=64)
    assert [[i for i in row if i not in (0, 2, 3)] for row in generated.tolist()] == expected
    texts = target.batch_decode(generated, skip_special_tokens=True)
    assert [text.strip() for text in texts] == [tokens.target_tokenizer.decode(row).strip() for row in expected]


def test_the_generator_of_replaced_tokens_is_beside_it(trained, tmp_path):
    directory = trained("replaced_token", objective={"generator": {"shrink": 2}})
    export(directory.path, tmp_path / "exported")
    generator, tokenizer = load(tmp_path / "exported" / "generator", "ElectraForMaskedLM")
    assert generator(**tokenizer(TEXTS[0], return_tensors="pt")).logits.shape[-1] == 320
    assert "`generator/` holds the generator" in (tmp_path / "exported" / "README.md").read_text()
    export(directory.path, tmp_path / "alone", encoder_alone=True)
    assert not (tmp_path / "alone" / "generator").exists()
    assert not has_stock_generator(settings("replaced_token", objective={"generator": {"shrink": 1}}))


def test_the_folder_says_what_it_is_and_where_it_comes_from(trained, tmp_path):
    directory = trained("masked_lm")
    origin = Origin(questions={"tiny": "What does masking keep?"}, losses={6: 1.5})
    export(directory.path, tmp_path / "exported", origin=origin)
    card = (tmp_path / "exported" / "README.md").read_text(encoding="utf-8")
    assert card.startswith(
        "---\nlibrary_name: transformers\nlicense: unknown\npipeline_tag: fill-mask\n"
        "tags: [pretraining-ablations, masked_lm]\n---\n\n# run, seed 0, step 6\n"
    )
    for part in (
        "Objective: masked LM: predict hidden tokens from what is left (Devlin et al. 2019).",
        "* tiny: What does masking keep?",
        "BertForMaskedLM.from_pretrained",
        "| Validation loss | 1.5000 nats a predicted token |",
        '* `train`: ["train.tsv"]',
        "The licence of the data is not recorded with the run.",
        "one run alone is no evidence",
    ):
        assert part in card
    config = read_json(tmp_path / "exported" / "config.json")
    entry = config["pretraining_ablations"]
    assert (entry["arm"], entry["seed"], entry["step"], entry["validation_loss"]) == ("run", 0, 6, 1.5)
    assert entry["run_id"] == directory.description()["run_id"]
    assert read_json(tmp_path / "exported" / "settings.json") == directory.description()["settings"]
    with safe_open(tmp_path / "exported" / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


class Displaced(ReplacedTokenSettings):
    above_zero: ClassVar[str] = "that the token stood elsewhere"


def test_the_card_says_what_a_score_above_0_means():
    run = settings("replaced_token")
    other = run.model_copy(update={"objective": Displaced(**dict(run.objective))})
    described = {"run_id": "0123456789", "arm": "mine", "seed": 0, "tokens": "0123456789"}
    assert "final norm" not in card(
        Facts(run, described, {}, Origin(), "ElectraForPreTraining", "replaced", step=1)
    )
    for made, meaning in ((run, "that the token was replaced"), (other, "that the token stood elsewhere")):
        facts = Facts(made, described, {}, Origin(), "ElectraForPreTraining", "replaced", step=1)
        assert f"`outputs.logits` has a score at each place: above 0 means {meaning}.\n" in card(facts)


def test_a_class_for_causal_lm_that_sees_both_sides_is_no_fill_mask_and_the_card_says_so(trained, tmp_path):
    directory = trained("masked_lm", encoder=VOITA_2019, objective={"head": "linear"})
    assert export(directory.path, tmp_path / "exported").class_name == "GPT2LMHeadModel"
    card = (tmp_path / "exported" / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag" not in card
    assert "`is_causal` is false in config.json, so the attention of this class sees both sides." in card
    assert (
        "The last of the hidden states is the one after the final norm. Measures of layers read the state before "
        "this norm: read the output of the last layer with a hook." in card
    )
    assert (
        "transformers 5.20 to 5.24 gives the numbers of the run; some older versions give other numbers." in card
    )


def test_a_series_has_a_folder_a_step_and_an_index(trained, tokens, tmp_path):
    directory = trained("masked_lm")
    written = export_series(directory.path, tmp_path / "series", origin=Origin(losses={2: 3.25}))
    names = [f"step-{step:08d}" for step in (0, 1, 2, 4, 6)]
    assert [each.folder for each in written] == [tmp_path / "series" / name for name in names]
    index = read_json(tmp_path / "series" / "index.json")
    assert (index["class"], index["arm"], index["seed"]) == ("BertForMaskedLM", "run", 0)
    assert [entry["folder"] for entry in index["checkpoints"]] == names
    logged = [json.loads(line) for line in directory.metrics.read_text().splitlines()]
    losses = {line["step"]: line["val/loss"] for line in logged if "val/loss" in line}
    assert [entry["validation_loss"] for entry in index["checkpoints"]] == [None, None, 3.25, losses[4], losses[6]]
    for entry in index["checkpoints"]:
        folder = tmp_path / "series" / entry["folder"]
        assert entry["sha256"] == sha256(folder / "model.safetensors")
        assert read_json(folder / "config.json")["pretraining_ablations"]["step"] == entry["step"]
    theirs, _ = load(*written[-1])
    table_VD = ours(directory, tokens).encoder.tokens.weight
    assert torch.equal(theirs.bert.embeddings.word_embeddings.weight, table_VD)
    first, _ = load(*written[0])
    assert not torch.equal(first.bert.embeddings.word_embeddings.weight, table_VD)


@pytest.mark.parametrize("changed", ["null", '{"step": 6, "val/loss": 1.0}', "no JSON"])
def test_no_loss_is_taken_from_a_log_that_has_changed(trained, tmp_path, changed):
    directory = trained("masked_lm")
    directory.metrics.write_text(changed + "\n")
    for write in (export, export_series):
        assert error_text(RunDirectoryError, write, directory.path, tmp_path / "exported") == (
            f"{directory.metrics} has changed since training ended; restore it, or delete {directory.path}, then "
            "`ablate run` trains the run again."
        )
    directory.write_state("interrupted", log_sha256=None)  # the end of a killed run's log may be anything
    export(directory.path, tmp_path / "exported")


def test_a_tokenizer_that_is_gone_or_has_changed_is_refused(trained, tokens, tmp_path):
    directory = trained("masked_lm")
    store = tmp_path / "out" / "tokens"
    store.unlink()  # a link to the store of other tests
    folder = store / tokens.address

    def refusal():
        with pytest.raises(DataError) as error:
            export(directory.path, tmp_path / "exported")
        assert not (tmp_path / "exported").exists()
        return str(error.value)

    assert refusal() == f"{folder} does not exist, expected a token store; start `ablate run`, which writes it."
    shutil.copytree(tokens.folder, folder)
    written = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(written.replace("o", "0", 1))
    assert refusal() == (
        f"The token store {folder} is damaged: tokenizer.json has changed since it was written; delete the "
        "folder, then `ablate run` writes it again."
    )


def test_a_folder_that_is_not_empty_is_refused_and_a_failure_leaves_nothing(trained, tmp_path, monkeypatch):
    directory = trained("masked_lm")
    target = tmp_path / "exported"
    target.mkdir()
    export(directory.path, target)  # an empty folder is free
    for write in (export, export_series):
        assert error_text(FilesError, write, directory.path, target) == (
            f"{target} already exists and is not an empty folder; choose another folder, or remove it."
        )

    def fail(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("lightning_modules.export.folder.card", fail)
    before = set(tmp_path.iterdir())
    for write in (export, export_series):
        with pytest.raises(KeyboardInterrupt):
            write(directory.path, tmp_path / "other")
    assert set(tmp_path.iterdir()) == before


def test_a_run_that_cannot_be_exported_is_refused_before_anything_is_written(make_run, tmp_path):
    vectors = make_run(settings("skip_gram"), name="vectors-s0-0000000001")
    assert error_text(ExportError, export, vectors.path, tmp_path / "exported") == (
        f"{vectors.path}: objective.kind is skip_gram, but no stock class of transformers can compute it; read "
        "checkpoints/last.safetensors with this package."
    )
    untrained = make_run(settings(), name="untrained-s0-0000000002")
    assert error_text(CheckpointError, export_series, untrained.path, tmp_path / "exported") == (
        f"{untrained.path} has no checkpoints of steps (checkpoints/step=*.ckpt); train the run again, or leave "
        "--all-steps out to export the last checkpoint."
    )
    assert not (tmp_path / "exported").exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda weight: torch.zeros(3), "has the shape (3,) in place of (320, 16)"),
        (lambda weight: weight.fill_(torch.nan), "has a number that is not finite"),
    ],
)
def test_weights_that_the_settings_do_not_have_or_that_are_not_finite_are_not_exported(
    change, why, trained, tmp_path
):
    directory, name = trained("masked_lm"), "encoder.tokens.weight"
    for path in (directory.last_checkpoint, directory.checkpoint_at(4)):
        content = torch.load(path, weights_only=True)
        content["state_dict"][name] = change(content["state_dict"][name])
        torch.save(content, path)
        write = export if path == directory.last_checkpoint else export_series
        assert error_text(CheckpointError, write, directory.path, tmp_path / "exported") == (
            f"{path}: the weights are not those of a model with the settings of the run ({name} {why}); restore "
            f"it, or delete {directory.path}, then `ablate run` trains the run again."
        )
        assert not (tmp_path / "exported").exists()
