"""Stock classes with norms after each residual sum, as in BERT.

Letters: V vocabulary, D width, H heads, W width of a head, P positions.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightning_modules.config import ReplacedTokenSettings, RunSettings
from lightning_modules.config.objectives import StockOutput, generator_shape
from lightning_modules.export.stock import (
    TWO_OR_MORE,
    WIDE,
    Decoder,
    State,
    Stock,
    decoder_config,
    sees_left,
    window_of,
)
from lightning_modules.model.attention import turn
from lightning_modules.model.parts import BERT_BODY, BERT_HEAD, Parts, block_parts, embedding_parts, head_parts

ROBERTA_HEAD = {
    "head.transform": "lm_head.dense",
    "head.norm": "lm_head.layer_norm",
    "output": "lm_head.decoder",
    "output.bias": "lm_head.bias",
}


def bert_config(run: RunSettings) -> dict[str, Any]:
    """Return the entries of config.json that BERT and its descendants share."""
    encoder = run.encoder
    return {
        "hidden_size": encoder.hidden_size,
        "num_hidden_layers": encoder.num_hidden_layers,
        "num_attention_heads": encoder.num_attention_heads,
        "intermediate_size": encoder.intermediate_size,
        "hidden_act": encoder.activation,
        "hidden_dropout_prob": encoder.dropout,
        "attention_probs_dropout_prob": encoder.attention_dropout,
        "max_position_embeddings": run.data.max_length,
        "type_vocab_size": 2,
        "layer_norm_eps": encoder.layer_norm_epsilon,
        "is_decoder": sees_left(run),
    }


def roberta_config(run: RunSettings) -> dict[str, Any]:
    """Return BERT's entries with one position more: RoBERTa counts from 1, as padding has position 0."""
    return bert_config(run) | {"max_position_embeddings": run.data.max_length + 1}


def with_tables(parts: Parts, run: RunSettings) -> Parts:
    """Return the parts with tables of positions and segments. Tables that the run does not have are zeros."""
    width = run.encoder.hidden_size
    tokens_VD = parts["tokens.weight"]
    return {
        "positions.weight": tokens_VD.new_zeros(run.data.max_length, width),
        "segments.weight": tokens_VD.new_zeros(2, width),
    } | parts


def with_shifted_tables(parts: Parts, run: RunSettings) -> Parts:
    """Return the parts with tables of positions and segments, and with a first row of zeros for the position
    of padding."""
    parts = with_tables(parts, run)
    positions_PD = parts["positions.weight"]
    return parts | {"positions.weight": torch.cat([torch.zeros_like(positions_PD[:1]), positions_PD])}


@dataclass(frozen=True)
class Bert(Stock):
    """Stock classes of BERT. The class for two losses also has a head for pairs of segments."""

    def head_weights(self, state: State, run: RunSettings, output: StockOutput) -> dict[str, Tensor]:
        """Return the weights of the heads. The class has two scores of a pair: the text has this pair, or it
        does not. A run has one score, the difference of the two, so the second score has zeros as weights."""
        weights = super().head_weights(state, run, output)
        if output != "token_and_pair":
            return weights
        yes_1D, bias_1 = state["pair_head.output.weight"], state["pair_head.output.bias"]
        return weights | {
            "bert.pooler.dense.weight": state["pair_head.transform.weight"].clone(),
            "bert.pooler.dense.bias": state["pair_head.transform.bias"].clone(),
            "cls.seq_relationship.weight": torch.cat([yes_1D, torch.zeros_like(yes_1D)]),
            "cls.seq_relationship.bias": torch.cat([bias_1, torch.zeros_like(bias_1)]),
        }


BERT = Bert(
    model_type="bert",
    classes={
        "token": "BertForMaskedLM",
        "next_token": "BertLMHeadModel",
        "token_and_pair": "BertForPreTraining",
        "states": "BertModel",
    },
    # These classes use the activation of the blocks in the head too. A run always has GELU there.
    holds={"encoder.activation": ("gelu",)},
    config=bert_config,
    names=BERT_BODY | BERT_HEAD,
    prefix="bert.",
    arrange=with_tables,
)

ROBERTA = Stock(
    model_type="roberta",
    classes={"token": "RobertaForMaskedLM", "next_token": "RobertaForCausalLM", "states": "RobertaModel"},
    holds={},
    config=roberta_config,
    names=BERT_BODY | ROBERTA_HEAD,
    prefix="roberta.",
    arrange=with_shifted_tables,
)


