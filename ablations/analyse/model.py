"""Loader of models from local Hugging Face folders, without a network and without executing code from them.

Layer 0 is the input of the first block, and layer i is the output of block i. The supported architectures
return these states as `hidden_states`. Architectures with a final norm (`FINAL_NORMS`) return the last state
after the norm; here it is read before the norm.
"""

import hashlib
import inspect
import json
import os
import pickle
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from ablations.errors import MeasureError
from ablations.wording import listed, several, shown
from lightning_modules.files import read_file
from lightning_modules.model.parts import EXPORTED
from lightning_modules.pretrained.folder import weight_files

WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""Names of files with weights, in the order in which transformers looks for them."""

SUPPORTED = (
    *("bert", "roberta", "distilbert", "electra", "albert", "xlm-roberta", "camembert", "mpnet", "deberta-v2"),
    *("deberta", "modernbert", "eurobert", "ernie", "data2vec-text", "megatron-bert", "rembert"),
    *("longformer", "roformer", "xlm", "xlm-roberta-xl", "roberta-prelayernorm", "esm", "encoder-decoder"),
    *("t5", "mt5", "umt5", "bart", "mbart", "m2m_100", "marian"),
    *("gpt2", "gpt_neo", "gptj", "gpt_neox", "bloom", "llama", "mistral", "qwen2", "qwen3", "olmo", "olmo2"),
    *("gemma", "gemma2", "gemma3_text", "phi3", "smollm3", "starcoder2"),
)
"""Model types whose hidden states are known (see `hidden_states`). `ablate analyse --help` lists them."""

LOCAL = {"local_files_only": True, "trust_remote_code": False}
"""Arguments for every call that reads from a folder."""

SAYS_NOTHING = (
    *("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "return_dict", EXPORTED),
    *("id2label", "label2id", "num_labels", "problem_type", "finetuning_task"),
)
"""Entries of config.json that have no influence on the states of the model."""

NO_WEIGHTS = ("position_ids", "token_type_ids", "inv_freq", "bias", "masked_bias", "weights", "version")
"""Last parts of the names of constants that some files hold beside the weights. `bias` is one if no `weight` is
beside it."""

OPTIONS_OF_PARTS = {
    "normalizer": {
        "do_lower_case": "lowercase",
        "strip_accents": "strip_accents",
        "tokenize_chinese_chars": "handle_chinese_chars",
    },
    "pre_tokenizer": {"add_prefix_space": "add_prefix_space"},
}
"""Options of tokenizer_config.json by the part of tokenizer.json that they change, with their names there."""

MOST_LAYERS = 10_000
"""Highest number of layers in config.json. More would take hours to make, or fill the memory."""

LONGEST_REASON = 300
"""Highest number of characters of a library's error that our own sentences repeat."""


