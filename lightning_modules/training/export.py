"""A trained run as a Hugging Face folder: BERT's classes load it, and compute the same states and logits."""

import json
from pathlib import Path
from typing import Any, get_args

from safetensors.torch import save
from tokenizers import AddedToken, Tokenizer
from tokenizers.pre_tokenizers import ByteLevel, Metaspace, Sequence
from tokenizers.processors import TemplateProcessing
from torch import Tensor

from lightning_modules.config import RunSettings
from lightning_modules.config.encoder import EmbeddingSettings
from lightning_modules.config.objectives import OBJECTIVES
from lightning_modules.errors import AblationsError
from lightning_modules.files import atomic, make_folder, write_json
from lightning_modules.model.encoder import sinusoids
from lightning_modules.training.checkpoint import read_checkpoint
from lightning_modules.training.run_directory import RunDirectory
from lightning_modules.vocabulary import END, MASK, PAD, SPECIAL_TOKENS, START

EXPORTED = [get_args(each.model_fields["kind"].annotation)[0] for each in OBJECTIVES if each.stock_class]
"""Objectives that a stock class can hold."""

BLOCK_NAMES = {
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.expand": "intermediate.dense",
    "feed_forward.contract": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
"""Our names inside a block, and BERT's."""


class ExportError(AblationsError, ValueError):
    """A run that no stock class can hold."""


def export(run_dir: Path, folder: Path) -> str:
    """Write config.json, model.safetensors and the tokenizer to a folder; returns the class that loads it.

    Of a run of translation or replaced tokens the encoder is written. BERT's pooler has no counterpart and is left
    to its own initial weights; segment embeddings are zeros where the run has none.

    Raises:
        ExportError: a run with something that BERT's classes do not have: `norm: pre`, `norm_kind: rms`, positions
            inside attention, a window of attention, another layer 0, activation or head than BERT's, a narrower
            sight than both sides or left, or an objective that is no Transformer's or has two streams.
        CheckpointError: the run has no checkpoint that can be read.
        FilesError: the folder cannot be written.
    """
    directory = RunDirectory(run_dir)
    run = directory.settings()
    for key, value, *held in (
        ("encoder.norm", run.encoder.norm, "post"),
        ("encoder.norm_kind", run.encoder.norm_kind, "layer"),
        ("encoder.positions", run.encoder.positions, "learned", "sinusoidal", "none"),
        ("encoder.attention_window", run.encoder.attention_window, None),
        ("encoder.embedding", run.encoder.embedding, EmbeddingSettings()),
        ("encoder.activation", run.encoder.activation, "gelu", "relu"),
        ("objective.head", getattr(run.objective, "head", "bert"), "bert"),
    ):
        if value not in (*held, "tied"):
            raise ExportError(
                f"{run_dir}: {key} is {_written(value)}, which BERT's classes cannot hold; only runs with "
                f"{key.rpartition('.')[2]}: {' or '.join(map(_written, held))} are exported."
            )
    if run.objective.stock_class is None:
        raise ExportError(
            f"{run_dir}: objective.kind is {run.objective.kind}, which BERT's classes cannot compute; runs of "
            f"{', '.join(EXPORTED)} are exported."
        )
    if run.objective.sees not in ("both_sides", "left_only"):
        raise ExportError(
            f"{run_dir}: objective.sees is {run.objective.sees}, which BERT's classes cannot hold; only runs "
            f"that see both_sides or left_only are exported."
        )
    state = read_checkpoint(directory.last_checkpoint)["state_dict"]
    tensors = bert_state(state, run)
    make_folder(folder)
    with atomic(folder / "model.safetensors") as temporary:
        temporary.write_bytes(save(tensors, metadata={"format": "pt"}))
    write_json(folder / "config.json", bert_config(run, vocab_size=state["encoder.tokens.weight"].shape[0]))
    store = directory.path.absolute().parent.parent / "tokens" / directory.description()["tokens"]
    write_tokenizer(store / "tokenizer.json", folder, max_length=run.data.max_length)
    return run.objective.stock_class


def _written(value: str | int | EmbeddingSettings | None) -> str:
    """Return a setting as a spec has it."""
    plain = value.model_dump() if isinstance(value, EmbeddingSettings) else value
    return json.dumps(plain).replace('"', "")


def bert_config(run: RunSettings, *, vocab_size: int) -> dict[str, Any]:
    """Return the config.json of the class that loads the run."""
    encoder = run.encoder
    return {
        "model_type": "bert",
        "architectures": [run.objective.stock_class],
        "vocab_size": vocab_size,
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
        "pad_token_id": PAD,
        "bos_token_id": START,
        "eos_token_id": END,
        "is_decoder": run.objective.sees == "left_only",
        "tie_word_embeddings": True,
    }


def bert_state(state: dict[str, Tensor], run: RunSettings) -> dict[str, Tensor]:
    """Return the weights under the names that BERT's classes give them."""
    has_head = run.objective.stock_class != "BertModel"
    prefix = "bert." if has_head else ""
    words = state["encoder.tokens.weight"]
    positions = state.get("encoder.positions.weight", words.new_zeros(run.data.max_length, words.shape[1]))
    if run.encoder.positions == "sinusoidal":
        positions = sinusoids(run.data.max_length, words.shape[1]).to(words)
    named = {
        f"{prefix}embeddings.word_embeddings.weight": words,
        f"{prefix}embeddings.position_embeddings.weight": positions,
        f"{prefix}embeddings.token_type_embeddings.weight": state.get(
            "encoder.segments.weight", words.new_zeros(2, words.shape[1])
        ),
    }
    for kind in ("weight", "bias"):
        named[f"{prefix}embeddings.LayerNorm.{kind}"] = state[f"encoder.norm.{kind}"]
        for i in range(run.encoder.num_hidden_layers):
            ours, theirs = f"encoder.blocks.{i}", f"{prefix}encoder.layer.{i}"
            for name, bert_name in BLOCK_NAMES.items():
                named[f"{theirs}.{bert_name}.{kind}"] = state[f"{ours}.{name}.{kind}"]
            parts = state[f"{ours}.attention.query_key_value.{kind}"].chunk(3)
            for name, part in zip(("query", "key", "value"), parts, strict=True):
                named[f"{theirs}.attention.self.{name}.{kind}"] = part
        if has_head:
            named[f"cls.predictions.transform.dense.{kind}"] = state[f"head.transform.{kind}"]
            named[f"cls.predictions.transform.LayerNorm.{kind}"] = state[f"head.norm.{kind}"]
    if has_head:
        named["cls.predictions.bias"] = state["head.bias"]
    return {name: tensor.contiguous() for name, tensor in named.items()}


def write_tokenizer(source: Path, folder: Path, *, max_length: int) -> None:
    """Write our tokenizer as one that knows the special tokens where they stand in a text.

    All other text gets the ids that it gets in training. The mask swallows the space before it, as RoBERTa's does,
    and what stands behind the mask gets no space of its own: the pieces around the mask are those that they are
    around a word.
    """
    tokenizer = Tokenizer.from_file(str(source))
    # ByteLevel would put a space before all that follows a special token; Metaspace puts one before the text.
    tokenizer.pre_tokenizer = Sequence(
        [Metaspace(replacement=" ", prepend_scheme="first", split=False), ByteLevel(add_prefix_space=False)]
    )
    special = [
        AddedToken(name, lstrip=i == MASK, normalized=False, special=True) for i, name in enumerate(SPECIAL_TOKENS)
    ]
    tokenizer.add_special_tokens(special)
    start, end = SPECIAL_TOKENS[START], SPECIAL_TOKENS[END]
    tokenizer.post_processor = TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} $B:1 {end}:1",
        special_tokens=[(start, START), (end, END)],
    )
    written = json.loads(tokenizer.to_str())
    with atomic(folder / "tokenizer.json") as temporary:
        temporary.write_text(json.dumps(written, ensure_ascii=False), encoding="utf-8")
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": max_length,
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        }
        | {"added_tokens_decoder": {str(token.pop("id")): token for token in written["added_tokens"]}}
        | dict(zip(names, SPECIAL_TOKENS, strict=True)),
    )
