"""Who sees whom, found out by changing one token, for every objective; and attention as products of whole matrices
against torch's own, with all gradients."""

import pytest
import torch
import torch.nn.functional as F

from lightning_modules.config import EncoderSettings, parameters
from lightning_modules.config.run import PRESETS
from lightning_modules.data.packing import pack
from lightning_modules.model.attention import (
    EVERYTHING,
    ProductAttention,
    SelfAttention,
    Sight,
    attend,
    distances,
    score_mask,
    turn,
    turned,
    visible_by_rank,
    visible_in,
)
from lightning_modules.model.encoder import Encoder
from lightning_modules.model.numerics import kept_on_cpu
from lightning_modules.objectives import build
from lightning_modules.training.data_module import as_tensors, evaluate_parts, evaluation_batches
from tests.support.sight import (
    KINDS,
    PREDICTIONS,
    asking_for_nothing,
    check_packing,
    first_batch,
    influence,
    reach,
    spread,
)
from tests.support.tiny_text import settings

V, POSITIONS = 320, 13
SEQUENCE = torch.tensor([1] * 6 + [2] * 4 + [0] * 3)
SIGHTS = {"both_sides": (POSITIONS, POSITIONS), "left_only": (POSITIONS, 0), "window": (2, 1), "itself": (0, 0)}

B, T, S, D, HEADS = 3, 10, 7, 16, 4


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("sees", SIGHTS)
@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_a_state_depends_on_what_its_sight_reaches_in_so_many_layers(positions, sees, layers, norm):
    small = {"hidden_size": 8, "num_attention_heads": 2, "dropout": 0.0}
    shape = EncoderSettings(num_hidden_layers=layers, norm=norm, positions=positions, **small)
    model = spread(Encoder(shape, vocab_size=V, max_length=POSITIONS))
    ids = torch.randint(9, V, (POSITIONS,), generator=torch.Generator().manual_seed(1)) * (SEQUENCE > 0)
    position = torch.tensor([*range(6), *range(4), 0, 0, 0])
    left, right = SIGHTS[sees]

    def top(rows_RT):
        shared = {"sequence_BT": SEQUENCE.expand_as(rows_RT), "position_BT": position.expand_as(rows_RT)}
        return model(rows_RT, sees=sees, window=(2, 1), **shared)[-1]

    real = SEQUENCE > 0
    seen = influence(top, ids)
    assert torch.equal(seen[real], reach(SEQUENCE, layers * left, layers * right)[real])


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("sees", SIGHTS)
@pytest.mark.parametrize("positions", ["learned", "alibi"])
def test_a_window_of_attention_narrows_what_a_token_sees_to_either_side(positions, sees, layers):
    """Sequences are short enough that the window decides, and three layers see three times as far."""
    small = {"hidden_size": 8, "num_attention_heads": 2, "dropout": 0.0}
    shape = EncoderSettings(num_hidden_layers=layers, positions=positions, attention_window=1, **small)
    model = spread(Encoder(shape, vocab_size=V, max_length=POSITIONS))
    position = torch.tensor([*range(6), *range(4), 0, 0, 0])
    left, right = (layers * min(side, 1) for side in SIGHTS[sees])

    def top(rows_RT):
        shared = {"sequence_BT": SEQUENCE.expand_as(rows_RT), "position_BT": position.expand_as(rows_RT)}
        return model(rows_RT, sees=sees, window=(2, 1), **shared)[-1]

    ids = torch.randint(9, V, (POSITIONS,), generator=torch.Generator().manual_seed(1)) * (SEQUENCE > 0)
    assert torch.equal(influence(top, ids)[SEQUENCE > 0], reach(SEQUENCE, left, right)[SEQUENCE > 0])


