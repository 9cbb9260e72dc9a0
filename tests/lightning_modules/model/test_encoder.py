"""Who sees whom, what padding changes (nothing), and equality with Hugging Face's BERT."""

from typing import Any

import pytest
import torch

from lightning_modules.config import EncoderSettings
from lightning_modules.config.encoder import block_parameters, block_weights
from lightning_modules.data.tokenizer import PAD
from lightning_modules.export.post_norm import BERT
from lightning_modules.model.encoder import Encoder, EncoderBlock, norm_layer
from lightning_modules.objectives.masked_lm import MaskedLM
from tests.support.tiny_text import settings

V, T = 50, 12


def encoder(**changes: Any) -> Encoder:
    shape = {"num_hidden_layers": 3, "hidden_size": 16, "num_attention_heads": 4, "dropout": 0.0} | changes
    torch.manual_seed(0)
    made = Encoder(EncoderSettings.model_validate(shape), vocab_size=V, max_length=T)
    for parameter in made.parameters():  # larger than initial weights, so that attention is far from uniform
        torch.nn.init.normal_(parameter, std=0.3)
    return made.eval()


def tokens(rows: int = 4, length: int = T, seed: int = 0) -> torch.Tensor:
    return torch.randint(5, V, (rows, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_returns_the_embeddings_and_every_block(norm):
    layers = encoder(norm=norm)(tokens(), sees="both_sides")
    assert len(layers) == 4
    assert all(layer.shape == (4, T, 16) for layer in layers)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_part_of_the_embedding_leaves_its_norm_as_it_is_without(norm):
    """An arm that sets the scale differs from the base in nothing else."""
    base = EncoderSettings(norm=norm)
    assert EncoderSettings.model_validate({"norm": norm, "embedding": {"scale": False}}) == base
    changed = EncoderSettings.model_validate({"norm": norm, "embedding": {"scale": True}})
    assert changed.embedding == base.embedding.model_copy(update={"scale": True})
    assert EncoderSettings.model_validate({"norm": norm, "embedding": {"norm": True}}).embedding.norm


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_left_only_never_sees_a_later_token(norm):
    model, before = encoder(norm=norm), tokens()
    after = before.clone()
    after[:, 7] = (before[:, 7] - 4) % 45 + 5
    for x, y in zip(model(before, sees="left_only"), model(after, sees="left_only"), strict=True):
        assert torch.equal(x[:, :7], y[:, :7])  # bit-identical
        assert not torch.equal(x[:, 7], y[:, 7])
    top = model(before, sees="left_only")[-1], model(after, sees="left_only")[-1]
    assert not torch.allclose(top[0][:, 8:], top[1][:, 8:])


def test_both_sides_sees_later_and_earlier_tokens_from_the_first_block_on():
    model, before = encoder(), tokens()
    after = before.clone()
    after[:, 7] = (before[:, 7] - 4) % 45 + 5
    x, y = model(before, sees="both_sides"), model(after, sees="both_sides")
    assert torch.equal(x[0][:, :7], y[0][:, :7])  # embeddings know their own token only
    for layer in (1, 2, 3):
        changed = (x[layer] != y[layer]).any(-1)
        assert changed.all()


@pytest.mark.parametrize("sees", ["both_sides", "left_only"])
def test_padding_changes_nothing(sees):
    model, ids = encoder(), tokens(length=7)
    padded = torch.nn.functional.pad(ids, (0, 5), value=PAD)
    for x, y in zip(model(ids, sees=sees), model(padded, sees=sees), strict=True):
        torch.testing.assert_close(x, y[:, :7], atol=2e-6, rtol=0)  # float32 sums in another order


@pytest.mark.parametrize("sees", ["both_sides", "left_only"])
def test_sentences_packed_in_one_row_do_not_see_each_other(sees):
    model, a, b = encoder(), tokens(1, 5, seed=1), tokens(1, 6, seed=2)
    packed = torch.cat([a, b, torch.full((1, 1), PAD)], dim=1)
    sequence = torch.tensor([[1] * 5 + [2] * 6 + [0]])
    position = torch.tensor([[*range(5), *range(6), 0]])
    together = model(packed, sees=sees, sequence_BT=sequence, position_BT=position)
    for layer, alone_a, alone_b in zip(together, model(a, sees=sees), model(b, sees=sees), strict=True):
        torch.testing.assert_close(layer[:, :5], alone_a, atol=2e-6, rtol=0)  # float32 sums in another order
        torch.testing.assert_close(layer[:, 5:11], alone_b, atol=2e-6, rtol=0)
        assert layer.isfinite().all()


@pytest.mark.parametrize("sees", ["both_sides", "left_only"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_top_at_some_places_is_the_top_everywhere_at_those_places(norm, sees):
    model = encoder(norm=norm).double()
    top_place_N = torch.tensor([3, 30, 3, 47])
    results = []
    for wanted in (None, top_place_N):
        model.zero_grad()
        *lower, top = model(tokens(), sees=sees, top_place_N=wanted)
        top = top.flatten(0, 1)[top_place_N] if wanted is None else top
        (top**3).sum().backward()
        results.append([*lower, top, *(p.grad for p in model.parameters() if p.grad is not None)])
    assert results[1][3].shape == (4, 16)
    assert len(results[0]) == len(results[1])
    for everywhere, there in zip(*results, strict=True):
        torch.testing.assert_close(there, everywhere, rtol=0, atol=1e-12)


def test_bf16_on_cpu_stays_within_its_rounding():
    model = encoder()
    exact = model(tokens(), sees="both_sides")[-1]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = model(tokens(), sees="both_sides")[-1]
    # A few dozen roundings of 2^-9 each, on states of unit variance.
    assert 0 < (rounded.float() - exact).std() < 30**0.5 * 2**-9


@pytest.mark.parametrize("activation", ["gelu", "relu", "swiglu"])
@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("inside", [{}, {"intermediate_size": 24}], ids=str)
def test_weights_and_parameters_of_a_block_are_those_of_the_module(activation, kind, inside):
    shape = EncoderSettings(hidden_size=16, num_attention_heads=4, activation=activation, norm_kind=kind, **inside)
    block = EncoderBlock(shape)
    assert block_weights(shape) == sum(weight.numel() for weight in block.parameters() if weight.ndim == 2)
    assert block_parameters(shape) == sum(weight.numel() for weight in block.parameters())


@pytest.mark.parametrize("width", [1, 8, 64, 256, 768, 1024])
def test_a_gated_feed_forward_layer_has_as_many_weights_as_one_without_a_gate(width):
    """Up to the rounding of its width to a multiple of 8: by at most 4 times three matrices."""
    plain, gated = (
        EncoderSettings(hidden_size=width, num_attention_heads=1, activation=kind) for kind in ("gelu", "swiglu")
    )
    assert gated.intermediate_size % 8 == 0
    assert plain.intermediate_size == 4 * width
    if width > 1:  # where the least width of 8 is more than was asked for
        assert abs(block_weights(gated) - block_weights(plain)) <= 4 * 3 * width
    assert EncoderSettings(hidden_size=768, num_attention_heads=1, activation="swiglu").intermediate_size == 2048


def test_an_rms_norm_is_its_formula_and_is_computed_in_fp32():
    settings = EncoderSettings(hidden_size=16, num_attention_heads=4, norm_kind="rms", layer_norm_epsilon=0.1)
    norm = norm_layer(settings).double()
    state, weight = torch.randn(2, 16, dtype=torch.float64)
    norm.load_state_dict({"weight": weight})
    expected = torch.stack(
        [weight[i] * state[i] / (sum(x * x for x in state) / 16 + 0.1).sqrt() for i in range(16)]
    )
    torch.testing.assert_close(norm(state), expected, rtol=1e-12, atol=0)  # sums of float64 in another order
    torch.testing.assert_close(norm(-state), -expected, rtol=1e-12, atol=0)
    assert not torch.allclose(norm(state + 1), expected)  # no mean is subtracted
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert norm_layer(settings)(state.bfloat16()).dtype == torch.float32


def test_without_positions_a_permutation_of_the_tokens_permutes_the_states():
    model, ids = encoder(positions="none"), tokens()
    order = torch.randperm(T, generator=torch.Generator().manual_seed(3))
    x, y = model(ids, sees="both_sides")[-1], model(ids[:, order], sees="both_sides")[-1]
    torch.testing.assert_close(x[:, order], y, atol=2e-6, rtol=0)  # float32 sums in another order
    with_positions = encoder()
    x, y = with_positions(ids, sees="both_sides")[-1], with_positions(ids[:, order], sees="both_sides")[-1]
    assert (x[:, order] - y).abs().max() > 1e-4  # fifty times the tolerance above


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "alibi"])
@torch.no_grad()
def test_positions_tell_an_order_and_are_counted_from_the_left_unless_given(positions):
    model, ids = encoder(positions=positions).double(), tokens()
    order = torch.randperm(T, generator=torch.Generator().manual_seed(1))
    top, moved = (model(x, sees="both_sides")[-1] for x in (ids, ids[:, order]))
    assert (moved - top[:, order]).abs().max() > 1e-3
    given = model(ids, sees="both_sides", position_BT=torch.arange(T).expand_as(ids))[-1]
    assert torch.equal(top, given)
    same = model(ids[:, order], sees="both_sides", position_BT=order.expand_as(ids))[-1]
    torch.testing.assert_close(same, top[:, order], rtol=0, atol=1e-12)  # sums of float64 in another order


@pytest.mark.parametrize(("positions", "changes"), [("rotary", 0), ("alibi", 0), ("learned", 1)])
@torch.no_grad()
def test_positions_inside_attention_are_differences(positions, changes):
    model, ids = encoder(positions=positions).double(), tokens(length=T - 4)
    near, far = (
        model(ids, sees="both_sides", position_BT=(first + torch.arange(T - 4)).expand_as(ids))[-1]
        for first in (0, 4)
    )
    assert ((near - far).abs().max() > 1e-9) == changes  # equal up to sums of float64


def test_dropout_acts_in_training_only():
    model, ids = encoder(dropout=0.5), tokens()
    assert torch.equal(model(ids, sees="both_sides")[-1], model(ids, sees="both_sides")[-1])
    model.train()
    assert not torch.equal(model(ids, sees="both_sides")[-1], model(ids, sees="both_sides")[-1])


@pytest.mark.parametrize("lengths", [[9, 9, 9], [9, 4, 1]], ids=["full", "padded"])
@pytest.mark.parametrize("seed", [0, 1])
def test_states_and_logits_are_those_of_hugging_face_bert(lengths, seed):
    transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")
    run = settings(encoder={"num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4}, seed=seed)
    ours = MaskedLM(run, vocab_size=320).eval()
    ours.initialise()
    rng = torch.Generator().manual_seed(seed)
    for parameter in ours.parameters():  # biases and norms away from 0 and 1, so that a wrong place shows
        torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.1, generator=rng)
    state = ours.state_dict()
    theirs = transformers.BertForMaskedLM(transformers.BertConfig(**BERT.full_config(state, run, "token"))).eval()
    missing, unexpected = theirs.load_state_dict(BERT.weights(state, run, "token"), strict=False)
    assert not unexpected
    assert set(missing) <= {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}  # tied
    theirs.tie_weights()
    ids = torch.randint(5, 320, (3, 9), generator=rng)
    mask = (torch.arange(9) < torch.tensor(lengths)[:, None]).long()
    ids = ids * mask
    expected = theirs(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    layers = ours.encoder(ids, sees="both_sides")
    real = mask.bool()
    assert len(layers) == len(expected.hidden_states) == 5
    for mine, other in zip(layers, expected.hidden_states, strict=True):
        torch.testing.assert_close(mine[real], other[real], atol=1e-5, rtol=0)
    logits = ours.head(layers[-1], ours.encoder.tokens.weight)
    torch.testing.assert_close(logits[real], expected.logits[real], atol=1e-5, rtol=1e-5)
