"""A local Hugging Face folder as the start of a run: the settings that follow from it, and what it lacks.

This module needs no torch. From the weights it reads only names, shapes and a hash over their bytes.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from lightning_modules.config import PAIR_FORMATS, EncoderSettings, MaskedLMSettings, RunSettings
from lightning_modules.config.encoder import EmbeddingSettings
from lightning_modules.config.run import UNSCORED_IDS, HuggingFaceInit
from lightning_modules.data.tokenizer import MASK, FolderTokenizer, content_of, read_tokenizer
from lightning_modules.errors import DataError
from lightning_modules.files import read_file, sha256
from lightning_modules.model.parts import BERT_BODY, BERT_HEAD, EXPORTED, GPT2_BODY

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

UNREADABLE = (OSError, ValueError, TypeError, AttributeError, RecursionError)
"""Errors of reading JSON that is damaged, too deep, or has another form."""

FREE = frozenset({"dropout", "attention_dropout", "feed_forward_dropout", "initialisation"})
"""Settings of the encoder that a spec may give beside a folder. They change no shape and no evaluated state."""


class Architecture(NamedTuple):
    """Model type that the encoder can hold."""

    name: str
    objective: str
    """Kind of the objective that the head was trained with."""
    head: str
    """Value of `objective.head` for the head of this model type."""
    sees: str
    """Value of `objective.sees` that the model was trained with."""
    needs: Mapping[str, tuple[Any, ...]]
    """Values of entries of config.json with which our encoder computes the same; the first is the default."""
    encoder: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Function that returns the settings of the encoder from config.json."""
    positions: str
    """Name of the entry of config.json with the number of positions."""
    body: Mapping[str, str]
    """Names of the encoder's weights in the folder, by plain names."""
    head_names: Mapping[str, str]
    """Names of the head's own weights in the folder, by plain names."""
    prefix: str
    """Prefix of the encoder's weights in the file of a class with a head."""


def _bert_encoder(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "num_hidden_layers": config["num_hidden_layers"],
        "hidden_size": config["hidden_size"],
        "num_attention_heads": config["num_attention_heads"],
        "intermediate_size": config["intermediate_size"],
        "activation": "gelu",
        "norm": "post",
        "embedding": EmbeddingSettings(),
        "layer_norm_epsilon": config.get("layer_norm_eps", 1e-12),
        "dropout": config.get("hidden_dropout_prob", 0.1),
        "attention_dropout": config.get("attention_probs_dropout_prob", 0.1),
    }


def _gpt2_encoder(config: Mapping[str, Any]) -> dict[str, Any]:
    inside = config.get("n_inner")
    return {
        "num_hidden_layers": config["n_layer"],
        "hidden_size": config["n_embd"],
        "num_attention_heads": config["n_head"],
        **({} if inside is None else {"intermediate_size": inside}),
        "activation": GPT2_ACTIVATIONS[config.get("activation_function", "gelu_new")],
        "norm": "pre",
        "embedding": EmbeddingSettings(norm=False),
        "layer_norm_epsilon": config.get("layer_norm_epsilon", 1e-5),
        "dropout": config.get("resid_pdrop", 0.1),
        "attention_dropout": config.get("attn_pdrop", 0.1),
    }


GPT2_ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu"}
"""Our names of GPT-2's activations."""

ARCHITECTURES = {
    "bert": Architecture(
        name="BERT",
        objective="masked_lm",
        head="bert",
        sees="both_sides",
        needs={
            "hidden_act": ("gelu",),
            "position_embedding_type": ("absolute", None),
            "is_decoder": (False, None),
            "add_cross_attention": (False, None),
            "tie_word_embeddings": (True, None),
        },
        encoder=_bert_encoder,
        positions="max_position_embeddings",
        body=BERT_BODY,
        head_names={name: new for name, new in BERT_HEAD.items() if name != "output"},
        prefix="bert.",
    ),
    "gpt2": Architecture(
        name="GPT-2",
        objective="causal_lm",
        head="tied",
        sees="left_only",
        needs={
            "activation_function": tuple(GPT2_ACTIVATIONS),
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
            "add_cross_attention": (False, None),
            "is_causal": (True,),
            "tie_word_embeddings": (True, None),
        },
        encoder=_gpt2_encoder,
        positions="n_positions",
        body={name: new for name, new in GPT2_BODY.items() if name != "output.weight"},
        head_names={},
        prefix="transformer.",
    ),
}
"""Model types that a run can start from, by their `model_type` in config.json."""