def longformer_config(run: RunSettings) -> dict[str, Any]:
    """Return RoBERTa's entries of config.json with the width of the window, both sides of a token together."""
    window = window_of(run)
    assert window is not None
    return roberta_config(run) | {"attention_window": [2 * window] * run.encoder.num_hidden_layers}


def with_global_maps(parts: Parts, run: RunSettings) -> Parts:
    """Return the parts with maps for global attention: copies, since no token of a run has that attention."""
    parts = with_shifted_tables(parts, run)
    copies = {}
    for name, part in parts.items():
        module, _, kind = name.rpartition(".")
        if module.endswith((".query", ".key", ".value")):
            copies[f"{module}_global.{kind}"] = part
    return parts | copies


LONGFORMER = Stock(
    model_type="longformer",
    classes={"token": "LongformerForMaskedLM", "states": "LongformerModel"},
    # The class cannot compute a window of one token to either side.
    holds={"encoder.attention_window": TWO_OR_MORE, "objective.sees": ("both_sides",)},
    config=longformer_config,
    names=BERT_BODY
    | ROBERTA_HEAD
    | {
        f"blocks.{{}}.{part}_global": f"encoder.layer.{{}}.attention.self.{part}_global"
        for part in ("query", "key", "value")
    },
    prefix="longformer.",
    arrange=with_global_maps,
)


