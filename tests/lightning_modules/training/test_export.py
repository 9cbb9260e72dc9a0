"""A run becomes a Hugging Face folder that stock classes load."""

import numpy as np
import pytest
import torch

from lightning_modules.objectives import build
from lightning_modules.training.export import ExportError, export
from lightning_modules.training.stop import StopRequest
from lightning_modules.training.train import start
from tests.support.tiny_text import settings

transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")


@pytest.mark.parametrize(
    ("kind", "training", "encoder"),
    [
        ("masked_lm", {}, {}),
        ("causal_lm", {}, {}),
        ("translation", {}, {}),
        ("mixture", {}, {}),
        ("permutation_lm", {}, {}),
        ("replaced_token", {}, {}),
        ("masked_lm", {"input_format": "sentence_pair"}, {}),
        ("masked_lm", {}, {"positions": "sinusoidal", "activation": "relu", "layer_norm_epsilon": 0.1}),
    ],
    ids=str,
)
def test_stock_classes_compute_the_states_of_the_run(kind, training, encoder, make_run, tokens, tmp_path):
    directory = make_run(settings(kind, encoder=encoder, training={"max_steps": 3} | training))
    start(directory, data_root=directory.path, accelerator="cpu", threads=1, stop=StopRequest())
    name = export(directory.path, tmp_path / "exported")
    transformers.logging.set_verbosity_error()
    theirs = getattr(transformers, name).from_pretrained(tmp_path / "exported").eval()
    ours = build(directory.settings(), tokens).eval()
    ours.load_state_dict(torch.load(directory.last_checkpoint, weights_only=True)["state_dict"])
    text = "the dog sees a small tree"
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    batch = tokenizer(text, return_tensors="pt")
    ids = [2, *tokens.tokenizer.encode(text).ids, 3]
    assert batch["input_ids"][0].tolist() == ids
    assert tokenizer.mask_token_id == 4
    mask = batch["attention_mask"]
    states = theirs(input_ids=batch["input_ids"], attention_mask=mask, output_hidden_states=True).hidden_states
    expected = ours.encoder(torch.tensor([ids]), sees=ours.run.objective.sees)
    for mine, other in zip(expected, states, strict=True):
        np.testing.assert_allclose(mine.detach(), other.detach(), atol=1e-5)


def test_pre_norm_runs_are_refused_with_a_sentence(make_run, tmp_path):
    directory = make_run(settings(encoder={"norm": "pre"}))
    with pytest.raises(ExportError) as error:
        export(directory.path, tmp_path / "exported")
    assert str(error.value) == (
        f"{directory.path}: encoder.norm is pre, which BERT's classes cannot hold; "
        f"only runs with norm: post are exported."
    )
    assert not (tmp_path / "exported").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"encoder": {"embedding": {"scale": True}}},
            "encoder.embedding is {scale: true, bias: false, norm: true}, which BERT's classes cannot hold; only "
            "runs with embedding: {scale: false, bias: false, norm: true} are exported.",
        ),
        (
            {"encoder": {"norm_kind": "rms"}},
            "encoder.norm_kind is rms, which BERT's classes cannot hold; only runs with norm_kind: layer are "
            "exported.",
        ),
        (
            {"encoder": {"positions": "rotary"}},
            "encoder.positions is rotary, which BERT's classes cannot hold; only runs with positions: learned or "
            "sinusoidal or none are exported.",
        ),
        (
            {"encoder": {"attention_window": 2}},
            "encoder.attention_window is 2, which BERT's classes cannot hold; only runs with attention_window: "
            "null are exported.",
        ),
        (
            {"encoder": {"activation": "swiglu"}},
            "encoder.activation is swiglu, which BERT's classes cannot hold; only runs with activation: gelu or "
            "relu are exported.",
        ),
        (
            {"objective": {"head": "linear"}},
            "objective.head is linear, which BERT's classes cannot hold; only runs with head: bert are exported.",
        ),
    ],
    ids=str,
)
def test_other_norms_positions_layers_and_heads_are_refused_with_a_sentence(changes, sentence, make_run, tmp_path):
    directory = make_run(settings(**changes))
    with pytest.raises(ExportError) as error:
        export(directory.path, tmp_path / "exported")
    assert str(error.value) == f"{directory.path}: {sentence}"


def test_what_bert_cannot_compute_is_refused_with_a_sentence(make_run, tmp_path):
    vectors = make_run(settings("skip_gram"), name="vectors-s0-0000000001")
    with pytest.raises(ExportError) as error:
        export(vectors.path, tmp_path / "exported")
    assert str(error.value) == (
        f"{vectors.path}: objective.kind is skip_gram, which BERT's classes cannot compute; runs of masked_lm, "
        f"causal_lm, translation, mixture, replaced_token, permutation_lm are exported."
    )
    narrow = make_run(settings(objective={"sees": "window"}), name="window-s0-0000000002")
    with pytest.raises(ExportError) as error:
        export(narrow.path, tmp_path / "exported")
    assert str(error.value) == (
        f"{narrow.path}: objective.sees is window, which BERT's classes cannot hold; only runs that see "
        f"both_sides or left_only are exported."
    )