class Pretrained(NamedTuple):
    """Hugging Face folder whose model the encoder can hold."""

    folder: Path
    architecture: Architecture
    config: Mapping[str, Any]
    tokenizer: FolderTokenizer
    encoder: EncoderSettings

    def order(self) -> list[int | None]:
        """Return the folder's row of each of our ids; None for an id that the folder does not have."""
        return self.tokenizer.order(self.config["vocab_size"])

    @property
    def segments(self) -> int:
        """Return the number of segments that have an embedding."""
        return int(self.config["type_vocab_size"]) if "segments" in self.architecture.body else 0

    def unscored(self) -> tuple[int, ...]:
        """Return our special ids to which a GPT-2 head gives no probability: those of the run that was exported
        to the folder; in a folder from elsewhere those that have no row.

        Raises:
            DataError: config.json has other ids there than special ones.
        """
        exported = self.config.get(EXPORTED)
        if not isinstance(exported, dict) or "unscored" not in exported:
            return self.tokenizer.without_row()
        ids = exported["unscored"]
        if not isinstance(ids, list) or not all(i in UNSCORED_IDS for i in ids):
            raise DataError(
                f"{self.folder / 'config.json'} has unscored: {json.dumps(ids)} in {EXPORTED}, expected a list of "
                f"some of the special ids {', '.join(map(str, UNSCORED_IDS))}; export the run again."
            )
        return tuple(i for i in UNSCORED_IDS if i in ids)


def with_folder(run: RunSettings, data_root: Path) -> RunSettings:
    """Return the settings of a run, completed with all that follows from the folders that they name.

    A run without folders is returned unchanged.

    Raises:
        DataError: a folder is missing or incomplete, the encoder cannot hold its model, or a setting
            contradicts it.
    """
    init = run.init
    if init is None:
        return _with_tokenizer(run, data_root)
    folder = data_root / init.path
    pretrained = read_folder(folder)
    _require_fit(run, pretrained)
    content = content_sha256(folder, weights=init.weights == "folder", head=init.head == "folder")
    if init.content not in (None, content):
        raise DataError(
            f"init.content is {init.content}, but the content of {folder} is {content}; name the folder with "
            "this content, or remove init.content."
        )
    filled_in: dict[str, Any] = {"content": content, "segments": pretrained.segments >= 2}
    if pretrained.architecture.head == "tied":
        filled_in["unscored"] = pretrained.unscored()
    for key in filled_in.keys() & {"segments", "unscored"}:
        _require_equal(init, "init", key, filled_in[key], folder)
    objective = run.objective.model_copy(update={"head": pretrained.architecture.head})
    return run.model_copy(
        update={
            "encoder": _encoder(run, pretrained),
            "objective": objective,
            "data": _data(run, init, pretrained),
            "init": init.model_copy(update=filled_in),
        }
    )


def _with_tokenizer(run: RunSettings, data_root: Path) -> RunSettings:
    if run.data.tokenizer is None:
        return run
    folder = data_root / run.data.tokenizer
    tokenizer = read_tokenizer(folder)
    size = tokenizer.vocab_size(tokenizer.rows)
    _require_equal(run.data, "data", "vocab_size", size, folder)
    return run.model_copy(update={"data": run.data.model_copy(update={"vocab_size": size})})


