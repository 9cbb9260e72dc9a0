"""Stock classes with norms before each sub-layer and once more above the top layer.

Letters: V vocabulary, D width, K pairs of numbers of a head.
"""

from collections.abc import Mapping
from typing import Any

import torch

from lightning_modules.config import RunSettings
from lightning_modules.export.post_norm import (
    ROBERTA_HEAD,
    bert_config,
    roberta_config,
    with_positions,
    with_shifted_tables,
)
from lightning_modules.export.stock import ANY, Decoder, Stock, decoder_config, sees_left, window_of
from lightning_modules.model.parts import BERT_BODY, GPT2_BODY, Parts

XLM_ROBERTA_XL = Stock(
    model_type="xlm-roberta-xl",
    classes={
        "token": "XLMRobertaXLForMaskedLM",
        "next_token": "XLMRobertaXLForCausalLM",
        "states": "XLMRobertaXLModel",
    },
    holds={"encoder.norm": ("pre",), "encoder.embedding.norm": (False,)},
    config=roberta_config,
    names={name: new for name, new in BERT_BODY.items() if name != "embedding_norm"}
    | ROBERTA_HEAD
    | {
        "blocks.{}.attention_norm": "encoder.layer.{}.attention.self_attn_layer_norm",
        "blocks.{}.feed_forward_norm": "encoder.layer.{}.LayerNorm",
        "final_norm": "encoder.LayerNorm",
    },
    prefix="roberta.",
    arrange=with_shifted_tables,
)

ROBERTA_PRE_NORM = Stock(
    model_type="roberta-prelayernorm",
    classes={
        "token": "RobertaPreLayerNormForMaskedLM",
        "next_token": "RobertaPreLayerNormForCausalLM",
        "states": "RobertaPreLayerNormModel",
    },
    holds={"encoder.norm": ("pre",)},
    config=roberta_config,
    names=BERT_BODY
    | ROBERTA_HEAD
    | {
        "blocks.{}.attention_norm": "encoder.layer.{}.attention.LayerNorm",
        "blocks.{}.feed_forward_norm": "encoder.layer.{}.intermediate.LayerNorm",
        "final_norm": "LayerNorm",
    },
    prefix="roberta_prelayernorm.",
    arrange=with_shifted_tables,
)


def esm_config(run: RunSettings) -> dict[str, Any]:
    """Return BERT's entries of config.json, with those for the norms and positions of ESM."""
    return bert_config(run) | {
        "position_embedding_type": "rotary",
        "emb_layer_norm_before": run.encoder.embedding.norm,
        "token_dropout": False,
    }


def with_rates(parts: Parts, run: RunSettings) -> Parts:
    """Return the parts with the rates at which angles grow with the position, which are weights of ESM."""
    head_width = run.encoder.hidden_size // run.encoder.num_attention_heads
    rate_K = 1e4 ** (-torch.arange(0, head_width, 2, dtype=torch.float32) / head_width)
    return parts | {"angles.inv_freq": rate_K}


ESM = Stock(
    model_type="esm",
    classes={"token": "EsmForMaskedLM", "next_token": "EsmForMaskedLM", "states": "EsmModel"},
    holds={
        "encoder.norm": ("pre",),
        "encoder.embedding.norm": ANY,
        "encoder.positions": ("rotary",),
        "encoder.activation": ("gelu",),
        "training.input_format": ("any",),
    },
    config=esm_config,
    names={name: new for name, new in BERT_BODY.items() if name not in ("positions", "segments")}
    | {name: new for name, new in ROBERTA_HEAD.items() if name != "output"}
    | {
        "output.weight": "lm_head.decoder.weight",
        "embedding_norm": "embeddings.layer_norm",
        "blocks.{}.attention_norm": "encoder.layer.{}.attention.LayerNorm",
        "blocks.{}.feed_forward_norm": "encoder.layer.{}.LayerNorm",
        "final_norm": "encoder.emb_layer_norm_after",
        "angles": "rotary_embeddings",
    },
    prefix="esm.",
    arrange=with_rates,
)

LINEAR_HEAD: Mapping[str, tuple[Any, ...]] = {
    "encoder.norm": ("pre",),
    "encoder.embedding.norm": (False,),
    "objective.head": ("linear",),
    "training.input_format": ("any",),
}
"""Held values that the classes for causal LM share."""


def sight_config(run: RunSettings) -> dict[str, Any]:
    """Return the entry of config.json that makes a class for causal LM see both sides; empty if the run sees
    only the left."""
    return {} if sees_left(run) else {"is_causal": False}


def gpt2_config(run: RunSettings) -> dict[str, Any]:
    """Return the entries of config.json under GPT-2's names."""
    encoder = run.encoder
    return {
        "n_embd": encoder.hidden_size,
        "n_layer": encoder.num_hidden_layers,
        "n_head": encoder.num_attention_heads,
        "n_inner": encoder.intermediate_size,
        "activation_function": "gelu_new" if encoder.activation == "gelu_tanh" else encoder.activation,
        "n_positions": run.data.max_length,
        "layer_norm_epsilon": encoder.layer_norm_epsilon,
        "embd_pdrop": encoder.dropout,
        "resid_pdrop": encoder.dropout,
        "attn_pdrop": encoder.attention_dropout,
        **sight_config(run),
    }


def gpt2_parts(parts: Parts, run: RunSettings) -> Parts:
    """Return the parts as GPT-2 arranges them. Maps of blocks are transposed, and queries, keys and values
    stand side by side."""
    arranged = with_positions(parts, run)
    together = {"query_key_value": ("query", "key", "value"), "source_key_value": ("source_key", "source_value")}
    blocks = {name.split(".")[1] for name in parts if name.startswith("blocks.")}
    for i in blocks:
        for whole, pieces in together.items():
            for kind in ("weight", "bias"):
                names = [f"blocks.{i}.{piece}.{kind}" for piece in pieces]
                if names[0] in arranged:
                    arranged[f"blocks.{i}.{whole}.{kind}"] = torch.cat([arranged.pop(name) for name in names])
    return {
        name: part.T if name.startswith("blocks.") and part.ndim == 2 else part for name, part in arranged.items()
    }