@contextmanager
def library() -> Iterator[Any]:
    """Give the module transformers, with its reports and progress bars switched off in the block.

    Raises:
        MeasureError: transformers is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise MeasureError(
            "transformers, which reads Hugging Face folders, is not installed; install it with "
            'pip install "pretraining-ablations[hf]".'
        ) from error
    logging = transformers.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def checked_config(folder: Path) -> dict[str, Any]:
    """Return config.json of a folder, after checking its weights and that its architecture is supported.

    Raises:
        MeasureError: a check fails, or the environment would let a checkpoint execute code.
    """
    if not folder.is_dir():
        raise MeasureError(
            f"{folder} is not a folder; name a folder with the config.json, weights and tokenizer of a model."
        )
    _require_ordinary(folder)
    try:
        config = _json(folder / "config.json")
        kind = config.get("model_type")
    except FileNotFoundError:
        raise MeasureError(
            f"{folder} has no config.json, so it is not the folder of a Hugging Face model; for a run, write "
            "such a folder with `ablate export`."
        ) from None
    except (OSError, ValueError, AttributeError) as error:
        raise MeasureError(
            f"{folder / 'config.json'} cannot be read ({reason(error)}); write or copy it again."
        ) from error
    if not isinstance(kind, str):
        raise MeasureError(
            f"{folder / 'config.json'} has no model_type, which says what it is; write it there, such as "
            f'"model_type": "bert".'
        )
    if kind not in SUPPORTED:
        raise MeasureError(
            f"{folder}: models of model_type {kind!r} cannot be analysed, because it is not tested which of their "
            "states are the outputs of blocks; use a model of a type that `ablate analyse --help` lists."
        )
    if config.get("transformers_weights") is not None:
        raise MeasureError(
            f"{folder / 'config.json'} names a file of weights (transformers_weights), but only usual names are "
            "read; rename this file to model.safetensors, and remove the entry."
        )
    entries = [entry for part in (config, *config.values()) if isinstance(part, dict) for entry in part.items()]
    if any("layer" in name and isinstance(value, int) and value > MOST_LAYERS for name, value in entries):
        raise MeasureError(
            f"{folder / 'config.json'} gives more than {MOST_LAYERS:,} layers; write or copy it again."
        )
    if not weight_files(folder, WEIGHTS):
        raise MeasureError(f"{folder} has no weights; expected {listed(WEIGHTS)} beside config.json.")
    if os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):
        raise MeasureError(
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, so a checkpoint could execute code; unset this variable."
        )
    return config


def _require_ordinary(folder: Path) -> None:
    """Raise a MeasureError if a pipe or a device is in a folder, also through a link: it may have no end."""
    for path in map(folder.joinpath, os.listdir(folder) if os.access(folder, os.R_OK) else ()):
        if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
            raise MeasureError(f"{path} is a pipe or a device, which may have no end; remove it from the folder.")


def _json(path: Path) -> Any:
    """Return the content of a JSON file, otherwise raise an OSError or a ValueError."""
    try:
        return json.loads(read_file(path))
    except RecursionError:
        raise ValueError("it has too many brackets inside each other") from None


def tokenizer_of(folder: Path) -> Any:
    """Return the tokenizer in a folder.

    Raises:
        MeasureError: the folder has no tokenizer, or it cannot be loaded.
    """
    _require_ordinary(folder)
    with library() as transformers, warnings.catch_warnings():
        # MarianTokenizer recommends sacremoses for a function that it never calls when it cuts a text.
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **LOCAL)
            if tokenizer.is_fast and (folder / "tokenizer.json").is_file():
                _take_parts(tokenizer.backend_tokenizer, folder)
        except Exception as error:  # a damaged folder can make transformers raise any error
            if find_spec("sentencepiece") is None and _is_sentencepiece(folder):
                raise MeasureError(
                    f"{folder}: its tokenizer needs sentencepiece, which is not installed; install it with "
                    f'pip install "pretraining-ablations[hf]".'
                ) from error
            raise MeasureError(
                f"{folder}: the tokenizer cannot be loaded ({reason(error)}); save the model's own tokenizer in "
                "this folder, if possible as tokenizer.json."
            ) from error
    # Without any file transformers makes a tokenizer that knows no words.
    names = {"tokenizer.json", *(type(tokenizer).vocab_files_names.values() or ["tokenizer_config.json"])}
    if not any((folder / name).is_file() for name in names):
        raise MeasureError(
            f"{folder} has no tokenizer; save the model's own tokenizer in this folder, if possible as "
            "tokenizer.json."
        )
    tokenizer.truncation_side = "right"  # a sentence that is cut must keep its beginning
    return tokenizer


def _take_parts(tokenizer: Tokenizer, folder: Path) -> None:
    """Give a tokenizer the parts that tokenizer.json describes.

    transformers makes the tokenizers of some classes anew from the vocabulary alone, with parts that are usual
    for the class. Options in tokenizer_config.json win over tokenizer.json, as they do in transformers.
    """
    written = _json(folder / "tokenizer.json")
    try:
        options = _json(folder / "tokenizer_config.json")
    except FileNotFoundError:
        options = {}
    options = {name: value for name, value in options.items() if value is not None}
    for part, renamed in OPTIONS_OF_PARTS.items():
        values = written.get(part) or {}
        given = {name: options[option] for option, name in renamed.items() if option in options}
        written[part] = values | {name: value for name, value in given.items() if name in values} or None
    whole = Tokenizer.from_str(json.dumps(written))
    if {"add_bos_token", "add_eos_token"} & set(options):
        whole.post_processor = tokenizer.post_processor
    for part in ("normalizer", "pre_tokenizer", "post_processor", "model", "decoder"):
        setattr(tokenizer, part, getattr(whole, part))


def _is_sentencepiece(folder: Path) -> bool:
    """Return whether the tokenizer exists only as a sentencepiece model, like Marian's on the Hub."""
    models = [path for ending in ("spm", "model") for path in folder.glob(f"*.{ending}")]
    return bool(models) and not (folder / "tokenizer.json").is_file()