def read_folder(folder: Path) -> Pretrained:
    """Return the facts about a folder with a pre-trained model, without its weights.

    Raises:
        DataError: it is missing or incomplete, or the encoder cannot hold its architecture.
    """
    if not folder.is_dir():
        raise DataError(
            f"init.path: {folder} is not a folder; name a folder with config.json, tokenizer and {WEIGHTS}."
        )
    try:
        config = json.loads(read_file(folder / "config.json"))
        kind = config.get("model_type")
    except FileNotFoundError:
        raise DataError(
            f"init.path: {folder} has no config.json; name the folder of a Hugging Face model."
        ) from None
    except UNREADABLE as error:
        raise DataError(f"{folder / 'config.json'} cannot be read ({error}); copy the folder again.") from error
    architecture = ARCHITECTURES.get(kind) if isinstance(kind, str) else None
    if architecture is None:
        raise DataError(
            f"init.path: {folder} has a model of model_type {json.dumps(kind)}, expected "
            f"{' or '.join(ARCHITECTURES)}; use another model (`ablate analyse` can measure this one)."
        )
    for name, values in architecture.needs.items():
        if config.get(name, values[0]) not in values:
            supported = " or ".join(json.dumps(value) for value in values if value is not None)
            raise DataError(
                f"init.path: {folder} has a {architecture.name} with {name}: {json.dumps(config[name])}, but "
                f"`init` reads only {supported}; use another model."
            )
    try:
        config = {"vocab_size": {"bert": 30522, "gpt2": 50257}[kind], "type_vocab_size": 2} | config
        sizes = {name: config[name] for name in ("vocab_size", "type_vocab_size", architecture.positions)}
        refused = {name: size for name, size in sizes.items() if not isinstance(size, int) or size < 1}
        encoder = EncoderSettings(**architecture.encoder(config))
    except KeyError as error:
        raise DataError(
            f"{folder / 'config.json'} has no {error.args[0]}; replace it by the config.json that came with the "
            "model."
        ) from error
    except ValidationError as error:
        refused = {f"encoder.{fault['loc'][0]}": fault["input"] for fault in error.errors()}
    if refused:
        name, value = next(iter(refused.items()))
        raise DataError(
            f"init.path: config.json of {folder} gives {name}: {json.dumps(value)}, which the encoder cannot "
            "hold; use another model."
        )
    return Pretrained(folder, architecture, config, read_tokenizer(folder), encoder)


def _require_fit(run: RunSettings, pretrained: Pretrained) -> None:
    """Raise a DataError if a folder's model does not suit the run, or lacks something that the run reads."""
    init, (folder, architecture, config, tokenizer, _) = run.init, pretrained
    assert init is not None
    objective = run.objective
    if objective.kind != architecture.objective:
        raise DataError(
            f"objective.kind is {objective.kind}, but init.path {folder} has a {architecture.name}, which needs "
            f"objective.kind {architecture.objective}; change one of the two."
        )
    if objective.sees != architecture.sees:
        raise DataError(
            f"objective.sees is {objective.sees}, but the model of init.path {folder} was trained with "
            f"{architecture.sees}; leave sees out."
        )
    if objective.kind == "masked_lm" and tokenizer.special[MASK] is None:
        raise DataError(
            f"init.path: the tokenizer of {folder} has no mask token, which masked_lm needs; add mask_token to "
            "its tokenizer_config.json."
        )
    if isinstance(objective, MaskedLMSettings) and objective.pair_loss != "none":
        raise DataError(
            f"objective.pair_loss is {objective.pair_loss}, but the head for pairs in {folder} cannot be "
            "loaded; leave pair_loss out."
        )
    if getattr(objective, "label_smoothing", 0) and architecture.head == "tied":
        raise DataError(
            f"objective.label_smoothing must be 0 with init.path {folder}, because its head gives no scores to "
            "special ids; leave it out."
        )
    _require_equal(objective, "objective", "head", architecture.head, folder)
    if tokenizer.rows > config["vocab_size"]:
        raise DataError(
            f"init.path: the tokenizer of {folder} has {tokenizer.rows:,} ids, but config.json says "
            f"{config['vocab_size']:,}; save the model's own tokenizer in this folder."
        )
    if run.training.input_format in PAIR_FORMATS and pretrained.segments < 2:
        raise DataError(
            f"training.input_format is {run.training.input_format}, but the model of {folder} has no embeddings "
            "of two segments; use sentences or full_sentences."
        )
    if init.weights == "folder":
        _require_weights(pretrained, head=init.head == "folder")


