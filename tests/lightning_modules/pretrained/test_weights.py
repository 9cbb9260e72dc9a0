"""Weights of folders: our states and logits are those of the stock classes."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lightning_modules.config import parameters
from lightning_modules.data.tokenizer import END, MASK, PAD
from lightning_modules.errors import DataError
from lightning_modules.model.heads import UNSCORED
from lightning_modules.objectives import build
from lightning_modules.pretrained import weights
from lightning_modules.pretrained.folder import read_folder
from lightning_modules.pretrained.weights import load_pretrained
from tests.support import tiny_pretrained
from tests.support.errors import error_text
from tests.support.tiny_pretrained import resolved

pytest.importorskip("transformers", reason="the extra [hf] is not installed")


def loaded(run):
    """The objective with the weights of its folder."""
    objective = build(run, SimpleNamespace(vocab_size=run.data.vocab_size))
    load_pretrained(objective, Path())
    return objective.eval()


@torch.no_grad()
def compare(run, stock, *, of_head=True, segments=False):
    """Return the largest difference of states below the top, of what the head reads, and of log probabilities."""
    objective, order = loaded(run), read_folder(Path(run.init.path)).order()
    place = {row: i for i, row in enumerate(order)}
    theirs_BT = torch.tensor([[3, 9, 30, 7, 12, 1, 20], [5, 5, 8, 2, 14, 33, 4]])
    ours_BT = torch.tensor([[place[row] for row in rows] for rows in theirs_BT.tolist()])
    segment_BT = torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2)
    given = {"token_type_ids": segment_BT} if segments else {}
    expected = stock(input_ids=theirs_BT, output_hidden_states=True, **given)
    layers = objective.encoder(
        ours_BT,
        sees=run.objective.sees,
        sequence_BT=torch.ones_like(ours_BT),
        segment_BT=segment_BT if segments else None,
    )
    top_BTD = objective.encoder.head_input(layers[-1])
    pairs = list(zip([*layers[:-1], top_BTD], expected.hidden_states, strict=True))
    if of_head:
        logits_BTV = objective.head(top_BTD, objective.encoder.tokens.weight)
        scored_V = logits_BTV[0, 0] > UNSCORED / 2  # GPT-2 has one special id of our five
        rows = [row for row, scored in zip(order, scored_V.tolist(), strict=True) if scored]
        expected_BTV = expected.logits[..., rows].log_softmax(-1)
        pairs.append((logits_BTV[..., scored_V].log_softmax(-1), expected_BTV))
    return max(float((ours - theirs).abs().max()) for ours, theirs in pairs)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_states_and_log_probabilities_are_those_of_the_stock_class(family, tmp_path, monkeypatch):
    stock = getattr(tiny_pretrained, family)(tmp_path / family)
    run = resolved(tmp_path, family)
    assert compare(run, stock) < 1e-5  # float32 in another order of sums
    if family == "bert":  # a wrong arrangement that the comparison notices
        swapped = {"attention.query_key_value": ("key", "query", "value")}
        monkeypatch.setattr(weights, "SIDE_BY_SIDE", swapped)
    else:
        monkeypatch.setitem(weights.IN_A_BLOCK, "attention_norm", "feed_forward_norm")
    assert compare(run, stock) > 1e-3


def test_a_gpt2_with_special_ids_of_its_own_scores_them(tmp_path):
    """Chinese GPT-2s have BERT's tokenizer: [UNK] occurs in their texts, and the stock softmax has all ids."""
    stock = tiny_pretrained.gpt2(tmp_path / "gpt2", word_pieces=True)
    run = resolved(tmp_path, "gpt2")
    assert run.init.unscored == ()
    assert type(run).model_validate(run.model_dump(mode="json")) == run
    assert compare(run, stock) < 1e-5
    logits = loaded(run).head(torch.randn(3, 16), loaded(run).encoder.tokens.weight)
    assert (logits > UNSCORED / 2).all()
    names = {"pad_token": "[UNK]", "mask_token": "[SEP]"}
    (tmp_path / "gpt2/tokenizer_config.json").write_text(json.dumps(names))
    assert resolved(tmp_path, "gpt2").init.unscored == (PAD, MASK)  # each shares a row with another id
    assert error_text(DataError, resolved, tmp_path, "gpt2", init={"unscored": (PAD,)}) == (
        f"init.unscored is [0], but the model of {tmp_path / 'gpt2'} has [0, 4]; leave init.unscored out."
    )