def model_identity(config: dict[str, Any], weights: list[Path]) -> str:
    """Return ten hex digits of a hash over the weights and over config.json without `SAYS_NOTHING`. Raise a
    MeasureError if a part of the weights is missing."""
    decisions = {name: value for name, value in config.items() if name not in SAYS_NOTHING}
    sha256 = hashlib.sha256(json.dumps(decisions, sort_keys=True).encode())
    for path in weights:
        try:
            with path.open("rb") as stream:
                sha256.update(hashlib.file_digest(stream, "sha256").digest())
        except OSError as error:
            raise MeasureError(f"{path} cannot be read ({error.strerror}); copy the whole folder.") from error
    return sha256.hexdigest()[:10]


def untrained_identity(config: dict[str, Any], *, seed: int) -> str:
    """Return ten hex digits for an architecture with the random weights of a seed."""
    return model_identity(config | {"untrained": seed}, [])


def saved_step(folder: Path, config: dict[str, Any]) -> int | None:
    """Return the step in config.json (`ablate export`) or trainer_state.json; None if neither has it."""
    exported = config.get(EXPORTED)
    if isinstance(exported, dict) and isinstance(exported.get("step"), int):
        return exported["step"]
    try:
        step = _json(folder / "trainer_state.json")["global_step"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) else None


def reason(error: Exception) -> str:
    """Return the first sentence of an error for another sentence, cut to `LONGEST_REASON` characters."""
    message = " ".join(str(error).split()) or type(error).__name__
    first = re.split(r"\.(?: (?=[A-Z])|$)", message, maxsplit=1)[0]
    return textwrap.shorten(first, LONGEST_REASON, placeholder=" ...")


# Every model has eager attention, in float32 and on any device.
OPTIONS = {"dtype": torch.float32, "attn_implementation": "eager"}

TWO_SIDED = ("t5", "mt5", "umt5", "bart", "mbart", "m2m_100", "marian", "encoder-decoder")
"""Model types with an encoder and a decoder. Only the encoder is read."""

FINAL_NORMS = {
    "modernbert": "final_norm",
    "megatron-bert": "encoder.ln",
    "xlm-roberta-xl": "encoder.LayerNorm",
    "roberta-prelayernorm": "LayerNorm",
    "esm": "encoder.emb_layer_norm_after",
    "gpt_neox": "final_layer_norm",
    **dict.fromkeys(("t5", "mt5", "umt5"), "final_layer_norm"),
    **dict.fromkeys(("mbart", "m2m_100"), "layer_norm"),
    **dict.fromkeys(("gpt2", "gpt_neo", "gptj", "bloom"), "ln_f"),
    **dict.fromkeys(("eurobert", "llama", "mistral", "qwen2", "qwen3", "olmo", "olmo2", "phi3"), "norm"),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text", "smollm3", "starcoder2"), "norm"),
}
"""Module between the last block and the model's last hidden state, for the model types that have one."""

AFTER_PADDING = (
    *("roberta", "xlm-roberta", "camembert", "mpnet", "longformer", "xlm-roberta-xl", "roberta-prelayernorm"),
    "data2vec-text",
)
"""Model types whose first position is one after that of padding."""

NO_LIMIT = 10**9
"""Lengths from here on mean that a tokenizer has no limit."""


@dataclass(frozen=True)
class HuggingFaceModel:
    """Encoder with its tokenizer, in float32 and evaluation mode, on the GPU if there is one."""

    folder: Path
    run_id: str
    """Ten hex digits of `model_identity`, the same for the same model in another folder. For a twin it is
    `untrained_identity`, for a series the `run_id` of its arm."""
    step: int | None
    """Training step at which it was saved. None if that is not known."""
    model: Any
    """Module with the weights. None if only the facts are kept."""
    accepts: frozenset[str]
    """Names of the inputs that the model takes."""
    tokenizer: Any
    max_length: int | None
    """Longest input in tokens, special tokens included. None if there is no limit."""
    ids: int
    """Number of rows of the input embeddings."""
    heads: int
    """Number of attention heads."""
    layers: int
    """Number of blocks. There is one more hidden state."""
    width: int
    parameters: int
    """Number of weights of the encoder, including its pooler if it has one."""
    final_norm: str | None
    """Name of the final norm's module. None for a model without one."""
    caveats: tuple[str, ...] = ()
    """Sentences on what the folder has that its states may depend on and that was not read."""
    drawn: int | None = None
    """Seed of random weights. None for the weights of the folder."""

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        return next(self.model.parameters()).device


