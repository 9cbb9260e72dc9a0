"""Weights of a run under plain names: one name for each linear map, norm and table, whatever class will hold
it.

The names are `tokens`, `positions`, `segments`, `embedding_norm`, `final_norm`, `blocks.0.query`, ...,
`head.transform` and `output`, each with `.weight` and, if there is one, `.bias`. Stock classes have other
names and arrangements of these parts. The tables here have the names of BERT and of GPT-2; {} stands for the
number of the block.

No torch. Letters: V vocabulary, D width, P positions.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lightning_modules.config import RunSettings

if TYPE_CHECKING:
    from torch import Tensor

Parts = dict[str, "Tensor"]
"""Weights by plain name."""

IN_A_BLOCK = {
    "attention.output": "attention_output",
    "source_attention.query": "source_query",
    "source_attention.output": "source_output",
    "source_attention_norm": "source_norm",
    "attention_norm": "attention_norm",
    "feed_forward.expand": "expand",
    "feed_forward.gate": "gate",
    "feed_forward.contract": "contract",
    "feed_forward_norm": "feed_forward_norm",
}
"""Plain names of the modules in a block, by their names in a checkpoint."""

SIDE_BY_SIDE = {
    "attention.query_key_value": ("query", "key", "value"),
    "source_attention.key_value": ("source_key", "source_value"),
}
"""Plain names of the linear maps that one module of a checkpoint holds together, by the name of the module."""


def stack_parts(state: Mapping[str, "Tensor"], run: RunSettings, *, stem: str = "encoder") -> Parts:
    """Return the parts of the encoder or the decoder: embeddings, blocks, and the norm above all blocks."""
    return embedding_parts(state, run, stem=stem) | block_parts(state, stem=stem)


def embedding_parts(state: Mapping[str, "Tensor"], run: RunSettings, *, stem: str = "encoder") -> Parts:
    """Return the embedding tables of a stack and the norms that stand outside its blocks.

    `tokens` includes the scale and the bias of `encoder.embedding`, so that no stock class needs to know
    them. Sinusoidal positions are a table, as learned ones are. Other kinds of positions have no table.

    Args:
        stem: prefix of the stack in the checkpoint: encoder or decoder.
    """
    settings = run.encoder
    parts = {"tokens.weight": input_tokens(state, run, stem=stem)}
    if f"{stem}.positions.weight" in state:
        parts["positions.weight"] = state[f"{stem}.positions.weight"]
    elif settings.positions == "sinusoidal":
        from lightning_modules.model.encoder import sinusoids  # torch

        table_PD = sinusoids(run.data.max_length, settings.hidden_size)
        parts["positions.weight"] = table_PD.to(parts["tokens.weight"])
    if f"{stem}.segments.weight" in state:
        parts["segments.weight"] = state[f"{stem}.segments.weight"]
    above = "final_norm" if settings.norm == "pre" else "embedding_norm"
    for stored_name, plain in (("embedding_norm", "embedding_norm"), ("norm", above)):
        for kind in ("weight", "bias"):
            if f"{stem}.{stored_name}.{kind}" in state:
                parts[f"{plain}.{kind}"] = state[f"{stem}.{stored_name}.{kind}"]
    return parts


def block_parts(state: Mapping[str, "Tensor"], *, stem: str) -> Parts:
    """Return the parts of the blocks of a stack."""
    parts = {}
    for name, tensor in state.items():
        if name.startswith(f"{stem}.blocks."):
            number, inside = name.removeprefix(f"{stem}.blocks.").split(".", 1)
            module, _, kind = inside.rpartition(".")
            plain = SIDE_BY_SIDE.get(module) or (IN_A_BLOCK[module],)
            for part, piece in zip(plain, tensor.chunk(len(plain)), strict=True):
                parts[f"blocks.{number}.{part}.{kind}"] = piece
    return parts


def input_tokens(state: Mapping[str, "Tensor"], run: RunSettings, *, stem: str) -> "Tensor":
    """Return the table of token embeddings with scale and bias, to which positions are added. Shape VD."""
    tokens_VD = state[f"{stem}.tokens.weight"]
    if run.encoder.embedding.scale:
        tokens_VD = tokens_VD * run.encoder.hidden_size**0.5
    if run.encoder.embedding.bias:
        tokens_VD = tokens_VD + state[f"{stem}.embedding_bias"]
    return tokens_VD


def is_tied(run: RunSettings) -> bool:
    """Return whether the same table reads tokens and scores them, so that a stock class can hold it once."""
    embedding = run.encoder.embedding
    return getattr(run.objective, "head", "bert") != "linear" and not (embedding.scale or embedding.bias)


EXPORTED = "pretraining_ablations"
"""Entry of config.json in which `ablate export` records the run and the step of the model."""


def unscored_ids(run: RunSettings) -> tuple[int, ...]:
    """Return the ids to which the head over the vocabulary gives no probability. The folder of GPT-2 has no row
    for these special ids: they are in no text, and must not be in the softmax."""
    has_gpt2_head = getattr(run.objective, "head", "bert") == "tied"
    return run.init.unscored if run.init is not None and has_gpt2_head else ()


def head_parts(state: Mapping[str, "Tensor"], *, stem: str = "") -> Parts:
    """Return the parts of the head over the vocabulary: `output` and, for BERT's head, `head.transform` and
    `head.norm`. A linear or tied head gets a bias of zeros, since some stock classes need one.

    Args:
        stem: beginning of the names of the head in the checkpoint, as in `generator.`.
    """
    if f"{stem}head.transform.weight" not in state:
        output_VD = state.get(f"{stem}head.weight", state["encoder.tokens.weight"])
        return {"output.weight": output_VD, "output.bias": output_VD.new_zeros(len(output_VD))}
    return {
        f"head.{part}.{kind}": state[f"{stem}head.{part}.{kind}"]
        for part in ("transform", "norm")
        for kind in ("weight", "bias")
    } | {"output.weight": state["encoder.tokens.weight"], "output.bias": state[f"{stem}head.bias"]}


def decoder_output_parts(state: Mapping[str, "Tensor"]) -> Parts:
    """Return the part that scores the tokens of a translation, with a bias of zeros."""
    output_VD = state.get("output.weight", state["decoder.tokens.weight"])
    return {"output.weight": output_VD, "output.bias": output_VD.new_zeros(len(output_VD))}


BERT_BODY = {
    "tokens": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "segments": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "blocks.{}.query": "encoder.layer.{}.attention.self.query",
    "blocks.{}.key": "encoder.layer.{}.attention.self.key",
    "blocks.{}.value": "encoder.layer.{}.attention.self.value",
    "blocks.{}.attention_output": "encoder.layer.{}.attention.output.dense",
    "blocks.{}.attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
    "blocks.{}.expand": "encoder.layer.{}.intermediate.dense",
    "blocks.{}.contract": "encoder.layer.{}.output.dense",
    "blocks.{}.feed_forward_norm": "encoder.layer.{}.output.LayerNorm",
}
BERT_HEAD = {
    "head.transform": "cls.predictions.transform.dense",
    "head.norm": "cls.predictions.transform.LayerNorm",
    "output": "cls.predictions.decoder",
    "output.bias": "cls.predictions.bias",
}

GPT2_BODY = {
    "tokens": "wte",
    "positions": "wpe",
    "blocks.{}.attention_norm": "h.{}.ln_1",
    "blocks.{}.query_key_value": "h.{}.attn.c_attn",
    "blocks.{}.attention_output": "h.{}.attn.c_proj",
    "blocks.{}.feed_forward_norm": "h.{}.ln_2",
    "blocks.{}.expand": "h.{}.mlp.c_fc",
    "blocks.{}.contract": "h.{}.mlp.c_proj",
    "final_norm": "ln_f",
    "output.weight": "lm_head.weight",
}