def interleaved(parts: Parts, run: RunSettings) -> Parts:
    """Return the parts with queries and keys in RoFormer's order, and with its table of angles.

    In RoFormer the numbers 2k and 2k + 1 of a head are a pair; here k and k + W / 2 are. The rows of the maps
    change places, and the products of queries and keys stay the same.
    """
    encoder = run.encoder
    heads, head_width = encoder.num_attention_heads, encoder.hidden_size // encoder.num_attention_heads
    tables = with_tables(parts, run)
    del tables["positions.weight"]
    for name, part in tables.items():
        if name.rpartition(".")[0].endswith((".query", ".key")):
            split = part.unflatten(0, (heads, 2, head_width // 2))
            tables[name] = split.transpose(1, 2).flatten(0, 2)
    cosine, sine = turn(torch.arange(run.data.max_length), width=head_width, dtype=torch.float64)
    angles_PW = torch.cat([sine, cosine], -1).flatten(1)
    return tables | {"angles.weight": angles_PW.to(tables["tokens.weight"])}


ROFORMER = Stock(
    model_type="roformer",
    classes={"token": "RoFormerForMaskedLM", "next_token": "RoFormerForCausalLM", "states": "RoFormerModel"},
    holds={"encoder.positions": ("rotary",), "encoder.activation": ("gelu",)},
    config=lambda run: bert_config(run) | {"embedding_size": run.encoder.hidden_size, "rotary_value": False},
    names={name: new for name, new in BERT_BODY.items() if name != "positions"}
    | BERT_HEAD
    | {"angles": "encoder.embed_positions"},
    prefix="roformer.",
    arrange=interleaved,
)


def xlm_config(run: RunSettings) -> dict[str, Any]:
    """Return the entries of config.json under XLM's names."""
    encoder = run.encoder
    return {
        "emb_dim": encoder.hidden_size,
        "n_layers": encoder.num_hidden_layers,
        "n_heads": encoder.num_attention_heads,
        "dropout": encoder.dropout,
        "attention_dropout": encoder.attention_dropout,
        "gelu_activation": encoder.activation == "gelu",
        "sinusoidal_embeddings": False,
        "causal": sees_left(run),
        "n_langs": 1,
        "use_lang_emb": False,
        "max_position_embeddings": run.data.max_length,
        "layer_norm_eps": encoder.layer_norm_epsilon,
    }


def with_positions(parts: Parts, run: RunSettings) -> Parts:
    """Return the parts without segments and with a table of positions, which is zeros if the run has none."""
    parts = with_tables(parts, run)
    del parts["segments.weight"]
    return parts


XLM = Stock(
    model_type="xlm",
    classes={"token": "XLMWithLMHeadModel", "next_token": "XLMWithLMHeadModel"},
    holds={
        "objective.head": ("linear",),
        "encoder.intermediate_size": (WIDE,),
        "training.input_format": ("any",),
    },
    config=xlm_config,
    names={
        "tokens": "embeddings",
        "positions": "position_embeddings",
        "embedding_norm": "layer_norm_emb",
        "blocks.{}.query": "attentions.{}.q_lin",
        "blocks.{}.key": "attentions.{}.k_lin",
        "blocks.{}.value": "attentions.{}.v_lin",
        "blocks.{}.attention_output": "attentions.{}.out_lin",
        "blocks.{}.attention_norm": "layer_norm1.{}",
        "blocks.{}.expand": "ffns.{}.lin1",
        "blocks.{}.contract": "ffns.{}.lin2",
        "blocks.{}.feed_forward_norm": "layer_norm2.{}",
        "output": "pred_layer.proj",
    },
    prefix="transformer.",
    arrange=with_positions,
)


@dataclass(frozen=True)
class Electra(Stock):
    """Stock class of ELECTRA's discriminator."""

    def head_weights(self, state: State, run: RunSettings, output: StockOutput) -> dict[str, Tensor]:
        """Return the weights of the head that tells replaced tokens from original ones."""
        return {
            f"discriminator_predictions.{new}.{kind}": state[f"head.{name}.{kind}"].clone()
            for name, new in (("transform", "dense"), ("output", "dense_prediction"))
            for kind in ("weight", "bias")
        }


ELECTRA = Electra(
    model_type="electra",
    classes={"replaced": "ElectraForPreTraining"},
    holds={"encoder.activation": ("gelu",), "objective.sees": ("both_sides",)},
    config=lambda run: bert_config(run) | {"embedding_size": run.encoder.hidden_size},
    names=BERT_BODY,
    prefix="electra.",
    arrange=with_tables,
)


@dataclass(frozen=True)
class ElectraGenerator(Stock):
    """Stock class of ELECTRA's generator: narrow blocks with their own head, on the discriminator's embeddings."""

    def body_parts(self, state: State, run: RunSettings) -> Parts:
        """Return the parts of embeddings, projection and narrow blocks."""
        parts = embedding_parts(state, run) | block_parts(state, stem="generator")
        return parts | {f"project.{kind}": state[f"generator.project.{kind}"] for kind in ("weight", "bias")}

    def head_weights(self, state: State, run: RunSettings, output: StockOutput) -> dict[str, Tensor]:
        """Return the weights of the generator's head."""
        return self.named_head(head_parts(state, stem="generator."), run)


def generator_config(run: RunSettings) -> dict[str, Any]:
    """Return the generator's entries of config.json."""
    assert isinstance(run.objective, ReplacedTokenSettings)
    shape = generator_shape(run.encoder, run.objective.generator)
    narrow = run.model_copy(update={"encoder": shape})
    return bert_config(narrow) | {"embedding_size": run.encoder.hidden_size}


ELECTRA_GENERATOR = ElectraGenerator(
    model_type="electra",
    classes={"token": "ElectraForMaskedLM"},
    holds={"objective.sees": ("both_sides",)},
    config=generator_config,
    names=BERT_BODY
    | {
        "project": "embeddings_project",
        "head.transform": "generator_predictions.dense",
        "head.norm": "generator_predictions.LayerNorm",
        "output": "generator_lm_head",
    },
    prefix="electra.",
    arrange=with_tables,
)
"""Class for the generator of replaced token detection, if it is narrower than the encoder. At equal widths
the class has no projection."""

BERT_GENERATION = Decoder(
    model_type="bert-generation",
    classes={"target_text": "BertGenerationDecoder"},
    holds={},
    config=lambda run: decoder_config(bert_config(run), run, layers="num_hidden_layers"),
    names={name: new for name, new in BERT_BODY.items() if name != "segments"}
    | {
        "blocks.{}.source_query": "encoder.layer.{}.crossattention.self.query",
        "blocks.{}.source_key": "encoder.layer.{}.crossattention.self.key",
        "blocks.{}.source_value": "encoder.layer.{}.crossattention.self.value",
        "blocks.{}.source_output": "encoder.layer.{}.crossattention.output.dense",
        "blocks.{}.source_norm": "encoder.layer.{}.crossattention.output.LayerNorm",
        "output": "lm_head.decoder",
        "output.bias": "lm_head.bias",
    },
    prefix="bert.",
    arrange=with_positions,
)

POST_NORM = (BERT, ROBERTA, LONGFORMER, ROFORMER, XLM, ELECTRA)
"""Post-norm classes without generator and decoder. The first one that holds a run is taken."""
