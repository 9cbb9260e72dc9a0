"""Stock classes compute the logits and the states of the runs that they hold; what none holds is refused."""

import math

import pytest
import torch
import torch.nn.functional as F

from lightning_modules.config import DecoderSettings, EncoderSettings
from lightning_modules.config.objectives import GeneratorSettings
from lightning_modules.data.tokenizer import FIRST_WORD_ID, START
from lightning_modules.export import stock as stock_classes
from lightning_modules.export.card import CONTINUES
from lightning_modules.export.folder import STOCKS
from lightning_modules.export.post_norm import ELECTRA_GENERATOR
from lightning_modules.export.stock import ExportError
from lightning_modules.model.attention import sight_of, visible_in
from tests.support.errors import error_text
from tests.support.stock import TARGET_V, T, batch, chosen, loaded, module

transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")

ATOL = 1e-5  # float32 sums in another order, of states up to 20

PRE = {"norm": "pre"}
ROTARY = {"positions": "rotary"}
SCALED = {"embedding": {"scale": True, "bias": True}}
LLAMA = PRE | ROTARY | {"norm_kind": "rms", "activation": "swiglu"}
VOITA_2019 = PRE | {
    "positions": "sinusoidal",
    "embedding": {"scale": True, "bias": True, "norm": False},
    "activation": "relu",
    "layer_norm_epsilon": 1e-6,
}
"""The encoder of that preset."""
LINEAR = {"head": "linear"}

HEADS = [
    # encoder, objective, class of masked LM, class of causal LM (None: refused)
    ({}, {}, "BertForMaskedLM", "BertLMHeadModel"),
    ({"activation": "relu"}, {}, "RobertaForMaskedLM", "RobertaForCausalLM"),
    ({"positions": "sinusoidal", "layer_norm_epsilon": 0.1}, {}, "BertForMaskedLM", "BertLMHeadModel"),
    ({"positions": "none"} | SCALED, {}, "BertForMaskedLM", "BertLMHeadModel"),
    ({"activation": "relu"} | SCALED, {}, "RobertaForMaskedLM", "RobertaForCausalLM"),
    (ROTARY | SCALED, {}, "RoFormerForMaskedLM", "RoFormerForCausalLM"),
    ({"attention_window": 2}, {}, "LongformerForMaskedLM", None),
    ({"attention_window": 20, "activation": "relu"}, {}, "LongformerForMaskedLM", None),
    (PRE, {}, "XLMRobertaXLForMaskedLM", "XLMRobertaXLForCausalLM"),
    (VOITA_2019, {}, "XLMRobertaXLForMaskedLM", "XLMRobertaXLForCausalLM"),
    (PRE | {"embedding": {"norm": True}}, {}, "RobertaPreLayerNormForMaskedLM", "RobertaPreLayerNormForCausalLM"),
    (PRE | ROTARY, {}, "EsmForMaskedLM", "EsmForMaskedLM"),
    (PRE | ROTARY | {"embedding": {"norm": True, "scale": True}}, {}, "EsmForMaskedLM", "EsmForMaskedLM"),
    ({}, LINEAR, "XLMWithLMHeadModel", "XLMWithLMHeadModel"),
    ({"activation": "relu"} | SCALED, LINEAR, "XLMWithLMHeadModel", "XLMWithLMHeadModel"),
    (PRE, LINEAR, "GPT2LMHeadModel", "GPT2LMHeadModel"),
    (VOITA_2019, LINEAR, "GPT2LMHeadModel", "GPT2LMHeadModel"),
    (PRE | ROTARY, LINEAR, "Starcoder2ForCausalLM", "Starcoder2ForCausalLM"),
    (PRE | ROTARY | {"attention_window": 2}, LINEAR, "Starcoder2ForCausalLM", "Starcoder2ForCausalLM"),
    (LLAMA, LINEAR, "EuroBertForMaskedLM", "LlamaForCausalLM"),
]


def same_states(ours, theirs, mask, *, head_input):
    """All layers agree, but for the last of pre-norm: that of the class is normalised once more."""
    assert len(ours) == len(theirs)
    for i, (mine, other) in enumerate(zip([*ours[:-1], head_input(ours[-1])], theirs, strict=True)):
        torch.testing.assert_close(
            mine[mask], other[mask], atol=ATOL, rtol=0, msg=lambda text, i=i: f"{i}: {text}"
        )