@pytest.mark.parametrize("segments", [2, 4])
def test_both_segments_are_read_also_in_runs_of_sentences(segments, tmp_path):
    """Tasks of pairs need them. Runs that were planned without `init.segments` keep the first segment alone."""
    stock = tiny_pretrained.bert(tmp_path / "bert", type_vocab_size=segments)
    pairs = {"document": "target"}
    for run in (
        resolved(tmp_path, "bert", data=pairs, training={"input_format": "segment_pair"}),
        resolved(tmp_path, "bert"),
    ):
        assert run.init.segments
        assert compare(run, stock, segments=True) < 1e-5
        assert compare(run, stock) < 1e-5
        assert parameters(run) == sum(weight.numel() for weight in loaded(run).parameters())
    older = run.model_copy(update={"init": run.init.model_copy(update={"segments": False})})
    assert compare(older, stock) < 1e-5
    assert compare(older, stock, segments=True) > 1e-3


def test_a_folder_of_one_segment_gives_none(tmp_path):
    stock = tiny_pretrained.bert(tmp_path / "bert", type_vocab_size=1)
    run = resolved(tmp_path, "bert")
    assert not run.init.segments
    assert "segments" not in run.model_dump(mode="json")["init"]
    assert compare(run, stock) < 1e-5
    assert error_text(DataError, resolved, tmp_path, "bert", init={"segments": True}) == (
        f"init.segments is true, but the model of {tmp_path / 'bert'} has false; leave init.segments out."
    )


def test_an_encoder_without_a_head_starts_with_the_head_of_the_seed(tmp_path):
    stock = tiny_pretrained.bert(tmp_path / "bert", of="BertModel")
    assert error_text(DataError, resolved, tmp_path, "bert") == (
        f"init.path: {tmp_path / 'bert'} has an encoder, but no head of masked_lm (cls.predictions.bias is "
        "missing); write init.head: random to start with a random head, which predicts nothing useful before "
        "training."
    )
    run = resolved(tmp_path, "bert", init={"head": "random"})
    assert compare(run, stock, of_head=False) < 1e-5
    fresh = build(run, SimpleNamespace(vocab_size=run.data.vocab_size))
    assert torch.equal(loaded(run).head.transform.weight, fresh.head.transform.weight)
    assert not torch.equal(loaded(run).encoder.tokens.weight, fresh.encoder.tokens.weight)


def test_random_weights_are_those_of_the_seed_in_the_same_shape(tmp_path):
    tiny_pretrained.bert(tmp_path / "bert")
    run = resolved(tmp_path, "bert", init={"weights": "random"})
    training = run.training.model_copy(
        update={"input_format": "segment_pair"}
    )  # which has segments without a folder
    alone = run.model_copy(update={"init": None, "training": training})
    fresh = build(alone, SimpleNamespace(vocab_size=run.data.vocab_size))
    for name, weight in loaded(run).state_dict().items():
        assert torch.equal(weight, fresh.state_dict()[name])


def test_special_ids_that_gpt2_lacks_have_no_probability(tmp_path):
    tiny_pretrained.gpt2(tmp_path / "gpt2")
    objective = loaded(resolved(tmp_path, "gpt2"))
    logits = objective.head(torch.randn(3, 16), objective.encoder.tokens.weight)
    assert (logits == UNSCORED).all(0).nonzero().flatten().tolist() == [0, 1, 2, 4]
    label_N = torch.tensor([END, 9, -100])
    loss = objective.head.loss(torch.ones(3, 16), objective.encoder.tokens.weight, label_N)
    one = torch.ones(16) @ objective.encoder.tokens.weight.T
    one[[0, 1, 2, 4]] = -torch.inf
    expected = -one.log_softmax(0)[[END, 9]].sum()
    torch.testing.assert_close(loss.total.float(), expected)
    loss.total.backward()
    assert objective.encoder.tokens.weight.grad.isfinite().all()


def test_a_folder_that_changed_after_planning_is_refused(tmp_path):
    tiny_pretrained.bert(tmp_path / "bert")
    run = resolved(tmp_path, "bert")
    config = json.loads((tmp_path / "bert/config.json").read_text())
    (tmp_path / "bert/config.json").write_text(json.dumps(config | {"layer_norm_eps": 1e-5}))
    assert error_text(DataError, loaded, run) == (
        f"init.path: {tmp_path / 'bert'} has changed since the run was planned; restore the folder, or give "
        "`ablate run` to plan a new run."
    )
