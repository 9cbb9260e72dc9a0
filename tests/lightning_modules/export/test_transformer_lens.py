"""TransformerLens loads exported language models and shows all their states; run with `make test-ecosystem`."""

from itertools import pairwise

import pytest
import torch
from transformers import AutoTokenizer

from lightning_modules.export.folder import export
from tests.support.drawn_run import draw
from tests.support.tiny_text import settings

pytestmark = pytest.mark.ecosystem
transformer_lens = pytest.importorskip("transformer_lens", reason="needs TransformerLens")

ATOL = 1e-5  # float32 sums in another order, of states up to 20
TEXT = "the dog sees a small old tree often"
GPT2 = {"encoder": {"norm": "pre"}, "objective": {"head": "linear"}}


@pytest.mark.filterwarnings("ignore")  # those of another package
@pytest.mark.parametrize(
    ("kind", "sections", "expected"),
    [("causal_lm", GPT2, "GPT2LMHeadModel"), ("masked_lm", {}, "BertForMaskedLM")],
    ids=["GPT-2", "BERT"],
)
def test_all_states_and_logits_are_those_of_the_run(kind, sections, expected, make_run, tokens, tmp_path):
    directory = make_run(settings(kind, **sections))
    objective = draw(directory, tokens)
    assert export(directory.path, tmp_path / "exported").class_name == expected
    bridge = transformer_lens.TransformerBridge.boot_transformers(str(tmp_path / "exported"), device="cpu")
    ids_BT = AutoTokenizer.from_pretrained(tmp_path / "exported")(TEXT, return_tensors="pt")["input_ids"]
    assert bridge.to_tokens(TEXT).tolist() == ids_BT[:, 1:-1].tolist(), "its own tokenizer leaves out the ends"
    with torch.no_grad():
        logits, cache = bridge.run_with_cache(ids_BT)
        sees = "left_only" if kind == "causal_lm" else "both_sides"
        layers = objective.encoder(ids_BT, sees=sees)
        head_input = objective.encoder.head_input(layers[-1])
        head = objective.head(head_input, objective.encoder.tokens.weight)
    theirs = [cache["blocks.0.hook_resid_pre"], *(cache[f"blocks.{i}.hook_resid_post"] for i in range(2))]
    for ours, other in zip(layers, theirs, strict=True):
        torch.testing.assert_close(other, ours, atol=ATOL, rtol=0)
    assert min((a - b).abs().max() for a, b in pairwise(layers)) > 0.1
    torch.testing.assert_close(logits, head, atol=ATOL, rtol=0)