def _require_weights(pretrained: Pretrained, *, head: bool) -> None:
    """Raise a DataError if weights are missing, or have other sizes than config.json says."""
    folder, architecture, config, _, encoder = pretrained
    if config.get("transformers_weights") is not None:
        raise DataError(
            f"{folder / 'config.json'} names a file of weights (transformers_weights), but `init` reads only "
            f"{WEIGHTS}; rename this file to {WEIGHTS}, and remove the entry."
        )
    shapes = {plain_name(name, architecture): shape for name, shape in shapes_of(folder).items()}
    if not weight_files(folder):
        raise DataError(
            f"init.path: {folder} has no {WEIGHTS}; save the model there in this format, with "
            f"`save_pretrained` of transformers."
        )
    if missing := sorted(set(_needed(pretrained)) - set(shapes)):
        raise DataError(
            f"init.path: {len(missing):,} of the weights of a {architecture.name} are missing in {folder}, such "
            f"as {missing[0]}; copy the whole folder."
        )
    if head and (missing := sorted(set(_head_needed(architecture)) - set(shapes))):
        raise DataError(
            f"init.path: {folder} has an encoder, but no head of {architecture.objective} ({missing[0]} is "
            "missing); write init.head: random to start with a random head, which predicts nothing useful "
            "before training."
        )
    body, expand = architecture.body, architecture.body["blocks.{}.expand"]
    sizes = {
        "ids": (shapes[f"{body['tokens']}.weight"][0], config["vocab_size"]),
        "numbers in an embedding": (shapes[f"{body['tokens']}.weight"][1], encoder.hidden_size),
        "positions": (shapes[f"{body['positions']}.weight"][0], config[architecture.positions]),
        "layers": (
            sum(f"{expand.format(number)}.bias" in shapes for number in range(len(shapes))),
            encoder.num_hidden_layers,
        ),
        "units in a feed-forward layer": (shapes[f"{expand.format(0)}.bias"][0], encoder.intermediate_size),
    }
    if "segments" in body:
        sizes["segments"] = (shapes[f"{body['segments']}.weight"][0], config["type_vocab_size"])
    for name, (in_weights, in_config) in sizes.items():
        if in_weights != in_config:
            raise DataError(
                f"init.path: the weights of {folder} have {in_weights:,} {name}, but its config.json says "
                f"{in_config:,}; the two files are not of the same model, so copy the whole folder again."
            )


def _needed(pretrained: Pretrained) -> Iterator[str]:
    """Yield the names of the encoder's weights, without prefix."""
    architecture = pretrained.architecture
    blocks = pretrained.encoder.num_hidden_layers
    for name, new in architecture.body.items():
        kinds = ("weight",) if name in ("tokens", "positions", "segments") else ("weight", "bias")
        for number in range(blocks if "{}" in new else 1):
            yield from (f"{new.format(number)}.{kind}" for kind in kinds)


def _head_needed(architecture: Architecture) -> Iterator[str]:
    for name, new in architecture.head_names.items():
        yield from [new] if name == "output.bias" else [f"{new}.weight", f"{new}.bias"]


def plain_name(name: str, architecture: Architecture) -> str:
    """Return the name of a weight without a class's prefix, and with today's names of layer norms."""
    renamed = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
    return renamed.removeprefix(architecture.prefix)