def compare(made, theirs):
    """Both give the same logits and states for a batch with padding; returns the logits."""
    ids, mask = batch()
    output = theirs(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    layers = made.encoder(ids, sees=made.run.objective.sees, window=made.window)
    same_states(layers, output.hidden_states, mask.bool(), head_input=made.encoder.head_input)
    top_BTD = made.encoder.head_input(layers[-1])
    logits = made.head(top_BTD, made.encoder.tokens.weight) if made.run.objective.output else made.head(top_BTD)
    other = output.prediction_logits if "prediction_logits" in output else output.logits
    torch.testing.assert_close(logits[mask.bool()], other[mask.bool()], atol=ATOL, rtol=0)
    whole = theirs(input_ids=ids[:1]).logits if "logits" in output else theirs(input_ids=ids[:1]).prediction_logits
    torch.testing.assert_close(whole, logits[:1], atol=ATOL, rtol=0)  # without padding and without a mask
    return output


LANGUAGE_MODELS = [
    (kind, encoder, objective, expected)
    for encoder, objective, masked, causal in HEADS
    for kind, expected in (("masked_lm", masked), ("causal_lm", causal))
    if expected is not None
]


@pytest.mark.parametrize(("kind", "encoder", "objective", "expected"), LANGUAGE_MODELS, ids=str)
def test_a_stock_class_computes_the_logits_of_a_language_model(kind, encoder, objective, expected, tmp_path):
    made = module(kind, encoder=encoder, objective=objective)
    stock = chosen(made)
    assert stock.classes[made.run.objective.stock_output] == expected
    compare(made, loaded(stock, made, tmp_path / "model"))


@pytest.mark.parametrize(
    ("kind", "sections", "expected"),
    [
        ("mixture", {}, "BertForMaskedLM"),
        ("permutation_lm", {"encoder": PRE}, "XLMRobertaXLForMaskedLM"),
        ("masked_lm", {"objective": {"sees": "left_only"}}, "BertForMaskedLM"),
        ("masked_lm", {"objective": {"sees": "left_only"} | LINEAR}, "XLMWithLMHeadModel"),
        ("masked_lm", {"objective": {"sees": "left_only"}, "encoder": PRE | ROTARY}, "EsmForMaskedLM"),
        ("masked_lm", {"objective": {"sees": "window", "window": 3}}, "LongformerForMaskedLM"),
        (
            "causal_lm",
            {"objective": {"sees": "window", "window": 3} | LINEAR, "encoder": PRE | ROTARY},
            "Starcoder2ForCausalLM",
        ),
        ("masked_lm", {"training": {"input_format": "sentence_pair"}}, "BertForMaskedLM"),
    ],
    ids=str,
)
def test_a_narrow_sight_segments_and_other_objectives_over_a_vocabulary(kind, sections, expected, tmp_path):
    made = module(kind, **sections)
    stock = chosen(made)
    assert stock.classes[made.run.objective.stock_output] == expected
    theirs = loaded(stock, made, tmp_path / "model")
    if made.run.objective.output is None:  # permutation LM has a head over the vocabulary and no order of its own
        ids, mask = batch()
        top_BTD = made.encoder.head_input(made.encoder(ids, sees="both_sides")[-1])
        logits = made.head(top_BTD, made.encoder.tokens.weight)
        other = theirs(input_ids=ids, attention_mask=mask).logits
        torch.testing.assert_close(logits[mask.bool()], other[mask.bool()], atol=ATOL, rtol=0)
    else:
        compare(made, theirs)


def test_segments_and_the_loss_on_pairs(tmp_path):
    made = module(
        "masked_lm", training={"input_format": "sentence_pair"}, objective={"pair_loss": "next_sentence"}
    )
    stock = chosen(made)
    assert stock.classes["token_and_pair"] == "BertForPreTraining"
    theirs = loaded(stock, made, tmp_path / "model")
    compare(made, theirs)
    ids, mask = batch()
    second = torch.arange(T).expand_as(ids) % 2
    output = theirs(input_ids=ids, attention_mask=mask, token_type_ids=second)
    top_BTD = made.encoder(ids, sees="both_sides", segment_BT=second)[-1]
    logits = made.head(top_BTD, made.encoder.tokens.weight)
    torch.testing.assert_close(logits[mask.bool()], output.prediction_logits[mask.bool()], atol=ATOL, rtol=0)
    first, other = output.seq_relationship_logits.unbind(-1)
    torch.testing.assert_close(made.pair_head(top_BTD[:, 0]), first - other, atol=ATOL, rtol=0)


@pytest.mark.parametrize("encoder", [{}, SCALED, {"positions": "sinusoidal"}], ids=str)
def test_discriminator_and_generator_of_replaced_tokens(encoder, tmp_path):
    made = module("replaced_token", encoder=encoder, objective={"generator": {"shrink": 2}})
    stock = chosen(made)
    assert stock.classes["replaced"] == "ElectraForPreTraining"
    compare(made, loaded(stock, made, tmp_path / "model"))
    generator = loaded(ELECTRA_GENERATOR, made, tmp_path / "generator", "token")
    ids, mask = batch()
    embedded_BTD = made.encoder.embed(ids)
    sight = sight_of(made.generator.shape, visible_in(mask, "both_sides", (2, 2)), embedded_BTD)
    place_N = mask.flatten().nonzero().squeeze(-1)
    guess_NV = made.generator.head(made.generator(embedded_BTD, sight, place_N), made.encoder.tokens.weight)
    other = generator(input_ids=ids, attention_mask=mask).logits
    torch.testing.assert_close(guess_NV, other[mask.bool()], atol=ATOL, rtol=0)


def test_replaced_tokens_with_a_head_over_the_vocabulary(tmp_path):
    made = module("replaced_token", objective={"predict": "original"})
    theirs = loaded(chosen(made), made, tmp_path / "model")
    assert type(theirs).__name__ == "BertForMaskedLM"
    ids, mask = batch()
    logits = made.head(made.encoder(ids, sees="both_sides")[-1], made.encoder.tokens.weight)
    other = theirs(input_ids=ids, attention_mask=mask).logits
    torch.testing.assert_close(logits[mask.bool()], other[mask.bool()], atol=ATOL, rtol=0)


TRANSLATIONS = [
    ({}, {}, "RobertaModel", "BertGenerationDecoder"),
    ({"positions": "none"} | SCALED, LINEAR, "RobertaModel", "BertGenerationDecoder"),
    ({"activation": "relu", "positions": "sinusoidal"}, {}, "RobertaModel", "BertGenerationDecoder"),
    (PRE, {}, "XLMRobertaXLModel", "GPT2LMHeadModel"),
    (PRE | {"positions": "none"}, {}, "XLMRobertaXLModel", "GPT2LMHeadModel"),
    (VOITA_2019, LINEAR, "XLMRobertaXLModel", "GPT2LMHeadModel"),
]


@pytest.mark.parametrize(("encoder", "objective", "first", "second"), TRANSLATIONS, ids=str)
def test_encoder_decoders_compute_the_scores_and_the_translations(encoder, objective, first, second, tmp_path):
    made = module("translation", encoder=encoder, objective=objective)
    theirs = loaded(chosen(made), made, tmp_path / "model")
    assert [type(part).__name__ for part in (theirs, theirs.encoder, theirs.decoder)] == [
        *("EncoderDecoderModel", first, second)
    ]
    (source_BT, mask_BT), (target_BU, mask_BU) = batch(), batch(TARGET_V, seed=1)
    layers = made.encoder(source_BT, sees="both_sides")
    hidden_BUD = made.decoder(
        target_BU,
        made.encoder.head_input(layers[-1]),
        sequence_BU=mask_BU,
        source_sequence_BT=mask_BT,
        position_BU=torch.arange(T).expand_as(target_BU),
    )
    inputs = {"input_ids": source_BT, "attention_mask": mask_BT, "output_hidden_states": True}
    output = theirs(**inputs, decoder_input_ids=target_BU, decoder_attention_mask=mask_BU)
    logits_BUV = F.linear(hidden_BUD, made.output_VD)
    torch.testing.assert_close(logits_BUV[mask_BU.bool()], output.logits[mask_BU.bool()], atol=ATOL, rtol=0)
    whole = int((mask_BT.all(-1) & mask_BU.all(-1)).nonzero()[0])
    without_masks = theirs(input_ids=source_BT[[whole]], decoder_input_ids=target_BU[[whole]]).logits
    torch.testing.assert_close(logits_BUV[[whole]], without_masks, atol=ATOL, rtol=0)
    same_states(layers, output.encoder_hidden_states, mask_BT.bool(), head_input=made.encoder.head_input)
    generated = theirs.generate(
        input_ids=source_BT, attention_mask=mask_BT, max_length=T, num_beams=1, do_sample=False
    )
    rows = [[i for i in row if i not in (0, 2, 3)] for row in generated.tolist()]
    assert rows == made.translate(source_BT, max_length=T)


@pytest.mark.parametrize(
    ("encoder", "objective", "name"),
    [
        ({}, {}, "BertLMHeadModel"),
        (ROTARY, {}, "RoFormerForCausalLM"),
        (PRE, LINEAR, "GPT2LMHeadModel"),
        (PRE | ROTARY, LINEAR, "Starcoder2ForCausalLM"),
        (LLAMA, LINEAR, "LlamaForCausalLM"),
        pytest.param(PRE, {}, "XLMRobertaXLForCausalLM", marks=pytest.mark.xfail(strict=True)),
    ],
)
def test_classes_that_are_said_to_continue_texts_do_so(encoder, objective, name, tmp_path):
    """The last case would be said to do so if transformers counted its positions from 1, as in training."""
    made = module("causal_lm", encoder=encoder, objective=objective)
    torch.manual_seed(1)
    for parameter_name, parameter in made.named_parameters():
        is_scale = parameter_name.endswith("norm.weight")
        torch.nn.init.normal_(parameter, mean=float(is_scale), std=0.5 if parameter.ndim == 2 else 0.1)
    theirs = loaded(chosen(made), made, tmp_path / "model")
    assert type(theirs).__name__ == name
    assert (name in CONTINUES) != (name == "XLMRobertaXLForCausalLM")
    for _ in range(5):
        ids_1T = torch.cat([torch.tensor([[START]]), torch.randint(FIRST_WORD_ID, 60, (1, 4))], 1)
        settings = made.run.objective
        hidden_1TD = made.encoder.head_input(made.encoder(ids_1T, sees=settings.sees, window=made.window)[-1])
        logits_V = made.head(hidden_1TD, made.encoder.tokens.weight)[0, -1]
        generated = theirs.generate(
            ids_1T,
            attention_mask=torch.ones_like(ids_1T),
            max_new_tokens=1,
            do_sample=False,
            eos_token_id=None,
            output_logits=True,
            return_dict_in_generate=True,
        )
        torch.testing.assert_close(generated.logits[0][0], logits_V, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("encoder", "expected"),
    [
        ({}, "BertModel"),
        ({"activation": "relu"}, "RobertaModel"),
        (ROTARY, "RoFormerModel"),
        ({"attention_window": 3}, "LongformerModel"),
        (VOITA_2019, "XLMRobertaXLModel"),
        (PRE | {"embedding": {"norm": True}}, "RobertaPreLayerNormModel"),
        (PRE | ROTARY, "EsmModel"),
        (PRE | ROTARY | {"activation": "relu", "attention_window": 2}, "Starcoder2Model"),
        (LLAMA, "EuroBertModel"),
    ],
    ids=str,
)
def test_the_encoder_alone(encoder, expected, tmp_path):
    made = module("translation", encoder=encoder)
    theirs = loaded(chosen(made, "states"), made, tmp_path / "model", "states")
    assert type(theirs).__name__ == expected
    ids, mask = batch()
    output = theirs(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    layers = made.encoder(ids, sees="both_sides")
    same_states(layers, output.hidden_states, mask.bool(), head_input=made.encoder.head_input)
    top_BTD = made.encoder.head_input(layers[-1])
    torch.testing.assert_close(top_BTD[mask.bool()], output.last_hidden_state[mask.bool()], atol=ATOL, rtol=0)


# Counter-examples: a wrong arrangement is noticed ----------------------------------------------------


def transposed(name):
    def spoil(weights, config):
        weights[name] = weights[name].T.contiguous()

    return spoil


def swapped(first, second):
    def spoil(weights, config):
        weights[first], weights[second] = weights[second], weights[first]

    return spoil


def rolled(name, *, by=1, dim=0):
    def spoil(weights, config):
        weights[name] = weights[name].roll(by, dim)

    return spoil


def set_to(**entries):
    def spoil(weights, config):
        config.update(entries)

    return spoil


BLOCK = "encoder.layer.0.attention"


@pytest.mark.parametrize(
    ("encoder", "objective", "spoil"),
    [
        ({}, {}, transposed(f"bert.{BLOCK}.self.query.weight")),
        ({}, {}, swapped(f"bert.{BLOCK}.self.query.weight", f"bert.{BLOCK}.self.key.weight")),
        ({}, {}, swapped("bert.encoder.layer.0.output.LayerNorm.bias", f"bert.{BLOCK}.output.LayerNorm.bias")),
        ({}, {}, set_to(hidden_act="gelu_new")),
        ({}, {}, set_to(layer_norm_eps=1e-2)),
        ({}, {}, set_to(is_decoder=True)),
        ({}, {}, set_to(num_attention_heads=4)),
        (SCALED, {}, rolled("cls.predictions.decoder.weight")),
        ({"activation": "relu"}, {}, rolled("roberta.embeddings.position_embeddings.weight")),
        (ROTARY, {}, rolled(f"roformer.{BLOCK}.self.query.weight")),
        (ROTARY, {}, rolled("roformer.encoder.embed_positions.weight", by=4, dim=1)),
        ({"attention_window": 2}, {}, set_to(attention_window=[6, 6])),
        (PRE, {}, swapped("roberta.encoder.layer.1.LayerNorm.bias", "roberta.encoder.LayerNorm.bias")),
        (PRE | ROTARY, {}, set_to(position_embedding_type="none")),
        (PRE, LINEAR, transposed("transformer.h.0.attn.c_proj.weight")),
        (PRE, LINEAR, rolled("transformer.h.0.attn.c_attn.weight", by=16, dim=1)),
        (PRE, LINEAR, set_to(is_causal=True)),
        (PRE | ROTARY | {"attention_window": 2}, LINEAR, set_to(sliding_window=3)),
        (PRE | ROTARY, LINEAR, set_to(rope_parameters={"rope_type": "default", "rope_theta": 100.0})),
        (LLAMA, LINEAR, swapped("model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight")),
        ({}, LINEAR, set_to(gelu_activation=False)),
    ],
)
def test_a_wrong_arrangement_is_noticed(encoder, objective, spoil, tmp_path):
    made = module("masked_lm", encoder=encoder, objective=objective)
    theirs = loaded(chosen(made), made, tmp_path / "model", spoil=spoil)
    with pytest.raises(AssertionError, match="not close"):
        compare(made, theirs)


# Refusals --------------------------------------------------------------------------------------------

PACKAGE = "read checkpoints/last.safetensors with this package, or train an arm with these settings."
ALONE = "add --encoder to export only the encoder, which a stock class can hold."
NOBODY = "but no stock class of transformers can hold this with the other settings of the run; the nearest,"


@pytest.mark.parametrize(
    ("kind", "encoder", "objective", "sentence"),
    [
        (
            "masked_lm",
            {"positions": "alibi"},
            {},
            f"encoder.positions is alibi, {NOBODY} BertForMaskedLM, needs encoder.positions: learned or "
            f"sinusoidal or none; {PACKAGE}",
        ),
        (
            "causal_lm",
            PRE | {"norm_kind": "rms"},
            {},
            f"encoder.norm_kind is rms, {NOBODY} XLMRobertaXLForCausalLM, needs encoder.norm_kind: layer; "
            f"{PACKAGE}",
        ),
        (
            "masked_lm",
            {"activation": "swiglu"},
            {},
            f"encoder.activation is swiglu, {NOBODY} BertForMaskedLM, needs encoder.activation: gelu; {PACKAGE}",
        ),
        (
            "masked_lm",
            {"embedding": {"norm": False}},
            {},
            f"encoder.embedding.norm is false, {NOBODY} BertForMaskedLM, needs encoder.embedding.norm: true; "
            f"{PACKAGE}",
        ),
        (
            "masked_lm",
            {},
            {"sees": "itself"},
            f"objective.sees is itself, {NOBODY} BertForMaskedLM, needs objective.sees: both_sides or left_only; "
            f"{PACKAGE}",
        ),
        (
            "causal_lm",
            {"attention_window": 2},
            {},
            f"encoder.attention_window is 2, {NOBODY} BertLMHeadModel, needs encoder.attention_window: null; "
            f"{PACKAGE}",
        ),
        (
            "masked_lm",
            {"attention_window": 1},
            {},
            f"encoder.attention_window is 1, {NOBODY} BertForMaskedLM, needs encoder.attention_window: null; "
            f"{PACKAGE}",
        ),
        (
            "masked_lm",
            {"attention_window": 2},
            LINEAR,
            f"objective.head is linear, {NOBODY} LongformerForMaskedLM, needs objective.head: bert; {ALONE}",
        ),
        (
            "masked_lm",
            {"intermediate_size": 40},
            LINEAR,
            f"objective.head is linear, {NOBODY} BertForMaskedLM, needs objective.head: bert; {ALONE}",
        ),
        (
            "translation",
            ROTARY,
            {},
            f"encoder.positions is rotary, {NOBODY} EncoderDecoderModel, needs encoder.positions: learned or "
            f"sinusoidal or none; {ALONE}",
        ),
        (
            "replaced_token",
            PRE,
            {},
            f"encoder.norm is pre and encoder.embedding.norm is false, {NOBODY} ElectraForPreTraining, needs "
            f"encoder.norm: post and encoder.embedding.norm: true; {ALONE}",
        ),
    ],
    ids=str,
)
def test_what_no_stock_class_holds_is_refused_with_a_sentence(kind, encoder, objective, sentence):
    made = module(kind, encoder=encoder, objective=objective)
    assert error_text(ExportError, chosen, made) == f"run: {sentence}"


class Scaled(EncoderSettings):
    """Settings of an encoder that has one setting more, of which the stock classes know nothing."""

    residual_scale: float = 1.0


@pytest.mark.parametrize("output", ["token", "states"])
def test_a_setting_of_the_encoder_that_the_classes_do_not_know_is_held_at_its_default_only(output, monkeypatch):
    monkeypatch.setattr(
        stock_classes, "HELD", stock_classes.HELD | {"encoder.residual_scale": (1.0,)}
    )  # as if it were a field
    made = module("masked_lm")
    plain, scaled = (
        made.run.model_copy(update={"encoder": Scaled(**dict(made.run.encoder), **changed)})
        for changed in ({}, {"residual_scale": 0.5})
    )
    name = stock_classes.choose(STOCKS, plain, output, where="run").classes[output]
    assert error_text(ExportError, stock_classes.choose, STOCKS, scaled, output, where="run") == (
        f"run: encoder.residual_scale is 0.5, {NOBODY} {name}, needs encoder.residual_scale: 1.0; {PACKAGE}"
    )


def test_every_setting_of_encoder_decoder_and_generator_is_held_at_its_default_or_free():
    """A new one needs a place in `FREE` if the classes hold all its values. For decoder and generator, which have
    nothing but sizes, nothing is compared: a setting that is no size has to be refused in `traits`."""
    defaults = stock_classes.by_path(EncoderSettings(), "encoder")
    assert {f"encoder.{name}" for name in EncoderSettings.model_fields} - {"encoder.embedding"} < defaults.keys()
    assert {f"encoder.{name}" for name in stock_classes.FREE} < defaults.keys() < stock_classes.HELD.keys()
    sizes = DecoderSettings.model_fields.keys() | GeneratorSettings.model_fields.keys()
    assert sizes == {"num_hidden_layers", "shrink"}, "refuse the new setting in lightning_modules/export/stock.py"


def test_the_embedding_scale_is_part_of_the_table():
    made = module("masked_lm", encoder={"embedding": {"scale": True}})
    weights = chosen(made).weights(made.state_dict(), made.run, "token")
    table_VD = made.encoder.tokens.weight
    torch.testing.assert_close(weights["bert.embeddings.word_embeddings.weight"], table_VD * math.sqrt(16))
    torch.testing.assert_close(weights["cls.predictions.decoder.weight"], table_VD)