@pytest.mark.parametrize("heads", [1, 3, 8, 16])
def test_distances_are_those_of_the_paper_for_any_number_of_heads(heads):
    """For 8 heads 1/2, 1/4 to 1/256; for 16 the same with their geometric means between them."""
    position = torch.tensor([[0, 1, 2, 0, 1, 5]])
    found = distances(position, heads=heads, dtype=torch.float64)
    assert found.shape == (1, heads, 6, 6)
    slopes = [-float(found[0, head, 1, 2]) for head in range(heads)]
    for head, slope in enumerate(slopes):
        expected = [[-slope * abs(int(p) - int(q)) for p in position[0]] for q in position[0]]
        assert found[0, head].tolist() == expected
    assert slopes == pytest.approx([256 ** (-(head + 1) / heads) for head in range(heads)], rel=1e-15)
    if heads == 16:
        assert slopes[1::2] == [2.0**-power for power in range(1, 9)]


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "replaced_token"])
@pytest.mark.parametrize("sees", ["window", "itself"])
def test_an_objective_passes_its_window_on_and_a_causal_one_never_looks_right(sees, kind, tokens):
    run = settings(kind, objective={"sees": sees, "window": 1}, encoder={"num_hidden_layers": 2})
    objective = spread(build(run, tokens))
    batch = {
        "sequence_BT": SEQUENCE.expand(POSITIONS + 1, -1),
        "position_BT": torch.arange(POSITIONS).expand(POSITIONS + 1, -1),
    }
    seen = influence(
        lambda rows: objective.encode(batch | {"tokens_BT": rows})[-1], torch.arange(10, 10 + POSITIONS)
    )
    width = 2 if sees == "window" else 0
    expected = reach(SEQUENCE, width, 0 if kind == "causal_lm" else width)
    assert torch.equal(seen[SEQUENCE > 0], expected[SEQUENCE > 0])


def test_padding_alone_in_its_row_is_finite_with_every_sight():
    shape = EncoderSettings(num_hidden_layers=2, hidden_size=8, num_attention_heads=2, dropout=0.0)
    model = spread(Encoder(shape, vocab_size=V, max_length=POSITIONS))
    nothing = torch.zeros(2, POSITIONS, dtype=torch.int64)
    for sees in SIGHTS:
        layers = model(nothing, sees=sees, sequence_BT=nothing, rank_BT=None)
        assert all(layer.isfinite().all() for layer in layers), sees
    layers = model(nothing, sees="both_sides", sequence_BT=nothing, rank_BT=(nothing, nothing))
    assert all(layer.isfinite().all() for layer in layers)


def test_an_order_of_the_tokens_is_any_sight_that_is_one():
    sequence_BT, place_BT = SEQUENCE[None], torch.arange(POSITIONS)[None]
    left_only = visible_in(sequence_BT, "left_only", (2, 2))
    assert torch.equal(visible_by_rank(sequence_BT, place_BT, place_BT), left_only)
    both_sides = visible_in(sequence_BT, "both_sides", (2, 2))
    everything_BT = torch.full_like(place_BT, EVERYTHING)
    assert torch.equal(visible_by_rank(sequence_BT, place_BT, everything_BT), both_sides)
    assert torch.equal(visible_by_rank(sequence_BT, 0 * place_BT, 0 * place_BT + 1), both_sides)
    # Of equal rank, or of one that nothing sees, are only strangers: a token is left with itself.
    itself = visible_in(sequence_BT, "itself", (2, 2))
    assert torch.equal(visible_by_rank(sequence_BT, 0 * place_BT, 0 * place_BT), itself)
    assert torch.equal(visible_by_rank(sequence_BT, everything_BT, everything_BT), itself)


# Every objective -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_arms_of_a_seed_share_the_initial_weights_of_whatever_they_share(kind, tokens):
    reference = build(settings("masked_lm", seed=5), tokens).encoder.state_dict()
    other = build(settings(kind, seed=5), tokens).encoder.state_dict()
    shared = reference.keys() & other.keys()
    assert shared == ({"tokens.weight"} if kind == "skip_gram" else reference.keys())
    assert all(torch.equal(reference[name], other[name]) for name in shared)  # bit-identical