def load(folder: Path, *, tokenizer_folder: Path | None = None) -> HuggingFaceModel:
    """Load the model in a folder, without heads and decoders. A pooler is loaded, but nothing reads it.

    Args:
        tokenizer_folder: folder with its tokenizer. By default the same folder.

    Raises:
        MeasureError: the extra [hf] is not installed; the folder is missing, incomplete or damaged; its
            architecture is not in `SUPPORTED`; the model cannot read a text; or the weights are of another
            model.
    """
    config = checked_config(folder)
    with library() as transformers, warnings.catch_warnings():
        # torch asks for a report of pickles of another version; whether it can read them is said below.
        warnings.filterwarnings("ignore", message="Detected pickle protocol")
        try:
            whole, loading = _auto_class(transformers, config["model_type"]).from_pretrained(
                folder, output_loading_info=True, ignore_mismatched_sizes=True, **OPTIONS, **LOCAL
            )
        except pickle.UnpicklingError as error:
            raise MeasureError(
                f"{folder}: its weights contain other things than tensors, so they were not opened; save them "
                "as safetensors."
            ) from error
        except Exception as error:  # a damaged folder can make transformers raise any error
            raise MeasureError(
                f"{folder}: the model cannot be loaded ({reason(error)}); write or copy the folder again."
            ) from error
    model, tokenizer = _ready(whole), tokenizer_of(tokenizer_folder or folder)
    final_norm = FINAL_NORMS.get(model.config.model_type)
    whole.requires_grad_(True)
    probe_BT = torch.zeros(1, 2, dtype=torch.long, device=next(model.parameters()).device)
    try:
        states = hidden_states(model, {"input_ids": probe_BT}, final_norm=final_norm)
    except Exception as error:  # as of a RoBERTa without pad_token_id, from which its positions are counted
        raise MeasureError(
            f"{folder}: the model cannot read two tokens ({reason(error)}); correct its config.json, or copy the "
            f"folder again."
        ) from error
    if len(states) < 2:
        raise MeasureError(f"{folder}: the model has no layers; correct their number in its config.json.")
    _require_weights(model, whole, states, loading, folder)
    return HuggingFaceModel(
        folder=folder,
        run_id=model_identity(config, weight_files(folder, WEIGHTS)),
        step=saved_step(folder, config),
        model=model,
        accepts=frozenset(inspect.signature(model.forward).parameters),
        tokenizer=tokenizer,
        max_length=_max_length(model.config, tokenizer, folder),
        ids=whole.get_input_embeddings().num_embeddings,
        heads=model.config.num_attention_heads,
        layers=len(states) - 1,
        width=states[0].shape[-1],
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        final_norm=final_norm,
        caveats=tuple(_caveats(model, whole, loading["unexpected_keys"], config)),
    )


def _caveats(model: Any, whole: Any, unread: Iterable[str], config: dict[str, Any]) -> Iterator[str]:
    """Yield sentences on code of the folder, and on weights for the encoder that its class does not have."""
    kind = type(whole).__name__
    if config.get("auto_map"):
        yield (
            f"config.json names code of its own (auto_map), which is never executed; the states are those of "
            f"{kind} of transformers, and not the model's if its code computes anything else."
        )
    [place] = [name for name, module in whole.named_modules() if module is model]
    children = {f"{place}.{name}".lstrip(".") for name, _ in model.named_children() if name != "pooler"}
    names = {name: name.removeprefix(f"{whole.base_model_prefix}.") for name in unread}
    unknown = sorted(
        name
        for name, inner in names.items()
        if any(inner.startswith(f"{child}.") for child in children) and not _is_constant(name, set(names))
    )
    if unknown:
        yield (
            f"{several(len(unknown), 'tensor')} of the weights, such as {unknown[0]}, have no place in {kind} "
            "with this config.json and were not read; if the model needs them, as adapters or more blocks, the "
            "states are not its own, so merge adapters into the weights or correct config.json."
        )


def _is_constant(name: str, names: set[str]) -> bool:
    module, _, last = name.rpartition(".")
    return last in NO_WEIGHTS and not (last == "bias" and f"{module}.weight" in names)


def untrained(trained: HuggingFaceModel, *, seed: int) -> HuggingFaceModel:
    """Return a model of the same architecture and tokenizer with new random weights."""
    config = checked_config(trained.folder)
    with library() as transformers, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        settings = transformers.AutoConfig.from_pretrained(trained.folder, **LOCAL)
        auto_class = _auto_class(transformers, settings.model_type)
        whole = auto_class.from_config(settings, trust_remote_code=False, **OPTIONS)
    run_id = untrained_identity(config, seed=seed)
    return replace(trained, run_id=run_id, step=0, model=_ready(whole), drawn=seed)