GPT2 = Stock(
    model_type="gpt2",
    classes={"token": "GPT2LMHeadModel", "next_token": "GPT2LMHeadModel"},
    holds={
        **LINEAR_HEAD,
        "encoder.activation": ("gelu", "gelu_tanh", "relu"),
        "objective.head": ("linear", "tied"),
    },
    config=gpt2_config,
    names=GPT2_BODY,
    prefix="transformer.",
    arrange=gpt2_parts,
)


GPT2_DECODER = Decoder(
    model_type="gpt2",
    classes={"target_text": "GPT2LMHeadModel"},
    holds={},
    config=lambda run: decoder_config(gpt2_config(run), run, layers="n_layer"),
    names=GPT2_BODY
    | {
        "blocks.{}.source_query": "h.{}.crossattention.q_attn",
        "blocks.{}.source_key_value": "h.{}.crossattention.c_attn",
        "blocks.{}.source_output": "h.{}.crossattention.c_proj",
        "blocks.{}.source_norm": "h.{}.ln_cross_attn",
    },
    prefix="transformer.",
    arrange=gpt2_parts,
)


def rotary_config(run: RunSettings) -> dict[str, Any]:
    """Return the entries of config.json that Starcoder2, Llama and EuroBERT share."""
    encoder = run.encoder
    return {
        "hidden_size": encoder.hidden_size,
        "num_hidden_layers": encoder.num_hidden_layers,
        "num_attention_heads": encoder.num_attention_heads,
        "num_key_value_heads": encoder.num_attention_heads,
        "intermediate_size": encoder.intermediate_size,
        "max_position_embeddings": run.data.max_length,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "attention_dropout": encoder.attention_dropout,
    }


def starcoder2_config(run: RunSettings) -> dict[str, Any]:
    """Return the entries of config.json under Starcoder2's names. Its window counts the token itself if the
    class is causal, and does not if it sees both sides."""
    encoder, window = run.encoder, window_of(run)
    return {
        **rotary_config(run),
        "hidden_act": encoder.activation,
        "norm_epsilon": encoder.layer_norm_epsilon,
        "residual_dropout": encoder.dropout,
        "embedding_dropout": encoder.dropout,
        "use_bias": True,
        "sliding_window": window if window is None else window + sees_left(run),
        **sight_config(run),
    }


DECODER_BODY = {
    "tokens": "embed_tokens",
    "blocks.{}.attention_norm": "layers.{}.input_layernorm",
    "blocks.{}.query": "layers.{}.self_attn.q_proj",
    "blocks.{}.key": "layers.{}.self_attn.k_proj",
    "blocks.{}.value": "layers.{}.self_attn.v_proj",
    "blocks.{}.attention_output": "layers.{}.self_attn.o_proj",
    "blocks.{}.feed_forward_norm": "layers.{}.post_attention_layernorm",
    "final_norm": "norm",
}

STARCODER2 = Stock(
    model_type="starcoder2",
    classes={
        "token": "Starcoder2ForCausalLM",
        "next_token": "Starcoder2ForCausalLM",
        "states": "Starcoder2Model",
    },
    holds={**LINEAR_HEAD, "encoder.positions": ("rotary",), "encoder.attention_window": ANY},
    config=starcoder2_config,
    names=DECODER_BODY
    | {
        "blocks.{}.expand": "layers.{}.mlp.c_fc",
        "blocks.{}.contract": "layers.{}.mlp.c_proj",
        "output.weight": "lm_head.weight",
    },
    prefix="model.",
)


def llama_config(run: RunSettings) -> dict[str, Any]:
    """Return the entries of config.json under the names of Llama and EuroBERT."""
    return {
        **rotary_config(run),
        "hidden_act": "silu",
        "rms_norm_eps": run.encoder.layer_norm_epsilon,
        "attention_bias": True,
        "mlp_bias": True,
    }


LLAMA_BODY = DECODER_BODY | {
    "blocks.{}.gate": "layers.{}.mlp.gate_proj",
    "blocks.{}.expand": "layers.{}.mlp.up_proj",
    "blocks.{}.contract": "layers.{}.mlp.down_proj",
}
LLAMA_HOLDS: Mapping[str, tuple[Any, ...]] = {
    **LINEAR_HEAD,
    "encoder.norm_kind": ("rms",),
    "encoder.positions": ("rotary",),
    "encoder.activation": ("swiglu",),
}

LLAMA = Stock(
    model_type="llama",
    classes={"next_token": "LlamaForCausalLM", "states": "LlamaModel"},
    holds={**LLAMA_HOLDS, "objective.sees": ("left_only",)},
    config=llama_config,
    names={**LLAMA_BODY, "output.weight": "lm_head.weight"},
    prefix="model.",
)

EUROBERT = Stock(
    model_type="eurobert",
    classes={"token": "EuroBertForMaskedLM", "states": "EuroBertModel"},
    holds={**LLAMA_HOLDS, "objective.sees": ("both_sides",)},
    config=llama_config,
    names={**LLAMA_BODY, "output": "lm_head"},
    prefix="model.",
)

PRE_NORM = (XLM_ROBERTA_XL, ROBERTA_PRE_NORM, ESM, GPT2, STARCODER2, LLAMA, EUROBERT)
"""Pre-norm classes without the decoder. The first one that holds a run is taken."""