@pytest.mark.parametrize("kind", KINDS)
def test_no_parameter_is_without_a_gradient_whatever_a_batch_asks_for(kind, tokens):
    """DistributedDataParallel waits for the gradient of every parameter."""
    objective, _, batch = first_batch(settings(kind, encoder={"dropout": 0.0}), tokens)
    objective.train()
    asked = [place for place in PREDICTIONS if place in batch]
    lacking = [asking_for_nothing(batch, place, how) for place in asked for how in ("no places", "ignored")]
    nothing = batch
    for place in asked:
        nothing = asking_for_nothing(nothing, place, "no places")
    for each in [batch, *lacking, nothing]:
        objective.zero_grad()
        loss = objective.training_step(each, 0)["loss"]
        loss.backward()
        assert loss.isfinite()
        missing = [name for name, p in objective.named_parameters() if p.grad is None]
        assert not missing
        assert all(p.grad.isfinite().all() for p in objective.parameters())
    assert not any(p.grad.any() for p in objective.parameters())  # nothing was asked for last


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_without_a_sentence_takes_part_in_the_step(kind, tokens):
    objective, data, _ = first_batch(settings(kind, encoder={"dropout": 0.0}), tokens)
    shape = {"row_length": data.row_length, "targets": objective.needs_targets, "rank": 1, "ranks": 2}
    packed = pack(data.split, data.plan[0].part(0, 1), **shape)
    assert len(packed.source.ids_N) == 0
    for view in (objective.make_batch(packed, seed=0), objective.make_evaluation_batch(packed)):
        objective.zero_grad()
        outputs = objective.training_step(as_tensors(view), 0)
        outputs["loss"].backward()
        assert not outputs["totals"].any()
        assert all(p.grad is not None and not p.grad.any() for p in objective.parameters())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_a_step_waits_for_no_value_of_a_device(positions, kind, tokens):
    """Tensors without values (meta) can only take the paths of a GPU, and cannot be looked at."""
    objective, _, batch = first_batch(settings(kind, encoder={"positions": positions}), tokens)
    objective.to("meta").train()
    outputs = objective.training_step({name: tensor.to("meta") for name, tensor in batch.items()}, 0)
    outputs["loss"].backward()
    assert outputs["totals"].device.type == "meta"
    assert all(parameter.grad is not None for parameter in objective.parameters())


@pytest.mark.parametrize(
    ("kind", "changes"),
    [(kind, {}) for kind in KINDS]
    + [(kind, {"encoder": {"positions": "none", "norm": "pre"}}) for kind in ("mixture", "replaced_token")]
    + [(k, {"training": {"input_format": "segment_pair"}}) for k in ("causal_lm", "permutation_lm", "mixture")]
    + [
        ("masked_lm", {"objective": {"pair_loss": pair}, "training": {"input_format": "sentence_pair"}})
        for pair in ("next_sentence", "sentence_order")
    ]
    + [(kind, {"encoder": PRESETS["voita-2019"]["encoder"]}) for kind in KINDS]
    + [(kind, {"encoder": {"activation": "swiglu", "norm_kind": "rms"}}) for kind in KINDS]
    + [(kind, {"encoder": {"positions": "rotary"}}) for kind in KINDS]
    + [("translation", {"encoder": {"positions": positions}}) for positions in ("alibi", "none")]
    + [("replaced_token", {"encoder": {"norm_kind": "rms", "norm": "pre", "embedding": {"norm": True}}})]
    + [(kind, {"objective": {"head": "linear"}}) for kind in ("masked_lm", "causal_lm", "translation")]
    + [("masked_lm", {"encoder": {"norm": "pre", "embedding": {"norm": True}}})]
    + [("replaced_token", {"objective": {"predict": "original", "generator": {"shrink": 1}}})]
    + [("replaced_token", {"objective": {"generator": {"shrink": 2, "num_hidden_layers": 1}}})],
    ids=str,
)
def test_parameters_are_those_of_the_module(kind, changes, tokens):
    run = settings(kind, **changes)
    assert parameters(run) == sum(p.numel() for p in build(run, tokens).parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluation_on_three_devices_adds_up_to_that_on_one(kind, tokens):
    objective = build(settings(kind), tokens).double()
    whole = evaluate_parts(objective, tokens.validation)
    shares = [evaluate_parts(objective, tokens.validation, rank=rank, ranks=3) for rank in range(3)]
    assert objective.training  # put back
    for name, part in whole.items():
        assert sum(int(share[name].predictions) for share in shares) == int(part.predictions)
        total = sum(share[name].total.item() for share in shares)
        assert total == pytest.approx(part.total.item(), rel=1e-12)  # float64 sums in another order
    batches = evaluation_batches(objective, tokens.validation, tokens_per_step=500)
    assert sum(int(batch["source_tokens"]) for batch in batches) == tokens.validation.lengths.sum()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "encoder",
    [*({"positions": name} for name in ("learned", "rotary", "alibi")), {"attention_window": 1}],
    ids=str,
)
def test_packed_rows_give_the_losses_of_one_sentence_a_row(encoder, kind, tokens):
    """With a window, also the queries of permutation LM, which may see nothing but themselves."""
    objective, data, _ = first_batch(settings(kind, encoder=encoder), tokens)
    check_packing(objective, data)