def _auto_class(transformers: Any, model_type: str) -> Any:
    """Return the class of transformers that loads a model type. For encoder-decoder only a class with a head
    exists."""
    return transformers.AutoModelForSeq2SeqLM if model_type == "encoder-decoder" else transformers.AutoModel


def hidden_states(model: Any, inputs: Mapping[str, Tensor], *, final_norm: str | None) -> list[Tensor]:
    """Return L + 1 tensors BTD: the input of the first block, then the output of each block.

    Args:
        final_norm: name of the final norm's module. If given, the last tensor is the input of this norm.
    """
    before_norm: list[Tensor] = []
    hooks = []
    if final_norm is not None:
        norm = model.get_submodule(final_norm)
        hooks = [norm.register_forward_pre_hook(lambda _, entered: before_norm.append(entered[0]))]
    with library():
        states = list(model(**inputs, output_hidden_states=True, return_dict=True).hidden_states)
    for hook in hooks:
        hook.remove()
    return states[:-1] + before_norm if final_norm is not None else states


def _ready(whole: Any) -> Any:
    """Return the encoder of a model that also has a decoder, otherwise the model, ready for evaluation.

    A folder may also hold an encoder that was saved without its decoder.
    """
    model = whole.get_encoder() if whole.config.model_type in TWO_SIDED else whole
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def _require_weights(model: Any, whole: Any, states: list[Tensor], loading: dict[str, Any], folder: Path) -> None:
    """Raise a MeasureError if weights are missing that the states depend on. A pooler's may be missing."""
    misfits = {
        name: f"{name} (in the file with shape {tuple(shape)})" for name, shape, _ in loading["mismatched_keys"]
    }
    lacking = {name: name for name in loading["missing_keys"]} | misfits
    for name, module in whole.named_modules():
        if hasattr(module, "create_weight"):  # positions of sines, which no file needs to hold
            lacking.pop(f"{name}.weight", None)
    parameters = {name: value for name, value in whole.named_parameters(remove_duplicate=False) if name in lacking}
    if not parameters:
        return
    total = torch.stack([state.sum() for state in states]).sum()
    reached = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    needed = sorted(name for name, gradient in zip(parameters, reached, strict=True) if gradient is not None)
    if needed:
        example = next((name for name in needed if name in misfits), needed[0])
        raise MeasureError(
            f"{folder}: {len(needed)} of the weights that {type(model).__name__} needs are missing, such as "
            f"{lacking[example]}; the weights and config.json are not of the same model, so copy the whole "
            "folder again."
        )


def require_ids(model: HuggingFaceModel, largest: int) -> None:
    """Raise a MeasureError if the tokenizer gives a larger id than the model has."""
    if largest >= model.ids:
        raise MeasureError(
            f"{model.folder}: the tokenizer gives the id {largest}, but the model has {model.ids} ids; "
            "save the model's own tokenizer in this folder."
        )


def _max_length(config: Any, tokenizer: Any, folder: Path) -> int | None:
    """Return the lower of the limits of the model's positions and its tokenizer; None without a limit.

    Raise a MeasureError if the tokenizer's is no number, or the lower one leaves no room for text.
    """
    positions = getattr(config, "max_position_embeddings", None)
    is_absolute_esm = config.model_type == "esm" and config.position_embedding_type == "absolute"
    if positions and (config.model_type in AFTER_PADDING or is_absolute_esm):
        # MPNet counts from 1 whatever its padding is. The model cannot use the positions below its first.
        positions -= (1 if config.model_type == "mpnet" else config.pad_token_id) + 1
    of_tokenizer = tokenizer.model_max_length
    if not isinstance(of_tokenizer, int | float):
        written = f"{folder}: model_max_length in tokenizer_config.json is {shown(of_tokenizer)}"
        raise MeasureError(f"{written}, expected a number; correct it.")
    limits = [int(limit) for limit in (positions, of_tokenizer) if limit and 0 < limit < NO_LIMIT]
    longest, special = min(limits, default=None), tokenizer.num_special_tokens_to_add()
    if longest is not None and longest <= special:
        raise MeasureError(
            f"{folder}: the model reads at most {several(longest, 'token')}, but {special} special tokens stand "
            "around a sentence; correct model_max_length in tokenizer_config.json or positions in config.json."
        )
    return longest
