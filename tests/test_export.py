"""A run becomes a Hugging Face folder that stock classes load."""

import numpy as np
import pytest
import torch

from lightning_modules.callbacks import StopRequest
from lightning_modules.export import ExportError, export
from lightning_modules.objectives import build
from lightning_modules.train import start
from tests.conftest import settings

transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "translation"])
def test_stock_classes_compute_the_states_of_the_run(kind, make_run, tokens, tmp_path):
    directory = make_run(settings(kind, training={"max_steps": 3}))
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