def leaves(seed: int, *, packed: bool) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(B, T, 3 * D)] if packed else [(B, T, D), (B, S, 2 * D)]
    return [torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_the_result_and_its_gradients_are_those_of_torch(packed, masked):
    projected = leaves(0, packed=packed)
    generator = torch.Generator().manual_seed(1)
    visible = torch.rand(B, 1, T, T if packed else S, generator=generator) < 0.5
    visible[..., 0] = True  # a query that may look at nothing has no attention
    scores = score_mask(visible, projected[0]) if masked else None
    results = []
    for attention in (
        lambda *x: ProductAttention.apply(scores, HEADS, 0.0, *x),
        lambda *x: attend(*x, score_mask_BHTS=scores, heads=HEADS),  # in float64 that is torch's
    ):
        mixed = attention(*projected)
        (mixed**2).sum().backward()
        results.append([mixed, *(x.grad.clone() for x in projected)])
        for x in projected:
            x.grad = None
    assert results[0][0].shape == (B, T, D)
    for ours, torchs in zip(*results, strict=True):
        torch.testing.assert_close(
            ours, torchs, rtol=0, atol=1e-12
        )  # sums of a few dozen numbers in another order
    assert torch.autograd.gradcheck(lambda *x: ProductAttention.apply(scores, HEADS, 0.0, *x), projected)


def test_bf16_on_a_cpu_goes_by_products_and_stays_within_its_rounding():
    projected = leaves(2, packed=True)
    exact = attend(*projected, score_mask_BHTS=None, heads=HEADS)
    narrow = [x.detach().bfloat16().requires_grad_() for x in projected]
    rounded = attend(*narrow, score_mask_BHTS=None, heads=HEADS)
    assert type(rounded.grad_fn).__name__ == "ProductAttentionBackward"
    # Scores, shares and products of bf16: a few roundings of 2^-9 each, relative to values of about 1.
    assert 0 < (rounded.double() - exact).std() < 4 * 2**-9


def test_attention_weights_are_dropped_and_the_others_make_up_for_it():
    """Every value is 1, so that a result is the sum of a query's attention weights: 1 without dropout."""
    share, rows = 0.3, 4000
    query, key_value = torch.zeros(rows, 1, 2, dtype=torch.float64), torch.zeros(rows, 10, 4, dtype=torch.float64)
    key_value[..., 2:] = 1
    torch.manual_seed(0)
    sums = attend(query, key_value, score_mask_BHTS=None, heads=1, dropout=share)[:, 0, 0]
    # The sum of ten weights, each 0 or 1 / (10 (1 - share)).
    deviation = (share / (1 - share) / 10) ** 0.5
    assert float(sums.mean()) == pytest.approx(1, abs=4 * deviation / rows**0.5)
    assert float(sums.std()) == pytest.approx(deviation, rel=0.05)
    narrow = [x.bfloat16() for x in (query, key_value)]
    assert attend(*narrow, score_mask_BHTS=None, heads=1, dropout=share).unique().numel() > 3


@pytest.mark.parametrize("packed", [True, False])
def test_gradients_with_dropout_are_those_of_the_weights_that_were_kept(packed):
    projected, dropout = leaves(5, packed=packed), 0.3
    query, key, value = (
        x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in projected for x in part.split(D, dim=-1)
    )
    torch.manual_seed(6)
    share = torch.softmax(query @ key.transpose(-2, -1) * (D // HEADS) ** -0.5, -1)
    kept, scale = kept_on_cpu(share.flatten(0, 1), dropout)
    expected = (scale * kept.unflatten(0, (B, HEADS)) * share @ value).transpose(1, 2).flatten(-2)
    torch.manual_seed(6)
    mixed = attend(*projected, score_mask_BHTS=None, heads=HEADS, dropout=dropout)
    torch.testing.assert_close(mixed, expected, rtol=0, atol=1e-12)  # sums of a few numbers in another order
    assert 0 < int((kept == 0).sum()) < kept.numel()
    for ours, plain in zip(
        torch.autograd.grad((mixed**2).sum(), projected),
        torch.autograd.grad((expected**2).sum(), projected),
        strict=True,
    ):
        torch.testing.assert_close(ours, plain, rtol=0, atol=1e-11)  # as above, of squares


def test_attention_drops_nothing_outside_training():
    attention = SelfAttention(EncoderSettings(hidden_size=16, num_attention_heads=2, attention_dropout=0.5))
    hidden = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    once, again = attention(hidden, Sight(None)), attention(hidden, Sight(None))
    assert not torch.equal(once, again)
    attention.eval()
    assert torch.equal(attention(hidden, Sight(None)), attention(hidden, Sight(None)))


def test_turned_queries_and_keys_know_the_difference_of_their_positions_alone():
    (projected,) = leaves(3, packed=True)
    position = torch.randint(0, 50, (B, T), generator=torch.Generator().manual_seed(4))
    here, shifted, elsewhere = (
        attend(
            turned(projected, turn(x, width=D // HEADS, dtype=torch.float64), heads=HEADS),
            score_mask_BHTS=None,
            heads=HEADS,
        )
        for x in (position, position + 7, 2 * position)
    )
    torch.testing.assert_close(here, shifted, rtol=0, atol=1e-11)  # angles of up to 57, in float64
    assert not torch.allclose(here, elsewhere, atol=1e-3)
    unmoved = turned(projected, turn(0 * position, width=D // HEADS, dtype=torch.float64), heads=HEADS)
    assert torch.equal(unmoved, projected)


def test_turning_in_bf16_is_rounded_once():
    (projected,) = leaves(5, packed=True)
    narrow = projected.bfloat16()
    angles = turn(torch.arange(T), width=D // HEADS, dtype=torch.float32)
    exact = turned(narrow.float(), angles, heads=HEADS)
    assert torch.equal(turned(narrow, angles, heads=HEADS), exact.bfloat16())


def test_score_mask_are_left_out_where_all_is_visible():
    everything = torch.ones(B, 1, T, T, dtype=torch.bool)
    assert score_mask(everything, torch.empty(0)) is None
    everything[0, 0, 2, 5] = False
    scores = score_mask(everything, torch.empty(0, dtype=torch.float64))
    assert scores.dtype == torch.float64
    assert (scores == float("-inf")).nonzero().tolist() == [[0, 0, 2, 5]]
    assert (scores == 0).sum() == everything.numel() - 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert score_mask(everything, torch.empty(0)).dtype == torch.bfloat16


def test_gradients_in_bf16_are_no_worse_than_torchs_where_keys_and_values_have_a_large_common_part():
    """A common part drops out of the gradient of the scores, unless a rounding keeps some of it."""
    generator = torch.Generator().manual_seed(4)
    query, key, value = (torch.randn(B, T, HEADS, D // HEADS, generator=generator) for _ in range(3))
    offset = 5 * torch.randn(2, HEADS, D // HEADS, generator=generator)
    projected = torch.stack([query, key + offset[0], value + offset[1]], 2).flatten(2).bfloat16()
    weight = torch.randn(B, T, D, generator=generator).bfloat16()

    def gradient(attention, dtype):
        leaf = projected.to(dtype).requires_grad_()
        (attention(leaf) * weight.to(dtype)).sum().backward()
        return leaf.grad.double()

    exact = gradient(lambda x: attend(x, score_mask_BHTS=None, heads=HEADS), torch.float64)
    ours = gradient(lambda x: attend(x, score_mask_BHTS=None, heads=HEADS), torch.bfloat16)

    def torchs(x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in x.chunk(3, dim=-1))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)

    theirs = gradient(torchs, torch.bfloat16)
    # Both round shares and products to 2^-9; a factor of 2 is the luck of other roundings.
    assert (ours - exact).norm() < 2 * (theirs - exact).norm()


@pytest.mark.parametrize("heads", [1, 16])
def test_one_head_one_position_and_heads_of_width_one(heads):
    x = torch.randn(2, 1, 3 * D, dtype=torch.float64).requires_grad_()
    mixed = ProductAttention.apply(None, heads, 0.0, x)
    torch.testing.assert_close(mixed, x[..., 2 * D :])  # all attention is on the one value
    assert torch.autograd.gradcheck(lambda x: ProductAttention.apply(None, heads, 0.0, x), x)