def weight_files(folder: Path, names: Sequence[str] = (WEIGHTS, INDEX)) -> list[Path]:
    """Return the paths of the files with the weights: one file, or the files that an index names. Empty if there
    are none.

    Args:
        names: names of files and indexes of weights, in the order in which they are looked for.

    Raises:
        DataError: the index cannot be read, or names a file outside the folder.
    """
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None or path.suffix != ".json":
        return [path] if path else []
    try:
        parts = sorted(set(json.loads(read_file(path))["weight_map"].values()))
        elsewhere = next((part for part in parts if Path(part).name != part or "\0" in part), None)
    except (*UNREADABLE, KeyError) as error:
        raise DataError(f"{path} is not an index of weights; copy the folder again.") from error
    if elsewhere is not None:
        raise DataError(
            f"{path} names {elsewhere!r}, expected the name of a file in the same folder; copy the folder again."
        )
    return [folder / part for part in parts]


def shapes_of(folder: Path) -> dict[str, list[int]]:
    """Return the shape of every weight by its name in the file, from the headers of the files. Empty if there
    are no files.

    Raises:
        DataError: a file is missing, damaged or cut off.
    """
    shapes: dict[str, list[int]] = {}
    for path in weight_files(folder):
        try:
            if not path.is_file():  # a pipe would wait for ever
                raise FileNotFoundError("it is not a regular file")
            path.open("rb").close()  # safetensors calls every file that it may not open missing
            with safe_open(path, framework="np") as file:
                shapes |= {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise DataError(f"{path} cannot be read as safetensors ({error}); copy the folder again.") from error
    return shapes


def _encoder(run: RunSettings, pretrained: Pretrained) -> EncoderSettings:
    """Return the settings of the encoder. Settings in the spec must be in `FREE` or equal the model's."""
    for name in run.encoder.model_fields_set - FREE:
        _require_equal(run.encoder, "encoder", name, getattr(pretrained.encoder, name), pretrained.folder)
    free = {name: getattr(run.encoder, name) for name in run.encoder.model_fields_set & FREE}
    return pretrained.encoder.model_copy(update=free)


def _data(run: RunSettings, init: HuggingFaceInit, pretrained: Pretrained) -> Any:
    """Return the settings of the text, with the folder's tokenizer and a possible `max_length`."""
    data, folder = run.data, pretrained.folder
    positions, size = pretrained.config[pretrained.architecture.positions], len(pretrained.order())
    _require_equal(data, "data", "vocab_size", size, folder)
    if data.tokenizer not in (None, init.path):
        raise DataError(
            f"data.tokenizer is {data.tokenizer}, but the model of init.path {folder} has its own tokenizer; "
            "leave data.tokenizer out."
        )
    if data.max_length > positions and "max_length" in data.model_fields_set:
        raise DataError(
            f"data.max_length is {data.max_length}, but the model of {folder} has {positions} positions; lower it."
        )
    update = {"tokenizer": init.path, "vocab_size": size, "max_length": min(data.max_length, positions)}
    return data.model_copy(update=update)


def _require_equal(section: Any, name: str, key: str, value: Any, folder: Path) -> None:
    """Raise a DataError if the spec gives a setting that has another value in the folder."""
    given = getattr(section, key)
    if key in section.model_fields_set and given != value:
        shown = [
            setting.model_dump() if isinstance(setting, EmbeddingSettings) else setting
            for setting in (given, value)
        ]
        raise DataError(
            f"{name}.{key} is {json.dumps(shown[0])}, but the model of {folder} has {json.dumps(shown[1])}; "
            f"leave {name}.{key} out."
        )


def content_sha256(folder: Path, *, weights: bool, head: bool) -> str:
    """Return the SHA-256 over what a run reads of a folder: config.json, tokenizer and weights.

    Args:
        weights: whether the weights are read.
        head: whether the weights of the head are read.
    """
    files = [folder / "config.json", *(weight_files(folder) if weights else ())]
    content = {"files": [sha256(path) for path in files], "tokenizer": content_of(folder), "head": head}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
